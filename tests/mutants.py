"""Small wrong changes, one at a time, of hooklab.mini or of the checks: would a test notice? What survives is listed.

    python -m tests.mutants mini
    python -m tests.mutants named
    python -m tests.mutants lesson04 --sample 100
    python -m tests.mutants exercises

Each mutant lives in a process of its own, made by fork (so not on Windows), where an import finds the changed source.
There run, for mini, random programs whose logs in torch are known beforehand, then pytest; for a lesson's checks, those
of its solutions and of its right and wrong answers that run the changed statement. None is stopped by its check's
clock: on a busy machine it would kill what no answer notices. What a test notices is killed; so is what runs five times
as long as all do without a change. What is changed, and what not, stands in `mutations`.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.abc
import importlib.util
import io
import linecache
import multiprocessing
import os
import random
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, ModuleType

from hooklab.course.exercises.exercise import exercises_of
from tests.mini.changes import CHANGES, HARMLESS
from tests.mutations import ROOT, Mutant, mutants_of

PYTEST = ["-x", "-q", "-o", "addopts=", "-p", "no:cacheprovider", "--no-header", "-W", "ignore"]


@dataclass(frozen=True)
class Target:
    """What is changed, and who should notice: `is_well`, and pytest with these arguments.

    That function is made in the parent and runs in the child, where it finds the changed module; it gets the mutant.
    """

    files: tuple[Path, ...]
    is_well: Callable[[Mutant | None], bool]
    tests: tuple[str, ...] = ()


def target_of(name: str, programs: int) -> Target:
    """Return the target: mini, named (ten changes of it), exercises (what runs the checks), or a lesson's checks."""
    course = ROOT / "hooklab" / "course"
    if name in ("mini", "named"):
        logs = logs_in_torch(programs)
        surprises = ("tests/mini/test_surprises.py",)
        return Target(_files(ROOT / "hooklab" / "mini", "*.py"), lambda mutant: programs_agree(logs), surprises)
    if name == "exercises":
        tests = tuple(str(path) for path in _files(ROOT / "tests" / "course" / "exercises", "test_*.py"))
        slow = ("test_wrong_answers.py", "test_in_a_kernel.py")
        quick = tuple(path for path in tests if not path.endswith(slow))
        files = _files(course / "exercises", "*.py")
        return Target(files, answers_are_judged([1, 2, 3, 4, 10], files), quick)
    files = checks_of(course / name)
    return Target(files, answers_are_judged([int(name.removeprefix("lesson"))], files))


def checks_of(lesson: Path) -> tuple[Path, ...]:
    """Return the files of a lesson's checks, and of what they import from the lesson unless it has tests of its own."""
    checks = _files(lesson, "check*.py")
    imports = re.compile(rf"{lesson.name}\.(\w+) import")
    imported = {name for path in checks for name in imports.findall(path.read_text("utf-8"))}
    tests = _files(ROOT / "tests" / "course" / lesson.name, "test_*.py")
    tested = {name for path in tests for name in imports.findall(path.read_text("utf-8"))}
    return tuple(sorted({*checks, *(lesson / f"{name}.py" for name in imported - tested)}))


def _files(folder: Path, pattern: str) -> tuple[Path, ...]:
    return tuple(path for path in sorted(folder.glob(pattern)) if path.name != "__init__.py")


def named() -> list[Mutant]:
    """Return the mutants of mini that stand in tests/mini/changes.py."""
    found = []
    for what, (file, right, wrong) in CHANGES.items():
        path = ROOT / "hooklab" / "mini" / f"{file}.py"
        source = path.read_text(encoding="utf-8")
        if source.count(right) != 1:
            raise LookupError(f"{path.name} holds {right!r} {source.count(right)} times: {what}")
        changed = functools.partial(source.replace, right, wrong)
        found.append(Mutant(path, source[: source.index(right)].count("\n") + 1, what, changed))
    return found


# --- trying one


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from another source."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def find_spec(self, name: str, path: object, target: object = None) -> object:
        return importlib.util.spec_from_loader(name, self, origin=str(self.mutant.path)) if self.is_mine(name) else None

    def is_mine(self, name: str) -> bool:
        return name == self.mutant.module

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = str(self.mutant.path)
        exec(compile(self.mutant.source, str(self.mutant.path), "exec"), module.__dict__)


def fate(mutant: Mutant | None, target: Target, seconds: float) -> str:
    """Run the tests on a mutant, or on the code as it is, in a child process.

    Returns "killed", "alive", or "slow" if they did not come to an end.
    """
    child = os.fork()
    if child == 0:
        os.setsid()
        _end_child(mutant, target)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return "alive" if os.waitstatus_to_exitcode(status) == 0 else "killed"
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "slow"


def _end_child(mutant: Mutant | None, target: Target) -> None:
    """Exit with 0 if no test notices."""
    code = 1
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            if mutant is not None:
                sys.meta_path.insert(0, _Changed(mutant))
            _forget_modules()
            code = 0 if target.is_well(mutant) and _pytest_passes(target) else 1
    finally:
        os._exit(code)


def _pytest_passes(target: Target) -> bool:
    import pytest

    return not target.tests or pytest.main([*PYTEST, *target.tests]) == 0


def programs_agree(logs: list[tuple[object, object]]) -> bool:
    """Whether random programs of mini's do what they do in torch."""
    if not logs:
        return True
    from tests.mini.driver import run
    from tests.mini.engines import Mini

    return all(run(Mini, program).log == log for program, log in logs)


def logs_in_torch(number: int) -> list[tuple[object, object]]:
    """Return random programs of mini's, each with its log in torch."""
    from tests.mini.driver import run
    from tests.mini.engines import Torch
    from tests.mini.programs import LENGTH, decode

    draw = random.Random(0)
    programs = [decode(draw.randbytes(LENGTH)) for _ in range(number)]
    return [(program, run(Torch, program).log) for program in programs]


def answers_are_judged(lessons: list[int], files: tuple[Path, ...]) -> Callable[[Mutant | None], bool]:
    """Return a function that raises unless the answers that run a mutant's statement are judged as they should be.

    All answers to these lessons' exercises are judged once, in a child, which notes the lines of the files that run.
    """
    from tests.course.exercises.test_wrong_answers import solution_of

    solutions = {one.id: solution_of(one.id) for number in lessons for one in exercises_of(number)}
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as child:
        at_import, *lines = child.submit(lines_of_each, lessons, solutions, {str(path) for path in files}).result()

    def are_judged(mutant: Mutant | None) -> bool:
        if mutant is not None and mutant.is_run_by(at_import):
            mutant = replace(mutant, lines=None)
        concerns_all = mutant is None or (mutant.lines is None and is_shared(mutant.module))
        for judge, ran in zip(judgements(lessons, solutions), lines, strict=True):
            if concerns_all or (mutant is not None and mutant.is_run_by(ran)):
                judge()
        return True

    return are_judged


def lines_of_each(
    lessons: list[int], solutions: dict[str, tuple[str, str, str]], files: set[str]
) -> list[frozenset[tuple[str, int]]]:
    """Judge every answer; return which lines of the files run at import, and then those of each answer, in order."""
    _forget_modules()
    ran: set[tuple[str, int]] = set()

    def enter(frame: FrameType, event: str, argument: object) -> Callable[..., object] | None:
        return note if frame.f_code.co_filename in files else None

    def note(frame: FrameType, event: str, argument: object) -> Callable[..., object]:
        ran.add((frame.f_code.co_filename, frame.f_lineno))
        return note

    found = []
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        threading.settrace(enter)
        sys.settrace(enter)
        for judge in judgements(lessons, solutions):  # to the first one, it imports
            found.append(frozenset(ran))
            ran.clear()
            judge()
    return [*found, frozenset(ran)]


def _forget_modules() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in ("hooklab", "tests")]:
        del sys.modules[name]


def is_shared(module: str) -> bool:
    """Whether a module of a lesson is imported by others than `checks`, which only gathers what there is."""
    folder = (ROOT / Path(*module.split("."))).parent
    others = [path.read_text("utf-8") for path in folder.glob("*.py") if path.name != "checks.py"]
    return any(f"{module} import" in text for text in others)


def judgements(lessons: list[int], solutions: dict[str, tuple[str, str, str]]) -> Iterator[Callable[[], None]]:
    """Yield what asserts that one answer is judged as it should be, for each solution, wrong and right answer."""
    from hooklab.course.exercises import attempt
    from hooklab.course.exercises.exercise import exercises_of
    from tests.course.exercises.answers import expect_correct, expect_refused
    from tests.course.exercises.wrong import wrong_answers

    def judge_solution(id: str) -> None:
        imports, cell, name = solutions[id]
        space: dict[str, object] = {"__name__": "answer"}
        code = f"{imports}\n{cell}"
        linecache.cache["<answer>"] = len(code), None, code.splitlines(keepends=True), "<answer>"  # a check may read it
        exec(compile(code, "<answer>", "exec"), space)
        expect_correct(id, space[name], seconds=None)

    def judge_wrong(id: str, answer: object, says: str) -> None:
        outcome = attempt(id, answer, seconds=None)
        assert outcome.state == "not yet"
        assert says in str(outcome)

    for number in lessons:
        lesson = f"tests.course.lesson{number:02d}"
        yield from (functools.partial(judge_solution, one.id) for one in exercises_of(number))
        for wrong in wrong_answers(importlib.import_module(f"{lesson}.wrong")):
            yield functools.partial(judge_wrong, wrong.id, wrong.answer, wrong.says)
        answers = importlib.import_module(f"{lesson}.test_answers").answers
        for expect, given in ((expect_correct, answers.rights), (expect_refused, answers.wrongs)):
            yield from (functools.partial(expect, *one.values, seconds=None) for one in given)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", help="mini, named, exercises, or a lesson such as lesson04")
    parser.add_argument("--sample", type=int, help="only so many, drawn at random")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no other one after so many")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--only", default="", help="only mutants whose description holds this text")
    parser.add_argument("--programs", type=int, default=3000, help="random programs, for mini")
    parser.add_argument("--no-pytest", action="store_true", help="random programs alone, for mini")
    options = parser.parse_args()
    import hypothesis
    import pytest
    import torch  # these are imported once, in the parent

    torch.set_num_threads(1)
    began = time.monotonic()
    target = target_of(options.target, options.programs)
    if options.no_pytest:
        target = replace(target, tests=())
    made = named() if options.target == "named" else [mutant for path in target.files for mutant in mutants_of(path)]
    mutants = [mutant for mutant in made if options.only in str(mutant)]
    if options.sample is not None and options.sample < len(mutants):
        mutants = random.Random(options.seed).sample(mutants, options.sample)
    if not options.target.startswith("lesson") and fate(None, target, 3600) != "alive":
        print("the tests fail without any change")
        return 1
    seconds = 30 + 5 * (time.monotonic() - began)  # a mutant that takes longer has a loop without an end
    began = time.monotonic()
    fates = Counter[str]()
    for number, mutant in enumerate(mutants, start=1):
        if time.monotonic() - began > 60 * options.minutes:
            mutants = mutants[: number - 1]
            break
        came = fate(mutant, target, seconds)
        fates[came] += 1
        if came != "killed":
            why = HARMLESS.get(f"{mutant.path.name}: {mutant.what}")
            print(f"{came}: {mutant}{f'  ({why})' if why else ''}", flush=True)
        if number % 50 == 0:
            print(f"{number} of {len(mutants)}: {fates['alive']} alive", flush=True)
    killed = len(mutants) - fates["alive"]
    share, slow = killed / max(1, len(mutants)), fates["slow"]
    print(f"{options.target}: {killed} of {len(mutants)} killed ({slow} of them by the clock), {share:.1%}")
    del hypothesis, pytest
    return 0


if __name__ == "__main__":
    sys.exit(main())
