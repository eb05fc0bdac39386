"""The picture of a duel: a square for each random program, filled where the log is torch's."""

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
_SIDE, _STEP = 0.075, 0.095  # inches


def draw_duels(duels: Sequence[Duel]) -> Figure:
    """Draw a row for each duel, the groups of programs side by side.

    Args:
        duels: from the oldest class to the newest, each run on the same programs.
    """
    width, high = 1.32, 0.72
    with plots.style():
        figure, axes = inches(1.2 + width * len(GROUPS), 0.42 + high * len(duels))
        top = 0.05 + high * len(duels)
        for column, group in enumerate(GROUPS):
            axes.text(1.15 + width * column, top + 0.12, group, fontsize=9.5, color=plots.INK)
        for row, duel in enumerate(duels):
            y = top - high * row
            axes.text(0.05, y - 0.2, duel.name, fontsize=10, weight="bold", va="center", color=plots.INK)
            if duel.unfinished:
                axes.text(1.15, y - 0.2, "not written yet", fontsize=9.5, va="center", color=plots.REST)
            for column, group in enumerate(GROUPS):
                same = [match.is_same for match in duel.of(group)]
                _squares(axes, 1.15 + width * column, y, same)
                if same:
                    text = f"{sum(same)} of {len(same)}"
                    axes.text(1.15 + width * column, y - 0.33, text, fontsize=8.5, va="top", color=plots.REST)
        return figure


def _squares(axes: object, x: float, y: float, same: Sequence[bool]) -> None:
    for filled, colour in ((True, plots.INK), (False, "white")):
        squares = [
            Rectangle((x + _STEP * (place % ACROSS), y - _STEP * (place // ACROSS) - _SIDE), _SIDE, _SIDE)
            for place, one in enumerate(same)
            if one is filled
        ]
        edge = colour if filled else plots.REST
        axes.add_collection(PatchCollection(squares, fc=colour, ec=edge, lw=0.7))  # type: ignore[attr-defined]
