"""Checks for the exercises of the course: `check(id, answer)` and `progress()`; guesses are in `predict`.

A check looks at what an answer *does*, on models and inputs that it makes itself, and has three outcomes: not
attempted, not yet (with what is missing), correct. `hooklab.course.lessonNN.checks` holds those of lesson NN; a new
one needs the decorator `exercise` and nothing else.
"""

from hooklab.course.exercises.checking import attempt, check, progress

__all__ = ["attempt", "check", "progress"]
