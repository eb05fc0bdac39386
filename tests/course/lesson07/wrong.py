"""What people get wrong in lesson 7."""

import contextlib
import random

import torch
import torch.nn.functional as F

from tests.course.exercises.wrong import wrong


def mix(values, lam, indices):
    return lam * values + (1 - lam) * values[indices]


def hook_for(lam, indices):
    """The right hook of 7.3."""
    return lambda module, args, out: mix(out, lam, indices)


def mixing_with(hook_of):
    """A wrong answer of 7.3 that differs in its hook alone."""

    @contextlib.contextmanager
    def mixing(layer, lam, indices):
        with layer.register_forward_hook(hook_of(lam, indices)):
            yield

    mixing.__name__ = hook_of.__name__
    return mixing


def middle_of_three(generator):
    return torch.rand(3, generator=generator).median().item()


def place_among(layers, generator):
    return int(torch.randint(layers + 1, (1,), generator=generator))


@wrong("7.4", says="global dice")
def global_permutation(n, layers, generator):
    return middle_of_three(generator), torch.randperm(n), place_among(layers, generator)


@wrong("7.4", says="in the same state, λ came out differently")
def python_lambda(n, layers, generator):
    return random.betavariate(2, 2), torch.randperm(n, generator=generator), place_among(layers, generator)


@wrong("7.4", says="seeded again")
def seeds_the_generator(n, layers, generator):
    generator.manual_seed(0)
    return middle_of_three(generator), torch.randperm(n, generator=generator), place_among(layers, generator)


@wrong("7.4", says="uniform: that is Beta(1, 1)")
def uniform_lambda(n, layers, generator):
    return (
        torch.rand(1, generator=generator).item(),
        torch.randperm(n, generator=generator),
        place_among(layers, generator),
    )


@wrong("7.4", says="folded")
def folded_lambda(n, layers, generator):
    lam = middle_of_three(generator)
    return max(lam, 1 - lam), torch.randperm(n, generator=generator), place_among(layers, generator)


@wrong("7.4", says="the average of three")
def mean_of_three(n, layers, generator):
    return (
        torch.rand(3, generator=generator).mean().item(),
        torch.randperm(n, generator=generator),
        place_among(layers, generator),
    )


@wrong("7.4", says="largest")
def largest_of_three(n, layers, generator):
    return (
        torch.rand(3, generator=generator).max().item(),
        torch.randperm(n, generator=generator),
        place_among(layers, generator),
    )


@wrong("7.4", says="with replacement")
def partners_with_replacement(n, layers, generator):
    return middle_of_three(generator), torch.randint(n, (n,), generator=generator), place_among(layers, generator)


@wrong("7.4", says="one number for the whole batch")
def lambda_for_each_sample(n, layers, generator):
    lam = torch.rand(3, max(n, 2), generator=generator).median(dim=0).values
    return lam, torch.randperm(n, generator=generator), place_among(layers, generator)


@wrong("7.4", says="some orders never come")
def rolls_the_batch(n, layers, generator):
    by = int(torch.randint(n, (1,), generator=generator))
    return middle_of_three(generator), torch.arange(n).roll(by), place_among(layers, generator)


@wrong("7.4", says="the same indices")
def flips_instead_of_drawing(n, layers, generator):
    return middle_of_three(generator), torch.arange(n).flip(0), place_among(layers, generator)


@wrong("7.4", says="λ comes first")
def indices_first(n, layers, generator):
    return torch.randperm(n, generator=generator), middle_of_three(generator), place_among(layers, generator)


@wrong("7.4", says="length: one partner for each")
def partners_for_three(n, layers, generator):
    return middle_of_three(generator), torch.randperm(3, generator=generator), place_among(layers, generator)


@wrong("7.4", says="two tensors: median(dim=…)")
def median_without_values(n, layers, generator):
    return (
        torch.rand(3, generator=generator).median(dim=0),
        torch.randperm(n, generator=generator),
        place_among(layers, generator),
    )


@wrong("7.4", says="Beta(3, 3): the middle one of five")
def middle_of_five(n, layers, generator):
    lam = torch.rand(5, generator=generator).median().item()
    return lam, torch.randperm(n, generator=generator), place_among(layers, generator)


@wrong("7.4", says="cut off: a normal or another number that was clamped")
def clipped_normal(n, layers, generator):
    lam = (0.5 + 0.224 * torch.randn(1, generator=generator)).clamp(0, 1).item()
    return lam, torch.randperm(n, generator=generator), place_among(layers, generator)


@wrong("7.4", says="a derangement: you leave out the orders in which a row keeps its place")
def never_its_own_partner(n, layers, generator):
    indices = torch.randperm(n, generator=generator)
    while (indices == torch.arange(n)).any():  # has no end for a single row
        indices = torch.randperm(n, generator=generator)
    return middle_of_three(generator), indices, place_among(layers, generator)


@wrong("7.4", says="the mean of two uniform numbers, a triangle")
def mean_of_two(n, layers, generator):
    lam = torch.rand(2, generator=generator).mean().item()
    return lam, torch.randperm(n, generator=generator), place_among(layers, generator)


@wrong("7.4", says="the input, place 0, belongs to the set too")
def never_the_input(n, layers, generator):
    place = 1 + int(torch.randint(layers, (1,), generator=generator))
    return middle_of_three(generator), torch.randperm(n, generator=generator), place


@wrong("7.4", says="off by one: randint(n) draws 0 … n - 1")
def never_the_last_layer(n, layers, generator):
    place = int(torch.randint(layers, (1,), generator=generator))
    return middle_of_three(generator), torch.randperm(n, generator=generator), place


@wrong("7.4", says="a coin for the input first does not")
def tosses_a_coin_for_the_input(n, layers, generator):
    place = int(torch.rand(1, generator=generator) < 0.5) * (1 + int(torch.randint(layers, (1,), generator=generator)))
    return middle_of_three(generator), torch.randperm(n, generator=generator), place


@wrong("7.4", says="got       0: 1")
def weighs_the_places(n, layers, generator):
    u = torch.rand(1, generator=generator).item()
    place = min(layers, 0 if u < 0.4 else 1 if u < 0.7 else 2)
    return middle_of_three(generator), torch.randperm(n, generator=generator), place


@wrong("7.4", says="a place too far: randint's upper end does not come itself")
def one_place_too_many(n, layers, generator):
    return middle_of_three(generator), torch.randperm(n, generator=generator), place_among(layers + 1, generator)


@wrong("7.4", says="in the same state, place came out differently")
def global_place(n, layers, generator):
    lam, indices = middle_of_three(generator), torch.randperm(n, generator=generator)
    return lam, indices, random.randrange(10**9) % (layers + 1)


@wrong("7.4", says="did not return three things")
def forgets_the_place(n, layers, generator):
    return middle_of_three(generator), torch.randperm(n, generator=generator)


def logits_of(model, layers, x, lam, indices, place, hook=None):
    """Run the model, mixed at the input (place 0) or at one of the layers."""
    if place == 0:
        return model(mix(x, lam, indices))
    hook = hook or (lambda module, args, out: mix(out, lam, indices))
    with layers[place - 1].register_forward_hook(hook):
        return model(x)


def mixed_loss(logits, y, lam, indices):
    return lam * F.cross_entropy(logits, y) + (1 - lam) * F.cross_entropy(logits, y[indices])


def finish(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@wrong("7.5", says="each output beside its own target alone")
def mixes_the_features_only(model, layers, optimizer, x, y, lam, indices, place):
    return finish(optimizer, F.cross_entropy(logits_of(model, layers, x, lam, indices, place), y))


@wrong("7.5", says="other partners or another λ in the loss")
def draws_again_for_the_loss(model, layers, optimizer, x, y, lam, indices, place):
    logits = logits_of(model, layers, x, lam, indices, place)
    return finish(optimizer, mixed_loss(logits, y, lam, torch.tensor([1, 2, 3, 4, 0])))


@wrong("7.5", says="weights swapped in the loss")
def swaps_the_loss(model, layers, optimizer, x, y, lam, indices, place):
    logits = logits_of(model, layers, x, lam, indices, place)
    return finish(optimizer, mixed_loss(logits, y, 1 - lam, indices))


@wrong("7.5", says="the features are not the right mixture")
def folds_in_the_step(model, layers, optimizer, x, y, lam, indices, place):
    lam = max(lam, 1 - lam)
    logits = logits_of(model, layers, x, lam, indices, place)
    return finish(optimizer, mixed_loss(logits, y, lam, indices))


@wrong("7.5", says="forgotten return in the hook")
def forgets_to_return_the_mixture(model, layers, optimizer, x, y, lam, indices, place):
    logits = logits_of(model, layers, x, lam, indices, place, hook=lambda *_: None)
    return finish(optimizer, mixed_loss(logits, y, lam, indices))


@wrong("7.5", says="partner cut off")
def stops_the_gradient_to_the_partner(model, layers, optimizer, x, y, lam, indices, place):

    def hook(module, args, out):
        return lam * out + (1 - lam) * out[indices].detach()

    logits = logits_of(model, layers, x, lam, indices, place, hook=hook)
    return finish(optimizer, mixed_loss(logits, y, lam, indices))


@wrong("7.5", says="forward twice")
def runs_the_partners_extra(model, layers, optimizer, x, y, lam, indices, place):
    partners = []
    if place == 0:
        model(x[indices])
        logits = model(mix(x, lam, indices))
    else:
        with layers[place - 1].register_forward_hook(lambda m, args, out: partners.append(out)):
            model(x[indices])
        with layers[place - 1].register_forward_hook(lambda m, args, out: lam * out + (1 - lam) * partners[0]):
            logits = model(x)
    return finish(optimizer, mixed_loss(logits, y, lam, indices))


@wrong("7.5", says="every layer got a hook")
def mixes_everywhere(model, layers, optimizer, x, y, lam, indices, place):
    with contextlib.ExitStack() as stack:
        for layer in layers:
            stack.enter_context(layer.register_forward_hook(lambda m, args, out: mix(out, lam, indices)))
        logits = model(mix(x, lam, indices))
    return finish(optimizer, mixed_loss(logits, y, lam, indices))


@wrong("7.5", says="gradients add up")
def never_clears_the_gradients(model, layers, optimizer, x, y, lam, indices, place):
    loss = mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices)
    loss.backward()
    optimizer.step()
    return loss.item()


@wrong("7.5", says="zero_grad() came between it and step()")
def clears_before_the_step(model, layers, optimizer, x, y, lam, indices, place):
    loss = mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices)
    loss.backward()
    optimizer.zero_grad()
    optimizer.step()
    return loss.item()


@wrong("7.5", says="optimizer.step() did not run")
def never_steps(model, layers, optimizer, x, y, lam, indices, place):
    loss = mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices)
    optimizer.zero_grad()
    loss.backward()
    return loss.item()


@wrong("7.5", says="left a hook behind")
def loses_the_handle(model, layers, optimizer, x, y, lam, indices, place):
    if place:
        layers[place - 1].register_forward_hook(lambda module, args, out: mix(out, lam, indices))
    logits = model(x if place else mix(x, lam, indices))
    return finish(optimizer, mixed_loss(logits, y, lam, indices))


@wrong("7.5", says="is skipped when the pass raises")
def removes_without_finally(model, layers, optimizer, x, y, lam, indices, place):
    if place == 0:
        logits = model(mix(x, lam, indices))
    else:
        handle = layers[place - 1].register_forward_hook(lambda module, args, out: mix(out, lam, indices))
        logits = model(x)
        handle.remove()
    return finish(optimizer, mixed_loss(logits, y, lam, indices))


@wrong("7.5", says="forgotten return")
def returns_no_loss(model, layers, optimizer, x, y, lam, indices, place):
    finish(optimizer, mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices))


@wrong("7.5", says="ran the model in evaluation mode")
def evaluates(model, layers, optimizer, x, y, lam, indices, place):
    model.eval()
    logits = logits_of(model, layers, x, lam, indices, place)
    model.train()
    return finish(optimizer, mixed_loss(logits, y, lam, indices))


@wrong("7.5", says="in evaluation mode")
def leaves_the_model_in_evaluation_mode(model, layers, optimizer, x, y, lam, indices, place):
    loss = mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices)
    loss = finish(optimizer, loss)
    for layer in layers:
        layer.eval()
    return loss


@wrong("7.5", says="called `model.forward(x)`")
def calls_forward(model, layers, optimizer, x, y, lam, indices, place):
    logits = logits_of(model.forward, layers, x, lam, indices, place)
    return finish(optimizer, mixed_loss(logits, y, lam, indices))


@wrong("7.5", says="times the right step: the gradient was clipped")
def clips_the_gradient(model, layers, optimizer, x, y, lam, indices, place):
    loss = mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    return loss.item()


def step_with_loss(loss_of):
    """A wrong answer of 7.5 that differs in its loss alone."""

    def step(model, layers, optimizer, x, y, lam, indices, place):
        return finish(optimizer, loss_of(logits_of(model, layers, x, lam, indices, place), y, lam, indices))

    step.__name__ = loss_of.__name__
    return step


@wrong("7.5", says="summed over the batch")
@step_with_loss
def sums_over_the_batch(logits, y, lam, indices):
    own, partner = (F.cross_entropy(logits, one, reduction="sum") for one in (y, y[indices]))
    return lam * own + (1 - lam) * partner


@wrong("7.5", says="a sum without weights in the loss")
@step_with_loss
def sums_without_weights(logits, y, lam, indices):
    return F.cross_entropy(logits, y) + F.cross_entropy(logits, y[indices])


@wrong("7.5", says="one target only: the partner's")
@step_with_loss
def takes_the_partners_target_only(logits, y, lam, indices):
    return F.cross_entropy(logits, y[indices])


@wrong("7.5", says="predictions mixed")
@step_with_loss
def mixes_the_logits_in_the_step(logits, y, lam, indices):
    return mixed_loss(mix(logits, lam, indices), y, lam, indices)


@wrong("7.5", says="softmax before cross entropy")
@step_with_loss
def takes_the_softmax_first(logits, y, lam, indices):
    return mixed_loss(logits.softmax(dim=1), y, lam, indices)


@wrong("7.5", says="λ folded in the loss: max(λ, 1 - λ) took the place of λ")
@step_with_loss
def folds_in_the_loss_only(logits, y, lam, indices):
    return mixed_loss(logits, y, max(lam, 1 - lam), indices)


@wrong("7.5", says="likely    place 0 is the input")
def counts_the_layers_from_zero(model, layers, optimizer, x, y, lam, indices, place):
    place = (place + 1) % (len(layers) + 1)
    return finish(optimizer, mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices))


@wrong("7.5", says="a place too far: place 0 is the input")
def takes_the_place_for_an_index(model, layers, optimizer, x, y, lam, indices, place):
    return finish(optimizer, mixed_loss(logits_of(model, layers, x, lam, indices, place + 2), y, lam, indices))


@wrong("7.5", says="a layer ran twice in one pass")
def runs_the_layer_again_in_the_step(model, layers, optimizer, x, y, lam, indices, place):
    def hook(module, args, out):
        return lam * out + (1 - lam) * module.forward(*args)[indices]

    logits = logits_of(model, layers, x, lam, indices, place, hook=hook)
    return finish(optimizer, mixed_loss(logits, y, lam, indices))


@wrong("7.5", says="what it returned is not the loss")
def returns_nan(model, layers, optimizer, x, y, lam, indices, place):
    finish(optimizer, mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices))
    return float("nan")


@wrong("7.5", says="The exception gets lost in your code")
def goes_on_after_an_exception(model, layers, optimizer, x, y, lam, indices, place):
    try:
        return finish(optimizer, mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices))
    except Exception:
        return 0.0


@wrong("7.5", says="your step changed x or y in place")
def mixes_the_batch_in_place(model, layers, optimizer, x, y, lam, indices, place):
    if place == 0:
        x.copy_(mix(x, lam, indices))
        return finish(optimizer, mixed_loss(model(x), y, lam, indices))
    return finish(optimizer, mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices))
