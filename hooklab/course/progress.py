"""Progress: what a long job is doing, as one changing line on a terminal, or a line now and then in a log."""

import shutil
import time
from typing import TextIO


class Progress:
    """``show`` writes the line that changes, ``say`` a line that stays; ``close`` keeps the last line.

    Args:
        stream: where to write. If it is not a terminal, lines cannot be rewritten, and ``show`` writes at most one line
            in ``every`` seconds.
    """

    def __init__(self, stream: TextIO, every: float = 10.0) -> None:
        self.stream = stream
        self.live = stream.isatty()
        self.every = every
        self.shown = time.monotonic()

    def show(self, text: str) -> None:
        """Say what is being done now, in place of what was."""
        if self.live:
            # Padded, it covers what stood there; cut, it does not wrap, which could not be taken back.
            self._write("\r" + text.ljust(self._width())[: self._width()])
        elif time.monotonic() - self.shown >= self.every:
            self.shown = time.monotonic()
            self._write(text + "\n")

    def say(self, text: str) -> None:
        """Say something that stays to be read."""
        self._write("\r" + text.ljust(self._width()) + "\n" if self.live else text + "\n")

    def close(self) -> None:
        """End the line, so that what others write begins on a new one."""
        if self.live:
            self._write("\n")

    def _width(self) -> int:
        return shutil.get_terminal_size().columns - 1

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()
