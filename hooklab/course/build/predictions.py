"""prediction_problems: what is wrong with a lesson's predictions, each a question, the code and what it means.

A prediction is three code cells in a row: `predict("1.a")` and nothing else; the code, tagged predict and without an
assert, which would give the answer away; and a cell that begins with `reveal("1.a", value)`.
"""

from __future__ import annotations

import ast
from collections import Counter

from hooklab.course.build.course import called_with
from hooklab.course.build.problems import Problem
from hooklab.course.build.reading import Cell


def prediction_problems(cells: list[Cell], known: list[str], number: int, file: str) -> list[Problem]:
    """Return every problem with a lesson's predictions.

    Args:
        cells: the lesson's cells.
        known: the ids in the lesson's predictions.py, in order.
        number: the lesson's number.
        file: the name that the problems show.
    """
    asked = {cell.number: ids for cell in cells if (ids := called_with(_parsed(cell), "predict"))}
    told = {cell.number: ids for cell in cells if (ids := called_with(_parsed(cell), "reveal"))}
    problems = []
    for cell in cells:
        before, after = asked.get(cell.number - 1, []), told.get(cell.number + 1, [])
        if "predict" in cell.tags:
            problems += [cell.problem(file, what) for what in _code_faults(cell, before, after)]
        elif cell.number in asked and "predict" not in _tags(cells, cell.number + 1):
            problems.append(cell.problem(file, "predict(…) is not followed by a cell with the tag 'predict'"))
        elif cell.number in told and "predict" not in _tags(cells, cell.number - 1):
            problems.append(cell.problem(file, "reveal(…) does not follow a cell with the tag 'predict'"))
        for id in asked.get(cell.number, []):
            if id not in known:
                problems.append(cell.problem(file, f"hooklab/course/lesson{number:02d}/predictions.py has no {id!r}"))
            if ast.unparse(ast.parse(cell.text)) != f"predict({id!r})":
                problems.append(cell.problem(file, "the cell of a question holds predict(…) and nothing else"))
        for id in told.get(cell.number, []):
            if not ast.unparse(ast.parse(cell.text).body[0]).startswith(f"reveal({id!r}, "):
                problems.append(cell.problem(file, "the cell after a prediction begins with reveal(…)"))
    return problems + [
        Problem(file, what) for what in _uses([id for ids in asked.values() for id in ids], known, number)
    ]


def _code_faults(cell: Cell, before: list[str], after: list[str]) -> list[str]:
    faults = []
    if any(isinstance(node, ast.Assert) for node in ast.walk(_parsed(cell))):
        faults.append("an assert in a cell with the tag 'predict' gives the answer away: it belongs below reveal(…)")
    if not before:
        faults.append("a cell with the tag 'predict' follows a cell with predict(\"id\")")
    if not after:
        faults.append("a cell with the tag 'predict' is followed by a cell that begins with reveal(\"id\", value)")
    if before and after and before != after:
        faults.append(f"predict({before[0]!r}) before it, but reveal({after[0]!r}, …) after it")
    return faults


def _uses(asked: list[str], known: list[str], number: int) -> list[str]:
    where = f"hooklab/course/lesson{number:02d}/predictions.py"
    faults = [f"prediction {id} of {where} is never asked: predict({id!r})" for id in known if id not in asked]
    faults += [f"prediction {id} is asked {count} times" for id, count in Counter(asked).items() if count > 1]
    faults += [f"{where} has {id} {count} times" for id, count in Counter(known).items() if count > 1]
    faults += [f"{where}: prediction {id} in lesson {number}" for id in known if not id.startswith(f"{number}.")]
    return faults


def _parsed(cell: Cell) -> ast.Module:
    try:
        return ast.parse(cell.text if cell.kind == "code" else "")
    except SyntaxError:  # a cell with a magic; those of a prediction have none
        return ast.parse("")


def _tags(cells: list[Cell], number: int) -> tuple[str, ...]:
    return cells[number - 1].tags if 0 < number <= len(cells) else ()
