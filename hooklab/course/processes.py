"""launch: run a function in several processes that talk to each other, from a notebook or a test.

    results = launch(main, processes=2, seconds=60)

writes the function into a script, which `torchrun` could start as well, and gives each process what torchrun would: its
RANK, WORLD_SIZE and the place to meet. Each process is a Python of its own. It takes seconds until that has imported
torch, so those that did well wait for the next launch. All end with this process: their standard input closes.
"""

from __future__ import annotations

import faulthandler
import importlib
import inspect
import json
import os
import pickle
import queue
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore  # torch.distributed exports it too, but not for mypy

IMPORTS = """\
from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hooklab
"""
# Sometimes one of torch's threads aborts a Python that ends the usual way ("terminate called without an active
# exception": 4 of 125 runs). That would look like the program's own failure.
ENTRY = """
if __name__ == "__main__":
    import os
    import sys

    main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
"""
GRACE = 2.0  # seconds that the others have to end by themselves when one process has failed
STARTING = 60.0  # seconds that a Python may take to start, on a busy machine
STARTED = "started\n"
STOPPED = "stopped"


class ProcessesFailed(RuntimeError):
    """Not every process ended well. `outputs` is what each printed, `ends` how each ended: 0 if well."""

    def __init__(self, ends: Sequence[int | str], outputs: Sequence[str]) -> None:
        self.ends, self.outputs = list(ends), list(outputs)
        how = ", ".join(f"process {rank} {_in_words(end)}" for rank, end in enumerate(ends))
        super().__init__(f"{how}\n{together(outputs)}".rstrip())


def script(main: Callable[..., Any], *uses: Any, around: Callable[..., Any] | None = None) -> str:
    """Return a script that runs `main`, a function without arguments, after the sources of all that it uses.

    `main` may use the names in IMPORTS, and imports everything else itself. `around` is a decorator for it.

    Raises OSError if a function's source is missing, because it was typed into a plain Python prompt.
    """
    sources = [textwrap.dedent(inspect.getsource(one)) for one in (*uses, *filter(None, [around]), main)]
    name = f"{around.__name__}({main.__name__})" if around else main.__name__
    return "\n\n".join([IMPORTS, *sources, f"main = {name}\n", ENTRY])


def launch(
    main: Callable[[], Any],
    *uses: Any,
    processes: int = 2,
    seconds: float = 60,
    show: bool = True,
    around: Callable[..., Any] | None = None,
) -> list[Any]:
    """Run a function in several processes and return what each returned, in the order of their ranks.

    Args:
        main: a function without arguments. It calls `dist.init_process_group("gloo")` first; see `script`.
        uses: functions and classes that it uses, in order.
        processes: how many.
        seconds: the time limit of each. A process that is not done by then prints where it stands, and ends.
        show: print what the processes print, each line after its process's number.
        around: a decorator for `main`, in each process.

    Raises ProcessesFailed if one ends with an error, dies, or is too slow. All have ended by then. After any other
    launch they wait for the next one, which they begin without a process group.
    """
    with tempfile.TemporaryDirectory(prefix="hooklab-") as folder:
        file = Path(folder, f"{main.__name__}.py")
        file.write_text(script(main, *uses, around=around), encoding="utf-8")
        results = [file.with_name(f"{rank}.pickle") for rank in range(processes)]
        # Its port is one that the system chose, so two launches at once cannot meet each other.
        store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        workers: list[Worker] = []
        try:
            while len(workers) < processes:
                worker = _spares.pop() if _spares else Worker()
                if worker.poll() is None:  # one that waits may have been killed
                    workers.append(worker)
            until = time.monotonic() + STARTING
            while not all(worker.has_started() for worker in workers) and time.monotonic() < until:
                time.sleep(0.005)  # else those that wait already would wait for a new one, and their time runs
            for rank, worker in enumerate(workers):
                place = _place(rank, processes, store.port)
                worker.begin({"file": str(file), "result": str(results[rank]), "seconds": seconds, "place": place})
            ends = _ends(workers, results, until + seconds)
        finally:  # also after Ctrl-C
            if not all(result.exists() for result in results):
                for worker in workers:
                    worker.end()
        outputs = [worker.said().replace(f"{folder}{os.sep}", "") for worker in workers]
        if any(ends):
            late = any(re.search(r"^Timeout \(\d", output, re.M) for output in outputs)  # faulthandler's words
            raise ProcessesFailed([STOPPED if end and late else end for end in ends], outputs)
        returned = [pickle.loads(result.read_bytes()) for result in results]
    _spares.extend(workers)
    if show and any(outputs):
        print(together(outputs))
    return returned


def by_torchrun(main: Callable[[], Any], *uses: Any, processes: int = 2, seconds: float = 120) -> str:
    """Run a function's script with the real torchrun, as in a terminal; return the lines printed, sorted.

    Raises ProcessesFailed if that fails, subprocess.TimeoutExpired if it takes too long.
    """
    with tempfile.TemporaryDirectory(prefix="hooklab-") as folder:
        file = Path(folder, f"{main.__name__}.py")
        file.write_text(script(main, *uses), encoding="utf-8")
        # By itself torchrun makes Python unbuffered; a line and its end are two writes then, and lines get mixed.
        words = f"-m torch.distributed.run --standalone --nproc-per-node={processes} --no-python".split()
        command = [sys.executable, *words, sys.executable, str(file)]
        with subprocess.Popen(
            command, env=_environment(), stdout=PIPE, stderr=PIPE, text=True, start_new_session=True
        ) as torchrun:
            try:
                out, err = torchrun.communicate(timeout=seconds)
            finally:
                torchrun.terminate()  # it ends its processes, and after 30 seconds it kills those that are left
    if torchrun.returncode:
        raise ProcessesFailed([torchrun.returncode], [out + err])
    return "\n".join(sorted(out.splitlines()))


def together(outputs: Sequence[str]) -> str:
    """Return what several processes printed, each line after its process's number."""
    lines = [f"process {rank} | {line}" for rank, text in enumerate(outputs) for line in text.splitlines()]
    return "\n".join(lines)


def _in_words(end: int | str) -> str:
    if isinstance(end, str):
        return "was stopped: it did not end in time"
    if end == 0:
        return "ended well"
    return f"died of signal {signal.Signals(-end).name}" if end < 0 else f"ended with exit code {end}"


def _environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    # init_process_group returns when all have connected: otherwise a process that is done may end while the others
    # still connect to it, and they fail ("Connection closed by peer", 14 of 96 runs on a busy machine).
    return usual | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TORCH_DIST_INIT_BARRIER": "1"}


def _place(rank: int, processes: int, port: int) -> dict[str, str]:
    """Return the variables that torchrun gives its processes. The store exists: none of them opens a port."""
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
    store = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": True}
    return {name: str(value) for name, value in (ranks | store | {"TORCHELASTIC_RESTART_COUNT": 0}).items()}


class Worker(subprocess.Popen[bytes]):
    """A new Python that has imported torch, waits for what to do, does that, and waits for more."""

    def __init__(self) -> None:
        self.output, self.told = tempfile.TemporaryFile(), 0  # noqa: SIM115
        command = [sys.executable, "-m", "hooklab.course.processes"]
        streams: dict[str, Any] = {"stdin": PIPE, "stdout": self.output, "stderr": subprocess.STDOUT}
        super().__init__(command, env=_environment(), start_new_session=True, **streams)  # Ctrl-C is not for it

    def has_started(self) -> bool:
        """Whether it has imported torch, or failed."""
        return self.poll() is not None or os.fstat(self.output.fileno()).st_size > 0

    def begin(self, request: dict[str, Any]) -> None:
        assert self.stdin
        self.stdin.write(json.dumps(request).encode() + b"\n")
        self.stdin.flush()

    def said(self) -> str:
        """Return what it has printed since this was asked last."""
        file = self.output.fileno()
        begun, self.told = self.told, os.fstat(file).st_size
        new = os.pread(file, self.told - begun, begun)  # without moving: the place in the file is the worker's too
        return (new if begun else new.removeprefix(STARTED.encode())).decode(errors="replace")

    def end(self) -> None:
        self.kill()
        self.communicate()


_spares: list[Worker] = []


def _ends(workers: list[Worker], results: list[Path], until: float) -> list[int | str]:
    """Wait for the results of all, or for two seconds after the first failure; return how each ended."""
    while True:
        ends = [0 if result.exists() else worker.poll() for worker, result in zip(workers, results, strict=True)]
        if any(ends):
            until = min(until, time.monotonic() + GRACE)
        if None not in ends or time.monotonic() > until:
            return [STOPPED if end is None else end for end in ends]
        time.sleep(0.005)


def _read(lifeline: int, requests: queue.SimpleQueue[dict[str, Any]]) -> None:
    with open(lifeline, encoding="utf-8") as lines:
        for line in lines:
            requests.put(json.loads(line))
    os._exit(1)


def _work() -> None:
    """Be one of the processes: do what is asked for, leave in a file what it returned, and wait for more."""
    importlib.import_module("torch._dynamo")  # DistributedDataParallel would, and the time limit begins below
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=[os.dup(0), requests], daemon=True).start()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # what is printed before a crash is kept
    # A process group that main's model still holds when main returns would be destroyed there, which now and then waits
    # forever for a thread that waits for Python's lock. So groups live as long as the process.
    destroy = dist.destroy_process_group
    groups: list[dist.ProcessGroup] = []
    dist.destroy_process_group = lambda group=None: None
    print(STARTED, end="", flush=True)
    while True:
        request = requests.get()
        faulthandler.dump_traceback_later(request["seconds"], exit=True)
        os.environ |= request["place"]
        result = Path(request["result"])
        try:
            result.with_suffix(".part").write_bytes(pickle.dumps(runpy.run_path(request["file"])["main"]()))
            if dist.is_initialized():
                groups.extend(dist.distributed_c10d._world.pg_map)
                destroy()
        except BaseException as error:
            os._exit(_exit_code(error))
        sys.stdout.flush()
        faulthandler.cancel_dump_traceback_later()
        result.with_suffix(".part").rename(result)


def _exit_code(error: BaseException) -> int:
    """Return what Python would end with, and print what it would print."""
    code = error.code if isinstance(error, SystemExit) else 1
    if not isinstance(error, SystemExit):
        traceback.print_exception(error)
    elif isinstance(code, str):
        print(code, file=sys.stderr)
    sys.stdout.flush()
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    _work()
