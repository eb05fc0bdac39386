"""Made shapes in noise: a data set that needs no download, and is harder than the digits."""

from __future__ import annotations

import math

import torch
from torch import Tensor

SHAPES = ("disc", "ring", "square", "triangle", "cross")
SIDE = 16


def shapes(count: int, seed: int, noise: float = 0.25) -> tuple[Tensor, Tensor]:
    """Return images of one shape each, of random place, size and angle, in noise.

    Args:
        count: how many.
        seed: of all that is random.
        noise: standard deviation of what is added to each pixel; the shape itself is 1 on 0.

    Returns:
        Images of shape (count, 1, 16, 16), float32, and the shapes' numbers in SHAPES, shape (count,), int64.

    >>> images, labels = shapes(20, seed=0)
    >>> tuple(images.shape), sorted(set(labels.tolist()))
    ((20, 1, 16, 16), [0, 1, 2, 3, 4])
    """
    generator = torch.Generator().manual_seed(seed)

    def between(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, 1, 1, generator=generator)

    labels = torch.randint(len(SHAPES), (count,), generator=generator)
    at = torch.linspace(-1, 1, SIDE)
    radius, angle = between(0.45, 0.7), between(0, 2 * math.pi)
    right = (at.view(1, 1, SIDE) - between(-0.3, 0.3)) / radius
    up = (at.view(1, SIDE, 1) - between(-0.3, 0.3)) / radius
    u, v = angle.cos() * right + angle.sin() * up, angle.cos() * up - angle.sin() * right

    far, near, square = u.abs().maximum(v.abs()), u.abs().minimum(v.abs()), u**2 + v**2
    inside = torch.stack(
        [
            square < 0.8,
            (square > 0.35) & (square < 1.1),
            far < 0.8,
            (v > -0.55) & (v < 1 - math.sqrt(3) * u.abs()),
            (near < 0.28) & (far < 1),
        ]
    )
    images = inside[labels, torch.arange(count)].float()
    return (images + noise * torch.randn(images.shape, generator=generator)).unsqueeze(1), labels
