"""The check of exercise 11.3: a hook that comes after the first compiled call, and runs in the next one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import expect_handle, expect_unused
from hooklab.course.exercises.misconceptions import Reason, alike, fitting, named_by, remembered
from hooklab.course.exercises.trial import NotYet, Trial

WHERE = {"1.0": "on the layer `1.0`: ", "": "on the whole model: "}
MOMENTS = ("", "in a second call, ", "run eagerly, ", "after handle.remove(), ")


def add_hundred(module: nn.Module, args: Any, output: Tensor) -> Tensor:
    """The hook that is put on."""
    return output + 100


def _model() -> nn.Sequential:
    """1.0 is also the end of another layer's name, which comes before it."""
    before = nn.Sequential(nn.Identity(), nn.Sequential(nn.Linear(2, 2)))
    model = nn.Sequential(before, nn.Sequential(nn.Linear(2, 1), nn.ReLU()), nn.Linear(1, 1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.arange(2.0, parameter.numel() + 2).reshape(parameter.shape))
    return model


def _observe(put: Callable[[nn.Module, str], Any], name: str, ran: list[bool] | None = None) -> list[Tensor]:
    """Return what a compiled model gives with the hook in it, twice, run eagerly, and after the removal.

    `ran` is told whether the model, without its hook, is still a compiled one.
    """
    graphs: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        def run(*values: Any) -> Any:
            graphs.append(1)
            return graph.forward(*values)

        return run

    torch.compiler.reset()
    compiled: Any = torch.compile(_model(), backend=backend)
    x = torch.ones(1, 2)
    with torch.no_grad():
        compiled(x)
        handle = put(compiled, name)
        graphs.clear()
        came = [compiled(x), compiled(x)]
        with torch.compiler.set_stance("force_eager"):  # what is registered, whatever is recorded
            came.append(compiled(x))
            handle.remove()
            came.append(compiled(x))
        if ran is not None:
            if not graphs:  # it may be the hook that no graph holds
                torch.compiler.reset()
                compiled(x)
            ran.append(bool(graphs))
    return came


def _truth(name: str) -> list[Tensor]:
    model, x = _model(), torch.ones(1, 2)
    with torch.no_grad(), model.get_submodule(name).register_forward_hook(add_hundred):
        with_hook = model(x)
    with torch.no_grad():
        return [with_hook, with_hook, with_hook, model(x)]


def _on(compiled: Any, name: str, root: bool = True, reset: bool = True, times: int = 1) -> Any:
    layer = compiled if not name and root else compiled._orig_mod.get_submodule(name)
    handles = [layer.register_forward_hook(add_hundred) for _ in range(times)]
    if reset:
        torch.compiler.reset()
    return handles[0]


PROGRAMS: dict[str, Callable[[Any, str], Any]] = {
    "the graph that was recorded before runs on: torch.compiler.reset() forgets it": (
        lambda compiled, name: _on(compiled, name, reset=False)
    ),
    "the graph that was recorded before runs on, for the model inside as well: torch.compiler.reset() forgets it": (
        lambda compiled, name: _on(compiled, name, root=False, reset=False)
    ),
    "always on the whole model: `name` says which layer": lambda compiled, name: _on(compiled, ""),
    "registered twice": lambda compiled, name: _on(compiled, name, times=2),
}


@remembered
def _observe_program(words: str, name: str) -> list[Tensor]:
    return _observe(PROGRAMS[words], name)


def _expect_on_a_layer(handle: Any, compiled: nn.Module) -> None:
    """Raise NotYet unless the handle's table is one of forward hooks, of a module of this compiled model."""
    if not isinstance(handle, RemovableHandle):
        return
    table = handle.hooks_dict_ref()
    if not any(table is module._forward_hooks for module in compiled.modules()):
        is_pre = any(table is module._forward_pre_hooks for module in compiled.modules())
        is_on_it = any(
            isinstance(one, dict) and (one is table or add_hundred in one.values())
            for module in compiled.modules()
            for one in vars(module).values()
        )
        raise NotYet(
            "the handle that you return is of no forward hook on this model",
            expected="register_forward_hook, on the layer or on the compiled model itself",
            likely="a pre-hook: it runs before the layer, without its output"
            if is_pre
            else None
            if is_on_it
            else "another object: a copy of the model is another model",
        )


_LIKELY: dict[str, Reason] = {
    "raised KeyError: '1.0'": "the compiled model's own names begin with `_orig_mod.`; get_submodule takes plain ones",
    "has no attribute '1.0'": "a path instead of an attribute: get_submodule walks along the dots",
}


@exercise("11.3", "A hook that the compiler sees")
@named_by(_LIKELY)
def a_hook_that_the_compiler_sees(trial: Trial) -> str:
    def put(compiled: nn.Module, name: str) -> Any:
        handle = trial.call(compiled, name, add_hundred, may_hook=True, may_change=True)
        expect_handle(handle, "register_forward_hook")
        _expect_on_a_layer(handle, compiled)
        expect_unused(handle)
        return handle

    ran: list[bool] = []
    try:
        seen = [_observe(put, name, ran) for name in WHERE]
        for (name, where), came in zip(WHERE.items(), seen, strict=True):
            for moment, got, wanted in zip(MOMENTS, came, _truth(name), strict=True):
                if not alike(got, wanted):
                    raise NotYet(
                        f"{where}{moment}the compiled model gives another result",
                        expected=f"{wanted.item():g}",
                        got=f"{got.item():g}",
                        likely=fitting(seen, {words: partial(_observe_program, words) for words in PROGRAMS}, WHERE),
                    )
    finally:
        torch.compiler.reset()
    if not all(ran):
        raise NotYet(
            "after your function the model is no compiled one: it runs eagerly for ever",
            expected="a compiled model, which forgets what it has recorded, and records anew",
        )
    return "the hook runs in compiled calls, on a layer and on the whole model, until it is removed"
