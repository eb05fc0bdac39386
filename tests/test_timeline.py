"""timeline: who runs when, forward and backward."""

from __future__ import annotations

import threading
from dataclasses import asdict

import pytest
import torch
from torch import Tensor, nn

from hooklab import timeline
from hooklab.tracing import Timeline
from tests.nets import (
    Branch,
    ChangedThroughAnotherView,
    Checkpointed,
    Emit,
    Raises,
    Recursive,
    Reuse,
    Shared,
    Wrap,
    mlp,
    ones,
)

pytestmark = pytest.mark.usefixtures("same_numbers_each_time")


def story(events: Timeline) -> list[str]:
    """``+a`` forward-pre, ``-a`` forward, ``<a`` backward-pre, ``>a`` backward; ``*`` for the model itself."""
    sign = {"forward-pre": "+", "forward": "-", "backward-pre": "<", "backward": ">"}
    return [sign[event.kind] + (event.name or "*") for event in events]


def test_the_events_of_a_chain_are_nested_forward_and_backward() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2)))
    with timeline(model) as events:
        model(torch.ones(2, 3, requires_grad=True)).sum().backward()
    assert " ".join(story(events)) == ("+* +0 -0 +1 +1.0 -1.0 +1.1 -1.1 -1 -* <* <1 <1.1 >1.1 <1.0 >1.0 >1 <0 >0 >*")


def test_depth_counts_the_selected_modules_around() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(3, 4)))
    with timeline(model) as events:
        model(ones(2, 3)).sum().backward()
    assert {(event.name, event.depth) for event in events} == {("", 0), ("0", 1), ("0.0", 2)}
    with timeline(model, nn.Linear) as events:
        model(ones(2, 3))
    assert {(event.name, event.depth) for event in events} == {("0.0", 0)}


def test_each_forward_is_nested_in_its_parents_without_a_gradient_at_the_input_too() -> None:
    model = mlp()
    with timeline(model) as events:
        model(ones(2, 3)).sum().backward()
    assert " ".join(story(events)) == "+* +0 -0 +1 -1 +2 -2 -* <* <2 >2 <1 >1 <0 >0 >*"


def test_the_order_is_that_of_full_backward_hooks_on_a_chain() -> None:
    model, x, real = mlp(), torch.ones(2, 3, requires_grad=True), []
    with timeline(model) as events:
        model(x).sum().backward()
    for name, module in model.named_modules():
        module.register_full_backward_pre_hook(lambda *_, name=name: real.append("<" + (name or "*")))
        module.register_full_backward_hook(lambda *_, name=name: real.append(">" + (name or "*")))
    model(x).sum().backward()
    assert story(events)[-len(real) :] == real


def test_events_are_plain_data() -> None:
    model = mlp()
    with timeline(model, "1") as events:
        model(ones(2, 3)).sum().backward()
    assert asdict(events[0]) == {
        "order": 0,
        "kind": "forward-pre",
        "name": "1",
        "depth": 0,
        "call": 0,
        "again": False,
    }
    assert [event.order for event in events] == [0, 1, 2, 3]
    assert events.events == list(events)
    assert len(events[1:3]) == 2


def test_the_text_is_indented_by_depth() -> None:
    model = nn.Sequential(nn.ReLU())
    with timeline(model) as events:
        model(ones(2))
    assert str(events).splitlines() == [
        " 0  forward-pre   (Sequential)",
        " 1  forward-pre     0",
        " 2  forward         0",
        " 3  forward       (Sequential)",
    ]
    assert repr(events) == "<timeline of Sequential: 4 events>"


def test_an_in_place_activation_has_all_its_events() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    with timeline(model) as events:
        model(ones(2, 3)).sum().backward()
    assert " ".join(story(events)) == "+* +0 -0 +1 -1 +2 -2 -* <* <2 >2 <1 >1 <0 >0 >*"


@pytest.mark.parametrize("shape", ["tuple", "list", "dict", "named tuple", "dataclass"])
def test_an_output_of_any_structure_has_backward_events(shape: str) -> None:
    model = Wrap(Emit(shape))
    with timeline(model, "inner") as events:
        model(torch.ones(1, 3, requires_grad=True)).sum().backward()
    assert story(events) == ["+inner", "-inner", "<inner", ">inner"]


def test_a_view_whose_base_was_changed_through_another_view_does_not_crash() -> None:
    model = ChangedThroughAnotherView()
    with timeline(model) as events:
        model(torch.zeros(3, requires_grad=True)).sum().backward()
    assert story(events) == ["+*", "-*", "<*", ">*"]


def test_a_module_that_returns_its_input_begins_before_it_ends() -> None:
    model = nn.Sequential(nn.Identity(), nn.Dropout(0.5)).eval()
    with timeline(model) as events:
        model(torch.ones(3, requires_grad=True)).sum().backward()
    assert " ".join(story(events)) == "+* +0 -0 +1 -1 -* <* <1 >1 <0 >0 >*"


def test_a_module_used_three_times_has_three_calls() -> None:
    model = Reuse()
    with timeline(model, "act") as events:
        model(torch.ones(1, 3, requires_grad=True)).sum().backward()
    assert [(event.kind, event.call) for event in events] == [
        *[(kind, call) for call in (0, 1, 2) for kind in ("forward-pre", "forward")],
        *[(kind, call) for call in (2, 1, 0) for kind in ("backward-pre", "backward")],
    ]


def test_a_model_that_calls_itself_gets_deeper() -> None:
    model = Recursive()
    with timeline(model, "") as events:
        model(ones(1, 3), depth=2)
    assert [event.depth for event in events] == [0, 1, 2, 2, 1, 0]


def test_a_shared_module_goes_by_one_name() -> None:
    model = Shared()
    with timeline(model) as events:
        model(ones(1, 3))
    assert story(events) == ["+*", "+encoder", "-encoder", "-*"]
    with timeline(model, "encoder", "decoder") as events:
        model(ones(1, 3))
    assert story(events) == ["+encoder", "-encoder"]


def test_both_branches_end_before_what_they_branch_from() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.side = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            return x + self.side(x)

    model = Residual()
    with timeline(model) as events:
        model(ones(1, 3)).sum().backward()
    assert " ".join(story(events)) == "+* +stem -stem +side -side -* <* <side >side <stem >stem >*"


def test_a_module_with_several_inputs_ends_when_all_are_complete() -> None:
    class Add(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x + y

    class Late(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.add = nn.Linear(3, 3), nn.Linear(3, 3), Add()

        def forward(self, x: Tensor) -> Tensor:
            a = self.a(x)
            return self.add(a, self.b(a))

    model = Late()
    with timeline(model) as events:
        model(ones(1, 3)).sum().backward()
    # the two uses of a's output end at once, the later one first
    assert " ".join(story(events)) == "+* +a -a +b -b +add -add -* <* <add <b >add >b <a >a >*"


def test_an_in_place_change_ends_when_all_uses_of_the_value_before_it_are_over() -> None:
    class Late(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.relu, self.b, self.side = nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 3), nn.Tanh()

        def forward(self, x: Tensor) -> Tensor:
            y = self.a(x)
            side = self.side(y * 1)
            return self.b(self.relu(y)) + side

    model = Late()
    with timeline(model, "?", "relu", "side") as events:
        model(ones(1, 3)).sum().backward()
    assert " ".join(story(events)[8:]) == "<b >b <relu <side >side >relu <a >a"


def test_a_module_with_several_outputs_begins_with_the_first_gradient_to_arrive() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x + 1, x + 2

    class Fork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.two, self.f, self.g = Two(), nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            left, right = self.two(x)
            return self.f(left) + self.g(right)

    model = Fork()
    with timeline(model, "two", "f", "g") as events:
        model(torch.ones(1, 3, requires_grad=True)).sum().backward()
    assert " ".join(story(events)[6:]) == "<g <f >g <two >f >two"


def test_a_part_of_a_split_that_the_loss_does_not_use_has_no_backward_events() -> None:
    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Identity(), nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            used, idle = x.unbind()  # here autograd calls the unused part's hooks, with None
            self.idle(idle)
            return self.used(used)

    model = Split()
    with timeline(model) as events:
        model(torch.ones(2, 3, requires_grad=True)).sum().backward()
    assert [event.kind for event in events if event.name == "idle"] == ["forward-pre", "forward"]


def test_a_module_whose_output_the_loss_does_not_use_has_no_backward_events() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.used, self.idle = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            self.idle(x)
            return self.used(x)

    model = Both()
    with timeline(model) as events:
        model(ones(1, 3)).sum().backward()
    assert [event.kind for event in events if event.name == "idle"] == ["forward-pre", "forward"]


def test_a_module_that_nobody_calls_has_no_events() -> None:
    model = Branch()
    with timeline(model) as events:
        model(ones(1, 3))
    assert story(events) == ["+*", "+used", "-used", "-*"]


def test_without_a_graph_there_are_only_forward_events() -> None:
    model = mlp()
    for mode in (torch.no_grad(), torch.inference_mode()):
        with timeline(model, "0") as events, mode:
            model(ones(1, 3))
        assert story(events) == ["+0", "-0"]


def test_the_second_backward_has_events_of_its_own() -> None:
    model = mlp()
    with timeline(model, "2") as events:
        y = model(ones(1, 3)).sum()
        y.backward(retain_graph=True)
        y.backward()
    assert story(events) == ["+2", "-2", "<2", ">2", "<2", ">2"]


def test_all_passes_of_the_block_are_recorded() -> None:
    model = mlp()
    with timeline(model, "0") as events:
        first, second = model(ones(1, 3)), model(ones(1, 3))
        (first + second).sum().backward()
    assert story(events)[:4] == ["+0", "-0", "+0", "-0"]
    assert sorted((event.kind, event.call) for event in events[4:]) == [
        ("backward", 0),
        ("backward", 1),
        ("backward-pre", 0),
        ("backward-pre", 1),
    ]


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_what_a_checkpoint_runs_again_is_marked(use_reentrant: bool) -> None:
    model = Checkpointed(use_reentrant)
    with timeline(model, "block", "block.*") as events:
        model(ones(1, 3)).sum().backward()
    first = [event for event in events if not event.again]
    again = [event for event in events if event.again and event.kind.startswith("forward")]
    assert " ".join(story(first)[:6]) == "+block +block.0 -block.0 +block.1 -block.1 -block"
    assert [(event.name, event.depth) for event in again][:2] == [("block", 0), ("block.0", 1)]
    assert "(again)" in str(events)
    assert {event.name for event in events if event.kind == "backward"} == {"block", "block.0", "block.1"}


def test_a_call_that_raises_has_a_beginning_and_no_end() -> None:
    model = nn.Sequential(nn.Linear(3, 3), Raises(ValueError("no")))
    with timeline(model) as events, pytest.raises(ValueError, match="no"):
        model(ones(1, 3))
    assert story(events) == ["+*", "+0", "-0", "+1"]


def test_a_call_that_raised_does_not_push_its_successors_deeper() -> None:
    class Retry(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bad, self.good = Raises(ValueError("no")), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            try:
                return self.bad(x)
            except ValueError:
                return self.good(x)

    model = Retry()
    with timeline(model) as events:
        model(ones(1, 3))
    assert [(event.name, event.kind, event.depth) for event in events][2:] == [
        ("good", "forward-pre", 1),
        ("good", "forward", 1),
        ("", "forward", 0),
    ]


def test_an_interrupted_pass_does_not_push_the_next_one_deeper() -> None:
    model = nn.Sequential(Raises(KeyboardInterrupt()))
    with timeline(model) as events:
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                model(ones(1))
    assert [event.depth for event in events] == [0, 1, 0, 1]


def test_where_the_model_itself_is_never_called_an_interrupted_step_does_not_push_the_next_one_deeper() -> None:
    class Interrupts(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyboardInterrupt

    part = nn.Sequential(nn.ReLU(), Interrupts())
    with timeline(nn.ModuleList([part])) as events:
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                part(torch.ones(2))
    assert [event.depth for event in events if event.name == "0"] == [0, 0, 0]


def test_after_the_block_nothing_more_is_recorded() -> None:
    model = mlp()
    with timeline(model) as events:
        y = model(ones(1, 3))
    y.sum().backward()
    model(ones(1, 3))
    assert len(events) == 8


def test_a_leaf_input_keeps_no_hook() -> None:
    model, x = mlp(), torch.ones(1, 3, requires_grad=True)
    with timeline(model):
        model(x).sum().backward()
        assert len(x._backward_hooks) == 1
    assert len(x._backward_hooks) == 0


def test_calls_from_another_thread_are_not_recorded() -> None:
    model = mlp()
    with timeline(model) as events:
        thread = threading.Thread(target=model, args=(ones(1, 3),))
        thread.start()
        thread.join()
    assert len(events) == 0


def test_a_compiled_model_has_the_events_of_the_plain_one() -> None:
    model = mlp()
    compiled = torch.compile(model, backend="eager")
    compiled(ones(1, 3))
    with timeline(compiled) as events:
        compiled(ones(1, 3)).sum().backward()
    assert " ".join(story(events)) == "+* +0 -0 +1 -1 +2 -2 -* <* <2 >2 <1 >1 <0 >0 >*"
    assert "(Sequential)" in str(events)
