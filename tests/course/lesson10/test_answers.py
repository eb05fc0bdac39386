"""Unusual right answers to lesson 10's exercises, and wrong ones that no misconception covers.

A wrong answer comes with the beginning of the one reason that is true, or None where the check can know none.
"""

import contextlib
import functools
import itertools
import math

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint as torchs

from solutions.misconceptions import lesson10 as parts
from tests.course.exercises.answers import Answers

answers = Answers("10.1", "10.2", "10.3", "10.4", "10.5")
right, wrong = answers.right, answers.wrong


# --- 10.1


@right("10.1")
def recursion_and_an_exit_stack(loss):
    seen, names = {}, []

    def visit(node, stack):
        if node is None or node in seen:
            return
        seen[node] = stack.enter_context(node.register_hook(functools.partial(look, node)))
        for following, _ in node.next_functions:
            visit(following, stack)

    def look(node, made, given):
        if not names and any((grad != grad).any() for grad in made if grad is not None):
            names.append(node.name())

    with contextlib.ExitStack() as stack:
        visit(loss.grad_fn, stack)
        torch.autograd.backward(loss)
    return next(iter(names), None)


# --- 10.2


class Reentrant(torch.autograd.Function):
    """10.2 without pack and unpack: the backward runs the function, and a backward of its own."""

    @staticmethod
    def forward(ctx, function, x, nothing):
        ctx.function, ctx.x = function, x
        return function(x)

    @staticmethod
    def backward(ctx, grad):
        x = ctx.x.detach().requires_grad_(ctx.x.requires_grad)
        with torch.enable_grad():
            ctx.function(x).backward(grad)
        return None, x.grad, None


right("10.2")(lambda function, x: Reentrant.apply(function, x, torch.empty(0, requires_grad=True)))
right("10.2")(lambda function, x: torchs(function, x, use_reentrant=False))


@wrong("10.2")
def keeps_what_an_earlier_pass_left_over(function, x):
    values, numbers = {}, itertools.count()

    def unpack(number):
        if number not in values:
            keep = saved_tensors_hooks(lambda t: values.update({len(values): t.detach()}), print)
            with torch.enable_grad(), keep:
                function(x.detach().requires_grad_(x.requires_grad))
        return values.pop(number)

    with saved_tensors_hooks(lambda tensor: next(numbers), unpack):
        return function(x)


# --- 10.3


@right("10.3")
def an_optimizer_for_each(parameters, lr):
    def register(p):
        optimizer = torch.optim.SGD([p], lr=lr)

        def hook(p):
            optimizer.step()
            optimizer.zero_grad()

        return p.register_post_accumulate_grad_hook(hook)

    return tuple(register(p) for p in parameters if p.requires_grad)


@right("10.3")
def in_the_loop_with_its_own_p(parameters, lr):
    handles = []
    for p in parameters:
        if p.requires_grad:

            def step(_, p=p):
                with torch.no_grad():
                    p.copy_(p - lr * p.grad)
                p.grad = None

            handles += [p.register_post_accumulate_grad_hook(step)]
    return handles


# --- 10.4


right("10.4")(parts.watching(lambda grads: torch.nn.utils.get_total_norm(grads).item()))
right("10.4")(
    parts.watching(
        lambda grads: torch.cat([grad.flatten() for grad in grads]).norm().numpy()[()], number=lambda one: one
    )
)
wrong("10.4")(parts.watching(lambda grads: 1.5 * math.hypot(*(grad.norm() for grad in grads))))


# --- 10.5


@right("10.5")
def signed_bytes():
    def pack(tensor):
        if not tensor.dtype.is_floating_point:
            return lambda: tensor
        low, high = tensor.detach().aminmax()
        step = max((high - low).item() / 255, 1e-30)
        kept, dtype = ((tensor.detach() - low) / step - 128).round().clamp(-128, 127).to(torch.int8), tensor.dtype
        return lambda: (kept.to(dtype) + 128) * step + low

    return saved_tensors_hooks(pack, lambda kept: kept())


@right("10.5")
@contextlib.contextmanager
def a_manager_of_its_own():
    def pack(tensor):
        if tensor.is_floating_point():
            low, step = tensor.min().item(), (tensor.max() - tensor.min()).item() / 255 or 1.0
            return (((tensor.detach() - low) / step).add(0.5).floor().byte(), low, step, tensor.dtype)
        return (tensor.detach(), None, None, None)

    def unpack(kept):
        values, low, step, dtype = kept
        return values if dtype is None else values.to(dtype).mul_(step).add_(low)

    with saved_tensors_hooks(pack, unpack):
        yield


@wrong("10.5", "If all numbers are equal")
def takes_no_range_for_zero():
    def pack(tensor):
        if not tensor.is_floating_point():
            return lambda: tensor
        low, high = tensor.detach().aminmax()
        if low == high:
            return functools.partial(torch.zeros, tensor.shape, dtype=tensor.dtype)
        step, dtype = (high - low) / 255, tensor.dtype
        kept = ((tensor.detach() - low) / step).round().byte()
        return lambda: (kept * step + low).to(dtype)

    return saved_tensors_hooks(pack, lambda kept: kept())


test_right, test_wrong = answers.tests()
