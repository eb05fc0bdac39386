"""What people get wrong in lesson 4: one small program for each misconception."""

import torch
from torch import nn


def nothing(*_):
    return None


def pre_hook(hook, **options):
    """Register hook(module, args) as a forward pre-hook."""
    return lambda layer: layer.register_forward_pre_hook(hook, **options)


# --- 4.1


def doubling(change):
    """A pre-hook that gives change(x)."""
    return pre_hook(lambda module, args: change(args[0]))


def only_once(layer):
    factors = [2]
    return layer.register_forward_pre_hook(lambda module, args: args[0] * factors.pop() if factors else None)


def its_first_row(x):
    changed = x.clone()
    changed[0] *= 2
    return changed


# --- 4.2


def refuse_if(is_bad):
    if is_bad:
        raise ValueError("not finite")


def guarding(is_bad):
    """A pre-hook that raises if is_bad(x)."""
    return pre_hook(lambda module, args: refuse_if(is_bad(args[0])))


def bad(x):
    return not x.isfinite().all()


# --- 4.3


def returning(give):
    """A pre-hook that returns give(args, kwargs, default, module)."""

    def answer(module, default):
        def hook(module, args, kwargs):
            return give(args, kwargs, default, module)

        return module.register_forward_pre_hook(hook, with_kwargs=True)

    return answer


def filling(change):
    """A pre-hook that gives change(kwargs, default) as the keyword arguments."""
    return returning(lambda args, kwargs, default, _: (args, change(kwargs, default)))


def filled(kwargs, default):
    return {"scale": default, **kwargs}


def without_kwargs(module, default):
    return module.register_forward_pre_hook(lambda m, args, kwargs: (args, filled(kwargs, default)))


def as_an_argument_more(module, default):
    return module.register_forward_pre_hook(lambda m, args: (*args, default))


# --- 4.4


def store(module, args):
    return args[0].clone()


def patching(keep=store, put=None, swap=False, at=None):
    """Keep the layer's input for one pass, and put a part of it into the other one."""

    def answer(model, layer, part, source, target):
        if swap:
            source, target = target, source
        module, kept = at(model, layer) if at else layer, []
        with module.register_forward_pre_hook(lambda m, args: kept.append(keep(m, args))):
            model(source)

        def hook(m, args):
            mixed = args[0].clone()
            mixed[part] = kept[0][part]
            return mixed

        with module.register_forward_pre_hook((lambda m, args: put(args, kept[0], part)) if put else hook):
            return model(target)

    return answer


def written_into(args, kept, part):
    args[0][part] = kept[part]


def not_returned(args, kept, part):
    args[0].clone()[part] = kept[part]


def zeros_around(args, kept, part):
    mixed = torch.zeros_like(kept)
    mixed[part] = kept[part]
    return mixed


def at_the_output(model, layer, part, source, target):
    kept = []
    with layer.register_forward_hook(lambda m, args, out: kept.append(out.clone())):
        model(source)

    def hook(module, args, out):
        mixed = out.clone()
        mixed[part] = kept[0][part]
        return mixed

    with layer.register_forward_hook(hook):
        return model(target)


# --- 4.5


def split(layer, length):
    weight = layer.weight.detach().clone()
    del layer.weight
    layer.weight_g = nn.Parameter(length(weight))
    layer.weight_v = nn.Parameter(weight)


def lengths(v):
    return v.norm(dim=1, keepdim=True)


def computing(formula, name="weight", length=lengths):
    """A pre-hook that sets layer.weight to formula(g, v, the old weight)."""

    def answer(layer):
        split(layer, length)
        old = layer.weight_v.detach().clone()

        def compute(module, args):
            setattr(module, name, formula(module.weight_g, module.weight_v, old))

        return layer.register_forward_pre_hook(compute)

    return answer


def normed(g, v, old):
    return g * v / lengths(v)


def from_other_tensors(layer):
    split(layer, lengths)
    g, v = layer.weight_g.detach().clone(), layer.weight_v.detach().clone()
    return layer.register_forward_pre_hook(lambda module, args: setattr(module, "weight", normed(g, v, None)))


MISCONCEPTIONS = {
    "4.1": {
        "one-mode-only": pre_hook(lambda module, args: None if module.training else args[0] * 2),
        "first-call-only": only_once,
        "tuple-times-two": pre_hook(lambda module, args: args * 2),
        "squared": doubling(lambda x: x**2),
        "two-more": doubling(lambda x: x + 2),
        "halved": doubling(lambda x: x / 2),
        "doubled-twice": doubling(lambda x: x * 4),
        "first-row-only": doubling(its_first_row),
        "half-detached": doubling(lambda x: x + x.detach()),
        "with-kwargs-args-alone": pre_hook(lambda module, args, kwargs: (args[0] * 2,), with_kwargs=True),
    },
    "4.2": {
        "nan-only": guarding(lambda x: x.isnan().any()),
        "infinity-only": guarding(lambda x: x.isinf().any()),
        "one-infinity": guarding(lambda x: (x.isnan() | x.isposinf()).any()),
        "negative-infinity-only": guarding(lambda x: (x.isnan() | x.isneginf()).any()),
        "first-row": guarding(lambda x: bad(x[0])),
        "last-row": guarding(lambda x: bad(x[-1])),
        "first-column": guarding(lambda x: bad(x[..., 0])),
        "all-bad": guarding(lambda x: not x.isfinite().any()),
        "inverted": guarding(lambda x: x.isfinite().all()),
        "any-finite": guarding(lambda x: x.isfinite().any()),
        "not-all-nan": guarding(lambda x: not x.isnan().all()),
        "square": guarding(lambda x: bad(x**2)),
        "sum": guarding(lambda x: bad(x.sum())),
        "mean": guarding(lambda x: bad(x.mean(dim=0))),
        "norm": guarding(lambda x: bad(x.norm())),
        "float32": guarding(lambda x: bad(x.float())),
        "never-raises": pre_hook(nothing),
        "always-raises": guarding(lambda x: True),
        "one-mode-only": pre_hook(lambda module, args: None if module.training else refuse_if(bad(args[0]))),
    },
    "4.3": {
        "overwritten": filling(lambda kwargs, default: {**kwargs, "scale": default}),
        "zero-is-false": filling(lambda kwargs, default: {**kwargs, "scale": kwargs.get("scale") or default}),
        "one-is-a-scale": filling(
            lambda kwargs, default: {**kwargs, "scale": kwargs["scale"] if kwargs.get("scale", 1) != 1 else default}
        ),
        "lost-arguments": filling(lambda kwargs, default: {"scale": kwargs.get("scale", default)}),
        "x-by-name-lost": filling(
            lambda kwargs, default: {"scale": kwargs.get("scale", default), "shift": kwargs.get("shift", 0.0)}
        ),
        "only-without-names": filling(lambda kwargs, default: kwargs or {"scale": default}),
        "multiplied": filling(lambda kwargs, default: {**kwargs, "scale": kwargs.get("scale", 1.0) * default}),
        "zero-default": filling(lambda kwargs, default: filled(kwargs, default) if default else kwargs),
        "largest": filling(lambda kwargs, default: {**kwargs, "scale": max(kwargs.get("scale", default), default)}),
        "args-alone": returning(lambda args, *_: args),
        "pair-reversed": returning(lambda args, kwargs, default, _: (filled(kwargs, default), args)),
        "bare-tensor": returning(
            lambda args, kwargs, default, _: (args[0] if args else kwargs.pop("x"), filled(kwargs, default))
        ),
        "x-by-position": returning(lambda args, kwargs, default, _: ((args[0],), filled(kwargs, default))),
        "copied": returning(lambda args, kwargs, default, _: (tuple(x * 1 for x in args), filled(kwargs, default))),
        "by-position-only": returning(
            lambda args, kwargs, default, _: (args, filled(kwargs, default)) if args else None
        ),
        "without-kwargs": without_kwargs,
        "as-an-argument-more": as_an_argument_more,
        "one-mode-only": returning(
            lambda args, kwargs, default, module: None if module.training else (args, filled(kwargs, default))
        ),
    },
    "4.4": {
        "all-of-it": patching(put=lambda args, kept, part: kept),
        "forgotten-return": patching(put=not_returned),
        "written-into": patching(put=written_into),
        "not-cloned": patching(keep=lambda module, args: args[0]),
        "exchanged": patching(swap=True),
        "at-the-output": at_the_output,
        "at-the-model": patching(at=lambda model, layer: model),
        "zeros-around": patching(put=zeros_around),
        "layer-alone": lambda model, layer, part, source, target: layer(target),
    },
    "4.5": {
        "ones": computing(normed, length=lambda v: torch.ones_like(lengths(v))),
        "computed-once": computing(lambda g, v, old: old),
        "other-tensors": from_other_tensors,
        "not-normalised": computing(lambda g, v, old: g * v),
        "first-length": computing(lambda g, v, old: g * v / lengths(old)),
        "one-norm": computing(lambda g, v, old: g * v / v.norm()),
        "norm-of-columns": computing(lambda g, v, old: g * v / v.norm(dim=0, keepdim=True)),
        "v-alone": computing(lambda g, v, old: v),
        "g-unused": computing(lambda g, v, old: v / lengths(v)),
        "v-unused": computing(lambda g, v, old: g * old / lengths(old)),
        "absolute": computing(lambda g, v, old: g.abs() * v / lengths(v)),
        "norm-cut-off": computing(lambda g, v, old: g * v / lengths(v.detach())),
        "no-weight": computing(normed, name="weights"),
    },
}
