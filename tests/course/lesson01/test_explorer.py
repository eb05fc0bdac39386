"""The explorer of backward: its steps come from a run, and every position can be drawn."""

import itertools

import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_hex

from hooklab.course.lesson01.explorer import backward_steps, describe_step, draw_step, record_backward
from hooklab.course.plots import BACKWARD, CHANGED

SWITCHES = list(itertools.product([False, True], repeat=3))


def test_without_switches_only_the_leaf_keeps_a_gradient():
    last = record_backward()[-1]
    assert last.grads == {"x": (3.0, 5.0), "y": None, "s": None, "z": None}


def test_retain_grad_keeps_what_all_hooks_have_made_of_the_gradient():
    assert record_backward(retain=True, doubles=True)[-1].grads["y"] == (6.0, 10.0)


def test_the_hook_that_doubles_reaches_x_and_the_one_that_reads_does_not():
    assert record_backward(reads=True)[-1].grads["x"] == (3.0, 5.0)
    assert record_backward(doubles=True)[-1].grads["x"] == (6.0, 10.0)


def test_what_the_square_saved_is_gone_as_soon_as_its_node_has_run():
    steps = record_backward()
    assert [step.saved for step in steps] == [True, True, True, False, False, False]
    assert [step.where for step in steps] == ["", "z", "s", "y", "x", ""]


def test_only_a_node_sends_a_gradient_on_its_way():
    steps = record_backward(reads=True, doubles=True)
    backward = {number: len(arrows(draw_step(steps, number))) for number in range(len(steps))}
    hooks = [number for number, step in enumerate(steps) if step.is_hook]
    assert len(hooks) == 2
    assert [backward[number] for number in hooks] == [1, 1]  # it came in, and nothing goes out yet
    assert backward[hooks[-1] + 1] == 2


def arrows(figure):
    """The arrows of gradients in a figure."""
    patches = [text.arrow_patch for text in figure.axes[0].texts if getattr(text, "arrow_patch", None)]
    return [patch for patch in patches if to_hex(patch.get_edgecolor()).upper() in (BACKWARD, CHANGED)]


@pytest.mark.parametrize("switches", SWITCHES)
def test_every_step_can_be_drawn_and_said(switches):
    steps = record_backward(*switches)
    for number in range(len(steps)):
        assert draw_step(steps, number).axes[0].texts
        assert describe_step(steps, number).startswith(f"Step {number} of {len(steps) - 1}: ")


def test_the_explorer_follows_its_controls_and_leaves_no_figure():
    explorer = backward_steps()
    _, switches, steps, picture, sentence = explorer.children
    first = picture.value
    play, slider = steps.children
    slider.value = 3
    assert picture.value != first
    assert "Step 3 of 5" in sentence.value
    for box in switches.children:
        box.value = True
    assert (slider.max, play.max) == (7, 7)
    slider.value = 7
    for box in switches.children:
        box.value = False
    assert slider.value == slider.max == 5
    assert "Step 5 of 5" in sentence.value
    assert plt.get_fignums() == []
