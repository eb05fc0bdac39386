"""The check of exercise 11.1: tensors that a model carries besides its parameters and buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.misconceptions import fitting
from hooklab.course.exercises.trial import NotYet, Trial, tensor_text


class _Labelled(torch.Tensor):
    """A tensor of a class of its own, as images and masks have in some libraries."""


def _nothing() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))


def _on_a_layer() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    model[0].seen = torch.zeros(10, 3)
    return model


def _on_the_model() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 3))
    model.seen = torch.zeros(5, dtype=torch.float64)
    vars(model)["note"] = "not a tensor"
    return model


def _with_a_graph_deep() -> nn.Module:
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 3)), nn.BatchNorm1d(3))
    layer = model.get_submodule("0.0")
    layer.last = model(torch.ones(4, 2))
    layer.kept = torch.zeros(7).as_subclass(_Labelled)
    return model


def _a_view() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 3))
    model[0].row = torch.zeros(100, 4)[:1]
    return model


def _with_an_unsaved_buffer() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 3))
    model[0].register_buffer("table", torch.zeros(6), persistent=False)
    model[0].seen = torch.zeros(2)
    return model


MODELS = {
    "on a model that carries nothing: ": _nothing,
    "with a tensor on a layer: ": _on_a_layer,
    "with a tensor on the model itself: ": _on_the_model,
    "with two tensors on a layer deep inside, one of them of a graph: ": _with_a_graph_deep,
    "with a row of a large tensor: ": _a_view,
    "with a buffer that is not in the state dict: ": _with_an_unsaved_buffer,
}


def _found(of: Callable[[str, torch.Tensor], Any], parts: Callable[[nn.Module], Any] | None = None) -> Any:
    """Return a program that lists tensors: by parts(model), pairs of place and module, with of(...) for each."""

    def program(model: nn.Module) -> dict[str, Any]:
        found = {}
        for place, module in parts(model) if parts else model.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, torch.Tensor):
                    found[f"{place}.{name}" if place else name] = of(name, value)
        return found

    return program


def _bytes(name: str, value: torch.Tensor) -> int:
    return value.untyped_storage().nbytes()


def _with_tables(model: nn.Module, *tables: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for place, module in model.named_modules():
        for table in (vars(module), *(vars(module)[one] for one in tables)):
            for name, value in table.items():
                if isinstance(value, torch.Tensor):
                    found[f"{place}.{name}" if place else name] = _bytes(name, value)
    return found


truth = _found(_bytes)
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "the view's own numbers only: the memory behind it is kept alive, and saved, as a whole": _found(
        lambda name, value: value.numel() * value.element_size()
    ),
    "numbers instead of bytes": _found(lambda name, value: value.untyped_storage().nbytes() // value.element_size()),
    "the numbers of the view, not the bytes": _found(lambda name, value: value.numel()),
    "the direct children only: named_modules goes all the way down, and begins with the model itself": _found(
        _bytes, lambda model: model.named_children()
    ),
    "only what is plainly a torch.Tensor: isinstance() finds subclasses, too": lambda model: {
        name: size for name, size in truth(model).items() if not name.endswith("kept")
    },
    "the model itself is left out": _found(_bytes, lambda model: list(model.named_modules())[1:]),
    "only tensors that belong to a graph: a detached one is memory as well": lambda model: {
        name: size for name, size in truth(model).items() if name.endswith("last")
    },
    "only tensors that belong to no graph: one of a graph is memory as well": lambda model: {
        name: size for name, size in truth(model).items() if not name.endswith("last")
    },
    "a name that begins with a dot: the model itself is called '' in named_modules": lambda model: {
        name if "." in name else f".{name}": size for name, size in truth(model).items()
    },
    "what is not in the state dict is listed: a buffer may be kept out of it, and is a buffer": lambda model: (
        truth(model)
        | {name: _bytes(name, one) for name, one in model.named_buffers() if name not in model.state_dict()}
    ),
    "parameters are listed, too": lambda model: _with_tables(model, "_parameters"),
    "buffers are listed, too": lambda model: _with_tables(model, "_buffers"),
    "parameters and buffers are listed, too": lambda model: _with_tables(model, "_parameters", "_buffers"),
    "names without the place: a name alone does not say on which module": lambda model: {
        name.rpartition(".")[2]: size for name, size in truth(model).items()
    },
    "nothing was found: vars(module) has the attributes": lambda model: {},
}


@exercise("11.1", "What does this model carry?")
def what_a_model_carries(trial: Trial) -> str:
    seen, fault = [], None
    for where, make in MODELS.items():
        model = make()
        before = {name: list(vars(module)) for name, module in model.named_modules()}
        got, wanted = trial.call(model), truth(model)
        if not isinstance(got, dict):
            likely = "forgotten return" if got is None else None
            raise NotYet(f"{where}your result is no dictionary", expected=repr(wanted), got=repr(got), likely=likely)
        if before != {name: list(vars(module)) for name, module in model.named_modules()}:
            raise NotYet(f"{where}your function has added or removed something on a module", expected="only a look")
        seen.append(dict(got))
        if seen[-1] != wanted and fault is None:
            fault = (where, wanted, seen[-1])
    if trial.faults:
        raise trial.faults[0]
    if fault:
        where, wanted, was = fault
        likely = fitting(seen, PROGRAMS, [make() for make in MODELS.values()])
        raise NotYet(
            f"{where}the dictionary is another one", expected=repr(wanted), got=tensor_text(was), likely=likely
        )
    return "every tensor on six models is found, at any depth, with the memory behind it"
