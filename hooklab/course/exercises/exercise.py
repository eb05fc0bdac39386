"""Exercise: a check with its id and title, and how an exercise is found by its id."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hooklab.course.exercises.trial import Trial


COURSE = Path(__file__).parents[1]
Pairs = Generator[tuple[Any, ...], None, Any]  # what a scene yields: (what is looked at, value[, label of the reason])
Scene = Callable[["Trial", Any], Pairs]


@dataclass(frozen=True)
class Exercise:
    """An exercise as data: its scene, which `judge` runs with an answer in each of the worlds.

    Args:
        id: such as "2.1".
        title: as on the card.
        verified: one line for a correct answer, which says what was verified.
        scene: a generator of (what is looked at, value) or (what, value, label of the reason); see `judge`.
        worlds: what the scene is called with, one after the other.
    """

    id: str
    title: str
    verified: str
    scene: Scene
    worlds: tuple[Any, ...] = (None,)

    @property
    def lesson(self) -> int:
        return int(self.id.split(".")[0])


def exercise(id: str, title: str, *, verified: str, worlds: Iterable[Any] = (None,)) -> Callable[[Any], Exercise]:
    """Make a scene the exercise `id`."""

    return lambda scene: Exercise(id, title, verified, scene, tuple(worlds))


@functools.cache
def lesson_numbers() -> tuple[int, ...]:
    """Return the numbers of the lessons that have checks, in order."""
    paths = COURSE.glob("lesson[0-9][0-9]/checks.py")
    return tuple(sorted(int(path.parent.name.removeprefix("lesson")) for path in paths))


def exercises_of(lesson: int) -> list[Exercise]:
    """Return the exercises of a lesson in the order of their ids; LookupError for a lesson without checks."""
    if lesson not in lesson_numbers():
        raise LookupError(f"lesson {lesson} has no exercises; the lessons with exercises are {list(lesson_numbers())}")
    module: ModuleType = importlib.import_module(f"hooklab.course.lesson{lesson:02d}.checks")
    found = [value for value in vars(module).values() if isinstance(value, Exercise)]
    return sorted(found, key=lambda one: int(one.id.split(".")[1]))


def find(id: str) -> Exercise:
    """Return the exercise with this id; LookupError names those of its lesson."""
    lesson = id.partition(".")[0]
    known = {one.id: one for one in exercises_of(int(lesson))} if lesson.isdecimal() else {}
    if id in known:
        return known[id]
    raise LookupError(f"there is no exercise {id!r}" + (f"; there are: {', '.join(known)}" if known else ""))
