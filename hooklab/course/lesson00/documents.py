"""The tables of the start page that lead from a step of one of the five documents to the cells that run it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

from hooklab.course.lesson00.symptoms import Tagged, link

# By document, and by the claim that a step makes: the step, and what is true of it today.
DOCUMENTS: dict[str, dict[str, list[str]]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)


def table(cells: Iterable[Tagged], document: str) -> str:
    """Return the steps of a document as a Markdown table, each with the first cell of each lesson that runs it.

    Args:
        cells: the cells that show a claim, in the order of the lessons.
        document: such as "S0".

    Raises:
        LookupError: for a claim that has no words in documents.toml, and for words that no cell shows.
    """
    places: dict[str, dict[str, str]] = {claim: {} for steps in DOCUMENTS.values() for claim in steps}
    for cell in cells:
        if cell.key not in places:
            raise LookupError(f"claim-{cell.key} has no words: add it to hooklab/course/lesson00/documents.toml")
        places[cell.key].setdefault(cell.lesson, link(cell))
    lines = ["| in the document | today | run it in |", "|---|---|---|"]
    for claim, (step, today) in DOCUMENTS[document].items():
        if not places[claim]:
            raise LookupError(f"no cell shows claim-{claim}")
        lines.append(f"| {step} | {today} | {', '.join(places[claim].values())} |")
    return "\n".join(lines)
