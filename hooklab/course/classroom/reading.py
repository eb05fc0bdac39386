"""What a student has handed in, read: the code cells of notebooks, also of those in zips.

Only what the student wrote is taken: outputs and execution counts are not looked at, and metadata says nothing but
which cell is which. A zip may hold a thousand times its size, a password, or other zips: it is read in memory, never
unpacked, each file within a limit. A path that leads out of it is used as a name only.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hooklab.course import words

READ = (".ipynb", ".ipynb.txt", ".ipynb.json", ".zip")  # notebooks as browsers save them, and zips
UNREADABLE = (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError, ValueError, RuntimeError)
MOST_BYTES = 100_000_000  # of one file, and of all in a zip
_TOO_LARGE = f"has more than {MOST_BYTES // 1_000_000} MB: not read to its end"
_DEPTH = 3  # zips in zips
_IGNORED = {"__pycache__", "__MACOSX", "node_modules"}  # and what begins with a dot
_GRADED = re.compile(r"(?:solution|check)-([0-9]{1,3})-[0-9]{1,3}")
_CARD = re.compile(rf"^### {words.EXERCISE} ([0-9]{{1,3}})\.[0-9]{{1,3}}\b", re.M)
_CHECKED = re.compile(r"""\bcheck\(\s*["']([0-9]{1,3})\.[0-9]{1,3}["']""")


@dataclass(frozen=True)
class Cell:
    """A code cell: its place in the notebook, counted from 1, its text, and nbgrader's name for it ("" for none)."""

    number: int
    text: str
    grade_id: str = ""


@dataclass(frozen=True)
class Notebook:
    """A notebook's code cells, and the lesson that its exercises belong to; None where it has none.

    Where it was handed in: its path, its time, and the hash of its content.
    """

    cells: tuple[Cell, ...]
    lesson: int | None
    path: str = ""
    when: tuple[int, ...] = ()
    digest: str = ""


class Unreadable(Exception):
    """One sentence for the teacher: why a notebook was not graded."""


def read(path: str, content: bytes, when: tuple[int, ...], depth: int = _DEPTH) -> Iterator[Notebook | str]:
    """Yield the notebook that a file is, or those that a zip holds, and a sentence about each that was not read."""
    name, left = path.rpartition("/")[2], MOST_BYTES
    try:
        if len(content) > left:
            raise Unreadable(_TOO_LARGE)
        if not name.lower().endswith(".zip"):
            yield read_notebook(content, path, when)
            return
        if not depth:
            raise Unreadable("was not read: it is a zip in a zip in a zip")
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for entry in sorted(archive.infolist(), key=lambda entry: entry.filename):
                parts = parts_of(entry.filename)
                if parts and parts[-1].lower().endswith(READ):
                    with archive.open(entry) as file:
                        inner = file.read(left + 1)
                    left -= len(inner)
                    if left < 0:
                        raise Unreadable(_TOO_LARGE)
                    yield from read("/".join([path, *parts]), inner, entry.date_time, depth - 1)
    except Unreadable as error:
        yield f"{name} {error}"
    except UNREADABLE as error:
        yield f"{name} cannot be read: {error}"


def parts_of(name: str) -> tuple[str, ...]:
    """Return the folders and the file's name in a path as a zip has it; () for what no student has written."""
    parts = tuple(part for part in re.split(r"[/\\]", name) if part not in ("", ".", ".."))
    return () if any(part in _IGNORED or part[0] == "." for part in parts) else parts


def read_notebook(content: bytes, path: str = "", when: tuple[int, ...] = ()) -> Notebook:
    """Read a notebook's code cells. Raises Unreadable."""
    try:
        raw = _table(json.loads(content.decode("utf-8-sig")))
    except (ValueError, RecursionError, MemoryError):
        raise Unreadable("is not a notebook: this is not JSON that a notebook could be") from None
    if not isinstance(raw.get("cells"), list):
        raise Unreadable("is not a notebook: it has no cells")
    all_cells = [_table(one) for one in raw["cells"]]
    is_code = [one.get("cell_type") == "code" for one in all_cells]
    found = [Cell(number, _source(one), _grade_id(one)) for number, one in enumerate(all_cells, start=1)]
    lessons = Counter(match for cell in found for match in _GRADED.findall(cell.grade_id))
    lessons += Counter(match for cell in found for match in {*_CARD.findall(cell.text), *_CHECKED.findall(cell.text)})
    lesson = int(lessons.most_common(1)[0][0]) if lessons else None
    code = tuple(cell for cell, code in zip(found, is_code, strict=True) if code)
    return Notebook(code, lesson, path, when, hashlib.sha256(content).hexdigest())


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source")
    lines = source if isinstance(source, list) else [source]
    return "".join(line for line in lines if isinstance(line, str))


def _grade_id(cell: dict[str, Any]) -> str:
    """The builder writes the same name twice: as nbgrader's grade_id and as the cell's id; either may get lost."""
    names = [_table(_table(cell.get("metadata")).get("nbgrader")).get("grade_id"), cell.get("id")]
    return next((name for name in names if isinstance(name, str) and _GRADED.fullmatch(name)), "")


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
