"""grades.csv: a row for each student and exercise, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from hooklab.course.classroom.grading import Graded
from hooklab.course.classroom.lessons import Lesson
from hooklab.course.classroom.reasons import reason_of
from hooklab.course.classroom.verdicts import points_of

COLUMNS = ("student", "exercise", "outcome", "points", "reason", "note")
NOT_HANDED_IN = "not handed in"
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "|", "%")


def grades(graded: Sequence[Graded], lessons: dict[int, Lesson]) -> str:
    """Return the grades as CSV. Points are given for "correct" alone; what was tampered with is for the teacher."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for one in graded:
        lesson = lessons.get(one.lesson)
        for exercise in lesson.exercises if lesson else ():
            verdict = one.verdicts.get(exercise.id)
            state = one.state(exercise.id)
            points = points_of(exercise, verdict)
            notes = "; ".join([*one.notes, *((verdict.remark, *verdict.notes) if verdict else ())]).strip("; ")
            row = (one.student, exercise.id, state, str(points), reason_of(verdict, exercise.answer), notes)
            table.writerow([safe(field) for field in row])
        if lesson is None:
            table.writerow([safe(field) for field in (one.student, "", NOT_HANDED_IN, "0", "", "; ".join(one.notes))])
    return text.getvalue()


def safe(field: str) -> str:
    """Return a field that no spreadsheet takes for a formula, on one line.

    Example:
        >>> safe("=1+1")
        "'=1+1"
    """
    field = on_one_line(field)
    return f"'{field}" if field.lstrip(" ").startswith(_FORMULA) else field


def on_one_line(text: str) -> str:
    """Return a text without line breaks, and without characters that command a terminal or turn what follows."""
    return "".join(one if one.isprintable() else " " for one in text)
