"""What stands in for an open exercise is a right answer of it."""

import pytest

from hooklab.course.exercises.checking import attempt
from hooklab.course.lesson06 import ready
from hooklab.course.lesson06.tables import ReadyTables

HOOKS = ready.hooks(ReadyTables)


@pytest.mark.parametrize(
    ("id", "answer"),
    [("6.1", ready.Handle), ("6.2", HOOKS), ("6.3", ready.border(HOOKS)), ("6.4", ready.always(HOOKS))],
)
def test_a_ready_class_is_correct(id, answer):
    outcome = attempt(id, answer)
    assert outcome.state == "correct", outcome
