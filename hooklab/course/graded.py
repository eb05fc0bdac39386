"""Whether nbgrader runs this notebook, and whether with the hooklab that the notebook belongs to."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable

import hooklab

Check = Callable[..., None]
_WHEN_IMPORTED = os.environ.get("NBGRADER_EXECUTION")


def by_nbgrader() -> bool:
    """Return whether a grader has set NBGRADER_EXECUTION, now or at the import of this file: an answer may unset it."""
    return bool(os.environ.get("NBGRADER_EXECUTION") or _WHEN_IMPORTED)


def check_of(version: str, check: Check) -> Check:
    """Return the check that a graded cell calls: hooklab's own for a grader, whatever a student calls `check`.

    The check cells of solutions/ call this in a region that nbgrader removes for students and restores for grading. So
    each graded cell shows an error if hooklab is missing or has a different version.

    Args:
        version: of the hooklab that the notebook was built with.
        check: what `check` means in the notebook.

    Raises RuntimeError if this hooklab has a different version.
    """
    if version != hooklab.__version__:
        raise RuntimeError(f"not graded: this notebook is for hooklab {version}, and here is {hooklab.__version__}")
    if by_nbgrader():
        return importlib.import_module("hooklab.course.exercises.checking").check  # type: ignore[no-any-return]
    return check
