"""Manifold mixup through one forward hook, for any model as it is.

Public: :class:`ManifoldMixup`, the :class:`Mixed` batch that it yields, and :func:`draw_lambda`.

Source: Verma, Lamb, Beckham, Najafi, Mitliagkas, Courville, Lopez-Paz and Bengio, "Manifold Mixup: Better
Representations by Interpolating Hidden States", ICML 2019 (arXiv:1806.05236), Section 2 and Equation 1. Per minibatch
one layer k of a set S and one λ ~ Beta(α, α); the minibatch is mixed with a shuffled copy of itself; gradients flow
through the whole graph, the layers before k included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn

from hooklab._shared.stale import require_unchanged, steps_to
from hooklab._shared.trees import describe, tensors
from hooklab.blending import Part, blend_all, check_mixable, paste_all, require_a_tensor
from hooklab.drawing import Dice, draw_box, draw_lambda
from hooklab.mixed import INPUT, NOWHERE, Mixed
from hooklab.mixing import MixBlock, refuse_two_batch_dims
from hooklab.places import find_layers, for_each, has_batch_second, require_what_sequence_layers_need, warn_of_insides
from hooklab.selecting import What, all_modules, require_module, uncompiled

__all__ = ["ManifoldMixup", "Mixed", "draw_lambda"]


# Looking at what the model is called with costs a tenth of a percent or more: of the batches mixed at a layer, the
# first ones are watched, and then one in so many. A mistake in a training loop is made in every batch.
_WATCHED = 16


class ManifoldMixup:
    """Train any model with manifold mixup; the model's code stays as it is.

    Each ``with mix(x, y) as mixed`` draws one place (the input or a layer), one λ ~ Beta(α, α) and one permutation.
    Inside the block the chosen layer's output becomes λ·out + (1-λ)·out[permutation], with gradients to both parts;
    after the block, however it ends, the hook is gone.

    Args:
        model: any module. It must be in training mode when a batch is mixed.
        layers: which layers may be chosen: names, globs, types, modules or predicates, as in :func:`hooklab.select`,
            in a list or one alone; ``mix.choices`` lists what they mean. An ``nn.Sequential`` is one layer; an
            ``nn.ModuleList``, which is never called, stands for its modules. A layer may return a tensor or any
            nesting of tuples, lists and dicts of floating-point tensors; each is mixed.
        alpha: of the Beta distribution, above 0. Small: λ close to 0 or 1; 1: uniform; large: λ close to 1/2.
        include_input: may the input ``x`` be chosen too (layer 0 of the paper)? With ``layers=[]`` only the input can
            be chosen, which is input mixup.
        generator: source of place, λ and permutation; default torch's global one. A batch takes the same amount from it
            whatever its length. With several processes it is required: give every rank a generator with the same seed,
            and all ranks agree on place and λ without talking to each other, while each has its own permutation.
        batch_dim: which dimension of a tensor is the batch: a number, or {place: number} where it is not 0.
        part: which tensors of a layer's output are mixed, the rest staying as it is: a function, such as
            ``lambda output: output[0]`` for an LSTM, or {layer: function}.
        weights: {place: how often, in relation to the others}; 1 for a place that is not in it.
        probability: of mixing a batch at all; else ``mixed.layer`` is ``"nowhere"`` and ``mixed.loss`` the plain loss.
        lam_per_example: draw a λ for each example. ``mixed.loss`` then needs a loss function with ``reduction="none"``.
        cutmix: where the input is chosen, paste a rectangle of the partner's image into each image (n, ..., height,
            width) instead of adding the two, and set λ to the share that is left (CutMix, arXiv:1905.04899).

    Raises (when made):
        LookupError: a name in ``layers`` matches nothing; the message lists near names.
        ValueError: ``alpha``, ``probability`` or ``weights`` are out of range, there is nothing to choose from, a layer
            is never called, or is a sequence layer whose batch dimension or part has to be said.
        TypeError: ``model`` is not a module, or ``torch.jit`` compiled it or a layer.

    Warns (when made): a layer lies inside another one. A layer in the branch of a residual block, ``x + branch(x)``,
    gets no warning: only one part of the sum would be mixed, so choose the block.

    Raises (when used):
        RuntimeError: the model is in eval mode, at the start or inside the block; the chosen layer did not run in the
            block, or ran twice, or will run again after it (in a checkpoint); the input was chosen and the model
            was not called with ``mixed.x``; the model was given the targets; several processes have no generator, or
            different ones; one block was entered twice, or inside another one.
        ValueError: ``x``, ``y`` or the layer's output do not have the batch where it is said to be, or hold
            no tensor, or something other than floating-point numbers, where it would be mixed; or a tensor in an
            attribute of an object, where mixing does not look; or one that torch cannot mix (nested, float8 …).

    Warns (when used): a padding mask is that of the examples without their partners (see :meth:`Mixed.union`).

    Under ``torch.compile``: compiled code does not look for hooks that came later, so a batch mixed at a layer runs its
    block eagerly, while a batch mixed at the input runs compiled. To keep the speed, compile the stages
    (``model.stage = torch.compile(model.stage)``) and choose those: their hooks run outside the compiled code.

    Under activation checkpointing a layer runs again in the backward pass, and must be mixed again: call ``backward()``
    inside the block if a layer in a checkpointed segment may be chosen.

    Example:
        >>> import hooklab
        >>> import torch.nn.functional as F
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> mix = hooklab.ManifoldMixup(model, ["1"], alpha=2.0, generator=torch.Generator().manual_seed(0))
        >>> x, y = torch.rand(5, 4), torch.tensor([0, 1, 2, 0, 1])
        >>> with mix(x, y) as mixed:
        ...     loss = mixed.loss(F.cross_entropy, model(mixed.x))
        >>> loss.backward()
        >>> mixed.layer in ("1", "input"), 0 <= mixed.lam <= 1, sorted(mixed.permutation.tolist())
        (True, True, [0, 1, 2, 3, 4])
    """

    def __init__(
        self,
        model: nn.Module,
        layers: What | Iterable[What],
        alpha: float = 2.0,
        *,
        include_input: bool = True,
        generator: torch.Generator | None = None,
        batch_dim: int | Mapping[str, int] | None = None,
        part: Part | Mapping[str, Part] | None = None,
        weights: Mapping[str, float] | None = None,
        probability: float = 1.0,
        lam_per_example: bool = False,
        cutmix: bool = False,
    ) -> None:
        require_module(model)
        found = find_layers(model, _as_list(layers))
        if not found and not include_input:
            raise ValueError("nothing to choose from: name at least one layer, or leave include_input=True")
        if cutmix and (lam_per_example or not include_input):
            raise ValueError("cutmix needs include_input=True, and one λ for the batch: leave out lam_per_example")
        self.model = model
        self.include_input = include_input
        self.cutmix = cutmix
        self._layers = {name: _outermost_wrapper(model, layer) for name, layer in found.items()}
        self._around_wrappers = {
            name: _modules_around(model, layer)
            for name, layer in self._layers.items()
            if uncompiled(layer) is not layer
        }
        given_weights = for_each(self.choices, weights or {}, "weights")
        each_weight = [given_weights.get(name, 1.0) for name in self.choices]
        self.dice = Dice(self.choices, each_weight, alpha, generator, probability, lam_per_example)
        self._batch_dims = for_each(self.choices, batch_dim, "batch_dim")
        self._parts = for_each(list(found), part, "part")
        require_what_sequence_layers_need(found, self._batch_dims, self._parts)
        second = has_batch_second(model)
        self._may_be_second = {
            name
            for name in self.choices
            if name not in self._batch_dims and (second or isinstance(found.get(name), nn.RNNBase))
        }
        self._batches = 0
        self._steps = steps_to(model, found)
        warn_of_insides(model, found)

    @property
    def choices(self) -> list[str]:
        """What a batch may be mixed at: ``"input"`` (if included) and the layers' names."""
        return [INPUT] * self.include_input + list(self._layers)

    def __call__(self, x: Any, y: Any, *, like: Mixed | None = None) -> AbstractContextManager[Mixed]:
        """Mix one batch: ``x`` and ``y`` tensors, or nestings of tensors, all of length n in the batch dimension.

        With ``like``, a batch that was mixed before, by this or another ManifoldMixup, nothing is drawn: place, λ and
        permutation are the same, as two views of the same examples or two models need.
        """
        require_unchanged(self._steps, "ManifoldMixup")
        self._batches += 1
        length, device = self._check_batch(x, y)
        if like is None:
            mixed = Mixed(x, y, *self.dice.throw(self.model, length, device))
        else:
            mixed = self._drawn_like(like, x, y, length)
        if mixed.layer in (INPUT, NOWHERE):
            if mixed.layer == INPUT:
                self._mix_input(mixed, like)
            return MixBlock(self.model, mixed, x)
        layer, around = self._layers[mixed.layer], self._around_wrappers.get(mixed.layer)
        return MixBlock(
            self.model,
            mixed,
            x,
            layer,
            batch_dim=self._batch_dims.get(mixed.layer, 0),
            part=self._parts.get(mixed.layer),
            may_be_second=mixed.layer in self._may_be_second,
            stays_compiled=around is not None and not _is_inside_compiled(layer, around),
            watches=self._batches <= _WATCHED or self._batches % _WATCHED == 0,
        )

    def _check_batch(self, x: Any, y: Any) -> tuple[int, torch.device]:
        """The length of the batch, and the device of its targets."""
        if not self.model.training:
            raise RuntimeError("the model is in eval mode, where mixing is a mistake: call model.train() first")
        first, length = _length_of_targets(y)
        if self.include_input:
            if not isinstance(x, Tensor):
                require_a_tensor(x, "x", "for such an input set include_input=False")
            for tensor in (x,) if isinstance(x, Tensor) else tensors(x):
                check_mixable(tensor, length, "x", self._batch_dims.get(INPUT, 0))
        elif isinstance(x, Tensor) and not x.is_nested and length not in x.shape:
            check_mixable(x, length, "x", must_be_float=False)
        if INPUT in self._may_be_second:
            refuse_two_batch_dims(x, length, "x", INPUT)
        return length, first.device

    def _drawn_like(self, like: Mixed, x: Any, y: Any, length: int) -> Mixed:
        if like.layer not in (*self.choices, NOWHERE):
            raise ValueError(f"like was mixed at {like.layer!r}, where this one cannot mix, only at {self.choices}")
        if len(like.permutation) != length:
            raise ValueError(f"like has {len(like.permutation)} examples, y has {length}: they must be the same ones")
        return Mixed(x, y, like.lam, like.permutation, like.layer)

    def _mix_input(self, mixed: Mixed, like: Mixed | None) -> None:
        x = mixed._x
        if not self.cutmix:
            dim = self._batch_dims.get(INPUT, 0)
            mixed._x = blend_all(x, mixed.lam, mixed.permutation, "the input x", dim)
            return
        sizes = {tuple(tensor.shape[-2:]) for tensor in tensors(x) if tensor.ndim >= 3}
        if len(sizes) != 1 or 0 in next(iter(sizes)) or any(tensor.ndim < 3 for tensor in tensors(x)):
            raise ValueError(
                f"cutmix needs images of shape (n, ..., height, width), all of one size above 0, but x is {describe(x)}"
            )
        ((height, width),) = sizes
        rows, columns = mixed._box = (
            like._box
            if like is not None and like._box is not None
            else draw_box(height, width, float(mixed.lam), self.dice.own)
        )
        mixed.lam = 1 - (rows.stop - rows.start) * (columns.stop - columns.start) / (height * width)
        mixed._x = paste_all(x, mixed._box, mixed.permutation)


def _length_of_targets(y: Any) -> tuple[Tensor, int]:
    """The first tensor of the targets, and their length."""
    if isinstance(y, Tensor) and y.ndim:
        return y, y.shape[0]
    targets = [y] if isinstance(y, Tensor) else list(tensors(y))
    if not targets:
        raise ValueError(
            f"y is {describe(y)}, which holds no tensor: pass torch.as_tensor(y), or a tuple or dict of tensors"
        )
    for target in targets:
        if target.ndim == 0:
            raise ValueError("y must have the batch as its first dimension, got a single number")
        if len(target) != len(targets[0]):
            raise ValueError(f"y holds targets of different lengths, {len(targets[0])} and {len(target)}")
    return targets[0], len(targets[0])


def _as_list(layers: Any) -> list[What]:
    is_one = isinstance(layers, (str, nn.Module)) or callable(layers)
    return [layers] if is_one else list(layers)


def _outermost_wrapper(model: nn.Module, layer: nn.Module) -> nn.Module:
    """The wrapper by which ``model`` calls ``layer`` if torch.compile wrapped it, else ``layer`` itself."""
    return next(module for _, module in all_modules(model) if uncompiled(module) is layer)


def _modules_around(model: nn.Module, layer: nn.Module) -> list[nn.Module]:
    """``layer`` and every module of ``model`` that contains it."""
    return [module for _, module in all_modules(model) if any(inner is layer for _, inner in all_modules(module))]


def _is_inside_compiled(wrapper: nn.Module, around: list[nn.Module]) -> bool:
    """Is a module that torch.compile wrapped also part of something larger that is compiled, and so traced with it?

    If not, the wrapper calls its own hooks outside the compiled code. Of a module without a wrapper one can never be
    sure: ``fast = torch.compile(model)`` leaves no mark on the model.
    """
    return any(
        module._compiled_call_impl is not None or (module is not wrapper and uncompiled(module) is not module)
        for module in around
    )
