"""Manifold mixup through one forward hook, for any model as it is.

Public: :class:`ManifoldMixup`, the :class:`Mixed` batch that it yields, and :func:`draw_lambda`.

Source: Verma, Lamb, Beckham, Najafi, Mitliagkas, Courville, Lopez-Paz and Bengio, "Manifold Mixup: Better
Representations by Interpolating Hidden States", ICML 2019 (arXiv:1806.05236), Section 2 and Equation 1. Per minibatch
one layer k of a set S and one λ ~ Beta(α, α); the minibatch is mixed with a shuffled copy of itself; gradients flow
through the whole graph, the layers before k included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed
import torch.nn.functional as F
from torch import Tensor, nn

from hooklab.eager import run_eagerly, stop_running_eagerly
from hooklab.selecting import What, require_module, select_for_hooks, uncompiled
from hooklab.sessions import Hook
from hooklab.torch_private import backward_number
from hooklab.trees import describe, map_tensors, tensors

INPUT = "input"


def draw_lambda(alpha: float, generator: torch.Generator | None = None) -> float:
    """Draw λ ~ Beta(α, α), in [0, 1], from four uniform numbers of ``generator`` (default: torch's global one).

    ``torch.distributions.Beta`` takes no generator, and its sampler uses up a varying amount of randomness. This one
    always uses four numbers, so that processes with equally seeded generators stay in step.

    Raises:
        ValueError: ``alpha`` is not a finite number above 0.

    >>> 0 < draw_lambda(2.0, torch.Generator().manual_seed(0)) < 1
    True
    """
    _check_alpha(alpha)
    return _beta(alpha, *_uniform(4, generator))


class Mixed:
    """One mixed batch, as ``with mix(x, y) as mixed`` gives it.

    Attributes:
        x: the mixed input if the input was chosen, else the ``x`` that came.
        y: the targets as they came, length n.
        lam: λ, a float in [0, 1]: the share of each example itself; 1-λ is the share of its partner.
        permutation: int64 tensor of length n on the targets' device; ``permutation[i]`` is the partner of example i.
        layer: name of the chosen layer, or ``"input"``.
    """

    __slots__ = ("_x", "_x_was_read", "lam", "layer", "permutation", "y")

    def __init__(self, x: Any, y: Tensor, lam: float, permutation: Tensor, layer: str) -> None:
        self._x = x
        self.y = y
        self.lam = lam
        self.permutation = permutation
        self.layer = layer
        self._x_was_read = False

    @property
    def x(self) -> Any:
        """What the model is to be called with."""
        self._x_was_read = True
        return self._x

    def loss(self, fn: Callable[[Any, Tensor], Tensor], prediction: Any) -> Tensor:
        """λ·fn(prediction, y) + (1-λ)·fn(prediction, y[permutation]), in whatever shape ``fn`` returns.

        ``y`` may be class indices or one-hot (soft) targets, whichever ``fn`` takes. For cross entropy this equals the
        loss against :meth:`soft_targets`, because cross entropy is linear in its target.
        """
        return self.lam * fn(prediction, self.y) + (1 - self.lam) * fn(
            prediction, self.y.index_select(0, self.permutation)
        )

    def soft_targets(self, num_classes: int | None = None) -> Tensor:
        """The mixed targets, λ·y + (1-λ)·y[permutation], float, of shape (n, classes).

        Class indices need ``num_classes``; one-hot or soft targets of shape (n, classes) do not.
        """
        y = self.y
        if not y.is_floating_point():
            if y.ndim == 1:
                if num_classes is None:
                    raise ValueError("targets that are class indices need soft_targets(num_classes=...)")
                y = F.one_hot(y, num_classes)
            y = y.to(torch.get_default_dtype())
        return _blend(y, self.lam, self.permutation)

    def bce_loss(self, logits: Tensor) -> Tensor:
        """Binary cross entropy between softmax(logits) and :meth:`soft_targets`, mean over examples and classes.

        This is the loss of the authors' own training script (``supervised/main.py`` in
        github.com/vikasverma1077/manifold_mixup), where Equation 1 leaves the loss open. It is computed in float32
        at least, outside autocast.
        """
        with torch.autocast(logits.device.type, enabled=False):
            dtype = torch.promote_types(logits.dtype, torch.float32)
            probabilities = logits.to(dtype).softmax(dim=1)
            return F.binary_cross_entropy(probabilities, self.soft_targets(logits.shape[1]).to(dtype))

    def __repr__(self) -> str:
        return f"Mixed(layer={self.layer!r}, lam={self.lam:.3f}, examples={len(self.y)})"


class ManifoldMixup:
    """Train any model with manifold mixup; the model's code stays as it is.

    Each ``with mix(x, y) as mixed`` draws one layer (uniformly), one λ ~ Beta(α, α) and one permutation. Inside the
    block the chosen layer's output becomes λ·out + (1-λ)·out[permutation], with gradients to both parts; after the
    block, however it ends, the hook is gone.

    Args:
        model: any module. It must be in training mode when a batch is mixed.
        layers: which layers may be chosen: names, globs, types, modules or predicates, as in :func:`hooklab.select`,
            in a list or one alone. An ``nn.Sequential`` is one layer; an ``nn.ModuleList``, which is never called,
            stands for its modules. A layer may return a tensor or any nesting of tuples, lists and dicts of
            floating-point tensors, all with the batch first; each is mixed. The states of an ``nn.LSTM`` have the
            batch second, also with ``batch_first=True``: choose a layer after it.
        alpha: of the Beta distribution, above 0. Small: λ close to 0 or 1; 1: uniform; large: λ close to 1/2.
        include_input: may the input ``x`` be chosen too (layer 0 of the paper)? With ``layers=[]`` only the input can
            be chosen, which is input mixup.
        generator: source of layer, λ and permutation; default torch's global one. A batch takes the same amount from it
            whatever its length. With several processes it is required: give every rank a generator with the same seed,
            and all ranks agree on layer and λ without talking to each other, while each has its own permutation.

    Raises (when made):
        LookupError: a name in ``layers`` matches nothing; the message lists near names.
        ValueError: ``alpha`` is not above 0, or there is nothing to choose from.
        TypeError: ``model`` is no module.
        RuntimeError: a layer takes no hooks, because ``torch.jit.script`` compiled it.

    Raises (when used):
        RuntimeError: the model is in eval mode; the chosen layer did not run in the block, or ran twice; the input was
            chosen and ``mixed.x`` was not used; several processes and no generator; one block was entered twice.
        ValueError: ``x``, ``y`` or the layer's output do not have the batch first and the same length, or hold
            no tensor, or something other than floating-point numbers, where it would be mixed.

    Under ``torch.compile``: compiled code does not look for hooks that came later, so a batch mixed at a layer runs its
    block eagerly, while a batch mixed at the input runs compiled. To keep the speed, compile the stages
    (``model.stage = torch.compile(model.stage)``) and choose those: their hooks run outside the compiled code.

    Under activation checkpointing a layer runs again in the backward pass, and must be mixed again: call ``backward()``
    inside the block if a layer in a checkpointed segment may be chosen.

    >>> import hooklab
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
    ) -> None:
        require_module(model)
        _check_alpha(alpha)
        wanted = _as_list(layers)
        found = select_for_hooks(model, *wanted) if wanted else {}
        if not found and not include_input:
            raise ValueError("nothing to choose from: name at least one layer, or leave include_input=True")
        self.model = model
        self.alpha = alpha
        self.include_input = include_input
        self.generator = generator
        self._for_permutations = torch.Generator()
        self._layers = [(name, _outermost_wrapper(model, layer)) for name, layer in found.items()]
        self._around_wrappers = {
            name: _modules_around(model, layer) for name, layer in self._layers if uncompiled(layer) is not layer
        }

    @property
    def choices(self) -> list[str]:
        """What a batch may be mixed at: ``"input"`` (if included) and the layers' names."""
        return [INPUT] * self.include_input + [name for name, _ in self._layers]

    def __call__(self, x: Any, y: Tensor) -> AbstractContextManager[Mixed]:
        """Mix one batch: ``x`` a tensor (or a nesting of tensors), ``y`` a tensor, all of length n in dimension 0."""
        self._check_batch(x, y)
        position, lam, permutation = self._draw(y)
        if position < 0:
            x = _blend_all(x, lam, permutation, "the input x")
            return _InputBlock(Mixed(x, y, lam, permutation, INPUT))
        name, layer = self._layers[position]
        around = self._around_wrappers.get(name)
        stays_compiled = around is not None and not _is_inside_compiled(layer, around)
        return _LayerBlock(layer, Mixed(x, y, lam, permutation, name), stays_compiled)

    def _check_batch(self, x: Any, y: Tensor) -> None:
        if not self.model.training:
            raise RuntimeError("the model is in eval mode, where mixing is a mistake: call model.train() first")
        if y.ndim == 0:
            raise ValueError("y must have the batch as its first dimension, got a single number")
        if self.include_input and not isinstance(x, Tensor):
            _require_a_tensor(x, "x", "for such an input set include_input=False")
        for tensor in (x,) if isinstance(x, Tensor) else tensors(x):
            _check_mixable(tensor, len(y), "x", must_be_float=self.include_input)

    def _draw(self, y: Tensor) -> tuple[int, float, Tensor]:
        """Position of the chosen layer (-1: the input), λ and permutation."""
        rank = 0
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank = torch.distributed.get_rank()
            if self.generator is None and torch.distributed.get_world_size() > 1:
                raise RuntimeError(
                    "several processes must agree on layer and λ: give each rank ManifoldMixup(..., "
                    "generator=torch.Generator().manual_seed(seed)) with the same seed"
                )
        choice, seed, *four = _uniform(6, self.generator)
        # From a generator of its own: the shared one must not advance by this rank's batch length.
        self._for_permutations.manual_seed(int(seed * 2**53) + rank)
        permutation = _on_device_of(y, torch.randperm(len(y), generator=self._for_permutations))
        first = -1 if self.include_input else 0
        return first + int(choice * (len(self._layers) - first)), _beta(self.alpha, *four), permutation


# A block is entered once: its batch has been drawn, and one batch is mixed once.
_NEW, _OPEN, _OVER = "new", "open", "over"
_ONLY_ONCE = "this batch was mixed already: write `with mix(x, y) as mixed` anew for each batch"
_NOT_OPEN = "this block is not open: begin it by `with mix(x, y) as mixed`"


class _InputBlock:
    """What is open while a batch is mixed at the input: nothing but the question whether it was used."""

    __slots__ = ("mixed", "state")

    def __init__(self, mixed: Mixed) -> None:
        self.mixed = mixed
        self.state = _NEW

    def __enter__(self) -> Mixed:
        if self.state is not _NEW:
            raise RuntimeError(_ONLY_ONCE)
        self.state = _OPEN
        return self.mixed

    def __exit__(self, exception_type: object, exception: object, traceback: object) -> None:
        if self.state is not _OPEN:
            raise RuntimeError(_NOT_OPEN)
        self.state = _OVER
        if exception_type is None and not self.mixed._x_was_read:
            raise RuntimeError("the input was chosen for mixing, but mixed.x was not used: call model(mixed.x)")


class _LayerBlock:
    """What is open while a batch is mixed at a layer: its hook, and compiled code that runs eagerly."""

    __slots__ = ("handle", "hook", "layer", "state", "stays_compiled")

    def __init__(self, layer: nn.Module, mixed: Mixed, stays_compiled: bool) -> None:
        self.layer = layer
        self.hook = _MixOutput(mixed)
        self.stays_compiled = stays_compiled
        self.state = _NEW

    def __enter__(self) -> Mixed:
        if self.state is not _NEW:
            raise RuntimeError(_ONLY_ONCE)
        if not self.stays_compiled:
            run_eagerly()
        try:
            self.handle = self.layer.register_forward_hook(self.hook)
        except BaseException:
            if not self.stays_compiled:
                stop_running_eagerly()
            raise
        self.state = _OPEN
        return self.hook.mixed

    def __exit__(self, exception_type: object, exception: object, traceback: object) -> None:
        if self.state is not _OPEN:
            raise RuntimeError(_NOT_OPEN)
        self.state = _OVER
        self.handle.remove()
        if not self.stays_compiled:
            stop_running_eagerly()
        if exception_type is None and self.hook.runs == 0:
            raise RuntimeError(
                f"layer {self.hook.mixed.layer!r} was chosen for mixing, but did not run inside the block: the targets "
                "would be mixed, the features not. Call the model inside the block, as model(...) and not "
                "model.forward(...), and choose layers that every forward pass uses."
            )


class _MixOutput(Hook):
    """The forward hook of one block; a copy of the model gets an inert one in its place."""

    __slots__ = ("mixed", "runs")

    def __init__(self, mixed: Mixed) -> None:
        super().__init__(session=None)
        self.mixed = mixed
        self.runs = 0

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        mixed = self.mixed
        if backward_number() == -1:  # else a checkpoint computes its part again, and needs the same mixing again
            self.runs += 1
        if self.runs > 1:
            raise RuntimeError(
                f"layer {mixed.layer!r} ran a second time inside one `with mix(x, y)` block, which would mix twice. "
                "Call the model once per block, and choose layers that are used once per forward pass."
            )
        return _blend_all(output, mixed.lam, mixed.permutation, f"the output of layer {mixed.layer!r}")


def _as_list(layers: Any) -> list[What]:
    is_one = isinstance(layers, str) or (callable(layers) and not isinstance(layers, nn.ModuleList))
    return [layers] if is_one else list(layers)


def _check_alpha(alpha: float) -> None:
    if not 0 < alpha < math.inf:
        raise ValueError(f"alpha must be a finite number above 0, got {alpha}; for no mixup, leave the block out")


def _uniform(count: int, generator: torch.Generator | None) -> list[float]:
    device = generator.device if generator is not None else "cpu"
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


def _blend(tensor: Tensor, lam: float, permutation: Tensor) -> Tensor:
    """Mix_λ(a, b) = λ·a + (1-λ)·b of Section 2, b being a shuffled; never detached."""
    # index_select gives the bits of tensor[permutation], its gradient too, and is faster in both directions
    return lam * tensor + (1 - lam) * tensor.index_select(0, _on_device_of(tensor, permutation))


def _on_device_of(tensor: Tensor, permutation: Tensor) -> Tensor:
    return permutation if permutation.device == tensor.device else permutation.to(tensor.device)


def _blend_all(tree: Any, lam: float, permutation: Tensor, what: str) -> Any:
    """Blend every tensor of a nesting; leave the None, numbers and strings beside them as they are."""
    if not isinstance(tree, Tensor):
        _require_a_tensor(tree, what, "choose a layer that returns a tensor, or a tuple, list or dict of tensors")

    def check_and_blend(tensor: Tensor) -> Tensor:
        _check_mixable(tensor, len(permutation), what)
        return _blend(tensor, lam, permutation)

    return map_tensors(check_and_blend, tree)


def _require_a_tensor(tree: Any, what: str, advice: str) -> None:
    if next(tensors(tree), None) is None:
        raise ValueError(f"{what} is {describe(tree)}, which holds no tensor that could be mixed; {advice}")


def _check_mixable(tensor: Tensor, length: int, what: str, *, must_be_float: bool = True) -> None:
    if tensor.ndim == 0 or tensor.shape[0] != length:
        raise ValueError(
            f"{what} holds a tensor of shape {tuple(tensor.shape)}, but y has length {length}: "
            f"to be mixed, every tensor needs the batch as its first dimension, here {length}"
        )
    if must_be_float and not (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(
            f"{what} holds a tensor of dtype {tensor.dtype}, which cannot be mixed; choose a layer that returns "
            "floating-point numbers only, and for an integer input set include_input=False"
        )


def _outermost_wrapper(model: nn.Module, layer: nn.Module) -> nn.Module:
    """The wrapper by which ``model`` calls ``layer`` if torch.compile wrapped it, else ``layer`` itself."""
    return next(module for module in model.modules() if uncompiled(module) is layer)


def _modules_around(model: nn.Module, layer: nn.Module) -> list[nn.Module]:
    """``layer`` and every module of ``model`` that contains it."""
    return [module for module in model.modules() if any(inner is layer for inner in module.modules())]


def _is_inside_compiled(wrapper: nn.Module, around: list[nn.Module]) -> bool:
    """Is a module that torch.compile wrapped also part of something larger that is compiled, and so traced with it?

    If not, the wrapper calls its own hooks outside the compiled code. Of a module without a wrapper one can never be
    sure: ``fast = torch.compile(model)`` leaves no mark on the model.
    """
    return any(
        module._compiled_call_impl is not None or (module is not wrapper and uncompiled(module) is not module)
        for module in around
    )
