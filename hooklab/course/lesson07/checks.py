"""Exercises of lesson 7: mixing samples, targets and losses, and the hook that does it inside a network.

The longer ones are in modules of their own: `check_hook` (7.3), `check_draws` (7.4) and `check_step` (7.5).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.frames import kind_of
from hooklab.course.exercises.records import Claim
from hooklab.course.exercises.scenes import whole_numbers
from hooklab.course.exercises.trial import Trial
from hooklab.course.exercises.values import same
from hooklab.course.lesson07.check_draws import dice_of_a_batch
from hooklab.course.lesson07.check_hook import a_hook_that_mixes
from hooklab.course.lesson07.check_step import a_whole_step
from hooklab.course.lesson07.shared import Seen, has_other_weights, partners, why_not_mixed

__all__ = ["a_hook_that_mixes", "a_mixed_batch", "a_mixed_loss", "a_whole_step", "dice_of_a_batch"]

Pairs = Iterator[tuple[Any, ...]]


@exercise(
    "7.1",
    "Mix a batch and its targets",
    worlds=((0.75, (3, 1)), (0.25, (4, 2)), (0.625, (5, 1, 2, 2)), (0.0, (3, 2)), (1.0, (4, 1))),
    verified="x and y mixed with the same partners and the same λ, vectors and images, from λ = 0 to λ = 1",
)
def a_mixed_batch(trial: Trial, world: tuple[float, tuple[int, ...]]) -> Pairs:
    lam, shape = world
    x, y, indices = 4 * whole_numbers(shape[0], *shape) - 10, torch.eye(shape[0]), partners(shape[0])
    x[0] += 70_000  # too large for half precision
    got = trial.call(x, y, lam, indices)
    told = "a pair" if isinstance(got, tuple | list) else f"a {kind_of(got)}"
    yield "what your function returns", told, "forgotten-return" if got is None else None
    yield "the number of things that your function returns", len(got)
    mixed_x, mixed_y = got
    draws = f"with λ = {lam:g} and indices = {indices.tolist()}"
    yield f"the mixed x, {draws}", mixed_x, _why_not_mixed(mixed_x, x, lam, indices)
    for_y = {"other-partners": "other-partners-for-y", "other-weights": "other-weights-for-y"}
    why = _why_not_mixed(mixed_y, y, lam, indices)
    yield f"the mixed y, {draws}", mixed_y, for_y.get(why or "", why)
    trial.call(x + 1, y.flip(0), 0.5, indices)
    yield "the mixed x, looked at again after a later call", mixed_x
    yield "the mixed y, looked at again after a later call", mixed_y


def _why_not_mixed(got: Any, values: Tensor, lam: float, indices: Tensor) -> str | None:
    if not isinstance(got, Tensor) or got.shape != values.shape:
        return None
    if not got.is_floating_point():
        return "whole-numbers"
    if got.dtype != values.dtype:
        return "another-dtype"
    return why_not_mixed(Seen(got, values, lam, indices))


LOSSES: dict[str, Any] = {
    "cross entropy": F.cross_entropy,
    "the multi-margin loss": F.multi_margin_loss,
    "cross entropy, summed over the batch": partial(F.cross_entropy, reduction="sum"),
    "cross entropy, a loss for each sample": partial(F.cross_entropy, reduction="none"),
    "cross entropy with class weights": partial(F.cross_entropy, weight=torch.tensor([1.0, 2.0, 0.5, 4.0, 1.0])),
}


@exercise(
    "7.2",
    "The loss of a mixture",
    worlds=tuple(zip(LOSSES, (0.75, 0.25, 0.25, 0.5, 0.625), strict=True)),
    verified="λ of one loss and 1 - λ of the other, for five loss functions, and gradients reach the logits",
)
def a_mixed_loss(trial: Trial, world: tuple[str, float]) -> Pairs:
    words, lam = world
    logits, y = whole_numbers(3 + round(4 * lam), 4, 5).requires_grad_(), torch.tensor([4, 0, 3, 1])
    moved: list[bool] = []

    def loss_fn(rows: Any, *args: Any, **kwargs: Any) -> Any:
        moved.append(same(rows, logits[partners(4)]))
        return LOSSES[words](rows, *args, **kwargs)

    got = trial.call(loss_fn, logits, y, lam, partners(4), may_change=True)
    yield "~does loss_fn get the partners' logits, in any call", any(moved)
    yield "logits.grad when your function has returned", logits.grad, "backward-inside"
    told = "a tensor" if isinstance(got, Tensor) else f"a {kind_of(got)}"
    yield "what your function returns", told, why_no_tensor(got)
    own, partner = (_gradient(LOSSES[words](logits, targets), logits) for targets in (y, y[partners(4)]))
    is_off = got.requires_grad and has_other_weights(_gradient(got, logits), own, partner, lam)
    yield f"the mixed loss, for {words} and λ = {lam:g}", got, "other-weights" if is_off else None
    in_graph = Claim(got.requires_grad, "it does", "it doesn't")
    yield "does your loss require grad?", in_graph, "detached"
    (grad,) = torch.autograd.grad(got.sum(), logits, allow_unused=True)
    yield "the gradient of your loss, at the logits", grad, "cut-off" if grad is None else None


def _gradient(loss: Tensor, logits: Tensor) -> Tensor:
    return torch.autograd.grad(loss.sum(), logits, retain_graph=True, materialize_grads=True)[0]


def why_no_tensor(got: Any) -> str | None:
    if got is None:
        return "forgotten-return"
    return "number" if isinstance(got, int | float) else None
