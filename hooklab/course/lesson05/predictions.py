"""The predictions of lesson 5."""

from __future__ import annotations

from hooklab.course.exercises.predict import Choice, prediction

shape_of_grad_input = prediction(
    "5.a",
    "The input of the layer has the shape (2, 3), its output (2, 1). Which shapes are in the tuple `grad_input`?",
    Choice(
        "(2, 1): the gradient that arrives from the loss",
        lambda came: came == [(2, 1)],
        "You may have thought that in the backward pass, the input is what arrives from the loss, and that's the most "
        "common reading of the name; but both names refer to the forward pass.",
    ),
    Choice(
        "(2, 3): the gradient of x",
        lambda came: came == [(2, 3)],
        "Both names refer to the forward pass. `grad_output` is the gradient of the output: it arrives from the loss. "
        "`grad_input` is the gradient of the input, x: the module computes it and passes it on. "
        "The gradients of the weight and the bias (green) are in neither tuple; you find them in `.grad`.",
    ),
    Choice(
        "(2, 3), (1, 3) and (1,): of x, of the weight, of the bias",
        lambda came: came == [(2, 3), (1, 3), (1,)],
        "You may have thought of the three gradients that the layer computes, which old pages unpack; but weight and "
        "bias aren't inputs. They belong to the layer, and their gradients are in `.grad`.",
    ),
)

a_hook_that_only_looks = prediction(
    "5.b",
    "The loss doesn't use the spare branch, whose weight is 1. AdamW takes ten steps, and in each its weight decay "
    "shrinks the weights a little. What is the spare weight afterwards?",
    Choice(
        "at 1, with the hook and without",
        lambda came: came[0] == 1.0 and came[1] == 1.0,
        "You may have thought that a hook that returns nothing changes nothing, and that's true of a tensor hook; but "
        "a module's backward hook adds two nodes to the graph, and those change something.",
    ),
    Choice(
        "below 1, with the hook and without",
        lambda came: came[0] < 1.0 and came[1] < 1.0,
        "You may have thought that weight decay shrinks every weight in every step; but the optimizer skips a weight "
        "whose `.grad` is None.",
    ),
    Choice(
        "at 1 without the hook, below 1 with it",
        lambda came: came[0] == 1.0 and came[1] < 1.0,
        "Without the hook, the `.grad` of the spare weight is None, and the optimizer skips it. With the hook it is "
        "zero: the hook adds a node before the module, and if a gradient arrives there for one of the inputs, the "
        "node fills in zeros for the others. A weight with a gradient of zero does get weight decay.",
    ),
)

who_knows_domain_1 = prediction(
    "5.c",
    "Both networks see class labels for domain 0 only. Which of them classifies nearly all points of domain 1 "
    "correctly?",
    Choice(
        "both, because their `classes` parts are trained in the same way",
        lambda right: min(right) > 0.9,
        "You may have thought that a hook on `domains` can't affect `classes`; but both read the same features, and "
        "the hook changes how the features are trained.",
    ),
    Choice(
        "the one with your hook",
        lambda right: right[1] > 0.9 >= right[0],
        "The flipped gradient removes from the features whatever distinguishes the two domains, which is how far to "
        "the right a point lies. That helps with the classes of domain 0 and misleads in domain 1. What is left is "
        "the height, and it works in both.",
    ),
    Choice(
        "the one without the hook",
        lambda right: right[0] > 0.9 >= right[1],
        "You may have thought that more information means better answers; but `classes` may rely on features that "
        "depend on the domain, and it has seen labels from one domain only.",
    ),
    Choice(
        "neither, because domain 1 has no labels",
        lambda right: max(right) <= 0.9,
        "You may have thought that nothing can be learned without labels; but the points of domain 1 were in the "
        "training all along, and they showed `features` what the domains have in common.",
    ),
)
