import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hooklab.course.build import main
from tests.course.build.made_up import NAME, changed, numbered

SOURCE = f"solutions/source/{NAME}.py"
LESSON = f"lessons/{NAME}.ipynb"
SOLUTION = f"solutions/{NAME}.ipynb"
PAGE = f"solutions/{NAME}.md"
DIFFERS = "not as the source gives it; run python -m hooklab build 09"


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

    assert refused(built, capsys) == [f'{path}: cell 3 "total = 1 + 1": {DIFFERS}' for path in (LESSON, SOLUTION)]


def test_an_edited_solution_leaves_the_lesson_up_to_date(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (built / SOURCE).write_text(changed("first, second = 1, 1", "first, second = 2, 0"), encoding="utf-8")

    assert refused(built, capsys) == [f'{SOLUTION}: cell 5 "def two() -> int:": {DIFFERS}']


def test_an_added_cell_is_told_once(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (built / SOURCE).write_text(changed('# %% tags=["claim', '# %%\nx = 1\n\n# %% tags=["claim'), encoding="utf-8")

    assert refused(built, capsys) == [f'{path}: cell 3 "total = 1 + 1": {DIFFERS}' for path in (LESSON, SOLUTION)]


def test_a_page_that_is_not_what_the_sources_make_is_told(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (built / f"solutions/source/{NAME}.md").write_text("## On the board\n", encoding="utf-8")

    assert refused(built, capsys) == [f"{PAGE}: not what the lesson's sources make; run python -m hooklab build 09"]
    assert main([], built) == 0 == main(["--check"], built)


def test_a_missing_notebook_and_one_without_a_source_are_told(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (built / LESSON).rename(built / "lessons" / "08_gone.ipynb")

    assert refused(built, capsys) == [
        "lessons/08_gone.ipynb: no source makes this notebook: remove it",
        f"{LESSON}: there is no notebook (FileNotFoundError); run python -m hooklab build 09",
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

    assert problem.startswith(f"{LESSON}: there is no notebook ")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda nb: nb["cells"][2].update(id="other"), f'{LESSON}: cell 3 "total = 1 + 1": {DIFFERS}'),
        (lambda nb: nb["cells"][2]["metadata"].update(collapsed=True), DIFFERS),
        (lambda nb: nb["cells"][2].update(cell_type="raw"), DIFFERS),
        (lambda nb: nb["metadata"].update(widgets={}), f"git checkout {LESSON}"),
        (lambda nb: nb["cells"][2].update(execution_count=None), "in the lesson: execution count None, expected 2"),
        (lambda nb: nb["cells"][5].update(outputs=[]), "in the lesson: the outcome is None"),
    ],
)
def test_a_notebook_changed_by_hand_is_told(
    built: Path, capsys: pytest.CaptureFixture[str], change: Callable[[dict[str, Any]], object], said: str
) -> None:
    spoil(built / LESSON, change)

    assert [said in problem for problem in refused(built, capsys)] == [True]


def test_a_notebook_saved_by_another_program_is_told(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notebook = json.loads((built / LESSON).read_text(encoding="utf-8"))
    (built / LESSON).write_text(json.dumps(notebook, indent=2), encoding="utf-8")

    assert refused(built, capsys)[0].startswith(f"{LESSON}: saved by something other than the builder")


def test_checking_one_lesson_passes_over_the_others(built: Path) -> None:
    (built / "solutions" / "source" / "10_other.py").write_text(numbered(10), encoding="utf-8")

    assert main(["--check", "09"], built) == 0
    assert main(["--check", "10"], built) == 1
