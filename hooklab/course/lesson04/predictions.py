"""The predictions of lesson 4."""

from __future__ import annotations

from hooklab.course.exercises.predict import Choice, prediction

inverted_digits = prediction(
    "4.a",
    "The network was trained on dark ink. Now it gets white ink on black paper. How many of these pictures does it "
    "read correctly?",
    Choice(
        "nearly all: the shapes are the same",
        lambda came: came > 0.8,
        "You may have thought that the shapes are the same, as you and I see them; but the filters add up ink with "
        "fixed weights, and nothing in them knows about shapes.",
    ),
    Choice(
        "about half",
        lambda came: 0.3 < came <= 0.8,
        "You may have thought that some digits survive; but for that, part of what the filters see would have to stay "
        "the same.",
    ),
    Choice(
        "about one in ten, as by guessing",
        lambda came: 0.02 < came <= 0.3,
        "You may have thought that nonsense gives random answers; but these aren't random: they go against the truth.",
    ),
    Choice(
        "hardly any",
        lambda came: came <= 0.02,
        "It's worse than guessing. The weights count ink as evidence for a digit, and now the ink is everywhere the "
        "digit isn't. So the evidence speaks against the right answer.",
    ),
)

in_place_twice = prediction(
    "4.b",
    "The pre-hook doubles its argument in place and returns nothing. `triple` multiplies by 3. It's called twice with "
    "the same tensor, which holds 2. What do the two calls give?",
    Choice(
        "6 and 6",
        lambda came: came == [6.0, 6.0],
        "You may have thought that a hook which returns nothing changes nothing; but this one writes into the tensor "
        "that `forward` gets.",
    ),
    Choice(
        "12 and 12",
        lambda came: came == [12.0, 12.0],
        "You may have thought that the two calls are independent; but both get the same tensor, and the first call "
        "has changed it.",
    ),
    Choice(
        "12 and 24",
        lambda came: came == [12.0, 24.0],
        "The first call leaves 4 in the caller's tensor, and the second call doubles that. The caller's tensor holds 8 "
        "afterwards. Return a new tensor instead.",
    ),
)

arguments_by_name = prediction(
    "4.c",
    "The pre-hook doubles everything in `args`. `times` returns `x * factor`, with x = 2 and factor = 5. What do the "
    "two calls give?",
    Choice(
        "20 and 20: x is doubled in both",
        lambda came: came == [20.0, 20.0],
        "You may have thought that the hook gets `x` however it is passed; but `args` holds only what was passed by "
        "position.",
    ),
    Choice(
        "20 and 10: x is doubled in the first call only",
        lambda came: came == [20.0, 10.0],
        "In the second call everything is passed by name, so `args` is empty. The hook runs, doubles nothing, and no "
        "error says so.",
    ),
    Choice(
        "40 and 40: x and factor are both doubled",
        lambda came: came == [40.0, 40.0],
        "You may have thought that the hook gets all arguments; but a hook has to ask for those passed by name.",
    ),
    Choice(
        "20, then an error: the hook has nothing to double",
        lambda came: len(came) == 1,
        "You may have expected an error because `args` is empty; but the hook returns an empty tuple, and that's "
        "allowed: it replaces no argument.",
    ),
)

third_digit = prediction(
    "4.d",
    "The top four rows come from another digit, the other four from the first. How many of these pictures does the "
    "network read as a third digit, which is in neither half?",
    Choice(
        "hardly any: one of the two digits wins",
        lambda came: came <= 0.05,
        "You may have thought that the network picks the stronger half; but it doesn't know about halves. It adds up "
        "evidence from the whole picture, and that can fit a third digit best.",
    ),
    Choice(
        "about one in ten",
        lambda came: 0.05 < came <= 0.2,
        "You may have thought that a third digit needs an unlucky pair; but it isn't rare at all: the strokes of two "
        "halves often fit together.",
    ),
    Choice(
        "about one in three",
        lambda came: 0.2 < came <= 0.5,
        "The two digits get about a third each, and a third digit gets the rest. Evidence from the two halves adds up, "
        "and often fits a third digit best.",
    ),
    Choice(
        "more than half",
        lambda came: came > 0.5,
        "You may have thought that a mixed picture makes no sense to the network; but each half still gives a lot of "
        "evidence for its own digit.",
    ),
)
