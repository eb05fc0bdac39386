"""``Tensor``: numbers, the node that made them, tensor hooks, and a few operations."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hooklab.mini.graph import Edge, Formula, Gradient, Node, Operation, is_recording, run_backward
from hooklab.mini.handles import Hook, HookTable, RemovableHandle

Array = npt.NDArray[np.float64]


class Tensor:
    """An array of float64 that takes part in the autograd graph.

    Args:
        data: numbers in nested lists, of any shape.
        requires_grad: whether to compute its gradient.

    Example:
        >>> x = Tensor([1.0, 2.0], requires_grad=True)
        >>> y = x * 3.0
        >>> handle = y.register_hook(lambda grad: grad * 10.0)
        >>> y.sum().backward()
        >>> x.grad
        Tensor([30.0, 30.0])
    """

    def __init__(self, data: Any, requires_grad: bool = False) -> None:
        self.data: Array = np.array(data, dtype=np.float64)
        self.requires_grad = requires_grad
        self._node: Node | None = None
        self._viewed_at: int | None = None  # for a view made for full backward hooks: the version that it shows
        self.version = [0]  # a list, because tensors that share their data share the count of changes in place
        self._output_nr = 0  # which output of grad_fn this is
        self._grad: Tensor | None = None
        self._hooks: HookTable | None = None
        self._retains_grad = False
        self._accumulator: AccumulateGrad | None = None

    # Leaves, and where gradients are kept

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def grad_fn(self) -> Node | None:
        """The node that made this tensor; None for a leaf."""
        if self._viewed_at not in (None, self.version[0]):
            # Surprise: asking is enough to get this, and `is_leaf` and every operation ask.
            raise RuntimeError(
                f"{self._view_name()} and its base or another view of its base has been modified inplace"
            )
        return self._node

    @property
    def is_leaf(self) -> bool:
        """True for a tensor that no recorded operation made."""
        return self.grad_fn is None

    @property
    def grad(self) -> Tensor | None:
        """The gradient that was kept here. A non-leaf tensor keeps none, unless ``retain_grad()`` was called."""
        if self._node is not None and not self._retains_grad and self._grad is None:
            warnings.warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is None: use .retain_grad() before backward",
                stacklevel=2,
            )
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        self._grad = value

    def retain_grad(self) -> None:
        """Keep the gradient of a non-leaf tensor in ``.grad``. Raises RuntimeError if it requires no gradient."""
        if not self.requires_grad:
            raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
        if self.grad_fn is not None:
            self._retains_grad = True
            self.grad_fn.retaining[self._output_nr] = self

    def register_hook(self, hook: Hook) -> RemovableHandle:
        """Run ``hook(grad)`` when the gradient of this tensor arrives; a returned tensor replaces it.

        Raises RuntimeError if the tensor does not require gradient. ``backward()`` raises if the hook returns
        something wrong: TypeError if it is not a tensor, RuntimeError if it has a different shape.
        """
        if not self.requires_grad:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        if self._hooks is None:
            self._hooks = HookTable()
            node, nr = self._source()
            node.tensor_hooks.append((nr, self._hooks))
        return self._hooks.add(hook)

    def backward(self, retain_graph: bool = False) -> None:
        """Compute the gradients of all leaves. Raises RuntimeError if this is not a scalar or requires no gradient."""
        if not self.requires_grad:
            raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")
        if self.data.size != 1:
            raise RuntimeError(
                f"grad can be implicitly created only for scalar outputs: this one has shape {self.shape}"
            )
        run_backward(self._source(), Tensor(np.ones(self.shape)), retain_graph=retain_graph)

    def _source(self) -> Edge:
        """The node that this tensor's gradient goes to. For a leaf, the one that adds it to ``.grad``."""
        if self.grad_fn is not None:
            return self.grad_fn, self._output_nr
        if self._accumulator is None:
            self._accumulator = AccumulateGrad(self)
        return self._accumulator, 0

    def edge(self) -> Edge | None:
        """Where to send a gradient for this tensor, or None if it wants none."""
        return self._source() if self.requires_grad else None

    # Operations: a result, and the formula for its gradients

    def __add__(self, other: Tensor | float) -> Tensor:
        if not isinstance(other, Tensor | int | float):
            return NotImplemented
        other = self._operand(other)
        return _result("Add", self.data + other.data, [self, other], lambda grad: [grad, grad])

    def __mul__(self, other: Tensor | float) -> Tensor:
        if not isinstance(other, Tensor | int | float):
            return NotImplemented
        a, b = self, self._operand(other)
        result = _result("Mul", a.data * b.data, [a, b], lambda grad: [grad * b, grad * a])
        # each factor is needed for the gradient of the other one, and only if that one wants a gradient
        return _save(result, *([b] if a.requires_grad else []), *([a] if b.requires_grad else []))

    __radd__ = __add__
    __rmul__ = __mul__

    def __pow__(self, n: float) -> Tensor:
        def formula(grad: Tensor) -> list[Gradient]:
            if n == 0:  # a constant; the formula below would multiply 0 by infinity where the number is 0
                return [Tensor(np.zeros(self.shape))]
            return [grad * Tensor(n * self.data ** (n - 1))]

        return _save(_result("Pow", self.data**n, [self], formula), self)

    def sum(self) -> Tensor:
        """The sum of all elements, of shape ()."""
        return _result("Sum", self.data.sum(), [self], lambda grad: [Tensor(np.full(self.shape, grad.data))])

    def relu(self) -> Tensor:
        """The positive part of each element."""
        positive = np.where(self.data < 0.0, 0.0, self.data)  # keeps NaN, and the sign of -0.0
        result = _result("Relu", positive, [self], lambda grad: [Tensor(np.where(result.data <= 0.0, 0.0, grad.data))])
        return _save(result, result)

    def mul_(self, factor: float) -> Tensor:
        """Multiply by a number in place, written over this tensor's own numbers.

        In the graph the tensor moves on to a new node, which leads back to the old one. Raises RuntimeError for a leaf
        that requires gradient, and for what goes into or comes out of a module with full backward hooks.
        """
        recording = self.requires_grad and is_recording()
        if recording and self.is_leaf:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation")
        if recording and self._viewed_at is not None:
            raise RuntimeError(f"{self._view_name()} and is being modified inplace; it was made for backward hooks")
        source = self._source() if recording else None
        self.data *= factor
        self.version[0] += 1
        if source is not None:
            self._node, self._output_nr = Operation("Mul", [source], lambda grad: [grad * factor]), 0
            _save(self, Tensor(factor))
            # Surprise: hooks stay with the old node and see the gradient of the old value; retain_grad comes along.
            self._hooks = None
            if source[0].retaining.pop(source[1], None) is not None:
                self.retain_grad()
        return self

    def detach(self) -> Tensor:
        """The same numbers (shared, not copied), outside the graph."""
        return self.view_from(None, 0)

    def view_from(self, node: Node | None, output_nr: int) -> Tensor:
        """The same numbers (shared, not copied), as output ``output_nr`` of ``node``."""
        view = Tensor(())
        view.data, view.version = self.data, self.version
        if node is not None:
            view.requires_grad = True
            view._node, view._output_nr, view._viewed_at = node, output_nr, self.version[0]
        return view

    def _view_name(self) -> str:
        return f"Output {self._output_nr} of BackwardHookFunction is a view"

    def _operand(self, other: Tensor | float) -> Tensor:
        if not isinstance(other, Tensor):
            return Tensor(np.full(self.shape, other))
        if other.shape != self.shape:
            raise RuntimeError(
                f"The size of tensor a {self.shape} must match that of tensor b {other.shape}, or be a number"
            )
        return other

    # Looking at the numbers

    def tolist(self) -> Any:
        """The numbers as nested lists, or one float for shape ()."""
        return self.data.tolist()

    def __len__(self) -> int:
        if self.shape == ():
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"Tensor({self.tolist()})"


class AccumulateGrad(Node):
    """The end of every path: adds what arrives to the ``.grad`` of its leaf."""

    def __init__(self, leaf: Tensor) -> None:
        super().__init__(edges=[])
        self.order = float("inf")  # a leaf's gradient is put away as soon as it is complete
        self._leaf = leaf

    def apply(self, arriving: list[Gradient]) -> Sequence[Gradient]:
        (grad,) = arriving
        if grad is not None:
            if self._leaf.grad is None:
                self._leaf.grad = Tensor(grad.data)  # a copy: others may hold the gradient that flowed
            else:
                self._leaf.grad.data += grad.data  # in place: every reference to .grad sees the sum
        return []


def _result(name: str, data: Any, inputs: list[Tensor], formula: Formula) -> Tensor:
    """A new tensor, with its node if gradients are wanted."""
    result = Tensor(data)
    if is_recording() and any(tensor.requires_grad for tensor in inputs):
        result.requires_grad = True
        result._node = Operation(name, [tensor.edge() for tensor in inputs], formula)
    return result


def _save(result: Tensor, *tensors: Tensor) -> Tensor:
    """Let the new node of ``result``, if there is one, remember ``tensors``."""
    if is_recording() and isinstance(result.grad_fn, Operation):
        result.grad_fn.save(*tensors)
    return result
