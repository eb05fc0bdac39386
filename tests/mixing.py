"""What the tests of ManifoldMixup share: a CNN that can also mix by hand, a batch, and a mixer with one choice."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hooklab.mixup import ManifoldMixup


class SmallCNN(nn.Module):
    """A CNN that can also mix by hand, for comparison: ``model(x, at=..., lam=..., permutation=...)``."""

    def __init__(self) -> None:
        super().__init__()
        self.stage1 = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.stage2 = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.hidden = nn.Linear(8 * 4 * 4, 16)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor, at: str = "", lam: float = 1.0, permutation: Tensor | None = None) -> Tensor:
        def maybe_mix(name: str, value: Tensor) -> Tensor:
            return lam * value + (1 - lam) * value[permutation] if name == at else value

        out = maybe_mix("input", x)
        out = maybe_mix("stage1", self.stage1(out))
        out = maybe_mix("stage2", self.stage2(out))
        out = maybe_mix("hidden", self.hidden(out.flatten(1)))
        return maybe_mix("head", self.head(out.relu()))


LAYERS = ["stage1", "stage2", "hidden", "head"]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def digits_like(n: int = 6) -> tuple[Tensor, Tensor]:
    g = seeded(1)
    return torch.rand(n, 1, 8, 8, generator=g), torch.randint(10, (n,), generator=g)


def hooks_in(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def mixer(model: nn.Module, at: str) -> ManifoldMixup:
    """A mixer that can only choose ``at``. Its first λ is 0.31: below 1/2, where a folded λ shows."""
    return ManifoldMixup(model, [] if at == "input" else [at], include_input=at == "input", generator=seeded(4))
