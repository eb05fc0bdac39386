"""What comes back: the gradients that the legacy and the full backward hook report, beside the module's true ones."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as widgets
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from torch import nn

from hooklab.course import plots
from hooklab.course.explorers import Explorer, canvas, panel
from hooklab.course.lesson05.comparing import Comparison, Entry, Report, compare_hooks

# name -> (how to make the module, the shape of its input for a batch of n)
KINDS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], tuple[int, ...]]]] = {
    "Linear, 2-D input": (lambda: nn.Linear(3, 2), lambda n: (n, 3)),
    "Linear, 3-D input": (lambda: nn.Linear(3, 2), lambda n: (n, 4, 3)),
    "Linear without bias": (lambda: nn.Linear(3, 2, bias=False), lambda n: (n, 3)),
    "Conv2d": (lambda: nn.Conv2d(3, 2, 3), lambda n: (n, 3, 5, 5)),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(3), lambda n: (n, 3)),
    "LayerNorm": (lambda: nn.LayerNorm(3), lambda n: (n, 3)),
    "ReLU": (nn.ReLU, lambda n: (n, 3)),
    "Sequential of two": (lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh()), lambda n: (n, 3)),
}
BATCH = (2, 8)


@functools.lru_cache(maxsize=128)
def compare(kind: str, batch: int) -> Comparison:
    """Return what both hooks report for a module of this kind and a batch of this size (2 to 8)."""
    make, shape = KINDS[kind]
    return compare_hooks(make(), shape(batch))


def draw_comparison(comparison: Comparison) -> Figure:
    """Draw three columns: the true gradients, then what each hook got, entry by entry."""
    true = [Entry(shape, name) for name, shape in comparison.gradients.items()]
    with plots.style():
        figure, axes = canvas(9.0, 3.5)
        axes.set(xlim=(0, 9), ylim=(-0.55, 5.1))
        columns: list[tuple[float, str, Sequence[Entry] | None]] = [
            (1.5, "true gradients", true),
            (4.5, "legacy hook: grad_input", _inputs(comparison.legacy)),
            (7.5, "full hook: grad_input", _inputs(comparison.full)),
        ]
        for x, title, entries in columns:
            axes.text(x, 4.75, title, ha="center", weight="bold")
            if entries is None:
                axes.text(x, 3.9, "did not run", ha="center", color=plots.REST)
            for row, entry in enumerate(entries or []):
                _draw_entry(axes, x, 3.9 - 0.95 * row, entry)
        axes.text(
            4.5, -0.35, f"the module's last node: {comparison.last_node}", ha="center", color=plots.REST, fontsize=9
        )
        return figure


def describe_comparison(kind: str, batch: int, comparison: Comparison) -> str:
    """Return a sentence that says whether each hook's first entry is the input's gradient."""
    says = []
    for name, report in (("legacy", comparison.legacy), ("full", comparison.full)):
        if report is None:
            says.append(f"the {name} hook did not run")
            continue
        what = ", ".join(entry.of for entry in report.grad_input)
        says.append(f"the {name} hook got {len(report.grad_input)}: {what}")
    return f"{kind}, batch of {batch}: {'; '.join(says)}."


def what_comes_back() -> Explorer:
    """Return the explorer: the kind of module, and the size of the batch."""
    kind = widgets.Dropdown(options=list(KINDS), value="Linear, 2-D input", description="module")
    batch = widgets.IntSlider(4, *BATCH, 1, description="batch")
    return panel(
        lambda kind, batch: draw_comparison(compare(kind, batch)),
        lambda kind, batch: describe_comparison(kind, batch, compare(kind, batch)),
        {"kind": kind, "batch": batch},
        intro="Try this: go through the modules. For which does the legacy hook report the input's gradient first?",
    )


def _inputs(report: Report | None) -> Sequence[Entry] | None:
    return None if report is None else report.grad_input


def _draw_entry(axes: Any, x: float, y: float, entry: Entry) -> None:
    kind = entry.of.replace(",", " ").split()[0]
    colour = plots.BACKWARD if kind == "input" else plots.CAPTURED
    if kind in ("output", "inside", "nothing"):
        colour = plots.REST
    axes.add_patch(
        FancyBboxPatch((x - 1.2, y - 0.3), 2.4, 0.6, boxstyle="round,pad=0.05", fc="white", ec=colour, lw=1.8)
    )
    axes.text(x, y + 0.12, entry.of, ha="center", va="center", color=colour, fontsize=10)
    axes.text(x, y - 0.16, str(entry.shape or ""), ha="center", va="center", color=plots.INK, fontsize=8.5)
