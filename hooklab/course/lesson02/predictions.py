"""The predictions of lesson 2."""

from __future__ import annotations

import math

from hooklab.course.exercises.predict import Choice, prediction

who_doubles = prediction(
    "2.a",
    "Each of the three hooks is tried on its own. For which of them is `x.grad` twice as large?",
    Choice(
        "all three",
        lambda came: came == ["first", "second", "third"],
        "A function that computes the double changes what it was given. But `grad = grad * 2` moves a name to a new "
        "tensor, which nobody gets to see.",
    ),
    Choice(
        "the first and the third",
        lambda came: came == ["first", "third"],
        "One writes into the tensor that flows on, one returns another tensor in its place.",
    ),
    Choice(
        "only the third",
        lambda came: came == ["third"],
        "Only what is returned counts: the rule to live by. But `*=` writes into the very tensor that flows on.",
    ),
    Choice(
        "none",
        lambda came: came == [],
        "A hook is a spectator. Module hooks of old releases were, and tensor hooks never.",
    ),
)

what_retain_grad_keeps = prediction(
    "2.b",
    "`retain_grad()` came first, then the hook that doubles. What is `y.grad`?",
    Choice(
        "[3, 5]",
        lambda came: came == [3.0, 5.0],
        "First come, first served: it was asked before the hook was there. That is how it was in old releases.",
    ),
    Choice(
        "[6, 10]",
        lambda came: came == [6.0, 10.0],
        "`retain_grad()` keeps what flows on, after the last hook, whatever the order in which you asked.",
    ),
    Choice(
        "[9, 15]: both add up",
        lambda came: came == [9.0, 15.0],
        "Two entries into one `.grad`, since gradients accumulate. They do from pass to pass, and this is one pass.",
    ),
)

gradient_in_the_end = prediction(
    "2.c",
    "The step is far too large and nothing is learned. After a hundred steps, how large is the gradient that still "
    "arrives at the first layer?",
    Choice(
        "huge: it explodes",
        lambda came: came > 1.0,
        "Too large a step makes everything grow. It does for the first few steps; then something else happens.",
    ),
    Choice(
        "NaN",
        lambda came: math.isnan(came),
        "What grows without bound becomes infinite, then NaN. The ReLUs are in the way: they switch off before that.",
    ),
    Choice(
        "small, but not zero",
        lambda came: 0 < came <= 1.0,
        "A network that does not learn is near a flat place. It is on one, and perfectly flat.",
    ),
    Choice(
        "exactly zero",
        lambda came: came == 0.0,
        "A layer of ReLUs that is off for every picture puts out zeros, and lets no gradient through.",
    ),
)
