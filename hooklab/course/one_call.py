"""The moving picture of one call: from the arguments through pre-hooks, forward and hooks to the output.

`record_call` makes a real call of a module that multiplies by 3, and records after every station what each value is and
which values share their memory. Lesson 3 shows a part of it, lesson 6 all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ipywidgets as widgets
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from hooklab.course import plots
from hooklab.course.explorers import Explorer, canvas, panel, stepper


@dataclass(frozen=True)
class Does:
    """What a hook of the picture does: the function, and its words at the station, when it ran."""

    function: Callable[[Tensor], Any] | None
    says: str


PRE_HOOKS: dict[str, Does] = {
    "no pre-hook": Does(None, ""),
    "return None": Does(lambda x: None, "returns None:\nnothing changes"),
    "return args[0] * 10": Does(lambda x: x * 10, "returns 20:\nput into (20,)"),
    "return (args[0] * 10,)": Does(lambda x: (x * 10,), "returns (20,):\nthe new args"),
    "args[0].mul_(10)": Does(lambda x: _nothing(x.mul_(10)), "writes 20 into\nyour tensor"),
}
HOOKS: dict[str, Does] = {
    "no forward hook": Does(None, ""),
    "return None": Does(lambda output: None, "returns None:\nnothing changes"),
    "return output + 1": Does(lambda output: output + 1, "returns a new\ntensor: it replaces"),
    "output.add_(1)": Does(lambda output: _nothing(output.add_(1)), "writes into\nthe output"),
}
STATIONS = ("pre-hook", "border", "forward", "forward hook", "border")
BOXES = ("you pass", "args", "forward gets", "forward makes", "output", "you get")
LAST = len(STATIONS)


@dataclass
class Record:
    """One call. After step n, `values[n]` holds the values of the first n + 1 boxes; `memory` names their memory."""

    says: list[str]
    values: list[list[float]] = field(default_factory=list)
    memory: list[str] = field(default_factory=list)

    def is_changed(self, place: int, step: int) -> bool:
        """Whether a hook has changed this box's value, compared with before the hook or with its first value."""
        before = {1: self.values[0][0], 4: self.values[3][3]}.get(place, self.values[place][place])
        return self.values[step][place] != before

    def until(self, step: int) -> object:
        """Return what a picture of this step shows: what was passed, and which hooks there are."""
        return self.values[: step + 1], self.memory[: step + 1], self.says[:step], [*map(bool, self.says)]


def record_call(pre: str = "no pre-hook", hook: str = "no forward hook", backward: bool = False) -> Record:
    """Call a module that multiplies by 3 with a tensor that holds 2, and with these hooks on it.

    Args:
        pre: a key of PRE_HOOKS.
        hook: a key of HOOKS.
        backward: whether there is a full backward hook as well, whose border the input and the output cross.

    Example:
        >>> record_call("return args[0] * 10", "return output + 1").values[-1]
        [2.0, 20.0, 20.0, 60.0, 61.0, 61.0]
    """
    crosses = "another tensor,\nthe same memory" if backward else ""
    record = Record([PRE_HOOKS[pre].says, crosses, "x * 3", HOOKS[hook].says, crosses])
    boxes: list[Tensor] = []

    def keep(value: Tensor) -> None:
        boxes.append(value)  # kept, so that no other tensor can get its memory
        record.values.append([box.item() for box in boxes])
        places = list(dict.fromkeys(box.untyped_storage().data_ptr() for box in boxes))
        record.memory.append("ABCDEF"[places.index(value.untyped_storage().data_ptr())])

    class Times3(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            keep(x)
            keep(x * 3)
            return boxes[-1]

    module = Times3()
    if change := PRE_HOOKS[pre].function:
        module.register_forward_pre_hook(lambda module, args: change(args[0]))
    module.register_forward_pre_hook(lambda module, args: keep(args[0]))
    if replace := HOOKS[hook].function:
        module.register_forward_hook(lambda module, args, output: replace(output))
    module.register_forward_hook(lambda module, args, output: keep(output))
    if backward:
        module.register_full_backward_hook(lambda module, grad_input, grad_output: None)
    keep(torch.tensor(2.0, requires_grad=backward) * 1)  # times 1: a leaf must not be changed in place
    keep(module(boxes[0]))
    return record


def draw_call(record: Record, step: int = LAST) -> Figure:
    """Draw a call up to a step: the stations above, the values between them, and what shares memory below."""
    with plots.style():
        figure, axes = canvas(9.6, 2.5)
        axes.set(xlim=(0, 9.6), ylim=(0.4, 2.9))
        _draw(axes, record, step, range(len(BOXES)))
        return figure


def draw_hooks(hooks: Sequence[str]) -> Figure:
    """Draw what some forward hooks do, side by side: what forward makes, the hook, and the output.

    Args:
        hooks: keys of HOOKS; each is a part's title.
    """
    with plots.style():
        figure, axes = canvas(3.1 * len(hooks), 2.9)
        axes.set(xlim=(0, 3.1 * len(hooks)), ylim=(0.4, 3.3))
        for nth, hook in enumerate(hooks):
            _draw(axes, record_call(hook=hook), LAST, (3, 4), left=3.1 * nth + 0.15, both=True)
            axes.text(3.1 * nth + 1.55, 3.05, hook, ha="center", family="monospace", color=plots.INK)
        return figure


def _draw(axes: Axes, record: Record, step: int, boxes: Sequence[int], left: float = 0.0, both: bool = False) -> None:
    """Draw these boxes of a call and the stations between them; with `both`, show a changed value and its old one."""
    memory = [record.memory[place] for place in boxes if place <= step]
    letters = dict(zip(dict.fromkeys(memory), "ABCDEF", strict=False))
    for nth, place in enumerate(boxes):
        x = left + 0.55 + 1.7 * nth
        axes.text(x, 1.98, BOXES[place], ha="center", fontsize=9, color=plots.REST)
        if place <= step:
            value = record.values[step][place]
            text = f"({value:g},)" if place < 2 else f"{value:g}"
            if both and value != (first := record.values[place][place]):
                text = f"{first:g} → {value:g}"
            colour = plots.CHANGED if record.is_changed(place, step) else plots.FORWARD
            plots.box(axes, x, 1.55, text, colour, 0.66, 0.48, fontsize=12)
            axes.text(x, 1.02, f"memory {letters[record.memory[place]]}", ha="center", fontsize=9, color=plots.INK)
    _same_memory(axes, memory, left)
    for nth, place in enumerate(box - 1 for box in boxes[1:]):
        x, title = left + 1.4 + 1.7 * nth, STATIONS[place]
        is_there, is_past = bool(record.says[place]), place < step
        plots.arrow(axes, (x - 0.5, 1.55), (x + 0.5, 1.55), plots.FORWARD if is_past else "#DDDDDD")
        weight = "bold" if is_there else "normal"
        shade = plots.INK if is_there and is_past else "#BBBBBB"
        axes.text(x, 2.64, title if is_there else f"no {title}", ha="center", fontsize=10, color=shade, weight=weight)
        if is_past:
            axes.text(x, 2.53, record.says[place], ha="center", va="top", fontsize=8.5, color=plots.INK)


def describe_call(record: Record, step: int = LAST) -> str:
    """Return a sentence for the step: the station that was passed, and the value after it."""
    if not step:
        return f"You call the module: args is ({record.values[0][0]:g},)."
    what, says = STATIONS[step - 1], record.says[step - 1].replace("\n", " ")
    if not says:
        return f"No {what}: the value stays unchanged."
    text = f"{what.capitalize()}: {says}. After it, the value is {record.values[step][-1]:g}."
    written = [BOXES[place] for place in range(step) if record.values[step][place] != record.values[step - 1][place]]
    return text + (f" The value at {written[0]!r} has changed as well: it has the same memory." if written else "")


def moving_call(pre: str = "return args[0] * 10", hook: str = "return output + 1", backward: bool = False) -> Explorer:
    """Return the explorer: what the pre-hook does, what the forward hook does, and the steps of the call."""
    steps, play, _ = stepper(LAST)
    controls: dict[str, widgets.Widget] = {
        "pre": widgets.Dropdown(options=list(PRE_HOOKS), value=pre, description="pre-hook"),
        "hook": widgets.Dropdown(options=list(HOOKS), value=hook, description="hook"),
        "backward": widgets.Checkbox(backward, description="a full backward hook as well", indent=False),
        "step": steps,
    }
    steps.value = LAST
    return panel(
        lambda pre, hook, backward, step: draw_call(record_call(pre, hook, backward), step),
        lambda pre, hook, backward, step: describe_call(record_call(pre, hook, backward), step),
        controls,
        intro="Try this: go through the steps. Then let a hook write in place: who else sees it?",
        rows=[[controls["pre"], controls["hook"], controls["backward"]], [play, steps]],
        shows=lambda pre, hook, backward, step: record_call(pre, hook, backward).until(step),
    )


def positions(
    chosen: Sequence[tuple[str, str, bool]] = (
        ("return args[0] * 10", "return output + 1", False),
        ("args[0].mul_(10)", "return None", True),
    ),
) -> list[Figure]:
    """Return pictures of some positions of the explorer, for a page without a kernel."""
    return [draw_call(record_call(*one)) for one in chosen]


def _nothing(_: Tensor) -> None:
    """Return None, as a hook does that only writes in place."""


def _same_memory(axes: Axes, memory: Sequence[str], start: float) -> None:
    """Draw a bracket below the boxes that share their memory; they stand side by side."""
    for letter in dict.fromkeys(memory):
        first = memory.index(letter)
        left, right = (start + 0.55 + 1.7 * place for place in (first, first + memory.count(letter) - 1))
        if left < right:
            axes.plot([left, left, right, right], [0.9, 0.8, 0.8, 0.9], color=plots.REST, lw=1.2)
            text = "the same memory"
            axes.text((left + right) / 2, 0.74, text, ha="center", va="top", fontsize=8.5, color=plots.REST)
