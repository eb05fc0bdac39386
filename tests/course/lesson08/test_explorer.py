"""The explorer of a training that goes wrong says what was measured."""

import itertools
import math

from hooklab.course.lesson08.explorer import STEPS, say, trained


def test_a_large_step_breaks_the_training_and_normalisation_mends_it():
    broken, mended = trained(3.0, 1.0, False), trained(3.0, 1.0, True)
    assert math.isnan(broken.losses[-1]) and math.isnan(broken.zeros[0][-1])
    assert mended.accuracy > 0.75 > 0.2 > broken.accuracy
    assert "not finite: act1, act2" in say(3.0, 1.0, False, STEPS - 1)


def test_small_first_weights_shrink_from_layer_to_layer():
    first = [line[0] for line in trained(1.0, 0.1, False).std]
    assert all(later < 0.3 * before for before, later in itertools.pairwise(first))
