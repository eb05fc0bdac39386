"""Scaffolding of lesson 10 that is not its subject."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from torch import Tensor

SECONDS = 120


def numbers(grads: Iterable[Tensor | None]) -> tuple[float | None, ...]:
    """Return gradients of one number each as plain numbers, and None for None."""
    return tuple(None if grad is None else grad.item() for grad in grads)


def ends_well(program: str) -> bool:
    """Run a Python program in its own process; return whether it ended without an error."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=SECONDS).returncode == 0


def first_nan(loss: Tensor) -> str | None:
    """Run loss.backward(); return the name of the first node that returns a NaN: used while exercise 10.1 is open."""
    names: list[str] = []
    nodes: dict[Any, None] = {}
    waiting: list[Any] = [loss.grad_fn]

    def watch(node: Any) -> Any:
        def hook(grad_inputs: Iterable[Tensor | None], grad_outputs: object) -> None:
            if any(grad is not None and grad.isnan().any() for grad in grad_inputs):
                names.append(node.name())

        return node.register_hook(hook)

    while waiting:
        node = waiting.pop()
        if node is not None and node not in nodes:
            nodes[node] = None
            waiting += [following for following, _ in node.next_functions]
    handles = [watch(node) for node in nodes]
    try:
        loss.backward()
    finally:
        for handle in handles:
            handle.remove()
    return names[0] if names else None
