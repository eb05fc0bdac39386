"""What the exercises of lesson 7 share: partners, a look at who was mixed with whom, and what stays after an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hooklab.course.exercises.faults import PlannedInterrupt
from hooklab.course.exercises.guards import remove_new_hooks, snapshot_hooks
from hooklab.course.exercises.records import Claim
from hooklab.course.exercises.scenes import error_comes_out
from hooklab.course.exercises.trial import Trial
from hooklab.course.exercises.values import same

# Permutations without a fixed point, none of them its own inverse, so that a wrong direction shows. With more than
# three rows, they are not shifts, either.
CYCLES = {3: (2, 0, 1), 4: (2, 0, 3, 1), 5: (3, 0, 4, 2, 1)}


def partners(length: int) -> Tensor:
    """Return a permutation of this length in which no row is its own partner, nor its partner's partner."""
    return torch.tensor(CYCLES[length])


class Seen(NamedTuple):
    """What an answer made of values, with which λ and which partners."""

    got: Tensor
    values: Tensor
    lam: float
    indices: Tensor


def has_other_partners(one: Seen) -> bool:
    """Whether each row is λ of itself and 1 - λ of some row, and each row is partner once, so that the mean stays.

    What is not mixed at all has no other partners, though each row could be its own.
    """
    partners = (one.got - one.lam * one.values) / (1 - one.lam)
    are_rows = all(any(same(partner, row) for row in one.values) for partner in partners)
    return are_rows and same(partners.mean(dim=0), one.values.mean(dim=0)) and not same(one.got, one.values)


def why_not_mixed(one: Seen) -> str | None:
    """Return why this is no mixture with the given draws, if that can be seen."""
    if one.lam < 1 and has_other_partners(one):
        return "other-partners"
    return "other-weights" if has_other_weights(one.got, one.values, one.values[one.indices], one.lam) else None


def has_other_weights(got: Tensor, own: Tensor, partner: Tensor, lam: float) -> bool:
    """Whether `got` is a sum of both tensors, but not λ of the one and 1 - λ of the other."""
    if not got.isfinite().all():
        return False
    both = torch.stack([own.detach().flatten(), partner.detach().flatten()], dim=1).double()
    wanted = got.detach().flatten().double()
    weights = torch.linalg.lstsq(both, wanted).solution
    are_both_there = bool((weights.abs() > 1e-3).all())
    return are_both_there and same(both @ weights, wanted) and not same(weights, torch.tensor([lam, 1 - lam]), 1e-3)


def after_an_error(
    trial: Trial, net: nn.Module, error: type[BaseException], where: str, function: Callable[[], Any]
) -> Iterator[Any]:
    """Yield what stays on the net when an error is raised in a learner's call, and whether the error comes out."""
    words = "an interrupt" if error is PlannedInterrupt else "an exception"
    why = "except-exception" if error is PlannedInterrupt else "no-finally"
    hooks = snapshot_hooks([net])
    came_out = error_comes_out(trial, function)
    yield f"the number of your hooks that stay after {words} in {where}", len(remove_new_hooks([net], hooks)), why
    yield f"does {words} in {where} reach the caller?", Claim(came_out, "it does", "it was hidden"), "swallowed"
