"""The predictions of lesson 6."""

from __future__ import annotations

from hooklab.course.exercises.predict import ByNumber, Choice, prediction

which_line_runs_it = ByNumber(
    "6.a",
    "This layer gets a new `forward`, which returns `x * 10`, and a new `__call__`, which returns 99. Its hook adds 1. "
    "What does `layer(1.0)` give?",
    {
        11: "Python looks up `__call__` in the class, so the 99 on the layer is never used. The class's `__call__`, "
        "`nn.Module.__call__`, looks up `forward` on the layer, finds your `x * 10`, and runs the hook around it.",
        2: "You may have thought that the layer is still the identity, with a hook; but `__call__` looks up `forward` "
        "on the layer itself, and finds yours.",
        99: "You may have thought that an attribute of the object wins over the class, as for ordinary methods; but "
        "Python takes `__call__` from the class alone.",
        10: "You may have thought that the hook belonged to the old `forward`; but it isn't `forward` that runs hooks.",
        100: "You may have thought that the hook runs around whatever you set on the layer; but Python never calls "
        "that `__call__`.",
    },
    otherwise="You may have combined the hook, the new `forward` and the new `__call__` in another way; but one of the "
    "three is never used.",
)

removed_in_the_loop = ByNumber(
    "6.b",
    "Two forward hooks on one layer. The first removes the second. The layer is called twice. How many times does "
    "the second hook run?",
    {
        1: "PyTorch copies the table of hooks before the first one runs. A hook that is removed during the call still "
        "has its turn. In the next call it's gone.",
        0: "You may have thought that PyTorch reads the table entry by entry, and doesn't find the second hook any "
        "more; but it loops over a copy.",
        2: "You may have thought that the removal comes too late for both calls; but it works from the next call on.",
    },
    otherwise="You may have counted another way; but there are two calls, and in each the second hook runs once or not "
    "at all.",
)

after_an_error = prediction(
    "6.c",
    "A ReLU gets -1 and 5. Its first forward hook raises. Its second one has `always_call=True`. What does the second "
    "hook get as the output?",
    Choice(
        "it doesn't run: `forward` succeeded, and the option is for a `forward` that raises",
        lambda got: not got,
        "You may have thought that the option is for errors in `forward` alone; but it covers everything that can "
        "raise in a call: pre-hooks, `forward`, and the hooks before this one.",
    ),
    Choice(
        "`None`, since the call has failed",
        lambda got: got == [None],
        "You may have thought that a failed call has no output, and that's true if a pre-hook or `forward` raises; but "
        "here `forward` has returned.",
    ),
    Choice(
        "the real output, 0 and 5",
        lambda got: got == [[0.0, 5.0]],
        "It gets the output as it is at that moment. `forward` had returned one before the first hook raised.",
    ),
)
