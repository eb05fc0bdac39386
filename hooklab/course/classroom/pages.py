"""Pages, from the templates in `templates/`: they escape everything from students, and a page needs no other file."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from hooklab.course.classroom.verdicts import STOPPED, Verdict

# Signs say as much as colours: a page may be printed in grey, or its reader may not distinguish red and green.
STATES = ("correct", "not yet", "not attempted", "tampered", "stopped", "not handed in")
MARKS = dict(zip(STATES, "✓✗○⚠■–", strict=True))


def page(template: str, **values: Any) -> str:
    """Return a page from a template of this name and these values."""
    return _templates().get_template(template).render(values, marks=MARKS)


def with_code(text: str) -> Markup:
    """Return a text as HTML, with what stands between backquotes, or is marked so already, as code."""
    text = _shown(text.replace("<code>", "`").replace("</code>", "`"))
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def head(verdict: Verdict) -> str:
    """Return what a check says in its first line, without the outcome."""
    first = verdict.text.split("\n")[0]
    return first if verdict.state == STOPPED else first.split(": ", 1)[-1]


def details(verdict: Verdict) -> list[tuple[str, str]]:
    """Return the labelled lines of what a check said, such as ("expected", "a tensor")."""
    pairs = (line.strip().partition(" ") for line in verdict.text.split("\n")[1:])
    return [(label, text.strip()) for label, _, text in pairs]


def _shown(value: Any) -> Any:
    """Leave out characters that turn the direction of what follows, or cannot be written."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return "".join(one if one.isprintable() or one in "\n\t" else "�" for one in value)
    return value


@functools.cache
def _templates() -> Environment:
    options: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
    loader = FileSystemLoader(Path(__file__).with_name("templates"))
    found = Environment(loader=loader, autoescape=True, finalize=_shown, **options)
    found.filters |= {"code": with_code, "url": quote, "head": head, "details": details}
    return found
