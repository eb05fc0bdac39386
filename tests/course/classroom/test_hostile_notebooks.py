"""Files that are no submission, or a damaged one: each costs its own student alone, and the teacher reads one line."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.course.classroom.conftest import Grade
from tests.course.classroom.made_up import CHECK, RIGHT, SETUP, STUB, answered, code, notebook, write, zipped

# what is written instead of a notebook, and what the teacher reads
UNREADABLE: dict[str, tuple[Any, str]] = {
    "not JSON": ("print('hello')", "is not a notebook"),
    "bytes of a picture": (b"\x89PNG\r\n\x1a\n\x00\xff", "is not a notebook"),
    "JSON without cells": ({"a": 1}, "has no cells"),
    "no exercise": (notebook(code("x = 1")), "has no exercise of this course"),
    "a lesson that is not there": (notebook(code("check('99.1', f)")), "there is no lesson 99"),
}


def notes(grade: Grade, folder: Path) -> tuple[str, ...]:
    """Return the notes on mallory's work, none of which can be graded; ana's can."""
    write(answered(), folder / "ana.ipynb")
    found = grade(folder)
    assert [one.verdicts["0.1"].state for one in found.values()] == ["correct", "not handed in"]
    return found["mallory"].notes


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_told_in_one_line(name: str, grade: Grade, tmp_path: Path) -> None:
    content, says = UNREADABLE[name]
    write(content, tmp_path / "class" / "mallory.ipynb")

    (note,) = notes(grade, tmp_path / "class")

    assert says in note and "\n" not in note and len(note) < 200


def filled_in(*cells: dict[str, Any]) -> dict[str, Any]:
    return notebook(code(SETUP), *cells)


CARD = {"cell_type": "markdown", "source": "### Exercise 0.1 · Twice", "metadata": {}}
SOLUTION, ITS_CHECK = code(RIGHT, "solution-0-1"), code(CHECK, "check-0-1")
PIP = "!pip install -q hooklab \\\n    --quiet\n"  # a command that goes on in the next line


def with_cells(*texts: str) -> dict[str, Any]:
    """Return a notebook with these cells before the check."""
    return filled_in(*[code(text) for text in texts], ITS_CHECK)


# odd notebooks, with the verdict that Jupyter gives from top to bottom, and what check or grader say
ODD: dict[str, tuple[dict[str, Any], str, str]] = {
    "as handed out": (filled_in(SOLUTION, ITS_CHECK), "correct", ""),
    "moved below its check": (filled_in(ITS_CHECK, SOLUTION), "correct", "no check has seen this answer"),
    "the check deleted": (filled_in(CARD, SOLUTION), "correct", "no check has seen this answer"),
    "the setup deleted": (
        notebook(code("def twice_as_large(x):\n    return torch.add(x, x)"), ITS_CHECK),
        "not yet",
        "name 'torch' is not defined",
    ),
    "the stub copied below": (filled_in(SOLUTION, code(STUB), ITS_CHECK), "not attempted", ""),
    "filled in below its check": (filled_in(code(STUB), ITS_CHECK, code(RIGHT)), "correct", "no check has seen"),
    "a check below as well": (filled_in(code(STUB), ITS_CHECK, SOLUTION, ITS_CHECK), "correct", ""),
    "an error on the way": (with_cells("1 / 0", RIGHT, "raise SystemExit"), "correct", ""),
    "another name": (
        filled_in(code(RIGHT.replace("twice_as_large", "mine")), code('check("0.1", mine)')),
        "correct",
        "",
    ),
    "a command of two lines before the imports": (notebook(code(PIP + SETUP), SOLUTION, ITS_CHECK), "correct", ""),
    "an answer put back": (
        with_cells("def twice_as_large(x): return x", "first_try = twice_as_large\ntwice_as_large = first_try"),
        "not yet",
        "your result",
    ),
    "magics": (
        with_cells("%time two = 2", "%%time\n" + RIGHT.replace("2", "two"), "%lsmagic\nfiles = !ls"),
        "correct",
        "",
    ),
    "a cell of another language": (with_cells(RIGHT, "%%bash\nexit 1", "%%html\n<b>"), "correct", ""),
    "await at the top": (with_cells("import asyncio\nawait asyncio.sleep(0)", RIGHT), "correct", ""),
    "a training without end": (with_cells(RIGHT, "while True: pass"), "correct", "cell 3 was stopped"),
    "a cell that ends the process": (
        with_cells(RIGHT, "import os\nos._exit(1)"),
        "correct",
        "cell 3 ends its own process",
    ),
    "an answer that is not Python": (
        with_cells("def twice_as_large(x)\n    return 2 * x"),
        "not yet",
        "cell 2 is not Python: SyntaxError: expected ':', at line 1",
    ),
    "a deleted answer": (with_cells(), "not attempted", "no definition of twice_as_large"),
    "odd cells": (
        notebook(code(SETUP), 7, None, {"cell_type": "code"}, code(["x"]), SOLUTION, ITS_CHECK),
        "correct",
        "",
    ),  # type: ignore[arg-type]
    "odd metadata": (
        notebook(code(SETUP), SOLUTION | {"metadata": [1]}, ITS_CHECK | {"metadata": {"nbgrader": 5}}, metadata=3),
        "correct",
        "",
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_notebook_is_graded_as_jupyter_runs_it(name: str, grade: Grade, tmp_path: Path) -> None:
    content, state, says = ODD[name]
    write(content, tmp_path / "class" / "ana.ipynb")

    found = grade(tmp_path / "class")["ana"]

    verdict = found.verdicts["0.1"]
    told = "; ".join([verdict.summary, *verdict.notes, *found.notes])
    assert (verdict.state, says in told) == (state, True), told


def encrypted(path: Path) -> None:
    """A zip whose entry says that it is encrypted: one bit, in both of its headers."""
    data = bytearray(zipped(path, {"a.ipynb": answered()}).read_bytes())
    data[data.index(b"PK\x03\x04") + 6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)


def bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("a.ipynb", bytes(110_000_000))


def nested(path: Path) -> None:
    inner = zipped(path, {"a.ipynb": answered()}).read_bytes()
    for _ in range(5):
        inner = zipped(path, {"a.zip": inner}).read_bytes()


ARCHIVES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no zip": (lambda path: path.write_bytes(b"PK\x03\x04 nothing"), "cannot be read: File is not a zip file"),
    "a password": (encrypted, "is encrypted"),
    "a bomb": (bomb, "more than 100 MB"),
    "zips in zips": (nested, "a zip in a zip in a zip"),
    "an empty one": (lambda path: zipped(path, {"readme.txt": b"hello"}), "no notebook"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_hostile_zip_is_told_in_one_line_and_nothing_is_unpacked(name: str, grade: Grade, tmp_path: Path) -> None:
    make, says = ARCHIVES[name]
    (tmp_path / "class").mkdir()
    make(tmp_path / "class" / "mallory.zip")
    before = sorted(tmp_path.rglob("*"))

    (note,) = notes(grade, tmp_path / "class")

    assert says in note
    there = [path for path in sorted(tmp_path.rglob("*")) if "kept" not in path.parts]
    assert there == sorted([*before, tmp_path / "class" / "ana.ipynb"])


@pytest.mark.parametrize("name", ["../../evil.ipynb", "/tmp/evil.ipynb", "C:\\evil.ipynb"])
def test_a_path_that_leads_out_of_a_zip_is_a_name(name: str, grade: Grade, tmp_path: Path) -> None:
    zipped(tmp_path / "class" / "mallory.zip", {name: answered()})
    before = sorted(tmp_path.rglob("*"))

    assert grade(tmp_path / "class")["mallory"].verdicts["0.1"].state == "correct"
    there = [path for path in sorted(tmp_path.rglob("*")) if "kept" not in path.parts]
    assert there == before and not Path("/tmp/evil.ipynb").exists()


def test_links_and_pipes_among_the_notebooks_are_not_followed(grade: Grade, tmp_path: Path) -> None:
    secret = write(answered(), tmp_path / "secret.ipynb")
    (tmp_path / "class" / "mallory").mkdir(parents=True)
    (tmp_path / "class" / "link.ipynb").symlink_to(secret)
    (tmp_path / "class" / "mallory" / "link.ipynb").symlink_to(secret)
    os.mkfifo(tmp_path / "class" / "mallory" / "pipe.ipynb")

    assert notes(grade, tmp_path / "class") == ("no notebook was handed in",)
