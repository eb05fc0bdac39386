"""What is read: which lessons there are, the cells of a lesson's source, and the solution regions in them.

A region is the lines between `### BEGIN SOLUTION` and `### END SOLUTION`. The delimiters, and the stub that stands for
it in a lesson, are nbgrader's defaults, so that nbgrader makes the same lesson from a solution notebook.
"""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Variant = Literal["lesson", "solution"]
FOLDER: dict[Variant, str] = {"lesson": "lessons", "solution": "solutions"}
BEGIN = "### BEGIN SOLUTION"
END = "### END SOLUTION"
STUB = ("# YOUR CODE HERE", "raise NotImplementedError()")
_MARKER = re.compile(r'# %%( \[markdown\])?( tags=\["[^"]+"(, "[^"]+")*\])?')
_REGION = re.compile(rf"^([ \t]*){BEGIN}[ \t]*\n(.*?)^[ \t]*{END}[ \t]*$", re.M | re.S)


@dataclass(frozen=True)
class Lesson:
    """A lesson: its name, such as 02_tensor_hooks, and where all that belongs to it stands."""

    name: str
    root: Path

    @property
    def number(self) -> int:
        """The number that the name begins with."""
        return int(self.name[:2])

    @property
    def source(self) -> Path:
        """The text file that the lesson is written in."""
        return self.root / "solutions" / "source" / f"{self.name}.py"

    @property
    def own(self) -> Path:
        """The folder of its checks, predictions, figures and explorers."""
        return self.root / "hooklab" / "course" / f"lesson{self.number:02d}"

    @property
    def misconceptions(self) -> Path:
        """The programs that the reasons of its checks come from, which a class does not get."""
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
        """Return the lessons that have a source, in order; its name begins with two digits."""
        sources = (self.root / "solutions" / "source").glob("[0-9][0-9]_*.py")
        return [Lesson(path.stem, self.root) for path in sorted(sources)]

    def choose(self, names: list[str]) -> list[Lesson]:
        """Return the lessons named by their number, as `02`, `02_tensor_hooks` or the path of a file; all for [].

        Raises LookupError for an unknown lesson and if the folder has no sources.
        """
        known = {lesson.number: lesson for lesson in self.lessons()}
        if not known:
            raise LookupError(f"found no sources in {self.root / 'solutions' / 'source'}")
        wanted = {name: int((re.findall(r"^\d+", Path(name).name) or ["-1"])[0]) for name in names}
        for name, number in wanted.items():
            if number not in known:
                there = ", ".join(lesson.name for lesson in known.values())
                raise LookupError(f"there is no lesson {name!r}; there are: {there}")
        return [lesson for number, lesson in known.items() if number in wanted.values() or not names]

    def strays(self) -> list[str]:
        """Return a problem for each notebook that no source makes."""
        made = {lesson.notebook(variant) for lesson in self.lessons() for variant in FOLDER}
        found = [path for folder in FOLDER.values() for path in sorted((self.root / folder).glob("*.ipynb"))]
        strays = [path.relative_to(self.root).as_posix() for path in found if path not in made]
        return [f"{path}: no source makes this notebook: remove it" for path in strays]


@dataclass(frozen=True)
class Cell:
    """A cell of a source: the file, its number counted from 1, the line of its `# %%`, its kind, tags and text."""

    file: str
    number: int
    line: int
    kind: Literal["markdown", "code"]
    tags: tuple[str, ...]
    text: str

    def problem(self, what: str) -> str:
        """Return a problem that points at this cell.

        Example:
            >>> Cell("solutions/source/02_tensor_hooks.py", 7, 40, "code", (), "x = 1\\nx + 1").problem("no assert")
            'solutions/source/02_tensor_hooks.py:40: cell 7 "x = 1": no assert'
        """
        return f"{self.file}:{self.line}: {titled(self.number, self.text)}: {what}"

    def parsed(self) -> ast.Module:
        """Return a code cell's syntax tree, an empty one for other cells and for one that is not Python."""
        try:
            return ast.parse(self.text if self.kind == "code" else "")
        except SyntaxError:
            return ast.parse("")

    def called_with(self, *names: str) -> list[str]:
        """Return the texts that a code cell calls functions of these names with, as first argument, in order."""
        if not any(name in self.text for name in names):
            return []
        first = [call.args[0] for call in calls_in(self.parsed(), *names) if call.args]
        return [arg.value for arg in first if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]


@functools.cache  # the start page's tables are made from the sources of all lessons
def read_cells(text: str, file: str) -> list[Cell]:
    """Return the cells of a source in jupytext's percent format.

    Raises SyntaxError, with file and line, for a source that isn't Python or in which a cell begins with another line.

    Example:
        >>> cells = read_cells('# %% [markdown]\\n# Hello\\n\\n# %% tags=["setup"]\\nx = 1\\n', "a.py")
        >>> [(cell.kind, cell.tags, cell.line, cell.text) for cell in cells]
        [('markdown', (), 1, 'Hello'), ('code', ('setup',), 4, 'x = 1')]
    """
    import jupytext  # not above: a learner's pytest, which compares notebooks and reads no source, has none

    try:
        ast.parse(text)
    except SyntaxError as error:
        raise SyntaxError(f"{file}:{error.lineno}: not valid Python: {error.msg}") from error
    lines = [n for n, line in enumerate(text.split("\n"), start=1) if n == 1 or re.match(r"\s*#\s*%%", line)]
    for number in lines:
        if not _MARKER.fullmatch(line := text.split("\n")[number - 1]):
            form = '`# %%` or `# %% [markdown]`, not indented; then ` tags=["setup"]` may follow'
            raise SyntaxError(f"{file}:{number}: a cell, also the first, begins with {form}: {line!r}")
    read = zip(lines, jupytext.reads(text, fmt="py:percent").cells, strict=True)
    return [
        Cell(file, number, line, found.cell_type, tuple(found.metadata.get("tags", ())), found.source)
        for number, (line, found) in enumerate(read, start=1)
    ]


def calls_in(tree: ast.AST, *names: str) -> list[ast.Call]:
    """Return the calls of functions of these names, in order."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in names]
    return sorted(named, key=lambda call: call.lineno)


def stubbed(text: str) -> str:
    """Return the text with each region replaced by the stub, at the indentation of its first delimiter."""
    return _REGION.sub(lambda region: "\n".join(region[1] + line for line in STUB), text)


def solution_lines(text: str) -> list[str]:
    """Return the lines inside the regions, stripped, without empty ones."""
    lines = [line.strip() for _, inside in _REGION.findall(text) for line in inside.split("\n")]
    return list(filter(None, lines))


def markers_in(text: str) -> int:
    """Return how many lines mention a delimiter at all, as nbgrader looks for it."""
    return sum("BEGIN SOLUTION" in line or "END SOLUTION" in line for line in text.split("\n"))


def has_whole_regions(text: str) -> bool:
    """Return whether a solution cell has a region, and no delimiter but those around its regions."""
    return 0 < markers_in(text) == 2 * len(_REGION.findall(text))


def titled(number: int, text: str) -> str:
    """Return a cell as messages show it: its number, and its first line, cut to 60 characters."""
    line = text.strip().split("\n", 1)[0].strip()
    return f'cell {number} "{line if len(line) <= 60 else line[:59] + "…"}"'
