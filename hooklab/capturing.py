"""Seeing what flows through a model: :func:`capture`.

    with capture(model, "layer1", nn.ReLU, grads=True) as seen:
        model(x).sum().backward()
    seen["layer1"], seen.grad("layer1"), seen.calls("relu"), seen.silent

How values are read is in ``seen.py``; here is how they get there.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor, nn

from hooklab.placing import Handle, remove_all
from hooklab.recording import Gradient, Kept, Record, Versions
from hooklab.seen import Seen
from hooklab.selecting import What, each_once, named_modules, select_for_hooks
from hooklab.sessions import Block, Hook, Session
from hooklab.torch_private import backward_number
from hooklab.trees import describe, is_tensor, map_tensors

_thread = threading.get_ident


def capture(
    model: nn.Module,
    *what: What,
    inputs: bool = False,
    grads: bool = False,
    clone: bool = False,
    device: torch.device | str | None = None,
    detach: bool = True,
    keep: str = "last",
) -> Capture:
    """Record the outputs of modules while a ``with`` block is open; optionally their inputs and gradients.

    Args:
        model: the module whose calls are the passes. A new call of ``model`` starts a new pass, and the values of the
            pass before are dropped. A part of it that is called from outside counts to the pass before; called a second
            time, it starts a new one. So steps stay apart where ``model`` itself is never called, as by a trainer that
            calls ``model.training_step(x)``; what was called in its place is said where you read.
        *what: which modules, as in :func:`hooklab.select`; without any, all layers.
        inputs: also record the arguments of each call, as they were before the module ran.
        grads: also record the gradient of each output, when ``backward`` runs inside the block.
        clone: copy every value. Without it nothing is copied: values share memory with the model's own tensors, and
            reading one that was changed in place since then raises.
        device: move every value there, for instance ``"cpu"``. (One on the meta device has no values, and stays.)
        detach: with False, outputs and inputs stay part of the autograd graph, to compute a loss from them; the graph
            then lives as long as they do. A full backward hook on the module itself sees nothing of such a loss: it
            belongs to what the module passes on, which is made after its forward hooks.
        keep: ``"last"`` keeps one pass, ``"all"`` keeps each, in ``seen.passes``.

    Returns:
        A context manager, which gives a :class:`hooklab.seen.Seen` at each ``with``. It finds the modules once and may
        be entered any number of times, also inside itself: such blocks must end in the reverse order of their
        beginning. Where they may not, as in generators or asyncio tasks that take turns, make a capture for each. On
        leaving, in whichever way, it removes its own hooks and no others. The values stay readable. They keep no graph
        alive, but for ``detach=False`` and for objects (below).

    Raises:
        MissingName: (a ``LookupError``) if one of ``what`` matches nothing.
        TypeError: if ``model`` is no module.
        ValueError: if ``keep`` is neither of the two.
        RuntimeError: if one of the modules takes no hooks, because ``torch.jit.script`` compiled it.

    Outputs are kept in their own structure (tensor, tuple, list, dict, named tuple, dataclass, or a subclass of these),
    each tensor with its own shape, dtype and device. Any other object (a Distribution, a transformers cache) is kept as
    it is, and so is a container that cannot be rebuilt, that holds itself, or that is nested deeper than 50. What such
    an object holds is neither detached nor copied: its graph lives as long as the value, and if the model changes it
    later, as the steps of ``generate`` do with their one cache, every pass that has it shows its last state.

    - *Train mode*: looking is a forward like any other. In train mode it moves the statistics of BatchNorm and the
      vectors of spectral_norm, under ``no_grad`` too: call ``model.eval()`` to look.
    - *In place*: a later in-place change of a value is noticed by the tensor's version counter. Tensors made in
      ``torch.inference_mode()`` have none, so they are always copied. ``tensor.data`` and NumPy views go round it.
    - *Gradients* are read by tensor hooks on the outputs, not by full backward hooks: this works with in-place
      activations, dict outputs and modules used several times. If ``backward`` runs twice, the second one counts.
      Under a ``GradScaler`` they are those of the scaled loss: divide by ``scaler.get_scale()``. The one output that
      gets none is a view that is changed in place (up to torch 2.14, nn.Linear's for an input of more than two
      dimensions, before ``ReLU(inplace=True)``): autograd then calls no hook of it. Reading says so.
    - *Checkpoints*: what a checkpoint computes again during ``backward`` is no new call.
    - *Threads*: only calls in the thread that opened the block are recorded; a block may open and end while others run
      the model. If another thread's forward raises in that very moment, torch may put "OrderedDict mutated during
      iteration" in front of its error. asyncio tasks share a thread, so a block that is open across an ``await`` also
      records the other tasks' calls.
    - *torch.compile*: while the block is open, compiled functions of this process run eagerly (``force_eager``), since
      compiled code would skip the hooks. Afterwards they run compiled again, without being compiled anew.
      ``torch.export.export(..., strict=True)`` inside the block raises dynamo's ``Unsupported``: export before it.
    - *torch.func*: under ``vmap`` the values are the transform's own tensors, one example's in shape, and cannot be
      used after it.
    - *Copies*: a copy or a pickle of the model made inside the block has hooks in it that do nothing.

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
    return Capture(model, *what, inputs=inputs, grads=grads, clone=clone, device=device, detach=detach, keep=keep)


class Capture(Block):
    """What :func:`capture` returns; see there."""

    tool = "capture"

    def __init__(
        self,
        model: nn.Module,
        *what: What,
        inputs: bool = False,
        grads: bool = False,
        clone: bool = False,
        device: torch.device | str | None = None,
        detach: bool = True,
        keep: str = "last",
    ) -> None:
        if keep not in ("last", "all"):
            raise ValueError(f"keep is 'last' (one pass) or 'all' (each pass), not {keep!r}.")
        super().__init__(model, select_for_hooks(model, *what))
        self.inputs = inputs
        self.grads = grads
        self.clone = clone
        self.device = device
        self.detach = detach
        self.keep = keep
        # a shared module has one name to be listed by, and can be read by any of its names
        self.hooked = each_once(self.modules)
        self.names = {id(module): name for name, module in self.hooked.items()}
        self.known_as = {name: id(module) for name, module in named_modules(model) if id(module) in self.names}

    def __enter__(self) -> Seen:
        session = CaptureSession(self)
        self._enter(session)
        return Seen(self, session)

    def keep_tensor(self, tensor: Tensor) -> Kept:
        try:
            kept = tensor.detach() if self.detach else tensor
        except Exception:  # a subclass that refuses
            return tensor, None
        kept = self.moved(kept)
        if kept.is_inference():  # counts no versions, so a later change could not be noticed
            return kept.clone(), None
        if self.clone:
            kept = kept.clone()
        return kept, kept._version

    def moved(self, tensor: Tensor) -> Tensor:
        # on the meta device there are no values that could be moved
        return tensor if self.device is None or tensor.is_meta else tensor.to(self.device)

    def keep_gradient(self, grad: Tensor) -> Kept:
        grad = self.moved(grad.detach())
        if self.clone:
            grad = grad.clone()
        return grad, grad._version

    def __repr__(self) -> str:
        return f"capture of {len(self.modules)} modules of {type(self.model).__name__}: {', '.join(self.modules)}"


class CaptureSession(Session):
    def __init__(self, options: Capture) -> None:
        super().__init__(options.model)
        self.options = options
        self.grads = options.grads
        # nothing to do but detach: the case that must be fast
        self.is_plain = options.detach and not options.clone and options.device is None
        # a method of options, not of self: what self records would refer to self
        self.keep_gradient = options.keep_gradient if options.clone or options.device is not None else None
        self.gradient_handles: list[Handle] = []
        self.passes: list[Record] = []
        self.calls_elsewhere = 0
        self.has_run = False
        self.start_record()

    def attach(self) -> None:
        on_input, on_output = _OnInput(self), _OnOutput(self)
        if self.options.inputs:
            self.hooks.forward_pre(self.options.hooked.values(), on_input, with_kwargs=True)
        self.hooks.forward(self.options.hooked.values(), on_output)

    def close(self) -> None:
        try:
            super().close()
        finally:
            remove_all(self.gradient_handles)

    def new_pass(self) -> None:
        self.has_run = True
        if self.options.keep == "last":
            remove_all(self.gradient_handles)
        elif self.record.events:
            self.passes.append(self.record)
        self.start_record()

    def clear(self) -> None:
        remove_all(self.gradient_handles)
        self.passes.clear()
        self.has_run = False
        self.start_record()

    def start_record(self) -> None:
        self.record = Record()
        self.append = self.record.events.append

    def keep_tree(self, tree: Any) -> tuple[Any, Versions]:
        if is_tensor(tree):
            return self.options.keep_tensor(tree)
        versions: list[Kept] = []

        def keep(tensor: Tensor) -> Tensor:
            versions.append(self.options.keep_tensor(tensor))
            return versions[-1][0]

        return map_tensors(keep, tree), versions

    def watch(self, tensor: Tensor) -> Gradient | None:
        if not tensor.requires_grad:
            return None
        _ = tensor.grad_fn  # brings a view's history up to date; without it, register_hook can crash the process
        gradient = Gradient(self.keep_gradient, tensor._is_view())
        self.gradient_handles.append(tensor.register_hook(gradient))
        return gradient

    def watch_tree(self, tree: Any) -> tuple[Any]:
        return (self.watch(tree) if type(tree) is Tensor else map_tensors(self.watch, tree),)

    def call_elsewhere(self, module: nn.Module, output: Any) -> None:
        if self.is_foreign():
            self.calls_elsewhere += 1
        elif self.grads and self.record.runs_without_graph(id(module)):
            # A reentrant checkpoint runs its part without a graph first. The graph, and so the gradient, is that of
            # the second run, here.
            self.record.recomputed[id(module)] = describe(output), self.watch_tree(output)


class _OnInput(Hook):
    __slots__ = ()

    def __call__(self, module: nn.Module, args: Any, *rest: Any) -> None:
        session: CaptureSession = self.session
        if not rest or _thread() != session.thread or backward_number() != -1:
            return
        if not session.in_pass:
            session.note_outside_call()
        kwargs = rest[0]
        if session.is_plain and not kwargs and len(args) == 1 and type(tensor := args[0]) is Tensor:
            try:
                kept = tensor.detach()
                session.append((module, ((kept,), {}), [(kept, tensor._version)]))
                return
            except RuntimeError:  # as below
                pass
        session.append((module, *session.keep_tree((args, kwargs))))


class _OnOutput(Hook):
    __slots__ = ()

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        session: CaptureSession = self.session
        if _thread() != session.thread or backward_number() != -1:
            session.call_elsewhere(module, output)
            return
        if not session.in_pass:
            session.note_outside_call()
        gradients = session.watch_tree(output) if session.grads else None
        if session.is_plain and type(output) is Tensor:
            try:
                session.append((module, output.detach(), output._version, gradients))
                return
            except RuntimeError:  # an inference tensor counts no versions: copied below
                pass
        session.append((module, *session.keep_tree(output), gradients))
