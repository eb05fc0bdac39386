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
        "You may have thought that computing the double is enough; but `grad = grad * 2` only gives the name `grad` to "
        "a new tensor. The function ends, and that tensor is gone.",
    ),
    Choice(
        "the first and the third",
        lambda came: came == ["first", "third"],
        "The first writes into the very tensor that flows on, the third returns a new tensor, which replaces it. The "
        "second makes a new tensor and doesn't return it, so nothing changes, and no error says so.",
    ),
    Choice(
        "only the third",
        lambda came: came == ["third"],
        "You may have thought that only a returned tensor counts, and that's the rule to follow; but `*=` writes into "
        "the very tensor that flows on.",
    ),
    Choice(
        "none",
        lambda came: came == [],
        "You may have thought that a hook can only look, as the module hooks of old releases did; but a tensor hook "
        "has always been able to change the gradient.",
    ),
)

what_retain_grad_keeps = prediction(
    "2.b",
    "`retain_grad()` came first, then the hook that doubles. What is `y.grad`?",
    Choice(
        "[3, 5]",
        lambda came: came == [3.0, 5.0],
        "You may have thought that `retain_grad()` was called first, so it keeps the gradient first, as it did in old "
        "releases; but today the order of your calls makes no difference.",
    ),
    Choice(
        "[6, 10]",
        lambda came: came == [6.0, 10.0],
        "`retain_grad()` keeps what flows on after the last hook, whatever the order of your calls: the tensor's own, "
        "final gradient. (Read the picture from right to left, as `backward()` goes. The hook with the coloured frame "
        "changed the gradient, the grey one only looked.)",
    ),
    Choice(
        "[9, 15]: both add up",
        lambda came: came == [9.0, 15.0],
        "You may have expected `.grad` to accumulate both; but it accumulates from one backward pass to the next, and "
        "this is one pass.",
    ),
)

gradient_in_the_end = prediction(
    "2.c",
    "The step is far too large and nothing is learned. After a hundred steps, how large is the gradient that still "
    "arrives at the first layer?",
    Choice(
        "huge: it explodes",
        lambda came: came > 1.0,
        "You may have thought that too large a step makes everything grow; but that is true of the first few steps "
        "only.",
    ),
    Choice(
        "NaN",
        lambda came: math.isnan(came),
        "You may have thought that the gradient grows until it overflows, and then becomes NaN; but it stops growing "
        "long before that.",
    ),
    Choice(
        "small, but not zero",
        lambda came: 0 < came <= 1.0,
        "You may have thought of a network that is stuck near a flat place; but where this one ended up, it is "
        "perfectly flat.",
    ),
    Choice(
        "exactly zero",
        lambda came: came == 0.0,
        "One of the layers outputs zero for every picture, and not only in this batch: that's the second line. Giant "
        "steps have pushed all of its neurons below zero, and a ReLU that is off passes no gradient that could switch "
        "it on again. Such a network isn't slow. It is dead, and no further step can help.",
    ),
)
