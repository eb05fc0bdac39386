"""check and progress: what a learner calls; attempt: the same without showing anything.

The outcome is displayed as text and, in JupyterLab, as a small box. A grader that sets NBGRADER_EXECUTION gets an
AssertionError with the same text instead, for everything that is not correct.
"""

from __future__ import annotations

import html
import linecache
import sys
from contextlib import nullcontext, redirect_stderr
from typing import Any

from hooklab.course import words
from hooklab.course.exercises.exercise import Exercise, exercises_of, find
from hooklab.course.exercises.faults import NotYet, StillTheStub, TookTooLong, fault
from hooklab.course.exercises.frames import kind_of, learners_line
from hooklab.course.exercises.guards import global_hooks_set_aside
from hooklab.course.exercises.judge import judge
from hooklab.course.exercises.outcome import COLOUR, MARK, Outcome, State, show
from hooklab.course.exercises.patches import AT_IMPORT, Patches
from hooklab.course.exercises.predict import counted
from hooklab.course.exercises.state import usual_state
from hooklab.course.exercises.stopping import stopped_after
from hooklab.course.exercises.stubs import is_stub
from hooklab.course.exercises.trial import Trial
from hooklab.course.graded import by_nbgrader

# What was found in this process, by exercise id: the memory of progress().
_found: dict[str, State] = {}


def check(id: str, answer: Any, *, seconds: float | None = 10.0) -> None:
    """Check an exercise's answer and show the outcome: not attempted, not yet, or correct.

    Args:
        id: the exercise's id, such as "2.1".
        answer: the function (or class) that the exercise asks for; not the result of calling it.
        seconds: when the answer is stopped (later where others use the machine as well); None: never. A long call of C
            code cannot be stopped.

    Raises:
        LookupError: there is no such exercise; those of its lesson are named.
        AssertionError: only for a grader (a non-empty NBGRADER_EXECUTION), when the answer is not correct.

    Example:
        >>> def leaves(named):
        ...     raise NotImplementedError()
        >>> check("1.1", leaves)  # doctest: +ELLIPSIS
        ○ 1.1 not attempted: ...
    """
    # nbgrader gives no points to a graded cell that has written to stderr, as a warning does.
    with redirect_stderr(sys.stdout) if by_nbgrader() else nullcontext():
        outcome = attempt(str(id), answer, seconds=seconds)
    _found[outcome.id] = outcome.state
    if by_nbgrader() and outcome.state != "correct":
        raise AssertionError(str(outcome))
    show(str(outcome), outcome.as_html())


def attempt(id: str, answer: Any, *, seconds: float | None = 10.0) -> Outcome:
    """Run the check of exercise `id` on an answer and return the outcome, showing nothing.

    Raises LookupError for an unknown id. The check runs in the usual state of torch (gradient mode on, float32, no
    autocast, no global hooks …). Afterwards the state of the process is as it was before. The outcome's notes
    list what was unusual and what the answer changed.
    """
    one = find(id)
    linecache.cache.pop("<string>", None)  # there Python 3.13 puts the program of `python -c`, not what `exec` runs
    if is_stub(answer):
        todo = "write your code in place of `raise NotImplementedError()`, run that cell, then this one"
        return Outcome(one.id, "not attempted", todo)
    trial, patches = Trial(answer), Patches()
    try:
        found = _found_by(one, trial, seconds)
    finally:
        replaced = patches.undo()
    if replaced:
        found = fault("replaced", what=", ".join(replaced[:3]), owner=replaced[0].split(".")[0])
    notes = tuple(("note", note) for note in dict.fromkeys(trial.notes))
    if found is None:
        return Outcome(one.id, "correct", one.verified, notes)
    earlier = [("note", f"{name} is not what it was when the checks were loaded") for name in AT_IMPORT.found()[:3]]
    return Outcome(one.id, "not yet", found.missing, (*found.details, *notes, *earlier))


def _found_by(one: Exercise, trial: Trial, seconds: float | None) -> NotYet | None:
    """Return what is not yet right about an answer, or None."""
    if not callable(trial.answer):
        kind = "None" if trial.answer is None else f"a {kind_of(trial.answer)}"
        return fault("result-instead", id=one.id, got=kind)
    try:
        with stopped_after(seconds), usual_state(trial.notes), global_hooks_set_aside(trial.notes):
            return judge(one, trial)
    except StillTheStub:
        return fault("stub-line")
    except TookTooLong as error:
        words = {"seconds": f"{error.seconds:.2g}", "line": learners_line(error), "id": one.id, "name": trial.name}
        return fault("too-long", **words)


def progress(lesson: int | None = None) -> None:
    """Show which exercises of a lesson are correct in this kernel, and how many of its guesses were made and right.

    Args:
        lesson: the lesson's number; by default the lesson of the check that ran last.

    Raises LookupError for a lesson that has no exercises.
    """
    if lesson is None:
        if not _found:
            show("No check has run in this kernel yet.", "<div>No check has run in this kernel yet.</div>")
            return
        lesson = int(list(_found)[-1].split(".")[0])
    found = [(one.id, one.title, _found.get(one.id)) for one in exercises_of(lesson)]
    done = sum(state == "correct" for *_, state in found)
    head = "; ".join(filter(None, [f"Lesson {lesson}: {done} of {len(found)} exercises correct", counted(lesson)]))
    width = max(len(title) for _, title, _ in found)
    rows = [
        (id, title, state or "not attempted", words.OUTCOMES.get(state or "", words.NOT_CHECKED))
        for id, title, state in found
    ]
    text = [f"  {MARK[state]} {id} {title:<{width}}  {word}" for id, title, state, word in rows]
    cells = "".join(
        f"<div><span style='color:{COLOUR[state]};font-weight:600'>{MARK[state]} {id}</span> "
        f"{html.escape(title)} <span style='opacity:.7'>{word}</span></div>"
        for id, title, state, word in rows
    )
    box = f"<div style='color:var(--jp-content-font-color1,inherit)'><b>{head}</b>{cells}</div>"
    show("\n".join([head, *text]), box)
