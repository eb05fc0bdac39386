"""What the course itself says of a lesson's exercises, read from the notebook that the students were given."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hooklab.course import words
from hooklab.course.classroom.reading import Cell, read_notebook
from hooklab.course.classroom.sandbox import ROOT as ROOT

LESSONS = ROOT / "lessons"
CORE, ALL = frozenset(["core"]), frozenset(["all"])
_HARDEST = 3  # ●●●
_CARD = re.compile(rf"### {words.EXERCISE} (\d+\.\d+) · (.+)\n(●+)")
_HINT = re.compile(rf"<summary>\s*{words.HINT}: \s*(.*?)</summary>\s*(.*?)\s*</details>", re.S)
_HEADING = re.compile(r"^#{1,3} (.+)$", re.M)
_CHECK = re.compile(r'^check\("(\d+\.\d+)", (\w+)', re.M)


@dataclass(frozen=True)
class Exercise:
    """An exercise: its id and title, its points, the name of the answer, and its place in the lesson.

    `section` is the heading above its card, `cell` the number of the card's cell, `hints` are (symptom, text).
    """

    id: str
    title: str
    points: int
    answer: str
    section: str
    cell: int
    hints: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Lesson:
    """A lesson: its number, its file's name without ending, its title, its exercises and its code cells."""

    number: int
    name: str
    title: str
    exercises: tuple[Exercise, ...]
    cells: tuple[Cell, ...]


def lesson_at(number: int, only: frozenset[str] = ALL) -> Lesson:
    """Return lesson `number`, with all of its exercises or with those in `only`.

    `only` has ids, or one of the words "core" (all but those that can wait: after the recap, or the hardest) and "all".

    Raises LookupError, naming the lessons that are there.
    """
    path = next(LESSONS.glob(f"{number:02d}_*.ipynb"), None)
    if path is None:
        there = ", ".join(path.stem[:2] for path in sorted(LESSONS.glob("[0-9][0-9]_*.ipynb")))
        raise LookupError(f"there is no lesson {number}; there are {there or 'none'}")
    content = path.read_bytes()
    cells = [("".join(cell["source"]), cell["cell_type"]) for cell in json.loads(content)["cells"]]
    answers = dict(match for text, kind in cells if kind == "code" for match in _CHECK.findall(text))
    exercises, section, is_more = [], "", False
    for index, (text, kind) in enumerate(cells, start=1):
        if card := _CARD.match(text):
            id, title, points = card.groups()
            hints = tuple((symptom, " ".join(told.split())) for symptom, told in _HINT.findall(text))
            is_core = not is_more and len(points) < _HARDEST
            if id in only or only == ALL or (only == CORE and is_core):
                exercises.append(Exercise(id, title, len(points), answers[id], section, index, hints))
        elif kind == "markdown" and (headings := _HEADING.findall(text)):
            section, is_more = headings[-1], is_more or words.MORE in headings
    title = _HEADING.findall(cells[0][0])[0]
    return Lesson(number, path.stem, title, tuple(exercises), read_notebook(content).cells)


def every_exercise() -> set[str]:
    """Return the ids of the exercises of all lessons."""
    numbers = [int(path.name[:2]) for path in LESSONS.glob("[0-9][0-9]_*.ipynb")]
    return {exercise.id for number in numbers for exercise in lesson_at(number).exercises}


def wrong_answers(lesson: int) -> dict[str, dict[str, Any]]:
    """Return the programs of the misconceptions of a lesson's exercises, by exercise and label."""
    path, space = misconceptions_of(lesson), dict[str, Any](__name__="misconceptions")
    exec(compile(path.read_bytes(), path, "exec"), space)
    return dict(space["MISCONCEPTIONS"])


def misconceptions_of(lesson: int) -> Path:
    return ROOT / "solutions" / "misconceptions" / f"lesson{lesson:02d}.py"
