"""Links to a cell, in JupyterLab as the launcher starts it: a click opens the lesson and shows the cell.

A lesson is opened by one link of the start page, the deepest, and gets a second one, the first, once it is open.
That every link has its cell is tested in lesson00/test_index.py.
"""

from __future__ import annotations

import re

import pytest

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


@pytest.mark.parametrize("chosen", [[0], pytest.param([*range(1, 12)], marks=pytest.mark.long)])
def test_a_link_of_the_start_page_shows_its_cell_whether_the_lesson_is_open_or_not(lab: Lab, chosen: list[int]) -> None:
    start = lab.open(f"lessons/{START}")
    lab.page.wait_for_function(IS_LAID_OUT, polling=LOOK_EVERY)
    by_lesson: dict[str, list[tuple[str, str, str]]] = {}
    for link in (one for one in links(start) if one[1] != START):
        by_lesson.setdefault(link[1], []).append(link)
    assert len(by_lesson) == 12 and sum(map(len, by_lesson.values())) > 100
    for name, found in (list(by_lesson.items())[number] for number in chosen):
        text = (lab.server.folder / "lessons" / name).read_text(encoding="utf-8")
        found.sort(key=lambda link: text.index(f'"id": "{link[2]}"'))
        follow(lab, START, found[-1])
        follow(lab, START, found[0]).close()
        is_closed = "name => !window.jupyterapp.shell.currentWidget.context.path.endsWith(name)"
        lab.page.wait_for_function(is_closed, arg=name)
    start.close()


def test_a_link_from_one_lesson_to_a_cell_of_another_shows_it(lab: Lab) -> None:
    name = next(
        path.name
        for path in sorted((lab.server.folder / "lessons").glob("*.ipynb"))
        if path.name != START and LINK.search(path.read_text(encoding="utf-8"))
    )
    first = lab.open(f"lessons/{name}")
    lab.page.wait_for_function(IS_LAID_OUT, polling=LOOK_EVERY)
    follow(lab, name, links(first)[0]).close()
    lab.activate(f"lessons/{name}")
    first.close()
