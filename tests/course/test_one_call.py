"""The moving picture of one call: its values and memories come from a real call."""

import itertools

import pytest

from hooklab.course import one_call
from hooklab.course.explorers import png
from hooklab.course.one_call import BOXES, HOOKS, LAST, PRE_HOOKS, describe_call, record_call

EVERY = list(itertools.product(PRE_HOOKS, HOOKS, [False, True]))


def test_what_hooks_return_goes_on():
    record = record_call("return args[0] * 10", "return output + 1")
    assert record.values[-1] == [2, 20, 20, 60, 61, 61]
    assert record.memory == ["A", "B", "B", "C", "D", "D"]


def test_a_tuple_and_a_bare_value_do_the_same():
    assert record_call("return (args[0] * 10,)").values == record_call("return args[0] * 10").values


def test_a_pre_hook_that_writes_in_place_changes_the_callers_tensor():
    record = record_call("args[0].mul_(10)")
    assert [values[0] for values in record.values] == [2, 20, 20, 20, 20, 20]
    assert record.memory[:3] == ["A", "A", "A"]
    assert [record.is_changed(place, LAST) for place in range(6)] == [True, True, False, False, False, False]


def test_a_forward_hook_that_writes_in_place_changes_what_forward_has_made():
    record = record_call(hook="output.add_(1)")
    assert [values[3] for values in record.values[3:]] == [6, 7, 7]
    assert record.is_changed(3, LAST) and not record.is_changed(3, 3)


@pytest.mark.parametrize(("pre", "hook"), list(itertools.product(PRE_HOOKS, HOOKS)))
def test_wrapping_changes_no_value_and_no_memory(pre, hook):
    plain, wrapped = record_call(pre, hook), record_call(pre, hook, backward=True)
    assert (plain.values, plain.memory) == (wrapped.values, wrapped.memory)


def test_hooks_side_by_side_show_what_forward_makes_and_what_becomes_of_it():
    texts = [text.get_text() for text in one_call.draw_hooks(["return None", "output.add_(1)"]).axes[0].texts]
    assert [text for text in texts if text in BOXES] == ["forward makes", "output"] * 2
    assert [text for text in texts if text in one_call.STATIONS] == ["forward hook"] * 2
    assert [text for text in texts if text[:1].isdigit()] == ["6", "6", "6 → 7", "7"]
    assert [text for text in texts if text.startswith("memory")] == ["memory A"] * 4
    assert texts.count("the same memory") == 2


def test_what_shares_memory_stands_side_by_side():
    for chosen in EVERY:
        memory = record_call(*chosen).memory
        assert [letter for letter, _ in itertools.groupby(memory)] == sorted(set(memory))


def test_a_step_tells_who_else_has_changed():
    assert "The value at 'you pass' has changed as well" in describe_call(record_call("args[0].mul_(10)"), 1)
    assert "has changed" not in describe_call(record_call("return args[0] * 10"), 1)


def test_the_stored_positions_are_pictures():
    pictures = [png(figure) for figure in one_call.positions()]
    assert len(set(pictures)) == len(pictures) == 2
