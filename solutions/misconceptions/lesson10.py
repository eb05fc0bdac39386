"""What people get wrong about hooks on the graph: small programs, each with one misconception."""

import contextlib
import functools
import itertools
import math

import torch
from torch.autograd.graph import register_multi_grad_hook, saved_tensors_hooks

# --- 10.1


def every_node(loss):
    found, waiting = [], [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.append(node)
            waiting += [following for following, _ in node.next_functions]
    return found


def the_first_way(loss):
    node = loss.grad_fn
    while node is not None:
        yield node
        node = node.next_functions[0][0] if node.next_functions else None


def by_name(loss):
    return list({node.name(): node for node in every_node(loss)}.values())


def by_first_name(loss):
    return list({node.name(): node for node in reversed(every_node(loss))}.values())


def has_nan(grads):
    return any(grad is not None and grad.isnan().any() for grad in grads)


def some(is_bad):
    return lambda made, given: any(grad is not None and is_bad(grad) for grad in made)


def search(
    is_bad=lambda made, given: has_nan(made),
    choose=lambda names: names[0] if names else None,
    name=lambda node: node.name(),
    nodes=every_node,
    send=torch.Tensor.backward,
    late=False,
    change=lambda made: None,
):
    """Name a node whose gradients are bad, with hooks that are taken off again."""

    def first_nan(loss):
        names, last = [], None

        def watch(node):
            def hook(made, given):
                if is_bad(made, given):
                    names.append(name(last if late else node))
                return change(made)

            return node.register_hook(hook)

        handles = []
        for last in nodes(loss):
            handles.append(watch(last))
        try:
            send(loss)
        finally:
            for handle in handles:
                handle.remove()
        return choose(names)

    return first_nan


def cleaning(after=(), before_raising=()):
    """Take the hooks off after a backward pass that ends, or in these exceptions only."""

    def first_nan(loss):
        names = []
        handles = [
            node.register_hook(lambda made, given, node=node: names.append(node.name()) if has_nan(made) else None)
            for node in every_node(loss)
        ]
        try:
            loss.backward()
        except before_raising:
            for handle in handles:
                handle.remove()
            raise
        for handle in handles if after else []:
            handle.remove()
        return names[0] if names else None

    return first_nan


def sends_twice(loss):
    loss.backward(retain_graph=True)
    loss.backward()


def hides_the_exception(loss):
    with contextlib.suppress(Exception):
        loss.backward()


# --- 10.2


def checkpoint(
    recording=torch.enable_grad,
    copy=lambda x: x.detach().requires_grad_(x.requires_grad),
    take=dict.pop,
    detached=torch.Tensor.detach,
    always=False,
    store=None,
    block=lambda hooks: hooks,
    collecting=saved_tensors_hooks,
    numbers=None,
    finish=lambda y: None,
):
    """Compute what the graph needs by a second run; each part can be exchanged."""

    def answer(function, x):
        values = {} if store is None else store
        count = itertools.count() if numbers is None else numbers

        def unpack(number):
            if always or number not in values:
                values.clear()
                places = itertools.count()

                def keep(tensor):
                    values[next(places)] = detached(tensor)
                    return tensor.detach()

                with recording(), collecting(keep, lambda nothing: nothing):
                    again = function(copy(x))
                finish(again)
            return take(values, number)

        with block(saved_tensors_hooks(lambda tensor: next(count), unpack)):
            return function(x)

    return answer


def keeping(pack, unpack=lambda value: value):
    def answer(function, x):
        with saved_tensors_hooks(pack, unpack):
            return function(x)

    return answer


def opened_only(hooks):
    hooks.__enter__()
    return contextlib.nullcontext()


@contextlib.contextmanager
def closed_if_all_went_well(hooks):
    hooks.__enter__()
    yield
    hooks.__exit__()


def sends_back(y):
    if y.requires_grad:
        y.backward(torch.ones_like(y))


def twice_at_once(function, x):
    function(x)
    return checkpoint()(function, x)


def of_the_forward(function, x):
    return checkpoint()(getattr(function, "forward", function), x)


def in_evaluation_mode(function, x):
    def run(x):
        if runs and isinstance(function, torch.nn.Module):
            function.eval()
        runs.append(1)
        return function(x)

    runs = []
    return checkpoint()(run, x)


def hides_an_exception(function, x):
    try:
        return checkpoint()(function, x)
    except Exception:
        return x


def runs_again_once_and_never_more(function, x):
    again, values, count = [], {}, itertools.count()

    def unpack(number):
        if not again:
            again.append(1)
            with torch.enable_grad(), saved_tensors_hooks(lambda t: values.update({len(values): t.detach()}), print):
                function(x.detach().requires_grad_(x.requires_grad))
        return values.pop(number)

    return keeping(lambda tensor: next(count), unpack)(function, x)


FOR_EVER, COUNT, LAST = [], itertools.count(), []


def kept_for_ever(tensor):
    FOR_EVER.append(tensor.detach())
    return tensor.detach()


def of_the_last_input(function, x):
    LAST.append(x)
    return checkpoint(copy=lambda x: LAST[-1].detach().requires_grad_(x.requires_grad))(function, x)


# --- 10.3


def stepping(
    move=lambda lr, p: p.data.sub_(lr * p.grad),
    clear=lambda p: setattr(p, "grad", None),
    choose=lambda parameters: [p for p in parameters if p.requires_grad],
    give=list,
):
    """Take each parameter's step in a hook of its own, which runs after its gradient is stored."""

    def answer(parameters, lr):
        def step(p):
            move(lr, p)
            clear(p)

        return give([p.register_post_accumulate_grad_hook(step) for p in choose(parameters)])

    return answer


def with_tensor_hooks(step):
    def answer(parameters, lr):
        return [p.register_hook(functools.partial(step, lr, p)) for p in parameters if p.requires_grad]

    return answer


def steps_by_the_gradient(lr, p, grad):
    p.data -= lr * grad
    p.grad = None


def steps_by_dot_grad(lr, p, grad):
    p.data -= lr * p.grad


def with_the_last_p(step):
    def answer(parameters, lr):
        handles = []
        for p in parameters:
            if p.requires_grad:
                handles.append(p.register_post_accumulate_grad_hook(lambda given: step(lr, p, given)))  # noqa: B023
        return handles

    return answer


def the_last_p_by_a_given_gradient(lr, p, given):
    p.data -= lr * given.grad.sum()
    given.grad = None


def returning_the_gradient(parameters, lr):
    def step(p):
        p.data.sub_(lr * p.grad)
        return p.grad

    return [p.register_post_accumulate_grad_hook(step) for p in parameters if p.requires_grad]


def removing_all_after_the_first(parameters, lr):
    def step(p):
        steps_by_the_gradient(lr, p, p.grad)
        for handle in handles:
            handle.remove()

    handles = [p.register_post_accumulate_grad_hook(step) for p in parameters if p.requires_grad]
    return list(handles)


LATEST = []


def with_the_latest_lr(parameters, lr):
    LATEST[:] = [lr]
    return stepping(lambda lr, p: p.data.sub_(LATEST[0] * p.grad))(parameters, lr)


def goes_through_twice(parameters):
    count = sum(1 for _ in parameters)
    return [p for _, p in zip(range(count), parameters, strict=False) if p.requires_grad]


def other_handles(parameters, lr):
    parameters = list(parameters)
    stepping()(parameters, lr)
    return [p.register_hook(lambda grad: None) for p in parameters if p.requires_grad]


# --- 10.4


def norm(grads):
    return math.hypot(*(grad.norm().item() for grad in grads))


def watching(total=norm, mode="all", number=float, choose=lambda grads: [g for g in grads if g is not None]):
    """Append a number that is computed from the gradients that are there."""

    def watch_norm(parameters, norms):
        return register_multi_grad_hook(parameters, lambda grads: norms.append(number(total(choose(grads)))), mode=mode)

    return watch_norm


def of_one(place):
    return watching(lambda grads: 0.0 if grads[place] is None else grads[place].norm(), choose=list)


def over_time(total):
    def watch_norm(parameters, norms):
        own = []

        def hook(grads):
            own.append(norm([grad for grad in grads if grad is not None]))
            norms.append(total(own))

        return register_multi_grad_hook(parameters, hook)

    return watch_norm


def from_dot_grad(parameters, norms):
    return register_multi_grad_hook(
        parameters, lambda grads: norms.append(norm([p.grad for p in parameters if p.grad is not None]))
    )


def waiting_for_all(parameters, norms):
    def hook(grads):
        if all(grad is not None for grad in grads):
            norms.append(norm(grads))

    return register_multi_grad_hook(parameters, hook)


def a_hook_for_each(parameters, norms):
    handles = [one.register_hook(lambda grad: norms.append(grad.norm().item())) for one in parameters]
    return handles[0]


FIRST = []


def one_handle_for_ever(parameters, norms):
    if not FIRST or (FIRST[0][0] is not norms and len(parameters) == 3):
        FIRST[:] = [(norms, watching()(parameters, norms))]
    return FIRST[0][1]


# --- 10.5


def packing(
    levels=255,
    low=torch.Tensor.min,
    high=torch.Tensor.max,
    rounded=torch.round,
    add=True,
    is_packed=torch.Tensor.is_floating_point,
    kind=torch.uint8,
    back=lambda values, dtype: values.to(dtype),
    as_float=True,
    kept=None,
):
    """Save tensors in bytes; each part can be exchanged. `kept`: what replaces the range that was saved with them."""

    def eight_bits():
        def pack(tensor):
            tensor = tensor.detach()
            if not is_packed(tensor):
                return tensor
            values = tensor.float() if as_float and not tensor.is_floating_point() else tensor
            least = low(values)
            step = ((high(values) - least) / levels).clamp(min=1e-30)
            if kept is not None:
                kept[:] = [least, step]
            numbers = rounded((values - least) / step)
            return (numbers.to(torch.int64) if kind == torch.uint8 else numbers).to(kind), least, step, tensor.dtype

        def unpack(packed):
            if isinstance(packed, torch.Tensor):
                return packed
            numbers, least, step, dtype = packed
            least, step = kept or (least, step)
            return back(numbers * step + (least if add else 0), dtype)

        return saved_tensors_hooks(pack, unpack)

    return eight_bits


def saving(pack, unpack=lambda packed: packed):
    return lambda: saved_tensors_hooks(pack, unpack)


def each_row(reduce):
    return lambda values: reduce(values, -1, keepdim=True) if values.ndim else values


def each_column(reduce):
    return lambda values: reduce(values, 0, keepdim=True) if values.ndim else values


def divides_by_the_range():
    def pack(tensor):
        if not tensor.is_floating_point():
            return lambda: tensor
        low, high = tensor.detach().aminmax()
        scale, dtype = 255 / (high - low).item(), tensor.dtype
        kept = ((tensor.detach() - low) * scale).round().byte()
        return lambda: (kept / scale + low).to(dtype)

    return saved_tensors_hooks(pack, lambda kept: kept())


def what_with_gives():
    with packing()() as hooks:
        return hooks


@contextlib.contextmanager
def never_popped():
    packing()().__enter__()
    yield


MISCONCEPTIONS = {
    "10.1": {
        "given-the-nan": search(lambda made, given: has_nan(given)),
        "last-one": search(choose=lambda names: names[-1] if names else None),
        "infinity-counts": search(some(lambda grad: not grad.isfinite().all())),
        "first-gradient-only": search(lambda made, given: has_nan(made[:1])),
        "sums": search(some(lambda grad: grad.sum().isnan())),
        "all-nan": search(some(lambda grad: grad.isnan().all())),
        "first-way-only": search(nodes=the_first_way),
        "one-hook-for-each-name": search(nodes=by_name),
        "first-of-each-name": search(nodes=by_first_name),
        "late-binding": search(late=True),
        "not-all-of-the-name": search(name=lambda node: type(node).__name__),
        "node-itself": search(name=lambda node: node),
        "all-names": search(choose=lambda names: names),
        "always-none": search(choose=lambda names: None),
        "none-is-an-answer": search(choose=lambda names: names[0]),
        "empty-places": search(lambda made, given: made[0] is not None and made[0].isnan().any()),
        "gradient-is-none": search(lambda made, given: any(grad.isnan().any() for grad in made)),
        "no-backward": lambda loss: None,
        "sent-twice": search(send=sends_twice),
        "changes-the-gradients": search(
            change=lambda made: tuple(None if grad is None else grad.nan_to_num() for grad in made)
        ),
        "one-tensor-returned": search(change=lambda made: made[0] if made else None),
        "hooks-stay": cleaning(),
        "no-finally": cleaning(after=[1]),
        "except-exception": cleaning(after=[1], before_raising=Exception),
        "swallowed": search(send=hides_the_exception),
    },
    "10.2": {
        "keeps-values": keeping(torch.Tensor.detach),
        "not-recorded": torch.no_grad()(lambda function, x: function(x)),
        "detached": lambda function, x: checkpoint()(function, x).detach(),
        "runs-at-once": twice_at_once,
        "not-run-again": keeping(lambda tensor: 0, lambda number: {}[number]),
        "keeps-in-numpy": keeping(lambda tensor: tensor.detach().numpy().copy(), torch.from_numpy),
        "recording-off": checkpoint(recording=torch.no_grad),
        "nothing-collected": checkpoint(collecting=lambda *hooks: contextlib.nullcontext()),
        "other-requires-grad": checkpoint(copy=torch.Tensor.detach),
        "always-requires-grad": checkpoint(copy=lambda x: x.detach().requires_grad_()),
        "numbers-do-not-fit": checkpoint(numbers=COUNT),
        "runs-for-each": checkpoint(always=True),
        "values-stay": checkpoint(detached=kept_for_ever),
        "one-store": checkpoint(store={}),
        "cut-off": lambda function, x: checkpoint()(function, x.detach()),
        "backward-of-its-own": checkpoint(finish=sends_back),
        "last-input": of_the_last_input,
        "unpack-returns-nothing": keeping(lambda tensor: 0, lambda number: None),
        "once-and-never-more": runs_again_once_and_never_more,
        "float32": checkpoint(detached=lambda tensor: tensor.detach().float()),
        "forward-called": of_the_forward,
        "other-mode": in_evaluation_mode,
        "records-always": torch.enable_grad()(lambda function, x: checkpoint()(function, x)),
        "stay-on": checkpoint(block=opened_only),
        "stay-on-after-an-exception": checkpoint(block=closed_if_all_went_well),
        "swallowed": hides_an_exception,
    },
    "10.3": {
        "up": stepping(lambda lr, p: p.data.add_(lr * p.grad)),
        "no-lr": stepping(lambda lr, p: p.data.sub_(p.grad)),
        "two-steps": stepping(lambda lr, p: p.data.sub_(2 * lr * p.grad)),
        "sign": stepping(lambda lr, p: p.data.sub_(lr * p.grad.sign())),
        "on-a-copy": stepping(lambda lr, p: p.detach().clone().sub_(lr * p.grad)),
        "parameter-for-gradient": stepping(lambda lr, p: p.data.sub_(lr * p)),
        "as-float64": stepping(lambda lr, p: setattr(p, "data", p.data.double() - lr * p.grad)),
        "latest-lr": with_the_latest_lr,
        "zeros-are-not-none": stepping(clear=lambda p: p.grad.zero_()),
        "gradient-stays": stepping(clear=lambda p: None),
        "tensor-hook": with_tensor_hooks(steps_by_the_gradient),
        "grad-in-a-tensor-hook": with_tensor_hooks(steps_by_dot_grad),
        "no-gradient": stepping(lambda lr, p: setattr(p, "grad", None) or p.data.sub_(lr * p.grad)),
        "late-binding": with_the_last_p(the_last_p_by_a_given_gradient),
        "returns-the-gradient": returning_the_gradient,
        "hooks-the-frozen-one": stepping(choose=list),
        "thaws-the-frozen-one": stepping(choose=lambda parameters: [p.requires_grad_() for p in parameters]),
        "no-list": stepping(choose=lambda ps: [ps[place] for place in range(len(ps)) if ps[place].requires_grad]),
        "used-up": stepping(choose=goes_through_twice),
        "last-handle": stepping(give=lambda handles: handles[-1]),
        "removes-all": removing_all_after_the_first,
        "another-hook": other_handles,
    },
    "10.4": {
        "sum-of-norms": watching(lambda grads: sum(grad.norm() for grad in grads)),
        "no-root": watching(lambda grads: norm(grads) ** 2),
        "dot-grad": from_dot_grad,
        "largest": watching(lambda grads: max(grad.norm() for grad in grads)),
        "average": watching(lambda grads: sum(grad.norm() for grad in grads) / len(grads)),
        "absolute-values": watching(lambda grads: sum(grad.abs().sum() for grad in grads)),
        "first-gradient": of_one(0),
        "last-gradient": of_one(-1),
        "mode-any": watching(mode="any", choose=lambda grad: [grad]),
        "first-for-ever": over_time(lambda own: own[0]),
        "earlier-ones-too": over_time(lambda own: math.hypot(*own)),
        "none-in-the-list": watching(choose=list),
        "truth-of-a-tensor": watching(choose=lambda grads: [grad for grad in grads if grad]),
        "no-number": watching(lambda grads: torch.stack([g.norm() for g in grads]).norm(), number=lambda total: total),
        "waits-for-all": waiting_for_all,
        "one-for-each": a_hook_for_each,
        "nothing-appended": lambda parameters, norms: register_multi_grad_hook(parameters, lambda grads: None),
        "first-call": one_handle_for_ever,
    },
    "10.5": {
        "nothing-returned": what_with_gives,
        "functions-returned": lambda: ((lambda tensor: tensor), (lambda packed: packed)),
        "no-bytes": saving(lambda tensor: tensor.detach().mul(100).round().div(100)),
        "int32": packing(kind=torch.int32),
        "eight-bytes": packing(kind=torch.int64),
        "sixteen-bits": saving(lambda tensor: tensor.detach().half()),
        "range-for-each-row": packing(low=each_row(torch.amin), high=each_row(torch.amax)),
        "range-for-each-column": packing(low=each_column(torch.amin), high=each_column(torch.amax)),
        "no-smallest": packing(add=False),
        "signed-byte": packing(kind=torch.int8),
        "256-levels": packing(levels=256),
        "cut": packing(rounded=torch.floor),
        "sixteen-levels": packing(levels=15),
        "half-the-levels": packing(levels=127),
        "from-zero": packing(low=lambda values: values.min() * 0, high=lambda values: values.abs().max()),
        "from-the-mean": packing(low=torch.Tensor.mean),
        "negative-to-zero": packing(
            low=lambda values: values.min() * 0, rounded=lambda values: values.round().clamp(0, 255)
        ),
        "one-range": packing(kept=[]),
        "whole-numbers-packed": packing(is_packed=lambda tensor: True),
        "masks-packed": packing(is_packed=lambda tensor: True, as_float=False),
        "float32": packing(back=lambda values, dtype: values.float()),
        "float32-only": packing(is_packed=lambda tensor: tensor.dtype == torch.float32),
        "equal-numbers": divides_by_the_range,
        "parts-handed-back": saving(lambda tensor: (tensor.byte(), 0)),
        "in-place": saving(lambda tensor: tensor.detach().sub_(tensor.min()).byte(), torch.Tensor.float),
        "stay-on": never_popped,
    },
}
