"""Unusual right answers to lesson 4's exercises, and wrong ones: none is misjudged, and no reason is untrue.

A wrong answer comes with the beginning of the one reason that is true, or None where the check can know none.
"""

import functools
import math
import warnings
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn
from torch.nn.modules import module as torch_module

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


@right("4.1")
def partial_as_a_hook(layer):
    def scale(factor, module, args):
        return args[0].mul(factor)

    return layer.register_forward_pre_hook(functools.partial(scale, 2))


@right("4.1")
def method_as_a_hook(layer):
    class Doubler:
        def hook(self, module, args):
            return (torch.add(*args, *args),)

    return layer.register_forward_pre_hook(Doubler().hook)


@right("4.1")
def in_place_on_a_clone(layer):
    return nn.Module.register_forward_pre_hook(layer, lambda module, args: args[0].clone().mul_(2.0))


@right("4.1")
def own_handle(layer):
    handle = layer.register_forward_pre_hook(lambda module, args: (args[0] / 0.5,))
    return SimpleNamespace(remove=lambda: handle.remove())


@wrong("4.1", says="after handle.remove() another of your hooks is still registered")
def looks_at_the_result(layer):
    layer.register_forward_hook(lambda module, args, output: None)
    return layer.register_forward_pre_hook(lambda module, args: args[0] * 2)


@wrong("4.1", says="after handle.remove() the layer still gets a changed input")
def a_handle_that_removes_nothing(layer):
    layer.register_forward_pre_hook(lambda module, args: args[0] * 2)
    return SimpleNamespace(remove=lambda: None)


@wrong("4.1", says="your code replaced `forward` on the module")
def new_forward(layer):
    forward = layer.forward
    layer.forward = lambda x: forward(2 * x)
    return layer.register_forward_pre_hook(lambda module, args: None)


@wrong("4.1", says="got the input as it was")
def only_in_training(layer):
    return layer.register_forward_pre_hook(lambda module, args: args[0] * 2 if module.training else args[0])


@wrong("4.1", says="in evaluation mode, the layer got the input as it was")
def returns_in_training_only(layer):
    return layer.register_forward_pre_hook(lambda module, args: args[0] * 2 if module.training else None)


@wrong("4.1", "Your hook removes itself")
def removes_itself(layer):
    def hook(module, args):
        handle.remove()
        return args[0] * 2

    handle = layer.register_forward_pre_hook(hook)
    return handle


@wrong("4.1", says="did not get twice the input")
def only_the_first_row(layer):
    def hook(module, args):
        x = args[0].clone()
        x[0] = 2 * x[0]
        return x

    return layer.register_forward_pre_hook(hook)


@wrong("4.1", says="did not get twice the input")
def only_positive(layer):
    return layer.register_forward_pre_hook(lambda module, args: args[0].abs() * 2)


@wrong("4.1", "A handle's remove()", says="removed a hook that was already there")
def takes_away_the_others(layer):
    layer._forward_pre_hooks.clear()
    return layer.register_forward_pre_hook(lambda module, args: args[0] * 2)


@wrong("4.1", says="your hook runs for every module in this process")
def on_every_module(layer):
    return torch_module.register_module_forward_pre_hook(lambda module, args: args[0] * 2)


@wrong("4.1", "`x *= 2`", says="changed the parameter 'weight' in place")
def doubles_the_weight(layer):
    with torch.no_grad():
        layer.weight.mul_(2)
    return layer.register_forward_pre_hook(lambda module, args: None)


@wrong("4.1", says="the layer got something else than one tensor")
def tuple_in_a_tuple(layer):
    return layer.register_forward_pre_hook(lambda module, args: ((args[0] * 2,),))


@wrong("4.1", "`with` removes the hook at the end")
def in_a_with(layer):
    with layer.register_forward_pre_hook(lambda module, args: args[0] * 2) as handle:
        return handle


@wrong("4.1", "cut off")
def without_gradient(layer):
    @torch.no_grad()
    def hook(module, args):
        return args[0] * 2

    return layer.register_forward_pre_hook(hook)


@wrong("4.1", says="expected  [[2, 4]]")
def two_hooks(layer):
    layer.register_forward_pre_hook(lambda module, args: args[0] * 2)
    return layer.register_forward_pre_hook(lambda module, args: args[0] * 2)


@wrong("4.1", "no hook: nothing is registered on the module")
def hook_on_the_bias(layer):
    return layer.bias.register_hook(lambda grad: grad * 2)


@wrong("4.1", says="raised TypeError")
def lacks_an_argument(layer):
    def scaled(by, x):
        return by * x

    return layer.register_forward_pre_hook(lambda module, args: scaled(args[0]))


@wrong("4.1", "not the pair")
def with_kwargs_but_args_alone(layer):
    return layer.register_forward_pre_hook(lambda m, args, kwargs: (args[0] * 2,), with_kwargs=True)


@wrong("4.1", "no dictionary behind args")
def keyword_arguments_first(layer):
    return layer.register_forward_pre_hook(lambda m, args, kwargs: (kwargs, (args[0] * 2,)), with_kwargs=True)


@wrong("4.1", "called instead of handed over")
def hook_called_at_once(layer):
    def hook(module=None, args=()):
        return args[0] * 2 if args else None

    return layer.register_forward_pre_hook(hook())


@wrong("4.1", says="forward ran 2 times in one call")
def forward_once_more(layer):
    return layer.register_forward_hook(lambda module, args, output: module.forward(args[0] * 2))


@wrong("4.1", says="the layer got numbers of another dtype")
def only_float32(layer):
    return layer.register_forward_pre_hook(lambda module, args: args[0].float() * 2)


@wrong("4.1", says="the right gradient does not come back to the input")
def on_every_part(layer):
    handles = [part.register_forward_pre_hook(lambda module, args: args[0] * 2) for part in layer.modules()]
    return handles[0]


@wrong("4.1", says="the hook table that your handle belongs to is gone")
def hook_of_a_module_that_is_gone(layer):
    return nn.Linear(2, 1).register_forward_pre_hook(lambda module, args: args[0] * 2)


@wrong("4.1", "`with` removes the hook at the end of its block, remove() at once")
def removed_as_in_the_script(layer):
    handle = layer.register_forward_pre_hook(lambda module, args: args[0] * 2)
    handle.remove()
    return handle


@wrong("4.1", "cut off: .data, .detach(), no_grad() or a new tensor")
def by_python_numbers(layer):
    return layer.register_forward_pre_hook(lambda module, args: torch.tensor(args[0].tolist()) * 2)


# --- 4.2


def guard(refuses, error=ValueError, **options):
    def register(layer):
        def look(module, args, *kwargs):
            if refuses(args[0]):
                raise error("not finite")

        return layer.register_forward_pre_hook(look, **options)

    return register


class NotFinite(ValueError):
    pass


right("4.2")(guard(lambda x: (torch.isnan(x) | torch.isinf(x)).any(), with_kwargs=True))
right("4.2")(guard(lambda x: (x - x).ne(0).any()))
right("4.2")(guard(lambda x: not torch.isfinite(x.abs().max())))
right("4.2")(guard(lambda x: not all(map(math.isfinite, x.flatten().tolist())), NotFinite))
right("4.2")(guard(lambda x: not torch.equal(torch.nan_to_num(x), x)))
right("4.2")(guard(lambda x: not np.isfinite(x.detach().numpy()).all(), prepend=True))
right("4.2")(guard(lambda x: (x * 0).sum() != 0))
right("4.2")(guard(lambda x: bool(torch.logical_not(x.isfinite()).sum())))


@right("4.2")
def hands_the_arguments_on(layer):
    def look(module, args):
        (x,) = args
        if not x.isfinite().all().item():
            raise NotFinite
        return args

    return layer.register_forward_pre_hook(look)


wrong("4.2", "a bound")(guard(lambda x: not (x.abs() < 100).all()))
wrong("4.2", "a bound")(guard(lambda x: (x.abs() > 1e6).any() or x.isnan().any()))
wrong("4.2", "a sum")(guard(lambda x: not torch.isfinite(x.sum())))
wrong("4.2", "a sum or a mean")(guard(lambda x: not torch.isfinite(x.mean(dim=0)).all()))
wrong("4.2", "a norm")(guard(lambda x: not torch.isfinite(x.norm())))
wrong("4.2", "a bound, or a square")(guard(lambda x: not torch.isfinite(x.pow(2)).all()))
wrong("4.2", "only its last row")(guard(lambda x: not torch.isfinite(x[-1]).all()))
wrong("4.2", "only its first row")(guard(lambda x: not torch.isfinite(x[0]).all()))
wrong("4.2", "only NaN")(guard(lambda x: (x != x).any()))
wrong("4.2", "only the infinities")(guard(lambda x: torch.isinf(x).any()))
wrong("4.2", "only one infinity")(guard(lambda x: not (x < float("inf")).all()))
wrong("4.2")(guard(lambda x: not torch.isfinite(x[:, 0]).all()))
wrong("4.2")(guard(lambda x: x.sum() != x.sum()))
wrong("4.2", "any and all")(guard(lambda x: not torch.isfinite(x).any()))
wrong("4.2", "turned around")(guard(lambda x: torch.isfinite(x).all()))
wrong("4.2", "the hook always raises")(guard(lambda x: True))
wrong("4.2", "the hook never raises")(guard(lambda x: False))
wrong("4.2", says="got       RuntimeError: not finite, at line")(guard(lambda x: not x.isfinite().all(), RuntimeError))
wrong("4.2", says="got       AssertionError")(guard(lambda x: not x.isfinite().all(), AssertionError))
wrong("4.2", says="a number too large for float32 was refused")(guard(lambda x: not x.float().isfinite().all()))
wrong("4.2", says="one number near the largest of all was refused")(guard(lambda x: not (x.abs() < 1e38).all()))
wrong("4.2", says="two very large numbers was refused")(guard(lambda x: not torch.isfinite(x.prod())))
wrong("4.2", says="a sequence with a NaN was let in")(guard(lambda x: x.dim() == 2 and not x.isfinite().all()))
wrong("4.2", says="raised RuntimeError: Boolean value of Tensor with more than one value is ambiguous, at line")(
    guard(lambda x: x.isnan())
)
wrong("4.2", says="one still larger number was refused")(guard(lambda x: (x.long() == -(2**63)).any()))


@wrong("4.2", says="in evaluation mode, an input with a NaN was let in")
def guards_in_training(layer):
    def look(module, args):
        if module.training and not args[0].isfinite().all():
            raise ValueError

    return layer.register_forward_pre_hook(look)


@wrong("4.2", "Your hook removes itself")
def guards_once(layer):
    def look(module, args):
        if not args[0].isfinite().all():
            handle.remove()
            raise ValueError

    handle = layer.register_forward_pre_hook(look)
    return handle


@wrong("4.2", "too much: a guard looks")
def cleans(layer):
    return layer.register_forward_pre_hook(lambda module, args: args[0].nan_to_num())


@wrong("4.2", "`x *= 2`", says="changed a tensor that it was given in place")
def cleans_in_place(layer):
    def clean(module, args):
        args[0].nan_to_num_()

    return layer.register_forward_pre_hook(clean)


@wrong("4.2", "the hook never raises")
def looks_at_the_weight(layer):
    def look(module, args):
        if not module.weight.isfinite().all():
            raise ValueError

    return layer.register_forward_pre_hook(look)


@wrong("4.2", "`x *= 2`", says="changed a tensor that it was given in place")
def cleans_and_raises(layer):
    def clean(module, args):
        if not args[0].isfinite().all():
            args[0].data.nan_to_num_()
            raise ValueError

    return layer.register_forward_pre_hook(clean)


@wrong("4.2", "`x *= 2`", says="changed a tensor that it was given in place")
def mends_what_it_refuses(layer):
    def guard(module, args):
        if not args[0].isfinite().all():
            args[0].nan_to_num_()
            raise ValueError

    return layer.register_forward_pre_hook(guard)


@wrong("4.2", says="from False to True")
def asks_for_gradients(layer):
    def look(module, args):
        args[0].requires_grad_()
        if not args[0].isfinite().all():
            raise ValueError

    return layer.register_forward_pre_hook(look)


@wrong("4.2", says="your code replaced `forward` on the module")
def guards_in_a_new_forward(layer):
    forward = layer.forward

    def guarded(x):
        if not x.isfinite().all():
            raise ValueError
        return forward(x)

    layer.forward = guarded
    return layer.register_forward_pre_hook(lambda module, args: None)


@wrong("4.2", "only NaN")
def looks_for_nan_beside_a_forward_hook(layer):
    layer.register_forward_hook(lambda module, args, output: None)
    return guard(lambda x: x.isnan().any())(layer)


@wrong("4.2", says="forward had already run when the error came")
def lets_forward_try(layer):
    def try_it(module, args):
        if not module.forward(*args).isfinite().all():
            raise ValueError

    return layer.register_forward_pre_hook(try_it)


@wrong("4.2", says="after handle.remove() another of your hooks is still registered")
def another_handle_than_the_guards(layer):
    guard(lambda x: not x.isfinite().all())(layer)
    return layer.register_forward_pre_hook(lambda module, args: None)


@wrong("4.2", says="after handle.remove() another of your hooks is still registered")
def a_second_hook_that_looks(layer):
    def guard(module, args):
        if not args[0].isfinite().all():
            raise ValueError

    layer.register_forward_hook(lambda module, args, output: None)
    return layer.register_forward_pre_hook(guard)


@wrong("4.2", says="your code replaced `forward` on the module")
def cleans_behind_the_guard(layer):
    forward = layer.forward
    layer.forward = lambda x: forward(x if x.isfinite().all() else x.nan_to_num())

    def guard(module, args):
        if not args[0].isfinite().all():
            raise ValueError

    return layer.register_forward_pre_hook(guard)


# --- 4.3


@right("4.3")
def fills_in_place(module, default):
    def fill(module, args, kwargs):
        kwargs.setdefault("scale", default)

    return module.register_forward_pre_hook(fill, with_kwargs=True)


@right("4.3")
def fills_in_if_missing(module, default):
    def fill(module, args, kwargs):
        if "scale" in kwargs:
            return None
        return args, {**kwargs, "scale": default}

    return module.register_forward_pre_hook(fill, with_kwargs=True, prepend=True)


@right("4.3")
def merges(module, default):
    return module.register_forward_pre_hook(lambda m, a, k: (a, {"scale": default} | k), with_kwargs=True)


@right("4.3")
def names_all_defaults(module, default):
    return module.register_forward_pre_hook(
        lambda m, a, k: (a, {"shift": 0.0, "scale": default, **k}), with_kwargs=True
    )


@right("4.3")
def bound_default(module, default):
    def fill(scale, module, args, kwargs):
        return (args, {**kwargs, "scale": kwargs.get("scale", scale)})

    return module.register_forward_pre_hook(functools.partial(fill, default), with_kwargs=True)


def filling(change):
    """An answer whose hook gives these keyword arguments."""

    def register(module, default):
        return module.register_forward_pre_hook(lambda m, args, k: (args, change(k, default)), with_kwargs=True)

    return register


wrong("4.3", "overwritten")(filling(lambda k, default: {**k, "scale": default}))
wrong("4.3", "truth instead of presence")(filling(lambda k, default: {**k, "scale": k.get("scale") or default}))
wrong("4.3", "lost arguments")(filling(lambda k, default: {"scale": k.get("scale", default)}))
wrong("4.3", says="got       scale = 20, shift = 0, and x itself")(
    filling(lambda k, default: {"scale": 2.0 * default, **k})
)
wrong("4.3", says="register raised TypeError: dict() got multiple values for keyword argument 'scale'")(
    filling(lambda k, default: dict(scale=default, **k))
)
wrong("4.3", says="got       ((), {'scale': 10.0, 'shift': 0.0}) from your hook")(
    filling(lambda k, default: {"scale": k.get("scale", default), "shift": k.get("shift", 0.0)})
)
wrong("4.3")(filling(lambda k, default: {"scale": default, **k} if "shift" in k else k))
wrong("4.3")(filling(lambda k, default: {**k, "scale": max(k.get("scale", default), default)}))
wrong("4.3")(filling(lambda k, default: {**k, "scale": k.get("scale", 1.0) * default}))
wrong("4.3")(filling(lambda k, default: {"scale": default, **k} if default else k))
wrong("4.3", "the module's own default, when a caller names it")(
    filling(lambda k, default: {**k, "scale": default if k.get("scale", 1.0) == 1.0 else k["scale"]})
)


@wrong("4.3", says="in evaluation mode, module(x) does not get what it should")
def fills_in_training(module, default):
    return module.register_forward_pre_hook(
        lambda m, args, k: (args, {"scale": default, **k} if m.training else k), with_kwargs=True
    )


@wrong("4.3", "a bare tensor in place of args", "from your hook")
def takes_the_tensor_out(module, default):
    return module.register_forward_pre_hook(
        lambda m, args, kwargs: (args[0] if args else kwargs.pop("x"), {"scale": default, **kwargs}), with_kwargs=True
    )


@wrong("4.3", says="IndexError")
def expects_x_by_position(module, default):
    return module.register_forward_pre_hook(
        lambda m, args, kwargs: ((args[0],), {"scale": default, **kwargs}), with_kwargs=True
    )


@wrong("4.3", says="x itself")
def changes_x(module, default):
    return module.register_forward_pre_hook(
        lambda m, args, kwargs: (tuple(a * 1 for a in args), {"scale": default, **kwargs}), with_kwargs=True
    )


@wrong("4.3", says="another module of the same class has the new default, too")
def changes_the_class(module, default):
    type(module).forward.__kwdefaults__["scale"] = default
    return module.register_forward_pre_hook(lambda m, args: None)


@wrong("4.3", "Your hook removes itself")
def fills_in_once(module, default):
    def fill(m, args, kwargs):
        handle.remove()
        return args, {"scale": default, **kwargs}

    handle = module.register_forward_pre_hook(fill, with_kwargs=True)
    return handle


@wrong("4.3", "forward hook")
def scales_the_output(module, default):
    return module.register_forward_hook(lambda m, args, kwargs, out: out * default, with_kwargs=True)


@wrong("4.3", says="returns something else than forward does")
def rounds_the_output_as_well(module, default):
    module.register_forward_hook(lambda m, args, out: out + 1)
    return merges_of(module, default)


@wrong("4.3", says="got       ([1, 2], 10.0) from your hook")
def one_argument_more(module, default):
    return module.register_forward_pre_hook(lambda m, args: (*args, default))


@wrong("4.3", says="module(x) runs forward 2 times")
def runs_forward_again(module, default):
    return module.register_forward_hook(
        lambda m, args, kwargs, out: m.forward(*args, **{"scale": default, **kwargs}), with_kwargs=True
    )


@wrong("4.3", says="module(x, factor=2) runs")
def passes_on_known_names_only(module, default):
    known = ("x", "scale", "shift")
    return filling(lambda k, default: {"scale": default, **{n: k[n] for n in known if n in k}})(module, default)


def merges_of(module, default):
    return module.register_forward_pre_hook(lambda m, a, k: (a, {"scale": default, **k}), with_kwargs=True)


@wrong("4.3", says="after handle.remove() another of your hooks is still registered")
def a_second_hook_that_only_looks(module, default):
    module.register_forward_pre_hook(lambda m, args: None)
    return merges_of(module, default)


@wrong("4.3", says="got       scale = 10")
def another_handle_than_the_hooks(module, default):
    module.register_forward_pre_hook(lambda m, args, kwargs: (args, {"scale": default} | kwargs), with_kwargs=True)
    return module.register_forward_pre_hook(lambda m, args: None)


@wrong("4.3", says="module(x=x) does not get what it should")
def fills_in_where_x_came_by_position(module, default):
    return module.register_forward_pre_hook(
        lambda m, args, kwargs: (args, {"scale": default} | kwargs) if args else None, with_kwargs=True
    )


# --- 4.4


@right("4.4")
def moves_to_the_front(layer, hook):
    handle = layer.register_forward_pre_hook(hook)
    layer._forward_pre_hooks.move_to_end(handle.id, last=False)
    return handle


@right("4.4")
def keeps_the_entries(layer, hook):
    old = dict(layer._forward_pre_hooks)
    handle = layer.register_forward_pre_hook(hook)
    for key, value in old.items():
        del layer._forward_pre_hooks[key]
        layer._forward_pre_hooks[key] = value
    return handle


@right("4.4")
def calls_it_from_another(layer, hook):
    return layer.register_forward_pre_hook(lambda module, args: hook(module, args), prepend=True)


@right("4.4")
def calls_it_with_kwargs(layer, hook):
    return layer.register_forward_pre_hook(lambda m, a, k: (hook(m, a), k), with_kwargs=True, prepend=True)


@right("4.4")
def by_position(layer, hook):
    options = {"prepend": bool(layer._forward_pre_hooks)}
    return nn.Module.register_forward_pre_hook(layer, hook, **options)


@wrong("4.4", "order of registration")
def last(layer, hook):
    return layer.register_forward_pre_hook(hook, prepend=False)


@wrong("4.4", says="after handle.remove() another of your hooks is still registered")
def looks_as_well(layer, hook):
    layer.register_forward_hook(lambda module, args, output: None)
    return layer.register_forward_pre_hook(hook, prepend=True)


@wrong("4.4", "never remove hooks that are not yours")
def registers_all_anew(layer, hook):
    old = list(layer._forward_pre_hooks.values())
    layer._forward_pre_hooks.clear()
    handle = layer.register_forward_pre_hook(hook)
    for each in old:
        layer.register_forward_pre_hook(each)
    return handle


@wrong("4.4")
def knows_the_old_hook(layer, hook):
    return layer.register_forward_pre_hook(lambda module, args: ((args[0] - 1) * 10 + 1,))


@wrong("4.4", says="your hook runs for every module in this process")
def before_everybody(layer, hook):
    return torch_module.register_module_forward_pre_hook(hook)


@wrong("4.4", "the new hook does not run before forward")
def after_forward(layer, hook):
    return layer.register_forward_hook(lambda module, args, output: hook(module, args)[0], prepend=True)


@wrong("4.4", says="in evaluation mode, the two hooks")
def first_in_training(layer, hook):
    return layer.register_forward_pre_hook(lambda m, args: hook(m, args) if m.training else None, prepend=True)


@wrong("4.4")
def twice(layer, hook):
    layer.register_forward_pre_hook(hook)
    return layer.register_forward_pre_hook(hook, prepend=True)


@wrong("4.4", "Return what register_", says="did not return the handle")
def gives_the_id(layer, hook):
    return layer.register_forward_pre_hook(hook, prepend=True).id


@wrong("4.4", "Your hook removes itself")
def first_once(layer, hook):
    def once(module, args):
        handle.remove()
        return hook(module, args)

    handle = layer.register_forward_pre_hook(once, prepend=True)
    return handle


@wrong("4.4", says="the handle does not remove the new hook alone")
def another_handle(layer, hook):
    layer.register_forward_pre_hook(hook, prepend=True)
    return layer.register_forward_pre_hook(lambda module, args: None)


@wrong("4.4", says="the layer got something else than one tensor")
def hands_on_an_array(layer, hook):
    return layer.register_forward_pre_hook(lambda module, args: hook(module, args)[0].numpy(), prepend=True)


@wrong("4.4", says="the old hooks do not run in their order")
def moves_the_first_one_behind(layer, hook):
    handle = layer.register_forward_pre_hook(hook)
    layer._forward_pre_hooks.move_to_end(next(iter(layer._forward_pre_hooks)))
    return handle


@wrong("4.4", says="the old hooks do not run in their order")
def turns_the_line_around(layer, hook):
    handle = layer.register_forward_pre_hook(hook)
    for key in reversed(list(layer._forward_pre_hooks)):
        layer._forward_pre_hooks.move_to_end(key)
    return handle


@wrong("4.4", "wrapped twice", says="the hook behind the new one gets a tuple")
def wraps_what_it_returns(layer, hook):
    return layer.register_forward_pre_hook(lambda module, args: (hook(module, args),), prepend=True)


@wrong("4.4", says="`hook` does not get what a pre-hook gets")
def hides_the_module(layer, hook):
    return layer.register_forward_pre_hook(lambda module, args: hook(None, args), prepend=True)


@wrong("4.4", "The exception gets lost", says="`hook` raised an exception, and your code hid it")
def goes_on_without_it(layer, hook):
    def careful(module, args):
        try:
            return hook(module, args)
        except Exception:
            return None

    return layer.register_forward_pre_hook(careful, prepend=True)


@wrong("4.4", says="`hook` does not get what a pre-hook gets")
def in_front_of_every_part(layer, hook):
    handles = [part.register_forward_pre_hook(hook, prepend=True) for part in layer.modules()]
    return handles[0]


@wrong("4.4", says="the hook table that your handle belongs to is gone")
def makes_a_new_table(layer, hook):
    handle, old = layer.register_forward_pre_hook(hook), layer._forward_pre_hooks
    layer._forward_pre_hooks = type(old)([(handle.id, hook), *[one for one in old.items() if one[0] != handle.id]])
    return handle


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
right("4.5")(normed(lambda g, v, start: g * v / v.pow(2).sum(1, keepdim=True).sqrt(), prepend=True))
right("4.5")(normed(lambda g, v, start: torch.diag((g / v.norm(dim=1, keepdim=True)).flatten()) @ v))


@right("4.5")
def weight_as_a_buffer(layer):
    weight = layer._parameters.pop("weight").detach()
    layer.register_parameter("weight_v", nn.Parameter(weight.clone()))
    layer.register_parameter("weight_g", nn.Parameter(torch.linalg.vector_norm(weight, dim=1, keepdim=True)))
    layer.register_buffer("weight", weight)

    def compute(module, args):
        module.weight = module.weight_g * (module.weight_v / module.weight_v.norm(dim=1, keepdim=True))
        return args

    return layer.register_forward_pre_hook(compute)


wrong("4.5", "not normalised")(normed(lambda g, v, start: g * v))
wrong("4.5", "computed once")(normed(lambda g, v, start: start))
wrong("4.5", "the first length")(normed(lambda g, v, start: g * v / start.norm(dim=1, keepdim=True)))
wrong("4.5", "weight_v alone")(normed(lambda g, v, start: v))
wrong("4.5", "weight_g is not used")(normed(lambda g, v, start: v / v.norm(dim=1, keepdim=True)))
wrong("4.5", "one norm for the whole matrix")(normed(lambda g, v, start: g * v / v.norm()))
wrong("4.5", "the norm of the columns")(normed(lambda g, v, start: g * v / v.norm(dim=0, keepdim=True)))
wrong("4.5", "cut off in part")(normed(lambda g, v, start: g * v / v.detach().norm(dim=1, keepdim=True)))
wrong("4.5", "cut off:")(normed(lambda g, v, start: (g * v / v.norm(dim=1, keepdim=True)).detach()))
wrong("4.5")(normed(lambda g, v, start: g.detach() * v / v.norm(dim=1, keepdim=True)))
wrong("4.5")(normed(lambda g, v, start: g.abs() * v / v.norm(dim=1, keepdim=True)))


@wrong("4.5", "forward hook")
def one_call_late(layer):
    split(layer)

    def compute(module, args, output=None):
        module.weight = module.weight_g * module.weight_v / module.weight_v.norm(dim=1, keepdim=True)

    compute(layer, ())
    return layer.register_forward_hook(compute)


@wrong("4.5", says="after handle.remove() another of your hooks is still registered")
def looks_at_the_output(layer):
    layer.register_forward_hook(lambda module, args, output: None)
    return normed(lambda g, v, start: g * v / v.norm(dim=1, keepdim=True))(layer)


@wrong("4.5", "Your hook removes itself")
def computed_in_one_pass(layer):
    split(layer)

    def compute(module, args):
        handle.remove()
        module.weight = module.weight_g * module.weight_v / module.weight_v.norm(dim=1, keepdim=True)

    handle = layer.register_forward_pre_hook(compute)
    return handle


@wrong("4.5", "the first length")
def lengths_of_the_old_weight_in_its_own_memory(layer):
    layer.weight_v = layer._parameters.pop("weight")
    layer.weight_g = nn.Parameter(layer.weight_v.detach().norm(dim=1, keepdim=True))
    lengths = layer.weight_g.detach().clone()

    def compute(module, args):
        module.weight = module.weight_g * module.weight_v / lengths

    return layer.register_forward_pre_hook(compute)


@wrong("4.5", "the norm of the columns", "weight_g is not one length for each row")
def lengths_of_columns(layer):
    start = layer._parameters.pop("weight").detach()
    layer.weight_g, layer.weight_v = nn.Parameter(start.norm(dim=0, keepdim=True)), nn.Parameter(start)
    return layer.register_forward_pre_hook(lambda module, args: setattr(module, "weight", module.weight_v * 1))


@wrong("4.5", "keepdim is missing")
def flat_lengths(layer):
    split(layer)
    layer.weight_g = nn.Parameter(layer.weight_v.detach().norm(dim=1))


@wrong("4.5", "cut off:")
def a_new_parameter_each_time(layer):
    split(layer)

    def compute(module, args):
        v = module.weight_v
        module.weight = nn.Parameter(module.weight_g * v / v.norm(dim=1, keepdim=True))

    return layer.register_forward_pre_hook(compute)


@wrong("4.5", says="in evaluation mode, new values of weight_g and weight_v do not give")
def computed_in_training(layer):
    split(layer)

    def compute(module, args):
        if module.training or not hasattr(module, "weight"):
            module.weight = module.weight_g * module.weight_v / module.weight_v.norm(dim=1, keepdim=True)

    return layer.register_forward_pre_hook(compute)


@wrong("4.5", says="weight_g has another dtype")
def float32_lengths(layer):
    split(layer)
    layer.weight_g = nn.Parameter(layer.weight_g.detach().float())
    return layer.register_forward_pre_hook(
        lambda m, a: setattr(m, "weight", m.weight_g * m.weight_v / m.weight_v.norm(dim=1, keepdim=True))
    )


@wrong("4.5", says="'Linear' object has no attribute 'weight', at line")
def reads_the_weight_that_it_has_deleted(layer):
    split(layer)

    def compute(module, args):
        module.weight = module.weight_g * module.weight / module.weight.norm(dim=1, keepdim=True)

    return layer.register_forward_pre_hook(compute)


@wrong("4.5", says="'Linear' object has no attribute 'weights', at line")
def misspells_the_weight(layer):
    split(layer)
    return layer.register_forward_pre_hook(lambda module, args: print(module.weights))


@wrong("4.5", "no nn.Parameter")
def plain_tensors(layer):
    weight = layer.weight.detach().clone()
    del layer.weight
    layer.weight_v, layer.weight_g = weight, weight.norm(dim=1, keepdim=True)


@wrong("4.5", says="after handle.remove() the weight still follows weight_g")
def torchs_old_weight_norm(layer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nn.utils.weight_norm(layer)
    return layer.register_forward_pre_hook(lambda module, args: None)


@wrong("4.5", says="got       bias, parametrizations.weight.original0")
def torchs_new_weight_norm(layer):
    nn.utils.parametrizations.weight_norm(layer)
    return layer.register_forward_pre_hook(lambda module, args: None)


@wrong("4.5", says="got       [[-1.09")
def twice_the_gradient(layer):
    handle = normed(lambda g, v, start: g * v / v.norm(dim=1, keepdim=True))(layer)
    layer.weight_g.register_hook(lambda grad: 2 * grad)
    return handle


@wrong("4.5", says="weight_v does not start as the old weight")
def directions_of_length_one(layer):
    split(layer)
    layer.weight_v = nn.Parameter(nn.functional.normalize(layer.weight_v.detach(), dim=1))
    return layer.register_forward_pre_hook(lambda m, a: setattr(m, "weight", m.weight_g * m.weight_v))


@wrong("4.1", says="the layer got a list in place of a tensor")
def as_plain_numbers(layer):
    return layer.register_forward_pre_hook(lambda module, args: (2 * args[0]).tolist())


@wrong("4.4", "a list counts as one argument", says="gets a list in the place of the tensor")
def in_a_list(layer, hook):
    return layer.register_forward_pre_hook(lambda module, args: [*hook(module, args)], prepend=True)


test_right, test_wrong = answers.tests()
