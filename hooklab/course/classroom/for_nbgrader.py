"""Verdicts: nbgrader's autograde with the same verdicts as `python -m hooklab grade`. Made for nbgrader 0.9.6.

`Verdicts` takes the place of nbgrader's `Execute` in the lists of `CONFIG`, which belong in `nbgrader_config.py`: the
notebook runs in the sandbox, and each check cell gets the outcome as its output. So a student's `def check(*a): pass`,
a patched hooklab, a changed environment or a line on stderr change nothing; and where hooklab is missing, autograde
stops with an error instead of giving every student a 0. `Cells` gives a notebook the graded cells that it has lost.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

from nbconvert.preprocessors import Preprocessor
from nbformat import v4

import hooklab
from hooklab.course.classroom.lessons import LESSONS, Lesson, lesson_at
from hooklab.course.classroom.reading import Unreadable, read_notebook
from hooklab.course.classroom.sandbox import Limits
from hooklab.course.classroom.verdicts import TAMPERED, Verdict, grade_notebook

CONFIG = """\
c = get_config()
c.Autograde.sanitize_preprocessors = [
    "nbgrader.preprocessors.ClearOutput",
    "nbgrader.preprocessors.DeduplicateIds",
    "hooklab.course.classroom.for_nbgrader.Cells",
    "nbgrader.preprocessors.OverwriteKernelspec",
    "nbgrader.preprocessors.OverwriteCells",
    "nbgrader.preprocessors.CheckCellMetadata",
]
c.Autograde.autograde_preprocessors = [
    "hooklab.course.classroom.for_nbgrader.Verdicts",
    "nbconvert.preprocessors.ClearMetadataPreprocessor",
    "nbgrader.preprocessors.LimitOutput",
    "nbgrader.preprocessors.SaveAutoGrades",
    "nbgrader.preprocessors.AssignLatePenalties",
    "nbgrader.preprocessors.CheckCellMetadata",
]
"""
_VERSION = re.compile(r"""\bcheck_of\("([^"]+)", check\)""")  # in the graded cells
_v4: Any = v4  # nbformat has no types for it


class Cells(Preprocessor):
    """Bring back the graded cells that a notebook has lost, by deleting, merging or copying, or to Colab.

    A cell with the text of a check cell, as it was handed out, is that check cell; any other keeps what a student has
    written in it. Check cells that are missing then come at the end.
    """

    enabled = True

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """Return the notebook with each graded cell once."""
        lesson = _lesson_of(nb)
        if lesson is None:  # `Verdicts` says so in each graded cell
            return nb, resources
        given = json.loads((LESSONS / f"{lesson.name}.ipynb").read_text(encoding="utf-8"))["cells"]
        graded = [cell for cell in given if cell["metadata"].get("nbgrader", {}).get("grade")]
        missing = {"".join(cell["source"]).strip(): cell["metadata"]["nbgrader"] for cell in graded}
        for cell in nb.cells:
            cell.metadata.pop("nbgrader", None)
            if cell.source.strip() in missing:
                cell.metadata["nbgrader"] = missing.pop(cell.source.strip())
        nb.cells += [_v4.new_code_cell(text, metadata={"nbgrader": one}) for text, one in missing.items()]
        return nb, resources


class Verdicts(Preprocessor):
    """Give each check cell of a notebook the outcome of its exercise."""

    enabled = True

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """Return the notebook with new outputs. nbgrader gives points to a graded cell that shows no error.

        Raises RuntimeError, which ends autograde without a score, for a notebook of another version of the course.
        """
        others = {found for cell in nb.cells for found in _VERSION.findall(cell.source)} - {hooklab.__version__}
        if others:  # or every student would get meaningless points
            made_for, here = ", ".join(sorted(others)), hooklab.__version__
            raise RuntimeError(f"not graded: this is for hooklab {made_for}, and here is hooklab {here}")
        lesson, told = _lesson_of(nb), dict[str, Verdict]()
        if lesson is not None:
            told, _ = grade_notebook(lesson, read_notebook(json.dumps(nb).encode()).cells, json.dumps(nb), Limits())
        for cell in (one for one in nb.cells if one.cell_type == "code"):
            cell.outputs, cell.execution_count = [], None
            graded = cell.metadata.get("nbgrader", {})
            if graded.get("grade"):
                id = str(graded.get("grade_id", "")).removeprefix("check-").replace("-", ".")
                unknown = f"this copy of the course has no exercise {id}: another version?"
                cell.outputs = [_as_output(id, told[id]) if id in told else _error("Ungraded", unknown)]
        return nb, resources


def _lesson_of(nb: Any) -> Lesson | None:
    """Return the lesson that a notebook belongs to, if there is one."""
    with contextlib.suppress(Unreadable, LookupError):
        number = read_notebook(json.dumps(nb).encode()).lesson
        return None if number is None else lesson_at(number)
    return None


def _as_output(id: str, verdict: Verdict) -> Any:
    """Return what a student reads in a check cell: no note that is meant for the teacher."""
    if verdict.state == TAMPERED:
        return _error("Tampered", "your teacher looks at this answer")
    lines = [f"{id} {verdict.state}: {verdict.summary}", *(f"    {label:<9} {text}" for label, text in verdict.details)]
    if verdict.state == "correct":
        return _v4.new_output("stream", name="stdout", text="\n".join([*lines, ""]))
    return _error("AssertionError", "\n".join(lines))


def _error(name: str, text: str) -> Any:
    return _v4.new_output("error", ename=name, evalue=text, traceback=[f"{name}: {text}"])


if __name__ == "__main__":
    print(CONFIG, end="")
