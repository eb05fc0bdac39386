"""report.html: for the teacher, what the class has and has not understood, and what to say about it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from hooklab.course.classroom.grading import COPIED, Graded
from hooklab.course.classroom.lessons import Exercise, Lesson
from hooklab.course.classroom.pages import STATES, details, page
from hooklab.course.classroom.reasons import NO_MISCONCEPTION, by_frequency, in_two
from hooklab.course.classroom.verdicts import Verdict, points_of

_MOST_COMMON = 3
_UNTRIED, _STUCK = {"not attempted", "not handed in"}, {"not yet", "stopped"}
# Notes that a teacher may want to read but need not look into.
_HARMLESS = re.compile(
    "is older, or untouched|handed in as well|no check has seen|the answer is called|is taken for|distinguished by"
)


def report(graded: Sequence[Graded], lessons: dict[int, Lesson], files: dict[str, str], unprotected: str) -> str:
    """Return the report on a class.

    Args:
        graded: by student and lesson.
        lessons: those that were graded, by number.
        files: the name of each student's page.
        unprotected: what this machine could not keep from students' code, or "".
    """
    parts = [_lesson([one for one in graded if one.lesson == number], lesson) for number, lesson in lessons.items()]
    is_begun = [any(set(row["states"]) - _UNTRIED for row in one["rows"]) for one in parts]
    parts = [one for one, begun in zip(parts, is_begun, strict=True) if begun or not any(is_begun)]
    notes = _to_look_at([one for one in graded if one.lesson in lessons])
    return page(
        "report.html",
        students=len({one.student for one in graded}),
        lessons=parts,
        lost=[one for one in graded if one.lesson not in lessons],
        notes=[line for line in notes if not _HARMLESS.search(line)],
        harmless=[line for line in notes if _HARMLESS.search(line)],
        files=files,
        unprotected=unprotected,
    )


def _lesson(graded: Sequence[Graded], lesson: Lesson) -> dict[str, Any]:
    exercises = [_exercise(graded, one) for one in lesson.exercises]
    rows = [_row(one, lesson) for one in graded]
    columns = list(zip(*[row["states"] for row in rows], strict=True))
    reasons = [
        (one["exercise"], reason, len(verdicts), say)
        for one in exercises
        for reason, verdicts, _, say in one["reasons"]
        if reason not in NO_MISCONCEPTION
    ]
    # An exception says less about what was not understood than any other reason does.
    reasons.sort(key=lambda one: (" raised " in one[1], -one[2]))
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


def _row(one: Graded, lesson: Lesson) -> dict[str, Any]:
    points = sum(points_of(exercise, one.verdicts.get(exercise.id)) for exercise in lesson.exercises)
    return {
        "student": one.student,
        "points": points,
        "states": [one.state(exercise.id) for exercise in lesson.exercises],
    }


def _to_look_at(graded: Sequence[Graded]) -> list[str]:
    """The teacher's notes, one line for each student and place; a note that several students share is one line."""
    lessons = defaultdict[str, list[int]](list)
    lines = defaultdict[tuple[str, str], list[int]](list)
    for one in graded:
        lessons[one.student].append(one.lesson)
        for note in one.notes:
            lines["" if note.startswith(COPIED) else one.student, note].append(one.lesson)
        for id, verdict in one.verdicts.items():
            told = f"you have decided: {verdict.remark}" if verdict.is_decided else "; ".join(verdict.notes)
            if told:
                lines[f"{one.student}, {id}", told] = []
    found = []
    for (where, note), of in lines.items():
        is_of_one = of and where and of != lessons[where]
        found.append(": ".join(filter(None, [f"{where}, lesson {of[0]}" if is_of_one else where, note])))
    return found


def _exercise(graded: Sequence[Graded], exercise: Exercise) -> dict[str, Any]:
    states = [one.state(exercise.id) for one in graded]
    reasons = []
    for reason, verdicts in by_frequency(graded, exercise):
        example = min(verdicts, key=lambda verdict: (len(verdict.lines), verdict.lines, verdict.text))
        reasons.append((reason, verdicts, example, what_to_say(example, exercise)))
    counts = [(name, states.count(name)) for name in STATES if name in states]
    return {"exercise": exercise, "counts": counts, "reasons": reasons}


def what_to_say(verdict: Verdict, exercise: Exercise) -> str:
    """Return what the reason advises; else the hint that speaks of the same; else what the check wants."""
    if explained := in_two(verdict.likely)[1]:
        return explained
    said = _long_words(verdict.text)
    shared, hint = max(((len(said & _long_words(symptom)), text) for symptom, text in exercise.hints), default=(0, ""))
    if shared >= 2:
        return hint
    expected = next((text for label, text in details(verdict) if label == "expected"), "")
    return f"The check wants {expected}." if expected[:1].isalpha() else ""


def _long_words(text: str) -> set[str]:
    return {word for word in re.findall(r"[\w']+", text.lower()) if len(word) > 3}
