"""Scaffolding of lesson 9 that is not its subject."""

from __future__ import annotations

import weakref
from typing import Any, ClassVar

import torch
from torch import Tensor, nn


class Talker(nn.Module):
    """A language model of one layer. After the prompt, `generate` gives it one new token a step, as with a cache."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.embed, self.layer, self.head = nn.Embedding(10, 4), nn.Linear(4, 4), nn.Linear(4, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.head(self.layer(self.embed(tokens)))
        return scores

    @torch.no_grad()
    def generate(self, tokens: Tensor, count: int) -> Tensor:
        """Return the tokens, shape (1, length), with `count` more after them."""
        step = tokens
        for _ in range(count):
            step = self(step)[:, -1:].argmax(dim=-1)
            tokens = torch.cat([tokens, step], dim=1)
        return tokens


class Square(nn.Module):
    """x², by an operation that knows which of its autograd graphs are alive: `len(Square.alive)`."""

    alive: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()

    def forward(self, x: Tensor) -> Tensor:
        squared: Tensor = _Square.apply(x)  # type: ignore[no-untyped-call]
        return squared


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        Square.alive.add(ctx)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        product: Tensor = 2 * x * grad
        return product
