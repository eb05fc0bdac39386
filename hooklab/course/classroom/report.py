"""report.html: for the teacher, what the class has and has not understood, and what to say about it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from hooklab.course.classroom.collecting import SEVERAL
from hooklab.course.classroom.grading import COUNTS, Graded
from hooklab.course.classroom.lessons import Exercise
from hooklab.course.classroom.pages import STATES, page
from hooklab.course.classroom.pointing import UNSEEN
from hooklab.course.classroom.verdicts import NO_MISCONCEPTION, Verdict

_MOST_COMMON = 3
_UNTRIED, _STUCK = {"not attempted", "not handed in"}, {"not yet", "stopped"}
_HARMLESS = re.compile("|".join([COUNTS, SEVERAL, UNSEEN]))  # what a teacher may want to read but need not look into
_OWN = re.compile(r"`[^`]*`|'[^']*'|\[[^\]]*\]|(?<!\w)\([^)]*\)|-?\d+(\.\d+)?(e[-+]?\d+)?")  # and no call: `model(x)`


def report(graded: Sequence[Graded], files: dict[str, str], unprotected: str) -> str:
    """Return the report on a class.

    `files` has the name of each student's page, `unprotected` what this machine could not keep from students' code.
    """
    numbers = sorted({one.lesson.number for one in graded})
    lessons = [_lesson([one for one in graded if one.lesson.number == number]) for number in numbers]
    begun = [one for one in lessons if any(set(part["counts"]) - _UNTRIED for part in one["exercises"])]
    notes, harmless = to_look_at(graded)
    shown = {"lessons": begun or lessons, "notes": notes, "harmless": harmless}
    return page("report.html", students=len(files), files=files, unprotected=unprotected, **shown)


def to_look_at(graded: Sequence[Graded]) -> tuple[list[str], list[str]]:
    """Return the teacher's notes: those to look into, and the harmless ones. What students share is one line."""
    lessons = Counter(one.student for one in graded)
    places = defaultdict[tuple[str, str], list[str]](list)
    for one in graded:
        for note in one.notes:
            places[one.student, note].append(f"lesson {one.lesson.number}")
        for id, verdict in one.verdicts.items():
            told = f"you have decided: {verdict.remark}" if verdict.is_decided else "; ".join(verdict.notes)
            if told:
                places[one.student, told].append(id)
    found = []
    for (student, note), where in places.items():
        is_of_all = where[0].startswith("lesson") and len(where) == lessons[student]
        found.append(f"{', '.join([student, *([] if is_of_all else where)])}: {note}")
    return [one for one in found if not _HARMLESS.search(one)], [one for one in found if _HARMLESS.search(one)]


def _lesson(graded: Sequence[Graded]) -> dict[str, Any]:
    exercises = [_exercise(graded, one) for one in graded[0].lesson.exercises]
    reasons = [
        (one["exercise"], *reason)
        for one in exercises
        for reason in one["reasons"]
        if reason[0] not in NO_MISCONCEPTION.values()
    ]
    # An exception says less about what was not understood than any other reason does.
    reasons.sort(key=lambda one: (" raised " in one[1] or " is not defined: " in one[1], -one[2]))
    common = reasons[:_MOST_COMMON]
    return {"lesson": graded[0].lesson, "rows": graded, "exercises": exercises, "common": common}


def _exercise(graded: Sequence[Graded], exercise: Exercise) -> dict[str, Any]:
    """Return an exercise, how many are in each state, who is stuck, and the reasons by frequency, with an example."""
    verdicts, found = [one.verdicts[exercise.id] for one in graded], defaultdict[str, list[Verdict]](list)
    for verdict in verdicts:
        if verdict.reason:
            found[kind_of_reason(verdict, exercise.answer)].append(verdict)
    reasons = []
    for kind, alike in sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0])):
        example = min(alike, key=lambda verdict: (len(verdict.lines), verdict.lines, verdict.summary))
        reasons.append((kind if len(alike) > 1 else example.reason, len(alike), example))
    states = [one.state for one in verdicts]
    return {
        "exercise": exercise,
        "counts": {name: states.count(name) for name in STATES if name in states},
        "untried": sum(state in _UNTRIED for state in states),
        "stuck": [one.student for one, state in zip(graded, states, strict=True) if state in _STUCK],
        "reasons": reasons,
    }


def kind_of_reason(verdict: Verdict, answer: str) -> str:
    """Return a reason without what is one answer's own, to count those of a kind. `answer` is the answer's name.

    Example:
        >>> kind_of_reason(Verdict("not yet", "f raised KeyError: 'a', at line 3: `x`"), "f")
        'it raised KeyError: …'
    """
    reason = verdict.reason
    return reason if verdict.likely else _OWN.sub("…", reason.split(", at line")[0].replace(answer, "it"))
