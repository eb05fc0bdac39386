"""The predictions of lesson 10."""

from __future__ import annotations

from hooklab.course.exercises.predict import Choice, prediction

order_at_one_place = prediction(
    "10.a",
    "They are registered in this order: node hook, node pre-hook, retain_grad, tensor hook. In which order do the "
    "three hooks run?",
    Choice(
        "as they were registered: node hook, node pre-hook, tensor hook",
        lambda order: order == ["node hook", "node pre-hook", "tensor hook"],
        "True of hooks of one kind on one place. Hooks of different kinds stand in different places.",
    ),
    Choice(
        "tensor hook, node pre-hook, node hook",
        lambda order: order == ["tensor hook", "node pre-hook", "node hook"],
        "The gradient of `y` comes to `y` first, then to the node that made `y`: its pre-hook, its work, its hook.",
    ),
    Choice(
        "node pre-hook, node hook, tensor hook",
        lambda order: order == ["node pre-hook", "node hook", "tensor hook"],
        "As if the tensor came after its node. In the forward it does: the node makes `y`. The backward comes from the "
        "other side, and meets `y` first.",
    ),
    Choice(
        "node pre-hook, tensor hook, node hook",
        lambda order: order == ["node pre-hook", "tensor hook", "node hook"],
        "A pre-hook before everything: that is how module hooks are named. But this one is the node's, and the tensor "
        "hook changes the gradient before the node is given it.",
    ),
)

hook_on_a_leafs_node = prediction(
    "10.b",
    "`w` gets a hook on its node and a tensor hook. Then come two backwards, each through a new graph. How often does "
    "the hook on the node run?",
    Choice(
        "2 times",
        lambda count: count == 2,
        "The node as a part of `w`, which lives as long as `w`. So it would be if the leaf kept its node.",
    ),
    Choice(
        "once",
        lambda count: count == 1,
        "The node as a part of the graph, and the first backward throws that away. Close: but the hook was registered "
        "before there was any graph.",
    ),
    Choice(
        "never",
        lambda count: count == 0,
        "The node was made when you asked for it, nobody kept it, and it was gone, with its hook, at the end of that "
        "line.",
    ),
)

one_checkpoint_round_all = prediction(
    "10.c",
    "One checkpoint round all sixteen layers: the peak of memory over forward and backward, against the peak without?",
    Choice(
        "about one sixteenth",
        lambda share: share < 0.2,
        "Only the input is kept: that is true at the end of the forward. But the peak counts the backward too.",
    ),
    Choice(
        "about half",
        lambda share: 0.2 <= share < 0.8,
        "The forward needs little, the backward much, so half on average: but a peak is no average.",
    ),
    Choice(
        "the same",
        lambda share: 0.8 <= share < 1.2,
        "The second run makes all sixteen outputs again, and the backward needs them all, from the last one on.",
    ),
    Choice(
        "about twice as much",
        lambda share: share >= 1.2,
        "Everything is computed twice, so the time of a forward is added. But the first run's values are gone by then.",
    ),
)
