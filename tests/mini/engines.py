"""The two engines that run a program. An adapter adds nothing to an engine: it only says where things are."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch

from hooklab import mini


class Mini:
    name = "mini"
    every_module: ModuleType = mini  # register_module_...
    Module = mini.Module
    Tensor = mini.Tensor
    no_grad = staticmethod(mini.no_grad)

    @staticmethod
    def tensor(values: Sequence[float], requires_grad: bool = False) -> Any:
        return mini.Tensor(values, requires_grad=requires_grad)


class Torch:
    name = "torch"
    every_module: ModuleType = torch.nn.modules.module
    Module = torch.nn.Module
    Tensor = torch.Tensor
    no_grad = staticmethod(torch.no_grad)

    @staticmethod
    def tensor(values: Sequence[float], requires_grad: bool = False) -> Any:
        return torch.tensor(values, dtype=torch.float64, requires_grad=requires_grad)


ENGINES = (Torch, Mini)
