"""Placing the hooks of a block in the modules' tables, and taking all of them out again: :class:`Placed`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol
from weakref import ReferenceType

from torch import nn
from torch.utils.hooks import RemovableHandle

from hooklab.selecting import all_modules
from hooklab.torch_private import HOOK_TABLES, has_hook_tables


class Handle(Protocol):
    hooks_dict_ref: ReferenceType[Any]

    def remove(self) -> None: ...


class Placed:
    """The hooks of one block.

    It does what ``register_forward_hook`` does, without a handle for each hook, since to make and remove one takes
    longer than to call a hook. A module that registers in a way of its own is asked to. Each hook is written down
    before it is placed, so that an interrupt leaves none behind.

    Attributes:
        handles: of hooks that were registered in another way, as on tensors; they are removed as well.
    """

    __slots__ = ("_asked", "_placed", "handles")

    def __init__(self) -> None:
        self.handles: list[Handle] = []
        self._placed: list[tuple[Any, int, dict[int, Any]]] = []  # module, key, and the table that it was put into
        self._asked: list[tuple[nn.Module, Any]] = []  # module and hook

    def forward(
        self, modules: Iterable[nn.Module], hook: Any, *, with_kwargs: bool = False, always_call: bool = False
    ) -> None:
        key = _new_key()
        usual = nn.Module.register_forward_hook if has_hook_tables else None
        module: Any
        for module in modules:
            if type(module).register_forward_hook is not usual:
                self._asked.append((module, hook))
                self.handles.append(
                    module.register_forward_hook(hook, with_kwargs=with_kwargs, always_call=always_call)
                )
                continue
            table = module._forward_hooks
            self._placed.append((module, key, table))
            # the options first: another thread that finds the hook must find out how to call it
            if with_kwargs:
                module._forward_hooks_with_kwargs[key] = True
            if always_call:
                module._forward_hooks_always_called[key] = True
            table[key] = hook

    def forward_pre(
        self, modules: Iterable[nn.Module], hook: Any, *, with_kwargs: bool = False, first: bool = False
    ) -> None:
        key = _new_key()
        usual = nn.Module.register_forward_pre_hook if has_hook_tables else None
        module: Any
        for module in modules:
            if type(module).register_forward_pre_hook is not usual:
                self._asked.append((module, hook))
                self.handles.append(module.register_forward_pre_hook(hook, prepend=first, with_kwargs=with_kwargs))
                continue
            table = module._forward_pre_hooks
            self._placed.append((module, key, table))
            if with_kwargs:
                module._forward_pre_hooks_with_kwargs[key] = True
            table[key] = hook
            if first:
                table.move_to_end(key, last=False)

    def take_out(self) -> None:
        """Take all of them out; an interrupt is let through only when all are gone."""
        try:
            for module, key, table in self._placed:
                table.pop(key, None)
                # the model may have put other tables in their place since, with the same hooks in them
                for name in HOOK_TABLES:
                    getattr(module, name).pop(key, None)
            self._placed.clear()
            remove_all(self.handles)
            for asked, hook in self._asked:
                _sweep(asked, hook)
            self._asked.clear()
        except BaseException:
            self.take_out()  # what is out already is taken out twice, which is harmless
            raise


def _new_key() -> int:
    """A key that no hook has: torch numbers its handles."""
    key = RemovableHandle.next_id
    RemovableHandle.next_id = key + 1
    return key


def _sweep(module: nn.Module, hook: Any) -> None:
    """Take out a hook whose handle was not kept, or does not know where it is by now."""
    for _, part in all_modules(module):
        for table in (part._forward_pre_hooks, part._forward_hooks):
            for key in [key for key, value in table.items() if value is hook]:
                del table[key]


def remove_all(handles: list[Handle]) -> None:
    """Remove every handle and empty the list; an interrupt is let through only when all are gone."""
    try:
        for handle in reversed(handles):
            handle.remove()
        handles.clear()
    except BaseException:
        remove_all(handles)  # what is removed already is removed twice, which is harmless
        raise
