"""The index of symptoms on the start page: what people say when a hook surprises them, and the cell that answers.

A cell that answers a symptom carries its tag (`field-27`, `field-clip`). The words are in symptoms.toml; where the
answer is comes from the lessons' sources, so a cell that moves takes its entry along.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

# By heading, and by the key that a cell's tag has after `field-`, what people say.
SYMPTOMS: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


class Tagged(NamedTuple):
    """A tag of a cell, such as `field-24` or, as a key of the index, `24`; the cell's lesson, heading, id and text."""

    key: str
    lesson: str
    heading: str
    id: str
    text: str = ""

    @property
    def target(self) -> str:
        """Where a link to the cell leads. JupyterLab scrolls to it if the lesson is laid out already."""
        return f"{self.lesson}.ipynb#cell-id={self.id}"


def index(cells: Iterable[Tagged]) -> str:
    """Return the index as Markdown: under each heading a list of symptoms, each with a link to its answers.

    Args:
        cells: those that answer a symptom, in the order of the lessons.

    Raises:
        LookupError: for a cell whose symptom has no words in SYMPTOMS, and for words that no cell answers.
    """
    links: dict[str, dict[str, str]] = {key: {} for group in SYMPTOMS.values() for key in group}
    for cell in cells:
        if cell.key not in links:
            raise LookupError(f"field-{cell.key} has no words: add it to hooklab/course/lesson00/symptoms.toml")
        links[cell.key].setdefault(cell.lesson + cell.heading, link(cell))  # the first cell under a heading
    if unanswered := [f"field-{key}" for key, found in links.items() if not found]:
        raise LookupError(f"no cell answers these symptoms: {', '.join(unanswered)}")
    parts = []
    for heading, group in SYMPTOMS.items():
        lines = [f"- {words} → {', '.join(links[key].values())}" for key, words in group.items()]
        parts.append("\n".join([f"### {heading}", "", *lines]))
    return "\n\n".join(parts)


def link(cell: Tagged) -> str:
    """Return a link to a cell, as Markdown: the lesson, and the heading that the cell is under."""
    number = int(cell.lesson.split("_", 1)[0])
    return f"[lesson {number}, {cell.heading}]({cell.target})"
