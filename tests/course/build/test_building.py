import io
import json
from pathlib import Path
from typing import Any

import pytest

from hooklab.course import build
from hooklab.course.build import main
from tests.course.build.made_up import NAME, TINY, changed, make_course, numbered

SEES_NO_GRADER = """
# %%
import os
assert "NBGRADER_EXECUTION" not in os.environ
assert os.environ["MPLBACKEND"] != "agg"
"""
SOURCES = {
    NAME: TINY + SEES_NO_GRADER,
    "10_raises": numbered(10, changed("assert total == 2", "assert total == 2\nraise ValueError('no')")),
    "11_wrong": numbered(11, changed("first, second = 1, 1", "first, second = 1, 3")),
    "12_refused": numbered(12, changed('["setup"]', '["set-up"]')),
    "13_dies": numbered(13, changed('print("total =", total)', "import os; os._exit(3)")),
}


def notebook_files(root: Path) -> dict[str, bytes]:
    paths = [*root.glob("lessons/*"), *root.glob("solutions/*.ipynb")]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def code_cells(path: Path) -> list[Any]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.fixture(scope="module")
def partly_failed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str, str]:
    """Build a course in which one lesson is in order; return its root, exit status, output and errors."""
    root = tmp_path_factory.mktemp("faulty")
    make_course(root, SOURCES)
    (root / "lessons").mkdir()
    (root / "lessons" / "11_wrong.ipynb").write_text("old", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NBGRADER_EXECUTION", "autograde")
        patch.setenv("MPLBACKEND", "agg")
        out, err = io.StringIO(), io.StringIO()
        patch.setattr("sys.stdout", out)
        patch.setattr("sys.stderr", err)
        status = main([], root)
    return root, status, out.getvalue(), err.getvalue()


def test_a_lesson_in_order_is_written_though_others_fail(partly_failed: tuple[Path, int, str, str]) -> None:
    root, status, *_ = partly_failed

    assert status == 1
    assert sorted(notebook_files(root)) == [
        f"lessons/{NAME}.ipynb",
        "lessons/11_wrong.ipynb",
        f"solutions/{NAME}.ipynb",
    ]
    assert main(["--check", "09"], root) == 0
    assert (root / "lessons" / "11_wrong.ipynb").read_text(encoding="utf-8") == "old"


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ('10_raises.py:14: cell 3 "total = 1 + 1"', "in the lesson: raised ValueError: no (line 4 of a cell)"),
        ('10_raises.py:14: cell 3 "total = 1 + 1"', "in the solution: raised ValueError: no (line 4 of a cell)"),
        (
            '11_wrong.py:41: cell 6 "check("11.1", two)"',
            "in the solution: the outcome is 'not yet', expected 'correct'",
        ),
        ('12_refused.py:4: cell 2 "from IPython.display import display"', "unknown tag 'set-up'"),
        ('13_dies.py:14: cell 3 "total = 1 + 1"', "in the lesson: the kernel died: "),
    ],
)
def test_what_went_wrong_is_told_with_file_and_cell(
    partly_failed: tuple[Path, int, str, str], place: str, said: str
) -> None:
    lines = partly_failed[3].splitlines()

    assert any(line.startswith(f"solutions/source/{place}: {said}") for line in lines), lines


def test_each_problem_is_one_line_and_what_follows_an_error_is_not_told(
    partly_failed: tuple[Path, int, str, str],
) -> None:
    *lines, count = partly_failed[3].splitlines()

    assert all(line.startswith("solutions/source/1") for line in lines)
    assert count == f"{len(lines)} problems"
    assert len([line for line in lines if "10_raises" in line]) == 2  # one for the lesson, one for the solution


def test_progress_tells_each_notebook_and_how_it_went(partly_failed: tuple[Path, int, str, str]) -> None:
    lines = partly_failed[2].splitlines()

    assert "10_raises: 6 minutes" in lines
    assert f"lessons/{NAME}: running 7 cells" in lines
    assert any(line.startswith(f"solutions/{NAME}: ran in ") for line in lines)
    assert any(line.startswith("lessons/10_raises: FAILED in ") for line in lines)
    assert not any("/12_refused" in line for line in lines)


def test_outputs_and_counts_are_stored(built: Path) -> None:
    cells = code_cells(built / "lessons" / f"{NAME}.ipynb")

    assert [cell["execution_count"] for cell in cells] == [1, 2, 3, 4]
    assert cells[1]["outputs"] == [{"name": "stdout", "output_type": "stream", "text": ["total = 2\n"]}]
    assert cells[3]["outputs"][0]["data"]["text/plain"] == ["○ 9.1 not attempted: write it"]


def test_a_second_build_gives_the_same_bytes(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = notebook_files(built)
    for path in before:
        (built / path).unlink()

    assert main(["09"], built) == 0

    assert notebook_files(built) == before
    assert f"lessons/{NAME}.ipynb: written" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["09", "9", NAME, f"solutions/source/{NAME}.py"])
def test_a_lesson_is_named_by_number_name_or_path(built: Path, name: str) -> None:
    assert main(["--check", name], built) == 0


def test_an_unknown_name_gets_those_that_there_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_course(tmp_path, {"00_first": TINY, NAME: TINY})
    for name in ("tyni", "8", "../x"):
        assert main([name], tmp_path) == 2
        assert capsys.readouterr().err == f"build: there is no lesson {name!r}; there are: 00_first, {NAME}\n"


def test_a_source_that_cannot_be_read_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_course(tmp_path, {NAME: "text\n" + TINY})
    for arguments in ([], ["--check"]):
        assert main(arguments, tmp_path) == 1
        line, count = capsys.readouterr().err.splitlines()
        assert line.startswith(f"solutions/source/{NAME}.py:1: a cell") and count == "1 problem"


def test_ctrl_c_is_told_in_one_line(
    built: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(build, "execute_all", interrupted)

    assert main([], built) == 130
    assert capsys.readouterr().err == "build: interrupted; the notebooks are as they were\n"


def test_a_copy_of_the_course_without_sources_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], tmp_path) == 2
    assert capsys.readouterr().err == f"build: found no sources in {tmp_path / 'solutions' / 'source'}\n"


def test_the_root_is_found_from_a_folder_inside_it(
    built: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(built / "lessons")

    assert main(["--check"]) == 0
