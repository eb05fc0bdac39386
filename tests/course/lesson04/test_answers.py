"""Unusual right answers to lesson 4's exercises, and wrong ones that no misconception covers."""

import functools
import math

import numpy as np
import torch
from torch import nn

from tests.course.exercises.answers import Answers

answers = Answers("4.1", "4.2", "4.3", "4.4", "4.5")
right, wrong = answers.right, answers.wrong


# --- 4.1


@right("4.1")
def with_kwargs(layer):
    return layer.register_forward_pre_hook(lambda m, args, kwargs: ((2 * args[0],), kwargs), with_kwargs=True)


@right("4.1")
def every_argument(layer):
    return layer.register_forward_pre_hook(lambda m, args: tuple(a + a for a in args), prepend=True)


@wrong("4.1", "Your hook returns numbers of another dtype")
def only_float32(layer):
    return layer.register_forward_pre_hook(lambda module, args: args[0].float() * 2)


# --- 4.2


def guard(refuses, error=ValueError, **options):
    def register(layer):
        def look(module, args, *kwargs):
            if refuses(args[0]):
                raise error("not finite")

        return layer.register_forward_pre_hook(look, **options)

    return register


right("4.2")(guard(lambda x: (x - x).ne(0).any()))
right("4.2")(guard(lambda x: not all(map(math.isfinite, x.flatten().tolist()))))
right("4.2")(guard(lambda x: not np.isfinite(x.detach().numpy()).all(), prepend=True))
right("4.2")(guard(lambda x: (x * 0).sum() != 0, with_kwargs=True))
wrong("4.2", "Your hook refuses finite numbers", "a large number")(
    guard(lambda x: (x.abs() > 1e6).any() or x.isnan().any())
)
wrong("4.2", "Not every bad number", "a sequence with a NaN")(guard(lambda x: x.dim() == 2 and not x.isfinite().all()))
wrong("4.2", "Your hook refuses the input with another kind")(guard(lambda x: not x.isfinite().all(), RuntimeError))


@wrong("4.2", "`forward` has run before your ValueError")
def lets_forward_try(layer):
    def try_it(module, args):
        if not module.forward(*args).isfinite().all():
            raise ValueError

    return layer.register_forward_pre_hook(try_it)


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


def split(layer):
    start = layer.weight.detach().clone()
    del layer.weight
    layer.weight_g = nn.Parameter(start.norm(dim=1, keepdim=True))
    layer.weight_v = nn.Parameter(start)


def normed(formula, **options):
    """An answer whose hook computes the weight by a formula."""

    def register(layer):
        split(layer)
        start = layer.weight_v.detach().clone()

        def compute(module, args, *kwargs):
            module.weight = formula(module.weight_g, module.weight_v, start)

        return layer.register_forward_pre_hook(compute, **options)

    return register


right("4.5")(normed(lambda g, v, start: nn.functional.normalize(v, dim=1) * g))
right("4.5")(normed(lambda g, v, start: torch._weight_norm(v, g, 0), with_kwargs=True))
right("4.5")(normed(lambda g, v, start: torch.diag((g / v.norm(dim=1, keepdim=True)).flatten()) @ v))
wrong("4.5", "The graph ends in your hook")(normed(lambda g, v, start: g.detach() * v / v.norm(dim=1, keepdim=True)))


@wrong("4.5", "You take the norms of the columns")
def lengths_of_columns(layer):
    start = layer._parameters.pop("weight").detach()
    layer.weight_g, layer.weight_v = nn.Parameter(start.norm(dim=0, keepdim=True)), nn.Parameter(start)
    return layer.register_forward_pre_hook(lambda module, args: setattr(module, "weight", module.weight_v * 1))


@wrong("4.5", "Your hook isn't a forward pre-hook")
def in_the_backward_pass(layer):
    split(layer)
    return layer.register_full_backward_pre_hook(lambda module, grad_output: None)


test_right, test_wrong = answers.tests()
