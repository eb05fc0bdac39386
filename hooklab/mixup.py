"""Manifold mixup with one forward hook, for any model: :class:`ManifoldMixup`, which gives :class:`Mixed` batches.

Source: Verma, Lamb, Beckham, Najafi, Mitliagkas, Courville, Lopez-Paz and Bengio, "Manifold Mixup: Better
Representations by Interpolating Hidden States", ICML 2019 (arXiv:1806.05236), Section 2 and Equation 1. Per minibatch
one layer k of a set S and one λ ~ Beta(α, α); the minibatch is mixed with a shuffled copy of itself; gradients flow
through the whole graph, the layers before k included.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn

from hooklab._shared.stale import require_unchanged, steps_to
from hooklab._shared.trees import describe, tensors
from hooklab.mixing import INPUT, MixBlock, Mixed, blend_all, check_mixable, require_a_tensor
from hooklab.selecting import (
    What,
    all_modules,
    first_few,
    has_forward,
    require_module,
    select_for_hooks,
    unwrapped,
)

__all__ = ["ManifoldMixup", "Mixed"]

_several_processes: Callable[[], bool] = (
    torch.distributed.is_initialized if torch.distributed.is_available() else lambda: False
)


class ManifoldMixup:
    """Train any model with manifold mixup, without a change to its code.

    Each ``with mix(x, y) as mixed`` draws one place (the input or a layer), one λ ~ Beta(α, α) and one permutation.
    Inside the block the chosen layer's output becomes λ·out + (1-λ)·out[permutation], with gradients to both parts.
    When the block ends, even if it raises, the hook is removed.

    Args:
        model: any module. It must be in training mode when a batch is mixed.
        layers: which layers may be chosen, as in :func:`hooklab.select`, in a list or a single one; ``mix.choices``
            lists the result. Choose whole residual blocks: inside one, only a summand would be mixed. A layer may
            return a tensor or any nesting of tuples, lists and dicts of floating-point tensors; each of them is mixed.
        alpha: of the Beta distribution, above 0. Small: λ close to 0 or 1; 1: uniform; large: λ close to 1/2.
        include_input: whether the input ``x`` may be chosen too (layer 0 of the paper). With ``layers=[]`` only the
            input can be chosen, which is input mixup.
        generator: source of place, λ and permutation; default torch's global one. A batch takes the same amount from it
            whatever its length. With several processes it is required: give every rank a generator with the same seed.
            All ranks then agree on place and λ without communication, while each has its own permutation.
        batch_dim: the dimension of the batch, in the input and in the layers' outputs; 0 if left out.

    Raises when made:
        LookupError: a name in ``layers`` matches nothing.
        ValueError: ``alpha`` is out of range; there is nothing to choose from; a layer is never called, or is a
            recurrent one; a layer of the model has ``batch_first=False``, and ``batch_dim`` is not given.
        TypeError: ``model`` is not a module, or ``torch.jit`` compiled it or one of the layers.

    Raises when used:
        RuntimeError: the model is in eval mode, at the start or inside the block; the chosen layer did not run in the
            block, or ran twice, or will run again after it (in a checkpoint: call ``backward()`` inside the block); the
            input was chosen and the model was not called with ``mixed.x``; the model was given the targets; several
            processes have no generator, or different ones; one block was entered twice, or inside another block.
        ValueError: ``x``, ``y`` or the layer's output do not have the batch in the expected dimension, or hold no
            tensor, or something other than floating-point numbers; or torch cannot mix them (nested, float8 …).

    Warns if a layer is inside another one, and if a padding mask is that of the examples without their partners (see
    :meth:`Mixed.union`). Under ``torch.compile`` a batch that is mixed at a layer runs eagerly.

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
        batch_dim: int | None = None,
    ) -> None:
        require_module(model)
        if not 0 < alpha < math.inf:
            raise ValueError(f"alpha must be a finite number above 0, got {alpha}; for no mixup, leave the block out")
        self.model = model
        self.alpha = alpha
        self.include_input = include_input
        self.generator = generator
        self._layers = _find_layers(model, layers)
        if not self.choices:
            raise ValueError("nothing to choose from: name at least one layer, or leave include_input=True")
        if batch_dim is None:
            _require_batch_first(model)
        self._batch_dim = batch_dim or 0
        _warn_of_nested(list(self._layers))
        self._steps = steps_to(model, self._layers)
        self._ranks_were_compared = False

    @property
    def choices(self) -> list[str]:
        """The places where a batch may be mixed: ``"input"`` (if included) and the layers' names."""
        return [INPUT] * self.include_input + list(self._layers)

    def __call__(self, x: Any, y: Any, *, like: Mixed | None = None) -> AbstractContextManager[Mixed]:
        """Mix one batch: ``x`` and ``y`` tensors, or nestings of tensors, all of length n in the batch dimension.

        With ``like``, a batch that was mixed before, by this or another ManifoldMixup, nothing is drawn: place, λ and
        permutation are the same, as two views of the same examples or two models need.
        """
        require_unchanged(self._steps, "ManifoldMixup")
        if not self.model.training:
            raise RuntimeError("the model is in eval mode, where mixing is a mistake: call model.train() first")
        targets = _tensors_of_targets(y)
        length = len(targets[0])
        self._check_input(x, length)
        if like is None:
            mixed = Mixed(x, y, *self._draw(length, targets[0].device))
        elif like.layer not in self.choices:
            raise ValueError(f"like was mixed at {like.layer!r}, where this one cannot mix, only at {self.choices}")
        elif len(like.permutation) != length:
            raise ValueError(f"like has {len(like.permutation)} examples, y has {length}: they must be the same ones")
        else:
            mixed = Mixed(x, y, like.lam, like.permutation, like.layer)
        if mixed.layer == INPUT:
            mixed._x = blend_all(x, mixed.lam, mixed.permutation, "the input x", self._batch_dim)
        return MixBlock(self.model, mixed, x, self._layers.get(mixed.layer), self._batch_dim)

    def _check_input(self, x: Any, length: int) -> None:
        if self.include_input:
            require_a_tensor(x, "x", "for such an input set include_input=False")
            for tensor in tensors(x):
                check_mixable(tensor, length, "x", self._batch_dim)
        elif isinstance(x, Tensor) and not x.is_nested and length not in x.shape:
            check_mixable(x, length, "x", must_be_float=False)

    def _draw(self, length: int, device: torch.device) -> tuple[float, Tensor, str]:
        """λ, the permutation on ``device``, and the place."""
        rank = torch.distributed.get_rank() if _several_processes() else 0
        if self.generator is None and _several_processes() and torch.distributed.get_world_size() > 1:
            raise RuntimeError(
                "several processes must agree on layer and λ: give each rank ManifoldMixup(..., "
                "generator=torch.Generator().manual_seed(seed)) with the same seed"
            )
        choice, seed, *four = _uniform(6, self.generator)
        self._compare_ranks(seed)
        # the shared generator must not advance by the length of this rank's batch
        own = torch.Generator().manual_seed(int(seed * 2**53) + rank)
        permutation = torch.randperm(length, generator=own).to(device)
        return _beta(self.alpha, *four), permutation, self.choices[int(choice * len(self.choices))]

    def _compare_ranks(self, seed: float) -> None:
        """Check once whether all ranks drew the same, if DistributedDataParallel makes them wait for each other."""
        group = getattr(self.model, "process_group", None)
        if group is None or self._ranks_were_compared:
            return
        self._ranks_were_compared = True
        device = next((parameter.device for parameter in self.model.parameters()), torch.device("cpu"))
        highest = torch.tensor([seed, -seed], dtype=torch.float64, device=device)
        torch.distributed.all_reduce(highest, torch.distributed.ReduceOp.MAX, group=group)
        if highest[0] != -highest[1]:
            raise RuntimeError(
                "the ranks drew differently, and would mix at different layers: give each rank a generator with the "
                "same seed, generator=torch.Generator().manual_seed(seed)"
            )


def _uniform(count: int, generator: torch.Generator | None) -> list[float]:
    device = torch.device("cpu") if generator is None else generator.device
    numbers: list[float] = torch.rand(count, dtype=torch.float64, generator=generator, device=device).tolist()
    return numbers


def _beta(alpha: float, u: float, turn: float, v: float, w: float) -> float:
    """Beta(α, α) from four uniform numbers in [0, 1), exact for every α > 0.

    First B ~ Beta(α+1, α+1) in closed form (Ulrich, "Computer Generation of Distributions on the m-Sphere", Applied
    Statistics 33, 1984). B is G/(G+H) of two gamma variables of shape α+1; G·V^(1/α) and H·W^(1/α) have shape α
    (Stuart's theorem). Both are in Devroye, "Non-Uniform Random Variate Generation", 1986, chapter IX. In terms of
    log(λ / (1-λ)) the last step is a sum, which stays exact where V^(1/α) would be 0.
    """
    radius = math.sqrt(-math.expm1(math.log1p(-u) / (alpha + 0.5)))
    logit_of_b = 2.0 * math.atanh(radius * math.cos(2.0 * math.pi * turn))
    logit = logit_of_b + (math.log1p(-v) - math.log1p(-w)) / alpha
    return 0.5 + 0.5 * math.tanh(0.5 * logit)


def _tensors_of_targets(y: Any) -> list[Tensor]:
    targets = list(tensors(y))
    if not targets:
        raise ValueError(
            f"y is {describe(y)}, which holds no tensor: pass torch.as_tensor(y), or a tuple or dict of tensors"
        )
    for target in targets:
        if target.ndim == 0:
            raise ValueError("y must have the batch as its first dimension, got a single number")
        if len(target) != len(targets[0]):
            raise ValueError(f"y holds targets of different lengths, {len(targets[0])} and {len(target)}")
    return targets


# Where a batch can be mixed


def _find_layers(model: nn.Module, layers: Any) -> dict[str, nn.Module]:
    """The selected layers by name, in the order of the model."""
    is_one = isinstance(layers, (str, nn.Module)) or callable(layers)
    what: list[What] = [layers] if is_one else list(layers)
    found = select_for_hooks(model, *what) if what else {}
    for name, module in found.items():
        kind = type(unwrapped(module)).__name__
        if not has_forward(module):
            raise ValueError(f"{name!r}, a {kind}, has no forward and is never called: choose another")
        if isinstance(unwrapped(module), nn.RNNBase):
            raise ValueError(
                f"{name!r}, a {kind}, returns outputs and states, which have the batch in different dimensions: choose "
                "the module that uses its output"
            )
    return found


def _require_batch_first(model: nn.Module) -> None:
    """Raise ValueError if a layer has the batch as its second dimension by default."""
    for name, module in all_modules(model):
        # not by getattr alone: a module's __getattr__ may accept any name
        if vars(module).get("batch_first", getattr(type(module), "batch_first", True)) is False:
            raise ValueError(
                f"{name!r}, a {type(module).__name__}, has batch_first=False, and so the batch as its second "
                "dimension. Say where it is in the input and in the layers: batch_dim=1, or batch_dim=0; or build the "
                "layer with batch_first=True"
            )


def _warn_of_nested(layers: list[str]) -> None:
    nested = [
        name
        for name in layers
        if any(name != other and (not other or name.startswith(f"{other}.")) for other in layers)
    ]
    if nested:
        warnings.warn(
            f"{len(nested)} of the {len(layers)} layers are inside another layer ({first_few(nested)}). Choose the "
            f"outermost ones, layers={[name for name in layers if name not in nested]}; `mix.choices` lists what was "
            "selected.",
            stacklevel=3,
        )
