"""The explorer of lesson 11: one process's gradient, step by step: what is sent, what is kept, and what has arrived."""

from __future__ import annotations

from typing import NamedTuple

import ipywidgets as widgets
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from hooklab.course.explorers import Explorer, canvas, panel, stepper
from hooklab.course.plots import BACKWARD, CAPTURED, INK, REST, style

# Eight numbers of a gradient: seven are the same in each step, the last one turns its sign each time.
GRADIENT = torch.tensor([8.0, 5.0, 3.0, -3.0, 2.0, -1.0, 1.0, 0.0])
TURNING = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 4.0])
LAST = 12


class Exchange(NamedTuple):
    """One step of one process.

    Attributes:
        gradient: of this step.
        kept: what was left of the steps before; zeros without a memory.
        sent: what is sent in this step.
        asked: the sum of all gradients so far.
        arrived: the sum of all that was sent so far.
        ever: which numbers were sent at least once.
    """

    gradient: Tensor
    kept: Tensor
    sent: Tensor
    asked: Tensor
    arrived: Tensor
    ever: Tensor

    @property
    def never(self) -> int:
        """How many of the numbers have not been sent in any step."""
        return int((~self.ever).sum())

    @property
    def owed(self) -> Tensor:
        """What has not arrived of all gradients so far."""
        return self.asked - self.arrived


def exchanges(number: int, remembers: bool) -> list[Exchange]:
    """Return the steps in which the `number` largest of eight numbers are sent; `remembers` keeps what is not sent.

    Example:
        >>> exchanges(2, remembers=False)[11].arrived.tolist()
        [96.0, 60.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
        >>> exchanges(2, remembers=True)[11].owed.tolist()
        [8.0, 0.0, 0.0, -6.0, 4.0, -4.0, 1.0, 0.0]
    """
    kept = asked = arrived = torch.zeros(len(GRADIENT))
    ever = torch.zeros(len(GRADIENT), dtype=torch.bool)
    steps = []
    for step in range(LAST):
        gradient = GRADIENT + TURNING * (-1) ** step
        wanted = gradient + kept
        sent = torch.zeros_like(wanted)
        places = wanted.abs().topk(number).indices
        sent[places] = wanted[places]
        asked, arrived, ever = asked + gradient, arrived + sent, ever | (sent != 0)
        steps.append(Exchange(gradient, kept, sent, asked, arrived, ever))
        kept = wanted - sent if remembers else kept
    return steps


def what_is_owed() -> Explorer:
    """Return the explorer: a step slider, a play button, and how many numbers are sent in each step."""
    slider, play, _ = stepper(LAST)
    slider.value = play.value = LAST // 2
    slider.min = play.min = 1
    number = widgets.Dropdown(options=[1, 2, 4], value=2, description="send")

    def at(step: int, number: int) -> tuple[Exchange, Exchange, int]:
        return exchanges(number, False)[step - 1], exchanges(number, True)[step - 1], step

    return panel(
        lambda step, number: draw(*at(step, number)),
        lambda step, number: say(*at(step, number)),
        {"step": slider, "number": number},
        intro="Try this: go back to step 1 and play. Below, which bars grow until they are sent, and which never?",
        rows=[[play, slider, number]],
    )


def say(without: Exchange, remembering: Exchange, step: int) -> str:
    """Return the sentence for one step, without a memory and with one."""
    return (
        f"After {step} step{'s' if step > 1 else ''}: without a memory {without.never} of 8 numbers were never sent, "
        f"and {_owed(without)} is lost; with it {remembering.never}, and {_owed(remembering)} waits."
    )


def draw(without: Exchange, remembering: Exchange, step: int) -> Figure:
    """Draw one step: above without a memory, below with one; left what is sent now, right what has arrived so far."""
    with style():
        figure, _ = canvas(8.6, 4.3)
        figure.clear()
        for bottom, one, name in ((0.6, without, "without a memory"), (0.11, remembering, "with a memory")):
            now = figure.add_axes((0.06, bottom, 0.42, 0.32))
            so_far = figure.add_axes((0.57, bottom, 0.42, 0.32))
            _this_step(now, one, f"{name}: step {step}")
            _so_far(so_far, one, f"all {step} steps" if step > 1 else "1 step")
            if one is without:  # its bars leave room
                now.legend(fontsize=9, loc="upper right", handlelength=1.2)
                so_far.legend(fontsize=9, loc="upper right", handlelength=1.2)
        return figure


def _this_step(axes: Axes, one: Exchange, title: str) -> None:
    places = range(1, len(GRADIENT) + 1)
    axes.bar(places, one.kept.tolist(), color=REST, alpha=0.6, width=0.7, label="kept from before")
    base = (one.kept * (one.kept * one.gradient >= 0)).tolist()  # with opposite signs, both start at the line
    axes.bar(places, one.gradient.tolist(), bottom=base, color=BACKWARD, width=0.4, label="gradient")
    is_sent = (one.sent != 0).tolist()
    wanted = one.kept + one.gradient
    axes.bar(
        [place for place, sent in zip(places, is_sent, strict=True) if sent],
        [value for value, sent in zip(wanted.tolist(), is_sent, strict=True) if sent],
        fill=False,
        ec=CAPTURED,
        lw=2.5,
        width=0.8,
        label="sent",
    )
    _dress(axes, title, (-23.0, 26.0))


def _so_far(axes: Axes, one: Exchange, title: str) -> None:
    places = range(1, len(GRADIENT) + 1)
    axes.bar(places, one.asked.tolist(), color=BACKWARD, alpha=0.35, width=0.7, label="all gradients")
    axes.bar(places, one.arrived.tolist(), color=CAPTURED, width=0.4, label="all that was sent")
    _dress(axes, title, (-44.0, 101.0))


def _dress(axes: Axes, title: str, limits: tuple[float, float]) -> None:
    axes.axhline(0, color=INK, lw=0.8)
    axes.set(title=title, ylim=limits, xticks=range(1, len(GRADIENT) + 1))
    axes.tick_params(labelsize=9)
    axes.set_xlabel("place in the gradient", fontsize=9, labelpad=1)


def _owed(one: Exchange) -> str:
    return f"{(one.owed.abs().sum() / one.asked.abs().sum()).item():.0%} of the sum"
