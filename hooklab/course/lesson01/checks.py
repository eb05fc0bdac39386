"""Checks of lesson 1: leaf and non-leaf tensors, and where gradients are kept."""

from __future__ import annotations

import torch
from torch import Tensor

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.trial import NotYet, Trial, expect_tensor, same, tensor_text


@exercise("1.1", "Who gets a gradient?")
def who_gets_a_gradient(trial: Trial) -> str:
    w = torch.ones(2, requires_grad=True)
    data = torch.ones(2)
    named = {
        "w": w,
        "data": data,
        "hidden": w * data,
        "copy": (w * data).detach(),
        "b": torch.zeros(2, requires_grad=True),
    }
    w.grad = torch.ones(2)  # from an earlier pass, which says nothing about a later one
    got = trial.call(dict(named))
    wanted = {"w", "b"}
    if not isinstance(got, set | frozenset | list | tuple) or not all(isinstance(name, str) for name in got):
        raise NotYet("the answer is not a set of names", expected='a set such as {"w"}', got=tensor_text(got))
    got = set(got)
    shown = {"expected": f"{sorted(wanted)} of {sorted(named)}", "got": f"{sorted(got)}"}
    if got == wanted | {"data", "copy"}:
        raise NotYet(
            "tensors that need no gradient are in your set",
            **shown,
            likely="leaf is not enough: is_leaf is also True for every tensor with requires_grad=False",
        )
    if got == wanted | {"hidden"}:
        raise NotYet(
            "a result of an operation is in your set",
            **shown,
            likely="requires_grad is not enough: a non-leaf requires grad too, but its .grad is not filled",
        )
    if got == {"b"}:
        raise NotYet(
            "a leaf that already has a gradient is missing",
            **shown,
            likely="an old .grad is no obstacle: backward() adds to it",
        )
    if got == set(named) - wanted:
        raise NotYet("your set is the other way round", **shown, likely="a condition negated once too often")
    if got != wanted:
        raise NotYet("the names in your set are not the right ones", **shown)
    named = {"left": data, "right": torch.zeros(1, requires_grad=True)}
    got = trial.call(dict(named))
    if set(got) != {"right"}:
        raise NotYet(
            "for other tensors, your set is not the right one",
            expected=f"['right'] of {sorted(named)}",
            got=tensor_text(got),
            likely="the names of the first dictionary: look at the tensors that you are given",
        )
    return "a leaf that requires grad, and nothing else, gets its .grad filled by backward()"


@exercise("1.2", "Keep the gradient of y")
def keep_the_gradient(trial: Trial) -> str:
    for values, power in (([1.0, 2.0], 2), ([-1.0, 0.5], 3)):
        x = torch.tensor(values, requires_grad=True)
        y = 3 * x
        z = (y**power).sum()
        got = trial.call(y, z)
        grad_y = power * y.detach() ** (power - 1)
        grad_x = 3 * grad_y
        if got is None:
            raise NotYet(
                "your function returned None", expected=tensor_text(grad_y), got="None", likely=_why_none(x, y)
            )
        got = expect_tensor(got, "what your function returned", y.shape)
        shown = {"expected": tensor_text(grad_y), "got": tensor_text(got)}
        if same(got, grad_x):
            raise NotYet("that is the gradient of x", **shown, likely="leaf's gradient: it has passed through y = 3·x")
        if same(got, y):
            raise NotYet("that is y itself", **shown, likely="value instead of gradient: y, not y.grad")
        if not same(got, grad_y):
            raise NotYet("that is not dz/dy", **shown, likely=None if x.grad is not None else "backward() did not run")
    return "y's own gradient came back, for two different functions z"


def _why_none(x: Tensor, y: Tensor) -> str:
    if y.retains_grad and x.grad is None:
        return "no backward: y was asked to keep its gradient, but nothing sent one"
    if y.retains_grad and y.grad is not None:
        return "read too early: y.grad is filled now, but it was still None when you took it"
    if y.retains_grad:
        return "asked too late: retain_grad() came after backward(), when the gradient had already passed"
    if x.grad is None:
        return "no backward: nothing has sent a gradient yet"
    return "not kept: y is a non-leaf tensor and nobody called y.retain_grad() before backward()"


@exercise("1.3", "Gradients without touching .grad")
def gradients_on_request(trial: Trial) -> str:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    unused = torch.tensor([5.0], requires_grad=True)
    other = torch.tensor([1.0, 1.0], requires_grad=True)  # z depends on it, and nobody asks for it
    y = x + 2
    z = (other * y**2).sum()
    old = torch.tensor([100.0, 100.0])
    x.grad = old.clone()
    got = trial.call(z, [x, y, unused])
    if x.grad is None:
        raise NotYet(
            "x came with an old .grad, and it is gone",
            expected=f"x.grad = {tensor_text(old)}, as before",
            got="x.grad = None",
            likely="cleared .grad: torch.autograd.grad needs no clearing, it writes nothing",
        )
    written = {
        "x": not same(x.grad, old),
        "y": y.retains_grad,
        "unused": unused.grad is not None,
        "a leaf that is not in the list": other.grad is not None,
    }
    if any(written.values()):
        first = next(name for name, is_written in written.items() if is_written)
        raise NotYet(
            f".grad of {first} was written",
            expected="every .grad is as it was",
            likely="backward() fills .grad; torch.autograd.grad only returns",
        )
    if isinstance(got, Tensor):
        raise NotYet("only one gradient came back", expected="three, in the order of the list", got=tensor_text(got))
    if not isinstance(got, list | tuple) or len(got) != 3:
        raise NotYet("that is not a list of three", expected="[dz/dx, dz/dy, None]", got=tensor_text(got))
    wanted = 2 * y.detach()
    shown = {"expected": f"[{tensor_text(wanted)}, {tensor_text(wanted)}, None]", "got": tensor_text(list(got))}
    if got[2] is not None:
        raise NotYet(
            "z does not depend on the third tensor", **shown, likely="zero is not None: None says `not on the path`"
        )
    if not (same(got[0], wanted) and same(got[1], wanted)):
        raise NotYet("the gradients are not dz/dx and dz/dy", **shown)
    return "three answers in order, None for the tensor off the path, and every .grad untouched"


@exercise("1.4", "Use a graph several times, then let it go")
def use_a_graph_several_times(trial: Trial) -> str:
    for times in (3, 1):
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        passes: list[Tensor] = []
        x.register_hook(passes.append)
        z = (x**2).sum()
        trial.call(z, times)
        wanted = times * 2 * x.detach()
        if x.grad is None:
            raise NotYet(
                "x.grad is still None", expected=tensor_text(wanted), got="None", likely="backward() did not run"
            )
        if not same(x.grad, wanted):
            ran = (x.grad / (2 * x.detach())).mean().item()
            raise NotYet(
                f"backward ran {ran:g} times, not {times}",
                expected=f"x.grad = {tensor_text(wanted)}",
                got=f"x.grad = {tensor_text(x.grad)}",
                likely="off by one: count the last pass, the one that frees the graph, too",
            )
        if len(passes) != times:
            raise NotYet(
                f"one pass with a larger gradient is not {times} passes",
                expected=f"{times} backward passes through the same graph",
                got=f"{len(passes)} {'pass' if len(passes) == 1 else 'passes'}, and the right sum in x.grad",
                likely="times · z, or backward(times): a hook on x would run once only",
            )
        if _can_run_again(z):
            raise NotYet(
                f"with times = {times}, the graph is still in memory afterwards",
                expected="one more z.backward() raises RuntimeError",
                got="one more z.backward() runs",
                likely="retained to the end: the last pass needs no retain_graph=True",
            )
    return "the passes add up in x.grad, and the last one frees what the graph had saved"


def _can_run_again(z: Tensor) -> bool:
    try:
        z.backward(retain_graph=True)
    except RuntimeError:
        return False
    return True


@exercise("1.5", "A whole descent")
def a_whole_descent(trial: Trial) -> str:
    start, lr, steps = torch.tensor([1.0, -4.0]), 0.25, 6
    given = start.clone()
    got = trial.call(given, lr, steps)
    got = expect_tensor(got, "the path")
    if tuple(got.shape) == (steps, 2):
        raise NotYet(
            "the path is one row short",
            expected=f"shape {(steps + 1, 2)}: the start, then one row after each step",
            got=f"shape {tuple(got.shape)}",
            likely="fence-post: n steps visit n + 1 points",
        )
    got = expect_tensor(got, "the path", (steps + 1, 2)).detach()
    # z = ½(y₁² + y₂²) with y = x + 2, so dz/dx = x + 2: each step shrinks x + 2 by the factor 1 − lr.
    wanted = (start + 2) * (1 - lr) ** torch.arange(steps + 1).unsqueeze(1) - 2
    if same(got, wanted, 1e-4):
        if given.requires_grad:
            raise NotYet(
                "the path is right, but start requires grad now",
                expected="start as it was: its values, requires_grad and .grad",
                likely="start.requires_grad_() changes the caller's tensor: make a leaf of your own from a clone",
            )
        return f"{steps} steps from {tensor_text(start)} towards [-2, -2], each shrinking x + 2 by {1 - lr:g}"
    shown = {"expected": f"row 2 = {tensor_text(wanted[2])}", "got": f"row 2 = {tensor_text(got[2])}"}
    if same(got[0], wanted[-1], 1e-4) and same(got[0], got[-1]):
        raise NotYet(
            "every row of the path is the last point",
            expected=f"row 0 = {tensor_text(wanted[0])}",
            got=f"row 0 = {tensor_text(got[0])}",
            likely="same memory: the step changes x in place, so keep x.detach().clone()",
        )
    if same(got[1], wanted[1], 1e-4) and same(got[2], wanted[1] - lr * ((wanted[0] + 2) + (wanted[1] + 2)), 1e-4):
        raise NotYet(
            "the second step used old gradients too",
            **shown,
            likely="gradients add up: x.grad keeps the sum until you set it to None",
        )
    if same(got[1], start + lr * (start + 2), 1e-4):
        raise NotYet("the path walks uphill", **shown, likely="sign: a descent subtracts lr times the gradient")
    if same(got[1], start - lr * 2 * (start + 2), 1e-4):
        raise NotYet(
            "each step is twice as long",
            **shown,
            likely="sum instead of half the sum: z = ½(y₁² + y₂²), the mean of the two squares",
        )
    raise NotYet("the path is another one", **shown)
