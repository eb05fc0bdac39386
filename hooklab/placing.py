"""Placing the hooks of a block in the modules' tables, and taking all of them out again: :class:`Placed`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol
from weakref import ReferenceType

from torch import nn
from torch.utils.hooks import RemovableHandle

from hooklab.selecting import all_modules
from hooklab.torch_private import has_hook_tables


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
        # module and key, the name of the table and the table itself, and the names of those of the hook's options
        self._placed: list[tuple[nn.Module, int, str, dict[int, Any], list[str]]] = []
        self._asked: list[tuple[nn.Module, Any]] = []  # module and hook

    def forward(self, modules: Iterable[nn.Module], hook: Any, **options: bool) -> None:
        """As ``register_forward_hook``, with the same options, on each of the modules."""
        self._place(modules, hook, nn.Module.register_forward_hook, "_forward_hooks", options)

    def forward_pre(self, modules: Iterable[nn.Module], hook: Any, **options: bool) -> None:
        """As ``register_forward_pre_hook``, with the same options, on each of the modules."""
        self._place(modules, hook, nn.Module.register_forward_pre_hook, "_forward_pre_hooks", options)

    def take_out(self) -> None:
        """Take all of them out; an interrupt is let through only when all are gone."""
        try:
            for module, key, name, table, notes in self._placed:
                table.pop(key, None)
                # the model may have put another table in its place since, with the same hooks in it
                if (now := getattr(module, name)) is not table:
                    now.pop(key, None)
                for note in notes:
                    getattr(module, note).pop(key, None)
            self._placed.clear()
            if self.handles:
                remove_all(self.handles)
            for asked, hook in self._asked:
                _sweep(asked, hook)
            self._asked.clear()
        except BaseException:
            self.take_out()  # what is out already is taken out twice, which is harmless
            raise

    def _place(
        self, modules: Iterable[nn.Module], hook: Any, register: Any, name: str, options: dict[str, bool]
    ) -> None:
        key = _new_key()
        notes = [_NOTED_IN[name, option] for option, on in options.items() if on and option != "prepend"]
        for module in modules:
            if not has_hook_tables or getattr(type(module), register.__name__) is not register:
                self._asked.append((module, hook))
                self.handles.append(getattr(module, register.__name__)(hook, **options))
                continue
            table = getattr(module, name)
            self._placed.append((module, key, name, table, notes))
            # the notes first: another thread that finds the hook must find out how to call it
            for note in notes:
                getattr(module, note)[key] = True
            table[key] = hook
            if options.get("prepend"):
                table.move_to_end(key, last=False)


# the table of an option, by the hook's table and the option
_NOTED_IN = {
    ("_forward_hooks", "with_kwargs"): "_forward_hooks_with_kwargs",
    ("_forward_hooks", "always_call"): "_forward_hooks_always_called",
    ("_forward_pre_hooks", "with_kwargs"): "_forward_pre_hooks_with_kwargs",
}


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
