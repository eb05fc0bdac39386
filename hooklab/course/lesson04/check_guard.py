"""The check of exercise 4.2: a pre-hook that refuses inputs which are not finite, and no others."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import expect_handle
from hooklab.course.exercises.misconceptions import fitting
from hooklab.course.exercises.trial import NotYet, Trial, first_words, learners_line, tensor_text
from hooklab.course.exercises.varying import every_pass, returns_of_pre_hooks
from hooklab.course.lesson04.calls import FORWARD_HOOK, REGISTER, Seen, places, registered, run

_NAN, _INF = float("nan"), float("inf")

INPUTS = {
    "small numbers": [[1.0, -2.0, 3.0]],
    "zeros": [[0.0, 0.0, 0.0]],
    "one large number": [[1e10, 0.0, 1.0]],
    "one still larger number": [[1.5e19, 0.0, 1.0]],
    "one very large number": [[1e30, 0.0, 1.0]],
    "one number near the largest of all": [[3e38, 0.0, 1.0]],
    "two very large numbers": [[1e30, 1e30, 1.0]],
    "two large numbers": [[1.5e19, 1.5e19, 1.0]],
    "very large numbers in two rows": [[3e38, 3e38, 1.0], [3e38, 1.0, -1e30]],
    "a NaN": [[1.0, _NAN, 3.0]],
    "an infinity": [[1.0, _INF, 3.0]],
    "a negative infinity": [[1.0, -_INF, 3.0]],
    "both infinities": [[_INF, 2.0, -_INF]],
    "a NaN in its first row": [[_NAN, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]],
    "a NaN in its second row": [[1.0, 2.0, 3.0], [4.0, _NAN, 6.0], [7.0, 8.0, 9.0]],
    "a sequence with a NaN": [[[1.0, 2.0, 3.0], [4.0, _NAN, 6.0]]],
    "an infinity in its last row": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, _INF]],
    "nothing but NaN": [[_NAN, _NAN, _NAN]],
}

LARGE = {"a number too large for float32": [[1e300, 0.0, 1.0]]}

# What a guard may look at instead: whether it refuses an input.
GUESSES = {
    "only NaN: torch.isfinite is False for NaN and for both infinities": lambda x: x.isnan().any(),
    "only the infinities: torch.isfinite is False for NaN, too": lambda x: x.isinf().any(),
    "only one infinity: torch.isfinite is False for NaN and for both": lambda x: (x.isnan() | x.isposinf()).any(),
    "only the negative infinity: torch.isfinite is False for both": lambda x: (x.isnan() | x.isneginf()).any(),
    "only its first row was looked at: `torch.isfinite(x).all()` looks at every number": lambda x: _bad(x[0]).any(),
    "only its last row was looked at: `torch.isfinite(x).all()` looks at every number": lambda x: _bad(x[-1]).any(),
    "any and all: refuse if any number is not finite, not only if all are": lambda x: _bad(x).all(),
    "turned around: the finite inputs are refused, and the others let in": lambda x: not _bad(x).any(),
    "all and any: `.all()` asks whether every number is NaN": lambda x: not x.isnan().all(),
    "a bound: large numbers are finite, too": lambda x: not (x.abs() < 1e4).all(),
    "a bound, or a square: very large numbers are finite, too": lambda x: _bad(x**2).any(),
    "a sum or a mean: it can be infinite when no number is": lambda x: _bad(x.sum()),
    "a norm: the squares of large numbers can be infinite when they are not": lambda x: _bad(x.norm()),
    "the hook never raises": lambda x: False,
    "the hook always raises": lambda x: True,
}


def _bad(x: Tensor) -> Tensor:
    return ~torch.isfinite(x)


class _Try(NamedTuple):
    """An input in one pass, and what came of it: ValueError, nothing, or another fault."""

    which: str
    what: str
    x: Tensor
    came: ValueError | NotYet | None


@exercise("4.2", "A guard at the door")
def a_guard_at_the_door(trial: Trial) -> str:
    for model, layer, dtype in places(3):
        seen, tries = Seen(layer), []
        inputs = INPUTS | (LARGE if dtype is torch.float64 else {})
        handle = registered(trial, layer)
        for which in every_pass(model):
            for what, x in ((what, torch.tensor(rows, dtype=dtype)) for what, rows in inputs.items()):
                tries.append(_Try(which, what, x, _door(trial, model, seen, handle, x)))
        _judge(tries, layer)
        expect_handle(handle, REGISTER)
        trial.run(handle.remove)
        trial.expect_none_left()
    return "finite inputs pass untouched; NaN and inf, anywhere, raise ValueError before forward runs"


def _judge(tries: list[_Try], layer: nn.Module) -> None:
    likely = fitting([isinstance(one.came, ValueError) for one in tries], GUESSES, [one.x for one in tries])
    for which, what, x, came in tries:
        should_raise = bool(_bad(x).any())
        if isinstance(came, NotYet):
            raise came
        if came is not None and not should_raise:
            raise NotYet(
                f"{which}an input with {what} was refused",
                expected="only NaN and the infinities are kept out",
                got=f"{tensor_text(x)} raised ValueError, {learners_line(came) or 'nobody knows where'}",
                likely=likely,
            )
        if came is None and should_raise:
            raise NotYet(
                f"{which}an input with {what} was let in",
                expected="ValueError before forward runs",
                got="no error",
                likely=FORWARD_HOOK if layer._forward_hooks and not layer._forward_pre_hooks else likely,
            )


def _door(trial: Trial, model: nn.Module, seen: Seen, handle: Any, x: Tensor) -> ValueError | NotYet | None:
    """What happens to an input: refused by ValueError, let in, or another fault."""
    runs = seen.runs
    try:
        with trial.watch(x):
            run(model, x, handle=handle, seen=seen)
    except ValueError as error:
        if trial.faults:
            return trial.faults.pop(0)
        if seen.runs == runs:
            return error
        return NotYet(
            "forward had already run when the error came",
            expected="the guard stands before forward",
            likely=FORWARD_HOOK if seen.layer._forward_hooks else None,
        )
    except NotYet as fault:
        return fault
    except Exception as error:
        line = learners_line(error) or ""
        if not line or not _bad(x).any():
            raise
        return NotYet(
            "a bad input raised another kind of error",
            expected="ValueError",
            got=f"{': '.join(filter(None, (type(error).__name__, first_words(error))))}, {line}",
            likely="assert raises AssertionError, and python -O removes it" if "`assert " in line else None,
        )
    if trial.faults:
        return trial.faults.pop(0)
    return None if seen.args[0] is x else _replaced(seen, x)


def _replaced(seen: Seen, x: Tensor) -> NotYet:
    returned = returns_of_pre_hooks(seen.layer, set(), x)
    return NotYet(
        "an input does not arrive as the very object that was passed in",
        expected="the same tensor, or ValueError",
        got=tensor_text(seen.args),
        likely="too much: a guard looks and returns None" if any(one is not None for one in returned) else None,
    )
