"""What people get wrong in lesson 10."""

import torch
from torch.autograd.graph import register_multi_grad_hook, saved_tensors_hooks

from tests.course.exercises.wrong import wrong


def every_node(loss):
    found, waiting = [], [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.append(node)
            waiting += [following for following, _ in node.next_functions]
    return found


def search(is_bad, choose=lambda names: names[0], name=lambda node: node.name()):
    """An answer to 10.1 that takes its hooks off: which runs count, and which of them is named."""

    def first_nan(loss):
        names = []

        def watch(node):
            def hook(made, given):
                if is_bad(made, given):
                    names.append(name(node))

            return node.register_hook(hook)

        handles = [watch(node) for node in every_node(loss)]
        try:
            loss.backward()
        finally:
            for handle in handles:
                handle.remove()
        return choose(names) if names else None

    return first_nan


def has_nan(grads):
    return any(grad is not None and grad.isnan().any() for grad in grads)


gives_the_node_after = wrong("10.1", says="the node that is given the first NaN")(
    search(lambda made, given: has_nan(given))
)
names_the_last = wrong("10.1", says="the last node with a NaN")(
    search(lambda made, given: has_nan(made), lambda names: names[-1])
)
counts_infinities = wrong("10.1", says="an infinity is no NaN")(
    search(lambda made, given: any(grad is not None and not grad.isfinite().all() for grad in made))
)
looks_at_the_first_gradient = wrong("10.1", says="only the first gradient of each node")(
    search(lambda made, given: has_nan(made[:1]))
)
forgets_none = wrong("10.1", says="a gradient that nobody needs is None")(
    search(lambda made, given: any(grad.isnan().any() for grad in made))
)
returns_the_node = wrong("10.1", says="the node instead of its name()")(
    search(lambda made, given: has_nan(made), name=lambda node: node)
)


@wrong("10.1", says="your hooks are still there")
def leaves_its_hooks(loss):
    names = []
    for node in every_node(loss):
        node.register_hook(lambda made, given, node=node: names.append(node.name()) if has_nan(made) else None)
    loss.backward()
    return names[0] if names else None


@wrong("10.1", says="no gradient has arrived")
def never_runs_backward(loss):
    return None


def watching(total, mode="all"):
    """An answer to 10.4 that appends a number computed from the gradients that are there."""

    def watch_norm(parameters, norms):
        def hook(grads):
            norms.append(float(total([grad for grad in grads if grad is not None])))

        return register_multi_grad_hook(parameters, hook, mode=mode)

    return watch_norm


adds_the_norms = wrong("10.4", says="the sum of the norms")(watching(lambda grads: sum(grad.norm() for grad in grads)))
forgets_the_root = wrong("10.4", says="the root is missing")(
    watching(lambda grads: sum(grad.square().sum() for grad in grads))
)
takes_the_largest = wrong("10.4", says="the largest norm alone")(
    watching(lambda grads: max(grad.norm() for grad in grads))
)
waits_for_any = wrong("10.4", says="one gradient: with mode")(
    watching(lambda grads: sum(grad.square().sum() for grad in grads) ** 0.5, mode="any")
)


@wrong("10.4", says="`.grad` holds sums of all backwards")
def reads_grad(parameters, norms):
    def hook(grads):
        norms.append(sum(p.grad.square().sum().item() for p in parameters if p.grad is not None) ** 0.5)

    return register_multi_grad_hook(parameters, hook)


@wrong("10.4", says="a parameter that takes no part is None")
def forgets_none_in_the_list(parameters, norms):
    return register_multi_grad_hook(
        parameters, lambda grads: norms.append(sum(g.square().sum() for g in grads).sqrt().item())
    )


@wrong("10.4", says="did not return the handle")
def forgets_the_handle(parameters, norms):
    watching(lambda grads: sum(grad.square().sum() for grad in grads) ** 0.5)(parameters, norms)


@wrong("10.2", says="inner values are still there")
def keeps_what_it_packs(function, x):
    with saved_tensors_hooks(lambda tensor: tensor.detach(), lambda packed: packed):
        return function(x)


@wrong("10.2", says="the result has no graph")
def without_recording(function, x):
    with torch.no_grad():
        return function(x)


def checkpoint(
    recording=torch.enable_grad,
    copy=lambda x: x.detach().requires_grad_(x.requires_grad),
    take=dict.pop,
    detached=torch.Tensor.detach,
    always=False,
    store=None,
    block=lambda hooks: hooks,
):
    """An answer to 10.2, with parts that can be exchanged."""

    def answer(function, x):
        values, count = {} if store is None else store, iter(range(10_000))

        def unpack(number):
            if always or number not in values:
                values.clear()
                places = iter(range(10_000))
                with (
                    recording(),
                    saved_tensors_hooks(
                        lambda t: values.__setitem__(next(places), detached(t)), lambda nothing: nothing
                    ),
                ):
                    function(copy(x))
            return take(values, number)

        with block(saved_tensors_hooks(lambda tensor: next(count), unpack)):
            return function(x)

    return answer


forgets_enable_grad = wrong("10.2", says="switch it on: torch.enable_grad()")(checkpoint(recording=torch.no_grad))
asks_for_no_gradient = wrong("10.2", says="its input must ask for a gradient")(checkpoint(copy=torch.Tensor.detach))
runs_for_each_value = wrong("10.2", says="the function runs again for each value")(checkpoint(always=True))
FOR_EVER = []
never_lets_go = wrong("10.2", says="a store that outlives the call")(
    checkpoint(detached=lambda tensor: FOR_EVER.append(tensor.detach()) or tensor.detach())
)


@wrong("10.3", says="late binding")
def the_script_with_the_right_hook(parameters, lr):
    handles = []
    for p in parameters:
        if p.requires_grad:

            def step(parameter):
                p.data -= lr * parameter.grad.flatten()[0]  # noqa: B023
                parameter.grad = None

            handles.append(p.register_post_accumulate_grad_hook(step))
    return handles


@wrong("10.3", says="a tensor hook runs before the gradient is stored")
def a_tensor_hook(parameters, lr):
    def register(p):
        def step(grad):
            p.data -= lr * grad
            p.grad = None

        return p.register_hook(step)

    return [register(p) for p in parameters if p.requires_grad]


@wrong("10.3", says="a frozen parameter takes no hook")
def hooks_the_frozen_one(parameters, lr):
    return [p.register_post_accumulate_grad_hook(lambda p: None) for p in parameters]


@wrong("10.3", says="up instead of down")
def climbs(parameters, lr):
    return stepping(lambda p: p.data.add_(lr * p.grad))(parameters, lr)


def stepping(move, clear=lambda p: setattr(p, "grad", None)):
    """An answer to 10.3 with its own way to move and to clear."""

    def answer(parameters, lr):
        def step(p):
            move(p)
            clear(p)

        return [p.register_post_accumulate_grad_hook(step) for p in parameters if p.requires_grad]

    return answer


@wrong("10.3", says="zeros take as much memory")
def clears_to_zero(parameters, lr):
    return stepping(lambda p: p.data.sub_(lr * p.grad), lambda p: p.grad.zero_())(parameters, lr)


@wrong("10.3", says="no parameter has moved")
def steps_on_a_copy(parameters, lr):
    return stepping(lambda p: p.detach().clone().sub_(lr * p.grad))(parameters, lr)


def bytes_of(levels=255, low=torch.Tensor.min, rounded=torch.round, add=True, all_kinds=False):
    """An answer to 10.5, with parts that can be exchanged."""

    def eight_bits():
        def pack(tensor):
            tensor = tensor.detach()
            if not tensor.is_floating_point() and not all_kinds:
                return tensor
            values = tensor.float() if all_kinds else tensor
            least = low(values)
            step = ((values.max() - least) / levels).clamp(min=1e-30)
            return rounded((values - least) / step).to(torch.uint8), least, step, tensor.dtype

        def unpack(packed):
            if isinstance(packed, torch.Tensor):
                return packed
            numbers, least, step, dtype = packed
            return (numbers * step + (least if add else 0)).to(dtype)

        return saved_tensors_hooks(pack, unpack)

    return eight_bits


packs_labels_as_well = wrong("10.5", says="integers and masks come back exactly")(bytes_of(all_kinds=True))
cuts = wrong("10.5", says="cut instead of rounded")(bytes_of(rounded=lambda values: values))
forgets_the_smallest = wrong("10.5", says="the smallest value is missing")(bytes_of(add=False))
sixteen_levels = wrong("10.5", says="far fewer than 256 levels")(bytes_of(levels=15))


@wrong("10.5", says="four bytes a number")
def rounds_but_keeps_floats():
    return saved_tensors_hooks(lambda t: t.detach().mul(100).round().div(100), lambda packed: packed)


@wrong("10.5", says="cannot stand after `with`")
def returns_two_functions():
    return (lambda tensor: tensor), (lambda packed: packed)
