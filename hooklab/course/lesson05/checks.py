"""Checks of lesson 5: what a module's backward hooks are given, and what they can change.

The check of exercise 5.5 stands in `lesson05_outputs`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.misconceptions import named_by
from hooklab.course.exercises.passes import (
    LIKELY,
    gradient_in,
    gradients_of_parameters,
    hooked,
    integers,
    no_warnings,
    refuse_written_gradient,
    run_pass,
    three_layers,
    weighed,
)
from hooklab.course.exercises.trial import NotYet, Trial, expect_tensor, same, tensor_text
from hooklab.course.lesson05.check_outputs import gradients_at_any_output

__all__ = [
    "a_brake",
    "a_fuse",
    "gradients_at_any_output",
    "on_both_sides_of_a_layer",
    "the_documents_hook_mended",
]


@exercise("5.1", "On both sides of a layer")
def on_both_sides_of_a_layer(trial: Trial) -> str:
    for place, x in ((1, integers(2, 3)), (2, integers(2, 3)), (1, integers(2, 2, 3))):
        model = three_layers()
        values: list[Tensor] = [x.clone().requires_grad_()]
        for layer in model:
            values.append(layer(values[-1]))
        grad_in, grad_out = torch.autograd.grad(values[-1].sum(), values[place : place + 2])
        got = _run_on_both_sides(trial, model, model[place], x)
        _explain_both_sides(got, (grad_in, grad_out), (values[place], values[place + 1]), model[place])
    return "the gradients of the input and of the output, in this order, for two layers; no hook was left"


def _run_on_both_sides(trial: Trial, model: nn.Module, layer: nn.Module, x: Tensor) -> Any:
    try:
        with no_warnings(), named_by(LIKELY):
            return trial.call(model, layer, x)
    except NotYet as fault:
        if "tuple index out of range" in fault.missing:
            likely = "legacy hook: how many entries its grad_input has depends on the layer and on the input's shape"
            raise NotYet(
                fault.missing, expected="two tensors, for an input with three dimensions too", likely=likely
            ) from fault
        if not any(f"raised {name}" in fault.missing for name in ("IndexError", "UnboundLocalError", "KeyError")):
            raise
        ran = any(parameter.grad is not None for parameter in model.parameters())
        why = "register before the forward, where a pass takes it in" if ran else "nothing has called backward()"
        raise NotYet(fault.missing, expected="two tensors", likely=f"the hook never ran: {why}") from fault


def _explain_both_sides(got: Any, wanted: tuple[Tensor, Tensor], values: tuple[Tensor, Tensor], layer: Any) -> None:
    shown = {"expected": tensor_text(wanted), "got": tensor_text(got)}
    if got is None:
        raise NotYet("your function returned None", **shown, likely="forgotten return")
    if not isinstance(got, tuple | list) or len(got) != 2:
        raise NotYet("that is not a pair of tensors", **shown)
    if any(isinstance(one, tuple | list) for one in got):
        likely = "grad_input and grad_output are always tuples, also for one tensor: take their [0]"
        raise NotYet("your pair holds tuples", **shown, likely=likely)
    if same(got[0], wanted[1]) and same(got[1], wanted[0]):
        raise NotYet("the two are the other way round", **shown, likely="order: the input's gradient first")
    if same(got[0], values[0]) or same(got[1], values[1]):
        raise NotYet("these are values, not gradients", **shown, likely="a forward hook: it sees what flows forward")
    if any(layer.weight.grad is not None and same(one, layer.weight.grad) for one in got):
        raise NotYet("the weight's gradient is one of the two", **shown, likely="weight.grad is neither of them")
    for one, true, name in zip(got, wanted, ("input", "output"), strict=True):
        if not same(expect_tensor(one, f"the gradient of the {name}", true.shape), true):
            raise NotYet(f"the gradient of the {name} is another one", **shown)


@exercise("5.2", "A brake")
def a_brake(trial: Trial) -> str:
    torch.manual_seed(0)
    for factor in (0.5, -3.0):
        _brake_in_a_chain(trial, factor)
        _brake_beside_a_shortcut(trial, factor)
        _brake_does_not_write(trial, factor)
        _brake_with_other_arguments(trial, factor)
    return "what flows back through the layer is scaled, for every tensor argument, and nothing else is"


def _brake_in_a_chain(trial: Trial, factor: float) -> None:
    true = gradients_of_parameters(trial, three_layers(), integers(2, 3))
    model = three_layers()
    with hooked(trial, model[1], factor):
        got = gradients_of_parameters(trial, model, integers(2, 3))
        is_legacy = model[1]._is_full_backward_hook is False
    if not all(same(a, b) for a, b in zip(true[2:], got[2:], strict=True)):
        raise NotYet(
            "the layer's own parameters, or those after it, have other gradients than without your hook",
            expected=f"the layer's weight.grad = {tensor_text(true[2])}",
            got=tensor_text(got[2]),
            likely="legacy hook: what it calls grad_input holds the gradients of this layer's weight and bias, too"
            if is_legacy
            else "the wrong side: scale what goes out (grad_input), not what comes in (grad_output)",
        )
    shown = {"expected": f"bias.grad of the layer before = {tensor_text(factor * true[1])}", "got": tensor_text(got[1])}
    if same(got[1], true[1]):
        raise NotYet("the gradients before the layer are as they were", **shown, likely="forgotten return in the hook")
    if not same(got[0], factor * true[0]) or not same(got[1], factor * true[1]):
        raise NotYet(f"the gradients before the layer are not {factor:g} times the old ones", **shown)


def _brake_beside_a_shortcut(trial: Trial, factor: float) -> None:
    first, layer = nn.Linear(3, 4), nn.Linear(4, 4)
    hidden = first(integers(2, 3)).detach().requires_grad_()
    through, beside = (torch.autograd.grad(weighed(one), hidden)[0] for one in (layer(hidden), 1 * hidden))

    def forward() -> Tensor:
        hidden = first(integers(2, 3))
        return weighed(hidden + layer(hidden))

    with hooked(trial, layer, factor):
        run_pass(trial, forward)
    got, wanted = gradient_in(first.bias), (beside + factor * through).sum(dim=0)
    shown = {"expected": f"gradient before both ways = {tensor_text(wanted)}", "got": tensor_text(got)}
    if same(got, factor * (beside + through).sum(dim=0)):
        likely = "a hook on the input tensor sees the sum over all its uses; scale this layer's share only"
        raise NotYet("in x + layer(x), the way beside the layer was scaled too", **shown, likely=likely)
    if not same(got, wanted):
        raise NotYet("in x + layer(x), the gradient of x is wrong", **shown)


def _brake_does_not_write(trial: Trial, factor: float) -> None:
    sent, identity = torch.ones(2), nn.Identity()
    with hooked(trial, identity, factor):
        run_pass(trial, lambda: identity(1 * torch.ones(2, requires_grad=True)), sent)
    refuse_written_gradient(sent, torch.ones(2))


class _Mix(nn.Module):
    def forward(self, a: Tensor, times: float, b: Tensor) -> Tensor:
        return times * a + b


def _brake_with_other_arguments(trial: Trial, factor: float) -> None:
    mix = _Mix()
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    with hooked(trial, mix, factor):
        run_pass(trial, lambda: mix(a, 3.0, b).sum())
    for name, tensor, wanted in (("first", a, 3 * factor), ("third", b, factor)):
        if not same(tensor.grad, torch.full((2,), wanted)):
            raise NotYet(
                f"of a layer with the arguments (tensor, number, tensor), the {name} one gets a wrong gradient",
                expected=tensor_text(torch.full((2,), wanted)),
                got=tensor_text(tensor.grad),
                likely="one entry for each argument: scale every tensor, and let None stay None",
            )


class _Affine(nn.Module):
    """Here the gradient that comes in is the bias's own, the very same memory."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
        self.bias = nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x + self.bias


@exercise("5.3", "The documents' hook, mended")
def the_documents_hook_mended(trial: Trial) -> str:
    torch.manual_seed(0)
    cases = [
        ("a linear layer, 2-D input", nn.Linear(3, 2), integers(4, 3)),
        ("a linear layer, 3-D input", nn.Linear(3, 2), integers(2, 4, 3)),
        ("a convolution", nn.Conv2d(1, 2, 2), integers(2, 1, 3, 3)),
        ("a linear layer without bias", nn.Linear(3, 2, bias=False), integers(4, 3)),
        ("a module that computes weight · x + bias", _Affine(), integers(3)),
    ]
    for factors in ((2.0, 3.0), (-1.0, 0.5)):
        for name, layer, x in cases:
            _scaled_parameters(trial, name, layer, x, factors)
    return "weight and bias are scaled, in every backward anew, for five kinds of layer and input; nothing else is"


def _scaled_parameters(trial: Trial, name: str, layer: nn.Module, x: Tensor, factors: tuple[float, float]) -> None:
    plain, x = x.clone().requires_grad_(), x.clone().requires_grad_()
    layer.zero_grad()
    true = gradients_of_parameters(trial, layer, plain)
    layer.zero_grad()
    with hooked(trial, layer, *factors, many=True):
        got = gradients_of_parameters(trial, layer, x)
        x_grad = gradient_in(x).clone()
        is_legacy = layer._is_full_backward_hook is False
        twice = gradients_of_parameters(trial, layer, x)
    if not same(x_grad, gradient_in(plain)):
        raise NotYet(
            f"{name}: the gradient of the input has changed",
            expected=tensor_text(plain.grad),
            got=tensor_text(x_grad),
            likely="legacy hook: where it has the input, the weight and the bias depends on the layer"
            if is_legacy
            else "in-place change: here the bias's gradient is the very tensor that came in; return a new one"
            if isinstance(layer, _Affine)
            else "grad_input is the input's gradient; the parameters' gradients are not in it",
        )
    for place, (part, one, both, old) in enumerate(zip(("weight", "bias"), got, twice, true, strict=False)):
        new = factors[place] * old
        shown = {"expected": f"{part}.grad = {tensor_text(new)}", "got": tensor_text(one)}
        if same(one, old):
            likely = "forgotten return in the hook, or no hook on this parameter"
            raise NotYet(f"{name}: the gradient of the {part} is as it was", **shown, likely=likely)
        if same(one, factors[1 - place] * old):
            both_alike = len(true) == 2 and same(got[1 - place], factors[1 - place] * true[1 - place])
            likely = "one factor for both: a function made in a loop looks its variable up when it runs (lesson 2)"
            likely = likely if both_alike else "factors swapped"
            raise NotYet(f"{name}: the {part} was scaled by the other factor", **shown, likely=likely)
        if not same(one, new):
            raise NotYet(f"{name}: the gradient of the {part} is wrong", **shown)
        if not same(both, 2 * new):
            raise NotYet(
                "after two backwards, the first one's gradient has been scaled again",
                expected=f"{part}.grad = {tensor_text(2 * new)}, the sum of two equal parts",
                got=tensor_text(both),
                likely="the sum in .grad was scaled: scale each gradient on its way to it",
            )


@exercise("5.4", "A fuse")
def a_fuse(trial: Trial) -> str:
    torch.manual_seed(0)
    for limit in (1.0, 4.0):
        _fuse_on_a_linear_layer(trial, limit)
        _fuse_on_two_outputs(trial, limit)
    return (
        "the layer's parameters and its input get what follows from the clipped gradient, for used and unused outputs"
    )


def _fuse_on_a_linear_layer(trial: Trial, limit: float) -> None:
    layer, x = nn.Linear(3, 2), integers(2, 3).requires_grad_()
    incoming = torch.tensor([[9.0, -7.0], [0.5, 2.0]])
    sent, weight, data = incoming.clone(), layer.weight.detach(), x.detach()
    with hooked(trial, layer, limit):
        run_pass(trial, lambda: layer(x), sent)
    refuse_written_gradient(sent, incoming)
    got, clipped = gradient_in(layer.weight), incoming.clamp(-limit, limit)
    shown = {"expected": f"weight.grad = {tensor_text(clipped.T @ data)}", "got": tensor_text(got)}
    if same(got, incoming.T @ data):
        if same(gradient_in(x), incoming @ weight):
            raise NotYet("nothing was clipped", **shown, likely="forgotten return in the hook")
        likely = "the wrong side: grad_input is what goes out; clip what comes in"
        raise NotYet("the layer's weight got the gradient unclipped", **shown, likely=likely)
    if same(got, incoming.clamp(max=limit).T @ data):
        raise NotYet("a large negative number came through", **shown, likely="one side only: from -limit to limit")
    if same(got, incoming.T @ data * (limit / incoming.norm()).clamp(max=1)):
        raise NotYet("the gradient was made shorter as a whole", **shown, likely="norm: clip each number by itself")
    if not same(got, clipped.T @ data):
        raise NotYet("the gradient of the weight is another one", **shown)
    if not same(x.grad, clipped @ weight):
        raise NotYet(
            "the gradient of the layer's input does not follow from the clipped gradient",
            expected=f"x.grad = {tensor_text(clipped @ weight)}",
            got=tensor_text(x.grad),
            likely="clipped twice: what goes out of the layer needs no clipping of its own",
        )


class _Two(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return 2 * x, 3 * x


def _fuse_on_two_outputs(trial: Trial, limit: float) -> None:
    two = _Two()
    for name, used, wanted in (
        ("both", (0, 1), 5 * limit),
        ("the first", (0,), 2 * limit),
        ("the second", (1,), 3 * limit),
    ):
        x = torch.ones(1, requires_grad=True)
        with hooked(trial, two, limit):
            run_pass(trial, partial(_ten_times_the_sum, two, x, used))
        if not same(x.grad, torch.tensor([wanted])):
            raise NotYet(
                f"a layer with the outputs 2·x and 3·x, {name} in use, gives x a wrong gradient",
                expected=f"{wanted:g}, from gradients of 10 clipped to {limit:g}",
                got=tensor_text(x.grad),
                likely="one entry for each output: clip every tensor, and let None stay None",
            )


def _ten_times_the_sum(two: nn.Module, x: Tensor, used: tuple[int, ...]) -> Any:
    outputs = two(x)
    return sum(10 * outputs[place] for place in used)
