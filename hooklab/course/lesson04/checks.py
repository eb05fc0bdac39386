"""Checks of lesson 4: forward pre-hooks, which see and change what goes into a module.

4.1 and 4.4 stand here, 4.2 in `check_guard`, 4.3 in `check_default`, 4.5 in `check_weight_norm`.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import error_comes_out, expect_handle, hidden_error
from hooklab.course.exercises.faults import PlannedError
from hooklab.course.exercises.misconceptions import fitting
from hooklab.course.exercises.trial import NotYet, Trial, same, tensor_text
from hooklab.course.exercises.varying import every_pass, homes
from hooklab.course.lesson04.calls import REGISTER, Seen, places, registered, run, why_as_it_was
from hooklab.course.lesson04.check_default import a_default_for_a_keyword
from hooklab.course.lesson04.check_guard import a_guard_at_the_door
from hooklab.course.lesson04.check_weight_norm import weight_norm_by_a_pre_hook

__all__ = [
    "a_default_for_a_keyword",
    "a_guard_at_the_door",
    "double_what_goes_in",
    "first_in_the_line",
    "weight_norm_by_a_pre_hook",
]


@exercise("4.1", "Double what goes in")
def double_what_goes_in(trial: Trial) -> str:
    for model, layer, dtype in places(2):
        wanted = 2 * _gradient(model, dtype)
        seen, bystander = Seen(layer), layer.register_forward_pre_hook(lambda module, args: None)
        handle = registered(trial, layer)
        for which in every_pass(model):
            for values in ([[1.0, 2.0]], [[-3.0, 0.5], [4e6, 0.0]]):
                x, before = torch.tensor(values, dtype=dtype), seen.runs
                with trial.watch(x):
                    run(model, x, handle=handle, seen=seen)
                if trial.faults:
                    raise trial.faults.pop(0)
                seen.expect_one_run(before)
                _expect_doubled(which, seen, x, {bystander.id})
        _expect_gradient(seen, _gradient(model, dtype), wanted)
        expect_handle(handle, REGISTER)
        trial.run(handle.remove)
        x = torch.tensor([[1.0, 2.0]])
        run(model, x)
        if seen.args[0] is not x:
            raise NotYet(
                "after handle.remove() the layer still gets a changed input",
                expected=f"{tensor_text(x)}, the very tensor",
                got=tensor_text(seen.args[0]),
            )
        trial.expect_none_left()
    return "the layer gets 2·x in every pass, your x is untouched, and handle.remove() ends it"


def _expect_doubled(which: str, seen: Seen, x: Tensor, others: set[int]) -> None:
    got = seen.only_argument()
    shown = {"expected": tensor_text(2 * x), "got": tensor_text(got)}
    if same(got, x):
        likely = why_as_it_was(seen.layer, others, x) if not which else None
        raise NotYet(f"{which}the layer got the input as it was", **shown, likely=likely)
    if not same(got, 2 * x):
        raise NotYet(f"{which}the layer did not get twice the input", **shown)
    if got.dtype != x.dtype:
        raise NotYet(
            f"{which}the layer got numbers of another dtype", expected=f"{x.dtype}, as x has", got=f"{got.dtype}"
        )


def _gradient(model: nn.Module, dtype: torch.dtype) -> Any:
    """What comes back to an input; None, if the graph ends on the way."""
    x = torch.tensor([[1.0, 2.0]], dtype=dtype, requires_grad=True)
    out = run(model, x).sum()
    return torch.autograd.grad(out, x, allow_unused=True)[0] if out.requires_grad else None


def _expect_gradient(seen: Seen, got: Any, wanted: Tensor) -> None:
    if not same(got, wanted):
        cut_off = "cut off: .data, .detach(), no_grad() or a new tensor in the hook ends the graph there"
        raise NotYet(
            "the right gradient does not come back to the input",
            expected=f"x.grad = {tensor_text(wanted)}",
            got=tensor_text(got),
            likely=None if seen.only_argument().requires_grad else cut_off,
        )


class _Line:
    """The pre-hooks of a layer, two old ones and the new one, and the order in which they ran."""

    def __init__(self, plus: float, times: float) -> None:
        self.plus, self.times = plus, times
        self.ran: list[str] = []
        self.module: Any = None
        self.given: Any = None
        self.got_others: tuple[Any, ...] | None = None
        self.raises = False

    def new(self, module: nn.Module, args: tuple[Any, ...]) -> Any:
        self.ran.append("new")
        if self.raises:
            raise PlannedError
        if module is not self.module or args[0] is not self.given:
            self.got_others = (module, args)
        return (args[0] * self.times,)

    def first(self, module: nn.Module, args: tuple[Any, ...]) -> Any:
        self.ran.append("first")
        if isinstance(args[0], tuple | list):
            raise NotYet(
                f"the hook behind the new one gets a {type(args[0]).__name__} in the place of the tensor",
                expected="what `hook` returns, as it is",
                got=tensor_text(args),
                likely="a list counts as one argument; only a tuple stands for all of them"
                if isinstance(args[0], list)
                else "wrapped twice: what `hook` returns is a tuple of all arguments already",
            )
        return (args[0] + self.plus,)

    def second(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.ran.append("second")


@exercise("4.4", "First in the line")
def first_in_the_line(trial: Trial) -> str:
    for (model, layer, _), (plus, times) in zip(
        homes(lambda: nn.Sequential(nn.Identity())), ((1.0, 10.0), (-2.0, 3.0), (0.5, -4.0)), strict=True
    ):
        seen, line = Seen(layer), _Line(plus, times)
        first = layer.register_forward_pre_hook(line.first)
        second = layer.register_forward_pre_hook(line.second, with_kwargs=True)
        last = layer.register_forward_hook(lambda module, args, output: None)
        handle = registered(trial, layer, lambda module, args, *, new=line.new: new(module, args))
        if not {first.id, second.id} <= set(layer._forward_pre_hooks) or last.id not in layer._forward_hooks:
            raise NotYet(
                "a hook that was there is gone",
                expected="the old hooks, each under the id of its own handle",
                got="a handle that can no longer remove its hook",
                likely="never remove hooks that are not yours: whoever holds their handle relies on them",
            )
        inputs, tries = [torch.tensor([value]) for value in (2.0, -3.0)], []
        for which in every_pass(model):
            for x in inputs:
                line.module, line.given = layer, x
                run(model, x, handle=handle, seen=seen)
                tries.append((which, x, seen.only_argument()))
        _expect_first(tries, plus, times)
        if line.got_others is not None:
            raise NotYet(
                "`hook` does not get what a pre-hook gets",
                expected="the layer, and its arguments as they are",
                got=tensor_text(line.got_others),
            )
        if line.ran != ["new", "first", "second"] * len(tries):
            raise NotYet(
                "the old hooks do not run in their order, each once",
                expected="the new one, the first, the second",
                got=", ".join(line.ran[: -(-len(line.ran) // len(tries))]),
            )
        line.raises = True
        if not error_comes_out(trial, functools.partial(run, model, inputs[0])):
            raise hidden_error("`hook`")
        line.raises = False
        expect_handle(handle, REGISTER)
        trial.run(handle.remove)
        for x in inputs:
            run(model, x, seen=seen)
            got, wanted = seen.only_argument(), x + plus
            if not same(got, wanted):
                shown = {"expected": tensor_text(wanted), "got": tensor_text(got)}
                raise NotYet("the handle does not remove the new hook alone", **shown)
        trial.expect_none_left()
    return "the new hook runs first, the old ones are still there, and the handle removes yours alone"


def _expect_first(tries: list[tuple[str, Tensor, Tensor]], plus: float, times: float) -> None:
    other_orders = {
        "order of registration: the last one registered runs last, unless you say prepend=True": lambda x: (
            (x + plus) * times
        ),
        "the new hook does not run before forward": lambda x: x + plus,
    }
    for which, x, got in tries:
        wanted = x * times + plus
        if not same(got, wanted):
            raise NotYet(
                f"{which}the two hooks do not both run, the new one first",
                expected=f"{x.item():g} · {times:g} + {plus:g} = {wanted.item():g}",
                got=tensor_text(got),
                likely=fitting([one for *_, one in tries], other_orders, [x for _, x, _ in tries]),
            )
