"""A kernel that is forked is a process of its own, in its folder and environment, and ends when it is told to."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.course.notebooks.forked import CAN_FORK, Forked

pytestmark = pytest.mark.skipif(not CAN_FORK, reason="kernels are forked on Linux only")

# A program that starts a kernel, tells its number, and is killed.
KILLED = """
import os, signal
from tests.course.notebooks.forked import Forked
if __name__ == "__main__":
    print(Forked(["-f", "kernel.json"], os.getcwd(), dict(os.environ)).pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Forked]:
    """A kernel in a folder of its own, with one variable more than this process."""
    kernel = Forked(["-f", str(tmp_path / "kernel.json")], str(tmp_path), {**os.environ, "ONLY": "there"})
    yield kernel
    if kernel.poll() is None:
        kernel.kill()
        kernel.wait()


def test_a_forked_kernel_runs_in_its_own_folder_and_group(kernel: Forked, tmp_path: Path) -> None:
    assert kernel.poll() is None
    assert os.readlink(f"/proc/{kernel.pid}/cwd") == str(tmp_path)
    assert os.getpgid(kernel.pid) == kernel.pid


def test_a_forked_kernel_has_torch_from_the_beginning(kernel: Forked) -> None:
    assert "libtorch" in Path(f"/proc/{kernel.pid}/maps").read_text()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_a_forked_kernel_ends_when_it_is_told_to(kernel: Forked, signum: int) -> None:
    kernel.send_signal(signum)

    assert kernel.wait(30) is not None
    kernel.send_signal(signum)


def test_a_forked_kernel_ends_with_the_process_that_asked_for_it(tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text(KILLED, encoding="utf-8")
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "killed.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root},
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
    )

    assert done.returncode == -signal.SIGKILL
    assert ended_soon(Path("/proc", done.stdout.strip(), "stat"))


def ended_soon(stat: Path) -> bool:
    """Wait for the end of a process. What is left of one that nobody waits for is a zombie, state Z."""
    for _ in range(300):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if stat.read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.1)
                continue
        return True
    return False
