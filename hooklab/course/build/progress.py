"""Progress: what a build is doing, on a terminal as one line that changes, elsewhere as a line per notebook."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

from hooklab.course.build.executing import Run


class Progress:
    """Shows runs as they proceed; `progress(run, done)` is the report that `execute_all` calls."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream = stream or sys.stdout
        self.clock = clock
        self.live = self.stream.isatty()
        self.begun: dict[str, float] = {}
        self.state: dict[str, str] = {}

    def __call__(self, run: Run, done: int) -> None:
        total = len(run.notebook.cells)
        if run.label not in self.begun:
            self.begun[run.label] = self.clock()
            if not self.live:
                self._line(f"{run.label}: running {total} cells")
        seconds = self.clock() - self.begun[run.label]
        if done < total:
            self.state[run.label] = f"{run.label} {done + 1}/{total} ({seconds:.0f} s)"
        else:
            self.state.pop(run.label, None)
            self._line(f"{run.label}: {'FAILED' if run.faults else 'ran'} in {seconds:.1f} s")
        if self.live:
            line = "   ".join(self.state.values())
            # A line that wraps could not be taken back.
            self.stream.write("\r\x1b[K" + line[: shutil.get_terminal_size().columns - 1])
            self.stream.flush()

    def _line(self, text: str) -> None:
        self.stream.write(("\r\x1b[K" if self.live else "") + text + "\n")
        self.stream.flush()
