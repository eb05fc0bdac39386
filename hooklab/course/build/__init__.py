"""The builder: makes both notebooks of a lesson from its one source, and says whether committed notebooks match.

`python -m hooklab build [NAME…]` runs the notebooks and writes them; `--check` runs nothing; `new 08_slug` begins a
lesson. All problems are reported at once, one line each, with their places. Read the modules in this order:
`sources` (which lessons there are, and their cells), `draft` (every rule for a source, and the minutes), `products`
(what a source makes, and whether it is up to date), `running` (and what is wrong with what a run left); `new`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hooklab.course.build.draft import Draft, draft
from hooklab.course.build.sources import FOLDER, Course, Problem, Variant
from hooklab.course.kernels import skip_url_grammars
from hooklab.course.root import find_root

if TYPE_CHECKING:
    from hooklab.course.build.running import Run

NEW = "new"


def main(argv: list[str], root: Path | None = None) -> int:
    """Run the command and return its exit status: 0, 1 when something was refused, 2 for a wrong command,
    130 after Ctrl-C.

    Args:
        argv: the arguments after `build`.
        root: the repository; by default the one that the working directory is in.
    """
    options = _parser().parse_args(argv)
    skip_url_grammars()
    course = Course(root or find_root())
    try:
        if options.names[:1] == [NEW]:
            from hooklab.course.build.new import begin

            return begin(course, options.names[1:])
        drafts = [draft(course, lesson) for lesson in course.choose(options.names)]
        return _check(course, drafts, whole=not options.names) if options.check else _build(course, drafts)
    except LookupError as error:
        print(f"build: {error.args[0]}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(f"build: {error.name} is not installed: pip install -r requirements-dev.txt", file=sys.stderr)
        return 2
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


def _check(course: Course, drafts: list[Draft], whole: bool) -> int:
    from hooklab.course.build.products import compare, teaching_problems

    stale, problems = [], course.strays() if whole else []
    for one in drafts:
        # A source that breaks the rules makes no notebook to compare with.
        found = one.problems or [*compare(one), *teaching_problems(one)]
        problems += found
        if found and not one.problems:
            stale.append(one.lesson.name)
    _show(problems)
    for name in stale:
        print(f"{name}: run python -m hooklab build {name.split('_')[0]}", file=sys.stderr)
    if not problems:
        print(f"{_counted(drafts)} up to date")
    return 1 if problems else 0


def _build(course: Course, drafts: list[Draft]) -> int:
    from hooklab.course.build.products import serialise, skeleton, write, write_page
    from hooklab.course.build.running import Run, execute_all

    begun = time.monotonic()
    for one in drafts:
        if one.cells:
            print(f"{one.lesson.name}: {one.minutes} minutes")
    problems = [problem for one in drafts for problem in one.problems]
    sound = [one for one in drafts if not one.problems]
    runs: dict[str, dict[Variant, Run]] = {one.lesson.name: {} for one in sound}
    for one in sound:
        for variant, folder in FOLDER.items():
            label, where = f"{folder}/{one.lesson.name}", one.lesson.notebook(variant).parent
            runs[one.lesson.name][variant] = Run(label, skeleton(one, variant), where)
    unrecorded = [problem for one in sound for problem in _recorded(one)]
    if unrecorded:
        _show(problems + unrecorded)
        return 1
    execute_all([run for pair in runs.values() for run in pair.values()], course.root)
    for one in sound:
        pair = runs[one.lesson.name]
        found = [problem for variant, run in pair.items() for problem in _refusals(one, variant, run)]
        problems += found
        if found:
            continue
        for variant, run in pair.items():
            path = one.lesson.notebook(variant)
            changed = write(serialise(run.notebook), path)
            print(f"{one.lesson.shown(path)}: {'written' if changed else 'unchanged'}")
        if write_page(one):
            print(f"{one.lesson.shown(one.lesson.page)}: written")
    _show(problems)
    if not problems:
        print(f"{_counted(drafts)} built in {time.monotonic() - begun:.1f} s")
    return 1 if problems else 0


def _recorded(draft: Draft) -> list[Problem]:
    """Store what the lesson's solutions and misconceptions do, in a process that imports the course's own hooklab."""
    lesson = draft.lesson
    if not lesson.misconceptions.is_file():
        return []
    command = [sys.executable, "-m", "hooklab.course.build.records", str(lesson.number)]
    env = os.environ | {"PYTHONPATH": str(lesson.root)}
    run = subprocess.run(command, cwd=lesson.root, env=env, capture_output=True, text=True)
    if run.returncode == 0:
        print(run.stdout, end="")
        return []
    why = (run.stderr.strip().splitlines() or ["no reason given"])[-1]
    return [Problem(lesson.shown(lesson.misconceptions), f"the records could not be made: {why}")]


def _refusals(draft: Draft, variant: Variant, run: Run) -> list[Problem]:
    """Return why a notebook that was just run is not written: what went wrong in the run, or what it left."""
    from hooklab.course.build.running import findings

    found = list(run.faults)
    if all(index is None for index, _ in found):  # every cell was run
        found += findings(run.notebook, draft, variant)
    problems = []
    for index, what in found:
        told = f"in the {variant}: {what}"
        problems.append(Problem(draft.file, told) if index is None else draft.cells[index].problem(draft.file, told))
    return problems


def _show(problems: list[Problem]) -> None:
    sys.stdout.flush()  # into a file, both streams in the order of what happened
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print(f"{len(problems)} problem{'s' if len(problems) > 1 else ''}", file=sys.stderr)


def _counted(drafts: list[Draft]) -> str:
    return f"{len(drafts)} lesson{'' if len(drafts) == 1 else 's'}"
