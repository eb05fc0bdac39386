"""Where a batch can be mixed: the layers that a selection means, and what can be told of them beforehand.

Public: :func:`find_layers`, :func:`warn_of_insides`, :func:`require_what_sequence_layers_need`,
:func:`has_batch_second`, :func:`for_each`.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from hooklab.selecting import What, all_modules, first_few, has_forward, named_modules, select_for_hooks

_SEQUENCE_LAYERS = (
    nn.RNNBase,
    nn.MultiheadAttention,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
    nn.TransformerEncoder,
    nn.TransformerDecoder,
    nn.Transformer,
)


def find_layers(model: nn.Module, what: list[What]) -> dict[str, nn.Module]:
    """The selected layers by name, in the order of the model; an ``nn.ModuleList`` stands for its modules.

    Raises:
        LookupError, TypeError, RuntimeError: as :func:`hooklab.selecting.select_for_hooks`.
        ValueError: a selected module is never called, so that nothing could be mixed there.
    """
    if not what:
        return {}
    modules = dict(named_modules(model))
    found: dict[str, nn.Module] = {}
    for name, module in select_for_hooks(model, *what).items():
        found.update(_called_for(modules, name, module))
    return {name: found[name] for name in modules if name in found}


def _called_for(modules: Mapping[str, nn.Module], name: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    if has_forward(module):
        attention, _, last = name.rpartition(".")
        if last == "out_proj" and isinstance(modules[attention], nn.MultiheadAttention):
            raise ValueError(
                f"{name!r} is never called: the attention around it uses its weights. Choose the attention itself, "
                f"{attention!r}"
            )
        yield name, module
    elif isinstance(module, (nn.ModuleList, nn.ModuleDict)):
        for child_name, child in module.named_children():
            yield from _called_for(modules, f"{name}.{child_name}" if name else child_name, child)
    else:
        raise ValueError(f"{name!r}, a {type(module).__name__}, has no forward and is never called: choose another")


def warn_of_insides(model: nn.Module, layers: Mapping[str, nn.Module]) -> None:
    """Warn of layers inside other selected ones."""
    nested = [name for name in layers if any(name != other and _is_inside(name, other) for other in layers)]
    if nested:
        outermost = [name for name in layers if name not in nested]
        warnings.warn(
            f"{len(nested)} of the {len(layers)} layers lie inside another one ({first_few(nested)}). Choose the "
            f"outermost ones, layers={outermost}; `mix.choices` lists what was selected.",
            stacklevel=3,
        )


def _is_inside(name: str, other: str) -> bool:
    return name.startswith(f"{other}.") or (other == "" and name != "")


def require_what_sequence_layers_need(
    layers: Mapping[str, nn.Module], batch_dims: Collection[str], parts: Collection[str]
) -> None:
    """Raise ValueError for torch's own sequence layers of which it was not said where the batch is, or what to mix."""
    for name, layer in layers.items():
        kind = type(layer).__name__
        if isinstance(layer, nn.RNNBase) and name not in parts:
            raise ValueError(
                f"{name!r}, {kind}, returns outputs and states, whose batch is in different dimensions. Say which to "
                f"mix: part={{{name!r}: lambda output: output[0]}} for the outputs; for the states, also of packed "
                f"sequences, output[1] with batch_dim={{{name!r}: 1}}"
            )
        if isinstance(layer, _SEQUENCE_LAYERS) and has_batch_second(layer) and name not in batch_dims:
            raise ValueError(
                f"{name!r}, {kind}, has batch_first=False, and so the batch as its second dimension: say "
                f"batch_dim={{{name!r}: 1}}, or build it with batch_first=True"
            )


def has_batch_second(model: nn.Module) -> bool:
    """Is there a module with ``batch_first=False`` in it?"""
    # not by getattr: a module may answer to every name
    return any(
        vars(module).get("batch_first", getattr(type(module), "batch_first", True)) is False
        for _, module in all_modules(model)
    )


def for_each(choices: Sequence[str], given: Any, option: str) -> dict[str, Any]:
    """An option that came as one value for all places, or as {place: value}; None: for no place."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        return dict.fromkeys(choices, given)
    for name in given:
        if name not in choices:
            near = difflib.get_close_matches(name, choices, n=3) or list(choices[:5])
            raise ValueError(f"{option} names {name!r}, which is no choice of this ManifoldMixup; near: {near}")
    return dict(given)
