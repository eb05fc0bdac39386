"""Verdicts: the result of each exercise of a notebook, which runs in a process of its own.

If a cell or a check hangs, or ends that process, a new process runs the notebook without this cell and checks the
exercises after it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import psutil

from hooklab.course.classroom import sandbox
from hooklab.course.classroom.lessons import Lesson, misconceptions_of
from hooklab.course.classroom.pointing import REACHING
from hooklab.course.classroom.reading import Cell, cell_defining
from hooklab.course.classroom.sandbox import Limits

CHECKED = ("correct", "not yet", "not attempted")
STOPPED, TAMPERED = "stopped", "tampered"
# Reasons that say nothing about what was understood.
NO_MISCONCEPTION = {TAMPERED: "tampered with the check", STOPPED: "had to be stopped"}
# Why a process stopped sending -> what it did, in words for student and teacher
ENDINGS = {
    "deadline": "takes too long, whatever is done to stop it",
    "processes": "starts processes without end",
    "ended": "ends its own process, or was killed for taking too much",
}
FOREIGN = "writes into the grader's own channel: look at this answer"
_MOST_PROCESSES = 5  # for one notebook
_MOST_SAID = 2_000_000  # bytes, without an end of the line
_UNTIL_IT_BEGINS = 300.0  # seconds: torch may come from a slow disk


@dataclass(frozen=True)
class Verdict:
    """The result of one student's exercise.

    `state` is a check's (correct, not yet, not attempted), or "stopped" when the process had to be ended or ended
    itself, or "tampered" when the check could not be trusted any more, or "not handed in". `summary` and `details` are
    what the check said, `lines` the student's cell, `notes` what the teacher reads. Where the teacher has decided,
    `state`, `points` and `remark` are theirs.
    """

    state: str
    summary: str = ""
    details: Sequence[tuple[str, str]] = ()
    cell: int = 0
    lines: str = ""
    notes: tuple[str, ...] = ()
    points: int = 0
    remark: str = ""
    is_decided: bool = False

    @property
    def likely(self) -> str:
        """The check's guess at the misconception; "" for none."""
        return dict(self.details).get("likely", "")

    @property
    def reason(self) -> str:
        """Why an answer is not correct; "" for a correct one and for one not attempted.

        Example:
            >>> Verdict("not yet", "3 entries", [("likely", "A `return` is missing. Add it.")]).reason
            'A `return` is missing.'
        """
        if self.state not in ("not yet", *NO_MISCONCEPTION):
            return ""
        return NO_MISCONCEPTION.get(self.state) or self._likely()[0] or self.summary

    @property
    def advice(self) -> str:
        """What the guess at the misconception says to do about it, after what an answer does; "" for nothing."""
        return self._likely()[-1]

    def _likely(self) -> list[str]:
        return [*re.split(r"(?<=[.?!]) (?=[A-Z`])", " ".join(self.likely.split()), maxsplit=1), ""][:2]


class Interrupted(Exception):
    """The teacher has interrupted the run."""


@dataclass
class _Heard:
    """What the processes of a notebook have said so far: `cell` and `checking` are where the last one is."""

    verdicts: dict[str, Verdict] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    begun: bool = False
    reaching: str = ""  # what looks into the grader's own frames
    cell: int = 0
    checking: str = ""

    def take(self, message: dict[str, Any]) -> bool:
        """Take a message; return whether it is the last one. Raises KeyError, TypeError and so on for no message."""
        ((kind, value),) = message.items()
        if kind == "pointed_out":
            if not self.begun:  # else an earlier process has said it
                uses = "; ".join(f"cell {number} uses {', '.join(names)}" for number, names in value.items())
                self.notes += [f"{uses}: have a look"] if uses else []
                self.reaching = ", ".join(name for names in value.values() for name in names if name in REACHING)
                self.begun = True
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
        why = f"looks into the grader's own frames ({self.reaching})" if self.reaching else ""
        if passed:
            why = f"the check accepts a wrong answer ({passed[0]}) after this one"
        if state == "correct" and why:
            state, notes = TAMPERED, [why, *notes]
        return Verdict(state, notes=tuple(notes), **about)


def grade_notebook(
    lesson: Lesson, cells: Sequence[Cell], salt: str, limits: Limits, interrupted: threading.Event | None = None
) -> tuple[dict[str, Verdict], list[str]]:
    """Run a notebook; return the verdicts on a lesson's exercises and the teacher's notes on the whole notebook.

    `salt` chooses which wrong answers each check is tried with. When `interrupted` is set, Interrupted is raised.
    """
    heard = _Heard()
    job: dict[str, Any] = {
        "lesson": lesson.number,
        "answers": {one.id: one.answer for one in lesson.exercises},
        "cells": [(cell.number, cell.text) for cell in cells],
        "given": [cell.text for cell in lesson.cells],
        "limits": asdict(limits),
        "salt": salt,
        "behind": 0,
        "skipped": [],
    }
    state, text = STOPPED, "too many cells of this notebook hang or end their process"
    for _ in range(_MOST_PROCESSES):
        heard.cell, heard.checking = 0, ""
        states = {id: one.state for id, one in heard.verdicts.items()}
        why, said = _listen(job | {"states": states}, limits, heard, interrupted)
        if why == "end":
            break
        if not heard.begun:
            text = f"the grader itself could not begin: {said[:200] or why}"
            break
        if why == "foreign":
            state, text = TAMPERED, FOREIGN
            break
        if id := heard.checking:
            where, notes = cell_defining(job["answers"][id], cells), (f"its answer {ENDINGS[why]}",)
            summary = f"your answer {ENDINGS[why]}"
            heard.verdicts[id] = Verdict(STOPPED, summary, (), where.number, where.text[:20_000], notes)
        else:
            heard.notes.append(f"cell {heard.cell} {ENDINGS[why]}: it was left out, and what is behind it was run")
        job["skipped"] = [*job["skipped"], heard.cell]
        job["behind"] = heard.cell or 10**9
    undecided = Verdict(state, text, notes=(text,))
    found = {one.id: heard.verdicts.get(one.id, undecided) for one in lesson.exercises}
    points = {one.id: one.points for one in lesson.exercises if found[one.id].state == "correct"}
    return {id: replace(one, points=points.get(id, 0)) for id, one in found.items()}, heard.notes


def _listen(job: dict[str, Any], limits: Limits, heard: _Heard, interrupted: threading.Event | None) -> tuple[str, str]:
    """Run a job; return why its process stopped sending ("end", "foreign" or one of ENDINGS), and what it said last."""
    token = secrets.token_hex(8)
    with tempfile.TemporaryDirectory(prefix="hooklab-grade-", ignore_cleanup_errors=True) as scratch:
        readable = misconceptions_of(job["lesson"])
        process = sandbox.start("hooklab.course.classroom.running", limits, readable, scratch)
        assert process.stdin
        assert process.stdout
        try:
            with contextlib.suppress(OSError):
                process.stdin.write(json.dumps(job | {"token": token}).encode() + b"\n")
                process.stdin.flush()
            data, began, used = b"", time.monotonic(), 0.0
            while True:
                if interrupted and interrupted.is_set():
                    raise Interrupted
                running, seconds = _processes(process.pid)
                if running > limits.processes:
                    return "processes", ""
                most = _UNTIL_IT_BEGINS
                if heard.cell or heard.checking:
                    # longer than the process itself gives: this is for what it cannot stop
                    most = limits.seconds * (4 if heard.checking else 20)
                wall, cpu = time.monotonic() - began, seconds - used
                if wall > most and (cpu > most / 2 or cpu < wall / 50 or wall > 10 * most):  # busy, asleep, or lost
                    return "deadline", ""
                if not select.select([process.stdout], [], [], 0.1)[0]:
                    continue
                chunk = os.read(process.stdout.fileno(), 65536)
                if not chunk:
                    return "foreign" if data else "ended", ""
                *lines, data = (data + chunk).split(b"\n")
                if len(data) > _MOST_SAID:
                    return "foreign", ""
                for line in lines:
                    began, used = time.monotonic(), seconds
                    text = line.decode("utf-8", "replace")
                    try:
                        assert text.startswith(f"{token} ")
                        if heard.take(json.loads(text.removeprefix(f"{token} "))):
                            return "end", ""
                    except (ValueError, KeyError, TypeError, AttributeError, AssertionError, RecursionError):
                        return "foreign", text
        finally:
            _end(process)


def _processes(parent: int) -> tuple[int, float]:
    """Return how many processes a process and those below it are, and the time that they have had on a processor."""
    running, seconds = list[psutil.Process](), 0.0
    with contextlib.suppress(psutil.Error):
        running = [psutil.Process(parent), *psutil.Process(parent).children(recursive=True)]
    for one in running:
        with contextlib.suppress(psutil.Error):
            seconds += sum(one.cpu_times()[:2])
    return len(running), seconds


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            stream.close()  # type: ignore[union-attr]
