"""What is drawn for a batch: place, λ and permutation (:class:`Dice`), and the rectangle of CutMix."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Sequence

import torch
import torch.distributed
from torch import Tensor, nn

from hooklab.mixed import NOWHERE

_CPU = torch.device("cpu")
_several_processes: Callable[[], bool] = (
    torch.distributed.is_initialized if torch.distributed.is_available() else lambda: False
)


class Dice:
    """Place, λ and permutation of each batch, from one generator.

    Args:
        choices: the places.
        weights: how often each comes up, in relation to the others.
        alpha, generator, probability, lam_per_example: as in :class:`hooklab.ManifoldMixup`.
    """

    def __init__(
        self,
        choices: Sequence[str],
        weights: Sequence[float],
        alpha: float,
        generator: torch.Generator | None,
        probability: float,
        lam_per_example: bool,
    ) -> None:
        check_alpha(alpha)
        if not 0 <= probability <= 1:
            raise ValueError(f"probability must be from 0 to 1, got {probability}")
        if not (min(weights) >= 0 and 0 < sum(weights) < math.inf):
            raise ValueError(f"weights must be 0 or more, and not all 0; they are {list(weights)} for {list(choices)}")
        self.choices = choices
        self.alpha = alpha
        self.generator = generator
        self.probability = probability
        self.lam_per_example = lam_per_example
        # for each place but the last, the share of all draws that fall on it or on one before
        self._shares = [share / sum(weights) for share in itertools.accumulate(weights)][:-1]
        self.own = torch.Generator()  # seeded anew for each batch: the shared one must not advance by its length
        self._ranks_were_compared = False

    def throw(self, model: nn.Module, length: int, device: torch.device) -> tuple[float | Tensor, Tensor, str]:
        """λ, the permutation on ``device``, and the place."""
        rank = 0
        if _several_processes():
            rank = torch.distributed.get_rank()
            if self.generator is None and torch.distributed.get_world_size() > 1:
                raise RuntimeError(
                    "several processes must agree on layer and λ: give each rank ManifoldMixup(..., "
                    "generator=torch.Generator().manual_seed(seed)) with the same seed"
                )
        choice, seed, *four = uniform(6, self.generator)
        if not self._ranks_were_compared:
            self._compare_ranks(model, seed)
        self.own.manual_seed(int(seed * 2**53) + rank)
        permutation = torch.randperm(length, generator=self.own)
        if choice >= self.probability:
            return 1.0, torch.arange(length, device=device), NOWHERE
        lam: float | Tensor = beta(self.alpha, *four)
        if self.lam_per_example:
            lam = draw_lambdas(length, self.alpha, self.own).to(device)
        place = self.choices[bisect.bisect(self._shares, choice / self.probability)]
        return lam, permutation if device.type == "cpu" else permutation.to(device), place

    def _compare_ranks(self, model: nn.Module, seed: float) -> None:
        """Once: are the generators of all ranks the same? Asked where DistributedDataParallel waits for all anyway."""
        self._ranks_were_compared = True
        group = getattr(model, "process_group", None)
        if group is None:
            return
        device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
        highest = torch.tensor([seed, -seed], dtype=torch.float64, device=device)
        torch.distributed.all_reduce(highest, torch.distributed.ReduceOp.MAX, group=group)
        if highest[0] != -highest[1]:
            raise RuntimeError(
                "the ranks drew differently, and would mix at different layers: give each rank a generator with the "
                "same seed, generator=torch.Generator().manual_seed(seed)"
            )


def draw_lambda(alpha: float, generator: torch.Generator | None = None) -> float:
    """Draw λ ~ Beta(α, α), in [0, 1], from four uniform numbers of ``generator`` (default: torch's global one).

    ``torch.distributions.Beta`` takes no generator, and its sampler uses up a varying amount of randomness. This one
    always uses four numbers, so that processes with equally seeded generators stay in step.

    Raises:
        ValueError: ``alpha`` is not a finite number above 0.

    Example:
        >>> 0 < draw_lambda(2.0, torch.Generator().manual_seed(0)) < 1
        True
    """
    check_alpha(alpha)
    return beta(alpha, *uniform(4, generator))


def draw_lambdas(count: int, alpha: float, generator: torch.Generator) -> Tensor:
    """``count`` times λ ~ Beta(α, α): shape (count,), float32."""
    return torch.tensor([beta(alpha, *uniform(4, generator)) for _ in range(count)], dtype=torch.float32)


def draw_box(height: int, width: int, lam: float, generator: torch.Generator) -> tuple[slice, slice]:
    """Rows and columns of a rectangle with about 1 - λ of the area, anywhere; what sticks out is cut off.

    Source: Yun, Han, Oh, Chun, Choe and Yoo, "CutMix", ICCV 2019 (arXiv:1905.04899), Equation 2.
    """
    side = math.sqrt(1 - lam)

    def span(length: int, at: float) -> slice:
        half, middle = int(length * side) / 2, int(length * at)
        return slice(max(0, math.floor(middle - half)), min(length, math.floor(middle + half)))

    row, column = uniform(2, generator)
    return span(height, row), span(width, column)


def check_alpha(alpha: float) -> None:
    if not 0 < alpha < math.inf:
        raise ValueError(f"alpha must be a finite number above 0, got {alpha}; for no mixup, leave the block out")


def uniform(count: int, generator: torch.Generator | None) -> list[float]:
    device = _CPU if generator is None else generator.device
    numbers: list[float] = torch.rand(count, dtype=torch.float64, generator=generator, device=device).tolist()
    return numbers


def beta(alpha: float, u: float, turn: float, v: float, w: float) -> float:
    """Beta(α, α) from four uniform numbers in [0, 1), exact for every α > 0.

    First B ~ Beta(α+1, α+1) in closed form (Ulrich, "Computer Generation of Distributions on the m-Sphere", Applied
    Statistics 33, 1984). B is G/(G+H) of two gamma variables of shape α+1; G·V^(1/α) and H·W^(1/α) have shape α
    (Stuart's theorem). Both are in Devroye, "Non-Uniform Random Variate Generation", 1986, chapter IX. In terms of
    log(λ / (1-λ)) the last step is a sum, which stays exact where V^(1/α) would be 0.
    """
    radius = math.sqrt(-math.expm1(math.log1p(-u) / (alpha + 0.5)))
    logit_of_b = 2.0 * math.atanh(radius * math.cos(2.0 * math.pi * turn))
    logit = logit_of_b + (math.log1p(-v) - math.log1p(-w)) / alpha
    return 0.5 + 0.5 * math.tanh(0.5 * logit)
