"""Explorers without a kernel: every position of a grid is drawn once, and the page's script shows one of them.

An explorer's picture is a function of its controls alone. Pictures share most of what is in them, so a picture is kept
as the numbers of the parts that it is made of, and each part once. Drawing takes most of a build's time, so what is
drawn is kept in .cache until a source that it depends on changes.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import html
import importlib.metadata
import io
import itertools
import json
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import matplotlib.text
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.textpath import TextToPath

COURSE = Path(__file__).parents[1]
ENDS_ONLY = False  # tests draw the first and the last value of each control, and one explorer at all its positions
HEAVIEST = 2_000_000  # characters of an explorer's script
# The values to draw, for sliders that grow, and for controls of which not all are: drawing all of them takes minutes.
GRIDS: dict[str, dict[str, Sequence[Any]]] = {
    "backward_steps": {"step": range(8)},
    "border": {"step": range(9)},
    "call_order": {"everywhere": [False], "backward_pre": [False]},
    "feature_maps": {"number": range(0, 40, 20)},
    "going_wrong": {"step": [0, 38]},
    "heads_at_work": {"number": [0], "position": range(4, 23, 9)},
    "mixing": {"first": [0], "second": [4, 7], "lam": [0, 0.25, 0.5, 0.75, 1]},
    "moving_call": {"backward": [False]},
    "what_is_owed": {"step": range(1, 7)},
    "what_it_looks_at": {"number": range(0, 12, 6)},
}
# Of these explorers many positions show the same picture: what it depends on, from the explorer's module and controls.
DEPENDS: dict[str, Callable[..., object]] = {
    "backward_steps": lambda lesson, step, **given: _moment(lesson.record_backward(**given), step),
    "border": lambda lesson, step, **given: (_moment(lesson.record_border(**given), step), min(step, 3)),
    "going_wrong": lambda _, rate, step, **given: (given, step, rate if step else 0),  # before the first update
    "what_it_looks_at": lambda _, method, layer, **given: (given, method, layer if method == "Grad-CAM" else ""),
}

Wanted = tuple[int, str]  # a lesson's number, and the name of the function that returns the explorer


def write(wanted: list[Wanted], folder: Path, root: Path) -> dict[str, str]:
    """Draw explorers at every position and return name -> HTML; what was drawn is kept in the .cache of `root`.

    In `folder` each gets a first picture, and a script with all positions, which a page loads when it is used.
    """
    folder.mkdir()
    kept = {one: root / ".cache" / "site" / f"{one[1]}-{_digest(*one)}.json" for one in wanted}
    missing = [one for one, file in reversed(kept.items()) if not file.is_file()]  # the quickest ones last
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        texts = pool.map(_draw, missing, map(_is_thin, missing))
        importlib.import_module("myst_nb")  # Sphinx needs it next, and importing takes seconds
        for one, text in zip(missing, texts, strict=True):
            kept[one].parent.mkdir(parents=True, exist_ok=True)
            kept[one].write_text(text, encoding="utf-8")
    pages = {}
    for (_, name), file in kept.items():
        drawn = json.loads(file.read_text(encoding="utf-8"))
        sentence, *picture = (drawn["parts"][part] for part in drawn["shown"][drawn["start"]])
        shown = json.dumps({key: drawn[key] for key in ("parts", "shown")}, ensure_ascii=False, separators=(",", ":"))
        if len(shown) > HEAVIEST:
            raise ValueError(f"{name} weighs {len(shown)} characters, more than {HEAVIEST}: give it a coarser grid")
        (folder / f"{name}.js").write_text(f'hooklabExplorers["{name}"]={shown};\n', encoding="utf-8")
        (folder / f"{name}.svg").write_text("".join(picture), encoding="utf-8")
        pages[name] = (
            f'<figure class="explorer" data-explorer="{name}"><p>{html.escape(drawn["intro"])}</p>'
            f'<div class="controls" hidden>{"".join(map(_control, drawn["controls"]))}</div>'
            f'<div class="picture" tabindex="0" style="--width: {drawn["width"]}px">'
            f'<img src="_static/explorers/{name}.svg" width="{drawn["width"]}" height="{drawn["height"]}" '
            f'alt="{html.escape(sentence)}"></div><figcaption aria-live="polite">{html.escape(sentence)}</figcaption>'
            "</figure>"
        )
    return pages


def _control(one: dict[str, Any]) -> str:
    """Return a control as HTML; the script adds place times data-stride over all controls to get the position."""
    label, values, place = html.escape(one["label"]), one["values"], one["place"]
    stride = f'data-stride="{one["stride"]}"'
    if one["kind"] == "box":
        return f'<label><input type="checkbox" {stride}{" checked" * place}> {label}</label>'
    if one["kind"] == "slider":
        first, second, *_ = values
        spread = f'min="{first:g}" max="{values[-1]:g}" step="{second - first:g}" value="{values[place]:g}"'
        shown = f'<label>{label} <input type="range" {stride} {spread}> <output>{values[place]:g}</output></label>'
        return shown + '<button type="button">▶ play</button>' * (label == "step")
    options = "".join(f"<option{' selected' * (n == place)}>{html.escape(str(text))}" for n, text in enumerate(values))
    return f"<label>{label} <select {stride}>{options}</select></label>"


def _digest(lesson: int, name: str) -> str:
    """Return what changes when another source, or another version of a package, would draw something else."""
    sources = ["*.py", f"lesson{lesson:02d}/*.py", "../*.py", "../_shared/*.py", "../mini/*.py"]
    files = [Path(__file__), *(file for one in sources for file in sorted(COURSE.glob(one)))]
    versions = [importlib.metadata.version(package) for package in ("torch", "matplotlib", "scikit-learn")]
    other = str((versions, _is_thin((lesson, name)))).encode()
    return hashlib.sha256(b"".join(file.read_bytes() for file in files) + other).hexdigest()[:16]


def _is_thin(wanted: Wanted) -> bool:
    return ENDS_ONLY and wanted[1] != "backward_steps"


def _draw(wanted: Wanted, ends_only: bool) -> str:
    """Draw an explorer at every position of its grid, or of the ends of it, and return all that as JSON."""
    import torch

    torch.set_num_threads(1)
    matplotlib.rcParams.update({"svg.hashsalt": "hooklab", "svg.fonttype": "path", "axes.titley": 1.0})
    # Much of the time goes into placing titles and measuring words: pictures share most words, and a title stands at 1.
    words = TextToPath()
    words.get_text_width_height_descent = functools.cache(words.get_text_width_height_descent)  # type: ignore[method-assign]
    matplotlib.text.TextToPath = lambda: words  # type: ignore[assignment, misc]
    lesson, name = wanted
    place = "one_call" if name == "moving_call" else f"lesson{lesson:02d}.explorer"
    module = importlib.import_module(f"hooklab.course.{place}")
    explorer, depends = getattr(module, name)(), DEPENDS.get(name, lambda _, **values: values)
    grid = GRIDS.get(name, {})
    controls = [_values(key, one, grid.get(key), ends_only) for key, one in explorer.controls.items()]
    parts: dict[str, int] = {}
    drawn: dict[str, list[str]] = {}
    shown = []
    for position in itertools.product(*(one["values"] for one in controls)):
        values = {one["name"]: one["meant"].get(value, value) for one, value in zip(controls, position, strict=True)}
        seen = repr(depends(module, **values))  # type: ignore[no-untyped-call]
        if seen not in drawn:
            figure = explorer.draw(**values)
            drawn[seen] = _parts(figure)
        shown.append([parts.setdefault(part, len(parts)) for part in (explorer.say(**values), *drawn[seen])])
    stride = 1
    for one in reversed(controls):
        one |= {"stride": stride}
        stride *= len(one["values"])
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    start = sum(one["place"] * one["stride"] for one in controls)
    controls = [one for one in controls if len(one["values"]) > 1]
    said = {"intro": explorer.intro, "controls": controls, "width": width, "height": height, "start": start}
    return json.dumps(said | {"parts": list(parts), "shown": shown}, ensure_ascii=False)


def _moment(steps: Sequence[Any], number: int) -> str:
    """Return a step of a recorded pass without its text, which no picture shows; after the last one nothing changes."""
    return repr(dataclasses.replace(steps[min(number, len(steps) - 1)], text=""))


def _values(name: str, control: Any, chosen: Sequence[Any] | None, ends_only: bool) -> dict[str, Any]:
    """Return what the page needs to know of a control, with the values that it takes there."""
    labels: dict[Any, Any] = {}
    if hasattr(control, "options"):
        labels = dict(one if isinstance(one, tuple) else (str(one), one) for one in control.options)
        kind, values = "choice", list(labels)
        start = values[list(labels.values()).index(control.value)]
    elif isinstance(start := control.value, bool):
        kind, values = "box", list(chosen or [False, True])
    else:
        kind, values = "slider", list(chosen or range(control.min, control.max + 1))
        start = min(values, key=lambda one: abs(one - control.value))
    if ends_only:
        values = sorted({values[0], values[-1]}, key=values.index)
    place = values.index(start) if start in values else 0
    return {"name": name, "label": control.description, "kind": kind, "values": values, "meant": labels, "place": place}


def _parts(figure: Any) -> list[str]:
    """Return a picture as SVG, split into parts that other pictures have too."""
    for image in (one for axes in figure.axes for one in axes.images):
        image.set_interpolation("none")  # each pixel as a pixel of its own, at any size
    file = io.StringIO()
    unsaid = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    FigureCanvasSVG(figure).print_svg(file, metadata=unsaid)  # `savefig` draws most figures twice
    return re.split(r"(?=<g )", re.sub(r'<g id="\w+"', "<g", re.sub(r"\n\s*", "\n", file.getvalue())))
