"""beside_torchs_logs: hook programs run with the reader's class and with nn.Module, compared line by line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from torch import nn

from hooklab.course.exercises.exercise import Pairs
from hooklab.course.exercises.faults import NotYet
from hooklab.course.exercises.frames import first_words, kind_of, learners_error, learners_line
from hooklab.course.exercises.records import Claim
from hooklab.course.exercises.stubs import is_stub
from hooklab.course.exercises.trial import Trial
from hooklab.course.lesson06.programs import METHODS, Hook, Program
from hooklab.course.lesson06.running import NOT_THEIRS, Boom, Ran, run
from hooklab.course.lesson06.tables import Registers

NOTHING = "nothing more"
PROGRAM = "the program: "


class Case(NamedTuple):
    """What is looked at, programs that show it, and the reason that any difference in them has, if it has one."""

    what: str
    programs: tuple[Program, ...]
    label: str | None = None


def case(what: str, *hooks: Hook, steps: Sequence[str] = ("m(x)",), label: str | None = None) -> Case:
    """Make a case; the hooks get their names in order, and each step is taken twice."""
    named = tuple(replace(hook, name=name) for hook, name in zip(hooks, "abcde", strict=False))
    return Case(what, (Program(named, (*steps, *steps)),), label)


def failing(what: str, *hooks: Hook, label: str | None = None) -> Case:
    """Make a case whose forward raises."""
    (program,) = case(what, *hooks).programs
    return Case(what, (replace(program, forward_raises=True),), label)


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


def beside_torchs_logs(trial: Trial, cases: Sequence[Case], y_requires_grad: bool = False, **more: Any) -> Pairs:
    """Yield whether each case's log is torch's, and before it, as a clue, the first line that isn't.

    Args:
        trial: its answer is a class with a `__call__`; how hooks get into its tables is the check's own matter here.
        cases: in the order in which a learner should hear of them; nothing comes after the first difference.
        y_requires_grad: whether the programs' y requires a gradient, too.
        more: attributes of a class on top of the answer, with which the programs run.
    """
    rans = iter(logs(trial, [program for one in cases for program in one.programs], y_requires_grad, **more))
    for what, programs, label in cases:
        for number, (program, ran) in enumerate(zip(programs, rans)):  # noqa: B905
            torchs = _torchs_log(program, y_requires_grad)
            if ran.log == torchs:
                continue
            place = next(at for at in range(len(torchs) + 1) if ran.log[at : at + 1] != torchs[at : at + 1])
            yield "~ the first line that differs", [number, place, _line(ran.log, place)]
            if not any(note.startswith(PROGRAM) for note in trial.notes):  # the first difference is what is shown
                trial.notes.append(_as_code(program, torchs[:place]))
            error = _own_error(ran, place)
            if error is not None and not isinstance(error, Boom) and learners_line(error):
                words = f"{what}: {learners_error(error, trial.name).missing}"
                raise NotYet(words, expected=_line(torchs, place)) from error
            yield what, Claim(False, _line(torchs, place), _got(ran, place)), label
            return
        yield what, Claim(True, "", ""), label


def _torchs_log(program: Program, y_requires_grad: bool) -> list[str]:
    return run(nn.Module, program, y_requires_grad).log


def logs(trial: Trial, programs: Sequence[Program], y_requires_grad: bool = False, **more: Any) -> list[Ran]:
    """Run programs with the answer's class, in one run of the trial's."""
    answer = with_registers(trial, **more)

    def run_all() -> list[Ran]:
        return [run(answer, program, y_requires_grad) for program in programs]

    run_all.__name__ = trial.name
    rans: list[Ran] = trial.run(run_all)
    return rans


def interrupted(trial: Trial, register: str, hook: Callable[..., Any], error: BaseException, **flags: bool) -> Any:
    """Return a module of the answer's class with this hook, whose forward raises this error."""

    class Interrupted(with_registers(trial)):  # type: ignore[misc]
        def forward(self, *args: Any) -> Any:
            raise error

    module = Interrupted()
    getattr(module, register)(hook, **flags)
    return module


def with_registers(trial: Trial, **more: Any) -> type:
    """Return a class on top of the answer whose hooks are registered by the check's own means."""
    answer = trial.answer
    if not inspect.isclass(answer):
        raise NotYet("check wants the class itself", expected="check(id, YourClass)", label="no-class")
    for base in answer.__mro__[1:-1]:
        if "__call__" in vars(base) and is_stub(base):
            raise NotYet(
                f"{trial.name} builds on {base.__name__}, and {base.__name__} isn't written yet",
                expected=f"the exercise of {base.__name__} first, and then this one",
                label="unwritten-base",
            )
    registers = {name: getattr(Registers, name) for name in METHODS.values() if hasattr(Registers, name)}
    return type(answer.__name__, (answer,), registers | more)


def _line(log: list[str], place: int) -> str:
    return log[place] if place < len(log) and not log[place].startswith(">>> ") else NOTHING


def _own_error(ran: Ran, place: int) -> Exception | None:
    """Return the error for a log line that is not the program's own."""
    if not _line(ran.log, place).endswith(NOT_THEIRS):
        return None
    return ran.errors[sum(line.endswith(NOT_THEIRS) for line in ran.log[:place])]


def _got(ran: Ran, place: int) -> str:
    error = _own_error(ran, place)
    return _line(ran.log, place) if error is None else f"raises another error, {kind_of(error)}: {first_words(error)}"


def _as_code(program: Program, so_far: Sequence[str]) -> str:
    steps = [line.removeprefix(">>> ") for line in so_far if line.startswith(">>> ")]
    made = [line.removeprefix("m = Module()   # ") for line in program.made]
    return PROGRAM + "; ".join([*made, *steps])
