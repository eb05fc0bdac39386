"""The figures of lesson 3: the output of each layer, what a channel is worth, and what a capture costs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from hooklab.course.explorers import inches, tile
from hooklab.course.plots import CAPTURED, FORWARD, INK, REST, SIGNED, style

COLUMNS = 8


def feature_maps(image: Tensor, maps: Mapping[str, Tensor]) -> Figure:
    """Draw an image and the feature maps that layers compute from it, eight channels in a row.

    Each layer has one scale for all its channels: white is zero, blue is positive, orange negative.

    Args:
        image: shape (height, width) or (1, height, width), what the network was given.
        maps: layer name -> its output for this image, shape (channels, height, width), in the order to be drawn.

    Raises:
        ValueError: an output does not have the three dimensions of one image.
    """
    for name, values in maps.items():
        if values.dim() != 3:
            raise ValueError(
                f"{name!r} has shape {tuple(values.shape)}, expected (channels, height, width): take one image of the "
                "batch, as in captured[0]"
            )
    rows = [(name, values.detach(), start) for name, values in maps.items() for start in range(0, len(values), COLUMNS)]
    height = 1.08 * len(rows) + 0.04
    with style():
        figure, axes = inches(9.4, height)
        tile(axes, image.detach().squeeze(0), (0.05, height - 1.18), 0.95, "the image", cmap="Greys")
        for row, (name, values, start) in enumerate(rows, 1):
            bottom, limit = height - 1.08 * row, values.abs().max().item() or 1.0
            if start == 0:
                at = (1.98, bottom + 0.42)
                axes.text(*at, name, ha="right", va="center", family="monospace", fontsize=10, color=CAPTURED)
            for column, channel in enumerate(values[start : start + COLUMNS]):
                corner = (2.06 + 0.92 * column, bottom)
                tile(axes, channel, corner, 0.84, f"{start + column}", cmap=SIGNED, vmin=-limit, vmax=limit)
        return figure


def answers(model: nn.Module, images: Tensor) -> Tensor:
    """Return the class that the model gives each image, shape (N,), int64."""
    with torch.no_grad():
        scores: Tensor = model(images)
        return scores.argmax(dim=1)


def worth(costs: Sequence[Sequence[float]], unchanged: Sequence[Collection[int]]) -> Figure:
    """Draw what switching off each channel costs, in points of accuracy: a panel for each network.

    Args:
        costs: for each network and channel, the share of answers that are right with it, less that without it.
        unchanged: for each network, the channels without which every answer is the same; they are marked with a cross.
    """
    with style():
        figure, panels = plt.subplots(
            1, len(costs), figsize=(9.6, 2.7), sharey=True, squeeze=False, layout="constrained"
        )
        for number, (axes, row, same) in enumerate(zip(panels[0], costs, unchanged, strict=True)):
            axes.bar(range(len(row)), [100 * cost for cost in row], color=FORWARD, width=0.7)
            axes.axhline(0, color=REST, linewidth=0.8)
            axes.plot(list(same), [0] * len(same), "x", color=INK, ms=6, mew=1.6)
            axes.set(title=f"network {number}", xticks=range(0, len(row), 5))
        panels[0][0].set(ylabel="points of accuracy lost")
        figure.supxlabel("channel of relu2 that is off (x: not one answer changes)", fontsize=10)
        return figure


def bytes_held(sizes: Mapping[str, int]) -> Figure:
    """Draw how many bytes each way of keeping a value holds in memory, as bars.

    Args:
        sizes: a way of keeping -> bytes; the first is drawn at the top.
    """
    with style():
        figure, axes = plt.subplots(figsize=(7.6, 0.42 * len(sizes) + 0.9))
        places = range(len(sizes))
        axes.barh(places, list(sizes.values()), color=CAPTURED, height=0.6)
        for place, size in zip(places, sizes.values(), strict=True):
            axes.text(size + 0.015 * max(sizes.values()), place, f"{size:,}", va="center", color=INK)
        axes.set_yticks(places, list(sizes), family="monospace")
        axes.set(xlim=(0, 1.15 * max(sizes.values())), xlabel="bytes held after the pass", ylim=(-0.6, None), xticks=[])
        axes.invert_yaxis()
        return figure
