"""Checks of lesson 2: reading, keeping and changing a gradient with tensor hooks.

The longer ones stand in modules of their own: `check_memory` (2.5) and `check_clipping` (2.6).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import (
    error_comes_out,
    expect_handle,
    expect_returned,
    hidden_error,
    is_used_up,
)
from hooklab.course.exercises.faults import PlannedError
from hooklab.course.exercises.frames import kind_of
from hooklab.course.exercises.gradients import all_same, expect_arrived, misconception_named, stop_at_fault, why_empty
from hooklab.course.exercises.guards import of_the_answer
from hooklab.course.exercises.misconceptions import alike
from hooklab.course.exercises.trial import NotYet, Trial, same, tensor_text
from hooklab.course.lesson02.check_clipping import clip_inside_somebody_elses_loop
from hooklab.course.lesson02.check_memory import a_hook_with_a_memory

__all__ = [
    "a_hook_with_a_memory",
    "clip_inside_somebody_elses_loop",
    "gradients_by_name",
    "half_the_gradient",
    "one_gradient_for_each_loss",
    "turn_a_gradient_up_or_down",
]


FACTORS = (3.0, -0.5, 0.0)
WRITTEN = "written in place: `grad *= 0.5` changes the tensor that you have kept"
HALVED = "halved before it was kept"


@exercise("2.1", "One gradient for each loss")
@misconception_named()
def one_gradient_for_each_loss(trial: Trial) -> str:
    for weights in ([1.0, 4.0, -2.0], [3.0], [0.5, 0.0, 2.0, math.inf, 1.0]):
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        y = x + 1  # saves nothing: each loss can send its gradient through it
        hooked: list[int] = []  # how many hooks of the answer's are on y as each loss comes back
        order: list[int] = []  # the numbers of the losses, as they come back
        losses = [weight * (y**2).sum() for weight in weights]
        for number, loss in enumerate(losses):
            _count_hooks(y, loss, hooked, number, order)
        with _backward_called() as called:
            got = trial.call(y, losses)
        wanted = [2 * weight * y for weight in weights]
        shown = {"expected": tensor_text(wanted), "got": tensor_text(got)}
        expect_returned(got, shown["expected"])
        if not isinstance(got, list | tuple):
            raise NotYet("that is one tensor, not a list" if isinstance(got, Tensor) else "that is not a list", **shown)
        if not got:
            raise NotYet("your list is empty", **shown, likely=why_empty(x.grad is not None))
        if all(one is None for one in got):
            raise NotYet("your list holds None", **shown, likely="y.grad of a non-leaf is not kept; a hook sees it")
        if not all(isinstance(one, Tensor) for one in got):
            raise NotYet("your list holds other things than tensors", expected="tensors", got=type(got[0]).__name__)
        if len(got) > len(wanted):
            raise NotYet(
                f"{len(got)} gradients for {len(wanted)} losses",
                **shown,
                likely="hooks pile up: one that is registered for each loss also runs for every later loss",
            )
        sums = [sum(wanted[:count], torch.zeros(2)) for count in range(1, len(wanted) + 1)]
        if len(wanted) > 1 and (all_same(got, sums) or all_same(got, [sums[-1]] * len(wanted))):
            raise NotYet(
                "later losses were added to your gradients",
                **shown,
                likely="reads .grad, where passes add up; what a hook gets is the gradient of this pass alone",
            )
        if len(wanted) > 1 and all_same(got, sums[-1:]):
            raise NotYet(
                "there is one gradient for all losses together",
                **shown,
                likely="one pass for a sum of losses: call backward() on each",
            )
        if len(got) < len(wanted) and all_same(got, wanted[: len(got)]):
            raise NotYet(
                f"{len(got)} {'gradient' if len(got) == 1 else 'gradients'} for {len(wanted)} losses",
                **shown,
                likely=None
                if all(hooked)
                else "removed too early: the hook must stay until the last loss is sent back",
            )
        if len(got) < len(wanted) and all_same(got, wanted[-len(got) :]):
            raise NotYet(
                "only the last gradients are in your list",
                **shown,
                likely="a list made anew for each loss" if all(hooked) else None,
            )
        if not all_same(got, wanted):
            zeroed = not any(one.any() for one in got)
            raise NotYet(
                "these are not the gradients of y",
                **shown,
                likely="zeroed in place: `y.grad.zero_()` writes into the tensor that you kept" if zeroed else None,
            )
        if order != sorted(order):
            raise NotYet("the losses were not sent back in order", expected="the first one first", got=f"{order}")
        is_y_alone = x.grad is None and len(called) == len(losses)  # backward(inputs=[y]), which goes no further
        if len(order) > len(losses) and not same(x.grad, sum(wanted, torch.zeros(2))):
            raise NotYet(f"{len(order)} passes for {len(losses)} losses", expected="one backward() for each")
        if not is_y_alone:
            expect_arrived("x", x.grad, sum(wanted, torch.zeros(2)))
        stop_at_fault(trial)
    return "one gradient of y for each loss, kept apart, and no hook left"


def _count_hooks(y: Tensor, loss: Tensor, counts: list[int], number: int, order: list[int]) -> None:
    """Have the number of hooks on y, and the loss's own number, noted when the loss is sent back."""
    assert loss.grad_fn is not None

    def note(*_: Any) -> None:
        order.append(number)
        counts.append(len(of_the_answer(y._backward_hooks)))

    loss.grad_fn.register_hook(note)


@contextmanager
def _backward_called() -> Iterator[list[Any]]:
    """Note each call of backward() in the block, to tell it from torch.autograd.grad()."""
    calls: list[Any] = []
    backward = torch.autograd.backward

    def noting(*args: Any, **kwargs: Any) -> None:
        calls.append(args)
        backward(*args, **kwargs)

    torch.autograd.backward = noting
    try:
        yield calls
    finally:
        torch.autograd.backward = backward


@exercise("2.2", "Turn a gradient up or down")
@misconception_named()
def turn_a_gradient_up_or_down(trial: Trial) -> str:
    for factor in FACTORS:
        a, b = (torch.tensor(values, requires_grad=True) for values in ([1.0, 2.0], [3.0, -1.25]))
        hidden_a, hidden_b = a * 1, b * 1
        handle = trial.call(hidden_b, factor, may_hook=True)
        stop_at_fault(trial)
        hooked = bool(hidden_b._backward_hooks)
        trial.run(((hidden_a + hidden_b) ** 2).sum().backward)
        gradient = 2 * (a + b).detach()  # the sum hands this very gradient to both; the later, b, gets it first
        if not hooked:
            raise NotYet(
                "there is no hook on the tensor when your function has returned",
                expected=f"factor {factor:g}: {tensor_text(factor * gradient)}",
                got=tensor_text(b.grad),
                likely=_why_not_hooked(handle, hidden_b),
            )
        _expect_only_b_scaled(factor, gradient, a.grad, b.grad)
        expect_handle(handle, "register_hook")
    w = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    handle = trial.call(w, 2.0, may_hook=True)
    trial.run(w.sum().backward)  # sends one number, expanded
    expect_arrived("w", w.grad, torch.full_like(w, 2.0))
    w.grad = None
    trial.run(w.sum().backward)
    if not same(w.grad, torch.full_like(w, 2.0)):
        raise NotYet(
            "in the second pass the gradient is not scaled by the factor",
            expected="factor 2: w.grad = [2, 2, 2] in every pass, until the caller removes the handle",
            got=f"w.grad = {tensor_text(w.grad)}",
            likely="a hook that removes itself"
            if is_used_up(handle)
            else "a hook that remembers something from pass to pass",
        )
    w.grad = None
    extreme = torch.tensor([1e300, -math.inf, math.nan], dtype=torch.float64)
    trial.run((extreme * w).sum().backward)
    if not alike(w.grad, 2 * extreme):
        raise NotYet(
            "a gradient with very large numbers, an infinity and a NaN is not scaled by the factor",
            expected=f"factor 2: w.grad = {tensor_text(2 * extreme)}",
            got=f"w.grad = {tensor_text(w.grad)}",
        )
    handle.remove()
    w.grad = None
    trial.run(w.sum().backward)
    if not same(w.grad, torch.ones_like(w)):
        raise NotYet(
            "after handle.remove() the gradient is still scaled",
            expected="w.grad = [1, 1, 1]",
            got=f"w.grad = {tensor_text(w.grad)}",
            likely="two hooks, one handle: register a single hook and return its handle",
        )
    trial.expect_none_left()
    return "the tensor's own gradient was scaled, no other one, and the handle takes the hook off again"


def _why_not_hooked(handle: Any, tensor: Tensor) -> str:
    if not isinstance(handle, RemovableHandle):
        return "not registered: nobody called tensor.register_hook"
    if handle.hooks_dict_ref() is not tensor._backward_hooks:
        return "a hook on another tensor: register it on the one that you are given"
    return "removed too early: `with` and handle.remove() take the hook off before backward() comes"


def _expect_only_b_scaled(factor: float, gradient: Tensor, a: Tensor | None, b: Tensor | None) -> None:
    if not same(a, gradient):
        raise NotYet(
            "the gradient of another tensor changed too",
            expected=f"z is made of a + b and only b is hooked: a.grad = {tensor_text(gradient)}",
            got=f"a.grad = {tensor_text(a)}",
            likely="in place: `*=` and `mul_` write into a buffer that other tensors share; return a new tensor",
        )
    if same(b, factor * gradient):
        return
    shown = {"expected": f"factor {factor:g}: {tensor_text(factor * gradient)}", "got": tensor_text(b)}
    if same(b, gradient):
        raise NotYet(
            "the gradient is as it would be without the hook",
            **shown,
            likely="forgotten return: the hook made a new tensor and threw it away, so None came back"
            if factor == FACTORS[0]  # later, the hook has returned something else already
            else None,
        )
    if same(b, torch.full_like(gradient, factor)):
        raise NotYet("the gradient was replaced by the factor", **shown, likely="the result is the factor alone")
    raise NotYet("the gradient is not scaled by the factor", **shown)


@exercise("2.3", "Mend it: half the gradient")
@misconception_named()
def half_the_gradient(trial: Trial) -> str:
    for weights in ([4.0, -2.0, 8.0], [3.0]):
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        tensor, beside = x + 1, x + 2
        theirs: list[Tensor] = []
        tensor.register_hook(lambda grad, seen=theirs: seen.append(grad.clone()))
        # the sum hands the same gradient to both: written to in place, it changes for `beside` as well
        losses = [weight * (tensor + beside).sum() + weight * (tensor * beside.detach()).sum() for weight in weights]
        got = trial.call(tensor, losses)
        arriving = [weight * (1 + beside.detach()) for weight in weights]
        shown = {"expected": tensor_text(arriving), "got": tensor_text(got)}
        expect_returned(got, shown["expected"])
        if not isinstance(got, list | tuple):
            raise NotYet(f"that is not a list of gradients, but a {kind_of(got)}", **shown)
        if not all(isinstance(one, Tensor) for one in got):
            raise NotYet("your list holds other things than tensors", expected="tensors", got=kind_of(got[0]))
        if not got:
            raise NotYet("your list is empty", **shown, likely=why_empty(bool(theirs)))
        if len(got) > len(arriving):
            raise NotYet(
                f"{len(got)} gradients for {len(arriving)} losses",
                **shown,
                likely="hooks pile up: one that is registered for each loss also runs for every later loss",
            )
        if all_same(got, [one / 2 for one in arriving]):
            raise NotYet(
                "these are halves of what arrived", **shown, likely=WRITTEN if _writes_in_place(trial) else HALVED
            )
        if not all_same(got, arriving):
            raise NotYet("these are not the gradients that arrived", **shown)
        passed = sum((one / 2 + weight for one, weight in zip(arriving, weights, strict=True)), torch.zeros(2))
        everything = sum((one + weight for one, weight in zip(arriving, weights, strict=True)), torch.zeros(2))
        if x.grad is None:
            raise NotYet("nothing arrived at x, behind the tensor", expected=tensor_text(passed), got="None")
        if not same(x.grad, passed):
            raise NotYet(
                "what passes the tensor is not half of what arrived",
                expected=f"x.grad = {tensor_text(passed)}",
                got=f"x.grad = {tensor_text(x.grad)}",
                likely="the whole gradient passed: what the hook makes, it must return"
                if same(x.grad, everything)
                else None,
            )
        stop_at_fault(trial)
    _expect_not_in_place(trial)
    _expect_half_at_a_leaf(trial)
    return "what arrived for each loss, half of it passed on, nobody else's gradient touched, and no hook left"


def _expect_half_at_a_leaf(trial: Trial) -> None:
    """In double precision, with very large numbers, and where an older gradient is in .grad already."""
    old = torch.tensor([10.0, 10.0], dtype=torch.float64)
    arriving = [torch.tensor(values, dtype=torch.float64) for values in ([1e300, -4.0], [2.0, 6.0])]
    leaf = torch.ones(2, dtype=torch.float64, requires_grad=True)
    leaf.grad = old.clone()
    got = trial.call(leaf, [(one * leaf).sum() for one in arriving])
    if not all_same(got, arriving):
        raise NotYet(
            "these are not the gradients that arrived at a leaf",
            expected=tensor_text(arriving),
            got=tensor_text(got),
        )
    halves = sum((one / 2 for one in arriving), torch.zeros_like(old))
    if not same(leaf.grad, old + halves):
        raise NotYet(
            "what was added to the .grad of a leaf is not half of what arrived",
            expected=f"tensor.grad = {tensor_text(old + halves)}, with the {tensor_text(old)} from before",
            got=f"tensor.grad = {tensor_text(leaf.grad)}",
            likely="cleared .grad: it is the caller's, and you do not need to"
            if leaf.grad is None or same(leaf.grad, halves)
            else None,
        )
    stop_at_fault(trial)
    loss = leaf.sum()
    loss.register_hook(_refuse)
    if not error_comes_out(trial, lambda: trial.answer(leaf, [loss])):
        raise hidden_error("loss.backward()")


def _refuse(grad: Tensor) -> None:
    raise PlannedError


def _expect_not_in_place(trial: Trial) -> None:
    """Where a sum gives the same gradient to two tensors, the one served later must get it whole."""
    got, whole = _gradient_beside(trial)
    if not same(got, whole):
        raise NotYet(
            "another tensor's gradient has changed as well",
            expected=f"a.grad = {tensor_text(whole)}, since only b is hooked",
            got=f"a.grad = {tensor_text(got)}",
            likely="in place: `*=` writes into a gradient that others share; return a new tensor",
        )
    stop_at_fault(trial)


def _writes_in_place(trial: Trial) -> bool:
    return not same(*_gradient_beside(trial))


def _gradient_beside(trial: Trial) -> tuple[Tensor | None, Tensor]:
    """The gradient that another tensor gets from the same sum, and the one that it should get."""
    a, b = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 5.0], requires_grad=True)
    hidden_a, hidden_b = a * 1, b * 1
    trial.call(hidden_b, [((hidden_a + hidden_b) ** 2).sum()])
    return a.grad, 2 * (a + b).detach()


@exercise("2.4", "Gradients by name")
@misconception_named()
def gradients_by_name(trial: Trial) -> str:
    names = ["w", "data", "hidden", "again", "out", "still", "z", "unused"]
    for order in (names, ["unused", "out", "z", "w", "hidden", "data", "again", "still"]):
        w, unused = torch.tensor([1.0, -1.0], requires_grad=True), torch.tensor([7.0], requires_grad=True)
        still = torch.tensor([5.0], requires_grad=True)  # z depends on it, with a gradient of zero
        data = torch.tensor([3.0, 5.0])
        hidden = w * data
        out = hidden * 2
        old = torch.tensor([100.0, 100.0])
        w.grad = old.clone()
        z = (out**2).sum() + 0 * still.sum()
        tensors = dict(zip(names, (w, data, hidden, hidden, out, still, z, unused), strict=True))
        got = trial.call({name: tensors[name] for name in order}, z)
        out_gradient = 2 * out.detach()
        wanted = {"w": 2 * data * out_gradient, "hidden": 2 * out_gradient, "again": 2 * out_gradient}
        wanted |= {"out": out_gradient, "still": torch.zeros(1), "z": torch.tensor(1.0)}
        _expect_by_name(got, wanted, passed=not same(w.grad, old), old=old)
        _expect_sent_once(w.grad, old, wanted["w"])
        if data.requires_grad:
            raise NotYet(
                "a tensor that was frozen requires grad now",
                expected="requires_grad as before",
                likely="thawed to be hooked: leave out what does not require grad",
            )
        _expect_no_hook_left(trial, hooked=7)
    return "each gradient under its own name, the frozen and the unreached tensor left out, no hook left"


def _expect_sent_once(got: Tensor | None, old: Tensor, gradient: Tensor) -> None:
    shown = {"expected": f"w.grad = {tensor_text(old + gradient)}", "got": f"w.grad = {tensor_text(got)}"}
    if same(got, old):
        raise NotYet("nothing was added to w.grad", **shown, likely="z.backward() did not run")
    for times in range(2, 9):
        if same(got, old + times * gradient):
            raise NotYet(f"{times} passes were added to w.grad", **shown, likely=f"z.backward() ran {times} times")
    if same(got, gradient):
        raise NotYet("the old w.grad is gone", **shown, likely="cleared .grad: it is not yours, and you do not need to")
    expect_arrived("w", got, old + gradient)


def _expect_no_hook_left(trial: Trial, hooked: int) -> None:
    left = len(trial.faults)
    if 1 < left < hooked:
        trial.faults.clear()
        raise NotYet(
            f"{left} hooks of yours are still there (they were removed)",
            expected="no hook is left when your function returns",
            likely="one name for many handles: the loop overwrites `handle`, so remove() reaches only the last one",
        )
    stop_at_fault(trial)


def _expect_by_name(got: Any, wanted: dict[str, Tensor], passed: bool, old: Tensor) -> None:
    shown = {"expected": tensor_text(wanted), "got": tensor_text(got)}
    expect_returned(got, shown["expected"])
    if not isinstance(got, dict):
        raise NotYet("that is not a dictionary", **shown)
    if not got:
        raise NotYet("your dictionary is empty", **shown, likely=why_empty(passed))
    if not all(isinstance(name, str) for name in got):
        raise NotYet("the keys are not names", expected=sorted(wanted), got=type(next(iter(got))).__name__)
    only = next(iter(got))
    if len(got) == 1 and not (only in wanted and same(got[only], wanted[only])):
        raise NotYet(
            f"every gradient went under one name, {only!r}",
            **shown,
            likely="late binding: the hook looks the loop's variable up when it runs, and then the loop is over",
        )
    if any(value is None for value in got.values()):
        raise NotYet(
            "a tensor that no gradient reached is in your dictionary",
            **shown,
            likely="None is not a gradient: a hook does not run where nothing arrives, so no entry is made",
        )
    if set(got) != set(wanted):
        raise NotYet(f"the names are {sorted(map(str, got))}", expected=sorted(wanted), got=sorted(map(str, got)))
    if same(got["w"], old + wanted["w"]):
        raise NotYet(
            "w had an old .grad, and it is part of your answer",
            **shown,
            likely="reads .grad, which adds up; what a hook gets is the gradient of this pass alone",
        )
    if same(got["w"], old):
        raise NotYet("that is w's old .grad", **shown, likely="inside its hook, w.grad is not yet written")
    wrong = [name for name in wanted if not same(got[name], wanted[name])]
    if wrong:
        raise NotYet(f"the gradient under {wrong[0]!r} is another one", **shown)
