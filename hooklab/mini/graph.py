"""The autograd graph: a ``Node`` for each step of the forward pass; ``run_backward`` walks them in reverse."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from hooklab.mini.handles import HookTable

if TYPE_CHECKING:
    from hooklab.mini.tensor import Tensor

Gradient: TypeAlias = "Tensor | None"  # None: no gradient came this way
Edge: TypeAlias = "tuple[Node, int]"  # where a gradient goes next: a node, and for which of its outputs
Formula: TypeAlias = "Callable[[Tensor], Sequence[Gradient]]"  # gradient of the output -> one for each input

_recording: ContextVar[bool] = ContextVar("recording", default=True)
_clock = count()


def is_recording() -> bool:
    """Whether operations add themselves to the graph."""
    return _recording.get()


@contextmanager
def no_grad() -> Iterator[None]:
    """Compute without adding to the graph. Hooks run in this mode during ``backward()``.

    Example:
        >>> from hooklab.mini import Tensor
        >>> x = Tensor([1.0], requires_grad=True)
        >>> with no_grad():
        ...     (x * 2.0).requires_grad
        False
    """
    token = _recording.set(False)
    try:
        yield
    finally:
        _recording.reset(token)


class Node:
    """A step of the forward pass, run backwards: gradients of its outputs come in, gradients of its inputs go out.

    Tensor hooks belong to the node that made the tensor, not to the tensor: that is why a hook still runs after
    the tensor's name is gone, and why it stays with the old node when the tensor is changed in place.
    """

    def __init__(self, edges: Sequence[Edge | None], outputs: int = 1) -> None:
        self.edges = edges
        self.outputs = outputs
        self.order: float = next(_clock)
        self.tensor_hooks: list[tuple[int, HookTable]] = []
        self.retaining: dict[int, Tensor] = {}

    def run(self, arriving: list[Gradient]) -> Sequence[Gradient]:
        """Hooks first, then ``retain_grad``, then the mathematics: a hook decides what the node itself sees."""
        for nr, table in list(self.tensor_hooks):
            arriving[nr] = _through_hooks(arriving[nr], table)
        # After all hooks, however early retain_grad() was called: `.grad` is the value that really flowed on.
        for nr, tensor in self.retaining.items():
            grad = arriving[nr]
            if grad is not None:
                tensor.grad = grad.detach() if tensor.grad is None else tensor.grad + grad
        return self.apply(arriving)

    def apply(self, arriving: list[Gradient]) -> Sequence[Gradient]:
        """Turn gradients of the outputs into one gradient, or None, for each edge."""
        raise NotImplementedError

    def release(self) -> None:
        """Free what was kept for this backward pass."""


class Operation(Node):
    """The node of an arithmetic operation with one output."""

    def __init__(self, name: str, edges: Sequence[Edge | None], formula: Formula) -> None:
        super().__init__(edges)
        self.name = name
        self._formula = formula
        self._saved: list[tuple[Tensor, int]] | None = []

    def save(self, *tensors: Tensor) -> None:
        """Remember tensors that the formula needs, each with its version, to notice a later change in place."""
        assert self._saved is not None
        self._saved += [(tensor, tensor.version[0]) for tensor in tensors]

    def apply(self, arriving: list[Gradient]) -> Sequence[Gradient]:
        if self._saved is None:
            raise RuntimeError("Trying to backward through the graph a second time: use retain_graph=True in the first")
        for tensor, version in self._saved:
            _ = tensor.grad_fn  # a view made for full backward hooks says itself that its base has changed
            if tensor.version[0] != version:
                raise RuntimeError(
                    f"one of the variables needed for gradient computation, by {self}, "
                    "has been modified by an inplace operation"
                )
        (grad,) = arriving
        # Surprise: a node without a gradient is still visited, so that its tensor hooks get None.
        return [None] * len(self.edges) if grad is None else self._formula(grad)

    def release(self) -> None:
        if self._saved:  # an operation that saved nothing (a sum) can be passed twice
            self._saved = None

    def __repr__(self) -> str:
        return f"<{self.name}Backward>"


def run_backward(root: Edge, seed: Tensor, *, retain_graph: bool) -> None:
    """Send ``seed`` from ``root`` to all leaves: each node runs once, when all its gradients have come together."""
    expected = _count_arrivals(root[0])
    arrived: dict[Node, list[Gradient]] = {}
    ready: list[tuple[float, int, Node]] = []
    ticket = count()  # decides between nodes of equal order: first come, first served

    def deliver(edge: Edge, grad: Gradient) -> None:
        node, nr = edge
        grads = arrived.setdefault(node, [None] * node.outputs)
        if grad is not None:
            sum_so_far = grads[nr]
            grads[nr] = grad if sum_so_far is None else sum_so_far + grad
        expected[node] -= 1
        if expected[node] == 0:
            heapq.heappush(ready, (-node.order, next(ticket), node))

    with no_grad():
        deliver(root, seed)
        while ready:
            _, _, node = heapq.heappop(ready)  # of the nodes that could run, the one made last in forward
            leaving = node.run(arrived.pop(node))
            if not retain_graph:
                node.release()
            for edge, grad in zip(node.edges, leaving, strict=True):
                if edge is not None:
                    deliver(edge, grad)


def check_gradient(old: Any, new: Any, who: str) -> None:
    """Raise if a hook's return value cannot replace the gradient."""
    if new is None:
        return
    if old is None:
        raise RuntimeError(f"can't replace a None gradient with a non-None value: {who} did")
    if not isinstance(new, type(old)):
        raise TypeError(f"expected Variable, but hook returned '{type(new).__name__}'")  # Tensor, by its old name
    if new.shape != old.shape:
        raise RuntimeError(f"{who} has changed the size of value, from {old.shape} to {new.shape}")


def _through_hooks(grad: Any, table: HookTable) -> Any:
    """Each hook gets the gradient that the previous hook returned; None keeps it."""
    for _, hook in table.snapshot():
        returned = hook(grad)
        check_gradient(grad, returned, f"hook {getattr(hook, '__name__', '<unknown>')!r}")
        grad = grad if returned is None else returned
    return grad


def _count_arrivals(root: Node) -> dict[Node, int]:
    """How many gradients each node has to wait for."""
    counts: dict[Node, int] = {root: 1}  # the gradient that backward() begins with
    to_visit = [root]
    while to_visit:
        for edge in to_visit.pop().edges:
            if edge is not None:
                node = edge[0]
                if node not in counts:
                    counts[node] = 0
                    to_visit.append(node)
                counts[node] += 1
    return counts
