"""`grade` grades a folder with limits of half a second, each notebook in a fork of one Python that is ready for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hooklab.course.classroom import sandbox
from hooklab.course.classroom.collecting import find_submissions
from hooklab.course.classroom.grading import Graded, grade_class
from hooklab.course.classroom.sandbox import ROOT, Limits, environment

LIMITS = Limits(seconds=0.5, memory=1024, disk=4, processes=12)
Grade = Callable[[Path], dict[str, Graded]]
# Reads the names of two pipes from each line; the child has them for standard input and output.
READY = """
import os, signal, sys
from hooklab.course.classroom import running
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        os.setsid()
        for stream, (name, mode) in enumerate(zip(line.split(), (os.O_RDONLY, os.O_WRONLY))):
            os.dup2(os.open(name, mode), stream)
        sys.stdin = open(0)
        running.main()
    print(child, flush=True)
"""


class Forked:
    """A child of the Python that is ready, in the form of a subprocess.Popen."""

    def __init__(self, ready: subprocess.Popen[str], folder: Path) -> None:
        names = [folder / f"{len(list(folder.iterdir()))}{end}" for end in ("in", "out")]
        for name in names:
            os.mkfifo(name)
        assert ready.stdin
        assert ready.stdout
        ready.stdin.write(f"{names[0]} {names[1]}\n")
        ready.stdin.flush()
        self.pid = int(ready.stdout.readline())
        self.stdin, self.stdout = names[0].open("wb"), names[1].open("rb")

    def kill(self) -> None:
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        pass


@pytest.fixture(scope="session")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Return what starts a notebook's process in the place of `sandbox.start`."""
    if not hasattr(os, "fork"):
        pytest.skip("this needs os.fork")
    folder, lock = tmp_path_factory.mktemp("pipes"), threading.Lock()
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", READY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path_factory.mktemp("scratch"),
        env=environment(str(folder)) | {"PYTHONPATH": str(ROOT)},
    )

    def start(*_: object) -> Forked:
        with lock:
            return Forked(process, folder)

    yield start
    process.kill()
    process.wait()


@pytest.fixture
def grade(ready: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Grade:
    """Return a function that grades a folder, and returns the results by student."""
    monkeypatch.setattr(sandbox, "start", ready)

    def graded(folder: Path) -> dict[str, Graded]:
        found = grade_class(find_submissions(folder), tmp_path / "kept", limits=LIMITS)
        return {one.student: one for one in found}

    return graded
