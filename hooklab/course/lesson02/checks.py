"""The exercises of lesson 2: reading, keeping and changing a gradient with tensor hooks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from hooklab.course.exercises.exercise import Pairs, exercise
from hooklab.course.exercises.faults import PlannedError, PlannedInterrupt
from hooklab.course.exercises.guards import of_the_answer
from hooklab.course.exercises.records import Claim
from hooklab.course.exercises.scenes import (
    error_comes_out,
    expect_handle,
    is_used_up,
    leaf,
    reaches_caller,
    returns,
    words_of,
)
from hooklab.course.exercises.trial import Trial
from hooklab.course.exercises.values import same, tensor_text


def noted(tensor: Tensor, losses: Sequence[Tensor]) -> list[tuple[int, int]]:
    """Have it noted when a loss is sent back: its number, and how many hooks of the answer's are on the tensor then."""
    passes: list[tuple[int, int]] = []

    def note(number: int, *_: Any) -> None:
        passes.append((number, len(of_the_answer(tensor._backward_hooks))))

    for number, loss in enumerate(losses):
        assert loss.grad_fn is not None
        loss.grad_fn.register_hook(partial(note, number))
    return passes


def gradients_listed(got: Any, first: Any, passes: Sequence[tuple[int, int]], losses: int) -> Pairs:
    """Pairs about a list with a gradient for each loss; `first` is what an earlier call has returned."""
    yield returns(got, list | tuple, "a list")
    yield "~your list", got
    yield "~the losses that were sent back", sorted({number for number, _ in passes})
    why = why_too_many(passes) if len(got) > losses else why_too_few(len(got), passes, losses)
    why = "earlier-list" if got is first else why
    yield f"the number of gradients in your list, for {losses} losses", len(got), why
    yield "your list", got


def why_too_many(passes: Sequence[tuple[int, int]]) -> str | None:
    return "hooks-pile-up" if any(hooks > 1 for _, hooks in passes) else None


def why_too_few(count: int, passes: Sequence[tuple[int, int]], losses: int) -> str | None:
    hooks = [number for _, number in passes]
    if not passes:
        return "no-backward"
    if len({number for number, _ in passes}) < losses:
        return "losses-left-out"
    if not any(hooks):
        return "never-hooked"
    if all(hooks):
        return None if count else "kept-nothing"
    return "removed-too-early" if hooks[0] and not hooks[-1] else None


def hooks_left(trial: Trial, registered: int) -> tuple[int, str]:
    """Return how many hooks the last call left behind, and the reason's label; they're no faults any more."""
    left = [fault for fault in trial.faults if fault.label == "hook-left"]
    trial.faults[:] = [fault for fault in trial.faults if fault.label != "hook-left"]
    return len(left), "one-handle" if len(left) == registered - 1 else "hook-left"


@exercise(
    "2.1",
    "One gradient for each loss",
    worlds=([1.0, 4.0, -2.0], [3.0], [0.5, 0.0, 2.0, math.inf, 1.0]),
    verified="one gradient of y for each loss, and no hook left",
)
def one_gradient_for_each_loss(trial: Trial, weights: list[float]) -> Pairs:
    w = leaf(1.0, 2.0, 3.0, dtype=torch.float64)
    first = trial.call(w, [5 * w.sum()])
    x = leaf(1.0, 2.0)
    y = x + 1  # saves nothing, so each loss can send its gradient through it
    losses = [weight * (y**2).sum() for weight in weights]
    passes = noted(y, losses)
    with mock.patch.object(torch.autograd, "backward", wraps=torch.autograd.backward) as backward:
        got = trial.call(y, losses)
    yield from gradients_listed(got, first, passes, len(losses))
    yield "the losses, in the order in which they were sent back", list(dict.fromkeys(number for number, _ in passes))
    is_y_alone = x.grad is None and backward.call_count == len(losses)  # backward(inputs=[y]) goes no further than y
    yield (
        "x.grad, where y is computed from x",
        sum(weights) * torch.tensor([4.0, 6.0]) if is_y_alone else x.grad,
        why_not_arrived(x.grad, passes, len(losses)),
    )
    yield "the list of an earlier call, looked at again after this one", first, "earlier-list"


def why_not_arrived(got: Tensor | None, passes: Sequence[tuple[int, int]], losses: int) -> str | None:
    if got is None:
        return "not-sent-to-the-leaves"
    return "changes-the-gradient" if len(passes) == losses else "sent-twice"


@exercise(
    "2.2",
    "Turn a gradient up or down",
    worlds=((3.0, torch.float64), (-0.5, torch.float16), (0.0, torch.bfloat16)),
    verified="only this tensor's gradient was scaled, and the handle removes the hook",
)
def turn_a_gradient_up_or_down(trial: Trial, world: tuple[float, torch.dtype]) -> Pairs:
    factor, dtype = world
    a, b = leaf(1.0, 2.0), leaf(3.0, -1.25)
    hidden_a, hidden_b = a * 1, b * 1
    handle = trial.call(hidden_b, factor, may_hook=True)
    hooked = Claim(bool(hidden_b._backward_hooks), "a hook", "no hook")
    yield "is there a hook on the tensor when your function has returned?", hooked, why_not_hooked(handle, hidden_b)
    trial.run(((hidden_a + hidden_b) ** 2).sum().backward)  # a sum hands one gradient to both; the later, b, is first
    yield "a.grad, where z uses a + b and only b has the hook", a.grad, "in-place"
    yield f"b.grad, of the hooked tensor, with factor {factor:g}", b.grad
    expect_handle(handle, "register_hook")
    w, other = leaf(1.0, 2.0, 3.0, dtype=dtype), leaf(1.0)
    handle = trial.call(w, factor, may_hook=True)
    trial.run(w.sum().backward)
    yield f"w.grad, of a leaf tensor, with factor {factor:g}", taken(w)
    trial.run(w.sum().backward)
    yield "w.grad in a second pass", taken(w), "removes-itself" if is_used_up(handle) else "remembers"
    others_handle = trial.call(other, 7.0, may_hook=True)
    trial.run(w.sum().backward)
    yield "w.grad after your function was called for another tensor, with factor 7", taken(w), "shared-factor"
    if dtype == torch.float64:
        trial.run((torch.tensor([1e300, -math.inf, math.nan], dtype=dtype) * w).sum().backward)
        yield "w.grad for a gradient of a very large number, an infinity and a NaN", taken(w)
    handle.remove()
    others_handle.remove()
    trial.run(w.sum().backward)
    yield "w.grad after handle.remove()", taken(w), "two-hooks"
    trial.expect_none_left()


def why_not_hooked(handle: Any, tensor: Tensor) -> str:
    if not isinstance(handle, RemovableHandle):
        return "not-registered"
    return "removed-too-early" if handle.hooks_dict_ref() is tensor._backward_hooks else "another-tensor"


def taken(tensor: Tensor) -> Tensor | None:
    """Return a tensor's .grad and clear it."""
    grad, tensor.grad = tensor.grad, None
    return grad


@exercise(
    "2.3",
    "Fix it: half the gradient",
    worlds=([4.0, -2.0, 9.0], [3.0]),
    verified="the gradients that arrived, half of each passed on, no other gradient changed, and no hook left",
)
def half_the_gradient(trial: Trial, weights: list[float]) -> Pairs:
    a, b = leaf(1.0, 2.0), leaf(3.0, 5.0)
    hidden_a, hidden_b = a * 1, b * 1
    received: list[tuple[Tensor, Tensor]] = []
    hidden_b.register_hook(lambda grad: received.append((grad, grad.clone())))
    first = trial.call(hidden_b, [((hidden_a + hidden_b) ** 2).sum()])  # a sum hands the same gradient to both
    x = leaf(1.0, 2.0)
    tensor = x + 1
    losses = [weight * (torch.tensor([0.5, 1.5]) * tensor**2).sum() for weight in weights]
    passes = noted(tensor, losses)
    got = trial.call(tensor, losses)
    yield "~a.grad", a.grad
    yield from gradients_listed(got, first, passes, len(losses))
    yield "x.grad, where `tensor` is computed from x", x.grad, "not-sent-to-the-leaves" if x.grad is None else None
    unchanged = Claim(all(same(*one) for one in received), "unchanged", tensor_text([one for one, _ in received]))
    yield "the gradient that your hook receives, after the pass", unchanged, "in-place"
    yield "a.grad, where the loss uses a + b and only b has the hook", a.grad
    old = leaf(1.0, 1.0, dtype=torch.float64)
    old.grad = torch.tensor([10.0, 10.0], dtype=torch.float64)
    large = torch.tensor([1e300, -4.0], dtype=torch.float64)
    yield "your list for a leaf tensor, with large numbers", trial.call(old, [(large * old).sum()])
    yield "the .grad of that leaf, which was [10, 10] before", old.grad
    loss = old.sum()
    loss.register_hook(refuse)
    yield reaches_caller(trial, lambda: trial.answer(old, [loss]), "an exception in loss.backward()")
    yield "the list of an earlier call, looked at again after this one", first, "earlier-list"


def refuse(grad: Tensor) -> None:
    raise PlannedError


@exercise(
    "2.4",
    "Gradients by name",
    worlds=(
        ["w", "data", "hidden", "again", "out", "still", "z", "unused"],
        ["unused", "out", "z", "w", "hidden", "data", "again", "still"],
    ),
    verified="each gradient under its own name, frozen and unreached tensors left out, and no hook left",
)
def gradients_by_name(trial: Trial, order: list[str]) -> Pairs:
    other = leaf(1.0, 2.0, dtype=torch.float64)
    first = trial.call({"other": other}, (torch.tensor([1e300, -2.0], dtype=torch.float64) * other).sum())
    w, unused, still, data = leaf(1.0, -1.0), leaf(7.0), leaf(5.0), torch.tensor([3.0, 5.0])
    w.grad = torch.tensor([100.0, 100.0])
    hidden = w * data
    out = hidden * 2
    z = (out**2).sum() + 0 * still.sum()  # depends on `still`, with a gradient of zero
    tensors = {"w": w, "data": data, "hidden": hidden, "again": hidden, "out": out, "still": still, "z": z}
    tensors["unused"] = unused
    passes = noted(out, [z])
    got = trial.call({name: tensors[name] for name in order}, z)
    left, why = hooks_left(trial, registered=7)
    yield returns(got, dict, "a dictionary")
    yield "~your dictionary", got
    yield "the number of your hooks that are left (the check removed them)", left, why
    yield "the names of an earlier call in your dictionary", [n for n in got if n == "other"], "earlier-dictionary"
    yield "the names in your dictionary", sorted(map(str, got)), why_no_names(passes) if not got else None
    yield "your dictionary", got
    yield "how many times z was sent back", len(passes), "sent-again" if passes else "no-backward"
    nothing_added = same(w.grad, torch.tensor([100.0, 100.0]))
    yield "w.grad, which was [100, 100] before", w.grad, "nothing-added" if nothing_added else None
    yield "the dictionary of an earlier call, looked at again after this one", first, "earlier-dictionary"


def why_no_names(passes: Sequence[tuple[int, int]]) -> str | None:
    if not passes:
        return "no-backward"
    return "kept-nothing" if passes[0][1] else "never-hooked"


@exercise(
    "2.5",
    "A hook with a memory",
    worlds=(
        (torch.tensor([[3.0, 4.0], [0.0, 2.0]]), PlannedError),
        (torch.tensor([[[1.0, 1.0], [1.0, 1.0]], [[3.0, 0.0], [0.0, 4.0]]], dtype=torch.float64), PlannedInterrupt),
        (torch.tensor([[0.0, 0.0], [math.inf, 0.0], [0.0, 4096.0]], dtype=torch.bfloat16), PlannedError),
    ),
    verified="norms kept while the block runs and only then, the gradients unchanged, "
    "removed even when the block raises",
)
def a_hook_with_a_memory(trial: Trial, world: tuple[Tensor, type[BaseException]]) -> Pairs:
    gradients, error = world[0].clone(), world[1]
    x = torch.ones_like(gradients[0]).requires_grad_()
    y, other_y = x + 1, x + 2
    log, other = trial.call(y, may_hook=True), trial.call(other_y, may_hook=True)
    theirs = y.register_hook(lambda grad: None)
    with trial.watch(y, other_y):
        kind = type(getattr(log, "norms", None)).__name__
        yield "the type of log.norms", kind, None if hasattr(log, "norms") else "no-norms"
        yield "the norms of a new object", log.norms, "class-attribute"
        send(trial, y, gradients[:1])
        yield "log.norms before the block, after a first pass", log.norms, "registered-in-init"
        x.grad = None
        block = Block(log, y, gradients)
        error_comes_out(trial, block)
        is_log = Claim(block.entered is log, "your object", tensor_text(block.entered))
        yield "what `with … as log` gives", is_log, "enter-returns-nothing" if block.entered is None else None
        yield "log.norms after the block", log.norms, why_no_norms(log.norms, block.hooks)
        yield "x.grad after the block, where y is computed from x", x.grad, "changes-the-gradient"
        send(trial, y, gradients[:1])
        yield "log.norms after one more pass, without a block", log.norms, "not-removed"
        before = list(log.norms)
        error_comes_out(trial, Block(log, y, gradients[-1:]))
        now = list(log.norms)  # a block may continue the list or begin a new one
        added = now[len(before) :] if now[: len(before)] == before else now
        yield "the norms that a second block on the same object adds", added
        yield "the norms of another object, which has seen no gradient", other.norms, "class-attribute"
        trial.run(other.keep, gradients[-1])
        yield "log.norms of a new object after log.keep(grad)", other.norms, "keep-is-not-the-hook"
        other = trial.call(other_y, may_hook=True)
        block = Block(other, other_y, gradients[:1], error)
        reached = reaches_caller(trial, block, f"{words_of(error)} in the block")
        send(trial, other_y, gradients[:1])
        why = "except-exception" if error is PlannedInterrupt else "removed-on-success-only"
        yield f"log.norms after a block that raised {words_of(error)}, and one more pass", other.norms, why
        yield reached
    theirs.remove()


class Block:
    """A caller's code: a `with` block in which gradients are sent to y, and which may raise an exception."""

    def __init__(self, log: Any, y: Tensor, gradients: Tensor, error: type[BaseException] | None = None):
        self.log, self.y, self.gradients, self.error = log, y, gradients, error
        self.entered: Any = None
        self.hooks = 0

    def __call__(self) -> None:
        with self.log as self.entered:
            self.hooks = len(self.y._backward_hooks or ())
            for gradient in self.gradients:
                (gradient * self.y).sum().backward()
            if self.error:
                raise self.error


def send(trial: Trial, y: Tensor, gradients: Tensor) -> None:
    for gradient in gradients:
        trial.run((gradient * y).sum().backward)


def why_no_norms(norms: Sequence[Any], hooks: int) -> str | None:
    if norms:
        return None
    return "kept-nothing" if hooks > 1 else "never-hooked"  # one is the check's own


X = torch.tensor([[0.001, 0.002], [0.003, 0.004]])
# The gradients that arrive at the model's output: directions of length 1, times lengths.
# Matrices, so that a norm of each row, or the largest singular value, is another number.
DIRECTIONS = torch.tensor(
    [[[0.48, 0.64], [0.6, 0.0]], [[0.48, 0.64], [0.6, 0.0]], [[1.0, 0.0], [0.0, 0.0]], [[-0.48, 0.64], [0.6, 0.0]]]
)
AT_OUT = [length * direction for length, direction in zip((50.0, 0.5, 0.0, 100.0), DIRECTIONS, strict=True)]


class Model(nn.Module):
    """out = scale·x + shift + frozen + root + deep: parameters on the root and at several depths, of several shapes."""

    def __init__(self) -> None:
        super().__init__()
        names = {"scale": torch.ones(2, 2), "shift": torch.zeros(2, 2), "frozen": torch.ones(2, 2)}
        self.inner = nn.ParameterDict(names)
        self.inner["frozen"].requires_grad_(False)
        self.root = nn.Parameter(torch.zeros(2))
        self.blocks = nn.ModuleList([nn.ModuleDict({"last": nn.ParameterDict({"deep": torch.tensor(0.0)})})])

    def forward(self) -> Tensor:
        out: Tensor = self.inner["scale"] * X.to(self.root.dtype) + self.inner["shift"] + self.inner["frozen"]
        return out + self.root + self.get_parameter("blocks.0.last.deep")


class Loop:
    """A training loop: it sends each gradient to the model's output and notes what is stored."""

    def __init__(self, model: Model):
        self.model, self.result, self.calls = model, object(), 0
        self.hooked: set[str] = set()
        self.stored: list[dict[str, Tensor]] = []

    def __call__(self) -> object:
        self.calls += 1
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        for at_out in AT_OUT:
            optimizer.zero_grad()
            (at_out * self.model()).sum().backward()
            optimizer.step()
            named = list(self.model.named_parameters())
            self.stored.append({name: one.grad.clone() for name, one in named if one.grad is not None})
            self.hooked |= {
                name for name, one in named if of_the_answer(one._backward_hooks) or one._post_accumulate_grad_hooks
            }
        return self.result


@exercise(
    "2.6",
    "Clip inside a loop that you can't edit",
    worlds=((5.0, torch.float32, PlannedError), (1.0, torch.float64, PlannedInterrupt)),
    verified="long gradients shortened, short ones untouched, the frozen parameter skipped, "
    "no hook left even after an error",
)
def clip_inside_somebody_elses_loop(trial: Trial, world: tuple[float, torch.dtype, type[BaseException]]) -> Pairs:
    limit, dtype, error = world
    model = Model().to(dtype)
    train = Loop(model)
    got = trial.call(model, limit, train, may_change=True)
    left, why = hooks_left(trial, registered=4)
    why_calls = "trains-twice" if train.calls else "no-train"
    yield "the number of times that your function calls train()", train.calls, why_calls
    yield "~the parameters with a hook", sorted(train.hooked)
    yield "the parameters that got a gradient in train()", sorted(set().union(*train.stored)), "thawed"
    yield "~the norm of the short gradient", float(train.stored[1].get("inner.shift", torch.zeros(1)).norm())
    arriving = {"inner.shift": AT_OUT, "inner.scale": [one * X for one in AT_OUT]}
    arriving |= {"root": [one.sum(dim=0) for one in AT_OUT], "blocks.0.last.deep": [one.sum() for one in AT_OUT]}
    for name, whole in arriving.items():
        stored = [one.get(name) for one in train.stored]
        is_whole = name not in train.hooked and all(map(same, stored, whole))
        why_whole = ("some-not-hooked" if train.hooked else "none-hooked") if is_whole else None
        for one, grad in zip(whole, stored, strict=True):
            yield f"the gradient {tensor_text(one)} of {name!r}, clipped to {limit:g}", grad, why_whole
    yield "the number of your hooks that are left (the check removed them)", left, why
    returned = Claim(got is train.result, "the very object that train() returned", tensor_text(got))
    yield "what your function returns", returned, "forgotten-return" if got is None else None
    yield "the model's parameters after train()", dict(model.named_parameters()), "weights-changed"

    def failing() -> None:
        raise error

    with trial.watch(model):
        reached = reaches_caller(trial, partial(trial.answer, model, limit, failing), f"{words_of(error)} in train()")
    left, _ = hooks_left(trial, registered=4)
    why = "except-exception" if error is PlannedInterrupt else "removed-on-success-only"
    yield f"the number of your hooks that are left after train() raised {words_of(error)}", left, why
    yield reached
