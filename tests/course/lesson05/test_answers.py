"""Unusual right answers to lesson 5's exercises: none is refused."""

import functools

import torch
from torch import nn

from tests.course.exercises.answers import Answers

answers = Answers("5.1", "5.2", "5.3", "5.4", "5.5")
right = answers.right


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
def removed_between_forward_and_backward(model, layer, x):
    found = []
    handle = layer.register_full_backward_hook(lambda m, gin, gout: found.append((*gin, *gout)))
    loss = model(x).sum()
    handle.remove()
    loss.backward()
    return found.pop()


@right("5.2")
def mixture_with_a_detached_copy(layer, factor):
    def pre(module, args):
        return [factor * one + (1 - factor) * one.detach() if torch.is_tensor(one) else one for one in args]

    return layer.register_forward_pre_hook(lambda module, args: tuple(pre(module, args)))


@right("5.2")
def returns_none_where_there_is_nothing_to_scale(layer, factor):
    def brake(module, gin, gout):
        if all(one is None for one in gin):
            return None
        return tuple(torch.mul(one, factor) if one is not None else one for one in gin)

    return layer.register_full_backward_hook(brake)


@right("5.3")
def a_tuple_of_handles(layer, weight_factor, bias_factor):
    handles = (layer.weight.register_hook(weight_factor.__mul__ and (lambda grad: grad * weight_factor)),)
    if hasattr(layer, "bias") and isinstance(layer.bias, nn.Parameter):
        handles += (layer.bias.register_hook(lambda grad: grad * bias_factor),)
    return handles


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


def items_of(output):
    return output.items() if isinstance(output, dict) else [("output", output)]


def is_hookable(value):
    return torch.is_tensor(value) and value.requires_grad


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


test_right, _ = answers.tests()
