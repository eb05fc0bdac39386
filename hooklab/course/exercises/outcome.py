"""Outcome: what a check or a prediction found, as plain text and as a small HTML view, and how that is shown."""

from __future__ import annotations

import html
import re
import sys
from dataclasses import dataclass
from typing import Any, Literal

from hooklab.course import words

State = Literal["correct", "not yet", "not attempted", "right", "not right", "no guess", "not scored"]

_GOOD: list[State] = ["correct", "right"]
_OPEN: list[State] = ["not attempted", "no guess", "not scored"]
_NOT: list[State] = ["not yet", "not right"]
MARK: dict[State, str] = dict.fromkeys(_GOOD, "✓") | dict.fromkeys(_NOT, "✗") | dict.fromkeys(_OPEN, "○")
# Okabe-Ito green and orange, and grey. Never red: a first "not yet" is a normal step, not an alarm.
COLOUR: dict[State, str] = (
    dict.fromkeys(_GOOD, "#009E73") | dict.fromkeys(_NOT, "#E69F00") | dict.fromkeys(_OPEN, "#8A8A8A")
)
_CELL = "text-align:left;vertical-align:top"


@dataclass(frozen=True)
class Outcome:
    """What a check found, or what became of a guess.

    `summary` is the first line's text; `details` are (label, text) pairs, such as ("expected", "2 entries"). `folded`
    are pairs that a notebook shows only on a click, and plain text not at all.
    """

    id: str
    state: State
    summary: str
    details: tuple[tuple[str, str], ...] = ()
    folded: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        lines = [f"{MARK[self.state]} {self.id} {words.OUTCOMES[self.state]}: {self.summary}"]
        lines += [f"    {label:<9} {text}" for label, text in self.details]
        return "\n".join(lines)

    def as_html(self) -> str:
        """Return the outcome as a small box whose text colour follows JupyterLab's theme."""
        table = _table(self.details)
        if self.folded:
            table += f"<details><summary>{words.WITHOUT_GUESS}</summary>{_table(self.folded)}</details>"
        colour, word = COLOUR[self.state], words.OUTCOMES[self.state]
        return (
            f"<div style='border-left:4px solid {colour};padding:.3em .8em;margin:.2em 0;"
            "color:var(--jp-content-font-color1,inherit)'>"
            f"<span style='color:{colour};font-weight:600'>{MARK[self.state]} {html.escape(self.id)} {word}"
            f"</span> &nbsp;{marked_up(self.summary)}{table}</div>"
        )


def _table(pairs: tuple[tuple[str, str], ...]) -> str:
    rows = "".join(
        f"<tr><td style='{_CELL};padding:0 1em 0 0;opacity:.7'>{html.escape(label)}</td>"
        f"<td style='{_CELL};padding:0;white-space:pre-wrap'>{marked_up(text)}</td></tr>"
        for label, text in pairs
    )
    return f"<table style='margin:.3em 0 0 0;border:0;background:transparent'>{rows}</table>" if rows else ""


def marked_up(text: str) -> str:
    """Escape a text and show what stands between backquotes as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def in_notebook() -> bool:
    """Whether IPython runs here; it is not imported to find out."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


def show(text: str, as_html: str, **stored: Any) -> None:
    """Display in a notebook, with `stored` in the output's metadata under "hooklab"; print anywhere else."""
    if in_notebook():
        from IPython.display import display

        metadata = {"hooklab": stored} if stored else {}
        display({"text/plain": text, "text/html": as_html}, raw=True, metadata=metadata)  # type: ignore[no-untyped-call]
    else:
        print(text)
