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
