"""Unusual right answers to lesson 11's exercises, and wrong ones: none is misjudged, and no reason is untrue.

A wrong answer comes with the beginning of the one reason that is true, or None where the check can know none. (The
answers to 11.4 are written into a script, so they stand without decorators.)
"""

import copy
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


@wrong("11.2", "Nothing in the checkpoint has changed")
def a_dictionary_of_its_own(module):
    return module.register_load_state_dict_pre_hook(lambda module, state, prefix, *rest: {**state, f"{prefix}qk": 0})


# --- 11.3


@right("11.3")
def with_dynamos_reset(compiled, name, hook):
    torch._dynamo.reset()
    return compiled.get_submodule(name).register_forward_hook(hook)


@right("11.3")
def on_the_model_inside(compiled, name, hook):
    torch.compiler.reset()
    return compiled._orig_mod.get_submodule(name).register_forward_hook(hook, prepend=True)


@right("11.3")
def by_its_name_in_a_dict(compiled, name, hook):
    layers = dict(compiled._orig_mod.named_modules())
    handle = layers[name].register_forward_hook(hook, always_call=False)
    torch.compiler.reset()
    return handle


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


wrong("11.3", "the graph that was recorded before runs on: torch")(putting(reset=False))
wrong("11.3", "the graph that was recorded before runs on, for")(
    putting(lambda compiled, name: compiled._orig_mod.get_submodule(name), reset=False)
)
wrong("11.3", "always on the whole model")(putting(lambda compiled, name: compiled))
wrong("11.3", "always on the whole model")(putting(lambda compiled, name: compiled._orig_mod))
wrong("11.3", "registered twice")(putting(times=2))
wrong("11.3", None)(putting(hook=lambda module, args, output: None))
wrong("11.3", "another object", "of no forward hook on this model")(
    putting(lambda compiled, name: copy.deepcopy(compiled).get_submodule(name))
)
wrong("11.3", "the compiled model's own names begin with")(
    putting(lambda compiled, name: dict(compiled.named_modules())[name])
)
wrong("11.3", "a path instead of an attribute")(putting(lambda compiled, name: getattr(compiled, name)))


@wrong("11.3", "a pre-hook", "of no forward hook on this model")
def before_the_layer(compiled, name, hook):
    torch.compiler.reset()
    return compiled.get_submodule(name).register_forward_pre_hook(lambda module, args: hook(module, args, args[0]))


# the compiler is on again as soon as the answer has returned
@wrong("11.3", "the graph that was recorded before runs on", "your code left the compiler's stance at force_eager")
def tells_the_compiler_to_run_eagerly(compiled, name, hook):
    torch.compiler.set_stance("force_eager")
    return compiled._orig_mod.get_submodule(name).register_forward_hook(hook)


@wrong("11.3", "the graph that was recorded before runs on", "your code left the compiler's stance off")
def switches_the_compiler_off(compiled, name, hook):
    torch._dynamo.config.disable = True
    return compiled._orig_mod.get_submodule(name).register_forward_hook(hook)


@wrong("11.3", None, "no compiled one")
def runs_the_original_for_ever(compiled, name, hook):
    compiled.forward = compiled._orig_mod.forward
    return compiled.get_submodule(name).register_forward_hook(hook)


@right("11.3")
def not_recorded(compiled, name, hook):
    torch.compiler.reset()
    return compiled.get_submodule(name).register_forward_hook(torch.compiler.disable(hook))


wrong("11.3", None)(
    putting(lambda compiled, name: next(one for path, one in compiled.named_modules() if path.endswith(name)))
)
wrong("11.3", None)(putting(lambda compiled, name: compiled.get_submodule("1")))
wrong("11.3", None)(putting(hook=lambda module, args, output: output + 1))

# --- 11.4


def by_averaging_by_hand():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    weight = torch.zeros(1, 2, requires_grad=True)
    (torch.tensor([[1.0, 2.0]]) * (rank + 1) @ weight.T).sum().backward()
    dist.all_reduce(weight.grad)
    return (weight.grad / size).tolist()


def by_autograd_and_gather():
    dist.init_process_group("gloo")
    layer = nn.Linear(2, 1, bias=False)
    (mine,) = torch.autograd.grad(layer(torch.tensor([[1.0, 2.0]]) * (dist.get_rank() + 1)).sum(), layer.weight)
    everybodys = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everybodys, mine)
    dist.destroy_process_group()
    return torch.stack(everybodys).mean(dim=0).tolist()


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


def by_environment():
    import os

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", rank=rank, world_size=size)
    model = DistributedDataParallel(nn.Linear(2, 1, bias=False))
    model(torch.tensor([[1.0, 2.0]]) * (rank + 1)).sum().backward()
    (parameter,) = model.parameters()
    return parameter.grad.tolist()


def with_a_step():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(2, 1, bias=False))
    before = model.module.weight.detach().clone().zero_()
    model.module.weight.data.zero_()
    model(torch.tensor([[1.0, 2.0]]) * (dist.get_rank() + 1)).sum().backward()
    torch.optim.SGD(model.parameters(), lr=1.0).step()
    return (before - model.module.weight.detach()).tolist()


for answer in (by_averaging_by_hand, by_autograd_and_gather, in_the_comm_hook, by_environment, with_a_step):
    right("11.4")(answer)


def everybody_with_the_same_data():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(2, 1, bias=False))
    model(torch.tensor([[1.0, 2.0]])).sum().backward()
    return model.module.weight.grad.tolist()


def for_two():
    return torch.tensor([[1.5, 3.0]]).tolist()


def dies():
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


def two_passes():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(2, 1, bias=False))
    for _ in range(2):
        model(torch.tensor([[1.0, 2.0]]) * (dist.get_rank() + 1)).sum().backward()
    return model.module.weight.grad.tolist()


def past_ddp():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(2, 1, bias=False))
    model.module(torch.tensor([[1.0, 2.0]]) * (dist.get_rank() + 1)).sum().backward()
    return model.module.weight.grad.tolist()


def the_script_of_the_card():
    dist.init_process_group("gloo")
    rank, seen = dist.get_rank(), []
    model = DistributedDataParallel(nn.Linear(2, 1, bias=False))
    model.module.weight.register_hook(seen.append)
    x = torch.tensor([[1.0, 2.0]]) * (rank + 1)
    if rank == 0:
        model(x).sum().backward()
    del model
    dist.destroy_process_group()
    return seen[0].tolist()


def returns_in_the_first_only():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(2, 1, bias=False))
    model(torch.tensor([[1.0, 2.0]]) * (dist.get_rank() + 1)).sum().backward()
    if dist.get_rank() == 0:
        return model.module.weight.grad.tolist()


wrong("11.4", "this process's own gradient: hooks on the weight run before the average, model.module(x)")(past_ddp)
wrong("11.4", "some wait for others")(the_script_of_the_card)
wrong("11.4", "process 0's gradient for everybody")(everybody_with_the_same_data)
wrong("11.4", None, "process 0: ended without a word")(dies)
wrong("11.4", "two passes")(two_passes)
wrong("11.4", "every process returns", "in process 1, your function returns None")(returns_in_the_first_only)
wrong("11.4", None, "defined with `def`")(lambda: [[1.5, 3.0]])
wrong("11.4", None, "your answer is no function")(functools.partial(for_two))

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
def as_an_object(pack, unpack, gather):
    class Hook:
        def __init__(self):
            self.left = {}

        def __call__(self, state, bucket):
            flat = [
                grad.flatten() + self.left.get(one, 0)
                for one, grad in zip(bucket.parameters(), bucket.gradients(), strict=True)
            ]
            wanted = torch.cat(flat)
            message = pack(wanted)
            sent, start = unpack(message, wanted.numel()), 0
            for one, values in zip(bucket.parameters(), flat, strict=True):
                self.left[one] = values - sent[start : start + len(values)]
                start += len(values)
            return gather(message).then(
                lambda done: torch.stack([unpack(m, wanted.numel()) for m in done.value()]).mean(0)
            )

    return Hook()


@right("11.5")
def into_the_buffer(pack, unpack, gather):
    kept = {}

    def hook(state, bucket):
        for one, grad in zip(bucket.parameters(), bucket.gradients(), strict=True):
            if one in kept:
                grad += kept[one]
        buffer = bucket.buffer()
        message = pack(buffer)
        missing = buffer - unpack(message, buffer.numel())
        start = 0
        for one in bucket.parameters():
            kept[one] = missing[start : start + one.numel()].view_as(one)
            start += one.numel()

        def mean(done):
            buffer.zero_()
            for one in done.value():
                buffer.add_(unpack(one, buffer.numel()), alpha=1 / len(done.value()))
            return buffer

        return gather(message).then(mean)

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


@right("11.5")
def in_two_thens(pack, unpack, gather):
    kept = {}

    def hook(state, bucket):
        size = bucket.buffer().numel()
        wanted = bucket.buffer() + torch.cat([kept.setdefault(p, torch.zeros(p.numel())) for p in bucket.parameters()])
        message, start = pack(wanted), 0
        for p in bucket.parameters():
            part = slice(start, start + p.numel())
            kept[p], start = (wanted - unpack(message, size))[part], part.stop
        futures = gather(message).then(lambda done: [unpack(one, size) for one in done.value()])
        return futures.then(lambda done: sum(done.value()) / len(done.value()))

    return hook


def memory_hook(change):
    """Return an answer like the right one, with one of its lines changed."""

    def with_memory(pack, unpack, gather):
        kept = {}

        def hook(state, bucket):
            parameters, gradient = bucket.parameters(), bucket.buffer()
            sizes = [one.numel() for one in parameters]
            keys = [one.shape if change == "shape" else one for one in parameters]
            old = torch.cat([kept.get(key, torch.zeros(size)) for key, size in zip(keys, sizes, strict=True)])
            wanted = {"subtract": gradient - old, "none": gradient, "half": gradient + old / 2}.get(
                change, gradient + old
            )
            message = torch.cat(list(map(pack, wanted.split(sizes)))) if change == "parts" else pack(wanted)
            mine = unpack(message, len(wanted))
            if change == "size":
                dist.get_world_size()
            left = {"gradient": gradient - mine, "wanted": wanted, "sent": mine, "twice": wanted - mine + old}
            kept.update(zip(keys, left.get(change, wanted - mine).split(sizes), strict=True))

            def mean(done):
                messages = done if change == "future" else done.value()
                parts = torch.stack([unpack(one, len(wanted)) for one in messages])
                if change == "mean of messages":
                    return unpack(torch.stack(messages).float().mean(0), len(wanted))
                results = {"sum": parts.sum(0), "halves": parts.sum(0) / 2, "own": mine, "first": parts[0]}
                return None if change == "nothing" else results.get(change, parts.mean(0))

            return gather(pack(wanted) if change == "packed twice" else message).then(mean)

        return hook

    return with_memory


for change, likely in {
    "subtract": "the memory is subtracted",
    "none": "what was not sent is lost",
    "half": None,
    "gradient": "what is remembered is the gradient minus",
    "wanted": None,
    "sent": None,
    "sum": "the sum of the messages",
    "own": "its own message",
    "first": None,
    "twice": "the old memory counts twice",
    "shape": "one memory for all parameters of a shape",
    "future": "the future itself",
    "halves": "half the sum",
    "mean of messages": None,
    "nothing": "a `return` is missing",
    "parts": None,
    "size": "no process group is here",
    "packed twice": None,
}.items():
    wrong("11.5", likely)(memory_hook(change))


@wrong("11.5", None, "must match the size")
def looks_for_equal_parameters(pack, unpack, gather):
    known = []

    def hook(state, bucket):
        known.extend(one for one in bucket.parameters() if one not in known)

    return hook


wrong("11.5", None, "the future's value is no buffer of this bucket")(
    lambda pack, unpack, gather: lambda state, bucket: gather(pack(bucket.buffer()))
)
wrong("11.5", "a future", "your hook returns no Future")(
    lambda pack, unpack, gather: lambda state, bucket: gather(pack(bucket.buffer())).wait()
)


# --- reasons that another answer with the same outcome had, too


def remembering(key, adds=True):
    def make(pack, unpack, gather):
        kept = {}

        def hook(state, bucket):
            wanted = bucket.buffer() + kept.get(key(bucket), 0.0) if adds else bucket.buffer().clone()
            message = pack(wanted)
            kept[key(bucket)] = wanted - unpack(message, wanted.numel())
            return gather(message).then(
                lambda done: torch.stack([unpack(one, wanted.numel()) for one in done.value()]).mean(dim=0)
            )

        return hook

    return make


wrong("11.5", "one memory for a bucket: parameters move")(remembering(lambda bucket: bucket.buffer().numel()))
wrong("11.5", "what was not sent is lost: it is not remembered, or not added")(
    remembering(lambda bucket: bucket.index(), adds=False)
)


test_right, test_wrong = answers.tests()
