"""The figures of lesson 2 draw what the tensors and norms they are given say."""

import torch
from matplotlib.colors import same_color

from hooklab.course import plots
from hooklab.course.lesson02.figures import hook_chain, norms_per_layer


def box_colours(figure):
    return [box.get_edgecolor() for box in figure.axes[0].patches if hasattr(box, "get_boxstyle")]


def words(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_a_hook_that_changed_the_gradient_is_purple_and_one_that_looked_is_grey():
    arrived = torch.tensor([3.0, 5.0])
    figure = hook_chain(arrived, {"look": arrived, "double": 2 * arrived}, kept=2 * arrived, owner="y")
    look, double = box_colours(figure)
    assert same_color(look, plots.REST)
    assert same_color(double, plots.CHANGED)


def test_each_arrow_of_a_chain_carries_the_gradient_at_that_place():
    arrived = torch.tensor([3.0, 5.0])
    after = {"double": 2 * arrived, "add_one": 2 * arrived + 1}
    figure = hook_chain(arrived, after, kept=after["add_one"], owner="y")
    assert {"[3, 5]", "[6, 10]", "[7, 11] goes on", "y.grad = [7, 11]"} <= set(words(figure))


def test_hooks_of_a_chain_stand_from_right_to_left_in_the_order_of_running():
    one = torch.ones(1)
    figure = hook_chain(one, {"first": one, "second": one, "third": one}, kept=one, owner="y")
    places = {text.get_text(): text.get_position()[0] for text in figure.axes[0].texts}
    assert places["first"] > places["second"] > places["third"]


def test_norms_get_one_panel_for_each_layer_with_both_trainings():
    figure = norms_per_layer({"a": [1.0, 2.0], "b": [3.0, 0.0]}, {"a": [0.5, 0.5], "b": [0.5, 0.5]})
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["a", "b"]
    assert [line.get_ydata().tolist() for line in figure.axes[1].lines] == [[3.0, 0.0], [0.5, 0.5]]


def test_norms_of_a_single_layer_that_are_all_zero_can_be_drawn():
    figure = norms_per_layer({"a": [0.0, 0.0]}, {"a": [0.0, 0.0]})
    figure.canvas.draw()
    assert len(figure.axes) == 1
