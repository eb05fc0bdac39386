"""Unusual right answers to lesson 2's exercises, and wrong ones that no misconception covers."""

import contextlib
import functools
import math
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

from solutions.misconceptions import lesson02 as parts
from tests.course.exercises.answers import Answers

answers = Answers("2.1", "2.2", "2.3", "2.4", "2.5", "2.6")
right, wrong = answers.right, answers.wrong
from_earlier_calls, SHARED = [], {}


# --- 2.1


@right("2.1")
def by_multi_grad_hook(y, losses):
    gradients = []
    with torch.autograd.graph.register_multi_grad_hook((y,), lambda grads: gradients.append(grads[0])):
        for loss in losses:
            torch.autograd.backward(loss)
    return gradients


@right("2.1")
def a_hook_for_each_that_hands_it_on(y, losses):
    gradients = {}
    for loss in losses:
        with y.register_hook(lambda grad: gradients.setdefault(len(gradients), grad)):
            loss.backward(retain_graph=True)
    return tuple(gradients.values())


@wrong("2.1", "Your list still holds gradients of an earlier call")
def a_global_list_that_is_cleared(y, losses):
    from_earlier_calls[:] = parts.recording()(y, losses)
    return from_earlier_calls


@wrong("2.1", "Not every loss was sent back")
def the_last_loss_alone(y, losses):
    return parts.recording()(y, losses[-1:])


@wrong("2.1", "Your list still holds gradients of an earlier call")
def a_list_as_a_default_argument(y, losses, seen=[]):  # noqa: B006
    with y.register_hook(seen.append):
        for loss in losses:
            loss.backward()
    return seen


@wrong("2.1", None, "the order in which they were sent back")
def backwards_and_sorted_again(y, losses):
    return parts.recording()(y, losses[::-1])[::-1]


# --- 2.2


@right("2.2")
def by_partial(tensor, factor):
    return tensor.register_hook(functools.partial(torch.mul, torch.tensor(factor)))


@right("2.2")
def adds_nothing(tensor, factor):
    return tensor.register_hook(lambda grad: torch.zeros_like(grad).add(grad, alpha=factor))


@wrong("2.2", "Your hook writes into the gradient in place")
def writes_and_takes_back(tensor, factor):
    def hook(grad):
        scaled = grad.mul_(factor).clone()
        grad.div_(factor)
        return scaled

    return tensor.register_hook(hook)


@wrong("2.2", "A handle's remove() takes off your own hook")
def takes_the_place_of_the_others(tensor, factor):
    if tensor._backward_hooks:
        tensor._backward_hooks.clear()
    return tensor.register_hook(lambda grad: grad * factor)


# --- 2.3


@right("2.3")
def twice_the_half(tensor, losses):
    keep_half = parts.recording(lambda grads, grad: grads.append(grad * 0.5), parts.half)
    return [half * 2 for half in keep_half(tensor, losses)]


@right("2.3")
def a_hook_for_each(tensor, losses):
    keep_all = parts.recording(lambda grads, grad: grads.append(grad.clone()), lambda grad: grad - grad / 2)
    return [grad for loss in losses for grad in keep_all(tensor, [loss])]


@wrong("2.3", None, "a.grad")
def half_of_the_loss(tensor, losses):
    return parts.recording(lambda grads, grad: grads.append(2 * grad))(tensor, [loss / 2 for loss in losses])


wrong("2.3", None, "large numbers")(
    parts.recording(lambda grads, grad: grads.append(grad.float()), parts.half)  # in single precision
)


# --- 2.4


@right("2.4")
def by_a_factory(named, z):
    seen = dict.fromkeys(named)

    def keep(name):
        def hook(grad):
            seen[name] = grad

        return hook

    with ExitStack() as handles:
        for name, tensor in named.items():
            with contextlib.suppress(RuntimeError):
                handles.enter_context(tensor.register_hook(keep(name)))
        z.backward()
    return {name: grad for name, grad in seen.items() if grad is not None}


@right("2.4")
def by_objects(named, z):
    class Keeper:
        def __init__(self, tensor):
            self.grad = None
            self.handle = tensor.register_hook(self)

        def __call__(self, grad):
            self.grad = grad.detach()

    keepers = {name: Keeper(tensor) for name, tensor in sorted(named.items()) if tensor.requires_grad}
    torch.autograd.backward([z], torch.ones_like(z), retain_graph=True)
    for keeper in keepers.values():
        keeper.handle.remove()
    return {name: keeper.grad for name, keeper in keepers.items() if keeper.grad is not None}


for start in (lambda named: SHARED, lambda named: SHARED.clear() or SHARED):
    wrong("2.4", "Your dictionary is shared by all calls")(parts.by_name(start=start))


# --- 2.5


@right("2.5")
class ByRoots(parts.Norms):
    def keep(self, grad):
        self.norms += [math.sqrt((grad.double() ** 2).sum())]
        return grad


@right("2.5")
class AGenerator(parts.Norms):
    @contextmanager
    def block(self):
        with self.tensor.register_hook(self.keep):
            yield self

    def __enter__(self):
        self.running = self.block()
        return self.running.__enter__()

    def __exit__(self, *exception):
        return self.running.__exit__(*exception)


@wrong("2.5", "All your objects share one list")
class OneListForAll(parts.Norms):
    norms = []  # noqa: RUF012

    def __init__(self, tensor):
        self.tensor = tensor


@wrong("2.5", None, "a second block on the same object")
class OneBlockOnly(parts.Norms):
    done = False

    def __enter__(self):
        return self if self.done else super().__enter__()

    def __exit__(self, *exception):
        self.done = True
        super().__exit__()


# --- 2.6


@right("2.6")
def by_finally(model, limit, train):
    handles = []
    try:
        for parameter in filter(lambda p: p.requires_grad, model.parameters()):
            handles.append(parameter.register_hook(functools.partial(parts.clipped, limit=limit)))
        result = train()
    finally:
        for handle in handles:
            handle.remove()
    return result


def by_normalize(grad, limit):
    direction = nn.functional.normalize(grad.flatten(), dim=0).view_as(grad)
    return torch.where(grad.norm() > limit, limit * direction, grad)


right("2.6")(parts.clipping(by_normalize))


@wrong("2.6", "You set `requires_grad=True` on a frozen parameter")
def thaws_them_for_a_moment(model, limit, train):
    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
    for parameter in frozen:
        parameter.requires_grad_()
    try:
        return parts.clipping()(model, limit, train)
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)


test_right, test_wrong = answers.tests()
