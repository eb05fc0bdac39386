"""What the hooks of :func:`hooklab.capture` write down: a :class:`Record` of one pass, read back as :class:`Call`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from hooklab._shared.trees import describe, map_tensors, nbytes, objects, passed_over, tensors
from hooklab.selecting import first_few

if TYPE_CHECKING:
    from hooklab.capturing import CaptureSession

# A tensor, and the version it had; None for a tensor that has no versions.
Versioned = tuple[Tensor, int | None]
# The version of a single tensor; of a structure, all its tensors with theirs.
Versions = int | None | list[Versioned]
# where one use of a module starts and ends in the events, None if that was not recorded
Use = list[int | None]


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


class Record:
    """What the hooks wrote down in one pass, in order.

    ``events`` holds ``(module, (args, kwargs), versions)`` when a module starts, if inputs are recorded, and
    ``(module, output, versions, gradients)`` when it is done: plain tuples, since a hook has no time for more.
    ``gradients`` is None if they are not recorded, else the output with a :class:`Gradient` for each tensor that
    requires grad and None for each other tensor, in a tuple of one.
    """

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self._uses: dict[int, tuple[int, list[Use]]] = {}  # with the number of events at that time

    def modules(self) -> set[int]:
        """The modules that ran, by their ids."""
        return {id(event[0]) for event in self.events}

    def uses(self, module: int) -> list[Use]:
        """The uses of a module, by its id."""
        read, uses = self._uses.get(module, (0, []))
        if read == len(self.events):
            return uses
        uses, running = [], []
        for place in [place for place, event in enumerate(self.events) if id(event[0]) == module]:
            if len(self.events[place]) == 3:
                uses.append([place, None])
                running.append(uses[-1])
            elif running:
                running.pop()[1] = place
            else:
                uses.append([None, place])
        self._uses[module] = len(self.events), uses
        return uses

    def gradients(self) -> list[Gradient]:
        """Those of all outputs."""
        return [one for event in self.events if len(event) == 4 for one in tensors(event[3], _is_gradient)]


class Inputs(NamedTuple):
    """The arguments of one call: ``args, kwargs = seen.input("layer1")``."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Call:
    """One use of a module: ``call.output``, ``call.input``, ``call.grad``.

    ``name`` is the module's name and ``index`` is 0 for its first use in the pass. Reading a value that was not
    recorded raises a ``RuntimeError`` with the reason.
    """

    def __init__(self, name: str, index: int, uses: list[Use], record: Record, session: CaptureSession) -> None:
        self.name = name
        self.index = index
        self.is_only = len(uses) == 1
        self.key = name if self.is_only else f"{name}#{index}"
        start, end = uses[index]
        self.place = min(place for place in uses[index] if place is not None)
        self._start = None if start is None else record.events[start]
        self._end = None if end is None else record.events[end]
        self._record = record
        self._session = session

    @property
    def output(self) -> Any:
        """The module's output, in its own structure."""
        _, tree, versions, _ = self._finished("output")
        self._require_unchanged(tree, versions, "the output")
        return tree

    @property
    def input(self) -> Inputs:
        """The arguments of the call, as they were before the module ran."""
        if self._start is None:
            raise RuntimeError(
                f"inputs were not recorded: open the block with capture(..., inputs=True) to read {self}."
            )
        _, tree, versions = self._start
        self._require_unchanged(tree, versions, "an input")
        return Inputs(*tree)

    @property
    def grad(self) -> Any:
        """The gradient of the output, in the output's structure; None for a part that got none."""
        gradients = self._finished("gradient")[3]
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
        if self._end is None:
            return name, "did not finish", 0
        _, tree, versions, _ = self._end
        note = " (changed in place)" if _is_changed(tree, versions) else ""
        return name, describe(tree) + note, nbytes(tree)

    def __str__(self) -> str:
        return repr(self.name) if self.is_only else f"call {self.index} of {self.name!r}"

    def __repr__(self) -> str:
        return f"<call {self.index} of {self.name!r}: {self.row()[1]}>"

    def _finished(self, what: str) -> tuple[Any, ...]:
        if self._end is None:
            raise RuntimeError(f"{self} has no {what}: its forward did not get to its end.")
        return self._end

    def _require_unchanged(self, tree: Any, versions: Versions, what: str) -> None:
        if _is_changed(tree, versions):
            raise RuntimeError(
                f"{what} of {self} was changed in place after it was captured, by an in-place operation such as "
                "relu_() or +=, so its value is gone. Open the block with capture(..., clone=True) to keep a copy."
            )

    def _why_no_gradient(self, gradients: list[Gradient]) -> str:
        _, output, versions, _ = self._finished("gradient")
        if not gradients:
            inside = first_few(dict.fromkeys([*objects(output), *(owner for owner, _ in passed_over(output))]))
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
        if any(gradient.value for gradient in self._record.gradients()):
            also = f"; or {in_place}" if is_view and self._session.clones else ""
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
