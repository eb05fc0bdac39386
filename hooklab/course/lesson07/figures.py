"""The figures of lesson 7: `batch`, `lambdas`, `method`, `mixed_digits`, `spirals`, `by_steps`, `differences`,
`by_seed`.

What the figures show is computed: from draws, from networks that ran, from an experiment's results. The two spirals and
the network with a hidden layer of two units follow Figure 1 of Verma et al., "Manifold Mixup", ICML 2019
(arXiv:1806.05236); sizes and training are the course's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from torch import Tensor, nn

from hooklab.course.plots import BACKWARD, CAPTURED, CHANGED, FORWARD, INK, REST, arrow, bare, box, frame, ink, style

# Two classes need two colours that mean nothing else in the course: Okabe-Ito's orange and sky blue.
CLASSES = ("#E69F00", "#56B4E9")
_BETWEEN = LinearSegmentedColormap.from_list("between", [CLASSES[0], "white", CLASSES[1]])
_MAPS = LinearSegmentedColormap.from_list("maps", ["white", FORWARD])
_CHANGED_MAPS = LinearSegmentedColormap.from_list("changed maps", ["white", CHANGED])
_GRID = 90

TWO_WAYS = (
    "Error by number of steps: without mixup lowest at 150 steps, then up to 30 %; "
    "with mixup lowest at 300 steps, and at most 25 % at 600."
)


def lambdas(draws: Mapping[float, Tensor]) -> Figure:
    """Draw, for each α, a histogram of draws of λ and the density of Beta(α, α) as a line.

    Args:
        draws: α -> values of λ in [0, 1], shape (n,).
    """
    with style():
        figure, row = plt.subplots(1, len(draws), figsize=(2.5 * len(draws), 2.5), squeeze=False, sharex=True)
        for axes, (alpha, values) in zip(row[0], draws.items(), strict=True):
            axes.hist(values.numpy(), bins=25, range=(0, 1), density=True, color=REST, alpha=0.45)
            at = np.linspace(0.005, 0.995, 199)
            axes.plot(at, _beta_density(at, alpha), color=CHANGED)
            axes.set(title=f"α = {alpha:g}", xlabel="λ", xticks=[0, 0.5, 1], yticks=[], ylim=(0, 3.6))
            axes.spines["left"].set_visible(False)
        return figure


def batch(images: Tensor, partners: Tensor, mixed: Tensor, targets: Tensor) -> Figure:
    """Draw a batch of images, their partners and the mixtures, a column for each sample, with the target under each.

    Args:
        images, partners, mixed: shape (n, 1, height, width).
        targets: shares of the classes, shape (n, classes).
    """
    rows = {"sample": images, "partner": partners, "mixture": mixed}
    with style():
        figure, grid = plt.subplots(len(rows), len(images), figsize=(1.15 * len(images) + 0.3, 3.75), squeeze=False)
        for line, (name, shown) in zip(grid, rows.items(), strict=True):
            for axes, image in zip(line, shown, strict=True):
                ink(axes, image[0])
                frame(axes)
            line[0].set_ylabel(name)
        for axes, target in zip(grid[-1], targets.tolist(), strict=True):
            shares = [f"{share:g} of a {label}" for label, share in enumerate(target) if share]
            axes.set_xlabel("\n".join(shares), fontsize=10)
        return figure


def mixed_digits(images: Tensor, maps: Mapping[str, Tensor], channels: Sequence[int]) -> Figure:
    """Draw two digits and two ways of mixing them, as one layer sees them, and how the two ways differ.

    The top row shows what goes into the network, each other row one channel of the layer's output. White is zero; a row
    has one scale, its last panel, the difference, a scale of its own.

    Args:
        images: shape (3, height, width): the two digits, and the mixture of the two.
        maps: title -> the layer's output, shape (channels, height, width). Four of them: for the first digit, for the
            second, for the mixed image, and the mixture of the first two.
        channels: which channels to show.

    Raises:
        ValueError: there are not three images and four maps.
    """
    if len(images) != 3 or len(maps) != 4:
        raise ValueError(f"three images and four maps are needed, got {len(images)} and {len(maps)}")
    first, second, at_input, at_layer = maps.values()
    columns = {**maps, "the difference": at_layer - at_input}
    with style():
        rows = len(channels) + 1
        figure, grid = plt.subplots(rows, len(columns), figsize=(8.4, 1.62 * rows + 0.3))
        for row, channel in enumerate(channels, start=1):
            top = max(float(first[channel].max()), float(second[channel].max()))
            tops = [top] * 4 + [float(columns["the difference"][channel].max())]
            for column, values in enumerate(columns.values()):
                cmap = _MAPS if column < 2 else _CHANGED_MAPS
                grid[row, column].imshow(values[channel].detach().numpy(), cmap=cmap, vmin=0, vmax=tops[column] or 1.0)
        for column, name in enumerate(columns):
            grid[0, column].set_title(name, color=INK if column < 2 else CHANGED, fontsize=10.5, loc="center")
        for column, image in enumerate(images):
            ink(grid[0, column], image)
        grid[0, 3].text(0.5, 0.5, "both go in,\nunmixed", ha="center", va="center", color=INK, fontsize=10)
        for axes in grid.flat:
            frame(axes, visible=bool(axes.images))
        for axes, label in zip(grid[:, 0], ["goes in", *[f"channel {one}" for one in channels]], strict=True):
            axes.set_ylabel(label, fontsize=9.5)
        return figure


def two_spirals(points: int = 150, noise: float = 0.03, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return two arms of a spiral in the plane: x of shape (2·points, 2), within about [-1, 1], and y of 0s and 1s.

    Args:
        points: on each arm.
        noise: standard deviation of what is added to each coordinate.
        seed: of the noise.

    Example:
        >>> x, y = two_spirals()
        >>> tuple(x.shape), y.bincount().tolist()
        ((300, 2), [150, 150])
    """
    generator = torch.Generator().manual_seed(seed)
    radius = torch.linspace(0.12, 1, points)
    angle = 2.5 * math.pi * radius
    arm = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
    x = torch.cat([arm, -arm]) + noise * torch.randn(2 * points, 2, generator=generator)
    return x, torch.arange(2).repeat_interleave(points)


class SpiralNet(nn.Module):
    """From the plane, through a hidden layer of two units that can be drawn, to two logits.

    Points of shape (n, 2) give `encoder` outputs of shape (n, 2) and logits of shape (n, 2).
    """

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.encoder = nn.Sequential(*_block(2, width), *_block(width, width), nn.Linear(width, 2), nn.BatchNorm1d(2))
        self.head = nn.Sequential(*_block(2, width), nn.Linear(width, 2))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.encoder(x))
        return logits


def sure_share(net: nn.Module, confidence: float = 0.9, reach: float = 1.3) -> float:
    """Return the share of the square [-reach, reach]² in which a class has at least this probability, from 0 to 1."""
    points = _lattice((-reach, reach), (-reach, reach))
    with torch.no_grad():
        probability = net(points).softmax(dim=1).max(dim=1).values
    return float((probability >= confidence).float().mean())


def flatness(hidden: Tensor, y: Tensor) -> float:
    """Return how thin the classes lie: the second singular value's share of the sum, averaged over classes.

    0: every class lies on a line of its own. 0.5: as wide as long.

    Args:
        hidden: shape (n, 2), an output of `SpiralNet.encoder`.
        y: classes, shape (n,).
    """
    shares = []
    for label in y.unique():
        one = hidden[y == label].detach()
        values = torch.linalg.svdvals(one - one.mean(dim=0))
        shares.append(float(values[1] / values.sum()))
    return sum(shares) / len(shares)


def spirals(nets: Mapping[str, SpiralNet], x: Tensor, y: Tensor) -> Figure:
    """Draw, for each trained network, the plane and the hidden layer's plane: the points, and what the network says.

    The deeper the colour, the surer the network; white is undecided. The black line is the decision boundary. In the
    hidden plane, grey dots are points from all over the input square. The titles say of how much of the plane a network
    is sure, and how flat its classes lie.

    Args:
        nets: title -> network in evaluation mode, a row each.
        x: shape (n, 2), the training points.
        y: classes 0 and 1, shape (n,).
    """
    with style():
        figure, grid = plt.subplots(len(nets), 2, figsize=(8.2, 3.7 * len(nets)), squeeze=False)
        for row, (title, net) in zip(grid, nets.items(), strict=True):
            with torch.no_grad():
                hidden, everywhere = net.encoder(x), net.encoder(_lattice((-1.3, 1.3), (-1.3, 1.3))[::7])
            reach = _around(torch.cat([hidden, everywhere]))
            _certainty(row[0], net, (-1.3, 1.3), (-1.3, 1.3))
            _certainty(row[1], net.head, *reach)
            row[1].plot(*everywhere.T.numpy(), ".", color=INK, markersize=1.5, alpha=0.35)
            _points(row[0], x, y)
            _points(row[1], hidden, y)
            row[0].set(title=f"{title}: sure of {sure_share(net):.0%}", xlabel="x₁", ylabel="x₂", aspect="equal")
            share = f"{flatness(hidden, y):.2f}"
            row[1].set(title=f"the hidden layer: width {share}", xlabel="unit 1", ylabel="unit 2")
        return figure


def method() -> Figure:
    """Draw the method: what is drawn for a batch, the one pass with its mixture, and the two losses that share it."""
    with style():
        figure, axes = bare(9.4, 3.3, (-0.5, 9.4), (-1.15, 2.1))
        for x, y, width, text, colour in (
            (0.0, 0.4, 0.6, "x", FORWARD),
            (1.5, 0.4, 1.1, "layer 1", FORWARD),
            (3.7, 0.4, 1.9, "λ · out +\n(1 − λ) · out[partners]", CHANGED),
            (5.75, 0.4, 1.1, "layer 2", FORWARD),
            (7.9, 0.95, 2.1, "λ · loss(logits, y)", INK),
            (7.9, -0.15, 2.1, "(1 − λ) · loss(logits,\ny[partners])", INK),
            (3.7, 1.7, 3.6, "drawn once for each batch:\nplace (here layer 1), λ, partners", CHANGED),
        ):
            box(axes, x, y, text, colour, width, 0.62, fontsize=10)
        for start, end in ((0.35, 0.9), (2.1, 2.65), (4.75, 5.15)):
            arrow(axes, (start, 0.4), (end, 0.4), FORWARD)
        for height in (0.95, -0.15):
            arrow(axes, (6.35, 0.4), (6.8, height), FORWARD)
        arrow(axes, (3.7, 1.34), (3.7, 0.8), CHANGED)
        axes.plot([5.55, 9.25, 9.25], [1.7, 1.7, -0.15], color=CHANGED, lw=1.6)
        for height in (0.95, -0.15):
            arrow(axes, (9.25, height), (9.0, height), CHANGED)
        arrow(axes, (7.9, -0.85), (0.0, -0.85), BACKWARD)
        axes.text(3.7, -0.72, "gradients flow back, to both parts of each mixture", ha="center", color=BACKWARD)
        return figure


def by_steps(validation: Sequence[Mapping[str, Any]], places: Sequence[str]) -> Figure:
    """Draw validation error against the number of steps: a row for each scenario, a column for each α.

    Grey is without mixup, the same in each column; the others are sets of places. If there is one panel only, circles
    mark the lowest error without mixup and with it.

    Args:
        validation: rows with "scenario", "places", "alpha", "steps" and "error".
        places: the names of places 0, 1, ….
    """
    scenarios = list(dict.fromkeys(row["scenario"] for row in validation))
    alphas = sorted({row["alpha"] for row in validation if row["places"]})
    sets = sorted({tuple(row["places"]) for row in validation if row["places"]}, key=lambda one: (len(one) > 1, one))
    looks = [("#E69F00", "o"), (FORWARD, "s"), (CAPTURED, "^"), (CHANGED, "D"), ("#56B4E9", "v")]
    with style():
        figure, grid = plt.subplots(
            len(scenarios),
            len(alphas),
            figsize=(9.4, 2.3 * len(scenarios) + 0.7),
            sharex=True,
            sharey="row",
            squeeze=False,
        )
        for line, scenario in zip(grid, scenarios, strict=True):
            here = [row for row in validation if row["scenario"] == scenario]
            for axes, alpha in zip(line, alphas, strict=True):
                _curve(axes, [row for row in here if not row["places"]], REST, ".", "no mixup")
                for (colour, marker), one in zip(looks, sets, strict=False):
                    rows = [row for row in here if tuple(row["places"]) == one and row["alpha"] == alpha]
                    label = places[one[0]] + " only" if len(one) == 1 else "{" + ", ".join(map(str, one)) + "}"
                    _curve(axes, rows, colour, marker, label)
                axes.set_xscale("log")
                axes.set_xticks([75, 150, 300, 600], ["75", "150", "300", "600"])
                axes.minorticks_off()
            line[0].set_ylabel(f"{scenario}\nerror, %")
        for axes, alpha in zip(grid[0], alphas, strict=True):
            axes.set_title(f"α = {alpha:g}")
        if grid.size == 1:
            grid[0, 0].set(title=f"{scenarios[0]}, α = {alphas[0]:g}", ylabel="validation error, %")
            grid[0, 0].margins(y=0.12)
            for mixes, offset in ((False, (20, 11)), (True, (-26, -13))):
                _circle_lowest(grid[0, 0], [row for row in validation if bool(row["places"]) is mixes], offset)
        for axes in grid[-1]:
            axes.set_xlabel("steps")
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=9.5)
        return figure


def _curve(axes: Axes, rows: Sequence[Mapping[str, Any]], colour: str, marker: str, label: str) -> None:
    ordered = sorted(rows, key=lambda row: row["steps"])
    axes.plot(
        [row["steps"] for row in ordered],
        [row["error"] for row in ordered],
        color=colour,
        marker=marker,
        markersize=4,
        linewidth=2.6 if colour == REST else 1.3,
        label=label,
    )


def _circle_lowest(axes: Axes, rows: Sequence[Mapping[str, Any]], offset: tuple[int, int]) -> None:
    best = min(rows, key=lambda row: row["error"])
    at = (best["steps"], best["error"])
    axes.plot(*at, "o", markersize=14, markerfacecolor="none", color=INK, markeredgewidth=1.4)
    axes.annotate(f"{best['error']:.1f} %", at, offset, textcoords="offset points", ha="center", color=INK)


def differences(compared: Sequence[Mapping[str, Any]], level: float = 0.05) -> Figure:
    """Draw paired differences with their intervals: a row for each scenario, error on the left and NLL on the right.

    What is significant after the correction is purple with a round mark, the rest grey with a square one.

    Args:
        compared: rows as `hooklab.course.lesson07.report.compare` returns them.
        level: of significance, for the corrected p.
    """
    scenarios = list(dict.fromkeys(row["scenario"] for row in compared))
    metrics = {"error": "error, points", "nll": "NLL, nats"}
    with style():
        figure, grid = plt.subplots(len(scenarios), 2, figsize=(9.0, 1.7 * len(scenarios) + 0.5), squeeze=False)
        for line, scenario in zip(grid, scenarios, strict=True):
            for axes, (metric, label) in zip(line, metrics.items(), strict=True):
                shown = [row for row in compared if (row["scenario"], row["metric"]) == (scenario, metric)]
                for place, row in enumerate(shown):
                    is_clear = row["p_holm"] < level
                    colour = CHANGED if is_clear else REST
                    axes.plot([row["low"], row["high"]], [place, place], color=colour, solid_capstyle="butt")
                    axes.plot(row["mean"], place, "o" if is_clear else "s", color=colour, markersize=6)
                axes.axvline(0, color=INK, linewidth=0.8)
                names = [f"{row['arm']} − {row['against']}" for row in shown]
                axes.set_yticks(range(len(shown)), names if metric == "error" else [""] * len(shown))
                axes.set(ylim=(len(shown) - 0.5, -0.5))
                axes.locator_params(axis="x", nbins=5)
                axes.set_title(f"{scenario}: {label}")
        return figure


def by_seed(
    stored: Sequence[Mapping[str, Any]], settings: Mapping[str, Mapping[str, Any]], again: Sequence[Mapping[str, Any]]
) -> Figure:
    """Draw, for each seed, the test errors without mixup and with manifold mixup, joined by a line.

    Args:
        stored: the runs of the file, in grey.
        settings: arm -> its chosen settings, with "scenario" and "places".
        again: runs that were just made, in purple.
    """
    arms = ("no mixup", "manifold mixup")
    with style():
        figure, axes = plt.subplots(figsize=(5.6, 3.6))
        for runs, look in ((stored, {"color": REST, "alpha": 0.6}), (again, {"color": CHANGED, "marker": "o"})):
            for seed in dict.fromkeys(row["seed"] for row in runs):
                pair = [_error(runs, seed, settings[arm]) for arm in arms]
                axes.plot(arms, pair, linewidth=1.5, **look)
        axes.set(
            ylabel="test error, %", title=f"{settings[arms[0]]['scenario']}: a line for each seed", xlim=(-0.3, 1.3)
        )
        return figure


def _error(runs: Sequence[Mapping[str, Any]], seed: int, setting: Mapping[str, Any]) -> float:
    same = ("scenario", "places")
    mine = (row for row in runs if row["seed"] == seed and all(row[key] == setting[key] for key in same))
    return float(next(mine)["error"])


def _beta_density(at: Any, alpha: float) -> Any:
    """Beta(α, α) at each λ, computed by logarithms so that no power underflows."""
    log_constant = math.lgamma(2 * alpha) - 2 * math.lgamma(alpha)
    return np.exp(log_constant + (alpha - 1) * (np.log(at) + np.log1p(-at)))


def _block(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU()]


def _lattice(first: tuple[float, float], second: tuple[float, float]) -> Tensor:
    return torch.cartesian_prod(torch.linspace(*first, _GRID), torch.linspace(*second, _GRID))


def _around(points: Tensor) -> list[tuple[float, float]]:
    """The range of each coordinate, with a margin."""
    low, high = points.min(dim=0).values, points.max(dim=0).values
    margin = 0.06 * (high - low)
    return list(zip((low - margin).tolist(), (high + margin).tolist(), strict=True))


def _certainty(axes: Axes, net: nn.Module, first: tuple[float, float], second: tuple[float, float]) -> None:
    """Colour a rectangle by the probability of class 1, and draw the line where it is one half."""
    with torch.no_grad():
        probability = net(_lattice(first, second)).softmax(dim=1)[:, 1].reshape(_GRID, _GRID).T.numpy()
    axes.imshow(
        probability, extent=(*first, *second), origin="lower", cmap=_BETWEEN, vmin=0, vmax=1, alpha=0.75, aspect="auto"
    )
    grids = np.linspace(*first, _GRID), np.linspace(*second, _GRID)
    if probability.min() < 0.5 < probability.max():
        axes.contour(*grids, probability, levels=[0.5], colors=INK, linewidths=1.2)


def _points(axes: Axes, points: Tensor, y: Tensor) -> None:
    for label, marker in enumerate("os"):
        chosen = points[y == label].T.numpy()
        axes.plot(*chosen, marker, color=CLASSES[label], markeredgecolor=INK, markeredgewidth=0.5, markersize=4)
