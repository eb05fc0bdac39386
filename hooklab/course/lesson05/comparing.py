"""What backward hooks report, as plain data: `compare_hooks`, and the nodes that they sit on: `nodes_inside`."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hooklab._shared.trees import tensors

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Entry:
    """One entry of a hook's tuple: its shape, None for an entry that is None, and what it is the gradient of.

    `of` is "input" ("input 1", "input 2" if there are several), the name of a parameter such as "0.weight", either of
    them with " transposed", "output" ("output 1", …) for the gradient of an output, also with ", reshaped", "inside"
    for a gradient of some value inside the module, and "nothing" for None.
    """

    shape: Shape | None
    of: str


@dataclass(frozen=True)
class Report:
    """What one hook got in one backward pass."""

    grad_input: tuple[Entry, ...]
    grad_output: tuple[Entry, ...]


@dataclass(frozen=True)
class Comparison:
    """What both kinds of backward hook got from a module, None for a hook that did not run, beside the truth.

    `gradients` maps the names of the inputs and of the parameters to the shapes of their true gradients.
    """

    last_node: str
    legacy: Report | None
    full: Report | None
    gradients: dict[str, Shape]


def compare_hooks(module: nn.Module, *input_shapes: Sequence[int]) -> Comparison:
    """Run a module's backward with a legacy hook, with a full hook and with none, and name what each hook got.

    Entries are named by their values: each is looked for among the true gradients, which `torch.autograd.grad`
    computes without any hook. The inputs and the gradients sent into the outputs are random, so that equal values
    mean the same gradient; one that was passed on unchanged keeps the name it had before. The runs are made on copies
    in float64; `module` stays as it is.

    Args:
        module: takes tensors of floats. It must not have had backward hooks of its own.
        *input_shapes: the shape of each positional argument.

    Raises:
        ValueError: no output of the module requires grad.
        RuntimeError: torch refuses a full hook here: the module changes its input or its output in place.

    Example:
        >>> comparison = compare_hooks(nn.Linear(3, 2), (4, 3))
        >>> [entry.of for entry in comparison.legacy.grad_input]
        ['bias', 'input', 'weight transposed']
        >>> comparison.full.grad_input
        (Entry(shape=(4, 3), of='input'),)
    """
    true, last_node = _true_gradients(module, input_shapes)
    return Comparison(
        last_node=last_node,
        legacy=_report("register_backward_hook", module, input_shapes, true),
        full=_report("register_full_backward_hook", module, input_shapes, true),
        gradients={name: tuple(grad.shape) for name, grad in true.items() if not name.startswith("output")},
    )


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


@dataclass(frozen=True)
class _Run:
    """A forward pass of a copy of a module, and the gradients to send into its differentiable outputs."""

    twin: nn.Module  # a legacy hook holds its module weakly: keep it until backward is over
    inputs: list[Tensor]
    outputs: list[Tensor]
    sent: list[Tensor]


def _run(module: nn.Module, input_shapes: Sequence[Sequence[int]], hook: Callable[[nn.Module], object]) -> _Run:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # each run of a module with dropout must draw the same numbers
        inputs = [torch.randn(tuple(shape), dtype=torch.float64, requires_grad=True) for shape in input_shapes]
        twin = copy.deepcopy(module).double()
        hook(twin)
        output = twin(*(one.clone() for one in inputs))  # a module may change its input in place; a leaf it may not
        outputs = [one for one in tensors(output) if one.requires_grad]
        if not outputs:
            raise ValueError(f"no gradient flows through this {type(module).__name__}: no output of it requires grad")
        return _Run(twin, inputs, outputs, [torch.randn_like(one) for one in outputs])


def _true_gradients(module: nn.Module, input_shapes: Sequence[Sequence[int]]) -> tuple[dict[str, Tensor], str]:
    run = _run(module, input_shapes, hook=lambda twin: None)
    named = dict(zip(_names("input", len(run.inputs)), run.inputs, strict=True))
    named |= {name: parameter for name, parameter in run.twin.named_parameters() if parameter.requires_grad}
    gradients = torch.autograd.grad(run.outputs, list(named.values()), run.sent, allow_unused=True)
    found = {name: grad for name, grad in zip(named, gradients, strict=True) if grad is not None}
    found |= dict(zip(_names("output", len(run.sent)), run.sent, strict=True))
    return found, type(run.outputs[0].grad_fn).__name__


def _report(
    register: str, module: nn.Module, input_shapes: Sequence[Sequence[int]], true: dict[str, Tensor]
) -> Report | None:
    got: list[Report] = []

    def hook(_: nn.Module, grad_input: Any, grad_output: Any) -> None:
        got.append(Report(_entries(grad_input, true, "input"), _entries(grad_output, true, "output")))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of what this comparison is there to show
        run = _run(module, input_shapes, lambda twin: getattr(twin, register)(hook))
        torch.autograd.backward(run.outputs, run.sent)
    return got[0] if got else None


def _entries(values: Sequence[Tensor | None], true: dict[str, Tensor], kind: str) -> tuple[Entry, ...]:
    """Name each value. Of several gradients that are equal, the one at the same place is meant."""
    numbered = len([name for name in true if name.startswith(kind)]) > 1
    likely = [f"{kind} {place + 1}" if numbered else kind for place in range(len(values))]
    return tuple(_entry(value, true, first) for value, first in zip(values, likely, strict=True))


def _entry(value: Tensor | None, true: dict[str, Tensor], first: str) -> Entry:
    if value is None:
        return Entry(None, "nothing")
    shape = tuple(value.shape)
    for name in sorted(true, key=lambda name: name != first):
        if _same(value, true[name]):
            return Entry(shape, name)
    for name, grad in true.items():
        if grad.dim() == 2 and _same(value, grad.T):
            return Entry(shape, f"{name} transposed")
        if name.startswith("output") and value.numel() == grad.numel() and _same(value.flatten(), grad.flatten()):
            return Entry(shape, f"{name}, reshaped")
    return Entry(shape, "inside")


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-6, atol=1e-9)


def _names(kind: str, count: int) -> list[str]:
    return [kind] if count == 1 else [f"{kind} {place + 1}" for place in range(count)]
