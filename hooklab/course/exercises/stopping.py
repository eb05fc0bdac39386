"""Stops an answer that never ends, and reports the line that it had reached.

A thread watches the clock. When time is up, it sends the main thread the signal that Ctrl-C sends, which also
wakes it from a sleep, and the handler of that signal raises TookTooLong in the learner's own line. The clock stops
while a library is imported: the first use of torch's compiler takes many seconds, whatever the answer. A real Ctrl-C
goes on to the handler that was there before. No signal can interrupt a long call of C code, such as a product of
huge matrices or a wait inside a library.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from hooklab.course.exercises.faults import TookTooLong
from hooklab.course.exercises.frames import whose

_TICK = 0.1  # seconds: how often the clock looks
_AGAIN = 0.01  # seconds: the next try where TookTooLong could not be raised, or was swallowed by a bare `except:`
_DEBUGGERS = ("bdb", "pdb", "pydevd", "_pydevd_bundle")


@contextmanager
def stopped_after(seconds: float | None) -> Iterator[None]:
    """Raise TookTooLong in the learner's code when the block has taken that long; None: let it run.

    Works in the main thread, where a kernel runs cells, on Linux, macOS and Windows. In any other thread, where
    Python delivers no signals, the block is not stopped.
    """
    before = signal.getsignal(signal.SIGINT)
    if seconds is None or before is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    over, is_due = threading.Event(), threading.Event()

    def interrupted(number: int, frame: FrameType | None) -> None:
        if is_due.is_set():
            is_due.clear()
            if not over.is_set() and _is_learners_turn(frame):
                raise TookTooLong(time.monotonic() - began)
        elif callable(before):
            before(number, frame)  # a real Ctrl-C
        elif before == signal.SIG_DFL:
            signal.default_int_handler(number, frame)

    began = time.monotonic()

    def watch() -> None:
        pause, wall, cpu, last = min(_TICK, seconds), 0.0, 0.0, (began, time.process_time())
        while not over.wait(pause):
            now = time.monotonic(), time.process_time()
            if not _is_importing():
                wall, cpu = wall + now[0] - last[0], cpu + now[1] - last[1]
            last = now
            if _is_over(seconds, wall, cpu):
                pause = _AGAIN
                if not is_due.is_set():  # else one is on its way, and the handler would take a second one for a Ctrl-C
                    is_due.set()
                    _interrupt_main_thread()

    watcher = threading.Thread(target=watch, name="hooklab-check-clock", daemon=True)
    signal.signal(signal.SIGINT, interrupted)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        deadline = time.monotonic() + 1
        while is_due.is_set() and time.monotonic() < deadline:
            time.sleep(0.001)  # a signal on its way must not reach the handler that is put back now
        signal.signal(signal.SIGINT, before)


def _is_over(seconds: float, wall: float, cpu: float) -> bool:
    """Whether an answer has had its time, on the processor: among others, it may take ten times as long."""
    is_asleep = cpu < wall / 50
    return wall >= seconds and (is_asleep or cpu >= 0.9 * seconds or wall >= 10 * seconds)


def _is_importing() -> bool:
    """Whether the main thread is importing a library module. Importing the learner's own code does not count."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        if whose(frame.f_code.co_filename) != "library" and not frame.f_code.co_filename.startswith("<"):
            return False
        if frame.f_code.co_name == "_find_and_load":
            return True
        frame = frame.f_back
    return False


def _interrupt_main_thread() -> None:
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # ends a sleep, too
    else:
        _thread.interrupt_main()  # Windows: the same there


def _is_learners_turn(frame: FrameType | None) -> bool:
    """Whether the code that runs now is the learner's, or a library's on the learner's behalf; in a debugger it is not.

    While the check's own lines clean up, nothing may be raised.
    """
    asked = False
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] in _DEBUGGERS:
            return False
        owner = whose(frame.f_code.co_filename)
        if not asked and owner == "course":
            return False
        asked = asked or owner == "learner"
        frame = frame.f_back
    return asked
