"""What the checks of forward hooks share: layers and inputs of whole numbers, and the words for what a hook did."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.misconceptions import Reason, in_torchs_line, named_by
from hooklab.course.exercises.trial import NotYet, Trial, tensor_text


def _other_arguments(error: BaseException) -> str | None:
    if ".forward()" in str(error):  # it is the module that got other arguments, and not the hook
        return None
    wrong = in_torchs_line("another hook's arguments: a forward hook is called with (module, args, output)")
    return wrong(error) if callable(wrong) else wrong


def _no_end(error: BaseException) -> str:
    """Tell a hook that calls its own module from a helper that calls itself."""
    calls = sum(frame.name == "_call_impl" for frame in traceback.extract_tb(error.__traceback__))
    if calls > 20:
        return "no end: a hook that calls its own module starts the hook again"
    return "no end: a function that calls itself must stop at a value which holds no others, such as a string"


# Words of an exception that a forward hook brings about, and the misconception behind it.
_LIKELY: dict[str, Reason] = {
    "list index out of range": "an empty or short list: less had been stored than this line expects",
    "raised KeyError": "nothing stored under this key when the line ran",
    "positional argument": _other_arguments,
    "'tuple' object has no attribute": "a tuple: args always is one, and the output is whatever forward returned",
    "'dict' object has no attribute": "a dictionary: the output is whatever forward returned",
    "'list' object has no attribute": "a list: the output is whatever forward returned, and may be one",
    "'NoneType' object has no attribute": "None: a part of the output, or a variable that no hook has filled",
    "'NoneType' object is not an iterator": "no yield: under @contextmanager it stands where the block's lines run",
    "object is not an iterator": in_torchs_line(
        "return under @contextmanager: the function has to `yield`; without the decorator it may return a manager"
    ),
    "generator didn't stop": "two yields: a block runs once, so the function may reach one yield only",
    "RemovableHandle": "the handle instead of the output: the hook stores the output, the handle only removes the hook",
    "Only Tensors created explicitly": "deepcopy: it cannot copy tensors with a graph; detach each one",
    "object is not callable": in_torchs_line(
        "called instead of handed over: register_forward_hook takes the function, without ()"
    ),
    "must be Tensor, not": in_torchs_line(
        "accidental return: the next layer got what your hook returned in place of the output"
    ),
    "dictionary update sequence": "the keys alone: a loop over a dictionary gives its keys; use .items()",
    "RecursionError": _no_end,
    "generator didn't yield": "no yield: everything before it runs at the start of the block, so it must be reached",
}


@contextmanager
def misconception_named() -> Iterator[None]:
    """Add the likely misconception to an exception whose words give it away. Used as a decorator."""
    with named_by(_LIKELY):
        yield


def run_with_hooks(trial: Trial, module: nn.Module, x: Tensor) -> Any:
    """Return module(x), with the learner's hooks in it; what they raise becomes NotYet."""

    def a_pass() -> Any:
        return module(x)

    a_pass.__name__ = "a pass with your hook"
    return trial.run(a_pass)


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
    """Floats with whole values from 1 to 5, other ones for each seed."""
    return torch.randint(1, 6, shape, generator=torch.Generator().manual_seed(100 + seed)).float()


def expect_manager(manager: Any, made_by: str) -> Any:
    """Return what was given, if `with` can open and close it."""
    if not hasattr(manager, "__enter__") or not hasattr(manager, "__exit__"):
        likely = None
        if inspect.isgenerator(manager):
            likely = "@contextmanager is missing above the function"
        elif manager is None:
            likely = "the function returns nothing: a `return` is missing, or @contextmanager and a `yield`"
        elif isinstance(manager, dict):
            likely = (
                "the dictionary itself was returned: under @contextmanager, `yield` it, and clean up behind the yield"
            )
        raise NotYet(
            f"what {made_by}(...) gives cannot stand after `with`",
            expected="a context manager",
            got=tensor_text(manager),
            likely=likely,
        )
    return manager


def users_own(module: nn.Module, args: Any, output: Any) -> None:
    """A hook of somebody else's, which must still be there afterwards."""
