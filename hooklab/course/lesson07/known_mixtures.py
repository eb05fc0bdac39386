"""What the checks of lesson 7 share: mixtures that are right or wrong in a known way, and the words for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from hooklab.course.exercises.misconceptions import fitting
from hooklab.course.exercises.trial import same

FOLDED = "λ folded: max(λ, 1 - λ) took the place of λ; use it as it came"
SWAPPED = "weights swapped: λ is the share of each sample itself, 1 - λ that of its partner"
INVERSE = "partners the other way round: sample i gets row `indices[i]`, so `x[indices]`, not `argsort` and no scatter"
UNMIXED = "nothing is mixed"
TWICE = "run again in the hook: `out` is there already, and holds the partners too, `out[indices]`"
OTHER_PARTNERS = "other partners: `x[indices]` puts each sample's partner in its place; flip and randperm give others"

# Permutations without a fixed point, none of them its own inverse, so that a wrong direction shows; those of more than
# three rows are no shift either.
CYCLES = {3: (2, 0, 1), 4: (2, 0, 3, 1), 5: (3, 0, 4, 2, 1)}


def partners(length: int) -> Tensor:
    """Return a permutation of this length in which nobody is his own partner, nor his partner's partner."""
    return torch.tensor(CYCLES[length])


def mixture(values: Tensor, lam: float, indices: Tensor) -> Tensor:
    """λ·values + (1-λ)·values[indices], of the shape of values."""
    return lam * values + (1 - lam) * values[indices]


class Seen(NamedTuple):
    """What an answer made of values, with which λ and which partners."""

    got: Tensor
    values: Tensor
    lam: float
    indices: Tensor


# A misconception -> what an answer with it makes of what it was given.
_KNOWN: dict[str, Callable[[Seen], Tensor]] = {
    UNMIXED: lambda one: one.values,
    "partners only: λ of the sample itself is missing": lambda one: one.values[one.indices],
    "half and half: λ was not used": lambda one: mixture(one.values, 0.5, one.indices),
    SWAPPED: lambda one: mixture(one.values, 1 - one.lam, one.indices),
    FOLDED: lambda one: mixture(one.values, max(one.lam, 1 - one.lam), one.indices),
    INVERSE: lambda one: mixture(one.values, one.lam, one.indices.argsort()),
    "mixed twice: the same mixing was applied to its own result": lambda one: mixture(
        mixture(one.values, one.lam, one.indices), one.lam, one.indices
    ),
    "weights that do not add up to 1: λ and 1 - λ": lambda one: one.values + (1 - one.lam) * one.values[one.indices],
}


def explain_mixture(*seen: Seen) -> str | None:
    """Name the misconception behind mixtures that are not right, if it is a known one and the only one that fits."""
    if name := fitting([one.got for one in seen], _KNOWN, seen):
        return name
    is_known = any(all(same(one.got, wrong(one)) for one in seen) for wrong in _KNOWN.values())
    return OTHER_PARTNERS if not is_known and all(map(has_other_partners, seen)) else None


def has_other_partners(one: Seen) -> bool:
    """Whether each row is λ of itself and 1 - λ of some row, and each row is partner once, so that the mean stays.

    What is not mixed at all has no other partners, though each row could be its own.
    """
    partners = (one.got - one.lam * one.values) / (1 - one.lam)
    are_rows = all(any(same(partner, row) for row in one.values) for partner in partners)
    return are_rows and same(partners.mean(dim=0), one.values.mean(dim=0)) and not same(one.got, one.values)
