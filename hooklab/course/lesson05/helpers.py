"""Scaffolding of lesson 5 that is not its subject."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.errors import error_of


def linear(weight: list[list[float]]) -> nn.Linear:
    """Return a linear layer with this weight and a bias of zeros."""
    layer = nn.Linear(len(weight[0]), len(weight))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        layer.bias.zero_()
    return layer


def numbers(grads: Iterable[Tensor | None]) -> tuple[Any, ...]:
    """Return gradients as plain numbers, nested lists where there are several, and None for None."""
    return tuple(None if grad is None else grad.item() if grad.numel() == 1 else grad.tolist() for grad in grads)


def shapes(grads: Iterable[Tensor | None]) -> list[Any]:
    """Return the shapes of gradients, and None for None."""
    return [None if grad is None else tuple(grad.shape) for grad in grads]


def calls(steps: str, register: str = "register_full_backward_hook") -> int:
    """Take steps with a new layer and a backward hook, in this order, and return how many times the hook ran.

    Args:
        steps: words from "register", "forward", "backward" and "remove"; "register" comes before "remove".
        register: the method that registers the hook.

    Example:
        >>> calls("register forward backward remove")
        1
    """
    layer = linear([[1.0]])
    ran: list[int] = []
    for step in steps.split():
        if step == "register":
            handle = getattr(layer, register)(lambda *args: ran.append(1))
        elif step == "forward":
            loss = layer(torch.ones(1, 1, requires_grad=True)).sum()
        elif step == "backward":
            loss.backward()
        else:
            handle.remove()
    return len(ran)


def gradients_with(register: str, hook: Callable[..., Any], layer: nn.Module, shape: tuple[int, ...]) -> Any:
    """Put the hook on a layer whose weight is 5 and whose bias is 0, and send ones through it and back.

    Args:
        register: the method that registers the hook.
        hook: a backward hook.
        layer: has one weight and one bias, both of one number.
        shape: of the input, all ones.

    Returns:
        The gradients of the input's first number, of the weight and of the bias, or the error that came, as text.
    """
    for parameter, value in zip(layer.parameters(), (5.0, 0.0), strict=True):
        nn.init.constant_(parameter, value)
    x = torch.ones(shape, requires_grad=True)
    with getattr(layer, register)(hook):
        ended = error_of(lambda: layer(x).sum().backward())
    arrived = [one.grad for one in (x, *layer.parameters())]
    return ended if ended != "no error" else [grad.flatten()[0].item() for grad in arrived if grad is not None]


def warning_of(function: Callable[..., Any], *args: Any) -> str:
    """Call function(*args); return the first warning that came, or "no warning"."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(*args)
    return f"{caught[0].category.__name__}: {caught[0].message}" if caught else "no warning"
