"""Reading what was captured: :class:`Seen`, and one :class:`Pass` of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from hooklab._shared.stale import what_changed
from hooklab.recording import Call, Inputs, Record
from hooklab.selecting import MissingName, near_names, without_compile_prefix

if TYPE_CHECKING:
    from hooklab.capturing import Capture, CaptureSession


class Pass(Mapping[str, Any]):
    """One pass of the model: a mapping from the names of the modules that ran to their outputs, in that order.

    A module that was used several times has a name for each use: ``"act#0"``, ``"act#1"``. So
    ``{name: value.clone() for name, value in seen.items()}`` has every output of the pass. The plain name, ``"act"``,
    is then not ``in seen``, but ``calls`` takes it. A shared module is listed by one of its names, and read by any.

    Reading raises

    - :class:`hooklab.selecting.MissingName` (a ``LookupError``) for a name that was not selected, or did not run;
    - ``RuntimeError`` if the name means several uses (read them one by one), or the value was changed in place.

    It belongs to its model and its block, and cannot be pickled or copied; its values can.
    """

    def __init__(self, capture: Capture, session: CaptureSession, record: Record | None = None) -> None:
        self._capture = capture
        self._session = session
        self._own_record = record

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
        known = self._capture.known_as
        if not isinstance(name, str):
            raise MissingName(f"values are read by name, not by {type(name).__name__}. {near_names('', known)}")
        plain = without_compile_prefix(name)
        if plain in known:
            return self._calls_of(known[plain])
        plain, _, index = plain.rpartition("#")
        if plain not in known or not index.isdecimal():
            raise MissingName(f"{name!r} was not selected for capture. {near_names(name, known)}")
        return self._calls_of(known[plain], slice(int(index), int(index) + 1))

    @property
    def silent(self) -> list[str]:
        """The selected modules that did not run: never called, or called by ``.forward(x)``, which runs no hooks."""
        ran = self._record.modules()
        return [name for name, module in self._capture.modules.items() if id(module) not in ran]

    def __contains__(self, name: object) -> bool:
        try:
            return len(self.calls(name)) == 1  # type: ignore[arg-type]  # raises for what is not a name
        except MissingName:
            return False

    def __iter__(self) -> Iterator[str]:
        return (call.key for call in self._all_calls())

    def __len__(self) -> int:
        return len(self._all_calls())

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled, since it belongs to its model. Take the values: "
            "{name: value.clone() for name, value in seen.items()}."
        )

    def __repr__(self) -> str:
        rows = [("name", "output", "bytes")]
        rows += [(name, output, f"{size:,}") for name, output, size in (call.row() for call in self._all_calls())]
        ran, modules = len(self._record.modules()), self._capture.modules
        lines = [f"{ran} of {len(modules)} selected modules of {type(self._capture.model).__name__} ran"]
        wide, wider = (max(len(row[column]) for row in rows) for column in (0, 1))
        lines += [f"  {name:<{wide}}  {output:<{wider}}  {size:>9}" for name, output, size in rows if len(rows) > 1]
        if self.silent:
            lines.append(f"  silent: {', '.join(map(repr, self.silent))}")
        if called := self._session.what_was_called():
            lines.append(f"  {called}")
        return "\n".join(lines)

    @property
    def _record(self) -> Record:
        return self._own_record or self._session.record

    def _calls_of(self, name: str, which: slice = slice(None)) -> list[Call]:
        uses = self._record.uses(id(self._capture.hooked[name]))
        return [Call(name, index, uses, self._record, self._session) for index in range(len(uses))[which]]

    def _all_calls(self) -> list[Call]:
        ran = self._record.modules()
        names = [name for name, module in self._capture.hooked.items() if id(module) in ran]
        calls = [call for name in names for call in self._calls_of(name)]
        return sorted(calls, key=lambda call: call.place)

    def _only_call(self, name: str) -> Call:
        calls = self.calls(name)
        if not calls:
            raise MissingName(self._why_silent(name))
        if len(calls) > 1:
            raise RuntimeError(
                f"{name!r} was used {len(calls)} times in this pass, so it has no one value. "
                f"Read seen['{name}#0'] for the first, or seen.calls({name!r})[i].output (or .input, .grad) for use i. "
                f"{self._session.what_was_called()}".rstrip()
            )
        return calls[0]

    def _why_silent(self, name: str) -> str:
        if elsewhere := self._session.calls_elsewhere:
            return (
                f"{name!r} did not run in the thread that opened the block, and only that one is recorded "
                f"({elsewhere} calls came from other threads). Open the block in the thread that runs the model."
            )
        if not self._record.events and not self._session.has_run:
            return f"{name!r} has no value: no selected module ran yet. Call the model inside the block, then read."
        if changed := what_changed(self._capture.steps, "capture"):
            return f"{name!r} did not run in this pass. {changed}"
        return (
            f"{name!r} did not run in this pass. Nothing called it, or it was called by .forward(...), has a "
            "__call__ of its own, or its weights were used directly: none of these run hooks. "
            f"{self._session.what_was_called()}".rstrip()
        )


class Seen(Pass):
    """What a ``with capture(...)`` block gives: the latest pass, and with ``keep="all"`` all of them in ``passes``."""

    @property
    def passes(self) -> list[Pass]:
        """Each pass, the first one first, to be read like this object. Without ``keep="all"`` only the latest."""
        records = [*self._session.passes, *([self._session.record] if self._session.record.events else [])]
        return [Pass(self._capture, self._session, record) for record in records]
