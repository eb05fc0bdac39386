"""Figures of lesson 11."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from torch import Tensor

from hooklab.course.plots import BACKWARD, CAPTURED, CHANGED, FORWARD, INK, REST, arrow, bare, box, style

# Way of training -> the accuracies after each epoch, and how often each number was sent, by any process.
Runs = Mapping[str, tuple[Sequence[float], Tensor]]
_COLOURS = {"all": REST, "1 % with a memory": CAPTURED, "1 % without": BACKWARD}


def compressed(runs: Runs) -> Figure:
    """Draw the accuracy over the epochs for each way, and what share of the gradient's numbers was ever sent.

    Args:
        runs: the ways "all", "1 % with a memory" and "1 % without".
    """
    with style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), width_ratios=(3, 2))
        for way, colour in _COLOURS.items():
            accuracies = runs[way][0]
            left.plot(range(1, len(accuracies) + 1), accuracies, "o-", color=colour, label=way)
        left.set(xlabel="epoch", ylim=(0, 1.02), title="Test digits read right")
        left.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
        left.set_xticks(range(1, len(accuracies) + 1))
        left.legend(loc="lower right")
        ways = [way for way in _COLOURS if way != "all"]
        shares = [100 * (runs[way][1] > 0).float().mean().item() for way in ways]
        right.bar(ways, shares, color=[_COLOURS[way] for way in ways], width=0.6)
        for place, share in enumerate(shares):
            right.text(place, share + 2, f"{share:.0f} %", ha="center", color=INK)
        right.set(ylim=(0, 102), yticks=[], title="Numbers sent at least once")
        right.spines["left"].set_visible(False)
    return figure


def copied_hooks() -> Figure:
    """Draw what the tables of hooks of a model and of its deep copy lead to, for a function and for a method."""
    panels = {
        "a function: one for both": ((1.0, "hook", FORWARD), (1.0, "hook", FORWARD)),
        "a method: each has its own object": ((1.5, "your\ncounter", FORWARD), (0.5, "copied\ncounter", CHANGED)),
    }
    with style():
        figure, both = plt.subplots(1, 2, figsize=(8.6, 2.2))
        for axes, (title, ends) in zip(both, panels.items(), strict=True):
            axes.set(xlim=(0, 3.6), ylim=(0, 2), title=title)
            axes.axis("off")
            for name, height, (end, _, _) in zip(("model", "copy"), (1.5, 0.5), ends, strict=True):
                box(axes, 0.6, height, name, INK)
                arrow(axes, (0.95, height), (2.05, end), INK)
            for end, label, colour in dict.fromkeys(ends):
                box(axes, 2.4, end, label, colour)
    return figure


def which_graph(sevens: Sequence[bool]) -> Figure:
    """Draw which recorded graph serves each call of a compiled model: the first one, or a new one with the hook.

    Args:
        sevens: for the calls after the hook was registered, with batches of 1, 2, 1, and 1 under no_grad: did it run?
    """
    calls = list(zip(("1", "1", "2", "1", "1, no_grad"), (False, *sevens), (0.0, 1.8, 3.2, 4.6, 6.0), strict=True))
    with style():
        figure, axes = bare(8.6, 2.5, (-1.9, 6.9), (-0.6, 1.75))
        axes.axvline(0.9, 0.1, 0.75, color=REST, linestyle=":")
        axes.text(0.9, 1.3, "your hook\nis registered", ha="center", color=INK)
        for name, height in (("batch of", 0.95), ("runs", 0.0)):
            axes.text(-0.8, height, name, ha="right", va="center", color=INK)
        for name, has_hook, x in calls:
            colour = CAPTURED if has_hook else REST
            look = {"boxstyle": "round", "facecolor": "white", "edgecolor": colour, "linewidth": 2}
            axes.text(x, 0.95, name, ha="center", va="center", color=INK, bbox=look)
            if has_hook or x == 0:
                words = "a new graph\nwith the hook" if has_hook else "a graph\nwithout it"
                axes.text(x, 0.0, words, ha="center", va="center", fontsize=10, color=INK, bbox=look)
            arrow(axes, (x, 0.72), (x, 0.3) if has_hook or x == 0 else (0.58, 0.15), colour)
    return figure


def under_ddp(seen: Sequence[Mapping[str, float]]) -> Figure:
    """Draw what each process's hooks see, and when the processes average; time goes to the right.

    Args:
        seen: for each process, the name of a hook -> the gradient that it saw, in the order in which they ran.
    """
    average = sum(next(iter(one.values())) for one in seen) / len(seen)
    steps = [
        "backward\nreaches w",
        *(name.replace(" ", "\n", 1) for name in seen[0]),
        "DDP\naverages",
        "backward()\nreturns",
    ]
    with style():
        figure, axes = plt.subplots(figsize=(8.6, 0.9 * len(seen) + 1.2))
        for rank, one in enumerate(seen):
            values = [next(iter(one.values())), *one.values(), average, average]
            axes.plot(range(len(steps)), [rank] * len(steps), color=REST, linewidth=1, zorder=1)
            for place, value in enumerate(values):
                colour = CAPTURED if place >= len(steps) - 2 else BACKWARD
                axes.text(
                    place, rank, f"{value:g}", ha="center", va="center", fontsize=12, color=INK,
                    bbox={"boxstyle": "circle", "facecolor": "white", "edgecolor": colour, "linewidth": 2},
                )  # fmt: skip
        axes.axvspan(len(steps) - 2.35, len(steps) - 1.65, color=CAPTURED, alpha=0.15)
        axes.set_xticks(range(len(steps)), steps)
        axes.set_yticks(range(len(seen)), [f"process {rank}" for rank in range(len(seen))])
        axes.set(xlim=(-0.5, len(steps) - 0.5), ylim=(len(seen) - 0.4, -0.6))
        axes.set_title("The gradient of w", loc="left", fontsize=11)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    return figure
