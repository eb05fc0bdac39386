"""run: a program of hooks, run with any module class; what could be seen, line by line."""

from __future__ import annotations

import functools
import warnings
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch.nn.modules import module as every_module

from hooklab.course.lesson06.programs import METHODS, Hook, Program

NOT_THEIRS = "no error of the program's own"
MOST = 12  # registrations in a program: hooks that add hooks that add hooks


@functools.cache
def _compiled(step: str) -> CodeType:
    return compile(step, __file__, "exec")  # in a traceback, a line of this file


class Boom(Exception):
    """Raised by the programs' own modules and hooks."""


class Ran(NamedTuple):
    """What could be seen of a program, line by line, and the errors that were not the program's own."""

    log: list[str]
    errors: list[Exception]


def run(base: type, program: Program, second_requires_grad: bool = False, library: Any = torch) -> Ran:
    """Run a program with a module class on top of `base`, and return what could be seen.

    Args:
        base: the class that has `__call__` and the three methods of METHODS.
        program: what to run; its `x` requires a gradient.
        second_requires_grad: whether its `y` does, too.
        library: has `tensor`, `Tensor` and `no_grad`, as torch does. Where it is not torch, it also has `every_module`
            with the functions that register a hook for every module.

    Returns:
        In its log, a line for each step, each call of a hook or of forward with all it got, each result, error and
        warning.

    Raises NotImplementedError when the class does: it is not written yet.
    """
    one = _Run(base, program, second_requires_grad, library)
    try:
        one.all_steps()
    finally:
        for handle in one.everywhere:
            handle.remove()
    return Ran(one.log, one.errors)


class _Run:
    def __init__(self, base: type, program: Program, second_requires_grad: bool, library: Any) -> None:
        self.program, self.library = program, library
        self.everywhere: list[Any] = []
        self.log: list[str] = []
        self.errors: list[Exception] = []
        self.hooks = {hook.name: hook for hook in program.hooks}
        self.functions = {hook.name: self.function(hook) for hook in program.hooks}  # registered again: the same one
        self.added = 0
        self.raised: list[Boom] = []
        self.raised_once: set[str] = set()
        self.x = library.tensor([1.0, 2.0], requires_grad=True)
        y = library.tensor([10.0, 20.0], requires_grad=second_requires_grad)
        self.module = _module_class(base)(self, program.forward_raises)
        self.names: dict[str, Any] = {"m": self.call, "x": self.x, "y": y, "torch": library}
        self.names |= {"looks": self.look, "doubles": self.double}
        self.names |= {hook.name: _NoHandle() for hook in program.hooks}

    def all_steps(self) -> None:
        for hook in self.program.hooks:
            if hook.at_start:
                self.add(hook)
        for step in self.program.steps:
            self.log.append(f">>> {step}")
            self.take(step)

    def take(self, step: str) -> None:
        self.x.grad = None
        self.raised.clear()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                exec(_compiled(step), self.names)
            except NotImplementedError:
                raise
            except Exception as error:
                is_known = any(error is one for one in self.raised)
                self.log.append(f"raises {error!r}" if is_known else f"raises {type(error).__name__}, {NOT_THEIRS}")
                self.errors += [] if is_known else [error]
        self.log += ["a warning"] * len(caught)
        if "backward" in step:
            self.log.append(f"x.grad = {shown(self.x.grad)}")

    def call(self, *args: Any, **kwargs: Any) -> Any:
        output = self.module(*args, **kwargs)
        self.log.append(f"returns {shown(output)}")
        return output

    def look(self, grad: Any) -> None:
        self.log.append(f"looks at {shown(grad)}")

    def double(self, grad: Any) -> Any:
        self.look(grad)
        return grad if grad is None else grad * 2

    def add(self, hook: Hook) -> None:
        self.added += 1
        if self.added <= MOST:
            method, flags = METHODS[hook.kind], dict.fromkeys(hook.flags, True)
            if hook.everywhere:
                registering = getattr(self.library, "every_module", every_module)
                register = getattr(registering, method.replace("register_", "register_module_"))
            else:
                register = getattr(self.module, method)
            self.names[hook.name] = register(self.functions[hook.name], **flags)
            self.everywhere += [self.names[hook.name]] if hook.everywhere else []

    def boom(self, name: str) -> Boom:
        self.raised.append(Boom(name))
        return self.raised[-1]

    def function(self, hook: Hook) -> Any:
        verb, _, other = hook.does.partition(" ")

        def called(module: Any, *received: Any) -> Any:
            whose = "" if module is self.module else " from another module"
            self.log.append(f"{hook.name} gets {', '.join(map(shown, received))}{whose}")
            if verb == "removes":
                self.names[other].remove()
            elif verb == "adds":
                self.add(self.hooks[other])
            elif verb == "raises" or (verb == "raises_once" and hook.name not in self.raised_once):
                self.raised_once.add(hook.name)
                raise self.boom(hook.name)
            return _returned(verb, received)

        return called


class _NoHandle:
    """A placeholder for the handle of a hook that is not registered yet."""

    def remove(self) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


def _returned(verb: str, received: tuple[Any, ...]) -> Any:
    """Return what a hook that does this gives back."""
    first, last = received[0], received[-1]
    match verb:
        case "doubles":
            return _total(first) * 2
        case "returns_a_tuple":
            return (_total(first) * 2, *first[1:])
        case "returns_a_list":
            return [_total(last)]
        case "returns_zero":
            return 0.0
        case "keeps_the_first":
            return first[:1]
        case "returns_no_args":
            return ()
        case "adds_one":
            return _total(last) + 1
        case "triples":
            return _total(last) * 3
        case "returns_a_pair":
            return (last, 7.0)
        case "returns_the_same":
            return last if hasattr(last, "tolist") else first
        case "returns_both":
            return (first, last)
        case "returns_nones":
            return (None,) * len(first)
        case "returns_one_more":
            return (*first, first[0])
        case "doubles_each":
            return tuple(None if grad is None else grad * 2 for grad in first)
    return None


def _total(values: Any) -> Any:
    """Return the sum of all numbers and tensors in nested tuples and lists."""
    return sum(map(_total, values)) if isinstance(values, tuple | list) else values


def shown(value: Any) -> str:
    """Return a value as text that does not depend on who made it."""
    if hasattr(value, "tolist"):
        numbers = value.tolist()
        return f"[{', '.join(f'{number:g}' for number in (numbers if isinstance(numbers, list) else [numbers]))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {shown(one)}" for key, one in value.items()) + "}"
    if isinstance(value, tuple | list):
        inside = ", ".join(map(shown, value))
        return f"list({inside})" if isinstance(value, list) else f"({inside}{',' if len(value) == 1 else ''})"
    return f"{value:g}" if isinstance(value, float) else repr(value)


def _module_class(base: type) -> Any:
    class ModuleOfAProgram(base):  # type: ignore[misc]
        def __init__(self, run: _Run, raises: bool) -> None:
            super().__init__()
            self.run, self.raises = run, raises
            self.__dict__["forward"] = self.own_forward

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            self.run.log.append("the class's own forward, though m.forward was replaced")
            return self.own_forward(*args, **kwargs)

        def own_forward(self, *args: Any, **kwargs: Any) -> Any:
            is_own = bool(args) and args[0] is self.run.x
            received = [*map(shown, args), *[f"{key}={shown(one)}" for key, one in kwargs.items()]]
            self.run.log.append(f"forward gets {', '.join(received)}{' (x itself)' if is_own else ''}")
            if self.raises:
                raise self.run.boom("forward")
            return _total([*args, *kwargs.values()]) * 3

    return ModuleOfAProgram
