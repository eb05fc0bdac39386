"""Trial: one run of a learner's answer, and the words a check has for what it found.

`trial.call(...)` runs the answer and survives whatever it does. Hooks that the answer leaves on its arguments are
removed and noted. It also notes arguments that changed in place, tensors whose `requires_grad` changed, modules left
in a different mode or with a different `forward`, and hooks removed that were there before.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from operator import is_
from typing import Any

import torch
from torch import nn

from hooklab.course.exercises.faults import PASSING, NotYet, StillTheStub, fault
from hooklab.course.exercises.frames import first_words, learners_error, name_of, raised_by_library
from hooklab.course.exercises.guards import (
    flat,
    remove_new_hooks,
    removed_hooks,
    snapshot_hooks,
    somebody_elses_hooks,
)
from hooklab.course.exercises.state import put_back


class Trial:
    """One trial of an answer. Checks use `answer`, `call` and the words below; notes gather on the way."""

    def __init__(self, answer: Any):
        self.answer = answer
        self.notes: list[str] = []
        self.faults: list[NotYet] = []
        self._registered: tuple[Sequence[Any], set[tuple[str, int]]] = ((), set())  # what the last call hooked, and how

    @property
    def name(self) -> str:
        """The answer's name, as the learner wrote it."""
        return name_of(self.answer)

    def call(self, *args: Any, may_change: bool = False, may_hook: bool = False, **kwargs: Any) -> Any:
        """Call the answer with these arguments and return what it returns.

        Raises NotYet when the answer cannot be called like that or raises. Hooks found on the arguments afterwards
        are a fault unless `may_hook` (hooks on every module of the process always are). So is a tensor argument whose
        values changed, or a list or dictionary whose entries did, unless `may_change`. During the call the arguments
        also have hooks that the check registered, and these must stay.
        """
        given = (*args, *kwargs.values())
        with somebody_elses_hooks(given), self.watch(*given, may_change=may_change, may_hook=may_hook):
            before = snapshot_hooks(given)
            result = self.run(self.answer, *args, **kwargs)
            self._registered = given, snapshot_hooks(given) - before
        for one in self.faults if may_hook else ():
            if one.label in ("global-hook", "forward-replaced"):
                raise one  # not a hook of the kind that the exercise asks for: the rest would mislead
        return result

    def expect_none_left(self) -> None:
        """Raise NotYet if a hook of the last call's is still there, now that the handle has been used."""
        objects, hooks = self._registered
        for place, _ in sorted(hooks & snapshot_hooks(objects)):
            raise fault("second-hook", place=place)

    def run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a function of the learner's; an exception becomes NotYet with its type, message and line.

        State of the process that it leaves changed is put back, and noted.
        """
        name = name_of(function, self.name)
        _refuse_wrong_signature(function, name, args, kwargs)
        try:
            with put_back(self.notes):
                return function(*args, **kwargs)
        except PASSING:
            raise
        except NotImplementedError as error:
            if error.args or raised_by_library(error):  # the stub's line has no message
                raise learners_error(error, name) from error
            raise StillTheStub from error
        except BaseException as error:
            raise learners_error(error, name) from error

    @contextmanager
    def watch(
        self, *objects: Any, may_change: bool = False, may_hook: bool = False, by_handle: bool = False
    ) -> Iterator[None]:
        """Watch tensors and modules while a learner's code runs; new hooks are removed and noted at the end.

        With `by_handle`, the code may register hooks, and the handle that it returns should remove them.
        """
        before = _Before(objects)
        try:
            yield
        finally:
            left = "global-hook" if may_hook else "hook-still-there" if by_handle else "hook-left"
            self.faults += before.undo(left)
            if not may_change:
                self.faults += before.changed()
            if not may_hook:
                self.notes += before.new_attributes()


class _Before:
    """What objects are like before a learner's code runs, to tell afterwards what it has changed."""

    def __init__(self, objects: Sequence[Any]):
        self.entries = [(one, copy(one)) for one in objects if type(one) in (list, dict)]
        self.objects = list(flat(objects))  # what is taken out of a list is watched as well
        self.hooks = snapshot_hooks(self.objects)
        self.modules = [(name, one, one.training, one.forward, set(vars(one))) for one, name in self._names().items()]
        self.tensors = [(what, one, one.requires_grad, one.detach().clone()) for what, one in self._tensors()]

    def undo(self, left: str) -> Iterator[NotYet]:
        """Yield a fault for each change of `requires_grad`, of hooks and of modes; remove new hooks, put modes back.

        `left` is the label of the fault for a new hook; with "global-hook", only those on all modules are new.
        """
        for what, one, asked, _ in self.tensors:
            if one.requires_grad != asked:
                yield fault("requires-grad-changed", what=what, was=asked, now=one.requires_grad)
        parameters = [one for _, one, _, _ in self.tensors]  # also those that a module no longer has
        gone = removed_hooks([*self.objects, *parameters], self.hooks)
        for hook in remove_new_hooks([] if left == "global-hook" else self.objects, self.hooks):
            yield fault(left, hook=hook)
        for place in gone:
            yield fault("hook-removed", place=place)
        changed = [(name, module, mode) for name, module, mode, *_ in self.modules if module.training != mode]
        for _, module, mode in changed:
            module.training = mode
        for name, _, mode in changed[:1]:
            was, now = ("training", "evaluation") if mode else ("evaluation", "training")
            yield fault("mode-left", where=f"the module {name!r}" if name else "the model", was=was, now=now)

    def changed(self) -> Iterator[NotYet]:
        """Yield a fault for each list, dictionary, `forward` and tensor that has changed; put each `forward` back."""
        for given, old in self.entries:
            if not _has_entries(given, old):
                kind = "list" if isinstance(given, list) else "dictionary"
                yield fault("entries-changed", kind=kind, count=len(old), got=f"{len(given)} entries")
        for name, module, _, forward, names in self.modules:
            if "forward" in vars(module) and module.forward != forward:
                del module.forward
                if "forward" in names:
                    module.forward = forward
                yield fault("forward-replaced", where=repr(name) if name else "the module")
        now = self._tensors()
        if len(now) == len(self.tensors):
            for (what, one), (*_, values) in zip(now, self.tensors, strict=True):
                if one.shape != values.shape or not _is_as_it_was(one.detach(), values):
                    yield fault("changed-in-place", what=what)

    def new_attributes(self) -> Iterator[str]:
        """Remove the attributes that modules have gained, except torch's own, and yield a note for each."""
        for name, module, _, _, names in self.modules:
            for key in [key for key in vars(module) if key not in names and not key.startswith("_")]:
                del vars(module)[key]
                where = f"the module {name!r}" if name else "the model"
                yield (
                    f"your code stored something on {where}, as its attribute {key!r} (the check removed it). "
                    "Attributes of a module are copied and saved with it: a variable of your function is a better place"
                )

    def _names(self) -> dict[nn.Module, str]:
        """Each module among the objects, with its name in the first one that contains it."""
        names: dict[nn.Module, str] = {}
        for one in self.objects:
            for name, module in one.named_modules() if isinstance(one, nn.Module) else ():
                names.setdefault(module, name)
        return names

    def _tensors(self) -> list[tuple[str, torch.Tensor]]:
        """The tensors whose values an answer must leave alone: tensor arguments and parameters, not buffers."""
        tensors: list[tuple[str, torch.Tensor]] = []
        for one in self.objects:
            if isinstance(one, torch.Tensor):
                tensors.append(("a tensor that it was given", one))
            elif isinstance(one, nn.Module):
                tensors += [(f"the parameter {name!r}", parameter) for name, parameter in one.named_parameters()]
        return tensors


def _has_entries(now: Any, old: Any) -> bool:
    """Whether a list or dictionary has the same objects, in the same places."""
    if isinstance(now, dict):
        return list(now) == list(old) and _has_entries(list(now.values()), list(old.values()))
    return len(now) == len(old) and all(map(is_, now, old))


def _is_as_it_was(new: torch.Tensor, old: torch.Tensor) -> bool:
    return bool(((new == old) | ((new != new) & (old != old))).all())  # NaN is as it was, too


def _refuse_wrong_signature(function: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    try:
        signature = inspect.signature(function)
    except PASSING:
        raise
    except BaseException:
        return  # a builtin without a signature, or an odd object: calling it will tell
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        count = len(args) + len(kwargs)
        arguments, got = f"{count} argument{'s' if count != 1 else ''}", f"{name}({', '.join(signature.parameters)})"
        raise fault("signature", name=name, why=first_words(error), arguments=arguments, got=got) from error
