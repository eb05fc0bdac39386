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
        "You may have thought that a network which knows nothing looks anywhere, so the share is that of the shape's "
        "area; but the map isn't made from the network alone.",
    ),
    Choice(
        "about 33",
        lambda came: 30 <= came < 45,
        "You may have thought of how often it guesses the label, one of three; but where a map points is another "
        "question.",
    ),
    Choice(
        "about 60",
        lambda came: 45 <= came < 75,
        "You may have thought that random convolutions answer to edges and colours too, and the plain gradient of this "
        "network does come out there; but this map is multiplied by the input.",
    ),
    Choice(
        "nearly all 100",
        lambda came: came >= 75,
        "Times input: where the picture is bright, the map is large, whatever the network does. Our shapes are "
        "brighter than their background, so the map shows the picture. Anyone would have found it convincing.",
    ),
)

heads_off = prediction(
    "9.b",
    "With all heads the model is right at (nearly) every place. Layer 1 has two induction heads. What happens if you"
    " switch off one of them, and what if you switch off both?",
    Choice(
        "one: about half of the answers are lost; both: nearly all",
        lambda came: 0.3 < min(came[:2]) < 0.85 and came[2] < 0.3,
        "You may have thought that two heads share the work; but they write into one sum, and the largest score wins: "
        "half as much of the right answer is still the most.",
    ),
    Choice(
        "one: hardly anything is lost; both: nearly all",
        lambda came: min(came[:2]) > 0.85 and came[2] < 0.3,
        "Each of the two does the whole job alone. If you had listed for each head what is lost without it, you would "
        'have crossed out both. "It isn\'t needed" doesn\'t mean "it does nothing": what is there twice hides from '
        "anyone who switches off one thing at a time. Layer 0 is no different: without both heads nearly all is lost, "
        "but either one may go.",
    ),
    Choice(
        "only one of the two matters: without it nearly all is lost",
        lambda came: min(came[:2]) < 0.3 < max(came[:2]),
        "You may have thought of one part for each task; but training has no reason to stop at one head when there are "
        "two.",
    ),
    Choice(
        "hardly anything is lost either way",
        lambda came: came[2] >= 0.3,
        "You may have thought that the residual stream carries the answer past the heads; but no other part of this "
        "model looks at earlier tokens after layer 0.",
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
        "You may have thought of the place of the damage, and after the embedding that's right; but layer 0 has "
        "already carried on what it needs from there.",
    ),
    Choice(
        "11: the token behind the one that was replaced",
        lambda came: came == 11,
        "The picture shows the share of lost answers that a patch brings back. At each depth one single place is "
        "enough, and it moves: 10, 11, 22. The heads of layer 0 look one back, so position 11 holds which token comes "
        "before it. Layer 1, at position 22, looks for the position that comes after the present token, finds 11, and "
        "fetches what is there.",
    ),
    Choice(
        "22: that is where the answer is wanted",
        lambda came: came == 22,
        "You may have thought of the place where the answer is needed, and one layer later that's right; but after "
        "layer 0 nothing of the answer has arrived there yet.",
    ),
    Choice(
        "at no single one: it is spread over several",
        lambda came: came == -1,
        "You may have thought of large models, where that is often so; but here one place is enough, at each depth.",
    ),
)
