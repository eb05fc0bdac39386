"""The predictions of lesson 7."""

from __future__ import annotations

from hooklab.course.exercises.predict import Choice, number, prediction

before_or_after = prediction(
    "7.a",
    "Two samples, 4 and -4, are mixed with each other, three quarters and one quarter, once before a ReLU and once "
    "after it. What comes out?",
    Choice(
        "the same both times",
        lambda came: came[0] == came[1],
        "You may have thought that mixing and computing can change places, as in a linear layer; but a ReLU has a "
        "bend.",
    ),
    Choice(
        "before: (2, 0), after: (3, 1)",
        lambda came: came == ([2.0, 0.0], [3.0, 1.0]),
        "Before the ReLU, 4 and -4 partly cancel, and the ReLU cuts off what is left below zero. After it, -4 has "
        "become 0, and a 0 takes nothing away. So the place of the mixing matters wherever a network has a bend.",
    ),
    Choice(
        "before: (3, 1), after: (2, 0)",
        lambda came: came == ([3.0, 1.0], [2.0, 0.0]),
        "You may have thought of the ReLU as looking at each sample before the two are mixed; but it does that in the "
        "other case.",
    ),
)

through_detach = prediction(
    "7.b",
    "Both hooks mix three quarters of the sample 1 with a quarter of the sample 5. The gradient of the weight is "
    "computed from this first mixture, once with each hook. What is it?",
    Choice(
        "2 both times",
        lambda came: [one[1] for one in came] == [2.0, 2.0],
        "You may have thought that the values are the same, so the gradients are too; but a gradient also depends on "
        "the path that it can take back.",
    ),
    Choice(
        "2, then 0.75",
        lambda came: [one[1] for one in came] == [2.0, 0.75],
        "¾ · 1 + ¼ · 5 = 2 with the first hook. With the second one, the partner's quarter ends at `detach()`, and ¾ "
        "· 1 is left. The mixed values, and so the loss, are the same: nothing that you print while training shows it.",
    ),
    Choice(
        "2, then 0",
        lambda came: [one[1] for one in came] == [2.0, 0.0],
        "You may have thought that one detached part cuts the whole mixture off; but the sample's own three quarters "
        "still lead back to the weight.",
    ),
    Choice(
        "2, then an error",
        lambda came: len(came) == 1,
        "You may have expected an error, because a detached tensor requires no gradient; but it may be added to one "
        "that does.",
    ),
)

shares_left = number(
    "7.c",
    "A model uses one ReLU twice, and your hook sits on it, with λ = 0.75 and three samples in a ring of partners. "
    "Which share of the first sample is left in its own output?",
    {
        0.5625: "Three quarters of three quarters: the hook belongs to the module, so it mixes at each use. Even the "
        "third sample comes in, and no loss knows about it.",
        0.75: "You may have thought that one hook mixes once; but it belongs to the module, not to a place in the "
        "network, so it runs at each use.",
        0.625: "You may have counted on a quarter of the quarter coming back, as it does with two samples; but in a "
        "ring of three it moves on.",
        0.5: "You may have taken away a quarter twice; but the second time, it's a quarter of what the first one left.",
    },
    otherwise="You may have counted another way; but three quarters remain at each use of the ReLU, and it's used "
    "twice.",
)
