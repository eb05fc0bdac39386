"""``lab`` and ``test`` hand over to JupyterLab and pytest."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from hooklab.course.launcher import commands
from hooklab.course.launcher.commands import hand_over, lab_options
from hooklab.course.launcher.environment import python_of
from hooklab.course.launcher.messages import LauncherError
from tests.course.launcher.conftest import Course


def test_test_hands_over_to_pytest_and_its_exit_code_comes_back(course: Course) -> None:
    done = course.run("test", "-x", "-k", "a b")
    seen = json.loads(done.stdout)
    assert done.returncode == 7
    assert seen["arguments"] == ["-x", "-k", "a b"]
    assert seen["folder"] == str(course.root)
    assert seen["python"] == str(python_of(course.venv))
    assert seen["environment"]["MPLCONFIGDIR"] == str(course.root / ".cache/matplotlib")


def test_lab_hands_over_to_jupyterlab_with_the_users_options_last(course: Course) -> None:
    seen = json.loads(course.run("lab", "--no-browser", "--port=8890").stdout)
    assert seen["arguments"] == [*lab_options(course.root), "--no-browser", "--port=8890"]


def test_lab_serves_the_course_and_opens_the_first_lesson(course: Course) -> None:
    (course.root / "lessons/02_second.ipynb").touch()
    assert lab_options(course.root) == [
        f"--ServerApp.root_dir={course.root}",
        f"--FileContentsManager.preferred_dir={course.root / 'lessons'}",
        "--LabApp.default_url=/lab/tree/lessons/01_first.ipynb",
    ]


def test_lab_opens_the_folder_when_it_holds_no_lesson(course: Course) -> None:
    (course.root / "lessons/01_first.ipynb").unlink()
    assert lab_options(course.root)[-1] == "--LabApp.default_url=/lab/tree/lessons"


def test_lab_leaves_the_token_and_the_address_to_jupyterlab(course: Course) -> None:
    options = " ".join(lab_options(course.root)).replace(str(course.root), "")
    assert not any(word in options for word in ["token", "password", "allow", "ip=", "origin", "xsrf"])


def test_a_command_that_needs_the_packages_goes_on_in_the_python_that_has_them(course: Course) -> None:
    building = course.root / "hooklab/course/build"
    building.mkdir()
    (building / "__init__.py").write_text("import sys\ndef main(argv): print(sys.executable, argv); return 5\n")
    done = course.run("build", "--check")
    assert done.stdout.strip() == f"{python_of(course.venv)} ['--check']"
    assert done.returncode == 5


@pytest.mark.parametrize(
    ("running", "prefix", "ready"),
    [
        ("/opt/python3", "/opt/python", "/opt/python3"),
        ("/kurs/.venv/bin/python3", "/kurs/.venv", "/kurs/.venv/bin/python"),
    ],
)
def test_a_command_that_needs_the_packages_stays_in_a_python_that_has_them(
    running: str, prefix: str, ready: str, course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", running)
    monkeypatch.setattr(sys, "prefix", prefix)
    monkeypatch.setattr(commands, "ready_python", lambda root: Path(ready))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    assert commands.go_inside(["build"]) is None
    assert Path(os.environ["MPLCONFIGDIR"]).is_dir()


def test_a_python_that_went_away_is_one_line(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    done = course.run("test")
    assert done.returncode == 7
    shutil.rmtree(course.venv)
    with pytest.raises(LauncherError, match="could not start the course's Python: No such file"):
        hand_over(course.root, python_of(course.venv), ["-m", "pytest"])
