"""A lesson's page for its teacher, solutions/NN_slug.md: for the hour in class, never for students.

What the lesson knows itself is taken from it: the minutes of its parts, its predictions, the misconceptions that its
named wrong answers stand for, and what comes after the recap. What only a teacher knows stands in
solutions/source/NN_slug.md and is put between: what to draw on the board, two questions to discuss, what to leave out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from hooklab.course import words
from hooklab.course.build.course import Lesson, Problem
from hooklab.course.build.draft import HARDEST, Draft, minutes_of
from hooklab.course.build.source import Cell

OWN = ("## On the board", "## Two questions to discuss", "## What can be left out")
_PART = re.compile(r"^## (.+)$", re.M)


def page_of(lesson: Lesson) -> Path:
    """Return where a lesson's page for its teacher stands."""
    return lesson.notebook("solution").with_suffix(".md")


def text_of(lesson: Lesson) -> Path:
    """Return where the part of it stands that is written by hand."""
    return lesson.source.with_suffix(".md")


def teachers_page(draft: Draft) -> str:
    """Return the page; it depends on the lesson's source, predictions, wrong answers and hand-written part alone."""
    lesson, title = draft.lesson, draft.cells[0].text.split("\n")[0].lstrip("# ")
    written = text_of(lesson)
    parts = [
        f"# For the teacher: {title}",
        "Not for students: `python -m hooklab handout` leaves it out.",
        f"## {draft.minutes} minutes\n\n{_table(draft)}",
        f"## Predict together\n\n{_predictions(lesson.own / 'predictions.py')}",
        written.read_text(encoding="utf-8").strip() if written.is_file() else "",
        f"## Misconceptions to expect\n\n{_misconceptions(draft)}",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def teaching_problems(draft: Draft) -> list[Problem]:
    """Return what is wrong with the committed page, and with the part that is written by hand."""
    lesson, page, written = draft.lesson, page_of(draft.lesson), text_of(draft.lesson)
    if not written.is_file():
        return []
    text = written.read_text(encoding="utf-8")
    missing = [f"no `{heading}`" for heading in OWN if heading not in text.split("\n")]
    problems = [Problem(lesson.shown(written), what) for what in missing]
    if not page.is_file() or page.read_bytes() != teachers_page(draft).encode("utf-8"):
        problems.append(Problem(lesson.shown(page), "not what the lesson's sources make"))
    return problems


def write_page(draft: Draft) -> bool:
    """Write a lesson's page, if it has a hand-written part; return whether the file changed."""
    page, made = page_of(draft.lesson), teachers_page(draft).encode("utf-8")
    if not text_of(draft.lesson).is_file() or (page.is_file() and page.read_bytes() == made):
        return False
    page.write_bytes(made)
    return True


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
    calls = _calls(path, "prediction", "number")
    lines = []
    for call in calls:
        texts = _texts(call)
        lines.append(f"- **{texts[0]}** {texts[1]}")
        for choice in call.args:
            if isinstance(choice, ast.Call) and len(_texts(choice)) > 1:
                answer, *_, why = _texts(choice)
                lines.append(f"    - *{answer}*: {why}")
    return "\n".join(lines) or "None."


def _misconceptions(draft: Draft) -> str:
    """What the named wrong answers of each exercise do, with the words by which the check tells it."""
    path, lines = draft.lesson.wrong_answers, []
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for one in draft.exercises:
        title = one.card.text.split("\n")[0].removeprefix(f"### {words.EXERCISE} ")
        lines.append(f"- **{title}**")
        for node in ast.walk(tree):
            for call in getattr(node, "decorator_list", []):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "wrong" and _texts(call)[0] == one.id:
                    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
                    lines.append(f"    - {_as_words(node.name)}: “{_texts(call)[-1]}”")
    return "\n".join(lines) or "None: the lesson has no exercise."


def _as_words(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z][a-z])", " ", name).replace("_", " ").lower()


def _calls(path: Path, *names: str) -> list[ast.Call]:
    tree = ast.parse(path.read_text(encoding="utf-8") if path.is_file() else "")
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) in names]
    return sorted(calls, key=lambda call: call.lineno)


def _texts(call: ast.Call) -> list[str]:
    """The arguments of a call that are texts, in order."""
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    return [str(one.value) for one in values if isinstance(one, ast.Constant) and isinstance(one.value, str)]
