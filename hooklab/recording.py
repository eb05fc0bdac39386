"""What the hooks of :func:`hooklab.capture` write down: a :class:`Record` of one pass, read back as :class:`Call`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn

from hooklab.trees import describe, map_tensors, tensors

if TYPE_CHECKING:
    from hooklab.seen import Pass

# a tensor, and the version it had; None if it is a copy that nobody else can change
Kept = tuple[Tensor, int | None]


class Gradient:
    """A tensor hook that keeps the gradient it is given, and changes nothing."""

    __slots__ = ("_keep", "kept")

    def __init__(self, keep: Callable[[Tensor], Kept]) -> None:
        self._keep = keep
        self.kept: Kept | None = None

    def __call__(self, grad: Tensor | None) -> None:
        if grad is not None:  # autograd passes None for an output that the loss does not use
            self.kept = self._keep(grad)


class Record:
    """What the hooks wrote down in one pass, in the order of writing.

    ``events`` holds ``(module, (args, kwargs), versions)`` when a module starts, if inputs are recorded, and
    ``(module, output, versions, gradients)`` when it is done.
    """

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        # gradients of modules that ran without a graph and were run again, with one, by a reentrant checkpoint
        self.recomputed: dict[nn.Module, list[list[Gradient | None]]] = {}

    def lacks_graph(self, module: nn.Module) -> bool:
        uses = [event for event in self.events if event[0] is module and len(event) == 4]
        return any(gradients is not None and not any(gradients) for *_, gradients in uses)


class Inputs(NamedTuple):
    """The arguments of one call: ``args, kwargs = seen.input("layer1")``."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Call:
    """One use of a module: ``call.output``, ``call.input``, ``call.grad``; all raise if there is nothing to read."""

    def __init__(self, name: str, index: int, owner: Pass) -> None:
        self.name = name
        self.index = index  # 0 for the first use of the module in the pass
        self._pass = owner
        self._start: tuple[Any, ...] | None = None
        self._end: tuple[Any, ...] | None = None

    @property
    def output(self) -> Any:
        """What the module put out, in its own structure."""
        if self._end is None:
            raise RuntimeError(f"{self} has no output: its forward did not get to its end.")
        _, tree, versions, _ = self._end
        _refuse_changed(tree, versions, f"the output of {self}")
        return tree

    @property
    def input(self) -> Inputs:
        """The arguments of the call, as they were before the module ran."""
        if self._start is None:
            raise RuntimeError(
                f"inputs were not recorded: open the block with capture(..., inputs=True) to read {self}."
            )
        _, tree, versions = self._start
        _refuse_changed(tree, versions, f"an input of {self}")
        return Inputs(*tree)

    @property
    def grad(self) -> Any:
        """The gradient of the output, in the output's structure; None where a part of it got none."""
        gradients = self._pass._gradients_of(self)
        values = [gradient.kept if gradient is not None else None for gradient in gradients]
        if not any(value is not None for value in values):
            raise RuntimeError(self._pass._why_no_gradient(self, gradients))
        reached = [value for value in values if value is not None]
        _refuse_changed([value[0] for value in reached], [value[1] for value in reached], f"the gradient of {self}")
        one_by_one = iter(values)

        def gradient_of(_: Tensor) -> Tensor | None:
            value = next(one_by_one)
            return None if value is None else value[0]

        assert self._end is not None
        return map_tensors(gradient_of, self._end[1])

    @property
    def _tree(self) -> Any:
        return self._end[1] if self._end is not None else None

    @property
    def _is_changed(self) -> bool:
        return self._end is not None and _is_changed(self._tree, self._end[2])

    @property
    def _label(self) -> str:
        name = self.name or repr(self.name)
        return f"{name} #{self.index}" if self._pass._count(self.name) > 1 else name

    def __str__(self) -> str:
        return f"call {self.index} of {self.name!r}" if self._pass._count(self.name) > 1 else repr(self.name)

    def __repr__(self) -> str:
        return f"<call {self.index} of {self.name!r}: {describe(self._end[1]) if self._end else 'did not finish'}>"


def _is_changed(self) -> bool:
        return self._end is not None and _is_changed(self._tree, self._end[2])

    @property
    def _label(self) -> str:
        name = self.name or repr(self.name)
        return f"{name} #{self.index}" if self._pass._count(self.name) > 1 else name

    def __str__(self) -> str:
        return f"call {self.index} of {self.name!r}" if self._pass._count(self.name) > 1 else repr(self.name)

    def __repr__(self) -> str:
        return f"<call {self.index} of {self.name!r}: {describe(self._end[1]) if self._end else 'did not finish'}>"


class Pass(Mapping[str, Any]):
    """One pass of the model: a mapping from the names of the modules that ran to their outputs."""

    def __init__(self, options: Capture, session: _CaptureSession, record: Record) -> None:
        self._options = options
        self._session = session
        self._own_record = record
        self._cache: tuple[Record | None, int, dict[nn.Module, list[Call]]] = (None, 0, {})

    def __getitem__(self, name: str) -> Any:
        return self._only_call(name).output

    def input(self, name: str) -> Inputs:
        """The arguments of the one call: a named tuple ``(args, kwargs)``. Needs ``inputs=True``."""
        return self._only_call(name).input

    def grad(self, name: str) -> Any:
        """The gradient of the one output, in its structure. Needs ``grads=True``, and ``backward`` inside the block."""
        return self._only_call(name).grad

    def calls(self, name: str) -> list[Call]:
        """Every use of the module in this pass, in order; an empty list if it was not used."""
        return list(self._calls().get(self._module(name), []))

    @property
    def silent(self) -> list[str]:
        """The selected modules that did not run: never called, or called by ``.forward(x)``, which runs no hooks."""
        ran = self._calls()
        return [name for name, module in self._options.modules.items() if module not in ran]

    def __contains__(self, name: object) -> bool:
        module = self._options.known_as.get(without_compile_prefix(name)) if isinstance(name, str) else None
        return module in self._calls()

    def __iter__(self) -> Iterator[str]:
        return (calls[0].name for calls in self._calls().values())

    def __len__(self) -> int:
        return len(self._calls())

    def __repr__(self) -> str:
        rows = [
            (
                call._label,
                describe(call._tree) + (" (changed in place)" if call._is_changed else ""),
                nbytes(call._tree),
            )
            for calls in self._calls().values()
            for call in calls
        ]
        model = type(self._options.model).__name__
        lines = [f"{len(self)} of {len(self._options.modules)} selected modules of {model} ran"]
        if rows:
            wide = max(len("name"), *(len(name) for name, _, _ in rows))
            wider = max(len("output"), *(len(output) for _, output, _ in rows))
            lines.append(f"  {'name':<{wide}}  {'output':<{wider}}  {'bytes':>9}")
            lines += [f"  {name:<{wide}}  {output:<{wider}}  {size:>9,}" for name, output, size in rows]
        if self.silent:
            lines.append(f"  silent: {', '.join(self.silent)}")
        return "\n".join(lines)

    @property
    def _record(self) -> Record:
        return self._own_record

    def _calls(self) -> dict[nn.Module, list[Call]]:
        """The calls of each module that ran, in the order of the first calls."""
        record = self._record
        if self._cache[0] is not record or self._cache[1] != len(record.events):
            self._cache = (record, len(record.events), self._read_events(record))
        return self._cache[2]

    def _read_events(self, record: Record) -> dict[nn.Module, list[Call]]:
        names = {module: name for name, module in reversed(self._options.modules.items())}
        calls: dict[nn.Module, list[Call]] = {}
        running: dict[nn.Module, list[Call]] = {}
        for event in record.events:
            module = event[0]
            if module not in names:  # a shallow copy shares its original's hooks
                continue
            is_end = len(event) == 4
            if is_end and running.get(module):
                running[module].pop()._end = event
                continue
            call = Call(names[module], len(calls.setdefault(module, [])), self)
            calls[module].append(call)
            if is_end:
                call._end = event
            else:
                call._start = event
                running.setdefault(module, []).append(call)
        return calls

    def _module(self, name: str) -> nn.Module:
        known = self._options.known_as
        module = known.get(without_compile_prefix(name))
        if module is None:
            raise MissingName(f"{name!r} was not selected for capture. {near_names(name, known)}")
        return module

    def _count(self, name: str) -> int:
        return len(self._calls().get(self._module(name), []))

    def _only_call(self, name: str) -> Call:
        calls = self.calls(name)
        if not calls:
            raise MissingName(self._why_silent(name))
        if len(calls) > 1:
            raise RuntimeError(
                f"{name!r} was used {len(calls)} times in this pass, so it has no one value. "
                f"Read seen.calls({name!r})[i].output (or .input, .grad) for use i."
            )
        return calls[0]

    def _why_silent(self, name: str) -> str:
        if self._session.calls_elsewhere:
            return (
                f"{name!r} did not run in the thread that opened the block, and only that one is recorded "
                f"({self._session.calls_elsewhere} calls came from other threads). Open the block in the thread that "
                "runs the model."
            )
        if not self._record.events:
            return f"{name!r} has no value: no selected module ran yet. Call the model inside the block, then read."
        return (
            f"{name!r} did not run in this pass. Nothing called it, or it was called by .forward(...), or its weights "
            "were used directly: none of these run hooks."
        )

    def _gradients_of(self, call: Call) -> list[Gradient | None]:
        gradients: list[Gradient | None] | None = call._end[3] if call._end is not None else []
        if gradients is None:
            raise RuntimeError(
                f"gradients were not recorded: open the block with capture(..., grads=True) to read {call}."
            )
        module = self._module(call.name)
        again = self._record.recomputed.get(module, [])
        if any(gradients) or not again:
            return gradients
        if self._count(call.name) > 1 or len(again) > 1:
            raise RuntimeError(
                f"{call} ran inside a reentrant checkpoint together with other uses of the same module; which of the "
                "gradients is whose cannot be told. Use checkpoint(..., use_reentrant=False)."
            )
        return again[0]

    def _why_no_gradient(self, call: Call, gradients: list[Gradient | None]) -> str:
        if call._end is None:
            return f"{call} has no gradient: its forward did not get to its end."
        if not any(gradients):
            return (
                f"the output of {call} did not require a gradient: it was computed under no_grad or inference_mode, "
                "from frozen parameters, or holds no floating-point tensor."
            )
        events = [event for event in self._record.events if len(event) == 4]
        if any(gradient is not None and gradient.kept for event in events for gradient in event[3]):
            return f"backward ran, but no gradient reached {call}: what it was called on does not depend on its output."
        if self._session.is_open:
            return f"no gradient of {call} yet: call backward inside the block, then read."
        return (
            f"no gradient of {call}: backward did not run inside the block (if it ran, then after the block had "
            "ended). Call backward inside the with block."
        )


class Seen(Pass):
    """What a ``with capture(...)`` block gives: the latest pass, and with ``keep="all"`` all of them in ``passes``."""

    def __init__(self, options: Capture, session: _CaptureSession) -> None:
        super().__init__(options, session, session.record)

    @property
    def _record(self) -> Record:
        return self._session.record

    @property
    def passes(self) -> list[Pass]:
        """Each pass, the first one first, to be read like this object. Without ``keep="all"`` only the latest."""
        records = [*self._session.passes, *([self._session.record] if self._session.record.events else [])]
        return [Pass(self._options, self._session, record) for record in records]

    def clear(self) -> None:
        """Drop everything that was recorded so far."""
        self._session.clear()


def _is_changed(tree: Any, versions: list[int | None]) -> bool:
    pairs = zip(tensors(tree), versions, strict=True)
    return any(version is not None and tensor._version != version for tensor, version in pairs)


def _refuse_changed(tree: Any, versions: list[int | None], what: str) -> None:
    if _is_changed(tree, versions):
        raise RuntimeError(
            f"{what} was changed in place after it was captured, by an in-place operation such as relu_() or +=, so "
            "its value is gone. Open the block with capture(..., clone=True) to keep a copy."
        )
