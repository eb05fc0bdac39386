"""The predictions of lesson 11."""

from __future__ import annotations

from hooklab.course.exercises.predict import Choice, prediction

a_copied_hook = prediction(
    "11.a",
    "A forward hook appends to the list `calls`. You copy the model, remove the hook of the original by its handle, "
    "and run the copy once. How many entries has `calls`?",
    Choice(
        "none: a copy comes without hooks",
        lambda came: came["calls"] == 0 and came["on the copy"] == 0,
        "A hook as something beside the model. It is in a dictionary of the module, and deepcopy copies dictionaries.",
    ),
    Choice(
        "none: the handle has removed it",
        lambda came: came["calls"] == 0 and came["on the copy"] == 1,
        "One hook, in two places. But the handle knows the table that it was made for, and the copy has its own table.",
    ),
    Choice(
        "one: the copy writes into the original's list",
        lambda came: came["calls"] == 1,
        "The table is copied, the function in it is not: deepcopy takes a function as it is, with the list it knows.",
    ),
)

a_late_hook = prediction(
    "11.b",
    "`compiled = torch.compile(model)` has been called once. Now you register a forward hook on a layer of `model` "
    "that returns sevens. What do `compiled(x)` and `model(x)` give?",
    Choice(
        "both give sevens",
        lambda came: came == [True, True],
        "They share their layers, and the hook is on the layer. But the compiled call does not run the layer any more: "
        "it runs a graph that was recorded before.",
    ),
    Choice(
        "only model(x) gives sevens",
        lambda came: came == [False, True],
        "The graph was recorded when there was no hook, and nobody asks whether one has come.",
    ),
    Choice(
        "an error: the model has changed since it was compiled",
        lambda came: False,
        "torch.compile does guard much of what it has seen, and records anew when it has changed. To keep the guards "
        "cheap, empty hook tables are not among them.",
    ),
)

which_gradient = prediction(
    "11.c",
    "Two processes train one weight with DistributedDataParallel. The gradient from process 0's data is 1, "
    "from process 1's it is 3; the optimizer gets 2 in both. What does process 0 see in a tensor hook on the weight, "
    "and what in `p.grad` in a post-accumulate hook?",
    Choice(
        "1 and 2: the averaging is done when the gradient is accumulated",
        lambda came: came == [1.0, 2.0],
        "A post-accumulate hook as the last thing of all. DDP is behind it: it averages when the last gradient of a "
        "whole bucket of parameters is there.",
    ),
    Choice(
        "2 and 2: DDP averages before anybody sees the gradient",
        lambda came: came == [2.0, 2.0],
        "DDP as a part of autograd. It is a hook as yours is, on the node that accumulates, and it runs after yours.",
    ),
    Choice(
        "1 and 1: neither sees the average",
        lambda came: came == [1.0, 1.0],
        "Both run before the processes have talked. The average is there when backward() has returned.",
    ),
)

a_hundredth = prediction(
    "11.d",
    "Three networks learn to read digits in two processes. One sends every number of its gradients; one the largest "
    "hundredth, and forgets the rest; one the largest hundredth, and keeps the rest for the next step. After five "
    "epochs, who is far behind?",
    Choice(
        "both that send a hundredth: the rest of the gradient is missing",
        lambda came: _behind(came, "1 % with feedback") and _behind(came, "1 % without"),
        "What is not sent as lost. With a memory it is not lost: it comes later.",
    ),
    Choice(
        "nobody: the largest numbers are those that count",
        lambda came: not _behind(came, "1 % with feedback") and not _behind(came, "1 % without"),
        "A gradient as a list of which the top is enough. But the same few are the largest in every step, and the "
        "other weights never move.",
    ),
    Choice(
        "only the one that forgets",
        lambda came: not _behind(came, "1 % with feedback") and _behind(came, "1 % without"),
        "The rest adds up until it is among the largest, so that every weight gets its turn.",
    ),
    Choice(
        "the one that keeps the rest most of all: it steps along gradients that are old",
        lambda came: came["1 % with feedback"] < came["1 % without"] - 0.02,
        "An old gradient as a wrong one. Weights move little in a few steps, and so do gradients.",
    ),
)


def _behind(came: dict[str, float], way: str) -> bool:
    return came[way] < max(came.values()) - 0.1
