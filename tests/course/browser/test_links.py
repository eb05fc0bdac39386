"""Links to a cell, in JupyterLab as the launcher starts it: a click opens the lesson and shows the cell.

With `-m long` every link of the start page is clicked, into a lesson that is closed and into one that is open.
"""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Error as PlaywrightError

from hooklab.course.browser.lab import LOOK_EVERY, SECONDS_TO_OPEN, Lab, Notebook

START = "00_start_here.ipynb"
LINK = re.compile(r"\]\(((\d\d_\w+\.ipynb)#cell-id=([\w-]+))\)")
# The linked notebook is open, and at least a part of the cell is on the screen.
SEES = """([file, id]) => {
    const { context, content } = window.jupyterapp.shell.currentWidget;
    if (context?.path !== `lessons/${file}` || !context.isReady) return false;
    const cell = content.widgets.find(widget => widget.model.id === id).node.getBoundingClientRect();
    const screen = content.node.getBoundingClientRect();
    return cell.height > 0 && cell.top < screen.bottom - 20 && cell.bottom > screen.top + 20;
}"""
PATH = "() => window.jupyterapp.shell.currentWidget?.context?.path"
IS_LAID_OUT = "() => window.jupyterapp.shell.currentWidget.content.widgets.every(cell => !cell.isPlaceholder())"


def links(notebook: Notebook) -> list[tuple[str, str, str]]:
    """Each link to a cell in a notebook: the whole, the file and the cell's id."""
    return list(dict.fromkeys(LINK.findall("\n".join("".join(cell["source"]) for cell in notebook.cells()))))


def follow(lab: Lab, start: str, link: tuple[str, str, str]) -> Notebook:
    """Click a link, and see its cell at once, and still when the lesson is laid out."""
    target, file, id = link
    lab.activate(f"lessons/{start}")
    lab.page.locator(f".jp-NotebookPanel:not(.lm-mod-hidden) a[href*='/{file}'][href$='#cell-id={id}']").first.click()
    lab.page.wait_for_function(SEES, arg=[file, id], polling=LOOK_EVERY, timeout=1000 * SECONDS_TO_OPEN)
    lab.page.wait_for_function(IS_LAID_OUT, polling=LOOK_EVERY)
    lab.page.wait_for_timeout(2 * LOOK_EVERY)
    assert lab.page.evaluate(SEES, [file, id]), target
    return Notebook(lab.page)


def close(notebook: Notebook) -> None:
    path = notebook.page.evaluate(PATH)
    notebook.close()
    notebook.page.wait_for_function(f"path => ({PATH})() !== path", arg=path, polling=LOOK_EVERY)


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)], ids=["few", "every"])
def test_a_link_of_the_start_page_shows_its_cell_whether_the_lesson_is_open_or_not(lab: Lab, every: bool) -> None:
    """Of one lesson the deepest link opens it, the first one finds it open; or each link of all lessons does both."""
    start = lab.open(f"lessons/{START}")
    lab.page.wait_for_function(IS_LAID_OUT, polling=LOOK_EVERY)
    found = [link for link in links(start) if link[1] != START]
    assert len({file for _, file, _ in found}) == 12 and len(found) > 100
    if every:
        pairs = [(link, link) for link in found]
    else:
        text = (lab.server.folder / "lessons" / found[0][1]).read_text(encoding="utf-8")
        first, *_, last = sorted((one for one in found if one[1] == found[0][1]), key=lambda one: text.index(one[2]))
        pairs = [(last, first)]
    missed = []
    for closed, opened in pairs:
        try:
            follow(lab, START, closed)
        except PlaywrightError:
            missed.append(closed)
        close(follow(lab, START, opened))
    close(start)
    assert len(missed) <= len(pairs) // 100, missed  # on a busy machine, JupyterLab forgets a cell now and then


def test_a_link_from_one_lesson_to_a_cell_of_another_shows_it(lab: Lab) -> None:
    # The last lesson that has a link: one that was open before opens again where it was left, and on a busy machine
    # JupyterLab has then failed to lay it out within a minute.
    name = max(
        path.name
        for path in (lab.server.folder / "lessons").glob("*.ipynb")
        if LINK.search(path.read_text(encoding="utf-8"))
    )
    first = lab.open(f"lessons/{name}")
    lab.page.wait_for_function(IS_LAID_OUT, polling=LOOK_EVERY)
    close(follow(lab, name, links(first)[0]))
    lab.activate(f"lessons/{name}")
    close(first)
