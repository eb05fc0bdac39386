"""Canaries: small wrong answers of an exercise, from files that no class is given."""

from pathlib import Path
from typing import Any

from hooklab.course.classroom.sandbox import ROOT


def canaries(id: str) -> dict[str, Any]:
    """Return the programs of the misconceptions of exercise `id`, by label; none where a class's copy lacks them."""
    path = canary_file(int(id.split(".")[0]))
    space: dict[str, Any] = {"__name__": "misconceptions", "MISCONCEPTIONS": {}}
    exec(compile(path.read_bytes() if path.is_file() else b"", path, "exec"), space)
    found: dict[str, Any] = space["MISCONCEPTIONS"].get(id, {})
    return found


def canary_file(lesson: int) -> Path:
    return ROOT / "solutions" / "misconceptions" / f"lesson{lesson:02d}.py"
