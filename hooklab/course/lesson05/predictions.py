"""The predictions of lesson 5."""

from __future__ import annotations

from hooklab.course.exercises.predict import Choice, prediction

shape_of_grad_input = prediction(
    "5.a",
    "Two rows of three numbers go in, two rows of one number come out, and the gradients travel backwards. Which "
    "shapes are in `grad_input`?",
    Choice(
        "(2, 1): the gradient that comes in from the loss",
        lambda came: came == [(2, 1)],
        "On the way back everything is turned around, so the input of the backward is the gradient of the output. A "
        "fair reading of the name, and the most common one; but both names look at the module from its forward side.",
    ),
    Choice(
        "(2, 3): the gradient of what was put in",
        lambda came: came == [(2, 3)],
        "The names look from the forward side: grad_input belongs to the input, x. One argument, one entry.",
    ),
    Choice(
        "(2, 3), (1, 3) and (1,): of x, of the weight, of the bias",
        lambda came: came == [(2, 3), (1, 3), (1,)],
        "The layer does compute three gradients, and old pages unpack three. But weight and bias were not put in: "
        "they are the layer's own, and their gradients are in `.grad`.",
    ),
)

a_hook_that_only_looks = prediction(
    "5.b",
    "The spare branch is in no loss, and its weight is 1. AdamW takes ten steps, and its weight decay shrinks weights "
    "a little in each. Where is the spare weight afterwards?",
    Choice(
        "at 1, with the hook and without",
        lambda came: came[0] == 1.0 and came[1] == 1.0,
        "A hook that returns nothing changes nothing. That is true of a tensor hook. A module's backward hook comes "
        "with two nodes of its own, and they do something.",
    ),
    Choice(
        "below 1, with the hook and without",
        lambda came: came[0] < 1.0 and came[1] < 1.0,
        "Weight decay shrinks every weight in every step. Every weight that has a gradient: where `.grad` is None, "
        "the optimizer passes by.",
    ),
    Choice(
        "at 1 without the hook, below 1 with it",
        lambda came: came[0] == 1.0 and came[1] < 1.0,
        "With the hook the spare weight has a gradient of 0 instead of none, and weight decay moves what has one.",
    ),
)

who_knows_domain_1 = prediction(
    "5.c",
    "Both networks get the labels of domain 0 only. With the hook, what teaches `domains` to tell the domains apart "
    "teaches the features the opposite. Which network puts nearly all points of domain 1 into the right class?",
    Choice(
        "both: the classes were trained in the same way",
        lambda right: min(right) > 0.9,
        "The hook is on another part, and the classes do not notice. But `classes` reads the features, and what these "
        "hold is decided by both parts.",
    ),
    Choice(
        "the one without the hook: it knows both domains better",
        lambda right: right[0] > 0.9 >= right[1],
        "More information, better answers. But the part that guesses classes may lean on what it knows of the domain, "
        "and it has seen answers in one domain only.",
    ),
    Choice(
        "the one with the hook: it has to do without the domain",
        lambda right: right[1] > 0.9 >= right[0],
        "What tells the domains apart is lost to the features, so the classes have to do with what both domains share.",
    ),
    Choice(
        "neither: nobody gave a label in domain 1",
        lambda right: max(right) <= 0.9,
        "Without labels nothing is learned. But points of domain 1 have been there all the time: they said what "
        "the two domains have in common.",
    ),
)
