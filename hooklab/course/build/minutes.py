"""How long a lesson takes: computed from what it shows, and held against its card and its row in the README.

    words outside folded blocks / 180 + 5 seconds for each line of code + 1 for a figure + 2 for an explorer
    + the minutes on the cards of its exercises

The formula comes from three cold readings of lessons 1 to 7 by readers who noted where the time went; each of them
agreed with it within a tenth. Everything up to the heading "If you want more", with the exercises ●○○ and ●●○, is the
first number; the exercises ●●● and what stands behind that heading are the second.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hooklab.course.build.cards import Exercise
from hooklab.course.build.reading import Cell
from hooklab.course.build.regions import stubbed

WORDS_A_MINUTE = 180
LINES_A_MINUTE = 12
HARDEST = 3  # ●●●
TOLERANCE = 0.2
MORE = "## If you want more"
_FOLDED = re.compile(r"<details>.*?</details>", re.S)
_ON_CARD = re.compile(r"\*\*Time\*\* (?P<core>\d+) minutes?(?:, and (?P<more>\d+)\b)?")
_IN_ROW = re.compile(r"\.ipynb\).*\| (?P<core>\d+)(?: \+ (?P<more>\d+))? \|")


@dataclass(frozen=True)
class Minutes:
    """The minutes of a lesson's core, and of all that can wait."""

    core: int
    more: int = 0

    def __str__(self) -> str:
        return f"{self.core} + {self.more}" if self.more else str(self.core)


def computed(cells: list[Cell], exercises: list[Exercise]) -> Minutes:
    """Return how long a lesson takes."""
    last = next((cell.number for cell in cells if is_more(cell)), len(cells) + 1)
    core = sum(_minutes(cell) for cell in cells if cell.number < last)
    more = sum(_minutes(cell) for cell in cells if cell.number >= last)
    for one in exercises:
        if one.points == HARDEST or one.card.number >= last:
            more += one.minutes
        else:
            core += one.minutes
    return Minutes(round(core), round(more))


def is_more(cell: Cell) -> bool:
    """Whether the part that can wait begins with this cell."""
    return cell.kind == "markdown" and MORE in cell.text.split("\n")


def card_fault(card: str, needed: Minutes) -> str | None:
    """Return what is wrong with the minutes on a lesson's card, its first cell."""
    return _fault(_ON_CARD.search(card), needed, "`**Time** 40 minutes` or `**Time** 40 minutes, and 10 for …`")


def row_fault(row: str, needed: Minutes) -> str | None:
    """Return what is wrong with the minutes in a lesson's row of the README."""
    return _fault(_IN_ROW.search(row), needed, "`| 40 |` or `| 40 + 10 |`")


def _fault(found: re.Match[str] | None, needed: Minutes, form: str) -> str | None:
    if found is None:
        return f"no minutes: write them as {form}; computed are {needed}"
    said = Minutes(int(found["core"]), int(found["more"] or 0))
    if _is_off(said.core, needed.core) or _is_off(said.more, needed.more):
        return f"{said} minutes, computed are {needed}"
    return None


def _is_off(said: int, needed: int) -> bool:
    return abs(said - needed) > max(1, TOLERANCE * needed)


def _minutes(cell: Cell) -> float:
    if cell.kind == "markdown":
        return len(_FOLDED.sub("", cell.text).split()) / WORDS_A_MINUTE
    lines = sum(bool(line.strip()) for line in stubbed(cell.text).split("\n"))
    return lines / LINES_A_MINUTE + ("figure" in cell.tags) + 2 * ("explorer" in cell.tags)
