"""What stands in for an open exercise is a right answer of it."""

import pytest

from hooklab.course.exercises.checking import attempt
from hooklab.course.lesson07 import ready


@pytest.mark.parametrize(("id", "answer"), [("7.1", ready.mix_batch), ("7.2", ready.mixed_loss), ("7.3", ready.mixing)])
def test_a_ready_function_is_correct(id, answer):
    outcome = attempt(id, answer)
    assert outcome.state == "correct", outcome
