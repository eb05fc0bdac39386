"""The figures of lesson 5. What they show is computed: by the lesson, or by `compare_hooks` and `nodes_inside`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from torch import Tensor, nn

from hooklab.course.lesson05.comparing import Comparison, Report, compare_hooks, nodes_inside
from hooklab.course.plots import BACKWARD, CAPTURED, FORWARD, INK, REST, style

__all__ = ["Comparison", "around", "compare_hooks", "nodes_inside", "places", "reports"]

_STEP = 1.72  # from one entry of a tuple to the next, in the table


def around(layer: nn.Linear, x: Tensor, grad_input: Tensor, grad_output: Tensor) -> Figure:
    """Draw a linear layer with the values that go through it, and the gradients that go in, out and into `.grad`.

    Args:
        layer: after a backward, so that its parameters have a `.grad`; a few numbers only.
        x: shape (batch, in_features), what went in.
        grad_input: the shape of x.
        grad_output: shape (batch, out_features).
    """
    with style():
        figure, axes = plt.subplots(figsize=(9.6, 3.7))
        axes.set(xlim=(0, 12), ylim=(0.2, 4.8))
        axes.axis("off")
        _box(axes, 6, 3.05, 1.75, 0.95, "white", INK)
        axes.text(6, 3.55, f"{type(layer).__name__}", ha="center", weight="bold", color=INK)
        axes.text(6, 2.95, f"weight {_numbers(layer.weight)}\nbias {_numbers(layer.bias)}", ha="center", va="center")
        with torch.no_grad():
            y = layer(x)
        for place, name, values in ((2.1, "x", x), (9.9, "y", y)):
            axes.text(place, 4.0, f"{name} = {_numbers(values)}", ha="center", color=FORWARD)
        for place, name, values in ((2.1, "grad_input[0]", grad_input), (9.9, "grad_output[0]", grad_output)):
            axes.text(place, 1.85, f"{name} =\n{_numbers(values)}", ha="center", va="top", color=BACKWARD)
        for start, end in ((0.3, 4.0), (8.0, 11.7)):
            _arrow(axes, (start, 3.6), (end, 3.6), FORWARD)
            _arrow(axes, (end, 2.4), (start, 2.4), BACKWARD)
        _arrow(axes, (6, 1.95), (6, 1.3), BACKWARD)
        kept = f"weight.grad = {_numbers(layer.weight.grad)}\nbias.grad = {_numbers(layer.bias.grad)}"
        axes.text(6, 1.15, kept, ha="center", va="top", color=CAPTURED)
        return figure


def places(nodes: Sequence[str]) -> Figure:
    """Draw a module's autograd nodes, first computed first, and where a legacy and a full backward hook sit.

    Args:
        nodes: as `nodes_inside` returns them, at least one.
    """
    last = len(nodes) - 1
    with style():
        figure, axes = plt.subplots(figsize=(2.6 * len(nodes) + 2.4, 3.3))
        axes.set(xlim=(-1.35, last + 1.35), ylim=(-1.5, 1.5))
        axes.axis("off")
        _box(axes, last / 2, 0.05, last / 2 + 0.55, 0.62, "#F4F4F4", REST)
        axes.text(-0.5, 0.5, "the module", fontsize=9, color=REST)
        for place, node in enumerate(nodes):
            _arrow(axes, (place + 0.6, 0), (place + 0.4, 0), BACKWARD)
            _box(axes, place, 0, 0.36, 0.24, "white", FORWARD)
            axes.text(place, 0, node, ha="center", va="center", fontsize=9.5)
        _arrow(axes, (last + 1.25, 0), (last + 0.4, 0), BACKWARD)
        _arrow(axes, (-0.4, 0), (-1.25, 0), BACKWARD)
        axes.text(last + 0.98, 0.12, "gradient of\nthe output", ha="center", fontsize=9, color=BACKWARD)
        axes.text(-0.98, 0.12, "gradient of\nthe input", ha="center", fontsize=9, color=BACKWARD)
        for end in (-0.6, last + 0.6):
            axes.plot([end, end], [-0.85, 0.95], color=CAPTURED, linewidth=2.5)
        axes.text(last / 2, 1.2, "full hook: at both ends of the module", ha="center", color=CAPTURED)
        axes.annotate(
            "legacy hook: on the last node only",
            (last, -0.26),
            xytext=(last, -1.3),
            ha="center",
            arrowprops={"arrowstyle": "-|>", "color": INK},
        )
        return figure


def reports(comparisons: Mapping[str, Comparison]) -> Figure:
    """Draw a table: for each module the `grad_input` that the legacy and the full hook report, entry by entry.

    The colour of an entry says what it is the gradient of: vermilion an input, green a parameter, grey anything else.

    Args:
        comparisons: what to call a module -> what `compare_hooks` returned for it; at least one.
    """
    legacy_starts = 5.0
    full_starts = legacy_starts + _STEP * _most_entries(one.legacy for one in comparisons.values()) + 0.3
    width = full_starts + _STEP * _most_entries(one.full for one in comparisons.values())
    rows = len(comparisons)
    with style():
        figure, axes = plt.subplots(figsize=(0.85 * width, 0.62 * rows + 0.9))
        axes.set(xlim=(0, width), ylim=(rows - 0.4, -1.0))
        axes.axis("off")
        for place, title in ((0, "module"), (legacy_starts, "legacy: grad_input"), (full_starts, "full: grad_input")):
            axes.text(place, -0.7, title, weight="bold", va="center")
        for row, (name, comparison) in enumerate(comparisons.items()):
            axes.axhline(row - 0.5, color="#DDDDDD", linewidth=0.8)
            axes.text(0, row - 0.13, name, va="center")
            axes.text(0, row + 0.22, comparison.last_node, va="center", fontsize=8, color=REST)
            _entries(axes, legacy_starts, row, comparison.legacy)
            _entries(axes, full_starts, row, comparison.full)
        return figure


def _most_entries(reports: Iterable[Report | None]) -> int:
    return max(len(report.grad_input) if report else 1 for report in reports)


def _entries(axes: Axes, start: float, row: int, report: Report | None) -> None:
    if report is None:
        axes.text(start, row, "did not run", va="center", color=REST)
        return
    for place, entry in enumerate(report.grad_input):
        kind = entry.of.replace(",", " ").split()[0]
        colour = BACKWARD if kind == "input" else REST if kind in ("output", "inside", "nothing") else CAPTURED
        x = start + 0.76 + _STEP * place
        _box(axes, x, row, 0.7, 0.3, "white", colour)
        label = entry.of.replace(" transposed", "ᵀ")
        axes.text(x, row - 0.13, label, ha="center", va="center", fontsize=8.5, color=colour)
        axes.text(x, row + 0.16, str(entry.shape or ""), ha="center", va="center", fontsize=8.5)


def _numbers(tensor: Tensor | None) -> str:
    def text(value: Any) -> str:
        return f"[{', '.join(map(text, value))}]" if isinstance(value, list) else f"{value:g}"

    return "None" if tensor is None else text(tensor.detach().tolist())


def _box(axes: Axes, x: float, y: float, half_width: float, half_height: float, face: str, edge: str) -> None:
    corner = (x - half_width, y - half_height)
    axes.add_patch(
        FancyBboxPatch(corner, 2 * half_width, 2 * half_height, boxstyle="round,pad=0.03", fc=face, ec=edge, lw=1.6)
    )


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    arrow = {"arrowstyle": "-|>", "color": colour, "lw": 1.6, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=end, xytext=start, arrowprops=arrow)
