"""Lesson 7's checks accept every right answer, not only the one in the solution."""

import contextlib

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import hooklab
from hooklab.course.exercises import attempt
from hooklab.mixup import Mixed, draw_lambda


def by_matrix(x, y, lam, indices):
    matrix = lam * torch.eye(len(x)) + (1 - lam) * torch.eye(len(x))[indices]
    return (matrix @ x.flatten(1)).reshape(x.shape), matrix @ y


def by_lerp(x, y, lam, indices):
    return [torch.lerp(values[indices], values, lam) for values in (x, y)]


def loss_by_lerp(loss_fn, logits, y, lam, indices):
    return torch.lerp(loss_fn(logits, y[indices]), loss_fn(logits, y), lam)


def mixing_that_returns_the_handle(layer, lam, indices):
    return layer.register_forward_hook(lambda module, args, out: lam * out + (1 - lam) * out[indices])


@contextlib.contextmanager
def mixing_with_finally(layer, lam, indices):
    handle = layer.register_forward_hook(lambda module, args, out: lam * out + (1 - lam) * out.index_select(0, indices))
    try:
        yield handle
    finally:
        handle.remove()


class MixingAsAClass:
    def __init__(self, layer, lam, indices):
        self.layer, self.lam, self.indices = layer, lam, indices

    def layer_hook(self, module, inp, out):
        return self.lam * out + (1 - self.lam) * out[self.indices]

    def __enter__(self):
        self.handle = self.layer.register_forward_hook(self.layer_hook)

    def __exit__(self, *raised):
        self.handle.remove()


@contextlib.contextmanager
def mixing_beside_a_look_at_the_input(layer, lam, indices):
    seen = []
    with (
        layer.register_forward_pre_hook(lambda module, args: seen.append(args[0].shape)),
        layer.register_forward_hook(lambda module, args, out: lam * out + (1 - lam) * out[indices]),
    ):
        yield seen


def drawn_by_sorting(n, layers, generator):
    indices = torch.rand(n, generator=generator).argsort()
    place = torch.rand(layers + 1, generator=generator).argmax()
    return torch.rand(3, generator=generator).sort().values[1], indices, place


def drawn_with_numpy(n, layers, generator):
    place = int(torch.rand(1, generator=generator) * (layers + 1))
    return np.median(torch.rand(3, generator=generator).numpy()), torch.randperm(n, generator=generator), place


def drawn_by_gamma_variables(n, layers, generator):
    u = torch.rand(4, generator=generator, dtype=torch.float64).log()
    first, second = -(u[0] + u[1]), -(u[2] + u[3])
    place = torch.randint(layers + 1, (), generator=generator)
    return float(first / (first + second)), torch.randperm(n, generator=generator), place


def drawn_with_hooklab(n, layers, generator):
    place = int(torch.randint(layers + 1, (1,), generator=generator))
    return draw_lambda(2.0, generator), torch.randperm(n, generator=generator), place


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


def step_with_hooklab(model, layers, optimizer, x, y, lam, indices, place):
    names = [name for layer in layers for name, module in model.named_modules() if module is layer]
    drawn = Mixed(x, y, lam, indices, names[place - 1] if place else "input")
    with hooklab.ManifoldMixup(model, layers)(x, y, like=drawn) as mixed:
        loss = mixed.loss(F.cross_entropy, model(mixed.x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def step_that_calls_train(model, layers, optimizer, x, y, lam, indices, place):
    model.train()
    return step_that()(model, layers, optimizer, x, y, lam, indices, place)


RIGHT = {
    "7.1": [by_matrix, by_lerp],
    "7.2": [loss_by_lerp],
    "7.3": [mixing_that_returns_the_handle, mixing_with_finally, mixing_beside_a_look_at_the_input, MixingAsAClass],
    "7.4": [drawn_by_sorting, drawn_with_numpy, drawn_by_gamma_variables, drawn_with_hooklab],
    "7.5": [
        step_that(soft_targets=True),
        step_that(clears_at_the_end=True),
        step_that(uses_a_pre_hook=True, returns_a_tensor=True),
        step_that_calls_train,
        step_with_hooklab,
    ],
}


@pytest.mark.parametrize(("id", "answer"), [(id, answer) for id, answers in RIGHT.items() for answer in answers])
def test_another_right_answer_is_accepted(id, answer):
    outcome = attempt(id, answer)
    assert outcome.state == "correct", str(outcome)
