"""What ManifoldMixup can be told: where the batch is, what to mix, how to draw, CutMix, and `like`."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from hooklab.mixup import ManifoldMixup, Mixed
from tests.mixing import SmallCNN, digits_like, mixer, seeded


@pytest.fixture
def model() -> SmallCNN:
    torch.manual_seed(0)
    return SmallCNN()


def blended(tensor: Tensor, mixed: Mixed, dim: int = 0) -> Tensor:
    return mixed.lam * tensor + (1 - mixed.lam) * tensor.index_select(dim, mixed.permutation)


# Where the batch is, and what is mixed


@pytest.mark.parametrize("batch_dim", [1, {"0": 1}], ids=["one", "per layer"])
def test_a_time_first_layer_is_mixed_along_its_batch(batch_dim: object) -> None:
    model = nn.Sequential(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0))
    x, y = torch.rand(3, 3, 4), torch.zeros(3)
    plain = model(x)
    with ManifoldMixup(model, "0", include_input=False, batch_dim=batch_dim, generator=seeded())(x, y) as mixed:
        out = model(mixed.x)
    assert torch.equal(out, blended(plain, mixed, dim=1))


def test_the_input_is_mixed_along_its_batch_dimension() -> None:
    model, x = nn.Sequential(nn.Identity()), torch.rand(5, 3)
    with ManifoldMixup(model, [], batch_dim=1, generator=seeded())(x, torch.zeros(3)) as mixed:
        assert torch.equal(model(mixed.x), blended(x, mixed, dim=1))


def test_a_part_of_an_output_is_mixed_and_the_rest_stays() -> None:
    model, x = nn.Sequential(nn.LSTM(4, 2, batch_first=True)), torch.rand(3, 5, 4)
    outputs, (hidden, cell) = model(x)
    mix = ManifoldMixup(model, "0", include_input=False, part=lambda output: output[0], generator=seeded())
    with mix(x, torch.zeros(3)) as mixed:
        got, (got_hidden, got_cell) = model(mixed.x)
    assert torch.equal(got, blended(outputs, mixed))
    assert torch.equal(got_hidden, hidden) and torch.equal(got_cell, cell)


def test_the_states_of_a_packed_bidirectional_lstm_are_mixed_along_their_batch() -> None:
    model = nn.Sequential(nn.LSTM(4, 2, batch_first=True, bidirectional=True))
    x = pack_sequence([torch.rand(3, 4), torch.rand(2, 4)])
    _, (hidden, cell) = model(x)
    mix = ManifoldMixup(
        model, "0", include_input=False, part=lambda output: output[1], batch_dim={"0": 1}, generator=seeded()
    )
    with mix(x, torch.zeros(2)) as mixed:
        _, (got_hidden, got_cell) = model(mixed.x)
    assert torch.equal(got_hidden, blended(hidden, mixed, dim=1))
    assert torch.equal(got_cell, blended(cell, mixed, dim=1))


def test_the_states_of_as_many_directions_as_examples_need_the_batch_dimension() -> None:
    model = nn.Sequential(nn.LSTM(4, 2, batch_first=True, bidirectional=True))
    mix = ManifoldMixup(model, "0", include_input=False, part=lambda output: output[1])
    with (
        pytest.raises(ValueError, match=r"\(2, 2, 2\).*which of the two is the batch"),
        mix(torch.rand(2, 5, 4), torch.zeros(2)) as mixed,
    ):
        model(mixed.x)


@pytest.mark.parametrize(
    ("part", "returned"), [(lambda output: output[0][:, -1], "a tensor that is not in it"), (lambda output: (), "none")]
)
def test_a_part_that_is_not_in_the_output_is_an_error(part: object, returned: str) -> None:
    model = nn.Sequential(nn.LSTM(4, 2, batch_first=True))
    with (
        pytest.raises(ValueError, match=f"part must pick tensors of the output of layer '0'.*returned {returned}"),
        ManifoldMixup(model, "0", include_input=False, part=part)(torch.rand(3, 5, 4), torch.zeros(3)) as mixed,
    ):
        model(mixed.x)


# What is drawn


def chosen(mix: ManifoldMixup, batches: int = 400) -> Counter[str]:
    counts: Counter[str] = Counter()
    x = torch.zeros(2, 1)
    for _ in range(batches):
        with mix(x, torch.zeros(2)) as mixed:
            mix.model(mixed.x)
        counts[mixed.layer] += 1
    return counts


def three_identities() -> nn.Sequential:
    return nn.Sequential(nn.Identity(), nn.Identity(), nn.Identity())


def test_weights_say_how_often_a_place_comes_up() -> None:
    counts = chosen(
        ManifoldMixup(three_identities(), ["0", "1", "2"], weights={"input": 3, "1": 0}, generator=seeded())
    )
    assert set(counts) == {"input", "0", "2"}
    assert counts["input"] == pytest.approx(400 * 3 / 5, abs=40)


def test_with_equal_weights_the_draws_are_those_without_weights() -> None:
    drawn = []
    for weights in (None, {"0": 1.0}):
        mix = ManifoldMixup(three_identities(), ["0", "1"], weights=weights, generator=seeded())
        drawn.append([mix(torch.zeros(3, 1), torch.zeros(3)).mixed.layer for _ in range(50)])
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("weights", [{"input": -1}, {"input": 0, "0": 0}, {"0": float("nan")}])
def test_weights_that_are_no_weights_are_an_error(weights: dict) -> None:
    with pytest.raises(ValueError, match="weights must be 0 or more"):
        ManifoldMixup(three_identities(), "0", weights=weights)


def test_the_probability_says_how_many_batches_are_mixed_and_the_others_are_plain(model: SmallCNN) -> None:
    counts = chosen(ManifoldMixup(three_identities(), ["0"], probability=0.25, generator=seeded()))
    assert counts["nowhere"] == pytest.approx(300, abs=30)
    assert counts["input"] == pytest.approx(counts["0"], abs=25)

    x, y = digits_like()
    with ManifoldMixup(model, ["stage1"], probability=0.0)(x, y) as mixed:
        loss = mixed.loss(F.cross_entropy, model(mixed.x))
    assert mixed.x is x and mixed.lam == 1.0 and mixed.permutation.tolist() == list(range(6))
    assert torch.equal(loss, F.cross_entropy(model(x), y))


@pytest.mark.parametrize("probability", [-0.1, 1.1, float("nan")])
def test_a_probability_is_from_zero_to_one(model: SmallCNN, probability: float) -> None:
    with pytest.raises(ValueError, match="probability must be from 0 to 1"):
        ManifoldMixup(model, [], probability=probability)


@pytest.mark.parametrize("at", ["input", "0"])
def test_a_lambda_for_each_example_mixes_features_targets_and_losses_alike(at: str) -> None:
    model, x = nn.Sequential(nn.Identity()), torch.rand(5, 3)
    y = torch.tensor([0, 1, 2, 0, 1])
    layers = [] if at == "input" else [at]
    mix = ManifoldMixup(model, layers, include_input=not layers, lam_per_example=True, generator=seeded())
    with mix(x, y) as mixed:
        out = model(mixed.x)
        losses = mixed.loss(nn.CrossEntropyLoss(reduction="none"), out)
    for i, (lam, partner) in enumerate(zip(mixed.lam.tolist(), mixed.permutation.tolist(), strict=True)):
        assert torch.allclose(out[i], lam * x[i] + (1 - lam) * x[partner])
    assert len(set(mixed.lam.tolist())) == 5
    assert torch.allclose(losses, F.cross_entropy(out, mixed.soft_targets(3), reduction="none"))
    with pytest.raises(ValueError, match=r'must return 5 losses.*reduction="none"'):
        mixed.loss(F.cross_entropy, out)


# CutMix


def test_cutmix_pastes_a_rectangle_of_the_partner_and_lambda_is_the_share_that_is_left() -> None:
    model, n = nn.Sequential(nn.Identity()), 5
    x = torch.arange(float(n)).view(n, 1, 1, 1).expand(n, 3, 6, 7)
    mix = ManifoldMixup(model, [], cutmix=True, generator=seeded())
    areas = set()
    for _ in range(30):
        with mix(x, torch.arange(n)) as mixed:
            out = model(mixed.x)
        is_own = out == x
        for i, partner in enumerate(mixed.permutation.tolist()):
            assert set(out[i].unique().tolist()) <= {float(i), float(partner)}
            if partner != i:
                assert is_own[i].float().mean().item() == pytest.approx(mixed.lam)
                other = ~is_own[i, 0]
                rows, columns = other.any(dim=1), other.any(dim=0)
                assert torch.equal(other, rows[:, None] & columns)  # a rectangle, the same in all channels
        areas.add(round(mixed.lam, 3))
    assert len(areas) > 10
    assert x[1].unique().tolist() == [1.0]  # the batch that came is as it was


def test_cutmix_takes_lambda_from_the_same_beta_distribution() -> None:
    mix = ManifoldMixup(nn.Identity(), [], alpha=2.0, cutmix=True, generator=seeded())
    x = torch.zeros(1, 1, 64, 64)
    lams = torch.tensor([mix(x, torch.zeros(1)).mixed.lam for _ in range(500)])
    assert lams.min() < 0.35 and lams.mean() > 0.5  # what sticks out is cut off, so more is left than λ says


def test_cutmix_needs_images(model: SmallCNN) -> None:
    with pytest.raises(ValueError, match=r"images of shape \(n, \.\.\., height, width\).*x is \(4, 2\) float32"):
        ManifoldMixup(nn.Identity(), [], cutmix=True)(torch.zeros(4, 2), torch.zeros(4))
    with pytest.raises(ValueError, match="cutmix needs include_input=True, and one λ"):
        ManifoldMixup(model, ["stage1"], cutmix=True, include_input=False)


def test_cutmix_at_the_input_and_plain_mixing_at_layers(model: SmallCNN) -> None:
    x, y = digits_like()
    mix = ManifoldMixup(model, ["stage1"], cutmix=True, generator=seeded())
    seen = set()
    for _ in range(12):
        with mix(x, y) as mixed:
            loss = mixed.loss(F.cross_entropy, model(mixed.x))
        assert loss.isfinite()
        seen.add(mixed.layer)
    assert seen == {"input", "stage1"}


# One draw for two


@pytest.mark.parametrize("options", [{}, {"cutmix": True}], ids=["mixup", "CutMix"])
def test_a_second_view_is_mixed_like_the_first(model: SmallCNN, options: dict) -> None:
    x, y = digits_like()
    mix = ManifoldMixup(model, ["stage1"], generator=seeded(), **options)
    for _ in range(6):
        with mix(x, y) as first:
            out = model(first.x)
        with mix(x.clone(), y, like=first) as second:
            again = model(second.x)
        assert (second.layer, second.lam) == (first.layer, first.lam)
        assert torch.equal(second.permutation, first.permutation)
        assert torch.allclose(out, again)


def test_a_second_model_is_mixed_like_the_first_and_nothing_is_drawn(model: SmallCNN) -> None:
    (x, y), teacher, generator = digits_like(), SmallCNN(), seeded(3)
    mix, teach = mixer(model, "stage2"), ManifoldMixup(teacher, ["stage2", "hidden"], generator=generator)
    before = generator.get_state()
    with mix(x, y) as mixed, teach(x, y, like=mixed) as taught:
        model(mixed.x)
        teacher(taught.x)
    assert taught.layer == "stage2" and taught.lam == mixed.lam
    assert torch.equal(generator.get_state(), before)


def test_like_must_be_possible(model: SmallCNN) -> None:
    x, y = digits_like()
    with mixer(model, "stage2")(x, y) as mixed:
        model(mixed.x)
    with pytest.raises(ValueError, match="like was mixed at 'stage2', where this one cannot mix"):
        mixer(model, "stage1")(x, y, like=mixed)
    with pytest.raises(ValueError, match="like has 6 examples, y has 5"):
        mixer(model, "stage2")(x[:5], y[:5], like=mixed)


# Targets


def test_soft_targets_of_maps_have_the_classes_second_and_hold_shares() -> None:
    y = torch.tensor([[[0, 2]], [[1, 1]]])
    mixed = Mixed(None, y, 0.75, torch.tensor([1, 0]), "layer")
    soft = mixed.soft_targets(3)
    assert soft.shape == (2, 3, 1, 2)
    assert soft[0, :, 0, 0].tolist() == [0.75, 0.25, 0] and soft[0, :, 0, 1].tolist() == [0, 0.25, 0.75]
    logits = torch.rand(2, 3, 1, 2)
    assert torch.allclose(F.cross_entropy(logits, soft), mixed.loss(F.cross_entropy, logits))
    assert mixed.bce_loss(logits).isfinite()


@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 2, 2)])
def test_class_numbers_are_never_mixed(shape: tuple[int, ...]) -> None:
    mixed = Mixed(None, torch.full(shape, 2), 0.75, torch.tensor([1, 2, 3, 0]), "layer")
    with pytest.raises(ValueError, match="num_classes"):
        mixed.soft_targets()


def test_smoothed_soft_targets_give_the_loss_with_label_smoothing() -> None:
    logits, y = torch.rand(3, 4), torch.tensor([0, 3, 1])
    mixed = Mixed(None, y, 0.75, torch.tensor([1, 2, 0]), "layer")
    ours = F.cross_entropy(logits, mixed.soft_targets(4, smoothing=0.2))
    assert torch.allclose(ours, mixed.loss(nn.CrossEntropyLoss(label_smoothing=0.2), logits))


def test_with_class_weights_the_loss_equals_that_of_soft_targets_for_each_example_only() -> None:
    logits, y, weight = torch.rand(6, 3), torch.tensor([0, 0, 0, 1, 2, 1]), torch.tensor([1.0, 5.0, 20.0])
    mixed = Mixed(None, y, 0.75, torch.tensor([3, 4, 5, 0, 1, 2]), "layer")
    each = nn.CrossEntropyLoss(weight=weight, reduction="none")
    mean = nn.CrossEntropyLoss(weight=weight)
    assert torch.allclose(mixed.loss(each, logits), each(logits, mixed.soft_targets(3)), atol=1e-5)
    assert abs(mixed.loss(mean, logits) - mean(logits, mixed.soft_targets(3))) > 0.1
    assert "weight=" in (Mixed.loss.__doc__ or "")


def test_cutmix_of_images_without_pixels_is_an_error() -> None:
    mix = ManifoldMixup(nn.Flatten(), [], cutmix=True)
    with pytest.raises(ValueError, match="all of one size above 0"):
        mix(torch.ones(4, 3, 0, 5), torch.zeros(4))
