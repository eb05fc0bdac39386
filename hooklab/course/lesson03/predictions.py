"""The predictions of lesson 3."""

from __future__ import annotations

from hooklab.course.exercises.predict import Choice, number, prediction

order_of_reports = prediction(
    "3.a",
    "`report` is on the model itself, then on its three layers. In which order are the four called?",
    Choice(
        "the model, then its layers: as they were registered",
        lambda came: came == ["Sequential", "Times", "ReLU", "Times"],
        "One list of hooks, run from the top. But each module keeps its own, and runs them when it is done itself.",
    ),
    Choice(
        "the layers in their order, then the model",
        lambda came: came == ["Times", "ReLU", "Times", "Sequential"],
        "A module's output is ready when its forward is over, and the model's forward is over last.",
    ),
    Choice(
        "the last layer first, back to the model",
        lambda came: came == ["Times", "ReLU", "Times", "Sequential"][::-1],
        "That is the way of gradients. Forward hooks go with the values.",
    ),
)

an_accidental_return = prediction(
    "3.b",
    "The hook is on the first layer. What does the model say of the second input?",
    Choice(
        "(100, 100)",
        lambda came: came == [100.0, 100.0],
        "A hook that only stores something leaves no trace. It would, if it returned nothing.",
    ),
    Choice(
        "(20, 0), as of the first input",
        lambda came: came == [20.0, 0.0],
        "`setdefault` gives back what is stored, the hook returns it, and so the first output replaces the second.",
    ),
    Choice(
        "an error",
        lambda came: not isinstance(came, list),
        "A hook must not return anything: so it was before 1.2, and old pages still say so.",
    ),
)

channels_nobody_needs = prediction(
    "3.c",
    "Of the sixteen channels of `relu2`, how many can be switched off, each on its own, without changing a single one "
    "of the 1,797 answers?",
    Choice(
        "none: each does its part",
        lambda came: came == 0,
        "Training would not leave a channel idle. It has no way to see that one is.",
    ),
    Choice(
        "a few",
        lambda came: 1 <= came <= 4,
        "Some channels never fire, so that nothing changes without them. The others overlap, but not wholly.",
    ),
    Choice(
        "about half: networks are redundant",
        lambda came: 5 <= came <= 11,
        "Most channels can be spared at a small price. Not one answer in 1,797 is another matter.",
    ),
    Choice(
        "nearly all: one channel is never decisive",
        lambda came: came >= 12,
        "The last layer adds up 256 numbers, what are sixteen of them? Yet some pictures are close calls.",
    ),
)

hooks_that_run = number(
    "3.d",
    "The model is called once. Seven modules have a hook: the model, the list `blocks`, the two in it, `direct`, "
    "`unused` and `last`. How many of the seven hooks run?",
    {
        4: "The two blocks, `last` and the model itself. The others are there, but nobody calls them.",
        5: "`direct` does its work, so its hook runs. But its `forward` is called, and that goes past what runs hooks. "
        "(Or `blocks` is counted: a list, which nobody calls.)",
        6: "All but `unused`: whatever is on the way. But a hook needs a call, and two of these are not called.",
        7: "Registered is registered. But a hook runs when its module is called, and not before.",
    },
    otherwise="Go through `forward` and count the calls, `something(x)`; then add the call of the model itself.",
)
