"""What the checks of forward hooks share: layers and inputs of whole numbers."""

from __future__ import annotations

import torch
from torch import Tensor, nn


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
