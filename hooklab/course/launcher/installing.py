"""pip, with a line that moves: :func:`install` runs it, shows what it is at, and keeps its last lines for an error."""

import os
import queue
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO
from urllib.parse import unquote

from hooklab.course.launcher.messages import LauncherError, say

LAST_LINES = 15
PLAIN_LINE_EVERY = 10.0  # seconds; where a line cannot be rewritten (a log), no more than one in this time


def install(python: Path, root: Path, environment: dict[str, str], lock: int) -> None:
    """Install ``requirements.txt`` with the pip of ``python``.

    Args:
        python: the interpreter to install into.
        root: the course's folder.
        environment: the variables for pip.
        lock: the descriptor of the lock file; pip inherits it, so that it keeps others away even if the launcher
            above it is killed.

    Raises:
        LauncherError: if pip fails; with its last lines, and the command to try by hand.
        KeyboardInterrupt: after pip has ended, too.
    """
    say("installing requirements.txt into .venv; the first time this can take minutes")
    arguments = [str(python), "-m", "pip", "install", "-r", "requirements.txt"]
    code, last_lines = run_pip([*arguments, "--disable-pip-version-check"], root, environment, lock)
    if code != 0:
        raise LauncherError(
            f"pip failed with exit code {code} (its last lines are above); try by hand: {by_hand(root, arguments)}",
            context="\n".join(last_lines),
        )


def install_pip(python: Path, root: Path, environment: dict[str, str], lock: int) -> None:
    """Give an environment without pip the one that comes with Python; the arguments are those of :func:`install`.

    Raises:
        LauncherError: if that fails.
    """
    arguments = [str(python), "-m", "ensurepip", "--upgrade", "--default-pip"]
    done = subprocess.run(
        arguments,
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=_inherited(lock),
    )
    if done.returncode != 0:
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        raise LauncherError(
            f"Python could not put pip into .venv (its last lines are above); try by hand: {by_hand(root, arguments)}",
            context="\n".join(lines[-LAST_LINES:]),
        )


def run_pip(command: list[str], root: Path, environment: dict[str, str], lock: int) -> tuple[int, list[str]]:
    """Run pip, show its progress, and return its exit code and last lines."""
    process = subprocess.Popen(
        command,
        cwd=root,
        env={**environment, "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        pass_fds=_inherited(lock),
    )
    last_lines: deque[str] = deque(maxlen=LAST_LINES)
    progress = Progress(sys.stderr)
    try:
        for line in _lines_or_none(process):
            if line:
                last_lines.append(line)
            progress.show(summary(line or ""))
        return process.wait(), list(last_lines)
    except KeyboardInterrupt:
        process.terminate()  # Ctrl-C reached pip as well; a signal to the launcher alone did not
        process.wait()
        raise
    finally:
        progress.close()


def summary(line: str) -> str | None:
    """What a line of pip says, in a few words; None if it is not worth showing.

    >>> summary("Collecting torch==2.13.0 (from -r requirements.txt (line 2))")
    'collecting torch==2.13.0'
    >>> summary("  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (915.0 MB)")
    'downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (915.0 MB)'
    >>> summary("Installing collected packages: mpmath, sympy, torch")
    'installing 3 packages'
    """
    text = line.strip()
    if match := re.match(r"Collecting (\S+)", text):
        return f"collecting {match[1]}"
    if match := re.match(r"(Downloading|Using cached) (?:\S*/)?(\S+\.(?:whl|gz|zip))(.*)", text):
        return f"{match[1].lower()} {match[2]}{match[3]}"
    if match := re.match(r"(?:Processing|Obtaining) (?:\S*/)?(\S+)", text):
        return f"reading {unquote(match[1])}"
    if match := re.match(r"Installing collected packages: (.*)", text):
        return f"installing {len(match[1].split(','))} packages"
    if match := re.match(r"Building (wheels?|editable) for (?:collected packages: )?(\S+)", text):
        return f"building {match[2]}"
    if text.startswith("WARNING: Retrying"):
        return "the network does not answer; pip tries again"
    return None


def by_hand(root: Path, arguments: list[str]) -> str:
    """The command as one types it in a shell, from any folder."""
    if os.name == "nt":
        return f'cd /d "{root}" && {subprocess.list2cmdline(arguments)}'
    return f"cd {shlex.quote(str(root))} && {shlex.join(arguments)}"


class Progress:
    """A line that says what is being done and for how long.

    In a terminal it is rewritten; elsewhere a new one comes now and then.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.rewrites = stream.isatty()
        self.started = self.last_printed = time.monotonic()
        self.doing = "starting pip"

    def show(self, doing: str | None) -> None:
        """Show what is being done; with None, the same as before with the time that has passed."""
        self.doing = doing or self.doing
        now = time.monotonic()
        minutes, seconds = divmod(int(now - self.started), 60)
        line = f"  {minutes}:{seconds:02d}  {self.doing}"
        if self.rewrites:
            width = shutil.get_terminal_size().columns - 1
            self.stream.write("\r" + line[:width].ljust(width))
        elif now - self.last_printed >= PLAIN_LINE_EVERY:
            self.stream.write(line + "\n")
            self.last_printed = now
        self.stream.flush()

    def close(self) -> None:
        """End the rewritten line, so that what follows starts on a line of its own."""
        if self.rewrites:
            self.stream.write("\n")
            self.stream.flush()


def _inherited(lock: int) -> tuple[int, ...]:
    """The descriptors that a child process gets; Windows cannot hand over a lock."""
    return () if sys.platform == "win32" else (lock,)


def _lines_or_none(process: subprocess.Popen[str]) -> Iterator[str | None]:
    """The output's lines as they come, and None after each second without one (so that the time can be shown)."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line.rstrip())
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=1.0)
        except queue.Empty:
            yield None
            continue
        if line is None:
            return
        yield line
