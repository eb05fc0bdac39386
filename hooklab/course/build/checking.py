"""compare: whether a lesson's committed notebooks are what its source makes, without running them."""

from __future__ import annotations

import json
from itertools import zip_longest
from typing import Any

import nbformat
from nbformat import v4

from hooklab.course.build.course import FOLDER, Course, Variant
from hooklab.course.build.drafts import Draft
from hooklab.course.build.problems import Problem, shortened
from hooklab.course.build.rules import findings
from hooklab.course.build.writing import serialise, skeleton

_v4: Any = v4  # nbformat has no types for it


def compare(course: Course, draft: Draft) -> list[Problem]:
    """Return every difference between a lesson's two notebooks and its source, and what a run left wrong in them."""
    return [problem for variant in FOLDER for problem in _compare_one(course, draft, variant)]


def stray_problems(course: Course) -> list[Problem]:
    """Return a problem for each notebook that no source makes."""
    return [Problem(course.shown(path), "no source makes this notebook: remove it") for path in course.strays()]


def _compare_one(course: Course, draft: Draft, variant: Variant) -> list[Problem]:
    path = draft.lesson.notebook(variant)
    file = course.shown(path)
    if not path.is_file():
        return [Problem(file, "missing")]
    text = path.read_text(encoding="utf-8")
    try:
        raw = json.loads(text)
        nbformat.validate(raw)
    except (json.JSONDecodeError, nbformat.ValidationError, AttributeError) as error:
        return [Problem(file, f"this is not a notebook: {shortened(str(error))}")]
    notebook = _v4.to_notebook(raw)
    cells = notebook.cells
    wanted = skeleton(draft, variant)
    problems = [_at(file, cells, index, what) for index, what in _cell_differences(cells, wanted.cells)]
    if {**notebook, "cells": []} != {**wanted, "cells": []}:
        problems.append(Problem(file, "the notebook's metadata is not what the builder writes"))
    if not problems and serialise(notebook) != text:
        problems.append(Problem(file, "saved by something other than the builder"))
    return problems + [_at(file, cells, index, what) for index, what in findings(notebook, draft, variant)]


def _cell_differences(cells: list[Any], wanted: list[Any]) -> list[tuple[int, str]]:
    bare = [_without_run(cell) for cell in cells]
    if len(bare) == len(wanted):
        pairs = zip(bare, wanted, strict=True)
        return [(index, _difference(cell, want)) for index, (cell, want) in enumerate(pairs) if cell != want]
    same = 0
    while same < min(len(bare), len(wanted)) and bare[same] == wanted[same]:
        same += 1
    counts = f"{len(bare)} cells where the source has {len(wanted)}"
    return [(same, f"{counts}; the first difference is here")]


def _difference(cell: Any, want: Any) -> str:
    if cell.get("source") != want.source:
        return _text_difference(cell["source"], want.source)
    differing = sorted(key for key in {*cell, *want} if cell.get(key) != want.get(key))
    return f"{' and '.join(differing)} not as the source gives it"


def _text_difference(text: str, want: str) -> str:
    pairs = zip_longest(text.split("\n"), want.split("\n"), fillvalue="(nothing)")
    number, line, wanted = next((n, one, other) for n, (one, other) in enumerate(pairs, start=1) if one != other)
    return f"line {number} is `{shortened(line)}`, in the source `{shortened(wanted)}`"


def _without_run(cell: Any) -> Any:
    """Return a cell as it is before it is run."""
    return {**cell, "outputs": [], "execution_count": None} if "outputs" in cell else cell


def _at(file: str, cells: list[Any], index: int, what: str) -> Problem:
    first_line = cells[index].source if index < len(cells) else "(end)"
    return Problem(file, what, cell=index + 1, first_line=first_line)
