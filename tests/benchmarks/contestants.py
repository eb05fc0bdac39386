"""Ways to capture the output of every leaf module in one call of a model, each as one callable.

Each gets a copy of the model, since some libraries change it, and returns the last output it captured, so that the
benchmark can see that all of them do the same work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hooklab import capture, select

Contestant = Callable[[], Any]


def bare(model: nn.Module, x: Tensor) -> Contestant:
    return lambda: model(x)


def by_hand(model: nn.Module, x: Tensor) -> Contestant:
    """What one writes without a library: a hook per module that keeps the detached output, removed at the end."""
    modules = select(model)

    def run() -> Tensor:
        kept: dict[str, Tensor] = {}

        def keep(name: str) -> Callable[..., None]:
            def hook(module: nn.Module, args: Any, output: Tensor) -> None:
                kept[name] = output.detach()

            return hook

        handles = [module.register_forward_hook(keep(name)) for name, module in modules.items()]
        try:
            model(x)
        finally:
            for handle in handles:
                handle.remove()
        return kept[name_of_last]

    name_of_last = list(modules)[-1]
    return run


def hooklab_reused(model: nn.Module, x: Tensor) -> Contestant:
    block, last = capture(model), list(select(model))[-1]

    def run() -> Any:
        with block as seen:
            model(x)
        return seen[last]

    return run


def hooklab_reading_all(model: nn.Module, x: Tensor) -> Contestant:
    block = capture(model)

    def run() -> Any:
        with block as seen:
            model(x)
        for name in seen:
            values = seen.calls(name)
            for value in values:
                _ = value.output
        return values[-1].output

    return run


def hooklab_from_scratch(model: nn.Module, x: Tensor) -> Contestant:
    last = list(select(model))[-1]

    def run() -> Any:
        with capture(model) as seen:
            model(x)
        return seen[last]

    return run


def fastai_hooks(model: nn.Module, x: Tensor) -> Contestant:
    from fastai.callback.hook import hook_outputs

    modules = list(select(model).values())

    def run() -> Any:
        with hook_outputs(modules, detach=True, cpu=False) as hooks:
            model(x)
        return hooks.stored[-1]

    return run


def captum_layer_activation(model: nn.Module, x: Tensor) -> Contestant:
    """Runs the model under no_grad, which makes the forward itself cheaper."""
    from captum.attr import LayerActivation

    layers = LayerActivation(model, list(select(model).values()))
    return lambda: layers.attribute(x)[-1]


def nnsight_cache(model: nn.Module, x: Tensor) -> Contestant:
    from nnsight import NNsight

    wrapped, last = NNsight(model), list(select(model))[-1]

    def run() -> Any:
        with wrapped.trace(x) as tracer:
            cache = tracer.cache().save()
        return cache[f"model.{last}"].output

    return run


# with what went in


def by_hand_with_inputs(model: nn.Module, x: Tensor) -> Contestant:
    modules = select(model)
    last = list(modules)[-1]

    def run() -> Tensor:
        kept: dict[str, tuple[tuple[Tensor, ...], Tensor]] = {}

        def keep(name: str) -> Callable[..., None]:
            def hook(module: nn.Module, args: Any, output: Tensor) -> None:
                kept[name] = tuple(value.detach() for value in args), output.detach()

            return hook

        handles = [module.register_forward_hook(keep(name)) for name, module in modules.items()]
        try:
            model(x)
        finally:
            for handle in handles:
                handle.remove()
        return kept[last][0][0]

    return run


def hooklab_with_inputs(model: nn.Module, x: Tensor) -> Contestant:
    block, last = capture(model, inputs=True), list(select(model))[-1]

    def run() -> Any:
        with block as seen:
            model(x)
        return seen.calls(last)[-1].input.args[0]

    return run


# with gradients: forward, sum, backward; the last gradient of an output is returned


def backward(model: nn.Module, x: Tensor) -> Contestant:
    return lambda: model(x).sum().backward()


def by_hand_with_gradients(model: nn.Module, x: Tensor) -> Contestant:
    """A forward hook that keeps the output, and a tensor hook that keeps its gradient."""
    modules = select(model)

    def run() -> Tensor:
        kept: dict[str, Tensor] = {}
        grads: dict[str, Tensor] = {}

        def keep(name: str) -> Callable[..., None]:
            def keep_grad(grad: Tensor) -> None:
                grads[name] = grad

            def hook(module: nn.Module, args: Any, output: Tensor) -> None:
                kept[name] = output.detach()
                output.register_hook(keep_grad)

            return hook

        handles = [module.register_forward_hook(keep(name)) for name, module in modules.items()]
        try:
            model(x).sum().backward()
        finally:
            for handle in handles:
                handle.remove()
        return grads["0"]

    return run


def hooklab_with_gradients(model: nn.Module, x: Tensor) -> Contestant:
    block = capture(model, grads=True)

    def run() -> Any:
        with block as seen:
            model(x).sum().backward()
        return seen.grad("0")

    return run


def full_backward_hooks(model: nn.Module, x: Tensor) -> Contestant:
    """A forward hook that keeps the output, and a full backward hook that keeps its gradient."""
    modules = select(model)

    def run() -> Tensor:
        kept: dict[str, Tensor] = {}
        grads: dict[str, Tensor] = {}

        def keep(name: str) -> Callable[..., None]:
            return lambda module, args, output: kept.__setitem__(name, output.detach())

        def keep_grad(name: str) -> Callable[..., None]:
            return lambda module, grad_input, grad_output: grads.__setitem__(name, grad_output[0])

        handles: list[Any] = []
        for name, module in modules.items():
            handles.append(module.register_forward_hook(keep(name)))
            handles.append(module.register_full_backward_hook(keep_grad(name)))
        try:
            model(x).sum().backward()
        finally:
            for handle in handles:
                handle.remove()
        return grads["0"]

    return run


# attached once, called many times: what a call costs while hooks are there


def by_hand_attached(model: nn.Module, x: Tensor) -> Contestant:
    kept: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Tensor) -> None:
            kept[name] = output.detach()

        return hook

    for name, module in select(model).items():
        module.register_forward_hook(keep(name))
    return lambda: model(x)


def hooklab_attached(model: nn.Module, x: Tensor) -> Contestant:
    capture(model).__enter__()
    return lambda: model(x)


FORWARD = {
    "bare": bare,
    "by hand": by_hand,
    "hooklab, one capture reused": hooklab_reused,
    "hooklab, and every value read": hooklab_reading_all,
    "hooklab, names found anew": hooklab_from_scratch,
    "nnsight trace + cache": nnsight_cache,
    "captum LayerActivation (no_grad)": captum_layer_activation,
    "fastai hook_outputs": fastai_hooks,
}
ATTACHED = {"bare": bare, "by hand": by_hand_attached, "hooklab": hooklab_attached}
INPUTS = {"bare": bare, "by hand": by_hand_with_inputs, "hooklab, inputs=True": hooklab_with_inputs}
GRADIENTS = {
    "bare": backward,
    "by hand, forward + tensor hook": by_hand_with_gradients,
    "hooklab, grads=True, one capture reused": hooklab_with_gradients,
    "by hand, full backward hook": full_backward_hooks,
}


def same(a: Any, b: Any) -> bool:
    return isinstance(a, Tensor) and isinstance(b, Tensor) and torch.allclose(a, b, atol=1e-5)
