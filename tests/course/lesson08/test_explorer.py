"""The explorer of a training that goes wrong: every position can be drawn, and says what was measured."""

import itertools
import math

import pytest

from hooklab.course.lesson08.explorer import GAINS, RATES, STEPS, draw, going_wrong, say, trained


@pytest.mark.parametrize(
    "position", list(itertools.product((RATES[0], RATES[-1]), (GAINS[0], GAINS[-1]), [False, True]))
)
def test_every_extreme_position_can_be_drawn_and_said(position):
    for step in (0, STEPS - 1):
        assert draw(*position, step).axes[0].lines
        assert say(*position, step).startswith(f"Step {step}: the loss is ")


def test_a_large_step_breaks_the_training_and_normalisation_mends_it():
    broken, mended = trained(3.0, 1.0, False), trained(3.0, 1.0, True)
    assert math.isnan(broken.losses[-1]) and math.isnan(broken.zeros[0][-1])
    assert mended.accuracy > 0.75 > 0.2 > broken.accuracy
    assert "not finite: act1, act2" in say(3.0, 1.0, False, STEPS - 1)


def test_small_first_weights_shrink_from_layer_to_layer():
    first = [line[0] for line in trained(1.0, 0.1, False).std]
    assert all(later < 0.3 * before for before, later in itertools.pairwise(first))


def test_every_control_changes_the_picture_or_the_sentence():
    _, (rate, gain, norm), (step,), picture, sentence = (
        getattr(one, "children", one) for one in going_wrong().children
    )
    for control, value in ((rate, 0.01), (gain, 0.1), (norm, True), (step, 3)):
        before = bytes(picture.value), sentence.value
        control.value = value
        assert (bytes(picture.value), sentence.value) != before
