"""What the course itself says of a lesson's exercises, read from the notebook that the students were given."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hooklab.course import words
from hooklab.course.classroom.reading import Cell, read_notebook
from hooklab.course.classroom.sandbox import ROOT as ROOT

LESSONS = ROOT / "lessons"
CORE, ALL = frozenset(["core"]), frozenset(["all"])
_HARDEST = 3  # ●●●
_CARD = re.compile(rf"### {words.EXERCISE} (\d+\.\d+) · (.+)\n(●+)")
_HINT = re.compile(rf"<summary>\s*{words.HINT}: \s*(.*?)</summary>\s*(.*?)\s*</details>", re.S)
_HEADING = re.compile(r"^#{1,3} (.+)$", re.M)


@dataclass(frozen=True)
class Exercise:
    """An exercise: its id and title, its points, the name of the answer, and its place in the lesson.

    `section` is the heading above its card, `cell` the number of the card's cell, `hints` are (symptom, text). An
    exercise `waits` if it comes after the recap or is one of the hardest.
    """

    id: str
    title: str
    points: int
    answer: str
    section: str
    cell: int
    hints: tuple[tuple[str, str], ...]
    waits: bool = False


@dataclass(frozen=True)
class Lesson:
    """A lesson: its number, its file's name without ending, its title, its exercises and its code cells."""

    number: int
    name: str
    title: str
    exercises: tuple[Exercise, ...]
    cells: tuple[Cell, ...]


def lesson_at(number: int, folder: Path, only: frozenset[str] | None = None) -> Lesson:
    """Return lesson `number` of the notebooks in a folder, with all of its exercises or with those in `only`.

    `only` has ids, or one of the words "core" (all but those that can wait) and "all".

    Raises LookupError, naming the lessons that are there.
    """
    paths = sorted(folder.glob(f"{number:02d}_*.ipynb"))
    if not paths:
        there = ", ".join(path.stem[:2] for path in sorted(folder.glob("[0-9][0-9]_*.ipynb")))
        raise LookupError(f"there is no lesson {number}; there are {there or 'none'}")
    content = paths[0].read_bytes()
    texts = ["".join(cell["source"]) for cell in json.loads(content)["cells"]]
    exercises = tuple(one for one in _exercises(texts) if _counts(one, only or ALL))
    return Lesson(number, paths[0].stem, _HEADING.findall(texts[0])[0], exercises, read_notebook(content).cells)


def _counts(one: Exercise, only: frozenset[str]) -> bool:
    return one.id in only or only == ALL or (only == CORE and not one.waits)


def _exercises(texts: Sequence[str]) -> list[Exercise]:
    found, section, is_more = [], "", False
    for index, text in enumerate(texts):
        if card := _CARD.match(text):
            hints = tuple((symptom, " ".join(told.split())) for symptom, told in _HINT.findall(text))
            id, title, points = card.groups()
            waits = is_more or len(points) == _HARDEST
            found.append(Exercise(id, title, len(points), _answer(texts[index:], id), section, index + 1, hints, waits))
        elif headings := _HEADING.findall(text):
            section, is_more = headings[-1], is_more or words.MORE in headings
    return found


def _answer(texts: Sequence[str], id: str) -> str:
    """The name in the exercise's check cell, such as `output_of` in `check("3.1", output_of)`."""
    for text in texts:
        if text.startswith(f'check("{id}"'):
            (call,) = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
            return ast.unparse(call.args[1])
    raise LookupError(f"exercise {id} has no check cell")
