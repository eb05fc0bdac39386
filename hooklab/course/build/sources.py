"""What is read: which lessons there are, the cells of a lesson's source, and the solution regions in them.

A region is the lines between `### BEGIN SOLUTION` and `### END SOLUTION`. The delimiters, and the stub that stands for
it in a lesson, are nbgrader's defaults, so that nbgrader makes the same lesson from a solution notebook.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import textwrap
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Variant = Literal["lesson", "solution"]
FOLDER: dict[Variant, str] = {"lesson": "lessons", "solution": "solutions"}
TAGS = frozenset(
    ["exercise", "solution", "check", "predict", "folded", "figure", "field", "recap", "quiz", "explorer", "setup"]
)
TAGS |= {"documents", "nbval-ignore-output"}  # the second: numbers that differ between processors; asserts hold them
BEGIN = "### BEGIN SOLUTION"
END = "### END SOLUTION"
STUB = ("# YOUR CODE HERE", "raise NotImplementedError()")
_REGION = re.compile(rf"^([ \t]*){BEGIN}[ \t]*\n(.*?)^[ \t]*{END}[ \t]*$", re.M | re.S)
_NUMBERED_TAG = re.compile(r"claim-S\d+\.\d+|field-(?:\d{2,3}|[a-z-]+)|hook-[a-z]+(-[a-z]+)*")
_MARKER = re.compile(r"#\s*%%")


@dataclass(frozen=True)
class Problem:
    """What is wrong, and where: the file, its line, the cell (counted from 1) and that cell's first line.

    Example:
        >>> print(Problem("solutions/source/02_tensor_hooks.py", "no minutes", 40, 7, "### Exercise 2.1 · Clip"))
        solutions/source/02_tensor_hooks.py:40: cell 7 "### Exercise 2.1 · Clip": no minutes
    """

    file: str
    what: str
    line: int | None = None
    cell: int | None = None
    first_line: str = ""

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        if self.cell is not None:
            where += f': cell {self.cell} "{shortened(self.first_line)}"'
        return f"{where}: {self.what}"


@dataclass(frozen=True)
class Lesson:
    """A lesson: its name, such as 02_tensor_hooks, and where all that belongs to it stands."""

    name: str
    root: Path

    @property
    def number(self) -> int | None:
        """The number that the name begins with, or None."""
        digits = self.name.split("_", 1)[0]
        return int(digits) if digits.isdecimal() else None

    @property
    def source(self) -> Path:
        """The text file that the lesson is written in."""
        return self.root / "solutions" / "source" / f"{self.name}.py"

    @property
    def own(self) -> Path:
        """The folder of its checks, predictions, figures and explorers."""
        return self.root / "hooklab" / "course" / f"lesson{self.number:02d}"

    @property
    def reasons(self) -> Path:
        """The sentences that its checks give as reasons."""
        return self.own / "reasons.toml"

    @property
    def misconceptions(self) -> Path:
        """The programs that the reasons come from, which a class does not get."""
        return self.root / "solutions" / "misconceptions" / f"lesson{self.number:02d}.py"

    @property
    def teaching(self) -> Path:
        """What only its teacher knows, written by hand."""
        return self.source.with_suffix(".md")

    @property
    def page(self) -> Path:
        """The built page for its teacher."""
        return self.notebook("solution").with_suffix(".md")

    def notebook(self, variant: Variant) -> Path:
        """The built notebook: the lesson with open exercises, or the solution."""
        return self.root / FOLDER[variant] / f"{self.name}.ipynb"

    def shown(self, path: Path) -> str:
        """Return a path as messages show it: relative to the root, with slashes."""
        return path.relative_to(self.root).as_posix()


@dataclass(frozen=True)
class Course:
    """The lessons of the repository at `root`."""

    root: Path

    def lessons(self) -> list[Lesson]:
        """Return the lessons that have a source, in order."""
        return [Lesson(path.stem, self.root) for path in sorted((self.root / "solutions" / "source").glob("*.py"))]

    def choose(self, names: list[str]) -> list[Lesson]:
        """Return the lessons named by `02`, `02_tensor_hooks` or the path of one of a lesson's files; all for [].

        Raises LookupError for an unknown lesson and if the folder has no sources.
        """
        lessons = self.lessons()
        if not lessons:
            raise LookupError(f"found no sources in {self.root / 'solutions' / 'source'}")
        chosen = [_find(name, lessons) for name in names]
        return [lesson for lesson in lessons if lesson in chosen or not names]

    def strays(self) -> list[Problem]:
        """Return a problem for each notebook that no source makes."""
        made = {lesson.notebook(variant) for lesson in self.lessons() for variant in FOLDER}
        found = [path for folder in FOLDER.values() for path in sorted((self.root / folder).rglob("*.ipynb"))]
        strays = [path for path in found if path not in made and ".ipynb_checkpoints" not in path.parts]
        return [
            Problem(path.relative_to(self.root).as_posix(), "no source makes this notebook: remove it")
            for path in strays
        ]


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
        return called_with(self.parsed(), *names) if any(name in self.text for name in names) else []


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
        cells, problems = _read(text, file)
        return list(cells), list(problems)
    except (tokenize.TokenError, SyntaxError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else int(error.args[1][0])
        return [], [Problem(file, f"this is not valid Python: {error.args[0]}", line)]


@functools.cache  # the start page's tables are made from the sources of all lessons
def _read(text: str, file: str) -> tuple[list[Cell], list[Problem]]:
    import jupytext  # not above: a learner's pytest, which compares notebooks and reads no source, has none

    lines = _marker_lines(text)
    read = jupytext.reads(text, fmt="py:percent").cells
    if len(read) != len(lines):
        return [], [Problem(file, "the first line must be a `# %%` line, and no other one may be indented", 1)]
    cells = [
        Cell(number, line, found.cell_type, tuple(found.metadata.get("tags", ())), found.source)
        for number, (found, line) in enumerate(zip(read, lines, strict=True), start=1)
    ]
    return cells, [cell.problem(file, what) for cell in cells for what in _faults(cell)]


def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file, an empty one if the file is missing. Importing it would import torch."""
    return ast.parse(path.read_text(encoding="utf-8") if path.is_file() else "")


def calls_in(tree: ast.AST, *names: str) -> list[ast.Call]:
    """Return the calls of functions of these names, in order."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return sorted([call for call in calls if _called(call.func) in names], key=lambda call: call.lineno)


def _called(function: ast.expr) -> str:
    """Return the name of what is called, `check` for `hooklab.check` too, and "" for what is not a plain name."""
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "hooklab":
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def called_with(tree: ast.AST, *names: str) -> list[str]:
    """Return the texts that functions of these names are called with as first argument, in order.

    Example:
        >>> called_with(ast.parse('hooklab.check("2.1", record_gradients)'), "check")
        ['2.1']
    """
    first = [call.args[0] for call in calls_in(tree, *names) if call.args]
    return [arg.value for arg in first if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]


def stubbed(text: str) -> str:
    """Return the text with each region replaced by the stub, at the indentation of its first delimiter.

    Example:
        >>> print(stubbed("def f():\\n    ### BEGIN SOLUTION\\n    return 1\\n    ### END SOLUTION"))
        def f():
            # YOUR CODE HERE
            raise NotImplementedError()
    """
    return _REGION.sub(lambda region: "\n".join(region[1] + line for line in STUB), text)


def solution_lines(text: str) -> list[str]:
    """Return the lines inside the regions, stripped, without empty ones."""
    lines = [line.strip() for _, inside in _REGION.findall(text) for line in inside.split("\n")]
    return list(filter(None, lines))


def has_marker(text: str) -> bool:
    """Return whether the text mentions a delimiter at all, as nbgrader looks for it."""
    return "BEGIN SOLUTION" in text or "END SOLUTION" in text


def region_fault(text: str) -> str | None:
    """Return what is wrong with the delimiters of a solution cell, or None."""
    regions = _REGION.findall(text)
    if not regions or sum(map(has_marker, text.split("\n"))) != 2 * len(regions):
        return f"a solution must be between `{BEGIN}` and `{END}`, each alone on its line"
    without_code = [inside for _, inside in regions if not ast.parse(textwrap.dedent(inside)).body]
    return "a solution region without code" if without_code else None


def shortened(text: str, width: int = 60) -> str:
    """Return the first line of a text, cut to `width` characters."""
    line = text.strip().split("\n", 1)[0].strip()
    return line if len(line) <= width else line[: width - 1] + "…"


def _find(name: str, lessons: list[Lesson]) -> Lesson:
    wanted = Path(name).stem if name.endswith((".py", ".ipynb")) else name
    for lesson in lessons:
        if wanted == lesson.name or (wanted.isdecimal() and int(wanted) == lesson.number):
            return lesson
    names = [lesson.name for lesson in lessons]
    raise LookupError(f"there is no lesson {name!r}; there are: {', '.join(names)}")


def _faults(cell: Cell) -> Iterator[str]:
    if not cell.text.strip():
        yield "an empty cell"
    for tag in cell.tags:
        if tag not in TAGS and not _NUMBERED_TAG.fullmatch(tag):
            yield f"unknown tag {tag!r}; known: {', '.join(sorted(TAGS))}, claim-S1.2, field-05, hook-node"
        if tag.startswith("field-") and "field" not in cell.tags:
            yield f"tag {tag!r} without the tag 'field'"
        if tag.startswith("hook-") and cell.kind != "code":
            yield f"tag {tag!r} on a cell that runs nothing: it belongs on the cell in which that hook runs"
        if tag.startswith("claim-") and (cell.kind != "code" or not re.search(r"^\s*assert\b", cell.text, re.M)):
            yield f"tag {tag!r} on a cell without an assert: a claim is a line of code that would fail"


def _marker_lines(text: str) -> list[int]:
    """Return the lines of the `# %%` comments, but not of one inside a string."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.start[0] for token in tokens if token.start[1] == 0 and _MARKER.match(token.string)]
