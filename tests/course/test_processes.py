"""Functions in several processes: what comes back, what is shown, and that every process ends, also when one fails.

The functions are written into scripts, which know torch, dist, nn and DistributedDataParallel.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time
from contextlib import contextmanager
from importlib.metadata import entry_points
from multiprocessing import forkserver
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hooklab.course import processes
from hooklab.course.processes import ProcessesFailed, by_torchrun, launch, script, together

pytestmark = pytest.mark.usefixtures("nothing_kept")


def add_up():
    dist.init_process_group("gloo")
    import os

    number = torch.ones(1) * (dist.get_rank() + 1)
    dist.all_reduce(number)
    print("sum", number.item())
    dist.destroy_process_group()
    return number.item(), os.getpid()


def twice(number):
    return 2 * number


def uses_twice():
    dist.init_process_group("gloo")
    return twice(dist.get_rank())


def one_dies():
    import os
    import signal

    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1))


def one_raises():
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        raise KeyError("mine")
    dist.all_reduce(torch.ones(1))


def one_sleeps():
    import time

    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        time.sleep(600)
    dist.all_reduce(torch.ones(1))


def trains():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(1, 1, bias=False))
    model(torch.ones(1, 1) * (dist.get_rank() + 1)).sum().backward()
    dist.destroy_process_group()  # while the model lives: with the real one, this may wait for ever
    return model.module.weight.grad.item()


def are_alive(pids):
    """Whether one of these processes is still there; one that has ended and was not waited for counts as gone."""
    return [pid for pid in pids if Path(f"/proc/{pid}/stat").exists() and _state(pid) != "Z"]


def _state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return "Z"


def children_of(parent):
    """The ids of the processes that this one has started and that are still there."""
    from pathlib import Path

    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        if int(words[1]) == parent and words[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def children_of_the_server():
    assert processes._server is not None
    return children_of(processes._server.pid)


def test_each_process_returns_its_result_in_the_order_of_ranks(capsys):
    results = launch(add_up)
    assert [result for result, _ in results] == [3.0, 3.0]
    assert len({pid for _, pid in results} | {os.getpid()}) == 3
    assert capsys.readouterr().out == "process 0 | sum 3.0\nprocess 1 | sum 3.0\n"


def test_more_processes_than_two():
    assert [result for result, _ in launch(add_up, processes=4, show=False)] == [10.0] * 4


def test_what_the_function_uses_goes_along():
    assert launch(uses_twice, twice) == [0, 2]


def adds_up_and_talks():
    import atexit

    atexit.register(print, "the usual end")
    dist.init_process_group("gloo")
    number = torch.ones(1) * (dist.get_rank() + 1)
    dist.all_reduce(number)
    print("sum", number.item())
    for _ in range(300):
        dist.barrier()
        print("one line")


@pytest.fixture(scope="module")
def lines_under_torchrun():
    return by_torchrun(adds_up_and_talks).splitlines()


def test_the_script_is_one_that_torchrun_starts(lines_under_torchrun):
    assert lines_under_torchrun.count("sum 3.0") == 2


def test_the_program_torchrun_calls_what_is_forked_here():
    (program,) = entry_points(group="console_scripts", name="torchrun")
    assert program.value == "torch.distributed.run:main"


def test_under_torchrun_a_process_that_is_done_ends_before_torchs_threads_can_abort_it(lines_under_torchrun):
    assert "the usual end" not in lines_under_torchrun


def test_the_lines_of_two_processes_under_torchrun_are_whole(lines_under_torchrun):
    assert lines_under_torchrun == ["one line"] * 600 + ["sum 3.0"] * 2


def test_a_model_that_outlives_its_process_group_keeps_nobody_waiting():
    assert all(launch(trains, seconds=30) == [1.5, 1.5] for _ in range(5))


@pytest.mark.skipif(not processes.CAN_FORK, reason="looks into /proc")
@pytest.mark.parametrize("function", [one_dies, one_raises])
def test_when_one_fails_the_others_end_and_what_they_said_is_told(function):
    with pytest.raises(ProcessesFailed) as failed:
        launch(function, seconds=60)
    assert all(end != 0 for end in failed.value.ends)
    assert "all_reduce" in failed.value.outputs[0]
    if function is one_dies:
        assert failed.value.ends[1] == -9
        assert "process 1 died of signal SIGKILL" in str(failed.value)
    else:
        assert "process 1 | KeyError: 'mine'" in str(failed.value)
    assert children_of_the_server() == []


@pytest.mark.skipif(not processes.CAN_FORK, reason="looks into /proc")
def test_after_the_time_limit_each_says_where_it_stands_and_ends():
    begun = time.monotonic()
    with pytest.raises(ProcessesFailed, match="was stopped, for it did not end") as failed:
        launch(one_sleeps, seconds=1)
    assert time.monotonic() - begun < 60
    assert failed.value.ends == ["stopped", "stopped"]
    assert "in one_sleeps" in failed.value.outputs[1]
    assert children_of_the_server() == []


def asks_and_dies():
    """Let a server of its own run another function, and die while that runs."""
    import os
    import signal
    import threading
    import time

    from hooklab.course import processes

    def die():
        while not (server := processes._server) or len(children := children_of(server.pid)) < 2:
            time.sleep(0.05)
        print(server.pid, *children, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=die, daemon=True).start()
    processes.launch(one_sleeps, seconds=300)


@pytest.mark.skipif(not processes.CAN_FORK, reason="looks into /proc")
def test_when_the_one_who_asked_dies_everything_ends():
    with pytest.raises(ProcessesFailed) as failed:
        launch(asks_and_dies, one_sleeps, children_of, processes=1)
    assert failed.value.ends == [-signal.SIGKILL]
    left = [int(word) for word in failed.value.outputs[0].split()]
    assert len(left) == 3
    deadline = time.monotonic() + 60
    while are_alive(left) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert are_alive(left) == []


@contextmanager
def interrupted_when(begun):
    """Send this process what Jupyter's stop button sends, as soon as begun() is true."""

    def wait():
        deadline = time.monotonic() + 60
        while not begun() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    # a run that was started in the background may have been told to ignore it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=wait)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(not processes.CAN_FORK, reason="looks into /proc")
def test_the_stop_button_ends_every_process_and_the_next_launch_works():
    launch(uses_twice, twice)  # a server is there
    asked, found = processes._server.pid, []

    def both_have_begun():
        found[:] = children_of_the_server()
        return len(found) == 2

    begun = time.monotonic()
    with interrupted_when(both_have_begun):
        launch(one_sleeps, seconds=300)
    assert time.monotonic() - begun < 100
    assert len(found) == 2 and are_alive([asked, *found]) == []
    assert launch(uses_twice, twice) == [0, 2]


def writes_its_pid(folder):
    """A program for torchrun: each process leaves its pid in the folder, and sleeps."""
    return f"""
def sleeps():
    import os, pathlib, time

    pathlib.Path({str(folder)!r}, os.environ["RANK"]).write_text(str(os.getpid()))
    time.sleep(600)
"""


@pytest.mark.skipif(not processes.CAN_FORK, reason="looks into /proc")
def test_the_stop_button_ends_torchrun_and_its_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "IMPORTS", "")  # this program needs no torch, and is there the sooner
    source = tmp_path / "program.py"
    source.write_text(writes_its_pid(tmp_path))
    namespace = runpy.run_path(str(source))

    def both_have_begun():
        return all((tmp_path / name).exists() and (tmp_path / name).read_text() for name in "01")

    with interrupted_when(both_have_begun):
        by_torchrun(namespace["sleeps"])
    assert are_alive([int((tmp_path / name).read_text()) for name in "01"]) == []


def test_a_server_that_is_stopped_has_ended():
    launch(uses_twice, twice)
    server = processes._server
    processes.stop_server()
    assert server.exitcode == 0
    assert processes._server is None  # as after the stop button: the next launch starts another


def test_a_process_does_not_import_the_script_that_starts_it(tmp_path, monkeypatch):
    script = ModuleType("__main__")
    script.__file__ = str(tmp_path / "script.py")
    (tmp_path / "script.py").write_text("raise SystemExit(7)")
    monkeypatch.setitem(sys.modules, "__main__", script)
    process = processes.begin(processes.together, [])
    process.join()
    assert process.exitcode == 0
    assert sys.modules["__main__"] is script
    assert "multiprocessing.popen_forkserver" in sys.modules or not processes.CAN_FORK  # what start imports stays


@pytest.mark.skipif(not processes.CAN_FORK, reason="it is never used there")
def test_where_the_fork_server_is_forbidden_a_new_python_does_the_same(monkeypatch):
    processes.stop_server()
    monkeypatch.setattr(forkserver, "connect_to_new_process", refuse)
    assert launch(uses_twice, twice) == [0, 2]
    processes.stop_server()


def refuse(*_):
    raise PermissionError


def test_a_script_ends_in_a_call_of_the_function():
    text = script(uses_twice, twice)
    assert text.startswith("import torch\n")
    assert text.index("def twice") < text.index("def uses_twice") < text.index("main = uses_twice")
    assert text.endswith('if __name__ == "__main__":\n    main()\n')


def test_lines_are_told_apart_by_their_process():
    assert together(["a\nb\n", "", "c"]) == "process 0 | a\nprocess 0 | b\nprocess 2 | c"
