"""What the page mixes and trains with while exercise 7.1, 7.2 or 7.3 is open."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from torch import Tensor, nn


def mix_batch(x: Tensor, y: Tensor, lam: float, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Return x and y, each mixed with its rows in the order of `indices`."""
    return lam * x + (1 - lam) * x[indices], lam * y + (1 - lam) * y[indices]


def mixed_loss(
    loss_fn: Callable[[Tensor, Tensor], Tensor], logits: Tensor, y: Tensor, lam: float, indices: Tensor
) -> Tensor:
    """Return λ times the loss for the samples' own targets, and the rest for their partners' targets."""
    return lam * loss_fn(logits, y) + (1 - lam) * loss_fn(logits, y[indices])


@contextlib.contextmanager
def mixing(layer: nn.Module, lam: float, indices: Tensor) -> Iterator[None]:
    """Mix the layer's output during the block."""
    with layer.register_forward_hook(lambda module, args, out: lam * out + (1 - lam) * out[indices]):
        yield
