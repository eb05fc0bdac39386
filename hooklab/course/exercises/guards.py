"""Guards: hooks that an answer leaves behind or removes from other code, and global hooks left by an earlier cell.

They work by comparing before and after, on private hook tables of torch 2.13; nothing is patched.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn

from hooklab._shared.torch_private import global_hooks
from hooklab.course.exercises.frames import name_of
from hooklab.leftover import GLOBAL_TABLES, MODULE_TABLES, TENSOR_TABLES

optimizer = importlib.import_module("torch.optim.optimizer")  # torch.optim takes the name for a class

_OPTIMIZER_TABLES = {"step pre-hook": "_optimizer_step_pre_hooks", "step post-hook": "_optimizer_step_post_hooks"}
# Tables beside a table of hooks: which of their ids were registered with an option.
_OPTIONS = ("_with_kwargs", "_always_called")


class Table(NamedTuple):
    """One hook table: where it is, in words, the table itself, and the tables of options beside it."""

    place: str
    hooks: MutableMapping[int, Any]
    options: Sequence[MutableMapping[int, bool]] = ()


def snapshot_hooks(objects: Sequence[Any]) -> set[tuple[str, int]]:
    """Return (place, hook id) of every hook on these tensors and modules, and of the global ones."""
    return {(table.place, key) for table in _tables(objects) for key in table.hooks}


def removed_hooks(objects: Sequence[Any], before: set[tuple[str, int]]) -> list[str]:
    """Return where a hook of `before` is missing now, except on parameters that a module no longer has."""
    modules = [one for one in flat(objects) if isinstance(one, nn.Module)]
    present = {f"parameter {name!r}" for module in modules for name, _ in module.named_parameters()}
    still_there = {key for _, key in snapshot_hooks(objects)}  # a module whose class has changed is another place
    missing = {key: place for place, key in sorted(before, reverse=True) if key not in still_there}
    gone = [place.split(" on ", 1) for place in sorted(missing.values())]
    return [f"{kind} on {where}" for kind, where in gone if not where.startswith("parameter ") or where in present]


def remove_new_hooks(objects: Sequence[Any], before: set[tuple[str, int]]) -> list[str]:
    """Remove every hook that `before` does not know; describe each, as in "forward hook `grab` on module '0'"."""
    found, known = [], {key for _, key in before}
    for place, hooks, options in _tables(objects):
        for key in [key for key in hooks if key not in known]:
            hook = hooks.pop(key)
            for table in options:
                table.pop(key, None)
            found.append(place.replace("hook on", f"hook `{name_of(hook)}` on", 1))
    _forget_the_kind_of_no_hooks()
    return found


def somebody_elses(*args: Any) -> None:
    """A hook that is already there, and that an answer must leave where it is."""


def of_the_answer(hooks: Mapping[int, Any] | None) -> list[Any]:
    """The hooks of a table, without `somebody_elses`, which the check registered."""
    return [hook for hook in (hooks or {}).values() if hook is not somebody_elses]


@contextmanager
def somebody_elses_hooks(objects: Sequence[Any]) -> Iterator[None]:
    """Put a hook that does nothing on each tensor, module and parameter among the objects, for the block."""
    with ExitStack() as handles:
        for one in flat(objects):
            tensors = [one] if isinstance(one, torch.Tensor) else []
            if isinstance(one, nn.Module):
                tensors += one.parameters()
                for module in one.modules():
                    handles.enter_context(module.register_forward_pre_hook(somebody_elses))
                    handles.enter_context(module.register_forward_hook(somebody_elses))
            for tensor in tensors:
                if tensor.requires_grad:
                    handles.enter_context(tensor.register_hook(somebody_elses))
        yield


@contextmanager
def global_hooks_set_aside(notes: list[str]) -> Iterator[None]:
    """Run the block without the global hooks of an earlier cell, and note them; at the end they are back."""
    kind = global_hooks._global_is_full_backward_hook
    saved = [(table, dict(table.hooks), [dict(one) for one in table.options]) for table in _global_tables()]
    for table, hooks, _ in saved:
        for hook in hooks.values():
            what = table.place.replace("hook on", f"hook `{name_of(hook)}` on", 1)
            notes.append(f"a {what}, from an earlier cell, was set aside while your answer was checked")
        _set(table, {}, [{} for _ in table.options])
    global_hooks._global_is_full_backward_hook = None
    try:
        yield
    finally:
        for table, hooks, options in saved:
            _set(table, hooks, options)
        global_hooks._global_is_full_backward_hook = kind


def _set(table: Table, hooks: dict[int, Any], options: Sequence[dict[int, bool]]) -> None:
    for target, content in zip((table.hooks, *table.options), (hooks, *options), strict=True):
        target.clear()
        target.update(content)


def _forget_the_kind_of_no_hooks() -> None:
    """Torch keeps one kind of global backward hooks, old or full, and refuses the other one, even when all are gone."""
    if not global_hooks._global_backward_hooks:
        global_hooks._global_is_full_backward_hook = None


def _tables(objects: Sequence[Any]) -> list[Table]:
    """The tables with hooks in them, of which there are few: a check looks hundreds of times."""
    tables = _global_tables(with_hooks=True)
    for number, one in enumerate(flat(objects)):
        if isinstance(one, torch.Tensor):
            tables += _tensor_tables(one, f"tensor argument {number + 1}")
        elif isinstance(one, nn.Module):
            for name, module in one.named_modules():
                where = f"module {name!r}" if name else f"the whole {type(one).__name__}"
                is_old = module._is_full_backward_hook is False
                tables += [
                    _table(module, at, _words(kind, is_old), where)
                    for kind, at in MODULE_TABLES.items()
                    if getattr(module, at)
                ]
            for name, parameter in one.named_parameters():
                tables += _tensor_tables(parameter, f"parameter {name!r}")
        elif isinstance(one, torch.optim.Optimizer):
            where = f"the {type(one).__name__} optimizer"
            tables += [Table(f"{kind} on {where}", getattr(one, at)) for kind, at in _OPTIMIZER_TABLES.items()]
    return tables


def _global_tables(with_hooks: bool = False) -> list[Table]:
    """The tables of global hooks; `with_hooks`: those alone that have some."""
    is_old = global_hooks._global_is_full_backward_hook is False
    tables = [
        _table(global_hooks, at, f"global {_words(kind, is_old)}", "all modules")
        for kind, at in GLOBAL_TABLES.items()
        if not with_hooks or getattr(global_hooks, at)
    ]
    for kind in ("pre", "post"):
        if (hooks := getattr(optimizer, f"_global_optimizer_{kind}_hooks")) or not with_hooks:
            tables.append(Table(f"global step {kind}-hook on all optimizers", hooks))
    return tables


def _table(owner: Any, attribute: str, kind: str, where: str) -> Table:
    options = [getattr(owner, attribute + option, None) for option in _OPTIONS]
    return Table(f"{kind} on {where}", getattr(owner, attribute), [one for one in options if one is not None])


def _tensor_tables(tensor: torch.Tensor, where: str) -> list[Table]:
    found = ((kind, getattr(tensor, name, None)) for kind, name in TENSOR_TABLES.items())
    return [Table(f"{_words(kind)} on {where}", table) for kind, table in found if table is not None]


def _words(kind: str, is_old: bool = False) -> str:
    if kind == "full_backward_hook" and is_old:
        return "old-style backward hook"
    return kind.replace("pre_hook", "pre-hook").replace("_", " ")


def flat(objects: Sequence[Any]) -> Iterator[Any]:
    """Yield the objects, but instead of a list, tuple or dictionary its contents."""
    for one in objects:
        if isinstance(one, list | tuple):
            yield from flat(one)
        elif isinstance(one, dict):
            yield from flat(list(one.values()))
        else:
            yield one
