"""What people get wrong about tensor hooks: small programs, each with one misconception."""

import contextlib
import functools
from typing import Any

import torch
from torch import nn

# --- 2.1 and 2.3


def recording(
    keep=lambda grads, grad: grads.append(grad), change=lambda grad: None, each=False, send=torch.Tensor.backward
):
    """Keep what arrives at a tensor as each loss is sent back; `each`: register one more hook for each loss."""

    def answer(y, losses):
        grads = []

        def hook(grad):
            keep(grads, grad)
            return change(grad)

        handles = [] if each else [y.register_hook(hook)]
        for loss in losses:
            if each:
                handles.append(y.register_hook(hook))
            send(loss)
        for handle in handles:
            handle.remove()
        return grads

    return answer


def from_grad(clear=lambda y: None):
    """Keep y.grad after each loss."""

    def answer(y, losses):
        grads = []
        y.retain_grad()
        for loss in losses:
            loss.backward()
            grads.append(y.grad)
            clear(y)
        return grads

    return answer


def of_the_sum(y, losses):
    grads = []
    with y.register_hook(grads.append):
        sum(losses).backward()
    return grads


def reads_grad_in_the_hook(y, losses):
    grads = []
    with y.register_hook(lambda grad: grads.append(y.grad)):
        for loss in losses:
            loss.backward()
    return grads


def hooks_too_late(y, losses):
    grads = []
    for loss in losses:
        loss.backward()
    with y.register_hook(grads.append):
        return grads


def removes_it_in_the_hook(y, losses):
    grads = []

    def keep(grad):
        grads.append(grad)
        handle.remove()

    handle = y.register_hook(keep)
    for loss in losses:
        loss.backward()
    return grads


def send_once_more(loss):
    loss.backward(retain_graph=True)
    return loss


def only_asks(y, losses):
    return [torch.autograd.grad(loss, y)[0] for loss in losses]


def in_reverse(y, losses):
    return recording()(y, losses[::-1])


def halved_by_one_hook_and_kept_by_the_next(tensor, losses):
    with tensor.register_hook(lambda grad: grad / 2):
        return recording()(tensor, losses)


def half(grad):
    return grad / 2


def clears_grad_first(tensor, losses):
    tensor.grad = None
    return recording(change=half)(tensor, losses)


def goes_on_after_an_exception(tensor, losses):
    with contextlib.suppress(Exception):
        return recording(change=half)(tensor, losses)


# --- 2.2


def scaling(change, kept=True):
    def answer(tensor, factor):
        handle = tensor.register_hook(lambda grad: change(grad, factor))
        return handle if kept else None

    return answer


def scales_the_tensor(tensor, factor):
    return tensor * factor


def removed_at_once(tensor, factor):
    with tensor.register_hook(lambda grad: grad * factor) as handle:
        return handle


def for_one_pass(tensor, factor):
    def hook(grad):
        handle.remove()
        return grad * factor

    handle = tensor.register_hook(hook)
    return handle


def more_and_more(tensor, factor):
    factors = []

    def hook(grad):
        factors.append(factor)
        return grad * factor ** len(factors)

    return tensor.register_hook(hook)


def with_a_shared_factor():
    kept = {}

    def answer(tensor, factor):
        kept["factor"] = factor
        return tensor.register_hook(lambda grad: grad * kept["factor"])

    return answer


def the_first_of_two_stays(tensor, factor):
    tensor.register_hook(lambda grad: grad * factor)
    return tensor.register_hook(lambda grad: grad * 1)


# --- 2.4


def by_name(
    before=lambda tensor: None,
    asks=lambda name, tensor: tensor.requires_grad,
    value=lambda tensor, grad: grad,
    late=False,
    last=False,
    start=lambda named: {},
    send=torch.Tensor.backward,
):
    """Hooks that keep gradients by name; `late`: the name that the loop ends with; `last`: one handle is removed."""

    def answer(named, z):
        seen, handles, names = start(named), [], []
        for name, tensor in named.items():
            before(tensor)
            if asks(name, tensor):
                names.append(name)

                def hook(grad, name=name, tensor=tensor):
                    seen[list(named)[-1] if late else name] = value(tensor, grad)

                handles.append(tensor.register_hook(hook))
        send(z)
        for handle in handles[-1:] if last else handles:
            handle.remove()
        return seen

    return answer


def from_the_grads(named, z):
    asking = {name: tensor for name, tensor in named.items() if tensor.requires_grad}
    for tensor in asking.values():
        tensor.retain_grad()
    z.backward()
    return {name: tensor.grad for name, tensor in asking.items() if tensor.grad is not None}


def zeros_for_the_others(named, z):
    return {name: torch.zeros_like(tensor) for name, tensor in named.items()} | by_name()(named, z)


def one_name_for_each_tensor(named, z):
    names = {tensor: name for name, tensor in named.items()}
    return by_name()({name: tensor for tensor, name in names.items()}, z)


def one_pass_for_each_name(named, z):
    seen = {}
    for name, tensor in named.items():
        if tensor.requires_grad:
            seen |= by_name(send=functools.partial(torch.Tensor.backward, retain_graph=True))({name: tensor}, z)
    return seen


def asks_for_all(named, z):
    asking = {name: tensor for name, tensor in named.items() if tensor.requires_grad}
    grads = torch.autograd.grad(z, list(asking.values()), allow_unused=True)
    return {name: grad for name, grad in zip(asking, grads, strict=True) if grad is not None}


def hooked_too_late(named, z):
    z.backward()
    return by_name(send=lambda z: None)(named, z)


# --- 2.5


class Norms:
    """A right answer, to be changed in one place."""

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


def changed(**methods):
    return type("GradientNorms", (Norms,), methods)


def keeping(norm):
    """Another number in the place of the norm."""
    return changed(keep=lambda self, grad: self.norms.append(norm(grad)))


def keep_and_return(result):
    return changed(keep=lambda self, grad: (Norms.keep(self, grad), result(grad))[1])


def register_at_once(self, tensor):
    Norms.__init__(self, tensor)
    self.handle = tensor.register_hook(self.keep)


def enter_without_return(self):
    Norms.__enter__(self)


def remove_unless_interrupted(self, kind, *rest):
    if kind is None or issubclass(kind, Exception):
        self.handle.remove()


def exit_without_arguments(self):
    self.handle.remove()


def keep_the_last(self, grad):
    self.norms = [grad.norm().item()]


def hook_a_lambda(self):
    self.handle = self.tensor.register_hook(lambda grad: self.norms.append(grad.norm().item()))
    return self


def read_grad_at_the_end(self, *exception):
    self.norms.append(self.tensor.grad.norm().item())


def retain(self):
    self.tensor.retain_grad()
    return self


# --- 2.6


def clipped(grad, limit):
    norm = grad.norm()
    return grad * (limit / norm) if norm > limit else grad


def clipping(hook=clipped, which=lambda model: list(model.parameters()), finish=lambda model: None, kept=True):
    """Hooks on parameters around train(); `hook` gets a gradient and the limit."""

    def answer(model, limit, train):
        with contextlib.ExitStack() as handles:
            for parameter in which(model):
                if parameter.requires_grad:
                    handles.enter_context(parameter.register_hook(lambda grad: hook(grad, limit)))
            result = train()
        finish(model)
        return result if kept else None

    return answer


def by_another_norm(norm):
    return clipping(lambda grad, limit: grad * (limit / norm(grad).clamp(min=1e-9)).clamp(max=1))


def clips_in_place(grad, limit):
    norm = grad.norm()
    if norm > limit:
        grad.mul_(limit / norm)


def thaws(model):
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    return list(model.parameters())


def clips_the_weights(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(clipped(parameter, 1.0))


def removed_after(error):
    """Hooks that are removed after success, and after this kind of exception."""

    def answer(model, limit, train):
        handles = [p.register_hook(lambda grad: clipped(grad, limit)) for p in model.parameters() if p.requires_grad]
        with contextlib.ExitStack() as at_the_end:
            for handle in handles:
                at_the_end.callback(handle.remove)
            try:
                return train()
            except BaseException as raised:
                if not isinstance(raised, error):
                    at_the_end.pop_all()
                raise

    return answer


def hides_the_exception(model, limit, train):
    with contextlib.suppress(Exception):
        return clipping()(model, limit, train)


def removes_the_last_one(model, limit, train):
    for parameter in model.parameters():
        if parameter.requires_grad:
            handle = parameter.register_hook(lambda grad: clipped(grad, limit))
    try:
        return train()
    finally:
        handle.remove()


def after_training(model, limit, train):
    result = train()
    nn.utils.clip_grad_norm_(model.parameters(), limit)
    return result


MISCONCEPTIONS: dict[str, dict[str, Any]] = {
    "2.1": {
        "hooks-pile-up": recording(each=True),
        "reads-grad": from_grad(),
        "zeroed-in-place": from_grad(lambda y: y.grad.zero_()),
        "one-pass-for-the-sum": of_the_sum,
        "grad-in-the-hook": reads_grad_in_the_hook,
        "shares-memory": recording(lambda grads, grad: grads.append(grad.detach())),
        "new-list-for-each": lambda y, losses: [recording()(y, [loss]) for loss in losses][-1],
        "kept-nothing": recording(lambda grads, grad: None),
        "never-hooked": hooks_too_late,
        "removed-too-early": removes_it_in_the_hook,
        "losses-left-out": lambda y, losses: recording()(y, losses[:1]),
        "no-backward": lambda y, losses: [],
        "not-sent-to-the-leaves": only_asks,
        "sent-twice": lambda y, losses: [*map(send_once_more, losses)] and recording()(y, losses),
        "changes-the-gradient": recording(change=torch.zeros_like),
        "other-way-round": in_reverse,
        "numbers": recording(lambda grads, grad: grads.append(grad.sum().item())),
        "norms": recording(lambda grads, grad: grads.append(grad.norm())),
    },
    "2.2": {
        "forgotten-return": scaling(lambda grad, factor: None),
        "factor-alone": scaling(torch.full_like),
        "in-place": scaling(lambda grad, factor: grad.mul_(factor)),
        "forgotten-handle": scaling(lambda grad, factor: grad * factor, kept=False),
        "adds": scaling(lambda grad, factor: grad + factor),
        "divides": scaling(lambda grad, factor: grad / factor),
        "clamps": scaling(lambda grad, factor: grad.clamp(-factor, factor)),
        "zero-is-false": scaling(lambda grad, factor: grad * factor if factor else None),
        "no-sign": scaling(lambda grad, factor: grad * abs(factor)),
        "not-registered": scales_the_tensor,
        "removed-too-early": removed_at_once,
        "another-tensor": lambda tensor, factor: (tensor * 1).register_hook(lambda grad: grad * factor),
        "removes-itself": for_one_pass,
        "remembers": more_and_more,
        "shared-factor": with_a_shared_factor(),
        "two-hooks": the_first_of_two_stays,
        "nan-replaced": scaling(lambda grad, factor: grad.nan_to_num() * factor),
    },
    "2.3": {
        "written-in-place": recording(change=lambda grad: grad.mul_(0.5)),
        "in-place": recording(lambda grads, grad: grads.append(grad.clone()), lambda grad: grad.mul_(0.5)),
        "halved-before-kept": halved_by_one_hook_and_kept_by_the_next,
        "whole-gradient-passed": recording(),
        "hooks-pile-up": recording(change=half, each=True),
        "halved-twice": recording(change=lambda grad: grad / 4),
        "whole-numbers": recording(change=lambda grad: grad // 2),
        "cleared-grad": clears_grad_first,
        "kept-nothing": recording(lambda grads, grad: None, half),
        "never-hooked": hooks_too_late,
        "not-sent-to-the-leaves": only_asks,
        "swallowed": goes_on_after_an_exception,
        "new-list-for-each": lambda tensor, losses: [recording(change=half)(tensor, [loss]) for loss in losses][-1],
    },
    "2.4": {
        "late-binding": by_name(late=True),
        "one-handle": by_name(last=True),
        "thawed": by_name(lambda tensor: tensor.requires_grad_(True)),
        "cleared-grad": by_name(lambda tensor: setattr(tensor, "grad", None)),
        "none-for-the-others": by_name(start=dict.fromkeys),
        "zeros-for-the-others": zeros_for_the_others,
        "reads-grad": from_the_grads,
        "grad-in-the-hook": by_name(value=lambda tensor, grad: grad if tensor.grad is None else tensor.grad.clone()),
        "leaves-only": by_name(asks=lambda name, tensor: tensor.requires_grad and tensor.is_leaf),
        "no-leaves": by_name(asks=lambda name, tensor: tensor.grad_fn is not None),
        "one-name-for-each-tensor": one_name_for_each_tensor,
        "sent-for-each-name": one_pass_for_each_name,
        "sent-again": lambda named, z: by_name()(named, send_once_more(z)),
        "nothing-added": asks_for_all,
        "no-backward": lambda named, z: {},
        "never-hooked": hooked_too_late,
        "kept-nothing": lambda named, z: by_name()(named, z) and {},
    },
    "2.5": {
        "registered-in-init": changed(__init__=register_at_once, __enter__=lambda self: self),
        "enter-returns-nothing": changed(__enter__=enter_without_return),
        "not-removed": changed(__exit__=lambda self, *exception: None),
        "removed-on-success-only": changed(__exit__=lambda self, kind, *rest: None if kind else self.handle.remove()),
        "except-exception": changed(__exit__=remove_unless_interrupted),
        "no-norms": changed(__init__=lambda self, tensor: setattr(self, "tensor", tensor)),
        "never-hooked": changed(__enter__=lambda self: self, __exit__=lambda self, *exception: None),
        "kept-nothing": changed(keep=lambda self, grad: None),
        "changes-the-gradient": keep_and_return(lambda grad: grad / 2),
        "swallowed": changed(__exit__=lambda self, *exception: self.handle.remove() or True),
        "exit-without-arguments": changed(__exit__=exit_without_arguments),
        "keep-is-not-the-hook": changed(keep=lambda self, grad: None, __enter__=hook_a_lambda),
        "tensors-kept": keeping(torch.norm),
        "squared": keeping(lambda grad: (grad**2).sum().item()),
        "sum-of-sizes": keeping(lambda grad: grad.abs().sum().item()),
        "largest-number": keeping(lambda grad: grad.abs().max().item()),
        "mean-square": keeping(lambda grad: (grad**2).mean().sqrt().item()),
        "largest-singular-value": keeping(lambda grad: torch.linalg.norm(grad, 2).item()),
        "norm-of-each-row": keeping(lambda grad: grad.norm(dim=0).max().item()),
        "last-alone": changed(keep=keep_the_last),
        "reads-grad": changed(__enter__=retain, __exit__=read_grad_at_the_end),
        "returns-the-norm": keep_and_return(lambda grad: grad.norm().item()),
        "no-zeros": changed(keep=lambda self, grad: Norms.keep(self, grad) if grad.any() else None),
    },
    "2.6": {
        "forgotten-return-in-the-hook": clipping(lambda grad, limit: None),
        "by-value": clipping(lambda grad, limit: grad.clamp(-limit, limit)),
        "always-scaled": clipping(lambda grad, limit: grad * limit / grad.norm().clamp(min=1e-12)),
        "zero-over-zero": clipping(lambda grad, limit: grad / grad.norm() * grad.norm().clamp(max=limit)),
        "in-place": clipping(clips_in_place),
        "sum-of-sizes": by_another_norm(lambda grad: grad.abs().sum()),
        "largest-number": by_another_norm(lambda grad: grad.abs().max()),
        "largest-singular-value": by_another_norm(lambda grad: torch.linalg.matrix_norm(torch.atleast_2d(grad), 2)),
        "each-row": by_another_norm(lambda grad: grad.norm(dim=-1, keepdim=True)),
        "zero-above-the-limit": clipping(lambda grad, limit: grad * 0 if grad.norm() > limit else grad),
        "the-other-way-round": clipping(
            lambda grad, limit: grad * (limit / grad.norm()) if grad.norm() < limit else grad
        ),
        "thawed": clipping(which=thaws),
        "none-hooked": after_training,
        "some-not-hooked": clipping(which=lambda model: list(model.parameters(recurse=False))),
        "removed-on-success-only": removed_after(()),
        "except-exception": removed_after(Exception),
        "forgotten-return": clipping(kept=False),
        "swallowed": hides_the_exception,
        "no-train": lambda model, limit, train: train,
        "trains-twice": lambda model, limit, train: train() and clipping()(model, limit, train),
        "one-handle": removes_the_last_one,
        "weights-changed": clipping(finish=clips_the_weights),
    },
}
