import json
import re
from pathlib import Path

import nbformat
import pytest

from hooklab.course.build.draft import on_card
from hooklab.course.build.products import METADATA, MOST_REASONS, serialise, skeleton, teachers_page
from hooklab.course.files import write_if_changed
from tests.course.build.made_up import ASKED, TINY, changed, draft_of

COPIES = "\n# %%\nprint()\n\n# %%\nprint()\n"
OF_THE_LESSON = {
    "predictions.py": 'three = prediction("9.a", "What is 1 + 2?", Choice("3", bool, ""), Choice("12", bool, ""))\n',
    "reasons.toml": '["9.1"]\nstrings = "You joined two strings."\n',
    "records.json": '{"9.1": {"misconceptions": {"strings": []}}}',
}
ROOT = Path(__file__).parents[3]


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
    [("total = 1 + 1", "total = 2", [2]), ("first, second = 1, 1", "first, second = 2, 0", [])],
)
def test_an_edited_or_inserted_cell_changes_the_id_of_no_other_cell(
    tmp_path: Path, old: str, new: str, differing: list[int]
) -> None:
    before, after = ids_of(tmp_path / "before", TINY), ids_of(tmp_path / "after", changed(old, new))

    pairs = enumerate(zip(before, after, strict=True))
    assert [place for place, (one, other) in pairs if one != other] == differing
    inserted = changed('# %% tags=["setup"]', '# %% [markdown]\n# More.\n\n# %% tags=["setup"]')
    more = ids_of(tmp_path / "more", inserted)
    assert more[:1] + more[2:] == before


def test_the_text_is_readable_and_ends_with_a_newline(tmp_path: Path) -> None:
    text = serialise(skeleton(draft_of(tmp_path), "lesson"))

    assert text.endswith("}\n")
    assert "●●○ · 5 minutes" in text
    assert text.startswith('{\n "cells": [\n  {\n   "cell_type": "markdown",')
    assert list(json.loads(text)) == ["cells", "metadata", "nbformat", "nbformat_minor"]


def test_writing_the_same_text_again_touches_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lessons" / "a.ipynb"

    assert write_if_changed("●", path)
    before = path.stat().st_mtime_ns
    assert not write_if_changed("●", path)
    assert path.stat().st_mtime_ns == before


def test_the_page_has_minutes_predictions_misconceptions_and_the_teachers_own_words(tmp_path: Path) -> None:
    made = draft_of(tmp_path, TINY + ASKED)
    made.lesson.teaching.write_text("## On the board\n\nSome words.\n", encoding="utf-8")
    for name, text in OF_THE_LESSON.items():
        write_if_changed(text, made.lesson.own / name)
    ran = skeleton(made, "lesson")
    told = next(cell for cell in ran.cells if cell.source.startswith("reveal("))
    told.outputs = [nbformat.v4.new_output("display_data", metadata={"hooklab": {"right": 1}})]
    write_if_changed(serialise(ran), made.lesson.notebook("lesson"))

    page = teachers_page(made)

    assert f"## {on_card(made.cells)} minutes" in page
    assert f"| 9.1 {'●' * made.exercises[0].points}" in page
    asked = next(id for cell, id in zip(made.cells, made.ids, strict=True) if cell.called_with("predict"))
    assert "- **9.a** What is 1 + 2? ([cell " in page
    assert f"](../lessons/09_tiny.ipynb#cell-id={asked}))\n" in page
    assert "\n    - *3*: \n    - ✓ *12*: " in page
    assert "    - You joined two strings." in page
    assert "## On the board\n\nSome words." in page


@pytest.mark.parametrize("page", sorted((ROOT / "solutions").glob("*.md")), ids=lambda path: path.stem[:2])
def test_a_page_can_be_taught_from(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    core, more = re.findall(r"^## (\d+)(?: \+ (\d+))? minutes", text, re.M)[0]
    rows = re.findall(r"^\| .* \| (<?\d*) \| (\d*) \| .*\|$", text, re.M)
    expected = text.split("## Misconceptions to expect")[1].split("\n    - ")[1:]

    assert [sum(int(row[kind]) for row in rows if row[kind].isdecimal()) for kind in (0, 1)] == [
        int(core),
        int(more or 0),
    ]
    assert text.count("    - ✓ ") == len(re.findall(r"^- \*\*\d+\.[a-z]\*\* ", text, re.M))
    assert len(expected) <= MOST_REASONS
    assert ("- ✓ " in text) == bool(expected) == (page.stem != "12_reference")
    assert all(len(re.findall(r"[.?!] (?=[A-Z`])", sentence.split("\n")[0])) <= 1 for sentence in expected)
