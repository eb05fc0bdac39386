"""The check of exercise 7.5: a whole training step, mixed at the input or at a layer of a set.

The network's stages are square and invertible, so what the learner's step mixed, where and how, can be read off the
values: stage k+1 got M times what stage k put out, and M tells λ and the partners.
"""

from __future__ import annotations

import copy
from collections import Counter
from contextlib import suppress
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.forward import misconception_named
from hooklab.course.exercises.guards import remove_new_hooks, snapshot_hooks
from hooklab.course.exercises.misconceptions import named_by
from hooklab.course.exercises.trial import NotYet, Trial, same, tensor_text

SIZE, RATE, SEEDS = 5, 0.25, 12
PLACES = ("the input", "stage 1", "stage 2")

# DRAWS more steps, of which only place, λ and partners are looked at. Of 396 mixtures (one permutation in 120 moves
# nobody), 132 ± 9.4 are at each of three places, 69 ± 2.3 % have a λ between ¼ and ¾, 50 ± 2.5 % one below ½. A right
# answer is outside of any of these limits less than once in 10,000 tries.
DRAWS = 400
RARE, OFTEN = 91, 174
MIDDLE, BELOW_HALF = (0.588, 0.787), (0.39, 0.61)
FEW_ORDERS = 30  # of the 119 permutations that move somebody, about 115 come; rolls and flips are fewer than ten


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
        self.passes, self.calls = 0, 0
        self.was_training = True
        self.raises = False
        self.register_forward_pre_hook(self._count)
        self.trace: list[Tensor] = []  # got and put out, in turns, from the model's input to the head's
        self.mix: tuple[int, _Mixing] | None = None  # where the check's own copy mixes

    def _count(self, *_: Any) -> None:
        self.calls += 1

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        self.was_training = self.was_training and self.training
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
@named_by({"list index out of range": "a place too many: n layers and the input are n + 1 places, from 0 to n"})
@misconception_named()
def a_whole_step(trial: Trial) -> str:
    steps: list[_Step] = []
    for seed in range(SEEDS):
        _two_steps(trial, seed, steps)
        _expect_steps_agree(steps[-2:])
    _check_generator(trial)  # from here on, a right answer's draws are the same in every run
    _check_exception(trial)
    _check_draws(trial)
    _check_one_layer(trial)
    if trial.faults:
        raise trial.faults[0]
    return (
        f"{len(steps)} steps: one place, one λ and the same partners for features and loss in each, and no hook left; "
        f"{DRAWS} more: all places equally likely, λ like Beta(2, 2)"
    )


def _two_steps(trial: Trial, seed: int, steps: list[_Step]) -> None:
    """Two steps of one model with one generator: the second shows what the first left behind. They go into `steps`."""
    net, generator = _Net(), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    for number in (1, 2):
        x = 3 * torch.eye(SIZE) + torch.rand(SIZE, SIZE, generator=torch.Generator().manual_seed(100 * number + seed))
        y = torch.tensor([0, 1, 2, 0, 1]).roll(seed + number)
        steps.append(_one_step(trial, net, optimizer, x, y, generator, steps))


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
    net.passes, net.calls = 0, 0
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
    if net.calls != 1:
        raise NotYet(
            "your step called `model.forward(x)`",
            expected="`model(x)`",
            likely="forward alone: the hooks that somebody put on the model do not run",
        )
    if not (net.was_training and all(module.training for module in net.modules())):
        raise NotYet(
            f"your step {'left a part of the model' if net.was_training else 'ran the model'} in evaluation mode",
            expected="the model stays in training mode, in which it came",
            likely="model.eval(): dropout and batch normalisation would no longer do what they do in training",
        )
    place, mixing = _read(net.trace, x)
    moved = [(old - new).detach() / RATE for old, new in zip(before.parameters(), net.parameters(), strict=True)]
    step = _Step(place, mixing, moved, before, x, y)
    _expect_update(step, net, earlier)
    _expect_loss(got, step)
    return step


def _read(trace: list[Tensor], x: Tensor) -> tuple[int, _Mixing]:
    """Find out from a network's notes where the features were mixed, with which λ and which partners."""
    names = [*PLACES, "stage 3, which is not in the set"]
    ends = [x, *trace[1::2]]
    mixtures = {}
    for place, (put_out, received) in enumerate(zip(ends, trace[0::2], strict=True)):
        if received.shape != put_out.shape:
            raise NotYet(f"after {names[place]}, the features have another shape", got=tuple(received.shape))
        if not bool(received.isfinite().all()):
            raise NotYet(f"after {names[place]}, the features hold infinite values or NaN", expected="a mixture")
        if not torch.equal(received, put_out) and not same(received, put_out):
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


def _gradients(
    step: _Step, cut: str = "", mix_targets: bool = True, made_of_logits: Any = None, **instead: Any
) -> list[Tensor]:
    """The gradients of a step as the check computes it, right or wrong in a known way."""
    net = copy.deepcopy(step.before)
    if step.place >= 0:
        net.mix = (step.place, step.mixing._replace(cut=cut))
    lam, indices = instead.get("lam", step.mixing.lam), instead.get("indices", step.mixing.indices)
    logits = net(step.x)
    if made_of_logits is not None:
        logits = made_of_logits(logits)
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
        likely=_explain_update(step, earlier),
    )


def _explain_update(step: _Step, earlier: list[_Step]) -> str | None:
    lam, indices, right = step.mixing.lam, step.mixing.indices, _gradients(step)
    swapped = "λ folded: max(λ, 1 - λ) " + ("in the loss only" if lam < 0.5 else "in the features only")
    if all(old.place < 0 for old in earlier):  # no step was right before, so it need not depend on λ's side of ½
        swapped = f"weights swapped in the loss: λ belongs to each sample's own target; or {swapped}"
    known = {
        "targets as they came: the loss must be mixed like the features": _gradients(step, mix_targets=False),
        swapped: _gradients(step, lam=1 - lam),
        "half and half in the loss: λ was not used": _gradients(step, lam=0.5),
        "one target only: the partner's; each sample's own share is missing": _gradients(step, lam=0.0),
        "a sum without weights in the loss: λ and 1 - λ are missing": [2 * one for one in _gradients(step, lam=0.5)],
        "summed over the batch: cross entropy takes the mean, unless told otherwise": [len(step.y) * g for g in right],
        "predictions mixed: the network has mixed already; leave the logits alone": _gradients(
            step, made_of_logits=step.mixing
        ),
        "softmax before cross entropy: it takes logits, and does that itself": _gradients(
            step, made_of_logits=lambda logits: logits.softmax(dim=1)
        ),
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
    if _fits_mixed_targets(step):
        return "other partners or another λ in the loss than in the features: draw both once, and use them twice"
    length = sum(float((one * g).sum()) for one, g in zip(step.moved, right, strict=True))
    length /= sum(float((g * g).sum()) for g in right)
    if length > 0 and _agree(step.moved, [length * g for g in right]):
        return f"{length:.3g} times the right gradient: it was clipped, or the loss was multiplied by a number"
    return None


def _fits_mixed_targets(step: _Step) -> bool:
    """Whether the head moved as by cross entropy with targets of at most two classes a row, whatever the shares.

    The gradient of the head's weight is (P - T)ᵀ·H / n, with H what the head got, which can be inverted: it tells T.
    """
    net = copy.deepcopy(step.before)
    if step.place >= 0:
        net.mix = (step.place, step.mixing)
    with torch.no_grad():
        probabilities = net(step.x).softmax(dim=1)
    head_weight = step.moved[-2]
    targets = probabilities - len(step.y) * (head_weight @ torch.linalg.inv(net.trace[-1])).T
    shares = bool((targets > -1e-2).all()) and bool(((targets.sum(dim=1) - 1).abs() < 1e-2).all())
    return shares and bool(((targets > 1e-2).sum(dim=1) <= 2).all())


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


def _check_draws(trial: Trial) -> None:
    """The distributions of place, partners and λ, in many steps that are looked at for nothing else."""
    mixed = [(place, mixing) for place, mixing in _draws(trial, DRAWS, layers=2) if place >= 0]
    orders = {tuple(mixing.indices.tolist()) for _, mixing in mixed}
    if 0 < len(orders) < FEW_ORDERS:
        raise NotYet(
            f"in {DRAWS} steps there were only {len(orders)} permutations",
            expected="a random permutation for each batch, any of the 120",
            got=", ".join(str(list(order)) for order in sorted(orders)[:4]),
            likely="a flip is always the same, and there are few rolls: draw with randperm, from the generator",
        )
    if len(mixed) < 0.9 * DRAWS:
        raise NotYet(
            f"in {DRAWS} steps the features were mixed {len(mixed)} times",
            expected="a mixture in every step, but for the rare permutation that moves nobody",
            likely="a step without mixing: the input and the layers are the only places",
        )
    _expect_all_places([place for place, _ in mixed])
    _expect_beta([mixing.lam for _, mixing in mixed])


def _draws(trial: Trial, count: int, layers: int) -> list[tuple[int, _Mixing]]:
    """Place and mixing of some steps, with the first `layers` of the two layers in the list.

    The model raises at the head: what is looked at has happened by then, and the rest of a step takes the most time.
    """
    net, generator = _Net(), torch.Generator().manual_seed(2)
    net.raises = True
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    x, y = 3 * torch.eye(SIZE), torch.tensor([0, 1, 2, 0, 1])
    traces = []

    def many_steps() -> None:
        for _ in range(count):
            with suppress(_Broken):
                trial.answer(net, [net.stage1, net.stage2][:layers], optimizer, x, y, generator)
            traces.append(net.trace)

    many_steps.__name__ = trial.name
    trial.run(many_steps)
    return [_read(trace, x) for trace in traces]


def _expect_all_places(places: list[int]) -> None:
    count = Counter(places)
    if all(RARE <= count[place] <= OFTEN for place in range(3)):
        return
    odd = max(range(3), key=lambda place: (not count[place], abs(count[place] - len(places) / 3)))
    likely = "probabilities: one draw among n + 1 places gives each the same, a coin for the input first does not"
    if not count[odd]:
        likely = "a place that is never drawn: off by one?" if odd else "the input belongs to the set too"
    raise NotYet(
        f"in {len(places)} steps, {PLACES[odd]} was chosen {count[odd]} times",
        expected=f"the input and each of the two layers about {len(places) // 3} times",
        got=", ".join(f"{name}: {count[place]}" for place, name in enumerate(PLACES)),
        likely=likely,
    )


def _expect_beta(lams: list[float]) -> None:
    if min(lams) >= 0.5 or max(lams) <= 0.5:
        raise NotYet(
            f"in {len(lams)} steps λ never was on the other side of ½",
            expected="λ ~ Beta(2, 2): half of the time below ½",
            got=f"from {min(lams):.3g} to {max(lams):.3g}",
            likely="folded: max(λ, 1 - λ) took the place of λ",
        )
    middle = sum(0.25 < lam < 0.75 for lam in lams) / len(lams)
    below = sum(lam < 0.5 for lam in lams) / len(lams)
    if not (MIDDLE[0] < middle < MIDDLE[1] and BELOW_HALF[0] < below < BELOW_HALF[1]):
        raise NotYet(
            f"in {len(lams)} steps λ does not look like Beta(2, 2)",
            expected="69 % of them between ¼ and ¾, half of them below ½",
            got=f"{100 * middle:.0f} % between ¼ and ¾, {100 * below:.0f} % below ½",
            likely="another distribution: take the middle one of three uniform numbers, as in exercise 7.4",
        )


def _check_one_layer(trial: Trial) -> None:
    """With one layer in the list there are two places."""
    try:
        found = _draws(trial, 24, layers=1)
    except NotYet as fault:
        if "list index" not in fault.missing:
            raise
        raise NotYet(
            "with one layer in the list, your step chose a place that is not there",
            expected="the input, or that layer",
            got=fault.missing.replace(" raised ", ": ", 1),
            likely="a fixed number of places: with n layers and the input there are n + 1",
        ) from fault
    if any(place == 2 for place, _ in found):
        raise NotYet(
            "the features were mixed at a layer that is not in the list",
            expected="the input, or one of `layers`, however many there are",
        )


def _check_generator(trial: Trial) -> None:
    """The same generator state gives the same step, whatever the global random state is."""
    runs = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        steps: list[_Step] = []
        _two_steps(trial, 3, steps)
        runs.append([(step.place, round(step.mixing.lam, 3)) for step in steps])
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
