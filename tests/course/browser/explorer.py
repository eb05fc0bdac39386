"""Explorer: one explorer in the page, moved with the keyboard and the mouse, and what it shows."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from playwright.sync_api import FloatRect, Locator

T = TypeVar("T")

SECONDS_FOR_AN_ANSWER = 60
DRAG_STEPS = 30
STILL = 6  # how often, in a row, a settled picture is looked at

# A fingerprint of the picture that is shown. Its address goes as soon as the next picture comes: then try again.
_PICTURE = """async image => {
    for (let tries = 0; ; tries++) {
        try {
            await image.decode();
            const bytes = await (await fetch(image.src)).arrayBuffer();
            const digest = await crypto.subtle.digest('SHA-256', bytes);
            return [...new Uint8Array(digest)].map(byte => byte.toString(16).padStart(2, '0')).join('');
        } catch (error) {
            if (tries === 20) throw error;
            await new Promise(resolve => setTimeout(resolve, 50));
        }
    }
}"""

_STATUS_AFTER_AN_ANSWER = """async () => {
    const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
    await kernel.requestKernelInfo();
    return kernel.status;
}"""


class Explorer:
    """The explorer in a cell that is scrolled into view."""

    def __init__(self, cell: Locator) -> None:
        self.cell = cell
        self.output = cell.locator(".jp-OutputArea-output .widget-vbox").first
        self.image = self.output.locator("img.widget-image")
        self.image.wait_for()
        self.sliders = self.output.locator("[role=slider]")
        self.checkboxes = self.output.locator("input[type=checkbox]")
        self.dropdowns = self.output.locator("select")
        self.toggles = self.output.locator(".widget-toggle-buttons button")

    def picture(self) -> str:
        """Return a fingerprint of the picture that is shown."""
        digest: str = self.image.evaluate(_PICTURE)
        return digest

    def size(self) -> tuple[float, float]:
        """Return the width and height of the picture on the screen."""
        box = _box(self.image)
        return box["width"], box["height"]

    def state(self) -> tuple[str, str]:
        """Return the picture's fingerprint and the sentence under it."""
        return self.picture(), self.output.locator("[aria-live=polite]").inner_text()

    def picture_after(self, before: str) -> str:
        """Wait for another picture than the one before, and return it; the same one if none comes."""
        return self._after(before, self.picture)

    def state_after(self, before: tuple[str, str]) -> tuple[str, str]:
        """Wait for another picture or sentence than before, and return both."""
        return self._after(before, self.state)

    def picture_at(self, slider: int, key: str) -> str:
        """Press Home or End on a slider and return the picture there."""
        self.press(slider, key)
        self.settle()
        return self.picture()

    def wait_for(self, picture: str) -> bool:
        """Wait until this picture is shown; False if it does not come."""
        return self._until(lambda: self.picture() == picture)

    def settle(self) -> None:
        """Wait until the kernel has nothing to do and the picture has not changed for a moment."""
        seen: list[object] = []

        def is_still() -> bool:
            seen.append(self.picture() if self._kernel_is_done() else object())
            return len(seen) >= STILL and len(set(seen[-STILL:])) == 1

        assert self._until(is_still), "the picture went on changing"

    def press(self, slider: int, *keys: str) -> None:
        """Give a slider the focus, as Tab does, and press keys."""
        handle = self.sliders.nth(slider)
        handle.focus()
        for key in keys:
            handle.press(key)

    def drag(self, slider: int, *shares: float) -> None:
        """Drag a slider's handle with the mouse to these shares of its track, one after the other, and let go."""
        mouse = self.cell.page.mouse
        handle, track = _box(self.sliders.nth(slider)), _box(self.output.locator(".noUi-target").nth(slider))
        mouse.move(handle["x"] + handle["width"] / 2, handle["y"] + handle["height"] / 2)
        mouse.down()
        for share in shares:
            mouse.move(track["x"] + share * track["width"], track["y"] + track["height"] / 2, steps=DRAG_STEPS)
        mouse.up()

    def other_changes(self, alone: bool = False) -> Iterator[Callable[[], object]]:
        """Yield functions that use the controls other than sliders: each box, each option, each toggle that is off.

        Alone: a box is put back before the next one, since one may make another one idle.
        """
        for number in range(self.checkboxes.count()):
            yield self.checkboxes.nth(number).click
            if alone:
                self.checkboxes.nth(number).click()
                self.settle()
        for number in range(self.dropdowns.count()):
            dropdown = self.dropdowns.nth(number)
            for option in dropdown.locator("option:not(:checked)").all_inner_texts():
                yield functools.partial(dropdown.select_option, label=option)
        for number in range(1, self.toggles.count()):
            yield self.toggles.nth(number).click

    def touch(self) -> None:
        """Use the first control in a way that changes the picture; a slider may begin at its end."""
        if self.sliders.count():
            first = self.sliders.first
            at_its_end = first.get_attribute("aria-valuenow") == first.get_attribute("aria-valuemax")
            self.press(0, "ArrowLeft" if at_its_end else "ArrowRight")
        else:
            next(self.other_changes())()

    def _kernel_is_done(self) -> bool:
        """Ask the kernel something: it answers when it has done what was asked before, however slow it is to begin."""
        status = self.cell.evaluate(_STATUS_AFTER_AN_ANSWER)
        return bool(status == "idle")

    def _after(self, before: T, look: Callable[[], T]) -> T:
        self._until(lambda: look() != before)
        return look()

    def _until(self, condition: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + SECONDS_FOR_AN_ANSWER
        while not condition():
            if time.monotonic() > deadline:
                return False
            self.cell.page.wait_for_timeout(50)
        return True


def _box(element: Locator) -> FloatRect:
    box = element.bounding_box()
    assert box, "the element is not shown"
    return box
