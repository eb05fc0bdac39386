"""Notebooks as pages: what needs a kernel in JupyterLab is replaced by HTML that the site's script brings to life.

The stored notebooks are read, never run. A prediction becomes buttons, an explorer the pictures of its positions, a
check the way to JupyterLab; everything else stays as it is.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import html
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from hooklab.course.exercises.predict import find
from hooklab.course.site.guesses import meaning, question, slug

START = "00_start_here"
NOTEBOOKS = "notebooks"  # the folder of the site with the lessons to download
_LINK = re.compile(r"\]\((\d\d_\w+)\.ipynb(#[^)\s]*)?\)")
_WITHIN = re.compile(r"\]\(#[A-Z][\w-]*\)")  # a heading on the same page: Sphinx writes its id in lower case
_HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.M)
_DROPPED = {"predict", "progress", "check"}

Cell = dict[str, Any]


@dataclass
class Page:
    """A page of the site.

    Attributes:
        name: its file name without the ending.
        title: what links call it.
        notebook: the notebook that Sphinx gets.
        alts: the hash of a picture -> the text for readers who do not see it.
        symptoms: what people say -> (page, anchor) of each answer; the start page has them.
        picture: the first figure of the page, a PNG, for links to it.
    """

    name: str
    title: str
    notebook: dict[str, Any]
    alts: dict[str, str] = field(default_factory=dict)
    symptoms: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    picture: bytes = b""


def page(lesson: Path, explorer: Callable[[str], str], solutions: Path | None = None) -> Page:
    """Return the page of a lesson.

    Args:
        lesson: the stored notebook.
        explorer: the name of an explorer's function -> its HTML.
        solutions: the folder with the solved notebooks, if solutions are to be shown.
    """
    cells = _read(lesson)
    solved = {cell["id"]: cell["source"] for cell in _read(solutions / lesson.name)} if solutions else {}
    made = Page(name_of(lesson.stem), plain(_HEADING.findall(cells[0]["source"])[0]), {})
    shown: list[Cell] = []
    asked = ""  # the prediction whose answer must not be in sight yet
    for place, cell in enumerate(cells):
        shown.append(_markdown(f'<span class="anchor" id="cell-id={cell["id"]}"></span>'))
        if cell["cell_type"] == "markdown":
            made.symptoms |= symptoms_in(cell["source"])
            shown.append(_markdown(_linked(cell["source"])))
            continue
        tags, calls = set(cell["metadata"].get("tags", [])), _calls(cell["source"])
        if "predict" in calls:
            asked = calls["predict"]
            shown.append(_markdown(question(find(asked))))
        elif "explorer" in tags:
            shown.append(_markdown(explorer(_last_call(cell["source"]))))
        elif "check" in calls:
            if cell["id"].replace("check", "solution", 1) in solved:
                answer = solved[cell["id"].replace("check", "solution", 1)]
                shown.append(_source(answer, "hide-input", "answer", folded_as="A solution"))
            shown.append(_markdown(_how_to_check(lesson.name, calls["check"])))
        elif "progress" not in calls:
            _note_pictures(made, cell, cells[place + 1 :])
            shown += _code(cell, tags, asked)
            asked = "" if "reveal" in calls else asked
    if made.name != "index":
        shown.insert(2, _markdown(_how_to_open(lesson.name)))
    numbered = [cell | {"id": f"cell-{place}"} for place, cell in enumerate(shown)]
    made.notebook = {"cells": numbered, "metadata": _METADATA, "nbformat": 4, "nbformat_minor": 5}
    return made


def explorers_in(lessons: list[Path]) -> list[tuple[int, str]]:
    """Return the explorers of some lessons: (lesson's number, name of the function that returns it)."""
    cells = [(int(lesson.name[:2]), cell) for lesson in lessons for cell in _read(lesson)]
    return [(n, _last_call(cell["source"])) for n, cell in cells if "explorer" in cell["metadata"].get("tags", [])]


def write(pages: list[Page], source: Path) -> None:
    """Write the pages for Sphinx to read, and the pictures that links to them show."""
    cards = source / "static" / "cards"
    cards.mkdir(parents=True)
    start = next(one for one in pages if one.name == "index")
    start.notebook["cells"].append(_markdown(_contents(pages, start)) | {"id": "contents"})
    for one in pages:
        text = json.dumps(one.notebook, ensure_ascii=False)
        (source / f"{one.name}.ipynb").write_text(text, encoding="utf-8")
        if one.picture:
            (cards / f"{one.name}.png").write_bytes(one.picture)


def _contents(pages: list[Page], start: Page) -> str:
    """Return the site's table of contents, with the short names that the route on the start page has."""
    route = " ".join(cell["source"] for cell in start.notebook["cells"])
    short = {name: plain(title) for title, name in re.findall(r"\| \[([^\]]+)\]\((\d\d_\w+)\.html\)", route)}
    lessons = [
        f"{int(one.name[:2])} · {short.get(one.name, one.title)} <{one.name}>" for one in pages if one is not start
    ]
    directive = "```{{toctree}}\n:hidden:\n:caption: {}\n\n{}\n```"
    return "\n\n".join(
        [directive.format("Lessons", "\n".join(lessons)), directive.format("Look it up", "The library <reference>")]
    )


def name_of(stem: str) -> str:
    """Return the name of a lesson's page: the start page is the site's index."""
    return "index" if stem == START else stem


def plain(text: str) -> str:
    """Return a line of Markdown without its marks."""
    return re.sub(r"[`*]", "", text)


def symptoms_in(text: str) -> dict[str, list[tuple[str, str]]]:
    """Return the entries of the index of symptoms in a Markdown text: what people say -> (page, anchor) of each answer.

    Example:
        >>> symptoms_in("- `y.grad` is None → [lesson 1](01_intermediate_grad.ipynb#cell-id=ab)")
        {'y.grad is None': [('01_intermediate_grad', 'cell-id=ab')]}
    """
    lines = [line for line in text.split("\n") if line.startswith("- ") and "→" in line]
    said = {plain(line[2:].split("→")[0]).strip(): line for line in lines}
    return {words: [(name_of(one), unquote(where[1:])) for one, where in _LINK.findall(said[words])] for words in said}


# --- a cell

_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def _read(path: Path) -> list[Cell]:
    cells: list[Cell] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell | {"source": "".join(cell["source"])} for cell in cells]


def _markdown(text: str) -> Cell:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def _source(text: str, *tags: str, folded_as: str = "", outputs: list[Any] | None = None) -> Cell:
    """Return a code cell; `folded_as` is what stands on the part of it that the tags fold."""
    named = {"code_prompt_show": folded_as, "code_prompt_hide": folded_as}
    metadata = {"tags": list(tags), "mystnb": named} if folded_as else {"tags": list(tags)}
    bare = {"cell_type": "code", "execution_count": None, "source": text}
    return bare | {"metadata": metadata, "outputs": outputs or []}


def _linked(text: str) -> str:
    """Return a Markdown text whose links to lessons lead to their pages."""
    text = _LINK.sub(lambda link: f"]({name_of(link[1])}.html{link[2] or ''})", text)
    return _WITHIN.sub(lambda link: link[0].lower(), text)


def _calls(source: str) -> dict[str, str]:
    """Return the calls that are statements of their own: name -> first argument, if it is a text."""
    calls = [one.value for one in ast.parse(source).body if isinstance(one, ast.Expr)]
    named = [call for call in calls if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)]
    return {ast.unparse(one.func): str(getattr(one.args[0], "value", "")) if one.args else "" for one in named}


def _last_call(source: str) -> str:
    """Return the name of the function that a cell's last line calls: `explorer.border()` -> "border"."""
    last = ast.parse(source).body[-1]
    assert isinstance(last, ast.Expr), source
    assert isinstance(last.value, ast.Call), source
    return ast.unparse(last.value.func).split(".")[-1]


def _code(cell: Cell, tags: set[str], asked: str) -> Iterator[Cell]:
    """Yield what a code cell shows: code and stored outputs; what answers a question waits for the guess."""
    source, outputs = cell["source"], cell["outputs"]
    told = [one for one in ast.parse(source).body if ast.unparse(one).startswith("reveal(")]
    if told:
        stored = next(one for one in outputs if "text/html" in one.get("data", {}))
        outputs = [one for one in outputs if one is not stored]
        lines = source.split("\n")
        del lines[told[0].lineno - 1 : told[0].end_lineno]
        is_folded = cell["metadata"].get("jupyter", {}).get("source_hidden")
        source = "" if is_folded else "\n".join(lines).strip()
        right = stored["metadata"].get("hooklab", {}).get("right")
        yield _markdown(meaning(find(asked), right))
    if "setup" in tags:
        yield _source(source, "hide-input", folded_as="The imports", outputs=outputs)
    elif asked and (source or outputs):
        yield _source(source, "hide-output", f"after-{slug(asked)}", folded_as="What came out", outputs=outputs)
    elif source or outputs:
        yield _source(source, outputs=outputs)


def _how_to_check(file: str, id: str) -> str:
    return (
        f'<p class="how">To check your answer to {html.escape(id)}, run <code>python -m hooklab lab</code> in the '
        f'course\'s folder and open this lesson. (<a href="{NOTEBOOKS}/{file}" download>Download the notebook</a>)</p>'
    )


def _how_to_open(file: str) -> str:
    return (
        f'<p class="how">You can read, guess and explore on this page. To run the code and have your answers checked, '
        f'open this lesson in JupyterLab: <a href="{NOTEBOOKS}/{file}" download>download the notebook</a>.</p>'
    )


def _note_pictures(made: Page, cell: Cell, following: list[Cell]) -> None:
    """Note the alternative text of a cell's pictures: the stored one, what was printed above, or the text below."""
    printed, below = "", following[0]["source"] if following else ""
    seen = re.search(r"\*What to see:\*\s*(.+?)(?:\n\n|$)", below, re.S)
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            printed = "".join(output["text"]).strip()
        if "image/png" in output.get("data", {}):
            data = base64.b64decode("".join(output["data"]["image/png"]))
            alt = output["metadata"].get("image/png", {}).get("alt") or printed or (seen[1] if seen else "")
            made.alts[hashlib.sha256(data).hexdigest()] = " ".join(plain(alt).split()) or f"a figure of {made.title}"
            made.picture = made.picture or data
