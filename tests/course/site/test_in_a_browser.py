"""The site in Chromium, opened from its folder: every page on a phone and a screen, guesses, explorers, the search."""

from __future__ import annotations

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

from hooklab.course.exercises.predict import predictions_of

ROOT = Path(__file__).parents[3]
LESSONS = ["index", *(one.stem for one in sorted((ROOT / "lessons").glob("*.ipynb"))[1:])]
OFTEN = ("index", "01_intermediate_grad", "reference", "search")  # the others: `-m long`
PAGES = [
    pytest.param(name, marks=[] if name in OFTEN else pytest.mark.long) for name in [*LESSONS, "reference", "search"]
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
    if name in LESSONS:
        assert page.locator(".guess").count() == len(predictions_of(LESSONS.index(name)))
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
