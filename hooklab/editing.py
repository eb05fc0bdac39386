"""Changing what flows through a model: :func:`edit` replaces outputs or inputs, :func:`run_until` stops half-way."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn

from hooklab._shared.sessions import Block, PassSession, Session, hook_gradient, is_being_traced, will_run_again
from hooklab._shared.stale import what_changed
from hooklab._shared.torch_private import backward_number
from hooklab._shared.trees import DEEPEST, children, describe, is_tensor, shape_of, tensors
from hooklab.selecting import MissingName, What, first_few, select_for_hooks


def edit(model: nn.Module, fn: Callable[[Any, EditCall], Any], *what: What, inputs: bool = False) -> Edit:
    """Replace the outputs of modules, or their inputs, while a ``with`` block is open.

    Args:
        model: the module whose calls are the passes.
        fn: called as ``fn(output, call)`` at each use of a selected module, with the output itself, not a copy: it is
            part of the autograd graph. What ``fn`` returns replaces the output; None leaves it as it is. ``call`` is an
            :class:`EditCall` with ``name``, ``module``, ``args``, ``kwargs``, ``index`` (0 at the module's first use in
            the pass) and ``pass_index`` (0 in the first pass of the block: the steps of a ``generate`` loop).
        *what: which modules, as in :func:`hooklab.select`; without any, all layers.
        inputs: call ``fn(args, call)`` before the module runs, with its positional arguments as a tuple. It returns the
            new ones: a tuple, or the value itself if there is one. To replace a keyword argument, change the dict
            ``call.kwargs``.

    Returns:
        A context manager; it may be entered any number of times, and leaves no hooks behind.

    Raises:
        MissingName: (a ``LookupError``) if one of ``what`` matches nothing.
        RuntimeError: in the forward, if ``torch.jit.trace``, ``torch.export`` or ``torch.fx`` traces it.
        ValueError: in the forward, if ``fn`` returns a tensor of another shape, dtype or device than it got.
        TypeError: in the forward, if it returns another structure (a tensor for a tuple, other keys, ...); at once, if
            ``model`` or ``fn`` is of the wrong kind, or one of the modules was compiled by ``torch.jit``.

    Hooks run in the order in which they were registered: open ``capture`` after ``edit`` to see the new values, before
    it to see the old ones. An edit takes part only in calls from the thread that opened the block, and in what a
    checkpoint recomputes, if ``backward`` runs inside the block (otherwise a warning says so). Compiled functions run
    eagerly while the block is open, as in :func:`hooklab.capture`.

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
        ValueError: the edit of '0' returned (1, 2) float32 instead of (1, 3) float32. Return ...
    """
    if not callable(fn):
        raise TypeError(f"edit(model, fn, *what) needs a function second, not {type(fn).__name__}.")
    return Edit(model, select_for_hooks(model, *what), fn, inputs)


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
        TypeError: if the model or the module was compiled by ``torch.jit``.

    Nothing after the module runs: of the modules around it, only forward hooks with ``always_call=True`` do. If other
    hooks undo what a pre-hook has done (offloading, resharding), use :func:`hooklab.capture`. ``with`` blocks of the
    model end as after any exception, and a gradient mode that it switched by hand is restored here. A full backward
    hook on the module itself does not see a loss that is computed from this output.

    In train mode the forward updates BatchNorm's statistics, as any forward does: call ``model.eval()`` to look. At a
    module inside a reentrant checkpoint the output has no graph.

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
    session = _StopSession(*targets.values())
    try:
        session.open()
        with torch.set_grad_enabled(torch.is_grad_enabled()):
            model(*args, **kwargs)
    except Exception:
        # the stop, or what the model raised instead in an except clause; a failure before the stop is the caller's
        if not session.output:
            raise
    finally:
        session.close()
    if not session.output:
        raise MissingName(
            f"the model finished without running {next(iter(targets))!r}: it was not used for this input, or it was "
            "called by .forward(...), which runs no hooks."
        )
    return session.output[0]


@dataclass(frozen=True, repr=False)
class EditCall:
    """One use of a module, as ``fn(output, call)`` of :func:`edit` gets it."""

    name: str
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    pass_index: int
    _index: int | None

    @property
    def index(self) -> int:
        """0 at the module's first use in the pass, 1 at its second, ..."""
        if self._index is None:
            raise RuntimeError(
                f"{self.name!r} was used several times in the pass, and a checkpoint recomputes these uses in its own "
                "order, so their index is unknown. Edit without call.index, or without the checkpoint."
            )
        return self._index

    def __repr__(self) -> str:
        which = "call" if self._index is None else f"call {self._index}"
        return f"<{which} of {self.name!r} in pass {self.pass_index}>"


@dataclass(eq=False, repr=False)
class Edit(Block):
    """What :func:`edit` returns, with its options; see there."""

    tool = "edit"
    fn: Callable[[Any, EditCall], Any]
    inputs: bool

    def __enter__(self) -> Edit:
        self._enter(_EditSession(self))
        return self

    def _over(self, session: Session) -> None:
        assert isinstance(session, _EditSession)
        if session.to_run_again:
            warnings.warn(
                f"{first_few(session.to_run_again)} was edited in a checkpoint, which recomputes it in the backward "
                "pass, then unedited: gradients would be wrong. Call backward() inside the block.",
                stacklevel=3,
            )
        if changed := what_changed(self.steps, "edit"):
            warnings.warn(f"{changed} What was put there while the block was open was not edited.", stacklevel=3)


class _EditSession(PassSession):
    def __init__(self, block: Edit) -> None:
        super().__init__(block.model)
        self.block = block
        self.uses: Counter[int] = Counter()
        self.to_run_again: set[str] = set()
        self.pass_index = 0
        self.has_run = False

    def attach_inside(self) -> None:
        register = self.before if self.block.inputs else self.after
        for name, module in self.block.hooked.items():
            register(module, partial(self.edited, name), with_kwargs=True)

    def new_pass(self) -> None:
        self.uses.clear()
        self.pass_index += self.has_run  # a part called on its own begins the first pass unnoticed
        self.has_run = True

    def must_run_again(self, name: str, new: Any) -> None:
        """Note that a checkpoint will recompute this edit, until it does or a backward pass gets there.

        It may stop before the last edit, once it has all that the backward pass needs.
        """
        self.to_run_again.add(name)
        done = self.to_run_again.discard  # not the session, which holds the model
        for tensor in tensors(new):
            if not tensor.is_leaf:  # the hook goes with the graph
                hook_gradient(tensor, lambda grad: done(name))

    def edited(
        self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any = None
    ) -> Any:
        """What the user's function makes of a module's output, or of its arguments; None for no change."""
        if self.is_foreign():
            return None
        inputs = self.block.inputs
        old = args if inputs else output
        if is_being_traced() or next(tensors(old, _is_proxy), None) is not None:
            raise RuntimeError(
                f"the model is being traced or exported, and the edit of {name!r} would become part of the result "
                "for good: trace it outside the block."
            )
        if not self.in_pass:
            self.note_outside_call()
            self.has_run = True
        call = EditCall(name, module, args, kwargs, self.pass_index, self.index_of_use(module))
        self.to_run_again.discard(name)
        before = dict(kwargs)
        new = self.block.fn(old, call)
        is_same = not inputs or [*map(id, kwargs.values())] == [*map(id, before.values())]
        if new is None and is_same:
            return None
        if inputs:
            new = (old if new is None else new if isinstance(new, tuple) else (new,)), kwargs
            _require_alike(new, (old, before), f"the inputs of {name!r}")
        else:
            _require_alike(new, old, repr(name))
        if backward_number() == -1 and will_run_again():
            self.must_run_again(name, new)
        return new

    def index_of_use(self, module: nn.Module) -> int | None:
        if backward_number() != -1:  # a checkpoint recomputes its part, the last part first
            return 0 if self.uses[id(module)] <= 1 else None
        self.uses[id(module)] += 1
        return self.uses[id(module)] - 1


def _is_proxy(thing: Any) -> bool:
    return issubclass(type(thing), fx.Proxy)


class _StopSession(Session):
    def __init__(self, target: nn.Module) -> None:
        super().__init__()
        self.target = target
        self.output: list[Any] = []

    def attach(self) -> None:
        self.after(self.target, self.stop)

    def stop(self, module: nn.Module, args: Any, output: Any) -> None:
        if not self.is_elsewhere() and not self.output:
            self.output.append(output)
            raise _Stopped


# An Exception, not a BaseException: hooks with always_call=True run only for the former.
class _Stopped(Exception):
    """Leaves the forward of a model whose needed output is in hand."""


def _require_alike(new: Any, old: Any, of: str) -> None:
    """Raise unless ``new`` can replace ``old``: the same structure, and the shape, dtype and device of each tensor."""
    if difference := _difference(new, old, "", 0, set()):
        path, got, expected = difference
        where = f"{of} at {path}" if path else of
        said = f"the edit of {where} returned {describe(got)} instead of {describe(expected)}."
        if not isinstance(got, Tensor) or not isinstance(expected, Tensor):
            raise TypeError(f"{said} Return the same structure, or None to leave it as it is.")
        if got.device != expected.device:
            said = f"{said[:-1]} (on {got.device} instead of {expected.device})."
        raise ValueError(f"{said} Return a tensor like the one that came, or None to leave it as it is.")


def _difference(
    new: Any, old: Any, path: str, depth: int, compared: set[tuple[int, int]]
) -> tuple[str, Any, Any] | None:
    """The first place where two trees differ: the path to it, and what each of them has there."""
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
