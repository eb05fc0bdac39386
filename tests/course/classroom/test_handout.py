"""What a class gets: enough to learn with, and no solution, no teacher's page, no wrong answer."""

from __future__ import annotations

import contextlib
import functools
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import run_kernel

from hooklab.course.build.draft import Draft, draft
from hooklab.course.build.sources import Course
from hooklab.course.classroom.handout import given_away, given_files, main
from hooklab.course.classroom.lessons import ROOT


@functools.cache
def drafts() -> list[Draft]:
    course = Course(ROOT)
    return [draft(course, lesson) for lesson in course.lessons()]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("handout") / "hooks"
    with contextlib.chdir(ROOT):
        assert main([str(folder)]) == 0
    return folder


def test_the_folder_and_the_zip_hold_lessons_package_and_requirements(out: Path) -> None:
    there = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    with zipfile.ZipFile(out.with_name("hooks.zip")) as archive:
        zipped = {name.removeprefix("hooks/") for name in archive.namelist() if not name.endswith("/")}

    assert there == zipped
    extension = json.loads(next(out.rglob("labextensions/*/package.json")).read_text())["jupyterlab"]["_build"]["load"]
    assert f"hooklab/course/launcher/labextensions/hooklab-links/{extension}" in there
    assert {path.split("/")[0] for path in there} == {
        "lessons", "hooklab", "requirements.txt", "pyproject.toml", "README.md"
    }  # fmt: skip
    assert {f"lessons/{path.name}" for path in (ROOT / "lessons").glob("*.ipynb")} <= there


def test_a_learner_can_use_it(out: Path) -> None:
    alone = f"import sys; sys.path = [folder for folder in sys.path if folder != {str(ROOT)!r}]\n"
    ours = f"import hooklab; assert hooklab.__file__.startswith({str(out)!r}), hooklab.__file__\n"
    code = alone + ours + "hooklab.check('0.1', lambda x: 2 * x)"
    shown: list[Any] = []
    with run_kernel(kernel_name="python3", cwd=str(out)) as client:
        listen = {"timeout": 60, "output_hook": lambda message: shown.append(message["content"])}
        reply = client.execute_interactive(code, **listen)
    told = subprocess.run([sys.executable, "-m", "hooklab"], cwd=out, capture_output=True, text=True, check=True)

    assert reply["content"]["status"] == "ok", reply["content"]
    assert "0.1 correct" in str(shown)
    assert "open JupyterLab on your own copy of the lessons" in told.stdout


def test_chosen_lessons_come_with_the_start_page(capsys: pytest.CaptureFixture[str]) -> None:
    lessons = [name for name in given_files(ROOT, [3, 2]) if name.startswith("lessons/")]

    assert lessons == [f"lessons/{name}.ipynb" for name in ("00_start_here", "02_tensor_hooks", "03_forward_hooks")]
    assert main(["out", "--lesson", "3", "--lesson", "77"]) == 2
    assert "there is no lesson 77" in capsys.readouterr().err


def test_nothing_that_is_there_is_overwritten(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(out)]) == 2
    assert "is there already" in capsys.readouterr().err


def test_a_solution_is_found_wherever_it_stands() -> None:
    solved = (ROOT / "solutions" / "03_forward_hooks.ipynb").read_bytes()
    notebook = json.loads(solved)
    for cell in notebook["cells"]:
        cell["source"] = [line for line in cell["source"] if "SOLUTION" not in line]
    without_markers = json.dumps(notebook).encode()
    script = b"\n".join(line.encode() for cell in notebook["cells"] for line in cell["source"])

    for files in ({"lessons/a.ipynb": solved}, {"lessons/a.ipynb": without_markers}, {"hooklab/notes.py": script}):
        assert [told for told in given_away(files, drafts()) if told.endswith("holds the solution of 3.3")]


def test_a_teachers_page_is_found_wherever_it_stands() -> None:
    page = drafts()[3].lesson.teaching.read_bytes()

    assert given_away({"hooklab/course/notes.txt": page}, drafts())
