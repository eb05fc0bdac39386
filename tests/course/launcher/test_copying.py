"""The learner's own copy of the lessons: it follows an update where nothing was written, and loses nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hooklab.course.launcher.copying import MINE, bring_up_to_date


def notebook(source: str, output: str = "1\n", **metadata: Any) -> str:
    cell = {"cell_type": "code", "source": [source], "outputs": [{"text": output}], "execution_count": 1}
    return json.dumps({"cells": [cell], "metadata": metadata})


@pytest.fixture
def course(tmp_path: Path) -> Path:
    (tmp_path / "lessons").mkdir()
    publish(tmp_path, "first")
    bring_up_to_date(tmp_path)
    return tmp_path


def publish(course: Path, source: str) -> None:
    (course / "lessons/01_a.ipynb").write_text(notebook(source))


def mine(course: Path) -> dict[str, str]:
    """The first cell of each notebook of the learner's, by its name."""
    files = sorted((course / MINE).glob("*.ipynb"))
    return {file.stem: "".join(json.loads(file.read_text())["cells"][0]["source"]) for file in files}


def work(course: Path, text: str = "my answer", name: str = "01_a") -> None:
    (course / MINE / f"{name}.ipynb").write_text(notebook(text))


def test_an_untouched_notebook_follows_an_update_though_jupyterlab_has_saved_it(course: Path) -> None:
    (course / MINE / "01_a.ipynb").write_text(notebook("first", language_info={"version": "3.11.9"}))
    publish(course, "second")
    bring_up_to_date(course)
    assert mine(course) == {"01_a": "second"}


def test_what_the_learner_wrote_stays_and_the_new_edition_is_put_beside_it_once(
    course: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work(course)
    publish(course, "second")
    bring_up_to_date(course)
    assert mine(course) == {"01_a": "my answer", "01_a-new": "second"}
    assert "the lesson's new edition is 01_a-new.ipynb" in capsys.readouterr().err

    (course / MINE / "01_a-new.ipynb").unlink()
    bring_up_to_date(course)
    assert mine(course) == {"01_a": "my answer"}
    assert capsys.readouterr().err == ""


def test_a_new_edition_is_not_written_over_work_in_an_earlier_one(course: Path) -> None:
    work(course)
    publish(course, "second")
    bring_up_to_date(course)
    work(course, "more", "01_a-new")
    for edition in ("third", "fourth"):
        publish(course, edition)
        bring_up_to_date(course)
    assert mine(course) == {"01_a": "my answer", "01_a-new": "more", "01_a-new2": "fourth"}


def test_what_was_printed_in_a_run_is_work_too(course: Path) -> None:
    (course / MINE / "01_a.ipynb").write_text(notebook("first", output="2\n"))
    publish(course, "second")
    bring_up_to_date(course)
    assert mine(course) == {"01_a": "first", "01_a-new": "second"}


def test_a_notebook_that_the_learner_removed_comes_back(course: Path) -> None:
    (course / MINE / "01_a.ipynb").unlink()
    bring_up_to_date(course)
    assert mine(course) == {"01_a": "first"}


@pytest.mark.parametrize("spoilt", [".editions.json", "01_a.ipynb"])
def test_a_spoilt_file_costs_nothing_of_the_learners(course: Path, spoilt: str) -> None:
    work(course)
    (course / MINE / spoilt).write_text("{ half")
    kept = (course / MINE / "01_a.ipynb").read_text()
    publish(course, "second")
    bring_up_to_date(course)
    assert (course / MINE / "01_a.ipynb").read_text() == kept
    assert "01_a-new.ipynb" in os.listdir(course / MINE)


@pytest.mark.parametrize("at", range(4))
def test_a_copy_that_was_interrupted_goes_on_at_the_next_start(
    course: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    work(course)
    (course / "lessons/02_b.ipynb").write_text(notebook("b"))
    publish(course, "second")
    left = iter(range(at))

    def replace(old: Path, new: Path) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        os.rename(old, new)

    with monkeypatch.context() as patched:
        patched.setattr("hooklab.course.files.os.replace", replace)
        with pytest.raises(KeyboardInterrupt):
            bring_up_to_date(course)
    bring_up_to_date(course)
    assert mine(course) == {"01_a": "my answer", "01_a-new": "second", "02_b": "b"}
    assert not list((course / MINE).glob(".*.unfinished"))
