"""Expectations that many exercises share: the handle comes back, and an exception comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.hooks import RemovableHandle

from hooklab.course.exercises.faults import NotYet, PlannedError
from hooklab.course.exercises.trial import Trial
from hooklab.course.exercises.values import tensor_text


def expect_handle(handle: Any, of: str = "the method that registers the hook") -> None:
    """Raise NotYet unless an answer returned a handle whose hook is still there.

    Args:
        handle: what the answer returned; anything with a `remove` of its own will do.
        of: what has returned the handle to the answer, such as "register_forward_pre_hook".

    Example:
        >>> expect_handle(None, "register_hook")
        Traceback (most recent call last):
        hooklab.course.exercises.faults.NotYet: your function did not return the handle
    """
    expected = f"what {of} returned, so that the caller can remove the hook"
    if not is_handle(handle):
        raise NotYet(
            "your function did not return the handle",
            expected=expected,
            got=tensor_text(handle),
            likely="forgotten return of the handle" if handle is None else None,
        )
    if is_used_up(handle):
        raise NotYet(
            "the handle that you return has been used already: its hook is gone",
            expected=expected,
            likely="`with` removes the hook at the end of its block; register, and return the handle",
        )


def is_handle(value: Any) -> bool:
    """Whether a value can be asked to remove its hook."""
    return callable(getattr(value, "remove", None)) and not isinstance(value, list | set)


def is_used_up(handle: Any) -> bool:
    """Whether a handle's hook has been taken out of its table."""
    if not isinstance(handle, RemovableHandle):
        return False
    table = handle.hooks_dict_ref()
    return table is None or handle.id not in table


def expect_error_comes_out(trial: Trial, function: Callable[[], Any], where: str) -> None:
    """Run a function in which the check raises PlannedError; NotYet if the learner's code hides it.

    Args:
        trial: the trial.
        function: raises PlannedError in the learner's block, or in something that the learner's code calls.
        where: what raised, in words, such as "the block" or "train()".
    """
    try:
        trial.run(function)
    except PlannedError:
        return
    raise NotYet(
        f"{where} raised an exception, and it did not come out",
        expected="whoever stands outside sees the exception",
        got="the code after it went on as if nothing had happened",
        likely="swallowed: an `except` without `raise`, a `return` in `finally`, or an __exit__ that returns something "
        "true",
    )
