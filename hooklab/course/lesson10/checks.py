"""The exercises of lesson 10: hooks on the graph's nodes, on several gradients, and on what the graph saves."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.nn import functional as F

from hooklab.course.exercises.exercise import Pairs, exercise
from hooklab.course.exercises.faults import NotYet, PlannedError, PlannedInterrupt
from hooklab.course.exercises.frames import first_words, kind_of, whose
from hooklab.course.exercises.records import Claim
from hooklab.course.exercises.scenes import (
    expect_handle,
    is_handle,
    leaf,
    linear,
    reaches_caller,
    returns,
    whole_numbers,
    words_of,
)
from hooklab.course.exercises.trial import Trial
from hooklab.course.exercises.values import same, tensor_text
from hooklab.course.lesson10.memory import Meter

# --- 10.1: each graph as (leaf tensors, what makes the loss of them)


def two_roots(first: Tensor, second: Tensor) -> Tensor:
    return torch.where(first > 0, first.sqrt(), 0.0).sum() + torch.where(second > 0, second.sqrt(), 0.0).sum()


def a_part_in_place(x: Tensor) -> Tensor:
    y = x * 1
    y[:1].sqrt_()
    return torch.where(x > 0, y, 0.0).sum()


GRAPHS: dict[str, tuple[list[list[float]], Callable[..., Tensor]]] = {
    "a loss with where and log": ([[0, 4]], lambda x: torch.where(x > 0, x.log(), 0.0).sum()),
    "a loss in which an infinity comes first": ([[1, 3]], lambda x: (x * 0).sqrt().sum()),
    "a loss with the NaN in the gradient of a second input": (
        [[float("inf"), 2], [1, 1]],
        lambda a, b: torch.where(torch.tensor([False, True]), a * b, 0.0).sum(),
    ),
    "a loss with the NaN on its second way": (
        [[1, 2], [0, 4]],
        lambda x, y: x.exp().sum() + torch.where(y > 0, y.log(), 0.0).sum(),
    ),
    "a loss with two square roots, the first of which makes a NaN": ([[0, 4], [1, 4]], two_roots),
    "a loss with two square roots, the second of which makes a NaN": ([[1, 4], [0, 4]], two_roots),
    "a loss with infinite gradients, but no NaN": ([[0, 1]], lambda x: x.sqrt().sum()),
    "a loss with gradients of infinity and minus infinity": (
        [[0, 0]],
        lambda x: (x.sqrt() * torch.tensor([1.0, -1.0])).sum(),
    ),
    "a loss in which a part is changed in place": ([[0, 4]], a_part_in_place),
    "a healthy loss": ([[1, 2]], lambda x: ((x + 1).log() * x.exp() + x).sum()),
}


@exercise(
    "10.1",
    "Who made the first NaN?",
    worlds=tuple(GRAPHS),
    verified="the first node with a NaN is named, in the order in which they run, and no hook is left",
)
def who_made_the_first_nan(trial: Trial, world: str) -> Pairs:
    values, make = GRAPHS[world]
    leaves = [leaf(*numbers) for numbers in values]
    ends = [get_gradient_edge(one).node for one in leaves]  # kept, so that hooks on them stay
    loss = make(*leaves)
    name = trial.call(loss, may_change=True)
    gradients = [one.grad for one in leaves]
    why = "no-backward" if gradients == [None] * len(leaves) else why_other_gradients(make, leaves)
    yield f"the gradients of the leaf tensors, for {world}", gradients, why
    yield "the number of your hooks that run in a later backward pass", len(hooks_that_run(leaves)), "hooks-stay"
    yield f"the name, for {world}", name, "node-itself" if isinstance(name, torch.autograd.graph.Node) else None
    if world == "a healthy loss":
        for error in (PlannedError, PlannedInterrupt):
            x, what = leaf(1.0, 2.0), f"{words_of(error)} in the backward pass"
            ends.append(get_gradient_edge(x).node)
            y = x * 2
            handle = y.register_hook(partial(fail, error))
            yield reaches_caller(trial, partial(trial.answer, y.sum()), what)
            handle.remove()
            left = len(hooks_that_run([x]))
            yield f"the number of your hooks that are left after {what}", left, "no-finally"


def fail(error: type[BaseException], grad: Tensor) -> None:
    raise error


def why_other_gradients(make: Callable[..., Tensor], leaves: Sequence[Tensor]) -> str:
    fresh = [one.detach().requires_grad_() for one in leaves]
    make(*fresh).backward()
    pairs = [(one.grad, new.grad) for one, new in zip(leaves, fresh, strict=True)]
    twice = all(
        one is not None and new is not None and torch.allclose(one, 2 * new, equal_nan=True) for one, new in pairs
    )
    return "sent-twice" if twice else "changes-the-gradients"


def hooks_that_run(leaves: Sequence[Tensor]) -> list[str]:
    """Return the learner's functions that run in a backward pass to these leaves: only hooks on their nodes can."""
    ran: list[str] = []
    with noting_functions(ran):
        for one in leaves:
            (one * 1).sum().backward()
    return ran


@contextmanager
def noting_functions(ran: list[str]) -> Iterator[None]:
    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and whose(frame.f_code.co_filename) == "learner" and not frame_is_inside(frame):
            ran.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


def frame_is_inside(frame: FrameType) -> bool:
    """Whether a learner's function was called by another function of the learner's."""
    return frame.f_back is not None and whose(frame.f_back.f_code.co_filename) == "learner"


# --- 10.2


class Function:
    """A function with weights of its own: two linear layers and more between them. It notes how each run goes."""

    def __init__(self, seed: int, kind: str) -> None:
        self.first, self.second, self.kind = linear(4, 4, seed), linear(4, 4, seed + 1), kind
        self.seen: list[tuple[bool, bool, bool]] = []  # recorded? does x require grad? hooks on what is saved?

    def __call__(self, x: Tensor) -> Tensor:
        saving = torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
        self.seen.append((torch.is_grad_enabled(), x.requires_grad, saving))
        hidden = self.first(x).div(8).tanh().sin().cos()
        if self.kind == "a function that uses x twice":
            hidden = hidden * x + x * x
        result: Tensor = self.second(hidden)
        return result.div(8).exp() if self.kind == "a function that ends in exp" else result

    @property
    def parameters(self) -> list[Tensor]:
        return [*self.first.parameters(), *self.second.parameters()]


def one_use(kind: str, asks: bool, trial: Trial) -> Pairs:
    function, x = Function(0, kind), whole_numbers(0, 4, 4).requires_grad_(asks)
    of = kind if asks else f"{kind}, whose x has requires_grad=False"
    with Meter() as meter:
        y = trial.call(function, x)
        yield returns(y, Tensor, "a tensor")
        yield f"the result of {of}", y
        why = "detached" if function.seen and function.seen[0][0] else "not-recorded"
        yield "does the result have a graph?", Claim(y.requires_grad, "yes", "no"), why
        yield f"how often {of} ran before the backward pass", len(function.seen), "runs-at-once"
        if meter.alive > y.nbytes + x.nbytes:
            gc.collect()  # what only a cycle of references holds isn't kept for the backward pass
        kept = max(0, meter.alive - y.nbytes - x.nbytes)  # a copy of x would be no crime
        yield "bytes of inner values that are kept until the backward pass", kept, "keeps-values"
        yield from sent_back(trial, function, y.sum())
    runs = len(function.seen)
    yield f"how often {of} ran, with the backward pass", runs, "runs-for-each" if runs > 2 else "not-run-again"
    grads = [one.grad for one in (x, *function.parameters)]
    yield f"the gradients of {of}, of x and its parameters", grads, why_other_gradients_of(grads[1:], asks, x)
    expected = y.nbytes + sum(one.nbytes for one in grads if one is not None)
    if meter.alive > expected + x.nbytes:
        gc.collect()  # what only a cycle of references kept is forgotten
    left = meter.alive - expected
    forgotten = Claim(left <= x.nbytes, "yes", f"{left} bytes left")
    yield "is the second run forgotten after the backward pass?", forgotten, "values-stay"


def why_other_gradients_of(grads: Sequence[Tensor | None], asks: bool, x: Tensor) -> str | None:
    return "cut-off" if any(one is None for one in grads) or (asks and x.grad is None) else None


def sent_back(trial: Trial, function: Function, loss: Tensor) -> Pairs:
    """A pair about whether the backward pass ends, with the reason that the second run gives away."""
    try:
        trial.run(partial(torch.autograd.backward, loss))
    except NotYet as fault:
        why = why_stopped(function.seen, fault)
        if why is None:
            raise
        got = f"{kind_of(fault.__cause__)}: {first_words(fault.__cause__)}" if fault.__cause__ else "an exception"
        yield "does the backward pass run to its end?", Claim(False, "it does", got), why
        raise
    yield "does the backward pass run to its end?", Claim(True, "it does", "")


def why_stopped(runs: Sequence[tuple[bool, bool, bool]], fault: NotYet) -> str | None:
    error = fault.__cause__
    if "unpack_hook expected to be a Tensor" in str(error):
        return "backward-of-its-own" if ".backward(" in fault.missing else "unpack-returns-nothing"
    if not isinstance(error, LookupError) and "invalid gradient" not in str(error):
        return None
    if len(runs) == 1:
        return "not-run-again"
    (_, asked, _), (recorded, asks, saving) = runs[0], runs[-1]
    if not recorded:
        return "recording-off"
    if not saving:
        return "nothing-collected"
    return "other-requires-grad" if asked != asks else "numbers-do-not-fit"


def in_a_row(trial: Trial) -> Pairs:
    """Two functions in sequence, one of them used twice: nothing may be shared."""
    one, two = Function(7, "two layers"), Function(9, "a function that uses x twice")
    x = whole_numbers(3, 2, 4).requires_grad_()
    hidden = trial.run(trial.answer, one, x)
    loss = trial.run(trial.answer, two, hidden / 4).sum() + trial.run(trial.answer, one, hidden / 64).sum()
    yield from sent_back(trial, one, loss)
    yield "the gradients of three calls in a row", [p.grad for p in (x, *one.parameters, *two.parameters)]


def after_a_part(trial: Trial) -> Pairs:
    w, before, x = (whole_numbers(seed, 3).div(2).requires_grad_() for seed in (1, 2, 3))
    for one, inputs in ((before, [w]), (x, [x])):
        y = trial.call(lambda x: w.exp() + x.exp(), one)
        trial.run(partial(y.sum().backward, inputs=inputs))
    why = "one-store" if same(x.grad, before.detach().exp()) else None
    yield "x.grad, when an earlier backward pass used only some of the saved values", x.grad, why
    x.grad = None
    y = trial.call(lambda x: w.exp() + x.exp(), x)
    trial.run(partial(y.sum().backward, inputs=[x], retain_graph=True))
    trial.run(y.sum().backward)
    yield "x.grad, when a pass for x alone is followed by a second one for all", x.grad


def a_module(trial: Trial) -> Pairs:
    model, x = nn.Sequential(linear(4, 4, 3), nn.Tanh(), linear(4, 2, 4)).double(), whole_numbers(4, 2, 4).double()
    modes: list[bool] = []
    with model.register_forward_hook(lambda module, args, output: modes.append(module.training)):
        y = trial.call(model, x)
        yield "is the module that your function is given called?", Claim(bool(modes), "yes", "no"), "forward-called"
        for which in ("a backward pass in float64", "a second backward pass through the same graph"):
            trial.run(partial(y.sum().backward, retain_graph=True))
            yield f"the gradients after {which}", [one.grad for one in model.parameters()]
        yield "is the module in training mode in each run?", [all(modes[:1]), all(modes)], "other-mode"


def without_gradients(trial: Trial) -> Pairs:
    with torch.no_grad():
        y = trial.call(Function(5, "two layers"), whole_numbers(5, 2, 4))
    yield "the result under torch.no_grad()", y
    yield "does the result under torch.no_grad() have a graph?", isinstance(y, Tensor) and y.requires_grad
    yield hooks_stay_on(trial, "when your function has returned")
    raising = partial(trial.answer, raises, whole_numbers(6, 2, 4))
    yield reaches_caller(trial, raising, "an exception in the function")
    yield hooks_stay_on(trial, "when the function raises")


def raises(x: Tensor) -> Tensor:
    raise PlannedError


def hooks_stay_on(trial: Trial, when: str) -> tuple[str, Claim, str]:
    stay = any("the hooks on saved tensors" in note for note in trial.notes)
    return f"are your hooks on saved tensors off {when}?", Claim(not stay, "yes", "no"), "stay-on"


KINDS = ("two layers", "a function that uses x twice", "a function that ends in exp")


a_checkpoint_from_two_functions = exercise(
    "10.2",
    "Checkpointing from two functions",
    worlds=(
        *(partial(one_use, kind, asks) for kind in KINDS for asks in (True, False)),
        *(in_a_row, after_a_part, a_module, without_gradients),
    ),
    verified="nothing is kept but the input, the function runs once more in the backward, and all gradients are right",
)(lambda trial, world: world(trial))


# --- 10.3


@exercise(
    "10.3",
    "Fix it: a step inside the backward",
    worlds=((0.5, list, torch.float32), (0.25, iter, torch.float64), (0.125, tuple, torch.float32)),
    verified="each parameter has taken its own step when backward() ends, its gradient is gone, and handles end it",
)
def a_step_inside_the_backward(trial: Trial, world: tuple[float, Callable[..., Any], torch.dtype]) -> Pairs:
    lr, make, dtype = world
    given = [leaf(*values, dtype=dtype) for values in ((1.0, 2.0), (-3.0,), (5.0,), (0.5, 4.0))]
    a, b, frozen, d = given
    frozen.requires_grad_(False)
    other = leaf(1.0, 1.0, dtype=dtype)
    handles = trial.call(make(given), lr, may_hook=True)
    yield "~are there tensor hooks on the parameters", [bool(one._backward_hooks) for one in given]
    yield "what your function returns", returned(handles), why_other_handles(handles, make)
    others = trial.call([other], 8.0, may_hook=True)
    for which in ("a backward pass", "a second backward pass"):
        loss = (a * a).sum() + (b * a).sum() + (d * frozen).sum() + (a * d).sum()  # a is used three times
        before = [one.detach().clone() for one in given]
        trial.run(loss.backward)
        moved = [not same(one, old) for one, old in zip(given, before, strict=True)]
        yield f"the parameters after {which}", [one.detach() for one in given], why_not_moved(moved)
        grads = [one.grad for one in given]
        zeros = all(one is None or not one.any() for one in grads)
        yield f"their `.grad` after {which}", grads, "zeros-are-not-none" if zeros else "gradient-stays"
    for handle in [*handles, *others]:
        trial.run(handle.remove)
    before = [one.detach().clone() for one in given]
    trial.run((a * d).sum().backward)
    still = all(same(one, old) for one, old in zip(given, before, strict=True))
    yield "do the parameters stay after remove() of all handles?", Claim(still, "they do", "they move"), "another-hook"


def why_not_moved(moved: list[bool]) -> str | None:
    if moved == [False, False, False, True]:
        return "late-binding"
    return None if any(moved) else "nothing-moves"


def returned(handles: Any) -> str:
    if not isinstance(handles, list | tuple):
        return f"a {kind_of(handles)}"
    kind = "handle" if all(map(is_handle, handles)) else "other object"
    return f"a list of {len(handles)} {kind}{'' if len(handles) == 1 else 's'}"


def why_other_handles(handles: Any, make: Callable[..., Any]) -> str | None:
    if handles is None:
        return "forgotten-return"
    return "used-up" if make is iter and returned(handles) == "a list of 0 handles" else None


# --- 10.4


@exercise(
    "10.4",
    "The norm of all gradients",
    worlds=((torch.float32, 1.0), (torch.float64, -1e100)),
    verified="one norm per backward pass, of this pass's gradients, from the parameters that it reaches",
)
def the_norm_of_all_gradients(trial: Trial, world: tuple[torch.dtype, float]) -> Pairs:
    dtype, factor = world
    a, c = leaf(1.0, 2.0, dtype=dtype), leaf(2.0, dtype=dtype)
    b = torch.tensor([[3.0], [-1.0]], dtype=dtype, requires_grad=True)
    norms: list[Any] = []
    handle = trial.call([a, b, c], norms, may_hook=True, may_change=True)
    expect_handle(handle, "register_multi_grad_hook")
    seen: list[tuple[str, int, list[Any]]] = []
    weights = torch.tensor([3.0, 4.0], dtype=dtype)
    for what, taking_part, loss in (
        ("a backward pass through all", 3, (weights * a).sum() + 12 * c.sum() + 0 * b.sum()),
        ("a second one, without zero_grad()", 3, (a * c).sum() + (b * b).sum() + (c * b).sum()),
        ("one in which c takes no part", 2, (6 * a + 8 * b.flatten()).sum()),
        ("one in which a takes no part", 2, (-5 * b).sum() + (c * c).sum()),
        ("one in which only a takes part, twice", 1, (a * a + 7 * a).sum()),
    ):
        before = len(norms)
        trial.run((factor * loss).sum().backward)
        seen.append((what, taking_part, norms[before:]))
    yield "~all norms", list(norms)
    for what, taking_part, added in seen:
        yield f"how many numbers {what} appends to `norms`", len(added), why_not_one(len(added), taking_part)
        yield f"what {what} appends", added[0], "no-number" if isinstance(added[0], Tensor) else None
    other, others_norms = leaf(1.0, 1.0, dtype=dtype), list[Any]()
    others = trial.call([other], others_norms, may_hook=True, may_change=True)
    trial.run((weights * other).sum().backward)
    yield "the norms of a second call, with another parameter and another list", others_norms, "first-call"
    others.remove()
    trial.run(handle.remove)
    trial.run((a * c).sum().backward)
    yield "how many norms there are after handle.remove() and one more pass", len(norms), "another-handle"
    trial.expect_none_left()


def why_not_one(count: int, taking_part: int) -> str | None:
    if count == 0:
        return "nothing-appended" if taking_part == 3 else "waits-for-all"
    return "one-for-each" if count == taking_part else None


# --- 10.5


@exercise(
    "10.5",
    "Eight bits",
    worlds=(
        (-1.0, 3.0, torch.float32, (1, 1000)),
        (0.0, 100.0, torch.float64, (1000, 1)),
        (1e-3, 2e-3, torch.float64, (1000,)),
        (-50.0, -49.0, torch.float64, (10, 100)),
    ),
    verified="a byte a number, gradients within half a step, integers and masks exact, nothing is NaN",
)
def eight_bits(trial: Trial, world: tuple[float, float, torch.dtype, tuple[int, ...]]) -> Pairs:
    low, high, dtype, shape = world
    manager = trial.call()
    usable = "a context manager" if hasattr(manager, "__enter__") else f"a {kind_of(manager)}"
    yield "what your function returns", usable, why_no_manager(manager)
    x = torch.linspace(-1, 1, 1000, dtype=dtype).reshape(shape).requires_grad_()
    with Meter() as meter:
        y = trial.run(in_block, manager, lambda: (2 * x).sin().cos())  # sin saves 2 x, cos saves sin's result
    size = max(1, round((meter.alive - y.nbytes) / 2000))  # what numpy or a file keeps isn't counted
    name = str(dtype).removeprefix("torch.")
    yield f"bytes for each saved number of a {name} tensor", size, why_large(size, x.itemsize)
    w = torch.ones(3, 1, dtype=dtype, requires_grad=True)
    trial.run(trial.run(in_block, trial.call(), lambda: torch.eye(4, 3, dtype=dtype) @ w).sum().backward)
    places = torch.tensor([[0.503, 0.0, 0.101, 0.25], [0.703, 1.0, 0.33, 0.902]], dtype=dtype)
    values, step = low + (high - low) * places, (high - low) / 255
    for way, other in (("", torch.ones_like(values)), (", and so is another tensor", 10 + 10 * places.flip(0))):
        factor = other.clone().requires_grad_()
        kept = values.clone().requires_grad_(way != "")
        product = trial.run(in_block, trial.call(), lambda factor=factor, kept=kept: kept * factor)
        trial.run(in_block, trial.call(), lambda: torch.arange(8.0).requires_grad_() ** 2)  # a later block, too
        trial.run(product.sum().backward)
        yield "~what comes back", factor.grad
        what = f"a tensor with {name} numbers from {low:g} to {high:g} is saved{way}"
        back = comes_back(factor.grad, values, step)
        yield f"{what}: does it come back, up to half a step?", back, "one-range" if way else None
        if kept.requires_grad:
            yield "does the other tensor come back?", comes_back(kept.grad, other, 10 / 255), "one-range"
    for number in (0.0, 7.0, -2.5):
        equal, factor = torch.full((3,), number, dtype=dtype), torch.ones(3, dtype=dtype, requires_grad=True)
        trial.run(trial.run(in_block, trial.call(), lambda equal=equal, factor=factor: equal * factor).sum().backward)
        yield f"what comes back of a tensor of nothing but {number:g}", factor.grad, "equal-numbers"
    yield from whole_numbers_and_masks(trial)
    yield hooks_stay_on(trial, "when the block has ended")


def in_block(manager: Any, function: Callable[[], Tensor]) -> Tensor:
    with manager:
        return function()


def why_no_manager(manager: Any) -> str | None:
    return "nothing-returned" if manager is None else "functions-returned" if isinstance(manager, tuple) else None


def why_large(size: int, itemsize: int) -> str | None:
    if size in (itemsize, itemsize + 1):
        return "no-bytes"
    return "eight-bytes" if size == 8 else None


def comes_back(got: Any, values: Tensor, step: float) -> Claim:
    off = (got - values).abs().max().item() if isinstance(got, Tensor) and got.shape == values.shape else float("nan")
    near = off <= 0.51 * step + 1e-6 * values.abs().max().item()  # nor is a NaN near
    return Claim(near, f"{tensor_text(values)}, within {step / 2:.3g}", f"{tensor_text(got)}, off by {off:.3g}")


def whole_numbers_and_masks(trial: Trial) -> Pairs:
    labels, rows, mask = torch.tensor([2, 0, 4]), torch.tensor([3, 700, 1999]), torch.tensor([True, False, True])
    scores, table, chosen = torch.zeros(3, 5).requires_grad_(), torch.ones(2000, 1).requires_grad_(), leaf(1, 2, 3)

    def loss() -> Tensor:
        picked = F.nll_loss(scores, labels, reduction="sum") + F.embedding(rows, table).sum()
        return picked + torch.where(mask, chosen, 2 * chosen).sum()

    trial.run(trial.run(in_block, trial.call(), loss).backward)
    yield "the gradient of the scores, for class labels that are saved", scores.grad, "whole-numbers-packed"
    where = None if table.grad is None else table.grad.flatten().nonzero().flatten()
    yield "the rows of an embedding that get a gradient", where, "whole-numbers-packed"
    yield "the gradient where a mask is saved", chosen.grad, "whole-numbers-packed"
