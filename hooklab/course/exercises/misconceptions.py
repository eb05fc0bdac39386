"""Naming the misconception behind what an answer did: by a program that does the same, or by the words of an exception.

A reason that is not the true one is worse than none. So a check tries its guesses, and names one only if it fits all
that was seen, and no other one does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from hooklab.course.exercises.trial import NotYet, same

F = TypeVar("F", bound=Callable[..., Any])


def fitting(observed: Sequence[Any], guesses: Mapping[str, Callable[[Any], Any]], inputs: Iterable[Any]) -> str | None:
    """Return the one misconception that explains everything; None if none does, or more than one.

    Args:
        observed: what the answer did, for each input in turn: values, tensors, or tuples, lists and dicts of them.
        guesses: a misconception, in words -> a small program that has it. It gets one input, and gives what an answer
            with this misconception does; if it raises, it does not fit.
        inputs: what the answer was tried on, as many as `observed` has entries.

    Example:
        >>> guesses = {"only large": lambda x: x > 100, "only positive": lambda x: x > 0, "never": lambda x: False}
        >>> fitting([True, False], guesses, [200, 50])
        'only large'
        >>> fitting([True, True], guesses, [200, 300])  # two of them would do this

    """
    inputs = list(inputs)
    found = [
        name
        for name, program in guesses.items()
        if all(_does(program, one, seen) for one, seen in zip(inputs, observed, strict=True))
    ]
    return found[0] if len(found) == 1 else None


_remembered: list[Any] = []


def remembered(function: F) -> F:
    """Return the function, which remembers what it gives: for programs of ours that take long, never for answers.

    An answer may replace a function of torch while ours run. So whoever finds that it has calls `forget`.
    """
    cached: Any = functools.cache(function)
    _remembered.append(cached)
    return cached  # type: ignore[no-any-return]


def forget() -> None:
    """Let every remembered function find out anew."""
    for one in _remembered:
        one.cache_clear()


def alike(one: Any, other: Any) -> bool:
    """Whether two results are the same: tensors by their values (NaN is like NaN), containers place by place."""
    if isinstance(other, torch.Tensor) and other.ndim == 0 and isinstance(one, bool | int | float):
        other = other.item()
    if isinstance(other, torch.Tensor):
        return isinstance(one, torch.Tensor) and same(one.nan_to_num(nan=1e30), other.nan_to_num(nan=1e30))
    if isinstance(other, list | tuple):
        is_alike = isinstance(one, list | tuple) and len(one) == len(other)
        return is_alike and all(alike(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(other, dict):
        is_alike = isinstance(one, dict) and one.keys() == other.keys()
        return is_alike and all(alike(one[key], other[key]) for key in other)
    return bool(one == other)


def _does(program: Callable[[Any], Any], one: Any, seen: Any) -> bool:
    try:
        return alike(seen, program(one))
    except Exception:
        return False


Reason = str | Callable[[BaseException], str | None]


@contextmanager
def named_by(likely: Mapping[str, Reason]) -> Iterator[None]:
    """Add the likely misconception to an exception of the learner's. A context manager, and so a decorator too.

    Args:
        likely: words of an exception -> the misconception behind it, or a function of the exception that returns it,
            or None where it is another one; the first whose words fit counts.
    """
    try:
        yield
    except NotYet as fault:
        if " raised " not in fault.missing:
            raise
        name = next((name for words, name in likely.items() if words in fault.missing), None)
        if callable(name):
            name = name(fault.__cause__ or fault)
        if name is None:
            raise
        raise NotYet(fault.missing, expected="no exception", likely=name) from fault
