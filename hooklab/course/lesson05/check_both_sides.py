"""The check of exercise 5.1: the gradients of a layer's input and output, from one run of the model."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import expect_returned
from hooklab.course.exercises.misconceptions import fitting, named_by
from hooklab.course.exercises.trial import NotYet, Trial, expect_tensor, same, tensor_text
from hooklab.course.exercises.varying import runs_of
from hooklab.course.lesson05.passes import LIKELY, integers, no_warnings, three_layers, whole


class Scene(NamedTuple):
    """A model, a layer in it, the input, and what the answer is given besides: everything that a guess needs."""

    model: nn.Module
    layer: nn.Module
    x: Tensor

    def around(self) -> tuple[Tensor, Tensor]:
        """Return what goes into the layer and what comes out, both in one graph with the model's output."""
        return self._run()[:2]

    def gradients(self, scale: float = 1.0) -> list[Tensor]:
        """Return the gradients of the layer's input and output, and of its parameters, sent from scale * sum."""
        given, made, output = self._run()
        return list(torch.autograd.grad(scale * output.sum(), [given, made, *self.layer.parameters()]))

    def mean(self) -> float:
        """Return what makes a mean of a sum."""
        numbers: int = self.model(self.x).numel()
        return 1 / numbers

    def _run(self) -> tuple[Tensor, Tensor, Tensor]:
        kept: list[Tensor] = []

        def before(module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
            kept.append(args[0].clone().requires_grad_())
            return (kept[0],)

        def after(module: nn.Module, args: Any, output: Tensor) -> None:
            kept.append(output)

        with self.layer.register_forward_pre_hook(before), self.layer.register_forward_hook(after):
            output = self.model(self.x)
        return kept[0], kept[1], output


def _chain(place: int, x: Tensor) -> Callable[[], Scene]:
    def make() -> Scene:
        model = three_layers()
        return Scene(model, model[place], x.clone().requires_grad_(x.requires_grad))

    return make


def _deep() -> Scene:
    inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    model = nn.Sequential(nn.Linear(3, 4), nn.ModuleDict({"block": inner})["block"], nn.Dropout(), nn.Linear(2, 1))
    return Scene(whole(model).eval(), inner, integers(3, 3))


def _with_old_gradients() -> Scene:
    model = three_layers()
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 7.0)
    return Scene(model, model[2], 1e4 * integers(2, 3))


SCENES = [
    _chain(1, integers(2, 3)),
    _chain(2, integers(2, 3)),
    _chain(1, integers(2, 2, 3)),
    _chain(0, integers(2, 3).requires_grad_()),
    _deep,
    _with_old_gradients,
]

GUESSES: dict[str, Callable[[Scene], Any]] = {
    "order: the input's gradient comes first": lambda scene: scene.gradients()[1::-1],
    "a forward hook: it sees the values that flow forward": lambda scene: scene.around(),
    "weight.grad is neither of the two: the input's gradient is in grad_input": lambda scene: [
        scene.gradients()[2] + _old_gradient(scene.layer),
        scene.gradients()[1],
    ],
    "legacy hook: its first entry is the bias's gradient, in a linear layer": lambda scene: [
        scene.gradients()[place] for place in (-1, 1)
    ],
    "sent from the mean of the output: the sum was asked for": lambda scene: scene.gradients(scene.mean())[:2],
    "the input's gradient twice": lambda scene: [scene.gradients()[0]] * 2,
    "the output's gradient twice": lambda scene: [scene.gradients()[1]] * 2,
}


def _old_gradient(layer: nn.Module) -> Tensor | float:
    old = layer.get_parameter("weight").grad
    return 0.0 if old is None else old


@exercise("5.1", "On both sides of a layer")
def on_both_sides_of_a_layer(trial: Trial) -> str:
    results: list[Any] = []
    scenes = [make() for make in SCENES]
    fault = None
    try:
        for make, scene in zip(SCENES, scenes, strict=True):
            results.append(_pair(trial, make, scene))
    except NotYet as stopped:
        fault = stopped
    for result, make in zip(results, SCENES, strict=False):
        _expect_gradients(trial, result, make, results)
    if fault:
        raise fault
    for scene, make in zip(scenes, SCENES, strict=True):
        _expect_undisturbed(scene, make())
    return "the gradients of the input and of the output, in this order, for six layers; no hook was left"


def _pair(trial: Trial, make: Callable[[], Scene], scene: Scene) -> Any:
    with runs_of(scene.model) as runs:
        got = _result(trial, make, scene)
    if got is not None:
        runs.expect(1)
    if trial.faults:
        raise trial.faults.pop(0)
    _expect_pair(trial, got, make)
    return got


def _expect_undisturbed(scene: Scene, fresh: Scene) -> None:
    """What has gathered in `.grad` is what gathers there without hooks; or nothing new, or without the old."""
    old = [parameter.grad for parameter in fresh.model.parameters()]
    true = torch.autograd.grad(fresh.model(fresh.x).sum(), list(fresh.model.parameters()))
    for (name, parameter), before, one in zip(scene.model.named_parameters(), old, true, strict=True):
        fine = [one] if before is None else [one, before, before + one]
        if parameter.grad is not None and not any(same(parameter.grad, like) for like in fine):
            raise NotYet(
                "the gradients of the model's parameters are not what one backward from the sum gives",
                expected=f"the gradient of {name!r} is {tensor_text(fine[-1])}",
                got=tensor_text(parameter.grad),
            )


def _result(trial: Trial, make: Callable[[], Scene], scene: Scene) -> Any:
    try:
        with no_warnings(), named_by(LIKELY):
            return trial.call(*scene)
    except NotYet as fault:
        if fault.details[1:] or not any(f"raised {name}" in fault.missing for name in _EMPTY):
            raise
        raise NotYet(fault.missing, expected="two tensors", likely=_why_nothing(trial, make)) from fault


_EMPTY = ("IndexError", "UnboundLocalError", "KeyError", "NameError", "TypeError", "AttributeError", "ValueError")


def _expect_pair(trial: Trial, got: Any, make: Callable[[], Scene]) -> None:
    shown = {"expected": "two tensors, the input's gradient and the output's", "got": tensor_text(got)}
    expect_returned(got, shown["expected"])
    if isinstance(got, torch.Tensor):
        raise NotYet("your function returned one tensor", **shown)
    if not isinstance(got, tuple | list) or len(got) != 2:
        raise NotYet("that is not a pair of tensors", **shown, likely=None if got else _why_nothing(trial, make))
    if any(isinstance(one, list) for one in got):
        raise NotYet("your pair holds lists", **shown)
    if any(isinstance(one, tuple) for one in got):
        likely = "grad_input and grad_output are always tuples, also for one tensor: take their [0]"
        raise NotYet("your pair holds tuples", **shown, likely=likely)
    if any(one is None for one in got):
        raise NotYet("your pair holds None", **shown, likely=_why_nothing(trial, make))


def _expect_gradients(trial: Trial, got: Any, make: Callable[[], Scene], results: list[Any]) -> None:
    wanted = make().gradients()[:2]
    for one, true, name in zip(got, wanted, ("input", "output"), strict=True):
        is_fine = same(one, true)
        likely = None if is_fine else fitting(results, GUESSES, [make() for make in SCENES[: len(results)]])
        if not is_fine and likely:
            shown = {"expected": tensor_text(tuple(wanted)), "got": tensor_text(got)}
            raise NotYet("these are not the two gradients", **shown, likely=likely)
        if isinstance(one, Tensor) and one.shape != true.shape and _why_nothing(trial, make) == LEGACY:
            what = {"expected": f"shape {tuple(true.shape)}", "got": f"shape {tuple(one.shape)}"}
            raise NotYet(f"the gradient of the {name} has another shape", **what, likely=LEGACY)
        if not same(expect_tensor(one, f"the gradient of the {name}", true.shape), true):
            what = {"expected": tensor_text(true), "got": tensor_text(one)}
            raise NotYet(f"the gradient of the {name} is another one", **what)


LEGACY = "legacy hook: how many entries its grad_input has depends on the layer and on the input's shape"


class _Noted(OrderedDict[int, Any]):
    """A table of hooks that notes how often the model had run when each one came."""

    def __init__(self, count: Callable[[], int]) -> None:
        super().__init__()
        self.count = count
        self.came: list[int] = []

    def __setitem__(self, key: int, hook: Any) -> None:
        self.came.append(self.count())
        super().__setitem__(key, hook)


def _why_nothing(trial: Trial, make: Callable[[], Scene]) -> str | None:
    """Run the answer once more and watch: when was a backward hook registered, and did a backward run at all?"""
    scene = make()
    backwards: list[int] = []
    with runs_of(scene.model) as runs:
        came, elsewhere = _Noted(lambda: runs.calls), _Noted(lambda: runs.calls)
        scene.layer._backward_hooks = scene.layer._backward_pre_hooks = came
        scene.model._backward_hooks = elsewhere
        for one in scene.model.parameters():
            one.register_hook(lambda grad: backwards.append(1))
        with no_warnings(), suppress(NotYet):
            Trial(trial.answer).call(*scene)
    if scene.layer._is_full_backward_hook is False:
        return LEGACY
    if elsewhere.came and not came.came:
        return "the hook sits on the whole model: put it on `layer`"
    if came.came and not backwards:
        return "the hook never ran: nothing has called backward()"
    if came.came and min(came.came) > 0:
        return "the hook never ran: register before the forward, where a pass takes it in"
    return None
