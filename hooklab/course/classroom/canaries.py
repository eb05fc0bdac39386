"""Canaries: small wrong answers of an exercise, from files that no class is given."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from hooklab.course.classroom.sandbox import ROOT


def canaries(id: str) -> dict[str, Any]:
    """Return the programs of the misconceptions of exercise `id`, by label; none where a class's copy lacks them."""
    path = canary_file(int(id.split(".")[0]))
    spec = importlib.util.spec_from_file_location("misconceptions", path)
    if spec is None or spec.loader is None or not path.is_file():
        return {}
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, dict[str, Any]] = module.MISCONCEPTIONS
    return found.get(id, {})


def canary_file(lesson: int) -> Path:
    return ROOT / "solutions" / "misconceptions" / f"lesson{lesson:02d}.py"
