"""What the checks of forward hooks share: layers and inputs of whole numbers, and context managers."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.faults import NotYet
from hooklab.course.exercises.values import tensor_text


def linear(inputs: int, outputs: int, seed: int, kind: type[nn.Linear] = nn.Linear) -> nn.Linear:
    """A linear layer with small whole numbers other than 0 as weights: exact, and different for each seed."""
    layer = kind(inputs, outputs)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            size = torch.randint(1, 4, parameter.shape, generator=generator)
            sign = torch.randint(0, 2, parameter.shape, generator=generator) * 2 - 1
            parameter.copy_(size * sign)
    return layer


def whole(module: nn.Module, seed: int) -> nn.Module:
    """Give every parameter of a module whole numbers from -3 to 3, different for each seed; return the module."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randint(-3, 4, parameter.shape, generator=generator))
    return module


def whole_numbers(seed: int, *shape: int) -> Tensor:
    """Floats with whole values from 1 to 5, different for each seed."""
    return torch.randint(1, 6, shape, generator=torch.Generator().manual_seed(100 + seed)).float()


def expect_manager(manager: Any, made_by: str) -> Any:
    """Return `manager` if it is a context manager; raise NotYet if not."""
    if not hasattr(manager, "__enter__") or not hasattr(manager, "__exit__"):
        likely = None
        if inspect.isgenerator(manager):
            likely = "@contextmanager is missing above the function"
        elif manager is None:
            likely = "the function returns nothing: a `return` is missing, or @contextmanager and a `yield`"
        elif isinstance(manager, dict):
            likely = (
                "the dictionary itself was returned: under @contextmanager, `yield` it, and clean up after the yield"
            )
        raise NotYet(
            f"what {made_by}(...) returns cannot be used in a `with` statement",
            expected="a context manager",
            got=tensor_text(manager),
            likely=likely,
        )
    return manager


def users_own(module: nn.Module, args: Any, output: Any) -> None:
    """A hook that is already there, and must still be there afterwards."""
