"""find_browser and chromium: a Chromium or Chrome that is installed, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from hooklab.course.launcher.doctor import BROWSER_FILES, BROWSERS

NOT_FOUND = "no Chromium or Chrome on PATH; on Debian or Ubuntu: apt-get install chromium"
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


def find_browser() -> str | None:
    """Return the path of a Chromium, Chrome or Edge, or None."""
    places = [*map(shutil.which, BROWSERS), *(path for path in BROWSER_FILES if os.path.isfile(path))]
    return next((place for place in places if place), None)


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
