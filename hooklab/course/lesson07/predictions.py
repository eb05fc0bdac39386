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
        "True of a linear layer: there, mixing and computing change places. A ReLU has a bend.",
    ),
    Choice(
        "before: (2, 0), after: (3, 1)",
        lambda came: came == ([2.0, 0.0], [3.0, 1.0]),
        "Before it, 4 and -4 partly cancel, and the ReLU cuts off what is left below zero. After it, -4 has become 0, "
        "and a 0 takes nothing away.",
    ),
    Choice(
        "before: (3, 1), after: (2, 0)",
        lambda came: came == ([3.0, 1.0], [2.0, 0.0]),
        "For that, the ReLU would have to look at each sample before the two are mixed. It does so in the other case.",
    ),
)

through_detach = prediction(
    "7.b",
    "One of two hooks mixes with `out[indices]`, the other with `out[indices].detach()`. What differs?",
    Choice(
        "the mixed values",
        lambda came: came[0][0] != came[1][0],
        "`detach()` changes no number. It makes a tensor with the same values and no graph behind it.",
    ),
    Choice(
        "the gradient of the layer's weight",
        lambda came: came[0][0] == came[1][0] and came[0][1] != came[1][1],
        "The values are the same, so the loss is too. But the partner's share of the gradient ends at `detach()`.",
    ),
    Choice(
        "nothing",
        lambda came: came[0] == came[1],
        "Nothing that you would print while training. The layer before the mixture knows better.",
    ),
)

shares_left = number(
    "7.c",
    "A model uses one ReLU twice, and your hook sits on it, with λ = 0.75 and three samples in a ring of partners. "
    "Which share of the first sample is left in its own output?",
    {
        0.5625: "Three quarters of three quarters: the hook belongs to the module, so it mixes at each use.",
        0.75: "One hook, one mixture? A hook belongs to the module, not to a place in the net: it runs at each use.",
        0.625: "The share with two samples: a quarter of the quarter comes back. In a ring of three it goes on.",
        0.5: "Twice a quarter less. But the second quarter is taken from what the first one left.",
    },
    otherwise="Three quarters of it stay at each use of the ReLU, and it is used twice.",
)
