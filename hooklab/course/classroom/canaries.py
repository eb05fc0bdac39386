"""Canaries: named wrong answers of an exercise, from files that no class is given."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from hooklab.course.classroom.sandbox import ROOT


def canaries(id: str) -> dict[str, Any]:
    """Return wrong answers of exercise `id`, by label."""
    module = importlib.import_module(f"tests.course.lesson{_lesson(id)}.wrong")
    wrong = [one for one in vars(module).values() if getattr(one, "says", None) and one.id == id]
    return {one.answer.__name__: one.answer for one in wrong}


def canary_files(lesson: int) -> list[Path]:
    """Return the files that `canaries` imports for a lesson."""
    tests = ROOT / "tests"
    inits = [tests / "__init__.py", tests / "course" / "__init__.py", tests / "course" / "exercises" / "__init__.py"]
    own = tests / "course" / f"lesson{lesson:02d}"
    return [*inits, tests / "course" / "exercises" / "wrong.py", own / "__init__.py", own / "wrong.py"]


def _lesson(id: str) -> str:
    return f"{int(id.split('.')[0]):02d}"
