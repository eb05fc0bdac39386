"""Memory, counted: a Meter that sees every operation, and networks to hold against each other."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hooklab.course.exercises.ready import yours_or

DEPTH, WIDTH, ROWS = 16, 8, 256
ONE_LAYER = ROWS * WIDTH * 4  # bytes of one layer's output
Checkpoint = Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]
TORCHS: Checkpoint = functools.partial(torch.utils.checkpoint.checkpoint, use_reentrant=False)


class Meter(TorchDispatchMode):
    """Counts the bytes of the tensors that operations make in the block, as long as they are there.

    What was there before is not counted, and memory that several tensors share is counted once.

    Attributes:
        alive: the bytes that are there now.
        curve: the same after each operation.
        operations: the operations' names, such as "addmm".

    Example:
        >>> with Meter() as meter:
        ...     doubled = torch.ones(1000) * 2
        >>> meter.operations, meter.curve, meter.alive
        (['ones', 'mul'], [4000, 8000], 4000)
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive = 0
        self.curve: list[int] = []
        self.operations: list[str] = []
        self._known: set[int] = set()

    @property
    def peak(self) -> int:
        """The most bytes that were there at once."""
        return max(self.curve, default=0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {id(storage) for storage in _storages((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        for storage in _storages(result):
            if id(storage) not in given | self._known:
                self._known.add(id(storage))
                self.alive += storage.nbytes()
                weakref.finalize(storage, self._gone, id(storage), storage.nbytes())
        self.operations.append(func.__name__.partition(".")[0])
        self.curve.append(self.alive)
        return result

    def _gone(self, storage: int, size: int) -> None:
        self._known.discard(storage)
        self.alive -= size


def _storages(values: Any) -> list[Any]:
    return [leaf.untyped_storage() for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


class Run(NamedTuple):
    """What a pass and its backward cost.

    Attributes:
        curve: bytes after each operation.
        turn: the number of operations before the backward began.
        matmuls: how many layers' forwards were computed.
        grads: the gradients of the input and of every parameter.
    """

    curve: list[int]
    turn: int
    matmuls: int
    grads: list[Tensor]

    @property
    def peak(self) -> int:
        """The most bytes that were there at once."""
        return max(self.curve)


def deep_network() -> nn.Sequential:
    """Return 16 linear layers of 8 units, each with a tanh; always the same weights."""
    generator = torch.Generator().manual_seed(0)
    layers = []
    for _ in range(DEPTH):
        linear = nn.Linear(WIDTH, WIDTH)
        with torch.no_grad():
            linear.weight.copy_(torch.randn(WIDTH, WIDTH, generator=generator) / WIDTH**0.5)
            linear.bias.zero_()
        layers.append(nn.Sequential(linear, nn.Tanh()))
    return nn.Sequential(*layers)


def run(parts: int, checkpoint: Checkpoint | None) -> Run:
    """Run the deep network forward and back, counted.

    Args:
        parts: into how many equal parts the 16 layers are cut: 1, 2, 4, 8 or 16.
        checkpoint: runs each part; None runs it as it is.
    """
    network = deep_network()
    x = torch.ones(ROWS, WIDTH, requires_grad=True)
    size = DEPTH // parts
    pieces = [network[start : start + size] for start in range(0, DEPTH, size)]
    with Meter() as meter:
        values = x
        for piece in pieces:
            values = checkpoint(piece, values) if checkpoint else piece(values)
        loss = values.sum()
        del values
        turn = len(meter.curve)
        loss.backward()
    grads = [one.grad for one in (x, *network.parameters()) if one.grad is not None]
    return Run(meter.curve, turn, meter.operations.count("addmm"), grads)


def or_torchs(checkpoint: Checkpoint) -> Checkpoint:
    """Return the reader's checkpoint once it is correct, and torch's until then, with a line that says so."""
    return yours_or("10.2", checkpoint, TORCHS)


def training_steps(network: nn.Module, x: Tensor, optimizer: torch.optim.Optimizer | None, steps: int = 1) -> Meter:
    """Train for some steps, counted; without an optimizer, hooks on the parameters do its work."""
    meter = Meter()
    with meter:
        for _ in range(steps):
            network(x).sum().backward()
            if optimizer is not None:
                optimizer.step()
                optimizer.zero_grad()
    return meter


def same_grads(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    """Whether two runs gave the same gradients."""
    return len(one) == len(other) and all(torch.allclose(a, b) for a, b in zip(one, other, strict=True))
