"""The predictions of lesson 1."""

from __future__ import annotations

from hooklab.course.exercises.predict import Choice, number, prediction

gradient_of_y = prediction(
    "1.a",
    "`y.grad` is None. The hook on y appends each gradient that it is given to a list. What will be in the list?",
    Choice(
        "nothing: only gradients of leaves are computed",
        lambda came: came == [],
        "You may have thought that a gradient which isn't kept was never computed; but the gradient of `x` is computed "
        "from the gradient of `y`, so it must exist for a moment.",
    ),
    Choice(
        "[3, 5]",
        lambda came: came == [[3.0, 5.0]],
        "The gradient of `y` comes by on its way to `x`, and nothing keeps it. Your hook sees it as it passes.",
    ),
    Choice(
        "None, the same as `y.grad`",
        lambda came: came == [None],
        "You may have thought that the hook looks at `y.grad`; but it gets the gradient itself, whether or not "
        "anything stores it.",
    ),
)

hook_at_a_fork = prediction(
    "1.b",
    "Both `s = y**2` and `t = 3 * y` use `y`, and `z = s + t`. One path sends 6 back to `y`, the other sends 3. What "
    "does a hook on `y` see?",
    Choice(
        "two calls, with 6 and with 3",
        lambda came: sorted(came) == [3.0, 6.0],
        "You may have expected one call for each path back to `y`; but autograd waits at `y` until all paths have "
        "delivered, and calls the hook once.",
    ),
    Choice(
        "one call, with 9",
        lambda came: came == [9.0],
        "Moving `y` moves both `s` and `t`, so the gradient of `y` is the sum of both pieces. In the picture, two "
        "gradients (orange) come back to `y`, and their sum goes on. The hook sees the sum, once. Only the leaf "
        "(green) keeps what arrives.",
    ),
    Choice(
        "one call, with the one that came last",
        lambda came: came in ([3.0], [6.0]),
        "You may have thought that the second piece overwrites the first; but autograd adds them.",
    ),
)

gradients_at_once = number(
    "1.c",
    "In the chain, a hook never finds more than one gradient in memory: its own. With the long skips, how many does a "
    "hook find, at most?",
    {
        1: "You may have thought that every gradient is passed on and freed, as in the chain; but a gradient that also "
        "goes back along a skip has to wait at the other end, until the pass has come that far.",
        2: "You may have counted two paths back, the layer and its skip; but many skips wait at the same time.",
        20: "The last twenty layers each send a gradient back along their skip, where it waits for its layer. In the "
        "middle of the pass, 19 are waiting and one is passing. From then on, each layer uses up the one that waits "
        "for it.",
        21: "You may have counted twenty gradients that wait and one that passes. You're close; but the innermost skip "
        "leads to the very next layer, so at that moment the one that passes is itself the twentieth.",
        40: "You may have thought that all gradients are kept until `backward()` returns; but they are freed as soon "
        "as no skip and no layer needs them. (Calling `retain_grad()` on every output would keep them all.)",
    },
    otherwise="You may have counted another way; but what counts is which gradients have been computed and are still "
    "needed: in the middle of the pass, nearly every skip holds one that waits for its layer.",
)
