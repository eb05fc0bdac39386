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
FIGURE = '# %% tags=["figure"]\nplt.show()\n\n'
MEANING = '# %%\nreveal("9.a", three)\n'


def told(root: Path, old: str, new: str, predictions: str = PREDICTIONS) -> list[str]:
    return problems_of(root, TINY + changed(old, new, ASKED), predictions=predictions)


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
        (MEANING, FIGURE + MEANING, " cell 9 ", "a prediction is"),
        (MEANING, MEANING + "four = 4\n", " cell 10 ", "only asserts may follow reveal(…)"),
        (', "On this page, 1 + 2 is 3."', "", " cell 10 ", "an assert below reveal(…) without a sentence"),
        ('2 is 3."\n', '2 is 3."\n\n' + FIGURE, " cell 10 ", "a picture right below reveal(…) is in sight"),
    ],
)
def test_a_faulty_prediction_is_refused(tmp_path: Path, old: str, new: str, where: str, said: str) -> None:
    shown = told(tmp_path, old, new)

    assert any(where in problem and said in problem for problem in shown), shown


@pytest.mark.parametrize(
    ("source", "predictions", "said"),
    [
        (ASKED, PREDICTIONS, ""),
        (ASKED, "", f"prediction 9.a is 1 times on the page and 0 times in {FILE}"),
        (ASKED, PREDICTIONS + 'more = number("9.b", "?", {}, otherwise="")\n', "9.b is 0 times on the page"),
        (ASKED, PREDICTIONS + PREDICTIONS, f"prediction 9.a is 1 times on the page and 2 times in {FILE}"),
        (ASKED.replace(QUESTION, QUESTION * 2), PREDICTIONS, "9.a is 2 times on the page and 1 times in"),
    ],
)
def test_the_lesson_and_its_predictions_hold_the_same(tmp_path: Path, source: str, predictions: str, said: str) -> None:
    problems = problems_of(tmp_path, TINY + source, predictions=predictions)

    assert any(said in problem for problem in problems) if said else problems == []


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


def _telling(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.source.startswith("reveal(")]


@pytest.mark.parametrize("tag", ["predict", "folded"])
def test_a_folded_output_that_begins_with_anything_telling_is_refused(tmp_path: Path, tag: str) -> None:
    """JupyterLab shows the first line of a folded output."""
    later = '\n# %%\nprint("later")\n\n# %% tags=["folded"]\nprint("What came out:")\nprint(4)\n'
    made = draft_of(tmp_path, TINY + ASKED + later, predictions=PREDICTIONS)
    notebook = skeleton(made, "lesson")
    index = next(i for i, cell in enumerate(notebook.cells) if tag in cell.metadata.get("tags", []))
    assert notebook.cells[index].metadata["jupyter"] == {"outputs_hidden": True}

    def refused() -> bool:
        return any(at == index and "first print" in what for at, what in findings(notebook, made, "lesson"))

    said = []
    for text in ("3\n", "What came out: 3\n", "What came out:\n3\n"):
        notebook.cells[index].outputs = [new_output("stream", name="stdout", text=text)]
        said.append(refused())

    assert said == [True, True, False]
    notebook.cells[index].outputs = [new_output("display_data", {"text/plain": "a figure"})]
    assert refused()


def test_what_fits_none_of_the_choices_is_refused(tmp_path: Path) -> None:
    made = draft_of(tmp_path, TINY + ASKED, predictions=PREDICTIONS)
    notebook = skeleton(made, "lesson")
    (cell,) = _telling(notebook)
    said = {}
    for text in ("○ 9.a no guess: none was made", "○ 9.a not scored: the result is now 4"):
        cell.outputs = [new_output("display_data", {"text/plain": text})]
        said[text] = any("exactly one choice" in what for _, what in findings(notebook, made, "lesson"))

    assert list(said.values()) == [False, True]
