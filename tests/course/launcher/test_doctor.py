"""``doctor`` says what is there and what is missing, and what to do."""

import os
import re
from importlib.metadata import version

import pytest

from hooklab.course.launcher import doctor
from tests.course.launcher.conftest import Course


@pytest.fixture
def complete(course: Course, monkeypatch: pytest.MonkeyPatch) -> Course:
    """A course that the running Python has everything for, where everything works."""
    course.requirements.write_text(f"pytest=={version('pytest')}\n")
    monkeypatch.setattr(doctor, "works", lambda code: "works")
    return course


def test_when_all_is_there_the_exit_code_is_0(complete: Course, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main([]) == 0
    out = capsys.readouterr().out
    assert re.search(rf"ok +pytest +{re.escape(version('pytest'))}\n", out)
    assert out.endswith("All that the course needs is there.\n")


@pytest.mark.parametrize("name", doctor.WORKS)
def test_what_does_not_work_makes_the_exit_code_1(
    name: str, complete: Course, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(code: str) -> str:
        if code == doctor.WORKS[name]:
            raise ImportError("libcudart.so: cannot open\nand more")
        return "works"

    monkeypatch.setattr(doctor, "works", broken)
    assert doctor.main([]) == 1
    captured = capsys.readouterr().out
    assert "ImportError: libcudart.so: cannot open\n" in captured
    assert "What to do: python -m hooklab lab" in captured


def test_a_missing_package_another_version_and_a_missing_browser_are_told(
    complete: Course, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "find_browser", lambda: None)
    complete.requirements.write_text("pytest==1.5\n")
    assert doctor.main([]) == 0
    captured = capsys.readouterr().out
    assert f"{version('pytest')}; the course is tested with 1.5\n" in captured
    assert "no Chromium or Chrome" in captured
    complete.requirements.write_text("gone==2.0\n")
    assert doctor.main([]) == 1
    assert re.search(r"MISSING +gone", capsys.readouterr().out)


def test_it_looks_at_the_venv_that_is_there_and_makes_none(course: Course) -> None:
    course.run("doctor")
    assert not course.venv.folder.exists()
    assert course.calls == []


@pytest.fixture
def kernels(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that import the hooklab of the current folder."""
    monkeypatch.setenv("IPYTHONDIR", str(course.root / ".ipython"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(doctor.find_root()), os.environ.get("PYTHONPATH", "")]))


def test_here_everything_works(kernels: None) -> None:
    assert doctor.works("\n".join(doctor.WORKS.values())) == "works"


def test_a_hook_that_sees_something_else_is_told(kernels: None) -> None:
    spoiled = doctor.WORKS["hook"].replace("(3 *", "(4 *")
    with pytest.raises(AssertionError, match=r"but: AssertionError: a hook saw \[tensor\(\[4., 4.\]\)\], expected"):
        doctor.works(spoiled)
