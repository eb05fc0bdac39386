"""Every exercise rejects what people really get wrong, each with a message of its own."""

import ast
import functools
import importlib
import importlib.util
from pathlib import Path

import pytest

from hooklab.course.build.draft import draft
from hooklab.course.build.sources import Course, stubbed
from hooklab.course.exercises import attempt
from hooklab.course.exercises.exercise import exercises_of, lesson_numbers
from tests.course.exercises.wrong import Wrong, wrong_answers

# some wrong answers read .grad where PyTorch warns about it
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")

COURSE = Course(Path(__file__).parents[3])


def wrong_of(lesson):
    name = f"tests.course.lesson{lesson:02d}.wrong"
    # Without any, the test below says which exercise lacks them.
    return wrong_answers(importlib.import_module(name)) if importlib.util.find_spec(name) else []


WRONG = [one for number in lesson_numbers() for one in wrong_of(number)]
EXERCISES = [one for number in lesson_numbers() for one in exercises_of(number) if one.old is not None]


def name_of(value):
    return f"{value.id}-{value.answer.__name__}" if isinstance(value, Wrong) else value.id


@functools.cache
def outcome_of(wrong):
    return attempt(wrong.id, wrong.answer)


@pytest.mark.parametrize("wrong", WRONG, ids=name_of)
def test_a_wrong_answer_is_told_what_is_wrong(wrong):
    outcome = outcome_of(wrong)
    assert outcome.state == "not yet"
    assert wrong.says in str(outcome)


@pytest.mark.parametrize("one", EXERCISES, ids=name_of)
def test_every_exercise_has_three_wrong_answers_with_different_messages(one):
    messages = [str(outcome_of(wrong)) for wrong in WRONG if wrong.id == one.id]
    assert len(messages) >= 3
    assert len(set(messages)) == len(messages)


@pytest.mark.parametrize("one", EXERCISES, ids=name_of)
def test_the_stub_is_not_attempted_and_the_solution_is_correct(one, tmp_path):
    before, cell, name = solution_of(one.id)
    assert attempt(one.id, run(f"{before}\n{stubbed(cell)}", name, tmp_path / "stub.py")).state == "not attempted"
    solved = attempt(one.id, run(f"{before}\n{cell}", name, tmp_path / "solved.py"))
    assert solved.state == "correct"
    assert solved.summary


def solution_of(id):
    """Return what stands before an exercise's solution cell, that cell, and the name that its check is called with.

    Before it stand the lesson's imports, and its cells of definitions: an answer may be built on them.
    """
    exercises, cells = lesson_of(int(id.split(".")[0]))
    exercise = next(one for one in exercises if one.id == id)
    lines = [line for _, body in cells for line in body]
    before = [ast.unparse(line) for line in lines if isinstance(line, ast.Import | ast.ImportFrom)]
    for cell, body in cells[: exercise.solution.number - 1]:
        if cell.kind == "code" and all(isinstance(line, ast.ClassDef | ast.FunctionDef) for line in body):
            before.append(cell.text)
    (call,) = [node for node in ast.walk(exercise.check.parsed()) if isinstance(node, ast.Call)]
    return "\n".join(before), exercise.solution.text, ast.unparse(call.args[1])


@functools.cache
def lesson_of(number):
    """Return a lesson's exercises, and its cells with their statements."""
    made = draft(COURSE, next(lesson for lesson in COURSE.lessons() if lesson.number == number))
    return made.exercises, [(cell, cell.parsed().body) for cell in made.cells]


def run(code, name, path):
    path.write_text(code, encoding="utf-8")
    space = {"__name__": "answer"}
    exec(compile(code, str(path), "exec"), space)
    return space[name]
