"""Whose code it was: the learner's line among the frames of a traceback, and what an exception says.

An exception can be as odd as any other answer: its message may be huge, or reading it may raise.
"""

from __future__ import annotations

import functools
import os
import site
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from hooklab.course.exercises.faults import PASSING, NotYet, cut

_COURSE = Path(__file__).parents[1]


def _normal(path: str | Path) -> str:
    """One spelling for one file: a frame's name may lead through a symbolic link, or write a drive in capitals."""
    return os.path.normcase(os.path.realpath(path))


# A frame's name and sys.path are spelled independently, so both go through _normal. A user's own site-packages count,
# and so do torch and numpy wherever they are.
_LIBRARIES = tuple(
    _normal(folder) + os.sep
    for folder in {
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        site.getusersitepackages(),
        *[one for one in sys.path if Path(one).name in ("site-packages", "dist-packages")],
        *[str(Path(one.__file__).parent) for one in (torch, np) if one.__file__],
        str(_COURSE.parent),  # hooklab's own tools
    }
)


@functools.cache
def whose(filename: str) -> Literal["learner", "library", "course"]:
    """Return whose code a file holds: the learner's, a library's (hooklab's tools are one), or the course's."""
    if filename.startswith(("<frozen", "<eval_with_key>")):  # Python's own imports, and what torch.fx writes
        return "library"
    if filename.startswith("<"):  # <stdin>, <string>: typed or generated, most likely by the learner
        return "learner"
    path = _normal(filename)
    if path.startswith(_normal(_COURSE) + os.sep):
        return "course"
    return "library" if path.startswith(_LIBRARIES) else "learner"


def learners_line(error: BaseException) -> str | None:
    """Return "at line 4: `h.remove()`" for the innermost frame that is the learner's; None if there is none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if whose(frame.filename) == "learner"]
    if not frames:
        return None
    last = frames[-1]
    return f"at line {last.lineno}: `{cut(last.line, 120)}`" if last.line else f"at line {last.lineno}"


def raised_by_library(error: BaseException) -> bool:
    """Whether the innermost frame is not the learner's: torch raises NotImplementedError for a missing kernel."""
    # torch's operators have no Python frame: then the last line is the learner's, and it does not say `raise`
    last = traceback.extract_tb(error.__traceback__)[-1]
    return whose(last.filename) != "learner" or bool(last.line and "raise" not in last.line)


def learners_error(error: BaseException, name: str) -> NotYet:
    """Describe an exception of the learner's code: type, message and the last line that is the learner's own."""
    first = first_words(error)
    what = f"{kind_of(error)}: {first}" if first else kind_of(error)
    where = learners_line(error)
    missing = f"{name} raised {what}" if where is None else f"{name} raised {what}, {where}"
    return NotYet(missing, expected="no exception")


def first_words(error: BaseException) -> str:
    """Return the first line of an exception's message, cut where it is very long."""
    try:
        lines = str(error).splitlines()
    except PASSING:
        raise
    except BaseException:
        return "(its message cannot be shown)"
    return cut(lines[0], 240) if lines else ""


def kind_of(value: Any) -> str:
    """Return the name of a value's type."""
    return type(value).__name__


def name_of(value: Any, otherwise: str | None = None) -> str:
    """Return the name of a function or class, of the function in a partial; for what has none, `otherwise` or its type.

    Example:
        >>> name_of(functools.partial(max, 2))
        'max'
    """
    try:
        while isinstance(value, functools.partial):
            value = value.func
        name = getattr(value, "__name__", None)
    except PASSING:
        raise
    except BaseException:
        name = None  # a property that raises, be it __name__ or __class__
    return cut(name, 80) if isinstance(name, str) else otherwise or kind_of(value)
