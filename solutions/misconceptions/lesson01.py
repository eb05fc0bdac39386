"""What people get wrong in lesson 1: small programs, each with one misconception."""

from typing import Any

import torch

from hooklab.course.lesson01.engine import backward_order

# --- 1.1


def names_where(is_wanted):
    return lambda named: {name for name, tensor in named.items() if is_wanted(tensor)}


def gets_one(tensor):
    return tensor.is_leaf and tensor.requires_grad


def runs_backward(named):
    sum(tensor.sum() for tensor in named.values() if tensor.requires_grad).backward(retain_graph=True)
    return {name for name, tensor in named.items() if tensor.is_leaf and tensor.grad is not None}


# --- 1.2


def after_hooks(hooks, gradient):
    for hook in hooks:
        changed = hook(gradient)
        gradient = gradient if changed is None else changed
    return gradient


def add(arriving, value, piece):
    arriving[value] = arriving.get(value, 0.0) + piece


def add_without_asking(arriving, value, piece):
    arriving[value] += piece


def value_class(
    hooked=after_hooks,
    is_leaf=lambda self: not self.made_from,
    kept=lambda old, gradient: gradient if old is None else old + gradient,
    piece=lambda gradient, derivative: gradient * derivative,
    give=add,
    call=False,
    leaf_hooks=after_hooks,
    early=False,
):
    """The exercise's class, with exchangeable parts; `early`: a leaf keeps its gradient before the hooks run."""

    class Value:
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

        def arrive(self, gradient, arriving):
            if early and is_leaf(self):
                self.grad = kept(self.grad, gradient)
            gradient = hooked(self.hooks, gradient) if self.made_from else leaf_hooks(self.hooks, gradient)
            if not early and is_leaf(self):
                self.grad = kept(self.grad, gradient)
            for value, derivative in self.made_from:
                give(arriving, value, piece(gradient, derivative))
                if call:
                    value.arrive(piece(gradient, derivative), arriving)

    return Value


def with_hooks(hooked):
    """The class whose hooks are all called in this way."""
    return value_class(hooked, leaf_hooks=hooked)


def takes_none(hooks, gradient):
    for hook in hooks:
        gradient = hook(gradient)
    return gradient


def or_the_old(hooks, gradient):
    for hook in hooks:
        gradient = hook(gradient) or gradient
    return gradient


def ignores_results(hooks, gradient):
    for hook in hooks:
        hook(gradient)
    return gradient


def each_gets_the_first(hooks, gradient):
    came = gradient
    for hook in hooks:
        changed = hook(came)
        gradient = gradient if changed is None else changed
    return gradient


def goes_on_after_an_exception(hooks, gradient):
    try:
        return after_hooks(hooks, gradient)
    except Exception:
        return gradient


def empties_the_list(hooks, gradient):
    gradient = after_hooks(hooks, gradient)
    hooks.clear()
    return gradient


def returns_in_the_loop(hooks, gradient):
    for hook in hooks:
        changed = hook(gradient)
        return gradient if changed is None else changed
    return gradient


def gives_it_to_the_hook_as_well(hooks, gradient):
    return after_hooks([lambda came, hook=hook: hook(hooks, came) for hook in hooks], gradient)


def none_counts_as_zero(hooks, gradient):
    for hook in hooks:
        gradient = hook(gradient) or 0.0
    return gradient


def leaves_out_zero(arriving, value, piece):
    if piece:
        add(arriving, value, piece)


# --- 1.3


def hidden_gradient(
    before=lambda w: None,
    make=lambda w, x: w * x,
    loss=lambda hidden: (hidden**2).sum(),
    send=torch.Tensor.backward,
    result=lambda hidden, w: hidden.grad,
):
    def answer(w, x):
        before(w)
        hidden = make(w, x)
        hidden.retain_grad()
        send(loss(hidden))
        return result(hidden, w)

    return answer


def forget_old(w):
    w.grad = None


def twice_and_the_last(loss):
    loss.backward(retain_graph=True)
    loss.backward()


def gradient_of_w(w, x):
    old = 0 if w.grad is None else w.grad.clone()
    ((w * x) ** 2).sum().backward()
    return w.grad - old


def asks_too_late(w, x):
    hidden = w * x
    (hidden**2).sum().backward()
    hidden.retain_grad()
    return hidden.grad


def first_of_all_calls():
    kept = []

    def answer(w, x):
        hidden = w * x
        hidden.register_hook(kept.append)
        (hidden**2).sum().backward()
        return kept[0]

    return answer


def halves_on_the_way(w, x):
    kept = []
    hidden = w * x
    hidden.register_hook(lambda grad: kept.append(grad) or grad / 2)
    (hidden**2).sum().backward()
    return kept[0]


# --- 1.4


def sorted_by(measure, reverse=True, is_wanted=lambda norm: True, **options):
    def answer(z, named):
        grads = torch.autograd.grad(z, list(named.values()), allow_unused=True, **options)
        found = {name: measure(grad).item() for name, grad in zip(named, grads, strict=True) if grad is not None}
        return sorted((name for name in found if is_wanted(found[name])), key=found.get, reverse=reverse)

    return answer


by_norm = sorted_by(torch.Tensor.norm)


def backward_and_read(z, named):
    for tensor in named.values():
        tensor.retain_grad()
    z.backward()
    norms = {name: tensor.grad.norm().item() for name, tensor in named.items() if tensor.grad is not None}
    return sorted(norms, key=norms.get, reverse=True)


def retains(z, named):
    for tensor in named.values():
        tensor.retain_grad()
    return by_norm(z, named)


def name_by_norm(z, named):
    grads = torch.autograd.grad(z, list(named.values()), allow_unused=True)
    names = {grad.norm().item(): name for name, grad in zip(named, grads, strict=True) if grad is not None}
    return [names[norm] for norm in sorted(names, reverse=True)]


def only_leaves(z, named):
    return by_norm(z, {name: tensor for name, tensor in named.items() if tensor.is_leaf})


def by_their_own_norm(z, named):
    return sorted(by_norm(z, named), key=lambda name: named[name].norm().item(), reverse=True)


# --- 1.5


def passes(number=lambda times: times, keep=lambda left: left > 0, **options):
    def answer(z, times):
        for left in reversed(range(number(times))):
            z.backward(retain_graph=keep(left), **options)

    return answer


def stops_at_the_error(z, times):
    for _ in range(times):
        try:
            z.backward()
        except RuntimeError:
            break


def only_asks(z, times):
    x = z.grad_fn.next_functions[0][0].next_functions[0][0].variable
    for left in reversed(range(times)):
        torch.autograd.grad(z, x, retain_graph=left > 0)


# --- 1.6


def descent(
    make=lambda start: start.clone().requires_grad_(),
    keep=lambda x: x.detach().clone(),
    z=lambda x: torch.mean((x + 2) ** 2),
    sign=-1.0,
    clear=True,
    result=torch.stack,
):
    def answer(start, lr, steps):
        x = make(start)
        path = [keep(x)]
        for _ in range(steps):
            z(x).backward()
            with torch.no_grad():
                x += sign * lr * x.grad
            if clear:
                x.grad = None
            path.append(keep(x))
        return result(path)

    return answer


def asks_of_the_start(start, lr, steps):
    start.requires_grad_()
    return descent(lambda start: start.detach().clone().requires_grad_())(start, lr, steps)


def replaces_the_leaf(start, lr, steps):
    x = start.clone().requires_grad_()
    path = [x.detach().clone()]
    for _ in range(steps):
        torch.mean((x + 2) ** 2).backward()
        x = x - lr * x.grad
        path.append(x.detach().clone())
    return torch.stack(path)


def one_step_at_least(start, lr, steps):
    return descent()(start, lr, max(steps, 1))


MISCONCEPTIONS: dict[str, dict[str, Any]] = {
    "1.1": {
        "leaf-alone": names_where(lambda tensor: tensor.is_leaf),
        "requires-grad-alone": names_where(lambda tensor: tensor.requires_grad),
        "inverted": names_where(lambda tensor: not gets_one(tensor)),
        "without-old-grad": names_where(lambda tensor: gets_one(tensor) and tensor.grad is None),
        "with-old-grad-alone": names_where(lambda tensor: gets_one(tensor) and tensor.grad is not None),
        "parameters-alone": names_where(lambda tensor: isinstance(tensor, torch.nn.Parameter)),
        "all-names": lambda named: set(named),
        "fixed-names": lambda named: {"w", "b"},
        "no-names": lambda named: [tensor for tensor in named.values() if gets_one(tensor)],
        "one-name": lambda named: next((name for name, tensor in named.items() if gets_one(tensor)), ""),
        "forgotten-return": lambda named: None,
        "calls-backward": runs_backward,
    },
    "1.2": {
        "leaves-keep": value_class(is_leaf=lambda self: True),
        "results-keep": value_class(is_leaf=lambda self: self.made_from),
        "nobody-keeps": value_class(is_leaf=lambda self: False),
        "piece-lost": value_class(give=dict.__setitem__),
        "passed-on-unchanged": value_class(piece=lambda gradient, derivative: gradient),
        "derivative-alone": value_class(piece=lambda gradient, derivative: derivative),
        "sum-for-product": value_class(piece=lambda gradient, derivative: gradient + derivative),
        "grad-minus": value_class(kept=lambda old, gradient: gradient if old is None else old - gradient),
        "no-entry-yet": value_class(give=add_without_asking),
        "nothing-passed-on": value_class(give=lambda arriving, value, piece: None),
        "arrive-calls-arrive": value_class(give=lambda arriving, value, piece: None, call=True),
        "arrives-twice": value_class(call=True),
        "none-plus-gradient": value_class(kept=lambda old, gradient: old + gradient),
        "grad-replaced": value_class(kept=lambda old, gradient: gradient),
        "zero-left-out": value_class(give=leaves_out_zero),
        "zero-is-a-gradient": with_hooks(or_the_old),
        "none-for-gradient": with_hooks(takes_none),
        "none-for-zero": with_hooks(none_counts_as_zero),
        "no-hooks": with_hooks(lambda hooks, gradient: gradient),
        "hooks-of-leaves-alone": value_class(lambda hooks, gradient: gradient),
        "hooks-of-results-alone": value_class(leaf_hooks=lambda hooks, gradient: gradient),
        "hook-result-lost": with_hooks(ignores_results),
        "leaf-hook-result-lost": value_class(leaf_hooks=ignores_results),
        "hooks-get-the-first": with_hooks(each_gets_the_first),
        "hooks-reversed": with_hooks(lambda hooks, gradient: after_hooks(hooks[::-1], gradient)),
        "one-hook-alone": with_hooks(returns_in_the_loop),
        "hook-arguments": with_hooks(gives_it_to_the_hook_as_well),
        "hooks-run-once": with_hooks(empties_the_list),
        "kept-before-hooks": value_class(early=True),
        "swallowed": with_hooks(goes_on_after_an_exception),
    },
    "1.3": {
        "none-after-backward": asks_too_late,
        "no-backward": hidden_gradient(send=lambda loss: None),
        "value": hidden_gradient(result=lambda hidden, w: hidden.detach()),
        "gradient-of-w": gradient_of_w,
        "all-of-w-grad": hidden_gradient(result=lambda hidden, w: w.grad),
        "mean": hidden_gradient(loss=lambda hidden: (hidden**2).mean()),
        "passes-added": hidden_gradient(send=twice_and_the_last),
        "earlier-call": first_of_all_calls(),
        "nothing-reaches-w": hidden_gradient(make=lambda w, x: (w * x).detach().requires_grad_()),
        "old-gradient-lost": hidden_gradient(before=forget_old),
        "changed-on-the-way": halves_on_the_way,
    },
    "1.4": {
        "backward-writes": backward_and_read,
        "retains": retains,
        "unused-listed": sorted_by(torch.Tensor.norm, materialize_grads=True),
        "zero-left-out": sorted_by(torch.Tensor.norm, is_wanted=lambda norm: norm > 0),
        "name-by-norm": name_by_norm,
        "leaves-alone": only_leaves,
        "strongest-alone": lambda z, named: by_norm(z, named)[:1],
        "smallest-first": sorted_by(torch.Tensor.norm, reverse=False),
        "by-the-sum": sorted_by(torch.sum),
        "by-the-largest": sorted_by(lambda grad: grad.abs().max()),
        "by-the-sum-of-sizes": sorted_by(lambda grad: grad.abs().sum()),
        "by-the-mean": sorted_by(lambda grad: grad.square().mean()),
        "by-their-own-norm": by_their_own_norm,
        "not-sorted": lambda z, named: [name for name in named if name in by_norm(z, named)],
        "no-order": lambda z, named: set(by_norm(z, named)),
        "no-names": lambda z, named: [(name, 0.0) for name in by_norm(z, named)],
        "one-name": lambda z, named: "".join(by_norm(z, named)[:1]),
        "forgotten-return": lambda z, named: None,
    },
    "1.5": {
        "kept-to-the-end": passes(keep=lambda left: True),
        "one-too-few": passes(lambda times: times - 1),
        "one-too-many": passes(lambda times: times + 1),
        "one-larger-pass": lambda z, times: (times * z).backward(),
        "stops-at-the-error": stops_at_the_error,
        "only-asks": only_asks,
        "create-graph": passes(keep=lambda left: left > 0, create_graph=True),
        "no-backward": lambda z, times: None,
    },
    "1.6": {
        "same-memory": descent(keep=lambda x: x.detach()),
        "gradients-add-up": descent(clear=False),
        "replaces-the-leaf": replaces_the_leaf,
        "fence-post": descent(result=lambda path: torch.stack(path[1:]) if path[1:] else torch.empty(0, 2)),
        "walks-on-the-start": descent(make=torch.Tensor.requires_grad_),
        "start-requires-grad": asks_of_the_start,
        "sum-for-mean": descent(z=lambda x: torch.sum((x + 2) ** 2)),
        "uphill": descent(sign=1.0),
        "path-of-y": descent(keep=lambda x: x.detach() + 2),
        "without-the-two": descent(z=lambda x: torch.mean(x**2)),
        "other-way-round": descent(result=lambda path: torch.stack(path[::-1])),
        "transposed": descent(result=lambda path: torch.stack(path, dim=1)),
        "end-alone": descent(result=lambda path: path[-1]),
        "list-of-points": descent(result=list),
        "forgotten-return": descent(result=lambda path: None),
        "one-step-at-least": one_step_at_least,
    },
}
