"""The name of a reason: what many answers that fail have in common, in the words of the check."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Sequence

from hooklab.course.classroom.grading import Graded
from hooklab.course.classroom.lessons import ROOT, Exercise, Lesson
from hooklab.course.classroom.verdicts import STOPPED, TAMPERED, Verdict

_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?")
_CODE = re.compile(r"`[^`]*`|'[^']*'|\[[^\]]*\]|(?<!\w)\([^)]*\)")  # and no call, such as `model(x)`
_MOST = 90


# Reasons that say nothing about what was understood.
NO_MISCONCEPTION = frozenset(["tampered with the check", "had to be stopped"])


class Reasons:
    """The reasons of a class: by student and exercise, and by exercise the students that have the same one."""

    def __init__(self, graded: Sequence[Graded], lessons: dict[int, Lesson]) -> None:
        self._says = {number: known_words(number) for number in lessons}
        self._graded = graded

    def of(self, graded: Graded, exercise: Exercise) -> str:
        """Return the name of the reason why a student's answer is not correct, or ""."""
        verdict = graded.verdicts.get(exercise.id)
        says = self._says.get(graded.lesson, {}).get(exercise.id, ())
        return reason_of(verdict, says, exercise.answer) if verdict else ""

    def by_frequency(self, lesson: Lesson, exercise: Exercise) -> list[tuple[str, list[Verdict]]]:
        """Return each reason with the verdicts that have it, the most frequent first."""
        found: dict[str, list[Verdict]] = defaultdict(list)
        for one in self._graded:
            if one.lesson == lesson.number and (reason := self.of(one, exercise)):
                found[reason].append(one.verdicts[exercise.id])
        return sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0]))


def known_words(lesson: int) -> dict[str, tuple[str, ...]]:
    """Return, by exercise, the words that its named wrong answers are known by. The file is read, not imported."""
    path = ROOT / "tests" / "course" / f"lesson{lesson:02d}" / "wrong.py"
    found: dict[str, list[str]] = defaultdict(list)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "wrong" and node.args:
            says = next((one.value for one in node.keywords if one.arg == "says"), None)
            if isinstance(node.args[0], ast.Constant) and isinstance(says, ast.Constant):
                found[str(node.args[0].value)].append(str(says.value))
    return {id: tuple(says) for id, says in found.items()}


def reason_of(verdict: Verdict, says: tuple[str, ...], answer: str) -> str:
    """Return the name of why an answer is not correct; "" for a correct one and for one not attempted.

    The check's own guess at the misconception, where it has one; else the words by which one of the exercise's named
    wrong answers is known; else the check's first line, without what is this answer's own.

    Args:
        verdict: what came of the exercise.
        says: the words that the exercise's named wrong answers are known by.
        answer: the name of the answer.

    Example:
        >>> reason_of(Verdict("not yet", "✗ 3.1 not yet: 3 entries", "forgotten return: the hook …"), (), "f")
        'forgotten return'
    """
    if verdict.state in ("correct", "not attempted"):
        return ""
    if verdict.state == TAMPERED:
        return "tampered with the check"
    if verdict.state == STOPPED:
        return "had to be stopped"
    if verdict.likely:
        return _cut(verdict.likely.split(":")[0])
    known = [one for one in says if one in verdict.text]
    if known:
        return _cut(max(known, key=len).split(":")[0])
    first = verdict.text.split("\n")[0].split(": ", 1)[-1].split(", at line")[0].replace(answer, "it")
    return _cut(_NUMBER.sub("n", _CODE.sub("…", first)))


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MOST else f"{text[:_MOST]} …"
