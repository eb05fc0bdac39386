"""What backward hooks report, as plain data: `compare_hooks`, and the nodes that they sit on: `nodes_inside`."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Entry(NamedTuple):
    """One entry of a hook's `grad_input`: its shape, None for an entry that is None, and what it is the gradient of.

    `of` is "input", the name of a parameter such as "0.weight", either of them with " transposed", "output, reshaped",
    "inside" for a gradient of some value inside the module, and "nothing" for None.
    """

    shape: tuple[int, ...] | None
    of: str


class Report(NamedTuple):
    """What one hook got in one backward pass."""

    grad_input: tuple[Entry, ...]


class Comparison(NamedTuple):
    """What both kinds of backward hook got from a module, and the name of its last node."""

    last_node: str
    legacy: Report
    full: Report


def compare_hooks(module: nn.Module, shape: Sequence[int]) -> Comparison:
    """Run a module's backward with a legacy hook and with a full hook, and name what each hook got.

    Entries are named by their values: each is looked for among the gradients that end up in `.grad`. The input and the
    gradient that is sent into the output are random, so that equal values mean the same gradient; one that was passed
    on unchanged keeps the name it had before. The runs are made on copies in float64; `module` stays as it is.

    Args:
        module: takes one tensor of floats and returns one. It must not have had backward hooks of its own.
        shape: of the input.

    Raises:
        RuntimeError: torch refuses a full hook here: the module changes its input or its output in place.

    Example:
        >>> comparison = compare_hooks(nn.Linear(3, 2), (4, 3))
        >>> [entry.of for entry in comparison.legacy.grad_input]
        ['bias', 'input', 'weight transposed']
        >>> comparison.full.grad_input
        (Entry(shape=(4, 3), of='input'),)
    """
    last_node, legacy = _reported(module, shape, "register_backward_hook")
    return Comparison(last_node, legacy, _reported(module, shape, "register_full_backward_hook")[1])


def nodes_inside(output: Tensor, given: Tensor) -> list[str]:
    """Return the names of the autograd nodes between `output` and the leaf `given`, first computed first.

    Of several ways the first one found is taken. Raises ValueError if `output` does not depend on `given`.

    Example:
        >>> x = torch.ones(4, 3, requires_grad=True)
        >>> nodes_inside(nn.Sequential(nn.Linear(3, 2), nn.ReLU())(x), x)
        ['AddmmBackward0', 'ReluBackward0']
    """
    unfinished: list[tuple[Any, list[str]]] = [(output.grad_fn, [])]
    seen = set()
    while unfinished:
        node, later = unfinished.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if getattr(node, "variable", None) is given:
            return later
        found = [type(node).__name__, *later]
        unfinished += [(before, found) for before, _ in reversed(node.next_functions)]
    raise ValueError("the output does not depend on the given tensor: is it a leaf that requires grad?")


def _reported(module: nn.Module, shape: Sequence[int], register: str) -> tuple[str, Report]:
    """Return the name of the last node, and what a hook reports that is registered like this."""
    got: list[Tensor | None] = []
    # torch warns of what this comparison is there to show
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings(action="ignore"):
        torch.manual_seed(0)
        twin, x = copy.deepcopy(module).double(), torch.randn(tuple(shape), dtype=torch.float64, requires_grad=True)
        getattr(twin, register)(lambda module, grad_input, grad_output: got.extend(grad_input))
        output = twin(x.clone())  # a module may change its input in place; a leaf it may not
        sent = torch.randn_like(output)
        output.backward(sent)
    grads = {"input": x.grad, **{name: one.grad for name, one in twin.named_parameters()}, "output": sent}
    true = {name: grad for name, grad in grads.items() if grad is not None}
    return type(output.grad_fn).__name__, Report(tuple(_entry(value, true) for value in got))


def _entry(value: Tensor | None, true: Mapping[str, Tensor]) -> Entry:
    if value is None:
        return Entry(None, "nothing")
    shape = tuple(value.shape)
    for name, grad in true.items():
        if _same(value, grad):
            return Entry(shape, name)
    for name, grad in true.items():
        if grad.dim() == 2 and _same(value, grad.T):
            return Entry(shape, f"{name} transposed")
    is_output = _same(value.flatten(), true["output"].flatten())
    return Entry(shape, "output, reshaped" if is_output else "inside")


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-6, atol=1e-9)
