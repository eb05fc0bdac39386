"""The figures of lesson 5. What they show is computed: by the lesson, or by `compare_hooks` and `nodes_inside`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.autograd.graph import Node

from hooklab.course.exercises.values import tensor_text
from hooklab.course.lesson05.comparing import Comparison, Report
from hooklab.course.lesson05.comparing import compare_hooks as compare_hooks
from hooklab.course.lesson05.comparing import nodes_inside as nodes_inside
from hooklab.course.lesson05.transfer import Network, domain_readable
from hooklab.course.lesson05.transfer import two_domains as _two_domains
from hooklab.course.plots import BACKWARD, CAPTURED, FORWARD, INK, REST, arrow, bare, box, style

DOMAINS = ("#56B4E9", "#E69F00")  # two colours that mean nothing else in the course
DEPTH_LINES = ((INK, "-"), (REST, "-"), (INK, "--"), (REST, "--"))

_STEP = 1.72  # from one entry of a tuple to the next, in the table

# for readers who do not see the figures
AROUND = (
    "A linear layer: x goes in, y comes out; grad_output arrives at the side of y, grad_input leaves at the side of x."
)
DEPTH = "Norm of the gradient at twenty layers: sigmoids lose almost all, ReLUs most, both hold it when normalised."
TWO_DOMAINS = "Features of two domains: side by side without the hook, on top of each other with it."


def around(layer: nn.Linear, x: Tensor, grad_input: Tensor, grad_output: Tensor) -> Figure:
    """Draw a linear layer with the values that go through it, and the gradients that go in, out and into `.grad`.

    Args:
        layer: after a backward pass, so that its parameters have a `.grad`; a few numbers only.
        x: shape (batch, in_features), its input.
        grad_input: the shape of x.
        grad_output: shape (batch, out_features).
    """
    with style():
        figure, axes = bare(9.6, 3.7, (0, 12), (0.2, 4.8))
        box(axes, 6, 3.05, "", INK, 3.5, 1.9)
        axes.text(6, 3.55, f"{type(layer).__name__}", ha="center", weight="bold", color=INK)
        axes.text(
            6, 2.95, f"weight {tensor_text(layer.weight)}\nbias {tensor_text(layer.bias)}", ha="center", va="center"
        )
        with torch.no_grad():
            y = layer(x)
        for place, name, values in ((2.1, "x", x), (9.9, "y", y)):
            axes.text(place, 4.0, f"{name} = {tensor_text(values)}", ha="center", color=FORWARD)
        for place, name, values in ((2.1, "grad_input[0]", grad_input), (9.9, "grad_output[0]", grad_output)):
            axes.text(place, 1.85, f"{name} =\n{tensor_text(values)}", ha="center", va="top", color=BACKWARD)
        for start, end in ((0.3, 4.0), (8.0, 11.7)):
            arrow(axes, (start, 3.6), (end, 3.6), FORWARD)
            arrow(axes, (end, 2.4), (start, 2.4), BACKWARD)
        arrow(axes, (6, 1.95), (6, 1.3), BACKWARD)
        kept = f"weight.grad = {tensor_text(layer.weight.grad)}\nbias.grad = {tensor_text(layer.bias.grad)}"
        axes.text(6, 1.15, kept, ha="center", va="top", color=CAPTURED)
        return figure


def edges(node: Node, arriving: Tensor, leaving: Mapping[str, Tensor]) -> Figure:
    """Draw an autograd node with an arrow for each of its outgoing edges, and the gradient that leaves on it.

    Args:
        node: a node with as many `next_functions` as `leaving` has entries.
        arriving: the gradient that comes to it; a few numbers only.
        leaving: what each edge leads to, such as "bias" -> the gradient that leaves there, in the node's own order.
    """
    after = [type(one).__name__ for one, _ in node.next_functions]
    top = len(after) - 1.0
    with style():
        figure, axes = bare(9.0, 0.85 * len(after) + 0.3, (0, 9), (-0.55, top + 0.6))
        box(axes, 6.0, top / 2, type(node).__name__, INK, 2.0, 0.6)
        arrow(axes, (8.7, top / 2), (7.1, top / 2), BACKWARD)
        axes.text(7.9, top / 2 + 0.14, tensor_text(arriving), ha="center", color=BACKWARD, fontsize=9.5)
        for place, ((name, grad), follower) in enumerate(zip(leaving.items(), after, strict=True)):
            y, start = top - place, top / 2 + 0.25 * (1 - place)
            arrow(axes, (4.9, start), (2.3, y), BACKWARD)
            axes.text(2.2, y + 0.12, f"[{place}]  {name}", ha="right", va="center", color=INK, weight="bold")
            axes.text(2.2, y - 0.18, f"goes on to {follower}", ha="right", va="center", color=REST, fontsize=9)
            look = {"fc": "white", "ec": "none", "pad": 1.5}  # the number sits on its arrow
            axes.text(3.6, (start + y) / 2, tensor_text(grad), ha="center", va="center", color=BACKWARD, bbox=look)
        return figure


def two_domains_and_three_parts() -> Figure:
    """Draw the points of both domains, and beside them the network's parts with the labels that each one gets."""
    x, classes, domains = _two_domains()
    with style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.5), width_ratios=(3, 5))
        _points(left, x, classes, domains)
        left.set(title="the points", xticks=[], yticks=[])
        _legend(figure, left)
        right.set(xlim=(0, 10), ylim=(0, 5))
        right.axis("off")
        for at, y, name, told in ((2.6, 2.5, "features", ""), *_HEADS):
            box(right, at, y, name, INK, 2.3, 0.9, weight="bold")
            right.text(at, y - 0.85, told, ha="center", va="center", color=REST, fontsize=9)
        arrow(right, (0.2, 2.5), (1.3, 2.5), FORWARD)
        for _, y, _, _ in _HEADS:
            lift = 0.3 if y > 2.5 else -0.3
            arrow(right, (3.9, 2.5 + lift), (5.8, y), FORWARD)
            arrow(right, (5.8, y - lift), (3.9, 2.5), BACKWARD)
        right.text(4.8, 4.6, "values", ha="center", color=FORWARD)
        right.text(4.1, 0.3, "gradients", ha="center", color=BACKWARD)
        return figure


def two_domains(networks: Mapping[str, Network]) -> Figure:
    """Draw the features that each network computes from the points.

    Args:
        networks: title -> network. Colours are domains, marks are classes.
    """
    x, classes, domains = _two_domains()
    with torch.no_grad():
        panels = {name: network.features(x) for name, network in networks.items()}
    with style():
        figure, places = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.5), squeeze=False)
        for axes, (title, values) in zip(places[0], panels.items(), strict=True):
            _points(axes, values, classes, domains)
            axes.set(title=title, xticks=[], yticks=[])
            axes.set_xlabel(f"neighbours of their own domain: {domain_readable(values, domains):.0%}")
        _legend(figure, places[0][0])
        return figure


_HEADS = ((7.0, 3.9, "classes", "labels of domain 0 only"), (7.0, 1.4, "domains", "the domain of every point"))


def _points(axes: Axes, values: Tensor, classes: Tensor, domains: Tensor) -> None:
    mixed = torch.arange(len(values)).reshape(2, -1).T.flatten()  # one of each domain in turn: neither is on top
    for kind, mark in enumerate("ox"):
        chosen = mixed[classes[mixed] == kind]
        colours = [DOMAINS[int(one)] for one in domains[chosen]]
        axes.scatter(values[chosen, 0], values[chosen, 1], s=18, marker=mark, c=colours, alpha=0.75, linewidths=1.2)


def _legend(figure: Figure, axes: Axes) -> None:
    for domain, colour in enumerate(DOMAINS):
        for kind, mark in enumerate("ox"):
            axes.scatter([], [], marker=mark, color=colour, label=f"domain {domain}, class {kind}")
    figure.legend(loc="outside lower center", ncols=4, fontsize=9, handletextpad=0.1)


def depth(received: Mapping[str, Sequence[float]]) -> Figure:
    """Draw how large the gradient is that each layer receives, on a logarithmic axis.

    Args:
        received: name of a network -> a size for each layer, first layer first.
    """
    with style():
        figure, axes = plt.subplots(figsize=(9.0, 3.6))
        for (name, sizes), (colour, line) in zip(received.items(), DEPTH_LINES, strict=False):
            axes.semilogy(range(1, len(sizes) + 1), sizes, color=colour, linestyle=line, marker=".")
            axes.annotate(
                name, (1, sizes[0]), (-8, 0), textcoords="offset points", ha="right", va="center", color=colour
            )
        last = max(len(sizes) for sizes in received.values())
        axes.set(xlabel="layer (the loss is on the right)", ylabel="norm of grad_output", xlim=(-4.5, last + 0.5))
        axes.set_xticks([1, *range(5, last + 1, 5)])
        return figure


def reports(comparisons: Mapping[str, Comparison]) -> Figure:
    """Draw a table: for each module the `grad_input` that the legacy and the full hook report, entry by entry.

    The colour of an entry says what it is the gradient of: orange an input, green a parameter, grey anything else.

    Args:
        comparisons: what to call a module -> what `compare_hooks` returned for it; at least one.
    """
    legacy_starts = 5.0
    full_starts = legacy_starts + _STEP * _most_entries(one.legacy for one in comparisons.values()) + 0.3
    width = full_starts + _STEP * _most_entries(one.full for one in comparisons.values())
    rows = len(comparisons)
    with style():
        figure, axes = bare(0.85 * width, 0.62 * rows + 0.9, (0, width), (rows - 0.4, -1.0))
        for place, title in ((0, "module"), (legacy_starts, "legacy: grad_input"), (full_starts, "full: grad_input")):
            axes.text(place, -0.7, title, weight="bold", va="center")
        for row, (name, comparison) in enumerate(comparisons.items()):
            axes.axhline(row - 0.5, color="#DDDDDD", linewidth=0.8)
            axes.text(0, row - 0.13, name, va="center")
            axes.text(0, row + 0.22, comparison.last_node, va="center", fontsize=8, color=REST)
            _entries(axes, legacy_starts, row, comparison.legacy)
            _entries(axes, full_starts, row, comparison.full)
        return figure


def _most_entries(reports: Iterable[Report]) -> int:
    return max(len(report.grad_input) for report in reports)


def _entries(axes: Axes, start: float, row: int, report: Report) -> None:
    for place, entry in enumerate(report.grad_input):
        kind = entry.of.replace(",", " ").split()[0]
        colour = BACKWARD if kind == "input" else REST if kind in ("output", "inside", "nothing") else CAPTURED
        x = start + 0.76 + _STEP * place
        box(axes, x, row, "", colour, 1.4, 0.6)
        label = entry.of.replace(" transposed", "ᵀ")
        axes.text(x, row - 0.13, label, ha="center", va="center", fontsize=8.5, color=colour)
        axes.text(x, row + 0.16, str(entry.shape or ""), ha="center", va="center", fontsize=8.5)
