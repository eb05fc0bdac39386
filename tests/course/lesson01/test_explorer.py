"""The explorer of backward: its steps come from a run."""

from matplotlib.colors import to_hex

from hooklab.course.lesson01.explorer import draw_step, record_backward
from hooklab.course.plots import BACKWARD, CHANGED


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
