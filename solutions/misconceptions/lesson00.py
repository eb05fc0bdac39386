"""What people get wrong on the start page."""

from typing import Any


def in_place(x):
    x *= 2
    return x


MISCONCEPTIONS: dict[str, dict[str, Any]] = {
    "0.1": {
        "forgotten-return": lambda x: None,
        "in-place": in_place,
        "squared": lambda x: x**2,
        "list-of-numbers": lambda x: [2 * number for number in x.flatten()],
        "summed": lambda x: (2 * x).sum(),
        "adds-two": lambda x: x + 2,
    }
}
