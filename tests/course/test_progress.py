"""What a long job shows: on a terminal, and in a log."""

import io

import pytest

from hooklab.course.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_one_line_is_rewritten_and_cut_at_the_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    terminal = Terminal()
    progress = Progress(terminal)
    progress.show("a long line of words")
    progress.show("short")
    progress.say("said")
    progress.show("last")
    progress.close()
    assert terminal.getvalue() == "\ra long li\rshort    \rsaid     \n\rlast     \n"


def test_a_log_gets_what_is_said_and_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("hooklab.course.progress.time.monotonic", lambda: now)
    log = io.StringIO()
    progress = Progress(log, every=10)
    progress.show("a")
    now += 10
    progress.show("b")
    progress.say("said")
    now += 1
    progress.show("c")
    progress.close()
    assert log.getvalue() == "b\nsaid\n"
