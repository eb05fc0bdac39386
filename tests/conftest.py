"""One thread a process: the tests run side by side, and small operations gain nothing from more."""

import os
import sys

import pytest

pytest.register_assert_rewrite("tests.course.exercises.answers")  # else its asserts do not say what came

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")


@pytest.fixture(autouse=True)
def _no_figures_of_other_tests():
    """Close what earlier tests, doctests among them, have left in pyplot's list: some tests count what is there."""
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.fixture
def same_numbers_each_time() -> None:
    import torch  # not above: many tests do without

    torch.manual_seed(0)
