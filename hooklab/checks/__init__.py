"""Checks for the exercises of the course: `check(id, answer)` and `progress()`.

A check looks at what an answer *does*, on models and inputs that it makes itself, and has three outcomes: not
attempted, not yet (with what is missing), correct. `hooklab.checks.lessonNN` holds the checks of lesson NN; a new one
needs the decorator `exercise` and nothing else.
"""

from hooklab.checks.running import attempt, check, progress

__all__ = ["attempt", "check", "progress"]
