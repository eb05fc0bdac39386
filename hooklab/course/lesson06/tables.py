"""Tables for hooks and the ways to register, whatever the reader's own handles do."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import Any

from torch.utils.hooks import RemovableHandle


class Registers:
    """The ways to register a hook, for a class that has the tables."""

    pre_hooks: OrderedDict[int, Any]
    forward_hooks: OrderedDict[int, Any]
    backward_hooks: OrderedDict[int, Any]
    always_called: set[int]

    def register_forward_pre_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        return _put(self, self.pre_hooks, hook, prepend)

    def register_forward_hook(self, hook: Any, prepend: bool = False, always_call: bool = False) -> RemovableHandle:
        handle = _put(self, self.forward_hooks, hook, prepend)
        if always_call:
            self.always_called.add(handle.id)
        return handle

    def register_full_backward_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        return _put(self, self.backward_hooks, hook, prepend)


class ReadyTables(Registers):
    """The tables as well; `__call__` is yours to write."""

    def __init__(self) -> None:
        self.pre_hooks, self.forward_hooks, self.backward_hooks = OrderedDict(), OrderedDict(), OrderedDict()
        self.always_called = set()


def _put(module: Registers, table: OrderedDict[int, Any], hook: Any, prepend: bool) -> RemovableHandle:
    handle = RemovableHandle(table)
    handle.id = next(vars(module).setdefault("_ids", itertools.count()))  # small: the same in every run
    table[handle.id] = hook
    if prepend:
        table.move_to_end(handle.id, last=False)
    return handle
