"""The figure of lesson 4 shows what a run gave."""

import torch
from torch import nn

from hooklab.course.lesson04.figures import flips, input_through_a_pre_hook, swapped, values_through_a_pre_hook


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


def test_whose_answer_comes_out_goes_from_the_first_to_the_other_with_the_rows():
    class Rows(nn.Module):
        """Scores by the mean of the rows: 0 for a picture of zeros, 1 for one of ones."""

        def forward(self, images):
            mean = images.mean(dim=(1, 2, 3))
            return torch.stack([1 - mean, mean], dim=1)

    images = torch.stack([torch.zeros(1, 8, 8), torch.zeros(1, 8, 8), torch.ones(1, 8, 8), torch.zeros(1, 8, 8)])
    labels = torch.tensor([0, 0, 1, 0])  # the second pair has one label, and is left out

    def take(stored, rows):
        return lambda module, args: torch.cat([stored[:, :, :rows], args[0][:, :, rows:]], dim=2)

    shares = swapped(nn.Sequential(Rows()), "0", take, images, labels)
    assert [share["first"] for share in shares] == [1.0] * 5 + [0.0] * 4
    assert [share["other"] for share in shares] == [0.0] * 5 + [1.0] * 4
    assert all(share["neither"] == 0.0 for share in shares)


def test_flips_draws_three_lines_for_each_layer():
    shares = [{"first": 1.0, "other": 0.0, "neither": 0.0}, {"first": 0.0, "other": 0.5, "neither": 0.5}]
    (axes,) = flips({"conv1": shares, "conv2": shares}).axes
    assert [list(line.get_ydata()) for line in axes.lines][:3] == [[100.0, 0.0], [0.0, 50.0], [0.0, 50.0]]
    assert len(axes.lines) == 6
