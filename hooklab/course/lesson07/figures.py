"""The figures of lesson 7: `lambdas`, `mixed_digits`, `spirals` (with its data and network), `differences`.

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

from hooklab.course.plots import CHANGED, FORWARD, INK, REST, style

# Two classes need two colours that mean nothing else in the course: Okabe-Ito's orange and sky blue.
CLASSES = ("#E69F00", "#56B4E9")
_BETWEEN = LinearSegmentedColormap.from_list("between", [CLASSES[0], "white", CLASSES[1]])
_MAPS = LinearSegmentedColormap.from_list("maps", ["white", FORWARD])
_CHANGED_MAPS = LinearSegmentedColormap.from_list("changed maps", ["white", CHANGED])
_GRID = 90


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
            grid[0, column].imshow(image.detach().numpy(), cmap="Greys", vmin=0, vmax=1)
        grid[0, 3].text(0.5, 0.5, "both go in,\nas they are", ha="center", va="center", color=INK, fontsize=10)
        for axes in grid.flat:
            _frame(axes, visible=bool(axes.images))
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
    hidden plane, grey dots are points from all over the input square.

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
            row[0].set(title=title, xlabel="x₁", ylabel="x₂", aspect="equal")
            row[1].set(title="the hidden layer", xlabel="unit 1", ylabel="unit 2")
        return figure


def differences(summary: Mapping[str, Sequence[Mapping[str, Any]]], against: str = "none") -> Figure:
    """Draw an experiment's paired differences with their intervals: a panel for each metric and setting.

    What is significant is purple with a round mark, the rest grey with a square one.

    Args:
        summary: as `hooklab.course.lesson07.report.summary` returns it.
        against: the method that the others are compared with.
    """
    rows = [row for row in summary["differences"] if row["against"] == against and row["low"] is not None]
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    metrics = {"error": "error, percentage points", "nll": "NLL, nats"}
    with style():
        figure, grid = plt.subplots(len(settings), 2, figsize=(8.6, 2.3 * len(settings) + 0.4), squeeze=False)
        for line, setting in zip(grid, settings, strict=True):
            for axes, (metric, label) in zip(line, metrics.items(), strict=True):
                shown = [row for row in rows if (row["setting"], row["metric"]) == (setting, metric)]
                for place, row in enumerate(shown):
                    colour = CHANGED if row["significant"] else REST
                    axes.plot([row["low"], row["high"]], [place, place], color=colour, solid_capstyle="butt")
                    axes.plot(row["mean"], place, "o" if row["significant"] else "s", color=colour, markersize=6)
                axes.axvline(0, color=INK, linewidth=0.8)
                axes.set_yticks(range(len(shown)), [row["method"] for row in shown] if metric == "error" else [])
                axes.set(title=setting, xlabel=f"{label}, difference from {against!r}", ylim=(len(shown) - 0.5, -0.5))
        return figure


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


def _frame(axes: Axes, *, visible: bool = True) -> None:
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(visible=visible, color=REST, linewidth=0.6)
