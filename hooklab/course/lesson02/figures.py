"""Figures of lesson 2: the hooks of one tensor, and gradient norms while a network trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hooklab.course import plots
from hooklab.course.exercises.values import tensor_text
from hooklab.course.explorers import canvas

SPACING = 1.65
NO_HOOK = "–"  # the name of an empty place


def hook_chain(
    arrived: torch.Tensor, hooks: Sequence[tuple[str, torch.Tensor]], kept: torch.Tensor, owner: str
) -> Figure:
    """Draw the hooks of one non-leaf tensor from right to left, as the gradient flows.

    Under each hook is what it does: a hook that changed the gradient is purple, one that only read it is grey. Below
    the last one is what `retain_grad()` has kept.

    Args:
        arrived: the gradient that arrives, a few numbers.
        hooks: each hook's name and the gradient after it, in the order of running.
        kept: `.grad` of the tensor afterwards.
        owner: the tensor's name.

    Example:
        >>> one = torch.ones(2, 1)
        >>> figure = hook_chain(one, [("look", one), ("double", 2 * one)], kept=2 * one, owner="y")
        >>> [text.get_text() for text in figure.axes[0].texts if "grad =" in text.get_text()]
        ['y.grad = [2, 2]']
    """
    arrived, kept = arrived.flatten(), kept.flatten()
    hooks = [(name, after.flatten()) for name, after in hooks]
    with plots.style():
        figure, axes = canvas(1.9 * (len(hooks) + 2), 2.4)
        left = -SPACING * (len(hooks) - 1) - 0.4  # of the last box; the first one is at 0
        axes.set(xlim=(left - 1.75, 1.75), ylim=(-1.2, 0.9))
        axes.text(1.7, 0.62, f"backward(): the gradient of {owner} arrives", color=plots.BACKWARD, ha="right")
        _arrow(axes, (1.7, 0), (0.45, 0), tensor_text(arrived))
        value = arrived
        for place, (name, after) in enumerate(hooks):
            x = -SPACING * place
            if place:
                _arrow(axes, (x + SPACING - 0.45, 0), (x + 0.45, 0), tensor_text(value))
            does, colour = ("reads", plots.REST) if torch.equal(value, after) else ("changes it", plots.CHANGED)
            plots.box(axes, x, 0, name, colour, 0.74, 0.44)
            axes.text(x, -0.47, "no hook" if name == NO_HOOK else does, ha="center", color=colour, fontsize=9.5)
            value = after
        _arrow(axes, (left - 0.05, 0), (left - 1.7, 0), f"{tensor_text(value)} goes on")
        _arrow(axes, (left - 0.3, 0), (left - 0.3, -0.75), "", plots.CAPTURED)
        axes.text(left - 0.38, -0.47, "retain_grad()", ha="right", color=plots.CAPTURED, fontsize=9.5)
        axes.text(left - 0.3, -1.02, f"{owner}.grad = {tensor_text(kept)}", color=plots.CAPTURED, ha="center")
        return figure


def norms_over_steps(trainings: Mapping[str, Mapping[str, Any]], ceiling: float, quiet: float) -> Figure:
    """Draw the norm of one layer's gradient over the steps of up to three trainings, and its neurons below.

    Args:
        trainings: label -> `norms` and `neurons`, a number for each step: the norm of the gradient, how many neurons
            get one; `right`, the share of pictures read correctly in the end; if the gradient was clipped, also `cut`,
            the share of numbers that were cut.
        ceiling: the largest norm that the clipped training can have; a dashed line.
        quiet: below this norm the vertical axis is linear down to 0, above it logarithmic.
    """
    with plots.style():
        figure, (axes, below) = plt.subplots(
            2, 1, figsize=(8.5, 4.8), sharex=True, gridspec_kw={"height_ratios": [2, 1]}, layout="constrained"
        )
        for (label, training), colour in zip(
            trainings.items(), (plots.BACKWARD, plots.CHANGED, plots.FORWARD), strict=False
        ):
            norms = training["norms"]
            name = f"{label}:\n{training['right']:.0%} right"
            if "cut" in training:
                name += f", {training['cut']:.0%} cut"
            axes.plot(range(1, len(norms) + 1), norms, color=colour, linewidth=1.6)
            axes.annotate(
                name,
                (len(norms), norms[-1]),
                (6, 0),
                textcoords="offset points",
                va="center",
                color=colour,
                fontsize=10,
            )
            below.step(range(1, len(norms) + 1), training["neurons"], color=colour, linewidth=1.6, where="mid")
        axes.axhline(ceiling, color=plots.CHANGED, linewidth=1, linestyle="--")
        where = axes.get_yaxis_transform()  # x as a share of the width
        axes.text(0.4, ceiling * 1.1, "the most that clipping allows", color=plots.CHANGED, transform=where, fontsize=9)
        axes.set_yscale("symlog", linthresh=quiet)
        axes.set(ylabel="norm of the first\nlayer's gradient", ylim=(-0.02, None))
        axes.margins(x=0)
        axes.set_yticks([0, 0.1, 1, 10, 100], ["0", "0.1", "1", "10", "100"])
        below.set(xlabel="step", ylabel="its neurons that\nget a gradient", ylim=(-1, None))
        return figure


def _arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], text: str, colour: str = plots.BACKWARD
) -> None:
    plots.arrow(axes, start, end, colour)
    axes.text((start[0] + end[0]) / 2, start[1] + 0.12, text, ha="center", color=colour, fontsize=9.5)
