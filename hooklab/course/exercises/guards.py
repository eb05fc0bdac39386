"""Guards: hooks that an answer leaves behind, and the global state that it changes.

Both work by comparing before and after, on private hook tables of torch 2.13; nothing is patched.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules import module as torch_module

from hooklab.leftover import GLOBAL_TABLES, MODULE_TABLES, TENSOR_TABLES

# Hooks that watch how modules are built, which `hooklab.leftover_hooks` leaves out.
_REGISTRATION_TABLES = {
    f"{what}_registration_hook": f"_global_{what}_registration_hooks" for what in ("buffer", "module", "parameter")
}

# One hook table: where it is, in words, and the table itself.
Table = tuple[str, MutableMapping[int, Any]]


def snapshot_hooks(objects: Sequence[Any]) -> set[tuple[str, int]]:
    """Return (place, hook id) of every hook on these tensors and modules, and of the global ones."""
    return {(place, key) for place, table in _tables(objects) for key in table}


def remove_new_hooks(objects: Sequence[Any], before: set[tuple[str, int]]) -> list[str]:
    """Remove every hook that `before` does not know; describe each, as in "forward hook `grab` on module '0'"."""
    found = []
    for place, table in _tables(objects):
        for key in [key for key in table if (place, key) not in before]:
            hook = table.pop(key)
            found.append(place.replace("hook on", f"hook `{_name(hook)}` on", 1))
    return found


def _tables(objects: Sequence[Any]) -> list[Table]:
    everywhere = GLOBAL_TABLES | _REGISTRATION_TABLES
    tables = [
        (f"global {_words(kind)} on all modules", getattr(torch_module, name)) for kind, name in everywhere.items()
    ]
    for number, one in enumerate(_flat(objects)):
        if isinstance(one, torch.Tensor):
            tables += _tensor_tables(one, f"tensor argument {number + 1}")
        elif isinstance(one, nn.Module):
            for name, module in one.named_modules():
                where = f"module {name!r}" if name else f"the whole {type(one).__name__}"
                tables += [(f"{_words(kind)} on {where}", getattr(module, at)) for kind, at in MODULE_TABLES.items()]
            for name, parameter in one.named_parameters():
                tables += _tensor_tables(parameter, f"parameter {name!r}")
    return tables


def _tensor_tables(tensor: torch.Tensor, where: str) -> list[Table]:
    found = ((kind, getattr(tensor, name, None)) for kind, name in TENSOR_TABLES.items())
    return [(f"{_words(kind)} on {where}", table) for kind, table in found if table is not None]


def _words(kind: str) -> str:
    return kind.replace("pre_hook", "pre-hook").replace("_", " ")


def _flat(objects: Sequence[Any]) -> Iterator[Any]:
    for one in objects:
        if isinstance(one, list | tuple):
            yield from _flat(one)
        elif isinstance(one, dict):
            yield from _flat(list(one.values()))
        else:
            yield one


def _name(hook: Any) -> str:
    return getattr(hook, "__name__", None) or type(hook).__name__


@contextmanager
def global_state_restored(notes: list[str]) -> Iterator[None]:
    """Put back grad mode, random states, default dtype and thread count; note each that had been changed.

    Random states come back without a note: drawing random numbers is nothing to mention.
    """
    grad, dtype, threads = torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads()
    anomaly = torch.is_anomaly_enabled()
    deterministic = torch.are_deterministic_algorithms_enabled()
    torch_rng, numpy_rng, python_rng = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(torch_rng)
        np.random.set_state(numpy_rng)
        random.setstate(python_rng)
        if torch.is_grad_enabled() != grad:
            torch.set_grad_enabled(grad)
            notes.append(f"your code switched gradient mode {'off' if grad else 'on'}; it was switched back")
        if torch.get_default_dtype() != dtype:
            notes.append(f"your code set the default dtype to {torch.get_default_dtype()}; it is {dtype} again")
            torch.set_default_dtype(dtype)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
            notes.append("your code changed torch's number of threads; it was set back")
        if torch.is_anomaly_enabled() != anomaly:
            torch.autograd.set_detect_anomaly(anomaly)
            notes.append("your code changed anomaly detection; it was set back")
        if torch.are_deterministic_algorithms_enabled() != deterministic:
            torch.use_deterministic_algorithms(deterministic)
            notes.append("your code changed torch's deterministic mode; it was set back")
