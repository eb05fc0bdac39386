import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hooklab.course.build import main
from tests.course.build.made_up import CHECKS, NAME, changed, numbered

SOURCE = f"solutions/source/{NAME}.py"
LESSON = f"lessons/{NAME}.ipynb"
SOLUTION = f"solutions/{NAME}.ipynb"


def refused(root: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Check the course, which must be refused, and return the problems."""
    assert main(["--check"], root) == 1
    said = capsys.readouterr().err.splitlines()
    return said[: next(number for number, line in enumerate(said) if re.fullmatch(r"\d+ problems?", line))]


def spoil(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a notebook's JSON and write it as the builder would."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    change(notebook)
    path.write_text(json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def test_a_course_just_built_is_up_to_date(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"], built) == 0
    assert capsys.readouterr() == ("1 lesson up to date\n", "")


def test_checking_runs_nothing_and_imports_no_torch(built: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from hooklab.course.build import main\n"
        "assert main(['--check'], Path(sys.argv[1])) == 0\n"
        "print([name for name in ('torch', 'nbclient', 'ipykernel') if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code, built], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"


def test_an_edited_source_is_told_with_file_cell_and_command(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (built / SOURCE).write_text(changed("total = 1 + 1", "total = 2"), encoding="utf-8")

    assert main(["--check"], built) == 1

    assert capsys.readouterr().err.splitlines() == [
        f'{LESSON}: cell 3 "total = 1 + 1": not as the source gives it',
        f'{SOLUTION}: cell 3 "total = 1 + 1": not as the source gives it',
        "2 problems",
        f"{NAME}: run python -m hooklab build 09",
    ]


def test_an_edited_solution_leaves_the_lesson_up_to_date(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (built / SOURCE).write_text(changed("first, second = 1, 1", "first, second = 2, 0"), encoding="utf-8")

    (problem,) = refused(built, capsys)

    assert problem == f'{SOLUTION}: cell 5 "def two() -> int:": not as the source gives it'


def test_an_added_cell_is_told_once(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (built / SOURCE).write_text(changed('# %% tags=["claim', '# %%\nx = 1\n\n# %% tags=["claim'), encoding="utf-8")

    told = refused(built, capsys)

    what = 'cell 3 "total = 1 + 1": 6 cells where the source has 7; the first difference is here'
    assert told == [f"{LESSON}: {what}", f"{SOLUTION}: {what}"]


def test_a_missing_notebook_and_one_without_a_source_are_told(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (built / LESSON).rename(built / "lessons" / "08_gone.ipynb")

    assert refused(built, capsys) == [
        "lessons/08_gone.ipynb: no source makes this notebook: remove it",
        f"{LESSON}: missing",
    ]


def test_a_source_that_breaks_the_rules_is_told_in_place_of_its_notebooks(
    built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (built / SOURCE).write_text(changed("●●○ · 5 minutes", "●●○"), encoding="utf-8")

    (problem,) = refused(built, capsys)

    assert problem.startswith(f"{SOURCE}:19: cell 4 ")


@pytest.mark.parametrize("text", ["", "[]", "<<<<<<< ours\n"])
def test_a_file_that_is_no_notebook_is_told(built: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (built / LESSON).write_text(text, encoding="utf-8")

    (problem,) = refused(built, capsys)

    assert problem.startswith(f"{LESSON}: this is not a notebook")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda nb: nb["cells"][2].update(id="other"), 'cell 3 "total = 1 + 1": not as the source gives it'),
        (lambda nb: nb["cells"][2]["metadata"].update(collapsed=True), "not as the source gives it"),
        (lambda nb: nb["cells"][0].update(cell_type="raw"), "not as the source gives it"),
        (lambda nb: nb["cells"][2].update(cell_type="raw"), "this is not a notebook"),
        (lambda nb: nb["metadata"].update(widgets={}), "the notebook's metadata is not what the builder writes"),
        (lambda nb: nb["cells"][2].update(execution_count=None), 'cell 3 "total = 1 + 1": this cell was not run'),
        (lambda nb: nb["cells"][5].update(outputs=[]), "no outcome of a check in the output"),
    ],
)
def test_a_notebook_changed_by_hand_is_told(
    built: Path, capsys: pytest.CaptureFixture[str], change: Callable[[dict[str, Any]], object], said: str
) -> None:
    spoil(built / LESSON, change)

    assert any(problem.startswith(LESSON) and said in problem for problem in refused(built, capsys))


def test_a_notebook_saved_by_another_program_is_told(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notebook = json.loads((built / LESSON).read_text(encoding="utf-8"))
    (built / LESSON).write_text(json.dumps(notebook, indent=2), encoding="utf-8")

    assert refused(built, capsys) == [f"{LESSON}: saved by something other than the builder"]


def test_checking_one_lesson_passes_over_the_others(built: Path) -> None:
    (built / "solutions" / "source" / "10_other.py").write_text(numbered(10), encoding="utf-8")
    (built / "hooklab" / "course" / "lesson10").mkdir()
    (built / "hooklab" / "course" / "lesson10" / "checks.py").write_text(numbered(10, CHECKS), encoding="utf-8")

    assert main(["--check", "09"], built) == 0
    assert main(["--check", "10"], built) == 1
