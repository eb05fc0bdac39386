"""A prediction as HTML: the question with its choices, and what each of them would mean, folded until one is chosen."""

from __future__ import annotations

from hooklab.course.exercises.outcome import marked_up
from hooklab.course.exercises.predict import ByChoice, Prediction

_NUMBER = (
    '<form hidden><label>Your number <input type="number" step="any" autocomplete="off" required></label> '
    "<button>That is my guess</button></form>"
)


def slug(id: str) -> str:
    """Return the id of a prediction as part of a class or an anchor: "2.a" -> "2-a"."""
    return id.replace(".", "-")


def question(one: Prediction) -> str:
    """Return the question with its choices, of which the page's script makes buttons, or with a field for a number."""
    choices = "".join(f"<li>{marked_up(choice.text)}</li>" for choice in getattr(one, "choices", ()))
    answers = f'<ol class="choices" type="a">{choices}</ol>' if choices else _NUMBER
    asked = f'<p><b class="label">Your guess</b> {marked_up(one.question)}</p>'
    return f'<div class="guess" data-guess="{slug(one.id)}">{asked}{answers}</div>'


def meaning(one: Prediction, right: float) -> str:
    """Return what each choice would mean, folded until the reader has chosen; `right` is what the notebook stores."""
    guesses = range(len(one.choices)) if isinstance(one, ByChoice) else sorted(one.reasons)
    lines = []
    for guess in guesses:
        mark = 'class="right" ' if guess == right else ""
        said = f"<b>{marked_up(one.named(guess))}</b> {marked_up(one.why(guess))}"
        lines.append(f'<li {mark}data-choice="{guess:.12g}">{said}</li>')
    if not isinstance(one, ByChoice):
        lines.append(f"<li><b>any other number</b> {marked_up(one.otherwise)}</li>")
    return (
        f'<details class="meaning" data-meaning="{slug(one.id)}"><summary>What each answer would mean</summary>'
        f'<p class="verdict" role="status"></p><ul>{"".join(lines)}</ul></details>'
    )
