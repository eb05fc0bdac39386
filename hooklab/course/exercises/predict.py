"""predict and reveal: a guess before the code runs, then compared with what came out.

A lesson's predictions are in `hooklab/course/lessonNN/predictions.py`, each with its choices and reasons:

    two = prediction("1.a", "What is `1 + 1`?", Choice("2", lambda came: came == 2, "why…"), Choice("11", …))
    runs = ByNumber("1.b", "How often does the hook run?", {3: "why…", 1: "the picture behind 1"}, otherwise="…")
"""

from __future__ import annotations

import html
import importlib
import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hooklab.course.exercises.exercise import COURSE
from hooklab.course.exercises.outcome import Outcome, in_notebook, marked_up, show
from hooklab.course.graded import by_nbgrader

_CHANGED = (
    "none of the choices is about that. If you changed the code, that's fine. To score your guess, put the original "
    "numbers back and run the cells again"
)


@dataclass(frozen=True)
class Choice:
    """A choice: its text, whether it matches what came out, and the reason.

    For the right choice `why` says why this is what happens; for a wrong one, "You may have thought …; but …".
    """

    text: str
    fits: Callable[[Any], bool]
    why: str


@dataclass(frozen=True)
class ByChoice:
    """A prediction by choice; a guess is the choice's index."""

    id: str
    question: str
    choices: tuple[Choice, ...]

    def right(self, came: Any) -> int:
        """Return the right guess. Raises ValueError if what came out fits no choice, or several."""
        (fitting,) = [index for index, choice in enumerate(self.choices) if choice.fits(came)]
        return fitting

    def named(self, guess: float) -> str:
        """Return a guess in words."""
        return f"{'abcd'[int(guess)]}) {self.choices[int(guess)].text}"

    def why(self, guess: float) -> str:
        """Return the reason behind a guess."""
        return self.choices[int(guess)].why

    def lines(self) -> list[str]:
        """Return what there is to choose from, a line each."""
        return [self.named(index) for index in range(len(self.choices))]


@dataclass(frozen=True)
class ByNumber:
    """A prediction by number; a guess is the number.

    Args:
        id: lesson number, dot, letter: "1.b".
        question: what is asked.
        reasons: number -> why this is what happens or, for a wrong one, the belief that leads to it.
        otherwise: the reason for every other number.
    """

    id: str
    question: str
    reasons: Mapping[float, str]
    otherwise: str

    def right(self, came: Any) -> float:
        """Return the right guess. Raises ValueError if `reasons` lacks the number that came out."""
        (found,) = [number for number in self.reasons if same_number(number, float(came))]
        return found

    def named(self, guess: float) -> str:
        """Return a guess in words."""
        return f"{guess:.12g}"

    def why(self, guess: float) -> str:
        """Return the reason behind a guess."""
        return next((why for number, why in self.reasons.items() if same_number(number, guess)), self.otherwise)

    def lines(self) -> list[str]:
        """Return what there is to choose from, a line each."""
        return ["a number"]


Prediction = ByChoice | ByNumber


@dataclass
class Guess:
    """What was guessed, and whether it was right: None until `reveal` has told."""

    value: float
    right: bool | None = None


# The guesses of this process by prediction, and what is called when one has been told: it locks the controls.
guesses: dict[str, Guess] = {}
when_told: dict[str, Callable[[], None]] = {}


def prediction(id: str, question: str, *choices: Choice) -> ByChoice:
    """Make a prediction by choice.

    Args:
        id: lesson number, dot, letter: "1.a".
        question: what is asked; what stands between backquotes is code, here as in the choices and reasons.
        choices: two to four; exactly one must fit what comes out.
    """
    return ByChoice(id, question, choices)


def predict(id: str) -> None:
    """Show a question with its choices and keep the reader's guess for `reveal`; say nothing about right or wrong.

    Under a grader (a non-empty NBGRADER_EXECUTION) it does nothing. Raises LookupError for an unknown id.

    Example:
        >>> predict("99.a")
        Traceback (most recent call last):
        LookupError: there is no prediction '99.a'
    """
    if by_nbgrader():
        return
    one = find(id)
    if in_notebook():
        from IPython.display import display

        from hooklab.course.exercises.asking import Question

        display(Question(one))  # type: ignore[no-untyped-call]
    else:
        print(as_text(one))


def reveal(id: str, came: Any) -> None:
    """Say whether the guess was right, and why; without a guess, say so, with the answer folded away.

    Args:
        id: the prediction's id, as given to `predict`.
        came: the value that really came out. A reader may have changed the code above, so it may be anything: what
            fits none of the choices is not scored.

    Raises LookupError for an unknown id.

    Under a grader (a non-empty NBGRADER_EXECUTION) it does nothing.
    """
    if not by_nbgrader():
        one = find(id)
        outcome = held_against(one, came)
        show(str(outcome), outcome.as_html(), right=right_of(one, came))  # the web page reads it from the notebook


def held_against(one: Prediction, came: Any) -> Outcome:
    """Return what `reveal` shows; a guess that was revealed stays as it is."""
    right = right_of(one, came)
    if right is None:
        return Outcome(one.id, "not scored", f"the result is now {reprlib.repr(came)}, and {_CHANGED}")
    why = ("why", one.why(right))
    if one.id not in guesses:
        again = f'to make one, run the cell with `predict("{one.id}")`, choose, and run this cell again'
        answer = (("came out", one.named(right)), why)
        return Outcome(one.id, "no guess", f"none was made, and that is all right; {again}", folded=answer)
    guess = guesses[one.id]
    guess.right = same_number(guess.value, right)
    when_told.get(one.id, lambda: None)()
    if guess.right:
        return Outcome(one.id, "right", f"you said {one.named(right)}, and that is what came out", (why,))
    said = f"you said {one.named(guess.value)}; what came out is {one.named(right)}"
    return Outcome(one.id, "not right", said, (("your guess", one.why(guess.value)), why))


def right_of(one: Prediction, came: Any) -> float | None:
    """Return the guess that is right; None for a value that fits no choice or several, or cannot be asked about."""
    try:
        return one.right(came)
    except Exception:  # of any kind: a reader may have made `came` anything
        return None


def record(id: str, value: float) -> None:
    """Keep a guess; one that was revealed stays as it is."""
    if id not in guesses or guesses[id].right is None:
        guesses[id] = Guess(value)


def predictions_of(lesson: int) -> dict[str, Prediction]:
    """Return a lesson's predictions by id, in their order; none for a lesson without predictions.py."""
    if not (COURSE / f"lesson{lesson:02d}" / "predictions.py").is_file():
        return {}
    module = importlib.import_module(f"hooklab.course.lesson{lesson:02d}.predictions")
    return {one.id: one for one in vars(module).values() if isinstance(one, Prediction)}


def find(id: str) -> Prediction:
    """Return the prediction with this id; LookupError names those of its lesson."""
    lesson = id.partition(".")[0]
    known = predictions_of(int(lesson)) if lesson.isdecimal() else {}
    if id in known:
        return known[id]
    raise LookupError(f"there is no prediction {id!r}" + (f"; there are: {', '.join(known)}" if known else ""))


def counted(lesson: int) -> str:
    """Return how many guesses of a lesson were made and right, as `progress` says it; "" without predictions."""
    ids = list(predictions_of(lesson))
    made = [guesses[id] for id in ids if id in guesses]
    return f"{len(made)} of {len(ids)} guesses made, {sum(one.right is True for one in made)} right" if ids else ""


def as_text(one: Prediction) -> str:
    """Return a question and its choices as plain text: what is stored in the notebook."""
    return "\n".join([f"{one.id} {one.question}", *(f"    {line}" for line in one.lines())])


def as_html(one: Prediction) -> str:
    """Return the same as HTML."""
    lines = "".join(f"<div style='padding-left:1.5em'>{marked_up(line)}</div>" for line in one.lines())
    return f"<div style='color:var(--jp-content-font-color1,inherit)'>{heading(one)}{lines}</div>"


def heading(one: Prediction) -> str:
    """Return the id and the question as HTML."""
    return f"<div><b>{html.escape(one.id)}</b> &nbsp;{marked_up(one.question)}</div>"


def same_number(one: float, other: float) -> bool:
    """Whether two numbers are the same, except for the last digits of a float."""
    return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)
