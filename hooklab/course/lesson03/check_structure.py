"""The check of exercise 3.4: an output of any structure, each tensor in it detached."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import GeneratorType
from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import expect_returned
from hooklab.course.exercises.forward import (
    ACCIDENTAL,
    CUT_IN_PLACE,
    expect_error_comes_out,
    linear,
    misconception_named,
    whole_numbers,
    why_not_detached,
)
from hooklab.course.exercises.frames import kind_of
from hooklab.course.exercises.misconceptions import fitting
from hooklab.course.exercises.trial import NotYet, Trial, apart, expect_dtype, expect_tensor, same, tensor_text
from hooklab.course.exercises.varying import runs_of


class _Parts(nn.Module):
    """Puts out its result in a given form."""

    def __init__(self, seed: int, form: Callable[[Tensor], Any]):
        super().__init__()
        self.linear, self.form = linear(2, 2, seed), form
        self.made: Any = None
        self.tensors: list[Tensor] = []

    def forward(self, x: Tensor) -> Any:
        self.made = self.form(self.linear(x))
        self.tensors = _tensors_in(self.made)
        return self.made


class _Reader(nn.Module):
    """Uses every tensor that its layer puts out, and notes what it got."""

    def __init__(self, seed: int, form: Callable[[Tensor], Any]):
        super().__init__()
        self.layer = _Parts(seed, form)
        self.got: list[str] = []
        self.why_noticed: str | None = None
        self.result = torch.tensor(0.0)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.layer(x)
        self.got.append(_described(parts))
        if parts is not self.layer.made:
            self.why_noticed = ACCIDENTAL
        elif not all(one.requires_grad for one in self.parameters()):
            self.why_noticed = None  # frozen: the trial says so
        elif all(map(operator.is_, _tensors_in(parts), self.layer.tensors)):
            self.why_noticed = CUT_IN_PLACE
        else:
            self.why_noticed = "writing into the model's own dictionary or list"
        self.result = torch.stack([one.sum() for one in _tensors_in(parts)]).sum()
        return self.result


CUT = " without a graph"
_FORMS: list[Callable[[Tensor], Any]] = [
    lambda y: (y, (y * 2, y * 3)),
    lambda y: {"scores": y, "hidden": [y * 2, (y * 3,)], "aux": None, "steps": 3},
    lambda y: [y, {"more": y * 2}, "a note"],
    lambda y: {0: [[[y]]], 1: (0, False, None, "", 1.5, {}, [])},
    lambda y: y,
]


@exercise("3.4", "Any output, detached")
@misconception_named()
def any_output_detached(trial: Trial) -> str:
    for seed, form in enumerate(_FORMS):
        dtype = torch.float64 if seed == 2 else torch.float32
        model, x = _Reader(seed, form).to(dtype), whole_numbers(seed, 1, 2).to(dtype)
        wanted = form(model.layer.linear(x))
        with runs_of(model) as runs, runs_of(model.layer) as uses:
            got = trial.call(model, model.layer, x)
        if runs.direct or runs.calls > 1:
            runs.expect(1)
        runs.expect_mode()
        if not model.got:
            raise NotYet("model(x) did not run", expected="one call of the model, with your hook on the layer")
        if model.got[0] != _described(wanted):
            raise NotYet(
                "the model noticed your hook",
                expected=f"the model goes on with {_described(wanted)}",
                got=f"it got {model.got[0]}",
                likely=model.why_noticed,
            )
        why = "forgotten return, in your function or in the helper that walks through the parts"
        expect_returned(got, tensor_text(wanted), why)
        if same(got, model.result):
            raise NotYet(
                "that is the model's result",
                expected=tensor_text(wanted),
                got=tensor_text(got),
                likely="return value of model(x), not what the hook has stored",
            )
        if isinstance(got, list | tuple) and len(got) == 1 and _form_of(got[0]) == _form_of(wanted):
            raise NotYet(
                f"a {type(got).__name__} came back, with the output in it",
                expected=tensor_text(wanted),
                got=tensor_text(got),
                likely="whole list: return its entry",
            )
        _expect_structure(trial, got, wanted, "")
        uses.expect_no_more(1)
    expect_error_comes_out(trial, model, model.layer, x)
    return "a tuple in a tuple, a dictionary with a list and None, a list and a plain tensor kept their structure"


def _expect_structure(trial: Trial, got: Any, wanted: Any, place: str) -> None:
    where = f"the part at {place}" if place else "what your function returned"
    shown = apart(wanted, got)
    if isinstance(wanted, Tensor):
        got = expect_tensor(got, where)
        if not same(got, wanted):
            raise NotYet(f"{where} has other numbers", **shown)
        if got.requires_grad:
            raise NotYet(
                f"{where} is not detached",
                expected="requires_grad is False for every tensor, however deep",
                got="requires_grad is True",
                likely=_why_not_detached(trial) if got.grad_fn else why_not_detached(got),
            )
        expect_dtype(got, where, wanted.dtype)
        return
    if not isinstance(wanted, tuple | list | dict):
        if type(got) is not type(wanted):
            shown["got"] += f" ({kind_of(got)})"
        if type(got) is not type(wanted) or got != wanted:
            raise NotYet(f"{where} has changed", **shown, likely="what is no tensor stays as it is")
        return
    if type(got) is not type(wanted):
        if isinstance(got, Tensor):
            likely = "only one part kept: the others belong to the output as well"
        elif isinstance(got, GeneratorType):
            likely = "generator: `(f(p) for p in parts)` is no tuple yet, write tuple(...) around it"
        elif isinstance(got, tuple | list | dict | set):
            likely = f"another container: a {type(wanted).__name__} must stay a {type(wanted).__name__}"
        else:
            likely = None
        raise NotYet(f"{where} is no {type(wanted).__name__}, but: {type(got).__name__}", **shown, likely=likely)
    if len(got) != len(wanted) or (isinstance(wanted, dict) and list(got) != list(wanted)):
        is_shorter = len(got) < len(wanted)
        lost = "lost on the way: keep None and numbers too" if is_shorter else None
        raise NotYet(f"{where} has other parts", **shown, likely=lost)
    for key in wanted if isinstance(wanted, dict) else range(len(wanted)):
        _expect_structure(trial, got[key], wanted[key], f"{place}[{key!r}]")


def _detached(part: Any, depth: int = 9, kinds: Any = (tuple, list, dict)) -> Any:
    """A part with its tensors detached, in containers of these kinds, so many levels deep."""
    if isinstance(part, Tensor):
        return part.detach()
    if depth == 0 or not isinstance(part, kinds):
        return part
    if isinstance(part, dict):
        return {key: _detached(one, depth - 1, kinds) for key, one in part.items()}
    return type(part)(_detached(one, depth - 1, kinds) for one in part)


_DEEPER = "the parts of a part need the same treatment, so let the function call itself"
_GUESSES: dict[str, Callable[[Any], Any]] = {
    "still part of the graph: detach each tensor": lambda output: output,
    f"not deep enough: {_DEEPER}": lambda output: _detached(output, depth=1),
    f"not deep enough, two levels only: {_DEEPER}": lambda output: _detached(output, depth=2),
    "dictionaries are left as they are": lambda output: _detached(output, kinds=(tuple, list)),
    "lists are left as they are": lambda output: _detached(output, kinds=(tuple, dict)),
    "tuples are left as they are": lambda output: _detached(output, kinds=(list, dict)),
}


def _why_not_detached(trial: Trial) -> str | None:
    """The one guess that leaves the same tensors on the graph, in all forms that come back in their structure."""
    given, outputs = [], []
    for form in _FORMS:
        model = _Reader(0, form)
        with suppress(NotYet):
            got = trial.call(model, model.layer, torch.ones(1, 2))
            if _form_of(got) == _form_of(model.layer.made):
                given.append(got)
                outputs.append(model.layer.made)
    programs = {words: lambda output, guess=guess: _described(guess(output)) for words, guess in _GUESSES.items()}
    return fitting([_described(one) for one in given], programs, outputs)


def _described(parts: Any) -> str:
    """The structure in short, each tensor by whether it has a graph."""
    if isinstance(parts, Tensor):
        # the graph may be switched off for the whole pass, which is nobody's fault
        return "a tensor" if parts.requires_grad or not torch.is_grad_enabled() else f"a tensor{CUT}"
    if isinstance(parts, dict):
        return "{" + ", ".join(f"{key!r}: {_described(one)}" for key, one in parts.items()) + "}"
    if isinstance(parts, list | tuple):
        inside = ", ".join(map(_described, parts))
        return f"[{inside}]" if isinstance(parts, list) else f"({inside}{',' if len(parts) == 1 else ''})"
    return tensor_text(parts)


def _form_of(parts: Any) -> str:
    """The structure in short, with a graph or without."""
    return _described(parts).replace(CUT, "")


def _tensors_in(parts: Any) -> list[Tensor]:
    if isinstance(parts, Tensor):
        return [parts]
    inside: Sequence[Any] = list(parts.values()) if isinstance(parts, dict) else parts
    return [one for part in inside for one in _tensors_in(part)] if isinstance(parts, dict | list | tuple) else []
