"""What the checks of lesson 9 share: an answer is called in several worlds, twice in each, and held against the truth.

A world is a set of arguments, made anew for each call. What an answer gave in all of them decides which misconception
explains it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.misconceptions import fitting, remembered
from hooklab.course.exercises.runs import runs_counted
from hooklab.course.exercises.trial import NotYet, Trial, apart, expect_tensor, same, tensor_text

Program = Callable[..., Any]


@dataclass(frozen=True)
class World:
    """`name` says in words where an answer is tried; `make` returns its arguments, the same ones in each call."""

    name: str
    make: Callable[[], tuple[Any, ...]]


def judge(trial: Trial, worlds: Sequence[World], right: Program, guesses: Mapping[str, Program], what: str) -> None:
    """Raise NotYet unless the answer gives, in every world, what `right` gives: in training, and then in evaluation.

    Args:
        trial: the trial.
        worlds: at least one; their first argument is the model.
        right: a program that is right.
        guesses: a misconception, in words -> a program that has it.
        what: what the answer returns, as in "your map".
    """
    seen, truth = [], []
    for world in worlds:
        arguments = world.make()
        before, parameters = _state(arguments), _parameters(arguments)
        with runs_counted(arguments[0]) as runs:
            seen.append(trial.call(*arguments))
        runs.expect_calls()
        truth.append(right(*world.make()))
        expect_tensor(seen[-1], f"{world.name}: {what}", truth[-1].shape)
        _expect_state(before, arguments, world)
        arguments[0].eval()
        again = trial.call(*arguments)
        if same(seen[-1], truth[-1]) and not same(again, seen[-1]):
            # changed parameters are told as such, with their names, behind this
            changed = not all(map(torch.equal, _parameters(arguments), parameters))
            left = "something is left of the first call, such as a hook, or a gradient to which the second one is added"
            raise NotYet(
                f"{world.name}: a second call with the same arguments gives something else",
                **apart(seen[-1], again),
                likely=None if changed else left,
            )
    for world, got, wanted in zip(worlds, seen, truth, strict=True):
        if not same(got, wanted, 1e-4):
            programs = {name: partial(_given, program) for name, program in guesses.items()}
            raise NotYet(
                f"{world.name}: {what} has other numbers",
                **apart(wanted, got),
                likely=fitting(seen, programs, worlds),
            )


@remembered
def _given(program: Program, world: World) -> Any:
    return program(*world.make())


def whole(module: nn.Module, seed: int = 0) -> nn.Module:
    """Give every parameter whole numbers from -3 to 3, other ones for each seed; return the module."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randint(-3, 4, parameter.shape, generator=generator))
    return module


def numbers(*shape: int, seed: int = 0) -> Tensor:
    """Return whole numbers from -4 to 4 as floats."""
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(100 + seed)).float()


def with_gradients(model: nn.Module) -> nn.Module:
    """Give every parameter a `.grad`, as somebody who is training has; return the model."""
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 7.0)
    return model


def _parameters(arguments: Sequence[Any]) -> list[Tensor]:
    """Return copies of every model's parameters."""
    models = [one for one in arguments if isinstance(one, nn.Module)]
    return [parameter.detach().clone() for model in models for parameter in model.parameters()]


def _state(arguments: Sequence[Any]) -> list[bool]:
    return [one.requires_grad for one in arguments if isinstance(one, Tensor)]


def _expect_state(before: list[bool], arguments: Sequence[Any], world: World) -> None:
    """Raise NotYet if a gradient was written, or erased, or a tensor asks for one that did not."""
    tensors = [one for one in arguments if isinstance(one, Tensor)]
    for model in (one for one in arguments if isinstance(one, nn.Module)):
        for name, parameter in model.named_parameters():
            if parameter.grad is None or not same(parameter.grad, torch.full_like(parameter, 7.0)):
                erased = parameter.grad is None or not bool(parameter.grad.any())
                raise NotYet(
                    f"{world.name}: your code {'erased' if erased else 'changed'} the .grad of the parameter {name!r}",
                    expected="the .grad of every parameter as it was: somebody may be training",
                    got=tensor_text(parameter.grad),
                    likely="zero_grad() of a model that is not yours"
                    if erased
                    else "backward() adds to the .grad of every leaf tensor; torch.autograd.grad writes nothing",
                )
    if [one.requires_grad for one in tensors] != before or any(one.grad is not None for one in tensors):
        raise NotYet(
            f"{world.name}: a tensor that you were given asks for a gradient now",
            expected="requires_grad as it was",
            likely="requires_grad_() works in place: make a copy first, x.clone().requires_grad_()",
        )
