"""The predictions of lesson 10."""

from __future__ import annotations

from hooklab.course.exercises.predict import Choice, prediction

who_makes_the_nan = prediction(
    "10.a",
    "In the angle's backward pass, the nodes run in the order of the list above. Which of them is the first to return "
    "a NaN?",
    Choice(
        "AcosBackward0",
        lambda name: name == "AcosBackward0",
        "You may have thought of the slope of `acos` at 1, and it is the cause: the slope is infinite. But the node "
        "returns −inf, and an infinity isn't a NaN yet.",
    ),
    Choice(
        "MulBackward0",
        lambda name: name == "MulBackward0",
        "The slope of `acos` at 1 is infinite, so its node returns −inf. MulBackward0 multiplies that by `b`, which "
        "has a 0: and 0 · ∞ is NaN. The node that makes the NaN need not be the one to blame.",
    ),
    Choice(
        "DivBackward0",
        lambda name: name == "DivBackward0",
        "You may have thought of a division by zero; but the norm of `a` is 2, and the NaN is there before.",
    ),
    Choice(
        "LinalgVectorNormBackward0",
        lambda name: name == "LinalgVectorNormBackward0",
        "You may have thought of a norm's slope at the zero vector; but `a` is (2, 0), and the NaN is there before.",
    ),
)

order_at_one_place = prediction(
    "10.b",
    "They are registered in this order: node hook, node pre-hook, `retain_grad()`, tensor hook. In which order do the "
    "three hooks run?",
    Choice(
        "in the order of registration: node hook, node pre-hook, tensor hook",
        lambda order: order == ["node hook", "node pre-hook", "tensor hook"],
        "You may have thought of the order of registration, and for hooks of one kind it does decide; but hooks of "
        "different kinds have different places.",
    ),
    Choice(
        "tensor hook, node pre-hook, node hook",
        lambda order: order == ["tensor hook", "node pre-hook", "node hook"],
        "The kind decides, not the order of registration. The gradient reaches `y` first: its tensor hooks run, and "
        "`retain_grad()` stores the result. Then the gradient reaches the node that made `y`: its pre-hook runs, the "
        "node computes, its hook runs. (The picture goes on to `x`. Read it from right to left.)",
    ),
    Choice(
        "node pre-hook, node hook, tensor hook",
        lambda order: order == ["node pre-hook", "node hook", "tensor hook"],
        "You may have thought that the tensor comes after its node, and in the forward pass it does; but the backward "
        "pass comes from the other side and reaches `y` first.",
    ),
    Choice(
        "node pre-hook, tensor hook, node hook",
        lambda order: order == ["node pre-hook", "tensor hook", "node hook"],
        "You may have thought that a pre-hook comes before everything, as with modules; but this is the node's "
        "pre-hook, and the tensor hook runs before the node gets the gradient.",
    ),
)

hook_on_a_leafs_node = prediction(
    "10.c",
    "`w` has a hook on its node and a tensor hook. Two backward passes follow, each through a new graph. How many "
    "times does the node's hook run?",
    Choice(
        "twice",
        lambda count: count == 2,
        "You may have thought that the node belongs to `w` and lives as long as `w` does; but a leaf doesn't keep its "
        "node alive.",
    ),
    Choice(
        "once",
        lambda count: count == 1,
        "You may have thought that the first backward pass frees the node together with its graph, and graphs do own "
        "the node; but when you registered the hook, no graph existed yet.",
    ),
    Choice(
        "never",
        lambda count: count == 0,
        "A leaf doesn't own its node. The graphs that end in the leaf do. `get_gradient_edge(w)` created a node "
        "before any graph existed. Nothing kept it, so it was freed at the end of that line, and the hook with it. "
        "Each forward pass then created a new node. The tensor hook survives, because it's stored on `w` itself: "
        "autograd puts it on every new node.",
    ),
)

one_checkpoint_round_all = prediction(
    "10.d",
    "With one checkpoint around all sixteen layers, how high is the peak of memory over both passes, compared with "
    "the peak without a checkpoint?",
    Choice(
        "about one sixteenth",
        lambda share: share < 0.2,
        "You may have thought that only the input is kept. At the end of the forward pass that's true; but the peak "
        "includes the backward pass.",
    ),
    Choice(
        "about half",
        lambda share: 0.2 <= share < 0.8,
        "You may have thought that the forward pass needs little and the backward pass much, so about half on "
        "average; but a peak isn't an average.",
    ),
    Choice(
        "the same",
        lambda share: 0.8 <= share < 1.2,
        "The second run computes all sixteen outputs again, and the backward pass needs them all, starting with the "
        "last. It's the same mountain of memory, only later.",
    ),
    Choice(
        "about twice as much",
        lambda share: share >= 1.2,
        "You may have thought that everything is computed twice. That does cost the time of a forward pass; but the "
        "first run's values are gone by then.",
    ),
)
