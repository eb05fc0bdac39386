"""The predictions of lesson 6."""

from __future__ import annotations

from hooklab.course.exercises.predict import Choice, number, prediction

which_line_runs_it = number(
    "6.a",
    "On this one layer, `forward` is replaced by `x * 10` and `__call__` by a function that gives 99. Its hook adds 1. "
    "What does `layer(1.0)` give?",
    {
        11: "Python looks up `__call__` in the class, so the layer's own one is never asked. The class's `__call__` "
        "asks the layer for `forward`, finds the new one, 10, and runs the hook.",
        2: "The layer as its class describes it: the identity and the hook. But `__call__` asks the layer itself for "
        "`forward`, and finds what you have put there.",
        99: "What stands on the object wins over the class. For ordinary methods it does; names with double "
        "underscores Python takes from the class alone.",
        10: "The new `forward` runs, and the hook belonged to the old one. But hooks do not sit in `forward`.",
        100: "The hook runs around whatever you have put on the layer. But that `__call__` is never asked.",
    },
    otherwise="Three parts could have a say: the hook, the new `forward` and the new `__call__`. One is not asked.",
)

removed_in_the_loop = number(
    "6.b",
    "Two forward hooks on one layer. The first removes the second. The layer is called twice. How often does the "
    "second hook run?",
    {
        1: "Before the first of them runs, PyTorch has copied the table: a hook that is removed meanwhile still has "
        "its turn. In the second call it is gone.",
        0: "A table that is read entry by entry, so that what is removed is not found any more. PyTorch reads a copy.",
        2: "A removal that counts for later registrations only. It counts from the next call on.",
    },
    otherwise="There are two calls, and in each the second hook runs once or not at all.",
)

after_an_error = prediction(
    "6.c",
    "A ReLU gets -1 and 5. Its first forward hook raises. Behind it stands a hook with `always_call=True`. What does "
    "that one get as the output?",
    Choice(
        "it does not run: `forward` went well, and the option is for a `forward` that raises",
        lambda got: not got,
        "An option for errors of `forward` alone. It is for everything that can raise in a call: pre-hooks, `forward`, "
        "and the hooks before this one.",
    ),
    Choice(
        "`None`, since the call has failed",
        lambda got: got == [None],
        "A failed call has no output. That is so if `forward` itself or a pre-hook raises; here `forward` is through.",
    ),
    Choice(
        "the real output, 0 and 5",
        lambda got: got == [[0.0, 5.0]],
        "It gets the output as far as it has come, and `forward` had made one before the first hook raised.",
    ),
)
