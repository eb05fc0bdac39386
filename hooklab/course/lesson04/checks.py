"""The exercises of lesson 4: forward pre-hooks, which see and change what goes into a module."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import Pairs, exercise
from hooklab.course.exercises.faults import NotYet
from hooklab.course.exercises.frames import kind_of, learners_line
from hooklab.course.exercises.guards import snapshot_hooks
from hooklab.course.exercises.scenes import (
    expect_handle,
    expect_still_there,
    expect_unused,
    linear,
    whole_numbers,
)
from hooklab.course.exercises.trial import Trial
from hooklab.course.exercises.values import same, tensor_text

NAN, INF = float("nan"), float("inf")


class Layer(nn.Linear):
    """A linear layer with a part, which notes what its `forward` gets and takes anything."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs)
        self.part = nn.Identity()
        self.runs = 0
        self.given: tuple[Any, ...] = ()

    def forward(self, *args: Any) -> Any:
        self.runs += 1
        self.given = args
        x = args[0] if args else None
        return super().forward(self.part(x).to(self.weight.dtype)) if isinstance(x, Tensor) else x

    def only_argument(self) -> Any:
        """The one tensor that `forward` got, or what else that was, in words."""
        if len(self.given) != 1:
            return f"{len(self.given)} arguments"
        (x,) = self.given
        return x if isinstance(x, Tensor) else f"a {kind_of(x)}"


def noting_layer(inputs: int, dtype: torch.dtype = torch.float32) -> Layer:
    layer = linear(inputs, 2, inputs, Layer)
    assert isinstance(layer, Layer)
    return layer.to(dtype)


def hooked(trial: Trial, layer: nn.Module, *rest: Any, may_change: bool = False) -> Pairs:
    """Let the answer put its pre-hook on a layer; return the handle."""
    before = snapshot_hooks([layer])
    handle = trial.call(layer, *rest, may_hook=True, may_change=may_change)
    expect_unused(handle)
    places = sorted(place for place, _ in snapshot_hooks([layer]) - before)
    if any(place.startswith("forward pre-hook on the whole") for place in places):
        places = ["forward pre-hook on the module"]
    yield "where your hook is", (places or ["nowhere"])[0], "another-kind" if places else "not-registered"
    return handle


def removed(trial: Trial, handle: Any) -> None:
    expect_handle(handle, "register_forward_pre_hook")
    trial.run(handle.remove)


def passes(layer: nn.Module, training: bool = True) -> Generator[tuple[str, str | None], None, None]:
    """Yield (words for the pass, the reason of a difference that comes up in it): two in one mode, one in the other."""
    other = "evaluation" if training else "training"
    for which, mode, why in (
        ("", training, None),
        ("in a second pass, ", training, "first-pass-only"),
        (f"in {other} mode, ", not training, "one-mode-only"),
    ):
        layer.train(mode)
        yield which, why


@exercise(
    "4.1",
    "Fix it: double the input",
    worlds=((torch.float32, True), (torch.float64, False), (torch.bfloat16, True)),
    verified="the layer gets 2·x in every pass, your x is untouched, and handle.remove() ends it",
)
def double_what_goes_in(trial: Trial, world: tuple[torch.dtype, bool]) -> Pairs:
    dtype, training = world
    layer = noting_layer(2, dtype)
    handle = yield from hooked(trial, layer)
    for which, why in passes(layer, training):
        for rows in ([[1.0, 2.0]], [[-3.0, 0.5], [4e6, 0.0]], [[INF, -7.0]]):
            x, runs = torch.tensor(rows, dtype=dtype), layer.runs
            with trial.watch(x):
                trial.run(layer, x)
            expect_still_there(handle)
            yield f"{which}the number of times that `forward` runs in one call", layer.runs - runs, "ran-again"
            got = layer.only_argument()
            text = f"{which}what the layer's `forward` gets for x = {tensor_text(x)}"
            yield text, got, why or why_not_doubled(got, x)
    x = torch.tensor([[1.0, 2.0]], dtype=dtype, requires_grad=True)
    got = trial.run(layer, x).sum()
    (grad,) = torch.autograd.grad(got, x, allow_unused=True)
    yield "x.grad, for the sum of the layer's output", grad, "cut-off" if grad is None else None
    removed(trial, handle)
    trial.run(layer, x)
    yield "is it x itself that `forward` gets after handle.remove()?", layer.given[0] is x, "another-handle"
    trial.expect_none_left()


def why_not_doubled(got: Any, x: Tensor) -> str | None:
    if not isinstance(got, Tensor):
        return {"a list": "list-is-one-value", "a tuple": "tuple-in-a-tuple"}.get(got)
    if got.dtype != x.dtype:
        return "another-dtype"
    return "unchanged" if got.shape == x.shape and bool((got == x).all()) else None


# --- 4.2: inputs, as far as their dtype can hold them

INPUTS = {
    "small numbers": [[1.0, -2.0, 3.0]],
    "zeros": [[0.0, 0.0, 0.0]],
    "a number whose square is too large for float16": [[300.0, 0.0, 1.0]],
    "a number near float16's largest": [[65000.0, 0.0, 1.0]],
    "two numbers whose sum is too large for float16": [[60000.0, 60000.0, 1.0]],
    "a large number": [[1e10, 0.0, 1.0]],
    "a number whose square is too large for int64": [[1.5e19, 0.0, 1.0]],
    "a very large number": [[1e30, 0.0, 1.0]],
    "a number near float32's largest": [[3e38, 0.0, 1.0]],
    "large numbers in two rows": [[3e38, 3e38, 1.0], [3e38, 1.0, -1e30]],
    "a number that is too large for float32": [[1e300, 0.0, 1.0]],
    "a NaN": [[1.0, NAN, 3.0]],
    "an infinity": [[1.0, INF, 3.0]],
    "a negative infinity": [[1.0, -INF, 3.0]],
    "nothing but infinities": [[INF, -INF, INF]],
    "a NaN in its first row": [[NAN, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]],
    "a NaN in its second row": [[1.0, 2.0, 3.0], [4.0, NAN, 6.0], [7.0, 8.0, 9.0]],
    "a sequence with a NaN": [[[1.0, 2.0, 3.0], [4.0, NAN, 6.0]]],
    "an infinity in its last row": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, INF]],
    "nothing but NaN": [[NAN, NAN, NAN]],
}
PASSED, REFUSED = "it gets through", "ValueError"
TOO_LATE, REPLACED = "ValueError, but `forward` has run", "`forward` gets something else"
REASONS = {
    PASSED: "let-in",
    REFUSED: "too-large",
    TOO_LATE: "too-late",
    REPLACED: "too-much",
    "AssertionError": "asserts",
}


@exercise(
    "4.2",
    "A guard at the door",
    worlds=(torch.float32, torch.float64, torch.float16),
    verified="finite inputs pass untouched; NaN and inf, anywhere, raise ValueError before forward runs",
)
def a_guard_at_the_door(trial: Trial, dtype: torch.dtype) -> Pairs:
    layer = noting_layer(3, dtype)
    handle = yield from hooked(trial, layer)
    came = {}
    for which, why in passes(layer, dtype is not torch.float64):
        for what, rows in list(INPUTS.items())[:: 4 if which else 1]:
            x = torch.tensor(rows, dtype=dtype)
            if x.isfinite().equal(torch.tensor(rows, dtype=torch.float64).isfinite()):
                came[f"{which}what becomes of an input with {what}"] = at_the_door(trial, layer, x), why
        expect_still_there(handle)
    yield "~the inputs that get through", "".join(str(int(outcome == PASSED)) for outcome, _ in came.values())
    for text, (outcome, why) in came.items():
        label = REASONS.get(outcome, "another-error")
        yield text, outcome, why if outcome in (PASSED, REFUSED) and why else label
    removed(trial, handle)
    trial.expect_none_left()


def at_the_door(trial: Trial, layer: Layer, x: Tensor) -> str:
    runs = layer.runs
    with trial.watch(x):
        try:
            trial.run(layer, x)
        except NotYet as fault:
            error = fault.__cause__
            if isinstance(error, ValueError):
                return REFUSED if layer.runs == runs else TOO_LATE
            if error is None or learners_line(error) is None or bool(x.isfinite().all()):
                raise
            return kind_of(error)
    return PASSED if layer.given and layer.given[0] is x else REPLACED


# --- 4.3

CALLS = (
    *("x", "x=x", "x, scale=2.0", "x=x, scale=2.0", "x, scale=0.0", "x, scale=1.0", "x, scale=-20.0", "x, scale=20.0"),
    *("x, shift=5.0", "x=x, shift=5.0", "x, shift=5.0, scale=2.0", "scale=0.0, shift=-1.0, x=x"),
)
UNCHANGED = "scale = 1.0, shift = 0.0, and x itself"


def scaling_modules() -> list[Any]:
    """Two modules of a class that no answer has touched before."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.runs: list[tuple[Any, ...]] = []

        def forward(self, x: Tensor, *, scale: float = 1.0, shift: float = 0.0) -> Tensor:
            self.runs.append((x, scale, shift))
            return x * scale + shift

    return [Scaled(), Scaled()]


@exercise(
    "4.3",
    "A default for a keyword argument",
    worlds=(10.0, -3.0, 0.0),
    verified="a missing scale is filled in, a given one is kept, and everything else comes through",
)
def a_default_for_a_keyword(trial: Trial, default: float) -> Pairs:
    module, sibling = scaling_modules()
    handle = yield from hooked(trial, module, default)
    came = {}
    for which, why in passes(module, default != 0.0):
        for call in CALLS[: 3 if which else None]:
            came[f"{which}what `forward` gets in module({call})"] = what_forward_gets(trial, module, call), why
        expect_still_there(handle)
    yield "~all scales and shifts", "; ".join(re.sub(r"[^0-9.,-]", "", got) for got, _ in came.values())
    for text, (got, why) in came.items():
        yield text, got, why or ("unchanged" if got == UNCHANGED else None)
    yield "what module(x, factor=2.0) raises", refusal(trial, module, "x, factor=2.0"), "unknown-names-lost"
    gets_alone = what_forward_gets(trial, sibling, "x")
    yield "what `forward` gets in another(x), of another module of this class", gets_alone, "class-changed"
    other = trial.call(sibling, default + 1, may_hook=True)
    gets_now = what_forward_gets(trial, module, "x")
    yield "what `forward` gets in module(x) when another module has got its own default", gets_now, "shared-default"
    removed(trial, handle)
    gets_now = what_forward_gets(trial, module, "x")
    yield "what `forward` gets in module(x) after handle.remove()", gets_now, "another-handle"
    trial.run(other.remove)
    trial.expect_none_left()


def run_call(trial: Trial, module: Any, call: str) -> tuple[Tensor, Any]:
    x = torch.tensor([1.0, 2.0])

    def a_call() -> Any:
        return eval(compile(f"module({call})", __file__, "eval"), {"module": module, "x": x})

    a_call.__name__ = f"module({call})"
    return x, trial.run(a_call)


def what_forward_gets(trial: Trial, module: Any, call: str) -> str:
    module.runs.clear()
    try:
        x, output = run_call(trial, module, call)
    except NotYet as fault:
        error = fault.__cause__
        if error is not None and learners_line(error) is None and "forward() " in str(error):
            return f"{kind_of(error)}: forward() {str(error).split('forward() ')[1]}"
        raise
    if len(module.runs) != 1:
        return f"{len(module.runs)} runs of `forward`"
    ((got, scale, shift),) = module.runs
    text = f"scale = {tensor_text(scale)}, shift = {tensor_text(shift)}, and {'x itself' if got is x else 'another x'}"
    return text if same(output, got * scale + shift) else f"{text}; and what it returns is changed"


def refusal(trial: Trial, module: Any, call: str) -> str:
    try:
        run_call(trial, module, call)
    except NotYet as fault:
        return kind_of(fault.__cause__)
    return "nothing"


# --- 4.4


class Past(nn.Module):
    """Doubles its input; the result goes through the layer, and past it."""

    def __init__(self, layer: nn.Module, apart: bool):
        super().__init__()
        self.layer, self.apart = layer, apart

    def forward(self, x: Tensor) -> Tensor:
        h = 2 * x
        through: Tensor = self.layer(h.clone() if self.apart else h)
        return through + 100 * h


class Turned(nn.Module):
    """Adds the columns in the opposite order: what it does to one part depends on the others."""

    def __init__(self, in_place: bool):
        super().__init__()
        self.in_place = in_place

    def forward(self, x: Tensor) -> Tensor:
        return x.add_(10 * x.flip(-1)) if self.in_place else x + 10 * x.flip(-1)


LEFT = (slice(None), slice(0, 2))


@exercise(
    "4.4",
    "Patch any part, at any layer",
    worlds=(
        (LEFT, "[:, :2]", False, False),
        ((1,), "[1]", False, True),
        ((slice(None), 2), "[:, 2]", True, True),
        ((slice(None),), "[:]", True, False),
    ),
    verified="the part of the input comes from the other pass, the rest is untouched, and no hook is left",
)
def patch_any_part(trial: Trial, world: tuple[Any, str, bool, bool]) -> Pairs:
    part, words, in_place, training = world
    layer = Turned(in_place)
    model = Past(layer, apart=in_place).train(training)
    one = torch.tensor([[1.0, -2.0, 3.0], [4.0, 0.0, -6.0]])
    other = torch.tensor([[7.0, 5.0, -1.0], [2.0, 9.0, 8.0]])
    kind = ", whose layer works in place" if in_place else ""
    for which, source, target in (("", one, other), ("with the two exchanged, ", other, one)):
        text = f"{which}the output of a model{kind}, with {words} patched"
        yield text, trial.call(model, layer, part, source, target)


# --- 4.5


@exercise(
    "4.5",
    "Weight norm with a pre-hook",
    worlds=(
        (2, 3, True, torch.float32, True),
        (3, 2, False, torch.float64, False),
        (1, 4, True, torch.float32, True),
    ),
    verified="same output at first, weight_g sets the rows' lengths, and both parameters learn, in three layers",
)
def weight_norm_by_a_pre_hook(trial: Trial, world: tuple[int, int, bool, torch.dtype, bool]) -> Pairs:
    rows, columns, bias, dtype, training = world
    layer, x = nn.Linear(columns, rows, bias, dtype=dtype), whole_numbers(rows, 2, columns).to(dtype)
    numbers = torch.arange(1, rows * columns + 1).reshape(rows, columns)
    layer.weight.data = torch.where(numbers % 3 == 0, -numbers, numbers).to(dtype)
    if bias:
        layer.bias.data = torch.arange(rows).to(dtype)
    handle = yield from hooked(trial, layer, may_change=True)
    names = sorted(dict(layer.named_parameters()))
    yield "the names of the layer's parameters", names, why_not_these(layer, names)
    g, v = (layer.get_parameter(name) for name in ("weight_g", "weight_v"))
    yield "the dtypes of weight_g and weight_v", [g.dtype, v.dtype], "another-dtype"
    shapes = {(): "one-length", (rows,): "no-keepdim", (1, columns): "columns"}
    yield "the shape of weight_g", list(g.shape), shapes.get(tuple(g.shape))
    yield "weight_v at the start", v, "another-start"
    yield "weight_g at the start", g
    start, start_lengths, outputs = v.detach().clone(), g.detach().clone(), []
    states = {
        "at the start": (start_lengths, start),
        "with 2·weight_g and 3·weight_v": (2 * start_lengths, 3 * start),
        "with other values in both": (0.5 - start_lengths, 2 * start + torch.arange(columns)),
    }
    weights = []
    for which, why in passes(layer, training):
        for words, values in states.items():
            set_values((g, v), values)
            outputs.append((f"{which}the layer's output {words}", forward(trial, layer, x).detach(), why))
            weights.append(layer.weight)
        expect_still_there(handle)
    yield "~the number of tensors that layer.weight has been", len(set(map(id, weights)))
    yield from outputs
    g.grad = v.grad = None
    result = forward(trial, layer, x).sum()
    if result.requires_grad:
        result.backward()
    without = [name for name, one in (("weight_g", g), ("weight_v", v)) if one.grad is None]
    yield "the parameters among the two that get no gradient", without, "cut-off"
    yield "weight_g.grad, for the sum of the output", g.grad
    yield "weight_v.grad, for the sum of the output", v.grad
    removed(trial, handle)
    set_values((g, v), (g * 2, v + 1))
    after = forward(trial, layer, x)
    yield "the layer's output if weight_g and weight_v change after handle.remove()", after, "another-handle"
    trial.expect_none_left()


def why_not_these(layer: nn.Linear, names: list[str]) -> str | None:
    if "weight" in names:
        return "weight-stays"
    both = [getattr(layer, name, None) for name in ("weight_g", "weight_v") if name not in names]
    return "no-parameters" if both and all(isinstance(one, Tensor) for one in both) else None


@torch.no_grad()
def set_values(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)


def forward(trial: Trial, layer: nn.Linear, x: Tensor) -> Tensor:
    try:
        result: Tensor = trial.run(layer, x)
    except NotYet as fault:
        error = fault.__cause__
        if isinstance(error, AttributeError) and "'weight'" in str(error) and learners_line(error) is None:
            fault.label = "no-weight"
        raise
    return result
