"""The check of exercise 10.4: the norm of all gradients of a backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import register_multi_grad_hook

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import expect_handle
from hooklab.course.exercises.gradients import close
from hooklab.course.exercises.misconceptions import Reason, alike, fitting, in_torchs_line, named_by
from hooklab.course.exercises.trial import NotYet, Trial, tensor_text

_LIKELY: dict[str, Reason] = {
    "'NoneType' object has no attribute": "a parameter that takes no part is None in the list",
    "NoneType": "a parameter that takes no part is None in the list",
    "positional argument": in_torchs_line("another number of parameters: the hook is called with one list"),
    "Boolean value of Tensor with more than one value": "`if grad` asks for the truth of many numbers: `is not None`",
    "iteration over a 0-d tensor": 'one gradient: with mode="any" the hook gets the first gradient alone',
    "should return None": "accidental return from a post-accumulate hook",
}


class _Backward(NamedTuple):
    """One backward, in a row of them.

    Attributes:
        grads: its gradients, None for a parameter without one.
        then: what `.grad` held when all were there.
        came_first: the gradient that came first.
        norms: of this backward and of those before it.
    """

    what: str
    grads: list[Tensor | None]
    then: list[Tensor | None]
    came_first: Tensor
    norms: list[float]


_GUESSES: dict[str, Callable[[_Backward], float]] = {
    "the sum of the norms: take the root once, of the sum of all squares": lambda one: sum(map(_norm, one.grads)),
    "the root is missing": lambda one: _all(one.grads) ** 2,
    "`.grad` holds sums of all backwards, and not all are finished by then: take what the hook is given": lambda one: (
        _all(one.then)
    ),
    "the largest norm alone": lambda one: max(map(_norm, one.grads)),
    "the first gradient alone": lambda one: _norm(one.grads[0]),
    "the last gradient alone": lambda one: _norm(one.grads[-1]),
    'one gradient: with mode="any" the hook gets the one that comes first': lambda one: _norm(one.came_first),
    "the first answer, for ever: each backward has its own norm": lambda one: one.norms[0],
    "the squares of earlier backwards are still in the sum": lambda one: math.hypot(*one.norms),
    "the norms of all, averaged": lambda one: sum(map(_norm, one.grads)) / sum(grad is not None for grad in one.grads),
    "absolute values added up: a norm squares first": lambda one: sum(
        grad.abs().sum().item() for grad in one.grads if grad is not None
    ),
}


@exercise("10.4", "The norm of all gradients")
@named_by(_LIKELY)
def the_norm_of_all_gradients(trial: Trial) -> str:
    a = torch.tensor([1.0, 2.0], requires_grad=True)
    b = torch.tensor([[3.0], [-1.0]], requires_grad=True)
    c = torch.tensor(2.0, requires_grad=True)
    parameters, norms = [a, b, c], list[Any]()
    handle = trial.call(parameters, norms, may_hook=True, may_change=True)
    expect_handle(handle, "register_multi_grad_hook")
    runs: list[tuple[str, Callable[[], Tensor]]] = [
        ("a backward through all", lambda: (torch.tensor([3.0, 4.0]) * a).sum() + 12 * c + 0 * b.sum()),
        ("a second one, without zero_grad", lambda: (a * c).sum() + (b * b).sum() + (c * b).sum()),
        ("one in which c takes no part", lambda: (6 * a + 8 * b.flatten()).sum()),
        ("one in which a takes no part", lambda: (-5 * b).sum() + c * c),
        ("one in which a parameter is used twice", lambda: (a * a + 7 * a).sum() * 1e3),
    ]
    seen: list[_Backward] = []
    for what, loss in runs:
        seen.append(_run(trial, what, loss, parameters, seen[-1].norms if seen else []))
        if len(norms) != len(seen):
            raise _wrong_number(seen, norms)
    for one, got in zip(seen, norms, strict=True):
        if not isinstance(got, float | int):
            raise NotYet("what you append is no number", expected="a number: .item()", got=tensor_text(got))
        if not close(got, _all(one.grads)):
            likely = fitting([_Rounded(norm) for norm in norms], _GUESSES, seen)
            wanted = f"{_all(one.grads):.6g}"
            raise NotYet(f"{one.what}: the norm is another one", expected=wanted, got=f"{got:.6g}", likely=likely)
    _expect_a_second_use(trial)
    trial.run(handle.remove)
    _run(trial, "after remove()", runs[0][1], parameters)
    if len(norms) != len(seen):
        raise NotYet("after handle.remove() a hook is still at work", expected="no more norms", got="one more")
    trial.expect_none_left()
    return "one norm for each backward, of its own gradients, and of those alone that take part"


class _Rounded(float):
    """A number that equals others nearby: `fitting` compares exactly."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float | int) and math.isclose(self, other, rel_tol=1e-4)

    __hash__ = float.__hash__


def _run(
    trial: Trial, what: str, loss: Callable[[], Tensor], parameters: list[Tensor], norms: Sequence[float] = ()
) -> _Backward:
    """Run a backward, and tell its gradients by what it adds to `.grad`."""
    before, then, came = _copied_grads(parameters), list[Tensor | None](), list[Tensor]()

    def backward() -> None:
        loss().backward()

    backward.__name__ = what
    with (
        register_multi_grad_hook(parameters, lambda grads: then.extend(_copied_grads(parameters))),
        register_multi_grad_hook(parameters, came.append, mode="any"),
    ):
        trial.run(backward)
    made: list[Tensor | None] = []
    for old, new in zip(before, _copied_grads(parameters), strict=True):
        added = new if old is None or new is None else new - old
        made.append(added if added is not None and (old is None or bool(added.any())) else None)
    return _Backward(what, made, then, came[0], [*norms, _all(made)])


def _copied_grads(parameters: list[Tensor]) -> list[Tensor | None]:
    return [None if one.grad is None else one.grad.clone() for one in parameters]


def _wrong_number(seen: list[_Backward], norms: list[Any]) -> NotYet:
    """Say that the last backward did not append one norm."""
    more = len(norms) - len(seen) + 1
    taking_part = sum(grad is not None for grad in seen[-1].grads)
    likely = None
    if more == taking_part:
        likely = "a number for each gradient: all gradients of a backward together have one norm"
    elif more == 0 and None in seen[-1].grads:
        likely = (
            "nothing is appended where a parameter takes no part: its entry in the list is None, and the others count"
        )
    elif more == 0:
        likely = "the hook has not run, or it appends nothing"
    return NotYet(
        f"{seen[-1].what} does not append one norm", expected="one number each", got=f"{more} entries", likely=likely
    )


def _expect_a_second_use(trial: Trial) -> None:
    """Raise NotYet unless a second call watches its own parameters and fills its own list."""
    other, norms = torch.tensor([1.0, 1.0], requires_grad=True), list[Any]()
    handle = trial.call([other], norms, may_hook=True, may_change=True)

    def backward() -> None:
        (torch.tensor([3.0, 4.0]) * other).sum().backward()

    backward.__name__ = "a backward through the parameter of a second call"
    trial.run(backward)
    if not alike(norms, [5.0]):
        raise NotYet(
            "called a second time, with another parameter and another list, your function does not fill that list",
            expected="[5]",
            got=tensor_text(norms),
            likely="what the first call made is kept for ever: each call registers a hook of its own",
        )
    trial.run(handle.remove)


def _norm(grad: Tensor | None) -> float:
    return 0.0 if grad is None else grad.norm().item()


def _all(grads: list[Tensor | None]) -> float:
    return math.hypot(*map(_norm, grads))
