"""Unusual right answers to lesson 7's exercises, and wrong ones: none is misjudged, and no reason is untrue.

A wrong answer comes with the beginning of the one reason that is true, or None where the check can know none.
"""

import contextlib

import torch

from solutions.misconceptions import lesson07 as parts
from tests.course.exercises.answers import Answers

answers = Answers("7.1", "7.2", "7.3")
right, wrong = answers.right, answers.wrong


# --- 7.1


@right("7.1")
def by_matrix(x, y, lam, indices):
    matrix = lam * torch.eye(len(x)) + (1 - lam) * torch.eye(len(x))[indices]
    return (matrix @ x.flatten(1)).reshape(x.shape), matrix @ y


@right("7.1")
def in_place_on_a_copy(x, y, lam, indices):
    mixed_x, mixed_y = x.clone().mul_(lam), y.clone().mul_(lam)
    return mixed_x.add_(x[indices], alpha=1 - lam), mixed_y.add_(y[indices], alpha=1 - lam)


def in_float64(values, lam, indices):
    return parts.mix(values.double(), lam, indices)


wrong("7.1", "The result has another dtype")(parts.mixing(in_float64, in_float64))


# --- 7.2


@right("7.2")
def loss_by_lerp(loss_fn, logits, y, lam, indices):
    return torch.lerp(loss_fn(logits, y[indices]), loss_fn(logits, y), lam)


@right("7.2")
def as_a_product(loss_fn, logits, y, lam, indices):
    return torch.tensor([lam, 1 - lam]) @ torch.stack([loss_fn(logits, y), loss_fn(logits, y.gather(0, indices))])


@wrong("7.2", "Your loss is cut off from the graph")
def makes_a_tensor_of_the_number(*args):
    return torch.tensor(parts.weighing()(*args).item())


@wrong("7.2", "You call backward()")
def goes_back_inside(*args):
    loss = parts.weighing()(*args)
    loss.backward()
    return loss


# --- 7.3


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
def mixing_on_a_stack(layer, lam, indices):
    stack = contextlib.ExitStack()
    hook = layer.register_forward_hook(lambda m, args, kwargs, out: parts.mix(out, lam, indices), with_kwargs=True)
    stack.callback(hook.remove)
    return stack


test_right, test_wrong = answers.tests()
