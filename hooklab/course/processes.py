"""launch: run a function in several processes that talk to each other, from a notebook or a test.

    results = launch(main, processes=2, seconds=60)

writes the function into a script, which `torchrun` could start as well, and gives each process what torchrun would: its
RANK, WORLD_SIZE and the place to meet. The processes are forked from a server, which has imported torch once; the
server ends, and everything it has started with it, when the pipe to this process closes: at the latest when this
process dies. Where processes cannot be forked, each one is a new interpreter.

They meet at a store that listens here, at a port that the system chose: two launches at once, or a port that somebody
else has taken, cannot come in each other's way.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import importlib
import inspect
import json
import multiprocessing
import os
import pickle
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
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch._C._distributed_c10d import TCPStore  # torch.distributed hands it on, in no list that mypy reads

from hooklab.course.kept import kept

IMPORTS = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hooklab
"""
ENTRY = """
if __name__ == "__main__":
    main()
"""
# Now and then a thread of torch's aborts a Python that ends the usual way, after all is done and said ("terminate
# called without an active exception": 4 of 125 runs). Such an end would look like the program's own failure.
ENTRY_THAT_ENDS_AT_ONCE = """
if __name__ == "__main__":
    import os
    import sys

    main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
"""
ERRORS = "errors.txt"  # torchrun's and its processes'
COMMAND = "torchrun --standalone --nproc-per-node {processes} {file}"
CAN_FORK = sys.platform == "linux"
_GRACE = 2.0  # seconds that the others have to end by themselves when one process has failed
_STOPPED = "stopped"
_KILL = signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL  # that of Windows kills
Worker = Callable[..., int | None]  # sends a process the signal that it is given, and returns how it has ended


class ProcessesFailed(RuntimeError):
    """Not every process came to its end. `outputs` is what each printed, `ends` how each ended, 0 for well."""

    def __init__(self, ends: Sequence[int | str], outputs: Sequence[str]) -> None:
        self.ends, self.outputs = list(ends), list(outputs)
        how = ", ".join(f"process {rank} {_told(end)}" for rank, end in enumerate(ends))
        super().__init__(f"{how}\n{together(outputs)}".rstrip())


def script(main: Callable[..., Any], *uses: Any, entry: str = ENTRY) -> str:
    """Return the text of a script that runs `main`: the usual imports, the sources of all that it uses, and itself.

    Args:
        main: a function without arguments; it may use the names in IMPORTS, and imports everything else itself.
        uses: functions and classes that `main` uses, in order.
        entry: the lines that call it.

    Raises:
        OSError: if there is no source, as for a function that was typed into a plain Python prompt.
    """
    sources = [textwrap.dedent(inspect.getsource(one)) for one in (*uses, main)]
    name = "" if main.__name__ == "main" else f"\n\nmain = {main.__name__}\n"
    return "\n\n".join([IMPORTS, *sources]) + name + "\n" + entry


def launch(
    main: Callable[[], Any], *uses: Any, processes: int = 2, seconds: float = 60, show: bool = True
) -> list[Any]:
    """Run a function in several processes and return what each returned, in the order of their ranks.

    Args:
        main: a function without arguments. It calls `dist.init_process_group("gloo")` first; see `script`.
        uses: functions and classes that it uses.
        processes: how many.
        seconds: the time limit for all of it. A process that is not done by then says where it stands, and ends.
        show: print what the processes print, each line after its process's number.

    Raises:
        ProcessesFailed: if one ends with an error, dies, or is too slow. All have ended by then, whatever happened.

    Example:
        >>> def main():
        ...     dist.init_process_group("gloo")
        ...     number = torch.ones(1) * dist.get_rank()
        ...     dist.all_reduce(number)
        ...     dist.destroy_process_group()
        ...     return number.item()
        >>> launch(main)  # doctest: +SKIP
        [1.0, 1.0]
    """
    outputs, results = _outputs_and_results(script(main, *uses), main.__name__, processes, seconds)
    if show and any(outputs):
        print(together(outputs))
    return [pickle.loads(result) for result in results]


@kept
def _outputs_and_results(program: str, name: str, processes: int, seconds: float) -> tuple[list[str], list[bytes]]:
    with tempfile.TemporaryDirectory(prefix="hooklab-") as folder:
        file = Path(folder) / f"{name}.py"
        file.write_text(program, encoding="utf-8")
        store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        ends = _ask({"file": str(file), "processes": processes, "seconds": seconds, "port": store.port})
        outputs = [_read(Path(folder, f"{rank}.txt")).replace(f"{folder}{os.sep}", "") for rank in range(processes)]
        if any(end != 0 for end in ends):
            raise ProcessesFailed(ends, outputs)
        return outputs, [Path(folder, f"{rank}.pickle").read_bytes() for rank in range(processes)]


def by_torchrun(main: Callable[[], Any], *uses: Any, processes: int = 2, seconds: float = 120) -> str:
    """Run a function's script with the real torchrun, as in a terminal; return the lines printed, sorted.

    Each of its processes is a new Python. Torchrun itself, which imports torch as well, is forked from the server.

    Raises:
        ProcessesFailed: as `launch` does.
    """
    return _printed(script(main, *uses, entry=ENTRY_THAT_ENDS_AT_ONCE), main.__name__, processes, seconds)


@kept
def _printed(program: str, name: str, processes: int, seconds: float) -> str:
    with tempfile.TemporaryDirectory(prefix="hooklab-") as folder:
        file = Path(folder) / f"{name}.py"
        file.write_text(program, encoding="utf-8")
        words = COMMAND.format(processes=processes, file=file).split()
        # torchrun makes Python unbuffered: a line and its end are two writes then, and lines get mixed.
        plainly = ["--no-python", sys.executable, words[-1]]
        arguments = [*words[1:-1], *plainly]
        (end,) = _ask({"file": str(file), "processes": 1, "seconds": seconds, "torchrun": arguments})
        out, err = _read(Path(folder, "0.txt")), _read(Path(folder, ERRORS))
        if end != 0:
            raise ProcessesFailed([end], [out + err])
        return "\n".join(sorted(out.splitlines()))


def begin(target: Callable[..., Any], *arguments: Any) -> BaseProcess:
    """Start a process that has nothing of this one but these arguments.

    It comes from multiprocessing's fork server, or, where that is not possible, from a new interpreter: classroom's
    processes may not make the sockets that the fork server needs. It does not import the program that runs here, as
    multiprocessing would: whoever writes a script need not know that it is.

    Args:
        target: a function of a module.
    """
    program, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        if CAN_FORK:
            with contextlib.suppress(PermissionError):
                forked = multiprocessing.get_context("forkserver").Process(target=target, args=arguments)
                forked.start()
                return forked
        spawned = multiprocessing.get_context("spawn").Process(target=target, args=arguments)
        spawned.start()
        return spawned
    finally:
        sys.modules["__main__"] = program


def together(outputs: Sequence[str]) -> str:
    """Return what several processes printed, each line after its process's number."""
    lines = [f"process {rank} | {line}" for rank, text in enumerate(outputs) for line in text.splitlines()]
    return "\n".join(lines)


def _told(end: int | str) -> str:
    if isinstance(end, str):
        return "was stopped, for it did not end"
    if end == 0:
        return "ended well"
    return f"died of signal {signal.Signals(-end).name}" if end < 0 else f"ended with exit code {end}"


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""


# --- this side of the pipe

_server: BaseProcess | None = None
_pipe: Connection
_one_at_a_time = threading.Lock()


def _ask(request: dict[str, Any]) -> list[int | str]:
    """Let the server run the processes; return how each ended."""
    with _one_at_a_time:
        _start_server()
        try:
            _pipe.send(request)
            ends: list[int | str] = _pipe.recv()
            return ends
        except (EOFError, OSError) as died:
            stop_server()
            raise RuntimeError("the server that starts the processes has died; call again for a new one") from died
        except BaseException:  # such as Ctrl-C: the processes end with the server
            stop_server()
            raise


def _start_server() -> None:
    global _server, _pipe
    if _server is not None and not _server.is_alive():
        stop_server()
    if _server is None:
        _pipe, there = multiprocessing.Pipe()
        _server = begin(serve, there, _environment())
        there.close()


@atexit.register
def stop_server() -> None:
    """End the server and all that it runs; the next launch starts a new one."""
    global _server
    if _server is not None:
        _pipe.close()
        _server.join()
        _server = None


def _environment() -> dict[str, str]:
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    # Unbuffered, a line and its end are two writes, and the lines of two processes get mixed.
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    # init_process_group returns when all have connected: else a process that has nothing more to say may end while the
    # others still connect to it, and they fail ("Connection closed by peer", 14 of 96 runs on a busy machine).
    return usual | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TORCH_DIST_INIT_BARRIER": "1"}


# --- the other side: the server, and the processes that it starts


def serve(requests: Connection, environment: dict[str, str]) -> None:
    """Run what is asked for until the pipe closes."""
    if CAN_FORK:
        os.setsid()  # a Ctrl-C is for the notebook; this one ends with its pipe
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, OSError):
        while request := requests.recv():
            if "torchrun" not in request and "DistributedDataParallel(" in _read(Path(request["file"])):
                importlib.import_module("torch._dynamo")  # it wants that, which takes a second: once is enough
            requests.send(_run(request, requests))


def _run(request: dict[str, Any], requests: Connection) -> list[int | str]:
    begun, ends, failed_at = time.monotonic(), dict[int, int | str](), float("inf")
    start = _fork if CAN_FORK else _spawn
    workers = [start(request, rank, requests) for rank in range(request["processes"])]
    try:
        while len(ends) < len(workers):
            for rank, worker in enumerate(workers):
                if rank not in ends and (code := worker()) is not None:
                    ends[rank] = code
                    failed_at = min(failed_at, time.monotonic()) if code else failed_at
            now = time.monotonic()
            if now > min(begun + request["seconds"] + _GRACE, failed_at + _GRACE) or _is_closed(requests):
                break
            time.sleep(0.005)
    finally:
        left = [worker for rank, worker in enumerate(workers) if rank not in ends]
        if "torchrun" in request:  # it ends its processes, which no signal from here would reach
            left = _ended(left, signal.SIGTERM, within=40)  # those that do not heed it, it kills after 30 seconds
        _ended(left, _KILL)
    late = time.monotonic() - begun > request["seconds"]
    return [_STOPPED if late and end else end for end in (ends.get(rank, _STOPPED) for rank in range(len(workers)))]


def _ended(workers: list[Worker], end: int, within: float = float("inf")) -> list[Worker]:
    """Send them this signal and wait for them; return those that are still there."""
    workers, until = [worker for worker in workers if worker(end) is None], time.monotonic() + within
    while workers and time.monotonic() < until:
        time.sleep(0.005)
        workers = [worker for worker in workers if worker() is None]
    return workers


def _is_closed(requests: Connection) -> bool:
    """Whether whoever asks has gone: while it waits for an answer, it sends nothing."""
    return CAN_FORK and requests.poll()


def _fork(request: dict[str, Any], rank: int, requests: Connection) -> Worker:
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        requests.close()  # it is the server's: with it, it closes
        _work(request, rank)

    def worker(end: int = 0) -> int | None:
        if end:
            os.kill(pid, end)
        ended, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if ended else None

    return worker


def _spawn(request: dict[str, Any], rank: int, _: Connection) -> Worker:
    command = [sys.executable, "-m", "hooklab.course.processes", json.dumps(request), str(rank)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def worker(end: int = 0) -> int | None:
        if end:
            process.send_signal(end)
        return process.poll()

    return worker


def _work(request: dict[str, Any], rank: int) -> None:
    """Be one of the processes, leave in a file what it prints, and end."""
    code = 1
    try:
        folder = Path(request["file"]).parent
        output = os.open(folder / f"{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for here, descriptor in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(here, descriptor)
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # what is said before a crash is kept
        if "torchrun" in request:
            _be_torchrun(request["torchrun"], folder / ERRORS)
        else:
            _be_one_of_them(request, rank)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
        if code and not isinstance(ended.code, int):
            print(ended.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _be_torchrun(arguments: list[str], errors: Path) -> None:
    """Do what the program of this name does, once it has imported torch."""
    from torch.distributed.run import main  # only here: the others do without

    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    main(arguments)


def _be_one_of_them(request: dict[str, Any], rank: int) -> None:
    """Run the script, and leave in a file what its function returns."""
    faulthandler.dump_traceback_later(request["seconds"], exit=True)  # whoever hangs says where
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(request["processes"]),
        "LOCAL_WORLD_SIZE": str(request["processes"]),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(request["port"]),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store exists; nobody here opens a port
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    # A group that a model of main's still holds when main returns would be destroyed there, which waits, now and
    # then for ever, for a thread that waits for Python's lock. So groups live as long as the process.
    torch.distributed.destroy_process_group = lambda group=None: None
    result = runpy.run_path(request["file"])["main"]()
    Path(request["file"]).with_name(f"{rank}.pickle").write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    _work(json.loads(sys.argv[1]), int(sys.argv[2]))
