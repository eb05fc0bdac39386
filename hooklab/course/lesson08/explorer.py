"""A training that goes wrong, or well: `trained` runs one under a monitor, `going_wrong` shows it step by step."""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from typing import NamedTuple

import ipywidgets as widgets
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import nn
from torch.optim import SGD

from hooklab.course import plots
from hooklab.course.explorers import Drawing, Explorer, panel
from hooklab.course.lesson08.clinic import WIDTH, Training, examine

STEPS = 40
DEPTH = 5
RATES = (0.01, 0.1, 1.0, 3.0)
GAINS = (0.1, 1.0, 4.0)


class Run(NamedTuple):
    """The loss of each step; each ReLU's zeros and spread in each step, nan where a value wasn't finite."""

    losses: list[float]
    zeros: list[list[float]]
    std: list[list[float]]
    accuracy: float


@functools.lru_cache(maxsize=64)
def trained(rate: float, gain: float, norm: bool) -> Run:
    """Train five ReLU layers on the digits.

    Args:
        rate: the learning rate of SGD.
        gain: the first weights have the standard deviation gain · sqrt(2 / inputs); 1 keeps the spread of the outputs.
        norm: put batch normalisation before each ReLU.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        parts: OrderedDict[str, nn.Module] = OrderedDict()
        for number in range(DEPTH):
            layer = nn.Linear(64 if number == 0 else WIDTH, WIDTH)
            nn.init.normal_(layer.weight, std=gain * math.sqrt(2 / layer.in_features))
            nn.init.zeros_(layer.bias)
            parts[f"fc{number + 1}"] = layer
            if norm:
                parts[f"norm{number + 1}"] = nn.BatchNorm1d(WIDTH)
            parts[f"act{number + 1}"] = nn.ReLU()
        parts["out"] = nn.Linear(WIDTH, 10)
        model = nn.Sequential(parts)
    training = Training(model, SGD(model.parameters(), lr=rate))
    health = examine(training, nn.ReLU, steps=STEPS)
    acts = [f"act{number + 1}" for number in range(DEPTH)]
    by_name = {(row.module, row.step): row for row in health.rows if row.kind == "output"}
    rows = [[by_name[name, step] for step in range(STEPS)] for name in acts]
    zeros = [[row.zeros if not row.nonfinite else math.nan for row in line] for line in rows]
    std = [[row.std if not row.nonfinite else math.nan for row in line] for line in rows]
    return Run(training.losses, zeros, std, training.accuracy())


def draw(rate: float, gain: float, norm: bool, step: int) -> Figure:
    """Draw the loss, and below it the zeros and spread of each ReLU, up to this step."""
    run = trained(rate, gain, norm)
    figure = Drawing(figsize=(8.0, 4.6), facecolor="white")
    figure.set_layout_engine("none")
    top = figure.add_axes((0.09, 0.74, 0.78, 0.19))
    top.plot(run.losses[: step + 1], color=plots.FORWARD)
    top.axhline(math.log(10), color=plots.REST, linewidth=0.8)
    top.set(xlim=(-0.5, STEPS - 0.5), ylim=(0, 5), ylabel="loss")
    top.set_title("loss (grey: guessing)", loc="left", fontsize=10)
    top.set_xticks([])
    below = (
        ("share of zeros in each ReLU's output", run.zeros, Normalize(0, 1), 0.42),
        ("its standard deviation", run.std, LogNorm(1e-6, 1e3), 0.11),
    )
    for title, values, norm_, bottom in below:
        axes = figure.add_axes((0.09, bottom, 0.78, 0.23))
        _heat(axes, figure, np.array(values), norm_, step, bottom)
        axes.set_title(f"{title} (orange: inf or nan)", loc="left", fontsize=10)
        if bottom > 0.2:
            axes.set_xticks([])
        else:
            axes.set_xlabel("step", labelpad=1)
    return figure


def _heat(axes: Axes, figure: Figure, values: NDArray[np.float64], norm: Normalize, step: int, bottom: float) -> None:
    low, high = norm.vmin or 0.0, norm.vmax or 1.0
    shown = np.clip(values, low, high)[:, : step + 1]
    colours = plt.get_cmap("cividis").with_extremes(bad=plots.BACKWARD)
    image = axes.imshow(
        np.ma.masked_invalid(shown), norm=norm, cmap=colours, aspect="auto", interpolation="nearest",
        extent=(-0.5, step + 0.5, DEPTH + 0.5, 0.5),
    )  # fmt: skip
    axes.set(xlim=(-0.5, STEPS - 0.5), ylim=(DEPTH + 0.5, 0.5))
    axes.set_yticks(range(1, DEPTH + 1), [f"act{number}" for number in range(1, DEPTH + 1)], fontsize=9)
    figure.colorbar(image, cax=figure.add_axes((0.89, bottom, 0.02, 0.23)))


def say(rate: float, gain: float, norm: bool, step: int) -> str:
    """Return the sentence under the picture."""
    run = trained(rate, gain, norm)
    loss = run.losses[step]
    zeros = [line[step] for line in run.zeros]
    broken = [f"act{number + 1}" for number, share in enumerate(zeros) if math.isnan(share)]
    dead = [f"act{number + 1}" for number, share in enumerate(zeros) if share >= 0.95]
    state = f"not finite: {', '.join(broken)}" if broken else f"dead: {', '.join(dead)}" if dead else "no ReLU is dead"
    return f"Step {step}: the loss is {loss:.3g}; {state}. In the end {run.accuracy:.0%} of the test digits are right."


def going_wrong() -> Explorer:
    """Return the explorer: learning rate, first weights, normalisation, and the step."""
    controls = {
        "rate": widgets.Dropdown(options=RATES, value=0.1, description="lr"),
        "gain": widgets.Dropdown(options=GAINS, value=1.0, description="gain"),
        "norm": widgets.Checkbox(False, description="batch normalisation", indent=False),
        "step": widgets.IntSlider(20, 0, STEPS - 1, 1, description="step"),
    }
    return panel(
        draw,
        say,
        controls,
        intro="Try this: find a learning rate at which it breaks, then switch the normalisation on. Then try a gain of "
        "0.1 at step 0.",
        rows=[[controls["rate"], controls["gain"], controls["norm"]], [controls["step"]]],
        shows=lambda rate, step, **first: (first, step, rate if step else None),  # before the first update
    )
