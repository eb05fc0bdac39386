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
}
