"""Verdicts: the result of each exercise of a notebook, which runs in a process of its own.

If a cell or a check hangs, or ends that process, a new process runs the notebook without this cell and checks the
exercises after it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hooklab.course.classroom import sandbox
from hooklab.course.classroom.lessons import Exercise, Lesson, misconceptions_of
from hooklab.course.classroom.pointing import REACHING
from hooklab.course.classroom.reading import Cell
from hooklab.course.classroom.sandbox import Limits, processor_seconds

CHECKED = ("correct", "not yet", "not attempted")
STOPPED, TAMPERED = "stopped", "tampered"
# Why a process stopped sending -> what it did, in words for student and teacher
ENDINGS = {
    "deadline": "takes too long, whatever is done to stop it",
    "processes": "starts processes without end",
    "ended": "ends its own process, or was killed for taking too much",
}
FOREIGN = "writes into the grader's own channel: look at this answer"
_MOST_PROCESSES = 5  # for one notebook
_MOST_SAID = 2_000_000  # bytes
_UNTIL_IT_BEGINS = 300.0  # seconds: torch may come from a slow disk


@dataclass(frozen=True)
class Verdict:
    """The result of one student's exercise.

    `state` is a check's (correct, not yet, not attempted), or "stopped" when the process had to be ended or ended
    itself, or "tampered" when the check could not be trusted any more. `text` is what the check said, `likely` its
    guess at the misconception, `lines` the student's cell, `notes` what the teacher reads. Where the teacher has
    decided, `state`, `points` and `remark` are theirs.
    """

    state: str
    text: str
    likely: str = ""
    cell: int = 0
    lines: str = ""
    notes: tuple[str, ...] = ()
    points: int | None = None
    remark: str = ""
    is_decided: bool = False


def points_of(exercise: Exercise, verdict: Verdict | None) -> int:
    """Return the points for an exercise: the teacher's, else all for "correct", and else none."""
    if verdict is not None and verdict.points is not None:
        return verdict.points
    return exercise.points if verdict is not None and verdict.state == "correct" else 0


class Interrupted(Exception):
    """The teacher has interrupted the run."""


@dataclass
class _Heard:
    """What the processes of a notebook have said so far: `cell` and `checking` are where the last one is."""

    verdicts: dict[str, Verdict] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    pointed_out: dict[int, list[str]] | None = None
    cell: int = 0
    checking: str = ""

    def take(self, message: dict[str, Any]) -> bool:
        """Take a message; return whether it is the last one. Raises KeyError, TypeError and so on for no message."""
        ((kind, value),) = message.items()
        if kind == "pointed_out":
            self.pointed_out = {int(number): list(names) for number, names in value.items()}
        elif kind == "cell":
            self.cell, self.checking = int(value), ""
        elif kind == "note":
            self.notes += [] if value in self.notes else [str(value)]
        elif kind == "checking":
            self.checking = str(value)
        elif kind == "outcome":
            self.verdicts[self.checking or str(value["id"])] = self._verdict(**value)
            self.checking = ""
        else:
            return bool(message["end"])
        return False

    def _verdict(self, *, id: str, state: str, passed: list[str], notes: list[str], **about: Any) -> Verdict:
        if state not in CHECKED or id != (self.checking or id):
            raise ValueError(state)
        uses = (self.pointed_out or {}).get(about["cell"], [])
        if uses:
            notes = [*notes, f"uses {', '.join(uses)}: have a look"]
        if state == "correct" and passed:
            state, notes = TAMPERED, [f"the check accepts a wrong answer ({passed[0]}) after this one", *notes]
        elif state == "correct" and (reaching := REACHING.intersection(uses)):
            state, notes = TAMPERED, [f"looks into the grader's own frames ({min(reaching)})", *notes]
        return Verdict(state=state, notes=tuple(notes), **about)


def grade_notebook(
    lesson: Lesson, cells: Sequence[Cell], salt: str, limits: Limits, interrupted: threading.Event | None = None
) -> tuple[dict[str, Verdict], list[str]]:
    """Run a notebook; return the verdicts on a lesson's exercises and the teacher's notes on the whole notebook.

    `salt` chooses which wrong answers each check is tried with. When `interrupted` is set, Interrupted is raised.
    """
    heard = _Heard()
    job: dict[str, Any] = {
        "answers": {one.id: one.answer for one in lesson.exercises},
        "cells": [(cell.number, cell.text, cell.grade_id) for cell in cells],
        "given": [cell.text for cell in lesson.cells],
        "seconds": limits.seconds,
        "limits": asdict(limits),
        "salt": salt,
        "behind": 0,
        "skipped": [],
    }
    for _ in range(_MOST_PROCESSES):
        heard.cell, heard.checking = 0, ""
        states = {id: one.state for id, one in heard.verdicts.items()}
        why, said = _listen(job | {"states": states}, lesson.number, limits, heard, interrupted)
        if why == "end":
            break
        if heard.pointed_out is None:
            return _all_undecided(lesson, heard, STOPPED, f"the grader itself could not begin: {said[:200] or why}")
        if why == "foreign":
            return _all_undecided(lesson, heard, TAMPERED, FOREIGN)
        if heard.checking:
            text, name = f"■ {heard.checking}: your answer {ENDINGS[why]}", job["answers"][heard.checking]
            there = [cell for cell in cells if f"def {name}" in cell.text or f"class {name}" in cell.text]
            where, about_it = there[-1] if there else Cell(0, ""), (f"its answer {ENDINGS[why]}",)
            stopped = Verdict(STOPPED, text, cell=where.number, lines=where.text[:20_000], notes=about_it)
            heard.verdicts[heard.checking] = stopped
        else:
            heard.notes.append(f"cell {heard.cell} {ENDINGS[why]}: it was left out, and what is behind it was run")
        job["skipped"] = [*job["skipped"], heard.cell]
        job["behind"] = heard.cell or 10**9
    found, notes = _all_undecided(lesson, heard, STOPPED, "too many cells of this notebook hang or end their process")
    own = {one.cell for one in found.values()}
    uses = [
        f"cell {cell} uses {', '.join(names)}" for cell, names in (heard.pointed_out or {}).items() if cell not in own
    ]
    return found, notes + uses


def _all_undecided(lesson: Lesson, heard: _Heard, state: str, text: str) -> tuple[dict[str, Verdict], list[str]]:
    undecided = Verdict(state, text, notes=(text,))
    return {one.id: heard.verdicts.get(one.id, undecided) for one in lesson.exercises}, heard.notes


def _listen(
    job: dict[str, Any], lesson: int, limits: Limits, heard: _Heard, interrupted: threading.Event | None
) -> tuple[str, str]:
    """Run a job; return why its process stopped sending ("end", "foreign" or one of ENDINGS), and what it said last."""
    token = secrets.token_hex(8)
    with tempfile.TemporaryDirectory(prefix="hooklab-grade-", ignore_cleanup_errors=True) as scratch:
        process = _start(lesson, limits, scratch)
        assert process.stdin
        assert process.stdout
        try:
            with contextlib.suppress(OSError):
                process.stdin.write(json.dumps(job | {"token": token}).encode() + b"\n")
                process.stdin.flush()
            data, said, began, used = b"", 0, time.monotonic(), 0.0
            while True:
                if interrupted and interrupted.is_set():
                    raise Interrupted
                running = [process.pid, *sandbox.descendants(process.pid)]
                if len(running) > limits.processes:
                    return "processes", ""
                wall, cpu, most = time.monotonic() - began, processor_seconds(running) - used, _patience(heard, limits)
                if wall > most and (cpu > most / 2 or cpu < wall / 50 or wall > 10 * most):  # busy, asleep, or lost
                    return "deadline", ""
                if not select.select([process.stdout], [], [], 0.1)[0]:
                    continue
                chunk = os.read(process.stdout.fileno(), 65536)
                if not chunk:
                    return ("foreign", "") if data else ("ended", "")
                *lines, data = (data + chunk).split(b"\n")
                said += len(chunk)
                if said > _MOST_SAID:
                    return "foreign", ""
                for line in lines:
                    began, used = time.monotonic(), processor_seconds(running)
                    text = line.decode("utf-8", "replace")
                    try:
                        assert text.startswith(f"{token} ")
                        if heard.take(json.loads(text.removeprefix(f"{token} "))):
                            return "end", ""
                    except (ValueError, KeyError, TypeError, AttributeError, AssertionError, RecursionError):
                        return "foreign", text
        finally:
            _end(process)


def _patience(heard: _Heard, limits: Limits) -> float:
    """Longer than the process itself gives to a check and to a cell: this is for what it cannot stop."""
    if heard.pointed_out is None or not (heard.cell or heard.checking):
        return _UNTIL_IT_BEGINS
    return limits.seconds * (4 if heard.checking else 20)


def _start(lesson: int, limits: Limits, scratch: str) -> subprocess.Popen[bytes]:
    folder = sandbox.SCRATCH if sandbox.bubblewrap()[0] else scratch
    python = ["-P", "-m", "hooklab.course.classroom.running"]
    return subprocess.Popen(
        sandbox.command(python, limits, [misconceptions_of(lesson)]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=scratch,
        env=sandbox.environment(folder),
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in filter(None, (process.stdin, process.stdout)):
        with contextlib.suppress(OSError):
            stream.close()
