"""Unusual right answers to lesson 9's exercises, and wrong ones that no misconception has."""

import copy

import torch
from torch.nn import functional as F

import hooklab
from solutions.misconceptions import lesson09 as parts
from tests.course.exercises.answers import Answers

answers = Answers("9.1", "9.2", "9.3", "9.4", "9.5")
right, wrong = answers.right, answers.wrong


# --- 9.1


@right("9.1")
def image_by_image(model, layer, images, labels):
    pairs = zip(images, labels, strict=True)
    return torch.cat([parts.cam()(model, layer, image[None], label[None]) for image, label in pairs])


@right("9.1")
def with_two_hooks_on_the_layer(model, layer, images, labels):
    seen = {}
    with (
        layer.register_forward_hook(lambda module, args, output: seen.update(values=output.detach())),
        layer.register_full_backward_hook(lambda module, gin, gout: seen.update(gradient=gout[0])),
    ):
        watched = parts.watched(images)
        torch.autograd.grad(parts.own(model(watched), labels), watched)
    return torch.einsum("nc,nchw->nhw", seen["gradient"].flatten(2).mean(2), seen["values"]).clamp(min=0)


# --- 9.2


@right("9.2")
def with_a_pre_hook(model, images, labels):
    hook = lambda module, grad_output: (grad_output[0].clamp(min=0),)  # noqa: E731
    handles = [one.register_full_backward_pre_hook(hook) for one in parts.relus(model)]
    watched = parts.watched(images)
    (found,) = torch.autograd.grad(parts.own(model(watched), labels), watched)
    for handle in handles:
        handle.remove()
    return found


@right("9.2")
def on_a_copy_of_the_model(model, images, labels):
    twin = copy.deepcopy(model)
    for one in parts.relus(twin):
        one.register_full_backward_hook(lambda module, gin, gout: (gin[0] * (gin[0] > 0),))
    watched = parts.watched(images)
    parts.own(twin(watched), labels).backward()
    return watched.grad


@wrong("9.2", "Your first call was right, and the second one")
def adds_to_a_gradient_that_it_keeps(model, images, labels, kept={}):  # noqa: B006
    key = tuple(images.shape)
    kept[key] = kept.get(key, 0) + with_a_pre_hook(model, images, labels)
    return kept[key]


# --- 9.3


@right("9.3")
def by_a_mask(model, names, tokens, period):
    length = tokens.shape[1]
    t, s = torch.arange(length)[:, None], torch.arange(length)
    mask = ((t - s == period - 1) & (t >= period)).float()
    with torch.no_grad(), hooklab.capture(model, *names, clone=True) as seen:
        model(tokens)
    return torch.stack([(seen[name] * mask).sum((2, 3)).mean(0) / mask.sum() for name in names])


@right("9.3")
def one_number_after_the_other(model, names, tokens, period):
    table = []
    for name in names:
        with hooklab.capture(model, name) as seen:
            model(tokens)
        pattern = seen[name]
        where = [(t, t - period + 1) for t in range(period, tokens.shape[1])]
        table.append([sum(pattern[:, h, t, s].mean() for t, s in where) / len(where) for h in range(pattern.shape[1])])
    return torch.tensor(table)


# --- 9.4


@right("9.4")
def with_one_hook_for_both_runs(model, name, clean, corrupted, position):
    runs = []

    def hook(module, args, output):
        runs.append(output.detach().clone())
        if len(runs) == 1:
            return None
        mixed = runs[1].clone()
        mixed[:, position] = runs[0][:, position]
        return mixed

    with torch.no_grad(), model.get_submodule(name).register_forward_hook(hook):
        model(clean)
        return model(corrupted)


@right("9.4")
def with_run_until(model, name, clean, corrupted, position):
    kept = hooklab.run_until(model, name, clean).detach().clone()
    mask = torch.zeros(kept.shape[1], 1)
    mask[position] = 1.0
    with hooklab.edit(model, lambda output, call: output * (1 - mask) + kept * mask, name):
        return model(corrupted).detach()


# --- 9.5


@right("9.5")
def with_one_hook_and_a_variable(model, layer, images, labels):
    state = {"off": None, "width": None}

    def hook(module, args, output):
        state["width"] = output.shape[1]
        if state["off"] is None:
            return None
        mask = torch.ones_like(output)
        mask[:, state["off"]] = 0
        return output * mask

    with layer.register_forward_hook(hook):
        full = (model(images).argmax(dim=1) == labels).double().mean()
        scores = torch.empty(state["width"], dtype=torch.float64)
        for one in range(state["width"]):
            state["off"] = one
            scores[one] = full - (model(images).argmax(dim=1) == labels).double().mean()
    return scores


@right("9.5")
def with_run_until_for_the_width(model, layer, images, labels):
    width = hooklab.run_until(model, layer, images[:1]).shape[1]

    def right_ones(hook):
        with layer.register_forward_hook(hook):
            return int((model(images).argmax(1) == labels).sum())

    full, lost = right_ones(lambda *args: None), []
    for one in range(width):
        keep = 1 - F.one_hot(torch.tensor(one), width).float()
        lost.append(full - right_ones(lambda m, a, out, keep=keep: (out.transpose(1, -1) * keep).transpose(1, -1)))
    return torch.tensor(lost) / len(labels)


@wrong("9.5", "`x *= 2` and", "your code changed, in place, the parameter")
def erases_the_weights(model, layer, images, labels):
    scores = with_run_until_for_the_width(model, layer, images, labels)
    with torch.no_grad():
        next(layer.parameters(), next(model.parameters()))[0] = 9.0
    return scores


test_right, test_wrong = answers.tests()
