"""The state of the process that an answer may change, or an earlier cell has changed.

A check runs in the usual state: what was unusual when it began is noted, and is back when it ends. What an answer
leaves changed is put back after each of its calls, and noted. It works by comparing before and after.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def _set_device(device: torch.device) -> None:
    torch.set_default_device(None if device.type == "cpu" else device)


def _has_gradients() -> bool:
    return torch.is_grad_enabled() or torch.is_inference_mode_enabled()  # which is reported alone


def _set_autocast(is_enabled: bool) -> None:
    torch.set_autocast_enabled("cpu", is_enabled)
    torch.clear_autocast_cache()


def _saved_tensors_hooks() -> tuple[Any, ...]:
    """All pairs of hooks, the innermost last. Torch shows the top one only, so all are taken off and put on again."""
    pairs: list[Any] = []
    while (top := torch._C._autograd._top_saved_tensors_default_hooks(True)) is not None:
        pairs.insert(0, top)
        torch._C._autograd._pop_saved_tensors_default_hooks()
    for pair in pairs:
        torch._C._autograd._push_saved_tensors_default_hooks(*pair)
    return tuple(pairs)


def _set_saved_tensors_hooks(pairs: tuple[Any, ...]) -> None:
    for _ in _saved_tensors_hooks():
        torch._C._autograd._pop_saved_tensors_default_hooks()
    for pair in pairs:
        torch._C._autograd._push_saved_tensors_default_hooks(*pair)


def _stance() -> str:
    """The stance of torch.compile; read without importing the compiler."""
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    return str(compiler._stance.stance) if compiler else "default"


class _Filters(list[Any]):
    """The warning filters; those that a library adds for its own categories or modules, when imported, don't count."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Filters) and list(filter(_is_general, self)) == list(filter(_is_general, other))

    def __ne__(self, other: object) -> bool:
        return not self == other


def _is_general(one: Any) -> bool:
    return one[2].__module__ == "builtins" and one[3] is None


def _filters() -> _Filters:
    return _Filters(warnings.filters)


def _set_filters(filters: _Filters) -> None:
    added = [one for one in warnings.filters if one not in filters and not _is_general(one)]
    warnings.resetwarnings()  # it also tells the module that the list has changed
    warnings.filters[:] = [*filters, *added]  # type: ignore[index]


def _set_streams(streams: list[Any]) -> None:
    sys.stdout, sys.stderr = streams


# How each setting is read and written. The default device comes first: the others make tensors.
SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "the default device": (torch.get_default_device, _set_device),
    "inference mode": (torch.is_inference_mode_enabled, bool),  # it is written by guards around a block alone
    "gradient mode": (_has_gradients, torch._C._set_grad_enabled),
    "autocast": (lambda: torch.is_autocast_enabled("cpu"), _set_autocast),
    "the hooks on saved tensors": (_saved_tensors_hooks, _set_saved_tensors_hooks),
    "anomaly detection": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    "the default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "the fast path of attention": (torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
    "the compiler's stance": (_stance, torch.compiler.set_stance),
    "torch's random seed": (torch.initial_seed, torch.manual_seed),
    "the warning filters": (_filters, _set_filters),
    "sys.stdout or sys.stderr": (lambda: [sys.stdout, sys.stderr], _set_streams),
    "Python's trace function": (sys.gettrace, sys.settrace),
}
# What a check runs with, whatever an earlier cell has set, and how a learner gets that back for good.
USUAL: dict[str, tuple[Any, str]] = {
    "the default device": (torch.device("cpu"), "`torch.set_default_device(None)`"),
    "inference mode": (False, "a restart of the kernel, or the guard's `__exit__`"),
    "gradient mode": (True, "`torch.set_grad_enabled(True)`"),
    "autocast": (False, '`torch.set_autocast_enabled("cpu", False)`'),
    "the hooks on saved tensors": ((), "a restart of the kernel, or the block's `__exit__`"),
    "anomaly detection": (False, "`torch.autograd.set_detect_anomaly(False)`"),
    "the default dtype": (torch.float32, "`torch.set_default_dtype(torch.float32)`"),
    "the compiler's stance": ("default", '`torch.compiler.set_stance("default")`'),
}


def _told(value: Any) -> str:
    """A value in words, behind its setting's name; "" for one that no words tell."""
    if isinstance(value, bool | tuple):
        return " on" if value else " off"
    return f" at {value}" if isinstance(value, str | torch.dtype | torch.device) else ""


@contextmanager
def usual_state(notes: list[str]) -> Iterator[None]:
    """Run the block in the usual state, and restore everything afterwards; unusual settings are noted.

    Random states come back without a note: drawing random numbers is nothing to mention.
    """
    earlier, threads = _read_all(), torch.get_num_threads()
    with _inference_mode_put_back(), torch.inference_mode(False):
        _write_all({name: value for name, (value, _) in USUAL.items()})
        for name, (value, way_back) in USUAL.items():
            if earlier[name] != value:
                notes.append(
                    f"before this check {name} was{_told(earlier[name])}, from an earlier cell: "
                    f"your answer was checked with it{_told(value)}; for good: {way_back}"
                )
        torch_rng, numpy_rng, python_rng = torch.get_rng_state(), np.random.get_state(), random.getstate()
        # small tensors: a second thread has nothing to do, and on a busy machine all wait for it
        torch.set_num_threads(1)
        try:
            with put_back(notes):
                yield
        finally:
            torch.set_num_threads(threads)
            torch.set_rng_state(torch_rng)
            np.random.set_state(numpy_rng)
            random.setstate(python_rng)
            _write_all(earlier)


@contextmanager
def put_back(notes: list[str]) -> Iterator[None]:
    """Put back what the block leaves changed, and note it."""
    before = _read_all()
    with _inference_mode_put_back():
        try:
            yield
        finally:
            for name, now in _write_all(before):
                if words := _told(now):
                    notes.append(f"your code left {name}{words}; it is{_told(before[name])} again")
                else:
                    notes.append(f"your code changed {name}; it was put back")


def _read_all() -> dict[str, Any]:
    return {name: read() for name, (read, _) in SETTINGS.items()}


def _write_all(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Give these settings these values; return (name, what it was) for those that were different."""
    changed = []
    for name, value in values.items():
        read, write = SETTINGS[name]
        if (now := read()) != value:
            write(value)
            changed.append((name, now))
    return changed


@contextmanager
def _inference_mode_put_back() -> Iterator[None]:
    """End with the inference mode of the beginning, whichever guards are open: only a guard's end can do that."""
    is_grad_enabled = torch.is_grad_enabled()
    with torch.inference_mode(torch.is_inference_mode_enabled()):
        torch._C._set_grad_enabled(is_grad_enabled)  # a guard sets it, too
        yield
