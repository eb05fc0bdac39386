"""The explorer of who runs when: its moments come from a run."""

import torch

from hooklab.course.lesson06.explorer import CHOICES, describe_order, record_order

ALL = dict.fromkeys(CHOICES, True)


def hooks_of(**chosen):
    return [moment.text for moment in record_order(**chosen) if moment.kind == "hook"]


def test_forward_hooks_run_global_first_then_prepended_then_in_order():
    assert hooks_of(pre=True, hook=True, prepended=True, everywhere=True) == [
        "pre-hook",
        "global forward hook",
        "forward hook, prepend",
        "forward hook",
    ]


def test_backward_hooks_run_after_the_gradient_has_left_the_second_module():
    texts = [moment.text for moment in record_order(backward_pre=True, backward=True) if moment.is_backward]
    assert texts == [
        "net gets a gradient",
        "second gets a gradient",
        "full backward pre-hook",
        "full backward hook",
        "x.grad is there",
    ]


def test_an_exception_skips_all_but_the_pre_hook_and_the_always_called():
    assert hooks_of(**ALL) == ["pre-hook", "forward hook, always_call"]
    assert "skipped everything else" in describe_order(record_order(**ALL))


def test_no_global_hook_is_left():
    record_order(**ALL)
    assert not torch.nn.modules.module._global_forward_hooks
