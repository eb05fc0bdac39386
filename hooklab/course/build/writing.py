"""skeleton and write: the notebook that a source makes, without outputs, and how a notebook becomes a file.

Everything here depends on the source alone, so that the same source always gives the same bytes, and a committed
notebook can be held against its source without running it.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from nbformat import v4

from hooklab.course.build.course import Variant
from hooklab.course.build.drafts import Draft
from hooklab.course.build.regions import stubbed

_v4: Any = v4  # nbformat has no types for it

METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# A stored output that JupyterLab shows as three dots; running the cell opens it. "collapsed" is Jupyter's older word.
FOLDED = {"collapsed": True, "jupyter": {"outputs_hidden": True}}


def skeleton(draft: Draft, variant: Variant) -> Any:
    """Return the notebook (an nbformat NotebookNode) of a lesson or a solution, its code cells not yet run."""
    graded = _nbgrader_metadata(draft)
    notebook = _v4.new_notebook(metadata=METADATA)
    notebook.nbformat_minor = 5
    for cell, id in zip(draft.cells, _cell_ids(draft), strict=True):
        open_exercise = variant == "lesson" and "solution" in cell.tags
        text = stubbed(cell.text) if open_exercise else cell.text
        metadata: dict[str, Any] = {"tags": list(cell.tags)} if cell.tags else {}
        if draft.has_predictions and variant == "lesson" and "predict" in cell.tags:
            metadata |= FOLDED
        if cell.number in graded:
            metadata["nbgrader"] = graded[cell.number]
        new = _v4.new_markdown_cell if cell.kind == "markdown" else _v4.new_code_cell
        notebook.cells.append(new(text, id=id, metadata=metadata))
    return notebook


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
    graded = {}
    for one in draft.exercises:
        common = {"schema_version": 3, "task": False}
        graded[one.solution.number] = common | {
            "grade": False,
            "grade_id": one.slug("solution"),
            "locked": False,
            "solution": True,
        }
        graded[one.check.number] = common | {
            "grade": True,
            "grade_id": one.slug("check"),
            "locked": True,
            "points": one.points,
            "solution": False,
        }
    return graded
