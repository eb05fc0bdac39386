"""Unusual right answers to lesson 9's exercises, and wrong ones: none is misjudged, and no reason is untrue.

A wrong answer comes with the beginning of the one reason that is true, or None where the check can know none.
"""

import copy
import functools

import torch
from torch import nn
from torch.nn import functional as F

import hooklab
from hooklab.course.lesson09 import maps
from tests.course.exercises.answers import Answers

answers = Answers("9.1", "9.2", "9.3", "9.4", "9.5")
right, wrong = answers.right, answers.wrong


def own(scores, labels):
    return scores[torch.arange(len(labels)), labels].sum()


# --- 9.1


def values_and_gradient(model, layer, images, score):
    with hooklab.capture(model, layer, detach=False) as seen:
        total = score(model(images.clone().requires_grad_()))
        (values,) = seen.values()
    return values, torch.autograd.grad(total, values)[0]


@right("9.1")
def with_capture_and_einsum(model, layer, images, labels):
    values, gradient = values_and_gradient(model, layer, images, lambda scores: own(scores, labels))
    return torch.einsum("nc,nchw->nhw", gradient.flatten(2).mean(2), values).clamp(min=0)


@right("9.1")
def image_by_image(model, layer, images, labels):
    found = []
    for image, label in zip(images, labels, strict=True):
        values, gradient = values_and_gradient(model, layer, image[None], lambda scores: scores[0, label])  # noqa: B023
        found.append((values * gradient.mean((2, 3), keepdim=True)).sum(1).relu()[0])
    return torch.stack(found)


@right("9.1")
def with_a_tensor_hook(model, layer, images, labels):
    values, gradients = [], []

    def hook(module, args, output):
        values.append(output.detach())
        output.register_hook(gradients.append)

    handle = layer.register_forward_hook(hook)
    try:
        watched = images.clone().requires_grad_()
        torch.autograd.grad(own(model(watched), labels), watched)
    finally:
        handle.remove()
    return F.relu((values[0] * gradients[0].mean(dim=[-1, -2], keepdim=True)).sum(dim=1))


@right("9.1")
def with_a_full_backward_hook(model, layer, images, labels):
    seen = {}
    with (
        layer.register_forward_hook(lambda module, args, output: seen.update(values=output.detach())),
        layer.register_full_backward_hook(lambda module, gin, gout: seen.update(gradient=gout[0])),
    ):
        watched = images.clone().requires_grad_()
        torch.autograd.grad(own(model(watched), labels), watched)
    weights = seen["gradient"].mean((2, 3))
    return torch.stack(
        [(w @ v.flatten(1)).view(v.shape[1:]) for w, v in zip(weights, seen["values"], strict=True)]
    ).relu()


@right("9.1")
def from_an_output_that_asks_for_gradients_itself(model, layer, images, labels):
    kept = []

    def cut(module, args, output):
        kept.append(output.detach().requires_grad_())
        return kept[-1]

    with layer.register_forward_hook(cut):
        total = model(images).gather(1, labels[:, None]).sum()
    (gradient,) = torch.autograd.grad(total, kept)
    return (kept[0] * gradient.mean((2, 3), True)).sum(1).clamp_min(0)


@right("9.1")
def by_vector_of_one_hots(model, layer, images, labels):
    values, gradient = values_and_gradient(model, layer, images, lambda s: (s * F.one_hot(labels, s.shape[1])).sum())
    return torch.maximum((values * gradient.mean((2, 3), True)).sum(1), torch.zeros(()))


def made_of(score, combine):
    def answer(model, layer, images, labels):
        values, gradient = values_and_gradient(model, layer, images, lambda scores: score(scores, labels))
        return combine(values, gradient, gradient.mean((2, 3), keepdim=True))

    return answer


def usual(values, gradient, weights):
    return (weights * values).sum(1).relu()


for likely, score, combine in (
    ("probabilities", lambda s, y: own(s.softmax(1), y), usual),
    ("log-probabilities", lambda s, y: own(s.log_softmax(1), y), usual),
    ("the mean loss", F.cross_entropy, usual),
    ("all classes", lambda s, y: s.sum(), usual),
    ("the mean of the images' scores", lambda s, y: own(s, y) / len(y), usual),
    ("too early: the sum becomes 0 where it is negative, not each weight", own, lambda a, g, w: usual(a, g, w.relu())),
    ("too early: the sum becomes 0 where it is negative, not each channel", own, lambda a, g, w: (w * a).relu().sum(1)),
    ("the mean over the channels", own, lambda a, g, w: (w * a).mean(1).relu()),
    ("the sum over the places", own, lambda a, g, w: (g.sum((2, 3), keepdim=True) * a).sum(1).relu()),
    ("one weight for all images", own, lambda a, g, w: (w.mean(0, keepdim=True) * a).sum(1).relu()),
    ("no gradient", own, lambda a, g, w: a.sum(1).relu()),
    ("no values", own, lambda a, g, w: g.sum(1).relu()),
    ("sizes", own, lambda a, g, w: (w * a).sum(1).abs()),
    ("scaled: all maps", own, lambda a, g, w: usual(a, g, w) / usual(a, g, w).max()),
    (None, own, lambda a, g, w: usual(a, g, w) + 1),
    (None, own, lambda a, g, w: usual(a, g, w.square())),
):
    answer = made_of(score, combine)
    answer.__name__ = f"made_wrong_{len(answers.wrongs)}"
    wrong("9.1", likely)(answer)


@wrong("9.1", says="another shape")
def as_large_as_the_images(model, layer, images, labels):
    values, gradient = values_and_gradient(model, layer, images, lambda scores: own(scores, labels))
    return maps.resized(usual(values, gradient, gradient.mean((2, 3), keepdim=True)), side=9)


@wrong("9.1", "forgotten return", says="your map is None")
def returns_nothing(model, layer, images, labels):
    values_and_gradient(model, layer, images, lambda scores: own(scores, labels))


@wrong("9.1", "another tensor")
def asks_at_a_copy(model, layer, images, labels):
    kept = []
    with layer.register_forward_hook(lambda module, args, output: kept.append(output.clone())):
        scores = model(images.clone().requires_grad_())
    return torch.autograd.grad(own(scores, labels), kept[0])[0].sum(1)


@wrong("9.1", "zero_grad()", says="erased the .grad")
def tidies_up_what_is_not_its_own(model, layer, images, labels):
    found = with_capture_and_einsum(model, layer, images, labels)
    model.zero_grad()
    return found


@wrong("9.1", says="the model in evaluation mode")
def leaves_the_mode(model, layer, images, labels):
    model.eval()
    return with_capture_and_einsum(model, layer, images, labels)


# --- 9.2


def relus(model):
    return [module for module in model.modules() if type(module) is nn.ReLU]


@right("9.2")
def with_the_courses_tools(model, images, labels):
    def positive(module, grad_input, grad_output):
        return tuple(one.relu() for one in grad_input)

    handles = [one.register_full_backward_hook(positive) for one in hooklab.select(model, nn.ReLU).values()]
    watched = images.clone().requires_grad_()
    found = torch.autograd.grad(own(model(watched), labels), watched)[0]
    for handle in handles:
        handle.remove()
    return found


@right("9.2")
def with_a_pre_hook(model, images, labels):
    def positive(module, grad_output):
        return (grad_output[0].clamp(min=0),)

    handles = [one.register_full_backward_pre_hook(positive) for one in relus(model)]
    watched = images.clone().requires_grad_()
    (found,) = torch.autograd.grad(own(model(watched), labels), watched)
    [handle.remove() for handle in handles]
    return found


@right("9.2")
def with_tensor_hooks_on_the_outputs(model, images, labels):
    def hook(module, args, output):
        output.register_hook(lambda grad: grad.clamp(min=0))

    handles = [one.register_forward_hook(hook) for one in relus(model)]
    watched = images.clone().requires_grad_()
    (found,) = torch.autograd.grad(own(model(watched), labels), watched)
    [handle.remove() for handle in handles]
    return found


@right("9.2")
def on_a_copy_of_the_model(model, images, labels):
    import copy

    twin = copy.deepcopy(model)
    for one in relus(twin):
        one.register_full_backward_hook(lambda module, gin, gout: (gin[0] * (gin[0] > 0),))
    watched = images.clone().requires_grad_()
    own(twin(watched), labels).backward()
    return watched.grad


@right("9.2")
def image_by_image_with_stack(model, images, labels):
    found = [with_a_pre_hook(model, image[None], label[None])[0] for image, label in zip(images, labels, strict=True)]
    return torch.stack(found)


def guided(rule, score=own, change=lambda gradient: gradient, chosen=relus):
    def answer(model, images, labels):
        handles = [one.register_full_backward_hook(rule) for one in chosen(model)]
        watched = images.clone().requires_grad_()
        (found,) = torch.autograd.grad(score(model(watched), labels), watched)
        for handle in handles:
            handle.remove()
        return change(found)

    return answer


def positive(module, gin, gout):
    return (gin[0].clamp(min=0),)


for likely, rule, score, change in (
    ("all classes", positive, lambda s, y: s.sum(), torch.clone),
    ("another class", positive, lambda s, y: s.max(1).values.sum(), torch.clone),
    ("the loss", positive, lambda s, y: F.cross_entropy(s, y, reduction="sum"), torch.clone),
    ("the mean over the images", positive, lambda s, y: s[torch.arange(len(y)), y].mean(), torch.clone),
    ("the rule at the end as well", positive, own, torch.relu),
    ("sizes: the gradient of an image", positive, own, torch.abs),
    ("the rule at the end only", lambda module, gin, gout: None, own, torch.relu),
    ("the wrong part", lambda module, gin, gout: (gin[0].clamp(max=0),), own, torch.clone),
    ("sizes: the negative part", lambda module, gin, gout: (gin[0].abs(),), own, torch.clone),
    (None, lambda module, gin, gout: (gin[0].clamp(-1, 1),), own, torch.clone),
    (None, positive, own, lambda found: 2 * found),
):
    answer = guided(rule, score, change)
    answer.__name__ = f"guided_wrong_{len(answers.wrongs)}"
    wrong("9.2", likely)(answer)


@wrong("9.2", None, "at [0, 0]: ")
def what_has_relu_in_its_name(model, images, labels):
    named_so = lambda model: [one for one in model.modules() if "ReLU" in type(one).__name__]  # noqa: E731
    return guided(positive, chosen=named_so)(model, images, labels)


@wrong("9.2", "something is left of the first call", says="a second call")
def adds_to_a_gradient_that_it_keeps(model, images, labels, kept={}):  # noqa: B006
    key = tuple(images.shape)
    kept[key] = kept.get(key, 0) + with_a_pre_hook(model, images, labels)
    return kept[key]


@wrong("9.2", says="another shape")
def adds_up_the_colours(model, images, labels):
    return with_a_pre_hook(model, images, labels).sum(1)


# --- 9.3


@right("9.3")
def with_hooks_and_diagonals(model, names, tokens, period):
    rows = {}
    handles = [
        model.get_submodule(name).register_forward_hook(
            functools.partial(lambda name, module, args, output: rows.update({name: output}), name)
        )
        for name in names
    ]
    model(tokens)
    for handle in handles:
        handle.remove()
    # the first number of this diagonal belongs to position period - 1, which has no earlier copy
    return torch.stack([rows[n].diagonal(1 - period, dim1=2, dim2=3)[..., 1:].mean((0, 2)) for n in names]).detach()


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


@right("9.3")
def by_a_mask(model, names, tokens, period):
    length = tokens.shape[1]
    t, s = torch.arange(length)[:, None], torch.arange(length)
    mask = ((t - s == period - 1) & (t >= period)).float()
    with torch.no_grad(), hooklab.capture(model, *names, clone=True) as seen:
        model(tokens)
    return torch.stack([(seen[name] * mask).sum((2, 3)).mean(0) / mask.sum() for name in names])


@right("9.3")
def by_gather(model, names, tokens, period):
    with hooklab.capture(model, *names) as seen:
        model(tokens)
    t = torch.arange(period, tokens.shape[1])
    patterns = torch.stack([seen[name] for name in names])[:, :, :, period:]
    index = (t - period + 1).view(1, 1, 1, -1, 1).expand(*patterns.shape[:3], -1, 1)
    return patterns.gather(-1, index).squeeze(-1).mean(dim=(1, 3))


@right("9.3")
def with_get_submodule_and_pre_hooks(model, names, tokens, period):
    kept = {}
    handles = []
    for name in names:
        # the module hands on what it is given, so what goes in is what comes out
        def note(module, args, name=name):
            kept[name] = args[0].detach()

        handles.append(model.get_submodule(name).register_forward_pre_hook(note))
    try:
        model(tokens)
    finally:
        for handle in handles:
            handle.remove()
    t = torch.arange(period, tokens.shape[1])
    return torch.stack([kept[name][..., t, t + 1 - period].mean(-1).mean(0) for name in names])


def reading(score):
    def answer(model, names, tokens, period):
        with torch.no_grad(), hooklab.capture(model, *names) as seen:
            model(tokens)
        t = torch.arange(period, tokens.shape[1])
        return torch.stack([score(seen[name], t, t - period + 1) for name in names])

    return answer


for likely, score in (
    ("one place too far right", lambda p, t, s: p[:, :, t, s + 1].mean((0, 2))),
    ("too late", lambda p, t, s: p[:, :, t[1:], s[1:]].mean((0, 2))),
    ("the first sequence only", lambda p, t, s: p[0][:, t, s].mean(1)),
    ("the last position only", lambda p, t, s: p[:, :, t[-1], s[-1]].mean(0)),
    ("the sum in the place", lambda p, t, s: p[:, :, t, s].sum((0, 2))),
    ("the sum over t", lambda p, t, s: p[:, :, t, s].sum(2).mean(0)),
    ("the largest", lambda p, t, s: p[:, :, t, s].amax((0, 2))),
    (None, lambda p, t, s: p[:, :, t, s].median(2).values.mean(0)),
    (None, lambda p, t, s: 1 - p[:, :, t, s].mean((0, 2))),
):
    answer = reading(score)
    answer.__name__ = f"reading_wrong_{len(answers.wrongs)}"
    wrong("9.3", likely)(answer)


@wrong("9.3", "the last token left out")
def leaves_the_last_token_out(model, names, tokens, period):
    return reading(lambda p, t, s: p[:, :, t, s].mean((0, 2)))(model, names, tokens[:, :-1], period)


@wrong("9.3", "nothing stored under this name")
def never_runs_the_model(model, names, tokens, period):
    rows = {}
    return torch.stack([rows[name] for name in names])


@wrong("9.3", says="is not a tensor")
def returns_a_list(model, names, tokens, period):
    return list(by_gather(model, names, tokens, period))


@wrong("9.3", "not removed", "your code left a hook behind")
def leaves_its_hooks(model, names, tokens, period):
    model.get_submodule(names[0]).register_forward_hook(lambda *args: None)
    return by_gather(model, names, tokens, period)


# --- 9.4


@right("9.4")
def with_where(model, name, clean, corrupted, position):
    with torch.no_grad(), hooklab.capture(model, name, clone=True) as seen:
        model(clean)
    at = (torch.arange(clean.shape[1]) == position)[None, :, None]
    with hooklab.edit(model, lambda output, call: torch.where(at, seen[name], output), name):
        return model(corrupted)


@right("9.4")
def with_cat(model, name, clean, corrupted, position):
    module, kept = model.get_submodule(name), []
    handle = module.register_forward_hook(lambda module, args, output: kept.append(output.clone()))
    model(clean)
    handle.remove()

    def put_in(module, args, output):
        parts = [output[:, :position], kept[0][:, position : position + 1], output[:, position + 1 :]]
        return torch.cat(parts, dim=1)

    handle = module.register_forward_hook(put_in)
    try:
        return model(corrupted)
    finally:
        handle.remove()


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
def with_both_in_one_batch(model, name, clean, corrupted, position):
    n = len(clean)

    def put_in(output, call):
        return torch.cat([output[:n], output[n:].index_copy(1, torch.tensor([position]), output[:n, [position]])])

    with hooklab.edit(model, put_in, name):
        return model(torch.cat([clean, corrupted]))[n:]


@right("9.4")
def with_run_until(model, name, clean, corrupted, position):
    kept = hooklab.run_until(model, name, clean).detach().clone()
    mask = torch.zeros(kept.shape[1], 1)
    mask[position] = 1.0
    with hooklab.edit(model, lambda output, call: output * (1 - mask) + kept * mask, name):
        return model(corrupted).detach()


def patching(change, swapped=False):
    def answer(model, name, clean, corrupted, position):
        source, target = (corrupted, clean) if swapped else (clean, corrupted)
        kept = hooklab.run_until(model, name, source).detach().clone()
        with model.get_submodule(name).register_forward_hook(lambda module, args, out: change(out, kept, position)):
            return model(target)

    return answer


def put(output, kept, *index):
    output = output.clone()
    output[index] = kept[index]
    return output


for likely, change in (
    ("all positions from this one on", lambda out, kept, at: put(out, kept, slice(None), slice(at, None))),
    ("the first of the batch only", lambda out, kept, at: put(out, kept, 0, at)),
    ("one vector for all", lambda out, kept, at: put(out, kept[:1].expand_as(out), slice(None), at)),
    ("zeros", lambda out, kept, at: put(out, torch.zeros_like(out), slice(None), at)),
    ("a sum", lambda out, kept, at: put(out, out + kept, slice(None), at)),
    (
        "another dimension: position counts along dimension 1, dimension 0",
        lambda out, kept, at: put(out, kept, min(at, 2)),
    ),
    (
        "another dimension: position counts along dimension 1, the last",
        lambda o, kept, at: put(o, kept, ..., min(at, 2)),
    ),
    (None, lambda out, kept, at: put(out, (out + kept) / 2, slice(None), at)),
    (None, lambda out, kept, at: put(out, kept, slice(None), (at + 1) % out.shape[1])),
):
    answer = patching(change)
    answer.__name__ = f"patching_wrong_{len(answers.wrongs)}"
    wrong("9.4", likely)(answer)


@wrong("9.4", "the module's input")
def patches_what_the_module_is_given(model, name, clean, corrupted, position):
    with hooklab.capture(model, name, inputs=True) as seen:
        model(clean)
    (kept,) = seen.calls(name)[0].input.args
    with model.get_submodule(name).register_forward_pre_hook(
        lambda m, args: (put(args[0], kept, ..., position, slice(None)),)
    ):
        return model(corrupted)


@wrong("9.4", "no patch", says="and none of the first run's")
def stores_again_in_the_second_run(model, name, clean, corrupted, position):
    kept, module = {}, model.get_submodule(name)
    first = module.register_forward_hook(lambda module, args, output: kept.update(it=output.detach().clone()))
    model(clean)
    second = module.register_forward_hook(lambda m, args, output: put(output, kept["it"], slice(None), position))
    result = model(corrupted)
    first.remove()
    second.remove()
    return result


@wrong("9.4", "this is the clean run as it is")
def returns_the_clean_run(model, name, clean, corrupted, position):
    return model(clean)


@wrong("9.4", "a name is no module", says="has no attribute 'register_forward_hook'")
def hooks_the_name(model, name, clean, corrupted, position):
    name.register_forward_hook(lambda module, args, output: output)
    return model(corrupted)


# --- 9.5


@right("9.5")
def with_edit(model, layer, images, labels):
    def accuracy():
        with torch.no_grad():
            return (model(images).argmax(1) == labels).double().mean().item()

    with torch.no_grad(), hooklab.capture(model, layer) as seen:
        full = accuracy()
        width = next(iter(seen.values())).shape[1]

    def off(output, call, one):
        output = output.clone()
        output[:, one] = 0
        return output

    lost = []
    for one in range(width):
        with hooklab.edit(model, functools.partial(off, one=one), layer):
            lost.append(full - accuracy())
    return torch.tensor(lost)


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
        full = (model(images).argmax(dim=1) == labels).float().mean()
        scores = torch.empty(state["width"])
        for one in range(state["width"]):
            state["off"] = one
            scores[one] = full - (model(images).argmax(dim=1) == labels).float().mean()
    return scores.detach()


@right("9.5")
def with_masked_fill(model, layer, images, labels):
    widths = []
    with layer.register_forward_hook(lambda module, args, output: widths.append(output.shape[1])):
        before = model(images).argmax(1).eq(labels).sum()

    def lost(one):
        def hook(module, args, output):
            is_off = (torch.arange(output.shape[1]) == one).view(1, -1, *[1] * (output.ndim - 2))
            return output.masked_fill(is_off, 0)

        with layer.register_forward_hook(hook):
            return (before - model(images).argmax(1).eq(labels).sum()) / len(labels)

    return torch.stack([lost(one) for one in range(widths[0])])


@right("9.5")
def with_cat_of_parts(model, layer, images, labels):
    def accuracy(change):
        handle = layer.register_forward_hook(lambda module, args, output: change(output))
        try:
            return (model(images).argmax(-1) == labels).to(torch.float64).mean()
        finally:
            handle.remove()

    width = []
    full = accuracy(lambda output: width.append(output.size(1)))

    def off(one):
        return lambda out: torch.cat([out[:, :one], torch.zeros_like(out[:, one : one + 1]), out[:, one + 1 :]], dim=1)

    return torch.stack([full - accuracy(off(one)) for one in range(width[0])]).float()


@right("9.5")
def with_run_until_for_the_width(model, layer, images, labels):
    width = hooklab.run_until(model, layer, images[:1]).shape[1]

    def right_ones(hook=None):
        handle = layer.register_forward_hook(hook or (lambda *args: None))
        found = int((model(images).argmax(1) == labels).sum())
        handle.remove()
        return found

    full, lost = right_ones(), []
    for one in range(width):
        keep = 1 - F.one_hot(torch.tensor(one), width).float()
        lost.append(full - right_ones(lambda m, a, out, keep=keep: (out.transpose(1, -1) * keep).transpose(1, -1)))
    return torch.tensor(lost) / len(labels)


def by_channel(score, mask=lambda channels, one: channels != one):
    def answer(model, layer, images, labels):
        def accuracy(hook):
            with torch.no_grad(), layer.register_forward_hook(hook):
                return (model(images).argmax(1) == labels).float().mean()

        widths = []
        full = accuracy(lambda module, args, output: widths.append(output.shape[1]))

        def off(one):
            keep = mask(torch.arange(widths[0]), one)
            return lambda module, args, output: output * keep.view(-1, *[1] * (output.ndim - 2))

        return torch.stack([score(full, accuracy(off(one)), len(labels)) for one in range(widths[0])])

    return answer


for likely, score in (
    ("a number of images", lambda full, left, n: (full - left) * n),
    ("relative", lambda full, left, n: (full - left) / full),
    ("sizes", lambda full, left, n: (full - left).abs()),
    ("no number below zero", lambda full, left, n: (full - left).clamp(min=0)),
    ("against perfect", lambda full, left, n: 1 - left),
    (None, lambda full, left, n: (full - left).square()),
    (None, lambda full, left, n: full),
):
    answer = by_channel(score)
    answer.__name__ = f"ablation_wrong_{len(answers.wrongs)}"
    wrong("9.5", likely)(answer)


wrong("9.5", "the channel before")(
    by_channel(lambda full, left, n: full - left, lambda c, one: c != (one - 1) % len(c))
)


@wrong("9.5", says="your code changed the parameter")
def erases_the_weights(model, layer, images, labels):
    scores = with_edit(model, layer, images, labels)
    with torch.no_grad():
        next(layer.parameters())[0] = 9.0
    return scores


@wrong("9.5", says="is not a tensor")
def returns_a_dictionary(model, layer, images, labels):
    return dict(enumerate(with_edit(model, layer, images, labels)))


@wrong("9.5", says="another shape")
def stops_one_too_early(model, layer, images, labels):
    return with_edit(model, layer, images, labels)[:-1]


# --- forward alone, the hooks of others, what goes round the layer


class Forward(nn.Module):
    """Runs a model's forward alone."""

    def __init__(self, model):
        super().__init__()
        self.modules, self.get_submodule, self.forward = model.modules, model.get_submodule, model.forward


@wrong("9.1", says="your function leaves something behind")
def keeps_it_on_the_layer(model, layer, images, labels):
    with layer.register_forward_hook(lambda module, args, output: setattr(module, "kept", output)):
        total = own(model(images.clone().requires_grad_()), labels)
    (gradient,) = torch.autograd.grad(total, layer.kept)
    return (layer.kept.detach() * gradient.mean((2, 3), keepdim=True)).sum(1).relu()


@wrong("9.1", says="left the model in training mode")
def goes_back_to_training(model, layer, images, labels):
    model.eval()
    found = with_capture_and_einsum(model, layer, images, labels)
    model.train()
    return found


@wrong("9.1", says="expected  at [0]")
def the_largest_gradient_of_a_channel(model, layer, images, labels):
    values, gradient = values_and_gradient(model, layer, images, lambda scores: own(scores, labels))
    return (values.detach() * gradient.amax((2, 3), keepdim=True)).sum(1).relu()


@wrong("9.1", "forward alone", says="`model.forward(…)`")
def cam_by_forward(model, layer, images, labels):
    kept = []
    with layer.register_forward_hook(lambda module, args, output: kept.append(output)):
        scores = model.forward(images.clone().requires_grad_())
    gradient = torch.autograd.grad(own(scores, labels), kept[0])[0]
    return (gradient.mean((2, 3), keepdim=True) * kept[0]).sum(1).relu()


@wrong("9.4", "forward alone", says="`model.forward(…)`")
def patches_by_forward(model, name, clean, corrupted, position):
    return with_cat(Forward(model), name, clean, corrupted, position)


@right("9.2")
def guided_in_a_copy(model, images, labels):
    model, images = copy.deepcopy(model), images.clone().requires_grad_()
    for module in model.modules():
        if isinstance(module, nn.ReLU):
            module.register_full_backward_hook(lambda module, grad_input, grad_output: (grad_input[0].clamp(min=0),))
    return torch.autograd.grad(own(model(images), labels), images)[0]


@wrong("9.2", says="removed a hook that is not yours: a full backward hook")
def clears_all_backward_hooks(model, images, labels):
    images = images.clone().requires_grad_()
    relus = [module for module in model.modules() if isinstance(module, nn.ReLU)]
    for relu in relus:
        relu.register_full_backward_hook(lambda module, grad_input, grad_output: (grad_input[0].clamp(min=0),))
    gradient = torch.autograd.grad(own(model(images), labels), images)[0]
    for relu in relus:
        relu._backward_hooks.clear()
    return gradient


@wrong("9.3", says="the parameter 'scale' requires no grad now")
def freezes_the_reader(model, names, tokens, period):
    model.requires_grad_(False)
    t = torch.arange(period, tokens.shape[1])
    with hooklab.capture(model, *names) as seen:
        model(tokens)
    return torch.stack([seen[name][:, :, t, t - period + 1].mean((0, 2)) for name in names])


@wrong("9.5", "in place", says="go round the layer")
def writes_zeros_into_the_output(model, layer, images, labels):
    def right_ones():
        with torch.no_grad():
            return (model(images).argmax(1) == labels).float().mean()

    def erase(channel):
        return lambda module, args, output: output.index_fill_(1, torch.tensor([channel]), 0.0)

    full, lost = right_ones(), []
    for channel in range(hooklab.run_until(model, layer, images[:1]).shape[1]):
        with layer.register_forward_hook(erase(channel)):
            lost.append(full - right_ones())
    return torch.stack(lost)


@wrong("9.4", "this is the clean run as it is: what the run on `corrupted` gives is asked for")
def runs_clean_a_second_time(model, name, clean, corrupted, position):
    kept, layer = [], model.get_submodule(name)

    def put(module, args, output):
        changed = output.clone()
        changed[:, position] = kept[0][:, position]
        return changed

    with layer.register_forward_hook(lambda module, args, output: kept.append(output.detach().clone())):
        model(clean)
    with layer.register_forward_hook(put):
        return model(clean)


test_right, test_wrong = answers.tests()
