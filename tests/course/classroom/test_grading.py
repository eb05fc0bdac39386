"""A whole class: nobody is forgotten, nothing is graded twice, and the same input gives the same files."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hooklab.course.classroom import grade as command
from hooklab.course.classroom import verdicts
from hooklab.course.classroom.canaries import canaries
from hooklab.course.classroom.collecting import find_submissions
from hooklab.course.classroom.grading import Graded, grade_class
from hooklab.course.classroom.running import chosen_canaries, steady
from hooklab.course.classroom.sandbox import UNPROTECTED
from tests.course.classroom.conftest import LIMITS, Grade
from tests.course.classroom.made_up import RIGHT, SETUP, STUB, answered, code, notebook, write

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="grading needs os.fork")


def class_in(folder: Path) -> Path:
    write(answered(), folder / "ana.ipynb")
    write(answered("def twice_as_large(x):\n    print(x * 2)"), folder / "bo.ipynb")
    write(answered(STUB), folder / "chen.ipynb")
    return folder


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.suffix in (".html", ".csv")}


def test_the_command_writes_grades_pages_and_report_and_the_same_ones_again(tmp_path: Path) -> None:
    class_in(tmp_path / "class")
    arguments = [sys.executable, "-m", "hooklab", "grade", "class", "--jobs", "1"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}

    def run() -> str:
        return subprocess.run(
            arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=120
        ).stdout

    told = run()
    first = files_in(tmp_path / "report")
    assert "report/: report.html, grades.csv and feedback/" in told
    assert set(first) == {"grades.csv", "report.html", "ana.html", "bo.html", "chen.html"}
    assert b"bo,0.1,not yet,0,forgotten return," in first["grades.csv"]

    began = time.monotonic()
    run()
    assert time.monotonic() - began < 60  # and no torch: nothing was graded twice
    assert files_in(tmp_path / "report") == first


def test_a_fault_of_the_grader_costs_one_student(
    worker: Worker, grade: Grade, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class_in(tmp_path / "class")
    ask = worker._ask
    monkeypatch.setattr(worker, "_ask", lambda job: None if "print(x" in str(job["cells"]) else ask(job))
    monkeypatch.setattr(worker, "_end", lambda: 1 / 0)

    found = grade(tmp_path / "class")

    assert found["bo"].verdicts == {} and "the grader itself failed here" in found["bo"].notes[0]
    assert [found[name].verdicts["0.1"].state for name in ("ana", "chen")] == ["correct", "not attempted"]


def test_what_was_graded_is_not_graded_again(worker: Worker, tmp_path: Path) -> None:
    class_in(tmp_path / "class")
    submissions = find_submissions(tmp_path / "class")
    first, _ = grade_class(submissions, tmp_path / "kept", limits=LIMITS, workers=[worker])
    closed = Worker(LIMITS)
    closed.close()

    again, _ = grade_class(submissions, tmp_path / "kept", limits=LIMITS, workers=[closed])

    assert again == first


def test_an_interrupted_run_keeps_what_it_has(worker: Worker, tmp_path: Path) -> None:
    class_in(tmp_path / "class")

    def interrupt(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grade_class(
            find_submissions(tmp_path / "class"), tmp_path / "kept", limits=LIMITS, workers=[worker], tell=interrupt
        )

    assert list((tmp_path / "kept").glob("*.json"))


def test_another_answer_is_graded_anew(grade: Grade, tmp_path: Path) -> None:
    class_in(tmp_path / "class")
    assert grade(tmp_path / "class")["chen"].verdicts["0.1"].state == "not attempted"

    write(answered(), tmp_path / "class" / "chen.ipynb")

    assert grade(tmp_path / "class")["chen"].verdicts["0.1"].state == "correct"


def test_of_two_notebooks_of_a_lesson_the_one_with_work_counts(grade: Grade, tmp_path: Path) -> None:
    untouched = (ROOT / "lessons" / "00_start_here.ipynb").read_bytes()
    write(untouched, tmp_path / "class" / "ana" / "00_start_here.ipynb")
    write(answered(), tmp_path / "class" / "ana" / "00_start_here-Copy1.ipynb")

    ana = grade(tmp_path / "class")["ana"]

    assert ana.file == "00_start_here-Copy1.ipynb" and ana.verdicts["0.1"].state == "correct"
    assert ana.notes == ("00_start_here.ipynb is of the same lesson: not graded",)


def test_somebody_without_the_lesson_gets_a_result_all_the_same(grade: Grade, tmp_path: Path) -> None:
    class_in(tmp_path / "class")
    (tmp_path / "class" / "dilek").mkdir()

    dilek = grade(tmp_path / "class")["dilek"]

    assert dilek.lesson == 0 and dilek.verdicts == {} and dilek.notes == ("no notebook was handed in",)


def test_everybody_gets_a_row_for_each_lesson_that_anybody_has_handed_in(worker: Worker, tmp_path: Path) -> None:
    write(answered(), tmp_path / "class" / "ana" / "00_start_here.ipynb")
    write((ROOT / "lessons" / "04_forward_pre_hooks.ipynb").read_bytes(), tmp_path / "class" / "bo" / "4.ipynb")

    found, _ = grade_class(find_submissions(tmp_path / "class"), tmp_path / "kept", limits=LIMITS, workers=[worker])

    assert [(one.student, one.lesson, bool(one.verdicts)) for one in found] == [
        ("ana", 0, True), ("ana", 4, False), ("bo", 0, False), ("bo", 4, True)
    ]  # fmt: skip


def test_only_what_the_answer_needs_is_run(grade: Grade, tmp_path: Path) -> None:
    endless = notebook(code(SETUP), code("while True: pass"), code(RIGHT, "solution-0-1"))
    write(endless, tmp_path / "class" / "ana.ipynb")

    assert grade(tmp_path / "class")["ana"].verdicts["0.1"].state == "correct"


def test_a_local_name_is_not_taken_for_one_of_the_notebook(grade: Grade, tmp_path: Path) -> None:
    answer = "def twice_as_large(x):\n    costly = x + x\n    return [costly for costly in [costly]][0]\n"
    endless = notebook(code(SETUP), code("costly = [0]\nwhile costly: costly += [1]"), code(answer, "solution-0-1"))
    write(endless, tmp_path / "class" / "ana.ipynb")

    assert grade(tmp_path / "class")["ana"].verdicts["0.1"].state == "correct"


def test_what_torch_replaces_of_its_own_is_nothing_to_look_at(worker: Worker, grade: Grade, tmp_path: Path) -> None:
    setup = f"{SETUP}\nfactor = torch.nn.Parameter(torch.tensor(2.0))\nstepper = torch.optim.AdamW([factor])\n"
    answer = "def twice_as_large(x):\n    assert stepper\n    return 2 * x\n"
    write(answered(answer, setup), tmp_path / "class" / "ana.ipynb")

    with mock.patch.object(worker, "limits", replace(LIMITS, deadline=60.0)):  # lesson 0 has no optimizer of its own
        verdict = grade(tmp_path / "class")["ana"].verdicts["0.1"]

    assert (verdict.state, verdict.notes) == ("correct", ())


def test_a_killed_server_is_started_again(worker: Worker, grade: Grade, tmp_path: Path) -> None:
    class_in(tmp_path / "class")
    grade(tmp_path / "class")
    assert worker._process is not None
    worker._process.kill()
    worker._process.wait()

    found, _ = grade_class(find_submissions(tmp_path / "class"), tmp_path / "new", limits=LIMITS, workers=[worker])

    assert [one.verdicts["0.1"].state for one in found] == ["stopped", "not yet", "not attempted"]


def test_a_stopped_exercise_is_tried_again_by_the_next_run(grade: Grade, tmp_path: Path) -> None:
    write(answered("import os\ndef twice_as_large(x):\n    os._exit(0)"), tmp_path / "class" / "ana.ipynb")
    grade(tmp_path / "class")

    assert list((tmp_path / "kept").iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="the protections are Linux's")
def test_this_machine_says_which_protections_hold(worker: Worker, grade: Grade, tmp_path: Path) -> None:
    class_in(tmp_path / "class")
    grade(tmp_path / "class")

    assert worker.held is not None and worker.held <= set(PROTECTIONS)
    assert "limits" in worker.held


def test_no_name_commands_the_teachers_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    graded = Graded("\x1b]0;mine\x07", 0, notes=("\x1b[2J \u202e",))
    monkeypatch.setattr(command, "grade_class", lambda *args, **kwargs: ([graded], set(PROTECTIONS)))
    class_in(tmp_path / "class")

    command.main([str(tmp_path / "class"), "--report", str(tmp_path / "report")])

    assert capsys.readouterr().out.split("\n")[0] == " ]0;mine :  [2J  "


def test_a_missing_protection_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(command, "grade_class", lambda *args, **kwargs: ([], {"limits", "files", "processes"}))
    class_in(tmp_path / "class")

    command.main([str(tmp_path / "class"), "--report", str(tmp_path / "report")])

    assert "not prevented on this machine: students' code may open network connections" in capsys.readouterr().err
    assert "may open network connections" in (tmp_path / "report" / "report.html").read_text(encoding="utf-8")


def test_a_wrong_command_says_what_there_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([str(tmp_path / "typo")]) == 2
    assert command.main([str(class_in(tmp_path / "class")), "--lesson", "77"]) == 2

    told = capsys.readouterr().err
    assert "there is no" in told and "there is no lesson 77; there are 00, 01" in told


def test_every_canary_is_refused_by_an_untouched_check() -> None:
    assert canaries_that_pass("0.1", "salt") == []
    assert len(chosen_canaries("0.1", "salt")) == 5
    assert chosen_canaries("0.1", "salt") == chosen_canaries("0.1", "salt")


def test_what_differs_from_run_to_run_is_left_out() -> None:
    assert steady("at 0x7f12ab34cd") == "at 0x…"
    assert steady("f was stopped after 11 seconds, at line 3: `x += 1`\n    expected  an end") == (
        "f was stopped: it takes too long\n    expected  an end"
    )


@pytest.mark.long
def test_every_solution_of_the_course_is_correct_and_nothing_about_it_is_to_look_at(tmp_path: Path) -> None:
    for lesson in sorted((ROOT / "solutions").glob("*.ipynb")):
        write(lesson.read_bytes(), tmp_path / "class" / "ana" / lesson.name)

    found, _ = grade_class(find_submissions(tmp_path / "class"), tmp_path / "kept", jobs=1)

    verdicts = {id: verdict for one in found for id, verdict in one.verdicts.items()}
    assert len(found) == len(list((ROOT / "lessons").glob("*.ipynb")))
    assert {id: verdict.text for id, verdict in verdicts.items() if verdict.state != "correct"} == {}
    assert {id: verdict.notes for id, verdict in verdicts.items() if verdict.notes} == {}
