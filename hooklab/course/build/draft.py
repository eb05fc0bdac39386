"""Draft: a lesson's source, checked against every rule that needs no execution, and how long the lesson takes.

An exercise is a card (markdown, tag exercise), a solution cell and a check cell. A prediction is `predict("1.a")` and
nothing else; the code, tagged predict and without an assert, which would give the answer away; `reveal("1.a", value)`,
whose code is folded, with the asserts and nothing else. No figure follows it: that would be in sight before the guess.
A cell tagged folded comes later, and its output would answer the question too.

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
from dataclasses import dataclass, field, replace

from hooklab.course import words
from hooklab.course.build.sources import (
    Cell,
    Course,
    Lesson,
    Problem,
    called_with,
    has_marker,
    parsed,
    read_cells,
    region_fault,
    stubbed,
)
from hooklab.course.lesson00 import documents, kinds, symptoms
from hooklab.course.lesson00.symptoms import Tagged

ROLES = ("exercise", "solution", "check")
HINTS = 2
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
_NOTHING = Cell(0, 0, "markdown", (), "")  # comes before the first cell and after the last
_TITLE = f"### {words.EXERCISE} "
_HEADING = re.compile(rf"{_TITLE}(\d+\.\d+) · (\S.*)")
_LEVEL = re.compile(rf"(●○○|●●○|●●●) · (\d+) {words.A_MINUTE}")
_HINT = re.compile(rf"<details>\s*<summary>\s*{words.HINT}: \s*\S.*?</summary>\s*\S.*?</details>", re.S)
_SUBHEADING = re.compile(r"^#{1,4} (.+?)\s*$", re.M)
_LINK = re.compile(r"\]\(((\d\d_\w+)\.ipynb(?:#([\w.-]+))?)\)")
_FOLDED = re.compile(r"<details>.*?</details>", re.S)
_ON_CARD = re.compile(rf"\*\*{words.TIME}\*\* (?P<core>\d+) {words.A_MINUTE}(?:, {words.AND} (?P<more>\d+)\b)?")
_IN_ROW = re.compile(r"\.ipynb\).*\| (?P<core>\d+)(?: \+ (?P<more>\d+))? \|")


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

    def roles(self) -> list[tuple[str, Cell]]:
        """Return its cells with their roles: exercise, solution, check."""
        return list(zip(ROLES, (self.card, self.solution, self.check), strict=True))

    def slug(self, role: str) -> str:
        """Return the name of one of its cells, for nbgrader and as the cell's id: `solution-2-1`."""
        return f"{role}-{self.id.replace('.', '-')}"


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
    file: str
    cells: list[Cell]
    exercises: list[Exercise]
    problems: list[Problem]
    minutes: Minutes = Minutes(0)
    ids: list[str] = field(default_factory=list)


def draft(course: Course, lesson: Lesson) -> Draft:
    """Read a lesson's source and return it with all its problems, in the order of the file."""
    file = lesson.shown(lesson.source)
    if lesson.number is None:
        return Draft(lesson, file, [], [], [Problem(file, "the name must begin with the lesson's number: 02_slug.py")])
    written, problems = read_cells(lesson.source.read_text(encoding="utf-8"), file)
    if not written:
        return Draft(lesson, file, [], [], problems)
    linked, lost = _with_links(course, written, file)
    cells, unworded = _with_tables(course, linked, file)
    exercises, faults = _find_exercises(cells, file)
    minutes = _computed(written, exercises)  # without the tables: one looks things up there
    predictions = lesson.own / "predictions.py"
    problems += lost + unworded + faults
    problems += _id_problems(lesson, cells, exercises, file)
    if not any("recap" in cell.tags for cell in cells):
        problems.append(Problem(file, 'no recap: a markdown cell with the tag "recap", near the end'))
    known = called_with(parsed(predictions), "prediction", "number")
    problems += _prediction_problems(cells, known, lesson.shown(predictions), file)
    # an exercise at fault has no minutes, so the sum would be wrong
    problems += _minutes_problems(lesson, cells, None if faults else minutes, file)
    problems.sort(key=lambda problem: problem.line or 0)
    return Draft(lesson, file, cells, exercises, problems, minutes, _cell_ids(lesson, written, exercises))


# --- exercises and predictions


def _find_exercises(cells: list[Cell], file: str) -> tuple[list[Exercise], list[Problem]]:
    """Return the exercises of a lesson, and every problem with their cells; an exercise with one is left out."""
    problems: list[Problem] = []
    exercises: list[Exercise] = []
    whole: set[int] = set()  # the numbers of the cells of all cards, and of the two cells after each
    for card in (cell for cell in cells if "exercise" in cell.tags):
        solution, check = [*cells, _NOTHING, _NOTHING][card.number : card.number + 2]
        whole |= {card.number, solution.number, check.number}
        one = _exercise(card, solution, check, file)
        if not isinstance(one, Exercise):
            problems += one
            continue
        if one.id in [before.id for before in exercises]:
            problems.append(card.problem(file, f"exercise id {one.id} is used twice in this lesson"))
        exercises.append(one)
    for cell in cells:
        if cell.number not in whole and (cell.called_with("check") or {"solution", "check"} & set(cell.tags)):
            problems.append(cell.problem(file, "a solution or a check that does not follow an exercise's card"))
        if "solution" not in cell.tags and has_marker(cell.text):
            problems.append(cell.problem(file, "a solution delimiter in a cell without the tag 'solution'"))
    return exercises, problems


def _exercise(card: Cell, solution: Cell, check: Cell, file: str) -> Exercise | list[Problem]:
    """Return the exercise of three cells in a row, or all that is wrong with them."""
    for cell, role, before in ((solution, "solution", "its card"), (check, "check", "its solution cell")):
        if role not in cell.tags:
            return [card.problem(file, f"an exercise without a {role} cell (a code cell, right after {before})")]
        if cell.kind != "code":
            return [cell.problem(file, f"tag {role!r} on a markdown cell")]
    lines = [line.strip() for line in card.text.split("\n") if line.strip()]
    heading, level = _HEADING.fullmatch(lines[0]), _LEVEL.fullmatch("".join(lines[1:2]))
    ids = check.called_with("check")
    problems = []
    if heading is None:
        problems.append(card.problem(file, f"the card's first line must be `{_TITLE}2.1 · Title`"))
    if level is None:
        what = "no difficulty or minutes: the card's second line must be like `●○○ · 5 minutes`"
        problems.append(card.problem(file, what))
    if (hints := len(_HINT.findall(card.text))) < HINTS:
        form = f"<details><summary>{words.HINT}: …</summary> … </details>"
        problems.append(card.problem(file, f"{hints} hints, at least {HINTS} are needed, each as {form}"))
    if fault := region_fault(solution.text):
        problems.append(solution.problem(file, fault))
    if len(ids) != 1:
        problems.append(check.problem(file, f'{len(ids)} calls of check("id", …), exactly one is needed'))
    elif heading and ids[0] != heading[1]:
        problems.append(check.problem(file, f"it checks {ids[0]}, but the card before it is exercise {heading[1]}"))
    if problems or level is None or heading is None:
        return problems
    return Exercise(ids[0], heading[2], level[1].count("●"), int(level[2]), card, solution, check)


def _prediction_problems(cells: list[Cell], known: list[str], where: str, file: str) -> list[Problem]:
    """Return every problem with a lesson's predictions; `known` are the ids in its predictions.py, here `where`."""
    asked = [id for cell in cells for id in cell.called_with("predict")]
    problems = [
        Problem(file, f"prediction {id} is {asked.count(id)} times on the page and {known.count(id)} times in {where}")
        for id in dict.fromkeys([*asked, *known])
        if (asked.count(id), known.count(id)) != (1, 1)
    ]
    for before, cell, after in zip([_NOTHING, *cells[:-1]], cells, [*cells[1:], _NOTHING], strict=True):
        if "predict" in cell.tags and any(isinstance(node, ast.Assert) for node in ast.walk(cell.parsed())):
            what = "an assert in a cell with the tag 'predict' gives the answer away: it belongs below reveal(…)"
            problems.append(cell.problem(file, what))
        if not _in_order(before, cell, after):
            what = 'a prediction is `predict("1.a")` alone, a cell with the tag \'predict\', then `reveal("1.a", …`'
            problems.append(cell.problem(file, what))
        if cell.called_with("reveal"):
            problems += [cell.problem(file, what) for what in _in_sight(cell, after)]
    return problems


def _in_sight(cell: Cell, after: Cell) -> Iterator[str]:
    """Yield what would tell the answer of a prediction, or would be folded away with it, where `cell` reveals it."""
    asserts = [one for one in cell.parsed().body if isinstance(one, ast.Assert)]
    if len(asserts) + 1 != len(cell.parsed().body):
        yield "the code of a cell that reveals is folded: only asserts may follow reveal(…), the rest in a cell below"
    if any(one.msg is None for one in asserts):
        yield "an assert below reveal(…) without a sentence: a reader who changes a number will meet it"
    if {"figure", "explorer"} & set(after.tags) and "folded" not in after.tags:
        yield "a picture right below reveal(…) is in sight before the guess: draw it in the cell tagged 'predict'"


def _in_order(before: Cell, cell: Cell, after: Cell) -> bool:
    """Whether a cell of a prediction has the two others around it."""
    if "predict" in cell.tags:
        asked, told = before.called_with("predict"), after.called_with("reveal")
        alone = bool(asked) and before.text.strip() == f'predict("{asked[0]}")'
        return alone and asked == told and after.text.startswith("reveal(")
    if cell.called_with("predict"):
        return "predict" in after.tags
    return not cell.called_with("reveal") or "predict" in before.tags


# --- the lesson as a whole


def _id_problems(lesson: Lesson, cells: list[Cell], exercises: list[Exercise], file: str) -> list[Problem]:
    """Compare the exercises' ids with those of the lesson's checks."""
    checks = [parsed(path) for path in sorted(lesson.own.glob("check*.py"))]
    known, own = [id for tree in checks for id in called_with(tree, "exercise")], lesson.shown(lesson.own)
    problems = []
    for one in exercises:
        if not one.id.startswith(f"{lesson.number}."):
            problems.append(one.card.problem(file, f"exercise {one.id} in lesson {lesson.number}"))
        elif one.id not in known:
            problems.append(one.check.problem(file, f'{own}/checks.py has no @exercise("{one.id}", …)'))
    headings = [_HEADING.match(cell.text.strip()) for cell in cells if "exercise" in cell.tags]  # of faulty ones, too
    cardless = sorted(set(known) - {heading[1] for heading in headings if heading})
    told = own + " has exercise {}, but here is no card for it"
    return problems + [Problem(file, told.format(id)) for id in cardless]


def _minutes_problems(lesson: Lesson, cells: list[Cell], minutes: Minutes | None, file: str) -> Iterator[Problem]:
    """Hold the minutes on the lesson's card and in its row of the README against those computed, if they are known."""
    said = on_card(cells)
    if said is None:
        form = f"**{words.TIME}** {minutes.core if minutes else '…'} {words.MINUTES}"
        form += f", {words.AND} {minutes.more} …" if minutes and minutes.more else ""
        yield cells[0].problem(file, f"the lesson's card has no minutes: `{form}`")
    elif minutes and (fault := _off(said, minutes)):
        yield cells[0].problem(file, fault)
    readme = lesson.root / "README.md"
    lines = readme.read_text(encoding="utf-8").split("\n") if readme.is_file() else []
    link = f"[{lesson.name}](lessons/{lesson.name}.ipynb)"
    number, row = next(((number, line) for number, line in enumerate(lines, 1) if link in line), (None, ""))
    said = _read_minutes(_IN_ROW, row)
    if said is None:
        form = f"| {lesson.number} | {link} | the question | {minutes or '…'} | what one needs before |"
        yield Problem("README.md", f"no row of {lesson.name} with its minutes in the table of lessons: {form}", number)
    elif minutes and (fault := _off(said, minutes)):
        yield Problem("README.md", f"the row of {lesson.name}: {fault}", number)


def on_card(cells: list[Cell]) -> Minutes | None:
    """Return the minutes that the lesson's card gives, if it does."""
    return _read_minutes(_ON_CARD, cells[0].text)


def _read_minutes(pattern: re.Pattern[str], text: str) -> Minutes | None:
    found = pattern.search(text)
    return Minutes(int(found["core"]), int(found["more"] or 0)) if found else None


def _off(stated: Minutes, needed: Minutes) -> str | None:
    pairs = ((stated.core, needed.core), (stated.more, needed.more))
    if any(abs(one - other) > max(1, TOLERANCE * other) for one, other in pairs):
        return f"{stated} minutes, computed are {needed}"
    return None


# --- minutes


def minutes_by_cell(cells: list[Cell], exercises: list[Exercise]) -> list[tuple[float, float]]:
    """Return the minutes that each cell takes now, and those that can wait; an exercise's are at its card."""
    found: list[tuple[float, float]] = []
    cards = {one.card.number: one for one in exercises}
    is_behind = False  # the recap
    for cell in cells:
        is_behind = is_behind or _is_more(cell)
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


def _is_more(cell: Cell) -> bool:
    """Whether the part that can wait begins with this cell."""
    return cell.kind == "markdown" and MORE in cell.text.split("\n")


# --- the ids of cells, links to them, and the tables of the start page


def _cell_ids(lesson: Lesson, cells: list[Cell], exercises: list[Exercise]) -> list[str]:
    """Return an id for each cell: by the exercise for a card and its cells, else by the lesson and the cell's text.

    The text is that of the source, so a link to another cell, and what the tables hold, change no id. An edit changes
    the id of no other cell. Equal cells are distinguished by their order.
    """
    named = {cell.number: one.slug(role) for one in exercises for role, cell in one.roles()}
    ids: list[str] = []
    for cell in cells:
        digest = hashlib.sha256(f"{lesson.name}\n{cell.kind}\n{cell.text}".encode()).hexdigest()[:12]
        id, copy = named.get(cell.number, digest), 2
        while id in ids:
            id, copy = f"{digest}-{copy}", copy + 1
        ids.append(id)
    return ids


def _with_links(course: Course, cells: list[Cell], file: str) -> tuple[list[Cell], list[Problem]]:
    """Turn each link to a tag, `05_backward_hooks.ipynb#field-45`, into one to the first cell with that tag.

    A link to a lesson or a tag that does not exist is a problem.
    """
    lessons, problems, linked = {lesson.name: lesson for lesson in course.lessons()}, [], []
    for cell in cells:
        for whole, name, tag in _LINK.findall(cell.text) if cell.kind == "markdown" else []:
            found = (one for one in _tagged(lessons[name]) if one.key == tag) if name in lessons else iter(())
            place = next(found, None)
            if name not in lessons or (tag and place is None):
                problems.append(cell.problem(file, f"a link to a cell that does not exist: {whole}"))
            elif place:
                cell = replace(cell, text=cell.text.replace(whole, place.target))
        linked.append(cell)
    return linked, problems


def _with_tables(course: Course, cells: list[Cell], file: str) -> tuple[list[Cell], list[Problem]]:
    """Write the start page's tables in the places of their markers: they are made from the tags of all sources."""
    problems = []
    for marker, (prefix, table) in TABLES.items():
        marked = next((cell for cell in cells if marker in cell.text), None)
        if marked is None:
            continue
        try:
            full = replace(marked, text=marked.text.replace(marker, table(_tagged_in(course, prefix))))
            cells = [full if cell is marked else cell for cell in cells]
        except LookupError as error:
            problems.append(marked.problem(file, str(error.args[0])))
    return cells, problems


def _tagged_in(course: Course, prefix: str) -> Iterator[Tagged]:
    """Yield the cells of all lessons that have a tag with this prefix, which the key leaves out."""
    for lesson in course.lessons():
        for cell in _tagged(lesson):
            if cell.key.startswith(prefix):
                yield cell._replace(key=cell.key.removeprefix(prefix))


def _tagged(lesson: Lesson) -> Iterator[Tagged]:
    """Yield each tag of a lesson's cells as a key, with the last heading before the cell that is not an exercise's."""
    cells, _ = read_cells(lesson.source.read_text(encoding="utf-8"), lesson.name)
    ids = _cell_ids(lesson, cells, _find_exercises(cells, lesson.name)[0])
    heading = ""
    for cell, id in zip(cells, ids, strict=True):
        if cell.kind == "markdown" and "exercise" not in cell.tags:
            heading = (_SUBHEADING.findall(cell.text) or [heading])[-1]
        for tag in cell.tags:
            yield Tagged(tag, lesson.name, heading, id, cell.text)
