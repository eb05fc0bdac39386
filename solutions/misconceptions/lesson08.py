"""What people get wrong in lesson 8."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from hooklab.course.lesson08.clinic import layers

# --- 8.1: one family of answers, with parts that can be exchanged


def finite(tensor):
    return bool(tensor.isfinite().all())


def largest_of(args):
    return max(one.abs().max().item() for one in args)


def watching(
    modules=lambda model: list(model.named_modules()),
    came_in=lambda args: all(map(finite, args)),
    is_bad=lambda output: not finite(output),
    largest=largest_of,
    choose=lambda found, model: found[0] if found else None,
    late=False,
    start=list,
):
    def answer(model, x):
        found, handles, latest = start(), [], [""]

        def look(name, args, output):
            if came_in(args) and is_bad(output):
                found.append((latest[0] if late else name, largest(args)))

        for name, module in modules(model):
            latest[0] = name
            handles.append(module.register_forward_hook(lambda m, a, o, name=name: look(name, a, o)))
        model(x)
        for handle in handles:
            handle.remove()
        return choose(found, model)

    return answer


def in_order_of_names(found, model):
    by_name = dict(reversed(found))
    return next(((name, by_name[name]) for name, _ in model.named_modules() if name in by_name), None)


def last_entry_of_each_name(found, model):
    by_name = dict(found)
    return (found[0][0], by_name[found[0][0]]) if found else None


EARLIER: list[Any] = []


# --- 8.2 to 8.7


def treating(diagnosis: tuple[str, str], change: Callable[[Any], Any] = lambda training: None) -> Callable[[Any], Any]:
    def answer(training):
        change(training)
        return diagnosis

    return answer


def rate(value: float) -> Callable[[Any], None]:
    return lambda training: training.optimizer.param_groups[0].update(lr=value)


def adam(training: Any, lr: float = 0.01) -> None:
    training.optimizer = torch.optim.Adam(training.model.parameters(), lr=lr)


def relus(training: Any) -> None:
    training.model = layers(nn.ReLU, 8, spread=2**0.5)


def new_relus(training: Any) -> None:
    relus(training)
    adam(training, 0.003)


def pixels_times(factor: float) -> Callable[[Any], None]:
    return lambda training: setattr(training, "prepare", lambda pixels: factor * pixels)


def mend_head(training: Any) -> None:
    training.model.head.eps = 1e-6


def unhook(training: Any) -> None:
    training.handles[0].remove()


MISCONCEPTIONS: dict[str, dict[str, Any]] = {
    "8.1": {
        "forgotten-return": watching(choose=lambda found, model: None),
        "nan-only": watching(is_bad=lambda output: bool(output.isnan().any())),
        "input-ignored": watching(came_in=lambda args: True),
        "children-only": watching(modules=lambda model: list(model.named_children())),
        "leaves-only": watching(
            modules=lambda model: [pair for pair in model.named_children() if not list(pair[1].children())]
        ),
        "model-left-out": watching(modules=lambda model: list(model.named_modules())[1:]),
        "order-of-names": watching(choose=in_order_of_names),
        "last-of-them": watching(came_in=lambda args: True, choose=lambda found, model: found[-1] if found else None),
        "largest-value": watching(largest=lambda args: max(one.max().item() for one in args)),
        "first-argument": watching(
            came_in=lambda args: finite(args[0]), largest=lambda args: args[0].abs().max().item()
        ),
        "last-argument": watching(
            came_in=lambda args: finite(args[-1]), largest=lambda args: args[-1].abs().max().item()
        ),
        "any-input": watching(came_in=lambda args: any(map(finite, args))),
        "late-binding": watching(late=True),
        "by-name": watching(choose=last_entry_of_each_name, came_in=lambda args: True),
        "first-sample": watching(
            came_in=lambda args: all(finite(one[0]) for one in args), is_bad=lambda output: not finite(output[0])
        ),
        "earlier-call": watching(start=lambda: EARLIER),
        "runs-twice": lambda model, x: (model(x), watching()(model, x))[1],
    },
    "8.2": {
        "takes-it-for-vanishing": treating(("fc1", "vanishing"), rate(0.003)),
        "names-the-last-layer": treating(("out", "dead"), rate(0.003)),
        "nothing-mended": treating(("act1", "dead")),
        "dies-again": treating(("act1", "dead"), rate(0.1)),
        "trained-first": treating(("act1", "dead"), lambda training: training.train()),
    },
    "8.3": {
        "keeps-the-old-optimizer": treating(("fc1", "vanishing"), relus),
        "takes-it-for-saturated": treating(("act1", "saturated"), new_relus),
        "smaller-steps": treating(("fc1", "vanishing"), rate(0.001)),
    },
    "8.4": {
        "second-activation": treating(("act2", "saturated"), pixels_times(1)),
        "takes-it-for-dead": treating(("act1", "dead"), pixels_times(1)),
        "even-larger": treating(("act1", "saturated"), pixels_times(100_000)),
    },
    "8.5": {
        "blames-the-frozen-body": treating(
            ("body.0", "frozen"), lambda training: training.model.body.requires_grad_(True)
        ),
        "takes-it-for-detached": treating(("head", "detached"), adam),
        "thaws-the-body": treating(
            ("head", "not in the optimizer"), lambda training: training.model.body.requires_grad_(True)
        ),
    },
    "8.6": {
        "takes-it-for-frozen": treating(("encoder.0", "frozen"), unhook),
        "takes-it-for-never-called": treating(("encoder.0", "never called"), unhook),
        "names-the-reader": treating(("reader.0", "detached"), unhook),
    },
    "8.7": {
        "names-where-it-arrives": treating(("act1", "nan in the backward"), mend_head),
        "smaller-steps": treating(("head", "nan in the backward"), rate(1e-5)),
        "takes-it-for-exploding": treating(("head", "exploding"), mend_head),
    },
}
