"""grades.csv: a row for each student and exercise, safe to open in a spreadsheet; and why an answer is not correct."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

from hooklab.course.classroom.grading import Graded
from hooklab.course.classroom.lessons import Lesson
from hooklab.course.classroom.pages import head
from hooklab.course.classroom.verdicts import STOPPED, TAMPERED, Verdict, points_of

COLUMNS = ("student", "exercise", "outcome", "points", "reason", "note")
NOT_HANDED_IN = "not handed in"
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "|", "%")
_OWN = re.compile(r"`[^`]*`|'[^']*'|\[[^\]]*\]|(?<!\w)\([^)]*\)|-?\d+(\.\d+)?(e[-+]?\d+)?")  # and no call: `model(x)`
# Reasons that say nothing about what was understood.
NO_MISCONCEPTION = {TAMPERED: "tampered with the check", STOPPED: "had to be stopped"}


def grades(graded: Sequence[Graded], lessons: dict[int, Lesson]) -> str:
    """Return the grades as CSV. Points are given for "correct" alone; what was tampered with is for the teacher."""
    rows: list[tuple[str, ...]] = [COLUMNS]
    for one in graded:
        lesson = lessons.get(one.lesson)
        for exercise in lesson.exercises if lesson else ():
            verdict, points = one.verdicts.get(exercise.id), points_of(exercise, one.verdicts.get(exercise.id))
            notes = "; ".join(filter(None, [*one.notes, *((verdict.remark, *verdict.notes) if verdict else ())]))
            rows.append((one.student, exercise.id, one.state(exercise.id), str(points), reason_of(verdict), notes))
        if lesson is None:
            rows.append((one.student, "", NOT_HANDED_IN, "0", "", "; ".join(one.notes)))
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([safe(field) for field in row] for row in rows)
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


def reason_of(verdict: Verdict | None) -> str:
    """Return why an answer is not correct; "" for a correct one and for one not attempted.

    Example:
        >>> reason_of(Verdict("not yet", "✗ 3.1 not yet: 3 entries", "A `return` is missing. Add it."))
        'A `return` is missing.'
    """
    if verdict is None or verdict.state in ("correct", "not attempted"):
        return ""
    return NO_MISCONCEPTION.get(verdict.state) or (in_two(verdict.likely)[0] if verdict.likely else head(verdict))


def kind_of_reason(verdict: Verdict, answer: str) -> str:
    """Return a reason without what is one answer's own, to count those of a kind. `answer` is the answer's name.

    Example:
        >>> kind_of_reason(Verdict("not yet", "✗ 3.1 not yet: f raised KeyError: 'a', at line 3: `x`"), "f")
        'it raised KeyError: …'
    """
    reason = reason_of(verdict)
    return reason if verdict.likely else _OWN.sub("…", reason.split(", at line")[0].replace(answer, "it"))


def in_two(reason: str) -> tuple[str, str]:
    """Return the sentence that says what an answer does, and those that say what to do about it.

    Example:
        >>> in_two("You never call backward(). Call it before you read .grad.")
        ('You never call backward().', 'Call it before you read .grad.')
    """
    first, *rest = re.split(r"(?<=[.?!]) (?=[A-Z`])", " ".join(reason.split()), maxsplit=1)
    return first, "".join(rest)
