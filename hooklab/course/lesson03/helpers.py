"""Scaffolding of lesson 3 that is not its subject."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch import Tensor, nn

BATCH, WIDTH = 10, 100


def bytes_alive(model: nn.Sequential, form: Callable[[Tensor], Tensor]) -> int:
    """Run a model on a batch of shape (10, 100) with a hook that keeps `form(output)` of its last module.

    Returns:
        How many bytes are in memory afterwards of the batch, of what the modules put out, and of what was kept. Tensors
        that share their memory count once. Nobody but the hook keeps anything.
    """
    watched: list[weakref.ref[Tensor]] = []
    kept: list[Tensor] = []
    handles = [
        module.register_forward_hook(lambda module, args, output: watched.append(weakref.ref(output)))
        for module in model
    ]
    handles.append(model[-1].register_forward_hook(lambda module, args, output: kept.append(form(output))))
    try:
        batch = torch.ones(BATCH, WIDTH)
        watched.append(weakref.ref(batch))
        model(batch)
        del batch
    finally:
        for handle in handles:
            handle.remove()
    alive = kept + [tensor for tensor in (ref() for ref in watched) if tensor is not None]
    memories = [tensor.untyped_storage() for tensor in alive]
    return sum({one.data_ptr(): one.nbytes() for one in memories}.values())
