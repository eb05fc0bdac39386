"""The built site: as files, and in Chromium, opened from its folder.

In one file, so that `pytest -n 2` gives all of it to one process, and the site is built once.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe

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


# --- in Chromium: every page on a phone and a screen, guesses, explorers, the search


ON_PAGES = ["index", *(one.stem for one in LESSONS[1:])]
OFTEN = ("index", "01_intermediate_grad", "reference", "search")  # the others: `-m long`
PAGES = [
    pytest.param(name, marks=[] if name in OFTEN else pytest.mark.long) for name in [*ON_PAGES, "reference", "search"]
]
FOUND = {  # what somebody types, most of it as torch prints it -> the lesson that answers
    "y.grad is None": "01",
    "my parameter's .grad is None": "01",
    "RuntimeError: Trying to backward through the graph a second time": "01",
    "a leaf Variable that requires grad is being used in an in-place operation": "01",
    "x.grad has doubled": "01",
    "can't retain_grad on Tensor that has requires_grad=False": "02",
    "cannot register a hook on a tensor that doesn't require gradient": "02",
    "my hook makes the gradient zero, and the weight still moves": "02",
    "several hooks on one tensor: which runs first": "02",
    "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn": "03",
    "one of the variables needed for gradient computation has been modified by an inplace operation": "03",
    "my hook does not see keyword arguments": "04",
    "None of the inputs have requires_grad=True. Gradients will be None": "04",
    "the loss is nan": "08",
    "gradients vanish or explode": "08",
    "Function 'SqrtBackward0' returned nan values in its 0th output": "08",
    "Grad-CAM: my list of gradients is empty": "09",
    "torch.where with a root or a logarithm": "08",
    "with mixup my training accuracy is low": "07",
    "one layer does not learn": "08",
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_and_answers_and_axe_finds_nothing_serious(name, open_page):
    page = open_page(f"{name}.html")
    for width in (1600, 1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
    if name in ON_PAGES:
        assert page.locator(".guess").count() == len(predictions_of(ON_PAGES.index(name)))
    for guess in page.locator(".guess").all():
        use_guess(page, guess)
    for explorer in page.locator(".explorer").all():
        use_explorer(page, explorer)
    assert serious(page, rules={"color-contrast": {"enabled": False}}) == []
    page.evaluate(ONE_OF_EACH)
    for theme in ("dark", "light"):
        page.emulate_media(color_scheme=theme)
        page.wait_for_function("theme => document.documentElement.dataset.theme === theme", arg=theme)
        assert serious(page, runOnly=["color-contrast"]) == [], theme


def use_guess(page, guess):
    """Choose what came out: nothing of the answer is in sight before, and all of it after."""
    slug = guess.get_attribute("data-guess")
    meaning, result = page.locator(f"[data-meaning='{slug}']"), page.locator(f".tag_after-{slug} details").first
    answers = [meaning, result, *page.locator(f"details.after-{slug}").all()]
    assert not any(one.is_visible() for one in answers), slug
    right = meaning.locator("li.right").get_attribute("data-choice")
    if guess.locator("input").count():
        guess.locator("input").fill(right)
        guess.locator("input").press("Enter")
    else:
        guess.locator("button").nth(int(right)).tap()
    assert meaning.locator(".verdict").inner_text().startswith("Right"), slug
    assert all(one.is_visible() for one in [*answers, result.locator(".output").first]), slug


def use_explorer(page, explorer):
    """Use each control: another picture or sentence comes, and the sentence is the picture's text."""
    name, image = explorer.get_attribute("data-explorer"), explorer.locator("img")
    explorer.hover()
    page.wait_for_function("name => name in hooklabExplorers", arg=name)
    for control in reversed(explorer.locator("input, select").all()):  # sliders first: at step 0 all is one
        seen = set()
        for key in ("Space", "Space") if control.get_attribute("type") == "checkbox" else ("Home", "End"):
            control.press(key)
            seen.add(image.evaluate("image => image.alt + image.src"))
            assert explorer.locator("figcaption").inner_text() == image.get_attribute("alt"), name
        image.evaluate("image => image.decode()")
        assert len(seen) > 1, (name, control.get_attribute("data-count"))


# Axe takes most of its time for the colours of thousands of words of code: keep one word of each kind in each place.
ONE_OF_EACH = """() => {
  const seen = new Set();
  for (const word of document.querySelectorAll(".bd-article :not(:has(*), td, th)")) {
    let kind = "";
    for (let part = word; part; part = part.parentElement) kind += `${part.tagName} ${part.className};`;
    if (seen.has(kind)) word.remove();
    seen.add(kind);
  }
}"""


def serious(page, **chosen):
    """Return what axe-core finds that shuts somebody out: the rule and the first place."""
    options = {"preload": False, "resultTypes": ["violations"], **chosen}  # no preload: axe asks for no files itself
    found = Axe().run(page, options=options).response["violations"]
    return [(one["id"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in ("serious", "critical")]


def test_a_wrong_guess_is_told_from_a_right_one(open_page):
    page = open_page("01_intermediate_grad.html")
    page.locator("[data-guess='1-a'] button").first.press("Enter")
    meaning = page.locator("[data-meaning='1-a']")
    assert "Not this time: you said a)" in meaning.locator(".verdict").inner_text()
    assert meaning.locator("li.chosen").count() == meaning.locator("li.right").count() == 1


def test_a_number_that_nobody_expects_has_a_meaning_too(open_page):
    page = open_page("01_intermediate_grad.html")
    page.locator("[data-guess='1-c'] input").fill("-7.5")
    page.locator("[data-guess='1-c'] button").click()
    assert "Not this time: you said -7.5" in page.locator("[data-meaning='1-c'] .verdict").inner_text()
    assert page.locator("[data-meaning='1-c'] li.chosen").inner_text().startswith("any other number")


def test_without_javascript_a_guess_is_a_folded_block(browser, site):
    page = browser.new_page(java_script_enabled=False)
    page.goto(f"{site.as_uri()}/03_forward_hooks.html")
    assert not page.locator("details.after-3-c p").is_visible()  # what to see in the picture
    page.goto(f"{site.as_uri()}/01_intermediate_grad.html")
    meaning = page.locator("[data-meaning='1-a']")
    assert not meaning.locator("ul").is_visible()
    meaning.locator("summary").click()
    assert meaning.locator("ul").is_visible()
    page.close()


def test_an_explorer_plays_its_steps(open_page):
    page = open_page("01_intermediate_grad.html")
    explorer = page.locator("[data-explorer='backward_steps']")
    explorer.get_by_text("play").tap()
    for step in (0, 1, 2):
        explorer.get_by_text(f"Step {step} of").wait_for()
    explorer.locator("input[type='range']").press("Home")  # whoever takes the slider stops it
    page.wait_for_timeout(1200)
    assert explorer.locator("output").inner_text() == "0"


def test_the_search_finds_the_answering_page_among_the_first_three(open_page):
    page = open_page("search.html?q=the+loss+is+nan")
    page.locator("#search-results li > a[href^='08_']").first.wait_for()
    ranked = "words => Search._performSearch(...Search._parseQuery(words)).reverse().slice(0, 3).map(([name]) => name)"
    found = {words: page.evaluate(ranked, words) for words in FOUND}
    assert {
        words: names for words, names in found.items() if not any(one.startswith(FOUND[words]) for one in names)
    } == {}
