"""The explorers in the page: every control with the keyboard and the mouse, both themes, nothing left behind.

They stand in a notebook made here, so that these tests do not depend on where the lessons show them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import nbformat
import pytest

from hooklab.course.browser.jupyter import Server
from hooklab.course.browser.lab import DARK, LIGHT, Lab, Notebook
from hooklab.course.kernels import LEFT_BEHIND
from tests.course.browser.contrast import too_faint
from tests.course.browser.explorer import Explorer
from tests.course.browser.reading import errors

HOME = {"backward_steps": "01", "call_order": "06", "feature_maps": "03", "border": "05", "mixing": "07"}
HOME |= {"what_it_looks_at": "09", "heads_at_work": "09", "going_wrong": "08", "over_time": "10", "what_is_owed": "11"}
HOME |= {"hooks_in_a_row": "02", "at_the_door": "04"}
NAMES = list(HOME)
SETUP = "import torch\n"
SETUP += "".join(f"from hooklab.course.lesson{lesson}.explorer import {name}\n" for name, lesson in HOME.items())
SETUP += "torch.set_num_threads(1)"
LEFT = f"""
import gc
from matplotlib.figure import Figure
gc.collect()
figures = [one for one in gc.get_objects() if issubclass(type(one), Figure)]
modules = [one for one in gc.get_objects() if issubclass(type(one), torch.nn.Module)]
hooks = [hook for one in modules for name, table in vars(one).items() if "_hooks" in name for hook in table or ()]
print(len(figures), "figures,", len(hooks), "hooks on modules, global hooks:", {LEFT_BEHIND})
"""
CELLS = [SETUP, *(f"{name}()" for name in NAMES), LEFT]


@pytest.fixture(scope="module")
def notebook(lab: Lab, server: Server) -> Iterator[Notebook]:
    """A notebook with the explorers, and a cell that tells what they left behind; all of it has run."""
    made = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(code) for code in CELLS],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )
    nbformat.write(made, server.folder / "explorers.ipynb")
    notebook = lab.open("explorers.ipynb")
    try:
        notebook.run_all()
        yield notebook
    finally:
        notebook.close()


@pytest.fixture
def explorer(notebook: Notebook, name: str) -> Explorer:
    """The explorer of this name, as it is when its cell was just run."""
    index = NAMES.index(name) + 1
    assert errors([notebook.cells()[index]]) == []
    cell = notebook.show(index)
    old = cell.locator("img.widget-image").element_handle()
    cell.locator(".cm-content").click()
    notebook.run_cell()
    assert errors([notebook.cells()[index]]) == []
    old.wait_for_element_state("hidden")
    return Explorer(notebook.show(index))


@pytest.mark.parametrize("name", NAMES)
def test_every_control_changes_what_is_shown_and_the_picture_keeps_its_size(explorer: Explorer) -> None:
    sizes = {explorer.size()}
    for slider in reversed(range(explorer.sliders.count())):
        first, last = explorer.picture_at(slider, "Home"), explorer.picture_at(slider, "End")
        assert first != last
        sizes.add(explorer.size())
        if slider:
            explorer.press(slider, "Home", *["ArrowRight"] * slider)  # two digits that are alike leave nothing to mix
    for change in explorer.other_changes(alone=True):
        before = explorer.state()
        change()
        assert explorer.state_after(before) != before
        sizes.add(explorer.size())
    assert len(sizes) == 1


@pytest.mark.parametrize("name", ["mixing"])
def test_a_slider_follows_the_arrow_keys_and_the_mouse(explorer: Explorer) -> None:
    for slider in range(explorer.sliders.count()):
        before = explorer.picture()
        explorer.press(slider, "ArrowRight")
        assert explorer.picture_after(before) != before
        explorer.press(slider, "ArrowLeft")
        assert explorer.wait_for(before)

        last, first = explorer.picture_at(slider, "End"), explorer.picture_at(slider, "Home")
        explorer.drag(slider, 1, 0, 1, 0, 0.5, 1)  # quickly: the picture is that of the last position
        explorer.settle()
        assert explorer.picture() == last
        explorer.drag(slider, 0)
        assert explorer.wait_for(first)
        explorer.press(slider, *["ArrowRight"] * slider)


@pytest.mark.parametrize("name", ["backward_steps"])
def test_the_play_button_goes_through_the_steps(explorer: Explorer) -> None:
    last, first = explorer.picture_at(0, "End"), explorer.picture_at(0, "Home")
    assert first != last
    explorer.cell.locator(".widget-play button").first.click()
    assert explorer.wait_for(last)


@pytest.mark.parametrize("theme", [LIGHT, DARK], indirect=True)
def test_the_explorers_texts_are_readable_in_both_themes(
    notebook: Notebook, theme: str, keep_picture: Callable[[Any, str], None]
) -> None:
    faint = {}
    for index, name in enumerate(NAMES, 1):
        explorer = Explorer(notebook.show(index))
        keep_picture(explorer.cell, f"{name}-{theme.split()[-1].lower()}")
        faint[name] = too_faint(explorer.output)
    assert not any(faint.values()), faint


def test_explorers_leave_no_figure_and_no_hook_behind(notebook: Notebook) -> None:
    for index in range(1, len(NAMES) + 1):
        explorer = Explorer(notebook.show(index))
        before = explorer.picture()
        explorer.touch()
        explorer.picture_after(before)
    notebook.show(len(CELLS) - 1).locator(".cm-content").click()
    notebook.run_cell()
    assert notebook.cells()[len(CELLS) - 1]["outputs"][0]["text"] == "0 figures, 0 hooks on modules, global hooks: []\n"
