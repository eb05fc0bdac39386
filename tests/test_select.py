"""select: which modules a name, glob, type, object or predicate finds, and what a miss says."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hooklab import capture, edit, select, timeline
from tests.nets import Shared, mlp


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer1 = nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU())
        self.layer2 = nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU())
        self.fc = nn.Linear(3, 2)


LEAVES = ["layer1.0", "layer1.1", "layer2.0", "layer2.1", "fc"]


def test_without_anything_all_layers_are_selected() -> None:
    assert list(select(Net())) == LEAVES


def test_a_name_selects_the_module_with_that_name() -> None:
    net = Net()
    assert select(net, "layer1") == {"layer1": net.layer1}


def test_the_empty_name_is_the_model_itself() -> None:
    net = Net()
    assert select(net, "") == {"": net}


def test_a_model_without_children_is_its_own_leaf() -> None:
    linear = nn.Linear(2, 2)
    assert select(linear) == {"": linear}


def test_a_glob_crosses_dots() -> None:
    assert list(select(Net(), "layer*.0", "f?")) == ["layer1.0", "layer2.0", "fc"]
    assert list(select(Net(), "*1")) == ["layer1", "layer1.1", "layer2.1"]


def test_a_name_that_exists_is_not_read_as_a_glob() -> None:
    net = nn.ModuleDict({"a[1]": nn.ReLU(), "a1": nn.ReLU()})
    assert list(select(net, "a[1]")) == ["a[1]"]


def test_a_type_selects_its_subclasses_too() -> None:
    class Special(nn.Linear):
        pass

    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), Special(2, 2))
    assert list(select(net, nn.Linear)) == ["0", "2"]


def test_a_module_object_selects_itself() -> None:
    net = Net()
    assert list(select(net, net.layer2, net.fc)) == ["layer2", "fc"]


def test_a_predicate_gets_name_and_module() -> None:
    net = Net()
    assert list(select(net, lambda name, module: name.startswith("layer2.") or module is net.fc)) == LEAVES[2:]


def test_the_result_is_in_the_order_of_the_model_whatever_was_asked_first() -> None:
    assert list(select(Net(), "fc", nn.ReLU, "layer1.0")) == ["layer1.0", "layer1.1", "layer2.1", "fc"]


def test_a_shared_module_appears_once() -> None:
    assert list(select(Shared())) == ["encoder"]
    assert list(select(Shared(), nn.Linear)) == ["encoder"]


def test_a_shared_module_is_found_by_its_second_name() -> None:
    net = Shared()
    assert select(net, "decoder") == {"decoder": net.encoder}
    assert list(select(net, "dec*")) == ["decoder"]


def test_both_names_of_a_shared_module_can_be_asked_for() -> None:
    assert list(select(Shared(), "encoder", "decoder")) == ["encoder", "decoder"]


def test_a_compiled_model_has_the_names_of_the_plain_one() -> None:
    net = mlp()
    compiled = torch.compile(net, backend="eager")
    assert select(compiled, "0") == {"0": net[0]}
    assert select(compiled, "_orig_mod.0") == {"0": net[0]}
    assert list(select(compiled)) == list(select(net)) == ["0", "1", "2"]


def test_a_compiled_part_has_the_names_of_the_plain_one() -> None:
    part = mlp()
    net = nn.Sequential(torch.compile(part, backend="eager"))
    assert select(net, "0.1", "0") == {"0": part, "0.1": part[1]}


def test_the_compiled_wrapper_as_an_object_means_the_module_inside() -> None:
    net = mlp()
    compiled = torch.compile(net, backend="eager")
    assert select(net, compiled) == {"": net}


def test_a_misspelt_name_raises_with_near_names() -> None:
    with pytest.raises(LookupError, match=r"no module of this Net is named 'layr1'\. Near names: 'layer1'"):
        select(Net(), "layr1")


def test_a_name_without_its_path_is_told_the_path() -> None:
    net = nn.Sequential()
    net.add_module("encoder", Net())
    with pytest.raises(LookupError, match=r"'encoder\.fc'"):
        select(net, "fc")


def test_a_second_pattern_without_a_match_raises_too() -> None:
    with pytest.raises(LookupError, match=r"no module of this Net matches 'conv\*'"):
        select(Net(), "fc", "conv*")


def test_a_name_like_no_other_is_told_what_names_there_are() -> None:
    with pytest.raises(LookupError, match=r"Its names: 'layer1', 'layer1.0', .* and 2 more"):
        select(Net(), "qqqqq")


def test_a_model_without_submodules_says_so() -> None:
    with pytest.raises(LookupError, match="has no submodules"):
        select(nn.ReLU(), "fc")


def test_a_type_that_is_not_there_raises() -> None:
    with pytest.raises(LookupError, match="this Net has no module of type LSTM"):
        select(Net(), nn.LSTM)


def test_a_module_of_another_model_raises() -> None:
    with pytest.raises(LookupError, match="this Linear object is not part of this Net"):
        select(Net(), Net().fc)


def test_a_predicate_that_nothing_satisfies_raises() -> None:
    def is_huge(name: str, module: nn.Module) -> bool:
        return False

    with pytest.raises(LookupError, match=r"satisfies the predicate .*is_huge"):
        select(Net(), is_huge)


def test_a_list_of_names_is_told_to_be_unpacked() -> None:
    with pytest.raises(TypeError, match=r"not list. Unpack a list: select\(model, \*names\)"):
        select(Net(), ["fc"])  # type: ignore[arg-type]


def test_a_type_that_is_no_module_raises() -> None:
    with pytest.raises(TypeError, match=r"needs a subclass of nn\.Module, not Tensor"):
        select(Net(), torch.Tensor)  # type: ignore[arg-type]


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


def test_a_default_edit_of_a_parametrized_layer_leaves_its_weight_alone():
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 3)), nn.Linear(3, 1))
    x = torch.rand(4, 2)
    with edit(model, lambda output, call: output + 1):
        got = model(x)
    assert torch.allclose(got, model[1](model[0](x) + 1) + 1)


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


def test_a_layer_of_ones_own_with_layers_inside_is_still_looked_into():
    assert list(select(nn.TransformerEncoderLayer(4, 2, 8)))[:2] == ["self_attn", "linear1"]


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


@pytest.mark.filterwarnings("ignore")
def test_what_is_scripted_has_its_layers_too():
    assert list(select(torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.ReLU())))) == ["0", "1"]


def test_a_module_shared_with_an_attention_is_a_layer_under_its_other_name():
    attention = nn.MultiheadAttention(4, 2)
    assert list(select(nn.Sequential(attention, attention.out_proj))) == ["0", "1"]
