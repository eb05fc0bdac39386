"""Draft: a lesson's source, read and held against every rule that needs no execution; and how long the lesson takes.

    words outside folded blocks / 180 + 5 seconds for each line of code + 1 for a figure + 2 for an explorer
    + the minutes on the cards of its exercises

The formula comes from three cold readings of lessons 1 to 7 by readers who noted where the time went; each of them
agreed with it within a tenth. Everything up to the heading "If you want more", with the exercises ●○○ and ●●○, is the
first number; the exercises ●●● and what stands behind that heading are the second.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hooklab.course import words
from hooklab.course.build.course import Course, Lesson, Problem, ids_in
from hooklab.course.build.parts import Exercise, carded_ids, find_exercises, prediction_problems
from hooklab.course.build.source import Cell, read_cells, stubbed
from hooklab.course.lesson00 import kinds
from hooklab.course.lesson00.symptoms import Answer, index

WORDS_A_MINUTE = 180
LINES_A_MINUTE = 12
HARDEST = 3  # ●●●
TOLERANCE = 0.2
WRONG_ANSWERS = 3
MORE = f"## {words.MORE}"
INDEX = "<!-- the index of symptoms -->"
MAP = "<!-- all kinds of hooks -->"
_SUBHEADING = re.compile(r"^#{1,4} (.+?)\s*$", re.M)
_FOLDED = re.compile(r"<details>.*?</details>", re.S)
_ON_CARD = re.compile(rf"\*\*{words.TIME}\*\* (?P<core>\d+) {words.A_MINUTE}(?:, {words.AND} (?P<more>\d+)\b)?")
_IN_ROW = re.compile(r"\.ipynb\).*\| (?P<core>\d+)(?: \+ (?P<more>\d+))? \|")


@dataclass(frozen=True)
class Minutes:
    """The minutes of a lesson's core, and of all that can wait."""

    core: int
    more: int = 0

    def __str__(self) -> str:
        return f"{self.core} + {self.more}" if self.more else str(self.core)


NONE = Minutes(0)


@dataclass(frozen=True)
class Draft:
    """A lesson's cells and exercises, every problem of its source, and its minutes."""

    lesson: Lesson
    file: str
    cells: list[Cell]
    exercises: list[Exercise]
    problems: list[Problem]
    minutes: Minutes = NONE


def draft(course: Course, lesson: Lesson) -> Draft:
    """Read a lesson's source and return it with all its problems, in the order of the file."""
    file = lesson.shown(lesson.source)
    if lesson.number is None:
        return Draft(lesson, file, [], [], [Problem(file, "the name must begin with the lesson's number: 02_slug.py")])
    try:
        text = lesson.source.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        return Draft(lesson, file, [], [], [Problem(file, f"this is not UTF-8: {error.reason}")])
    written, problems = read_cells(text, file)
    if not written:
        return Draft(lesson, file, [], [], problems)
    cells, unworded = _with_tables(course, written, file)
    exercises, faults = find_exercises(cells, file)
    minutes = _computed(written, exercises)  # without the tables: one looks things up there
    predictions = lesson.own / "predictions.py"
    problems += unworded + faults
    problems += _id_problems(lesson, cells, exercises, file)
    problems += _lacking(course, lesson, cells, file)
    known = ids_in([predictions] if predictions.is_file() else [], "prediction", "number")
    problems += prediction_problems(cells, known, lesson.shown(predictions), file)
    # an exercise at fault has no minutes, so the sum would be wrong
    problems += _minutes_problems(lesson, cells, None if faults else minutes, file)
    problems.sort(key=lambda problem: problem.line or 0)
    return Draft(lesson, file, cells, exercises, problems, minutes)


def _id_problems(lesson: Lesson, cells: list[Cell], exercises: list[Exercise], file: str) -> list[Problem]:
    """Hold the exercises' ids against the checks and the wrong answers."""
    known = ids_in(sorted(lesson.own.glob("check*.py")), "exercise")
    wrong = Counter(ids_in([lesson.wrong_answers], "wrong") if lesson.wrong_answers.is_file() else [])
    problems = []
    for one in exercises:
        if not one.id.startswith(f"{lesson.number}."):
            problems.append(one.card.problem(file, f"exercise {one.id} in lesson {lesson.number}"))
        elif one.id not in known:
            problems.append(one.check.problem(file, f'hooklab.course.exercises has no @exercise("{one.id}", …)'))
        elif wrong[one.id] < WRONG_ANSWERS:
            needed = f'at least {WRONG_ANSWERS} are needed, each @wrong("{one.id}", "what the check says")'
            what = f"{wrong[one.id]} wrong answers in {lesson.shown(lesson.wrong_answers)}: {needed}"
            problems.append(one.card.problem(file, what))
    cardless = sorted(set(known) - set(carded_ids(cells)))
    return problems + [
        Problem(file, f"hooklab.course.exercises has exercise {id}, but here is no card for it") for id in cardless
    ]


def _lacking(course: Course, lesson: Lesson, cells: list[Cell], file: str) -> list[Problem]:
    """Return what a lesson must have and has not, and each other source with its number, and so with its ids."""
    others = [one for one in course.lessons() if one.number == lesson.number and one != lesson]
    found = [f"{lesson.shown(other.source)} has the same number, and so the same ids" for other in others]
    recap = [cell.number for cell in cells if "recap" in cell.tags]
    if not recap:
        found.append('no recap: a markdown cell with the tag "recap", near the end')
    problems = [Problem(file, what) for what in found]
    if recap and (more := next(filter(_is_more, cells), None)) and more.number < recap[0]:
        problems.append(more.problem(file, f"`{MORE}` stands behind the recap, not before it"))
    return problems


def _minutes_problems(lesson: Lesson, cells: list[Cell], minutes: Minutes | None, file: str) -> Iterator[Problem]:
    """Hold the minutes on the lesson's card and in its row of the README against those computed, if they are known."""
    said = _ON_CARD.search(cells[0].text)
    if said is None:
        core, more = (minutes.core, minutes.more) if minutes else ("…", 0)
        form = f"**{words.TIME}** {core} {words.MINUTES}" + (f", {words.AND} {more} …" if more else "")
        yield cells[0].problem(file, f"the lesson's card has no minutes: `{form}`")
    elif minutes and (fault := _off(said, minutes)):
        yield cells[0].problem(file, fault)
    readme = lesson.root / "README.md"
    lines = readme.read_text(encoding="utf-8").split("\n") if readme.is_file() else []
    link = f"[{lesson.name}](lessons/{lesson.name}.ipynb)"
    number, row = next(((number, line) for number, line in enumerate(lines, 1) if link in line), (None, ""))
    said = _IN_ROW.search(row)
    if said is None:
        form = f"| {lesson.number} | {link} | the question | {minutes or '…'} | what one needs before |"
        yield Problem("README.md", f"no row of {lesson.name} with its minutes in the table of lessons: {form}", number)
    elif minutes and (fault := _off(said, minutes)):
        yield Problem("README.md", f"the row of {lesson.name}: {fault}", number)


def _off(said: re.Match[str], needed: Minutes) -> str | None:
    stated = Minutes(int(said["core"]), int(said["more"] or 0))
    pairs = ((stated.core, needed.core), (stated.more, needed.more))
    if any(abs(one - other) > max(1, TOLERANCE * other) for one, other in pairs):
        return f"{stated} minutes, computed are {needed}"
    return None


def _computed(cells: list[Cell], exercises: list[Exercise]) -> Minutes:
    last = next((cell.number for cell in cells if _is_more(cell)), len(cells) + 1)
    core = sum(minutes_of(cell) for cell in cells if cell.number < last)
    more = sum(minutes_of(cell) for cell in cells if cell.number >= last)
    for one in exercises:
        if one.points == HARDEST or one.card.number >= last:
            more += one.minutes
        else:
            core += one.minutes
    return Minutes(round(core), round(more))


def minutes_of(cell: Cell) -> float:
    """Return the minutes that a cell takes to read, without the time for an exercise."""
    if cell.kind == "markdown":
        return len(_FOLDED.sub("", cell.text).split()) / WORDS_A_MINUTE
    lines = sum(bool(line.strip()) for line in stubbed(cell.text).split("\n"))
    return lines / LINES_A_MINUTE + ("figure" in cell.tags) + 2 * ("explorer" in cell.tags)


def _is_more(cell: Cell) -> bool:
    """Whether the part that can wait begins with this cell."""
    return cell.kind == "markdown" and MORE in cell.text.split("\n")


def _with_tables(course: Course, cells: list[Cell], file: str) -> tuple[list[Cell], list[Problem]]:
    """Write the start page's tables in the places of their markers: they are made from the tags of all sources."""
    problems = []
    for marker, write in ((INDEX, _index), (MAP, _map)):
        marked = next((cell for cell in cells if marker in cell.text), None)
        if marked is None:
            continue
        try:
            full = replace(marked, text=marked.text.replace(marker, write(course)))
            cells = [full if cell is marked else cell for cell in cells]
        except LookupError as error:
            problems.append(marked.problem(file, str(error.args[0])))
    return cells, problems


def _index(course: Course) -> str:
    tagged = _tagged(course, "field-")
    return index(Answer(case, lesson, heading) for case, lesson, heading, _ in tagged)


def _map(course: Course) -> str:
    return kinds.table(kinds.Tagged(*one) for one in _tagged(course, "hook-"))


def _tagged(course: Course, prefix: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield for each tag with this prefix: the rest of it, its lesson, the heading that its cell is under, its text."""
    for lesson in course.lessons():
        heading = ""
        for cell in read_cells(lesson.source.read_text(encoding="utf-8"), lesson.name)[0]:
            if cell.kind == "markdown":
                heading = (_SUBHEADING.findall(cell.text) or [heading])[-1]
            for tag in cell.tags:
                if tag.startswith(prefix):
                    yield tag.removeprefix(prefix), lesson.name, heading, cell.text
