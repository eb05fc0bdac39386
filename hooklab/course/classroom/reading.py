"""A notebook that a student has handed in: its code cells, or one sentence that says why it was not read.

Only what the student wrote is taken: outputs and execution counts are not looked at, and metadata says nothing but
which cell is which.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from hooklab.course import words

_GRADED = re.compile(r"(?:solution|check)-([0-9]{1,3})-[0-9]{1,3}")
_CARD = re.compile(rf"^### {words.EXERCISE} ([0-9]{{1,3}})\.[0-9]{{1,3}}\b", re.M)
_CHECKED = re.compile(r"""\bcheck\(\s*["']([0-9]{1,3})\.[0-9]{1,3}["']""")


@dataclass(frozen=True)
class Cell:
    """A code cell: its place in the notebook, counted from 1, its text, and nbgrader's name for it ("" for none)."""

    number: int
    text: str
    grade_id: str = ""


@dataclass(frozen=True)
class Handed:
    """A notebook's code cells and the lesson that its exercises belong to; None where it has none."""

    cells: tuple[Cell, ...]
    lesson: int | None


class Unreadable(Exception):
    """One sentence for the teacher: why a notebook was not graded."""


def read_notebook(content: bytes) -> Handed:
    """Read a notebook's code cells. Raises Unreadable."""
    try:
        raw = _table(json.loads(content.decode("utf-8-sig")))
    except (ValueError, RecursionError, MemoryError):
        raise Unreadable("is not a notebook: this is not JSON that a notebook could be") from None
    if not isinstance(raw.get("cells"), list):
        raise Unreadable("is not a notebook: it has no cells")
    all_cells = [_table(one) for one in raw["cells"]]
    is_code = [one.get("cell_type") == "code" for one in all_cells]
    found = [Cell(number, _source(one), _grade_id(one)) for number, one in enumerate(all_cells, start=1)]
    lessons = Counter(match for cell in found for match in _GRADED.findall(cell.grade_id))
    lessons += Counter(match for cell in found for match in {*_CARD.findall(cell.text), *_CHECKED.findall(cell.text)})
    lesson = int(lessons.most_common(1)[0][0]) if lessons else None
    return Handed(tuple(cell for cell, code in zip(found, is_code, strict=True) if code), lesson)


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source")
    lines = source if isinstance(source, list) else [source]
    return "".join(line for line in lines if isinstance(line, str))


def _grade_id(cell: dict[str, Any]) -> str:
    """The builder writes the same name twice: as nbgrader's grade_id and as the cell's id; either may get lost."""
    names = [_table(_table(cell.get("metadata")).get("nbgrader")).get("grade_id"), cell.get("id")]
    return next((name for name in names if isinstance(name, str) and _GRADED.fullmatch(name)), "")


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
