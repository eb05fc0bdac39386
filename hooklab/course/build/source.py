"""A lesson's source: its cells, with tags and line numbers, and the solution regions in them.

A region is the lines between `### BEGIN SOLUTION` and `### END SOLUTION`. The delimiters, and the stub that stands for
it in a lesson, are nbgrader's defaults, so that nbgrader makes the same lesson from a solution notebook.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass
from typing import Literal

import hooklab
from hooklab.course.build.course import Problem, called_with

TAGS = frozenset(
    ["exercise", "solution", "check", "predict", "figure", "field", "recap", "quiz", "explorer", "setup"],
)
BEGIN = "### BEGIN SOLUTION"
END = "### END SOLUTION"
STUB = ("# YOUR CODE HERE", "raise NotImplementedError()")
NUMBERED_TAG = re.compile(r"claim-S\d+\.\d+|field-\d{2,3}|hook-[a-z]+(-[a-z]+)*")
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

    def parsed(self) -> ast.Module:
        """Return a code cell's syntax tree, an empty one for other cells and for one with a magic."""
        try:
            return ast.parse(self.text if self.kind == "code" else "")
        except SyntaxError:
            return ast.parse("")

    def called_with(self, *names: str) -> list[str]:
        """Return the texts that a code cell calls functions of these names with, as first argument."""
        return called_with(self.parsed(), *names)


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
    import jupytext  # not above: a learner's pytest, which compares notebooks and reads no source, has none

    read = jupytext.reads(text, fmt="py:percent").cells
    if len(read) != len(lines):
        return [], [Problem(file, _why_uneven(text, len(read), len(lines)), 1)]
    cells, problems = [], []
    for number, (found, line) in enumerate(zip(read, lines, strict=True), start=1):
        cell = Cell(number, line, found.cell_type, tuple(found.metadata.get("tags", ())), found.source)
        cells.append(cell)
        problems += [cell.problem(file, what) for what in _faults(cell, found.metadata)]
    return cells, problems


def stubbed(text: str) -> str:
    """Return the text with each region replaced by the stub, at the indentation of its first delimiter.

    Example:
        >>> print(stubbed("def f():\\n    ### BEGIN SOLUTION\\n    return 1\\n    ### END SOLUTION"))
        def f():
            # YOUR CODE HERE
            raise NotImplementedError()
    """
    lines, inside = [], False
    for line in text.split("\n"):
        if line.strip() == BEGIN:
            inside = True
            indent = line[: line.index("#")]
            lines += [indent + stub for stub in STUB]
        elif line.strip() == END:
            inside = False
        elif not inside:
            lines.append(line)
    return "\n".join(lines)


def solution_lines(text: str) -> list[str]:
    """Return the lines inside the regions, stripped, without empty ones."""
    lines, inside = [], False
    for line in map(str.strip, text.split("\n")):
        if line in (BEGIN, END):
            inside = line == BEGIN
        elif inside and line:
            lines.append(line)
    return lines


def guarded(check_cell: str) -> str:
    """Return the text of a solution's check cell, with a line for graders that nbgrader takes out for students."""
    line = f'from hooklab.course.graded import check_of; check = check_of("{hooklab.__version__}", check)'
    return f"### BEGIN HIDDEN TESTS\n{line}  # fails here? then no point counts\n### END HIDDEN TESTS\n{check_cell}"


def has_marker(text: str) -> bool:
    """Return whether the text mentions a delimiter at all, as nbgrader looks for it."""
    return "BEGIN SOLUTION" in text or "END SOLUTION" in text


def region_fault(text: str) -> str | None:
    """Return what is wrong with the delimiters of a solution cell, or None."""
    inside, filled, regions = False, False, 0
    for line in map(str.strip, text.split("\n")):
        if line == BEGIN:
            if inside:
                return f"a second `{BEGIN}` before `{END}`"
            inside, filled = True, False
        elif line == END:
            if not inside:
                return f"`{END}` without `{BEGIN}` before it"
            if not filled:
                return "a solution region without code"
            inside, regions = False, regions + 1
        elif has_marker(line):
            return f"`{line}` is no delimiter: write `{BEGIN}` or `{END}`, alone on its line"
        elif line and not line.startswith("#"):
            filled = True
    if inside:
        return f"`{BEGIN}` without `{END}` after it"
    return None if regions else f"a solution cell without `{BEGIN}` … `{END}`"


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
            faults.append(f"unknown tag {tag!r}; known: {', '.join(sorted(TAGS))}, claim-S1.2, field-05, hook-node")
        if tag.startswith("field-") and "field" not in cell.tags:
            faults.append(f"tag {tag!r} without the tag 'field'")
        if tag.startswith("hook-") and cell.kind != "code":
            faults.append(f"tag {tag!r} on a cell that runs nothing: it belongs on the cell in which that hook runs")
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
