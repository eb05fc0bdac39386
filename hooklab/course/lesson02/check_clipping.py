"""Check of exercise 2.6: clip every parameter's gradient while somebody else's training loop runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import error_comes_out, hidden_error
from hooklab.course.exercises.faults import PLANNED
from hooklab.course.exercises.gradients import close, misconception_named, stop_at_fault
from hooklab.course.exercises.guards import of_the_answer
from hooklab.course.exercises.misconceptions import fitting
from hooklab.course.exercises.trial import NotYet, Trial, same, tensor_text

LEARNING_RATE = 0.5
X = torch.tensor([[0.001, 0.002], [0.003, 0.004]])
# The gradients that arrive at the model's output: directions of length 1, times lengths.
# Matrices, so that a norm of each row, or the largest singular value, is another number.
DIRECTIONS = torch.tensor(
    [[[0.48, 0.64], [0.6, 0.0]], [[0.48, 0.64], [0.6, 0.0]], [[1.0, 0.0], [0.0, 0.0]], [[-0.48, 0.64], [0.6, 0.0]]]
)
AT_OUT = [length * direction for length, direction in zip((50.0, 0.5, 0.0, 100.0), DIRECTIONS, strict=True)]


@exercise("2.6", "Clip inside somebody else's loop")
@misconception_named()
def clip_inside_somebody_elses_loop(trial: Trial) -> str:
    for limit in (5.0, 1.0):
        model, start = _Model(), {name: one.detach() for name, one in _Model().named_parameters()}
        train = _Loop(model)
        got = trial.call(model, limit, train, may_change=True)
        if train.calls != 1:
            raise NotYet(f"train() was called {train.calls} times", expected="one call, without arguments")
        _expect_clipped(limit, train)
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
    """out = scale·x + shift + frozen + root + deep: parameters on the root and at several depths, of several shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ParameterDict(
            {"scale": torch.ones(2, 2), "shift": torch.zeros(2, 2), "frozen": torch.ones(2, 2)}
        )
        self.inner["frozen"].requires_grad_(False)
        self.root = nn.Parameter(torch.zeros(2))
        self.blocks = nn.ModuleList([nn.ModuleDict({"last": nn.ParameterDict({"deep": torch.tensor(0.0)})})])

    def forward(self) -> Tensor:
        out: Tensor = self.inner["scale"] * X + self.inner["shift"] + self.inner["frozen"]
        return out + self.root + self.get_parameter("blocks.0.last.deep")


def _arriving(at_out: Tensor) -> dict[str, Tensor]:
    """The gradient that comes to each parameter, by the one at the model's output."""
    return {
        "inner.shift": at_out,
        "inner.scale": at_out * X,
        "root": at_out.sum(dim=0),
        "blocks.0.last.deep": at_out.sum(),
    }


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
        parameters = dict(self.model.named_parameters())
        self.hooked = {
            n for n, p in parameters.items() if of_the_answer(p._backward_hooks) or p._post_accumulate_grad_hooks
        }
        for at_out in AT_OUT:
            self.model.zero_grad()
            (at_out * self.model()).sum().backward()
            self.stored.append({n: p.grad.clone() for n, p in parameters.items() if p.grad is not None})
            with torch.no_grad():
                for name, gradient in self.stored[-1].items():
                    parameters[name].sub_(gradient, alpha=LEARNING_RATE)
        return self.result


def _expect_clipped(limit: float, train: _Loop) -> None:
    """Hold the stored gradients against what arrived: first shift's, which has the easiest numbers."""
    for name in _arriving(X):
        for at_out, stored in zip(AT_OUT, train.stored, strict=True):
            _expect_one_clipped(name, _arriving(at_out)[name], limit, stored.get(name), train)


def _expect_one_clipped(name: str, arriving: Tensor, limit: float, got: Tensor | None, train: _Loop) -> None:
    wanted, length = clipped(arriving, limit), arriving.norm().item()
    before = f"limit {limit:g}, gradient {tensor_text(arriving)} of norm {length:g}"
    shown = {"expected": f"{before}: stored {tensor_text(wanted)}", "got": tensor_text(got)}
    if got is None:
        raise NotYet("a parameter got no gradient", **shown)
    if got.isnan().any():
        raise NotYet("a gradient of zeros became NaN", **shown, likely="0/0: divide by the norm only above the limit")
    if same(got, wanted):
        return
    if same(got, arriving):
        raise NotYet("a long gradient was stored as it came", **shown, likely=_why_as_it_came(name, limit, train))
    if same(got, arriving.clamp(-limit, limit)):
        raise NotYet(
            "each number was cut on its own, so the gradient points elsewhere",
            **shown,
            likely="by value instead of by norm: one factor for the whole gradient keeps its direction",
        )
    if length < limit and close(got.norm().item(), limit):
        raise NotYet(
            "a short gradient was stretched to the limit",
            expected=f"limit {limit:g}, gradient {tensor_text(arriving)}: stored as it came",
            got=tensor_text(got),
            likely="always scaled: leave a gradient alone whose norm is not above the limit",
        )
    likely = _which_norm(limit, train)
    if name == "inner.scale" and likely is None:
        raise NotYet(
            "clipping one parameter changed the gradient of another one",
            expected=f"limit {limit:g}: {tensor_text(wanted)}",
            got=tensor_text(got),
            likely="in place: the gradient's buffer is shared; return a new tensor",
        )
    raise NotYet("the stored gradient is not the clipped one", **shown, likely=likely)


def _why_as_it_came(name: str, limit: float, train: _Loop) -> str | None:
    if not train.hooked:
        return "no hook was on any parameter while train() ran: register first, run, then remove"
    if name not in train.hooked:
        return "some parameters had a hook, others had none: model.parameters() names them all"
    gradients = [(_arriving(at_out)[name], stored[name]) for at_out, stored in zip(AT_OUT, train.stored, strict=True)]
    if all(same(stored, arriving) for arriving, stored in gradients):
        return "forgotten return: the hook made a new tensor and threw it away, so None came back"
    return None


def clipped(grad: Tensor, limit: float, norm: Tensor | None = None) -> Tensor:
    """The gradient, with lengths above the limit scaled to it; `norm` in place of its own."""
    norm = grad.norm() if norm is None else norm
    return grad * (limit / norm.clamp(min=1e-9)).clamp(max=1)


def _which_norm(limit: float, train: _Loop) -> str | None:
    """Which other number was taken for shift's norm, if one explains all that was stored."""
    root = "grad.norm() is the root of the sum of all squares, for a matrix too"
    line = "one number for the whole gradient keeps its direction"
    norms: dict[str, Callable[[dict[str, Tensor]], Tensor]] = {
        f"another norm, the sum of all sizes: {root}": lambda of: of["inner.shift"].abs().sum(),
        f"another norm, the largest size: {root}": lambda of: of["inner.shift"].abs().max(),
        f"another norm, the largest singular value: {root}": lambda of: torch.linalg.norm(of["inner.shift"], 2),
        f"one norm for each row: {line}": lambda of: of["inner.shift"].norm(dim=1, keepdim=True),
        f"one norm for each column: {line}": lambda of: of["inner.shift"].norm(dim=0, keepdim=True),
        "one norm over all parameters: each has a norm of its own, and the limit holds for each": lambda of: sum(
            (grad.norm() ** 2 for grad in of.values()), torch.tensor(0.0)
        ).sqrt(),
    }
    programs = {
        words: lambda at_out, norm=norm: clipped(at_out, limit, norm(_arriving(at_out)))
        for words, norm in norms.items()
    }
    return fitting([stored["inner.shift"] for stored in train.stored], programs, AT_OUT)


def _expect_moved_by_gradients_only(model: _Model, start: dict[str, Tensor], stored: list[dict[str, Tensor]]) -> None:
    frozen = model.inner["frozen"]
    if frozen.requires_grad or not same(frozen, start["inner.frozen"]):
        raise NotYet(
            "a frozen parameter is not frozen any more" if frozen.requires_grad else "a frozen parameter was trained",
            expected="requires_grad=False and its values, as before",
            likely="thawed to be hooked: skip a parameter that needs no gradient",
        )
    for name in _arriving(X):
        wanted = start[name] - LEARNING_RATE * sum((seen[name] for seen in stored), torch.tensor(0.0))
        if not same(model.get_parameter(name), wanted, 1e-4):
            raise NotYet(
                f"the parameter {name!r} is not where the steps left it",
                expected=tensor_text(wanted),
                got=tensor_text(model.get_parameter(name)),
                likely="weights changed: clip gradients, not parameters",
            )


def _expect_removed_after_error(trial: Trial) -> None:
    for error, words, likely in PLANNED:
        _expect_removed_after(trial, error, words, likely)


def _expect_removed_after(trial: Trial, error: type[BaseException], words: str, likely: str | None) -> None:
    def train() -> None:
        raise error

    model, faults = _Model(), len(trial.faults)
    with trial.watch(model):
        came_out = error_comes_out(trial, partial(trial.answer, model, 5.0, train))
    if not came_out:
        raise hidden_error("train()")
    if len(trial.faults) > faults:
        del trial.faults[faults:]
        raise NotYet(
            f"{words} came out of train(), and your hooks stayed on the parameters (they were removed)",
            expected="no hook of yours is left, whatever happens in train()",
            likely=likely or "removed on success only: use try … finally",
        )
