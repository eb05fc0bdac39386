"""``doctor`` says what is there and what to do, and changes nothing."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from hooklab.course.launcher import checkup, doctor, main
from hooklab.course.launcher.environment import Notes, ready_python
from tests.course.launcher.conftest import Course

WORKS = [("torch works", True, "yes"), ("kernel", True, "yes"), ("figures", True, "yes"), ("Chinese font", True, "yes")]


@pytest.fixture
def complete(course: Course, monkeypatch: pytest.MonkeyPatch) -> Course:
    """A course that the running Python has everything for."""
    monkeypatch.setenv("PYTHONPATH", str(course.root))
    (course.root / "requirements.txt").write_text(f"pytest=={version('pytest')}\n-e .\n")
    return course


def answers(monkeypatch: pytest.MonkeyPatch, found: list[tuple[str, bool, str]]) -> None:
    """Let the checkup answer this, without running it."""
    done = subprocess.CompletedProcess([], 0, stdout=b"a line of noise\n" + json.dumps(found).encode(), stderr=b"")
    monkeypatch.setattr(doctor, "run_checkup", lambda root, python: done)


def test_when_all_is_there_the_exit_code_is_0(
    complete: Course, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(monkeypatch, WORKS)
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"  ok       pytest         {version('pytest')}" in lines
    assert "  ok       lessons        1 lessons, 0 of them with a solution" in lines
    assert lines[-1] == "All that the course needs is there."


@pytest.mark.parametrize("label", ["torch works", "kernel", "figures"])
def test_what_does_not_work_makes_the_exit_code_1(
    label: str, complete: Course, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(monkeypatch, [(name, name != label, "OSError: broken") for name, _, _ in WORKS])
    assert main(["doctor"]) == 1
    captured = capsys.readouterr().out
    assert f"  BROKEN   {label:<15}OSError: broken" in captured
    assert captured.endswith(f"What to do: see to the line '{label}' above\n")


def test_what_is_optional_does_not_change_the_exit_code(
    complete: Course, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(monkeypatch, [*WORKS[:-1], ("Chinese font", False, "none")])
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(doctor, "BROWSER_FILES", [])
    assert main(["doctor"]) == 0
    captured = capsys.readouterr().out
    assert "  -        Chinese font   none" in captured
    assert "  -        browser        no Chromium or Chrome" in captured


def test_a_checkup_that_crashes_is_told(
    complete: Course, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = subprocess.CompletedProcess([], -11, stdout=b"", stderr=b"warning\nSegmentation fault\n")
    monkeypatch.setattr(doctor, "run_checkup", lambda root, python: done)
    assert main(["doctor"]) == 1
    assert "BROKEN   checkup        ended with exit code -11: Segmentation fault" in capsys.readouterr().out


def test_a_course_without_lessons_makes_the_exit_code_1(complete: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, WORKS)
    (complete.root / "lessons/01_first.ipynb").unlink()
    assert main(["doctor"]) == 1


def test_before_there_is_a_venv_it_names_the_command_that_makes_it(
    course: Course, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor"]) == 1
    captured = capsys.readouterr().out
    assert "  MISSING  .venv          not made yet" in captured
    assert captured.endswith("What to do: python -m hooklab lab (makes .venv and installs; takes minutes)\n")


def test_it_makes_nothing(course: Course) -> None:
    before = sorted(course.root.rglob("*"))
    main(["doctor"])
    assert sorted(course.root.rglob("*")) == before


@pytest.mark.parametrize(
    ("notes", "reason"),
    [
        (Notes(made_here=True, unfinished="made"), "the last run was interrupted"),
        (Notes(), "requirements.txt is not installed in it"),
    ],
)
def test_a_venv_that_is_not_ready_is_told_with_the_reason(
    notes: Notes, reason: str, course_with_venv: Course, capsys: pytest.CaptureFixture[str]
) -> None:
    notes.write(course_with_venv.venv)
    assert main(["doctor"]) == 1
    assert f"  MISSING  .venv          {reason}" in capsys.readouterr().out


def test_packages_changed_by_hand_in_the_venv_are_told(
    course: Course, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(monkeypatch, WORKS)
    (course.root / "requirements.txt").write_text("tiny==1.5\ngone==2.0\n-e .\n")  # tiny 1.0 will be there
    python = ready_python(course.root)
    assert main(["doctor"]) == 1
    captured = capsys.readouterr().out
    assert "  other    tiny           1.0, tested with 1.5" in captured
    assert "  MISSING  gone           tested with 2.0" in captured
    assert captured.endswith(f"What to do: '{python}' -m pip install -r requirements.txt\n")


# --- the checkup itself, on the Python that runs these tests ---


def test_a_hook_sees_a_gradient_here() -> None:
    works, seen = checkup.torch_hook()
    assert works, seen


def test_matplotlib_has_its_font_here() -> None:
    assert checkup.figure_font() == (True, "DejaVuSans.ttf")


def test_a_kernel_starts_here() -> None:
    works, seen = checkup.kernel()
    assert works, seen


def test_a_kernel_that_cannot_import_the_course_is_told(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(course.root / ".ipython"))
    (course.root / "lessons/hooklab.py").write_text("raise ImportError('half of it is missing')")
    assert checkup.kernel() == (False, "python3 starts, but: ImportError: half of it is missing")


def test_an_exception_is_an_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> tuple[bool, str]:
        raise ImportError("libcudart.so: cannot open\nand more")

    monkeypatch.setattr(checkup, "QUESTIONS", {"torch works": broken})
    assert checkup.examine() == [("torch works", False, "ImportError: libcudart.so: cannot open")]


@pytest.mark.long
def test_the_doctor_finds_nothing_missing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(doctor.__file__).parents[3]
    assert subprocess.run([sys.executable, "-m", "hooklab", "doctor"], cwd=root, capture_output=True).returncode == 0
