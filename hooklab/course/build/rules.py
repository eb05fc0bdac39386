"""findings: what a built notebook must not hold. The same rules for a notebook just run and for a committed one."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hooklab.course.build.course import Variant
from hooklab.course.build.drafts import Draft
from hooklab.course.build.regions import solution_lines, stubbed

Finding = tuple[int, str]  # the cell's index, and what is wrong
WANTED: dict[Variant, str] = {"lesson": "not attempted", "solution": "correct"}
# A shorter line, such as `return x` or `else:`, gives nothing away.
TELLING = 12
_OUTCOME = re.compile(r"[✓○✗] (\d+\.\d+) (correct|not attempted|not yet)\b")
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")
_FENCED = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
_KERNEL_FILE = re.compile(r"ipykernel_\d+")


def findings(notebook: Any, draft: Draft, variant: Variant) -> list[Finding]:
    """Return everything that is wrong with what a run left in a notebook, in the order of its cells."""
    found = [*_count_findings(notebook), *_output_findings(notebook, draft.lesson.root), *_outcomes(notebook, variant)]
    found += _pictureless(notebook)
    if variant == "lesson":
        found += _leaks(notebook, draft)
    return sorted(found, key=lambda finding: finding[0])


def outcome(cell: Any) -> tuple[str, str] | None:
    """Return the exercise's id and the outcome that a check cell shows, or None when it shows none."""
    for text in _texts(cell, "text/plain"):
        if match := _OUTCOME.match(text):
            return match[1], match[2]
    return None


def _count_findings(notebook: Any) -> Iterator[Finding]:
    expected = 0
    for index, cell in enumerate(notebook.cells):
        if cell.cell_type != "code":
            continue
        expected += 1
        if cell.execution_count is None:
            yield index, "this cell was not run"
        elif cell.execution_count != expected:
            yield index, f"execution count {cell.execution_count}, expected {expected}: not run once from top to bottom"


def _output_findings(notebook: Any, root: Path) -> Iterator[Finding]:
    for index, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                yield index, f"an error in the output: {output.ename}"
        for text in _texts(cell):
            if address := _ADDRESS.search(text):
                yield index, f"the output holds a memory address, another one in each run: {address[0]!r}"
            if path := _machine_path(text, root):
                yield index, f"the output holds a path of the machine that ran it: {path!r}"


def _pictureless(notebook: Any) -> Iterator[Finding]:
    """Find cells that promise something to see and put out no picture, such as the name of a figure instead of it."""
    for index, cell in enumerate(notebook.cells):
        kinds = [kind for output in cell.get("outputs", []) for kind in output.get("data", {})]
        tags = {"figure", "explorer"}.intersection(cell.metadata.get("tags", []))
        if tags and not any(kind.startswith("image/") for kind in kinds):
            yield index, f"tagged as {tags.pop()}, but there is no picture in the output"


def _outcomes(notebook: Any, variant: Variant) -> Iterator[Finding]:
    for index, cell in enumerate(notebook.cells):
        if "check" in cell.metadata.get("tags", []):
            found = outcome(cell)
            if found is None:
                yield index, f'no outcome of a check in the output, expected "{WANTED[variant]}"'
            elif found[1] != WANTED[variant]:
                yield index, f'the {variant}\'s check says "{found[1]}", expected "{WANTED[variant]}"'


def _leaks(notebook: Any, draft: Draft) -> Iterator[Finding]:
    """Find solution lines in a lesson: in its prose, its hints and its outputs as well as in its code.

    A line that the lesson itself gives is no secret: in a code cell outside the solutions, or in the fenced script that
    a card asks to mend.
    """
    taught = {line.strip() for cell in draft.cells if cell.kind == "code" for line in stubbed(cell.text).split("\n")}
    scripts = (script for one in draft.exercises for script in _FENCED.findall(one.card.text))
    taught |= {line.strip() for script in scripts for line in script.split("\n")}
    secret = {line for one in draft.exercises for line in solution_lines(one.solution.text) if len(line) >= TELLING}
    for index, cell in enumerate(notebook.cells):
        visible = "\n".join([cell.source, *_texts(cell)])
        for line in sorted(secret - taught):
            if line in visible:
                yield index, f"the lesson holds a line of a solution: {line!r}"


def _texts(cell: Any, only: str = "") -> Iterator[str]:
    """Yield what a cell's outputs show as text, of all kinds or of one."""
    for output in cell.get("outputs", []):
        if output.output_type == "stream" and not only:
            yield output.text
        for kind, text in output.get("data", {}).items():
            if kind == only or (not only and (kind.startswith("text/") or kind == "image/svg+xml")):
                yield text


def _machine_path(text: str, root: Path) -> str | None:
    if match := _KERNEL_FILE.search(text):
        return match[0]
    for path in (root, Path.home(), Path(tempfile.gettempdir()), Path(sys.prefix)):
        if len(path.parts) > 1 and re.search(rf"{re.escape(str(path))}(?![\w.-])", text):
            return str(path)
    return None
