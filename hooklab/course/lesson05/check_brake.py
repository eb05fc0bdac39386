"""The check of exercise 5.2: what a layer passes back to its inputs is scaled, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import grad

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.trial import Trial
from hooklab.course.lesson05.passes import integers, three_layers, weighed, whole
from hooklab.course.lesson05.worlds import Programs, World, judge

Grads = Sequence[Tensor]


def _in_a_chain(*shape: int) -> Callable[[], World]:
    def make() -> World:
        model = three_layers()
        (first, layer, last), x = model, integers(*shape)

        def wanted(factor: float) -> Grads:
            plain = grad(weighed(model(x)), list(model.parameters()))
            return [factor * one for one in plain[:2]] + list(plain[2:])

        parts = {"layer before": first, "layer itself": layer, "layer after it": last}
        watched = {
            f"gradient of the {kind} of the {name}": getattr(part, kind)
            for name, part in parts.items()
            for kind in ("weight", "bias")
        }
        return World("in a chain of three layers", layer, model, lambda: weighed(model(x)), watched, wanted)

    return make


def _beside_a_shortcut() -> World:
    layer, x = whole(nn.Linear(3, 3)), integers(2, 3).requires_grad_()

    def wanted(factor: float) -> Grads:
        through, beside = grad(weighed(layer(x)), x)[0], grad(weighed(1 * x), x)[0]
        return [beside + factor * through]

    def forward() -> Tensor:
        return weighed(x + layer(x))

    return World("in x + layer(x)", layer, layer, forward, {"gradient of x": x}, wanted)


def _used_twice() -> World:
    layer, x = whole(nn.Linear(3, 3)), integers(2, 3).requires_grad_()

    def wanted(factor: float) -> Grads:
        hidden = layer(x)
        of_hidden, last = grad(weighed(layer(hidden)), [hidden, layer.get_parameter("weight")], retain_graph=True)
        of_x, first = grad(layer(x), [x, layer.get_parameter("weight")], factor * of_hidden)
        through_both = grad(hidden, layer.get_parameter("weight"), of_hidden)[0]  # `last` holds both uses
        return [factor * of_x, last - through_both + first]

    watched = {"gradient of x": x, "gradient of the layer's weight": layer.get_parameter("weight")}
    return World(
        "a layer that is used twice in a pass", layer, layer, lambda: weighed(layer(layer(x))), watched, wanted
    )


def _with_extreme_gradients() -> World:
    layer, x = nn.Identity(), torch.ones(4, requires_grad=True)
    sent = torch.tensor([1e30, -2.0, 0.25, float("inf")])
    wanted: Callable[[float], Grads] = lambda factor: [factor * sent]  # noqa: E731
    return World("very large gradients", layer, layer, lambda: layer(1 * x), {"gradient of x": x}, wanted, sent)


class _Mix(nn.Module):
    def forward(self, a: Tensor, times: float, b: Tensor) -> Tensor:
        return times * a + b


def _with_other_arguments() -> World:
    mix, a, b = _Mix(), integers(2).requires_grad_(), integers(2).requires_grad_()
    ones = torch.ones(2)
    watched = {"gradient of the first one": a, "gradient of the third one": b}
    return World(
        "a layer with the arguments (tensor, number, tensor)",
        mix,
        mix,
        lambda: mix(a, 3.0, b).sum(),
        watched,
        lambda factor: [3 * factor * ones, factor * ones],
        has_none=True,
    )


class Two(nn.Module):
    """A layer with two outputs, and a part of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Identity()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return twice and three times x."""
        x = self.part(x)
        return 2 * x, 3 * x


def _with_two_outputs() -> World:
    two, x = Two(), integers(2).requires_grad_()

    def forward() -> Tensor:
        double, triple = two(x)
        return weighed(double) + weighed(triple)

    def wanted(factor: float) -> Grads:
        return [5 * factor * torch.tensor([1.0, 2.0])]

    return World("a layer with the outputs 2·x and 3·x", two, two, forward, {"gradient of x": x}, wanted)


def _on_data() -> World:
    layer, x = whole(nn.Linear(3, 2)), integers(2, 3)
    watched = {"gradient of the layer's weight": layer.get_parameter("weight")}
    return World(
        "a first layer, whose input asks for no gradient",
        layer,
        layer,
        lambda: weighed(layer(x)),
        watched,
        lambda factor: grad(weighed(layer(x)), list(watched.values())),
        has_none=True,
    )


WORLDS = [
    _in_a_chain(2, 3),
    _in_a_chain(2, 2, 3),
    _beside_a_shortcut,
    _used_twice,
    _with_extreme_gradients,
    _with_other_arguments,
    _with_two_outputs,
    _on_data,
]


def _times(factor: float, values: Any) -> tuple[Any, ...]:
    return tuple(factor * one if isinstance(one, Tensor) else one for one in values)


def _hook_the_arguments(layer: nn.Module, factor: float) -> Any:
    def hook(module: nn.Module, args: Any) -> None:
        for one in args:
            if isinstance(one, Tensor) and one.requires_grad:
                one.register_hook(lambda grad: factor * grad)

    return layer.register_forward_pre_hook(hook)


class Both:
    """Two handles that are removed together."""

    def __init__(self, *handles: Any) -> None:
        self.handles = handles

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()


PROGRAMS: Programs = {
    "the wrong side: scale what goes out (grad_input), not what comes in (grad_output)": lambda layer, factor: (
        layer.register_full_backward_pre_hook(lambda module, gout: _times(factor, gout))
    ),
    "scaled on both sides: once where the gradient comes in, and again where it goes out": lambda layer, factor: Both(
        layer.register_full_backward_pre_hook(lambda module, gout: _times(factor, gout)),
        layer.register_full_backward_hook(lambda module, gin, gout: _times(factor, gin)),
    ),
    "only the first argument: scale every tensor, and let None stay None": lambda layer, factor: (
        layer.register_full_backward_hook(lambda module, gin, gout: _times(factor, gin[:1]) + gin[1:])
    ),
    "this layer's share only: a hook on the tensor that goes in scales the gradients of its other uses as well": (
        _hook_the_arguments
    ),
    "values instead of gradients: what goes into the layer is scaled on the way forward": lambda layer, factor: (
        layer.register_forward_pre_hook(lambda module, args: _times(factor, args[:1]) + args[1:])
    ),
    "values instead of gradients: what the layer puts out is scaled on the way forward": lambda layer, factor: (
        layer.register_forward_hook(lambda module, args, output: factor * output)
    ),
    "legacy hook: what it calls grad_input holds the gradients of this layer's weight and bias, too": (
        lambda layer, factor: layer.register_backward_hook(lambda module, gin, gout: _times(factor, gin))
    ),
}


@exercise("5.2", "A brake")
def a_brake(trial: Trial) -> str:
    judge(trial, WORLDS, [(-2.5,), (0.0,)], PROGRAMS)
    return "what flows back through the layer is scaled, in every pass, for every tensor argument, and nothing else is"
