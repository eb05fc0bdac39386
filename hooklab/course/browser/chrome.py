"""chromium: a Chromium or Chrome that is installed, driven by Playwright."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from hooklab.course.browser.installed import NOT_FOUND, find_browser

ARGUMENTS = [
    "--no-sandbox",  # as root, the sandbox cannot be made; only our own server's pages are opened
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",  # /dev/shm is tiny in many containers
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run a browser without a window for the block; its profile is new and goes with it.

    Raises:
        FileNotFoundError: if none is installed. Playwright's own browsers are not looked for.
    """
    path = find_browser()
    if path is None:
        raise FileNotFoundError(NOT_FOUND)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()
