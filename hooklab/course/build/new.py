"""begin: write the files of a new lesson, small but whole, so that it builds and keeps every rule.

templates/ holds them as they lie in the repository. In their names NN_slug stands for the lesson's name, NN for its
number with two digits; in their text, N stands for its number.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from hooklab.course.build.draft import draft
from hooklab.course.build.sources import Course, Lesson

TEMPLATES = Path(__file__).with_name("templates")


def begin(course: Course, names: list[str]) -> int:
    """Write a new lesson's files, say what is left to do by hand, and return the exit status: 2 for a wrong name."""
    name = names[0] if len(names) == 1 else ""
    taken = [other.name for other in course.lessons() if other.name[:2] == name[:2]]
    if not re.fullmatch(r"\d{2}_[a-z][a-z0-9_]*", name) or taken:
        why = f"{taken[0]} has this number" if taken else "name the lesson as in: build new 13_hook_clinic"
        print(f"build: {why}", file=sys.stderr)
        return 2
    lesson = Lesson(name, course.root)
    for template in sorted(TEMPLATES.rglob("*.txt")):
        place = template.relative_to(TEMPLATES).with_suffix("").as_posix()
        path = course.root / place.replace("NN_slug", name).replace("NN", name[:2])
        if path.exists():
            print(f"{lesson.shown(path)}: left as it was")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(re.sub(r"\bN\b", str(lesson.number), template.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"{lesson.shown(path)}: written")
    minutes = draft(course, lesson).minutes
    text = lesson.source.read_text(encoding="utf-8")
    lesson.source.write_text(text.replace("MM minutes", f"{minutes} minutes"), encoding="utf-8")
    for problem in draft(course, lesson).problems:
        print(f"left to do: {problem}")
    print(f"then: python -m hooklab build {name[:2]}")
    return 0
