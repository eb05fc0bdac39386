"""`python -m hooklab grade FOLDER`: from what students handed in to grades.csv, feedback/ and report.html."""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from hooklab.course.classroom.collecting import Submission, find_submissions
from hooklab.course.classroom.grading import Graded, grade_class
from hooklab.course.classroom.lessons import ALL, CORE, every_exercise, misconceptions_of
from hooklab.course.classroom.pages import file_names, page, to_send_back
from hooklab.course.classroom.report import report, to_look_at
from hooklab.course.classroom.report_folder import ReportFolder
from hooklab.course.classroom.sandbox import UNPROTECTED, bubblewrap
from hooklab.course.classroom.tables import ClassList, Refused, grades, on_one_line, read_class
from hooklab.course.progress import Progress

_FILES = ("report.html", "grades.csv", "upload.csv", "feedback.zip")


def main(argv: Sequence[str]) -> int:
    """Grade a folder; return the exit status: 0, 2 for a wrong command or nothing to grade, 130."""
    options = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that everything is cleaned up
    try:
        if sys.platform == "win32":
            raise LookupError("this needs Linux or macOS; on Windows use WSL or the container of the README")
        if not misconceptions_of(0).is_file():
            raise LookupError("this copy of the course is not whole: solutions/misconceptions is missing")
        submissions, students = find_submissions(options.folder), None
        if options.students is not None:
            students = read_class(options.students)
            submissions = students.match(submissions)
        return _grade(submissions, students, options)
    except (LookupError, Refused) as error:
        for line in f"grade: {error.args[0]}".split("\n"):
            print(on_one_line(line), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("grade: interrupted; the same command goes on from here", file=sys.stderr)
        return 130


def pages(graded: Sequence[Graded], unprotected: str) -> dict[str, str]:
    """Return grades.csv, report.html and all of feedback/ by name; the same results give the same files."""
    files = file_names(list(dict.fromkeys(one.student for one in graded)))
    own = {  # the teacher's notes are not on them
        f"feedback/{file}": page("feedback.html", graded=[one for one in graded if one.student == student])
        for student, file in files.items()
    }
    return {**own, "grades.csv": grades(graded), "report.html": report(graded, files, unprotected)}


def _grade(submissions: list[Submission], students: ClassList | None, options: argparse.Namespace) -> int:
    folder = ReportFolder(options.report, options.folder)
    names = file_names([one.student for one in submissions])
    folder.expect([*_FILES, *(f"feedback/{name}" for name in names.values())])
    began, count = time.monotonic(), len(submissions)
    with contextlib.closing(Progress(sys.stderr)) as progress:
        progress.say(f"{count} student{'' if count == 1 else 's'}")

        def tell(done: int) -> None:
            left = (time.monotonic() - began) / done * (count - done)
            progress.show(f"{done} of {count} students, {left / 60:.1f} minutes left")

        chosen = {"lesson": options.lesson, "exercises": options.exercises, "jobs": options.jobs}
        graded = grade_class(submissions, folder.kept, **chosen, tell=tell)
    path, why = bubblewrap()
    unprotected = "" if path else f"{UNPROTECTED} ({why})"
    if unprotected:
        print(f"not prevented on this machine: {unprotected}", file=sys.stderr)
    folder.decide(graded)
    files: dict[str, str | bytes] = dict(pages(graded, unprotected))
    own = {student: str(files[f"feedback/{name}"]) for student, name in names.items()}
    if packed := to_send_back(own, {one.student: one.ways() for one in submissions}):
        files["feedback.zip"] = packed
    if students is not None:
        files["upload.csv"] = students.with_points(graded)
    folder.write(files)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name may hold characters that this terminal cannot show
        sys.stdout.reconfigure(errors="replace")
    for line in itertools.chain(*to_look_at(graded)):
        print(on_one_line(line))
    made = ", ".join(name for name in _FILES if name in files)
    print(f"{options.report}/: {made} and feedback/ written; decisions.csv is yours")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hooklab grade",
        description="Grade what students handed in: notebooks named by student, a folder for each, a learning "
        "platform's zip, or nbgrader's submitted/. Writes grades.csv, feedback/ and report.html.",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the folder, zip or notebook")
    parser.add_argument("--lesson", type=int, metavar="03", help="grade this lesson alone")
    parser.add_argument("--students", type=Path, metavar="CLASS.CSV", help="the class, as your platform exports it")
    counting = "what counts: ids, `all`, or `core`, the default: all but those behind the recap and the hardest"
    parser.add_argument("--exercises", type=_ids, metavar="3.1,3.2", default=CORE, help=counting)
    parser.add_argument("--jobs", type=int, default=2, metavar="2", help="how many notebooks run at a time")
    parser.add_argument("--report", type=Path, default=Path("report"), help="the folder to write to; report by default")
    return parser


def _ids(text: str) -> frozenset[str]:
    ids = frozenset(one.strip() for one in text.split(","))
    if ids not in (CORE, ALL) and (unknown := sorted(ids - every_exercise())):
        raise argparse.ArgumentTypeError(f"there is no exercise {unknown[0]!r}")
    return ids
