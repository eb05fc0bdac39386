"""Unusual right answers to lesson 8's exercises, and wrong ones: none is misjudged, and no reason is untrue."""

import copy

import numpy as np
import torch
from torch import nn

from hooklab.course.lesson08.clinic import examine, layers, patient
from tests.course.exercises.answers import Answers

answers = Answers("8.1", "8.2", "8.3", "8.4", "8.5", "8.6", "8.7")
right = answers.right


def wrong(id, says, likely=None):
    return answers.wrong(id, likely, says)


# --- 8.1


@right("8.1")
def by_a_hook_of_all_modules(model, x):
    names, found = {module: name for name, module in model.named_modules()}, []

    def look(module, args, output):
        if module in names and not output.isfinite().all() and all(one.isfinite().all() for one in args):
            found.append((names[module], max(one.abs().max() for one in args).item()))

    with nn.modules.module.register_module_forward_hook(look):
        model(x)
    return next(iter(found), None)


# --- 8.2 to 8.7: what is right for one patient, in several ways


def adam(training, lr):
    training.optimizer = torch.optim.Adam(training.model.parameters(), lr=lr)


@right("8.2")
def leaky_and_slower(training):
    for number in range(1, 5):
        setattr(training.model, f"act{number}", nn.LeakyReLU(0.1))
    adam(training, 0.005)
    return "act1", "dead"


@right("8.3")
def tanh_with_a_spread(training):
    training.model = layers(nn.Tanh, 8, spread=1.2)
    adam(training, 0.003)
    return "fc1", "vanishing"


@right("8.3")
def in_place_of_the_parts(training):
    for name, part in list(training.model.named_children()):
        if name.startswith("act"):
            setattr(training.model, name, nn.ReLU())
        else:
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
            nn.init.zeros_(part.bias)
    adam(training, 0.003)
    return "fc1", "vanishing"


@right("8.4")
def centred_pixels(training):
    training.prepare = lambda pixels: (pixels - 0.3) / 0.4
    return "act1", "saturated"


@right("8.4")
def a_layer_norm_before_tanh(training):
    training.model.act1 = nn.Sequential(nn.LayerNorm(32), nn.Tanh())
    adam(training, 0.01)
    return ["act1", "saturated"]


@right("8.5")
def one_group_more(training):
    training.optimizer.add_param_group({"params": training.model.head.parameters()})
    return "head", "not in the optimizer"


@right("8.5")
def only_those_that_ask(training):
    asks = [one for one in training.model.parameters() if one.requires_grad]
    training.optimizer = torch.optim.SGD(asks, lr=1.0, momentum=0.9)
    return "head", "not in the optimizer"


@right("8.6")
def a_hook_that_returns_nothing(training):
    training.handles[0].remove()
    training.model.encoder.register_forward_hook(
        lambda module, args, output: setattr(module, "kept", output.detach().mean(dim=0).tolist())
    )
    return "encoder", "detached"


@wrong("8.6", says="parameters that get no gradient", likely="Your change has no effect")
def takes_the_hook_along(training):
    training.model = nn.Sequential(training.model.encoder, training.model.reader)
    return "encoder", "detached"


@right("8.6")
def a_class_of_its_own(training):
    class Whole(nn.Module):
        def __init__(self, old):
            super().__init__()
            self.old = old

        def forward(self, x):
            for part in (*self.old.encoder, *self.old.reader):
                x = part(x)
            return x

    training.model = Whole(training.model)
    return "encoder.2", "detached"


@right("8.7")
def another_head(training):
    training.model.head = nn.Linear(32, 10)
    adam(training, 0.02)
    return "head", "nan in the backward"


@right("8.7")
def without_the_root(training):
    head = training.model.head
    head.forward = lambda x: -(x.unsqueeze(1) - head.centres).square().sum(dim=2)
    return "head", "nan in the backward"


@wrong("8.3", says="accuracy after 80 steps", likely="It learns, but too slowly")
def a_small_rate(training):
    training.model = layers(nn.ReLU, 8, spread=2**0.5)
    adam(training, 0.0007)
    return "fc1", "vanishing"


@right("8.2")
def examines_what_it_is_given(training):
    health = examine(copy.deepcopy(training))
    dead = [name for name in ("act2", "act1", "act3", "act4") if zeros_in_the_end(health, name) > 0.99]
    training.optimizer.param_groups[0]["lr"] = 0.003
    return dead[0], "dead"


def zeros_in_the_end(health, name):
    return health.series("output", name, "zeros")[1][-1]


@wrong("8.2", says="accuracy before the first step", likely="The model reads the digits before its first step")
def trains_another(training):
    other = patient("A")
    other.optimizer.param_groups[0]["lr"] = 0.003
    training.model = other.train().model
    training.optimizer = torch.optim.SGD(training.model.parameters(), lr=0.0)
    return "act1", "dead"


@wrong("8.2", says="got       a generator", likely="Return two strings")
def gives_one_after_the_other(training):
    yield "act1"
    yield "dead"


@wrong("8.5", says="head.bias", likely="Give the optimizer all parameters of the head")
def only_the_weight(training):
    training.optimizer = torch.optim.Adam([training.model.head.weight], lr=0.01)
    return "head", "not in the optimizer"


@wrong("8.5", says="parameters of the body that are gone", likely="The body is gone")
def another_model(training):
    training.model = nn.Linear(64, 10)
    adam(training, 0.05)
    return "head", "not in the optimizer"


@wrong("8.4", says="your diagnosis", likely="Return two strings")
def a_sentence(training):
    return "act1 is saturated"


@wrong("8.4", says="the diagnosis that you give", likely="The module's name comes first")
def the_other_way_round(training):
    return "saturated", "act1"


@right("8.1")
def with_a_number_of_numpy(model, x):
    found = by_a_hook_of_all_modules(model, x)
    return found and (found[0], np.float32(found[1]))


test_right, test_wrong = answers.tests()
