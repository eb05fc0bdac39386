"""Passes of small models with a learner's module hooks in them, and the misconception behind an exception there."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.expectations import expect_still_there, expect_unused, is_handle
from hooklab.course.exercises.misconceptions import Reason, in_torchs_line, named_by
from hooklab.course.exercises.trial import NotYet, Trial, tensor_text

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
    "RemovableHandle": in_torchs_line("accidental return: what a forward hook returns replaces the output"),
    "doesn't require gradient": "no gradient to hook: ask a tensor for requires_grad before you hook it",
    "'NoneType' object is not callable": in_torchs_line(
        "called instead of handed over: a method that registers takes the function, without ()"
    ),
    "NoneType": "None in a tuple: no gradient belongs to this place; leave it as it is",
    "positional argument": in_torchs_line(
        "another hook's arguments: (module, grad_input, grad_output) for a backward hook, "
        "(module, grad_output) for a backward pre-hook, (module, args, output) for a forward hook"
    ),
    "has changed the size of value": "another shape: a gradient is replaced by one of the same shape",
}


def integers(*shape: int) -> Tensor:
    """Return floats with whole values from -3 to 3, the same ones for the same shape."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(-3, 4, shape, generator=generator).float()


def three_layers() -> nn.Sequential:
    """Return linear layers 3 -> 4 -> 2 -> 1 with whole numbers as weights."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(2, 1))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randint(-3, 4, parameter.shape, generator=generator))
    return model


def weighed(output: Tensor) -> Tensor:
    """Return 1 times the output's first number, plus 2 times the second, and so on: a loss with unequal gradients."""
    return (output * torch.arange(1.0, output.numel() + 1).reshape(output.shape)).sum()


def run_pass(trial: Trial, forward: Callable[[], Any], sent: Tensor | None = None) -> None:
    """Call `forward` and send gradients back from its result; what the learner's hooks raise becomes NotYet.

    Args:
        forward: returns the tensor to send gradients back from.
        sent: the gradient to send into it; for a result with one element it may be left out.
    """

    def a_pass() -> None:
        forward().backward(sent)

    a_pass.__name__ = "a pass with your hook"
    with no_warnings(), named_by(LIKELY):
        trial.run(a_pass)


def gradients_of_parameters(trial: Trial, model: nn.Module, x: Tensor) -> list[Tensor]:
    """Run a pass with the loss `weighed(model(x))`; return copies of the gradients that gather in the parameters."""
    run_pass(trial, lambda: weighed(model(x)))
    return [gradient_in(parameter).clone() for parameter in model.parameters()]


def gradient_in(tensor: Tensor) -> Tensor:
    """Return `tensor.grad`; NotYet if there is none."""
    if tensor.grad is None:
        raise NotYet("no gradient arrives at a tensor that gets one without your hook", expected="a tensor", got="None")
    return tensor.grad


@contextmanager
def hooked(trial: Trial, layer: nn.Module, *rest: Any, many: bool = False) -> Iterator[None]:
    """Let the answer put its hook on `layer`, and remove it at the end by the handle (handles if `many`) it returned.

    NotYet if a hook is gone at the end of the block; one that is still there after its removal is a fault of the trial.
    """
    what = "a list of handles" if many else "the handle of your hook"
    with trial.watch(layer), no_warnings():
        returned = trial.call(layer, *rest, may_hook=True, may_change=True)
        if returned is None:
            raise NotYet("your function returned None", expected=what, got="None", likely="forgotten return")
        handles = returned if many and isinstance(returned, list | tuple) else [returned]
        is_single = many and not isinstance(returned, list | tuple)
        if is_single or not all(is_handle(handle) for handle in handles):
            raise NotYet(f"your function did not return {what}", expected=what, got=tensor_text(returned))
        for handle in handles:
            expect_unused(handle)
        try:
            yield
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


def refuse_written_gradient(sent: Tensor, before: Tensor) -> None:
    """Raise NotYet if the gradient that was sent into a pass has other values than before."""
    if not torch.equal(sent, before):
        raise NotYet(
            "your hook wrote into a gradient that belongs to somebody else",
            expected="the hook returns a new tensor, and the one that it was given stays as it was",
            likely="in-place change: `mul_` and `clamp_` write, `*` and `clamp` make a new tensor",
        )
