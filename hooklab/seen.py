"""What the hooks of :func:`hooklab.capture` write down, a record of each pass, and how it is read: as :class:`Seen`,
:class:`Pass` and :class:`Call`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from torch import Tensor

from hooklab._shared.stale import what_changed
from hooklab._shared.trees import describe, map_tensors, nbytes, passed_over, tensors
from hooklab.selecting import MissingName, first_few, near_names, plain_name

if TYPE_CHECKING:
    from hooklab.capturing import CaptureSession

# A tensor, and the version it had; None for a tensor that has no versions.
Versioned = tuple[Tensor, int | None]
# The version of a single tensor; of a structure, all its tensors with theirs.
Versions = int | None | list[Versioned]
# One use of a module, in plain lists and tuples since a hook has no time for more: the module, then the arguments and
# their versions, then the output, its versions and its gradients. Each of the last two is None if it was not recorded.
# The gradients are None if they are not recorded, else the output in a tuple of one, with a Gradient for each tensor
# that requires grad and None for each other tensor.
Use = Sequence[Any]
Record = list[Use]  # those of one pass, in order


class Gradient:
    """A tensor hook that keeps the gradient, or a copy of it, and does not change it."""

    __slots__ = ("clones", "is_view", "value")

    def __init__(self, clones: bool) -> None:
        self.clones = clones
        self.is_view = False  # the output whose gradient it is
        self.value: Versioned | None = None

    def __call__(self, grad: Tensor | None) -> None:
        if grad is None:  # autograd passes None for an output that the loss does not use
            return
        try:
            if grad.requires_grad:  # create_graph=True gives gradients a graph of their own
                grad = grad.detach()
            if self.clones:
                grad = grad.clone()
            self.value = grad, grad._version
        except Exception:  # a subclass that refuses
            self.value = grad, None


def _is_gradient(thing: Any) -> bool:
    return type(thing) is Gradient


class Inputs(NamedTuple):
    """The arguments of one call: ``args, kwargs = seen.input("layer1")``."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(eq=False, repr=False)
class Call:
    """One use of a module: ``call.output``, ``call.input``, ``call.grad``.

    ``name`` is the module's name and ``index`` is 0 for its first use in the pass. Reading a value that was not
    recorded raises a ``RuntimeError`` with the reason.
    """

    name: str
    index: int
    is_only: bool
    start: tuple[Any, ...] | None
    end: tuple[Any, ...] | None
    _record: Record
    _session: CaptureSession

    @property
    def key(self) -> str:
        """The name by which the pass lists this use."""
        return self.name if self.is_only else f"{self.name}#{self.index}"

    @property
    def output(self) -> Any:
        """The module's output, in its own structure."""
        tree, versions, _ = self._finished("output")
        self._require_unchanged(tree, versions, "the output")
        return tree

    @property
    def input(self) -> Inputs:
        """The arguments of the call, as they were before the module ran."""
        if self.start is None:
            raise RuntimeError(
                f"inputs were not recorded: open the block with capture(..., inputs=True) to read {self}."
            )
        tree, versions = self.start
        self._require_unchanged(tree, versions, "an input")
        return Inputs(*tree)

    @property
    def grad(self) -> Any:
        """The gradient of the output, in the output's structure; None for a part that got none."""
        gradients = self._finished("gradient")[2]
        if gradients is None:
            raise RuntimeError(
                f"gradients were not recorded: open the block with capture(..., grads=True) to read {self}."
            )
        found = list(tensors(gradients, _is_gradient))
        values = [gradient.value for gradient in found if gradient.value is not None]
        if not values:
            raise RuntimeError(self._why_no_gradient(found))
        self._require_unchanged(None, values, "the gradient")
        return map_tensors(lambda gradient: gradient.value and gradient.value[0], gradients[0], _is_gradient)

    def row(self) -> tuple[str, str, int]:
        """Name, output and bytes, for a table."""
        name = self.key or repr(self.key)
        if self.end is None:
            return name, "did not finish", 0
        tree, versions, _ = self.end
        note = " (changed in place)" if _is_changed(tree, versions) else ""
        return name, describe(tree) + note, nbytes(tree)

    def __str__(self) -> str:
        return repr(self.name) if self.is_only else f"call {self.index} of {self.name!r}"

    def __repr__(self) -> str:
        return f"<call {self.index} of {self.name!r}: {self.row()[1]}>"

    def _finished(self, what: str) -> tuple[Any, ...]:
        if self.end is None:
            raise RuntimeError(f"{self} has no {what}: its forward did not get to its end.")
        return self.end

    def _require_unchanged(self, tree: Any, versions: Versions, what: str) -> None:
        if _is_changed(tree, versions):
            raise RuntimeError(
                f"{what} of {self} was changed in place after it was captured, by an in-place operation such as "
                "relu_() or +=, so its value is gone. Open the block with capture(..., clone=True) to keep a copy."
            )

    def _why_no_gradient(self, gradients: list[Gradient]) -> str:
        output, versions, _ = self._finished("gradient")
        if not gradients:
            inside = first_few(dict.fromkeys(owner for owner, _ in passed_over(output)))
            return (
                f"the output of {self} did not require a gradient: it was computed under no_grad or inference_mode, "
                "in a checkpoint with use_reentrant=True, from frozen parameters, or holds no floating-point tensor"
                + (f" but inside of {inside}, which is kept as it is and not looked into." if inside else ".")
            )
        in_place = (
            "its output is a view (up to torch 2.14, nn.Linear gives one for inputs of more than two dimensions) that "
            "was changed in place afterwards, as by ReLU(inplace=True), and autograd calls no hook of such a view. "
            "Use a module that does not work in place"
        )
        is_view = any(gradient.is_view for gradient in gradients)
        if is_view and _is_changed(output, versions):
            return f"no gradient reached {self}: {in_place}."
        if any(gradient.value for _, _, end in self._record for gradient in tensors(end and end[2], _is_gradient)):
            also = f"; or {in_place}" if is_view and self._session.block.clone else ""
            return (
                f"backward ran, but no gradient reached {self}: what it was called on does not depend on its output, "
                f"or backward raised before it got there{also}."
            )
        if self._session.is_open:
            return f"no gradient of {self} yet: call backward inside the block, then read."
        return (
            f"no gradient of {self}: backward did not run inside the block, or ran after it had ended. Call backward "
            "inside the with block."
        )


def _is_changed(tree: Any, versions: Versions) -> bool:
    pairs = versions if isinstance(versions, list) else [(tree, versions)]
    return any(version is not None and tensor._version != version for tensor, version in pairs)


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

    def __init__(self, session: CaptureSession, record: Record | None = None) -> None:
        self._session = session
        self._block = session.block
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
        known = self._block.known_as
        if not isinstance(name, str):
            raise MissingName(f"values are read by name, not by {type(name).__name__}. {near_names('', known)}")
        plain = plain_name(self._block.given, name)
        if plain in known:
            return self._calls_of(known[plain], self._record)
        plain, _, index = plain.rpartition("#")
        if plain not in known or not index.isdecimal():
            raise MissingName(f"{name!r} was not selected for capture. {near_names(name, known)}")
        return self._calls_of(known[plain], self._record, slice(int(index), int(index) + 1))

    @property
    def silent(self) -> list[str]:
        """The selected modules that did not run: never called, or called by ``.forward(x)``, which runs no hooks."""
        ran = self._ran()
        return [name for name, module in self._block.modules.items() if id(module) not in ran]

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
        ran, modules = len(self._ran()), self._block.modules
        lines = [f"{ran} of {len(modules)} selected modules of {type(self._block.model).__name__} ran"]
        wide, wider = (max(len(row[column]) for row in rows) for column in (0, 1))
        lines += [f"  {name:<{wide}}  {output:<{wider}}  {size:>9}" for name, output, size in rows if len(rows) > 1]
        if self.silent:
            lines.append(f"  silent: {', '.join(map(repr, self.silent))}")
        if called := self._session.what_was_called():
            lines.append(f"  {called}")
        return "\n".join(lines)

    @property
    def _record(self) -> Record:
        return self._session.record if self._own_record is None else self._own_record

    def _ran(self) -> set[int]:
        return {id(module) for module, _, _ in self._record}

    def _calls_of(self, name: str, record: Record, which: slice = slice(None)) -> list[Call]:
        module = self._block.hooked[name]
        uses = [use for use in record if use[0] is module]
        is_only = len(uses) == 1
        return [
            Call(name, index, is_only, start, end, record, self._session)
            for index, (_, start, end) in [*enumerate(uses)][which]
        ]

    def _all_calls(self) -> list[Call]:
        record = [*self._record]  # another thread may read while it grows
        calls = {id(module): iter(self._calls_of(name, record)) for name, module in self._block.hooked.items()}
        return [next(calls[id(module)]) for module, _, _ in record]

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
        if not self._record and not self._session.has_run:
            return f"{name!r} has no value: no selected module ran yet. Call the model inside the block, then read."
        if changed := what_changed(self._block.steps, "capture"):
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
        records = [*self._session.passes, *([self._session.record] if self._session.record else [])]
        return [Pass(self._session, record) for record in records]
