"""Check of exercise 2.6: clip every parameter's gradient while somebody else's training loop runs."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import error_comes_out, hidden_error
from hooklab.course.exercises.faults import PlannedError
from hooklab.course.exercises.gradients import close, misconception_named, stop_at_fault
from hooklab.course.exercises.trial import NotYet, Trial, same, tensor_text

LEARNING_RATE = 0.5
X = torch.tensor([[0.001, 0.002], [0.003, 0.004]])
# The gradients that arrive: directions of length 1, and lengths.
# Matrices, so that a norm of each row, or the largest singular value, is another number.
DIRECTIONS = torch.tensor(
    [[[0.48, 0.64], [0.6, 0.0]], [[0.48, 0.64], [0.6, 0.0]], [[1.0, 0.0], [0.0, 0.0]], [[-0.48, 0.64], [0.6, 0.0]]]
)
LENGTHS = (50.0, 0.5, 0.0, 100.0)


@exercise("2.6", "Clip inside somebody else's loop")
@misconception_named()
def clip_inside_somebody_elses_loop(trial: Trial) -> str:
    for limit in (5.0, 1.0):
        model, start = _Model(), _Model().state_dict()
        train = _Loop(model)
        got = trial.call(model, limit, train, may_change=True)
        if train.calls != 1:
            raise NotYet(f"train() was called {train.calls} times", expected="one call, without arguments")
        for direction, length, stored in zip(DIRECTIONS, LENGTHS, train.stored, strict=True):
            _expect_clipped(direction, length, limit, stored, train.hooked)
        if got is not train.result:
            raise NotYet(
                "your function does not return what train() returned",
                expected="the very object",
                got=tensor_text(got),
                likely="forgotten return" if got is None else None,
            )
        _expect_moved_by_gradients_only(model, start, train.stored)
        stop_at_fault(trial)
    _expect_removed_after_error(trial)
    return (
        "long gradients shortened, short ones untouched, the frozen parameter skipped, no hook left even after an error"
    )


class _Model(nn.Module):
    """out = scale·x + shift + frozen: a gradient g at out is shift's gradient, and g·x is the one of scale."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ParameterDict(
            {"scale": torch.ones(2, 2), "shift": torch.zeros(2, 2), "frozen": torch.ones(2, 2)}
        )
        self.inner["frozen"].requires_grad_(False)

    def forward(self) -> Tensor:
        out: Tensor = self.inner["scale"] * X + self.inner["shift"] + self.inner["frozen"]
        return out


class _Loop:
    """The training loop that an answer gets: it sends each gradient to the model's output and notes what is stored."""

    def __init__(self, model: _Model):
        self.model = model
        self.result = object()
        self.calls = 0
        self.hooked: set[str] = set()
        self.stored: list[dict[str, Tensor]] = []

    def __call__(self) -> object:
        self.calls += 1
        parameters = dict(self.model.inner.items())
        self.hooked = {n for n, p in parameters.items() if p._backward_hooks or p._post_accumulate_grad_hooks}
        for direction, length in zip(DIRECTIONS, LENGTHS, strict=True):
            self.model.zero_grad()
            (length * direction * self.model()).sum().backward()
            self.stored.append({n: p.grad.clone() for n, p in parameters.items() if p.grad is not None})
            with torch.no_grad():
                for name, gradient in self.stored[-1].items():
                    parameters[name] -= LEARNING_RATE * gradient
        return self.result


def _expect_clipped(
    direction: Tensor, length: float, limit: float, stored: dict[str, Tensor], hooked: set[str]
) -> None:
    """Hold the stored gradients against what arrived: shift's is to be clipped, scale's is short in any case."""
    shift, scale = stored.get("shift"), stored.get("scale")
    arriving, wanted = length * direction, min(length, limit) * direction
    before = f"limit {limit:g}, gradient {tensor_text(arriving)} of norm {length:g}"
    shown = {"expected": f"{before}: stored {tensor_text(wanted)}", "got": tensor_text(shift)}
    if shift is None or scale is None:
        raise NotYet("a parameter got no gradient", **shown)
    if shift.isnan().any():
        raise NotYet("a gradient of zeros became NaN", **shown, likely="0/0: divide by the norm only above the limit")
    if length > limit and same(shift, arriving):
        likely = "forgotten return: the hook made a new tensor and threw it away, so None came back"
        if not hooked:
            likely = "no hook was on any parameter while train() ran: register first, run, then remove"
        elif "shift" not in hooked:
            likely = "some parameters had a hook, others had none: model.parameters() names them all"
        raise NotYet("a long gradient was stored as it came", **shown, likely=likely)
    if not same(shift, wanted) and same(shift, arriving.clamp(-limit, limit)):
        raise NotYet(
            "each number was cut on its own, so the gradient points elsewhere",
            **shown,
            likely="by value instead of by norm: one factor for the whole gradient keeps its direction",
        )
    for got, short in ((scale, arriving * X), (shift, arriving)):
        if short.norm() < limit and close(got.norm().item(), limit):
            raise NotYet(
                "a short gradient was stretched to the limit",
                expected=f"limit {limit:g}, gradient {tensor_text(short)}: stored as it came",
                got=tensor_text(got),
                likely="always scaled: leave a gradient alone whose norm is not above the limit",
            )
    if not same(shift, wanted):
        likely_norm = None
        if length > limit and not same(shift / shift.norm(), direction):
            likely_norm = "one norm for each row or column: one number for the whole gradient keeps its direction"
        elif length > limit:
            likely_norm = "another norm: grad.norm() is the root of the sum of all squares, for a matrix too"
        raise NotYet("the stored gradient is not the clipped one", **shown, likely=likely_norm)
    if not same(scale, arriving * X):
        raise NotYet(
            "clipping one parameter changed the gradient of another one",
            expected=f"limit {limit:g}: {tensor_text(arriving * X)}",
            got=tensor_text(scale),
            likely="in place: the gradient's buffer is shared; return a new tensor",
        )


def _expect_moved_by_gradients_only(model: _Model, start: dict[str, Tensor], stored: list[dict[str, Tensor]]) -> None:
    if model.inner["frozen"].requires_grad or not same(model.inner["frozen"], start["inner.frozen"]):
        raise NotYet(
            "a frozen parameter is not frozen any more",
            expected="requires_grad=False and its values, as before",
            likely="thawed to be hooked: skip a parameter that needs no gradient",
        )
    for name in ("shift", "scale"):
        wanted = start[f"inner.{name}"] - LEARNING_RATE * sum((seen[name] for seen in stored), torch.zeros(2, 2))
        if not same(model.inner[name], wanted, 1e-4):
            raise NotYet(
                f"the parameter {name!r} is not where the steps left it",
                expected=tensor_text(wanted),
                got=tensor_text(model.inner[name]),
                likely="weights changed: clip gradients, not parameters",
            )


def _expect_removed_after_error(trial: Trial) -> None:
    def train() -> None:
        raise PlannedError

    model, faults = _Model(), len(trial.faults)
    with trial.watch(model):
        came_out = error_comes_out(trial, partial(trial.answer, model, 5.0, train))
    if not came_out:
        raise hidden_error("train()")
    if len(trial.faults) > faults:
        del trial.faults[faults:]
        raise NotYet(
            "train() raised an exception, and your hooks stayed on the parameters (they were removed)",
            expected="no hook of yours is left, whatever happens in train()",
            likely="removed on success only: use try … finally",
        )
