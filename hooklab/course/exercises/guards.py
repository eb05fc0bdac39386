"""Guards: hooks that an answer leaves behind or removes from other code, and global hooks left by an earlier cell.

They work by comparing before and after, on private hook tables of torch 2.13; nothing is patched.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn

from hooklab._shared.torch_private import global_hooks
from hooklab.course.exercises.frames import name_of
from hooklab.leftover import GLOBAL_TABLES, MODULE_TABLES, TENSOR_TABLES

optimizer = importlib.import_module("torch.optim.optimizer")  # torch.optim takes the name for a class

_OPTIMIZER_TABLES = {"step pre-hook": "_optimizer_step_pre_hooks", "step post-hook": "_optimizer_step_post_hooks"}
_GLOBAL_OPTIMIZER_TABLES = {
    "global step pre-hook": "_global_optimizer_pre_hooks",
    "global step post-hook": "_global_optimizer_post_hooks",
}


class Table(NamedTuple):
    """A hook table with hooks in it: where it is, in words, the table itself, and all tables of its owner."""

    place: str
    hooks: dict[int, Any]
    beside: Sequence[dict[Any, Any]]  # some of them say which hooks were registered with an option


def snapshot_hooks(objects: Sequence[Any]) -> set[tuple[str, int]]:
    """Return (place, hook id) of every hook on these tensors and modules, and of the global ones."""
    return {(table.place, key) for table in _tables(objects) for key in table.hooks}


def removed_hooks(objects: Sequence[Any], before: set[tuple[str, int]]) -> list[str]:
    """Return where a hook of `before` is missing now."""
    still_there = {key for _, key in snapshot_hooks(objects)}  # a module whose class has changed is another place
    missing = {key: place for place, key in sorted(before, reverse=True) if key not in still_there}
    return sorted(missing.values())


def remove_new_hooks(objects: Sequence[Any], before: set[tuple[str, int]]) -> list[str]:
    """Remove every hook that `before` does not know; describe each, as in "forward hook `grab` on module '0'"."""
    found, known = [], {key for _, key in before}
    for table in _tables(objects):
        for key, hook in list(table.hooks.items()):
            if key not in known:
                for one in (table.hooks, *table.beside):
                    one.pop(key, None)
                found.append(_described(table, hook))
    if not global_hooks._global_backward_hooks:  # torch refuses old ones after full ones, even when all are gone
        global_hooks._global_is_full_backward_hook = None
    return found


def _described(table: Table, hook: Any) -> str:
    return table.place.replace("hook on", f"hook `{name_of(hook)}` on", 1)


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
    for table in _tables([]):
        for hook in table.hooks.values():
            what = f"a {_described(table, hook)}, from an earlier cell, was set aside"
            notes.append(f"{what} while your answer was checked")
    owned = [pair for module in (global_hooks, optimizer) for pair in vars(module).items()]
    tables = [one for name, one in owned if name.startswith("_global_") and isinstance(one, dict)]
    kind, saved = global_hooks._global_is_full_backward_hook, [dict(one) for one in tables]
    for one in tables:
        one.clear()
    global_hooks._global_is_full_backward_hook = None
    try:
        yield
    finally:
        for one, content in zip(tables, saved, strict=True):
            one.clear()
            one.update(content)
        global_hooks._global_is_full_backward_hook = kind


def _tables(objects: Sequence[Any]) -> list[Table]:
    """The tables with hooks in them, of which there are few: a check looks hundreds of times."""
    tables = _tables_of(global_hooks, GLOBAL_TABLES, "all modules", "global ")
    tables += _tables_of(optimizer, _GLOBAL_OPTIMIZER_TABLES, "all optimizers")
    for number, one in enumerate(flat(objects)):
        if isinstance(one, torch.Tensor):
            tables += _tables_of(one, TENSOR_TABLES, f"tensor argument {number + 1}")
        elif isinstance(one, nn.Module):
            for name, module in one.named_modules():
                tables += _tables_of(
                    module, MODULE_TABLES, f"module {name!r}" if name else f"the whole {type(one).__name__}"
                )
            for name, parameter in one.named_parameters():
                tables += _tables_of(parameter, TENSOR_TABLES, f"parameter {name!r}")
        elif isinstance(one, torch.optim.Optimizer):
            tables += _tables_of(one, _OPTIMIZER_TABLES, f"the {type(one).__name__} optimizer")
    return tables


def _tables_of(owner: Any, attributes: Mapping[str, str], where: str, which: str = "") -> list[Table]:
    tables = []
    for kind, attribute in attributes.items():
        if hooks := getattr(owner, attribute, None):  # a tensor's is None until there is a hook
            is_old = kind == "full_backward_hook" and _is_old(owner)
            words = "old-style backward hook" if is_old else kind.replace("pre_hook", "pre-hook").replace("_", " ")
            beside = [one for one in vars(owner).values() if isinstance(one, dict)]
            tables.append(Table(f"{which}{words} on {where}", hooks, beside))
    return tables


def _is_old(owner: Any) -> bool:
    name = "_global_is_full_backward_hook" if owner is global_hooks else "_is_full_backward_hook"
    return getattr(owner, name) is False


def flat(objects: Sequence[Any]) -> Iterator[Any]:
    """Yield the objects, but instead of a list, tuple or dictionary its contents."""
    for one in objects:
        if isinstance(one, list | tuple):
            yield from flat(one)
        elif isinstance(one, dict):
            yield from flat(list(one.values()))
        else:
            yield one
