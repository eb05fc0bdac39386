"""The check of exercise 7.4: λ, partners and place of a batch, drawn once, from a generator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import permutations
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import expect_returned
from hooklab.course.exercises.trial import NotYet, Trial, tensor_text

DRAWS = 3000
# A right answer is farther than FAR from Beta(2, 2) once in ten thousand samples (Kolmogorov-Smirnov); its variance,
# 1/20 ± 0.001, is outside of this range once in a hundred thousand. That of Beta(3, 3) is 0.036, of a triangle 0.042.
FAR, VARIANCE = 0.0406, (0.0456, 0.0544)
# Each of the 24 orders of four comes 125 times ± 11; a right answer has this χ² or more once in a million times.
SIZE, CHI_SQUARE = 4, 74
# Each of three places comes 1000 times ± 26. At each, the mean of λ is 0.5 ± 0.007, of |λ - ½| 0.1875 ± 0.004.
LAYERS, PLACE_RARE, PLACE_OFTEN = 2, 870, 1130


@exercise("7.4", "The dice of a batch")
def dice_of_a_batch(trial: Trial) -> str:
    _check_one_draw(trial)
    _check_source(trial)
    draws = _many_draws(trial)
    _check_lams(torch.tensor([lam for lam, _, _ in draws], dtype=torch.float64).sort().values)
    _check_orders(Counter(order for _, order, _ in draws))
    _check_partners(trial, 1)  # last: who draws until no row has itself never ends here, and has heard why
    places = Counter(place for _, _, place in draws)
    _check_places(places)
    _check_independence(draws)
    return (
        f"one λ, one permutation and one place a batch, from the generator alone; {DRAWS} draws look like Beta(2, 2), "
        "and all permutations and all places are equally likely"
    )


def _check_one_draw(trial: Trial) -> None:
    for layers in (1, 3) * 20:
        _draw(trial, 2, torch.Generator().manual_seed(layers), layers)
    for length in (5, 8):
        _check_partners(trial, length)


def _check_partners(trial: Trial, length: int) -> None:
    lam, indices, _ = _draw(trial, length, torch.Generator().manual_seed(length))
    if sorted(indices.tolist()) != list(range(length)):
        likely = None
        if len(indices) == length and all(0 <= index < length for index in indices.tolist()):
            likely = "randint draws with replacement: some samples come twice, others never; you want randperm"
        elif len(indices) != length:
            likely = "length: one partner for each of the n samples"
        raise NotYet(
            "the partners are not a permutation",
            expected=f"each of 0 … {length - 1} once, in any order",
            got=tensor_text(indices),
            likely=likely,
        )
    if not 0 <= lam <= 1:
        raise NotYet("λ is not between 0 and 1", expected="a share, from 0 to 1", got=f"{lam:g}")


def _check_source(trial: Trial) -> None:
    """The same generator state gives the same draw, whatever the global random state; the next draw differs."""
    generator = torch.Generator().manual_seed(7)
    state = generator.get_state()

    def draws(seed: int) -> list[tuple[float, Tensor, int]]:
        generator.set_state(state)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # the global one: the learner's draw must not depend on it
            return [_draw(trial, 20, generator) for _ in range(12)]

    first, other = draws(1), draws(123456)
    for part, name in enumerate(("λ", "indices", "place")):
        if not _alike(first, other, part):
            raise NotYet(
                f"with the generator in the same state, {name} came out differently",
                expected="everything comes from the generator that you are given",
                likely="global dice: pass `generator=generator` to every torch function that draws"
                if _alike(draws(1), first, part) and _alike(draws(123456), other, part)
                else None,
            )
    same_lam, same_order = (_alike(first[:1], first[1:2], part) for part in (0, 1))
    if same_lam or same_order:
        raise NotYet(
            f"two draws from one generator gave the same {'λ' if same_lam else 'indices'}",
            expected="a new λ and a new permutation for each batch",
            got=f"λ = {first[0][0]:.4g}, then {first[1][0]:.4g}" if same_lam else "the same permutation of 20 twice",
            likely="seeded again, or put back: the generator must go on from where it is"
            if same_lam and same_order and _is_turned_back(trial)
            else None,
        )


def _is_turned_back(trial: Trial) -> bool:
    """Whether a draw uses the generator, and leaves it where one more draw gives the same again."""
    generator = torch.Generator().manual_seed(8)
    one = _draw(trial, 20, generator)
    if not torch.equal(generator.get_state(), torch.Generator().manual_seed(8).get_state()):
        return True
    other = _draw(trial, 20, torch.Generator().manual_seed(9))
    return not torch.equal(one[1], other[1]) or one[0] != other[0]


def _alike(some: list[tuple[float, Tensor, int]], others: list[tuple[float, Tensor, int]], part: int) -> bool:
    """Whether λ, the indices or the place are the same in two series of draws."""
    pairs = zip(some, others, strict=True)
    return all(torch.equal(torch.as_tensor(one[part]), torch.as_tensor(other[part])) for one, other in pairs)


def _many_draws(trial: Trial) -> list[tuple[float, tuple[int, ...], int]]:
    generator = torch.Generator().manual_seed(11)

    def many() -> list[Any]:  # in one run: what surrounds a run takes longer than a draw
        return [trial.answer(SIZE, LAYERS, generator) for _ in range(DRAWS)]

    many.__name__ = trial.name
    read = [_read(got, SIZE, LAYERS) for got in trial.run(many)]
    return [(lam, tuple(indices.tolist()), place) for lam, indices, place in read]


# What learners take for Beta(2, 2): the misconception, and the distribution function at λ.
_INSTEAD: dict[str, Callable[[Tensor], Tensor]] = {
    "uniform: that is Beta(1, 1); for Beta(2, 2) take the middle one of three": lambda at: at,
    "mean: the average of three uniform numbers stays too close to ½; take the middle one": lambda at: (
        (27 * at**3 - 81 * (at - 1 / 3).clamp(min=0) ** 3 + 81 * (at - 2 / 3).clamp(min=0) ** 3) / 6
    ),
    "the mean of two uniform numbers, a triangle: for Beta(2, 2) take the middle one of three": lambda at: (
        2 * at**2 - 4 * (at - 0.5).clamp(min=0) ** 2
    ),
    "Beta(3, 3): the middle one of five uniform numbers; for Beta(2, 2) take that of three": lambda at: (
        at**3 * (10 - 15 * at + 6 * at**2)
    ),
    "folded: max(λ, 1 - λ) is no longer Beta(2, 2), and a loss that uses λ itself would not fit it": lambda at: (
        2 * (3 * at**2 - 2 * at**3) - 1
    ).clamp(min=0),
    "folded: min(λ, 1 - λ) is no longer Beta(2, 2), and a loss that uses λ itself would not fit it": lambda at: (
        2 * (3 * at**2 - 2 * at**3)
    ).clamp(max=1),
    "largest: of three uniform numbers take the middle one": lambda at: at**3,
    "smallest: of three uniform numbers take the middle one": lambda at: 1 - (1 - at) ** 3,
}


def _check_lams(lams: Tensor) -> None:
    value, times = Counter(lams.tolist()).most_common(1)[0]
    if 5 < times < DRAWS:
        raise NotYet(
            f"in {DRAWS} draws, λ was {value:g} {times} times",
            expected="Beta(2, 2): hardly ever the same number twice",
            likely="cut off: a normal or another number that was clamped to 0 … 1 is not Beta(2, 2)",
        )
    distance = _distance(lams, lambda at: 3 * at**2 - 2 * at**3)
    if distance < FAR and VARIANCE[0] < float(lams.var()) < VARIANCE[1]:
        return
    shown = {
        "expected": "Beta(2, 2): half of them below ½, and 69 % between ¼ and ¾",
        "got": f"{100 * float((lams < 0.5).double().mean()):.0f} % below ½, and "
        f"{100 * float(((lams > 0.25) & (lams < 0.75)).double().mean()):.0f} % between ¼ and ¾",
    }
    likely = min(_INSTEAD, key=lambda words: _distance(lams, _INSTEAD[words]))
    fits = _distance(lams, _INSTEAD[likely]) < FAR
    raise NotYet(f"{DRAWS} draws of λ do not look like Beta(2, 2)", **shown, likely=likely if fits else None)


def _distance(ordered: Tensor, distribution: Callable[[Tensor], Tensor]) -> float:
    """The Kolmogorov-Smirnov distance of sorted numbers from a distribution function."""
    at, count = distribution(ordered), len(ordered)
    steps = torch.arange(count + 1, dtype=torch.float64) / count
    return float(torch.maximum((steps[1:] - at).max(), (at - steps[:-1]).max()))


def _check_orders(orders: Counter[tuple[int, ...]]) -> None:
    everyone = list(permutations(range(SIZE)))
    expected = DRAWS / len(everyone)
    if sum((orders[order] - expected) ** 2 / expected for order in everyone) < CHI_SQUARE:
        return
    likely = None
    moved = {order for order in everyone if all(i != partner for i, partner in enumerate(order))}
    if set(orders) == moved:
        likely = "a derangement: you leave out the orders in which a row keeps its place; here a row may draw itself"
    elif len(orders) <= SIZE:
        likely = "some orders never come: a roll or a flip is not a random permutation; randperm(n) is"
    odd = max(everyone, key=lambda order: (order not in orders, abs(orders[order] - expected)))
    raise NotYet(
        f"of {DRAWS} permutations of four, {list(odd)} came {orders[odd]} times",
        expected=f"about {expected:.0f}, like each of the 24",
        got=f"{len(orders)} different ones",
        likely=likely,
    )


def _check_places(places: Counter[int]) -> None:
    if all(PLACE_RARE < places[place] < PLACE_OFTEN for place in range(LAYERS + 1)):
        return
    odd = max(range(LAYERS + 1), key=lambda place: (not places[place], abs(places[place] - DRAWS / (LAYERS + 1))))
    likely: str | None = None
    if abs(places[1] - places[2]) < 0.1 * DRAWS:  # the layers alike, and the input not
        likely = "probabilities: one draw among n + 1 places gives each the same, a coin for the input first does not"
    if not places[odd]:
        likely = "off by one: randint(n) draws 0 … n - 1" if odd else "the input, place 0, belongs to the set too"
    raise NotYet(
        f"in {DRAWS} draws with {LAYERS} layers, place {odd} came {places[odd]} times",
        expected=f"the input, place 0, and the layers, 1 and {LAYERS}: about {DRAWS // (LAYERS + 1)} times each",
        got=", ".join(f"{place}: {places[place]}" for place in range(LAYERS + 1)),
        likely=likely,
    )


def _check_independence(draws: list[tuple[float, tuple[int, ...], int]]) -> None:
    """Each place has the λ and the partners that the others have."""
    for place in range(LAYERS + 1):
        here = [(lam, order) for lam, order, drawn in draws if drawn == place]
        lams = torch.tensor([lam for lam, _ in here], dtype=torch.float64)
        shown = f"with place {place}, λ is {float(lams.mean()):.2f} on average, and {{}}"
        firsts = Counter(order[0] for _, order in here)
        expected = len(here) / SIZE
        if abs(float(lams.mean()) - 0.5) > 0.04 or abs(float((lams - 0.5).abs().mean()) - 0.1875) > 0.022:
            got = shown.format(f"{float((lams - 0.5).abs().mean()):.2f} away from ½")
        elif any(abs(firsts[one] - expected) > 0.25 * expected for one in range(SIZE)):
            counted = ", ".join(f"{one}: {firsts[one]}" for one in range(SIZE))
            got = f"with place {place}, the first row's partners are {counted}"
        else:
            continue
        raise NotYet(
            "the place depends on what else was drawn",
            expected="at each place the same λ and the same partners as at the others",
            got=got,
            likely="drawn together: two of the three were made of one number; draw each anew",
        )


def _draw(trial: Trial, length: int, generator: torch.Generator, layers: int = LAYERS) -> tuple[float, Tensor, int]:
    """One draw of the learner's, as (λ, indices, place)."""
    return _read(trial.run(trial.answer, length, layers, generator), length, layers)


def _read(got: Any, length: int, layers: int) -> tuple[float, Tensor, int]:
    """What was returned, as (λ, indices, place); NotYet says what is wrong with its form."""
    expect_returned(got, "(λ, indices, place)")
    if not isinstance(got, tuple | list) or len(got) != 3:
        raise NotYet("your function did not return three things", expected="(λ, indices, place)", got=tensor_text(got))
    lam, indices, place = got
    if isinstance(lam, Tensor) and not lam.is_floating_point():
        raise NotYet(
            "λ is not a number",
            expected="(λ, indices, place), λ a float from 0 to 1",
            got=tensor_text([lam, indices]),
            likely="the other way round: λ comes first",
        )
    if isinstance(lam, Tensor) and lam.numel() > 1:
        raise NotYet(
            f"λ has {lam.numel()} numbers",
            expected="one number for the whole batch",
            got=f"a tensor of shape {tuple(lam.shape)}",
            likely="a λ for each sample: here the batch has one; or an index is missing behind sort()",
        )
    if isinstance(lam, Tensor) and lam.numel() == 1:
        lam = lam.item()
    if isinstance(lam, bool) or not isinstance(lam, Real):
        pair = "two tensors: median(dim=…) and sort() give values and indices; take `.values`, or median() without dim"
        raise NotYet(
            "λ is not a number",
            expected="a float from 0 to 1",
            got=tensor_text(lam),
            likely=pair if isinstance(lam, tuple) else None,
        )
    if not isinstance(indices, Tensor) or indices.is_floating_point() or indices.dim() != 1:
        raise NotYet(
            "the partners are not a tensor of whole numbers",
            expected=f"an int64 tensor of shape ({length},)",
            got=tensor_text(indices),
        )
    if isinstance(place, Tensor) and place.numel() == 1 and not place.is_floating_point():
        place = place.item()
    if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place <= layers:
        raise NotYet(
            f"with {layers} layer{'s' if layers > 1 else ''}, the place is not one of 0 … {layers}",
            expected="a whole number: 0 for the input, k for the k-th layer",
            got=tensor_text(place),
            likely="a place too far: randint's upper end does not come itself"
            if isinstance(place, int) and place > layers
            else None,
        )
    return float(lam), indices, place
