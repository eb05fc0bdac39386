"""The check of exercise 4.5: weight normalisation by a pre-hook, in values, in time and in gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import expect_handle
from hooklab.course.exercises.misconceptions import fitting
from hooklab.course.exercises.trial import NotYet, Trial, first_words, learners_line, same, tensor_text
from hooklab.course.lesson04.calls import REGISTER, registered, run, why_as_it_was

State = tuple[Tensor, Tensor]  # weight_g and weight_v in one pass

NOT_NORMALISED = "not normalised: divide weight_v by the norm of its own rows"

# The weight that a hook may compute instead, from (g, v, the weight at the start).
FORMULAS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "computed once: the weight must be computed in the hook, before every forward": lambda g, v, start: start,
    NOT_NORMALISED: lambda g, v, start: g * v,
    "the first length: divide by the norm that weight_v has now": lambda g, v, start: g * v / _lengths(start),
    "one norm for the whole matrix: each row has its own": lambda g, v, start: g * v / v.norm(),
    "the norm of the columns: a row's norm is over dim=1": lambda g, v, start: g * v / v.norm(dim=0, keepdim=True),
    "weight_v alone: its rows have their own lengths": lambda g, v, start: v,
    "weight_g is not used": lambda g, v, start: v / _lengths(v),
    "weight_v is not used": lambda g, v, start: g * start / _lengths(start),
}


def _lengths(v: Tensor) -> Tensor:
    lengths: Tensor = v.norm(dim=1, keepdim=True)
    return lengths


def _weight(g: Tensor, v: Tensor) -> Tensor:
    return g * v / _lengths(v)


@exercise("4.5", "Weight norm by a pre-hook")
@torch.random.fork_rng(devices=[])
def weight_norm_by_a_pre_hook(trial: Trial) -> str:
    torch.manual_seed(0)
    for outputs, inputs, bias, dtype in (
        (2, 3, True, torch.float32),
        (3, 3, False, torch.float32),
        (1, 4, True, torch.float64),
    ):
        layer, x = nn.Linear(inputs, outputs, bias=bias, dtype=dtype), torch.randn(4, inputs, dtype=dtype)
        start, wanted = layer.weight.detach().clone(), layer(x)
        handle = registered(trial, layer, may_change=True)
        _expect_parameters(layer, start, bias)
        _expect_outputs(layer, x, start, wanted, handle)
        _expect_gradients(layer, x, handle)
        expect_handle(handle, REGISTER)
        last = _run(layer, x, handle).detach()
        trial.run(handle.remove)
        with torch.no_grad():
            layer.get_parameter("weight_g").mul_(2)
        if not same(_run(layer, x), last):
            raise NotYet(
                "after handle.remove() the weight still follows weight_g", expected="the weight that was computed last"
            )
        trial.expect_none_left()
    return "same output at first, weight_g sets the rows' lengths, and both parameters learn, in three layers"


def _expect_parameters(layer: nn.Linear, start: Tensor, bias: bool) -> None:
    names, wanted = sorted(dict(layer.named_parameters())), [*(["bias"] if bias else []), "weight_g", "weight_v"]
    if names != wanted:
        raise NotYet(
            "the layer's parameters are not the new ones",
            expected=", ".join(wanted),
            got=", ".join(names) or "none",
            likely=_why_not_these(layer, names, wanted),
        )
    for name in ("weight_g", "weight_v"):
        if (dtype := layer.get_parameter(name).dtype) != start.dtype:
            raise NotYet(f"{name} has another dtype", expected=f"{start.dtype}, as weight had", got=f"{dtype}")
    shape = tuple(layer.get_parameter("weight_g").shape)
    if shape != (len(start), 1):
        raise NotYet(
            "weight_g is not one length for each row",
            expected=f"shape ({len(start)}, 1)",
            got=f"shape {shape}",
            likely={
                (): "one norm for the whole matrix: give dim=1 and keepdim=True",
                (len(start),): "keepdim is missing: with keepdim=True a row's length keeps its row",
                (1, start.shape[1]): "the norm of the columns: a row's norm is over dim=1",
            }.get(shape),
        )
    if not same(layer.get_parameter("weight_v"), start):
        raise NotYet("weight_v does not start as the old weight", expected="the weight, as it was")


def _why_not_these(layer: nn.Linear, names: list[str], wanted: list[str]) -> str | None:
    if "weight" in names:
        return "weight is still a parameter: `del layer.weight` first"
    missing = [getattr(layer, name, None) for name in wanted if name not in names]
    tensors = all(isinstance(one, Tensor) and not isinstance(one, nn.Parameter) for one in missing)
    return "no nn.Parameter: a plain tensor, or a buffer, is not learned" if missing and tensors else None


def _expect_outputs(layer: nn.Linear, x: Tensor, start: Tensor, wanted: Tensor, handle: Any) -> None:
    """Each state of the two parameters is run twice, in both modes: the weight must be that of its own pass."""
    g, v = (layer.get_parameter(name) for name in ("weight_g", "weight_v"))
    first: State = (g.clone(), v.clone())
    second: State = (2 * first[0], 3 * first[1])
    third: State = (-first[0] + 0.5, torch.randn_like(first[1]))
    states, got = [first, first, second, second, third, third], []
    modes = [True, False, False, True, False, True]
    for mode, state in zip(modes, states, strict=True):
        layer.train(mode)
        with torch.no_grad():
            g.copy_(state[0])
            v.copy_(state[1])
        got.append(_run(layer, x, handle))
    likely = None if layer._forward_pre_hooks else why_as_it_was(layer, set(), x)
    with torch.no_grad():
        likely = likely or fitting(got, {name: _outputs(layer, x, start, f) for name, f in FORMULAS.items()}, states)
    if not same(got[0], wanted):
        raise NotYet("the layer computes something else than before", expected="the same output", likely=likely)
    for mode, state, one in zip(modes, states, got, strict=True):
        expected = nn.functional.linear(x, _weight(*state), layer.bias)
        if not same(one, expected):
            raise NotYet(
                f"{'' if mode else 'in evaluation mode, '}new values of weight_g and weight_v do not give "
                "the weight that they should",
                expected=f"rows of the lengths in weight_g: the output {tensor_text(expected)}",
                got=tensor_text(one),
                likely=likely,
            )


def _outputs(layer: nn.Linear, x: Tensor, start: Tensor, formula: Callable[..., Tensor]) -> Callable[[State], Tensor]:
    return lambda state: nn.functional.linear(x, formula(*state, start), layer.bias)


def _expect_gradients(layer: nn.Linear, x: Tensor, handle: Any) -> None:
    g, v = (layer.get_parameter(name) for name in ("weight_g", "weight_v"))
    for _ in range(2):
        g.grad = v.grad = None
        _run(layer, x, handle).sum().backward()
        true_g, true_v = g.detach().requires_grad_(), v.detach().requires_grad_()
        wanted = torch.autograd.grad((x @ _weight(true_g, true_v).T).sum(), (true_g, true_v))
        norm_cut = torch.autograd.grad((x @ (true_g * true_v / _lengths(true_v).detach()).T).sum(), (true_g, true_v))
        if g.grad is None and v.grad is None:
            raise NotYet(
                "no gradient reaches weight_g and weight_v",
                expected="both have a .grad after backward()",
                likely="cut off: .data, .detach(), no_grad() or a new nn.Parameter in the hook ends the graph there",
            )
        for name, got, true in (("weight_g", g.grad, wanted[0]), ("weight_v", v.grad, wanted[1])):
            if not same(got, true):
                part = "cut off in part: the norm depends on weight_v, too, and belongs to the graph"
                raise NotYet(
                    f"the gradient of {name} is not that of the formula",
                    expected=f"{name}.grad = {tensor_text(true)}",
                    got=tensor_text(got),
                    likely=part if same(g.grad, norm_cut[0]) and same(v.grad, norm_cut[1]) else None,
                )


def _run(layer: nn.Module, x: Tensor, handle: Any = None) -> Any:
    try:
        return run(layer, x, handle=handle)
    except AttributeError as error:
        if "no attribute 'weight'" not in str(error) or learners_line(error) is not None:
            raise
        raise NotYet(
            "forward finds no `layer.weight`",
            expected="a pre-hook that sets it before each forward",
            got=first_words(error),
            likely=None if layer._forward_pre_hooks else why_as_it_was(layer, set(), x),
        ) from error
