"""Outcome: what a check found, as plain text and as a small HTML view."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import Literal

State = Literal["correct", "not yet", "not attempted"]

MARK: dict[State, str] = {"correct": "✓", "not yet": "✗", "not attempted": "○"}
# Okabe-Ito green and orange, and grey. Never red: a first "not yet" is a normal step, not an alarm.
COLOUR: dict[State, str] = {"correct": "#009E73", "not yet": "#E69F00", "not attempted": "#8A8A8A"}
_CELL = "text-align:left;vertical-align:top"


@dataclass(frozen=True)
class Outcome:
    """What a check found.

    `summary` is the first line's text; `details` are (label, text) pairs, such as ("expected", "2 entries").
    """

    id: str
    state: State
    summary: str
    details: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        lines = [f"{MARK[self.state]} {self.id} {self.state}: {self.summary}"]
        lines += [f"    {label:<9} {text}" for label, text in self.details]
        return "\n".join(lines)

    def as_html(self) -> str:
        """Return the outcome as a small box whose text colour follows JupyterLab's theme."""
        rows = "".join(
            f"<tr><td style='{_CELL};padding:0 1em 0 0;opacity:.7'>{html.escape(label)}</td>"
            f"<td style='{_CELL};padding:0;white-space:pre-wrap'>{_marked_up(text)}</td></tr>"
            for label, text in self.details
        )
        table = f"<table style='margin:.3em 0 0 0;border:0;background:transparent'>{rows}</table>" if rows else ""
        colour = COLOUR[self.state]
        return (
            f"<div style='border-left:4px solid {colour};padding:.3em .8em;margin:.2em 0;"
            "color:var(--jp-content-font-color1,inherit)'>"
            f"<span style='color:{colour};font-weight:600'>{MARK[self.state]} {html.escape(self.id)} {self.state}"
            f"</span> &nbsp;{_marked_up(self.summary)}{table}</div>"
        )


def _marked_up(text: str) -> str:
    """Escape a text and show what stands between backquotes as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))
