import json
from pathlib import Path
from typing import Any

import pytest
from nbformat.v4 import new_output

from hooklab.course.build import main
from hooklab.course.build.products import skeleton
from hooklab.course.build.running import findings
from tests.course.build.made_up import ASKED, NAME, PREDICTIONS, TINY, changed, draft_of, make_course, problems_of

FILE = "hooklab/course/lesson09/predictions.py"
QUESTION = '# %%\npredict("9.a")\n\n'
MEANING = '# %%\nreveal("9.a", three)\n'


def told(root: Path, old: str, new: str, predictions: str = PREDICTIONS) -> list[str]:
    return problems_of(root, TINY + changed(old, new, ASKED), predictions=predictions)


def test_a_prediction_in_order_has_no_problems(tmp_path: Path) -> None:
    assert problems_of(tmp_path, TINY + ASKED, predictions=PREDICTIONS) == []


@pytest.mark.parametrize(
    ("old", "new", "where", "said"),
    [
        ("print(three)\n\n", "assert three == 3\n\n", ' cell 9 "three = 1 + 2": ', "an assert in a cell with the tag"),
        (QUESTION, "", " cell 8 ", "a prediction is"),
        (MEANING, "# %%\n", " cell 9 ", "a prediction is"),
        ('# %% tags=["predict"]', "# %%", " cell 8 ", "a prediction is"),
        ('# %% tags=["predict"]', "# %%", " cell 10 ", "a prediction is"),
        ('reveal("9.a"', 'reveal("9.b"', " cell 9 ", "a prediction is"),
        ('predict("9.a")', 'print()\npredict("9.a")', " cell 9 ", "a prediction is"),
        (MEANING, '# %%\nprint(3)\nreveal("9.a", 3)\n', " cell 9 ", "a prediction is"),
        ('predict("9.a")', 'predict("9.b")', ": ", f"prediction 9.b is 1 times on the page and 0 times in {FILE}"),
        (QUESTION, QUESTION + QUESTION, ": ", f"prediction 9.a is 2 times on the page and 1 times in {FILE}"),
    ],
)
def test_a_faulty_prediction_is_refused(tmp_path: Path, old: str, new: str, where: str, said: str) -> None:
    shown = told(tmp_path, old, new)

    assert any(where in problem and said in problem for problem in shown), shown


@pytest.mark.parametrize(
    ("predictions", "said"),
    [
        ("", f"prediction 9.a is 1 times on the page and 0 times in {FILE}"),
        (PREDICTIONS + 'more = number("9.b", "?", {}, otherwise="")\n', "prediction 9.b is 0 times on the page"),
        (PREDICTIONS + PREDICTIONS, f"prediction 9.a is 1 times on the page and 2 times in {FILE}"),
    ],
)
def test_the_lesson_and_its_predictions_hold_the_same(tmp_path: Path, predictions: str, said: str) -> None:
    assert any(said in problem for problem in problems_of(tmp_path, TINY + ASKED, predictions=predictions))


def test_a_predict_cell_needs_a_prediction_also_where_the_lesson_has_none(tmp_path: Path) -> None:
    told = problems_of(tmp_path, changed('["claim-S0.1"]', '["claim-S0.1", "predict"]'))

    assert any("an assert in a cell with the tag 'predict'" in problem for problem in told)
    assert any("a prediction is" in problem for problem in told)


def test_what_a_prediction_puts_out_is_stored_folded_in_the_lesson_and_open_in_the_solution(tmp_path: Path) -> None:
    make_course(tmp_path, {NAME: TINY + ASKED}, predictions=PREDICTIONS)
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
    made = draft_of(tmp_path, TINY + ASKED, predictions=PREDICTIONS)
    lesson, solution = ([cell.metadata for cell in _telling(skeleton(made, one))] for one in ("lesson", "solution"))
    assert lesson == [{"jupyter": {"source_hidden": True}}]
    assert solution == [{}]


def test_code_that_the_reader_should_see_stays_open_beside_what_tells(tmp_path: Path) -> None:
    taught = changed("assert three == 3\n", "assert three == 3\nfour = 4\n", ASKED)
    (cell,) = _telling(skeleton(draft_of(tmp_path, TINY + taught, predictions=PREDICTIONS), "lesson"))
    assert cell.metadata == {}


def _telling(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.source.startswith("reveal(")]


def test_a_folded_output_that_is_one_line_is_refused_since_that_line_is_shown(tmp_path: Path) -> None:
    one_line = changed('print("What came out:")\nprint(three)\n', "print(three)\n", ASKED)
    made = draft_of(tmp_path, TINY + one_line, predictions=PREDICTIONS)
    notebook = skeleton(made, "lesson")
    index = next(i for i, cell in enumerate(notebook.cells) if "predict" in cell.metadata.get("tags", []))
    notebook.cells[index].outputs = [new_output("stream", name="stdout", text="3\n")]
    told = [what for at, what in findings(notebook, made, "lesson") if at == index]
    assert "a folded output shows its first line, and this one has no other: print a line before it" in told
    notebook.cells[index].outputs = [new_output("stream", name="stdout", text="What came out:\n3\n")]
    assert not any("folded" in what for _, what in findings(notebook, made, "lesson"))
