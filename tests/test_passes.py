"""Where a pass begins: at a call of the model, or, where that is never called, of the part that is."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from hooklab import capture, leftover_hooks
from tests.nets import Recursive, Reuse, ones


class Trained(nn.Module):
    """What a trainer has: it calls ``training_step``, or ``two_parts``, and never the module itself."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.head, self.spare = nn.Sequential(nn.Linear(3, 3), Reuse()), nn.Linear(3, 1), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.net(x))

    def training_step(self, x: Tensor) -> Tensor:
        return self.forward(x).sum()


@pytest.fixture
def model() -> Trained:
    torch.manual_seed(0)
    return Trained()


@pytest.mark.parametrize("inputs", [False, True])
def test_where_the_model_is_never_called_each_step_is_a_pass(model: Trained, inputs: bool) -> None:
    with (
        capture(model, "", "net", "net.0", "net.1.act", "head", inputs=inputs, grads=True, keep="all") as seen,
        capture(model, inputs=inputs, grads=True) as last,
    ):
        for rows in (1, 2, 3):
            model.training_step(ones(rows, 3)).backward()
            assert last["net.0"].shape == last.grad("net.0").shape == (rows, 3)
            assert last["head"].shape == (rows, 1)
            assert len(last.calls("net.1.act")) == 3  # uses in one call of net stay together
    assert [each["net.0"].shape for each in seen.passes] == [(1, 3), (2, 3), (3, 3)]
    assert [each["head"].shape for each in seen.passes] == [(1, 1), (2, 1), (3, 1)]
    assert [len(each.calls("net.1.act")) for each in seen.passes] == [3, 3, 3]
    assert len(last.passes) == 1 and leftover_hooks(model) == []


def test_a_part_that_calls_itself_is_one_pass() -> None:
    model = nn.ModuleDict({"inner": Recursive()})
    with capture(model, keep="all") as seen:
        for _ in range(2):
            model["inner"](ones(1, 3), depth=2)
    assert [len(each.calls("inner.step")) for each in seen.passes] == [3, 3]


def test_a_part_called_after_each_pass_counts_to_it_and_steps_after_that_do_not_pile_up(model: Trained) -> None:
    with capture(model, "head", keep="all") as seen:
        for rows in (1, 2):
            model(ones(rows, 3))
            model.head(ones(5, 3))
        for rows in (3, 4):
            model.training_step(ones(rows, 3))
    sizes = [[len(call.output) for call in each.calls("head")] for each in seen.passes]
    assert sizes == [[1, 5], [2, 5], [3], [4]]


def test_a_pass_that_a_part_began_names_it(model: Trained) -> None:
    with capture(model) as seen:
        model(ones(1, 3))
        model.head(ones(2, 3))
        assert seen["net.0"].shape == (1, 3)
        model.head(ones(3, 3))
        with pytest.raises(LookupError, match=r"'net.0' did not run .* Trained itself was not called, but 'head'"):
            _ = seen["net.0"]


def test_a_part_called_inside_the_part_that_begins_passes_begins_none(model: Trained) -> None:
    with capture(model, "net.0", keep="all") as seen:
        model.net[0](ones(1, 3))
        model.net(ones(2, 3))
        assert len(seen.calls("net.0")) == 2
        model.net(ones(3, 3))
        model.net[0](ones(4, 3))
    assert [[len(call.output) for call in each.calls("net.0")] for each in seen.passes] == [[1, 2], [3, 4]]


def test_a_checkpoint_of_a_part_is_no_pass(model: Trained) -> None:
    def step(x: Tensor) -> Tensor:
        return torch.utils.checkpoint.checkpoint(model.net, x, use_reentrant=False).sum()

    with capture(model, grads=True) as seen:
        for rows in (1, 2):
            step(ones(rows, 3).requires_grad_()).backward()
            assert seen.grad("net.0").shape == (rows, 3)


def test_after_an_interrupted_pass_steps_do_not_pile_up(model: Trained) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with capture(model, "net.0") as seen:
        handle = model.head.register_forward_hook(interrupt)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                model.training_step(ones(1, 3))
        handle.remove()
        for rows in (2, 3):
            model.training_step(ones(rows, 3))
        assert seen["net.0"].shape == (3, 3)


NAMED = r"Trained itself was not called, but 'net', 'head': .* the model: model\.get_submodule\('net'\)"


@pytest.mark.parametrize("read", [repr, lambda seen: seen["net.1.act"], lambda seen: seen["spare"]])
def test_reading_names_what_was_called_instead(model: Trained, read: Callable[[object], object]) -> None:
    with capture(model) as seen:
        for _ in range(2):
            model.training_step(ones(1, 3))
    try:
        said = read(seen)
    except (LookupError, RuntimeError) as error:
        said = str(error)
    assert re.search(NAMED, str(said)), said
