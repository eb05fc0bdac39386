"""A page for each student: what each check said, beside the lines that it is about. No solution, no other student."""

from __future__ import annotations

import io
import itertools
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

from hooklab.course.classroom.grading import Graded
from hooklab.course.classroom.lessons import Exercise, Lesson
from hooklab.course.classroom.pages import page
from hooklab.course.classroom.verdicts import TAMPERED, Verdict, points_of

_WHEN = (2020, 1, 1, 0, 0, 0)  # the same pages give the same zip


def feedback(student: str, graded: Sequence[Graded], lessons: dict[int, Lesson]) -> str:
    """Return a student's page, with all lessons that were graded; the notes for the teacher are not on it."""
    begun = [(lessons[one.lesson], one.verdicts) for one in graded if one.lesson in lessons]
    rows = [(lesson, [_row(one, verdicts.get(one.id)) for one in lesson.exercises]) for lesson, verdicts in begun]
    lost = [one for one in graded if one.lesson not in lessons]
    return page("feedback.html", student=student, lessons=rows, lost=lost)


def _row(exercise: Exercise, verdict: Verdict | None) -> dict[str, Any]:
    about = {"exercise": exercise, "verdict": verdict, "points": points_of(exercise, verdict), "remark": ""}
    if verdict is None:
        return about | {"state": "not handed in", "said": False}
    state = "not yet" if verdict.is_decided and verdict.state == TAMPERED else verdict.state
    is_said = verdict.text and state != "not attempted" and not (verdict.is_decided and state == "correct")
    return about | {"state": state, "said": is_said, "remark": verdict.remark}


def to_send_back(pages: Mapping[str, str], ways: Mapping[str, set[str]]) -> bytes:
    """Return a zip of the pages under the names that the platform has given, as it takes feedback back; b"" for none.

    `pages` has each student's page, `ways` the names of their folders or files on the platform.
    """
    content, names = io.BytesIO(), {}
    for student, text in pages.items():
        for way in ways.get(student, ()):
            file, _, kind = way.rpartition(".")
            names[f"{file}.html" if file and kind.isalnum() else f"{way}/feedback.html"] = text
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sorted(names.items()):
            archive.writestr(zipfile.ZipInfo(name, _WHEN), text, zipfile.ZIP_DEFLATED)
    return content.getvalue() if names else b""


def file_names(students: Sequence[str]) -> dict[str, str]:
    """Return a file name for each student's page: the name, made safe, and a number where two are alike.

    Example:
        >>> file_names(["Ana Li", "../ana li"])
        {'Ana Li': 'Ana Li.html', '../ana li': 'ana li 2.html'}
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for student in students:
        safe = "".join(one if one.isalnum() or one in " -()" else "_" for one in student)[:60].strip(" _-") or "student"
        numbered = (f"{safe} {number}" for number in itertools.count(2))
        name = next(name for name in itertools.chain([safe], numbered) if name.casefold() not in taken)
        taken.add(name.casefold())
        names[student] = f"{name}.html"
    return names
