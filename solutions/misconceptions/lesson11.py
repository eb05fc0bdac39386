"""What people get wrong in lesson 11."""

import copy
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# --- 11.1


def memory(tensor):
    return tensor.untyped_storage().nbytes()


def is_tensor(name, value):
    return isinstance(value, torch.Tensor)


def carried(
    size=memory,
    modules=nn.Module.named_modules,
    takes=is_tensor,
    name=lambda place, name: f"{place}.{name}" if place else name,
    tables=lambda module: [vars(module)],
):
    """Find the tensors on a model's modules; each part can be exchanged."""

    def answer(model):
        return {
            name(place, key): size(value)
            for place, module in modules(model)
            for table in tables(module)
            for key, value in table.items()
            if takes(key, value)
        }

    return answer


def base_memory(value):
    base = value if value._base is None else value._base
    return base.nbytes


def what_is_not_saved(model):
    tables = carried(tables=lambda module: [vars(module), module._buffers])
    return {name: size for name, size in tables(model).items() if name not in model.state_dict()}


def shared_memory_once(model):
    seen = set()

    def size(value):
        start = value.untyped_storage().data_ptr()
        return 0 if start in seen else seen.add(start) or memory(value)

    return carried(size)(model)


def removing(model):
    found = carried()(model)
    for name in found:
        place, _, last = name.rpartition(".")
        delattr(model.get_submodule(place), last)
    return found


# --- 11.2


def joining(
    start=lambda prefix: prefix,
    halves="qk",
    kinds=("weight", "bias"),
    ask=lambda names, state: all(name in state for name in names),
    take=lambda state, name: state.pop(name),
    join=torch.cat,
):
    """Join the halves of an old checkpoint; each part can be exchanged."""

    def hook(module, state, prefix, *others):
        for kind in kinds:
            names = [f"{start(prefix)}{half}.{kind}" for half in halves]
            if ask(names, state):
                state[f"{start(prefix)}qk.{kind}"] = join([take(state, name) for name in names])

    return hooking(hook)


def hooking(hook):
    return lambda module: module.register_load_state_dict_pre_hook(hook)


@hooking
def all_or_nothing(module, state, prefix, *others):
    names = [f"{prefix}{half}.{kind}" for half in "qk" for kind in ("weight", "bias")]
    if all(name in state for name in names):
        for kind in ("weight", "bias"):
            state[f"{prefix}qk.{kind}"] = torch.cat([state.pop(f"{prefix}{half}.{kind}") for half in "qk"])


@hooking
def asks_for_weights_alone(module, state, prefix, *others):
    if f"{prefix}q.weight" in state and f"{prefix}k.weight" in state:
        for kind in ("weight", "bias"):
            halves = [state.pop(f"{prefix}{half}.{kind}", None) for half in "qk"]
            if halves[0] is not None and halves[1] is not None:
                state[f"{prefix}qk.{kind}"] = torch.cat(halves)


@hooking
def takes_halves_out_first(module, state, prefix, *others):
    for kind in ("weight", "bias"):
        halves = [state.pop(f"{prefix}{half}.{kind}", None) for half in "qk"]
        if halves[0] is not None and halves[1] is not None:
            state[f"{prefix}qk.{kind}"] = torch.cat(halves)


@hooking
def replaces_in_the_whole_name(module, state, prefix, *others):
    for name in list(state):
        other = name.replace("q.", "k.")
        if name.startswith(f"{prefix}q.") and other in state:
            state[name.replace("q.", "qk.")] = torch.cat([state.pop(name), state.pop(other)])


@hooking
def every_layer_with_such_names(module, state, prefix, *others):
    for name in list(state):
        start, half, kind = ("", *name.split("."))[-3:] if name.count(".") < 2 else name.rsplit(".", 2)
        other = ".".join(filter(None, [start, "k", kind]))
        if half == "q" and other in state:
            state[".".join(filter(None, [start, "qk", kind]))] = torch.cat([state.pop(name), state.pop(other)])


@hooking
def half_missing(module, state, prefix, *others):
    for kind in ("weight", "bias"):
        names = [f"{prefix}{half}.{kind}" for half in "qk"]
        found = [name for name in names if name in state]
        if len(found) == 1:
            raise RuntimeError("one half is missing")
        if found:
            state[f"{prefix}qk.{kind}"] = torch.cat([state.pop(name) for name in names])


def two_rows_each(halves):
    joined = torch.empty(4, *halves[0].shape[1:])
    joined[:2], joined[2:] = halves[0], halves[1]
    return joined


def removing_itself(module):
    def hook(*args):
        handle.remove()
        with joining()(module):
            next(reversed(module._load_state_dict_pre_hooks.values()))(*args[1:])

    handle = module.register_load_state_dict_pre_hook(hook)
    return handle


def one_hook_more(module):
    module.register_load_state_dict_pre_hook(lambda *args: None)
    return joining()(module)


# --- 11.3


def hooking_compiled(
    layer=lambda compiled, name: compiled.get_submodule(name),
    hook=lambda hook: hook,
    register=nn.Module.register_forward_hook,
    reset=torch.compiler.reset,
    times=1,
):
    """Put a hook on a layer of a compiled model; each part can be exchanged."""

    def answer(compiled, name, given):
        handles = [register(layer(compiled, name), hook(given)) for _ in range(times)]
        reset()
        return handles[-1]

    return answer


def of_the_model_inside(compiled, name):
    return compiled._orig_mod.get_submodule(name)


COPIES = []


def of_a_copy(compiled, name):
    COPIES[:] = [copy.deepcopy(compiled._orig_mod)]
    return COPIES[0].get_submodule(name)


def by_the_end_of_the_name(compiled, name):
    return next(module for path, module in compiled.named_modules() if path.endswith(name))


def eager_from_now_on(compiled, name):
    compiled.forward = compiled._orig_mod.forward
    return compiled.get_submodule(name)


def without_handle(compiled, name, hook):
    hooking_compiled()(compiled, name, hook)


def used_up(compiled, name, hook):
    with hooking_compiled()(compiled, name, hook) as handle:
        return handle


# --- 11.4: each is written into a script, so it stands by itself


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


def adds_up_and_halves():
    dist.init_process_group("gloo")
    model = nn.Linear(2, 1, bias=False)
    model(torch.tensor([[1.0, 2.0]]) * (dist.get_rank() + 1)).sum().backward()
    dist.all_reduce(model.weight.grad)
    return (model.weight.grad / 2).tolist()


def same_data():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(2, 1, bias=False))
    model(torch.tensor([[1.0, 2.0]])).sum().backward()
    return model.module.weight.grad.tolist()


def two_passes():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(2, 1, bias=False))
    for _ in range(2):
        model(torch.tensor([[1.0, 2.0]]) * (dist.get_rank() + 1)).sum().backward()
    return model.module.weight.grad.tolist()


def in_the_first_only():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(2, 1, bias=False))
    model(torch.tensor([[1.0, 2.0]]) * (dist.get_rank() + 1)).sum().backward()
    if dist.get_rank() == 0:
        return model.module.weight.grad.tolist()


def keeps_the_tensor():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(2, 1, bias=False))
    model(torch.tensor([[1.0, 2.0]]) * (dist.get_rank() + 1)).sum().backward()
    return model.module.weight.grad


def never_meets():
    model = DistributedDataParallel(nn.Linear(2, 1, bias=False))
    model(torch.tensor([[1.0, 2.0]])).sum().backward()
    return model.module.weight.grad.tolist()


def a_name_of_the_notebook():
    dist.init_process_group("gloo")
    return my_model(dist.get_rank())  # noqa: F821


def with_a_rank(rank):
    return [[1.5, 3.0]]


def by_a_formula():
    dist.init_process_group("gloo")
    size = dist.get_world_size()
    return [[(size + 1) / 2, size + 1.0]]


def written_down():
    return [[1.5, 3.0]]


def returns_nothing():
    result = [[1.5, 3.0]]  # noqa: F841


def exits():
    import sys

    sys.exit()


# --- 11.5


def mean(rows):
    return torch.stack(rows).mean(dim=0)


def remembering(
    key=lambda bucket, parameter: parameter,
    row=lambda gradient, old: gradient + old,
    message=lambda pack, row: pack(row),
    left=lambda gradient, old, row, sent, all_sent: row - sent,
    result=lambda rows, own: mean(rows),
    unpacked=lambda unpack, messages, size: [unpack(one, size) for one in messages],
    finish=lambda gathered, make: gathered.then(make),
    kept=None,
    named=lambda hook: hook,
):
    """Send what is owed and remember the rest; each part can be exchanged."""

    def with_memory(pack, unpack, gather):
        memory = {} if kept is None else kept

        def hook(state, bucket):
            parameters, gradient = bucket.parameters(), bucket.buffer()
            sizes = [one.numel() for one in parameters]
            keys = [key(bucket, one) for one in parameters]
            zeros = [torch.zeros(size) for size in sizes]
            old = torch.cat([memory.get(name, zero) for name, zero in zip(keys, zeros, strict=True)])
            wanted = row(gradient, old)
            packed = message(pack, wanted)
            gathered = gather(packed)
            own = unpack(packed, len(wanted))
            rows = [unpack(one, len(wanted)) for one in gathered.wait()]
            rest = left(gradient, old, wanted, own, mean(rows))
            memory.update(zip(keys, rest.split(sizes), strict=True))
            return finish(gathered, lambda done: result(unpacked(unpack, done.value(), len(wanted)), own))

        return named(hook)

    return with_memory


def by_bucket(key):
    def with_memory(pack, unpack, gather):
        memory = {}

        def hook(state, bucket):
            wanted = bucket.buffer() + memory.get(key(bucket), 0)
            message = pack(wanted)
            memory[key(bucket)] = wanted - unpack(message, len(wanted))
            return gather(message).then(lambda done: mean([unpack(one, len(wanted)) for one in done.value()]))

        return hook

    return with_memory


def with_the_future_as_list(pack, unpack, gather):
    def hook(state, bucket):
        row = bucket.buffer()
        return gather(pack(row)).then(lambda done: mean([unpack(one, len(row)) for one in done]))

    return hook


def without_waiting(pack, unpack, gather):
    def hook(state, bucket):
        row = bucket.buffer()
        rows = [unpack(one, len(row)) for one in gather(pack(row)).value()]
        future = torch.futures.Future()
        future.set_result(mean(rows))
        return future

    return hook


def in_a_future_of_its_own(gathered, make):
    return torch.futures.Future()


MISCONCEPTIONS: dict[str, dict[str, Any]] = {
    "11.1": {
        "forgotten-return": lambda model: None,
        "names-alone": lambda model: list(carried()(model)),
        "removes-them": removing,
        "nothing-found": lambda model: {},
        "parameters": carried(tables=lambda module: [vars(module), module._parameters]),
        "buffers": carried(tables=lambda module: [vars(module), module._buffers]),
        "parameters-and-buffers": carried(tables=lambda module: [vars(module), module._parameters, module._buffers]),
        "buffers-that-are-not-saved": what_is_not_saved,
        "children-only": carried(modules=nn.Module.named_children),
        "leaves-the-model-out": carried(modules=lambda model: list(model.named_modules())[1:]),
        "model-only": carried(modules=lambda model: [("", model)]),
        "no-place": carried(name=lambda place, name: name),
        "begins-with-a-dot": carried(name=lambda place, name: f"{place}.{name}"),
        "own-numbers-only": carried(lambda value: value.nbytes),
        "no-bytes": carried(lambda value: memory(value) // value.element_size()),
        "own-numbers-no-bytes": carried(torch.numel),
        "base-of-the-view": carried(base_memory),
        "shared-memory-once": shared_memory_once,
        "storage-itself": carried(lambda value: value.untyped_storage()),
        "plain-tensors-only": carried(takes=lambda name, value: type(value) is torch.Tensor),
        "with-a-graph-only": carried(takes=lambda name, value: is_tensor(name, value) and value.requires_grad),
        "without-a-graph-only": carried(takes=lambda name, value: is_tensor(name, value) and not value.requires_grad),
        "no-underscore": carried(takes=lambda name, value: is_tensor(name, value) and not name.startswith("_")),
        "float32-only": carried(takes=lambda name, value: is_tensor(name, value) and value.dtype == torch.float32),
    },
    "11.2": {
        "nothing-changed": hooking(lambda *args: None),
        "without-the-prefix": joining(start=lambda prefix: ""),
        "prefix-written-down": joining(start=lambda prefix: prefix and "1."),
        "k-on-top": joining(halves="kq"),
        "weights-alone": joining(kinds=["weight"]),
        "biases-alone": joining(kinds=["bias"]),
        "old-names-stay": joining(take=lambda state, name: state[name]),
        "never-asks": joining(ask=lambda names, state: True),
        "asks-for-q-alone": joining(ask=lambda names, state: names[0] in state),
        "asks-for-k-alone": joining(ask=lambda names, state: names[1] in state),
        "asks-for-any-half": joining(ask=lambda names, state: any(name in state for name in names)),
        "asks-for-weights-alone": asks_for_weights_alone,
        "all-or-nothing": all_or_nothing,
        "takes-halves-out-first": takes_halves_out_first,
        "side-by-side": joining(join=lambda halves: torch.cat(halves, dim=-1)),
        "adds-halves": joining(join=lambda halves: halves[0] + halves[1]),
        "two-rows-each": joining(join=two_rows_each),
        "row-by-row": joining(join=lambda halves: torch.stack(halves, dim=1).flatten(0, 1)),
        "replaces-in-the-whole-name": replaces_in_the_whole_name,
        "every-layer": every_layer_with_such_names,
        "error-of-its-own": half_missing,
        "removes-itself": removing_itself,
        "one-hook-more": one_hook_more,
    },
    "11.3": {
        "no-reset": hooking_compiled(reset=lambda: None),
        "no-reset-inside": hooking_compiled(of_the_model_inside, reset=lambda: None),
        "always-the-whole-model": hooking_compiled(lambda compiled, name: compiled),
        "first-part-of-the-name": hooking_compiled(lambda compiled, name: compiled.get_submodule(name.split(".")[0])),
        "end-of-the-name": hooking_compiled(by_the_end_of_the_name),
        "names-of-the-compiled-model": hooking_compiled(lambda compiled, name: dict(compiled.named_modules())[name]),
        "path-as-attribute": hooking_compiled(lambda compiled, name: getattr(compiled, name)),
        "another-model": hooking_compiled(of_a_copy),
        "registered-twice": hooking_compiled(times=2),
        "pre-hook": hooking_compiled(
            hook=lambda hook: lambda module, args: hook(module, args, args[0]),
            register=nn.Module.register_forward_pre_hook,
        ),
        "backward-hook": hooking_compiled(register=nn.Module.register_full_backward_hook),
        "result-lost": hooking_compiled(hook=lambda hook: lambda *given: hook(*given) and None),
        "always-eager": hooking_compiled(eager_from_now_on),
        "forgotten-handle": without_handle,
        "removed-too-early": used_up,
    },
    "11.4": {
        "not-a-function": lambda: [[1.5, 3.0]],
        "takes-arguments": with_a_rank,
        "local-gradient": local_gradient,
        "divided-again": divides_again,
        "sum": adds_up,
        "half-the-sum": adds_up_and_halves,
        "of-process-0": same_data,
        "written-down": written_down,
        "no-backward-pass": by_a_formula,
        "two-passes": two_passes,
        "forgotten-return": returns_nothing,
        "not-in-every-process": in_the_first_only,
        "no-list": keeps_the_tensor,
        "no-process-group": never_meets,
        "unknown-name": a_name_of_the_notebook,
        "waits-for-others": one_process_only,
        "exits": exits,
    },
    "11.5": {
        "no-hook": lambda pack, unpack, gather: None,
        "other-name": remembering(named=lambda hook: lambda state, b: hook(state, b)),
        "no-memory": remembering(row=lambda gradient, old: gradient),
        "memory-subtracted": remembering(row=lambda gradient, old: gradient - old),
        "half-the-memory": remembering(row=lambda gradient, old: gradient + old / 2),
        "memory-twice": remembering(left=lambda gradient, old, row, sent, all_sent: row - sent + old),
        "gradient-minus-sent": remembering(left=lambda gradient, old, row, sent, all_sent: gradient - sent),
        "remembers-what-was-sent": remembering(left=lambda gradient, old, row, sent, all_sent: sent),
        "remembers-all": remembering(left=lambda gradient, old, row, sent, all_sent: row),
        "minus-what-all-sent": remembering(left=lambda gradient, old, row, sent, all_sent: row - all_sent),
        "one-for-a-shape": remembering(key=lambda bucket, parameter: parameter.shape),
        "one-for-a-bucket": by_bucket(lambda bucket: bucket.index()),
        "one-for-all-hooks": remembering(kept={}),
        "packs-twice": remembering(message=lambda pack, row: [pack(row), pack(row)][0]),
        "sum": remembering(result=lambda rows, own: sum(rows)),
        "half-the-sum": remembering(result=lambda rows, own: sum(rows) / 2),
        "third-of-the-sum": remembering(result=lambda rows, own: sum(rows) / 3),
        "asks-for-the-world-size": remembering(result=lambda rows, own: sum(rows) / dist.get_world_size()),
        "own-message": remembering(result=lambda rows, own: own),
        "first-message": remembering(result=lambda rows, own: rows[0]),
        "returns-nothing-in-then": remembering(result=lambda rows, own: None),
        "mean-of-messages": remembering(
            unpacked=lambda unpack, messages, size: [unpack(torch.stack(messages).float().mean(dim=0), size)]
        ),
        "messages-alone": lambda pack, unpack, gather: lambda state, bucket: gather(pack(bucket.buffer())),
        "no-future": remembering(finish=lambda gathered, make: gathered.then(make).wait()),
        "forgotten-return": remembering(finish=lambda gathered, make: None),
        "never-filled": remembering(finish=in_a_future_of_its_own),
        "future-as-list": with_the_future_as_list,
        "value-too-early": without_waiting,
    },
}
