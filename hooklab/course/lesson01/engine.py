"""What the reader's own small autograd needs: the order of its backward pass, and a comparison with torch."""

from __future__ import annotations

import warnings
from typing import Any

import torch

NOT_WRITTEN = "not written yet"


def backward_order(end: Any) -> list[Any]:
    """Return `end` and every value that it was computed from, each after all the values that use it.

    Args:
        end: a value with an attribute `made_from`, pairs of a value and a derivative.
    """
    order: list[Any] = []
    seen: set[int] = set()

    def visit(value: Any) -> None:
        if id(value) not in seen:
            seen.add(id(value))
            for source, _ in value.made_from:
                visit(source)
            order.append(value)  # after all that it was made from

    visit(end)
    return order[::-1]


def beside_torch(make: Any) -> str:
    """Return a table of every `.grad` and of what a hook on y saw, in `make` and in torch, for one computation.

    It is x = 1, y = x + 2, z = y·y·0.5 + y·x, so y and x are used more than once.

    Args:
        make: the reader's class; it makes a leaf from a number. Its column says so if it isn't written yet.
    """
    try:
        mine = _run(make, lambda value, hook: value.hooks.append(hook))
    except NotImplementedError:
        mine = dict.fromkeys(("x.grad", "y.grad", "z.grad", "a hook on y saw"), NOT_WRITTEN)
    torchs = _run(
        lambda number: torch.tensor(number, requires_grad=True), lambda value, hook: value.register_hook(hook)
    )
    lines = [f"{'':<16} {'yours':<16} torch"]
    lines += [f"{what:<16} {mine[what]:<16} {torchs[what]}" for what in torchs]
    return "\n".join(lines)


def _run(make: Any, put_hook: Any) -> dict[str, str]:
    seen: list[float] = []
    x, two, half = make(1.0), make(2.0), make(0.5)
    y = x + two
    z = y * y * half + y * x
    put_hook(y, lambda gradient: seen.append(float(gradient)))
    z.backward()
    with warnings.catch_warnings(action="ignore"):  # about reading .grad of a non-leaf, and here that is wanted
        kept = {f"{name}.grad": value.grad for name, value in {"x": x, "y": y, "z": z}.items()}
    told = {name: "None" if grad is None else f"{float(grad):g}" for name, grad in kept.items()}
    return {**told, "a hook on y saw": str(seen)}
