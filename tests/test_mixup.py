"""ManifoldMixup against the same computation written into the model's forward, and its errors."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hooklab.mixup import ManifoldMixup, Mixed, _beta, _uniform
from tests.mixing import LAYERS, SmallCNN, digits_like, hooks_in, mixer, seeded


@pytest.fixture
def model() -> SmallCNN:
    torch.manual_seed(0)
    return SmallCNN()


# The computation


@pytest.mark.parametrize("at", ["input", *LAYERS])
def test_loss_and_gradients_equal_mixup_written_into_the_forward_to_the_last_bit(model: SmallCNN, at: str) -> None:
    by_hand, (x, y) = copy.deepcopy(model), digits_like()
    with mixer(model, at)(x, y) as mixed:
        logits = model(mixed.x)
        loss = mixed.loss(F.cross_entropy, logits)
    loss.backward()

    expected = by_hand(x, at=at, lam=mixed.lam, permutation=mixed.permutation)
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


def test_one_module_type_or_predicate_may_come_without_a_list(model: SmallCNN) -> None:
    assert ManifoldMixup(model, model.hidden).choices == ["input", "hidden"]
    assert ManifoldMixup(model, nn.Linear).choices == ["input", "hidden", "head"]
    assert ManifoldMixup(model, lambda name, module: name.startswith("he")).choices == ["input", "head"]


def test_a_sequential_is_one_layer_and_a_module_list_stands_for_its_modules() -> None:
    model = nn.ModuleDict({"stage": nn.Sequential(nn.Linear(1, 1), nn.ReLU()), "blocks": nn.ModuleList([nn.Tanh()])})
    assert ManifoldMixup(model, model["stage"]).choices == ["input", "stage"]
    assert ManifoldMixup(model, model["blocks"]).choices == ["input", "blocks.0"]


# Randomness


def test_the_generator_alone_decides_layer_lambda_and_permutation(model: SmallCNN) -> None:
    x, y = digits_like()

    def three_batches(global_seed: int) -> list[tuple[str, float, list[int]]]:
        torch.manual_seed(global_seed)
        mix = ManifoldMixup(model, LAYERS, generator=seeded(7))
        drawn = []
        for _ in range(3):
            with mix(x, y) as mixed:
                model(mixed.x)
            drawn.append((mixed.layer, mixed.lam, mixed.permutation.tolist()))
        return drawn

    first = three_batches(1)
    assert first == three_batches(2)
    assert len({lam for _, lam, _ in first}) == 3
    assert len({tuple(permutation) for _, _, permutation in first}) == 3


def test_without_a_generator_manual_seed_decides(model: SmallCNN) -> None:
    x, y = digits_like()
    drawn = []
    for _ in range(2):
        torch.manual_seed(3)
        with ManifoldMixup(model, [])(x, y) as mixed:
            model(mixed.x)
        drawn.append((mixed.lam, mixed.permutation.tolist()))
    assert drawn[0] == drawn[1]


def test_a_batch_takes_the_same_amount_of_randomness_whatever_its_length(model: SmallCNN) -> None:
    after = []
    for n in (1, 6):
        generator = seeded()
        x, y = digits_like(n)
        with ManifoldMixup(model, [], generator=generator)(x, y) as mixed:
            model(mixed.x)
        after.append(generator.get_state())
    assert torch.equal(*after)


@pytest.mark.parametrize("alpha", [0.2, 0.5, 1.0, 2.0, 8.0, 100.0])
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


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf")])
def test_alpha_must_be_above_zero(model: SmallCNN, alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha must be a finite number above 0"):
        ManifoldMixup(model, ["stage1"], alpha=alpha)


# Targets and losses


def test_soft_targets_of_integer_one_hot_need_no_class_count() -> None:
    mixed = Mixed(None, torch.tensor([[1, 0], [0, 1]]), 0.75, torch.tensor([1, 0]), "layer")
    assert mixed.soft_targets().tolist() == [[0.75, 0.25], [0.25, 0.75]]


# What layers may return


class Returning(nn.Module):
    """A layer that returns whatever ``make`` makes of its input."""

    def __init__(self, make: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: Tensor) -> object:
        return self.make(x)


@pytest.mark.parametrize(
    ("make", "take"),
    [
        (lambda x: (x, x + 1), lambda out: out),
        (lambda x: {"a": x, "b": [x + 1]}, lambda out: (out["a"], out["b"][0])),
    ],
    ids=["tuple", "dict"],
)
def test_every_tensor_of_a_nested_output_is_mixed(make: Callable, take: Callable) -> None:
    model, x = nn.Sequential(Returning(make)), torch.arange(4.0)
    with mixer(model, "0")(x, x) as mixed:
        first, second = take(model(mixed.x))
    assert torch.equal(first, mixed.soft_targets())
    assert torch.equal(second, mixed.lam * (x + 1) + (1 - mixed.lam) * (x + 1)[mixed.permutation])


class NoTensor:
    """An object of the model's own: what it holds is not looked at."""

    def __init__(self, hidden: Tensor) -> None:
        self.hidden = hidden


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda x: x[:-1], r"holds a tensor of shape \(5,\)"),
        (lambda x: x.sum(), r"holds a tensor of shape \(\)"),
        (lambda x: (x, x.repeat(2)), r"holds a tensor of shape \(12,\)"),
        (lambda x: (x, x.long()), "holds a tensor of dtype torch.int64, which cannot be mixed"),
        (NoTensor, "is NoTensor, which holds no tensor"),
        (lambda x: None, "is None, which holds no tensor"),
        (lambda x: (None, 3), r"is \(None, int\), which holds no tensor"),
    ],
    ids=["short", "scalar", "second of a tuple", "integers", "object", "None", "tuple"],
)
def test_an_output_that_cannot_be_mixed_is_an_error_that_shows_it(make: Callable, said: str) -> None:
    model, x = nn.Sequential(Returning(make)), torch.arange(6.0)
    with pytest.raises(ValueError, match=f"output of layer '0' {said}"), mixer(model, "0")(x, x) as mixed:
        model(mixed.x)
    assert hooks_in(model) == 0


@pytest.mark.parametrize("at", ["input", "0"])
def test_an_input_without_a_tensor_is_an_error_if_it_could_be_chosen(at: str) -> None:
    model, y = nn.Sequential(Returning(lambda x: x.hidden)), torch.arange(4.0)
    mix = ManifoldMixup(model, [] if at == "input" else [at])
    with pytest.raises(ValueError, match=r"x is NoTensor, which holds no tensor .* include_input=False"):
        mix(NoTensor(y), y)


def test_an_input_without_a_tensor_is_fine_if_only_layers_can_be_chosen() -> None:
    model, y = nn.Sequential(Returning(lambda x: x.hidden)), torch.arange(4.0)
    with mixer(model, "0")(NoTensor(y), y) as mixed:
        assert torch.equal(model(mixed.x), mixed.soft_targets())


def test_a_dict_input_is_mixed_tensor_by_tensor() -> None:
    model = nn.Sequential(nn.Identity())
    x = {"a": torch.arange(4.0), "b": torch.arange(8.0).reshape(4, 2)}
    with mixer(model, "input")(x, torch.zeros(4)) as mixed:
        out = model(mixed.x)
    for key, value in x.items():
        assert torch.equal(out[key], mixed.lam * value + (1 - mixed.lam) * value[mixed.permutation])


def test_an_input_of_integers_is_an_error_if_it_could_be_chosen() -> None:
    model = nn.Sequential(nn.Embedding(5, 2))
    tokens = torch.tensor([0, 1, 2])
    for seed in range(4):  # whether or not the input is chosen
        mix = ManifoldMixup(model, ["0"], generator=seeded(seed))
        with pytest.raises(ValueError, match="include_input=False"), mix(tokens, tokens):
            pass


# The hook does not stay


@pytest.mark.parametrize("failure", [ZeroDivisionError, KeyboardInterrupt, GeneratorExit])
def test_no_hook_stays_when_the_block_raises_and_the_exception_passes_through(
    model: SmallCNN, failure: type[BaseException]
) -> None:
    with pytest.raises(failure), mixer(model, "stage1")(*digits_like()):
        raise failure
    assert hooks_in(model) == 0


def test_an_exception_in_the_block_is_not_hidden_by_the_check_that_the_input_was_used(model: SmallCNN) -> None:
    with pytest.raises(ZeroDivisionError), mixer(model, "input")(*digits_like()):
        raise ZeroDivisionError


def test_a_copy_of_the_model_made_in_the_block_does_not_mix(model: SmallCNN) -> None:
    plain, (x, y) = copy.deepcopy(model), digits_like()
    with mixer(model, "stage1")(x, y) as mixed:
        twin = copy.deepcopy(model)
        model(mixed.x)
    assert torch.equal(twin(x), plain(x))


def blended(tensor: Tensor, mixed: Mixed, dim: int = 0) -> Tensor:
    return mixed.lam * tensor + (1 - mixed.lam) * tensor.index_select(dim, mixed.permutation)


# Where the batch is, and what is mixed


def test_a_time_first_layer_is_mixed_along_its_batch() -> None:
    model = nn.Sequential(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0))
    x, y = torch.rand(3, 3, 4), torch.zeros(3)
    plain = model(x)
    with ManifoldMixup(model, "0", include_input=False, batch_dim=1, generator=seeded())(x, y) as mixed:
        out = model(mixed.x)
    assert torch.equal(out, blended(plain, mixed, dim=1))


def test_the_input_is_mixed_along_its_batch_dimension() -> None:
    model, x = nn.Sequential(nn.Identity()), torch.rand(5, 3)
    with ManifoldMixup(model, [], batch_dim=1, generator=seeded())(x, torch.zeros(3)) as mixed:
        assert torch.equal(model(mixed.x), blended(x, mixed, dim=1))


# One draw for two


def test_a_second_view_is_mixed_like_the_first(model: SmallCNN) -> None:
    x, y = digits_like()
    mix = ManifoldMixup(model, ["stage1"], generator=seeded())
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


@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 2, 2)])
def test_class_numbers_are_never_mixed(shape: tuple[int, ...]) -> None:
    mixed = Mixed(None, torch.full(shape, 2), 0.75, torch.tensor([1, 2, 3, 0]), "layer")
    with pytest.raises(ValueError, match="num_classes"):
        mixed.soft_targets()


def test_with_class_weights_the_loss_equals_that_of_soft_targets_for_each_example_only() -> None:
    logits, y, weight = torch.rand(6, 3), torch.tensor([0, 0, 0, 1, 2, 1]), torch.tensor([1.0, 5.0, 20.0])
    mixed = Mixed(None, y, 0.75, torch.tensor([3, 4, 5, 0, 1, 2]), "layer")
    each = nn.CrossEntropyLoss(weight=weight, reduction="none")
    mean = nn.CrossEntropyLoss(weight=weight)
    assert torch.allclose(mixed.loss(each, logits), each(logits, mixed.soft_targets(3)), atol=1e-5)
    assert abs(mixed.loss(mean, logits) - mean(logits, mixed.soft_targets(3))) > 0.1
    assert "weight=" in (Mixed.loss.__doc__ or "")


@pytest.mark.parametrize("label", [-100, 3])
def test_soft_targets_of_a_label_that_is_no_class_are_an_error_that_says_what_to_use(label: int) -> None:
    mixed = Mixed(None, torch.tensor([0, label, 2]), 0.75, torch.tensor([1, 2, 0]), "layer")
    with pytest.raises(ValueError, match=rf"labels from .*{label}.*0 to 2.*ignore_index"):
        mixed.soft_targets(3)
