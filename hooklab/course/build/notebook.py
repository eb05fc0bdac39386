"""The notebook that a source makes, how it becomes a file, and what is wrong with one that was run or is committed.

`skeleton` depends on the source alone, so that the same source always gives the same bytes, and a committed notebook
can be held against its source without running it: `compare`.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import nbformat
from nbformat import v4

from hooklab.course import words
from hooklab.course.build.course import FOLDER, Problem, Variant, shortened
from hooklab.course.build.draft import Draft
from hooklab.course.build.source import Cell, guarded, solution_lines, stubbed

_v4: Any = v4  # nbformat has no types for it

METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# A stored output that JupyterLab shows as three dots; running the cell opens it. "collapsed" is Jupyter's older word.
FOLDED = {"collapsed": True, "jupyter": {"outputs_hidden": True}}
# Code that JupyterLab shows as three dots behind its first line, `reveal(…)`: its asserts would tell the answer.
HIDDEN = {"jupyter": {"source_hidden": True}}

Finding = tuple[int, str]  # the cell's index, and what is wrong
WANTED: dict[Variant, str] = {"lesson": words.OUTCOMES["not attempted"], "solution": words.OUTCOMES["correct"]}
# A shorter line, such as `return x` or `else:`, gives nothing away.
TELLING = 12
_OUTCOME = re.compile(rf"[✓○✗] (\d+\.\d+) ({'|'.join(words.OUTCOMES.values())})\b")
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")
_FENCED = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
_KERNEL_FILE = re.compile(r"ipykernel_\d+")


def skeleton(draft: Draft, variant: Variant) -> Any:
    """Return the notebook (an nbformat NotebookNode) of a lesson or a solution, its code cells not yet run."""
    graded = _nbgrader_metadata(draft)
    notebook = _v4.new_notebook(metadata=METADATA)
    notebook.nbformat_minor = 5
    for cell, id in zip(draft.cells, _cell_ids(draft), strict=True):
        open_exercise = variant == "lesson" and "solution" in cell.tags
        text = stubbed(cell.text) if open_exercise else cell.text
        if variant == "solution" and "check" in cell.tags:
            text = guarded(text)
        metadata: dict[str, Any] = {"tags": list(cell.tags)} if cell.tags else {}
        if variant == "lesson" and "predict" in cell.tags:
            metadata |= FOLDED
        if variant == "lesson" and _only_tells(cell):
            metadata |= HIDDEN
        if cell.number in graded:
            metadata["nbgrader"] = graded[cell.number]
        new = _v4.new_markdown_cell if cell.kind == "markdown" else _v4.new_code_cell
        notebook.cells.append(new(text, id=id, metadata=metadata))
    return notebook


def _only_tells(cell: Cell) -> bool:
    """Whether a cell reveals, asserts and prints, and does nothing that the reader should see done."""
    if cell.kind != "code" or not cell.called_with("reveal"):
        return False
    calls = [one.value for one in cell.parsed().body if isinstance(one, ast.Expr)]
    named = [ast.unparse(call.func) for call in calls if isinstance(call, ast.Call)]
    others = [one for one in cell.parsed().body if not isinstance(one, ast.Expr | ast.Assert)]
    return not others and len(named) == len(calls) and set(named) <= {"reveal", "print"}


def serialise(notebook: Any) -> str:
    """Return the one text of a notebook: sorted keys, indented by 1, characters as they are, a newline at the end."""
    return str(_v4.writes(notebook)) + "\n"


def write(notebook: Any, path: Path) -> bool:
    """Write a notebook, whole or not at all; return whether the file changed."""
    content = serialise(notebook).encode("utf-8")
    if path.is_file() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        unfinished.write_bytes(content)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return True


def compare(draft: Draft) -> list[Problem]:
    """Return every difference between a lesson's two notebooks and its source, and what a run left wrong in them."""
    return [problem for variant in FOLDER for problem in _compare_one(draft, variant)]


def findings(notebook: Any, draft: Draft, variant: Variant) -> list[Finding]:
    """Return everything that is wrong with what a run left in a notebook, in the order of its cells.

    The same rules for a notebook just run and for a committed one.
    """
    found = [*unrun(notebook.cells), *_output_findings(notebook, draft.lesson.root), *_outcomes(notebook, variant)]
    found += _pictureless(notebook)
    if variant == "lesson":
        found += _leaks(notebook, draft)
        found += _told_while_folded(notebook)
    return sorted(found, key=lambda finding: finding[0])


def unrun(cells: list[Any]) -> Iterator[Finding]:
    """Find the code cells that were not run once each, from top to bottom."""
    expected = 0
    for index, cell in enumerate(cells):
        if cell["cell_type"] != "code":
            continue
        expected += 1
        count = cell["execution_count"]
        if count is None:
            yield index, "this cell was not run"
        elif count != expected:
            yield index, f"execution count {count}, expected {expected}: not run once from top to bottom"


def outcome(cell: Any) -> tuple[str, str] | None:
    """Return the exercise's id and the outcome that a check cell shows, or None when it shows none."""
    for text in _texts(cell, "text/plain"):
        if match := _OUTCOME.match(text):
            return match[1], match[2]
    return None


# --- what a source makes


def _cell_ids(draft: Draft) -> list[str]:
    """Return an id for each cell: by the exercise for a card and its cells, else by the lesson and the cell's text.

    An edit changes the id of no other cell. Equal cells are told apart by their order.
    """
    named = {cell.number: one.slug(role) for one in draft.exercises for role, cell in one.roles()}
    ids: list[str] = []
    for cell in draft.cells:
        digest = hashlib.sha256(f"{draft.lesson.name}\n{cell.kind}\n{cell.text}".encode()).hexdigest()[:12]
        id, copy = named.get(cell.number, digest), 2
        while id in ids:
            id, copy = f"{digest}-{copy}", copy + 1
        ids.append(id)
    return ids


def _nbgrader_metadata(draft: Draft) -> dict[int, dict[str, Any]]:
    """Return nbgrader's metadata (schema version 3) by cell number: what the learner writes, and what is graded."""
    graded: dict[int, dict[str, Any]] = {}
    for one in draft.exercises:
        written = {"schema_version": 3, "task": False, "grade": False, "locked": False, "solution": True}
        checked = {"schema_version": 3, "task": False, "grade": True, "locked": True, "solution": False}
        graded[one.solution.number] = written | {"grade_id": one.slug("solution")}
        graded[one.check.number] = checked | {"grade_id": one.slug("check"), "points": one.points}
    return graded


# --- a committed notebook against its source


def _compare_one(draft: Draft, variant: Variant) -> list[Problem]:
    path = draft.lesson.notebook(variant)
    file = draft.lesson.shown(path)
    if not path.is_file():
        return [Problem(file, "missing")]
    text = path.read_text(encoding="utf-8")
    try:
        raw = json.loads(text)
        nbformat.validate(raw)
    except (json.JSONDecodeError, nbformat.ValidationError, AttributeError) as error:
        return [Problem(file, f"this is not a notebook: {shortened(str(error))}")]
    notebook = _v4.to_notebook(raw)
    cells = notebook.cells
    wanted = skeleton(draft, variant)
    problems = [_at(file, cells, index, what) for index, what in _cell_differences(cells, wanted.cells)]
    if {**notebook, "cells": []} != {**wanted, "cells": []}:
        problems.append(Problem(file, "the notebook's metadata is not what the builder writes"))
    if not problems and serialise(notebook) != text:
        problems.append(Problem(file, "saved by something other than the builder"))
    return problems + [_at(file, cells, index, what) for index, what in findings(notebook, draft, variant)]


def _cell_differences(cells: list[Any], wanted: list[Any]) -> list[Finding]:
    bare = [{**cell, "outputs": [], "execution_count": None} if "outputs" in cell else cell for cell in cells]
    if len(bare) == len(wanted):
        pairs = zip(bare, wanted, strict=True)
        return [(index, _difference(cell, want)) for index, (cell, want) in enumerate(pairs) if cell != want]
    same = 0
    while same < min(len(bare), len(wanted)) and bare[same] == wanted[same]:
        same += 1
    return [(same, f"{len(bare)} cells where the source has {len(wanted)}; the first difference is here")]


def _difference(cell: Any, want: Any) -> str:
    if cell.get("source") != want.source:
        pairs = zip_longest(cell["source"].split("\n"), want.source.split("\n"), fillvalue="(nothing)")
        number, line, wanted = next((n, one, other) for n, (one, other) in enumerate(pairs, start=1) if one != other)
        return f"line {number} is `{shortened(line)}`, in the source `{shortened(wanted)}`"
    differing = sorted(key for key in {*cell, *want} if cell.get(key) != want.get(key))
    return f"{' and '.join(differing)} not as the source gives it"


def _at(file: str, cells: list[Any], index: int, what: str) -> Problem:
    first_line = cells[index].source if index < len(cells) else "(end)"
    return Problem(file, what, cell=index + 1, first_line=first_line)


# --- what a run left


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


def _told_while_folded(notebook: Any) -> Iterator[Finding]:
    """Find predictions whose folded output tells the answer: JupyterLab shows the first line of what is folded."""
    for index, cell in enumerate(notebook.cells):
        lines = "\n".join(_texts(cell)).strip().split("\n")
        if "predict" in cell.metadata.get("tags", []) and len(lines) == 1:
            yield index, "a folded output shows its first line, and this one has no other: print a line before it"


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
