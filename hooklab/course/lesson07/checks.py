"""The exercises of lesson 7: mixing samples, targets and losses, and the hook that does it inside a network.

Exercise 7.4 is in `check_draws`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hooklab.course.exercises.exercise import Pairs, exercise
from hooklab.course.exercises.faults import PlannedError, PlannedInterrupt
from hooklab.course.exercises.guards import somebody_elses
from hooklab.course.exercises.records import Claim
from hooklab.course.exercises.scenes import after_an_error, linear, returns, returns_manager, whole_numbers
from hooklab.course.exercises.trial import Trial
from hooklab.course.exercises.values import same
from hooklab.course.lesson07.check_draws import dice_of_a_batch as dice_of_a_batch

# Permutations without a fixed point, none of them its own inverse, so that a wrong direction shows. With more than
# three rows, they are not shifts, either.
CYCLES = {3: (2, 0, 1), 4: (2, 0, 3, 1), 5: (3, 0, 4, 2, 1)}


def partners(length: int) -> Tensor:
    """Return a permutation of this length in which no row is its own partner, nor its partner's partner."""
    return torch.tensor(CYCLES[length])


class Seen(NamedTuple):
    """What an answer made of values, with which λ and which partners."""

    got: Tensor
    values: Tensor
    lam: float
    indices: Tensor


def has_other_partners(one: Seen) -> bool:
    """Whether each row is λ of itself and 1 - λ of some row, and each row is partner once, so that the mean stays.

    What is not mixed at all has no other partners, though each row could be its own.
    """
    partners = (one.got - one.lam * one.values) / (1 - one.lam)
    are_rows = all(any(same(partner, row) for row in one.values) for partner in partners)
    return are_rows and same(partners.mean(dim=0), one.values.mean(dim=0)) and not same(one.got, one.values)


def why_not_mixed(one: Seen) -> str | None:
    """Return why this isn't a mixture with the given draws, if that can be seen."""
    if one.lam < 1 and has_other_partners(one):
        return "other-partners"
    return "other-weights" if has_other_weights(one.got, one.values, one.values[one.indices], one.lam) else None


def has_other_weights(got: Tensor, own: Tensor, partner: Tensor, lam: float) -> bool:
    """Whether `got` is a sum of both tensors, but not λ of the one and 1 - λ of the other."""
    if not got.isfinite().all():
        return False
    both = torch.stack([own.detach().flatten(), partner.detach().flatten()], dim=1).double()
    wanted = got.detach().flatten().double()
    weights = torch.linalg.lstsq(both, wanted).solution
    are_both_there = bool((weights.abs() > 1e-3).all())
    return are_both_there and same(both @ weights, wanted) and not same(weights, torch.tensor([lam, 1 - lam]), 1e-3)


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
    yield returns(got, tuple | list, "a pair")
    yield "the number of things that your function returns", len(got)
    mixed_x, mixed_y = got
    draws = f"with λ = {lam:g} and indices = {indices.tolist()}"
    yield f"the mixed x, {draws}", mixed_x, why_not_the_batch(mixed_x, x, lam, indices)
    for_y = {"other-partners": "other-partners-for-y", "other-weights": "other-weights-for-y"}
    why = why_not_the_batch(mixed_y, y, lam, indices)
    yield f"the mixed y, {draws}", mixed_y, for_y.get(why or "", why)
    trial.call(x + 1, y.flip(0), 0.5, indices)
    yield "the mixed x, looked at again after a later call", mixed_x
    yield "the mixed y, looked at again after a later call", mixed_y


def why_not_the_batch(got: Any, values: Tensor, lam: float, indices: Tensor) -> str | None:
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
    got = trial.call(LOSSES[words], logits, y, lam, partners(4), may_change=True)
    yield "logits.grad when your function has returned", logits.grad, "backward-inside"
    yield returns(got, Tensor, "a tensor", "number" if isinstance(got, int | float) else None)
    own, partner = (_gradient(LOSSES[words](logits, targets), logits) for targets in (y, y[partners(4)]))
    is_off = got.requires_grad and has_other_weights(_gradient(got, logits), own, partner, lam)
    yield f"the mixed loss, for {words} and λ = {lam:g}", got, "other-weights" if is_off else None
    in_graph = Claim(got.requires_grad, "it does", "it doesn't")
    yield "does your loss require grad?", in_graph, "detached"
    (grad,) = torch.autograd.grad(got.sum(), logits, allow_unused=True)
    yield "the gradient of your loss, at the logits", grad, "cut-off" if grad is None else None


def _gradient(loss: Tensor, logits: Tensor) -> Tensor:
    return torch.autograd.grad(loss.sum(), logits, retain_graph=True, materialize_grads=True)[0]


# --- 7.3


class Pipe(nn.Module):
    """stage → head. It notes the stage's output before any hook, and the head's input."""

    def __init__(self, seed: int):
        super().__init__()
        self.stage, self.head = Sigmoid(seed), linear(2, 2, seed + 20)
        self.received: Any = None

    def forward(self, x: Tensor) -> Tensor:
        self.received = self.stage(x)
        if not isinstance(self.received, Tensor) or self.received.shape != x.shape:
            return x  # what a hook returned is looked at after the pass
        result: Tensor = self.head(self.received)
        return result


class Sigmoid(nn.Module):
    """A linear layer, and a sigmoid that saves its own output for backward."""

    def __init__(self, seed: int):
        super().__init__()
        self.linear, self.put_out = linear(2, 2, seed), torch.empty(0)
        self.before_hooks = torch.empty(0)
        self.runs = 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        self.put_out = torch.sigmoid(0.1 * self.linear(x))
        self.before_hooks = self.put_out.detach().clone()
        return self.put_out


@exercise(
    "7.3",
    "A hook that mixes, and cleans up",
    worlds=(
        (0.75, 5, torch.float32, PlannedError),
        (0.25, 3, torch.float64, PlannedInterrupt),
        (0.625, 4, torch.float32, PlannedError),
    ),
    verified="each pass in the block mixed, with gradients to both parts, and the hook gone after it, even on errors",
)
def a_hook_that_mixes(trial: Trial, world: tuple[float, int, torch.dtype, type[BaseException]]) -> Pairs:
    lam, rows, dtype, error = world
    net, other, x = Pipe(rows).to(dtype), Pipe(rows + 1).to(dtype), whole_numbers(rows, rows, 2).to(dtype)
    net.stage.register_forward_hook(somebody_elses)
    with trial.watch(net, other, x):
        manager = trial.run(trial.answer, net.stage, lam, partners(rows))
        yield returns_manager(manager)
        block = Block(manager, net, x)
        trial.run(block)
        replaced = Claim(not block.is_patched, "the layer's own", "replaced")
        yield "`forward` of the layer during the block", replaced, "patched"
        yield "the number of times that the layer runs in one pass", block.runs, "run-again"
        yield "the layer's own output, after your hook", Claim(block.is_kept, "as it was", "changed"), "in-place"
        draws = f"with λ = {lam:g} and indices = {partners(rows).tolist()}"
        got, second, in_evaluation = block.received
        seen = Seen(got, net.stage.before_hooks, lam, partners(rows))
        yield f"what the next layer receives, {draws}", got, why_not_at_the_layer(seen, block.hooks)
        yield "does what the next layer receives require grad?", got.requires_grad, "cut-off"
        weights = torch.arange(1.0, 1 + got.numel(), dtype=dtype).reshape(got.shape)
        (grad,) = torch.autograd.grad((weights * got).sum(), net.stage.linear.weight, allow_unused=True)
        yield "the gradient of the layer's weight", grad, "cut-off" if grad is None else None
        yield "what the next layer receives in the block's second pass", second
        yield "what the next layer receives in the block, in evaluation mode", in_evaluation
        net(x)
        yield "what the next layer receives after the block", net.received, "hook-left"
        replaced = Claim("forward" not in vars(net.stage), "the layer's own", "replaced")
        yield "`forward` of the layer after the block", replaced, "patched"
        with trial.answer(net.stage, lam, partners(rows)), trial.answer(other.stage, 0.5, partners(rows)):
            net(x), other(x)
        yield "what the next layer receives, with a block for another layer inside", net.received
        yield "what the next layer receives in that inner block", other.received
    yield from after_an_error(trial, net, error, "the block", partial(failing, trial, net, rows, error))


class Block:
    """A caller's code: a `with` block with three passes, the last one in evaluation mode."""

    def __init__(self, manager: Any, net: Pipe, x: Tensor):
        self.manager, self.net, self.x = manager, net, x
        self.received: list[Any] = []

    def __call__(self) -> None:
        stage = self.net.stage
        with self.manager:
            self.hooks = [len(stage._forward_hooks) - 1, len(stage._forward_pre_hooks)]  # one is the check's own
            self.is_patched = "forward" in vars(stage)
            for mode in (True, True, False):
                stage.runs = 0
                self.net.train(mode)
                self.net(self.x)
                if not self.received:
                    self.runs, self.is_kept = stage.runs, same(stage.put_out.detach(), stage.before_hooks)
                self.received.append(self.net.received)
        self.net.train()


def failing(trial: Trial, net: Pipe, rows: int, error: type[BaseException]) -> None:
    with trial.answer(net.stage, 0.75, partners(rows)):
        raise error


def why_not_at_the_layer(seen: Seen, hooks: list[int]) -> str | None:
    if not isinstance(seen.got, Tensor) or seen.got.shape != seen.values.shape:
        return None
    if same(seen.got, seen.values):
        return "forgotten-return" if hooks[0] > 0 else "no-hook" if hooks == [0, 0] else None
    return why_not_mixed(seen)


# --- 7.5

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
    "Fix it: a whole step",
    worlds=(
        (torch.float32, 2, ((0.75, 1), (0.25, 0)), PlannedError),
        (torch.float64, 2, ((0.375, 2), (0.875, 1)), PlannedInterrupt),
        (torch.float32, 1, ((0.625, 0), (0.0, 1)), PlannedError),
    ),
    verified="6 steps, at the input and at each layer: one pass, features and loss mixed with the given draws, "
    "gradients to both parts, and no hook left, even when the model raises",
)
def a_whole_step(trial: Trial, world: tuple[torch.dtype, int, Any, type[BaseException]]) -> Pairs:
    dtype, count, draws, error = world
    net = Net(3 * count).to(dtype)
    layers = [net.stage1, net.stage2][:count]
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    for number, (lam, place) in enumerate(draws, start=1):
        x, y = whole_numbers(number + count, ROWS, 2).to(dtype) - 3, torch.tensor([0, 1, 2, 0, 1]).roll(number)
        yield from one_step(trial, net, optimizer, (layers, x, y, lam, place), f"in step {number}")
    net.error = error
    step = partial(trial.answer, net, layers, optimizer, x, y, 0.75, partners(ROWS), max(place for _, place in draws))
    yield from after_an_error(trial, net, error, "the model", step)


def one_step(trial: Trial, net: Net, optimizer: Any, draw: tuple[Any, ...], when: str) -> Pairs:
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
