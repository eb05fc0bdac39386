"""The figures of lesson 8 that are not a monitor's own."""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from hooklab.course import plots
from hooklab.course.lesson08.deaths import Deaths


def deaths(seen: Deaths) -> Figure:
    """Draw the share of each batch on which each channel fires; steps across, channels down."""
    with plots.style():
        figure, axes = plt.subplots(figsize=(7.5, 3.6))
        image = axes.imshow(seen.fires.T.numpy(), aspect="auto", vmin=0, vmax=1, interpolation="nearest")
        dead = seen.dead()
        axes.set_yticks(range(16), [f"{channel}  dead" if channel in dead else str(channel) for channel in range(16)])
        axes.tick_params(axis="y", labelsize=9)
        axes.set(xlabel="step", ylabel="channel of relu2", title="Share of the batch on which it fires")
        figure.colorbar(image, ax=axes, label="share")
    return figure


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
