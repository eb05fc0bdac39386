"""The predictions of lesson 3."""

from __future__ import annotations

from hooklab.course.exercises.predict import Choice, number, prediction

order_of_reports = prediction(
    "3.a",
    "`report` is on the model itself, then on its three layers. In which order are the four called?",
    Choice(
        "the model, then its layers: as they were registered",
        lambda came: came == ["Sequential", "Times", "ReLU", "Times"],
        "You may have thought of one list of hooks that runs from the top; but each module has its own, and runs them "
        "when its own `forward` has returned.",
    ),
    Choice(
        "the layers in their order, then the model",
        lambda came: came == ["Times", "ReLU", "Times", "Sequential"],
        "A module's output is ready when its forward is over, and the model's forward is over last.",
    ),
    Choice(
        "the last layer first, back to the model",
        lambda came: came == ["Times", "ReLU", "Times", "Sequential"][::-1],
        "You may have thought of gradients, which flow from the last layer to the first; but forward hooks follow the "
        "values.",
    ),
)

an_accidental_return = prediction(
    "3.b",
    "The hook is on the first layer. What does the model say of the second input?",
    Choice(
        "(100, 100)",
        lambda came: came == [100.0, 100.0],
        "You may have thought that a hook which only stores something changes nothing; but this one also returns "
        "something.",
    ),
    Choice(
        "(20, 0), as of the first input",
        lambda came: came == [20.0, 0.0],
        "`setdefault` returns what is stored, and the hook returns that. So the first output replaces the second.",
    ),
    Choice(
        "an error",
        lambda came: not isinstance(came, list),
        "You may have read that a hook must not return anything; but that was before PyTorch 1.2.",
    ),
)

channels_nobody_needs = prediction(
    "3.c",
    "Of the sixteen channels of `relu2`, how many can be switched off, each on its own, without changing a single one "
    "of the 1,797 answers?",
    Choice(
        "none: each does its part",
        lambda came: came == 0,
        "You may have thought that training leaves no channel idle; but it has no way to see that one is.",
    ),
    Choice(
        "a few",
        lambda came: 1 <= came <= 4,
        "A cross in the picture marks a channel without which all 1,797 answers stay the same. Most of the others cost "
        "less than one point, some even gain a little. In this network, a single one costs several points.",
    ),
    Choice(
        "about half: networks are redundant",
        lambda came: 5 <= came <= 11,
        "You may have thought that networks are redundant; but nearly every channel decides at least one of 1,797 "
        "answers.",
    ),
    Choice(
        "nearly all: one channel is never decisive",
        lambda came: came >= 12,
        "You may have thought that sixteen of the 256 numbers that the last layer adds up can't decide anything; but "
        "some pictures are close calls.",
    ),
)

hooks_that_run = number(
    "3.d",
    "The model is called once. Seven modules have a hook: the model, the list `blocks`, the two in it, `direct`, "
    "`unused` and `last`. How many of the seven hooks run?",
    {
        4: "The two blocks, `last` and the model itself. `blocks` is a container: nothing calls it, only its children. "
        "`self.direct.forward(x)` goes past `__call__`, which is what runs hooks. And `unused` isn't called in this "
        "pass.",
        5: "You may have thought that `direct` does its work, so its hook runs; but the model calls its `forward`, and "
        "that goes past the code that runs hooks. (Or you counted `blocks`; but nothing calls the list itself.)",
        6: "You may have thought that all but `unused` are on the way; but a hook needs a call, and two of these "
        "modules aren't called.",
        7: "You may have thought that a registered hook runs; but it runs when its module is called, and not before.",
    },
    otherwise="You may have counted another way; but only calls count: go through `forward`, count each "
    "`something(x)`, and add the call of the model itself.",
)
