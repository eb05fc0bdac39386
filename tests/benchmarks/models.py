"""The models of the benchmarks."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


def chain(length: int = 100) -> nn.Sequential:
    """``length`` Linear(32): so little work per module that only the overhead counts."""
    return nn.Sequential(*[nn.Linear(32, 32) for _ in range(length)])


class BasicBlock(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.downsample = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)) + self.downsample(x))


def resnet18() -> nn.Sequential:
    """The shape of ResNet-18 (He et al. 2015, table 1): its layers, widths and strides."""
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    widths = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
    blocks = [BasicBlock(*sizes) for a, b, s in widths for sizes in ((a, b, s), (b, b, 1))]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)).eval()


class GPT2Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.attn_dropout, self.resid_dropout = nn.Dropout(0.1), nn.Dropout(0.1)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        parts = self.c_attn(self.ln_1(x)).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        attended = self.attn_dropout(scaled_dot_product_attention(query, key, value, is_causal=True))
        x = x + self.resid_dropout(self.c_proj(attended.transpose(1, 2).flatten(-2)))
        return x + self.mlp(self.ln_2(x))


def gpt2(width: int = 768, layers: int = 12, words: int = 5000) -> nn.Sequential:
    """The shape of GPT-2 small (Radford et al. 2019, table 2) on embedded tokens, with a smaller vocabulary."""
    blocks = [GPT2Block(width, width // 64) for _ in range(layers)]
    return nn.Sequential(*blocks, nn.LayerNorm(width), nn.Linear(width, words, bias=False)).eval()
