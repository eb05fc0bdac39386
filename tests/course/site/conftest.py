"""One built site and one browser for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hooklab.course.browser.chrome import NOT_FOUND, chromium, find_browser

pytest.importorskip("sphinx", reason="requirements-site.txt is not installed")

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once."""
    from hooklab.course.site import build

    folder = tmp_path_factory.mktemp("built") / "site"
    assert build(ROOT, folder) == ""
    return folder


@pytest.fixture(scope="package")
def browser() -> Iterator[object]:
    """A browser for the package: Playwright's event loop must not meet other tests'."""
    if find_browser() is None:
        pytest.skip(NOT_FOUND)
    with chromium() as browser:
        yield browser


@pytest.fixture
def open_page(browser, site):
    """Open a page of the site from its folder; the test fails for an error on the console or a request elsewhere."""
    wrong: list[str] = []

    def is_ours(url: str) -> bool:
        return url.startswith(("data:", site.as_uri()))

    with ExitStack() as stack:

        def open_one(name: str, width: int = 1280, theme: str = "light", **options):
            context = browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce", **options
            )
            stack.callback(context.close)
            page = context.new_page()
            page.on("console", lambda one: wrong.append(one.text) if one.type in ("error", "warning") else None)
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("request", lambda one: None if is_ours(one.url) else wrong.append(f"asks for {one.url}"))
            page.goto(f"{site.as_uri()}/{name}")
            return page

        yield open_one
    assert wrong == []
