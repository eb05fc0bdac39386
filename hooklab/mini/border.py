"""``Border``: how full backward hooks get the gradients at both ends of a module.

A module is not a node of the graph: its forward pass may make many nodes, or none. So its inputs pass through one
extra node before ``forward``, and its outputs through a second one after it. Neither changes a number. In the backward
pass the node at the outputs is reached first and knows grad_output; the node at the inputs is reached later and knows
grad_input, so the hooks run there.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hooklab.mini.graph import Gradient, Node, check_gradient, is_recording
from hooklab.mini.handles import Hook
from hooklab.mini.tensor import Tensor

# Surprise: torch 2.8 to 2.14 warn of inputs without gradient even when only pre-hooks were registered.
WARNS_WITHOUT_HOOKS = True

Grads = Sequence[Gradient]
# gets the gradients that leave a crossing and those that arrived; returns their replacements, or None
Inspector = Callable[[Grads, Grads], Grads | None]


class Crossing(Node):
    """A node through which several tensors pass unchanged, and where their gradients can be seen and replaced."""

    def __init__(self, tensors: Sequence[Tensor], inspect: Inspector) -> None:
        super().__init__([tensor.edge() for tensor in tensors], outputs=len(tensors))
        self._shapes = [tensor.shape for tensor in tensors]
        self._inspect = inspect

    def apply(self, arriving: list[Gradient]) -> Grads:
        # Surprise: what got no gradient hands on zeros. So an unused input ends with a .grad of 0, not None.
        leaving = [
            Tensor(np.zeros(shape)) if grad is None else grad
            for shape, grad in zip(self._shapes, arriving, strict=True)
        ]
        replaced = self._inspect(leaving, arriving)
        if replaced is None:
            return leaving
        for old, new in zip(leaving, replaced, strict=True):
            check_gradient(old, new, "hook 'hook'")  # torch's own function around the hooks has this name
        return replaced


class Border:
    """The two crossings of one call of a module, and the hooks that run there.

    The lists of hooks were made when the call began: a hook that is registered or removed between the forward and the
    backward pass changes nothing for this call.
    """

    def __init__(self, module: Any, hooks: Sequence[Hook], pre_hooks: Sequence[Hook]) -> None:
        self._module = module
        self._hooks = hooks
        self._pre_hooks = pre_hooks
        self._grad_output: Any = None  # handed from the one crossing to the other
        self._input_slots: list[int] | None = None  # which of the inputs are tensors; None: no gradients wanted
        self._output_slots: list[int] | None = None

    def enter(self, args: Any) -> Any:
        """Let the positional inputs cross; keyword arguments are not looked at."""
        self._n_inputs = len(args)
        args, self._input_slots = _cross(args, self._inspect_inputs)
        return args

    def leave(self, output: Any) -> Any:
        """Let the output cross: a tensor, or the tensors in a tuple. Tensors in other containers are not seen."""
        if not isinstance(output, Tensor | tuple):
            warnings.warn(
                f"For backward hooks to be called, module output should be Tensors, not {type(output).__name__}",
                stacklevel=2,
            )
        outputs = output if isinstance(output, tuple) else (output,)
        self._n_outputs = len(outputs)
        outputs, self._output_slots = _cross(outputs, self._inspect_outputs)
        return outputs if isinstance(output, tuple) else outputs[0]

    def _inspect_outputs(self, leaving: Grads, arriving: Grads) -> Grads:
        """First stop of the backward pass: the pre-hooks may replace grad_output."""
        assert self._output_slots is not None
        # None here for an output that got no gradient, and it stays None inside the module: no zeros on this side.
        self._grad_output = _spread(arriving, self._output_slots, self._n_outputs)
        for hook in self._pre_hooks:
            returned = hook(self._module, self._grad_output)
            if returned is not None:
                _check_length(returned, self._n_outputs, "Backward pre hook", "grad_output")
                self._grad_output = returned
        grad_output = self._grad_output
        if self._input_slots is None:
            self._run_hooks_without_inputs()
        return [_entry(grad_output, slot) for slot in self._output_slots]

    def _inspect_inputs(self, leaving: Grads, arriving: Grads) -> Grads | None:
        """Second stop: the hooks may replace grad_input."""
        if self._grad_output is None:
            return None  # the gradient came around the output, say from an input that a hook kept: hooks do not run
        assert self._input_slots is not None
        grad_input: Any = _spread(leaving, self._input_slots, self._n_inputs)
        for hook in self._hooks:
            returned = hook(self._module, grad_input, self._grad_output)
            if returned is not None:
                # Surprise: only the length is checked. A list passes; a bare tensor is as long as its first axis.
                _check_length(returned, self._n_inputs, "Backward hook", "grad_input")
                grad_input = returned
        self._grad_output = None
        return [_entry(grad_input, slot) for slot in self._input_slots]

    def _run_hooks_without_inputs(self) -> None:
        """No input requires gradient, so the inputs have no extra node, and no gradient to replace."""
        if self._hooks or WARNS_WITHOUT_HOOKS:
            warnings.warn(
                "Full backward hook is firing when grad_output is there: no input requires gradients", stacklevel=2
            )
        for hook in self._hooks:
            returned = hook(self._module, (None,) * self._n_inputs, self._grad_output)
            nothing = returned is None or (isinstance(returned, tuple) and all(grad is None for grad in returned))
            if not nothing:
                raise RuntimeError("Backward hook for Modules where no input requires gradient should return None")


def _cross(values: Any, inspect: Inspector) -> tuple[Any, list[int] | None]:
    """Replace the tensors among ``values`` by views from a new crossing; None for no crossing needed."""
    slots = [i for i, value in enumerate(values) if isinstance(value, Tensor)]
    tensors = [values[i] for i in slots]
    if not (is_recording() and any(tensor.requires_grad for tensor in tensors)):
        return values, None
    crossing = Crossing(tensors, inspect)
    crossed = list(values)
    for nr, (slot, tensor) in enumerate(zip(slots, tensors, strict=True)):
        # Surprise: a view, so module(x) is no longer x for a module that returns its input.
        crossed[slot] = tensor.view_from(crossing if tensor.requires_grad else None, nr)
    # a namedtuple takes one argument for each of its fields
    return (tuple(crossed) if type(values) is tuple else type(values)(*crossed)), slots


def _spread(grads: Grads, slots: list[int], length: int) -> tuple[Gradient, ...]:
    """Put the gradients of the tensors back where the tensors were, with None everywhere else."""
    spread: list[Gradient] = [None] * length
    for slot, grad in zip(slots, grads, strict=True):
        spread[slot] = grad
    return tuple(spread)


def _entry(gradients: Any, slot: int) -> Any:
    """One of the gradients that a hook returned. In a bare tensor these are its rows, which rarely have the shape."""
    return Tensor(gradients.data[slot]) if isinstance(gradients, Tensor) else gradients[slot]


def _check_length(returned: Any, expected: int, who: str, what: str) -> None:
    if len(returned) != expected:
        raise RuntimeError(f"{who} returned an invalid number of {what}: got {len(returned)}, expected {expected}")
