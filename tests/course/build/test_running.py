import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_output

from hooklab.course.build.products import skeleton
from hooklab.course.build.running import findings, tidy
from hooklab.course.build.sources import Variant
from tests.course.build.made_up import TINY, changed, draft_of

# --- what is stored of a run ---


def printed(name: str, text: str) -> Any:
    return new_output("stream", name=name, text=text)


def shown(outputs: list[Any]) -> list[tuple[str, str]]:
    return [(one.get("name", one.output_type), one.get("text", "")) for one in outputs]


@given(st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.text("ab\n", min_size=1)), max_size=6))
def test_how_printed_text_was_cut_and_interleaved_leaves_no_trace(chunks: list[tuple[str, str]]) -> None:
    whole = {stream: "".join(text for name, text in chunks if name == stream) for stream in ("stdout", "stderr")}

    assert shown(tidy([printed(*chunk) for chunk in chunks])) == [(name, text) for name, text in whole.items() if text]


def test_text_before_and_after_a_figure_stays_where_it_was() -> None:
    figure = new_output("display_data", {"text/plain": "<Figure>", "image/png": "aGVsbG8="})

    tidied = tidy([printed("stdout", "a"), printed("stdout", "b"), figure, printed("stdout", "c")])

    assert shown(tidied) == [("stdout", "ab"), ("display_data", ""), ("stdout", "c")]


def test_a_widgets_view_goes_and_its_text_stays() -> None:
    view = {"text/plain": "IntSlider(value=3)", "application/vnd.jupyter.widget-view+json": {"model_id": "a1b2"}}

    (tidied,) = tidy([new_output("display_data", view)])

    assert tidied.data == {"text/plain": "IntSlider(value=3)"}


# --- what is wrong with what a run left ---

SHOWN = {"lesson": "○ 9.1 not attempted: write it", "solution": "✓ 9.1 correct: two"}
CLAIM, CARD, SOLUTION, CHECK = 2, 3, 4, 5


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
        return findings(self.notebook, self.draft, self.variant)


@pytest.fixture
def lesson(tmp_path: Path) -> Notebook:
    return Notebook(tmp_path, "lesson")


@pytest.fixture
def solution(tmp_path: Path) -> Notebook:
    return Notebook(tmp_path, "solution")


def test_a_lesson_and_a_solution_as_they_should_be_pass(tmp_path: Path) -> None:
    assert not Notebook(tmp_path / "lesson", "lesson").findings()
    assert not Notebook(tmp_path / "solution", "solution").findings()


def test_the_outcome_is_read_from_the_plain_text(lesson: Notebook) -> None:
    lesson.cells[CHECK].outputs[0].data["text/html"] = "✗ 9.1 not yet"

    assert not lesson.findings()


@pytest.mark.parametrize(
    ("variant", "shown", "said"),
    [
        ("solution", "✗ 9.1 not yet: not two", 'the solution\'s check says "not yet", expected "correct"'),
        ("solution", "○ 9.1 not attempted: write it", 'the solution\'s check says "not attempted", expected "correct"'),
        ("lesson", "✗ 9.1 not yet: not two", 'the lesson\'s check says "not yet", expected "not attempted"'),
        ("lesson", "✓ 9.1 correct: two", 'the lesson\'s check says "correct", expected "not attempted"'),
        ("solution", "two", 'no outcome of a check in the output, expected "correct"'),
    ],
)
def test_a_solution_is_correct_and_a_lesson_not_attempted(
    tmp_path: Path, variant: Variant, shown: str, said: str
) -> None:
    notebook = Notebook(tmp_path, variant)
    notebook.show(CHECK, shown)

    assert notebook.findings() == [(CHECK, said)]


def test_an_error_in_an_output_is_refused(lesson: Notebook) -> None:
    lesson.cells[CLAIM].outputs = [new_output("error", ename="ValueError", evalue="no", traceback=[])]

    assert lesson.findings() == [(CLAIM, "an error in the output: ValueError")]


@pytest.mark.parametrize("tag", ["figure", "explorer"])
def test_a_figure_without_a_picture_is_refused(lesson: Notebook, tag: str) -> None:
    lesson.cells[CLAIM].metadata["tags"] = [tag]
    lesson.show(CLAIM, "<Figure size 900x460 with 1 Axes>")

    assert lesson.findings() == [(CLAIM, f"tagged as {tag}, but the output has no picture")]


def test_a_figure_with_a_picture_passes(lesson: Notebook) -> None:
    lesson.cells[CLAIM].metadata["tags"] = ["figure"]
    lesson.show(CLAIM, "aGVsbG8=", "image/png")

    assert not lesson.findings()


@pytest.mark.parametrize("kind", ["text/plain", "text/html", "image/svg+xml", "printed"])
def test_a_memory_address_in_an_output_is_refused(lesson: Notebook, kind: str) -> None:
    lesson.show(CLAIM, "<function hook at 0x7f3a2b>", kind)
    if kind == "printed":
        lesson.cells[CLAIM].outputs = [new_output("stream", name="stderr", text="<hook at 0x7f3a2b>")]

    ((index, what),) = lesson.findings()
    assert index == CLAIM
    assert what.endswith("'at 0x7f3a2b'")


@pytest.mark.parametrize("place", ["root", "home", "temp", "kernel"])
def test_a_path_of_this_machine_in_an_output_is_refused(
    lesson: Notebook, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/scratch")
    monkeypatch.setenv("HOME", "/people/ann")
    paths = {
        "root": f"{lesson.draft.lesson.root}/lessons",
        "home": "/people/ann/data",
        "temp": "/scratch/a.txt",
        "kernel": "/elsewhere/ipykernel_1234/56.py:1: UserWarning",
    }
    lesson.show(CLAIM, paths[place])

    ((index, what),) = lesson.findings()
    assert index == CLAIM
    assert "a path of the machine" in what


def test_a_path_that_only_begins_like_one_of_this_machine_passes(lesson: Notebook) -> None:
    lesson.show(CLAIM, f"{tempfile.gettempdir()}erature and {Path.home()}-made")

    assert not lesson.findings()


@pytest.mark.parametrize(
    ("count", "said"),
    [(None, "this cell was not run"), (5, "execution count 5, expected 4: not run once from top to bottom")],
)
def test_a_cell_that_was_not_run_once_in_its_turn_is_refused(lesson: Notebook, count: int | None, said: str) -> None:
    lesson.cells[CHECK].execution_count = count

    assert lesson.findings() == [(CHECK, said)]


@pytest.mark.parametrize(
    "shown", ["first, second = 1, 1", "def two():\n    return first + second", "    return first + second  # so"]
)
def test_a_lesson_with_a_line_of_a_solution_is_refused(lesson: Notebook, shown: str) -> None:
    lesson.cells[CLAIM].source = shown

    ((index, what),) = lesson.findings()
    assert index == CLAIM
    assert what.startswith("the lesson holds a line of a solution: ")


@pytest.mark.parametrize("hint", ["Write `return first + second`.", "return first + second"])
def test_a_hint_that_gives_the_solution_away_is_refused(tmp_path: Path, hint: str) -> None:
    lesson = Notebook(tmp_path, "lesson", changed("Those were two strings.", hint))

    assert lesson.findings() == [(CARD, "the lesson holds a line of a solution: 'return first + second'")]


def test_an_output_that_gives_the_solution_away_is_refused(lesson: Notebook) -> None:
    lesson.show(CLAIM, "    return first + second")

    assert [index for index, _ in lesson.findings()] == [CLAIM]


def test_a_line_that_the_lesson_teaches_is_no_secret(tmp_path: Path) -> None:
    taught = changed("total = 1 + 1", "def add(first, second):\n    return first + second\ntotal = add(1, 1)")

    assert not Notebook(tmp_path, "lesson", taught).findings()


def test_a_solution_notebook_holds_its_solution(solution: Notebook) -> None:
    assert "return first + second" in solution.cells[SOLUTION].source
    assert not solution.findings()


def test_the_script_that_a_card_asks_to_mend_is_no_secret(tmp_path: Path) -> None:
    script = "# ```python\n# first, second = 1, 1\n# return first - second\n# ```\n"
    told = TINY.replace("# Return two.\n", f"# Mend it:\n#\n{script}")
    outside = told.replace("# ```python\n", "# ```\n")

    assert Notebook(tmp_path / "card", "lesson", told).findings() == []
    assert [index for index, _ in Notebook(tmp_path / "other", "lesson", outside).findings()] == [CARD]
