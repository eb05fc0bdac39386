"""The predictions of lesson 9."""

from __future__ import annotations

from hooklab.course.exercises.predict import Choice, prediction

never_trained = prediction(
    "9.a",
    "A third network has never been trained: all its weights are random. We draw 100 maps of gradient × input. A "
    "shape with the two pixels around it covers about a fifth of its picture. In how many pictures does the map point "
    "at the shape?",
    Choice(
        "about 20",
        lambda came: came < 30,
        "A network that knows nothing looks anywhere, so the share is that of the shape's surface. But the map is "
        "not made of the network alone.",
    ),
    Choice(
        "about 33",
        lambda came: 30 <= came < 45,
        "This is how often it guesses the label: one of three. Where a map points is another question.",
    ),
    Choice(
        "about 60",
        lambda came: 45 <= came < 75,
        "Random convolutions answer to edges and colours too, so half right is a fair guess; the plain gradient of "
        "this network comes out there.",
    ),
    Choice(
        "nearly all 100",
        lambda came: came >= 75,
        "Times input: where the picture is bright, the map is large, whatever the network does. Our shapes are "
        "brighter than their ground, so the map shows the picture.",
    ),
)

heads_off = prediction(
    "9.b",
    "With all heads the model is right at (nearly) every place. Layer 1 has two induction heads. What happens if you"
    " switch off one of them, and what if you switch off both?",
    Choice(
        "one: about half of the answers are lost; both: nearly all",
        lambda came: 0.3 < min(came[:2]) < 0.85 and came[2] < 0.3,
        "Two workers who share the work: each has a half of it. But heads write into one sum, and the largest score "
        "wins: half as much of the right answer is still the most.",
    ),
    Choice(
        "one: hardly anything is lost; both: nearly all",
        lambda came: min(came[:2]) > 0.85 and came[2] < 0.3,
        "Each one alone does the whole work. So a list of heads, each with what is lost without it, would say that "
        "none of them matters.",
    ),
    Choice(
        "only one of the two matters: without it nearly all is lost",
        lambda came: min(came[:2]) < 0.3 < max(came[:2]),
        "The picture of a part for each task. Training has no reason to stop at one head when two are there.",
    ),
    Choice(
        "hardly anything is lost either way",
        lambda came: came[2] >= 0.3,
        "The residual stream passes the heads by, so the rest of the model could know the answer. But no other part "
        "of this model looks at earlier tokens and runs after layer 0.",
    ),
)

where_after_layer_0 = prediction(
    "9.c",
    "The token at position 10 was replaced. Its copy at position 22 now finds no earlier copy, and in many of "
    "the sequences the answer (the token of position 11) is lost. In these: after layer 0, at which position must the "
    "clean run's vector be put in, to bring it back?",
    Choice(
        "10: that is where the token was replaced",
        lambda came: came == 10,
        "After the embedding, this is right. But layer 0 has already carried on what it needs from there.",
    ),
    Choice(
        "11: the token behind the one that was replaced",
        lambda came: came == 11,
        "The heads of layer 0 look one back. So position 11 has been told which token stands before it, and this is "
        "what the induction head looks for.",
    ),
    Choice(
        "22: that is where the answer is wanted",
        lambda came: came == 22,
        "This is right one layer later, when the induction heads have looked. After layer 0 nothing of the answer "
        "has come there yet.",
    ),
    Choice(
        "at no single one: it is spread over several",
        lambda came: came == -1,
        "A fair guess for large models. Here one place is enough, at each depth.",
    ),
)
