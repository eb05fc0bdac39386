"""Lesson 9's copier: its sequences, and what is asked of its heads. Most of it needs no training."""

import pytest
import torch

import hooklab
from hooklab.course.lesson09 import copying, heads


@pytest.fixture(scope="module")
def untrained():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return copying.Copier().eval()


def test_a_sequence_repeats_and_its_part_has_no_token_twice():
    made = copying.sequences(100, seed=0)
    assert set(made.periods.flatten().tolist()) == set(range(4, 13))
    for tokens, period in zip(made.tokens, made.periods.flatten().tolist(), strict=True):
        assert torch.equal(tokens[period:], tokens[:-period]) and len(set(tokens.tolist())) == period


def test_a_next_token_is_known_from_the_second_copy_on():
    made = copying.sequences(1, seed=0, period=5)
    assert made.known[0].nonzero().flatten().tolist() == list(range(5, 23))


def test_nobody_looks_at_what_comes_later(untrained):
    pattern = heads.patterns(untrained, copying.sequences(4, seed=1).inputs)
    assert pattern.shape == (2, 4, 2, 23, 23) and not pattern.triu(1).any()
    assert torch.allclose(pattern.sum(-1), torch.ones(()), atol=1e-5)


def test_scores_read_the_attention_so_many_places_back(untrained, monkeypatch):
    made = copying.sequences(3, seed=1, period=6)
    fake = torch.zeros(2, 3, 2, 23, 23)
    fake[1, :, 0, torch.arange(6, 23), torch.arange(1, 18)] = 0.75
    monkeypatch.setattr(heads, "patterns", lambda model, tokens: fake)
    assert heads.scores(untrained, 5, made).tolist() == [[0.0, 0.0], [0.75, 0.0]]


def test_without_both_heads_a_layer_adds_nothing(untrained):
    tokens = copying.sequences(2, seed=2).inputs
    with heads.without(untrained, [(1, 0), (1, 1)]), hooklab.capture(untrained, "layers.0", "layers.1") as seen:
        untrained(tokens)
    assert torch.equal(seen["layers.0"], seen["layers.1"]) and hooklab.leftover_hooks(untrained) == []


def test_a_corrupted_run_differs_in_one_token_that_the_sequence_does_not_have():
    made = heads.for_patching(20)
    broken = heads.corrupted(made, 10)
    differs = (broken != made.inputs).nonzero()
    assert differs[:, 1].tolist() == [10] * 20
    assert not (broken[:, [10]] == made.inputs).any()


def test_a_patch_behind_the_last_layer_at_the_last_position_brings_everything_back(untrained):
    found = heads.carried(untrained, heads.for_patching(30), 10)
    assert found.shape == (3, 23) and found[0, 10] == found[2, 22]
    assert torch.isnan(found).sum() == 0 or torch.isnan(found).all()


def test_steering_counts_no_place_where_the_token_is_right_anyway():
    model, made = copying.trained_copier(), copying.sequences(100, seed=3)
    said = heads.steering(model, made, token=3, doses=(0.0, 2.0))
    assert said["towards the token"][0] < 0.05 < 0.9 < said["towards the token"][1]
    assert said["random"].max() < 0.1
    assert hooklab.leftover_hooks(model) == []
