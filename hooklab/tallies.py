"""The statistics that :func:`hooklab.monitor` keeps: a :class:`Sample` of one tensor, a :class:`Tally` of several, and
the :class:`Row` that the user reads. Numbers only; no tensor is kept."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

OUTPUT, GRADIENT, UPDATE = KINDS = "output", "gradient", "update"

# how near an end of its range a value counts as saturated, as a part of the range
NEAR_THE_END = 0.01


# float32 sums of more values than this have errors that show
_AT_ONCE = 2**20
# zero is the one magnitude without any bit
_BITS = {torch.float32: torch.int32, torch.float64: torch.int64}


class Row(NamedTuple):
    """What one module put out (or got as gradients, or as an update of its parameters) in one step.

    ``zeros``, ``nonfinite`` and ``saturated`` are shares from 0 to 1. ``mean``, ``std`` (of all values, not an
    estimate) and ``largest`` (magnitude) are those of the finite values, nan if there are none.
    """

    step: int  # the number of the pass, from 0
    kind: str  # "output", "gradient" (of the output), "update" (of the parameters)
    module: str
    calls: int  # uses of the module in this step; for an update, the parameters that moved or could have
    values: int
    mean: float
    std: float
    largest: float
    zeros: float
    nonfinite: float
    saturated: float | None  # only of outputs of modules with a bounded range, such as nn.Sigmoid
    ratio: float | None  # only of updates: |Δw| / |w|


class Sample(NamedTuple):
    """The statistics of one tensor; ``mean``, ``std`` and ``largest`` are 0 if no value is finite."""

    values: int
    finite: int
    mean: float
    std: float
    largest: float
    nonzero: int  # of the finite ones
    saturated: int | None = None

    @property
    def nonfinite(self) -> int:
        return self.values - self.finite


class Range(NamedTuple):
    """Where the outputs of a squashing module lie."""

    low: float
    high: float

    def near_the_ends(self, values: Tensor) -> Tensor:
        """How many values are so near an end that the module is flat there."""
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        return torch.count_nonzero((values - middle).abs() >= half * (1 - 2 * NEAR_THE_END))


def range_of(module: nn.Module) -> Range | None:
    """The range of a module that squashes its input into one, else None."""
    if isinstance(module, nn.Hardtanh):  # nn.ReLU6 is one
        return Range(module.min_val, module.max_val)
    if isinstance(module, nn.Sigmoid | nn.Hardsigmoid):
        return Range(0.0, 1.0)
    return Range(-1.0, 1.0) if isinstance(module, nn.Tanh | nn.Softsign) else None


def numbers_of(tensor: Tensor) -> Tensor | None:
    """The values that statistics can be made of, without a graph; None where there are none, as for integers."""
    values = tensor.detach()
    if values.layout != torch.strided:
        values = values.coalesce().values() if values.layout == torch.sparse_coo else values.values()
    elif values.is_nested:
        values = torch.cat([part.reshape(-1) for part in values.unbind()])
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    if not values.is_floating_point() or values.numel() == 0:
        return None
    return values.float() if values.dtype.itemsize < 4 else values  # sums of half precision overflow


def sample_now(values: Tensor, bounds: Range | None) -> Sample:
    """Read the statistics at once. On an accelerator this waits until everything before it has been computed."""
    if values.numel() <= _AT_ONCE:
        return _sample(values, bounds)
    tally = Tally()
    for part in values.reshape(-1).split(_AT_ONCE):
        tally.add(_sample(part, bounds))
    return tally.total


def _sample(values: Tensor, bounds: Range | None) -> Sample:
    # not std_mean, a norm of inf or count_nonzero of floats: on a large tensor of the CPU they take three times as long
    count, mean = values.numel(), values.mean().item()
    square = _mean_square(values)
    if math.isfinite(square):
        variance = square - mean * mean
        if not variance > square / 4:  # the difference of two numbers that are nearly the same is not exact
            variance = _mean_square(values - mean)
        bits = values.abs().view(_BITS[values.dtype])  # of magnitudes: in the order of the magnitudes
        largest, nonzero = bits.max().view(values.dtype).item(), int(torch.count_nonzero(bits))
        sample = Sample(count, count, mean, math.sqrt(variance), largest, nonzero)
    else:
        finite = values[values.isfinite()].double()  # squares of large float32 overflow
        sample = Sample(values.numel(), 0, 0.0, 0.0, 0.0, 0)
        if len(finite):
            mean, std = finite.mean().item(), finite.std(correction=0).item()
            largest, nonzero = finite.abs().max().item(), int(torch.count_nonzero(finite))
            sample = Sample(values.numel(), len(finite), mean, std, largest, nonzero)
    return sample if bounds is None else sample._replace(saturated=int(bounds.near_the_ends(values)))


def _mean_square(values: Tensor) -> float:
    length: float = torch.linalg.vector_norm(values).item()
    return length * length / values.numel()  # not **, which raises when it overflows


def sample_later(values: Tensor, bounds: Range | None) -> Tensor:
    """The same as a tensor of six numbers, computed without waiting; :func:`read` makes a Sample of it."""
    is_finite = values.isfinite()
    count = is_finite.sum()
    clean = values.where(is_finite, 0)
    mean = clean.sum() / count.clamp(min=1)
    spread = torch.linalg.vector_norm((clean - mean).where(is_finite, 0)) / count.clamp(min=1).sqrt()
    saturated = count * 0 if bounds is None else bounds.near_the_ends(values)
    parts = [count, mean, spread, clean.abs().max(), torch.count_nonzero(clean), saturated]
    return torch.stack([part.to(values.dtype) for part in parts])


def read(numbers: list[float], values: int, bounds: Range | None) -> Sample:
    """The Sample that :func:`sample_later` prepared for a tensor of so many values."""
    finite, mean, spread, largest, nonzero, saturated = numbers
    return Sample(values, int(finite), mean, spread, largest, int(nonzero), None if bounds is None else int(saturated))


class Tally:
    """Several samples as one: all uses of a module in a step, and all tensors of its output."""

    __slots__ = ("calls", "change", "size", "squares", "total")

    def __init__(self) -> None:
        self.calls = 0
        self.total = Sample(0, 0, 0.0, 0.0, 0.0, 0)
        self.squares = 0.0  # sum of squared distances from the mean
        self.change = self.size = 0.0  # of an update: |Δw|² and |w|²

    def add(self, new: Sample) -> None:
        old, finite = self.total, self.total.finite + new.finite
        if not old.values:
            self.total, self.squares = new, new.std * new.std * new.finite  # not **, which raises when it overflows
            return
        step = new.mean - old.mean
        share = new.finite / finite if finite else 0.0
        self.squares += new.std * new.std * new.finite + step * step * old.finite * share
        self.total = Sample(
            old.values + new.values,
            finite,
            old.mean + step * share,
            math.sqrt(self.squares / finite) if finite else 0.0,
            max(old.largest, new.largest),
            old.nonzero + new.nonzero,
            None if new.saturated is None else new.saturated + (old.saturated or 0),
        )

    def row(self, step: int, kind: str, module: str) -> Row:
        """As the user reads it."""
        total, count = self.total, self.total.values
        none = math.nan if not total.finite else 0.0
        return Row(
            step,
            kind,
            module,
            calls=self.calls,
            values=count,
            mean=total.mean + none,
            std=total.std + none,
            largest=total.largest + none,
            zeros=(total.finite - total.nonzero) / count,
            nonfinite=total.nonfinite / count,
            saturated=None if total.saturated is None else total.saturated / count,
            ratio=None if kind != UPDATE else (math.sqrt(self.change / self.size) if self.size else math.inf),
        )
