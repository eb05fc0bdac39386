"""cross: a node of the autograd graph that changes nothing, at which gradients can be read and replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Grads = tuple[Tensor | None, ...]
Then = Callable[[Grads], Sequence[Any] | None]


class Crossing(torch.autograd.Function):
    """Passes tensors on unchanged: each result is a new tensor that shares its memory with the original."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        return grads


class MarkingCrossing(Crossing):
    """The same, but a tensor that doesn't require grad doesn't require it afterwards, either."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        crossed = Crossing.forward(ctx, *tensors)
        ctx.mark_non_differentiable(
            *[after for before, after in zip(tensors, crossed, strict=True) if not before.requires_grad]
        )
        return crossed


def cross(values: Sequence[Any], then: Then, node: type[Crossing] = Crossing) -> tuple[Any, ...]:
    """Send the tensors among some values through one new node of the graph, and return all values in their order.

    Args:
        values: arguments of a module; those that are not tensors stay unchanged.
        then: called in the backward pass, when the gradients arrive at the node, with one entry for each value: its
            gradient, or None if the value is not a tensor. If it returns something, that replaces the gradients.
        node: the kind of node.

    Under no_grad, or if no tensor requires grad, no node is created, and `then` is never called.

    Example:
        >>> x = torch.tensor([2.0], requires_grad=True)
        >>> crossed, five = cross((x, 5), lambda grads: print("here:", grads))
        >>> (crossed * five).backward()
        here: (tensor([5.]), None)
    """
    values = tuple(values)
    places = [place for place, value in enumerate(values) if isinstance(value, Tensor)]
    tensors = [values[place] for place in places]
    if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)):
        return values
    crossed = dict(zip(places, node.apply(*tensors), strict=True))  # type: ignore[no-untyped-call]

    def at_the_node(leaving: Grads, _: Grads) -> Grads | None:
        there = dict(zip(places, leaving, strict=True))
        going_on = then(tuple(there.get(place) for place in range(len(values))))
        return None if going_on is None else tuple(going_on[place] for place in places)

    next(tensor.grad_fn for tensor in crossed.values() if tensor.grad_fn is not None).register_hook(at_the_node)
    return tuple(crossed.get(place, value) for place, value in enumerate(values))


def torchs_cross(values: Sequence[Any], then: Then) -> tuple[Any, ...]:
    """Do what `cross` does, with a node that marks tensors as torch's own does."""
    return cross(values, then, MarkingCrossing)
