"""Small wrong changes, one at a time, of hooklab.mini or of the checks: would a test notice? What survives is listed.

    python -m tests.mutants mini
    python -m tests.mutants named
    python -m tests.mutants lesson04 --sample 100
    python -m tests.mutants exercises

Each mutant lives in a process of its own, made by fork (so not on Windows), where an import finds the changed source.
There run, for mini, random programs whose logs in torch are known beforehand, then pytest; for a lesson's checks, its
solutions and every right and wrong answer to the exercises that the changed file has to do with. What a test notices is
killed; so is what runs five times as long as without a change.

The numbers of a check's inputs stay as they are: those that stand in a call that makes a tensor, a layer or a seed, in
a call of a function with nothing but constants, in what a loop goes through, or in a table at the top of a module. A
check that draws 5 rows in place of 4 tells as much.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import importlib.abc
import importlib.util
import io
import linecache
import os
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from hooklab.course.exercises.exercise import exercises_of
from tests.mini.changes import CHANGES, HARMLESS

ROOT = Path(__file__).parents[1]
PYTEST = ["-x", "-q", "-o", "addopts=", "-p", "no:cacheprovider", "--no-header", "-W", "ignore"]


@dataclass(frozen=True)
class Target:
    """What is changed, and who should notice: `is_well`, and pytest with these arguments.

    That function is made in the parent and runs in the child, where it finds the changed module, whose name it gets.
    """

    files: tuple[Path, ...]
    is_well: Callable[[str], bool]
    tests: tuple[str, ...] = ()


def target_of(name: str, programs: int) -> Target:
    """Return the target: mini, named (ten changes of it), exercises (what runs the checks), or a lesson's checks."""
    course = ROOT / "hooklab" / "course"
    if name in ("mini", "named"):
        logs = logs_in_torch(programs)
        surprises = ("tests/mini/test_surprises.py",)
        return Target(_files(ROOT / "hooklab" / "mini", "*.py"), lambda module: programs_agree(logs), surprises)
    if name == "exercises":
        tests = tuple(str(path) for path in _files(ROOT / "tests" / "course" / "exercises", "test_*.py"))
        slow = ("test_wrong_answers.py", "test_in_a_kernel.py")  # and the answers of five lessons, the quickest
        quick = tuple(path for path in tests if not path.endswith(slow))
        return Target(_files(course / "exercises", "*.py"), answers_are_judged([1, 2, 3, 4, 10]), quick)
    return Target(checks_of(course / name), answers_are_judged([int(name.removeprefix("lesson"))]))


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


# --- the changes


@dataclass(frozen=True)
class Mutant:
    path: Path
    line: int
    what: str
    source: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.what}"

    @property
    def module(self) -> str:
        return ".".join(self.path.relative_to(ROOT).with_suffix("").parts)


SWAPS: dict[type, type] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Pow: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
UNWRAPPED = ("list", "tuple", "set", "dict", "sorted", "reversed")  # f(x) -> x
LEFT_OUT = ("detach", "clone", "copy", "values")  # x.f() -> x


def changes(node: ast.AST) -> Iterator[tuple[str, Callable[[ast.AST], ast.AST | None]]]:
    """Yield (what, how) for each wrong change of one node; `how` makes the new node out of a twin of it."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPS:
            yield "comparison", lambda twin: _with(twin, ops=[SWAPS[type(op)]()])
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in SWAPS:
            yield type(op).__name__.lower(), lambda twin: _with(twin, op=SWAPS[type(op)]())
        case ast.UnaryOp(op=ast.Not()):
            yield "no not", lambda twin: twin.operand
        case ast.Constant(value=bool(value)):
            yield f"{value}", lambda twin: _with(twin, value=not value)
        case ast.Constant(value=int(value) | float(value)):
            yield f"{value} + 1", lambda twin: _with(twin, value=value + 1)
        case ast.If() | ast.IfExp() | ast.While():
            if not isinstance(node, ast.While):
                yield "always", lambda twin: _with(twin, test=ast.Constant(True))
            yield "never", lambda twin: _with(twin, test=ast.Constant(False))
        case ast.Return(value=value) if value is not None and not _is_false(value):
            yield "return None", lambda twin: _with(twin, value=ast.Constant(None))
        case ast.AugAssign(target=target, value=value):
            yield "left out", lambda twin: ast.Pass()
            if isinstance(target, ast.Attribute) and not isinstance(value, ast.Constant):  # no number changes in place
                yield "no change in place", _plain_assignment
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.Continue() | ast.Break() | ast.Delete():
            yield "left out", lambda twin: ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "left out", lambda twin: ast.Pass()
        case ast.ExceptHandler(type=ast.Name(id="Exception")):
            yield "every BaseException", lambda twin: _with(twin, type=ast.Name("BaseException", ast.Load()))
        case ast.Call(func=ast.Name(id=name), args=[_], keywords=[]) if name in UNWRAPPED:
            yield f"no {name}()", lambda twin: twin.args[0]
        case ast.Call(func=ast.Attribute(attr=name), args=[], keywords=[]) if name in LEFT_OUT:
            yield f"no .{name}()", lambda twin: twin.func.value


def _with(node: ast.AST, **fields: object) -> ast.AST:
    for name, value in fields.items():
        setattr(node, name, value)
    return node


def _plain_assignment(twin: ast.AST) -> ast.AST:
    assert isinstance(twin, ast.AugAssign)
    read = copy.deepcopy(twin.target)
    for part in ast.walk(read):
        if hasattr(part, "ctx"):
            part.ctx = ast.Load()
    return ast.Assign([twin.target], ast.BinOp(read, twin.op, twin.value))


def _is_false(node: ast.AST) -> bool:
    """Whether a returned value is None, or False, for which None does as well."""
    return isinstance(node, ast.Constant) and (node.value is None or node.value is False)


def mutants_of(path: Path) -> list[Mutant]:
    """Return every mutant of a file; the texts of messages stay as they are."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    left_alone = {id(part) for node in ast.walk(tree) for whole in _left_alone(node) for part in ast.walk(whole)}
    found = []
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in left_alone:
            continue
        for what, how in changes(node):
            changed = copy.deepcopy(tree)
            twin = list(ast.walk(changed))[number]
            line = ast.unparse(node).splitlines()[0]
            changed = ast.fix_missing_locations(_Replace(twin, how(twin)).visit(changed))
            found.append(Mutant(path, getattr(node, "lineno", 0), f"{what}: `{line}`", ast.unparse(changed)))
    return found


def named() -> list[Mutant]:
    """Return the mutants of mini that stand in tests/mini/changes.py."""
    found = []
    for what, (file, right, wrong) in CHANGES.items():
        path = ROOT / "hooklab" / "mini" / f"{file}.py"
        source = path.read_text(encoding="utf-8")
        if source.count(right) != 1:
            raise LookupError(f"{path.name} holds {right!r} {source.count(right)} times: {what}")
        found.append(Mutant(path, source[: source.index(right)].count("\n") + 1, what, source.replace(right, wrong)))
    return found


def _left_alone(node: ast.AST) -> list[ast.AST]:
    """The parts of a node that only a reader sees (annotations, and what guards against faults of the code itself),
    and the numbers of inputs.
    """
    parts = [getattr(node, name, None) for name in ("annotation", "returns")] + [*inputs(node)]
    if isinstance(node, ast.keyword) and node.arg in ("strict", "stacklevel"):
        parts.append(node.value)
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        parts.append(node)
    return [part for part in parts if isinstance(part, ast.AST)]


MAKERS = (
    *("tensor", "as_tensor", "zeros", "ones", "full", "empty", "eye", "arange", "linspace"),
    *("rand", "randn", "randint", "randperm", "manual_seed", "Generator", "range", "zip", "linear"),
)


def inputs(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the numbers of a node that are inputs of a check, as the docstring of this file says."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if (
            name in MAKERS or _is_layer(node.func) or (isinstance(node.func, ast.Name) and all(map(_fixed, node.args)))
        ):
            made_of = [*node.args, *(keyword.value for keyword in node.keywords)]
        case ast.For(iter=source) | ast.comprehension(iter=source):
            made_of = [source]
        case ast.Module(body=lines):
            made_of = [line.value for line in lines if isinstance(line, ast.Assign | ast.AnnAssign) and line.value]
            made_of = [value for value in made_of if not isinstance(value, ast.Constant)]
            made_of += [
                part for value in made_of if isinstance(value, ast.List) for row in value.elts for part in _args(row)
            ]
        case _:
            made_of = []
    for value in made_of:
        yield from _numbers(value)


def _args(row: ast.AST) -> list[ast.expr]:
    return row.args if isinstance(row, ast.Call) else []


def _is_layer(function: ast.AST) -> bool:
    return isinstance(function, ast.Attribute) and ast.unparse(function.value) == "nn"


def _fixed(value: ast.AST) -> bool:
    """Whether an argument is made of numbers, and names of constants."""
    match value:
        case ast.Name(id=name):
            return name.isupper()
        case ast.Call(func=ast.Name(), args=parts):
            return all(map(_fixed, parts))
        case _:
            return all(_fixed(part) for part in ast.iter_child_nodes(value) if isinstance(part, ast.expr))


def _numbers(value: ast.AST) -> Iterator[ast.AST]:
    """Yield the numbers that stand in a literal, and not in something that is computed."""
    match value:
        case ast.Constant(value=int() | float()) if not isinstance(value.value, bool):
            yield value
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Dict(values=parts):
            for part in parts:
                yield from _numbers(part)
        case ast.UnaryOp(operand=inner) | ast.Starred(value=inner) | ast.Subscript(value=ast.Name(), slice=inner):
            yield from _numbers(inner)


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST | None) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST | None:
        return self.new if node is self.old else super().generic_visit(node)


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
            for name in [name for name in sys.modules if name.split(".")[0] in ("hooklab", "tests")]:
                del sys.modules[name]
            code = 0 if target.is_well(mutant.module if mutant else "") and _pytest_passes(target) else 1
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


def answers_are_judged(lessons: list[int]) -> Callable[[str], bool]:
    """Return a function that raises unless every answer to these lessons' exercises is judged as it should be."""
    from tests.course.exercises.test_wrong_answers import solution_of

    solutions = {one.id: solution_of(one.id) for number in lessons for one in exercises_of(number)}

    def are_judged(changed: str) -> bool:
        from hooklab.course.exercises.exercise import exercises_of

        exercises = [one for number in lessons for one in exercises_of(number)]
        own = [one for one in exercises if one.verify.__module__ == changed]
        for one in own if own and not is_shared(changed) else exercises:
            expect_all_judged(one.id, solutions[one.id])
        return True

    return are_judged


def is_shared(module: str) -> bool:
    """Whether a module of a lesson is imported by others than `checks`, which only gathers what there is."""
    folder = (ROOT / Path(*module.split("."))).parent
    others = [path.read_text("utf-8") for path in folder.glob("*.py") if path.name != "checks.py"]
    return any(f"{module} import" in text for text in others)


def expect_all_judged(id: str, solution: tuple[str, str, str]) -> None:
    """Assert that an exercise's right answers are correct, its solution among them, and that its wrong ones are not."""
    from hooklab.course.exercises import attempt
    from tests.course.exercises.answers import expect_correct, expect_refused
    from tests.course.exercises.wrong import wrong_answers

    imports, cell, name = solution
    space: dict[str, object] = {"__name__": "answer"}
    code = f"{imports}\n{cell}"
    linecache.cache["<answer>"] = len(code), None, code.splitlines(keepends=True), "<answer>"  # a check may read it
    exec(compile(code, "<answer>", "exec"), space)
    expect_correct(id, space[name])
    lesson = f"tests.course.lesson{int(id.split('.')[0]):02d}"
    for wrong in wrong_answers(importlib.import_module(f"{lesson}.wrong")):
        if wrong.id == id:
            outcome = attempt(id, wrong.answer)
            assert outcome.state == "not yet"
            assert wrong.says in str(outcome)
    answers = importlib.import_module(f"{lesson}.test_answers").answers
    for expect, given in ((expect_correct, answers.rights), (expect_refused, answers.wrongs)):
        for one in given:
            if one.values[0] == id:
                expect(*one.values)


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
    target = target_of(options.target, options.programs)
    if options.no_pytest:
        target = replace(target, tests=())
    made = named() if options.target == "named" else [mutant for path in target.files for mutant in mutants_of(path)]
    mutants = [mutant for mutant in made if options.only in str(mutant)]
    if options.sample is not None and options.sample < len(mutants):
        mutants = random.Random(options.seed).sample(mutants, options.sample)
    began = time.monotonic()
    if fate(None, target, 3600) != "alive":
        print("the tests fail without any change")
        return 1
    seconds = 30 + 5 * (time.monotonic() - began)  # a mutant that takes longer has a loop without an end
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
