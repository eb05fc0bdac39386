"""Unusual right answers to lesson 2's exercises, and wrong ones: none is misjudged, and no reason is untrue."""

import contextlib
import functools
import math
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module

from tests.course.exercises.answers import Answers

answers = Answers("2.1", "2.2", "2.3", "2.4", "2.5", "2.6")
right, wrong = answers.right, answers.wrong
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
]


# --- 2.1


@right("2.1")
def asks_y_alone(y, losses):
    gradients = []
    for loss in losses:
        y.grad = None
        loss.backward(inputs=[y])
        gradients.append(y.grad)
    y.grad = None
    return gradients


@right("2.1")
def one_hook_for_each_loss(y, losses):
    gradients = []
    for loss in losses:
        handle = y.register_hook(gradients.append)
        try:
            loss.backward()
        finally:
            handle.remove()
    return gradients


@right("2.1")
def a_hook_that_removes_itself(y, losses):
    def send(loss):
        kept = []

        def hook(grad):
            kept.append(grad.clone())
            handle.remove()

        handle = y.register_hook(hook)
        loss.backward()
        return kept[0]

    return [send(loss) for loss in losses]


@right("2.1")
def by_multi_grad_hook(y, losses):
    gradients = []
    with torch.autograd.graph.register_multi_grad_hook((y,), lambda grads: gradients.append(grads[0])):
        for loss in losses:
            torch.autograd.backward(loss)
    return gradients


@right("2.1")
def by_a_hook_that_hands_it_on(y, losses):
    gradients = []

    def keep(grad):
        gradients.append(grad.detach().clone())
        return grad

    handle = y.register_hook(keep)
    try:
        [loss.backward() for loss in losses]
    finally:
        handle.remove()
    return list(gradients)


@right("2.1")
def keeps_the_graphs(y, losses):
    gradients = {}
    with y.register_hook(lambda grad: gradients.update({len(gradients): grad})):
        for loss in losses:
            loss.backward(retain_graph=True)
    return [*gradients.values()]


@wrong("2.1", "not removed")
def leaves_the_hook(y, losses):
    gradients = []
    y.register_hook(gradients.append)
    for loss in losses:
        loss.backward()
    return gradients


@wrong("2.1", "hooks pile up")
def a_hook_more_for_each_loss(y, losses):
    gradients, handles = [], []
    for loss in losses:
        handles.append(y.register_hook(gradients.append))
        loss.backward()
    for handle in handles:
        handle.remove()
    return gradients


@wrong("2.1", "reads .grad, where passes add up; what a hook gets is the gr")
def retained_and_added_up(y, losses):
    gradients = []
    y.retain_grad()
    for loss in losses:
        loss.backward()
        gradients.append(y.grad.clone())
    return gradients


@wrong("2.1", "reads .grad, where passes add up; what a hook gets is the gr")
def one_tensor_again_and_again(y, losses):
    gradients = []
    y.retain_grad()
    for loss in losses:
        loss.backward()
        gradients.append(y.grad)
    return gradients


@wrong("2.1", says="these are not the gradients of y")
def backwards(y, losses):
    gradients = []
    with y.register_hook(gradients.append):
        for loss in reversed(losses):
            loss.backward()
    return gradients


@wrong("2.1", says="the losses were not sent back in order")
def backwards_and_sorted_again(y, losses):
    gradients = []
    with y.register_hook(gradients.append):
        for loss in reversed(losses):
            loss.backward()
    return gradients[::-1]


@wrong("2.1", "backward() did not run, or not down to the leaves")
def only_asks(y, losses):
    return [torch.autograd.grad(loss, y)[0] for loss in losses]


@wrong("2.1", "a list made anew for each loss")
def a_list_made_anew_in_the_loop(y, losses):
    for loss in losses:
        gradients = []
        with y.register_hook(gradients.append):
            loss.backward()
    return gradients


@wrong("2.1", says="that is one tensor, not a list")
def stacks_what_arrived(y, losses):
    arrived = []
    with y.register_hook(arrived.append):
        for loss in losses:
            loss.backward()
    return torch.stack(arrived)


@wrong("2.1", says="only the last gradients are in your list")
def a_hook_for_the_last_loss_alone(y, losses):
    *early, last = losses
    for loss in early:
        loss.backward()
    arrived = []
    with y.register_hook(arrived.append):
        last.backward()
    return arrived


@wrong("2.1", says="1 gradient for 3 losses")
def only_the_first_loss(y, losses):
    gradients = []
    with y.register_hook(gradients.append):
        losses[0].backward()
    return gradients


@wrong("2.1", says="these are not the gradients of y")
def the_same_loss_again(y, losses):
    gradients = []
    with y.register_hook(gradients.append):
        for _ in losses:
            losses[0].backward(retain_graph=True)
    return gradients


@wrong("2.1", says="6 passes for 3 losses")
def each_loss_twice(y, losses):
    gradients = []
    for loss in losses:
        loss.backward(retain_graph=True)
        with y.register_hook(gradients.append):
            loss.backward()
    return gradients


@wrong("2.1", says="your code removed a hook that is not yours: a tensor hook on tensor")
def takes_everybody_away(y, losses):
    gradients = []
    y.register_hook(gradients.append)
    for loss in losses:
        loss.backward()
    y._backward_hooks.clear()
    return gradients


@wrong("2.1", "the hook changed the gradient")
def changes_what_passes(y, losses):
    gradients = []

    def hook(grad):
        gradients.append(grad)
        return torch.zeros_like(grad)

    with y.register_hook(hook):
        for loss in losses:
            loss.backward()
    return gradients


@wrong("2.1", "the hook never ran")
def registers_after_the_backward(y, losses):
    gradients = []
    for loss in losses:
        loss.backward()
        y.register_hook(gradients.append).remove()
    return gradients


@wrong("2.1", "forgotten return")
def forgets_to_return(y, losses):
    gradients = []
    with y.register_hook(gradients.append):
        for loss in losses:
            loss.backward()


@wrong("2.1", says="your list holds other things than tensors")
def numbers(y, losses):
    gradients = []
    with y.register_hook(lambda grad: gradients.append(grad.sum().item())):
        for loss in losses:
            loss.backward()
    return gradients


@wrong("2.1", says="these are not the gradients of y")
def without_zeros(y, losses):
    gradients = []
    with y.register_hook(lambda grad: gradients.append(grad) if grad.any() else None):
        for loss in losses:
            loss.backward()
    return gradients


@wrong("2.1", says="these are not the gradients of y")
def without_what_is_not_finite(y, losses):
    gradients = []
    with y.register_hook(lambda grad: gradients.append(torch.nan_to_num(grad))):
        for loss in losses:
            loss.backward()
    return gradients


@wrong("2.1", says="3 gradients for 5 losses")
def three_at_most(y, losses):
    gradients = []
    with y.register_hook(gradients.append):
        for loss in losses[:3]:
            loss.backward()
    return gradients


# --- 2.2


@right("2.2")
def by_partial(tensor, factor):
    return tensor.register_hook(functools.partial(torch.mul, torch.tensor(factor)))


@wrong("2.2", says="after handle.remove() another hook of yours is still there")
def looks_as_well(tensor, factor):
    tensor.register_hook(lambda grad: None)
    return tensor.register_hook(lambda grad: factor * grad)


@right("2.2")
def into_a_copy(tensor, factor):
    def hook(grad):
        copy = grad.clone()
        copy *= factor
        return copy

    return tensor.register_hook(hook)


@right("2.2")
def by_a_method(tensor, factor):
    return tensor.register_hook(factor.__mul__ if False else SimpleNamespace(f=lambda grad: torch.mul(grad, factor)).f)


@right("2.2")
def a_class_with_a_call(tensor, factor):
    class Scale:
        def __call__(self, grad):
            return torch.lerp(torch.zeros_like(grad), grad, factor) if 0 < factor < 1 else grad * factor

    return tensor.register_hook(Scale())


@right("2.2")
def by_the_class(tensor, factor):
    return torch.Tensor.register_hook(tensor, lambda grad: grad - (1 - factor) * grad)


@right("2.2")
def adds_nothing(tensor, factor):
    return tensor.register_hook(lambda grad: torch.zeros_like(grad).add(grad, alpha=factor))


@wrong("2.2", "in place")
def writes_into_it(tensor, factor):
    return tensor.register_hook(lambda grad: grad.mul_(factor))


@wrong("2.2", "in place")
def writes_and_takes_back(tensor, factor):
    def hook(grad):
        scaled = grad.mul_(factor).clone()
        grad.div_(factor)
        return scaled

    return tensor.register_hook(hook)


@wrong("2.2", "forgotten return")
def forgets_to_return_the_gradient(tensor, factor):
    def hook(grad):
        grad = grad * factor

    return tensor.register_hook(hook)


@wrong("2.2", "forgotten return of the handle")
def forgets_the_handle(tensor, factor):
    tensor.register_hook(lambda grad: grad * factor)


@wrong("2.2", "a hook that removes itself")
def only_once(tensor, factor):
    def hook(grad):
        handle.remove()
        return grad * factor

    handle = tensor.register_hook(hook)
    return handle


@wrong("2.2", says="the gradient is not scaled by the factor")
def divides(tensor, factor):
    return tensor.register_hook(lambda grad: grad / factor if factor else grad * 0)


@wrong("2.2", says="the gradient is not scaled by the factor")
def adds(tensor, factor):
    return tensor.register_hook(lambda grad: grad + factor)


@wrong("2.2", says="the gradient is not scaled by the factor")
def to_that_length(tensor, factor):
    return tensor.register_hook(lambda grad: grad * factor / grad.norm())


@wrong("2.2", says="the gradient is not scaled by the factor")
def never_turns_it_around(tensor, factor):
    return tensor.register_hook(lambda grad: grad * abs(factor))


@wrong("2.2", says="the gradient is as it would be without the hook")
def zero_is_no_factor(tensor, factor):
    return tensor.register_hook(lambda grad: grad * factor if factor else None)


@wrong("2.2", says="the gradient is not scaled by the factor")
def two_of_them(tensor, factor):
    tensor.register_hook(lambda grad: grad * factor)
    return tensor.register_hook(lambda grad: grad * factor)


@wrong("2.2", "a hook that remembers something from pass to pass")
def more_and_more(tensor, factor):
    state = {"factor": 1.0}

    def hook(grad):
        state["factor"] *= factor
        return grad * state["factor"]

    return tensor.register_hook(hook)


@wrong("2.2", "in-place change")
def scales_the_tensor(tensor, factor):
    with torch.no_grad():
        tensor.mul_(factor)
    return tensor.register_hook(lambda grad: None)


@wrong("2.2", "a hook on another tensor", "expected  factor 3: [24, 4.5]")
def a_hook_on_a_new_tensor(tensor, factor):
    return (tensor * 1).register_hook(lambda grad: grad * factor)


@wrong("2.2", says="your code removed a hook that is not yours: a tensor hook on tensor")
def takes_the_place_of_the_others(tensor, factor):
    if tensor._backward_hooks:
        tensor._backward_hooks.clear()
    return tensor.register_hook(lambda grad: grad * factor)


@wrong("2.2", says="the gradient is not scaled by the factor")
def first_element_alone(tensor, factor):
    def hook(grad):
        grad = grad.clone()
        grad.view(-1)[0] *= factor
        return grad

    return tensor.register_hook(hook)


@wrong("2.2", says="a gradient with very large numbers, an infinity and a NaN is not")
def no_nans(tensor, factor):
    return tensor.register_hook(lambda grad: grad.nan_to_num() * factor)


@wrong("2.2", says="backward raised RuntimeError: hook '<lambda>' has changed the type of")
def in_single_precision(tensor, factor):
    return tensor.register_hook(lambda grad: grad.float() * factor)


@wrong("2.2", says="after_accumulation raised RuntimeError: post accumulate grad hooks")
def after_accumulation(tensor, factor):
    def hook(leaf):
        leaf.grad = leaf.grad * factor

    return tensor.register_post_accumulate_grad_hook(hook)


@wrong("2.2", says="a gradient with very large numbers, an infinity and a NaN is not")
def the_first_gradient_for_ever(tensor, factor):
    kept = []

    def hook(grad):
        kept.append(grad * factor)
        return kept[0]

    return tensor.register_hook(hook)


@wrong("2.2", says="a gradient with very large numbers, an infinity and a NaN is not")
def bounded(tensor, factor):
    return tensor.register_hook(lambda grad: (grad * factor).clamp(-100, 100))


# --- 2.3


@right("2.3")
def keeps_a_copy(tensor, losses):
    arrived = []

    def hook(grad):
        arrived.append(grad.clone())
        return grad.div(2)

    for loss in losses:
        handle = tensor.register_hook(hook)
        loss.backward()
        handle.remove()
    return arrived


@right("2.3")
def two_hooks(tensor, losses):
    arrived = []
    with tensor.register_hook(arrived.append), tensor.register_hook(lambda grad: grad / 2):
        for loss in losses:
            loss.backward()
    return arrived


@right("2.3")
def twice_the_half(tensor, losses):
    halves = []

    def hook(grad):
        halves.append(grad * 0.5)
        return halves[-1]

    handle = tensor.register_hook(hook)
    for loss in losses:
        loss.backward()
    handle.remove()
    return [half * 2 for half in halves]


@right("2.3")
def by_append_or(tensor, losses):
    arrived = []
    handle = tensor.register_hook(lambda grad: arrived.append(grad) or torch.mul(grad, 0.5))
    try:
        torch.autograd.backward(losses[0]) if losses else None
        for loss in losses[1:]:
            loss.backward()
    finally:
        handle.remove()
    return arrived


@right("2.3")
def a_class_of_its_own(tensor, losses):
    class Half:
        def __init__(self):
            self.arrived = []

        def hook(self, grad):
            self.arrived += [grad]
            return grad.detach().clone().mul_(0.5)

    half = Half()
    with tensor.register_hook(half.hook):
        for loss in losses:
            loss.backward()
    return half.arrived


@right("2.3")
def by_an_exit_stack(tensor, losses):
    arrived = []
    with ExitStack() as stack:
        stack.callback(tensor.register_hook(lambda grad: (arrived.append(grad), grad - grad / 2)[1]).remove)
        list(map(torch.Tensor.backward, losses))
    return arrived


@wrong("2.3", "in place")
def copies_and_writes(tensor, losses):
    arrived = []

    def hook(grad):
        arrived.append(grad.clone())
        grad *= 0.5

    with tensor.register_hook(hook):
        for loss in losses:
            loss.backward()
    return arrived


@wrong("2.3", "hooks pile up")
def as_it_was(tensor, losses):
    arrived = []

    def hook(grad):
        arrived.append(grad)
        grad *= 0.5

    for loss in losses:
        tensor.register_hook(hook)
        loss.backward()
    return arrived


@wrong("2.3", "forgotten return")
def keeps_the_list_to_itself(tensor, losses):
    arrived = []
    with tensor.register_hook(lambda grad: arrived.append(grad) or grad / 2):
        for loss in losses:
            loss.backward()


@wrong("2.3", "halved before it was kept")
def what_went_on(tensor, losses):
    passed = []

    def hook(grad):
        passed.append(grad * 0.5)
        return passed[-1]

    with tensor.register_hook(hook):
        for loss in losses:
            loss.backward()
    return passed


@wrong("2.3", "halved before it was kept")
def halves_before_it_looks(tensor, losses):
    arrived = []
    with tensor.register_hook(lambda grad: grad / 2), tensor.register_hook(arrived.append):
        for loss in losses:
            loss.backward()
    return arrived


@wrong("2.3", "the whole gradient passed")
def lets_all_of_it_pass(tensor, losses):
    arrived = []
    with tensor.register_hook(arrived.append):
        for loss in losses:
            loss.backward()
    return arrived


@wrong("2.3", says="what passes the tensor is not half of what arrived")
def a_quarter(tensor, losses):
    arrived = []

    def hook(grad):
        arrived.append(grad)
        return grad / 4

    with tensor.register_hook(hook):
        for loss in losses:
            loss.backward()
    return arrived


@wrong("2.3", says="what passes the tensor is not half of what arrived")
def half_of_the_loss(tensor, losses):
    arrived = []
    with tensor.register_hook(lambda grad: arrived.append(2 * grad)):
        for loss in losses:
            (loss / 2).backward()
    return arrived


@wrong("2.3", says="these are not the gradients that arrived")
def less_and_less(tensor, losses):
    arrived, handles = [], []
    for loss in losses:
        handles.append(tensor.register_hook(lambda grad: grad * 0.5))
        with tensor.register_hook(arrived.append):
            loss.backward()
    for handle in handles:
        handle.remove()
    return arrived


@wrong("2.3", "not removed")
def hooks_stay(tensor, losses):
    arrived = []

    def hook(grad):
        arrived.append(grad)
        return 0.5 * grad

    tensor.register_hook(hook)
    for loss in losses:
        loss.backward()
    return arrived


@wrong("2.3", "not removed")
def the_last_hook_stays(tensor, losses):
    arrived = []
    handle = None
    for loss in losses:
        if handle:
            handle.remove()
        handle = tensor.register_hook(lambda grad: arrived.append(grad) or grad / 2)
        loss.backward()
    return arrived


@wrong("2.3", says="your code removed a hook that is not yours: a tensor hook on tensor")
def all_the_hooks_go(tensor, losses):
    arrived = []
    tensor.register_hook(lambda grad: arrived.append(grad) or grad / 2)
    for loss in losses:
        loss.backward()
    tensor._backward_hooks.clear()
    return arrived


@wrong("2.3", says="what passes the tensor is not half of what arrived")
def only_the_first_time(tensor, losses):
    arrived = []
    halved = []

    def hook(grad):
        arrived.append(grad)
        if not halved:
            halved.append(True)
            return grad / 2

    with tensor.register_hook(hook):
        for loss in losses:
            loss.backward()
    return arrived


@wrong("2.3", says="these are not the gradients that arrived")
def a_list_of_one(tensor, losses):
    def hook(grad):
        arrived.append(grad)
        return grad / 2

    for loss in losses:
        arrived = []
        with tensor.register_hook(hook):
            loss.backward()
    return arrived


@wrong("2.3", says="these are not the gradients that arrived")
def in_reverse(tensor, losses):
    arrived = []
    with tensor.register_hook(lambda grad: arrived.append(grad) or grad / 2):
        for loss in losses:
            loss.backward()
    return arrived[::-1]


@wrong("2.3", says="what passes the tensor is not half of what arrived")
def half_in_whole_numbers(tensor, losses):
    arrived = []
    with tensor.register_hook(lambda grad: arrived.append(grad) or grad // 2):
        for loss in losses:
            loss.backward()
    return arrived


@wrong("2.3", says="what passes the tensor is not half of what arrived")
def only_the_positive_half(tensor, losses):
    arrived = []
    with tensor.register_hook(lambda grad: arrived.append(grad) or torch.where(grad > 0, grad / 2, grad)):
        for loss in losses:
            loss.backward()
    return arrived


@wrong("2.3", says="what passes the tensor is not half of what arrived")
def each_twice(tensor, losses):
    arrived = []
    with tensor.register_hook(lambda grad: arrived.append(grad) or grad / 4):
        for loss in losses:
            loss.backward(retain_graph=True)
            loss.backward()
    return arrived[::2]


@wrong("2.3", says="nothing arrived at x, behind the tensor")
def asks_and_does_not_send(tensor, losses):
    return [torch.autograd.grad(loss, tensor)[0] for loss in losses]


@wrong("2.3", "swallowed")
def goes_on_when_a_loss_raises(tensor, losses):
    arrived = []
    with tensor.register_hook(lambda grad: arrived.append(grad) or grad / 2), contextlib.suppress(Exception):
        for loss in losses:
            loss.backward()
    return arrived


@wrong("2.3", "cleared .grad")
def clears_grad_first(tensor, losses):
    arrived = []
    tensor.grad = None
    with tensor.register_hook(lambda grad: arrived.append(grad) or grad / 2):
        for loss in losses:
            loss.backward()
    return arrived


@wrong("2.3", says="what was added to the .grad of a leaf")
def passes_no_large_numbers(tensor, losses):
    arrived = []
    with tensor.register_hook(lambda grad: arrived.append(grad) or (grad / 2).clamp(-1e3, 1e3)):
        for loss in losses:
            loss.backward()
    return arrived


@wrong("2.3", says="not the gradients that arrived at a leaf")
def keeps_them_in_single_precision(tensor, losses):
    arrived = []
    with tensor.register_hook(lambda grad: arrived.append(grad.float()) or grad / 2):
        for loss in losses:
            loss.backward()
    return arrived


@wrong("2.3", says="not a list of gradients, but a Tensor")
def stacks_all_that_arrived(tensor, losses):
    arrived = []
    with tensor.register_hook(lambda grad: arrived.append(grad) or grad / 2):
        for loss in losses:
            loss.backward()
    return torch.stack(arrived)


@wrong("2.3", "unbound method: taken from the class it has no self; take it from an object")
def a_method_of_a_class_inside(tensor, losses):
    class Halver:
        def hook(self, grad):
            return grad / 2

    with tensor.register_hook(Halver.hook):
        for loss in losses:
            loss.backward()
    return []


# --- 2.4


@right("2.4")
def by_one_hook_each_with_a_queue(named, z):
    seen, handles = {}, []
    for pair in named.items():
        if pair[1].requires_grad:
            handles.append(
                pair[1].register_hook(functools.partial(lambda pair, grad: seen.update({pair[0]: +grad}), pair))
            )
    z.backward()
    any(handle.remove() for handle in handles)
    return seen


@right("2.4")
def by_a_default(named, z):
    seen = {}
    with ExitStack() as stack:
        for name, t in named.items():
            if t.requires_grad:

                def hook(grad, name=name):
                    seen[name] = grad.clone()

                stack.enter_context(t.register_hook(hook))
        z.backward()
    return seen


@right("2.4")
def by_a_factory(named, z):
    seen = dict.fromkeys(named)

    def keep(name):
        def hook(grad):
            seen[name] = grad

        return hook

    handles = []
    for name, t in named.items():
        with contextlib.suppress(RuntimeError):
            handles.append(t.register_hook(keep(name)))
    try:
        z.backward()
    finally:
        while handles:
            handles.pop().remove()
    return {name: grad for name, grad in seen.items() if grad is not None}


@right("2.4")
def by_objects(named, z):
    class Keeper:
        def __init__(self, name, tensor):
            self.name, self.grad = name, None
            self.handle = tensor.register_hook(self)

        def __call__(self, grad):
            self.grad = grad.detach()
            self.handle.remove()

    keepers = [Keeper(*pair) for pair in named.items() if pair[1].requires_grad]
    torch.autograd.backward([z])
    for keeper in keepers:
        keeper.handle.remove()
    return {keeper.name: keeper.grad for keeper in keepers if keeper.grad is not None}


@right("2.4")
def in_the_order_of_the_names(named, z):
    seen = {}
    handles = [
        t.register_hook(lambda grad, n=n: seen.__setitem__(n, grad))
        for n, t in sorted(named.items())
        if t.requires_grad
    ]
    z.backward(torch.ones_like(z))
    [handle.remove() for handle in handles]
    return dict(sorted(seen.items()))


@right("2.4")
def keeps_the_graph(named, z):
    found = []
    with ExitStack() as stack:
        for name in filter(lambda name: named[name].requires_grad, named):
            stack.enter_context(named[name].register_hook(lambda grad, name=name: found.append((name, grad))))
        z.backward(retain_graph=True)
    return dict(found)


def collect(named, z, hook_of, keep=lambda name, t: t.requires_grad, send=torch.Tensor.backward):
    """Hooks for a pass, with one thing in it that can be wrong."""
    seen = {}
    with ExitStack() as stack:
        for name, t in named.items():
            if keep(name, t):
                stack.enter_context(t.register_hook(hook_of(seen, name)))
        send(z)
    return seen


def setting(seen, name):
    return functools.partial(seen.__setitem__, name)


@wrong("2.4", "late binding")
def late(named, z):
    seen = {}
    handles = []
    for name, t in named.items():
        if t.requires_grad:
            handles.append(t.register_hook(lambda grad: seen.__setitem__(name, grad)))  # noqa: B023
    z.backward()
    for handle in handles:
        handle.remove()
    return seen


@wrong("2.4", "reads .grad, which adds up; what a hook gets is the gradient")
def reads_grad(named, z):
    for t in named.values():
        if t.requires_grad and not t.is_leaf:
            t.retain_grad()
    z.backward()
    return {name: t.grad for name, t in named.items() if t.grad is not None}


@wrong("2.4", "cleared .grad")
def clears_and_reads_grad(named, z):
    for t in named.values():
        if t.requires_grad:
            t.retain_grad()
        t.grad = None
    z.backward()
    return {name: t.grad for name, t in named.items() if t.grad is not None}


@wrong("2.4", "one name for many handles")
def one_handle_is_removed(named, z):
    seen = {}
    for name, t in named.items():
        if t.requires_grad:
            handle = t.register_hook(setting(seen, name))
    z.backward()
    handle.remove()
    return seen


@wrong("2.4", "no gradient to hook")
def does_not_ask_who_requires_grad(named, z):
    return collect(named, z, setting, keep=lambda name, t: True)


@wrong("2.4", "None is not a gradient")
def none_for_the_others(named, z):
    return dict.fromkeys(named) | collect(named, z, setting)


@wrong("2.4", says="the names are ['again', 'data', 'hidden', 'out', 'still', 'unused',")
def zeros_for_the_others(named, z):
    return {name: torch.zeros_like(t) for name, t in named.items()} | collect(named, z, setting)


@wrong("2.4", says="the names are ['again', 'hidden', 'out', 'w', 'z']")
def without_gradients_of_zero(named, z):
    return {name: g for name, g in collect(named, z, setting).items() if g.any()}


@wrong("2.4", says="the names are ['still', 'w']")
def only_leaves(named, z):
    return collect(named, z, setting, keep=lambda name, t: t.requires_grad and t.is_leaf)


@wrong("2.4", says="the names are ['again', 'hidden', 'out', 'z']")
def only_results(named, z):
    return collect(named, z, setting, keep=lambda name, t: t.grad_fn is not None)


@wrong("2.4", says="the names are ['again', 'hidden', 'out', 'still', 'w']")
def without_z(named, z):
    return collect(named, z, setting, keep=lambda name, t: t.requires_grad and t is not z)


@wrong("2.4", says="the names are ['again', 'out', 'still', 'w', 'z']")
def one_name_for_each_tensor(named, z):
    once = {t: name for name, t in named.items()}
    return collect({name: t for t, name in once.items()}, z, setting)


@wrong("2.4", "z.backward() ran 2 times")
def two_passes(named, z):
    def send(z):
        z.backward(retain_graph=True)
        z.backward()

    return collect(named, z, setting, send=send)


@wrong("2.4", "z.backward() did not run")
def asks_only(named, z):
    wanted = {n: t for n, t in named.items() if t.requires_grad}
    grads = torch.autograd.grad(z, list(wanted.values()), allow_unused=True)
    return {n: g for n, g in zip(wanted, grads, strict=True) if g is not None}


@wrong("2.4", says="the gradient under 'w' is another one")
def sends_twice_the_gradient(named, z):
    return collect(named, z, setting, send=lambda z: z.backward(torch.full_like(z, 2.0)))


@wrong("2.4", says="the gradient under 'w' is another one")
def in_lists(named, z):
    def listing(seen, name):
        return lambda grad: seen.setdefault(name, []).append(grad)

    return collect(named, z, listing)


@wrong("2.4", says="the gradient under 'w' is another one")
def lengths(named, z):
    return collect(named, z, lambda seen, name: lambda grad: seen.__setitem__(name, grad.norm()))


@wrong("2.4", says="the gradient under 'w' is another one")
def lets_nothing_pass(named, z):
    def blocking(seen, name):
        def hook(grad):
            seen[name] = grad
            return grad * 0

        return hook

    return collect(named, z, blocking)


@wrong("2.4", says="your code removed a hook that is not yours: a tensor hook on tensor")
def sweeps_all_hooks_away(named, z):
    seen = {}
    for name, t in named.items():
        if t.requires_grad:
            t.register_hook(setting(seen, name))
    z.backward()
    for t in named.values():
        if t._backward_hooks:
            t._backward_hooks.clear()
    return seen


@wrong("2.4", says="the keys are not names")
def numbered(named, z):
    return dict(enumerate(collect(named, z, setting).values()))


@wrong("2.4", says="the gradient under 'w' is another one")
def turned_into_float(named, z):
    return collect(named, z, lambda seen, name: lambda grad: seen.__setitem__(name, grad.abs()))


@wrong("2.4", "cleared .grad")
def clears_the_old_gradients(named, z):
    for t in named.values():
        if t.is_leaf:
            t.grad = None
    return collect(named, z, setting)


@wrong("2.4", "cleared .grad")
def zeroes_the_old_gradients(named, z):
    for t in named.values():
        if t.is_leaf and t.grad is not None:
            t.grad.zero_()
    return collect(named, z, setting)


@wrong("2.4", says="that is not a dictionary")
def a_list_of_pairs(named, z):
    return list(collect(named, z, setting).items())


# --- 2.5


class Base:
    """What the card gives."""

    def __init__(self, tensor):
        self.tensor = tensor
        self.norms = []

    def keep(self, grad):
        self.norms.append(grad.norm().item())

    def __enter__(self):
        self.handle = self.tensor.register_hook(self.keep)
        return self

    def __exit__(self, *exception):
        self.handle.remove()


@right("2.5")
class WithAStack(Base):
    def __enter__(self):
        self.stack = ExitStack()
        self.stack.enter_context(self.tensor.register_hook(lambda grad: self.keep(grad)))
        return self

    def __exit__(self, kind, error, trace):
        return self.stack.__exit__(kind, error, trace)


@right("2.5")
class ByRoots(Base):
    def keep(self, grad):
        self.norms += [math.sqrt((grad.double() ** 2).sum())]


@right("2.5")
class TheHandleIsTheContext(Base):
    def __enter__(self):
        self.handle = self.tensor.register_hook(self.keep).__enter__()
        return self

    def __exit__(self, kind, error, trace):
        self.handle.__exit__(kind, error, trace)
        return False


@right("2.5")
class HandsTheGradientOn(Base):
    def keep(self, grad):
        self.norms.append(float(torch.linalg.vector_norm(grad)))
        return grad


@right("2.5")
class AGenerator:
    def __init__(self, tensor):
        self.tensor, self.norms = tensor, []

    def keep(self, grad):
        self.norms.append(grad.detach().flatten().norm(p=2).tolist())

    @contextmanager
    def block(self):
        handle = self.tensor.register_hook(self.keep)
        try:
            yield self
        finally:
            handle.remove()

    def __enter__(self):
        self.running = self.block()
        return self.running.__enter__()

    def __exit__(self, *exception):
        return self.running.__exit__(*exception)


@right("2.5")
class TheNormOfTheClone(Base):
    def keep(self, grad):
        self.norms.append(torch.norm(grad.clone()).item())

    def __exit__(self, *exception):
        handle, self.handle = self.handle, None
        handle.remove()
        return None


@wrong("2.5", says="your object has no list `norms`")
class KeepsATuple(Base):
    def __init__(self, tensor):
        super().__init__(tensor)
        self.norms = ()

    def keep(self, grad):
        self.norms += (grad.norm().item(),)


@wrong("2.5", "forgotten return in __enter__")
class ReturnsNothing(Base):
    def __enter__(self):
        self.handle = self.tensor.register_hook(self.keep)


@wrong("2.5", "registered in __init__")
class HookFromTheStart(Base):
    def __init__(self, tensor):
        super().__init__(tensor)
        self.handle = tensor.register_hook(self.keep)

    def __enter__(self):
        return self


@wrong("2.5", "not removed")
class NeverRemoves(Base):
    def __exit__(self, *exception):
        pass


@wrong("2.5", "cleared the tensor's hooks")
class ClearsEverything(Base):
    def __exit__(self, *exception):
        self.tensor._backward_hooks.clear()


@wrong("2.5", "removed on success only")
class StaysAfterAnError(Base):
    def __exit__(self, kind, error, trace):
        if kind is None:
            self.handle.remove()


@wrong("2.5", "not removed")
class LeavesOnlyAfterAnError(Base):
    def __exit__(self, kind, error, trace):
        if kind is not None:
            self.handle.remove()


@wrong("2.5", "swallowed")
class SwallowsErrors(Base):
    def __exit__(self, *exception):
        self.handle.remove()
        return True


@wrong("2.5", "tensors kept")
class KeepsTensors(Base):
    def keep(self, grad):
        self.norms.append(grad.norm())


@wrong("2.5", says="the norms are not Python floats")
class KeepsGradients(Base):
    def keep(self, grad):
        self.norms.append(grad)


@wrong("2.5", "not a tensor")
class ReturnsTheNorm(Base):
    def keep(self, grad):
        self.norms.append(grad.norm().item())
        return self.norms[-1]


@wrong("2.5", "the hook changed the gradient")
class Normalises(Base):
    def keep(self, grad):
        self.norms.append(grad.norm().item())
        return grad / grad.norm()


@wrong("2.5", "the norm is the root of the sum of squares")
class SquaredNorms(Base):
    def keep(self, grad):
        self.norms.append((grad**2).sum().item())


@wrong("2.5", says="these are not the norms of the gradients of the block")
class SumsOfAbsoluteValues(Base):
    def keep(self, grad):
        self.norms.append(grad.norm(p=1).item())


@wrong("2.5", says="these are not the norms of the gradients of the block")
class LargestElements(Base):
    def keep(self, grad):
        self.norms.append(grad.abs().max().item())


@wrong("2.5", says="these are not the norms of the gradients of the block")
class RootMeanSquares(Base):
    def keep(self, grad):
        self.norms.append((grad**2).mean().sqrt().item())


@wrong("2.5", says="these are not the norms of the gradients of the block")
class NormsOfTheTensor(Base):
    def keep(self, grad):
        self.norms.append(self.tensor.norm().item())


@wrong("2.5", says="these are not the norms of the gradients of the block")
class OnlyTheFirst(Base):
    def keep(self, grad):
        if not self.norms:
            self.norms.append(grad.norm().item())


@wrong("2.5", says="these are not the norms of the gradients of the block")
class OnlyTheLast(Base):
    def keep(self, grad):
        self.norms = [grad.norm().item()]


@wrong("2.5", says="these are not the norms of the gradients of the block")
class OncePerBlock(Base):
    def keep(self, grad):
        self.norms.append(grad.norm().item())
        self.handle.remove()


@wrong("2.5", "class attribute")
class OneListForAll(Base):
    shared = []  # noqa: RUF012

    def __init__(self, tensor):
        self.tensor = tensor
        self.norms = self.shared


@wrong("2.5", says="a second `with` block on the same object kept nothing")
class OneBlockOnly(Base):
    done = False

    def __enter__(self):
        if self.done:
            return self
        return super().__enter__()

    def __exit__(self, *exception):
        self.done = True
        super().__exit__()


@wrong("2.5", says="after a second `with` block on the same object, there are other norms")
class OneMoreHookForEachBlock(Base):
    def __init__(self, tensor):
        super().__init__(tensor)
        self.blocks = 0

    def __enter__(self):
        self.blocks += 1
        self.handles = [self.tensor.register_hook(self.keep) for _ in range(self.blocks)]
        return self

    def __exit__(self, *exception):
        for handle in self.handles:
            handle.remove()


@wrong("2.5", says="a gradient of zeros, and one with an infinity, have a norm as well")
class WithoutZeros(Base):
    def keep(self, grad):
        if grad.any():
            self.norms.append(grad.norm().item())


@wrong("2.5", says="these are not the norms of the gradients of the block")
class ReadsGrad(Base):
    def __enter__(self):
        self.tensor.retain_grad()
        return self

    def __exit__(self, *exception):
        self.norms.append(self.tensor.grad.norm().item())


@wrong("2.5", says="`with … as log` does not give your object")
class GivesTheList(Base):
    def __enter__(self):
        super().__enter__()
        return self.norms


@wrong("2.5", "the hook changed the gradient")
class WritesIntoTheGradient(Base):
    def keep(self, grad):
        self.norms.append(grad.mul_(1e-3).norm().item() * 1e3)


# --- 2.6


def clipped(grad, limit):
    norm = grad.norm()
    return grad * (limit / norm) if norm > limit else grad


@right("2.6")
def by_clamping_the_factor(model, limit, train):
    with ExitStack() as stack:
        for _, parameter in model.named_parameters():
            if parameter.requires_grad:
                stack.enter_context(
                    parameter.register_hook(lambda grad: grad * (limit / grad.norm().clamp(min=1e-12)).clamp(max=1))
                )
        return train()


@right("2.6")
def by_finally(model, limit, train):
    handles = []
    try:
        for parameter in filter(lambda p: p.requires_grad, model.parameters()):
            handles.append(parameter.register_hook(functools.partial(clipped, limit=limit)))
        result = train()
    finally:
        for handle in handles:
            handle.remove()
    return result


@right("2.6")
def by_renorm(model, limit, train):
    def hook(grad):
        return torch.renorm(grad.reshape(1, -1), 2, 0, limit).view_as(grad) if grad.norm() > limit else None

    with ExitStack() as stack:
        [stack.enter_context(p.register_hook(hook)) for p in model.parameters() if p.requires_grad]
        return train()


@right("2.6")
def by_a_copy(model, limit, train):
    def hook(grad):
        length = grad.pow(2).sum().sqrt().item()
        if length <= limit:
            return None
        return grad.clone().mul_(limit).div_(length)

    stack = ExitStack()
    try:
        for p in list(model.parameters()):
            if p.requires_grad:
                stack.callback(p.register_hook(hook).remove)
        return train()
    finally:
        stack.close()


@right("2.6")
def by_modules(model, limit, train):
    @contextmanager
    def clipping():
        handles = {
            parameter: parameter.register_hook(lambda grad: clipped(grad, limit))
            for module in model.modules()
            for parameter in module.parameters(recurse=False)
            if parameter.requires_grad
        }
        try:
            yield
        finally:
            [handle.remove() for handle in handles.values()]

    with clipping():
        return train()


@right("2.6")
def by_normalize(model, limit, train):
    def hook(grad):
        direction = nn.functional.normalize(grad.flatten(), dim=0).view_as(grad)
        return torch.where(grad.norm() > limit, limit * direction, grad)

    with ExitStack() as stack:
        for p in model.parameters():
            with contextlib.suppress(RuntimeError):
                stack.enter_context(p.register_hook(hook))
        return train()


def run_with(model, train, hook, parameters=None):
    """Hooks around the training, with one thing in it that can be wrong."""
    with ExitStack() as stack:
        for p in model.parameters() if parameters is None else parameters:
            if p.requires_grad:
                stack.enter_context(p.register_hook(hook))
        return train()


@right("2.6")
def a_minimum_of_one_and_infinity(model, limit, train):
    return run_with(model, train, lambda grad: grad * min(1.0, limit / grad.norm()))


@wrong("2.6", "by value instead of by norm")
def by_value(model, limit, train):
    return run_with(model, train, lambda grad: grad.clamp(-limit, limit))


@wrong("2.6", "always scaled")
def always_to_the_limit(model, limit, train):
    return run_with(model, train, lambda grad: grad * limit / grad.norm().clamp(min=1e-12))


@wrong("2.6", "0/0")
def not_a_number(model, limit, train):
    return run_with(model, train, lambda grad: grad / grad.norm() * torch.minimum(grad.norm(), torch.tensor(limit)))


@wrong("2.6", "no gradient to hook")
def the_frozen_ones_too(model, limit, train):
    with ExitStack() as stack:
        for p in model.parameters():
            stack.enter_context(p.register_hook(lambda grad: clipped(grad, limit)))
        return train()


@wrong("2.6", "thawed to be hooked")
def thaws_them(model, limit, train):
    for p in model.parameters():
        p.requires_grad_()
    return run_with(model, train, lambda grad: clipped(grad, limit))


@wrong("2.6", "thawed to be hooked")
def thaws_them_for_a_moment(model, limit, train):
    frozen = [p for p in model.parameters() if not p.requires_grad]
    for p in frozen:
        p.requires_grad_()
    try:
        return run_with(model, train, lambda grad: clipped(grad, limit))
    finally:
        for p in frozen:
            p.requires_grad_(False)


@wrong("2.6", "removed on success only")
def hooks_stay_after_an_error(model, limit, train):
    handles = [p.register_hook(lambda grad: clipped(grad, limit)) for p in model.parameters() if p.requires_grad]
    result = train()
    for handle in handles:
        handle.remove()
    return result


@wrong("2.6", "not removed")
def hooks_stay_without_an_error(model, limit, train):
    handles = [p.register_hook(lambda grad: clipped(grad, limit)) for p in model.parameters() if p.requires_grad]
    try:
        return train()
    except BaseException:
        for handle in handles:
            handle.remove()
        raise


@wrong("2.6", "not removed")
def the_last_hook_alone_goes(model, limit, train):
    for p in model.parameters():
        if p.requires_grad:
            handle = p.register_hook(lambda grad: clipped(grad, limit))
    try:
        return train()
    finally:
        handle.remove()


@wrong("2.6", "forgotten return")
def forgets_what_train_returns(model, limit, train):
    run_with(model, train, lambda grad: clipped(grad, limit))


@wrong("2.6", "swallowed")
def swallows_the_error(model, limit, train):
    with contextlib.suppress(Exception):
        return run_with(model, train, lambda grad: clipped(grad, limit))


@wrong("2.6", "some parameters had a hook, others had none")
def the_roots_own(model, limit, train):
    return run_with(model, train, lambda grad: clipped(grad, limit), model.parameters(recurse=False))


@wrong("2.6", "some parameters had a hook, others had none")
def the_childrens_own(model, limit, train):
    own = [p for child in model.children() for p in child.parameters(recurse=False)]
    return run_with(model, train, lambda grad: clipped(grad, limit), own)


@wrong("2.6", "some parameters had a hook, others had none")
def without_the_roots_own(model, limit, train):
    parameters = [p for child in model.children() for p in child.parameters()]
    return run_with(model, train, lambda grad: clipped(grad, limit), parameters)


@wrong("2.6", "no hook was on any parameter while train() ran")
def weights_alone(model, limit, train):
    named = [p for name, p in model.named_parameters() if "weight" in name]
    return run_with(model, train, lambda grad: clipped(grad, limit), named)


@wrong("2.6", "no hook was on any parameter while train() ran")
def of_linear_layers_alone(model, limit, train):
    own = [p for module in model.modules() if isinstance(module, nn.Linear) for p in module.parameters()]
    return run_with(model, train, lambda grad: clipped(grad, limit), own)


@wrong("2.6", "some parameters had a hook, others had none")
def matrices_alone(model, limit, train):
    return run_with(model, train, lambda grad: clipped(grad, limit), [p for p in model.parameters() if p.dim() > 1])


@wrong("2.6", "one norm for each row")
def row_by_row(model, limit, train):
    return run_with(
        model, train, lambda grad: torch.renorm(grad, 2, 0, limit) if grad.dim() > 1 else clipped(grad, limit)
    )


@wrong("2.6", "another norm, the sum of all sizes")
def another_norm(model, limit, train):
    return run_with(model, train, lambda grad: grad * min(1.0, limit / max(grad.abs().sum().item(), 1e-12)))


@wrong("2.6", "another norm, the largest size")
def the_largest_element(model, limit, train):
    return run_with(model, train, lambda grad: grad * min(1.0, limit / max(grad.abs().max().item(), 1e-12)))


@wrong("2.6", says="the stored gradient is not the clipped one")
def a_limit_for_all_together(model, limit, train):
    share = limit / math.sqrt(sum(p.requires_grad for p in model.parameters()))
    return run_with(model, train, lambda grad: clipped(grad, share))


@wrong("2.6", says="the stored gradient is not the clipped one")
def a_limit_of_one(model, limit, train):
    return run_with(model, train, lambda grad: clipped(grad, 1.0))


@wrong("2.6", says="the stored gradient is not the clipped one")
def zero_above_the_limit(model, limit, train):
    return run_with(model, train, lambda grad: grad * 0 if grad.norm() > limit else grad)


@wrong("2.6", says="a long gradient was stored as it came")
def only_the_first_of_each_shape(model, limit, train):
    done = set()

    def hook(grad):
        if grad.shape not in done:
            done.add(grad.shape)
            return clipped(grad, limit)

    return run_with(model, train, hook)


@wrong("2.6", "no hook was on any parameter while train() ran")
def after_the_training(model, limit, train):
    result = train()
    for p in model.parameters():
        if p.grad is not None:
            p.grad = clipped(p.grad, limit)
    return result


@wrong("2.6", says="train() was called 2 times")
def trains_twice(model, limit, train):
    train()
    return run_with(model, train, lambda grad: clipped(grad, limit))


@wrong("2.6", says="raised RuntimeError: Tensor post accumulate grad hooks should return None")
def returns_the_norm_after_accumulation(model, limit, train):
    with ExitStack() as stack:
        for p in model.parameters():
            if p.requires_grad:
                stack.enter_context(p.register_post_accumulate_grad_hook(lambda p: nn.utils.clip_grad_norm_(p, limit)))
        return train()


@wrong("2.6", says="your code removed a hook that is not yours: a tensor hook on")
def sweeps_the_parameters(model, limit, train):
    for p in model.parameters():
        if p.requires_grad:
            p.register_hook(lambda grad: clipped(grad, limit))
    try:
        return train()
    finally:
        for p in model.parameters():
            if p._backward_hooks:
                p._backward_hooks.clear()


@wrong("2.6", "in place")
def writes_into_the_gradient(model, limit, train):
    def hook(grad):
        norm = grad.norm()
        if norm > limit:
            grad.mul_(limit / norm)

    return run_with(model, train, hook)


@wrong("2.6", says="your code left the model in evaluation mode")
def in_evaluation_mode(model, limit, train):
    model.eval()
    return run_with(model, train, lambda grad: clipped(grad, limit))


@wrong("2.6", "weights changed")
def clips_the_weights_as_well(model, limit, train):
    def clip(grad):
        return grad * (limit / grad.norm()) if grad.norm() > limit else None

    handles = [parameter.register_hook(clip) for parameter in model.parameters() if parameter.requires_grad]
    try:
        return train()
    finally:
        for handle in handles:
            handle.remove()
        nn.utils.clip_grad_norm_(model.parameters(), limit)
        with torch.no_grad():
            model.root.clamp_(-limit / 100, limit / 100)


@wrong("2.6", "no hook was on any parameter while train() ran")
def on_every_linear_module(model, limit, train):
    def hook(module, grad_input, grad_output):
        return tuple(g if g is None else clipped(g, limit) for g in grad_input)

    with torch_module.register_module_full_backward_hook(hook):
        return train()


# --- an interrupt is no Exception


@wrong("2.5", "`except Exception`", "an interrupt came out of the block")
class RemovesAfterErrorsAlone:
    def __init__(self, tensor):
        self.tensor, self.norms = tensor, []

    def keep(self, grad):
        self.norms.append(grad.norm().item())

    def __enter__(self):
        self.handle = self.tensor.register_hook(self.keep)
        return self

    def __exit__(self, kind, *rest):
        if kind is None or issubclass(kind, Exception):
            self.handle.remove()


@wrong("2.6", "`except Exception`", "an interrupt came out of train()")
def clips_until_an_interrupt(model, limit, train):
    def clip(grad):
        return grad * (limit / grad.norm()) if grad.norm() > limit else None

    handles = [parameter.register_hook(clip) for parameter in model.parameters() if parameter.requires_grad]
    try:
        returned = train()
    except Exception:
        for handle in handles:
            handle.remove()
        raise
    for handle in handles:
        handle.remove()
    return returned


@wrong("2.2", says="the gradient is not scaled by the factor")
def cut_to_the_factor(tensor, factor):
    return tensor.register_hook(lambda grad: grad.clamp(-factor, factor))


@wrong("2.3", "the hook never ran, or kept nothing")
def halves_and_keeps_nothing(tensor, losses):
    arrived = []
    with tensor.register_hook(lambda grad: grad * 0.5):
        for loss in losses:
            loss.backward()
    return arrived


test_right, test_wrong = answers.tests()
