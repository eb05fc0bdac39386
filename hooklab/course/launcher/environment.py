"""The Python that runs the course: the one at hand if it has everything, else the one in ``.venv``, made when needed.

:func:`ready_python` is what ``lab``, ``test`` and ``build`` call; :func:`chosen_python` only looks, for ``doctor``.

A ``.venv`` holds a small file of notes, ``hooklab.json``: who made it, which requirements.txt was installed, and, while
something is being done to it, what. Notes that still say so at the next start mean that the last run was interrupted.
"""

import contextlib
import importlib.util
import json
import os
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from hooklab.course.launcher import installing
from hooklab.course.launcher.interpreter import OLDEST, Interpreter, look_at
from hooklab.course.launcher.locking import alone
from hooklab.course.launcher.messages import LauncherError, os_errors_in_one_line, say
from hooklab.course.launcher.private import child_environment, write_news_setting
from hooklab.course.launcher.probe import installed_versions
from hooklab.course.launcher.requirements import Pin, fingerprint, has_all, read_pins


@dataclass
class Notes:
    """What we wrote down about a ``.venv``."""

    made_here: bool = False  # by this launcher; otherwise by hand
    unfinished: str = ""  # what is being done to it
    installed: str = ""  # the fingerprint of the requirements.txt that was installed

    @classmethod
    def read(cls, venv: Path) -> "Notes":
        """The notes of a ``.venv``; empty ones if there are none, unfinished ones if they cannot be read."""
        try:
            return cls(**json.loads((venv / "hooklab.json").read_text(encoding="utf-8")))
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, TypeError):
            return cls(made_here=True, unfinished="written")

    def write(self, venv: Path) -> None:
        """Write the notes; a crash leaves the old ones or the new ones, nothing between."""
        new = venv / "hooklab.json.new"
        new.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
        os.replace(new, venv / "hooklab.json")


def ready_python(root: Path) -> Path:
    """A Python that has everything in ``requirements.txt``; makes ``.venv`` and installs into it if need be.

    Raises:
        LauncherError: if that cannot be done; it says why, and what to do.
    """
    pins = read_pins(root)
    python = chosen_python(root, pins)
    if python is not None:
        return python.path
    with os_errors_in_one_line("work on .venv"), alone(root / ".cache" / "hooklab.lock") as lock:
        inside = _look_inside(root, pins)
        if inside is None or not _is_ready(root, pins, inside):  # else the launch that we waited for has made it so
            inside = _usable_venv(root, inside)
            _install(root, inside, lock)
    return inside.path


def chosen_python(root: Path, pins: list[Pin]) -> Interpreter | None:
    """The Python that has everything, without changing anything; None if there is none yet."""
    names = [pin.name for pin in pins]
    if has_all(pins, installed_versions(names)):  # quick; whether a notebook would find hooklab needs a closer look
        running = look_at(Path(sys.executable), names)
        if running is not None and running.has_everything(root, pins):
            return running
    inside = _look_inside(root, pins)
    return inside if inside is not None and _is_ready(root, pins, inside) else None


def _look_inside(root: Path, pins: list[Pin]) -> Interpreter | None:
    return look_at(python_of(root / ".venv"), [pin.name for pin in pins])


def _is_ready(root: Path, pins: list[Pin], inside: Interpreter) -> bool:
    """Whether the Python in ``.venv`` can be used as it is."""
    venv = root / ".venv"
    if why_useless(venv, inside):
        return False
    if inside.has_everything(root, pins):
        return True
    # pip ran for this very requirements.txt: what was changed by hand since then is the user's wish
    return Notes.read(venv).installed == fingerprint(root) and inside.has_course(root)


def python_of(venv: Path) -> Path:
    """The path of a virtual environment's Python."""
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def why_useless(venv: Path, inside: Interpreter | None) -> str | None:
    """Why an existing ``.venv`` is of no use, as the first half of a sentence; None if it is usable."""
    if Notes.read(venv).unfinished:
        return "the last run was interrupted"
    if inside is None:
        return "the Python in .venv does not run"
    made_with = _version_when_made(venv)
    if made_with and made_with != inside.version[:2]:
        return f".venv was made for Python {made_with[0]}.{made_with[1]}, which is now {inside.version_text}"
    return None


def _usable_venv(root: Path, inside: Interpreter | None) -> Interpreter:
    """The Python of ``root/.venv``, which is made, or made anew, if what is inside is of no use."""
    venv = root / ".venv"
    reason = why_useless(venv, inside)
    if reason is not None and os.path.lexists(venv):
        _may_be_removed(venv, reason)
        say(f"{reason}; making .venv anew")
        _remove(venv)
    if reason is not None:
        _create(venv)
        inside = look_at(python_of(venv), [])
    if inside is None:
        raise LauncherError(f"the Python in the new .venv does not run: {python_of(venv)}")
    if inside.version[:2] < OLDEST:
        raise LauncherError(
            f".venv has Python {inside.version_text}, and the course needs 3.11 or newer: delete .venv and start again"
        )
    return inside


def _may_be_removed(venv: Path, reason: str) -> None:
    """Raise if this ``.venv`` is not ours to remove."""
    notes = Notes.read(venv)
    if venv.is_symlink():
        what = f"it is a link to {os.path.realpath(venv)}: remove the link"
    elif not venv.is_dir():
        what = "it is a file: move it away"
    elif Path(sys.prefix).resolve() == venv.resolve():
        what = "this Python runs from it: type deactivate, delete .venv"
    elif notes.unfinished and not notes.made_here:
        what = "it was made by hand: delete it, make it as before if you want it so"
    else:
        return
    raise LauncherError(f"{reason}, and .venv cannot be made anew because {what}, and start again")


def _remove(venv: Path) -> None:
    """Remove ``.venv``: first out of the way in one step, so that half of it is never taken for a whole one."""
    doomed = venv.parent / ".cache" / "venv-to-delete"
    if doomed.exists():
        shutil.rmtree(doomed)
    os.replace(venv, doomed)
    shutil.rmtree(doomed)


def _create(venv: Path) -> None:
    """Make an environment without pip (:func:`_install` adds it)."""
    for module in ("venv", "ensurepip"):
        if importlib.util.find_spec(module) is None:
            raise LauncherError(no_venv_module(module))
    from venv import EnvBuilder

    say(f"making .venv with Python {sys.version_info[0]}.{sys.version_info[1]}")
    venv.mkdir()
    Notes(made_here=True, unfinished="made").write(venv)
    try:
        EnvBuilder(symlinks=os.name != "nt", prompt="hooklab").create(venv)
    except ValueError as error:  # the path has a colon in it
        raise LauncherError(f"Python cannot make .venv in this folder: {error}") from error
    Notes(made_here=True).write(venv)


def no_venv_module(module: str) -> str:
    """The sentence for a Python that was installed without ``venv`` or ``ensurepip``."""
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    return (
        f"this Python cannot make .venv, its module {module} is missing; on Debian or Ubuntu type: "
        f"sudo apt install {package} (or python3-venv), then start again; elsewhere install Python from python.org"
    )


def _install(root: Path, python: Interpreter, lock: int) -> None:
    """Install ``requirements.txt`` into ``.venv``, and write that down."""
    venv = root / ".venv"
    environment = child_environment(root, python.path)
    environment.pop("PYTHONPATH", None)  # what is found there is not installed
    environment["PIP_USER"] = "0"  # a habit of installing with --user does not work in a .venv
    notes = Notes.read(venv)
    notes.installed = ""
    notes.unfinished = "installed into"
    notes.write(venv)
    try:
        if not python.has_pip:
            installing.install_pip(python.path, root, environment, lock)
        installing.install(python.path, root, environment, lock)
    except LauncherError:  # pip has ended by itself and put its things in order
        notes.unfinished = ""
        with contextlib.suppress(OSError):  # on a full disk, what pip said matters more
            notes.write(venv)
        raise
    write_news_setting(venv / "share/jupyter/lab/settings/overrides.d/hooklab.json")
    notes.unfinished = ""
    notes.installed = fingerprint(root)
    notes.write(venv)
    say("everything is installed")


def _version_when_made(venv: Path) -> tuple[int, int] | None:
    """The Python version in ``pyvenv.cfg``, if it says one."""
    try:
        lines = (venv / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    for line in lines:
        key, _, value = line.partition("=")
        if key.strip() in ("version", "version_info"):
            major, minor = value.strip().split(".")[:2]
            return int(major), int(minor)
    return None
