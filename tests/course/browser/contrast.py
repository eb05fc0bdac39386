"""too_faint: the texts of an element that do not stand out enough from what is behind them."""

from __future__ import annotations

import time

from playwright.sync_api import Locator

from hooklab.course.browser.lab import LOOK_EVERY

SECONDS_TO_SHOW = 60
ENOUGH = 4.5  # as the accessibility guidelines want it for text: WCAG 2.2, success criterion 1.4.3

# Each text that is shown, with its contrast to the nearest background behind it (WCAG 2.2, "contrast ratio").
_CONTRASTS = """root => {
    const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
    const luminance = ([r, g, b]) => [0.2126 * r, 0.7152 * g, 0.0722 * b].reduce((a, b) => a + b);
    const channel = c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const linear = rgb => rgb.slice(0, 3).map(c => channel(c / 255));
    const ground = element => {
        for (let e = element; e; e = e.parentElement) {
            const colour = numbers(getComputedStyle(e).backgroundColor);
            if (colour.length === 3 || colour[3] === 1) return colour;
        }
        return [255, 255, 255];
    };
    const own = e => [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.textContent).join('').trim();
    return [...root.querySelectorAll('*')].filter(e => own(e) && e.checkVisibility()).map(e => {
        const pair = [numbers(getComputedStyle(e).color), ground(e)].map(linear).map(luminance).sort((a, b) => b - a);
        return [own(e), (pair[0] + 0.05) / (pair[1] + 0.05)];
    });
}"""


def too_faint(element: Locator) -> dict[str, float]:
    """Return the texts in an element whose contrast is too low, with it: 1 is invisible, 21 black on white.

    A page shows its parts one after the other: what counts is what it shows twice in a row.
    """
    before: list[tuple[str, float]] = []
    deadline = time.monotonic() + SECONDS_TO_SHOW
    while not (found := element.evaluate(_CONTRASTS)) or found != before:
        assert time.monotonic() < deadline, f"no text to look at, or not the same one for long: {found}"
        before = found
        element.page.wait_for_timeout(LOOK_EVERY)
    return {text: ratio for text, ratio in found if ratio < ENOUGH}
