"""find_exercises: a lesson's exercises, each a card, a solution cell and a check cell, and what is wrong with them."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from hooklab.course.build.course import called_with
from hooklab.course.build.problems import Problem
from hooklab.course.build.reading import Cell
from hooklab.course.build.regions import has_marker, region_fault

ROLES = ("exercise", "solution", "check")
HINTS = 2
_HEADING = re.compile(r"### Exercise (\d+\.\d+) · \S.*")
_LEVEL = re.compile(r"(●{1,3})(○{0,2}) · (\d+) minutes?")
_HINT = re.compile(r"<details>\s*<summary>\s*Hint: \s*\S.*?</summary>\s*\S.*?</details>", re.S)


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

    An exercise is three cells in a row: a card (markdown, tag exercise), a solution cell and a check cell. One with a
    problem is left out of the list.
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


def checked_ids(text: str) -> list[str]:
    """Return the ids in the calls `check("2.1", …)` of a code cell, in order.

    Example:
        >>> checked_ids('from hooklab import check\\ncheck("2.1", record_gradients)')
        ['2.1']
    """
    try:
        tree = ast.parse(text)
    except SyntaxError:  # a cell with a magic; check cells have none
        return re.findall(r"^check\(\s*[\"']([^\"']*)[\"']", text, re.M)
    return called_with(tree, "check")


def _misplaced(cells: list[Cell], cell: Cell) -> list[str]:
    """Return what is wrong with a cell's role, and with the content of a cell that has none."""
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
    if cell.kind == "code" and "check" not in cell.tags and checked_ids(cell.text):
        faults.append(f"check({checked_ids(cell.text)[0]!r}, …) in a cell without the tag 'check'")
    if cell.kind == "markdown" and cell.text.startswith("### Exercise "):
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
        faults.append("the card's first line must be `### Exercise 2.1 · Title`")
    level = _LEVEL.fullmatch(lines[1]) if len(lines) > 1 else None
    if level is None or len(level[1] + level[2]) != 3:
        faults.append("no difficulty or minutes: the card's second line must be like `●○○ · 5 minutes`")
    if (hints := len(_HINT.findall(card.text))) < HINTS:
        form = "<details><summary>Hint: …</summary> … </details>"
        faults.append(f"{hints} hints, at least {HINTS} are needed, each as {form}")
    return [card.problem(file, what) for what in faults]


def _code_problems(trio: tuple[Cell, ...], file: str) -> list[Problem]:
    card, solution, check = trio
    problems = []
    if fault := region_fault(solution.text):
        problems.append(solution.problem(file, fault))
    ids = checked_ids(check.text)
    if len(ids) != 1:
        problems.append(check.problem(file, f'{len(ids)} calls of check("id", …), exactly one is needed'))
    elif (heading := _HEADING.match(card.text.strip())) and ids[0] != heading[1]:
        problems.append(check.problem(file, f"it checks {ids[0]}, but the card before it is exercise {heading[1]}"))
    return problems


def _exercise(trio: tuple[Cell, ...]) -> Exercise:
    card, solution, check = trio
    level = _LEVEL.fullmatch(_filled_lines(card)[1])
    assert level is not None
    return Exercise(checked_ids(check.text)[0], len(level[1]), int(level[3]), card, solution, check)


def _filled_lines(cell: Cell) -> list[str]:
    return [line.strip() for line in cell.text.split("\n") if line.strip()]
