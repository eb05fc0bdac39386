"""Unusual right answers to lesson 11's exercises, and wrong ones: none is misjudged, and no reason is untrue.

A wrong answer comes with the beginning of the one reason that is true, or None where the check can know none. (The
answers to 11.4 are written into a script, so they stand without decorators.)
"""

import functools

import torch
import torch.distributed as dist
from torch import nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from tests.course.exercises.answers import Answers

answers = Answers("11.1", "11.2", "11.3", "11.4", "11.5")
right, wrong = answers.right, answers.wrong


# --- 11.1


@right("11.1")
def by_dir(model):
    found = {}
    for place, module in model.named_modules():
        own = {*module._parameters, *module._buffers}
        for name in dir(module):
            value = None if name in own else getattr(module, name, None)
            if isinstance(value, torch.Tensor):
                found[f"{place}.{name}".lstrip(".")] = value.untyped_storage().nbytes()
    return found


@right("11.1")
def by_recursion(model, prefix=""):
    found = {}
    for name in set(model.__dict__) - {"_parameters", "_buffers"}:
        if torch.is_tensor(vars(model)[name]):
            found[prefix + name] = vars(model)[name].untyped_storage().size()
    for name, child in model.named_children():
        found |= by_recursion(child, f"{prefix}{name}.")
    return found


wrong("11.1", "All the names are right")(lambda model: dict.fromkeys(by_dir(model), -1))


# --- 11.2


@right("11.2")
def with_the_private_method_and_partial(module):
    def join(kinds, state, prefix, *rest):
        for kind in kinds:
            q, k = state.get(f"{prefix}q.{kind}"), state.get(f"{prefix}k.{kind}")
            if q is None or k is None:
                continue
            joined = torch.empty(len(q) + len(k), *q.shape[1:])
            joined[: len(q)], joined[len(q) :] = q, k
            state[f"{prefix}qk.{kind}"] = joined
            del state[f"{prefix}q.{kind}"], state[f"{prefix}k.{kind}"]

    return module._register_load_state_dict_pre_hook(functools.partial(join, ["weight", "bias"]))


@right("11.2")
def with_a_bound_method(module):
    class Migration:
        def join(self, module, state, prefix, *rest):
            for name in list(state):
                half, dot, kind = name.removeprefix(prefix).partition(".")
                other = f"{prefix}k.{kind}"
                if name.startswith(prefix) and half == "q" and dot and other in state:
                    state[f"{prefix}qk.{kind}"] = torch.cat([state.pop(name), state.pop(other)])

    return module.register_load_state_dict_pre_hook(Migration().join)


# --- 11.3


@right("11.3")
def with_keywords(compiled, name, hook):
    layer = compiled if name == "" else compiled.get_submodule(name)
    handle = layer.register_forward_hook(
        lambda module, args, kwargs, output: hook(module, args, output), with_kwargs=True
    )
    torch.compiler.reset()
    return handle


@right("11.3")
def by_walking_down(compiled, name, hook):
    layer = compiled._orig_mod
    for part in filter(None, name.split(".")):
        layer = getattr(layer, part)
    torch.compiler.reset()
    return nn.Module.register_forward_hook(layer, hook)


def putting(where=lambda compiled, name: compiled.get_submodule(name), reset=True, hook=None, times=1):
    def hook_compiled(compiled, name, given):
        for _ in range(times):
            handle = where(compiled, name).register_forward_hook(hook or given)
        if reset:
            torch.compiler.reset()
        return handle

    return hook_compiled


wrong("11.3", "Your hook is always on the whole model")(putting(lambda compiled, name: compiled._orig_mod))


# the compiler is on again as soon as the answer has returned


wrong("11.3", None)(putting(hook=lambda module, args, output: output + 1))

# --- 11.4


def by_averaging_by_hand():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    weight = torch.zeros(1, 2, requires_grad=True)
    (torch.tensor([[1.0, 2.0]]) * (rank + 1) @ weight.T).sum().backward()
    dist.all_reduce(weight.grad)
    return (weight.grad / size).tolist()


def in_the_comm_hook():
    dist.init_process_group("gloo")
    model, seen = DistributedDataParallel(nn.Linear(2, 1, bias=False)), []

    def hook(state, bucket):
        def mean(done):
            seen.append(done.value()[0] / dist.get_world_size())
            return seen[0]

        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(mean)

    model.register_comm_hook(None, hook)
    model(torch.tensor([[1.0, 2.0]]) * (dist.get_rank() + 1)).sum().backward()
    return [seen[0].tolist()]


for answer in (by_averaging_by_hand, in_the_comm_hook):
    right("11.4")(answer)


def dies():
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


def numbers_from_four():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(2, 1, bias=False))
    model(torch.tensor([[1.0, 2.0]]) * (dist.get_rank() + 4)).sum().backward()
    return model.module.weight.grad.tolist()


wrong("11.4", None, "process 0: ended without a word")(dies)
wrong("11.4", "This isn't the average")(numbers_from_four)
wrong("11.4", "The source of your function")(functools.partial(dies))

# --- 11.5


@right("11.5")
def with_wait(pack, unpack, gather):
    errors = {}

    def hook(state, bucket):
        sizes = [one.numel() for one in bucket.parameters()]
        total = bucket.buffer().clone()
        for one, part in zip(bucket.parameters(), total.split(sizes), strict=True):
            part += errors.get(id(one), 0)
        message = pack(total)
        rest = total - unpack(message, len(total))
        errors.update({id(one): part.clone() for one, part in zip(bucket.parameters(), rest.split(sizes), strict=True)})
        messages = gather(message).wait()
        future = Future()
        future.set_result(sum(unpack(one, len(total)) for one in messages) / len(messages))
        return future

    return hook


@right("11.5")
def kept_on_the_parameters(pack, unpack, gather):
    mine = object()

    def hook(state, bucket):
        parameters = bucket.parameters()
        old = [vars(one).get("left", {}).get(id(mine), torch.zeros_like(one)).flatten() for one in parameters]
        wanted = bucket.buffer() + torch.cat(old)
        message = pack(wanted)
        left = (wanted - unpack(message, len(wanted))).split([one.numel() for one in parameters])
        for one, part in zip(parameters, left, strict=True):
            vars(one).setdefault("left", {})[id(mine)] = part
        return gather(message).then(
            lambda done: functools.reduce(torch.add, (unpack(m, len(wanted)) for m in done.value())) / len(done.value())
        )

    return hook


@wrong("11.5", "For each bucket, call `pack` once")
def sends_parts(pack, unpack, gather):
    def hook(state, bucket):
        row = bucket.buffer()
        sizes = [one.numel() for one in bucket.parameters()]
        message = torch.cat([pack(part) for part in row.split(sizes)])
        return gather(message).then(lambda done: sum(unpack(one, len(row)) for one in done.value()))

    return hook


test_right, test_wrong = answers.tests()
