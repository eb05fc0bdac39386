"""The check of exercise 4.3: another default for a keyword argument of a module that is somebody else's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import expect_handle
from hooklab.course.exercises.misconceptions import fitting
from hooklab.course.exercises.trial import NotYet, Trial, first_words, learners_line, same, tensor_text
from hooklab.course.exercises.varying import every_pass, returns_of_pre_hooks
from hooklab.course.lesson04.calls import REGISTER, registered, run, why_as_it_was

NOTHING_FILLED_IN = "nothing was filled in"
_REFUSED = (TypeError, RuntimeError)  # by forward, or by torch, which wants both parts back from the hook
Names = dict[str, Any]  # the arguments that a call names

CALLS: list[Names] = [
    {},
    *[{"scale": scale} for scale in (2.0, 0.0, 1.0, -20.0, 20.0)],
    {"shift": 5.0},
    {"shift": 5.0, "scale": 2.0},
    {"scale": 0.0, "shift": -1.0},
]


def _guesses(default: float) -> dict[str, Callable[[Names], Names]]:
    """What a hook may do with the named arguments instead."""
    new = {"scale": default}
    return {
        NOTHING_FILLED_IN: lambda names: names,
        "overwritten: only fill in what is missing": lambda names: {**names, **new},
        'truth instead of presence: 0 is a scale, too; ask whether `"scale" in kwargs`': lambda names: (
            {**names, "scale": names.get("scale") or default}
        ),
        "the module's own default, when a caller names it, is a scale like any other": lambda names: (
            {**names, "scale": default if names.get("scale", 1.0) == 1.0 else names["scale"]}
        ),
        "lost arguments: return all of kwargs, and not scale alone": lambda names: (
            {**new, "scale": names["scale"]} if "scale" in names else new
        ),
        "every mix of named arguments may come: fill in scale, whatever else is there": lambda names: names or new,
    }


def _module() -> Any:
    """A module with keyword arguments that callers may leave out, of a class that no answer has touched before."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[tuple[Tensor, float, float]] = []

        def forward(self, x: Tensor, *, scale: float = 1.0, shift: float = 0.0) -> Tensor:
            self.seen.append((x, scale, shift))
            return x * scale + shift

    return Scaled()


class _Call(NamedTuple):
    """One call: in which pass, its arguments by name, what forward got (or the error of the call), and the result.

    If forward has not run once, it got None, and the result is how often it has run.
    """

    which: str
    names: Names
    got: tuple[Tensor, float, float] | TypeError | RuntimeError | None
    output: Any = None

    def __str__(self) -> str:
        named = [f"{name}={'x' if name == 'x' else f'{value:g}'}" for name, value in self.names.items()]
        return f"{self.which}module({', '.join(named if 'x' in self.names else ['x', *named])})"


@exercise("4.3", "A default for a keyword argument")
def a_default_for_a_keyword(trial: Trial) -> str:
    x = torch.tensor([1.0, 2.0])
    for default in (10.0, -3.0, 0.0):
        module, calls = _module(), []
        sibling = type(module)()
        handle = registered(trial, module, default)
        for which in every_pass(module):
            calls += [_call(which, module, handle, x, names) for names in CALLS]
            calls += [_call(which, module, handle, x, {"x": x, **names}) for names in CALLS]
        _judge(calls, module, default, x)
        _expect_refused(module, x)
        if not same(sibling(x), x):
            raise NotYet(
                "another module of the same class has the new default, too",
                expected="a hook on the one module that your function was given",
            )
        expect_handle(handle, REGISTER)
        trial.run(handle.remove)
        run(module, x)
        if module.seen[-1][1] != 1.0:
            raise NotYet(
                "after handle.remove() the new default is still there",
                expected="scale = 1, the module's own",
                got=f"scale = {module.seen[-1][1]:g}",
            )
        trial.expect_none_left()
    return "a missing scale is filled in, a given one is kept, and everything else comes through"


def _judge(calls: list[_Call], module: nn.Module, default: float, x: Tensor) -> None:
    for call in calls:
        scale, shift = call.names.get("scale", default), call.names.get("shift", 0.0)
        if isinstance(call.got, _REFUSED):
            raise _explained(call, module, x) from call.got
        if call.got is None:
            raise NotYet(f"{call} runs forward {call.output} times", expected="one run of forward for each call")
        given = "x itself" if call.got[0] is x else tensor_text(call.got[0])
        if call.got[0] is not x or call.got[1:] != (scale, shift):
            raise NotYet(
                f"{call} does not get what it should",
                expected=f"scale = {scale:g}, shift = {shift:g}, and x itself",
                got=f"scale = {call.got[1]:g}, shift = {call.got[2]:g}, and {given}",
                likely=_likely(calls, module, default, x),
            )
        if not same(call.output, x * scale + shift):
            raise NotYet(f"{call} returns something else than forward does", got=tensor_text(call.output))


def _expect_refused(module: Any, x: Tensor) -> None:
    try:
        run(module, x, factor=2.0)
    except TypeError:
        return
    raise NotYet("module(x, factor=2) runs", expected="TypeError, as before: `module` knows no such name")


def _call(which: str, module: Any, handle: Any, x: Tensor, names: Names) -> _Call:
    before = len(module.seen)
    try:
        output = run(module, *(() if "x" in names else (x,)), handle=handle, **names)
    except _REFUSED as error:
        if learners_line(error) is not None:
            raise
        return _Call(which, names, error)
    runs = len(module.seen) - before
    return _Call(which, names, module.seen[-1], output) if runs == 1 else _Call(which, names, None, runs)


def _explained(call: _Call, module: nn.Module, x: Tensor) -> NotYet:
    """Say why forward could not even be called."""
    assert isinstance(call.got, _REFUSED)
    args = () if "x" in call.names else (x,)
    returned = returns_of_pre_hooks(module, set(), *args, **call.names)
    pairs = [
        one for one in returned if isinstance(one, tuple) and len(one) == 2 and list(map(type, one)) == [Tensor, dict]
    ]
    return NotYet(
        f"{call} cannot be run any more: {first_words(call.got)}",
        expected="(args, kwargs) from the hook, with all of the caller's arguments in them",
        got=f"{tensor_text(returned[0])} from your hook" if len(returned) == 1 else None,
        likely="a bare tensor in place of args: torch unpacks it as if it were the tuple" if pairs else None,
    )


def _likely(calls: list[_Call], module: nn.Module, default: float, x: Tensor) -> str | None:
    """Why the named arguments are wrong: the same as one of the guesses in every call, or nothing that we know."""

    def what_forward_gets(change: Callable[[Names], Names]) -> Callable[[Names], Any]:
        def program(names: Names) -> Any:
            new = change(names)
            lost_x = "x" in names and "x" not in new
            return "TypeError" if lost_x else (new.get("scale", 1.0), new.get("shift", 0.0))

        return program

    came = ["TypeError" if isinstance(call.got, _REFUSED) else call.got and call.got[1:] for call in calls]
    guesses = {name: what_forward_gets(change) for name, change in _guesses(default).items()}
    found = fitting(came, guesses, [call.names for call in calls])
    return why_as_it_was(module, set(), x) if found == NOTHING_FILLED_IN else found
