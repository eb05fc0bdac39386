"""What the tools share: a :class:`Session`, one run of a ``with`` block, and a :class:`Block`, which makes them.

A session registers hooks with torch's own methods and removes them when the block ends, however it ends. A
:class:`PassSession` also knows where a pass of the model begins.
"""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from hooklab._shared.eager import run_eagerly, stop_running_eagerly
from hooklab._shared.stale import require_unchanged, steps_to
from hooklab._shared.torch_private import backward_number, call_code, saves_through_hooks, skip_when_compiling
from hooklab.selecting import each_once, first_few, named_modules, uncompiled

Handle: TypeAlias = Any  # of torch: it has a method remove


class Hook:
    """A hook on one module: it calls a function with what torch gives it.

    A shallow copy of a module, such as a replica of DataParallel, shares its hooks, so the function is called for that
    one module only. Nor is it called without the arguments that it expects: another thread that is inside a forward
    pass while the block begins or ends may find the hook, but not torch's note that it wants kwargs.

    A copy of a hooked model gets a function that does nothing instead, which the block removes from the copy when it
    ends. A pickle gets one as well, and keeps it; it is Python's, and loads where hooklab is not installed.
    """

    __slots__ = ("expected", "function", "handle", "module", "session")

    handle: Handle

    def __init__(self, module: nn.Module, function: Callable[..., Any], session: Session, expected: int) -> None:
        self.module = module
        self.function = function
        self.session = session
        self.expected = expected  # so many arguments besides the module and its args

    def __call__(self, module: nn.Module, args: Any, *rest: Any) -> Any:
        if module is self.module and len(rest) == self.expected:
            return self.function(module, args, *rest)
        return None

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        # a copy of torch's handle belongs to the copied table of hooks; those of tables that are gone are forgotten
        handles = self.session.handles
        handles[:] = [handle for handle in handles if not is_dead(handle)]
        handles.append(copy.deepcopy(self.handle, memo))
        return nullcontext().__exit__

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")


class OutputHook(Hook):
    """A forward hook without kwargs, which gets all its arguments: the case that must be fast."""

    __slots__ = ()

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        if module is self.module:
            return self.function(module, args, output)
        self.session.a_copy_was_called()
        return None


for _hook in (Hook, OutputHook):
    # it matters when a process compiles for the first time while a block is open, see run_eagerly
    skip_when_compiling(_hook.__call__, "a hooklab block is open; compile or export before opening it")


def is_dead(handle: Handle) -> bool:
    """Whether the object that this handle's hook was registered on is gone; False for a handle of another's making."""
    return isinstance(handle, RemovableHandle) and handle.hooks_dict_ref() is None


def remove_all(handles: list[Any]) -> None:
    """Remove every handle and empty the list. What is raised on the way, an interrupt for instance, is raised last."""
    try:
        while handles:
            handles[-1].remove()
            handles.pop()
    except BaseException as error:
        if isinstance(error, Exception):  # an interrupted handle stays in the list: removing it twice is harmless
            handles.pop()
        remove_all(handles)
        raise


def hook_gradient(tensor: Tensor, hook: Callable[[Tensor | None], None]) -> Handle | None:
    """Register a tensor hook; None for a tensor that requires no gradient, or refuses hooks.

    No gradient comes to a tensor made in inference mode. A tensor of an odd subclass may raise whatever it likes: that
    must not reach the user's forward pass.
    """
    try:
        if not tensor.requires_grad or tensor.is_inference():
            return None
        _ = tensor.grad_fn  # brings a view's history up to date; without it, register_hook can crash the process
        handle: Handle = tensor.register_hook(hook)
        return handle
    except Exception:
        return None


class Session:
    """Hooks that live as long as a ``with`` block. Only the thread that opened the session takes part.

    Subclasses register theirs in :meth:`attach`, with :meth:`before` and :meth:`after`.
    """

    def __init__(self) -> None:
        self.thread: int | None = threading.get_ident()
        self.is_open = False
        self.eagerly = False
        self.handles: list[Handle] = []

    def attach(self) -> None:
        raise NotImplementedError

    def a_copy_was_called(self) -> None:
        """Called when a shallow copy of a module with an :class:`OutputHook` has run."""

    def before(
        self, module: nn.Module, function: Callable[..., Any], *, with_kwargs: bool = False, prepend: bool = False
    ) -> None:
        """Register a forward pre-hook, and keep its handle.

        The method is ``nn.Module``'s, not that of the module's class, which may register the hook on another module or
        forget to return the handle.
        """
        # no **options: Python 3.11 lets an interrupt in between such a call and the append
        hook = Hook(module, function, self, int(with_kwargs))
        register: Callable[..., Handle] = nn.Module.register_forward_pre_hook
        hook.handle = register(module, hook, with_kwargs=with_kwargs, prepend=prepend)
        self.handles.append(hook.handle)

    def after(
        self, module: nn.Module, function: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
    ) -> None:
        """The same with a forward hook."""
        hook = (Hook if with_kwargs else OutputHook)(module, function, self, 2)
        register: Callable[..., Handle] = nn.Module.register_forward_hook
        hook.handle = register(module, hook, with_kwargs=with_kwargs, always_call=always_call)
        self.handles.append(hook.handle)

    def open(self, *, eagerly: bool = True) -> None:
        """Register the hooks; compiled functions run eagerly until the session is closed, unless that is not needed."""
        try:
            self.is_open = True
            self.eagerly = eagerly and run_eagerly()
            self.attach()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the hooks. A hook that cannot be removed does nothing from now on, as in any foreign thread."""
        try:
            self.is_open = False
            self.thread = None
            remove_all(self.handles)
        finally:
            if self.eagerly:
                self.eagerly = False
                stop_running_eagerly()

    def is_elsewhere(self) -> bool:
        """True in another thread, and during a backward pass, where nothing counts to this session's passes."""
        return threading.get_ident() != self.thread or backward_number() != -1

    def is_foreign(self) -> bool:
        """True in another thread, except for autograd's own threads, which run a GPU's part of a backward pass."""
        if threading.get_ident() == self.thread:
            return False
        is_autograds = backward_number() != -1 and isinstance(threading.current_thread(), threading._DummyThread)
        return self.thread is None or not is_autograds


class PassSession(Session):
    """A session that is divided into passes; :meth:`new_pass` is called at the beginning of each.

    A pass begins when ``root`` is called, unless that call comes from inside a pass (a model that calls itself) or from
    a backward pass (a checkpoint that recomputes its part). A part of the model that is called from outside any call of
    ``root`` counts to the previous pass, and its second call begins a new one: so passes stay apart where ``root`` is
    never called. For this a hook calls ``session.note_outside_call()`` if ``session.in_pass`` is False.
    """

    def __init__(self, root: nn.Module) -> None:
        super().__init__()
        self.root = root
        self.pass_of_root = False
        # True only in a call of root, or after one that an interrupt ended
        self.in_pass = False
        # by id: the names of all parts, and of those called from outside in this pass; which have a hook for that
        self.parts: dict[int, str] = {}
        self.called_in_pass: dict[int, str] = {}
        self.called_before: set[int] = set()

    def attach(self) -> None:
        self.before(self.root, self.call_begins)
        self.attach_inside()
        # with kwargs, since an OutputHook would tell of the calls of copies
        self.after(self.root, self.call_ends, with_kwargs=True, always_call=True)

    def attach_inside(self) -> None:
        """Register the hooks that run after a pass has begun, and before it has ended."""
        raise NotImplementedError

    def new_pass(self) -> None:
        """Called at the beginning of each pass."""

    def call_begins(self, module: nn.Module, args: Any) -> None:
        """Begin a pass if this is a call of ``root``, or of a part that was called from outside in this pass."""
        if self.is_elsewhere():
            return
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

    def call_ends(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if threading.get_ident() == self.thread:
            self.in_pass = False

    def note_outside_call(self) -> None:
        """Find the part that was called from outside, if there is one, so that its next call begins a pass."""
        if self.is_elsewhere() or not (calls := self._outside_calls()):
            return
        part = calls[-1]
        self.called_in_pass[id(part)] = self.parts[id(part)]
        if id(part) not in self.called_before:
            self.called_before.add(id(part))
            self.before(part, self.call_begins, prepend=True)  # before the hooks that are waiting

    def what_was_called(self) -> str:
        """A sentence about the parts that were called instead of ``root``; "" if this is a pass of ``root``."""
        if self.pass_of_root or not self.called_in_pass:
            return ""
        names = list(self.called_in_pass.values())
        return (
            f"{type(self.root).__name__} itself was not called, but {first_few(names)}: a pass lasts until the same "
            f"part is called again. To choose the passes, give a part as the model: model.get_submodule({names[0]!r})."
        )

    def _outside_calls(self) -> list[nn.Module]:
        """The running calls of parts, the innermost first; none inside a call of ``root``."""
        self.parts = self.parts or {id(module): name for name, module in named_modules(self.root)}
        calls = [call for call in _running_calls() if id(call) in self.parts]
        return [] if any(call is self.root for call in calls) else calls


@dataclass(eq=False, repr=False)
class Block:
    """A context manager over sessions: it may be entered many times, also inside itself and in several threads.

    It has found its modules when it is made; entering raises if one of their names means another module by then. In one
    thread its blocks must end in the reverse order: ``__exit__`` ends the latest one. Subclasses add their options.
    """

    tool: ClassVar[str]  # the name of the function that makes it, for messages
    given: nn.Module
    modules: dict[str, nn.Module]

    def __post_init__(self) -> None:
        self.model = uncompiled(self.given)
        self.hooked = each_once(self.modules)
        self.steps = steps_to(self.model, self.modules)
        self._open: list[Session] = []

    def _enter(self, session: Session) -> None:
        """Open a session. Nothing may follow this in ``__enter__`` but a return: an interrupt would leave the hooks."""
        require_unchanged(self.steps, self.tool)
        try:
            self._open.append(session)
            session.open()
        except BaseException:
            self._forget(session)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session = None
        try:
            session = self._latest()
            session.close()
        except KeyboardInterrupt:
            session = session or self._latest()
            session.close()  # closing twice is harmless
            raise
        finally:
            self._forget(session)
        if kind is None:
            self._over(session)

    def _forget(self, session: Session | None) -> None:
        if session in self._open:
            self._open.remove(session)

    def _latest(self) -> Session:
        if not self._open:
            raise RuntimeError(f"this {self.tool} is not open: begin its block by `with`.")
        mine = [session for session in self._open if session.thread == threading.get_ident()]
        # another thread may close a generator that holds the block
        return (mine or self._open)[-1]

    def _over(self, session: Session) -> None:
        """Called when a block has ended without an error."""

    def __repr__(self) -> str:
        return f"{self.tool} of {len(self.modules)} modules of {type(self.model).__name__}: {', '.join(self.modules)}"


def _running_calls() -> list[nn.Module]:
    """The modules whose calls are running, the innermost first.

    Read from the stack, since a count would be wrong after an interrupt, which ends a forward pass without running even
    the hooks with ``always_call``.
    """
    calls = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is call_code:
            calls.append(frame.f_locals["self"])
        frame = frame.f_back
    return calls


def will_run_again() -> bool:
    """Whether this code runs inside a checkpoint, whose part the backward pass will recompute.

    A checkpoint saves tensors through hooks, or runs without gradients if it is reentrant. Otherwise the stack need not
    be searched.
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


def is_being_traced() -> bool:
    """Whether torch.jit.trace, torch.export or make_fx records what is computed, and what a hook does with it."""
    make_fx = sys.modules.get("torch.fx.experimental.proxy_tensor")
    if make_fx is not None and make_fx.get_proxy_mode() is not None:
        return True
    return bool(torch.jit.is_tracing()) or torch.compiler.is_compiling()  # type: ignore[attr-defined,no-untyped-call]
