"""The predictions of lesson 4."""

from __future__ import annotations

from hooklab.course.exercises.predict import Choice, prediction

inverted_digits = prediction(
    "4.a",
    "The network was trained on dark ink and is fed white ink on black paper. How many of the pictures does it read "
    "right?",
    Choice(
        "nearly all: the shapes are the same",
        lambda came: came > 0.8,
        "That is how you and I see it. The filters add up ink with fixed weights; nothing in them knows of shapes.",
    ),
    Choice(
        "about half",
        lambda came: 0.3 < came <= 0.8,
        "Some digits survive, some do not. For that, part of what the filters see would have to stay as it was.",
    ),
    Choice(
        "about one in ten, as by guessing",
        lambda came: 0.02 < came <= 0.3,
        "Nonsense in, random answers out. But the answers are not random: they go against the truth.",
    ),
    Choice(
        "hardly any",
        lambda came: came <= 0.02,
        "Where ink spoke for a digit, paper does now, with the same weights: what was right is voted down.",
    ),
)

in_place_twice = prediction(
    "4.b",
    "The hook doubles in place, the layer multiplies by 3, and the tensor held 2. What does the second call give?",
    Choice("6", lambda came: came == 6.0, "As without the hook, which has done its work. It is still registered."),
    Choice("12", lambda came: came == 12.0, "Each call for itself. But both get the same tensor, and it has changed."),
    Choice("24", lambda came: came == 24.0, "The first call left 4 in the caller's tensor; the second doubles that."),
)

arguments_seen = prediction(
    "4.c",
    "How many arguments are in the hook's `args`, in the first call and in the second?",
    Choice("2 and 2", lambda came: came == [2, 2], "All that was passed. A hook must ask for what is passed by name."),
    Choice(
        "1 and 1", lambda came: came == [1, 1], "The tensor, however it is passed. But the hook sees the call only."
    ),
    Choice("1 and 0", lambda came: came == [1, 0], "Only what is passed by position; in the second call nothing is."),
)
