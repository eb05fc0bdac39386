"""What a page goes on with while an exercise is open is itself a right answer."""

import pytest

from hooklab.course.exercises.checking import attempt
from hooklab.course.lesson03 import ready as lesson03
from hooklab.course.lesson04 import ready as lesson04
from hooklab.course.lesson05 import transfer as lesson05
from hooklab.course.lesson06 import ready as lesson06
from hooklab.course.lesson06.tables import ReadyTables
from hooklab.course.lesson07 import ready as lesson07
from hooklab.course.lesson08 import ready as lesson08
from hooklab.course.lesson09 import heads, maps
from hooklab.course.lesson10 import helpers as lesson10

HOOKS = lesson06.hooks(ReadyTables)
READY = [
    ("3.2", lesson03.switch_off),
    ("4.2", lesson04.guard_against_bad_numbers),
    ("4.4", lesson04.patched),
    ("5.2", lesson05.scale_input_gradient),
    ("6.1", lesson06.Handle),
    ("6.2", HOOKS),
    ("6.3", lesson06.border(HOOKS)),
    ("6.4", lesson06.always(HOOKS)),
    ("7.1", lesson07.mix_batch),
    ("7.2", lesson07.mixed_loss),
    ("7.3", lesson07.mixing),
    ("8.1", lesson08.first_nonfinite),
    ("8.2", lesson08.treat_a),
    ("9.1", maps.cam),
    ("9.2", maps.guided_gradient),
    ("9.3", heads.induction_scores),
    ("9.4", heads.patched),
    ("9.5", maps.channels_worth),
    ("10.1", lesson10.first_nan),
]


@pytest.mark.parametrize(("id", "answer"), READY)
def test_a_ready_answer_is_correct(id, answer):
    outcome = attempt(id, answer)
    assert outcome.state == "correct", outcome
