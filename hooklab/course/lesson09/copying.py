"""Sequences that repeat, and a transformer of two attention layers that learns to continue them in seconds.

A sequence has 24 tokens out of 16: a random part of 4 to 12 different tokens, over and over. What comes next can be
known from the place where the part begins again: find the present token's earlier copy, and say what came after it.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

TOKENS, LENGTH, WIDTH, HEADS, LAYERS = 16, 24, 64, 2, 2
PERIODS = (4, 12)
STEPS, BATCH, RATE = 120, 128, 3e-3


class Sequences(NamedTuple):
    """Tokens (n, 24) and periods (n, 1), both int64."""

    tokens: Tensor
    periods: Tensor

    @property
    def inputs(self) -> Tensor:
        """All tokens but the last, shape (n, 23): what the model is given."""
        return self.tokens[:, :-1]

    @property
    def known(self) -> Tensor:
        """Shape (n, 23): at which positions the next token can be known, since the part has begun again."""
        return torch.arange(LENGTH - 1) >= self.periods


def sequences(count: int, seed: int, period: int | None = None) -> Sequences:
    """Return sequences that repeat, each with a random period from 4 to 12, or all with this one.

    Example:
        >>> made = sequences(1, seed=0, period=5)
        >>> made.tokens[0, :5].tolist() == made.tokens[0, 5:10].tolist() == made.tokens[0, 10:15].tolist()
        True
    """
    return _made(count, torch.Generator().manual_seed(seed), period)


def _made(count: int, generator: torch.Generator, period: int | None = None) -> Sequences:
    low, high = PERIODS if period is None else (period, period)
    periods = torch.randint(low, high + 1, (count, 1), generator=generator)
    order = torch.rand(count, TOKENS, generator=generator).argsort(dim=1)
    return Sequences(order.gather(1, torch.arange(LENGTH).expand(count, -1) % periods), periods)


class Embed(nn.Module):
    """Tokens (n, length) -> vectors (n, length, 64): the token's embedding plus its position's."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(TOKENS, WIDTH), nn.Embedding(LENGTH, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        vectors: Tensor = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        return vectors


class Layer(nn.Module):
    """One attention layer with a residual connection: (n, length, 64) -> the same shape.

    `pattern` returns its input unchanged: the attention of each head, shape (n, heads, to, from), each row with sum 1.
    It is there for hooks.
    """

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.pattern = nn.LayerNorm(WIDTH), nn.Identity()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        count, length, _ = x.shape
        split = self.qkv(self.norm(x)).view(count, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
        later = torch.ones(length, length, dtype=torch.bool).triu(1)  # no position sees later ones
        pattern = self.pattern(scores.masked_fill(later, float("-inf")).softmax(dim=-1))
        mixed = (pattern @ value).transpose(1, 2).reshape(count, length, WIDTH)
        result: Tensor = x + self.out(mixed)
        return result


class Copier(nn.Module):
    """embed, layers.0, layers.1, norm, unembed: tokens (n, length) -> scores of the next token (n, length, 16)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layers = Embed(), nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.unembed = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, TOKENS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        scores: Tensor = self.unembed(self.norm(x))
        return scores


def trained_copier(seed: int = 0) -> Copier:
    """Return a trained model in evaluation mode; a process trains each seed once, in a few seconds."""
    with torch.random.fork_rng(devices=[]):
        model = Copier()
    model.load_state_dict(_weights(seed))
    return model.eval()


@functools.cache
def _weights(seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        model = Copier()
        optimizer = torch.optim.AdamW(model.parameters(), RATE)
        for _ in range(STEPS):
            batch = _made(BATCH, generator)
            loss = F.cross_entropy(model(batch.inputs)[batch.known], batch.tokens[:, 1:][batch.known])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.state_dict()


def right(scores: Tensor, made: Sequences) -> float:
    """Return the share of the positions where the next token can be known at which it has the highest score.

    Args:
        scores: shape (n, 23, 16), what the model says of `made.inputs`.
        made: the sequences.
    """
    hits = scores.argmax(dim=-1) == made.tokens[:, 1:]
    return hits[made.known].float().mean().item()


@torch.no_grad()
def accuracy(model: nn.Module, made: Sequences) -> float:
    """Return the share of the known next tokens that the model gets right."""
    return right(model(made.inputs), made)
