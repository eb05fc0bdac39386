"""The index of symptoms in JupyterLab: a click on a link opens the lesson and shows the cell that answers."""

from __future__ import annotations

import re

from hooklab.course.browser.lab import LOOK_EVERY, Lab

START = "00_start_here.ipynb"
# Whether the open notebook is the linked one, ready, and at least a part of the cell is on the screen.
SEES = """([file, id]) => {
    const open = window.jupyterapp.shell.currentWidget;
    if (!open?.context?.path.endsWith(file) || !open.context.isReady) return false;
    const cell = open.content.widgets.find(widget => widget.model.id === id)?.node.getBoundingClientRect();
    const window_ = open.content.node.getBoundingClientRect();
    return !!cell && cell.height > 0 && cell.top < window_.bottom - 20 && cell.bottom > window_.top + 20;
}"""


def click(lab: Lab, target: str) -> None:
    """Click a link of the start page, and wait until the browser shows its cell, and still shows it afterwards."""
    file, id = re.fullmatch(r"(.+\.ipynb)#cell-id=(.+)", target).groups()
    lab.activate(f"lessons/{START}")
    link = lab.page.locator(f".jp-NotebookPanel:not(.lm-mod-hidden) a[href*='{file}'][href$='cell-id={id}']").first
    link.click()
    lab.page.wait_for_function(SEES, arg=[file, id], polling=LOOK_EVERY)
    lab.page.wait_for_timeout(LOOK_EVERY)
    assert lab.page.evaluate(SEES, [file, id]), target


def test_every_link_of_the_start_page_shows_its_cell_whether_the_lesson_is_open_or_not(lab: Lab) -> None:
    start = lab.open(f"lessons/{START}")
    text = "\n".join("".join(cell["source"]) for cell in start.cells())
    targets = list(dict.fromkeys(re.findall(r"\]\((\d\d_\w+\.ipynb#cell-id=[\w-]+)\)", text)))
    assert len(targets) > 100
    closed = {target.split("#")[0]: target for target in targets}  # one of each lesson
    try:
        for target in [*closed.values(), *targets]:
            click(lab, target)
    finally:
        lab.close_all()
