"""What people get wrong in lesson 5."""

import torch

from tests.course.exercises.wrong import wrong

# --- 5.1: on both sides of a layer


@wrong("5.1", says="always tuples")
def keeps_the_tuples(model, layer, x):
    found = []
    with layer.register_full_backward_hook(lambda module, gin, gout: found.append((gin, gout))):
        model(x).sum().backward()
    return found[0]


@wrong("5.1", says="order: the input's gradient comes first")
def the_other_way_round(model, layer, x):
    found = []
    with layer.register_full_backward_hook(lambda module, gin, gout: found.append((gout[0], gin[0]))):
        model(x).sum().backward()
    return found[0]


@wrong("5.1", says="register before the forward")
def registers_after_the_forward(model, layer, x):
    found = []
    loss = model(x).sum()
    with layer.register_full_backward_hook(lambda module, gin, gout: found.append((gin[0], gout[0]))):
        loss.backward()
    return found[0]


@wrong("5.1", says="nothing has called backward()")
def never_sends_a_gradient(model, layer, x):
    found = []
    with layer.register_full_backward_hook(lambda module, gin, gout: found.append((gin[0], gout[0]))):
        model(x).sum()
    return found[0]


@wrong("5.1", says="it sees the values that flow forward")
def looks_forward(model, layer, x):
    found = []
    with layer.register_forward_hook(lambda module, args, output: found.append((args[0], output))):
        model(x).sum().backward()
    return found[0]


@wrong("5.1", says="weight.grad is neither of the two")
def takes_the_weights_gradient(model, layer, x):
    found = []
    with layer.register_full_backward_hook(lambda module, gin, gout: found.append(gout[0])):
        model(x).sum().backward()
    return layer.weight.grad, found[0]


@wrong("5.1", says="the gradient of the output has another shape")
def unpacks_the_legacy_hook_like_a_convolution(model, layer, x):
    found = []
    with layer.register_backward_hook(lambda module, gin, gout: found.append((gin[1], gin[2].T))):
        model(x).sum().backward()
    return found[0]


@wrong("5.1", says="likely    legacy hook")
def takes_the_legacy_hooks_first_entries(model, layer, x):
    found = []
    with layer.register_backward_hook(lambda module, gin, gout: found.append((gin[0], gout[0]))):
        model(x).sum().backward()
    return found[0]


@wrong("5.1", says="put it on `layer`")
def hooks_the_model(model, layer, x):
    found = []
    with model.register_full_backward_hook(lambda module, gin, gout: found.append((gin[0], gout[0]))):
        model(x).sum().backward()
    return found[0]


@wrong("5.1", says="your code left a hook behind")
def loses_the_handle(model, layer, x):
    found = []
    layer.register_full_backward_hook(lambda module, gin, gout: found.append((gin[0], gout[0])))
    model(x).sum().backward()
    return found[0]


@wrong("5.1", says="forgotten return")
def keeps_it_to_itself(model, layer, x):
    found = []
    with layer.register_full_backward_hook(lambda module, gin, gout: found.append((gin[0], gout[0]))):
        model(x).sum().backward()


@wrong("5.1", says="sent from the mean of the output")
def sends_from_the_mean(model, layer, x):
    found = []
    with layer.register_full_backward_hook(lambda module, gin, gout: found.append((gin[0], gout[0]))):
        model(x).mean().backward()
    return found[0]


# --- 5.2: a brake


@wrong("5.2", says="not a tuple")
def returns_a_tensor(layer, factor):
    return layer.register_full_backward_hook(lambda module, gin, gout: factor * gin[0])


@wrong("5.2", says="forgotten return: your hook returns None")
def computes_and_forgets(layer, factor):
    def brake(module, gin, gout):
        gin = tuple(factor * grad for grad in gin)

    return layer.register_full_backward_hook(brake)


@wrong("5.2", says="forgotten return")
def returns_no_handle(layer, factor):
    layer.register_full_backward_hook(lambda module, gin, gout: tuple(factor * grad for grad in gin))


@wrong("5.2", says="the wrong side")
def scales_what_comes_in(layer, factor):
    return layer.register_full_backward_pre_hook(lambda module, gout: tuple(factor * grad for grad in gout))


@wrong("5.2", says="None in a tuple")
def trips_over_none(layer, factor):
    return layer.register_full_backward_hook(lambda module, gin, gout: tuple(factor * grad for grad in gin))


@wrong("5.2", says="scale every tensor")
def scales_the_first_argument(layer, factor):
    return layer.register_full_backward_hook(lambda module, gin, gout: (factor * gin[0], *gin[1:]))


@wrong("5.2", says="this layer's share only")
def hooks_the_tensor_that_goes_in(layer, factor):
    def pre_hook(module, args):
        for one in args:
            if isinstance(one, torch.Tensor) and one.requires_grad:
                one.register_hook(lambda grad: factor * grad)

    return layer.register_forward_pre_hook(pre_hook)


@wrong("5.2", says="belongs to somebody else")
def writes_in_place(layer, factor):
    def brake(module, gin, gout):
        for grad in gin:
            if grad is not None:
                grad.mul_(factor)

    return layer.register_full_backward_hook(brake)


@wrong("5.2", says="another shape")
def sums_the_gradient_up(layer, factor):
    return layer.register_full_backward_hook(lambda module, gin, gout: tuple(factor * grad.sum() for grad in gin))


@wrong("5.2", says="legacy hook")
def uses_the_legacy_hook(layer, factor):
    return layer.register_backward_hook(lambda module, gin, gout: tuple(None if g is None else factor * g for g in gin))


# --- 5.3: the documents' hook, mended


@wrong("5.3", says="a function looks its variable up when it runs")
def one_factor_for_both_by_a_late_lambda(layer, weight_factor, bias_factor):
    handles = []
    for parameter, factor in ((layer.weight, weight_factor), (layer.bias, bias_factor)):
        if parameter is not None:
            handles.append(parameter.register_hook(lambda grad: grad * factor))  # noqa: B023
    return handles


@wrong("5.3", says="three gradients")
def the_documents_hook_made_full(layer, weight_factor, bias_factor):
    def hook(module, gin, gout):
        gin0, gin1, gin2 = gin
        return gin0, weight_factor * gin1, bias_factor * gin2

    return [layer.register_full_backward_hook(hook)]


@wrong("5.3", says="legacy hook: where it has")
def the_documents_hook_as_it_is(layer, weight_factor, bias_factor):
    def hook(module, gin, gout):
        gin0, gin1, gin2 = gin
        return gin0, weight_factor * gin1, bias_factor * gin2

    return [layer.register_backward_hook(hook)]


@wrong("5.3", says="grad_input is the input's gradient")
def scales_grad_input(layer, weight_factor, bias_factor):
    return [layer.register_full_backward_hook(lambda module, gin, gout: (weight_factor * gin[0],))]


@wrong("5.3", says="'NoneType' object has no attribute 'register_hook', at line")
def expects_a_bias(layer, weight_factor, bias_factor):
    return [
        layer.weight.register_hook(lambda grad: weight_factor * grad),
        layer.bias.register_hook(lambda grad: bias_factor * grad),
    ]


@wrong("5.3", says="no hook on the bias, or one that returns None")
def forgets_the_bias(layer, weight_factor, bias_factor):
    return [layer.weight.register_hook(lambda grad: weight_factor * grad)]


@wrong("5.3", says="the factors are swapped")
def swaps_the_factors(layer, weight_factor, bias_factor):
    named = {"weight": bias_factor, "bias": weight_factor}
    return [p.register_hook(lambda grad, factor=named[name]: factor * grad) for name, p in layer.named_parameters()]


@wrong("5.3", says="one factor for both")
def binds_late(layer, weight_factor, bias_factor):
    handles = []
    for parameter, factor in zip(layer.parameters(), (weight_factor, bias_factor), strict=False):
        handles.append(parameter.register_hook(lambda grad: factor * grad))  # noqa: B023
    return handles


@wrong("5.3", says="the sum in .grad was scaled")
def scales_the_sum(layer, weight_factor, bias_factor):
    def scale(factor):
        def hook(parameter):
            parameter.grad = factor * parameter.grad

        return hook

    named = {"weight": weight_factor, "bias": bias_factor}
    return [p.register_post_accumulate_grad_hook(scale(named[name])) for name, p in layer.named_parameters()]


@wrong("5.3", says="did not return a list of handles")
def one_handle_for_two(layer, weight_factor, bias_factor):
    handle = layer.weight.register_hook(lambda grad: weight_factor * grad)
    if layer.bias is not None:
        layer.bias.register_hook(lambda grad: bias_factor * grad)
    return handle


@wrong("5.3", says="one of your hooks is still registered at the end: tensor hook")
def a_handle_is_missing(layer, weight_factor, bias_factor):
    handle = layer.weight.register_hook(lambda grad: weight_factor * grad)
    if layer.bias is not None:
        layer.bias.register_hook(lambda grad: bias_factor * grad)
    return [handle]


# --- 5.4: a fuse


@wrong("5.4", says="the wrong side")
def clips_what_goes_out(layer, limit):
    return layer.register_full_backward_hook(lambda module, gin, gout: tuple(grad.clamp(-limit, limit) for grad in gin))


@wrong("5.4", says="forgotten return: your hook returns None")
def clips_and_forgets(layer, limit):
    def fuse(module, gout):
        gout = tuple(grad.clamp(-limit, limit) for grad in gout)

    return layer.register_full_backward_pre_hook(fuse)


@wrong("5.4", says="not a tuple")
def returns_one_clipped_tensor(layer, limit):
    return layer.register_full_backward_pre_hook(lambda module, gout: gout[0][:1].clamp(-limit, limit).repeat(3, 1))


@wrong("5.4", says="norm: the gradient is made shorter as a whole")
def clips_the_norm(layer, limit):
    def fuse(module, gout):
        return tuple(grad * (limit / grad.norm()).clamp(max=1) for grad in gout)

    return layer.register_full_backward_pre_hook(fuse)


@wrong("5.4", says="one side only")
def clips_one_side(layer, limit):
    return layer.register_full_backward_pre_hook(lambda module, gout: tuple(grad.clamp(max=limit) for grad in gout))


@wrong("5.4", says="in-place change")
def clamps_in_place(layer, limit):
    def fuse(module, gout):
        for grad in gout:
            grad.clamp_(-limit, limit)

    return layer.register_full_backward_pre_hook(fuse)


@wrong("5.4", says="None in a tuple")
def has_not_thought_of_none(layer, limit):
    return layer.register_full_backward_pre_hook(lambda module, gout: tuple(grad.clamp(-limit, limit) for grad in gout))


@wrong("5.4", says="clip every tensor")
def clips_the_first_output(layer, limit):
    def fuse(module, gout):
        return (None if gout[0] is None else gout[0].clamp(-limit, limit), *gout[1:])

    return layer.register_full_backward_pre_hook(fuse)


@wrong("5.4", says="another hook's arguments")
def writes_the_pre_hook_and_registers_the_hook(layer, limit):
    def fuse(module, gout):
        return tuple(grad.clamp(-limit, limit) for grad in gout)

    return layer.register_full_backward_hook(fuse)


@wrong("5.4", says="the handle of your hook")
def returns_the_layer(layer, limit):
    layer.register_full_backward_pre_hook(lambda module, gout: tuple(grad.clamp(-limit, limit) for grad in gout))
    return layer


# --- 5.5: gradients at any output


def hook_tensor(tensor, seen, name):
    if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
        tensor.register_hook(lambda grad: seen.update({name: grad}))


@wrong("5.5", says="hook the tensor")
def a_full_hook(layer, seen):
    return layer.register_full_backward_hook(lambda module, gin, gout: seen.update(output=gout[0]))


@wrong("5.5", says="accidental return")
def returns_the_tensors_handle(layer, seen):
    return layer.register_forward_hook(
        lambda module, args, output: output.register_hook(lambda grad: seen.update(output=grad))
    )


@wrong("5.5", says="one key for all")
def keys_bind_late(layer, seen):
    def hook(module, args, output):
        outputs = output if isinstance(output, dict) else {"output": output}
        for name, value in outputs.items():
            if isinstance(value, torch.Tensor) and value.requires_grad:
                value.register_hook(lambda grad: seen.update({name: grad}))  # noqa: B023

    return layer.register_forward_hook(hook)


@wrong("5.5", says="ask a tensor for requires_grad")
def hooks_everything(layer, seen):
    def hook(module, args, output):
        for name, value in (output if isinstance(output, dict) else {"output": output}).items():
            if isinstance(value, torch.Tensor):
                value.register_hook(lambda grad, name=name: seen.update({name: grad}))

    return layer.register_forward_hook(hook)


@wrong("5.5", says="'dict' object has no attribute 'requires_grad'")
def expects_a_tensor(layer, seen):
    def hook(module, args, output):
        if output.requires_grad:
            output.register_hook(lambda grad: seen.update(output=grad))

    return layer.register_forward_hook(hook)


@wrong("5.5", says="a layer that returns a dict: `seen` is empty")
def ignores_dicts(layer, seen):
    return layer.register_forward_hook(lambda module, args, output: hook_tensor(output, seen, "output"))


@wrong("5.5", says="value instead of gradient")
def keeps_the_values(layer, seen):
    def hook(module, args, output):
        for name, value in (output if isinstance(output, dict) else {"output": output}).items():
            seen[name] = value

    return layer.register_forward_hook(hook)


@wrong("5.5", says="got       {'output': None}")
def reads_grad_in_the_forward(layer, seen):
    def hook(module, args, output):
        output.retain_grad()
        seen["output"] = output.grad

    return layer.register_forward_hook(hook)


@wrong("5.5", says="your hook wrote nothing into it")
def a_dictionary_of_its_own(layer, seen):
    seen = {}
    return layer.register_forward_hook(lambda module, args, output: hook_tensor(output, seen, "output"))


# --- added: what a second reader tried


@wrong("5.1", says="legacy hook: how many entries")
def takes_the_second_entry_of_the_legacy_hook(model, layer, x):
    found = []
    with layer.register_backward_hook(lambda module, gin, gout: found.append((gin[1], gout[0]))):
        model(x).sum().backward()
    return found[0]


@wrong("5.1", says="got 2, but expected 1")
def a_lambda_that_returns_a_pair(model, layer, x):
    found = []
    with layer.register_full_backward_hook(lambda m, gin, gout: (found.append(gin[0]), found.append(gout[0]))):
        model(x).sum().backward()
    return found[0], found[1]


@wrong("5.2", says="None for None")
def drops_none(layer, factor):
    return layer.register_full_backward_hook(lambda m, gin, gout: tuple(factor * g for g in gin if g is not None))


@wrong("5.2", says="a generator")
def returns_a_generator(layer, factor):
    return layer.register_full_backward_hook(lambda m, gin, gout: (None if g is None else factor * g for g in gin))


@wrong("5.2", says="is used up")
def returns_a_used_handle(layer, factor):
    with layer.register_full_backward_hook(lambda m, gin, gout: tuple(factor * g for g in gin)) as handle:
        return handle


@wrong("5.3", says="in-place change")
def scales_parameter_gradients_in_place(layer, weight_factor, bias_factor):
    def scale(factor):
        def hook(grad):
            grad.mul_(factor)

        return hook

    named = {"weight": weight_factor, "bias": bias_factor}
    return [p.register_hook(scale(named[name])) for name, p in layer.named_parameters()]


@wrong("5.5", says="`seen` still holds the gradient of the first")
def keeps_the_first_gradient(layer, seen):
    def hook(module, args, output):
        for name, value in (output if isinstance(output, dict) else {"output": output}).items():
            if isinstance(value, torch.Tensor) and value.requires_grad:

                def keep(grad, name=name):
                    seen.setdefault(name, grad)

                value.register_hook(keep)

    return layer.register_forward_hook(hook)


@wrong("5.5", says="asked for")
def asks_for_gradients(layer, seen):
    def hook(module, args, output):
        for name, value in (output if isinstance(output, dict) else {"output": output}).items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                value.requires_grad_()
                value.register_hook(lambda grad, name=name: seen.update({name: grad}))

    return layer.register_forward_hook(hook)
