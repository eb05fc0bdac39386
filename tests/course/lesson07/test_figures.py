"""The figures of lesson 7 show what they are given, and its spirals and measures are what they say."""

import numpy as np
import pytest
import torch
from torch import nn

from hooklab.course.lesson07.figures import (
    SpiralNet,
    differences,
    flatness,
    lambdas,
    mixed_digits,
    spirals,
    sure_share,
    two_spirals,
)
from hooklab.course.plots import CHANGED, REST


def row(method, low, high, metric="error", setting="few", against="none"):
    significant = low is not None and (low > 0 or high < 0)
    mean = None if low is None else (low + high) / 2
    names = {"setting": setting, "method": method, "against": against, "metric": metric}
    return {**names, "mean": mean, "low": low, "high": high, "significant": significant}


def test_lambdas_draws_a_panel_for_each_alpha_with_the_density_that_integrates_to_one():
    figure = lambdas({1.0: torch.tensor([0.2, 0.8]), 2.0: torch.tensor([0.5, 0.5])})
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["α = 1", "α = 2"]
    for axes in figure.axes:
        at, density = axes.lines[0].get_data()
        assert np.trapezoid(density, at) == pytest.approx(1, abs=0.02)


def test_lambdas_shows_the_density_of_beta_2_2():
    at, density = lambdas({2.0: torch.tensor([0.5])}).axes[0].lines[0].get_data()
    assert density == pytest.approx(6 * at * (1 - at))


def test_lambdas_counts_the_draws():
    axes = lambdas({1.0: torch.tensor([0.01, 0.02, 0.99, 0.5])}).axes[0]
    heights = [bar.get_height() for bar in axes.patches]
    assert (heights[0], heights[12], heights[-1]) == pytest.approx((12.5, 6.25, 6.25))  # of 25 bins


def digit_maps(**channels):
    return {name: torch.full((2, 4, 4), value) for name, value in channels.items()}


def test_mixed_digits_shows_the_difference_of_the_two_ways_in_its_last_column():
    maps = digit_maps(first=1.0, second=2.0, at_input=0.5, at_layer=1.25)
    figure = mixed_digits(torch.zeros(3, 8, 8), maps, [1])
    pictures = [axes.images[0].get_array() for axes in figure.axes if axes.images]
    assert [float(picture.max()) for picture in pictures] == [0, 0, 0, 1.0, 2.0, 0.5, 1.25, 0.75]


def test_mixed_digits_gives_a_row_one_scale_and_the_difference_its_own():
    maps = digit_maps(first=1.0, second=2.0, at_input=0.5, at_layer=1.25)
    figure = mixed_digits(torch.zeros(3, 8, 8), maps, [0])
    assert [axes.images[0].get_clim() for axes in figure.axes[5:]] == [(0, 2)] * 4 + [(0, 0.75)]


def test_mixed_digits_draws_a_channel_that_is_silent():
    figure = mixed_digits(torch.zeros(3, 8, 8), digit_maps(a=0.0, b=0.0, c=0.0, d=0.0), [0])
    assert figure.axes[-1].images[0].get_clim() == (0, 1)


def test_mixed_digits_refuses_anything_but_four_maps():
    with pytest.raises(ValueError, match="three images and four maps are needed, got 3 and 2"):
        mixed_digits(torch.zeros(3, 8, 8), digit_maps(a=0.0, b=0.0), [0])


def test_the_two_spirals_mirror_each_other_at_the_centre():
    x, y = two_spirals(points=40, noise=0)
    assert torch.equal(x[y == 0], -x[y == 1])
    assert x.norm(dim=1).max() == pytest.approx(1)


def test_the_spirals_noise_is_that_of_the_seed():
    assert torch.equal(two_spirals(seed=3)[0], two_spirals(seed=3)[0])
    assert not torch.equal(two_spirals(seed=3)[0], two_spirals(seed=4)[0])


def test_the_spiral_net_has_two_hidden_units_and_two_logits():
    net = SpiralNet()
    assert net.encoder(torch.rand(5, 2)).shape == (5, 2)
    assert net(torch.rand(5, 2)).shape == (5, 2)


class Split(nn.Module):
    """Sure of class 1 where the first coordinate is positive, undecided elsewhere."""

    def forward(self, x):
        return torch.stack([torch.zeros(len(x)), 9.0 * (x[:, 0] > 0)], dim=1)


def test_the_sure_share_is_the_part_of_the_square_with_a_high_probability():
    assert sure_share(Split()) == pytest.approx(0.5, abs=0.01)
    assert sure_share(Split(), confidence=0.5) == 1.0


def test_flatness_is_zero_for_lines_and_a_half_for_round_classes():
    line, angle = torch.linspace(-1, 1, 20), 2 * torch.pi * torch.arange(20) / 20
    lines = torch.cat([torch.stack([line, 2 * line], 1), torch.stack([5 - line, line], 1)])
    circles = torch.stack([angle.cos(), angle.sin()], 1).repeat(2, 1)
    y = torch.arange(2).repeat_interleave(20)
    assert flatness(lines, y) == pytest.approx(0, abs=1e-5)
    assert flatness(circles, y) == pytest.approx(0.5, abs=1e-5)


def test_spirals_draws_the_plane_and_the_hidden_layer_of_each_network():
    x, y = two_spirals(points=10)
    nets = {"one": SpiralNet(8).eval(), "other": SpiralNet(8).eval()}
    figure = spirals(nets, x, y)
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "one",
        "the hidden layer",
        "other",
        "the hidden layer",
    ]
    shown = [line.get_xydata() for line in figure.axes[0].lines]
    assert np.concatenate(shown) == pytest.approx(x.numpy())
    hidden = nets["other"].encoder(x).detach().numpy()
    assert np.concatenate([line.get_xydata() for line in figure.axes[3].lines[1:]]) == pytest.approx(hidden)


def test_spirals_leaves_the_networks_as_they_are():
    x, y = two_spirals(points=10)
    net = SpiralNet(8).eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    spirals({"net": net}, x, y)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())


def test_differences_draws_each_interval_in_colour_only_where_it_is_significant():
    rows = [row("better", -2.0, -1.0), row("unclear", -1.0, 0.5), row("better", -0.2, -0.1, "nll")]
    figure = differences({"differences": rows})
    error, nll = figure.axes
    intervals = [line for line in error.lines if len(line.get_xdata()) == 2 and line.get_color() in (CHANGED, REST)]
    assert [(list(line.get_xdata()), line.get_color()) for line in intervals] == [
        ([-2.0, -1.0], CHANGED),
        ([-1.0, 0.5], REST),
    ]
    assert [label.get_text() for label in error.get_yticklabels()] == ["better", "unclear"]
    assert "NLL" in nll.get_xlabel()


def test_differences_leaves_out_other_comparisons_and_rows_without_an_interval():
    rows = [row("a", -2, -1), row("a", None, None), row("a", -2, -1, against="input"), row("a", -2, -1, "nll")]
    figure = differences({"differences": rows})
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["a"]
