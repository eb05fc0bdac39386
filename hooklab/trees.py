"""Outputs are trees: the tensors inside tuples, lists, dicts, named tuples and dataclasses.

Whatever is none of these (None, a number, an object of the model's own) is a leaf and stays as it is.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor


def map_tensors(fn: Callable[[Tensor], Any], tree: Any) -> Any:
    """A new tree of the same structure, each tensor ``t`` in it replaced with ``fn(t)``."""
    if isinstance(tree, Tensor):
        return fn(tree)
    if isinstance(tree, (tuple, list)):
        parts = [map_tensors(fn, part) for part in tree]
        # a named tuple is made by _make: its constructor takes the fields one by one, and may check them
        make: Any = getattr(tree, "_make", type(tree))
        return make(parts)
    if isinstance(tree, dict):
        # a copy keeps what a subclass adds (a default factory, the attributes of a model output)
        twin: Any = copy.copy(tree)
        for key, value in tree.items():
            twin[key] = map_tensors(fn, value)
        return twin
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        twin = copy.copy(tree)
        for field in dataclasses.fields(tree):
            object.__setattr__(twin, field.name, map_tensors(fn, getattr(tree, field.name)))
        return twin
    return tree


def children(tree: Any) -> list[tuple[str, Any]] | None:
    """The parts one level down, each with the text that indexes it; None for a leaf."""
    if isinstance(tree, Tensor):
        return None
    if isinstance(tree, (tuple, list)):
        return [(f"[{index}]", part) for index, part in enumerate(tree)]
    if isinstance(tree, dict):
        return [(f"[{key!r}]", value) for key, value in tree.items()]
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return [(f".{field.name}", getattr(tree, field.name)) for field in dataclasses.fields(tree)]
    return None


def tensors(tree: Any) -> Iterator[Tensor]:
    """The tensors of a tree, in the order in which :func:`map_tensors` meets them."""
    if isinstance(tree, Tensor):
        yield tree
    else:
        for _, part in children(tree) or ():
            yield from tensors(part)


def describe(tree: Any) -> str:
    """One short line: a tensor by its shape and dtype, anything else by its structure.

    >>> import torch
    >>> describe((torch.zeros(2, 3), None, {"k": torch.zeros(1, dtype=torch.int64)}))
    "((2, 3) float32, None, {'k': (1,) int64})"
    """
    if isinstance(tree, Tensor):
        # only a nested tensor of the jagged kind has a shape
        shape = "nested" if tree.is_nested and tree.layout == torch.strided else tuple(tree.shape)
        return f"{shape} {str(tree.dtype).removeprefix('torch.')}"
    parts = children(tree)
    if parts is None:
        return "None" if tree is None else type(tree).__name__
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key!r}: {describe(value)}" for key, value in tree.items()) + "}"
    inside = ", ".join(describe(part) for _, part in parts)
    if type(tree) is list:
        return f"[{inside}]"
    return f"({inside})" if type(tree) is tuple else f"{type(tree).__name__}({inside})"


def nbytes(tree: Any) -> int:
    """Bytes of all the elements in a tree (views and sparse tensors count in full)."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors(tree))
