"""Functions of torch, hooklab or Python itself that an answer replaces: detected, named, and put back.

The whole process uses them, the check included. Only the identities of the entries in the tables of modules and
classes are compared. So nothing is wrapped, and a replacement that was undone in time does not count.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator
from operator import is_
from types import ModuleType
from typing import Any

import torch

from hooklab.course.exercises.frames import whose

_MODULES = (
    "builtins",
    "torch",
    "torch._tensor",
    "torch.autograd",
    "torch.autograd.function",
    "torch.autograd.graph",
    "torch.autograd.grad_mode",
    "torch.nn",
    "torch.nn.functional",
    "torch.nn.init",
    "torch.nn.parameter",
    "torch.optim",
    "torch.testing",
    "torch.utils.hooks",
)
_MISSING = object()
Owner = ModuleType | type


class Patches:
    """What torch and hooklab consist of at this moment, to tell later what was replaced since."""

    def __init__(self) -> None:
        self._before = [(owner, vars(owner).copy()) for owner in _owners()]

    def found(self) -> list[str]:
        """Return the full names of what was replaced since, such as "torch.nn.Linear.forward"."""
        return _names(self._changed())

    def undo(self) -> list[str]:
        """Put everything back; return what `found` would have."""
        changed = list(self._changed())
        names = _names(changed)  # before they are put back
        for owner, name, old in changed:
            if old is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, old)
        return names

    def _changed(self) -> Iterator[tuple[Owner, str, Any]]:
        for owner, before in self._before:
            now = vars(owner)
            if len(now) == len(before) and all(map(is_, now, before)) and all(map(is_, now.values(), before.values())):
                continue  # as nearly always
            inherited = now.keys() - before.keys() if isinstance(owner, type) else ()  # so far
            for name in (*before, *inherited):
                old, new = before.get(name, _MISSING), now.get(name, _MISSING)
                is_behaviour = _is_behaviour(new if old is _MISSING else old)
                if new is not old and is_behaviour and not self._is_torchs_own(name, new):
                    yield owner, name, old

    def _is_torchs_own(self, name: str, new: Any) -> bool:
        """Torch and a kernel replace a few things themselves, such as an optimizer's `step` and `input`."""
        if name in ("Storage", "input"):  # replaced for each new default dtype or cell
            return True
        if name.startswith(("__resume_at_", "__compiled_fn_")):  # the compiler's, gone after torch.compiler.reset()
            return True
        is_old = id(new) in self._ids
        return hasattr(new, "__code__") and whose(new.__code__.co_filename) == "library" and not is_old

    @functools.cached_property
    def _ids(self) -> set[int]:
        return {id(value) for _, before in self._before for value in before.values()}


def _names(changed: Iterable[tuple[Owner, str, Any]]) -> list[str]:
    return list(dict.fromkeys(_full_name(owner, name) for owner, name, _ in changed))


def _is_behaviour(value: Any) -> bool:
    """Whether it can be called, by one way or another: modules and classes keep caches and flags, too."""
    return callable(value) or isinstance(value, staticmethod | classmethod | property)


def _owners() -> list[Owner]:
    """The modules that a learner meets, and the classes in them, each once."""
    modules = [sys.modules[name] for name in _MODULES if name in sys.modules]
    prefixes = ("hooklab", "torch.nn.modules")
    names = sorted(name for name in sys.modules if name.startswith(prefixes))
    modules += [sys.modules[name] for name in names if sys.modules[name] is not None]
    owners: dict[int, Owner] = {id(module): module for module in modules}
    owners[id(torch.Tensor)] = torch.Tensor
    for module in modules:
        for value in list(vars(module).values()):
            if isinstance(value, type) and value.__module__.startswith(("torch.", "hooklab")):
                owners[id(value)] = value
    return list(owners.values())


def _full_name(owner: Owner, name: str) -> str:
    if isinstance(owner, ModuleType):
        return f"{owner.__name__}.{name}"
    module = owner.__module__
    module = "torch.nn" if module.startswith("torch.nn.modules") else module
    module = "torch" if owner is torch.Tensor else module
    return f"{module}.{owner.__qualname__}.{name}"


AT_IMPORT = Patches()
