"""What the page runs while exercise 3.2 is open."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle


def switch_off(layer: nn.Module, channel: int) -> RemovableHandle:
    """Make one channel of the layer's output zero; return the hook's handle."""

    def hook(module: nn.Module, args: object, output: Tensor) -> Tensor:
        keep = torch.ones_like(output[0, :, :1, :1])
        keep[channel] = 0
        return output * keep

    return layer.register_forward_hook(hook)
