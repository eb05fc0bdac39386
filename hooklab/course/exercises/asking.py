"""Question: a prediction as a widget, with a button for each choice or a field for a number."""

from __future__ import annotations

import math
from typing import Any

import ipywidgets as widgets

from hooklab.course.exercises.outcome import marked_up
from hooklab.course.exercises.predict import ByChoice, Prediction, as_html, as_text, guesses, heading, record, when_told

WITHOUT_KERNEL = "run this cell to make your guess"
_TEXT = "color:var(--jp-content-font-color1,inherit);line-height:1.5"
# A choice may be a sentence: its button is as wide as the text, and as high when that is wrapped.
_LOOK = """<style>
.hooklab-question button {
    width: auto; max-width: 100%; height: auto; align-self: flex-start; padding: 2px 12px;
    text-align: left; white-space: normal; overflow: visible; line-height: 1.5;
    color: var(--jp-ui-font-color0, inherit); opacity: 1;
}
.hooklab-question button:focus-visible { outline: 2px solid var(--jp-brand-color1, #0072B2); }
</style>"""


class Question(widgets.VBox):  # type: ignore[misc]  # ipywidgets has no types
    """A question with its controls and the guess made so far; where no kernel runs, the question and the choices.

    A guess may be changed until `reveal` has told. Never says which one is right.
    """

    def __init__(self, one: Prediction) -> None:
        self.one = one
        self.said = widgets.HTML()
        self.controls = self._buttons(one) if isinstance(one, ByChoice) else [self._field()]
        top = widgets.HTML(f"{_LOOK}<div style='{_TEXT}'>{heading(one)}</div>")
        super().__init__([top, *self.controls, self.said])
        self.add_class("hooklab-question")
        when_told[one.id] = self.refresh
        self.refresh()

    def refresh(self) -> None:
        """Show the guess as it is now."""
        guess = guesses.get(self.one.id)
        self._mark(None if guess is None else guess.value)
        self._say("No guess yet." if guess is None else f"Your guess: {self.one.named(guess.value)}")
        for control in self.controls:
            control.disabled = guess is not None and guess.right is not None

    def _guess(self, value: float) -> None:
        record(self.one.id, value)
        self.refresh()

    def _buttons(self, one: ByChoice) -> list[widgets.Button]:
        buttons = [widgets.Button() for _ in one.choices]
        for index, button in enumerate(buttons):
            button.on_click(lambda _, index=index: self._guess(index))
        return buttons

    def _field(self) -> widgets.Text:
        field = widgets.Text(placeholder="a number, then Enter", continuous_update=False)
        field.observe(self._read, names="value")
        return field

    def _read(self, change: dict[str, Any]) -> None:
        guess = guesses.get(self.one.id)
        if change["new"] == ("" if guess is None else self.one.named(guess.value)):
            return  # put there by refresh
        value = _as_number(change["new"])
        if math.isnan(value):
            self._say("Write a number, such as 3 or 0.5.")
        else:
            self._guess(value)

    def _mark(self, value: float | None) -> None:
        """Mark the guess by a sign and not by a colour: it is seen in every theme, and read out."""
        for index, control in enumerate(self.controls):
            if isinstance(self.one, ByChoice):
                sign = "◉" if index == value else "○"
                control.description = f"{sign} {self.one.named(index).replace('`', '')}"
            elif value is not None:
                control.value = self.one.named(value)

    def _say(self, text: str) -> None:
        self.said.value = f"<div aria-live='polite' style='{_TEXT}'>{marked_up(text)}</div>"

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**options)
        line = f"<div style='{_TEXT};opacity:.8;font-style:italic'>{WITHOUT_KERNEL}</div>"
        text, page = f"{as_text(self.one)}\n    ({WITHOUT_KERNEL})", as_html(self.one) + line
        return bundle | {"text/plain": text, "text/html": page}


def _as_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
