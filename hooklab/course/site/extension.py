"""What Sphinx is told besides its settings: formulas as MathML, alternative texts, symptoms to search, link cards."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx import addnodes
from sphinx.application import Sphinx

from hooklab.course.site.pages import Page

DESCRIPTION = "A course on PyTorch hooks: guess what a piece of code will do, run it, and write your own hooks."


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the formulas: MathML needs no script, and every browser draws it."""
    app.connect("autodoc-process-docstring", _plain_headings, priority=400)  # before napoleon reads them
    app.add_html_math_renderer("mathml", (_formula, _done), (_formula_block, _done))
    return {"parallel_read_safe": True}


def connect(app: Sphinx, pages: Mapping[str, Page], address: str) -> None:
    """Let a site that is being built know its pages; `address` is where it will be, or "" for a folder."""

    def finish(app: Sphinx, document: nodes.document) -> None:
        own = pages.get(app.env.docname)
        for image in document.findall(nodes.image):
            digest = PurePosixPath(image["uri"]).stem
            image["alt"] = (own.alts.get(digest) if own else None) or image.get("alt", "")
        document.insert(0, addnodes.index(entries=_entries(pages, app.env.docname)))

    def card(app: Sphinx, name: str, template: str, context: dict[str, Any], document: Any) -> None:
        title = re.sub("<[^>]+>", "", context.get("title", ""))
        picture = f"{address}_static/cards/{name if name in pages and pages[name].picture else 'index'}.png"
        tags = {"og:title": title, "og:description": DESCRIPTION, "og:type": "article", "og:image": picture}
        lines = [f'<meta property="{key}" content="{html.escape(value)}">' for key, value in tags.items()]
        lines.append(f'<meta name="description" content="{html.escape(DESCRIPTION)}">')
        context["metatags"] = context.get("metatags", "") + "\n".join(lines)

    app.connect("doctree-read", finish)
    app.connect("html-page-context", card)


def _entries(pages: Mapping[str, Page], name: str) -> list[tuple[str, str, str, str, None]]:
    """Return the symptoms that a page answers, as index entries: the search finds these before everything else."""
    said = [(words, answers) for one in pages.values() for words, answers in one.symptoms.items()]
    found = [(words.replace(";", ","), where) for words, answers in said for page, where in answers if page == name]
    return [("single", words, where, "main", None) for words, where in found]


def _plain_headings(app: Sphinx, what: str, name: str, one: object, options: object, lines: list[str]) -> None:
    """Turn "Raises (when made):" into a heading that napoleon knows."""
    lines[:] = [re.sub(r"^(Raises) \(.*\):$", r"\1:", line) for line in lines]


def _formula(translator: Any, node: nodes.Element) -> None:
    translator.body.append(_mathml(node.astext()))
    raise nodes.SkipNode


def _formula_block(translator: Any, node: nodes.Element) -> None:
    translator.body.append(_mathml(node.astext(), as_block=True))
    raise nodes.SkipNode


def _mathml(tex: str, as_block: bool = False) -> str:
    """Return a formula; docutils reads `\\tfrac12` as a fraction of 12, TeX as one of 1 and 2."""
    return str(tex2mathml(re.sub(r"frac(\d)(\d)", r"frac{\1}{\2}", tex), as_block))


def _done(translator: Any, node: nodes.Element) -> None:
    """Nothing is left to close."""
