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
        "You may have pictured the layer as a box, with the gradient entering the box before it reaches the weight "
        "inside; but this hook waits for the gradient of the layer's *input*, on the far side of the box.",
    ),
    Choice(
        "the weight's",
        lambda order: order == ["weight", "layer"],
        "The layer's hook reports the gradient of the layer's input. When the input requires grad, as here, the "
        "weight's gradient is ready before that.",
    ),
    Choice(
        "only one of them runs",
        lambda order: len(order) < 2,
        "You may have thought that one gradient triggers one hook; but the weight and the input each get a gradient, "
        "and each hook runs when its own is ready.",
    ),
)
