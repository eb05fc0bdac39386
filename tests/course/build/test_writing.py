import json
import os
from pathlib import Path

import nbformat
import pytest

from hooklab.course.build.notebook import METADATA, serialise, skeleton, write
from tests.course.build.made_up import TINY, changed, draft_of

COPIES = "\n# %%\nprint()\n\n# %%\nprint()\n"


def ids_of(root: Path, source: str) -> list[str]:
    return [cell.id for cell in skeleton(draft_of(root, source), "lesson").cells]


def test_the_solution_keeps_the_regions_and_the_lesson_has_the_stub(tmp_path: Path) -> None:
    made = draft_of(tmp_path)

    assert "### BEGIN SOLUTION\n    first, second = 1, 1\n" in skeleton(made, "solution").cells[4].source
    assert skeleton(made, "lesson").cells[4].source == (
        'def two() -> int:\n    """Return two."""\n    # YOUR CODE HERE\n    raise NotImplementedError()'
    )


def test_lesson_and_solution_differ_in_the_solution_and_in_what_a_grader_is_told(tmp_path: Path) -> None:
    made = draft_of(tmp_path)

    pairs = zip(skeleton(made, "lesson").cells, skeleton(made, "solution").cells, strict=True)

    assert [lesson == solution for lesson, solution in pairs] == [True] * 4 + [False, False]
    hidden = skeleton(made, "solution").cells[5].source.split("### END HIDDEN TESTS\n")
    assert hidden[0].startswith("### BEGIN HIDDEN TESTS\n") and hidden[1] == 'check("9.1", two)'


def test_a_notebook_is_valid_and_has_bare_metadata(tmp_path: Path) -> None:
    made = skeleton(draft_of(tmp_path, TINY + COPIES), "solution")

    nbformat.validate(made)
    assert (made.nbformat, made.nbformat_minor, made.metadata) == (4, 5, METADATA)
    assert {key for cell in made.cells for key in cell.metadata} == {"tags", "nbgrader"}


def test_nbgrader_is_told_what_to_write_and_what_to_grade(tmp_path: Path) -> None:
    cells = skeleton(draft_of(tmp_path), "lesson").cells

    told = {number: cell.metadata.nbgrader for number, cell in enumerate(cells) if "nbgrader" in cell.metadata}
    common = {"schema_version": 3, "task": False}
    assert told == {
        4: common | {"grade": False, "grade_id": "solution-9-1", "locked": False, "solution": True},
        5: common | {"grade": True, "grade_id": "check-9-1", "locked": True, "points": 2, "solution": False},
    }


def test_each_cell_has_an_id_of_its_own_even_equal_cells(tmp_path: Path) -> None:
    ids = ids_of(tmp_path, TINY + COPIES)

    assert len(set(ids)) == 8
    assert ids[3:6] == ["exercise-9-1", "solution-9-1", "check-9-1"]


@pytest.mark.parametrize(
    ("old", "new", "differing"),
    [
        ("total = 1 + 1", "total = 2", [2]),
        ("Return two.\n#\n", "Return the number two.\n#\n", []),
        ("first, second = 1, 1", "first, second = 2, 0", []),
    ],
)
def test_an_edited_cell_changes_the_id_of_no_other_cell(
    tmp_path: Path, old: str, new: str, differing: list[int]
) -> None:
    before, after = ids_of(tmp_path / "before", TINY), ids_of(tmp_path / "after", changed(old, new))

    pairs = enumerate(zip(before, after, strict=True))
    assert [place for place, (one, other) in pairs if one != other] == differing


def test_an_inserted_cell_changes_the_id_of_no_other_cell(tmp_path: Path) -> None:
    inserted = changed('# %% tags=["setup"]', '# %% [markdown]\n# More.\n\n# %% tags=["setup"]')

    before, after = ids_of(tmp_path / "before", TINY), ids_of(tmp_path / "after", inserted)

    assert after[:1] + after[2:] == before


def test_the_text_is_readable_and_ends_with_a_newline(tmp_path: Path) -> None:
    text = serialise(skeleton(draft_of(tmp_path), "lesson"))

    assert text.endswith("}\n")
    assert "●●○ · 5 minutes" in text
    assert text.startswith('{\n "cells": [\n  {\n   "cell_type": "markdown",')
    assert list(json.loads(text)) == ["cells", "metadata", "nbformat", "nbformat_minor"]


def test_writing_the_same_notebook_again_touches_nothing(tmp_path: Path) -> None:
    made, path = skeleton(draft_of(tmp_path), "lesson"), tmp_path / "lessons" / "a.ipynb"

    assert write(made, path)
    before = path.stat().st_mtime_ns
    assert not write(made, path)
    assert path.stat().st_mtime_ns == before


def test_an_interrupted_writing_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, path = skeleton(draft_of(tmp_path), "lesson"), tmp_path / "lessons" / "a.ipynb"
    path.parent.mkdir()
    path.write_text("old", encoding="utf-8")

    def full_disk(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(OSError, match="no space"):
        write(made, path)

    assert path.read_text(encoding="utf-8") == "old"
    assert list(path.parent.iterdir()) == [path]
