"""Course and Lesson: which files there are, and which lesson a name on the command line means."""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Variant = Literal["lesson", "solution"]
FOLDER: dict[Variant, str] = {"lesson": "lessons", "solution": "solutions"}


@dataclass(frozen=True)
class Lesson:
    """A lesson: its name, such as 02_tensor_hooks, and where its source and its two notebooks are."""

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

    def notebook(self, variant: Variant) -> Path:
        """The built notebook: the lesson with open exercises, or the solution."""
        return self.root / FOLDER[variant] / f"{self.name}.ipynb"


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
        if not names:
            return lessons
        chosen = {lesson.name: lesson for name in names for lesson in [_find(name, lessons)]}
        return [lesson for lesson in lessons if lesson.name in chosen]

    def strays(self) -> list[Path]:
        """Return the notebooks that no source makes."""
        made = {lesson.notebook(variant) for lesson in self.lessons() for variant in FOLDER}
        found = [path for folder in FOLDER.values() for path in sorted((self.root / folder).rglob("*.ipynb"))]
        return [path for path in found if path not in made and ".ipynb_checkpoints" not in path.parts]

    def known_exercises(self) -> set[str]:
        """Return the ids that hooklab.course.exercises knows.

        Read from the decorators `@exercise("2.1", …)` in the text of hooklab/course/lessonNN/check*.py: importing
        those modules would import torch, which takes seconds.
        """
        paths = (self.root / "hooklab" / "course").glob("lesson[0-9][0-9]/check*.py")
        return {id for path in paths for id in called_with(ast.parse(path.read_text(encoding="utf-8")), "exercise")}

    def known_predictions(self, lesson: Lesson) -> list[str] | None:
        """Return the ids in a lesson's predictions.py, in order; None for a lesson that has no such file.

        Read from the calls `prediction("2.a", …)` and `number("2.b", …)` in its text.
        """
        path = self.root / "hooklab" / "course" / f"lesson{lesson.number:02d}" / "predictions.py"
        return (
            called_with(ast.parse(path.read_text(encoding="utf-8")), "prediction", "number") if path.is_file() else None
        )

    def readme_row(self, lesson: Lesson) -> tuple[int, str] | None:
        """Return the line number and the text of a lesson's row in the README, or None."""
        path = self.root / "README.md"
        lines = path.read_text(encoding="utf-8").split("\n") if path.is_file() else []
        linked = f"(lessons/{lesson.name}.ipynb)"
        rows = ((number, line) for number, line in enumerate(lines, start=1) if line.startswith("|") and linked in line)
        return next(rows, None)

    def shown(self, path: Path) -> str:
        """Return a path as messages show it: relative to the root, with slashes."""
        return path.relative_to(self.root).as_posix()


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


def called_with(tree: ast.Module, *names: str) -> list[str]:
    """Return the texts that functions of these names are called with as first argument, in order."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    calls = [call for call in calls if ast.unparse(call.func).removeprefix("hooklab.") in names]
    first = [call.args[0] for call in sorted(calls, key=lambda call: call.lineno)]
    return [arg.value for arg in first if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
