"""Draft: a lesson's source, read and held against the rules that need no execution."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hooklab.course.build.cards import Exercise, carded_ids, find_exercises
from hooklab.course.build.course import Course, Lesson
from hooklab.course.build.minutes import MORE, Minutes, card_fault, computed, is_more, row_fault
from hooklab.course.build.predictions import prediction_problems
from hooklab.course.build.problems import Problem
from hooklab.course.build.reading import Cell, read_cells
from hooklab.course.lesson00.symptoms import Answer, index

INDEX = "<!-- the index of symptoms -->"
_HEADING = re.compile(r"^#{1,4} (.+?)\s*$", re.M)


@dataclass(frozen=True)
class Draft:
    """A lesson's cells and exercises, and every problem of its source.

    `has_predictions` is whether the lesson has a predictions.py. Only then its predict cells are held to the rules of
    predictions, their outputs are folded and its minutes are held against the card; a constant once all have it.
    """

    lesson: Lesson
    file: str
    cells: list[Cell]
    exercises: list[Exercise]
    problems: list[Problem]
    has_predictions: bool = False
    minutes: Minutes | None = None


def draft(course: Course, lesson: Lesson) -> Draft:
    """Read a lesson's source and return it with all its problems, in the order of the file."""
    file = course.shown(lesson.source)
    if lesson.number is None:
        return Draft(lesson, file, [], [], [Problem(file, "the name must begin with the lesson's number: 02_slug.py")])
    try:
        text = lesson.source.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        return Draft(lesson, file, [], [], [Problem(file, f"this is not UTF-8: {error.reason}")])
    cells, problems = read_cells(text, file)
    written = cells
    cells, unworded = _with_index(course, cells, file)
    problems += unworded
    exercises, faults = find_exercises(cells, file)
    problems += faults
    known = course.known_exercises()
    problems += _id_problems(lesson.number, exercises, known, file)
    problems += [
        Problem(file, f"hooklab.course.exercises has exercise {id}, but here is no card for it")
        for id in sorted(known - set(carded_ids(cells)))
        if id.startswith(f"{lesson.number}.")
    ]
    problems += _shared_number(course, lesson, file)
    predictions = course.known_predictions(lesson)
    minutes = computed(written, exercises)  # the index is looked things up in, and not read
    if predictions is not None:
        problems += prediction_problems(cells, predictions, lesson.number, file)
        problems += _minutes_problems(course, lesson, cells, minutes, file)
    problems.sort(key=lambda problem: problem.line or 0)
    return Draft(lesson, file, cells, exercises, problems, predictions is not None, minutes)


def _minutes_problems(course: Course, lesson: Lesson, cells: list[Cell], minutes: Minutes, file: str) -> list[Problem]:
    problems = []
    if cells and (fault := card_fault(cells[0].text, minutes)):
        problems.append(cells[0].problem(file, fault))
    row = course.readme_row(lesson)
    if row and (fault := row_fault(row[1], minutes)):
        problems.append(Problem("README.md", f"the row of {lesson.name}: {fault}", row[0]))
    if (more := next((cell for cell in cells if is_more(cell)), None)) and "recap" not in {
        tag for cell in cells[: more.number - 1] for tag in cell.tags
    }:
        problems.append(more.problem(file, f"`{MORE}` stands behind the recap, and here is none before it"))
    return problems


def _with_index(course: Course, cells: list[Cell], file: str) -> tuple[list[Cell], list[Problem]]:
    """Write the index of symptoms in the place of its marker: it is made from the tags of all lessons' sources."""
    marked = next((cell for cell in cells if INDEX in cell.text), None)
    if marked is None:
        return cells, []
    try:
        written = index(answer for lesson in course.lessons() for answer in _answers(lesson))
    except LookupError as error:
        return cells, [marked.problem(file, str(error.args[0]))]
    full = replace(marked, text=marked.text.replace(INDEX, written))
    return [full if cell is marked else cell for cell in cells], []


def _answers(lesson: Lesson) -> Iterator[Answer]:
    heading = ""
    for cell in read_cells(lesson.source.read_text(encoding="utf-8"), lesson.name)[0]:
        if cell.kind == "markdown":
            heading = (_HEADING.findall(cell.text) or [heading])[-1]
        for tag in cell.tags:
            if tag.startswith("field-"):
                yield Answer(tag.removeprefix("field-"), lesson.name, heading)


def _id_problems(number: int, exercises: list[Exercise], known: set[str], file: str) -> list[Problem]:
    problems = []
    for one in exercises:
        if not one.id.startswith(f"{number}."):
            problems.append(one.card.problem(file, f"exercise {one.id} in lesson {number}"))
        if one.id not in known:
            problems.append(one.check.problem(file, f'hooklab.course.exercises has no @exercise("{one.id}", …)'))
    return problems


def _shared_number(course: Course, lesson: Lesson, file: str) -> list[Problem]:
    """Return a problem for each other source with this number: their exercise ids would be the same."""
    others = [one for one in course.lessons() if one.number == lesson.number and one != lesson]
    return [Problem(file, f"{course.shown(other.source)} has the same number, and so the same ids") for other in others]
