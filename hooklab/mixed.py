"""The mixed batch that ``with mix(x, y) as mixed`` gives: :class:`Mixed`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hooklab.blending import Lam, blend, on_device_of, take_partners

INPUT = "input"
NOWHERE = "nowhere"


class Mixed:
    """One mixed batch, as ``with mix(x, y) as mixed`` gives it.

    Attributes:
        x: the mixed input if the input was chosen, else the ``x`` that came.
        y: the targets as they came: a tensor of length n, or a nesting of such tensors.
        lam: λ, a float in [0, 1], the share of each example itself; 1-λ is the share of its partner. With
            ``lam_per_example=True`` a tensor of shape (n,).
        permutation: int64 tensor of length n on the targets' device; ``permutation[i]`` is the partner of example i.
        layer: name of the chosen layer, or ``"input"``, or ``"nowhere"`` if this batch is not mixed.
    """

    __slots__ = ("_box", "_masks", "_x", "_x_was_read", "lam", "layer", "permutation", "y")

    def __init__(self, x: Any, y: Any, lam: Lam, permutation: Tensor, layer: str) -> None:
        self._x = x
        self.y = y
        self.lam = lam
        self.permutation = permutation
        self.layer = layer
        self._x_was_read = False
        self._box: tuple[slice, slice] | None = None
        self._masks: list[Tensor] = []

    @property
    def x(self) -> Any:
        """What the model is to be called with."""
        self._x_was_read = True
        return self._x

    def loss(self, fn: Callable[[Any, Any], Tensor], prediction: Any) -> Tensor:
        """λ·fn(prediction, y) + (1-λ)·fn(prediction, partners' y), in whatever shape ``fn`` returns.

        ``y`` may be class indices, soft targets, or a tuple or dict of several targets: whatever ``fn`` takes.

        For cross entropy this equals the loss against :meth:`soft_targets`, because cross entropy is linear in its
        target. With ``weight=`` or ``ignore_index`` that holds for each example (``reduction="none"``), not for the
        mean: PyTorch divides it by the summed weights of the targets where they are class indices, and by n where they
        are soft. A mean that weighs each example alike is ``mixed.loss(fn_with_reduction_none, logits).mean()``.

        Raises:
            ValueError: there is a λ for each example, and ``fn`` returns no loss for each example.
        """
        if self.layer == NOWHERE:
            return fn(prediction, self.y)
        own, partner = fn(prediction, self.y), fn(prediction, take_partners(self.y, self.permutation))
        if not isinstance(self.lam, Tensor):
            return self.lam * own + (1 - self.lam) * partner
        if own.ndim == 0 or len(own) != len(self.lam):
            raise ValueError(
                f"with a λ for each example the loss function must return {len(self.lam)} losses, one for each, but it "
                f'returned shape {tuple(own.shape)}: use reduction="none", and then .mean()'
            )
        lam = self.lam.to(own.device, own.dtype).view(-1, *[1] * (own.ndim - 1))
        return lam * own + (1 - lam) * partner

    def soft_targets(self, num_classes: int | None = None, *, smoothing: float = 0.0) -> Tensor:
        """The mixed targets, λ·y + (1-λ)·partners' y, as floating-point numbers.

        With ``num_classes``, y holds class indices, of shape (n,) or, for maps and sequences, (n, H, W) and the like;
        the result has the classes as its second dimension, as cross entropy takes them: (n, classes, H, W). Without,
        y is mixed as it is: soft, one-hot or 0/1 targets, or numbers of a regression.

        Args:
            num_classes: how many classes the indices stand for.
            smoothing: this share of each target is spread evenly over all classes.

        Raises:
            ValueError: ``y`` holds class indices and ``num_classes`` is missing.
            TypeError: ``y`` is no single tensor.
        """
        y = self.y
        if not isinstance(y, Tensor):
            raise TypeError(f"soft_targets mixes one tensor, but y is a {type(y).__name__}: use mixed.loss(...)")
        if num_classes is not None and not y.is_floating_point():
            y = F.one_hot(y, num_classes).movedim(-1, 1)
        if not y.is_floating_point():
            if y.numel() and (y.min() < 0 or y.max() > 1):
                raise ValueError("targets that are class indices need soft_targets(num_classes=...)")
            if y.ndim == 1:
                raise ValueError("targets that are class indices need soft_targets(num_classes=...)")
            y = y.to(torch.get_default_dtype())
        if smoothing:
            y = (1 - smoothing) * y + smoothing / y.shape[1]
        return blend(y, self.lam, self.permutation)

    def bce_loss(self, logits: Tensor) -> Tensor:
        """Binary cross entropy between softmax(logits) and :meth:`soft_targets`, mean over examples and classes.

        This is the loss of the authors' own training script (``supervised/main.py`` in
        github.com/vikasverma1077/manifold_mixup), where Equation 1 leaves the loss open. It is computed in float32
        at least, outside autocast.
        """
        with torch.autocast(logits.device.type, enabled=False):
            dtype = torch.promote_types(logits.dtype, torch.float32)
            probabilities = logits.to(dtype).softmax(dim=1)
            are_indices = isinstance(self.y, Tensor) and self.y.ndim < logits.ndim
            targets = self.soft_targets(logits.shape[1] if are_indices else None)
            return F.binary_cross_entropy(probabilities, targets.to(dtype))

    def union(self, mask: Tensor, *, marks: str = "kept") -> Tensor:
        """A mask of shape (n, ...) for the mixed examples: a position counts if it does in an example or its partner.

        ``marks``: "kept", if the mask is true (or 1) where tokens are, as ``attention_mask``; "padding", if it is true
        where there are none, as ``key_padding_mask``.
        """
        if marks not in ("kept", "padding"):
            raise ValueError(f'marks is "kept" or "padding", not {marks!r}')
        if self.layer == NOWHERE:
            joined = mask
        else:
            partner = mask.index_select(0, on_device_of(mask, self.permutation))
            joined = mask.maximum(partner) if marks == "kept" else mask.minimum(partner)
        self._masks.append(joined)
        return joined

    def __repr__(self) -> str:
        lam = "one per example" if isinstance(self.lam, Tensor) else f"{self.lam:.3f}"
        return f"Mixed(layer={self.layer!r}, lam={lam}, examples={len(self.permutation)})"
