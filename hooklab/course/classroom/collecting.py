"""The submissions in a folder, as teachers have them: whose they are, and where each one's notebooks are.

Four forms are understood, also mixed: notebooks named by student; a folder for each student; the zip of a learning
platform, packed or unpacked, with its prefixes before the names; nbgrader's `submitted/STUDENT/ASSIGNMENT`. Links are
not followed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from hooklab.course.classroom.archives import MOST_BYTES, Packed, packed_files, paths_in

NOTEBOOK = ".ipynb"
_READ = (NOTEBOOK, ".zip")
_IGNORED = {".ipynb_checkpoints", "__pycache__", ".git", ".venv", "node_modules"}
# What learning platforms write around the name of a student.
_MOODLE = re.compile(r"(?P<student>.+?)_\d+_assignsubmission_[a-z]+_?")
_CANVAS = re.compile(r"(?P<student>[a-z]+)(_LATE)?_\d+_\d+_(?P<file>.+)")
_BLACKBOARD = re.compile(r".+?_(?P<student>[^_]+)_attempt_\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d(_(?P<file>.+))?")


@dataclass
class Submission:
    """All that one student has handed in: the files it can be read from. Nothing is kept in memory.

    `archive` is the zip of a whole class, of which only this student's part is read.
    """

    student: str
    files: list[Path] = field(default_factory=list)
    archive: Path | None = None
    faults: list[str] = field(default_factory=list)

    def read(self) -> Iterator[Packed]:
        """Yield this student's notebooks, in the order of their paths, and the files that could not be read."""
        for path in self.files:
            yield from _read(path, lambda name: True)
        if self.archive:
            yield from _read(self.archive, lambda name: whose_path(name) == self.student)


def find_submissions(folder: Path) -> list[Submission]:
    """Return what is in a folder, or in a zip, by student in the order of their names.

    Raises LookupError where there is nothing to grade.
    """
    if not folder.exists():
        raise LookupError(f"there is no {folder}")
    if (folder / "submitted").is_dir():
        folder = folder / "submitted"
    found: dict[str, Submission] = {}
    if _is_zip(folder):
        _add_class(folder, found)
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.name not in _IGNORED and not path.name.startswith("."):
            _add(path, found)
    if not found:
        raise LookupError(
            f"no notebooks in {folder}: give a folder of notebooks, of folders named by student, or of zips"
        )
    return sorted(found.values(), key=lambda one: one.student)


def _add(path: Path, found: dict[str, Submission]) -> None:
    if path.is_symlink():
        _of(path.stem, found).faults.append(f"{path.name} is a link: it was not followed")
    elif path.is_dir():
        one = _of(whose_folder(path.name), found)
        files, faults = _files_in(path)
        one.files += files
        one.faults += faults
    elif _is_zip(path):
        if any(_is_platforms(name) for name in paths_in(path)):
            _add_class(path, found)
        else:
            _of(whose_file(path.name), found).files.append(path)
    elif path.suffix.lower() == NOTEBOOK and path.is_file():
        _of(whose_file(path.name), found).files.append(path)


def _add_class(archive: Path, found: dict[str, Submission]) -> None:
    students = {whose_path(name) for name in paths_in(archive) if PurePosixPath(name).suffix.lower() in _READ}
    for student in students or {archive.stem}:
        _of(student, found).archive = archive


def _of(student: str, found: dict[str, Submission]) -> Submission:
    return found.setdefault(student, Submission(student))


def _files_in(folder: Path) -> tuple[list[Path], list[str]]:
    files, faults = [], []
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if _IGNORED.intersection(inside.parts) or path.suffix.lower() not in _READ:
            continue
        if path.is_symlink() or not path.is_file():
            faults.append(f"{inside} is a link and no file: it was not followed")
        else:
            files.append(path)
    return files, faults


def whose_path(name: str) -> str:
    """Return the student that a path in a class's zip belongs to.

    Example:
        >>> whose_path("Ana Li_4711_assignsubmission_file_/03_forward_hooks.ipynb")
        'Ana Li'
        >>> whose_path("liana_LATE_12_345_03_forward_hooks.ipynb")
        'liana'
        >>> whose_path("submitted/ana/lesson3/03_forward_hooks.ipynb")
        'ana'
    """
    parts = [part for part in re.split(r"[/\\\\]", name) if part not in ("", ".", "submitted")]
    if len(parts) == 1 or ".." in parts:
        return whose_file(parts[-1])
    return whose_folder(parts[0])


def whose_folder(name: str) -> str:
    """Return the student that a folder is named by, without what a learning platform writes around it."""
    match = _MOODLE.match(name) or _BLACKBOARD.fullmatch(name)
    return match["student"] if match else name


def whose_file(name: str) -> str:
    """Return the student that a notebook or zip is named by, without what a learning platform writes around it."""
    stem = re.sub(r"\.(ipynb|zip)$", "", name, flags=re.I)
    match = _MOODLE.match(stem) or _BLACKBOARD.fullmatch(stem) or _CANVAS.fullmatch(stem)
    return match["student"] if match else stem


def _is_platforms(name: str) -> bool:
    return any(pattern.match(name) for pattern in (_MOODLE, _BLACKBOARD, _CANVAS))


def _is_zip(path: Path) -> bool:
    return path.suffix.lower() == ".zip" and path.is_file()


def _read(path: Path, wanted: Callable[[str], bool]) -> Iterator[Packed]:
    if _is_zip(path):
        found = packed_files(path, NOTEBOOK, wanted)
        yield from (one for one in found if _IGNORED.isdisjoint(one.path.parts))
        return
    shown = PurePosixPath(path.name)
    if path.stat().st_size > MOST_BYTES:
        yield Packed(shown, fault=f"{path.name} is larger than {MOST_BYTES // 1_000_000} MB and was not read")
        return
    try:
        yield Packed(shown, path.read_bytes())
    except OSError as error:
        yield Packed(shown, fault=f"{path.name} cannot be read: {error.strerror}")
