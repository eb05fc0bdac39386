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
MOST_FILES = 20_000
_DEPTH = 3  # zips in zips: a learning platform's, a student's, and one more
_ENCRYPTED = 0x1
_UNREADABLE = (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError, ValueError, RuntimeError)


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
            return sorted(entry.filename for entry in opened.infolist() if not entry.is_dir())
    except _UNREADABLE:
        return []


def packed_files(archive: Path, suffix: tuple[str, ...], wanted: Callable[[str], bool]) -> Iterator[Packed]:
    """Yield the files of a zip whose names end in one of `suffix`, those in zips inside it, and what is wrong with it.

    `wanted` gets the name of each entry, as stored in the zip, and says whether to read it.
    """
    yield from _Reader(suffix).files_in(archive, wanted, _DEPTH)


class _Reader:
    """Reads a zip, and those inside it, until all that was unpacked is too much."""

    def __init__(self, suffix: tuple[str, ...]) -> None:
        self.suffix, self.left = suffix, MOST_BYTES

    def files_in(self, archive: Path | BinaryIO, wanted: Callable[[str], bool], depth: int) -> Iterator[Packed]:
        try:
            with zipfile.ZipFile(archive) as opened:
                entries = [entry for entry in opened.infolist() if wanted(entry.filename)]
                if len(entries) > MOST_FILES:
                    yield Packed(PurePosixPath(), fault=f"a zip of {len(entries)} files was not read")
                    return
                for entry in sorted(entries, key=lambda entry: entry.filename):
                    yield from self._files_of(opened, entry, depth)
        except _UNREADABLE as error:
            yield Packed(PurePosixPath(), fault=f"a zip that cannot be read: {error}")

    def _files_of(self, opened: zipfile.ZipFile, entry: zipfile.ZipInfo, depth: int) -> Iterator[Packed]:
        path = PurePosixPath(entry.filename.replace("\\", "/"))
        is_zip = path.suffix.lower() == ".zip"
        if entry.is_dir() or "__MACOSX" in path.parts or not (is_zip or path.name.lower().endswith(self.suffix)):
            return
        if entry.flag_bits & _ENCRYPTED:
            yield Packed(PurePosixPath(path.name), fault=f"{path.name} is encrypted: ask for it without a password")
            return
        if self.left < 0:  # said once
            return
        with opened.open(entry) as file:
            content = file.read(self.left + 1)
        self.left -= len(content)
        if self.left < 0:
            fault = (
                f"{path.name}: what this zip holds is larger than {MOST_BYTES // 1_000_000} MB; the rest was not read"
            )
            yield Packed(path, fault=fault)
        elif not is_zip:
            yield Packed(path, content, entry.date_time)
        elif depth > 1:
            for inner in self.files_in(io.BytesIO(content), lambda name: True, depth - 1):
                yield replace(inner, path=path.with_suffix("") / inner.path)
        else:
            yield Packed(path, fault=f"{path.name}: zips in zips in zips were not read")
