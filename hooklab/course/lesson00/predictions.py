"""The prediction of the start page."""

from __future__ import annotations

from hooklab.course.exercises.predict import Choice, prediction

which_runs_first = prediction(
    "0.a",
    "Below, a linear layer has a backward hook, and its weight has a hook that runs when `weight.grad` is ready. The "
    "layer's hook is registered first. Then we call `backward()`. Which hook runs first?",
    Choice(
        "the layer's",
        lambda order: order == ["layer", "weight"],
        "You may have thought of the layer as a box: the gradient enters the box before it reaches the weight inside. "
        "It does; but the layer's hook waits until the gradient of the layer's input is ready, at the far side.",
    ),
    Choice(
        "the weight's",
        lambda order: order == ["weight", "layer"],
        "The layer's hook waits for the gradient of the layer's input. Here the weight's gradient is complete before "
        "that one.",
    ),
    Choice(
        "only one of them runs",
        lambda order: len(order) < 2,
        "You may have thought that one gradient runs one hook; but every hook on the way runs, each at its own place.",
    ),
)
