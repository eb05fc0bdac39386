"""What lesson 11's figure and its explorer show, and the helpers of its cells."""

import itertools

import matplotlib.pyplot as plt
import pytest
import torch
from torch import nn

from hooklab.course.lesson11 import figures
from hooklab.course.lesson11.explorer import draw, exchanges
from hooklab.course.lesson11.helpers import load, replace_weight, saved_bytes, still_fires


def test_the_graphs_are_drawn_for_what_was_seen_and_the_tables_lead_to_one_hook_or_to_two():
    (axes,) = figures.which_graph([False, True, False, True]).axes
    texts = [text.get_text() for text in axes.texts]
    assert texts.count("a graph\nwithout it") == 1 and texts.count("a new graph\nwith the hook") == 2
    shared, own = figures.copied_hooks().axes
    assert {"your\ncounter", "copied\ncounter"} <= {text.get_text() for text in own.texts}
    assert "hook" in {text.get_text() for text in shared.texts}
    plt.close("all")


def test_a_hook_on_a_weight_fires_as_long_as_the_weight_is_the_same_object():
    assert still_fires(load)
    assert not still_fires(replace_weight)


def test_a_tensor_on_a_module_is_in_its_file():
    model = nn.Linear(2, 2)
    before = saved_bytes(model)
    model.seen = torch.zeros(1000)
    assert saved_bytes(model) > before + 4000


@pytest.mark.parametrize("number", [1, 2, 4])
def test_what_has_not_arrived_is_what_the_memory_holds_and_without_one_it_is_lost(number):
    remembering, without = exchanges(number, remembers=True), exchanges(number, remembers=False)
    for before, after in itertools.pairwise(remembering):
        assert torch.equal(before.owed, after.kept)
        assert int((after.sent != 0).sum()) == number
    assert not any(step.kept.any() for step in without)
    assert without[-1].never > remembering[-1].never
    assert without[-1].owed.abs().sum() > 2 * remembering[-1].owed.abs().sum()


def test_a_number_that_turns_its_sign_need_not_be_sent_and_owes_nothing():
    last = exchanges(2, remembers=True)[-1]
    assert not last.ever[7] and last.owed[7] == 0 and last.never == 1


def test_the_picture_has_the_numbers_of_its_step():
    without, remembering = exchanges(2, False)[5], exchanges(2, True)[5]
    above, above_so_far, below, below_so_far = draw(without, remembering, 6).axes
    kept, gradient, sent = below.containers
    assert [bar.get_height() for bar in kept] == remembering.kept.tolist()
    assert [bar.get_height() for bar in gradient] == remembering.gradient.tolist()
    assert [bar.get_height() for bar in sent] == [16, -9]
    assert [bar.get_height() for bar in below_so_far.containers[1]] == remembering.arrived.tolist()
    assert not any(bar.get_height() for bar in above.containers[0]) and above_so_far.get_title("left") == "all 6 steps"
    for axes in (above, below):
        low, high = axes.get_ylim()
        for number in (1, 2, 4):
            for step in exchanges(number, True):
                assert low < (step.kept + step.gradient).min() and (step.kept + step.gradient).max() < high
