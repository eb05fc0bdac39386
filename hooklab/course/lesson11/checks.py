"""The exercises of lesson 11: hooks in models that are copied, loaded, compiled, or trained in several processes."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import expect_handle
from hooklab.course.exercises.faults import NotYet
from hooklab.course.exercises.frames import kind_of
from hooklab.course.exercises.records import Claim
from hooklab.course.exercises.trial import Trial
from hooklab.course.lesson11.check_compiled import a_hook_that_the_compiler_sees
from hooklab.course.lesson11.check_everybody import the_gradient_of_everybody
from hooklab.course.lesson11.check_memory import a_memory_for_any_compression

__all__ = [
    "a_hook_that_the_compiler_sees",
    "a_memory_for_any_compression",
    "the_gradient_of_everybody",
    "two_layers_become_one",
    "what_a_model_carries",
]

Pairs = Iterator[tuple[Any, ...]]


# --- 11.1


class Labelled(torch.Tensor):
    """A tensor of a class of its own, as images and masks have in some libraries."""


def deep() -> nn.Module:
    return nn.Sequential(nn.Sequential(nn.Linear(2, 3)), nn.BatchNorm1d(3))


def carrying(model: nn.Module, at: str, **attributes: Any) -> nn.Module:
    """Put attributes on a module of a model, and return the model."""
    for name, value in attributes.items():
        setattr(model.get_submodule(at), name, value)
    return model


def with_a_buffer_that_is_not_saved() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 3))
    model[0].register_buffer("table", torch.zeros(6), persistent=False)
    return carrying(model, "0", seen=torch.zeros(2))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "a model that carries nothing": deep,
    "a model with a tensor on a layer": lambda: carrying(deep(), "1", seen=torch.zeros(10, 3), note="not a tensor"),
    "a model with a tensor on a layer deep inside": lambda: carrying(deep(), "0.0", seen=torch.zeros(7)),
    "a model with a tensor on the model itself": lambda: carrying(deep(), "", seen=torch.zeros(5)),
    "a model with a row of a large tensor": lambda: carrying(deep(), "0", row=torch.zeros(100, 4)[:1]),
    "a model with a float64 tensor": lambda: carrying(deep(), "0", seen=torch.zeros(3, dtype=torch.float64)),
    "a model with an output that has a graph": lambda: carrying(
        deep(), "0", last=torch.ones(4, requires_grad=True) * 2
    ),
    "a model with a buffer that isn't saved": with_a_buffer_that_is_not_saved,
    "a model with a tensor whose name begins with _": lambda: carrying(deep(), "0", _cache=torch.zeros(4)),
    "a model with a tensor of another class": lambda: carrying(deep(), "0", kept=torch.zeros(7).as_subclass(Labelled)),
    "a copied model with a row of a large tensor": lambda: copy.deepcopy(
        carrying(deep(), "0", row=torch.zeros(9, 4)[0])
    ),
    "a model with two rows of one tensor": lambda: carrying(
        deep(), "0", **dict(zip("ab", torch.zeros(2, 3), strict=True))
    ),
}


@exercise(
    "11.1",
    "What does this model carry?",
    worlds=tuple(MODELS),
    verified="every tensor on twelve models is found, at any depth, with all the memory that it keeps alive",
)
def what_a_model_carries(trial: Trial, world: str) -> Pairs:
    model = MODELS[world]()
    before = [list(vars(module)) for module in model.modules()]
    found = trial.call(model)
    same = before == [list(vars(module)) for module in model.modules()]
    yield "are all attributes still on the modules?", Claim(same, "yes: only look", "no"), "removes-them"
    yield "the kind of your result", kind_of(found)
    why = "lists-what-has-a-table" if world == "a model that carries nothing" else "other-names"
    yield f"the names, for {world}", sorted(found, key=str), why
    yield f"the bytes, for {world}", found, "other-bytes"


# --- 11.2


class Attention(nn.Module):
    """The layer of the new kind: q is of the given height, k of the second one."""

    def __init__(self, q: int = 2, k: int = 2, bias: bool = True) -> None:
        super().__init__()
        self.qk = nn.Linear(2, q + k, bias=bias)


def old(prefix: str = "", q: int = 2, k: int = 2, without: str = "") -> dict[str, Tensor]:
    """Return a checkpoint of the old kind, without the names that end in `without`."""
    shapes = {"q.weight": (q, 2), "k.weight": (k, 2), "q.bias": (q,), "k.bias": (k,)}
    return {
        prefix + name: 10.0 * number + torch.arange(torch.Size(shape).numel()).reshape(shape)
        for number, (name, shape) in enumerate(shapes.items())
        if not without or not name.endswith(without)
    }


def with_a_part() -> nn.Module:
    model = Attention()
    model.part = nn.ModuleDict({"q": nn.Linear(2, 2), "k": nn.Linear(2, 2)})
    return model


def one_of_each() -> dict[str, Tensor]:
    new = {"qk.weight": torch.arange(8.0).reshape(4, 2), "qk.bias": torch.arange(4.0)}
    return old("0.") | {f"1.{name}": value for name, value in new.items()}


CHECKPOINTS: dict[str, tuple[Callable[[], nn.Module], str, Mapping[str, Tensor]]] = {
    "an old checkpoint": (Attention, "", old()),
    "a new checkpoint": (Attention, "", {"qk.weight": torch.ones(4, 2), "qk.bias": torch.ones(4)}),
    "an old checkpoint of a larger model": (lambda: nn.Sequential(nn.ReLU(), Attention()), "1", old("1.")),
    "a checkpoint of a layer with a part that has a q and a k": (with_a_part, "", old() | old("part.")),
    "a checkpoint of a layer without bias": (lambda: Attention(bias=False), "", old(without="bias")),
    "a checkpoint in which the layer is called seq": (lambda: nn.ModuleDict({"seq": Attention()}), "seq", old("seq.")),
    "a checkpoint in which q is higher than k": (lambda: Attention(3, 1), "", old(q=3, k=1)),
    "a checkpoint with an old and a new layer": (lambda: nn.Sequential(Attention(), Attention()), "0", one_of_each()),
    **{
        f"a checkpoint without {name}": (Attention, "", old(without=name))
        for name in ("k.weight", "q.weight", "k.bias", "q.bias")
    },
}


@exercise(
    "11.2",
    "Two layers become one",
    worlds=tuple(CHECKPOINTS),
    verified="old and new checkpoints load, alone and inside a model, and the error names what a checkpoint lacks",
)
def two_layers_become_one(trial: Trial, world: str) -> Pairs:
    make, at, state = CHECKPOINTS[world]
    model = make()
    handle = trial.call(model.get_submodule(at), may_hook=True, may_change=True)
    expect_handle(handle, "register_load_state_dict_pre_hook")
    for parameter in model.parameters():
        parameter.data.zero_()
    is_whole = "without q" not in world and "without k" not in world
    names = names_in_the_error(trial, model, state)
    yield f"the names in the error, for {world}", names, "fails-to-load" if is_whole else "other-error"
    yield f"what is loaded from {world}", model.state_dict(), "other-numbers" if is_whole else "loads-without-a-half"
    yield f"the names in the error in a second loading, for {world}", names_in_the_error(trial, model, state), "once"
    trial.run(handle.remove)
    trial.expect_none_left()
    without = names_in_the_error(trial, model, state)
    yield f"the names in the error after handle.remove(), for {world}", without, "stays"


def names_in_the_error(trial: Trial, model: nn.Module, state: Mapping[str, Tensor]) -> list[str]:
    """Load a checkpoint; return the names with which the strict loading is not content."""
    try:
        trial.run(partial(model.load_state_dict, {name: value.clone() for name, value in state.items()}))
    except NotYet as fault:
        words = str(fault.__cause__)
        if not words.startswith("Error(s) in loading state_dict"):
            raise
        return sorted(re.findall(r'"([\w.]+)"', words) + re.findall(r"size mismatch for [\w.]+", words))
    return []
