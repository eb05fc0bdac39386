"""What the committed notebooks hold, seen without running them."""

import functools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from hooklab.course.build.draft import Draft, draft
from hooklab.course.build.products import compare
from hooklab.course.build.sources import BEGIN, END, Course, Lesson

ROOT = Path(__file__).parents[3]
COURSE = Course(ROOT)
NOTEBOOKS = sorted([*ROOT.glob("lessons/*.ipynb"), *ROOT.glob("solutions/*.ipynb")])

each_lesson = pytest.mark.parametrize("lesson", COURSE.lessons(), ids=lambda lesson: lesson.name)
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.relative_to(ROOT).as_posix())


@functools.cache
def draft_of(lesson: Lesson) -> Draft:
    return draft(COURSE, lesson)


@functools.cache
def cells_of(path: Path) -> list[dict[str, Any]]:
    """Return a notebook's cells, each with its source as one text and its tags as a list."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell | {"source": "".join(cell["source"]), "tags": cell["metadata"].get("tags", [])} for cell in cells]


def regions_of(source: str) -> list[list[str]]:
    """Return the solution regions of a source, each as its stripped lines."""
    parts = [part.split(END)[0] for part in source.split(BEGIN)[1:]]
    return [[line.strip() for line in part.split("\n") if line.strip()] for part in parts]


def joined(text: str) -> str:
    return "\n".join(line.strip() for line in text.split("\n") if line.strip())


@each_lesson
def test_notebooks_and_page_are_what_the_source_makes(lesson: Lesson) -> None:
    made = draft_of(lesson)

    assert (made.problems or compare(made)) == []


def test_no_notebook_is_without_a_source() -> None:
    assert COURSE.strays() == []


@functools.cache
def given_to_a_class() -> dict[str, str]:
    """Return the code that a class is given, by file, without indentation and empty lines."""
    code = {path: "\n".join(cell["source"] for cell in cells_of(path)) for path in ROOT.glob("lessons/*.ipynb")}
    code |= {path: path.read_text(encoding="utf-8") for path in ROOT.glob("hooklab/**/*.py")}
    return {path.relative_to(ROOT).as_posix(): joined(text) for path, text in code.items()}


@each_lesson
def test_what_a_class_is_given_holds_no_solution(lesson: Lesson) -> None:
    regions = regions_of(lesson.source.read_text(encoding="utf-8"))

    assert bool(regions) == bool(draft_of(lesson).exercises)
    for region in regions:
        if len(region) > 1:  # one line may well stand elsewhere too
            assert [name for name, text in given_to_a_class().items() if "\n".join(region) in text] == []


@each_lesson
def test_a_claim_is_a_line_of_code_that_would_fail(lesson: Lesson) -> None:
    claims = [cell for cell in draft_of(lesson).cells if any(tag.startswith("claim-") for tag in cell.tags)]

    assert [cell.text for cell in claims if not re.search(r"^\s*assert ", cell.text, re.M) or cell.kind != "code"] == []


@each_notebook
def test_every_figure_and_explorer_is_stored_as_a_picture(path: Path) -> None:
    shown = [cell for cell in cells_of(path) if {"figure", "explorer"} & set(cell["tags"])]
    pictures = [any("image/png" in output.get("data", {}) for output in cell["outputs"]) for cell in shown]

    assert [cell["source"] for cell, there in zip(shown, pictures, strict=True) if not there] == []
