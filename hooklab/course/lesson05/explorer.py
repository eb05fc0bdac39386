"""The border of a module: `record_border` runs a forward and a backward pass step by step; `border` shows them.

The layer has the weights 2 and 3, its input is [1, 4]. Every step comes from the run: the layer's forward, the hooks
on it, and hooks on the nodes of the graph record what they get.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ipywidgets as widgets
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from hooklab.course import plots
from hooklab.course.explorers import Explorer, canvas, step_in_words, stepwise

BORDER_NODE = "BackwardHookFunctionBackward"
# Where a gradient can be in the backward pass, from right to left.
PLACES = ("y", "inside the output border", "inside the input border", "x")
# In the picture: the middle of each one's arrow, and half its length.
_WAY = dict(zip(PLACES, ((7.65, 0.75), (6.08, 0.5), (2.92, 0.5), (1.35, 0.75)), strict=True))


@dataclass(frozen=True)
class Step:
    """One moment of a forward and a backward pass.

    Attributes:
        text: what happens, in a sentence.
        active: the part that is at work: "input border", "layer", "output border", or "".
        borders: whether the input border and the output border are in the graph by now.
        gradients: place -> the gradient that has been there, for those of PLACES that one has reached.
        kept: name -> `.grad`, for "x", "weight" and "bias", as far as they have one.
        hook: what the hook that runs has been given, in words; "" if none runs.
        changed: whether that hook returned something else.
    """

    text: str = field(repr=False)  # no picture shows it
    active: str
    borders: tuple[bool, bool]
    gradients: dict[str, list[float]]
    kept: dict[str, list[float]]
    hook: str = ""
    changed: bool = False


class _Layer(nn.Linear):
    """A linear layer that says when its forward runs, and on what."""

    def __init__(self) -> None:
        super().__init__(2, 1)
        with torch.no_grad():
            self.weight.copy_(torch.tensor([[2.0, 3.0]]))
            self.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        self.given = x
        self.made = super().forward(x)
        return self.made


def record_border(asks: bool = True, pre: bool = False, reverses: bool = False, late: bool = False) -> list[Step]:
    """Run a layer with backward hooks forward and backward, and return the steps.

    Args:
        asks: whether the input requires grad.
        pre: give the layer a full backward pre-hook that returns ten times what it gets.
        reverses: let the full backward hook return minus what it gets; otherwise it only reads.
        late: register both after the call instead of before it.

    Example:
        >>> [step.active for step in record_border()]
        ['', 'input border', 'layer', 'output border', 'output border', 'layer', 'input border', '']
        >>> record_border(late=True)[-1].borders
        (False, False)
    """
    layer, x = _Layer(), torch.tensor([[1.0, 4.0]], requires_grad=asks)
    steps: list[Step] = []
    gradients: dict[str, list[float]] = {}
    borders = [False, False]

    def note(text: str, active: str = "", hook: str = "", changed: bool = False) -> None:
        named = {"x": x, "weight": layer.weight, "bias": layer.bias}
        kept = {name: _plain(one.grad) for name, one in named.items() if one.grad is not None}
        steps.append(Step(text, active, (borders[0], borders[1]), dict(gradients), kept, hook, changed))

    def pre_hook(module: nn.Module, grad_output: Any) -> Any:
        note(
            "the pre-hook gets grad_output and returns ten times as much",
            "output border",
            f"pre-hook: grad_output = ({_text(grad_output[0])},)  →  ({_text(10 * grad_output[0])},)",
            changed=True,
        )
        return (10 * grad_output[0],)

    def hook(module: nn.Module, grad_input: Any, grad_output: Any) -> Any:
        turned = reverses and grad_input[0] is not None
        result = f"  →  ({_text(-grad_input[0])},)" if turned else ""
        given = f"hook: grad_output = ({_text(grad_output[0])},)   grad_input = ({_text(grad_input[0])},){result}"
        early = "" if asks else "x doesn't require grad, so right away "
        does = "returns minus grad_input" if turned else "reads, and returns None"
        note(f"{early}the full hook runs; it {does}", "input border" if asks else "output border", given, turned)
        return (-grad_input[0],) if turned else None

    handles: list[RemovableHandle] = []

    def register() -> None:
        handles.append(layer.register_full_backward_hook(hook))
        if pre:
            handles.append(layer.register_full_backward_pre_hook(pre_hook))

    if not late:
        register()
    note("before the call: nothing is recorded yet" + ("; the hooks are registered" if not late else ""))
    y = layer(x)
    node, inner = y.grad_fn, layer.made.grad_fn
    borders[0] = layer.given is not x
    note("x crosses the input border" if borders[0] else "the call passes x to forward unchanged", "input border")
    note("forward runs, and its operations are recorded", "layer")
    borders[1] = node is not inner
    note(
        "the output crosses the output border" if borders[1] else "the call returns the output unchanged",
        "output border",
    )
    if late:
        register()
        note("only now are the hooks registered: too late for this pass, its graph has been recorded")
    handles += _follow(layer, x, y, gradients, note)
    with warnings.catch_warnings(action="ignore"):  # a hook on a layer whose input doesn't require grad warns
        y.sum().backward()
    note("after backward()" + ("" if any(step.hook for step in steps) else ": no hook has run"))
    # Hooks on nodes hold the layer, and the layer holds its output with the nodes: a circle through C++, which Python's
    # garbage collector cannot see.
    for handle in handles:
        handle.remove()
    del layer.given, layer.made
    return steps


def _follow(layer: _Layer, x: Tensor, y: Tensor, gradients: dict[str, list[float]], note: Any) -> list[RemovableHandle]:
    """Put hooks on the nodes, which write down each gradient at each place, and return their handles."""
    inner = layer.made.grad_fn
    assert inner
    assert y.grad_fn

    def arrived(grads: Sequence[Tensor]) -> None:
        gradients["y"] = _plain(grads[0])
        if y.grad_fn is not inner:
            note("the gradient of y arrives at the output border", "output border")

    def inside(grads: Sequence[Tensor]) -> None:
        gradients[PLACES[1]] = _plain(grads[0])

    def passed(out: Sequence[Tensor | None], into: Sequence[Tensor]) -> None:
        if out[1] is not None:  # bias, input, transposed weight
            gradients[PLACES[2]] = _plain(out[1])
        note("the layer's own node runs: it computes the gradients of the input, the weight and the bias", "layer")

    handles = [y.grad_fn.register_prehook(arrived), inner.register_prehook(inside), inner.register_hook(passed)]
    if x.requires_grad:
        handles.append(x.register_hook(lambda grad: gradients.update(x=_plain(grad))))
    return handles


def draw_border(steps: Sequence[Step], number: int) -> Figure:
    """Draw step `number` of a recorded run."""
    step = steps[number]
    with plots.style():
        figure, axes = canvas(9.0, 3.3)
        axes.set(xlim=(0, 9), ylim=(0, 3.3))
        at_work = step.active == "layer"
        plots.box(axes, 4.5, 1.85, "", plots.INK if at_work else plots.REST, 2.0, 1.1)
        axes.text(4.5, 1.98, "the layer", ha="center", va="center", weight="bold" if at_work else "normal")
        axes.text(4.5, 1.7, "AddmmBackward0", ha="center", va="center", fontsize=9, color=plots.REST)
        for name, x, is_there in zip(("input border", "output border"), (2.35, 6.65), step.borders, strict=True):
            _node(axes, x, name, is_there, step.active == name)
        _forward_arrows(axes, steps, number)
        for place, (x, half) in _WAY.items():
            if place in step.gradients:
                colour = plots.CHANGED if _was_changed(step.gradients, place) else plots.BACKWARD
                plots.arrow(axes, (x + half, 1.6), (x - half, 1.6), colour)
                axes.text(x, 1.33, _listed(step.gradients[place]), ha="center", color=colour, fontsize=10)
        axes.text(0.35, 1.85, "x", ha="center", va="center", fontsize=13)
        axes.text(8.65, 1.85, "y", ha="center", va="center", fontsize=13)
        for name, x in (("x", 0.75), ("weight", 4.5), ("bias", 6.3)):
            if name in step.kept:
                label = f"{name}.grad = {_listed(step.kept[name])}"
                axes.text(x, 0.72, label, ha="center", color=plots.CAPTURED, fontsize=10)
        if step.hook:
            axes.text(4.5, 0.2, step.hook, ha="center", color=plots.CHANGED if step.changed else plots.INK)
        return figure


describe_border = step_in_words


def border() -> Explorer:
    """Return the explorer: a step slider, a play button, and four switches."""
    switches = {
        "asks": widgets.Checkbox(True, description="x requires grad", indent=False),
        "pre": widgets.Checkbox(False, description="pre-hook returns 10 ×", indent=False),
        "reverses": widgets.Checkbox(False, description="hook returns −", indent=False),
        "late": widgets.Checkbox(False, description="registered after the call", indent=False),
    }
    return stepwise(
        record_border,
        draw_border,
        switches,
        intro="Try this: go back to step 0 and press play. Then switch off 'x requires grad': where does the hook run? "
        "Then register it too late.",
        start=6,  # the full hook runs: the picture that shows where no kernel does
        shows=lambda steps, number: (steps[number], min(number, 3)),
    )


def _forward_arrows(axes: Axes, steps: Sequence[Step], number: int) -> None:
    """Draw the forward pass as far as the call has come: it takes steps 1 to 3."""
    for (x, half), needed, text in zip(reversed(_WAY.values()), (1, 2, 3, 3), ("[1, 4]", "", "", "14"), strict=True):
        if number >= needed:
            plots.arrow(axes, (x - half, 2.1), (x + half, 2.1), plots.FORWARD)
            axes.text(x, 2.25, text, ha="center", color=plots.FORWARD, fontsize=10)


def _was_changed(gradients: dict[str, list[float]], place: str) -> bool:
    """Whether a hook at the border on the right of this place has changed the gradient."""
    right_of_it = {PLACES[1]: PLACES[0], PLACES[3]: PLACES[2]}.get(place)
    return right_of_it is not None and gradients.get(right_of_it) != gradients[place]


def _node(axes: Axes, x: float, label: str, is_there: bool, is_active: bool) -> None:
    if is_there:
        axes.plot([x, x], [1.1, 2.6], color=plots.INK, linewidth=6 if is_active else 3)
        axes.text(x, 2.98, label, ha="center", fontsize=10, weight="bold" if is_active else "normal")
        axes.text(x, 2.74, BORDER_NODE, ha="center", fontsize=7.5, color=plots.REST)
    else:
        axes.plot([x, x], [1.1, 2.6], color=plots.REST, linewidth=1, linestyle=":")


def _plain(tensor: Tensor) -> list[float]:
    values: list[float] = tensor.detach().flatten().tolist()
    return values


def _text(tensor: Tensor | None) -> str:
    return "None" if tensor is None else _listed(_plain(tensor))


def _listed(values: Sequence[float]) -> str:
    text = ", ".join(f"{value:g}" for value in values)
    return f"[{text}]" if len(values) > 1 else text
