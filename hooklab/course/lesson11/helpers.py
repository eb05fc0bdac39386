"""Scaffolding of lesson 11 that is not its subject."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

NUMBERS = 3818  # in a gradient of the digits network


def saved_bytes(what: Any) -> int:
    """Return how many bytes torch.save writes for a model or a state dict."""
    buffer = io.BytesIO()
    torch.save(what, buffer)
    return buffer.tell()


def still_fires(change: Callable[[nn.Linear], nn.Module | None]) -> bool:
    """Put a hook on a layer's weight, change the layer, run it forward and backward; return whether the hook ran.

    Args:
        change: changes the layer; returns another layer to use from then on, or None.
    """
    layer, ran = nn.Linear(1, 1), list[int]()
    layer.weight.register_hook(lambda grad: ran.append(1))
    after = change(layer) or layer
    after(torch.ones(1, 1, dtype=next(after.parameters()).dtype)).sum().backward()
    return bool(ran)


def replace_weight(layer: nn.Linear) -> None:
    """Replace the layer's weight by a new parameter."""
    layer.weight = nn.Parameter(torch.ones(1, 1))


def load(layer: nn.Linear, **options: bool) -> None:
    """Load a state dict into the layer."""
    layer.load_state_dict(copy.deepcopy(layer.state_dict()), **options)


def train(hook: Callable[..., Any] | None, seed: int = 0, epochs: int = 5) -> list[float]:
    """Train the digits network in every process, each on its part of each batch; return the accuracies.

    Args:
        hook: a comm hook, or None for DDP's own average.

    Returns:
        the share of test digits that are read right, after each epoch.
    """
    from hooklab.course.digits import DigitsCNN, accuracy, digits

    torch.manual_seed(seed)
    model, data = DistributedDataParallel(DigitsCNN()), digits()
    if hook is not None:
        model.register_comm_hook(None, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    accuracies = []
    for _ in range(epochs):
        for batch in torch.randperm(len(data.train_labels)).split(64):
            mine = batch.chunk(dist.get_world_size())[dist.get_rank()]
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(data.train_images[mine]), data.train_labels[mine]).backward()
            optimizer.step()
        accuracies.append(accuracy(model.module, data.test_images, data.test_labels))
    return accuracies


@contextmanager
def counting_bytes() -> Iterator[list[int]]:
    """Yield a list of the bytes that this process passes to all_reduce and all_gather while the block runs."""
    counted: list[int] = []
    reduce: Any = dist.all_reduce
    gather: Any = dist.all_gather

    def counting_reduce(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        counted.append(tensor.nbytes)
        return reduce(tensor, *args, **kwargs)

    def counting_gather(parts: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        counted.append(tensor.nbytes)
        return gather(parts, tensor, *args, **kwargs)

    distributed: Any = dist  # its functions are looked up when they are called
    distributed.all_reduce, distributed.all_gather = counting_reduce, counting_gather
    try:
        yield counted
    finally:
        distributed.all_reduce, distributed.all_gather = reduce, gather
