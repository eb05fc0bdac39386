"""chromium: the Chromium or Chrome that is installed here, driven by Playwright, which a learner does not need."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NOT_FOUND = "no Chromium or Chrome on PATH; on Debian or Ubuntu: apt-get install chromium"
NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge"]
FILES = [
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
    r"C:\Program Files (x86)\Microsoft\Edge\Application\msedge.exe",
]
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
    """Return the path of a Chromium, Chrome or Edge, or None. Playwright's own browsers are not looked for."""
    places = [*map(shutil.which, NAMES), *filter(os.path.isfile, FILES)]
    return next((place for place in places if place), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run a browser without a window for the block; its profile is new and goes with it.

    Raises FileNotFoundError if none is installed.
    """
    from playwright.sync_api import sync_playwright

    path = find_browser()
    if path is None:
        raise FileNotFoundError(NOT_FOUND)
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=path, args=ARGUMENTS) as browser:
        yield browser
