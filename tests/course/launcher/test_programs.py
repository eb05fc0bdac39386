"""The environment of the course's programs, and how they take the launcher's place."""

import json
import os
import sys
from pathlib import Path

import pytest

from hooklab.course.launcher.programs import FOLDERS, hand_over, variables
from tests.course.launcher.conftest import Course

PYTHON = Path(sys.executable)


def test_every_cache_and_setting_lies_in_a_folder_of_the_course(course: Course) -> None:
    changed = variables(course.root, PYTHON)
    assert all(Path(changed[variable]).is_relative_to(course.root / ".cache") for variable in FOLDERS)


def test_what_the_user_has_set_stays(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CACHE_DIR", "/mine")
    monkeypatch.setenv("PYTHONPATH", "/mine")
    assert variables(course.root, PYTHON)["PIP_CACHE_DIR"] == "/mine"
    assert variables(course.root, PYTHON)["PYTHONPATH"] == f"{course.root}{os.pathsep}/mine"


def test_where_no_compiled_modules_are_wanted_beside_the_sources_they_lie_in_a_folder_of_the_course(
    course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    changed = variables(course.root, PYTHON)
    assert Path(changed["PYTHONPYCACHEPREFIX"]).is_relative_to(course.root / ".cache")
    assert "PYTHONDONTWRITEBYTECODE" not in changed
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE")
    assert "PYTHONPYCACHEPREFIX" not in variables(course.root, PYTHON)


def test_jupyterlab_is_told_not_to_ask_about_news_unless_the_user_said_otherwise(course: Course) -> None:
    told = Path(variables(course.root, PYTHON)["JUPYTER_CONFIG_DIR"]) / "labconfig/default_setting_overrides.json"
    assert json.loads(told.read_text()) == {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false"}}
    told.write_text("{}")
    variables(course.root, PYTHON)
    assert told.read_text() == "{}"


def test_the_programs_beside_python_come_first_and_no_other_environment_is_active(
    course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", "/other")
    changed = variables(course.root, course.venv / "bin/python")
    assert changed["PATH"].split(os.pathsep)[0] == str(course.venv / "bin")
    assert "VIRTUAL_ENV" not in changed


def test_where_no_process_can_take_anothers_place_the_launcher_waits_and_passes_the_exit_code_on(
    course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "name", "nt")
    assert hand_over(course.root, PYTHON, ["-c", "import sys; sys.exit(7)"], course.root) == 7
