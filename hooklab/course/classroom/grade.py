"""`python -m hooklab grade FOLDER`: from what students handed in to grades.csv, feedback/ and report.html."""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from hooklab.course.classroom.collecting import find_submissions
from hooklab.course.classroom.feedback import feedback, file_names
from hooklab.course.classroom.grading import Graded, grade_class
from hooklab.course.classroom.lessons import LESSONS, ROOT, lesson_at
from hooklab.course.classroom.reasons import Reasons
from hooklab.course.classroom.report import report
from hooklab.course.classroom.sandbox import UNPROTECTED, Limits, bubblewrap
from hooklab.course.classroom.tables import grades, on_one_line
from hooklab.course.progress import Progress

KEPT = ".graded"  # in the report's folder: what was graded already


def main(argv: Sequence[str]) -> int:
    """Grade a folder and return the exit status: 0, 2 for a wrong command, 130 after Ctrl-C."""
    options = _parser().parse_args(argv)
    if not hasattr(os, "fork"):
        print("grade: this needs Linux or macOS; on Windows use WSL or the container of the README", file=sys.stderr)
        return 2
    if not (ROOT / "tests" / "course").is_dir():
        print("grade: this copy of the course has no tests/, where the wrong answers stand", file=sys.stderr)
        return 2
    try:
        submissions = find_submissions(options.folder)
        if options.lesson is not None:
            lesson_at(options.lesson, LESSONS)
        return _grade(submissions, options)
    except LookupError as error:
        print(f"grade: {error.args[0]}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ngrade: interrupted; the same command goes on from here", file=sys.stderr)
        return 130


def write_all(folder: Path, graded: Sequence[Graded], unprotected: str) -> None:
    """Write grades.csv, feedback/ and report.html; the same results give the same files."""
    numbers = sorted({one.lesson for one in graded if one.verdicts})
    lessons = {number: lesson_at(number, LESSONS) for number in numbers}
    reasons = Reasons(graded, lessons)
    students = list(dict.fromkeys(one.student for one in graded))
    files = file_names(students)
    pages = folder / "feedback"
    pages.mkdir(parents=True, exist_ok=True)
    for stale in set(pages.glob("*.html")) - {pages / name for name in files.values()}:
        stale.unlink()
    for student in students:
        text = feedback(student, [one for one in graded if one.student == student], lessons)
        (pages / files[student]).write_text(text, encoding="utf-8")
    # A spreadsheet takes the file for UTF-8 only with this mark at its beginning.
    (folder / "grades.csv").write_text(grades(graded, lessons, reasons), encoding="utf-8-sig", newline="")
    (folder / "report.html").write_text(report(graded, lessons, reasons, files, unprotected), encoding="utf-8")


def _grade(submissions: list, options: argparse.Namespace) -> int:  # type: ignore[type-arg]
    progress, began = Progress(sys.stderr), time.monotonic()
    count = len(submissions)
    progress.say(f"{count} student{'' if count == 1 else 's'}; loading torch takes some seconds")

    def tell(done: int) -> None:
        left = (time.monotonic() - began) / done * (count - done)
        progress.show(f"{_bar(done, count)} {done} of {count} students, {_time(left)} left")

    graded = grade_class(
        submissions,
        options.report / KEPT,
        lesson=options.lesson,
        jobs=options.jobs,
        limits=Limits(seconds=options.seconds),
        tell=tell,
    )
    progress.close()
    path, why = bubblewrap()
    unprotected = "" if path else f"{UNPROTECTED} ({why})"
    if unprotected:
        print(f"not prevented on this machine: {unprotected}", file=sys.stderr)
    write_all(options.report, graded, unprotected)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name may hold characters that this terminal cannot show
        sys.stdout.reconfigure(errors="replace")
    for one in graded:
        told = [f"{one.student}: {note}" for note in one.notes]
        told += [f"{one.student}, {id}: {'; '.join(it.notes)}" for id, it in one.verdicts.items() if it.notes]
        for line in told:
            print(on_one_line(line))
    print(f"{options.report}/: report.html, grades.csv and feedback/ written")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hooklab grade",
        description="Grade what students handed in: notebooks named by student, a folder for each, a learning "
        "platform's zip, or nbgrader's submitted/. Writes grades.csv, feedback/ and report.html.",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the folder or the zip")
    parser.add_argument("--lesson", type=int, metavar="03", help="grade this lesson alone")
    parser.add_argument("--jobs", type=int, default=2, metavar="2", help="how many exercises run at a time")
    parser.add_argument("--report", type=Path, default=Path("report"), help="the folder to write to; report by default")
    parser.add_argument("--seconds", type=float, default=10.0, help="for one check; 10 by default")
    return parser


def _bar(done: int, count: int, width: int = 20) -> str:
    filled = width * done // count
    return "█" * filled + "░" * (width - filled)


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
