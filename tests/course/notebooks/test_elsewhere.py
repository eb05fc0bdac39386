"""The imitated processor draws nearly the same weights, each time the same, and leaves the page's numbers alone."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests.course.notebooks import elsewhere, plugin


@pytest.fixture
def _init_as_it_is(monkeypatch):
    for name in elsewhere.DRAWN:
        monkeypatch.setattr(nn.init, name, getattr(nn.init, name))


def drawn():
    torch.manual_seed(0)
    return nn.Linear(40, 50).weight.detach(), torch.rand(3)


@pytest.mark.usefixtures("_init_as_it_is")
def test_weights_are_a_millionth_off_the_same_each_time_and_later_numbers_as_before():
    here, later = drawn()
    elsewhere.imitate(1)
    there, later_there = drawn()
    assert not torch.equal(here, there) and torch.allclose(here, there, rtol=1e-5)
    assert torch.equal(there, drawn()[0]) and torch.equal(later, later_there)


@pytest.mark.usefixtures("_init_as_it_is")
def test_another_number_is_another_processor():
    here, _ = drawn()
    elsewhere.imitate(1)
    one, _ = drawn()
    elsewhere.imitate(2)
    both, _ = drawn()
    assert not torch.equal(one, both) and torch.allclose(here, both, rtol=1e-5)


def test_what_is_no_number_is_refused(monkeypatch):
    monkeypatch.setenv(plugin.ELSEWHERE, "banana")
    with pytest.raises(pytest.UsageError, match="HOOKLAB_ELSEWHERE is the number of a processor to imitate, such as 1"):
        plugin.pytest_configure(None)


@pytest.mark.parametrize(("number", "lines"), [("3", 1), ("", 0)])
def test_a_run_says_at_its_end_that_it_imitated_one(monkeypatch, number, lines):
    monkeypatch.setenv(plugin.ELSEWHERE, number)
    told = []
    plugin.pytest_terminal_summary(SimpleNamespace(write_line=told.append))
    assert len(told) == lines
    assert all("as on another processor, number 3" in line for line in told)
