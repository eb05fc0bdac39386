"""What people get wrong in lesson 5: one small program for each misconception."""

from functools import partial
from types import SimpleNamespace

import torch

# --- 5.1


def around(
    keep=lambda module, grad_input, grad_output: (grad_input[0], grad_output[0]),
    finish=lambda found, layer: found[0],
):
    """A full backward hook around one pass, with parts that can be exchanged."""

    def answer(model, layer, x):
        found = []
        with layer.register_full_backward_hook(lambda *args: found.append(keep(*args))):
            model(x).sum().backward()
        return finish(found, layer)

    return answer


def looks_forward(model, layer, x):
    found = []
    with layer.register_forward_hook(lambda module, args, output: found.append((args[0], output))):
        model(x).sum().backward()
    return found[0]


# --- 5.2 to 5.4: hooks that change each tensor in a tuple


def each(change, grads):
    return tuple(None if grad is None else change(grad) for grad in grads)


def going_out(change):
    """A full backward hook; change(grad, number)."""
    return lambda layer, number: layer.register_full_backward_hook(
        lambda module, grad_input, grad_output: each(lambda grad: change(grad, number), grad_input)
    )


def coming_in(change):
    return lambda layer, number: layer.register_full_backward_pre_hook(
        lambda module, grad_output: each(lambda grad: change(grad, number), grad_output)
    )


def in_the_old_way(change):
    return lambda layer, number: layer.register_backward_hook(
        lambda module, grad_input, grad_output: each(lambda grad: change(grad, number), grad_input)
    )


def together(*handles):
    return SimpleNamespace(remove=lambda: [handle.remove() for handle in handles])


def on_both_sides(change):
    return lambda layer, number: together(coming_in(change)(layer, number), going_out(change)(layer, number))


def times(grad, factor):
    return factor * grad


def clipped(grad, limit):
    return grad.clamp(-limit, limit)


def hooks_the_arguments(layer, factor):
    def pre_hook(module, args):
        for one in args:
            if isinstance(one, torch.Tensor) and one.requires_grad:
                one.register_hook(lambda grad: factor * grad)

    return layer.register_forward_pre_hook(pre_hook)


def brake(hook):
    """hook(module, grad_input, grad_output, factor)."""
    return lambda layer, factor: layer.register_full_backward_hook(lambda *args: hook(*args, factor))


def writes_and_returns_nothing(module, grad_input, grad_output, factor):
    each(lambda grad: grad.mul_(factor), grad_input)


def brakes_while_training(module, grad_input, grad_output, factor):
    return each(lambda grad: factor * grad, grad_input) if module.training else None


def brakes_the_first(module, grad_input, grad_output, factor):
    return (factor * grad_input[0], *grad_input[1:])


# --- 5.3


def scaling(hook=times, register="register_hook", factors=lambda weight, bias: (weight, bias)):
    """Tensor hooks on weight and bias; hook(grad, factor). A factor of None: no hook."""

    def answer(layer, weight_factor, bias_factor):
        pairs = zip((layer.weight, layer.bias), factors(weight_factor, bias_factor), strict=True)
        return [
            getattr(one, register)(lambda grad, factor=factor: hook(grad, factor))
            for one, factor in pairs
            if one is not None and factor is not None
        ]

    return answer


def in_place(grad, factor):
    grad.mul_(factor)


def scales_the_sum(parameter, factor):
    parameter.grad.mul_(factor)


def by_name(factor_of):
    """Tensor hooks on all parameters; factor_of(name, place, weight_factor, bias_factor)."""

    def answer(layer, *factors):
        return [
            one.register_hook(partial(times, factor=factor_of(name, place, *factors)))
            for place, (name, one) in enumerate(layer.named_parameters())
        ]

    return answer


def late_among_those_that_are_there(layer, weight_factor, bias_factor):
    handles = []
    for parameter, factor in ((layer.weight, weight_factor), (layer.bias, bias_factor)):
        if parameter is not None:
            last = factor
            handles.append(parameter.register_hook(lambda grad: last * grad))  # noqa: B023
    return handles


def documents_hook(register):
    def answer(layer, weight_factor, bias_factor):
        def hook(module, gin, gout):
            gin0, gin1, gin2 = gin
            return gin0, gin1 * weight_factor, gin2 * bias_factor

        return [getattr(layer, register)(hook)]

    return answer


def scales_grad_input(layer, weight_factor, bias_factor):
    return [layer.register_full_backward_hook(lambda module, gin, gout: (weight_factor * gin[0],))]


def scales_grad_output(layer, weight_factor, bias_factor):
    return [layer.register_full_backward_pre_hook(lambda module, gout: (weight_factor * gout[0],))]


def hooking(is_hooked):
    """Tensor hooks; is_hooked(bias, bias_factor)."""

    def answer(layer, weight_factor, bias_factor):
        handles = [layer.weight.register_hook(lambda grad: weight_factor * grad)]
        if is_hooked(layer.bias, bias_factor):
            handles.append(layer.bias.register_hook(lambda grad: bias_factor * grad))
        return handles

    return answer


# --- 5.4


def shortened(grad, limit):
    return grad * min(1.0, limit / grad.norm().item())


def zeroed(grad, limit):
    return torch.where(grad.abs() > limit, 0.0, grad)


def clips_what_goes_out(layer, limit):
    return layer.register_full_backward_hook(
        lambda module, grad_input, grad_output: tuple(grad.clamp(-limit, limit) for grad in grad_input)
    )


def clips_the_first(layer, limit):
    def fuse(module, grad_output):
        return (*each(lambda grad: clipped(grad, limit), grad_output[:1]), *grad_output[1:])

    return layer.register_full_backward_pre_hook(fuse)


def clips_while_training(layer, limit):
    def fuse(module, grad_output):
        return each(lambda grad: clipped(grad, limit), grad_output) if module.training else None

    return layer.register_full_backward_pre_hook(fuse)


def clips_the_parameters(layer, limit):
    return together(*[one.register_hook(lambda grad: clipped(grad, limit)) for one in layer.parameters()])


def returns_the_outputs_handle(layer, limit):
    return layer.register_forward_hook(
        lambda module, args, output: output.register_hook(lambda grad: clipped(grad, limit))
    )


# --- 5.5


def watching(
    keep=lambda seen, name, grad: seen.update({name: grad}),
    named=lambda output: output.items() if isinstance(output, dict) else [("output", output)],
    when=lambda module: True,
):
    """Tensor hooks on the layer's output, with parts that can be exchanged."""

    def answer(layer, seen):
        def hook(module, args, output):
            for name, value in named(output):
                if isinstance(value, torch.Tensor) and value.requires_grad and when(module):
                    value.register_hook(lambda grad, name=name: keep(seen, name, grad))

        return layer.register_forward_hook(hook)

    return answer


def returns_the_tensors_handle(layer, seen):
    return layer.register_forward_hook(
        lambda module, args, output: output.register_hook(lambda grad: seen.update(output=grad))
    )


def adds_up(seen, name, grad):
    seen[name] = seen.get(name, 0) + grad


def lists(seen, name, grad):
    seen.setdefault(name, []).append(grad)


MISCONCEPTIONS = {
    "5.1": {
        "order": around(lambda module, grad_input, grad_output: (grad_output[0], grad_input[0])),
        "values": looks_forward,
        "weights-gradient": around(finish=lambda found, layer: (layer.weight.grad, found[0][1])),
        "input-twice": around(lambda module, grad_input, grad_output: (grad_input[0], grad_input[0])),
        "output-twice": around(lambda module, grad_input, grad_output: (grad_output[0], grad_output[0])),
        "tuples": around(lambda module, grad_input, grad_output: (grad_input, grad_output)),
    },
    "5.2": {
        "wrong-side": coming_in(times),
        "on-both-sides": on_both_sides(times),
        "first-argument": brake(brakes_the_first),
        "arguments-themselves": hooks_the_arguments,
        "legacy-hook": in_the_old_way(times),
        "in-place": brake(writes_and_returns_nothing),
        "in-training-only": brake(brakes_while_training),
        "divided": going_out(lambda grad, factor: grad / factor),
        "zero-is-false": brake(
            lambda module, gin, gout, factor: each(lambda grad: factor * grad, gin) if factor else None
        ),
        "from-grad-output": brake(lambda module, gin, gout, factor: each(lambda grad: factor * grad, gout)),
    },
    "5.3": {
        "swapped": scaling(factors=lambda weight, bias: (bias, weight)),
        "late-binding": late_among_those_that_are_there,
        "biass-for-both": scaling(factors=lambda weight, bias: (bias, bias)),
        "weights-for-both": scaling(factors=lambda weight, bias: (weight, weight)),
        "bias-left-out": scaling(factors=lambda weight, bias: (weight, None)),
        "weight-left-out": scaling(factors=lambda weight, bias: (None, bias)),
        "in-place": scaling(in_place),
        "sum-scaled": scaling(scales_the_sum, "register_post_accumulate_grad_hook"),
        "grad-input": scales_grad_input,
        "grad-output": scales_grad_output,
        "legacy-hook": documents_hook("register_backward_hook"),
        "three-gradients": documents_hook("register_full_backward_hook"),
        "truth-of-a-tensor": hooking(lambda bias, factor: bias),
        "bias-is-none": hooking(lambda bias, factor: True),
        "zero-is-false": hooking(lambda bias, factor: bias is not None and factor),
        "all-the-others": by_name(lambda name, place, weight, bias: weight if name == "weight" else bias),
        "by-place": by_name(lambda name, place, weight, bias: (weight, bias, 1.0)[place]),
    },
    "5.4": {
        "wrong-side": going_out(clipped),
        "wrong-side-without-none": clips_what_goes_out,
        "legacy-hook": in_the_old_way(clipped),
        "on-both-sides": on_both_sides(clipped),
        "parameters": clips_the_parameters,
        "large-negative": coming_in(lambda grad, limit: grad.clamp(max=limit)),
        "large-positive": coming_in(lambda grad, limit: grad.clamp(min=-limit)),
        "below-zero": coming_in(lambda grad, limit: grad.clamp(0, limit)),
        "norm": coming_in(shortened),
        "first-output": clips_the_first,
        "fixed-range": coming_in(lambda grad, limit: grad.clamp(-1, 1)),
        "zeroed": coming_in(zeroed),
        "in-training-only": clips_while_training,
        "returns-the-handle": returns_the_outputs_handle,
    },
    "5.5": {
        "returns-the-handle": returns_the_tensors_handle,
        "dicts-left-out": watching(named=lambda output: [("output", output)]),
        "adds-up": watching(adds_up),
        "every-pass": watching(lists),
        "in-training-only": watching(when=lambda module: module.training),
        "absolute": watching(lambda seen, name, grad: seen.update({name: grad.abs()})),
        "norms": watching(lambda seen, name, grad: seen.update({name: grad.norm()})),
    },
}
