"""The figures of lesson 3 show what they are given."""

import pytest
import torch
from torch import nn

from hooklab.course.lesson03.figures import feature_maps, worth
from hooklab.course.lesson03.helpers import bytes_alive


def pictures(figure):
    """The arrays that a figure shows as images, in order."""
    return [image.get_array() for axes in figure.axes for image in axes.images]


def test_feature_maps_shows_the_image_and_each_channel_of_each_layer():
    figure = feature_maps(torch.zeros(8, 8), {"first": torch.zeros(3, 8, 8), "second": torch.ones(10, 4, 4)})
    assert [picture.shape for picture in pictures(figure)] == [(8, 8)] + 3 * [(8, 8)] + 10 * [(4, 4)]


def test_feature_maps_gives_all_channels_of_a_layer_one_scale_with_zero_in_its_middle():
    maps = torch.stack([torch.full((2, 2), -1.0), torch.full((2, 2), 4.0)])
    figure = feature_maps(torch.zeros(2, 2), {"first": maps})
    assert [image.get_clim() for image in figure.axes[0].images][1:] == [(-4, 4), (-4, 4)]


def test_feature_maps_draws_a_layer_that_put_out_only_zeros():
    figure = feature_maps(torch.zeros(8, 8), {"dead": torch.zeros(1, 8, 8)})
    assert figure.axes[0].images[-1].get_clim() == (-1, 1)


def test_feature_maps_takes_values_that_are_part_of_a_graph():
    figure = feature_maps(torch.zeros(2, 2), {"live": torch.ones(1, 2, 2, requires_grad=True) * 2})
    assert pictures(figure)[1].tolist() == [[2, 2], [2, 2]]


def test_feature_maps_refuses_a_whole_batch_and_says_how_to_take_one_image():
    with pytest.raises(ValueError, match=r"'first' has shape \(5, 3, 8, 8\), .*captured\[0\]"):
        feature_maps(torch.zeros(8, 8), {"first": torch.zeros(5, 3, 8, 8)})


def test_each_network_has_a_panel_in_which_a_channel_that_changes_nothing_has_a_cross():
    figure = worth([[0.0, 0.06, -0.01], [0.1, 0.2, 0.3]], [[0], []])
    heights = [[round(bar.get_height(), 6) for bar in axes.patches] for axes in figure.axes]
    crosses = [list(line.get_xdata()) for axes in figure.axes for line in axes.lines if line.get_marker() == "x"]
    assert heights == [[0.0, 6.0, -1.0], [10.0, 20.0, 30.0]] and crosses == [[0], []]


def test_what_is_alive_after_a_pass_is_counted_once_for_each_memory():
    model = nn.Sequential(nn.Linear(100, 100), nn.ReLU())
    assert bytes_alive(model, lambda output: output.detach()) == 4000
    assert bytes_alive(model, lambda output: output) == 2 * 4000  # the batch, and the ReLU's own output
    assert not any(module._forward_hooks for module in model)
