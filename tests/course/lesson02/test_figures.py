"""Lesson 2's figures draw what the tensors and norms they are given say; its training takes hooks and lets them go."""

import pytest
import torch
from matplotlib.colors import same_color

from hooklab.course import plots
from hooklab.course.lesson02 import training
from hooklab.course.lesson02.figures import hook_chain, norms_over_steps


def box_colours(figure):
    return [box.get_edgecolor() for box in figure.axes[0].patches if hasattr(box, "get_boxstyle")]


def words(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_a_hook_that_changed_the_gradient_is_purple_and_one_that_looked_is_grey():
    arrived = torch.tensor([3.0, 5.0])
    figure = hook_chain(arrived, [("look", arrived), ("double", 2 * arrived)], kept=2 * arrived, owner="y")
    look, double = box_colours(figure)
    assert same_color(look, plots.REST)
    assert same_color(double, plots.CHANGED)
    assert {"reads", "changes it", "retain_grad()"} <= set(words(figure))


def test_each_arrow_of_a_chain_carries_the_gradient_at_that_place():
    arrived = torch.tensor([3.0, 5.0])
    after = [("double", 2 * arrived), ("add_one", 2 * arrived + 1)]
    figure = hook_chain(arrived, after, kept=2 * arrived + 1, owner="y")
    assert {"[3, 5]", "[6, 10]", "[7, 11] goes on", "y.grad = [7, 11]"} <= set(words(figure))


def test_each_training_has_its_result_at_the_end_of_its_line():
    trainings = {
        name: {"norms": [1.0, 0.0, 2.0], "neurons": [32, 0, 1], "right": right}
        for name, right in (("a", 0.1), ("b", 0.9), ("c", 1.0))
    }
    figure = norms_over_steps(trainings, ceiling=0.5, quiet=0.1)
    axes, below = figure.axes
    assert [list(line.get_ydata()) for line in below.lines] == [[32, 0, 1]] * 3
    assert words(figure)[:3] == ["a:\n10% right", "b:\n90% right", "c:\n100% right"]
    assert [line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == "--"] == [0.5]
    assert [list(line.get_ydata()) for line in axes.lines if line.get_linestyle() == "-"] == [[1.0, 0.0, 2.0]] * 3


def test_a_clipped_training_says_how_much_was_cut():
    training = {"norms": [1.0], "neurons": [32], "right": 0.9, "cut": 0.5}
    figure = norms_over_steps({"a": training}, ceiling=0.5, quiet=0.1)
    assert words(figure)[0] == "a:\n90% right, 50% cut"


def test_a_training_calls_each_register_with_every_parameter_and_removes_its_hooks():
    seen, handles = [], []

    def register(name, parameter):
        seen.append(name)
        handles.append(parameter.register_hook(lambda grad: None))
        return handles[-1]

    network, right = training.run(0.03, register)
    assert seen == [name for name, _ in network.named_parameters()]
    assert not any(parameter._backward_hooks for parameter in network.parameters())
    assert right > 0.8


def test_a_training_that_raises_leaves_no_hook():
    kept = []

    def breaks(name, parameter):
        kept.append(parameter)

        def hook(grad):
            raise ValueError("in a hook")

        return parameter.register_hook(hook)

    with pytest.raises(ValueError, match="in a hook"):
        training.run(0.03, breaks)
    assert kept
    assert not any(parameter._backward_hooks for parameter in kept)
