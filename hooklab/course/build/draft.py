"""Draft: a lesson's source, checked as far as that needs no execution, and how long the lesson takes.

An exercise is a card (markdown, tag exercise), a solution cell and a check cell. A prediction is `predict("1.a")` and
nothing else; the code, tagged predict and without an assert, which would give the answer away; `reveal("1.a", value)`,
whose code is folded, with the asserts and nothing else.

    words outside folded blocks / 180 + 5 seconds for each line of code + 1 for a figure + 2 for an explorer
    + the minutes on the cards of its exercises

is how long a lesson takes. The formula comes from three cold readings of lessons 1 to 7 by readers who noted where the
time went; each of them agreed with it within a tenth. Everything up to the heading "If you want more", with the
exercises ●○○ and ●●○, is the first number; the exercises ●●● and everything after that heading are the second.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from hooklab.course import words
from hooklab.course.build.sources import (
    BEGIN,
    END,
    Cell,
    Course,
    Lesson,
    has_whole_regions,
    markers_in,
    read_cells,
    stubbed,
)
from hooklab.course.lesson00 import documents, kinds, symptoms
from hooklab.course.lesson00.symptoms import Tagged

TAGS = (  # as patterns
    *("exercise", "solution", "check", "predict", "folded", "figure", "explorer", "field", "recap", "quiz", "setup"),
    *("documents", r"claim-S\d+\.\d+", r"field-(\d{2,3}|[a-z-]+)", "hook-[a-z-]+"),
    "nbval-ignore-output",  # numbers that differ between processors; asserts hold them
)
WORDS_A_MINUTE = 180
LINES_A_MINUTE = 12
HARDEST = 3  # ●●●
TOLERANCE = 0.2
MORE = f"## {words.MORE}"
# The tables of the start page: where each stands, the tags of the cells in it, what writes it.
TABLES: dict[str, tuple[str, Callable[[Iterable[Tagged]], str]]] = {
    "<!-- the index of symptoms -->": ("field-", symptoms.index),
    "<!-- all kinds of hooks -->": ("hook-", kinds.table),
    **{
        f"<!-- the steps of {document} -->": ("claim-", functools.partial(documents.table, document=document))
        for document in documents.DOCUMENTS
    },
}
_NOTHING = Cell("", 0, 0, "markdown", (), "")  # comes after the last cell
_TITLE = f"### {words.EXERCISE} "
_CARD = re.compile(rf"{_TITLE}(\d+\.\d+) · (\S.*)\n+(●○○|●●○|●●●) · (\d+) {words.A_MINUTE}$", re.M)
_SUBHEADING = re.compile(r"^#{1,4} (.+?)\s*$", re.M)
_LINK = re.compile(r"(?<=\]\()\d\d_\w+\.ipynb#[\w.-]+(?=\))")
_FOLDED = re.compile(r"<details>.*?</details>", re.S)
_ON_CARD = re.compile(rf"\*\*{words.TIME}\*\* (\d+) {words.A_MINUTE}(?:, {words.AND} (\d+)\b)?")


@dataclass(frozen=True)
class Exercise:
    """An exercise: its id, such as "2.1", its title, its points (the number of ●), its minutes, and its three cells."""

    id: str
    title: str
    points: int
    minutes: int
    card: Cell
    solution: Cell
    check: Cell

    @property
    def slug(self) -> str:
        """The id in the names of its cells, for nbgrader and as a cell's id: `solution-2-1`."""
        return self.id.replace(".", "-")


@dataclass(frozen=True)
class Minutes:
    """The minutes of a lesson's core, and of all that can wait."""

    core: int
    more: int = 0

    def __str__(self) -> str:
        return f"{self.core} + {self.more}" if self.more else str(self.core)


@dataclass(frozen=True)
class Draft:
    """A lesson's cells and exercises, every problem of its source, its minutes, and the ids of its cells."""

    lesson: Lesson
    cells: list[Cell]
    exercises: list[Exercise]
    problems: list[str]
    minutes: Minutes
    ids: list[str]


def draft(course: Course, lesson: Lesson) -> Draft:
    """Read a lesson's source and return it with all its problems, a line each."""
    written = cells_of(lesson)
    cells, problems = _with_tables(course, _with_links(course, written))
    exercises, faults = _find_exercises(cells)
    minutes = _computed(written, exercises)  # without the tables: one looks things up there
    problems += [*_unknown_tags(cells), *faults, *_prediction_problems(cells)]
    if not faults:  # an exercise at fault has no minutes, so the sum would be wrong
        problems += _minutes_problems(lesson, cells, minutes)
    return Draft(lesson, cells, exercises, problems, minutes, _cell_ids(lesson, written, exercises))


def cells_of(lesson: Lesson) -> list[Cell]:
    """Return the cells of a lesson's source as they are written."""
    return read_cells(lesson.source.read_text(encoding="utf-8"), lesson.shown(lesson.source))


# --- tags, exercises and predictions


def _unknown_tags(cells: list[Cell]) -> Iterator[str]:
    for cell in cells:
        for tag in cell.tags:
            if not any(re.fullmatch(known, tag) for known in TAGS):
                yield cell.problem(f"unknown tag {tag!r}; known: {', '.join(TAGS)}")


def _find_exercises(cells: list[Cell]) -> tuple[list[Exercise], list[str]]:
    """Return the exercises of a lesson, and what is wrong with their cells; an exercise with a fault is left out."""
    problems: list[str] = []
    exercises: list[Exercise] = []
    whole: set[int] = set()  # the numbers of the cells of all cards, and of the two cells after each
    for card in (cell for cell in cells if "exercise" in cell.tags):
        solution, check = [*cells, _NOTHING, _NOTHING][card.number : card.number + 2]
        whole |= {card.number, solution.number, check.number}
        one = _exercise(card, solution, check)
        if not isinstance(one, Exercise):
            problems.append(one)
        elif one.id in [other.id for other in exercises]:
            problems.append(card.problem(f"there are two exercises {one.id}"))
        else:
            exercises.append(one)
    for cell in cells:
        is_part = {"solution", "check"} & set(cell.tags) or cell.called_with("check") or markers_in(cell.text)
        if is_part and cell.number not in whole:
            problems.append(cell.problem("a solution or a check that does not follow an exercise's card"))
    return exercises, problems


def _exercise(card: Cell, solution: Cell, check: Cell) -> Exercise | str:
    """Return the exercise of three cells in a row, or the first thing that is wrong with them."""
    for cell, role in ((solution, "solution"), (check, "check")):
        if role not in cell.tags or cell.kind != "code":
            return card.problem("a card, a solution cell and a check cell, both of code, must follow each other")
    if (told := _CARD.match(card.text)) is None:
        return card.problem(f"the card must begin like `{_TITLE}2.1 · Title` and, below it, `●○○ · 5 minutes`")
    id, title, points, minutes = told.groups()
    if not has_whole_regions(solution.text):
        return solution.problem(f"a solution must be between `{BEGIN}` and `{END}`, each alone on its line")
    if check.called_with("check") != [id]:
        return check.problem(f'exactly one call of check("{id}", …) is needed here')
    return Exercise(id, title, points.count("●"), int(minutes), card, solution, check)


def _prediction_problems(cells: list[Cell]) -> Iterator[str]:
    """Find the cells of predictions that are not three in a row, or in which the answer is in sight."""
    whole: set[int] = set()
    for asking in (cell for cell in cells if cell.called_with("predict")):
        code, telling = [*cells, _NOTHING, _NOTHING][asking.number : asking.number + 2]
        whole |= {asking.number, code.number, telling.number}
        (id, *_), told = asking.called_with("predict"), telling.called_with("reveal")
        if asking.text.strip() != f'predict("{id}")':
            yield asking.problem(f'`predict("{id}")` must be alone in its cell')
        elif "predict" not in code.tags or told != [id] or not telling.text.startswith("reveal("):
            yield asking.problem(
                f"a cell with the tag 'predict', and then one that begins `reveal(\"{id}\", …)`, must follow"
            )
        elif any(isinstance(node, ast.Assert) for node in ast.walk(code.parsed())):
            yield code.problem("an assert in the code of a prediction tells the answer: put it after `reveal(…)`")
        elif not all(isinstance(line, ast.Assert) for line in telling.parsed().body[1:]):
            yield telling.problem("this cell is folded: nothing but asserts may follow `reveal(…)`")
    for cell in cells:
        if cell.number not in whole and ("predict" in cell.tags or cell.called_with("reveal")):
            yield cell.problem("a part of a prediction that does not follow its `predict(…)`")


# --- minutes


def _minutes_problems(lesson: Lesson, cells: list[Cell], minutes: Minutes) -> Iterator[str]:
    """Hold the minutes on the lesson's card against those computed, and those in its row of the README against both."""
    said = on_card(cells)
    if said is None:
        form = f"**{words.TIME}** {minutes.core} {words.MINUTES}"
        form += f", {words.AND} {minutes.more} …" if minutes.more else ""
        yield cells[0].problem(f"the lesson's card has no minutes: `{form}`")
    elif _is_off(said.core, minutes.core) or _is_off(said.more, minutes.more):
        yield cells[0].problem(f"{said} minutes, computed are {minutes}")
    readme = lesson.root / "README.md"
    lines = readme.read_text(encoding="utf-8").split("\n") if readme.is_file() else []
    link, stated = f"[{lesson.name}](lessons/{lesson.name}.ipynb)", f"| {said or minutes} |"
    if not any(link in line and stated in line for line in lines):
        form = f"| {lesson.number} | {link} | the question {stated} what one needs before |"
        yield f"README.md: no row of {lesson.name} with the minutes of its card: {form}"


def on_card(cells: list[Cell]) -> Minutes | None:
    """Return the minutes that the lesson's card gives, if it does."""
    found = _ON_CARD.search(cells[0].text)
    return Minutes(int(found[1]), int(found[2] or 0)) if found else None


def _is_off(stated: int, needed: int) -> bool:
    return abs(stated - needed) > max(1, TOLERANCE * needed)


def minutes_by_cell(cells: list[Cell], exercises: list[Exercise]) -> list[tuple[float, float]]:
    """Return the minutes that each cell takes now, and those that can wait; an exercise's are at its card."""
    found: list[tuple[float, float]] = []
    cards = {one.card.number: one for one in exercises}
    is_behind = False  # the recap
    for cell in cells:
        is_behind = is_behind or (cell.kind == "markdown" and MORE in cell.text.split("\n"))
        one = cards.get(cell.number)
        reading, solving = _reading(cell), one.minutes if one else 0
        now = (not is_behind) * (reading + solving * (not one or one.points < HARDEST))
        found.append((now, reading + solving - now))
    return found


def _computed(cells: list[Cell], exercises: list[Exercise]) -> Minutes:
    core, more = map(sum, zip(*minutes_by_cell(cells, exercises), strict=True))
    return Minutes(round(core), round(more))


def _reading(cell: Cell) -> float:
    if cell.kind == "markdown":
        return len(_FOLDED.sub("", cell.text).split()) / WORDS_A_MINUTE
    lines = sum(bool(line.strip()) for line in stubbed(cell.text).split("\n"))
    return lines / LINES_A_MINUTE + ("figure" in cell.tags) + 2 * ("explorer" in cell.tags)


# --- the ids of cells, links to them, and the tables of the start page


def _cell_ids(lesson: Lesson, cells: list[Cell], exercises: list[Exercise]) -> list[str]:
    """Return an id for each cell: by the exercise for a card and its cells, else by the lesson and the cell's text.

    The text is that of the source, so a link to another cell, and what the tables hold, change no id. An edit changes
    the id of no other cell. Equal cells are distinguished by their order.
    """
    named: dict[int, str] = {}
    for one in exercises:
        for role, cell in (("exercise", one.card), ("solution", one.solution), ("check", one.check)):
            named[cell.number] = f"{role}-{one.slug}"
    ids: list[str] = []
    for cell in cells:
        digest = hashlib.sha256(f"{lesson.name}\n{cell.kind}\n{cell.text}".encode()).hexdigest()[:12]
        id, copy = named.get(cell.number, digest), 2
        while id in ids:
            id, copy = f"{digest}-{copy}", copy + 1
        ids.append(id)
    return ids


def _with_links(course: Course, cells: list[Cell]) -> list[Cell]:
    """Turn each link to a tag, `05_backward_hooks.ipynb#field-45`, into one to the first cell with that tag."""
    if not any(_LINK.search(cell.text) for cell in cells):
        return cells
    places = {f"{one.lesson}.ipynb#{one.key}": one.target for one in reversed([*_tagged(course)])}
    return [replace(cell, text=_LINK.sub(lambda link: places.get(link[0], link[0]), cell.text)) for cell in cells]


def _with_tables(course: Course, cells: list[Cell]) -> tuple[list[Cell], list[str]]:
    """Write the start page's tables in the places of their markers: they are made from the tags of all sources."""
    problems: list[str] = []
    for marker, (prefix, table) in TABLES.items():
        for marked in [cell for cell in cells if marker in cell.text]:
            tagged = [one for one in _tagged(course) if one.key.startswith(prefix)]
            try:
                rows = table(one._replace(key=one.key.removeprefix(prefix)) for one in tagged)
                full = replace(marked, text=marked.text.replace(marker, rows))
                cells = [full if cell is marked else cell for cell in cells]
            except LookupError as error:
                problems.append(marked.problem(str(error.args[0])))
    return cells, problems


def _tagged(course: Course) -> Iterator[Tagged]:
    """Yield all lessons' tags, each with its cell and the last heading before it that is not an exercise's."""
    for lesson in course.lessons():
        cells, heading = cells_of(lesson), ""
        ids = _cell_ids(lesson, cells, _find_exercises(cells)[0])
        for cell, id in zip(cells, ids, strict=True):
            if cell.kind == "markdown" and "exercise" not in cell.tags:
                heading = (_SUBHEADING.findall(cell.text) or [heading])[-1]
            for tag in cell.tags:
                yield Tagged(tag, lesson.name, heading, id, cell.text)
