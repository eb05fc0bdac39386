"""The check of exercise 10.5: saved values in eight bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.forward import expect_manager
from hooklab.course.exercises.misconceptions import Reason, named_by
from hooklab.course.exercises.trial import NotYet, Trial, same, tensor_text
from hooklab.course.lesson10.memory import Meter

MANY = 10_000
_LIKELY: dict[str, Reason] = {
    "unpack_hook expected to be a Tensor": "unpack must make the tensor again from what pack returned",
    "modifying its input in place": "pack must leave the tensor as it is: it is the model's own",
    "must match the size of tensor": "another shape came out of unpack",
    "expected scalar type": "another dtype came out of unpack: come back to the one that the tensor had",
    "to have the same dtype": "another dtype came out of unpack: come back to the one that the tensor had",
    "two bool tensors is not supported": "a mask is saved, too: leave what is not floating point as it is",
    "tensors used as indices must be": "integers must come back exactly, with their dtype",
    "Expected object of scalar type": "another dtype came out of unpack: come back to the one that the tensor had",
}


@exercise("10.5", "Eight bits")
@named_by(_LIKELY)
def eight_bits(trial: Trial) -> str:
    def block() -> Any:
        return expect_manager(trial.call(), "your function")

    for dtype in (torch.float32, torch.float64):
        _expect_small(trial, block, dtype)
    _expect_the_dtype(trial, block)
    for values in ((-1.0, 3.0), (0.0, 100.0), (1e-3, 2e-3), (-50.0, -49.0)):
        for dtype in (torch.float32, torch.float64):
            _expect_near(trial, block, *values, dtype)
    _expect_finite(trial, block)
    _expect_labels(trial, block)
    return "a byte a number, gradients within half a step, integers and masks exact, nothing is NaN"


def _saved(trial: Trial, block: Callable[[], Any], what: str, values: Tensor) -> Tensor:
    """What comes back of a tensor that is saved: the gradient of w in values · w."""
    w = torch.ones_like(values, requires_grad=True)

    def run() -> None:
        with block():
            y = values * w
        y.sum().backward()

    run.__name__ = what
    trial.run(run)
    assert w.grad is not None
    return w.grad


def _expect_small(trial: Trial, block: Callable[[], Any], dtype: torch.dtype) -> None:
    shape = (1, MANY) if dtype == torch.float32 else (MANY, 1)  # a smallest value for each row, or column, is large
    x = torch.linspace(-1, 1, MANY, dtype=dtype).reshape(shape).requires_grad_()

    def run() -> Tensor:
        with block():
            return (2 * x).sin().cos()  # nothing that is saved would stay anyway, as x itself does

    run.__name__ = "a pass in your block"
    with Meter() as meter:
        y = trial.run(run)
    kept = meter.alive - y.nbytes
    if kept > 2.2 * MANY:  # sin saves 2 x, cos saves sin's result
        likely = None
        each = kept / MANY / 2
        if x.itemsize - 0.1 < each < x.itemsize + 1.1:
            size = {4: "four", 8: "eight"}[x.itemsize]
            likely = f"{size} bytes a number are there: no bytes, but larger numbers, or the tensor beside the bytes"
        elif 7.9 < each < 8.1:
            likely = "eight bytes a number: int64 or float64; torch.uint8 takes one"
        raise NotYet(
            f"the saved values are too large, {dtype}".replace("torch.", ""),
            expected="one byte a number",
            got=f"{each:.1f}",
            likely=likely,
        )


def _expect_the_dtype(trial: Trial, block: Callable[[], Any]) -> None:
    """A matrix product is strict: its backward raises if what comes back has another dtype."""
    values = torch.linspace(-1, 3, 12, dtype=torch.float64).reshape(4, 3)
    w = torch.ones(3, 1, dtype=torch.float64, requires_grad=True)

    def run() -> None:
        with block():
            y = values @ w
        y.sum().backward()

    run.__name__ = "a matrix product in float64"
    trial.run(run)


def _expect_near(trial: Trial, block: Callable[[], Any], low: float, high: float, dtype: torch.dtype) -> None:
    values = torch.linspace(low, high, 1001, dtype=dtype)[torch.randperm(1001)].reshape(7, 143)
    what = f"saved numbers from {low:g} to {high:g}, {dtype}".replace("torch.", "")
    got = _saved(trial, block, what, values)
    step = (high - low) / 255
    error = (got - values).abs().max().item()
    if not error <= 0.51 * step + 1e-6 * max(abs(low), abs(high)):  # nor is a NaN near
        raise NotYet(
            f"{what} do not come back well",
            expected=f"off by at most half a step, {step / 2:.3g}",
            got=f"off by {error:.3g}",
            likely=_why_off(values, got, step),
        )


def _why_off(values: Tensor, got: Tensor, step: float) -> str | None:
    low = values.min()
    if (got - (values - low)).abs().max() < 0.6 * step:
        return "the smallest value is missing: add it again in unpack"
    wraps = values - low > 127.6 * step
    if (got - values + 256 * step * wraps).abs().max() < 0.6 * step:
        return "a signed byte: int8 ends at 127, and goes on at -128; torch.uint8 has 0 to 255"
    if abs(got.flatten()[values.argmax()] - low) < step and ((got - values).abs() > 2 * step).sum() < 5:
        return "256 does not fit in a byte: the largest value comes back as the smallest; 255 steps"
    error = (values - got).flatten()
    if -0.01 * step <= error.min() and 0.9 * step < error.max() <= 1.01 * step:
        return "cut instead of rounded: a conversion to whole numbers drops what is behind the point; round() first"
    if got.unique().numel() < 30:
        return "far fewer than 256 levels: 255 steps from the smallest value to the largest"
    if (values < 0).any() and (got >= 0).all():
        return "negative numbers come back positive: measure from the smallest value"
    return None


def _expect_finite(trial: Trial, block: Callable[[], Any]) -> None:
    for value in (0.0, 7.0, -2.5):
        values = torch.full((3,), value)
        got = _saved(trial, block, f"a tensor of nothing but {value:g}", values)
        if not same(got, values):
            raise NotYet(
                "a tensor of equal numbers does not come back",
                expected=tensor_text(values),
                got=tensor_text(got),
            )


def _expect_labels(trial: Trial, block: Callable[[], Any]) -> None:
    rows = torch.arange(0, 2000, 7)
    labels = rows % 5
    scores, table = torch.zeros(len(rows), 5, requires_grad=True), torch.ones(2000, 1, requires_grad=True)
    mask = rows % 3 == 0

    def loss() -> Tensor:
        chosen = torch.where(mask, scores[:, 0], scores[:, 1] * 2)
        return F.cross_entropy(scores, labels, reduction="sum") + F.embedding(rows, table).sum() + chosen.sum()

    def run() -> None:
        with block():
            y = loss()
        y.backward()

    run.__name__ = "a loss with class labels, an embedding and a mask"
    trial.run(run)
    got = [scores.grad, table.grad]
    scores.grad = table.grad = None
    loss().backward()
    assert scores.grad is not None
    assert table.grad is not None
    if not (same(got[0], scores.grad, 1e-2) and same(got[1], table.grad)):
        raise NotYet(
            f"{run.__name__}: another gradient",
            expected="integers and masks come back exactly",
            likely="whole numbers in 256 levels: leave what is not floating point as it is",
        )
