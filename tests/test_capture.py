"""capture: what it records, how it is read, and what an unreadable value says."""

from __future__ import annotations

import copy
import gc
import pickle
import re
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hooklab import capture
from hooklab.seen import Call
from tests.nets import Branch, Calls, Emit, Recursive, Retry, Reuse, Shared, Wrap, mlp, ones, seen_of

pytestmark = pytest.mark.usefixtures("same_numbers_each_time")


def test_outputs_are_read_by_name_inside_the_block_and_after_it() -> None:
    model, x = mlp(), ones(2, 3)
    with capture(model, "", "0", "2") as seen:
        y = model(x)
        inside = seen["0"]
    assert torch.equal(inside, model[0](x))
    assert seen["0"] is inside
    assert torch.equal(seen["2"], y) and torch.equal(seen[""], y)
    model(ones(5, 3))
    assert seen["0"] is inside


def test_values_are_detached_and_not_copied() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Identity())
    with capture(model, "0") as seen:
        y = model(ones(2, 3))
    assert y.requires_grad and not seen["0"].requires_grad
    assert seen["0"].data_ptr() == y.data_ptr()


def test_without_detaching_a_loss_can_be_computed_from_a_value_which_a_full_backward_hook_does_not_see() -> None:
    model, ran = mlp(), []
    model[0].register_full_backward_hook(lambda *_: ran.append("backward"))
    seen = seen_of(model, "0", "2", detach=False, x=torch.ones(2, 3, requires_grad=True))
    seen["0"].sum().backward(retain_graph=True)
    assert model[0].weight.grad is not None and ran == []
    seen["2"].sum().backward()
    assert ran == ["backward"]


@pytest.mark.parametrize(("keep", "rows"), [("last", [3]), ("all", [1, 2, 3])])
def test_one_pass_is_kept_or_all(keep: str, rows: list[int]) -> None:
    model = mlp()
    with capture(model, "0", keep=keep) as seen:
        assert seen.passes == []
        for batch in (1, 2, 3):
            model(ones(batch, 3))
    assert [len(each["0"]) for each in seen.passes] == rows
    assert seen["0"].shape == (3, 4)


def test_one_capture_may_be_entered_again_and_inside_itself() -> None:
    model = mlp()
    block = capture(model, "0")
    with block as first:
        with block as inner:
            model(ones(1, 3))
        model(ones(2, 3))
    with block as second:
        model(ones(3, 3))
    assert [len(seen["0"]) for seen in (inner, first, second)] == [1, 2, 3]
    assert repr(block) == "capture of 1 modules of Sequential: 0"


# modules used several times, or under several names


def test_each_use_of_a_module_has_a_name_and_a_call_of_its_own() -> None:
    model, x = Reuse(), ones(1, 3)
    with capture(model, "b", "a", "act", inputs=True, grads=True) as seen:
        y = model(x)
        y.sum().backward()
    assert list(seen) == ["act#0", "a", "act#1", "b", "act#2"]
    assert torch.equal(seen["act#0"], x.tanh()) and torch.equal(seen["act#2"], y)
    assert torch.equal(seen.input("act#2").args[0], seen["b"])
    assert torch.equal(seen.grad("act#2"), ones(1, 3))
    first, second, third = seen.calls("act")
    assert [call.index for call in (first, second, third)] == [0, 1, 2]
    assert torch.equal(second.input.args[0], model.a(first.output))
    for read in (seen.__getitem__, seen.input, seen.grad):
        with pytest.raises(RuntimeError, match=r"'act' was used 3 times .* Read seen\['act#0'\] .*, or seen\.calls"):
            read("act")
    for name in ("act", "act#3", "act#x", "act#", "act#-1", "spare#0"):
        assert name not in seen
    with pytest.raises(LookupError, match=r"did not run"):
        _ = seen["act#3"]
    with pytest.raises(LookupError, match=r"was not selected"):
        _ = seen["act#x"]


def test_a_model_that_calls_itself_is_one_pass_and_its_inputs_belong_to_their_outputs() -> None:
    model = Recursive()
    with capture(model, "", "step", inputs=True) as seen:
        model(ones(1, 3), depth=1)
        y = model(ones(1, 3), depth=2)
    assert [name for name in seen if "step" not in name] == ["#0", "#1", "#2"]
    outermost, _, innermost = seen.calls("")
    assert (outermost.input.kwargs, innermost.input.args[1]) == ({"depth": 2}, 0)
    assert torch.equal(outermost.output, y)
    assert len(seen.calls("step")) == 3


@pytest.mark.parametrize("what", [(), ("encoder", "decoder")])
def test_a_shared_module_is_recorded_once_and_read_by_either_name(what: tuple[str, ...]) -> None:
    seen = seen_of(Shared(), *what)
    assert list(seen) == ["encoder"] and seen.silent == []
    assert seen["encoder"] is seen["decoder"]


def test_a_second_name_is_known_in_an_error_and_stays_readable_when_it_is_given_to_another_module() -> None:
    model = Shared()
    with capture(model) as seen:
        model(ones(1, 3))
    with pytest.raises(LookupError, match=r"Near names: 'decoder'"):
        _ = seen["decoder2"]
    model.decoder = nn.Linear(3, 3)
    assert seen["decoder"] is seen["encoder"]


def test_reading_all_of_many_uses_takes_no_more_calls_than_there_are_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr("hooklab.seen.Call", lambda *given: made.append(given) or Call(*given))
    model = nn.Sequential(*[nn.ReLU()] * 50)
    with capture(model, "0") as seen:
        model(ones(1))
    assert len(dict(seen)) == 50
    assert len(made) == 2 * 50  # for the names, and for the values


# structures


@pytest.mark.parametrize("shape", ["tensor", "tuple", "list", "dict", "named tuple", "dataclass", "model output"])
def test_an_output_and_its_gradient_keep_their_structure(shape: str) -> None:
    inner = Emit(shape)
    x = torch.ones(2, 3, requires_grad=True)
    seen = seen_of(Wrap(inner), "inner", x=x, grads=True)
    first_tensor = Wrap(nn.Identity())
    assert type(seen["inner"]) is type(seen.grad("inner")) is type(inner(x))
    assert torch.equal(first_tensor(seen["inner"]), 2 * x)
    assert not first_tensor(seen["inner"]).requires_grad
    assert torch.equal(first_tensor(seen.grad("inner")), torch.ones(2, 3))


def caching() -> nn.Module:
    """Its cache grows at each step, as those of language models do."""
    part = nn.Linear(3, 3)

    def forward(x: Tensor, cache: SimpleNamespace) -> tuple[Tensor, SimpleNamespace]:
        cache.states.append(part(x))
        return cache.states[-1], cache

    return Calls(forward)


def test_an_object_of_the_models_own_is_kept_as_it_is_and_shows_its_last_state_in_each_pass() -> None:
    model, cache = caching(), SimpleNamespace(states=[])
    with capture(model, "", inputs=True, keep="all") as seen:
        for _ in range(3):
            model(ones(1, 3), cache)
    assert [len(each[""][1].states) for each in seen.passes] == [3, 3, 3]
    assert seen[""][1] is seen.input("").args[1] is cache
    assert not seen[""][0].requires_grad and cache.states[0].requires_grad


def test_a_dict_that_the_model_changes_later_is_kept_as_it_was() -> None:
    model = nn.Sequential(Emit("dict"), Calls(lambda out: out.update(more=1)))
    assert set(seen_of(model, "0")["0"]) == {"hidden", "nested"}


# changed in place


def test_a_value_that_was_changed_in_place_raises_and_is_marked_in_the_table() -> None:
    seen = seen_of(nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True)), inputs=True)
    with pytest.raises(RuntimeError, match=r"the output of '0' was changed in place .* clone=True"):
        _ = seen["0"]
    with pytest.raises(RuntimeError, match=r"an input of '1' was changed in place .* clone=True"):
        seen.input("1")
    assert (seen["1"] >= 0).all()
    marked = [line.split()[0] for line in repr(seen).splitlines() if "(changed in place)" in line]
    assert marked == ["0"]


def test_a_change_of_part_of_a_structure_and_a_change_after_the_block_are_noticed() -> None:
    model = Emit("dict")
    with capture(model) as seen:
        y = model(ones(2, 3))
    _ = seen[""]
    y["nested"][0].zero_()
    with pytest.raises(RuntimeError, match="changed in place"):
        _ = seen[""]


# inputs


def test_inputs_are_args_and_kwargs_as_the_users_pre_hook_left_them() -> None:
    model = Calls(lambda x, by, note: x * by)
    model.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    with capture(model, inputs=True) as seen:
        model(ones(2), by=torch.tensor(3.0), note="n")
    args, kwargs = seen.input("")
    assert args[0].tolist() == [2, 2]
    assert (kwargs["by"].item(), kwargs["note"]) == (3, "n")


def test_a_call_that_raised_has_inputs_but_no_output_and_the_next_call_has_its_own() -> None:
    seen = seen_of(Retry(), "part", inputs=True, grads=True)
    failed, worked = seen.calls("part")
    assert (failed.input.args[0].shape, worked.input.args[0].shape) == ((2, 2), (2, 3))
    assert worked.output.shape == (2, 3)
    for what in ("output", "grad"):
        with pytest.raises(RuntimeError, match=r"call 0 of 'part' has no \w+: its forward did not get to its end"):
            getattr(failed, what)
    assert "did not finish" in repr(seen)


# what is not there


def test_a_module_that_did_not_run_is_silent_and_reading_says_what_may_be_the_reason() -> None:
    model = Branch()
    with capture(model) as seen:
        with pytest.raises(LookupError, match="no selected module ran yet"):
            seen["unused"]
        model(ones(1, 3))
    assert seen.silent == ["unused", "silent"]
    assert seen.calls("unused") == []
    with pytest.raises(LookupError, match=r"'silent' did not run in this pass.*\.forward\(\.\.\.\)"):
        _ = seen["silent"]
    with pytest.raises(LookupError, match=r"'usde' was not selected for capture\. Near names: 'used'"):
        _ = seen["usde"]


def test_what_was_not_recorded_says_how_to_record_it() -> None:
    seen = seen_of(mlp())
    with pytest.raises(RuntimeError, match=r"inputs were not recorded: .*inputs=True"):
        seen.input("0")
    with pytest.raises(RuntimeError, match=r"gradients were not recorded: .*grads=True"):
        seen.grad("0")


@pytest.mark.parametrize(("key", "named"), [(0, "int"), (nn.ReLU(), "ReLU"), (None, "NoneType"), ([], "list")])
def test_reading_by_anything_but_a_name_raises_with_the_names(key: object, named: str) -> None:
    seen = seen_of(mlp())
    for read in (seen.__getitem__, seen.calls, seen.input, seen.grad):
        with pytest.raises(KeyError, match=rf"read by name, not by {named}\. Its names: '0', '1', '2'\."):
            read(key)
    assert seen.get(key, "default") == "default"
    assert key not in seen


# as a mapping


@pytest.mark.parametrize("inputs", [False, True])
@pytest.mark.parametrize("make", [mlp, Branch, Reuse, Shared, Recursive])
def test_iterating_containing_reading_and_counting_agree(make: Callable[[], nn.Module], inputs: bool) -> None:
    seen = seen_of(make(), "", lambda name, module: True, inputs=inputs)
    listed = list(seen)
    assert len(seen) == len(listed) == len(set(listed)) == len(seen.items()) > 0
    for name, value in seen.items():
        assert name in seen and seen[name] is value
        assert [call.output for call in seen.calls(name)] == [value]
    for module in seen.silent:
        assert module not in seen and seen.get(module) is None


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps], ids=["copy", "deepcopy", "pickle"])
def test_a_copy_or_a_pickle_is_refused_and_points_to_the_values(copied: Callable[[object], object]) -> None:
    seen = seen_of(mlp(), keep="all")
    for one in (seen, seen.passes[0]):
        with pytest.raises(TypeError, match=r"Take the values: \{name: value.clone\(\) for name, value in seen.items"):
            copied(one)
    values = {name: value.clone() for name, value in seen.items()}
    assert torch.equal(pickle.loads(pickle.dumps(values))["2"], seen["2"])


def test_the_table_has_name_shape_dtype_bytes_and_the_silent() -> None:
    model = Reuse()
    model.spare = nn.ReLU()
    first, head, *rows, silent = repr(seen_of(model)).splitlines()
    assert re.match("3 of 4 selected modules of Reuse", first)
    assert head.split() == ["name", "output", "bytes"]
    assert [row.split() for row in rows] == [
        [name, "(2,", "3)", "float32", "24"] for name in ("act#0", "a", "act#1", "b", "act#2")
    ]
    assert silent.split() == ["silent:", "'spare'"]


# memory


class Token:
    """Held by an autograd graph instead of a tensor that it saved, to see when the graph is freed."""

    def __init__(self, saved: Tensor) -> None:
        self.saved = saved.detach()  # or the graph would hold itself


@pytest.fixture
def graphs_alive() -> Iterator[Callable[[], bool]]:
    tokens: list[weakref.ref[Token]] = []

    def pack(saved: Tensor) -> Token:
        token = Token(saved)
        tokens.append(weakref.ref(token))
        return token

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda token: token.saved):
        yield lambda: any(token() is not None for token in tokens)


@pytest.mark.parametrize("clone", [False, True])
def test_the_graphs_of_outputs_and_gradients_are_freed_even_inside_the_block(
    graphs_alive: Callable[[], bool], clone: bool
) -> None:
    model, x = mlp(), torch.ones(2, 3, requires_grad=True)
    with capture(model, inputs=True, grads=True, clone=clone) as seen:
        y = model(x).pow(2).sum()
        (grad,) = torch.autograd.grad(y, x, create_graph=True)
        assert graphs_alive()
        del y, grad
        assert not graphs_alive()
    assert seen["0"].shape == (2, 4) and not seen.grad("0").requires_grad


def test_the_graph_of_what_an_object_holds_lives_as_long_as_the_value(graphs_alive: Callable[[], bool]) -> None:
    model = caching()
    with capture(model, "", inputs=True) as seen:
        model(ones(1, 3), SimpleNamespace(states=[]))
    assert graphs_alive()
    del seen
    assert not graphs_alive()


def test_values_go_with_a_new_pass_and_with_the_last_reader_without_the_garbage_collector() -> None:
    model = mlp()
    block = capture(model, inputs=True, grads=True)
    gc.disable()
    try:
        with block as seen:
            model(ones(2, 3)).sum().backward()
            first = weakref.ref(seen["0"])
            model(ones(2, 3)).sum().backward()
            assert first() is None
        values = [weakref.ref(seen["0"]), weakref.ref(seen.grad("0")), weakref.ref(seen.input("2").args[0])]
        del seen
        assert [value() for value in values] == [None, None, None]
    finally:
        gc.enable()


# map


def test_map_is_kept_instead_of_the_output_and_gradients_stay_those_of_the_output() -> None:
    model, x = mlp(), torch.rand(5, 3)
    with capture(model, "0", "1", keep="all", grads=True, map=lambda output: output.mean(0)) as seen:
        model(x)
        model(2 * x).sum().backward()
    assert torch.equal(seen["1"], model[1](model[0](2 * x)).mean(0).detach())
    assert [one["0"].requires_grad for one in seen.passes] == [False, False]
    assert seen.grad("0").shape == (5, 4)
    assert "(4,) float32" in repr(seen)


def test_map_keeps_the_graph_only_on_request() -> None:
    model, x = mlp(), torch.rand(5, 3)
    assert seen_of(model, "0", x=x, detach=False, map=lambda output: output.sum(1))["0"].grad_fn is not None
    assert seen_of(model, "0", x=x, map=lambda output: output @ model[2].weight.T)["0"].grad_fn is None


def test_a_mapped_view_notices_a_later_change_and_clone_keeps_it() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
    with pytest.raises(RuntimeError, match="changed in place"):
        _ = seen_of(model, "0", map=lambda output: output[:, -1])["0"]
    assert seen_of(model, "0", map=lambda output: output[:, -1], clone=True)["0"].shape == (2,)


def test_map_gets_structures_whole() -> None:
    seen = seen_of(Wrap(nn.LSTM(3, 2)), "inner", map=lambda output: {"last": output[0][-1], "n": 7})
    assert seen["inner"]["last"].shape == (2,) and seen["inner"]["n"] == 7


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"keep": "both"}, ValueError, r"keep is 'last' .* not 'both'"),
        ({"map": "mean"}, TypeError, "map is a function of the output, not str"),
    ],
)
def test_an_option_of_a_wrong_kind_is_refused(options: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        capture(mlp(), **options)
