"""The figures of lesson 4: a tensor on its way through a pre-hook, and what decides when two passes are mixed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from hooklab.course import plots


def values_through_a_pre_hook(
    layer: nn.Module, x: Tensor, hook: Callable[[nn.Module, tuple[Any, ...]], Any]
) -> dict[str, float]:
    """Return what the caller holds, what `forward` receives and what comes out, for one number.

    Args:
        layer: a module that takes one tensor of one element.
        x: shape (1, 1).
        hook: a forward pre-hook, registered for this one call.
    """
    received: list[float] = []
    with (
        torch.no_grad(),
        layer.register_forward_pre_hook(hook),
        layer.register_forward_pre_hook(lambda module, args: received.append(args[0].item())),
    ):
        output = layer(x)
    return {"caller": x.item(), "received": received[0], "output": output.item()}


def input_through_a_pre_hook(layer: nn.Module, x: Tensor, hook: Callable[[nn.Module, tuple[Any, ...]], Any]) -> Figure:
    """Draw x, the pre-hook, the layer and its output; the numbers are `values_through_a_pre_hook`'s."""
    values = values_through_a_pre_hook(layer, x, hook)
    changed = plots.CHANGED if values["received"] != values["caller"] else plots.FORWARD
    with plots.style():
        figure, axes = plt.subplots(figsize=(8.4, 1.9))
        axes.set(xlim=(-0.5, 3.5), ylim=(-0.6, 0.7))
        axes.axis("off")
        stations = [
            (f"x = {values['caller']:g}\nthe caller's", plots.REST),
            ("pre-hook", plots.CHANGED),
            ("forward", plots.FORWARD),
            (f"output\n{values['output']:g}", plots.FORWARD),
        ]
        for place, (text, colour) in enumerate(stations):
            plots.box(axes, place, 0.0, text, colour)
        labels = [(f"{values['caller']:g}", plots.FORWARD), (f"{values['received']:g}", changed)]
        labels.append((f"{values['output']:g}", plots.FORWARD))
        for place, (text, colour) in enumerate(labels):
            plots.arrow(axes, (place + 0.34, 0.0), (place + 0.66, 0.0), colour)
            axes.text(place + 0.5, 0.12, text, ha="center", color=colour)
        return figure


def swapped(
    model: nn.Module,
    layer: str,
    take_rows: Callable[[Tensor, int], Callable[[nn.Module, tuple[Any, ...]], Any]],
    images: Tensor,
    labels: Tensor,
) -> list[dict[str, float]]:
    """Put rows of one pass into another at the door of a layer; count whose answer comes out.

    Args:
        model: gives scores of shape (N, classes) for images.
        layer: name of a module that takes maps of shape (N, channels, 8, width).
        take_rows: makes a pre-hook from what the layer took in for the other images, and a number of rows.
        images, labels: the first half is run, the second half gives the rows; pairs of the same label are left out.

    Returns:
        For 0 to 8 rows the shares of the answers: the `first` image's label, the `other`'s, or `neither`.
    """
    half = len(images) // 2
    unlike = labels[:half] != labels[half : 2 * half]
    first, other = images[:half][unlike], images[half : 2 * half][unlike]
    own, others = labels[:half][unlike], labels[half : 2 * half][unlike]
    module, stored = model.get_submodule(layer), []
    shares = []
    with torch.no_grad():
        with module.register_forward_pre_hook(lambda module, args: stored.append(args[0])):
            model(other)
        for rows in range(9):
            with module.register_forward_pre_hook(take_rows(stored[0], rows)):
                answers = model(first).argmax(dim=1)
            share = {"first": (answers == own), "other": (answers == others)}
            counted = {name: one.float().mean().item() for name, one in share.items()}
            shares.append({**counted, "neither": 1 - sum(counted.values())})
    return shares


def flips(shares: Mapping[str, Sequence[Mapping[str, float]]]) -> Figure:
    """Draw whose answer comes out against the number of rows that were swapped.

    Args:
        shares: name of the layer -> what `swapped` gave; the first is drawn solid, the second dashed.
    """
    colours = {"first": plots.FORWARD, "other": plots.CHANGED, "neither": plots.REST}
    labels = {"first": "the first digit", "other": "the one that gave the rows", "neither": "a third digit"}
    with plots.style():
        figure, axes = plt.subplots(figsize=(8.6, 3.6))
        for line, (layer, counted) in zip(("-", "--"), shares.items(), strict=False):
            for whose, colour in colours.items():
                name = (
                    labels[whose]
                    if line == "-"
                    else f"(dashed: at the door of {layer})"
                    if whose == "neither"
                    else None
                )
                values = [100 * share[whose] for share in counted]
                axes.plot(range(len(values)), values, line, color=colour, label=name)
        axes.set(xlabel="rows that come from the other picture", ylabel="% of the answers", ylim=(0, 102))
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        return figure
