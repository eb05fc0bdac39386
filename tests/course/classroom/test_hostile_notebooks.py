"""Files that are no submission, or a damaged one: each costs its own student alone, and the teacher reads one line."""

from __future__ import annotations

import json
import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.course.classroom.conftest import Grade
from tests.course.classroom.made_up import CHECK, RIGHT, SETUP, STUB, answered, code, notebook, write, zipped

DEEP = "x = " + "(" * 5000 + "1" + ")" * 5000
# what is written instead of a notebook, and what the teacher reads
UNREADABLE: dict[str, tuple[Any, str]] = {
    "not JSON": ("print('hello')", "is not a notebook"),
    "an empty file": ("", "is not a notebook"),
    "bytes of a picture": (b"\x89PNG\r\n\x1a\n\x00\xff", "is not a notebook"),
    "JSON without cells": ({"a": 1}, "has no cells"),
    "a list": ("[1, 2]", "has no cells"),
    "very deep JSON": ("[" * 200_000, "is not a notebook"),
    "a huge number": ('{"cells": [], "nbformat": ' + "9" * 5000 + "}", "is not a notebook"),
    "an old format": ({"worksheets": [], "nbformat": 3}, "unknown notebook format 3"),
    "a format to come": (notebook(nbformat=99), "unknown notebook format 99"),
    "another kernel": (notebook(metadata={"kernelspec": {"language": "R"}}), "another kernel: 'r'"),
    "too many cells": (notebook(*[code("x = 1")] * 3001), "has 3001 cells"),
    "a number that is none of a lesson": (notebook(code("check('" + "9" * 5000 + ".1', f)")), "has no exercise"),
    "no exercise": (notebook(code("x = 1")), "has no exercise of this course"),
    "a lesson that is not there": (notebook(code("check('99.1', f)")), "there is no lesson 99"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_told_in_one_line(name: str, grade: Grade, tmp_path: Path) -> None:
    content, says = UNREADABLE[name]
    write(content, tmp_path / "class" / "mallory.ipynb")

    (one,) = grade(tmp_path / "class").values()

    assert one.verdicts == {}
    (note,) = one.notes
    assert says in note and "\n" not in note and len(note) < 200


def filled_in(*cells: dict[str, Any]) -> dict[str, Any]:
    return notebook(code(SETUP), *cells)


SOLUTION, ITS_CHECK = code(RIGHT, "solution-0-1"), code(CHECK, "check-0-1")
# notebooks in which something was moved, copied, deleted or is odd; all hold a right answer
STILL_RIGHT: dict[str, tuple[dict[str, Any], str]] = {
    "as handed out": (filled_in(SOLUTION, ITS_CHECK), ""),
    "moved below its check": (filled_in(ITS_CHECK, SOLUTION), "cells were moved"),
    "the check deleted": (filled_in(SOLUTION), "its check cell is gone"),
    "the setup deleted": (notebook(code("def twice_as_large(x):\n    return torch.add(x, x)", "solution-0-1")), "gone"),
    "the stub copied below": (filled_in(SOLUTION, code(STUB), ITS_CHECK), ""),
    "filled in a copy": (filled_in(code(STUB, "solution-0-1"), code(RIGHT), ITS_CHECK), "in another cell"),
    "two answers": (
        filled_in(code(RIGHT.replace("2", "3"), "solution-0-1"), code(RIGHT), ITS_CHECK),
        "defined in 2 cells",
    ),
    "ids lost": (filled_in(code(RIGHT), code(CHECK)), "in another cell"),
    "duplicate ids": (filled_in(SOLUTION, ITS_CHECK, ITS_CHECK), "2 check cells"),
    "another name": (
        filled_in(code(RIGHT.replace("twice_as_large", "mine")), code('check("0.1", mine)', "check-0-1")),
        "called mine",
    ),
    "a helper below": (
        filled_in(
            code("def twice_as_large(x):\n    return two() * x\n", "solution-0-1"), ITS_CHECK, code("two = lambda: 2")
        ),
        "",
    ),
    "a name that no reading finds": (
        filled_in(
            code("globals()['two'] = 2"),
            code("def twice_as_large(x):\n    return two * x\n", "solution-0-1"),
            ITS_CHECK,
        ),
        "",
    ),
    "magics": (filled_in(code("%time\n!pip list\n" + RIGHT, "solution-0-1"), ITS_CHECK), ""),
    "a cell that is no Python": (filled_in(code("this is"), SOLUTION, ITS_CHECK), ""),
    "a very deep cell": (filled_in(code(DEEP), SOLUTION, ITS_CHECK), ""),
    "zero bytes": (filled_in(code("x = '\x00'"), SOLUTION, ITS_CHECK), ""),
    "commands into names": (
        filled_in(code("files = !ls\nprint?\n%time two = 2\nlast = %sql x\n" + RIGHT, "solution-0-1"), ITS_CHECK),
        "",
    ),
    "half a character": (filled_in(code("x = '\ud800'"), SOLUTION, ITS_CHECK), ""),
    "odd cells": (notebook(code(SETUP), 7, None, {"cell_type": "code"}, code(["x"]), SOLUTION, ITS_CHECK), ""),  # type: ignore[arg-type]
    "odd metadata": (
        notebook(code(SETUP), SOLUTION | {"metadata": [1]}, ITS_CHECK | {"metadata": {"nbgrader": 5}}, metadata=3),
        "",
    ),
    "2000 cells": (notebook(code(SETUP), *[code("x = 1")] * 2000, SOLUTION, ITS_CHECK), ""),
    "50 MB of output": (
        filled_in(SOLUTION | {"outputs": [{"output_type": "stream", "text": "x" * 50_000_000}]}, ITS_CHECK),
        "",
    ),
}


@pytest.mark.parametrize("name", STILL_RIGHT)
def test_a_right_answer_counts_whatever_became_of_the_cells(name: str, grade: Grade, tmp_path: Path) -> None:
    content, says = STILL_RIGHT[name]
    write(content, tmp_path / "class" / "ana.ipynb")

    verdict = grade(tmp_path / "class")["ana"].verdicts["0.1"]

    assert verdict.state == "correct", verdict.text
    assert says in "; ".join(verdict.notes)
    assert verdict.notes or not says


def test_an_answer_that_is_no_python_is_told_with_its_line(grade: Grade, tmp_path: Path) -> None:
    write(answered("def twice_as_large(x)\n    return 2 * x"), tmp_path / "class" / "ana.ipynb")

    verdict = grade(tmp_path / "class")["ana"].verdicts["0.1"]

    assert verdict.state == "not yet"
    assert "cell 2 is not Python: SyntaxError: expected ':', at line 1" in verdict.text


def test_a_deleted_answer_is_not_attempted(grade: Grade, tmp_path: Path) -> None:
    write(filled_in(ITS_CHECK), tmp_path / "class" / "ana.ipynb")

    assert grade(tmp_path / "class")["ana"].verdicts["0.1"].state == "not attempted"


def encrypted(path: Path) -> None:
    """A zip whose entry says that it is encrypted: one bit, in both of its headers."""
    data = bytearray(zipped(path, {"a.ipynb": answered()}).read_bytes())
    data[data.index(b"PK\x03\x04") + 6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)


def linked(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        link = zipfile.ZipInfo("a.ipynb")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")


def bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("a.ipynb", bytes(110_000_000))


def nested(path: Path) -> None:
    inner = zipped(path, {"a.ipynb": answered()}).read_bytes()
    for _ in range(5):
        inner = zipped(path, {"a.zip": inner}).read_bytes()


ARCHIVES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no zip": (lambda path: path.write_bytes(b"PK\x03\x04 nothing"), "a zip that cannot be read"),
    "a path upwards": (lambda path: zipped(path, {"../../evil.ipynb": answered()}), "leads out of the zip"),
    "an absolute path": (lambda path: zipped(path, {"/tmp/evil.ipynb": answered()}), "leads out of the zip"),
    "a drive": (lambda path: zipped(path, {"C:\\evil.ipynb": answered()}), "leads out of the zip"),
    "a link": (linked, "is a link"),
    "a password": (encrypted, "is encrypted"),
    "a bomb": (bomb, "larger than 100 MB"),
    "zips in zips": (nested, "zips in zips"),
    "very many files": (lambda path: zipped(path, {f"{n}.ipynb": b"" for n in range(20_001)}), "20001 files"),
    "an empty one": (lambda path: zipped(path, {"readme.txt": b"hello"}), "no notebook"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_hostile_zip_is_told_in_one_line_and_nothing_is_unpacked(name: str, grade: Grade, tmp_path: Path) -> None:
    make, says = ARCHIVES[name]
    (tmp_path / "class").mkdir()
    make(tmp_path / "class" / "mallory.zip")
    before = sorted(tmp_path.rglob("*"))

    (one,) = grade(tmp_path / "class").values()

    assert one.verdicts == {}
    (note,) = one.notes
    assert says in note
    assert [path for path in sorted(tmp_path.rglob("*")) if path not in before] == [tmp_path / "kept"]


def test_links_and_pipes_among_the_notebooks_are_not_followed(grade: Grade, tmp_path: Path) -> None:
    secret = write(answered(), tmp_path / "secret.ipynb")
    (tmp_path / "class" / "mallory").mkdir(parents=True)
    (tmp_path / "class" / "link.ipynb").symlink_to(secret)
    (tmp_path / "class" / "mallory" / "link.ipynb").symlink_to(secret)
    os.mkfifo(tmp_path / "class" / "mallory" / "pipe.ipynb")

    found = grade(tmp_path / "class")

    assert [one.verdicts for one in found.values()] == [{}, {}]
    assert "not followed" in found["link"].notes[0] and len(found["mallory"].notes) == 2


def test_a_students_own_hooklab_is_never_used(grade: Grade, tmp_path: Path) -> None:
    own = tmp_path / "class" / "mallory"
    write("def check(*a): pass\n", own / "hooklab" / "__init__.py")
    write("raise SystemExit('mine')\n", own / "torch.py")
    write(json.loads(json.dumps(answered("def twice_as_large(x):\n    return x"))), own / "00_start_here.ipynb")

    assert grade(tmp_path / "class")["mallory"].verdicts["0.1"].state == "not yet"
