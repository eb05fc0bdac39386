"""What the hooks of :func:`hooklab.capture` write down: a :class:`Record` of one pass, read back as :class:`Call`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from hooklab.trees import describe, map_tensors, nbytes, tensors

if TYPE_CHECKING:
    from hooklab.sessions import Session

# A tensor, and the version it had; None for one that has no versions.
Kept = tuple[Tensor, int | None]
# Of one tensor its version, of a structure those of all its tensors, in order.
Versions = int | None | list[int | None]


class Gradient:
    """A tensor hook that keeps the gradient it is given, and changes nothing.

    ``keep`` says how; None is short for keeping the very tensor.
    """

    __slots__ = ("_keep", "kept")

    def __init__(self, keep: Callable[[Tensor], Kept] | None) -> None:
        self._keep = keep
        self.kept: Kept | None = None

    def __call__(self, grad: Tensor | None) -> None:
        if grad is None:  # autograd passes None for an output that the loss does not use
            return
        if self._keep is not None:
            self.kept = self._keep(grad)
        else:
            # create_graph=True gives gradients a graph of their own
            self.kept = (grad.detach() if grad.requires_grad else grad), grad._version


class Record:
    """What the hooks wrote down in one pass, in the order of writing.

    ``events`` holds ``(module, (args, kwargs), versions)`` when a module starts, if inputs are recorded, and
    ``(module, output, versions, gradients)`` when it is done; plain tuples, since a hook has no time for more.
    ``recomputed`` holds the gradients of modules that a reentrant checkpoint ran again: the first run of those has
    no graph, so the gradient is that of the second.
    """

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.recomputed: dict[int, list[list[Gradient | None]]] = {}

    def runs_without_graph(self, module: int) -> int:
        return sum(id(event[0]) == module and bool(event[3]) and not any(event[3]) for event in self.ends())

    def ends(self) -> list[tuple[Any, ...]]:
        return [event for event in self.events if len(event) == 4]

    def uses(self) -> dict[int, list[Use]]:
        """The uses of each module that ran, by the module's id."""
        uses: defaultdict[int, list[Use]] = defaultdict(list)
        running: defaultdict[int, list[Use]] = defaultdict(list)
        for place, event in enumerate(self.events):
            module = id(event[0])
            if len(event) == 3:
                use: Use = [place, None]
                uses[module].append(use)
                running[module].append(use)
            elif running.get(module):
                running[module].pop()[1] = place
            else:
                uses[module].append([None, place])
        return uses


# where one use of a module starts and ends in the events, None if that was not recorded
Use = list[int | None]


class Inputs(NamedTuple):
    """The arguments of one call: ``args, kwargs = seen.input("layer1")``."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Call:
    """One use of a module: ``call.output``, ``call.input``, ``call.grad``.

    ``name`` is the module's, ``index`` is 0 for its first use in the pass, and ``uses`` how often the pass used it.
    Reading what is not there raises a ``RuntimeError`` that says why.
    """

    def __init__(self, name: str, index: int, uses: list[Use], module: int, record: Record, session: Session):
        self.name = name
        self.index = index
        self.uses = len(uses)
        start, end = uses[index]
        self.key = f"{name}#{index}" if self.uses > 1 else name
        self.place = min(place for place in uses[index] if place is not None)
        self._start = None if start is None else record.events[start]
        self._end = None if end is None else record.events[end]
        self._module = module
        self._record = record
        self._session = session

    @property
    def output(self) -> Any:
        """What the module put out, in its own structure."""
        if self._end is None:
            raise RuntimeError(f"{self} has no output: its forward did not get to its end.")
        _, tree, versions, _ = self._end
        _refuse_changed(tree, versions, "the output of", self)
        return tree

    @property
    def input(self) -> Inputs:
        """The arguments of the call, as they were before the module ran."""
        if self._start is None:
            raise RuntimeError(
                f"inputs were not recorded: open the block with capture(..., inputs=True) to read {self}."
            )
        _, tree, versions = self._start
        _refuse_changed(tree, versions, "an input of", self)
        return Inputs(*tree)

    @property
    def grad(self) -> Any:
        """The gradient of the output, in the output's structure; None for a part that got none."""
        if self._end is None:
            raise RuntimeError(f"{self} has no gradient: its forward did not get to its end.")
        values = [gradient.kept if gradient is not None else None for gradient in self._gradients()]
        reached = [value for value in values if value is not None]
        if not reached:
            raise RuntimeError(self._why_no_gradient())
        _refuse_changed([grad for grad, _ in reached], [version for _, version in reached], "the gradient of", self)
        one_by_one = iter(values)

        def gradient_of(_: Tensor) -> Tensor | None:
            value = next(one_by_one)
            return None if value is None else value[0]

        return map_tensors(gradient_of, self._end[1])

    def row(self) -> tuple[str, str, int]:
        """Name, output and bytes, for a table."""
        name = self.key or repr(self.key)
        if self._end is None:
            return name, "did not finish", 0
        _, tree, versions, _ = self._end
        note = " (changed in place)" if _is_changed(tree, versions) else ""
        return name, describe(tree) + note, nbytes(tree)

    def __str__(self) -> str:
        return f"call {self.index} of {self.name!r}" if self.uses > 1 else repr(self.name)

    def __repr__(self) -> str:
        return f"<call {self.index} of {self.name!r}: {self.row()[1]}>"

    def _gradients(self) -> list[Gradient | None]:
        gradients: list[Gradient | None] | None = self._end[3] if self._end is not None else None
        if gradients is None:
            raise RuntimeError(
                f"gradients were not recorded: open the block with capture(..., grads=True) to read {self}."
            )
        again = self._record.recomputed.get(self._module)
        if any(gradients) or not again:
            return gradients
        if self._record.runs_without_graph(self._module) > 1:
            raise RuntimeError(
                f"{self} ran inside a reentrant checkpoint, as did other uses of the same module; which gradient is "
                "whose cannot be told. Use checkpoint(..., use_reentrant=False)."
            )
        return again[-1]

    def _why_no_gradient(self) -> str:
        if not any(self._gradients()):
            return (
                f"the output of {self} did not require a gradient: it was computed under no_grad or inference_mode, "
                "from frozen parameters, or holds no floating-point tensor."
            )
        if any(
            gradient is not None and gradient.kept for *_, gradients in self._record.ends() for gradient in gradients
        ):
            return (
                f"backward ran, but no gradient reached {self}: what it was called on does not depend on its output, "
                "or backward raised before it got there."
            )
        if self._session.is_open:
            return f"no gradient of {self} yet: call backward inside the block, then read."
        return (
            f"no gradient of {self}: backward did not run inside the block (if it ran, then after the block had "
            "ended). Call backward inside the with block."
        )


def _is_changed(tree: Any, versions: Versions) -> bool:
    pairs = zip(tensors(tree), versions, strict=True) if isinstance(versions, list) else [(tree, versions)]
    return any(version is not None and tensor._version != version for tensor, version in pairs)


def _refuse_changed(tree: Any, versions: Versions, what: str, call: Call) -> None:
    if _is_changed(tree, versions):
        raise RuntimeError(
            f"{what} {call} was changed in place after it was captured, by an in-place operation such as relu_() or "
            "+=, so its value is gone. Open the block with capture(..., clone=True) to keep a copy."
        )
