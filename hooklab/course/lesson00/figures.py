"""The start page's figures: two hooks on one layer, and a map of all hooks that run in one call."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from torch import nn
from torch.nn.modules import module as every_module

from hooklab.course.plots import BACKWARD, FORWARD, INK, REST, arrow, bare, box, style

# what is called -> (the method that registers it, the lesson that teaches it)
HOOKS: dict[str, tuple[str, int]] = {
    "global forward pre-hook": ("register_module_forward_pre_hook", 10),
    "forward pre-hook": ("Module.register_forward_pre_hook", 4),
    "global forward hook": ("register_module_forward_hook", 6),
    "forward hook": ("Module.register_forward_hook", 3),
    "tensor hook on y": ("Tensor.register_hook", 2),
    "global full backward pre-hook": ("register_module_full_backward_pre_hook", 10),
    "full backward pre-hook": ("Module.register_full_backward_pre_hook", 5),
    "tensor hook on the weight": ("Tensor.register_hook", 2),
    "post-accumulate hook of the weight": ("Tensor.register_post_accumulate_grad_hook", 2),
    "global full backward hook": ("register_module_full_backward_hook", 10),
    "full backward hook": ("Module.register_full_backward_hook", 5),
    "tensor hook on x": ("Tensor.register_hook", 2),
    "post-accumulate hook of x": ("Tensor.register_post_accumulate_grad_hook", 2),
}
GOES_FORWARD = 4  # the first four run in the forward pass
STEP, HALF = 2.35, 1.06  # of the map: from one box's middle to the next, and to its own edge
GAP = STEP - HALF  # from a box's middle to the next one's edge


def two_hooks(output: float, gradient: float) -> Figure:
    """Draw a layer between x and y, with a forward hook and a tensor hook, and the number that each of them saw."""
    with style():
        figure, axes = bare(8.0, 2.6, (-0.4, 5.5), (-1.1, 1.1))
        for place, text in ((0.0, "x"), (1.7, "layer"), (3.4, f"y = {output:g}"), (5.1, f"loss = y²\n= {output**2:g}")):
            box(axes, place, 0.0, text, REST)
        for start in (0.0, 1.7, 3.4):
            arrow(axes, (start + 0.32, 0.14), (start + 1.38, 0.14), FORWARD)
            arrow(axes, (start + 1.38, -0.14), (start + 0.32, -0.14), BACKWARD)
        axes.plot([2.55, 2.55], [0.6, 0.14], ":", color=FORWARD)
        axes.plot([3.4, 3.4], [-0.6, -0.3], ":", color=BACKWARD)
        for place, height, text, colour, weight in (
            (2.55, 0.85, f"forward_hook\nsees {output:g}", FORWARD, "bold"),
            (3.4, -0.85, f"tensor_hook\nsees {gradient:g}", BACKWARD, "bold"),
            (0.85, 0.4, "forward: values", FORWARD, "normal"),
            (0.85, -0.4, "backward: gradients", BACKWARD, "normal"),
        ):
            axes.text(place, height, text, ha="center", va="center", color=colour, weight=weight)
        return figure


def order_of_hooks() -> list[tuple[str, int]]:
    """Put every hook of the map on a linear layer, its input, output and weight; run it forward and backward.

    Returns:
        What was called, in order, each with the lesson that teaches it. No hook is left behind.
    """
    called: list[str] = []

    def say(what: str) -> Callable[..., None]:
        return lambda *_: called.append(what)

    x = torch.ones(1, 2, requires_grad=True)
    layer = nn.Linear(2, 1)
    owners: dict[str, Any] = {"x": x, "weight": layer.weight}
    handles = []
    try:
        for what, (method, _) in HOOKS.items():
            owner = owners.get(what.rpartition(" ")[2], layer if method.startswith("Module.") else every_module)
            if what != "tensor hook on y":
                handles.append(getattr(owner, method.rpartition(".")[2])(say(what)))
        y = layer(x)
        y.register_hook(say("tensor hook on y"))
        y.sum().backward()
    finally:
        for handle in handles:
            handle.remove()
    return [(what, HOOKS[what][1]) for what in called]


def hook_map(names: list[str]) -> Figure:
    """Draw the hooks in the order of their names: forward from left to right, backward from right to left.

    Args:
        names: keys of `HOOKS`, the four of the forward pass first.
    """
    with style():
        figure, axes = bare(9.6, 5.0, (0, 12), (0.7, 7.3))
        axes.text(0.1, 7.0, "forward: values, from x to y", color=FORWARD, weight="bold")
        forward = [*names[:2], "forward()", *names[2:GOES_FORWARD]]
        number = {what: place for place, what in enumerate(names, start=1)}
        for place, what in enumerate(forward):
            _station(axes, 1.3 + STEP * place, 6.2, what, FORWARD, number.get(what, 0))
            arrow(axes, (1.3 + STEP * place - GAP, 6.2), (1.3 + STEP * place - HALF, 6.2), FORWARD)
        axes.text(11.9, 4.75, "backward: gradients, from y to x", color=BACKWARD, weight="bold", ha="right")
        back = names[GOES_FORWARD:]
        rows = [back[:5], back[5:]]
        for row, height in zip(rows, (3.9, 1.8), strict=True):
            for place, what in enumerate(row):
                x = 10.7 - STEP * place
                _station(axes, x, height, what, BACKWARD, number[what])
                arrow(axes, (x + GAP, height), (x + HALF, height), BACKWARD)
        return figure


def _station(axes: Axes, x: float, y: float, what: str, colour: str, number: int) -> None:
    method, lesson = HOOKS.get(what, ("", 0))
    face = "#E4E4E4" if what.startswith("global") else "white"
    edge = colour if method else "none"  # forward() isn't a hook: it gets no box
    patch = FancyBboxPatch((x - 1.02, y - 0.36), 2.04, 0.72, boxstyle="round,pad=0.04", fc=face, ec=edge, zorder=2)
    axes.add_patch(patch)
    axes.text(x, y, _in_two_lines(what), ha="center", va="center", fontsize=10, color=INK, zorder=3)
    if method:
        name = re.sub("(register_(module_|post_)?)", r"\1\n", method)
        axes.text(x, y - 0.5, name, ha="center", va="top", fontsize=8, color=INK, family="monospace")
        axes.text(x, y + 0.44, f"{number} · lesson {lesson}", ha="center", va="bottom", fontsize=9, color=INK)


def _in_two_lines(what: str) -> str:
    words = what.split(" ")
    if len(words) < 3:
        return what
    best = min(range(1, len(words)), key=lambda cut: abs(len(" ".join(words[:cut])) - len(" ".join(words[cut:]))))
    return " ".join(words[:best]) + "\n" + " ".join(words[best:])
