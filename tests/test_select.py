"""select: which modules a name, glob, type, object or predicate finds, and what a miss says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from hooklab import ManifoldMixup, capture, edit, leftover_hooks, monitor, run_until, select, timeline
from tests.nets import Shared, mlp


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer1 = nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU())
        self.layer2 = nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU())
        self.fc = nn.Linear(3, 2)


LEAVES = ["layer1.0", "layer1.1", "layer2.0", "layer2.1", "fc"]


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ([], LEAVES),
        (["layer1"], ["layer1"]),
        ([""], [""]),
        (["layer*.0", "f?"], ["layer1.0", "layer2.0", "fc"]),
        (["*1"], ["layer1"]),
        (["**.*1"], ["layer1", "layer1.1", "layer2.1"]),
        (["layer1.**"], ["layer1.0", "layer1.1"]),
        (["*"], ["layer1", "layer2", "fc"]),
        ([lambda name, module: name.startswith("layer2.") or isinstance(module, nn.Linear)], LEAVES[2:]),
        (["fc", nn.ReLU, "layer1.0"], ["layer1.0", "layer1.1", "layer2.1", "fc"]),  # in the order of the model
    ],
)
def test_names_globs_types_and_predicates_select(what: list[Any], names: list[str]) -> None:
    net = Net()
    assert select(net, *what) == {name: net.get_submodule(name) for name in names}


def test_a_module_object_selects_itself_and_a_type_its_subclasses_too() -> None:
    class Special(nn.Linear):
        pass

    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), Special(2, 2))
    assert list(select(net, nn.Linear)) == ["0", "2"]
    assert list(select(net, net[2], net[1])) == ["1", "2"]
    assert select(net[0]) == {"": net[0]}


def test_a_name_that_exists_is_not_read_as_a_glob() -> None:
    net = nn.ModuleDict({"a[1]": nn.ReLU(), "a1": nn.ReLU()})
    assert list(select(net, "a[1]")) == ["a[1]"]


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ([], ["encoder"]),
        ([nn.Linear], ["encoder"]),
        (["decoder"], ["decoder"]),
        (["dec*"], ["decoder"]),
        (["encoder", "decoder"], ["encoder", "decoder"]),
    ],
)
def test_a_shared_module_appears_under_the_first_name_asked_for_or_those_written_out(what: Any, names: Any) -> None:
    assert list(select(Shared(), *what)) == names


def test_what_is_compiled_has_the_names_of_the_plain_one() -> None:
    net = mlp()
    compiled = torch.compile(net, backend="eager")
    assert select(compiled, "0") == select(compiled, "_orig_mod.0") == {"0": net[0]}
    assert list(select(compiled)) == list(select(net)) == ["0", "1", "2"]
    assert select(net, compiled) == {"": net}
    assert select(nn.Sequential(compiled), "0.1", "0") == {"0": net, "0.1": net[1]}


def is_huge(name: str, module: nn.Module) -> bool:
    return False


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (["layr1"], r"no module of this Net is named 'layr1'\. Near names: 'layer1'"),
        (["0"], r"Near names: 'layer1\.0', 'layer2\.0'"),
        (["fc", "conv*"], r"no module of this Net matches 'conv\*'\..* \"\*\" is one level, \"\*\*\" any number"),
        (["qqqqq"], r"Its names: 'layer1', 'layer1.0', .* and 2 more"),
        ([nn.LSTM], "this Net has no module of type LSTM"),
        ([nn.Linear(3, 2)], "this Linear object is not part of this Net"),
        ([is_huge], r"satisfies the predicate .*is_huge"),
    ],
)
def test_a_miss_is_an_error_that_says_what_there_is(what: list[Any], message: str) -> None:
    with pytest.raises(LookupError, match=message):
        select(Net(), *what)
    with pytest.raises(LookupError, match="has no submodules"):
        select(nn.ReLU(), "fc")


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (["fc"], r"not list. Unpack a list: select\(model, \*names\)"),
        (torch.Tensor, r"needs a subclass of nn\.Module, not Tensor"),
    ],
)
def test_what_is_neither_of_these_is_refused(what: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        select(Net(), what)


@pytest.mark.parametrize(("given", "named"), [(nn.Linear, "the class Linear"), ("layer1", "str"), (None, "NoneType")])
def test_a_model_that_is_no_module_is_named(given: object, named: str) -> None:
    for tool in (select, capture, timeline, lambda model: edit(model, lambda output, call: None)):
        with pytest.raises(TypeError, match=f"the model comes first, and is an nn.Module object, not {named}"):
            tool(given)


def test_a_module_that_contains_itself_does_not_hang() -> None:
    net = Net()
    net.fc.add_module("owner", net)
    assert "fc" in select(net, "*")


# the default: what a person calls the layers


def test_a_parametrized_layer_is_a_layer_and_its_parametrization_is_none():
    parametrizations = nn.utils.parametrizations
    model = nn.Sequential(
        parametrizations.weight_norm(nn.Linear(2, 3)), nn.ReLU(), parametrizations.orthogonal(nn.Linear(3, 3))
    )
    assert list(select(model)) == ["0", "1", "2"]
    assert "0.parametrizations.weight" in select(model, "0.*")  # by name, everything can be had


def test_attention_is_one_layer_and_not_its_silent_projection():
    model = nn.Sequential(nn.MultiheadAttention(4, 2), nn.Linear(4, 4))
    assert list(select(model)) == ["0", "1"]
    assert list(select(model[0])) == [""]
    assert list(select(model, nn.Linear)) == ["0.out_proj", "1"]


@pytest.mark.filterwarnings("ignore")
def test_observers_of_quantization_do_not_stand_in_for_the_layers():
    quantization = torch.ao.quantization
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 1)))
    names = list(select(model))
    model.qconfig = quantization.get_default_qconfig("fbgemm")
    prepared = quantization.prepare(model)
    assert any("observer" in type(module).__name__.lower() for module in prepared.modules())
    assert list(select(prepared)) == names


@pytest.mark.filterwarnings("ignore")
def test_a_quantized_layer_is_a_layer_and_its_packed_weights_are_none():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.LSTM(3, 3))
    quantized = torch.ao.quantization.quantize_dynamic(model, {nn.Linear, nn.LSTM})
    assert "0._packed_params" in select(quantized, "0.*")
    assert list(select(quantized)) == ["0", "1", "2"]


def test_what_cannot_be_called_is_no_layer():
    net = Net()
    net.scales = nn.ParameterList([torch.ones(1)])
    net.more = nn.ModuleList()
    net.named = nn.ModuleDict({"deeper": nn.ModuleList([nn.ParameterDict()])})
    net.space = nn.Module()
    assert list(select(net)) == LEAVES


def test_a_function_put_in_place_of_forward_makes_a_layer():
    net = Net()
    net.space = nn.Module()
    net.space.forward = lambda x: x + 1
    assert list(select(net)) == [*LEAVES, "space"]


def test_a_model_whose_layers_stand_in_a_list_has_them():
    assert list(select(nn.ModuleList([nn.ModuleList([nn.ReLU()]), nn.ParameterList(), nn.Linear(1, 1)]))) == [
        "0.0",
        "2",
    ]


@pytest.mark.parametrize("model", [nn.ParameterList([torch.ones(1)]), nn.Module()], ids=["list", "bare"])
def test_a_model_without_layers_is_told_so(model: nn.Module) -> None:
    with pytest.raises(LookupError, match=r"this \w+ has no layers: nothing in it has a forward"):
        select(model)


def test_a_module_shared_with_an_attention_is_a_layer_under_its_other_name():
    attention = nn.MultiheadAttention(4, 2)
    assert list(select(nn.Sequential(attention, attention.out_proj))) == ["0", "1"]


def test_a_class_that_was_loaded_again_is_told_from_the_one_of_the_model() -> None:
    old, new = (type("Block", (nn.Linear,), {}) for _ in range(2))
    with pytest.raises(LookupError, match=r"no module of type Block\. It has 2 of another class of that name"):
        select(nn.Sequential(old(2, 2), old(2, 2)), new)


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.h = nn.ModuleList(nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(12))
        self.heads = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 1)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.h:
            x = block(x)
        return self.heads["b"](self.heads["a"](x))


BLOCKS = [f"h.{number}" for number in range(12)]


def test_a_glob_of_one_level_is_the_blocks_and_a_list_of_modules_means_its_members() -> None:
    model = Blocks()
    assert list(select(model, "h.*")) == list(select(model, "h")) == list(select(model, model.h)) == BLOCKS
    assert list(select(model, nn.ModuleDict)) == ["heads.a", "heads.b"]
    assert list(select(model, "*")) == [*BLOCKS, "heads.a", "heads.b"]
    assert list(select(nn.ModuleList([model.h]), "")) == [f"0.{number}" for number in range(12)]
    assert len(select(model, "h.**")) == 36


def test_every_tool_takes_a_list_of_modules_for_its_members() -> None:
    model, x = Blocks(), torch.ones(3, 2)
    with capture(model, "h") as seen, timeline(model, "h") as events, monitor(model, "h") as health:
        model(x)
    assert seen.silent == [] and list(seen) == [event.name for event in events if event.kind == "forward"] == BLOCKS
    assert [row.module for row in health.rows] == BLOCKS
    with edit(model, lambda output, call: output * 0, "h"), capture(model, "h.11") as seen:
        model(x)
    assert not seen["h.11"].any()
    assert ManifoldMixup(model, "h", include_input=False).choices == BLOCKS
    with pytest.raises(ValueError, match="stops at one module; 'h' matches 12"):
        run_until(model, "h", x)


@pytest.mark.parametrize(
    "outer", [lambda model: model, torch.nn.DataParallel, lambda model: torch.compile(model, backend="eager")]
)
def test_wrappers_do_not_change_the_names(outer: Any) -> None:
    model, x = Blocks(), torch.ones(3, 2)
    plain = list(select(model))
    model.h[0] = checkpoint_wrapper(model.h[0])
    model.h[1][0] = checkpoint_wrapper(model.h[1][0])
    wrapped = outer(model)
    assert list(select(wrapped)) == plain
    assert list(select(wrapped, nn.Linear)) == [name for name in plain if not name.endswith(".1")]
    raw = {id(module): name for name, module in wrapped.named_modules()}[id(select(wrapped, "h.0.0")["h.0.0"])]
    assert raw != "h.0.0" and list(select(wrapped, raw)) == ["h.0.0"]
    with capture(wrapped, "h", "h.0.0", grads=True) as seen, monitor(wrapped, updates=_sgd(wrapped)) as health:
        wrapped(x).sum().backward()
    assert torch.equal(seen["h.0"], seen["h.0.0"].relu()) and torch.equal(seen[raw], seen["h.0.0"])
    assert seen.grad("h.0").shape == (3, 2)
    assert health.silent == []


def _sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def test_the_parameters_in_a_wrapper_are_watched_under_their_names() -> None:
    model = nn.Sequential(checkpoint_wrapper(nn.Linear(2, 2)), checkpoint_wrapper(nn.Sigmoid()))
    sgd = _sgd(model)
    with monitor(model, updates=sgd) as health:
        model(torch.ones(1, 2))
        sgd.step()
    assert health.without_gradient == ["0.weight", "0.bias"]
    assert health.series("output", "1", "saturated") == ([0], [0.0])


def test_a_part_named_module_is_not_taken_for_a_wrapper() -> None:
    model = nn.ModuleDict({"module": nn.ModuleDict({"fc": nn.Linear(1, 1)}), "fc": nn.ReLU()})
    assert list(select(model, "module.fc")) == ["module.fc"]
    with pytest.raises(LookupError, match=r"is named 'module\.x'\. Near names: 'module'"):
        select(model, "module.x")
    with pytest.raises(LookupError, match=r"is named 'module\.0'"):
        select(mlp(), "module.0")


def test_a_model_in_distributed_data_parallel_keeps_its_names() -> None:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(mlp())
        assert list(select(model)) == list(select(model, "module.*")) == ["0", "1", "2"]
        with (
            capture(model, "module.0", grads=True, keep="all") as seen,
            monitor(model, grads=True, updates=_sgd(model)) as health,
        ):
            for _ in range(2):
                model(torch.ones(1, 3)).sum().backward()
        assert len(seen.passes) == 2 and seen["0"] is seen["module.0"] and seen.grad("module.0").shape == (1, 4)
        assert [row.module for row in health.rows] == [*"012", *"210"] * 2
        assert health.series("output", "module.0", "mean")[0] == [0, 1]
        assert leftover_hooks(model) == []
    finally:
        torch.distributed.destroy_process_group()
