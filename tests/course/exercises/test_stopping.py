"""An answer that runs for ever is stopped where it is, and a real Ctrl-C is still one."""

import os
import re
import signal
import threading
import time
from contextlib import contextmanager

import pytest
import torch

from hooklab.course.exercises import attempt, stopping
from tests.course.exercises.made_up import calls_with_tensor, outcome_of

SOON = 0.1


def loops(x):
    while True:
        pass


def catches_everything(x):
    while True:
        try:  # noqa: SIM105
            torch.ones(1).sum()
        except:  # noqa: E722
            pass


def sleeps(x):
    time.sleep(60)


def loops_in_a_library(x):
    sum(iter(lambda: torch.ones(1).add(1).item(), 0))


def loops_when_it_is_undone(x):
    try:
        while True:
            pass
    finally:
        while True:
            pass


@contextmanager
def interrupts_heeded():
    """As in a kernel: a run of the tests in the background may ignore an interrupt."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


ENDLESS = [loops, catches_everything, sleeps, loops_in_a_library, loops_when_it_is_undone]


@pytest.mark.parametrize("answer", ENDLESS, ids=lambda answer: answer.__name__)
def test_an_endless_answer_is_stopped_with_its_line(answer, monkeypatch):
    start = time.monotonic()
    outcome = outcome_of(calls_with_tensor, answer, monkeypatch, seconds=SOON)
    assert time.monotonic() - start < 30  # the machine may be busy
    assert outcome.state == "not yet"
    assert re.match(rf"{answer.__name__} was stopped after \S+ seconds, at line ", outcome.summary)
    assert "seconds=60" in str(outcome)
    assert not [thread for thread in threading.enumerate() if "clock" in thread.name]


@pytest.mark.parametrize(
    ("wall", "cpu", "is_over"),
    [(9, 9, False), (10, 10, True), (10, 0.01, True), (10, 2, False), (16, 9, True), (31, 5, False), (101, 5, True)],
    ids=["in time", "busy", "asleep", "one of many", "one of many, for long", "one of very many", "one of too many"],
)
def test_an_answer_on_a_busy_machine_gets_more_time(wall, cpu, is_over):
    assert stopping._is_over(10, wall, cpu) is is_over


def test_the_time_of_a_librarys_import_is_not_the_answers(monkeypatch, tmp_path):
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(0.6)\n")
    monkeypatch.syspath_prepend(tmp_path)
    whose = stopping.whose
    monkeypatch.setattr(stopping, "whose", lambda name: "library" if "slow_to_import" in name else whose(name))

    def imports(x):
        import slow_to_import  # noqa: F401

    def imports_and_loops(x):
        imports(x)
        loops(x)

    # longer than the clock needs to notice that the import is over
    assert outcome_of(calls_with_tensor, imports, monkeypatch, seconds=2 * SOON).state == "correct"
    assert "was stopped" in outcome_of(calls_with_tensor, imports_and_loops, monkeypatch, seconds=SOON).summary


def test_an_answer_that_needs_its_time_gets_it(monkeypatch):
    def answer(x):
        time.sleep(2 * SOON)

    assert outcome_of(calls_with_tensor, answer, monkeypatch, seconds=None).state == "correct"
    assert outcome_of(calls_with_tensor, answer, monkeypatch).state == "correct"


def test_a_stop_that_arrives_late_is_not_taken_for_a_real_interrupt(monkeypatch):
    """As while a long call of C code keeps the main thread from handling the first signal."""
    send, sent = stopping._interrupt_main_thread, []

    def send_late():
        sent.append(1)
        if len(sent) == 1:
            threading.Timer(0.1, send).start()
        else:
            time.sleep(0.2)
            send()

    def takes_its_time(trial):
        ends = time.monotonic() + 0.6
        while time.monotonic() < ends:
            pass

    monkeypatch.setattr(stopping, "_interrupt_main_thread", send_late)
    monkeypatch.setattr(stopping, "_is_learners_turn", lambda frame: False)
    with interrupts_heeded():
        assert outcome_of(takes_its_time, lambda x: x, monkeypatch, seconds=SOON).state == "correct"
    assert len(sent) > 1


def test_a_real_interrupt_still_interrupts(monkeypatch):
    def answer(x):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)

    with interrupts_heeded():
        with pytest.raises(KeyboardInterrupt):
            outcome_of(calls_with_tensor, answer, monkeypatch)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_that_the_process_ignores_is_ignored_but_the_clock_is_not(monkeypatch):
    def answer(x):
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            pass

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert "was stopped" in outcome_of(calls_with_tensor, answer, monkeypatch, seconds=SOON).summary
    finally:
        signal.signal(signal.SIGINT, before)


def test_where_no_thread_can_be_signalled_a_loop_is_still_stopped(monkeypatch):
    monkeypatch.delattr(signal, "pthread_kill")  # as on Windows
    assert "was stopped" in outcome_of(calls_with_tensor, loops, monkeypatch, seconds=SOON).summary


def test_a_debugger_is_not_stopped(monkeypatch):
    def answer(x):
        space = {"__name__": "pdb", "time": time}
        exec("def wait():\n    end = time.monotonic() + 0.4\n    while time.monotonic() < end: pass", space)
        space["wait"]()

    assert outcome_of(calls_with_tensor, answer, monkeypatch, seconds=SOON).state == "correct"


def test_a_check_in_another_thread_has_an_outcome_as_well():
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(attempt("1.1", lambda named: set(named))))
    thread.start()
    thread.join()
    assert outcomes[0].state == "not yet"
