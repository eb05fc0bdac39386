"""Exercise 7.5: a whole training step, with draws that are given, mixed at the input or at a layer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.faults import PlannedError, PlannedInterrupt
from hooklab.course.exercises.records import Claim
from hooklab.course.exercises.scenes import linear, whole_numbers
from hooklab.course.exercises.trial import Trial
from hooklab.course.exercises.values import same
from hooklab.course.lesson07.shared import Seen, after_an_error, partners, why_not_mixed

ROWS, RATE = 5, 1.0
PLACES = ("the input", "layers[0]", "layers[1]")


class Stage(nn.Module):
    """A linear layer and a leaky ReLU. It notes each of its outputs, before any hook."""

    def __init__(self, seed: int):
        super().__init__()
        self.linear, self.put_out = linear(2, 2, seed), [torch.empty(0)]

    def forward(self, x: Tensor) -> Tensor:
        out = F.leaky_relu(self.linear(x) / 4, 0.5)
        self.put_out.append(out.detach().clone())
        return out


class Net(nn.Module):
    """Two stages and a linear head. It notes its passes, and what each of the three received in the last one."""

    def __init__(self, seed: int):
        super().__init__()
        self.stage1, self.stage2, self.head = Stage(seed), Stage(seed + 1), linear(2, 3, seed + 2)
        self.error: type[BaseException] | None = None
        self.register_forward_pre_hook(lambda *_: setattr(self, "calls", self.calls + 1))
        self.begin()

    def begin(self) -> None:
        self.calls, self.passes, self.in_evaluation, self.received = 0, [], False, []  # type: ignore[var-annotated]
        self.stage1.put_out, self.stage2.put_out = [], []

    def forward(self, x: Tensor) -> Tensor:
        self.in_evaluation |= not all(one.training for one in self.modules())
        self.passes.append(x.detach().clone())
        self.received = []
        for part in (self.stage1, self.stage2, self.head):
            self.received.append(x.detach().clone())
            if part is self.head and self.error is not None:
                raise self.error
            x = part(x)
        return x


@exercise(
    "7.5",
    "A whole step",
    worlds=(
        (torch.float32, 2, ((0.75, 1), (0.25, 0)), PlannedError),
        (torch.float64, 2, ((0.375, 2), (0.875, 1)), PlannedInterrupt),
        (torch.float32, 1, ((0.625, 0), (0.0, 1)), PlannedError),
    ),
    verified="6 steps, at the input and at each layer: one pass, features and loss mixed with the given draws, "
    "gradients to both parts, and no hook left, even when the model raises",
)
def a_whole_step(trial: Trial, world: tuple[torch.dtype, int, Any, type[BaseException]]) -> Iterator[Any]:
    dtype, count, draws, error = world
    net = Net(3 * count).to(dtype)
    layers = [net.stage1, net.stage2][:count]
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    for number, (lam, place) in enumerate(draws, start=1):
        x, y = whole_numbers(number + count, ROWS, 2).to(dtype) - 3, torch.tensor([0, 1, 2, 0, 1]).roll(number)
        yield from _one_step(trial, net, optimizer, (layers, x, y, lam, place), f"in step {number}")
    net.error = error
    step = partial(trial.answer, net, layers, optimizer, x, y, 0.75, partners(ROWS), max(place for _, place in draws))
    yield from after_an_error(trial, net, error, "the model", step)


def _one_step(trial: Trial, net: Net, optimizer: Any, draw: tuple[Any, ...], when: str) -> Iterator[Any]:
    layers, x, y, lam, place = draw
    indices, steps = partners(ROWS), []
    given = (list(layers), x.clone(), y.clone(), indices.clone())
    before = {name: one.detach().clone() for name, one in net.named_parameters()}
    net.begin()
    with optimizer.register_step_post_hook(lambda *_: steps.append(1)):
        got = trial.call(net, layers, optimizer, x, y, lam, indices, place, may_change=True)
    yield "~does the model get the partners alone, in any pass?", any(same(one, x[indices]) for one in net.passes)
    yield f"passes of the model {when}", len(net.passes), None if net.passes else "no-pass"
    yield f"calls of the model's hooks {when}", net.calls, "forward-alone"
    yield f"runs of each layer {when}", [len(one.put_out) for one in (net.stage1, net.stage2)], "run-again"
    yield f"is the model in evaluation mode {when}?", net.in_evaluation, "evaluation-mode"
    kept = layers == given[0] and all(map(torch.equal, (x, y, indices), given[1:]))
    yield f"what your function was given, after it, {when}", Claim(kept, "as it was", "changed"), "batch-changed"

    values = [x, net.stage1.put_out[0], net.stage2.put_out[0]]
    mixed = [number for number in range(3) if not same(net.received[number], values[number])]
    why: str | None = (
        "several-places" if len(mixed) > 1 else "wrong-place" if mixed else "not-mixed" if place else "x-not-mixed"
    )
    yield f"the places with mixed features, with place = {place} {when}", mixed, why
    seen = Seen(net.received[place], values[place], lam, indices)
    what = f"the features at {PLACES[place]}, mixed with λ = {lam:g} and indices = {indices.tolist()}"
    yield what, seen.got, why_not_mixed(seen)

    moved = {name: one.detach() - before[name] for name, one in net.named_parameters()}
    is_moved = any(bool(one.any()) for one in moved.values())
    why = "step-again" if len(steps) > 1 else "another-optimizer" if is_moved else "no-step"
    yield f"calls of optimizer.step() {when}", len(steps), why
    why = "not-the-gradient" if is_moved else "no-gradients"
    yield f"how the last layer's weight changes {when}, with λ = {lam:g}", moved["head.weight"], why
    for stage in ("stage2", "stage1"):
        why = "past-the-graph" if place else "not-the-gradient"
        yield f"how the weight of {stage} changes {when}, with λ = {lam:g}", moved[f"{stage}.linear.weight"], why
    why = "forgotten-return" if got is None else "tensor-loss" if isinstance(got, Tensor) else "not-the-loss"
    yield f"the loss that your function returns {when}", got, why
