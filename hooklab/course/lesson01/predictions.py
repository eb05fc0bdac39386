"""The predictions of lesson 1."""

from __future__ import annotations

from hooklab.course.exercises.predict import Choice, number, prediction

gradient_of_y = prediction(
    "1.a",
    "`y.grad` is None. The hook on y appends each gradient that it is given to a list. What will be in the list?",
    Choice(
        "nothing: only gradients of leaves are computed",
        lambda came: came == [],
        "What is not kept was never there. But x's gradient is computed from y's: without one there is not the other.",
    ),
    Choice(
        "[3, 5]",
        lambda came: came == [[3.0, 5.0]],
        "The gradient of y passes y on its way to x, and nobody keeps it, unless a hook does.",
    ),
    Choice(
        "None, the same as `y.grad`",
        lambda came: came == [None],
        "The hook as a look at `.grad`. It is given the gradient itself, before anybody could store it.",
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
    "Forty layers, and twenty of these long skips. Each time a hook is called, how many of the forty gradients does it "
    "find in memory, at most?",
    {
        1: "As in the chain: passed on and let go. But a gradient that goes back along a skip as well must wait at its "
        "other end, until the pass has come that far.",
        2: "One for each way back at a fork. There are twenty forks, and at each of them one is waiting.",
        20: "Half-way, each of the first twenty layers has a gradient waiting for it, the one from its skip.",
        40: "All are kept until `backward()` is over. That is what `retain_grad()` on each would do.",
    },
    otherwise="Count the gradients that have been made and are still needed: half-way, twenty skips have each brought "
    "one back to a layer whose turn has not come.",
)
