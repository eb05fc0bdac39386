"""What people get wrong in lesson 11."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.course.exercises.wrong import wrong

OTHERS = []

# --- 11.3: a hook that the compiler sees


@wrong("11.3", says="the graph that was recorded before runs on: torch.compiler.reset()")
def forgets_to_reset(compiled, name, hook):
    return (compiled._orig_mod.get_submodule(name) if name else compiled).register_forward_hook(hook)


@wrong("11.3", says="for the model inside as well")
def forgets_to_reset_the_model_inside(compiled, name, hook):
    return compiled._orig_mod.get_submodule(name).register_forward_hook(hook)


@wrong("11.3", says="a copy of the model is another model")
def hooks_another_model(compiled, name, hook):
    OTHERS.append(copy.deepcopy(compiled._orig_mod))
    torch.compiler.reset()
    return OTHERS[-1].get_submodule(name).register_forward_hook(hook)


@wrong("11.3", says="always on the whole model")
def hooks_the_compiled_model(compiled, name, hook):
    return compiled.register_forward_hook(hook)


@wrong("11.3", says="did not return the handle")
def loses_the_handle(compiled, name, hook):
    (compiled._orig_mod.get_submodule(name) if name else compiled).register_forward_hook(hook)
    torch.compiler.reset()


@wrong("11.3", says="registered twice")
def registers_twice(compiled, name, hook):
    layer = compiled._orig_mod.get_submodule(name) if name else compiled
    layer.register_forward_hook(hook)
    torch.compiler.reset()
    return layer.register_forward_hook(hook)


@wrong("11.3", says="is used up")
def uses_the_handle_up(compiled, name, hook):
    with compiled._orig_mod.get_submodule(name).register_forward_hook(hook) as handle:
        torch.compiler.reset()
    return handle


@wrong("11.3", says="raised AttributeError")
def takes_a_name_for_a_method(compiled, name, hook):
    return getattr(compiled, name or "missing").hook(hook)


# --- 11.4: the gradient of everybody


def local_gradient():
    dist.init_process_group("gloo")
    seen, model = [], DistributedDataParallel(nn.Linear(2, 1, bias=False))
    model.module.weight.register_hook(seen.append)
    model(torch.tensor([[1.0, 2.0]]) * (dist.get_rank() + 1)).sum().backward()
    return seen[0].tolist()


def one_process_only():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(2, 1, bias=False))
    if dist.get_rank() == 0:
        model(torch.tensor([[1.0, 2.0]])).sum().backward()
    return model.module.weight.grad.tolist()


def divides_again():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(2, 1, bias=False))
    model(torch.tensor([[1.0, 2.0]]) * (dist.get_rank() + 1)).sum().backward()
    return (model.module.weight.grad / dist.get_world_size()).tolist()


def adds_up():
    dist.init_process_group("gloo")
    model = nn.Linear(2, 1, bias=False)
    model(torch.tensor([[1.0, 2.0]]) * (dist.get_rank() + 1)).sum().backward()
    dist.all_reduce(model.weight.grad)
    return model.weight.grad.tolist()


def writes_it_down():
    return [[1.5, 3.0]]


def never_meets():
    model = DistributedDataParallel(nn.Linear(2, 1, bias=False))
    model(torch.tensor([[1.0, 2.0]])).sum().backward()
    return model.module.weight.grad.tolist()


def keeps_it_inside():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(2, 1, bias=False))
    model(torch.tensor([[1.0, 2.0]]) * (dist.get_rank() + 1)).sum().backward()


def uses_a_name_of_the_notebook():
    dist.init_process_group("gloo")
    return my_model(dist.get_rank())  # noqa: F821


local = wrong("11.4", says="this process's own gradient")(local_gradient)
one_only = wrong("11.4", says="not every one comes to its end")(one_process_only)
again = wrong("11.4", says="divided once more")(divides_again)
summed = wrong("11.4", says="the sum over the processes")(adds_up)
written = wrong("11.4", says="written down, not computed")(writes_it_down)
unmet = wrong("11.4", says="no process group")(never_meets)
inside = wrong("11.4", says="forgotten return")(keeps_it_inside)
unknown = wrong("11.4", says="a name that the new processes do not know")(uses_a_name_of_the_notebook)

# --- 11.5: a memory for any compression


def memory(
    by="parameter", of_gradient=False, divide=True, sign=1, own=False, future=True, everybodys=False, remember=True
):
    def with_memory(pack, unpack, gather):
        kept = {}

        def hook(state, bucket):
            names = bucket.parameters() if by == "parameter" else [bucket.index()]
            sizes = [one.numel() for one in bucket.parameters()] if by == "parameter" else [bucket.buffer().numel()]
            gradient = bucket.buffer()
            old = torch.cat([kept.get(name, torch.zeros(size)) for name, size in zip(names, sizes, strict=True)])
            wanted = gradient + sign * old if remember else gradient
            message = pack(wanted)
            messages = gather(message)
            mine = unpack(message, len(wanted))
            total = sum(unpack(one, len(wanted)) for one in messages.wait())
            mean = total / len(messages.wait())
            sent = mean if everybodys else mine
            left = (gradient if of_gradient else wanted) - sent
            kept.update(zip(names, left.split(sizes), strict=True))
            result = mine if own else mean if divide else total
            return messages.then(lambda done: result) if future else result

        return hook

    return with_memory


no_memory = wrong("11.5", says="what was not sent is lost")(memory(remember=False))
by_bucket = wrong("11.5", says="remember each one's error")(memory(by="bucket"))
gradient_only = wrong("11.5", says="the old memory is in neither")(memory(of_gradient=True))
sums_up = wrong("11.5", says="the sum of the messages")(memory(divide=False))
subtracts = wrong("11.5", says="the memory is subtracted")(memory(sign=-1))
own_message = wrong("11.5", says="its own message")(memory(own=True))
owes_for_all = wrong("11.5", says="each process owes what *it* has not sent")(memory(everybodys=True))
no_future = wrong("11.5", says="your hook returns no Future")(memory(future=False))


@wrong("11.5", says="no argument called `bucket`")
def other_names(pack, unpack, gather):
    return lambda state, b: gather(pack(b.buffer()))


@wrong("11.5", says="forgotten return")
def returns_no_hook(pack, unpack, gather):
    def hook(state, bucket):
        return gather(pack(bucket.buffer()))


@wrong("11.5", says="no buffer of this bucket")
def returns_the_messages(pack, unpack, gather):
    return lambda state, bucket: gather(pack(bucket.buffer()))
