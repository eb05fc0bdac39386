"""What it costs to keep saved values in fewer bits: `fewer_bits` measures memory and the gradient's error."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F

from hooklab.course.digits import DigitsCNN, digits

ROWS = 256


class Cost(NamedTuple):
    """Bits for each number; the bytes kept, as a share of those of 32 bits; the gradient's relative error."""

    bits: int
    share: float
    error: float


def fewer_bits() -> list[Cost]:
    """Compare one gradient of an untrained network that reads 256 digits, its saved values kept in 16 to 2 bits.

    16 bits are float16. Fewer are whole numbers from the smallest value to the largest of each tensor, several to a
    byte where they fit. Class labels and other integers stay as they are.
    """
    torch.manual_seed(0)
    network, data = DigitsCNN(), digits()
    images, labels = data.train_images[:ROWS], data.train_labels[:ROWS]

    def gradient(bits: int) -> tuple[Tensor, int]:
        kept: dict[int, int] = {}  # an image that two operations save is one piece of memory

        def pack(tensor: Tensor) -> Any:
            packed = squeezed(tensor.detach(), bits)
            place = tensor.untyped_storage().data_ptr()
            kept[place] = max(kept.get(place, 0), packed[0].nbytes)
            return packed

        with saved_tensors_hooks(pack, restored):
            loss = F.cross_entropy(network(images), labels)
        grads = torch.autograd.grad(loss, list(network.parameters()))
        return torch.cat([grad.flatten() for grad in grads]), sum(kept.values())

    exact, full = gradient(32)
    measured = {bits: gradient(bits) for bits in (16, 8, 4, 2)}
    return [
        Cost(bits, size / full, float((grad - exact).norm() / exact.norm())) for bits, (grad, size) in measured.items()
    ]


def squeezed(tensor: Tensor, bits: int) -> tuple[Any, ...]:
    """Return a tensor in so many bits a number, with what `restored` needs to make it again.

    Args:
        tensor: of any shape; one that is not of float32 comes back exactly.
        bits: 32, 16, 8, 4 or 2.

    Example:
        >>> packed = squeezed(torch.tensor([0.0, 1.0, 2.0, 3.0]), 2)
        >>> packed[0].nbytes, restored(packed).tolist()
        (1, [0.0, 1.0, 2.0, 3.0])
    """
    if bits == 32 or tensor.dtype != torch.float32 or tensor.numel() == 0:
        return (tensor,)
    if bits == 16:
        return (tensor.half(), tensor.dtype)
    low, high = tensor.min(), tensor.max()
    step = torch.where(high > low, (high - low) / (2**bits - 1), 1.0)
    levels = ((tensor - low) / step).round().to(torch.uint8).flatten()
    in_a_byte = 8 // bits
    levels = F.pad(levels, (0, -len(levels) % in_a_byte)).reshape(in_a_byte, -1)
    packed = sum((row << (bits * place) for place, row in enumerate(levels)), torch.zeros_like(levels[0]))
    return (packed, low, step, bits, tensor.shape)


def restored(packed: tuple[Any, ...]) -> Tensor:
    """Return the tensor that `squeezed` was given, as exactly as its bits allow."""
    if len(packed) == 1:
        return packed[0]  # type: ignore[no-any-return]
    if len(packed) == 2:
        return packed[0].to(packed[1])  # type: ignore[no-any-return]
    levels, low, step, bits, shape = packed
    rows = torch.cat([(levels >> (bits * place)) & (2**bits - 1) for place in range(8 // bits)])
    return (rows[: shape.numel()] * step + low).reshape(shape)  # type: ignore[no-any-return]
