"""Which texts are too faint to be read, on a page made here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from hooklab.course.browser.lab import Lab
from tests.course.browser.contrast import too_faint

CLEAR, FAINT = "#333", "#aaa"
PAGE = """<div id="box" style="background: white"></div><script>
    setTimeout(() => document.getElementById("box").innerHTML = "<p style='color: {0}'>first</p>", {1});
    setTimeout(() => document.getElementById("box").innerHTML += "<p style='color: {2}'>second</p>", {1} + 150);
</script>"""


@pytest.fixture
def page(lab: Lab) -> Iterator[Page]:
    page = lab.page.context.new_page()
    yield page
    page.close()


@pytest.mark.parametrize("milliseconds", [0, 500])
def test_faint_texts_are_told_and_clear_ones_not_however_late_they_come(page: Page, milliseconds: int) -> None:
    page.set_content(PAGE.format(CLEAR, milliseconds, FAINT))
    assert list(too_faint(page.locator("#box"))) == ["second"]
    page.set_content(PAGE.format(FAINT, milliseconds, CLEAR))
    assert list(too_faint(page.locator("#box"))) == ["first"]
    page.set_content(PAGE.format(CLEAR, milliseconds, CLEAR))
    assert too_faint(page.locator("#box")) == {}
