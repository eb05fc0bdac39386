"""Detects that a name now refers to a different module: a layer was replaced, or wrapped in an adapter."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from hooklab.selecting import named_modules, uncompiled, unwrapped

# One child on the way from a model down to a module, as it was when the tool was made: its parent, its key there, the
# child itself and its name in the model.
Step = tuple[nn.Module, str, nn.Module, str]


def steps_to(model: nn.Module, names: Iterable[str]) -> list[Step]:
    """The steps from ``model`` down to each of the modules with these names, each step once."""
    steps: dict[str, Step] = {}
    for name in names:
        parent, path = unwrapped(model), ""
        for key in name.split(".") if name else ():
            path = f"{path}.{key}" if path else key
            child = uncompiled(parent._modules[key])  # type: ignore[arg-type]
            steps.setdefault(path, (parent, key, child, path))
            parent = unwrapped(child)
    return list(steps.values())


def require_unchanged(steps: list[Step], tool: str) -> None:
    """Raise RuntimeError if a name refers to a different module now than when ``tool`` was made."""
    if changed := what_changed(steps, tool):
        raise RuntimeError(changed)


def what_changed(steps: list[Step], tool: str) -> str:
    """A sentence about a name that refers to a different module now than when ``tool`` was made; "" if none does."""
    for parent, key, child, name in steps:
        now = parent._modules.get(key)
        if now is child or (now is not None and uncompiled(now) is child):
            continue
        was = f"{name!r} was {_named(child)} when this {tool} was made"
        if now is None:
            return f"{was}, and is no longer in the model: make the {tool} anew."
        inside = next((inner for inner, module in named_modules(now) if module is child), None)
        holds = f", which holds the old one as {name}.{inside}" if inside else ""
        return f"{was}, and is {_named(now)} now{holds}: make the {tool} anew, after the change."
    return ""


def _named(module: nn.Module) -> str:
    kind = type(unwrapped(module)).__name__
    return f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind}"
