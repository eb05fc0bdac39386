"""What is open while a batch is mixed: :class:`MixBlock`, its two hooks, and the mistakes that they notice."""

from __future__ import annotations

import threading
import warnings
from typing import Any

from torch import Tensor, nn

from hooklab._shared.eager import run_eagerly, stop_running_eagerly
from hooklab._shared.sessions import Handle, Hook, is_foreign, remove_all, will_run_again
from hooklab._shared.torch_private import backward_number, may_have_compiled
from hooklab._shared.trees import tensors
from hooklab.mixed import INPUT, Mixed, blend_all

# A block is entered once: its batch has been drawn, and one batch is mixed once.
_NEW, _OPEN, _OVER = "new", "open", "over"


class MixBlock(Hook):
    """One batch, mixed at a layer or at the input. For a layer, the block is that layer's forward hook."""

    __slots__ = (
        "batch_dim",
        "eagerly",
        "given_x",
        "handles",
        "mixed",
        "model",
        "must_run_again",
        "runs",
        "state",
        "thread",
    )

    def __init__(self, model: nn.Module, mixed: Mixed, given_x: Any, layer: nn.Module | None, batch_dim: int) -> None:
        super().__init__(session=None, module=layer)
        self.model = model
        self.mixed = mixed
        self.given_x = given_x
        self.batch_dim = batch_dim
        self.handles: list[Handle] = []
        self.runs = 0
        self.must_run_again = False
        self.eagerly = False
        self.state = _NEW
        self.thread = threading.get_ident()  # the block has no effect on other threads' calls

    def __enter__(self) -> Mixed:
        if self.state is not _NEW:
            raise RuntimeError("this batch was mixed already: write `with mix(x, y) as mixed` for each batch")
        for hook in list(self.model._forward_pre_hooks.values()):
            if isinstance(hook, _WatchCalls) and hook.block.thread == self.thread and hook.module is self.model:
                if hook.block.state is _OPEN:
                    raise RuntimeError(
                        "another batch of this model is being mixed, and a block inside its block would mix twice: end "
                        "that one first. For a second view with the same draw: `with mix(x2, y, like=mixed) as second`"
                    )
                hook.block._close()  # an interrupt kept it from doing so
        try:
            self.state = _OPEN
            self.eagerly = self.module is not None and run_eagerly()
            # compiled code would have to trace the watching hook
            if self.module is not None or not may_have_compiled():
                _WatchCalls(self).register_pre(self.handles, with_kwargs=True, prepend=True)
            if self.module is not None:
                self.register(self.handles)
        except BaseException:
            self._close()
            raise
        return self.mixed

    def __exit__(self, exception_type: object, exception: object, traceback: object) -> None:
        if self.state is not _OPEN:
            raise RuntimeError("this block is not open: begin it with `with mix(x, y) as mixed`")
        self.state = _OVER  # first of all: from here on its hooks do nothing, even if an interrupt leaves them in place
        try:
            self._close()
        except KeyboardInterrupt:
            self._close()  # closing twice is harmless
            raise
        if exception_type is None:
            self._object_if_nothing_was_mixed()

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        if self.state is not _OPEN or is_foreign(self.thread):
            return None
        mixed = self.mixed
        if backward_number() == -1:
            self.runs += 1
            self.must_run_again = will_run_again()
        else:  # a checkpoint recomputes its part, which must be mixed in the same way
            self.must_run_again = False
        if self.runs > 1:
            raise RuntimeError(
                f"layer {mixed.layer!r} ran a second time inside one `with mix(x, y)` block, which would mix twice. "
                "Call the model once per block, and choose layers that are used once per forward pass."
            )
        _refuse_eval_mode(self.model)
        what = f"the output of layer {mixed.layer!r}"
        return blend_all(output, mixed.lam, mixed.permutation, what, self.batch_dim)

    def _close(self) -> None:
        self.state = _OVER
        try:
            remove_all(self.handles)
        finally:
            if self.eagerly:
                self.eagerly = False
                stop_running_eagerly()

    def _object_if_nothing_was_mixed(self) -> None:
        mixed = self.mixed
        if mixed.layer == INPUT and not mixed._x_was_read:
            raise RuntimeError("the input was chosen for mixing, but mixed.x was not used: call model(mixed.x)")
        if self.module is not None and self.runs == 0:
            raise RuntimeError(
                f"layer {mixed.layer!r} was chosen for mixing, but did not run inside the block: the targets "
                "would be mixed, the features not. Call the model inside the block, as model(...) and not "
                "model.forward(...), and choose layers that every forward pass uses."
            )
        if self.must_run_again:
            raise RuntimeError(
                f"layer {mixed.layer!r} is in a checkpoint, which recomputes it in the backward pass, then "
                "unmixed: call backward() inside the block"
            )


class _WatchCalls(Hook):
    """Looks at the arguments of the model while the block is open."""

    __slots__ = ("block",)

    def __init__(self, block: MixBlock) -> None:
        super().__init__(session=None, module=block.model)
        self.block = block

    def __call__(self, module: nn.Module, args: tuple[Any, ...], *rest: dict[str, Any]) -> None:
        if self.block.state is not _OPEN or is_foreign(self.block.thread):
            return
        mixed, kwargs = self.block.mixed, rest[0] if rest else {}
        _refuse_eval_mode(self.block.model)
        named = _named(module, args, kwargs)
        got, x, y = _ids([*args, *kwargs.values()]), _ids(self.block.given_x), _ids(mixed.y)
        if mixed.layer == INPUT and not got.isdisjoint(x):
            raise RuntimeError("the input was chosen, but the model was called with x itself: call model(mixed.x)")
        has_labels = any(name == "labels" and value is not None for name, value in named)
        if has_labels or not got.isdisjoint(y - x):  # an autoencoder's targets are its input
            raise RuntimeError(
                "the model was given the targets, and a loss that it computes itself would not be mixed: call it "
                "without them, and take mixed.loss(fn, its prediction)"
            )
        for name, value in named:
            if "mask" in name and isinstance(value, Tensor):
                self._warn_of_padding(name, value)

    def _warn_of_padding(self, name: str, mask: Tensor) -> None:
        mixed = self.block.mixed
        try:
            is_batch = mask.ndim >= 2 and len(mask) == len(mixed.permutation)
            is_known = any(mask is known for known in mixed._masks)
            differs = is_batch and not is_known and bool((mask != mask[:1]).any())
        except Exception:  # no numbers to read, as on the meta device
            return
        if differs:
            warnings.warn(
                f"{name} differs between the examples, and a mixed example has tokens of two: those of a longer "
                f"partner are masked. Call the model with {name}=mixed.union({name}), and with marks='padding' in it "
                "if the mask is true for padding.",
                stacklevel=3,
            )


def _refuse_eval_mode(model: nn.Module) -> None:
    if not model.training:
        raise RuntimeError("the model was put into eval mode inside the block, which mixes: validate after the block")


def _named(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    """The arguments with their names, and the items of arguments that are dicts, as a batch may be."""
    code = getattr(getattr(type(module), "forward", None), "__code__", None)
    names = code.co_varnames[1 : code.co_argcount] if code is not None else ()
    named = [*zip(names, args, strict=False), *kwargs.items()]
    dicts = [value for value in (*args, *kwargs.values()) if isinstance(value, dict)]
    return named + [item for each in dicts for item in each.items() if isinstance(item[0], str)]


def _ids(tree: Any) -> set[int]:
    return {id(tree)} if isinstance(tree, Tensor) else {id(tensor) for tensor in tensors(tree)}
