"""One fork server for all tests of this folder, with limits of a second, and `grade`, which grades a folder with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hooklab.course.classroom.collecting import find_submissions
from hooklab.course.classroom.confinement import Limits
from hooklab.course.classroom.grading import Graded, grade_class
from hooklab.course.classroom.lessons import LESSONS, lesson_at
from hooklab.course.classroom.reading import Cell
from hooklab.course.classroom.workers import Worker
from tests.course.classroom.made_up import CHECK, RIGHT

LIMITS = Limits(seconds=0.4, deadline=3.0, memory=512, disk=4, processes=12)
Grade = Callable[[Path], dict[str, Graded]]


@pytest.fixture(scope="session")
def worker() -> Iterator[Worker]:
    if not hasattr(os, "fork"):
        pytest.skip("grading needs os.fork")
    one = Worker(LIMITS)
    cells = tuple(Cell(1, text) for text in (RIGHT, CHECK))
    (exercise,) = lesson_at(0, LESSONS).exercises
    assert one.grade(exercise, cells, "").state == "correct"  # from here on, `held` says what this machine can do
    yield one
    one.close()


@pytest.fixture
def grade(worker: Worker, tmp_path: Path) -> Grade:
    """Return a function that grades a folder, nothing kept, and returns the results by student."""

    def graded(folder: Path) -> dict[str, Graded]:
        found, _ = grade_class(find_submissions(folder), tmp_path / "kept", limits=LIMITS, workers=[worker])
        return {one.student: one for one in found}

    return graded
