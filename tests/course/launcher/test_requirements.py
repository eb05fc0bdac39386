"""Where the course is, and what it pins."""

import shlex
from pathlib import Path

import pytest

import hooklab
from hooklab.course.launcher import main
from hooklab.course.launcher.messages import LauncherError
from hooklab.course.launcher.requirements import Pin, find_root, read_pins, same_version
from tests.course.launcher.conftest import Course

ROOT = Path(hooklab.__file__).parent.parent


def test_the_root_is_the_current_folder(course: Course) -> None:
    assert find_root() == course.root


@pytest.mark.parametrize("command", ["lab", "test", "doctor", "build"])
def test_outside_the_root_one_line_names_the_folder_to_go_to(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([command]) == 2
    captured = capsys.readouterr().err
    assert captured == (
        "hooklab: error: start this in the folder that holds requirements.txt, lessons/ and hooklab/; "
        f"type first: cd {shlex.quote(str(ROOT))}\n"
    )


def test_the_folder_to_go_to_is_quoted_for_the_shell(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooklab, "__file__", str(course.root / "hooklab/__init__.py"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LauncherError) as error:
        find_root()
    assert error.value.line.endswith(f"cd '{course.root}'")


def test_a_package_that_lies_in_no_course_asks_for_the_copy_of_the_course(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooklab, "__file__", str(tmp_path / "site-packages/hooklab/__init__.py"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LauncherError, match="is not it: cd to your copy of the course first"):
        find_root()


@pytest.mark.parametrize("missing", ["requirements.txt", "lessons", "hooklab"])
def test_a_folder_that_lacks_one_of_the_three_is_no_root(missing: str, course: Course) -> None:
    (course.root / missing).rename(course.root / "elsewhere")
    with pytest.raises(LauncherError):
        find_root()


def test_pins_are_read_without_comments_and_options(tmp_path: Path) -> None:
    text = "# tested\ntorch==2.13.0\n\nscikit-learn == 1.9.1  # digits\n--no-index\n-e .\n"
    (tmp_path / "requirements.txt").write_text(text)
    assert read_pins(tmp_path) == [Pin("torch", "2.13.0"), Pin("scikit-learn", "1.9.1")]


@pytest.mark.parametrize("line", ["numpy>=2", "numpy", "numpy==2.*", "numpy==2.4.6; python_version > '3'"])
def test_a_line_that_pins_nothing_is_refused_with_its_number(line: str, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(f"torch==2.13.0\n{line}\n")
    with pytest.raises(LauncherError, match=r"requirements\.txt, line 2: expected name==version"):
        read_pins(tmp_path)


def test_the_pins_of_this_course_can_be_read() -> None:
    assert Pin("torch", "2.13.0") in read_pins(ROOT)


@pytest.mark.parametrize(
    ("tested", "installed", "same"),
    [
        ("2.13.0", "2.13.0", True),
        ("2.13.0", "2.13.0+cpu", True),
        ("2.13.0+cpu", "2.13.0+cpu", True),
        ("2.13.0+cpu", "2.13.0", False),
        ("2.13.0", "2.13.1", False),
        ("2.13.0", "", False),
    ],
)
def test_a_local_part_counts_only_if_the_pin_has_one(tested: str, installed: str, same: bool) -> None:
    assert same_version(tested, installed) is same
