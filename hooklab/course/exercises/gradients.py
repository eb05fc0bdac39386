"""Numbers of an answer's."""

from __future__ import annotations

import math
from typing import Any


def close(one: Any, other: float) -> bool:
    """Whether `one` is a number, and near `other`."""
    return isinstance(one, float | int) and math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-6)
