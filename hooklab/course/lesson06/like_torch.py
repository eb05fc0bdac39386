"""expect_like_torch: an exercise's class must write the same logs as `nn.Module`, program for program."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from hooklab.course.exercises.expectations import error_comes_out, hidden_error
from hooklab.course.exercises.faults import PlannedInterrupt
from hooklab.course.exercises.frames import first_words, kind_of, learners_error, learners_line
from hooklab.course.exercises.misconceptions import fitting, remembered
from hooklab.course.exercises.stubs import has_stub_line, is_stub
from hooklab.course.exercises.trial import NotYet, Trial
from hooklab.course.lesson06.faulty import Hooks, faulty_calls
from hooklab.course.lesson06.programs import METHODS, Hook, Program
from hooklab.course.lesson06.running import NOT_THEIRS, Boom, Ran, run
from hooklab.course.lesson06.tables import Registers


class Case(NamedTuple):
    """A rule, and a program that shows whether it holds."""

    rule: str
    program: Program


def case(rule: str, *hooks: Hook, steps: Sequence[str] = ("m(x)",)) -> Case:
    """Make a case; the hooks get their names in order, and each step is taken twice."""
    named = tuple(replace(hook, name=name) for hook, name in zip(hooks, "abcde", strict=False))
    return Case(rule, Program(named, (*steps, *steps)))


def failing(rule: str, *hooks: Hook) -> Case:
    """Make a case whose forward raises."""
    return Case(rule, replace(case(rule, *hooks).program, forward_raises=True))


def pre(does: str = "looks", **flags: bool) -> Hook:
    """Return a forward pre-hook that does this."""
    return Hook("", "pre", does, **flags)


def after(does: str = "looks", **flags: bool) -> Hook:
    """Return a forward hook that does this."""
    return Hook("", "forward", does, **flags)


def always(does: str = "looks", **flags: bool) -> Hook:
    """Return a forward hook that does this whatever happens."""
    return Hook("", "forward", does, always_call=True, **flags)


def back(does: str = "looks", **flags: bool) -> Hook:
    """Return a full backward hook that does this."""
    return Hook("", "backward", does, **flags)


def expect_like_torch(
    trial: Trial,
    cases: Sequence[Case],
    more: Sequence[Program],
    kind: type[Hooks],
    both_require_grad: bool = False,
) -> None:
    """Raise NotYet at the first program whose log is not torch's, with the reason if a faulty call has it, too.

    Args:
        trial: its answer is a class with a `__call__`; how hooks get into its tables is the check's own matter here.
        cases: in the order in which a learner should hear of them.
        more: random programs, which come after the cases.
        kind: where to look for the reason: `Hooks`, `Always` or `Border`.
        both_require_grad: whether y requires a gradient, too.
    """
    answer = _with_registers(_class_of(trial))
    every = [*cases, *(Case("a random program does what it does in torch", program) for program in more)]

    def programs() -> list[Ran]:  # in one run of the trial's: what surrounds a run takes as long as a program
        return [run(answer, program, both_require_grad) for _, program in every]

    programs.__name__ = trial.name
    rans: list[Ran] = trial.run(programs)
    for (rule, program), ran in zip(every, rans, strict=True):
        torchs = run(nn.Module, program, both_require_grad).log
        if ran.log != torchs:
            guesses = {why: partial(_faulty_log, call, both_require_grad) for why, call in faulty_calls(kind).items()}
            why = fitting([one.log for one in rans], guesses, [one.program for one in every])
            raise _fault(trial, rule, program, ran, torchs, why)


def interrupted(trial: Trial, register: str, hook: Callable[..., Any], **flags: bool) -> Any:
    """Return a module of the answer's class with this hook, after a call whose forward raises PlannedInterrupt.

    Raises NotYet if the interrupt does not come out of the call.
    """

    class Interrupted(_with_registers(_class_of(trial))):  # type: ignore[misc]
        def forward(self, *args: Any) -> Any:
            raise PlannedInterrupt

    module = Interrupted()
    getattr(module, register)(hook, **flags)

    def a_call() -> Any:
        return module(torch.ones(2, requires_grad=True))

    a_call.__name__ = trial.name
    if not error_comes_out(trial, a_call):
        raise hidden_error("forward")
    return module


def _class_of(trial: Trial) -> type:
    answer = trial.answer
    if not inspect.isclass(answer):
        raise NotYet("check wants the class itself", expected="check(id, YourClass)", got="something else")
    for base in () if has_stub_line(answer) else answer.__mro__[1:-1]:
        if "__call__" in vars(base) and is_stub(base):
            raise NotYet(
                f"{trial.name} stands on {base.__name__}, and {base.__name__} is not written yet",
                expected=f"the exercise of {base.__name__} first, and then this one",
            )
    made: type = answer
    return made


def _with_registers(answer: type) -> type:
    """Return a class on top of the answer whose hooks are registered by the check's own means."""
    return type(
        answer.__name__,
        (answer,),
        {name: getattr(Registers, name) for name in METHODS.values() if hasattr(Registers, name)},
    )


@remembered
def _faulty_log(call: type, both_require_grad: bool, program: Program) -> list[str]:
    return run(call, program, both_require_grad).log


def _fault(trial: Trial, rule: str, program: Program, ran: Ran, torchs: list[str], why: str | None) -> NotYet:
    place = next(at for at in range(len(torchs) + 1) if ran.log[at : at + 1] != torchs[at : at + 1])
    wanted, got = _line(torchs, place), _line(ran.log, place)
    missing = f"this does not hold yet: {rule}"
    if got.endswith(NOT_THEIRS):
        error = ran.errors[sum(line.endswith(NOT_THEIRS) for line in ran.log[:place])]
        another = "another error, " if isinstance(error, Boom) else ""  # a Boom, but none that the program raised
        got = f"raises {another}{kind_of(error)}: {first_words(error)}"
        missing = learners_error(error, trial.name).missing if learners_line(error) else missing
    fault = NotYet(missing, expected=wanted, got=got, likely=why)
    steps = [line.removeprefix(">>> ") for line in torchs[: place + (wanted != NOTHING)] if line.startswith(">>> ")]
    made = [line.removeprefix("m = Module()   # ") for line in program.made]
    fault.details = (("program", "; ".join([*made, *steps])), *fault.details)
    return fault


NOTHING = "nothing more"


def _line(log: list[str], place: int) -> str:
    return log[place] if place < len(log) and not log[place].startswith(">>> ") else NOTHING
