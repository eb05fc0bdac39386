"""Verdicts: nbgrader's autograde with the same verdicts as `python -m hooklab grade`. Made for nbgrader 0.9.6.

`Verdicts` stands in the place of nbgrader's `Execute` in the lists of `CONFIG`, which belong into `nbgrader_config.py`:
each exercise is graded in a process of its own, and its check cell gets the outcome as its output. So a student's
`def check(*a): pass`, a patched hooklab, a changed environment or a line on stderr change nothing; and where hooklab is
missing, autograde stops with an error instead of giving everybody a 0. `Copies` keeps one student's copied cell from
ending the autograde of all.
"""

from __future__ import annotations

import json
import re
from typing import Any

from nbconvert.preprocessors import Preprocessor
from nbformat import v4

import hooklab
from hooklab.course.classroom.lessons import LESSONS, lesson_at
from hooklab.course.classroom.reading import Unreadable, read_notebook
from hooklab.course.classroom.sandbox import Limits
from hooklab.course.classroom.verdicts import TAMPERED, Verdict, grade_notebook

CONFIG = """\
c = get_config()
c.Autograde.sanitize_preprocessors = [
    "nbgrader.preprocessors.ClearOutput",
    "nbgrader.preprocessors.DeduplicateIds",
    "hooklab.course.classroom.for_nbgrader.Copies",
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


class Copies(Preprocessor):
    """Take away the empty metadata that nbgrader leaves at the first of two cells with one name, and then refuses."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self.enabled = True

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """Return the notebook without such metadata."""
        for cell in nb.cells:
            if cell.metadata.get("nbgrader") == {}:
                del cell.metadata["nbgrader"]
        return nb, resources


class Verdicts(Preprocessor):
    """Give each check cell of a notebook the outcome of its exercise; no other cell is run."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self.enabled = True

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """Return the notebook with new outputs. nbgrader gives points to a graded cell that shows no error.

        Raises RuntimeError, which ends autograde without a score, for a notebook of another version of the course.
        """
        others = {found for cell in nb.cells for found in _VERSION.findall(cell.source)} - {hooklab.__version__}
        if others:  # else everybody would get points that mean nothing
            made_for, here = ", ".join(sorted(others)), hooklab.__version__
            raise RuntimeError(f"not graded: this is for hooklab {made_for}, and here is hooklab {here}")
        told = self._told(nb)
        for cell in nb.cells:
            if cell.cell_type != "code":
                continue
            graded = cell.metadata.get("nbgrader", {})
            cell.outputs, cell.execution_count = [], None
            if graded.get("grade"):
                id = str(graded.get("grade_id", "")).removeprefix("check-").replace("-", ".")
                what = told.get(id) or told.get("") or f"this copy of the course has no exercise {id}: another version?"
                cell.outputs = [_as_output(what)]
        return nb, resources

    def _told(self, nb: Any) -> dict[str, Verdict | str]:
        """Return what came of each exercise, by id; under "" what is the matter with the whole notebook."""
        try:
            handed = read_notebook(json.dumps(nb).encode())
        except Unreadable as error:
            return {"": f"this notebook {error}"}
        if handed.lesson is None:
            return {"": "this notebook has no exercise of this course"}
        try:
            lesson = lesson_at(handed.lesson, LESSONS)
        except LookupError as error:
            return {"": f"{error.args[0]}: is this another version of the course?"}
        return dict(grade_notebook(lesson, handed.cells, json.dumps(nb), Limits())[0])


def _as_output(what: Verdict | str) -> Any:
    if isinstance(what, str):
        return _error("Ungraded", what)
    text = "\n".join([what.text, *(f"    {'teacher':<9} {note}" for note in what.notes)])
    if what.state == "correct":
        return _v4.new_output("stream", name="stdout", text=f"{text}\n")
    return _error("Tampered" if what.state == TAMPERED else "AssertionError", text)


def _error(name: str, text: str) -> Any:
    return _v4.new_output("error", ename=name, evalue=text, traceback=[f"{name}: {text}"])


if __name__ == "__main__":
    print(CONFIG, end="")
