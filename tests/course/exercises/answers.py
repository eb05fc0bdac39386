"""How unusual right answers and wrong ones are written down, from the card alone, and the tests that they are for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hooklab.course.exercises import attempt


class Answers:
    """The answers to a lesson's exercises; `test_a, test_b = answers.tests()` at a module's end runs them."""

    def __init__(self, *ids: str):
        self.ids = ids
        self.rights: list[Any] = []
        self.wrongs: list[Any] = []

    def right(self, id: str) -> Callable[[Any], Any]:
        return lambda answer: self.rights.append(pytest.param(id, answer, id=name(id, answer))) or answer

    def wrong(self, id: str, likely: str | None = None, says: str = "") -> Callable[[Any], Any]:
        """A wrong answer, the beginning of the one true reason (None: the check can know none), and other words."""
        return lambda answer: self.wrongs.append(pytest.param(id, answer, likely, says, id=name(id, answer))) or answer

    def tests(self) -> tuple[Callable[..., None], ...]:
        @pytest.mark.parametrize(("id", "answer"), self.rights)
        def right_ones_are_correct(id, answer):
            expect_correct(id, answer)

        @pytest.mark.parametrize(("id", "answer", "likely", "says"), self.wrongs)
        def wrong_ones_are_refused_with_the_true_reason_or_none(id, answer, likely, says):
            expect_refused(id, answer, likely, says)

        return (
            right_ones_are_correct,
            wrong_ones_are_refused_with_the_true_reason_or_none,
        )


def expect_correct(id: str, answer: Any, seconds: float | None = 10.0) -> None:
    outcome = attempt(id, answer, seconds=seconds)
    assert (outcome.state, outcome.details) == ("correct", ())
    assert outcome.summary


def expect_refused(id: str, answer: Any, likely: str | None, says: str, seconds: float | None = 10.0) -> None:
    outcome = attempt(id, answer, seconds=seconds)
    assert outcome.state == "not yet"
    assert says in str(outcome)
    reason = dict(outcome.details).get("likely")
    assert reason is None if likely is None else str(reason).startswith(likely)


def name(id: str, answer: Any) -> str:
    return f"{id}-{getattr(answer, '__name__', type(answer).__name__)}"
