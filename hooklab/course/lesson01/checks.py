"""Checks of lesson 1: who keeps a gradient, a small autograd, and the ways to get a gradient that was passed on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import expect_returned
from hooklab.course.exercises.gradients import stop_at_fault
from hooklab.course.exercises.trial import NotYet, Trial, expect_tensor, same, tensor_text
from hooklab.course.lesson01.check_engine import a_small_autograd as a_small_autograd


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
    wanted = {"w", "b"}
    got = _names(trial.call(named))
    if not same(w.grad, torch.ones(2)) or named["b"].grad is not None:
        raise NotYet("your code wrote into .grad", expected="a look at the tensors: no backward() runs")
    stop_at_fault(trial)
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
    others: dict[str, Tensor] = {
        "left": data,
        "right": torch.nn.Parameter(torch.zeros(1)),
        "number": torch.tensor(0.0, requires_grad=True),
        "double": torch.ones(2, dtype=torch.float64, requires_grad=True),
        "empty": torch.empty(0, requires_grad=True),
    }
    got = _names(trial.call(others))
    if got != set(others) - {"left"}:
        raise NotYet(
            "for other tensors, your set is not the right one",
            expected=f"all of {list(others)} but 'left'",
            got=tensor_text(sorted(got)),
            likely="the names of the first dictionary: look at the tensors that you are given"
            if got == wanted
            else None,
        )
    return "a leaf that requires grad, and nothing else, gets its .grad filled by backward()"


def _names(got: Any) -> set[str]:
    """The names that an answer holds, in whatever collection; NotYet if it holds other things."""
    shown = {"expected": 'a set such as {"w"}', "got": tensor_text(got)}
    if isinstance(got, str | Tensor) or not isinstance(got, Iterable):
        raise NotYet("the answer is not a set of names", **shown)
    items = list(got)
    if any(isinstance(item, Tensor) for item in items):
        raise NotYet("the answer holds tensors, not their names", expected=shown["expected"], got="tensors")
    if not all(isinstance(item, str) for item in items):
        raise NotYet("the answer holds other things than names", **shown)
    return set(items)


@exercise("1.3", "Mend it: the gradient of a hidden value")
def gradient_of_hidden(trial: Trial) -> str:
    for values, inputs in (([1.0, 2.0, -1.0], [3.0, -1.0, 2.0]), ([[0.5], [-4.0]], [[2.0], [1.0]])):
        w = torch.tensor(values, requires_grad=True)
        x = torch.tensor(inputs)
        old = torch.full_like(w, 100.0)
        w.grad = old.clone()
        passes: list[Tensor] = []
        w.register_hook(passes.append)
        hidden = w * x
        wanted = 2 * hidden
        got = trial.call(w, x)
        stop_at_fault(trial)
        expect_returned(got, tensor_text(wanted), _why_none(passes))
        got = expect_tensor(got, "what your function returned", hidden.shape)
        shown = {"expected": tensor_text(wanted), "got": tensor_text(got)}
        if same(got, hidden):
            raise NotYet("that is hidden itself", **shown, likely="value instead of gradient")
        if same(got, wanted * x) or same(got, wanted * x + old):
            raise NotYet("that is the gradient of w", **shown, likely="the leaf's: one step further down than hidden")
        if not same(got, wanted):
            raise NotYet("that is not the gradient of hidden", **shown)
        if not passes:
            raise NotYet(
                "the gradient of hidden came back, and w got none",
                expected="w.grad grows by its own gradient: loss.backward(), and no detach() between w and the loss",
                got="no gradient reached w",
            )
        if len(passes) > 1 or not same(w.grad, old + wanted * x):
            raise NotYet(
                "w.grad is not what one backward() makes it",
                expected=f"w.grad = {tensor_text(old + wanted * x)}, the old one and one gradient",
                got=f"w.grad = {tensor_text(w.grad)}; passes: {len(passes)}",
            )
    return "the gradient of hidden, for two shapes, and w.grad as after one ordinary backward()"


def _why_none(passes: list[Tensor]) -> str:
    """An experiment tells the two apart: a hook on w has seen a gradient, or none came."""
    if not passes:
        return "backward() did not run"
    return "forgotten return; or asked too late, or of another tensor: backward() did run"


@exercise("1.4", "What does z depend on, and how strongly?")
def strongest_first(trial: Trial) -> str:
    for flip, weight in ((1.0, 4.0), (-1.0, 40.0)):
        a = torch.tensor([1.0, -1.0], requires_grad=True)
        b = torch.tensor([3.0], requires_grad=True)
        c = torch.tensor([[1.0, 2.0], [0.0, 1.0]], requires_grad=True)
        unused = torch.tensor([9.0], requires_grad=True)
        still = torch.tensor([5.0], requires_grad=True)  # on the way, with a gradient of zero
        outside = torch.tensor([1.0], requires_grad=True)
        many = torch.ones(9, requires_grad=True)  # small numbers, and many: each measure sorts in another way
        inner = a * 3
        z = flip * (10 * inner[0] - 10 * inner[1] + weight * b.sum() + 1.5 * c.sum() + 0 * still.sum() + outside.sum())
        z = z + 2 * many.sum()
        named = {"c": c, "still": still, "unused": unused, "b": b, "many": many, "inner": inner, "a": a}
        grads = dict(
            zip(named, torch.autograd.grad(z, list(named.values()), retain_graph=True, allow_unused=True), strict=True)
        )
        wanted = ["a", "inner", "many", "b", "c", "still"]  # 42.4, 14.1, 6, 4, 3, 0
        if flip < 0:
            wanted = ["a", "b", "inner", "many", "c", "still"]  # 42.4, 40, 14.1, 6, 3, 0
        old = torch.full_like(a, 100.0)
        a.grad = old.clone()
        got = trial.call(z, named)
        _expect_untouched(a, old, inner, {"b": b, "c": c, "still": still, "a leaf outside": outside})
        if isinstance(got, set | frozenset):
            raise NotYet("the answer is a set, which has no order", expected='a list such as ["a", "b"]')
        if got is None or isinstance(got, str | Tensor | dict) or not isinstance(got, Iterable):
            raise NotYet(
                "the answer is not a list of names", expected='a list such as ["a", "b"]', got=tensor_text(got)
            )
        got = list(got)
        shown = {"expected": str(wanted), "got": tensor_text(got)}
        if not all(isinstance(one, str) for one in got):
            raise NotYet("the list holds other things than names", **shown)
        if "unused" in got:
            raise NotYet(
                "`unused` is in your list, and z does not depend on it",
                **shown,
                likely="zero is not None: only None says `not on the way`" if got[:-2] == wanted[:-1] else None,
            )
        if "still" not in got and got == wanted[:-1]:
            raise NotYet(
                "a tensor on the way is missing",
                **shown,
                likely="zero is not None: z does depend on `still`, with a gradient of zero",
            )
        if got == wanted[::-1]:
            raise NotYet("the weakest comes first", **shown, likely="sorted() counts up: reverse=True")
        if sorted(map(str, got)) != sorted(wanted):
            raise NotYet("these are not the tensors that z depends on", **shown)
        if got != wanted:
            raise NotYet("the order is another one", **shown, likely=_why_order(got, grads))
    return "the tensors on the way to z, by the size of their gradient, and every .grad untouched"


def _why_order(got: list[Any], gradients: Mapping[str, Tensor | None]) -> str | None:
    """Which other measure sorts the tensors as the answer did, if exactly one does."""
    grads = {name: grad for name, grad in gradients.items() if grad is not None}
    measures: dict[str, Callable[[Tensor], float]] = {
        "the sum, where numbers of both signs cancel: use grad.norm()": lambda g: g.sum().item(),
        "the largest number alone: use grad.norm()": lambda g: g.abs().max().item(),
        "the sum of the sizes: use grad.norm()": lambda g: g.abs().sum().item(),
        "a mean, which does not grow with the number of elements: use grad.norm()": lambda g: g.square().mean().item(),
    }
    fits = [words for words, of in measures.items() if sorted(grads, key=lambda n: -of(grads[n])) == got]
    return fits[0] if len(fits) == 1 else None


def _expect_untouched(a: Tensor, old: Tensor, inner: Tensor, others: dict[str, Tensor]) -> None:
    if a.grad is None:
        raise NotYet(
            "a came with an old .grad, and it is gone",
            expected=f"a.grad = {tensor_text(old)}, as before",
            got="a.grad = None",
        )
    written = {"a": not same(a.grad, old), "inner": inner.retains_grad}
    written |= {name: t.grad is not None for name, t in others.items()}
    if any(written.values()):
        first = next(name for name, is_written in written.items() if is_written)
        likely = None
        if any(written[name] for name in ("b", "a leaf outside")):
            likely = "backward() fills .grad all the way down; torch.autograd.grad returns gradients"
        raise NotYet(f".grad of {first} was written", expected="every .grad is as it was", likely=likely)


@exercise("1.5", "Use a graph several times, then let it go")
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
                "x.grad is still None",
                expected=tensor_text(wanted),
                got="None",
                likely=None if passes else "backward() did not run",
            )
        shown = {"expected": f"x.grad = {tensor_text(wanted)}", "got": f"x.grad = {tensor_text(x.grad)}"}
        if len(passes) == 1 < times and same(x.grad, wanted):
            raise NotYet(
                f"one pass with a larger gradient is not {times} passes",
                expected=f"{times} backward passes through the same graph",
                got="1 pass, and the right sum in x.grad",
                likely="times · z, or backward(times): a hook on x would run once only",
            )
        if len(passes) != times:
            likely = "off by one: count the last pass, the one that frees the graph, too"
            raise NotYet(
                f"backward ran {len(passes)} {'time' if len(passes) == 1 else 'times'}, not {times}",
                **shown,
                likely=likely if _is_off_by_one(trial, len(passes) - times) else None,
            )
        if not same(x.grad, wanted):
            raise NotYet("the passes do not add up to the right sum", **shown)
        if x.grad.requires_grad:
            raise NotYet(
                "x.grad has a graph of its own",
                expected="a gradient as any ordinary backward() leaves it",
                likely="create_graph=True makes a graph of the backward pass; retain_graph=True keeps the one of z",
            )
        if z.grad_fn is None:
            raise NotYet("z was cut off from its graph", expected="z as it was, and what its graph had saved freed")
        if _can_run_again(z):
            raise NotYet(
                f"with times = {times}, the graph is still in memory afterwards",
                expected="one more z.backward() raises RuntimeError",
                got="one more z.backward() runs",
                likely="retained to the end: the last pass needs no retain_graph=True",
            )
    return "the passes add up in x.grad, and the last one frees what the graph had saved"


def _is_off_by_one(trial: Trial, by: int) -> bool:
    """Whether there is always one pass too many, or one too few, for other numbers of passes too."""
    for times in (2, 4):
        x = torch.tensor([1.0], requires_grad=True)
        passes: list[Tensor] = []
        x.register_hook(passes.append)
        trial.call((x**2).sum(), times)
        if len(passes) != times + by:
            return False
    return abs(by) == 1


def _can_run_again(z: Tensor) -> bool:
    try:
        z.backward(retain_graph=True)
    except RuntimeError:
        return False
    return True


@exercise("1.6", "A whole descent")
def a_whole_descent(trial: Trial) -> str:
    said = _expect_path(trial, torch.tensor([1.0, -4.0]), 0.25, 6)
    _expect_path(trial, torch.tensor([-2.0, 3.0]), 1.0, 4)  # at rest after one step
    none = expect_tensor(trial.call(torch.tensor([1.0, -4.0]), 0.25, 0), "the path", (1, 2))
    if not same(none.detach(), torch.tensor([[1.0, -4.0]])):
        raise NotYet("with steps = 0, the path is not the start alone", expected="[[1, -4]]", got=tensor_text(none))
    return said


def _expect_path(trial: Trial, start: Tensor, lr: float, steps: int) -> str:
    given = start.clone()
    got = trial.call(given, lr, steps)
    got = expect_tensor(got, "the path")
    if got.shape == (steps, 2):
        raise NotYet(
            "the path is one row short",
            expected=f"shape {(steps + 1, 2)}: the start, then one row after each step",
            got=f"shape {tuple(got.shape)}",
            likely="fence-post: n steps visit n + 1 points",
        )
    got = expect_tensor(got, "the path", (steps + 1, 2))
    # z = ½(y₁² + y₂²) with y = x + 2, so dz/dx = x + 2: each step shrinks x + 2 by the factor 1 − lr.
    wanted = (start + 2) * (1 - lr) ** torch.arange(steps + 1).unsqueeze(1) - 2
    if same(got, wanted, 1e-4):
        if given.requires_grad or given.grad is not None:
            raise NotYet(
                f"the path is right, but start {'requires grad' if given.requires_grad else 'has a .grad'} now",
                expected="start as it was: its values, requires_grad and .grad",
                likely="start.requires_grad_() changes the caller's tensor: make a leaf of your own from a clone",
            )
        return f"{steps} steps from {tensor_text(start)} towards [-2, -2], each shrinking x + 2 by {1 - lr:g}"
    shown = {"expected": f"row 2 = {tensor_text(wanted[2])}", "got": f"row 2 = {tensor_text(got[2])}"}
    if same(got, wanted + 2, 1e-4):
        raise NotYet("that is the path of y", **shown, likely="one step too far: the rows are points x, not y = x + 2")
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
    if same(got, (start + 2) * (1 + lr) ** torch.arange(steps + 1).unsqueeze(1) - 2, 1e-4):
        raise NotYet("the path walks uphill", **shown, likely="sign: a descent subtracts lr times the gradient")
    if same(got, (start + 2) * (1 - 2 * lr) ** torch.arange(steps + 1).unsqueeze(1) - 2, 1e-4):
        raise NotYet(
            "each step is twice as long",
            **shown,
            likely="sum instead of half the sum: z = ½(y₁² + y₂²), the mean of the two squares",
        )
    raise NotYet("the path is another one", **shown)
