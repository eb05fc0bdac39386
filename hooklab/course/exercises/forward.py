"""What the checks of forward hooks share: a model that notes how its passes went, and the words for what a hook did."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.expectations import error_comes_out, hidden_error
from hooklab.course.exercises.faults import PLANNED, PlannedError
from hooklab.course.exercises.guards import remove_new_hooks, snapshot_hooks
from hooklab.course.exercises.misconceptions import Reason, in_torchs_line, named_by
from hooklab.course.exercises.trial import NotYet, Trial, same, tensor_text

CUT_IN_PLACE = "`detach_()`, which cuts the model's own tensor off, in place"
ACCIDENTAL = "accidental return: whatever a forward hook returns, except None, replaces the output"


def why_not_detached(got: Tensor) -> str:
    """Tell a tensor that is part of a graph from one that only asks for a gradient."""
    if got.grad_fn is None:
        return "`requires_grad_()`: a detached tensor asks for no gradient, and need not"
    return "still part of the graph: the hook stores `output` itself; detach it first"


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


class Body(nn.Module):
    """first → act → second → act: two linear layers and one activation that is used twice."""

    def __init__(self, seed: int):
        super().__init__()
        self.first, self.act, self.second = linear(2, 2, seed), nn.LeakyReLU(0.5), linear(2, 2, seed + 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.act(self.second(self.act(self.first(x))))
        return out


class Net(nn.Module):
    """A body and a head with a residual sum in between, so that slicing the model does not give its inner values.

    It notes how each pass went: whether the graph was being recorded, whether the body's result had one, and whether
    all modules were in the mode that the model has now.
    """

    def __init__(self, seed: int):
        super().__init__()
        self.body, self.head = Body(seed), linear(2, 2, seed + 20)
        self.passes: list[tuple[bool, bool]] = []
        self.results: list[Tensor] = []
        self.modes: list[list[bool]] = []

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.body(x) + x)
        self.passes.append((torch.is_grad_enabled(), result.requires_grad and _reaches(self.body.first, result)))
        self.results.append(result.detach().clone())
        self.modes.append([module.training for module in self.modules()])
        return result

    def forget(self) -> None:
        """Forget the passes so far."""
        for notes in (self.passes, self.results, self.modes):
            notes.clear()


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


def _reaches(layer: nn.Linear, result: Tensor) -> bool:
    """Whether a gradient from the result reaches the layer's weight."""
    (grad,) = torch.autograd.grad(result.sum(), layer.weight, retain_graph=True, allow_unused=True)
    return grad is not None


def look(model: nn.Module, layer: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What a layer takes in and puts out during model(x), and the result: the check's own hook, removed again."""
    seen: list[Tensor] = []

    def keep(module: nn.Module, args: tuple[Tensor], output: Tensor) -> None:
        seen.extend([args[0].detach().clone(), output.detach().clone()])

    with layer.register_forward_hook(keep):
        result = model(x).detach()
    return seen[0], seen[1], result


def refuse_disturbed(model: Net, undisturbed: list[Tensor]) -> None:
    """Raise NotYet if a noted pass gave another result than without hooks, or left the first layer without gradient."""
    now = [module.training for module in model.modules()]
    if any(mode != now for mode in model.modes):
        raise NotYet(
            "your function switched the model between training and evaluation mode",
            expected="the mode that the caller chose",
            label="mode-switched",
        )
    for (grad_enabled, reached), result, expected in zip(model.passes, model.results, undisturbed, strict=True):
        if not same(result, expected):
            raise NotYet(
                "your hook changed what the model computes",
                expected=f"model(x) = {tensor_text(expected)}, as without a hook",
                got=f"model(x) = {tensor_text(result)}",
                likely=ACCIDENTAL,
            )
        if grad_enabled and not reached:
            raise NotYet(
                "your hook cut the model's graph: the layers up to this one no longer get a gradient",
                expected="a hook that only looks returns nothing",
                got="the model went on with a tensor without a graph",
                likely=f"{ACCIDENTAL}, here by a detached one; `detach_()` does the same in place",
            )


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


def expect_clean_block(trial: Trial, model: nn.Module, block: Callable[[type[BaseException]], None]) -> None:
    """Raise NotYet if the answer's `with` block leaves hooks on a model when it ends by an exception, or hides that.

    `block` opens one, and raises in it the exception that it is called with.
    """
    block.__name__ = trial.name
    for error, words, likely in PLANNED:
        hooks = snapshot_hooks([model])
        came_out = error_comes_out(trial, partial(block, error))
        left = remove_new_hooks([model], hooks)
        if left:
            raise NotYet(
                f"after {words} in the block, {len(left)} of your hooks stay",
                expected="no hook left, however the block ends",
                got=left[0],
                likely=likely or "no finally: code after a bare `yield` is skipped when the block raises",
            )
        if not came_out:
            raise hidden_error("the block")


def expect_error_comes_out(trial: Trial, model: nn.Module, layer: nn.Module, x: Tensor) -> None:
    """Raise NotYet if an answer that runs model(x) hides an exception that comes out of it."""

    def refuse(*_: Any) -> None:
        raise PlannedError

    with model.register_forward_hook(refuse):
        if not error_comes_out(trial, lambda: trial.answer(model, layer, x)):
            raise hidden_error("model(x)")


def users_own(module: nn.Module, args: Any, output: Any) -> None:
    """A hook of somebody else's, which must still be there afterwards."""
