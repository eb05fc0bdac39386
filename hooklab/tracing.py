"""Who runs when: :func:`timeline` records the forward and backward events of modules, in order and with depth."""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor, nn

from hooklab._shared.sessions import Block, PassSession, hook_gradient
from hooklab._shared.torch_private import backward_number
from hooklab._shared.trees import tensors
from hooklab.selecting import What, select_for_hooks

FORWARD_PRE, FORWARD, BACKWARD_PRE, BACKWARD = "forward-pre", "forward", "backward-pre", "backward"


def timeline(model: nn.Module, *what: What) -> Tracer:
    """Record when each module starts and ends, forward and backward, while a ``with`` block is open.

    Args:
        model: the module to watch.
        *what: which modules, as in :func:`hooklab.select`; without any, all modules, containers included.

    Returns:
        A context manager, which gives a :class:`Timeline`: a sequence of :class:`Event` whose ``str`` is a table. It
        grows until the block ends: meant for a few passes. It may be entered any number of times.

    Raises:
        MissingName: (a ``LookupError``) if one of ``what`` matches nothing.

    Kinds of event: ``forward-pre`` and ``forward``, when the module starts and has its output; ``backward-pre``, when
    the (first) gradient of its output arrives; ``backward``, when the gradients of its inputs are complete and all
    events inside the module are over. The last two are read by tensor hooks, so they come for any structure of tensors
    and for in-place modules. Where a model branches, a full backward hook may run earlier than ``backward`` here: it
    does not wait for the other users of the input.

    Forward events in the backward pass are those of a checkpoint, marked ``again``. Only calls from the thread that
    opened the block are recorded.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        >>> with timeline(model) as events:
        ...     model(torch.ones(1, 2)).sum().backward()
        >>> print(events)
         0  forward-pre   (Sequential)
         1  forward-pre     0
         2  forward         0
         3  forward-pre     1
         4  forward         1
         5  forward       (Sequential)
         6  backward-pre  (Sequential)
         7  backward-pre    1
         8  backward        1
         9  backward-pre    0
        10  backward        0
        11  backward      (Sequential)
        >>> events[1]
        Event(order=1, kind='forward-pre', name='0', depth=1, call=0, again=False)
    """
    return Tracer(model, select_for_hooks(model, *(what or (lambda name, module: True,))))


@dataclass(frozen=True)
class Event:
    """One event: ``kind`` of the module ``name``, as number ``order`` of all.

    ``depth`` counts the selected modules around it, ``call`` the earlier calls of the same module in the block.
    ``again`` marks what a checkpoint computes a second time.
    """

    order: int
    kind: str
    name: str
    depth: int
    call: int
    again: bool = False


class Timeline(Sequence[Event]):
    """The events recorded so far, in order; ``print`` shows them as a table."""

    def __init__(self, session: _TraceSession) -> None:
        self._session = session

    def __iter__(self) -> Iterator[Event]:
        marks = enumerate(_with_backward_ends(self._session.marks))
        return (Event(order, kind, call.name, call.depth, call.index, call.again) for order, (kind, call, _) in marks)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __str__(self) -> str:
        model = f"({type(self._session.root).__name__})"
        return "\n".join(
            f"{event.order:>2}  {event.kind:<12}  {'  ' * event.depth}{event.name or model}"
            f"{'  (again)' if event.again else ''}"
            for event in self
        )

    def __repr__(self) -> str:
        return f"<timeline of {type(self._session.root).__name__}: {len(self)} events>"


class Tracer(Block):
    """What :func:`timeline` returns; see there."""

    tool = "timeline"

    def __enter__(self) -> Timeline:
        session = _TraceSession(self)
        events = Timeline(session)
        self._enter(session)
        return events


@dataclass(eq=False)
class _Call:
    """One call of a module. ``handling`` is the exception that was being handled when it began."""

    module: nn.Module
    name: str
    index: int
    parent: _Call | None
    depth: int
    again: bool
    handling: BaseException | None


class _Mark(NamedTuple):
    """An event of one of the four kinds; ``backward`` is the number of the backward pass."""

    kind: str
    call: _Call
    backward: int


class _Arrival:
    """A tensor hook, one per tensor however many modules return or take it.

    It notes them in the reverse order of the forward pass: if a container and its last child return the same tensor,
    the child returned it first, and in the backward pass the container comes first.
    """

    def __init__(self, tensor: Tensor, marks: list[_Mark]) -> None:
        self.tensor = weakref.ref(tensor)
        self.version = -1  # once the tensor has the hook: one that refuses hooks may refuse to say
        self.parts: list[tuple[str, _Call]] = []
        self._marks = marks

    def belongs_to(self, tensor: Tensor) -> bool:
        return self.tensor() is tensor and self.version == tensor._version

    def __call__(self, grad: Tensor | None) -> None:
        if grad is not None:
            self._marks.extend(_Mark(kind, call, backward_number()) for kind, call in reversed(self.parts))


class _TraceSession(PassSession):
    def __init__(self, block: Tracer) -> None:
        super().__init__(block.model)
        self.modules = block.hooked
        self.marks: list[_Mark] = []
        self.calls: Counter[int] = Counter()
        self.depths: dict[int, int] = {}
        self.running: list[_Call] = []
        self.arrivals: dict[int, _Arrival] = {}

    def attach_inside(self) -> None:
        for name, module in self.modules.items():
            self.before(module, partial(self.start, name), with_kwargs=True)
        for module in self.modules.values():  # always_call: a call that raises must leave the list of running calls
            self.after(module, self.end, always_call=True)

    def close(self) -> None:
        super().close()
        self.arrivals.clear()

    def new_pass(self) -> None:
        self.running.clear()  # an interrupt ends a forward without any hook
        self.arrivals.clear()

    def start(self, name: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        if self.is_foreign():
            return
        if not self.in_pass:
            self.note_outside_call()
        again, key = backward_number() != -1, id(module)
        parent = self.running[-1] if self.running else None
        depth = self.depths.get(key, 0) if again else (parent.depth + 1 if parent else 0)
        call = _Call(module, name, self.calls[key], parent, depth, again, sys.exc_info()[1])
        self.depths[key] = depth
        self.calls[key] += 1
        self.running.append(call)
        self.marks.append(_Mark(FORWARD_PRE, call, -1))
        self.expect((args, kwargs), BACKWARD, call)

    def end(self, module: nn.Module, args: Any, output: Any) -> None:
        while self.running and not self.is_foreign():
            call = self.running.pop()
            if call.module is module:
                raised = sys.exc_info()[1] is not call.handling
                call.handling = None
                if not raised:
                    self.marks.append(_Mark(FORWARD, call, -1))
                    self.expect(output, BACKWARD_PRE, call)
                return

    def expect(self, tree: Any, kind: str, call: _Call) -> None:
        for tensor in tensors(tree):
            arrival = self.arrivals.get(id(tensor))
            if arrival is None or not arrival.belongs_to(tensor):
                arrival = _Arrival(tensor, self.marks)
                if (handle := hook_gradient(tensor, arrival)) is None:
                    continue
                arrival.version = tensor._version
                self.arrivals[id(tensor)] = arrival
                self.handles.append(handle)
            arrival.parts.append((kind, call))


def _with_backward_ends(raw: list[_Mark]) -> list[_Mark]:
    """The events in order; for each call and backward pass one ``backward-pre`` and one ``backward``.

    Of several gradients of an output the first counts, of several gradients of the inputs the last. A call without an
    input that requires grad ends with the last event inside it.
    """
    begins: dict[tuple[_Call, int], int] = {}
    ends: dict[tuple[_Call, int], int] = {}
    for place, (kind, call, backward) in enumerate(raw):
        if kind == BACKWARD_PRE:
            begins.setdefault((call, backward), place)
        around: _Call | None = call
        while kind in (BACKWARD_PRE, BACKWARD) and around is not None:
            if (around, backward) in begins:
                ends[around, backward] = place
            around = around.parent
    placed = [((place, 0, 0), mark) for place, mark in enumerate(raw) if mark.kind in (FORWARD_PRE, FORWARD)]
    placed += [((place, 0, 0), raw[place]) for place in begins.values()]
    # where several calls end at one place, the inner one ends first
    placed += [((place, 1, -call.depth), _Mark(BACKWARD, call, backward)) for (call, backward), place in ends.items()]
    return [mark for _, mark in sorted(placed, key=lambda item: item[0])]
