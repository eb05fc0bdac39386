"""The submissions in a folder, as teachers have them: whose they are, and where each one's notebooks are.

Notebooks named by student; a folder for each student; the zip of a learning platform, packed or unpacked, also one for
each lesson; nbgrader's `submitted/STUDENT/ASSIGNMENT`; all of these also mixed. Links and pipes are passed over.

A student is who the platform says: the whole name. Two of one name whom the platform gives different numbers are two
students, called by name and number. Whatever is less certain is a note that the teacher reads first.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import time
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from hooklab.course.classroom.archives import MOST_BYTES, Packed, packed_files, paths_in
from hooklab.course.classroom.reading import Unreadable, read_notebook

NOTEBOOK = (".ipynb", ".ipynb.txt", ".ipynb.json")  # as browsers save one
_READ = (*NOTEBOOK, ".zip")
# What is handed in by mistake. Other files beside the notebooks may be the teacher's own, such as a list of names.
_MISTAKEN = (".html", ".pdf", ".py", ".docx", ".rar", ".7z", ".tar", ".gz", ".tgz")
_IGNORED = {"__pycache__", "__MACOSX", "node_modules"}  # and what begins with a dot
REPORT = ".graded"  # in a folder that holds a report of this program, not a submission
# What learning platforms write around a student's name: Moodle, Blackboard, Brightspace, Google Classroom, Canvas.
_PLATFORMS = [
    re.compile(r"(?P<name>.+?)_(?P<number>\d+)_assignsubmission_[a-z]+_?.*", re.S),
    re.compile(r".+?_(?P<name>[^_]+)_attempt_\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d(_.+|\..+)?"),
    re.compile(r"(?P<number>\d+)-\d+ - (?P<name>.+?) - .*\d [AP]M( - .+)?"),
    re.compile(r"(?P<name>[^\W\d].*?) - \d\d_.+"),
    re.compile(r"(?P<name>[^\W_A-Z]+)(_LATE)?_(?P<number>\d+)_\d+_.+"),
]
_A_LESSONS = re.compile(r"\d\d_|lesson|assignment|homework|week", re.I)  # a folder for a lesson, no student's name
_LESSON_BEHIND = re.compile(r"(?P<name>.+?)[ _-]+(?P<lesson>\d{1,2})")  # such as ana_03.ipynb
_VERSION = re.compile(r"(?:version|attempt)[ _]?([\d-]+)", re.I)  # Teams, Blackboard
_SUFFIX = re.compile(r"(\.ipynb|\.tar)?\.[a-z0-9]{1,5}$", re.I)


@dataclass(frozen=True)
class Who:
    """A student as a platform writes one: the name, and its number for them, if there is one."""

    name: str
    number: str = ""


@dataclass
class Submission:
    """All that one student has handed in: the files it can be read from. Nothing is kept in memory.

    `archives` are zips of a whole class, with the names in them that are this student's.
    """

    student: str
    files: list[Path] = field(default_factory=list)
    archives: dict[Path, set[str]] = field(default_factory=lambda: defaultdict(set))
    faults: list[str] = field(default_factory=list)
    who: Who = Who("")
    ways: set[str] = field(default_factory=set)  # how the platform calls this student's folders and files

    def join(self, other: Submission) -> None:
        """Take all of another submission of the same student."""
        self.files += other.files
        for archive, names in other.archives.items():
            self.archives[archive] |= names
        self.faults += other.faults
        self.ways |= other.ways

    def read(self) -> Iterator[Packed]:
        """Yield this student's notebooks, in the order of their paths, and the files that could not be read."""
        for path in self.files:
            yield from _read(path)
        for archive, names in self.archives.items():
            found = packed_files(archive, NOTEBOOK, names.__contains__)
            yield from (one for one in found if not _is_noise(one.path.parts))


@dataclass(frozen=True)
class _Found:
    """A file or an empty folder: what leads to it from the class's folder, and where it is.

    In a zip of a whole class, `path` is the zip, and `entry` its name in there.
    """

    parts: tuple[str, ...]
    path: Path
    entry: str = ""
    is_folder: bool = False

    @property
    def is_read(self) -> bool:
        return not self.is_folder and self.parts[-1].lower().endswith(_READ)


def find_submissions(folder: Path) -> list[Submission]:
    """Return what is in a folder, or in a zip, by student in the order of their names.

    Raises LookupError where there is nothing to grade.
    """
    if not folder.exists():
        raise LookupError(f"there is no {folder}")
    found = _below_the_class(_all_in(folder))
    if not any(one.is_read or one.is_folder or _is_mistaken(one) for one in found):
        forms = "give a folder of notebooks, of folders named by student, or of zips"
        raise LookupError(f"no notebooks in {folder}: {forms}")
    owners = [(one, _whose(one)) for one in found]
    several = _several_of_one_name(owners)
    students: dict[str, Submission] = {}
    for one, who in owners:
        is_several = who.name in several and who.number
        name = f"{who.name} ({who.number})" if is_several else who.name
        is_named = one.is_folder or len(one.parts) > 1 or _platforms(one.parts)
        if not is_named and not one.is_read and not _is_mistaken(one):
            continue  # such as the teacher's list of names
        student = students.setdefault(name, Submission(name, who=who))
        student.ways |= {part for part in one.parts if _platforms([part])}
        if is_several and not student.faults:
            student.faults.append(f"several students are called {who.name}: distinguished by the platform's number")
        _add(one, student)
    return _with_lesson_behind(sorted(students.values(), key=lambda one: one.student))


def _add(one: _Found, student: Submission) -> None:
    if _is_mistaken(one):
        student.faults.append(f"{one.parts[-1]} is not a notebook: ask for the .ipynb")
    elif one.is_read and one.entry:
        student.archives[one.path].add(one.entry)
    elif one.is_read:
        student.files.append(one.path)


def _is_mistaken(one: _Found) -> bool:
    return not one.is_folder and one.parts[-1].lower().endswith(_MISTAKEN) and len(one.parts) < 3


def _all_in(folder: Path) -> list[_Found]:
    """Return all that is in a folder or zip, with the zips of a whole class opened."""
    if not folder.is_dir():
        return _packed(folder, ()) or [_Found((folder.name,), folder)]
    there, found = list(_walk(folder, ())), []
    for one in there:
        is_zip, is_only = one.path.suffix.lower() == ".zip", len(there) == 1
        names = paths_in(one.path) if is_zip else []
        is_class = any(_platforms(_parts(name)) for name in names) or (is_only and _students_below(names) is not None)
        found += _packed(one.path, one.parts[:-1]) if is_class else [one]
    return found


def _packed(archive: Path, above: tuple[str, ...]) -> list[_Found]:
    names = [name for name in paths_in(archive) if not _is_noise(_parts(name))]
    return [_Found((*above, *_parts(name)), archive, name) for name in names]


def _walk(folder: Path, above: tuple[str, ...]) -> Iterator[_Found]:
    there = [path for path in sorted(folder.iterdir()) if not path.is_symlink() and not _is_noise([path.name])]
    inside = [path for path in there if path.is_dir() or path.is_file()]
    if (folder / REPORT).is_dir():
        return
    if not inside and above:
        yield _Found(above, folder, is_folder=True)
    for path in inside:
        if path.is_dir():
            yield from _walk(path, (*above, path.name))
        else:
            yield _Found((*above, path.name), path)


def _below_the_class(found: list[_Found]) -> list[_Found]:
    """Leave out the folders that all of a class are in, such as "3b" of "3b/ana/03.ipynb" and "3b/bo/03.ipynb".

    And a first folder that is a lesson's, such as those of two archives unpacked side by side.
    """
    submitted = [one for one in found if one.parts[0] == "submitted"]
    found = submitted or found
    depth = _students_below(["/".join(one.parts) for one in found if one.is_read or one.is_folder]) or 0
    below = []
    for one in found:
        most = max(depth, bool(submitted))
        parts = one.parts if _platforms(one.parts) else one.parts[most:]
        is_lessons = len(parts) > 1 and _A_LESSONS.match(parts[0]) and not _platforms(parts[:1])
        below += [replace(one, parts=parts[1:] if is_lessons else parts)] if len(one.parts) > most else []
    return below


def _students_below(names: Sequence[str]) -> int | None:
    """Return how many folders all students of a class are in, None where these are the files of one student."""
    read = [_parts(name) for name in names if not _is_noise(_parts(name))]
    folders = zip(*[parts[:-1] for parts in read], strict=False)
    common = [one[0] for one in itertools.takewhile(lambda one: len(set(one)) == 1, folders)]
    if any(_platforms([part]) for part in common):
        return 0
    students = {parts[len(common)] for parts in read}
    return len(common) if sum(not _A_LESSONS.match(one) for one in students) > 1 else None


def _whose(one: _Found) -> Who:
    is_file = len(one.parts) == 1 and not one.is_folder
    name = _SUFFIX.sub("", one.parts[0]) if is_file else one.parts[0]
    return _platforms(one.parts) or Who(unicodedata.normalize("NFC", name))


def _platforms(parts: Sequence[str]) -> Who | None:
    """Return whose a path is by what a learning platform has written into it.

    Example:
        >>> _platforms(["Ana Li_4711_assignsubmission_file_", "03_forward_hooks.ipynb"])
        Who(name='Ana Li', number='4711')
    """
    for part, pattern in itertools.product(parts, _PLATFORMS):
        if match := pattern.fullmatch(unicodedata.normalize("NFC", part)):
            return Who(match["name"], match.groupdict().get("number") or "")
    return None


def _several_of_one_name(owners: Sequence[tuple[_Found, Who]]) -> set[str]:
    """Return the names that one archive, or one folder of it, gives to different numbers.

    Moodle gives participants new numbers for each assignment: different numbers in two archives may be one student.
    """
    numbers = defaultdict[tuple[str, ...], set[str]](set)
    for one, who in owners:
        parts = (str(one.path), *_parts(one.entry)) if one.entry else one.path.parts
        above = itertools.takewhile(lambda part: not _platforms([part]), parts)
        numbers[who.name, *above].add(who.number)
    return {name for (name, *_), found in numbers.items() if len(found) > 1}


def _with_lesson_behind(submissions: list[Submission]) -> list[Submission]:
    """Join ana_01.ipynb and ana_03.ipynb, where these are lessons 1 and 3, and tell it."""
    joined: dict[str, Submission] = {}
    for one in submissions:
        match, name = _LESSON_BEHIND.fullmatch(one.student), one.student
        if match and len(one.files) == 1 and not one.archives and _lesson_of(one.files[0]) == int(match["lesson"]):
            name = match["name"]
            one.faults.append(f"{one.files[0].name} is taken for lesson {int(match['lesson'])} of {name}")
        joined.setdefault(name, Submission(name, who=Who(name, one.who.number))).join(one)
    return sorted(joined.values(), key=lambda one: one.student)


def _lesson_of(path: Path) -> int | None:
    with contextlib.suppress(Unreadable, StopIteration):
        return read_notebook(next(_read(path)).content).lesson
    return None


def _is_noise(parts: Sequence[str]) -> bool:
    return any(part in _IGNORED or (part[:1] == "." and part not in ("..", ".")) for part in parts)


def _parts(name: str) -> list[str]:
    return [part for part in re.split(r"[/\\]", name) if part not in ("", ".")] or [name]


def version_of(path: str) -> tuple[int, ...]:
    """Return the version that a platform has written into a path, to compare it with the version in another path."""
    found = [tuple(int(one) for one in match.split("-") if one) for match in _VERSION.findall(path)]
    return max(found, default=())


def _read(path: Path) -> Iterator[Packed]:
    shown, about = PurePosixPath(*path.parts[-3:]), path.stat()
    if path.suffix.lower() == ".zip":
        found = packed_files(path, NOTEBOOK, lambda name: True)
        yield from (one for one in found if not _is_noise(one.path.parts))
    elif about.st_size > MOST_BYTES:
        yield Packed(shown, fault=f"{path.name} is larger than {MOST_BYTES // 1_000_000} MB and was not read")
    else:
        try:
            yield Packed(shown, path.read_bytes(), tuple(time.localtime(about.st_mtime)[:6]))
        except OSError as error:
            yield Packed(shown, fault=f"{path.name} cannot be read: {error.strerror}")
