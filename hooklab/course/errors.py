"""error_of: what a call raises, as text, so that a lesson can show an error and continue."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any


def error_of(function: Callable[..., Any], *args: Any) -> str:
    """Call function(*args) without its warnings; return the type and first line of what it raises, or "no error".

    Example:
        >>> error_of(int, "three")
        "ValueError: invalid literal for int() with base 10: 'three'"
        >>> error_of(int, "3")
        'no error'
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(*args)
    except Exception as error:
        first_line = next(iter(str(error).strip().splitlines()), "")
        return f"{type(error).__name__}: {first_line}"
    return "no error"
