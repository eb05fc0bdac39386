"""The figure of lesson 4 shows what a run gave."""

import torch
from torch import nn

from hooklab.course.lesson04.figures import input_through_a_pre_hook, values_through_a_pre_hook


def triple():
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, 3.0)
    return layer


def test_the_values_are_those_of_a_run_and_no_hook_is_left():
    layer, x = triple(), torch.tensor([[2.0]])
    values = values_through_a_pre_hook(layer, x, lambda module, args: args[0] * 2)
    assert values == {"caller": 2.0, "received": 4.0, "output": 12.0}
    assert not layer._forward_pre_hooks


def test_the_figure_shows_the_changed_value():
    figure = input_through_a_pre_hook(triple(), torch.tensor([[2.0]]), lambda module, args: args[0] * 2)
    assert {"2", "4", "12"} <= {text.get_text() for text in figure.axes[0].texts}
