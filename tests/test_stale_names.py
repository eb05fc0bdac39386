"""A tool finds its modules when it is made; where a name means another module later, its block says so."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from hooklab import ManifoldMixup, capture, edit, leftover_hooks, monitor, timeline


class Lora(nn.Module):
    """An adapter around a layer."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base_layer = base
        self.down = nn.Linear(2, 3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base_layer(x) + self.down(x)


TOOLS = {
    "capture": lambda model, *what: capture(model, *what),
    "edit": lambda model, *what: edit(model, lambda output, call: None, *what),
    "ManifoldMixup": lambda model, *what: ManifoldMixup(model, list(what), include_input=False),
    "timeline": lambda model, *what: timeline(model, *what),
    "monitor": lambda model, *what: monitor(model, *what),
}


def enter(tool) -> None:
    if isinstance(tool, ManifoldMixup):
        tool(torch.ones(4, 2), torch.tensor([0, 1, 0, 1]))
    else:
        with tool:
            pass


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 3))).train()


@pytest.mark.parametrize(("name", "make"), TOOLS.items(), ids=TOOLS)
def test_a_layer_that_was_wrapped_after_the_tool_was_made_is_named_with_what_it_is_now(name, make) -> None:
    model = network()
    tool = make(model, "0")
    model[0] = Lora(model[0])
    was, now = f"'0' was a Linear when this {name} was made", "is a Lora now, which holds the old one as 0.base_layer"
    with pytest.raises(RuntimeError, match=re.escape(f"{was}, and {now}: make the {name} anew")):
        enter(tool)
    assert leftover_hooks(model) == []


@pytest.mark.parametrize("make", TOOLS.values(), ids=TOOLS)
def test_a_layer_below_a_replaced_one_is_noticed_as_well(make) -> None:
    model = network()
    tool = make(model, "1.1")
    model[1] = nn.Sequential(nn.ReLU(), nn.Linear(3, 3))
    with pytest.raises(RuntimeError, match=r"'1' was a Sequential when this"):
        enter(tool)


def test_a_layer_that_is_gone_is_named() -> None:
    model = network()
    tool = capture(model, "1")
    del model[1]
    with pytest.raises(RuntimeError, match="is no longer in the model"):
        enter(tool)


def test_a_change_elsewhere_and_a_compilation_do_not_matter() -> None:
    model = network()
    tool = capture(model, "0")
    model[1] = nn.ReLU()
    model[0] = torch.compile(model[0], backend="eager")
    with tool as seen:
        model(torch.ones(1, 2))
    assert list(seen) == ["0"]


def test_a_layer_that_is_replaced_inside_the_block_is_named_by_reading() -> None:
    model = network()
    with capture(model, "0") as seen:
        model[0] = Lora(nn.Linear(2, 3))
        model(torch.ones(1, 2))
    with pytest.raises(LookupError, match="'0' was a Linear when this capture was made, and is a Lora now"):
        seen["0"]


def test_an_edit_whose_layer_is_replaced_inside_the_block_says_so_at_its_end() -> None:
    model = network()
    with pytest.warns(match="is a Lora now.* was not edited"):  # noqa: SIM117
        with edit(model, lambda output, call: output * 0, "0"):
            model[0] = Lora(nn.Linear(2, 3))
