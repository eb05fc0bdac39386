"""The Python that runs a command: the one at hand if it has the packages, else that of ``.venv``, made when needed.

Who works on ``.venv`` holds a lock, and leaves a file in there until all is done: if the file is there and the lock is
free, somebody was interrupted. What fills it is uv, which takes a fifth of the time, or pip where uv cannot.
"""

import ast
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hooklab.course.launcher.programs import LauncherError, say, variables
from hooklab.course.progress import Progress

UNFINISHED = "hooklab-unfinished"
MADE_HERE = "hooklab-made-here"  # a .venv without this file was made by hand, and is not ours to delete
SOURCES = ("index-url", "extra-index-url", "find-links", "constraint", "trusted-host")  # in pip's words, and uv's
ABOUT = "import sys; print(sys.version_info >= (3, 11)); import pip; print('has pip')"


def ready_python(requirements: Path) -> Path:
    """A Python that has what this file lists; makes the ``.venv`` beside the file, and fills it, if need be.

    Raises LauncherError if that cannot be done; it says why, and what to do.
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
    file, text = record(venv, requirements)
    return is_whole(venv) and file.exists() and file.read_text(encoding="utf-8") == text


def record(venv: Path, requirements: Path) -> tuple[Path, str]:
    """The file that says what was installed, and what it says."""
    return venv / f"hooklab-{requirements.name}", f"{os.path.realpath(python_of(venv))}: {pins(requirements)}"


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
    """Take the lock, or say that somebody has it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # so says POSIX, and Windows
        return False
    except OSError:  # a disk without locks: better go on than refuse
        return True
    return True


def make(venv: Path) -> None:
    """Make an environment with nothing in it, not even pip; first take away what an interruption has left."""
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for module in ("venv", "ensurepip"):
        if importlib.util.find_spec(module) is None:
            raise LauncherError(
                f"this Python cannot make .venv, its module {module} is missing; on Debian or Ubuntu type: sudo apt "
                f"install python{python}-venv (or python3-venv), then start again; elsewhere install Python from "
                "python.org"
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
    say(f"making .venv with Python {python}")
    venv.mkdir()
    (venv / MADE_HERE).touch()
    (venv / UNFINISHED).touch()
    from venv import EnvBuilder  # not above: it may be missing

    EnvBuilder(symlinks=os.name != "nt", prompt="hooklab").create(venv)


def fill(venv: Path, requirements: Path) -> None:
    """Install what the file lists, and put it on record."""
    (venv / UNFINISHED).touch()
    try:
        install(str(python_of(venv)), requirements)
    except LauncherError:  # the installer ended by itself, with its things in order
        (venv / UNFINISHED).unlink()
        raise
    file, text = record(venv, requirements)
    file.write_text(text, encoding="utf-8")
    (venv / UNFINISHED).unlink()
    say("everything is installed")


def install(python: str, requirements: Path) -> None:
    """Install what the file lists; if pip fails, the error has its last lines and the command to try by hand."""
    root, name = requirements.parent, requirements.name
    about = printed_by(python, "-c", ABOUT)
    if "False" in about:
        raise LauncherError(".venv has a Python older than 3.11, which is too old: delete .venv and start again")
    say(f"installing {name} into .venv; the first time this can take minutes")
    if "has pip" not in about:
        run(root, python, "ensurepip", "--default-pip")
    try:
        run(root, python, "pip", "install", "uv")
        options = uv_options(printed_by(python, "-m", "pip", "config", "list"))
        run(root, python, "uv", "pip", "install", f"--python={python}", *options, "-r", name)
    except LauncherError:
        say("uv could not do it; going on with pip")
        # compiling takes most of pip's time, and Python compiles what it imports
        run(root, python, "pip", "install", "--no-compile", "-r", name)


def printed_by(*command: str) -> str:
    """What a command prints."""
    return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace").stdout


def uv_options(listed: str) -> list[str]:
    """What ``pip config list`` says about where packages come from, as options of uv, which does not read it itself.

    Where nobody has said anything, uv knows where PyTorch's builds are; on Linux, the one for the CPU saves gigabytes.
    """
    settings = {}
    for section in ("global.", "site.", "install.", ":env:."):  # the later ones win
        for key, _, value in (line.partition("=") for line in listed.splitlines()):
            if key.startswith(section):
                settings[key.removeprefix(section)] = ast.literal_eval(value)
    options = [f"--{name}={word}" for name in SOURCES for word in settings.get(name, "").split()]
    if not options and sys.platform == "linux":
        options = ["--torch-backend=cpu"]
    return ["--index-strategy=unsafe-best-match", *options]  # which is pip's strategy


def run(root: Path, python: str, *words: str) -> None:
    """Run an installer, a module of ``python``, and show the time and its last line on a line that changes."""
    command = [python, "-m", *words]
    environment = variables(root, Path(python)) | {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}
    environment |= {"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    del environment["PYTHONPATH"]  # what is found there is not installed
    log = root / ".cache" / "install.log"
    begun, progress = time.monotonic(), Progress(sys.stderr)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=root, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        while process.poll() is None:
            minutes, seconds = divmod(int(time.monotonic() - begun), 60)
            progress.show(f"  {minutes}:{seconds:02d}  {last_lines(log, 1).strip()}")
            time.sleep(0.2)
    except KeyboardInterrupt:
        process.terminate()  # Ctrl-C has reached it as well; a signal to the launcher alone has not
        process.wait()
        raise
    finally:
        progress.close()
    if process.returncode != 0:
        by_hand = subprocess.list2cmdline(command) if os.name == "nt" else shlex.join(command)
        raise LauncherError(f"the installation failed:\n{last_lines(log, 15)}\nTry by hand, in {root}: {by_hand}")


def last_lines(log: Path, count: int) -> str:
    """The last lines of a file that are not empty."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join([line for line in lines if line.strip()][-count:])
