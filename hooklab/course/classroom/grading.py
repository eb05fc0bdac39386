"""Grading a class: every submission once, some at a time, and nothing twice when the command is given again."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hooklab.course.classroom.collecting import Submission, version_of
from hooklab.course.classroom.lessons import ALL, LESSONS, ROOT, Exercise, Lesson, lesson_at, misconceptions_of
from hooklab.course.classroom.reading import Notebook
from hooklab.course.classroom.sandbox import Limits
from hooklab.course.classroom.verdicts import STOPPED, Interrupted, Verdict, grade_notebook

COUNTS = "counts as the newest"


@dataclass(frozen=True)
class Graded:
    """One student's work on one lesson: a verdict on each exercise, by its id, and the teacher's notes on the work."""

    student: str
    lesson: Lesson
    verdicts: dict[str, Verdict]
    notes: tuple[str, ...] = ()

    @property
    def pairs(self) -> list[tuple[Exercise, Verdict]]:
        """The lesson's exercises, each with its verdict."""
        return list(zip(self.lesson.exercises, self.verdicts.values(), strict=True))

    @property
    def points(self) -> int:
        """The points for all exercises."""
        return sum(one.points for one in self.verdicts.values())


def grade_class(
    submissions: Sequence[Submission],
    kept: Path,
    *,
    lesson: int | None = None,
    exercises: frozenset[str] = ALL,
    jobs: int = 2,
    limits: Limits = Limits(),  # noqa: B008
    tell: Callable[[int], None] = lambda done: None,
) -> list[Graded]:
    """Grade every submission; return a result for each student and each lesson that anybody has handed in.

    `kept` is a folder for the verdicts on each notebook, so that an interrupted run goes on where it stopped. `lesson`
    and `exercises` choose what is graded, by default all. `jobs` notebooks run at a time. `tell` is called after each
    student with how many are done. Raises LookupError where nobody has handed in a lesson.
    """
    grader = Grader(kept, limits, lesson, exercises)
    pool = ThreadPoolExecutor(max(1, jobs))
    try:
        futures = [pool.submit(grader.grade, submission) for submission in submissions]
        for done, _ in enumerate(as_completed(futures), start=1):
            tell(done)
        results = [future.result() for future in futures]
    finally:
        grader.interrupted.set()
        pool.shutdown(cancel_futures=True)
    lessons = {one.lesson.number: one.lesson for graded, _ in results for one in graded}
    if not lessons:
        everybody = zip(submissions, results, strict=True)
        told = [f"{one.student}: {'; '.join(notes)}" for one, (_, notes) in everybody if notes]
        which = "a lesson" if lesson is None else f"lesson {lesson}"
        raise LookupError("\n  ".join([f"nobody has handed in {which}", *told]))
    found = []
    for submission, (graded, notes) in zip(submissions, results, strict=True):
        there = {one.lesson.number: one for one in graded}
        for number in sorted(lessons):
            nothing = {one.id: Verdict("not handed in") for one in lessons[number].exercises}
            one = there.get(number) or Graded(submission.student, lessons[number], nothing)
            found.append(replace(one, notes=(*notes, *one.notes)))
    return found


@dataclass
class Grader:
    """Grades submissions, each notebook once: the verdicts with this course and these limits are kept in a folder."""

    kept: Path
    limits: Limits
    lesson: int | None = None
    exercises: frozenset[str] = ALL
    interrupted: threading.Event = field(default_factory=threading.Event)

    def grade(self, submission: Submission) -> tuple[list[Graded], list[str]]:
        """Grade the lessons of one student; return the results, and notes on what was handed in and not graded."""
        try:
            return self._graded(submission)
        except Interrupted:
            return [], []
        except Exception as error:  # whatever one student has handed in, the others are graded
            return [], [f"the grader itself failed here, with {type(error).__name__}: not graded, look at it"]

    def _graded(self, submission: Submission) -> tuple[list[Graded], list[str]]:
        handed_in = list(submission.read())
        notes = list(dict.fromkeys(one for one in handed_in if isinstance(one, str)))
        notebooks = [one for one in handed_in if isinstance(one, Notebook)]
        if notebooks and not any(one.lesson is not None for one in notebooks):
            notes += [f"{Path(one.path).name} has no exercise of this course" for one in notebooks]
        found = []
        for number in sorted({one.lesson for one in notebooks if one.lesson is not None}):
            if self.lesson not in (None, number):
                continue
            try:
                lesson = lesson_at(number, self.exercises)
            except LookupError as error:
                notes.append(str(error.args[0]))
                continue
            if not lesson.exercises:
                continue
            of_it = [one for one in notebooks if one.lesson == number]
            notebook = max(of_it, key=functools.partial(_newest, lesson))
            told = [f"{one.path}: not graded, {notebook.path} {COUNTS}" for one in of_it if one is not notebook]
            verdicts, of_the_run = self._verdicts(notebook, lesson)
            found.append(Graded(submission.student, lesson, verdicts, (*told, *of_the_run)))
        return found, notes

    def _verdicts(self, notebook: Notebook, lesson: Lesson) -> tuple[dict[str, Verdict], list[str]]:
        """Return the verdicts on a notebook, and the notes on its run: those that were kept, or new ones."""
        counts = [one.id for one in lesson.exercises]
        everything = f"{notebook.digest} {_version_of_the_course(lesson.number)} {self.limits} {counts}"
        path = self.kept / f"{hashlib.sha256(everything.encode()).hexdigest()[:32]}.json"
        with contextlib.suppress(OSError, ValueError):
            verdicts, notes = json.loads(path.read_text(encoding="utf-8"))
            return {id: Verdict(**one | {"notes": tuple(one["notes"])}) for id, one in verdicts.items()}, notes
        found, notes = grade_notebook(lesson, notebook.cells, notebook.digest, self.limits, self.interrupted)
        if not any(one.state == STOPPED for one in found.values()):  # else another run may have more luck
            self.kept.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps([{id: asdict(one) for id, one in found.items()}, notes]), encoding="utf-8")
        return found, notes


def _newest(lesson: Lesson, notebook: Notebook) -> tuple[Any, ...]:
    """The order of several notebooks of a lesson: the platform's, then time; one without any work comes first."""
    given = {cell.text for cell in lesson.cells}
    has_work = any(cell.text not in given for cell in notebook.cells)
    return has_work, version_of(notebook.path), notebook.when, notebook.path


@functools.cache
def _version_of_the_course(lesson: int) -> str:
    """A hash of all that a verdict depends on, besides the notebook."""
    files = [path for kind in ("py", "json", "toml") for path in ROOT.glob(f"hooklab/**/*.{kind}")]
    files += [misconceptions_of(lesson), *LESSONS.glob(f"{lesson:02d}_*")]
    digest = hashlib.sha256(importlib.metadata.version("torch").encode())
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()
