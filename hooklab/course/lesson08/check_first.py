"""The check of exercise 8.1: which module is the first to put out an inf or nan though it was given none."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.runs import runs_counted
from hooklab.course.exercises.trial import NotYet, Trial


class Lambda(nn.Module):
    """Computes what a function says."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Tensor:
        """Return the function's result."""
        return self.function(*args)


class Twice(nn.Module):
    """Uses one module twice, and adds."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part
        self.rest = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Return rest(part(part(x)))."""
        rest: Tensor = self.rest(self.part(self.part(x)))
        return rest


class Inside(nn.Module):
    """Takes a logarithm in its own forward."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.ReLU(), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return last(log(first(x)))."""
        last: Tensor = self.last(self.first(x).log())
        return last


class Pair(nn.Module):
    """Adds two branches in a part that takes two arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.big, self.join = Lambda(lambda x: x * 1e20), Lambda(lambda a, b: a / b)

    def forward(self, x: Tensor) -> Tensor:
        """Return x / (1e20 · x), elementwise."""
        join: Tensor = self.join(x, self.big(x))
        return join


def _sequence(**parts: nn.Module) -> nn.Sequential:
    return nn.Sequential(OrderedDict(parts))


class World(NamedTuple):
    """A model and what goes in; which module is the first, and the largest magnitude that it was given."""

    text: str
    model: Callable[[], nn.Module]
    x: list[float]
    wanted: tuple[str, float] | None


def _exp() -> nn.Module:
    return Lambda(torch.exp)


def _log() -> nn.Module:
    return Lambda(torch.log)


def _zero() -> nn.Module:
    return Lambda(lambda x: x * 0)


WORLDS = [
    World("a model in which all is finite", lambda: _sequence(a=nn.ReLU(), b=nn.Tanh()), [1.0, -2.0], None),
    World(
        "an exp that overflows to inf", lambda: _sequence(a=nn.ReLU(), b=_exp(), c=nn.Tanh()), [1.0, 90.0], ("b", 90.0)
    ),
    World(
        "a log of a negative number: nan, in one place of three",
        lambda: _sequence(a=nn.Identity(), b=_log(), c=nn.ReLU()),
        [1.0, -7.0, 2.0],
        ("b", 7.0),
    ),
    World("a log of 0: minus infinity", lambda: _sequence(a=nn.ReLU(), b=_log()), [4.0, -7.0], ("b", 4.0)),
    World(
        "a part of a part", lambda: _sequence(a=_sequence(x=nn.ReLU(), y=_exp()), b=nn.ReLU()), [100.0], ("a.y", 100.0)
    ),
    World("two that make one", lambda: _sequence(a=_exp(), b=_zero(), c=_log()), [200.0, 1.0], ("a", 200.0)),
    World("data that hold a nan already", lambda: _sequence(a=nn.ReLU(), b=nn.Tanh()), [1.0, float("nan")], None),
    World("a module that is used twice; its second use breaks", lambda: Twice(_exp()), [5.0, 1.0], ("part", 148.41316)),
    World("an operation in the model's own forward", Inside, [-3.0, 2.0], ("", 3.0)),
    World(
        "large numbers, whose sum is inf",
        lambda: _sequence(a=Lambda(lambda x: x * 1.5e38), b=nn.Tanh()),
        [2.0] * 3,
        None,
    ),
    World("a part with two arguments, 0 and 0", Pair, [0.0, 3.0], ("join", 3e20)),
]


@exercise("8.1", "Where the first nan was made")
def the_first_nonfinite(trial: Trial) -> str:
    for world in WORLDS:
        model = world.model()
        with runs_counted(model) as runs:
            got = trial.call(model, torch.tensor([world.x]))
        runs.expect_calls()
        if runs.calls != 1:
            raise NotYet(f"the model ran {runs.calls} times", expected="once: what it is given may be large")
        _judge(world, got)
        if trial.faults:
            raise trial.faults[0]
    return f"the module that made the first inf or nan, and the range of what it was given, in {len(WORLDS)} models"


def _judge(world: World, got: Any) -> None:
    where = f"in {world.text}"
    if world.wanted is None:
        if got is not None:
            likely = None
            if any(value != value for value in world.x):
                likely = "it was not made there: what came in was not finite already"
            raise NotYet(f"{where} you name a module", expected="None", got=_text(got), likely=likely)
        return
    expected = f"({world.wanted[0]!r}, {world.wanted[1]:g})"
    if got is None:
        raise NotYet(f"{where} your result is None", expected=expected, likely=_why_none(world))
    if not isinstance(got, tuple | list) or len(got) != 2:
        raise NotYet(f"{where} your result is not a pair", expected=expected, got=_text(got))
    name, largest = got
    if isinstance(name, nn.Module):
        raise NotYet(f"{where} you return the module", expected=f"its name: {expected}", got=type(name).__name__)
    if name != world.wanted[0]:
        raise NotYet(
            f"{where} the name is another one", expected=expected, got=_text(got), likely=_why_name(world, name)
        )
    number = largest.item() if isinstance(largest, Tensor) and largest.numel() == 1 else largest
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise NotYet(f"{where} the second of the pair is no number", expected=expected, got=_text(got))
    if abs(number - world.wanted[1]) > 1e-4 * world.wanted[1]:
        raise NotYet(
            f"{where} the largest magnitude is another one",
            expected=expected,
            got=_text(got),
            likely=_why_number(world, number),
        )


def _why_none(world: World) -> str | None:
    if world.wanted == ("", 3.0):
        return "the model itself is a module, too: its name is ''"
    if world.wanted and "." in world.wanted[0]:
        return "parts of parts: named_children() does not go there, named_modules() does"
    return None


def _why_name(world: World, name: Any) -> str | None:
    if "." in (world.wanted or ("",))[0] and name == world.wanted[0].split(".")[0]:  # type: ignore[index]
        return "the part around it is done later than the part inside: the first to end is the one that made it"
    return None


def _why_number(world: World, number: float) -> str | None:
    if number == max(world.x) and max(world.x) != max(map(abs, world.x)):
        return "the largest value, not the largest magnitude: -7 is further from 0 than 2"
    return None


def _text(got: Any) -> str:
    try:
        return repr(got)[:100]
    except Exception:
        return type(got).__name__
