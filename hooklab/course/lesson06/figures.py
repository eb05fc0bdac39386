"""The pictures of lesson 6: a duel, with a square for each random program, and the border around `forward`."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from hooklab.course import plots
from hooklab.course.explorers import inches
from hooklab.course.lesson06.duel import Duel
from hooklab.course.lesson06.programs import GROUPS

ACROSS = 12  # squares in a line
ABOUT = {
    "look": "hooks read",
    "replace": "hooks return values",
    "come and go": "hooks are removed",
    "raise": "something raises",
    "go back": "backward passes",
    "everything": "all of these",
}
BORDER = (
    "Above, x goes through the pre-hooks, the input border, forward, the forward hooks and the output border to y. "
    "Below, the gradients go back: the output border stores grad_output; at the input border, the backward hooks run."
)
_SIDE, _STEP = 0.075, 0.095  # inches


def draw_duels(duels: Sequence[Duel]) -> Figure:
    """Draw a row for each duel, the groups of programs side by side; the dark squares are the logs that differ.

    Args:
        duels: from the oldest class to the newest, each run on the same programs.
    """
    width, high = 1.32, 0.72
    with plots.style():
        figure, axes = inches(1.2 + width * len(GROUPS), 0.55 + high * len(duels))
        top = 0.05 + high * len(duels)
        for column, group in enumerate(GROUPS):
            axes.text(1.15 + width * column, top + 0.27, group, fontsize=10, weight="bold", color=plots.INK)
            axes.text(1.15 + width * column, top + 0.11, ABOUT[group], fontsize=8.5, color=plots.INK)
        for row, duel in enumerate(duels):
            y = top - high * row
            axes.text(0.05, y - 0.2, duel.name, fontsize=10, weight="bold", va="center", color=plots.INK)
            if duel.unfinished:
                axes.text(1.15, y - 0.2, "not written yet", fontsize=9.5, va="center", color=plots.REST)
            for column, group in enumerate(GROUPS):
                same = [match.is_same for match in duel.of(group)]
                _squares(axes, 1.15 + width * column, y, same)
                if same:
                    text = f"{sum(same)} of {len(same)} agree"
                    axes.text(1.15 + width * column, y - 0.33, text, fontsize=8.5, va="top", color=plots.REST)
        return figure


def border() -> Figure:
    """Draw one call from left to right, its backward pass from right to left, and the two nodes that both cross."""
    with plots.style():
        figure, axes = inches(9.6, 2.75)
        for x in (3.15, 7.6):
            axes.add_patch(Rectangle((x - 0.09, 0.35), 0.18, 1.95, fc=plots.INK, ec=plots.INK))
        for x, text, width, colour in (
            (1.55, "pre-hooks", 1.2, plots.CHANGED),
            (4.45, "forward", 1.2, plots.FORWARD),
            (6.2, "forward hooks", 1.4, plots.CHANGED),
        ):
            axes.add_patch(Rectangle((x - width / 2, 1.63), width, 0.44, fc="white", ec=colour, lw=1.8, zorder=2))
            axes.text(x, 1.85, text, ha="center", va="center", color=plots.INK, zorder=3)
        for left, right in ((0.4, 0.93), (2.17, 3.04), (3.26, 3.83), (5.07, 5.48), (6.92, 7.49), (7.71, 9.1)):
            plots.arrow(axes, (left, 1.85), (right, 1.85), plots.FORWARD)
        for left, right in ((0.4, 3.04), (3.26, 7.49), (7.71, 9.1)):
            plots.arrow(axes, (right, 0.75), (left, 0.75), plots.BACKWARD)
        for x, y, text, colour in (
            (0.22, 1.85, "x", plots.INK),
            (9.3, 1.85, "y", plots.INK),
            (3.15, 2.48, "input border", plots.INK),
            (7.6, 2.48, "output border", plots.INK),
            (1.72, 0.95, "grad_input", plots.BACKWARD),
            (8.45, 0.95, "grad_output", plots.BACKWARD),
        ):
            weight = "bold" if "border" in text else "normal"
            axes.text(x, y, text, ha="center", va="center", color=colour, weight=weight)
        axes.text(3.15, 0.16, "2. the backward hooks run", ha="center", va="center", fontsize=9.5, color=plots.INK)
        axes.text(7.6, 0.16, "1. grad_output is stored", ha="center", va="center", fontsize=9.5, color=plots.INK)
        return figure


def _squares(axes: object, x: float, y: float, same: Sequence[bool]) -> None:
    for is_same, face, edge in ((True, "white", "#C8C8C8"), (False, plots.INK, plots.INK)):
        squares = [
            Rectangle((x + _STEP * (place % ACROSS), y - _STEP * (place // ACROSS) - _SIDE), _SIDE, _SIDE)
            for place, one in enumerate(same)
            if one is is_same
        ]
        axes.add_collection(PatchCollection(squares, fc=face, ec=edge, lw=0.7))  # type: ignore[attr-defined]
