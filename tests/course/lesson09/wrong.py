"""What people get wrong in lesson 9."""

import torch
from torch import nn
from torch.nn import functional as F

import hooklab
from tests.course.exercises.wrong import wrong


def own(scores, labels):
    return scores[torch.arange(len(labels)), labels].sum()


# --- 9.1: Grad-CAM


def values_and_gradient(model, layer, images, score):
    kept = []
    with layer.register_forward_hook(lambda module, args, output: kept.append(output)):
        scores = model(images.clone().requires_grad_())
    return kept[0].detach(), torch.autograd.grad(score(scores), kept[0])[0]


@wrong("9.1", says="another class")
def explains_what_won(model, layer, images, labels):
    a, g = values_and_gradient(model, layer, images, lambda scores: scores.max(dim=1).values.sum())
    return (g.mean((2, 3), keepdim=True) * a).sum(1).relu()


@wrong("9.1", says="the third step")
def keeps_what_is_negative(model, layer, images, labels):
    a, g = values_and_gradient(model, layer, images, lambda scores: own(scores, labels))
    return (g.mean((2, 3), keepdim=True) * a).sum(1)


@wrong("9.1", says="the first step")
def takes_no_mean(model, layer, images, labels):
    a, g = values_and_gradient(model, layer, images, lambda scores: own(scores, labels))
    return (g * a).sum(1).relu()


@wrong("9.1", says="all pairs")
def takes_every_label_for_every_image(model, layer, images, labels):
    a, g = values_and_gradient(model, layer, images, lambda scores: scores[:, labels].sum())
    return (g.mean((2, 3), keepdim=True) * a).sum(1).relu()


@wrong("9.1", says="the loss: it falls")
def goes_back_from_the_loss(model, layer, images, labels):
    a, g = values_and_gradient(model, layer, images, lambda s: F.cross_entropy(s, labels, reduction="sum"))
    return (g.mean((2, 3), keepdim=True) * a).sum(1).relu()


@wrong("9.1", says="no graph")
def asks_for_no_gradient(model, layer, images, labels):
    kept = []
    with layer.register_forward_hook(lambda module, args, output: kept.append(output)):
        scores = model(images)
    (g,) = torch.autograd.grad(own(scores, labels), kept[0])
    return (g.mean((2, 3), keepdim=True) * kept[0]).sum(1).relu()


@wrong("9.1", says="changed the .grad of the parameter")
def calls_backward(model, layer, images, labels):
    kept = []

    def keep(module, args, output):
        output.retain_grad()
        kept.append(output)

    with layer.register_forward_hook(keep):
        own(model(images.clone().requires_grad_()), labels).backward()
    return (kept[0].grad.mean((2, 3), keepdim=True) * kept[0]).sum(1).relu()


@wrong("9.1", says="your code left a hook behind")
def leaves_its_hook(model, layer, images, labels):
    kept = []
    layer.register_forward_hook(lambda module, args, output: kept.append(output))
    scores = model(images.clone().requires_grad_())
    (g,) = torch.autograd.grad(own(scores, labels), kept[-1])
    return (g.mean((2, 3), keepdim=True) * kept[-1]).sum(1).relu()


@wrong("9.1", says="asks for a gradient now")
def switches_the_images_on(model, layer, images, labels):
    kept = []
    with layer.register_forward_hook(lambda module, args, output: kept.append(output)):
        scores = model(images.requires_grad_())
    (g,) = torch.autograd.grad(own(scores, labels), kept[0])
    return (g.mean((2, 3), keepdim=True) * kept[0]).sum(1).relu()


# --- 9.2: guided backprop, mended


def guided(model, images, labels, hook, score=own):
    relus = [module for module in model.modules() if isinstance(module, nn.ReLU)]
    handles = [relu.register_full_backward_hook(hook) for relu in relus]
    watched = images.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(score(model(watched), labels), watched)
    for handle in handles:
        handle.remove()
    return gradient


def positive(module, grad_input, grad_output):
    return (grad_input[0].clamp(min=0),)


@wrong("9.2", says="not a tuple")
def the_script_as_it_is(model, images, labels):
    def only_positive(module, grad_input, grad_output):
        return grad_input[0].clamp(min=0)

    for module in model.modules():
        if isinstance(module, nn.ReLU):
            module.register_full_backward_hook(only_positive)
    images.requires_grad_()
    model(images)[:, labels].sum().backward()
    return images.grad


@wrong("9.2", says="your code left a hook behind")
def leaves_the_hooks(model, images, labels):
    for module in model.modules():
        if isinstance(module, nn.ReLU):
            module.register_full_backward_hook(positive)
    watched = images.clone().requires_grad_()
    return torch.autograd.grad(own(model(watched), labels), watched)[0]


@wrong("9.2", says="all pairs")
def keeps_the_pairs(model, images, labels):
    return guided(model, images, labels, positive, lambda scores, labels: scores[:, labels].sum())


@wrong("9.2", says="changed the .grad of the parameter")
def still_calls_backward(model, images, labels):
    watched = images.clone().requires_grad_()
    handles = [one.register_full_backward_hook(positive) for one in model.modules() if isinstance(one, nn.ReLU)]
    own(model(watched), labels).backward()
    for handle in handles:
        handle.remove()
    return watched.grad


@wrong("9.2", says="asks for a gradient now")
def still_changes_the_images(model, images, labels):
    handles = [one.register_full_backward_hook(positive) for one in model.modules() if isinstance(one, nn.ReLU)]
    images.requires_grad_()
    (gradient,) = torch.autograd.grad(own(model(images), labels), images)
    for handle in handles:
        handle.remove()
    return gradient


@wrong("9.2", says="no rule: this is the plain gradient")
def computes_and_returns_nothing(model, images, labels):
    return guided(model, images, labels, lambda module, gin, gout: None)


@wrong("9.2", says="grad_output in the place of grad_input")
def forgets_the_mask(model, images, labels):
    return guided(model, images, labels, lambda module, gin, gout: (gout[0].clamp(min=0),))


@wrong("9.2", says="the outer ReLUs only")
def goes_through_the_children(model, images, labels):
    handles = [one.register_full_backward_hook(positive) for one in model.children() if isinstance(one, nn.ReLU)]
    watched = images.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(own(model(watched), labels), watched)
    for handle in handles:
        handle.remove()
    return gradient


# --- 9.3: the induction score of every head


def read(model, names, tokens, score):
    with torch.no_grad(), hooklab.capture(model, *names) as seen:
        model(tokens)
        return torch.stack([score(seen[name]) for name in names])


@wrong("9.3", says="the earlier copy itself")
def looks_at_the_copy(model, names, tokens, period):
    t = torch.arange(period, tokens.shape[1])
    return read(model, names, tokens, lambda p: p[:, :, t, t - period].mean((0, 2)))


@wrong("9.3", says="to and from are swapped")
def swaps_to_and_from(model, names, tokens, period):
    t = torch.arange(period, tokens.shape[1])
    return read(model, names, tokens, lambda p: p[:, :, t - period + 1, t].mean((0, 2)))


@wrong("9.3", says="too early")
def begins_one_too_early(model, names, tokens, period):
    t = torch.arange(period - 1, tokens.shape[1])
    return read(model, names, tokens, lambda p: p[:, :, t, t - period + 1].mean((0, 2)))


@wrong("9.3", says="the token before")
def scores_the_token_before(model, names, tokens, period):
    t = torch.arange(period, tokens.shape[1])
    return read(model, names, tokens, lambda p: p[:, :, t, t - 1].mean((0, 2)))


@wrong("9.3", says="one module for all names")
def binds_late(model, names, tokens, period):
    seen, t = {}, torch.arange(period, tokens.shape[1])
    handles = []
    for name in names:
        hook = lambda module, args, output: seen.update({name: output})  # noqa: B023, E731
        handles.append(model.get_submodule(name).register_forward_hook(hook))
    model(tokens)
    for handle in handles:
        handle.remove()
    return torch.stack([seen[names[-1]][:, :, t, t - period + 1].mean((0, 2)) for _ in names])


@wrong("9.3", says="another order")
def sorts_the_names(model, names, tokens, period):
    t = torch.arange(period, tokens.shape[1])
    return read(model, sorted(names), tokens, lambda p: p[:, :, t, t - period + 1].mean((0, 2)))


@wrong("9.3", says="how often the head looks most there")
def counts_the_largest(model, names, tokens, period):
    t = torch.arange(period, tokens.shape[1])
    return read(model, names, tokens, lambda p: (p[:, :, t].argmax(-1) == t - period + 1).float().mean((0, 2)))


@wrong("9.3", says="your table of scores has another shape")
def averages_over_the_heads(model, names, tokens, period):
    t = torch.arange(period, tokens.shape[1])
    return read(model, names, tokens, lambda p: p[:, :, t, t - period + 1].mean())


# --- 9.4: patch it


def patch(model, name, source, target, change):
    with torch.no_grad(), hooklab.capture(model, name, clone=True) as seen:
        model(source)
    with model.get_submodule(name).register_forward_hook(lambda module, args, output: change(output, seen[name])):
        return model(target)


@wrong("9.4", says="all positions: only one")
def takes_the_whole_output(model, name, clean, corrupted, position):
    return patch(model, name, clean, corrupted, lambda output, kept: kept)


@wrong("9.4", says="the other way round")
def patches_the_clean_run(model, name, clean, corrupted, position):
    def change(output, kept):
        output = output.clone()
        output[:, position] = kept[:, position]
        return output

    return patch(model, name, corrupted, clean, change)


@wrong("9.4", says="no patch")
def forgets_the_return(model, name, clean, corrupted, position):
    def change(output, kept):
        output = output.clone()
        output[:, position] = kept[:, position]

    return patch(model, name, clean, corrupted, change)


@wrong("9.4", says="in place")
def writes_in_place(model, name, clean, corrupted, position):
    def change(output, kept):
        output[:, position] = kept[:, position]
        return output

    return patch(model, name, clean, corrupted, change)


@wrong("9.4", says="patch the module's output, not what the model is given")
def patches_the_input(model, name, clean, corrupted, position):
    mixed = corrupted.clone()
    mixed[:, position] = clean[:, position]
    return model(mixed)


@wrong("9.4", says="all positions up to this one")
def patches_all_up_to_it(model, name, clean, corrupted, position):
    def change(output, kept):
        return torch.cat([kept[:, : position + 1], output[:, position + 1 :]], dim=1)

    return patch(model, name, clean, corrupted, change)


@wrong("9.4", says="your code left a hook behind")
def leaves_the_patch(model, name, clean, corrupted, position):
    kept = []
    with model.get_submodule(name).register_forward_hook(lambda module, args, output: kept.append(output.detach())):
        model(clean)
    at = torch.arange(clean.shape[1]).view(1, -1, 1) == position
    hook = lambda module, args, output: torch.where(at, kept[0], output)  # noqa: E731
    model.get_submodule(name).register_forward_hook(hook)
    return model(corrupted)


@wrong("9.4", says="what the model puts out is None")
def returns_nothing(model, name, clean, corrupted, position):
    patch(model, name, clean, corrupted, lambda output, kept: output)


# --- 9.5: what each channel is worth


def accuracy(model, layer, images, labels, hook):
    with torch.no_grad(), layer.register_forward_hook(hook):
        return (model(images).argmax(1) == labels).float().mean()


def by_channel(model, layer, images, labels, score, mask=lambda channels, one: channels != one):
    with torch.no_grad(), hooklab.capture(model, layer) as seen:
        full = (model(images).argmax(1) == labels).float().mean()
        channels = torch.arange(next(iter(seen.values())).shape[1])

    def off(one):
        keep = mask(channels, one)
        return lambda module, args, output: output * keep.view(-1, *[1] * (output.ndim - 2))

    return torch.stack([score(full, accuracy(model, layer, images, labels, off(one))) for one in channels])


@wrong("9.5", says="the accuracy that is left")
def returns_what_is_left(model, layer, images, labels):
    return by_channel(model, layer, images, labels, lambda full, left: left)


@wrong("9.5", says="the sign")
def turns_the_sign(model, layer, images, labels):
    return by_channel(model, layer, images, labels, lambda full, left: left - full)


@wrong("9.5", says="against perfect")
def compares_with_perfect(model, layer, images, labels):
    return by_channel(model, layer, images, labels, lambda full, left: 1 - left)


@wrong("9.5", says="one after the other")
def leaves_the_channels_before_off(model, layer, images, labels):
    return by_channel(
        model, layer, images, labels, lambda full, left: full - left, lambda channels, one: channels > one
    )


@wrong("9.5", says="the others: all channels but this one")
def keeps_only_this_one(model, layer, images, labels):
    return by_channel(
        model, layer, images, labels, lambda full, left: full - left, lambda channels, one: channels == one
    )


@wrong("9.5", says="no change: nothing is lost")
def forgets_to_return(model, layer, images, labels):
    with torch.no_grad(), hooklab.capture(model, layer) as seen:
        model(images)
        channels = next(iter(seen.values())).shape[1]

    def right(hook):
        return accuracy(model, layer, images, labels, hook)

    full = right(lambda module, args, output: None)
    return torch.stack([full - right(lambda module, args, output: None) for _ in range(channels)])


@wrong("9.5", says="read their number off its output")
def asks_a_convolution(model, layer, images, labels):
    return torch.zeros(layer.out_channels)


@wrong("9.5", says="percent")
def answers_in_percent(model, layer, images, labels):
    return by_channel(model, layer, images, labels, lambda full, left: 100 * (full - left))
