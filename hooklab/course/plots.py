"""The house style of the course's figures: `style`, the palette, and the pictures that several lessons share.

One meaning has one colour all through the course (Okabe-Ito, safe for colour-blind readers): forward is blue, backward
vermilion, what was captured or kept green, what was changed purple, the rest grey. Figures have a white background, so
that they can be read in JupyterLab's light and dark theme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

FORWARD = "#0072B2"
BACKWARD = "#D55E00"
CAPTURED = "#009E73"
CHANGED = "#CC79A7"
REST = "#8A8A8A"
INK = "#222222"
# For values of both signs: vermilion below zero, white at zero, blue above.
SIGNED = LinearSegmentedColormap.from_list("signed", [BACKWARD, "white", FORWARD])

STYLE: Any = {
    "figure.dpi": 100,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": REST,
    "axes.labelcolor": INK,
    "axes.prop_cycle": cycler(color=[FORWARD, BACKWARD, CAPTURED, CHANGED, REST]),
    "legend.frameon": False,
    "lines.linewidth": 2,
    "image.cmap": "cividis",
    "figure.constrained_layout.use": True,
}


def style() -> Any:
    """Return a context manager that sets the house style: `with plots.style(): …`."""
    return plt.rc_context(STYLE)


def chain(tensors: Mapping[str, torch.Tensor], gradients: Mapping[str, torch.Tensor] | None = None) -> Figure:
    """Draw tensors that were computed one from the other, left to right, with what each keeps.

    Above each arrow stands the node that autograd recorded for the step (`grad_fn`). Under each box stands its
    gradient: green where the tensor keeps it in `.grad` (a leaf, or a non-leaf after `retain_grad()`), grey where it
    was passed on. The flags are read from the tensors themselves.

    Args:
        tensors: name -> tensor, in the order of computation; a few numbers each.
        gradients: name -> gradient that arrived at it, same shape; leave a name out to show none.
    """
    gradients = gradients or {}
    with style():
        figure, axes = plt.subplots(figsize=(2.6 * len(tensors), 2.7))
        axes.set(xlim=(-0.5, len(tensors) - 0.5), ylim=(-1.25, 1.0))
        axes.axis("off")
        for place, (name, tensor) in enumerate(tensors.items()):
            kept = (tensor.is_leaf and tensor.requires_grad) or tensor.retains_grad
            kind = "leaf" if tensor.is_leaf else "non-leaf"
            box(axes, place, 0.2, f"{name} = {_numbers(tensor)}\n{kind}", CAPTURED if kept else REST)
            if place:
                arrow(axes, (place - 0.66, 0.34), (place - 0.32, 0.34), FORWARD)
                label = tensor.grad_fn.name() if tensor.grad_fn is not None else ""
                axes.text(place - 0.49, 0.62, label, ha="center", fontsize=9, color=FORWARD)
                arrow(axes, (place - 0.32, 0.06), (place - 0.66, 0.06), BACKWARD)
            if name in gradients:
                axes.text(place, -0.55, f"gradient {_numbers(gradients[name])}", ha="center", color=BACKWARD)
                text = "kept in .grad" if kept else "passed on, .grad is None"
                axes.text(place, -0.9, text, ha="center", color=CAPTURED if kept else REST)
        return figure


def descent(path: torch.Tensor, centre: Sequence[float]) -> Figure:
    """Draw a descent of z = ½((x₁−c₁)² + (x₂−c₂)²): contours, and the path's points from first to last.

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
        lines = axes.contour(grid[0], grid[1], height, levels=10, colors=REST, linewidths=0.8)
        axes.clabel(lines, fontsize=8, fmt="%g")
        axes.plot(points[:, 0], points[:, 1], "o-", color=FORWARD, markersize=4, linewidth=1.2)
        axes.plot(*points[0], "o", color=BACKWARD, markersize=8)
        axes.annotate("start", points[0], xytext=(8, 4), textcoords="offset points", color=BACKWARD)
        axes.plot(*centre, "*", color=CAPTURED, markersize=14)
        axes.annotate("minimum", (centre[0], centre[1]), xytext=(8, 8), textcoords="offset points", color=CAPTURED)
        axes.set(xlabel="x₁", ylabel="x₂", title="z on the plane of x, and the way down", aspect="equal")
        return figure


# (where along the pass, hook, the method that registers it, lesson)
_FORWARD_STATIONS = [
    ("forward pre-hook", "Module.register_forward_pre_hook", 4),
    ("forward()", "", 0),
    ("forward hook", "Module.register_forward_hook", 3),
]
_BACKWARD_STATIONS = [
    ("post-accumulate hook", "Tensor.register_post_accumulate_grad_hook", 2),
    ("full backward hook", "Module.register_full_backward_hook", 5),
    ("full backward pre-hook", "Module.register_full_backward_pre_hook", 5),
    ("tensor hook", "Tensor.register_hook", 2),
]


def hook_map() -> Figure:
    """Draw where each kind of hook sits when x goes through a module to y: on the way forward, and on the way back."""
    with style():
        figure, axes = plt.subplots(figsize=(9.2, 3.9))
        axes.set(xlim=(-0.5, 12), ylim=(-0.1, 5))
        axes.axis("off")
        axes.text(0.0, 4.6, "forward: values, from x to y", color=FORWARD, weight="bold")
        arrow(axes, (0.2, 3.6), (11.8, 3.6), FORWARD)
        for place, station in zip((2.4, 6.0, 9.6), _FORWARD_STATIONS, strict=True):
            _station(axes, place, 3.6, 1.55, station, FORWARD)
        axes.text(11.95, 2.1, "backward: gradients, from y to x", color=BACKWARD, weight="bold", ha="right")
        arrow(axes, (11.8, 1.1), (-0.45, 1.1), BACKWARD)
        for place, station in zip((1.6, 4.55, 7.35, 10.2), _BACKWARD_STATIONS, strict=True):
            _station(axes, place, 1.1, 1.3, station, BACKWARD)
        return figure


def _station(axes: Axes, x: float, y: float, half: float, station: tuple[str, str, int], colour: str) -> None:
    title, method, lesson = station
    face = "#EFEFEF" if not method else "white"
    patch = FancyBboxPatch((x - half, y - 0.3), 2 * half, 0.6, boxstyle="round,pad=0.05", fc=face, ec=colour, zorder=2)
    axes.add_patch(patch)
    axes.text(x, y, title, ha="center", va="center", fontsize=10, color=INK, zorder=3)
    if method:
        owner, name = method.split(".")
        axes.text(x, y - 0.5, f"{owner}.", ha="center", va="top", fontsize=7.5, color=REST)
        axes.text(x, y - 0.74, name, ha="center", va="top", fontsize=7.5, color=INK, family="monospace")
        axes.text(x, y - 1.0, f"lesson {lesson}", ha="center", va="top", fontsize=7.5, color=REST)


def box(axes: Axes, x: float, y: float, text: str, colour: str) -> None:
    """Draw a labelled box, 0.6 wide, around (x, y) in data units; `colour` is its edge."""
    axes.add_patch(
        FancyBboxPatch((x - 0.28, y - 0.26), 0.56, 0.52, boxstyle="round,pad=0.03", fc="white", ec=colour, lw=2)
    )
    axes.text(x, y, text, ha="center", va="center", color=INK)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    """Draw an arrow between two points in data units."""
    look = {"arrowstyle": "-|>", "color": colour, "lw": 1.6, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=end, xytext=start, arrowprops=look, zorder=1)


def _numbers(tensor: torch.Tensor) -> str:
    values = [f"{value:g}" for value in tensor.detach().flatten().tolist()]
    return values[0] if tensor.dim() == 0 else f"[{', '.join(values)}]"
