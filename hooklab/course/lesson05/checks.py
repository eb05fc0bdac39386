"""The exercises of lesson 5: what a module's backward hooks receive, and what they can change."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import Pairs, exercise
from hooklab.course.exercises.faults import NotYet
from hooklab.course.exercises.frames import first_words, kind_of
from hooklab.course.exercises.guards import of_the_answer
from hooklab.course.exercises.records import Claim, alike, plain
from hooklab.course.exercises.scenes import is_handle, is_used_up, leaf, linear, runs_counted, whole, whole_numbers
from hooklab.course.exercises.trial import Trial
from hooklab.course.exercises.values import same, tensor_text

# Legacy hooks warn, and so do hooks on first layers; an outcome has its own words for them.
no_warnings = partial(warnings.catch_warnings, action="ignore")


def weighed(output: Tensor) -> Tensor:
    """A loss with unequal gradients: 1 times the first number, plus 2 times the second, and so on."""
    weights = torch.arange(1, output.numel() + 1, dtype=output.dtype)
    return (output * weights.reshape(output.shape)).sum()


def three_layers() -> nn.Sequential:
    return nn.Sequential(linear(3, 4, 1), linear(4, 2, 2), linear(2, 1, 3))


# --- 5.1


class Around(NamedTuple):
    """A model, a layer in it, and the input."""

    model: nn.Module
    layer: nn.Module
    x: Tensor


def in_a_row(place: int, *shape: int, asks: bool = False) -> Around:
    model = three_layers()
    return Around(model, model[place], whole_numbers(place, *shape).requires_grad_(asks))


def a_block_deep_inside() -> Around:
    inner = nn.Sequential(linear(4, 4, 5), nn.LeakyReLU(0.5), linear(4, 2, 6))
    model = nn.Sequential(linear(3, 4, 4), nn.ModuleDict({"block": inner})["block"], nn.Dropout(), linear(2, 1, 7))
    return Around(model.double().eval(), inner, whole_numbers(3, 3, 3).double())


def with_old_gradients() -> Around:
    model = three_layers()
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 7.0)
    return Around(model, model[2], 1e4 * whole_numbers(2, 2, 3))


@exercise(
    "5.1",
    "On both sides of a layer",
    worlds=(
        partial(in_a_row, 1, 2, 3),
        partial(in_a_row, 2, 2, 3),
        partial(in_a_row, 1, 2, 2, 3),
        partial(in_a_row, 0, 2, 3, asks=True),
        a_block_deep_inside,
        with_old_gradients,
    ),
    verified="the gradients of the input and of the output, in this order, for six layers; no hook was left",
)
def on_both_sides_of_a_layer(trial: Trial, make: Callable[[], Around]) -> Pairs:
    model, layer, x = make()
    usual, sent, hooks = make(), list[Tensor](), list[bool]()
    got: Any = None
    fault: NotYet | None = None
    with no_warnings(), runs_counted(model) as runs:
        layer.register_forward_pre_hook(lambda module, args: hooks.append(has_backward_hooks(module)))
        model.register_forward_hook(lambda module, args, output: note_gradient(output, sent))
        try:
            got = trial.call(model, layer, x)
        except NotYet as stopped:
            if not runs.forwards:
                raise
            fault = stopped
    yield "calls of `model.forward(…)` that bypass the model's hooks", runs.forwards - runs.calls, "forward-alone"
    yield "the number of times that your function runs the model", runs.calls, "runs-again" if runs.calls else "not-run"
    why = why_nothing(model, layer, any(hooks), bool(sent))
    if fault is not None and why:
        got = f"{kind_of(fault.__cause__)}: {first_words(fault.__cause__)}" if fault.__cause__ else "an exception"
        yield "does your function run to its end?", Claim(False, "it does", got), why
    if fault is not None:
        raise fault
    yield "does your function run to its end?", Claim(True, "it does", "")
    yield "what your function returns", kinds(got), why_no_pair(got, why)
    yield "the shapes of your two tensors", [list(one.shape) for one in got], why
    arrived = sent[-1] if sent else None
    yield "the gradient that your function sends into the model's output", arrived, "another-loss" if sent else why
    yield "the gradient of the layer's input", got[0]
    yield "the gradient of the layer's output", got[1]
    yield "the gradients of the model's parameters", undisturbed(model, usual), "changes-gradients"
    again = trial.call(*in_a_row(1, 3, 3))
    yield "what your function returns in a second call, with another model", again, "earlier"
    yield "what it returned in the first call, looked at again", got, "earlier"


def note_gradient(output: Tensor, sent: list[Tensor]) -> None:
    if output.requires_grad:
        output.register_hook(lambda grad: sent.append(grad.clone()))


def has_backward_hooks(module: nn.Module) -> bool:
    return bool(module._backward_hooks or module._backward_pre_hooks)


def why_nothing(model: nn.Module, layer: nn.Module, hooked_in_time: bool, sent: bool) -> str | None:
    """The reason for missing gradients. A module remembers whether it has had a full hook, or a legacy one."""
    if layer._is_full_backward_hook is False:
        return "legacy-hook"
    if layer._is_full_backward_hook is None and model._is_full_backward_hook is not None:
        return "another-module"
    if not sent:
        return "no-backward"
    return "registered-late" if layer._is_full_backward_hook and not hooked_in_time else None


def kinds(got: Any) -> str:
    if not isinstance(got, tuple | list):
        return "None" if got is None else f"a {kind_of(got)}"
    return f"{len(got)} values: {', '.join(map(kind_of, got))}"


def why_no_pair(got: Any, why: str | None) -> str | None:
    if got is None:
        return "forgotten-return"
    if isinstance(got, Tensor):
        return "one-tensor"
    if isinstance(got, tuple | list) and any(isinstance(one, tuple) for one in got):
        return "tuples"
    return why


def undisturbed(model: nn.Module, usual: Around) -> Claim:
    """Is in `.grad` what gathers there without hooks? Or nothing new, or that without the old?"""
    parameters = list(usual.model.parameters())
    added = torch.autograd.grad(usual.model(usual.x).sum(), parameters)
    for now, parameter, new in zip(model.parameters(), parameters, added, strict=True):
        old = parameter.grad
        total = new if old is None else old + new
        if now.grad is not None and not any(same(now.grad, one) for one in (total, new, old) if one is not None):
            return Claim(False, tensor_text(total), tensor_text(now.grad))
    return Claim(True, "those of one backward pass from the sum", "")


# --- 5.2, 5.3 and 5.4: a hook on a layer, and what arrives where


class Setting(NamedTuple):
    """A layer for the hook, what a pass does with it, and the tensors whose `.grad` is looked at, by name."""

    where: str
    layer: nn.Module
    forward: Callable[[], Tensor]
    watched: Mapping[str, Tensor]
    sent: Tensor | None = None  # the gradient that is sent into the result; None for a result of one number


World = tuple[Callable[[], Setting], tuple[float, ...]]  # and what the answer is given besides the layer


def passes(trial: Trial, world: World, many: bool = False) -> Pairs:
    """Pairs about passes with the answer's hook: the layer's output, and which gradients arrive."""
    make, given = world
    setting, bare = make(), make()
    with no_warnings(), trial.watch(setting.layer, by_handle=True):
        a_pass(bare)
        handles = yield from registered(trial, setting.layer, given, many)
        evaluates = given[0] >= 1  # in some worlds the second pass is one, so that "works once" is distinguished
        second = ", in a second pass, in evaluation mode" if evaluates else ", in a second pass"
        for when, mode in (("", True), (second, not evaluates)):
            sent = None if setting.sent is None else setting.sent.clone()
            setting.layer.train(mode)
            try:
                output = trial.run(a_pass, setting, sent)
            finally:
                setting.layer.train()
            yield f"the output, {setting.where}{when}", output, "changes-the-output"
            why = why_in_this_pass(handles, when, setting, bare)
            if not when:
                sums = [one.grad.sum() for one in setting.watched.values() if one.grad is not None]
                yield "~sums of the gradients", sums
            yield from arrived(setting, when, why)
            if sent is not None and setting.sent is not None:
                unchanged = Claim(same(sent, setting.sent), "unchanged", tensor_text(sent))
                yield f"the gradient that comes in{when}, when the pass has ended", unchanged, "in-place"
        trial.run(without_gradients, setting)
        others = trial.call(linear(2, 2, 8), *[one + 3 for one in given], may_hook=True)
        trial.run(a_pass, setting)
        yield from arrived(setting, ", after a call for another layer", "later-pass")
        for handle in [*handles, *(others if many else [others])]:
            trial.run(handle.remove)
    a_pass(setting)
    yield from arrived(setting, ", after handle.remove()", "another-handle")


def registered(trial: Trial, layer: nn.Module, given: Sequence[Any], many: bool = False) -> Pairs:
    """Call the answer, and return the handles that it returned: one, or `many` in a list."""
    returned = trial.call(layer, *given, may_hook=True, may_change=any(isinstance(one, dict) for one in given))
    is_list = isinstance(returned, list | tuple)
    handles = list(returned) if many and is_list else [returned]
    others = [kind_of(one) for one in handles if not is_handle(one)]
    told = f"a {others[0]}" if others else "handles" if is_list else "a handle"
    why = "forgotten-return" if returned is None else "one-handle" if many and not is_list else None
    yield "what your function returns", f"a list with {told}" if is_list else told, why
    used_up = Claim(not any(map(is_used_up, handles)), "it is", "it isn't")
    yield "is your hook still registered when your function has returned?", used_up, "removed-too-early"
    return handles


def a_pass(setting: Setting, sent: Tensor | None = None) -> Tensor:
    output = setting.forward()
    output.backward(setting.sent if sent is None else sent)
    return output


def without_gradients(setting: Setting) -> None:
    with torch.no_grad():
        setting.forward()


a_pass.__name__ = "a pass with your hook"
without_gradients.__name__ = "a pass under torch.no_grad(), with your hook,"


def arrived(setting: Setting, when: str, why: str | None) -> Pairs:
    for name, one in setting.watched.items():
        yield f"{name}, {setting.where}{when}", None if one.grad is None else one.grad.clone(), why


def why_in_this_pass(handles: Sequence[Any], when: str, setting: Setting, bare: Setting) -> str | None:
    if any(map(is_used_up, handles)):
        return "removes-itself"
    return "each-pass" if when else why_the_same(setting, bare)


def why_the_same(setting: Setting, bare: Setting) -> str | None:
    """The reason if all gradients are as without a hook."""
    now, usual = ([plain(one.grad) for one in each.watched.values()] for each in (setting, bare))
    if not alike(now, usual):
        return None
    layer = setting.layer
    tables = [layer._backward_hooks, layer._backward_pre_hooks, *(one._backward_hooks for one in layer.parameters())]
    return "changes-nothing" if any(map(of_the_answer, tables)) else "no-backward-hook"


class Two(nn.Module):
    """A layer with two outputs, and a part of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Identity()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.part(x)
        return 2 * x, 3 * x


def with_two_outputs(words: str, *used: int) -> Setting:
    layer, x = Two(), leaf(1, 1)

    def forward() -> Tensor:
        outputs = layer(x)
        return sum((weighed(10 * outputs[place]) for place in used), torch.zeros(()))

    return Setting(
        f"for a layer with the outputs 2·x and 3·x, {words} in use", layer, forward, {"the gradient of x": x}
    )


def on_data() -> Setting:
    layer, x = linear(3, 2, 5), whole_numbers(0, 2, 3)
    watched = {"the gradient of the layer's weight": layer.weight}
    return Setting("for a layer whose input doesn't require grad", layer, lambda: weighed(layer(x)), watched)


# --- 5.2


def beside_a_shortcut() -> Setting:
    layer, x = linear(3, 3, 6).half(), whole_numbers(1, 2, 3).half().requires_grad_()
    return Setting("in x + layer(x)", layer, lambda: weighed(x + layer(x)), {"the gradient of x": x})


def used_twice() -> Setting:
    layer, x = linear(3, 3, 7), whole_numbers(2, 2, 3).requires_grad_()
    watched = {"the gradient of x": x, "the gradient of the layer's weight": layer.weight}
    return Setting("in layer(layer(x))", layer, lambda: weighed(layer(layer(x))), watched)


def with_extreme_gradients() -> Setting:
    layer, x = nn.Identity(), leaf(1, 1, 1, 1)
    sent = torch.tensor([1e30, -2.0, 0.25, float("inf")])
    return Setting("with very large gradients", layer, lambda: layer(1 * x), {"the gradient of x": x}, sent)


class Mix(nn.Module):
    def forward(self, a: Tensor, times: float, b: Tensor) -> Tensor:
        return times * a + b


def with_other_arguments() -> Setting:
    layer, a, b = Mix(), leaf(1, 2), leaf(3, -1)
    watched = {"the gradient of the first tensor": a, "the gradient of the second tensor": b}
    where = "for a layer with the arguments (tensor, number, tensor)"
    return Setting(where, layer, lambda: weighed(layer(a, 3.0, b)), watched)


a_brake = exercise(
    "5.2",
    "A factor for the gradient that leaves",
    worlds=(
        (beside_a_shortcut, (3.0,)),
        (used_twice, (-0.5,)),
        (with_extreme_gradients, (-2.5,)),
        (with_other_arguments, (4.0,)),
        (partial(with_two_outputs, "both", 0, 1), (0.0,)),
        (on_data, (-2.5,)),
    ),
    verified="what flows back through the layer is scaled, in every pass, for every tensor argument; nothing else is",
)(passes)


# --- 5.3


class Affine(nn.Module):
    """Here the gradient that comes in is the bias's own, the very same memory. There may be another parameter."""

    def __init__(self, has_offset: bool = False) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.zeros(3)) if has_offset else None
        self.weight, self.bias = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x if self.offset is None else x + self.offset) + self.bias


def on_a(words: str, make: Callable[[], nn.Module], *shape: int, dtype: torch.dtype = torch.float32) -> Setting:
    layer, x = whole(make(), 1).to(dtype), whole_numbers(0, *shape).to(dtype).requires_grad_()
    watched = {"the gradient of the input": x}
    watched |= {f"the gradient of the {name}": one for name, one in layer.named_parameters()}
    return Setting(f"for {words}", layer, lambda: weighed(layer(x)), watched)


the_documents_hook_mended = exercise(
    "5.3",
    "Fix it: the documents' hook",
    worlds=(
        (partial(on_a, "a linear layer and 2-D input", partial(nn.Linear, 3, 2), 2, 3), (2.0, 3.0)),
        (partial(on_a, "a linear layer and 3-D input", partial(nn.Linear, 3, 2), 2, 2, 3), (-1.0, 0.0)),
        (partial(on_a, "a convolution", partial(nn.Conv2d, 1, 2, 2), 2, 1, 3, 3, dtype=torch.float64), (0.0, -1.5)),
        (partial(on_a, "a normalisation", partial(nn.LayerNorm, 3), 2, 3), (3.0, 2.0)),
        (partial(on_a, "weight · x + bias", Affine, 3), (2.0, 3.0)),
        (partial(on_a, "a linear layer without bias", partial(nn.Linear, 3, 2, bias=False), 2, 3), (2.0, 3.0)),
        (partial(on_a, "a module with a third parameter", partial(Affine, True), 3), (-1.0, 5.0)),
    ),
    verified="weight and bias are scaled in every pass, for seven kinds of layer and input, and nothing else is",
)(partial(passes, many=True))


# --- 5.4

SENT = ((9.0, -7.0), (0.5, 2.0), (-3.0, -0.25), (1.0, 6.0))
EXTREME = ((1e20, -7.0), (0.5, -1e30), (float("inf"), -1e-3), (0.0, -float("inf")))


def alone(words: str, sent: Sequence[Sequence[float]], dtype: torch.dtype, asks: bool = True) -> Setting:
    layer, x = linear(3, 2, 9).to(dtype), whole_numbers(4, 4, 3).to(dtype).requires_grad_(asks)
    watched = {"the gradient of the weight": layer.weight, "the gradient of the bias": layer.bias}
    watched |= {"the gradient of the input": x} if asks else {}
    return Setting(words, layer, lambda: layer(x), watched, torch.tensor(sent, dtype=dtype))


a_fuse = exercise(
    "5.4",
    "A fuse",
    worlds=(
        (partial(alone, "for a linear layer", SENT, torch.float32), (1.0,)),
        (partial(alone, "with very large gradients", EXTREME, torch.float64), (4.0,)),
        (partial(with_two_outputs, "both", 0, 1), (1.0,)),
        (partial(with_two_outputs, "the first", 0), (12.0,)),
        (partial(with_two_outputs, "the second", 1), (0.5,)),
        (partial(alone, "for a layer whose input doesn't require grad", SENT, torch.float16, asks=False), (4.0,)),
    ),
    verified="what comes in is clipped in every pass, at used and unused outputs, and all that follows from it fits",
)(passes)


# --- 5.5


class Watched(NamedTuple):
    """A model with a layer whose output is watched: what runs before it, and what makes a loss of its output."""

    where: str
    model: nn.Module
    layer: nn.Module
    before: Callable[[Tensor], Tensor]
    after: Callable[[Any], Tensor]


def beside_an_inplace_relu(watch_the_relu: bool) -> Watched:
    first, relu, last = model = nn.Sequential(linear(3, 4, 1), nn.ReLU(inplace=True), linear(4, 2, 2))
    if watch_the_relu:
        return Watched("an in-place ReLU", model, relu, first, lambda output: weighed(last(output)))
    after = lambda output: weighed(last(relu(output)))  # noqa: E731
    return Watched("the layer before an in-place ReLU", model, first, lambda x: x, after)


MODES = (("", True), (", in a second pass", True), (", in evaluation mode", False))


class Heads(nn.Module):
    def __init__(self, kind: type[dict[str, Any]]) -> None:
        super().__init__()
        self.kind, self.layer = kind, linear(3, 2, 3)

    def forward(self, x: Tensor) -> dict[str, Any]:
        hidden = self.layer(x)
        tensors = {"features": hidden, "score": hidden.sum(), "labels": torch.tensor([1, 0]), "frozen": torch.ones(2)}
        return self.kind({"note": "text"} | tensors | {"none": None})


def of_two_heads(kind: type[dict[str, Any]]) -> Watched:
    model = Heads(kind).double()
    after = lambda output: 2 * weighed(output["features"]) + 5 * output["score"]  # noqa: E731
    return Watched("a layer that returns a dict", model, model, lambda x: x.double(), after)


@exercise(
    "5.5",
    "Gradients at any output",
    worlds=(
        partial(beside_an_inplace_relu, False),
        partial(beside_an_inplace_relu, True),
        partial(of_two_heads, dict),
        partial(of_two_heads, OrderedDict),
    ),
    verified="right before and on an in-place ReLU, for a dict with labels; silent where nothing requires grad",
)
def gradients_at_any_output(trial: Trial, make: Callable[[], Watched]) -> Pairs:
    world, seen, x = make(), dict[str, Any](), whole_numbers(5, 2, 3) - 3
    with no_warnings(), trial.watch(world.layer, by_handle=True):
        (handle,) = yield from registered(trial, world.layer, [seen])
        first = None
        for (when, mode), sign in zip(MODES, (1, -2, 3), strict=True):
            early = dict(seen)
            output = yield from watched_forward(trial, world, x, when, mode)
            why = "emptied" if early.keys() - seen.keys() else "in-the-forward"
            yield f"`seen` after the forward pass, for {world.where}{when}", dict(seen), why
            trial.run(backward_from, world, output, sign)
            gone = "removes-itself" if is_used_up(handle) else None
            what, keys = f"the keys of `seen` after the backward pass, for {world.where}{when}", sorted(map(str, seen))
            yield what, keys, gone or why_other_keys(seen)
            why_old = "first-pass" if alike(plain(seen), first) else None
            yield f"`seen` after the backward pass, for {world.where}{when}", dict(seen), gone or why_old
            first = first or plain(seen)
        yield from silent_without_gradients(trial, world, x, seen)
        other, others_seen = linear(3, 2, 9), dict[str, Any]()
        others_handle = trial.call(other, others_seen, may_hook=True, may_change=True)
        trial.run(weighed(other(x)).backward)
        yield "`seen` of another layer", others_seen, "shared"
        yield f"`seen` for {world.where}, after a pass of another layer alone", dict(seen), "shared"
        for one in (handle, others_handle):
            trial.run(one.remove)
    backward_from(world, world.layer(world.before(x)), 7)
    yield f"`seen` for {world.where}, after handle.remove() and one more pass", seen, "another-handle"


def watched_forward(trial: Trial, world: Watched, x: Tensor, when: str, mode: bool) -> Pairs:
    """Run the layer, and return what its caller receives."""
    world.layer.train(mode)
    try:
        output = trial.run(forward, world, x)
    finally:
        world.layer.train()
    told = kind_of(output) + (f" with the keys {list(output)}" if isinstance(output, dict) else "")
    yield f"what the caller of {world.where} receives{when}", told, "returns-a-value"
    return output


def forward(world: Watched, x: Tensor) -> Any:
    return world.layer(world.before(x))


def backward_from(world: Watched, output: Any, sign: int) -> None:
    (sign * world.after(output)).backward()


forward.__name__, backward_from.__name__ = "a forward pass with your hook", "the rest of the model, with your hook,"


def why_other_keys(seen: Mapping[Any, Any]) -> str | None:
    if not seen:
        return "kept-nothing"
    return "late-binding" if list(seen) == ["none"] else None


def silent_without_gradients(trial: Trial, world: Watched, x: Tensor, seen: dict[str, Any]) -> Pairs:
    for frozen, what in ((False, "under torch.no_grad()"), (True, "with frozen parameters")):
        with torch.set_grad_enabled(frozen):
            world.model.requires_grad_(not frozen)
            try:
                output = trial.run(forward, world, x)
            finally:
                world.model.requires_grad_(True)
        parts = output.values() if isinstance(output, dict) else [output]
        asks = any(one.requires_grad for one in parts if isinstance(one, Tensor))
        yield f"does the output of {world.where} require grad, {what}?", asks, "asked-for"
        yield f"`seen` after a pass {what}, for {world.where}", dict(seen)
