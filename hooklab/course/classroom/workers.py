"""Workers: fork servers for the exercises, one for each job that runs at a time, and what their answers mean."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hooklab.course.classroom.confinement import PACKAGES, Limits
from hooklab.course.classroom.lessons import ROOT, Exercise
from hooklab.course.classroom.reading import Cell

CHECKED = ("correct", "not yet", "not attempted")
STOPPED, TAMPERED = "stopped", "tampered"
# Why a process said no more -> what the student reads, and the teacher
ENDINGS = {
    "deadline": ("it takes longer than {limits.deadline:g} seconds, whatever is done to stop it", "was stopped"),
    "processes": ("it starts more than {limits.processes} processes", "starts processes without end: was stopped"),
    "ended": ("the process ended before the check did", "ends its own process, or was killed for taking too much"),
}
# What walks from an answer to the grader's own frames and variables. No exercise needs it, and no "correct" counts that
# comes with it.
REACHING = {"_getframe", "cell_contents", "cr_frame", "currentframe", "f_back", "f_globals", "f_locals"}
REACHING |= {"get_objects", "get_referrers", "gi_frame", "setprofile", "settrace", "tb_frame", "walk_stack", "walk_tb"}
# What a child says, in this order: before the student's code runs, the outcome, and which canaries passed.
FIELDS: tuple[dict[str, type], ...] = (
    {"held": list, "cell": int, "lines": str, "notes": list, "uses": list},
    {"state": str, "text": str, "likely": str, "notes": list},
    {"passed": list},
)


@dataclass(frozen=True)
class Verdict:
    """What came of one exercise of one student.

    `state` is a check's (correct, not yet, not attempted), or "stopped" when the process had to be ended or ended
    itself, or "tampered" when the check could not be trusted any more. `text` is what the check said, `likely` its
    guess at the misconception, `lines` the student's cell, `notes` what the teacher is told.
    """

    state: str
    text: str
    likely: str = ""
    cell: int = 0
    lines: str = ""
    notes: tuple[str, ...] = ()


class Worker:
    """A fork server of its own, started when there is something to grade, and again if it has died.

    `held` are the protections that held for all of its exercises; None before the first.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.held: set[str] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[str] | None = None
        self._closed = False

    def close(self) -> None:
        """End the server, and the exercise that it is at."""
        self._closed = True
        self._end()
        if self._folder:
            self._folder.cleanup()

    def grade(self, exercise: Exercise, cells: Sequence[Cell], salt: str) -> Verdict:
        """Grade one exercise of one notebook, in a process of its own."""
        verdict = self._grade(exercise, cells, salt, whole=False)
        if verdict.state == "not yet" and "NameError" in verdict.text:  # defined in a way that no reading of it finds
            whole = self._grade(exercise, cells, salt, whole=True)
            if whole.state in ("correct", TAMPERED):
                return whole
        return verdict

    def _grade(self, exercise: Exercise, cells: Sequence[Cell], salt: str, whole: bool) -> Verdict:
        job = {
            "id": exercise.id,
            "answer": exercise.answer,
            "cells": [(cell.number, cell.text, cell.grade_id) for cell in cells],
            "salt": salt,
            "seconds": self.limits.seconds,
            "whole": whole,
            "readable": [str(ROOT / "hooklab")],
        }
        reply = self._ask(job)
        if reply is None:
            self._end()
            return Verdict(STOPPED, "the grader's process was killed", notes=("kills other processes",))
        verdict, held = understood(reply["said"], reply["why"], self.limits)
        self.held = held if self.held is None else self.held & held if held else self.held
        return verdict

    def _ask(self, job: dict[str, Any]) -> dict[str, Any] | None:
        """Return the server's reply, None if it has died."""
        if self._closed:
            raise RuntimeError("this worker was closed")
        process = self._process = self._process or self._start()
        assert process.stdin
        assert process.stdout
        assert self._folder
        path = Path(self._folder.name, "job.json")
        path.write_text(json.dumps(job), encoding="utf-8")
        try:
            asked = {"path": str(path), "lesson": int(job["id"].split(".")[0]), "limits": asdict(self.limits)}
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            reply: dict[str, Any] | None = json.loads(line) if line else None
        except (OSError, ValueError):
            return None
        return reply

    def _end(self) -> None:
        if self._process:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):
                    stream.close() if stream else None
        self._process = None

    def _start(self) -> subprocess.Popen[str]:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="hooklab-grade-", ignore_cleanup_errors=True)
        scratch = Path(self._folder.name, "scratch")
        scratch.mkdir(exist_ok=True)
        packages = scratch.with_name(PACKAGES)
        packages.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError):
            (packages / "hooklab").symlink_to(ROOT / "hooklab")
        scratch.parent.chmod(0o711)
        # A clean interpreter: the teacher's copy of hooklab first, and nothing from where the submissions are.
        code = (
            f"import sys; sys.path.insert(0, {str(ROOT)!r}); from hooklab.course.classroom.server import main; main()"
        )
        names = ("PATH", "LANG", "HOME", "SYSTEMROOT", "VIRTUAL_ENV")
        environment = {name: os.environ[name] for name in names if name in os.environ}
        environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "MPLBACKEND": "Agg"}
        return subprocess.Popen(
            [sys.executable, "-P", "-c", code, str(scratch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            cwd=self._folder.name,
            env=environment,
            start_new_session=True,
        )


def understood(said: Sequence[str], why: str, limits: Limits) -> tuple[Verdict, set[str]]:
    """Return what a child's lines mean, and which protections it reported.

    Only lines that begin with the token of the first one, and have the form of the grader's own, are the grader's; any
    other means that the student's code has written where it has nothing to write.
    """
    first, outcome, tried, is_foreign = _messages(said)
    if first is None:
        why = said[0][:200] if said else "no answer"
        return Verdict(STOPPED, f"the grader itself could not begin: {why}", notes=("not graded: look at it",)), set()
    outcome = outcome or {}
    notes = [*first["notes"], *outcome.get("notes", [])]
    if first["uses"]:
        notes.append(f"uses {', '.join(first['uses'])}: have a look")
    about = {"cell": first["cell"], "lines": first["lines"], "likely": outcome.get("likely", "")}
    held = set(first["held"])
    if is_foreign or why == "flood":
        notes.insert(0, "writes into the grader's own channel: look at this answer")
        return Verdict(TAMPERED, outcome.get("text", "no verdict"), notes=tuple(notes), **about), held
    if outcome.get("state") == "correct" and (doubt := _doubt(tried, REACHING.intersection(first["uses"]))):
        return Verdict(TAMPERED, outcome["text"], notes=(doubt, *notes), **about), held
    if not outcome:
        text, note = ENDINGS[why]
        notes.append(note)
        return Verdict(STOPPED, text.format(limits=limits), notes=tuple(notes), **about), held
    return Verdict(outcome["state"], outcome["text"], notes=tuple(notes), **about), held


Message = dict[str, Any] | None


def _doubt(tried: Message, reaching: set[str]) -> str:
    """Return why a "correct" is not to be trusted, or ""."""
    if tried is None:
        return "the process ended before its check could be tried with a wrong answer: look at it"
    if tried["passed"]:
        return f"the check accepts a wrong answer ({tried['passed'][0]}) after this one: look at it"
    return f"looks into the grader's own frames ({min(reaching)}): look at it" if reaching else ""


def _messages(said: Sequence[str]) -> tuple[Message, Message, Message, bool]:
    """Return the three messages of a child, None for one that did not come, and whether anything else was said."""
    token = said[0].split(" ", 1)[0] if said else ""
    found: list[Message] = []
    for line in said:
        whose, _, text = line.partition(" ")
        message = _message(text, len(found)) if whose == token else None
        if message is None:
            break
        found.append(message)
    is_foreign = len(found) < len(said)
    return (*(found + [None] * 3)[:3], is_foreign)  # type: ignore[return-value]


def _message(text: str, place: int) -> Message:
    """Return a message, None where it has not the form of the one that belongs to this place."""
    try:
        message = json.loads(text)
        fields = FIELDS[place]
    except (ValueError, IndexError, RecursionError):
        return None
    if not isinstance(message, dict) or message.keys() != fields.keys():
        return None
    is_right = all(isinstance(message[name], kind) for name, kind in fields.items())
    lists = [value for value in message.values() if isinstance(value, list)]
    is_right = is_right and all(isinstance(one, str) for value in lists for one in value)
    return message if is_right and message.get("state", "correct") in CHECKED else None
