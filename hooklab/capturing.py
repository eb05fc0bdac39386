"""Seeing what flows through a model: :func:`capture`. How values are read is in ``seen.py``."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from hooklab._shared.sessions import Block, Handle, PassSession, hook_gradient, remove_all
from hooklab._shared.torch_private import backward_number
from hooklab._shared.trees import is_tensor, map_tensors
from hooklab.seen import Gradient, Record, Seen, Versioned, Versions
from hooklab.selecting import What, named_modules, select_for_hooks

_thread = threading.get_ident


def capture(
    model: nn.Module,
    *what: What,
    inputs: bool = False,
    grads: bool = False,
    clone: bool = False,
    detach: bool = True,
    keep: str = "last",
    map: Callable[[Any], Any] | None = None,
) -> Capture:
    """Record the outputs of modules while a ``with`` block is open; optionally their inputs and gradients.

    Args:
        model: the module whose calls are the passes. A new call starts a new pass and drops the values of the previous
            one. Where ``model`` itself is never called, as by a trainer that calls ``model.training_step(x)``, the
            second call of the same part of it starts a new pass.
        *what: which modules, as in :func:`hooklab.select`; without any, all layers.
        inputs: also record the arguments of each call, as they were before the module ran.
        grads: also record the gradient of each output, when ``backward`` runs inside the block.
        clone: copy every value. Without it, values share memory with the model's own tensors, and reading one that was
            changed in place since then raises.
        detach: with False, outputs and inputs stay part of the autograd graph, which lives as long as they do. A full
            backward hook on the module itself does not see a loss that is computed from them.
        keep: ``"last"`` keeps one pass, ``"all"`` keeps each, in ``seen.passes``.
        map: keep ``map(output)`` instead of each output: pooled, the last token, ``.cpu()``. It gets the output after
            ``detach``; what it raises reaches the forward pass. ``inputs`` and ``grads`` are recorded as they are.

    Returns:
        A context manager, which gives a :class:`hooklab.seen.Seen` at each ``with``. It finds the modules once and may
        be entered any number of times, also inside itself: such blocks must end in the reverse order. For generators
        or asyncio tasks that take turns, make a capture for each. When the block ends, in whichever way, its hooks are
        removed and the values stay readable.

    Raises:
        MissingName: (a ``LookupError``) if one of ``what`` matches nothing.
        TypeError: if ``model`` is not a module, or if it or one of the modules was compiled by ``torch.jit``, or if
            ``map`` is not a function.
        ValueError: if ``keep`` is neither of the two.

    The gradient of a score for one layer takes no whole backward pass, and leaves every ``.grad`` alone::

        with capture(model, "layer4", detach=False) as seen:
            score = model(x)[:, 3].sum()
        (gradient,) = torch.autograd.grad(score, seen["layer4"])

    The README has more such recipes, and says how to see before a run which modules won't fire.

    Outputs are kept in their own structure (tensor, tuple, list, dict, named tuple, dataclass, or a subclass of these).
    Any other object (a Distribution, a transformers cache) is kept as it is, and so is a container that cannot be
    rebuilt, that holds itself, or that is nested deeper than 50. Tensors inside such an object are neither detached nor
    copied: the graph lives as long as the value, and if the model changes the object later, every pass shows its last
    state.

    - *Cost*: a capture that is reused costs about as much as hooks written by hand, see
      ``tests/benchmarks/compare.py``.
    - *Train mode*: the forward pass moves the statistics of BatchNorm, as any other does, also under ``no_grad``.
    - *In place*: a later change is noticed by the tensor's version counter. Tensors made in ``torch.inference_mode()``
      have none, so they are always copied. ``tensor.data`` and NumPy views bypass it.
    - *Gradients* are read by tensor hooks on the outputs: this works with in-place activations, dict outputs and
      modules used several times. If ``backward`` runs twice, the second one counts. Under a ``GradScaler`` they are
      those of the scaled loss. A view that is changed in place gets none (up to torch 2.14, nn.Linear's output for an
      input of more than two dimensions, before ``ReLU(inplace=True)``). Reading says so.
    - *Checkpoints*: what is recomputed during ``backward`` is not a new call. With ``use_reentrant=True`` the modules
      inside have no gradient.
    - *Threads*: only calls in the thread that opened the block are recorded; asyncio tasks share a thread. If another
      thread's forward raises while a block ends, torch may put "OrderedDict mutated during iteration" before its error.
    - *torch.compile*: while the block is open, compiled functions of this process run eagerly, since compiled code
      skips hooks. Afterwards they run compiled again, without a recompile.
    - *torch.export* with ``strict=True`` inside the block raises dynamo's ``Unsupported``: export before it. Under
      ``vmap`` the values are the transform's own tensors, one example's in shape, and cannot be used after it.
    - *Copies*: in a copy or a pickle of the model made inside the block, the hooks do nothing. The block removes them
      from the copies when it ends.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        >>> with capture(model, "0", nn.ReLU, grads=True) as seen:
        ...     model(torch.ones(4, 2)).sum().backward()
        >>> seen["0"].shape, seen.grad("1").shape
        (torch.Size([4, 3]), torch.Size([4, 3]))
        >>> seen
        2 of 2 selected modules of Sequential ran
          name  output              bytes
          0     (4, 3) float32         48
          1     (4, 3) float32         48
    """
    if keep not in ("last", "all"):
        raise ValueError(f"keep is 'last' (one pass) or 'all' (each pass), not {keep!r}.")
    if map is not None and not callable(map):
        raise TypeError(f"map is a function of the output, not {type(map).__name__}.")
    return Capture(model, select_for_hooks(model, *what), inputs, grads, clone, detach, keep, map)


@dataclass(eq=False, repr=False)
class Capture(Block):
    """What :func:`capture` returns, with its options; see there."""

    tool = "capture"
    inputs: bool
    grads: bool
    clone: bool
    detach: bool
    keep: str
    map: Callable[[Any], Any] | None

    def __post_init__(self) -> None:
        super().__post_init__()
        # a shared module is listed by one name, and can be read by any of its names
        listed = {id(module): name for name, module in self.hooked.items()}
        self.known_as = {name: listed[id(one)] for name, one in named_modules(self.model) if id(one) in listed}

    def __enter__(self) -> Seen:
        session = CaptureSession(self)
        seen = Seen(session)
        self._enter(session)
        return seen


class CaptureSession(PassSession):
    def __init__(self, block: Capture) -> None:
        super().__init__(block.model)
        self.block = block
        # nothing to do but detach: the case that must be fast
        self.is_plain = block.detach and not (block.inputs or block.clone or block.grads or block.map)
        self.gradient_handles: list[Handle] = []
        self.passes: list[Record] = []
        self.calls_elsewhere = 0
        self.has_run = False
        self.start_record()

    def attach_inside(self) -> None:
        modules = self.block.hooked.values()
        if self.block.inputs:
            for module in modules:
                self.before(module, self.on_input, with_kwargs=True)
        on_output = self.on_output
        for module in modules:
            self.after(module, on_output)

    def close(self) -> None:
        try:
            super().close()
        finally:
            remove_all(self.gradient_handles)

    def new_pass(self) -> None:
        self.has_run = True
        if self.block.keep == "last":
            remove_all(self.gradient_handles)
        elif self.record:
            self.passes.append(self.record)
        self.start_record()

    def start_record(self) -> None:
        self.record: Record = []
        self.append = self.record.append
        self.started: defaultdict[int, list[list[Any]]] = defaultdict(list)

    def on_input(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if _thread() != self.thread or backward_number() != -1:
            return
        if not self.in_pass:
            self.note_outside_call()
        use = [module, self.keep_tree((args, kwargs)), None]
        self.append(use)
        self.started[id(module)].append(use)

    def on_output(self, module: nn.Module, args: Any, output: Any) -> None:
        if _thread() != self.thread or backward_number() != -1:
            self.a_copy_was_called()
            return
        if not self.in_pass:
            self.note_outside_call()
        if self.is_plain and type(output) is Tensor:
            try:
                self.append((module, None, (output.detach(), output._version, None)))
                return
            except RuntimeError:  # an inference tensor counts no versions: copied below
                pass
        gradients = (map_tensors(self.watch, output),) if self.block.grads else None
        end = (*self.keep_output(output), gradients)
        if started := self.started[id(module)]:
            started.pop()[2] = end
        else:
            self.append((module, None, end))

    def a_copy_was_called(self) -> None:
        self.calls_elsewhere += self.is_foreign() and self.is_open

    def keep_tree(self, tree: Any) -> tuple[Any, Versions]:
        if is_tensor(tree):
            return self.keep_tensor(tree)
        versions: list[Versioned] = []

        def keep(tensor: Tensor) -> Tensor:
            versions.append(self.keep_tensor(tensor))
            return versions[-1][0]

        return map_tensors(keep, tree), versions

    def keep_output(self, output: Any) -> tuple[Any, Versions]:
        fn = self.block.map
        return self.keep_tree(output if fn is None else fn(map_tensors(self.detached, output)))

    def detached(self, tensor: Tensor) -> Tensor:
        try:
            return tensor.detach() if self.block.detach else tensor
        except Exception:  # a subclass that refuses
            return tensor

    def keep_tensor(self, tensor: Tensor) -> Versioned:
        try:
            value = self.detached(tensor)
            if value.is_inference():  # counts no versions, so a later change could not be noticed
                return value.clone(), None
            if self.block.clone:
                value = value.clone()
            return value, value._version
        except Exception:  # a subclass that refuses
            return tensor, None

    def watch(self, tensor: Tensor) -> Gradient | None:
        gradient = Gradient(self.block.clone)
        handle = hook_gradient(tensor, gradient)
        if handle is None:
            return None
        gradient.is_view = tensor._is_view()
        self.gradient_handles.append(handle)
        return gradient
