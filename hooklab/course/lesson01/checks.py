"""The exercises of lesson 1: who keeps a gradient, a small autograd, ways to get a gradient that was passed on."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hooklab.course.exercises.exercise import Pairs, exercise
from hooklab.course.exercises.faults import NotYet, PlannedError
from hooklab.course.exercises.frames import kind_of
from hooklab.course.exercises.reasons import reason
from hooklab.course.exercises.scenes import error_comes_out, leaf
from hooklab.course.exercises.trial import Trial
from hooklab.course.exercises.values import same, tensor_text


def names_in(got: Any) -> tuple[str, list[str]]:
    """Return what an answer holds, in words, and the names in it."""
    if isinstance(got, str | Tensor) or not isinstance(got, Iterable):
        return tensor_text(got), []
    items = list(got)
    kinds = sorted({kind_of(one) for one in items if not isinstance(one, str)})
    return (f"not names, but {', '.join(kinds)}", []) if kinds else ("names", items)


def why_no_names(got: Any) -> str | None:
    if got is None:
        return "forgotten-return"
    return "one-name" if isinstance(got, str) else "no-names"


def written(grads: dict[str, Tensor | None], tensors: dict[str, Tensor]) -> list[str]:
    """Return the names of the leaves whose .grad has changed since `grads` was noted."""
    return [name for name, old in grads.items() if not _as_it_was(tensors[name].grad, old)]


def _as_it_was(now: Tensor | None, old: Tensor | None) -> bool:
    return now is None if old is None else same(now, old)


def noted(tensors: dict[str, Tensor]) -> dict[str, Tensor | None]:
    leaves = {name: one for name, one in tensors.items() if one.is_leaf}
    return {name: None if one.grad is None else one.grad.clone() for name, one in leaves.items()}


# --- 1.1


def results_and_copies() -> dict[str, Tensor]:
    w, data = leaf(1.0, 1.0), torch.ones(2)
    w.grad = torch.ones(2)  # from an earlier pass, which says nothing about a later one
    return {"w": w, "data": data, "hidden": w * data, "copy": (w * data).detach(), "b": leaf(0.0, 0.0)}


def of_other_kinds() -> dict[str, Tensor]:
    number = torch.tensor(0.0, requires_grad=True)
    number.grad = torch.tensor(-5.0)
    return {
        "left": torch.ones(2),
        "right": torch.nn.Parameter(torch.zeros(1)),
        "number": number,
        "double": leaf(1.0, float("inf"), dtype=torch.float64),
        "empty": torch.empty(0, requires_grad=True),
    }


def made_from_leaves() -> dict[str, Tensor]:
    w = leaf(2.0, -3.0)
    with torch.no_grad():
        unrecorded = w * 2
    return {
        "converted": w.double(),
        "view": w[:1],
        "unrecorded": unrecorded,
        "frozen": torch.nn.Parameter(torch.ones(2), requires_grad=False),
        "counts": torch.tensor([1, 2]),
    }


@exercise(
    "1.1",
    "Who gets a gradient?",
    worlds=(results_and_copies, of_other_kinds, made_from_leaves),
    verified="backward() fills the .grad of every leaf that requires grad, and no other",
)
def who_gets_a_gradient(trial: Trial, make: Callable[[], dict[str, Tensor]]) -> Pairs:
    named = make()
    grads = noted(named)
    got = trial.call(dict(named))
    words, names = names_in(got)
    yield "tensors whose `.grad` your code changed", written(grads, named), "calls-backward"
    yield "what your function returns", words, why_no_names(got)
    yield "~your names", sorted(set(names))
    yield "names in your set that aren't in the dictionary", sorted(set(names) - set(named)), "fixed-names"
    constant = [name for name, one in named.items() if not one.requires_grad]
    yield "names of tensors in your set that don't require grad", sorted(set(names) & set(constant)), "leaf-alone"
    results = [name for name, one in named.items() if not one.is_leaf]
    yield "names of non-leaf tensors in your set", sorted(set(names) & set(results)), "requires-grad-alone"
    yield "names missing in your set", sorted(set(named) - set(constant) - set(results) - set(names)), "leaf-missing"


# --- 1.2


Hook = Callable[[float], float | None]


class Computation(NamedTuple):
    """A computation with three leaves, sent back from z through the learner's class."""

    text: str
    leaves: tuple[float, float, float]
    build: Callable[[Any, Any, Any], tuple[Any, Any]]  # takes the leaves x, a and b; returns y and z
    why: str = "chain-rule"  # the reason if the gradients are wrong
    why_at: tuple[tuple[float, str], ...] = ()  # and if x.grad is just this number
    why_error: str | None = None  # the reason for an exception that earlier computations have not raised
    hooks: tuple[tuple[str, str, Hook], ...] = ()  # the name of a value, what the hook does, the hook
    passes: int = 1


def refuses(gradient: float) -> float:
    raise PlannedError


def squared(*hooks: tuple[str, str, Hook], why: str = "hook-result", lost: str = "hook-result-lost") -> Computation:
    """z = y·y with y = x·3: 18 arrives at x, if the hooks change nothing."""
    text = "z = y·y with y = x·a, a = 3, where " + " and ".join(f"a hook on {name} {what}" for name, what, _ in hooks)
    return Computation(text, (1.0, 3.0, 0.0), lambda x, a, b: (y := x * a, y * y), why, ((18.0, lost),), None, hooks)


PLAIN = ((1.0, "passed-on-unchanged"), (5.0, "derivative-alone"), (13.0, "sum-for-product"))
LOST = ((1.5, "piece-lost"),)
ZERO = "y = x·x, z = y·b with b = 0: a piece of 0.0 arrives at y"
COMPUTATIONS = (
    Computation(
        "y = x·a, z = y·b, with a = 5, b = 7", (1.0, 5.0, 7.0), lambda x, a, b: (y := x * a, y * b), why_at=PLAIN
    ),
    Computation(
        "y = x + a, z = y·y·b, with x = 1, a = 2, b = 0.5",
        (1.0, 2.0, 0.5),
        lambda x, a, b: (y := x + a, y * y * b),
        "pieces-add-up",
        LOST,
    ),
    Computation(
        "y = x·x, z = (y·a)·b + y·a", (2.0, -3.0, 2.0), lambda x, a, b: (y := x * x, y * a * b + y * a), "pieces-add-up"
    ),
    Computation(
        ZERO, (2.0, 1.0, 0.0), lambda x, a, b: (y := x * x, y * b), "zero-is-a-gradient", why_error="zero-left-out"
    ),
    Computation(
        "y = x·a, z = y·y + y, where hooks on x, y and z return None",
        (1.0, 3.0, 0.0),
        lambda x, a, b: (y := x * a, y * y + y),
        "none-changes-nothing",
        why_error="none-for-gradient",
        hooks=tuple((name, "returns None", lambda gradient: None) for name in "xyz"),
    ),
    squared(("y", "returns 10", lambda gradient: 10)),
    squared(("y", "returns 0.0", lambda gradient: 0.0), lost="zero-is-a-gradient"),
    squared(("y", "adds 1", lambda gradient: gradient + 1), ("y", "doubles", lambda gradient: gradient * 2)),
    squared(("x", "doubles", lambda gradient: gradient * 2)),
    squared(("x", "looks, in two passes", lambda gradient: gradient), why="grad-replaced")._replace(
        passes=2, why_at=()
    ),
    squared(("y", "raises an exception", refuses)),
)


@exercise(
    "1.2",
    "Pass it on",
    worlds=COMPUTATIONS,
    verified="gradients are passed on, added up, and changed by hooks, and only leaves keep them",
)
def a_small_autograd(trial: Trial, world: Computation) -> Pairs:
    x, a, b = (trial.run(trial.answer, number) for number in world.leaves)
    given = all(hasattr(one, "made_from") for one in (x + x, x * x))
    yield "whether `+` and `*` of two values give a value", given, "given-methods"
    y, z = world.build(x, a, b)
    values = {"x": x, "a": a, "b": b, "y": y, "z": z}
    seen: list[tuple[str, float]] = []
    early: list[Any] = []

    def note(words: str, hook: Hook, gradient: float) -> float | None:
        seen.append((words, gradient))
        early.append(x.grad)
        return hook(gradient)

    for name, words, hook in world.hooks:
        values[name].hooks.append(partial(note, f"{name}: {words}", hook))
    if world.hooks and world.hooks[0][2] is refuses:
        yield f"whether the exception comes out, for {world.text}", error_comes_out(trial, z.backward), "swallowed"
        return
    for _ in range(world.passes):
        sent_back(trial, z, world.why_error)
    kept = [name for name, value in values.items() if value.grad is not None]
    yield f"values whose .grad isn't None, for {world.text}", kept, "leaves-keep"
    yield "~x.grad when each hook runs", early
    many, one_of_two = len(seen) > len(world.hooks) * world.passes, len(seen) == 1 and len(world.hooks) == 2
    why = "hook-runs-for-each-piece" if many else "one-hook-alone" if one_of_two else None
    yield f"the hooks that run, in order, for {world.text}", [words for words, _ in seen], why
    yield f"what the hooks receive, for {world.text}", [gradient for _, gradient in seen], "hook-argument"
    label = next((label for number, label in world.why_at if x.grad == number), world.why)
    yield f"the gradients of the leaves, for {world.text}", {"x": x.grad, "a": a.grad, "b": b.grad}, label
    yield "the number of pairs in z.made_from after backward()", len(z.made_from), "graph-dropped"


def sent_back(trial: Trial, z: Any, likely: str | None) -> None:
    """Run z.backward(). The exceptions that the steps of the card bring about are recorded by what they mean."""
    try:
        trial.run(z.backward)
    except NotYet as fault:
        error = fault.__cause__
        if isinstance(error, TypeError) and "NoneType" in str(error):
            meaning = "none-plus-gradient"
        elif isinstance(error, KeyError) and isinstance(error.args[0], type(z)):
            in_backward = traceback.extract_tb(error.__traceback__)[-1].name == "backward"
            meaning = "nothing-passed-on" if in_backward else "no-entry-yet"
        else:
            raise
        sentence = reason("1.2", likely or meaning, trial.name)
        raise NotYet(fault.missing, expected="no exception", likely=sentence, label=meaning) from error


# --- 1.3


@exercise(
    "1.3",
    "Fix it: the gradient of a hidden value",
    worlds=(
        (torch.tensor([1.0, 2.0, -1.0]), torch.tensor([3.0, -1.0, 2.0]), 100.0),
        (torch.tensor([[0.5], [-4.0]]), torch.tensor([[2.0, 1.0, -1000.0]]), 7.0),
        (torch.tensor([3.0, 0.0], dtype=torch.float64), torch.tensor([-2.0, 5.0], dtype=torch.float64), None),
    ),
    verified="the gradient of hidden, for three shapes, and w.grad as after one ordinary backward()",
)
def gradient_of_hidden(trial: Trial, world: tuple[Tensor, Tensor, float | None]) -> Pairs:
    values, inputs, old = world
    w, x = values.clone().requires_grad_(), inputs.clone()
    w.grad = None if old is None else torch.full_like(w, old)
    passes: list[Tensor] = []
    w.register_hook(passes.append)
    got = trial.call(w, x)
    ran = "none-after-backward" if passes else "no-backward"
    kind = "a tensor" if isinstance(got, Tensor) else tensor_text(got)
    yield "what your function returns", kind, ran if got is None else None
    why = "another-loss" if isinstance(got, Tensor) and got.shape == (w * x).shape else "another-shape"
    why = "gradient-of-w" if passes and same(got, passes[0]) else why
    yield f"the gradient of w * x, for w = {tensor_text(w)} and x = {tensor_text(x)}", got, why
    yield "the number of gradients that reach w", len(passes), "several-passes" if passes else "nothing-reaches-w"
    yield f"w.grad, which was {'None' if old is None else f'{old:g} everywhere'} before", w.grad, "not-one-backward"


# --- 1.4


def many_measures(flip: float, weight: float) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """A z of which every other measure than the norm sorts the tensors in another way."""
    a, b, c, unused, still = leaf(1.0, -1.0), leaf(3.0), leaf(1.0, 2.0, 0.0, 1.0), leaf(9.0), leaf(5.0)
    outside, many = leaf(1.0), leaf(*[1.0] * 9)
    a.grad = torch.full_like(a, 100.0)
    inner = a * 3
    z = flip * (10 * inner[0] - 10 * inner[1] + weight * b.sum() + 1.5 * c.sum() + 0 * still.sum() + outside.sum())
    named = {"c": c, "still": still, "unused": unused, "b": b, "many": many, "inner": inner, "a": a}
    return z + 2 * many.sum(), named, outside


def equal_norms() -> tuple[Tensor, dict[str, Tensor], Tensor]:
    p, q, r, s = leaf(1.0, 1.0), leaf(2.0, dtype=torch.float64), leaf(-3.0), leaf(0.0, 0.0, 0.0, 0.0)
    outside = leaf(1.0)
    z = 3 * p[0] - 4 * p[1] + 5 * q + 6 * r + 4.5 * s[0] + outside
    return z, {"p": p, "q": q, "r": r, "s": s}, outside


def nothing_used() -> tuple[Tensor, dict[str, Tensor], Tensor]:
    outside = leaf(1.0)
    return (2 * outside).sum(), {"left": leaf(1.0), "right": leaf(1.0)}, outside


@exercise(
    "1.4",
    "What does z depend on, and how strongly?",
    worlds=(partial(many_measures, 1.0, 4.0), partial(many_measures, -1.0, 40.0), equal_norms, nothing_used),
    verified="the tensors that z depends on, in order of their gradient's norm, and every .grad unchanged",
)
def strongest_first(trial: Trial, make: Callable[[], tuple[Tensor, dict[str, Tensor], Tensor]]) -> Pairs:
    z, named, outside = make()
    found = torch.autograd.grad(z, list(named.values()), retain_graph=True, allow_unused=True)
    norms = {name: round(grad.norm().item(), 4) for name, grad in zip(named, found, strict=True) if grad is not None}
    leaves = {**named, "a leaf outside the dictionary": outside}
    grads = noted(leaves)
    got = trial.call(z, dict(named))
    changed = written(grads, leaves)
    why = "backward-writes" if "a leaf outside the dictionary" in changed else None
    yield "tensors whose `.grad` your code changed", changed, why
    yield "non-leaf tensors with retain_grad()", [name for name, one in named.items() if one.retains_grad], "retains"
    words, listed = names_in(got)
    if isinstance(got, set | frozenset | dict):
        yield "what your function returns", f"a {kind_of(got)}", "no-order"
    else:
        yield "what your function returns", words, why_no_names(got)
    in_order = [name for _, tied in groupby(listed, norms.get) for name in sorted(tied)]
    yield "names in your list of tensors that z doesn't depend on", sorted(set(listed) - set(norms)), "unused-listed"
    missing = sorted(set(norms) - set(listed))
    yield "names missing in your list", missing, "zero-left-out" if missing == ["still"] else None
    yield "your list", in_order, "another-measure"


# --- 1.5


@exercise(
    "1.5",
    "Use a graph several times, then let it go",
    worlds=(5, 1, 2),
    verified="the passes add up in x.grad, and the last one frees the graph",
)
def use_a_graph_several_times(trial: Trial, times: int) -> Pairs:
    x = leaf(1.0, -3.0, dtype=torch.float64 if times == 2 else torch.float32)
    x.grad = torch.full_like(x, 10.0) if times == 2 else None
    passes: list[Tensor] = []
    x.register_hook(passes.append)
    z = (x**2).sum()
    trial.call(z, times)
    yield "~x.grad", x.grad
    why = {0: "no-backward", times - 1: "one-too-few", times + 1: "one-too-many"}.get(len(passes))
    yield f"the number of backward passes, for times = {times}", len(passes), why
    yield f"x.grad, for z = (x²).sum() with x = {tensor_text(x)}, times = {times}", x.grad, "not-the-sum"
    yield "x.grad.requires_grad", x.grad is not None and x.grad.requires_grad, "create-graph"
    yield "whether z still has its grad_fn", z.grad_fn is not None, "detached"
    outcome = "works" if _can_run_again(z) else "raises RuntimeError"
    yield f"one more z.backward() afterwards, for times = {times}", outcome, "kept-to-the-end"


def _can_run_again(z: Tensor) -> bool:
    try:
        z.backward(retain_graph=True)
    except RuntimeError:
        return False
    return True


# --- 1.6


@exercise(
    "1.6",
    "A whole descent",
    worlds=(([1.0, -4.0], 0.25, 6), ([-2.0, 3.0], 1.0, 4), ([1000.0, -4.0], 0.5, 3), ([1.0, -4.0], 0.25, 0)),
    verified="four paths towards [-2, -2], each step shrinking x + 2 by the factor 1 - lr",
)
def a_whole_descent(trial: Trial, world: tuple[list[float], float, int]) -> Pairs:
    values, lr, steps = world
    start = torch.tensor(values)
    got = trial.call(start, lr, steps)
    yield "whether start.grad is still None", start.grad is None, "start-has-a-gradient"
    is_list = isinstance(got, list | tuple)
    kind = "a tensor" if isinstance(got, Tensor) else "a list" if is_list else tensor_text(got)
    yield "what your function returns", kind, {"None": "forgotten-return", "a list": "list-of-points"}.get(kind)
    shape = list(got.shape)
    yield "~the path", got
    yield f"the shape of the path, for {steps} steps", shape, "fence-post" if shape == [steps, 2] else "one-row-each"
    yield f"the first row of the path, for the start {values}", got[0].detach().float(), "first-row"
    yield f"the path from {values}, with lr = {lr:g} and steps = {steps}", got.detach().float(), "another-step"
