"""The settings of the process that an answer may change, and how each is read and written."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

ANY = object()


class Setting(NamedTuple):
    name: str
    read: Callable[[], Any]
    write: Callable[[Any], Any]
    usual: Any = ANY  # the value that a check runs with; ANY: whatever it is
    way_back: str = ""  # how a learner gets it back for good
    words: Callable[[Any], str] | None = None  # how a value is reported; None: not at all

    def told(self, value: Any) -> str:
        return "" if self.words is None else f" {self.words(value)}"


def _on(value: Any) -> str:
    return "on" if value else "off"


def _at(value: Any) -> str:
    return f"at {value}"


def _saved_tensors_hooks() -> tuple[Any, ...]:
    """All pairs of hooks, the innermost last: torch shows only the top one."""
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is None:
        return ()
    pairs = _pop_saved_tensors_hooks()
    _push_saved_tensors_hooks(pairs)
    return pairs


def _pop_saved_tensors_hooks() -> tuple[Any, ...]:
    pairs: list[Any] = []
    while (top := torch._C._autograd._top_saved_tensors_default_hooks(True)) is not None:
        pairs.insert(0, top)
        torch._C._autograd._pop_saved_tensors_default_hooks()
    return tuple(pairs)


def _push_saved_tensors_hooks(pairs: tuple[Any, ...]) -> None:
    _pop_saved_tensors_hooks()
    for pack, unpack in pairs:
        torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)


def _set_autocast(is_enabled: bool) -> None:
    torch.set_autocast_enabled("cpu", is_enabled)
    torch.clear_autocast_cache()


class _WarningFilters:
    """The warning filters, and the functions that show a warning.

    Libraries add filters for their own categories or modules when they are imported: these stay, and do not count.
    """

    def __init__(self) -> None:
        self.all = list(warnings.filters)
        self.show = (warnings.showwarning, getattr(warnings, "_showwarnmsg_impl", None))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _WarningFilters) and (self._general(), self.show) == (other._general(), other.show)

    def write(self) -> None:
        added = [one for one in warnings.filters if one not in self.all and not _is_general(one)]
        warnings.resetwarnings()  # it also tells the module that the list has changed
        warnings.filters[:] = [*self.all, *added]  # type: ignore[index]
        warnings.showwarning, warnings._showwarnmsg_impl = self.show  # type: ignore[attr-defined]

    def _general(self) -> list[Any]:
        return [one for one in self.all if _is_general(one)]


def _is_general(one: Any) -> bool:
    _, _, category, module, _ = one
    return category.__module__ == "builtins" and module is None


class _Seed:
    """The seed of torch's random numbers. Drawing more of them does not count as a change."""

    def __init__(self) -> None:
        self.seed, self.state = torch.initial_seed(), torch.get_rng_state()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Seed) and self.seed == other.seed

    def write(self) -> None:
        torch.set_rng_state(self.state)


_COMPILES = ("default", False, None)


def _stance() -> tuple[Any, ...]:
    """The stance of torch.compile; read without importing the compiler."""
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    now = compiler and compiler._stance
    return (now.stance, now.skip_guard_eval_unsafe, now.backend) if now else _COMPILES


def _set_stance(value: tuple[Any, ...]) -> None:
    stance, skips_guards, backend = value
    torch.compiler.set_stance(stance, skip_guard_eval_unsafe=skips_guards, force_backend=backend)


def _streams() -> tuple[Any, ...]:
    return sys.stdin, sys.stdout, sys.stderr


def _set_streams(streams: tuple[Any, ...]) -> None:
    sys.stdin, sys.stdout, sys.stderr = streams


def _set_device(device: torch.device) -> None:
    torch.set_default_device(None if device.type == "cpu" else device)


# The default device comes first: the others make tensors.
SETTINGS: list[Setting] = [
    Setting(
        "the default device",
        torch.get_default_device,
        _set_device,
        torch.device("cpu"),
        "`torch.set_default_device(None)`",
        _at,
    ),
    Setting(
        "inference mode",
        torch.is_inference_mode_enabled,
        lambda value: None,  # the guards around a block do it
        False,
        "a restart of the kernel, or the guard's `__exit__`",
        _on,
    ),
    Setting(
        "gradient mode",  # inference mode switches it off, and then is reported alone
        lambda: torch.is_grad_enabled() or torch.is_inference_mode_enabled(),
        torch._C._set_grad_enabled,
        True,
        "`torch.set_grad_enabled(True)`",
        _on,
    ),
    Setting(
        "autocast",
        lambda: torch.is_autocast_enabled("cpu"),
        _set_autocast,
        False,
        '`torch.set_autocast_enabled("cpu", False)`',
        _on,
    ),
    Setting("the hooks on saved tensors", _saved_tensors_hooks, _push_saved_tensors_hooks, (), words=_on),
    Setting(
        "anomaly detection",
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda value: torch.autograd.set_detect_anomaly(*value),
        (False, True),
        "`torch.autograd.set_detect_anomaly(False)`",
        lambda value: _on(value[0]),
    ),
    Setting(
        "the default dtype",
        torch.get_default_dtype,
        torch.set_default_dtype,
        torch.float32,
        "`torch.set_default_dtype(torch.float32)`",
        _at,
    ),
    Setting("torch's number of threads", torch.get_num_threads, torch.set_num_threads, words=_at),
    Setting(
        "the fast path of attention",
        torch.backends.mha.get_fastpath_enabled,
        torch.backends.mha.set_fastpath_enabled,
        words=_on,
    ),
    Setting(
        "the compiler's stance",
        _stance,
        _set_stance,
        _COMPILES,
        '`torch.compiler.set_stance("default")`',
        lambda value: f"at {value[0]}",
    ),
    Setting("torch's random seed", _Seed, _Seed.write),
    Setting("the warning filters", _WarningFilters, _WarningFilters.write),
    Setting("sys.stdin, sys.stdout or sys.stderr", _streams, _set_streams),
    Setting("Python's trace function", sys.gettrace, sys.settrace),
]
