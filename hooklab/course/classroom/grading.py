"""Grading a class: every submission once, some at a time, and nothing twice when the command is given again."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path

from hooklab.course.classroom.collecting import Submission
from hooklab.course.classroom.confinement import Limits
from hooklab.course.classroom.lessons import LESSONS, ROOT, Lesson, lesson_at
from hooklab.course.classroom.reading import Handed, Unreadable, read_notebook
from hooklab.course.classroom.workers import STOPPED, Verdict, Worker

NONE = -1  # in the place of a lesson's number: lesson 0 is one


@dataclass(frozen=True)
class Graded:
    """One student's work on one lesson: the verdicts by exercise, and what the teacher is told of the whole.

    Without verdicts, nothing of this lesson was handed in that could be read. `lesson` may be NONE.
    """

    student: str
    lesson: int
    file: str = ""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Notebook:
    """A notebook that was handed in: its path, the hash of its content, and what is in it."""

    path: str
    digest: str
    handed: Handed


def grade_class(
    submissions: Sequence[Submission],
    kept: Path,
    *,
    lesson: int | None = None,
    jobs: int = 2,
    limits: Limits | None = None,
    workers: Sequence[Worker] = (),
    tell: Callable[[int], None] = lambda done: None,
) -> tuple[list[Graded], set[str]]:
    """Grade everybody; return the results by student and lesson, and the protections that held for all.

    Args:
        submissions: what was handed in.
        kept: a folder for the verdicts on each notebook, so that an interrupted run goes on where it was.
        lesson: the one to grade; by default all that were handed in.
        jobs: how many exercises run at a time.
        limits: what an exercise may take.
        workers: those to use, which stay open; by default as many as there are jobs, with these limits.
        tell: called after each student with how many are done.
    """
    limits = limits or Limits()
    kept.mkdir(parents=True, exist_ok=True)
    own = [] if workers else [Worker(limits) for _ in range(max(1, min(jobs, len(submissions))))]
    workers = [*own, *workers]
    free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
    for worker in workers:
        free.put(worker)

    def one(submission: Submission) -> list[Graded]:
        worker = free.get()
        try:
            return grade_one(submission, Kept(kept, limits), worker, lesson)
        except Exception as error:  # whatever one student has handed in, the others are graded
            note = f"the grader itself failed here, with {type(error).__name__}: not graded, look at it"
            return [Graded(submission.student, NONE if lesson is None else lesson, notes=(note,))]
        finally:
            free.put(worker)

    pool = ThreadPoolExecutor(len(workers))
    try:
        futures = [pool.submit(one, submission) for submission in submissions]
        waiting = set(futures)
        while waiting:
            done, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
            if done:
                tell(len(futures) - len(waiting))
        found = [graded for future in futures for graded in future.result()]
    finally:
        for worker in own:
            worker.close()
        pool.shutdown(cancel_futures=True)
    held = [worker.held for worker in workers if worker.held is not None]
    return _everybody(found, lesson), set.intersection(*held) if held else set()


def grade_one(submission: Submission, kept: Kept, worker: Worker, only: int | None = None) -> list[Graded]:
    """Grade all lessons of one student; where nothing can be graded, return one result that says why."""
    notebooks, notes = _read(submission)
    lessons = sorted({one.handed.lesson for one in notebooks if one.handed.lesson is not None})
    if only is not None:
        notes += [f"lesson {number} was handed in as well: not graded" for number in lessons if number != only]
        lessons = [number for number in lessons if number == only]
    found = []
    for number in lessons:
        try:
            lesson = lesson_at(number, LESSONS)
        except LookupError as error:
            notes.append(str(error.args[0]))
            continue
        of_it = [one for one in notebooks if one.handed.lesson == number]
        notebook = max(of_it, key=lambda one: (_own_cells(one, lesson), Path(one.path).stem == lesson.name, one.path))
        told = [*notes, *(f"{one.path} is of the same lesson: not graded" for one in of_it if one is not notebook)]
        verdicts = kept.verdicts(notebook, lesson)
        if verdicts is None:
            cells, salt = notebook.handed.cells, notebook.digest
            verdicts = {exercise.id: worker.grade(exercise, cells, salt) for exercise in lesson.exercises}
            kept.keep(notebook, lesson, verdicts)
        found.append(Graded(submission.student, number, notebook.path, verdicts, tuple(told)))
    return found or [
        Graded(submission.student, NONE if only is None else only, notes=tuple(notes or ["no notebook was handed in"]))
    ]


class Kept:
    """The verdicts on notebooks that were graded before, with this course and these limits, as files of a folder."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.folder, self.limits = folder, limits

    def verdicts(self, notebook: Notebook, lesson: Lesson) -> dict[str, Verdict] | None:
        """Return what was kept, or None."""
        try:
            kept = json.loads(self._path(notebook, lesson).read_text(encoding="utf-8"))
            return {id: Verdict(**one | {"notes": tuple(one["notes"])}) for id, one in kept.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def keep(self, notebook: Notebook, lesson: Lesson, verdicts: dict[str, Verdict]) -> None:
        """Keep the verdicts, except where one was stopped: another run may have more luck."""
        if any(one.state == STOPPED for one in verdicts.values()):
            return
        path = self._path(notebook, lesson)
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_text(json.dumps({id: asdict(one) for id, one in verdicts.items()}), encoding="utf-8")
        with contextlib.suppress(OSError):
            unfinished.replace(path)

    def _path(self, notebook: Notebook, lesson: Lesson) -> Path:
        everything = f"{notebook.digest} {_version_of_the_course(lesson.number)} {self.limits}"
        return self.folder / f"{hashlib.sha256(everything.encode()).hexdigest()[:32]}.json"


def _read(submission: Submission) -> tuple[list[Notebook], list[str]]:
    """Return the notebooks of a submission that belong to a lesson, and a sentence about each other one."""
    notebooks, notes = [], list(submission.faults)
    for file in submission.read():
        if file.fault:
            notes.append(file.fault)
            continue
        try:
            handed = read_notebook(file.content)
        except Unreadable as error:
            notes.append(f"{file.path.name} {error}")
            continue
        if handed.lesson is None:
            notes.append(f"{file.path.name} has no exercise of this course")
        else:
            notebooks.append(Notebook(str(file.path), hashlib.sha256(file.content).hexdigest(), handed))
    return notebooks, notes


def _own_cells(notebook: Notebook, lesson: Lesson) -> int:
    given = {cell.text for cell in lesson.cells}
    return sum(cell.text not in given for cell in notebook.handed.cells)


def _everybody(found: list[Graded], only: int | None) -> list[Graded]:
    """Everybody gets a row for each lesson that anybody has handed in."""
    lessons = sorted({one.lesson for one in found if one.lesson != NONE} | ({only} if only is not None else set()))
    there = {(one.student, one.lesson): one for one in found}
    notes = {one.student: one.notes for one in found}
    return [
        there.get((student, lesson)) or Graded(student, lesson, notes=notes[student])
        for student in sorted(notes)
        for lesson in lessons or [NONE]
    ]


_versions: dict[int, str] = {}


def _version_of_the_course(lesson: int) -> str:
    """A hash of all that a verdict depends on, besides the notebook."""
    if lesson not in _versions:
        files = [
            *ROOT.glob("hooklab/**/*.py"),
            *ROOT.glob("tests/course/**/wrong.py"),
            *LESSONS.glob(f"{lesson:02d}_*"),
        ]
        digest = hashlib.sha256(importlib.metadata.version("torch").encode())
        for file in sorted(files):
            digest.update(file.read_bytes())
        _versions[lesson] = digest.hexdigest()
    return _versions[lesson]
