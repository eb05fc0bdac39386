"""capture(grads=True): the gradients of outputs, and why there is none when there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hooklab import capture
from tests.nets import Branch, ChangedThroughAnotherView, Checkpointed, Emit, Reuse, Wrap, mlp, ones

pytestmark = pytest.mark.usefixtures("same_numbers_each_time")


def test_the_gradient_is_that_of_the_output() -> None:
    model = mlp()
    with capture(model, grads=True, detach=False, clone=True) as seen:
        y = model(ones(2, 3))
        expected = torch.autograd.grad(y.pow(2).sum(), y, retain_graph=True)[0]
        y.pow(2).sum().backward()
    assert torch.equal(seen.grad("2"), expected)
    assert torch.allclose(seen.grad("1"), expected @ model[2].weight, atol=1e-6)
    assert torch.allclose(seen.grad("0"), seen.grad("1") * (seen["0"] > 0), atol=1e-6)


def test_gradients_come_with_an_in_place_activation() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    with capture(model, grads=True, clone=True) as seen:
        model(ones(2, 3)).sum().backward()
    through = torch.ones(2, 2) @ model[2].weight
    assert torch.allclose(seen.grad("1"), through, atol=1e-6)
    assert torch.allclose(seen.grad("0"), through * (seen["0"] > 0))  # of the value before the change


def test_gradients_come_with_an_in_place_change_of_a_view() -> None:
    class Chunked(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            left, right = (x * 2).chunk(2)
            return left.clone(), right.clone()

    model = Wrap(Chunked())
    with capture(model, "inner", grads=True, clone=True) as seen:
        y = model(torch.ones(4, requires_grad=True))
        y[:1].mul_(3)
        y.sum().backward()
    left, right = seen.grad("inner")
    assert left.tolist() == [3, 1]
    assert right is None


def test_a_view_whose_base_was_changed_through_another_view_does_not_crash() -> None:
    model, x = ChangedThroughAnotherView(), torch.zeros(3, requires_grad=True)
    with capture(model, grads=True) as seen:
        model(x).sum().backward()
    assert seen.grad("").tolist() == [1, 1, 1]


def test_each_use_of_a_module_has_its_own_gradient() -> None:
    model, x = Reuse(), torch.ones(1, 3, requires_grad=True)
    with capture(model, "act", grads=True) as seen:
        y = model(x)
        y.sum().backward()
    first, second, third = seen.calls("act")
    assert torch.equal(third.grad, torch.ones(1, 3))
    assert torch.allclose(second.grad, (1 - y.detach() ** 2) @ model.b.weight, atol=1e-6)
    assert torch.allclose(first.grad, (second.grad * (1 - second.output**2)) @ model.a.weight, atol=1e-6)


@pytest.mark.parametrize("shape", ["tensor", "tuple", "list", "dict", "named tuple", "dataclass", "model output"])
def test_gradients_have_the_structure_of_the_output(shape: str) -> None:
    inner = Emit(shape)
    model = Wrap(inner)
    with capture(model, "inner", grads=True) as seen:
        model(torch.ones(2, 3, requires_grad=True)).sum().backward()
    grad = seen.grad("inner")
    assert type(grad) is type(inner(ones(1)))
    assert torch.equal(Wrap(nn.Identity())(grad), torch.ones(2, 3))


def test_a_part_that_the_loss_does_not_use_has_none() -> None:
    model = Wrap(Emit("dict"))
    with capture(model, "inner", grads=True) as seen:
        model(torch.ones(1, 3, requires_grad=True)).sum().backward()
    assert seen.grad("inner")["nested"] == (None,)


def test_the_unused_states_of_an_lstm_have_none() -> None:
    model = nn.LSTM(3, 4)
    with capture(model, grads=True) as seen:
        model(ones(2, 1, 3))[0].sum().backward()
    out, (h, c) = seen.grad("")
    assert out.shape == (2, 1, 4)
    assert (h, c) == (None, None)


def test_the_part_of_a_split_that_the_loss_does_not_use_has_none() -> None:
    class Split(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return x.unbind()  # here autograd calls the unused parts' hooks, with None

    model = Wrap(Split())
    with capture(model, "inner", grads=True) as seen:
        model(torch.ones(2, 3, requires_grad=True)).sum().backward()
    used, unused = seen.grad("inner")
    assert used.tolist() == [1, 1, 1]
    assert unused is None


def test_the_second_backward_counts() -> None:
    model = mlp()
    with capture(model, "0", grads=True) as seen:
        y = model(ones(2, 3)).sum()
        y.backward(retain_graph=True)
        once = seen.grad("0").clone()
        (3 * y).backward()
    assert torch.allclose(seen.grad("0"), 3 * once, atol=1e-6)


def test_gradients_of_earlier_passes_come_when_all_are_kept() -> None:
    model = mlp()
    with capture(model, "2", grads=True, keep="all") as seen:
        (model(ones(1, 3)).sum() + 2 * model(ones(1, 3)).sum()).backward()
    assert [each.grad("2").tolist() for each in seen.passes] == [[[1, 1]], [[2, 2]]]


def test_autograd_grad_is_a_backward_too() -> None:
    model, x = mlp(), torch.ones(1, 3, requires_grad=True)
    with capture(model, "2", grads=True) as seen:
        torch.autograd.grad(model(x).sum(), x)
    assert seen.grad("2").tolist() == [[1, 1]]


def test_the_users_tensor_hook_still_changes_the_gradient() -> None:
    model, x = mlp(), ones(1, 3)
    with capture(model, "2", grads=True) as seen:
        y = model(x)
        y.register_hook(lambda grad: grad * 5)
        y.sum().backward()
    assert model[2].bias.grad.tolist() == [5, 5]
    assert seen.grad("2").tolist() == [[1, 1]]  # our hook came first


def test_a_gradient_that_a_hook_changes_in_place_is_noticed() -> None:
    model = mlp()
    with capture(model, "2", grads=True) as seen:
        y = model(ones(1, 3))
        y.register_hook(lambda grad: grad.mul_(2) and None if grad.numel() == 1 else grad.mul_(2))
        y.pow(2).sum().backward()
    with pytest.raises(RuntimeError, match=r"the gradient of '2' was changed in place .* clone=True"):
        seen.grad("2")


def test_a_cloned_gradient_is_the_value_from_before_the_change() -> None:
    model = mlp()
    with capture(model, "2", grads=True, clone=True) as seen:
        y = model(ones(1, 3))
        y.register_hook(lambda grad: grad.mul_(2))
        (3 * y).sum().backward()
    assert seen.grad("2").tolist() == [[3, 3]]


def test_recording_gradients_changes_no_gradient() -> None:
    model, x = Reuse(), ones(2, 3)
    model(x).sum().backward()
    plain = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with capture(model, grads=True):
        model(x).sum().backward()
    assert all(torch.equal(p.grad, expected) for p, expected in zip(model.parameters(), plain, strict=True))


# no gradient


def test_a_gradient_read_before_backward_says_so() -> None:
    model = mlp()
    with capture(model, grads=True) as seen:
        model(ones(2, 3))
        with pytest.raises(RuntimeError, match="no gradient of '0' yet: call backward inside the block"):
            seen.grad("0")


def test_a_gradient_whose_backward_ran_after_the_block_says_so() -> None:
    model = mlp()
    with capture(model, grads=True) as seen:
        y = model(ones(2, 3))
    y.sum().backward()
    with pytest.raises(RuntimeError, match="backward did not run inside the block"):
        seen.grad("0")


def test_a_gradient_that_was_not_recorded_says_how_to_record_it() -> None:
    model = mlp()
    with capture(model) as seen:
        model(ones(2, 3)).sum().backward()
    with pytest.raises(RuntimeError, match=r"gradients were not recorded: .*grads=True"):
        seen.grad("0")


def test_a_gradient_under_no_grad_says_that_none_was_required() -> None:
    model = mlp()
    with capture(model, grads=True) as seen, torch.no_grad():
        model(ones(2, 3))
    with pytest.raises(RuntimeError, match=r"the output of '0' did not require a gradient: .*no_grad"):
        seen.grad("0")


def test_an_output_that_the_loss_does_not_depend_on_says_so() -> None:
    model = nn.ModuleDict({"used": nn.Linear(3, 3), "idle": nn.Linear(3, 3)})
    with capture(model, grads=True) as seen:
        model["idle"](ones(1, 3))
        model["used"](ones(1, 3)).sum().backward()
    with pytest.raises(RuntimeError, match="backward ran, but no gradient reached 'idle'"):
        seen.grad("idle")


def test_a_backward_that_raised_half_way_is_named_as_a_reason() -> None:
    class Stop(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            raise ZeroDivisionError

    class Stopping(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Stop.apply(x)

    model = nn.Sequential(nn.Linear(3, 3), Stopping(), nn.Linear(3, 3))
    with capture(model, grads=True) as seen, pytest.raises(ZeroDivisionError):
        model(ones(2, 3)).sum().backward()
    assert seen.grad("1").shape == (2, 3)
    with pytest.raises(RuntimeError, match=r"no gradient reached '0'.* or backward raised before it got there"):
        seen.grad("0")


def test_a_module_that_did_not_run_has_no_gradient_either() -> None:
    model = Branch()
    with capture(model, grads=True) as seen:
        model(ones(1, 3)).sum().backward()
    with pytest.raises(LookupError, match="'unused' did not run"):
        seen.grad("unused")


# checkpoints


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_checkpointed_block_is_recorded_once(use_reentrant: bool) -> None:
    model = Checkpointed(use_reentrant)
    with capture(model, grads=True) as seen:
        model(ones(2, 3)).sum().backward()
    assert {name: len(seen.calls(name)) for name in seen} == {"stem": 1, "block.0": 1, "block.1": 1}


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_checkpointed_block_has_the_values_and_gradients_of_a_plain_one(use_reentrant: bool) -> None:
    model, x = Checkpointed(use_reentrant), ones(2, 3)
    with capture(model, grads=True) as seen:
        model(x).pow(2).sum().backward()
    plain = nn.Sequential(model.stem, *model.block)
    with capture(plain, grads=True) as expected:
        plain(x).pow(2).sum().backward()
    for name, plain_name in (("stem", "0"), ("block.0", "1"), ("block.1", "2")):
        assert torch.equal(seen[name], expected[plain_name])
        assert torch.allclose(seen.grad(name), expected.grad(plain_name), atol=1e-6)


def test_a_checkpoint_around_the_whole_model_is_one_pass() -> None:
    model = mlp()
    with capture(model, grads=True) as seen:
        torch.utils.checkpoint.checkpoint(model, ones(2, 3), use_reentrant=False).sum().backward()
    assert torch.equal(seen.grad("2"), torch.ones(2, 2))


def test_a_module_used_twice_in_a_reentrant_checkpoint_has_gradients_that_cannot_be_told_apart() -> None:
    model = Checkpointed(use_reentrant=True)
    model.block = nn.Sequential(model.block[0], model.block[0])
    with capture(model, "block.0", grads=True) as seen:
        model(ones(2, 3)).sum().backward()
    with pytest.raises(RuntimeError, match="use_reentrant=False"):
        _ = seen.calls("block.0")[0].grad


def test_a_module_used_outside_a_reentrant_checkpoint_and_inside_has_both() -> None:
    model, x = Checkpointed(use_reentrant=True), ones(2, 3)
    model.stem = model.block[0]
    with capture(model, "stem", grads=True) as seen:
        model(x).sum().backward()
    outside, inside = seen.calls("stem")
    assert torch.allclose(inside.grad, 1 - model.block(outside.output).detach() ** 2, atol=1e-6)
    assert torch.allclose(outside.grad, inside.grad @ model.stem.weight, atol=1e-6)


def test_a_module_used_twice_in_a_checkpoint_without_reentry_has_both() -> None:
    model = Checkpointed(use_reentrant=False)
    model.block = nn.Sequential(model.block[0], model.block[0])
    with capture(model, "block.0", grads=True) as seen:
        model(ones(2, 3)).sum().backward()
    first, second = seen.calls("block.0")
    assert torch.allclose(first.grad, second.grad @ model.block[0].weight, atol=1e-6)


class Changing(nn.Module):
    """Gives something else when it runs with a graph than without, as layers of reversible networks do."""

    def __init__(self, without: Callable[[Tensor], Any], with_graph: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.linear, self.without, self.with_graph = nn.Linear(3, 3), without, with_graph

    def forward(self, x: Tensor) -> Any:
        return (self.with_graph if torch.is_grad_enabled() else self.without)(self.linear(x))


class CheckpointedChanging(nn.Module):
    def __init__(self, *shapes: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.part = Changing(*shapes)

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(lambda x: self.part(x)[-1], x, use_reentrant=True)


@pytest.mark.parametrize(
    ("without", "with_graph", "said"),
    [
        (lambda h: (h.sum(), h), lambda h: (h,), r"put out \(\(1, 3\) float32\) in place of \(\(\) float32, \(1, 3\)"),
        (lambda h: (h,), lambda h: (h.sum(), h), r"put out \(\(\) float32, \(1, 3\) float32\) in place of \(\(1, 3\)"),
        (lambda h: (h[0], h), lambda h: (h, h), r"put out .* which part of its output cannot be told"),
    ],
    ids=["fewer", "more", "others"],
)
def test_a_module_that_gives_something_else_when_it_runs_again_has_no_gradient_that_could_be_placed(
    without: Callable[[Tensor], Any], with_graph: Callable[[Tensor], Any], said: str
) -> None:
    model, x = CheckpointedChanging(without, with_graph), torch.ones(1, 3, requires_grad=True)
    with capture(model, "part", grads=True) as seen:
        model(x).sum().backward()
    assert len(seen["part"]) == len(without(x))
    with pytest.raises(RuntimeError, match=said):
        seen.grad("part")


def test_a_module_that_gives_the_same_structure_when_it_runs_again_has_its_gradient() -> None:
    model, x = CheckpointedChanging(lambda h: (h, h), lambda h: (h * 1, h * 2)), torch.ones(1, 3, requires_grad=True)
    with capture(model, "part", grads=True) as seen:
        (3 * model(x)).sum().backward()
    first, last = seen.grad("part")
    assert (first, last.tolist()) == (None, [[3, 3, 3]])


# views


class Viewed(nn.Linear):
    """Gives a view, as ``nn.Linear`` itself does for a 3-D input up to torch 2.14."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.flatten(0, 1)).view(x.shape)


def in_place_after_linear(**options: Any) -> Any:
    model = nn.Sequential(Viewed(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4))
    with capture(model, grads=True, **options) as seen:
        model(torch.randn(2, 3, 4)).sum().backward()
    return seen


@pytest.mark.parametrize("options", [{}, {"clone": True}, {"device": "meta"}])
def test_an_output_that_is_a_view_and_was_changed_in_place_says_so(options: dict[str, Any]) -> None:
    seen = in_place_after_linear(**options)
    assert seen.grad("1").shape == (2, 3, 4)
    with pytest.raises(RuntimeError, match=r"no gradient reached '0'.* its output is a view .* changed in place"):
        seen.grad("0")


def test_that_reason_is_given_also_where_no_other_module_was_selected() -> None:
    model = nn.Sequential(Viewed(4, 4), nn.ReLU(inplace=True))
    with capture(model, "0", grads=True) as seen:
        model(torch.randn(2, 3, 4)).sum().backward()
    with pytest.raises(RuntimeError, match=r"its output is a view .* changed in place"):
        seen.grad("0")


def test_a_view_that_was_not_changed_is_given_the_other_reasons() -> None:
    model = nn.ModuleDict({"used": nn.Linear(3, 3), "idle": nn.Linear(3, 3)})
    with capture(model, grads=True) as seen:
        model["idle"](ones(1, 2, 3))
        model["used"](ones(1, 2, 3)).sum().backward()
    with pytest.raises(RuntimeError, match=r"what it was called on does not depend on its output") as raised:
        seen.grad("idle")
    assert "view" not in str(raised.value)


def test_under_a_gradient_scaler_gradients_are_those_of_the_scaled_loss() -> None:
    model, x, scaler = mlp(), ones(2, 3), torch.amp.GradScaler("cpu", init_scale=1024.0)
    with capture(model, "0", grads=True) as scaled:
        scaler.scale(model(x).sum()).backward()
    with capture(model, "0", grads=True) as plain:
        model(x).sum().backward()
    assert torch.equal(scaled.grad("0") / scaler.get_scale(), plain.grad("0"))
