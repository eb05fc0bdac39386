import io

import pytest
from nbformat.v4 import new_markdown_cell, new_notebook

from hooklab.course.build.running import Report, Run


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def three_cells(label: str) -> Run:
    return Run(label, new_notebook(cells=[new_markdown_cell() for _ in range(3)]), None)


def test_a_terminal_shows_all_running_notebooks_on_one_line_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    terminal = Terminal()
    report = Report(terminal, lambda: 7.0)
    one, other = three_cells("lessons/09_tiny"), three_cells("solutions/09_tiny")

    report(one, 0)
    report(other, 0)
    report(one, 1)

    assert "\n" not in terminal.getvalue()
    assert terminal.getvalue().split("\r")[-1].rstrip() == "lessons/09_tiny 2/3 (0 s)   solutions/09_tiny 1/3 (0 s)"


def test_a_notebook_that_ended_gets_a_line_that_stays() -> None:
    terminal = Terminal()
    report = Report(terminal, lambda: 7.0)
    one, other = three_cells("lessons/09_tiny"), three_cells("solutions/09_tiny")

    report(one, 0)
    report(other, 0)
    report(one, 3)

    *_, stays, changes = terminal.getvalue().split("\r")
    assert stays.endswith("\n")
    assert (stays.strip(), changes.strip()) == ("lessons/09_tiny: ran in 0.0 s", "solutions/09_tiny 1/3 (0 s)")


def test_elsewhere_each_notebook_gets_a_line_at_its_beginning_and_at_its_end() -> None:
    stream = io.StringIO()
    report = Report(stream, lambda: 7.0)

    for done in range(4):
        report(three_cells("lessons/09_tiny"), done)

    assert stream.getvalue() == "lessons/09_tiny: running 3 cells\nlessons/09_tiny: ran in 0.0 s\n"


def test_a_notebook_that_failed_is_told_as_failed() -> None:
    stream = io.StringIO()
    run = three_cells("lessons/09_tiny")
    run.faults.append((0, "raised ValueError"))

    Report(stream, lambda: 7.0)(run, 3)

    assert stream.getvalue().endswith("lessons/09_tiny: FAILED in 0.0 s\n")
