"""What stands in for an open exercise is a right answer of it."""

import pytest

from hooklab.course.exercises.checking import attempt
from hooklab.course.lesson08 import ready


@pytest.mark.parametrize(("id", "answer"), [("8.1", ready.first_nonfinite), ("8.2", ready.treat_a)])
def test_a_ready_function_is_correct(id, answer):
    outcome = attempt(id, answer)
    assert outcome.state == "correct", outcome
