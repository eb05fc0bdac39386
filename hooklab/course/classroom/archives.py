"""The files in a zip from an untrusted source: read in memory, never unpacked, each within a limit.

A zip may hold a thousand times its size, a password, or other zips. A path that leads out of it is used as a name only.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO

MOST_BYTES = 100_000_000  # of one file, and of all in a zip that are one student's
_DEPTH = 3  # zips in zips: a learning platform's, a student's, and one more
_UNREADABLE = (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError, ValueError, RuntimeError)
_TOO_LARGE = f"what this zip holds is larger than {MOST_BYTES // 1_000_000} MB; the rest was not read"


@dataclass(frozen=True)
class Packed:
    """A file of an archive: its path in there, its content and its time, or why it is left alone."""

    path: PurePosixPath
    content: bytes = b""
    when: tuple[int, ...] = ()
    fault: str = ""


def paths_in(archive: Path) -> list[str]:
    """Return the names of all files in a zip, as stored in it; [] if it cannot be read."""
    try:
        with zipfile.ZipFile(archive) as opened:
            return sorted(name for name in opened.namelist() if not name.endswith("/"))
    except _UNREADABLE:
        return []


def packed_files(archive: Path, suffix: tuple[str, ...], wanted: Callable[[str], bool]) -> Iterator[Packed]:
    """Yield the files of a zip whose names end in one of `suffix`, those in zips inside it, and what is wrong with it.

    `wanted` gets the name of each entry, as stored in the zip, and says whether to read it.
    """
    yield from _files_in(archive, suffix, wanted, _DEPTH, [MOST_BYTES])


def _files_in(
    archive: Path | BinaryIO, suffix: tuple[str, ...], wanted: Callable[[str], bool], depth: int, left: list[int]
) -> Iterator[Packed]:
    """`left` has the number of bytes that may still be unpacked."""
    try:
        with zipfile.ZipFile(archive) as opened:
            entries = sorted(filter(lambda entry: wanted(entry.filename), opened.infolist()), key=lambda e: e.filename)
            for entry in entries:
                path = PurePosixPath(entry.filename.replace("\\", "/"))
                if not path.name.lower().endswith((*suffix, ".zip")) or entry.is_dir() or left[0] < 0:
                    continue
                with opened.open(entry) as file:
                    content = file.read(left[0] + 1)
                left[0] -= len(content)
                if left[0] < 0:
                    yield Packed(path, fault=f"{path.name}: {_TOO_LARGE}")
                elif path.suffix.lower() != ".zip":
                    yield Packed(path, content, entry.date_time)
                elif depth > 1:
                    for inner in _files_in(io.BytesIO(content), suffix, lambda name: True, depth - 1, left):
                        yield replace(inner, path=path.with_suffix("") / inner.path)
                else:
                    yield Packed(path, fault=f"{path.name}: zips in zips in zips were not read")
    except _UNREADABLE as error:
        yield Packed(PurePosixPath(), fault=f"a zip that cannot be read: {error}")
