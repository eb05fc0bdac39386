"""The parts of a lesson that are several cells in a row, and what is wrong with them.

An exercise: a card (markdown, tag exercise), a solution cell, a check cell. A prediction: `predict("1.a")` and nothing
else; the code, tagged predict and without an assert, which would give the answer away; `reveal("1.a", value)` and more.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass

from hooklab.course import words
from hooklab.course.build.course import Problem
from hooklab.course.build.source import Cell, has_marker, region_fault

ROLES = ("exercise", "solution", "check")
HINTS = 2
_TITLE = f"### {words.EXERCISE} "
_HEADING = re.compile(rf"{_TITLE}(\d+\.\d+) · \S.*")
_LEVEL = re.compile(rf"(●{{1,3}})(○{{0,2}}) · (\d+) {words.A_MINUTE}")
_HINT = re.compile(rf"<details>\s*<summary>\s*{words.HINT}: \s*\S.*?</summary>\s*\S.*?</details>", re.S)


@dataclass(frozen=True)
class Exercise:
    """An exercise: its id, such as "2.1", its points (the number of ●), its minutes, and its three cells."""

    id: str
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


def find_exercises(cells: list[Cell], file: str) -> tuple[list[Exercise], list[Problem]]:
    """Return the exercises of a lesson, and every problem with their cards, solution cells and check cells.

    An exercise with a problem is left out of the list.
    """
    problems = [cell.problem(file, what) for cell in cells for what in _misplaced(cells, cell)]
    exercises: list[Exercise] = []
    for card in (cell for cell in cells if "exercise" in cell.tags):
        trio = (card, *cells[card.number : card.number + 2])
        found = _missing(trio, file) or _card_problems(card, file) + _code_problems(trio, file)
        problems += found
        if not found:
            exercises.append(_exercise(trio))
    for place, one in enumerate(exercises):
        if one.id in [before.id for before in exercises[:place]]:
            problems.append(one.card.problem(file, f"exercise id {one.id} is used twice in this lesson"))
    return exercises, problems


def carded_ids(cells: list[Cell]) -> list[str]:
    """Return the ids of all cards, those of faulty exercises too."""
    headings = [_HEADING.match(cell.text.strip()) for cell in cells if "exercise" in cell.tags]
    return [heading[1] for heading in headings if heading]


def prediction_problems(cells: list[Cell], known: list[str], where: str, file: str) -> list[Problem]:
    """Return every problem with a lesson's predictions.

    Args:
        cells: the lesson's cells.
        known: the ids in its predictions.py, in order.
        where: the name of that file.
        file: the name that the problems show.
    """
    asked = [id for cell in cells for id in cell.called_with("predict")]
    whole = [f"prediction {id} of {where} is never asked: predict({id!r})" for id in known if id not in asked]
    whole += [f"prediction {id} is asked {count} times" for id, count in Counter(asked).items() if count > 1]
    whole += [f"{where} has {id} {count} times" for id, count in Counter(known).items() if count > 1]
    nothing = Cell(0, 0, "markdown", (), "")
    around = zip([nothing, *cells[:-1]], cells, [*cells[1:], nothing], strict=True)
    found = [cell.problem(file, what) for before, cell, after in around for what in _faults(before, cell, after)]
    unknown = [(cell, id) for cell in cells for id in cell.called_with("predict") if id not in known]
    found += [cell.problem(file, f"{where} has no {id!r}") for cell, id in unknown]
    return found + [Problem(file, what) for what in whole]


def _faults(before: Cell, cell: Cell, after: Cell) -> list[str]:
    """Return what is wrong with one cell of a prediction."""
    faults = []
    if "predict" in cell.tags:
        asked, told = before.called_with("predict"), after.called_with("reveal")
        if any(isinstance(node, ast.Assert) for node in ast.walk(cell.parsed())):
            faults.append(
                "an assert in a cell with the tag 'predict' gives the answer away: it belongs below reveal(…)"
            )
        if not asked:
            faults.append("a cell with the tag 'predict' follows a cell with predict(\"id\")")
        if not told:
            faults.append("a cell with the tag 'predict' is followed by a cell that begins with reveal(\"id\", value)")
        if asked and told and asked != told:
            faults.append(f"predict({asked[0]!r}) before it, but reveal({told[0]!r}, …) after it")
        return faults
    for id in cell.called_with("predict"):
        if "predict" not in after.tags:
            faults.append("predict(…) is not followed by a cell with the tag 'predict'")
        if ast.unparse(cell.parsed()) != f"predict({id!r})":
            faults.append("the cell of a question holds predict(…) and nothing else")
    for id in cell.called_with("reveal"):
        if "predict" not in before.tags:
            faults.append("reveal(…) does not follow a cell with the tag 'predict'")
        if not ast.unparse(cell.parsed().body[0]).startswith(f"reveal({id!r}, "):
            faults.append("the cell after a prediction begins with reveal(…)")
    return faults


def _misplaced(cells: list[Cell], cell: Cell) -> list[str]:
    """Return what is wrong with a cell's role in an exercise, and with the content of a cell that has none."""
    roles = [role for role in ROLES if role in cell.tags]
    if len(roles) > 1:
        return [f"tags {' and '.join(map(repr, roles))} on one cell"]
    if roles == ["exercise"]:
        return ["tag 'exercise' on a code cell: the card is markdown"] if cell.kind == "code" else []
    faults = []
    for role, before in (("solution", "exercise"), ("check", "solution")):
        if role in cell.tags and (cell.number == 1 or before not in cells[cell.number - 2].tags):
            needed = "an exercise's card" if before == "exercise" else "a solution cell"
            faults.append(f"a {role} cell that does not follow {needed}")
    if "solution" not in cell.tags and has_marker(cell.text):
        faults.append("a solution delimiter in a cell without the tag 'solution'")
    if "check" not in cell.tags and (ids := cell.called_with("check")):
        faults.append(f"check({ids[0]!r}, …) in a cell without the tag 'check'")
    if cell.kind == "markdown" and cell.text.startswith(_TITLE):
        faults.append("an exercise's card without the tag 'exercise'")
    return faults


def _missing(trio: tuple[Cell, ...], file: str) -> list[Problem]:
    for place, role in ((1, "solution"), (2, "check")):
        if len(trio) <= place or role not in trio[place].tags:
            after = "its card" if role == "solution" else "its solution cell"
            return [trio[0].problem(file, f"an exercise without a {role} cell (a code cell, right after {after})")]
        if trio[place].kind != "code":
            return [trio[place].problem(file, f"tag {role!r} on a markdown cell")]
    return []


def _card_problems(card: Cell, file: str) -> list[Problem]:
    lines = _filled_lines(card)
    faults = []
    if not _HEADING.fullmatch(lines[0]):
        faults.append(f"the card's first line must be `{_TITLE}2.1 · Title`")
    level = _LEVEL.fullmatch(lines[1]) if len(lines) > 1 else None
    if level is None or len(level[1] + level[2]) != 3:
        faults.append("no difficulty or minutes: the card's second line must be like `●○○ · 5 minutes`")
    if (hints := len(_HINT.findall(card.text))) < HINTS:
        form = f"<details><summary>{words.HINT}: …</summary> … </details>"
        faults.append(f"{hints} hints, at least {HINTS} are needed, each as {form}")
    return [card.problem(file, what) for what in faults]


def _code_problems(trio: tuple[Cell, ...], file: str) -> list[Problem]:
    card, solution, check = trio
    problems = []
    if fault := region_fault(solution.text):
        problems.append(solution.problem(file, fault))
    ids = check.called_with("check")
    if len(ids) != 1:
        problems.append(check.problem(file, f'{len(ids)} calls of check("id", …), exactly one is needed'))
    elif (heading := _HEADING.match(card.text.strip())) and ids[0] != heading[1]:
        problems.append(check.problem(file, f"it checks {ids[0]}, but the card before it is exercise {heading[1]}"))
    return problems


def _exercise(trio: tuple[Cell, ...]) -> Exercise:
    card, solution, check = trio
    level = _LEVEL.fullmatch(_filled_lines(card)[1])
    assert level is not None
    return Exercise(check.called_with("check")[0], len(level[1]), int(level[3]), card, solution, check)


def _filled_lines(cell: Cell) -> list[str]:
    return [line.strip() for line in cell.text.split("\n") if line.strip()]
