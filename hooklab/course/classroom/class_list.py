"""The class as a platform exports it, `--students class.csv`: who is in it, and the same table with their points.

It may be Moodle's grading worksheet ("Identifier", "Full name", "Grade"), Canvas's gradebook ("Student",
"ID"), or any table with a column for the name, or first and last names, and perhaps one for the number.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hooklab.course.classroom.collecting import Submission, Who
from hooklab.course.classroom.grading import Graded
from hooklab.course.classroom.lessons import Lesson
from hooklab.course.classroom.verdicts import points_of
from hooklab.course.classroom.written import Refused

_NUMBER = ("identifier", "id", "number", "id number", "student id", "orgdefinedid", "student number")
_NAME = ("full name", "student", "name", "student name")
_FIRST, _LAST = ("first name", "firstname", "given name"), ("last name", "lastname", "surname", "family name")
_GRADE = ("grade", "points")
STRANGER = "is not on the class list, or has a name that several people on it have"
_NOBODY = re.compile(r"\s*points possible|student,? test", re.I)  # rows of Canvas's gradebook that aren't students


@dataclass(frozen=True)
class ClassList:
    """A class: the lines of its table, and each student's line, number and name."""

    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    students: dict[str, int]  # the name, with the number where two people share it -> the line
    who: dict[str, Who]

    def match(self, submissions: Sequence[Submission]) -> list[Submission]:
        """Return a submission for each student on the list, and the submissions that match no student.

        Numbers are compared where both have one, and whole names otherwise. A name that fits several people fits none.
        """
        found = {name: Submission(name) for name in self.students}
        others = []
        for one in submissions:
            name = self._name_of(one.who)
            if name is None:
                others.append(one)
                one.faults.append(STRANGER)
            else:
                found[name].join(one)
        return sorted([*found.values(), *others], key=lambda one: one.student)

    def _name_of(self, who: Who) -> str | None:
        by_number = [name for name, one in self.who.items() if who.number and one.number == who.number]
        by_name = [name for name, one in self.who.items() if _words(one.name) & _words(who.name)]
        fitting = by_number if len(by_number) == 1 else by_name
        return fitting[0] if len(fitting) == 1 else None

    def with_points(self, graded: Sequence[Graded], lessons: dict[int, Lesson]) -> str:
        """Return the table to upload: each student's points are in its grade column, or in a new last column."""
        sums: dict[str, int] = defaultdict(int)
        for one in graded:
            exercises = lessons[one.lesson].exercises if one.lesson in lessons else ()
            sums[one.student] += sum(points_of(exercise, one.verdicts.get(exercise.id)) for exercise in exercises)
        column = _column(self.header, _GRADE)
        title = "hooklab " + ", ".join(f"lesson {number}" for number in lessons)
        header = list(self.header) if column is not None else [*self.header, title]
        of_line = {line: str(sums[name]) for name, line in self.students.items()}
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(header)
        for number, line in enumerate(self.lines):
            cells = [*line] if column is not None else [*line, ""]
            cells[-1 if column is None else column] = of_line.get(number, cells[-1 if column is None else column])
            table.writerow(cells)
        return text.getvalue()


def read_class(path: Path) -> ClassList:
    """Read a class list. Raises Refused, with one sentence, if no student can be found in the table."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise Refused(f"{path} cannot be read: {error}") from None
    first = text.split("\n")[0]
    separator = max(",;\t", key=first.count)
    lines = [tuple(line) for line in csv.reader(io.StringIO(text), delimiter=separator) if any(line)]
    header = lines[0] if lines else ()
    width = len(header)
    rows = tuple((*line, *[""] * width)[:width] for line in lines[1:])
    people = {number: _person(header, line) for number, line in enumerate(rows)}
    people = {number: who for number, who in people.items() if who.name and not _NOBODY.match(who.name)}
    if not people:
        raise Refused(f'{path} has nobody in it: a column "Full name", "Student" or "name" is needed')
    names = [who.name for who in people.values()]
    called = {
        number: f"{who.name} ({who.number or number + 2})" if names.count(who.name) > 1 else who.name
        for number, who in people.items()
    }
    students = {name: number for number, name in called.items()}
    return ClassList(header, rows, students, {called[number]: who for number, who in people.items()})


def _person(header: tuple[str, ...], line: tuple[str, ...]) -> Who:
    def cell(titles: Sequence[str]) -> str:
        column = _column(header, titles)
        return "" if column is None else line[column].strip()

    name = cell(_NAME) or f"{cell(_FIRST)} {cell(_LAST)}".strip()
    if name.count(",") == 1:  # Canvas writes "Li, Ana"
        last, first = name.split(",")
        name = f"{first.strip()} {last.strip()}"
    digits = re.findall(r"\d+", cell(_NUMBER))  # Moodle writes "Participant 101"
    return Who(unicodedata.normalize("NFC", name), digits[-1] if digits else "")


def _column(header: Sequence[str], titles: Sequence[str]) -> int | None:
    there = [title.strip().lower() for title in header]
    return next((there.index(title) for title in titles if title in there), None)


def _words(name: str) -> set[str]:
    """Return how a name may be written: its words in any order, and as Canvas does, the last name's letters first.

    Example:
        >>> sorted(_words("Ana Li"))
        ['ana li', 'liana']
    """
    words = [word for word in re.split(r"[\s,_.]+", unicodedata.normalize("NFC", name).casefold()) if word]
    squeezed = "".join(letter for letter in "".join([*words[1:], *words[:1]]) if letter.isalnum())
    return {" ".join(sorted(words)), squeezed} if words else set()
