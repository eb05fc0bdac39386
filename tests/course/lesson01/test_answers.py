"""Unusual right answers to lesson 1's exercises, and wrong ones that no misconception covers."""

import numpy as np
import pytest
import torch
from torch import nn

from hooklab.course.lesson01.engine import backward_order
from solutions.misconceptions import lesson01 as parts
from tests.course.exercises.answers import Answers

answers = Answers("1.1", "1.2", "1.3", "1.4", "1.5", "1.6")
right, wrong = answers.right, answers.wrong
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


# --- 1.1


@right("1.1")
def a_list(named):
    return [name for name, t in named.items() if t.requires_grad and t.grad_fn is None]


@right("1.1")
def by_type_of_the_node(named):
    nodes = {name: t.view_as(t).grad_fn.next_functions[0][0] for name, t in named.items() if t.requires_grad}
    return frozenset(name for name, node in nodes.items() if type(node).__name__ == "AccumulateGrad")


@wrong("1.1", "Every leaf with requires_grad=True", "'double'")
def single_precision_alone(named):
    return {n for n, t in named.items() if t.is_leaf and t.requires_grad and t.dtype == torch.float32}


# --- 1.2


Value = parts.value_class()


@right("1.2")
class PiecesFirst(Value):
    def arrive(self, gradient, arriving):
        gradient = parts.after_hooks(tuple(self.hooks), gradient)
        pieces = [(value, gradient * derivative) for value, derivative in self.made_from]
        for value, piece in pieces:
            arriving.update({value: piece + arriving[value] if value in arriving else piece})
        if not pieces:
            self.grad = sum(one for one in (self.grad, gradient) if one is not None)


@right("1.2")
class WithoutArrive(Value):
    """The whole backward pass in one method."""

    def backward(self):
        arriving = {self: 1.0}
        for value in backward_order(self):
            gradient = parts.after_hooks(value.hooks, arriving[value])
            if not value.made_from:
                value.grad = gradient + (value.grad or 0.0)
            for source, derivative in value.made_from:
                parts.add(arriving, source, gradient * derivative)


def takes_only_floats_from_a_hook(hooks, gradient):
    for hook in hooks:
        changed = hook(gradient)
        gradient = changed if isinstance(changed, float) else gradient
    return gradient


wrong("1.2", "What the hook returns gets lost")(parts.with_hooks(takes_only_floats_from_a_hook))


@wrong("1.2", "After backward() the value no longer knows")
class LetsGoOfTheGraph(Value):
    def arrive(self, gradient, arriving):
        super().arrive(gradient, arriving)
        self.made_from = ()


# --- 1.3


@right("1.3")
def with_a_hook(w, x):
    kept = []
    hidden = w * x
    hidden.register_hook(kept.append)
    torch.sum(hidden * hidden).backward()
    return kept.pop()


@right("1.3")
def asks_and_sends(w, x):
    hidden = torch.mul(w, x)
    loss = hidden.square().sum()
    (gradient,) = torch.autograd.grad(loss, hidden, retain_graph=True)
    loss.backward()
    return gradient


@wrong("1.3", "The gradient of hidden has the shape")
def one_number(w, x):
    return with_a_hook(w, x).sum()


@wrong("1.3", "The gradient should be that of the script's loss")
def absolute_values(w, x):
    return with_a_hook(w, x).abs()


# --- 1.4


@right("1.4")
def one_by_one(z, named):
    pairs = []
    for name, t in named.items():
        (g,) = torch.autograd.grad(z, t, retain_graph=True, allow_unused=True)
        if g is not None:
            pairs.append((g.norm(), name))
    return [name for _, name in sorted(pairs, key=lambda pair: -pair[0])]


@right("1.4")
def by_numpy(z, named):
    grads = torch.autograd.grad(z, list(named.values()), allow_unused=True)
    lengths = [(np.linalg.norm(g.numpy().ravel()), n) for g, n in zip(grads, named, strict=True) if g is not None]
    return (n for _, n in sorted(lengths, reverse=True))


@wrong("1.4", None, "`.grad`")
def clears_old_gradients(z, named):
    for t in named.values():
        t.grad = None
    return one_by_one(z, named)


@wrong("1.4", "You never remove the hook")
def leaves_a_hook(z, named):
    for t in named.values():
        t.register_hook(lambda grad: None)
    return one_by_one(z, named)


# --- 1.5


@right("1.5")
def by_recursion(z, times):
    if times > 1:
        torch.autograd.backward(z, retain_graph=True)
        return by_recursion(z, times - 1)
    return torch.autograd.backward(z)


@right("1.5")
def returns_the_result(z, times):
    for number in range(1, times + 1):
        z.backward(torch.ones_like(z), number != times)
    return z


@wrong("1.5", "The last pass keeps the graph as well")
def never_frees_after_a_single_pass(z, times):
    for number in range(times):
        z.backward(retain_graph=times == 1 or number < times - 1)


@wrong("1.5", "Each pass should add the same gradient")
def half_of_it_each_time(z, times):
    for number in range(times):
        z.backward(torch.full_like(z, 0.5), retain_graph=number < times - 1)


# --- 1.6


@right("1.6")
def by_an_optimizer(start, lr, steps):
    x = nn.Parameter(start.detach().clone())
    optimizer = torch.optim.SGD([x], lr=lr)
    path = torch.empty(steps + 1, 2, dtype=start.dtype)
    path[0] = x.detach()
    for number in range(steps):
        optimizer.zero_grad()
        (x + 2).square().sum().div(2).backward()
        optimizer.step()
        path[number + 1] = x.detach()
    return path


@right("1.6")
def in_one_formula(start, lr, steps):
    powers = (1 - lr) ** torch.arange(steps + 1, dtype=start.dtype)
    return powers[:, None] * (start.detach() + 2) - 2


@wrong("1.6", "Each step subtracts lr times the gradient")
def a_step_size_of_its_own(start, lr, steps):
    return in_one_formula(start, 0.1, steps)


@wrong("1.6", "The path has a row for the start")
def stops_when_it_is_there(start, lr, steps):
    path = in_one_formula(start, lr, steps)
    return torch.stack([x for n, x in enumerate(path) if n == 0 or not torch.equal(x, path[n - 1])])


test_right, test_wrong = answers.tests()
