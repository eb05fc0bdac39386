"""Pictures of shapes, made on the page, and a small network that is trained on them in seconds.

Each picture holds one disc, square or triangle of any colour, place, size and angle. Where the shape is, is known: a
map of what a network looks at can be scored. A tag in the corner may give the shape away.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SHAPES = ("disc", "square", "triangle")
SIDE = 32
TAG = slice(1, 5)  # rows and columns of the tag: red for a disc, green for a square, blue for a triangle
STEPS = {"own": 120, "random": 220}
RATE = {"own": 4e-3, "random": 1e-2}
BATCH = 64


class Pictures(NamedTuple):
    """Images (n, 3, 32, 32), float32; labels (n,), numbers in SHAPES; masks (n, 32, 32), 1.0 where the shape is."""

    images: Tensor
    labels: Tensor
    masks: Tensor


def pictures(count: int, seed: int, tags: str | None = "own") -> Pictures:
    """Return pictures of one shape each.

    Args:
        count: how many.
        seed: of all that is random.
        tags: "own": a tag in the corner, of the shape's own colour; "random": of any of the three; None: no tag.

    Example:
        >>> made = pictures(20, seed=0)
        >>> made.images.shape, made.masks.shape, sorted(set(made.labels.tolist()))
        (torch.Size([20, 3, 32, 32]), torch.Size([20, 32, 32]), [0, 1, 2])
    """
    if tags not in ("own", "random", None):
        raise ValueError(f"tags are 'own', 'random' or None, not {tags!r}")
    return _made(count, torch.Generator().manual_seed(seed), tags)


def _made(count: int, generator: torch.Generator, tags: str | None) -> Pictures:
    def between(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(count, *shape, generator=generator)

    labels = torch.randint(len(SHAPES), (count,), generator=generator)
    size, angle = between(5, 8, 1, 1), between(0, 2 * math.pi, 1, 1)
    at = torch.arange(SIDE).float()
    right, down = at.view(1, 1, -1) - between(9, SIDE - 9, 1, 1), at.view(1, -1, 1) - between(9, SIDE - 9, 1, 1)
    u, v = angle.cos() * right + angle.sin() * down, angle.cos() * down - angle.sin() * right
    inside = torch.stack(
        [
            u**2 + v**2 < 0.75 * size**2,
            u.abs().maximum(v.abs()) < 0.78 * size,
            (v > -0.55 * size) & (0.5 * v + 0.87 * u.abs() < 0.55 * size),
        ]
    )
    masks = inside[labels, torch.arange(count)].float()
    ground, colour = between(0.0, 0.5, 3, 1, 1), between(0.4, 1.0, 3, 1, 1)
    noise = 0.08 * torch.randn(count, 3, SIDE, SIDE, generator=generator)
    images = ground + (colour - ground) * masks.unsqueeze(1) + noise
    if tags is not None:
        which = labels if tags == "own" else torch.randint(len(SHAPES), (count,), generator=generator)
        images[:, :, TAG, TAG] = torch.eye(len(SHAPES))[which].view(count, 3, 1, 1)
    return Pictures(images, labels, masks)


def tag_masks(count: int) -> Tensor:
    """Return masks of shape (count, 32, 32) that are 1.0 where the tag is."""
    masks = torch.zeros(count, SIDE, SIDE)
    masks[:, TAG, TAG] = 1.0
    return masks


class ShapeCNN(nn.Module):
    """Three blocks of convolution, batch norm and ReLU, the mean over all places, and a linear layer.

    Images of shape (n, 3, 32, 32) give scores of shape (n, 3). block1 returns (n, 8, 32, 32), block2 (n, 16, 16, 16),
    block3 (n, 32, 8, 8). No activation works in place, and each module is used once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.block1, self.pool1 = _block(3, 8), nn.MaxPool2d(2)
        self.block2, self.pool2 = _block(8, 16), nn.MaxPool2d(2)
        self.block3, self.head = _block(16, 32), nn.Linear(32, len(SHAPES))

    def forward(self, images: Tensor) -> Tensor:
        features = self.block3(self.pool2(self.block2(self.pool1(self.block1(images)))))
        scores: Tensor = self.head(features.mean(dim=(2, 3)))
        return scores


def _block(channels_in: int, channels_out: int) -> nn.Sequential:
    convolution = nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(channels_out), nn.ReLU())


def untrained(seed: int = 0) -> ShapeCNN:
    """Return a network with random weights, in evaluation mode; the global random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1000 + seed)
        return ShapeCNN().eval()


def trained(tags: str = "own", seed: int = 0) -> ShapeCNN:
    """Return a network that was trained on pictures with such tags ("own" or "random"), in evaluation mode.

    It takes some seconds; a process trains each once. The same seed gives the same weights on the same machine.
    """
    model = untrained()
    model.load_state_dict(_weights(tags, seed))
    return model


@functools.cache
def _weights(tags: str, seed: int) -> dict[str, Tensor]:
    steps, rate = STEPS[tags], RATE[tags]
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        model = ShapeCNN()
        optimizer = torch.optim.AdamW(model.parameters(), rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
        for _ in range(steps):
            batch = _made(BATCH, generator, tags)
            optimizer.zero_grad()
            images = batch.images.contiguous(memory_format=torch.channels_last)  # it takes a quarter less
            F.cross_entropy(model(images), batch.labels).backward()
            optimizer.step()
            schedule.step()
    return model.state_dict()
