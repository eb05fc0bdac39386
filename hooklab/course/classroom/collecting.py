"""The submissions in a folder, as teachers have them: whose they are, and where each one's notebooks are.

Notebooks named by student; a folder for each student; the zip of a learning platform, packed or unpacked, also one for
each lesson; nbgrader's `submitted/STUDENT/ASSIGNMENT`; all of these also mixed. A zip is a folder here. Links and pipes
are passed over.

A student is who the platform says: the whole name. Two of one name whom the platform gives different numbers are two
students, called by name and number. Whatever is less certain is a note that the teacher reads first.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import time
import unicodedata
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hooklab.course.classroom.reading import MOST_BYTES, READ, UNREADABLE, Notebook, parts_of, read

_MOST_OF_A_CLASS = 20 * MOST_BYTES  # in a zip; a larger one is taken for one student's, and not read to its end
REPORT = ".graded"  # in a folder that holds a report of this program, not a submission
SEVERAL = "distinguished by the platform's number"
# What learning platforms write around a student's name: Moodle, Blackboard, Brightspace, Google Classroom, Canvas.
_PLATFORMS = [
    re.compile(r"(?P<name>.+?)_(?P<number>\d+)_assignsubmission_[a-z]+_?.*", re.S),
    re.compile(r".+?_(?P<name>[^_]+)_attempt_\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d(_.+|\..+)?"),
    re.compile(r"(?P<number>\d+)-\d+ - (?P<name>.+?) - .*\d [AP]M( - .+)?"),
    re.compile(r"(?P<name>[^\W\d].*?) - \d\d_.+"),
    re.compile(r"(?P<name>[^\W_A-Z]+)(_LATE)?_(?P<number>\d+)_\d+_.+"),
]
_A_LESSONS = re.compile(r"\d\d_|lesson|assignment|homework|week", re.I)  # a folder for a lesson, no student's name
# How what is handed in ends, also by mistake. Other files beside the notebooks may be the teacher's own.
_HANDED_IN = re.compile(r"\.(ipynb(\.txt|\.json)?|zip|html|pdf|py|docx|rar|7z|tar(\.gz)?|gz|tgz)$", re.I)


@dataclass(frozen=True)
class File:
    """A file or an empty folder: what leads to it from the class's folder, and where it is.

    In a zip, `path` is the zip, and `entry` its name in there.
    """

    parts: tuple[str, ...]
    path: Path
    entry: str = ""

    def read(self) -> Iterator[Notebook | str]:
        """Yield the notebooks in this file, and a sentence about each that cannot be read."""
        try:
            if self.entry:
                with zipfile.ZipFile(self.path) as archive, archive.open(self.entry) as packed:
                    content, when = packed.read(MOST_BYTES + 1), archive.getinfo(self.entry).date_time
            else:
                with self.path.open("rb") as file:
                    content, when = file.read(MOST_BYTES + 1), time.localtime(self.path.stat().st_mtime)[:6]
        except UNREADABLE as error:
            yield f"{self.parts[-1]} cannot be read: {error}"
        else:
            yield from read("/".join(self.parts), content, when)


@dataclass
class Submission:
    """All that one student has handed in; `name` and `number` are the platform's for them."""

    student: str
    name: str = ""
    number: str = ""
    files: list[File] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def read(self) -> Iterator[Notebook | str]:
        """Yield this student's notebooks, in the order of their paths, and the teacher's notes on other files."""
        yield from self.notes
        readable = [one for one in self.files if one.parts[-1].lower().endswith(READ)]
        for one in readable:
            yield from one.read()
        if not readable:
            others = [one.parts[-1] for one in self.files if not one.path.is_dir()]
            yield "no notebook was handed in" + (f", but {', '.join(others[:3])}: ask for the .ipynb" if others else "")

    def ways(self) -> set[str]:
        """Return how the platform calls this student's folders and files."""
        return {part for one in self.files for part in one.parts if platforms([part])}


def find_submissions(folder: Path) -> list[Submission]:
    """Return what is in a folder, or in a zip, by student in the order of their names.

    Raises LookupError where there is nothing to grade.
    """
    if not folder.exists():
        raise LookupError(f"there is no {folder}")
    if (folder / "submitted").is_dir():
        folder = folder / "submitted"
    files = list(_files_in(folder, ()) if folder.is_dir() else _file(folder, ()))
    depth, owned = _students_below(files), []
    for file in files:
        if who := platforms(file.parts) or _named(file, depth):
            owned.append((file, *who))
    # Moodle gives participants new numbers for each assignment: in another zip, another number may be the same student.
    numbers = defaultdict[tuple[str, ...], set[str]](set)
    for file, name, number in owned:
        above = itertools.takewhile(lambda part: not platforms([part]), file.parts)
        numbers[name, str(file.path) if file.entry else "", *above].add(number)
    several = {name for (name, *_), found in numbers.items() if len(found) > 1}
    students: dict[str, Submission] = {}
    for file, name, number in owned:
        student, notes = name, list[str]()
        if name in several and number:
            student, notes = f"{name} ({number})", [f"several students are called {name}: {SEVERAL}"]
        students.setdefault(student, Submission(student, name, number, notes=notes)).files.append(file)
    if not students:
        forms = "give a folder of notebooks, of folders named by student, or of zips"
        raise LookupError(f"no notebooks in {folder}: {forms}")
    return [students[student] for student in sorted(students)]


def platforms(parts: Sequence[str]) -> tuple[str, str] | None:
    """Return whose a path is by what a learning platform has written into it: the name, and the number or "".

    Example:
        >>> platforms(["Ana Li_4711_assignsubmission_file_", "03_forward_hooks.ipynb"])
        ('Ana Li', '4711')
    """
    for part, pattern in itertools.product(parts, _PLATFORMS):
        if match := pattern.fullmatch(unicodedata.normalize("NFC", part)):
            return match["name"], match.groupdict().get("number") or ""
    return None


def _named(file: File, depth: int) -> tuple[str, str] | None:
    """Return whose a path is where no platform has named it; None for a file of the teacher's own."""
    parts = file.parts[depth:]
    if len(parts) > 1 and _A_LESSONS.match(parts[0]):
        parts = parts[1:]
    if not parts or (len(parts) == 1 and not file.path.is_dir() and not _HANDED_IN.search(parts[0])):
        return None
    return unicodedata.normalize("NFC", _HANDED_IN.sub("", parts[0])), ""


def _students_below(files: Sequence[File]) -> int:
    """Return how many folders all of a class are in, such as 1 for "3b/ana/03.ipynb" and "3b/bo/03.ipynb".

    0 where these are the files of one student.
    """
    read = [one.parts for one in files if one.path.is_dir() or one.parts[-1].lower().endswith(READ)]
    folders = zip(*[parts[:-1] for parts in read], strict=False)
    depth = len(list(itertools.takewhile(lambda one: len(set(one)) == 1, folders)))
    return depth if sum(not _A_LESSONS.match(one) for one in {parts[depth] for parts in read}) > 1 else 0


def _files_in(folder: Path, above: tuple[str, ...]) -> Iterator[File]:
    if (folder / REPORT).is_dir():
        return
    there = [path for path in sorted(folder.iterdir()) if not path.is_symlink() and parts_of(path.name)]
    inside = [path for path in there if path.is_dir() or path.is_file()]
    if not inside and above:
        yield File(above, folder)
    for path in inside:
        yield from _files_in(path, (*above, path.name)) if path.is_dir() else _file(path, above)


def _file(path: Path, above: tuple[str, ...]) -> Iterator[File]:
    """Yield the file; of a zip, the files in it, if there are any."""
    parts, names = (*above, path.name), list[str]()
    with contextlib.suppress(*UNREADABLE):
        if path.suffix.lower() == ".zip":
            with zipfile.ZipFile(path) as archive:
                if sum(entry.file_size for entry in archive.infolist()) <= _MOST_OF_A_CLASS:
                    names = [name for name in sorted(archive.namelist()) if not name.endswith("/") and parts_of(name)]
    if any(platforms(parts_of(name)) for name in names):
        parts = above  # a class's zip, whose own name says nothing
    yield from [File((*parts, *parts_of(name)), path, name) for name in names] or [File(parts, path)]


def version_of(path: str) -> tuple[int, ...]:
    """Return the version or attempt that Teams or Blackboard has written into a path, to compare it with another's."""
    found = re.findall(r"(?:version|attempt)[ _]?([\d-]+)", path, re.I)
    return max((tuple(int(one) for one in match.split("-") if one) for match in found), default=())
