"""forking: a kernel forked from a process that has torch loaded, so that a notebook begins in a moment.

The process is multiprocessing's fork server: it has imported what the lessons import, and has run nothing. A notebook
still has a process of its own. jupyter_client's function of the same meaning, in whose place this is put for the tests,
starts a new interpreter; so does the builder.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Any
from unittest import mock

from jupyter_client.blocking import BlockingKernelClient

CAN_FORK = sys.platform == "linux"  # elsewhere a process that has loaded such libraries is not safe to fork


class Forked:
    """A forked kernel, as much of a subprocess.Popen as jupyter_client asks for."""

    stdin = stdout = stderr = None

    def __init__(self, arguments: list[str], cwd: str | None, env: dict[str, str]) -> None:
        context = multiprocessing.get_context("forkserver")
        self.lifeline, there = context.Pipe()
        self.process = context.Process(target=_run, args=(arguments, cwd or os.getcwd(), env, there), daemon=True)
        self.process.start()  # the first time, this starts the fork server
        self.lifeline.recv()  # before that, a signal for its group would be one for ours
        assert self.process.pid
        self.pid = self.process.pid

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, timeout: float | None = None) -> int | None:
        self.process.join(timeout)
        return self.process.exitcode

    def send_signal(self, signum: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it may have ended, which is no error for a Popen either
            os.kill(self.pid, signum)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@contextlib.contextmanager
def forking() -> Iterator[None]:
    """A context in which jupyter_client forks kernels where it can, and waits for them no longer than it must."""
    if not CAN_FORK:
        yield
        return
    start = mock.patch("jupyter_client.provisioning.local_provisioner.launch_kernel", launch)
    wait = mock.patch("jupyter_client.blocking.BlockingKernelClient.wait_for_ready", wait_for_answer)
    with start, wait:
        yield


def wait_for_answer(client: BlockingKernelClient, timeout: float) -> None:
    """Wait until the kernel answers and is heard; later, look for its end every hundredth of a second.

    jupyter_client listens for a fifth of a second for more, and looks every tenth. And nbval, which asks once more,
    waits for a whole second if it does not yet hear the kernel's output, whose channel connects a little later.
    """
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        client.kernel_info()
        client.get_shell_msg(timeout=timeout)
        with contextlib.suppress(queue.Empty):
            client.get_iopub_msg(timeout=0.02)
            break
    client.parent._async_wait = partial(client.parent._async_wait, pollinterval=0.01)


def launch(command: list[str], *, cwd: str | None = None, env: dict[str, str] | None = None, **_: Any) -> Forked:
    """Start a kernel; the command ends in ipykernel's own arguments: `python -m ipykernel_launcher -f file`."""
    return Forked(command[command.index("ipykernel_launcher") + 1 :], cwd, dict(os.environ if env is None else env))


def _run(arguments: list[str], cwd: str, env: dict[str, str], lifeline: Connection) -> None:
    from ipykernel.kernelapp import launch_new_instance

    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["ipykernel_launcher", *arguments]
    sys.path[:0] = ["", *env.get("PYTHONPATH", "").split(os.pathsep)]
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    # What a notebook starts with multiprocessing is forked from the same server.
    multiprocessing.current_process().daemon = False
    forkserver._forkserver.ensure_running = lambda: None
    lifeline.send(None)
    threading.Thread(target=_end_with, args=[lifeline], daemon=True).start()
    launch_new_instance()


def _end_with(lifeline: Connection) -> None:
    """End this kernel when the process that asked for it has ended, however it ended."""
    with contextlib.suppress(EOFError, OSError):
        lifeline.recv()
    os._exit(1)
