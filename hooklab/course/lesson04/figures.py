"""The figure of lesson 4: a tensor on its way through a pre-hook into a layer."""

from __future__ import annotations

from collections.abc import Callable
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
