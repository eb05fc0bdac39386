"""The learner's own copy of the lessons: made from lessons/, brought up to date, and never written over.

A notebook is compared by its cells: opening one in JupyterLab and saving it writes the kernel's version beside them,
which does not count as a change. EDITIONS records from which cells each file was copied. Every file is written whole or
not at all, and EDITIONS after the file that it records: an interrupted copy continues at the next start.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from hooklab.course.files import write_whole
from hooklab.course.launcher.programs import say

MINE = "my-lessons"
EDITIONS = ".editions.json"


def bring_up_to_date(root: Path) -> Path:
    """Make or update the learner's copy of the lessons, and return its folder.

    An untouched notebook follows lessons/. One that has been worked on stays; the new edition is put beside it, once.
    """
    folder = root / MINE
    folder.mkdir(exist_ok=True)
    record = folder / EDITIONS
    copied_from: dict[str, str] = {}
    with suppress(OSError, ValueError):  # none yet, or spoilt: then only what equals a lesson counts as untouched
        copied_from = json.loads(record.read_text(encoding="utf-8"))
    for lesson in sorted((root / "lessons").glob("*.ipynb")):
        edition = cells_of(lesson)
        if copied_from.get(lesson.name) != edition or not (folder / lesson.name).exists():
            target = place_for(lesson, folder, edition, copied_from)
            if target is None:  # this edition is beside the learner's notebook already
                continue
            write_whole(lesson.read_bytes(), target)
            if target.name != lesson.name:
                say(f"{MINE}/{lesson.name} is yours and stays; the lesson's new edition is {target.name}, beside it")
            copied_from[target.name] = edition
            write_whole(json.dumps(copied_from, indent=1).encode(), record)
    return folder


def place_for(lesson: Path, folder: Path, edition: str, copied_from: dict[str, str]) -> Path | None:
    """Where an edition of a lesson belongs: the first name that is free or untouched; None if it was put there once."""
    for name in names(lesson):
        file, known = folder / name, copied_from.get(name)
        if not file.exists() and (known != edition or name == lesson.name):
            return file
        if known == edition:
            return None
        if cells_of(file) in (known, edition):
            return file
    return None


def names(lesson: Path) -> Iterator[str]:
    """The lesson's own name, and those of later editions beside it."""
    yield lesson.name
    yield from (f"{lesson.stem}-new{number}.ipynb" for number in ("", *range(2, 100)))


def cells_of(notebook: Path) -> str:
    """A fingerprint of what is in a notebook's cells; "" for a file that cannot be read as one, which is kept."""
    try:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        content = [
            [cell["cell_type"], cell["source"], [[out.get("text"), out.get("data")] for out in cell.get("outputs", [])]]
            for cell in cells
        ]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return ""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
