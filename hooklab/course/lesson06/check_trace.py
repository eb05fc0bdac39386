"""The check of exercise 6.5: a broken script that writes down the calls of a model."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.trial import NotYet, Trial, tensor_text

_OUT_OF_STEP = "out of step: a forward that raises skips its forward hooks, unless they were registered with "
_OUT_OF_STEP += "`always_call=True`"


class Broken(nn.Module):
    """Raises, as a part of a model may."""

    def forward(self, x: Tensor) -> Tensor:
        raise ValueError("on purpose")


class Outer(nn.Module):
    """Calls a part that raises, and lets the error pass."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Broken()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x)
        return out


class Fallback(nn.Module):
    """Tries one part; when that raises, another one does the work."""

    def __init__(self, first: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        try:
            out: Tensor = self.first(x)
        except ValueError:
            out = self.second(x)
        return out


class MakesParts(nn.Module):
    """Makes a module on the spot and calls it."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = nn.Tanh()(x)
        return out


class Notes(nn.Module):
    """Notes in which mode it runs, and whether gradients are recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.modes: list[tuple[bool, bool]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.modes.append((self.training, torch.is_grad_enabled()))
        return x


@exercise("6.5", "Mend it: a trace of all calls")
def a_trace_of_all_calls(trial: Trial) -> str:
    _in_step(trial)
    _after_errors(trial)
    _leaves_nothing(trial)
    _runs_the_model_once(trial)
    return "every call has its line, at its depth, whatever raises; no hook stays, and nobody else's is gone"


def _in_step(trial: Trial) -> None:
    shared, called = nn.ReLU(), list[str]()
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(shared, nn.Identity()), nn.Linear(2, 2), shared, shared)
    wanted = ["Sequential", "  Linear", "  Sequential", "    ReLU", "    Identity", "  Linear", "  ReLU", "  ReLU"]
    ended = ["  Linear", "    ReLU", "    Identity", "  Sequential", "  Linear", "  ReLU", "  ReLU", "Sequential"]
    with model.register_forward_hook(lambda module, args, output: called.append("whole")):
        got = _traced(trial, model)
    likely = None
    if got == ended:
        likely = "written when a module ends: the line belongs to the moment in which it begins, to a pre-hook"
    elif [line.strip() for line in got] == [line.strip() for line in wanted[1:]] and not called:
        likely = "the outermost call has no line: `model.forward(x)` goes past its hooks, `model(x)` runs them"
    elif any(got == [_indented(line, by) for line in wanted] for by in (" ", "    ", "\t")):
        likely = "another indentation: two spaces for each level"
    _expect(got, wanted, "a model of eight calls", likely)
    got = _traced(trial, model)
    likely = "the lines of the first run are still there: make a new list inside the function"
    _expect(got, wanted, "the same model once more", likely if got == wanted + wanted else None)
    wanted = ["MakesParts", "  Tanh"]
    got = _traced(trial, MakesParts())
    likely = "it is not among model.modules(): only a global hook sees it"
    _expect(got, wanted, "a model that makes a part on the spot", likely if got == wanted[:1] else None)


def _indented(line: str, by: str) -> str:
    """Return a line with `by` in place of every two spaces that it begins with."""
    return by * ((len(line) - len(line.strip())) // 2) + line.strip()


def _after_errors(trial: Trial) -> None:
    wanted = ["Fallback", "  Broken", "  ReLU"]
    got = _traced(trial, Fallback(Broken()))
    _expect(got, wanted, "a part raises, and another does the work", _deeper(got, wanted))
    wanted = ["Sequential", "  Fallback", "    Outer", "      Broken", "    ReLU", "  Identity"]
    got = _traced(trial, nn.Sequential(Fallback(Outer()), nn.Identity()))
    _expect(got, wanted, "a part of a part raises", _deeper(got, wanted))


def _deeper(got: list[str], wanted: list[str]) -> str | None:
    """The names are right and the lines behind the error stand too deep: the way out of a part was not noticed."""
    same_names = [line.strip() for line in got] == [line.strip() for line in wanted]
    return _OUT_OF_STEP if same_names and len(got[-1]) > len(wanted[-1]) else None


def _leaves_nothing(trial: Trial) -> None:
    model = nn.Sequential(Broken())
    with trial.watch(model):
        try:
            trial.answer(model, torch.ones(1, 2))
        except ValueError:
            pass
        except Exception as error:
            raise NotYet(
                "the model raised, and another error came out",
                expected="ValueError: on purpose",
                got=type(error).__name__,
            ) from error
        else:
            raise NotYet(
                "the model raised, and the error did not come out",
                expected="ValueError: on purpose",
                likely="swallowed: remove the hooks in `finally` or with `with`, and let the error pass",
            )
    if trial.faults:
        raise NotYet(
            "after a model that raises, your hook stays on every module of this process",
            expected="no global hook is left",
            got=trial.faults.pop().missing,
            likely="remove() was not reached: use `with` or `finally`",
        )


def _runs_the_model_once(trial: Trial) -> None:
    for training in (True, False):
        _runs_once_in_its_mode(trial, Notes(), training)


def _runs_once_in_its_mode(trial: Trial, notes: Notes, training: bool) -> None:
    """With the model's own hooks, and with other people's global hooks in place before and after."""
    model, theirs = nn.Sequential(notes).train(training), list[str]()
    with (
        register_module_forward_pre_hook(lambda module, args: theirs.append("pre")),
        register_module_forward_hook(lambda module, args, output: theirs.append("hook")),
        model.register_forward_hook(lambda module, args, output: theirs.append("own")),
    ):
        _traced(trial, model)
    if notes.modes == [(training, True)] and theirs == ["pre", "pre", "hook", "hook", "own"]:
        return
    what = {0: "did not run", 1: "ran in another mode"}.get(len(notes.modes), "ran more than once")
    if notes.modes == [(training, False)]:
        what = "ran under no_grad"
    elif notes.modes == [(training, True)]:
        what = "ran, but not with all the hooks that were there before"
    raise NotYet(
        f"the model {what}",
        expected="one run of model(x), in the mode that it is in, with everybody's hooks",
        got=f"forward ran {len(notes.modes)} times; hooks of others: {', '.join(theirs) or 'none'}",
    )


def _traced(trial: Trial, model: nn.Module) -> list[str]:
    got: Any = trial.call(model, torch.ones(1, 2))
    if trial.faults:
        fault = trial.faults.pop(0)
        raise fault
    if not isinstance(got, list) or not all(isinstance(line, str) for line in got):
        likely = "forgotten return" if got is None else None
        raise NotYet("that is not a list of lines", expected="a list of strings", got=tensor_text(got), likely=likely)
    return got


def _expect(got: list[str], wanted: list[str], what: str, likely: str | None = None) -> None:
    if got != wanted:
        raise NotYet(f"{what}: these are not its lines", expected=_shown(wanted), got=_shown(got), likely=likely)


def _shown(lines: list[str]) -> str:
    """Return lines side by side, their indentation as dots."""
    return " | ".join(re.sub(r"^ +", lambda spaces: "·" * len(spaces[0]), line) for line in lines) or "no lines"
