"""begin: write the files of a new lesson from templates/, small but whole, so that it builds and keeps every rule."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from hooklab.course.build.draft import draft
from hooklab.course.build.sources import Course, Lesson

TEMPLATES = Path(__file__).with_name("templates")  # N is replaced by the lesson's number
_NAME = re.compile(r"\d{2}_[a-z][a-z0-9_]*")


def begin(course: Course, names: list[str]) -> int:
    """Write a new lesson's files, say what is left to do by hand, and return the exit status: 2 for a wrong name."""
    name = names[0] if len(names) == 1 else ""
    lesson = Lesson(name, course.root)
    taken = [other.name for other in course.lessons() if other.number == lesson.number]
    if not _NAME.fullmatch(name) or taken:
        why = f"{taken[0]} has this number" if taken else "name the lesson as in: build new 13_hook_clinic"
        print(f"build: {why}", file=sys.stderr)
        return 2
    files = {
        lesson.source: "source",
        lesson.own / "__init__.py": "init",
        lesson.own / "checks.py": "checks",
        lesson.reasons: "reasons",
        lesson.own / "predictions.py": "predictions",
        lesson.misconceptions: "misconceptions",
        lesson.teaching: "teaching",
    }
    for path, template in files.items():
        if path.exists():
            print(f"{lesson.shown(path)}: left as it was")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        text = (TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")
        path.write_text(re.sub(r"\bN\b", str(lesson.number), text), encoding="utf-8")
        print(f"{lesson.shown(path)}: written")
    minutes = draft(course, lesson).minutes
    text = lesson.source.read_text(encoding="utf-8")
    lesson.source.write_text(text.replace("MM minutes", f"{minutes} minutes"), encoding="utf-8")
    for problem in draft(course, lesson).problems:
        print(f"left to do: {problem}")
    print(f"then: python -m hooklab build {name[:2]}")
    return 0
