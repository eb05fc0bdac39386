# %% [markdown]
# # 12 · Facts to look up
#
# **Time** 31 minutes for all of it, two or three for a section &nbsp;·&nbsp; **You need** lessons 3 and 5; for parts, 7 and 11
#
# What happens to your hooks when the model is exported, split over several processes, or trained by a library's loop? You don't
# have to read this page in order. Run the next cell, find your case in the table below it, and then run that section.

# %% tags=["setup"]
import copy

import torch
import torch.distributed as dist
from torch import nn

import hooklab
from hooklab.course.errors import error_of
from hooklab.course.processes import launch

torch.set_num_threads(1)


# %% [markdown] tags=["recap"]
# ## What is here
#
# | you use | what happens to your hooks | section |
# |---|---|---|
# | `torch.export`, `torch.jit.trace` | what they did to the tensors stays in the recording for good | [Copies of a model](#Copies-of-a-model) |
# | `fx.symbolic_trace` | on the model: lost; on a block: recorded; on a layer of PyTorch's: kept | [Copies of a model](#Copies-of-a-model) |
# | `torch.jit.script` | they are compiled from their source code; a lambda raises an error | [Copies of a model](#Copies-of-a-model) |
# | `fuse_modules` (quantization) | forward hooks of the middle module are lost; pre-hooks of the first run twice | [Copies of a model](#Copies-of-a-model) |
# | `vmap`, `grad`, `functional_call` | forward hooks run, tensor hooks on parameters don't, backward hooks raise an error | [Copies of a model](#Copies-of-a-model) |
# | FSDP (`fully_shard`) | tensor hooks on parameters never run; forward hooks and post-accumulate hooks do | [Many processes](#Many-processes) |
# | `nn.DataParallel` | they run on replicas; what they write to `module` is lost | [Many processes](#Many-processes) |
# | an optimizer | a step pre-hook sees the previous gradient if `step` gets a closure; a copy of the optimizer has no hooks | [Around a training](#Around-a-training) |
# | Lightning, a wrapper, LoRA | a hook on a module that isn't called stays silent; the hooks of a wrapped layer stay on the inner one | [Around a training](#Around-a-training) |
# | threads, asyncio | every caller runs them, and "the last output" may be another caller's | [Around a training](#Around-a-training) |
# | mixup | – | [Mixup](#Mixup): other tools, recipes |

# %% [markdown]
# ## Copies of a model

# %% [markdown]
# ### Export, fx, TorchScript, quantization: other copies of the model
#
# `torch.export` and `torch.jit.trace` run your model once and **record** the operations on its tensors. Your hook runs in that one
# call. What it did to the tensors is now part of the recording, even if you remove the hook; what it did to Python objects, such
# as a list, won't happen again.
#
# With `fx.symbolic_trace`, it depends on the depth. PyTorch's own layers, such as `nn.Linear`, are kept with their hooks, so these
# still run. The hooks of a block around them run once, with a `Proxy` (a stand-in that notes what is done to it) instead of a
# tensor, and are recorded. The hooks of the whole model are lost.

# %% tags=["field", "field-export"]
one = torch.ones(1, 1)
RECORDERS = {
    "torch.export": lambda model: torch.export.export(model, (one,)).module(),
    "jit.trace": lambda model: torch.jit.trace(model, one, check_trace=False),
    "fx": lambda model: torch.fx.symbolic_trace(model),
}


def recorded(recorder, depth):
    """Record a model with one hook; return when it acts, and how often it is called."""
    block, calls = nn.Sequential(nn.Linear(1, 1)), []
    model = nn.Sequential(block, nn.ReLU())
    place = {"model": model, "block": block, "layer": block[0]}[depth]

    def hook(module, args, output):
        calls.append(type(output).__name__)
        return output * 0 + 7

    with place.register_forward_hook(hook):
        recording = RECORDERS[recorder](model)
        acts = recording(one).item() == 7
    if recording(one).item() == 7:  # now without the hook
        return "for good", len(calls)
    return "until removed" if acts else "never", len(calls)


found = {
    name: [recorded(name, depth) for depth in ("model", "block", "layer")]
    for name in RECORDERS
}
print("a hook on the      model, block, layer acts (calls):")
for name, three in found.items():
    print(f"{name:<18}", ", ".join(f"{acts} ({calls})" for acts, calls in three))
assert found["torch.export"] == found["jit.trace"] == [("for good", 1)] * 3
assert found["fx"] == [("never", 0), ("for good", 1), ("until removed", 1)]

# %% [markdown]
# `torch.jit.script` compiles a hook's *source code*, so a lambda raises an error, and a scripted module accepts no new hooks.
# `torch.jit.trace` refuses a module with backward hooks. Both belong to TorchScript, PyTorch's older compiler, which is
# deprecated: hook the original model instead. ([A thread about it](https://github.com/pytorch/pytorch/issues/53421))

# %% tags=["field", "field-59"]
with_backward, with_a_lambda, plain = nn.Linear(1, 1), nn.Linear(1, 1), torch.ones(1, 1)
with_backward.register_full_backward_hook(lambda *args: None)
with_a_lambda.register_forward_hook(lambda module, args, output: None)
messages = [
    error_of(torch.jit.script, with_a_lambda),
    error_of(torch.jit.trace, with_backward, plain),
    error_of(lambda: torch.jit.script(nn.Linear(1, 1)).register_forward_hook(print)),
]
print(*[": ".join(message.split(": ")[:2]) for message in messages], sep="\n")
assert messages[0].startswith("RuntimeError: Expected a single top-level function")
assert (
    "Modules that have backward hooks" in messages[1]
    and "not supported on ScriptModules" in messages[2]
)

# %% [markdown]
# Before a model is quantized (stored in short integers), `fuse_modules` *fuses* a convolution, its normalisation and its ReLU
# into one module, which replaces the first; the other two become identities. Forward hooks of the middle one are lost, and
# pre-hooks of the first are moved *and* copied. Fuse first, then register.
# ([A thread about it](https://github.com/pytorch/pytorch/issues/37151))

# %% tags=["field", "field-67"]
def fused(register):
    from torch.ao.quantization import fuse_modules

    ran = []
    net = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1), nn.ReLU()).eval()
    for name, layer in net.named_children():
        getattr(layer, register)(lambda module, *args, name=name: ran.append(name))
    fuse_modules(net, ["0", "1", "2"])(torch.ones(1, 1, 2, 2))
    return ran


after = fused("register_forward_hook"), fused("register_forward_pre_hook")
print("forward hooks that ran:", after[0], "  pre-hooks that ran:", after[1])
assert after[0] == ["0", "2"] and after[1].count("0") == 2

# %% [markdown]
# ### Functions of a model: `functional_call`, `vmap`, `grad`
#
# `torch.func` calls a module as a function of its parameters. Forward hooks run. Under `vmap` they see **one example**, without the
# batch. (It's a stand-in for all of them: if a hook stores it, using it later raises an error.) Backward hooks of modules raise an
# error. Tensor hooks on the parameters don't run, because other tensors take the parameters' place.

# %% tags=["field", "field-161"]
from torch.func import functional_call, grad, vmap

model, log = nn.Linear(2, 2), []
parameters = {name: one.detach() for name, one in model.named_parameters()}
model.weight.register_hook(lambda gradient: log.append("tensor hook"))
with model.register_forward_hook(
    lambda module, args, output: log.append(tuple(output.shape))
):
    vmap(lambda row: functional_call(model, parameters, (row,)))(torch.ones(5, 2))
    grad(lambda ps: functional_call(model, ps, (torch.ones(5, 2),)).sum())(parameters)
with model.register_full_backward_hook(lambda *args: None):
    message = error_of(
        grad(lambda ps: functional_call(model, ps, (torch.ones(5, 2),)).sum()),
        parameters,
    )

print("shapes under vmap and under grad:", log)
print(message.split(". ")[0])
assert log == [(2,), (5, 2)] and "functorch" in message

kept = []
with model.register_forward_hook(lambda module, args, output: kept.append(output)):
    vmap(model)(torch.ones(5, 2))
assert error_of(lambda: kept[0] + 1) != "no error"

# %% [markdown]
# ## Many processes

# %% [markdown]
# ### FSDP: parameters in pieces
#
# With `fully_shard`, each process holds a piece of each parameter, and collects the other pieces when a layer runs. A tensor hook on
# your piece **never runs**, because the pass uses the whole parameter, which is another tensor. A post-accumulate hook does run,
# with the averaged gradient of the piece, and so do forward hooks.
# ([A thread about it](https://github.com/meta-pytorch/torchrec/pull/4268))

# %% tags=["field", "field-63"]
def in_pieces():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    model, log = nn.Linear(4, 2, bias=False), []
    model.weight.register_hook(lambda grad: log.append("tensor hook, made before"))
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    model.weight.register_hook(lambda grad: log.append("tensor hook"))
    model.weight.register_post_accumulate_grad_hook(
        lambda p: log.append(f"post-accumulate: {p.grad.to_local().tolist()}")
    )
    model.register_forward_hook(lambda module, args, output: log.append("forward hook"))
    model(torch.ones(1, 4) * (1 + 2 * dist.get_rank())).sum().backward()
    dist.destroy_process_group()
    return log, list(model.weight.to_local().shape)


for rank, (log, shape) in enumerate(launch(in_pieces)):
    print(f"process {rank} holds {shape} of [2, 4]:", *log, sep="\n    ")
    assert log == [
        "forward hook",
        "post-accumulate: [[2.0, 2.0, 2.0, 2.0]]",
    ] and shape == [1, 4]

# %% [markdown]
# A **communication hook** decides what the processes send each other (lesson 11). In the older `FullyShardedDataParallel`, it
# receives the whole gradient, and a tensor into which it writes this process's piece of the average. With `fully_shard`, the hook of
# `set_all_reduce_hook` comes later: it receives the piece of the average, and may change it in place. If there are several
# copies of the sharded model, the average is over all of them by then.

# %% tags=["hook-fsdp-comm", "hook-fully-shard-all-reduce"]
def two_kinds_of_fsdp():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    dist.init_process_group("gloo")
    x, lengths = torch.ones(1, 4) * (1 + 2 * dist.get_rank()), []

    def average(state, gradient, piece):
        lengths.append((len(gradient), len(piece)))
        dist.all_reduce(gradient)
        piece.copy_(gradient.chunk(2)[dist.get_rank()] / 2)

    older = FullyShardedDataParallel(
        nn.Linear(4, 2, bias=False), device_id=torch.device("cpu")
    )
    older.register_comm_hook(None, average)
    older(x).sum().backward()
    gradients = [next(older.parameters()).grad.tolist()]

    def ten_times(piece):
        lengths.append(len(piece))
        piece.mul_(10)

    for sizes, names in {(2,): ("pieces",), (2, 1): ("copies", "pieces")}.items():
        newer = nn.Linear(4, 2, bias=False)
        fully_shard(newer, mesh=init_device_mesh("cpu", sizes, mesh_dim_names=names))
        newer.set_all_reduce_hook(ten_times)
        newer(x).sum().backward()
        gradients.append(newer.weight.grad.to_local().flatten().tolist())
    return lengths, gradients


for lengths, gradients in launch(two_kinds_of_fsdp):
    print("the hooks received tensors of length", lengths)
    print("gradients:", *gradients)
    assert lengths == [(8, 4), 4, 8]  # the last one: two copies, each in one piece
    assert gradients == [[2.0] * 4, [20.0] * 4, [20.0] * 8]

# %% [markdown]
# ### DataParallel's replicas
#
# `nn.DataParallel`, the older way, has one process with a thread for each GPU. Each forward pass creates **replicas** of the model and
# throws them away afterwards, together with anything that your hook has written to its `module`. There may be no GPU here, so the
# cell creates a replica by hand. ([A thread about it](https://github.com/pytorch/pytorch/issues/11476))

# %% tags=["field", "field-61"]
model, was_original = nn.Linear(1, 1), []
model.calls = 0


def count(module, args, output):
    module.calls += 1
    was_original.append(module is model)


with model.register_forward_hook(count):
    replica = model._replicate_for_data_parallel()
    replica._parameters.update(model._parameters)
    replica(torch.ones(1, 1))

print("the hook ran on the original:", was_original)
print("calls of the replica:", replica.calls, "  of the original:", model.calls)
assert was_original == [False] and (replica.calls, model.calls) == (1, 0)

# %% [markdown]
# ### Beyond one machine
#
# Everything on these pages ran on one machine, over its own local network. We haven't run it on several machines, on GPUs with
# NCCL, or under a scheduler such as Slurm.
#
# What should stay the same is the script: `torchrun --nnodes 4 --rdzv-endpoint host:port …` on each node, or `srun`
# before it, gives each process its rank and a meeting point, and DDP's hooks and comm hooks run as in lesson 11. What
# differs: NCCL's operations run next to your Python code, so a future's `.value()` may be a tensor that the GPU is
# still filling; sums are added up in another order, so the last digits differ; and lost connections are normal. Measure
# there before you trust a number from here, above all a time.

# %% [markdown]
# ## Around a training

# %% [markdown]
# ### Optimizers
#
# An optimizer takes hooks around its `step`, and the process takes hooks for the steps of all optimizers. A hook
# receives `(optimizer, args, kwargs)`. The cell prints their order, and the gradient that each sees if `step` gets a
# **closure**, a function that computes the loss again:

# %% tags=["field", "field-64", "hook-optimizer-step-pre", "hook-optimizer-step-post", "hook-global-optimizer-step-pre", "hook-global-optimizer-step-post"]
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)


def note(word):
    return lambda optimizer, args, kwargs: noted.append((word, w.grad.item()))


def closure():
    optimizer.zero_grad()
    loss = 3 * w
    loss.backward()
    return loss


w, noted = torch.ones((), requires_grad=True), []
optimizer = torch.optim.SGD([w], lr=0.1)
optimizer.register_step_pre_hook(note("before"))
optimizer.register_step_post_hook(note("after"))
w.grad = torch.tensor(9.0)
with (
    register_optimizer_step_pre_hook(note("global before")),
    register_optimizer_step_post_hook(note("global after")),
):
    optimizer.step(closure)

print(noted)
assert noted == [
    ("global before", 9.0),
    ("before", 9.0),
    ("after", 3.0),
    ("global after", 3.0),
]
noted.clear()
copy.deepcopy(optimizer).step()
assert noted == []  # unlike a module's, an optimizer's hooks are not copied

# %% [markdown]
# The closure runs inside `step`, after the pre-hooks, so they see the previous step's gradient: a hook that clips
# there clips the wrong one. ([A thread about it](https://github.com/pytorch/pytorch/issues/88446))
#
# An optimizer has hooks around its state dict as well. Its load pre-hook receives a shallow copy of the state dict, so what it
# writes into a group changes the caller's dictionary too. And it may **return** another state dict. (What a module's load
# pre-hook returns is ignored.)

# %% tags=["hook-optimizer-state-dict-pre", "hook-optimizer-state-dict-post", "hook-optimizer-load-state-dict-pre", "hook-optimizer-load-state-dict-post"]
order, optimizer = [], torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
optimizer.register_state_dict_pre_hook(lambda optimizer: order.append("save pre"))
optimizer.register_state_dict_post_hook(
    lambda optimizer, state: order.append("save post")
)
optimizer.register_load_state_dict_pre_hook(
    lambda optimizer, state: order.append("load pre")
)
optimizer.register_load_state_dict_post_hook(
    lambda optimizer: order.append("load post")
)
optimizer.load_state_dict(optimizer.state_dict())
print(order)
assert order == ["save pre", "save post", "load pre", "load post"]


def lr_after_loading(hook):
    """Load lr=0.1 through this hook; return the optimizer's lr and the caller's."""
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
    state = optimizer.state_dict()
    with optimizer.register_load_state_dict_pre_hook(hook):
        optimizer.load_state_dict(state)
    return optimizer.param_groups[0]["lr"], state["param_groups"][0]["lr"]


def in_place(optimizer, state):
    state["param_groups"][0]["lr"] = 0.5


def returned(optimizer, state):
    return {**state, "param_groups": [{**state["param_groups"][0], "lr": 0.5}]}


print("in place:", lr_after_loading(in_place), " returned:", lr_after_loading(returned))
assert lr_after_loading(in_place) == (0.5, 0.5)
assert lr_after_loading(returned) == (0.5, 0.1)

layer = nn.Linear(1, 1)
with layer.register_load_state_dict_pre_hook(lambda *args: {}):  # ignored
    assert error_of(layer.load_state_dict, layer.state_dict()) == "no error"

# %% [markdown]
# ### Trainers and adapters
#
# *"My hook on the model never fires; those on its layers do."* A trainer calls `model.training_step(batch)`, and a wrapper calls
# `base.generate(…)`. These are ordinary methods: only `model(…)` runs the model's hooks. Hook a layer, or the module that *is*
# called.

# %% tags=["field", "field-101"]
class Trained(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 3), nn.ReLU())

    def forward(self, x):
        return self.net(x)

    def training_step(self, x):
        return self.forward(x).sum()  # never self(x)


trained, ran = Trained(), []
with (
    trained.register_forward_hook(lambda *args: ran.append("model")),
    trained.net[0].register_forward_hook(lambda *args: ran.append("layer")),
):
    trained.training_step(torch.ones(4, 2))
with hooklab.capture(trained.net, "0") as seen:
    trained.training_step(torch.ones(4, 2))
print("ran:", ran, "  captured from the part that is called:", tuple(seen["0"].shape))
assert ran == ["layer"] and seen["0"].shape == (4, 3)

# %% [markdown]
# *"I put LoRA around a layer, and my tool looks at the inner one."* The adapter takes the layer's place and its name.
# The hooks stay on the layer, which is now inside. `hooklab` notices that the name means another module, and reports
# it.

# %% tags=["field", "field-140"]
class Lora(nn.Module):
    def __init__(self, base_layer):
        super().__init__()
        self.base_layer, self.a = base_layer, nn.Linear(2, 3, bias=False)

    def forward(self, x):
        return self.base_layer(x) + self.a(x)


model, shapes = nn.Sequential(nn.Linear(2, 3)), []
model[0].register_forward_hook(
    lambda module, args, output: shapes.append(type(module).__name__)
)
made_before = hooklab.capture(model, "0")
model[0] = Lora(model[0])
model(torch.ones(4, 2))


def open_it():
    with made_before:
        model(torch.ones(4, 2))


message = error_of(open_it)
print("the hook sits on:", shapes)
print(message)
assert shapes[0] == "Linear" and message != "no error"

# %% [markdown]
# ### Threads and coroutines
#
# Hooks are stored on the object, so **every thread** that calls the model runs them, in its own thread. Appending to
# a list is safe. A counter `n += 1`, or "the last output", isn't. Distinguish the calls by their thread, or store
# results in a `threading.local()`.

# %% tags=["field", "field-threads"]
import asyncio
import threading

model, last, by_thread = nn.Identity(), {}, {}


def keep(module, args, output):
    last["output"] = output.item()
    by_thread.setdefault(threading.current_thread().name, []).append(output.item())


def work(number):
    for _ in range(3):
        model(torch.tensor(number))


with model.register_forward_hook(keep):
    threads = [
        threading.Thread(target=work, args=(float(n),), name=f"thread {n}")
        for n in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(dict(sorted(by_thread.items())))
assert by_thread == {"thread 0": [0.0] * 3, "thread 1": [1.0] * 3}

# %% [markdown]
# **Coroutines** share one thread and take turns at each `await`. Another coroutine never interrupts a hook. But
# between *your* call and the moment when you read what the hook stored, another coroutine may have called the model.
# A `ContextVar` knows which task is running.

# %% tags=["field", "field-threads"]
from contextvars import ContextVar

request, answers = ContextVar("request", default="?"), {}


async def serve(name, number):
    request.set(name)
    model(torch.tensor(number))
    await asyncio.sleep(0)  # another task's turn
    return last["output"]


async def two_requests():
    return await asyncio.gather(serve("first", 1.0), serve("second", 2.0))


def keep_by_request(module, args, output):
    last["output"] = answers[request.get()] = output.item()


with model.register_forward_hook(keep_by_request):
    read_later = await two_requests()  # noqa: F704
print("read after the await:", read_later, "  kept by request:", answers)
assert read_later == [2.0, 2.0] and answers == {"first": 1.0, "second": 2.0}

# %% [markdown]
# ## Mixup

# %% [markdown]
# ### Other tools
#
# timm, torchvision and fastai also mix inputs and labels. These are the differences (timm 1.0, torchvision 0.28, fastai 2.8):
#
# | | timm `Mixup` | torchvision `v2.MixUp` | fastai `MixUp` | `hooklab.ManifoldMixup` |
# |---|---|---|---|---|
# | mixes at | input | input | input | input and any layer |
# | CutMix | yes, may alternate | `v2.CutMix` | `CutMix` | no |
# | λ for each example | `mode="elem"`, `"pair"` | no | yes; below ½, it takes 1 − λ | no |
# | probability of mixing | `prob=` | `v2.RandomApply` around it | no | no: an `if` around the block |
# | targets become | soft, smoothed if you like | soft | two losses | two losses, or `soft_targets(…)` |
# | the same draw for two views or models | no | no | no | `mix(x2, y, like=mixed)` |
# | it refuses | a batch of odd length | wrong shapes and types | – | wrong layers, passes, modes, targets, masks, ranks |
# | time of one step, as a multiple of mixing by hand | 0.99 | 1.02 | not measured | 1.03, at the input |
#
# The last row has medians of one run, on one core of a busy machine, with batches of 128 and lesson 7's small network. All of
# them take about the same time.

# %% [markdown]
# ### Recipes
#
# A test of this repository runs each of these. **Your own loop:**
#
# ```python
# mix = hooklab.ManifoldMixup(model, ["block1", "block2"], alpha=1.0, generator=torch.Generator().manual_seed(0))
# for x, y in batches:
#     with mix(x, y) as mixed:
#         loss = mixed.loss(F.cross_entropy, model(mixed.x))
#     optimizer.zero_grad()
#     loss.backward()
#     optimizer.step()
# ```
#
# **Gradient accumulation:** one block for each small batch, `loss / count`, and a step after the last one. **Autocast and a scaler**
# work as usual:
#
# ```python
# with torch.autocast("cuda"), mix(x, y) as mixed:
#     loss = mixed.loss(F.cross_entropy, model(mixed.x))
# scaler.scale(loss).backward()
# ```
#
# **DistributedDataParallel:** create `mix` from the wrapped model (its layers keep their names), and give every rank a generator *with
# the same seed*. All ranks then draw the same place and λ. Without a generator, or with different seeds, it raises an error.
#
# **Lightning:**
#
# ```python
# def training_step(self, batch, batch_idx):
#     with self.mix(*batch) as mixed:
#         return mixed.loss(F.cross_entropy, self.net(mixed.x))
# ```
#
# **Accelerate:** create `mix` from the prepared model.
#
# ```python
# with accelerator.accumulate(model), mix(x, y) as mixed:
#     accelerator.backward(mixed.loss(F.cross_entropy, model(mixed.x)))
#     optimizer.step()
#     optimizer.zero_grad()
# ```
#
# **transformers:** token ids can't be mixed, so use `include_input=False`. The padding mask must cover both partners. Don't pass the
# labels to the model, because its own loss wouldn't be mixed.
#
# ```python
# class MixupTrainer(transformers.Trainer):
#     def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
#         labels = inputs.pop("labels")
#         if not model.training:
#             outputs = model(**inputs)
#             loss = F.cross_entropy(outputs.logits, labels)
#         else:
#             with mix(inputs["input_ids"], labels) as mixed:
#                 mask = mixed.union(inputs["attention_mask"])
#                 outputs = model(**{**inputs, "attention_mask": mask})
#             loss = mixed.loss(F.cross_entropy, outputs.logits)
#         return (loss, outputs) if return_outputs else loss
# ```
