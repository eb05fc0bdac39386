"""The check of exercise 7.3: a block in which one layer's output is mixed, by a hook that is gone afterwards."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.forward import (
    expect_clean_block,
    expect_manager,
    linear,
    misconception_named,
    run_with_hooks,
    users_own,
    whole_numbers,
)
from hooklab.course.exercises.trial import NotYet, Trial, apart, expect_tensor, same, tensor_text
from hooklab.course.lesson07.known_mixtures import TWICE, UNMIXED, Seen, explain_mixture, mixture, partners


class _Net(nn.Module):
    """stage → head. It notes what the stage put out before any hook, and what the head got."""

    def __init__(self, seed: int):
        super().__init__()
        self.stage, self.head = _Stage(seed), linear(2, 2, seed + 20)
        self.received: Any = None

    def forward(self, x: Tensor) -> Tensor:
        self.received = self.stage(x)
        if not isinstance(self.received, Tensor) or self.received.shape != x.shape:
            return x  # what a hook returned is looked at after the pass
        result: Tensor = self.head(self.received)
        return result


class _Stage(nn.Module):
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


@exercise("7.3", "A hook that mixes, and cleans up")
@misconception_named()
def a_hook_that_mixes(trial: Trial) -> str:
    seen: list[Seen] = []
    for seed, (lam, rows) in enumerate(((0.75, 5), (0.25, 3), (0.625, 3))):
        _check_mixing(trial, _Net(seed), whole_numbers(seed, rows, 2), lam, seen)
    _check_two_blocks(trial)
    _check_exception(trial)
    return "the layer's output was mixed by return, with gradients to both parts, and the hook was gone after the block"


def _check_mixing(trial: Trial, net: _Net, x: Tensor, lam: float, seen: list[Seen]) -> None:
    indices, before = partners(len(x)), net(x).detach()
    own = net.stage.register_forward_hook(users_own)
    with trial.watch(net, x):
        manager = expect_manager(trial.run(trial.answer, net.stage, lam, indices), "mixing")
        hooks: list[int] = []  # forward hooks and forward pre-hooks in the block, not counting the check's own
        patched: list[bool] = []

        def a_block() -> Any:
            with manager:
                hooks.extend([len(net.stage._forward_hooks) - 1, len(net.stage._forward_pre_hooks)])
                patched.append("forward" in vars(net.stage))
                net.stage.runs = 0
                return net(x)

        a_block.__name__ = "a block with mixing"
        trial.run(a_block)
        if any(patched) or "forward" in vars(net.stage):
            raise NotYet(
                "`forward` was replaced; the exercise wants a hook",
                expected="layer.register_forward_hook(…), which leaves the layer's own methods alone",
                got="forward in vars(layer)" + ("" if any(patched) else ", after the block"),
            )
        if net.stage.runs > 1:
            raise NotYet(
                f"in one pass, the layer ran {net.stage.runs} times",
                expected="once: batch normalisation would count the batch twice, and dropout would draw again",
                likely=TWICE,
            )
        _expect_mixed(net, lam, indices, seen, *hooks)
        _expect_gradients(net, x, lam, indices)
        after = run_with_hooks(trial, net, x)
    if own.id not in net.stage._forward_hooks:
        raise NotYet(
            "a hook that was there before your block is gone",
            expected="only your own hook is removed",
            likely="cleared: `_forward_hooks.clear()` removes everybody's; keep your handle and remove that",
        )
    if trial.faults:
        raise trial.faults[0]
    if not same(after, before):
        raise NotYet("after the block, the layer's output is still changed", expected="as it was without the block")
    _check_more_passes(trial, net, x, lam, indices)


def _check_more_passes(trial: Trial, net: _Net, x: Tensor, lam: float, indices: Tensor) -> None:
    """A second pass in one block, and one in evaluation mode: what is mixed is the block's matter."""
    received = {}

    def a_block() -> None:
        with trial.answer(net.stage, lam, indices):
            for time in ("first", "second", "third"):
                net.train(time != "third")
                net(x)
                received[time] = (net.received, mixture(net.stage.before_hooks, lam, indices))
        net.train()

    a_block.__name__ = "a block with three passes"
    with trial.watch(net, x):
        trial.run(a_block)
    for time, (got, wanted) in received.items():
        if not same(got, wanted):
            in_evaluation = time == "third"
            raise NotYet(
                f"in the block's {time} pass{', in evaluation mode' * in_evaluation}, the next layer did not get "
                "the mixture",
                expected="every pass in the block is mixed",
                got=tensor_text(got),
                likely=None if in_evaluation else "mixed once: the hook was gone after its first call",
            )


def _check_two_blocks(trial: Trial) -> None:
    """Two layers mixed at once, in float64: a block is its own, and the dtype the layer's."""
    net, other, x = _Net(6).double(), _Net(7).double(), whole_numbers(6, 3, 2).double()

    def two_blocks() -> None:
        with trial.answer(net.stage, 0.75, partners(3)), trial.answer(other.stage, 0.25, partners(3)):
            net(x)
            other(x)

    two_blocks.__name__ = "two blocks at once, in float64,"
    with trial.watch(net, other, x):
        trial.run(two_blocks)
    for one, lam, which in ((net, 0.75, "outer"), (other, 0.25, "inner")):
        wanted = mixture(one.stage.before_hooks, lam, partners(3))
        if not same(one.received, wanted):
            raise NotYet(
                f"of two blocks at once, the layer of the {which} one is not mixed as it should be",
                **apart(wanted, one.received),
            )
    if trial.faults:
        raise trial.faults[0]


def _expect_mixed(net: _Net, lam: float, indices: Tensor, seen: list[Seen], hooks: int, pre_hooks: int) -> None:
    values = net.stage.before_hooks
    got = expect_tensor(net.received, "what your hook returned", values.shape)
    wanted = mixture(values, lam, indices)
    if not torch.equal(net.stage.put_out.detach(), values):
        raise NotYet(
            "your hook wrote into the layer's own output",
            expected="a new tensor, returned; the layer's output stays as it was, because backward() may need it",
            likely="in-place change: `out *= λ`, `out[...] = …` and `out.copy_` write, `λ * out` makes a new tensor",
        )
    seen.append(Seen(got, values, lam, indices))
    if same(got, wanted):
        return
    likely = explain_mixture(*seen)
    if pre_hooks and hooks <= 0:
        likely = "forward pre-hook: it mixes what goes in; what comes out is a forward hook's"
    elif likely == UNMIXED and hooks <= 0:
        likely = "no hook on the layer during the block: register it before the yield"
    elif likely == UNMIXED:
        likely = "forgotten return: a name inside the hook was given to the mixture, and the model never heard of it"
    raise NotYet(
        f"with λ = {lam:g} and indices = {indices.tolist()}, the next layer did not get the mixture",
        **apart(wanted, got),
        likely=likely,
    )


def _expect_gradients(net: _Net, x: Tensor, lam: float, indices: Tensor) -> None:
    """Compare the gradient of the stage's weight with that of the mixture, and of its cut-off forms."""
    weight, output = net.stage.linear.weight, net.stage.put_out
    weights = torch.arange(1.0, 1 + output.numel()).reshape(output.shape)
    forms = {
        "": mixture(output, lam, indices),
        "partner cut off: `detach()` stops the gradient to each sample's partner": lam * output
        + (1 - lam) * output.detach()[indices],
        "self cut off: the gradient reaches each sample's partner only": lam * output.detach()
        + (1 - lam) * output[indices],
    }
    grads = {words: _gradient((form * weights).sum(), weight) for words, form in forms.items()}
    mine = _gradient((net.received * weights).sum(), weight)
    if mine is None:
        raise NotYet(
            "the values are mixed, and no gradient flows back into the layer",
            expected="gradients reach both parts of each mixture",
            got="a mixture without a graph",
            likely="cut off: `detach()`, `.data` and no_grad() leave the graph behind; mix `out` itself",
        )
    right = grads[""]
    assert right is not None
    if not same(mine, right):
        raise NotYet(
            "the values are mixed, the gradients are not",
            expected=f"weight.grad of the layer = {tensor_text(right)}",
            got=tensor_text(mine),
            likely=next((words for words, grad in grads.items() if grad is not None and same(mine, grad)), None),
        )


def _gradient(loss: Tensor, weight: Tensor) -> Tensor | None:
    if not loss.requires_grad:
        return None
    (grad,) = torch.autograd.grad(loss, weight, retain_graph=True, allow_unused=True)
    return grad


def _check_exception(trial: Trial) -> None:
    net = _Net(5)

    def block(error: type[BaseException]) -> None:
        with trial.answer(net.stage, 0.75, partners(3)):
            raise error

    expect_clean_block(trial, net, block)
