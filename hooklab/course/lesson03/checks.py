"""The exercises of lesson 3: forward hooks that see an output, and hooks that replace it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from types import GeneratorType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from hooklab.course.exercises.exercise import Pairs, exercise
from hooklab.course.exercises.faults import PlannedError, PlannedInterrupt
from hooklab.course.exercises.frames import kind_of
from hooklab.course.exercises.guards import remove_new_hooks, snapshot_hooks, somebody_elses
from hooklab.course.exercises.records import Claim
from hooklab.course.exercises.scenes import (
    after_an_error,
    expect_handle,
    is_used_up,
    linear,
    reaches_caller,
    returns,
    returns_manager,
    whole_numbers,
)
from hooklab.course.exercises.trial import Trial
from hooklab.course.exercises.values import same, tensor_text


class Noting(nn.Module):
    """A module that notes how it is run, what its `forward` made, and what its caller received after all hooks."""

    compute: Callable[..., Any]

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.calls = self.runs = 0
        self.made: Any = None
        self.received: Any = None
        self.result: Any = None  # a copy of it: its caller may write into it
        self.tensors: list[Tensor] = []  # the tensors in what forward made
        self.is_overwritten = False  # whether a hook has changed their values
        self._copies: list[Tensor] = []
        self.modes: set[str] = set()
        self.has_graph = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        self.received = super().__call__(*args, **kwargs)
        self.is_overwritten |= not all(map(same, self.tensors, self._copies))
        self.result = self.received.detach().clone() if isinstance(self.received, Tensor) else self.received
        return self.received

    def forward(self, *args: Any) -> Any:
        self.runs += 1
        self.modes |= {"training" if module.training else "evaluation" for module in self.modules()}
        self.has_graph = torch.is_grad_enabled()
        self.made = self.compute(*args)
        self.tensors = tensors_in(self.made)
        self._copies = [one.detach().clone() for one in self.tensors]
        return self.made


class Linear(Noting, nn.Linear):
    compute = nn.Linear.forward


class Convolution(Noting, nn.Conv2d):
    compute = nn.Conv2d.forward


class Body(Noting, nn.Sequential):
    compute = nn.Sequential.forward


def noting_linear(seed: int) -> Linear:
    layer = linear(2, 2, seed, Linear)
    assert isinstance(layer, Linear)
    return layer


class Net(Noting):
    """head(body(x) + x): running its parts one after the other gives other values."""

    def __init__(self, seed: int):
        super().__init__()
        first, second = noting_linear(seed), noting_linear(seed + 10)
        self.body = Body(OrderedDict(first=first, act=nn.LeakyReLU(0.5), second=second, last=nn.LeakyReLU(0.5)))
        self.head = noting_linear(seed + 20)

    def compute(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.body(x) + x)
        return result


def part(model: Noting, name: str) -> Noting:
    found = model.get_submodule(name)
    assert isinstance(found, Noting)
    return found


def leaves(parts: Any) -> list[Any]:
    """What a structure of tuples, lists and dictionaries holds in the end."""
    if not isinstance(parts, dict | list | tuple):
        return [parts]
    return [one for part in (parts.values() if isinstance(parts, dict) else parts) for one in leaves(part)]


def tensors_in(parts: Any) -> list[Tensor]:
    return [one for one in leaves(parts) if isinstance(one, Tensor)]


def called_once(trial: Trial, model: Noting, layer: Noting, x: Tensor) -> Pairs:
    """Pairs about a call of the answer, which should run model(x) once and only look; return what it returned."""
    got = trial.call(model, layer, x)
    yield "~what your function returns", got
    why = "forward-alone" if model.runs > model.calls else "runs-again" if model.runs else "not-run"
    yield "the number of times that your function runs the model", model.runs, why
    yield "the number of times that your function calls model(x)", model.calls, "forward-alone"
    to_the_end = Claim(model.received is not None, "it does", "it is stopped")
    yield "does model(x) run to its end?", to_the_end, "stopped"
    yield from undisturbed(model, [layer], x)
    return got


def undisturbed(model: Noting, layers: Sequence[Noting], x: Tensor) -> Pairs:
    """Pairs about a pass of a model with hooks that should only look at these layers."""
    yield "the mode of the model's modules during model(x)", sorted(model.modes), "mode-switched"
    for layer in layers:
        yield "the number of times that the layer runs", layer.runs, "ran-again"
    replaced = any(layer.received is not layer.made for layer in layers)
    why = "returns-a-value" if replaced else "in-place" if any(layer.is_overwritten for layer in layers) else None
    yield "the result of model(x), with your hook", model.result, why
    why = "returns-without-graph" if replaced else why_cut_in_place(layers)
    result = model.received if model.has_graph else model.compute(x)
    yield "the parameters that get a gradient from the result of model(x)", reached(model, result), why


def why_cut_in_place(layers: Sequence[Noting]) -> str | None:
    if not all(one.requires_grad for layer in layers for one in layer.tensors):
        return "detached-in-place"
    pairs = [pair for layer in layers for pair in zip(tensors_in(layer.made), layer.tensors, strict=False)]
    return "written-into" if any(now is not then for now, then in pairs) else None


def reached(model: Noting, result: Tensor) -> list[str]:
    """The names of the parameters that get a gradient from a result of the model."""
    if not result.requires_grad:
        return []
    names, parameters = zip(*model.named_parameters(), strict=True)
    grads = torch.autograd.grad(result.sum(), parameters, retain_graph=True, allow_unused=True)
    return [name for name, grad in zip(names, grads, strict=True) if grad is not None]


def graph_of(tensor: Tensor) -> str:
    if not tensor.requires_grad:
        return "detached"
    return "a leaf that requires grad" if tensor.is_leaf else "part of the graph"


def why_not_detached(tensors: Sequence[Tensor]) -> str:
    return "on-the-graph" if any(one.grad_fn is not None for one in tensors) else "asks-for-grad"


def error_reaches_caller(trial: Trial, model: Noting, layer: Noting, x: Tensor) -> Pairs:
    with model.register_forward_hook(refuse):
        yield reaches_caller(trial, lambda: trial.answer(model, layer, x), "an exception in model(x)")


def refuse(*_: Any) -> None:
    raise PlannedError


@exercise(
    "3.1",
    "One layer's output",
    worlds=(
        ("body.second", torch.float32, True),
        ("body.first", torch.float64, False),
        ("body", torch.float16, True),
    ),
    verified="you returned the outputs of three different modules, detached, and the model ran once, undisturbed",
)
def one_layers_output(trial: Trial, world: tuple[str, torch.dtype, bool]) -> Pairs:
    name, dtype, training = world
    model, x = Net(len(name)).to(dtype).train(training), whole_numbers(len(name), 3, 2).to(dtype)
    layer = part(model, name)
    got = yield from called_once(trial, model, layer, x)
    is_whole_list = isinstance(got, list | tuple) and len(got) == 1 and isinstance(got[0], Tensor)
    yield returns(got, Tensor, "a tensor", "whole-list" if is_whole_list else None)
    yield "the dtype of the tensor that you return", got.dtype, "another-dtype"
    yield f"the tensor that you return, for the layer {name!r}", got
    yield "is the tensor that you return detached?", graph_of(got), why_not_detached([got])
    again = trial.call(model, layer, x + 1)
    yield "what your function returns in a second call, with another x", again, "earlier" if same(again, got) else None
    yield "the tensor of the first call, looked at again after the second", got, "earlier"
    yield from error_reaches_caller(trial, model, layer, x)


@exercise(
    "3.2",
    "Switch a channel off",
    worlds=((4, 2, torch.float32), (3, 1, torch.float64), (3, 0, torch.bfloat16)),
    verified="one channel is zero, the others keep their values and gradients, and remove() restores it",
)
def switch_a_channel_off(trial: Trial, world: tuple[int, int, torch.dtype]) -> Pairs:
    channels, channel, dtype = world
    layer, other = convolution(channels, dtype), convolution(4, dtype)
    before = snapshot_hooks([layer])
    handle = trial.call(layer, channel, may_hook=True)
    hooks = len(snapshot_hooks([layer]) - before)
    hook = "on the layer" if layer._forward_hooks else why_not_hooked(handle, hooks)
    x, second = (whole_numbers(seed, rows, 2, 3, 3).to(dtype) - 3 for seed, rows in ((channels, 3), (channel, 4)))
    usual = layer.compute(x).detach()
    got = trial.run(layer, x)
    made = layer.made
    in_evaluation = zeros(trial.run(layer.eval(), x), 1)
    yield "~the channels that are zero in evaluation mode", in_evaluation
    layer.train()
    kind = "a tensor" if isinstance(got, Tensor) else f"a {kind_of(got)}"
    yield "the layer's output, with your hook", kind, "in-a-tuple" if isinstance(got, tuple | list) else None
    yield "the shape of the layer's output, with your hook", list(got.shape)
    yield "the dtype of the layer's output, with your hook", got.dtype, "another-dtype"
    yield "~the samples, rows and columns that are zero", [zeros(got, dimension) for dimension in (0, 2, 3)]
    yield "~the first number in each sample's channel", got[:, channel, 0, 0]
    why: str | None = "forgotten-return" if hook == "on the layer" else hook
    yield f"the channels that are zero, with channel = {channel}", zeros(got, 1), why if same(got, usual) else None
    yield f"the layer's output, with channel = {channel}", got
    unchanged = Claim(same(made, usual), "as `forward` made it", "changed by your hook")
    yield "the tensor that the layer's `forward` made", unchanged, "in-place"
    yield "does the layer's output, with your hook, require grad?", got.requires_grad, "cut-off"
    (grad,) = torch.autograd.grad(got.sum(), layer.weight, allow_unused=True)
    yield "the gradient of the layer's weight, for the sum of the output", grad, "new-leaf" if grad is None else None
    yield "the number of times that the layer's `forward` runs in two passes", layer.runs, "ran-again"
    got = trial.run(layer, second)
    yield "~is your hook still there after a few passes", not is_used_up(handle)
    why = "removes-itself" if is_used_up(handle) else "first-pass-only" if not zeros(got, 1) else None
    yield "the channels that are zero in one more pass, with another batch", zeros(got, 1), why
    yield "the layer's output in one more pass, with another batch", got, "remembers"
    yield "the channels that are zero in evaluation mode", in_evaluation
    expect_handle(handle, "register_forward_hook")
    trial.call(other, 3 - channel, may_hook=True)
    yield "the channels of another layer that are zero, after a call for it", zeros(trial.run(other, x), 1)
    yield "the channels that are zero after that call", zeros(trial.run(layer, x), 1), "shared-channel"
    handle.remove()
    left = len(remove_new_hooks([layer], before))
    yield "the number of your hooks after handle.remove()", left, "two-hooks" if hooks > 1 else None
    yield "the channels of the other layer that are zero then", zeros(trial.run(other, x), 1), "shared-handle"


def convolution(channels: int, dtype: torch.dtype) -> Convolution:
    layer, numbers = Convolution(2, channels, kernel_size=1), linear(2, channels, channels)
    layer.weight.data = numbers.weight.detach().reshape(channels, 2, 1, 1)
    assert layer.bias is not None
    layer.bias.data = numbers.bias.detach() * 13 / 4  # no channel is zero by itself
    return layer.to(dtype)


def zeros(output: Any, dimension: int) -> list[int]:
    """The numbers of the slices in which everything is zero."""
    if not isinstance(output, Tensor) or output.dim() != 4:
        return []
    return [number for number, part in enumerate(output.unbind(dimension)) if not part.any()]


def why_not_hooked(handle: Any, hooks: int) -> str:
    if is_used_up(handle):
        return "removed-too-early"
    return "another-kind" if hooks or isinstance(handle, RemovableHandle) else "not-registered"


class Loop(Noting):
    """Uses one step several times, and overwrites each of its outputs in place afterwards.

    Each use receives the previous use's output, or the same x, if `anew`.
    """

    def __init__(self, times: int, change: int, anew: bool = False):
        super().__init__()
        self.step, self.out = noting_linear(times), noting_linear(times + 10)
        self.times, self.change, self.anew = times, change, anew
        self.overwritten: list[Tensor] = []

    def compute(self, x: Tensor) -> Tensor:
        start, self.overwritten = x, []
        for _ in range(self.times):
            x = self.step(start if self.anew else x)
            x += self.change
            self.overwritten.append(x.detach().clone())
        result: Tensor = self.out(x)
        return result


@exercise(
    "3.3",
    "Fix it: every use, in order",
    worlds=(
        (3, 100, False, torch.float32),
        (2, -50, False, torch.float64),
        (0, 1, False, torch.float32),
        (4, 100, True, torch.float16),
    ),
    verified="an entry for each call, in order, for three, two, no and four calls, safe from later in-place changes",
)
def every_use_in_order(trial: Trial, world: tuple[int, int, bool, torch.dtype]) -> Pairs:
    times, change, anew, dtype = world
    earlier = Loop(2, 7)
    first = trial.call(earlier, earlier.step, torch.ones(1, 2))
    model, x = Loop(times, change, anew).to(dtype).train(times > 2), whole_numbers(times, 1 + times % 2, 2).to(dtype)
    got = yield from called_once(trial, model, model.step, x)
    stacked = isinstance(got, Tensor) and times > 1 and got.shape[:1] == (times,)
    why = "stacked" if stacked else "one-use" if isinstance(got, Tensor) else None
    yield returns(got, list | tuple, "a list", why)
    why = "earlier" if got is first else None if got else "kept-nothing"
    yield f"the number of entries in your list, for {times} uses", len(got), why
    yield "the kinds of your entries", ["a tensor" if isinstance(one, Tensor) else f"a {kind_of(one)}" for one in got]
    yield "the dtypes of your entries", [one.dtype for one in got], "another-dtype"
    overwritten = all(map(same, got, model.overwritten))
    yield "your list", got, "same-memory" if overwritten else None
    yield "are the entries of your list detached?", [graph_of(one) for one in got], why_not_detached(got)
    yield "the list of an earlier call, looked at again after this one", first, "earlier"
    yield from error_reaches_caller(trial, model, model.step, x)


class Parts(Noting):
    """Its output has a given structure."""

    def __init__(self, form: Callable[[Tensor], Any]):
        super().__init__()
        self.linear, self.form = linear(2, 2, 0), form

    def compute(self, x: Tensor) -> Any:
        return self.form(self.linear(x))


class Reader(Noting):
    """Its result depends on every tensor in the output of its layer."""

    def __init__(self, form: Callable[[Tensor], Any]):
        super().__init__()
        self.layer = Parts(form)

    def compute(self, x: Tensor) -> Tensor:
        parts = tensors_in(self.layer(x))
        return sum((number * one.sum() for number, one in enumerate(parts, start=1)), torch.zeros(()))


FORMS: dict[str, Callable[[Tensor], Any]] = {
    "a tuple in a tuple": lambda y: (y, (y * 2, y * -3)),
    "a dictionary": lambda y: {"scores": y, "hidden": [y * 2, (y * 3,)], "aux": None, "steps": 3},
    "a list of a tensor, a dictionary and a text": lambda y: [y.double() * 1e100, {"more": y.half()}, "a note"],
    "nested lists": lambda y: {0: [[[y]]], 1: (0, False, None, "", 1.5, {}, [])},
    "a plain tensor": lambda y: y,
}


@exercise(
    "3.4",
    "Any output, detached",
    worlds=tuple(FORMS),
    verified="a tuple in a tuple, a dictionary with a list and None, a list and a plain tensor kept their structure",
)
def any_output_detached(trial: Trial, form: str) -> Pairs:
    model, x = Reader(FORMS[form]).train(form != "a dictionary"), whole_numbers(len(form), 1, 2)
    got = yield from called_once(trial, model, model.layer, x)
    yield f"the structure of what you return, where the output is {form}", structure(got), why_another(got, model)
    tensors = tensors_in(got)
    yield "the dtypes of the tensors that you return", [one.dtype for one in tensors], "another-dtype"
    yield "the tensors that you return", tensors
    why: str | None = why_not_detached(tensors) if all(one.requires_grad for one in tensors) else "some-detached"
    yield "which tensors of what you return are detached?", structure(got, graph_of), why
    again = trial.call(model, model.layer, x + 1)
    why = "earlier" if all(map(same, tensors_in(again), tensors)) else None
    yield "the tensors that you return in a second call, with another x", tensors_in(again), why
    yield "the tensors of the first call, looked at again after the second", tensors, "earlier"
    yield from error_reaches_caller(trial, model, model.layer, x)


def structure(parts: Any, told: Callable[[Tensor], str] = lambda tensor: "a tensor") -> str:
    """A structure in short, with what `told` says of each tensor."""
    if isinstance(parts, Tensor):
        return told(parts)
    if isinstance(parts, dict):
        return "{" + ", ".join(f"{key!r}: {structure(one, told)}" for key, one in parts.items()) + "}"
    if isinstance(parts, list | tuple):
        inside = ", ".join(structure(one, told) for one in parts)
        return f"[{inside}]" if isinstance(parts, list) else f"({inside}{',' if len(parts) == 1 else ''})"
    return tensor_text(parts)


def why_another(got: Any, model: Reader) -> str | None:
    if got is None:
        return "forgotten-return"
    if isinstance(got, GeneratorType | map):
        return "generator"
    if isinstance(got, list) and len(got) == 1 and structure(got[0]) == structure(model.layer.made):
        return "whole-list"
    if isinstance(got, Tensor):
        return "one-part"
    rest, wanted = (
        [repr(one) for one in leaves(parts) if not isinstance(one, Tensor)] for parts in (got, model.layer.made)
    )
    is_complete = len(tensors_in(got)) >= len(model.layer.tensors)
    return "rest-changed" if is_complete and rest != wanted else None


@exercise(
    "3.5",
    "A capture that cleans up",
    worlds=(
        ("head body.first", torch.float64, PlannedError),
        ("body.first head", torch.float32, PlannedInterrupt),
        ("body.second body body.first", torch.float16, PlannedError),
    ),
    verified="right values under right names, and no hook left: at the end, after an exception, after a wrong name",
)
def a_capture_that_cleans_up(trial: Trial, world: tuple[str, torch.dtype, type[BaseException]]) -> Pairs:
    names, dtype, error = world[0].split(), *world[1:]
    model, x = Net(0).to(dtype), whole_numbers(len(names), 3, 2).to(dtype)
    layers = [part(model, name) for name in names]
    model.head.register_forward_hook(somebody_elses)
    with trial.watch(model, names):
        before = snapshot_hooks([model])
        manager = trial.run(trial.answer, model, names)
        yield returns_manager(manager)
        early = len(snapshot_hooks([model]) - before)
        yield "the number of your hooks on the model before the block begins", early, "registered-early"
        block = Block(manager, model, x)
        trial.run(block)
        got = block.captured
        left = len(snapshot_hooks([model]) - before)
        has_graph = Claim(model.has_graph, "it does", "it doesn't")
        yield "does the model record a graph in the block?", has_graph, "no-grad-around-yield"
        yield from undisturbed(model, layers, x + 1)
        told = "a dictionary" if isinstance(got, dict) else f"a {kind_of(got)}"
        yield "what `with … as captured` gives", told, "bare-yield" if got is None else None
        yield "the names in the dictionary after the block", sorted(map(str, got)), why_other_names(block, names)
        kinds = {name: "a tensor" if isinstance(one, Tensor) else f"a {kind_of(one)}" for name, one in got.items()}
        empty = all(one is None for one in got.values())
        yield "the kinds of the values in the dictionary", kinds, "another-dictionary" if empty else None
        dtypes = {name: one.dtype for name, one in got.items()}
        yield "the dtypes of the values in the dictionary", dtypes, "another-dtype"
        yield "the dictionary after the block, with two passes in it", got
        graphs = {name: graph_of(one) for name, one in got.items()}
        yield "are the tensors in the dictionary detached?", graphs, why_not_detached(list(got.values()))
        yield "the names in the dictionary, in the block", block.names, "filled-at-the-end"
        why = "one-handle" if left == len(names) - 1 else "hook-left"
        yield "the number of your hooks that are left after the block", left, why
    yield from blocks_apart(trial, model, x)
    with trial.watch(model):
        yield from after_an_error(trial, model, error, "the block", partial(failing, trial, model, names, error))
    for wrong in (["body.first", "hed"], ["body.thrid", "head"]):
        how_far = wrong_name(trial, model, wrong)
        left = len(remove_new_hooks([model], before))
        what = f"the number of your hooks that are left after the wrong names {wrong}"
        yield what, left, "registered-while-searching"
        why = "skipped" if how_far == "no error" else "late-error"
        yield f"what happens with the wrong names {wrong}", how_far, why


class Block:
    """Lines of a caller's: a `with` block with two passes."""

    def __init__(self, manager: Any, model: Net, x: Tensor):
        self.manager, self.model, self.x = manager, model, x

    def __call__(self) -> None:
        with self.manager as self.captured:
            self.hooks = len(snapshot_hooks([self.model]))
            self.model(self.x)
            for module in self.model.modules():
                if isinstance(module, Noting):
                    module.runs = 0
            self.model(self.x + 1)
            self.names = sorted(map(str, self.captured)) if isinstance(self.captured, dict) else []


def why_other_names(block: Block, names: list[str]) -> str | None:
    if block.captured:
        if list(block.captured) == names[-1:] and block.hooks > len(names):
            return "late-binding"
        return None if set(block.captured) & set(names) else "under-another-key"
    if block.names:
        return "emptied"
    return "another-dictionary" if block.hooks > 1 else "never-registered"  # one hook is the check's own


def blocks_apart(trial: Trial, model: Net, x: Tensor) -> Pairs:
    """Pairs about a block, and a second block inside it that goes on after the first pass."""
    dictionaries: list[dict[str, Tensor]] = []

    def two_blocks() -> None:
        with trial.answer(model, ["head", "body"]) as outer:
            model(x)
            with trial.answer(model, ["body.first"]) as inner:
                model(2 * x)
        dictionaries.extend([outer, inner])

    two_blocks.__name__ = trial.name
    with trial.watch(model):
        trial.run(two_blocks)
    outer, inner = dictionaries
    yield "the names in the dictionary of a block with another block in it", sorted(outer), "earlier"
    yield "the names in the dictionary of the inner block", sorted(inner), "earlier"
    model(3 * x)
    yield "the dictionary of the outer block, after a pass without a block", outer
    yield "the dictionary of the inner block, after a pass without a block", inner


def failing(trial: Trial, model: Net, names: list[str], error: type[BaseException]) -> None:
    with trial.answer(model, names):
        raise error


def wrong_name(trial: Trial, model: Net, names: list[str]) -> str:
    entered = False
    try:
        with trial.answer(model, names):
            entered = True
    except Exception:
        return "an error at the end of the block" if entered else "an error before the block begins"
    return "no error"
