"""The check of exercise 10.3: each parameter takes its step when its gradient is ready."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import is_handle
from hooklab.course.exercises.misconceptions import Reason, fitting, in_torchs_line, named_by
from hooklab.course.exercises.trial import NotYet, Trial, same, tensor_text

START = ([1.0, 2.0], [-3.0], [5.0], [0.5, 4.0])  # the third one is frozen
TOO_EARLY = "a tensor hook runs before the gradient is stored; another kind of hook runs after"
NO_GRADIENT = (
    "a gradient that is not there: the loop's last `p` instead of the hook's argument, or thrown away before the step"
)

_LIKELY: dict[str, Reason] = {
    "post accumulate grad hooks should return None": "accidental return: a post-accumulate hook gives nothing back",
    "doesn't require gradient": "a frozen parameter takes no hook: ask it for requires_grad first",
    "positional argument": in_torchs_line("another number of parameters: the hook is called with the parameter alone"),
    "has no len()": "parameters may come one by one, as from model.parameters(): make a list of them first",
    "is not subscriptable": "parameters may come one by one, as from model.parameters(): make a list of them first",
    "can't assign Variable as its own grad": "the hook's argument is the parameter, and its gradient is `.grad`",
}


class _Step:
    """Fresh parameters with the answer's hooks: where they were before a backward, and its gradients."""

    def __init__(self, trial: Trial, lr: float, make: Callable[..., Any]) -> None:
        self.lr = lr
        self.parameters = [torch.tensor(values, requires_grad=True) for values in START]
        self.parameters[2].requires_grad_(False)
        given = make(self.parameters)
        self.handles = trial.call(given, lr, may_hook=True)
        self.before: list[Tensor] = []
        self.grads: list[Tensor | None] = []

    @property
    def too_early(self) -> bool:
        """Whether the answer has registered tensor hooks."""
        return any(one._backward_hooks for one in self.parameters)

    def backward(self, trial: Trial, what: str) -> list[Tensor]:
        """Run a backward; return where the parameters are afterwards."""
        self.before = [one.detach().clone() for one in self.parameters]
        self.grads = _gradients(self.before)

        def run() -> None:
            _loss(self.parameters).backward()

        run.__name__ = what
        try:
            trial.run(run)
        except NotYet as fault:
            if "NoneType" in fault.missing and self.too_early:
                raise NotYet(fault.missing, expected="no exception", likely=TOO_EARLY) from fault
            if "and 'NoneType'" in fault.missing:
                raise NotYet(fault.missing, expected="no exception", likely=NO_GRADIENT) from fault
            raise
        return [one.detach().clone() for one in self.parameters]


def _loss(parameters: list[Tensor]) -> Tensor:
    a, b, frozen, d = parameters
    return (a * a).sum() + (b * a).sum() + (d * frozen).sum() + (a * d).sum()  # a is used three times


def _gradients(values: list[Tensor]) -> list[Tensor | None]:
    copies = [one.clone().requires_grad_(place != 2) for place, one in enumerate(values)]
    _loss(copies).backward()
    return [one.grad for one in copies]


_GUESSES: dict[str, Callable[[_Step], list[Tensor]]] = {
    "no parameter has moved: the hooks did not run, or stepped on a copy": lambda step: step.before,
    "up instead of down: descent subtracts": lambda step: _moved(step, step.lr),
    "the gradient without lr": lambda step: _moved(step, -1.0),
    "two steps: a hook stepped more than once": lambda step: _moved(step, -2 * step.lr),
    "the parameter in the place of its gradient: that is what the hook is given; the gradient is its .grad": (
        lambda step: _moved(step, -step.lr, by=step.before)
    ),
}


def _moved(step: _Step, factor: float, by: list[Tensor] | None = None) -> list[Tensor]:
    """Where the parameters are when those with a gradient have moved by `factor` times it, or times another tensor."""
    moves = zip(step.before, step.grads, by or step.grads, strict=True)
    return [value if grad is None or one is None else value + factor * one for value, grad, one in moves]


@exercise("10.3", "A step inside the backward")
@named_by(_LIKELY)
def a_step_inside_the_backward(trial: Trial) -> str:
    for lr, make in ((0.1, list), (0.5, iter), (0.01, tuple)):
        step = _Step(trial, lr, make)
        handles = _handles(step)
        for which in ("a backward", "a second backward"):
            after = step.backward(trial, which)
            _expect_stepped(step, after, which)
        for handle in handles:
            trial.run(handle.remove)
        after = step.backward(trial, "a backward after remove()")
        if not all(same(new, old) for new, old in zip(after, step.before, strict=True)):
            raise NotYet("after remove() of all handles a hook is still at work", expected="parameters that stay")
    return "each parameter has taken its own step when backward() ends, its gradient is gone, and handles end it"


def _handles(step: _Step) -> list[Any]:
    got = step.handles
    if not isinstance(got, list | tuple) or not all(map(is_handle, got)) or len(got) != 3:
        are_handles = isinstance(got, list | tuple) and all(map(is_handle, got))
        raise NotYet(
            f"your function returned {len(got)} handles" if are_handles else "your function did not return the handles",
            expected="a list of three handles, for the three parameters that ask for a gradient",
            got=tensor_text(got),
            likely="forgotten return" if got is None else None,
        )
    return list(got)


def _expect_stepped(step: _Step, after: list[Tensor], which: str) -> None:
    wanted = _moved(step, -step.lr)
    if not all(map(same, after, wanted)):
        likely = fitting([after], _GUESSES, [step]) or _late_binding(step, after)
        raise NotYet(
            f"{which}: the parameters are not where their steps lead",
            expected=tensor_text(wanted),
            got=tensor_text(after),
            likely=likely,
        )
    if any(one.grad is not None for one in step.parameters):
        raise NotYet(
            f"{which}: a gradient is still there",
            expected=".grad is None",
            got=tensor_text([one.grad for one in step.parameters]),
            likely="zeros take as much memory as a gradient: set .grad to None"
            if all(one.grad is None or not bool(one.grad.any()) for one in step.parameters)
            else TOO_EARLY
            if step.too_early
            else "the gradient is not thrown away: set .grad to None in the hook",
        )


def _late_binding(step: _Step, after: list[Tensor]) -> str | None:
    """The script's own fault: every hook moves the loop's last parameter, by more than its own step."""
    moved = [not same(new, old) for new, old in zip(after, step.before, strict=True)]
    if moved == [False, False, False, True] and not same(after[3], _moved(step, -step.lr)[3]):
        return "late binding: every hook works on the last `p` of the loop; the hook is given its parameter"
    return None
