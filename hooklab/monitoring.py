"""Watching a training from inside: :func:`monitor` keeps statistics of every step, and never a tensor.

    with monitor(model, grads=True, updates=optimizer) as health:
        train()
    health.plot()

How the numbers get there is in ``watching.py``, what they are in ``tallies.py``, how they are read in ``health.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn
from torch.optim import Optimizer

from hooklab._shared.sessions import Block
from hooklab.health import Health
from hooklab.selecting import What, all_modules, each_once, first_few, select_for_hooks
from hooklab.tallies import range_of
from hooklab.watching import MonitorSession


def monitor(
    model: nn.Module,
    *what: What,
    grads: bool = False,
    updates: Optimizer | Iterable[Optimizer] | None = None,
    every: int = 1,
    on_nonfinite: str = "warn",
) -> Monitor:
    """Keep statistics of modules, step by step, while a ``with`` block is open; optionally of gradients and updates.

    Args:
        model: the module whose calls are the steps, counted from 0. What counts as one is told at
            :func:`hooklab.capture`: a call of ``model``, or of the same part of it once more.
        *what: which modules, as in :func:`hooklab.select`; without any, all layers.
        grads: also the gradients of the outputs, when ``backward`` runs inside the block.
        updates: the optimizer (or several): also what its steps do to the parameters of each module.
        every: record the steps 0, ``every``, 2 * ``every``, …. Between them a hook does next to nothing.
        on_nonfinite: at the first inf or nan of each kind, ``"warn"`` by name, ``"raise"`` a ``FloatingPointError`` on
            the spot, or ``"ignore"``. What was found is in ``health.first_nonfinite`` in any case.

    Returns:
        A context manager, which gives a :class:`hooklab.health.Health` at each ``with``: ``health.rows`` is plain data,
        ``health.plot()`` a picture with steps across and modules down, ``health.to_csv(file)`` and ``health.frame()``
        hand them on. It leaves no hooks behind, however the block ends.

    Raises:
        MissingName: (a ``LookupError``) if one of ``what`` matches nothing.
        LookupError: if ``updates`` holds none of the parameters, as when it was made for another model.
        TypeError, ValueError: for arguments of a wrong kind.
        FloatingPointError: in the block, if ``on_nonfinite="raise"``.

    For each step and module there is one :class:`hooklab.tallies.Row` for each kind, whatever the size of the output:
    its mean, standard deviation and largest magnitude, and its shares of zeros, of non-finite values and (for outputs
    of Sigmoid, Tanh, Hardtanh and the like) of values within 1 % of an end of the range. All uses of a module in one
    step, and all tensors of its output, are taken together. Integers have no statistics.

    - *Cost*: a few reductions for each tensor. On a device that works ahead of Python, such as a GPU, the numbers wait
      there until the step ends and are fetched together, so that training does not wait at each module; with
      ``on_nonfinite="raise"`` it must. For updates, a copy of the parameters is held during ``optimizer.step()``.
    - *Where it began*: a module's finding says whether its inputs and parameters were still finite. Only where the
      numbers are read at once, as on the CPU.
    - *Gradients* are those that flow: under a ``GradScaler`` scaled. *Updates* are what the parameters really moved by.
      A step that a ``GradScaler`` skips has none.
    - *Gradient accumulation*: several passes before one ``optimizer.step()`` are several steps; the update is
      written to the last of them that was recorded. Passes for validation are steps as well: they are told apart only
      if the block is closed meanwhile.
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
    return Monitor(model, *what, grads=grads, updates=updates, every=every, on_nonfinite=on_nonfinite)


class Monitor(Block):
    """What :func:`monitor` returns; see there."""

    tool = "monitor"

    def __init__(
        self,
        model: nn.Module,
        *what: What,
        grads: bool = False,
        updates: Optimizer | Iterable[Optimizer] | None = None,
        every: int = 1,
        on_nonfinite: str = "warn",
    ) -> None:
        if on_nonfinite not in ("warn", "raise", "ignore"):
            raise ValueError(f"on_nonfinite is 'warn', 'raise' or 'ignore', not {on_nonfinite!r}.")
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"every is a whole number of steps, 1 or more, not {every!r}.")
        super().__init__(model, select_for_hooks(model, *what))
        self.hooked = each_once(self.modules)
        self.names = {id(module): name for name, module in self.hooked.items()}
        self.ranges = {name: range_of(module) for name, module in self.hooked.items()}
        self.grads = grads
        self.every = every
        self.on_nonfinite = on_nonfinite
        self.optimizers = _optimizers(updates)
        self.updated = [(one, self._parameters_of(one)) for one in self.optimizers]
        has_parameters = any(True for module in self.hooked.values() for _ in _parameters(module))
        if self.updated and has_parameters and not any(parameters for _, parameters in self.updated):
            raise LookupError(
                f"updates: no parameter of {first_few(list(self.hooked))} is in the optimizer. Was it made for "
                "another model, or before a layer was replaced?"
            )

    def __enter__(self) -> Health:
        session = MonitorSession(self)
        health = Health(session)
        self._enter(session)
        return health

    def _parameters_of(self, optimizer: Optimizer) -> list[tuple[str, str, nn.Parameter]]:
        """Module, own name and parameter, of all that the optimizer has."""
        known = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        named = [
            (module, name, parameter) for module, part in self.hooked.items() for name, parameter in _parameters(part)
        ]
        return [one for one in named if id(one[2]) in known]


def _parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """``module.named_parameters()``, by the modules' identity."""
    seen: set[int] = set()
    for path, part in all_modules(module):
        for name, parameter in part._parameters.items():
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                yield f"{path}.{name}" if path else name, parameter


def _optimizers(updates: Any) -> list[Optimizer]:
    if updates is None or isinstance(updates, Optimizer):
        return [] if updates is None else [updates]
    found = list(updates) if isinstance(updates, Iterable) else [updates]
    if not all(isinstance(one, Optimizer) for one in found):
        raise TypeError(f"updates is an optimizer of torch.optim, or several; not {type(found[0]).__name__}.")
    return found
