"""Scaffolding of lesson 10 that is not its subject."""

from __future__ import annotations

import os
from collections.abc import Iterable

from torch import Tensor

from hooklab.course.processes import begin

SECONDS = 120


def numbers(grads: Iterable[Tensor | None]) -> tuple[float | None, ...]:
    """Return gradients of one number each as plain numbers, and None for None."""
    return tuple(None if grad is None else grad.item() for grad in grads)


def ends_well(program: str) -> bool:
    """Run a Python program in a process of its own; return whether it came to its end."""
    process = begin(_run, program)
    try:
        process.join(SECONDS)
        return bool(process.exitcode == 0)
    finally:
        process.kill()


def _run(program: str) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    exec(program, {})
