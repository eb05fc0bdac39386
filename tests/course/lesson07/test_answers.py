"""Unusual right answers to lesson 7's exercises, and wrong ones: none is misjudged, and no reason is untrue.

A wrong answer comes with the beginning of the one reason that is true, or None where the check can know none.
"""

import contextlib
import functools

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.modules import module as torch_module

import hooklab
from hooklab.mixup import Mixed, draw_lambda
from tests.course.exercises.answers import Answers

answers = Answers("7.1", "7.2", "7.3", "7.4", "7.5")
right, wrong = answers.right, answers.wrong


def mix(values, lam, indices):
    return lam * values + (1 - lam) * values[indices]


# --- 7.1


@right("7.1")
def by_matrix(x, y, lam, indices):
    matrix = lam * torch.eye(len(x)) + (1 - lam) * torch.eye(len(x))[indices]
    return (matrix @ x.flatten(1)).reshape(x.shape), matrix @ y


@right("7.1")
def by_lerp(x, y, lam, indices):
    return [torch.lerp(values[indices], values, lam) for values in (x, y)]


@right("7.1")
def in_place_on_a_copy(x, y, lam, indices):
    mixed_x, mixed_y = x.clone().mul_(lam), y.clone().mul_(lam)
    return mixed_x.add_(x[indices], alpha=1 - lam), mixed_y.add_(y[indices], alpha=1 - lam)


@wrong("7.1")
def mixes_the_first_half(x, y, lam, indices):
    half = len(x) // 2
    mixed = mix(x, lam, indices)
    return torch.cat([mixed[:half], x[half:]]), mix(y, lam, indices)


@wrong("7.1", "The targets have other partners")
def partners_of_partners_for_y(x, y, lam, indices):
    return mix(x, lam, indices), mix(y, lam, indices[indices])


@wrong("7.1", "The result has another dtype")
def mixes_in_float64(x, y, lam, indices):
    return mix(x.double(), lam, indices), mix(y.double(), lam, indices)


@wrong("7.1")
def mixes_in_float16(x, y, lam, indices):
    return tuple(mix(values.half(), lam, indices).float() for values in (x, y))


# --- 7.2


@right("7.2")
def loss_by_lerp(loss_fn, logits, y, lam, indices):
    return torch.lerp(loss_fn(logits, y[indices]), loss_fn(logits, y), lam)


@right("7.2")
def as_a_product(loss_fn, logits, y, lam, indices):
    return torch.tensor([lam, 1 - lam]) @ torch.stack([loss_fn(logits, y), loss_fn(logits, y.gather(0, indices))])


@right("7.2")
def from_the_partners_side(loss_fn, logits, y, lam, indices):
    # the logits in the partners' order, beside targets in the same order: the same mean
    return lam * loss_fn(logits[indices], y[indices]) + (1 - lam) * loss_fn(logits, y[indices])


@wrong("7.2")
def the_larger_loss(loss_fn, logits, y, lam, indices):
    return torch.maximum(loss_fn(logits, y), loss_fn(logits, y[indices]))


@wrong("7.2", "Your loss is cut off from the graph")
def makes_a_tensor_of_the_number(loss_fn, logits, y, lam, indices):
    return torch.tensor((lam * loss_fn(logits, y) + (1 - lam) * loss_fn(logits, y[indices])).item())


@wrong("7.2", "You call backward()")
def goes_back_inside(loss_fn, logits, y, lam, indices):
    loss = lam * loss_fn(logits, y) + (1 - lam) * loss_fn(logits, y[indices])
    loss.backward()
    return loss


# --- 7.3


@right("7.3")
def mixing_that_returns_the_handle(layer, lam, indices):
    return layer.register_forward_hook(lambda module, args, out: lam * out + (1 - lam) * out[indices])


@right("7.3")
@contextlib.contextmanager
def mixing_with_finally(layer, lam, indices):
    handle = layer.register_forward_hook(lambda module, args, out: lam * out + (1 - lam) * out.index_select(0, indices))
    try:
        yield handle
    finally:
        handle.remove()


@right("7.3")
class MixingAsAClass:
    def __init__(self, layer, lam, indices):
        self.layer, self.lam, self.indices = layer, lam, indices

    def layer_hook(self, module, inp, out):
        return self.lam * out + (1 - self.lam) * out[self.indices]

    def __enter__(self):
        self.handle = self.layer.register_forward_hook(self.layer_hook)

    def __exit__(self, *raised):
        self.handle.remove()


@right("7.3")
@contextlib.contextmanager
def mixing_beside_a_look_at_the_input(layer, lam, indices):
    seen = []
    with (
        layer.register_forward_pre_hook(lambda module, args: seen.append(args[0].shape)),
        layer.register_forward_hook(lambda module, args, out: lam * out + (1 - lam) * out[indices]),
    ):
        yield seen


@right("7.3")
def mixing_with_hooklab(layer, lam, indices):
    return hooklab.edit(layer, lambda out, call: torch.lerp(out[indices], out, lam), "")


@right("7.3")
def mixing_on_a_stack(layer, lam, indices):
    stack = contextlib.ExitStack()
    hook = layer.register_forward_hook(lambda m, args, kwargs, out: mix(out, lam, indices), with_kwargs=True)
    stack.callback(hook.remove)
    return stack


@right("7.3")
@contextlib.contextmanager
def mixing_in_two_halves(layer, lam, indices):
    """Each hook adds its part; the second one knows the first one's input."""
    kept = []

    def keep(module, args, out):
        kept.append(out)
        return lam * out

    with (
        layer.register_forward_hook(keep),
        layer.register_forward_hook(lambda m, a, o: o + (1 - lam) * kept[-1][indices]),
    ):
        yield


@right("7.3")
def mixing_by_a_global_hook_that_asks(layer, lam, indices):
    return torch_module.register_module_forward_hook(
        lambda module, args, out: mix(out, lam, indices) if module is layer else None
    )


# --- 7.4


def place_of(layers, generator):
    return int(torch.randint(layers + 1, (1,), generator=generator))


def middle_of_three(generator):
    return torch.rand(3, generator=generator).median().item()


@right("7.4")
def drawn_by_sorting(n, layers, generator):
    indices = torch.rand(n, generator=generator).argsort()
    place = torch.rand(layers + 1, generator=generator).argmax()
    return torch.rand(3, generator=generator).sort().values[1], indices, place


@right("7.4")
def drawn_with_numpy(n, layers, generator):
    place = int(torch.rand(1, generator=generator) * (layers + 1))
    return np.median(torch.rand(3, generator=generator).numpy()), torch.randperm(n, generator=generator), place


@right("7.4")
def drawn_by_gamma_variables(n, layers, generator):
    u = torch.rand(4, generator=generator, dtype=torch.float64).log()
    first, second = -(u[0] + u[1]), -(u[2] + u[3])
    place = torch.randint(layers + 1, (), generator=generator)
    return float(first / (first + second)), torch.randperm(n, generator=generator), place


@right("7.4")
def drawn_with_hooklab(n, layers, generator):
    return draw_lambda(2.0, generator), torch.randperm(n, generator=generator), place_of(layers, generator)


@right("7.4")
def by_rejection(n, layers, generator):
    while True:
        lam, height = torch.rand(2, generator=generator).tolist()
        if height < 4 * lam * (1 - lam):
            return lam, torch.multinomial(torch.ones(n), n, generator=generator), place_of(layers, generator)


@right("7.4")
def by_the_inverse_of_the_distribution(n, layers, generator):
    place = torch.multinomial(torch.ones(layers + 1), 1, generator=generator)
    u = torch.rand(1, generator=generator, dtype=torch.float64)
    angle = (2 * u - 1).asin() / 3
    lam = 0.5 + angle.sin()
    return lam.item(), torch.randperm(n, generator=generator), place


@right("7.4")
def one_shuffle_by_hand(n, layers, generator):
    order = list(range(n))
    for last in range(n - 1, 0, -1):
        other = int(torch.randint(last + 1, (1,), generator=generator))
        order[last], order[other] = order[other], order[last]
    return 1 - middle_of_three(generator), torch.tensor(order), place_of(layers, generator)


@wrong("7.4")
def a_little_too_flat(n, layers, generator):
    shape = torch.tensor([1.5, 1.5])
    first, second = torch._standard_gamma(shape, generator=generator)
    lam = float(first / (first + second))
    return lam, torch.randperm(n, generator=generator), place_of(layers, generator)


@wrong("7.4", "smallest")
def smallest_of_three(n, layers, generator):
    lam = torch.rand(3, generator=generator).min().item()
    return lam, torch.randperm(n, generator=generator), place_of(layers, generator)


@wrong("7.4")
def always_a_half(n, layers, generator):
    return 0.5, torch.randperm(n, generator=generator), place_of(layers, generator)


@wrong("7.4")
def half_of_a_middle_one(n, layers, generator):
    return middle_of_three(generator) / 2, torch.randperm(n, generator=generator), place_of(layers, generator)


@wrong("7.4", "drawn together")
def the_place_by_lambda(n, layers, generator):
    lam = middle_of_three(generator)
    share = 3 * lam**2 - 2 * lam**3  # uniform, as λ is Beta(2, 2)
    return lam, torch.randperm(n, generator=generator), min(layers, int(share * (layers + 1)))


@wrong("7.4", "drawn together")
def the_place_by_the_distance_from_a_half(n, layers, generator):
    lam = middle_of_three(generator)
    share = abs(2 * (3 * lam**2 - 2 * lam**3) - 1)
    return lam, torch.randperm(n, generator=generator), min(layers, int(share * (layers + 1)))


@wrong("7.4", "drawn together")
def the_place_by_the_first_partner(n, layers, generator):
    lam, order = middle_of_three(generator), torch.randperm(n, generator=generator)
    return (
        lam,
        order,
        int(order[0]) % (layers + 1) if n > layers and int(order[0]) <= layers else place_of(layers, generator),
    )


@wrong("7.4", "drawn together")
def the_place_is_never_the_first_partner(n, layers, generator):
    order = torch.randperm(n, generator=generator)
    places = [place for place in range(layers + 1) if place != order[0]]
    place = places[torch.randint(len(places), (), generator=generator)]
    return middle_of_three(generator), order, place


@wrong("7.4", "folded: min(λ, 1 - λ)")
def the_smaller_share(n, layers, generator):
    lam = middle_of_three(generator)
    return min(lam, 1 - lam), torch.randperm(n, generator=generator), place_of(layers, generator)


@wrong("7.4")
def swaps_a_single_pair(n, layers, generator):
    order = torch.arange(n)
    first, second = (int(torch.randint(n, (1,), generator=generator)) for _ in range(2))
    order[[first, second]] = order[[second, first]]
    return middle_of_three(generator), order, place_of(layers, generator)


@wrong("7.4")
def shuffles_badly(n, layers, generator):
    order = list(range(n))
    for one in range(n):
        other = int(torch.randint(n, (1,), generator=generator))
        order[one], order[other] = order[other], order[one]
    return middle_of_three(generator), torch.tensor(order), place_of(layers, generator)


@wrong("7.4", says="the place is not one of")
def names_the_place(n, layers, generator):
    return middle_of_three(generator), torch.randperm(n, generator=generator), f"layer {place_of(layers, generator)}"


@wrong("7.4", "seeded again")
def goes_back_to_the_start(n, layers, generator):
    state = generator.get_state()
    drawn = middle_of_three(generator), torch.randperm(n, generator=generator), place_of(layers, generator)
    generator.set_state(state)
    return drawn


# --- 7.5


def step_that(soft_targets=False, clears_at_the_end=False, uses_a_pre_hook=False, returns_a_tensor=False):
    def manifold_step(model, layers, optimizer, x, y, lam, indices, place):
        def mix(values):
            return lam * values + (1 - lam) * values[indices]

        if place > 0:
            with layers[place - 1].register_forward_hook(lambda module, args, out: mix(out)):
                logits = model(x)
        elif uses_a_pre_hook:
            with model.register_forward_pre_hook(lambda module, args: (mix(args[0]),)):
                logits = model(x)
        else:
            logits = model(mix(x))
        if soft_targets:
            loss = F.cross_entropy(logits, mix(F.one_hot(y, logits.shape[1]).float()))
        else:
            loss = lam * F.cross_entropy(logits, y) + (1 - lam) * F.cross_entropy(logits, y[indices])
        if not clears_at_the_end:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if clears_at_the_end:
            optimizer.zero_grad()
        return loss if returns_a_tensor else loss.item()

    return manifold_step


right("7.5")(step_that(soft_targets=True))
right("7.5")(step_that(clears_at_the_end=True))
right("7.5")(step_that(uses_a_pre_hook=True, returns_a_tensor=True))


@right("7.5")
def step_with_hooklab(model, layers, optimizer, x, y, lam, indices, place):
    names = [name for layer in layers for name, module in model.named_modules() if module is layer]
    drawn = Mixed(x, y, lam, indices, names[place - 1] if place else "input")
    with hooklab.ManifoldMixup(model, layers)(x, y, like=drawn) as mixed:
        loss = mixed.loss(F.cross_entropy, model(mixed.x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@right("7.5")
def step_that_calls_train(model, layers, optimizer, x, y, lam, indices, place):
    model.train()
    return step_that()(model, layers, optimizer, x, y, lam, indices, place)


def logits_of(model, layers, x, place, blend):
    """Run the model, with what `blend` makes of the input or of a layer's output."""
    hook = (
        layers[place - 1].register_forward_hook(lambda m, args, out: blend(out)) if place else contextlib.nullcontext()
    )
    with hook:
        return model(x if place else blend(x))


def loss_of(logits, y, lam, indices):
    return lam * F.cross_entropy(logits, y) + (1 - lam) * F.cross_entropy(logits, y[indices])


@right("7.5")
def step_in_a_closure(model, layers, optimizer, x, y, lam, indices, place):
    def closure():
        optimizer.zero_grad(set_to_none=False)
        loss = loss_of(logits_of(model, layers, x, place, lambda out: mix(out, lam, indices)), y, lam, indices)
        loss.backward()
        return loss

    return float(optimizer.step(closure))


@right("7.5")
def gradients_handed_over(model, layers, optimizer, x, y, lam, indices, place):
    logits = logits_of(model, layers, x, place, lambda out: torch.lerp(out[indices], out, lam))
    rows = logits.log_softmax(dim=1)
    own, partner = (rows.gather(1, target.unsqueeze(1)).mean() for target in (y, y[indices]))
    loss = -(lam * own + (1 - lam) * partner)
    parameters = list(model.parameters())
    for parameter, grad in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.grad = grad
    optimizer.step()
    return loss.detach()


@right("7.5")
def hooks_on_every_layer_that_ask_for_the_place(model, layers, optimizer, x, y, lam, indices, place):
    def blend(number, module, args, out):
        return mix(out, lam, indices) if number == place else None

    with contextlib.ExitStack() as stack:
        for number, layer in enumerate(layers, start=1):
            stack.enter_context(layer.register_forward_hook(functools.partial(blend, number)))
        logits = model(x if place else mix(x, lam, indices))
    loss = loss_of(logits, y, lam, indices)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def a_step(features=mix, loss=loss_of, after=None):
    """A step that is right but for what is given."""

    def step(model, layers, optimizer, x, y, lam, indices, place):
        logits = logits_of(model, layers, x, place, lambda out: features(out, lam, indices))
        found = loss(logits, y, lam, indices)
        optimizer.zero_grad()
        found.backward()
        if after:
            after(model)
        optimizer.step()
        return found.item()

    return step


def wrong_step(likely=None, says="", **part):
    def note(change):
        step = a_step(**{next(iter(part)): change}) if part else change
        step.__name__ = change.__name__
        return wrong("7.5", likely, says)(step)

    return note


@wrong_step("half and half", features=True)
def features_half_and_half(out, lam, indices):
    return (out + out[indices]) / 2


@wrong_step("half and half in the loss", loss=True)
def losses_half_and_half(logits, y, lam, indices):
    return loss_of(logits, y, 0.5, indices)


@wrong_step("partners the other way round in the loss", loss=True)
def other_way_round_in_the_loss(logits, y, lam, indices):
    return loss_of(logits, y, lam, indices.argsort())


@wrong_step("self cut off", features=True)
def cuts_itself_off(out, lam, indices):
    return lam * out.detach() + (1 - lam) * out[indices]


@wrong_step("cut off", features=True)
def cuts_everything_off(out, lam, indices):
    return mix(out.detach(), lam, indices)


@wrong_step(says="not by the gradient of the mixed loss", loss=True)
def smooths_the_labels(logits, y, lam, indices):
    own, partner = (F.cross_entropy(logits, one, label_smoothing=0.3) for one in (y, y[indices]))
    return lam * own + (1 - lam) * partner


@wrong_step(says="not by the gradient of the mixed loss", after=True)
def freezes_the_head(model):
    for parameter in model.head.parameters():
        parameter.grad = None


@wrong_step("0.5 times the right step", after=True)
def halves_the_gradients(model):
    for parameter in model.parameters():
        parameter.grad /= 2


@wrong_step(says="what it returned is not the loss")
def returns_the_plain_loss(model, layers, optimizer, x, y, lam, indices, place):
    logits = logits_of(model, layers, x, place, lambda out: mix(out, lam, indices))
    loss = loss_of(logits, y, lam, indices)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return F.cross_entropy(logits, y).item()


@wrong_step(says="times in one step")
def looks_at_the_loss_once_more(model, layers, optimizer, x, y, lam, indices, place):
    a_step()(model, layers, optimizer, x, y, lam, indices, place)
    with torch.no_grad():
        return loss_of(logits_of(model, layers, x, place, lambda out: mix(out, lam, indices)), y, lam, indices).item()


# --- the caller's tensors, dtypes, interrupts, two blocks, another optimizer


@wrong("7.4")
def a_place_that_is_rounded(n, layers, generator):
    share = torch.rand(3, generator=generator).median().item()
    return share, torch.randperm(n, generator=generator), round(torch.rand(1, generator=generator).item() * layers)


@wrong("7.5", says="optimizer.step() ran 2 times")
def two_steps_for_one_batch(model, layers, optimizer, x, y, lam, indices, place):
    loss = step_that()(model, layers, optimizer, x, y, lam, indices, place)
    optimizer.step()
    return loss


@wrong("7.5", "x was not mixed")
def leaves_the_input_as_it_is(model, layers, optimizer, x, y, lam, indices, place):
    return step_that()(model, layers, optimizer, x, y, lam if place else 1.0, indices, place)


@wrong("7.5", "the last layer's gradient is right, and others are not")
def mixes_past_the_graph(model, layers, optimizer, x, y, lam, indices, place):
    def blend(module, args, out):
        out.data.copy_(mix(out.data, lam, indices))

    with layers[place - 1].register_forward_hook(blend) if place else contextlib.nullcontext():
        logits = model(x if place else mix(x, lam, indices))
    loss = lam * F.cross_entropy(logits, y) + (1 - lam) * F.cross_entropy(logits, y[indices])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@wrong("7.5", "An `except` block raises")
def raises_another_exception_than_the_model(*args):
    try:
        return a_step()(*args)
    except Exception as error:
        raise RuntimeError("the step failed") from error


@wrong("7.5", says="from False to True")
def steps_and_asks_for_a_gradient(model, layers, optimizer, x, y, lam, indices, place):
    x.requires_grad_()
    return a_step()(model, layers, optimizer, x, y, lam, indices, place)


@wrong("7.5", says="not by the optimizer that your function was given")
def steps_with_another_optimizer(model, layers, optimizer, x, y, lam, indices, place):
    other = torch.optim.SGD(model.parameters(), lr=optimizer.param_groups[0]["lr"])
    return a_step()(model, layers, other, x, y, lam, indices, place)


# --- reasons that another step with the same numbers had, too


def stepping(place_of=lambda place: place, order_of_logits=False, input_too=False):
    def manifold_step(model, layers, optimizer, x, y, lam, indices, place):
        def mix(values):
            return lam * values + (1 - lam) * values[indices]

        optimizer.zero_grad()
        with contextlib.ExitStack() as stack:
            if place_of(place):
                layer = layers[place_of(place) - 1]
                stack.enter_context(layer.register_forward_hook(lambda module, args, out: mix(out)))
            logits = model(mix(x) if place == 0 or input_too else x)
        partners = logits[indices] if order_of_logits else logits
        loss = lam * F.cross_entropy(logits, y) + (1 - lam) * F.cross_entropy(partners, y[indices])
        loss.backward()
        optimizer.step()
        return loss.item()

    return manifold_step


right("7.5")(stepping())
wrong("7.5", "each output beside its own target alone")(stepping(order_of_logits=True))
wrong("7.5", says="one step mixed at 2 places: the input, layers[1]")(stepping(lambda place: place or 2))
wrong("7.5", says="one step mixed at 2 places: the input, layers[0]")(stepping(input_too=True))


test_right, test_wrong = answers.tests()
