"""One built site and one browser page for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hooklab.course.browser.chrome import NOT_FOUND, chromium, find_browser

pytest.importorskip("sphinx", reason="requirements-site.txt is not installed")

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The site, built once: of most explorers, with the ends of each control."""
    from hooklab.course.site import build

    folder = tmp_path_factory.mktemp("built") / "site"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hooklab.course.site.explorers.ENDS_ONLY", True)
        assert build(ROOT, folder) == 0
        yield folder


@pytest.fixture(scope="package")
def browser() -> Iterator[object]:
    """A browser for the package: Playwright's event loop must not meet other tests'."""
    if find_browser() is None:
        pytest.skip(NOT_FOUND)
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def listened_to(browser, site):
    """A page, and the list of what was wrong on it: errors on the console, requests elsewhere."""
    page = browser.new_page(has_touch=True, reduced_motion="reduce")
    wrong: list[str] = []

    def is_ours(url: str) -> bool:
        return url.startswith(("data:", site.as_uri()))

    page.on("console", lambda one: wrong.append(one.text) if one.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda one: None if is_ours(one.url) else wrong.append(f"asks for {one.url}"))
    return page, wrong


@pytest.fixture
def open_page(listened_to, site):
    """Open a page of the site from its folder; the test fails for an error on the console or a request elsewhere."""
    page, wrong = listened_to
    wrong.clear()

    def open_one(name: str, width: int = 1280, theme: str = "light"):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme)
        page.goto(f"{site.as_uri()}/{name}")
        return page

    yield open_one
    assert wrong == []
