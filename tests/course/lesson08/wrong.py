"""What people get wrong in lesson 8."""

import torch
from torch import nn

from hooklab.course.lesson08.clinic import layers
from tests.course.exercises.wrong import wrong

# --- 8.1: where the first nan was made


def _watch(model, x, hook, modules=None):
    found = []
    named = dict(model.named_modules() if modules is None else modules)
    handles = [
        module.register_forward_hook(lambda module, args, output, name=name: hook(found, name, args, output))
        for name, module in named.items()
    ]
    try:
        model(x)
    finally:
        for handle in handles:
            handle.remove()
    return found


@wrong("8.1", says="what came in was not finite already")
def does_not_ask_what_came_in(model, x):
    def hook(found, name, args, output):
        if not output.isfinite().all():
            found.append((name, args[0].abs().max().item()))

    return next(iter(_watch(model, x, hook)), None)


@wrong("8.1", says="nan only: an inf is no finite value either")
def looks_for_nan_only(model, x):
    def hook(found, name, args, output):
        if output.isnan().any() and not any(one.isnan().any() for one in args):
            found.append((name, args[0].abs().max().item()))

    return next(iter(_watch(model, x, hook)), None)


@wrong("8.1", says="the largest value, not the largest magnitude")
def forgets_the_sign(model, x):
    def hook(found, name, args, output):
        if all(one.isfinite().all() for one in args) and not output.isfinite().all():
            found.append((name, max(one.max().item() for one in args)))

    return next(iter(_watch(model, x, hook)), None)


@wrong("8.1", says="a child that has parts was left out")
def looks_at_children_that_have_none(model, x):
    def hook(found, name, args, output):
        if all(one.isfinite().all() for one in args) and not output.isfinite().all():
            found.append((name, max(one.abs().max().item() for one in args)))

    leaves = [(name, child) for name, child in model.named_children() if not list(child.children())]
    return next(iter(_watch(model, x, hook, leaves)), None)


@wrong("8.1", says="named_children() does not go there")
def takes_the_part_around_it(model, x):
    def hook(found, name, args, output):
        if all(one.isfinite().all() for one in args) and not output.isfinite().all():
            found.append((name, max(one.abs().max().item() for one in args)))

    return next(iter(_watch(model, x, hook, model.named_children())), None)


@wrong("8.1", says="the model itself is a module, too")
def leaves_the_model_out(model, x):
    def hook(found, name, args, output):
        if all(one.isfinite().all() for one in args) and not output.isfinite().all():
            found.append((name, max(one.abs().max().item() for one in args)))

    return next(iter(_watch(model, x, hook, list(model.named_modules())[1:])), None)


# --- 8.2 to 8.7: the patients


@wrong("8.2", says="nothing speaks for 'vanishing' at 'fc1'")
def takes_it_for_vanishing(training):
    training.optimizer.param_groups[0]["lr"] = 0.003
    return "fc1", "vanishing"


@wrong("8.2", says="'dead' is the cause, but 'out' is not where")
def names_the_last_layer(training):
    training.optimizer.param_groups[0]["lr"] = 0.003
    return "out", "dead"


@wrong("8.2", says="the diagnosis is right; mended, it reads")
def only_looks(training):
    return "act1", "dead"


@wrong("8.2", says="'too large a step' is none of the named causes")
def has_a_word_of_its_own(training):
    return "act1", "too large a step"


@wrong("8.3", says="the optimizer has no parameter of the model")
def keeps_the_old_optimizer(training):
    training.model = layers(nn.ReLU, 8, spread=2**0.5)
    return "fc1", "vanishing"


@wrong("8.3", says="nothing speaks for 'saturated' at 'act1'")
def thinks_of_sigmoids(training):
    training.model = layers(nn.ReLU, 8, spread=2**0.5)
    training.optimizer = torch.optim.Adam(training.model.parameters(), lr=0.003)
    return "act1", "saturated"


@wrong("8.3", says="the diagnosis is right; mended, it reads")
def takes_a_smaller_step(training):
    training.optimizer.param_groups[0]["lr"] = 0.001
    return "fc1", "vanishing"


@wrong("8.4", says="'saturated' is the cause, but 'act2' is not where")
def takes_the_second_activation(training):
    training.prepare = lambda pixels: pixels
    return "act2", "saturated"


@wrong("8.4", says="nothing speaks for 'dead' at 'act1'")
def takes_it_for_dead(training):
    training.prepare = lambda pixels: pixels
    return "act1", "dead"


@wrong("8.4", says="the diagnosis is right; mended, it reads")
def makes_it_worse(training):
    training.prepare = lambda pixels: 100000 * pixels
    return "act1", "saturated"


@wrong("8.5", says="'frozen' at 'body.0' is not the cause")
def blames_the_frozen_body(training):
    training.model.body.requires_grad_(True)
    return "body.0", "frozen"


@wrong("8.5", says="nothing speaks for 'detached' at 'head'")
def takes_it_for_detached(training):
    training.optimizer = torch.optim.Adam(training.model.parameters(), lr=0.01)
    return "head", "detached"


@wrong("8.5", says="mended, the body has moved")
def thaws_the_body_only(training):
    training.model.body.requires_grad_(True)
    return "head", "not in the optimizer"


@wrong("8.6", says="nothing speaks for 'frozen' at 'encoder.0'")
def takes_it_for_frozen(training):
    training.handles[0].remove()
    return "encoder.0", "frozen"


@wrong("8.6", says="nothing speaks for 'never called' at 'encoder.0'")
def takes_it_for_silent(training):
    training.handles[0].remove()
    return "encoder.0", "never called"


@wrong("8.6", says="'detached' is the cause, but 'reader.0' is not where")
def names_the_reader(training):
    training.handles[0].remove()
    return "reader.0", "detached"


@wrong("8.7", says="'nan in the backward' is the cause, but 'act1' is not where")
def names_where_it_arrives(training):
    training.model.head.eps = 1e-6
    return "act1", "nan in the backward"


@wrong("8.7", says="the loss is not finite from step 1 on")
def takes_smaller_steps(training):
    training.optimizer.param_groups[0]["lr"] = 1e-5
    return "head", "nan in the backward"


@wrong("8.7", says="nothing speaks for 'exploding' at 'head'")
def takes_it_for_exploding(training):
    training.model.head.eps = 1e-6
    return "head", "exploding"
