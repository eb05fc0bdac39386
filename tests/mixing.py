"""What the tests of ManifoldMixup share: a CNN, mixup written into its forward, a batch, a mixer with one choice."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hooklab.mixup import ManifoldMixup, Mixed


def cnn() -> nn.Sequential:
    """Four stages, the same numbers each time."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()),
        nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        nn.Sequential(nn.Flatten(), nn.Linear(8 * 4 * 4, 16), nn.ReLU()),
        nn.Linear(16, 10),
    )


PLACES = ["input", "0", "1", "2", "3"]


def blended(tensor: Tensor, mixed: Mixed, dim: int = 0) -> Tensor:
    return mixed.lam * tensor + (1 - mixed.lam) * tensor.index_select(dim, mixed.permutation)


def mixed_by_hand(stages: nn.Sequential, x: Tensor, mixed: Mixed) -> Tensor:
    """The forward pass with the mixing written into it."""
    out = blended(x, mixed) if mixed.layer == "input" else x
    for name, stage in stages.named_children():
        out = stage(out)
        if name == mixed.layer.removeprefix("module."):
            out = blended(out, mixed)
    return out


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def digits_like(n: int = 6, seed: int = 1) -> tuple[Tensor, Tensor]:
    g = seeded(seed)
    return torch.rand(n, 1, 8, 8, generator=g), torch.randint(10, (n,), generator=g)


def mixer(model: nn.Module, at: str) -> ManifoldMixup:
    """A mixer that can only choose ``at``. Its first λ is 0.31: below 1/2, where a folded λ shows."""
    return ManifoldMixup(model, [] if at == "input" else [at], include_input=at == "input", generator=seeded(4))
