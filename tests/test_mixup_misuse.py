"""What ManifoldMixup objects to, so that nobody trains wrongly without a word."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hooklab import mixing
from hooklab._shared import eager
from hooklab.mixup import ManifoldMixup, Mixed
from tests.mixing import SmallCNN, digits_like, hooks_in, mixer


@pytest.fixture
def model() -> SmallCNN:
    torch.manual_seed(0)
    return SmallCNN()


@pytest.fixture
def without_dynamo(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process in which nothing was compiled: other tests have imported what torch.compile needs."""
    monkeypatch.setattr(eager, "may_have_compiled", lambda: False)
    monkeypatch.setattr(mixing, "may_have_compiled", lambda: False)


# How a block is used


def test_a_layer_that_did_not_run_is_an_error(model: SmallCNN) -> None:
    x, y = digits_like()
    with (
        pytest.raises(RuntimeError, match="layer 'stage1' was chosen for mixing, but did not run"),
        mixer(model, "stage1")(x, y),
    ):
        pass
    assert hooks_in(model) == 0


def test_a_model_that_runs_twice_in_a_block_is_an_error(model: SmallCNN) -> None:
    x, y = digits_like()
    with (
        pytest.raises(RuntimeError, match="layer 'stage1' ran a second time"),
        mixer(model, "stage1")(x, y) as mixed,
    ):
        model(mixed.x) + model(mixed.x)
    assert hooks_in(model) == 0


def test_forgetting_mixed_x_is_an_error_when_the_input_was_chosen(model: SmallCNN) -> None:
    x, y = digits_like()
    with pytest.raises(RuntimeError, match=r"call model\(mixed\.x\)"), mixer(model, "input")(x, y):
        model(x)


@pytest.mark.parametrize("at", ["input", "stage1"])
def test_a_block_is_entered_once_and_ended_once(model: SmallCNN, at: str) -> None:
    block = mixer(model, at)(*digits_like())
    with pytest.raises(RuntimeError, match="is not open"):
        block.__exit__(None, None, None)
    with pytest.raises(RuntimeError, match=r"write `with mix.* for each batch"), block, block:
        pytest.fail("the inner block must not begin")
    with pytest.raises(RuntimeError, match="for each batch"), block:
        pytest.fail("the block must not begin again")
    with pytest.raises(RuntimeError, match="is not open"):
        block.__exit__(None, None, None)
    assert hooks_in(model) == 0 and eager._open_sessions == 0


@pytest.mark.parametrize("times", [1, 9], ids=["one interrupt", "interrupts without end"])
def test_an_interrupt_at_the_end_leaves_no_hook_that_mixes(model: SmallCNN, times: int) -> None:
    (x, y), plain, close, interrupts = digits_like(), copy.deepcopy(model), mixing.MixBlock.close, [None] * times

    def interrupted(self: mixing.MixBlock) -> None:
        if interrupts:
            interrupts.pop()
            raise KeyboardInterrupt
        close(self)

    with (
        mock.patch.object(mixing.MixBlock, "close", interrupted),
        pytest.raises(KeyboardInterrupt),
        mixer(model, "stage1")(x, y) as mixed,
    ):
        model(mixed.x)
    assert hooks_in(model) == (0 if times == 1 else 2)
    assert torch.equal(model(x), plain(x))
    with mixer(model, "stage1")(x, y) as mixed:
        model(mixed.x)
    assert hooks_in(model) == 0


X, Y = digits_like()
NO_TENSOR = r"y is .*, which holds no tensor: pass torch\.as_tensor\(y\)"


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        (X, Y[:5], r"x holds a tensor of shape \(6, 1, 8, 8\), but y has length 5"),
        (X[:1], torch.tensor(3), "got a single number"),
        (X, (torch.zeros(6), torch.zeros(5)), "different lengths, 6 and 5"),
        (X, [0, 1, 2, 0], NO_TENSOR),
        (X, torch.tensor([0, 1]).numpy(), NO_TENSOR),
    ],
    ids=["lengths", "a number", "lengths of two", "numbers", "NumPy"],
)
def test_targets_that_do_not_fit_are_an_error(model: SmallCNN, x: Tensor, y: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        mixer(model, "stage1")(x, y).__enter__()
    assert hooks_in(model) == 0


def test_a_model_in_eval_mode_is_an_error(model: SmallCNN) -> None:
    model.eval()
    with pytest.raises(RuntimeError, match=r"call model\.train\(\)"):
        mixer(model, "stage1")(*digits_like()).__enter__()


def test_nothing_to_choose_from_is_an_error(model: SmallCNN) -> None:
    with pytest.raises(ValueError, match="nothing to choose from"):
        ManifoldMixup(model, [], include_input=False)


# Which layers are chosen


def test_layers_inside_other_layers_warn_and_the_outermost_ones_are_offered() -> None:
    model = nn.ModuleDict({"a": nn.Sequential(nn.Linear(2, 2), nn.ReLU()), "b": nn.Linear(2, 2)})
    with pytest.warns(
        UserWarning, match=r"2 of the 4 layers are inside .*layers=\['a', 'b'\]; `mix.choices`"
    ) as warned:
        ManifoldMixup(model, ["[ab]", "a.*"])
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ManifoldMixup(model, ["a", "b"]).choices == ["input", "a", "b"]


class Calls(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Holder(nn.Module):
    """Holds a parameter, and is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))


def test_a_holder_of_parameters_that_is_never_called_is_refused() -> None:
    with pytest.raises(ValueError, match="'holder', a Holder, has no forward and is never called"):
        ManifoldMixup(nn.ModuleDict({"holder": Holder()}), "holder")


def test_a_recurrent_layer_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'0', a GRU, returns outputs and states.* choose the module that uses"):
        ManifoldMixup(nn.Sequential(nn.GRU(3, 3, batch_first=True)), "0")


def test_a_model_with_a_time_first_layer_asks_where_the_batch_is() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.TransformerEncoderLayer(3, 1, 4))
    with pytest.raises(ValueError, match=r"'1.self_attn', a MultiheadAttention, has batch_first=False.* batch_dim=1,"):
        ManifoldMixup(model, "0")
    ManifoldMixup(model, "0", batch_dim=1)
    ManifoldMixup(model, "0", batch_dim=0)


@pytest.mark.parametrize(
    ("function", "advice"),
    [
        (lambda x: x.T, "if dimension 1 is, say batch_dim=1; if it holds a part"),
        (lambda x: x[:3], "if it holds a part of the batch"),
    ],
    ids=["second", "a part"],
)
def test_batch_dim_is_advised_only_where_it_helps(function: Callable[[Tensor], Tensor], advice: str) -> None:
    model, x = nn.Sequential(Calls(function)), torch.arange(12.0).view(6, 2)
    with (
        pytest.raises(ValueError, match=f"dimension 0 is not the batch; {advice}"),
        mixer(model, "0")(x, torch.zeros(6)) as mixed,
    ):
        model(mixed.x)


# What happens inside the block


@pytest.mark.usefixtures("without_dynamo")
@pytest.mark.parametrize("at", ["input", "stage1"])
def test_eval_mode_inside_the_block_is_an_error(model: SmallCNN, at: str) -> None:
    with pytest.raises(RuntimeError, match="validate after the block"), mixer(model, at)(*digits_like()) as mixed:
        model.eval()(mixed.x)
    assert hooks_in(model) == 0


def test_eval_mode_is_noticed_where_only_a_part_of_the_model_is_called(model: SmallCNN) -> None:
    with pytest.raises(RuntimeError, match="validate after the block"), mixer(model, "stage1")(*digits_like()) as mixed:
        model.eval().stage1(mixed.x)


@pytest.mark.parametrize("inner", ["stage1", "stage2", "input"])
def test_a_block_of_the_same_model_inside_another_is_an_error(model: SmallCNN, inner: str) -> None:
    x, y = digits_like()
    with (
        pytest.raises(RuntimeError, match=r"would mix twice.*like=mixed"),
        mixer(model, "stage1")(x, y),
        mixer(model, inner)(x, y),
    ):
        pytest.fail("the inner block must not begin")
    with mixer(model, "stage1")(x, y) as mixed:  # and nothing stays behind
        model(mixed.x)


@pytest.mark.usefixtures("without_dynamo")
def test_calling_the_model_with_x_itself_after_looking_at_mixed_x_is_an_error(model: SmallCNN) -> None:
    x, y = digits_like()
    with (
        pytest.raises(RuntimeError, match=r"called with x itself: call model\(mixed\.x\)"),
        mixer(model, "input")(x, y) as mixed,
    ):
        model(x if mixed.x is not None else None)
    assert hooks_in(model) == 0


class LossInside(nn.Module):
    """Computes its loss itself when it is given labels, as the models of some libraries do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 3)

    def forward(self, x: Tensor, labels: Tensor | None = None, attention_mask: Tensor | None = None) -> Tensor:
        logits = self.layer(x)
        return logits if labels is None else F.cross_entropy(logits, labels)


@pytest.mark.parametrize(
    "given",
    [
        lambda model, x, y: model(x, labels=y),
        lambda model, x, y: model(x, labels=y.clone()),
        lambda model, x, y: model(x, y),
        lambda model, x, y: model(x, y.clone()),
        lambda model, x, y: model({"x": x, "labels": y.clone()}),
    ],
    ids=["labels=y", "labels=a copy", "positional", "a copy, positional", "a batch"],
)
def test_a_model_that_is_given_the_targets_is_an_error(given: Callable[[nn.Module, Tensor, Tensor], Tensor]) -> None:
    model, x, y = LossInside(), torch.rand(4, 2), torch.tensor([0, 1, 2, 0])
    with (
        pytest.raises(RuntimeError, match=r"the model was given the targets.*mixed\.loss"),
        mixer(model, "layer")(x, y) as mixed,
    ):
        given(model, mixed.x, y)


def test_an_autoencoder_whose_targets_are_its_input_is_no_error() -> None:
    model, x = nn.Sequential(nn.Linear(2, 2)), torch.rand(4, 2)
    with mixer(model, "0")(x, x) as mixed:
        assert mixed.loss(F.mse_loss, model(mixed.x)).isfinite()


def test_a_padding_mask_of_the_examples_themselves_warns_and_that_of_both_does_not() -> None:
    model, x, y = LossInside(), torch.rand(3, 2), torch.tensor([0, 1, 2])
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0]])
    for given in (lambda x: model(x, attention_mask=mask), lambda x: model(x, None, mask)):
        with (
            pytest.warns(UserWarning, match=r"attention_mask=mixed\.union\(attention_mask\)"),
            mixer(model, "layer")(x, y) as mixed,
        ):
            given(mixed.x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with mixer(model, "layer")(x, y) as mixed:
            model(mixed.x, attention_mask=mixed.union(mask))
        with mixer(model, "layer")(x, y) as mixed:
            model(mixed.x, attention_mask=torch.ones(3, 3))  # nothing is padded


def test_the_union_of_masks_counts_what_either_example_has() -> None:
    mixed = Mixed(None, torch.zeros(3), 0.75, torch.tensor([1, 2, 0]), "layer")
    kept = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0]])
    assert mixed.union(kept).tolist() == [[1, 1, 1], [1, 1, 0], [1, 1, 1]]
    assert torch.equal(mixed.union(kept == 0, marks="padding"), mixed.union(kept) == 0)
    with pytest.raises(ValueError, match="marks is"):
        mixed.union(kept, marks="tokens")


def test_a_reentrant_checkpoint_whose_backward_comes_after_the_block_is_an_error() -> None:
    model, x = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.rand(4, 2, requires_grad=True)
    with (
        pytest.raises(RuntimeError, match=r"in a checkpoint.*call backward\(\) inside the block"),
        mixer(model, "1")(x, torch.zeros(4)) as mixed,
    ):
        checkpoint(model, mixed.x, use_reentrant=True)


def test_a_block_inside_a_compiled_function_is_an_error_that_says_what_to_compile() -> None:
    torch._dynamo.reset()
    model, x, y = nn.Sequential(nn.Linear(2, 3), nn.ReLU()), torch.rand(4, 2), torch.tensor([0, 1, 2, 0])
    mix = mixer(model, "1")

    @torch.compile(backend="eager")
    def step() -> Tensor:
        with mix(x, y) as mixed:
            return mixed.loss(F.cross_entropy, model(mixed.x))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about what it does not trace
        with pytest.raises(RuntimeError, match="compile the model or its stages, and leave the function"):
            step()
    assert eager._open_sessions == 0
    assert hooks_in(model) == 0


# Targets


def test_targets_may_be_a_tuple_list_or_dict_of_tensors() -> None:
    model, x = nn.Sequential(nn.Identity()), torch.rand(4, 3)
    a, b = torch.tensor([0, 1, 2, 0]), torch.rand(4)
    two_losses = lambda out, y: F.cross_entropy(out, y["a"]) + F.mse_loss(out[:, 0], y["b"])  # noqa: E731
    with mixer(model, "0")(x, {"a": a, "b": b}) as mixed:
        loss = mixed.loss(two_losses, model(mixed.x))
    order, out = mixed.permutation, mixed.lam * x + (1 - mixed.lam) * x[mixed.permutation]
    own, partner = two_losses(out, {"a": a, "b": b}), two_losses(out, {"a": a[order], "b": b[order]})
    assert torch.allclose(loss, mixed.lam * own + (1 - mixed.lam) * partner)
    with mixer(model, "0")(x, [a, b]) as mixed:
        assert mixed.loss(lambda out, y: F.cross_entropy(out, y[0]), model(mixed.x)).isfinite()


def test_soft_targets_of_several_targets_are_an_error(model: SmallCNN) -> None:
    x, y = digits_like()
    with mixer(model, "stage1")(x, (y, y)) as mixed:
        model(mixed.x)
    with pytest.raises(TypeError, match=r"y is a tuple: use mixed\.loss"):
        mixed.soft_targets(10)
