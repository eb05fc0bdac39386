"""What a source produces, two notebooks and a page for the teacher: how they are written, and whether they are current.

`skeleton` depends on the source alone, so that the same source always gives the same bytes, and a committed notebook
can be compared with its source without running it: `compare`.

The page, solutions/NN_slug.md, is for the hour in class, never for students. It takes from the lesson what the
lesson already states: the minutes of its parts, its predictions, the reasons that its checks give. The rest, from
solutions/source/NN_slug.md, is inserted between these: what to draw on the board, two questions to discuss, what to
leave out.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Callable
from itertools import accumulate, pairwise, zip_longest
from pathlib import Path
from typing import Any

from nbformat import v4

import hooklab
from hooklab.course.build.draft import Draft, Minutes, minutes_by_cell, on_card
from hooklab.course.build.running import ANSWERS, findings
from hooklab.course.build.sources import FOLDER, Cell, Lesson, Variant, calls_in, stubbed, titled

_v4: Any = v4  # nbformat has no types for it

METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# A stored output that JupyterLab shows as three dots; running the cell opens it. "collapsed" is Jupyter's older word.
FOLDED = {"collapsed": True, "jupyter": {"outputs_hidden": True}}
# Code that JupyterLab shows as three dots after its first line, `reveal(…)`: its asserts would tell the answer.
HIDDEN = {"jupyter": {"source_hidden": True}}

MOST_REASONS = 10  # on the teacher's page
SHARED = Path(__file__).parents[1] / "exercises" / "reasons.toml"  # what all lessons share
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
        graded[one.solution.number] = written | {"grade_id": f"solution-{one.slug}"}
        graded[one.check.number] = checked | {"grade_id": f"check-{one.slug}", "points": one.points}
    return graded


def serialise(notebook: Any) -> str:
    """Return the one text of a notebook: sorted keys, indented by 1, characters as they are, a newline at the end."""
    return str(_v4.writes(notebook)) + "\n"


def compare(draft: Draft) -> list[str]:
    """Return where a lesson's notebooks and page are not what its source makes, and what a run left wrong in them."""
    problems = [problem for variant in FOLDER for problem in _compare_one(draft, variant)]
    page = draft.lesson.page
    if problems or (page.is_file() and page.read_bytes() == teachers_page(draft).encode("utf-8")):
        return problems
    return [f"{draft.lesson.shown(page)}: not what the lesson's sources make; run {_build(draft)}"]


def _build(draft: Draft) -> str:
    return f"python -m hooklab build {draft.lesson.name[:2]}"


def _compare_one(draft: Draft, variant: Variant) -> list[str]:
    """Put what is stored in a notebook into the one that the source makes: then both must be the same text."""
    path = draft.lesson.notebook(variant)
    file = draft.lesson.shown(path)
    try:
        text = path.read_text(encoding="utf-8")
        stored = _v4.reads(text).cells
    except (OSError, ValueError, AttributeError) as error:
        return [f"{file}: there is no notebook ({type(error).__name__}); run {_build(draft)}"]
    wanted = skeleton(draft, variant)
    for cell, found in zip(wanted.cells, stored, strict=False):
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = found.get("outputs", []), found.get("execution_count")
    if serialise(wanted) == text:
        return findings(wanted, draft, variant)
    for number, (cell, found) in enumerate(zip_longest(wanted.cells, stored), start=1):
        if cell != found:
            place = titled(number, found.source if found else "(end)")
            return [f"{file}: {place}: not as the source gives it; run {_build(draft)}"]
    return [f"{file}: saved by something other than the builder; if by JupyterLab: git checkout {file}"]


# --- the page for the teacher


def teachers_page(draft: Draft) -> str:
    """Return the page; it depends only on the lesson's files and on the results in its notebook."""
    lesson, title = draft.lesson, draft.cells[0].text.split("\n")[0].lstrip("# ")
    minutes = on_card(draft.cells) or draft.minutes
    parts = [
        f"# For the teacher: {title}",
        "Not for students: `python -m hooklab handout` leaves it out.",
        f"## {minutes} minutes\n\n{_table(draft, minutes)}",
        f"## Predict together\n\n{_predictions(draft)}",
        lesson.teaching.read_text(encoding="utf-8").strip() if lesson.teaching.is_file() else "",
        f"## Misconceptions to expect\n\n{_misconceptions(draft)}",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(draft: Draft, minutes: Minutes) -> str:
    """The parts of the lesson with their exercises, and the minutes of the lesson's card, shared out among them."""
    parts, needed = _parts(draft.cells), minutes_by_cell(draft.cells, draft.exercises)
    core, more = (
        _shared_out(whole, [sum(needed[cell.number - 1][kind] for cell in cells) for _, cells in parts])
        for kind, whole in enumerate((minutes.core, minutes.more))
    )
    rows = ["| part | minutes | can wait | exercises |", "|---|---|---|---|"]
    for (title, cells), now, later in zip(parts, core, more, strict=True):
        exercises = [f"{one.id} {'●' * one.points}" for one in draft.exercises if one.card in cells]
        rows.append(f"| {title} | {now or '<1' * (not later)} | {later or ''} | {', '.join(exercises)} |")
    return "\n".join(rows)


def _shared_out(whole: int, parts: list[float]) -> list[int]:
    """Return whole numbers in the proportion of the parts; their sum is `whole`."""
    sums = [round(whole * one / (sum(parts) or 1)) for one in accumulate(parts)]
    return [after - before for before, after in pairwise([0, *sums])]


def _parts(cells: list[Cell]) -> list[tuple[str, list[Cell]]]:
    """Return the cells under each heading of a lesson, with that heading."""
    parts: list[tuple[str, list[Cell]]] = [("Before the first heading", [])]
    for cell in cells:
        if cell.kind == "markdown" and "exercise" not in cell.tags and (heading := _PART.search(cell.text)):
            parts.append((heading[1], []))
        parts[-1][1].append(cell)
    return parts


def _predictions(draft: Draft) -> str:
    """Each question with its choices, a tick at what came out, and a link to its cell."""
    places = {id: cell.number for cell in draft.cells for id in cell.called_with("predict")}
    came, file, lines = _what_came_out(draft), draft.lesson.own / "predictions.py", []
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    tree = ast.parse(text, file)  # an import would import torch
    for call in calls_in(tree, "prediction", "ByNumber"):
        id, question, *_ = _texts(call)
        place = places.get(id, 1)
        link = f"../{FOLDER['lesson']}/{draft.lesson.name}.ipynb#cell-id={draft.ids[place - 1]}"
        lines.append(f"- **{id}** {question} ([cell {place}]({link}))")
        for number, (answer, why) in enumerate(_answers(call)):
            is_right = came.get(id) == (number if isinstance(answer, str) else answer)
            lines.append(f"    - {'✓ ' if is_right else ''}*{answer}*: {why}")
    return "\n".join(lines) or "None."


def _answers(call: ast.Call) -> list[tuple[Any, str]]:
    """Return the choices of a prediction, or the numbers that it foresees, each with what is said to it."""
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    if foreseen := [ast.literal_eval(one) for one in values if isinstance(one, ast.Dict)]:
        return list(foreseen[0].items())
    choices = [_texts(one) for one in values if isinstance(one, ast.Call)]
    return [(texts[0], texts[-1]) for texts in choices]


def _what_came_out(draft: Draft) -> dict[str, float]:
    """Return the right answer of each prediction, as `reveal` has left it in the lesson's notebook."""
    notebook = draft.lesson.notebook("lesson")
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"] if notebook.is_file() else []
    found: dict[str, float] = {}
    for cell, stored in zip(draft.cells, cells, strict=False):
        for output in stored.get("outputs", []):
            right = output.get("metadata", {}).get("hooklab", {}).get("right")
            found |= {id: right for id in cell.called_with("reveal") if right is not None}
    return found


def _misconceptions(draft: Draft) -> str:
    """The first reasons of each exercise that does not wait, in the order of the lesson's data, each of them once."""
    needed = minutes_by_cell(draft.cells, draft.exercises)
    exercises = [one for one in draft.exercises if not needed[one.card.number - 1][1]]  # the others can wait
    sentences = {one.id: _reasons(draft.lesson, one.id) for one in exercises}
    chosen: dict[str, str] = {}  # sentence -> exercise
    for row in zip_longest(*([(id, one) for one in said] for id, said in sentences.items())):
        for id, sentence in filter(None, row):
            if len(chosen) < MOST_REASONS:
                chosen.setdefault(sentence, id)
    lines = []
    for one in exercises:
        said = [f"    - {sentence}" for sentence, id in chosen.items() if id == one.id]
        lines += [f"- **{one.id} · {one.title}**", *said] if said else []
    return "\n".join(lines) or "None: the lesson has no exercise."


def _reasons(lesson: Lesson, id: str) -> list[str]:
    """Return what the check of an exercise says to each misconception, in at most two sentences."""
    own = _loaded(lesson.own / "reasons.toml", tomllib.loads)
    said = _loaded(SHARED, tomllib.loads)["shared"] | own.get("shared", {}) | own.get(id, {})
    labels = _loaded(lesson.own / "records.json", json.loads).get(id, {}).get("misconceptions", {})
    sentences = [_in_short(said[label]) for label in labels if label in said]
    return [re.sub("^{name}", "Your function", one).replace("{name}", "your function") for one in sentences]


def _loaded(path: Path, loads: Callable[[str], Any]) -> Any:
    try:
        return loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise SyntaxError(f"{'/'.join(path.parts[-2:])}: {error}") from error


def _in_short(text: str) -> str:
    """Return the sentence that says what the code does, and the last one, which says what to do."""
    sentences = re.split(r"(?<=[.?!]) (?=[A-Z`])", text)
    does = next((one for one in sentences if one.startswith("You")), sentences[0])
    return " ".join(dict.fromkeys([does, sentences[-1]]))


def _texts(call: ast.Call) -> list[str]:
    """The arguments of a call that are texts, in order."""
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    return [str(one.value) for one in values if isinstance(one, ast.Constant) and isinstance(one.value, str)]
