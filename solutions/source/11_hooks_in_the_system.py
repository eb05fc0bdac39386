# %% [markdown]
# # 11 · Why did my hook vanish, fire twice, or stop the compiler?
#
# **Time** 60 minutes, and 68 for what comes after the recap &nbsp;·&nbsp; **You need** lessons 3 and 5; lesson 2 for
# tensor hooks
#
# After this lesson you can
#
# - say what happens to a hook when its model is copied, saved, compiled, or trained in several processes;
# - find out why a saved model is far too large;
# - run a script in several processes from a notebook, and find out which process did what;
# - say what happens to a training that sends a hundredth of its gradient.

# %% tags=["setup"]
import copy

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.hooks import RemovableHandle

import hooklab
from hooklab import check, predict, progress, reveal
from hooklab.course.errors import error_of
from hooklab.course.lesson11 import figures
from hooklab.course.lesson11.explorer import what_is_owed
from hooklab.course.lesson11.helpers import (
    load,
    replace_weight,
    saved_bytes,
    still_fires,
)
from hooklab.course.processes import ProcessesFailed, by_torchrun, launch

torch.set_num_threads(1)

# %% [markdown]
# ## Copies
#
# So far your hooks lived in one model, in one process, run line by line. Outside of lessons a model is copied, saved,
# loaded, compiled, wrapped, and run in many processes at once. What happens to your hook? Let's begin with a copy.

# %%
predict("11.a")

# %% tags=["predict"]
calls = []
model = nn.Linear(1, 1)
handle = model.register_forward_hook(lambda module, args, output: calls.append(module))

twin = copy.deepcopy(model)
handle.remove()
twin(torch.ones(1, 1))

came = {
    "on the original": len(model._forward_hooks),
    "on the copy": len(twin._forward_hooks),
    "calls": len(calls),
}
print("What came out:")
print("hooks on the two models, and entries of `calls`:", came)

# %% tags=["field", "field-37"]
reveal("11.a", came)
assert (
    came == {"on the original": 0, "on the copy": 1, "calls": 1} and calls[0] is twin
), "On this page, the copy keeps its hook, which writes into `calls` once."

# %% [markdown]
# That hook was a **function**. What about a **method**, which belongs to an object?

# %% tags=["figure"]
class Counter:
    count = 0

    def hook(self, module, args, output):
        self.count += 1


counter, model = Counter(), nn.Linear(1, 1)
with model.register_forward_hook(counter.hook):
    twin = copy.deepcopy(model)
twin(torch.ones(1, 1))
(copied_hook,) = twin._forward_hooks.values()
counts = counter.count, copied_hook.__self__.count
print("your counter:", counts[0], "  the copy's counter:", counts[1])
figure = figures.copied_hooks()
plt.show()
assert counts == (0, 1)

# %% [markdown]
# *What to see:* an arrow leads from each model's table of hooks to the hook. `deepcopy` copies no function, so both
# tables lead to the same one. But it copies a method's object: the copy counts for itself, and your counter stays at 0.
#
# So copy first, then register. `hooklab.leftover_hooks(twin)` lists the hooks on a model. ([A thread about
# it](https://github.com/isl-org/MiDaS/issues/251))

# %% [markdown]
# ### Replaced
#
# A hook belongs to an object, not to its name. Below, a hook is registered on a layer's weight, and then the layer is
# changed. Some changes keep the weight, others replace it with another object:

# %% tags=["field", "field-19"]
# still_fires hooks a layer's weight, changes the layer, runs it forward and
# backward, and returns whether the hook ran
fires = {
    "layer.double()": still_fires(lambda layer: layer.double()),
    "load_state_dict(…)": still_fires(load),
    "load_state_dict(…, assign=True)": still_fires(
        lambda layer: load(layer, assign=True)
    ),
    "layer.weight = nn.Parameter(…)": still_fires(replace_weight),
    "copy.deepcopy(layer)": still_fires(copy.deepcopy),
}
for change, does in fires.items():
    print(f"{change:<32} the hook still fires: {does}")
assert list(fires.values()) == [True, True, False, False, False]

# %% [markdown]
# The hooks of a *module* are copied with it, those of a *tensor* aren't. So a deep copy keeps the hooks of its layers
# and loses those of its weights. ([A thread about it](https://github.com/pytorch/pytorch/issues/12603))
#
# ## Files
#
# `torch.save(model)` writes the whole object, including its hook tables. A function is written as its name. A local
# function or a lambda can't be found again by name:

# %% tags=["field", "field-39"]
def build():
    def local_hook(module, args, output):
        pass

    model = nn.Linear(1, 1)
    model.register_forward_hook(local_hook)
    return model


message = error_of(saved_bytes, build())
print(message.replace("Can't get", "Can't pickle"))  # "get" in Python 3.13
print("its state dict:", error_of(saved_bytes, build().state_dict()))
layer = nn.Linear(1, 1)
layer.weight.register_hook(lambda grad: None)
print("a lambda on its weight:", error_of(saved_bytes, layer))
assert (
    "local_hook" in message
    and error_of(saved_bytes, build().state_dict()) == "no error"
)
assert error_of(saved_bytes, layer) == "no error"  # a tensor's hooks are not written

# %% [markdown]
# The state dict contains no hooks, so it has no such problem: save the state dict. The hooks of a tensor aren't
# written either: they are lost without a warning.
#
# A file that is far too large is worse than an error. If a hook has put a tensor on the module, the tensor is saved
# along with it. Keeping only one row doesn't help: a row is a view, and the whole memory behind it is saved. And if the
# tensor is part of a graph, the model can't even be copied:

# %% tags=["field", "field-38", "field-171"]
def after_a_pass(keep):
    """Return a model on which a hook, removed by now, has stored something."""

    def hook(module, args, output):
        module.seen = keep(output)

    model = nn.Linear(4, 4)
    with model.register_forward_hook(hook):
        model(torch.ones(1000, 4))
    return model


with_graph = after_a_pass(lambda output: output)
detached = after_a_pass(torch.detach)
one_row = after_a_pass(lambda output: output.detach()[:1])
message = error_of(copy.deepcopy, with_graph)
print("a copy with a graph:", message.split(".")[0], sep="\n    ")
print("a copy, detached:   ", error_of(copy.deepcopy, detached))
files = {"nothing": nn.Linear(4, 4), "the output": detached, "one row of it": one_row}
sizes = {kept: saved_bytes(model) for kept, model in files.items()}
for kept, size in sizes.items():
    print(f"bytes in the file, if the hook stored {kept:<14} {size:>6,}")
assert "graph leaves) support the deepcopy protocol" in message
assert error_of(copy.deepcopy, detached) == "no error"
assert sizes["nothing"] < 16000 < min(sizes["the output"], sizes["one row of it"])

# %% [markdown] tags=["exercise"]
# ### Exercise 11.1 · What does this model carry?
# ●●○ · 7 minutes
#
# A saved model is too large, and you want to know why. Write `carried(model)`: find every **tensor that is an
# attribute of a module and neither a parameter nor a buffer**. Return a dictionary from its dotted name
# (`"blocks.0.seen"`, or `"seen"` on the model itself) to the number of bytes that it keeps in memory. A view keeps
# all of the memory that it looks into.
#
# You don't have to find tensors in lists or dictionaries. Change nothing.
#
# <details><summary>Hint: where are the attributes of a module?</summary>
#
# In `vars(module)`. Parameters, buffers and submodules are in their own tables there: `_parameters`, and so on.
# </details>
# <details><summary>Hint: a row of 4 numbers, and 16000 bytes?</summary>
#
# `tensor.untyped_storage().nbytes()` is the size of the memory behind a view.
# </details>

# %% tags=["solution"]
def carried(model: nn.Module) -> dict[str, int]:
    """Return name -> bytes for each tensor that isn't a parameter or buffer."""
    ### BEGIN SOLUTION
    found = {}
    for place, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                found[f"{place}.{name}" if place else name] = (
                    value.untyped_storage().nbytes()
                )
    return found
    ### END SOLUTION


# %% tags=["check"]
check("11.1", carried)

# %% [markdown]
# ## The compiler
#
# The first time you call a compiled model, PyTorch follows your Python code and records its tensor operations as a
# graph. Later calls run the graph instead of your Python code. (Here `backend="eager"` skips the slow part, generating
# machine code.)

# %%
predict("11.b")


# %% tags=["predict", "figure"]
def sevens(module, args, output):
    return output * 0 + 7


torch.compiler.reset()
model, one, two = nn.Sequential(nn.Linear(1, 1)), torch.ones(1, 1), torch.ones(2, 1)
compiled = torch.compile(model, backend="eager")
compiled(one)
handle = model[0].register_forward_hook(sevens)
late = [bool((compiled(x) == 7).all()) for x in (one, two, one)]
with torch.no_grad():
    late.append(compiled(one).item() == 7)

print("What came out:")
print("sevens, for batches of 1, 2, 1, and of 1 under no_grad:", *late)
figure = figures.which_graph(late)
plt.show()

# %%
reveal("11.b", late[:3])
assert late == [False, True, False, True], (
    "On this page, the batch of 2 gives sevens, and the call under no_grad."
)

# %% [markdown]
# *What to see:* a grey call runs the graph that was recorded before the hook came. A green call found no graph that fits
# (another size, or `no_grad`), so it recorded a new one.
# `torch.compiler.reset()` discards every graph, so the next call records a new one:

# %%
torch.compiler.reset()
after_reset = compiled(one).item() == 7
handle.remove()
print("after a reset:", after_reset, "  after remove():", compiled(one).item() == 7)
assert after_reset and compiled(one).item() != 7

# %% [markdown]
# A hook that comes after two batch sizes is even later. By then PyTorch has a graph that fits nearly every size, so
# nothing is recorded any more:

# %%
torch.compiler.reset()
for size in (2, 3):
    compiled(torch.ones(size, 1))
with model[0].register_forward_hook(sevens):
    late = [bool((compiled(torch.ones(size, 1)) == 7).all()) for size in (5, 9, 4)]
print("batches of 5, 9 and 4, sevens:", late)
assert late == [False, False, False]

# %% [markdown] tags=["field", "field-57"]
# So register the hook **before** the first compiled call, or call `torch.compiler.reset()` afterwards. Removing is
# safe: PyTorch notices that a recorded hook is gone, and records again. ([A thread about
# it](https://github.com/pytorch/pytorch/issues/117758))
#
# `hooklab` avoids the question. While a `capture`, `edit` or `monitor` block is open, compiled models run eagerly, so
# every hook runs, early or late. When the block ends, the recorded graphs are used again.

# %%
with hooklab.capture(compiled, "0") as seen:
    expected = compiled(one)
print("captured from a compiled model:", torch.equal(seen["0"], expected.detach()))
assert torch.equal(seen["0"], expected.detach()) and hooklab.leftover_hooks(model) == []

# %% [markdown] tags=["exercise"]
# ### Exercise 11.3 · A hook that the compiler sees
# ●●○ · 5 minutes
#
# Write `hook_compiled(compiled, name, hook)`. `compiled` comes from `torch.compile` and has been called before. Register
# `hook` as a forward hook on the submodule called `name` (`""` is the whole model), make sure that the next compiled
# call runs it, and return the handle. (Exercises 11.2 and 11.5 are in "If you want more".)
#
# <details><summary>Hint: how do I find the layer?</summary>
#
# `compiled.get_submodule(name)`: a compiled model passes attribute look-ups on to the original.
# </details>
# <details><summary>Hint: my hook is registered, but never runs</summary>
#
# The call runs a graph that was recorded earlier. How do you discard it?
# </details>

# %% tags=["solution"]
def hook_compiled(compiled: nn.Module, name: str, hook) -> RemovableHandle:
    """Register a forward hook that runs in compiled calls; return the handle."""
    ### BEGIN SOLUTION
    handle = compiled.get_submodule(name).register_forward_hook(hook)
    torch.compiler.reset()
    return handle
    ### END SOLUTION


# %% tags=["check"]
check("11.3", hook_compiled)

# %% [markdown]
# ## It fires twice
#
# **Activation checkpointing** saves memory: it doesn't keep the values inside a block, and runs the block again in
# the backward pass. So hooks inside run again, too. Here each layer of a block has a hook that writes down its number.

# %%
predict("11.c")


# %% tags=["predict", "field", "field-147"]
def runs(remove=False, **options):
    block, ran = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)), []
    handles = [
        layer.register_forward_hook(
            lambda module, args, output, name=name: ran.append(name)
        )
        for name, layer in block.named_children()
    ]
    y = checkpoint(block, torch.ones(1, 2, requires_grad=True), **options)
    for handle in handles if remove else []:
        handle.remove()
    ran.append("backward")
    y.sum().backward()
    return ran


ran = runs(use_reentrant=False)
print("What came out:")
print("today's way:  ", *ran)
print("reentrant way:", *runs(use_reentrant=True))

# %%
reveal("11.c", [ran.count("0"), ran.count("2")])
assert ran == ["0", "1", "2", "backward", "0", "1"], (
    "With the page's block, today's way runs layers 0 and 1 again."
)
assert runs(use_reentrant=True) == ["0", "1", "2", "backward", "0", "1", "2"], (
    "With the page's block, the reentrant way runs all three layers again."
)

# %% [markdown]
# So don't trust a counter inside a checkpoint. And a list of activations there keeps the memory that you wanted to save.
# The second run happens inside `backward()`. So if a hook only reads, register it in a `with` block that ends before
# `backward()`. If it changes an output, it has to stay: both runs must compute the same.

# %%
print(*(in_time := runs(remove=True, use_reentrant=False)))
assert in_time == ["0", "1", "2", "backward"]

# %% [markdown]
# ## Several processes
#
# Large models are trained by many processes. Each has a copy of the model and a part of the batch, and before each
# step they average their gradients. `DistributedDataParallel`, or DDP, does this **with hooks**.
#
# Below is a whole program for them. `init_process_group` connects the processes, and `"gloo"` carries messages
# between CPUs. Each process has a number, its **rank**. Process 0 has the data 1 and process 1 has the data 3, so
# these are also their gradients. Below, `launch` writes the function into a script and starts it twice.

# %%
def two_gradients():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(1, 1, bias=False))
    weight, seen = model.module.weight, {}

    def tensor_hook(grad):
        seen["tensor hook"] = grad.item()

    def post_accumulate(parameter):
        seen["post-accumulate hook"] = parameter.grad.item()

    weight.register_hook(tensor_hook)
    weight.register_post_accumulate_grad_hook(post_accumulate)
    model(torch.tensor([[1.0 + 2.0 * rank]])).sum().backward()
    print(f"rank {rank} of {dist.get_world_size()}: p.grad = {weight.grad.item()}")
    del model  # before its process group (the reason comes after the recap)
    dist.destroy_process_group()
    return seen


# %%
predict("11.d")

# %% tags=["predict"]
print("What came out:")
both = launch(two_gradients)
print("process 0 saw", both[0])
print("process 1 saw", both[1])

# %%
reveal("11.d", list(both[0].values()))
assert list(both[0].values()) == [1.0, 1.0], (
    "With the page's data, both hooks of process 0 see 1."
)
assert list(both[1].values()) == [3.0, 3.0], (
    "With the page's data, both hooks of process 1 see 3."
)

# %% tags=["figure", "folded"]
print("What came out:")
figure = figures.under_ddp(both)
plt.show()

# %% [markdown] tags=["field", "field-164"]
# *What to see:* time goes from left to right, one row per process. The green band is where the processes meet.
#
# How does DDP know when to average? It divides the parameters into **buckets**, groups whose gradients are sent
# together. It has its own hook on the node that writes a parameter's `.grad`, and once all gradients of a bucket are
# there, it averages the bucket ([DDP's design](https://docs.pytorch.org/docs/stable/notes/ddp.html)).

# %% [markdown] tags=["exercise"]
# ### Exercise 11.4 · Fix it: the gradient of everybody
# ●●○ · 8 minutes
#
# Write `everybodys_gradient()`. Every process should return the gradient that the optimizer will use: the average
# over **all** processes, however many there are, as a list shaped like the weight, such as `[[1.0, 2.0]]`.
#
# Process 0 has the data `[[1, 2]]`, process 1 has `[[2, 4]]`, and so on; that line is right. But the program below
# returns something else, or nothing at all. Fix it.
#
# ```python
# def everybodys_gradient():
#     dist.init_process_group("gloo")
#     rank, seen = dist.get_rank(), []
#     model = DistributedDataParallel(nn.Linear(2, 1, bias=False))
#     model.module.weight.register_hook(seen.append)
#     x = torch.tensor([[1.0, 2.0]]) * (rank + 1)
#     if rank == 0:
#         model(x).sum().backward()
#     del model
#     dist.destroy_process_group()
#     return seen[0].tolist()
# ```
#
# Your function runs in other processes. They know `torch`, `dist`, `nn`, `DistributedDataParallel` and `hooklab`, and
# nothing else of this notebook.
#
# <details><summary>Hint: "Connection closed by peer", "Read error"</summary>
#
# One process waits for the other in `backward()`. Which one doesn't call it?
# </details>
# <details><summary>Hint: each process returns something else</summary>
#
# A hook on the weight sees the gradient of its own process. Where is the average, and when?
# </details>

# %% tags=["solution"]
def everybodys_gradient():
    """Return the averaged gradient of the weight, as a list, in every process."""
    ### BEGIN SOLUTION
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(2, 1, bias=False))
    x = torch.tensor([[1.0, 2.0]]) * (dist.get_rank() + 1)
    model(x).sum().backward()
    gradient = model.module.weight.grad.tolist()
    del model
    dist.destroy_process_group()
    return gradient
    ### END SOLUTION


# %% tags=["check"]
check("11.4", everybodys_gradient)

# %% [markdown]
# ## The hook between the processes
#
# In every step, the processes exchange the gradient of every parameter. One more kind of hook decides what is sent:
# `register_comm_hook(state, hook)`. DDP calls the hook for each bucket **instead of** averaging. `bucket.buffer()`
# holds the gradients of the bucket in one row.
#
# The hook doesn't wait for the other processes. It returns a `Future`, which stands for a value that will come, and
# `future.then(f)` adds a step to it: once the value is there, `f` receives the future, reads its `.value()`, and returns
# the final result. (The hook's second argument must be called `bucket`: DDP checks the name.)
#
# Two calls let the processes talk: `dist.all_reduce` adds up the tensors of all of them, and `dist.all_gather` collects
# them in a list, one from each. After `all_reduce` the value of the future is a list with one tensor, hence the `[0]`.

# %% tags=["field", "field-163", "hook-ddp-comm"]
def by_hand(state, bucket):
    total = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return total.then(lambda done: done.value()[0] / dist.get_world_size())


def with_a_comm_hook():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(1, 1, bias=False))
    model.register_comm_hook(None, by_hand)
    model(torch.tensor([[1.0 + 2.0 * dist.get_rank()]])).sum().backward()
    return model.module.weight.grad.item()


averages = launch(with_a_comm_hook, by_hand)
print("the gradient in each process:", averages)
assert averages == [2.0, 2.0]

# %% [markdown]
# ### A hundredth of the gradient
#
# Now let's be brutal. The gradient of the network that reads digits has 3,818 numbers. Send only the 38 largest, with
# their places, and set the others to zero. Or do the same with a **memory**: keep what wasn't sent, and add it to the
# next gradient.

# %%
def largest(values, share):
    """Return the largest numbers of a gradient and their places, as two rows."""
    places = values.abs().topk(round(share * values.numel())).indices
    return torch.stack([places.float(), values[places]])


def unpacked(message, size):
    values = torch.zeros(size)
    values[message[0].long()] = message[1]
    return values


def compressing(share, memory, sent):
    """Return a comm hook; `sent` counts how often each number was sent."""
    kept = {}

    def hook(state, bucket):
        wanted = bucket.buffer() + kept.get(bucket.index(), 0.0)
        message = largest(wanted, share)
        mine = unpacked(message, wanted.numel())
        if memory:
            kept[bucket.index()] = wanted - mine
        sent.add_(mine != 0)
        parts = [torch.empty_like(message) for _ in range(dist.get_world_size())]
        arrived = dist.all_gather(parts, message, async_op=True).get_future()
        return arrived.then(
            lambda done: torch.stack(
                [unpacked(part, wanted.numel()) for part in parts]
            ).mean(dim=0)
        )

    return hook


# %%
def three_ways():
    from hooklab.course.lesson11.helpers import NUMBERS, train

    dist.init_process_group("gloo")
    came = {}
    for way in ("all", "1 % with a memory", "1 % without"):
        sent = torch.zeros(NUMBERS)
        hook = None if way == "all" else compressing(0.01, "memory" in way, sent)
        came[way] = train(hook), sent  # five epochs with DDP; the accuracy after each
    dist.destroy_process_group()
    return came


# %%
predict("11.e")

# %% tags=["predict", "figure"]
print("What came out:")
mine, others = launch(three_ways, largest, unpacked, compressing, seconds=110)
last = {name: accuracies[-1] for name, (accuracies, _) in mine.items()}
for name, accuracy in last.items():
    behind = accuracy < max(last.values()) - 0.1
    print(f"{name:<18}", "far behind" if behind else "as far as the best, or nearly")

trained = {
    name: (right, sent + others[name][1]) for name, (right, sent) in mine.items()
}
never = {name: (sent == 0).float().mean().item() for name, (_, sent) in trained.items()}
figure = figures.compressed(trained)
plt.show()

# %%
reveal("11.e", last)
assert (
    last["all"] > 0.85
    and last["1 % with a memory"] > 0.9
    and last["1 % without"] < 0.82
), "In the page's training, only the network that forgets is far behind."
assert never["1 % without"] > 0.75 and never["1 % with a memory"] < 0.6, (
    "In the page's training, without a memory, three in four numbers are never sent."
)
assert trained["1 % with a memory"][0][1] < trained["all"][0][1], (
    "In the page's training, the network with a memory is behind after two epochs."
)

# %% [markdown]
# *What to see:* left, the green curve is late and then arrives; the orange one stays behind. Right, the share of the
# 3,818 numbers that was sent at least once: even with a memory, only about half.
#
# Here is the same on a small scale: eight numbers, and two of them are sent in each step.

# %% tags=["explorer"]
what_is_owed()

# %% [markdown]
# *What to see:* left, a green frame marks the numbers that this step sends. Without a memory they are the same two in
# every step. With one, what wasn't sent is kept (grey) and added to the new gradient (orange), until it is among the
# largest: a small number arrives late, or is still waiting at the end, but nothing is lost. Number 8 changes its sign in
# each step, so it cancels out in the memory. Right, the sums over all steps so far: where green fills the light bar, all
# has arrived. So a compression that is far off in *every single* step can be good enough, if one line of code keeps the
# rest.

# %% [markdown] tags=["recap"]
# ## Recap
#
# A hook belongs to an object, and runs where that object is called. Copies, files, compilers and launchers create
# other objects, or call other objects.
#
# | what happens to the model | what happens to the hook |
# |---|---|
# | `copy.deepcopy` | modules keep theirs: functions are shared, a method's object is copied; tensors lose theirs |
# | a layer or parameter is replaced, `assign=True` | it stays on the old object |
# | `torch.save(model)` | a local function or lambda raises an error; tensor hooks are lost; what a hook has put on a module is in the file |
# | `load_state_dict` | it stays (↓ and state dicts have their own hooks) |
# | `torch.compile` | it runs if it was there when the graph was recorded: at the first call, after a reset, for the second batch size (from then on one graph fits nearly every size); on the compiled module itself it always runs |
# | checkpointing | it runs again in the backward pass |
# | DDP | it runs in each process, with that process's values and gradients; the average comes after all hooks of the backward pass |
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | state dict | 状态字典 | the names and tensors that a module saves and loads |
# | ↓ graph break | 图中断 | where the compiler has to stop recording and start again |
# | activation checkpointing | 激活检查点 | don't keep what is inside a block, and run it again in the backward pass |
# | rank | 进程序号 | the number of a process among those that train together |
# | bucket | 梯度桶 | parameters whose gradients are sent together |
# | communication hook | 通信钩子 | decides what is sent between processes, and what happens to it |
# | error feedback | 误差反馈 | what a compression leaves out is added to the next gradient |
#
# (↓ is shown below, in "If you want more".) PyTorch's own page on the hooks between processes is [DDP communication
# hooks](https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html).

# %% [markdown] tags=["quiz"]
# ### Three questions
#
# **1.** You deep-copy a model as a teacher (an average of the student). Now your logger shows each layer twice per
# step. Why?
#
# <details><summary>Answer</summary>
#
# The teacher's layers have the same hook function, and it writes into the same log. Copy first and register
# afterwards, or remove the hooks from the copy; `hooklab.leftover_hooks` lists them.
# </details>
#
# **2.** A colleague clips each gradient in a tensor hook and trains with DDP on eight GPUs. On one GPU, with the
# whole batch, the result differs. Why?
#
# <details><summary>Answer</summary>
#
# The hook clips each process's own gradient, and the average of clipped gradients isn't the clipped average. Clip
# after `backward()`.
# </details>
#
# **3.** A service runs a compiled model. You register a hook to see an activation. For most requests it stays silent,
# without an error. Why?
#
# <details><summary>Answer</summary>
#
# Graphs recorded before you registered the hook don't contain it. After two batch sizes PyTorch has a graph that fits
# nearly every size, so hardly anything is recorded any more. Call `torch.compiler.reset()`, so that the next call
# records a new one. Or open a `hooklab.capture` block, in which the model runs eagerly.
# </details>

# %%
progress(11)

# %% [markdown]
# ## If you want more

# %% [markdown]
# ### Loading has its own hooks
#
# Your new model calls a layer `body`; last year's checkpoints call it `fc`. Instead of converting all files, let the
# module rename the keys while it loads. There are four hooks around a state dict. Here they are in the order in which
# they run:

# %% tags=["field", "field-162", "hook-state-dict-pre", "hook-state-dict", "hook-load-state-dict-pre", "hook-load-state-dict-post"]
def before_load(module, state_dict, prefix, *others):
    order.append("load pre")
    old, new = prefix + "fc.", prefix + "body."
    for name in [name for name in state_dict if name.startswith(old)]:
        state_dict[new + name.removeprefix(old)] = state_dict.pop(name)


def write(word):
    return lambda module, *others: order.append(word)


def after_load(module, keys):
    order.append(f"load post: {keys.missing_keys}")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(2, 1)
        self.register_state_dict_pre_hook(write("save pre"))
        self.register_state_dict_post_hook(write("save post"))
        self.register_load_state_dict_pre_hook(before_load)
        self.register_load_state_dict_post_hook(after_load)


order, net = [], Net()
net.state_dict()
old = {"fc.weight": torch.tensor([[1.0, 2.0]]), "fc.bias": torch.tensor([3.0])}
net.load_state_dict(old)

print(order)
print("loaded:", net.body.weight.tolist(), net.body.bias.tolist())
assert order == ["save pre", "save post", "load pre", "load post: []"]
assert net.body.weight.tolist() == [[1.0, 2.0]]
assert list(old) == ["fc.weight", "fc.bias"]

# %% [markdown]
# The pre-hook receives a copy of the caller's dictionary. It may rename, split or compute its entries: the copy is
# loaded, and the caller's dictionary stays unchanged. Two things are easy to miss:
#
# - **`prefix`**: inside a larger model, this module's keys start with `"encoder."`, or whatever the module is called
#   there.
# - **`strict`** still works: names are compared after the hook has run. If something is missing, loading fails, and
#   the error names it.

# %% [markdown] tags=["exercise"]
# ### Exercise 11.2 · Two layers become one
# ●●○ · 8 minutes
#
# An old attention layer had two linear layers, `q` and `k`. The new one has a single layer `qk`: its weight is the
# weight of `q` on top of that of `k`, and the same for the bias. (Some of these layers have no bias, and `q` and `k`
# can have different heights.)
#
# Write `accept_old_layout(module)`. Register a hook on `module`, a new attention layer, so that old and new
# checkpoints load, wherever in a model the layer is. Return the handle. If one half is missing, loading fails as it
# would without your hook, with an error that names the other half as it is in the file (`q.weight`, say).
#
# <details><summary>Hint: it works alone, but not inside a larger model</summary>
#
# There the keys start with `prefix`.
# </details>
# <details><summary>Hint: one half is missing, and I get a KeyError</summary>
#
# Join the two only if both are there. Otherwise change nothing: strict loading then reports the names.
# </details>

# %% tags=["solution"]
def accept_old_layout(module: nn.Module) -> RemovableHandle:
    """Let the module load `q` and `k` into its `qk`; return the handle."""

    ### BEGIN SOLUTION
    def join(module, state_dict, prefix, *others):
        for kind in ("weight", "bias"):
            names = [f"{prefix}{half}.{kind}" for half in "qk"]
            if all(name in state_dict for name in names):
                state_dict[f"{prefix}qk.{kind}"] = torch.cat(
                    [state_dict.pop(name) for name in names]
                )

    return module.register_load_state_dict_pre_hook(join)
    ### END SOLUTION


# %% tags=["check"]
check("11.2", accept_old_layout)

# %% [markdown]
# ### Started by torchrun
#
# In a terminal you'd use `torchrun`, PyTorch's own program for this. In the folder of a script that ends with
# `two_gradients()`:
#
# ```bash
# torchrun --standalone --nproc-per-node 2 two_gradients.py
# ```
#
# Here the lesson runs it for you. It takes some seconds, because each process is a new Python:

# %%
print(by_torchrun(two_gradients))

# %% [markdown]
# ### Waiting for a process that doesn't come
#
# Several processes can fail in a way that one can't: **some wait for one that never comes**, and nothing happens, for
# half an hour by default. `launch` has a time limit. If one process fails, it ends all of them, and shows what each
# has printed. Here process 1 takes another path than process 0, as happens if too much code is inside an `if rank ==
# 0:`.

# %% tags=["field", "field-168"]
def only_one_talks():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(1))  # waits for all processes
    else:
        raise SystemExit("process 1 had nothing to say")


try:
    launch(only_one_talks)
except ProcessesFailed as error:
    failed = error

lines = failed.outputs[0].splitlines()
print("process 1:", failed.outputs[1].strip())
print("process 0 was at:", next(line.strip() for line in lines if "waits" in line))
assert 0 not in failed.ends  # neither ended well

# %% [markdown] tags=["exercise"]
# ### Exercise 11.5 · A memory for any compression
# ●●● · 20 minutes
#
# Write `with_memory(pack, unpack, gather)`. It returns a comm hook that adds a memory to any compression:
#
# - `pack(values)` turns a bucket's gradients, in one row, into a message;
# - `unpack(message, size)` turns a message back into a row of `size` numbers;
# - `gather(message)` returns a `Future` of the list of all processes' messages.
#
# The hook returns a `Future` of the mean of what all processes sent, and remembers what this process didn't send.
#
# `compressing` above ignores one thing: after its first step, DDP puts the parameters into **other buckets, in
# another order**. So remember the error of each *parameter*. `bucket.parameters()` lists them in the order of the
# buffer.
#
# <details><summary>Hint: the future</summary>
#
# `gather(message).then(function)`: the function receives the Future itself, and its `.value()` is the list.
# </details>
# <details><summary>Hint: from a buffer to its parameters and back</summary>
#
# `buffer.split([p.numel() for p in bucket.parameters()])`, and `torch.cat`.
# </details>

# %% tags=["solution"]
def with_memory(pack, unpack, gather):
    """Return a comm hook that remembers what pack and unpack lose."""
    ### BEGIN SOLUTION
    kept = {}

    def hook(state, bucket):
        parameters = bucket.parameters()
        old = [kept.get(one, torch.zeros(one.numel())) for one in parameters]
        wanted = bucket.buffer() + torch.cat(old)
        message = pack(wanted)
        left = wanted - unpack(message, wanted.numel())
        kept.update(
            zip(
                parameters, left.split([one.numel() for one in parameters]), strict=True
            )
        )

        def mean(done):
            rows = [unpack(one, wanted.numel()) for one in done.value()]
            return torch.stack(rows).mean(dim=0)

        return gather(message).then(mean)

    return hook
    ### END SOLUTION


# %% tags=["check"]
check("11.5", with_memory)

# %% [markdown]
# ### hooklab in each process
#
# Each process has its own model and its own part of the batch, so it captures its own values. An `edit` in one
# process doesn't affect the others. `ManifoldMixup` needs a generator with the same seed in each process: they must
# agree on the layer and on λ, while each mixes its own examples.

# %%
def tools():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(2, 3, bias=False), nn.Linear(3, 2, bias=False))
    )
    x, y = torch.full((4, 2), rank + 1.0), torch.tensor([0, 1, 0, 1])
    refused = ""
    try:
        with hooklab.ManifoldMixup(model.module, ["0"])(x, y):
            pass
    except RuntimeError as error:
        refused = str(error).split(":")[0]
    mix = hooklab.ManifoldMixup(
        model.module, ["0"], generator=torch.Generator().manual_seed(5)
    )
    with (
        mix(x, y) as mixed,
        hooklab.monitor(model.module) as health,
        hooklab.capture(model.module, "0", grads=True) as seen,
    ):
        model(mixed.x).sum().backward()
    first = seen["0"] / (rank + 1)
    return (
        refused,
        mixed.layer,
        mixed.lam,
        first,
        seen.grad("0"),
        model.module[0].weight.grad,
        health.steps,
    )


(refused, *zero), (_, *one) = launch(tools)
print("without a generator:", refused)
print(
    "the same layer and λ:", zero[:2] == one[:2], "  each its own activations:",
    torch.allclose(zero[2], one[2])
)
print("the same averaged gradient:", torch.equal(zero[4], one[4]))
assert refused.startswith("several processes must agree") and zero[:2] == one[:2]
assert torch.allclose(zero[2], one[2]) and torch.equal(
    zero[4], one[4]
)  # x is twice as large in process 1
assert zero[5] == one[5] == [0]

# %% [markdown]
# ### What a smaller message costs
#
# Two other compressions are half precision and **PowerSGD**, which sends two thin matrices whose product is close to
# the gradient. For the digits network: how many bytes does one process pass on, and how far off is the average? (How
# many times they travel over the network depends on the wiring and the algorithm.)

# %% tags=["hook-ddp-comm"]
def half_precision(state, bucket):
    total = dist.all_reduce(bucket.buffer().half(), async_op=True).get_future()
    return total.then(lambda done: done.value()[0].float() / dist.get_world_size())


def gradient_with(hook, state=None, steps=1):
    """Return a gradient averaged with this hook, and the bytes sent for it."""
    from hooklab.course.digits import DigitsCNN, digits
    from hooklab.course.lesson11.helpers import counting_bytes

    torch.manual_seed(0)
    model, data, rank = DistributedDataParallel(DigitsCNN()), digits(), dist.get_rank()
    if hook is not None:
        model.register_comm_hook(state, hook)
    for _ in range(steps):
        model.zero_grad()
        with counting_bytes() as counted:
            mine = slice(32 * rank, 32 * rank + 32)
            nn.functional.cross_entropy(
                model(data.train_images[mine]), data.train_labels[mine]
            ).backward()
    return torch.cat([one.grad.flatten() for one in model.parameters()]), sum(counted)


def four_ways():
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

    dist.init_process_group("gloo")
    state = power.PowerSGDState(
        None,
        matrix_approximation_rank=1,
        start_powerSGD_iter=2,
        use_error_feedback=False,
    )
    plain, _ = gradient_with(None)
    ways = {
        "by hand": (by_hand,),
        "float16": (half_precision,),
        "PowerSGD, rank 1": (power.powerSGD_hook, state, 3),
    }
    came = {name: gradient_with(*way) for name, way in ways.items()}
    dist.destroy_process_group()
    return {
        name: (count, ((got - plain).norm() / plain.norm()).item())
        for name, (got, count) in came.items()
    }


# %%
came, _ = launch(four_ways, by_hand, half_precision, gradient_with)
for name, (count, error) in came.items():
    how_far = (
        "exact"
        if error < 1e-6
        else "off by less than a thousandth"
        if error < 1e-3
        else "off by more than a tenth"
    )
    print(f"{name:<18}{count:>7,} bytes a step   {how_far}")
assert came["by hand"][0] == 3818 * 4 and came["float16"][0] == 3818 * 2
assert came["by hand"][1] < 1e-6 < came["float16"][1] < 1e-3
assert came["PowerSGD, rank 1"][0] < 3818 and 0.1 < came["PowerSGD, rank 1"][1] < 1

# %% [markdown]
# ### "KeyError: 'bucket'"
#
# Three errors of comm hooks: the second argument has another name; the hook doesn't return a `Future`; a second hook
# on one model. (One process is enough to see them.)

# %% tags=["field", "field-163"]
def three_mistakes():
    from hooklab.course.errors import error_of

    def other_name(state, b):
        return dist.all_reduce(b.buffer(), async_op=True).get_future()

    def no_future(state, bucket):
        return bucket.buffer()

    def train_with(*hooks):
        model = DistributedDataParallel(nn.Linear(1, 1))
        for hook in hooks:
            model.register_comm_hook(None, hook)
        model(torch.ones(1, 1)).sum().backward()

    dist.init_process_group("gloo")
    return [
        error_of(train_with, *hooks)
        for hooks in ((other_name,), (no_future,), (no_future, no_future))
    ]


name, kind, second = launch(three_mistakes, processes=1)[0]
print(name, kind[:37] + " …", second, sep="\n")
assert (
    name == "KeyError: 'bucket'"
    and "Unable to cast Python instance" in kind
    and "can only be called once" in second
)

# %% [markdown]
# ### "DDP doesn't average my gradients": a loss from a captured feature, `model.module(x)`
#
# DDP prepares to average in **its own forward**, from what that returns. There are two ways to miss that. The loss is made from
# a feature that a hook has kept, so the model's output has no part in it. Then the first step isn't averaged, and the
# second raises "Expected to have finished reduction in the prior iteration"; with `static_graph=True` nothing is
# averaged in any step, and nothing raises. Or the training loop calls `model.module(x)`, or `unwrap_model(model)(x)`:
# nothing is averaged, and the processes drift apart without a word. So call the wrapped model, and let its output take part, if
# only with weight 0. ([A report](https://github.com/pytorch/pytorch/issues/97030))

# %% tags=["field", "field-222"]
def averaged_or_not():
    dist.init_process_group("gloo")

    def two_steps(loss_of, **options):
        """Return for each of two steps whether both processes got the same gradient."""
        torch.manual_seed(0)
        net, kept, came = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)), [], []
        model = DistributedDataParallel(net, **options)
        net[0].register_forward_hook(lambda module, args, output: kept.append(output))
        x = torch.ones(1, 2) + dist.get_rank()  # each process has its own data
        for _ in range(2):
            model.zero_grad()
            try:
                loss_of(model, x, kept).backward()
            except RuntimeError as error:
                return [*came, str(error).split(" before")[0]]
            mine = net[0].weight.grad
            both = [torch.empty_like(mine) for _ in range(2)]
            dist.all_gather(both, mine)
            came.append(torch.equal(*both))
        return came

    def feature(model, x, kept):
        return 0 * model(x).sum().detach() + kept[-1].square().sum()

    def with_the_output(model, x, kept):
        return 0 * model(x).sum() + kept[-1].square().sum()

    return {
        "the feature alone": two_steps(feature),
        "the same, static_graph": two_steps(feature, static_graph=True),
        "model.module(x)": two_steps(lambda model, x, kept: model.module(x).sum()),
        "the output with weight 0": two_steps(with_the_output),
        "model(x)": two_steps(lambda model, x, kept: model(x).sum()),
    }


came = launch(averaged_or_not)[0]
for way, steps in came.items():
    print(f"{way:<25} averaged: {steps}")
message = "Expected to have finished reduction in the prior iteration"
assert came["the feature alone"] == [False, message]
assert came["the same, static_graph"] == came["model.module(x)"] == [False, False]
assert came["the output with weight 0"] == came["model(x)"] == [True, True]

# %% [markdown]
# ### A process that hangs at the end
#
# If a DDP model outlives `destroy_process_group()`, its process hangs at the end **now and then**, too rarely for a
# cell to show it. So delete the model first, or don't destroy the group and let the process end. (`launch` does the
# latter: in its processes, `destroy_process_group()` does nothing.)

# %% [markdown]
# ### "The layer that I want to hook isn't there": prune, `quantize_dynamic`, fused experts
#
# Tools change a model in ways that its printed list of modules doesn't show. **Pruning** renames the parameter to
# `weight_orig`. From then on `weight` is a plain tensor, computed again before each call by a pre-hook: hook
# `weight_orig`. **`quantize_dynamic`** returns a copy with other layers: forward hooks come along, backward hooks don't,
# `isinstance(…, nn.Linear)` is False, and `weight` is a method. **Fused experts** are one parameter with three
# dimensions, and none of them has a module of its own. Hook the module that has them, and compute the expert from its input.
# (A report [about quantized layers](https://github.com/pytorch/pytorch/issues/37151), one [about
# experts](https://github.com/microsoft/Olive/issues/2599))

# %% tags=["field", "field-not-in-the-list"]
import warnings

from torch.nn.utils import prune

layer, ran = nn.Linear(2, 2), []
prune.l1_unstructured(layer, "weight", 0.5)
layer.weight_orig.register_hook(lambda grad: ran.append("weight_orig"))
layer(torch.ones(1, 2)).sum().backward()
print("pruned:", [name for name, _ in layer.named_parameters()], "a hook ran on", ran)
assert type(layer.weight) is torch.Tensor and ran == ["weight_orig"]
assert len(layer._forward_pre_hooks) == 1  # it computes weight

net, ran = nn.Sequential(nn.Linear(2, 2)), []
net[0].register_forward_hook(lambda *args: ran.append("forward"))
net[0].register_full_backward_hook(lambda *args: ran.append("backward"))
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    smaller = torch.ao.quantization.quantize_dynamic(net, {nn.Linear})
smaller(torch.ones(1, 2))
print("quantized:", type(smaller[0]).__module__, "hooks that came along:", ran)
assert ran == ["forward"] and len(smaller[0]._backward_hooks) == 0
assert not isinstance(smaller[0], nn.Linear) and callable(smaller[0].weight)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3, 2, 2))  # three experts

    def forward(self, x, chosen):
        return torch.einsum("ni,nij->nj", x, self.weight[chosen])


experts, seen = Experts(), []


def outputs_of_expert_1(module, args, output):
    x, chosen = args
    seen.append(x[chosen == 1] @ module.weight[1])


with experts.register_forward_hook(outputs_of_expert_1):
    y = experts(torch.rand(4, 2), torch.tensor([1, 0, 1, 2]))
inside = list(experts.children())
print("experts: modules inside", len(inside), " of expert 1", seen[0].shape)
assert torch.allclose(seen[0], y[[0, 2]]) and inside == []

# %% [markdown]
# ### Graph breaks
#
# What *may* a recorded hook do? Arithmetic on tensors is recorded with everything else. What can't be part of the
# graph, such as a `print`, cuts it in two: a **graph break**. That works, but it is slower. With `fullgraph=True` it
# raises an error.

# %% tags=["field", "field-169"]
def compiles_whole(hook):
    torch.compiler.reset()
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    with model[0].register_forward_hook(hook):
        return error_of(
            torch.compile(model, backend="eager", fullgraph=True), torch.ones(1, 1)
        )


def prints(module, args, output):
    print(end="")


answers = compiles_whole(sevens), compiles_whole(prints)
print("arithmetic:", answers[0])
print("a print:", answers[1].split(":")[0])
assert answers[0] == "no error" and answers[1].startswith("Unsupported")

# %% [markdown]
# ### "torch.compile ignores my backward hooks"
#
# A module's backward hooks are recorded in the forward pass, like its forward hooks, so an existing graph ignores a
# late one. A hook on a parameter always runs when its gradient arrives, early or late. ([A
# report](https://github.com/pytorch/pytorch/issues/117265))

# %% tags=["field", "field-57"]
def ran(register, late):
    torch.compiler.reset()
    layer, ran = nn.Linear(1, 1), []
    compiled, x = (
        torch.compile(layer, backend="eager"),
        torch.ones(1, 1, requires_grad=True),
    )
    if late:
        compiled(x)
    register(layer, lambda *args: ran.append("it"))
    compiled(x).sum().backward()
    return ran == ["it"]


full = [ran(nn.Linear.register_full_backward_hook, late) for late in (False, True)]
of_weight = [
    ran(lambda layer, hook: layer.weight.register_hook(hook), late)
    for late in (False, True)
]
print(
    "early, late: full backward hook", *full, "  tensor hook on the weight", *of_weight
)
assert full == [True, False] and of_weight == [True, True]

# %% [markdown]
# ### A block compiled by itself
#
# Large models are often compiled block by block. Hooks on the layers around the block run as usual, early or late. So
# do hooks on the compiled block itself, which is a module around the model and its graph. Only the hooks inside
# depend on the compiler.

# %% tags=["field", "field-block-compiled"]
torch.compiler.reset()
model, ran = nn.Sequential(nn.Sequential(nn.Linear(1, 1)), nn.ReLU()), []
inside = model[0][0]
model[0] = torch.compile(model[0], backend="eager")
model(torch.ones(1, 1))
for name, layer in (
    ("inside", inside),
    ("block", model[0]),
    ("next", model[1]),
    ("model", model),
):
    layer.register_forward_hook(
        lambda module, args, output, name=name: ran.append(name)
    )
model(torch.ones(1, 1))
print("late hooks that ran:", ran)
assert ran == ["block", "next", "model"]
torch.compiler.reset()

# %% [markdown]
# ### "None of the inputs have requires_grad=True"
#
# The reentrant way of checkpointing warns if the block's input doesn't require grad, for example after a frozen
# embedding. Then nothing inside the block gets a gradient. PEFT, the library of adapters, registers a forward hook on
# the embedding that sets `requires_grad` of its output. (A pre-hook on the block comes too late: [lesson
# 4](04_forward_pre_hooks.ipynb#field-54).) Today's way needs no such hook.

# %% tags=["field", "field-54"]
import warnings


def gets_a_gradient(use_reentrant, hooked):
    embedding, block = nn.Embedding(3, 2).requires_grad_(False), nn.Linear(2, 2)
    if hooked:
        embedding.register_forward_hook(
            lambda module, args, output: output.requires_grad_(True)
        )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        y = checkpoint(block, embedding(torch.tensor([1])), use_reentrant=use_reentrant)
    error_of(y.sum().backward)
    return block.weight.grad is not None, any(
        "None of the inputs" in str(one.message) for one in caught
    )


plain, hooked, todays = (
    gets_a_gradient(True, False),
    gets_a_gradient(True, True),
    gets_a_gradient(False, False),
)
print(
    "a gradient, a warning:  reentrant", *plain, " · with the hook", *hooked,
    " · today's way", *todays
)
assert plain == (False, True) and hooked == todays == (True, False)

# %% [markdown]
# ### Build it: hooks that are installed once, and switched on for a block
#
# Libraries use this to return inner states on request: `output_hidden_states=True` in transformers is such a
# `capture_outputs`. Its hooks stay on the model for good. They ask a `ContextVar` whether a block is open **in this
# thread or task**; if none is, they return at once. So nothing is registered or removed while another thread runs the
# model, and two requests don't see each other's values. Here is the core of it:

# %% tags=["field", "field-capture-outputs"]
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

OPEN: ContextVar[dict | None] = ContextVar("OPEN", default=None)
INSTALLING = threading.Lock()


def record(name, module, args, output):
    """The hook on every module: store the output, if a block is open here."""
    seen = OPEN.get()
    if seen is not None:
        seen.setdefault(name, []).append(output)


def is_installed(module) -> bool:
    hooks = module._forward_hooks.values()
    return any(getattr(hook, "func", None) is record for hook in hooks)


def install(model) -> None:
    """Put the hook on every module that hasn't got it yet."""
    with INSTALLING:  # two threads that come at once: each module gets one hook
        for name, module in model.named_modules():
            if not is_installed(module):
                module.register_forward_hook(partial(record, name))


@contextmanager
def capture_outputs(model) -> Iterator[dict[str, list]]:
    """Collect the outputs of all modules by name: those of this thread's calls."""
    install(model)
    seen: dict[str, list] = {}
    before = OPEN.set(seen)
    try:
        yield seen
    finally:
        OPEN.reset(before)  # an outer block goes on


# four threads, each with its own block and its own numbers
model, came = nn.Sequential(nn.Identity(), nn.ReLU()), {}


def request_of(number):
    for _ in range(20):
        with capture_outputs(model) as seen:
            model(torch.tensor(number))
        came.setdefault(number, set()).add(tuple(one.item() for one in seen["0"]))


threads = [threading.Thread(target=request_of, args=(float(n),)) for n in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("what each thread has seen:", dict(sorted(came.items())))
print("hooks on a layer:", len(model[0]._forward_hooks))
assert came == {float(n): {(float(n),)} for n in range(4)}
assert len(model[0]._forward_hooks) == 1

# %% [markdown]
# ### "`hidden_states` don't show what my hook changed", or miss a layer, or are empty
#
# Three troubles come with hooks that stay. Hooks of one module run in the order of registration. So if a hook that
# **changes** the output comes later, the stored value doesn't show its change: register it with `prepend=True`. If a
# layer is **replaced** by a reload, a flag "installed" on the model would still be set, and the new layer would stay
# silent; that's why `install` asks each module. And if the first block comes after the model was **compiled**, the
# recorded graph has no hook, and nothing is collected, without an error: call `install` before the first compiled call.
# ([The change in transformers](https://github.com/huggingface/transformers/pull/43765))

# %% tags=["field", "field-244"]
def sevens(module, args, output):
    return output * 0 + 7


def first_output(model, called=None):
    """Return what a block collects of layer 0: its number, or None."""
    with capture_outputs(model) as seen:
        (called or model)(one)
    return seen["0"][0].item() if "0" in seen else None


one, model, changed = torch.ones(1, 1), nn.Sequential(nn.Identity(), nn.ReLU()), {}
install(model)
with model[0].register_forward_hook(sevens):
    changed["late hook"] = first_output(model)
with model[0].register_forward_hook(sevens, prepend=True):
    changed["late, prepended"] = first_output(model)
model[0] = nn.Linear(1, 1)
changed["a new layer"] = first_output(model) is not None
for way in ("lazy", "early"):
    torch.compiler.reset()
    fresh = nn.Sequential(nn.Identity(), nn.ReLU())
    compiled = torch.compile(fresh, backend="eager")
    if way == "early":
        install(fresh)
    compiled(one)
    changed[f"compiled, {way}"] = first_output(fresh, compiled)
torch.compiler.reset()
print(changed)
assert (changed["late hook"], changed["late, prepended"]) == (1.0, 7.0)
assert changed["a new layer"]
assert (changed["compiled, lazy"], changed["compiled, early"]) == (None, 1.0)
