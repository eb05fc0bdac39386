"""Tables: grades.csv, and the class as a platform exports it, which is given back with everybody's points.

`--students class.csv` may be Moodle's grading worksheet ("Identifier", "Full name", "Grade"), Canvas's gradebook
("Student", "ID"), or any table with a column for the name, and perhaps one for the number.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hooklab.course.classroom.collecting import Submission
from hooklab.course.classroom.grading import Graded

COLUMNS = ("student", "exercise", "outcome", "points", "reason", "note")
STRANGER = "is not on the class list, or has a name that several people on it have"
_NUMBER = ("identifier", "id", "number", "id number", "student id", "orgdefinedid", "student number")
_NAME = ("full name", "student", "name", "student name")
_GRADE = ("grade", "points")
_NOBODY = re.compile(r"points possible|test student$", re.I)  # rows of Canvas's gradebook that aren't students
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "|", "%")


class Refused(Exception):
    """One sentence for the teacher: why nothing was written."""


@dataclass(frozen=True)
class ClassList:
    """A class: the rows of its table, and by the row's number each student, with all that they have handed in."""

    rows: list[dict[str, str]]
    students: dict[int, Submission]

    def match(self, submissions: Sequence[Submission]) -> list[Submission]:
        """Return a submission for each student on the list, and the submissions that match no student.

        Numbers are compared where both have one, and whole names otherwise. A name that fits several people fits none.
        """
        others, everybody = [], self.students.values()
        for one in submissions:
            by_number = [on for on in everybody if on.number and on.number == one.number]
            fitting = by_number or [on for on in everybody if _words(on.name) == _words(one.name)]
            if len(fitting) == 1:
                fitting[0].files += one.files
                fitting[0].notes += one.notes
            else:
                others.append(one)
                one.notes.append(STRANGER)
        return sorted([*everybody, *others], key=lambda one: one.student)

    def with_points(self, graded: Sequence[Graded]) -> str:
        """Return the table to upload: each student's points are in its grade column, or in a new last column."""
        numbers = sorted({one.lesson.number for one in graded})
        own = "hooklab " + ", ".join(f"lesson {number}" for number in numbers)
        column = next((title for title in self.rows[0] if title.strip().lower() in _GRADE), own)
        points = Counter[str]()
        for one in graded:
            points[one.student] += one.points
        table = [row | {column: row.get(column, "")} for row in self.rows]
        for number, student in self.students.items():
            table[number][column] = str(points[student.student])
        return _written([list(table[0]), *(row.values() for row in table)])


def read_class(path: Path) -> ClassList:
    """Read a class list. Raises Refused, with one sentence, if no student can be found in the table."""
    rows = read_table(path)
    people = {number: who for number, who in enumerate(map(_person, rows)) if who[0] and not _NOBODY.match(who[0])}
    if not people:
        raise Refused(f'{path} has nobody in it: a column "Full name", "Student" or "name" is needed')
    names = Counter(name for name, _ in people.values())
    students = {}
    for row, (name, number) in people.items():
        student = f"{name} ({number or row + 2})" if names[name] > 1 else name
        students[row] = Submission(student, name, number)
    return ClassList(rows, students)


def _person(row: dict[str, str]) -> tuple[str, str]:
    cells = {title.strip().lower(): cell.strip() for title, cell in row.items()}
    name, number = (next((cells[title] for title in titles if title in cells), "") for titles in (_NAME, _NUMBER))
    if name.count(",") == 1:  # Canvas writes "Li, Ana"
        name = " ".join(part.strip() for part in reversed(name.split(",")))
    digits = re.findall(r"\d+", number)  # Moodle writes "Participant 101"
    return unicodedata.normalize("NFC", name), digits[-1] if digits else ""


def _words(name: str) -> list[str]:
    """Return the words of a name, which may come in any order."""
    return sorted(re.split(r"[\s,_.]+", unicodedata.normalize("NFC", name).casefold().strip(" ,_.")))


def grades(graded: Sequence[Graded]) -> str:
    """Return the grades as CSV. Points are given for "correct" alone; what was tampered with is for the teacher."""
    rows: list[Sequence[str]] = [COLUMNS]
    for one in graded:
        for exercise, verdict in one.pairs:
            notes = "; ".join(filter(None, [*one.notes, verdict.remark, *verdict.notes]))
            rows.append((one.student, exercise.id, verdict.state, str(verdict.points), verdict.reason, notes))
    return _written([safe(field) for field in row] for row in rows)


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


def read_table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table with a header, whichever separator a spreadsheet has written. Raises Refused."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise Refused(f"{path} cannot be read: {error}") from None
    separator = max(",;\t", key=text.partition("\n")[0].count)
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, restval="")
    return [{title: row[title] for title in rows.fieldnames or ()} for row in rows if any(row.values())]


def _written(rows: Iterable[Iterable[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
