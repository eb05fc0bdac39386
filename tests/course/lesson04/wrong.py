"""What people get wrong in lesson 4."""

import functools

import torch
from torch import nn

from tests.course.exercises.wrong import wrong


@wrong("4.1", says="forgotten return")
def changes_a_local_name(layer):
    def hook(module, args):
        doubled = args[0] * 2  # noqa: F841

    return layer.register_forward_pre_hook(hook)


@wrong("4.1", says="changed a tensor that it was given in place")
def doubles_the_callers_tensor(layer):
    def hook(module, args):
        args[0].mul_(2)

    return layer.register_forward_pre_hook(hook)


@wrong("4.1", says="tuple times two")
def doubles_the_tuple(layer):
    return layer.register_forward_pre_hook(lambda module, args: args * 2)


@wrong("4.1", says="a list counts as one argument")
def returns_a_list(layer):
    return layer.register_forward_pre_hook(lambda module, args: [args[0] * 2])


@wrong("4.1", says="did not return the handle")
def forgets_the_handle(layer):
    layer.register_forward_pre_hook(lambda module, args: args[0] * 2)


@wrong("4.1", says="forward hook: it runs after forward")
def doubles_the_output(layer):
    return layer.register_forward_hook(lambda module, args, output: output * 2)


@wrong("4.1", says="no hook: nothing is registered")
def calls_the_layer(layer):
    return layer(torch.ones(1, 2) * 2)


@wrong("4.1", says="did not get twice the input")
def squares_instead(layer):
    return layer.register_forward_pre_hook(lambda module, args: args[0] ** 2)


@wrong("4.2", says="only NaN")
def forgets_infinity(layer):
    def guard(module, args):
        if torch.isnan(args[0]).any():
            raise ValueError("NaN")

    return layer.register_forward_pre_hook(guard)


@wrong("4.2", says="assert raises AssertionError")
def asserts(layer):
    def guard(module, args):
        assert torch.isfinite(args[0]).all()

    return layer.register_forward_pre_hook(guard)


@wrong("4.2", says="the hook never raises")
def only_prints(layer):
    def guard(module, args):
        if not torch.isfinite(args[0]).all():
            print("not finite")

    return layer.register_forward_pre_hook(guard)


@wrong("4.2", says="forward had already run")
def guards_the_exit(layer):
    def guard(module, args, output):
        if not torch.isfinite(args[0]).all():
            raise ValueError("not finite")

    return layer.register_forward_hook(guard)


@wrong("4.2", says="a guard looks and returns None")
def repairs_instead(layer):
    return layer.register_forward_pre_hook(lambda module, args: torch.nan_to_num(args[0]))


@wrong("4.2", says="`.all()` asks whether every number is NaN")
def guards_nothing(layer):
    def guard(module, args):
        if not torch.isnan(args[0]).all():
            raise ValueError("not finite")

    return layer.register_forward_pre_hook(guard)


@wrong("4.3", says="missing 1 required positional argument: 'kwargs'")
def does_not_ask_for_kwargs(module, default):
    return module.register_forward_pre_hook(lambda module, args, kwargs: (args, {"scale": default, **kwargs}))


@wrong("4.3", says="overwritten: only fill in what is missing")
def always_overwrites(module, default):
    return module.register_forward_pre_hook(
        lambda m, args, kwargs: (args, {**kwargs, "scale": default}), with_kwargs=True
    )


@wrong("4.3", says="lost arguments")
def drops_the_others(module, default):
    return module.register_forward_pre_hook(
        lambda m, args, kwargs: (args, {"scale": kwargs.get("scale", default)}), with_kwargs=True
    )


@wrong("4.3", says="expected  (args, kwargs) from the hook")
def returns_kwargs_alone(module, default):
    return module.register_forward_pre_hook(lambda m, args, kwargs: {"scale": default, **kwargs}, with_kwargs=True)


@wrong("4.3", says="no hook: nothing is registered on the module")
def sets_an_attribute(module, default):
    module.scale = default


@wrong("4.3", says="forgotten return")
def changes_a_copy(module, default):
    def hook(module, args, kwargs):
        kwargs = {"scale": default, **kwargs}

    return module.register_forward_pre_hook(hook, with_kwargs=True)


@wrong("4.4", says="order of registration")
def forgets_prepend(layer, hook):
    return layer.register_forward_pre_hook(hook)


@wrong("4.4", says="never remove hooks that are not yours")
def clears_the_table(layer, hook):
    layer._forward_pre_hooks.clear()
    return layer.register_forward_pre_hook(hook)


@wrong("4.4", says="a pre-hook gets (module, args), and kwargs if with_kwargs=True")
def asks_for_kwargs_too(layer, hook):
    return layer.register_forward_pre_hook(hook, prepend=True, with_kwargs=True)


@wrong("4.4", says="did not return the handle")
def keeps_the_handle(layer, hook):
    layer.register_forward_pre_hook(hook, prepend=True)


@wrong("4.4", says="the new one first")
def registers_nothing(layer, hook):
    return hook


@wrong("4.4", says="got an unexpected keyword argument 'first'")
def invents_an_option(layer, hook):
    return layer.register_forward_pre_hook(hook, first=True)


def split(layer):
    weight = layer.weight
    del layer.weight
    layer.weight_g = nn.Parameter(weight.detach().norm(dim=1, keepdim=True))
    layer.weight_v = nn.Parameter(weight.detach().clone())


@wrong("4.5", says="computed once")
def computes_once(layer):
    split(layer)
    layer.weight = layer.weight_g * layer.weight_v / layer.weight_v.norm(dim=1, keepdim=True)
    return layer.register_forward_pre_hook(lambda module, args: None)


@wrong("4.5", says="cut off")
def computes_on_data(layer):
    split(layer)

    def hook(module, args):
        v = module.weight_v.data
        module.weight = module.weight_g.data * v / v.norm(dim=1, keepdim=True)

    return layer.register_forward_pre_hook(hook)


@wrong("4.5", says="one norm for the whole matrix")
def one_length_for_all(layer):
    weight = layer.weight
    del layer.weight
    layer.weight_g = nn.Parameter(weight.detach().norm())
    layer.weight_v = nn.Parameter(weight.detach().clone())

    def hook(module, args):
        module.weight = module.weight_g * module.weight_v / module.weight_v.norm()

    return layer.register_forward_pre_hook(hook)


@wrong("4.5", says="cannot assign 'torch.FloatTensor' as parameter 'weight'")
def keeps_the_parameter(layer):
    layer.weight_g = nn.Parameter(layer.weight.detach().norm(dim=1, keepdim=True))
    layer.weight_v = nn.Parameter(layer.weight.detach().clone())
    layer.weight = layer.weight_g * layer.weight_v


@wrong("4.5", says="weight is still a parameter")
def a_parameter_too_many(layer):
    layer.weight_g = nn.Parameter(layer.weight.detach().norm(dim=1, keepdim=True))
    layer.weight_v = nn.Parameter(layer.weight.detach().clone())


@wrong("4.5", says="something else than before")
def forgets_to_normalise(layer):
    split(layer)

    def hook(module, args):
        module.weight = module.weight_g * module.weight_v

    return layer.register_forward_pre_hook(hook)


@wrong("4.5", says="the first length")
def normalises_by_the_first_norm(layer):
    split(layer)
    first = layer.weight_v.detach().norm(dim=1, keepdim=True)

    def hook(module, args):
        module.weight = module.weight_g * module.weight_v / first

    return layer.register_forward_pre_hook(hook)


@wrong("4.1", says="cut off: .data")
def doubles_the_data(layer):
    return layer.register_forward_pre_hook(lambda module, args: args[0].data * 2)


@wrong("4.1", says="another hook's arguments")
def takes_args_alone(layer):
    return layer.register_forward_pre_hook(lambda args: args[0] * 2)


@wrong("4.2", says="only one infinity")
def forgets_the_negative_infinity(layer):
    def guard(module, args):
        if torch.isnan(args[0]).any() or (args[0] == float("inf")).any():
            raise ValueError("not finite")

    return layer.register_forward_pre_hook(guard)


@wrong("4.2", says="in its second row")
def looks_at_the_first_row(layer):
    def guard(module, args):
        if not torch.isfinite(args[0][0]).all():
            raise ValueError("not finite")

    return layer.register_forward_pre_hook(guard)


@wrong("4.2", says="must be Tensor, not tuple, at line")
def asks_the_tuple(layer):
    def guard(module, args):
        if not torch.isfinite(args).all():
            raise ValueError("not finite")

    return layer.register_forward_pre_hook(guard)


@wrong("4.3", says="truth instead of presence")
def takes_zero_for_missing(module, default):
    return module.register_forward_pre_hook(
        lambda m, args, kwargs: (args, {**kwargs, "scale": kwargs.get("scale") or default}), with_kwargs=True
    )


@wrong("4.3", says="every mix of named arguments")
def fills_in_only_without_any_name(module, default):
    def hook(module, args, kwargs):
        return None if kwargs else (args, {"scale": default})

    return module.register_forward_pre_hook(hook, with_kwargs=True)


@wrong("4.3", says="did not return the handle")
def forgets_the_handle_of_the_default(module, default):
    module.register_forward_pre_hook(lambda m, args, kwargs: (args, {"scale": default, **kwargs}), with_kwargs=True)


@wrong("4.3", says="after handle.remove() the new default is still there")
def returns_another_handle(module, default):
    module.register_forward_pre_hook(lambda m, args, kwargs: (args, {"scale": default, **kwargs}), with_kwargs=True)
    return module.register_forward_pre_hook(lambda module, args: None)


@wrong("4.3", says="your code replaced `forward` on the module")
def replaces_forward(module, default):
    module.forward = functools.partial(module.forward, scale=default)
    return module.register_forward_pre_hook(lambda module, args: None)


@wrong("4.5", says="cut off in part")
def detaches_the_norm(layer):
    split(layer)

    def hook(module, args):
        v = module.weight_v
        module.weight = module.weight_g * v / v.detach().norm(dim=1, keepdim=True)

    return layer.register_forward_pre_hook(hook)


@wrong("4.5", says="did not return the handle")
def returns_no_handle(layer):
    split(layer)

    def hook(module, args):
        v = module.weight_v
        module.weight = module.weight_g * v / v.norm(dim=1, keepdim=True)

    layer.register_forward_pre_hook(hook)


@wrong("4.5", says="no hook: nothing is registered on the module")
def writes_no_hook(layer):
    split(layer)
