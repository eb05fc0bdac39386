"""What capture, edit and timeline have in common: a session.

A session is one run of a ``with`` block. It registers hooks, knows where a pass of the model begins, and leaves
nothing behind, however the block ends.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Protocol

import torch
from torch import nn

from hooklab.eager import never_compile, run_eagerly, stop_running_eagerly

# The number of the backward that this thread is in, or -1. torch.utils.module_tracker asks in the same way; a hook
# asks at every call, so it goes straight to the C function.
backward_number: Callable[[], int] = torch._C._current_graph_task_id


class Handle(Protocol):
    def remove(self) -> None: ...


class Hook:
    """A hook of one session. A copy or a pickle of a hooked model gets an :class:`InertHook` in its place, so that
    the copy neither records nor changes anything."""

    __slots__ = ("session",)

    def __init__(self, session: Any) -> None:
        self.session = session

    def __init_subclass__(cls) -> None:
        never_compile(cls.__call__)

    def __reduce__(self) -> tuple[Any, ...]:
        return InertHook, ()


class InertHook:
    """What a copied model has where the original had a hook of an open session: a hook that does nothing."""

    def __call__(self, *args: Any) -> None:
        return None


class Session:
    """Hooks that live as long as a ``with`` block.

    Subclasses register theirs in :meth:`attach` and hear of each new pass in :meth:`new_pass`. A pass begins when
    ``root`` is called, unless that call comes from inside a pass (a model that calls itself) or from a backward (a
    checkpoint that computes its part again).

    Only the thread that opened the session takes part; what other threads do with the same model is theirs.
    """

    def __init__(self, root: nn.Module) -> None:
        self.root = root
        self.thread = threading.get_ident()
        self.is_open = False
        self.handles: list[Handle] = []

    def attach(self) -> None:
        raise NotImplementedError

    def new_pass(self) -> None:
        raise NotImplementedError

    def open(self) -> None:
        run_eagerly()
        try:
            self.is_open = True
            # first in line, so that what the user's own pre-hooks call counts to the new pass
            self.handles.append(self.root.register_forward_pre_hook(_PassBegins(self), prepend=True))
            self.attach()
        except BaseException:
            self.close()
            self._sweep()
            raise

    def close(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        try:
            remove_all(self.handles)
        finally:
            stop_running_eagerly()

    def is_elsewhere(self) -> bool:
        """True in another thread, and during a backward: what runs there is no part of this session's passes."""
        return threading.get_ident() != self.thread or backward_number() != -1

    def is_foreign(self) -> bool:
        """True in another thread, unless it is one of autograd's own, which run a GPU's part of a backward."""
        if threading.get_ident() == self.thread:
            return False
        return backward_number() == -1 or not isinstance(threading.current_thread(), threading._DummyThread)

    def _sweep(self) -> None:
        # an interrupt can strike after a hook was registered and before its handle was kept
        for module in self.root.modules():
            for table in (module._forward_pre_hooks, module._forward_hooks):
                for key, hook in list(table.items()):
                    if isinstance(hook, Hook) and hook.session is self:
                        del table[key]


class Block:
    """A context manager over sessions: it may be entered many times, also inside itself and in several threads.

    Its blocks in one thread must end in the reverse order of their beginning: an end is that of the block begun last.
    Where generators or asyncio tasks take turns, make an object for each.
    """

    def __init__(self) -> None:
        self._open: list[Session] = []

    def _enter(self, session: Session) -> None:
        self._open.append(session)
        try:
            session.open()
        except BaseException:
            self._open.remove(session)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._open:
            raise RuntimeError(f"this {type(self).__name__.lower()} is not open: begin its block by `with`.")
        mine = [session for session in self._open if session.thread == threading.get_ident()]
        # a generator that holds the block may be closed by another thread than the one that started it
        session = (mine or self._open)[-1]
        try:
            session.close()
        finally:
            self._open.remove(session)


class _PassBegins(Hook):
    def __call__(self, module: nn.Module, args: Any) -> None:
        session: Session = self.session
        if module is session.root and not session.is_elsewhere() and not _is_nested_call(module):
            session.new_pass()


def _is_nested_call(module: nn.Module) -> bool:
    """Whether this call of ``module`` runs inside another one.

    Read from the stack rather than counted: a count goes wrong when an interrupt ends a forward, since then not even
    hooks with ``always_call`` run.
    """
    calls = 0
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and calls < 2:
        if frame.f_code is nn.Module._call_impl.__code__ and frame.f_locals["self"] is module:
            calls += 1
        frame = frame.f_back
    return calls > 1


def remove_all(handles: list[Handle]) -> None:
    """Remove every handle and empty the list; an interrupt is let through only when all are gone."""
    try:
        while handles:
            handles[-1].remove()  # may run twice after an interrupt, which is harmless
            handles.pop()
    except BaseException:
        remove_all(handles)
        raise
