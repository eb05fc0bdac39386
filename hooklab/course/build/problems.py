"""Problem: one thing that a build refuses, as one line that says where it is."""

from __future__ import annotations

from dataclasses import dataclass


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


def shortened(text: str, width: int = 60) -> str:
    """Return the first line of a text, cut to `width` characters."""
    line = text.strip().split("\n", 1)[0].strip()
    return line if len(line) <= width else line[: width - 1] + "…"
