"""The builder: makes both notebooks of a lesson from its one source, and says whether committed notebooks match.

`python -m hooklab build [NAME…]` runs the notebooks and writes them; `--check` runs nothing; `new 08_slug` begins a
lesson. All problems are reported at once, one line each, with their places. Read the modules in this order:
`sources` (which lessons there are, and their cells), `draft` (the rules for a source, and the minutes), `products`
(what a source makes, and whether it is up to date), `running` (and what is wrong with what a run left), `records` (what
solutions and misconceptions do, for the checks); `new`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from hooklab.course.build.draft import Draft, draft
from hooklab.course.build.new import begin
from hooklab.course.build.products import compare, serialise, skeleton, teachers_page
from hooklab.course.build.running import Run, execute_all, findings
from hooklab.course.build.sources import FOLDER, Course
from hooklab.course.files import write_if_changed
from hooklab.course.root import find_root


def main(argv: list[str], root: Path | None = None) -> int:
    """Run the command and return its exit status: 0, 1 when something was refused, 2 for a wrong command,
    130 after Ctrl-C.

    Args:
        argv: the arguments after `build`.
        root: the repository; by default the one that the working directory is in.
    """
    options = _parser().parse_args(argv)
    course = Course(root or find_root())
    try:
        if options.names[:1] == ["new"]:
            return begin(course, options.names[1:])
        drafts = [draft(course, lesson) for lesson in course.choose(options.names)]
        if options.check:
            problems = [] if options.names else course.strays()
            problems += [problem for one in drafts for problem in one.problems or compare(one)]
            return _told(problems, f"{_counted(drafts)} up to date")
        return _build(course, drafts)
    except LookupError as error:
        print(f"build: {error.args[0]}", file=sys.stderr)
        return 2
    except SyntaxError as error:  # a source, or data of a lesson, that can't be read
        return _told([str(error)], "")
    except KeyboardInterrupt:
        print("build: interrupted; the notebooks are as they were", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hooklab build",
        description="Build lessons/NN_slug.ipynb and solutions/NN_slug.ipynb from solutions/source/NN_slug.py.",
    )
    names = "02, 02_tensor_hooks or a path; all when left out; `new 08_slug` begins a lesson"
    parser.add_argument("names", nargs="*", metavar="NAME", help=names)
    parser.add_argument("--check", action="store_true", help="run nothing; say whether the notebooks match the sources")
    return parser


def _build(course: Course, drafts: list[Draft]) -> int:
    begun = time.monotonic()
    problems: list[str] = []
    runs: list[list[Run]] = []  # of each lesson that is in order
    for one in drafts:
        print(f"{one.lesson.name}: {one.minutes} minutes")
        found = one.problems or _record(one)
        problems += found
        if not found:
            runs.append([Run(one, variant, skeleton(one, variant)) for variant in FOLDER])
    execute_all([run for pair in runs for run in pair], course.root)
    for pair in runs:
        found = [problem for run in pair for problem in run.problems or findings(run.notebook, run.draft, run.variant)]
        problems += found
        if not found:
            made = pair[0].draft
            for run in pair:
                _write(made, made.lesson.notebook(run.variant), serialise(run.notebook))
            _write(made, made.lesson.page, teachers_page(made))  # it tells what came out in the notebook
    return _told(problems, f"{_counted(drafts)} built in {time.monotonic() - begun:.1f} s")


def _write(draft: Draft, path: Path, text: str) -> None:
    print(f"{draft.lesson.shown(path)}: {'written' if write_if_changed(text, path) else 'unchanged'}")


def _record(draft: Draft) -> list[str]:
    """Store what the lesson's solutions and misconceptions do, in a process that imports the course's own hooklab."""
    lesson = draft.lesson
    if not lesson.misconceptions.is_file():
        return []
    command = [sys.executable, "-m", "hooklab.course.build.records", str(lesson.number)]
    env = os.environ | {"PYTHONPATH": str(lesson.root)}
    run = subprocess.run(command, cwd=lesson.root, env=env, capture_output=True, text=True)
    print(run.stdout, end="")
    why = (run.stderr.strip().splitlines() or ["no reason given"])[-1]
    return [f"{lesson.name}: the records could not be made: {why}"] if run.returncode else []


def _told(problems: list[str], fine: str) -> int:
    """Print the problems, or that all is fine, and return the exit status."""
    sys.stdout.flush()  # into a file, both streams in the order of what happened
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print(f"{len(problems)} problem{'s' if len(problems) > 1 else ''}", file=sys.stderr)
        return 1
    print(fine)
    return 0


def _counted(drafts: list[Draft]) -> str:
    return f"{len(drafts)} lesson{'' if len(drafts) == 1 else 's'}"
