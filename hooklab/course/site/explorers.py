"""Explorers without a kernel: every position of a grid is drawn once, and the page's script shows one of them.

An explorer's picture is a function of its controls alone. Pictures share most of what is in them, so a picture is kept
as the numbers of the parts that it is made of, and each part once. Drawing takes most of a build's time, so what is
drawn is kept in .cache until a source that it depends on changes.
"""

from __future__ import annotations

import hashlib
import html
import importlib.metadata
import io
import itertools
import json
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG

COURSE = Path(__file__).parents[1]
ENDS_ONLY = False  # tests draw the first and the last value of each control that has no entry in GRIDS
# The values to draw, for sliders that grow, and for controls with too many: drawing all positions takes minutes.
GRIDS: dict[str, dict[str, Sequence[Any]]] = {
    "backward_steps": {"step": range(8)},
    "border": {"step": range(9)},
    "call_order": {"everywhere": [False], "backward_pre": [False]},
    "feature_maps": {"number": range(0, 40, 20)},
    "going_wrong": {"step": [0, 38]},
    "heads_at_work": {"number": [0], "position": range(4, 23, 9)},
    "mixing": {"first": [0], "second": [7], "lam": [0, 0.25, 0.5, 0.75, 1]},
    "moving_call": {"backward": [False]},
    "what_is_owed": {"step": range(1, 7)},
    "what_it_looks_at": {"number": range(0, 12, 6)},
}
TAG = '<figure data-explorer="{}"></figure>'  # stands for an explorer while Sphinx makes the pages
Wanted = tuple[int, str]  # a lesson's number, and the name of the function that returns the explorer


def start(wanted: list[Wanted], root: Path) -> Callable[[Path], None]:
    """Begin to draw explorers at every position; the .cache of `root` keeps what was drawn.

    Returns what waits for them, and puts them in the place of TAG into the pages of a built site: a first picture, and
    a script with all positions.
    """
    kept = {one: root / ".cache" / "site" / f"{one[1]}-{_digest(*one)}.json" for one in wanted}
    missing = [one for one, file in reversed(kept.items()) if not file.is_file()]  # the quickest ones last
    pool = ProcessPoolExecutor(min(4, os.cpu_count() or 1), mp_context=get_context("spawn"))
    texts = pool.map(_draw, missing, [ENDS_ONLY] * len(missing))

    def finish(site: Path) -> None:
        for one, text in zip(missing, texts, strict=True):
            kept[one].parent.mkdir(parents=True, exist_ok=True)
            kept[one].write_text(text, encoding="utf-8")
        pool.shutdown(wait=False)  # the processes need a second to end
        (site / "_static" / "explorers").mkdir(parents=True)
        figures = {TAG.format(one[1]): _figure(one[1], file, site / "_static/explorers") for one, file in kept.items()}
        for page in site.glob("*.html"):
            text = page.read_text(encoding="utf-8")
            page.write_text(re.sub(TAG.format(r"\w+"), lambda tag: figures[tag[0]], text), encoding="utf-8")

    return finish


def _figure(name: str, kept: Path, folder: Path) -> str:
    """Write an explorer's first picture and its script, and return its HTML."""
    drawn = json.loads(kept.read_text(encoding="utf-8"))
    sentence, *picture = (drawn["parts"][part] for part in drawn["shown"][drawn["start"]])
    shown = json.dumps({key: drawn[key] for key in ("parts", "shown")}, ensure_ascii=False, separators=(",", ":"))
    (folder / f"{name}.js").write_text(f'hooklabExplorers["{name}"]={shown};\n', encoding="utf-8")
    (folder / f"{name}.svg").write_text("".join(picture), encoding="utf-8")
    return (
        f'<figure class="explorer" data-explorer="{name}"><p>{html.escape(drawn["intro"])}</p>'
        f'<div class="controls" hidden>{drawn["controls"]}</div>'
        f'<div class="picture" tabindex="0" style="--width: {drawn["width"]}px">'
        f'<img src="_static/explorers/{name}.svg" width="{drawn["width"]}" height="{drawn["height"]}" '
        f'alt="{html.escape(sentence)}"></div><figcaption aria-live="polite">{html.escape(sentence)}</figcaption>'
        f'<script src="_static/explorers/{name}.js" defer></script></figure>'
    )


def _digest(lesson: int, name: str) -> str:
    """Return what changes when another source, or another version of a package, would draw something else."""
    sources = ["*.py", f"lesson{lesson:02d}/*.py", "../*.py", "../_shared/*.py", "../mini/*.py"]
    files = [Path(__file__), *(file for one in sources for file in sorted(COURSE.glob(one)))]
    versions = [importlib.metadata.version(package) for package in ("torch", "matplotlib", "scikit-learn")]
    other = str((versions, ENDS_ONLY)).encode()
    return hashlib.sha256(b"".join(file.read_bytes() for file in files) + other).hexdigest()[:16]


def _draw(wanted: Wanted, ends_only: bool) -> str:
    """Draw an explorer at every position of its grid, or of the ends of it, and return all that as JSON."""
    import torch

    torch.set_num_threads(1)
    # Matplotlib takes long to find a place for a title; here it is given.
    matplotlib.rcParams.update({"svg.hashsalt": "hooklab", "svg.fonttype": "path", "axes.titley": 1.0})
    lesson, name = wanted
    place = "one_call" if name == "moving_call" else f"lesson{lesson:02d}.explorer"
    module = importlib.import_module(f"hooklab.course.{place}")
    explorer, grid = getattr(module, name)(), GRIDS.get(name, {})
    values = {key: _values(one, grid.get(key), ends_only) for key, one in explorer.controls.items()}
    parts: dict[str, int] = {}
    drawn: dict[str, list[str]] = {}
    shown = []
    for position in itertools.product(*values.values()):
        chosen = dict(zip(values, position, strict=True))
        seen = repr(explorer.shows(**chosen))
        if seen not in drawn:
            figure = explorer.draw(**chosen)
            drawn[seen] = _parts(figure)
        shown.append([parts.setdefault(part, len(parts)) for part in (explorer.say(**chosen), *drawn[seen])])
    start, controls = 0, ""
    for key, one in explorer.controls.items():
        first = one.value  # or the nearest one that is drawn
        if first not in values[key]:
            first = values[key][0] if _options(one) else min(values[key], key=lambda value: abs(value - one.value))
        start = start * len(values[key]) + values[key].index(first)
        controls += _control(one, values[key], first) if len(values[key]) > 1 else ""
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    said = {"intro": explorer.intro, "controls": controls, "width": width, "height": height, "start": start}
    return json.dumps(said | {"parts": list(parts), "shown": shown}, ensure_ascii=False)


def _options(control: Any) -> dict[Any, str]:
    """Return value -> label of a control with options, and nothing for the others."""
    options = (one if isinstance(one, tuple) else (one, one) for one in getattr(control, "options", ()))
    return {value: html.escape(str(label)) for label, value in options}


def _values(control: Any, chosen: Sequence[Any] | None, ends_only: bool) -> list[Any]:
    """Return the values that a control takes on the page."""
    if chosen:
        return list(chosen)
    is_box = isinstance(control.value, bool)
    every = list(_options(control) or ([False, True] if is_box else range(control.min, control.max + 1)))
    return list(dict.fromkeys((every[0], every[-1]))) if ends_only else every


def _control(control: Any, values: list[Any], first: Any) -> str:
    """Return a control as HTML; its `data-count` is the number of its values, from which the script gets a position."""
    label, count = html.escape(control.description), f'data-count="{len(values)}"'
    if options := _options(control):
        inside = "".join(f"<option{' selected' * (one == first)}>{options[one]}</option>" for one in values)
        return f"<label>{label} <select {count}>{inside}</select></label>"
    if isinstance(first, bool):
        return f'<label><input type="checkbox" {count}{" checked" * first}> {label}</label>'
    spread = f'min="{values[0]:g}" max="{values[-1]:g}" step="{values[1] - values[0]:g}" value="{first:g}"'
    shown = f'<label>{label} <input type="range" {count} {spread}> <output>{first:g}</output></label>'
    return shown + '<button type="button">▶ play</button>' * (label == "step")


def _parts(figure: Any) -> list[str]:
    """Return a picture as SVG, split into parts that other pictures have too; `savefig` draws most figures twice."""
    for image in (one for axes in figure.axes for one in axes.images):
        image.set_interpolation("none")  # each pixel as a pixel of its own, at any size
    file = io.StringIO()
    FigureCanvasSVG(figure).print_svg(file, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return re.split(r"(?=<g )", re.sub(r'<g id="\w+"', "<g", re.sub(r"\n\s*", "\n", file.getvalue())))
