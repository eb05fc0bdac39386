"""A prediction in JupyterLab: the answer folded away, the guess made with the keyboard, the run, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_output

from hooklab.course.browser.jupyter import Server
from hooklab.course.browser.lab import DARK, LIGHT, Lab, Notebook
from hooklab.course.build.products import FOLDED, HIDDEN, METADATA
from tests.course.browser.contrast import too_faint
from tests.course.browser.reading import errors, says

SETUP = """
from hooklab import predict, reveal
from hooklab.course.exercises import predict as machinery
from hooklab.course.exercises.predict import Choice, ByNumber, prediction
long = "a text that is much longer than the others, so long that a button of one line could not hold it, " * 2
asked = [
    prediction(
        "1.a", "What is `1 + 1`?",
        Choice("`11`", lambda came: came == "11", "text is joined"),
        Choice("`2`", lambda came: came == 2, "numbers are added"),
        Choice(long, lambda came: came == long, "somebody has read the button"),
    ),
    ByNumber("1.b", "How much is it?", {2: "numbers are added"}, otherwise="not counted"),
]
machinery.predictions_of = lambda lesson: {one.id: one for one in asked}
machinery.guesses.clear()
"""
SETTING_UP, ASKING, CODE, MEANING, ASKING_NUMBER, MEANING_NUMBER = range(6)
STORED = [new_output("execute_result", {"text/plain": "2"}, execution_count=3)]


@pytest.fixture(scope="module")
def opened(lab: Lab, server: Server) -> Iterator[Notebook]:
    """A notebook like a lesson, opened once."""
    cells = [
        new_code_cell(SETUP),
        new_code_cell('predict("1.a")'),
        new_code_cell("two = 1 + 1\ntwo", metadata={"tags": ["predict"]} | FOLDED, outputs=STORED, execution_count=3),
        new_code_cell('reveal("1.a", two)\nassert two == 2', metadata=HIDDEN),
        new_code_cell('predict("1.b")'),
        new_code_cell('reveal("1.b", two)'),
    ]
    path = server.folder / "predictions.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=METADATA), path)
    notebook = lab.open(path.name)
    yield notebook
    notebook.close()


@pytest.fixture
def notebook(opened: Notebook) -> Iterator[Notebook]:
    """The same with its setup just run, so that no guess has been made."""
    run(opened, SETTING_UP)
    yield opened
    assert errors(opened.cells()) == []


def run(notebook: Notebook, index: int) -> Any:
    """Run a cell as a reader does, and return it."""
    notebook.show(index).locator(".cm-content").click()
    notebook.run_cell()
    return notebook.show(index)


def test_the_answer_is_folded_until_the_cell_runs(notebook: Notebook) -> None:
    cell = notebook.show(CODE)
    assert cell.locator(".jp-OutputPlaceholder").is_visible()
    assert cell.locator(".jp-OutputArea-output").count() == 0

    run(notebook, CODE)

    assert cell.locator(".jp-OutputPlaceholder").count() == 0
    assert cell.locator(".jp-OutputArea-output").inner_text() == "2"


@pytest.mark.parametrize(("choice", "says_so"), [(1, "✓ 1.a right"), (0, "✗ 1.a not this time")])
@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_a_choice_is_made_with_the_keyboard_and_held_against_what_came_out(
    notebook: Notebook, choice: int, says_so: str, key: str
) -> None:
    buttons = run(notebook, ASKING).locator(".hooklab-question button")
    buttons.first.focus()
    for _ in range(choice):
        notebook.page.keyboard.press("Tab")
    notebook.page.keyboard.press(key)
    buttons.nth(choice).get_by_text("◉").wait_for()

    run(notebook, CODE)
    notebook.run_cell()  # the next one, whose code is folded

    assert says_so in says(notebook.cells()[MEANING])
    folded = notebook.show(MEANING).locator(".jp-InputPlaceholder")
    assert 'reveal("1.a", two)' in folded.inner_text() and "assert" not in folded.inner_text()
    notebook.show(ASKING)
    assert buttons.nth(1).is_disabled()


def test_a_number_is_typed_and_held_against_what_came_out(notebook: Notebook) -> None:
    cell = run(notebook, ASKING_NUMBER)
    cell.locator("input").fill("3")
    cell.locator("input").press("Enter")
    cell.get_by_text("Your guess: 3").wait_for()

    run(notebook, CODE)
    run(notebook, MEANING_NUMBER)

    assert "✗ 1.b not this time: you said 3; what came out is 2" in says(notebook.cells()[MEANING_NUMBER])


@pytest.mark.parametrize("theme", [LIGHT, DARK], indirect=True)
def test_a_question_is_readable_in_both_themes_and_its_choices_whole(
    notebook: Notebook, theme: str, keep_picture: Callable[[Any, str], None]
) -> None:
    cell = run(notebook, ASKING)
    buttons = cell.locator(".hooklab-question button")
    buttons.nth(1).click()
    cell.get_by_text("Your guess").wait_for()

    keep_picture(cell, f"question-{theme.split()[-1].lower()}")
    assert too_faint(cell.locator(".hooklab-question")) == {}
    cut = "button => button.scrollWidth > button.clientWidth || button.scrollHeight > button.clientHeight"
    assert [buttons.nth(index).evaluate(cut) for index in range(buttons.count())] == [False, False, False]
