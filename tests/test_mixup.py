"""ManifoldMixup against the same computation written into the model's forward."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hooklab.mixup import ManifoldMixup, Mixed, _beta, _uniform
from tests.mixing import PLACES, blended, cnn, digits_like, mixed_by_hand, mixer, seeded
from tests.nets import Calls

# The computation


@pytest.mark.parametrize("at", PLACES)
def test_loss_and_gradients_equal_mixup_written_into_the_forward_to_the_last_bit(at: str) -> None:
    model, (x, y) = cnn(), digits_like()
    with mixer(model, at)(x, y) as mixed:
        logits = model(mixed.x)
        loss = mixed.loss(F.cross_entropy, logits)
    loss.backward()

    by_hand = cnn()
    expected = mixed_by_hand(by_hand, x, mixed)
    lam, partner = mixed.lam, y[mixed.permutation]
    expected_loss = lam * F.cross_entropy(expected, y) + (1 - lam) * F.cross_entropy(expected, partner)
    expected_loss.backward()

    assert mixed.layer == at
    assert 0 < lam < 0.5
    assert torch.equal(logits, expected)
    assert torch.equal(loss, expected_loss)
    for ours, theirs in zip(model.parameters(), by_hand.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)


def test_every_choice_comes_up_equally_often() -> None:
    model = nn.Sequential(nn.Identity(), nn.Identity())
    mix = ManifoldMixup(model, ["0", "1"], generator=seeded())
    x = torch.zeros(2)
    counts = dict.fromkeys(mix.choices, 0)
    for _ in range(600):
        with mix(x, x) as mixed:
            model(mixed.x)
        counts[mixed.layer] += 1
    assert list(counts) == ["input", "0", "1"]
    assert all(150 < count < 250 for count in counts.values()), counts


def test_one_module_type_or_predicate_may_come_without_a_list() -> None:
    model = cnn()
    assert ManifoldMixup(model, model[3]).choices == ["input", "3"]
    assert ManifoldMixup(model, nn.Linear).choices == ["input", "2.1", "3"]
    assert ManifoldMixup(model, lambda name, module: name == "1").choices == ["input", "1"]


# Randomness


def test_the_generator_alone_decides_layer_lambda_and_permutation_or_else_manual_seed_does() -> None:
    model, (x, y) = cnn(), digits_like()

    def three_batches(global_seed: int, generator: torch.Generator | None) -> list[tuple[str, float, list[int]]]:
        torch.manual_seed(global_seed)
        mix = ManifoldMixup(model, PLACES[1:], generator=generator)
        drawn = []
        for _ in range(3):
            with mix(x, y) as mixed:
                model(mixed.x)
            drawn.append((mixed.layer, mixed.lam, mixed.permutation.tolist()))
        return drawn

    first = three_batches(1, seeded(7))
    assert first == three_batches(2, seeded(7))
    assert len({lam for _, lam, _ in first}) == 3
    assert len({tuple(permutation) for _, _, permutation in first}) == 3
    assert three_batches(3, None) == three_batches(3, None)


def test_a_batch_takes_the_same_amount_of_randomness_whatever_its_length() -> None:
    after = []
    for n in (1, 6):
        model, generator = cnn(), seeded()
        with ManifoldMixup(model, [], generator=generator)(*digits_like(n)) as mixed:
            model(mixed.x)
        after.append(generator.get_state())
    assert torch.equal(*after)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 8.0, 100.0])
def test_lambda_is_beta_distributed(alpha: float) -> None:
    n, generator = 4000, seeded(11)
    ours = sorted(_beta(alpha, *_uniform(4, generator)) for _ in range(n))
    theirs = np.sort(np.random.default_rng(0).beta(alpha, alpha, n))
    together = np.concatenate([ours, theirs])
    share_below_ours = np.searchsorted(ours, together, side="right") / n
    share_below_theirs = np.searchsorted(theirs, together, side="right") / n
    distance = np.abs(share_below_ours - share_below_theirs).max()
    assert distance < 1.36 * (2 / n) ** 0.5  # Kolmogorov-Smirnov, two samples, 5 %; the seeds are fixed


def test_a_tiny_alpha_gives_zero_or_one_and_no_nan() -> None:
    generator = seeded()
    sample = [_beta(1e-6, *_uniform(4, generator)) for _ in range(200)]
    assert set(sample) == {0.0, 1.0}


# What inputs and layers may be


@pytest.mark.parametrize(
    ("make", "take"),
    [
        (lambda x: (x, x + 1), lambda out: out),
        (lambda x: {"a": x, "b": [x + 1]}, lambda out: (out["a"], out["b"][0])),
    ],
    ids=["tuple", "dict"],
)
def test_every_tensor_of_a_nested_output_is_mixed(make: Any, take: Any) -> None:
    model, x = nn.Sequential(Calls(make)), torch.arange(4.0)
    with mixer(model, "0")(x, x) as mixed:
        first, second = take(model(mixed.x))
    assert torch.equal(first, mixed.soft_targets())
    assert torch.equal(second, blended(x + 1, mixed))


def test_an_input_without_a_tensor_is_fine_if_only_layers_can_be_chosen() -> None:
    model, y = nn.Sequential(Calls(lambda x: torch.tensor([float(one) for one in x]))), torch.arange(4.0)
    with mixer(model, "0")("0123", y) as mixed:
        assert torch.equal(model(mixed.x), mixed.soft_targets())


def test_a_dict_input_is_mixed_tensor_by_tensor() -> None:
    model = nn.Sequential(nn.Identity())
    x = {"a": torch.arange(4.0), "b": torch.arange(8.0).reshape(4, 2)}
    with mixer(model, "input")(x, torch.zeros(4)) as mixed:
        out = model(mixed.x)
    assert all(torch.equal(out[key], blended(value, mixed)) for key, value in x.items())


def test_a_time_first_layer_and_input_are_mixed_along_their_batch() -> None:
    model = nn.Sequential(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0))
    x, y = torch.rand(3, 3, 4), torch.zeros(3)
    plain = model(x)
    with ManifoldMixup(model, "0", include_input=False, batch_dim=1, generator=seeded())(x, y) as mixed:
        assert torch.equal(model(mixed.x), blended(plain, mixed, dim=1))
    with ManifoldMixup(model, [], batch_dim=1, generator=seeded())(x, y) as mixed:
        assert torch.equal(mixed.x, blended(x, mixed, dim=1))


def test_a_copy_of_the_model_made_in_the_block_does_not_mix() -> None:
    model, plain, (x, y) = cnn(), cnn(), digits_like()
    with mixer(model, "0")(x, y) as mixed:
        twin = copy.deepcopy(model)
        model(mixed.x)
    assert torch.equal(twin(x), plain(x))


# One draw for two


def test_a_second_view_is_mixed_like_the_first() -> None:
    model, (x, y) = cnn(), digits_like()
    mix = ManifoldMixup(model, ["0"], generator=seeded())
    for _ in range(6):
        with mix(x, y) as first:
            out = model(first.x)
        with mix(x.clone(), y, like=first) as second:
            again = model(second.x)
        assert (second.layer, second.lam) == (first.layer, first.lam)
        assert torch.equal(second.permutation, first.permutation)
        assert torch.allclose(out, again)


def test_a_second_model_is_mixed_like_the_first_and_nothing_is_drawn() -> None:
    model, teacher, (x, y), generator = cnn(), cnn(), digits_like(), seeded(3)
    mix, teach = mixer(model, "1"), ManifoldMixup(teacher, ["1", "2"], generator=generator)
    before = generator.get_state()
    with mix(x, y) as mixed, teach(x, y, like=mixed) as taught:
        model(mixed.x)
        teacher(taught.x)
    assert taught.layer == "1" and taught.lam == mixed.lam
    assert torch.equal(generator.get_state(), before)


# Targets


def given(y: Any) -> Mixed:
    """Examples that each have the next one as partner, with a share of 1/4."""
    n = len(y)
    return Mixed(None, y, 0.75, torch.tensor([*range(1, n), 0]), "layer")


def test_soft_targets_of_integer_one_hot_need_no_class_count() -> None:
    assert given(torch.tensor([[1, 0], [0, 1]])).soft_targets().tolist() == [[0.75, 0.25], [0.25, 0.75]]


def test_soft_targets_of_maps_have_the_classes_second_and_hold_shares() -> None:
    mixed = given(torch.tensor([[[0, 2]], [[1, 1]]]))
    soft = mixed.soft_targets(3)
    assert soft.shape == (2, 3, 1, 2)
    assert soft[0, :, 0, 0].tolist() == [0.75, 0.25, 0] and soft[0, :, 0, 1].tolist() == [0, 0.25, 0.75]
    logits = torch.rand(2, 3, 1, 2)
    assert torch.allclose(F.cross_entropy(logits, soft), mixed.loss(F.cross_entropy, logits))


@pytest.mark.parametrize(
    ("y", "classes", "error", "said"),
    [
        *((torch.full(shape, 2), None, ValueError, "num_classes") for shape in ((4,), (4, 1), (4, 2, 2))),
        *(
            (torch.tensor([0, label, 2]), 3, ValueError, rf"labels from .*{label}.*0 to 2.*ignore_index")
            for label in (-100, 3)
        ),
        ((torch.zeros(4), torch.zeros(4)), 10, TypeError, r"y is a tuple: use mixed\.loss"),
    ],
    ids=["numbers", "a column of numbers", "maps of numbers", "ignored", "no class", "two targets"],
)
def test_targets_that_cannot_be_soft_are_an_error_that_says_what_to_use(
    y: Any, classes: int | None, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        given(y).soft_targets(classes)


def test_with_class_weights_the_loss_equals_that_of_soft_targets_for_each_example_only() -> None:
    logits, y, weight = torch.rand(6, 3), torch.tensor([0, 0, 0, 1, 2, 1]), torch.tensor([1.0, 5.0, 20.0])
    mixed = Mixed(None, y, 0.75, torch.tensor([3, 4, 5, 0, 1, 2]), "layer")
    each = nn.CrossEntropyLoss(weight=weight, reduction="none")
    mean = nn.CrossEntropyLoss(weight=weight)
    assert torch.allclose(mixed.loss(each, logits), each(logits, mixed.soft_targets(3)), atol=1e-5)
    assert abs(mixed.loss(mean, logits) - mean(logits, mixed.soft_targets(3))) > 0.1
    assert "weight=" in (Mixed.loss.__doc__ or "")


def test_targets_may_be_a_tuple_list_or_dict_of_tensors() -> None:
    model, x = nn.Sequential(nn.Identity()), torch.rand(4, 3)
    a, b = torch.tensor([0, 1, 2, 0]), torch.rand(4)

    def two_losses(out: Tensor, y: Any) -> Tensor:
        return F.cross_entropy(out, y["a"]) + F.mse_loss(out[:, 0], y["b"])

    with mixer(model, "0")(x, {"a": a, "b": b}) as mixed:
        loss = mixed.loss(two_losses, model(mixed.x))
    order, out = mixed.permutation, blended(x, mixed)
    own, partner = two_losses(out, {"a": a, "b": b}), two_losses(out, {"a": a[order], "b": b[order]})
    assert torch.allclose(loss, mixed.lam * own + (1 - mixed.lam) * partner)
    with mixer(model, "0")(x, [a, b]) as mixed:
        assert mixed.loss(lambda out, y: F.cross_entropy(out, y[0]), model(mixed.x)).isfinite()


def test_the_union_of_masks_counts_what_either_example_has() -> None:
    mixed = given(torch.zeros(3))
    kept = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0]])
    assert mixed.union(kept).tolist() == [[1, 1, 1], [1, 1, 0], [1, 1, 1]]
    assert torch.equal(mixed.union(kept == 0, marks="padding"), mixed.union(kept) == 0)
    with pytest.raises(ValueError, match="marks is"):
        mixed.union(kept, marks="tokens")
