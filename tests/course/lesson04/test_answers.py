"""Unusual right answers to lesson 4's exercises, and wrong ones that no misconception covers."""

import functools
import math

import numpy as np
import torch
from torch import nn

from solutions.misconceptions import lesson04 as parts
from tests.course.exercises.answers import Answers

answers = Answers("4.1", "4.2", "4.3", "4.4", "4.5")
right, wrong = answers.right, answers.wrong


# --- 4.1


right("4.1")(parts.pre_hook(lambda module, args, kwargs: ((2 * args[0],), kwargs), with_kwargs=True))
right("4.1")(parts.pre_hook(lambda module, args: tuple(a + a for a in args), prepend=True))
wrong("4.1", "Your hook returns numbers of another dtype")(parts.doubling(lambda x: x.float() * 2))


# --- 4.2


right("4.2")(parts.guarding(lambda x: (x - x).ne(0).any()))
right("4.2")(parts.guarding(lambda x: not all(map(math.isfinite, x.flatten().tolist()))))
right("4.2")(parts.guarding(lambda x: not np.isfinite(x.detach().numpy()).all()))
wrong("4.2", "Your hook refuses finite numbers", "a large number")(
    parts.guarding(lambda x: (x.abs() > 1e6).any() or x.isnan().any())
)
wrong("4.2", "Not every bad number", "a sequence with a NaN")(parts.guarding(lambda x: x.dim() == 2 and parts.bad(x)))


@wrong("4.2", "`forward` has run before your ValueError")
@parts.pre_hook
def lets_forward_try(module, args):
    parts.refuse_if(parts.bad(module.forward(*args)))


@wrong("4.2", "Your hook refuses the input with another kind")
@parts.pre_hook
def with_another_exception(module, args):
    if parts.bad(args[0]):
        raise RuntimeError


# --- 4.3


@right("4.3")
def fills_in_if_missing(module, default):
    def fill(module, args, kwargs):
        if "scale" in kwargs:
            return None
        return args, {**kwargs, "scale": default}

    return module.register_forward_pre_hook(fill, with_kwargs=True, prepend=True)


@right("4.3")
def bound_default(module, default):
    def fill(scale, module, args, kwargs):
        return (args, {**kwargs, "scale": kwargs.get("scale", scale)})

    return module.register_forward_pre_hook(functools.partial(fill, default), with_kwargs=True)


@wrong("4.3", "Names that `module` doesn't know")
def passes_on_known_names_only(module, default):
    def fill(m, args, kwargs):
        return args, {"scale": default, **{name: kwargs[name] for name in ("x", "scale", "shift") if name in kwargs}}

    return module.register_forward_pre_hook(fill, with_kwargs=True)


defaults = {}


@wrong("4.3", "All calls of your function share one default")
def the_last_default_for_all(module, default):
    defaults["scale"] = default
    return module.register_forward_pre_hook(lambda m, args, kwargs: (args, {**defaults, **kwargs}), with_kwargs=True)


# --- 4.4


@right("4.4")
def with_try_and_finally(model, layer, part, source, target):
    kept = {}
    handle = layer.register_forward_pre_hook(lambda m, args: kept.update(x=args[0].detach().clone()))
    try:
        model(source)
    finally:
        handle.remove()

    def hook(module, args):
        mixed = args[0].clone()
        mixed[part] = kept["x"][part]
        return (mixed,)

    handle = layer.register_forward_pre_hook(hook)
    try:
        return model(target)
    finally:
        handle.remove()


@right("4.4")
def with_a_mask(model, layer, part, source, target):
    kept = []
    with layer.register_forward_pre_hook(lambda m, args: kept.extend(one + 0 for one in args)):
        model(source)
    mask = torch.zeros_like(kept[0], dtype=torch.bool)
    mask[part] = True
    with layer.register_forward_pre_hook(lambda m, args: torch.where(mask, kept[0], args[0])):
        return model(target)


# --- 4.5


right("4.5")(parts.computing(lambda g, v, old: nn.functional.normalize(v, dim=1) * g))
right("4.5")(parts.computing(lambda g, v, old: torch._weight_norm(v, g, 0)))
right("4.5")(parts.computing(lambda g, v, old: torch.diag((g / parts.lengths(v)).flatten()) @ v))
wrong("4.5", "The graph ends in your hook")(parts.computing(lambda g, v, old: parts.normed(g.detach(), v, old)))
wrong("4.5", "You take the norms of the columns")(
    parts.computing(lambda g, v, old: v * 1, length=lambda weight: weight.norm(dim=0, keepdim=True))
)


@wrong("4.5", "Your hook isn't a forward pre-hook")
def in_the_backward_pass(layer):
    parts.split(layer, parts.lengths)
    return layer.register_full_backward_pre_hook(lambda module, grad_output: None)


test_right, test_wrong = answers.tests()
