"""The check of exercise 10.2: a checkpoint, from two saved-tensor hooks."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import error_comes_out, hidden_error
from hooklab.course.exercises.faults import PlannedError
from hooklab.course.exercises.forward import linear, whole_numbers
from hooklab.course.exercises.misconceptions import Reason, named_by
from hooklab.course.exercises.trial import NotYet, Trial, apart, expect_tensor, same, tensor_text
from hooklab.course.lesson10.memory import Meter

ROWS = 64
_LIKELY: dict[str, Reason] = {
    "cannot access local variable": "a count that an inner function changes is declared there: `nonlocal count`",
    "you can only change requires_grad flags of leaf variables": "detach x before you ask it for a gradient",
}


class _Note:
    pass


def _watched(tensor: Tensor) -> weakref.ref[_Note]:
    """Return a weak reference to a note that lives as long as the graph behind the tensor."""
    note = _Note()
    if tensor.grad_fn is not None:
        notes: Any = tensor.grad_fn.metadata
        notes["note"] = note
    return weakref.ref(note)


class _Function:
    """A function that counts its runs: two linear layers and more between them, with its own weights."""

    def __init__(self, seed: int, kind: str) -> None:
        self.first, self.second, self.kind = linear(4, 4, seed), linear(4, 4, seed + 1), kind
        self.graphs: list[weakref.ref[_Note]] = []  # of each run, what lives as long as its graph
        self.seen: list[tuple[bool, bool]] = []  # of each run: is it recorded, and does its input ask for a gradient?

    @property
    def runs(self) -> int:
        return len(self.seen)

    def __call__(self, x: Tensor) -> Tensor:
        self.seen.append((torch.is_grad_enabled(), x.requires_grad))
        entered: Tensor = self.first(x)
        self.graphs.append(_watched(entered))
        hidden = entered.div(8).tanh().sin().cos()
        if self.kind == "uses x twice":
            hidden = hidden * x + x * x
        result: Tensor = self.second(hidden)
        if self.kind == "ends in exp":
            result = result.div(8).exp()
        return result

    @property
    def parameters(self) -> list[Tensor]:
        return [*self.first.parameters(), *self.second.parameters()]


KINDS = ("two layers", "uses x twice", "ends in exp")
NAMES = ["the first weight", "the first bias", "the second weight", "the second bias"]


@exercise("10.2", "Checkpointing from two functions")
@named_by(_LIKELY)
def a_checkpoint_from_two_functions(trial: Trial) -> str:
    for seed, kind in enumerate(KINDS):
        for asks in (True, False):
            _one_use(trial, _Function(seed, kind), whole_numbers(seed, ROWS, 4).requires_grad_(asks))
    _in_a_row(trial)
    _after_a_part(trial)
    _a_module(trial)
    _without_gradients(trial)
    _expect_taken_off(trial, "when your function has returned")
    if not error_comes_out(trial, lambda: trial.answer(_raises, whole_numbers(6, 2, 4))):
        raise hidden_error("the function")
    _expect_taken_off(trial, "when the function raises")
    return "nothing is kept but the input, the function runs once more in the backward, and all gradients are right"


def _one_use(trial: Trial, function: _Function, x: Tensor) -> None:
    asks = "" if x.requires_grad else ", whose x asks for no gradient"
    what = f"a function of the kind '{function.kind}'{asks}"
    wanted = _truth(function, x)
    with Meter() as meter:
        y = trial.call(function, x)
        _expect_result(what, function, y, wanted)
        if function.runs != 1:
            raise _runs(f"{what}: before the backward", 1, function.runs, "")
        kept = meter.alive - y.nbytes - x.nbytes  # a copy of x would be no crime
        if kept > 0:
            raise NotYet(
                f"{what}: between forward and backward, inner values are still there",
                expected="the result, and x",
                got=f"{kept} bytes more",
                likely="pack returns the tensor, or keeps it elsewhere: return its number and keep nothing",
            )

        def backward() -> None:
            y.sum().backward()

        with _missing_value_explained(function):
            trial.run(backward)
    if function.runs != 2:
        likely = "the function runs again for each value: keep the values of the second run in a dictionary"
        raise _runs(f"{what}: forward and backward together", 2, function.runs, likely if function.runs > 2 else "")
    _expect_gradients(what, function, x, wanted)
    left = meter.alive - y.nbytes - _bytes(function, x)
    if left > x.nbytes:
        raise NotYet(
            f"{what}: after the backward, values of the second run are still there",
            expected="nothing of it is left",
            got=f"{left} bytes",
            likely="with their graph: what the second run saves goes into the store detached"
            if function.graphs[-1]() is not None
            else "a store that outlives the call: make it inside your function, and pop each value",
        )


@contextmanager
def _missing_value_explained(function: _Function) -> Iterator[None]:
    """Say why a value that unpack looks for is not there, from how the second run went."""
    try:
        yield
    except NotYet as fault:
        if ".backward(" in fault.missing and function.runs > 1:
            likely = "a backward of its own: the second run needs none, it only has to save"
            raise NotYet(fault.missing, expected="no exception", likely=likely) from fault
        if "unpack_hook expected to be a Tensor" in fault.missing:
            likely = "unpack returns no tensor: it is given what pack returned, and hands back the value of that number"
            raise NotYet(fault.missing, expected="a tensor", likely=likely) from fault
        lacks = ["raised KeyError", "list index out of range", "pop from empty list"]
        if function.seen[0][1] != function.seen[-1][1]:
            lacks.append("returned an invalid gradient")
        if dict(fault.details).get("likely") or not any(words in fault.missing for words in lacks):
            raise
        first, last = function.seen[0], function.seen[-1]
        likely = "numbers that do not fit: both runs of a call count from the same start, whatever other calls do"
        if function.runs == 1:
            likely = "the function has not run again: nothing fills the store"
        elif not last[0]:
            likely = (
                "the second run saved nothing: a backward runs with recording off, switch it on: torch.enable_grad()"
            )
        elif first[1] != last[1]:
            likely = "the second run saved other values: its input must ask for a gradient if, and only if, x does"
        raise NotYet(fault.missing, expected="no exception", likely=likely) from fault


def _in_a_row(trial: Trial) -> None:
    """Two functions behind one another, and one of them twice: nothing may be shared."""
    one, two = _Function(7, KINDS[0]), _Function(9, KINDS[1])
    x = whole_numbers(3, ROWS, 4).requires_grad_()
    wanted = _together(lambda function, x: function(x), one, two, x)
    got = trial.run(_together, trial.answer, one, two, x)
    _expect_same("three checkpoints in a row", ["x", *2 * NAMES], got, wanted)


def _together(checkpoint: Callable[..., Any], one: _Function, two: _Function, x: Tensor) -> list[Tensor | None]:
    for parameter in (x, *one.parameters, *two.parameters):
        parameter.grad = None
    hidden = checkpoint(one, x)
    (checkpoint(two, hidden.div(4)).sum() + checkpoint(one, hidden.div(64)).sum()).backward()
    return [parameter.grad for parameter in (x, *one.parameters, *two.parameters)]


def _after_a_part(trial: Trial) -> None:
    """A backward that does not ask for all values, and then another call."""
    w, before, x = (whole_numbers(seed, 3).requires_grad_() for seed in (1, 2, 3))

    def two_branches(x: Tensor) -> Tensor:
        return w.exp() + x.exp()

    for one, inputs in ((before, [w]), (x, [x])):
        y = trial.call(two_branches, one)
        trial.run(lambda y=y, inputs=inputs: y.sum().backward(inputs=inputs))
    if not same(x.grad, x.detach().exp()):
        raise NotYet(
            "the gradient is another one when the backward before has not asked for all of its values",
            expected=tensor_text(x.detach().exp()),
            got=tensor_text(x.grad),
            likely="one store for all calls: make it inside your function"
            if same(x.grad, before.detach().exp())
            else None,
        )


def _a_module(trial: Trial) -> None:
    """A module in double precision, whose graph is kept for a second backward."""
    model, x = nn.Sequential(linear(4, 4, 3), nn.Tanh(), linear(4, 2, 4)).double(), whole_numbers(4, 2, 4).double()
    wanted = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    modes: list[bool] = []
    with model.register_forward_hook(lambda module, args, output: modes.append(module.training)):
        y = trial.call(model, x)
        if modes == []:
            raise NotYet("a module that you are given is not called", expected="function(x), never function.forward(x)")

        def backward() -> None:
            y.sum().backward(retain_graph=True)

        trial.run(backward)
        _expect_same("a module in double precision", NAMES, [one.grad for one in model.parameters()], wanted)
        try:
            trial.run(backward)
        except NotYet as fault:
            second = "the first backward was all right, and so is a second one if the graph was kept"
            raise NotYet(f"in a second backward, {fault.missing}", expected=second) from fault
        twice = [2 * one for one in wanted]
        _expect_same("after a second backward", NAMES, [one.grad for one in model.parameters()], twice)
    if not all(modes):
        raise NotYet("the second run is in another mode than the first", expected="the mode that the module is in")


def _expect_taken_off(trial: Trial, when: str) -> None:
    if any("your code left the hooks on saved tensors" in note for note in trial.notes):
        raise NotYet(
            f"your hooks on saved tensors stay on {when}",
            expected="they are for the values of function(x), and for no others",
            likely="not taken off: they belong in a `with` block round function(x)",
        )


def _raises(x: Tensor) -> Tensor:
    raise PlannedError


def _without_gradients(trial: Trial) -> None:
    function, x = _Function(5, KINDS[0]), whole_numbers(5, 2, 4)
    with torch.no_grad():
        got = trial.call(function, x)
    if not isinstance(got, Tensor) or got.requires_grad or not same(got, function(x).detach()):
        raise NotYet("under torch.no_grad() the result is another one", expected="function(x), without a graph")


def _truth(function: _Function, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return the result and the gradients of a plain run; leave no trace of it."""
    y = function(x)
    inputs = [one for one in (x, *function.parameters) if one.requires_grad]
    grads = list(torch.autograd.grad(y.sum(), inputs))
    function.seen.clear()
    return y.detach(), grads


def _expect_result(what: str, function: _Function, y: Any, wanted: tuple[Tensor, list[Tensor]]) -> None:
    expect_tensor(y, "your result", wanted[0].shape)
    if not same(y, wanted[0]):
        raise NotYet(f"{what}: the result is another one", expected="function(x)", got=tensor_text(y))
    if not y.requires_grad:
        raise NotYet(
            f"{what}: the result has no graph",
            expected="a backward from it reaches x and the parameters",
            likely="the result is detached"
            if function.seen[0][0]
            else "the first run was not recorded: it is an ordinary run, only what it saves is replaced",
        )


def _expect_gradients(what: str, function: _Function, x: Tensor, wanted: tuple[Tensor, list[Tensor]]) -> None:
    inputs = [one for one in (x, *function.parameters) if one.requires_grad]
    got = [one.grad for one in inputs]
    likely = None
    if all(one is not None and same(one, 2 * truth) for one, truth in zip(got[-4:], wanted[1][-4:], strict=True)):
        likely = "counted twice: the second run must not run a backward of its own"
    elif any(one is None for one in got):
        likely = "cut off: a gradient did not arrive, so a part of the first run is not in the graph"
    names = ["x", *NAMES] if x.requires_grad else NAMES
    _expect_same(what, names, got, wanted[1], likely)


def _expect_same(
    what: str, names: Sequence[str], got: Sequence[Any], wanted: Sequence[Any], likely: str | None = None
) -> None:
    """Raise NotYet that shows one gradient which is another one."""
    for name, one, truth in reversed(list(zip(names, got, wanted, strict=True))):
        if not same(one, truth):
            raise NotYet(
                f"{what}: the gradients are other ones, such as that of {name}",
                **apart(truth, one),
                likely=likely,
            )


def _runs(what: str, wanted: int, got: int, likely: str) -> NotYet:
    return NotYet(f"{what}: another number of runs", expected=f"{wanted}", got=f"{got}", likely=likely or None)


def _bytes(function: _Function, x: Tensor) -> int:
    return sum(one.grad.nbytes for one in (x, *function.parameters) if one.grad is not None)
