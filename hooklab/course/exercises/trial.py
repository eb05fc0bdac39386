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
from types import CoroutineType
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
            before, before_on_given = snapshot_hooks([]), snapshot_hooks(given)
            forwards = _forwards(given) if may_hook and not may_change else []
            result = self.run(self.answer, *args, **kwargs)
            for name in _put_back_forwards(forwards):
                raise _forward_replaced(name)
            self._registered = given, snapshot_hooks(given) - before_on_given
            if may_hook and (left := remove_new_hooks([], before)):
                raise fault("global-hook", hook=left[0])
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
                result = function(*args, **kwargs)
        except PASSING:
            raise
        except NotImplementedError as error:
            if raised_by_library(error):
                raise learners_error(error, name) from error
            raise StillTheStub from error
        except BaseException as error:
            raise learners_error(error, name) from error
        if type(result) is CoroutineType:
            result.close()
            raise fault("coroutine", name=name)
        return result

    @contextmanager
    def watch(
        self, *objects: Any, may_change: bool = False, may_hook: bool = False, by_handle: bool = False
    ) -> Iterator[None]:
        """Watch tensors and modules while a learner's code runs; new hooks are removed and noted at the end.

        With `by_handle`, the code may register hooks, and the handle that it returns should remove them.
        """
        entries = [] if may_change else [(one, copy(one)) for one in objects if type(one) in (list, dict)]
        objects = tuple(flat(objects))  # what has been taken out of a list is watched as well
        before, modes = snapshot_hooks(objects), _modes(objects)
        attributes = [] if may_hook else _attributes(objects)
        forwards = [] if may_change or may_hook else _forwards(objects)
        values = [] if may_change else _values(objects)
        asking = [(name, one, one.requires_grad) for name, one in _tensors(objects)]
        try:
            yield
        finally:
            self.faults += [_asks_otherwise(name, one) for name, one, old in asking if one.requires_grad != old]
            gone = removed_hooks(objects, before)
            left = remove_new_hooks([] if may_hook else objects, before)
            self.faults += [fault("hook-still-there" if by_handle else "hook-left", hook=hook) for hook in left]
            self.faults += [fault("hook-removed", place=place) for place in gone]
            self.faults += [_mode_left(name, mode) for name, mode in _put_back_modes(modes)]
            self.faults += [_entries_changed(one, old) for one, old in entries if not _has_entries(one, old)]
            self.faults += [_forward_replaced(name) for name in _put_back_forwards(forwards)]
            self.notes += [_attribute_left(name, key) for name, key in _take_new_attributes(attributes)]
            if not may_change:
                self.faults += [fault("changed-in-place", what=name) for name in _changed(objects, values)]


def _mode_left(name: str, mode: bool) -> NotYet:
    was, now = ("training", "evaluation") if mode else ("evaluation", "training")
    return fault("mode-left", where=f"the module {name!r}" if name else "the model", was=was, now=now)


def _attribute_left(name: str, key: str) -> str:
    where = f"the module {name!r}" if name else "the model"
    return (
        f"your code stored something on {where}, as its attribute {key!r} (the check removed it). Attributes of a "
        "module are copied and saved with it: a variable of your function is a better place"
    )


def _forward_replaced(name: str) -> NotYet:
    return fault("forward-replaced", where=repr(name) if name else "the module")


def _asks_otherwise(name: str, tensor: torch.Tensor) -> NotYet:
    return fault("requires-grad-changed", what=name, was=not tensor.requires_grad, now=tensor.requires_grad)


def _entries_changed(now: list[Any] | dict[Any, Any], old: list[Any] | dict[Any, Any]) -> NotYet:
    kind = "list" if isinstance(now, list) else "dictionary"
    return fault("entries-changed", kind=kind, count=len(old), got=f"{len(now)} entries")


def _has_entries(now: Any, old: Any) -> bool:
    """Whether a list or dictionary has the same objects, in the same places."""
    if isinstance(now, dict):
        return list(now) == list(old) and all(now[key] is old[key] for key in old)
    return len(now) == len(old) and all(one is other for one, other in zip(now, old, strict=True))


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


# --- what an answer must leave alone


def _modes(objects: Sequence[Any]) -> list[tuple[str, nn.Module, bool]]:
    """Return (name, module, whether in training mode) of every module among the objects."""
    return [
        (name, module, module.training)
        for one in objects
        if isinstance(one, nn.Module)
        for name, module in one.named_modules()
    ]


def _each_once(objects: Sequence[Any]) -> list[tuple[str, nn.Module]]:
    """Return (name, module) of every module among the objects; if its model is among them, with its name there."""
    names = {module: name for name, module, _ in reversed(_modes(objects))}
    return [(name, module) for module, name in names.items()]


def _put_back_modes(modes: list[tuple[str, nn.Module, bool]]) -> list[tuple[str, bool]]:
    """Put back the mode of each module; return (name, old mode) of the first whose mode had changed, if any."""
    changed = [(name, module, mode) for name, module, mode in modes if module.training != mode]
    for _, module, mode in changed:
        module.training = mode
    return [(name, mode) for name, _, mode in changed[:1]]


def _attributes(objects: Sequence[Any]) -> list[tuple[str, nn.Module, set[str]]]:
    """Return (name, module, names of its attributes) of every module among the objects."""
    return [(name, module, set(vars(module))) for name, module in _each_once(objects)]


def _take_new_attributes(attributes: list[tuple[str, nn.Module, set[str]]]) -> list[tuple[str, str]]:
    """Remove the attributes that the modules gained since, except torch's own; return (module's name, name)."""
    found = []
    for name, module, before in attributes:
        for key in [key for key in vars(module) if key not in before and not key.startswith("_")]:
            del vars(module)[key]
            found.append((name, key))
    return found


def _forwards(objects: Sequence[Any]) -> list[tuple[str, nn.Module, Any]]:
    """Return (name, module, its `forward`) of every module among the objects."""
    return [(name, module, module.forward) for name, module in _each_once(objects)]


def _put_back_forwards(forwards: list[tuple[str, nn.Module, Any]]) -> list[str]:
    """Put back each module's `forward`; return the names of those that had a different one."""
    changed = [one for one in forwards if "forward" in vars(one[1]) and one[1].forward != one[2]]
    for _, module, old in changed:
        vars(module).pop("forward", None)
        if module.forward != old:
            module.forward = old
    return [name for name, _, _ in changed]


def _values(objects: Sequence[Any]) -> list[list[torch.Tensor]]:
    return [[tensor.detach().clone() for _, tensor in _tensors(one)] for one in objects]


def _changed(objects: Sequence[Any], before: list[list[torch.Tensor]]) -> list[str]:
    names = []
    for one, old_values in zip(objects, before, strict=True):
        now = _tensors(one)
        if len(now) != len(old_values):
            continue
        for (name, new), old in zip(now, old_values, strict=True):
            if new.shape != old.shape or not _is_as_it_was(new.detach(), old):
                names.append(name)
    return names


def _is_as_it_was(new: torch.Tensor, old: torch.Tensor) -> bool:
    return bool(((new == old) | ((new != new) & (old != old))).all())  # NaN is as it was, too


def _tensors(one: Any) -> list[tuple[str, torch.Tensor]]:
    """The tensors whose values an answer must leave alone: tensor arguments and parameters, not buffers."""
    if isinstance(one, torch.Tensor):
        return [("a tensor that it was given", one)]
    if isinstance(one, nn.Module):
        return [(f"the parameter {name!r}", parameter) for name, parameter in one.named_parameters()]
    if isinstance(one, list | tuple):
        return [pair for item in one for pair in _tensors(item)]
    if isinstance(one, dict):
        return [pair for item in one.values() for pair in _tensors(item)]
    return []
