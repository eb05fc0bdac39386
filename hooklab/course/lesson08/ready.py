"""What the page runs while exercise 8.1 or 8.2 is open."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from torch import Tensor, nn

from hooklab.course.lesson08.clinic import Training


def first_nonfinite(model: nn.Module, x: Tensor) -> tuple[str, float] | None:
    """Return the module that made the first inf or nan, and the largest magnitude among its inputs."""
    found: list[tuple[str, float]] = []

    def watch(name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
            if not output.isfinite().all() and all(one.isfinite().all() for one in args):
                found.append((name, max(one.abs().max().item() for one in args)))

        return hook

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            hooks.enter_context(module.register_forward_hook(watch(name)))
        model(x)
    return found[0] if found else None


def treat_a(training: Training) -> tuple[str, str]:
    """Take a hundredth of the learning rate; return a dead module and its diagnosis."""
    for group in training.optimizer.param_groups:
        group["lr"] /= 100
    return "act3", "dead"
