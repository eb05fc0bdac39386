"""A training loop that registers hooks on its parameters for the caller."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle

from hooklab.course.digits import raw_digits

STEPS = 100
BATCH = 64

# Gets a parameter's name and the parameter, registers a hook on it, and returns the handle.
Register = Callable[[str, nn.Parameter], RemovableHandle]


def run(step_size: float, *registers: Register, seed: int = 0) -> tuple[nn.Sequential, float]:
    """Train a small network on the raw digits for a hundred steps, with hooks on its parameters.

    Args:
        step_size: the learning rate of plain SGD.
        registers: each is called with every parameter's name and the parameter, and returns a handle. The hooks of the
            first one run first. All hooks are removed at the end, even if the training raises an exception.
        seed: the seed of the weights and the batches.

    Returns:
        The network, and the share of the digits that it reads correctly.
    """
    images, labels = raw_digits()
    with torch.random.fork_rng(devices=[]), ExitStack() as handles:
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))
        optimizer = torch.optim.SGD(network.parameters(), lr=step_size)
        for register in registers:
            for name, parameter in network.named_parameters():
                handles.enter_context(register(name, parameter))
        for _ in range(STEPS):
            batch = torch.randint(len(images), (BATCH,))
            optimizer.zero_grad()
            F.cross_entropy(network(images[batch]), labels[batch]).backward()
            optimizer.step()
    with torch.no_grad():
        right = network(images).argmax(dim=1) == labels
    return network, int(right.sum()) / len(labels)
