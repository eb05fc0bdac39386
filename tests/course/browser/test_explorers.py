"""The explorers in the page: every control with the keyboard and the mouse, both themes, nothing left behind.

They stand in a notebook made here, so that these tests do not depend on where the lessons show them. A small one with
every kind of control is used always, the lessons' own with `-m long`.
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
SETUP = """
import ipywidgets as widgets
import torch
from hooklab.course.explorers import inches, panel, stepper

torch.set_num_threads(1)

def every_kind():
    slider, play, _ = stepper(4)
    controls = {
        "step": slider,
        "weight": widgets.FloatSlider(value=0.5, min=0, max=1, step=0.05, description="weight"),
        "layer": widgets.Dropdown(options=["conv1", "relu1", "conv2"], description="layer"),
        "pre": widgets.Checkbox(False, description="a pre-hook", indent=False),
    }

    def say(**values):
        return " ".join(map(str, values.values()))

    def draw(**values):
        figure, axes = inches(4, 1)
        axes.text(0.1, 0.5, say(**values))
        return figure

    first, *others = controls.values()
    return panel(draw, say, controls, intro="Try this.", rows=[[play, first], others])
"""
LEFT = f"""
import gc
from matplotlib.figure import Figure
gc.collect()
figures = [one for one in gc.get_objects() if issubclass(type(one), Figure)]
modules = [one for one in gc.get_objects() if issubclass(type(one), torch.nn.Module)]
hooks = [hook for one in modules for name, table in vars(one).items() if "_hooks" in name for hook in table or ()]
print(len(figures), "figures,", len(hooks), "hooks on modules, global hooks:", {LEFT_BEHIND})
"""


@pytest.fixture(
    scope="module", params=[["every_kind"], pytest.param([*HOME], marks=pytest.mark.long)], ids=["made", "lessons"]
)
def names(request: pytest.FixtureRequest) -> list[str]:
    """The explorers of the notebook, in the order of its cells; the cell before them imports them."""
    of_these: list[str] = request.param
    return of_these


@pytest.fixture(scope="module")
def notebook(lab: Lab, server: Server, names: list[str]) -> Iterator[Notebook]:
    """A notebook with the explorers, and a cell that tells what they left behind; all of it has run."""
    imports = "".join(
        f"from hooklab.course.lesson{HOME[name]}.explorer import {name}\n" for name in names if name in HOME
    )
    made = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(code) for code in (SETUP + imports, *(f"{name}()" for name in names), LEFT)],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )
    nbformat.write(made, server.folder / "explorers.ipynb")
    notebook = lab.open("explorers.ipynb")
    try:
        notebook.run_all()
        yield notebook
    finally:
        notebook.close()


with_every_kind = pytest.mark.parametrize("names", [["every_kind"]], indirect=True, ids=["made"])


def explorer(notebook: Notebook, index: int) -> Explorer:
    """Return the explorer in this cell, as it is when the cell was just run."""
    assert errors([notebook.cells()[index]]) == []
    cell = notebook.show(index)
    old = cell.locator("img.widget-image").element_handle()
    cell.locator(".cm-content").click()
    notebook.run_cell()
    assert errors([notebook.cells()[index]]) == []
    old.wait_for_element_state("hidden")
    return Explorer(notebook.show(index))


def test_every_control_changes_what_is_shown_and_the_picture_keeps_its_size(
    notebook: Notebook, names: list[str]
) -> None:
    for index, name in enumerate(names, 1):
        use_every_control(explorer(notebook, index), name)


def use_every_control(explorer: Explorer, name: str) -> None:
    sizes = {explorer.size()}
    for slider in reversed(range(explorer.sliders.count())):
        first, last = explorer.picture_at(slider, "Home"), explorer.picture_at(slider, "End")
        assert first != last, name
        sizes.add(explorer.size())
        if slider:
            explorer.press(slider, "Home", *["ArrowRight"] * slider)  # two digits that are alike leave nothing to mix
    for change in explorer.other_changes(alone=True):
        before = explorer.state()
        change()
        assert explorer.state_after(before) != before, name
        sizes.add(explorer.size())
    assert len(sizes) == 1, name


@with_every_kind
def test_a_slider_follows_the_arrow_keys_and_the_mouse(notebook: Notebook) -> None:
    shown = explorer(notebook, 1)
    for slider in range(shown.sliders.count()):
        shown.settle()
        before = shown.picture()
        shown.press(slider, "ArrowRight")
        assert shown.picture_after(before) != before
        shown.press(slider, "ArrowLeft")
        assert shown.wait_for(before)

        last, first = shown.picture_at(slider, "End"), shown.picture_at(slider, "Home")
        shown.drag(slider, 1, 0, 1, 0, 0.5, 1)  # quickly: the picture is that of the last position
        shown.settle()
        assert shown.picture() == last
        shown.drag(slider, 0)
        assert shown.wait_for(first)


@with_every_kind
def test_the_play_button_goes_through_the_steps(notebook: Notebook) -> None:
    steps = explorer(notebook, 1)
    last, first = steps.picture_at(0, "End"), steps.picture_at(0, "Home")
    assert first != last
    steps.cell.locator(".widget-play button").first.click()
    assert steps.wait_for(last)


@pytest.mark.parametrize("theme", [LIGHT, DARK], indirect=True)
def test_the_explorers_texts_are_readable_in_both_themes(
    notebook: Notebook, names: list[str], theme: str, keep_picture: Callable[[Any, str], None]
) -> None:
    faint = {}
    for index, name in enumerate(names, 1):
        shown = Explorer(notebook.show(index))
        keep_picture(shown.cell, f"{name}-{theme.split()[-1].lower()}")
        faint[name] = too_faint(shown.output)
    assert not any(faint.values()), faint


def test_explorers_leave_no_figure_and_no_hook_behind(notebook: Notebook, names: list[str]) -> None:
    for index in range(1, len(names) + 1):
        shown = Explorer(notebook.show(index))
        before = shown.picture()
        shown.touch()
        shown.picture_after(before)
    notebook.show(len(names) + 1).locator(".cm-content").click()
    notebook.run_cell()
    assert notebook.cells()[len(names) + 1]["outputs"][0]["text"] == "0 figures, 0 hooks on modules, global hooks: []\n"
