"""Naming parts of a model: :func:`select`, and the names that all other tools share.

A name is the one that ``model.named_modules()`` gives, without what wrappers add to it: a model has the same names
before and after ``torch.compile``, ``DistributedDataParallel``, ``DataParallel`` or ``checkpoint_wrapper``. ``""`` is
the model itself.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

import torch
from torch import nn

What: TypeAlias = "str | type[nn.Module] | nn.Module | Callable[[str, nn.Module], bool]"


class MissingName(KeyError):
    """No such module, or nothing recorded for it. A ``KeyError`` (so a ``LookupError``) with a readable message."""

    def __str__(self) -> str:
        return str(self.args[0])


def select(model: nn.Module, *what: What) -> dict[str, nn.Module]:
    """Find modules of ``model`` by name, glob, type, module object or predicate.

    Args:
        model: any module.
        *what: any number of

            - a name (``"layer1.0"``) or a glob: ``"h.*"`` is one level (each block), ``"h.**"`` all that is inside, and
              ``[12]`` one of the two. A name that exists is never read as a glob;
            - a module type (``nn.Conv2d``), which also selects its subclasses;
            - a module of the model, the object itself (``model.fc``);
            - a predicate ``f(name, module) -> bool``.

            An ``nn.ModuleList`` or ``nn.ModuleDict``, which is never called, stands for its members. Without any
            ``what``: all layers. A layer is a module with a ``forward`` and without children that have one;
            parametrizations and what quantization adds do not count, and an ``nn.MultiheadAttention`` is one layer: it
            uses the weights of its ``out_proj`` and never calls it.

    Returns:
        The names and modules, in the order of ``model.named_modules()``. A shared module appears once, under the first
        name that was asked for; a name written out in full always appears.

    Raises:
        MissingName: (a ``LookupError``) if one of ``what`` matches nothing, with the nearest names; without any, if the
            model has no layers.
        TypeError: if one of ``what`` is none of these, or ``model`` is not a module.

    Example:
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 3), nn.ReLU()))
        >>> list(select(model))
        ['0', '1', '2.0', '2.1']
        >>> list(select(model, nn.ReLU)), list(select(model, "2.*")), list(select(model, model[0]))
        (['1', '2.1'], ['2.0', '2.1'], ['0'])
        >>> list(select(model, "0", lambda name, module: getattr(module, "in_features", 0) == 3))
        ['0', '2.0']
        >>> select(model, "2.7")
        Traceback (most recent call last):
        hooklab.selecting.MissingName: no module of this Sequential is named '2.7'. Near names: '2.1', '2.0', '2'.
    """
    require_module(model)
    named = list(named_modules(model))
    if not what:
        layers = _layers(named)
        if not layers:
            raise MissingName(f"this {type(uncompiled(model)).__name__} has no layers: nothing in it has a forward.")
        return each_once({name: module for name, module in named if name in layers})
    picked: dict[str, nn.Module] = {}
    taken: set[int] = set()
    for item in what:
        wanted = plain_name(model, item) if isinstance(item, str) else item
        matches = _matches(wanted, named)
        if not matches:
            raise MissingName(_no_match(item, model, [name for name, _ in named]))
        written_out = isinstance(wanted, str) and wanted in matches
        for name, module in _called_instead(matches):
            if written_out or id(module) not in taken:
                picked[name] = module
                taken.add(id(module))
    return {name: picked[name] for name, _ in named if name in picked}


def select_for_hooks(model: nn.Module, *what: What) -> dict[str, nn.Module]:
    """What :func:`select` finds; ``TypeError`` if ``torch.jit`` compiled the model or one of the modules."""
    found = select(model, *what)
    for name, module in {"": uncompiled(model), **found}.items():
        if isinstance(module, torch.jit.ScriptModule):
            whose = repr(name) if name else f"this {type(module).__name__}"
            raise TypeError(
                f"{whose} was compiled by torch.jit (script or trace), and its parts run no hooks: use the model that "
                "it was made from, or select around a compiled part."
            )
    return found


def each_once(modules: dict[str, nn.Module]) -> dict[str, nn.Module]:
    """The same modules without second names. By identity, as everywhere: a module may define equality and hash."""
    first_names = {id(module): name for name, module in reversed(modules.items())}
    return {name: module for name, module in modules.items() if first_names[id(module)] == name}


def require_module(model: object) -> None:
    """Raise unless ``model`` is a module. The usual mistake is its class."""
    if not isinstance(model, nn.Module):
        got = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise TypeError(f"the model comes first, and is an nn.Module object, not {got}.")


def named_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every name of every module, a shared module under each of its names; compiled wrappers are looked through."""
    yield from _walk(model, "", (), Counter())


def uncompiled(module: nn.Module) -> nn.Module:
    """The module whose hooks count: itself, or the one in a wrapper of ``torch.compile`` or data-parallel training."""
    key = "module" if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)) else "_orig_mod"
    inner = _child(module, key)
    return module if inner is None else uncompiled(inner)


def unwrapped(module: nn.Module) -> nn.Module:
    """The module whose type, parameters and children count: also inside a wrapper that checkpoints it."""
    module = uncompiled(module)
    inner = _child(module, "_checkpoint_wrapped_module")
    return module if inner is None else unwrapped(inner)


def _child(module: nn.Module, key: str) -> nn.Module | None:
    # not _modules.get: a ScriptModule's are in no dict
    return module._modules[key] if key in module._modules else None  # noqa: SIM401


def plain_name(model: nn.Module, name: str) -> str:
    """The name without what wrappers add: ``_orig_mod.fc``, or ``module.fc`` in a data-parallel model, is ``fc``."""
    parts = [part for part in name.split(".") if part not in ("_orig_mod", "_checkpoint_wrapped_module")]
    above: nn.Module | None = model
    kept = []
    for part in parts:
        inner = uncompiled(above) if above is not None else None
        if above is not inner and above is not None and part == "module" and _child(above, part) is not None:
            above = above._modules[part]
            continue
        kept.append(part)
        above = _child(unwrapped(inner), part) if inner is not None else None
    return ".".join(kept)


def near_names(name: str, names: Collection[str]) -> str:
    """A sentence with the names closest to a misspelt one, or with the first few when none is close."""
    known = [known for known in dict.fromkeys(names) if known]
    last = name.rsplit(".", 1)[-1].strip("*")
    same_ending = [known_name for known_name in known if last and known_name.rsplit(".", 1)[-1] == last]
    near = list(dict.fromkeys(difflib.get_close_matches(name, known, n=3, cutoff=0.5) + same_ending[:3]))
    if near:
        return "Near names: " + ", ".join(map(repr, near)) + "."
    if not known:
        return "It has no submodules; its own name is ''."
    return f"Its names: {first_few(known)}."


def first_few(names: Collection[str]) -> str:
    """The first five names, and how many more there are."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(repr, list(names)[:5])) + more


def all_modules(model: nn.Module, name: str = "", met: set[int] | None = None) -> Iterator[tuple[str, nn.Module]]:
    """``model.named_modules()`` by identity (a module may define equality and hash): each once, wrappers too."""
    met = set() if met is None else met
    met.add(id(model))
    yield name, model
    for child_name, child in model._modules.items():
        if child is not None and id(child) not in met:
            yield from all_modules(child, f"{name}.{child_name}" if name else child_name, met)


# 12 modules that all refer to each other have half a billion names. A module's inside is listed under this many.
_NAMES_WALKED = 1000


def _walk(
    module: nn.Module, name: str, above: tuple[nn.Module, ...], walked: Counter[int]
) -> Iterator[tuple[str, nn.Module]]:
    module = uncompiled(module)
    if any(module is one for one in above):  # a module that contains itself: torch's own walk ends here as well
        return
    yield name, module
    walked[id(module)] += 1
    if walked[id(module)] > _NAMES_WALKED:
        return
    for child_name, child in unwrapped(module)._modules.items():
        if child is not None:
            yield from _walk(child, f"{name}.{child_name}" if name else child_name, (*above, module), walked)


def _layers(named: list[tuple[str, nn.Module]]) -> set[str]:
    """The names of what a person calls the layers; see :func:`select`."""
    may_be_called: set[str] = set()
    around_others: set[str] = set()
    for name, module in reversed(named):  # the children before their parents
        if _is_called(module) if has_forward(module) else name in around_others:
            may_be_called.add(name)
            if name:
                around_others.add(_parent(name))
    layers: set[str] = set()
    entered: set[str] = set()
    for name, module in named:
        if name in may_be_called and (name == "" or _parent(name) in entered):
            is_layer = name not in around_others or isinstance(module, nn.MultiheadAttention)
            (layers if is_layer else entered).add(name)
    return layers


def _parent(name: str) -> str:
    return name.rpartition(".")[0]


def has_forward(module: nn.Module) -> bool:
    """Whether it can be called: an ``nn.ModuleList``, an ``nn.ParameterList`` or a bare ``nn.Module()`` cannot."""
    return "forward" in vars(module) or getattr(type(module), "forward", None) is not nn.Module.forward


# the names of classes, since importing those takes long
_HUNG_ON_LAYERS = {"ParametrizationList", "ObserverBase", "FakeQuantizeBase", "LinearPackedParams"}


def _is_called(module: nn.Module) -> bool:
    return _HUNG_ON_LAYERS.isdisjoint(kind.__name__ for kind in type(module).__mro__)


def _called_instead(modules: dict[str, nn.Module]) -> Iterator[tuple[str, nn.Module]]:
    """The modules, with the members of a list or dict of modules in its place."""
    for name, module in modules.items():
        members = unwrapped(module)._modules.items() if isinstance(module, (nn.ModuleList, nn.ModuleDict)) else ()
        inside = {f"{name}.{key}" if name else key: uncompiled(one) for key, one in members if one is not None}
        yield from _called_instead(inside) if inside and not has_forward(module) else [(name, module)]


def _fits(name: list[str], glob: list[str]) -> bool:
    """Level by level; ``**`` stands for any number of levels, and at the end for one or more."""
    if not glob or not name:
        return not glob and not name
    if glob[0] == "**":
        return glob == ["**"] or any(_fits(name[skipped:], glob[1:]) for skipped in range(len(name)))
    return fnmatch.fnmatchcase(name[0], glob[0]) and _fits(name[1:], glob[1:])


def _matches(item: What, named: list[tuple[str, nn.Module]]) -> dict[str, nn.Module]:
    if isinstance(item, str):
        exact = {name: module for name, module in named if name == item}
        levels = item.split(".")
        return exact or {name: module for name, module in named if name and _fits(name.split("."), levels)}
    if isinstance(item, nn.Module):  # before the predicate: a module is callable
        return {name: module for name, module in named if unwrapped(module) is unwrapped(item)}
    if isinstance(item, type):
        if not issubclass(item, nn.Module):
            raise TypeError(f"select by type needs a subclass of nn.Module, not {item.__name__}.")
        return {name: module for name, module in named if isinstance(unwrapped(module), item)}
    if callable(item):
        return {name: module for name, module in named if item(name, unwrapped(module))}
    hint = " Unpack a list: select(model, *names)." if isinstance(item, (list, tuple, set)) else ""
    raise TypeError(f"select takes names, globs, module types, modules or predicates, not {type(item).__name__}.{hint}")


def _no_match(item: What, model: nn.Module, names: list[str]) -> str:
    whose = f"this {type(uncompiled(model)).__name__}"
    if isinstance(item, str):
        is_glob = any(sign in item for sign in "*?[")
        said = f"no module of {whose} {'matches' if is_glob else 'is named'} {item!r}."
        levels = ' "*" is one level, "**" any number: "**.conv1".' if "*" in item else ""
        return f"{said} {near_names(plain_name(model, item), names)}{levels}"
    if isinstance(item, nn.Module):
        return f"this {type(item).__name__} object is not part of {whose} (a copy, or of another model?)."
    if isinstance(item, type):
        others = sum(type(module).__name__ == item.__name__ for _, module in named_modules(model))
        reloaded = f" It has {others} of another class of that name (was it reloaded, or defined again?)."
        return f"{whose} has no module of type {item.__name__}.{reloaded if others else ''}"
    return f"no module of {whose} satisfies the predicate {getattr(item, '__qualname__', item)!r}."
