"""Records: what each exercise's solution and misconceptions do in its worlds, stored for the checks.

A class gets hooklab/, and with it what answers give, but neither a solution nor a misconception's program. The solution
is the lesson's own; the programs are in solutions/misconceptions/lessonNN.py, a dictionary MISCONCEPTIONS of
id -> label -> program. `python -m hooklab build NN` stores the records before it runs the notebooks.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hooklab.course.build.draft import Draft, draft
from hooklab.course.build.sources import Course
from hooklab.course.exercises.exercise import Exercise, exercises_of
from hooklab.course.exercises.guards import global_hooks_set_aside
from hooklab.course.exercises.judge import LEFT, RAISED, difference, observed
from hooklab.course.exercises.records import Records, as_json, records_of_lesson
from hooklab.course.exercises.state import usual_state
from hooklab.course.exercises.trial import Trial


def misconceptions(course: Course, lesson: int) -> dict[str, dict[str, Any]]:
    """Return the programs of a lesson's misconceptions, by exercise and label: new ones in each call."""
    path = course.root / "solutions" / "misconceptions" / f"lesson{lesson:02d}.py"
    return dict(_module(path, f"misconceptions_{lesson:02d}").MISCONCEPTIONS) if path.exists() else {}


def _module(path: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def solution(course: Course, id: str, stub: bool = False, folder: Path | None = None) -> Any:
    """Return what the lesson's source makes of an exercise's name: its solution, or its stub.

    Args:
        course: the course.
        id: the exercise.
        stub: the stub instead of the solution.
        folder: where the code is written to, so that Python finds its lines; by default it is only compiled.
    """
    from hooklab.course.build.sources import stubbed

    before, cell, name = solution_cells(_draft(course, int(id.split(".")[0])), id)
    code = f"{before}\n{stubbed(cell) if stub else cell}"
    path = "<solution>" if folder is None else str(folder / f"answer_{id}.py")
    if folder is not None:
        Path(path).write_text(code, encoding="utf-8")
    space: dict[str, Any] = {"__name__": "answer"}
    exec(compile(code, path, "exec"), space)
    return space[name]


@functools.cache
def _draft(course: Course, number: int) -> Draft:
    return draft(course, next(one for one in course.lessons() if one.number == number))


def solution_cells(made: Draft, id: str) -> tuple[str, str, str]:
    """Return what comes before an exercise's solution cell, that cell, and the name that its check is called with.

    Before it are the lesson's imports and its cells of definitions: an answer may use them, and an earlier answer, by
    the name that the page continues with: `find = yours_or("8.1", first_nonfinite, ready.first_nonfinite)`.
    """
    exercise = next(one for one in made.exercises if one.id == id)
    cells = [(cell, cell.parsed().body) for cell in made.cells]
    lines = [line for _, body in cells for line in body]
    before = [ast.unparse(line) for line in lines if isinstance(line, ast.Import | ast.ImportFrom)]
    for cell, body in cells[: exercise.solution.number - 1]:
        if cell.kind == "code" and all(isinstance(line, ast.ClassDef | ast.FunctionDef) for line in body):
            before.append(cell.text)
        before += [text for line in body if (text := _goes_on_with(line))]
    (call,) = [node for node in ast.walk(exercise.check.parsed()) if isinstance(node, ast.Call)]
    return "\n".join(before), exercise.solution.text, ast.unparse(call.args[1])


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
            raise ValueError(f"{exercise.id}: the check finds a fault in the solution: {fault.missing}")
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


def record_lesson(course: Course, lesson: int) -> dict[str, Records]:
    """Return the records of all of a lesson's exercises, made now."""
    programs = misconceptions(course, lesson)
    with tempfile.TemporaryDirectory() as folder:  # an answer may need its source
        return {
            one.id: record(one, solution(course, one.id, folder=Path(folder)), programs.get(one.id, {}))
            for one in exercises_of(lesson)
        }


def store(course: Course, lesson: int) -> bool:
    """Write a lesson's records.json if it has changed; return whether it has."""
    path = course.root / "hooklab" / "course" / f"lesson{lesson:02d}" / "records.json"
    text = as_json(record_lesson(course, lesson))
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    path.write_text(text, encoding="utf-8")
    records_of_lesson.cache_clear()
    return True


if __name__ == "__main__":
    import sys

    import torch

    torch.set_num_threads(1)
    from hooklab.course.root import find_root

    for argument in sys.argv[1:]:
        written = store(Course(find_root()), int(argument))
        print(f"hooklab/course/lesson{int(argument):02d}/records.json: {'written' if written else 'unchanged'}")
