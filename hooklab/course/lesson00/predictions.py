"""The prediction of the start page."""

from __future__ import annotations

from hooklab.course.exercises.predict import Choice, prediction

which_runs_first = prediction(
    "0.a",
    "On the way back, a linear layer has a hook of its own, and its weight has one for when its gradient is ready. "
    "The layer's hook was registered first. Which of the two runs first?",
    Choice(
        "the layer's",
        lambda order: order == ["layer", "weight"],
        "The layer as a box around its weight, which the gradient enters before it reaches what is inside. But this "
        "hook waits until the layer's work is done, on the other side of the box.",
    ),
    Choice(
        "the weight's",
        lambda order: order == ["weight", "layer"],
        "The layer's hook reports the gradient of the layer's input; where that wants one, as here, the weight's "
        "gradient is complete before.",
    ),
    Choice(
        "only one of them runs",
        lambda order: len(order) < 2,
        "One gradient, one hook. But every hook on the way is called, at its own place.",
    ),
)
