"""Hooks in a row: `run_hooks` runs a backward pass with up to three hooks on y; `hooks_in_a_row` lets you choose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import ipywidgets as widgets
import torch
from matplotlib.figure import Figure
from torch import Tensor

from hooklab.course.exercises.values import tensor_text
from hooklab.course.explorers import Explorer, panel
from hooklab.course.lesson02.figures import NO_HOOK, hook_chain

CODE = {
    NO_HOOK: "no hook",
    "look": "look: kept.append(grad)",
    "double": "double: return 2 * grad",
    "in place": "in place: grad *= 2",
    "forget": "forget: grad = 2 * grad",
}


@dataclass
class Pass:
    """What came of one backward pass from z = mean(y²) to x, with y = x + 2 = (3, 5).

    Attributes:
        after: each place's hook, and the gradient after it.
        kept: the tensors that hooks called "look" have stored, as they are after the pass.
        y_grad, x_grad: what `.grad` holds in the end, with y.retain_grad().
    """

    arrived: Tensor
    after: list[tuple[str, Tensor]] = field(default_factory=list)
    kept: list[Tensor] = field(default_factory=list)
    y_grad: Tensor = field(default_factory=Tensor)
    x_grad: Tensor = field(default_factory=Tensor)


def run_hooks(*names: str) -> Pass:
    """Run a backward pass with these hooks on y, in this order.

    Example:
        >>> run_hooks("look", "double").x_grad
        tensor([ 6., 10.])
        >>> run_hooks("look", "in place").kept  # what it stored was overwritten
        [tensor([ 6., 10.])]
    """
    x = torch.tensor([1.0, 3.0], requires_grad=True)
    y = x + 2
    y.retain_grad()
    seen = Pass(arrived=y)
    hooks: dict[str, Callable[[Tensor], Tensor | None]] = {
        NO_HOOK: lambda grad: None,
        "look": seen.kept.append,
        "double": lambda grad: 2 * grad,
        "in place": _in_place,
        "forget": _forget,
    }

    def start(grad: Tensor) -> None:
        seen.arrived = grad.clone()

    def watched(name: str) -> Callable[[Tensor], Tensor | None]:
        def hook(grad: Tensor) -> Tensor | None:
            returned = hooks[name](grad)
            seen.after.append((name, (grad if returned is None else returned).clone()))
            return returned

        return hook

    y.register_hook(start)  # no handle is kept: these hooks disappear with y
    for name in names:
        y.register_hook(watched(name))
    (y**2).mean().backward()
    assert y.grad is not None
    assert x.grad is not None
    seen.y_grad, seen.x_grad = y.grad, x.grad
    return seen


def describe_hooks(seen: Pass) -> str:
    """Return a sentence on where the gradient ended up, and one on what `look` has in its list."""
    text = f"x.grad = {tensor_text(seen.x_grad)}."
    if not seen.kept:
        return text
    text += f" kept = [{', '.join(map(tensor_text, seen.kept))}]."
    looked = [after for name, after in seen.after if name == "look"]  # as it was when `look` ran
    if all(map(torch.equal, looked, seen.kept)):
        return text
    return text + " A hook has written into a tensor after look had stored it."


def hooks_in_a_row() -> Explorer:
    """Return the explorer: three menus, one for each place of a hook on y."""
    options = [(code, name) for name, code in CODE.items()]
    start = {"first": "look", "second": "double", "third": NO_HOOK}
    menus = {place: widgets.Dropdown(options=options, value=name, description=place) for place, name in start.items()}

    def draw(first: str, second: str, third: str) -> Figure:
        seen = run_hooks(first, second, third)
        return hook_chain(seen.arrived, seen.after, kept=seen.y_grad, owner="y")

    def say(first: str, second: str, third: str) -> str:
        return describe_hooks(run_hooks(first, second, third))

    return panel(
        draw,
        say,
        menus,
        intro="Try this: let the second hook write in place. What does look's list hold after the pass?",
    )


def _in_place(grad: Tensor) -> None:
    grad *= 2


def _forget(grad: Tensor) -> None:
    grad = 2 * grad  # what S3's second hook does: the new tensor is lost
