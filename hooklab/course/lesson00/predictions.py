"""The prediction of the start page."""

from __future__ import annotations

from hooklab.course.exercises.predict import Choice, prediction

a_returned_output = prediction(
    "0.a",
    "A second forward hook is put on the layer, with `return 10 * output`. The loss is `y**2`, as before. Above, the "
    "tensor hook saw the gradient 14. What does it see now?",
    Choice(
        "14: the layer has computed its 7, and the hook comes after that",
        lambda gradient: gradient == 14.0,
        "You may have thought that a forward hook comes too late to change anything; but the caller gets what the hook "
        "returns. `y` is 70.",
    ),
    Choice(
        "140",
        lambda gradient: gradient == 140.0,
        "What a forward hook returns replaces the layer's output. So `y` is 70, and the slope of `y**2` is 2·70. The "
        "first hook still saw 7: it ran before the second one.",
    ),
    Choice(
        "1400",
        lambda gradient: gradient == 1400.0,
        "You may have counted the 10 twice, once in `y` and once on the way back. On its way from `y` to the layer, "
        "the gradient is indeed multiplied by 10; but this hook is on `y`, before that.",
    ),
)
