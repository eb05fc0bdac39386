"""The Python that runs the course: used as it is, made and filled, made anew, or refused with a reason."""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from venv import EnvBuilder

import pytest

import hooklab
from hooklab.course.launcher.environment import MADE_HERE, UNFINISHED, pins, python_of, ready_python, uv_options
from hooklab.course.launcher.programs import LauncherError
from tests.course.launcher.conftest import Course

ROOT = Path(hooklab.__file__).parents[1]
LIKE_PIP = "--index-strategy=unsafe-best-match"
posix = pytest.mark.skipif(os.name == "nt", reason="signals and links of POSIX")


# --- used as it is ---


def test_a_python_that_has_everything_is_used_as_it_is_with_the_hooklab_of_this_copy(course: Course) -> None:
    (course.root / "requirements-dev.txt").write_text(f"pytest=={version('pytest')}\n")
    seen = json.loads(course.run("test").stdout)
    assert seen["python"] == sys.executable
    assert seen["environment"]["PYTHONPATH"].split(os.pathsep)[0] == str(course.root)
    assert not course.venv.exists()


def test_a_python_with_another_version_is_not_used(course: Course) -> None:
    course.requirements.write_text("pytest==1.0\n-e .\n")
    assert ready_python(course.requirements) == python_of(course.venv)


# --- made, and kept ---


def test_the_first_launch_makes_a_venv_and_says_that_it_takes_minutes(
    course: Course, capsys: pytest.CaptureFixture[str]
) -> None:
    python = ready_python(course.requirements)
    assert python == python_of(course.venv)
    assert course.calls == [
        "ensurepip --default-pip",
        "pip install uv",
        f"uv pip install --python={python} --index-strategy=unsafe-best-match --find-links=/wheels -r requirements.txt",
    ]
    assert capsys.readouterr().err.splitlines() == [
        f"hooklab: making .venv with Python {sys.version_info[0]}.{sys.version_info[1]}",
        "hooklab: installing requirements.txt into .venv; the first time this can take minutes",
        "hooklab: everything is installed",
    ]


def test_the_second_launch_changes_nothing_and_says_nothing(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    ready_python(course.requirements)
    calls = course.calls
    capsys.readouterr()
    assert ready_python(course.requirements) == python_of(course.venv)
    assert course.calls == calls
    assert capsys.readouterr().err == ""


def test_what_only_the_tests_need_is_installed_with_the_first_test(course: Course) -> None:
    course.run("lab")
    assert course.calls[-1].endswith("-r requirements.txt")
    course.run("test")
    assert course.calls[-1].endswith("-r requirements-dev.txt")


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_a_changed_requirement_is_installed_at_the_next_launch(name: str, course: Course) -> None:
    work = course.root / "requirements-dev.txt"
    ready_python(work)
    calls = len(course.calls)
    with (course.root / name).open("a") as file:
        file.write("new==1.1\n")
    ready_python(work)
    assert len(course.calls) > calls


def test_after_an_upgrade_of_python_the_packages_are_installed_again(
    course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready_python(course.requirements)
    calls = len(course.calls)
    monkeypatch.setattr(os.path, "realpath", lambda path: "/usr/bin/python3.99")
    ready_python(course.requirements)
    assert len(course.calls) > calls


def test_a_venv_made_by_hand_is_kept_and_installed_into(course_with_venv: Course) -> None:
    (course_with_venv.venv / "torch_for_the_cpu").touch()
    assert ready_python(course_with_venv.requirements) == python_of(course_with_venv.venv)
    assert (course_with_venv.venv / "torch_for_the_cpu").exists()
    assert course_with_venv.calls[-1].endswith("-r requirements.txt")


def test_pip_is_put_only_into_a_venv_that_has_none(course_with_venv: Course) -> None:
    shutil.copy("ensurepip.py", "pip.py")
    ready_python(course_with_venv.requirements)
    assert course_with_venv.calls[0] == "pip install uv"


# --- what is installed, and where it comes from ---


@pytest.mark.parametrize(
    ("listed", "options"),
    [
        ("global.index-url='https://mirror/simple'", ["--index-url=https://mirror/simple"]),
        ("global.find-links='\\n/wheels\\n/more'", ["--find-links=/wheels", "--find-links=/more"]),
        ("global.constraint='/a'\ninstall.constraint='/b'", ["--constraint=/b"]),
        (":env:.find-links='C:\\\\wheels'\nglobal.find-links='/wheels'", ["--find-links=C:\\wheels"]),
        (
            "global.extra-index-url='https://a https://b'\nglobal.timeout='60'",
            ["--extra-index-url=https://a", "--extra-index-url=https://b"],
        ),
    ],
)
def test_what_pip_is_told_about_sources_uv_is_told_too(listed: str, options: list[str]) -> None:
    assert uv_options(listed + "\n") == [LIKE_PIP, *options]


@pytest.mark.parametrize(("platform", "options"), [("linux", ["--torch-backend=cpu"]), ("darwin", []), ("win32", [])])
def test_where_pip_is_told_nothing_linux_gets_the_torch_without_cuda(
    platform: str, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert uv_options("global.timeout='60'\n") == [LIKE_PIP, *options]


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_every_line_of_a_requirement_file_is_one_that_the_launcher_reads(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    read = {f"{package}=={tested}" for package, tested in pins(ROOT / name).items()}
    assert [line for line in lines if line not in read and not line.startswith(("# ", "-r ", "-e "))] == []


def test_a_learner_downloads_no_tools_of_the_maintainers() -> None:
    learners, everybodys = pins(ROOT / "requirements.txt"), pins(ROOT / "requirements-dev.txt")
    assert learners.keys() >= {"torch", "jupyterlab", "matplotlib", "nbval", "ipywidgets"}
    assert everybodys.keys() - learners.keys() >= {"playwright", "ruff", "mypy"}
    assert everybodys.items() > learners.items()


# --- made anew, or refused ---


def test_a_venv_whose_making_was_interrupted_is_made_anew(
    course: Course, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    create = EnvBuilder.create

    def interrupted(builder: EnvBuilder, venv: Path) -> None:
        create(builder, venv)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(EnvBuilder, "create", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ready_python(course.requirements)
    (course.venv / "half_a_package.py").touch()
    capsys.readouterr()
    ready_python(course.requirements)
    assert capsys.readouterr().err.startswith("hooklab: the last run was interrupted; making .venv anew\n")
    assert not (course.venv / "half_a_package.py").exists()
    assert sorted(path.name for path in (course.root / ".cache").glob("*venv*")) == []


@posix
def test_a_venv_made_here_whose_python_is_gone_is_made_anew(course_with_venv: Course) -> None:
    python = python_of(course_with_venv.venv)
    python.unlink()
    python.symlink_to("/nowhere/python3.11")
    (course_with_venv.venv / MADE_HERE).touch()
    assert ready_python(course_with_venv.requirements).exists()


def test_a_python_whose_venv_is_not_whole_is_not_used(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    course.requirements.write_text(f"pytest=={version('pytest')}\n")
    elsewhere = course.root / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / UNFINISHED).touch()
    monkeypatch.setattr(sys, "prefix", str(elsewhere))
    assert ready_python(course.requirements) == python_of(course.venv)


def make_unfinished(venv: Path) -> None:
    (venv / UNFINISHED).touch()


def make_a_file(venv: Path) -> None:
    venv.rename(venv.with_name("away"))
    venv.touch()


def make_a_link(venv: Path) -> None:
    (venv / MADE_HERE).touch()
    make_unfinished(venv)
    venv.rename(venv.with_name("elsewhere"))
    venv.symlink_to(venv.with_name("elsewhere"))


@pytest.mark.parametrize("spoil", [make_unfinished, make_a_file, pytest.param(make_a_link, marks=posix)])
def test_what_was_made_by_hand_and_is_of_no_use_is_not_removed(
    spoil: Callable[[Path], None], course_with_venv: Course
) -> None:
    spoil(course_with_venv.venv)
    with pytest.raises(LauncherError, match="made by hand, so delete it, make it as before"):
        ready_python(course_with_venv.requirements)
    assert course_with_venv.venv.exists()


@posix
def test_a_venv_with_a_python_too_old_is_refused(course: Course) -> None:
    old = python_of(course.venv)
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\necho False\n")
    old.chmod(0o755)
    with pytest.raises(
        LauncherError, match=r"Python older than 3\.11, which is too old: delete \.venv and start again"
    ):
        ready_python(course.requirements)
    assert old.exists()


# --- it cannot be done ---


@pytest.mark.parametrize("module", ["venv", "ensurepip"])
def test_a_python_without_venv_names_the_package_to_install(
    module: str, course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not there
    package = rf"sudo apt install python{sys.version_info[0]}\.{sys.version_info[1]}-venv \(or python3-venv\)"
    with pytest.raises(LauncherError, match=f"cannot make .venv, its module {module} is missing; .*{package}"):
        ready_python(course.requirements)
    assert not course.venv.exists()


def test_when_uv_fails_pip_takes_over(course: Course) -> None:
    done = course.run("test", FAKE="uv fails")
    assert course.calls[-1] == "pip install --no-compile -r requirements-dev.txt"
    assert "hooklab: uv could not do it; going on with pip\n" in done.stderr
    assert "noise" not in done.stderr
    assert done.returncode == 7


def test_when_pip_fails_its_last_lines_and_the_command_are_shown(course: Course) -> None:
    done = course.run("test", FAKE="pip fails")
    assert done.returncode == 2
    *_, before_last, last = done.stderr.splitlines()
    assert before_last == "ERROR: No matching distribution found for tiny==1.0"
    assert last.startswith(f"Try by hand, in {course.root}: ")
    assert str(python_of(course.venv)) in last
    assert last.endswith(" -m pip install --no-compile -r requirements-dev.txt")
    assert sum(line.startswith(("noise", "ERROR")) for line in done.stderr.splitlines()) == 15


def test_after_a_failure_of_pip_the_next_launch_goes_on_with_the_same_venv(
    course: Course, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE", "pip fails")
    with pytest.raises(LauncherError):
        ready_python(course.requirements)
    monkeypatch.delenv("FAKE")
    capsys.readouterr()
    ready_python(course.requirements)
    assert "making" not in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_one_line(course: Course) -> None:
    (course.root / ".cache").write_text("in the way")
    done = course.run("lab")
    assert done.returncode == 2
    assert done.stderr.startswith("hooklab: error: ")
    assert ".cache" in done.stderr
    assert done.stderr.count("\n") == 1


# --- interrupted, and two at once ---


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.02)


@posix
def test_a_launch_that_is_interrupted_is_noticed_by_the_next(course: Course) -> None:
    launch = course.start("test", FAKE="uv waits")
    wait_for(course.root / "waits")
    launch.send_signal(signal.SIGINT)
    _, err = launch.communicate()
    assert launch.returncode == 130
    assert err.endswith("\nhooklab: interrupted\n")
    assert "Traceback" not in err
    assert not (course.root / "done").exists()  # the installer was ended, not waited for
    again = course.run("test")
    assert again.stderr.startswith("hooklab: the last run was interrupted; making .venv anew\n")
    assert again.returncode == 7


@posix
def test_of_two_launches_at_once_the_second_finds_everything_done(course: Course) -> None:
    first = course.start("test", FAKE="uv waits")
    wait_for(course.root / "waits")
    second = course.start("test")
    assert second.stderr is not None
    assert "another `python -m hooklab` is working on .venv; waiting" in second.stderr.readline()
    (course.root / "go-on").touch()
    assert (first.wait(), second.wait()) == (7, 7)
    assert sum(call.startswith("uv") for call in course.calls) == 1
    first.communicate(), second.communicate()


@pytest.mark.long
def test_a_new_venv_gets_a_real_pip(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (course.root / "ensurepip.py").unlink()
    course.requirements.write_text("tiny==1.0\n")
    with pytest.raises(LauncherError, match=r"No matching distribution found for tiny==1\.0"):
        ready_python(course.requirements)
