"""The check of exercise 11.2: a hook joins two layers of an old checkpoint while it loads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import expect_handle
from hooklab.course.exercises.misconceptions import fitting
from hooklab.course.exercises.trial import NotYet, Trial, first_words

State = dict[str, Tensor]


class Attention(nn.Module):
    """The layer of the new kind."""

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.qk = nn.Linear(2, 4, bias=bias)
        self.out = nn.Linear(4, 2)


def _old(prefix: str, bias: bool = True) -> State:
    numbers = {"q.weight": (2, 2), "k.weight": (2, 2), "out.weight": (2, 4), "out.bias": (2,)}
    numbers |= {"q.bias": (2,), "k.bias": (2,)} if bias else {}
    state: State = {}
    for start, (name, shape) in enumerate(sorted(numbers.items())):
        size = int(torch.tensor(shape).prod())
        state[prefix + name] = torch.arange(float(size)).reshape(shape) + 10 * start
    return state


def _new(old: State, prefix: str) -> State:
    state = dict(old)
    for kind in ("weight", "bias"):
        halves = [state.pop(f"{prefix}{half}.{kind}", None) for half in "qk"]
        if halves[0] is not None and halves[1] is not None:
            state[f"{prefix}qk.{kind}"] = torch.cat([halves[0], halves[1]])
    return state


class World:
    """A model with an attention layer in it, and a checkpoint."""

    def __init__(self, name: str, model: nn.Module, at: str, state: State, wanted: State | None) -> None:
        self.name, self.model, self.at, self.state, self.wanted = name, model, at, state, wanted


def _two() -> nn.Module:
    """One of the new kind, which has the hook, and a part with names like its own."""
    return nn.ModuleDict({"block": Attention(), "block2": nn.ModuleDict({"q": nn.Linear(2, 2), "k": nn.Linear(2, 2)})})


def _ones() -> State:
    return {"weight": torch.ones(2, 2), "bias": torch.ones(2)}


def worlds() -> list[World]:
    """Return new worlds, the same ones each time."""
    alone, inside = _old(""), _old("1.")
    beside = _old("block.") | {f"block2.{half}.{kind}": one for half in "qk" for kind, one in _ones().items()}
    lacking = {name: one for name, one in _old("").items() if name != "k.weight"}
    return [
        World("an old checkpoint, the layer alone: ", Attention(), "", alone, _new(alone, "")),
        World("a new checkpoint: ", Attention(), "", _new(alone, ""), _new(alone, "")),
        World(
            "the layer inside a larger model: ", nn.Sequential(nn.ReLU(), Attention()), "1", inside, _new(inside, "1.")
        ),
        World("beside a layer with names like its own: ", _two(), "block", beside, _new(beside, "block.")),
        World("a layer without bias: ", Attention(False), "", _old("", False), _new(_old("", False), "")),
        World("a checkpoint without k.weight: ", Attention(), "", lacking, None),
    ]


def _load(world: World, register: Callable[[nn.Module], Any]) -> Any:
    """Return what is in the model after loading, or the error, as text."""
    register(world.model.get_submodule(world.at))
    with torch.no_grad():
        for parameter in world.model.parameters():
            parameter.zero_()
    try:
        world.model.load_state_dict(world.state)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return {name: one.clone() for name, one in world.model.state_dict().items()}


def _joiner(
    prefixed: bool = True, careful: bool = True, halves: str = "qk", kinds: str = "weight bias", asks: slice = slice(2)
) -> Callable[[nn.Module], Any]:
    def register(module: nn.Module) -> Any:
        def join(module: nn.Module, state: State, prefix: str, *others: Any) -> None:
            prefix = prefix if prefixed else ""
            for kind in kinds.split():
                names = [f"{prefix}{half}.{kind}" for half in halves]
                if not careful or all(name in state for name in names[asks]):
                    state[f"{prefix}qk.{kind}"] = torch.cat([state.pop(name) for name in names])

        return module.register_load_state_dict_pre_hook(join)

    return register


def _all_or_none(module: nn.Module) -> Any:
    def join(module: nn.Module, state: State, prefix: str, *others: Any) -> None:
        if all(f"{prefix}{half}.{kind}" in state for half in "qk" for kind in ("weight", "bias")):
            for kind in ("weight", "bias"):
                state[f"{prefix}qk.{kind}"] = torch.cat([state.pop(f"{prefix}{half}.{kind}") for half in "qk"])

    return module.register_load_state_dict_pre_hook(join)


def _keeps_old(module: nn.Module) -> Any:
    def join(module: nn.Module, state: State, prefix: str, *others: Any) -> None:
        for kind in ("weight", "bias"):
            names = [f"{prefix}{half}.{kind}" for half in "qk"]
            if all(name in state for name in names):
                state[f"{prefix}qk.{kind}"] = torch.cat([state[name] for name in names])

    return module.register_load_state_dict_pre_hook(join)


PROGRAMS: dict[str, Callable[[nn.Module], Any]] = {
    "without the prefix: inside a larger model, the names begin with it": _joiner(prefixed=False),
    "k on top of q: the other way round": _joiner(halves="kq"),
    "only the weight: the bias has two halves, too": _joiner(kinds="weight"),
    "the old names are still there: take them out with pop, for strict loading counts them as unexpected": _keeps_old,
    "joined whether or not the names are there: ask first": _joiner(careful=False),
    "asked for one half only: the other one may be missing": _joiner(asks=slice(1)),
    "weight and bias, or nothing: a layer without bias has no entry for it": _all_or_none,
    "no hook, or one that changes nothing in the dictionary that it is given": lambda module: None,
}


def _told(value: Any) -> str:
    if isinstance(value, str):
        return value.replace("\n\t", " ")
    return ", ".join(f"{name}: {one.tolist()}" for name, one in value.items() if "out" not in name)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return bool(one == other)
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


@exercise("11.2", "Two layers become one")
def two_layers_become_one(trial: Trial) -> str:
    seen: list[Any] = []
    handles: list[Any] = []
    for world in worlds():

        def register(module: nn.Module) -> Any:
            handles.append(trial.call(module, may_hook=True, may_change=True))
            return handles[-1]

        came = _load(world, register)
        expect_handle(handles[-1], "register_load_state_dict_pre_hook")
        seen.append(came)
    for world, came in zip(worlds(), seen, strict=True):
        is_right = _same(came, world.wanted) if world.wanted is not None else _fails_as_before(came)
        if not is_right and world.wanted is None and isinstance(came, str) and came.startswith("RuntimeError"):
            raise NotYet(
                f"{world.name}the error has other names than those in the file",
                expected='Missing key(s): "qk.weight". Unexpected key(s): "q.weight"',
                got=_told(came),
                likely="half of the old names is taken out before it is known that the other half is there"
                if '"qk.weight"' in came and '"q.weight"' not in came
                else None,
            )
        if not is_right:
            likely = _why(seen)
            wanted = "an error with the names in the file" if world.wanted is None else _told(world.wanted)
            raise NotYet(
                f"{world.name}what is loaded is not what it should be", expected=wanted, got=_told(came), likely=likely
            )
    if trial.faults:
        raise trial.faults[0]
    _expect_to_load_again(trial)
    _removal(trial)
    return "old and new checkpoints load, alone and inside a model, and a missing half is told by its name"


def _fails_as_before(came: Any) -> bool:
    return isinstance(came, str) and came.startswith("RuntimeError") and '"qk.weight"' in came and '"q.weight"' in came


def _why(seen: list[Any]) -> str | None:
    programs = {words: partial(_outcome, program) for words, program in PROGRAMS.items()}
    return fitting([_Outcome(one) for one in seen], programs, range(len(seen)))


def _outcome(program: Callable[[nn.Module], Any], number: int) -> _Outcome:
    return _Outcome(_load(worlds()[number], program))


class _Outcome:
    """What came out of a loading, compared by the kind of error, or by values."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Outcome) and _same(self.value, other.value)

    __hash__ = None  # type: ignore[assignment]


def _expect_to_load_again(trial: Trial) -> None:
    layer = Attention()
    trial.call(layer, may_hook=True, may_change=True)
    layer.load_state_dict(_old(""))
    try:
        layer.load_state_dict(_old(""))
    except Exception as error:
        raise NotYet(
            "an old checkpoint is loaded once, and not a second time",
            expected="the hook is there until the caller removes it",
            got=f"{type(error).__name__}: {first_words(error)}",
        ) from error


def _removal(trial: Trial) -> None:
    layer = Attention()
    handle = trial.call(layer, may_hook=True, may_change=True)
    trial.run(handle.remove)
    if layer._load_state_dict_pre_hooks:
        raise NotYet("after handle.remove(), a hook is still there", expected="the handle of the one hook that you put")
