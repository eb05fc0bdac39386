"""Grading a class: every submission once, some at a time, and nothing twice when the command is given again."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import itertools
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hooklab.course.classroom.collecting import Submission, version_of
from hooklab.course.classroom.lessons import ALL, LESSONS, ROOT, Lesson, lesson_at, misconceptions_of
from hooklab.course.classroom.reading import Handed, Unreadable, read_notebook
from hooklab.course.classroom.sandbox import Limits
from hooklab.course.classroom.verdicts import STOPPED, Interrupted, Verdict, grade_notebook

COPIED = "the same answers, letter for letter"
COUNTS = "counts as the newest"
_TELLING = 8  # lines: two students do not write so many alike by chance
NONE = -1  # instead of a lesson's number: 0 is a lesson


@dataclass(frozen=True)
class Graded:
    """One student's work on one lesson: the verdicts by exercise, and the teacher's notes on the notebook.

    Without verdicts, nothing readable was handed in for this lesson. `lesson` may be NONE.
    """

    student: str
    lesson: int
    file: str = ""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def state(self, id: str) -> str:
        """Return the state of an exercise."""
        return self.verdicts[id].state if id in self.verdicts else "not handed in"


@dataclass(frozen=True)
class Notebook:
    """A notebook that was handed in: its path, its time, the hash of its content, and what is in it."""

    path: str
    when: tuple[int, ...]
    digest: str
    handed: Handed


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
    """Grade every submission; return the results by student and lesson.

    `kept` is a folder for the verdicts on each notebook, so that an interrupted run goes on where it stopped. `lesson`
    and `exercises` choose what is graded, by default all. `jobs` notebooks run at a time. `tell` is called after each
    student with how many are done.
    """
    interrupted = threading.Event()
    kept.mkdir(parents=True, exist_ok=True)
    keeper = Kept(kept, limits, interrupted)

    def one(submission: Submission) -> list[Graded]:
        try:
            return grade_one(submission, keeper, lesson, exercises)
        except Interrupted:
            return []
        except Exception as error:  # whatever one student has handed in, the others are graded
            note = f"the grader itself failed here, with {type(error).__name__}: not graded, look at it"
            return [Graded(submission.student, NONE, notes=(note,))]

    pool = ThreadPoolExecutor(max(1, jobs))
    try:
        futures = [pool.submit(one, submission) for submission in submissions]
        for done, _ in enumerate(as_completed(futures), start=1):
            tell(done)
        found = [graded for future in futures for graded in future.result()]
    finally:
        interrupted.set()
        pool.shutdown(cancel_futures=True)
    return _everybody(_with_copies_noted(found), lesson)


def grade_one(
    submission: Submission, kept: Kept, only: int | None = None, exercises: frozenset[str] = ALL
) -> list[Graded]:
    """Grade all lessons of one student; the last result has the notes on what was handed in and not graded."""
    notebooks, notes = _read(submission)
    lessons = sorted({one.handed.lesson for one in notebooks if one.handed.lesson is not None})
    if only is not None:
        notes += [f"lesson {number} was handed in as well: not graded" for number in lessons if number != only]
        lessons = [number for number in lessons if number == only]
    found = []
    for number in lessons:
        try:
            lesson = lesson_at(number, LESSONS, exercises)
        except LookupError as error:
            notes.append(str(error.args[0]))
            continue
        of_it = [one for one in notebooks if one.handed.lesson == number]
        notebook = max(of_it, key=functools.partial(_newest, lesson))
        told = [f"{one.path}: not graded, {notebook.path} {COUNTS}" for one in of_it if one is not notebook]
        verdicts, of_the_run = kept.grade(notebook, lesson)
        found.append(Graded(submission.student, number, notebook.path, verdicts, (*told, *of_the_run)))
    if not found and not notes:
        notes = ["no notebook was handed in"]
    return [*found, Graded(submission.student, NONE, notes=tuple(notes))]


class Kept:
    """Grades notebooks, each once: the verdicts with this course and these limits are kept as files of a folder."""

    def __init__(self, folder: Path, limits: Limits, interrupted: threading.Event) -> None:
        self.folder, self.limits, self._interrupted = folder, limits, interrupted

    def grade(self, notebook: Notebook, lesson: Lesson) -> tuple[dict[str, Verdict], list[str]]:
        """Return the verdicts on a notebook, and the notes on its run: those that were kept, or new ones."""
        counts = [one.id for one in lesson.exercises]
        everything = f"{notebook.digest} {_version_of_the_course(lesson.number)} {self.limits} {counts}"
        path = self.folder / f"{hashlib.sha256(everything.encode()).hexdigest()[:32]}.json"
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            kept = json.loads(path.read_text(encoding="utf-8"))
            verdicts = {id: Verdict(**one | {"notes": tuple(one["notes"])}) for id, one in kept["verdicts"].items()}
            return verdicts, list(kept["notes"])
        verdicts, notes = grade_notebook(lesson, notebook.handed.cells, notebook.digest, self.limits, self._interrupted)
        if not any(one.state == STOPPED for one in verdicts.values()):  # else another run may have more luck
            unfinished = path.with_suffix(f".{threading.get_ident()}")
            found = {"verdicts": {id: asdict(one) for id, one in verdicts.items()}, "notes": notes}
            unfinished.write_text(json.dumps(found), encoding="utf-8")
            unfinished.replace(path)
        return verdicts, notes


def _read(submission: Submission) -> tuple[list[Notebook], list[str]]:
    """Return the notebooks of a submission that belong to a lesson, and a sentence about each other one.

    A page of the course's own without exercises is passed over where it comes with lessons.
    """
    notebooks, without, notes = [], [], list(dict.fromkeys(submission.faults))
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
            without.append(file.path.name)
        else:
            notebooks.append(Notebook(str(file.path), file.when, hashlib.sha256(file.content).hexdigest(), handed))
    strange = [name for name in without if not (notebooks and (LESSONS / name).is_file())]
    return notebooks, [*notes, *(f"{name} has no exercise of this course" for name in strange)]


def _newest(lesson: Lesson, notebook: Notebook) -> tuple[Any, ...]:
    """The order of several notebooks of a lesson: the platform's, then time; one without any work comes first."""
    given = {cell.text for cell in lesson.cells}
    has_work = any(cell.text not in given for cell in notebook.handed.cells)
    return has_work, version_of(notebook.path), notebook.when, notebook.path


def _with_copies_noted(found: list[Graded]) -> list[Graded]:
    """Note whose right answers are all those of another student, or the course's own, letter for letter."""
    owners: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for number in {one.lesson for one in found if one.verdicts}:
        owners[_answers(_solved(lesson_at(number, LESSONS)))].append("the course's own solutions")
    for one in found:
        owners[_answers(one.verdicts)].append(one.student)
    noted = []
    for one in found:
        texts = _answers(one.verdicts)
        right = ", ".join(id for id, verdict in one.verdicts.items() if verdict.state == "correct")
        note = f"{COPIED}, to {right}: {', '.join(sorted(owners[texts]))}"
        is_copied = len(owners[texts]) > 1 and "".join(texts).count("\n") >= _TELLING
        noted.append(replace(one, notes=(*one.notes, note)) if is_copied else one)
    return noted


def _answers(verdicts: dict[str, Verdict]) -> tuple[str, ...]:
    right = [verdict.lines.split("\n") for verdict in verdicts.values() if verdict.state == "correct"]
    return tuple("\n".join(line.rstrip() for line in lines if line.strip()[:4] != "### ").strip() for lines in right)


def _solved(lesson: Lesson) -> dict[str, Verdict]:
    solutions = read_notebook((ROOT / "solutions" / f"{lesson.name}.ipynb").read_bytes()).cells
    texts = {cell.grade_id: cell.text for cell in solutions}
    own = {one.id: texts[f"solution-{one.id.replace('.', '-')}"] for one in lesson.exercises}
    return {id: Verdict("correct", "", lines=text) for id, text in own.items()}


def _everybody(found: list[Graded], only: int | None) -> list[Graded]:
    """Give each student a row for each lesson that any student has handed in, with the notes on what was not graded."""
    lessons = sorted({one.lesson for one in found if one.lesson != NONE} | ({only} if only is not None else set()))
    there = {(one.student, one.lesson): one for one in found}
    rows = []
    for student, lesson in itertools.product(sorted({one.student for one in found}), lessons or [NONE]):
        row = there.get((student, lesson)) or Graded(student, lesson)
        general = there[student, NONE].notes
        rows.append(row if lesson == NONE else replace(row, notes=general + row.notes))
    return rows


@functools.cache
def _version_of_the_course(lesson: int) -> str:
    """A hash of all that a verdict depends on, besides the notebook."""
    files = [path for kind in ("py", "json", "toml") for path in ROOT.glob(f"hooklab/**/*.{kind}")]
    files += [misconceptions_of(lesson), *LESSONS.glob(f"{lesson:02d}_*")]
    digest = hashlib.sha256(importlib.metadata.version("torch").encode())
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()
