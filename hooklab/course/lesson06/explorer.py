"""Who runs when: `record_order` runs a small net with the hooks of your choice and notes every moment.

The network is `net = first → second`. The chosen hooks are on `first`; the other modules are observed with
`hooklab.timeline`, so that the hooks stand between the events around them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import ipywidgets as widgets
import torch
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.hooks import RemovableHandle

from hooklab.course import plots
from hooklab.course.explorers import Explorer, canvas, panel
from hooklab.tracing import Event, timeline

Kind = Literal["module", "forward", "hook", "error"]

CHOICES = {
    "pre": "pre-hook",
    "hook": "forward hook",
    "prepended": "forward hook, prepend",
    "always": "forward hook, always_call",
    "everywhere": "global forward hook",
    "backward_pre": "full backward pre-hook",
    "backward": "full backward hook",
    "raises": "first.forward raises",
}


@dataclass(frozen=True)
class Moment:
    """One moment of a run: what it says, of which kind, and whether it belongs to the way back."""

    text: str
    kind: Kind
    is_backward: bool = False


class _Times3(nn.Module):
    def __init__(self, note: Callable[..., None], raises: bool) -> None:
        super().__init__()
        self.note, self.raises = note, raises

    def forward(self, x: Tensor) -> Tensor:
        self.note("first.forward runs", "forward")
        if self.raises:
            self.note("it raises ValueError", "error")
            raise ValueError("raised on purpose")
        return x * 3


def record_order(
    pre: bool = False,
    hook: bool = False,
    prepended: bool = False,
    always: bool = False,
    everywhere: bool = False,
    backward_pre: bool = False,
    backward: bool = False,
    raises: bool = False,
) -> list[Moment]:
    """Run the net forward and backward with the chosen hooks on `first`, and return every moment in order.

    The hooks are registered in the order of the arguments. All of them are gone afterwards.

    Example:
        >>> [moment.text for moment in record_order(hook=True, prepended=True) if moment.kind == "hook"]
        ['forward hook, prepend', 'forward hook']
        >>> [moment.text for moment in record_order(hook=True, always=True, raises=True) if moment.kind == "hook"]
        ['forward hook, always_call']
    """
    placed: list[tuple[int, Moment]] = []

    def note(text: str, kind: Kind, is_backward: bool = False) -> None:
        so_far = [event for event in events if event.kind in _SAYS]
        placed.append((len(so_far), Moment(text, kind, is_backward)))

    def hook_for(choice: str, is_backward: bool = False) -> Callable[..., None]:
        return lambda *_: note(CHOICES[choice], "hook", is_backward)

    def of_first(module: nn.Module, *_: Any) -> None:
        if module is first:
            note(CHOICES["everywhere"], "hook")

    first = _Times3(note, raises)
    net = nn.Sequential()
    net.add_module("first", first)
    net.add_module("second", nn.ReLU())
    register: list[tuple[bool, Callable[[], RemovableHandle]]] = [
        (pre, lambda: first.register_forward_pre_hook(hook_for("pre"))),
        (hook, lambda: first.register_forward_hook(hook_for("hook"))),
        (prepended, lambda: first.register_forward_hook(hook_for("prepended"), prepend=True)),
        (always, lambda: first.register_forward_hook(hook_for("always"), always_call=True)),
        (everywhere, lambda: register_module_forward_hook(of_first)),
        (backward_pre, lambda: first.register_full_backward_pre_hook(hook_for("backward_pre", True))),
        (backward, lambda: first.register_full_backward_hook(hook_for("backward", True))),
    ]
    with timeline(net, net, "second") as events, warnings.catch_warnings(action="ignore"):
        handles = [make() for wanted, make in register if wanted]
        try:
            net(torch.tensor([1.0, -2.0], requires_grad=True)).sum().backward()
            note("x.grad is there", "module", True)
        except ValueError:
            note("the caller gets the ValueError", "error")
        finally:
            for handle in handles:
                handle.remove()
        told = [_of_module(event) for event in events if event.kind in _SAYS]
    # a hook that was noted after n events comes before event number n
    merged = sorted([*((place - 0.5, one) for place, one in placed), *enumerate(told)], key=lambda pair: pair[0])
    return [moment for _, moment in merged]


def draw_order(moments: Sequence[Moment]) -> Figure:
    """Draw a recorded run: forward down the left side, backward up the right side."""
    forward = [moment for moment in moments if not moment.is_backward]
    backward = [moment for moment in moments if moment.is_backward]
    with plots.style():
        figure, axes = canvas(9.0, 4.6)
        axes.set(xlim=(0, 9), ylim=(0, 11.9))
        axes.text(4.5, 11.4, "net = first → second", ha="center", color=plots.INK)
        axes.text(4.5, 10.9, "the hooks are on first", ha="center", color=plots.CHANGED, fontsize=9.5)
        axes.text(2.2, 11.2, "forward, downwards", ha="center", color=plots.FORWARD, weight="bold")
        upwards = "backward, upwards" if backward else "no backward pass: the call raised"
        axes.text(6.8, 11.2, upwards, ha="center", color=plots.BACKWARD, weight="bold" if backward else "normal")
        # Backward starts beside the end of forward. It has five moments at most, and such a forward at least five.
        turn = 11.2 - len(forward)
        for column, x, start, step in ((forward, 2.2, 10.2, -1), (backward, 6.8, turn, 1)):
            way = plots.FORWARD if column is forward else plots.BACKWARD
            for number, moment in enumerate(column):
                _draw_moment(axes, x, start + step * number, moment, way)
                if number:
                    plots.arrow(axes, (x, start + step * (number - 0.62)), (x, start + step * (number - 0.38)), way)
        if backward:
            plots.arrow(axes, (4.05, turn), (4.95, turn), plots.BACKWARD)
        return figure


def describe_order(moments: Sequence[Moment]) -> str:
    """Return the hooks that ran, in order, as a sentence."""
    ran = [moment.text for moment in moments if moment.kind == "hook"]
    failed = any(moment.kind == "error" for moment in moments)
    text = f"Hooks that ran, in order: {'; '.join(ran)}." if ran else "No hook ran."
    return text + (" The error skipped everything else." if failed else "")


def call_order() -> Explorer:
    """Return the explorer: a box to tick for each hook, and one that makes `first.forward` raise."""
    boxes = {name: widgets.Checkbox(name == "hook", description=text, indent=False) for name, text in CHOICES.items()}
    return panel(
        lambda **chosen: draw_order(record_order(**chosen)),
        lambda **chosen: describe_order(record_order(**chosen)),
        boxes,
        intro="The hooks are on first. Try this: tick all forward hooks, say in which order they run, let it raise.",
        rows=[list(boxes.values())[:4], list(boxes.values())[4:]],
        shows=record_order,
    )


# When a module's backward is over is known only afterwards, so that event is left out.
_SAYS = {"forward-pre": "starts", "forward": "has its output", "backward-pre": "gets a gradient"}


def _of_module(event: Event) -> Moment:
    return Moment(f"{event.name or 'net'} {_SAYS[event.kind]}", "module", event.kind.startswith("backward"))


def _draw_moment(axes: Any, x: float, y: float, moment: Moment, way: str) -> None:
    edge = {"module": plots.REST, "forward": way, "hook": plots.CHANGED, "error": plots.INK}[moment.kind]
    face = {"module": "white", "forward": "white", "hook": "#FBEFF5", "error": "#E8E8E8"}[moment.kind]
    box = FancyBboxPatch((x - 1.55, y - 0.22), 3.1, 0.44, boxstyle="round,pad=0.08", fc=face, ec=edge, lw=1.6, zorder=2)
    axes.add_patch(box)
    weight = "bold" if moment.kind == "hook" else "normal"
    axes.text(x, y, moment.text, ha="center", va="center", fontsize=9.5, weight=weight, color=plots.INK, zorder=3)
