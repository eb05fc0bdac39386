"""capture(grads=True): the gradients of outputs, and why there is none when there is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from hooklab import capture
from tests.nets import Branch, Calls, ChangedThroughAnotherView, Checkpointed, Emit, Wrap, mlp, ones, seen_of

pytestmark = pytest.mark.usefixtures("same_numbers_each_time")


@pytest.mark.parametrize("inplace", [False, True])
def test_the_gradient_is_that_of_the_output_with_an_in_place_activation_too(inplace: bool) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=inplace), nn.Linear(4, 2))
    seen = seen_of(model, grads=True, clone=True)
    through = torch.ones(2, 2) @ model[2].weight
    assert torch.equal(seen.grad("2"), torch.ones(2, 2))
    assert torch.allclose(seen.grad("1"), through, atol=1e-6)
    assert torch.allclose(seen.grad("0"), through * (seen["0"] > 0))  # of the value before the change


def test_gradients_come_with_an_in_place_change_of_a_view() -> None:
    model = Wrap(Calls(lambda x: tuple(half.clone() for half in (x * 2).chunk(2))))
    with capture(model, "inner", grads=True, clone=True) as seen:
        y = model(torch.ones(4, requires_grad=True))
        y[:1].mul_(3)
        y.sum().backward()
    left, right = seen.grad("inner")
    assert left.tolist() == [3, 1]
    assert right is None


def test_a_view_whose_base_was_changed_through_another_view_does_not_crash() -> None:
    seen = seen_of(ChangedThroughAnotherView(), x=torch.zeros(3, requires_grad=True), grads=True)
    assert seen.grad("").tolist() == [1, 1, 1]


def test_a_part_of_the_output_that_the_loss_does_not_use_has_none() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    assert seen_of(Wrap(Emit("dict")), "inner", x=x, grads=True).grad("inner")["nested"] == (None,)
    # of unbind autograd calls the unused parts' hooks, with None
    used, unused = seen_of(Wrap(Calls(torch.unbind)), "inner", x=x, grads=True).grad("inner")
    assert used.tolist() == [1, 1, 1] and unused is None
    out, states = seen_of(Wrap(nn.LSTM(3, 4)), "inner", x=ones(2, 1, 3), grads=True).grad("inner")
    assert out.shape == (2, 1, 4) and states == (None, None)


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


def test_autograd_grad_is_a_backward_too_and_a_scaler_scales_its_gradients() -> None:
    model, x, scaler = mlp(), torch.ones(1, 3, requires_grad=True), torch.amp.GradScaler("cpu", init_scale=1024.0)
    with capture(model, "2", grads=True) as seen:
        torch.autograd.grad(model(x).sum(), x)
        assert seen.grad("2").tolist() == [[1, 1]]
        scaler.scale(model(x).sum()).backward()
    assert seen.grad("2").tolist() == [[scaler.get_scale()] * 2]


@pytest.mark.parametrize("clone", [False, True])
def test_a_gradient_that_a_later_hook_changes_in_place_is_noticed_unless_it_is_cloned(clone: bool) -> None:
    model = mlp()
    with capture(model, "2", grads=True, clone=clone) as seen:
        y = model(ones(1, 3))
        y.register_hook(lambda grad: grad.mul_(2))
        (3 * y).sum().backward()
    assert model[2].bias.grad.tolist() == [6, 6]
    if clone:
        assert seen.grad("2").tolist() == [[3, 3]]
    else:
        with pytest.raises(RuntimeError, match=r"the gradient of '2' was changed in place .* clone=True"):
            seen.grad("2")


def test_hooks_on_a_leaf_that_is_the_output_do_not_pile_up() -> None:
    model, x = nn.Identity(), torch.ones(3, requires_grad=True)
    with capture(model, grads=True):
        for _ in range(3):
            model(x)
            assert len(x._backward_hooks) == 1
    assert len(x._backward_hooks) == 0


# no gradient


def test_a_gradient_before_backward_and_after_the_block_says_so() -> None:
    model = mlp()
    with capture(model, grads=True) as seen:
        y = model(ones(2, 3))
        with pytest.raises(RuntimeError, match="no gradient of '0' yet: call backward inside the block"):
            seen.grad("0")
    y.sum().backward()
    with pytest.raises(RuntimeError, match="backward did not run inside the block"):
        seen.grad("0")


def test_an_output_that_did_not_require_a_gradient_says_so() -> None:
    model = mlp()
    with capture(model, grads=True) as seen, torch.no_grad():
        model(ones(2, 3))
    with pytest.raises(RuntimeError, match=r"the output of '0' did not require a gradient: .*no_grad"):
        seen.grad("0")
    with pytest.raises(LookupError, match="'unused' did not run"):
        seen_of(Branch(), grads=True).grad("unused")
    model = Calls(lambda x: (torch.Size([2, 3]), "text"))
    with capture(model, grads=True) as seen:
        model(ones(1))
    with pytest.raises(RuntimeError, match=r"or holds no floating-point tensor\.$"):
        seen.grad("")


def test_an_output_that_the_loss_does_not_depend_on_says_so_and_that_backward_may_have_raised() -> None:
    model = nn.ModuleDict({"used": nn.Linear(3, 3), "idle": nn.Linear(3, 3)})
    with capture(model, grads=True) as seen:
        model["idle"](ones(1, 2, 3))
        model["used"](ones(1, 2, 3)).sum().backward()
    said = r"backward ran, but no gradient reached 'idle': .* does not depend on its output, or backward raised"
    with pytest.raises(RuntimeError, match=said) as raised:
        seen.grad("idle")
    assert "view" not in str(raised.value)


# checkpoints


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_checkpointed_block_is_recorded_once_with_the_values_and_gradients_of_a_plain_one(
    use_reentrant: bool,
) -> None:
    model = Checkpointed(use_reentrant)
    seen = seen_of(model, grads=True)
    expected = seen_of(nn.Sequential(model.stem, *model.block), grads=True)
    assert {name: len(seen.calls(name)) for name in seen} == {"stem": 1, "block.0": 1, "block.1": 1}
    for name, plain_name in (("stem", "0"), ("block.0", "1"), ("block.1", "2")):
        assert torch.equal(seen[name], expected[plain_name])
        if name == "stem" or not use_reentrant:
            assert torch.allclose(seen.grad(name), expected.grad(plain_name), atol=1e-6)
        else:
            with pytest.raises(RuntimeError, match=r"did not require a gradient: .*use_reentrant=True"):
                seen.grad(name)


def test_a_module_used_twice_in_a_checkpoint_has_both_gradients() -> None:
    model = Checkpointed(use_reentrant=False)
    model.block = nn.Sequential(model.block[0], model.block[0])
    first, second = seen_of(model, "block.0", grads=True).calls("block.0")
    assert torch.allclose(first.grad, second.grad @ model.block[0].weight, atol=1e-6)


# views


class Viewed(nn.Linear):
    """Returns a view, as ``nn.Linear`` itself does for a 3-D input up to torch 2.14."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.flatten(0, 1)).view(x.shape)


# a clone shows no change, so that the gradient of another output must show that backward ran
@pytest.mark.parametrize(("what", "options"), [((), {}), ((), {"clone": True}), (("0",), {})])
def test_an_output_that_is_a_view_and_was_changed_in_place_says_so(what: Any, options: dict[str, Any]) -> None:
    model = nn.Sequential(Viewed(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4))
    seen = seen_of(model, *what, x=torch.randn(2, 3, 4), grads=True, **options)
    with pytest.raises(RuntimeError, match=r"no gradient reached '0'.* its output is a view .* changed in place"):
        seen.grad("0")
