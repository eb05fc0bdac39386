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

MOST_CELLS = 3000
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
        raw = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError, MemoryError):
        raise Unreadable("is not a notebook: this is not JSON that a notebook could be") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("cells", raw.get("worksheets")), list):
        raise Unreadable("is not a notebook: it has no cells")
    if raw.get("nbformat") != 4:
        raise Unreadable(
            f"has the unknown notebook format {_short(raw.get('nbformat'))}: open and save it in JupyterLab"
        )
    language = _language(raw.get("metadata"))
    if language not in ("", "python"):
        raise Unreadable(f"is written for another kernel: {_short(language)}")
    if len(raw["cells"]) > MOST_CELLS:
        raise Unreadable(f"has {len(raw['cells'])} cells and was not read")
    cells = tuple(filter(None, (_cell(number, one) for number, one in enumerate(raw["cells"], start=1))))
    return Handed(cells, _lesson(cells, [_source(one) for one in raw["cells"]]))


def _cell(number: int, raw: Any) -> Cell | None:
    if not isinstance(raw, dict) or raw.get("cell_type") != "code":
        return None
    return Cell(number, _source(raw), _grade_id(raw))


def _source(raw: Any) -> str:
    source = raw.get("source", "") if isinstance(raw, dict) else ""
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    return source if isinstance(source, str) else ""


def _grade_id(raw: dict[str, Any]) -> str:
    """The builder writes the same name twice: as nbgrader's grade_id and as the cell's id; either may get lost."""
    metadata = raw.get("metadata")
    graded = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    names = [graded.get("grade_id") if isinstance(graded, dict) else None, raw.get("id")]
    return next((name for name in names if isinstance(name, str) and _GRADED.fullmatch(name)), "")


def _lesson(cells: tuple[Cell, ...], texts: list[str]) -> int | None:
    found: Counter[str] = Counter()
    for cell in cells:
        found.update(set(_GRADED.findall(cell.grade_id)))
    for text in texts:
        found.update(set(_CARD.findall(text) + _CHECKED.findall(text)))
    return int(found.most_common(1)[0][0]) if found else None


def _language(metadata: Any) -> str:
    for where, what in (("kernelspec", "language"), ("language_info", "name")):
        one = metadata.get(where) if isinstance(metadata, dict) else None
        if isinstance(one, dict) and isinstance(one.get(what), str):
            return str(one[what]).lower()
    return ""


def _short(value: object) -> str:
    return repr(value)[:40]
