"""capture: what it records, how it is read, and what an unreadable value says."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from hooklab import capture
from tests.nets import Branch, Emit, ModelOutput, Pair, Raises, Recursive, Result, Reuse, Shared, Wrap, mlp, ones

pytestmark = pytest.mark.usefixtures("same_numbers_each_time")


def test_an_output_is_read_by_name() -> None:
    model, x = mlp(), ones(2, 3)
    with capture(model) as seen:
        y = model(x)
    assert torch.equal(seen["0"], model[0](x))
    assert torch.equal(seen["2"], y)


def test_values_can_be_read_inside_the_block_and_after_it() -> None:
    model = mlp()
    with capture(model, "0") as seen:
        model(ones(2, 3))
        inside = seen["0"]
    assert seen["0"] is inside


def test_values_are_detached_and_not_copied() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Identity())
    with capture(model, "0") as seen:
        y = model(ones(2, 3))
    assert y.requires_grad
    assert not seen["0"].requires_grad
    assert seen["0"].data_ptr() == y.data_ptr()


def test_without_detaching_a_loss_can_be_computed_from_a_value() -> None:
    model = mlp()
    with capture(model, "0", detach=False) as seen:
        model(ones(2, 3))
    seen["0"].sum().backward()
    assert model[0].weight.grad is not None


def test_a_full_backward_hook_sees_nothing_of_a_loss_from_a_value_of_its_own_module() -> None:
    model, ran = mlp(), []
    model[0].register_full_backward_hook(lambda *_: ran.append("backward"))
    with capture(model, "0", "2", detach=False) as seen:
        model(torch.ones(2, 3, requires_grad=True))
    seen["0"].sum().backward(retain_graph=True)
    assert ran == []
    seen["2"].sum().backward()
    assert ran == ["backward"]


def test_a_container_and_the_model_itself_can_be_captured() -> None:
    model = nn.Sequential(mlp())
    with capture(model, "", "0") as seen:
        y = model(ones(2, 3))
    assert torch.equal(seen[""], y)
    assert torch.equal(seen["0"], y)


def test_a_new_pass_replaces_the_pass_before() -> None:
    model = mlp()
    with capture(model) as seen:
        model(ones(2, 3))
        model(ones(5, 3))
    assert seen["0"].shape == (5, 4)
    assert len(seen.calls("0")) == 1


def test_a_pass_that_fails_replaces_the_pass_before() -> None:
    model = mlp()
    with capture(model) as seen:
        model(ones(2, 3))
        with pytest.raises(RuntimeError):
            model(ones(2, 99))
    assert list(seen) == []


def test_each_pass_is_kept_when_asked() -> None:
    model = mlp()
    with capture(model, "0", keep="all") as seen:
        for rows in (1, 2, 3):
            model(ones(rows, 3))
    assert [each["0"].shape for each in seen.passes] == [(1, 4), (2, 4), (3, 4)]
    assert seen["0"].shape == (3, 4)


def test_one_pass_is_kept_otherwise() -> None:
    model = mlp()
    with capture(model, "0") as seen:
        model(ones(1, 3))
        model(ones(2, 3))
    assert [each["0"].shape for each in seen.passes] == [(2, 4)]


def test_no_pass_is_no_pass() -> None:
    with capture(mlp(), keep="all") as seen:
        pass
    assert seen.passes == []


def test_keep_is_last_or_all() -> None:
    with pytest.raises(ValueError, match=r"keep is 'last' .* not 'both'"):
        capture(mlp(), keep="both")


def test_everything_can_be_dropped() -> None:
    model = mlp()
    with capture(model, keep="all") as seen:
        model(ones(1, 3))
        model(ones(1, 3))
        seen.clear()
        assert seen.passes == []
        assert list(seen) == []
        model(ones(1, 3))
        assert len(seen.passes) == 1


def test_each_entering_gives_results_of_its_own() -> None:
    model = mlp()
    block = capture(model, "0")
    with block as first:
        model(ones(1, 3))
    with block as second:
        model(ones(2, 3))
    assert first["0"].shape == (1, 4)
    assert second["0"].shape == (2, 4)


def test_nested_captures_of_one_model_see_the_same() -> None:
    model = mlp()
    with capture(model, "0") as outer, capture(model, nn.Linear) as inner:
        model(ones(2, 3))
    assert torch.equal(outer["0"], inner["0"])
    assert list(inner) == ["0", "2"]


def test_the_inner_one_of_a_capture_entered_twice_ends_first() -> None:
    model = mlp()
    block = capture(model, "0")
    with block as outer:
        with block as inner:
            model(ones(1, 3))
        model(ones(2, 3))
    assert inner["0"].shape == (1, 4)
    assert outer["0"].shape == (2, 4)


def test_a_shallow_copy_that_is_called_does_not_end_our_pass() -> None:
    model = nn.Linear(3, 4)
    with capture(model) as seen:
        y = model(ones(1, 3))
        copy.copy(model)(ones(2, 3))
    assert torch.equal(seen[""], y)


def test_after_the_block_nothing_more_is_recorded() -> None:
    model = mlp()
    with capture(model, "0") as seen:
        model(ones(2, 3))
    model(ones(5, 3))
    assert seen["0"].shape == (2, 4)


def test_a_part_called_on_its_own_counts_to_the_pass_before() -> None:
    model = mlp()
    with capture(model, "0") as seen:
        model(ones(1, 3))
        model[0](ones(2, 3))
    assert [call.output.shape for call in seen.calls("0")] == [(1, 4), (2, 4)]


def test_what_runs_after_a_first_reading_can_be_read_too() -> None:
    model = mlp()
    with capture(model) as seen:
        model(ones(1, 3))
        assert len(seen.calls("0")) == 1
        model[0](ones(2, 3))
        assert len(seen.calls("0")) == 2


def test_a_pass_that_takes_another_way_is_read_as_such() -> None:
    class Switch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ways = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])

        def forward(self, x: Tensor, way: int) -> Tensor:
            return self.ways[way](x)

    model = Switch()
    with capture(model) as seen:
        model(ones(1, 3), 0)
        assert list(seen) == ["ways.0"]
        model(ones(1, 3), 1)
        assert list(seen) == ["ways.1"]


# modules used several times, or under several names


def test_a_module_used_three_times_has_three_calls_in_order() -> None:
    model, x = Reuse(), ones(1, 3)
    with capture(model, "act") as seen:
        y = model(x)
    calls = seen.calls("act")
    assert [call.index for call in calls] == [0, 1, 2]
    assert torch.equal(calls[0].output, x.tanh())
    assert torch.equal(calls[2].output, y)


def test_reading_one_output_of_a_module_used_three_times_points_to_calls() -> None:
    model = Reuse()
    with capture(model, "act", inputs=True, grads=True) as seen:
        model(ones(1, 3)).sum().backward()
    for read in (seen.__getitem__, seen.input, seen.grad):
        with pytest.raises(
            RuntimeError, match=r"'act' was used 3 times .* Read seen\['act#0'\] for the first, or seen"
        ):
            read("act")


def test_a_module_used_once_in_each_of_two_passes_is_not_used_twice() -> None:
    model = mlp()
    with capture(model) as seen:
        model(ones(1, 3))
        model(ones(1, 3))
    assert seen["0"].shape == (1, 4)


def test_a_model_that_calls_itself_is_one_pass() -> None:
    model = Recursive()
    with capture(model, "step") as seen:
        model(ones(1, 3), depth=2)
        model(ones(1, 3), depth=1)
    assert len(seen.calls("step")) == 2


def test_the_pass_after_an_interrupted_one_is_a_new_one() -> None:
    model = nn.Sequential(nn.Linear(3, 3), Raises(KeyboardInterrupt()))
    with capture(model, "0") as seen:
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                model(ones(1, 3))
        assert len(seen.calls("0")) == 1


def test_a_shared_module_is_read_by_either_name() -> None:
    model = Shared()
    with capture(model) as seen:
        y = model(ones(2, 3))
    assert torch.equal(seen["encoder"], y)
    assert torch.equal(seen["decoder"], y)
    assert list(seen) == ["encoder"]


def test_a_shared_module_asked_for_under_both_names_is_recorded_once() -> None:
    model = Shared()
    with capture(model, "encoder", "decoder") as seen:
        model(ones(2, 3))
    assert len(seen.calls("encoder")) == len(seen.calls("decoder")) == 1
    assert list(seen) == ["encoder"]
    assert seen.silent == []


# structures


@pytest.mark.parametrize("shape", ["tensor", "tuple", "list", "dict", "named tuple", "dataclass", "model output"])
def test_an_output_keeps_its_structure(shape: str) -> None:
    inner = Emit(shape)
    model, x = Wrap(inner), torch.ones(2, 3, requires_grad=True)
    with capture(model, "inner") as seen:
        y = model(x)
    value = seen["inner"]
    assert type(value) is type(inner(x))
    hidden = Wrap(nn.Identity())(value)
    assert torch.equal(hidden, y)
    assert not hidden.requires_grad


def test_none_is_an_output() -> None:
    model = Emit("none")
    with capture(model) as seen:
        model(ones(2, 3))
    assert seen[""] is None
    assert seen.silent == []


def test_a_named_tuple_and_its_other_fields_are_kept() -> None:
    model = Emit("named tuple")
    with capture(model) as seen:
        model(ones(1, 3))
    assert isinstance(seen[""], Pair)
    assert seen[""].left.tolist() == [[2, 2, 2]]
    assert seen[""].right is None


def test_a_dataclass_and_its_other_fields_are_kept() -> None:
    model = Emit("dataclass")
    with capture(model) as seen:
        model(ones(1, 3))
    assert isinstance(seen[""], Result)
    assert (seen[""].note, seen[""].extra) == ("twice", None)


def test_a_model_output_keeps_values_as_items_and_attributes() -> None:
    model = Emit("model output")
    with capture(model) as seen:
        out = model(torch.ones(1, 3, requires_grad=True))
    assert isinstance(seen[""], ModelOutput)
    assert seen[""]["hidden"] is seen[""].hidden
    assert out.hidden.requires_grad  # the model's own is as it was


def test_an_object_of_the_models_own_is_kept_as_it_is() -> None:
    class Holder:
        def __init__(self, hidden: Tensor) -> None:
            self.hidden = hidden

    class Own(nn.Module):
        def forward(self, x: Tensor) -> Holder:
            return Holder(x * 2)

    model = Own()
    with capture(model) as seen:
        holder = model(ones(1).requires_grad_())
    assert seen[""] is holder
    assert seen[""].hidden.requires_grad


class Cache:
    """Grows at each step, as the caches of language models do."""

    def __init__(self) -> None:
        self.states: list[Tensor] = []


class Cached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(3, 3)

    def forward(self, x: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        cache.states.append(self.part(x))
        return cache.states[-1], cache


def test_a_cache_that_passes_share_shows_its_last_state_in_each() -> None:
    model, cache = Cached(), Cache()
    with capture(model, "", inputs=True, keep="all") as seen:
        for _ in range(3):
            model(ones(1, 3), cache)
    assert [len(each[""][1].states) for each in seen.passes] == [3, 3, 3]
    assert seen.input("").args[1] is cache
    assert not seen[""][0].requires_grad


def test_a_dict_that_the_model_changes_later_is_kept_as_it_was() -> None:
    class Grow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Emit("dict")

        def forward(self, x: Tensor) -> object:
            out = self.inner(x)
            out["more"] = x
            return out

    model = Grow()
    with capture(model, "inner") as seen:
        model(ones(1, 3))
    assert set(seen["inner"]) == {"hidden", "nested"}


def test_an_lstm_gives_its_output_and_states() -> None:
    model = nn.LSTM(3, 4)
    with capture(model) as seen:
        model(ones(2, 1, 3))
    out, (h, c) = seen[""]
    assert (out.shape, h.shape, c.shape) == ((2, 1, 4), (1, 1, 4), (1, 1, 4))


# changed in place


def test_reading_a_value_that_was_changed_in_place_raises_and_names_the_cure() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True))
    with capture(model) as seen:
        model(ones(2, 3))
    with pytest.raises(RuntimeError, match=r"the output of '0' was changed in place .* clone=True"):
        _ = seen["0"]


def test_the_in_place_modules_own_output_can_be_read() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True))
    with capture(model) as seen:
        y = model(ones(2, 3))
    assert torch.equal(seen["1"], y)


def test_a_clone_is_the_value_from_before_the_change() -> None:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True)), ones(2, 3)
    with capture(model, clone=True) as seen:
        model(x)
    assert torch.equal(seen["0"], model[0](x))
    assert seen["0"].min() < 0 or (model[0](x) >= 0).all()


def test_a_change_after_the_block_is_noticed_as_well() -> None:
    model = mlp()
    with capture(model, "2") as seen:
        y = model(ones(2, 3))
    _ = seen["2"]
    with torch.no_grad():
        y += 1
    with pytest.raises(RuntimeError, match="changed in place"):
        _ = seen["2"]


def test_a_change_to_part_of_a_structure_is_noticed() -> None:
    model = Emit("dict")
    with capture(model) as seen:
        model(ones(2, 3))["nested"][0].zero_()
    with pytest.raises(RuntimeError, match="changed in place"):
        _ = seen[""]


def test_an_input_that_the_module_changes_is_noticed() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True))
    with capture(model, "1", inputs=True) as seen:
        model(ones(2, 3))
    with pytest.raises(RuntimeError, match=r"an input of '1' was changed in place .* clone=True"):
        seen.input("1")


def test_the_table_marks_what_was_changed() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True))
    with capture(model) as seen:
        model(ones(2, 3))
    assert repr(seen).splitlines()[2].split() == ["0", "(2,", "4)", "float32", "(changed", "in", "place)", "32"]


# inputs


class Scale(nn.Module):
    def forward(self, x: Tensor, *, by: Tensor, note: str = "") -> Tensor:
        return x * by


def test_inputs_are_args_and_kwargs() -> None:
    model = Scale()
    with capture(model, inputs=True) as seen:
        model(ones(2), by=torch.tensor(3.0), note="n")
    args, kwargs = seen.input("")
    assert args[0].tolist() == [1, 1]
    assert kwargs["by"].item() == 3
    assert kwargs["note"] == "n"


def test_inputs_are_what_the_module_got_from_the_users_pre_hook() -> None:
    model = nn.ReLU()
    model.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    with capture(model, inputs=True) as seen:
        model(ones(2))
    assert seen.input("").args[0].tolist() == [2, 2]


def test_the_inputs_of_each_use_are_kept_apart() -> None:
    model, x = Reuse(), ones(1, 3)
    with capture(model, "act", inputs=True) as seen:
        model(x)
    first, second, _ = seen.calls("act")
    assert torch.equal(first.input.args[0], x)
    assert torch.equal(second.input.args[0], model.a(first.output))


def test_the_inputs_of_a_model_that_calls_itself_belong_to_their_outputs() -> None:
    model = Recursive()
    with capture(model, "", inputs=True) as seen:
        y = model(ones(1, 3), depth=2)
    outermost, _, innermost = seen.calls("")
    assert (outermost.input.kwargs, innermost.input.args[1]) == ({"depth": 2}, 0)
    assert torch.equal(outermost.output, y)


def test_a_call_that_raised_has_inputs_but_no_output() -> None:
    model = nn.Sequential(nn.Linear(3, 4), Raises(ValueError("no")))
    with capture(model, inputs=True) as seen, pytest.raises(ValueError, match="no"):
        model(ones(2, 3))
    assert seen.input("1").args[0].shape == (2, 4)
    with pytest.raises(RuntimeError, match="'1' has no output: its forward did not get to its end"):
        _ = seen["1"]
    assert "did not finish" in repr(seen)


def test_a_call_after_one_that_raised_has_its_own_inputs() -> None:
    class Retry(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            try:
                return self.part(x[:, :2])
            except RuntimeError:
                return self.part(x)

    model = Retry()
    with capture(model, "part", inputs=True) as seen:
        model(ones(1, 3))
    failed, worked = seen.calls("part")
    assert (failed.input.args[0].shape, worked.input.args[0].shape) == ((1, 2), (1, 3))
    assert worked.output.shape == (1, 3)


def test_inputs_that_were_not_recorded_say_how_to_record_them() -> None:
    model = mlp()
    with capture(model) as seen:
        model(ones(2, 3))
    with pytest.raises(RuntimeError, match=r"inputs were not recorded: .*inputs=True"):
        seen.input("0")


# what is not there


def test_a_name_that_was_not_selected_raises_with_near_names() -> None:
    model = Branch()
    with capture(model, "used", "unused") as seen:
        model(ones(2, 3))
    with pytest.raises(LookupError, match=r"'usde' was not selected for capture\. Near names: 'used'"):
        _ = seen["usde"]


def test_silent_lists_what_never_fired() -> None:
    model = Branch()
    with capture(model) as seen:
        model(ones(2, 3))
    assert seen.silent == ["unused", "silent"]


def test_before_the_first_pass_all_are_silent() -> None:
    with capture(mlp()) as seen:
        assert seen.silent == ["0", "1", "2"]


def test_reading_a_module_that_did_not_run_says_what_may_be_the_reason() -> None:
    model = Branch()
    with capture(model) as seen:
        model(ones(2, 3))
    with pytest.raises(LookupError, match=r"'silent' did not run in this pass.*\.forward\(\.\.\.\)"):
        _ = seen["silent"]


def test_reading_before_the_model_ran_says_so() -> None:
    with capture(mlp()) as seen, pytest.raises(LookupError, match="no selected module ran yet"):
        _ = seen["0"]


def test_reading_the_one_selected_module_after_a_pass_without_it_does_not_say_that_no_pass_ran() -> None:
    model = Branch()
    with capture(model, "unused") as seen:
        with pytest.raises(LookupError, match="no selected module ran yet"):
            seen["unused"]
        model(ones(1, 3))
        with pytest.raises(LookupError, match="'unused' did not run in this pass"):
            seen["unused"]
        seen.clear()
        with pytest.raises(LookupError, match="no selected module ran yet"):
            seen["unused"]


@pytest.mark.parametrize(("key", "named"), [(0, "int"), (nn.ReLU(), "ReLU"), (None, "NoneType"), ([], "list")])
def test_reading_by_anything_but_a_name_raises_with_the_names(key: object, named: str) -> None:
    with capture(mlp()) as seen:
        pass
    for read in (seen.__getitem__, seen.calls, seen.input, seen.grad):
        with pytest.raises(KeyError, match=rf"read by name, not by {named}\. Its names: '0', '1', '2'\."):
            read(key)
    assert seen.get(key, "default") == "default"
    assert key not in seen


def test_the_calls_of_a_module_that_did_not_run_are_none() -> None:
    model = Branch()
    with capture(model) as seen:
        model(ones(2, 3))
    assert seen.calls("unused") == []


# as a mapping


def test_iteration_gives_the_names_that_ran_in_the_order_of_running() -> None:
    model = Reuse()
    with capture(model, "b", "a", "act") as seen:
        model(ones(1, 3))
    assert list(seen) == ["act#0", "a", "act#1", "b", "act#2"]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps], ids=["copy", "deepcopy", "pickle"])
def test_a_copy_or_a_pickle_is_refused_and_points_to_the_values(copied: Callable[[object], object]) -> None:
    model = mlp()
    with capture(model, keep="all") as seen:
        model(ones(2, 3))
    for one in (seen, seen.passes[0]):
        with pytest.raises(TypeError, match=r"Take the values: \{name: value.clone\(\) for name, value in seen.items"):
            copied(one)
    values = {name: value.clone() for name, value in seen.items()}
    assert torch.equal(pickle.loads(pickle.dumps(values))["2"], seen["2"])


def test_it_is_a_mapping() -> None:
    model = Branch()
    with capture(model) as seen:
        model(ones(2, 3))
    assert len(seen) == 1
    assert "used" in seen
    assert "unused" not in seen
    assert "nonsense" not in seen
    assert {name: value.shape for name, value in seen.items()} == {"used": (2, 3)}
    assert seen.get("unused") is None


@pytest.mark.parametrize("inputs", [False, True])
@pytest.mark.parametrize(
    "model", [mlp(), Branch(), Reuse(), Shared(), Recursive()], ids=lambda model: type(model).__name__
)
def test_iterating_containing_reading_and_counting_agree(model: nn.Module, inputs: bool) -> None:
    with capture(model, "", lambda name, module: True, inputs=inputs) as seen:
        model(ones(1, 3))
    listed = list(seen)
    assert len(seen) == len(listed) == len(set(listed)) == len(seen.items())
    assert all(name in seen for name in listed)
    for name, value in seen.items():
        assert seen[name] is value
        assert [call.output for call in seen.calls(name)] == [value]
    for module in seen.silent:
        assert module not in seen


def test_each_use_has_a_name_of_its_own() -> None:
    model, x = Reuse(), ones(1, 3)
    with capture(model, inputs=True, grads=True) as seen:
        y = model(x)
        y.sum().backward()
    values = {name: value.clone() for name, value in seen.items()}
    assert torch.equal(values["act#0"], x.tanh())
    assert torch.equal(values["act#2"], y)
    assert torch.equal(seen.input("act#2").args[0], seen["b"])
    assert torch.equal(seen.grad("act#2"), ones(1, 3))
    assert "act" not in seen
    for name in ("act#3", "act#x", "act#", "act#-1", "spare#0"):
        assert name not in seen
        with pytest.raises(LookupError, match=r"did not run|was not selected"):
            _ = seen[name]


def test_the_uses_of_the_model_itself_are_named_too() -> None:
    model = Recursive()
    with capture(model, "") as seen:
        model(ones(1, 3), depth=1)
    assert list(seen) == ["#0", "#1"]
    assert seen["#1"].shape == (1, 3)


def test_the_table_has_name_shape_dtype_bytes_and_the_silent() -> None:
    model = Reuse()
    model.spare = nn.ReLU()
    with capture(model) as seen:
        model(ones(1, 3))
    assert repr(seen).splitlines() == [
        "3 of 4 selected modules of Reuse ran",
        "  name   output              bytes",
        "  act#0  (1, 3) float32         12",
        "  a      (1, 3) float32         12",
        "  act#1  (1, 3) float32         12",
        "  b      (1, 3) float32         12",
        "  act#2  (1, 3) float32         12",
        "  silent: 'spare'",
    ]


def test_a_capture_says_what_it_is() -> None:
    assert repr(capture(mlp(), nn.Linear)) == "capture of 2 modules of Sequential: 0, 2"


# memory


class Token:
    """Held by an autograd graph in place of a tensor that it saved, to see when the graph is freed."""

    def __init__(self, saved: Tensor) -> None:
        self.saved = saved.detach()  # or the graph would hold itself


@pytest.fixture
def graph_tokens() -> Iterator[list[weakref.ref[Token]]]:
    tokens: list[weakref.ref[Token]] = []

    def pack(saved: Tensor) -> Token:
        token = Token(saved)
        tokens.append(weakref.ref(token))
        return token

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda token: token.saved):
        yield tokens


def test_the_graph_is_freed_with_the_output_even_inside_the_block(graph_tokens: list[weakref.ref[Token]]) -> None:
    model = mlp()
    with capture(model, inputs=True, grads=True) as seen:
        y = model(ones(2, 3))
        assert all(token() is not None for token in graph_tokens)
        del y
        assert all(token() is None for token in graph_tokens)
    assert seen["0"].shape == (2, 4)


def test_the_graph_of_what_an_object_holds_lives_as_long_as_the_value(
    graph_tokens: list[weakref.ref[Token]],
) -> None:
    model = Cached()
    with capture(model, "", inputs=True) as seen:
        model(ones(1, 3), Cache())
    assert any(token() is not None for token in graph_tokens)
    del seen
    assert all(token() is None for token in graph_tokens)


def test_the_graph_is_freed_after_the_block(graph_tokens: list[weakref.ref[Token]]) -> None:
    model = mlp()
    with capture(model, grads=True) as seen:
        y = model(ones(2, 3))
        y.sum().backward(retain_graph=True)
    del y
    assert all(token() is None for token in graph_tokens)
    assert seen.grad("0").shape == (2, 4)


@pytest.mark.parametrize("clone", [False, True])
def test_the_graph_of_the_gradients_is_freed_too(graph_tokens: list[weakref.ref[Token]], clone: bool) -> None:
    model, x = mlp(), torch.ones(2, 3, requires_grad=True)
    with capture(model, grads=True, clone=clone) as seen:
        y = model(x).pow(2).sum()
        (grad,) = torch.autograd.grad(y, x, create_graph=True)
        del y, grad
        assert all(token() is None for token in graph_tokens)
    assert not seen.grad("0").requires_grad


def test_values_go_with_the_last_reader_without_the_garbage_collector() -> None:
    model = mlp()
    block = capture(model, inputs=True, grads=True)
    gc.disable()
    try:
        with block as seen:
            model(ones(2, 3)).sum().backward()
        values = [weakref.ref(seen["0"]), weakref.ref(seen.grad("0")), weakref.ref(seen.input("2").args[0])]
        del seen
        assert [value() for value in values] == [None, None, None]
    finally:
        gc.enable()


def test_a_new_pass_frees_the_values_of_the_pass_before() -> None:
    model = mlp()
    with capture(model, grads=True) as seen:
        model(ones(2, 3))
        value = weakref.ref(seen["0"])
        model(ones(2, 3))
        assert value() is None


def test_hooks_on_a_leaf_that_is_put_out_do_not_pile_up() -> None:
    model, x = nn.Identity(), torch.ones(3, requires_grad=True)
    with capture(model, grads=True):
        for _ in range(3):
            model(x)
            assert len(x._backward_hooks) == 1
    assert len(x._backward_hooks) == 0
