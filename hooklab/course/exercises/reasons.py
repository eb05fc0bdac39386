"""The sentences that say why an answer is likely wrong: read from reasons.toml, of a lesson or of this folder.

A lesson's file has a table for each exercise, label = "sentence", and may have a table that its exercises share. The
file in this folder has what all exercises share, and the words of exceptions. `{name}` in a sentence is the learner's
own name for the function.
"""

from __future__ import annotations

import functools
import re
import tomllib
import traceback
from pathlib import Path
from typing import Any

from hooklab.course.exercises.exercise import COURSE
from hooklab.course.exercises.frames import first_words, kind_of, whose

_SHARED = Path(__file__).with_name("reasons.toml")


def reasons_of(id: str) -> dict[str, str]:
    """Return label -> sentence for an exercise, its own ones in the order of its file."""
    lesson = int(id.split(".")[0])
    own: dict[str, str] = _read(COURSE / f"lesson{lesson:02d}" / "reasons.toml").get(id, {})
    return own


def reason(id: str, label: str | None, name: str) -> str | None:
    """Return the sentence of a label, the exercise's own one or the one that all share; None without a label."""
    if not label:
        return None
    lesson = _read(COURSE / f"lesson{int(id.split('.')[0]):02d}" / "reasons.toml").get("shared", {})
    sentence = reasons_of(id).get(label) or lesson.get(label) or _read(_SHARED)["shared"].get(label)
    if sentence is None:
        raise LookupError(f"exercise {id} has no sentence for the reason {label!r} in its lesson's reasons.toml")
    return str(sentence).replace("{name}", name)


def reason_of_exception(error: BaseException) -> str | None:
    """Return the reason that an exception's own words give away; the first rule that fits counts."""
    text = f"{kind_of(error)}: {first_words(error)}"
    frames = traceback.extract_tb(error.__traceback__)
    raised_by = whose(frames[-1].filename) if frames else "learner"
    for rule in _read(_SHARED)["exception"]:
        if re.search(rule["words"], text) and rule.get("raised_by", raised_by) == raised_by:
            return str(rule["likely"])
    return None


@functools.cache
def _read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
