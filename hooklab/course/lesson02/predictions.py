"""The predictions of lesson 2."""

from __future__ import annotations

import math

from hooklab.course.exercises.predict import ByNumber, Choice, prediction

who_doubles = prediction(
    "2.a",
    "Each of the three hooks is tried on its own. With which of them is `x.grad` twice as large?",
    Choice(
        "all three",
        lambda came: came == ["first", "second", "third"],
        "You may have thought that computing the double is enough; but `grad = grad * 2` only makes `grad` the name of "
        "a new tensor. The function ends, and that tensor is gone.",
    ),
    Choice(
        "the first and the third",
        lambda came: came == ["first", "third"],
        "The first writes into the gradient itself. The third returns a new tensor, which replaces it. The second "
        "creates a new tensor and doesn't return it, so nothing changes, and there's no error.",
    ),
    Choice(
        "only the third",
        lambda came: came == ["third"],
        "You may have thought that only a returned tensor counts. That's the rule to follow; but `*=` writes into the "
        "gradient itself, which then flows on.",
    ),
    Choice(
        "none",
        lambda came: came == [],
        "You may have thought that a hook can only read, as module hooks did in old releases; but a tensor hook has "
        "always been able to change the gradient.",
    ),
)

what_retain_grad_keeps = prediction(
    "2.b",
    "You call `retain_grad()` first and then register the hook that doubles. What is `y.grad` after the backward pass?",
    Choice(
        "[3, 5]",
        lambda came: came == [3.0, 5.0],
        "You may have thought that `retain_grad()` comes first because you called it first, as in old releases; but "
        "today the order of your calls makes no difference.",
    ),
    Choice(
        "[6, 10]",
        lambda came: came == [6.0, 10.0],
        "`retain_grad()` keeps the gradient after the last hook, whatever the order of your calls. (Read the picture "
        "from right to left, as the gradient flows.)",
    ),
    Choice(
        "[9, 15]: both add up",
        lambda came: came == [9.0, 15.0],
        "You may have expected `.grad` to accumulate both; but `.grad` accumulates from one backward pass to the next, "
        "and this is a single pass.",
    ),
)

hooks_pile_up = ByNumber(
    "2.c",
    "Each of four steps sets `w.grad` to None, registers `third` on `w`, and calls `w.sum().backward()`. Without a "
    "hook, the gradient is 1. What is `w.grad` after the fourth step?",
    {
        2: "You may have thought that a new hook replaces the old one, or that the old one is gone after its pass; but "
        "`w` keeps every hook until its handle removes it.",
        4: "You may have counted four hooks; but each of them doubles what the previous one returned.",
        8: "You may have added up four doubled gradients; but the hooks run one after the other, and each doubles what "
        "the previous one returned.",
        16: "In the fourth step, `w` has four hooks, and each doubles what the previous one returned. In step 100, it "
        "would have a hundred.",
    },
    otherwise="You may have counted differently; but in the fourth step four hooks run, one after the other, and each "
    "doubles what the previous one returned: 2·2·2·2.",
)

gradient_in_the_end = prediction(
    "2.d",
    "The step is far too large, and the network learns nothing. After a hundred steps, how large is the gradient of "
    "the first layer?",
    Choice(
        "huge: it explodes",
        lambda came: came > 1.0,
        "You may have thought that too large a step makes everything grow; but that is true of the first few steps "
        "only.",
    ),
    Choice(
        "NaN",
        lambda came: math.isnan(came),
        "You may have thought that the gradient grows until it overflows and becomes NaN; but it stops growing long "
        "before that.",
    ),
    Choice(
        "small, but not zero",
        lambda came: 0 < came <= 1.0,
        "You may have thought that the network is stuck in a region that is nearly flat; but this region is perfectly "
        "flat.",
    ),
    Choice(
        "exactly zero",
        lambda came: came == 0.0,
        "One of the layers outputs zero for every picture of the data set: that's what the other lines say. Giant "
        "steps have pushed more and more of its neurons below zero, and now all are off. A ReLU that is off for every "
        "picture passes no gradient, so nothing can switch it on again. This network isn't slow. It is dead, and no "
        "further step can help.",
    ),
)
