"""timeline: who runs when, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hooklab import timeline
from hooklab.tracing import Event, Timeline
from tests.nets import Calls, Checkpointed, Raises, Recursive, Retry, Reuse, in_thread, mlp, ones

pytestmark = pytest.mark.usefixtures("same_numbers_each_time")


def story(events: Iterable[Event]) -> str:
    """``+a`` forward-pre, ``-a`` forward, ``<a`` backward-pre, ``>a`` backward; ``*`` for the model itself."""
    sign = {"forward-pre": "+", "forward": "-", "backward-pre": "<", "backward": ">"}
    return " ".join(sign[event.kind] + (event.name or "*") for event in events)


def traced(model: nn.Module, *what: Any, x: Tensor | None = None) -> Timeline:
    with timeline(model, *what) as events:
        model(ones(2, 3) if x is None else x).sum().backward()
    return events


def needs_grad() -> Tensor:
    return torch.ones(2, 3, requires_grad=True)


def test_depth_counts_the_selected_modules_around() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(3, 4)))
    for what, depths in (((), {("", 0), ("0", 1), ("0.0", 2)}), ((nn.Linear,), {("0.0", 0)})):
        events = traced(model, *what)
        assert {(event.name, event.depth) for event in events} == depths


def test_events_are_plain_data_and_a_table() -> None:
    events = traced(nn.Sequential(nn.Linear(3, 3)))
    assert asdict(events[1]) == {"order": 1, "kind": "forward-pre", "name": "0", "depth": 1, "call": 0, "again": False}
    assert [event.order for event in events] == list(range(8))
    assert len(events[1:3]) == 2
    rows = str(events).splitlines()
    assert [row.split() for row in rows[:2]] == [["0", "forward-pre", "(Sequential)"], ["1", "forward-pre", "0"]]
    assert rows[1].rindex("0") > rows[0].index("(")  # indented by its depth
    assert repr(events) == "<timeline of Sequential: 8 events>"


def test_a_module_used_three_times_has_three_calls_and_one_that_calls_itself_gets_deeper() -> None:
    assert [(event.kind, event.call) for event in traced(Reuse(), "act", x=needs_grad())] == [
        *[(kind, call) for call in (0, 1, 2) for kind in ("forward-pre", "forward")],
        *[(kind, call) for call in (2, 1, 0) for kind in ("backward-pre", "backward")],
    ]
    forward = [event for event in traced(Recursive(), "") if event.kind.startswith("forward")]
    assert [event.depth for event in forward] == [0, 1, 2, 2, 1, 0]


class Net(nn.Module):
    """Three layers and a sum, called by the function that is given."""

    def __init__(self, run: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.a, self.b, self.side, self.relu = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3), nn.ReLU(inplace=True)
        self.add, self.fork, self.run = Calls(torch.add), Calls(lambda x: (x + 1, x + 2)), run

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def branched(net: Net, x: Tensor) -> Tensor:
    x = net.a(x)
    return x + net.side(x)


def late(net: Net, x: Tensor) -> Tensor:
    x = net.a(x)
    return net.add(x, net.b(x))


def changed_in_place(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    side = net.side(y * 1)
    return net.b(net.relu(y)) + side


def with_idle_part(net: Net, x: Tensor) -> Tensor:
    used, idle = net.a(x).unbind()  # here autograd calls the unused part's hooks, with None
    net.side(idle)
    return net.b(used)


def forked(net: Net, x: Tensor) -> Tensor:
    left, right = net.fork(x)
    return net.a(left) + net.b(right)


@pytest.mark.parametrize(
    ("model", "x", "expected"),
    [
        (
            nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2))),
            needs_grad(),
            "+* +0 -0 +1 +1.0 -1.0 +1.1 -1.1 -1 -* <* <1 <1.1 >1.1 <1.0 >1.0 >1 <0 >0 >*",
        ),
        *(
            (
                nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=inplace), nn.Linear(4, 2)),
                ones(2, 3),
                "+* +0 -0 +1 -1 +2 -2 -* <* <2 >2 <1 >1 <0 >0 >*",
            )
            for inplace in (False, True)
        ),
        (
            nn.Sequential(nn.Identity(), nn.Dropout(0.5)).eval(),
            needs_grad(),
            "+* +0 -0 +1 -1 -* <* <1 >1 <0 >0 >*",
        ),
        # a backward ends when all users of the inputs have added their part
        (Net(branched), ones(2, 3), "+* +a -a +side -side -* <* <side >side <a >a >*"),
        # the two uses of a's output end at once, the later one first
        (Net(late), ones(2, 3), "+* +a -a +b -b +add -add -* <* <add <b >add >b <a >a >*"),
        (
            Net(changed_in_place),
            ones(2, 3),
            "+* +a -a +side -side +relu -relu +b -b -* <* <b >b <relu <side >side >relu <a >a >*",
        ),
        (Net(with_idle_part), ones(2, 3), "+* +a -a +side -side +b -b -* <* <b >b <a >a >*"),
        # several outputs: it begins with the first gradient to arrive
        (Net(forked), needs_grad(), "+* +fork -fork +a -a +b -b -* <* <b <a >b <fork >a >fork >*"),
    ],
    ids=[
        *("containers", "input without gradient", "in place", "its input returned"),
        *("branched", "used late", "branched, in place", "an unused part", "several outputs"),
    ],
)
def test_a_backward_is_nested_in_its_parents_and_ends_when_the_gradients_of_its_inputs_are_complete(
    model: nn.Module, x: Tensor, expected: str
) -> None:
    assert story(traced(model, x=x)) == expected


def test_each_pass_and_each_backward_has_events_of_its_own() -> None:
    model = mlp()
    with timeline(model, "2") as events:
        first, second = model(ones(1, 3)), model(ones(1, 3))
        first.sum().backward(retain_graph=True)
        (first + second).sum().backward()
    assert story(events).startswith("+2 -2 +2 -2 <2 >2")
    assert [event.call for event in events[4:6]] == [0, 0]
    assert sorted((event.kind, event.call) for event in events[6:]) == [
        (kind, call) for kind in ("backward", "backward-pre") for call in (0, 1)
    ]


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_what_a_checkpoint_runs_again_is_marked(use_reentrant: bool) -> None:
    events = traced(Checkpointed(use_reentrant), "block", "block.*")
    first = [event for event in events if not event.again]
    again = [event for event in events if event.again and event.kind.startswith("forward")]
    assert story(first).startswith("+block +block.0 -block.0 +block.1 -block.1 -block")
    assert [(event.name, event.depth) for event in again][:2] == [("block", 0), ("block.0", 1)]
    assert "(again)" in str(events)
    assert {event.name for event in events if event.kind == "backward"} == {"block", "block.0", "block.1"}


def test_a_call_that_raised_has_no_end_and_does_not_push_its_successors_deeper() -> None:
    events = traced(Retry())
    assert story(events).startswith("+* +part +part -part -*")
    assert [event.depth for event in events[:5]] == [0, 1, 1, 1, 0]


def test_where_the_model_itself_is_never_called_an_interrupted_step_does_not_push_the_next_one_deeper() -> None:
    part = nn.Sequential(nn.ReLU(), Raises(KeyboardInterrupt()))
    with timeline(nn.ModuleList([part])) as events:
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                part(torch.ones(2))
    assert [event.depth for event in events if event.name == "0"] == [0, 0, 0]


def test_after_the_block_and_from_another_thread_nothing_is_recorded_and_a_leaf_keeps_no_hook() -> None:
    model, x = mlp(), needs_grad()
    with timeline(model) as events:
        y = model(x)
        assert len(x._backward_hooks) == 1
        in_thread(model, ones(1, 3))
    y.sum().backward()
    model(x)
    assert len(events) == 8
    assert len(x._backward_hooks) == 0
