"""What lesson 3 runs while an exercise is open is itself a right answer."""

from hooklab.course.exercises.checking import attempt
from hooklab.course.lesson03 import ready


def test_the_ready_function_is_correct():
    assert attempt("3.2", ready.switch_off).state == "correct"
