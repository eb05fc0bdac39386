import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hooklab.course.build import main
from tests.course.build.made_up import NAME, make_course, row

ROOT = Path(__file__).parents[3]


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A course of one lesson."""
    make_course(tmp_path)
    return tmp_path


def test_a_new_lesson_asks_for_its_row_and_then_has_no_problems(
    course: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", "77_new_lesson"], course) == 0

    asked = [line for line in capsys.readouterr().out.splitlines() if line.startswith("left to do")]
    assert len(asked) == 1
    assert asked[0].startswith("left to do: README.md: no row of 77_new_lesson")
    with (course / "README.md").open("a", encoding="utf-8") as readme:
        readme.write(asked[0].split(": ")[-1] + "\n")
    main(["--check", "77"], course)
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == [
        "lessons/77_new_lesson.ipynb",
        "solutions/77_new_lesson.ipynb",
        "2 problems",
    ]


def test_a_new_lesson_builds(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(ROOT / "hooklab", course / "hooklab", dirs_exist_ok=True)
    main(["new", "77_new_lesson"], course)
    (course / "README.md").write_text(row("77_new_lesson", "5"), encoding="utf-8")

    assert main(["77"], course) == 0, capsys.readouterr().err


def test_a_new_lesson_keeps_the_rules_of_ruff(course: Path) -> None:
    main(["new", "77_new_lesson"], course)
    for command in (["check"], ["format", "--check"]):
        run = subprocess.run(
            [
                sys.executable,
                "-m",
                "ruff",
                *command,
                "--config",
                ROOT / "pyproject.toml",
                course / "hooklab",
                course / "solutions" / "misconceptions",
            ],
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["09_other"], f"build: {NAME} has this number\n"),
        (["new_lesson"], "build: name the lesson as in: build new 13_hook_clinic\n"),
        (["77"], "build: name the lesson as in: build new 13_hook_clinic\n"),
        ([], "build: name the lesson as in: build new 13_hook_clinic\n"),
    ],
)
def test_a_name_that_is_none_or_taken_is_refused(
    course: Path, capsys: pytest.CaptureFixture[str], names: list[str], said: str
) -> None:
    assert main(["new", *names], course) == 2
    assert capsys.readouterr().err == said


def test_a_file_that_is_there_stays_as_it_was(course: Path) -> None:
    checks = course / "hooklab" / "course" / "lesson77" / "checks.py"
    checks.parent.mkdir()
    checks.write_text("mine", encoding="utf-8")

    main(["new", "77_new_lesson"], course)

    assert checks.read_text(encoding="utf-8") == "mine"
