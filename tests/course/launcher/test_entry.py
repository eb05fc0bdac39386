"""``python -m hooklab`` itself: old Pythons, the help, unknown commands, and what is handed over to."""

import ast
import importlib
import importlib.util
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import hooklab
from hooklab.course import launcher
from hooklab.course.launcher import COMMANDS, main
from tests.course.launcher.conftest import Course

PACKAGE = Path(hooklab.__file__).parent


@pytest.mark.parametrize("name", ["__init__.py", "__main__.py"])
def test_what_an_old_python_reads_first_has_syntax_that_it_knows(name: str) -> None:
    ast.parse((PACKAGE / name).read_text(encoding="utf-8"), feature_version=(3, 4))


def test_a_python_that_is_too_old_gets_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 4, "final", 0))
    monkeypatch.setattr(sys, "argv", ["hooklab", "test", "-x"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_module("hooklab", run_name="__main__")
    assert stopped.value.code == 2
    assert capsys.readouterr().err.endswith("for example: python3.11 -m hooklab test -x\n")


def test_the_launcher_runs_where_nothing_is_installed() -> None:
    modules = [f"hooklab.course.launcher.{path.stem}" for path in (PACKAGE / "course/launcher").glob("[a-z]*.py")]
    code = f"import sys; sys.path.append({str(PACKAGE.parent)!r}); import " + ", ".join(modules)
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_the_help_lists_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert listed == list(COMMANDS)


def test_every_command_leads_to_a_program() -> None:
    for _, _, module in COMMANDS.values():
        if module.startswith("hooklab."):
            assert callable(importlib.import_module(module).main)
        else:
            assert importlib.util.find_spec(module + ".__main__")


def test_an_unknown_command_gets_one_line_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tset"]) == 2
    captured = capsys.readouterr().err
    assert captured.startswith("hooklab: error: there is no command 'tset'; there are lab, test, doctor, build,")
    assert captured.count("\n") == 1


def test_where_another_copys_hooklab_would_run_one_line_names_the_folder_to_go_to(
    course: Course, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(course.root / "lessons")  # there, Python finds the hooklab that is installed
    monkeypatch.setattr(launcher, "hand_over", lambda *_: pytest.fail("it would have run"))
    assert main(["build"]) == 2
    assert capsys.readouterr().err.endswith(f"type first: cd {course.root}\n")


def test_pytest_gets_the_arguments_and_the_folder_and_its_exit_code_comes_back(launched: Course) -> None:
    done = launched.run("test", "-x", "-k", "a b", folder="lessons", PYTHONPATH=str(launched.root))
    seen = json.loads(done.stdout)
    assert done.returncode == 7
    assert seen["arguments"] == ["-x", "-k", "a b"]
    assert seen["folder"] == str(launched.root)
    assert seen["python"] == str(launched.venv.python)
    assert json.loads(launched.run("test").stdout)["arguments"] == ["-n", str(min(2, os.cpu_count() or 1))]


def test_lab_serves_the_course_and_opens_the_first_of_the_learners_lessons_with_the_users_options_last(
    launched: Course,
) -> None:
    for name in ("01_first", "02_second"):
        (launched.root / f"lessons/{name}.ipynb").write_text('{"cells": []}')
    assert json.loads(launched.run("lab", "--no-browser", "--port=8890").stdout)["arguments"] == [
        f"--ServerApp.root_dir={launched.root}",
        f"--FileContentsManager.preferred_dir={launched.root / 'my-lessons'}",
        "--LabApp.default_url=/lab/tree/my-lessons/01_first.ipynb",
        f"--LabApp.extra_labextensions_path={launched.root / 'hooklab/course/launcher/labextensions'}",
        "--no-browser",
        "--port=8890",
    ]
    assert (launched.root / "my-lessons/02_second.ipynb").exists()


def test_a_module_of_the_course_works_where_the_user_is_in_the_python_that_has_the_packages(launched: Course) -> None:
    (launched.root / "hooklab/course/build.py").write_text(
        "import colorsys, os, sys\ndef main(argv): print(sys.executable, os.getcwd(), argv); return 5"
    )
    (launched.root / "lessons/colorsys.py").write_text("raise ImportError('not the one of Python')")
    done = launched.run("build", "--check", folder="lessons", PYTHONPATH=str(launched.root))
    assert done.stdout.strip() == f"{launched.venv.python} {launched.root / 'lessons'} ['--check']"
    assert done.returncode == 5
