"""The explorer of who runs when: its moments come from a run, and every choice can be drawn."""

import itertools

import matplotlib.pyplot as plt
import pytest
import torch

from hooklab.course.lesson06.explorer import CHOICES, call_order, describe_order, draw_order, record_order

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


@pytest.mark.parametrize("values", list(itertools.product([False, True], repeat=3)))
def test_every_choice_can_be_drawn(values):
    pre, backward, raises = values
    moments = record_order(pre=pre, backward=backward, backward_pre=backward, raises=raises)
    assert len(draw_order(moments).axes[0].texts) >= len(moments)


@pytest.mark.parametrize("chosen", [{**ALL, "raises": False}, {"backward_pre": True, "backward": True}])
def test_the_longest_columns_stay_inside_the_picture(chosen):
    moments = record_order(**chosen)
    axes = draw_order(moments).axes[0]
    low, high = axes.get_ylim()
    named = [text for text in axes.texts if text.get_text()]
    assert len(named) == 4 + len(moments)  # the headings of both columns, and what the net is
    assert all(low < text.get_position()[1] < high for text in named)


def test_the_explorer_follows_its_boxes_and_leaves_no_figure():
    explorer = call_order()
    _, first_row, second_row, picture, sentence = explorer.children
    before = picture.value
    first_row.children[0].value = True
    assert picture.value != before
    assert "pre-hook; forward hook" in sentence.value
    second_row.children[3].value = True
    assert "skipped" in sentence.value
    assert plt.get_fignums() == []
