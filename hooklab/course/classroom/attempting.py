"""What happens in the process of one exercise of one student: definitions, check, canaries.

The checks were imported before, from the teacher's copy, when nothing of the student's had run. After the verdict
"correct", named wrong answers of the same exercise are checked in the same process: a check that has been tampered with
lets them pass.
"""

from __future__ import annotations

import ast
import builtins
import functools
import hashlib
import importlib
import linecache
import re
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

from hooklab.course.classroom.lessons import LESSONS, lesson_at
from hooklab.course.classroom.matching import Answer, find_answer
from hooklab.course.classroom.reading import Cell
from hooklab.course.classroom.statements import Statement, read_statements, without_magics
from hooklab.course.classroom.workers import REACHING
from hooklab.course.exercises.checking import attempt
from hooklab.course.exercises.exercise import find
from hooklab.course.exercises.faults import NotYet, TookTooLong
from hooklab.course.exercises.frames import first_words, kind_of, learners_line
from hooklab.course.exercises.outcome import Outcome
from hooklab.course.exercises.patches import Patches
from hooklab.course.exercises.stopping import stopped_after

CANARIES = 5
_UNSAFE = {"builtins", "ctypes", "gc", "importlib", "inspect", "os", "shutil", "signal", "socket", "subprocess", "sys"}
_BUILTINS = dict(vars(builtins))
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{4,}")
_TOO_LONG = re.compile(r"(was stopped after) [\d.e+]+ seconds(, at line .*)?")
_PRIVATE = {"__builtins__", "__closure__", "__code__", "__globals__", "__subclasses__"}
_PRETENDING = {"__eq__", "__torch_function__", "__torch_dispatch__", "__instancecheck__"}
_CALLED = {"__import__", "compile", "eval", "exec", "globals"}
Send = Callable[[dict[str, Any]], None]


def prepare(job: dict[str, Any]) -> tuple[Answer, dict[int, str]]:
    """Find the answer in the job's cells; nothing of it runs here. Returns it, and the cells that are not Python."""
    statements, faults = read_statements([Cell(*cell) for cell in job["cells"]])
    given = given_statements(int(job["id"].split(".")[0]))
    return find_answer(job["id"], job["answer"], statements, given, job["whole"]), faults


@functools.cache
def given_statements(lesson: int) -> list[Statement]:
    """Return the statements of the lesson itself; the server reads them before it makes children."""
    return read_statements(lesson_at(lesson, LESSONS).cells)[0]


def run(job: dict[str, Any], answer: Answer, faults: dict[int, str], send: Send) -> None:
    """Check the answer and send the outcome; after a "correct", send the names of the canaries that passed as well."""
    torch.manual_seed(0)
    space = ModuleType("__main__")
    sys.modules["__main__"] = space
    clean = Patches()
    trouble = _define(answer, space, job["seconds"])
    replaced = [*clean.undo(), *_builtins_put_back()]
    outcome = _outcome(job, answer, faults, trouble, space)
    likely = dict(outcome.details).get("likely", "")
    notes = [f"replaces {name}: it was put back before the check" for name in replaced[:3]]
    send({"state": outcome.state, "text": steady(str(outcome)), "likely": likely, "notes": notes})
    if outcome.state == "correct":
        send({"passed": canaries_that_pass(job["id"], job["salt"])})


def suspicious(statements: Sequence[Statement]) -> list[str]:
    """Return modules and names that no exercise needs and that reach into a process: the teacher should look."""
    found = set()
    for one in statements:
        for node in ast.walk(one.node):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names if alias.name.split(".")[0] in _UNSAFE}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in _UNSAFE:
                found.add(node.module or "")
            elif isinstance(node, ast.FunctionDef):
                found |= {node.name} & _PRETENDING
            elif isinstance(node, ast.Attribute):
                found |= {node.attr} & (_PRIVATE | REACHING)
            elif isinstance(node, ast.Name):
                found |= {node.id} & (_PRIVATE | REACHING | _CALLED)
    return sorted(found)


def canaries_that_pass(id: str, salt: str) -> list[str]:
    """Check some of the exercise's wrong answers, and return the names of those that are not refused as they should.

    Which ones depends on the salt: the same input gives the same ones.
    """
    passed = []
    for one in chosen_canaries(id, salt):
        outcome = attempt(id, one.answer)
        told = str(outcome)
        is_refused = outcome.state == "not yet" and (one.says in told or "was stopped after" in told)
        if not is_refused:
            passed.append(one.answer.__name__)
    return passed


def chosen_canaries(id: str, salt: str) -> list[Any]:
    """Return the wrong answers that exercise `id` is tried with."""
    module = wrong_module(int(id.split(".")[0]))
    wrong = [one for one in vars(module).values() if getattr(one, "says", None) and one.id == id]
    return sorted(wrong, key=lambda one: hashlib.sha256(f"{salt}{one.answer.__name__}".encode()).digest())[:CANARIES]


def wrong_module(lesson: int) -> ModuleType:
    """Return the module of a lesson's named wrong answers, which stands with the tests: no class is given it."""
    return importlib.import_module(f"tests.course.lesson{lesson:02d}.wrong")


def steady(text: str) -> str:
    """Return an outcome's text without what differs from run to run: addresses, and where an endless loop was stopped.

    Example:
        >>> steady("f was stopped after 10 seconds, at line 3: `pass`")
        'f was stopped: it takes too long'
    """
    return _TOO_LONG.sub("was stopped: it takes too long", _ADDRESS.sub("0x…", text))


def _outcome(
    job: dict[str, Any], answer: Answer, faults: dict[int, str], trouble: NotYet | None, space: ModuleType
) -> Outcome:
    id, name = find(job["id"]).id, answer.name
    if not answer.statements:
        if faults:
            where, what = next(iter(faults.items()))
            return Outcome(id, "not yet", f"{name} is not defined; cell {where} is not Python: {what}")
        return Outcome(id, "not attempted", answer.notes[0])
    if trouble and not hasattr(space, name):
        return Outcome(id, "not yet", trouble.missing, trouble.details)
    try:
        return attempt(id, vars(space).get(name), seconds=job["seconds"])
    except KeyboardInterrupt:  # nobody sits at a keyboard here
        return Outcome(id, "not yet", f"{name} raised KeyboardInterrupt")


def _define(answer: Answer, space: ModuleType, seconds: float) -> NotYet | None:
    """Run the statements; what one raises stops none of the others, as in a notebook. Returns the first trouble."""
    first = None
    for one in answer.statements:
        file = f"<cell {one.cell.number}>"
        text = without_magics(one.cell.text)
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        try:
            with stopped_after(seconds):
                exec(compile(ast.Module([one.node], []), file, "exec"), vars(space))
        except TookTooLong:
            first = first or NotYet(f"cell {one.cell.number} was stopped: it takes too long")
        except BaseException as error:
            where = learners_line(error)
            what = f"{kind_of(error)}: {first_words(error)}" + (f", {where}" if where else "")
            first = first or NotYet(f"cell {one.cell.number} raised {what}")
    return first


def _builtins_put_back() -> list[str]:
    """Put back every builtin that was replaced, and return their names."""
    replaced = [name for name, value in _BUILTINS.items() if vars(builtins).get(name) is not value and name != "_"]
    vars(builtins).update(_BUILTINS)
    return [f"builtins.{name}" for name in replaced]
