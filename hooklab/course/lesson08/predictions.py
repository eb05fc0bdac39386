"""The predictions of lesson 8."""

from __future__ import annotations

from hooklab.course.exercises.predict import Choice, prediction

a_branch_not_taken = prediction(
    "8.a",
    "`torch.where(x > 0, x.log(), 0)` at x = 0: the logarithm is not taken, the result is 0. What is the gradient?",
    Choice(
        "0: the branch that is taken is a constant",
        lambda came: came == 0.0,
        "`where` as an `if`, which runs one branch. But both have been computed, and both get a gradient: this one is "
        "0, times the derivative of the logarithm, 1/0 = inf. And 0 · inf is nan.",
    ),
    Choice(
        "inf: the derivative of the logarithm at 0",
        lambda came: came == float("inf"),
        "The derivative is inf, that is true. But `where` sends a 0 into this branch, and 0 · inf is nan.",
    ),
    Choice(
        "nan",
        lambda came: came != came,
        "Both branches are computed, and both get a gradient. The one not taken gets 0, and 0 · inf is nan.",
    ),
    Choice(
        "an error",
        lambda came: came is None,
        "A nan is a number like any other to PyTorch: nothing stops, and that is why it has to be looked for.",
    ),
)

how_much_is_left = prediction(
    "8.b",
    "Patient B has eight sigmoid layers. How large is the gradient at its first layer, beside the one at its last?",
    Choice(
        "about as large",
        lambda share: share > 0.1,
        "So it should be, and in a network that learns it is, within a factor of ten or so.",
    ),
    Choice(
        "about a hundredth",
        lambda share: 1e-4 < share <= 0.1,
        "A sigmoid passes on a quarter at most, and the weights take more of it; but each of eight layers does so.",
    ),
    Choice(
        "less than a ten thousandth",
        lambda share: share <= 1e-4,
        "Each layer passes on a seventh or so, and eight times a seventh is a very small number.",
    ),
)

when_it_dies = prediction(
    "8.c",
    "Channel 0 fires on nearly every digit of the first batch. After 184 steps of training it is dead. In which step "
    "does it fire for the last time?",
    Choice(
        "in one of the first ten",
        lambda last: last < 10,
        "The first steps of Adam move each weight by the whole learning rate, whatever the size of its gradient.",
    ),
    Choice(
        "somewhere in the middle",
        lambda last: 10 <= last < 120,
        "A unit that is of no use is given up little by little: a picture of training as a selection. But it is gone "
        "long before the network has found out who is of use.",
    ),
    Choice(
        "near the end",
        lambda last: last >= 120,
        "Weights that drift, slowly, until it is too far. But the steps are largest at the beginning.",
    ),
)

after_its_death = prediction(
    "8.d",
    "From then on the gradient of channel 0 is exactly 0. Do its weights still move, in the ten steps after?",
    Choice(
        "no: no gradient, no step",
        lambda moved: max(moved) == 0.0,
        "True of plain SGD. Adam steps by a running mean of gradients, and that one is not 0 yet.",
    ),
    Choice(
        "yes, in each of them",
        lambda moved: min(moved) > 0.0,
        "Adam steps by a running mean of past gradients: what killed the channel pushes it on.",
    ),
)
