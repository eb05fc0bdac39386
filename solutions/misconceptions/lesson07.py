"""What people get wrong about mixing a batch: small programs, each with one misconception."""

import contextlib

import numpy as np
import torch
import torch.nn.functional as F


def mix(values, lam, indices):
    return lam * values + (1 - lam) * values[indices]


# --- 7.1


def mixing(of_x=mix, of_y=mix):
    """Mix x in one way and y in another."""
    return lambda x, y, lam, indices: (of_x(x, lam, indices), of_y(y, lam, indices))


def unmixed(values, lam, indices):
    return values.clone()


def swapped(values, lam, indices):
    return mix(values, 1 - lam, indices)


def folded(values, lam, indices):
    return mix(values, max(lam, 1 - lam), indices)


def inverse(values, lam, indices):
    return mix(values, lam, indices.argsort())


def half(values, lam, indices):
    return mix(values, 0.5, indices)


def partners_only(values, lam, indices):
    return values[indices]


def too_much(values, lam, indices):
    return values + (1 - lam) * values[indices]


def twice(values, lam, indices):
    return mix(mix(values, lam, indices), lam, indices)


def square_roots(values, lam, indices):
    return lam**0.5 * values + (1 - lam) ** 0.5 * values[indices]


def flipped(values, lam, indices):
    return lam * values + (1 - lam) * values.flip(0)


def whole_numbers(values, lam, indices):
    return mix(values, lam, indices).long()


def larger_share(values, lam, indices):
    return F.one_hot(mix(values, lam, indices).argmax(dim=1), values.shape[1]).float()


def only_x(x, y, lam, indices):
    return mix(x, lam, indices)


def targets_first(x, y, lam, indices):
    return mix(y, lam, indices), mix(x, lam, indices)


# --- 7.2


def weighing(weights=lambda lam: (lam, 1 - lam), of_logits=lambda logits, lam, indices: logits, order=lambda i: i):
    """Weigh the loss of each sample's own target and that of its partner's."""

    def answer(loss_fn, logits, y, lam, indices):
        own, partner = weights(lam)
        logits = of_logits(logits, lam, indices)
        return own * loss_fn(logits, y) + partner * loss_fn(logits, y[order(indices)])

    return answer


def with_targets(of_y):
    """One call of loss_fn, with targets made of y."""
    return lambda loss_fn, logits, y, lam, indices: loss_fn(logits, of_y(logits, y, lam, indices))


def always_cross_entropy(loss_fn, logits, y, lam, indices):
    return weighing()(F.cross_entropy, logits, y, lam, indices)


def sample_by_sample(loss_fn, logits, y, lam, indices):
    rows = []
    for i, partner in enumerate(indices.tolist()):
        own, other = loss_fn(logits[[i]], y[[i]]), loss_fn(logits[[i]], y[[partner]])
        rows.append(lam * own + (1 - lam) * other)
    return torch.stack(rows).mean()


def takes_the_mean(loss_fn, logits, y, lam, indices):
    return weighing()(lambda *pair: loss_fn(*pair).mean(), logits, y, lam, indices)


def partners_logits(loss_fn, logits, y, lam, indices):
    return lam * loss_fn(logits, y) + (1 - lam) * loss_fn(logits[indices], y[indices])


def one_detached(own, partner):
    def answer(loss_fn, logits, y, lam, indices):
        return lam * loss_fn(own(logits), y) + (1 - lam) * loss_fn(partner(logits), y[indices])

    return answer


def other_way_round(loss_fn, logits, y, lam, indices):
    return lam * loss_fn(y, logits) + (1 - lam) * loss_fn(y[indices], logits)


def two_losses(loss_fn, logits, y, lam, indices):
    return lam * loss_fn(logits, y), (1 - lam) * loss_fn(logits, y[indices])


def itself(logits):
    return logits


# --- 7.3


def hooking(change=mix, register=torch.nn.Module.register_forward_hook):
    """A block in which a hook changes the layer's output."""

    @contextlib.contextmanager
    def answer(layer, lam, indices):
        with register(layer, lambda module, args, out: change(out, lam, indices)):
            yield

    return answer


def partner_detached(out, lam, indices):
    return lam * out + (1 - lam) * out.detach()[indices]


def self_detached(out, lam, indices):
    return lam * out.detach() + (1 - lam) * out[indices]


def of_the_data(out, lam, indices):
    return mix(out.data, lam, indices)


def in_place(out, lam, indices):
    with torch.no_grad():
        return out.copy_(mix(out, lam, indices))


@contextlib.contextmanager
def pre_hook(layer, lam, indices):
    with layer.register_forward_pre_hook(lambda module, args: mix(args[0], lam, indices)):
        yield


@contextlib.contextmanager
def no_finally(layer, lam, indices):
    handle = layer.register_forward_hook(lambda module, args, out: mix(out, lam, indices))
    yield
    handle.remove()


@contextlib.contextmanager
def removed_in_the_hook(layer, lam, indices):
    def hook(module, args, out):
        handle.remove()
        return mix(out, lam, indices)

    with layer.register_forward_hook(hook) as handle:
        yield


@contextlib.contextmanager
def training_only(layer, lam, indices):
    with layer.register_forward_hook(lambda module, args, out: mix(out, lam, indices) if module.training else None):
        yield


@contextlib.contextmanager
def run_again(layer, lam, indices):
    with layer.register_forward_hook(lambda m, args, out: lam * out + (1 - lam) * m.forward(args[0][indices])):
        yield


@contextlib.contextmanager
def registered_twice(layer, lam, indices):
    with hooking()(layer, lam, indices), hooking()(layer, lam, indices):
        yield


# --- 7.4


def middle_of_three(generator):
    return torch.rand(3, generator=generator).median().item()


def shuffled(n, generator):
    return torch.randperm(n, generator=generator)


def among(layers, generator):
    return int(torch.randint(layers + 1, (1,), generator=generator))


def drawing(lam=middle_of_three, order=shuffled, place=among):
    """Draw the three parts, one of them in a way of its own."""
    return lambda n, layers, generator: (lam(generator), order(n, generator), place(layers, generator))


def of_uniform(count, value):
    """λ made of this many uniform numbers."""
    return drawing(lam=lambda generator: value(torch.rand(count, generator=generator)).item())


def clipped_normal(generator):
    return (0.5 + 0.224 * torch.randn(1, generator=generator)).clamp(0, 1).item()


def a_lambda_for_each_row(n, layers, generator):
    return torch.rand(3, max(n, 2), generator=generator).median(dim=0).values, *drawing()(n, layers, generator)[1:]


def seeded_again(n, layers, generator):
    return drawing()(n, layers, generator.manual_seed(0))


def derangement(n, generator):
    order = shuffled(n, generator)
    while (order == torch.arange(n)).any():
        order = shuffled(n, generator)
    return order


def rolled(n, generator):
    return torch.arange(n).roll(int(torch.randint(n, (1,), generator=generator)))


def pair_swapped(n, generator):
    order = torch.arange(n)
    pair = torch.randint(n, (2,), generator=generator)
    order[pair] = order[pair.flip(0)]
    return order


def by_a_coin(layers, generator):
    return int(torch.rand(1, generator=generator) < 0.5) * (1 + among(layers - 1, generator))


def place_by_lambda(n, layers, generator):
    lam = middle_of_three(generator)
    return lam, shuffled(n, generator), min(layers, int((3 * lam**2 - 2 * lam**3) * (layers + 1)))


# --- 7.5


def both_losses(logits, y, lam, indices):
    return weighing()(F.cross_entropy, logits, y, lam, indices)


def hooked(model, layers, x, place, change):
    """The logits, with the input changed or the output of one layer."""
    if place == 0:
        return model(change(x))
    with layers[place - 1].register_forward_hook(lambda module, args, out: change(out)):
        return model(x)


def stepped(model, optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def stepping(features=mix, loss=both_losses, run=hooked, finish=stepped):
    """A step, with parts of its own."""

    def answer(model, layers, optimizer, x, y, lam, indices, place):
        logits = run(model, layers, x, place, lambda values: features(values, lam, indices))
        return finish(model, optimizer, loss(logits, y, lam, indices))

    return answer


def losing(loss_of):
    """A step with a loss made by one of 7.2's programs."""
    return stepping(loss=lambda *args: loss_of(F.cross_entropy, *args))


def both_losses_by(reduction):
    return lambda logits, y, lam, indices: weighing()(
        lambda *pair: F.cross_entropy(*pair, reduction=reduction), logits, y, lam, indices
    )


def hooked_by(register):
    """Mixed at a layer by what `register` does; it returns a handle, or nothing."""

    def run(model, layers, x, place, change):
        if place == 0:
            return model(change(x))
        handle = register(layers[place - 1], change)
        logits = model(x)
        if handle:
            handle.remove()
        return logits

    return run


def changing_nothing(model, layers, x, place, change):
    return hooked(model, layers, x, place, change if place == 0 else lambda out: None)


def never_the_input(model, layers, x, place, change):
    return hooked(model, layers, x, place, change) if place else model(x)


def place_as_index(model, layers, x, place, change):
    return hooked(model, layers, x, place + 1, change)


def last_layer_for_the_input(model, layers, x, place, change):
    with layers[place - 1].register_forward_hook(lambda module, args, out: change(out)):
        return model(x)


def last_layer_too(model, layers, x, place, change):
    return last_layer_for_the_input(model, layers, x if place else change(x), place, change)


def input_too(model, layers, x, place, change):
    return last_layer_for_the_input(model, layers, change(x), place, change) if place else model(change(x))


def everywhere(model, layers, x, place, change):
    with contextlib.ExitStack() as stack:
        for layer in layers:
            stack.enter_context(layer.register_forward_hook(lambda module, args, out: change(out)))
        return model(change(x))


def partners_apart(model, layers, optimizer, x, y, lam, indices, place):
    """A pass with the partners, and one in which their features are mixed in."""
    if place == 0:
        partners = model(x[indices])
        return stepped(model, optimizer, both_losses(lam * model(x) + (1 - lam) * partners, y, lam, indices))
    kept = []
    with layers[place - 1].register_forward_hook(lambda module, args, out: kept.append(out)):
        model(x[indices])
    with layers[place - 1].register_forward_hook(lambda module, args, out: lam * out + (1 - lam) * kept[0]):
        return stepped(model, optimizer, both_losses(model(x), y, lam, indices))


def loss_after_the_step(model, layers, optimizer, x, y, lam, indices, place):
    stepping()(model, layers, optimizer, x, y, lam, indices, place)
    return both_losses(hooked(model, layers, x, place, lambda out: mix(out, lam, indices)), y, lam, indices).item()


def in_evaluation(model, layers, x, place, change):
    logits = hooked(model.eval(), layers, x, place, change)
    model.train()
    return logits


def left_in_evaluation(model, layers, x, place, change):
    return hooked(model.eval(), layers, x, place, change)


def by_forward(model, layers, x, place, change):
    return hooked(model.forward, layers, x, place, change)


def batch_in_place(model, layers, x, place, change):
    return hooked(model, layers, x, place, change) if place else model(x.copy_(change(x)))


def swallowing(*args):
    try:
        return stepping()(*args)
    except Exception:
        return 0.0


def not_cleared(model, optimizer, loss):
    loss.backward()
    optimizer.step()
    return loss.item()


def no_step(model, optimizer, loss):
    loss.backward()
    return loss.item()


def by_hand(model, optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    with torch.no_grad():
        for one in model.parameters():
            one -= optimizer.param_groups[0]["lr"] * one.grad
    return loss.item()


def clipped(model, optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    return loss.item()


def as_on_the_card(model, layers, optimizer, x, y, lam, indices, place):
    def blend(module, args, out):
        out = lam * out + (1 - lam) * out[indices].detach()

    handle = layers[place].register_forward_hook(blend)
    logits = model(x)
    handle.remove()
    lam = max(lam, 1 - lam)
    loss = both_losses(logits, y, lam, indices)
    loss.backward()
    optimizer.step()


MISCONCEPTIONS = {
    "7.1": {
        "x-unmixed": mixing(of_x=unmixed),
        "y-unmixed": mixing(of_y=unmixed),
        "swapped": mixing(swapped, swapped),
        "y-swapped": mixing(of_y=swapped),
        "folded": mixing(folded, folded),
        "y-folded": mixing(of_y=folded),
        "inverse": mixing(inverse, inverse),
        "half": mixing(half, half),
        "y-half": mixing(of_y=half),
        "partners-only": mixing(partners_only, partners_only),
        "y-partners-only": mixing(of_y=partners_only),
        "too-much": mixing(too_much, too_much),
        "y-too-much": mixing(of_y=too_much),
        "twice": mixing(twice, twice),
        "square-roots": mixing(square_roots, square_roots),
        "other-partners": mixing(flipped, flipped),
        "other-partners-for-y": mixing(of_y=flipped),
        "whole-numbers": mixing(of_y=whole_numbers),
        "larger-share": mixing(of_y=larger_share),
        "only-x": only_x,
        "targets-first": targets_first,
    },
    "7.2": {
        "own-only": weighing(lambda lam: (1, 0)),
        "partner-only": weighing(lambda lam: (0, 1)),
        "swapped": weighing(lambda lam: (1 - lam, lam)),
        "folded": weighing(lambda lam: (max(lam, 1 - lam), min(lam, 1 - lam))),
        "half": weighing(lambda lam: (0.5, 0.5)),
        "no-weights": weighing(lambda lam: (1, 1)),
        "no-weight-for-own": weighing(lambda lam: (1, 1 - lam)),
        "no-weight-for-partner": weighing(lambda lam: (lam, 1)),
        "minus": weighing(lambda lam: (lam, lam - 1)),
        "inverse": weighing(order=torch.argsort),
        "predictions-mixed": weighing(of_logits=mix),
        "softmax": weighing(of_logits=lambda logits, lam, indices: logits.softmax(dim=1)),
        "partners-logits": partners_logits,
        "class-numbers-mixed": with_targets(lambda logits, y, lam, indices: mix(y, lam, indices)),
        "class-numbers-rounded": with_targets(lambda logits, y, lam, indices: mix(y, lam, indices).long()),
        "one-hot-targets": with_targets(
            lambda logits, y, lam, indices: mix(F.one_hot(y, logits.shape[1]).float(), lam, indices)
        ),
        "cross-entropy": always_cross_entropy,
        "takes-the-mean": takes_the_mean,
        "sample-by-sample": sample_by_sample,
        "own-detached": one_detached(torch.detach, itself),
        "partner-detached": one_detached(itself, torch.detach),
        "other-way-round": other_way_round,
        "two-losses": two_losses,
    },
    "7.3": {
        "swapped": hooking(swapped),
        "folded": hooking(folded),
        "inverse": hooking(inverse),
        "half": hooking(half),
        "partners-only": hooking(partners_only),
        "too-much": hooking(too_much),
        "other-partners": hooking(flipped),
        "forgotten-return": hooking(lambda out, lam, indices: None),
        "partner-detached": hooking(partner_detached),
        "self-detached": hooking(self_detached),
        "cut-off": hooking(of_the_data),
        "in-place": hooking(in_place),
        "pre-hook": pre_hook,
        "no-finally": no_finally,
        "removed-in-the-hook": removed_in_the_hook,
        "training-only": training_only,
        "run-again": run_again,
        "registered-twice": registered_twice,
    },
    "7.4": {
        "not-three-things": lambda n, layers, generator: drawing()(n, layers, generator)[:2],
        "permutation-first": lambda n, layers, generator: (*drawing()(n, layers, generator)[1::-1], 0),
        "lambda-for-each": a_lambda_for_each_row,
        "values-and-indices": drawing(lam=lambda generator: torch.rand(3, generator=generator).median(dim=0)),
        "tensor-lambda": drawing(lam=lambda generator: torch.rand(3, generator=generator).median()),
        "tensor-place": drawing(place=lambda layers, generator: torch.randint(layers + 1, (1,), generator=generator)),
        "with-replacement": drawing(order=lambda n, generator: torch.randint(n, (n,), generator=generator)),
        "other-length": drawing(order=lambda n, generator: shuffled(3, generator)),
        "global-dice": drawing(order=lambda n, generator: torch.randperm(n)),
        "not-the-generator": drawing(lam=lambda generator: np.random.default_rng().beta(2, 2)),
        "same-again": seeded_again,
        "never-the-input": drawing(place=lambda layers, generator: 1 + among(layers - 1, generator)),
        "never-the-last": drawing(place=lambda layers, generator: among(layers - 1, generator)),
        "too-far": drawing(place=lambda layers, generator: among(layers + 1, generator)),
        "uniform": of_uniform(1, torch.Tensor.mean),
        "mean-of-two": of_uniform(2, torch.Tensor.mean),
        "mean-of-three": of_uniform(3, torch.Tensor.mean),
        "middle-of-five": of_uniform(5, torch.Tensor.median),
        "largest": of_uniform(3, torch.Tensor.max),
        "smallest": of_uniform(3, torch.Tensor.min),
        "larger-share": of_uniform(3, lambda u: 0.5 + (u.median() - 0.5).abs()),
        "smaller-share": of_uniform(3, lambda u: 0.5 - (u.median() - 0.5).abs()),
        "not-beta": of_uniform(3, lambda u: u.median() / 2),
        "clamped": drawing(lam=clipped_normal),
        "derangement": drawing(order=derangement),
        "roll": drawing(order=rolled),
        "uneven-permutations": drawing(order=pair_swapped),
        "coin-for-the-input": drawing(place=by_a_coin),
        "uneven-places": drawing(place=lambda layers, g: round(torch.rand(1, generator=g).item() * layers)),
        "drawn-together": place_by_lambda,
    },
    "7.5": {
        "as-on-the-card": as_on_the_card,
        "place-as-index": stepping(run=place_as_index),
        "never-the-input": stepping(run=never_the_input),
        "last-layer-for-the-input": stepping(run=last_layer_for_the_input),
        "last-layer-too": stepping(run=last_layer_too),
        "input-too": stepping(run=input_too),
        "everywhere": stepping(run=everywhere),
        "not-mixed": stepping(run=changing_nothing),
        "swapped": stepping(swapped),
        "folded": stepping(folded, lambda logits, y, lam, i: both_losses(logits, y, max(lam, 1 - lam), i)),
        "inverse": stepping(inverse),
        "half": stepping(half),
        "partners-only": stepping(partners_only),
        "too-much": stepping(too_much),
        "other-partners": stepping(flipped),
        "partner-detached": stepping(partner_detached),
        "self-detached": stepping(self_detached),
        "cut-off": stepping(lambda values, lam, indices: mix(values.detach(), lam, indices)),
        "own-only": losing(weighing(lambda lam: (1, 0))),
        "partner-only": losing(weighing(lambda lam: (0, 1))),
        "loss-swapped": losing(weighing(lambda lam: (1 - lam, lam))),
        "loss-folded": losing(weighing(lambda lam: (max(lam, 1 - lam), min(lam, 1 - lam)))),
        "loss-half": losing(weighing(lambda lam: (0.5, 0.5))),
        "no-weights": losing(weighing(lambda lam: (1, 1))),
        "loss-inverse": losing(weighing(order=torch.argsort)),
        "other-partners-in-the-loss": losing(weighing(order=lambda indices: torch.arange(len(indices)).roll(-1))),
        "predictions-mixed": losing(weighing(of_logits=mix)),
        "softmax": losing(weighing(of_logits=lambda logits, lam, indices: logits.softmax(dim=1))),
        "summed": stepping(loss=both_losses_by("sum")),
        "partners-apart": partners_apart,
        "loss-after-the-step": loss_after_the_step,
        "run-again": stepping(
            run=hooked_by(
                lambda layer, change: layer.register_forward_hook(lambda m, args, out: change(m.forward(*args)))
            )
        ),
        "hook-left": stepping(
            run=hooked_by(lambda layer, change: layer.register_forward_hook(lambda m, args, out: change(out)) and None)
        ),
        "no-finally": stepping(
            run=hooked_by(lambda layer, change: layer.register_forward_hook(lambda m, args, out: change(out)))
        ),
        "evaluation-mode": stepping(run=in_evaluation),
        "left-in-evaluation": stepping(run=left_in_evaluation),
        "forward-alone": stepping(run=by_forward),
        "batch-changed": stepping(run=batch_in_place),
        "swallowed": swallowing,
        "not-cleared": stepping(finish=not_cleared),
        "no-step": stepping(finish=no_step),
        "another-optimizer": stepping(finish=by_hand),
        "clipped": stepping(finish=clipped),
        "forgotten-return": stepping(finish=lambda *args: stepped(*args) and None),
        "tensor-loss": stepping(finish=lambda model, optimizer, loss: [stepped(model, optimizer, loss), loss][1]),
    },
}
