"""Submissions in the forms that teachers have them in, and whose they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from hooklab.course.classroom.collecting import find_submissions
from hooklab.course.classroom.reading import Notebook
from tests.course.classroom.made_up import answered, write, zipped

LESSON = "00_start_here.ipynb"
MARIA, FILE = "Maria_", "assignsubmission_file_"
MOODLE = "Ana Li_4711_assignsubmission_file_"


def found_in(folder: Path) -> dict[str, int]:
    return {one.student: sum(isinstance(found, Notebook) for found in one.read()) for one in find_submissions(folder)}


def test_a_folder_for_each_student(tmp_path: Path) -> None:
    write(answered(), tmp_path / "ana" / "lessons" / LESSON)
    write(answered(), tmp_path / "ana" / "lessons" / ".ipynb_checkpoints" / LESSON)
    (tmp_path / "bo").mkdir()

    assert found_in(tmp_path) == {"ana": 1, "bo": 0}


def test_nbgraders_submitted_folder(tmp_path: Path) -> None:
    write(answered(), tmp_path / "submitted" / "ana" / "lesson0" / LESSON)
    write("2026-01-01", tmp_path / "submitted" / "ana" / "lesson0" / "timestamp.txt")
    write(answered(), tmp_path / "source" / "lesson0" / LESSON)

    assert found_in(tmp_path) == {"ana": 1}


@pytest.mark.parametrize(
    ("names", "students"),
    [
        ([f"{MOODLE}/{LESSON}", f"Bo_7_assignsubmission_file_/{LESSON}"], {"Ana Li": 1, "Bo": 1}),
        ([f"{MOODLE}{LESSON}", f"Bo_7_assignsubmission_file_{LESSON}"], {"Ana Li": 1, "Bo": 1}),
        ([f"liana_12_345_{LESSON}", f"bobo_LATE_13_346_{LESSON}"], {"bobo": 1, "liana": 1}),
        ([f"Lesson 0_ana_attempt_2026-01-02-10-11-12_{LESSON}"], {"ana": 1}),
        ([f"ana/{LESSON}", f"bo/{LESSON}"], {"ana": 1, "bo": 1}),
        ([f"./ana/{LESSON}", f"./bo//{LESSON}"], {"ana": 1, "bo": 1}),
        ([f"müllerana_1_2_{LESSON}", f"li2_LATE_3_4_{LESSON}"], {"li2": 1, "müllerana": 1}),
        ([f"3b/ana/{LESSON}", f"3b/bo/{LESSON}", f"__MACOSX/3b/ana/._{LESSON}"], {"ana": 1, "bo": 1}),
        (["Exercise 1/Submissions/ana.ipynb", "Exercise 1/Submissions/bo.ipynb"], {"ana": 1, "bo": 1}),
        ([f"{MOODLE}/{LESSON}", "Bo_7_assignsubmission_onlinetext_/text.html"], {"Ana Li": 1, "Bo": 0}),
        (["Ana Li.ipynb", "ana.ipynb.txt", "bo.ipynb.json"], {"Ana Li": 1, "ana": 1, "bo": 1}),
        ([f"{MARIA}1_{FILE}/{LESSON}", f"{MARIA}2_{FILE}/{LESSON}"], {"Maria (1)": 1, "Maria (2)": 1}),
        ([f"mia_1_771_{LESSON}", f"mia_2_772_{LESSON}"], {"mia (1)": 1, "mia (2)": 1}),
        (
            [f"Lesson 1/{MARIA}1_{FILE}/{LESSON}", f"Lesson 3/{MARIA}8_{FILE}/{LESSON}", f"Lesson 3/bo/{LESSON}"],
            {"Maria": 2, "bo": 1},
        ),
        ([f"Jos\u00e9/{LESSON}", "Jose\u0301/01.ipynb", f"bo/{LESSON}"], {"Jos\u00e9": 2, "bo": 1}),
        ([f"Ana Li - {LESSON}", f"Bo - {LESSON}"], {"Ana Li": 1, "Bo": 1}),
        ([f"{n}-12 - {n} Li - Jan 5, 2026 1011 AM/{LESSON}" for n in (7, 8)], {"7 Li": 1, "8 Li": 1}),
        (
            [f"Ana Li/Lesson 0/Version {n}/{LESSON}" for n in (1, 2)] + [f"Bo/Lesson 0/Version 1/{LESSON}"],
            {"Ana Li": 2, "Bo": 1},
        ),
    ],
)
def test_a_learning_platforms_zip_packed_and_unpacked(
    names: list[str], students: dict[str, int], tmp_path: Path
) -> None:
    archive = zipped(tmp_path / "class.zip", {name: answered() for name in names})
    for name in names:
        write(answered(), tmp_path / "unpacked" / name)

    assert found_in(archive) == students
    assert found_in(tmp_path / "unpacked") == students
    (tmp_path / "packed").mkdir()
    assert all(one.notes for one in find_submissions(archive) if "(" in one.student)
    archive.rename(tmp_path / "packed" / archive.name)
    assert found_in(tmp_path / "packed") == students or len(students) == 1


def test_a_notebook_alone(tmp_path: Path) -> None:
    assert found_in(write(answered(), tmp_path / "Ana Li.ipynb")) == {"Ana Li": 1}


def test_a_report_beside_the_notebooks_is_passed_over(tmp_path: Path) -> None:
    write(answered(), tmp_path / "ana.ipynb")
    write("<html>", tmp_path / "report" / "report.html")
    (tmp_path / "report" / ".graded").mkdir()

    assert found_in(tmp_path) == {"ana": 1}


def test_a_zip_of_each_student_inside_the_platforms_zip(tmp_path: Path) -> None:
    inner = zipped(tmp_path / "inner.zip", {f"work/lessons/{LESSON}": answered()}).read_bytes()
    archive = zipped(tmp_path / "class.zip", {f"{MOODLE}/homework.zip": inner})

    assert found_in(archive) == {"Ana Li": 1}


def test_one_student_alone_is_no_class(tmp_path: Path) -> None:
    for name in (f"lessons/{LESSON}", "lessons/01_intermediate_grad.ipynb", f"backup/{LESSON}"):
        write(answered(), tmp_path / "folder" / "ana" / name)
    zipped(tmp_path / "zip" / "ana.zip", {f"lessons/{LESSON}": answered(), f"backup/{LESSON}": answered()})

    assert found_in(tmp_path / "folder") == {"ana": 3}
    assert found_in(tmp_path / "zip") == {"ana": 2}


def test_a_platforms_zip_for_each_lesson(tmp_path: Path) -> None:
    zipped(tmp_path / "lesson0.zip", {f"{MOODLE}/{LESSON}": answered()})
    zipped(tmp_path / "lesson1.zip", {f"{MOODLE.replace('4711', '4912')}/01_intermediate_grad.ipynb": answered()})

    assert found_in(tmp_path) == {"Ana Li": 2}


def test_somebody_who_handed_in_something_else_is_told(tmp_path: Path) -> None:
    write(answered(), tmp_path / "ana.ipynb")
    write("%PDF", tmp_path / "bo.pdf")
    write("ana,bo", tmp_path / "names of the class.csv")

    ana, bo = find_submissions(tmp_path)

    assert ana.student == "ana" and len(list(ana.read())) == 1
    assert list(bo.read()) == ["no notebook was handed in, but bo.pdf: ask for the .ipynb"]


def test_a_class_zip_whose_name_looks_like_a_students(tmp_path: Path) -> None:
    zipped(tmp_path / "class_2026_11_submissions.zip", {f"{MOODLE}/{LESSON}": answered()})

    assert found_in(tmp_path) == {"Ana Li": 1}


def test_a_students_zip_among_notebooks(tmp_path: Path) -> None:
    write(answered(), tmp_path / "bo.ipynb")
    zipped(tmp_path / "ana.zip", {f"lessons/{LESSON}": answered(), f"backup/{LESSON}": answered()})

    assert found_in(tmp_path) == {"ana": 2, "bo": 1}


def test_nothing_to_grade_is_said(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="no notebooks in"):
        find_submissions(tmp_path)
    with pytest.raises(LookupError, match="there is no"):
        find_submissions(tmp_path / "typo")
