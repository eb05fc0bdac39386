"""What people get wrong in lesson 9: one small program for each misconception."""

import contextlib

import torch
from torch import nn
from torch.nn import functional as F

# --- 9.1


def own(scores, labels):
    return scores[torch.arange(len(labels)), labels].sum()


def all_pairs(scores, labels):
    return scores[:, labels].sum()


def of_the_winner(scores, labels):
    return scores.max(dim=1).values.sum()


def loss(scores, labels):
    return F.cross_entropy(scores, labels, reduction="sum")


def watched(images):
    return images.clone().requires_grad_()


def mean(gradient):
    return gradient.mean(dim=(2, 3), keepdim=True)


def usual(values, weights):
    return (values * weights).sum(dim=1).relu()


def cam(
    combine=lambda a, g: usual(a, mean(g)),
    score=own,
    start=watched,
    keep=lambda output: output,
    finish=lambda model: None,
    remove=True,
    run=lambda model, images: model(images),
):
    """A map from a layer's values `a` and the gradient `g` of the score."""

    def answer(model, layer, images, labels):
        kept = []
        handle = layer.register_forward_hook(lambda module, args, output: kept.append(keep(output)))
        scores = run(model, start(images))
        if remove:
            handle.remove()
        (gradient,) = torch.autograd.grad(score(scores, labels), kept[-1])
        finish(model)
        return combine(kept[-1].detach(), gradient)

    return answer


def calls_backward(model, layer, images, labels):
    kept = []

    def keep(module, args, output):
        output.retain_grad()
        kept.append(output)

    with layer.register_forward_hook(keep):
        own(model(watched(images)), labels).backward()
    return usual(kept[0].detach(), mean(kept[0].grad))


def keeps_it_on_the_layer(model, layer, images, labels):
    with layer.register_forward_hook(lambda module, args, output: setattr(module, "kept", output)):
        total = own(model(watched(images)), labels)
    (gradient,) = torch.autograd.grad(total, layer.kept)
    return usual(layer.kept.detach(), mean(gradient))


def largest(found, dim=None):
    return found.max() if dim is None else found.amax(dim=dim, keepdim=True).clamp(min=1e-8)


def without_grad(model, images):
    with torch.no_grad():
        return model(images)


# --- 9.2


def relus(model):
    return [module for module in model.modules() if isinstance(module, nn.ReLU)]


def guided(
    rule=lambda grad_input, grad_output: (grad_input.clamp(min=0),),
    score=own,
    which=relus,
    at_end=lambda gradient: gradient,
    start=watched,
    finish=lambda model: None,
    remove=True,
    run=lambda model, images: model(images),
):
    """The gradient of the score, where the chosen ReLUs pass back rule(grad_input, grad_output)."""

    def answer(model, images, labels):
        with contextlib.ExitStack() as hooks:
            for relu in which(model):
                hooks.enter_context(relu.register_full_backward_hook(lambda module, gin, gout: rule(gin[0], gout[0])))
            given = start(images)
            (gradient,) = torch.autograd.grad(score(run(model, given), labels), given)
            if not remove:
                hooks.pop_all()
        finish(model)
        return at_end(gradient)

    return answer


def guided_by_backward(model, images, labels):
    given = watched(images)
    with contextlib.ExitStack() as hooks:
        for relu in relus(model):
            hooks.enter_context(relu.register_full_backward_hook(lambda module, gin, gout: (gin[0].clamp(min=0),)))
        own(model(given), labels).backward()
    return given.grad


def at_the_input(model, images, labels):
    def hook(module, args):
        args[0].register_hook(lambda grad: grad.clamp(min=0))

    given = watched(images)
    with contextlib.ExitStack() as hooks:
        for relu in relus(model):
            hooks.enter_context(relu.register_forward_pre_hook(hook))
        (gradient,) = torch.autograd.grad(own(model(given), labels), given)
    return gradient


def clear_hooks(model):
    for relu in relus(model):
        relu._backward_hooks.clear()


def positive_part(grad_input, grad_output):
    return (grad_input.clamp(min=0),)


def plain(grad_input, grad_output):
    return None


# --- 9.3


def reading(
    score=lambda pattern, t, source: pattern[:, :, t, source].mean(dim=(0, 2)),
    back=lambda period: period - 1,
    first=lambda period: period,
    names_of=list,
    tokens_of=lambda tokens: tokens,
    pack=torch.stack,
    start=lambda model: None,
    remove=True,
):
    """A table of scores: of each pattern, of the positions t, and of those that they should look at."""

    def answer(model, names, tokens, period):
        start(model)
        seen, tokens, handles = {}, tokens_of(tokens), []
        for name in names:

            def keep(module, args, output, name=name):
                seen[name] = output

            handles.append(model.get_submodule(name).register_forward_hook(keep))
        model(tokens)
        for handle in handles if remove else []:
            handle.remove()
        t = torch.arange(first(period), tokens.shape[1])
        return pack([score(seen[name], t, t - back(period)) for name in names_of(names)])

    return answer


def how_often(pattern, t, source):
    return (pattern[:, :, t].argmax(dim=-1) == source).float().mean(dim=(0, 2))


def never_runs(model, names, tokens, period):
    seen = {}
    return torch.stack([seen[name] for name in names])


# --- 9.4


def put(output, clean, *index):
    changed = output.clone()
    changed[index] = clean[index]
    return changed


def in_place(output, clean, position):
    output[:, position] = clean[:, position]
    return output


def at_one(output, clean, position):
    return put(output, clean, slice(None), position)


def patching(
    mix=at_one,
    source=lambda clean, corrupted: clean,
    target=lambda clean, corrupted: corrupted,
    keep=lambda output: output.detach().clone(),
    remove=True,
    result=lambda output: output,
    run=lambda model, x: model(x),
):
    """A run on `target` with mix(its output, that of the run on `source`, position) at the module."""

    def answer(model, name, clean, corrupted, position):
        kept, module = [], model.get_submodule(name)
        with module.register_forward_hook(lambda module, args, output: kept.append(keep(output))):
            run(model, source(clean, corrupted))
        handle = module.register_forward_hook(lambda module, args, output: mix(output, kept[0], position))
        found = run(model, target(clean, corrupted))
        if remove:
            handle.remove()
        return result(found)

    return answer


def patches_the_models_input(model, name, clean, corrupted, position):
    return model(put(corrupted, clean, slice(None), position))


def patches_the_modules_input(model, name, clean, corrupted, position):
    kept, module = [], model.get_submodule(name)
    with module.register_forward_pre_hook(lambda module, args: kept.append(args[0].clone())):
        model(clean)
    with module.register_forward_pre_hook(lambda module, args: (at_one(args[0], kept[0], position),)):
        return model(corrupted)


def never_runs_clean(model, name, clean, corrupted, position):
    kept = {}
    with model.get_submodule(name).register_forward_hook(lambda m, args, out: at_one(out, kept[name], position)):
        return model(corrupted)


def hooks_the_name(model, name, clean, corrupted, position):
    name.register_forward_hook(lambda module, args, output: output)
    return model(corrupted)


# --- 9.5


def right_ones(model, images, labels):
    return (model(images).argmax(dim=1) == labels).float().mean()


def ablating(
    score=lambda full, left, count: full - left,
    mask=lambda channels, one: channels != one,
    times=torch.mul,
    returned=lambda output: output,
    shaped=lambda output, keep: keep.view(1, -1, *[1] * (output.ndim - 2)),
    pack=torch.stack,
    channels_of=lambda width: range(width),
    remove=True,
):
    """score(full accuracy, accuracy without the channel, number of images) of each channel."""

    def answer(model, layer, images, labels):
        widths = []
        with torch.no_grad(), layer.register_forward_hook(lambda module, args, out: widths.append(out.shape[1])):
            full = right_ones(model, images, labels)
        scores = []
        for one in channels_of(widths[0]):
            keep = mask(torch.arange(widths[0]), one)
            hook = lambda module, args, out, keep=keep: returned(times(out, shaped(out, keep)))  # noqa: E731
            handle = layer.register_forward_hook(hook)
            with torch.no_grad():
                scores.append(score(full, right_ones(model, images, labels), len(labels)))
            if remove:
                handle.remove()
        return pack(scores)

    return answer


def by_out_channels(model, layer, images, labels):
    return torch.zeros(layer.out_channels)


MISCONCEPTIONS = {
    "9.1": {
        "another-class": cam(score=of_the_winner),
        "all-classes": cam(score=lambda scores, labels: scores.sum()),
        "all-pairs": cam(score=all_pairs),
        "mean-of-scores": cam(score=lambda scores, labels: own(scores, labels) / len(labels)),
        "loss": cam(score=loss),
        "mean-loss": cam(score=F.cross_entropy),
        "probabilities": cam(score=lambda scores, labels: own(scores.softmax(dim=1), labels)),
        "log-probabilities": cam(score=lambda scores, labels: own(scores.log_softmax(dim=1), labels)),
        "negative-kept": cam(lambda a, g: (a * mean(g)).sum(dim=1)),
        "sizes": cam(lambda a, g: (a * mean(g)).sum(dim=1).abs()),
        "no-mean": cam(usual),
        "largest-gradient": cam(lambda a, g: usual(a, g.amax(dim=(2, 3), keepdim=True))),
        "one-weight-for-all": cam(lambda a, g: usual(a, g.mean(dim=(0, 2, 3), keepdim=True))),
        "sum-over-places": cam(lambda a, g: usual(a, g.sum(dim=(2, 3), keepdim=True))),
        "mean-over-channels": cam(lambda a, g: (a * mean(g)).mean(dim=1).relu()),
        "each-weight-cut": cam(lambda a, g: usual(a, mean(g).relu())),
        "each-channel-cut": cam(lambda a, g: (a * mean(g)).relu().sum(dim=1)),
        "no-values": cam(lambda a, g: g.sum(dim=1).relu()),
        "no-gradient": cam(lambda a, g: a.sum(dim=1).relu()),
        "scaled": cam(lambda a, g: usual(a, mean(g)) / largest(usual(a, mean(g)), (1, 2))),
        "scaled-together": cam(lambda a, g: usual(a, mean(g)) / largest(usual(a, mean(g)))),
        "no-graph": cam(start=torch.clone),
        "under-no-grad": cam(run=without_grad),
        "another-tensor": cam(keep=torch.clone),
        "detached": cam(keep=torch.detach),
        "grad-written": calls_backward,
        "grad-erased": cam(finish=nn.Module.zero_grad),
        "hook-left": cam(remove=False),
        "images-switched-on": cam(start=torch.Tensor.requires_grad_),
        "mode-left": cam(finish=nn.Module.eval),
        "leaves-something": keeps_it_on_the_layer,
        "forward-alone": cam(run=lambda model, images: model.forward(images)),
    },
    "9.2": {
        "not-a-tuple": guided(lambda gin, gout: gin.clamp(min=0)),
        "plain-gradient": guided(plain),
        "at-the-end-only": guided(plain, at_end=torch.relu),
        "at-the-end-as-well": guided(at_end=torch.relu),
        "sizes-at-the-end": guided(at_end=torch.abs),
        "negative-part": guided(lambda gin, gout: (gin.clamp(max=0),)),
        "sizes": guided(lambda gin, gout: (gin.abs(),)),
        "grad-output": guided(lambda gin, gout: (gout.clamp(min=0),)),
        "all-pairs": guided(score=all_pairs),
        "all-classes": guided(score=lambda scores, labels: scores.sum()),
        "another-class": guided(score=of_the_winner),
        "loss": guided(score=loss),
        "mean-of-scores": guided(score=lambda scores, labels: own(scores, labels) / len(labels)),
        "outer-only": guided(which=lambda model: [one for one in model.children() if isinstance(one, nn.ReLU)]),
        "first-only": guided(which=lambda model: relus(model)[:1]),
        "last-only": guided(which=lambda model: relus(model)[-1:]),
        "relu-in-its-name": guided(which=lambda model: [m for m in model.modules() if "ReLU" in type(m).__name__]),
        "at-the-input": at_the_input,
        "no-graph": guided(start=torch.clone),
        "under-no-grad": guided(run=without_grad),
        "hook-left": guided(remove=False),
        "hook-removed": guided(finish=clear_hooks, remove=False),
        "images-switched-on": guided(start=torch.Tensor.requires_grad_),
        "grad-written": guided_by_backward,
        "grad-erased": guided(finish=nn.Module.zero_grad),
        "mode-left": guided(finish=nn.Module.eval),
        "forward-alone": guided(run=lambda model, images: model.forward(images)),
    },
    "9.3": {
        "the-copy-itself": reading(back=lambda period: period),
        "too-far-right": reading(back=lambda period: period - 2),
        "token-before": reading(back=lambda period: 1),
        "too-early": reading(first=lambda period: period - 1),
        "too-late": reading(first=lambda period: period + 1),
        "swapped": reading(lambda pattern, t, source: pattern[:, :, source, t].mean(dim=(0, 2))),
        "last-token-left-out": reading(tokens_of=lambda tokens: tokens[:, :-1]),
        "first-sequence": reading(lambda pattern, t, source: pattern[0][:, t, source].mean(dim=1)),
        "last-position": reading(lambda pattern, t, source: pattern[:, :, t[-1], source[-1]].mean(dim=0)),
        "sum": reading(lambda pattern, t, source: pattern[:, :, t, source].sum(dim=(0, 2))),
        "sum-over-t": reading(lambda pattern, t, source: pattern[:, :, t, source].sum(dim=2).mean(dim=0)),
        "largest": reading(lambda pattern, t, source: pattern[:, :, t, source].amax(dim=(0, 2))),
        "how-often": reading(how_often),
        "mean-over-heads": reading(lambda pattern, t, source: pattern[:, :, t, source].mean()),
        "heads-instead-of-t": reading(lambda pattern, t, source: pattern[:, :, t, source].mean(dim=(0, 1))),
        "each-position": reading(lambda pattern, t, source: pattern[:, :, t, source].mean(dim=0)),
        "each-sequence": reading(lambda pattern, t, source: pattern[:, :, t, source].mean(dim=2)),
        "one-module": reading(names_of=lambda names: [max(names)] * len(names)),
        "first-name-alone": reading(names_of=lambda names: names[:1]),
        "sorted": reading(names_of=sorted),
        "never-run": never_runs,
        "not-a-tensor": reading(pack=list),
        "hook-left": reading(remove=False),
        "mode-left": reading(start=nn.Module.eval),
        "frozen": reading(start=lambda model: model.requires_grad_(False)),
    },
    "9.4": {
        "not-patched": patching(lambda output, clean, position: None),
        "clean-run": patching(target=lambda clean, corrupted: clean),
        "all-positions": patching(lambda output, clean, position: clean.clone()),
        "other-way-round": patching(source=lambda clean, corrupted: corrupted, target=lambda clean, corrupted: clean),
        "batch-dimension": patching(lambda output, clean, position: put(output, clean, min(position, 2))),
        "last-dimension": patching(lambda output, clean, position: put(output, clean, ..., min(position, 2))),
        "first-of-the-batch": patching(lambda output, clean, position: put(output, clean, 0, position)),
        "one-for-all": patching(lambda output, clean, position: at_one(output, clean[:1].expand_as(clean), position)),
        "from-here-on": patching(lambda out, clean, position: put(out, clean, slice(None), slice(position, None))),
        "up-to-here": patching(lambda out, clean, position: put(out, clean, slice(None), slice(position + 1))),
        "before-here": patching(lambda out, clean, position: put(out, clean, slice(None), slice(position))),
        "next-position": patching(lambda out, clean, position: at_one(out, clean, (position + 1) % out.shape[1])),
        "zeros": patching(lambda output, clean, position: at_one(output, torch.zeros_like(clean), position)),
        "sum": patching(lambda output, clean, position: at_one(output, output + clean, position)),
        "half": patching(lambda output, clean, position: at_one(output, (output + clean) / 2, position)),
        "vector-alone": patching(lambda output, clean, position: clean[:, position : position + 1].clone()),
        "models-input": patches_the_models_input,
        "modules-input": patches_the_modules_input,
        "in-place": patching(in_place),
        "not-cloned": patching(keep=torch.detach),
        "nothing-copied": patching(in_place, keep=torch.detach),
        "never-run-on-clean": never_runs_clean,
        "name-hooked": hooks_the_name,
        "hook-left": patching(remove=False),
        "forgotten-return": patching(result=lambda output: None),
        "one-position-returned": patching(result=lambda output: output[:, -1]),
        "forward-alone": patching(run=lambda model, x: model.forward(x)),
    },
    "9.5": {
        "sign": ablating(lambda full, left, count: left - full),
        "what-is-left": ablating(lambda full, left, count: left),
        "full": ablating(lambda full, left, count: full),
        "against-perfect": ablating(lambda full, left, count: 1 - left),
        "number-of-images": ablating(lambda full, left, count: (full - left) * count),
        "percent": ablating(lambda full, left, count: (full - left) * 100),
        "relative": ablating(lambda full, left, count: (full - left) / full),
        "sizes": ablating(lambda full, left, count: (full - left).abs()),
        "cut-at-zero": ablating(lambda full, left, count: (full - left).relu()),
        "in-place": ablating(times=torch.Tensor.mul_),
        "others-off": ablating(mask=lambda channels, one: channels == one),
        "pile-up": ablating(mask=lambda channels, one: channels > one),
        "channel-before": ablating(mask=lambda channels, one: channels != (one - 1) % len(channels)),
        "not-returned": ablating(returned=lambda output: None),
        "ones": ablating(times=lambda output, keep: torch.where(keep, output, torch.ones_like(output))),
        "out-channels": by_out_channels,
        "places-expected": ablating(shaped=lambda output, keep: keep.view(1, -1, 1, 1)),
        "last-dimension": ablating(shaped=lambda output, keep: keep[: output.shape[-1]]),
        "last-left-out": ablating(channels_of=lambda width: range(width - 1)),
        "not-a-tensor": ablating(pack=list),
        "hook-left": ablating(remove=False),
    },
}
