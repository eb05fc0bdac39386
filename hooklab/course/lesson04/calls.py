"""What the checks of lesson 4 share: what a layer's forward gets, calls of it, and what the pre-hook on it did."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.expectations import expect_still_there, expect_unused
from hooklab.course.exercises.trial import NotYet, Trial, first_words, learners_line, tensor_text
from hooklab.course.exercises.varying import homes, returns_of_pre_hooks

REGISTER = "register_forward_pre_hook"
# Words of an exception with which torch refuses a hook, or what it returned, and the reason.
LIKELY = {
    "must return None or a tuple of (new_args": "not the pair: with_kwargs=True wants (args, kwargs) back",
    "argument after ** must be a mapping": "no dictionary behind args: with_kwargs=True wants (args, kwargs) back",
    "'NoneType' object is not callable": "called instead of handed over: registering takes the function, without ()",
}
FORWARD_HOOK = "forward hook: it runs after forward; register_forward_pre_hook runs before"


def places(inputs: int) -> Iterator[tuple[nn.Module, nn.Module, torch.dtype]]:
    """Yield (model, layer, dtype of its input): two linear layers, and one that has a part, for float64."""
    layers = iter((nn.Linear(inputs, 1), nn.Linear(inputs, 1), nn.Sequential(nn.Identity())))
    dtypes = (torch.float32, torch.float32, torch.float64)
    for (model, layer, _), dtype in zip(homes(lambda: next(layers)), dtypes, strict=True):
        yield model, layer, dtype


class Seen:
    """What a layer's forward has got last, and how often it ran. The layer has no hook for it."""

    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer
        self.args: tuple[Any, ...] = ()
        self.runs = 0
        forward = layer.forward

        def noting_forward(*args: Any, **kwargs: Any) -> Any:
            self.args = args
            self.runs += 1
            return forward(*args, **kwargs)

        layer.forward = noting_forward

    def expect_one_run(self, before: int) -> None:
        """Raise NotYet unless forward has run once since it had run `before` times."""
        if self.runs != before + 1:
            raise NotYet(f"forward ran {self.runs - before} times in one call", expected="once, behind the pre-hook")

    def only_argument(self) -> Tensor:
        """Return the one tensor that forward has got last; NotYet if it was something else."""
        if len(self.args) != 1 or not isinstance(self.args[0], Tensor):
            raise self.other_arguments(got=tensor_text(self.args))
        return self.args[0]

    def other_arguments(self, got: str) -> NotYet:
        """Say what is wrong with arguments that are not one tensor."""
        what, likely = "something else than one tensor", None
        if len(self.args) == 2 and self.args[0] is self.args[1]:
            what, likely = (
                "the input twice",
                "tuple times two: args is a tuple, and (x,) * 2 is (x, x); unpack it first",
            )
        elif len(self.args) == 1 and isinstance(self.args[0], list):
            what = "a list in place of a tensor"
            if any(isinstance(one, Tensor) for one in self.args[0]):
                likely = "a list counts as one argument; only a tuple is unpacked"
        return NotYet(f"the layer got {what}", expected="one tensor", got=got, likely=likely)


def registered(trial: Trial, layer: nn.Module, *rest: Any, may_change: bool = False) -> Any:
    """Let the answer register its hook on a layer; return what it returned, which may be no handle yet."""
    handle = trial.call(layer, *rest, may_hook=True, may_change=may_change)
    expect_unused(handle)
    return handle


def run(model: nn.Module, *args: Any, handle: Any = None, seen: Seen | None = None, **kwargs: Any) -> Any:
    """Call a model in which the learner's hook is; an error that the call raises because of that hook is explained.

    Args:
        model: the model.
        args, kwargs: its arguments.
        handle: what the answer returned: after the pass its hook must still be there.
        seen: what the layer with the hook sees, where that is to be one tensor.
    """
    try:
        result = model(*args, **kwargs)
    except TypeError as error:
        if learners_line(error) is not None:  # an error in the hook's own lines names itself
            raise
        message = first_words(error)
        _explain(error, seen)
        if seen is not None and seen.runs and (len(seen.args) != 1 or not isinstance(seen.args[0], Tensor)):
            raise seen.other_arguments(message) from error
        if "positional argument" not in message or "forward()" in message:
            raise
        raise NotYet(
            f"a call of the layer raised TypeError: {message}",
            expected="no exception",
            likely="another hook's arguments: a pre-hook gets (module, args), and kwargs if with_kwargs=True",
        ) from error
    except Exception as error:
        _explain(error, seen)
        expect_still_there(handle)
        raise
    expect_still_there(handle)
    return result


def _explain(error: Exception, seen: Seen | None) -> None:
    """Raise NotYet with a reason if torch's words tell one; only where forward is to get one tensor."""
    likely = next((why for words, why in LIKELY.items() if words in str(error)), None)
    if likely and seen is not None and learners_line(error) is None:
        what = f"a call of the layer raised {type(error).__name__}: {first_words(error)}"
        raise NotYet(what, expected="no exception", likely=likely) from error


def why_as_it_was(module: nn.Module, others: Set[int], *args: Any, **kwargs: Any) -> str | None:
    """Return why what goes into a module is as it was: no pre-hook of the learner's, or one that returns None."""
    returned = returns_of_pre_hooks(module, others, *args, **kwargs)
    if returned:
        forgotten = all(one is None for one in returned)
        return "forgotten return: the hook returned None, so the arguments stayed as they were" if forgotten else None
    return FORWARD_HOOK if module._forward_hooks.keys() - others else "no hook: nothing is registered on the module"
