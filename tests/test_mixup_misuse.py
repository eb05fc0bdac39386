"""What ManifoldMixup objects to, so that nobody trains wrongly without a word."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hooklab import leftover_hooks, mixing
from hooklab._shared import eager
from hooklab.mixup import ManifoldMixup, Mixed
from tests.mixing import cnn, digits_like, mixer, seeded
from tests.nets import Calls

X, Y = digits_like()


@pytest.fixture
def without_dynamo(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process in which nothing was compiled: other tests have imported what torch.compile needs."""
    monkeypatch.setattr(eager, "may_have_compiled", lambda: False)
    monkeypatch.setattr(mixing, "may_have_compiled", lambda: False)


# When it is made


@pytest.mark.parametrize(
    ("model", "layers", "options", "said"),
    [
        (nn.ReLU(), [], {"include_input": False}, "nothing to choose from"),
        *((nn.ReLU(), "", {"alpha": alpha}, "alpha must be a finite number") for alpha in (0.0, math.nan, math.inf)),
        (nn.Sequential(nn.ParameterList([X])), "0", {}, "'0', a ParameterList, has no forward and is never called"),
        (
            nn.Sequential(nn.GRU(3, 3, batch_first=True)),
            "0",
            {},
            "'0', a GRU, returns outputs and states.* choose the module that uses",
        ),
        (
            nn.Sequential(nn.Linear(3, 3), nn.TransformerEncoderLayer(3, 1, 4)),
            "0",
            {},
            r"'1.self_attn', a MultiheadAttention, has batch_first=False.* batch_dim=1,",
        ),
    ],
    ids=["no place", "alpha 0", "alpha nan", "alpha inf", "never called", "recurrent", "time first"],
)
def test_a_choice_that_cannot_be_mixed_is_refused(model: nn.Module, layers: Any, options: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ManifoldMixup(model, layers, **options)


@pytest.mark.parametrize("batch_dim", [0, 1])
def test_a_model_with_a_time_first_layer_is_taken_once_it_is_said_where_the_batch_is(batch_dim: int) -> None:
    ManifoldMixup(nn.Sequential(nn.Linear(3, 3), nn.TransformerEncoderLayer(3, 1, 4)), "0", batch_dim=batch_dim)


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


# When a batch is given

NO_TENSOR = r"y is .*, which holds no tensor: pass torch\.as_tensor\(y\)"


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        (X, Y[:5], r"x holds a tensor of shape \(6, 1, 8, 8\), but y has length 5"),
        (X[:1], torch.tensor(3), "got a single number"),
        (X, (torch.zeros(6), torch.zeros(5)), "different lengths, 6 and 5"),
        (X, [0, 1, 2, 0], NO_TENSOR),
        (X, torch.tensor([0, 1]).numpy(), NO_TENSOR),
        ("text", Y, "x is str, which holds no tensor .* include_input=False"),
        (Y, Y, "x holds a tensor of dtype torch.int64, which cannot be mixed; .* include_input=False"),
    ],
    ids=["lengths", "a number", "lengths of two", "numbers", "NumPy", "an input without a tensor", "integer input"],
)
def test_a_batch_that_cannot_be_mixed_is_an_error_wherever_it_is_mixed(x: Any, y: Any, said: str) -> None:
    model = cnn()
    for seed in range(4):
        with pytest.raises(ValueError, match=said):
            ManifoldMixup(model, "0", generator=seeded(seed))(x, y)


def test_a_batch_of_other_length_is_an_error_if_only_layers_can_be_chosen() -> None:
    with pytest.raises(ValueError, match=r"x holds a tensor of shape .*, but y has length 5"):
        mixer(cnn(), "0")(X, Y[:5])


def test_a_model_in_eval_mode_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"call model\.train\(\)"):
        mixer(cnn().eval(), "0")(X, Y)


def test_like_must_be_possible() -> None:
    model = cnn()
    with mixer(model, "1")(X, Y) as mixed:
        model(mixed.x)
    with pytest.raises(ValueError, match="like was mixed at '1', where this one cannot mix"):
        mixer(model, "0")(X, Y, like=mixed)
    with pytest.raises(ValueError, match="like has 6 examples, y has 5"):
        mixer(model, "1")(X[:5], Y[:5], like=mixed)


# How a block is used


@pytest.mark.usefixtures("without_dynamo")
@pytest.mark.parametrize(
    ("at", "work", "said"),
    [
        ("0", lambda model, mixed: None, "layer '0' was chosen for mixing, but did not run"),
        ("0", lambda model, mixed: [model(mixed.x), model(mixed.x)], "layer '0' ran a second time"),
        ("input", lambda model, mixed: None, r"mixed\.x was not used: call model\(mixed\.x\)"),
        ("input", lambda model, mixed: [mixed.x, model(X)], r"called with x itself: call model\(mixed\.x\)"),
        ("0", lambda model, mixed: model.eval()(mixed.x), "validate after the block"),
        ("input", lambda model, mixed: model.eval()(mixed.x), "validate after the block"),
        ("0", lambda model, mixed: model.eval()[0](mixed.x), "validate after the block"),
        *(
            ("0", lambda model, mixed, at=at: mixer(model, at)(X, Y).__enter__(), "would mix twice.*like=mixed")
            for at in ("0", "1", "input")
        ),
        (
            "0",
            lambda model, mixed: checkpoint(model, mixed.x, use_reentrant=False),
            r"in a checkpoint.*call backward\(\) inside the block",
        ),
        (
            "0",
            lambda model, mixed: checkpoint(model, X.clone().requires_grad_(), use_reentrant=True),
            r"in a checkpoint.*call backward\(\) inside the block",
        ),
    ],
    ids=[
        *("nothing runs", "two runs", "x is not used", "x itself", "eval", "eval, at the input", "eval of a part"),
        *("a block inside at the same layer", "at another layer", "at the input", "checkpoint", "reentrant checkpoint"),
    ],
)
def test_a_mistake_in_a_block_is_an_error_and_leaves_no_hook(
    at: str, work: Callable[[nn.Module, Mixed], object], said: str
) -> None:
    model = cnn()
    with pytest.raises(RuntimeError, match=said), mixer(model, at)(X, Y) as mixed:
        work(model, mixed)
    assert leftover_hooks(model) == []


def test_a_checkpoint_that_no_backward_pass_can_recompute_is_no_error() -> None:
    model = cnn()
    with mixer(model, "0")(X, Y) as mixed, torch.no_grad():
        checkpoint(model, mixed.x, use_reentrant=False)
    with pytest.warns(match="None of the inputs have requires_grad"), mixer(model, "0")(X, Y) as mixed:
        checkpoint(model, mixed.x, use_reentrant=True)


@pytest.mark.parametrize("at", ["input", "0"])
@pytest.mark.parametrize("failure", [ZeroDivisionError, KeyboardInterrupt, GeneratorExit])
def test_what_the_block_raises_passes_through_and_no_hook_stays(at: str, failure: type[BaseException]) -> None:
    model = cnn()
    with pytest.raises(failure), mixer(model, at)(X, Y):
        raise failure
    assert leftover_hooks(model) == []


@pytest.mark.parametrize("at", ["input", "0"])
def test_a_block_is_entered_once_and_ended_once(at: str) -> None:
    model = cnn()
    block = mixer(model, at)(X, Y)
    with pytest.raises(RuntimeError, match="is not open"):
        block.__exit__(None, None, None)
    with pytest.raises(RuntimeError, match=r"write `with mix.* for each batch"), block, block:
        pytest.fail("the inner block must not begin")
    with pytest.raises(RuntimeError, match="for each batch"), block:
        pytest.fail("the block must not begin again")
    with pytest.raises(RuntimeError, match="is not open"):
        block.__exit__(None, None, None)
    assert leftover_hooks(model) == [] and eager._open_sessions == 0


@pytest.mark.parametrize("times", [1, 9], ids=["one interrupt", "interrupts without end"])
def test_an_interrupt_at_the_end_leaves_no_hook_that_mixes(times: int) -> None:
    model, plain, close, interrupts = cnn(), cnn(), mixing.MixBlock.close, [None] * times

    def interrupted(self: mixing.MixBlock) -> None:
        if interrupts:
            interrupts.pop()
            raise KeyboardInterrupt
        close(self)

    with (
        mock.patch.object(mixing.MixBlock, "close", interrupted),
        pytest.raises(KeyboardInterrupt),
        mixer(model, "0")(X, Y) as mixed,
    ):
        model(mixed.x)
    assert len(leftover_hooks(model)) == (0 if times == 1 else 2)
    plain(X)  # moves the statistics of BatchNorm, too
    assert torch.equal(model(X), plain(X))
    with mixer(model, "0")(X, Y) as mixed:
        model(mixed.x)
    assert leftover_hooks(model) == []


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
    assert leftover_hooks(model) == []


# What a layer returns


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda x: x[:-1], r"holds a tensor of shape \(5, 2\).* dimension 0 is not the batch; if it holds a part"),
        (lambda x: x.T, r"holds a tensor of shape \(2, 6\).* not the batch; if dimension 1 is, say batch_dim=1; if it"),
        (lambda x: x.sum(), r"holds a tensor of shape \(\)"),
        (lambda x: (x, x.repeat(2, 1)), r"holds a tensor of shape \(12, 2\)"),
        (lambda x: (x, x.long()), "holds a tensor of dtype torch.int64, which cannot be mixed"),
        (lambda x: "text", "is str, which holds no tensor"),
        (lambda x: None, "is None, which holds no tensor"),
        (lambda x: (None, 3), r"is \(None, int\), which holds no tensor"),
    ],
    ids=["a part", "batch second", "number", "second of a tuple", "integers", "object", "None", "tuple"],
)
def test_an_output_that_cannot_be_mixed_is_an_error_that_shows_it(make: Callable[[Tensor], Any], said: str) -> None:
    model, x = nn.Sequential(Calls(make)), torch.rand(6, 2)
    with pytest.raises(ValueError, match=f"output of layer '0' {said}"), mixer(model, "0")(x, x) as mixed:
        model(mixed.x)
    assert leftover_hooks(model) == []


# What the model is given


class LossInside(nn.Module):
    """Computes its loss itself when it is given labels, as the models of some libraries do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 3)

    def forward(self, x: Tensor, labels: Tensor | None = None, attention_mask: Tensor | None = None) -> Tensor:
        logits = self.layer(x)
        return logits if labels is None else F.cross_entropy(logits, labels)


@pytest.mark.parametrize(
    "give",
    [
        lambda model, x, y: model(x, labels=y),
        lambda model, x, y: model(x, labels=y.clone()),
        lambda model, x, y: model(x, y),
        lambda model, x, y: model(x, y.clone()),
        lambda model, x, y: model({"x": x, "labels": y.clone()}),
    ],
    ids=["labels=y", "labels=a copy", "positional", "a copy, positional", "a batch"],
)
def test_a_model_that_is_given_the_targets_is_an_error(give: Callable[[nn.Module, Tensor, Tensor], Tensor]) -> None:
    model, x, y = LossInside(), torch.rand(4, 2), torch.tensor([0, 1, 2, 0])
    with (
        pytest.raises(RuntimeError, match=r"the model was given the targets.*mixed\.loss"),
        mixer(model, "layer")(x, y) as mixed,
    ):
        give(model, mixed.x, y)


def test_an_autoencoder_whose_targets_are_its_input_is_no_error() -> None:
    model, x = nn.Sequential(nn.Linear(2, 2)), torch.rand(4, 2)
    with mixer(model, "0")(x, x) as mixed:
        assert mixed.loss(F.mse_loss, model(mixed.x)).isfinite()


def test_a_padding_mask_of_the_examples_themselves_warns_and_that_of_both_does_not() -> None:
    model, x, y = LossInside(), torch.rand(3, 2), torch.tensor([0, 1, 2])
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0]])
    for give in (lambda x: model(x, attention_mask=mask), lambda x: model(x, None, mask)):
        with (
            pytest.warns(UserWarning, match=r"attention_mask=mixed\.union\(attention_mask\)"),
            mixer(model, "layer")(x, y) as mixed,
        ):
            give(mixed.x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with mixer(model, "layer")(x, y) as mixed:
            model(mixed.x, attention_mask=mixed.union(mask))
        with mixer(model, "layer")(x, y) as mixed:
            model(mixed.x, attention_mask=torch.ones(3, 3))  # nothing is padded
