"""Pages, from the templates in `templates/`: they escape everything from students, and a page needs no other file.

A student's page has what each check said, beside the lines that it is about: no solution, no other student.
"""

from __future__ import annotations

import functools
import io
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

# Signs say as much as colours: a page may be printed in grey, or its reader may not distinguish red and green.
STATES = ("correct", "not yet", "not attempted", "tampered", "stopped", "not handed in")
MARKS = dict(zip(STATES, "✓✗○⚠■–", strict=True))
_WHEN = (2020, 1, 1, 0, 0, 0)  # the same pages give the same zip


def page(template: str, **values: Any) -> str:
    """Return a page from a template of this name and these values."""
    return _templates().get_template(template).render(values, marks=MARKS)


def to_send_back(pages: Mapping[str, str], ways: Mapping[str, set[str]]) -> bytes:
    """Return a zip of the pages under the names that the platform has given, as it takes feedback back; b"" for none.

    `pages` has each student's page, `ways` the names of their folders or files on the platform.
    """
    content, names = io.BytesIO(), {}
    for student, text in pages.items():
        for way in ways.get(student, ()):
            file, _, kind = way.rpartition(".")
            names[f"{file}.html" if file and kind.isalnum() else f"{way}/feedback.html"] = text
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sorted(names.items()):
            archive.writestr(zipfile.ZipInfo(name, _WHEN), text, zipfile.ZIP_DEFLATED)
    return content.getvalue() if names else b""


def file_names(students: Sequence[str]) -> dict[str, str]:
    """Return a file name for each student's page: the name, made safe, and a number where two are alike.

    Example:
        >>> file_names(["Ana Li", "../ana li"])
        {'Ana Li': 'Ana Li.html', '../ana li': 'ana li 2.html'}
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for student in students:
        safe = "".join(one if one.isalnum() or one in " -()" else "_" for one in student)[:60].strip(" _-") or "student"
        name, number = safe, 1
        while name.casefold() in taken:
            name, number = f"{safe} {number + 1}", number + 1
        taken.add(name.casefold())
        names[student] = f"{name}.html"
    return names


def with_code(text: str) -> Markup:
    """Return a text as HTML, with what stands between backquotes, or is marked so already, as code."""
    text = _shown(text.replace("<code>", "`").replace("</code>", "`"))
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


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
    found.filters |= {"code": with_code, "url": quote}
    return found
