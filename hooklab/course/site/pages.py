"""Notebooks as pages: what needs a kernel in JupyterLab is replaced by HTML that the site's script brings to life.

The stored notebooks are read, never run. A prediction becomes buttons, an explorer the pictures of its positions, a
check the way to JupyterLab; everything else stays as it is.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from hooklab.course.exercises.predict import find
from hooklab.course.site import explorers
from hooklab.course.site.guesses import meaning, question, slug

START = "00_start_here"
NOTEBOOKS = "notebooks"  # the folder of the site with the lessons to download
_LINK = re.compile(r"\]\((\d\d_\w+)\.ipynb(#[^)\s]*)?\)")
_WITHIN = re.compile(r"\]\(#[A-Z][\w-]*\)")  # a heading on the same page: Sphinx writes its id in lower case
_CALL = re.compile(r'^(predict|reveal|check|progress)\((?:"([\w.]+)")?', re.M)
_SEEN = re.compile(r"\*What to see:\*\s*(.+?)(?=\n\n|$)", re.S)
_LAST_CALL = re.compile(r"(\w+)\(\w*\)$")
_ROUTE = re.compile(r"^\| (\d+) \| \[([^\]]+)\]\((\w+)\.ipynb\)", re.M)
_CONTENTS = "```{{toctree}}\n:hidden:\n:caption: {}\n\n{}\n```"

Cell = dict[str, Any]


def write(root: Path, source: Path, with_solutions: bool = False) -> Callable[[Path], None]:
    """Write the pages of the course in `root` for Sphinx to read, and return what puts the explorers into its site."""
    lessons = sorted((root / "lessons").glob("*.ipynb"))
    cells = {lesson.stem: _read(lesson) for lesson in lessons}
    wanted = [
        (int(stem[:2]), explorer_of(cell)) for stem, those in cells.items() for cell in those if _is("explorer", cell)
    ]
    finish = explorers.start(wanted, root)
    start = "\n".join(cell["source"] for cell in cells[START])
    said = symptoms_in(start)
    for folder in (source / "_static" / "cards", source / "extra" / NOTEBOOKS):
        folder.mkdir(parents=True)
    for lesson in lessons:
        shutil.copy(lesson, source / "extra" / NOTEBOOKS)
        name, solved = name_of(lesson.stem), _read(root / "solutions" / lesson.name) if with_solutions else []
        shown = page(lesson.name, cells[lesson.stem], said, solved)
        metadata: dict[str, Any] = {"language_info": {"name": "python"}}
        if pictures := [one for cell in cells[lesson.stem] for one in _pictures(cell)]:
            (source / "_static" / "cards" / f"{name}.png").write_bytes(pictures[0])
            metadata["card"] = name
        if name == "index":
            route = "\n".join(f"{number} · {_plain(title)} <{stem}>" for number, title, stem in _ROUTE.findall(start))
            shown.append(_markdown(_CONTENTS.format("Lessons", route)))
            shown.append(_markdown(_CONTENTS.format("Look it up", "The library <reference>")))
        numbered = [cell | {"id": f"cell-{place}"} for place, cell in enumerate(shown)]
        notebook = {"cells": numbered, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
        (source / f"{name}.ipynb").write_text(json.dumps(notebook, ensure_ascii=False), encoding="utf-8")
    return finish


def page(file: str, cells: list[Cell], said: Mapping[tuple[str, str], list[str]], solved: list[Cell]) -> list[Cell]:
    """Return the cells of the page of the notebook `file`.

    `said` leads from (page, anchor) to the symptoms that are answered there, which the search finds first. The cells in
    `solved` have the solutions to show, if any.
    """
    solutions = {cell["id"]: cell["source"] for cell in solved}
    name = name_of(file.removesuffix(".ipynb"))
    shown: list[Cell] = []
    asked, is_told = "", False  # the prediction whose answer must not be in sight yet
    for place, cell in enumerate(cells):
        anchor = f"cell-id={cell['id']}"
        symptoms = [f"```{{index}} ! single: {one}\n```" for one in said.get((name, anchor), [])]
        shown.append(_markdown("\n".join([f'<span class="anchor" id="{anchor}"></span>\n', *symptoms])))
        call, id = found.groups() if (found := _CALL.search(cell["source"])) else ("", "")
        if cell["cell_type"] == "markdown":
            text = cell["source"]
            if asked and is_told:  # it is about a picture that is hidden until then
                fold = rf'<details class="after-{slug(asked)}"><summary>In words</summary>\n\n\g<0>\n\n</details>'
                text, asked = _SEEN.sub(fold, text), ""
            shown.append(_markdown(_linked(text)))
        elif _is("explorer", cell):
            shown.append(_markdown(explorers.TAG.format(explorer_of(cell))))
        elif call == "predict":
            asked, is_told = id, False
            shown.append(_markdown(question(find(id))))
        elif call == "reveal":
            shown.append(_markdown(meaning(find(id), cell["outputs"][0]["metadata"]["hooklab"]["right"])))
            is_told = True  # a picture may follow
        elif call == "check":
            if answer := solutions.get(cell["id"].replace("check", "solution", 1)):
                shown.append(_code(cell | {"source": answer, "outputs": []}, "A solution", "hide-input", "answer"))
            shown.append(_markdown(_HOW_TO_CHECK.format(id=id, file=f"{NOTEBOOKS}/{file}")))
        elif _is("setup", cell):
            shown.append(_code(cell, "The imports", "hide-input"))
        elif call != "progress":
            hidden = ["hide-output", f"after-{slug(asked)}"] if asked else []
            below = next((one["source"] for one in cells[place + 1 :] if one["cell_type"] == "markdown"), "")
            shown.append(_code(cell, "What came out", *hidden, alt=_alt(cell, below)))
    shown.insert(2, _markdown(_HOW_TO_OPEN.format(file=f"{NOTEBOOKS}/{file}")))
    return shown


def explorer_of(cell: Cell) -> str:
    """Return the name of the function that a cell's last line calls: `explorer.border()` -> "border"."""
    return str(_LAST_CALL.findall(cell["source"])[0])


def symptoms_in(text: str) -> dict[tuple[str, str], list[str]]:
    """Return the index of symptoms in a Markdown text: (page, anchor) -> what people say who find the answer there."""
    said = defaultdict(list)
    for words, answers in re.findall(r"^- (.+?) → (.+)$", text, re.M):
        for stem, anchor in _LINK.findall(answers):
            said[name_of(stem), unquote(anchor[1:])].append(_plain(words).replace(";", ","))
    return dict(said)


def name_of(stem: str) -> str:
    """Return the name of a lesson's page: the start page is the site's index."""
    return "index" if stem == START else stem


# --- a cell

_HOW_TO_CHECK = (
    '<p class="how">To check your answer to {id}, run <code>python -m hooklab lab</code> in the course\'s folder '
    'and open this lesson. (<a href="{file}" download>Download the notebook</a>)</p>'
)
_HOW_TO_OPEN = (
    '<p class="how">You can read, guess and explore on this page. To run the code and have your answers checked, open '
    'this lesson in JupyterLab: <a href="{file}" download>download the notebook</a>.</p>'
)


def _read(path: Path) -> list[Cell]:
    cells: list[Cell] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell | {"source": "".join(cell["source"])} for cell in cells]


def _is(tag: str, cell: Cell) -> bool:
    return tag in cell["metadata"].get("tags", [])


def _plain(text: str) -> str:
    """Return a line of Markdown without its marks."""
    return re.sub(r"[`*]", "", text)


def _linked(text: str) -> str:
    """Return a Markdown text whose links to lessons lead to their pages."""
    text = re.sub(r"(?<![$`])\$([^$`\n]+)\$([,.;:])", r"$\1\2$", text)  # no line begins with the comma after a formula
    text = _LINK.sub(lambda link: f"]({name_of(link[1])}.html{link[2] or ''})", text)
    return _WITHIN.sub(lambda link: link[0].lower(), text)


def _markdown(text: str) -> Cell:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def _code(cell: Cell, folded_as: str, *tags: str, alt: str = "") -> Cell:
    """Return a code cell; `folded_as` is the label of the part that the tags fold."""
    look = {"code_prompt_show": folded_as, "code_prompt_hide": folded_as, "image": {"alt": alt}}
    outputs = cell["outputs"]
    if "hide-output" in tags and outputs and "text" in outputs[0]:
        text = "".join(outputs[0]["text"]).removeprefix(f"{folded_as}:\n")  # the label says so already
        outputs = [outputs[0] | {"text": text}, *outputs[1:]] if text else outputs[1:]
    return cell | {"metadata": {"tags": tags, "mystnb": look}, "execution_count": None, "outputs": outputs}


def _pictures(cell: Cell) -> list[bytes]:
    found = [one["data"]["image/png"] for one in cell.get("outputs", []) if "image/png" in one.get("data", {})]
    return [base64.b64decode("".join(one)) for one in found]


def _alt(cell: Cell, below: str) -> str:
    """Return the alternative text of a cell's pictures: the stored one, the text below, or what was printed."""
    stored = [one.get("metadata", {}).get("image/png", {}).get("alt", "") for one in cell["outputs"]]
    printed = ["".join(one.get("text", "")) for one in cell["outputs"]]
    seen = _SEEN.findall(below)
    texts = (" ".join(_plain(" ".join(those)).split()) for those in (stored, seen, printed))
    return next((text for text in texts if text), "a figure: the text around it says what it shows")
