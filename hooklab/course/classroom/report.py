"""report.html: for the teacher, what the class has and has not understood, and what to say about it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from hooklab.course.classroom.grades import NO_MISCONCEPTION, in_two, kind_of_reason, reason_of
from hooklab.course.classroom.grading import COPIED, COUNTS, Graded
from hooklab.course.classroom.lessons import Exercise, Lesson
from hooklab.course.classroom.pages import STATES, page
from hooklab.course.classroom.verdicts import Verdict, points_of

_MOST_COMMON = 3
_UNTRIED, _STUCK = {"not attempted", "not handed in"}, {"not yet", "stopped"}
# Notes that a teacher may want to read but need not look into.
_HARMLESS = re.compile(
    f"{COUNTS}|handed in as well|no check has seen|the answer is called|is taken for|distinguished by"
)


def report(graded: Sequence[Graded], lessons: dict[int, Lesson], files: dict[str, str], unprotected: str) -> str:
    """Return the report on a class.

    `files` has the name of each student's page, `unprotected` what this machine could not keep from students' code.
    """
    parts = [_lesson([one for one in graded if one.lesson == number], lesson) for number, lesson in lessons.items()]
    begun = [one for one in parts if any(set(row["states"]) - _UNTRIED for row in one["rows"])]
    notes, harmless = to_look_at([one for one in graded if one.lesson in lessons])
    return page(
        "report.html",
        students=len({one.student for one in graded}),
        lessons=begun or parts,
        lost=[one for one in graded if one.lesson not in lessons],
        notes=notes,
        harmless=harmless,
        files=files,
        unprotected=unprotected,
    )


def to_look_at(graded: Sequence[Graded]) -> tuple[list[str], list[str]]:
    """Return the teacher's notes: those to look into, and the harmless ones. What students share is one line."""
    lessons = Counter(one.student for one in graded)
    places = defaultdict[tuple[str, str], list[str]](list)
    for one in graded:
        for note in one.notes:
            places["" if note.startswith(COPIED) else one.student, note].append(f"lesson {one.lesson}")
        for id, verdict in one.verdicts.items():
            told = f"you have decided: {verdict.remark}" if verdict.is_decided else "; ".join(verdict.notes)
            if told:
                places[one.student, told].append(id)
    found = []
    for (student, note), where in places.items():
        is_of_all = not student or (where[0].startswith("lesson") and len(where) == lessons[student])
        who = ", ".join(filter(None, [student, *([] if is_of_all else where)]))
        found.append(": ".join(filter(None, [who, note])))
    return [one for one in found if not _HARMLESS.search(one)], [one for one in found if _HARMLESS.search(one)]


def _lesson(graded: Sequence[Graded], lesson: Lesson) -> dict[str, Any]:
    exercises = [_exercise(graded, one) for one in lesson.exercises]
    rows = [
        {
            "student": one.student,
            "points": sum(points_of(exercise, one.verdicts.get(exercise.id)) for exercise in lesson.exercises),
            "states": [one.state(exercise.id) for exercise in lesson.exercises],
        }
        for one in graded
    ]
    columns = list(zip(*[row["states"] for row in rows], strict=True))
    reasons = [
        (one["exercise"], reason, len(verdicts), say)
        for one in exercises
        for reason, verdicts, _, say in one["reasons"]
        if reason not in NO_MISCONCEPTION.values()
    ]
    # An exception says less about what was not understood than any other reason does.
    reasons.sort(key=lambda one: (" raised " in one[1] or " is not defined: " in one[1], -one[2]))
    return {
        "lesson": lesson,
        "rows": rows,
        "exercises": exercises,
        "common": reasons[:_MOST_COMMON],
        "done": [column.count("correct") for column in columns],
        "stuck": [
            (
                one,
                [row["student"] for row, state in zip(rows, column, strict=True) if state in _STUCK],
                sum(state in _UNTRIED for state in column),
            )
            for one, column in zip(lesson.exercises, columns, strict=True)
        ],
        "used": [name for name in STATES if any(name in column for column in columns)],
    }


def _exercise(graded: Sequence[Graded], exercise: Exercise) -> dict[str, Any]:
    """Return an exercise, how many are in each state, and the reasons by frequency, each with an example."""
    states, found = [one.state(exercise.id) for one in graded], defaultdict[str, list[Verdict]](list)
    for one in graded:
        if (verdict := one.verdicts.get(exercise.id)) and reason_of(verdict):
            found[kind_of_reason(verdict, exercise.answer)].append(verdict)
    reasons = []
    for kind, verdicts in sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0])):
        example = min(verdicts, key=lambda verdict: (len(verdict.lines), verdict.lines, verdict.text))
        reason = kind if len(verdicts) > 1 else reason_of(example)
        reasons.append((reason, verdicts, example, what_to_say(example, exercise)))
    counts = [(name, states.count(name)) for name in STATES if name in states]
    return {"exercise": exercise, "counts": counts, "reasons": reasons}


def what_to_say(verdict: Verdict, exercise: Exercise) -> str:
    """Return what the reason advises; else the hint that speaks of the same; "" for none."""
    if explained := in_two(verdict.likely)[1]:
        return explained
    said = _long_words(verdict.text)
    shared, hint = max(((len(said & _long_words(symptom)), text) for symptom, text in exercise.hints), default=(0, ""))
    return hint if shared >= 2 else ""


def _long_words(text: str) -> set[str]:
    return {word for word in re.findall(r"[\w']+", text.lower()) if len(word) > 3}
