"""The check of exercise 7.5: a whole training step, with draws that are given, mixed at the input or at a layer.

What was drawn is known, so the step has one right result: what each stage of the network got, by how much each weight
moved, and the loss. The draws themselves are the matter of exercise 7.4.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import error_comes_out, hidden_error
from hooklab.course.exercises.faults import PlannedError
from hooklab.course.exercises.forward import misconception_named
from hooklab.course.exercises.guards import remove_new_hooks, snapshot_hooks
from hooklab.course.exercises.misconceptions import named_by
from hooklab.course.exercises.trial import NotYet, Trial, same, tensor_text
from hooklab.course.lesson07.known_mixtures import TWICE, Seen, explain_mixture, mixture, partners

SIZE, RATE = 5, 0.25
PLACES = ("the input", "layers[0]", "layers[1]")


class _Draw(NamedTuple):
    lam: float
    place: int


# Pairs of steps of one model, with two layers in the list and with one. λ lies on both sides of ½, at each place.
STEPS = {
    2: [(_Draw(0.75, 1), _Draw(0.25, 0)), (_Draw(0.375, 2), _Draw(0.875, 1)), (_Draw(0.625, 0), _Draw(0.75, 2))],
    1: [(_Draw(0.25, 1), _Draw(0.625, 0))],
}


class _Stage(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        noise = torch.rand(SIZE, SIZE, generator=torch.Generator().manual_seed(seed))
        self.weight = nn.Parameter(torch.eye(SIZE) + 0.2 * noise)
        self.runs, self.put_out = 0, torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        out = F.leaky_relu(x @ self.weight - 0.1, 0.5)
        self.runs, self.put_out = self.runs + 1, out.detach().clone()
        return out


class _Net(nn.Module):
    """Two stages and a linear head. It notes what each of the three got."""

    def __init__(self) -> None:
        super().__init__()
        self.stage1, self.stage2 = _Stage(1), _Stage(2)
        self.head = nn.Linear(SIZE, 3)
        generator = torch.Generator().manual_seed(4)
        with torch.no_grad():
            self.head.weight.copy_(torch.rand(3, SIZE, generator=generator) - 0.5)
            self.head.bias.zero_()
        self.calls, self.raises, self.was_training = 0, False, True
        self.passes: list[Tensor] = []  # what each one began with
        self.received: list[Tensor] = []
        self.register_forward_pre_hook(self._count)

    @property
    def stages(self) -> list[_Stage]:
        return [self.stage1, self.stage2]

    def _count(self, *_: Any) -> None:
        self.calls += 1

    def forward(self, x: Tensor) -> Tensor:
        self.passes.append(x.clone())
        self.was_training = self.was_training and self.training
        self.received = []
        for stage in self.stages:
            self.received.append(x.detach())
            x = stage(x)
        self.received.append(x.detach())
        if self.raises:
            raise PlannedError
        logits: Tensor = self.head(x)
        return logits


class _Step(NamedTuple):
    """One step of the learner's: the batch, the draws, the network before it, and by how much each weight moved."""

    x: Tensor
    y: Tensor
    draw: _Draw
    indices: Tensor
    before: _Net
    moved: list[Tensor]


@exercise("7.5", "A whole step")
@named_by({"list index out of range": "a place too far: place 0 is the input, and place k is layers[k - 1]"})
@misconception_named()
def a_whole_step(trial: Trial) -> str:
    seen: list[Seen] = []
    for layers, pairs in STEPS.items():
        for number, pair in enumerate(pairs):
            net = _Net()
            optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
            earlier: _Step | None = None
            for draw in pair:
                earlier = _one_step(trial, net, optimizer, layers, draw, number, earlier, seen)
    _check_exception(trial)
    return (
        "8 steps, at the input and at each layer: one pass, features and loss mixed with the given draws, gradients to "
        "both parts, and no hook left, also when the model raises"
    )


def _one_step(
    trial: Trial,
    net: _Net,
    optimizer: torch.optim.Optimizer,
    layers: int,
    draw: _Draw,
    seed: int,
    earlier: _Step | None,
    seen: list[Seen],
) -> _Step:
    x = 3 * torch.eye(SIZE) + torch.rand(SIZE, SIZE, generator=torch.Generator().manual_seed(10 * seed + draw.place))
    y, indices = torch.tensor([0, 1, 2, 0, 1]).roll(seed), partners(SIZE)
    given, before, steps = (x.clone(), y.clone()), copy.deepcopy(net), []
    net.passes, net.calls, net.was_training = [], 0, True
    for stage in net.stages:
        stage.runs = 0
    given_to_it = (net, net.stages[:layers], optimizer, x, y, draw.lam, indices.clone(), draw.place)
    with optimizer.register_step_post_hook(lambda *_: steps.append(1)):
        got = trial.call(*given_to_it, may_change=True)
    if trial.faults:
        raise trial.faults[0]
    if not (torch.equal(x, given[0]) and torch.equal(y, given[1])):
        raise NotYet(
            "your step changed x or y in place",
            expected="the batch stays as it was: somebody else may still use it",
            likely="in-place change: `x *= λ` writes into x, `λ * x` makes a new tensor",
        )
    _expect_one_pass(net, x[indices])
    _expect_features(net, x, draw, indices, seen)
    moved = [(old - new).detach() / RATE for old, new in zip(before.parameters(), net.parameters(), strict=True)]
    if not steps and any(bool(one.any()) for one in moved):
        raise NotYet(
            "the weights moved, and not by the optimizer that your function was given",
            expected="optimizer.step(): it may remember earlier steps",
        )
    if len(steps) > 1:
        raise NotYet(f"optimizer.step() ran {len(steps)} times", expected="one step for one batch")
    step = _Step(x, y, draw, indices, before, moved)
    _expect_update(step, net, earlier)
    _expect_loss(got, step)
    return step


def _expect_one_pass(net: _Net, partners: Tensor) -> None:
    if len(net.passes) != 1:
        likely = None if net.passes else "call `model(...)`"
        if any(same(batch, partners) for batch in net.passes):
            likely = "forward twice: the partners are rows of the same batch, `out[indices]`; one pass has them all"
        raise NotYet(f"the model ran {len(net.passes)} times in one step", expected="one pass", likely=likely)
    if net.calls != 1:
        raise NotYet(
            "your step called `model.forward(x)`",
            expected="`model(x)`",
            likely="forward alone: the hooks that somebody put on the model do not run",
        )
    if any(stage.runs != 1 for stage in net.stages):
        raise NotYet("a layer ran twice in one pass", expected="each layer once", likely=TWICE)
    if not net.was_training:
        raise NotYet(
            "your step ran the model in evaluation mode",
            expected="the model stays in training mode, in which it came",
            likely="model.eval(): dropout and batch normalisation would no longer do what they do in training",
        )


def _expect_features(net: _Net, x: Tensor, draw: _Draw, indices: Tensor, seen: list[Seen]) -> None:
    put_out = [x, *(stage.put_out for stage in net.stages)]
    mixed_at = [place for place in range(3) if not same(net.received[place], put_out[place])]
    if len(mixed_at) > 1:
        raise NotYet(
            f"one step mixed at {len(mixed_at)} places: {', '.join(PLACES[place] for place in mixed_at)}",
            expected=f"at place {draw.place} only, {PLACES[draw.place]}",
            likely="every layer got a hook: `place` names one"
            if mixed_at == [0, 1, 2] or (draw.place and mixed_at == [1, 2])
            else None,
        )
    if mixed_at and mixed_at != [draw.place]:
        raise NotYet(
            f"with place = {draw.place}, the features were mixed at {PLACES[mixed_at[0]]}",
            expected=f"at {PLACES[draw.place]}",
            likely="place 0 is the input, and place k is layers[k - 1]",
        )
    values, got = put_out[draw.place], net.received[draw.place]
    wanted = mixture(values, draw.lam, indices)
    seen.append(Seen(got, values, draw.lam, indices))
    if not same(got, wanted):
        likely = explain_mixture(*seen)
        if same(got, values):
            likely = "forgotten return in the hook, or a hook that never ran" if draw.place else "x was not mixed"
        raise NotYet(
            f"at {PLACES[draw.place]}, with λ = {draw.lam:g}, the features are not the right mixture",
            expected=tensor_text(wanted[0], 3),
            got=tensor_text(got[0], 3),
            likely=likely,
        )


def _by_the_check(step: _Step, cut: str = "") -> tuple[_Net, Tensor]:
    """The network before the step, and its logits when mixed as it should be; `cut` stops the gradient to one part."""
    net = copy.deepcopy(step.before)

    def mix(out: Tensor) -> Tensor:
        own = out.detach() if cut in ("self", "both") else out
        partner = out.detach() if cut in ("partner", "both") else out
        return step.draw.lam * own + (1 - step.draw.lam) * partner[step.indices]

    if step.draw.place == 0:
        return net, net(mix(step.x))
    with net.stages[step.draw.place - 1].register_forward_hook(lambda module, args, out: mix(out)):
        return net, net(step.x)


def _gradients(
    step: _Step, cut: str = "", made_of_logits: Any = None, weights: Any = None, **other: Any
) -> list[Tensor]:
    """The gradients of a step, right or wrong in a known way; `weights` are those of own and partner's loss."""
    net, logits = _by_the_check(step, cut)
    if made_of_logits is not None:
        logits = made_of_logits(logits)
    own, partner = weights or (step.draw.lam, 1 - step.draw.lam)
    indices = other.get("indices", step.indices)
    loss = own * F.cross_entropy(logits, step.y) + partner * F.cross_entropy(logits, step.y[indices])
    found = torch.autograd.grad(loss, list(net.parameters()), allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(net.parameters(), found, strict=True)]


def _expect_update(step: _Step, net: _Net, earlier: _Step | None) -> None:
    if all(not bool(moved.any()) for moved in step.moved):
        likely = "optimizer.step() did not run"
        if all(p.grad is None or not p.grad.any() for p in net.parameters()):
            likely = "no gradients to step along: backward() did not run, or zero_grad() came between it and step()"
        raise NotYet("the weights are as they were before the step", expected="the optimizer moves them", likely=likely)
    right = _gradients(step)
    if _agree(step.moved, right):
        return
    if earlier and _agree(step.moved, [one + old for one, old in zip(right, earlier.moved, strict=True)]):
        raise NotYet(
            "the second step used the gradients of the first one too",
            expected="each step starts without gradients",
            likely="gradients add up: call optimizer.zero_grad() in every step",
        )
    raise NotYet(
        f"the features were mixed at {PLACES[step.draw.place]} with λ = {step.draw.lam:g}, and the weights moved, but "
        "not by the gradient of the mixed loss",
        expected="λ·L(y) + (1-λ)·L(y[indices])",
        got="another gradient",
        likely=_explain_update(step, right),
    )


def _explain_update(step: _Step, right: list[Tensor]) -> str | None:
    lam = step.draw.lam
    known = {
        "each output beside its own target alone: the loss is mixed like the features, by targets in another order": (
            _gradients(step, weights=(1, 0))
        ),
        "weights swapped in the loss: λ belongs to each sample's own target"
        if lam > 0.5
        else "λ folded in the loss: max(λ, 1 - λ) took the place of λ": _gradients(step, weights=(1 - lam, lam)),
        "half and half in the loss: λ was not used": _gradients(step, weights=(0.5, 0.5)),
        "one target only: the partner's; each sample's own share is missing": _gradients(step, weights=(0, 1)),
        "a sum without weights in the loss: λ and 1 - λ are missing": _gradients(step, weights=(1, 1)),
        "summed over the batch: cross entropy takes the mean, unless told otherwise": [SIZE * g for g in right],
        "predictions mixed: the network has mixed already; leave the logits alone": _gradients(
            step, made_of_logits=lambda logits: mixture(logits, lam, step.indices)
        ),
        "softmax before cross entropy: it takes logits, and does that itself": _gradients(
            step, made_of_logits=lambda logits: logits.softmax(dim=1)
        ),
        "partners the other way round in the loss: `y[indices]`, like the features": _gradients(
            step, indices=step.indices.argsort()
        ),
        "partner cut off: `detach()` stops the gradient to each sample's partner": _gradients(step, cut="partner"),
        "self cut off: the gradient reaches the partners only": _gradients(step, cut="self"),
        "cut off: `detach()`, `.data` or no_grad() before the mixture; no layer before it learns": _gradients(
            step, cut="both"
        ),
    }
    for words, gradients in known.items():
        if _agree(step.moved, gradients):
            return words
    if _agree(step.moved[-2:], right[-2:]):
        return "the last layer's gradient is right, and others are not: mix `out` itself, with its graph, not in place"
    if _fits_mixed_targets(step):
        return "other partners or another λ in the loss than in the features: use what you are given, twice"
    length = sum(float((one * g).sum()) for one, g in zip(step.moved, right, strict=True))
    length /= sum(float((g * g).sum()) for g in right)
    if length > 0 and _agree(step.moved, [length * g for g in right]):
        return (
            f"{length:.3g} times the right step: the gradient was clipped, the loss multiplied by a number, backward() "
            "called again, or the learning rate is another one"
        )
    return None


def _fits_mixed_targets(step: _Step) -> bool:
    """Whether the head moved as by cross entropy with targets of at most two classes a row, whatever the shares.

    The gradient of the head's weight is (P - T)ᵀ·H / n, with H what the head got, which can be inverted: it tells T.
    """
    with torch.no_grad():
        net, logits = _by_the_check(step)
    targets = logits.softmax(dim=1) - SIZE * (step.moved[-2] @ torch.linalg.inv(net.received[-1])).T
    shares = bool((targets > -1e-2).all()) and bool(((targets.sum(dim=1) - 1).abs() < 1e-2).all())
    return shares and bool(((targets > 1e-2).sum(dim=1) <= 2).all())


def _agree(mine: list[Tensor], right: list[Tensor]) -> bool:
    return all(same(one, other, 2e-4) for one, other in zip(mine, right, strict=True))


def _expect_loss(got: Any, step: _Step) -> None:
    with torch.no_grad():
        _, logits = _by_the_check(step)
        own, partner = F.cross_entropy(logits, step.y), F.cross_entropy(logits, step.y[step.indices])
        wanted = float(step.draw.lam * own + (1 - step.draw.lam) * partner)
    if got is None:
        raise NotYet(
            "the step is right, and returned None", expected=f"the loss, {wanted:.4g}", likely="forgotten return"
        )
    value = got.item() if isinstance(got, Tensor) and got.numel() == 1 else got
    # written so that NaN, which is neither near nor far, is not near
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value - wanted) < 1e-3:
        raise NotYet(
            "the step is right, what it returned is not the loss", expected=f"{wanted:.4g}", got=tensor_text(got)
        )


def _check_exception(trial: Trial) -> None:
    """When the model raises, the hook goes all the same."""
    for place in range(3):
        net = _Net()
        net.raises = True
        optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
        hooks, batch = snapshot_hooks([net]), (torch.eye(SIZE), torch.zeros(SIZE, dtype=torch.int64))
        step = partial(trial.answer, net, net.stages, optimizer, *batch, 0.75, partners(SIZE), place)
        came_out = error_comes_out(trial, step)
        if left := remove_new_hooks([net], hooks):
            raise NotYet(
                "when the model raises in the middle of a step, your hook stays",
                expected="no hook left, however the pass ends",
                got=left[0],
                likely="remove() after the pass is skipped when the pass raises: use `with`, or finally",
            )
        if not came_out:
            raise hidden_error("the model")
