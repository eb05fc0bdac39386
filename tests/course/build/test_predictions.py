import json
from pathlib import Path
from typing import Any

import pytest
from nbformat.v4 import new_output

from hooklab.course.build import main
from hooklab.course.build.products import skeleton
from hooklab.course.build.running import findings
from tests.course.build.made_up import ASKED, NAME, TINY, changed, draft_of, make_course, problems_of

QUESTION = '# %%\npredict("9.a")\n\n'
BETWEEN = "# %%\nprint(3)\n\n"
MEANING = '# %%\nreveal("9.a", three)\n'


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("print(three)\n\n", "assert three == 3\n\n", {9: "an assert in the code of a prediction"}),
        (QUESTION, "", {8: "does not follow its `predict(…)`", 9: "does not follow its `predict(…)`"}),
        (MEANING, "# %%\n", {8: "must follow"}),
        ('# %% tags=["predict"]', "# %%", {8: "a cell with the tag 'predict'"}),
        ('reveal("9.a"', 'reveal("9.b"', {8: 'one that begins `reveal("9.a", …)`, must follow'}),
        ('predict("9.a")', 'print()\npredict("9.a")', {8: '`predict("9.a")` must be alone'}),
        (MEANING, '# %%\nprint(3)\nreveal("9.a", 3)\n', {8: "must follow"}),
        (MEANING, BETWEEN + MEANING, {8: "must follow", 11: "does not follow its `predict(…)`"}),
        (MEANING, MEANING + "four = 4\n", {10: "nothing but asserts may follow `reveal(…)`"}),
        (MEANING, MEANING, {}),
    ],
)
def test_a_prediction_is_three_cells_in_a_row_without_an_answer_in_sight(
    tmp_path: Path, old: str, new: str, said: dict[int, str]
) -> None:
    shown = problems_of(tmp_path, TINY + changed(old, new, ASKED))

    assert [int(problem.split("cell ")[1].split(" ")[0]) for problem in shown] == list(said)
    assert all(words in problem for words, problem in zip(said.values(), shown, strict=True))


def test_what_a_prediction_puts_out_is_stored_folded_in_the_lesson_and_open_in_the_solution(tmp_path: Path) -> None:
    make_course(tmp_path, {NAME: TINY + ASKED})
    assert main([], tmp_path) == 0

    made = {}
    for folder in ("lessons", "solutions"):
        cells = json.loads((tmp_path / folder / f"{NAME}.ipynb").read_text(encoding="utf-8"))["cells"]
        made[folder] = next(cell for cell in cells if "predict" in cell["metadata"].get("tags", []))

    folded = {"collapsed": True, "jupyter": {"outputs_hidden": True}}
    assert made["lessons"]["metadata"] == {"tags": ["predict"]} | folded
    assert made["solutions"]["metadata"] == {"tags": ["predict"]}
    assert made["lessons"]["outputs"] == made["solutions"]["outputs"] != []
    assert main(["--check"], tmp_path) == 0


def test_the_code_that_tells_is_folded_in_the_lesson_and_open_in_the_solution(tmp_path: Path) -> None:
    made = draft_of(tmp_path, TINY + ASKED)
    lesson, solution = ([cell.metadata for cell in _telling(skeleton(made, one))] for one in ("lesson", "solution"))
    assert lesson == [{"jupyter": {"source_hidden": True}}]
    assert solution == [{}]


def _telling(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.source.startswith("reveal(")]


@pytest.mark.parametrize("tag", ["predict", "folded"])
def test_a_folded_output_that_begins_with_anything_telling_is_refused(tmp_path: Path, tag: str) -> None:
    """JupyterLab shows the first line of a folded output."""
    later = '\n# %%\nprint("later")\n\n# %% tags=["folded"]\nprint("What came out:")\nprint(4)\n'
    made = draft_of(tmp_path, TINY + ASKED + later)
    notebook = skeleton(made, "lesson")
    index = next(i for i, cell in enumerate(notebook.cells) if tag in cell.metadata.get("tags", []))
    assert notebook.cells[index].metadata["jupyter"] == {"outputs_hidden": True}

    def refused() -> bool:
        found = findings(notebook, made, "lesson")
        return any(f": cell {index + 1} " in one and "first print" in one for one in found)

    said = []
    for text in ("3\n", "What came out: 3\n", "What came out:\n3\n"):
        notebook.cells[index].outputs = [new_output("stream", name="stdout", text=text)]
        said.append(refused())

    assert said == [True, True, False]
    notebook.cells[index].outputs = [new_output("display_data", {"text/plain": "a figure"})]
    assert refused()


def test_what_fits_none_of_the_choices_is_refused(tmp_path: Path) -> None:
    made = draft_of(tmp_path, TINY + ASKED)
    notebook = skeleton(made, "lesson")
    (cell,) = _telling(notebook)
    said = {}
    for text in ("○ 9.a no guess: none was made", "○ 9.a not scored: the result is now 4"):
        cell.outputs = [new_output("display_data", {"text/plain": text})]
        said[text] = any("expected 'no guess'" in one for one in findings(notebook, made, "lesson"))

    assert list(said.values()) == [False, True]
