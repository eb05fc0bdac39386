"""Naming the misconception behind an exception: the words of the exception give it away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from hooklab.course.exercises.trial import NotYet


@contextmanager
def named_by(likely: Mapping[str, str]) -> Iterator[None]:
    """Add the likely misconception to an exception of the learner's. A context manager, and so a decorator too.

    Args:
        likely: words of an exception -> the misconception behind it; the first whose words fit counts.
    """
    try:
        yield
    except NotYet as fault:
        name = next((name for words, name in likely.items() if words in fault.missing), None)
        if name is None or " raised " not in fault.missing:
            raise
        raise NotYet(fault.missing, expected="no exception", likely=name) from fault
