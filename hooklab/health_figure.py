"""The picture of :meth:`hooklab.health.Health.plot`. Only this file imports matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from hooklab.tallies import Row

NONFINITE = "#D55E00"
NOTHING = "#DDDDDD"
SHARES = ("zeros", "nonfinite", "saturated")
# what lies outside is drawn as these are
SMALLEST, LARGEST = 1e-8, 1e8
MOST_NAMES = 30


def draw(rows: Sequence[Row], panels: Sequence[tuple[str, str]], modules: Sequence[str]) -> Figure:
    """One picture for each kind and statistic; a module without any such row has no line."""
    counts = [len(_names(rows, kind, statistic, modules)) for kind, statistic in panels]
    heights = [0.9 + 0.2 * min(max(count, 2), MOST_NAMES) for count in counts]
    with plt.rc_context({"figure.facecolor": "white", "savefig.facecolor": "white", "font.size": 10}):
        figure, axes = plt.subplots(
            len(panels), 1, figsize=(8, sum(heights)), squeeze=False, layout="constrained", height_ratios=heights
        )
        for (kind, statistic), ax in zip(panels, axes[:, 0], strict=True):
            _draw_panel(ax, [row for row in rows if row.kind == kind], kind, statistic, modules)
        axes[-1, 0].set_xlabel("step")
    return figure


def _names(rows: Sequence[Row], kind: str, statistic: str, modules: Sequence[str]) -> list[str]:
    there = {row.module for row in rows if row.kind == kind and getattr(row, statistic) is not None}
    return [name for name in modules if name in there]


def _draw_panel(ax: Axes, rows: Sequence[Row], kind: str, statistic: str, modules: Sequence[str]) -> None:
    names = _names(rows, kind, statistic, modules)
    steps = sorted({row.step for row in rows})
    place = {name: number for number, name in enumerate(names)}
    column = {step: number for number, step in enumerate(steps)}
    values = [[math.nan] * len(steps) for _ in names]
    broken = [[math.nan] * len(steps) for _ in names]
    for row in rows:
        if row.module in place:
            values[place[row.module]][column[row.step]] = getattr(row, statistic)
            if row.nonfinite and statistic != "nonfinite":
                broken[place[row.module]][column[row.step]] = 1.0
    edges = [*steps, steps[-1] + (steps[-1] - steps[-2] if len(steps) > 1 else 1)]
    lines = [number - 0.5 for number in range(len(names) + 1)]
    ax.set_facecolor(NOTHING)
    norm, note = _scale(values, statistic)
    image: Any = ax.pcolormesh(edges, lines, _clipped(values, norm), norm=norm, cmap=_colours(statistic))
    if any(one == 1.0 for line in broken for one in line):
        ax.pcolormesh(edges, lines, broken, cmap=ListedColormap([NONFINITE]))
        ax.legend(handles=[Patch(color=NONFINITE, label="inf or nan")], loc="upper left", fontsize=8)
    ax.figure.colorbar(image, ax=ax, label=note)
    shown = range(0, len(names), math.ceil(len(names) / MOST_NAMES) or 1)
    ax.set_yticks(list(shown), [names[number] or "(model)" for number in shown])
    ax.invert_yaxis()
    what = {"output": "outputs", "gradient": "gradients of the outputs", "update": "updates of the parameters"}[kind]
    ax.set_title(f"{what}: {_TITLES.get(statistic, statistic)}", loc="left", fontsize=11)


_TITLES = {
    "zeros": "share of zeros",
    "nonfinite": "share of inf and nan",
    "saturated": "share of saturated values",
    "std": "standard deviation",
    "largest": "largest magnitude",
    "ratio": "|Δw| / |w|",
}


def _scale(values: list[list[float]], statistic: str) -> tuple[Normalize, str]:
    finite = [one for line in values for one in line if math.isfinite(one)]
    if statistic in SHARES:
        return Normalize(0, 1), "share"
    if statistic in ("std", "largest", "ratio"):
        known = [min(max(one, SMALLEST), LARGEST) for one in finite if one > 0] or [1.0]
        low, high = min(known), max(known)
        return LogNorm(low, high if high > low else low * 10), f"{statistic} (log)"
    limit = max((abs(one) for one in finite), default=0.0) or 1.0
    return Normalize(-limit if statistic == "mean" else 0, limit), statistic


def _clipped(values: list[list[float]], norm: Normalize) -> list[list[float]]:
    """Zero and infinity have no place on a scale of logarithms; here they lie at its ends."""
    low, high = norm.vmin or 0.0, norm.vmax or 1.0
    return [[one if math.isnan(one) else min(max(one, low), high) for one in line] for line in values]


def _colours(statistic: str) -> Any:
    return plt.get_cmap("PuOr" if statistic == "mean" else "cividis").with_extremes(bad=(0, 0, 0, 0))
