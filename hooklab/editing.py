"""Changing what flows through a model: :func:`edit` replaces outputs, :func:`run_until` stops half-way.

with edit(model, lambda output, call: output * 0, "layer1"):
    model(x)                        # as if layer1 gave zeros
features = run_until(model, "layer1", x)
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hooklab.placing import Handle, remove_all
from hooklab.selecting import MissingName, What, each_once, first_few, require_module, select_for_hooks, uncompiled
from hooklab.sessions import Block, Hook, Session, will_run_again
from hooklab.stale import what_changed
from hooklab.torch_private import backward_number
from hooklab.trees import DEEPEST, children, describe, is_tensor, shape_of, tensors


def edit(model: nn.Module, fn: Callable[[Any, EditCall], Any], *what: What) -> Edit:
    """Replace the outputs of modules while a ``with`` block is open.

    Args:
        model: the module whose calls are the passes.
        fn: called as ``fn(output, call)`` at each use of a selected module, with its output as it is (live, part of the
            autograd graph). What it returns takes the output's place; None leaves it as it is. ``call`` is an
            :class:`EditCall` with ``name``, ``module``, ``args``, ``kwargs``, ``index`` (0 at the module's first use in
            the pass) and ``pass_index`` (0 in the first pass of the block: the steps of a ``generate`` loop).
        *what: which modules, as in :func:`hooklab.select`; without any, all layers.

    Returns:
        A context manager; it may be entered any number of times, and leaves no hooks behind.

    Raises:
        MissingName: (a ``LookupError``) if one of ``what`` matches nothing.
        RuntimeError: if one of the modules takes no hooks, because ``torch.jit.script`` compiled it.
        ValueError: in the forward, if ``fn`` returns a tensor of another shape, dtype or device than it got.
        TypeError: in the forward, if it returns another structure (a tensor for a tuple, other keys, ...).

    Hooks run in the order in which they were registered: open ``capture`` after ``edit`` to see the new values, before
    it to see the old ones. An edit takes part only in calls from the thread that opened the block, and in what a
    checkpoint computes again, if ``backward`` runs inside the block (else a warning says so). Compiled functions run
    eagerly meanwhile, as in :func:`hooklab.capture`.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        >>> with edit(model, lambda output, call: output * 0 + 7, "0"):
        ...     model(torch.ones(1, 2))
        tensor([[7., 7., 7.]], grad_fn=<ReluBackward0>)
        >>> with edit(model, lambda output, call: output[:, :2], "0"):  # doctest: +ELLIPSIS
        ...     model(torch.ones(1, 2))
        Traceback (most recent call last):
        ValueError: the edit of '0' returned (1, 2) float32 in place of (1, 3) float32. Return ...
    """
    return Edit(model, fn, *what)


def run_until(model: nn.Module, name: str | nn.Module, /, *args: Any, **kwargs: Any) -> Any:
    """Call ``model(*args, **kwargs)``, but stop as soon as one module is done, and return that module's output.

    Args:
        model: the module to call.
        name: the module to stop at: a name, or the module object. Its first use in the pass counts.
        *args: for the model.
        **kwargs: for the model.

    Returns:
        The output as the module gave it, after all its forward hooks: live, part of the autograd graph, not copied.

    Raises:
        MissingName: (a ``LookupError``) if there is no such module, or if the model finished without using it.
        ValueError: if a glob matches several modules.
        RuntimeError: if the module takes no hooks, because ``torch.jit.script`` compiled it.

    Nothing after the module runs, and that includes

    - *closing hooks*: of the modules around it, only forward hooks with ``always_call=True`` run. Where others close
      what a pre-hook has opened (offloading, resharding), let the forward end and use :func:`hooklab.capture`;
    - *a full backward hook* on the module itself: torch puts it in place after the forward hooks, so it sees nothing of
      a loss that is made from this output;
    - what the model does to put things back. Its ``with`` blocks end as after any exception, and a gradient mode or an
      autocast that it switched by hand is put back here.

    In train mode the forward moves BatchNorm's statistics, as any forward does: call ``model.eval()`` to look. At a
    module inside a reentrant checkpoint the output has no graph: such a checkpoint runs its part without one, and
    again in the backward.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(99, 1))  # the last one would raise
        >>> run_until(model, "1", torch.ones(4, 2)).shape
        torch.Size([4, 3])
    """
    targets = select_for_hooks(model, name)
    if len(targets) > 1:
        raise ValueError(f"run_until stops at one module; {name!r} matches {len(targets)}: {first_few(targets)}.")
    session = _StopSession(uncompiled(model), *targets.values())
    session.open()
    modes = _Modes()
    try:
        model(*args, **kwargs)
    except Exception:
        # ours, or what a model made of it in an except clause of its own; a failure before the stop is the caller's
        if not session.output:
            raise
    finally:
        session.close()
        if session.output:
            modes.put_back()
    if not session.output:
        raise MissingName(
            f"the model finished without running {next(iter(targets))!r}: it was not used for this input, or it was "
            "called by .forward(...), which runs no hooks."
        )
    return session.output[0]


class _Modes:
    """What a model may have switched by hand when its forward is stopped; a ``with`` of its own it leaves itself."""

    def __init__(self) -> None:
        accelerator = torch.accelerator.current_accelerator()
        devices = {"cpu", accelerator.type} if accelerator is not None else {"cpu"}
        self.grad = torch.is_grad_enabled()
        self.autocast = {one: (torch.is_autocast_enabled(one), torch.get_autocast_dtype(one)) for one in devices}

    def put_back(self) -> None:
        torch.set_grad_enabled(self.grad)
        for device, (enabled, dtype) in self.autocast.items():
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)


class EditCall:
    """One use of a module, as ``fn(output, call)`` of :func:`edit` sees it."""

    def __init__(
        self,
        name: str,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        index: int | None,
        pass_index: int,
    ) -> None:
        self.name = name
        self.pass_index = pass_index
        self.module = module
        self.args = args
        self.kwargs = kwargs
        self._index = index

    @property
    def index(self) -> int:
        """0 at the module's first use in the pass, 1 at its second, ..."""
        if self._index is None:
            raise RuntimeError(
                f"{self.name!r} was used several times in the pass and is now computed again by a checkpoint, in an "
                "order of its own: which use this is cannot be told. Edit without call.index, or without checkpoint."
            )
        return self._index

    def __repr__(self) -> str:
        which = "call" if self._index is None else f"call {self._index}"
        return f"<{which} of {self.name!r} in pass {self.pass_index}>"


class Edit(Block):
    """What :func:`edit` returns; see there."""

    tool = "edit"

    def __init__(self, model: nn.Module, fn: Callable[[Any, EditCall], Any], *what: What) -> None:
        require_module(model)
        if not callable(fn):
            raise TypeError(f"edit(model, fn, *what) needs a function second, not {type(fn).__name__}.")
        super().__init__(model, select_for_hooks(model, *what))
        self.fn = fn

    def __enter__(self) -> Edit:
        session = _EditSession(self)
        self._enter(session)
        return self

    def _over(self, session: Session) -> None:
        assert isinstance(session, _EditSession)
        if session.to_run_again:
            warnings.warn(
                f"{first_few(session.to_run_again)} was edited in a checkpoint, which computes it again in the "
                "backward pass, then unedited: gradients would be wrong. Call backward() inside the block.",
                stacklevel=3,
            )
        if changed := what_changed(self.steps, "edit"):
            warnings.warn(f"{changed} What was put there while the block was open was not edited.", stacklevel=3)

    def __repr__(self) -> str:
        return f"edit of {len(self.modules)} modules of {type(self.model).__name__}: {', '.join(self.modules)}"


class _EditSession(Session):
    def __init__(self, options: Edit) -> None:
        super().__init__(options.model)
        self.fn = options.fn
        self.modules = each_once(options.modules)
        self.names = {id(module): name for name, module in self.modules.items()}
        self.uses: Counter[int] = Counter()
        self.to_run_again: set[str] = set()
        self.gradient_handles: list[Handle] = []
        self.pass_index = 0
        self.has_run = False

    def attach(self) -> None:
        self.hooks.forward(self.modules.values(), _OnOutput(self), with_kwargs=True)

    def new_pass(self) -> None:
        self.uses.clear()
        self.pass_index += self.has_run  # a part called on its own begins the first pass without a word
        self.has_run = True

    def close(self) -> None:
        try:
            super().close()
        finally:
            remove_all(self.gradient_handles)

    def must_run_again(self, name: str, new: Any) -> None:
        """Note that a checkpoint has to compute this edit again, until that or a backward through it has happened.

        It may stop before the last edit, once it has all that the backward needs.
        """
        self.to_run_again.add(name)
        self.gradient_handles = [one for one in self.gradient_handles if one.hooks_dict_ref() is not None]
        for tensor in tensors(new):
            if tensor.requires_grad:
                _ = tensor.grad_fn  # brings a view's history up to date; see capturing.py
                self.gradient_handles.append(tensor.register_hook(_OnGradient(self, name)))

    def index_of_use(self, module: nn.Module) -> int | None:
        if backward_number() != -1:  # a checkpoint computes its part again, the last part first
            return 0 if self.uses[id(module)] <= 1 else None
        self.uses[id(module)] += 1
        return self.uses[id(module)] - 1


class _OnOutput(Hook):
    __slots__ = ()

    def __call__(self, module: nn.Module, args: tuple[Any, ...], *rest: Any) -> Any:
        session: _EditSession = self.session
        name = session.names.get(id(module))
        if name is None or len(rest) < 2 or session.is_foreign():
            return None
        kwargs, output = rest
        if not session.in_pass:
            session.note_outside_call()
            session.has_run = True
        call = EditCall(name, module, args, kwargs, session.index_of_use(module), session.pass_index)
        session.to_run_again.discard(name)
        new = session.fn(output, call)
        if new is not None:
            _require_alike(new, output, name)
            if backward_number() == -1 and will_run_again():
                session.must_run_again(name, new)
        return new


class _OnGradient(Hook):
    __slots__ = ("name",)

    def __init__(self, session: _EditSession, name: str) -> None:
        super().__init__(session)
        self.name = name

    def __call__(self, grad: Tensor | None) -> None:
        self.session.to_run_again.discard(self.name)


class _StopSession(Session):
    def __init__(self, root: nn.Module, target: nn.Module) -> None:
        super().__init__(root)
        self.target = target
        self.output: list[Any] = []

    def attach(self) -> None:
        self.hooks.forward([self.target], _StopHere(self))

    def new_pass(self) -> None:
        pass


class _StopHere(Hook):
    __slots__ = ()

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        session: _StopSession = self.session
        if module is session.target and not session.is_elsewhere() and not session.output:
            session.output.append(output)
            raise _Stopped


# An Exception, not a BaseException: hooks with always_call=True run only for the former.
class _Stopped(Exception):
    """Leaves the forward of a model whose needed output is in hand."""


def _require_alike(new: Any, old: Any, name: str) -> None:
    """Raise unless ``new`` can take the place of ``old``: same structure, and each tensor's shape, dtype, device."""
    if difference := _difference(new, old, "", 0, set()):
        path, got, expected = difference
        where = f"{name!r} at {path}" if path else repr(name)
        said = f"the edit of {where} returned {describe(got)} in place of {describe(expected)}."
        if not isinstance(got, Tensor) or not isinstance(expected, Tensor):
            raise TypeError(f"{said} Return the same structure, or None to leave the output as it is.")
        if got.device != expected.device:
            said = f"{said[:-1]} (on {got.device} in place of {expected.device})."
        raise ValueError(f"{said} Return a tensor like the one that came, or None to leave it as it is.")


def _difference(
    new: Any, old: Any, path: str, depth: int, compared: set[tuple[int, int]]
) -> tuple[str, Any, Any] | None:
    """The first place where two trees differ: the path to it, and what stands there in either."""
    if new is old or depth == DEEPEST or (id(new), id(old)) in compared:
        return None
    if is_tensor(new) and is_tensor(old):
        alike = shape_of(new) == shape_of(old) and new.dtype == old.dtype and new.device == old.device
        return None if alike else (path, new, old)
    new_parts, old_parts = children(new) or [], children(old) or []
    if type(new) is not type(old) or [key for key, _ in new_parts] != [key for key, _ in old_parts]:
        return path, new, old
    compared.add((id(new), id(old)))
    for (key, part), (_, was) in zip(new_parts, old_parts, strict=True):
        if difference := _difference(part, was, path + key, depth + 1, compared):
            return difference
    return None
