"""The check of exercise 9.4: one position of one module's output, put from a clean run into a corrupted one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.misconceptions import named_by
from hooklab.course.exercises.trial import Trial
from hooklab.course.lesson09.judging import Program, World, judge, numbers, whole, with_gradients


class _Mix(nn.Module):
    """Adds, to each position, a linear function of the sum of all positions up to it."""

    def __init__(self) -> None:
        super().__init__()
        self.point, self.linear = nn.Identity(), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.linear(self.point(x).cumsum(dim=1)))  # x goes round `point`


class _Reader(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.embed, self.layers, self.head = nn.Linear(2, 3), nn.ModuleList([_Mix(), _Mix()]), nn.Linear(3, 2)
        whole(self, seed)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        scores: Tensor = self.head(x)
        return scores


def _world(place: str, name: str, position: int, seed: int) -> World:
    def make() -> tuple[nn.Module, str, Tensor, Tensor, int]:
        clean = numbers(3, 5, 2, seed=seed)
        return with_gradients(_Reader(seed)), name, clean, numbers(3, 5, 2, seed=seed + 50), position

    return World(f"{place}, position {position}", make)


WORLDS = [
    _world("at the embedding", "embed", 2, 0),
    _world("at the first layer", "layers.0", 1, 1),
    _world("at the last layer", "layers.1", 4, 2),
    _world("at a module deep inside, whose input goes round it as well", "layers.0.point", 0, 3),
]


def _program(mix: Program, swapped: bool = False) -> Program:
    """Return a program that puts mix(corrupted run's output, clean run's output, position) in the output's place."""

    def run(model: nn.Module, name: str, clean: Tensor, corrupted: Tensor, position: int) -> Tensor:
        kept: list[Tensor] = []
        module = model.get_submodule(name)
        source, target = (corrupted, clean) if swapped else (clean, corrupted)
        with module.register_forward_hook(lambda module, args, output: kept.append(output.detach().clone())):
            model(source)
        with module.register_forward_hook(lambda module, args, output: mix(output, kept[0], position)):
            return model(target)  # type: ignore[no-any-return]

    return run


def _at(output: Tensor, clean: Tensor, *index: Any) -> Tensor:
    changed = output.clone()
    changed[index] = clean[index]
    return changed


def _in_place(output: Tensor, clean: Tensor, position: int) -> Tensor:
    output[:, position] = clean[:, position]
    return output


def _run(of_clean: bool) -> Program:
    return lambda model, name, clean, corrupted, position: model(clean if of_clean else corrupted)


def _patched_input(model: nn.Module, name: str, clean: Tensor, corrupted: Tensor, position: int) -> Tensor:
    return model(_at(corrupted, clean, slice(None), position))  # type: ignore[no-any-return]


def _patched_module_input(model: nn.Module, name: str, clean: Tensor, corrupted: Tensor, position: int) -> Tensor:
    kept: list[Tensor] = []
    module = model.get_submodule(name)
    with module.register_forward_pre_hook(lambda module, args: kept.append(args[0].clone())):
        model(clean)
    with module.register_forward_pre_hook(lambda module, args: (_right_mix(args[0], kept[0], position),)):
        return model(corrupted)  # type: ignore[no-any-return]


def _right_mix(output: Tensor, clean: Tensor, position: int) -> Tensor:
    return _at(output, clean, slice(None), position)


ALL = slice(None)
RIGHT = _program(_right_mix)
GUESSES: dict[str, Program] = {
    "no patch: this is the corrupted run as it is; the second run needs a hook that returns the new output, and none "
    "of the first run's, which would store anew": _run(of_clean=False),
    "this is the clean run as it is: what the run on `corrupted` gives is asked for": _run(of_clean=True),
    "all positions: only one comes from the clean run": _program(lambda output, clean, position: clean.clone()),
    "the other way round: the corrupted run's vector in the clean run": _program(_right_mix, swapped=True),
    "another dimension: position counts along dimension 1, dimension 0 is the batch": _program(
        lambda output, clean, position: _at(output, clean, min(position, 2))
    ),
    "another dimension: position counts along dimension 1, the last one holds a vector's numbers": _program(
        lambda output, clean, position: _at(output, clean, ALL, ALL, min(position, 2))
    ),
    "the first of the batch only: every sequence gets its own patch": _program(
        lambda output, clean, position: _at(output, clean, 0, position)
    ),
    "one vector for all: each sequence gets that of its own clean run": _program(
        lambda output, clean, position: _at(output, clean[:1].expand_as(clean), ALL, position)
    ),
    "all positions from this one on: only this one is patched": _program(
        lambda output, clean, position: _at(output, clean, ALL, slice(position, None))
    ),
    "all positions up to this one: only this one is patched": _program(
        lambda output, clean, position: _at(output, clean, ALL, slice(position + 1))
    ),
    "zeros: the position is switched off, and not patched": _program(
        lambda output, clean, position: _at(output, torch.zeros_like(clean), ALL, position)
    ),
    "a sum: the clean vector takes the place of the other, it is not added to it": _program(
        lambda output, clean, position: _at(output, output + clean, ALL, position)
    ),
    "the input: patch the module's output, not what the model is given": _patched_input,
    "the module's input: what it puts out is to be patched, and there a position holds more than itself": (
        _patched_module_input
    ),
    "in place: the output that you wrote into also goes round the module; patch a copy, and return it": _program(
        _in_place
    ),
}
WORDS = {
    "leaf Variable that requires grad": "in place: patch a copy of the output, and return it",
    "a view of a leaf": "in place: patch a copy of the output, and return it",
    "list index out of range": "an empty list: has the clean run been made, with the hook on the module?",
    "raised KeyError": "nothing stored under this name when the line ran: has the clean run been made, hooked?",
    "has no attribute 'register_forward_hook'": "a name is no module: model.get_submodule(name), or hooklab's tools",
    "must be Tensor, not": "accidental return: the next layer got what your hook returned in place of the output",
}


@exercise("9.4", "Patch it")
@named_by(WORDS)
def patch_it(trial: Trial) -> str:
    judge(trial, WORLDS, RIGHT, GUESSES, "what the model puts out")
    return "right at the embedding, behind each layer and deep inside, at the first, a middle and the last position"
