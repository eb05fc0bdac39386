"""``python -m hooklab`` itself: old Pythons, the help, unknown commands."""

import ast
import importlib
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import hooklab
from hooklab.course.launcher import COMMANDS, main
from tests.course.launcher.conftest import Course

PACKAGE = Path(hooklab.__file__).parent


@pytest.mark.parametrize("name", ["__init__.py", "__main__.py", "course/launcher/probe.py"])
def test_what_an_old_python_reads_first_has_syntax_that_it_knows(name: str) -> None:
    ast.parse((PACKAGE / name).read_text(encoding="utf-8"), feature_version=(3, 6))


def test_a_python_that_is_too_old_gets_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 4, "final", 0))
    monkeypatch.setattr(sys, "argv", ["hooklab", "test", "-x"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_module("hooklab", run_name="__main__")
    assert stopped.value.code == 2
    assert capsys.readouterr().err == (
        "hooklab: error: this is Python 3.10, and the course needs 3.11 or newer; "
        "start it with a newer one, for example: python3.11 -m hooklab test -x\n"
    )


def test_the_launcher_runs_where_nothing_is_installed() -> None:
    modules = [f"hooklab.course.launcher.{path.stem}" for path in (PACKAGE / "course/launcher").glob("[a-z]*.py")]
    code = f"import sys; sys.path.append({str(PACKAGE.parent)!r}); import " + ", ".join(modules)
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["lab", "--help"]])
def test_the_help_lists_every_command(arguments: list[str], course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert listed == list(COMMANDS)


def test_every_command_leads_to_a_function() -> None:
    for command in COMMANDS.values():
        module, _, name = command.function.partition(":")
        assert callable(getattr(importlib.import_module(module), name))


@pytest.mark.parametrize(("typed", "hint"), [("doktor", "did you mean doctor?"), ("xyz", "the commands are lab, test")])
def test_an_unknown_command_gets_one_line_with_the_near_one(
    typed: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([typed]) == 2
    captured = capsys.readouterr().err
    assert captured.startswith(f"hooklab: error: there is no command '{typed}'; {hint}")
    assert captured.count("\n") == 1
