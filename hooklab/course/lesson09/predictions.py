"""The predictions of lesson 9."""

from __future__ import annotations

from hooklab.course.exercises.predict import Choice, prediction

never_trained = prediction(
    "9.a",
    "A third network has never been trained, so all of its weights are random. We draw 100 maps of gradient × input. "
    "A shape, with two pixels around it, covers about a fifth of its picture. How many of the 100 maps point at the "
    "shape?",
    Choice(
        "about 20",
        lambda came: came < 30,
        "You may have thought that a network which knows nothing points anywhere, so a fifth of the maps hit by "
        "chance; but the map isn't made from the network alone.",
    ),
    Choice(
        "about 33",
        lambda came: 30 <= came < 45,
        "You may have thought of how often it guesses one of three labels; but the pointing game doesn't ask for a "
        "label.",
    ),
    Choice(
        "about 60",
        lambda came: 45 <= came < 75,
        "You may have thought that random convolutions respond to edges and colours too. They do, and the plain "
        "gradient of this network comes out there; but this map is multiplied by the input.",
    ),
    Choice(
        "nearly all 100",
        lambda came: came >= 75,
        "Times input: where the picture is bright, the map is large, whatever the network does. Our shapes are "
        "brighter than their background, so the map shows the picture. It would have convinced anyone.",
    ),
)

heads_off = prediction(
    "9.b",
    "With all heads, nearly every answer is right. Layer 1 has two induction heads. What happens if you switch off "
    "one of them, and what if you switch off both?",
    Choice(
        "one: about half of the answers are lost; both: nearly all",
        lambda came: 0.3 < min(came[:2]) < 0.85 and came[2] < 0.3,
        "You may have thought that two heads share the work; but they add to one sum, and the largest score wins. "
        "Half as much of the right answer is still the most.",
    ),
    Choice(
        "one: hardly anything is lost; both: nearly all",
        lambda came: min(came[:2]) > 0.85 and came[2] < 0.3,
        "Each of the two does the whole job alone. If you had listed what is lost without each head, you would have "
        'called both useless. "It isn\'t needed" doesn\'t mean "it does nothing": if two parts do the same job, you '
        "don't find them by switching off one at a time.",
    ),
    Choice(
        "only one of the two matters: without it nearly all is lost",
        lambda came: min(came[:2]) < 0.3 < max(came[:2]),
        "You may have thought of one part for each task; but training has no reason to stop at one head when there "
        "are two.",
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
    "The token at position 10 was replaced. Position 22 now finds no earlier copy of its token, and the answer (the "
    "token at position 11) is lost. You take one vector of the clean run, after layer 0. At which position does it "
    "bring the answer back?",
    Choice(
        "10: that is where the token was replaced",
        lambda came: came == 10,
        "You may have thought of the place of the damage, and after the embedding that's right; but layer 0 has "
        "already copied what is needed to another position.",
    ),
    Choice(
        "11: the token after the one that was replaced",
        lambda came: came == 11,
        "The picture shows the share of lost answers that a patch brings back. At each depth a single place is "
        "enough, and it moves: 10, 11, 22. The heads of layer 0 look one back, so after layer 0 position 11 knows "
        "which token comes before it. In layer 1, position 22 looks for a position that comes after its own token, "
        "finds 11, and copies the token at 11.",
    ),
    Choice(
        "22: that is where the answer is wanted",
        lambda came: came == 22,
        "You may have thought of the place where the answer is needed, and one layer later that's right; but after "
        "layer 0 the answer hasn't arrived there yet.",
    ),
    Choice(
        "at no single position: the answer is spread over several",
        lambda came: came == -1,
        "You may have thought of large models, where that often happens; but here one place is enough, at each depth.",
    ),
)
