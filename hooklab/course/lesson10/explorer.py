"""The explorer of lesson 10: memory over time, for each way to cut sixteen layers into parts with a checkpoint each."""

from __future__ import annotations

import functools

import ipywidgets as widgets
from matplotlib.figure import Figure

from hooklab.course.explorers import Explorer, panel
from hooklab.course.lesson10 import figures
from hooklab.course.lesson10.memory import DEPTH, ONE_LAYER, TORCHS, Checkpoint, run

PARTS = {"none": 0, "1": 1, "2": 2, "4": 4, "8": 8, "16": 16}


def over_time(checkpoint: Checkpoint = TORCHS) -> Explorer:
    """Return the explorer: one control, the number of parts; `checkpoint` runs each of them."""
    counted = functools.lru_cache(maxsize=8)(lambda parts: run(max(parts, 1), checkpoint if parts else None))

    def draw(parts: int) -> Figure:
        return figures.over_time(counted(0), counted(parts) if parts else None, _title(parts))

    def say(parts: int) -> str:
        one = counted(parts)
        kept, peak = one.curve[one.turn - 1] / ONE_LAYER, one.peak / ONE_LAYER
        return (
            f"{_title(parts)}: after the forward pass, {kept:.0f} outputs are kept; the peak is {peak:.0f}; "
            f"{one.matmuls} layers are computed in forward passes."
        )

    choice = widgets.SelectionSlider(options=list(PARTS.items()), value=1, description="parts", continuous_update=True)
    return panel(
        draw,
        say,
        {"parts": choice},
        intro="Try this: from none to 1 part, and on to 16. Where is the peak lowest?",
    )


def _title(parts: int) -> str:
    if not parts:
        return f"{DEPTH} layers, no checkpoint"
    return f"{DEPTH} layers in {parts} part{'s' if parts > 1 else ''}, one checkpoint each"
