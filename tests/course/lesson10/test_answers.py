"""Unusual right answers to lesson 10's exercises, and wrong ones: none is misjudged, and no reason is untrue.

A wrong answer comes with the beginning of the one reason that is true, or None where the check can know none.
"""

import contextlib
import functools
import itertools
import math
import warnings

import torch
from torch.autograd.graph import register_multi_grad_hook, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint as torchs

from tests.course.exercises.answers import Answers
from tests.course.lesson10.wrong import bytes_of, checkpoint, every_node, has_nan, search, stepping, watching


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


answers = Answers("10.1", "10.2", "10.3", "10.4", "10.5")
right, wrong = answers.right, answers.wrong


# --- 10.1

right("10.1")(search(lambda made, given: has_nan(made) and not has_nan(given)))


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
        if not names and any(torch.isnan(grad).any() for grad in made if grad is not None):
            names.append(node.name())

    with contextlib.ExitStack() as stack:
        visit(loss.grad_fn, stack)
        loss.backward()
    return next(iter(names), None)


@right("10.1")
def returns_what_it_got(loss):
    found = {}

    def hook(node):
        return lambda made, given: found.setdefault(node.name() if has_nan(made) else None, 1) and made

    handles = [node.register_hook(hook(node)) for node in every_node(loss)]
    try:
        loss.backward()
    finally:
        [handle.remove() for handle in handles]
    return next((name for name in found if name), None)


@right("10.1")
def pre_hooks_of_the_next_nodes(loss):
    """Looks at every node's gradients with both kinds, and keeps the log."""
    log, handles = [], []
    for node in every_node(loss):
        handles.append(node.register_prehook(lambda given: None))
        handles.append(node.register_hook(lambda made, given, node=node: log.append((node.name(), made)) and None))
    try:
        loss.backward()
    finally:
        for handle in reversed(handles):
            handle.remove()
    bad = [name for name, made in log if sum(int(grad.isnan().sum()) for grad in made if grad is not None)]
    return bad[0] if bad else None


@right("10.1")
def a_class(loss):
    class Watch:
        def __init__(self, node, names):
            self.node, self.names = node, names

        def __call__(self, made, given):
            if any(grad is not None and (grad != grad).any() for grad in made):
                self.names += [self.node.name()]

    names = []
    with contextlib.ExitStack() as stack:
        for node in every_node(loss):
            stack.callback(node.register_hook(Watch(node, names)).remove)
        torch.autograd.backward(loss)
    return names[0] if len(names) > 0 else None


wrong("10.1", "the node that is given the first NaN")(search(lambda made, given: has_nan(given)))
wrong("10.1", "the last node with a NaN")(search(lambda made, given: has_nan(made), lambda names: names[-1]))
wrong("10.1", "an infinity is no NaN")(
    search(lambda made, given: any(grad is not None and not grad.isfinite().all() for grad in made))
)
wrong("10.1", "only the first gradient")(search(lambda made, given: has_nan(made[:1])))
wrong("10.1", "only a node whose every gradient is NaN")(
    search(lambda made, given: any(grad is not None and grad.isnan().all() for grad in made))
)
wrong("10.1", "a gradient that nobody needs")(search(lambda made, given: any(grad.isnan().any() for grad in made)))
wrong("10.1", "the node instead of its name()")(search(lambda made, given: has_nan(made), name=lambda node: node))
wrong("10.1", "None for every loss")(search(lambda made, given: False))
wrong("10.1")(search(lambda made, given: has_nan(made), name=lambda node: node.name().lower()))
wrong("10.1")(search(lambda made, given: has_nan(made), name=lambda node: type(node)))


@wrong("10.1", "swallowed", "raised an exception, and your code hid it")
def hides_the_error(loss):
    with contextlib.suppress(Exception):
        return search(lambda made, given: has_nan(made))(loss)


def over(nodes, hook):
    """A wrong answer to 10.1: which nodes get a hook, and hook(node, names), which may look at too little."""

    def first_nan(loss):
        names = []
        handles = [node.register_hook(hook(node, names)) for node in nodes(loss)]
        try:
            loss.backward()
        finally:
            for handle in handles:
                handle.remove()
        return next(iter(names), None)

    return first_nan


def named(node, names):
    return lambda made, given: names.append(node.name()) if has_nan(made) else None


def the_first_way(loss):
    node = loss.grad_fn
    while node is not None:
        yield node
        node = node.next_functions[0][0] if node.next_functions else None


wrong("10.1", "only the first pair of each next_functions")(over(the_first_way, named))
wrong("10.1", "nothing at that place")(
    over(
        every_node, lambda node, names: lambda made, given: named(node, names)(made, given) if made[0] is None else None
    )
)


@wrong("10.1", "late binding")
def the_loops_last_node(loss):
    names, handles = [], []
    for node in every_node(loss):
        handles.append(node.register_hook(lambda made, given: names.append(node.name()) if has_nan(made) else None))  # noqa: B023
    try:
        loss.backward()
    finally:
        for handle in handles:
            handle.remove()
    return names[0] if names else None


@wrong("10.1", says="run to its end")
def with_anomaly_mode(loss):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.autograd.set_detect_anomaly(True)
        try:
            loss.backward()
        except RuntimeError as error:
            return str(error).split("'")[1]
        finally:
            torch.autograd.set_detect_anomaly(False)
    return None


@wrong("10.1", "this graph makes no NaN")
def always_finds_one(loss):
    return search(lambda made, given: has_nan(made), lambda names: names[0])(loss) or [][0]


@wrong("10.1", "not removed", "after an exception in the backward, your hooks are still there")
def forgets_the_error(loss):
    names = []
    handles = [
        node.register_hook(lambda made, given, node=node: names.append(node.name()) if has_nan(made) else None)
        for node in every_node(loss)
    ]
    loss.backward()
    for handle in handles:
        handle.remove()
    return names[0] if names else None


# --- 10.4

right("10.4")(watching(lambda grads: math.hypot(*(grad.norm() for grad in grads))))
right("10.4")(watching(lambda grads: torch.cat([grad.flatten() for grad in grads]).norm()))
right("10.4")(watching(lambda grads: torch.nn.utils.get_total_norm(grads)))
right("10.4")(watching(lambda grads: torch.stack([torch.linalg.vector_norm(grad) for grad in grads]).norm()))


@right("10.4")
def with_zeros_for_none(parameters, norms):
    def hook(grads):
        filled = [torch.zeros(1) if grad is None else grad.reshape(-1) for grad in grads]
        norms.append(torch.cat(filled).pow(2).sum().sqrt().item())
        return "ignored"

    return register_multi_grad_hook(tuple(parameters), hook)


wrong("10.4", "the sum of the norms")(watching(lambda grads: sum(grad.norm() for grad in grads)))
wrong("10.4", "the root is missing")(watching(lambda grads: sum(grad.square().sum() for grad in grads)))
wrong("10.4", "the largest norm alone")(watching(lambda grads: max(grad.norm() for grad in grads)))
wrong("10.4", "absolute values added up")(watching(lambda grads: sum(grad.abs().sum() for grad in grads)))
wrong("10.4", "the norms of all, averaged")(watching(lambda grads: sum(grad.norm() for grad in grads) / len(grads)))
wrong("10.4", "one gradient: with mode")(watching(lambda grads: math.hypot(*(g.norm() for g in grads)), mode="any"))
wrong("10.4")(watching(lambda grads: 1.5 * math.hypot(*(grad.norm() for grad in grads))))


wrong("10.4", "one gradient: with mode")(
    lambda parameters, norms: register_multi_grad_hook(
        parameters, lambda grad: norms.append(grad.norm().item()), mode="any"
    )
)


def over_time(total):
    """A wrong answer to 10.4: total(norms so far, with this backward's)."""

    def watch_norm(parameters, norms):
        own = []

        def hook(grads):
            own.append(math.hypot(*(grad.norm().item() for grad in grads if grad is not None)))
            norms.append(total(own))

        return register_multi_grad_hook(parameters, hook)

    return watch_norm


wrong("10.4", "the first answer, for ever")(over_time(lambda own: own[0]))
wrong("10.4", "the squares of earlier backwards")(over_time(lambda own: math.hypot(*own)))
FIRST_CALL = []


@wrong("10.4", "what the first call made is kept for ever", "called a second time")
def one_handle_for_ever(parameters, norms):
    if not FIRST_CALL:
        FIRST_CALL.append(watching(lambda grads: math.hypot(*(grad.norm() for grad in grads)))(parameters, norms))
    return FIRST_CALL[0]


@wrong("10.4", "`if grad` asks for the truth", "a backward through all raised")
def asks_a_tensor(parameters, norms):
    return register_multi_grad_hook(
        parameters, lambda grads: norms.append(math.hypot(*(g.norm().item() for g in grads if g)))
    )


@wrong("10.4", says="what you append is no number")
def appends_a_tensor(parameters, norms):
    return register_multi_grad_hook(
        parameters, lambda gs: norms.append(torch.stack([g.norm() for g in gs if g is not None]).norm())
    )


def of_one(place):
    """A wrong answer to 10.4: the norm of the gradient at this place in the list."""

    def watch_norm(parameters, norms):
        def hook(grads):
            norms.append(0.0 if grads[place] is None else grads[place].norm().item())

        return register_multi_grad_hook(parameters, hook)

    return watch_norm


wrong("10.4", "the first gradient alone")(of_one(0))
wrong("10.4")(of_one(1))
wrong("10.4", "the last gradient alone")(of_one(-1))


@wrong("10.4", says="a backward through all does not append one norm")
def appends_two_numbers(parameters, norms):
    def hook(grads):
        norm = math.hypot(*(grad.norm().item() for grad in grads if grad is not None))
        norms.extend([norm, norm**2])

    return register_multi_grad_hook(parameters, hook)


@wrong("10.4", "nothing is appended where a parameter takes no part")
def waits_for_all(parameters, norms):
    def hook(grads):
        if None not in [None if grad is None else 1 for grad in grads]:
            norms.append(math.hypot(*(grad.norm().item() for grad in grads)))

    return register_multi_grad_hook(parameters, hook)


@wrong("10.4", "a number for each gradient")
def one_for_each(parameters, norms):
    handles = [one.register_hook(lambda grad: norms.append(grad.norm().item())) for one in parameters]
    return handles[0]


@wrong("10.4", "the hook has not run")
def appends_nothing(parameters, norms):
    return register_multi_grad_hook(parameters, lambda grads: None)


@wrong("10.4", says="after handle.remove() a hook is still at work")
def another_handle(parameters, norms):
    watching(lambda grads: math.hypot(*(grad.norm() for grad in grads)))(parameters, norms)
    return parameters[0].register_hook(lambda grad: None)


@wrong("10.4", says="a backward through the parameter of a second call raised IndexError")
def knows_of_three_parameters(parameters, norms):
    def hook(grads):
        norms.append(math.hypot(*(0 if grads[at] is None else grads[at].norm() for at in range(3))))

    return register_multi_grad_hook(parameters, hook)


@wrong("10.4", says="after handle.remove() another hook of yours is still there")
def one_hook_that_only_looks(parameters, norms):
    parameters[0].register_hook(lambda grad: None)
    return watching(lambda grads: math.hypot(*(grad.norm() for grad in grads)))(parameters, norms)


# --- 10.2

right("10.2")(checkpoint())
right("10.2")(checkpoint(take=dict.__getitem__))
right("10.2")(checkpoint(copy=lambda x: x))
right("10.2")(checkpoint(detached=torch.clone))
right("10.2")(checkpoint(copy=lambda x: x.detach().clone().requires_grad_(x.requires_grad)))
right("10.2")(lambda function, x: Reentrant.apply(function, x, torch.empty(0, requires_grad=True)))
right("10.2")(lambda function, x: torchs(function, x, use_reentrant=False))


@right("10.2")
def a_list_of_the_second_run(function, x):
    second, numbers = [], itertools.count()

    def unpack(number):
        if not second:
            with torch.enable_grad(), saved_tensors_hooks(lambda t: second.append(t.data), print):
                function(x.detach().requires_grad_(x.requires_grad))
        return second[number]

    with saved_tensors_hooks(lambda tensor: next(numbers), unpack):
        return function(x)


wrong("10.2", "pack returns the tensor")(lambda function, x: function(x))
wrong("10.2", "the function runs again for each value", "expected  2")(checkpoint(always=True))
wrong("10.2", "the second run saved nothing")(checkpoint(recording=torch.no_grad))
wrong("10.2", "the second run saved other values")(checkpoint(copy=torch.Tensor.detach))
wrong("10.2", "the second run saved other values", "returned an invalid gradient")(
    checkpoint(copy=lambda x: x.detach().requires_grad_())
)
wrong("10.2", "detach x before you ask it")(checkpoint(copy=lambda x: (x * 1).requires_grad_(False)))
wrong("10.2", says="the result is another one")(lambda function, x: checkpoint()(function, x) * 2)
wrong("10.2", "one store for all calls")(checkpoint(store={}))
wrong("10.2", "not taken off")(checkpoint(block=lambda hooks: hooks.__enter__() or contextlib.nullcontext()))
wrong("10.2", says="is not called")(lambda function, x: checkpoint()(getattr(function, "forward", function), x))
wrong("10.2", says="to have the same dtype")(checkpoint(detached=lambda tensor: tensor.detach().float()))


@wrong("10.2", "counted twice")
def sends_the_gradients_back_itself(function, x):
    values, numbers = {}, itertools.count()

    def unpack(number):
        if not values:
            copy, places = x.detach().requires_grad_(x.requires_grad), itertools.count()
            keep = saved_tensors_hooks(lambda t: values.setdefault(next(places), t.detach()), lambda value: value)
            with torch.enable_grad(), keep:
                again = function(copy)
            again.backward(torch.ones_like(again))
        return values.pop(number)

    with saved_tensors_hooks(lambda tensor: next(numbers), unpack):
        return function(x)


wrong("10.2", "cut off: a gradient did not arrive")(lambda function, x: checkpoint()(function, x.detach()))
wrong("10.2", "the first run was not recorded")(torch.no_grad()(lambda function, x: function(x)))
wrong("10.2", says="your result is not a tensor")(lambda function, x: [checkpoint()(function, x)])
wrong("10.2", says="under torch.no_grad() the result is another one")(
    torch.enable_grad()(lambda function, x: checkpoint()(function, x))
)
wrong("10.2", "the result is detached")(lambda function, x: checkpoint()(function, x).detach())
wrong("10.2", "with their graph")(checkpoint(detached=lambda tensor: tensor, take=dict.__getitem__))
wrong("10.2", says="the gradients are other ones")(
    checkpoint(copy=lambda x: (x.detach() * 2).requires_grad_(x.requires_grad))
)


@wrong("10.2", "unpack returns no tensor")
def unpacks_nothing(function, x):
    with saved_tensors_hooks(lambda tensor: 0, lambda number: None):
        return function(x)


@wrong("10.2", says="in a second backward, backward raised KeyError")
def runs_again_once_and_never_more(function, x):
    again, values, numbers = [], {}, itertools.count()

    def unpack(number):
        if not again:
            again.append(1)
            with torch.enable_grad(), saved_tensors_hooks(lambda t: values.update({len(values): t.detach()}), print):
                function(x.detach().requires_grad_(x.requires_grad))
        return values.pop(number)

    with saved_tensors_hooks(lambda tensor: next(numbers), unpack):
        return function(x)


@wrong("10.2", says="forward and backward together: another number of runs")
def keeps_all_in_numpy(function, x):
    with saved_tensors_hooks(lambda tensor: tensor.detach().numpy().copy(), torch.from_numpy):
        return function(x)


@wrong("10.2", "swallowed")
def hides_an_error(function, x):
    try:
        return checkpoint()(function, x)
    except Exception:
        return x


@wrong("10.2", "not taken off", "when the function raises")
def closes_only_if_all_went_well(function, x):
    @contextlib.contextmanager
    def block(hooks):
        hooks.__enter__()
        yield
        hooks.__exit__()

    return checkpoint(block=block)(function, x)


@wrong("10.2", says="in another mode than the first")
def switches_to_evaluation(function, x):
    def run(x):
        if runs and isinstance(function, torch.nn.Module):
            function.eval()
        runs.append(1)
        return function(x)

    runs = []
    return checkpoint()(run, x)


@wrong("10.2", says="another number of runs")
def runs_twice_at_once(function, x):
    function(x)
    return checkpoint()(function, x)


@wrong("10.2", "a store that outlives the call")
def keeps_the_second_run(function, x):
    return checkpoint(detached=lambda tensor: KEPT.append(tensor.detach()) or tensor.detach())(function, x)


KEPT = []


@wrong("10.2", "a store that outlives the call")
def one_store_for_all(function, x):
    numbers = itertools.count()

    def unpack(number):
        if not SECOND_RUN:
            with torch.enable_grad(), saved_tensors_hooks(lambda t: SECOND_RUN.append(t.detach()), print):
                function(x.detach().requires_grad_(x.requires_grad))
        return SECOND_RUN[number]

    with saved_tensors_hooks(lambda tensor: next(numbers), unpack):
        return function(x)


SECOND_RUN = []
COUNT = itertools.count(1000)


@wrong("10.2", "numbers that do not fit")
def one_count_for_all(function, x):
    values = {}

    def unpack(number):
        if number not in values:
            with torch.enable_grad(), saved_tensors_hooks(lambda t: values.setdefault(len(values), t.detach()), print):
                function(x.detach().requires_grad_(x.requires_grad))
        return values.pop(number)

    with saved_tensors_hooks(lambda tensor: next(COUNT), unpack):
        return function(x)


@wrong("10.2", "the function has not run again")
def forgets_the_second_run(function, x):
    with saved_tensors_hooks(lambda tensor: 0, lambda number: [][number]):
        return function(x)


@wrong("10.2", says="in a row: the gradients are other ones")
def the_last_input(function, x):
    LAST.append(x)
    return checkpoint(copy=lambda x: LAST[-1].detach().requires_grad_(x.requires_grad))(function, x)


LAST = []


@wrong("10.2", "a backward of its own")
def a_backward_in_the_second_run(function, x):
    def run(x):
        y = function(x)
        if len(RUNS) % 2:
            y.sum().backward()
        RUNS.append(y.shape)
        return y

    RUNS.clear()
    return checkpoint()(run, x)


RUNS = []


@wrong("10.2", "a count that an inner function changes")
def forgets_nonlocal(function, x):
    count = 0

    def pack(tensor):
        count += 1  # noqa: F823
        return count

    with saved_tensors_hooks(pack, lambda number: number):
        return function(x)


# --- 10.3


def with_lr(move, **options):
    """An answer to 10.3 whose own way to move is given lr."""
    return lambda parameters, lr: stepping(functools.partial(move, lr), **options)(parameters, lr)


right("10.3")(with_lr(lambda lr, p: p.data.sub_(lr * p.grad)))
right("10.3")(with_lr(lambda lr, p: p.sub_(p.grad, alpha=lr)))
right("10.3")(with_lr(lambda lr, p: p.detach().add_(-lr * p.grad)))
right("10.3")(with_lr(lambda lr, p: p.copy_(p - lr * p.grad), clear=lambda p: p.__setattr__("grad", None)))


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
                    p -= lr * p.grad
                p.grad = None

            handles += [p.register_post_accumulate_grad_hook(step)]
    return handles


wrong("10.3", "up instead of down")(with_lr(lambda lr, p: p.data.add_(lr * p.grad)))
wrong("10.3", "the gradient without lr")(with_lr(lambda lr, p: p.data.sub_(p.grad)))
wrong("10.3", "two steps")(with_lr(lambda lr, p: p.data.sub_(2 * lr * p.grad)))
wrong("10.3", "no parameter has moved")(with_lr(lambda lr, p: p.clone().sub_(lr * p.grad)))
wrong("10.3", says="the parameters are not where their steps lead")(
    with_lr(lambda lr, p: p.data.sub_(lr * p.grad.sign()))
)
wrong("10.3", "zeros take as much memory")(
    with_lr(lambda lr, p: p.data.sub_(lr * p.grad), clear=lambda p: p.grad.zero_())
)
wrong("10.3", "the gradient is not thrown away", says="a gradient is still there")(
    with_lr(lambda lr, p: p.data.sub_(lr * p.grad), clear=lambda p: None)
)


@wrong("10.3", "late binding")
def the_last_p(parameters, lr):
    handles = []
    for p in parameters:
        if p.requires_grad:

            def step(parameter):
                p.data -= lr * parameter.grad.sum()  # noqa: B023
                parameter.grad = None

            handles.append(p.register_post_accumulate_grad_hook(step))
    return handles


@wrong("10.3", "a gradient that is not there")
def the_last_ps_gradient(parameters, lr):
    handles = []
    for p in parameters:
        if p.requires_grad:

            def step(parameter):
                p.data -= lr * p.grad  # noqa: B023
                p.grad = None  # noqa: B023

            handles.append(p.register_post_accumulate_grad_hook(step))
    return handles


@wrong("10.3", "a gradient that is not there", "a backward raised TypeError")
def throws_it_away_first(parameters, lr):
    def step(p):
        p.grad = None
        p.data -= lr * p.grad

    return [p.register_post_accumulate_grad_hook(step) for p in parameters if p.requires_grad]


@wrong("10.3", "parameters may come one by one")
def counts_first(parameters, lr):
    which = [parameters[place] for place in range(len(parameters)) if parameters[place].requires_grad]
    return stepping(lambda p: p.data.sub_(lr * p.grad))(which, lr)


@wrong("10.3", "accidental return")
def returns_the_gradient(parameters, lr):
    def step(p):
        p.data.sub_(lr * p.grad)
        return p.grad

    return [p.register_post_accumulate_grad_hook(step) for p in parameters if p.requires_grad]


@wrong("10.3", "a tensor hook runs before")
def reads_grad_too_early(parameters, lr):
    def register(p):
        return p.register_hook(lambda grad: p.data.sub_(lr * p.grad) and None)

    return [register(p) for p in parameters if p.requires_grad]


@wrong("10.3", "forgotten return")
def keeps_the_handles(parameters, lr):
    with_lr(lambda lr, p: p.data.sub_(lr * p.grad))(parameters, lr)


@wrong("10.3", says="after remove() of all handles a hook is still at work")
def other_handles(parameters, lr):
    parameters = list(parameters)
    with_lr(lambda lr, p: p.data.sub_(lr * p.grad))(parameters, lr)
    return [p.register_hook(lambda grad: None) for p in parameters if p.requires_grad]


# --- 10.5

right("10.5")(bytes_of())
right("10.5")(bytes_of(rounded=lambda values: values.add(0.5).floor()))
right("10.5")(bytes_of(low=lambda values: values.amin()))


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
            return (((tensor.detach() - low) / step).round().byte(), low, step, tensor.dtype)
        return (tensor.detach(), None, None, None)

    def unpack(kept):
        values, low, step, dtype = kept
        return values if dtype is None else values.to(dtype).mul_(step).add_(low)

    with saved_tensors_hooks(pack, unpack):
        yield


wrong("10.5", "cut instead of rounded")(bytes_of(rounded=lambda values: values))
wrong("10.5", "the smallest value is missing")(bytes_of(add=False))
wrong("10.5", "far fewer than 256 levels")(bytes_of(levels=15))
wrong("10.5", "whole numbers in 256 levels", "a loss with class labels, an embedding and a mask: another gradient")(
    bytes_of(all_kinds=True)
)
wrong("10.5", "negative numbers come back positive", "do not come back well")(
    bytes_of(low=lambda values: values.mean())
)
wrong("10.5", "four bytes a number")(lambda: saved_tensors_hooks(torch.Tensor.detach, lambda kept: kept))
wrong("10.5", "256 does not fit in a byte")(bytes_of(levels=256))


def packing(is_packed, back=lambda values, dtype: values.to(dtype)):
    """An answer to 10.5 that packs what is_packed(tensor) says, and comes back by back(values, dtype)."""

    def eight_bits():
        def pack(tensor):
            if not is_packed(tensor):
                return tensor
            low, high = tensor.detach().min(), tensor.detach().max()
            step = ((high - low) / 255).clamp(min=1e-30)
            return ((tensor.detach() - low) / step).round().byte(), low, step, tensor.dtype

        def unpack(kept):
            if isinstance(kept, torch.Tensor):
                return kept
            values, low, step, dtype = kept
            return back(values * step + low, dtype)

        return saved_tensors_hooks(pack, unpack)

    return eight_bits


wrong("10.5", says="saved numbers from -1 to 3, float32 do not come back well")(bytes_of(levels=127))


@wrong("10.5", "negative numbers come back positive", "saved numbers from -1 to 3")
def measures_from_zero():
    def pack(tensor):
        if not tensor.is_floating_point():
            return tensor
        step = (tensor.detach().abs().max() / 255).clamp(min=1e-30)
        return (tensor.detach() / step).round().to(torch.int64).to(torch.uint8), step, tensor.dtype

    def unpack(kept):
        return kept if isinstance(kept, torch.Tensor) else (kept[0] * kept[1]).to(kept[2])

    return saved_tensors_hooks(pack, unpack)


@wrong("10.5", says="saved numbers from 0 to 100, float32 do not come back well")
def one_step_for_all_tensors():
    def pack(tensor):
        if not tensor.is_floating_point():
            return lambda: tensor
        low, dtype = tensor.detach().min(), tensor.dtype
        kept = ((tensor.detach() - low) / (4 / 255)).round().clamp(max=255).byte()
        return lambda: (kept * (4 / 255) + low).to(dtype)

    return saved_tensors_hooks(pack, lambda kept: kept())


@wrong("10.5", says="got       off by nan")
def levels_that_grow_by_a_factor():
    def pack(tensor):
        if not tensor.is_floating_point():
            return lambda: tensor
        low, high, dtype = tensor.detach().min(), tensor.detach().max(), tensor.dtype
        if low == high:
            return lambda: torch.full(tensor.shape, low, dtype=dtype)
        step = (high / low).log() / 255
        kept = ((tensor.detach() / low).log() / step).round().byte()
        return lambda: (low * (kept * step).exp()).to(dtype)

    return saved_tensors_hooks(pack, lambda kept: kept())


wrong("10.5", "a mask is saved, too")(packing(lambda tensor: True))
wrong("10.5", "another dtype came out of unpack", "a matrix product in float64 raised RuntimeError")(
    packing(torch.Tensor.is_floating_point, back=lambda values, dtype: values.float())
)
wrong("10.5", "eight bytes a number", "the saved values are too large, float64")(
    packing(lambda tensor: tensor.dtype == torch.float32)
)
wrong("10.5", says="got       2.0")(lambda: saved_tensors_hooks(lambda t: t.detach().half(), lambda t: t))
wrong("10.5", "the function returns nothing", "cannot stand after `with`")(lambda: None)


@wrong("10.5", says="a tensor of equal numbers does not come back")
def takes_no_range_for_zero():
    def pack(tensor):
        if not tensor.is_floating_point():
            return lambda: tensor
        low, high = tensor.detach().min(), tensor.detach().max()
        if low == high:
            return functools.partial(torch.zeros, tensor.shape, dtype=tensor.dtype)
        step, dtype = (high - low) / 255, tensor.dtype
        kept = ((tensor.detach() - low) / step).round().byte()
        return lambda: (kept * step + low).to(dtype)

    return saved_tensors_hooks(pack, lambda kept: kept())


@wrong("10.5", says="a tensor of nothing but 0 raised ZeroDivisionError")
def divides_by_the_range():
    def pack(tensor):
        if not tensor.is_floating_point():
            return lambda: tensor
        low, high = tensor.detach().min(), tensor.detach().max()
        kept, scale, dtype = tensor.detach() - low, 255 / (high - low).item(), tensor.dtype
        kept = (kept * scale).round().byte()
        return lambda: (kept / scale + low).to(dtype)

    return saved_tensors_hooks(pack, lambda kept: kept())


@wrong("10.5", "unpack must make the tensor again")
def hands_back_the_parts():
    return saved_tensors_hooks(lambda tensor: (tensor.byte(), 0), lambda packed: packed)


@wrong("10.5", says="a pass in your block raised AttributeError")
def packs_by_a_method_that_is_none():
    return saved_tensors_hooks(lambda tensor: tensor.to_bytes(), lambda packed: packed)


@wrong("10.5", "pack must leave the tensor as it is")
def works_in_place():
    def pack(tensor):
        return tensor.detach().sub_(tensor.min()).byte()

    return saved_tensors_hooks(pack, lambda packed: packed.float())


# --- twice, an interrupt, sums


def named_while_hooked(loss, is_bad):
    """Return the first node whose gradients are bad, in a backward from the loss, with the hooks still on."""
    found, handles = [], []

    def look(node):
        def hook(made, given):
            if not found and any(one is not None and is_bad(one) for one in made):
                found.append(node.name())

        handles.append(node.register_hook(hook))

    for node in every_node(loss):
        look(node)
    return found, handles


@wrong("10.1", None, "the gradients are not those of one backward")
def goes_back_twice(loss):
    loss.backward(retain_graph=True)
    found, handles = named_while_hooked(loss, lambda grad: grad.isnan().any())
    loss.backward()
    for handle in handles:
        handle.remove()
    return found[0] if found else None


@wrong("10.1", "a sum of infinity and minus infinity")
def looks_at_sums(loss):
    found, handles = named_while_hooked(loss, lambda grad: grad.sum().isnan())
    try:
        loss.backward()
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None


@wrong("10.1", says="raised ZeroDivisionError")
def the_place_of_the_first(loss):
    found, handles = named_while_hooked(loss, lambda grad: grad.isnan().any())
    try:
        loss.backward()
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if 1 / len(found) else None


@wrong("10.1", "not removed")
def cleans_up_after_an_error_only(loss):
    found, handles = named_while_hooked(loss, lambda grad: grad.isnan().any())
    try:
        loss.backward()
    except BaseException:
        for handle in handles:
            handle.remove()
        raise
    return found[0] if found else None


@wrong("10.1", "not removed", "after an interrupt in the backward")
def cleans_up_after_errors_alone(loss):
    found, handles = named_while_hooked(loss, lambda grad: grad.isnan().any())
    try:
        loss.backward()
    except Exception:
        for handle in handles:
            handle.remove()
        raise
    for handle in handles:
        handle.remove()
    return found[0] if found else None


# --- reasons that another answer with the same numbers had, too


wrong("10.1", "not all of the name")(search(lambda made, given: has_nan(made), name=lambda node: type(node).__name__))


@wrong("10.1", "None for every loss: no hook has found anything, or nothing is returned")
def forgets_to_return(loss):
    search(lambda made, given: has_nan(made))(loss)


def stepping_once(handles, lr):
    def step(parameter):
        parameter.data -= lr * parameter.grad
        parameter.grad = None
        for handle in handles:
            handle.remove()

    return step


@wrong("10.3", says="the parameters are not where their steps lead")
def takes_all_hooks_off_after_the_first_step(parameters, lr):
    handles = []
    step = stepping_once(handles, lr)
    handles += [one.register_post_accumulate_grad_hook(step) for one in parameters if one.requires_grad]
    return handles


@wrong("10.3", "the parameter in the place of its gradient")
def takes_the_argument_for_the_gradient(parameters, lr):
    def at(p):
        def step(grad):
            p.data -= lr * grad
            p.grad = None

        return p.register_post_accumulate_grad_hook(step)

    return [at(p) for p in parameters if p.requires_grad]


@wrong("10.3", says="your function returned 4 handles")
def thaws_the_frozen_one(parameters, lr):
    def step(parameter):
        parameter.data -= lr * parameter.grad
        parameter.grad = None

    return [one.requires_grad_().register_post_accumulate_grad_hook(step) for one in parameters]


@wrong("10.4", "a number for each gradient")
def one_hook_that_extends(parameters, norms):
    return register_multi_grad_hook(
        parameters, lambda grads: norms.extend(grad.norm().item() for grad in grads if grad is not None)
    )


@wrong("10.4", "nothing is appended where a parameter takes no part")
def hooks_the_last_parameter(parameters, norms):
    def all_of_them(last):
        norms.append(math.hypot(*(one.grad.norm().item() for one in parameters if one.grad is not None)))

    return parameters[-1].register_post_accumulate_grad_hook(all_of_them)


def packed_as(kind, smallest=torch.Tensor.amin, largest=torch.Tensor.amax, **along):
    def pack(tensor):
        if not tensor.is_floating_point() or not tensor.ndim:
            return tensor.detach()
        low = smallest(tensor.detach(), **along)
        step = (largest(tensor.detach(), **along) - low) / 255
        return ((tensor.detach() - low) / torch.where(step == 0, 1, step)).round().to(kind), low, step, tensor.dtype

    def unpack(packed):
        if isinstance(packed, torch.Tensor):
            return packed
        numbers, low, step, dtype = packed
        return (numbers * step + low).to(dtype)

    return saved_tensors_hooks(pack, unpack)


@wrong("10.5", "a signed byte", says="do not come back well")
def from_minus_128():
    return packed_as(torch.int8)


@wrong("10.5", "eight bytes a number: int64 or float64", says="8.0")
def whole_numbers_of_eight_bytes():
    return packed_as(torch.int64)


@wrong("10.5", "four bytes a number are there: no bytes, but larger numbers", says="4.0")
def whole_numbers_of_four_bytes():
    return packed_as(torch.int32)


@wrong("10.5", says="the saved values are too large, float32")
def a_smallest_value_for_each_column():
    return packed_as(torch.uint8, dim=0, keepdim=True)


@wrong("10.5", says="the saved values are too large, float64")
def a_smallest_value_for_each_row():
    return packed_as(torch.uint8, dim=-1, keepdim=True)


@right("10.5")
def one_smallest_value():
    return packed_as(torch.uint8)


test_right, test_wrong = answers.tests()
