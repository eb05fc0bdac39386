"""Words that checks share about tensor hooks and gradients: the misconception behind an exception, and what arrived."""

from __future__ import annotations

import math
import re
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from hooklab.course.exercises.frames import first_words, whose
from hooklab.course.exercises.misconceptions import Reason, in_torchs_line, named_by
from hooklab.course.exercises.trial import NotYet, Trial, same, tensor_text


def _missing_argument(error: BaseException) -> str | None:
    """Tell who called with too few arguments: the learner's own line, or torch, which gives a tensor hook one."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    if whose(last.filename) == "learner":
        is_registering = "register_hook(" in (last.line or "") and "lambda" not in (last.line or "")
        return "called instead of handed over: register_hook takes the function, without ()" if is_registering else None
    if re.search(r"\w\.\w+\(\) missing", first_words(error)):  # Meter.keep(), and not <locals>.keep()
        return "unbound method: taken from the class it has no self; take it from an object, such as self"
    return "another number of parameters: a tensor hook is called with one argument, the gradient"


# Words of an exception that a hook brings about, and the misconception behind it.
_LIKELY: dict[str, Reason] = {
    "doesn't require gradient": "no gradient to hook: ask a tensor for requires_grad before you hook it",
    "more than one element of the written-to tensor": "in place: the gradient that sum() sends is one number seen "
    "many times, so it cannot be written to; make a new tensor",
    "has changed the size of value": "another shape: a hook's result takes the gradient's place, so it needs its shape",
    "expected Variable, but hook returned": "not a tensor: a hook returns None or one tensor, and a lambda returns "
    "whatever its expression is worth",
    "missing 1 required positional argument": _missing_argument,
    "takes 1 positional argument but 2 were given": in_torchs_line(
        "no place for the gradient: in a class, a hook takes self and grad"
    ),
    "'NoneType' object is not callable": in_torchs_line(
        "called instead of handed over: register_hook takes the function, without ()"
    ),
}


@contextmanager
def misconception_named() -> Iterator[None]:
    """Add the likely misconception to an exception whose words give it away. Used as a decorator."""
    with named_by(_LIKELY):
        yield


def stop_at_fault(trial: Trial) -> None:
    """Raise what the trial's watch has found by now (a hook left behind, a changed value), if anything."""
    if trial.faults:
        raise trial.faults.pop(0)


def why_empty(passed: bool) -> str:
    """Return why a hook has kept nothing: there was no backward pass at all, or the hook was not there then."""
    if not passed:
        return "backward() did not run"
    return "the hook never ran, or kept nothing: it must be there before backward(), and stay until backward() is done"


def expect_arrived(name: str, got: Tensor | None, wanted: Tensor) -> None:
    """Raise NotYet when a leaf's .grad is not what an ordinary backward() makes it."""
    if same(got, wanted):
        return
    likely = "the hook changed the gradient: it returned something or wrote in place; one that only looks does neither"
    if got is None:
        likely = "backward() did not run, or not down to the leaves: torch.autograd.grad writes no .grad, and "
        likely += "backward(inputs=…) writes that of its inputs alone"
    raise NotYet(
        f"the gradient that arrived at {name} is another one",
        expected=f"{name}.grad = {tensor_text(wanted)}",
        got=f"{name}.grad = {tensor_text(got)}",
        likely=likely,
    )


def all_same(got: Sequence[Any], wanted: Sequence[Tensor]) -> bool:
    """Whether two sequences have the same length and, place by place, the same tensors (see `same`)."""
    return len(got) == len(wanted) and all(same(one, want) for one, want in zip(got, wanted, strict=True))


def close(one: Any, other: float) -> bool:
    """Whether `one` is a number, and near `other`."""
    return isinstance(one, float | int) and math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-6)
