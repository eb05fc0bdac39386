"""Watching a training from inside: :func:`monitor` records statistics of every step, and never a tensor.

The hooks are in ``watching.py``, the statistics in ``tallies.py``; ``health.py`` shows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import Optimizer

from hooklab._shared.sessions import Block
from hooklab.health import Health
from hooklab.selecting import (
    What,
    all_modules,
    first_few,
    has_forward,
    named_modules,
    select_for_hooks,
    uncompiled,
    unwrapped,
)
from hooklab.tallies import range_of
from hooklab.watching import Held, MonitorSession


def monitor(
    model: nn.Module,
    *what: What,
    grads: bool = False,
    updates: Optimizer | Iterable[Optimizer] | None = None,
    every: int = 1,
    on_nonfinite: str = "warn",
) -> Monitor:
    """Record statistics of modules, step by step, while a ``with`` block is open; optionally of gradients and updates.

    Args:
        model: the module whose calls are the steps, counted from 0; see :func:`hooklab.capture`.
        *what: which modules, as in :func:`hooklab.select`. Without any: all layers, and the modules around them that
            have parameters of their own, such as a vision transformer with its position embedding.
        grads: also the gradients of the outputs, when ``backward`` runs inside the block.
        updates: the optimizer, or several: also how much each optimizer step changes the parameters. A parameter counts
            to the innermost of the watched modules that hold it.
        every: record the steps 0, ``every``, 2 * ``every``, …. In the other steps the hooks do almost nothing.
        on_nonfinite: at the first inf or nan of each kind, ``"warn"`` with the module's name, ``"raise"`` a
            ``FloatingPointError`` on the spot, or ``"ignore"``. ``health.first_nonfinite`` keeps it in all three cases.

    Returns:
        A context manager. Each ``with`` gives a :class:`hooklab.health.Health`: ``health.rows`` is plain data,
        ``health.plot()`` a figure, ``health.dead_units`` the units that never fired.

    Raises:
        MissingName: (a ``LookupError``) if one of ``what`` matches nothing.
        LookupError: if ``updates`` has none of the parameters, for example because it was made for another model.
        TypeError, ValueError: for arguments of a wrong kind.
        FloatingPointError: in the block, if ``on_nonfinite="raise"``. Nothing else raises into the training: what
            cannot be read (on the meta device, under ``vmap``, …) is left out, and ``print(health)`` lists the modules.

    Each step and module has one :class:`hooklab.tallies.Row` of each kind, for all calls of the module in that step and
    all tensors of its output together. Integers have no statistics. Of a tensor that is distributed over processes (a
    DTensor, as under ``fully_shard``), each process reads its own part.

    - *Cost*: a few reductions for each tensor. On a GPU the numbers stay there until the step ends, so that the
      training does not wait at each module; with ``on_nonfinite="raise"`` it must. For updates, a copy of the
      parameters is held during ``optimizer.step()``.
    - *Gradients* are those that flow: under a ``GradScaler``, scaled. *Updates* are what the parameters really moved
      by; a step that a ``GradScaler`` skips has none. Of several passes before one ``optimizer.step()``, each is a step
      and the update belongs to the last recorded one. Validation passes inside the block are steps too.
    - *Checkpoints, threads, torch.compile*: as in :func:`hooklab.capture`.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
        >>> sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> with monitor(model, grads=True, updates=sgd) as health:
        ...     for _ in range(3):
        ...         sgd.zero_grad()
        ...         model(torch.ones(8, 2)).mean().backward()
        ...         sgd.step()
        >>> len(health.rows), health.rows[0].module, health.rows[0].kind, health.rows[0].values
        (24, '0', 'output', 32)
        >>> health.series("output", "1", "nonfinite")
        ([0, 1, 2], [0.0, 0.0, 0.0])
    """
    if on_nonfinite not in ("warn", "raise", "ignore"):
        raise ValueError(f"on_nonfinite is 'warn', 'raise' or 'ignore', not {on_nonfinite!r}.")
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise ValueError(f"every is a whole number of steps, 1 or more, not {every!r}.")
    selected = select_for_hooks(model, *what)
    if not what:
        selected = _with_those_that_have_parameters(model, selected)
    return Monitor(model, selected, grads, _optimizers(updates), every, on_nonfinite)


@dataclass(eq=False, repr=False)
class Monitor(Block):
    """What :func:`monitor` returns, with its options; see there."""

    tool = "monitor"
    grads: bool
    optimizers: list[Optimizer]
    every: int
    on_nonfinite: str

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ranges = {name: range_of(unwrapped(module)) for name, module in self.hooked.items()}
        watched = {id(module) for module in self.hooked.values()}
        held: list[Held] = [
            (module, name, parameter)
            for module, part in self.hooked.items()
            for name, parameter in _parameters(part, watched)
        ]
        self.updated = [(one, _those_of(one, held)) for one in self.optimizers]
        if held and self.updated and not any(parameters for _, parameters in self.updated):
            raise LookupError(
                f"updates: no parameter of {first_few(list(self.hooked))} is in the optimizer. Was it made for "
                "another model, or before a layer was replaced?"
            )

    def __enter__(self) -> Health:
        session = MonitorSession(self)
        health = Health(session)
        self._enter(session)
        return health


def _with_those_that_have_parameters(model: nn.Module, layers: dict[str, nn.Module]) -> dict[str, nn.Module]:
    """The layers, and the modules around them with parameters that are in no layer."""
    inside = {id(part) for layer in layers.values() for _, part in all_modules(layer)}
    watched = {id(layer) for layer in layers.values()}
    named = list(named_modules(model))
    found = dict(layers)
    for name, module in reversed(named):  # the inner modules before the outer ones
        if id(module) not in inside and has_forward(module) and next(_parameters(module, watched), None):
            found[name] = module
            watched.add(id(module))
    return {name: found[name] for name, _ in named if name in found}


def _parameters(module: nn.Module, watched: set[int]) -> Iterator[tuple[str, nn.Parameter]]:
    """The module's parameters, except for those inside another watched module. By identity; a shared one once."""
    seen: set[int] = set()

    def walk(part: nn.Module, path: str) -> Iterator[tuple[str, nn.Parameter]]:
        seen.add(id(part))
        part = unwrapped(part)
        for name, parameter in part._parameters.items():
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                yield path + name, parameter
        for name, child in part._modules.items():
            inner = None if child is None else uncompiled(child)
            if inner is not None and id(inner) not in seen and id(inner) not in watched:
                yield from walk(inner, f"{path}{name}.")

    return walk(module, "")


def _those_of(optimizer: Optimizer, held: list[Held]) -> list[Held]:
    known = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    return [one for one in held if id(one[2]) in known]


def _optimizers(updates: Any) -> list[Optimizer]:
    if updates is None or isinstance(updates, Optimizer):
        return [] if updates is None else [updates]
    found = list(updates) if isinstance(updates, Iterable) else [updates]
    for one in found:
        if not isinstance(one, Optimizer):
            raise TypeError(f"updates is an optimizer of torch.optim, or several; not {type(one).__name__}.")
    return found
