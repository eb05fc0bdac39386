"""The check of exercise 5.5: gradients at outputs of any structure, also beside modules that work in place."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import expect_still_there
from hooklab.course.exercises.misconceptions import alike
from hooklab.course.exercises.trial import NotYet, Trial, apart, expect_tensor, same, tensor_text
from hooklab.course.exercises.varying import every_pass
from hooklab.course.lesson05.passes import (
    hooked,
    integers,
    no_warnings,
    run_pass,
    three_layers,
    weighed,
)

Grads = dict[str, Tensor]


@exercise("5.5", "Gradients at any output")
def gradients_at_any_output(trial: Trial) -> str:
    for place in (0, 1):
        _watch_beside_an_inplace_relu(trial, place)
    kinds: list[type[dict[str, Any]]] = [dict, OrderedDict]
    for kind in kinds:
        _watch_a_dict(trial, kind)
    _watch_without_gradients(trial)
    return "right before and on an in-place ReLU, for a dict with labels in it, and silent where nothing requires grad"


def _watch_beside_an_inplace_relu(trial: Trial, place: int) -> None:
    model, x = nn.Sequential(three_layers()[0], nn.ReLU(inplace=True), three_layers()[1]), integers(3, 3)
    where = ("the layer before an in-place ReLU", "an in-place ReLU")[place]
    hidden = model[0](x).detach().requires_grad_()
    after_relu = torch.relu(hidden)
    true = torch.autograd.grad(weighed(model[2](after_relu)), (hidden, after_relu))[place]

    def loss(sign: float) -> Any:
        return sign * weighed(model(x))

    _watch(trial, model, model[place], where, loss, lambda sign: {"output": sign * true})


class _Heads(nn.Module):
    def __init__(self, kind: type[dict[str, Any]]) -> None:
        super().__init__()
        self.kind = kind
        self.layer = three_layers()[0]

    def forward(self, x: Tensor) -> dict[str, Any]:
        hidden = self.layer(x)
        labels, frozen = torch.tensor([1, 0]), torch.ones(2)
        features = {"features": hidden, "score": hidden.sum(), "labels": labels, "frozen": frozen}
        return self.kind({"note": "text"} | features | {"none": None})


def _watch_a_dict(trial: Trial, kind: type[dict[str, Any]]) -> None:
    model, outputs = _Heads(kind), []

    def loss(sign: float) -> Any:
        outputs.append(model(integers(2, 3)))
        return sign * (2 * outputs[-1]["features"].sum() + 5 * outputs[-1]["score"])

    # the score was computed from the features, so these get 2 of their own and 5 from the score
    _watch(
        trial,
        model,
        model,
        "a layer that returns a dict",
        loss,
        lambda sign: {"features": sign * torch.full((2, 4), 7.0), "score": sign * torch.tensor(5.0)},
    )
    if type(outputs[0]) is not kind or list(outputs[0]) != ["note", "features", "score", "labels", "frozen", "none"]:
        raise NotYet("the dict that the layer returns is another one now", got=tensor_text(outputs[0]))


def _watch(
    trial: Trial,
    model: nn.Module,
    layer: nn.Module,
    where: str,
    loss: Callable[[float], Any],
    true: Callable[[float], Grads],
) -> None:
    """Run passes whose gradients differ in sign and size; `seen` must hold those of the last one, and come late."""
    seen: dict[str, Any] = {}
    with hooked(trial, layer, seen) as handles:
        first: dict[str, Any] = {}
        for which, sign in zip(every_pass(model), (1.0, -2.0, 3.0, -4.0), strict=True):
            before = dict(seen)
            early: list[dict[str, Any]] = []

            def forward(sign: float = sign, before: dict[str, Any] = before, early: Any = early) -> Any:
                made = loss(sign)
                if seen.keys() != before.keys() or any(seen[key] is not before[key] for key in seen):
                    early.append(dict(seen))
                return made

            run_pass(trial, forward)
            if early:
                raise _filled_in_the_forward(where, early[0])
            if which and sign == -2.0 and alike(seen, first):
                raise NotYet(
                    f"{where}: after a second backward, `seen` still holds the gradient of the first",
                    expected="the gradient of the last backward",
                    got=tensor_text(seen),
                )
            _expect_seen(seen, true(sign), f"{which}{where}")
            for handle in handles:
                expect_still_there(handle)
            first = first or {key: value.clone() for key, value in seen.items()}
    if trial.faults:
        raise trial.faults.pop(0)


def _filled_in_the_forward(where: str, found: dict[str, Any]) -> NotYet:
    if not found:
        return NotYet(
            f"{where}: `seen` was emptied in the forward",
            expected="`seen` as it was, until the backward: the caller's other entries stay",
        )
    are_tensors = all(isinstance(value, Tensor) for value in found.values())
    return NotYet(
        f"{where}: `seen` was filled in the forward, before there was any gradient",
        expected="`seen` as it was, until the backward",
        got=tensor_text(found),
        likely="value instead of gradient: a forward hook sees values; it can hook the tensor, though"
        if are_tensors
        else None,
    )


def _watch_without_gradients(trial: Trial) -> None:
    layer, seen = three_layers()[0].requires_grad_(False), dict[str, Any]()
    with hooked(trial, layer, seen), no_warnings():
        outputs = [trial.run(layer, integers(2, 3))]
        layer.requires_grad_(True)
        try:
            with torch.no_grad():
                outputs.append(trial.run(layer, integers(2, 3)))
        finally:
            layer.requires_grad_(False)
    if any(isinstance(output, Tensor) and output.requires_grad for output in outputs):
        raise NotYet(
            "after a pass without gradients, the output requires grad",
            expected="requires_grad = False, as without your hook",
            got="True",
            likely="asked for: only look at tensors that require grad already",
        )
    if seen:
        raise NotYet("a pass without gradients wrote into `seen`", expected="nothing", got=tensor_text(seen))


def _expect_seen(seen: dict[str, Any], wanted: Grads, where: str) -> None:
    shown = {"expected": tensor_text(wanted), "got": tensor_text(seen)}
    if not seen:
        raise NotYet(f"{where}: `seen` is empty after the backward", **shown, likely="your hook wrote nothing into it")
    if len(wanted) > 1 and list(seen) == ["none"]:
        likely = "one key for all: a function made in a loop looks its variable up when it runs (lesson 2)"
        raise NotYet(f"{where}: all gradients have the last key of the dict", **shown, likely=likely)
    if missing := sorted(set(wanted) - set(seen)):
        raise NotYet(f"{where}: `seen` lacks {missing}", **shown)
    if set(seen) != set(wanted):
        raise NotYet(f"{where}: `seen` has keys that no gradient belongs to", **shown)
    for name, true in wanted.items():
        if not same(expect_tensor(seen[name], f"{where}: seen[{name!r}]"), true):
            raise NotYet(f"{where}: seen[{name!r}] is not the gradient of that output", **apart(true, seen[name]))
