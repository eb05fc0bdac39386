"""Passes of small models with a learner's module hooks in them, and the misconception behind an exception there."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.expectations import expect_returned, expect_still_there, expect_unused, is_handle
from hooklab.course.exercises.misconceptions import Reason, in_torchs_line, named_by
from hooklab.course.exercises.trial import NotYet, Trial, tensor_text

ACCIDENTAL_RETURN = "accidental return: what a forward hook returns replaces the output"
# Words of an exception that a module hook brings about, and the misconception behind it.
LIKELY: dict[str, Reason] = {
    "BackwardHookFunction is a view": "a module's backward hook, full or pre-, cannot stand beside an in-place module: "
    "hook the tensor",
    "invalid number of grad_input": "not a tuple of the same length: return one entry for each entry of "
    "grad_input, None for None; a bare tensor counts by its rows",
    "invalid number of grad_output": "not a tuple of the same length: return one entry for each entry of "
    "grad_output, None for None; a bare tensor counts by its rows",
    "'generator' has no len()": "a generator: (… for …) alone makes no tuple; write tuple(… for …)",
    "values to unpack (expected 3": "three gradients: only the legacy hook has them, and only in some layers",
    "'RemovableHandle' object has no attribute 'backward'": ACCIDENTAL_RETURN,
    "RemovableHandle": in_torchs_line(ACCIDENTAL_RETURN),
    "doesn't require gradient": "no gradient to hook: ask a tensor for requires_grad before you hook it",
    "'NoneType' object is not callable": in_torchs_line(
        "called instead of handed over: a method that registers takes the function, without ()"
    ),
    "positional argument": in_torchs_line(
        "another hook's arguments: (module, grad_input, grad_output) for a backward hook, "
        "(module, grad_output) for a backward pre-hook, (module, args, output) for a forward hook"
    ),
    "has changed the size of value": "another shape: a gradient is replaced by one of the same shape",
    "should always return None": "where no argument asks for a gradient, return None, or a tuple that holds None alone",
}
NONE_IN_IT = "None in a tuple: no gradient belongs to this place; leave it as it is"


def run_pass(trial: Trial, forward: Callable[[], Any], sent: Tensor | None = None, has_none: bool = False) -> None:
    """Call `forward` and send gradients back from its result; what the learner's hooks raise becomes NotYet.

    Args:
        trial: the trial.
        forward: returns the tensor to send gradients back from.
        sent: the gradient to send into it; for a result with one element it may be left out.
        has_none: whether a hook may find None in a tuple, so that an error about None is likely due to it.
    """

    def a_pass() -> None:
        forward().backward(sent)

    a_pass.__name__ = "a pass with your hook"
    with no_warnings(), named_by(LIKELY | ({"NoneType": NONE_IN_IT} if has_none else {})):
        trial.run(a_pass)


def run_without_gradients(trial: Trial, forward: Callable[[], Any]) -> None:
    """Call `forward` under no_grad, as an evaluation does; what the learner's hooks raise becomes NotYet."""

    def a_pass() -> None:
        with torch.no_grad():
            forward()

    a_pass.__name__ = "a pass under no_grad, with your hook,"
    with no_warnings(), named_by(LIKELY):
        trial.run(a_pass)


@contextmanager
def hooked(trial: Trial, layer: nn.Module, *rest: Any, many: bool = False) -> Iterator[list[Any]]:
    """Let the answer put its hook on `layer`, and remove it at the end by the handle (handles if `many`) it returned.

    Gives the handles. NotYet if a hook is gone at the end of the block; one that is still there after its removal is a
    fault of the trial.
    """
    what = "a list of handles" if many else "the handle of your hook"
    with trial.watch(layer, by_handle=True), no_warnings():
        returned = trial.call(layer, *rest, may_hook=True, may_change=True)
        expect_returned(returned, what)
        handles = list(returned) if many and isinstance(returned, list | tuple) else [returned]
        is_single = many and not isinstance(returned, list | tuple)
        if is_single or not all(is_handle(handle) for handle in handles):
            raise NotYet(f"your function did not return {what}", expected=what, got=tensor_text(returned))
        for handle in handles:
            expect_unused(handle)
        try:
            yield handles
            for handle in handles:
                expect_still_there(handle)
        finally:
            for handle in handles:
                trial.run(handle.remove)


@contextmanager
def no_warnings() -> Iterator[None]:
    """Silence warnings: legacy hooks and hooks on first layers warn, and an outcome has its own words for them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def integers(*shape: int) -> Tensor:
    """Return floats with whole values from -3 to 3, the same ones for the same shape."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(-3, 4, shape, generator=generator).float()


def whole(module: nn.Module) -> nn.Module:
    """Fill a module's parameters with whole numbers from -3 to 3, the same ones each time; return the module."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randint(-3, 4, parameter.shape, generator=generator))
    return module


def three_layers() -> nn.Sequential:
    """Return linear layers 3 -> 4 -> 2 -> 1 with whole numbers as weights."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(2, 1))
    whole(model)
    return model


def weighed(output: Tensor) -> Tensor:
    """Return 1 times the output's first number, plus 2 times the second, and so on: a loss with unequal gradients."""
    return (output * torch.arange(1.0, output.numel() + 1).reshape(output.shape)).sum()
