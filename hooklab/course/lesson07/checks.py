"""Checks of lesson 7: mixing samples, targets and losses, and the hook that does it inside a network.

The longer ones stand in modules of their own: `check_hook` (7.3), `check_draws` (7.4) and `check_step` (7.5).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import expect_returned
from hooklab.course.exercises.forward import whole_numbers
from hooklab.course.exercises.misconceptions import fitting
from hooklab.course.exercises.trial import NotYet, Trial, apart, expect_tensor, same, tensor_text
from hooklab.course.lesson07.check_draws import dice_of_a_batch
from hooklab.course.lesson07.check_hook import a_hook_that_mixes
from hooklab.course.lesson07.check_step import a_whole_step
from hooklab.course.lesson07.known_mixtures import (
    FOLDED,
    INVERSE,
    OTHER_PARTNERS,
    SWAPPED,
    UNMIXED,
    Seen,
    explain_mixture,
    mixture,
    partners,
)

__all__ = ["a_hook_that_mixes", "a_mixed_batch", "a_mixed_loss", "a_whole_step", "dice_of_a_batch"]


@exercise("7.1", "Mix a batch and its targets")
def a_mixed_batch(trial: Trial) -> str:
    seen: dict[str, list[Seen]] = {"x": [], "y": []}
    for lam, shape in ((0.75, (3, 1)), (0.25, (4, 2)), (0.625, (5, 1, 2, 2))):
        length = shape[0]
        x, y, indices = whole_numbers(length, *shape) / 3, torch.eye(length), partners(length)
        given = {"x": x.clone(), "y": y.clone(), "indices": indices.clone()}
        got = trial.call(given["x"], given["y"], lam, given["indices"], may_change=True)
        for name, was in (("x", x), ("y", y), ("indices", indices)):
            if not same(given[name], was):
                raise NotYet(
                    f"your function changed {name} in place",
                    expected="the values that you are given stay as they were",
                    likely="in-place change: `x *= λ` and `x += …` write into x, `λ * x + …` makes a new tensor"
                    if name != "indices"
                    else None,
                )
        mixed_x, mixed_y = _pair(got)
        if same(mixed_x, mixture(y, lam, indices)) and mixed_x.shape != x.shape:
            raise NotYet("the mixed targets came first", expected="(mixed x, mixed y)", got="(mixed y, mixed x)")
        for name, part, values in (("x", mixed_x, x), ("y", mixed_y, y)):
            seen[name].append(Seen(expect_tensor(part, f"the mixed {name}", values.shape), values, lam, indices))
            if part.is_floating_point() and part.dtype != values.dtype:
                raise NotYet(f"the mixed {name} has another dtype", expected=f"{values.dtype}", got=f"{part.dtype}")
    for name in seen:
        _expect_mixtures(name, seen)
    return "three batches, of vectors and of images: x and y mixed with the same partners and the same λ, even below ½"


def _expect_mixtures(name: str, both: dict[str, list[Seen]]) -> None:
    seen = both[name]
    for one in seen:
        wanted = mixture(one.values, one.lam, one.indices)
        if same(one.got, wanted):
            continue
        likely = explain_mixture(*seen)
        if name == "y" and likely in (INVERSE, OTHER_PARTNERS):
            likely = "other partners than x has: the same `indices` belong to both"
        if name == "x" and likely == UNMIXED and explain_mixture(*both["y"]) != UNMIXED:
            likely = "y is mixed, and x is as it was: both need the same mixture"
        if name == "y" and likely == UNMIXED:
            likely = "x is mixed, and y is as it was: the targets need the same mixture"
        if not one.got.is_floating_point():
            likely = "whole numbers: `.long()` and `.int()` cut off what is behind the point, here the shares"
        raise NotYet(
            f"with λ = {one.lam:g} and indices = {one.indices.tolist()}, the mixed {name} is not the right one",
            **apart(wanted, one.got),
            likely=likely,
        )


def _pair(got: Any) -> tuple[Any, Any]:
    expect_returned(got, "(mixed x, mixed y)")
    if not isinstance(got, tuple | list) or len(got) != 2:
        raise NotYet("your function did not return a pair", expected="(mixed x, mixed y)", got=tensor_text(got))
    return got[0], got[1]


@exercise("7.2", "The loss of a mixture")
def a_mixed_loss(trial: Trial) -> str:
    seen = []
    for loss_fn, lam in ((F.cross_entropy, 0.75), (F.multi_margin_loss, 0.25), (F.cross_entropy, 0.25)):
        logits = whole_numbers(3 + round(4 * lam), 4, 5).requires_grad_()
        case = _Case(loss_fn, logits, torch.tensor([4, 0, 3, 1]), lam, partners(4))
        asked: list[Any] = []
        try:
            got = trial.call(_noting(loss_fn, asked), logits, case.y, lam, case.indices)
        except NotYet as fault:
            likely = _why_it_raised(fault.missing, asked)
            raise NotYet(fault.missing, expected="no exception", likely=likely) from fault
        seen.append((case, _read_loss(got, case), asked))
    for case, got, asked in seen:
        if not same(got, case.loss()):
            raise NotYet(
                f"with λ = {case.lam:g} and {case.loss_fn.__name__}, that is not the mixed loss",
                expected=tensor_text(case.loss()),
                got=tensor_text(got),
                likely="partners' logits: the network has mixed already; only the targets change places"
                if any(same(one, case.logits[case.indices]) for one in asked)
                else fitting([got for _, got, _ in seen], _KNOWN_LOSSES, [case for case, _, _ in seen]),
            )
        _expect_gradient(got, case.loss(), case.logits)
    return "λ of one loss and 1-λ of the other, for two loss functions, and gradients reach the logits"


class _Case(NamedTuple):
    loss_fn: Any
    logits: Tensor
    y: Tensor
    lam: float
    indices: Tensor

    def loss(self, **other: Any) -> Tensor:
        """The mixed loss, or a wrong one: with something in the place of a field."""
        loss_fn, logits, y, lam, indices = self._replace(**other)
        loss: Tensor = lam * loss_fn(logits, y) + (1 - lam) * loss_fn(logits, y[indices])
        return loss


def _read_loss(got: Any, case: _Case) -> Tensor:
    wanted = case.loss()
    if case.logits.grad is not None:
        raise NotYet(
            "your function ran backward()",
            expected="the loss alone: who calls your function decides when to go back",
            likely="backward() inside: it uses up the graph, and the training loop's own backward() would fail",
        )
    expect_returned(got, tensor_text(wanted))
    if isinstance(got, int | float):
        raise NotYet(
            "your loss is a number, not a tensor",
            expected="a tensor, from which backward() can start",
            got=tensor_text(got),
            likely="item(): it takes the number out of the tensor and leaves the graph behind",
        )
    return expect_tensor(got, "your loss", wanted.shape)


def _noting(loss_fn: Any, asked: list[Any]) -> Any:
    """The loss function, which notes the logits that it is asked about."""

    @functools.wraps(loss_fn)
    def noting(logits: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append(logits)
        return loss_fn(logits, *args, **kwargs)

    return noting


# A misconception -> the loss of an answer with it.
_KNOWN_LOSSES: dict[str, Callable[[_Case], Tensor]] = {
    "one target only: each sample's own; its partner's share of the loss is missing": lambda case: case.loss(lam=1.0),
    "one target only: the partner's; each sample's own share of the loss is missing": lambda case: case.loss(lam=0.0),
    SWAPPED: lambda case: case.loss(lam=1 - case.lam),
    FOLDED: lambda case: case.loss(lam=max(case.lam, 1 - case.lam)),
    "half and half: λ was not used": lambda case: case.loss(lam=0.5),
    "a sum without weights: λ and 1 - λ are missing": lambda case: 2 * case.loss(lam=0.5),
    INVERSE: lambda case: case.loss(indices=case.indices.argsort()),
    OTHER_PARTNERS: lambda case: case.loss(indices=torch.arange(len(case.y)).flip(0)),
    "class numbers were mixed: of a 3 and a 5 they make a 4, which neither of them is": lambda case: case.loss_fn(
        case.logits, mixture(case.y, case.lam, case.indices).long()
    ),
    "cross entropy in place of `loss_fn`: call the function that you are given": lambda case: case.loss(
        loss_fn=F.cross_entropy
    ),
    "predictions mixed: the network has mixed already; mix the losses and leave the logits alone": lambda case: (
        case.loss(logits=mixture(case.logits, case.lam, case.indices))
    ),
}


def _why_it_raised(message: str, asked: list[Any]) -> str | None:
    if asked and isinstance(asked[-1], Tensor) and not asked[-1].is_floating_point():
        return "the other way round: loss_fn takes the logits first, and then the class numbers"
    if "Long" in message or "class probabilities" in message:
        return "class numbers cannot be mixed: a share of class 3 and one of class 5 is no class; mix two losses"
    if "target tensor should be 1-D" in message or "inconsistent target size" in message:
        return "one-hot targets: not every loss function takes them; call loss_fn with class numbers, twice"
    return None


def _expect_gradient(got: Tensor, wanted: Tensor, logits: Tensor) -> None:
    if not got.requires_grad:
        raise NotYet(
            "no gradient reaches the logits",
            expected="a loss that is still part of the graph",
            likely="detached: item(), torch.tensor(…) and detach() keep the number, and nothing can learn from it",
        )
    (mine,) = torch.autograd.grad(got.sum(), logits, allow_unused=True)
    (right,) = torch.autograd.grad(wanted, logits)
    if not same(mine, right):
        raise NotYet(
            "the loss is right, its gradient is not",
            expected="the gradient of both losses",
            got="another one" if isinstance(mine, Tensor) else "none",
            likely="detached: one of the two losses is no longer part of the graph"
            if isinstance(mine, Tensor)
            else "cut off: item(), torch.tensor(…) and detach() make a new tensor that has no graph behind it",
        )
