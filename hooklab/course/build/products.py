"""What a source makes, its two notebooks and the page for its teacher: how it is written, and whether it is up to date.

`skeleton` depends on the source alone, so that the same source always gives the same bytes, and a committed notebook
can be held against its source without running it: `compare`.

The page, solutions/NN_slug.md, is for the hour in class, never for students. What the lesson knows itself is taken from
it: the minutes of its parts, its predictions, the reasons that its checks give. What only a
teacher knows stands in solutions/source/NN_slug.md and is put between: what to draw on the board, two questions to
discuss, what to leave out.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import nbformat
from nbformat import v4

import hooklab
from hooklab.course.build.draft import HARDEST, Draft, minutes_of
from hooklab.course.build.running import ANSWERS, Finding, findings
from hooklab.course.build.sources import FOLDER, Cell, Problem, Variant, calls_in, parsed, shortened, stubbed
from hooklab.course.files import write_whole

_v4: Any = v4  # nbformat has no types for it

METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# A stored output that JupyterLab shows as three dots; running the cell opens it. "collapsed" is Jupyter's older word.
FOLDED = {"collapsed": True, "jupyter": {"outputs_hidden": True}}
# Code that JupyterLab shows as three dots behind its first line, `reveal(…)`: its asserts would tell the answer.
HIDDEN = {"jupyter": {"source_hidden": True}}

MOST_REASONS = 10  # of an exercise, on the teacher's page
OWN = ("## On the board", "## Two questions to discuss", "## What can be left out")
_PART = re.compile(r"^## (.+)$", re.M)


# --- a notebook


def skeleton(draft: Draft, variant: Variant) -> Any:
    """Return the notebook (an nbformat NotebookNode) of a lesson or a solution, its code cells not yet run."""
    graded = _nbgrader_metadata(draft)
    notebook = _v4.new_notebook(metadata=METADATA)
    notebook.nbformat_minor = 5
    for cell, id in zip(draft.cells, draft.ids, strict=True):
        open_exercise = variant == "lesson" and "solution" in cell.tags
        text = stubbed(cell.text) if open_exercise else cell.text
        if variant == "solution" and "check" in cell.tags:
            text = guarded(text)
        metadata: dict[str, Any] = {"tags": list(cell.tags)} if cell.tags else {}
        if variant == "lesson" and ANSWERS & set(cell.tags):
            metadata |= FOLDED
        if variant == "lesson" and cell.called_with("reveal"):
            metadata |= HIDDEN
        if cell.number in graded:
            metadata["nbgrader"] = graded[cell.number]
        new = _v4.new_markdown_cell if cell.kind == "markdown" else _v4.new_code_cell
        notebook.cells.append(new(text, id=id, metadata=metadata))
    return notebook


def guarded(check_cell: str) -> str:
    """Return the text of a solution's check cell, with a line for graders that nbgrader takes out for students."""
    line = f'from hooklab.course.graded import check_of; check = check_of("{hooklab.__version__}", check)'
    return f"### BEGIN HIDDEN TESTS\n{line}  # fails here? then no point counts\n### END HIDDEN TESTS\n{check_cell}"


def _nbgrader_metadata(draft: Draft) -> dict[int, dict[str, Any]]:
    """Return nbgrader's metadata (schema version 3) by cell number: what the learner writes, and what is graded."""
    graded: dict[int, dict[str, Any]] = {}
    for one in draft.exercises:
        written = {"schema_version": 3, "task": False, "grade": False, "locked": False, "solution": True}
        checked = {"schema_version": 3, "task": False, "grade": True, "locked": True, "solution": False}
        graded[one.solution.number] = written | {"grade_id": one.slug("solution")}
        graded[one.check.number] = checked | {"grade_id": one.slug("check"), "points": one.points}
    return graded


def serialise(notebook: Any) -> str:
    """Return the one text of a notebook: sorted keys, indented by 1, characters as they are, a newline at the end."""
    return str(_v4.writes(notebook)) + "\n"


def write(text: str, path: Path) -> bool:
    """Write a file, whole or not at all; return whether it changed."""
    content = text.encode("utf-8")
    if path.is_file() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(content, path)
    return True


def compare(draft: Draft) -> list[Problem]:
    """Return every difference between a lesson's two notebooks and its source, and what a run left wrong in them."""
    return [problem for variant in FOLDER for problem in _compare_one(draft, variant)]


def _compare_one(draft: Draft, variant: Variant) -> list[Problem]:
    path = draft.lesson.notebook(variant)
    file = draft.lesson.shown(path)
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
        what = "the notebook's metadata is not what the builder writes; if JupyterLab has saved it: git checkout"
        problems.append(Problem(file, f"{what} {file}"))
    if not problems and serialise(notebook) != text:
        problems.append(Problem(file, "saved by something other than the builder"))
    return problems + [_at(file, cells, index, what) for index, what in findings(notebook, draft, variant)]


def _cell_differences(cells: list[Any], wanted: list[Any]) -> list[Finding]:
    bare = [{**cell, "outputs": [], "execution_count": None} if "outputs" in cell else cell for cell in cells]
    if len(bare) != len(wanted):
        first = next((n for n, (cell, want) in enumerate(zip(bare, wanted, strict=False)) if cell != want), 0)
        return [(first, f"{len(bare)} cells where the source has {len(wanted)}; the first difference is here")]
    pairs = enumerate(zip(bare, wanted, strict=True))
    return [(index, "not as the source gives it") for index, (cell, want) in pairs if cell != want]


def _at(file: str, cells: list[Any], index: int, what: str) -> Problem:
    first_line = cells[index].source if index < len(cells) else "(end)"
    return Problem(file, what, cell=index + 1, first_line=first_line)


# --- the page for the teacher


def teachers_page(draft: Draft) -> str:
    """Return the page; it depends on the lesson's source, predictions, reasons and hand-written part alone."""
    lesson, title = draft.lesson, draft.cells[0].text.split("\n")[0].lstrip("# ")
    parts = [
        f"# For the teacher: {title}",
        "Not for students: `python -m hooklab handout` leaves it out.",
        f"## {draft.minutes} minutes\n\n{_table(draft)}",
        f"## Predict together\n\n{_predictions(lesson.own / 'predictions.py')}",
        lesson.teaching.read_text(encoding="utf-8").strip() if lesson.teaching.is_file() else "",
        f"## Misconceptions to expect\n\n{_misconceptions(draft)}",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def teaching_problems(draft: Draft) -> list[Problem]:
    """Return what is wrong with the committed page, and with the part that is written by hand."""
    lesson = draft.lesson
    if not lesson.teaching.is_file():
        return []
    lines = lesson.teaching.read_text(encoding="utf-8").split("\n")
    missing = [f"no `{heading}`" for heading in OWN if heading not in lines]
    problems = [Problem(lesson.shown(lesson.teaching), what) for what in missing]
    if not lesson.page.is_file() or lesson.page.read_bytes() != teachers_page(draft).encode("utf-8"):
        problems.append(Problem(lesson.shown(lesson.page), "not what the lesson's sources make"))
    return problems


def write_page(draft: Draft) -> bool:
    """Write a lesson's page, if it has a hand-written part; return whether the file changed."""
    return draft.lesson.teaching.is_file() and write(teachers_page(draft), draft.lesson.page)


def _table(draft: Draft) -> str:
    """The parts of the lesson with their minutes and exercises."""
    rows = ["| part | minutes | exercises |", "|---|---|---|"]
    for title, cells in _parts(draft.cells):
        exercises = [one for one in draft.exercises if one.card in cells]
        minutes = sum(map(minutes_of, cells)) + sum(one.minutes for one in exercises)
        marked = [f"{one.id} {'●' * one.points}" + (" can wait" if one.points == HARDEST else "") for one in exercises]
        rows.append(f"| {title} | {round(minutes) or '<1'} | {', '.join(marked)} |")
    return "\n".join(rows)


def _parts(cells: list[Cell]) -> Iterator[tuple[str, list[Cell]]]:
    title, titled = "Before the first heading", []
    for cell in cells:
        found = _PART.findall(cell.text) if cell.kind == "markdown" and "exercise" not in cell.tags else []
        title = found[0] if found else title
        titled.append((title, cell))
    for title, group in groupby(titled, key=lambda pair: pair[0]):
        yield title, [cell for _, cell in group]


def _predictions(path: Path) -> str:
    """Each question with its choices and the picture of the machine that leads to each."""
    lines = []
    for call in calls_in(parsed(path), "prediction", "number"):
        texts = _texts(call)
        lines.append(f"- **{texts[0]}** {texts[1]}")
        for choice in call.args:
            if isinstance(choice, ast.Call) and len(_texts(choice)) > 1:
                answer, *_, why = _texts(choice)
                lines.append(f"    - *{answer}*: {why}")
    return "\n".join(lines) or "None."


def _misconceptions(draft: Draft) -> str:
    """The reasons that the checks of each exercise give, the first ten of each in the order of the lesson's file."""
    path = draft.lesson.reasons
    reasons = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    lines = []
    for one in draft.exercises:
        lines.append(f"- **{one.id} · {one.title}**")
        lines += [f"    - {sentence}" for sentence in list(reasons[one.id].values())[:MOST_REASONS]]
    return "\n".join(lines) or "None: the lesson has no exercise."


def _texts(call: ast.Call) -> list[str]:
    """The arguments of a call that are texts, in order."""
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    return [str(one.value) for one in values if isinstance(one, ast.Constant) and isinstance(one.value, str)]
