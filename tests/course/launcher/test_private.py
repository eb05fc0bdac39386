"""What keeps caches and settings inside the course's folder."""

import json
import os
import sys
from pathlib import Path

import pytest

from hooklab.course.launcher.environment import python_of
from hooklab.course.launcher.messages import LauncherError
from hooklab.course.launcher.private import FOLDERS, child_environment
from tests.course.launcher.conftest import Course


def test_every_cache_and_setting_lies_in_a_folder_of_the_course(course: Course) -> None:
    environment = child_environment(course.root, Path(sys.executable))
    for variable in FOLDERS:
        folder = Path(environment[variable])
        assert folder.is_dir()
        assert folder.is_relative_to(course.root / ".cache")


def test_what_the_user_has_set_stays(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CACHE_DIR", "/mine")
    assert child_environment(course.root, Path(sys.executable))["PIP_CACHE_DIR"] == "/mine"


def test_a_jupyter_configuration_of_the_users_gets_no_file_of_ours(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "mine"))
    child_environment(course.root, Path(sys.executable))
    assert not (tmp_path / "mine").exists()


def test_jupyterlab_is_told_not_to_ask_about_news(course: Course) -> None:
    environment = child_environment(course.root, Path(sys.executable))
    told = Path(environment["JUPYTER_CONFIG_DIR"]) / "labconfig/default_setting_overrides.json"
    assert json.loads(told.read_text()) == {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false"}}


def test_a_setting_that_the_user_changed_is_not_written_over(course: Course) -> None:
    environment = child_environment(course.root, Path(sys.executable))
    told = Path(environment["JUPYTER_CONFIG_DIR"]) / "labconfig/default_setting_overrides.json"
    told.write_text("{}")
    child_environment(course.root, Path(sys.executable))
    assert told.read_text() == "{}"


def test_the_venv_is_active_for_what_runs_in_it(course: Course) -> None:
    python = python_of(course.venv)
    environment = child_environment(course.root, python)
    assert environment["VIRTUAL_ENV"] == str(course.venv)
    assert environment["PATH"].split(os.pathsep)[0] == str(python.parent)


def test_the_path_of_another_python_stays_as_it_is(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    assert child_environment(course.root, Path(sys.executable))["PATH"] == "/usr/bin"


def test_a_folder_that_cannot_be_made_is_one_line(course: Course) -> None:
    (course.root / ".cache").write_text("in the way")
    with pytest.raises(LauncherError, match="could not make the folders for caches and settings: "):
        child_environment(course.root, Path(sys.executable))
