"""Check of exercise 2.5: a class whose method is the hook, and which is a context manager."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import error_comes_out, hidden_error
from hooklab.course.exercises.faults import PLANNED
from hooklab.course.exercises.gradients import close, expect_arrived, misconception_named
from hooklab.course.exercises.trial import NotYet, Trial, tensor_text


@exercise("2.5", "A hook with a memory")
@misconception_named()
def a_hook_with_a_memory(trial: Trial) -> str:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x + 1
    log = trial.call(y, may_hook=True)
    somebody_elses = y.register_hook(lambda grad: None)
    with trial.watch(y):
        _send(trial, y, [3.0, 4.0])
        if _norms(log):
            raise NotYet(
                "a gradient was kept before the `with` block began",
                expected="norms = []",
                got=f"norms = {tensor_text(_norms(log))}",
                likely="registered in __init__: register in __enter__, when the block begins",
            )
        x.grad = None
        hooks: list[Any] = []
        _run_block(trial, log, y, [[3.0, 4.0], [0.0, 2.0]], hooks=hooks)
        _expect_norms(log, [5.0, 2.0], hooked=bool(hooks))

        expect_arrived("x", x.grad, torch.tensor([3.0, 6.0]))
        _send(trial, y, [6.0, 8.0])
        if len(_norms(log)) > 2:
            raise NotYet(
                "a gradient was kept after the `with` block had ended",
                expected="norms = [5, 2]",
                got=f"norms = {tensor_text(_norms(log))}",
                likely="not removed: __exit__ must take the hook off, so __enter__ must keep the handle",
            )
        if somebody_elses.id not in (y._backward_hooks or {}):
            raise NotYet(
                "somebody else's hook on the tensor is gone",
                expected="__exit__ removes the hook that __enter__ registered, and no other",
                likely="cleared the tensor's hooks: handle.remove() takes your own off",
            )
        _run_block(trial, log, y, [[0.0, 7.0]])
        if not _norms(log) or not close(_norms(log)[-1], 7.0):
            raise NotYet("a second `with` block on the same object kept nothing", expected="its gradient's norm too")
        if len(_norms(log)) not in (1, 3):  # it may begin anew, or go on
            raise NotYet(
                "after a second `with` block on the same object, there are other norms than its gradient's",
                expected="norms = [5, 2, 7], or [7]",
                got=f"norms = {tensor_text(_norms(log))}",
            )
    _expect_own_lists(trial)
    _expect_keep_is_the_hook(trial)
    _expect_norm_of_a_matrix(trial)
    _expect_safe_exit(trial)
    return "norms kept while the block runs and only then, the gradients unchanged, removed even when the block raises"


def _send(trial: Trial, y: Tensor, gradient: list[float]) -> None:
    trial.run((torch.tensor(gradient) * y).sum().backward)


def _run_block(
    trial: Trial,
    log: Any,
    y: Tensor,
    gradients: list[Any],
    fail: type[BaseException] | None = None,
    hooks: list[Any] | None = None,
) -> bool:
    """Send gradients to y inside `with log`; return whether the exception of a failing block came out.

    The hooks that are on y when the block begins are put into `hooks`.
    """
    entered = []

    def block() -> None:
        with log as inside:
            entered.append(inside)
            if hooks is not None:
                hooks.extend((y._backward_hooks or {}).values())
            for gradient in gradients:
                (torch.tensor(gradient) * y).sum().backward()
            if fail:
                raise fail

    block.__name__ = trial.name
    came_out = error_comes_out(trial, block)
    if entered[0] is not log:
        raise NotYet(
            "`with … as log` does not give your object",
            expected="__enter__ returns self",
            got=f"it returned {tensor_text(entered[0])}",
            likely="forgotten return in __enter__" if entered[0] is None else None,
        )
    return came_out


def _norms(log: Any) -> list[Any]:
    norms = getattr(log, "norms", None)
    if not isinstance(norms, list):
        raise NotYet("your object has no list `norms`", expected="log.norms, a list", got=tensor_text(norms))
    return norms


def _expect_norms(log: Any, wanted: list[float], hooked: bool) -> None:
    norms = _norms(log)
    shown = {"expected": f"norms = {tensor_text(wanted)}", "got": f"norms = {tensor_text(norms)}"}
    if not norms:
        likely = "the hook never ran: was it registered in __enter__?"
        if hooked:
            likely = "the hook ran and kept nothing: append to self.norms, not to a name of the method's own"
        raise NotYet("no norm was kept", **shown, likely=likely)
    if not all(isinstance(one, float | int) for one in norms):
        raise NotYet(
            "the norms are not Python floats",
            **shown,
            likely="tensors kept: .item() turns a tensor of one element into a float"
            if all(isinstance(one, Tensor) and one.numel() == 1 for one in norms)
            else None,
        )
    if len(norms) == len(wanted) and all(close(one, want**2) for one, want in zip(norms, wanted, strict=True)):
        raise NotYet("these are squared norms", **shown, likely="the norm is the root of the sum of squares")
    if len(norms) != len(wanted) or not all(close(one, want) for one, want in zip(norms, wanted, strict=True)):
        raise NotYet("these are not the norms of the gradients of the block", **shown)


def _expect_keep_is_the_hook(trial: Trial) -> None:
    log = trial.call(torch.tensor([1.0, 2.0], requires_grad=True) + 1)
    trial.run(log.keep, torch.tensor([3.0, 4.0]))
    if len(_norms(log)) != 1:
        raise NotYet(
            "your method `keep` is not the hook",
            expected="keep(grad) notes the norm of grad, and __enter__ registers self.keep",
            got=f"after keep(grad): norms = {tensor_text(_norms(log))}",
        )


def _expect_own_lists(trial: Trial) -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    first, second = x + 1, x + 2
    logs = trial.call(first), trial.call(second)
    _run_block(trial, logs[0], first, [[3.0, 4.0]])
    if _norms(logs[1]):
        raise NotYet(
            "two objects share one list",
            expected="each object has its own norms",
            got=f"the second one has {tensor_text(_norms(logs[1]))} and has seen nothing",
            likely="class attribute: make the list in __init__",
        )


def _expect_norm_of_a_matrix(trial: Trial) -> None:
    y = torch.ones(2, 2, requires_grad=True) + 1
    log = trial.call(y)
    _run_block(trial, log, y, [[[1.0, 1.0], [1.0, 1.0]], [[3.0, 0.0], [0.0, 4.0]]])
    norms = list(_norms(log))
    if len(norms) != 2 or not close(norms[0], 2.0) or not close(norms[1], 5.0):
        raise NotYet(
            "for a gradient that is a matrix, these are not the norms",
            expected="norms = [2, 5] for [[1, 1], [1, 1]] and [[3, 0], [0, 4]]",
            got=f"norms = {tensor_text(norms)}",
            likely="a norm along one dimension, or the largest singular value: grad.norm() takes all numbers together",
        )
    infinity = float("inf")
    _run_block(trial, log, y, [[[0.0, 0.0], [0.0, 0.0]], [[infinity, 0.0], [0.0, 0.0]]])
    if _norms(log)[-2:] != [0.0, infinity]:
        raise NotYet(
            "a gradient of zeros, and one with an infinity, have a norm as well",
            expected="norms that end in 0 and inf",
            got=f"norms = {tensor_text(_norms(log))}",
        )


def _expect_safe_exit(trial: Trial) -> None:
    for error, words, likely in PLANNED:
        _expect_safe_exit_after(trial, error, words, likely)


def _expect_safe_exit_after(trial: Trial, error: type[BaseException], words: str, likely: str | None) -> None:
    y = torch.tensor([1.0, 2.0], requires_grad=True) + 1
    log = trial.call(y)
    with trial.watch(y):
        came_out = _run_block(trial, log, y, [[3.0, 4.0]], fail=error)
        _send(trial, y, [6.0, 8.0])
        if len(_norms(log)) != 1:
            raise NotYet(
                f"{words} came out of the block, and the hook was still there afterwards",
                expected="__exit__ removes the hook whatever happened inside",
                likely=likely or "removed on success only: __exit__ also runs after an exception, use it for both",
            )
    if not came_out:
        raise hidden_error("the block")
