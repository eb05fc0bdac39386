"""The figures of lesson 4 show what a run gave."""

import torch
from torch import nn

from hooklab.course.lesson04.figures import (
    ThirdDigit,
    both_papers,
    flips,
    swapped,
    third_digits,
    who_wins,
)


def test_the_answers_are_counted_for_the_target_the_source_and_neither():
    def run(source, target):  # the answer is 2 where the two pictures differ in their values by more than 3
        values = target[:, 0, 0, 0].long()
        far = (source - target)[:, 0, 0, 0] > 3
        return nn.functional.one_hot(torch.where(far, 2, values), 9).float()

    images = torch.tensor([0.0, 1.0, 3.0, 3.0, 8.0, 3.0]).reshape(6, 1, 1, 1)  # the last pair has one label
    assert who_wins(run, images, images.flatten().long()) == (0.5, 0.0, 0.5)


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
    assert [len(line.get_xdata()) for line in axes.lines if len(line.get_xdata())] == [2] * 6
    assert [text.get_text() for text in figure.axes[2].texts] == ["of a 3", "of a 7", "read as 9"]


def test_each_digit_is_drawn_above_its_inverted_one():
    images = torch.rand(3, 1, 8, 8)
    drawn = [axes.images[0].get_array() for axes in both_papers(images, 1 - images).axes]
    assert all(
        torch.allclose(torch.tensor(above + below), torch.ones(8, 8))
        for above, below in zip(drawn[:3], drawn[3:], strict=True)
    )
