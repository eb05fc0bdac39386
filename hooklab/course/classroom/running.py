"""Running: the program in the sandbox. It runs a student's notebook cell by cell, as a kernel does, and checks.

An answer is what the student's own call of `check` is given, checked at the moment of the call. Where the notebook has
no such call (any more), it is what the answer's name stands for at the end. After each "correct", wrong answers of the
same exercise are checked in the same process: a check that has been tampered with lets them pass.

Standard input has a job, as one line of JSON. Each message to the grader is a line that begins with the job's token.
"""

from __future__ import annotations

import builtins
import functools
import json
import os
import random
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import hooklab
import hooklab.course.exercises
from hooklab.course.classroom.lessons import wrong_answers
from hooklab.course.classroom.pointing import UNSEEN, pointed_out
from hooklab.course.classroom.reading import Cell, cell_defining
from hooklab.course.classroom.sandbox import Limits, limit_this_process
from hooklab.course.exercises import attempt
from hooklab.course.exercises.faults import TookTooLong, cut
from hooklab.course.exercises.frames import first_words, kind_of, learners_line
from hooklab.course.exercises.outcome import Outcome
from hooklab.course.exercises.patches import Patches
from hooklab.course.exercises.stopping import stopped_after

CANARIES = 5  # wrong answers of an exercise, which are tried after a right one
MOST_LINES = 20_000  # characters of an answer
_RUN_PYTHON = frozenset(["capture", "prun", "time", "timeit"])  # magics that run a student's own code
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{4,}")
_TOO_LONG = re.compile(r"(was stopped after) [\d.e+]+ seconds(, at line .*)?")
Send = Callable[[dict[str, Any]], None]


class Shell(InteractiveShell):
    """IPython as in a kernel; but commands do nothing, nor do magics, except those that run Python."""

    def run_line_magic(self, magic_name: str, line: str, _stack_depth: int = 1) -> Any:
        """Run a magic such as `%time`; others do nothing."""
        return super().run_line_magic(magic_name, line, _stack_depth + 1) if magic_name in _RUN_PYTHON else None

    def run_cell_magic(self, magic_name: str, line: str, cell: str) -> Any:
        """Run a magic such as `%%time`; the cells of others are not run."""
        is_run = magic_name in _RUN_PYTHON
        return super().run_cell_magic(magic_name, line, cell) if is_run else None  # type: ignore[no-untyped-call]

    def _nothing(self, *args: Any, **options: Any) -> None:
        """For commands, and for tracebacks: nobody sees them, and writing them takes time."""

    system = getoutput = showtraceback = showsyntaxerror = _nothing


class Run:
    """A notebook that runs: which cell is next, and what the checks have found."""

    def __init__(self, job: dict[str, Any], send: Send) -> None:
        self.cells = [Cell(*cell) for cell in job["cells"]]
        self.answers: dict[str, str] = job["answers"]  # exercise id -> the name of its answer
        self.behind: int = job["behind"]  # the checks up to this cell were made by an earlier process, which has ended
        self.skipped: list[int] = job["skipped"]
        self.seconds: float = job["limits"]["seconds"]
        self.send = send
        self.states: dict[str, str] = job["states"]  # what was found, by exercise
        self.troubles: dict[int, str] = {}  # by the number of a cell, why it did not come to its end
        self._now = 0  # the number of the cell that runs
        self._is_checking = False
        self._canaries: dict[str, list[tuple[str, Any]]] = {}  # wrong answers, each with its label
        wrong = wrong_answers(job["lesson"])
        for id in self.answers:
            attempt(id, _stub)  # loads the check
            self._canaries[id] = chosen_canaries(wrong.get(id, {}), job["salt"])
        hooklab.check = hooklab.course.exercises.check = self.check
        self._shell = Shell.instance(config=Config(HistoryManager={"enabled": False}))
        self._space: dict[str, Any] = self._shell.user_ns
        for name in ("exit", "quit"):  # IPython hides these while a cell runs
            self._shell.builtin_trap.auto_builtins.pop(name, None)
        self._clean, self._builtins = Patches(), dict(vars(builtins))

    def all_cells(self) -> None:
        """Run the cells in order; then check the answers that no call has checked."""
        for cell in self.cells:
            if cell.number not in self.skipped:
                self._run(cell)
        self.send({"cell": 0})  # after the last one
        self._now = len(self.cells) and self.cells[-1].number
        with self._shell.builtin_trap:
            for id, name in self.answers.items():
                self._at_the_end(id, name)

    def check(self, id: str, answer: Any, **options: Any) -> None:
        """What a student's `check("3.1", answer)` calls. An answer that calls it, while it is checked, gets nothing."""
        if not self._is_checking and str(id) in self.answers and self._now > self.behind:
            self._judge(str(id), answer)

    def _run(self, cell: Cell) -> None:
        self.send({"cell": cell.number})
        self._now = cell.number
        try:
            with stopped_after(6 * self.seconds):
                result = self._shell.run_cell(cell.text, store_history=True)  # type: ignore[no-untyped-call]
            error = result.error_before_exec or result.error_in_exec
        except BaseException as escaped:
            error = escaped
        if error is not None:
            self.troubles[cell.number] = f"cell {cell.number} {_trouble(error)}"
        if isinstance(error, TookTooLong):
            self.send({"note": self.troubles[cell.number]})

    def _at_the_end(self, id: str, name: str) -> None:
        if self.states.get(id, "not attempted") != "not attempted":
            return
        if name in self._space:
            self._judge(id, self._space[name], f"{UNSEEN}: it counts as it is at the end")
        elif id not in self.states:
            outcome = Outcome(id, "not attempted", f"no definition of {name} in this notebook")
            where = cell_defining(name, [cell for cell in self.cells if cell.number in self.troubles])
            if where.number:
                outcome = Outcome(id, "not yet", f"{name} is not defined: {self.troubles[where.number]}")
            self._tell(outcome, where, [], [])

    def _judge(self, id: str, answer: Any, note: str = "") -> None:
        notes = [f"replaces {one}: it was put back before the check" for one in self._put_back()[:3]]
        outcome, passed = self._attempt(id, answer), list[str]()
        if note and outcome.state != "not attempted":
            notes.insert(0, note)
        if outcome.state == "correct":
            tried = self._canaries[id]
            passed = [label for label, wrong in tried if self._attempt(id, wrong).state != "not yet"]
        where = cell_defining(self.answers[id], [cell for cell in self.cells if cell.number <= self._now])
        self._tell(outcome, where, notes, passed)

    def _attempt(self, id: str, answer: Any) -> Outcome:
        self.send({"checking": id})
        self._is_checking = True
        try:
            return attempt(id, answer, seconds=self.seconds)
        except KeyboardInterrupt:  # nobody sits at a keyboard here
            return Outcome(id, "not yet", f"{self.answers[id]} raised KeyboardInterrupt")
        finally:
            self._is_checking = False

    def _tell(self, outcome: Outcome, where: Cell, notes: list[str], passed: list[str]) -> None:
        self.states[outcome.id] = outcome.state
        details = [(label, steady(text)) for label, text in outcome.details]
        said = {"id": outcome.id, "state": outcome.state, "summary": steady(outcome.summary), "details": details}
        about = {"cell": where.number, "lines": cut(where.text, MOST_LINES), "passed": passed}
        self.send({"outcome": said | about | {"notes": [cut(note, 200) for note in notes]}})

    def _put_back(self) -> list[str]:
        """Put back all that was replaced of builtins, torch and hooklab; return the names."""
        now = vars(builtins)  # first of all, since all that follows uses them
        names = [name for name, value in self._builtins.items() if now.get(name) is not value and name != "_"]
        now.update({name: self._builtins[name] for name in names})
        return [*(f"builtins.{name}" for name in names), *self._clean.undo()]


def chosen_canaries(wrong: dict[str, Any], salt: str) -> list[tuple[str, Any]]:
    """Return the wrong answers to try, each with its label; the same salt gives the same ones."""
    return random.Random(salt).sample(sorted(wrong.items()), min(CANARIES, len(wrong)))


def steady(text: str) -> str:
    """Return an outcome's text without what differs from run to run: addresses, and where an endless loop was stopped.

    Example:
        >>> steady("f at 0x7f12ab34cd was stopped after 10 seconds, at line 3: `pass`")
        'f at 0x… was stopped: it takes too long'
    """
    return _TOO_LONG.sub("was stopped: it takes too long", _ADDRESS.sub("0x…", text))


def _stub() -> None:
    raise NotImplementedError()


def _trouble(error: BaseException) -> str:
    if isinstance(error, TookTooLong):
        return "was stopped: it takes too long"
    if isinstance(error, SyntaxError) and (error.filename or "<")[0] == "<":
        return f"is not Python: {kind_of(error)}: {error.msg}, at line {error.lineno}"
    where = learners_line(error)
    return f"raised {kind_of(error)}: {first_words(error)}" + (f", {where}" if where else "")


def channel() -> Callable[[str], None]:
    """Return a function that writes a line to what was standard output; from here on, nothing else comes in or out."""
    out, nowhere = os.fdopen(os.dup(1), "w", encoding="utf-8"), os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    return functools.partial(print, file=out, flush=True)


def main() -> None:
    """Run the job and end the process, whatever a notebook has left running in it."""
    end, encode, job = os._exit, json.dumps, json.loads(sys.stdin.readline())
    say = channel()
    try:
        torch.manual_seed(0)
        run = Run(job, lambda message: say(f"{job['token']} {encode(message)}"))
        limit_this_process(Limits(**job["limits"]))
        run.send({"pointed_out": pointed_out(run.cells, job["given"])})
        run.all_cells()
        run.send({"end": True})
    except BaseException as error:
        with suppress(BaseException):
            say(f"! {type(error).__name__}: {error}")
    finally:
        end(0)


if __name__ == "__main__":
    main()
