"""read_cells: the text of a lesson's source, as cells with tags and line numbers."""

from __future__ import annotations

import io
import re
import tokenize
from dataclasses import dataclass
from typing import Literal

import jupytext

from hooklab.course.build.problems import Problem

TAGS = frozenset(
    ["exercise", "solution", "check", "predict", "figure", "field", "recap", "quiz", "explorer", "setup"],
)
NUMBERED_TAG = re.compile(r"claim-S\d+\.\d+|field-\d{2,3}")
_NBVAL = re.compile(r"^\s*#+\s*(NBVAL_\w+|PYTEST_VALIDATE_IGNORE_OUTPUT)\s*$", re.M)
_MARKER = re.compile(r"#\s*%%")


@dataclass(frozen=True)
class Cell:
    """A cell of a source: its number counted from 1, the line of its `# %%`, its kind, tags and text."""

    number: int
    line: int
    kind: Literal["markdown", "code"]
    tags: tuple[str, ...]
    text: str

    def problem(self, file: str, what: str) -> Problem:
        """Return a problem that points at this cell."""
        return Problem(file, what, self.line, self.number, self.text)


def read_cells(text: str, file: str) -> tuple[list[Cell], list[Problem]]:
    """Read a source in the percent format; return its cells, and what is wrong with them.

    Args:
        text: the source, Python with `# %%` lines, see jupytext's "py:percent".
        file: the name that the problems show.

    Example:
        >>> cells, problems = read_cells('# %% [markdown]\\n# Hello\\n\\n# %% tags=["setup"]\\nx = 1\\n', "a.py")
        >>> [(cell.kind, cell.tags, cell.line) for cell in cells], problems
        ([('markdown', (), 1), ('code', ('setup',), 4)], [])
    """
    try:
        lines = _marker_lines(text)
    except (tokenize.TokenError, SyntaxError) as error:
        return [], [Problem(file, f"this is not valid Python: {error.args[0]}", _line_of(error))]
    read = jupytext.reads(text, fmt="py:percent").cells
    if len(read) != len(lines):
        return [], [Problem(file, _why_uneven(text, len(read), len(lines)), 1)]
    cells, problems = [], []
    for number, (found, line) in enumerate(zip(read, lines, strict=True), start=1):
        cell = Cell(number, line, found.cell_type, tuple(found.metadata.get("tags", ())), found.source)
        cells.append(cell)
        problems += [cell.problem(file, what) for what in _faults(cell, found.metadata)]
    return cells, problems


def _faults(cell: Cell, metadata: dict[str, object]) -> list[str]:
    faults = []
    if cell.kind not in ("markdown", "code"):
        faults.append(f"a {cell.kind} cell; only code and [markdown] are used")
    if not cell.text.strip():
        faults.append("an empty cell")
    if cell.kind == "code" and _NBVAL.search(cell.text):
        faults.append("a comment that tells nbval not to compare: every output of the course is compared")
    # jupytext adds lines_to_next_cell itself; everything else was written by hand.
    for option in sorted(set(metadata) - {"tags", "lines_to_next_cell"}):
        faults.append(f"unknown cell option {option!r}; a cell has tags=[…] and nothing else")
    for tag in cell.tags:
        if tag not in TAGS and not NUMBERED_TAG.fullmatch(tag):
            faults.append(f"unknown tag {tag!r}; known: {', '.join(sorted(TAGS))}, claim-S1.2, field-05")
        if tag.startswith("field-") and "field" not in cell.tags:
            faults.append(f"tag {tag!r} without the tag 'field'")
        if tag.startswith("claim-") and (cell.kind != "code" or not re.search(r"^\s*assert\b", cell.text, re.M)):
            faults.append(f"tag {tag!r} on a cell without an assert: a claim is a line of code that would fail")
    return faults


def _marker_lines(text: str) -> list[int]:
    """Return the lines of the `# %%` comments; one inside a string is no comment."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.start[0] for token in tokens if token.start[1] == 0 and _MARKER.match(token.string)]


def _line_of(error: Exception) -> int | None:
    if isinstance(error, SyntaxError):
        return error.lineno
    return int(error.args[1][0])


def _why_uneven(text: str, read: int, markers: int) -> str:
    before = next((line for line in text.split("\n") if line.strip()), "")
    if not _MARKER.match(before):
        return "the first line must be a `# %%` line: text before it would become a cell of its own"
    return f"jupytext reads {read} cells where there are {markers} `# %%` lines; an indented one begins a cell too"
