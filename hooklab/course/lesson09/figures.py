"""The figures of lesson 9. What they show is computed by the lesson, or by its `maps` and `heads`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from hooklab.course.explorers import inches
from hooklab.course.lesson09.maps import peaks
from hooklab.course.lesson09.shapes import SHAPES, SIDE, Pictures
from hooklab.course.plots import BACKWARD, CHANGED, FORWARD, INK, REST, SIGNED, arrow, style

MAP = "cividis"  # dark is nothing, yellow is most
_TILE, _GAP = 1.25, 0.12


def pictures(made: Pictures, count: int = 7) -> Figure:
    """Draw the first pictures, each under its label."""
    with style():
        figure, axes = inches(0.1 + count * (_TILE + _GAP), _TILE + 0.4)
        for column in range(count):
            left = 0.1 + column * (_TILE + _GAP)
            picture(axes, made.images[column], (left, 0.05))
            axes.text(left + _TILE / 2, _TILE + 0.15, SHAPES[int(made.labels[column])], ha="center", color=INK)
        return figure


def maps(made: Pictures, rows: Mapping[str, Tensor], count: int = 6) -> Figure:
    """Draw the first pictures in a row, and a row of maps below for each entry: name -> maps (n, 32, 32)."""
    with style():
        left_edge, step = 1.55, _TILE + _GAP
        figure, axes = inches(left_edge + count * step, (len(rows) + 1) * step + 0.05)
        for row, (name, values) in enumerate([("picture", made.images), *rows.items()]):
            bottom = (len(rows) - row) * step + 0.08
            axes.text(left_edge - 0.15, bottom + _TILE / 2, name, ha="right", va="center", color=INK)
            for column in range(count):
                corner = (left_edge + column * step, bottom)
                if row == 0:
                    picture(axes, values[column], corner)
                else:
                    heat(axes, values[column], made.masks[column], corner)
        return figure


def two_classes(
    made: Pictures, others: Tensor, found: Mapping[str, Sequence[Tensor]], alike: Mapping[str, float]
) -> Figure:
    """Draw the first picture, and each method's map for its own class above the map for a different class.

    Args:
        made: the pictures.
        others: the other class of each.
        found: method -> the maps for the pictures' own classes and those for the other classes, each (n, 32, 32).
        alike: method -> how much the two are alike, a rank correlation.
    """
    with style():
        left_edge, step, row_step = 2.45, 1.46, _TILE + _GAP
        figure, axes = inches(left_edge + len(found) * step, 2 * row_step + 0.65)
        picture(axes, made.images[0], (0.05, 0.35 + row_step / 2))
        for label, height in ((made.labels[0], 1.5), (others[0], 0.5)):
            name = f"for a\n{SHAPES[int(label)]}"
            axes.text(left_edge - 0.1, 0.35 + height * row_step, name, ha="right", va="center", color=INK)
        axes.text(left_edge - 0.1, 0.1, "correlation", ha="right", color=INK)
        for column, (name, two) in enumerate(found.items()):
            x = left_edge + column * step
            for values, bottom in zip(two, (0.35 + row_step, 0.35), strict=True):
                heat(axes, values[0], made.masks[0], (x, bottom), dot=False)
            axes.text(x + _TILE / 2, 2 * row_step + 0.4, name, ha="center", color=INK)
            axes.text(x + _TILE / 2, 0.1, f"{alike[name]:.1f}".replace("-", "−"), ha="center", color=INK)
        return figure


def picture(axes: Axes, image: Tensor, corner: tuple[float, float], side: float = _TILE) -> None:
    """Draw an image of shape (3, 32, 32) on axes whose units are inches."""
    x, y = corner
    shown = image.clamp(0, 1).permute(1, 2, 0).numpy()
    axes.imshow(shown, extent=(x, x + side, y, y + side), interpolation="nearest")


def heat(
    axes: Axes, values: Tensor, mask: Tensor, corner: tuple[float, float], side: float = _TILE, dot: bool = True
) -> None:
    """Draw a map of shape (32, 32), the outline of the shape on it, and a dot at its largest number.

    A map with numbers below zero is blue where they are positive and vermilion where they are negative.
    """
    x, y = corner
    most, signed = values.abs().max().item(), bool((values < 0).any())
    look: Any = {"cmap": SIGNED, "vmin": -most, "vmax": most} if signed else {"cmap": MAP, "vmin": 0}
    axes.imshow(values.numpy(), extent=(x, x + side, y, y + side), interpolation="nearest", **look)
    at, line = (torch.arange(SIDE) + 0.5) / SIDE * side, REST if signed else "white"
    axes.contour((x + at).numpy(), (y + side - at).numpy(), mask.numpy(), levels=[0.5], colors=line, linewidths=1.2)
    if not dot:
        return
    row, column = ((peaks(values.unsqueeze(0))[0] + 0.5) / SIDE * side).tolist()
    axes.plot(x + column, y + side - row, "o", color=BACKWARD, markeredgecolor="white", markersize=7)


def scoreboard(scores: Mapping[str, Mapping[str, float]], xlabel: str, line: tuple[float, str]) -> Figure:
    """Draw one line for each method, with a mark for each network.

    Args:
        scores: method -> network -> a number from 0 to 1; at most three networks.
        xlabel: what the number is.
        line: the number to compare with, drawn as a thin line, and its name.
    """
    marks = [("o", BACKWARD), ("s", FORWARD), ("x", INK)]
    with style():
        figure, axes = plt.subplots(figsize=(8.4, 0.45 * len(scores) + 1.3))
        names = list(next(iter(scores.values())))
        axes.axvline(line[0], color=REST, linewidth=1, linestyle=":", label=line[1])
        for network, (mark, colour) in zip(names, marks, strict=False):
            at = [found[network] for found in scores.values()]
            axes.plot(at, range(len(scores)), mark, color=colour, label=network, markersize=9, markeredgewidth=2.5)
        axes.set(xlim=(-0.03, 1.03), ylim=(len(scores) - 0.5, -0.5), xlabel=xlabel)
        axes.set_yticks(range(len(scores)), list(scores))
        axes.grid(axis="y", color="#DDDDDD", linewidth=0.8)
        figure.legend(loc="outside upper right", ncols=4, fontsize=10)
        return figure


def attention(patterns: Tensor, tokens: Tensor, period: int) -> Figure:
    """Draw the attention of all heads on one sequence, with a line between its copies.

    Args:
        patterns: shape (layers, heads, to, from).
        tokens: the sequence, shape (length,).
        period: the length of a copy.
    """
    layers, heads = patterns.shape[:2]
    names = [str(token) for token in tokens.tolist()]
    lower = ["\n" * (place % 2) + name for place, name in enumerate(names)]  # every other one lower: they have room
    with style():
        figure, places = plt.subplots(layers, heads, figsize=(3.6 * heads, 3.6 * layers))
        for layer, head in ((layer, head) for layer in range(layers) for head in range(heads)):
            axes = places[layer][head]
            axes.imshow(patterns[layer, head].numpy(), cmap="Greens", vmin=0, vmax=1)
            axes.set_title(f"layer {layer}, head {head}")
            axes.set_xticks(range(len(names)), lower, fontsize=8)
            axes.set_yticks(range(len(names)), names, fontsize=8)
            for first in range(period, len(names), period):
                axes.axhline(first - 0.5, color=REST, linewidth=0.8)
                axes.axvline(first - 0.5, color=REST, linewidth=0.8)
            axes.set(xlabel="looks at this token", ylabel="this token")
        return figure


def bars(shares: Mapping[str, float], xlabel: str, changed: Sequence[str] = ()) -> Figure:
    """Draw a bar for each share from 0 to 1, or each count, with its number; those named in `changed` are purple."""
    limit = 1.08 * max(1, *shares.values())
    with style():
        figure, axes = plt.subplots(figsize=(8.0, 0.36 * len(shares) + 0.8))
        colours = [CHANGED if name in changed else REST for name in shares]
        axes.barh(range(len(shares)), list(shares.values()), color=colours, height=0.65)
        for row, share in enumerate(shares.values()):
            number = str(share) if isinstance(share, int) else f"{share:.2f}"
            axes.text(share + 0.01 * limit, row, number, va="center", fontsize=10, color=INK)
        axes.set(xlim=(0, limit), ylim=(len(shares) - 0.5, -0.5), xlabel=xlabel)
        axes.set_yticks(range(len(shares)), list(shares))
        return figure


def carried(found: Tensor, tokens: Sequence[int], broken: int) -> Figure:
    """Draw, for each place in the network and each position, how often a patch there brings the answer back.

    An arrow leads from the best position of each depth to that of the next one; shares below 0.05 have no number.

    Args:
        found: shape (layers + 1, positions), shares from 0 to 1.
        tokens: of one of the clean sequences.
        broken: the position whose token was replaced.
    """
    names = ["after the embedding", *(f"after layer {layer}" for layer in range(len(found) - 1))]
    with style():
        figure, axes = plt.subplots(figsize=(9.4, 2.6))
        axes.imshow(found.numpy(), cmap="Greens", vmin=0, vmax=1, aspect="auto")
        for row, column in (found >= 0.05).nonzero().tolist():
            share = found[row, column].item()
            colour = "white" if share > 0.6 else INK
            axes.text(column, row, f"{share:.1f}", ha="center", va="center", fontsize=9, color=colour)
        best = found.argmax(dim=1).tolist()
        for layer, (start, end) in enumerate(pairwise(best)):
            arrow(axes, (start + 0.3, layer + 0.3), (end - 0.3, layer + 0.75), CHANGED)
            axes.text(end + 0.2, layer + 0.42, f"layer {layer} copies", ha="right" if layer else "left", color=CHANGED)
        axes.set_yticks(range(len(found)), names)
        axes.set_xticks(range(len(tokens)), [f"{token}\n{place}" for place, token in enumerate(tokens)], fontsize=8)
        axes.get_xticklabels()[broken].set_color(CHANGED)
        axes.get_xticklabels()[broken].set_fontweight("bold")
        axes.set_xlabel("token of one of the sequences, and position below it; purple: replaced in the corrupted run")
        axes.spines[:].set_visible(False)
        return figure


def doses(found: Mapping[str, Tensor], at: Sequence[float], ylabel: str) -> Figure:
    """Draw a line for each direction: dose across, effect up."""
    with style():
        figure, axes = plt.subplots(figsize=(7.4, 3.0))
        for (name, effect), colour in zip(found.items(), (CHANGED, REST), strict=True):
            end = (at[-1], effect[-1].item())
            axes.plot(at, effect.numpy(), "o-", color=colour)
            axes.annotate(name, end, (8, 0), textcoords="offset points", va="center", color=colour)
        axes.set(xlabel="dose: how many times the direction is added", ylabel=ylabel, ylim=(-0.05, 1.05))
        axes.set_xlim(at[0], at[-1] + 0.4 * (at[-1] - at[0]))
        axes.set_xticks(at)
        return figure
