"""The lessons as a web page without a kernel: what `jupyter nbconvert --to html` makes of them."""

from __future__ import annotations

import base64
import os
import subprocess
import sys

import pytest
from bs4 import BeautifulSoup, Tag

from hooklab.course.kernels import environment
from tests.course.browser.conftest import ROOT

LESSONS = sorted((ROOT / "lessons").glob("*.ipynb"))
STDERR = "application/vnd.jupyter.stderr"  # what nbconvert calls both an error and a warning
PNG = "data:image/png;base64,"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, BeautifulSoup]:
    """Every lesson's page, by the lesson's name. nbconvert runs no cell unless it is asked to."""
    folder = tmp_path_factory.mktemp("html")
    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--output-dir", str(folder), *map(str, LESSONS)]
    made_in = environment(ROOT, folder, {**os.environ, "JUPYTER_CONFIG_DIR": str(folder / "config")})
    done = subprocess.run(command, cwd=folder, env=made_in, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    texts = {path.stem: (folder / f"{path.stem}.html").read_text(encoding="utf-8") for path in LESSONS}
    return {name: BeautifulSoup(text, "html.parser") for name, text in texts.items()}


@pytest.fixture(params=[path.stem for path in LESSONS])
def cells(pages: dict[str, BeautifulSoup], request: pytest.FixtureRequest) -> list[Tag]:
    """The cells of a lesson's page, in order."""
    return list(pages[request.param].select(".jp-Cell"))


def test_a_lessons_page_has_all_its_text_and_no_error_and_no_warning(cells: list[Tag]) -> None:
    text = [cell for cell in cells if "jp-MarkdownCell" in cell["class"]]
    assert len(text) > 8
    assert [cell.get("id") for cell in text if not cell.get_text(strip=True)] == []
    assert [text.get_text() for cell in cells for text in cell.select(f"[data-mime-type='{STDERR}']")] == []
    assert [cell.get("id") for cell in cells if "Traceback (most recent call last)" in cell.get_text()] == []


def test_every_figure_and_explorer_of_a_lessons_page_is_a_picture(cells: list[Tag]) -> None:
    pictures = [cell for cell in cells if "celltag_figure" in cell["class"] or is_explorer(cell)]
    assert [cell.get("id") for cell in pictures if not has_picture(cell)] == []


def test_beside_every_explorer_of_a_lessons_page_stands_a_picture(cells: list[Tag]) -> None:
    sections = [section for section in sections_of(cells) if any(map(is_explorer, section))]
    alone = [section for section in sections if not any(has_picture(cell) for cell in section if not is_explorer(cell))]
    assert [cell.get("id") for section in alone for cell in section if is_explorer(cell)] == []


def has_picture(cell: Tag) -> bool:
    """Return whether the page itself holds a picture in this cell's output, so that it is there wherever it is read."""
    pictures = [str(image["src"]).removeprefix(PNG) for image in cell.select(f".jp-OutputArea img[src^='{PNG}']")]
    return any(base64.b64decode(picture).startswith(b"\x89PNG") for picture in pictures)


def is_explorer(cell: Tag) -> bool:
    return "celltag_explorer" in cell["class"]


def sections_of(cells: list[Tag]) -> list[list[Tag]]:
    """Return the cells from heading to heading."""
    sections: list[list[Tag]] = [[]]
    for cell in cells:
        if cell.select_one("h1, h2, h3"):
            sections.append([])
        sections[-1].append(cell)
    return sections
