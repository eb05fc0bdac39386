"""find_browser: the Chromium or Chrome that is installed here. Standard library only."""

from __future__ import annotations

import os
import shutil

NOT_FOUND = "no Chromium or Chrome on PATH; on Debian or Ubuntu: apt-get install chromium"
NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge"]
FILES = [
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
    r"C:\Program Files (x86)\Microsoft\Edge\Application\msedge.exe",
]


def find_browser() -> str | None:
    """Return the path of a Chromium, Chrome or Edge, or None."""
    places = [*map(shutil.which, NAMES), *filter(os.path.isfile, FILES)]
    return next((place for place in places if place), None)
