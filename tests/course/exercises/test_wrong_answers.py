"""Every exercise rejects what people really get wrong, each with a message of its own."""

import ast
import importlib
import itertools
import re
from collections import defaultdict
from pathlib import Path

import pytest

from hooklab.course.exercises import attempt
from hooklab.course.exercises.exercise import exercises_of, lesson_numbers
from tests.course.exercises.wrong import Wrong, wrong_answers

# some wrong answers read .grad where PyTorch warns about it
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")

SOURCES = Path(__file__).parents[3] / "solutions" / "source"


def wrong_of(lesson):
    return importlib.import_module(f"tests.course.lesson{lesson:02d}.wrong")


WRONG = [one for number in lesson_numbers() for one in wrong_answers(wrong_of(number))]
EXERCISES = [one for number in lesson_numbers() for one in exercises_of(number)]


def name_of(value):
    return f"{value.id}-{value.answer.__name__}" if isinstance(value, Wrong) else value.id


@pytest.mark.parametrize("wrong", WRONG, ids=name_of)
def test_a_wrong_answer_is_told_what_is_wrong(wrong):
    outcome = attempt(wrong.id, wrong.answer)
    assert outcome.state == "not yet"
    assert wrong.says in str(outcome)


@pytest.mark.parametrize("one", EXERCISES, ids=name_of)
def test_every_exercise_has_three_wrong_answers_with_different_messages(one):
    messages = [str(attempt(one.id, wrong.answer)) for wrong in WRONG if wrong.id == one.id]
    assert len(messages) >= 3
    assert len(set(messages)) == len(messages)


@pytest.mark.parametrize("one", EXERCISES, ids=name_of)
def test_the_stub_is_not_attempted_and_the_solution_is_correct(one, tmp_path):
    cells = solution_cells()[one.id]
    assert attempt(one.id, run(blank(cells.code), cells.name, tmp_path / "stub.py")).state == "not attempted"
    assert attempt(one.id, run(cells.code, cells.name, tmp_path / "solved.py")).state == "correct"


class SolutionCell:
    def __init__(self, code, name):
        self.code, self.name = code, name


def solution_cells():
    """Read every solution cell of the sources: exercise id -> its code, and the name that its check is called with."""
    found = defaultdict(lambda: pytest.fail("no solution cell"))
    for path in sorted(SOURCES.glob("*.py")):
        cells = re.split(r"^# %%.*$", path.read_text(encoding="utf-8"), flags=re.M)
        imports = "\n".join(
            line
            for line in "\n".join(cells).splitlines()
            if re.match(r"(import|from) (?!hooklab)|from hooklab\.course\.lesson\d\d import [a-z]", line)
        )
        for code, after in itertools.pairwise(cells):
            call = re.search(r'^check\("([\d.]+)", (\w+)\)', after, flags=re.M)
            if call and "### BEGIN SOLUTION" in code:
                found[call[1]] = SolutionCell(f"{imports}\n{code}", call[2])
    return found


def blank(code):
    return re.sub(
        r"^( *)### BEGIN SOLUTION.*?### END SOLUTION",
        r"\1# YOUR CODE HERE\n\1raise NotImplementedError()",
        code,
        flags=re.M | re.S,
    )


def run(code, name, path):
    path.write_text(code, encoding="utf-8")
    ast.parse(code)
    space = {"__name__": "answer"}
    exec(compile(code, str(path), "exec"), space)
    return space[name]
