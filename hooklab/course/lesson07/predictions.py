"""The predictions of lesson 7."""

from __future__ import annotations

from hooklab.course.exercises.predict import ByNumber, Choice, prediction

before_or_after = prediction(
    "7.a",
    "Two samples, 4 and -4, are mixed with each other (three quarters and one quarter), once before a ReLU and once "
    "after it. What are the results?",
    Choice(
        "the same both times",
        lambda came: came[0] == came[1],
        "You may have thought that the order doesn't matter, as in a linear layer; but a ReLU has a bend.",
    ),
    Choice(
        "before: (2, 0), after: (3, 1)",
        lambda came: came == ([2.0, 0.0], [3.0, 1.0]),
        "Before the ReLU, 4 and -4 partly cancel, and the ReLU cuts off what is left below zero. After it, -4 has "
        "become 0, and a 0 takes nothing away. So the place of the mixing matters wherever a network has a bend.",
    ),
    Choice(
        "before: (3, 1), after: (2, 0)",
        lambda came: came == ([3.0, 1.0], [2.0, 0.0]),
        "You may have thought that 'before' is where the ReLU sees each sample by itself; but that's the other case.",
    ),
)

through_detach = prediction(
    "7.b",
    "Both hooks mix three quarters of the sample 1 with a quarter of the sample 5. The gradient of the weight is "
    "computed from this first mixture, once with each hook. What is it?",
    Choice(
        "2 both times",
        lambda came: [one[1] for one in came] == [2.0, 2.0],
        "You may have thought that the values are the same, so the gradients are too; but a gradient also depends on "
        "the graph, and `detach()` cuts a part of it off.",
    ),
    Choice(
        "2, then 0.75",
        lambda came: [one[1] for one in came] == [2.0, 0.75],
        "¾ · 1 + ¼ · 5 = 2 with the first hook. With the second one, the partner's quarter ends at `detach()`, and ¾ "
        "· 1 is left. The mixed values, and so the loss, are the same. Only a gradient shows it.",
    ),
    Choice(
        "2, then 0",
        lambda came: [one[1] for one in came] == [2.0, 0.0],
        "You may have thought that one detached part cuts the whole mixture off; but the sample's own three quarters "
        "still lead back to the weight.",
    ),
    Choice(
        "2, then an error",
        lambda came: len(came) == 1,
        "You may have expected an error, because a detached tensor doesn't require grad; but you can add it to a "
        "tensor that does.",
    ),
)

each_at_its_best = prediction(
    "7.c",
    "At 600 steps, mixup lowers the error by 5 to almost 7 points. Now each of the two, without mixup and with it, "
    "gets its own best number of steps. By how many points does mixup lower the error then?",
    Choice(
        "by about as much: the network and the data are the same",
        lambda gain: gain > 4,
        "You may have thought that the number of steps changes both in the same way; but without mixup, the network "
        "learns the wrong labels by heart after 150 steps, and with mixup it hardly does.",
    ),
    Choice(
        "by 2 to 4 points",
        lambda gain: 2 < gain <= 4,
        "You may have expected that about half of the gain remains; but most of it came from training without mixup "
        "for too long.",
    ),
    Choice(
        "by 1 to 2 points",
        lambda gain: 1 <= gain <= 2,
        "Less than a third of the gain is left. Without mixup, 150 steps are much better than 600, and we had compared "
        "at 600.",
    ),
    Choice(
        "not at all",
        lambda gain: gain < 1,
        "You may have thought that the whole gain was a matter of training time; but a part of it remains.",
    ),
)

shares_left = ByNumber(
    "7.d",
    "A model uses one ReLU twice, and your hook is on it, with λ = 0.75. Each of three samples has the next one as its "
    "partner. Which share of the first sample is left in its own output?",
    {
        0.5625: "Three quarters of three quarters: the hook is on the module, so it mixes at each use. Even the third "
        "sample is in the result now, and the loss doesn't take it into account.",
        0.75: "You may have thought that one hook mixes once; but it belongs to the module, not to a place in the "
        "network, so it runs at each use.",
        0.625: "You may have counted on a quarter of the quarter coming back, as it does with two samples; but in a "
        "ring of three it moves on.",
        0.5: "You may have subtracted a quarter twice; but the second time, it's a quarter of what was left.",
    },
    otherwise="You may have counted another way; but three quarters remain at each use of the ReLU, and it's used "
    "twice.",
)
