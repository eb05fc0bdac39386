"""The one judge of all exercises: it runs a scene with an answer, and compares what it saw with the records.

A scene runs an answer in a world and yields pairs: what is observed, in plain words, and its value. A third item,
if there is one, is the label of the reason for any difference in this pair. A name that begins with "~" is a clue: it
distinguishes two reasons, and is not judged.

An answer is correct if it gives the same values as the solution in every world. If not, the learner sees the first pair
that differs and, if exactly one misconception's program differs in the same way in every world, that misconception. So
a reason is never a guess. Exceptions, hooks left behind, changed arguments and modes are observed as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from hooklab.course.exercises.exercise import Exercise
from hooklab.course.exercises.faults import NotYet, StillTheStub, TookTooLong
from hooklab.course.exercises.frames import first_words, kind_of, learners_error, learners_line
from hooklab.course.exercises.reasons import reason, reason_of_exception
from hooklab.course.exercises.records import Claim, alike, plain, records_of_lesson, value_of
from hooklab.course.exercises.trial import Trial
from hooklab.course.exercises.values import apart

RAISED, LEFT = "an exception", "what it leaves behind"
CLUE = "~"


@dataclass(frozen=True)
class Seen:
    """One thing that was seen of an answer: a pair of its scene, or a fault; `told` has words of its own for it."""

    what: str
    data: Any
    label: str | None = None
    told: NotYet | None = None


def judge(exercise: Exercise, trial: Trial) -> NotYet | None:
    """Return the first thing that differs from what the solution does; None for a correct answer."""
    records = records_of_lesson(exercise.lesson)[exercise.id]
    seen = [observed(exercise, trial, world) for world in exercise.worlds]
    found = [difference(one, wanted) for one, wanted in zip(seen, records.reference, strict=True)]
    first = next(filter(None, map(_first, seen, records.reference)), None)
    if first is None:
        return None
    fitting = [label for label, stored in records.misconceptions.items() if alike(found, stored)]
    return _not_yet(exercise, trial, *first[:2], fitting[0] if len(fitting) == 1 else None)


def observed(exercise: Exercise, trial: Trial, world: Any) -> list[Seen]:
    """Return what an answer does in a world, in order: the scene's pairs, faults, and an exception that ended it."""
    seen: list[Seen] = []
    try:
        for what, value, *label in exercise.scene(trial, world):
            seen += _faults(trial)
            told = NotYet(what, expected=value.expected, got=value.got) if isinstance(value, Claim) else None
            seen.append(Seen(what, plain(value), label[0] if label else None, told))
    except (StillTheStub, TookTooLong, KeyboardInterrupt):
        raise
    except BaseException as error:  # before what it leaves behind: hooks that stay because of it, say
        fault = error if isinstance(error, NotYet) else _unforeseen(error, trial)
        seen.append(Seen(RAISED, _words(fault), told=fault))
    return seen + _faults(trial)


def difference(seen: Sequence[Seen], wanted: Sequence[Sequence[Any]]) -> list[Any] | None:
    """Return what first differs from the solution's record, [what, data, clues that differ before]; None if nothing."""
    if (first := _first(seen, wanted)) is None:
        return None
    one, want, clues = first
    return [one.what, one.data, clues] if one else [want[0], {"a": "nothing"}, clues]


def _first(seen: Sequence[Seen], wanted: Sequence[Sequence[Any]]) -> tuple[Seen | None, Any, list[Any]] | None:
    """Return the first thing that differs, what was wanted there, and the clues before it; either may be missing."""
    clues: list[Any] = []
    for one, want in zip_longest(seen, wanted):
        if one is not None and want is not None and one.what == want[0] and alike(one.data, want[1]):
            continue
        if one is None or not one.what.startswith(CLUE):
            return one, want, clues
        clues.append([one.what, one.data])
    return None


def _not_yet(
    exercise: Exercise, trial: Trial, one: Seen | None, want: Sequence[Any] | None, label: str | None
) -> NotYet:
    likely = reason(exercise.id, label or (one.label if one else None), trial.name)
    if one is None:
        assert want
        return NotYet(want[0], got="nothing", likely=likely)
    if one.told is None:
        expected = value_of(want[1]) if want and one.what == want[0] else None
        return NotYet(one.what, **apart(expected, value_of(one.data)), likely=likely)
    details, cause = dict(one.told.details), one.told.__cause__
    likely = likely or details.pop("likely", None) or (reason_of_exception(cause) if cause is not None else None)
    return NotYet(one.told.missing, **details | {"likely": likely})


def _faults(trial: Trial) -> list[Seen]:
    faults, trial.faults[:] = list(trial.faults), []
    return [Seen(LEFT, sorted({_words(one) for one in faults}), told=faults[0])] if faults else []


def _words(fault: NotYet) -> str:
    """What a fault is recorded by: its label, the exception behind it, or its words without the learner's names."""
    if fault.label:
        return fault.label
    error = fault.__cause__
    text = fault.missing if error is None else f"{kind_of(error)}: {first_words(error)}"
    text = re.sub(r"[\w.<>]+\(\)", "f()", text)  # the learner's functions
    return re.sub(r"0x[0-9a-f]+|`[^`]*`|\d{6,}", "…", text)


def _unforeseen(error: BaseException, trial: Trial) -> NotYet:
    """An exception in the scene's own lines, raised by a hook of the answer's or by what it returned."""
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, StopIteration):
        error = error.__cause__  # which a generator, as a scene is, does not let through
    fault = learners_error(error, trial.name)
    if learners_line(error) is None:
        fault = NotYet(
            f"the check could not use what {trial.name} returned",
            expected="the kinds of values that the exercise asks for",
            got=f"{kind_of(error)}: {first_words(error)}",
            label=f"unusable: {kind_of(error)}",
        )
    fault.__cause__ = error
    return fault
