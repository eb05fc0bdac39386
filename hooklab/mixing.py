"""What is open while a batch is mixed: :class:`MixBlock`, its hooks, and what they object to."""

from __future__ import annotations

import threading
import warnings
from typing import Any
from weakref import ref

from torch import Tensor, nn

from hooklab._shared.eager import run_eagerly, stop_running_eagerly
from hooklab._shared.sessions import Handle, Hook, is_foreign, remove_all, will_run_again
from hooklab._shared.torch_private import backward_number, may_have_compiled
from hooklab._shared.trees import tensors
from hooklab.blending import Part, blend_all
from hooklab.mixed import INPUT, Mixed

# A block is entered once: its batch has been drawn, and one batch is mixed once.
_NEW, _OPEN, _OVER = "new", "open", "over"
# The open blocks, by model and thread. Weakly, since a block that is dropped without an end must not refuse another
# model that gets the number of the first.
_being_mixed: dict[tuple[int, int], ref[MixBlock]] = {}


class MixBlock(Hook):
    """One batch, mixed at a layer, at the input, or nowhere; at a layer it is that layer's forward hook itself.

    A copy of the model gets an inert hook in its place.
    """

    __slots__ = (
        "__weakref__", "batch_dim", "eagerly", "given_x", "layer", "may_be_second", "mixed", "model",
        "must_run_again", "part", "runs", "state", "thread", "watches",
    )  # fmt: skip

    def __init__(
        self,
        model: nn.Module,
        mixed: Mixed,
        given_x: Any,
        layer: nn.Module | None = None,
        *,
        batch_dim: int = 0,
        part: Part | None = None,
        may_be_second: bool = False,
        stays_compiled: bool = False,
        watches: bool = True,
    ) -> None:
        super().__init__(session=None, module=layer)
        self.model = model
        self.mixed = mixed
        self.given_x = given_x
        self.layer = layer
        self.batch_dim = batch_dim
        self.part = part
        self.may_be_second = may_be_second
        self.runs = 0
        self.must_run_again = False
        self.eagerly = layer is not None and not stays_compiled
        # compiled code would have to trace the watching hook, unless nothing runs compiled
        self.watches = watches and (self.eagerly or not may_have_compiled())
        self.handles: list[Handle] = []
        self.state = _NEW
        self.thread = threading.get_ident()  # what other threads do with the same model is theirs

    def __enter__(self) -> Mixed:
        if self.state is not _NEW:
            raise RuntimeError("this batch was mixed already: write `with mix(x, y) as mixed` anew for each batch")
        key = id(self.model), self.thread
        if key in _being_mixed and _being_mixed[key]() is not None:
            raise RuntimeError(
                "another batch of this model is being mixed, and a block inside its block would mix twice: end that "
                "one first. For a second view with the same draw: `with mix(x2, y, like=mixed) as second`"
            )
        if self.eagerly:
            self.eagerly = run_eagerly()
        _being_mixed[key] = ref(self)
        try:
            if self.watches:
                _WatchCalls(self).register_pre(self.handles, with_kwargs=True, prepend=True)
            if self.layer is not None:
                self.register(self.handles)
        except BaseException:
            self._close()
            raise
        self.state = _OPEN
        return self.mixed

    def __exit__(self, exception_type: object, exception: object, traceback: object) -> None:
        if self.state is not _OPEN:
            raise RuntimeError("this block is not open: begin it by `with mix(x, y) as mixed`")
        self.state = _OVER
        self._close()
        if exception_type is None:
            self._object_if_nothing_was_mixed()

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        if is_foreign(self.thread):
            return None
        mixed = self.mixed
        if backward_number() == -1:
            self.runs += 1
            self.must_run_again = will_run_again()
        else:  # a checkpoint computes its part again, and needs the same mixing again
            self.must_run_again = False
        if self.runs > 1:
            raise RuntimeError(
                f"layer {mixed.layer!r} ran a second time inside one `with mix(x, y)` block, which would mix twice. "
                "Call the model once per block, and choose layers that are used once per forward pass."
            )
        _refuse_eval_mode(self.model)
        what = f"the output of layer {mixed.layer!r}"
        if self.may_be_second:
            refuse_two_batch_dims(output, mixed.permutation.shape[0], what, mixed.layer)
        return blend_all(output, mixed.lam, mixed.permutation, what, self.batch_dim, self.part)

    def _close(self) -> None:
        remove_all(self.handles)
        _being_mixed.pop((id(self.model), self.thread), None)
        if self.eagerly:
            stop_running_eagerly()

    def _object_if_nothing_was_mixed(self) -> None:
        mixed = self.mixed
        if mixed.layer == INPUT and not mixed._x_was_read:
            raise RuntimeError("the input was chosen for mixing, but mixed.x was not used: call model(mixed.x)")
        if self.layer is None:
            return
        if self.runs == 0:
            raise RuntimeError(
                f"layer {mixed.layer!r} was chosen for mixing, but did not run inside the block: the targets "
                "would be mixed, the features not. Call the model inside the block, as model(...) and not "
                "model.forward(...), and choose layers that every forward pass uses."
            )
        if self.must_run_again:
            raise RuntimeError(
                f"layer {mixed.layer!r} is in a checkpoint, which computes it again in the backward pass, then "
                "unmixed: call backward() inside the block"
            )


class _WatchCalls(Hook):
    """Looks at what the model is called with while the block is open."""

    __slots__ = ("block",)

    def __init__(self, block: MixBlock) -> None:
        super().__init__(session=None, module=block.model)
        self.block = block

    def __call__(self, module: nn.Module, args: tuple[Any, ...], *rest: dict[str, Any]) -> None:
        if is_foreign(self.block.thread):
            return
        mixed, kwargs = self.block.mixed, rest[0] if rest else {}
        _refuse_eval_mode(self.block.model)
        named = _named(module, args, kwargs)
        got, x, y = _ids([*args, *kwargs.values()]), _ids(self.block.given_x), _ids(mixed.y)
        if mixed.layer == INPUT and not got.isdisjoint(x):
            raise RuntimeError("the input was chosen, but the model was called with x itself: call model(mixed.x)")
        if any(name == "labels" and value is not None for name, value in named) or not got.isdisjoint(
            y - x
        ):  # an autoencoder's targets are its input
            raise RuntimeError(
                "the model was given the targets, and a loss that it computes itself would not be mixed: call it "
                "without them, and take mixed.loss(fn, its prediction)"
            )
        for name, value in named:
            if "mask" in name and isinstance(value, Tensor):
                self._warn_of_padding(name, value)

    def _warn_of_padding(self, name: str, mask: Tensor) -> None:
        mixed = self.block.mixed
        if mask.ndim < 2 or len(mask) != len(mixed.permutation) or any(mask is known for known in mixed._masks):
            return
        if bool((mask != mask[:1]).any()):
            warnings.warn(
                f"{name} differs between the examples, and a mixed example has tokens of two: those of a longer "
                f"partner are masked. Call the model with {name}=mixed.union({name}), and with marks='padding' in it "
                "if the mask is true where no token stands.",
                stacklevel=3,
            )


def refuse_two_batch_dims(tree: Any, length: int, what: str, place: str) -> None:
    """Raise where the batch may be the first or the second dimension, since both have its length."""
    for tensor in tensors(tree):
        if tensor.ndim >= 3 and not tensor.is_nested and tensor.shape[0] == tensor.shape[1] == length:
            raise ValueError(
                f"{what} holds a tensor of shape {tuple(tensor.shape)}, in a model where a layer has the batch "
                f"second: which of the two is the batch here? Say it, with batch_dim={{{place!r}: 0}} or 1"
            )


def _refuse_eval_mode(model: nn.Module) -> None:
    if not model.training:
        raise RuntimeError("the model was put into eval mode inside the block, which mixes: validate after the block")


def _named(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    """The arguments with their names, and the items of those that are dicts, as a batch may be."""
    code = getattr(getattr(type(module), "forward", None), "__code__", None)
    names = code.co_varnames[1 : code.co_argcount] if code is not None else ()
    named = [*zip(names, args, strict=False), *kwargs.items()]
    dicts = [value for value in (*args, *kwargs.values()) if isinstance(value, dict)]
    return named + [item for each in dicts for item in each.items() if isinstance(item[0], str)]


def _ids(tree: Any) -> set[int]:
    return {id(tree)} if isinstance(tree, Tensor) else {id(tensor) for tensor in tensors(tree)}
