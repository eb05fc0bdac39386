"""The check of exercise 5.3: the gradients of weight and bias are scaled on their way, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import grad

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.trial import Trial
from hooklab.course.lesson05.passes import integers, weighed, whole
from hooklab.course.lesson05.worlds import Programs, World, judge


class _Affine(nn.Module):
    """Here the gradient that comes in is the bias's own, the very same memory."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))
        self.bias = nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x + self.bias


class _Shifted(nn.Module):
    """There is another parameter, before the two."""

    def __init__(self) -> None:
        super().__init__()
        self.offset, self.weight, self.bias = (nn.Parameter(torch.zeros(3)) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x + self.offset) + self.bias


def _on(name: str, new_layer: Callable[[], nn.Module], *shape: int) -> Callable[[], World]:
    def make() -> World:
        layer, x = whole(new_layer()), integers(*shape).requires_grad_()
        parameters = dict(layer.named_parameters())
        watched = {"gradient of the input": x} | {f"gradient of the {kind}": one for kind, one in parameters.items()}

        def wanted(weight_factor: float, bias_factor: float) -> Sequence[Tensor]:
            plain = grad(weighed(layer(x)), list(watched.values()))
            factors = {"weight": weight_factor, "bias": bias_factor}
            return [plain[0], *(factors.get(kind, 1.0) * one for kind, one in zip(parameters, plain[1:], strict=True))]

        return World(name, layer, layer, lambda: weighed(layer(x)), watched, wanted)

    return make


WORLDS = [
    _on("a linear layer, 2-D input", lambda: nn.Linear(3, 2), 4, 3),
    _on("a linear layer, 3-D input", lambda: nn.Linear(3, 2), 2, 4, 3),
    _on("a convolution", lambda: nn.Conv2d(1, 2, 2), 2, 1, 3, 3),
    _on("a normalisation", lambda: nn.LayerNorm(3), 4, 3),
    _on("a module that computes weight · x + bias", _Affine, 3),
    _on("a linear layer without bias", lambda: nn.Linear(3, 2, bias=False), 4, 3),
]


def _hooks(layer: Any, *factors: float | None) -> list[Any]:
    """Put a tensor hook on weight and bias, where there is a factor for it."""
    parameters = zip((layer.weight, layer.bias), factors, strict=True)
    return [one.register_hook(_times(factor)) for one, factor in parameters if one is not None and factor is not None]


def _times(factor: float) -> Callable[[Tensor], Tensor]:
    return lambda grad: factor * grad


def _in_place(layer: Any, *factors: float) -> list[Any]:
    def scale(factor: float) -> Callable[[Tensor], None]:
        def hook(grad: Tensor) -> None:
            grad.mul_(factor)

        return hook

    parameters = zip((layer.weight, layer.bias), factors, strict=True)
    return [one.register_hook(scale(factor)) for one, factor in parameters if one is not None]


def _scale_the_sum(layer: Any, *factors: float) -> list[Any]:
    def scale(factor: float) -> Callable[[Tensor], None]:
        def hook(parameter: Tensor) -> None:
            parameter.grad = factor * parameter.grad if parameter.grad is not None else None

        return hook

    parameters = zip((layer.weight, layer.bias), factors, strict=True)
    return [one.register_post_accumulate_grad_hook(scale(factor)) for one, factor in parameters if one is not None]


def _documents_hook(layer: nn.Module, *factors: float) -> list[Any]:
    """The document's own: input, weight, bias, where there are three."""

    def hook(module: nn.Module, gin: Any, gout: Any) -> Any:
        scaled = [factor * one for factor, one in zip((1.0, *factors), gin, strict=False)]
        return (*scaled, *gin[len(scaled) :])

    return [layer.register_backward_hook(hook)]


PROGRAMS: Programs = {
    "the factors are swapped": lambda layer, weight, bias: _hooks(layer, bias, weight),
    "one factor for both, the bias's; made in a loop, a function looks its variable up when it runs (lesson 2)": (
        lambda layer, weight, bias: _hooks(layer, bias if layer.bias is not None else weight, bias)
    ),
    "one factor for both, the bias's, everywhere; made in a loop, a function looks its variable up when it runs": (
        lambda layer, weight, bias: _hooks(layer, bias, bias)
    ),
    "one factor for both, the weight's": lambda layer, weight, bias: _hooks(layer, weight, weight),
    "no hook on the bias, or one that returns None": lambda layer, weight, bias: _hooks(layer, weight, None),
    "no hook on the weight, or one that returns None": lambda layer, weight, bias: _hooks(layer, None, bias),
    "in-place change: here the bias's gradient is the very tensor that came in; return a new one": _in_place,
    "the sum in .grad was scaled, and in each pass anew: scale a gradient on its way to it": _scale_the_sum,
    "grad_input is the input's gradient: the parameters' gradients are not in it": lambda layer, weight, bias: [
        layer.register_full_backward_hook(lambda module, gin, gout: (weight * gin[0],))
    ],
    "legacy hook: where it has the input, the weight and the bias depends on the layer": _documents_hook,
}


@exercise("5.3", "Mend it: the documents' hook")
def the_documents_hook_mended(trial: Trial) -> str:
    rests = [(2.0, 3.0), (-1.0, 0.0)]
    judge(trial, WORLDS, rests, PROGRAMS, many=True)
    judge(trial, [_on("a module with a third parameter", _Shifted, 3)], rests, {}, many=True)
    return "weight and bias are scaled in every pass, for seven kinds of layer and input, and nothing else is"
