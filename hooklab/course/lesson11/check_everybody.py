"""The check of exercise 11.4: a program that runs in three processes; written for two, it is seen."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.frames import kind_of
from hooklab.course.exercises.misconceptions import alike, fitting
from hooklab.course.exercises.trial import NotYet, StillTheStub, Trial
from hooklab.course.processes import ProcessesFailed, launch, script

NUMBERS = (3,)  # each is a new Python, which takes seconds
SECONDS = 20.0
_WAITED = ("closed by peer", "reset by peer", "Timed out", "Connection refused")
# Words of what a process printed last -> the misconception behind it.
LIKELY = {
    "NameError": "a name that the new processes do not know: define it, or import it, inside the function",
    "Default process group": "no process group: begin with dist.init_process_group",
    "'NoneType' object has no attribute 'tolist'": (
        "no gradient: .grad is None before this process has run backward(), and after zero_grad()"
    ),
}


def _each(value: Callable[[int, int], float]) -> Callable[[int], list[Any]]:
    """Return a program: for a number of processes, what each of them returns; value(rank, processes) scales [1, 2]."""
    return lambda processes: [
        [[round(value(r, processes), 4), round(2 * value(r, processes), 4)]] for r in range(processes)
    ]


def _mean(processes: int) -> float:
    return (processes + 1) / 2


truth = _each(lambda rank, processes: _mean(processes))
PROGRAMS = {
    "this process's own gradient: hooks on the weight run before the average, model.module(x) and no_sync() go without "
    "it; after the backward of model(x) it is in .grad": _each(lambda rank, processes: rank + 1.0),
    "divided once more: DDP has divided by the number of processes already": _each(
        lambda rank, processes: _mean(processes) / processes
    ),
    "the sum over the processes, not their average": _each(lambda rank, processes: _mean(processes) * processes),
    "process 0's gradient for everybody: sent by it, or computed from its data": _each(lambda rank, processes: 1.0),
    "half the sum, whatever the number of processes": _each(lambda rank, processes: _mean(processes) * processes / 2),
    "written down, not computed: it is right for two processes only": _each(lambda rank, processes: 1.5),
    "two passes: their gradients add up": _each(lambda rank, processes: 2 * _mean(processes)),
}


@exercise("11.4", "Mend it: the gradient of everybody")
def the_gradient_of_everybody(trial: Trial) -> str:
    if not inspect.isfunction(trial.answer) or trial.answer.__name__ == "<lambda>":
        raise NotYet("your answer is no function", expected="a function of yours, defined with `def`")
    if inspect.signature(trial.answer).parameters:
        raise NotYet("your function takes arguments", expected="none: each process calls it without")
    seen = [[_rounded(one) for one in _run(trial.answer, processes)] for processes in NUMBERS]
    for processes, came in zip(NUMBERS, seen, strict=True):
        for rank, (got, wanted) in enumerate(zip(came, truth(processes), strict=True)):
            if got is None:
                only_here = any(one is not None for one in came)
                raise NotYet(
                    f"in process {rank}, your function returns None",
                    expected=repr(wanted),
                    got="None",
                    likely="every process returns the average, on every way" if only_here else "forgotten return",
                )
            if not isinstance(got, list) or not alike(got, wanted):
                raise NotYet(
                    f"with {processes} processes, process {rank} does not return the average",
                    expected=repr(wanted),
                    got=repr(got),
                    likely=f"a {kind_of(got)}: `.tolist()` makes a list of it"
                    if hasattr(got, "tolist")
                    else fitting(seen, PROGRAMS, NUMBERS),
                )
    return "with three processes, each returns the average over all of them"


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return round(value, 4) if isinstance(value, float) else value


def _run(answer: Callable[[], Any], processes: int) -> list[Any]:
    try:
        script(answer)
    except OSError as error:
        raise NotYet("the source of your function cannot be found", expected="a function defined in a cell") from error
    try:
        return launch(answer, processes=processes, seconds=SECONDS, show=False)
    except FileNotFoundError as error:
        raise NotYet(
            f"with {processes} processes, one of them ends well before your function returns",
            expected="each returns a list",
            likely="`exit()` or `sys.exit()` ends the process: `return` ends the function",
        ) from error
    except ProcessesFailed as failed:
        lasts = [_last(text) for text in failed.outputs]
        if any(last.startswith("NotImplementedError") for last in lasts):
            raise StillTheStub from failed
        told = "; ".join(f"process {rank}: {last[:120] or 'ended without a word'}" for rank, last in enumerate(lasts))
        raise NotYet(
            f"with {processes} processes, not every one comes to its end",
            expected="each returns a list",
            got=told,
            likely=_likely(lasts, failed),
        ) from failed


def _likely(lasts: list[str], failed: ProcessesFailed) -> str | None:
    spoken = [last for last in lasts if last]  # the first error ends the others, some before they say anything
    for words, reason in LIKELY.items():
        if spoken and all(words in last for last in spoken):
            return reason
    waited = [any(words in last for words in _WAITED) for last in lasts]
    is_late = all(isinstance(end, str) for end in failed.ends)
    if (any(waited) and not all(waited)) or is_late:
        return (
            "some wait for others: what one process asks of all, every process must do, as often and in the same order"
        )
    return None


def _last(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if any(line.startswith("Timeout (") for line in lines):
        at = next((line for line in lines if line.startswith("File") and "site-packages" not in line), "")
        return f"stood still {at}"
    return re.sub(r"\[/\S+:\d+\] ", "", lines[-1]) if lines else ""  # without the place in gloo's source
