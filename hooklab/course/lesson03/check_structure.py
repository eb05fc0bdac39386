"""The check of exercise 3.4: an output of any structure, each tensor in it detached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import GeneratorType
from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.forward import linear, misconception_named, whole_numbers
from hooklab.course.exercises.trial import NotYet, Trial, expect_tensor, same, tensor_text
from hooklab.course.exercises.varying import runs_of


class _Parts(nn.Module):
    """Puts out its result in a given form."""

    def __init__(self, seed: int, form: Callable[[Tensor], Any]):
        super().__init__()
        self.linear, self.form = linear(2, 2, seed), form

    def forward(self, x: Tensor) -> Any:
        return self.form(self.linear(x))


class _Reader(nn.Module):
    """Uses every tensor that its layer puts out, and notes what it got."""

    def __init__(self, seed: int, form: Callable[[Tensor], Any]):
        super().__init__()
        self.layer = _Parts(seed, form)
        self.got: list[str] = []
        self.result = torch.tensor(0.0)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.layer(x)
        self.got.append(_described(parts))
        result = torch.stack([one.sum() for one in _tensors_in(parts)]).sum()
        self.result = result.detach()
        return result


_FORMS: list[Callable[[Tensor], Any]] = [
    lambda y: (y, (y * 2, y * 3)),
    lambda y: {"scores": y, "hidden": [y * 2, (y * 3,)], "aux": None, "steps": 3},
    lambda y: [y, {"more": y * 2}, "a note"],
    lambda y: y,
]


@exercise("3.4", "Any output, detached")
@misconception_named()
def any_output_detached(trial: Trial) -> str:
    for seed, form in enumerate(_FORMS):
        model, x = _Reader(seed, form), whole_numbers(seed, 1, 2)
        wanted = form(model.layer.linear(x))
        with runs_of(model) as runs:
            got = trial.call(model, model.layer, x)
        if runs.direct or runs.calls > 1:
            runs.expect(1)
        if not model.got:
            raise NotYet("model(x) did not run", expected="one call of the model, with your hook on the layer")
        if model.got[0] != _described(wanted):
            raise NotYet(
                "the model noticed your hook",
                expected=f"the model goes on with {_described(wanted)}",
                got=f"it got {model.got[0]}",
                likely="accidental return, detach_() in place, or writing into the model's own dictionary or list",
            )
        if got is None:
            raise NotYet(
                "your function returned None",
                expected=tensor_text(wanted),
                got="None",
                likely="forgotten return, in your function or in the helper that walks through the parts",
            )
        if same(got, model.result):
            raise NotYet(
                "that is the model's result",
                expected=tensor_text(wanted),
                got=tensor_text(got),
                likely="return value of model(x), not what the hook has stored",
            )
        _expect_structure(got, wanted, "")
    return "a tuple in a tuple, a dictionary with a list and None, a list and a plain tensor kept their structure"


def _expect_structure(got: Any, wanted: Any, place: str) -> None:
    where = f"the part at {place}" if place else "what your function returned"
    shown = {"expected": tensor_text(wanted), "got": tensor_text(got)}
    if isinstance(wanted, Tensor):
        got = expect_tensor(got, where)
        if not same(got, wanted):
            raise NotYet(f"{where} has other numbers", **shown)
        if got.requires_grad:
            raise NotYet(
                f"{where} is not detached",
                expected="requires_grad is False for every tensor, however deep",
                got="requires_grad is True",
                likely="not deep enough: the parts of a part need the same treatment, so let the function call itself",
            )
        return
    if not isinstance(wanted, tuple | list | dict):
        if type(got) is not type(wanted) or got != wanted:
            raise NotYet(f"{where} has changed", **shown, likely="what is no tensor stays as it is")
        return
    if type(got) is not type(wanted):
        if isinstance(got, Tensor):
            likely = "only one part kept: the others belong to the output as well"
        elif isinstance(got, GeneratorType):
            likely = "generator: `(f(p) for p in parts)` is no tuple yet, write tuple(...) around it"
        else:
            likely = f"another container: a {type(wanted).__name__} must stay a {type(wanted).__name__}"
        raise NotYet(f"{where} is no {type(wanted).__name__}, but: {type(got).__name__}", **shown, likely=likely)
    if len(got) != len(wanted) or (isinstance(wanted, dict) and list(got) != list(wanted)):
        raise NotYet(f"{where} has other parts", **shown, likely="lost on the way: keep None and numbers too")
    for key in wanted if isinstance(wanted, dict) else range(len(wanted)):
        _expect_structure(got[key], wanted[key], f"{place}[{key!r}]")


def _described(parts: Any) -> str:
    """The structure in short, each tensor by whether it has a graph."""
    if isinstance(parts, Tensor):
        # the graph may be switched off for the whole pass, which is nobody's fault
        return "a tensor" if parts.requires_grad or not torch.is_grad_enabled() else "a tensor without a graph"
    if isinstance(parts, dict):
        return "{" + ", ".join(f"{key!r}: {_described(one)}" for key, one in parts.items()) + "}"
    if isinstance(parts, list | tuple):
        inside = ", ".join(map(_described, parts))
        return f"[{inside}]" if isinstance(parts, list) else f"({inside}{',' if len(parts) == 1 else ''})"
    return tensor_text(parts)


def _tensors_in(parts: Any) -> list[Tensor]:
    if isinstance(parts, Tensor):
        return [parts]
    inside: Sequence[Any] = list(parts.values()) if isinstance(parts, dict) else parts
    return [one for part in inside for one in _tensors_in(part)] if isinstance(parts, dict | list | tuple) else []
