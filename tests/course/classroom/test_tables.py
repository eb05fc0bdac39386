"""`--students`: everybody of a class has one row, and the platform gets its own table and names back."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path

import pytest

from hooklab.course.classroom.collecting import find_submissions
from hooklab.course.classroom.grading import Graded
from hooklab.course.classroom.lessons import ALL, CORE, lesson_at
from hooklab.course.classroom.pages import to_send_back
from hooklab.course.classroom.tables import STRANGER, Refused, read_class
from hooklab.course.classroom.verdicts import Verdict
from tests.course.classroom.made_up import answered, write, zipped

MOODLE = (
    "Identifier,Full name,Grade\nParticipant 101,Maria Garcia,\nParticipant 202,Maria Garcia,\nParticipant 7,Bo Ek,\n"
)
CANVAS = 'Student,ID,Section\n"    Points Possible",,\n"Li, Ana",11,A\n"Ek, Bo",12,A\n"Student, Test",99,A\n'
PLAIN = "Name;Group\nLi Ana;1\nEk Bo;2\n"


def table(tmp_path: Path, text: str) -> Path:
    return write(text, tmp_path / "class.csv")


@pytest.mark.parametrize(
    ("text", "handed_in", "expected"),
    [
        (
            MOODLE,
            ["Participant_101_assignsubmission_file_/03.ipynb", "Participant_202_assignsubmission_file_/03.ipynb"],
            {"Maria Garcia (101)": 1, "Maria Garcia (202)": 1, "Bo Ek": 0},
        ),
        (CANVAS, ["liana_11_900_03.ipynb"], {"Ana Li": 1, "Bo Ek": 0}),
        (PLAIN, ["ana li/03.ipynb", "Bo Ek.ipynb", "Eve.ipynb"], {"Li Ana": 1, "Ek Bo": 1, "Eve": 1}),
        (
            MOODLE,
            ["Maria Garcia/03.ipynb"],
            {"Maria Garcia": 1, "Maria Garcia (101)": 0, "Maria Garcia (202)": 0, "Bo Ek": 0},
        ),
    ],
)
def test_everybody_of_the_class_is_there_once(
    text: str, handed_in: list[str], expected: dict[str, int], tmp_path: Path
) -> None:
    for name in handed_in:
        write(answered(), tmp_path / "in" / name)

    found = read_class(table(tmp_path, text)).match(find_submissions(tmp_path / "in"))

    assert {one.student: len(one.files) for one in found} == expected
    strangers = [one.student for one in found if STRANGER in one.notes]
    assert strangers == [name for name in expected if name in ("Eve", "Maria Garcia")]


@pytest.mark.parametrize(
    ("text", "line"),
    [(MOODLE, ["Participant 7", "Bo Ek", "1"]), (CANVAS, ["Ek, Bo", "12", "A", "1"]), (PLAIN, ["Ek Bo", "2", "1"])],
)
def test_the_table_comes_back_with_everybodys_points(text: str, line: list[str], tmp_path: Path) -> None:
    students = read_class(table(tmp_path, text))
    names, lesson = [one.student for one in students.students.values()], lesson_at(0)
    graded = [Graded(name, lesson, {"0.1": Verdict("", points="Bo" in name)}) for name in names]

    rows = list(csv.reader(io.StringIO(students.with_points(graded))))

    assert line in rows
    assert [row[-1] for row in rows[1:] if row[-1].isdigit()].count("0") == len(names) - 1


@pytest.mark.parametrize("text", ["", "number,mark\n1,2\n", "name\n"])
def test_a_table_without_names_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="nobody in it"):
        read_class(table(tmp_path, text))


def test_feedback_goes_back_under_the_platforms_own_names(tmp_path: Path) -> None:
    moodle, canvas = "Ana J. Li_4711_assignsubmission_file_", "ekbo_12_900_03.py"
    zipped(tmp_path / "a.zip", {f"{moodle}/03.ipynb": answered(), canvas: b"x = 1"})
    found = find_submissions(tmp_path / "a.zip")

    packed = to_send_back({one.student: one.student for one in found}, {one.student: one.ways() for one in found})

    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {
            f"{moodle}/feedback.html": b"Ana J. Li",
            "ekbo_12_900_03.html": b"ekbo",
        }
    assert to_send_back({"ana": "page"}, {"ana": set()}) == b""


def test_what_can_wait_counts_only_where_it_is_chosen() -> None:
    ids = [[one.id for one in lesson_at(3, only).exercises] for only in (CORE, ALL, frozenset(["3.5"]))]

    assert ids == [["3.1", "3.2", "3.3"], ["3.1", "3.2", "3.3", "3.4", "3.5"], ["3.5"]]
