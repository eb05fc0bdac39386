"""Functions in several processes: what comes back, what is shown, and that every process ends, also when one fails.

The functions are written into scripts, which know torch, dist, nn and DistributedDataParallel.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hooklab.course import processes
from hooklab.course.processes import ProcessesFailed, by_torchrun, launch

looks_into_proc = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


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


def connects():
    import os

    was_connected = dist.is_initialized()
    dist.init_process_group("gloo")
    return was_connected, os.getpid()


def children():
    """Return the ids of the processes that this one has started and that are still there."""
    return {int(word) for task in Path("/proc/self/task").iterdir() for word in (task / "children").read_text().split()}


def are_gone_soon(pids):
    until = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_each_process_returns_its_result_in_the_order_of_ranks(capsys):
    results = launch(add_up)
    assert [result for result, _ in results] == [3.0, 3.0]
    assert len({pid for _, pid in results} | {os.getpid()}) == 3
    assert capsys.readouterr().out == "process 0 | sum 3.0\nprocess 1 | sum 3.0\n"


def test_what_the_function_uses_goes_along():
    assert launch(uses_twice, twice) == [0, 2]


def test_processes_that_did_well_are_there_for_the_next_launch_and_not_connected():
    first, second = launch(connects), launch(connects)
    assert not any(was_connected for was_connected, _ in second)
    assert {pid for _, pid in first} == {pid for _, pid in second}
    processes._spares[-1].kill()
    processes._spares[-1].wait()
    assert len(launch(connects)) == 2


def test_a_model_that_outlives_its_process_group_keeps_nobody_waiting():
    assert launch(trains, seconds=30) == [1.5, 1.5]


def exits():
    import sys

    sys.exit("that is all")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (one_dies, "process 1 died of signal SIGKILL"),
        (one_raises, "process 1 | KeyError: 'mine'"),
        (exits, "process 0 | that is all"),
    ],
)
def test_when_one_fails_the_others_end_and_what_they_said_is_shown(function, said):
    with pytest.raises(ProcessesFailed) as failed:
        launch(function, seconds=60)
    assert all(failed.value.ends) and said in str(failed.value)
    if function is not exits:
        assert "all_reduce" in failed.value.outputs[0]


def test_after_the_time_limit_each_says_where_it_stands_and_ends(monkeypatch):
    monkeypatch.setattr(processes, "GRACE", 30.0)  # on a busy machine, one may start much later than the other
    begun = time.monotonic()
    with pytest.raises(ProcessesFailed, match="was stopped: it did not end in time") as failed:
        launch(one_sleeps, seconds=1)
    assert time.monotonic() - begun < 60
    assert failed.value.ends == ["stopped", "stopped"]
    assert "in one_sleeps" in failed.value.outputs[1]


LAUNCHES_AND_DIES = """
import os, pathlib, signal, threading, time
from hooklab.course.processes import launch
from tests.course.test_processes import children, one_sleeps

def die():
    while len(children()) < 2:
        time.sleep(0.05)
    print(*children(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=die, daemon=True).start()
launch(one_sleeps, seconds=300)
"""


@looks_into_proc
def test_when_the_one_who_launched_them_dies_all_end():
    done = subprocess.run([sys.executable, "-c", LAUNCHES_AND_DIES], stdout=subprocess.PIPE, text=True)
    assert done.returncode == -signal.SIGKILL
    assert len(done.stdout.split()) == 2 and are_gone_soon(done.stdout.split())


@contextmanager
def interrupted_when(begun):
    """Send this process what Jupyter's stop button sends, as soon as begun() is true."""

    def wait():
        until = time.monotonic() + 60
        while not begun() and time.monotonic() < until:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background ignores it
    thread = threading.Thread(target=wait)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)


@looks_into_proc
def test_the_stop_button_ends_every_process_and_the_next_launch_works(monkeypatch):
    while processes._spares:  # else two are there before the launch begins
        processes._spares.pop().end()
    before, at_work, begin = children(), [], processes.Worker.begin
    monkeypatch.setattr(processes.Worker, "begin", lambda *given: at_work.append(begin(*given)))
    with interrupted_when(lambda: len(at_work) == 2):
        launch(one_sleeps, seconds=300)
    assert children() <= before
    assert launch(uses_twice, twice) == [0, 2]


def sleeps():
    import os
    import pathlib
    import time

    pathlib.Path(os.environ["FOLDER"], os.environ["RANK"]).write_text(str(os.getpid()))
    time.sleep(600)


@looks_into_proc
def test_the_stop_button_ends_torchrun_and_its_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "IMPORTS", "")  # this program needs no torch, and starts sooner
    monkeypatch.setenv("FOLDER", str(tmp_path))

    def both():
        return [file.read_text() for file in tmp_path.iterdir() if file.read_text()]

    with interrupted_when(lambda: len(both()) == 2):
        by_torchrun(sleeps)
    assert are_gone_soon(both())


def talks():
    dist.init_process_group("gloo")
    for _ in range(300):
        dist.barrier()
        print("one line")


def test_the_script_is_one_that_torchrun_starts_and_no_line_is_broken():
    assert by_torchrun(talks).splitlines() == ["one line"] * 600
