"""The predictions of lesson 1."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from hooklab.course.exercises.predict import Choice, number, prediction


def _is(value: Any, numbers: list[float]) -> bool:
    return isinstance(value, Tensor) and value.flatten().tolist() == numbers


gradient_of_y = prediction(
    "1.a",
    "`x.grad` is [3, 5] after `z.backward()`. And `y.grad`?",
    Choice(
        "[3, 5] as well",
        lambda came: _is(came, [3.0, 5.0]),
        "The gradient of y is [3, 5], and every tensor has a place to keep its own. The first half is right; but only "
        "x keeps it.",
    ),
    Choice(
        "`None`",
        lambda came: came is None,
        "y was computed, not made by you: its gradient was passed on to x and kept nowhere.",
    ),
    Choice(
        "[0, 0]",
        lambda came: _is(came, [0.0, 0.0]),
        "A gradient that was used up. But nobody has written into `y.grad` at all, not even zeros.",
    ),
    Choice(
        "an error",
        lambda came: isinstance(came, Exception),
        "The oldest document says so, and on old releases you may have met one. Today it is a warning.",
    ),
)

hook_at_a_fork = prediction(
    "1.b",
    "Both `s = y**2` and `t = 3 * y` use y, and `z = s + t`. Gradients of 6 and 3 come back to y = 3. What does a hook "
    "on y see?",
    Choice(
        "two calls, with 6 and with 3",
        lambda came: sorted(came) == [3.0, 6.0],
        "One call for each arrow that leads back to y. But autograd waits at y until all of them have arrived.",
    ),
    Choice(
        "one call, with 9",
        lambda came: came == [9.0],
        "The gradient of y is what z does when y moves, and y moves both s and t: the two add up, then the hook runs.",
    ),
    Choice(
        "one call, with the one that came last",
        lambda came: came in ([3.0], [6.0]),
        "A place with room for one number, overwritten by the next. Autograd adds instead.",
    ),
)

gradients_at_once = number(
    "1.c",
    "Forty layers in a chain: forty gradients are made on the way back. How many of them are in memory at the same "
    "time, at most?",
    {
        1: "Each gradient is needed once: to make the next. Then it is let go.",
        2: "One that is being read and one that is being made. For a moment there are two; but when a hook is called, "
        "its gradient is the only one.",
        40: "All are kept until `backward()` is over. That is what `retain_grad()` on each would do.",
    },
    otherwise="A number that grows with the depth would mean that gradients are kept for later. In a chain nobody "
    "needs them later.",
)
