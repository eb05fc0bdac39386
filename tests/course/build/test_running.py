import tempfile
from pathlib import Path
from typing import Any

import pytest
from nbformat.v4 import new_output

from hooklab.course.build.products import skeleton
from hooklab.course.build.running import _joined, findings
from hooklab.course.build.sources import Variant
from tests.course.build.made_up import TINY, changed, draft_of

SHOWN = {"lesson": "○ 9.1 not attempted: write it", "solution": "✓ 9.1 correct: two"}
CLAIM, CARD, CHECK = 2, 3, 5


class Notebook:
    """A tiny notebook as a run leaves it, for a test to spoil."""

    def __init__(self, root: Path, variant: Variant, source: str = TINY) -> None:
        self.draft, self.variant = draft_of(root, source), variant
        self.notebook = skeleton(self.draft, variant)
        self.cells: list[Any] = self.notebook.cells
        for count, cell in enumerate([cell for cell in self.cells if cell.cell_type == "code"], start=1):
            cell.execution_count = count
        self.show(CHECK, SHOWN[variant])

    def show(self, index: int, text: str, kind: str = "text/plain") -> None:
        self.cells[index].outputs = [new_output("display_data", {kind: text})]

    def findings(self) -> list[tuple[int, str]]:
        """Return the index of each cell with a problem, and what is said of it."""
        found = findings(self.notebook, self.draft, self.variant)
        places = [one.partition(f": in the {self.variant}: ") for one in found]
        return [(int(place.split(" ")[2]) - 1, what) for place, _, what in places]


@pytest.fixture
def lesson(tmp_path: Path) -> Notebook:
    return Notebook(tmp_path, "lesson")


@pytest.fixture
def solution(tmp_path: Path) -> Notebook:
    return Notebook(tmp_path, "solution")


def test_a_solution_and_a_lesson_pass(lesson: Notebook, solution: Notebook) -> None:
    assert not lesson.findings()
    assert not solution.findings()


@pytest.mark.parametrize(
    ("variant", "shown", "said"),
    [
        ("solution", "✗ 9.1 not yet: not two", "the outcome is 'not yet', expected 'correct'"),
        ("solution", "○ 9.1 not attempted: write it", "the outcome is 'not attempted', expected 'correct'"),
        ("lesson", "✗ 9.1 not yet: not two", "the outcome is 'not yet', expected 'not attempted'"),
        ("lesson", "✓ 9.1 correct: two", "the outcome is 'correct', expected 'not attempted'"),
        ("solution", "two", "the outcome is None, expected 'correct'"),
    ],
)
def test_a_solution_is_correct_and_a_lesson_not_attempted(
    tmp_path: Path, variant: Variant, shown: str, said: str
) -> None:
    notebook = Notebook(tmp_path, variant)
    notebook.show(CHECK, shown)

    assert notebook.findings() == [(CHECK, said)]


@pytest.mark.parametrize("kind", ["text/plain", "text/html", "image/svg+xml", "printed"])
@pytest.mark.parametrize("place", ["root", "home", "kernel", "address"])
def test_what_differs_between_runs_or_machines_is_refused(
    lesson: Notebook, kind: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/people/ann")
    shown = {
        "root": f"{lesson.draft.lesson.root}/lessons",
        "home": "/people/ann/data",
        "kernel": "/elsewhere/ipykernel_1234/56.py:1: UserWarning",
        "address": "<function hook at 0x7f3a2b>",
    }[place]
    lesson.show(CLAIM, shown, kind)
    if kind == "printed":
        lesson.cells[CLAIM].outputs = [new_output("stream", name="stderr", text=shown)]

    ((index, what),) = lesson.findings()
    assert index == CLAIM
    assert "which is different in another run or on another machine" in what


def test_a_path_that_only_begins_like_one_of_this_machine_passes(lesson: Notebook) -> None:
    lesson.show(CLAIM, f"{tempfile.gettempdir()}erature and {Path.home()}-made")

    assert not lesson.findings()


def test_printed_text_is_one_piece_up_to_the_next_picture() -> None:
    told = [new_output("stream", name="stdout", text=text) for text in ("one ", "picture\n", "another\n")]
    warned, picture = (
        new_output("stream", name="stderr", text="!"),
        new_output("display_data", data={"text/plain": "p"}),
    )

    joined = _joined([told[0], told[1], picture, told[2], warned])

    assert [one.get("text") for one in joined] == ["one picture\n", None, "another\n", "!"]


def test_a_stored_traceback_is_refused(lesson: Notebook) -> None:
    lesson.cells[CLAIM].outputs = [new_output("error", ename="KeyError", evalue="1", traceback=["KeyError: 1"])]

    assert lesson.findings() == [(CLAIM, "it raised KeyError")]


@pytest.mark.parametrize("count", [None, 5])
def test_a_cell_that_was_not_run_once_in_its_turn_is_refused(lesson: Notebook, count: int | None) -> None:
    lesson.cells[CHECK].execution_count = count

    assert lesson.findings() == [(CHECK, f"execution count {count}, expected 4: run from top to bottom")]


@pytest.mark.parametrize(
    "shown", ["first, second = 1, 1", "def two():\n    return first + second", "    return first + second  # so"]
)
def test_a_lesson_with_a_line_of_a_solution_is_refused(lesson: Notebook, shown: str) -> None:
    lesson.show(CLAIM, shown)
    printed = lesson.findings()
    lesson.cells[CLAIM].source, lesson.cells[CLAIM].outputs = shown, []

    ((index, what),) = lesson.findings()
    assert index == CLAIM
    assert what.startswith("it holds a line of a solution: ")
    assert printed == [(index, what)]


def test_a_hint_that_gives_the_solution_away_is_refused(tmp_path: Path) -> None:
    lesson = Notebook(tmp_path, "lesson", changed("Those were two strings.", "Write `return first + second`."))

    assert lesson.findings() == [(CARD, "it holds a line of a solution: 'return first + second'")]


def test_a_line_that_the_lesson_teaches_is_no_secret(tmp_path: Path) -> None:
    taught = changed("total = 1 + 1", "def add(first, second):\n    return first + second\ntotal = add(1, 1)")

    assert not Notebook(tmp_path, "lesson", taught).findings()


def test_the_script_that_a_card_asks_to_mend_is_no_secret(tmp_path: Path) -> None:
    script = "# ```python\n# first, second = 1, 1\n# return first - second\n# ```\n"
    told = TINY.replace("# Return two.\n", f"# Mend it:\n#\n{script}")
    outside = told.replace("# ```python\n", "# ```\n")

    assert Notebook(tmp_path / "card", "lesson", told).findings() == []
    assert [index for index, _ in Notebook(tmp_path / "other", "lesson", outside).findings()] == [CARD]
