"""What a check varies, so that once is not taken for always, and what it counts: small functions for any check.

A hook that works in one pass of one model, alone, in training mode, is not yet a right answer. `every_pass` goes
through several passes in both modes, `homes` puts a layer into other models, `runs_of` counts how a model was run.
(That an answer leaves other people's hooks, modes and values alone, `trial.call` and `trial.watch` look after.)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from typing import Any

from torch import nn

from hooklab.course.exercises.trial import NotYet


def every_pass(*modules: nn.Module) -> Iterator[str]:
    """Yield for each of four passes: two in training mode, then two in evaluation mode.

    What is yielded begins a sentence about the pass; for the first one, where nothing is special, it is empty.

    Example:
        >>> layer = nn.Dropout()
        >>> [(which, layer.training) for which in every_pass(layer)][1:3]
        [('in a second pass, ', True), ('in evaluation mode, ', False)]
    """
    modes = {part: part.training for module in modules for part in module.modules()}
    passes = (
        ("", True),
        ("in a second pass, ", True),
        ("in evaluation mode, ", False),
        ("in a second pass in evaluation mode, ", False),
    )
    try:
        for which, mode in passes:
            for module in modules:
                module.train(mode)
            yield which
    finally:
        for part, mode in modes.items():
            part.training = mode


def homes(make: Callable[[], nn.Module]) -> Iterator[tuple[nn.Module, nn.Module, str]]:
    """Yield (model, layer, name): a new layer by itself, in a sequence, and three levels deep under longer names.

    `model(x)` runs `layer(x)` once, and `model.get_submodule(name)` is the layer.

    Example:
        >>> [name for model, layer, name in homes(nn.ReLU)]
        ['', '1', 'inner_block.layers.0']
    """
    alone, second, deep = make(), make(), make()
    yield alone, alone, ""
    yield nn.Sequential(nn.Identity(), second), second, "1"
    yield _Outer(deep), deep, "inner_block.layers.0"


class _Outer(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.inner_block = nn.Module()
        self.inner_block.layers = nn.ModuleList([layer])

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.get_submodule("inner_block.layers.0")(*args, **kwargs)


class Runs:
    """How often a module was called, and how often its `forward` was run without a call, past all hooks."""

    def __init__(self) -> None:
        self.calls = self.direct = 0
        self.in_another_mode = False
        self.inputs: list[Any] = []  # the first argument of each run

    def expect_mode(self) -> None:
        """Raise NotYet if the module ran in another mode than that in which it was given."""
        if self.in_another_mode:
            raise NotYet(
                "your function switched the model between training and evaluation mode",
                expected="the mode that the caller chose",
                label="mode-switched",
            )

    def expect_no_more(self, number: int) -> None:
        """Raise NotYet if the module, a part of a model, ran more often than in a model without hooks."""
        if (times := self.calls + self.direct) > number:
            raise NotYet(
                f"the layer ran {times} times in one pass",
                expected=f"{number}, as without a hook: a layer may count its calls, or draw random numbers",
                likely="You run `forward` once more. A forward hook receives the output as its argument."
                if self.direct
                else None,
                label="ran-again",
            )

    def expect(self, number: int) -> None:
        """Raise NotYet unless there were this many calls, and no other runs of `forward`."""
        if self.direct:
            raise NotYet(
                "your function calls `model.forward(…)`",
                expected="model(…), which runs the hooks and forward",
                likely="`forward` alone computes the output and runs no hooks. Call model(…).",
                label="forward-alone",
            )
        if self.calls != number:
            times = {1: "once", 2: "twice"}.get(number, f"{number} times")
            raise NotYet(
                "how many times your function runs the model", expected=times, got=f"{self.calls} calls", label="calls"
            )


@contextmanager
def runs_of(module: nn.Module) -> Iterator[Runs]:
    """Count the runs of a module inside the block. It puts a `forward` of its own on it, and no hook.

    Example:
        >>> import torch
        >>> model = nn.ReLU()
        >>> with runs_of(model) as runs:
        ...     _ = model(torch.ones(1)), model.forward(torch.ones(1))
        >>> runs.calls, runs.direct
        (1, 1)
    """
    runs, forward = Runs(), module.forward
    modes = [part.training for part in module.modules()]

    def counting_forward(*args: Any, **kwargs: Any) -> Any:
        runs.inputs += args[:1]
        runs.in_another_mode |= [part.training for part in module.modules()] != modes
        if sys._getframe(1).f_globals.get("__name__") == nn.Module.__module__:  # Module.__call__ and what it calls
            runs.calls += 1
        else:
            runs.direct += 1
        return forward(*args, **kwargs)

    had_one = "forward" in vars(module)
    module.forward = counting_forward
    try:
        yield runs
    finally:
        if had_one:
            module.forward = forward
        elif vars(module).get("forward") is counting_forward:
            del module.forward


def returns_of_pre_hooks(module: nn.Module, others: Set[int], *args: Any, **kwargs: Any) -> list[Any]:
    """Call a module's forward pre-hooks by hand, each with these arguments, and return what they return.

    To tell a forgotten return from a hook that never ran. A hook that raises counts as returning its exception.

    Args:
        module: the module.
        others: the ids of the hooks that are not the learner's, which are not called.
        args, kwargs: what the module would be called with.

    Example:
        >>> import torch
        >>> layer = nn.ReLU()
        >>> handle = layer.register_forward_pre_hook(lambda module, args: None)
        >>> returns_of_pre_hooks(layer, set(), torch.ones(1))
        [None]
    """
    returned: list[Any] = []
    for key, hook in list(module._forward_pre_hooks.items()):
        extra = (kwargs,) if key in module._forward_pre_hooks_with_kwargs else ()
        if key not in others:
            try:
                returned.append(hook(module, args, *extra))
            except Exception as error:
                returned.append(error)
    return returned
