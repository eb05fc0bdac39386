"""The Python that runs the course: used as it is, made, made anew, or refused with a reason."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from venv import EnvBuilder

import pytest

from hooklab.course.launcher import main
from hooklab.course.launcher.environment import Notes, python_of, ready_python
from hooklab.course.launcher.messages import LauncherError
from tests.course.launcher.conftest import Course

INSTALL = "pip install -r requirements.txt --disable-pip-version-check"
posix = pytest.mark.skipif(os.name == "nt", reason="signals and links of POSIX")


def packages_of(course: Course) -> Path:
    return next(course.venv.glob("lib/python3.*/site-packages" if os.name != "nt" else "Lib/site-packages"))


def errors_of(run: Callable[[], object], capsys: pytest.CaptureFixture[str]) -> str:
    """Run it, and return the one line of its error."""
    with pytest.raises(LauncherError) as error:
        run()
    assert "\n" not in error.value.line
    return error.value.line


# --- used as it is ---


def test_a_python_that_has_everything_is_used_as_it_is(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(course.root))  # there, `import hooklab` takes this course's package
    (course.root / "requirements.txt").write_text(f"pytest=={version('pytest')}\n-e .\n")
    assert ready_python(course.root) == Path(sys.executable)
    assert not course.venv.exists()


def test_a_python_with_another_version_is_not_used(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(course.root))
    (course.root / "requirements.txt").write_text("pytest==1.0\n-e .\n")
    assert ready_python(course.root) == python_of(course.venv)


def test_a_python_with_another_copy_of_the_course_is_not_used(course: Course) -> None:
    (course.root / "requirements.txt").write_text(f"pytest=={version('pytest')}\n-e .\n")
    assert ready_python(course.root) == python_of(course.venv)


# --- made, and kept ---


def test_the_first_launch_makes_a_venv_and_says_that_it_takes_minutes(
    course: Course, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ready_python(course.root) == python_of(course.venv)
    assert course.calls == ["ensurepip", INSTALL]
    assert capsys.readouterr().err.splitlines() == [
        f"hooklab: making .venv with Python {sys.version_info[0]}.{sys.version_info[1]}",
        "hooklab: installing requirements.txt into .venv; the first time this can take minutes",
        "hooklab: everything is installed",
    ]


def test_the_second_launch_changes_nothing_and_says_nothing(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    ready_python(course.root)
    calls = course.calls
    capsys.readouterr()
    assert ready_python(course.root) == python_of(course.venv)
    assert course.calls == calls
    assert capsys.readouterr().err == ""


def test_a_changed_requirements_file_is_installed_again(course: Course) -> None:
    ready_python(course.root)
    (course.root / "requirements.txt").write_text("tiny==1.1\n-e .\n")
    ready_python(course.root)
    assert course.calls.count(INSTALL) == 2


def test_what_was_changed_by_hand_after_the_installation_stays(course: Course) -> None:
    ready_python(course.root)
    shutil.rmtree(packages_of(course) / "tiny-1.0.dist-info")
    ready_python(course.root)
    assert course.calls.count(INSTALL) == 1


def test_a_course_that_was_moved_is_installed_again(course: Course) -> None:
    ready_python(course.root)
    (packages_of(course) / "course.pth").unlink()  # what a moved editable installation comes to: nothing is found
    ready_python(course.root)
    assert course.calls.count(INSTALL) == 2


def test_the_new_venv_tells_jupyterlab_not_to_ask_about_news(course: Course) -> None:
    ready_python(course.root)
    settings = course.venv / "share/jupyter/lab/settings/overrides.d/hooklab.json"
    assert json.loads(settings.read_text()) == {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false"}}


# --- made by hand ---


def test_a_venv_made_by_hand_is_kept_and_installed_into(course_with_venv: Course) -> None:
    (packages_of(course_with_venv) / "torch_for_the_cpu.py").touch()
    ready_python(course_with_venv.root)
    assert (packages_of(course_with_venv) / "torch_for_the_cpu.py").exists()
    assert course_with_venv.calls[-1] == INSTALL


def test_a_venv_made_by_hand_that_has_everything_needs_no_pip(course_with_venv: Course) -> None:
    site = packages_of(course_with_venv)
    (site / "tiny-1.0+local.dist-info").mkdir()
    (site / "tiny-1.0+local.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1.0+local\n")
    (site / "course.pth").write_text(f"{course_with_venv.root}\n", encoding="utf-8")
    assert ready_python(course_with_venv.root) == python_of(course_with_venv.venv)
    assert course_with_venv.calls == []


def test_pip_is_put_only_into_a_venv_that_has_none(course_with_venv: Course) -> None:
    (packages_of(course_with_venv) / "pip").mkdir()
    (packages_of(course_with_venv) / "pip/__init__.py").touch()
    ready_python(course_with_venv.root)
    assert course_with_venv.calls == [INSTALL]


@posix
def test_a_venv_with_a_python_too_old_is_refused(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    old = python_of(course.venv)
    old.parent.mkdir(parents=True)
    answer = '{"version": [3, 9, 1], "has_pip": true, "hooklab": null, "packages": {"tiny": null}}'
    old.write_text(f"#!/bin/sh\necho '{answer}'\n")
    old.chmod(0o755)
    line = errors_of(lambda: ready_python(course.root), capsys)
    assert line == ".venv has Python 3.9.1, and the course needs 3.11 or newer: delete .venv and start again"
    assert old.exists()


# --- made anew ---


def test_a_venv_from_an_interrupted_run_is_made_anew(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    ready_python(course.root)
    Notes(made_here=True, unfinished="installed into").write(course.venv)
    (packages_of(course) / "half_a_package.py").touch()
    capsys.readouterr()
    ready_python(course.root)
    assert not (packages_of(course) / "half_a_package.py").exists()
    assert capsys.readouterr().err.startswith("hooklab: the last run was interrupted; making .venv anew\n")


def test_a_venv_whose_making_was_interrupted_is_made_anew(
    course: Course, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(EnvBuilder, "create", interrupted)
        assert main(["test"]) == 130
    capsys.readouterr()
    ready_python(course.root)
    assert capsys.readouterr().err.startswith("hooklab: the last run was interrupted; making .venv anew\n")


def test_nothing_of_the_old_venv_is_left_over(course: Course) -> None:
    ready_python(course.root)
    Notes(made_here=True, unfinished="made").write(course.venv)
    ready_python(course.root)
    assert sorted(path.name for path in (course.root / ".cache").glob("*venv*")) == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"nobody": 1}'])
def test_notes_that_cannot_be_read_count_as_interrupted(content: str, course_with_venv: Course) -> None:
    (course_with_venv.venv / "hooklab.json").write_text(content)
    assert Notes.read(course_with_venv.venv).unfinished


def test_an_empty_venv_folder_is_made_anew(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    course.venv.mkdir()
    ready_python(course.root)
    assert "the Python in .venv does not run; making .venv anew" in capsys.readouterr().err


@posix
def test_a_venv_whose_python_is_gone_is_made_anew(course_with_venv: Course, capsys: pytest.CaptureFixture[str]) -> None:
    python = python_of(course_with_venv.venv)
    python.unlink()
    python.symlink_to("/nowhere/python3.11")
    ready_python(course_with_venv.root)
    assert "the Python in .venv does not run; making .venv anew" in capsys.readouterr().err


def test_a_venv_whose_python_became_another_version_is_made_anew(
    course_with_venv: Course, capsys: pytest.CaptureFixture[str]
) -> None:
    (course_with_venv.venv / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.10.2\n")
    ready_python(course_with_venv.root)
    assert ".venv was made for Python 3.10, which is now 3." in capsys.readouterr().err


# --- refused: it is not ours to remove ---


@posix
def test_a_link_to_somewhere_else_is_never_removed(
    course: Course, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    course.venv.symlink_to(elsewhere)
    line = errors_of(lambda: ready_python(course.root), capsys)
    assert line.endswith(f"because it is a link to {elsewhere}: remove the link, and start again")
    assert elsewhere.is_dir()


def test_the_running_python_is_never_removed(
    course_with_venv: Course, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Notes(made_here=True, unfinished="made").write(course_with_venv.venv)
    monkeypatch.setattr(sys, "prefix", str(course_with_venv.venv))
    line = errors_of(lambda: ready_python(course_with_venv.root), capsys)
    assert "because this Python runs from it: type deactivate, delete .venv, and start again" in line
    assert python_of(course_with_venv.venv).exists()


def test_an_interrupted_venv_that_was_made_by_hand_is_not_removed(
    course_with_venv: Course, capsys: pytest.CaptureFixture[str]
) -> None:
    Notes(made_here=False, unfinished="installed into").write(course_with_venv.venv)
    line = errors_of(lambda: ready_python(course_with_venv.root), capsys)
    assert line.startswith("the last run was interrupted, and .venv cannot be made anew because it was made by hand")
    assert python_of(course_with_venv.venv).exists()


def test_a_file_named_venv_is_refused(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    course.venv.write_text("not an environment")
    assert "because it is a file: move it away" in errors_of(lambda: ready_python(course.root), capsys)


# --- it cannot be done ---


@pytest.mark.parametrize("module", ["venv", "ensurepip"])
def test_a_python_without_venv_names_the_package_to_install(
    module: str, course: Course, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not there
    assert main(["test"]) == 2
    line = capsys.readouterr().err
    assert line.startswith(f"hooklab: error: this Python cannot make .venv, its module {module} is missing; ")
    assert f"sudo apt install python{sys.version_info[0]}.{sys.version_info[1]}-venv (or python3-venv)" in line
    assert line.count("\n") == 1
    assert not course.venv.exists()


def test_when_pip_fails_its_last_lines_and_the_command_are_shown(
    course: Course, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_PIP", "fails")
    assert main(["test"]) == 2
    *_, before_last, last = capsys.readouterr().err.splitlines()
    assert before_last == "ERROR: No matching distribution found for tiny==1.0"
    assert last == (
        "hooklab: error: pip failed with exit code 1 (its last lines are above); try by hand: "
        f"cd '{course.root}' && '{python_of(course.venv)}' -m pip install -r requirements.txt"
    )


def test_no_more_than_fifteen_lines_of_pip_are_shown(
    course: Course, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_PIP", "fails")
    main(["test"])
    assert sum(line.startswith(("noise", "ERROR")) for line in capsys.readouterr().err.splitlines()) == 15


def test_after_a_failure_of_pip_the_next_launch_goes_on_with_the_same_venv(
    course: Course, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_PIP", "fails")
    errors_of(lambda: ready_python(course.root), capsys)
    monkeypatch.setenv("FAKE_PIP", "works")
    capsys.readouterr()
    ready_python(course.root)
    assert "anew" not in capsys.readouterr().err


def test_when_pip_cannot_be_put_into_the_venv_the_command_is_shown(
    course: Course, capsys: pytest.CaptureFixture[str]
) -> None:
    (course.root / "ensurepip.py").write_text("import sys; sys.exit('no wheel of pip here')")
    assert main(["test"]) == 2
    above, last = capsys.readouterr().err.splitlines()[-2:]
    assert above == "no wheel of pip here"
    assert last.startswith("hooklab: error: Python could not put pip into .venv (its last lines are above)")
    assert last.endswith("-m ensurepip --upgrade --default-pip")


def test_a_full_disk_is_one_line(
    course: Course, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "/course/.venv/pyvenv.cfg")

    monkeypatch.setattr(EnvBuilder, "create", full)
    assert main(["test"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "hooklab: error: could not work on .venv: No space left on device: /course/.venv/pyvenv.cfg"


def test_a_folder_that_cannot_be_written_is_one_line(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    (course.root / ".cache").write_text("in the way")
    assert main(["lab"]) == 2
    captured = capsys.readouterr().err
    assert captured.startswith("hooklab: error: could not work on .venv: File exists: ")
    assert captured.count("\n") == 1


# --- interrupted, and two at once ---


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.02)


@posix
def test_a_launch_that_is_interrupted_in_pip_is_noticed_by_the_next(course: Course) -> None:
    launch = course.start("test", FAKE_PIP="waits")
    wait_for(course.root / "pip-waits")
    launch.send_signal(signal.SIGINT)
    _, err = launch.communicate()
    assert launch.returncode == 130
    assert err.endswith("\nhooklab: interrupted\n")
    assert "Traceback" not in err
    assert not (packages_of(course) / "course.pth").exists()  # pip was ended, not waited for
    again = course.run("test")
    assert again.stderr.startswith("hooklab: the last run was interrupted; making .venv anew\n")
    assert again.returncode == 7


@posix
def test_a_launch_waits_for_the_pip_of_another_even_if_that_one_was_killed(course: Course) -> None:
    killed = course.start("test", FAKE_PIP="waits")
    wait_for(course.root / "pip-waits")
    killed.kill()
    waits = course.start("test")
    assert waits.stderr is not None
    assert "another `python -m hooklab` is working on .venv; waiting" in waits.stderr.readline()
    (course.root / "go-on").touch()  # the orphaned pip ends
    _, err = waits.communicate()
    assert err.startswith("hooklab: the last run was interrupted; making .venv anew\n")
    assert waits.returncode == 7
    killed.communicate()


@pytest.mark.long
def test_a_new_venv_gets_a_real_pip(course: Course) -> None:
    for fake in ["pip.py", "ensurepip.py"]:
        (course.root / fake).unlink()
    (course.root / "requirements.txt").write_text("# nothing\n")
    python = ready_python(course.root)
    subprocess.run([str(python), "-m", "pip", "--version"], check=True, capture_output=True)
