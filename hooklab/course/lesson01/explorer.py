"""Backward, step by step: `record_backward` runs z.backward() and notes what happens; `backward_steps` shows it.

The steps come from the run itself: a hook on each node of the graph notes when the node runs, what came in and what
goes out, and looks at every `.grad` and every saved number at that moment.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ipywidgets as widgets
import torch
from matplotlib.figure import Figure
from torch import Tensor

from hooklab.course import plots
from hooklab.course.explorers import Explorer, canvas, step_in_words, stepwise

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class Step:
    """One moment of a backward pass through x → y = x + 2 → s = y² → z = mean(s).

    Attributes:
        text: what happens, in a sentence.
        where: the tensor whose node or hook runs ("x", "y", "s", "z"), or "" before and after the pass.
        incoming, outgoing: the gradient that arrives there and the one that leaves; None where there is none.
        grads: tensor name -> what its `.grad` holds now, None if nothing.
        saved: whether the numbers that the node of the square had saved are still there.
        is_hook: whether a tensor hook of the user's runs, and not a node.
    """

    text: str = field(repr=False)  # no picture shows it
    where: str
    incoming: Numbers | None
    outgoing: Numbers | None
    grads: dict[str, Numbers | None]
    saved: bool
    is_hook: bool = False


def record_backward(retain: bool = False, reads: bool = False, doubles: bool = False) -> list[Step]:
    """Run a backward pass and return its steps, recorded by hooks.

    Args:
        retain: call y.retain_grad() before.
        reads: give y a tensor hook that only reads.
        doubles: give y a tensor hook that returns twice the gradient; it runs after the one that reads.

    Example:
        >>> [step.where for step in record_backward(reads=True)]
        ['', 'z', 's', 'y', 'y', 'x', '']
        >>> record_backward(doubles=True)[-1].grads["x"]
        (6.0, 10.0)
    """
    x = torch.tensor([1.0, 3.0], requires_grad=True)
    y = x + 2
    s = y**2
    z = s.mean()
    assert z.grad_fn
    assert s.grad_fn
    assert y.grad_fn
    if retain:
        y.retain_grad()
    steps: list[Step] = []

    def note(text: str, where: str = "", incoming: Any = None, outgoing: Any = None, is_hook: bool = False) -> None:
        held = {name: _held(tensor) for name, tensor in {"x": x, "y": y, "s": s, "z": z}.items()}
        steps.append(Step(text, where, _numbers(incoming), _numbers(outgoing), held, _has_saved(s.grad_fn), is_hook))

    def read(grad: Tensor) -> None:
        note("the hook on y reads the gradient and returns None", "y", grad, grad, is_hook=True)

    def double(grad: Tensor) -> Tensor:
        note("the hook on y returns twice the gradient", "y", grad, 2 * grad, is_hook=True)
        return 2 * grad

    handles = [y.register_hook(hook) for hook, wanted in ((read, reads), (double, doubles)) if wanted]
    accumulate = y.grad_fn.next_functions[0][0]
    assert accumulate is not None
    for where, node in {"z": z.grad_fn, "s": s.grad_fn, "y": y.grad_fn, "x": accumulate}.items():

        def ran(out: Sequence[Tensor], into: Sequence[Tensor], where: str = where, node: Any = node) -> None:
            name = type(node).__name__
            does = "adds the gradient to x.grad" if where == "x" else "runs and passes the gradient on"
            arrived = steps[-1].incoming if steps[-1].is_hook else into[0]  # a hook has changed it at y, not before
            note(f"{name} {does}", where, arrived, out[0] if out else None)

        handles.append(node.register_hook(ran))
    try:
        note("before backward(): no gradients yet; the node of the square has saved y")
        z.backward()
        note("after backward(): gradients that were not kept are freed, and so is the saved y")
    finally:
        for handle in handles:
            handle.remove()
    return steps


def draw_step(steps: Sequence[Step], number: int) -> Figure:
    """Draw step `number` of a recorded pass."""
    step = steps[number]
    names = {"x": "x = [1, 3]", "y": "y = [3, 5]", "s": "s = y²\n= [9, 25]", "z": "z = 17"}
    with plots.style():
        figure, axes = canvas(9.0, 2.5)
        axes.set(xlim=(-0.95, 3.85), ylim=(-1.0, 1.15))
        for place, (name, label) in enumerate(names.items()):
            active = step.where == name
            colour = _colour(step) if active else plots.REST
            plots.box(axes, place, 0.25, label, colour)
            _grad_label(axes, place, name, step.grads[name])
            if place:
                plots.arrow(axes, (place - 0.66, 0.39), (place - 0.32, 0.39), plots.FORWARD)
            if active:
                _gradient_in_flight(axes, place, step)
        nodes = ["AccumulateGrad", "AddBackward0", "PowBackward0", "MeanBackward0"]
        for place, (name, node) in enumerate(zip(names, nodes, strict=True)):
            runs = step.where == name and not step.is_hook
            weight = "bold" if runs else "normal"
            colour = plots.BACKWARD if runs else plots.REST
            axes.text(place, 0.66, node, ha="center", fontsize=9.5, weight=weight, color=colour)
        saved = "has saved y" if step.saved else "y: freed"
        axes.text(2, 0.9, saved, ha="center", fontsize=9, color=plots.FORWARD if step.saved else plots.REST)
        return figure


describe_step = step_in_words


def backward_steps() -> Explorer:
    """Return the explorer: a step slider, a play button, and switches for retain_grad and two hooks on y."""
    switches = {
        "retain": widgets.Checkbox(False, description="y.retain_grad()", indent=False),
        "reads": widgets.Checkbox(False, description="hook on y that reads", indent=False),
        "doubles": widgets.Checkbox(False, description="hook on y that doubles", indent=False),
    }
    return stepwise(
        record_backward,
        draw_step,
        switches,
        intro="Try this: go through the steps once, then switch on the hook that doubles and look at what x keeps.",
    )


def _colour(step: Step) -> str:
    """Purple for a hook that changes the gradient; one that only reads lets it pass as a node does."""
    return plots.CHANGED if step.is_hook and step.outgoing != step.incoming else plots.BACKWARD


def _gradient_in_flight(axes: Any, place: float, step: Step) -> None:
    colour = _colour(step)
    if step.incoming is not None:
        plots.arrow(axes, (place + 0.66, 0.11), (place + 0.32, 0.11), plots.BACKWARD)
        axes.text(place + 0.49, -0.2, _text(step.incoming), ha="center", color=plots.BACKWARD)
    if step.outgoing is not None and step.is_hook:  # y's node has not run yet: nothing is on its way to x
        axes.text(place, -0.2, f"now {_text(step.outgoing)}", ha="center", color=colour)
    elif step.outgoing is not None:
        plots.arrow(axes, (place - 0.32, 0.11), (place - 0.66, 0.11), colour)
        axes.text(place - 0.49, -0.2, _text(step.outgoing), ha="center", color=colour)


def _grad_label(axes: Any, place: float, name: str, held: Numbers | None) -> None:
    text = f"{name}.grad\n{'None' if held is None else _text(held)}"
    axes.text(place, -0.72, text, ha="center", va="center", color=plots.REST if held is None else plots.CAPTURED)


def _held(tensor: Tensor) -> Numbers | None:
    with warnings.catch_warnings(action="ignore"):  # reading .grad of a non-leaf tensor warns
        return _numbers(tensor.grad)


def _numbers(value: Tensor | Numbers | None) -> Numbers | None:
    return tuple(value.detach().flatten().tolist()) if isinstance(value, Tensor) else value


def _has_saved(node: Any) -> bool:
    try:
        return node._saved_self is not None
    except RuntimeError:
        return False


def _text(numbers: Numbers) -> str:
    return "[" + ", ".join(f"{number:g}" for number in numbers) + "]"
