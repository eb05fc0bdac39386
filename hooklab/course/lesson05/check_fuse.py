"""The check of exercise 5.4: the gradient that comes in at a layer's outputs is clipped, number by number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import grad

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.trial import Trial
from hooklab.course.lesson05.check_brake import Both, Two
from hooklab.course.lesson05.passes import integers, three_layers, weighed, whole
from hooklab.course.lesson05.worlds import Programs, World, judge

Grads = Sequence[Tensor]
SENT = [[9.0, -7.0], [0.5, 2.0], [-3.0, -0.25], [1.0, 6.0]]
EXTREME = [[1e20, -7.0], [0.5, -1e30], [float("inf"), -1e-3], [0.0, -float("inf")]]


def _alone(name: str, sent: list[list[float]], asks: bool = True) -> Callable[[], World]:
    def make() -> World:
        layer, x = whole(nn.Linear(3, 2)), integers(4, 3).requires_grad_(asks)
        watched: dict[str, Tensor]
        watched = {f"gradient of the {kind}": layer.get_parameter(kind) for kind in ("weight", "bias")}
        watched |= {"gradient of the input": x} if asks else {}

        def wanted(limit: float) -> Grads:
            return grad(layer(x), list(watched.values()), torch.tensor(sent).clamp(-limit, limit))

        return World(name, layer, layer, lambda: layer(x), watched, wanted, torch.tensor(sent))

    return make


def _in_a_chain() -> World:
    model, x = three_layers(), integers(2, 2, 3)
    first, layer, last = model
    parts = {"layer before": first, "layer itself": layer, "layer after it": last}
    weights = {f"gradient of the weight of the {name}": part.get_parameter("weight") for name, part in parts.items()}

    def wanted(limit: float) -> Grads:
        before, own, after = weights.values()
        out = layer(first(x))
        incoming, of_after = grad(weighed(last(out)), [out, after], retain_graph=True)
        return [*grad(out, [before, own], incoming.clamp(-limit, limit)), of_after]

    return World("in a chain of three layers", layer, model, lambda: weighed(model(x)), weights, wanted)


def _of_two_outputs(name: str, *used: int) -> Callable[[], World]:
    def make() -> World:
        two, x = Two(), torch.ones(2, requires_grad=True)

        def forward() -> Any:
            outputs = two(x)
            return sum(10 * outputs[place].sum() for place in used)

        def wanted(limit: float) -> Grads:
            return [limit * sum((2, 3)[place] for place in used) * torch.ones(2)]

        words = f"a layer with the outputs 2·x and 3·x, {name} in use"
        return World(words, two, two, forward, {"gradient of x": x}, wanted, has_none=len(used) == 1)

    return make


WORLDS = [
    _alone("a linear layer", SENT),
    _alone("very large gradients", EXTREME),
    _in_a_chain,
    _of_two_outputs("both", 0, 1),
    _of_two_outputs("the first", 0),
    _of_two_outputs("the second", 1),
    _alone("a first layer, whose input asks for no gradient", SENT, asks=False),
]


def _each(change: Callable[[Tensor], Tensor], values: Any) -> tuple[Any, ...]:
    return tuple(None if one is None else change(one) for one in values)


def _coming_in(change: Callable[[Tensor, float], Tensor]) -> Callable[..., Any]:
    return lambda layer, limit: layer.register_full_backward_pre_hook(
        lambda module, gout: _each(lambda one: change(one, limit), gout)
    )


def _going_out(layer: nn.Module, limit: float) -> Any:
    return layer.register_full_backward_hook(lambda module, gin, gout: _each(lambda one: one.clamp(-limit, limit), gin))


def _in_parameters(layer: nn.Module, limit: float) -> Any:
    handles = [one.register_hook(lambda grad: grad.clamp(-limit, limit)) for one in layer.parameters()]
    return Both(*handles)


def _first_only(layer: nn.Module, limit: float) -> Any:
    def hook(module: nn.Module, gout: Any) -> Any:
        return (*_each(lambda one: one.clamp(-limit, limit), gout[:1]), *gout[1:])

    return layer.register_full_backward_pre_hook(hook)


def _in_values(layer: nn.Module, limit: float) -> Any:
    def hook(module: nn.Module, args: Any, output: Any) -> Any:
        clipped = _each(lambda one: one.clamp(-limit, limit), [output] if isinstance(output, Tensor) else output)
        return clipped[0] if isinstance(output, Tensor) else clipped

    return layer.register_forward_hook(hook)


def _in_the_old_way(layer: nn.Module, limit: float) -> Any:
    return layer.register_backward_hook(lambda module, gin, gout: _each(lambda one: one.clamp(-limit, limit), gin))


def _shortened(one: Tensor, limit: float) -> Tensor:
    norm: float = one.norm().item()
    return one * min(1.0, limit / norm)


PROGRAMS: Programs = {
    "the wrong side: grad_input is what goes out; clip what comes in": _going_out,
    "legacy hook: what it clips are the gradients that leave the last node, of the weight and the bias, too": (
        _in_the_old_way
    ),
    "clipped on both sides: what goes out of the layer needs no clipping of its own": lambda layer, limit: Both(
        _coming_in(lambda one, limit: one.clamp(-limit, limit))(layer, limit), _going_out(layer, limit)
    ),
    "clipped too late: the parameters' own gradients, when they have been computed": _in_parameters,
    "values instead of gradients: what the layer puts out is clipped on the way forward": _in_values,
    "one side only: large negative numbers pass; clip from -limit to limit": _coming_in(
        lambda one, limit: one.clamp(max=limit)
    ),
    "one side only: large positive numbers pass; clip from -limit to limit": _coming_in(
        lambda one, limit: one.clamp(min=-limit)
    ),
    "norm: the gradient is made shorter as a whole; clip each number by itself": _coming_in(_shortened),
    "the first output only: clip every tensor, and let None stay None": _first_only,
}


@exercise("5.4", "A fuse")
def a_fuse(trial: Trial) -> str:
    judge(trial, WORLDS, [(1.0,), (4.0,)], PROGRAMS)
    return "what comes in is clipped in every pass, at used and unused outputs, and all that follows from it fits"
