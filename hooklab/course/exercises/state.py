"""The state of the process that an answer may change, or an earlier cell has changed; `settings` says what it is.

A check runs in the usual state: what was unusual when it began is noted, and is back when it ends. What an answer
leaves changed is put back after each of its calls, and noted. It works by comparing before and after.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from hooklab.course.exercises.settings import ANY, SETTINGS


@contextmanager
def usual_state(notes: list[str]) -> Iterator[None]:
    """Run the block in the usual state, and restore everything afterwards; unusual settings are noted.

    Random states come back without a note: drawing random numbers is nothing to mention.
    """
    earlier = _read_all()
    with _inference_mode_put_back(), torch.inference_mode(False):
        for setting, value in zip(SETTINGS, earlier, strict=True):
            if setting.usual is not ANY and value != setting.usual:
                setting.write(setting.usual)
                way_back = f"; for good: {setting.way_back}" if setting.way_back else ""
                was, usual = setting.told(value) or " unusual", setting.told(setting.usual) or " as usual"
                notes.append(
                    f"before this check {setting.name} was{was}, from an earlier cell: "
                    f"your answer was checked with it{usual}{way_back}"
                )
        torch_rng, numpy_rng, python_rng = torch.get_rng_state(), np.random.get_state(), random.getstate()
        # small tensors: a second thread has nothing to do, and on a busy machine all wait for it
        torch.set_num_threads(1)
        try:
            with put_back(notes):
                yield
        finally:
            torch.set_rng_state(torch_rng)
            np.random.set_state(numpy_rng)
            random.setstate(python_rng)
            for setting, value in zip(SETTINGS, earlier, strict=True):
                if setting.read() != value:
                    setting.write(value)


@contextmanager
def put_back(notes: list[str]) -> Iterator[None]:
    """Put back what the block leaves changed, and note it."""
    before = _read_all()
    with _inference_mode_put_back():
        try:
            yield
        finally:
            for setting, value in zip(SETTINGS, before, strict=True):
                now = setting.read()
                if now != value:
                    setting.write(value)
                    left = f"left {setting.name}{setting.told(now)}" if setting.words else f"changed {setting.name}"
                    again = f"it is{setting.told(value)} again" if setting.words else "it was put back"
                    notes.append(f"your code {left}; {again}")


def _read_all() -> list[Any]:
    return [setting.read() for setting in SETTINGS]


@contextmanager
def _inference_mode_put_back() -> Iterator[None]:
    """End with the inference mode of the beginning, whichever guards are open: only a guard's end can do that."""
    is_grad_enabled = torch.is_grad_enabled()
    with torch.inference_mode(torch.is_inference_mode_enabled()):
        torch._C._set_grad_enabled(is_grad_enabled)  # a guard sets it, too
        yield
