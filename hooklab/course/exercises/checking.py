"""check and progress: what a learner calls; attempt: the same without showing anything.

The outcome is displayed as text and, in JupyterLab, as a small box. A grader that sets NBGRADER_EXECUTION gets an
AssertionError with the same text instead, for everything that is not correct.
"""

from __future__ import annotations

import ast
import functools
import html
import inspect
import os
import textwrap
from typing import Any

from hooklab.course.exercises.exercise import Exercise, exercises_of, find
from hooklab.course.exercises.guards import global_state_restored, remove_new_hooks, snapshot_hooks
from hooklab.course.exercises.outcome import COLOUR, MARK, Outcome, State, show
from hooklab.course.exercises.predict import counted
from hooklab.course.exercises.trial import NotYet, StillTheStub, Trial, first_words, learners_error, learners_line

# What was found in this process, by exercise id: the memory of progress().
_found: dict[str, State] = {}


def check(id: str, answer: Any) -> None:
    """Check an exercise's answer and show the outcome: not attempted, not yet, or correct.

    Args:
        id: the exercise's id, such as "2.1".
        answer: the function (or class) that the exercise asks for; not the result of calling it.

    Raises:
        LookupError: there is no such exercise; the near ones are named.
        AssertionError: only for a grader (a non-empty NBGRADER_EXECUTION), when the answer is not correct.

    Example:
        >>> def leaves(named):
        ...     raise NotImplementedError()
        >>> check("1.1", leaves)  # doctest: +ELLIPSIS
        ○ 1.1 not attempted: ...
    """
    if callable(id) and isinstance(answer, str):
        raise TypeError(f"the id comes first: check({answer!r}, {getattr(id, '__name__', 'your_function')})")
    outcome = attempt(str(id), answer)
    _found[outcome.id] = outcome.state
    if os.environ.get("NBGRADER_EXECUTION") and outcome.state != "correct":
        raise AssertionError(str(outcome))
    show(str(outcome), outcome.as_html())


def attempt(id: str, answer: Any) -> Outcome:
    """Run the check of exercise `id` on an answer and return the outcome, showing nothing.

    Raises LookupError for an unknown id. Global state (gradient mode, random states, default dtype, thread count) is
    as before afterwards, and global module hooks that the answer registered are gone.
    """
    one = find(id)
    if _is_stub(answer):
        return _not_attempted(one)
    if not callable(answer):
        kind = "None" if answer is None else f"a {type(answer).__name__}"
        return _not_yet(
            one,
            NotYet(
                "check wants the function itself, not what it returns",
                expected=f'check("{id}", your_function)',
                got=kind,
                likely="parentheses too many: leave out the () and the arguments",
            ),
            Trial(answer),
        )
    trial = Trial(answer)
    hooks = snapshot_hooks([])
    try:
        with global_state_restored(trial.notes):
            verified = one.verify(trial)
    except StillTheStub:
        return _stub_line_left(one, trial)
    except NotYet as fault:
        return _not_yet(one, fault, trial)
    except (Exception, SystemExit) as error:
        return _not_yet(one, _unforeseen(error, trial), trial)
    finally:
        remove_new_hooks([], hooks)
    if trial.faults:
        return _not_yet(one, trial.faults[0], trial, already_named=1)
    return Outcome(one.id, "correct", verified, tuple(("note", note) for note in trial.notes))


def progress(lesson: int | None = None) -> None:
    """Show which exercises of a lesson are correct in this kernel, and how many of its guesses were made and met.

    Args:
        lesson: the lesson's number; by default the lesson of the check that ran last.

    Raises LookupError for a lesson that has no exercises.
    """
    if lesson is None:
        if not _found:
            show("No check has run in this kernel yet.", "<div>No check has run in this kernel yet.</div>")
            return
        lesson = int(list(_found)[-1].split(".")[0])
    rows: list[tuple[str, str, State | None]] = [(e.id, e.title, _found.get(e.id)) for e in exercises_of(lesson)]
    done = sum(state == "correct" for *_, state in rows)
    head = "; ".join(filter(None, [f"Lesson {lesson}: {done} of {len(rows)} exercises correct", counted(lesson)]))
    width = max(len(title) for _, title, _ in rows)
    text = [f"  {MARK[s or 'not attempted']} {id} {title:<{width}}  {s or 'not checked yet'}" for id, title, s in rows]
    cells = "".join(
        f"<div><span style='color:{COLOUR[s or 'not attempted']};font-weight:600'>{MARK[s or 'not attempted']} {id}"
        f"</span> {html.escape(title)} <span style='opacity:.7'>{s or 'not checked yet'}</span></div>"
        for id, title, s in rows
    )
    box = f"<div style='color:var(--jp-content-font-color1,inherit)'><b>{head}</b>{cells}</div>"
    show("\n".join([head, *text]), box)


def _not_attempted(one: Exercise) -> Outcome:
    todo = "write your code in place of `raise NotImplementedError()`, run that cell, then this one"
    return Outcome(one.id, "not attempted", todo)


def _not_yet(one: Exercise, fault: NotYet, trial: Trial, already_named: int = 0) -> Outcome:
    also = [("also", other.missing) for other in trial.faults[already_named:] if other.missing != fault.missing]
    notes = [("note", note) for note in trial.notes]
    return Outcome(one.id, "not yet", fault.missing, (*fault.details, *dict.fromkeys(also), *notes))


def _stub_line_left(one: Exercise, trial: Trial) -> Outcome:
    if not _has_source(trial.answer):
        return _not_attempted(one)
    return _not_yet(
        one,
        NotYet(
            "your code runs into `raise NotImplementedError()`",
            expected="your code alone, without that line",
            likely="the stub's last line is still there: delete it",
        ),
        trial,
    )


def _unforeseen(error: BaseException, trial: Trial) -> NotYet:
    """An exception out of the check's own lines: in a hook of the learner's, or from a result of an unusable kind."""
    if learners_line(error) is not None:
        return learners_error(error, trial.name)
    return NotYet(
        f"the check could not use what {trial.name} gave it",
        expected="the kinds of values that the exercise names",
        got=f"{type(error).__name__}: {first_words(error)}",
    )


def _is_stub(answer: Any) -> bool:
    """Whether a function, or a method of a class, still consists of the stub's line alone."""
    answer = answer.func if isinstance(answer, functools.partial) else answer
    if not (inspect.isfunction(answer) or inspect.ismethod(answer) or inspect.isclass(answer)):
        return False
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(answer)))
    except (OSError, TypeError, SyntaxError):
        return False  # no source at hand: the call will tell
    definitions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    if inspect.isclass(answer):  # a method may well be empty: only the stub's own line tells
        return any(_raises_not_implemented(_without_docstring(node.body)) for node in definitions)
    return bool(definitions) and _body_is_stub(definitions[0].body)


def _body_is_stub(body: list[ast.stmt]) -> bool:
    rest = _without_docstring(body)
    empty = all(isinstance(line, ast.Pass) or ast.unparse(line) == "..." for line in rest)
    return empty or _raises_not_implemented(rest)


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0]
    is_text = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return body[1:] if is_text else body


def _raises_not_implemented(body: list[ast.stmt]) -> bool:
    if len(body) != 1 or not isinstance(body[0], ast.Raise) or body[0].exc is None:
        return False
    return "NotImplementedError" in ast.unparse(body[0].exc)


def _has_source(answer: Any) -> bool:
    try:
        inspect.getsource(answer)
    except (OSError, TypeError):
        return False
    return True
