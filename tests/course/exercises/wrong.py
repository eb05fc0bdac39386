"""How a named wrong answer is written down: the function that is wrong, its exercise, and what the check must say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Wrong:
    """A wrong answer: `says` must stand in the check's text (its summary or one of its details)."""

    id: str
    says: str
    answer: Any


def wrong(id: str, says: str) -> Callable[[Any], Wrong]:
    """Name a wrong answer of exercise `id`."""
    return lambda answer: Wrong(id, says, answer)


def wrong_answers(module: ModuleType) -> list[Wrong]:
    """Return the wrong answers of a module, in the order in which they are written."""
    return [value for value in vars(module).values() if isinstance(value, Wrong)]
