"""Scaffolding of lesson 2 that is not its subject."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def error_of(function: Callable[..., Any], *args: Any) -> str:
    """Call function(*args); return the RuntimeError or TypeError that it raised as text, or "no error"."""
    try:
        function(*args)
    except (RuntimeError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"
