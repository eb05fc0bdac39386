"""The Python that runs a command: the one at hand if it has the packages, else that of ``.venv``, made when needed.

A process that works on ``.venv`` holds a lock, and while it is made or an installer runs, a file in it says so: if the
file is there and the lock is free, a run was interrupted. uv fills ``.venv``, in a fifth of pip's time, or pip if uv
cannot.
"""

import ast
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from subprocess import DEVNULL, PIPE
from tempfile import TemporaryDirectory

from hooklab.course.launcher.programs import LauncherError, say, variables

UNFINISHED = "hooklab-unfinished"
SOURCES = "index-url|extra-index-url|find-links|constraint|trusted-host"  # in pip's words, and uv's
SETTINGS = {"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def find_python(requirements: Path, install: bool = True) -> Path:
    """The running Python if it has what this file lists; else that of the ``.venv`` beside the file.

    With ``install``, that ``.venv`` is made and filled if need be. If it cannot be, LauncherError says why, and what to
    do. Without it, ``.venv`` may lack some packages, and if it is missing, this returns the running Python.
    """
    venv = Venv(requirements)
    if has_all(requirements):
        return Path(sys.executable)
    if install:
        with alone(venv.cache):
            if not venv.is_whole():
                make(venv)
            if not venv.is_filled():  # else an earlier launch has done it, perhaps the one that this one waited for
                fill(venv)
    return venv.python if venv.is_whole() else Path(sys.executable)


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
    text = requirements.read_text(encoding="utf-8")
    found = dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))
    for included in re.findall(r"^-r (\S+)", text, re.MULTILINE):
        found |= pins(requirements.with_name(included))
    return found


class Venv:
    """The virtual environment beside a file of requirements, and what the launcher writes down in it."""

    def __init__(self, requirements: Path) -> None:
        self.requirements = requirements
        self.cache = requirements.with_name(".cache")
        self.folder = requirements.with_name(".venv")
        self.python = self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        self.made_here = self.folder / "hooklab-made-here"  # without this file, it was made by hand: not ours to delete
        self.unfinished = self.folder / UNFINISHED
        self.record = self.folder / f"hooklab-{requirements.name}"  # what was installed, and for which Python

    def is_whole(self) -> bool:
        """Whether it holds a Python, and no run is at work on it or was interrupted."""
        return self.python.exists() and not self.unfinished.exists()

    def is_filled(self) -> bool:
        """Whether today's requirements were installed for today's Python. What was changed by hand since stays so."""
        return self.record.exists() and self.record.read_text(encoding="utf-8") == self.wanted()

    def wanted(self) -> str:
        """What the record should say."""
        return f"{os.path.realpath(self.python)}: {pins(self.requirements)}"


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the lock in this folder for the block; the system frees it when the process ends, however it ends."""
    folder.mkdir(exist_ok=True)
    with (folder / "hooklab.lock").open("wb") as file:
        if not try_lock(file.fileno()):
            say("another `python -m hooklab` is working on .venv; waiting until it is done (Ctrl-C to stop)")
            while not try_lock(file.fileno()):
                time.sleep(0.2)
        yield


def try_lock(descriptor: int) -> bool:
    """Take the lock; return False if another process holds it. On a disk without locks, go on rather than refuse."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, (BlockingIOError, PermissionError))  # so says POSIX, and Windows
    return True


def make(venv: Venv) -> None:
    """Make an environment with nothing in it, not even pip; first remove what an interrupted run left."""
    python = "{}.{}".format(*sys.version_info)
    try:
        import ensurepip  # noqa: F401
        from venv import EnvBuilder
    except ImportError as error:
        raise LauncherError(
            f"this Python cannot make .venv, its module {error.name} is missing; on Debian or Ubuntu type: sudo apt "
            f"install python{python}-venv (or python3-venv); elsewhere install Python from python.org"
        ) from None
    if os.path.lexists(venv.folder):
        if venv.folder.is_symlink() or not venv.made_here.exists():
            raise LauncherError(
                "the last run was interrupted, or the Python in .venv is gone; .venv was made by hand, so delete it, "
                "make it as before if you want it so, and start again"
            )
        say("the last run was interrupted; making .venv anew")
        with TemporaryDirectory(dir=venv.cache) as doomed:  # moved away in one step: never half deleted
            venv.folder.rename(Path(doomed) / "venv")
    say(f"making .venv with Python {python}")
    venv.folder.mkdir()
    venv.made_here.touch()
    venv.unfinished.touch()
    EnvBuilder(symlinks=os.name != "nt", prompt="hooklab").create(venv.folder)


def fill(venv: Venv) -> None:
    """Install what the file lists, and put it on record."""
    name = venv.requirements.name
    say(f"installing {name} into .venv; the first time this can take minutes")
    if not printed_by(venv, "-c", "import pip; print(pip)"):
        run(venv, "ensurepip", "--default-pip")
    try:
        run(venv, "pip", "install", "uv")
        options = uv_options(printed_by(venv, "-m", "pip", "config", "list"))
        run(venv, "uv", "pip", "install", f"--python={venv.python}", *options, "-r", name)
    except LauncherError:
        say("uv could not do it; going on with pip")
        # compiling takes most of pip's time, and Python compiles what it imports
        run(venv, "pip", "install", "--no-compile", "-r", name)
    venv.record.write_text(venv.wanted(), encoding="utf-8")
    say("everything is installed")


def uv_options(listed: str) -> list[str]:
    """What ``pip config list`` says about where packages come from, as options of uv, which does not read it itself.

    By default, uv knows where PyTorch's builds are; on Linux, the one for the CPU saves gigabytes.
    """
    said: dict[str, str] = {}
    for section in ("global.", "install.", ":env:."):  # the later ones win
        said |= dict(re.findall(rf"^{re.escape(section)}({SOURCES})=(.*)", listed, re.MULTILINE))
    options = [f"--{name}={word}" for name, value in said.items() for word in ast.literal_eval(value).split()]
    if re.search(r"^\S*\.no-index='(1|t|y|on)", listed, re.MULTILINE | re.IGNORECASE):
        options.append("--no-index")
    if not options and sys.platform == "linux":
        options = ["--torch-backend=cpu"]
    return ["--index-strategy=unsafe-best-match", *options]  # which is pip's strategy


def printed_by(venv: Venv, *arguments: str) -> str:
    """What the environment's Python prints."""
    return subprocess.run([venv.python, *arguments], stdout=PIPE, stderr=DEVNULL).stdout.decode(errors="replace")


def run(venv: Venv, *words: str) -> None:
    """Run an installer, a module of the environment, which shows by itself how far it is: all of that on stderr.

    If it fails, the error has the command to try by hand.
    """
    root, command = venv.requirements.parent, [str(venv.python), "-m", *words]
    environment = variables(root, venv.python) | SETTINGS
    del environment["PYTHONPATH"]  # what is found there is not installed
    venv.unfinished.touch()
    code = subprocess.run(command, cwd=root, env=environment, stdin=DEVNULL, stdout=2).returncode
    venv.unfinished.unlink()  # it has ended by itself, with its things in order
    if code != 0:
        by_hand = subprocess.list2cmdline(command) if os.name == "nt" else shlex.join(command)
        raise LauncherError(f"the installation failed; try by hand, in {root}: {by_hand}")
