"""A whole class: nobody is forgotten, no file of the teacher's is lost, and the same input gives the same files."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hooklab.course.classroom import grade as command
from hooklab.course.classroom import verdicts
from hooklab.course.classroom.collecting import Submission, find_submissions
from hooklab.course.classroom.grading import Graded, Grader, grade_class
from hooklab.course.classroom.lessons import LESSONS, lesson_at, wrong_answers
from hooklab.course.classroom.reading import read_notebook
from hooklab.course.classroom.running import chosen_canaries
from hooklab.course.classroom.sandbox import ROOT, UNPROTECTED
from hooklab.course.classroom.verdicts import Verdict
from hooklab.course.exercises import attempt
from tests.course.classroom.conftest import LIMITS, Grade
from tests.course.classroom.made_up import STUB, answered, code, notebook, write


def class_in(folder: Path) -> Path:
    write(answered(), folder / "ana.ipynb")
    write(answered("def twice_as_large(x):\n    print(x * 2)"), folder / "bo.ipynb")
    write(answered(STUB), folder / "chen.ipynb")
    return folder


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.suffix in (".html", ".csv")}


def run(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "hooklab", "grade", "class", *more]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def test_the_command_writes_grades_pages_and_report_and_the_same_ones_again(tmp_path: Path) -> None:
    class_in(tmp_path / "class")

    told = run(tmp_path)
    first = files_in(tmp_path / "report")
    assert "report/: report.html, grades.csv and feedback/" in told.stdout, told.stderr
    assert set(first) == {"grades.csv", "report.html", "decisions.csv", "ana.html", "bo.html", "chen.html"}
    assert b'bo,0.1,not yet,0,"print() shows a value' in first["grades.csv"]

    began = time.monotonic()
    run(tmp_path)
    assert time.monotonic() - began < 60  # and no torch: nothing was graded twice
    assert files_in(tmp_path / "report") == first


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Return a function that runs the command on three students, whose verdicts are known."""
    class_in(tmp_path / "class")
    known = {"ana": Verdict("correct", "right"), "bo": Verdict("tampered", "mine"), "chen": Verdict("not attempted")}

    def graded(*args: Any, **options: Any) -> list[Graded]:
        return [Graded(name, lesson_at(0), {"0.1": verdict}) for name, verdict in known.items()]

    monkeypatch.setattr(command, "grade_class", graded)
    return lambda *more: command.main([str(tmp_path / "class"), "--report", str(tmp_path / "report"), *more])


@pytest.mark.parametrize("name", ["report.html", "grades.csv", "feedback/ana.html"])
def test_no_file_of_the_teachers_is_replaced(name: str, done: Any, tmp_path: Path, capsys: Any) -> None:
    write("mine", tmp_path / "report" / name)
    write("mine", tmp_path / "report" / "feedback" / "ana_remarks.html")

    assert done() == 2
    assert name in capsys.readouterr().err
    assert (tmp_path / "report" / name).read_text() == "mine"

    (tmp_path / "report" / name).unlink()
    assert done() == 0 == done()
    assert (tmp_path / "report" / "feedback" / "ana_remarks.html").read_text() == "mine"


def test_pages_of_an_earlier_run_are_gone(done: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done()
    (tmp_path / "class" / "bo.ipynb").unlink()
    (tmp_path / "class" / "chen.ipynb").unlink()
    ana = Graded("ana", lesson_at(0), {"0.1": Verdict("correct")})
    monkeypatch.setattr(command, "grade_class", lambda *args, **options: [ana])

    done()

    assert [path.name for path in (tmp_path / "report" / "feedback").iterdir()] == ["ana.html"]


def test_another_class_does_not_go_into_the_same_report(done: Any, tmp_path: Path, capsys: Any) -> None:
    done()
    (tmp_path / "class").rename(tmp_path / "3b")

    assert command.main([str(tmp_path / "3b"), "--report", str(tmp_path / "report")]) == 2
    assert "has the report on" in capsys.readouterr().err


def test_what_the_teacher_decides_is_in_grades_report_and_feedback(done: Any, tmp_path: Path) -> None:
    done()
    report = tmp_path / "report"
    assert "Your teacher looks at this answer" in (report / "feedback" / "bo.html").read_text(encoding="utf-8")
    with (report / "decisions.csv").open("a", encoding="utf-8") as file:
        file.write("bo,0.1,not yet,1,we have talked about it\nbo,3.2,correct,2,of the week before\n")

    done()

    assert "bo,0.1,not yet,1," in (report / "grades.csv").read_text(encoding="utf-8")
    assert "you have decided: we have talked about it" in (report / "report.html").read_text(encoding="utf-8")
    page = (report / "feedback" / "bo.html").read_text(encoding="utf-8")
    assert "Your teacher says: we have talked about it" in page and "looks at this answer" not in page


@pytest.mark.parametrize(
    "row", ["bo,0.1,perhaps,,", "bo,0.1,,half,", "nobody,0.1,correct,,", "bo,0.9,correct,,", 'bo,"0,1",correct,,']
)
def test_a_decision_that_is_not_understood_is_told(row: str, done: Any, tmp_path: Path, capsys: Any) -> None:
    done()
    with (tmp_path / "report" / "decisions.csv").open("a", encoding="utf-8") as file:
        file.write(f"{row}\n")

    assert done() == 2
    assert "decisions.csv" in capsys.readouterr().err


def test_a_wrong_command_says_what_there_is(done: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write("a file", tmp_path / "file")

    assert command.main([str(tmp_path / "typo")]) == 2
    assert done("--report", str(tmp_path / "file")) == 2

    told = capsys.readouterr().err
    assert "there is no" in told and "cannot write to" in told


def test_without_bubblewrap_the_report_says_what_that_means(
    done: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(command, "bubblewrap", lambda: ("", "not here"))

    done()

    assert UNPROTECTED in capsys.readouterr().err
    assert "use the network (not here)" in (tmp_path / "report" / "report.html").read_text(encoding="utf-8")


def test_no_name_commands_the_teachers_terminal(done: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    names, nothing = ["\x1b]0;mine\x07", "bo", "chen"], {"0.1": Verdict("not handed in")}
    graded = [Graded(name, lesson_at(0), nothing, ("\x1b[2J \u202e",)) for name in names]
    monkeypatch.setattr(command, "find_submissions", lambda folder: [Submission(name) for name in names])
    monkeypatch.setattr(command, "grade_class", lambda *args, **options: graded)

    done()

    assert capsys.readouterr().out.split("\n")[0] == " ]0;mine :  [2J  "


def test_a_fault_of_the_grader_costs_one_student(grade: Grade, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class_in(tmp_path / "class")
    listen = verdicts._listen

    def fails_for_bo(job: dict[str, Any], *more: Any) -> Any:
        return 1 / 0 if "print(x" in str(job["cells"]) else listen(job, *more)

    monkeypatch.setattr(verdicts, "_listen", fails_for_bo)

    found = grade(tmp_path / "class")

    assert (
        found["bo"].verdicts["0.1"].state == "not handed in" and "the grader itself failed here" in found["bo"].notes[0]
    )
    assert [found[name].verdicts["0.1"].state for name in ("ana", "chen")] == ["correct", "not attempted"]


def test_only_what_is_new_is_graded(grade: Grade, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class_in(tmp_path / "class")
    grade(tmp_path / "class")
    write(answered(), tmp_path / "class" / "chen.ipynb")
    assert grade(tmp_path / "class")["chen"].verdicts["0.1"].state == "correct"
    monkeypatch.setattr(verdicts, "_listen", lambda *args: 1 / 0)

    assert [one.verdicts["0.1"].state for one in grade(tmp_path / "class").values()] == [
        "correct",
        "not yet",
        "correct",
    ]


@pytest.mark.usefixtures("grade")
def test_an_interrupted_run_keeps_what_it_has(tmp_path: Path) -> None:
    class_in(tmp_path / "class")

    def interrupt(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grade_class(find_submissions(tmp_path / "class"), tmp_path / "kept", limits=LIMITS, tell=interrupt)

    assert list((tmp_path / "kept").glob("*.json"))


def test_of_several_notebooks_of_a_lesson_the_newest_with_work_counts(grade: Grade, tmp_path: Path) -> None:
    ana, work = tmp_path / "class" / "ana", answered()
    for version, answer in ((10, "def twice_as_large(x): return 2 * x"), (9, STUB.replace("x", "y"))):
        write(answered(answer), tmp_path / "class" / "bo" / f"Version {version}" / "0.ipynb")
    write((ROOT / "lessons" / "00_start_here.ipynb").read_bytes(), ana / "untouched.ipynb")
    os.utime(write(answered(STUB.replace("x", "y")), ana / "b.ipynb"), (10**9, 10**9))
    os.utime(write(work, ana / "a.ipynb"), (1.1 * 10**9, 1.1 * 10**9))

    found = grade(tmp_path / "class")

    assert any("Version 10/0.ipynb counts as the newest" in note for note in found["bo"].notes)
    assert {one.verdicts["0.1"].state for one in found.values()} == {"correct"}
    assert len([note for note in found["ana"].notes if "a.ipynb counts as the newest" in note]) == 2


@pytest.mark.usefixtures("grade")
def test_a_lesson_that_nobody_has_handed_in_is_told(tmp_path: Path) -> None:
    class_in(tmp_path / "class")

    with pytest.raises(LookupError, match="nobody has handed in lesson 3"):
        grade_class(find_submissions(tmp_path / "class"), tmp_path / "kept", lesson=3, limits=LIMITS)


@pytest.mark.usefixtures("grade")
def test_everybody_gets_a_row_for_each_lesson_that_anybody_has_handed_in(tmp_path: Path) -> None:
    write(answered(), tmp_path / "class" / "ana" / "00_start_here.ipynb")
    other = read_notebook((ROOT / "lessons" / "03_forward_hooks.ipynb").read_bytes())
    write(notebook(*[code(cell.text) for cell in other.cells if "3.2" in cell.text]), tmp_path / "class/bo/3.ipynb")

    found = grade_class(
        find_submissions(tmp_path / "class"), tmp_path / "kept", limits=LIMITS, exercises=frozenset(["0.1", "3.2"])
    )

    states = [(one.student, {id: verdict.state for id, verdict in one.verdicts.items()}) for one in found]
    assert states == [
        ("ana", {"0.1": "correct"}),
        ("ana", {"3.2": "not handed in"}),
        ("bo", {"0.1": "not handed in"}),
        ("bo", {"3.2": "not attempted"}),
    ]


@pytest.mark.usefixtures("grade")
def test_a_lesson_of_which_nothing_counts_is_not_graded(tmp_path: Path) -> None:
    write(answered(), tmp_path / "class" / "ana" / "00_start_here.ipynb")
    write((ROOT / "lessons" / "03_forward_hooks.ipynb").read_bytes(), tmp_path / "class" / "ana" / "3.ipynb")

    found = grade_class(
        find_submissions(tmp_path / "class"), tmp_path / "kept", limits=LIMITS, exercises=frozenset(["0.1"])
    )

    assert [one.lesson.number for one in found] == [0]


def test_an_exercise_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main([str(tmp_path), "--exercises", "0.1,0.99"])

    assert "there is no exercise '0.99'" in capsys.readouterr().err


def test_every_canary_is_refused_by_an_untouched_check() -> None:
    wrong = wrong_answers(0)["0.1"]
    chosen = chosen_canaries(wrong, "salt")

    assert [attempt("0.1", answer).state for _, answer in chosen] == ["not yet"] * 5
    assert chosen_canaries(wrong, "salt") == chosen


@pytest.mark.usefixtures("grade")
def test_a_page_without_exercises_is_told_only_where_nothing_else_was_handed_in(tmp_path: Path) -> None:
    for lesson in (*LESSONS.glob("00_*"), *LESSONS.glob("12_*")):
        write(lesson.read_bytes(), tmp_path / "ana" / lesson.name)
    write(lesson.read_bytes(), tmp_path / "bo" / lesson.name)

    ana, bo = (Grader(tmp_path, LIMITS).grade(one) for one in find_submissions(tmp_path))

    assert [one.lesson.number for one in ana[0]] == [0] and ana[1] == []
    assert bo == ([], ["12_reference.ipynb has no exercise of this course"])


@pytest.mark.long
def test_every_solution_of_the_course_is_correct_and_nothing_about_it_is_to_look_at(tmp_path: Path) -> None:
    files = sorted((ROOT / "solutions").glob("*.ipynb"))
    exercises = {one.id for number in range(len(files)) for one in lesson_at(number).exercises}
    for lesson in files:
        write(lesson.read_bytes(), tmp_path / "class" / "ana" / lesson.name)

    found = grade_class(find_submissions(tmp_path / "class"), tmp_path / "kept", jobs=1)

    verdicts = {id: verdict for one in found for id, verdict in one.verdicts.items()}
    assert set(verdicts) == exercises
    assert {id: verdict.summary for id, verdict in verdicts.items() if verdict.state != "correct"} == {}
    assert {id: verdict.notes for id, verdict in verdicts.items() if verdict.notes} == {}
    assert {note for one in found for note in one.notes} == set()
