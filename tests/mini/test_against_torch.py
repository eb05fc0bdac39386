"""Random programs do the same in mini and in torch: hook calls with all they receive, outputs, gradients, errors."""

import re
import warnings

import pytest

from hooklab.course.lesson06.programs import Program, random_programs
from hooklab.course.lesson06.running import run

from .engines import Mini, Torch
from .programs import wild_programs

# Torch's tensors have a loop over rows, and can be an index, which mini's have not: there Python's own words differ.
OF_PYTHON = ("'Tensor' object is not", "can't multiply sequence by non-int of type 'Tensor'")


def beginning(error: Exception) -> list[str]:
    """The first words of an error, without numbers."""
    return re.findall(r"[a-zA-Z_'`-]+", str(error))[:6]


def assert_the_same(program: Program, second_requires_grad: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy mentions overflow, torch does not; values are compared
        ours, theirs = (run(engine.Module, program, second_requires_grad, engine) for engine in (Mini, Torch))
    seen = "\n".join([*program.made, *program.steps])
    assert ours.log == theirs.log, seen
    for our_error, their_error in zip(ours.errors, theirs.errors, strict=True):
        assert str(our_error).startswith(OF_PYTHON) or beginning(our_error) == beginning(their_error), seen


@pytest.mark.parametrize("second_requires_grad", [False, True])
def test_the_random_programs_of_lesson_6_do_the_same_in_mini_and_in_torch(second_requires_grad: bool) -> None:
    for program in random_programs(each=30):
        assert_the_same(program, second_requires_grad)


@pytest.mark.parametrize("second_requires_grad", [False, True])
def test_wilder_random_programs_do_the_same_in_mini_and_in_torch(second_requires_grad: bool) -> None:
    for program in wild_programs(400, seed=0):
        assert_the_same(program, second_requires_grad)


@pytest.mark.long
def test_ten_thousand_wild_programs_do_the_same() -> None:
    for program in wild_programs(10_000, seed=1):
        assert_the_same(program, second_requires_grad=True)
