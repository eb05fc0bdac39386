"""The figures of lesson 1: a value that is used twice, how many gradients are in memory, and a descent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from hooklab.course.plots import BACKWARD, CAPTURED, FORWARD, INK, REST, arrow, bare, box, style

LAYERS = 40


def fork(x: Tensor, y: Tensor, parts: Mapping[str, Tensor], z: Tensor) -> Figure:
    """Draw x → y → two parts → z, with the gradient on every edge. The tensors' own flags say which of them keep it.

    Args:
        x: the leaf; one number, as all of them.
        y: made from x, and used by both parts.
        parts: label -> tensor, two of them, both made from y.
        z: the sum of the two parts.
    """
    (to_y,) = torch.autograd.grad(z, y, retain_graph=True)
    pieces = [torch.autograd.grad(part, y, retain_graph=True)[0] for part in parts.values()]
    with style():
        figure, axes = bare(9.0, 3.4, (-0.6, 4.6), (-0.75, 2.6))
        places = {"x": (0.0, 1.0), "y": (1.3, 1.0), "z": (3.9, 1.0)}
        for (name, (across, up)), tensor in zip(places.items(), (x, y, z), strict=True):
            kept = tensor.is_leaf or tensor.retains_grad
            kind = "leaf" if tensor.is_leaf else "non-leaf"
            box(axes, across, up, f"{name} = {tensor.item():g}\n{kind}", CAPTURED if kept else REST)
        arrow(axes, (0.34, 1.12), (0.96, 1.12), FORWARD)
        arrow(axes, (0.96, 0.88), (0.34, 0.88), BACKWARD)
        axes.text(0.65, 0.55, f"{to_y.item():g}", ha="center", color=BACKWARD)
        for up, (label, part), piece in zip((1.9, 0.1), parts.items(), pieces, strict=True):
            box(axes, 2.6, up, f"{label}\n= {part.item():g}", REST)
            lean = 0.09 if up > 1 else -0.09
            arrow(axes, (1.62, 1.0 + 4 * lean), (2.26, up - lean), FORWARD)
            arrow(axes, (2.26, up - 3 * lean), (1.64, 1.0 + 2 * lean), BACKWARD)
            axes.text(2.12, 1.0 + 2.9 * lean, f"{piece.item():g}", ha="center", va="center", color=BACKWARD)
            arrow(axes, (2.94, up), (3.56, 1.0 + 3 * lean), FORWARD)
            arrow(axes, (3.58, 1.0 + lean), (2.94, up - 2 * lean), BACKWARD)
            axes.text(3.12, 1.0 + 2.9 * lean, "1", ha="center", va="center", color=BACKWARD)
        total = " + ".join(f"{piece.item():g}" for piece in pieces)
        axes.text(1.3, 0.42, f"{total} = {to_y.item():g}", ha="center", color=BACKWARD, weight="bold")
        axes.text(1.3, 0.1, "passed on" if not y.retains_grad else "kept in .grad", ha="center", color=INK, fontsize=9)
        axes.text(0.0, 0.42, "kept in .grad", ha="center", color=CAPTURED, fontsize=9)
        return figure


def chain(mark: Callable[[Tensor], Tensor]) -> Tensor:
    """Run forty layers, one after the other; `mark` gets each layer's output and returns it."""
    x = _input()
    for _ in range(LAYERS):
        x = mark(torch.tanh(x))
    return x


def long_skips(mark: Callable[[Tensor], Tensor]) -> Tensor:
    """Run forty layers; the first twenty outputs are added to the last twenty, in reverse order, as in a U-Net."""
    x, first = _input(), []
    for _ in range(LAYERS // 2):
        x = mark(torch.tanh(x))
        first.append(x)
    for skip in reversed(first):
        x = mark(torch.tanh(x) + skip)
    return x


def _input() -> Tensor:
    return torch.linspace(-1, 1, 1000).requires_grad_()


def alive(counts: Mapping[str, Sequence[int]]) -> Figure:
    """Draw how many gradients were in memory as each arrived.

    Args:
        counts: name of the network -> the number of gradients in memory each time one arrives; at most three.
    """
    with style():
        figure, axes = plt.subplots(figsize=(8.0, 3.2))
        for (name, numbers), colour in zip(counts.items(), (BACKWARD, FORWARD, REST), strict=False):
            axes.step(range(1, len(numbers) + 1), numbers, where="mid", color=colour)
            middle = len(numbers) // 2
            axes.text(middle, numbers[middle] + 0.8, name, color=colour, ha="center", va="bottom")
        top = max(max(numbers) for numbers in counts.values())
        axes.set(
            xlabel="gradients that have arrived so far, from the last layer to the first",
            ylabel="gradients in memory",
            ylim=(0, 1.25 * top),
            xlim=(0.5, None),
        )
        return figure


def descent(path: torch.Tensor, centre: Sequence[float]) -> Figure:
    """Draw a descent of z = ½((x₁−c₁)² + (x₂−c₂)²): lines of equal height, and the path's points from first to last.

    Args:
        path: shape (points, 2).
        centre: (c₁, c₂), where z is smallest.
    """
    points = path.detach().numpy()
    with style():
        figure, axes = plt.subplots(figsize=(5.2, 4.2))
        low, high = points.min(axis=0).tolist(), points.max(axis=0).tolist()
        first = np.linspace(min(low[0], centre[0]) - 1, max(high[0], centre[0]) + 1, 120)
        second = np.linspace(min(low[1], centre[1]) - 1, max(high[1], centre[1]) + 1, 120)
        grid = np.meshgrid(first, second)
        height = 0.5 * ((grid[0] - centre[0]) ** 2 + (grid[1] - centre[1]) ** 2)
        axes.contour(grid[0], grid[1], height, levels=10, colors=REST, linewidths=0.6, alpha=0.6)
        axes.plot(points[:, 0], points[:, 1], "o-", color=FORWARD, markersize=4, linewidth=1.2)
        axes.plot(*points[0], "o", color=BACKWARD, markersize=8)
        axes.annotate("start", points[0], xytext=(0, -16), textcoords="offset points", color=BACKWARD, ha="center")
        axes.plot(*centre, "*", color=CAPTURED, markersize=14)
        axes.annotate("minimum", (centre[0], centre[1]), xytext=(8, 8), textcoords="offset points", color=CAPTURED)
        axes.set(xlabel="x₁", ylabel="x₂", title="z over the plane of x, and the steps down", aspect="equal")
        return figure
