"""The explorer of a module's border: its steps come from a run."""

import gc

from matplotlib.colors import to_hex

from hooklab.course.lesson05.explorer import describe_border, draw_border, record_border
from hooklab.course.plots import BACKWARD, CHANGED


def hooks(steps):
    return [(step.active, step.hook) for step in steps if step.hook]


def test_the_full_hook_runs_at_the_first_door_when_the_layers_own_gradients_are_there():
    steps = record_border()
    assert hooks(steps) == [("input border", "hook: grad_output = (1,)   grad_input = ([2, 3],)")]
    assert next(step for step in steps if step.hook).kept == {"weight": [1.0, 4.0], "bias": [1.0]}
    assert steps[-1].kept == {"x": [2.0, 3.0], "weight": [1.0, 4.0], "bias": [1.0]}


def test_the_pre_hook_runs_at_the_second_door_and_reaches_everything():
    steps = record_border(pre=True)
    assert [active for active, _ in hooks(steps)] == ["output border", "input border"]
    assert steps[-1].kept == {"x": [20.0, 30.0], "weight": [10.0, 40.0], "bias": [10.0]}


def test_what_the_full_hook_returns_reaches_only_what_is_before_the_layer():
    assert record_border(reverses=True)[-1].kept == {"x": [-2.0, -3.0], "weight": [1.0, 4.0], "bias": [1.0]}


def test_without_a_gradient_for_the_input_there_is_no_first_door_and_the_hook_runs_at_the_second():
    steps = record_border(asks=False, reverses=True)
    assert steps[-1].borders == (False, True)
    assert hooks(steps) == [("output border", "hook: grad_output = (1,)   grad_input = (None,),".removesuffix(","))]
    assert next(step for step in steps if step.hook).kept == {}


def test_hooks_that_come_after_the_call_find_no_door_and_never_run():
    steps = record_border(pre=True, reverses=True, late=True)
    assert hooks(steps) == [] and steps[-1].borders == (False, False)
    assert steps[-1].kept == {"x": [2.0, 3.0], "weight": [1.0, 4.0], "bias": [1.0]}
    assert describe_border(steps, len(steps) - 1).endswith("after backward(): no hook has run.")


def test_a_gradient_has_another_colour_behind_the_hook_that_changed_it():
    plain, changed = (arrows(record_border(pre=pre, reverses=pre)) for pre in (False, True))
    assert plain == [BACKWARD] * 4
    assert changed == [BACKWARD, CHANGED, BACKWARD, CHANGED]  # from y to x


def arrows(steps):
    """The colours of the gradients' arrows in the last step."""
    patches = [text.arrow_patch for text in draw_border(steps, len(steps) - 1).axes[0].texts if hasattr(text, "xyann")]
    colours = [to_hex(patch.get_edgecolor()).upper() for patch in patches]
    return [colour for colour in colours if colour in (BACKWARD, CHANGED)]


def test_a_recorded_run_leaves_no_layer_behind():
    record_border(pre=True)
    gc.collect()
    assert [one for one in gc.get_objects() if type(one).__name__ == "_Layer"] == []
