"""What scenes share: layers and inputs of whole numbers, what is expected of handles and blocks, how a model is run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from hooklab.course.exercises.exercise import Pairs
from hooklab.course.exercises.faults import NotYet, PlannedError, PlannedInterrupt, fault
from hooklab.course.exercises.frames import kind_of
from hooklab.course.exercises.guards import remove_new_hooks, snapshot_hooks
from hooklab.course.exercises.records import Claim
from hooklab.course.exercises.trial import Trial
from hooklab.course.exercises.values import tensor_text


def linear(inputs: int, outputs: int, seed: int, kind: type[nn.Linear] = nn.Linear) -> nn.Linear:
    """A linear layer with small whole numbers other than 0 as weights: exact, and different for each seed."""
    layer = kind(inputs, outputs)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            size = torch.randint(1, 4, parameter.shape, generator=generator)
            sign = torch.randint(0, 2, parameter.shape, generator=generator) * 2 - 1
            parameter.copy_(size * sign)
    return layer


def whole_numbers(seed: int, *shape: int) -> Tensor:
    """Floats with whole values from 1 to 5, different for each seed."""
    return torch.randint(1, 6, shape, generator=torch.Generator().manual_seed(100 + seed)).float()


def whole(module: nn.Module, seed: int) -> nn.Module:
    """Give every parameter of a module whole numbers from -3 to 3, different for each seed; return the module."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randint(-3, 4, parameter.shape, generator=generator))
    return module


def leaf(*values: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a leaf tensor with these values that requires grad."""
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def expect_handle(handle: Any, of: str = "the method that registers the hook") -> None:
    """Raise NotYet unless an answer returned a handle.

    Args:
        handle: what the answer returned; anything with a `remove` of its own will do.
        of: what has returned the handle to the answer, such as "register_forward_pre_hook".

    Example:
        >>> expect_handle(None, "register_hook")
        Traceback (most recent call last):
        hooklab.course.exercises.faults.NotYet: your function did not return the handle
    """
    if not is_handle(handle):
        raise fault("no-handle", method=of, got=tensor_text(handle))


def expect_unused(handle: Any) -> None:
    """Raise NotYet if the hook of a handle is gone at the moment when the answer returns it."""
    if isinstance(handle, RemovableHandle) and handle.hooks_dict_ref() is None:
        raise fault("handle-without-table")
    if is_used_up(handle):
        raise fault("used-handle")


def expect_still_there(handle: Any) -> None:
    """Raise NotYet if the hook of a handle is gone after a pass, although it was not removed."""
    if is_used_up(handle):
        raise fault("removes-itself")


def returns(got: Any, kinds: Any, words: str, why: str | None = None) -> tuple[str, str, str | None]:
    """A pair about the kind of what an answer returns; `why`: the reason for a kind that is neither right nor None."""
    told = words if isinstance(got, kinds) else f"a {kind_of(got)}"
    return "what your function returns", told, "forgotten-return" if got is None else why


def returns_manager(got: Any) -> tuple[str, str, str | None]:
    """A pair about whether an answer returns a context manager."""
    why = "no-contextmanager" if inspect.isgenerator(got) else "no-manager"
    what, told, _ = returns(got, AbstractContextManager, "a context manager")
    return what, told, why


def is_handle(value: Any) -> bool:
    """Whether a value can be asked to remove its hook."""
    return callable(getattr(value, "remove", None)) and not isinstance(value, list | set)


def is_used_up(handle: Any) -> bool:
    """Whether a handle's hook has been taken out of its table."""
    if not isinstance(handle, RemovableHandle):
        return False
    table = handle.hooks_dict_ref()
    return table is None or handle.id not in table


def error_comes_out(trial: Trial, function: Callable[[], Any]) -> bool:
    """Run a function in which the check raises PlannedError; return whether it came through the learner's code.

    Args:
        trial: the trial.
        function: raises PlannedError in the learner's block, or in something that the learner's code calls.

    Raises NotYet if it came out as another exception.
    """
    try:
        trial.run(function)
    except (PlannedError, PlannedInterrupt):
        return True
    except NotYet as found:
        error = found.__cause__
        if error is None or not isinstance(error.__cause__ or error.__context__, PlannedError | PlannedInterrupt):
            raise
        raise fault("exception-replaced", kind=kind_of(error)) from found
    return False


def reaches_caller(trial: Trial, function: Callable[[], Any], what: str) -> tuple[str, Claim, str]:
    """Run a function as `error_comes_out` does; return a pair about whether `what`, which it raises, comes out."""
    came_out = Claim(error_comes_out(trial, function), "it does", "it was hidden")
    return f"does {what} reach the caller?", came_out, "swallowed"


def words_of(error: type[BaseException]) -> str:
    """What a planned error is called."""
    return "an interrupt" if error is PlannedInterrupt else "an exception"


def after_an_error(
    trial: Trial, model: nn.Module, error: type[BaseException], where: str, function: Callable[[], Any]
) -> Pairs:
    """Yield what stays on a model when an error is raised in a learner's call, and whether the error comes out."""
    what = f"{words_of(error)} in {where}"
    hooks = snapshot_hooks([model])
    reached = reaches_caller(trial, function, what)
    why = "except-exception" if error is PlannedInterrupt else "no-finally"
    yield f"the number of your hooks that are left after {what}", len(remove_new_hooks([model], hooks)), why
    yield reached


class Runs:
    """Counts of one model: `calls` of the model, and `forwards` with and without such a call around them."""

    def __init__(self) -> None:
        self.calls = self.forwards = 0


@contextmanager
def runs_counted(model: nn.Module) -> Iterator[Runs]:
    """Count the runs of the model and its copies. During the block, the model's class is a subclass of its own."""
    runs, kind = Runs(), type(model)

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        runs.forwards += 1
        return kind.forward(self, *args, **kwargs)

    def count_call(*_: Any) -> None:
        runs.calls += 1

    model.__class__ = type(kind.__name__, (kind,), {"forward": forward})
    try:
        with model.register_forward_pre_hook(count_call):
            yield runs
    finally:
        model.__class__ = kind
