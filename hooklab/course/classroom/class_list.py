"""The class as a platform exports it, `--students class.csv`: who is in it, and the same table with their points.

It may be Moodle's grading worksheet ("Identifier", "Full name", "Grade"), Canvas's gradebook ("Student",
"ID"), or any table with a column for the name, or first and last names, and perhaps one for the number.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hooklab.course.classroom.collecting import Submission, Who
from hooklab.course.classroom.grading import Graded
from hooklab.course.classroom.lessons import Lesson
from hooklab.course.classroom.verdicts import points_of
from hooklab.course.classroom.written import Refused, read_table

_NUMBER = ("identifier", "id", "number", "id number", "student id", "orgdefinedid", "student number")
_NAME = ("full name", "student", "name", "student name")
_FIRST, _LAST = ("first name", "firstname", "given name"), ("last name", "lastname", "surname", "family name")
_GRADE = ("grade", "points")
STRANGER = "is not on the class list, or has a name that several people on it have"
_NOBODY = re.compile(r"\s*points possible|student,? test", re.I)  # rows of Canvas's gradebook that aren't students


@dataclass(frozen=True)
class ClassList:
    """A class: the rows of its table, and each student's row and name; with the number where two share a name."""

    rows: list[dict[str, str]]
    students: dict[str, int]
    who: dict[str, Who]

    def match(self, submissions: Sequence[Submission]) -> list[Submission]:
        """Return a submission for each student on the list, and the submissions that match no student.

        Numbers are compared where both have one, and whole names otherwise. A name that fits several people fits none.
        """
        found = {name: Submission(name) for name in self.students}
        others = []
        for one in submissions:
            by_number = [name for name, who in self.who.items() if who.number and who.number == one.who.number]
            by_name = [name for name, who in self.who.items() if _words(who.name) & _words(one.who.name)]
            fitting = by_number if len(by_number) == 1 else by_name
            if len(fitting) == 1:
                found[fitting[0]].join(one)
            else:
                others.append(one)
                one.faults.append(STRANGER)
        return sorted([*found.values(), *others], key=lambda one: one.student)

    def with_points(self, graded: Sequence[Graded], lessons: dict[int, Lesson]) -> str:
        """Return the table to upload: each student's points are in its grade column, or in a new last column."""
        own = "hooklab " + ", ".join(f"lesson {number}" for number in lessons)
        column = next((title for title in self.rows[0] if title.strip().lower() in _GRADE), own)
        rows = [{**row} if column in row else row | {column: ""} for row in self.rows]
        for name, number in self.students.items():
            theirs = [one for one in graded if one.student == name and one.lesson in lessons]
            points = (points_of(of, one.verdicts.get(of.id)) for one in theirs for of in lessons[one.lesson].exercises)
            rows[number][column] = str(sum(points))
        text = io.StringIO()
        table = csv.DictWriter(text, rows[0], lineterminator="\n", extrasaction="ignore")
        table.writeheader()
        table.writerows(rows)
        return text.getvalue()


def read_class(path: Path) -> ClassList:
    """Read a class list. Raises Refused, with one sentence, if no student can be found in the table."""
    rows = read_table(path)
    people = {number: who for number, who in enumerate(map(_person, rows)) if who.name and not _NOBODY.match(who.name)}
    if not people:
        raise Refused(f'{path} has nobody in it: a column "Full name", "Student" or "name" is needed')
    names = Counter(who.name for who in people.values())
    called = {
        number: f"{who.name} ({who.number or number + 2})" if names[who.name] > 1 else who.name
        for number, who in people.items()
    }
    students = {name: number for number, name in called.items()}
    return ClassList(rows, students, {called[number]: who for number, who in people.items()})


def _person(row: dict[str, str]) -> Who:
    cells = {title.strip().lower(): cell.strip() for title, cell in row.items()}

    def cell(titles: Sequence[str]) -> str:
        return next((cells[title] for title in titles if title in cells), "")

    name = cell(_NAME) or f"{cell(_FIRST)} {cell(_LAST)}".strip()
    if name.count(",") == 1:  # Canvas writes "Li, Ana"
        last, first = name.split(",")
        name = f"{first.strip()} {last.strip()}"
    digits = re.findall(r"\d+", cell(_NUMBER))  # Moodle writes "Participant 101"
    return Who(unicodedata.normalize("NFC", name), digits[-1] if digits else "")


def _words(name: str) -> set[str]:
    """Return how a name may be written: its words in any order, and as Canvas does, the last name's letters first.

    Example:
        >>> sorted(_words("Ana Li"))
        ['ana li', 'liana']
    """
    words = [word for word in re.split(r"[\s,_.]+", unicodedata.normalize("NFC", name).casefold()) if word]
    squeezed = "".join(letter for letter in "".join([*words[1:], *words[:1]]) if letter.isalnum())
    return {" ".join(sorted(words)), squeezed} if words else set()
