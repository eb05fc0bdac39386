"""Mixing: two digits, mixed at the input or inside the network, and what the network says to the mixture."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import ipywidgets as widgets
import torch
from matplotlib.figure import Figure
from torch import Tensor

from hooklab.course import plots
from hooklab.course.digits import digits, trained_digits_cnn
from hooklab.course.explorers import Explorer, inches, panel, tile
from hooklab.editing import edit

LAYERS = ("input", "relu1", "relu2", "pool")
SHOWN = 4


@dataclass(frozen=True)
class Mixture:
    """Two digits mixed: λ times the first and 1 − λ times the second.

    Attributes:
        first, second: the images, shape (8, 8).
        mixed: what the rest of the network gets: the image, shape (1, 8, 8), or the maps, (channels, height, width).
        probabilities: the network's answer, shape (10,).
    """

    first: Tensor
    second: Tensor
    mixed: Tensor
    probabilities: Tensor


@functools.lru_cache(maxsize=1)
def _examples() -> Tensor:
    """The first test image of each class, shape (10, 1, 8, 8)."""
    data = digits()
    return torch.stack([data.test_images[data.test_labels == digit][0] for digit in range(10)])


def mix(first: int, second: int, lam: float, layer: str) -> Mixture:
    """Mix the first test images of two classes at a layer, as manifold mixup does (`hooklab.edit` returns the mixture).

    Args:
        first, second: classes, 0 to 9.
        lam: the share of the first, 0 to 1.
        layer: one of LAYERS.
    """
    images = _examples()[[first, second]]
    seen: list[Tensor] = []

    def blend(output: Tensor, call: object = None) -> Tensor:
        mixed = lam * output + (1 - lam) * output.flip(0)
        seen.append(mixed[0])
        return mixed

    model = trained_digits_cnn()
    with torch.no_grad():
        if layer == "input":
            scores = model(blend(images))
        else:
            with edit(model, blend, layer):
                scores = model(images)
    return Mixture(images[0, 0], images[1, 0], seen[0], scores[0].softmax(dim=0))


def draw_mixture(mixture: Mixture, classes: tuple[int, int]) -> Figure:
    """Draw both digits, the mixture (the image, or its four strongest maps), and the network's answer as bars."""
    with plots.style():
        figure, axes = inches(9.0, 2.9)
        grey = {"cmap": "gray_r", "vmin": 0}
        tile(axes, mixture.first, (0.1, 1.55), 1.05, "first", **grey)
        tile(axes, mixture.second, (0.1, 0.1), 1.05, "second", **grey)
        if len(mixture.mixed) == 1:
            tile(axes, mixture.mixed[0], (1.6, 0.35), 2.05, "mixed image", **grey)
        else:
            strongest = mixture.mixed.flatten(1).norm(dim=1).argsort(descending=True)[:SHOWN]
            for place, channel in enumerate(strongest.sort().values.tolist()):
                row, column = divmod(place, 2)
                corner = (1.55 + 1.2 * column, 1.55 - 1.45 * row)
                tile(axes, mixture.mixed[channel], corner, 1.05, f"mixed map {channel}", **grey)
        bars = figure.add_axes((0.52, 0.2, 0.46, 0.65))
        colours = [plots.CHANGED if digit in classes else plots.REST for digit in range(10)]
        bars.bar(range(10), mixture.probabilities.tolist(), color=colours)
        bars.set(ylim=(0, 1), xticks=range(10), xlabel="class", title="the network's answer (probability)")
        return figure


def describe_mixture(mixture: Mixture, first: int, second: int, lam: float, layer: str) -> str:
    """Return the setting and the answer in a sentence."""
    best = int(mixture.probabilities.argmax())
    where = "at the input" if layer == "input" else f"at {layer}"
    chance = f"{100 * float(mixture.probabilities[best]):.0f} %"
    shares = f"{lam:.2f} of a {first} and {1 - lam:.2f} of a {second}"
    return f"{shares}, mixed {where}: the network says {best}, with {chance}."


def mixing() -> Explorer:
    """Return the explorer: two digits, λ, and the layer at which they are mixed."""
    controls: dict[str, widgets.Widget] = {
        "first": widgets.IntSlider(0, 0, 9, 1, description="first"),
        "second": widgets.IntSlider(7, 0, 9, 1, description="second"),
        "lam": widgets.FloatSlider(value=0.5, min=0, max=1, step=0.05, description="λ"),
        "layer": widgets.Dropdown(options=LAYERS, value="input", description="mixed at"),
    }
    return panel(
        lambda first, second, lam, layer: draw_mixture(mix(first, second, lam, layer), (first, second)),
        lambda first, second, lam, layer: describe_mixture(mix(first, second, lam, layer), first, second, lam, layer),
        controls,
        intro="Try this: move λ from 1 to 0 and watch the bars; then mix the same two digits deeper in the network.",
        rows=[[controls["first"], controls["second"]], [controls["lam"], controls["layer"]]],
    )
