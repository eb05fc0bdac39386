"""``HookTable``, where hooks are kept, and ``RemovableHandle``, with which one is taken out again."""

import weakref
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import Any

Hook = Callable[..., Any]


class RemovableHandle:
    """What every ``register_...`` call returns: the way to take that one hook out again.

    A handle is also a context manager, which removes the hook at the end of the block, whatever happens inside.

    Example:
        >>> table = HookTable()
        >>> handle = table.add(print)
        >>> len(table)
        1
        >>> handle.remove()
        >>> handle.remove()  # a second time does nothing
        >>> len(table)
        0
    """

    # One counter for all tables: a global hook and a module's own hook never share an id, so that one set of
    # ids can say which hooks have already run, wherever they were registered.
    _ids = count()

    def __init__(self, table: "HookTable") -> None:
        self.id = next(self._ids)
        # Weak: a forgotten handle must not keep a model alive. Nor does dropping the handle remove the hook.
        self._table = weakref.ref(table)

    def remove(self) -> None:
        """Take the hook out. Nothing happens when it is out already, or when its owner is gone."""
        table = self._table()
        if table is not None:
            table.discard(self.id)

    def __enter__(self) -> "RemovableHandle":
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


class HookTable:
    """Hooks of one kind on one owner, in the order in which they will run.

    ``hooks`` maps an id to its function. What was asked for at registration is kept beside it, as sets of ids.

    Example:
        >>> table = HookTable()
        >>> first = table.add(min)
        >>> second = table.add(max, prepend=True)
        >>> [hook.__name__ for _, hook in table.snapshot()]
        ['max', 'min']
    """

    def __init__(self, *, forgets_with_kwargs: bool = True) -> None:
        self.hooks: OrderedDict[int, Hook] = OrderedDict()  # ordered, so that a hook can be moved to the front
        self.with_kwargs: set[int] = set()
        self.always_call: set[int] = set()
        self._forgets_with_kwargs = forgets_with_kwargs

    def add(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Put ``hook`` last, or first with ``prepend``, and return its handle."""
        handle = RemovableHandle(self)
        self.hooks[handle.id] = hook
        if prepend:
            self.hooks.move_to_end(handle.id, last=False)
        if with_kwargs:
            self.with_kwargs.add(handle.id)
        if always_call:
            self.always_call.add(handle.id)
        return handle

    def discard(self, hook_id: int) -> None:
        """Forget the hook and what was asked for it."""
        self.hooks.pop(hook_id, None)
        self.always_call.discard(hook_id)
        if self._forgets_with_kwargs:
            self.with_kwargs.discard(hook_id)

    def snapshot(self) -> list[tuple[int, Hook]]:
        """The hooks as they are now.

        A loop over a snapshot is not disturbed by hooks that register or remove hooks: one removed during the loop
        still runs in it, one registered during the loop runs from the next loop on.
        """
        return list(self.hooks.items())

    def __len__(self) -> int:
        return len(self.hooks)
