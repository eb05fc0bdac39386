"""The predictions of lesson 1."""

from __future__ import annotations

from hooklab.course.exercises.predict import ByNumber, Choice, prediction

gradient_of_y = prediction(
    "1.a",
    "After `backward()`, `y.grad` is None. The hook on `y` appends every gradient that it receives to `grad_list`. "
    "What will be in the list?",
    Choice(
        "nothing: the gradient of `y` is never computed",
        lambda came: came == [],
        "You may have thought that a gradient which isn't kept was never computed; but the gradient of `x` is computed "
        "from the gradient of `y`, so it must exist for a moment.",
    ),
    Choice(
        "[3, 5]",
        lambda came: came == [[3.0, 5.0]],
        "The gradient of `y` is computed, passed on to `x`, and freed. Your hook receives it in between.",
    ),
    Choice(
        "None, the same as `y.grad`",
        lambda came: came == [None],
        "You may have thought that the hook reads `y.grad`; but PyTorch passes it the gradient itself, whether or not "
        "anything keeps it.",
    ),
)

hook_at_a_fork = prediction(
    "1.b",
    "`s = y**2` and `t = 3 * y` both use `y`, and `z = s + t`. In the backward pass, 6 comes back through `s` and 3 "
    "through `t`. What does a hook on `y` see?",
    Choice(
        "two calls, with 6 and with 3",
        lambda came: sorted(came) == [3.0, 6.0],
        "You may have expected one call for each path back to `y`; but autograd waits until the gradients of all paths "
        "have arrived, and calls the hook once.",
    ),
    Choice(
        "one call, with 9",
        lambda came: came == [9.0],
        "Changing `y` changes both `s` and `t`, so the gradient of `y` is the sum of the two. In the picture, 6 and 3 "
        "(orange) come back to `y`, and their sum goes on to `x`. The hook sees the sum, once. Only the leaf `x` "
        "(green) keeps its gradient.",
    ),
    Choice(
        "one call, with the gradient that came last",
        lambda came: came in ([3.0], [6.0]),
        "You may have thought that the second gradient overwrites the first; but autograd adds them.",
    ),
)

gradients_at_once = ByNumber(
    "1.c",
    "In the chain, the hook never counts more than one gradient: the one that has just arrived. How many does it "
    "count, at most, in the network with the long skips?",
    {
        1: "You may have thought that every gradient is freed at once, as in the chain; but a gradient that also goes "
        "back through a skip has to wait until the pass has reached the layer where the skip starts.",
        2: "You may have counted the two paths back, through the layer and through its skip; but many skips wait at "
        "the same time.",
        20: "Each of the last twenty layers sends a gradient back through its skip, and it waits there. In the middle "
        "of the pass (the top of the orange curve), 19 gradients are waiting and one has just arrived. From then on, "
        "each layer uses up the one that waits for it.",
        21: "You may have counted twenty gradients that wait and one that has just arrived. You're close; but the "
        "innermost skip leads to the very next layer, so the gradient that has just arrived is the twentieth.",
        40: "You may have thought that all gradients are kept until `backward()` returns; but each is freed as soon as "
        "no layer and no skip needs it. (With `retain_grad()` on every output, all forty would be kept.)",
    },
    otherwise="You may have counted differently; but what counts is which gradients have been computed and are still "
    "needed. In the middle of the pass, nearly every skip holds one that waits for its layer.",
)
