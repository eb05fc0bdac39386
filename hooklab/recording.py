"""What the hooks of :func:`hooklab.capture` write down: a :class:`Record` of one pass, read back as :class:`Call`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from hooklab.selecting import first_few
from hooklab.trees import describe, map_tensors, nbytes, objects, passed_over, tensors

if TYPE_CHECKING:
    from hooklab.capturing import CaptureSession

# A tensor, and the version it had; None for one that has no versions.
Kept = tuple[Tensor, int | None]
# Of one tensor its version, of a structure all its tensors with theirs.
Versions = int | None | list[Kept]


class Gradient:
    """A tensor hook that keeps the gradient it is given, and changes nothing.

    ``keep`` says how; None is short for keeping the very tensor.
    """

    __slots__ = ("_keep", "is_view", "kept")

    def __init__(self, keep: Callable[[Tensor], Kept] | None, is_view: bool) -> None:
        self._keep = keep
        self.is_view = is_view
        self.kept: Kept | None = None

    def __call__(self, grad: Tensor | None) -> None:
        if grad is None:  # autograd passes None for an output that the loss does not use
            return
        if self._keep is not None:
            self.kept = self._keep(grad)
        else:
            # create_graph=True gives gradients a graph of their own
            self.kept = (grad.detach() if grad.requires_grad else grad), grad._version


# the output of a module, with a Gradient in place of each tensor that needs one
Gradients = tuple[Any]


def each(gradients: Gradients) -> list[Gradient]:
    return list(tensors(gradients, _is_gradient))


def _is_gradient(thing: Any) -> bool:
    return type(thing) is Gradient


class Record:
    """What the hooks wrote down in one pass, in the order of writing.

    ``events`` holds ``(module, (args, kwargs), versions)`` when a module starts, if inputs are recorded, and
    ``(module, output, versions, gradients)`` when it is done; plain tuples, since a hook has no time for more.
    ``gradients`` is None if they are not recorded, else a tuple of one: the output with a :class:`Gradient` in place of
    each tensor that needs one, and None of any other.
    ``recomputed`` has, by a module's id, what a reentrant checkpoint got when it ran the module again, in words, and
    the gradients of that: the first run of those has no graph, so the gradient is that of the second.
    """

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.recomputed: dict[int, tuple[str, Gradients]] = {}

    def runs_without_graph(self, module: int) -> int:
        return sum(
            id(event[0]) == module
            and event[3] is not None
            and not each(event[3])
            and any(True for _ in tensors(event[1]))
            for event in self.ends()
        )

    def ends(self) -> list[tuple[Any, ...]]:
        return [event for event in self.events if len(event) == 4]

    def places(self) -> dict[int, list[int]]:
        """Which of the events are whose, by the module's id."""
        places: defaultdict[int, list[int]] = defaultdict(list)
        for place, event in enumerate(self.events):
            places[id(event[0])].append(place)
        return places

    def uses(self, places: list[int]) -> list[Use]:
        """The uses of the module whose events these are."""
        uses: list[Use] = []
        running: list[Use] = []
        for place in places:
            if len(self.events[place]) == 3:
                uses.append([place, None])
                running.append(uses[-1])
            elif running:
                running.pop()[1] = place
            else:
                uses.append([None, place])
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

    def __init__(self, name: str, index: int, uses: list[Use], module: int, record: Record, session: CaptureSession):
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
        gradients = self._gradients()
        reached = [gradient.kept for gradient in each(gradients) if gradient.kept is not None]
        if not reached:
            raise RuntimeError(self._why_no_gradient())
        _refuse_changed(None, reached, "the gradient of", self)
        return map_tensors(lambda gradient: gradient.kept and gradient.kept[0], gradients[0], _is_gradient)

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

    def _gradients(self) -> Gradients:
        gradients: Gradients | None = self._end[3] if self._end is not None else None
        if gradients is None:
            raise RuntimeError(
                f"gradients were not recorded: open the block with capture(..., grads=True) to read {self}."
            )
        again = self._record.recomputed.get(self._module)
        if self._end is None or each(gradients) or not again:
            return gradients
        if self._record.runs_without_graph(self._module) > 1:
            raise RuntimeError(
                f"{self} ran inside a reentrant checkpoint, as did other uses of the same module; which gradient is "
                "whose cannot be told. Use checkpoint(..., use_reentrant=False)."
            )
        first, second = describe(self._end[1]), again[0]
        if first != second:
            raise RuntimeError(
                f"{self} ran again during the backward, as in a reentrant checkpoint or a reversible layer, and put "
                f"out {second} in place of {first}: which gradient belongs to which part of its output cannot be told."
            )
        return again[1]

    def _why_no_gradient(self) -> str:
        if not each(self._gradients()):
            output = self._end[1] if self._end is not None else None
            inside = first_few(dict.fromkeys([*objects(output), *(owner for owner, _ in passed_over(output))]))
            return (
                f"the output of {self} did not require a gradient: it was computed under no_grad or inference_mode, "
                "from frozen parameters, or holds no floating-point tensor"
                + (f" but inside of {inside}, which is kept as it is and not looked into." if inside else ".")
            )
        view = ""
        if any(gradient.is_view for gradient in each(self._gradients())):
            view = (
                "its output is a view (up to torch 2.14, nn.Linear gives one for inputs of more than two dimensions) "
                "that was changed in place afterwards, as by ReLU(inplace=True), and autograd calls no hook of that. "
                "Use a module that does not work in place"
            )
            if self._end is not None and _is_changed(*self._end[1:3]):
                return f"no gradient reached {self}: {view}."
            options = self._session.options
            view = f"; or {view}" if options.clone or options.device is not None else ""  # else it was not changed
        if any(gradient.kept for *_, gradients in self._record.ends() for gradient in each(gradients)):
            return (
                f"backward ran, but no gradient reached {self}: what it was called on does not depend on its output, "
                f"or backward raised before it got there{view}."
            )
        if self._session.is_open:
            return f"no gradient of {self} yet: call backward inside the block, then read."
        return (
            f"no gradient of {self}: backward did not run inside the block (if it ran, then after the block had "
            "ended). Call backward inside the with block."
        )


def _is_changed(tree: Any, versions: Versions) -> bool:
    pairs = versions if isinstance(versions, list) else [(tree, versions)]
    return any(version is not None and tensor._version != version for tensor, version in pairs)


def _refuse_changed(tree: Any, versions: Versions, what: str, call: Call) -> None:
    if _is_changed(tree, versions):
        raise RuntimeError(
            f"{what} {call} was changed in place after it was captured, by an in-place operation such as relu_() or "
            "+=, so its value is gone. Open the block with capture(..., clone=True) to keep a copy."
        )
