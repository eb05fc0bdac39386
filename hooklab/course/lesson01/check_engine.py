"""The check of exercise 1.2: the reader's own small autograd."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import error_comes_out, hidden_error
from hooklab.course.exercises.faults import PlannedError
from hooklab.course.exercises.trial import NotYet, Trial


@exercise("1.2", "Pass it on")
def a_small_autograd(trial: Trial) -> str:
    make: Callable[[float], Any] = trial.answer
    _chain(trial, make)
    _fork(trial, make)
    _hooks_look(trial, make)
    _hooks_change(trial, make)
    _passes_add_up(trial, make)
    return "gradients are passed on, add up at a fork, are seen and changed by hooks, and stay in leaves alone"


def _expect(what: str, got: Any, wanted: Any, likely: str | None = None) -> None:
    if isinstance(got, int | float | list) and got == wanted:  # all of them are small whole numbers, and exact
        return
    raise NotYet(f"{what} is another one", expected=repr(wanted), got=_short(got), likely=likely)


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, int | float | list | type(None)) else type(value).__name__
    return text[:80]


def _why_small(trial: Trial, make: Callable[[float], Any]) -> str | None:
    """z = (x · 5) · 7, where 7 · 5 arrives at x: what came tells which of the two a piece lacks."""
    x, five, seven = (trial.run(make, number) for number in (1.0, 5.0, 7.0))
    _backward(trial, x * five * seven)
    piece = "each piece is the gradient times the derivative that stands beside the value"
    return {1.0: f"passed on unchanged: {piece}", 5.0: f"the derivative alone: {piece}"}.get(x.grad)


def _chain(trial: Trial, make: Callable[[float], Any]) -> None:
    """x = 1, y = x + 2, z = y·y·0.5: 0.5 · 2 · 3 · 1 arrives at x."""
    x, two, half = (trial.run(make, number) for number in (1.0, 2.0, 0.5))
    y = x + two
    square = y * y
    z = square * half
    _backward(trial, z)
    inner = {"y": y, "y·y": square, "z": z}
    kept = [name for name, value in inner.items() if value.grad is not None]
    if x.grad is None:
        likely = "kept everywhere but in the leaves: the condition is the other way round" if len(kept) == 3 else None
        raise NotYet("the leaf x kept no gradient", expected="x.grad = 3.0", got="None", likely=likely)
    if kept:
        raise NotYet(
            f"{', '.join(kept)} kept a gradient, and {'was' if len(kept) == 1 else 'were'} computed",
            expected="y.grad is None: only a leaf, made from nothing, keeps it",
            got=f"y.grad = {_short(y.grad)}",
        )
    likely = None
    if x.grad == 1.5:
        likely = "y is used twice in y·y, and one of its two pieces is lost: what arrives adds up"
    elif x.grad in (1.0, 0.5):
        likely = _why_small(trial, make)
    _expect("x.grad, for z = 0.5·y·y with y = x + 2 = 3,", x.grad, 3.0, likely)
    _expect("the gradient of the leaf 0.5", half.grad, 9.0)
    _expect("the gradient of the leaf 2", two.grad, 3.0)


def _backward(trial: Trial, z: Any, if_nothing_came: str | None = None) -> None:
    """Run z.backward(), and tell the roads to a KeyError apart."""
    arrive = getattr(type(z), "arrive", None)
    if not callable(arrive):
        trial.run(z.backward)
        return
    open_calls: list[Any] = []  # of arrive
    deepest = 0

    def noting(value: Any, gradient: float, arriving: Any) -> Any:
        nonlocal deepest
        open_calls.append(value)
        deepest = max(deepest, len(open_calls))
        result = arrive(value, gradient, arriving)
        open_calls.pop()
        return result

    try:
        with patch.object(type(z), "arrive", noting):
            trial.run(z.backward)
    except NotYet as fault:
        error = fault.__cause__
        if not isinstance(error, KeyError) or not isinstance(error.args[0], type(z)):
            raise
        likely = if_nothing_came
        if deepest > 1:
            likely = (
                "arrive called by arrive: put the piece into `arriving`; backward() calls arrive of each value in turn"
            )
        elif open_calls:
            likely = "nothing there yet: the first piece that comes to a value finds no entry in `arriving`"
        if not open_calls:
            raise NotYet(
                "no gradient came to a value that another one was made from",
                expected="in `arriving`, a piece for each value in `made_from`",
                got="KeyError in backward(), which looks there for what has come to the value",
                likely=likely,
            ) from error
        raise NotYet(fault.missing, expected="no exception", likely=likely) from error


def _fork(trial: Trial, make: Callable[[float], Any]) -> None:
    """y goes two ways of different length: z = (y·a)·a + y."""
    x, a = trial.run(make, 2.0), trial.run(make, -3.0)
    y = x * a
    z = (y * a) * a + y
    trial.run(z.backward)
    _expect("x.grad, where y goes two ways,", x.grad, -30.0)
    _expect("a.grad, which is used three times,", a.grad, 56.0)
    x, a = trial.run(make, 2.0), trial.run(make, -3.0)
    y = x * x
    trial.run((y * a + y * a).backward)
    _expect("x.grad, where two negative pieces come to y,", x.grad, -24.0)
    x, zero = trial.run(make, 2.0), trial.run(make, 0.0)
    y = x * x
    _backward(trial, y * zero, if_nothing_came="a piece of 0.0 left out: it is a gradient like any other")
    likely = "0.0 is a gradient and not None: ask `is not None`" if x.grad is None else None
    _expect("x.grad, where a piece of 0.0 comes to y,", x.grad, 0.0, likely)


def _hooks_look(trial: Trial, make: Callable[[float], Any]) -> None:
    x, three = trial.run(make, 1.0), trial.run(make, 3.0)
    y = x * three
    z = y * y + y
    seen: list[tuple[str, float]] = []
    for name, value in {"x": x, "y": y, "z": z}.items():
        value.hooks.append(partial(lambda name, gradient: seen.append((name, gradient)), name))  # one argument is free
    try:
        trial.run(z.backward)
    except NotYet as fault:
        if not _runs_with_an_echo(trial, make):
            raise
        likely = "None taken for a gradient: a hook that returns None leaves the gradient as it is"
        raise NotYet(fault.missing, expected="no exception", likely=likely) from fault
    of_y = [gradient for name, gradient in seen if name == "y"]
    if not of_y:
        raise NotYet("a hook on y never ran", expected="one call, with 7.0", got="no call")
    if len(of_y) > 1:
        raise NotYet(
            "the hook on y ran more than once in one backward",
            expected="one call, with 7.0: the sum of what comes back to y",
            got=f"{len(of_y)} calls, with {of_y}",
        )
    _expect("what a hook on y = 3 sees, for z = y·y + y,", of_y, [7.0])
    _expect("the order in which hooks run", [name for name, _ in seen], ["z", "y", "x"])
    if x.grad is None:
        raise NotYet("x kept no gradient once a hook looked on", expected="21.0", got="None")
    _expect("x.grad, with hooks that only look,", x.grad, 21.0, "a hook that returns None leaves the gradient as it is")


def _runs_with_an_echo(trial: Trial, make: Callable[[float], Any]) -> bool:
    """Whether the same backward is right when each hook returns what it was given, in place of None."""
    x, three = trial.run(make, 1.0), trial.run(make, 3.0)
    y = x * three
    z = y * y + y
    for value in (x, y, z):
        value.hooks.append(lambda gradient: gradient)
    try:
        trial.run(z.backward)
    except NotYet:
        return False
    return bool(x.grad == 21.0)


def _hooks_change(trial: Trial, make: Callable[[float], Any]) -> None:
    def run(*hooks: Callable[[float], Any]) -> Any:
        x, three = trial.run(make, 1.0), trial.run(make, 3.0)
        y = x * three
        y.hooks.extend(hooks)
        trial.run((y * y).backward)
        return x.grad

    got = run(lambda gradient: 10)
    if got == 18.0:
        raise NotYet(
            "what a hook returns is lost",
            expected="a hook on y returns 10, and x gets 3 · 10 = 30",
            got="x.grad = 18.0, as without the hook",
        )
    _expect("x.grad, when a hook on y returns 10,", got, 30.0)
    _expect(
        "x.grad, when a hook on y returns 0.0,",
        run(lambda gradient: 0.0),
        0.0,
        "0.0 is a gradient and not None: ask `is not None`",
    )
    seen: list[tuple[str, float]] = []

    def adding(gradient: float) -> float:
        seen.append(("adds 1", gradient))
        return gradient + 1

    def doubling(gradient: float) -> float:
        seen.append(("doubles", gradient))
        return 2 * gradient

    got = run(adding, doubling)
    _expect("x.grad, when one hook on y adds 1 and the next doubles,", got, 42.0, _why_two_hooks(seen))
    x = trial.run(make, 1.0)
    kept: list[Any] = []

    def noting(gradient: float) -> float:
        kept.append(x.grad)
        return 2 * gradient

    x.hooks.append(noting)
    y = x * trial.run(make, 3.0)
    trial.run((y * y).backward)
    too_early = "kept before the hooks ran: hooks first, and what they made of the gradient is kept"
    likely = too_early if kept == [18.0] and x.grad == 18.0 else None
    _expect("x.grad, when a hook on the leaf x doubles,", x.grad, 36.0, likely)

    def refusing(gradient: float) -> None:
        raise PlannedError

    if not error_comes_out(trial, lambda: run(refusing)):
        raise hidden_error("a hook")


def _why_two_hooks(seen: list[tuple[str, float]]) -> str | None:
    """Why two hooks do not act one after the other, by what they saw; 6 comes to them."""
    if seen == [("adds 1", 6.0), ("doubles", 6.0)]:
        return "each hook gets what the one before it returned"
    if seen and seen[0][0] == "doubles" and len(seen) == 2:
        return "the other way round: hooks run in the order in which they stand in the list"
    return "only one of the two hooks ran" if len(seen) == 1 else None


def _passes_add_up(trial: Trial, make: Callable[[float], Any]) -> None:
    x, three = trial.run(make, 1.0), trial.run(make, 3.0)
    seen: list[float] = []
    x.hooks.append(seen.append)
    z = x * three
    trial.run(z.backward)
    trial.run(z.backward)
    if len(z.made_from) != 2:
        raise NotYet("after backward() a value no longer knows what it was made from", expected="`made_from` as it was")
    _expect("what a hook on x sees in two backward passes", seen, [3.0, 3.0])
    _expect("x.grad after two backward passes of 3.0 each", x.grad, 6.0, "a leaf adds to the gradient it already has")
