"""A prediction as HTML: the question with its choices, and what each of them would mean, folded until one is chosen."""

from __future__ import annotations

import html

from hooklab.course.exercises.outcome import marked_up
from hooklab.course.exercises.predict import ByChoice, Prediction


def slug(id: str) -> str:
    """Return the id of a prediction as part of a class or an anchor: "2.a" -> "2-a"."""
    return id.replace(".", "-")


def question(one: Prediction) -> str:
    """Return the question and its choices; the page's script makes buttons of them, or a field for a number."""
    if isinstance(one, ByChoice):
        lines = "".join(f'<li data-choice="{n}">{marked_up(choice.text)}</li>' for n, choice in enumerate(one.choices))
        answers = f'<ol class="choices" type="a">{lines}</ol>'
    else:
        answers = '<p class="number">Think of a number.</p>'
    return (
        f'<div class="guess" id="guess-{slug(one.id)}" data-guess="{slug(one.id)}">'
        f'<p class="asked"><span class="label">Your guess</span> {marked_up(one.question)}</p>{answers}</div>'
    )


def meaning(one: Prediction, right: float | None) -> str:
    """Return what each choice would mean, in a block that is folded until the reader has chosen.

    Args:
        one: the prediction.
        right: the choice or number that came out, as the notebook stores it; None marks none.
    """
    reasons = [(n, one.named(n), one.why(n)) for n in _guesses(one)]
    lines = [
        f'<li data-choice="{number:.12g}"{_mark(number == right)}><b>{marked_up(name)}</b> {marked_up(why)}</li>'
        for number, name, why in reasons
    ]
    if not isinstance(one, ByChoice):
        lines.append(f'<li data-choice="other"><b>any other number</b> {marked_up(one.otherwise)}</li>')
    came = "" if right is None else f' data-right="{right:.12g}" data-came="{html.escape(one.named(right))}"'
    return (
        f'<details class="meaning" data-meaning="{slug(one.id)}"{came}><summary>What each answer would mean</summary>'
        f'<p class="verdict" role="status"></p><ul>{"".join(lines)}</ul></details>'
    )


def _guesses(one: Prediction) -> list[float]:
    return list(range(len(one.choices))) if isinstance(one, ByChoice) else sorted(one.reasons)


def _mark(is_right: bool) -> str:
    return ' class="right"' if is_right else ""
