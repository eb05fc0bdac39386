"""What capture, edit and timeline have in common: a session.

A session is one run of a ``with`` block. It registers hooks, knows where a pass of the model begins, and leaves
nothing behind, however the block ends.
"""

from __future__ import annotations

import sys
import threading
from types import FrameType, TracebackType
from typing import Any, ClassVar

import torch
from torch import nn

from hooklab.eager import never_compile, run_eagerly, stop_running_eagerly
from hooklab.placing import Placed
from hooklab.selecting import first_few, named_modules, uncompiled
from hooklab.stale import require_unchanged, steps_to
from hooklab.torch_private import backward_number, call_code, saves_through_hooks


class Hook:
    """A hook of one session. A copy or a pickle of a hooked model gets an :class:`InertHook` in its place, so that
    the copy neither records nor changes anything.

    A hook that was registered with kwargs takes the arguments behind ``args`` as ``*rest``: another thread that is in
    a forward while the block opens or ends may find the hook and not the note that it wants kwargs.
    """

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

    A part of the model may also be called from outside of any call of ``root``: once, it counts to the pass before it;
    the second time, it begins a new one. So passes stay apart where ``root`` is never called, as by a trainer that
    calls ``model.training_step(x)``. To that end a hook says ``if not session.in_pass: session.note_outside_call()``.

    Only the thread that opened the session takes part; what other threads do with the same model is theirs.
    """

    def __init__(self, root: nn.Module) -> None:
        self.root = root
        self.thread = threading.get_ident()
        self.is_open = False
        self.eagerly = False
        self.hooks = Placed()
        self.pass_of_root = False
        # True only in a call of root, or after one that an interrupt ended
        self.in_pass = False
        # by id: the names of all parts, and of those called from outside in this pass; which have a hook for that
        self.parts: dict[int, str] = {}
        self.called_in_pass: dict[int, str] = {}
        self.called_before: set[int] = set()

    def attach(self) -> None:
        raise NotImplementedError

    def new_pass(self) -> None:
        raise NotImplementedError

    def open(self) -> None:
        self.eagerly = run_eagerly()
        try:
            self.is_open = True
            # first in line, so that what the user's own pre-hooks call counts to the new pass
            self.hooks.forward_pre([self.root], _PassBegins(self), prepend=True)
            self.attach()
            self.hooks.forward([self.root], _PassEnds(self), always_call=True)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        try:
            self.hooks.take_out()
        finally:
            if self.eagerly:
                stop_running_eagerly()

    def is_elsewhere(self) -> bool:
        """True in another thread, and during a backward: what runs there is no part of this session's passes."""
        return threading.get_ident() != self.thread or backward_number() != -1

    def is_foreign(self) -> bool:
        """True in another thread, unless it is one of autograd's own, which run a GPU's part of a backward."""
        return is_foreign(self.thread)

    def call_begins(self, module: nn.Module) -> None:
        """Begin a pass if this is a call of ``root``, or of a part that was called from outside in this pass."""
        is_root = module is self.root
        if is_root:
            calls = [call for call in _running_calls() if call is module]
        elif id(module) in self.called_in_pass:
            calls = self._outside_calls()
        else:
            return
        if len(calls) == 1:  # more: it calls itself, or another part calls it
            self.in_pass = self.pass_of_root = is_root
            self.called_in_pass = {}
            self.new_pass()

    def note_outside_call(self) -> None:
        """Find out which part was called from outside, if one was, so that its next call begins a pass."""
        if self.is_elsewhere() or not (calls := self._outside_calls()):
            return
        part = calls[-1]
        self.called_in_pass[id(part)] = self.parts[id(part)]
        if id(part) not in self.called_before:
            self.called_before.add(id(part))
            self.hooks.forward_pre([part], _PassBegins(self), prepend=True)

    def what_was_called(self) -> str:
        """A sentence about what was called in place of ``root``, if this pass is none of ``root``'s."""
        if self.pass_of_root or not self.called_in_pass:
            return ""
        names = list(self.called_in_pass.values())
        return (
            f"{type(self.root).__name__} itself was not called, but {first_few(names)}: a pass lasts until the same "
            f"part is called again. To choose the passes, give a part as the model: model.get_submodule({names[0]!r})."
        )

    def _outside_calls(self) -> list[nn.Module]:
        """The calls of parts that this code runs inside of, the innermost first; none inside a call of ``root``."""
        self.parts = self.parts or {id(module): name for name, module in named_modules(self.root)}
        calls = [call for call in _running_calls() if id(call) in self.parts]
        return [] if any(call is self.root for call in calls) else calls


class Block:
    """A context manager over sessions: it may be entered many times, also inside itself and in several threads.

    It found its modules when it was made; should one of their names mean another module by now, entering raises.

    Its blocks in one thread must end in the reverse order of their beginning: an end is that of the block begun last.
    Where generators or asyncio tasks take turns, make an object for each.
    """

    tool: ClassVar[str]  # the function that makes it, as messages name it

    def __init__(self, model: nn.Module, modules: dict[str, nn.Module]) -> None:
        self.model = uncompiled(model)
        self.modules = modules
        self.steps = steps_to(self.model, modules)
        self._open: list[Session] = []

    def _enter(self, session: Session) -> None:
        require_unchanged(self.steps, self.tool)
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
            raise RuntimeError(f"this {self.tool} is not open: begin its block by `with`.")
        mine = [session for session in self._open if session.thread == threading.get_ident()]
        # a generator that holds the block may be closed by another thread than the one that started it
        session = (mine or self._open)[-1]
        try:
            session.close()
        finally:
            self._open.remove(session)
        if kind is None:
            self._over(session)

    def _over(self, session: Session) -> None:
        """A block has ended without an error; the place for a last word."""


class _PassBegins(Hook):
    def __call__(self, module: nn.Module, args: Any) -> None:
        session: Session = self.session
        if not session.is_elsewhere():
            session.call_begins(module)


class _PassEnds(Hook):
    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        if threading.get_ident() == self.session.thread:
            self.session.in_pass = False


def _running_calls() -> list[nn.Module]:
    """The modules that this code runs inside a call of, the innermost first.

    Read from the stack rather than counted: a count goes wrong when an interrupt ends a forward, since then not even
    hooks with ``always_call`` run.
    """
    calls = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is call_code:
            calls.append(frame.f_locals["self"])
        frame = frame.f_back
    return calls


def will_run_again() -> bool:
    """Whether this code runs inside a checkpoint, whose part the backward will compute again.

    A checkpoint keeps what is saved by hooks of its own or, the reentrant kind, runs without gradients: where neither
    is so, the stack need not be searched for it.
    """
    if torch.is_grad_enabled() and not saves_through_hooks():
        return False
    checkpoint = sys.modules.get("torch.utils.checkpoint")
    if checkpoint is None:
        return False
    file, reentrant = checkpoint.__file__, checkpoint.CheckpointFunction.forward.__code__
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    if frame is None:
        return False
    return any(frame.f_locals["ctx"].needs_input_grad) if frame.f_code is reentrant else torch.is_grad_enabled()


def is_foreign(thread: int) -> bool:
    """Whether this code runs in another thread than that one, and not in one of autograd's own for it."""
    if threading.get_ident() == thread:
        return False
    return backward_number() == -1 or not isinstance(threading.current_thread(), threading._DummyThread)
