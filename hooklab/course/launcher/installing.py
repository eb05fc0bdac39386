""":func:`install` fills a Python: with uv, which takes a fifth of the time, and with pip where uv cannot."""

import ast
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

from hooklab.course.launcher.programs import LauncherError, say, variables
from hooklab.course.progress import Progress

SOURCES = ("index-url", "extra-index-url", "find-links", "constraint", "trusted-host")  # in pip's words, and uv's


def install(python: Path, requirements: Path) -> None:
    """Install what a requirement file lists.

    Raises:
        LauncherError: if pip fails; with its last lines, and the command to try by hand.
    """
    root, name, start = requirements.parent, requirements.name, [str(python), "-m"]
    answer = ask([str(python), "-c", "import sys; print(sys.version_info >= (3, 11)); import pip; print('pip')"])
    if "False" in answer:
        raise LauncherError(".venv has a Python older than 3.11, which is too old: delete .venv and start again")
    say(f"installing {name} into .venv; the first time this can take minutes")
    if "pip" not in answer:
        run(root, [*start, "ensurepip", "--default-pip"])
    try:
        run(root, [*start, "pip", "install", "uv"])
        options = uv_options(ask([*start, "pip", "config", "list"]))
        run(root, [*start, "uv", "pip", "install", f"--python={python}", *options, "-r", name])
    except LauncherError:
        say("uv could not do it; going on with pip")
        # compiling takes most of pip's time, and Python compiles what it imports
        run(root, [*start, "pip", "install", "--no-compile", "-r", name])


def ask(command: list[str]) -> str:
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


def run(root: Path, command: list[str]) -> None:
    """Run an installer, and show the time and its last line on a line that changes.

    Raises:
        LauncherError: if it fails.
    """
    environment = variables(root, Path(command[0])) | {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}
    environment |= {"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    del environment["PYTHONPATH"]  # what is found there is not installed
    log = root / ".cache" / "install.log"
    begun, progress = time.monotonic(), Progress(sys.stderr)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=root, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, close_fds=False
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
