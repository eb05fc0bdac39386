"""The Python that runs the course: used as it is, made and filled, made anew, or refused with a reason."""

import json
import os
import re
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

import hooklab
from hooklab.course.launcher import environment
from hooklab.course.launcher.environment import UNFINISHED, Venv, find_python, has_all, pins, uv_options
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
    assert not course.venv.folder.exists()


@pytest.mark.parametrize(
    ("found", "has"),
    [({"torch": "2.13.0+cpu"}, True), ({"torch": "2.12.0"}, False), ({}, False), ({"torch": None}, False)],
)
def test_a_python_is_used_if_it_has_the_tested_versions(
    found: dict[str, str | None], has: bool, course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str | None:  # None, if half of the package was removed
        if name not in found:
            raise environment.PackageNotFoundError(name)
        return found[name]

    course.requirements.write_text("torch==2.13.0\n-e .\n")
    monkeypatch.setattr(environment, "version", version)
    assert has_all(course.requirements) is has
    (course.root / UNFINISHED).touch()
    monkeypatch.setattr(sys, "prefix", str(course.root))  # its own venv, whose filling was interrupted
    assert not has_all(course.requirements)


# --- made, and kept ---


def test_the_first_launch_makes_a_venv_and_says_that_it_takes_minutes_and_the_second_does_and_says_nothing(
    course: Course, capsys: pytest.CaptureFixture[str]
) -> None:
    python = find_python(course.requirements)
    assert python == course.venv.python
    assert course.calls == [
        "ensurepip --default-pip",
        "pip install uv",
        f"uv pip install --python={python} --index-strategy=unsafe-best-match --find-links=/wheels -r requirements.txt",
    ]
    assert "the first time this can take minutes" in capsys.readouterr().err
    assert find_python(course.requirements) == python
    assert len(course.calls) == 3
    assert capsys.readouterr().err == ""


def test_lab_installs_what_learners_need_and_test_what_only_the_tests_need(course: Course) -> None:
    course.run("lab")
    assert course.calls[-1].endswith("-r requirements.txt")
    course.run("test")
    assert course.calls[-1].endswith("-r requirements-dev.txt")


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_after_a_changed_requirement_or_an_upgrade_of_python_the_packages_are_installed_again(
    name: str, launched: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = len(launched.calls)
    with (launched.root / name).open("a") as file:
        file.write("new==1.1\n")
    find_python(launched.root / "requirements-dev.txt")
    after_the_change = len(launched.calls)
    assert after_the_change > calls
    monkeypatch.setattr(os.path, "realpath", lambda path: "/usr/bin/python3.99")
    find_python(launched.requirements)
    assert len(launched.calls) > after_the_change


def test_a_venv_made_by_hand_is_kept_and_gets_pip_only_if_it_has_none(course: Course) -> None:
    EnvBuilder(symlinks=os.name != "nt").create(course.venv.folder)
    (course.venv.folder / "torch_for_the_cpu").touch()
    shutil.copy("ensurepip.py", "pip.py")
    assert find_python(course.requirements) == course.venv.python
    assert (course.venv.folder / "torch_for_the_cpu").exists()
    assert [call.split()[0] for call in course.calls] == ["pip", "uv"]


# --- what is installed, and where it comes from ---


def test_no_folder_of_the_users_packages_takes_part(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setenv("PIP_USER", "1")
    find_python(course.requirements)
    assert len(course.calls) == 3


@pytest.mark.parametrize(
    ("listed", "options"),
    [
        ("global.index-url='https://mirror/simple'", ["--index-url=https://mirror/simple"]),
        ("global.find-links='\\n/wheels\\n/more'", ["--find-links=/wheels", "--find-links=/more"]),
        ("global.constraint='/a'\ninstall.constraint='/b'", ["--constraint=/b"]),
        (
            "global.extra-index-url='https://a https://b'\nglobal.timeout='60'",
            ["--extra-index-url=https://a", "--extra-index-url=https://b"],
        ),
        ("global.find-links='/wheels'\nglobal.no-index='True'", ["--find-links=/wheels", "--no-index"]),
        ("global.find-links='/wheels'\ninstall.no-index='0'", ["--find-links=/wheels"]),
        ("global.timeout='60'", ["--torch-backend=cpu"] * (sys.platform == "linux")),
    ],
)
def test_what_pip_is_told_about_sources_uv_is_told_too(listed: str, options: list[str]) -> None:
    assert uv_options(listed + "\n") == [LIKE_PIP, *options]


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_every_line_of_a_requirement_file_is_one_that_the_launcher_reads(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    read = {f"{package}=={tested}" for package, tested in pins(ROOT / name).items()}
    assert [line for line in lines if line not in read and not line.startswith(("# ", "-r ", "-e "))] == []


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
            find_python(course.requirements)
    (course.venv.folder / "half_a_package.py").touch()
    capsys.readouterr()
    find_python(course.requirements)
    assert capsys.readouterr().err.startswith("hooklab: the last run was interrupted; making .venv anew\n")
    assert not (course.venv.folder / "half_a_package.py").exists()
    left = {path.name for path in course.venv.cache.iterdir()}
    assert left == {"hooklab.lock", "jupyter"}


@posix
def test_a_venv_made_here_whose_python_is_gone_is_made_anew(launched: Course) -> None:
    launched.venv.python.unlink()
    launched.venv.python.symlink_to("/nowhere/python3.11")
    assert find_python(launched.requirements).exists()


def made_by_hand(venv: Venv) -> None:
    venv.made_here.unlink()


def a_link(venv: Venv) -> None:
    venv.folder.rename(venv.folder.with_name("elsewhere"))
    venv.folder.symlink_to(venv.folder.with_name("elsewhere"))


@pytest.mark.parametrize("spoil", [made_by_hand, pytest.param(a_link, marks=posix)])
def test_what_was_made_by_hand_and_is_of_no_use_is_not_removed(spoil: Callable[[Venv], None], launched: Course) -> None:
    launched.venv.unfinished.touch()
    spoil(launched.venv)
    with pytest.raises(LauncherError, match="made by hand, so delete it, make it as before"):
        find_python(launched.requirements)
    assert launched.venv.folder.exists()


# --- it cannot be done ---


@pytest.mark.parametrize("module", ["venv", "ensurepip"])
def test_a_python_without_venv_names_the_package_to_install(
    module: str, course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not there
    package = rf"sudo apt install python{sys.version_info[0]}\.{sys.version_info[1]}-venv \(or python3-venv\)"
    with pytest.raises(LauncherError, match=f"cannot make .venv, its module {module} is missing; .*{package}"):
        find_python(course.requirements)
    assert not course.venv.folder.exists()


def test_when_uv_fails_pip_takes_over(
    course: Course, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE", "uv fails")
    assert find_python(course.requirements) == course.venv.python
    assert course.calls[-1] == "pip install --no-compile -r requirements.txt"
    assert "hooklab: uv could not do it; going on with pip\n" in capsys.readouterr().err


def test_when_pip_fails_its_words_and_the_command_are_shown_and_the_next_launch_goes_on(course: Course) -> None:
    done = course.run("test", FAKE="pip fails")
    assert (done.returncode, done.stdout) == (2, "")
    *_, before_last, last = done.stderr.splitlines()
    assert before_last == "ERROR: No matching distribution found for tiny==1.0"
    assert last.startswith(f"hooklab: error: the installation failed; try by hand, in {course.root}: ")
    assert str(course.venv.python) in last
    assert last.endswith(" -m pip install --no-compile -r requirements-dev.txt")
    again = course.run("test")
    assert again.returncode == 7
    assert "making" not in again.stderr


def test_a_folder_that_cannot_be_written_is_one_line(course: Course) -> None:
    (course.root / ".cache").write_text("in the way")
    done = course.run("lab")
    assert done.returncode == 2
    assert re.fullmatch(r"hooklab: error: .*\.cache.*\n", done.stderr)


# --- interrupted, and two at once ---


def start_waiting(course: Course) -> "subprocess.Popen[str]":
    """A launch whose uv waits for the file ``go-on``."""
    launch = course.start("test", FAKE="uv waits")
    while not (course.root / "waits").exists():
        assert launch.poll() is None
        time.sleep(0.02)
    return launch


@posix
def test_a_launch_that_is_interrupted_is_noticed_by_the_next(course: Course) -> None:
    launch = start_waiting(course)
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
    first = start_waiting(course)
    second = course.start("test")
    assert second.stderr is not None
    assert "another `python -m hooklab` is working on .venv; waiting" in second.stderr.readline()
    (course.root / "go-on").touch()
    assert (first.wait(), second.wait()) == (7, 7)
    assert sum(call.startswith("uv") for call in course.calls) == 1
    first.communicate(), second.communicate()


@pytest.mark.long
def test_a_new_venv_gets_a_real_pip(
    course: Course, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (course.root / "ensurepip.py").unlink()
    course.requirements.write_text("tiny==1.0\n")
    with pytest.raises(LauncherError, match="the installation failed"):
        find_python(course.requirements)
    assert "No matching distribution found for tiny==1.0" in capfd.readouterr().err
