"""The check of exercise 7.5: a whole training step, mixed at the input or at a layer of a set.

The network's stages are square and invertible, so what the learner's step mixed, where and how, can be read off the
values: stage k+1 got M times what stage k put out, and M tells λ and the partners.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hooklab.checks.exercise import exercise
from hooklab.checks.forward import misconception_named
from hooklab.checks.guards import remove_new_hooks, snapshot_hooks
from hooklab.checks.trial import NotYet, Trial, same, tensor_text

SIZE, RATE, SEEDS = 5, 0.25, 24
PLACES = ("the input", "stage 1", "stage 2")
# With 48 steps, three places: fewer than 4 at one of them happens once in 300,000 tries.
AT_LEAST = 4


class _Broken(Exception):
    """Raised by the check's network."""


class _Net(nn.Module):
    """Three stages, of which the first two may be mixed, and a linear head. It notes what each got and put out."""

    def __init__(self) -> None:
        super().__init__()
        self.stage1, self.stage2, self.stage3 = _Stage(1), _Stage(2), _Stage(3)
        self.head = nn.Linear(SIZE, 3)
        generator = torch.Generator().manual_seed(4)
        with torch.no_grad():
            self.head.weight.copy_(torch.rand(3, SIZE, generator=generator) - 0.5)
            self.head.bias.zero_()
        self.passes = 0
        self.raises = False
        self.trace: list[Tensor] = []  # got and put out, in turns, from the model's input to the head's
        self.mix: tuple[int, _Mixing] | None = None  # where the check's own copy mixes

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        self.trace = []
        if self.mix is not None and self.mix[0] == 0:
            x = self.mix[1](x)
        for place, stage in enumerate((self.stage1, self.stage2, self.stage3), start=1):
            self.trace.append(x.detach())
            x = stage(x)
            self.trace.append(stage.put_out)
            if self.mix is not None and self.mix[0] == place:
                x = self.mix[1](x)
        self.trace.append(x.detach())
        if self.raises:
            raise _Broken
        logits: Tensor = self.head(x)
        return logits


class _Stage(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        noise = torch.rand(SIZE, SIZE, generator=torch.Generator().manual_seed(seed))
        self.weight = nn.Parameter(torch.eye(SIZE) + 0.2 * noise)
        self.put_out = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        out = F.leaky_relu(x @ self.weight - 0.1, 0.5)
        self.put_out = out.detach().clone()
        return out


class _Mixing(NamedTuple):
    """λ and partners; called with a stage's output it gives the mixture. `cut` stops the gradient to one part."""

    lam: float
    indices: Tensor
    cut: str = ""

    def __call__(self, out: Tensor) -> Tensor:
        own = out.detach() if self.cut in ("self", "both") else out
        partner = out.detach() if self.cut in ("partner", "both") else out
        return self.lam * own + (1 - self.lam) * partner[self.indices]


class _Step(NamedTuple):
    """What one step of the learner's did: where it mixed (-1: nowhere) and how, and by how much each weight moved."""

    place: int
    mixing: _Mixing
    moved: list[Tensor]
    before: _Net
    x: Tensor
    y: Tensor


@exercise("7.5", "A whole step")
@misconception_named()
def a_whole_step(trial: Trial) -> str:
    steps: list[_Step] = []
    for seed in range(SEEDS):
        steps += _two_steps(trial, seed)
        _expect_steps_agree(steps[-2:])
    _check_choices(steps)
    _check_generator(trial)
    _check_exception(trial)
    if trial.faults:
        raise trial.faults[0]
    return f"{len(steps)} steps: one place, one λ and the same partners for features and loss in each, and no hook left"


def _two_steps(trial: Trial, seed: int) -> list[_Step]:
    """Two steps of one model with one generator: the second shows what the first left behind."""
    net, generator = _Net(), torch.Generator().manual_seed(seed)
    optimizer, steps = torch.optim.SGD(net.parameters(), lr=RATE), list[_Step]()
    for number in (1, 2):
        x = 3 * torch.eye(SIZE) + torch.rand(SIZE, SIZE, generator=torch.Generator().manual_seed(100 * number + seed))
        y = torch.tensor([0, 1, 2, 0, 1]).roll(seed + number)
        steps.append(_one_step(trial, net, optimizer, x, y, generator, steps))
    return steps


def _one_step(
    trial: Trial,
    net: _Net,
    optimizer: torch.optim.Optimizer,
    x: Tensor,
    y: Tensor,
    generator: torch.Generator,
    earlier: list[_Step],
) -> _Step:
    given, before = (x.clone(), y.clone()), copy.deepcopy(net)
    net.passes = 0
    layers = [net.stage1, net.stage2]
    got = trial.call(net, layers, optimizer, x, y, generator, may_change=True)
    if trial.faults:
        raise trial.faults[0]
    if not (torch.equal(x, given[0]) and torch.equal(y, given[1])):
        raise NotYet(
            "your step changed x or y in place",
            expected="the batch stays as it was: somebody else may still use it",
            likely="in-place change: `x *= λ` writes into x, `λ * x` makes a new tensor",
        )
    if net.passes != 1:
        likely = "forward twice: the partners are rows of the same batch, `out[indices]`; one pass has them all"
        raise NotYet(
            f"the model ran {net.passes} times in one step",
            expected="one pass",
            likely=likely if net.passes else "call `model(...)`",
        )
    place, mixing = _read(net, x)
    moved = [(old - new).detach() / RATE for old, new in zip(before.parameters(), net.parameters(), strict=True)]
    step = _Step(place, mixing, moved, before, x, y)
    _expect_update(step, net, earlier)
    _expect_loss(got, step)
    return step


def _read(net: _Net, x: Tensor) -> tuple[int, _Mixing]:
    """Find out from the network's notes where the features were mixed, with which λ and which partners."""
    names = [*PLACES, "stage 3, which is not in the set"]
    ends = [x, *net.trace[1::2]]
    mixtures = {}
    for place, (put_out, received) in enumerate(zip(ends, net.trace[0::2], strict=True)):
        if received.shape != put_out.shape:
            raise NotYet(f"after {names[place]}, the features have another shape", got=tuple(received.shape))
        if not bool(received.isfinite().all()):
            raise NotYet(f"after {names[place]}, the features hold infinite values or NaN", expected="a mixture")
        if not same(received, put_out):
            mixtures[place] = (received.double() @ torch.linalg.inv(put_out.double())).float()
    if not mixtures:
        return -1, _Mixing(1.0, torch.arange(SIZE))
    if len(mixtures) > 1:
        raise NotYet(
            f"one step mixed at {len(mixtures)} places: {', '.join(names[place] for place in mixtures)}",
            expected="one place, chosen anew for each batch",
            likely="every layer got a hook: choose one of the input and the layers",
        )
    ((place, matrix),) = mixtures.items()
    if place == 3:
        raise NotYet(
            "the features were mixed at a layer that is not in the list", expected="the input, or one of `layers`"
        )
    return place, _decoded(matrix, names[place])


def _decoded(matrix: Tensor, where: str) -> _Mixing:
    """λ and the partners from a matrix that should be λ·I + (1-λ)·P."""
    shown = {"expected": "λ times each sample, plus 1 - λ times its partner"}
    if not torch.allclose(matrix.sum(dim=1), torch.ones(SIZE), atol=1e-3):
        sums = tensor_text(matrix.sum(dim=1), 2)
        raise NotYet(f"at {where}, the weights of a mixture do not add up to 1", **shown, got=f"sums {sums}")
    others = matrix - torch.diag(matrix.diagonal())
    weight, indices = others.max(dim=1)
    alone = weight < 1e-3  # a sample that is its own partner
    indices = torch.where(alone, torch.arange(SIZE), indices)
    shares = weight[~alone]
    if not len(shares):  # λ so close to 1 that nothing was mixed
        return _Mixing(1.0, torch.arange(SIZE))
    if float(shares.max() - shares.min()) > 1e-3:
        raise NotYet(
            f"at {where}, not every sample was mixed with the same λ",
            **shown,
            got=f"shares of the partners {tensor_text(shares, 3)}",
            likely="a λ for each sample, or partners drawn with replacement: here one λ and one permutation a batch",
        )
    mixing = _Mixing(1 - float(shares.mean()), indices)
    if sorted(indices.tolist()) != list(range(SIZE)):
        raise NotYet(
            f"at {where}, the partners are not a permutation",
            expected=f"each of 0 … {SIZE - 1} once",
            got=str(indices.tolist()),
            likely="randint draws with replacement: some samples come twice, others never; you want randperm",
        )
    if not torch.allclose(matrix, mixing(torch.eye(SIZE)), atol=1e-3):
        raise NotYet(f"at {where}, the features are no mixture of each sample and one partner", **shown)
    return mixing


def _gradients(step: _Step, cut: str = "", mix_targets: bool = True, **instead: Any) -> list[Tensor]:
    """The gradients of a step as the check computes it, right or wrong in a known way."""
    net = copy.deepcopy(step.before)
    if step.place >= 0:
        net.mix = (step.place, step.mixing._replace(cut=cut))
    lam, indices = instead.get("lam", step.mixing.lam), instead.get("indices", step.mixing.indices)
    logits = net(step.x)
    loss = F.cross_entropy(logits, step.y)
    if mix_targets:
        loss = lam * loss + (1 - lam) * F.cross_entropy(logits, step.y[indices])
    found = torch.autograd.grad(loss, list(net.parameters()), allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(net.parameters(), found, strict=True)]


def _expect_update(step: _Step, net: _Net, earlier: list[_Step]) -> None:
    if all(not bool(moved.any()) for moved in step.moved):
        likely = "optimizer.step() did not run"
        if all(p.grad is None or not p.grad.any() for p in net.parameters()):
            likely = "no gradients to step along: backward() did not run, or zero_grad() came between it and step()"
        raise NotYet("the weights are as they were before the step", expected="the optimizer moves them", likely=likely)
    right = _gradients(step)
    if _agree(step.moved, right):
        return
    if earlier and _agree(step.moved, [one + old for one, old in zip(right, earlier[-1].moved, strict=True)]):
        raise NotYet(
            "the second step used the gradients of the first one too",
            expected="each step starts without gradients",
            likely="gradients add up: call optimizer.zero_grad() in every step",
        )
    where = "nowhere" if step.place < 0 else f"at {PLACES[step.place]}, with λ = {step.mixing.lam:.3g}"
    raise NotYet(
        f"the weights moved, but not by the gradient of the mixed loss (features were mixed {where})",
        expected="λ·L(y) + (1-λ)·L(y[indices]), with the λ and the indices that mixed the features",
        got="another gradient",
        likely=_explain_update(step),
    )


def _explain_update(step: _Step) -> str | None:
    lam, indices = step.mixing.lam, step.mixing.indices
    known = {
        "targets as they came: the loss must be mixed like the features": _gradients(step, mix_targets=False),
        "weights swapped in the loss: λ belongs to each sample's own target": _gradients(step, lam=1 - lam),
        "half and half in the loss: λ was not used": _gradients(step, lam=0.5),
        "partners the other way round in the loss: `y[indices]`, like the features": _gradients(
            step, indices=indices.argsort()
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
    if step.place < 0:
        return (
            "forgotten return in the hook, or a hook that never ran: the targets were mixed and the features were not"
        )
    if _first_layers_agree(step):
        return "other partners or another λ in the loss than in the features: draw both once, and use them twice"
    return None


def _first_layers_agree(step: _Step) -> bool:
    """Whether the step fits a mixed loss with some other λ or partners: the head's bias moved by rows that add up."""
    return bool(step.moved[-1].sum().abs() < 1e-4)


def _agree(mine: list[Tensor], right: list[Tensor]) -> bool:
    return all(same(one, other, 2e-4) for one, other in zip(mine, right, strict=True))


def _expect_steps_agree(steps: list[_Step]) -> None:
    first, second = steps
    if first.place < 0 or second.place < 0:
        return
    if abs(first.mixing.lam - second.mixing.lam) < 1e-5:
        raise NotYet(
            "two steps in a row used the same λ",
            expected="a new λ for each batch",
            got=f"λ = {first.mixing.lam:.4g} twice",
            likely="a constant, or a generator that was seeded again: go on from where it is",
        )


def _expect_loss(got: Any, step: _Step) -> None:
    net = copy.deepcopy(step.before)
    if step.place >= 0:
        net.mix = (step.place, step.mixing)
    with torch.no_grad():
        logits, lam = net(step.x), step.mixing.lam
        wanted = lam * F.cross_entropy(logits, step.y) + (1 - lam) * F.cross_entropy(
            logits, step.y[step.mixing.indices]
        )
    if got is None:
        raise NotYet(
            "the step is right, and returned None", expected=f"the loss, {wanted:.4g}", likely="forgotten return"
        )
    value = got.item() if isinstance(got, Tensor) and got.numel() == 1 else got
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value - float(wanted)) > 1e-3:
        raise NotYet(
            "the step is right, what it returned is not the loss", expected=f"{wanted:.4g}", got=tensor_text(got)
        )


def _check_choices(steps: list[_Step]) -> None:
    mixed = [step for step in steps if step.place >= 0]
    if len(mixed) < len(steps) // 2:
        raise NotYet(
            f"in {len(steps)} steps the features were mixed {len(mixed)} times",
            expected="a mixture in every step",
            likely="forgotten return in the hook, or a hook on nothing",
        )
    count = Counter(step.place for step in mixed)
    for place, name in enumerate(PLACES):
        if count[place] < AT_LEAST:
            raise NotYet(
                f"in {len(steps)} steps, {name} was chosen {count[place]} times",
                expected=f"the input and each of the two layers about {len(steps) // 3} times",
                got=", ".join(f"{one}: {count[number]}" for number, one in enumerate(PLACES)),
                likely="the input belongs to the set too" if place == 0 else "a place that is never drawn: off by one?",
            )
    lams = [step.mixing.lam for step in mixed]
    if min(lams) >= 0.5 or max(lams) <= 0.5:
        raise NotYet(
            f"in {len(steps)} steps λ never was on the other side of ½",
            expected="λ ~ Beta(2, 2): half of the time below ½",
            got=f"from {min(lams):.3g} to {max(lams):.3g}",
            likely="folded: max(λ, 1 - λ) took the place of λ",
        )


def _check_generator(trial: Trial) -> None:
    """The same generator state gives the same step, whatever the global random state is."""
    runs = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        runs.append([(step.place, round(step.mixing.lam, 3)) for step in _two_steps(trial, 3)])
    if runs[0] != runs[1]:
        raise NotYet(
            "with the generator in the same state, two runs mixed differently",
            expected="place, λ and indices all come from the generator that you are given",
            got=f"{_words(runs[0])}; then {_words(runs[1])}",
            likely="global dice: pass `generator=generator` to every torch function that draws",
        )


def _words(run: list[tuple[int, float]]) -> str:
    return ", ".join(f"{PLACES[place] if place >= 0 else 'nowhere'} (λ = {lam:g})" for place, lam in run)


def _check_exception(trial: Trial) -> None:
    """When the model raises, the hook goes all the same. Enough seeds that a layer is among the chosen places."""
    for seed in range(6):
        net = _Net()
        net.raises = True
        optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
        hooks = snapshot_hooks([net])
        batch = torch.eye(SIZE), torch.zeros(SIZE, dtype=torch.int64)
        swallowed = True
        try:
            trial.answer(net, [net.stage1, net.stage2], optimizer, *batch, torch.Generator().manual_seed(seed))
        except _Broken:
            swallowed = False
        left = remove_new_hooks([net], hooks)
        if left:
            raise NotYet(
                "when the model raises in the middle of a step, your hook stays",
                expected="no hook left, however the pass ends",
                got=left[0],
                likely="remove() after the pass is skipped when the pass raises: use `with`, or finally",
            )
        if swallowed:
            raise NotYet("an exception of the model was swallowed", expected="it comes out of your step")
