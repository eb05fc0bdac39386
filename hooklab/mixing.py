"""One batch: :class:`Mixed`, which ``with mix(x, y) as mixed`` gives, how tensors are mixed, and what is open during
that: :class:`MixBlock`, its two hooks, and the mistakes that they notice."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hooklab._shared.sessions import Hook, Session, will_run_again
from hooklab._shared.torch_private import backward_number, may_have_compiled
from hooklab._shared.trees import describe, map_tensors, passed_over, tensors

INPUT = "input"


class Mixed:
    """One mixed batch.

    Attributes:
        x: the mixed input if the input was chosen, otherwise the ``x`` that you passed.
        y: the targets that you passed: a tensor of length n, or a nesting of such tensors.
        lam: λ, a float in [0, 1]: the share of each example itself. Its partner has the share 1-λ.
        permutation: int64 tensor of length n on the targets' device; ``permutation[i]`` is the partner of example i.
        layer: the name of the chosen layer, or ``"input"``.
    """

    __slots__ = ("_masks", "_x", "_x_was_read", "lam", "layer", "permutation", "y")

    def __init__(self, x: Any, y: Any, lam: float, permutation: Tensor, layer: str) -> None:
        self._x = x
        self.y = y
        self.lam = lam
        self.permutation = permutation
        self.layer = layer
        self._x_was_read = False
        self._masks: list[Tensor] = []

    @property
    def x(self) -> Any:
        """The input to call the model with."""
        self._x_was_read = True
        return self._x

    def loss(self, fn: Callable[[Any, Any], Tensor], prediction: Any) -> Tensor:
        """λ·fn(prediction, y) + (1-λ)·fn(prediction, partners' y), in the shape that ``fn`` returns.

        ``y`` may be class indices, soft targets, or a tuple or dict of several targets: whatever ``fn`` takes.

        For cross entropy this equals the loss against :meth:`soft_targets`, because cross entropy is linear in its
        target. With ``weight=`` or ``ignore_index`` that holds for each example (``reduction="none"``) but not for the
        mean: PyTorch divides it by the summed weights of the targets if they are class indices, and by n if they are
        soft. For a mean in which each example counts the same, use ``mixed.loss(fn_without_reduction, logits).mean()``.
        """
        partners = map_tensors(lambda one: _partners(one, self.permutation), self.y)
        return self.lam * fn(prediction, self.y) + (1 - self.lam) * fn(prediction, partners)

    def soft_targets(self, num_classes: int | None = None) -> Tensor:
        """The mixed targets, λ·y + (1-λ)·partners' y, as floating-point numbers.

        Args:
            num_classes: the number of classes, if y holds class indices, of shape (n,) or, for maps and sequences,
                (n, H, W) and the like. The classes become the second dimension, where cross entropy expects them:
                (n, classes, H, W). Without it, y itself is mixed: soft, one-hot or 0/1 targets, or numbers to regress.

        Raises:
            ValueError: ``y`` holds class indices and ``num_classes`` is missing, or indices outside of
                0 … num_classes-1, such as an ignored -100.
            TypeError: ``y`` isn't a single tensor.
        """
        y = self.y
        if not isinstance(y, Tensor):
            raise TypeError(f"soft_targets mixes one tensor, but y is a {type(y).__name__}: use mixed.loss(...)")
        if not y.is_floating_point():
            low, high = (int(y.min()), int(y.max())) if y.numel() else (0, 0)
            if num_classes is not None:
                if low < 0 or high >= num_classes:
                    raise ValueError(
                        f"y has labels from {low} to {high}, and soft targets need 0 to {num_classes - 1}. For labels "
                        "that the loss ignores, use mixed.loss(nn.CrossEntropyLoss(ignore_index=...), logits)"
                    )
                y = F.one_hot(y.long(), num_classes).movedim(-1, 1)
            elif y.ndim == 1 or low < 0 or high > 1:
                raise ValueError("targets that are class indices need soft_targets(num_classes=...)")
            y = y.to(torch.get_default_dtype())
        return blend(y, self.lam, self.permutation)

    def union(self, mask: Tensor, *, marks: str = "kept") -> Tensor:
        """A mask of shape (n, ...) for the mixed examples: a position counts if it does in an example or its partner.

        ``marks``: "kept" if the mask is true (or 1) where tokens are, like ``attention_mask``; "padding" if it is true
        where there are none, like ``key_padding_mask``.
        """
        if marks not in ("kept", "padding"):
            raise ValueError(f'marks is "kept" or "padding", not {marks!r}')
        partners = _partners(mask, self.permutation)
        joined = mask.maximum(partners) if marks == "kept" else mask.minimum(partners)
        self._masks.append(joined)
        return joined

    def __repr__(self) -> str:
        return f"Mixed(layer={self.layer!r}, lam={self.lam:.3f}, examples={len(self.permutation)})"


def blend(tensor: Tensor, lam: float, permutation: Tensor, dim: int = 0) -> Tensor:
    """λ·a + (1-λ)·b, where b is a, shuffled along its batch dimension; never detached."""
    partners = _partners(tensor, permutation, dim)
    if type(partners) is not Tensor:
        return lam * tensor + (1 - lam) * partners
    # the same bits in two allocations instead of four; no node of the graph saves what is overwritten
    return (lam * tensor).add_(partners.mul_(1 - lam))


def _partners(tensor: Tensor, permutation: Tensor, dim: int = 0) -> Tensor:
    # index_select gives the bits of tensor[permutation], and of its gradient, and is faster in both directions
    return tensor.index_select(dim, permutation.to(tensor.device))


def blend_all(tree: Any, lam: float, permutation: Tensor, what: str, dim: int = 0) -> Any:
    """Blend every tensor of a nesting; ``what`` names it in errors."""
    require_a_tensor(tree, what, "choose a layer that returns a tensor, or a tuple, list or dict of tensors")
    if type(tree) is not Tensor:
        for owner, tensor in passed_over(tree):
            if not tensor.is_nested and tensor.ndim > dim and tensor.shape[dim] == len(permutation):
                raise ValueError(
                    f"{what} holds a tensor of shape {tuple(tensor.shape)} in an attribute of a {owner}, which mixing "
                    "would leave unchanged: choose another layer"
                )
    done: dict[int, Tensor] = {}  # a tensor that comes twice stays one

    def check_and_blend(tensor: Tensor) -> Tensor:
        if id(tensor) not in done:
            check_mixable(tensor, len(permutation), what, dim)
            done[id(tensor)] = _blend_if_torch_can(tensor, lam, permutation, what, dim)
        return done[id(tensor)]

    return map_tensors(check_and_blend, tree, copies=False)


def _blend_if_torch_can(tensor: Tensor, lam: float, permutation: Tensor, what: str, dim: int) -> Tensor:
    try:
        return blend(tensor, lam, permutation, dim)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError) as error:  # not all: a checkpoint ends its recomputation with an exception
        raise ValueError(
            f"{what} holds a {type(tensor).__name__} of dtype {tensor.dtype} and layout {tensor.layout}, which torch "
            f"cannot mix ({str(error).splitlines()[0] if str(error) else type(error).__name__}); choose another layer"
        ) from error


def require_a_tensor(tree: Any, what: str, advice: str) -> None:
    if type(tree) is not Tensor and next(tensors(tree), None) is None:
        raise ValueError(f"{what} is {describe(tree)}, which holds no tensor that could be mixed; {advice}")


def check_mixable(tensor: Tensor, length: int, what: str, dim: int = 0, *, must_be_float: bool = True) -> None:
    """Raise ValueError unless the tensor has the batch where it should be, and floating-point numbers."""
    if tensor.is_nested:
        raise ValueError(f"{what} holds a nested tensor, whose examples have different lengths; choose another layer")
    if tensor.ndim <= dim or tensor.shape[dim] != length:
        others = [number for number, size in enumerate(tensor.shape) if size == length]
        advice = "if it holds a part of the batch, or several dimensions in one, choose another layer"
        if others:
            advice = f"if dimension {others[0]} is, say batch_dim={others[0]}; {advice}"
        raise ValueError(
            f"{what} holds a tensor of shape {tuple(tensor.shape)}, but y has length {length}, so dimension {dim} is "
            f"not the batch; {advice}"
        )
    if must_be_float and not (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(
            f"{what} holds a tensor of dtype {tensor.dtype}, which cannot be mixed; choose a layer that returns "
            "floating-point numbers only, and for an integer input set include_input=False"
        )


class MixBlock(Session):
    """One batch, mixed at a layer or at the input. It is entered once: its batch has been drawn, and is mixed once."""

    def __init__(self, model: nn.Module, mixed: Mixed, given_x: Any, layer: nn.Module | None, batch_dim: int) -> None:
        super().__init__()
        self.model = model
        self.mixed = mixed
        self.given_x = given_x
        self.layer = layer
        self.batch_dim = batch_dim
        self.owner = self.thread  # also once it is over
        self.runs = 0
        self.must_run_again = False
        self.was_entered = False

    def __enter__(self) -> Mixed:
        if self.was_entered:
            raise RuntimeError("this batch was mixed already: write `with mix(x, y) as mixed` for each batch")
        for hook in list(self.model._forward_pre_hooks.values()):
            other = getattr(hook.function, "__self__", None) if isinstance(hook, Hook) else None
            # a block of another thread may be about to close
            if not isinstance(other, MixBlock) or other.model is not self.model or other.owner != self.owner:
                continue
            if other.thread is None:
                other.close()  # an interrupt kept it from doing so
            else:
                raise RuntimeError(
                    "another batch of this model is being mixed, and a block inside its block would mix twice: end "
                    "that one first. For a second view with the same draw: `with mix(x2, y, like=mixed) as second`"
                )
        self.was_entered = True
        self.open(eagerly=self.layer is not None)
        return self.mixed

    def __exit__(self, exception_type: object, exception: object, traceback: object) -> None:
        if not self.is_open:
            raise RuntimeError("this block is not open: begin it with `with mix(x, y) as mixed`")
        self.thread = None  # first of all: from here on its hooks do nothing, even if an interrupt leaves them in place
        try:
            self.close()
        except KeyboardInterrupt:
            self.close()  # closing twice is harmless
            raise
        if exception_type is None:
            self.object_if_nothing_was_mixed()

    def attach(self) -> None:
        if self.layer is not None or not may_have_compiled():  # compiled code would have to trace the watching hook
            self.before(self.model, self.look_at_the_call, with_kwargs=True, prepend=True)
        if self.layer is not None:
            self.after(self.layer, self.mix)

    def mix(self, module: nn.Module, args: Any, output: Any) -> Any:
        """The layer's output, mixed."""
        if self.is_foreign():
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

    def object_if_nothing_was_mixed(self) -> None:
        mixed = self.mixed
        if mixed.layer == INPUT and not mixed._x_was_read:
            raise RuntimeError("the input was chosen for mixing, but mixed.x was not used: call model(mixed.x)")
        if self.layer is not None and self.runs == 0:
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

    def look_at_the_call(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise if the model is called with what was not mixed, and warn of padding masks."""
        if self.is_foreign():
            return
        mixed = self.mixed
        _refuse_eval_mode(self.model)
        named = _named(module, args, kwargs)
        got, x, y = _ids([*args, *kwargs.values()]), _ids(self.given_x), _ids(mixed.y)
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
                self.warn_of_padding(name, value)

    def warn_of_padding(self, name: str, mask: Tensor) -> None:
        try:
            is_batch = mask.ndim >= 2 and len(mask) == len(self.mixed.permutation)
            is_known = any(mask is known for known in self.mixed._masks)
            differs = is_batch and not is_known and bool((mask != mask[:1]).any())
        except Exception:  # no numbers to read, as on the meta device
            return
        if differs:
            warnings.warn(
                f"{name} differs between the examples, and a mixed example has tokens of two: those of a longer "
                f"partner are masked. Call the model with {name}=mixed.union({name}), and with marks='padding' in it "
                "if the mask is true for padding.",
                stacklevel=4,
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
