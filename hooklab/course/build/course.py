"""Course, Lesson and Problem: which files there are, what they name, and one line for each thing that is refused."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Variant = Literal["lesson", "solution"]
FOLDER: dict[Variant, str] = {"lesson": "lessons", "solution": "solutions"}


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
    def wrong_answers(self) -> Path:
        """The file of the wrong answers that its checks must reject."""
        return self.root / "tests" / "course" / f"lesson{self.number:02d}" / "wrong.py"

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
        """Return the lessons that are meant by `02`, `02_tensor_hooks` or a path of the lesson's files; all for [].

        Raises LookupError, which names what is near, for a name that is no lesson, and where there are no sources.
        """
        lessons = self.lessons()
        if not lessons:
            raise LookupError(f"there are no sources in {self.root / 'solutions' / 'source'}")
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


def ids_in(paths: Iterable[Path], *names: str) -> list[str]:
    """Return the texts that functions of these names are called with as first argument in these files, in order.

    The files' text is read: to import them would import torch, which takes seconds.
    """
    return [id for path in paths for id in called_with(ast.parse(path.read_text(encoding="utf-8")), *names)]


def called_with(tree: ast.AST, *names: str) -> list[str]:
    """Return the texts that functions of these names are called with as first argument, in order.

    Example:
        >>> called_with(ast.parse('hooklab.check("2.1", record_gradients)'), "check")
        ['2.1']
    """
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    calls = [call for call in calls if ast.unparse(call.func).removeprefix("hooklab.") in names]
    first = [call.args[0] for call in sorted(calls, key=lambda call: call.lineno)]
    return [arg.value for arg in first if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]


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
    slugs = {name.split("_", 1)[-1]: name for name in names}
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.4)
    near += [slugs[slug] for slug in difflib.get_close_matches(wanted, slugs, n=3, cutoff=0.4)]
    listed = ", ".join(dict.fromkeys(near)) or ", ".join(names)
    raise LookupError(f"there is no lesson {name!r}; {'near' if near else 'there are'}: {listed}")
