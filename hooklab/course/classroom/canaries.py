"""Canaries: small wrong answers of an exercise, from files that no class is given."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from hooklab.course.classroom.sandbox import ROOT


def canaries(id: str) -> dict[str, Any]:
    """Return wrong answers of exercise `id`, by label: its misconceptions, or else those in tests/."""
    lesson = int(id.split(".")[0])
    found = _misconceptions(lesson).get(id, {})
    if not found and _wrong(lesson).is_file():
        module = importlib.import_module(f"tests.course.lesson{lesson:02d}.wrong")
        wrong = [one for one in vars(module).values() if getattr(one, "says", None) and one.id == id]
        found = {one.answer.__name__: one.answer for one in wrong}
    return found


def canary_files(lesson: int) -> list[Path]:
    """Return the files that `canaries` reads for a lesson."""
    tests = ROOT / "tests" / "course"
    inits = [folder / "__init__.py" for folder in (tests.parent, tests, tests / "exercises", _wrong(lesson).parent)]
    files = [_path(lesson), _wrong(lesson), tests / "exercises" / "wrong.py", *inits]
    return [file for file in files if file.is_file()]


def _misconceptions(lesson: int) -> dict[str, dict[str, Any]]:
    spec = importlib.util.spec_from_file_location("misconceptions", _path(lesson))
    if spec is None or spec.loader is None or not _path(lesson).is_file():
        return {}
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, dict[str, Any]] = module.MISCONCEPTIONS
    return found


def _path(lesson: int) -> Path:
    return ROOT / "solutions" / "misconceptions" / f"lesson{lesson:02d}.py"


def _wrong(lesson: int) -> Path:
    return ROOT / "tests" / "course" / f"lesson{lesson:02d}" / "wrong.py"
