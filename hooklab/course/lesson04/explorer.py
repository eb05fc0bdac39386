"""At the door of a layer: `call_with` calls one with a pre-hook on it; `at_the_door` lets you choose hook and call.

What the hook gets, what `forward` gets, the result and the error all come from a real call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets as widgets
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from hooklab.course import plots
from hooklab.course.errors import error_of
from hooklab.course.explorers import Explorer, canvas, panel

HOOKS: dict[str, Callable[..., Any]] = {  # by their last line; `kwargs` is given only to a hook with with_kwargs=True
    "return args[0] * 2": lambda args, **_: args[0] * 2,
    "return (args[0] * 2,)": lambda args, **_: (args[0] * 2,),
    "return [args[0] * 2]": lambda args, **_: [args[0] * 2],
    "return args * 2": lambda args, **_: args * 2,
    "args[0].mul_(2)": lambda args, **_: _nothing(args[0].mul_(2)),
    "return (args[0] * 2,), kwargs": lambda args, **given: ((args[0] * 2,), _kwargs(given)),
    'return args, {"input": kwargs["input"] * 2}': lambda args, **given: (args, {"input": _kwargs(given)["input"] * 2}),
}
CALLS = ("triple(x)", "triple(input=x)")


@dataclass
class Call:
    """What happened in one call.

    Attributes:
        hook: the hook's last line.
        call: one of CALLS.
        given: what the hook was given, such as {"args": "(2,)", "kwargs": "{}"}.
        forward: what `forward` was given, such as "forward(4)"; "" if it wasn't called.
        result: what the call returned; None if it raised an exception.
        error: the exception's type and message; "" if there was none.
        x: what the caller's tensor holds afterwards; it was 2.
    """

    hook: str
    call: str
    given: dict[str, str]
    forward: str = ""
    result: float | None = None
    error: str = ""
    x: float = 2.0


def call_with(hook: str, call: str = "triple(x)", with_kwargs: bool = False) -> Call:
    """Call a linear layer with the weight 3 on a tensor that holds 2, with a pre-hook on it.

    Args:
        hook: a key of HOOKS.
        call: one of CALLS.
        with_kwargs: whether the hook is registered with `with_kwargs=True`.

    Example:
        >>> call_with("return args[0] * 2").result
        12.0
        >>> call_with("return args[0] * 2", "triple(input=x)").error
        'IndexError: tuple index out of range'
    """
    came = Call(hook, call, {})

    class Triple(nn.Linear):
        def forward(self, *args: Any, **kwargs: Any) -> Tensor:
            named = [f"{name}={_shown(value)}" for name, value in kwargs.items()]
            came.forward = f"forward({', '.join([*map(_shown, args), *named])})"
            return super().forward(*args, **kwargs)

    def pre_hook(module: nn.Module, args: Any, *kwargs: Any) -> Any:
        given = {"args": args} | ({"kwargs": kwargs[0]} if kwargs else {})
        came.given = {name: _shown(value) for name, value in given.items()}
        return HOOKS[hook](**given)

    def run() -> None:
        came.result = (triple(x) if call == CALLS[0] else triple(input=x)).item()

    triple, x = Triple(1, 1, bias=False), torch.tensor([[2.0]])
    nn.init.constant_(triple.weight, 3.0)
    triple.register_forward_pre_hook(pre_hook, with_kwargs=with_kwargs)
    error = error_of(run)
    if error != "no error":
        came.error = error.split(", but got")[0].replace(f"{Triple.__module__}.{Triple.__qualname__}", "Linear")
    came.x = x.item()
    return came


def draw_call(came: Call) -> Figure:
    """Draw a call from left to right: the caller, the hook with what it was given, and what `forward` was given."""
    with plots.style():
        figure, axes = canvas(9.2, 2.0)
        axes.set(xlim=(0, 9.2), ylim=(0.2, 2.2))
        is_written = came.x != 2
        look: Any = {"family": "monospace", "fontsize": 9.5}
        plots.box(axes, 1.0, 1.25, came.call, plots.CHANGED if is_written else plots.FORWARD, 1.74, 0.54, **look)
        holds = f"x holds 2 → {came.x:g}" if is_written else "x holds 2"
        axes.text(1.0, 0.72, holds, ha="center", fontsize=10, color=plots.CHANGED if is_written else plots.INK)
        plots.arrow(axes, (1.95, 1.25), (2.5, 1.25), plots.FORWARD)
        plots.box(axes, 4.45, 1.25, "", plots.INK, 3.74, 0.98)
        given = "   ".join(f"{name} = {value}" for name, value in came.given.items())
        axes.text(4.45, 1.47, given, ha="center", va="center", **look)
        axes.text(4.45, 1.05, came.hook, ha="center", va="center", weight="bold", **look)
        titles = ("you call", f"hook(module, {', '.join(came.given)})", "forward gets" if came.forward else "")
        for x, title in zip((1.0, 4.45, 7.75), titles, strict=True):
            axes.text(x, 1.98, title, ha="center", fontsize=9.5, color=plots.REST)
        if came.forward:
            plots.arrow(axes, (6.4, 1.25), (6.75, 1.25), plots.FORWARD)
            is_new = came.forward not in ("forward(2)", "forward(input=2)") or is_written
            plots.box(axes, 7.75, 1.25, came.forward, plots.CHANGED if is_new else plots.FORWARD, 1.74, 0.54, **look)
            axes.text(7.75, 0.72, "" if came.error else f"returns {came.result:g}", ha="center", fontsize=10)
        else:
            axes.text(7.75, 1.25, "forward isn't called", ha="center", va="center", fontsize=10, color=plots.REST)
        axes.text(4.6, 0.38, came.error, ha="center", fontsize=9.5)
        return figure


def describe_call(came: Call) -> str:
    """Return the sentence for a call: the error, or what `forward` was given and whether your tensor has changed."""
    if came.error:
        return f"{came.error}."
    text = f"The layer returns {came.result:g}."
    if came.x != 2:
        return f"{text} And your own tensor now holds {came.x:g}."
    return text + (" The hook has changed nothing." if came.result == 6 else " Your own tensor still holds 2.")


def at_the_door() -> Explorer:
    """Return the explorer: the hook's last line, how the layer is called, and the option `with_kwargs`."""
    controls: dict[str, widgets.Widget] = {
        "hook": widgets.Dropdown(options=list(HOOKS), description="the hook", layout={"width": "420px"}),
        "call": widgets.Dropdown(options=CALLS, description="the call"),
        "with_kwargs": widgets.Checkbox(False, description="with_kwargs=True", indent=False),
    }
    return panel(
        lambda **values: draw_call(call_with(**values)),
        lambda **values: describe_call(call_with(**values)),
        controls,
        intro="Try this: which hook doubles the input of triple(input=x)? And which one changes your own tensor, too?",
    )


def _shown(value: Any) -> str:
    """Return a value as a reader would write it, each tensor as its one number."""
    if isinstance(value, Tensor):
        return f"{value.item():g}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f'"{name}": {_shown(one)}' for name, one in value.items()) + "}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))}{',' * (len(value) == 1)})"
    return f"[{', '.join(map(_shown, value))}]" if isinstance(value, Sequence) else str(value)


def _kwargs(given: Mapping[str, Any]) -> Any:
    if "kwargs" not in given:
        raise NameError("name 'kwargs' is not defined")  # as in a hook that has no such parameter
    return given["kwargs"]


def _nothing(_: Tensor) -> None:
    """Return None, as a hook does that only writes in place."""
