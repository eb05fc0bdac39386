"""Explorers without a kernel: every position of a coarse grid is drawn once, and the page's script shows one of them.

An explorer's picture is a function of its controls alone. Pictures share most of what is in them, so a picture is kept
as numbers of the parts that it is made of, and each part once. Drawing them takes half a minute, so they are kept in
.cache until a source that they depend on changes.
"""

from __future__ import annotations

import ast
import hashlib
import html
import importlib
import importlib.metadata
import io
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

COURSE = "hooklab.course"
# The values to draw, for controls of which not all are; a control with one value is not shown.
GRIDS: dict[str, dict[str, Sequence[Any]]] = {
    "border": {"reverses": [False], "step": range(9)},
    "backward_steps": {"step": range(8)},
    "call_order": {"everywhere": [False], "backward_pre": [False]},
    "feature_maps": {"number": [0, 3, 12, 21]},
    "going_wrong": {"step": [10, 20, 39]},
    "heads_at_work": {"number": [0], "position": [5, 10, 16, 20, 22]},
    "mixing": {"first": [0, 3], "second": [4, 7], "lam": [0, 0.25, 0.5, 0.75, 1]},
    "moving_call": {"pre": ["no pre-hook", "return args[0] * 10", "args[0].mul_(10)"], "backward": [False]},
    "what_it_looks_at": {"number": [0, 3, 5, 8]},
}

Drawn = dict[str, Any]
Value = tuple[str, Any]  # a label and what the control's value is there


def drawn(wanted: Iterable[tuple[int, str]], root: Path) -> dict[str, Drawn]:
    """Return the explorers of some lessons, each drawn at every position of its grid.

    Args:
        wanted: (lesson's number, name of the function that returns the explorer).
        root: the course's folder; what was drawn is kept in its .cache.
    """
    kept = {one: _kept(*one, root) for one in dict.fromkeys(wanted)}
    missing = [one for one, file in kept.items() if not file.is_file()]
    if missing:
        with ProcessPoolExecutor(min(2, len(missing)), mp_context=get_context("spawn")) as pool:
            for one, text in zip(missing, pool.map(_draw, missing), strict=True):
                kept[one].parent.mkdir(parents=True, exist_ok=True)
                kept[one].write_text(text, encoding="utf-8")
    return {name: json.loads(file.read_text(encoding="utf-8")) for (_, name), file in kept.items()}


def as_html(name: str, one: Drawn) -> str:
    """Return an explorer as HTML: its first picture and, for the script, its controls."""
    sentence = html.escape(one["says"][one["said"][one["start"]]])
    controls = "".join(_control(f"{name}-{control['name']}", control) for control in one["controls"])
    width, height = one["size"]
    return (
        f'<figure class="explorer" id="explorer-{name}" data-explorer="{name}"><p>{html.escape(one["intro"])}</p>'
        f'<div class="controls" hidden>{controls}</div>'
        f'<img src="_static/explorers/{name}.svg" width="{width}" height="{height}" alt="{sentence}">'
        f'<figcaption aria-live="polite">{sentence}</figcaption></figure>'
    )


def write(name: str, one: Drawn, folder: Path) -> None:
    """Write an explorer's first picture, and all positions for the script, which a page loads when they are used."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = {key: one[key] for key in ("head", "parts", "pictures", "at", "says", "said")}
    data = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
    (folder / f"{name}.js").write_text(f'hooklabExplorers["{name}"]={data};\n', encoding="utf-8")
    first = one["pictures"][one["at"][one["start"]]]
    picture = one["head"] + "".join(one["parts"][part] for part in first) + "</svg>"
    (folder / f"{name}.svg").write_text(picture, encoding="utf-8")


def _control(id: str, one: dict[str, Any]) -> str:
    label, labels, start = html.escape(one["label"]), one["labels"], one["start"]
    if one["kind"] == "box":
        return f'<label><input type="checkbox" id="{id}"{" checked" if start else ""}> {label}</label>'
    if one["kind"] == "choice":
        options = [
            f"<option{' selected' if place == start else ''}>{html.escape(text)}</option>"
            for place, text in enumerate(labels)
        ]
        return f'<label>{label} <select id="{id}">{"".join(options)}</select></label>'
    texts = html.escape(json.dumps(labels, ensure_ascii=False))
    return (
        f'<label>{label} <input type="range" id="{id}" min="0" max="{len(labels) - 1}" value="{start}" '
        f'aria-valuetext="{html.escape(labels[start])}" data-labels="{texts}"> '
        f"<output>{html.escape(labels[start])}</output></label>"
    )


# --- what a picture depends on


def _module(lesson: int, name: str) -> str:
    return f"{COURSE}.one_call" if name == "moving_call" else f"{COURSE}.lesson{lesson:02d}.explorer"


def _kept(lesson: int, name: str, root: Path) -> Path:
    """Return the file in which an explorer is kept; another source, or another torch, gives it another name."""
    own = Path(__file__).parents[3]  # the copy that is imported, whose sources draw
    files = {Path(__file__), *(own / "hooklab").glob("*.py"), *_imported(_module(lesson, name), own, set())}
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    for package in ("torch", "matplotlib", "scikit-learn"):
        digest.update(importlib.metadata.version(package).encode())
    return root / ".cache" / "site" / f"{name}-{digest.hexdigest()[:16]}.json"


def _imported(module: str, root: Path, seen: set[Path]) -> set[Path]:
    """Return the files of hooklab that a module imports, directly or not, with its own."""
    place = root.joinpath(*module.split("."))
    file = next((one for one in (place.with_suffix(".py"), place / "__init__.py") if one.is_file()), None)
    if file is None or file in seen:
        return seen
    seen.add(file)
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hooklab"):
            for one in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                _imported(str(one), root, seen)
    return seen


# --- drawing


def _draw(wanted: tuple[int, str]) -> str:
    """Draw an explorer at every position of its grid, and return all that as JSON."""
    import matplotlib
    import torch

    torch.set_num_threads(1)
    matplotlib.rcParams.update({"svg.hashsalt": "hooklab", "svg.fonttype": "path"})
    lesson, name = wanted
    explorer = getattr(importlib.import_module(_module(lesson, name)), name)()
    grid = {key: _values(one, GRIDS.get(name, {}).get(key)) for key, one in explorer.controls.items()}
    start = {key: _place(grid[key], one.value) for key, one in explorer.controls.items()}
    parts: dict[str, int] = {}
    pictures: dict[tuple[int, ...], int] = {}
    sentences: dict[str, int] = {}
    shared: dict[str, None] = {}
    at, said, size = [], [], (0.0, 0.0)
    for position in itertools.product(*grid.values()):
        values = {key: value for key, (_, value) in zip(grid, position, strict=True)}
        figure = explorer.draw(**values)
        size = figure.get_figwidth(), figure.get_figheight()
        picture = tuple(parts.setdefault(part, len(parts)) for part in _parts(_svg(figure), shared))
        at.append(pictures.setdefault(picture, len(pictures)))
        said.append(sentences.setdefault(explorer.say(**values), len(sentences)))
    first = 0
    for key, values_there in grid.items():
        first = first * len(values_there) + start[key]
    box = f"0 0 {72 * size[0]:g} {72 * size[1]:g}"
    return json.dumps(
        {
            "intro": explorer.intro,
            "controls": [
                {
                    "name": key,
                    "label": one.description,
                    "kind": _kind(one),
                    "labels": [label for label, _ in grid[key]],
                    "start": start[key],
                }
                for key, one in explorer.controls.items()
                if len(grid[key]) > 1
            ],
            "size": [round(96 * side) for side in size],
            "start": first,
            "head": f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
            f'viewBox="{box}"><defs>{"".join(shared)}</defs>',
            "parts": list(parts),
            "pictures": list(pictures),
            "at": at,
            "says": list(sentences),
            "said": said,
        },
        ensure_ascii=False,
    )


def _kind(control: Any) -> str:
    kinds = {"Checkbox": "box", "Dropdown": "choice", "ToggleButtons": "choice"}
    return kinds.get(type(control).__name__, "slider")


def _values(control: Any, chosen: Sequence[Any] | None) -> list[Value]:
    """Return the labels and values that a control takes on the page."""
    if hasattr(control, "options"):
        pairs = [one if isinstance(one, tuple) else (str(one), one) for one in control.options]
        return [(label, value) for label, value in pairs if chosen is None or value in chosen]
    if chosen is None:
        chosen = [False, True] if isinstance(control.value, bool) else range(control.min, control.max + 1)
    return [(f"{value:g}", value) for value in chosen]


def _place(values: list[Value], value: Any) -> int:
    """Return the place of a value, or of the nearest one."""
    known = [one for _, one in values]
    return known.index(value) if value in known else min(range(len(known)), key=lambda place: abs(known[place] - value))


def _svg(figure: Any) -> str:
    for axes in figure.axes:
        for image in axes.images:
            image.set_interpolation("none")  # each pixel as a pixel of its own, at any size
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return file.getvalue()


def _parts(svg: str, shared: dict[str, None]) -> list[str]:
    """Split a picture into its parts; what it only defines, such as letters, goes to `shared`."""
    body = svg[svg.index("<defs>") : svg.rindex("</svg>")]
    for defined in re.findall(r"<defs>(.*?)</defs>", body, re.S):
        for one in re.findall(r"<(?:path|style)\b.*?(?:/>|</style>)|<clipPath.*?</clipPath>", defined, re.S):
            shared.setdefault(re.sub(r"\n\s*", "\n", one))
    body = re.sub(r"\s*<defs>.*?</defs>", "", body, flags=re.S)
    groups = re.split(r"(?=<g id=)", body)
    return [re.sub(r"\n\s*", "\n", re.sub(r' id="[^"]*"', "", one)) for one in groups]
