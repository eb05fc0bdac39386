"""What people get wrong in lesson 1."""

import torch

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


@wrong("1.1", says="not a set of names")
def tensors_instead_of_names(named):
    return [tensor for tensor in named.values() if tensor.is_leaf and tensor.requires_grad]


@wrong("1.1", says="not the right ones")
def only_the_first(named):
    return {"w"}


@wrong("1.1", says="the names of the first dictionary")
def these_names_always(named):
    return {"w", "b"}


@wrong("1.2", says="not kept")
def forgets_to_ask(y, z):
    z.backward()
    return y.grad


@wrong("1.2", says="asked too late")
def asks_too_late(y, z):
    z.backward()
    y.retain_grad()
    return y.grad


@wrong("1.2", says="read too early")
def reads_too_early(y, z):
    y.retain_grad()
    grad = y.grad
    z.backward()
    return grad


@wrong("1.2", says="no backward: y was asked")
def asks_and_never_sends(y, z):
    y.retain_grad()
    return y.grad


@wrong("1.2", says="leaf's gradient")
def gradient_of_the_leaf(y, z):
    x = y.grad_fn.next_functions[0][0].variable
    z.backward()
    return x.grad


@wrong("1.2", says="value instead of gradient")
def the_value(y, z):
    y.retain_grad()
    z.backward()
    return y.data


@wrong("1.3", says=".grad of x was written")
def backward_and_read(z, tensors):
    z.backward()
    return [tensor.grad if tensor.is_leaf else None for tensor in tensors]


@wrong("1.3", says="it is gone")
def retain_and_clean_up(z, tensors):
    for tensor in tensors:
        tensor.retain_grad()
    z.backward()
    grads = [tensor.grad for tensor in tensors]
    for tensor in tensors:
        tensor.grad = None
    return grads


@wrong("1.3", says="backward through the graph a second time")
def one_at_a_time(z, tensors):
    return [torch.autograd.grad(z, tensor, allow_unused=True)[0] for tensor in tensors]


@wrong("1.3", says="appears to not have been used")
def unused_not_allowed(z, tensors):
    return list(torch.autograd.grad(z, tensors))


@wrong("1.3", says="zero is not None")
def zeros_instead_of_none(z, tensors):
    return list(torch.autograd.grad(z, tensors, allow_unused=True, materialize_grads=True))


@wrong("1.3", says="only one gradient came back")
def the_first_alone(z, tensors):
    return torch.autograd.grad(z, tensors, allow_unused=True)[0]


@wrong("1.4", says="backward through the graph a second time")
def never_retains(z, times):
    for _ in range(times):
        z.backward()


@wrong("1.4", says="retained to the end")
def always_retains(z, times):
    for _ in range(times):
        z.backward(retain_graph=True)


@wrong("1.4", says="off by one")
def one_pass_short(z, times):
    for _ in range(times - 1):
        z.backward(retain_graph=True)
    if times == 1:
        z.backward()


@wrong("1.4", says="x.grad is still None")
def grad_does_not_accumulate(z, times):
    x = z.grad_fn.next_functions[0][0].next_functions[0][0].variable
    for number in range(times):
        torch.autograd.grad(z, x, retain_graph=number < times - 1)


@wrong("1.5", says="same memory")
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


@wrong("1.5", says="gradients add up")
def never_clears_the_gradient(start, lr, steps):
    x = start.clone().requires_grad_()
    path = [x.detach().clone()]
    for _ in range(steps):
        torch.mean((x + 2) ** 2).backward()
        with torch.no_grad():
            x -= lr * x.grad
        path.append(x.detach().clone())
    return torch.stack(path)


@wrong("1.5", says="unsupported operand type(s) for *: 'float' and 'NoneType', at line")
def replaces_the_leaf(start, lr, steps):
    x = start.clone().requires_grad_()
    path = [x.detach().clone()]
    for _ in range(steps):
        torch.mean((x + 2) ** 2).backward()
        x = x - lr * x.grad
        path.append(x.detach().clone())
    return torch.stack(path)


@wrong("1.5", says="fence-post")
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


@wrong("1.5", says="a leaf Variable that requires grad is being used in an in-place operation")
def forgets_no_grad(start, lr, steps):
    x = start.clone().requires_grad_()
    torch.mean((x + 2) ** 2).backward()
    x -= lr * x.grad
    return x


@wrong("1.5", says="changed a tensor that it was given in place")
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


@wrong("1.5", says="twice as long")
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


@wrong("1.2", says="that is not dz/dy")
def derives_by_hand(y, z):
    return 2 * y


@wrong("1.3", says=".grad of a leaf that is not in the list")
def hooks_and_puts_the_old_ones_back(z, tensors):
    seen, old = {}, [tensor.grad.clone() if tensor.grad is not None else None for tensor in tensors]
    handles = [
        tensor.register_hook(lambda grad, number=number: seen.update({number: grad}))
        for number, tensor in enumerate(tensors)
    ]
    z.backward()
    for handle in handles:
        handle.remove()
    for tensor, grad in zip(tensors, old, strict=True):
        tensor.grad = grad
    return [seen.get(number) for number in range(len(tensors))]


@wrong("1.4", says="one pass with a larger gradient")
def one_pass_times_as_large(z, times):
    (times * z).backward()


@wrong("1.5", says="start requires grad now")
def makes_the_start_require_grad(start, lr, steps):
    x = start.requires_grad_()
    path = [x]
    for _ in range(steps):
        (grad,) = torch.autograd.grad(torch.mean((x + 2) ** 2), x)
        x = x - lr * grad
        path.append(x)
    return torch.stack(path)
