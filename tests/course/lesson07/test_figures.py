"""The figures of lesson 7 show what they are given, and its spirals and measures are what they say."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab
from hooklab.course.lesson07.figures import (
    SpiralNet,
    batch,
    by_seed,
    by_steps,
    differences,
    flatness,
    lambdas,
    mixed_digits,
    spirals,
    sure_share,
    two_spirals,
)
from hooklab.course.plots import CHANGED, REST


def test_lambdas_shows_the_density_of_beta_2_2():
    at, density = lambdas({2.0: torch.tensor([0.5])}).axes[0].lines[0].get_data()
    assert density == pytest.approx(6 * at * (1 - at))


def digit_maps(**channels):
    return {name: torch.full((2, 4, 4), value) for name, value in channels.items()}


def test_mixed_digits_shows_the_difference_of_the_two_ways_in_its_last_column():
    maps = digit_maps(first=1.0, second=2.0, at_input=0.5, at_layer=1.25)
    figure = mixed_digits(torch.zeros(3, 8, 8), maps, [1])
    pictures = [axes.images[0].get_array() for axes in figure.axes if axes.images]
    assert [float(picture.max()) for picture in pictures] == [0, 0, 0, 1.0, 2.0, 0.5, 1.25, 0.75]


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
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles[::2] == [f"{name}: sure of {sure_share(net):.0%}" for name, net in nets.items()]
    flat = [f"{flatness(net.encoder(x), y):.2f}" for net in nets.values()]
    assert titles[1::2] == [f"the hidden layer: width {share}" for share in flat]
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
    row = {"arm": "input mixup", "against": "no mixup", "metric": "error", "scenario": "few"}
    rows = [
        {**row, "mean": -2.0, "low": -3.0, "high": -1.0, "p_holm": 0.01},
        {**row, "mean": 0.5, "low": -1.0, "high": 2.0, "p_holm": 0.4},
    ]
    axes = differences([*rows, {**rows[0], "metric": "nll"}]).axes[0]
    marks = [line for line in axes.lines if len(line.get_xdata()) == 1]
    assert [(mark.get_color(), mark.get_marker()) for mark in marks] == [(CHANGED, "o"), (REST, "s")]
    assert [-3.0, -1.0] in [list(line.get_xdata()) for line in axes.lines]


def test_by_steps_draws_no_mixup_in_every_column_and_a_line_for_each_set_of_places():
    def row(places, alpha, steps, error):
        return {"scenario": "few", "places": places, "alpha": alpha, "steps": steps, "error": error}

    rows = [row([], 0.0, 150, 5.0), row([], 0.0, 75, 6.0), row([0], 1.0, 75, 4.0), row([1, 2], 2.0, 75, 3.0)]
    first, second = by_steps(rows, ["input", "a", "b"]).axes
    assert [line.get_label() for line in first.lines] == ["no mixup", "input only", "{1, 2}"]
    assert list(first.lines[0].get_ydata()) == list(second.lines[0].get_ydata()) == [6.0, 5.0]
    assert (list(first.lines[1].get_ydata()), list(second.lines[1].get_ydata())) == ([4.0], [])


def test_by_steps_circles_the_lowest_error_of_each_way_in_a_single_panel():
    def row(places, steps, error):
        return {"scenario": "few", "places": places, "alpha": 2.0 if places else 0.0, "steps": steps, "error": error}

    (axes,) = by_steps([row([], 75, 6.0), row([], 150, 5.0), row([1], 75, 3.0), row([1], 150, 4.0)], ["in", "a"]).axes
    circles = [line.get_xydata().tolist() for line in axes.lines if line.get_markerfacecolor() == "none"]
    assert circles == [[[150, 5.0]], [[75, 3.0]]]


def test_batch_writes_each_mixtures_target_under_it():
    images = torch.rand(2, 1, 8, 8)
    figure = batch(images, images.flip(0), images, torch.tensor([[0.75, 0.25], [0.0, 1.0]]))
    assert [axes.get_xlabel() for axes in figure.axes[4:]] == ["0.75 of a 0\n0.25 of a 1", "1 of a 1"]


def test_by_seed_joins_the_two_errors_of_each_seed_and_shows_in_purple_what_came_out_again():
    def run(seed, places, error):
        return {"seed": seed, "scenario": "few", "places": places, "error": error}

    settings = {"no mixup": {"scenario": "few", "places": []}, "manifold mixup": {"scenario": "few", "places": [1, 2]}}
    stored = [run(seed, places, seed + len(places)) for seed in (7, 8) for places in ([], [1, 2], [0])]
    again = [run(8, [], 8.5), run(8, [1, 2], 9.0)]
    lines = by_seed(stored, settings, again).axes[0].lines
    assert [(line.get_color(), list(line.get_ydata())) for line in lines] == [
        (REST, [7.0, 9.0]),
        (REST, [8.0, 10.0]),
        (CHANGED, [8.5, 9.0]),
    ]


@pytest.mark.long
def test_in_most_of_twelve_seeds_mixing_makes_the_spiral_network_less_sure_and_its_classes_flatter():
    x, y = two_spirals()

    def trained(seed, mix):
        torch.manual_seed(seed)
        net = SpiralNet()
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        generator = torch.Generator().manual_seed(seed)
        mixup = hooklab.ManifoldMixup(net, ["encoder"], include_input=False, generator=generator)
        for _ in range(500):
            if mix:
                with mixup(x, y) as mixed:
                    loss = mixed.loss(F.cross_entropy, net(mixed.x))
            else:
                loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return net.eval()

    pairs = [(trained(seed, False), trained(seed, True)) for seed in range(12)]
    assert sum(sure_share(mixed) < sure_share(plain) for plain, mixed in pairs) >= 11
    assert sum(flatness(mixed.encoder(x), y) < flatness(plain.encoder(x), y) for plain, mixed in pairs) >= 10
