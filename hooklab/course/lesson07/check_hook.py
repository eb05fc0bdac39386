"""Exercise 7.3: a block in which one layer's output is mixed, by a hook that is gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.faults import PlannedError, PlannedInterrupt
from hooklab.course.exercises.guards import somebody_elses
from hooklab.course.exercises.records import Claim
from hooklab.course.exercises.scenes import expect_manager, linear, whole_numbers
from hooklab.course.exercises.trial import Trial
from hooklab.course.exercises.values import same
from hooklab.course.lesson07.shared import Seen, after_an_error, partners, why_not_mixed


class _Net(nn.Module):
    """stage → head. It notes the stage's output before any hook, and the head's input."""

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
def a_hook_that_mixes(trial: Trial, world: tuple[float, int, torch.dtype, type[BaseException]]) -> Iterator[Any]:
    lam, rows, dtype, error = world
    net, other, x = _Net(rows).to(dtype), _Net(rows + 1).to(dtype), whole_numbers(rows, rows, 2).to(dtype)
    net.stage.register_forward_hook(somebody_elses)
    with trial.watch(net, other, x):
        manager = expect_manager(trial.run(trial.answer, net.stage, lam, partners(rows)), "mixing")
        block = _Block(manager, net, x)
        trial.run(block)
        yield "~your hooks on the layer during the block", block.hooks
        replaced = Claim(not block.is_patched, "the layer's own", "replaced")
        yield "`forward` of the layer during the block", replaced, "patched"
        yield "the number of times that the layer runs in one pass", block.runs, "run-again"
        yield "the layer's own output, after your hook", Claim(block.is_kept, "as it was", "changed"), "in-place"
        draws = f"with λ = {lam:g} and indices = {partners(rows).tolist()}"
        got, second, in_evaluation = block.received
        seen = Seen(got, net.stage.before_hooks, lam, partners(rows))
        yield f"what the next layer receives, {draws}", got, _why_not_mixed(seen, block.hooks)
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
    yield from after_an_error(trial, net, error, "the block", partial(_failing, trial, net, rows, error))


class _Block:
    """A caller's code: a `with` block with three passes, the last one in evaluation mode."""

    def __init__(self, manager: Any, net: _Net, x: Tensor):
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


def _failing(trial: Trial, net: _Net, rows: int, error: type[BaseException]) -> None:
    with trial.answer(net.stage, 0.75, partners(rows)):
        raise error


def _why_not_mixed(seen: Seen, hooks: list[int]) -> str | None:
    if not isinstance(seen.got, Tensor) or seen.got.shape != seen.values.shape:
        return None
    if same(seen.got, seen.values):
        return "forgotten-return" if hooks[0] > 0 else "no-hook" if hooks == [0, 0] else None
    return why_not_mixed(seen)
