"""Report: what a build is doing, on a terminal as one line that changes, elsewhere as a line per notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

from hooklab.course.build.executing import Run
from hooklab.course.progress import Progress


class Report:
    """Shows runs as they proceed; `report(run, done)` is what `execute_all` calls."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.progress = Progress(stream or sys.stdout, every=float("inf"))
        self.clock = clock
        self.begun: dict[str, float] = {}
        self.state: dict[str, str] = {}

    def __call__(self, run: Run, done: int) -> None:
        total = len(run.notebook.cells)
        if run.label not in self.begun:
            self.begun[run.label] = self.clock()
            if not self.progress.live:
                self.progress.say(f"{run.label}: running {total} cells")
        seconds = self.clock() - self.begun[run.label]
        if done < total:
            self.state[run.label] = f"{run.label} {done + 1}/{total} ({seconds:.0f} s)"
        else:
            self.state.pop(run.label, None)
            self.progress.say(f"{run.label}: {'FAILED' if run.faults else 'ran'} in {seconds:.1f} s")
        self.progress.show("   ".join(self.state.values()))
