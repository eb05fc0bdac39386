"""leftover_hooks: what is still registered, by module, kind and function name."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module

from hooklab import leftover_hooks
from tests.nets import Shared, mlp


def do_nothing(*args: Any) -> None:
    return None


KINDS = ["forward_pre_hook", "forward_hook", "full_backward_pre_hook", "full_backward_hook", "backward_hook"]
KINDS += ["state_dict_pre_hook", "state_dict_hook", "load_state_dict_pre_hook", "load_state_dict_post_hook"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_module_hook_is_listed_under_the_name_of_its_method(kind: str) -> None:
    model = mlp()
    method = "register_state_dict_post_hook" if kind == "state_dict_hook" else f"register_{kind}"
    handle = getattr(model[1], method)(do_nothing)
    assert leftover_hooks(model) == [("1", kind, "do_nothing")]
    handle.remove()
    assert leftover_hooks(model) == []


def test_hooks_of_a_parameter_and_of_the_model_itself_are_listed_under_its_name() -> None:
    model = nn.Linear(1, 1)
    model.register_forward_hook(do_nothing)
    model.weight.register_hook(do_nothing)
    model.bias.register_post_accumulate_grad_hook(do_nothing)
    assert leftover_hooks(model) == [
        ("", "forward_hook", "do_nothing"),
        ("weight", "tensor_hook", "do_nothing"),
        ("bias", "post_accumulate_grad_hook", "do_nothing"),
    ]


@pytest.mark.parametrize("kind", KINDS[:4])
def test_hooks_for_every_module_are_listed_once(kind: str) -> None:
    with getattr(torch_module, f"register_module_{kind}")(do_nothing):
        assert leftover_hooks(mlp()) == [("(every module)", kind, "do_nothing")]


def test_a_shared_module_and_a_tied_parameter_are_listed_once() -> None:
    model = Shared()
    model.encoder.register_forward_hook(do_nothing)
    model.tied = nn.Linear(3, 3)
    model.tied.weight = model.encoder.weight
    model.encoder.weight.register_hook(do_nothing)
    assert [left.name for left in leftover_hooks(model)] == ["encoder", "encoder.weight"]


def test_a_compiled_model_has_the_names_of_the_plain_one() -> None:
    model = mlp()
    compiled = torch.compile(model, backend="eager")
    model[0].register_forward_hook(do_nothing)
    compiled.register_forward_hook(do_nothing)
    assert [left.name for left in leftover_hooks(compiled)] == ["", "0"]


class Recorder:
    def __call__(self, *args: Any) -> None:
        return None

    def method(self, *args: Any) -> None:
        return None


@pytest.mark.parametrize(
    ("hook", "name"),
    [
        (lambda *args: None, "<lambda>"),
        (functools.partial(do_nothing, 1), "do_nothing"),
        (Recorder(), "Recorder"),
        (Recorder().method, "Recorder.method"),
    ],
    ids=["lambda", "partial", "callable object", "method"],
)
def test_the_function_is_named(hook: Any, name: str) -> None:
    model = nn.ReLU()
    model.register_forward_hook(hook)
    model.register_load_state_dict_pre_hook(hook)  # torch wraps it
    assert [left.function for left in leftover_hooks(model)] == [name, name]


def test_what_is_not_a_module_is_refused() -> None:
    with pytest.raises(TypeError, match=r"an nn\.Module object, not NoneType"):
        leftover_hooks(None)
