"""Modules are told apart by being the same object, whatever they say about equality, truth, length and hash."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from hooklab import ManifoldMixup, capture, edit, leftover_hooks, monitor, run_until, select, timeline
from tests.nets import ones, seen_of


def refuse(*_: object) -> bool:
    raise ZeroDivisionError


class Equal(nn.ReLU):
    """Equal to every other."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


class Unhashable(nn.ReLU):
    """As a dataclass makes it: equality without a hash."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unhashable)

    __hash__ = None  # type: ignore[assignment]


class Refusing(nn.ReLU):
    __eq__ = __hash__ = __bool__ = __len__ = refuse  # type: ignore[assignment]


class Empty(nn.ReLU):
    def __len__(self) -> int:
        return 0


class Chain(nn.Module):
    """Not a Sequential: torch's own asks its modules whether they are equal."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        for index, part in enumerate(parts):
            self.add_module(str(index), part)

    def forward(self, x: Tensor) -> Tensor:
        for part in self._modules.values():
            x = part(x)  # type: ignore[misc]
        return x


@pytest.fixture(params=[Equal, Unhashable, Refusing, Empty])
def model(request: pytest.FixtureRequest) -> Chain:
    odd: type[nn.ReLU] = request.param
    return Chain(odd(), Chain(odd(), nn.Linear(3, 3)), odd())


NAMES = ["0", "1.0", "1.1", "2"]


def test_they_are_selected_and_left_without_hooks(model: Chain) -> None:
    assert list(select(model)) == list(select(model, "2", "1.*", model._modules["0"])) == NAMES
    handle = model._modules["2"].register_forward_hook(lambda *_: None)
    assert [left.name for left in leftover_hooks(model)] == ["2"]
    handle.remove()


def test_they_are_captured_also_where_the_model_is_not_called(model: Chain) -> None:
    x = torch.randn(2, 3)
    seen = seen_of(model, "", *NAMES, x=x, inputs=True, grads=True)
    assert sorted(seen) == ["", *NAMES] and seen.silent == []
    assert torch.equal(seen["0"], x.relu())
    assert torch.equal(seen.input("2").args[0], seen["1.1"])
    assert seen.grad("2").shape == (2, 3)
    with capture(model, keep="all") as seen:
        for _ in range(3):
            model.forward(ones(1, 3))
    assert [list(each) for each in seen.passes] == [NAMES] * 3
    assert leftover_hooks(model) == []


def test_every_other_tool_tells_them_apart(model: Chain) -> None:
    x, calls = torch.ones(4, 3, requires_grad=True), []
    with (
        edit(model, lambda output, call: calls.append((call.name, call.index))),
        timeline(model) as events,
        monitor(model, grads=True) as health,
        ManifoldMixup(model, ["2"], include_input=False)(x, torch.zeros(4)) as mixed,
    ):
        model(mixed.x).sum().backward()
    assert calls == [(name, 0) for name in NAMES]
    assert [event.name for event in events if event.kind == "forward"] == ["0", "1.0", "1.1", "1", "2", ""]
    assert {event.call for event in events} == {0} and len(events) == 6 * 4
    assert [row.module for row in health.rows if row.kind == "output"] == NAMES
    assert torch.equal(run_until(model, "1.0", ones(2, 3)), ones(2, 3))
    assert leftover_hooks(model) == []


def test_a_module_that_answers_to_no_strange_name_is_mixed() -> None:
    class Strict(nn.ReLU):
        def __getattr__(self, name: str) -> object:
            raise ZeroDivisionError(name)

    model = Chain(Strict(), nn.Linear(3, 3))
    with ManifoldMixup(model, ["0"], include_input=False)(torch.randn(4, 3), torch.zeros(4)) as mixed:
        model(mixed.x)


def test_modules_that_all_refer_to_each_other_are_found_in_a_moment() -> None:
    parts = [nn.ReLU() for _ in range(11)]
    for part in parts:
        for index, other in enumerate(parts):
            if other is not part:
                part.add_module(f"peer{index}", other)
    model = Chain(*parts)
    assert len(select(model, *parts)) == 11
