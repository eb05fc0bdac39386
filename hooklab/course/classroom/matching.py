"""Which definitions of a notebook answer an exercise, also where cells were moved, copied, renamed or deleted."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from hooklab.course.classroom.statements import Statement, is_stub, needed

_AT_THE_END = 1_000_000


@dataclass(frozen=True)
class Answer:
    """An exercise's answer in a notebook: its name, the statements it needs, and what the teacher is told.

    `lines` is the text of the cell that defines it, for the student's page; "" and no statements where there is none.
    """

    name: str
    statements: tuple[Statement, ...]
    lines: str
    cell: int
    notes: tuple[str, ...]


def find_answer(
    id: str, name: str, statements: Sequence[Statement], given: Sequence[Statement], whole: bool = False
) -> Answer:
    """Find the answer of exercise `id`, which the lesson calls `name`, among a notebook's statements.

    Args:
        id, name: such as "3.1" and "output_of".
        statements: those of the student's notebook.
        given: those of the lesson.
        whole: whether to take everything before the check, not only what the answer needs.
    """
    checks = _checks(id, statements)
    before = checks[-1][0] if checks else _AT_THE_END
    called = checks[-1][1] if checks else ""
    defined = {name for one in statements for name in one.defines}
    notes = []
    if name not in defined and called in defined:
        notes.append(f"the answer is called {called} here, and not {name}")
        name = called
    own = [one for one in statements if name in one.defines]
    if not own:
        return Answer(name, (), "", 0, (f"no definition of {name} in this notebook",))
    chosen = needed(statements, name, before, given)
    last = [one for one in chosen if name in one.defines][-1]
    notes += _told(id, own, last, before, checks)
    if whole:
        chosen = [one for one in statements if one.cell.number < before or one in chosen]
        chosen = [one for one in chosen if not one.is_shown]
    return Answer(name, tuple(chosen), last.cell.text, last.cell.number, tuple(notes))


def _checks(id: str, statements: Sequence[Statement]) -> list[tuple[int, str]]:
    """Return cell number and answer's name of each check of this exercise."""
    found = []
    slug = f"check-{id.replace('.', '-')}"
    for one in statements:
        call = one.node.value if isinstance(one.node, ast.Expr) else None
        is_check = isinstance(call, ast.Call) and ast.unparse(call.func).removeprefix("hooklab.") == "check"
        if is_check and isinstance(call, ast.Call) and len(call.args) > 1:
            first = call.args[0]
            if isinstance(first, ast.Constant) and first.value == id:
                found.append((one.cell.number, ast.unparse(call.args[1])))
        elif one.cell.grade_id == slug and not any(number == one.cell.number for number, _ in found):
            found.append((one.cell.number, ""))
    return found


def _told(
    id: str, own: Sequence[Statement], last: Statement, before: int, checks: Sequence[tuple[int, str]]
) -> list[str]:
    notes = []
    slug = f"solution-{id.replace('.', '-')}"
    filled = [one for one in own if not is_stub(one.node)]
    if not checks:
        notes.append("its check cell is gone: the answer was found by its name")
    elif len({number for number, _ in checks}) > 1:
        notes.append(f"it has {len({number for number, _ in checks})} check cells")
    elif last.cell.number > before:
        notes.append("the answer stands below its check: cells were moved")
    if len({one.cell.number for one in filled}) > 1:
        notes.append(
            f"it is defined in {len({one.cell.number for one in filled})} cells: cell {last.cell.number} counts"
        )
    if last.cell.grade_id != slug:
        notes.append(f"the answer stands in another cell than the exercise's, cell {last.cell.number}")
    return notes
