"""What people get wrong in lesson 7."""

import contextlib
import random

import torch
import torch.nn.functional as F

from tests.course.exercises.wrong import wrong


def mix(values, lam, indices):
    return lam * values + (1 - lam) * values[indices]


@wrong("7.1", says="other partners than x has")
def another_permutation_for_y(x, y, lam, indices):
    return mix(x, lam, indices), mix(y, lam, indices.flip(0))


@wrong("7.1", says="the mixed y is not the right one")
def targets_as_they_came(x, y, lam, indices):
    return mix(x, lam, indices), y


@wrong("7.1", says="λ folded")
def folds_lambda(x, y, lam, indices):
    lam = max(lam, 1 - lam)
    return mix(x, lam, indices), mix(y, lam, indices)


@wrong("7.1", says="weights swapped")
def swaps_the_weights(x, y, lam, indices):
    return mix(x, 1 - lam, indices), mix(y, 1 - lam, indices)


@wrong("7.1", says="partners the other way round")
def scatters_to_the_partners(x, y, lam, indices):
    partners = torch.empty_like(x)
    partners[indices] = x
    return lam * x + (1 - lam) * partners, mix(y, lam, indices)


@wrong("7.1", says="forgotten return")
def returns_nothing(x, y, lam, indices):
    mix(x, lam, indices), mix(y, lam, indices)


@wrong("7.1", says="did not return a pair")
def only_x(x, y, lam, indices):
    return mix(x, lam, indices)


@wrong("7.1", says="changed x in place")
def writes_into_x(x, y, lam, indices):
    partners = x[indices]
    x *= lam
    x += (1 - lam) * partners
    return x, mix(y, lam, indices)


@wrong("7.1", says="with λ = 0.75 and indices = [2, 0, 1], the mixed x is not the right one")
def draws_its_own_partners(x, y, lam, indices):
    indices = torch.randperm(len(x), generator=torch.Generator().manual_seed(4))
    return mix(x, lam, indices), mix(y, lam, indices)


@wrong("7.1", says="half and half")
def takes_the_average(x, y, lam, indices):
    return (x + x[indices]) / 2, (y + y[indices]) / 2


@wrong("7.1", says="changed y in place")
def writes_into_y(x, y, lam, indices):
    partners = y[indices]
    y *= lam
    y += (1 - lam) * partners
    return mix(x, lam, indices), y


@wrong("7.1", says="whole numbers: `.long()`")
def cuts_the_shares_off(x, y, lam, indices):
    return mix(x, lam, indices), mix(y, lam, indices).long()


@wrong("7.1", says="whole numbers: `.long()` and `.int()` cut off what is behind the point")
def cuts_the_samples_off(x, y, lam, indices):
    return mix(x, lam, indices).int(), mix(y, lam, indices)


@wrong("7.2", says="class numbers cannot be mixed")
def mixes_class_numbers(loss_fn, logits, y, lam, indices):
    return loss_fn(logits, lam * y + (1 - lam) * y[indices])


@wrong("7.2", says="class numbers were mixed")
def rounds_mixed_class_numbers(loss_fn, logits, y, lam, indices):
    return loss_fn(logits, (lam * y + (1 - lam) * y[indices]).long())


@wrong("7.2", says="one target only: each sample's own")
def own_target_only(loss_fn, logits, y, lam, indices):
    return loss_fn(logits, y)


@wrong("7.2", says="the partner's; each sample's own share")
def partners_target_only(loss_fn, logits, y, lam, indices):
    return loss_fn(logits, y[indices])


@wrong("7.2", says="weights swapped")
def swapped_losses(loss_fn, logits, y, lam, indices):
    return (1 - lam) * loss_fn(logits, y) + lam * loss_fn(logits, y[indices])


@wrong("7.2", says="λ folded")
def folded_loss(loss_fn, logits, y, lam, indices):
    lam = max(lam, 1 - lam)
    return lam * loss_fn(logits, y) + (1 - lam) * loss_fn(logits, y[indices])


@wrong("7.2", says="predictions mixed")
def mixes_the_logits_too(loss_fn, logits, y, lam, indices):
    logits = mix(logits, lam, indices)
    return lam * loss_fn(logits, y) + (1 - lam) * loss_fn(logits, y[indices])


@wrong("7.2", says="one-hot targets")
def one_hot_targets(loss_fn, logits, y, lam, indices):
    return loss_fn(logits, mix(F.one_hot(y, logits.shape[1]).float(), lam, indices))


@wrong("7.2", says="item()")
def returns_a_number(loss_fn, logits, y, lam, indices):
    return (lam * loss_fn(logits, y) + (1 - lam) * loss_fn(logits, y[indices])).item()


@wrong("7.2", says="the loss is right, its gradient is not")
def detaches_one_loss(loss_fn, logits, y, lam, indices):
    return lam * loss_fn(logits, y) + (1 - lam) * loss_fn(logits.detach(), y[indices])


@wrong("7.2", says="a sum without weights")
def forgets_the_weights(loss_fn, logits, y, lam, indices):
    return loss_fn(logits, y) + loss_fn(logits, y[indices])


@wrong("7.2", says="cross entropy in place of `loss_fn`")
def always_takes_cross_entropy(loss_fn, logits, y, lam, indices):
    return lam * F.cross_entropy(logits, y) + (1 - lam) * F.cross_entropy(logits, y[indices])


@wrong("7.2", says="your function ran backward()")
def goes_back_inside(loss_fn, logits, y, lam, indices):
    loss = lam * loss_fn(logits, y) + (1 - lam) * loss_fn(logits, y[indices])
    loss.backward()
    return loss


@wrong("7.2", says="detached: item(), torch.tensor(…) and detach() keep")
def makes_a_tensor_of_the_number(loss_fn, logits, y, lam, indices):
    loss = lam * loss_fn(logits, y) + (1 - lam) * loss_fn(logits, y[indices])
    return torch.tensor(loss.item())


@wrong("7.2", says="cut off: item(), torch.tensor(…) and detach()")
def makes_a_leaf_of_the_number(loss_fn, logits, y, lam, indices):
    loss = lam * loss_fn(logits, y) + (1 - lam) * loss_fn(logits, y[indices])
    return torch.tensor(loss.item(), requires_grad=True)


@wrong("7.2", says="partners' logits")
def gives_the_partners_their_logits(loss_fn, logits, y, lam, indices):
    return lam * loss_fn(logits, y) + (1 - lam) * loss_fn(logits[indices], y[indices])


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


@wrong("7.3", says="forgotten return: a name inside the hook")
@mixing_with
def forgets_the_return(lam, indices):
    def hook(module, args, out):
        out = mix(out, lam, indices)

    return hook


@wrong("7.3", says="in-place change")
@mixing_with
def writes_into_the_output(lam, indices):
    def hook(module, args, out):
        with torch.no_grad():
            out.copy_(mix(out, lam, indices))

    return hook


@wrong("7.3", says="partner cut off")
@mixing_with
def detaches_the_partner(lam, indices):
    return lambda module, args, out: lam * out + (1 - lam) * out.detach()[indices]


@wrong("7.3", says="no gradient flows back into the layer")
@mixing_with
def mixes_the_data(lam, indices):
    return lambda module, args, out: mix(out.data, lam, indices)


@wrong("7.3", says="weights swapped")
@mixing_with
def swaps_in_the_hook(lam, indices):
    return lambda module, args, out: mix(out, 1 - lam, indices)


@wrong("7.3", says="λ folded")
@mixing_with
def folds_in_the_hook(lam, indices):
    return lambda module, args, out: mix(out, max(lam, 1 - lam), indices)


@wrong("7.3", says="argument")
@mixing_with
def takes_two_arguments(lam, indices):
    return lambda module, out: mix(out, lam, indices)


@wrong("7.3", says="other partners")
@mixing_with
def flips_the_batch(lam, indices):
    return lambda module, args, out: lam * out + (1 - lam) * out.flip(0)


@wrong("7.3", says="no finally")
@contextlib.contextmanager
def removes_after_a_bare_yield(layer, lam, indices):
    handle = layer.register_forward_hook(lambda module, args, out: mix(out, lam, indices))
    yield
    handle.remove()


@wrong("7.3", says="left a hook behind")
@contextlib.contextmanager
def never_removes(layer, lam, indices):
    layer.register_forward_hook(lambda module, args, out: mix(out, lam, indices))
    yield


@wrong("7.3", says="the exception comes out of the with statement")
@contextlib.contextmanager
def swallows_the_exception(layer, lam, indices):
    handle = layer.register_forward_hook(lambda module, args, out: mix(out, lam, indices))
    try:
        yield
    except Exception:
        pass
    finally:
        handle.remove()


@wrong("7.3", says="mixed twice")
@contextlib.contextmanager
def registers_twice(layer, lam, indices):
    hook = hook_for(lam, indices)
    with layer.register_forward_hook(hook), layer.register_forward_hook(hook):
        yield


@wrong("7.3", says="cannot stand after `with`")
def has_no_yield(layer, lam, indices):
    layer.register_forward_hook(hook_for(lam, indices)).remove()


@wrong("7.3", says="a hook that was there before your block is gone")
@contextlib.contextmanager
def clears_all_hooks(layer, lam, indices):
    layer.register_forward_hook(hook_for(lam, indices))
    try:
        yield
    finally:
        layer._forward_hooks.clear()


@wrong("7.3", says="no hook on the layer during the block")
@contextlib.contextmanager
def removes_before_the_block(layer, lam, indices):
    with layer.register_forward_hook(hook_for(lam, indices)):
        pass
    yield


@wrong("7.3", says="mixed once: the hook was gone after its first call")
@contextlib.contextmanager
def mixes_the_first_pass_only(layer, lam, indices):
    def hook(module, args, out):
        handle.remove()
        return mix(out, lam, indices)

    handle = layer.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@wrong("7.3", says="no yield: under @contextmanager")
@contextlib.contextmanager
def has_no_yield_under_the_decorator(layer, lam, indices):
    layer.register_forward_hook(hook_for(lam, indices)).remove()


@wrong("7.3", says="return under @contextmanager")
@contextlib.contextmanager
def returns_the_handle_under_the_decorator(layer, lam, indices):
    return layer.register_forward_hook(hook_for(lam, indices))


@wrong("7.3", says="two yields")
@contextlib.contextmanager
def yields_twice(layer, lam, indices):
    yield
    with layer.register_forward_hook(hook_for(lam, indices)):
        yield


@wrong("7.3", says="forward pre-hook: it mixes what goes in")
@contextlib.contextmanager
def mixes_what_goes_in(layer, lam, indices):
    with layer.register_forward_pre_hook(lambda module, args: mix(args[0], lam, indices)):
        yield


@wrong("7.3", says="`forward` was replaced; the exercise wants a hook")
@contextlib.contextmanager
def replaces_forward(layer, lam, indices):
    forward = layer.forward
    layer.forward = lambda x: mix(forward(x), lam, indices)
    try:
        yield
    finally:
        del layer.forward


@wrong("7.3", says="forward in vars(layer), after the block")
@contextlib.contextmanager
def leaves_a_forward_of_its_own(layer, lam, indices):
    with layer.register_forward_hook(hook_for(lam, indices)):
        yield
    layer.forward = layer.forward


def middle_of_three(generator):
    return torch.rand(3, generator=generator).median().item()


@wrong("7.4", says="global dice")
def global_permutation(n, generator):
    return middle_of_three(generator), torch.randperm(n)


@wrong("7.4", says="in the same state, λ came out differently")
def python_lambda(n, generator):
    return random.betavariate(2, 2), torch.randperm(n, generator=generator)


@wrong("7.4", says="seeded again")
def seeds_the_generator(n, generator):
    generator.manual_seed(0)
    return middle_of_three(generator), torch.randperm(n, generator=generator)


@wrong("7.4", says="uniform: that is Beta(1, 1)")
def uniform_lambda(n, generator):
    return torch.rand(1, generator=generator).item(), torch.randperm(n, generator=generator)


@wrong("7.4", says="folded")
def folded_lambda(n, generator):
    lam = middle_of_three(generator)
    return max(lam, 1 - lam), torch.randperm(n, generator=generator)


@wrong("7.4", says="the average of three")
def mean_of_three(n, generator):
    return torch.rand(3, generator=generator).mean().item(), torch.randperm(n, generator=generator)


@wrong("7.4", says="largest")
def largest_of_three(n, generator):
    return torch.rand(3, generator=generator).max().item(), torch.randperm(n, generator=generator)


@wrong("7.4", says="with replacement")
def partners_with_replacement(n, generator):
    return middle_of_three(generator), torch.randint(n, (n,), generator=generator)


@wrong("7.4", says="one number for the whole batch")
def lambda_for_each_sample(n, generator):
    lam = torch.rand(3, max(n, 2), generator=generator).median(dim=0).values
    return lam, torch.randperm(n, generator=generator)


@wrong("7.4", says="some orders never come")
def rolls_the_batch(n, generator):
    by = int(torch.randint(n, (1,), generator=generator))
    return middle_of_three(generator), torch.arange(n).roll(by)


@wrong("7.4", says="the same indices")
def flips_instead_of_drawing(n, generator):
    return middle_of_three(generator), torch.arange(n).flip(0)


@wrong("7.4", says="λ comes first")
def indices_first(n, generator):
    return torch.randperm(n, generator=generator), middle_of_three(generator)


@wrong("7.4", says="length: one partner for each")
def partners_for_three(n, generator):
    return middle_of_three(generator), torch.randperm(3, generator=generator)


@wrong("7.4", says="two tensors: median(dim=…)")
def median_without_values(n, generator):
    return torch.rand(3, generator=generator).median(dim=0), torch.randperm(n, generator=generator)


def drawn(count, n, generator):
    """λ, partners and a place, drawn as they should be."""
    lam = middle_of_three(generator)
    return lam, torch.randperm(n, generator=generator), int(torch.randint(count, (1,), generator=generator))


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


@wrong("7.5", says="the input belongs to the set too")
def never_the_input(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers), len(y), generator)
    logits = logits_of(model, layers, x, lam, indices, place + 1)
    return finish(optimizer, mixed_loss(logits, y, lam, indices))


@wrong("7.5", says="stage 2 was chosen 0 times")
def never_the_last_layer(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers), len(y), generator)
    logits = logits_of(model, layers, x, lam, indices, place)
    return finish(optimizer, mixed_loss(logits, y, lam, indices))


@wrong("7.5", says="targets as they came")
def mixes_the_features_only(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers) + 1, len(y), generator)
    return finish(optimizer, F.cross_entropy(logits_of(model, layers, x, lam, indices, place), y))


@wrong("7.5", says="other partners or another λ in the loss")
def draws_again_for_the_loss(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers) + 1, len(y), generator)
    logits = logits_of(model, layers, x, lam, indices, place)
    return finish(optimizer, mixed_loss(logits, y, lam, torch.randperm(len(y), generator=generator)))


@wrong("7.5", says="weights swapped in the loss")
def swaps_the_loss(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers) + 1, len(y), generator)
    logits = logits_of(model, layers, x, lam, indices, place)
    return finish(optimizer, mixed_loss(logits, y, 1 - lam, indices))


@wrong("7.5", says="folded")
def folds_in_the_step(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers) + 1, len(y), generator)
    lam = max(lam, 1 - lam)
    logits = logits_of(model, layers, x, lam, indices, place)
    return finish(optimizer, mixed_loss(logits, y, lam, indices))


@wrong("7.5", says="the targets were mixed and the features were not")
def forgets_to_return_the_mixture(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers) + 1, len(y), generator)
    logits = logits_of(model, layers, x, lam, indices, place, hook=lambda *_: None)
    return finish(optimizer, mixed_loss(logits, y, lam, indices))


@wrong("7.5", says="partner cut off")
def stops_the_gradient_to_the_partner(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers) + 1, len(y), generator)

    def hook(module, args, out):
        return lam * out + (1 - lam) * out[indices].detach()

    logits = logits_of(model, layers, x, lam, indices, place, hook=hook)
    return finish(optimizer, mixed_loss(logits, y, lam, indices))


@wrong("7.5", says="forward twice")
def runs_the_partners_extra(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers) + 1, len(y), generator)
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
def mixes_everywhere(model, layers, optimizer, x, y, generator):
    lam, indices, _ = drawn(1, len(y), generator)
    with contextlib.ExitStack() as stack:
        for layer in layers:
            stack.enter_context(layer.register_forward_hook(lambda m, args, out: mix(out, lam, indices)))
        logits = model(mix(x, lam, indices))
    return finish(optimizer, mixed_loss(logits, y, lam, indices))


@wrong("7.5", says="gradients add up")
def never_clears_the_gradients(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers) + 1, len(y), generator)
    loss = mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices)
    loss.backward()
    optimizer.step()
    return loss.item()


@wrong("7.5", says="zero_grad() came between it and step()")
def clears_before_the_step(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers) + 1, len(y), generator)
    loss = mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices)
    loss.backward()
    optimizer.zero_grad()
    optimizer.step()
    return loss.item()


@wrong("7.5", says="optimizer.step() did not run")
def never_steps(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers) + 1, len(y), generator)
    loss = mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices)
    optimizer.zero_grad()
    loss.backward()
    return loss.item()


@wrong("7.5", says="left a hook behind")
def loses_the_handle(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers) + 1, len(y), generator)
    if place:
        layers[place - 1].register_forward_hook(lambda module, args, out: mix(out, lam, indices))
    logits = model(x if place else mix(x, lam, indices))
    return finish(optimizer, mixed_loss(logits, y, lam, indices))


@wrong("7.5", says="is skipped when the pass raises")
def removes_without_finally(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers) + 1, len(y), generator)
    if place == 0:
        logits = model(mix(x, lam, indices))
    else:
        handle = layers[place - 1].register_forward_hook(lambda module, args, out: mix(out, lam, indices))
        logits = model(x)
        handle.remove()
    return finish(optimizer, mixed_loss(logits, y, lam, indices))


@wrong("7.5", says="two runs mixed differently")
def uses_global_dice(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers) + 1, len(y), torch.default_generator)
    loss = mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices)
    return finish(optimizer, loss)


@wrong("7.5", says="forgotten return")
def returns_no_loss(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers) + 1, len(y), generator)
    finish(optimizer, mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices))


@wrong("7.5", says="not every sample was mixed with the same λ")
def lambdas_for_each_sample_in_a_step(model, layers, optimizer, x, y, generator):
    _, _, place = drawn(len(layers) + 1, len(y), generator)
    lam = torch.rand(len(y), 1, generator=generator)
    indices = torch.randperm(len(y), generator=generator)
    logits = logits_of(model, layers, x, lam, indices, place)
    own, partner = (F.cross_entropy(logits, one, reduction="none") for one in (y, y[indices]))
    return finish(optimizer, (lam[:, 0] * own + (1 - lam[:, 0]) * partner).mean())


@wrong("7.5", says="the partners are not a permutation")
def randint_partners_in_a_step(model, layers, optimizer, x, y, generator):
    lam, _, place = drawn(len(layers) + 1, len(y), generator)
    indices = torch.randint(len(y), (len(y),), generator=generator)
    loss = mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices)
    return finish(optimizer, loss)


@wrong("7.5", says="there were only 1 permutations")
def flips_in_every_step(model, layers, optimizer, x, y, generator):
    lam, _, place = drawn(len(layers) + 1, len(y), generator)
    indices = torch.arange(len(y)).flip(0)
    loss = mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices)
    return finish(optimizer, loss)


@wrong("7.5", says="there were only 4 permutations")
def rolls_in_every_step(model, layers, optimizer, x, y, generator):
    lam, _, place = drawn(len(layers) + 1, len(y), generator)
    indices = torch.arange(len(y)).roll(int(torch.randint(len(y), (1,), generator=generator)))
    if place == 0 or indices[0] == 0:
        loss = mixed_loss(model(mix(x, lam, indices)), y, lam, indices)
    else:
        loss = mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices)
    return finish(optimizer, loss)


def step_with_lambda(lam_of):
    """A wrong answer of 7.5 that differs in its λ alone."""

    def step(model, layers, optimizer, x, y, generator):
        _, indices, place = drawn(len(layers) + 1, len(y), generator)
        lam = lam_of(torch.rand(3, generator=generator)).item()
        loss = mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices)
        return finish(optimizer, loss)

    step.__name__ = lam_of.__name__
    return step


@wrong("7.5", says="λ does not look like Beta(2, 2)")
@step_with_lambda
def uniform_in_a_step(three):
    return three[0]


@wrong("7.5", says="λ does not look like Beta(2, 2)")
@step_with_lambda
def mean_in_a_step(three):
    return three.mean()


@wrong("7.5", says="λ does not look like Beta(2, 2)")
@step_with_lambda
def largest_in_a_step(three):
    return three.max()


@wrong("7.5", says="a fixed number of places")
def three_places_always(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(3, len(y), generator)
    loss = mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices)
    return finish(optimizer, loss)


@wrong("7.5", says="mixed at a layer that is not in the list")
def two_layers_always(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(3, len(y), generator)
    layers = [model.stage1, model.stage2]
    loss = mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices)
    return finish(optimizer, loss)


@wrong("7.5", says="a place too many")
def one_place_too_many(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers) + 2, len(y), generator)
    loss = mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices)
    return finish(optimizer, loss)


@wrong("7.5", says="a coin for the input")
def tosses_a_coin_for_the_input(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers), len(y), generator)
    place = 0 if torch.rand(1, generator=generator) < 0.5 else place + 1
    loss = mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices)
    return finish(optimizer, loss)


@wrong("7.5", says="a step without mixing")
def sometimes_mixes_nowhere(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers) + 2, len(y), generator)
    if place > len(layers):
        return finish(optimizer, F.cross_entropy(model(x), y))
    loss = mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices)
    return finish(optimizer, loss)


@wrong("7.5", says="ran the model in evaluation mode")
def evaluates(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers) + 1, len(y), generator)
    model.eval()
    logits = logits_of(model, layers, x, lam, indices, place)
    model.train()
    return finish(optimizer, mixed_loss(logits, y, lam, indices))


@wrong("7.5", says="left a part of the model in evaluation mode")
def leaves_the_model_in_evaluation_mode(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers) + 1, len(y), generator)
    loss = mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices)
    loss = finish(optimizer, loss)
    for layer in layers:
        layer.eval()
    return loss


@wrong("7.5", says="called `model.forward(x)`")
def calls_forward(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers) + 1, len(y), generator)
    logits = logits_of(model.forward, layers, x, lam, indices, place)
    return finish(optimizer, mixed_loss(logits, y, lam, indices))


@wrong("7.5", says="times the right gradient: it was clipped")
def clips_the_gradient(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers) + 1, len(y), generator)
    loss = mixed_loss(logits_of(model, layers, x, lam, indices, place), y, lam, indices)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    return loss.item()


def step_with_loss(loss_of):
    """A wrong answer of 7.5 that differs in its loss alone."""

    def step(model, layers, optimizer, x, y, generator):
        lam, indices, place = drawn(len(layers) + 1, len(y), generator)
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


@wrong("7.5", says="likely    λ folded: max(λ, 1 - λ) in the loss only")
def folds_in_the_loss_only(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers) + 1, len(y), generator)
    lam = 1 - lam  # Beta(2, 2) too, and the first one is above ½
    logits = logits_of(model, layers, x, lam, indices, place)
    return finish(optimizer, mixed_loss(logits, y, max(lam, 1 - lam), indices))


@wrong("7.5", says="likely    λ folded: max(λ, 1 - λ) in the features only")
def folds_in_the_features_only(model, layers, optimizer, x, y, generator):
    lam, indices, place = drawn(len(layers) + 1, len(y), generator)
    lam = 1 - lam  # Beta(2, 2) too, and the first one is above ½
    logits = logits_of(model, layers, x, max(lam, 1 - lam), indices, place)
    return finish(optimizer, mixed_loss(logits, y, lam, indices))
