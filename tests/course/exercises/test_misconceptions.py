"""Every exercise: its solution is correct, its stub not attempted, each misconception named by its own reason alone.

So the stored records are what solutions and misconceptions do: a check compares with them, and names only what fits.
"""

import ast
import functools
from pathlib import Path

import pytest

from hooklab.course.build.draft import draft
from hooklab.course.build.records import misconceptions, solution
from hooklab.course.build.sources import Course
from hooklab.course.exercises import attempt
from hooklab.course.exercises.exercise import exercises_of, lesson_numbers
from hooklab.course.exercises.reasons import reason, reasons_of
from hooklab.course.exercises.records import as_json, records_of_lesson

# some programs read .grad where PyTorch warns about it
pytestmark = pytest.mark.filterwarnings("ignore")

COURSE = Course(Path(__file__).parents[3])
EXERCISES = [one for number in lesson_numbers() for one in exercises_of(number)]
PROGRAMS = [
    pytest.param(one.id, label, program, id=f"{one.id}-{label}")
    for one in EXERCISES
    for label, program in misconceptions(COURSE, one.lesson).get(one.id, {}).items()
]
each_exercise = pytest.mark.parametrize("one", EXERCISES, ids=lambda one: one.id)


@pytest.mark.parametrize(("id", "label", "program"), PROGRAMS)
def test_a_misconception_is_refused_with_its_own_reason(id, label, program):
    outcome = attempt(id, program)
    assert outcome.state == "not yet"
    assert dict(outcome.details).get("likely") == reason(
        id, label, getattr(program, "__name__", type(program).__name__)
    ), f"misconceptions that do the same in every world: {others_like(id, label)}"


def others_like(id, label):
    """The misconceptions of an exercise that are recorded as this one is; where there are any, none is named."""
    stored = records_of_lesson(int(id.split(".")[0]))[id].misconceptions
    return [other for other in stored if other != label and stored[other] == stored.get(label)]


@each_exercise
def test_the_stub_is_not_attempted_and_the_solution_is_correct(one):
    assert attempt(one.id, solution(COURSE, one.id, stub=True)).state == "not attempted"
    outcome = attempt(one.id, solution(COURSE, one.id))
    assert (outcome.state, outcome.details) == ("correct", ())
    assert outcome.summary == one.verified


@each_exercise
def test_the_title_is_the_cards(one):
    (lesson,) = COURSE.choose([str(one.lesson)])
    assert one.title in [other.title for other in draft(COURSE, lesson).exercises if other.id == one.id]


@each_exercise
def test_an_exercise_is_small_data(one):
    records = records_of_lesson(one.lesson)[one.id]
    assert len(as_json({one.id: records})) < 40_000, "make its worlds smaller"
    assert len(records.misconceptions) >= 3
    assert list(records.misconceptions) == list(misconceptions(COURSE, one.lesson)[one.id])
    assert all(any(found) for found in records.misconceptions.values()), "a misconception that is correct"


@each_exercise
def test_every_reason_of_an_exercise_can_be_given(one):
    used = set(misconceptions(COURSE, one.lesson)[one.id]) | labels_of(one.lesson)
    assert set(reasons_of(one.id)) <= used, "a sentence that nothing uses"


@functools.cache
def labels_of(lesson):
    """Every quoted text in a lesson's scenes and in what all share: among them are the labels that a scene gives."""
    folder = COURSE.root / "hooklab" / "course" / f"lesson{lesson:02d}"
    paths = [*folder.glob("*.py"), folder.parent / "exercises" / "scenes.py"]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
    return {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
