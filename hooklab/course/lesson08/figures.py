"""The figures of lesson 8 that are not a monitor's own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from torch import Tensor

from hooklab.course import plots
from hooklab.course.lesson08.deaths import Deaths


def losses(by_patient: Mapping[str, Sequence[float]]) -> Figure:
    """Draw the loss curve of each patient, and the loss of a network that guesses one of ten classes, in grey."""
    with plots.style():
        figure, row = plt.subplots(1, len(by_patient), figsize=(8.6, 2.3), sharey=True, squeeze=False)
        for axes, (name, losses) in zip(row[0], by_patient.items(), strict=True):
            axes.axhline(math.log(10), color=plots.REST, linewidth=4, alpha=0.5)
            axes.plot(losses, color=plots.INK, linewidth=1.3)
            axes.set(title=f"patient {name}", xlabel="step", yscale="log")
            axes.set_yticks([2.3, 10, 100], ["2.3", "10", "100"])
            axes.minorticks_off()
        row[0, 0].set_ylabel("loss (log)")
    return figure


def deaths(seen: Deaths) -> Figure:
    """Draw the share of each batch on which each channel fires; steps across, channels down."""
    with plots.style():
        figure, axes = plt.subplots(figsize=(7.5, 3.6))
        image = axes.imshow(seen.fires.T.numpy(), aspect="auto", vmin=0, vmax=1, interpolation="nearest")
        dead = seen.dead()
        axes.set_yticks(range(16), [f"{channel}  dead" if channel in dead else str(channel) for channel in range(16)])
        axes.tick_params(axis="y", labelsize=9)
        for channel in range(16):
            dark = (seen.fires[:, channel] == 0).nonzero().flatten().tolist()
            if dark:
                place, said = dark[0] - 0.2, _fate(seen, channel)
                axes.text(place, channel, said, color="white", fontsize=9, va="center_baseline")
        axes.set(xlabel="step", ylabel="channel of relu2", title="Share of the batch on which each channel fires")
        figure.colorbar(image, ax=axes, label="share")
    return figure


def _fate(seen: Deaths, channel: int) -> str:
    """Say what becomes of a channel that doesn't fire in some steps."""
    last = seen.last_fired(channel)
    if channel in seen.dead():
        return "never fires" if last < 0 else f"fires for the last time in step {last}"
    return "comes back" if seen.fires[0, channel] else "wakes up"


def after_death(seen: Deaths, channel: int) -> Figure:
    """Draw the gradient of one channel's weights, and what each step moves them by."""
    steps = range(len(seen.moved))
    with plots.style():
        figure, axes = plt.subplots(figsize=(7.5, 2.8))
        axes.bar(steps, seen.moved[:, channel].tolist(), color=plots.CHANGED, label="moved by the step")
        axes.bar(steps, seen.gradient[:, channel].tolist(), color=plots.BACKWARD, width=0.4, label="gradient")
        last = seen.last_fired(channel)
        axes.axvline(last + 0.5, color=plots.REST, linewidth=1, linestyle="--")
        axes.text(last + 0.7, axes.get_ylim()[1] * 0.9, "doesn't fire any more →", color=plots.INK)
        axes.set(xlabel="step", ylabel="norm", title=f"The weights of channel {channel}")
        axes.legend(loc="center right")
    return figure


def histograms(counted: Mapping[str, Tensor], lowest: float, highest: float) -> Figure:
    """Draw a layer's values in each step of some trainings: steps across, values up, bright where there are many.

    Args:
        counted: a training's title -> the counts of each step, of shape (steps, bins).
        lowest: where the first bin begins.
        highest: where the last bin ends.
    """
    with plots.style():
        figure, row = plt.subplots(1, len(counted), figsize=(8.6, 3.0), sharey=True, squeeze=False)
        for axes, (title, counts) in zip(row[0], counted.items(), strict=True):
            bright = counts.T.log1p().numpy()  # a logarithm: few values stay in sight beside many
            axes.imshow(bright, origin="lower", aspect="auto", extent=(0, len(counts), lowest, highest))
            axes.axhline(0, color="white", linewidth=1, linestyle="--")
            axes.set(title=title, xlabel="step")
        row[0, 0].set_ylabel("value of an output")
    return figure
