"""The explorer of hooks in a row: its numbers come from a run."""

import pytest

from hooklab.course.lesson02.explorer import describe_hooks, run_hooks


@pytest.mark.parametrize(
    ("names", "x_grad"),
    [
        (("look", "forget"), [3, 5]),
        (("double", "double", "look"), [12, 20]),
        (("in place", "forget", "double"), [12, 20]),
    ],
)
def test_the_gradient_that_reaches_x_is_what_the_hooks_made_of_it(names, x_grad):
    seen = run_hooks(*names)
    assert seen.arrived.tolist() == [3, 5]
    assert seen.x_grad.tolist() == seen.y_grad.tolist() == seen.after[-1][1].tolist() == x_grad


def test_what_look_has_stored_changes_only_if_a_later_hook_writes_in_place():
    assert describe_hooks(run_hooks("double", "look", "double")) == "x.grad = [12, 20]. kept = [[6, 10]]."
    overwritten = "x.grad = [6, 10]. kept = [[6, 10]]. A hook has written into a tensor after look had stored it."
    assert describe_hooks(run_hooks("look", "in place")) == overwritten
    assert describe_hooks(run_hooks("in place", "look")) == "x.grad = [6, 10]. kept = [[6, 10]]."
    assert describe_hooks(run_hooks("double")) == "x.grad = [6, 10]."
