"""Checks of lesson 4: forward pre-hooks, which see and change what goes into a module.

4.1 and 4.4 stand here, 4.2 in `check_guard`, 4.3 in `check_default`, 4.5 in `check_weight_norm`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import expect_handle
from hooklab.course.exercises.misconceptions import fitting
from hooklab.course.exercises.trial import NotYet, Trial, same, tensor_text
from hooklab.course.exercises.varying import every_pass, homes
from hooklab.course.lesson04.calls import REGISTER, Seen, registered, run, why_as_it_was
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
    for model, layer, _ in homes(lambda: nn.Linear(2, 1)):
        seen, bystander = Seen(layer), layer.register_forward_pre_hook(lambda module, args: None)
        handle = registered(trial, layer)
        for which in every_pass(model):
            for values in ([[1.0, 2.0]], [[-3.0, 0.5], [4e6, 0.0]]):
                x = torch.tensor(values)
                with trial.watch(x):
                    run(model, x, handle=handle, seen=seen)
                if trial.faults:
                    raise trial.faults.pop(0)
                _expect_doubled(which, seen, x, {bystander.id})
        _expect_gradient(model, layer, seen)
        expect_handle(handle, REGISTER)
        trial.run(handle.remove)
        x = torch.tensor([[1.0, 2.0]])
        run(model, x)
        if seen.args[0] is not x:
            raise NotYet(
                "after handle.remove() a hook is still at work", expected="the input as it is", got="a changed input"
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


def _expect_gradient(model: nn.Module, layer: nn.Module, seen: Seen) -> None:
    wanted = 2 * layer.get_parameter("weight")
    x = torch.tensor([[1.0, 2.0]], requires_grad=True)
    run(model, x).sum().backward()
    if not same(x.grad, wanted):
        cut_off = "cut off: .data, .detach() and no_grad() in the hook end the graph there"
        raise NotYet(
            "the right gradient does not come back to the input",
            expected=f"x.grad = {tensor_text(wanted)}",
            got=tensor_text(x.grad),
            likely=None if seen.only_argument().requires_grad else cut_off,
        )


@exercise("4.4", "First in the line")
def first_in_the_line(trial: Trial) -> str:
    for (model, layer, _), (plus, times) in zip(
        homes(nn.Identity), ((1.0, 10.0), (-2.0, 3.0), (0.5, -4.0)), strict=True
    ):
        seen = Seen(layer)
        first = layer.register_forward_pre_hook(lambda module, args, plus=plus: (args[0] + plus,))
        second = layer.register_forward_pre_hook(lambda module, args, kwargs: (args, kwargs), with_kwargs=True)
        last = layer.register_forward_hook(lambda module, args, output: None)
        handle = registered(trial, layer, lambda module, args, *, times=times: (args[0] * times,))
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
                run(model, x, handle=handle, seen=seen)
                tries.append((which, x, seen.only_argument()))
        _expect_first(tries, plus, times)
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
