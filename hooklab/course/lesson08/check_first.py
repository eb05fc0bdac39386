"""The check of exercise 8.1: which module is the first to put out an inf or nan though it was given none."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.misconceptions import fitting
from hooklab.course.exercises.runs import runs_counted
from hooklab.course.exercises.trial import NotYet, Trial, tensor_text


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
    World(
        "two that make one, and a finite end",
        lambda: _sequence(a=_exp(), b=Lambda(torch.reciprocal), c=_log(), d=nn.Tanh()),
        [200.0, 1.0],
        ("a", 200.0),
    ),
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


class Event(NamedTuple):
    """One use of a module: its name, what it was given and what it put out."""

    name: str
    given: tuple[Tensor, ...]
    output: Tensor


def _events(world: World) -> list[Event]:
    """Run the world's model; return every use of every module, the first to finish first."""
    model, events = world.model(), list[Event]()
    for name, module in model.named_modules():
        module.register_forward_hook(lambda module, args, output, name=name: events.append(Event(name, args, output)))
    model(torch.tensor([world.x]))
    return events


def _made_it(event: Event) -> bool:
    return bool(all(one.isfinite().all() for one in event.given) and not event.output.isfinite().all())


def _largest(event: Event) -> Tensor:
    return torch.stack([one.abs().max() for one in event.given]).max()


def _first(
    events: Iterable[Event],
    is_it: Callable[[Event], bool] = _made_it,
    largest: Callable[[Event], Tensor] = _largest,
) -> tuple[str, Tensor] | None:
    return next(((event.name, largest(event)) for event in events if is_it(event)), None)


def _has_to_do_with_parts(name: str, events: list[Event]) -> bool:
    return "." in name or any(event.name.startswith(f"{name}.") for event in events)


# a misconception, in words -> what an answer that has it returns for the events of a world
GUESSES: dict[str, Callable[[list[Event]], Any]] = {
    "nan only: an inf is no finite value either": lambda events: _first(
        events, lambda event: bool(event.output.isnan().any())
    ),
    "it was not made there: what came in was not finite already": lambda events: _first(
        events, lambda event: not event.output.isfinite().all()
    ),
    "parts of parts: named_children() does not go there, named_modules() does": lambda events: _first(
        event for event in events if event.name and "." not in event.name
    ),
    "parts of parts: a child that has parts was left out, and its parts with it; named_modules() goes there": (
        lambda events: _first(event for event in events if event.name and not _has_to_do_with_parts(event.name, events))
    ),
    "the model itself is a module, too: its name is ''": lambda events: _first(event for event in events if event.name),
    "the order of named_modules(), in which the model itself is the first: ask which one finishes first": (
        lambda events: _first(sorted(events, key=lambda event: event.name))  # "" < "a" < "a.y" < "b"
    ),
    "the last of them: a part finishes before the module around it": lambda events: _first(reversed(events)),
    "the largest value, not the largest magnitude: -7 is further from 0 than 2": lambda events: _first(
        events, largest=lambda event: torch.stack([one.max() for one in event.given]).max()
    ),
    "the first argument only: what a module is given may be several tensors": lambda events: _first(
        events, lambda event: _made_it(event._replace(given=event.given[:1])), lambda event: event.given[0].abs().max()
    ),
    "one name for all: a function made in a loop looks its variable up when it runs (lesson 2)": lambda events: (
        (sorted(event.name for event in events)[-1], found[1]) if (found := _first(events)) else None
    ),
}


@exercise("8.1", "Where the first nan was made")
def the_first_nonfinite(trial: Trial) -> str:
    seen: list[Any] = []
    for world in WORLDS:
        model = world.model()
        with runs_counted(model) as runs:
            seen.append(trial.call(model, torch.tensor([world.x])))
        runs.expect_calls()
        if runs.calls != 1:
            raise NotYet(f"the model ran {runs.calls} times", expected="once: what it is given may be large")
    for world, got in zip(WORLDS, seen, strict=True):
        _judge(world, got, seen)
    return f"the module that made the first inf or nan, and the range of what it was given, in {len(WORLDS)} models"


def _judge(world: World, got: Any, seen: list[Any]) -> None:
    where = f"in {world.text}"
    if world.wanted is None:
        if got is not None:
            names = isinstance(got, tuple | list) and len(got) == 2
            missing = f"{where} {'you name a module' if names else 'your result is not None'}"
            raise NotYet(missing, expected="None", got=tensor_text(got), likely=_why(seen, world))
        return
    expected = f"({world.wanted[0]!r}, {world.wanted[1]:g})"
    if got is None:
        raise NotYet(f"{where} your result is None", expected=expected, likely=_why(seen, world))
    if not isinstance(got, tuple | list) or len(got) != 2:
        raise NotYet(f"{where} your result is not a pair", expected=expected, got=tensor_text(got))
    name, largest = got
    if isinstance(name, nn.Module):
        raise NotYet(f"{where} you return the module", expected=f"its name: {expected}", got=type(name).__name__)
    if name != world.wanted[0]:
        raise NotYet(
            f"{where} the name is another one", expected=expected, got=tensor_text(got), likely=_why(seen, world)
        )
    number = largest.item() if isinstance(largest, Tensor) and largest.numel() == 1 else largest
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise NotYet(f"{where} the second of the pair is no number", expected=expected, got=tensor_text(got))
    if abs(number - world.wanted[1]) > 1e-4 * world.wanted[1]:
        raise NotYet(
            f"{where} the largest magnitude is another one",
            expected=expected,
            got=tensor_text(got),
            likely=_why(seen, world),
        )


def _why(seen: list[Any], world: World) -> str | None:
    """Return the one misconception that explains what the answer gave in every world, or else up to this one."""
    programs = {reason: lambda world, guess=guess: guess(_events(world)) for reason, guess in GUESSES.items()}
    if all(got is None for got in seen):
        return "None in every model: a forgotten return, or nothing was kept"
    seen = [_comparable(got) for got in seen]
    until = WORLDS.index(world) + 1
    return fitting(seen, programs, WORLDS[: len(seen)]) or fitting(seen[:until], programs, WORLDS[:until])


def _comparable(got: Any) -> Any:
    """Return a pair with its number as a tensor, among which nan is like nan; anything else as it is."""
    if isinstance(got, tuple | list) and len(got) == 2 and isinstance(got[1], int | float | Tensor):
        return got[0], torch.as_tensor(got[1], dtype=torch.float32)
    return got
