"""nbgrader with our configuration: what it makes of each graded cell, and two lessons through nbgrader itself."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import nbformat
import pytest

import hooklab
from hooklab.course.build.products import guarded
from hooklab.course.classroom import sandbox
from hooklab.course.classroom.for_nbgrader import CONFIG, Cells, Verdicts
from hooklab.course.classroom.lessons import ROOT, lesson_at
from tests.course.classroom.made_up import CHECK, RIGHT, SETUP, answered, code, notebook

CHEAT = "def check(*a): pass\n"


def graded(cells: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the outputs of the check cells of a notebook that `Verdicts` has graded."""
    made = nbformat.from_dict(json.loads(json.dumps(cells)))
    for cell in made.cells:
        if cell.get("id", "").startswith("check-"):
            cell.metadata["nbgrader"] |= {"grade": True}
    done, _ = Verdicts().preprocess(made, {})
    return [output for cell in done.cells if cell.metadata.get("nbgrader", {}).get("grade") for output in cell.outputs]


@pytest.fixture
def _quick(ready: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "start", ready)


@pytest.mark.usefixtures("_quick")
class TestVerdicts:
    def test_a_right_answer_shows_no_error_whatever_it_writes_to_stderr(self) -> None:
        (output,) = graded(answered(RIGHT.replace("return", "import sys; print('x', file=sys.stderr); return")))

        assert (output["output_type"], output["name"]) == ("stream", "stdout")

    def test_a_wrong_answer_is_an_error_with_the_checks_message(self) -> None:
        (output,) = graded(answered("def twice_as_large(x):\n    print(2 * x)"))

        assert output["output_type"] == "error" and "print() shows a value" in output["evalue"]

    def test_a_graded_cell_says_that_it_belongs_to_another_version(self) -> None:
        unknown = notebook(
            code(SETUP), code(RIGHT, "solution-0-1"), code(CHECK, "check-0-1"), code("check()", "check-0-7")
        )

        _, output = graded(unknown)

        assert "no exercise 0.7: another version?" in output["evalue"]

    @pytest.mark.parametrize(
        "cells",
        [
            [code(SETUP), code(RIGHT), code(CHECK)],  # as Colab saves it
            [{"cell_type": "markdown", "source": "### Exercise 0.1 · Two", "metadata": {}}, code(SETUP), code(RIGHT)],
            [code(SETUP), code(f"{RIGHT}\n{CHECK}", "check-0-1")],
            [code(SETUP), code(RIGHT), code(CHECK, "check-0-1"), code(CHECK, "check-0-1")],
            [code(SETUP), code(RIGHT), code(CHECK, metadata={"nbgrader": {}}), code(CHECK, "check-0-1")],
        ],
        ids=["no metadata", "no check cell", "merged with its check", "copied", "copied, with empty metadata"],
    )
    def test_a_notebook_gets_its_graded_cell_back_and_keeps_all_that_a_student_wrote(self, cells: list[Any]) -> None:
        made = nbformat.from_dict(json.loads(json.dumps(notebook(*cells))))

        done, _ = Verdicts().preprocess(*Cells().preprocess(made, {}))

        (graded,) = [cell for cell in done.cells if cell.metadata.get("nbgrader", {}).get("grade")]
        assert graded.source == CHECK and graded.metadata.nbgrader.grade_id == "check-0-1"
        assert "0.1 correct" in graded.outputs[0]["text"]
        assert RIGHT in "".join(cell.source for cell in done.cells)

    def test_a_student_reads_no_note_that_is_meant_for_the_teacher(self) -> None:
        (output,) = graded(answered(f"import os\n{RIGHT}"))

        assert "uses os" not in str(output)

    def test_autograde_stops_for_a_notebook_of_another_version(self) -> None:
        made = answered()
        made["cells"][-1]["source"] = guarded(CHECK).replace(hooklab.__version__, "9.9")

        with pytest.raises(RuntimeError, match=f"is for hooklab 9.9, and here is hooklab {hooklab.__version__}"):
            graded(made)


def environment_with_nbgrader(folder: Path) -> dict[str, str]:
    """Make an environment that has nbgrader and, from the one that runs now, all else; return the variables for it."""
    venv.create(folder, with_pip=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "course.pth").write_text(sysconfig.get_path("purelib"))
    requirements = ROOT / "requirements-nbgrader.txt"
    done = subprocess.run(
        [folder / "bin/python", "-m", "pip", "install", "-q", "-r", requirements], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"nbgrader cannot be installed here: {done.stderr[-200:]}")
    return os.environ | {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "JUPYTER_PATH": f"{sys.prefix}/share/jupyter",
        "OMP_NUM_THREADS": "1",
    }


def handed_in(release: Path, solved: set[str], cheat: str = "") -> dict[str, Any]:
    """Return a released notebook with some of its exercises solved; a cheat has copied all graded cells as well."""
    made: dict[str, Any] = json.loads(release.read_text(encoding="utf-8"))
    solutions = json.loads((ROOT / "solutions" / release.name).read_text(encoding="utf-8"))
    right = {cell["id"]: cell["source"] for cell in solutions["cells"]}
    for cell in made["cells"]:
        if cell["id"].startswith("solution-"):
            cell["source"] = right[cell["id"]] if cell["id"] in solved else [cheat, *cell["source"]]
    graded = [cell for cell in made["cells"] if "nbgrader" in cell["metadata"]]
    made["cells"] += [cell | {"id": f"copy-{number}"} for number, cell in enumerate(graded)] if cheat else []
    return made


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="grading is not for Windows")
def test_lessons_go_through_nbgrader_with_the_scores_that_they_should_get(tmp_path: Path) -> None:
    environment, course = environment_with_nbgrader(tmp_path / "environment"), tmp_path / "course"
    lessons = [lesson_at(number) for number in (0, 3)]
    points = {f"solution-{one.id.replace('.', '-')}": one.points for lesson in lessons for one in lesson.exercises}
    half = {
        f"solution-{one.id.replace('.', '-')}"
        for lesson in lessons
        for one in lesson.exercises[: len(lesson.exercises) // 2]
    }
    students = {
        "all": (set(points), ""),
        "half": (half, ""),
        "nothing": (set(), ""),
        "cheat": (set(), CHEAT),
        "colab": (set(points), ""),
    }

    def nbgrader(*arguments: str) -> None:
        subprocess.run(
            ["nbgrader", *arguments], cwd=course, env=environment, check=True, capture_output=True, text=True
        )

    (course / "source" / "hooks").mkdir(parents=True)
    (course / "nbgrader_config.py").write_text(CONFIG)
    for lesson in lessons:
        text = (ROOT / "solutions" / f"{lesson.name}.ipynb").read_bytes()
        (course / "source" / "hooks" / f"{lesson.name}.ipynb").write_bytes(text)
    nbgrader("generate_assignment", "hooks", "--create")
    for student, (solved, cheat) in students.items():
        folder = course / "submitted" / student / "hooks"
        folder.mkdir(parents=True)
        for release in (course / "release" / "hooks").glob("*.ipynb"):
            made = handed_in(release, solved, cheat)
            for cell in made["cells"]:
                cell["metadata"] = {} if student == "colab" else cell["metadata"]
            (folder / release.name).write_text(json.dumps(made), encoding="utf-8")
    nbgrader("autograde", "hooks")
    nbgrader("export")
    nbgrader("generate_feedback", "hooks")

    with (course / "grades.csv").open(encoding="utf-8") as file:
        scores = {row["student_id"]: float(row["score"]) for row in csv.DictReader(file)}
    wanted = {"all": sum(points.values()), "half": sum(points[id] for id in half), "nothing": 0, "cheat": 0}
    wanted["colab"] = wanted["all"]
    assert scores == wanted
    pages = sorted((course / "feedback" / "half" / "hooks").glob("*.html"))
    assert [page.stem for page in pages] == [lesson.name for lesson in lessons]
    assert "not attempted" in pages[-1].read_text(encoding="utf-8")
