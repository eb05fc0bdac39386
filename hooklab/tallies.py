"""The statistics that :func:`hooklab.monitor` records: numbers only, never a tensor.

:class:`Sample` holds those of one tensor, or of several together; :class:`Row` is what the user reads.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

OUTPUT, GRADIENT, UPDATE = "output", "gradient", "update"

# A value counts as saturated if it lies this close to an end of its range, as a share of the range.
NEAR_THE_END = 0.01
# float32 sums of more values than this have visible errors
_AT_ONCE = 2**20
# integers as wide as the floats: zero is the only magnitude without a bit
_BITS = {torch.float32: torch.int32, torch.float64: torch.int64}


class Row(NamedTuple):
    """Statistics of one module in one step: of its outputs, of their gradients, or of its parameters' updates.

    ``zeros``, ``nonfinite`` and ``saturated`` are shares from 0 to 1. ``mean``, ``std`` (of all values, not an
    estimate) and ``largest`` (magnitude) are those of the finite values, or nan if no value is finite.
    """

    step: int  # the number of the pass, from 0
    kind: str  # "output", "gradient" (of the output) or "update" (of the parameters)
    module: str
    calls: int  # uses of the module in this step; for updates, how often an optimizer stepped one of its parameters
    values: int
    mean: float
    std: float
    largest: float
    zeros: float
    nonfinite: float
    saturated: float | None  # for outputs of modules with a bounded range only, such as nn.Sigmoid
    ratio: float | None  # for updates only: |Δw| / |w|


class Sample(NamedTuple):
    """Statistics of a tensor; ``mean``, ``std`` and ``largest`` are 0 if no value is finite."""

    values: int = 0
    finite: int = 0
    mean: float = 0.0
    std: float = 0.0
    largest: float = 0.0
    nonzero: int = 0  # of the finite ones
    saturated: int | None = None

    @property
    def nonfinite(self) -> int:
        return self.values - self.finite

    def merged(self, new: Sample) -> Sample:
        """The statistics of both tensors' values together."""
        if not self.values:
            return new
        finite = self.finite + new.finite
        here, there = (self.finite / finite, new.finite / finite) if finite else (0.0, 0.0)
        apart = math.sqrt(here * there)
        # hypot: squares of very large and very small numbers are inf and 0
        spread = self.std * math.sqrt(here), new.std * math.sqrt(there), new.mean * apart - self.mean * apart
        return Sample(
            self.values + new.values,
            finite,
            self.mean * here + new.mean * there,
            math.hypot(*spread),
            max(self.largest, new.largest),
            self.nonzero + new.nonzero,
            None if new.saturated is None else new.saturated + (self.saturated or 0),
        )

    def row(self, step: int, kind: str, module: str, calls: int, weights: Sample) -> Row:
        """The row that the user reads; ``weights`` are the parameters before the update."""
        none = math.nan if not self.finite else 0.0
        numbers = self.mean + none, self.std + none, self.largest + none
        shares = (self.finite - self.nonzero) / self.values, self.nonfinite / self.values
        saturated = None if self.saturated is None else self.saturated / self.values
        ratio = self.ratio_to(weights) if kind == UPDATE else None
        return Row(step, kind, module, calls, self.values, *numbers, *shares, saturated, ratio)

    def ratio_to(self, weights: Sample) -> float:
        """|Δw| / |w|, by the Euclidean norm; nan if one of them has a value that is not finite."""
        if self.nonfinite or weights.nonfinite:
            return math.nan
        moved, size = (math.sqrt(one.finite) * math.hypot(one.mean, one.std) for one in (self, weights))
        return moved / size if size else math.inf if moved else 0.0


class Range(NamedTuple):
    """The range of a squashing module's outputs."""

    low: float
    high: float

    def near_the_ends(self, values: Tensor) -> Tensor:
        """The number of values so close to an end that the module is flat there."""
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        return torch.count_nonzero((values - middle).abs() >= half * (1 - 2 * NEAR_THE_END))


def range_of(module: nn.Module) -> Range | None:
    """The range of a squashing module's outputs; None for other modules."""
    if isinstance(module, nn.Hardtanh):  # nn.ReLU6 is one
        return Range(module.min_val, module.max_val)
    if isinstance(module, nn.Sigmoid | nn.Hardsigmoid):
        return Range(0.0, 1.0)
    return Range(-1.0, 1.0) if isinstance(module, nn.Tanh | nn.Softsign) else None


def numbers_of(tensor: Tensor) -> Tensor | None:
    """The tensor's values as float32 or float64, without a graph; None if it is empty or holds integers.

    Of a tensor that is distributed over processes (a DTensor) it is this process's part: reading more would wait for
    processes that may not be reading. Raises for tensors without values and of a kind that torch cannot convert.
    """
    values = tensor.detach()
    if type(values) is not Tensor and hasattr(values, "to_local"):
        values = values.to_local()
    if values.layout != torch.strided:
        values = values.coalesce().values() if values.layout == torch.sparse_coo else values.values()
    elif values.is_nested:
        values = torch.cat([part.reshape(-1) for part in values.unbind()])
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    if not values.is_floating_point() or values.numel() == 0:
        return None
    return values.float() if values.dtype.itemsize < 4 else values  # sums of half precision overflow


def sample_now(values: Tensor, bounds: Range | None = None) -> Sample:
    """Read the statistics at once. On an accelerator this waits until everything before it has been computed."""
    total = Sample()
    for part in (values,) if values.numel() <= _AT_ONCE else values.reshape(-1).split(_AT_ONCE):
        total = total.merged(_sample(part, bounds))
    return total


def _sample(values: Tensor, bounds: Range | None) -> Sample:
    # std_mean, a norm of inf and count_nonzero of floats take three times as long for a large tensor on the CPU
    count, mean, square = values.numel(), values.mean().item(), _mean_square(values)
    variance = square - mean * mean
    if math.isfinite(square) and not variance > square / 4:
        variance = _mean_square(values - mean)  # the difference of two nearly equal numbers is not exact
    smallest = torch.finfo(values.dtype).tiny * 1e8  # squares below it have lost digits
    if not (math.isfinite(square) and min(square, variance) > smallest):
        counts, numbers = measure(values.double(), bounds)
        return read(counts.tolist(), numbers.tolist(), count, bounds)
    bits = values.abs().view(_BITS[values.dtype])  # in the order of the magnitudes
    largest, nonzero = bits.max().view(values.dtype).item(), int(torch.count_nonzero(bits))
    saturated = None if bounds is None else int(bounds.near_the_ends(values))
    return Sample(count, count, mean, math.sqrt(variance), largest, nonzero, saturated)


def _mean_square(values: Tensor) -> float:
    length: float = torch.linalg.vector_norm(values).item()
    return length * length / values.numel()  # not **, which raises when it overflows


def measure(values: Tensor, bounds: Range | None) -> tuple[Tensor, Tensor]:
    """The same statistics as two small tensors, counts and numbers, computed without waiting; for :func:`read`.

    Sums are those of the values divided by the largest, so that none of them overflows or vanishes.
    """
    is_finite = values.isfinite()
    finite = is_finite.sum()
    count = finite.clamp(min=1).to(values.dtype)
    clean = values.where(is_finite, 0)
    largest = clean.abs().max()
    scaled = clean / largest.where(largest > 0, 1)
    mean = scaled.sum() / count
    std = torch.linalg.vector_norm((scaled - mean).where(is_finite, 0)) / count.sqrt()
    saturated = finite * 0 if bounds is None else bounds.near_the_ends(values)
    counts = torch.stack([finite, torch.count_nonzero(clean), saturated])
    return counts, torch.stack([mean, std, largest])


def read(counts: list[int], numbers: list[float], values: int, bounds: Range | None) -> Sample:
    """The Sample of a tensor with so many values that :func:`measure` was called with."""
    (finite, nonzero, saturated), (mean, std, largest) = counts, numbers
    return Sample(
        values, finite, mean * largest, std * largest, largest, nonzero, None if bounds is None else saturated
    )
