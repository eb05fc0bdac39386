"""Exercise 7.4: λ, partners and place of a batch, drawn from a generator.

An answer may draw in a way of its own, so what is looked at are properties: of a few draws, and of the counts of many.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import permutations, product
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hooklab.course.exercises.exercise import Pairs, exercise
from hooklab.course.exercises.records import Claim
from hooklab.course.exercises.trial import Trial
from hooklab.course.exercises.values import tensor_text

MANY, BINS = 3000, 10
RARE = 1e-6  # counts with a smaller p-value are not due to chance

# What learners take for Beta(2, 2), made of rows of five uniform numbers.
INSTEAD: dict[str, Callable[[Tensor], Tensor]] = {
    "uniform": lambda u: u[:, 0],
    "mean-of-two": lambda u: u[:, :2].mean(dim=1),
    "mean-of-three": lambda u: u[:, :3].mean(dim=1),
    "middle-of-five": lambda u: u.median(dim=1).values,
    "largest": lambda u: u[:, :3].amax(dim=1),
    "smallest": lambda u: u[:, :3].amin(dim=1),
    "larger-share": lambda u: 0.5 + (u[:, :3].median(dim=1).values - 0.5).abs(),
    "smaller-share": lambda u: 0.5 - (u[:, :3].median(dim=1).values - 0.5).abs(),
}


@exercise(
    "7.4",
    "The dice of a batch",
    worlds=((2, 1, 60), (20, 3, 60), (4, 2, MANY)),
    verified=f"λ, permutation and place come from the generator alone; {MANY} draws look like Beta(2, 2), and all "
    "permutations and all places are equally likely",
)
def dice_of_a_batch(trial: Trial, world: tuple[int, int, int]) -> Pairs:
    n, layers, count = world
    generator = torch.Generator().manual_seed(n)
    state, dice = generator.get_state(), _other_dice()
    draws, dice_after = _draws(trial, n, layers, generator, count)
    again, _ = _draws(trial, n, layers, generator.set_state(state), 20)
    yield from _kinds(draws, n)
    lams, orders, places = _columns(draws)
    named = {"λ": lams, "permutation": orders, "place": places}
    moved = [name for name in dice if dice[name] != dice_after[name]]
    changed = [name for name, one in zip(named, _columns(again), strict=True) if named[name][:20] != one]
    why: str | None = "global-dice" if moved else "not-the-generator"
    yield "what comes out differently when the generator is put back into the same state", changed, why
    yield "random states that your function changes, apart from the generator's", moved, "global-dice"
    constant = [name for name in ("λ", "permutation") if len(set(named[name])) == 1]
    yield f"what is the same in each of {count} draws", constant, "same-again"
    came = sorted(set(places))
    why = "never-the-input" if 0 not in came else "never-the-last" if layers not in came else None
    why = "too-far" if came[-1] > layers else why
    yield f"the places that come in {count} draws, with layers = {layers}", came, why
    if count == MANY:
        yield from _many(lams, orders, places)
        if any(row == partner for order in orders for row, partner in enumerate(order)):  # else this may never end
            yield "the permutation of a single row", _draws(trial, 1, layers, generator, 1)[0][0][1]


def _draws(trial: Trial, n: int, layers: int, generator: torch.Generator, count: int) -> tuple[Any, dict[str, Any]]:
    """Let an answer draw; return what it returned each time, and the other random states after that."""

    def many() -> Any:  # in one run: what surrounds a run takes longer than a draw
        return [trial.answer(n, layers, generator) for _ in range(count)], _other_dice()

    many.__name__ = trial.name
    found: tuple[Any, dict[str, Any]] = trial.run(many)
    return found


def _other_dice() -> dict[str, Any]:
    numpys = str(np.random.get_state(legacy=False))
    return {"torch": torch.get_rng_state().tolist(), "random": random.getstate(), "numpy": numpys}


def _kinds(draws: list[Any], n: int) -> Pairs:
    """Of each part, yield whether it is what it should be in every draw."""

    def in_all(values: Sequence[Any], fits: Callable[[Any], bool], expected: str) -> tuple[Claim, Any]:
        odd = next((one for one in values if not fits(one)), in_all)
        return Claim(odd is in_all, expected, tensor_text(odd)), odd

    claim, odd = in_all(draws, lambda one: isinstance(one, tuple | list) and len(one) == 3, "(λ, permutation, place)")
    yield from _with_clue(
        "what your function returns", claim, "forgotten-return" if odd is None else "not-three-things"
    )
    lams, orders, places = zip(*draws, strict=True)
    claim, odd = in_all(lams, lambda one: isinstance(one, Real) and not isinstance(one, bool), "a float from 0 to 1")
    yield from _with_clue("λ, the first of the three", claim, _why_no_float(odd))
    yield "λ", in_all(lams, lambda one: 0 <= one <= 1, "a float from 0 to 1")[0]
    claim, odd = in_all(orders, lambda one: _is_permutation(one, n), f"a tensor with each of 0 … {n - 1} once")
    yield from _with_clue(f"the permutation of {n} rows", claim, _why_no_permutation(odd, n))
    claim, odd = in_all(places, lambda one: isinstance(one, Integral) and not isinstance(one, bool), "a whole number")
    yield from _with_clue(
        "the place, the last of the three", claim, "tensor-place" if isinstance(odd, Tensor) else None
    )


def _with_clue(what: str, claim: Claim, why: str | None) -> Pairs:
    """Yield a claim that fails for several reasons: an answer is likened only to programs that fail for the same."""
    yield f"~why: {what}", None if claim.holds else why
    yield what, claim, why


def _why_no_float(lam: Any) -> str | None:
    if isinstance(lam, Tensor) and lam.numel() > 1:
        return "lambda-for-each" if lam.is_floating_point() else "permutation-first"
    if isinstance(lam, Tensor):
        return "tensor-lambda"
    return "values-and-indices" if isinstance(lam, tuple) else None


def _is_permutation(order: Any, n: int) -> bool:
    is_row = isinstance(order, Tensor) and not order.is_floating_point() and order.ndim == 1
    return is_row and sorted(order.tolist()) == list(range(n))


def _why_no_permutation(order: Any, n: int) -> str | None:
    if not isinstance(order, Tensor) or order.ndim != 1:
        return None
    return "other-length" if len(order) != n else "with-replacement" if set(order.tolist()) <= set(range(n)) else None


def _columns(draws: list[Any]) -> list[list[Any]]:
    lams, orders, places = zip(*draws, strict=True)
    return [[float(lam) for lam in lams], [tuple(order.tolist()) for order in orders], [int(one) for one in places]]


def _many(lams: list[float], orders: list[tuple[int, ...]], places: list[int]) -> Pairs:
    """Yield whether many draws are spread as chance spreads them."""
    bins = _bins(torch.tensor(lams, dtype=torch.float64)).tolist()
    is_clamped = Counter(lams).most_common(1)[0][1] > 5
    middle = sum(0.25 < lam < 0.75 for lam in lams) / MANY
    got = f"{sum(lam < 0.5 for lam in lams) / MANY:.0%} below ½, {middle:.0%} between ¼ and ¾"
    claim = Claim(_even(bins, range(BINS)) and not is_clamped, "Beta(2, 2): 50% below ½, 69% between ¼ and ¾", got)
    yield from _with_clue(f"λ in {MANY} draws", claim, "clamped" if is_clamped else _why_not_beta(bins))
    counts = Counter(orders)
    everyone = list(permutations(range(4)))
    got = f"{len(counts)} different ones, the commonest {max(counts.values())} times"
    claim = Claim(_even(orders, everyone), f"24 different ones, about {MANY // 24} times each", got)
    moved = {order for order in everyone if all(row != partner for row, partner in enumerate(order))}
    why = "derangement" if set(orders) == moved else "roll" if len(counts) <= 4 else "uneven-permutations"
    yield from _with_clue(f"the permutations of four rows, in {MANY} draws", claim, why)
    times = [places.count(place) for place in range(3)]
    claim = Claim(_even(places, range(3)), f"about {MANY // 3} times each", ", ".join(map(str, times)))
    why = "coin-for-the-input" if abs(times[1] - times[2]) < MANY / 10 else "uneven-places"
    yield from _with_clue(f"how often the places 0, 1 and 2 come in {MANY} draws", claim, why)
    firsts, halves = [order[0] for order in orders], [one // 2 for one in bins]
    pairs = {
        "λ and place": (zip(bins, places, strict=True), product(range(BINS), range(3))),
        "permutation and place": (zip(firsts, places, strict=True), product(range(4), range(3))),
        "λ and permutation": (zip(halves, firsts, strict=True), product(range(BINS // 2), range(4))),
    }
    together = [name for name, (values, cells) in pairs.items() if not _even(list(values), list(cells))]
    yield "what depends on one another", together, "drawn-together"


def _bins(lams: Tensor) -> Tensor:
    """Return for each λ in which of the bins it falls: numbers from Beta(2, 2) fall into all of them alike."""
    return (BINS * (3 * lams**2 - 2 * lams**3)).long().clamp(0, BINS - 1)


def _even(values: Sequence[Any], cells: Sequence[Any]) -> bool:
    counts = Counter(values)
    return _p_value([counts[cell] for cell in cells], [len(values) / len(cells)] * len(cells)) > RARE


def _p_value(counts: Sequence[float], expected: Sequence[float]) -> float:
    """Pearson's χ² test: how likely counts are that differ as much from the expected ones, by chance."""
    found, wanted = torch.tensor([counts, expected], dtype=torch.float64)
    chi_square = ((found - wanted) ** 2 / wanted.clamp(min=1)).sum()
    return float(torch.special.gammaincc(torch.tensor((len(counts) - 1) / 2, dtype=torch.float64), chi_square / 2))


def _why_not_beta(bins: list[int]) -> str:
    u = torch.rand(100_000, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    shares = {label: _bins(program(u)).bincount(minlength=BINS) / len(u) for label, program in INSTEAD.items()}
    counts = [bins.count(one) for one in range(BINS)]
    fits = {label: _p_value(counts, (MANY * share).tolist()) for label, share in shares.items()}
    likely = max(fits, key=lambda label: fits[label])
    return likely if fits[likely] > RARE else "not-beta"
