"""Figures of lesson 11."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from torch import Tensor

from hooklab.course.plots import BACKWARD, CAPTURED, INK, REST, style

# Way of training -> the accuracies after each epoch, and how often each number was sent, by any process.
Runs = Mapping[str, tuple[Sequence[float], Tensor]]
_COLOURS = {"all": REST, "1 % with feedback": CAPTURED, "1 % without": BACKWARD}


def compressed(runs: Runs) -> Figure:
    """Draw the accuracy over the epochs for each way, and what share of the gradient's numbers was ever sent.

    Args:
        runs: the ways "all", "1 % with feedback" and "1 % without".
    """
    with style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), width_ratios=(3, 2))
        for way, colour in _COLOURS.items():
            accuracies = runs[way][0]
            left.plot(range(1, len(accuracies) + 1), accuracies, "o-", color=colour, label=way)
        left.set(xlabel="epoch", ylabel="test digits read right", ylim=(0, 1.02), title="Accuracy")
        left.set_xticks(range(1, len(accuracies) + 1))
        left.legend(loc="lower right")
        ways = [way for way in _COLOURS if way != "all"]
        shares = [100 * (runs[way][1] > 0).float().mean().item() for way in ways]
        right.bar(ways, shares, color=[_COLOURS[way] for way in ways], width=0.6)
        for place, share in enumerate(shares):
            right.text(place, share + 2, f"{share:.0f} %", ha="center", color=INK)
        right.set(ylim=(0, 110), ylabel="% of the numbers", title="Sent at least once")
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
