"""`python -m hooklab screenshot`: take the picture of JupyterLab that the README shows, in a real browser."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hooklab.course.root import find_root

if TYPE_CHECKING:
    from hooklab.course.browser.lab import Notebook

__all__ = ["main"]

PICTURE = ".github/lesson.png"
LESSON = "lessons/01_intermediate_grad.ipynb"
STEPS = 3  # how far the explorer has gone in the picture: the gradient is passing y
CELLS_BEFORE = 5  # how many cells the picture shows above the explorer
TALL = 2000  # pixels: enough for all that the picture shows
MARGIN = 32  # pixels under the explorer, for the status bar


def main(argv: list[str]) -> int:
    """Take the picture, say where it is, and return the exit code: 1 if no browser is there."""
    parser = argparse.ArgumentParser(prog="python -m hooklab screenshot", description="Take the README's picture.")
    parser.add_argument("file", nargs="?", default=PICTURE, help=f"where to write it; by default {PICTURE}")
    parser.add_argument("--dark", action="store_true", help="in JupyterLab's dark theme")
    options = parser.parse_args(argv)
    root = find_root()
    path = root / options.file
    try:
        picture = take_picture(root, dark=options.dark)
    except FileNotFoundError as error:
        print(f"hooklab: error: {error}", file=sys.stderr)
        return 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(picture)
    print(f"wrote {path}")
    return 0


def take_picture(root: Path, *, dark: bool = False) -> bytes:
    """Start JupyterLab and a browser, run lesson 1 there, and return its picture, a PNG.

    Raises:
        FileNotFoundError: if no browser is installed.
    """
    from hooklab.course.browser.chrome import chromium
    from hooklab.course.browser.jupyter import jupyterlab
    from hooklab.course.browser.lab import DARK, Lab

    with tempfile.TemporaryDirectory(prefix="hooklab-screenshot-") as name:
        folder, scratch = Path(name) / "course", Path(name) / "jupyter"
        scratch.mkdir()
        shutil.copytree(root / "lessons", folder / "lessons", ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
        with chromium() as browser, jupyterlab(folder, scratch, root) as server:
            lab = Lab.start(browser, server)
            if dark:
                lab.set_theme(DARK)
            lab.hide_sidebar()
            notebook = lab.open(LESSON)
            lab.close_launcher()
            notebook.run_all()
            return picture_of(notebook)


def picture_of(notebook: Notebook) -> bytes:
    """Move the first explorer of a notebook that has run; return a picture of it and the cells before it, as PNG.

    The picture is as wide as the tab, and as high as what it shows.
    """
    page = notebook.page
    tags = [cell["metadata"].get("tags", []) for cell in notebook.cells()]
    last = next(index for index, of_cell in enumerate(tags) if "explorer" in of_cell)

    size = page.viewport_size
    assert size
    page.set_viewport_size({"width": size["width"], "height": TALL})
    explorer = notebook.show(last)
    explorer.locator("img.widget-image").wait_for()
    explorer.locator("[role=slider]").press("Home")
    for _ in range(STEPS):
        explorer.locator("[role=slider]").press("ArrowRight")
    explorer.get_by_text(f"Step {STEPS} of").wait_for()
    top = notebook.show(max(0, last - CELLS_BEFORE))
    box = explorer.bounding_box()
    assert box
    page.set_viewport_size({"width": size["width"], "height": round(box["y"] + box["height"]) + MARGIN})
    top.evaluate("cell => cell.scrollIntoView()")
    picture = page.screenshot(animations="disabled")
    page.set_viewport_size(size)
    return picture
