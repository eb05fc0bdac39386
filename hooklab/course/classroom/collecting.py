"""The submissions in a folder, as teachers have them: whose they are, and where each one's notebooks are.

Four forms are understood, also mixed: notebooks named by student; a folder for each student; the zip of a learning
platform, packed or unpacked, with its prefixes before the names; nbgrader's `submitted/STUDENT/ASSIGNMENT`. A folder or
zip that holds nothing but one folder of students is looked into. Links are not followed.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from hooklab.course.classroom.archives import MOST_BYTES, Packed, packed_files, paths_in

NOTEBOOK = (".ipynb", ".ipynb.txt", ".ipynb.json")  # as browsers save one
_READ = (*NOTEBOOK, ".zip")
# What is handed in by mistake. Other files beside the notebooks may be the teacher's own, such as a list of names.
_MISTAKEN = (".html", ".pdf", ".py", ".docx", ".rar", ".7z", ".tar", ".gz", ".tgz")
_IGNORED = {".ipynb_checkpoints", "__pycache__", "__MACOSX", ".git", ".venv", "node_modules"}
# What learning platforms write around the name of a student.
_MOODLE = re.compile(r"(?P<student>.+?)_\d+_assignsubmission_[a-z]+_?")
_CANVAS = re.compile(r"(?P<student>[^\W_A-Z]+)(_LATE)?_\d+_\d+_(?P<file>.+)")
_BLACKBOARD = re.compile(r".+?_(?P<student>[^_]+)_attempt_\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d(_(?P<file>.+))?")
_MOST_STUDENTS = 2000  # in a zip that may be one student's
_A_LESSONS = re.compile(r"\d\d_|lesson", re.I)  # no student's name


@dataclass
class Submission:
    """All that one student has handed in: the files it can be read from. Nothing is kept in memory.

    `archives` are zips of a whole class, of which only this student's part is read: below so many folders.
    """

    student: str
    files: list[Path] = field(default_factory=list)
    archives: list[tuple[Path, int]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def read(self) -> Iterator[Packed]:
        """Yield this student's notebooks, in the order of their paths, and the files that could not be read."""
        for path in self.files:
            yield from _read(path, lambda name: True)
        for archive, depth in self.archives:
            yield from _read(archive, functools.partial(self._is_own, depth=depth))

    def _is_own(self, name: str, depth: int) -> bool:
        return whose_path(name, depth) == self.student


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
    there = _visible(folder) if folder.is_dir() else []
    if len(there) == 1 and folder.name != "submitted":
        there = _inside(there[0], found)
    for path in there:
        _add(path, found)
    if not found:
        raise LookupError(
            f"no notebooks in {folder}: give a folder of notebooks, of folders named by student, or of zips"
        )
    return sorted(found.values(), key=lambda one: one.student)


def _visible(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if not _is_noise([path.name]) and path.name[0] != "."]


def _is_noise(parts: Sequence[str]) -> bool:
    return any(part in _IGNORED or part.startswith("._") for part in parts)


def _add(path: Path, found: dict[str, Submission]) -> None:
    name = path.name.lower()
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
    elif name.endswith(NOTEBOOK) and path.is_file():
        _of(whose_file(path.name), found).files.append(path)
    elif name.endswith(_MISTAKEN):
        _of(whose_file(path.name), found).faults.append(f"{path.name} is no notebook: ask for the .ipynb")


def _inside(only: Path, found: dict[str, Submission]) -> list[Path]:
    """Look into the only folder or zip that was handed in: it may be one student's, or all of the class."""
    if only.is_dir() and not only.is_symlink() and not _is_platforms(only.name):
        names = [path.relative_to(only).as_posix() for path in _files_in(only)[0]]
        depth = _depth(names)
        return [only] if depth is None else _visible(only.joinpath(*_parts(names[0])[:depth]))
    if _is_zip(only) and _depth(paths_in(only)) is not None:
        _add_class(only, found)
        return []
    return [only]


def _add_class(archive: Path, found: dict[str, Submission]) -> None:
    names = [name for name in paths_in(archive) if not _is_noise(_parts(name))]
    depth = _depth(names) or 0
    students = {whose_path(name, depth) for name in names if name.lower().endswith(_READ) or _is_platforms(name)}
    for student in students or {archive.stem}:
        _of(student, found).archives.append((archive, depth))


def _depth(names: Sequence[str]) -> int | None:
    """Return how many folders all notebooks of a class are in, such as 1 for "3b/ana/03.ipynb" and "3b/bo/03.ipynb".

    None where these are the notebooks of one student.
    """
    read = [name for name in names if name.lower().endswith(_READ) and not _is_noise(_parts(name))]
    folders = zip(*[_parts(name)[:-1] for name in read], strict=False)
    common = [one[0] for one in itertools.takewhile(lambda one: len(set(one)) == 1, folders)]
    if any(_is_platforms(part) for part in common):
        return 0
    students = {whose_path(name, len(common)) for name in read}
    return len(common) if 1 < sum(not _A_LESSONS.match(one) for one in students) <= _MOST_STUDENTS else None


def _of(student: str, found: dict[str, Submission]) -> Submission:
    return found.setdefault(student, Submission(student))


def _files_in(folder: Path) -> tuple[list[Path], list[str]]:
    files, faults = [], []
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if _is_noise(inside.parts) or not path.name.lower().endswith(_READ):
            continue
        if path.is_symlink() or not path.is_file():
            faults.append(f"{inside} is a link and no file: it was not followed")
        else:
            files.append(path)
    return files, faults


def whose_path(name: str, depth: int = 0) -> str:
    """Return the student that a path in a class's zip belongs to, where the students' are below `depth` folders.

    Example:
        >>> whose_path("Ana Li_4711_assignsubmission_file_/03_forward_hooks.ipynb")
        'Ana Li'
        >>> whose_path("liana_LATE_12_345_03_forward_hooks.ipynb")
        'liana'
        >>> whose_path("submitted/ana/lesson3/03_forward_hooks.ipynb")
        'ana'
    """
    parts = _parts(name)[depth:]
    if len(parts) == 1 or ".." in parts:
        return whose_file(parts[-1])
    return whose_folder(parts[0])


def _parts(name: str) -> list[str]:
    return [part for part in re.split(r"[/\\]", name) if part not in ("", ".", "submitted")]


def whose_folder(name: str) -> str:
    """Return the student that a folder is named by, without what a learning platform writes around it."""
    match = _MOODLE.match(name) or _BLACKBOARD.fullmatch(name)
    return match["student"] if match else name


def whose_file(name: str) -> str:
    """Return the student that a notebook or zip is named by, without what a learning platform writes around it."""
    stem = re.sub(r"(\.ipynb|\.tar)?\.[a-z0-9]{1,5}$", "", name, flags=re.I)
    match = _MOODLE.match(stem) or _BLACKBOARD.fullmatch(stem) or _CANVAS.fullmatch(stem)
    return match["student"] if match else stem


def _is_platforms(name: str) -> bool:
    return any(pattern.match(name) for pattern in (_MOODLE, _BLACKBOARD, _CANVAS))


def _is_zip(path: Path) -> bool:
    return path.suffix.lower() == ".zip" and path.is_file()


def _read(path: Path, wanted: Callable[[str], bool]) -> Iterator[Packed]:
    if _is_zip(path):
        found = packed_files(path, NOTEBOOK, wanted)
        yield from (one for one in found if not _is_noise(one.path.parts))
        return
    shown = PurePosixPath(path.name)
    if path.stat().st_size > MOST_BYTES:
        yield Packed(shown, fault=f"{path.name} is larger than {MOST_BYTES // 1_000_000} MB and was not read")
        return
    try:
        yield Packed(shown, path.read_bytes())
    except OSError as error:
        yield Packed(shown, fault=f"{path.name} cannot be read: {error.strerror}")
