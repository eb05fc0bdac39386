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
        "You may have thought that on the way back the input is what comes from the loss, and that's the most common "
        "reading of the name; but both names look at the module from its forward side.",
    ),
    Choice(
        "(2, 3): the gradient of what was put in",
        lambda came: came == [(2, 3)],
        "Both names look at the module from its forward side. `grad_input` is the gradient of the input, x: the module "
        "computes it and passes it on. `grad_output` is the gradient of the output: on the way back, this one arrives. "
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
    "The spare branch is in no loss, and its weight is 1. AdamW takes ten steps, and its weight decay shrinks weights "
    "a little in each. Where is the spare weight afterwards?",
    Choice(
        "at 1, with the hook and without",
        lambda came: came[0] == 1.0 and came[1] == 1.0,
        "You may have thought that a hook which returns nothing changes nothing, and that's true of a tensor hook; but "
        "a module's backward hook adds two nodes to the graph, and they do something.",
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
        "zero: the hook adds a node before the module, and when a gradient comes back for one of the inputs, that "
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
        "the one without the hook, because its features know more",
        lambda right: right[0] > 0.9 >= right[1],
        "You may have thought that more information means better answers; but `classes` may rely on features that "
        "depend on the domain, and it has seen labels from one domain only.",
    ),
    Choice(
        "the one with the hook, because its features know less",
        lambda right: right[1] > 0.9 >= right[0],
        "The flipped gradient removes from the features whatever distinguishes the two domains: how far to the right a "
        "point lies, which helps with the classes of domain 0 and misleads in domain 1. What is left is the height, "
        "and that works in both.",
    ),
    Choice(
        "neither, because domain 1 has no labels",
        lambda right: max(right) <= 0.9,
        "You may have thought that nothing can be learned without labels; but the points of domain 1 were in the "
        "training all along, and they showed `features` what the domains have in common.",
    ),
)
