"""The figures of lesson 4: digits on both kinds of paper, and what decides when two passes are mixed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from hooklab.course import plots

FLIPS = (
    "With more rows swapped, the first digit's share falls and the other's rises; a third digit's is largest half-way."
)


def both_papers(images: Tensor, inverted: Tensor) -> Figure:
    """Draw images of shape (N, 1, height, width) in a row, and below each its inverted one."""
    with plots.style():
        figure, axes = plt.subplots(2, len(images), figsize=(1.2 * len(images), 2.6))
        for row, pictures in zip(axes, (images, inverted), strict=True):
            for place, picture in zip(row, pictures, strict=True):
                plots.ink(place, picture[0])
                plots.frame(place)
        return figure


def swapped(
    model: nn.Module,
    layer: str,
    take: Callable[[Tensor, int], Callable[[nn.Module, tuple[Any, ...]], Any]],
    images: Tensor,
    labels: Tensor,
) -> list[dict[str, float]]:
    """Put rows, or channels, of one pass into another at the door of a layer; count whose answer comes out.

    Args:
        model: gives scores of shape (N, classes) for images.
        layer: name of a module whose input has 8 rows, or 8 channels.
        take: makes a pre-hook from the layer's input for the other images, and the number of rows or channels to take.
        images, labels: the first half is run, the second half is taken from; pairs with the same label are left out.

    Returns:
        For 0 to 8 rows or channels the shares of the answers: the `first` image's label, the `other`'s, or `neither`.
    """
    (first, own), (other, others) = _pairs(images, labels)
    module, stored = model.get_submodule(layer), []
    shares = []
    with torch.no_grad():
        with module.register_forward_pre_hook(lambda module, args: stored.append(args[0])):
            model(other)
        for count in range(9):
            with module.register_forward_pre_hook(take(stored[0], count)):
                answers = model(first).argmax(dim=1)
            share = {"first": (answers == own), "other": (answers == others)}
            counted = {name: one.float().mean().item() for name, one in share.items()}
            shares.append({**counted, "neither": 1 - sum(counted.values())})
    return shares


def who_wins(run: Callable[[Tensor, Tensor], Tensor], images: Tensor, labels: Tensor) -> tuple[float, float, float]:
    """Count the answers of mixed passes.

    Args:
        run: returns scores of shape (N, classes) for (source, target), two batches of N images.
        images, labels: the first half are the targets, the second half the sources, paired as in `swapped`.

    Returns:
        The shares of the answers that are the target's label, the source's, or neither.
    """
    (target, own), (source, others) = _pairs(images, labels)
    with torch.no_grad():
        answers = run(source, target).argmax(dim=1)
    first, other = ((answers == one).float().mean().item() for one in (own, others))
    return first, other, 1 - first - other


class ThirdDigit(NamedTuple):
    """A picture of two halves, the labels of its upper and its lower one, and what the model reads."""

    picture: Tensor
    upper: int
    lower: int
    answer: int


def third_digits(model: nn.Module, images: Tensor, labels: Tensor, count: int = 3) -> list[ThirdDigit]:
    """Return mixed pictures that the model reads as a third digit, each as a different one, the surest first.

    The upper half comes from the other picture of a pair, which is what swapping half of the rows does at the door of
    the first layer. Arguments as for `swapped`.
    """
    (first, own), (other, others) = _pairs(images, labels)
    middle = images.shape[2] // 2
    pictures = torch.cat([other[:, :, :middle], first[:, :, middle:]], dim=2)
    with torch.no_grad():
        sureness, answers = model(pictures).softmax(dim=1).max(dim=1)
    found: dict[int, ThirdDigit] = {}
    for place in sureness.argsort(descending=True).tolist():
        one = ThirdDigit(pictures[place, 0], *(int(each[place]) for each in (others, own, answers)))
        if one.answer not in (one.upper, one.lower):
            found.setdefault(one.answer, one)
    return list(found.values())[:count]


def _pairs(images: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The two halves of the images with their labels, without the pairs that have the same label."""
    half = len(images) // 2
    unlike = labels[:half] != labels[half : 2 * half]
    return [(images[part][unlike], labels[part][unlike]) for part in (slice(half), slice(half, 2 * half))]


def flips(shares: Mapping[str, Sequence[Mapping[str, float]]], third: Sequence[ThirdDigit]) -> Figure:
    """Draw whose answer comes out against the number of rows that were swapped, and pictures with a third answer.

    Args:
        shares: name of the layer -> what `swapped` returned; the first is drawn solid, the second dashed.
        third: pictures to show on the right.
    """
    colours = {"first": plots.FORWARD, "other": plots.CHANGED, "neither": plots.REST}
    labels = {"first": "the first digit", "other": "the one that gave the rows", "neither": "a third digit"}
    with plots.style():
        figure = plt.figure(figsize=(9.2, 3.9))
        grid = figure.add_gridspec(len(third) or 1, 3, width_ratios=(5, 1, 1.2))
        axes = figure.add_subplot(grid[:, 0])
        for line, (layer, counted) in zip(("-", "--"), shares.items(), strict=False):
            for whose, colour in colours.items():
                values = [100 * share[whose] for share in counted]
                axes.plot(range(len(values)), values, line, color=colour, label=labels[whose] if line == "-" else None)
            axes.plot([], [], line, color=plots.INK, label=f"at {layer}")
        axes.set(xlabel="rows that come from the other picture", ylabel="% of the answers", ylim=(0, 102))
        figure.legend(loc="outside lower center", ncols=5, fontsize=9.5)
        for row, one in enumerate(third):
            halves = figure.add_subplot(grid[row, 1])
            plots.ink(halves, one.picture)
            plots.frame(halves)
            halves.axhline(len(one.picture) / 2 - 0.5, color=plots.CHANGED, linewidth=1.5)
            text = figure.add_subplot(grid[row, 2])
            text.axis("off")
            for height, colour, words in (
                (0.78, plots.CHANGED, f"of a {one.upper}"),
                (0.22, plots.FORWARD, f"of a {one.lower}"),
                (0.5, plots.INK, f"read as {one.answer}"),
            ):
                text.text(0.0, height, words, color=colour, va="center")
        return figure
