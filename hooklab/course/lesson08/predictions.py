"""The predictions of lesson 8."""

from __future__ import annotations

from hooklab.course.exercises.predict import Choice, prediction

how_much_is_left = prediction(
    "8.a",
    "Patient B has eight sigmoid layers. In the backward pass, a gradient arrives at the last layer first. How much of "
    "it is left at the first layer?",
    Choice(
        "about a hundredth",
        lambda share: share > 1e-3,
        "You may have thought that eight layers take away a little each; but a sigmoid passes on a quarter at most, "
        "and the weights make it smaller still.",
    ),
    Choice(
        "about one part in 65,000: a quarter, eight times over",
        lambda share: 1e-6 < share <= 1e-3,
        "You may have multiplied eight quarters, the most that eight sigmoids can pass on; but the gradient goes "
        "through the weights as well, and they are small.",
    ),
    Choice(
        "less than a millionth",
        lambda share: 0 < share <= 1e-6,
        "Each layer passes on a small part: the sigmoid at most a quarter, and the weights less still. After eight "
        "layers next to nothing is left: the gradient vanishes. The last layers learn to guess, and the first ones "
        "stand still.",
    ),
    Choice(
        "nothing: it is exactly 0",
        lambda share: share == 0,
        "You may have thought of the dead ReLUs of patient A; but a sigmoid has a slope everywhere, however small.",
    ),
)

when_it_dies = prediction(
    "8.b",
    "Channel 0 fires on nearly every digit of the first batch. After 184 training steps it is dead. In which step did "
    "it fire for the last time?",
    Choice(
        "in one of the first ten",
        lambda last: last < 10,
        "After five steps, a channel that fired everywhere is dark for the rest of the training. Adam's first steps "
        "move each weight by nearly the whole learning rate, however small its gradient is. If most weights of a unit "
        "are pushed down together, it's soon below zero for every digit.",
    ),
    Choice(
        "somewhere in the middle",
        lambda last: 10 <= last < 120,
        "You may have thought that training gives up a useless unit little by little; but this one is dead long "
        "before the network has found out which units are useful.",
    ),
    Choice(
        "near the end",
        lambda last: last >= 120,
        "You may have thought of weights that drift slowly until they are too far off; but the steps are largest at "
        "the beginning.",
    ),
)

a_branch_not_taken = prediction(
    "8.c",
    "`y = torch.where(x > 0, x.log(), 0)`. At x = 0, `where` picks the 0 and not the logarithm, so y is 0. What is "
    "the gradient of y there?",
    Choice(
        "0: `where` picks a constant",
        lambda came: came == 0.0,
        "You may have thought of `where` as an `if` that runs one branch; but both branches were computed, and both "
        "get a gradient.",
    ),
    Choice(
        "inf: the derivative of the logarithm at 0",
        lambda came: came == float("inf"),
        "You may have thought of the derivative, which is inf; but `where` sends a gradient of 0 into this branch.",
    ),
    Choice(
        "nan",
        lambda came: came != came,
        "Both branches are computed, and both get a gradient. The logarithm's is 0, because `where` didn't pick it. "
        "It's multiplied by the derivative of the logarithm, 1/0 = inf. And 0 · inf is nan.",
    ),
    Choice(
        "an error",
        lambda came: came is None,
        "You may have expected an error; but to PyTorch a nan is a number like any other. Nothing stops, and that's "
        "why you have to look for it.",
    ),
)

after_its_death = prediction(
    "8.d",
    "From that step on, the gradient of channel 0 is exactly 0. What do its weights do in the next ten steps?",
    Choice(
        "they stand still",
        lambda came: came["steps"] == 0,
        "You may have thought that no gradient means no step, and that's true of plain SGD; but Adam steps by a "
        "running mean of past gradients.",
    ),
    Choice(
        "they move once or twice, then stand still",
        lambda came: 0 < came["steps"] < 5,
        "You may have thought that Adam forgets quickly; but its running mean keeps nine tenths of itself in each "
        "step.",
    ),
    Choice(
        "they move in every step",
        lambda came: came["steps"] >= 5 and not came["fires"],
        "Adam steps by a running mean of past gradients. It carries the weights on, in the direction that killed the "
        "channel, long after the gradient (orange) has become 0. The channel stays dead.",
    ),
    Choice(
        "they move until the channel fires again",
        lambda came: came["fires"],
        "You may have thought that a channel whose weights move will come back; but they move on in the direction "
        "that killed it.",
    ),
)
