"""Whether an answer is still the exercise's stub: its compiled code tells, so its source is not needed."""

from __future__ import annotations

import dis
import functools
import inspect
import re
from types import CodeType
from typing import Any

_NOT_IN_EVERY_PYTHON = ("RESUME", "NOP", "COPY_FREE_VARS", "PRECALL", "CACHE")


def is_stub(answer: Any) -> bool:
    """Whether a function is empty or the stub's line alone, or whether that line is anywhere in a method of a class."""
    try:
        if inspect.isclass(answer):
            codes = [code for value in vars(answer).values() for code in _codes(_code(value))]
            return any(_holds(_steps(code), line) for code in codes for line in _STUBS[:2])
        code = _code(answer.func if isinstance(answer, functools.partial) else answer)
        if code is None or code.co_name == "<lambda>" or _steps(code) not in _STUBS:
            return False
        return _steps(code) != _STUBS[-1] or not _returns(code)
    except Exception:
        return False  # a very odd object: the call will tell


def _returns(code: CodeType) -> bool:
    """Whether an empty function has a `return`: compiled, it is the same as `pass`."""
    try:
        return re.search(r"^\s+return\b", inspect.getsource(code), re.M) is not None
    except OSError:
        return True  # nobody knows; the call will tell what is missing


def _code(value: Any) -> CodeType | None:
    """Return the code of a function or method, of the one in a decorated one or a property; None for anything else."""
    function: Any = value.fget if isinstance(value, property) else value
    return getattr(inspect.unwrap(function), "__code__", None)


def _codes(code: CodeType | None) -> list[CodeType]:
    """Return the code of a function and of the functions in it."""
    if code is None:
        return []
    return [code, *(inner for one in code.co_consts if isinstance(one, CodeType) for inner in _codes(one))]


def _steps(code: CodeType) -> list[tuple[str, Any]]:
    return [(one.opname, one.argval) for one in dis.get_instructions(code) if one.opname not in _NOT_IN_EVERY_PYTHON]


def _holds(steps: list[tuple[str, Any]], part: list[tuple[str, Any]]) -> bool:
    return any(steps[start : start + len(part)] == part for start in range(len(steps)))


def _stub() -> None:
    raise NotImplementedError()


def _shorter_stub() -> None:
    raise NotImplementedError


def _empty() -> None: ...


_STUBS = [_steps(function.__code__) for function in (_stub, _shorter_stub, _empty)]
