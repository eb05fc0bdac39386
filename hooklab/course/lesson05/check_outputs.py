"""Check of exercise 5.5: gradients at outputs of any structure, also beside modules that work in place."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.passes import hooked, integers, no_warnings, run_pass, three_layers, weighed
from hooklab.course.exercises.trial import NotYet, Trial, expect_tensor, same, tensor_text


@exercise("5.5", "Gradients at any output")
def gradients_at_any_output(trial: Trial) -> str:
    for place in (0, 1):
        _watch_beside_an_inplace_relu(trial, place)
    _watch_a_dict(trial)
    _watch_without_gradients(trial)
    return "right before and on an in-place ReLU, for a dict with labels in it, and silent where nothing requires grad"


def _watch_beside_an_inplace_relu(trial: Trial, place: int) -> None:
    model, x = nn.Sequential(three_layers()[0], nn.ReLU(inplace=True), three_layers()[1]), integers(5, 3)
    where = ("the layer before an in-place ReLU", "an in-place ReLU")[place]
    hidden = model[0](x).detach().requires_grad_()
    after_relu = torch.relu(hidden)
    true = torch.autograd.grad(weighed(model[2](after_relu)), (hidden, after_relu))[place]
    seen: dict[str, Any] = {}
    with hooked(trial, model[place], seen):
        for sign in (1.0, -2.0):  # the second backward brings other gradients
            kept_early: list[Any] = []
            run_pass(trial, partial(_signed, model, x, sign, seen, kept_early))
            if kept_early:
                raise NotYet(
                    f"{where}: `seen` was filled in the forward, before there was any gradient",
                    expected="`seen` as it was, until the backward",
                    got=tensor_text(kept_early[0]),
                    likely="value instead of gradient: a forward hook sees values; it can hook the tensor, though",
                )
            if sign != 1.0 and same(seen.get("output"), true):
                raise NotYet(
                    f"{where}: after a second backward, `seen` still holds the gradient of the first",
                    expected="the gradient of the last backward",
                    likely="kept the first: each forward makes a new tensor, which needs a hook of its own, and each "
                    "backward writes anew",
                )
            _expect_seen(seen, {"output": sign * true}, where)


def _signed(model: nn.Module, x: Tensor, sign: float, seen: dict[str, Any], kept_early: list[Any]) -> Tensor:
    before = dict(seen)
    loss: Tensor = sign * weighed(model(x))
    if seen.keys() != before.keys() or any(seen[key] is not before[key] for key in seen):
        kept_early.append(dict(seen))
    return loss


class _Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = three_layers()[0]

    def forward(self, x: Tensor) -> dict[str, Any]:
        hidden = self.layer(x)
        return {"features": hidden, "score": hidden.sum(), "labels": torch.tensor([1, 0]), "note": "text", "none": None}


def _watch_a_dict(trial: Trial) -> None:
    model, seen, outputs = _Heads(), dict[str, Any](), []

    def loss() -> Any:
        outputs.append(model(integers(2, 3)))
        return 2 * outputs[0]["features"].sum() + 5 * outputs[0]["score"]

    with hooked(trial, model, seen):
        run_pass(trial, loss)
    if set(outputs[0]) != {"features", "score", "labels", "note", "none"}:
        raise NotYet("the dict that the layer returns has other keys now", got=tensor_text(list(outputs[0])))
    # the score was computed from the features, so these get 2 of their own and 5 from the score
    _expect_seen(seen, {"features": torch.full((2, 4), 7.0), "score": torch.tensor(5.0)}, "a layer that returns a dict")


def _watch_without_gradients(trial: Trial) -> None:
    layer, seen = three_layers()[0].requires_grad_(False), dict[str, Any]()
    with hooked(trial, layer, seen), no_warnings():
        outputs = [trial.run(layer, integers(2, 3))]
        layer.requires_grad_(True)
        with torch.no_grad():
            outputs.append(trial.run(layer, integers(2, 3)))
    if any(isinstance(output, Tensor) and output.requires_grad for output in outputs):
        raise NotYet(
            "after a pass without gradients, the output requires grad",
            expected="requires_grad = False, as without your hook",
            got="True",
            likely="asked for: only look at tensors that require grad already",
        )
    if seen:
        raise NotYet("a pass without gradients wrote into `seen`", expected="nothing", got=tensor_text(seen))


def _expect_seen(seen: dict[str, Any], wanted: dict[str, Tensor], where: str) -> None:
    shown = {"expected": tensor_text(wanted), "got": tensor_text(seen)}
    if not seen:
        raise NotYet(f"{where}: `seen` is empty after the backward", **shown, likely="your hook wrote nothing into it")
    if len(seen) < len(wanted):
        likely = "one key for all: a function made in a loop looks its variable up when it runs (lesson 2)"
        raise NotYet(f"{where}: `seen` lacks {sorted(set(wanted) - set(seen))}", **shown, likely=likely)
    if set(seen) != set(wanted):
        raise NotYet(f"{where}: `seen` has other keys", **shown, likely="a key that no gradient belongs to")
    for name, true in wanted.items():
        if not same(expect_tensor(seen[name], f"{where}: seen[{name!r}]"), true):
            raise NotYet(f"{where}: seen[{name!r}] is not the gradient of that output", **shown)
