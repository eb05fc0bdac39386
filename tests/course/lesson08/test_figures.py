"""Lesson 8's figures show what was counted."""

import torch

from hooklab.course.lesson08 import figures
from hooklab.course.lesson08.deaths import Deaths


def test_a_histogram_is_drawn_for_each_training_with_steps_across_and_values_up():
    one, two = torch.zeros(5, 4), torch.ones(3, 4)
    one[:, 3] = 9.0
    figure = figures.histograms({"first": one, "second": two}, lowest=-2, highest=2)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["first", "second"]
    (image,) = figure.axes[0].images
    assert image.get_extent() == [0, 5, -2, 2] and image.get_array().shape == (4, 5)
    assert image.get_array()[3].min() > 2 > image.get_array()[:3].max() == 0  # the last bin is the topmost row


def test_a_channel_that_is_dark_in_some_steps_has_its_fate_written_into_its_row():
    fires = torch.ones(30, 16)
    fires[4:, 0], fires[3:9, 13], fires[:, 14], fires[:5, 15] = 0, 0, 0, 0
    axes = figures.deaths(Deaths(fires, fires, fires)).axes[0]
    assert {int(text.get_position()[1]): text.get_text() for text in axes.texts} == {
        0: "fires for the last time in step 3",
        13: "comes back",
        14: "never fires",
        15: "wakes up",
    }
