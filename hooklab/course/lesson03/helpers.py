"""What lesson 3 needs and doesn't explain."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch import Tensor, nn

BATCH, WIDTH = 10, 100


def bytes_alive(model: nn.Sequential, form: Callable[[Tensor], Tensor]) -> int:
    """Run a model on a batch of shape (10, 100) with a hook that stores `form(output)` of its last module.

    Returns:
        How many bytes of the batch, of the modules' outputs and of what the hook stored are in memory afterwards.
        Tensors that share their memory count once. Only the hook stores anything.
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
