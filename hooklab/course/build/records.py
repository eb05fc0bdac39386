"""Records: what each exercise's solution and misconceptions do in its worlds, stored for the checks.

A class gets hooklab/, and with it what answers give, but neither a solution nor a misconception's program. The solution
is the lesson's own; the programs are in solutions/misconceptions/lessonNN.py, a dictionary MISCONCEPTIONS of
id -> label -> program. `python -m hooklab build NN` stores the records before it runs the notebooks.
"""

from __future__ import annotations

import ast
import functools
import linecache
import os
import re
import runpy
import sys
import traceback
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from hooklab.course.build.draft import Draft, draft
from hooklab.course.build.sources import Course, calls_in, stubbed
from hooklab.course.exercises.exercise import Exercise, exercises_of
from hooklab.course.exercises.guards import global_hooks_set_aside
from hooklab.course.exercises.judge import LEFT, RAISED, difference, observed
from hooklab.course.exercises.reasons import reason
from hooklab.course.exercises.records import Records, as_json
from hooklab.course.exercises.state import usual_state
from hooklab.course.exercises.trial import Trial
from hooklab.course.files import write_if_changed
from hooklab.course.root import find_root


def misconceptions(course: Course, lesson: int) -> dict[str, dict[str, Any]]:
    """Return the programs of a lesson's misconceptions, by exercise and label: new ones in each call."""
    path = course.root / "solutions" / "misconceptions" / f"lesson{lesson:02d}.py"
    name = f"misconceptions_{lesson:02d}"
    return dict(runpy.run_path(str(path), run_name=name)["MISCONCEPTIONS"]) if path.exists() else {}


def solution(course: Course, id: str, stub: bool = False) -> Any:
    """Return what the lesson's source makes of an exercise's name: its solution, or its stub if `stub` says so.

    Before the solution cell come the lesson's imports and its cells of definitions: an answer may use them, and an
    earlier answer, by the name that the page continues with: `find = yours_or("8.1", first_nonfinite, …)`.

    Raises LookupError if the lesson has no such exercise.
    """
    made = _draft(course, int(id.split(".")[0]))
    exercise = next((one for one in made.exercises if one.id == id), None)
    if exercise is None:
        raise LookupError(f"exercise {id} has no card in {made.lesson.source.name}")
    bodies = [(cell, cell.parsed().body) for cell in made.cells]
    lines = [line for _, body in bodies for line in body]
    code = [ast.unparse(line) for line in lines if isinstance(line, ast.Import | ast.ImportFrom)]
    for cell, body in bodies[: exercise.solution.number - 1]:
        if cell.kind == "code" and all(isinstance(line, ast.ClassDef | ast.FunctionDef) for line in body):
            code.append(cell.text)
        code += [text for line in body if (text := _goes_on_with(line))]
    text = "\n".join([*code, stubbed(exercise.solution.text) if stub else exercise.solution.text])
    file, space = f"<solution of {id}>", {"__name__": "answer"}
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)  # an answer may need its source
    exec(compile(text, file, "exec"), space)
    (call,) = calls_in(exercise.check.parsed(), "check")
    if (name := ast.unparse(call.args[1])) not in space:
        raise LookupError(f"{exercise.check.problem(f'the solution defines no {name}')}")
    return space[name]


@functools.cache
def _draft(course: Course, number: int) -> Draft:
    return draft(course, *course.choose([str(number)]))


def _goes_on_with(line: ast.stmt) -> str:
    """Return `name = answer` for the line `name = yours_or(id, answer, ready)`, and nothing for any other."""
    if isinstance(line, ast.Assign) and isinstance(line.value, ast.Call) and ast.unparse(line.value.func) == "yours_or":
        return f"{ast.unparse(line.targets[0])} = {ast.unparse(line.value.args[1])}"
    return ""


def record(exercise: Exercise, reference: Any, programs: Mapping[str, Any]) -> Records:
    """Run an exercise's scene with its solution and with each program, and return what was seen.

    Raises ValueError for a solution with a fault, and for a misconception that does what the solution does.
    """
    with warnings.catch_warnings(), usual_state([]), global_hooks_set_aside([]):
        warnings.simplefilter("ignore")
        seen = [observed(exercise, Trial(reference), world) for world in exercise.worlds]
        if fault := next((one.told for world in seen for one in world if one.what in (RAISED, LEFT)), None):
            details = "".join(f"; {label}: {text}" for label, text in fault.details if label == "got")
            raise ValueError(f"{exercise.id}: the check finds a fault in the solution: {fault.missing}{details}")
        worlds = [[[one.what, one.data] for one in world] for world in seen]
        found = {
            label: [
                difference(observed(exercise, Trial(program), world), wanted)
                for world, wanted in zip(exercise.worlds, worlds, strict=True)
            ]
            for label, program in programs.items()
        }
    if correct := [label for label, one in found.items() if not any(one)]:
        raise ValueError(f"{exercise.id}: the misconception {correct[0]!r} is correct in every world")
    return Records(worlds, found)


def store(course: Course, lesson: int) -> bool:
    """Write a lesson's records.json, made now, if it has changed; return whether it has."""
    programs, path = misconceptions(course, lesson), course.root / f"hooklab/course/lesson{lesson:02d}/records.json"
    exercises = exercises_of(lesson)
    if without := [id for id in programs if id not in [one.id for one in exercises]]:
        raise LookupError(f"there are misconceptions of exercise {without[0]}, and no scene of it")
    for id, label in ((id, label) for id, labelled in programs.items() for label in labelled):
        reason(id, label, "")  # it raises if there is no sentence
    records = {one.id: record(one, solution(course, one.id), programs.get(one.id, {})) for one in exercises}
    return write_if_changed(as_json(records), path)


def main(names: list[str]) -> int:
    """Store the records of these lessons and return the exit status: 1 when one could not be made, told in a line."""
    course = Course(find_root())
    try:
        for lesson in course.choose(names):
            written = store(course, lesson.number)
            print(f"{lesson.shown(lesson.own)}/records.json: {'written' if written else 'unchanged'}")
    except Exception as error:
        print(_in_a_line(error, course), file=sys.stderr)
        return 1
    return 0


def _in_a_line(error: Exception, course: Course) -> str:
    """Return an error as a line that begins with the last place in a lesson's own files that it came through."""
    frames = [(one.filename, one.lineno) for one in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        frames.append((error.filename or "", error.lineno))
    files = [(file.removeprefix(f"{course.root}{os.sep}"), line) for file, line in frames]
    own = [
        f"{file}:{line}: " for file, line in files if re.match(r"solutions.|hooklab.course.lesson\d|<solution", file)
    ]
    return "".join(own[-1:]) + traceback.format_exception_only(error)[-1].strip()


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main(sys.argv[1:]))
