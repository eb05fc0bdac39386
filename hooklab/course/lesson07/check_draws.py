"""The check of exercise 7.4: λ and the partners of a batch, drawn once, from a generator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import permutations
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.trial import NotYet, Trial, tensor_text

DRAWS = 1500
# A right answer is farther than this from Beta(2, 2) once in ten thousand samples of 1500 (Kolmogorov-Smirnov).
FAR = 0.058
# Each of the six orders of three comes 250 times on average; below 170 or above 330 it does so in none of 10^6 samples.
RARE, OFTEN = 170, 330


@exercise("7.4", "The dice of a batch")
def dice_of_a_batch(trial: Trial) -> str:
    _check_one_draw(trial)
    _check_source(trial)
    lams, orders = _many_draws(trial)
    _check_lams(lams)
    _check_orders(orders)
    return f"one λ and one permutation a batch, from the generator alone; {DRAWS} draws look like Beta(2, 2)"


def _check_one_draw(trial: Trial) -> None:
    for length in (5, 8, 1):
        lam, indices = _draw(trial, length, torch.Generator().manual_seed(length))
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
    first, second = _draw(trial, 20, generator), _draw(trial, 20, generator)
    generator.set_state(state)
    torch.manual_seed(123456)  # global: the learner's draw must not depend on it
    again = _draw(trial, 20, generator)
    for name, one, other in (("λ", first[0], again[0]), ("indices", first[1].tolist(), again[1].tolist())):
        if one != other:
            raise NotYet(
                f"with the generator in the same state, {name} came out differently",
                expected="everything comes from the generator that you are given",
                likely="global dice: pass `generator=generator` to every torch function that draws",
            )
    same_lam, same_order = first[0] == second[0], torch.equal(first[1], second[1])
    if same_lam or same_order:
        raise NotYet(
            f"two draws from one generator gave the same {'λ' if same_lam else 'indices'}",
            expected="a new λ and a new permutation for each batch",
            got=f"λ = {first[0]:.4g}, then {second[0]:.4g}" if same_lam else "the same permutation of 20 twice",
            likely="seeded again, or drawn without the generator: the generator must go on from where it is",
        )


def _many_draws(trial: Trial) -> tuple[Tensor, Counter[tuple[int, ...]]]:
    generator, lams = torch.Generator().manual_seed(11), []
    orders: Counter[tuple[int, ...]] = Counter()
    for _ in range(DRAWS):
        lam, indices = _draw(trial, 3, generator)
        lams.append(lam)
        orders[tuple(indices.tolist())] += 1
    return torch.tensor(lams, dtype=torch.float64).sort().values, orders


# What learners take for Beta(2, 2): the misconception, and the distribution function at λ.
_INSTEAD: dict[str, Callable[[Tensor], Tensor]] = {
    "uniform: that is Beta(1, 1); for Beta(2, 2) take the middle one of three": lambda at: at,
    "mean: the average of three uniform numbers stays too close to ½; take the middle one": lambda at: (
        (27 * at**3 - 81 * (at - 1 / 3).clamp(min=0) ** 3 + 81 * (at - 2 / 3).clamp(min=0) ** 3) / 6
    ),
    "largest: of three uniform numbers take the middle one": lambda at: at**3,
    "smallest: of three uniform numbers take the middle one": lambda at: 1 - (1 - at) ** 3,
}


def _check_lams(lams: Tensor) -> None:
    distance = _distance(lams, lambda at: 3 * at**2 - 2 * at**3)
    if distance < FAR:
        return
    shown = {
        "expected": "Beta(2, 2): half of them below ½, and 69 % between ¼ and ¾",
        "got": f"{100 * float((lams < 0.5).double().mean()):.0f} % below ½, and "
        f"{100 * float(((lams > 0.25) & (lams < 0.75)).double().mean()):.0f} % between ¼ and ¾",
    }
    if bool((lams >= 0.5).all()) or bool((lams <= 0.5).all()):
        raise NotYet(
            f"in {DRAWS} draws λ never was on the other side of ½",
            **shown,
            likely="folded: max(λ, 1 - λ) is no longer Beta(2, 2), and a loss that uses λ itself would not fit it",
        )
    likely = min(_INSTEAD, key=lambda words: _distance(lams, _INSTEAD[words]))
    fits = _distance(lams, _INSTEAD[likely]) < FAR
    raise NotYet(f"{DRAWS} draws of λ do not look like Beta(2, 2)", **shown, likely=likely if fits else None)


def _distance(ordered: Tensor, distribution: Callable[[Tensor], Tensor]) -> float:
    """The Kolmogorov-Smirnov distance of sorted numbers from a distribution function."""
    at, count = distribution(ordered), len(ordered)
    steps = torch.arange(count + 1, dtype=torch.float64) / count
    return float(torch.maximum((steps[1:] - at).max(), (at - steps[:-1]).max()))


def _check_orders(orders: Counter[tuple[int, ...]]) -> None:
    for order in permutations(range(3)):
        if not RARE < orders[order] < OFTEN:
            likely = "some orders never come: a roll or a flip is not a random permutation; randperm(n) is"
            raise NotYet(
                f"of {DRAWS} permutations of three, {list(order)} came {orders[order]} times",
                expected=f"about {DRAWS // 6}, like each of the six",
                got=", ".join(f"{list(one)}: {count}" for one, count in sorted(orders.items())),
                likely=likely if len(orders) < 6 else None,
            )


def _draw(trial: Trial, length: int, generator: torch.Generator) -> tuple[float, Tensor]:
    """One draw of the learner's, as (λ, indices); NotYet says what is wrong with its form."""
    got: Any = trial.run(trial.answer, length, generator)
    if got is None:
        raise NotYet("your function returned None", expected="(λ, indices)", got="None", likely="forgotten return")
    if not isinstance(got, tuple | list) or len(got) != 2:
        raise NotYet("your function did not return a pair", expected="(λ, indices)", got=tensor_text(got))
    lam, indices = got
    if isinstance(lam, Tensor) and not lam.is_floating_point():
        raise NotYet(
            "λ is not a number",
            expected="(λ, indices), λ a float from 0 to 1",
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
    return float(lam), indices
