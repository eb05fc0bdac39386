"""Lessons in JupyterLab: run all of one, answer an exercise wrongly and rightly; and the README's picture."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import nbformat
import pytest
from matplotlib.image import imread

from hooklab.course import plots
from hooklab.course.browser.lab import DARK, HEIGHT, WIDTH, Lab, Notebook
from hooklab.course.build.sources import BEGIN, END, STUB
from tests.course.browser.conftest import ROOT
from tests.course.browser.contrast import too_faint
from tests.course.browser.explorer import Explorer
from tests.course.browser.reading import errors, has_picture, never_run, says

FIRST = "01_intermediate_grad"
NAMES = sorted(path.stem for path in (ROOT / "lessons").glob("*.ipynb"))
# nbval runs all of them; here one is opened, and the others with `-m long`
LESSONS = [pytest.param(one, marks=[] if one == FIRST else pytest.mark.long) for one in NAMES]
TRIES = 3
# The README's picture shows the explorer with the gradient passing y, and the cells above it.
STEPS, CELLS_BEFORE = 3, 5
TALL, MARGIN = 2000, 32  # pixels: enough for all that it shows; under the explorer, for the status bar


@dataclass
class Run:
    """A notebook that is open in the browser, and its cells as they were after Run All."""

    name: str
    notebook: Notebook
    cells: list[dict[str, Any]]

    def index(self, tag: str) -> list[int]:
        return [index for index, cell in enumerate(self.cells) if tag in cell["metadata"].get("tags", [])]


@pytest.fixture(scope="module", params=LESSONS)
def lesson(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Run]:
    notebook = lab.open(f"lessons/{request.param}.ipynb")
    try:
        notebook.run_all()
        yield Run(request.param, notebook, notebook.cells())
    finally:
        notebook.close()


def test_a_lesson_runs_to_its_end_with_its_figures_and_no_exercise_attempted(lesson: Run) -> None:
    assert errors(lesson.cells) == []
    assert never_run(lesson.cells) == []
    checks = [lesson.cells[index] for index in lesson.index("check")]
    assert checks
    assert [says(cell) for cell in checks if "not attempted" not in says(cell)] == []
    figures = [lesson.cells[index] for index in lesson.index("figure")]
    assert [cell["source"].split("\n", 1)[0] for cell in figures if not has_picture(cell)] == []


def test_a_lessons_explorers_answer(lesson: Run) -> None:
    for index in lesson.index("explorer"):
        explorer = Explorer(lesson.notebook.show(index))
        before = explorer.picture()
        explorer.touch()
        assert explorer.picture_after(before) != before


@pytest.mark.parametrize("lesson", [FIRST], indirect=True)
def test_the_readmes_picture_is_as_wide_as_the_tab_and_shows_a_gradient_on_its_way(
    lesson: Run, lab: Lab, keep_picture: Callable[[Any, str], None]
) -> None:
    """The picture itself is .github/lesson.png, saved by `keep_picture`."""
    lab.close_launcher()
    page, last = lab.page, lesson.index("explorer")[0]
    page.set_viewport_size({"width": WIDTH, "height": TALL})
    explorer = lesson.notebook.show(last)
    explorer.locator("img.widget-image").wait_for()
    explorer.locator("[role=slider]").press("Home")
    for _ in range(STEPS):
        explorer.locator("[role=slider]").press("ArrowRight")
    explorer.get_by_text(f"Step {STEPS} of").wait_for()
    top = lesson.notebook.show(max(0, last - CELLS_BEFORE))
    box = explorer.bounding_box()
    assert box
    page.set_viewport_size({"width": WIDTH, "height": round(box["y"] + box["height"]) + MARGIN})
    top.evaluate("cell => cell.scrollIntoView()")
    keep_picture(page, "lesson")
    picture = imread(io.BytesIO(page.screenshot(animations="disabled")), format="png")
    page.set_viewport_size({"width": WIDTH, "height": HEIGHT})

    height, width, _ = picture.shape
    assert width == WIDTH
    assert 500 < height < 1600
    backward = [int(plots.BACKWARD[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    lower_half = picture[height // 2 :, :, :3]
    assert (abs(lower_half - backward) < 0.01).all(axis=2).sum() > 500


def test_a_wrong_answer_is_told_not_yet_and_a_right_one_correct(lesson: Run) -> None:
    answer = lesson.index("solution")[0]
    check = next(index for index in lesson.index("check") if index > answer)
    stub = lesson.cells[answer]["source"]

    answer_with(lesson.notebook, answer, stub.replace(STUB[1], "return None"))  # a class has several
    assert "not yet" in says(lesson.notebook.cells()[check])

    answer_with(lesson.notebook, answer, right_answer(lesson.name, lesson.cells[answer]["id"]))
    assert "correct" in says(lesson.notebook.cells()[check])
    assert errors(lesson.notebook.cells()) == []


@pytest.mark.parametrize("lesson", [FIRST], indirect=True)
@pytest.mark.parametrize("theme", [DARK], indirect=True)
def test_a_lessons_text_and_outcomes_are_readable_in_the_dark_theme(
    lesson: Run, theme: str, keep_picture: Callable[[Any, str], None]
) -> None:
    for index in [0, *lesson.index("exercise"), *lesson.index("check"), *lesson.index("recap"), *lesson.index("quiz")]:
        cell = lesson.notebook.show(index)
        assert too_faint(cell.locator(".jp-RenderedHTMLCommon").first) == {}
    lesson.notebook.show(lesson.index("exercise")[0])
    keep_picture(lesson.notebook.page, "lesson-dark")


def answer_with(notebook: Notebook, index: int, source: str) -> None:
    """Put an answer in a cell's place, as a paste does, and run the cell and the check beneath it."""
    editor = notebook.show(index).locator(".cm-content")
    for _ in range(TRIES):  # a page that is still being laid out may take the focus away again
        editor.click()
        editor.press("ControlOrMeta+a")
        notebook.page.keyboard.insert_text(source)
        if notebook.cells()[index]["source"] == source:
            break
    assert notebook.cells()[index]["source"] == source
    notebook.run_cell()
    notebook.run_cell()


def right_answer(name: str, cell_id: str) -> str:
    solved = nbformat.read(ROOT / "solutions" / f"{name}.ipynb", as_version=4)
    source = next(cell.source for cell in solved.cells if cell.id == cell_id)
    return "\n".join(line for line in source.split("\n") if line.strip() not in (BEGIN, END))
