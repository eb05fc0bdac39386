"""What the checks of lesson 7 share: mixtures that are right or wrong in a known way, and the words for each."""

from __future__ import annotations

import torch
from torch import Tensor

from hooklab.course.exercises.trial import same

FOLDED = "λ folded: max(λ, 1 - λ) took the place of λ; use it as it came"
SWAPPED = "weights swapped: λ is the share of each sample itself, 1 - λ that of its partner"
INVERSE = "partners the other way round: sample i gets row `indices[i]`, so `x[indices]`, not `argsort` and no scatter"
UNMIXED = "nothing is mixed"
TWICE = "run again in the hook: `out` is there already, and holds the partners too, `out[indices]`"
OTHER_PARTNERS = "other partners: `x[indices]` puts each sample's partner in its place; flip and randperm give others"

# Permutations without a fixed point, none of them its own inverse, so that a wrong direction shows.
CYCLES = {3: (2, 0, 1), 4: (1, 2, 3, 0), 5: (3, 0, 4, 2, 1)}


def partners(length: int) -> Tensor:
    """Return a permutation of this length in which nobody is his own partner, nor his partner's partner."""
    return torch.tensor(CYCLES[length])


def mixture(values: Tensor, lam: float, indices: Tensor) -> Tensor:
    """λ·values + (1-λ)·values[indices], of the shape of values."""
    return lam * values + (1 - lam) * values[indices]


def explain_mixture(got: Tensor, values: Tensor, lam: float, indices: Tensor) -> str | None:
    """Name the misconception behind a mixture of `values` that is not the right one, if it is a known one."""
    known = {
        UNMIXED: values,
        "partners only: λ of the sample itself is missing": values[indices],
        "half and half: λ was not used": mixture(values, 0.5, indices),
        SWAPPED if lam > 0.5 else FOLDED: mixture(values, 1 - lam, indices),
        INVERSE: mixture(values, lam, indices.argsort()),
        "mixed twice: the same mixing was applied to its own result": mixture(
            mixture(values, lam, indices), lam, indices
        ),
        "weights that do not add up to 1: λ and 1 - λ": values + (1 - lam) * values[indices],
    }
    for words, wrong in known.items():
        if same(got, wrong):
            return words
    # Each sample is partner once, so with any permutation the mean over the batch stays as it was.
    return OTHER_PARTNERS if same(got.to(values.dtype).mean(dim=0), values.mean(dim=0)) else None
