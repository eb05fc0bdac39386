"""How an answer runs a model: how often, and whether through `model(...)` or its `forward` alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


class Runs:
    """Counts of one model: `calls` of the model, and `forwards` with and without such a call around them."""

    def __init__(self) -> None:
        self.calls = self.forwards = 0


@contextmanager
def runs_counted(model: nn.Module) -> Iterator[Runs]:
    """Count the runs of the model and its copies. During the block, the model's class is a subclass of its own."""
    runs, kind = Runs(), type(model)

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        runs.forwards += 1
        return kind.forward(self, *args, **kwargs)

    def count_call(*_: Any) -> None:
        runs.calls += 1

    model.__class__ = type(kind.__name__, (kind,), {"forward": forward})
    try:
        with model.register_forward_pre_hook(count_call):
            yield runs
    finally:
        model.__class__ = kind
