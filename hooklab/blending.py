"""Mixing tensors: each example of a batch with its partner, in a tensor or in any nesting of tensors.

Public: :func:`blend`, :func:`blend_all`, :func:`paste_all`, :func:`take_partners`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from hooklab._shared.trees import describe, map_tensors, passed_over, tensors

Lam: TypeAlias = "float | Tensor"  # one for the batch, or one for each example: shape (n,)
Part: TypeAlias = "Callable[[Any], Any]"  # output -> those of its tensors that are to be mixed


def blend(tensor: Tensor, lam: Lam, permutation: Tensor, dim: int = 0) -> Tensor:
    """λ·a + (1-λ)·b, b being a shuffled along its batch dimension; never detached."""
    # index_select gives the bits of tensor[permutation], its gradient too, and is faster in both directions
    partner = tensor.index_select(dim, on_device_of(tensor, permutation))
    if isinstance(lam, Tensor):
        shape = [1] * tensor.ndim
        shape[dim] = -1
        lam = lam.to(tensor.device, tensor.real.dtype).view(shape)
    if type(partner) is not Tensor:
        return lam * tensor + (1 - lam) * partner
    # the same bits in two allocations instead of four; no node of the graph keeps what is overwritten
    return (lam * tensor).add_(partner.mul_(1 - lam))


def blend_all(tree: Any, lam: Lam, permutation: Tensor, what: str, dim: int = 0, part: Part | None = None) -> Any:
    """Blend every tensor of a nesting, or those that ``part`` picks; leave what is beside them as it is."""
    if part is None and type(tree) is Tensor:  # as nearly always; this runs in every step of a training
        check_mixable(tree, permutation.shape[0], what, dim)
        return _blend_if_torch_can(tree, lam, permutation, what, dim)
    picked = None if part is None else _pick(part, tree, what)
    if not isinstance(tree, Tensor):
        require_a_tensor(tree, what, "choose a layer that returns a tensor, or a tuple, list or dict of tensors")
        if picked is None:
            _require_nothing_passed_over(tree, len(permutation), what, dim)
    done: dict[int, Tensor] = {}  # a tensor that comes twice stays one

    def check_and_blend(tensor: Tensor) -> Tensor:
        if picked is not None and id(tensor) not in picked:
            return tensor
        if id(tensor) not in done:
            check_mixable(tensor, len(permutation), what, dim)
            done[id(tensor)] = _blend_if_torch_can(tensor, lam, permutation, what, dim)
        return done[id(tensor)]

    return map_tensors(check_and_blend, tree, copies=False)


def _blend_if_torch_can(tensor: Tensor, lam: Lam, permutation: Tensor, what: str, dim: int) -> Tensor:
    try:
        return blend(tensor, lam, permutation, dim)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError) as error:  # not all: a checkpoint stops what it computes again by an exception
        raise ValueError(
            f"{what} holds a {type(tensor).__name__} of dtype {tensor.dtype} and layout {tensor.layout}, which torch "
            f"cannot mix ({str(error).splitlines()[0] if str(error) else type(error).__name__}); choose another layer"
        ) from error


def _require_nothing_passed_over(tree: Any, length: int, what: str, dim: int) -> None:
    for owner, tensor in passed_over(tree):
        if not tensor.is_nested and tensor.ndim > dim and tensor.shape[dim] == length and tensor.is_floating_point():
            raise ValueError(
                f"{what} holds a tensor of shape {tuple(tensor.shape)} in an attribute of a {owner}, where mixing does "
                "not look, and which would stay as it is. Say which tensors are to be mixed, as in "
                "part=lambda output: output[0], or choose another layer"
            )


def paste_all(tree: Any, box: tuple[slice, slice], permutation: Tensor) -> Any:
    """CutMix: every image gets a rectangle of its partner's."""

    def paste(images: Tensor) -> Tensor:
        check_mixable(images, len(permutation), "the input x")
        mixed = images.clone()
        mixed[..., *box] = images[..., *box].index_select(0, on_device_of(images, permutation))
        return mixed

    return map_tensors(paste, tree)


def take_partners(tree: Any, permutation: Tensor) -> Any:
    """The partners' targets, in a tensor or in a nesting of tensors."""
    if isinstance(tree, Tensor):
        return tree.index_select(0, on_device_of(tree, permutation))
    return map_tensors(lambda one: one.index_select(0, on_device_of(one, permutation)), tree)


def on_device_of(tensor: Tensor, permutation: Tensor) -> Tensor:
    return permutation if permutation.device == tensor.device else permutation.to(tensor.device)


def require_a_tensor(tree: Any, what: str, advice: str) -> None:
    if next(tensors(tree), None) is None:
        raise ValueError(f"{what} is {describe(tree)}, which holds no tensor that could be mixed; {advice}")


def check_mixable(tensor: Tensor, length: int, what: str, dim: int = 0, *, must_be_float: bool = True) -> None:
    if tensor.is_nested:
        raise ValueError(f"{what} holds a nested tensor, whose examples have different lengths; choose another layer")
    if tensor.ndim <= dim or tensor.shape[dim] != length:
        raise ValueError(
            f"{what} holds a tensor of shape {tuple(tensor.shape)}, but y has length {length}: "
            f"to be mixed, every tensor needs the batch as its {_ordinal(dim)} dimension, here {length}. If it is "
            "another one, say batch_dim=1; if only a part of the output has it there, part=lambda output: output[0]"
        )
    if must_be_float and not (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(
            f"{what} holds a tensor of dtype {tensor.dtype}, which cannot be mixed; choose a layer that returns "
            "floating-point numbers only, and for an integer input set include_input=False"
        )


def _pick(part: Part, tree: Any, what: str) -> set[int]:
    picked = {id(tensor) for tensor in tensors(part(tree))}
    if not picked or not picked <= {id(tensor) for tensor in tensors(tree)}:
        raise ValueError(
            f"part must pick tensors of {what}, which is {describe(tree)}, as in part=lambda output: output[0]; it "
            "returned " + ("none" if not picked else "a tensor that is not in it")
        )
    return picked


def _ordinal(dim: int) -> str:
    return ("first", "second", "third")[dim] if dim < 3 else f"{dim + 1}th"
