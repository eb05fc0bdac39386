"""The explorer of the door: what it shows comes from a call."""

import itertools

import pytest

from hooklab.course.lesson04.explorer import CALLS, HOOKS, call_with, describe_call, draw_call

EVERY = list(itertools.product(HOOKS, CALLS, [False, True]))


def test_one_hook_in_all_doubles_what_is_passed_by_keyword():
    doubling = [one for one in EVERY if one[1] == "triple(input=x)" and call_with(*one).result == 12]
    assert doubling == [('return args, {"input": kwargs["input"] * 2}', "triple(input=x)", True)]


def test_only_the_hook_that_writes_in_place_changes_the_callers_tensor():
    assert {hook for hook, *rest in EVERY if call_with(hook, *rest).x != 2} == {"args[0].mul_(2)"}


@pytest.mark.parametrize(
    ("hook", "call", "with_kwargs", "forward", "said"),
    [
        ("return args[0] * 2", CALLS[0], False, "forward(4)", "The layer returns 12. Your own tensor still holds 2."),
        ("args[0].mul_(2)", CALLS[0], False, "forward(4)", "The layer returns 12. And your own tensor now holds 4."),
        ("return args * 2", CALLS[1], False, "forward(input=2)", "The layer returns 6. The hook has changed nothing."),
        ("return [args[0] * 2]", CALLS[0], False, "forward([4])", "TypeError: linear(): argument 'input'"),
        ("return args * 2", CALLS[0], True, "", "TypeError: Linear.forward() argument after ** must be a mapping"),
        ("return args[0] * 2", CALLS[0], True, "", "RuntimeError: forward pre-hook must return None or a tuple of"),
        ("return (args[0] * 2,), kwargs", CALLS[0], False, "", "NameError: name 'kwargs' is not defined."),
    ],
)
def test_what_forward_is_given_and_what_is_said(hook, call, with_kwargs, forward, said):
    came = call_with(hook, call, with_kwargs)
    assert came.forward == forward
    assert describe_call(came).startswith(said)


def test_a_tensor_that_was_written_into_is_shown_with_both_of_its_values():
    texts = [text.get_text() for text in draw_call(call_with("args[0].mul_(2)")).axes[0].texts]
    assert "x holds 2 → 4" in texts and "args = (2,)" in texts
