"""What people get wrong in lesson 1."""

import torch

from hooklab.course.lesson01.engine import backward_order
from tests.course.exercises.wrong import wrong


@wrong("1.1", says="leaf is not enough")
def every_leaf(named):
    return {name for name, tensor in named.items() if tensor.is_leaf}


@wrong("1.1", says="requires_grad is not enough")
def everything_that_requires_grad(named):
    return {name for name, tensor in named.items() if tensor.requires_grad}


@wrong("1.1", says="the other way round")
def the_others(named):
    return {name for name, tensor in named.items() if not (tensor.is_leaf and tensor.requires_grad)}


@wrong("1.1", says="tensors, not their names")
def tensors_instead_of_names(named):
    return [tensor for tensor in named.values() if tensor.is_leaf and tensor.requires_grad]


@wrong("1.1", says="not the right ones")
def only_the_first(named):
    return {"w"}


@wrong("1.1", says="the names of the first dictionary")
def these_names_always(named):
    return {"w", "b"}


@wrong("1.5", says="backward through the graph a second time")
def never_retains(z, times):
    for _ in range(times):
        z.backward()


@wrong("1.5", says="retained to the end")
def always_retains(z, times):
    for _ in range(times):
        z.backward(retain_graph=True)


@wrong("1.5", says="off by one")
def one_pass_short(z, times):
    for _ in range(times - 1):
        z.backward(retain_graph=True)
    if times == 1:
        z.backward()


@wrong("1.5", says="x.grad is still None")
def grad_does_not_accumulate(z, times):
    x = z.grad_fn.next_functions[0][0].next_functions[0][0].variable
    for number in range(times):
        torch.autograd.grad(z, x, retain_graph=number < times - 1)


@wrong("1.6", says="same memory")
def keeps_the_same_tensor(start, lr, steps):
    x = start.clone().requires_grad_()
    path = [x.detach()]
    for _ in range(steps):
        torch.mean((x + 2) ** 2).backward()
        with torch.no_grad():
            x -= lr * x.grad
        x.grad = None
        path.append(x.detach())
    return torch.stack(path)


@wrong("1.6", says="gradients add up")
def never_clears_the_gradient(start, lr, steps):
    x = start.clone().requires_grad_()
    path = [x.detach().clone()]
    for _ in range(steps):
        torch.mean((x + 2) ** 2).backward()
        with torch.no_grad():
            x -= lr * x.grad
        path.append(x.detach().clone())
    return torch.stack(path)


@wrong("1.6", says="unsupported operand type(s) for *: 'float' and 'NoneType', at line")
def replaces_the_leaf(start, lr, steps):
    x = start.clone().requires_grad_()
    path = [x.detach().clone()]
    for _ in range(steps):
        torch.mean((x + 2) ** 2).backward()
        x = x - lr * x.grad
        path.append(x.detach().clone())
    return torch.stack(path)


@wrong("1.6", says="fence-post")
def forgets_the_start(start, lr, steps):
    x = start.clone().requires_grad_()
    path = []
    for _ in range(steps):
        torch.mean((x + 2) ** 2).backward()
        with torch.no_grad():
            x -= lr * x.grad
        x.grad = None
        path.append(x.detach().clone())
    return torch.stack(path)


@wrong("1.6", says="a leaf Variable that requires grad is being used in an in-place operation")
def forgets_no_grad(start, lr, steps):
    x = start.clone().requires_grad_()
    torch.mean((x + 2) ** 2).backward()
    x -= lr * x.grad
    return x


@wrong("1.6", says="changed a tensor that it was given in place")
def walks_on_the_start_itself(start, lr, steps):
    x = start.requires_grad_()
    path = [x.detach().clone()]
    for _ in range(steps):
        torch.mean((x + 2) ** 2).backward()
        with torch.no_grad():
            x -= lr * x.grad
        x.grad = None
        path.append(x.detach().clone())
    return torch.stack(path)


@wrong("1.6", says="twice as long")
def sum_instead_of_half_the_sum(start, lr, steps):
    x = start.clone().requires_grad_()
    path = [x.detach().clone()]
    for _ in range(steps):
        torch.sum((x + 2) ** 2).backward()
        with torch.no_grad():
            x -= lr * x.grad
        x.grad = None
        path.append(x.detach().clone())
    return torch.stack(path)


@wrong("1.1", says="an old .grad is no obstacle")
def only_those_without_an_old_gradient(named):
    return {name for name, tensor in named.items() if tensor.is_leaf and tensor.requires_grad and tensor.grad is None}


@wrong("1.5", says="one pass with a larger gradient")
def one_pass_times_as_large(z, times):
    (times * z).backward()


@wrong("1.6", says="start requires grad now")
def makes_the_start_require_grad(start, lr, steps):
    x = start.requires_grad_()
    path = [x]
    for _ in range(steps):
        (grad,) = torch.autograd.grad(torch.mean((x + 2) ** 2), x)
        x = x - lr * grad
        path.append(x)
    return torch.stack(path)


@wrong("1.1", says="is not a set of names")
def one_name(named):
    return "w"


class Base:
    """The given part of exercise 1.2; what is wrong stands in `arrive`."""

    def __init__(self, data, made_from=()):
        self.data, self.made_from, self.grad, self.hooks = data, made_from, None, []

    def __add__(self, other):
        return type(self)(self.data + other.data, [(self, 1.0), (other, 1.0)])

    def __mul__(self, other):
        return type(self)(self.data * other.data, [(self, other.data), (other, self.data)])

    def backward(self):
        arriving = {self: 1.0}
        for value in backward_order(self):
            value.arrive(arriving[value], arriving)

    def call_hooks(self, gradient):
        for hook in self.hooks:
            changed = hook(gradient)
            gradient = gradient if changed is None else changed
        return gradient

    def keep(self, gradient):
        self.grad = gradient if self.grad is None else self.grad + gradient

    def pass_on(self, gradient, arriving):
        for value, derivative in self.made_from:
            arriving[value] = arriving.get(value, 0.0) + gradient * derivative


@wrong("1.2", says="kept a gradient, and were computed")
class KeepsEverywhere(Base):
    def arrive(self, gradient, arriving):
        gradient = self.call_hooks(gradient)
        self.keep(gradient)
        self.pass_on(gradient, arriving)


@wrong("1.2", says="the condition is the other way round")
class KeepsInTheResults(Base):
    def arrive(self, gradient, arriving):
        gradient = self.call_hooks(gradient)
        if self.made_from:
            self.keep(gradient)
        self.pass_on(gradient, arriving)


@wrong("1.2", says="the leaf x kept no gradient")
class KeepsNothing(Base):
    def arrive(self, gradient, arriving):
        self.pass_on(self.call_hooks(gradient), arriving)


@wrong("1.2", says="one of its two pieces is lost")
class ReplacesWhatArrived(Base):
    def arrive(self, gradient, arriving):
        gradient = self.call_hooks(gradient)
        if not self.made_from:
            self.keep(gradient)
        for value, derivative in self.made_from:
            arriving[value] = gradient * derivative


@wrong("1.2", says="a leaf adds to the gradient it already has")
class ReplacesTheGradient(Base):
    def arrive(self, gradient, arriving):
        gradient = self.call_hooks(gradient)
        if not self.made_from:
            self.grad = gradient
        self.pass_on(gradient, arriving)


@wrong("1.2", says="passed on unchanged")
class ForgetsTheDerivative(Base):
    def arrive(self, gradient, arriving):
        gradient = self.call_hooks(gradient)
        if not self.made_from:
            self.keep(gradient)
        for value, _ in self.made_from:
            arriving[value] = gradient


@wrong("1.2", says="what a hook returns is lost")
class IgnoresWhatHooksReturn(Base):
    def arrive(self, gradient, arriving):
        self.call_hooks(gradient)
        if not self.made_from:
            self.keep(gradient)
        self.pass_on(gradient, arriving)


@wrong("1.2", says="ask `is not None`")
class TakesZeroForNone(Base):
    def arrive(self, gradient, arriving):
        for hook in self.hooks:
            gradient = hook(gradient) or gradient
        if not self.made_from:
            self.keep(gradient)
        self.pass_on(gradient, arriving)


@wrong("1.2", says="each hook gets what the one before it returned")
class EveryHookGetsTheFirst(Base):
    def arrive(self, gradient, arriving):
        came = gradient
        for hook in self.hooks:
            changed = hook(came)
            gradient = gradient if changed is None else changed
        if not self.made_from:
            self.keep(gradient)
        self.pass_on(gradient, arriving)


@wrong("1.2", says="a hook on y never ran")
class CallsNoHooks(Base):
    def arrive(self, gradient, arriving):
        if not self.made_from:
            self.keep(gradient)
        self.pass_on(gradient, arriving)


@wrong("1.2", says="unsupported operand")
class ForgetsTheFirstOne(Base):
    def arrive(self, gradient, arriving):
        if not self.made_from:
            self.grad = self.grad + gradient
        self.pass_on(gradient, arriving)


@wrong("1.3", says="asked too late, or of another tensor")
def asks_too_late(w, x):
    hidden = w * x
    (hidden**2).sum().backward()
    hidden.retain_grad()
    return hidden.grad


@wrong("1.3", says="backward() did not run")
def asks_and_never_sends(w, x):
    hidden = w * x
    hidden.retain_grad()
    return hidden.grad


@wrong("1.3", says="the leaf's")
def gradient_of_the_leaf(w, x):
    old = w.grad.clone()
    ((w * x) ** 2).sum().backward()
    return w.grad - old


@wrong("1.3", says="value instead of gradient")
def the_value(w, x):
    hidden = w * x
    (hidden**2).sum().backward()
    return hidden.detach()


@wrong("1.3", says="w got none")
def only_asks(w, x):
    hidden = w * x
    return torch.autograd.grad((hidden**2).sum(), hidden)[0]


@wrong("1.3", says="w.grad is not what one backward() makes it")
def clears_the_old_gradient(w, x):
    w.grad = None
    hidden = w * x
    hidden.retain_grad()
    (hidden**2).sum().backward()
    return hidden.grad


@wrong("1.4", says="backward() fills .grad all the way down")
def backward_and_read(z, named):
    for tensor in named.values():
        tensor.retain_grad()
    z.backward()
    norms = {name: tensor.grad.norm().item() for name, tensor in named.items() if tensor.grad is not None}
    return sorted(norms, key=norms.get, reverse=True)


@wrong("1.4", says="backward through the graph a second time")
def one_at_a_time(z, named):
    return [name for name, tensor in named.items() if torch.autograd.grad(z, tensor, allow_unused=True)[0] is not None]


@wrong("1.4", says="appears to not have been used")
def unused_not_allowed(z, named):
    grads = torch.autograd.grad(z, list(named.values()))
    return [name for name, _ in zip(named, grads, strict=True)]


def by(z, named, measure, reverse=True, **options):
    grads = torch.autograd.grad(z, list(named.values()), allow_unused=True, **options)
    norms = {name: measure(grad) for name, grad in zip(named, grads, strict=True) if grad is not None}
    return sorted(norms, key=norms.get, reverse=reverse)


@wrong("1.4", says="`unused` is in your list")
def zeros_instead_of_none(z, named):
    return by(z, named, lambda grad: grad.norm().item(), materialize_grads=True)


@wrong("1.4", says="a tensor on the way is missing")
def only_those_above_zero(z, named):
    return [name for name in by(z, named, lambda grad: grad.norm().item()) if name != "still"]


@wrong("1.4", says="the weakest comes first")
def counts_up(z, named):
    return by(z, named, lambda grad: grad.norm().item(), reverse=False)


@wrong("1.4", says="numbers of both signs cancel")
def by_the_sum(z, named):
    return by(z, named, lambda grad: grad.sum().item())


@wrong("1.4", says="the order is another one")
def as_they_come(z, named):
    return [name for name in named if name != "unused"]


@wrong("1.4", says="is not a list of names")
def the_strongest_alone(z, named):
    return by(z, named, lambda grad: grad.norm().item())[0]


@wrong("1.6", says="that is the path of y")
def follows_y(start, lr, steps):
    y = (start + 2).requires_grad_()
    path = [y.detach().clone()]
    for _ in range(steps):
        torch.mean(y**2).backward()
        with torch.no_grad():
            y -= lr * y.grad
        y.grad = None
        path.append(y.detach().clone())
    return torch.stack(path)
