"""Expectations that many exercises share: the handle comes back, and an exception comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.hooks import RemovableHandle

from hooklab.course.exercises.faults import NotYet, PlannedError, PlannedInterrupt
from hooklab.course.exercises.frames import kind_of
from hooklab.course.exercises.trial import Trial
from hooklab.course.exercises.values import tensor_text


def expect_handle(handle: Any, of: str = "the method that registers the hook") -> None:
    """Raise NotYet unless an answer returned a handle.

    Args:
        handle: what the answer returned; anything with a `remove` of its own will do.
        of: what has returned the handle to the answer, such as "register_forward_pre_hook".

    Example:
        >>> expect_handle(None, "register_hook")
        Traceback (most recent call last):
        hooklab.course.exercises.faults.NotYet: your function did not return the handle
    """
    if not is_handle(handle):
        raise NotYet(
            "your function did not return the handle",
            expected=f"what {of} returned, so that the caller can remove the hook",
            got=tensor_text(handle),
            likely="Return what register_… gives you: it is the only way for the caller to remove the hook.",
            label="no-handle",
        )


def expect_unused(handle: Any) -> None:
    """Raise NotYet if the hook of a handle is gone at the moment when the answer returns it."""
    if isinstance(handle, RemovableHandle) and handle.hooks_dict_ref() is None:
        raise NotYet(
            "the hook table that your handle belongs to is gone: it was replaced, or its module is gone",
            expected="a handle that the caller can use to remove the hook",
            label="handle-without-table",
        )
    if is_used_up(handle):
        raise NotYet(
            "the handle that you return is used up: its hook is gone",
            expected="a handle that the caller can use to remove the hook",
            likely="`with` removes the hook at the end of its block, remove() at once. Return the handle unused.",
            label="used-handle",
        )


def expect_still_there(handle: Any) -> None:
    """Raise NotYet if the hook of a handle is gone after a pass, although it was not removed."""
    if is_used_up(handle):
        raise NotYet(
            "after one pass, your hook is gone",
            expected="a hook that stays until the caller removes it with the handle",
            likely="Your hook removes itself.",
            label="removes-itself",
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


def error_comes_out(trial: Trial, function: Callable[[], Any]) -> bool:
    """Run a function in which the check raises PlannedError; return whether it came through the learner's code.

    Args:
        trial: the trial.
        function: raises PlannedError in the learner's block, or in something that the learner's code calls.

    Raises NotYet if it came out as another exception.
    """
    try:
        trial.run(function)
    except (PlannedError, PlannedInterrupt):
        return True
    except NotYet as fault:
        error = fault.__cause__
        if error is None or not isinstance(error.__cause__ or error.__context__, PlannedError | PlannedInterrupt):
            raise
        raise NotYet(
            f"your code replaced the exception with a different one: {kind_of(error)}",
            expected="the exception that was raised: the caller may be catching that one",
            likely="An `except` block raises a new exception. A bare `raise` passes on the original.",
            label="exception-replaced",
        ) from fault
    return False
