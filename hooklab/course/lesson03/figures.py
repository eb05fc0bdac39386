"""The figures of lesson 3: `feature_maps`, what each layer put out, and `bytes_held`, what a capture costs."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from torch import Tensor

from hooklab.course.plots import CAPTURED, FORWARD, INK, REST, style

# Below zero grey, zero white, above zero the colour of the forward pass.
SIGNED = LinearSegmentedColormap.from_list("signed", ["#303030", "white", FORWARD])
COLUMNS = 8


def feature_maps(image: Tensor, maps: Mapping[str, Tensor]) -> Figure:
    """Draw an image, and the feature maps that layers made of it: a row of panels for each eight channels.

    Each layer has one scale for all its channels: white is zero, blue is above, dark grey is below.

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
    rows = [(name, values, start) for name, values in maps.items() for start in range(0, len(values), COLUMNS)]
    with style():
        figure = plt.figure(figsize=(9.4, 1.02 * len(rows) + 0.3))
        grid = figure.add_gridspec(len(rows), COLUMNS + 2, width_ratios=[1.35, 0.62] + [1] * COLUMNS)
        axes = figure.add_subplot(grid[:1, 0])
        axes.imshow(image.detach().squeeze(0).cpu().numpy(), cmap="Greys")
        axes.set_title("the image", fontsize=9, color=INK)
        _no_ticks(axes)
        for row, (name, values, start) in enumerate(rows):
            label = figure.add_subplot(grid[row, 1])
            label.axis("off")
            text = name if start == 0 else ""
            label.text(1.0, 0.5, text, ha="right", va="center", family="monospace", color=CAPTURED)
            _row(figure, [grid[row, 2 + column] for column in range(COLUMNS)], values.detach(), start)
        return figure


def _row(figure: Figure, places: list[object], values: Tensor, start: int) -> None:
    limit = values.abs().max().item() or 1.0
    for place, channel in zip(places, range(start, len(values)), strict=False):
        axes = figure.add_subplot(place)  # type: ignore[call-overload]
        axes.imshow(values[channel].cpu().numpy(), cmap=SIGNED, vmin=-limit, vmax=limit)
        axes.set_title(str(channel), fontsize=8, color=REST, loc="center", pad=2)
        _no_ticks(axes)


def bytes_held(sizes: Mapping[str, int]) -> Figure:
    """Draw how many bytes each way of keeping a value holds in memory, as bars on a scale of powers of ten.

    Args:
        sizes: a way of keeping -> bytes, all above zero; the first is drawn at the top.
    """
    with style():
        figure, axes = plt.subplots(figsize=(7.6, 0.42 * len(sizes) + 0.9))
        places = range(len(sizes))
        axes.barh(places, list(sizes.values()), color=CAPTURED, height=0.6)
        for place, size in zip(places, sizes.values(), strict=True):
            axes.text(size * 1.15, place, f"{size:,}", va="center", color=INK)
        axes.set_yticks(places, list(sizes), family="monospace")
        axes.set(xscale="log", xlim=(1, max(sizes.values()) * 6), xlabel="bytes held after the pass", ylim=(-0.6, None))
        axes.invert_yaxis()
        return figure


def _no_ticks(axes: Axes) -> None:
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(visible=True, color=REST, linewidth=0.6)
