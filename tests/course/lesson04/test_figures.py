"""The figure of lesson 4 shows what a run gave."""

import torch
from torch import nn

from hooklab.course.lesson04.figures import (
    ThirdDigit,
    flips,
    input_through_a_pre_hook,
    swapped,
    third_digits,
    values_through_a_pre_hook,
)


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


def test_third_digits_are_pictures_of_two_halves_that_are_read_as_neither_the_surest_first():
    class Table(nn.Module):
        """Is sure of class 2 where the upper half holds a 1, surer of class 4 where it holds a 3."""

        def forward(self, images):
            upper, lower = images[:, 0, 0, 0], images[:, 0, -1, 0]
            scores = torch.zeros(len(images), 5)
            scores[:, 2] = 5 * (upper == 1)
            scores[:, 4] = 9 * (upper == 3)
            scores[range(len(images)), lower.long()] += 1
            return scores

    images = torch.tensor([0.0, 0.0, 0.0, 1.0, 3.0, 0.0]).reshape(6, 1, 1, 1).expand(6, 1, 8, 8)
    surest, other = third_digits(Table(), images, images[:, 0, 0, 0].long())
    assert (surest.upper, surest.lower, surest.answer) == (3, 0, 4)
    assert (other.upper, other.lower, other.answer) == (1, 0, 2)
    assert surest.picture[:, 0].tolist() == [3.0] * 4 + [0.0] * 4


def test_flips_draws_three_lines_for_each_layer_and_says_what_the_pictures_are_made_of():
    shares = [{"first": 1.0, "other": 0.0, "neither": 0.0}, {"first": 0.0, "other": 0.5, "neither": 0.5}]
    figure = flips({"conv1": shares, "conv2": shares}, [ThirdDigit(torch.zeros(8, 8), 3, 7, 9)])
    axes = figure.axes[0]
    assert [list(line.get_ydata()) for line in axes.lines][:3] == [[100.0, 0.0], [0.0, 50.0], [0.0, 50.0]]
    assert len(axes.lines) == 6
    assert [text.get_text() for text in figure.axes[2].texts] == ["of a 3", "of a 7", "read as 9"]
