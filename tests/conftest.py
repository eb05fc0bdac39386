"""One thread a process: the tests run side by side, and small operations gain nothing from more."""

import gc
import os
import sys

import pytest

from hooklab.course import kept

collect_ignore = ["course/notebooks/preloaded.py"]  # for the kernels: it imports a debugger

pytest.register_assert_rewrite("tests.course.exercises.answers")  # else its asserts do not say what came

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
gc.disable()  # while tests are collected nothing is garbage, and looking for some takes a sixth of the time


def pytest_collection_finish() -> None:
    """Keep torch and the other imports out of every later look for garbage: it is what such a look spends most on."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _no_figures_of_other_tests():
    """Close what earlier tests, doctests among them, have left in pyplot's list: some tests count what is there."""
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.fixture
def same_numbers_each_time() -> None:
    import torch  # not above: many tests do without

    torch.manual_seed(0)


@pytest.fixture
def nothing_kept(monkeypatch) -> None:
    """Train anew what other tests or notebooks of this run may have trained: see `hooklab.course.kept`."""
    monkeypatch.delenv(kept.FOLDER, raising=False)
