"""The built site as files: what is on it and what is not, its links, and that two builds are the same."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import hooklab
from hooklab.course.exercises.predict import predictions_of
from hooklab.course.site import OURS, explorers, main
from hooklab.course.site.explorers import GRIDS
from hooklab.course.site.guesses import meaning, question
from hooklab.course.site.pages import symptoms_in
from hooklab.course.site.pages import write as write_pages

ROOT = Path(__file__).parents[3]
LESSONS = sorted((ROOT / "lessons").glob("*.ipynb"))


class Links(HTMLParser):
    """The ids of a page, what it links to and loads, and its pictures without a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.to: list[str] = []
        self.silent: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids.add(given.get("id") or "")
        self.to += [given[name] for name in ("href", "src") if given.get(name) and tag != "meta"]
        if tag == "img" and not given.get("alt"):
            self.silent.append(given.get("src", ""))


@pytest.fixture(scope="module")
def parsed(site):
    return {file.name: Links(file.read_text(encoding="utf-8")) for file in site.glob("*.html")}


def test_every_lesson_has_a_page_and_its_notebook(site):
    pages = {"index" if one.stem == "00_start_here" else one.stem for one in LESSONS}
    assert {file.stem for file in site.glob("*.html")} == pages | {"reference", "search"}
    for lesson in LESSONS:
        assert (site / "notebooks" / lesson.name).read_bytes() == lesson.read_bytes()


def test_every_link_and_anchor_resolves(site, parsed):
    missing = []
    for name, one in parsed.items():
        for link in one.to:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = unquote(parts.path) or name
            anchor = unquote(parts.fragment)
            is_there = not anchor or target not in parsed or anchor in parsed[target].ids
            if not (site / target).exists() or not is_there:
                missing.append((name, link))
    assert missing == []


def test_nothing_is_loaded_from_elsewhere(site):
    for file in site.glob("*.html"):
        text = file.read_text(encoding="utf-8")
        assert re.findall(r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//[^"]+', text) == []
        assert re.findall(r'<link[^>]+rel="(?:stylesheet|preload)"[^>]+href="(?:https?:)?//[^"]+', text) == []


def test_every_cell_can_be_linked_to(parsed):
    for lesson in LESSONS:
        cells = json.loads(lesson.read_text(encoding="utf-8"))["cells"]
        name = "index" if lesson.stem == "00_start_here" else lesson.stem
        assert {f"cell-id={cell['id']}" for cell in cells} <= parsed[f"{name}.html"].ids


def test_a_link_to_a_page_shows_its_title_and_a_picture_of_the_site(site):
    for file in site.glob("*.html"):
        text = file.read_text(encoding="utf-8")
        card = dict(re.findall(r'<meta property="og:(\w+)" content="([^"]*)"', text))
        assert f"<title>{card['title']}" in text.replace("&#8212;", "—")
        assert card["description"]
        assert (site / card["image"]).read_bytes().startswith(b"\x89PNG")


def test_every_picture_has_a_text(parsed):
    assert [name for name, one in parsed.items() if one.silent] == []


def test_no_solution_and_no_teachers_page_is_on_the_site(site):
    text = "".join(file.read_text(encoding="utf-8") for file in site.rglob("*") if file.suffix in (".html", ".js"))
    assert "A solution" not in text
    assert "For the teacher" not in text
    assert "not attempted: write" not in text


def test_the_calls_that_need_a_kernel_are_not_shown(site):
    for file in site.glob("*.html"):
        code = re.findall(r'<div class="highlight">(.*?)</div>', file.read_text(encoding="utf-8"), re.S)
        plain = [re.sub("<[^>]+>", "", one) for one in code]
        calls = ("predict(", "reveal(", "check(", "progress(")
        assert [one for one in plain if one.strip().startswith(calls)] == []


def test_solutions_are_shown_if_asked_for(monkeypatch, tmp_path):
    monkeypatch.setattr("hooklab.course.site.explorers.start", lambda *_: None)
    for with_solutions in (False, True):
        source = tmp_path / str(with_solutions)
        write_pages(ROOT, source, with_solutions)
        for lesson in LESSONS:
            name = "index" if lesson.stem == "00_start_here" else lesson.stem
            cells = json.loads((source / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
            exercises = lesson.read_text(encoding="utf-8").count('"id": "exercise-')
            answers = sum("answer" in cell["metadata"].get("tags", []) for cell in cells)
            assert answers == (exercises if with_solutions else 0)


@pytest.mark.parametrize("number", range(len(LESSONS)))
def test_every_guess_says_what_came_out(number, site):
    name = "index" if number == 0 else LESSONS[number].stem
    text = (site / f"{name}.html").read_text(encoding="utf-8")
    for id in predictions_of(number):
        slug = id.replace(".", "-")
        assert f'data-guess="{slug}"' in text
        assert re.search(rf'data-meaning="{slug}">((?!</details>).)*<li class="right"', text), id
        assert f"tag_after-{slug}" in text


def test_a_question_says_nothing_about_the_answer():
    one = next(iter(predictions_of(1).values()))
    assert one.why(1)[:40] not in question(one)
    assert meaning(one, 1).count('class="right"') == 1


def test_a_symptom_leads_to_its_cell():
    line = "- `y.grad` is None → [lesson 1, x](01_intermediate_grad.ipynb#cell-id=ab), [0](00_start_here.ipynb#A-b)"
    said = ["y.grad is None"]
    assert symptoms_in(line) == {("01_intermediate_grad", "cell-id=ab"): said, ("index", "A-b"): said}


def test_an_explorer_is_drawn_the_same_again(site, tmp_path):
    explorers.start([(10, "over_time")], tmp_path)(tmp_path)
    for file in (tmp_path / "_static" / "explorers").iterdir():
        assert file.read_bytes() == (site / "_static" / "explorers" / file.name).read_bytes()


def test_every_grid_has_its_explorer(site):
    assert set(GRIDS) <= {file.stem for file in (site / "_static" / "explorers").glob("*.js")}


def test_the_library_is_explained_with_links_to_torch(site):
    text = (site / "reference.html").read_text(encoding="utf-8")
    for name in set(hooklab.__all__) - {"check", "predict", "progress", "reveal"}:
        assert f'id="hooklab.{name}"' in text
    assert 'href="https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html' in text


def write(folder, name, text):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)


def test_a_second_build_gives_the_same_bytes_and_replaces_only_what_the_first_wrote(site, tmp_path):
    again = tmp_path / "again"
    write(again, OURS, "gone.html")  # an earlier build, in a branch that somebody publishes
    write(again, "gone.html", "")
    write(again, "CNAME", "hooks.example")
    assert main([str(again)]) == 0
    assert (again / "CNAME").read_text() == "hooks.example"
    (again / "CNAME").unlink()
    files = [file.relative_to(site) for file in site.rglob("*") if file.is_file()]
    assert sorted(files) == sorted(file.relative_to(again) for file in again.rglob("*") if file.is_file())
    assert [file for file in files if (site / file).read_bytes() != (again / file).read_bytes()] == []


def test_a_folder_with_other_things_is_left_alone(tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("years of work")
    assert main([str(tmp_path)]) == 2
    assert "not empty" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]
