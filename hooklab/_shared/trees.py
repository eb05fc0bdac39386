"""Outputs as trees: the tensors inside tuples, lists, dicts, named tuples, dataclasses, and subclasses of these.

Anything else (None, a number, an object of the model's own) is a leaf and stays as it is. So does a container inside
itself, one that is nested deeper than ``DEEPEST``, and one that cannot be rebuilt from its parts. No method that a
subclass defines is called: a method that raises, or lies, must not break the model.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

DEEPEST = 50

_HOLDERS = (set, frozenset, deque, MappingProxyType)
# the attributes of these do not count as values in a tree
_NO_VALUES = (type, nn.Module)


def is_tensor(thing: Any) -> bool:
    """True for a tensor with a shape; an uninitialized parameter (of ``nn.LazyLinear``) has none, and is a leaf."""
    kind = type(thing)
    if kind is Tensor or not issubclass(kind, Tensor):
        return kind is Tensor
    try:
        return thing.shape is not None and thing.requires_grad is not None
    except Exception:
        return False


def map_tensors(
    fn: Callable[[Any], Any], tree: Any, is_one: Callable[[Any], bool] = is_tensor, *, copies: bool = True
) -> Any:
    """A new tree of the same structure, each tensor ``t`` in it (or what ``is_one`` says) replaced with ``fn(t)``.

    Without ``copies``, a container in which nothing was replaced is the object it was.
    """
    return _mapped(fn, tree, is_one, {}, 0, copies)


def tensors(tree: Any, is_one: Callable[[Any], bool] = is_tensor) -> Iterator[Any]:
    """The tensors of a tree (or what ``is_one`` says), in the order in which :func:`map_tensors` meets them."""
    found: list[Any] = []
    map_tensors(found.append, tree, is_one)
    return iter(found)


def passed_over(tree: Any, met: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """Tensors that :func:`map_tensors` does not reach although they are in plain sight: in an attribute of a leaf
    object, or of a container, beside its parts. Each comes with the name of the type that holds it."""
    met = set() if met is None else met
    kind = type(tree)
    if id(tree) in met or is_tensor(tree) or issubclass(kind, _NO_VALUES):
        return
    met.add(id(tree))
    parts = _parts(tree) or []
    mapped = {id(part) for _, part in parts}
    try:
        aside = [*_attributes(tree).values(), *_slots(tree).values()]
        if issubclass(kind, _HOLDERS):
            aside += tree.values() if kind is MappingProxyType else tree
    except Exception:
        return
    for value in aside:
        if id(value) not in mapped:
            yield from ((kind.__name__, tensor) for tensor in tensors(value))
    for _, part in parts:
        yield from passed_over(part, met)


def children(tree: Any) -> list[tuple[str, Any]] | None:
    """The parts one level down, each with the text that indexes it; None for a leaf."""
    parts = None if is_tensor(tree) else _parts(tree)
    if parts is None:
        return None
    text = "[{}]" if issubclass(type(tree), (tuple, list, dict)) else ".{}"
    return [(text.format(_text(key) if issubclass(type(tree), dict) else key), part) for key, part in parts]


def describe(tree: Any, above: tuple[int, ...] = ()) -> str:
    """One short line: a tensor by its shape and dtype, anything else by its structure.

    Example:
        >>> import torch
        >>> describe((torch.zeros(2, 3), None, {"k": torch.zeros(1, dtype=torch.int64)}))
        "((2, 3) float32, None, {'k': (1,) int64})"
    """
    if is_tensor(tree):
        return f"{shape_of(tree)} {str(tree.dtype).removeprefix('torch.')}"
    kind, parts = type(tree), _parts(tree)
    if parts is None:
        return "None" if tree is None else kind.__name__
    if id(tree) in above or len(above) == 8:
        return "..."
    above = (*above, id(tree))
    if issubclass(kind, dict):
        return "{" + ", ".join(f"{_text(key)}: {describe(part, above)}" for key, part in parts) + "}"
    inside = ", ".join(describe(part, above) for _, part in parts)
    if kind is list:
        return f"[{inside}]"
    return f"({inside})" if kind is tuple else f"{kind.__name__}({inside})"


def shape_of(tensor: Tensor) -> tuple[int, ...] | str:
    """The shape, or "nested": only a nested tensor of the jagged kind has one."""
    return "nested" if tensor.is_nested and tensor.layout == torch.strided else tuple(tensor.shape)


def nbytes(tree: Any) -> int:
    """Bytes of all the elements in a tree, and of those that its objects hold in plain sight (see
    :func:`passed_over`). Views and sparse tensors count in full, tensors that do not say not at all."""
    found = {id(tensor): tensor for tensor in (*tensors(tree), *(tensor for _, tensor in passed_over(tree)))}
    return sum(map(_nbytes, found.values()))


def _nbytes(tensor: Tensor) -> int:
    try:
        return tensor.numel() * tensor.element_size()
    except Exception:  # a subclass that refuses
        return 0


def _mapped(
    fn: Callable[[Any], Any], tree: Any, is_one: Callable[[Any], bool], done: dict[int, Any], depth: int, copies: bool
) -> Any:
    if is_one(tree):
        return fn(tree)
    parts = _parts(tree) if depth < DEEPEST else None
    if parts is None:
        return tree
    if id(tree) not in done:
        done[id(tree)] = tree  # for the place where it holds itself
        new = [_mapped(fn, part, is_one, done, depth + 1, copies) for _, part in parts]
        if copies or any(part is not old for part, (_, old) in zip(new, parts, strict=True)):
            done[id(tree)] = _rebuilt(tree, parts, new)
    return done[id(tree)]


def _parts(tree: Any) -> list[tuple[Any, Any]] | None:
    """The parts one level down, each with its index, key or field; None for a leaf."""
    kind = type(tree)  # not isinstance: what an object says of its class may raise, or not be so
    parts: list[tuple[Any, Any]]
    try:
        if issubclass(kind, tuple):
            parts = list(enumerate(tuple.__iter__(tree)))
        elif issubclass(kind, list):
            parts = list(enumerate(list.__iter__(tree)))
        elif issubclass(kind, dict):
            parts = list(dict.items(tree))
        elif dataclasses.is_dataclass(kind) and not issubclass(kind, nn.Module):
            values = {**_attributes(tree), **_slots(tree)}
            parts = [(field.name, values[field.name]) for field in dataclasses.fields(kind) if field.name in values]
        else:
            return None
        if kind not in (tuple, list, dict):
            _rebuilt(tree, parts, [part for _, part in parts])  # raises if it cannot
    except Exception:
        return None
    return parts


def _rebuilt(tree: Any, parts: list[tuple[Any, Any]], new: list[Any]) -> Any:
    """Build an object of the same type, with ``new`` in place of its parts. May raise anything if it cannot."""
    kind = type(tree)
    twin: Any
    if kind is list:
        return new
    if kind is tuple:
        return tuple(new)
    if issubclass(kind, tuple):
        try:
            twin = tuple.__new__(kind, new)  # not by the type itself: a named tuple takes its fields one by one
        except TypeError:
            twin = kind(new)  # such as torch.return_types.max, which is written in C
    elif issubclass(kind, list):
        twin = list.__new__(kind)
        list.extend(twin, new)
    elif issubclass(kind, dict):
        base: Any = next(base for base in (OrderedDict, defaultdict, dict) if issubclass(kind, base))
        twin = base.__new__(kind)
        if base is defaultdict:
            twin.default_factory = tree.default_factory
        for (key, _), part in zip(parts, new, strict=True):
            base.__setitem__(twin, key, part)
    else:
        twin = object.__new__(kind)
    # an attribute may be one of the parts: a field, or what a model output has as item and as attribute
    replaced = {id(old): part for (_, old), part in zip(parts, new, strict=True)}
    for name, value in _attributes(tree).items():
        twin.__dict__[name] = replaced.get(id(value), value)
    for name, value in _slots(tree).items():
        object.__setattr__(twin, name, replaced.get(id(value), value))
    return twin


def _attributes(tree: Any) -> dict[str, Any]:
    state: Any = object.__getstate__(tree)
    attributes = state[0] if type(state) is tuple else state
    return {} if attributes is None else dict(dict.items(attributes))


def _slots(tree: Any) -> dict[str, Any]:
    state: Any = object.__getstate__(tree)
    return state[1] if type(state) is tuple else {}


def _text(key: Any) -> str:
    try:
        return repr(key)
    except Exception:
        return type(key).__name__
