"""The environment of the course's programs, and how they take the launcher's place."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from hooklab.course.launcher.programs import FOLDERS, variables
from tests.course.launcher.conftest import Course

PYTHON = Path(sys.executable)
INTERRUPTED = """
import json, os, sys, time
try:
    print(json.dumps({"pid": os.getpid(), "parent": os.getppid()}), flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
    sys.exit(7)
"""


def test_caches_and_settings_lie_in_the_course_unless_the_user_said_otherwise(
    course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = variables(course.root, PYTHON)
    assert all(Path(changed[variable]).is_relative_to(course.root / ".cache") for variable in FOLDERS)
    monkeypatch.setenv("PIP_CACHE_DIR", "/mine")
    monkeypatch.setenv("PYTHONPATH", "/mine")
    assert variables(course.root, PYTHON)["PIP_CACHE_DIR"] == "/mine"
    assert variables(course.root, PYTHON)["PYTHONPATH"] == f"{course.root}{os.pathsep}/mine"


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
    changed = variables(course.root, course.venv.python)
    assert changed["PATH"].split(os.pathsep)[0] == str(course.venv.python.parent)
    assert "VIRTUAL_ENV" not in changed


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_where_no_process_can_take_anothers_place_ctrl_c_and_the_exit_code_are_the_programs_too(
    launched: Course,
) -> None:
    launcher = launched.root / "hooklab/course/launcher/__init__.py"
    launcher.write_text(launcher.read_text().replace('os.name != "nt"', "False"))  # as on Windows
    (launched.root / "pytest.py").write_text(INTERRUPTED)
    launch = launched.start("test")
    program = json.loads(launch.stdout.readline())
    assert program["parent"] == launch.pid
    for process in [launch.pid, program["pid"]]:  # Ctrl-C reaches both
        os.kill(process, signal.SIGINT)
    assert launch.communicate() == ("interrupted\n", "")
    assert launch.returncode == 7
