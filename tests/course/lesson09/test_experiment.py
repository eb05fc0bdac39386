"""What lesson 9 claims of its networks is measured; `-m long` trains anew with other seeds."""

import pytest

from hooklab.course.lesson09 import experiment


def broken(found):
    ranges = experiment.CLAIMS.items()
    return {name: found[name] for name, (low, high) in ranges if not low <= found[name] <= high}


def test_every_claim_is_measured_and_those_of_the_copier_hold_for_the_seed_of_the_lesson():
    found = experiment.measure(0, pictures=4)  # too few for the claims of maps, which the lesson asserts
    assert set(experiment.CLAIMS) <= set(found)
    assert not [name for name in broken(found) if name.startswith(("copier", "layer", "lens", "patch", "steering"))]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_every_claim_holds_for_other_seeds(seed):
    assert broken(experiment.measure(seed)) == {}


def test_a_broken_claim_is_shown_and_counted(monkeypatch, capsys):
    monkeypatch.setattr(experiment, "measure", lambda seed: {"a": 0.5, "b": 0.1 * seed})
    monkeypatch.setattr(experiment, "CLAIMS", {"a": (0.0, 1.0), "b": (0.0, 0.15)})
    assert experiment.main(["--seeds", "3"]) == 1
    out = capsys.readouterr().out
    assert "0.000  0.100  0.200  b" in out and "BROKEN" in out and "3 seeds; 2 claims, 1 broken" in out
    assert experiment.main(["--seeds", "2"]) == 0
