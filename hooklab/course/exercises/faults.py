"""What a check raises: NotYet, StillTheStub, TookTooLong, and PlannedError through the learner's own code."""

from __future__ import annotations

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


# Each with its name, and the likely reason if an answer cleans up after the first but not after the second.
PLANNED: tuple[tuple[type[BaseException], str, str | None], ...] = (
    (PlannedError, "an exception", None),
    (PlannedInterrupt, "an interrupt", "`except Exception`: an interrupt (■) is none of these, so use `finally`"),
)


# Any call may raise these, and they are not the learner's errors: the check itself handles them.
PASSING = (NotYet, StillTheStub, PlannedError, PlannedInterrupt, TookTooLong, KeyboardInterrupt)


def cut(text: str, most: int) -> str:
    """Return a text, without its end where it is very long.

    Example:
        >>> cut("yyyyyyyy", 5)
        'yyyyy …'
    """
    return text if len(text) <= most else f"{text[:most]} …"
