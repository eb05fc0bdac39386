"""What a check raises: NotYet, StillTheStub, TookTooLong, and PlannedError through the learner's own code.

The words of what no exercise allows are in faults.toml: `fault(label, …)`.
"""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path

_MOST = 500  # characters of one line of an outcome: no check means to write more


class NotYet(Exception):
    """An answer falls short: what is missing, what was expected, what came instead, and the likely misconception."""

    def __init__(
        self,
        missing: str,
        *,
        expected: object = None,
        got: object = None,
        likely: str | None = None,
        label: str | None = None,
    ):
        super().__init__(missing)
        self.label = label  # how it is recorded; None: by its words
        self.missing = cut(missing, _MOST)
        pairs = (("expected", expected), ("got", got), ("likely", likely))
        self.details = tuple((label, cut(str(text), _MOST)) for label, text in pairs if text is not None)


def fault(label: str, *, got: object = None, **words: object) -> NotYet:
    """Return the fault that faults.toml has under this label, with these words in the places of its braces.

    Example:
        >>> fault("hook-removed", place="forward hook on module '0'").missing
        "your code removed a hook that was already there: a forward hook on module '0'"
    """
    return NotYet(**{part: text.format(**words) for part, text in _faults()[label].items()}, got=got, label=label)


@functools.cache
def _faults() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


class StillTheStub(Exception):
    """The answer reached the line `raise NotImplementedError()`."""


class TookTooLong(BaseException):
    """Raised in the learner's own line when a check's time is over; `except Exception` does not catch it."""

    def __init__(self, seconds: float):
        super().__init__(seconds)
        self.seconds = seconds


class PlannedError(Exception):
    """Raised by a check inside a learner's block or through a learner's function."""


class PlannedInterrupt(BaseException):
    """Raised in the same places, instead of a KeyboardInterrupt: `except Exception` does not catch it."""


# Any call may raise these, and they are not the learner's errors: the check itself handles them.
PASSING = (NotYet, StillTheStub, PlannedError, PlannedInterrupt, TookTooLong, KeyboardInterrupt)


def cut(text: str, most: int) -> str:
    """Return a text, without its end where it is very long.

    Example:
        >>> cut("yyyyyyyy", 5)
        'yyyyy …'
    """
    return text if len(text) <= most else f"{text[:most]} …"
