"""What the launcher says: lines of progress, and errors that are one line.

:func:`say` writes a line of progress, :class:`LauncherError` carries an error up to ``main``, and
:func:`os_errors_in_one_line` turns a full disk or a read-only folder into such an error. All of it goes to stderr,
so that stdout belongs to the program that is started.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class LauncherError(Exception):
    """An error for the person at the keyboard: one line that says what is wrong and what to do.

    Args:
        line: the sentence. ``main`` prints it after ``hooklab: error:`` and exits with 2.
        context: what to show above it, for example the last lines of pip. Often empty.
    """

    def __init__(self, line: str, context: str = "") -> None:
        super().__init__(line)
        self.line = line
        self.context = context


def say(line: str) -> None:
    """Print one line of progress to stderr, at once."""
    print(f"hooklab: {line}", file=sys.stderr, flush=True)


@contextmanager
def os_errors_in_one_line(doing: str) -> Iterator[None]:
    """Turn an OSError in the block into a :class:`LauncherError` that starts with ``could not <doing>``."""
    try:
        yield
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        raise LauncherError(f"could not {doing}: {error.strerror or error}{where}") from error
