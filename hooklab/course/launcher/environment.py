"""The Python that runs a command: the one at hand if it has the packages, else that of ``.venv``, made when needed.

Who works on ``.venv`` holds a lock, and leaves a file in there until all is done: if the file is there and the lock is
free, somebody was interrupted.
"""

import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hooklab.course.launcher.installing import install
from hooklab.course.launcher.programs import LauncherError, say

UNFINISHED = "hooklab-unfinished"
MADE_HERE = "hooklab-made-here"  # a .venv without this file was made by hand, and is not ours to delete


def ready_python(requirements: Path) -> Path:
    """A Python that has what this file lists; makes the ``.venv`` beside the file, and fills it, if need be.

    Raises:
        LauncherError: if that cannot be done; it says why, and what to do.
    """
    venv = requirements.with_name(".venv")
    if not has_all(requirements) and not is_filled(venv, requirements):
        with alone(venv.with_name(".cache")):
            if not is_filled(venv, requirements):  # else the launch that this one waited for has done it
                if not is_whole(venv):
                    make(venv)
                fill(venv, requirements)
    return python_at_hand(requirements)


def python_at_hand(requirements: Path) -> Path:
    """The running Python if it has what this file lists, or if there is no other; else that of ``.venv``."""
    venv = requirements.with_name(".venv")
    return python_of(venv) if is_whole(venv) and not has_all(requirements) else Path(sys.executable)


def has_all(requirements: Path) -> bool:
    """Whether the running Python has the tested versions; a local part such as ``+cpu`` makes no difference."""
    try:
        # str: the version of a package that was removed by half is None
        same = [str(version(name)).partition("+")[0] == tested for name, tested in pins(requirements).items()]
    except PackageNotFoundError:
        return False
    return all(same) and not (Path(sys.prefix) / UNFINISHED).exists()


def pins(requirements: Path) -> dict[str, str]:
    """The names and versions in a file of lines ``name==version``, and in those that it includes with ``-r``."""
    found: dict[str, str] = {}
    for line in requirements.read_text(encoding="utf-8").splitlines():
        name, _, tested = line.partition("==")
        if line.startswith("-r "):
            found |= pins(requirements.with_name(line[3:].strip()))
        elif tested:
            found[name.strip()] = tested.strip()
    return found


def python_of(venv: Path) -> Path:
    """The path of a virtual environment's Python."""
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def is_whole(venv: Path) -> bool:
    """Whether there is a Python in it, and nobody at work or interrupted."""
    return python_of(venv).exists() and not (venv / UNFINISHED).exists()


def is_filled(venv: Path, requirements: Path) -> bool:
    """Whether this was installed, for the Python that it has today. What was changed by hand since then stays so."""
    record = venv / f"hooklab-{requirements.name}"
    return is_whole(venv) and record.exists() and record.read_text(encoding="utf-8") == installed(venv, requirements)


def installed(venv: Path, requirements: Path) -> str:
    """What is put on record after an installation."""
    return f"{os.path.realpath(python_of(venv))}: {pins(requirements)}"


def make(venv: Path) -> None:
    """Make an environment with nothing in it, not even pip; first take away what an interruption has left."""
    for module in ("venv", "ensurepip"):
        if importlib.util.find_spec(module) is None:
            package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
            raise LauncherError(
                f"this Python cannot make .venv, its module {module} is missing; on Debian or Ubuntu type: sudo apt "
                f"install {package} (or python3-venv), then start again; elsewhere install Python from python.org"
            )
    if os.path.lexists(venv):
        if venv.is_symlink() or not (venv / MADE_HERE).exists():
            raise LauncherError(
                "the last run was interrupted, or the Python in .venv is gone; .venv was made by hand, so delete it, "
                "make it as before if you want it so, and start again"
            )
        say("the last run was interrupted; making .venv anew")
        doomed = venv.with_name(".cache") / "venv-to-delete"  # away in one step: half of it never stands there
        shutil.rmtree(doomed, ignore_errors=True)
        os.replace(venv, doomed)
        shutil.rmtree(doomed)
    say(f"making .venv with Python {sys.version_info[0]}.{sys.version_info[1]}")
    venv.mkdir()
    (venv / MADE_HERE).touch()
    (venv / UNFINISHED).touch()
    from venv import EnvBuilder

    EnvBuilder(symlinks=os.name != "nt", prompt="hooklab").create(venv)


def fill(venv: Path, requirements: Path) -> None:
    """Install what the file lists, and put it on record."""
    (venv / UNFINISHED).touch()
    try:
        install(python_of(venv), requirements)
        (venv / f"hooklab-{requirements.name}").write_text(installed(venv, requirements), encoding="utf-8")
        say("everything is installed")
    except LauncherError:  # the installer ended by itself, with its things in order
        (venv / UNFINISHED).unlink()
        raise
    (venv / UNFINISHED).unlink()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the lock in this folder for the block; say so when that means waiting.

    The system frees it when the process ends, however it ends. The installer inherits it, and so keeps others away
    even if the launcher above it is killed.
    """
    folder.mkdir(exist_ok=True)
    with (folder / "hooklab.lock").open("wb") as file:
        os.set_inheritable(file.fileno(), True)
        if not try_lock(file.fileno()):
            say("another `python -m hooklab` is working on .venv; waiting until it is done (Ctrl-C to stop)")
            while not try_lock(file.fileno()):
                time.sleep(0.2)
        yield


def try_lock(descriptor: int) -> bool:
    """Take the lock, or say that somebody has it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:  # POSIX, Windows; another error comes from a disk without locks: better go on than refuse
        return not isinstance(error, (BlockingIOError, PermissionError))
    return True
