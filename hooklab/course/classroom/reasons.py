"""The name of a reason: what many answers that fail have in common, in the words of the check."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from hooklab.course.classroom.grading import Graded
from hooklab.course.classroom.lessons import Exercise
from hooklab.course.classroom.verdicts import STOPPED, TAMPERED, Verdict

_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?")
_CODE = re.compile(r"`[^`]*`|'[^']*'|\[[^\]]*\]|(?<!\w)\([^)]*\)")  # and no call, such as `model(x)`
_MOST = 90
# Reasons that say nothing about what was understood.
_OF_A_STATE = {TAMPERED: "tampered with the check", STOPPED: "had to be stopped"}
NO_MISCONCEPTION = frozenset(_OF_A_STATE.values())


def by_frequency(graded: Sequence[Graded], exercise: Exercise) -> list[tuple[str, list[Verdict]]]:
    """Return each reason why answers to an exercise fail, with the verdicts that have it; the most frequent first."""
    found: dict[str, list[Verdict]] = defaultdict(list)
    for one in graded:
        if (verdict := one.verdicts.get(exercise.id)) and (reason := reason_of(verdict, exercise.answer)):
            found[reason].append(verdict)
    return sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0]))


def reason_of(verdict: Verdict | None, answer: str) -> str:
    """Return the name of why an answer is not correct; "" for a correct one and for one not attempted.

    The check's own guess at the misconception, where it has one; else the check's first line, without what is this
    answer's own. `answer` is the answer's name.

    Example:
        >>> reason_of(Verdict("not yet", "✗ 3.1 not yet: 3 entries", "A `return` is missing. Add it."), "f")
        'A `return` is missing.'
    """
    if verdict is None or verdict.state in ("correct", "not attempted"):
        return ""
    if verdict.state in _OF_A_STATE:
        return _OF_A_STATE[verdict.state]
    if verdict.likely:
        return in_two(verdict.likely)[0]
    first = verdict.text.split("\n")[0].split(": ", 1)[-1].split(", at line")[0].replace(answer, "it")
    return _cut(_NUMBER.sub("n", _CODE.sub("…", first)))


def in_two(reason: str) -> tuple[str, str]:
    """Return the sentence that says what an answer does, and those that say what to do about it.

    Example:
        >>> in_two("You never call backward(). Call it before you read .grad.")
        ('You never call backward().', 'Call it before you read .grad.')
    """
    first, *rest = re.split(r"(?<=[.?!]) (?=[A-Z`])", " ".join(reason.split()), maxsplit=1)
    return first, "".join(rest)


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MOST else f"{text[:_MOST]} …"
