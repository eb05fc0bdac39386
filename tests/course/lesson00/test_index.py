"""The start page: its index of symptoms leads to cells that exist, and its map shows what really runs."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from hooklab.course.lesson00.figures import HOOKS, hook_map, order_of_hooks
from hooklab.course.lesson00.symptoms import Tagged, anchor, index

LESSONS = Path(__file__).parents[3] / "lessons"
START = LESSONS / "00_start_here.ipynb"


@functools.cache
def markdown(path: Path) -> list[str]:
    """The texts of a notebook."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]


def headings(path: Path) -> set[str]:
    """The anchors of a notebook, as JupyterLab makes them."""
    found = (heading for text in markdown(path) for heading in re.findall(r"^#{1,6} (.+?)\s*$", text, re.M))
    return {anchor(heading) for heading in found}


def test_every_link_of_the_start_page_leads_to_a_heading_of_a_lesson():
    links = re.findall(r"\]\(([\w.]*)(?:#([^)]+))?\)", "\n".join(markdown(START)))
    assert len(links) > 20
    for file, place in links:
        if file or place:
            path = LESSONS / file if file else START
            assert path.is_file(), file
            assert not place or unquote(place) in headings(path), f"{file}#{place}"


def test_the_route_leads_to_every_lesson_in_its_order():
    (route,) = (text for text in markdown(START) if text.startswith("## The route"))
    names = sorted(path.name for path in LESSONS.glob("*.ipynb") if path != START)
    assert re.findall(r"^\| \d+ \| \[.+?\]\((.+?)\)", route, re.M) == names


def test_a_case_that_two_cells_answer_is_listed_once_with_both_links():
    answers = [Tagged("24", "03_forward_hooks", "Return"), Tagged("24", "07_manifold_mixup", "The hook")]
    text = index([*answers, answers[0]])
    assert text.count("the network's result stays the same") == 1
    assert text.count("](03_forward_hooks.ipynb#Return)") == 1
    assert "](07_manifold_mixup.ipynb#The-hook)" in text


def test_a_case_without_words_is_refused_by_name():
    with pytest.raises(LookupError, match="field-99 has no words"):
        index([Tagged("99", "03_forward_hooks", "Return")])


def test_every_hook_of_the_map_runs_once_and_none_is_left():
    first, second = order_of_hooks(), order_of_hooks()
    assert first == second  # a global hook left behind would be called again
    assert sorted(what for what, _ in first) == sorted(HOOKS)


def test_the_map_names_every_hook():
    figure = hook_map([what for what, _ in order_of_hooks()])
    texts = " ".join(text.get_text().replace("\n", " ") for text in figure.axes[0].texts)
    assert all(what in texts for what in HOOKS)
