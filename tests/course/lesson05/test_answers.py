"""Unusual right answers to lesson 5's exercises, and wrong ones: none is misjudged, and no reason is untrue.

A wrong answer comes with the beginning of the one reason that is true, or None where the check can know none.
"""

import contextlib
import functools
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from tests.course.exercises.answers import Answers

answers = Answers("5.1", "5.2", "5.3", "5.4", "5.5")
right, wrong = answers.right, answers.wrong


# --- 5.1


@right("5.1")
def by_autograd_grad(model, layer, x):
    kept = []

    def keep(module, args, output):
        kept.extend([args[0], output])

    with layer.register_forward_hook(keep):
        loss = model(x).sum()
    return torch.autograd.grad(loss, kept)


@right("5.1")
def by_retain_grad(model, layer, x):
    kept = []

    def keep(module, args, output):
        for one in (args[0], output):
            one.retain_grad()
            kept.append(one)

    with layer.register_forward_hook(keep):
        out = model(x)
    out.backward(torch.ones_like(out))
    return kept[0].grad, kept[1].grad


@right("5.1")
def two_hooks_of_two_kinds(model, layer, x):
    found = {}

    def pre(module, grad_output):
        found["out"] = grad_output[0].clone()

    def post(module, grad_input, grad_output):
        found["in"] = grad_input[0].clone()

    with layer.register_full_backward_pre_hook(pre), layer.register_full_backward_hook(post):
        torch.sum(model(x)).backward()
    return [found["in"], found["out"]]


@right("5.1")
def removed_between_forward_and_backward(model, layer, x):
    found = []
    handle = layer.register_full_backward_hook(lambda m, gin, gout: found.append((*gin, *gout)))
    loss = model(x).sum()
    handle.remove()
    loss.backward()
    return found.pop()


@right("5.1")
def removes_itself(model, layer, x):
    found = []

    def hook(module, gin, gout):
        found[:] = [gin[0], gout[0]]
        handle.remove()

    handle = layer.register_full_backward_hook(hook)
    model(x).sum().backward()
    return tuple(found)


@right("5.1")
def with_a_handle_in_finally(model, layer, x):
    keeper = SimpleNamespace()

    def hook(module, gin, gout):
        keeper.pair = gin + gout

    handle = nn.Module.register_full_backward_hook(layer, hook, prepend=True)
    try:
        model(x).sum().backward()
    finally:
        handle.remove()
    return keeper.pair


@wrong("5.1", "order")
def in_the_order_of_arrival(model, layer, x):
    found = []
    with (
        layer.register_full_backward_pre_hook(lambda m, gout: found.append(gout[0])),
        layer.register_full_backward_hook(lambda m, gin, gout: found.append(gin[0])),
    ):
        model(x).sum().backward()
    return found


@wrong("5.1", "the hook never ran: register before the forward")
def late_and_returns_none_twice(model, layer, x):
    pair = [None, None]

    def hook(module, gin, gout):
        pair[:] = [gin[0], gout[0]]

    loss = model(x).sum()
    with layer.register_full_backward_hook(hook):
        loss.backward()
    return pair


@wrong("5.1", "the hook never ran: register before the forward")
def late_with_a_dict(model, layer, x):
    found = {}
    out = model(x)
    handle = layer.register_full_backward_hook(lambda m, gin, gout: found.update(gin=gin[0], gout=gout[0]))
    out.sum().backward()
    handle.remove()
    return found["gin"], found["gout"]


@wrong("5.1", "the hook never ran: nothing has called backward()")
def asks_for_gradients_of_parameters(model, layer, x):
    pair = [None, None]

    def hook(module, gin, gout):
        pair[:] = [gin[0], gout[0]]

    with layer.register_full_backward_hook(hook):
        model(x).sum()
    return tuple(pair)


@wrong("5.1", says="how many times your function runs the model")
def runs_it_twice(model, layer, x):
    model(x)
    return by_autograd_grad(model, layer, x)


@wrong("5.1", "`forward` alone", says="calls `model.forward(…)`")
def calls_forward(model, layer, x):
    found = []
    with layer.register_full_backward_hook(lambda m, gin, gout: found.extend([gin[0], gout[0]])):
        model.forward(x).sum().backward()
    return found


@wrong("5.1", "the input's gradient twice")
def takes_one_of_them_twice(model, layer, x):
    found = []
    with layer.register_full_backward_hook(lambda m, gin, gout: found.extend([gin[0], gin[0]])):
        model(x).sum().backward()
    return found


@wrong("5.1", says="the gradient of the input has another shape")
def hooks_the_model(model, layer, x):
    found = []
    x = x.clone().requires_grad_()
    with model.register_full_backward_hook(lambda m, gin, gout: found.extend([gin[0], gout[0]])):
        model(x).sum().backward()
    return found


@wrong("5.1", says="the gradient of the input is another one")
def detached_copy(model, layer, x):
    found = []
    with layer.register_full_backward_hook(lambda m, gin, gout: found.extend([gin[0].abs(), gout[0]])):
        model(x).sum().backward()
    return found


@wrong("5.1", says="the gradients of the model's parameters are not what one backward")
def doubles_what_it_looks_at(model, layer, x):
    seen = []

    def hook(module, grad_input, grad_output):
        seen.extend(grad_input + grad_output)
        return (2 * grad_input[0],)

    with layer.register_full_backward_hook(hook):
        model(x).sum().backward()
    return seen


@wrong("5.1", says="that is not a pair of tensors")
def returns_the_list_of_tuples_flattened(model, layer, x):
    found = []
    with layer.register_full_backward_hook(lambda m, gin, gout: found.append(gin[0])):
        model(x).sum().backward()
    return found


# --- 5.2


class _Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.factor * grad, None


@right("5.2")
def own_function_at_the_door(layer, factor):
    def pre(module, args):
        return tuple(_Scale.apply(one, factor) if isinstance(one, torch.Tensor) else one for one in args)

    return layer.register_forward_pre_hook(pre)


@right("5.2")
def mixture_with_a_detached_copy(layer, factor):
    def pre(module, args):
        return [factor * one + (1 - factor) * one.detach() if torch.is_tensor(one) else one for one in args]

    return layer.register_forward_pre_hook(lambda module, args: tuple(pre(module, args)))


@right("5.2")
def partial_and_map(layer, factor):
    def brake(factor, module, gin, gout):
        return tuple(map(lambda one: one if one is None else one.mul(factor), gin))  # noqa: C417

    return layer.register_full_backward_hook(functools.partial(brake, factor))


@wrong("5.2", "where no argument asks for a gradient, return None")
def list_instead_of_a_tuple(layer, factor):
    def brake(module, gin, gout):
        scaled = []
        for one in gin:
            scaled.append(None if one is None else one * factor)
        return scaled

    return layer.register_full_backward_hook(brake, prepend=True)


@right("5.2")
def returns_none_where_there_is_nothing_to_scale(layer, factor):
    def brake(module, gin, gout):
        if all(one is None for one in gin):
            return None
        return tuple(torch.mul(one, factor) if one is not None else one for one in gin)

    return layer.register_full_backward_hook(brake)


@right("5.2")
def a_class_of_its_own(layer, factor):
    class Brake:
        def __init__(self):
            self.handle = layer.register_full_backward_hook(self)

        def __call__(self, module, gin, gout):
            return tuple(one and None if one is None else one * factor for one in gin)

        def remove(self):
            self.handle.remove()

    return Brake()


@wrong("5.2", "Your hook removes itself")
def brakes_once(layer, factor):
    def brake(module, gin, gout):
        handle.remove()
        return tuple(None if one is None else factor * one for one in gin)

    handle = layer.register_full_backward_hook(brake)
    return handle


@wrong("5.2", says="in a second pass, ")
def brakes_once_by_a_flag(layer, factor):
    state = {"first": True}

    def brake(module, gin, gout):
        if state.pop("first", False):
            return tuple(None if one is None else factor * one for one in gin)

    return layer.register_full_backward_hook(brake)


@wrong("5.2", says="in evaluation mode, ")
def brakes_in_training(layer, factor):
    def brake(module, gin, gout):
        return tuple(None if one is None else factor * one for one in gin) if module.training else None

    return layer.register_full_backward_hook(brake)


@wrong("5.2", "values instead of gradients: what goes into")
def scales_the_input(layer, factor):
    def pre(module, args):
        return (args[0] * factor, *args[1:])

    return layer.register_forward_pre_hook(pre)


@wrong("5.2", "values instead of gradients: what the layer puts out", says="the output is not what it should be")
def scales_the_output(layer, factor):
    return layer.register_forward_hook(lambda module, args, output: output * factor)


@wrong("5.2", "scaled on both sides")
def brakes_twice(layer, factor):
    def pre(module, gout):
        return tuple(None if one is None else factor * one for one in gout)

    def post(module, gin, gout):
        return tuple(None if one is None else factor * one for one in gin)

    handles = [layer.register_full_backward_pre_hook(pre), layer.register_full_backward_hook(post)]
    return SimpleNamespace(remove=lambda: [handle.remove() for handle in handles])


def scaled(factor, grads):
    return tuple(None if grad is None else factor * grad for grad in grads)


@wrong("5.2", says="one of your hooks is still registered at the end: full backward hook `<lambda>` on module 'part'")
def brakes_every_part(layer, factor):
    parts = list(layer.modules())
    handles = [part.register_full_backward_hook(lambda m, gin, gout: scaled(factor, gin)) for part in parts]
    return handles[0]


@wrong("5.2", says="the gradient of the weight of the layer before is not what it should be")
def lets_zero_be(layer, factor):
    return layer.register_full_backward_hook(lambda m, gin, gout: scaled(factor, gin) if factor else None)


@wrong("5.2", "no gradient to hook", says="a pass under no_grad, with your hook, raised RuntimeError")
def hooks_the_arguments_in_every_pass(layer, factor):
    def hook(module, args):
        new = tuple(arg * 1.0 if isinstance(arg, torch.Tensor) else arg for arg in args)
        for arg in new:
            if isinstance(arg, torch.Tensor) and (arg.requires_grad or not torch.is_grad_enabled()):
                arg.register_hook(lambda grad: factor * grad)
        return new

    return layer.register_forward_pre_hook(hook)


@wrong("5.2", says="one of your hooks is still registered at the end: full backward hook")
def a_second_hook(layer, factor):
    layer.register_full_backward_hook(lambda m, gin, gout: None)
    return layer.register_full_backward_hook(lambda m, gin, gout: scaled(factor, gin))


@wrong("5.2")
def scales_by_the_square(layer, factor):
    return layer.register_full_backward_hook(
        lambda m, gin, gout: tuple(None if one is None else factor * factor * one for one in gin)
    )


@wrong("5.2")
def hands_back_what_it_got(layer, factor):
    return layer.register_full_backward_hook(lambda module, gin, gout: gin)


@wrong("5.2", "no backward hook")
def looks_at_the_forward(layer, factor):
    return layer.register_forward_hook(lambda module, args, output: None)


@wrong("5.2", says="your hook runs for every module in this process")
def brakes_everything(layer, factor):
    return torch_module.register_module_full_backward_hook(
        lambda m, gin, gout: tuple(None if one is None else factor * one for one in gin)
    )


@wrong("5.2")
def zeros_for_none(layer, factor):
    def brake(module, gin, gout):
        return tuple(torch.zeros(1) if one is None else factor * one.clamp(-1e6, 1e6) for one in gin)

    return layer.register_full_backward_hook(brake)


@wrong("5.2", says="a pass with your hook raised AttributeError")
def its_own_none(layer, factor):
    scale = None
    return layer.register_full_backward_hook(lambda module, gin, gout: tuple(scale.mul(one) for one in gin))


@wrong("5.2", "another hook's arguments")
def two_arguments(layer, factor):
    return layer.register_full_backward_hook(lambda module, gin: tuple(factor * one for one in gin))


# --- 5.3


@right("5.3")
def over_named_parameters(layer, weight_factor, bias_factor):
    factors = {"weight": weight_factor, "bias": bias_factor}
    return [
        parameter.register_hook(functools.partial(torch.mul, factors[name]))
        for name, parameter in layer.named_parameters()
        if name in factors
    ]


@right("5.3")
def a_tuple_of_handles(layer, weight_factor, bias_factor):
    handles = (layer.weight.register_hook(weight_factor.__mul__ and (lambda grad: grad * weight_factor)),)
    if hasattr(layer, "bias") and isinstance(layer.bias, nn.Parameter):
        handles += (layer.bias.register_hook(lambda grad: grad * bias_factor),)
    return handles


@right("5.3")
def an_object_as_a_hook(layer, weight_factor, bias_factor):
    class Times:
        def __init__(self, factor):
            self.factor = factor

        def __call__(self, grad):
            return torch.multiply(grad, self.factor)

    pairs = ((layer.weight, weight_factor), (layer.bias, bias_factor))
    return [parameter.register_hook(Times(factor)) for parameter, factor in pairs if parameter is not None]


@right("5.3")
def at_the_accumulating_node(layer, weight_factor, bias_factor):
    def prehook(factor):
        return lambda grads: tuple(factor * grad for grad in grads)

    handles, layer._kept = [], []
    for parameter, factor in ((layer.weight, weight_factor), (layer.bias, bias_factor)):
        if parameter is not None:
            node = parameter.view_as(parameter).grad_fn.next_functions[0][0]
            layer._kept.append(node)  # a node that nobody holds takes its hooks with it
            handles.append(node.register_prehook(prehook(factor)))
    return handles


@right("5.3")
def in_a_loop_with_a_default(layer, weight_factor, bias_factor):
    handles = []
    for name, factor in [("bias", bias_factor), ("weight", weight_factor)]:
        parameter = getattr(layer, name, None)
        if parameter is not None and parameter.requires_grad:
            handles.append(parameter.register_hook(lambda grad, factor=factor: grad.clone().mul_(factor)))
    return handles


@wrong("5.3", "the factors are swapped")
def in_the_wrong_order(layer, weight_factor, bias_factor):
    parameters = zip([bias_factor, weight_factor], [layer.weight, layer.bias], strict=True)
    return [one.register_hook(lambda grad, f=factor: f * grad) for factor, one in parameters if one is not None]


@wrong("5.3", "no hook on the weight")
def weight_is_looked_at(layer, weight_factor, bias_factor):
    handles = [layer.weight.register_hook(lambda grad: print(end=""))]
    if layer.bias is not None:
        handles.append(layer.bias.register_hook(lambda grad: bias_factor * grad))
    return handles


@wrong("5.3", "one factor for both, the weight's")
def one_factor(layer, weight_factor, bias_factor):
    return [one.register_hook(lambda grad: weight_factor * grad) for one in layer.parameters()]


@wrong("5.3", "grad_input is the input's gradient")
def unpacks_one(layer, weight_factor, bias_factor):
    def hook(module, gin, gout):
        (gin0,) = gin
        return (gin0 * weight_factor,)

    return [layer.register_full_backward_hook(hook)]


@wrong("5.3")
def scales_what_comes_in(layer, weight_factor, bias_factor):
    return [layer.register_full_backward_pre_hook(lambda module, gout: (weight_factor * gout[0],))]


@wrong("5.3", "three gradients")
def as_it_was(layer, weight_factor, bias_factor):
    def hook(module, gin, gout):
        a, b, c = gin
        return a, b * weight_factor, c * bias_factor

    return [layer.register_full_backward_hook(hook)]


@wrong("5.3", "Your hook removes itself")
def once_only(layer, weight_factor, bias_factor):
    def scale_once(parameter, factor):
        def hook(grad):
            handle.remove()
            return factor * grad

        handle = parameter.register_hook(hook)
        return handle

    pairs = ((layer.weight, weight_factor), (layer.bias, bias_factor))
    return [scale_once(*pair) for pair in pairs if pair[0] is not None]


@wrong("5.3", "forgotten return: your hook returns None")
def forgets_both(layer, weight_factor, bias_factor):
    def hook(grad):
        grad = weight_factor * grad

    return [one.register_hook(hook) for one in layer.parameters()]


@wrong("5.3", "`x *= 2`", says="changed the parameter")
def scales_the_weights_themselves(layer, weight_factor, bias_factor):
    with torch.no_grad():
        layer.weight.mul_(weight_factor)
    return []


@wrong("5.3")
def fixed_factors(layer, weight_factor, bias_factor):
    handles = [layer.weight.register_hook(lambda grad: grad * 2)]
    if layer.bias is not None:
        handles.append(layer.bias.register_hook(lambda grad: grad * 3))
    return handles


@wrong("5.3")
def zero_is_no_factor(layer, weight_factor, bias_factor):
    handles = [layer.weight.register_hook(lambda grad: grad * weight_factor)]
    if layer.bias is not None and bias_factor:
        handles.append(layer.bias.register_hook(lambda grad: grad * bias_factor))
    return handles


@wrong("5.3", says="a module with a third parameter")
def weight_and_all_the_others(layer, weight_factor, bias_factor):
    return [
        one.register_hook(lambda grad, by=weight_factor if name == "weight" else bias_factor: grad * by)
        for name, one in layer.named_parameters()
    ]


@wrong("5.3", says="a module with a third parameter")
def in_the_order_of_the_parameters(layer, weight_factor, bias_factor):
    pairs = zip(layer.parameters(), (weight_factor, bias_factor), strict=False)
    return [one.register_hook(lambda grad, by=by: grad * by) for one, by in pairs]


@wrong("5.3", "the sum in .grad was scaled")
def afterwards(layer, weight_factor, bias_factor):
    def scale(factor, parameter):
        parameter.grad.mul_(factor)

    pairs = ((layer.weight, weight_factor), (layer.bias, bias_factor))
    return [
        one.register_post_accumulate_grad_hook(functools.partial(scale, factor))
        for one, factor in pairs
        if one is not None
    ]


# --- 5.4


@right("5.4")
def tensor_hooks_on_the_outputs(layer, limit):
    def hook(module, args, output):
        for one in output if isinstance(output, tuple) else (output,):
            if one.requires_grad:
                one.register_hook(lambda grad: grad.clip(-limit, limit))

    return layer.register_forward_hook(hook)


@right("5.4")
def list_and_minimum(layer, limit):
    bound = torch.tensor(limit)

    def fuse(module, gout):
        return [one if one is None else torch.minimum(torch.maximum(one, -bound), bound) for one in gout]

    return layer.register_full_backward_pre_hook(fuse)


@right("5.4")
def prepended_method(layer, limit):
    class Fuse:
        def blow(self, module, grad_output):
            return tuple(None if one is None else one.clone().clamp_(min=-limit, max=limit) for one in grad_output)

    return layer.register_full_backward_pre_hook(Fuse().blow, prepend=True)


@right("5.4")
def hardtanh(layer, limit):
    def fuse(module, gout):
        return tuple(nn.functional.hardtanh(one, -limit, limit) if torch.is_tensor(one) else None for one in gout)

    return layer.register_full_backward_pre_hook(fuse)


@right("5.4")
def through_a_function_of_its_own(layer, limit):
    class Clip(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            return grad.clamp(-limit, limit)

    def hook(module, args, output):
        return Clip.apply(output) if torch.is_tensor(output) else tuple(map(Clip.apply, output))

    return layer.register_forward_hook(hook)


@wrong("5.4", "Your hook removes itself")
def blows_once(layer, limit):
    def fuse(module, gout):
        handle.remove()
        return tuple(None if one is None else one.clamp(-limit, limit) for one in gout)

    handle = layer.register_full_backward_pre_hook(fuse)
    return handle


@wrong("5.4", "clipped on both sides")
def clips_on_both_sides(layer, limit):
    def clip(values):
        return tuple(None if one is None else one.clamp(-limit, limit) for one in values)

    handles = (
        layer.register_full_backward_pre_hook(lambda module, gout: clip(gout)),
        layer.register_full_backward_hook(lambda module, gin, gout: clip(gin)),
    )
    return SimpleNamespace(remove=lambda: [handle.remove() for handle in handles])


@wrong("5.4", "one side only: large positive")
def clips_from_below(layer, limit):
    return layer.register_full_backward_pre_hook(
        lambda module, gout: tuple(None if one is None else one.clamp(min=-limit) for one in gout)
    )


@wrong("5.4", "values instead of gradients")
def clips_the_activations(layer, limit):
    def hook(module, args, output):
        if isinstance(output, tuple):
            return tuple(one.clamp(-limit, limit) for one in output)
        return output.clamp(-limit, limit)

    return layer.register_forward_hook(hook)


@wrong("5.4", "clipped too late")
def clips_the_parameters(layer, limit):
    handles = [one.register_hook(lambda grad: grad.clamp(-limit, limit)) for one in layer.parameters()]
    return SimpleNamespace(remove=lambda: [handle.remove() for handle in handles])


@wrong("5.4", "legacy hook")
def clips_in_the_old_way(layer, limit):
    return layer.register_backward_hook(
        lambda module, gin, gout: tuple(None if one is None else one.clamp(-limit, limit) for one in gin)
    )


@wrong("5.4")
def only_in_a_range_of_its_own(layer, limit):
    return layer.register_full_backward_pre_hook(
        lambda module, gout: tuple(None if one is None else one.clamp(-1, 1) for one in gout)
    )


@wrong("5.4")
def squashes(layer, limit):
    return layer.register_full_backward_pre_hook(
        lambda module, gout: tuple(None if one is None else limit * (one / limit).tanh() for one in gout)
    )


def clipped(limit, grads):
    return tuple(None if grad is None else grad.clamp(-limit, limit) for grad in grads)


@wrong(
    "5.4", says="one of your hooks is still registered at the end: full backward pre-hook `<lambda>` on module 'part'"
)
def clips_every_part(layer, limit):
    parts = list(layer.modules())
    handles = [part.register_full_backward_pre_hook(lambda m, gout: clipped(limit, gout)) for part in parts]
    return handles[0]


@wrong("5.4", "no gradient to hook", says="a pass under no_grad, with your hook, raised RuntimeError")
def hooks_the_outputs_in_every_pass(layer, limit):
    def hook(module, args, output):
        for one in output if isinstance(output, tuple) else [output]:
            one.register_hook(lambda grad: grad.clamp(-limit, limit))

    return layer.register_forward_hook(hook)


@wrong("5.4", "accidental return")
def returns_the_handle_of_the_output(layer, limit):
    return layer.register_forward_hook(lambda m, args, out: out.register_hook(lambda grad: grad.clamp(-limit, limit)))


@wrong("5.4", "another shape")
def a_zero_for_none(layer, limit):
    return layer.register_full_backward_pre_hook(
        lambda m, gout: tuple(torch.zeros(1) if grad is None else grad.clamp(-limit, limit) for grad in gout)
    )


@wrong("5.4", "`with` removes the hook")
def in_a_with(layer, limit):
    def fuse(module, gout):
        return tuple(None if one is None else one.clamp(-limit, limit) for one in gout)

    with layer.register_full_backward_pre_hook(fuse) as handle:
        return handle


@wrong("5.4", says="in evaluation mode, ")
def only_in_training(layer, limit):
    def fuse(module, gout):
        if module.training:
            return tuple(None if one is None else one.clamp(-limit, limit) for one in gout)

    return layer.register_full_backward_pre_hook(fuse)


@wrong("5.4", "not a tuple of the same length")
def leaves_none_out(layer, limit):
    def fuse(module, gout):
        return tuple(one.clamp(-limit, limit) for one in gout if one is not None)

    return layer.register_full_backward_pre_hook(fuse)


@wrong("5.4")
def drops_what_is_too_large(layer, limit):
    def fuse(module, gout):
        return tuple(None if one is None else torch.where(one.abs() > limit, 0.0, one) for one in gout)

    return layer.register_full_backward_pre_hook(fuse)


# --- 5.5


def items_of(output):
    return output.items() if isinstance(output, dict) else [("output", output)]


def is_hookable(value):
    return torch.is_tensor(value) and value.requires_grad


@right("5.5")
def with_partials(layer, seen):
    def hook(module, args, output):
        for name, value in items_of(output):
            if is_hookable(value):
                value.register_hook(functools.partial(seen.__setitem__, name))

    return layer.register_forward_hook(hook)


@right("5.5")
def with_grad_fn_hooks(layer, seen):
    def hook(module, args, output):
        for name, value in items_of(output):
            if is_hookable(value):
                value.grad_fn.register_prehook(
                    functools.partial(lambda name, grads: seen.update({name: grads[0]}), name)
                )

    return layer.register_forward_hook(hook)


@right("5.5")
def clones_what_it_keeps(layer, seen):
    def keep(name, grad):
        seen[name] = grad.detach().clone()

    def hook(module, args, output):
        [v.register_hook(functools.partial(keep, k)) for k, v in items_of(output) if is_hookable(v)]

    return layer.register_forward_hook(hook, always_call=False)


@right("5.5")
def writes_into_what_it_has(layer, seen):
    def keep(name, grad):
        seen.setdefault(name, torch.empty_like(grad)).copy_(grad)

    def hook(module, args, output):
        [v.register_hook(functools.partial(keep, k)) for k, v in items_of(output) if is_hookable(v)]

    return layer.register_forward_hook(hook)


@right("5.5")
def removes_the_tensor_hooks_after_use(layer, seen):
    def hook(module, args, output):
        for name, value in items_of(output):
            if is_hookable(value):
                handles = []

                def keep(grad, name=name, handles=handles):
                    seen[name] = grad
                    handles.pop().remove()

                handles.append(value.register_hook(keep))

    return layer.register_forward_hook(hook)


@right("5.5")
def with_kwargs(layer, seen):
    def hook(module, args, kwargs, output):
        named = {"output": output} if torch.is_tensor(output) else output
        for name in named:
            if isinstance(named[name], torch.Tensor) and named[name].grad_fn is not None:
                named[name].register_hook(lambda grad, name=name: seen.update([(name, grad)]))

    return layer.register_forward_hook(hook, with_kwargs=True)


@wrong("5.5", says="`seen` was filled in the forward")
def notes_the_shapes_first(layer, seen):
    def hook(module, args, output):
        for name, value in items_of(output):
            if is_hookable(value):
                seen[name] = tuple(value.shape)
                value.register_hook(functools.partial(seen.__setitem__, name))

    return layer.register_forward_hook(hook)


@wrong("5.5", "a module's backward hook")
def a_backward_pre_hook(layer, seen):
    return layer.register_full_backward_pre_hook(lambda module, gout: seen.update(output=gout[0]))


@wrong("5.5", "Your hook removes itself")
def watches_one_pass(layer, seen):
    def hook(module, args, output):
        handle.remove()
        for name, value in items_of(output):
            if is_hookable(value):
                value.register_hook(functools.partial(seen.__setitem__, name))

    handle = layer.register_forward_hook(hook)
    return handle


@wrong("5.5", "one key for all")
def the_last_key(layer, seen):
    def hook(module, args, output):
        for name, value in items_of(output):
            if is_hookable(value):
                value.register_hook(lambda grad: seen.update({name: grad}))  # noqa: B023

    return layer.register_forward_hook(hook)


@wrong("5.5", says="in a second pass, ")
def adds_up(layer, seen):
    def hook(module, args, output):
        for name, value in items_of(output):
            if is_hookable(value):
                value.register_hook(lambda grad, name=name: seen.update({name: seen.get(name, 0) + grad}))

    return layer.register_forward_hook(hook)


@wrong("5.5", says="is not the gradient of that output")
def keeps_norms_in_full_shape(layer, seen):
    def hook(module, args, output):
        for name, value in items_of(output):
            if is_hookable(value):
                value.register_hook(lambda grad, name=name: seen.update({name: grad.abs()}))

    return layer.register_forward_hook(hook)


@wrong("5.5", says="seen['output'] is not a tensor")
def keeps_a_number(layer, seen):
    def hook(module, args, output):
        for name, value in items_of(output):
            if is_hookable(value):
                value.register_hook(lambda grad, name=name: seen.update({name: grad.norm().item()}))

    return layer.register_forward_hook(hook)


@wrong("5.5", says="`seen` has keys that no gradient belongs to")
def other_names(layer, seen):
    def hook(module, args, output):
        for name, value in items_of(output):
            if is_hookable(value):
                value.register_hook(lambda grad, name=name: seen.update({name: grad, "last": grad}))

    return layer.register_forward_hook(hook)


@wrong("5.5", says="`seen` lacks ['score']")
def only_matrices(layer, seen):
    def hook(module, args, output):
        for name, value in items_of(output):
            if is_hookable(value) and value.dim() > 1:
                value.register_hook(functools.partial(seen.__setitem__, name))

    return layer.register_forward_hook(hook)


@wrong("5.5", says="in evaluation mode, ")
def only_while_training(layer, seen):
    def hook(module, args, output):
        for name, value in items_of(output):
            if is_hookable(value) and module.training:
                value.register_hook(functools.partial(seen.__setitem__, name))

    return layer.register_forward_hook(hook)


@wrong("5.5", says="`seen` was emptied in the forward")
def begins_anew(layer, seen):
    def hook(module, args, output):
        seen.clear()
        [v.register_hook(functools.partial(seen.__setitem__, k)) for k, v in items_of(output) if is_hookable(v)]

    return layer.register_forward_hook(hook)


@wrong("5.5", "your hook wrote nothing into it", says="a layer that returns a dict")
def gives_up_at_the_first(layer, seen):
    def hook(module, args, output):
        try:
            for key, value in items_of(output):
                value.register_hook(functools.partial(seen.__setitem__, key))
        except (AttributeError, RuntimeError):
            pass

    return layer.register_forward_hook(hook)


@wrong("5.5", "your hook wrote nothing into it")
def lets_go_at_once(layer, seen):
    def hook(module, args, output):
        for name, value in items_of(output):
            if is_hookable(value):
                value.register_hook(functools.partial(seen.__setitem__, name)).remove()

    return layer.register_forward_hook(hook)


@wrong("5.1", says="your function returned one tensor")
def the_inputs_gradient_alone(model, layer, x):
    with hooked(layer) as seen:
        model(x).sum().backward()
    return seen[0][0][0]


@wrong("5.1", says="your pair holds lists")
def as_lists_of_numbers(model, layer, x):
    with hooked(layer) as seen:
        model(x).sum().backward()
    return seen[0][0][0].tolist(), seen[0][1][0].tolist()


@contextlib.contextmanager
def hooked(layer):
    seen = []
    with layer.register_full_backward_hook(lambda module, *both: seen.append(both)):
        yield seen


test_right, test_wrong = answers.tests()
