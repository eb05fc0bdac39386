"""What a student has handed in, read: the code cells of notebooks, also of those in zips.

Only what the student wrote is taken: outputs, execution counts and metadata are not looked at. A zip may hold a
thousand times its size, a password, or other zips: it is read in memory, never unpacked, each file within a limit. A
path that leads out of it is used as a name only.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hooklab.course import words

READ = (".ipynb", ".ipynb.txt", ".ipynb.json", ".zip")  # notebooks as browsers save them, and zips
UNREADABLE = (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError, ValueError, RuntimeError)
MOST_BYTES = 100_000_000  # of one file, and of all in a zip
_TOO_LARGE = f"has more than {MOST_BYTES // 1_000_000} MB: not read to its end"
_DEPTH = 3  # zips in zips
_IGNORED = {"__pycache__", "__MACOSX", "node_modules"}  # and what begins with a dot
# Whose lesson a notebook is: its exercises' cards, and the calls of `check`.
_LESSON = re.compile(rf"""(?:^### {words.EXERCISE} |\bcheck\(\s*["'])([0-9]{{1,3}})\.[0-9]{{1,3}}\b""", re.M)


@dataclass(frozen=True)
class Cell:
    """A code cell: its place in the notebook, counted from 1, and its text."""

    number: int
    text: str


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
    """Return the folders and the file's name in the path of a zip's entry; () for what no student has written."""
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
    cells = [(Cell(number, _source(one)), one) for number, one in enumerate(map(_table, raw["cells"]), start=1)]
    lessons = Counter(match for cell, _ in cells for match in set(_LESSON.findall(cell.text)))
    lesson = int(lessons.most_common(1)[0][0]) if lessons else None
    code = tuple(cell for cell, one in cells if one.get("cell_type") == "code")
    return Notebook(code, lesson, path, when, hashlib.sha256(content).hexdigest())


def cell_defining(name: str, cells: Sequence[Cell]) -> Cell:
    """Return the last of these cells that defines `name`, as far as its text shows; else one that is empty."""
    definition = re.compile(rf"^\s*(?:(?:async +)?def|class) +{name}\b|^{name} *=", re.M)
    return next((cell for cell in reversed(cells) if definition.search(cell.text)), Cell(0, ""))


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source")
    lines = source if isinstance(source, list) else [source]
    return "".join(line for line in lines if isinstance(line, str))


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
