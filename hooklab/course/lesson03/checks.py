"""Checks of lesson 3: forward hooks that see an output, and hooks that replace it.

The longer ones stand in modules of their own: `check_channel` (3.2), `check_structure` (3.4) and
`check_cleanup` (3.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import expect_returned
from hooklab.course.exercises.forward import (
    ACCIDENTAL,
    CUT_IN_PLACE,
    Net,
    expect_error_comes_out,
    linear,
    look,
    misconception_named,
    refuse_disturbed,
    whole_numbers,
    why_not_detached,
)
from hooklab.course.exercises.trial import NotYet, Trial, expect_dtype, expect_tensor, same, tensor_text
from hooklab.course.exercises.varying import runs_of
from hooklab.course.lesson03.check_channel import switch_a_channel_off
from hooklab.course.lesson03.check_cleanup import a_capture_that_cleans_up
from hooklab.course.lesson03.check_structure import any_output_detached

__all__ = [
    "a_capture_that_cleans_up",
    "any_output_detached",
    "every_use_in_order",
    "one_layers_output",
    "switch_a_channel_off",
]


@exercise("3.1", "One layer's output")
@misconception_named()
def one_layers_output(trial: Trial) -> str:
    for seed, name in enumerate(("body.second", "body.first", "body")):
        dtype = torch.float64 if name == "body.first" else torch.float32
        model, x = Net(seed).train(name != "body.first").to(dtype), whole_numbers(seed, 3, 2).to(dtype)
        layer = model.get_submodule(name)
        taken_in, wanted, final = look(model, layer, x)
        model.forget()
        with runs_of(model) as runs, runs_of(layer) as uses:
            got = trial.call(model, layer, x)
        if runs.direct:
            runs.expect(1)
        if runs.calls and not model.passes:
            raise NotYet(
                "model(x) was stopped before its end",
                expected="one whole call of the model: its other hooks, and who waits for its result, need it too",
                likely="an exception that your hook raises, and your function catches",
            )
        if model.passes and runs.calls > 1:
            raise NotYet(f"model(x) ran {runs.calls} times", expected="one call of the model")
        if not model.passes:
            likely = None
            if same(got, layer(x)):
                likely = "layer alone: in the model, the layer gets the output of the layers before it, not x"
            elif same(got, wanted):
                likely = "the output was taken from a copy of the model: hook the one that you were given"
            raise NotYet(
                "model(x) did not run",
                expected="one call of the model, during which the hook stores the layer's output",
                got=tensor_text(got),
                likely=likely,
            )
        if runs.inputs[0] is not x:
            raise NotYet("the model was called with something else than x", expected="model(x)")
        refuse_disturbed(model, [final])
        why = "forgotten return, or a hook that assigns to a name of its own: append to a list instead"
        expect_returned(got, tensor_text(wanted), why)
        if isinstance(got, list | tuple) and len(got) == 1 and same(got[0], wanted):
            raise NotYet(
                f"a {type(got).__name__} came back, with the output in it",
                expected="the tensor itself",
                got=tensor_text(got),
                likely="whole list: return its entry",
            )
        got = expect_tensor(got, "what your function returned")
        shown = {"expected": tensor_text(wanted), "got": tensor_text(got)}
        if not same(got, wanted):
            if same(got, final):
                raise NotYet("that is the model's result", **shown, likely="return value of model(x), not the hook's")
            if same(got, taken_in):
                raise NotYet("that is what the layer took in", **shown, likely="args instead of output")
            raise NotYet(f"that is not what {name!r} put out", **shown)
        if got.requires_grad:
            raise NotYet("the output is not detached", expected="requires_grad is False", likely=why_not_detached(got))
        expect_dtype(got, "what your function returned", dtype)
        uses.expect_no_more(1)
    expect_error_comes_out(trial, model, layer, x)
    return "the outputs of three different modules came back, detached, and the model ran once, undisturbed"


class _Step(nn.Linear):
    """Keeps the tensor that it made last, until the model has looked at it."""

    _made: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self._made = super().forward(x)
        return self._made


class _Loop(nn.Module):
    """Uses one step several times, and then overwrites each of its outputs in place.

    Each use gets what came of the one before, or `anew`, all of them the same.
    """

    def __init__(self, times: int, seed: int, change: int = 1000, anew: bool = False):
        super().__init__()
        self.step, self.out = linear(2, 2, seed, _Step), linear(2, 2, seed + 10, _Step)
        self.times, self.change, self.anew = times, change, anew
        self.values: list[Tensor] = []  # what the step gave, as the model got it
        self.has_graph, self.passes, self.why_cut = True, 0, ACCIDENTAL

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        start = x
        for _ in range(self.times):
            x = self.step(start if self.anew else x)
            self.values.append(x.clone())
            self.has_graph = x.requires_grad or not torch.is_grad_enabled()
            self.why_cut = CUT_IN_PLACE if x is self.step._made else ACCIDENTAL
            del self.step._made  # nothing with a graph is left on the model: it can be copied
            x += self.change
        result: Tensor = self.out(x)
        del self.out._made
        return result


@exercise("3.3", "Mend it: every use, in order")
@misconception_named()
def every_use_in_order(trial: Trial) -> str:
    loops = (_Loop(3, 0), _Loop(2, 1, change=-1000), _Loop(0, 2), _Loop(4, 3, anew=True))
    for seed, model in enumerate(loops):
        times, x = model.times, whole_numbers(seed, 1 + seed % 2, 2)
        if seed == 1:
            model, x = model.double(), x.double()
        model(x)
        wanted, model.values, model.passes = model.values, [], 0
        with runs_of(model) as runs, runs_of(model.step) as uses:
            got = trial.call(model, model.step, x)
        if runs.direct:
            runs.expect(1)
        runs.expect_mode()
        if times and not model.values:
            raise NotYet("model(x) did not run", expected="one call of the model, with your hook on the module")
        if not all(map(same, model.values, wanted)):
            raise NotYet(
                "your hook changed what the model computes",
                expected=f"the module gives {tensor_text(wanted)}, as without a hook",
                got=f"{tensor_text(model.values)}",
                likely=ACCIDENTAL,
            )
        if not model.has_graph:
            raise NotYet(
                "your hook cut the model's graph: the module no longer gets a gradient",
                expected="a hook that only looks returns nothing",
                got="the model went on with a tensor without a graph",
                likely=model.why_cut,
            )
        _expect_uses(trial, got, wanted, model, x)
        if model.passes > 1:
            raise NotYet(f"model(x) ran {model.passes} times", expected="one call of the model")
        uses.expect_no_more(times)
    expect_error_comes_out(trial, model, model.step, x)
    return "three uses, two, none and four equal ones gave as many entries, in order, safe from later in-place changes"


def _expect_uses(trial: Trial, got: Any, wanted: list[Tensor], model: _Loop, x: Tensor) -> None:
    times = len(wanted)
    shown = {"expected": tensor_text(wanted), "got": tensor_text(got)}
    if isinstance(got, Tensor):
        stacked = times > 1 and got.shape[:1] == (times,)
        raise NotYet(
            "a single tensor came back, not a list",
            **shown,
            likely="stacked: return the list itself" if stacked else "only one use kept",
        )
    if not isinstance(got, list | tuple):
        raise NotYet(
            "that is not a list of tensors",
            **shown,
            likely="forgotten return, at the end of your function" if got is None else None,
        )
    for number, one in enumerate(got):
        expect_tensor(one, f"entry {number} of your list")
    written_over = [one + model.change for one in wanted]
    if len(got) != times:
        raise NotYet(
            f"{len(got)} {'entry' if len(got) == 1 else 'entries'} for {times} uses",
            **shown,
            likely=_why_another_number(trial, got, [*wanted, *written_over], model, x),
        )
    if times > 1 and not model.anew and all(map(same, got, wanted[::-1])):
        raise NotYet("the uses are in reverse order", **shown, likely="inserted in front, or reversed at the end")
    if times and all(map(same, got, written_over)):
        raise NotYet(
            "the entries are not what the module put out, but what became of it later",
            **shown,
            likely=f"same memory: detach() does not copy, and the model adds {model.change} in place afterwards; clone",
        )
    if times and all(map(same, got, [x, *written_over])):
        raise NotYet("those are the module's inputs", **shown, likely="args instead of output")
    if not all(map(same, got, wanted)):
        raise NotYet("those are not the module's outputs", **shown)
    for one, want in zip(got, wanted, strict=True):
        if one.requires_grad:
            likely = why_not_detached(one)
            if one.grad_fn is not None:  # a kept output that was no clone is another number by now
                likely = "still part of the graph: `output.clone()` alone is not enough, detach as well"
            raise NotYet("the entries are not detached", expected="requires_grad is False for each", likely=likely)
        expect_dtype(one, "an entry of your list", want.dtype)


def _why_another_number(trial: Trial, got: Sequence[Tensor], uses: list[Tensor], model: _Loop, x: Tensor) -> str | None:
    if model.passes > 1:
        return f"the model was called {model.passes} times"
    if len(got) == 1 and not model.anew and any(same(got[0], uses[at]) for at in (model.times - 1, -1)):
        return "overwritten: each use replaces the one before; append instead"
    if len(got) == 2 * model.times and all(map(same, got[::2], got[1::2])):
        return "registered twice: two hooks are on the module, and each stores"
    number = len(got)
    again = trial.call(model, model.step, x)
    if isinstance(again, list | tuple) and len(again) > number > model.times:
        return "old entries: a default argument or a global list is shared by all calls; make the list in the function"
    return None
