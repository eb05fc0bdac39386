# %% [markdown]
# # 3 · How do I see, and replace, what a layer puts out?
#
# **Time** 60 minutes, and 35 for what comes after the recap &nbsp;·&nbsp; **You need** lessons 1 and 2: `detach()`, a hook, its handle
#
# After this lesson you can
#
# - read the output of any layer of any model, whatever form it has;
# - replace it on purpose, and never by accident;
# - find out what each channel of a network is worth;
# - say what a captured value costs, and explain a hook that stays silent.

# %% tags=["setup"]
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib.pyplot as plt
import torch
from IPython.display import display
from torch import nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle

from hooklab import capture, check, edit, predict, progress, reveal, run_until
from hooklab.course import one_call
from hooklab.course.digits import digits, trained_digits_cnn
from hooklab.course.errors import error_of
from hooklab.course.lesson03 import explorer, figures
from hooklab.course.lesson03.helpers import bytes_alive

torch.set_num_threads(1)

# %% [markdown]
# ## One hook, four modules
#
# A model in which you can follow every number: multiply by 2, cut off what is negative, multiply by 10.
#
# (1, −3) → (2, −6) → (2, 0) → (20, 0)
#
# A **forward hook** is called right after a module's `forward`. The next cell gives the same hook, `report`, to the model
# itself and then to its three layers, in this order.

# %%
class Times(nn.Module):
    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return self.factor * x


def report(module, args, output):
    order.append(type(module).__name__)
    print(f"{type(module).__name__:<10} put out {output.tolist()}")


model = nn.Sequential(Times(2), nn.ReLU(), Times(10))

# %%
predict("3.a")

# %% tags=["predict", "hook-forward"]
print("What came out:")
order = []
handles = [module.register_forward_hook(report) for module in model.modules()]
result = model(torch.tensor([1.0, -3.0]))
for handle in handles:
    handle.remove()

# %%
reveal("3.a", order)
assert order == ["Times", "ReLU", "Times", "Sequential"] and result.tolist() == [
    20.0,
    0.0,
], "With the page's model and input, the layers report in their order, then the model."

# %% [markdown]
# The hook gets three arguments:
#
# - `module`: the module that ran;
# - `args`: the positional arguments that it was called with, always a **tuple**;
# - `output`: whatever its `forward` returned.
#
# Whose `args` and `output`? Those of **the module that carries the hook**: below, a net first, then the second of its layers.

# %% tags=["claim-S1.7", "claim-S1.6"]
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.ReLU())

    def forward(self, x):
        return self.layers(x)


hook_list = []

def hook(module, args, output):
    hook_list.append((args, output))


net, x = Net().eval(), torch.randn(1, 3, 28, 28)
for module in net, net.layers[1]:
    with module.register_forward_hook(hook):  # `with` removes the hook at its end
        result = net(x)

for args, output in hook_list:
    print(f"a {type(args).__name__} of {len(args)}, shape {tuple(args[0].shape)}, -> {tuple(output.shape)}")
assert [args[0].shape for args, _ in hook_list] == [(1, 3, 28, 28), (1, 3, 26, 26)]
assert hook_list[0][0][0] is x  # the net's: the very object that went in ...
assert torch.equal(hook_list[0][1], result)  # ... and the result
assert torch.equal(hook_list[1][0][0], net.layers[0](x))  # the norm's: what the convolution put out
assert torch.equal(hook_list[1][1], net.layers[1](net.layers[0](x)))  # before the ReLU: a layer's own output

# %% [markdown] tags=["exercise"]
# ### Exercise 3.1 · One layer's output
# ●○○ · 5 minutes
#
# Run `model(x)` once, to its end, and return the output of `layer`, one of the model's modules: a tensor in the same dtype,
# **detached** from the graph. Your hook only looks: the model's result, its graph and its mode are the same as without it.
# When your function returns, no hook of yours is left. If `model(x)` raises an exception, it reaches the caller.
#
# <details><summary>Hint: what I return is the model's result</summary>
#
# `model(x)` returns the last layer's output. Yours arrives in the hook: let the hook store it in a list.
# </details>
# <details><summary>Hint: "list index out of range"</summary>
#
# The hook has not run. It must be registered before `model(x)` and removed after it.
# </details>

# %% tags=["solution"]
def output_of(model: nn.Module, layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Return what `layer` puts out during model(x), detached."""
    ### BEGIN SOLUTION
    stored = []

    def store(module, args, output):
        stored.append(output.detach())

    with layer.register_forward_hook(store):
        model(x)
    return stored[0]
    ### END SOLUTION

# %% tags=["check"]
check("3.1", output_of)

# %% [markdown]
# ## Replace an output
#
# So far our hooks returned nothing. In Python that is `None`, and it means "leave the output as it is". **Anything else
# that a forward hook returns takes the place of the output**, and the rest of the model goes on with that.

# %% tags=["claim-S1.5"]
def half(module, args, output):
    return output / 2


x = torch.tensor([1.0, -3.0])
with model[0].register_forward_hook(half):
    changed = model(x)

print("usual:", model(x).tolist(), "  with the first layer halved:", changed.tolist())
assert model(x).tolist() == [20.0, 0.0]
assert changed.tolist() == [10.0, 0.0]

# %% tags=["figure"]
figure = one_call.draw_hooks(["return None", "return output + 1", "output.add_(1)"])  # on a module that makes a 6
display(figure)

# %% [markdown]
# *What to see:* `None` lets the output be. A returned tensor takes its place, in a memory of its own. The third hook writes in
# place: what `forward` made has changed as well (purple), for everybody who holds it.

# %% [markdown]
# Now a hook that only wants to remember the first output that it sees. We run the model on two inputs. By hand you get
# (20, 0) for the first and (100, 100) for the second.

# %%
memory = {}


def remember_the_first(module, args, output):
    return memory.setdefault("first", output)

# %%
predict("3.b")

# %% tags=["predict"]
with model[0].register_forward_hook(remember_the_first):
    one = model(torch.tensor([1.0, -3.0]))
    two = model(torch.tensor([10.0, 10.0]))

print("What came out:")
print("first: ", one.tolist())
print("second:", two.tolist())

# %%
reveal("3.b", two.tolist())
assert one.tolist() == two.tolist() == [20.0, 0.0], (
    "With the page's inputs, the model returns (20, 0) both times."
)

# %% [markdown]
# (Old pages say that a hook must not return anything. Since PyTorch 1.2 a hook may.)
#
# A quiet accident: a hook that ends in `return output.detach()`. Each number is right, and no error comes. But the new
# output has no graph behind it, so **neither this layer nor what leads to the loss through it alone learns any more**, while
# the layers after it go on learning:

# %% tags=["claim-S4.2"]
def weights_that_learn(hook) -> list[bool]:
    three = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 1))
    with three[1].register_forward_hook(hook):
        three(torch.ones(1, 2)).sum().backward()
    return [layer.weight.grad is not None for layer in three]


print("looks:                   ", weights_that_learn(lambda module, args, output: None))
print("returns output.detach():", weights_that_learn(lambda module, args, output: output.detach()))
assert weights_that_learn(lambda module, args, output: None) == [True, True, True]
assert weights_that_learn(half) == [True, True, True]
assert weights_that_learn(lambda module, args, output: output.detach()) == [False, False, True]

# %% [markdown]
# The opposite mistake is just as common. *"My hook computes the new output, and nothing changes."* The name `out`
# was given to another tensor inside the hook; the model never heard of it.
# ([A thread](https://github.com/shivamsaboo17/ManifoldMixup/pull/1))

# %% tags=["field", "field-24", "claim-S3.9"]
lam, indices = 0.75, torch.tensor([1, 0])

def forgetful(module, args, out):
    out = lam * out + (1 - lam) * out[indices]

def mix(module, args, out):
    return lam * out + (1 - lam) * out[indices]


layer, features = nn.Identity(), torch.tensor([[0.0], [4.0]])
with layer.register_forward_hook(forgetful):
    lost = layer(features)
with layer.register_forward_hook(mix):
    mixed = layer(features)

print("without return:", lost.flatten().tolist())
print("with return:   ", mixed.flatten().tolist())
assert lost.flatten().tolist() == [0.0, 4.0]
assert mixed.flatten().tolist() == [1.0, 3.0]  # 0.75 · 0 + 0.25 · 4, and the other way round

# %% [markdown]
# That one line, which mixes each sample with a partner in the middle of a network, is the heart of a training method: lesson 7
# builds it.

# %% [markdown] tags=["exercise"]
# ### Exercise 3.2 · Switch a channel off
# ●○○ · 5 minutes
#
# `layer` puts out feature maps of shape `(batch, channels, height, width)`. Register a hook that replaces the output
# by a new tensor in which channel number `channel` is **zero** and all others are as they were, in the same dtype, in
# training and in evaluation mode, until the caller removes the handle that you return. Gradients still flow through the
# other channels. The tensor that the layer made and its weights stay unchanged.
#
# <details><summary>Hint: the model's result does not change</summary>
#
# Does your hook return the new tensor? A hook without `return` keeps the output as it is.
# </details>
# <details><summary>Hint: the check says that I changed the layer's own output</summary>
#
# `output[...] = 0` writes into the tensor that the layer made. Write into a copy of it, or multiply.
# </details>

# %% tags=["solution"]
def switch_off(layer: nn.Module, channel: int) -> RemovableHandle:
    """Make one channel of the layer's output zero, until the returned handle is removed."""
    ### BEGIN SOLUTION
    def without_channel(module, args, output):
        changed = output.clone()
        changed[:, channel] = 0
        return changed

    return layer.register_forward_hook(without_channel)
    ### END SOLUTION

# %% tags=["check"]
check("3.2", switch_off)

# %% [markdown]
# ## What is each channel worth?
#
# The output of a convolution is a stack of images, one per channel, called **feature maps**. Here is a small network that
# reads handwritten digits, trained on the spot, and what three of its layers put out for a 3.

# %% tags=["claim-S0.7"]
data = digits()
cnn = trained_digits_cnn(seed=0)
image = data.test_images[9]
maps = {}


def keep_maps(module, args, output):
    maps[module] = output.detach()[0]  # of the only image


shown = {"conv1": cnn.conv1, "relu1": cnn.relu1}
handles = [module.register_forward_hook(keep_maps) for module in shown.values()]
_ = cnn(image.unsqueeze(0))
for handle in handles:
    handle.remove()

assert maps[cnn.relu1].shape == (8, 8, 8)
assert cnn.conv1.weight.shape == (8, 1, 3, 3)  # a parameter is there without a hook

# %% tags=["figure"]
figure = figures.feature_maps(image, {name: maps[module] for name, module in shown.items()})
plt.show()
assert torch.equal(maps[cnn.relu1], maps[cnn.conv1].clamp(min=0))

# %% [markdown]
# *What to see:* each channel of `conv1` answers to something else in the same 3. `relu1` shows the same eight maps without
# their negative parts (vermilion). `relu2`, further on, has sixteen channels.
#
# Pictures invite stories. A hook like yours from 3.2 can ask a harder question: **switch one channel of `relu2` off, and let the
# network read all 1,797 digits.** (This is called an *ablation*.) How many can it do without?

# %%
predict("3.c")

# %% tags=["predict", "figure"]
images = torch.cat([data.train_images, data.test_images])
labels = torch.cat([data.train_labels, data.test_labels])
usual = figures.answers(cnn, images)


def without(channel):
    def hook(module, args, output):
        keep = torch.ones(output.shape[1])
        keep[channel] = 0
        return output * keep[:, None, None]

    return hook


answers = []
for channel in range(16):
    with cnn.relu2.register_forward_hook(without(channel)):
        answers.append(figures.answers(cnn, images))

unchanged = [channel for channel in range(16) if torch.equal(answers[channel], usual)]
print("What came out:")
print("channels that change not one of 1,797 answers:", unchanged)
right = [(one == labels).float().mean().item() for one in (usual, *answers)]
costs = [right[0] - one for one in right[1:]]
figure = figures.worth(costs, unchanged)
plt.show()

# %%
reveal("3.c", len(unchanged))
assert max(costs) > 0.03, (
    "In the page's network, seed 0, one channel alone is worth several points."
)

# %% [markdown]
# The channels with a cross, if there are any: why them? Look at what goes **into** their ReLU, over all digits.

# %% tags=["folded"]
def keep_what_goes_in(module, args, output):
    maps["into"] = args[0].detach()


with cnn.relu2.register_forward_hook(keep_what_goes_in):
    _ = cnn(images)

largest = maps["into"].amax(dim=(0, 2, 3))  # per channel, over all digits and places
print("What came out:")
for channel in unchanged:
    into = maps["into"][:, channel]
    above = (into > 0).sum().item()
    print(f"channel {channel}: above zero at {above} of {into.numel():,} places")
assert unchanged and (largest[unchanged] <= 0).all()
assert (largest[[c for c in range(16) if c not in unchanged]] > 1).all()

untrained = trained_digits_cnn(seed=0, epochs=0)
with untrained.relu2.register_forward_hook(keep_what_goes_in):
    _ = untrained(images)
born_dead = [channel for channel in unchanged if (maps["into"][:, channel] <= 0).all()]
assert len(born_dead) == 1

# %% [markdown]
# They wait for no digit at all: they **never fire**. They are *dead units*, below zero for every picture. A ReLU that is off
# lets no gradient through, so their own weights get none; only a change in the layers before them, or weight decay, could
# bring them back. They take memory and time, and the accuracy does not tell. (One of the two was dead before the training
# began, by its first weights.)

# %% [markdown]
# ## A captured value is the same memory
#
# `detach()` gives you a tensor without a graph. It does **not** copy: the new tensor shares its numbers with the old one.
# Here a ReLU that works **in place** comes after the layer that we capture; a second hook keeps the ReLU's own `args`.
# ([A thread](https://github.com/meta-pytorch/captum/issues/156), [another](https://github.com/pytorch/pytorch/issues/95617))

# %% tags=["field", "field-27"]
inplace_model = nn.Sequential(Times(2), nn.ReLU(inplace=True))
captured = {}

def keep_three(module, args, output):
    captured["detach"] = output.detach()
    captured["clone"] = output.detach().clone()
    captured["numpy"] = output.detach().cpu().numpy()


def keep_args(module, args, output):
    captured["args"] = args[0].detach().clone()


with inplace_model[0].register_forward_hook(keep_three), inplace_model[1].register_forward_hook(keep_args):
    inplace_model(torch.tensor([1.0, -3.0]))

for name, value in captured.items():
    print(f"{name:<6} {value.tolist()}")
assert captured["detach"].tolist() == [2.0, 0.0]  # the layer made (2, -6): the ReLU wrote over it
assert captured["clone"].tolist() == [2.0, -6.0]
assert captured["numpy"].tolist() == [2.0, 0.0]
assert captured["args"].tolist() == [2.0, 0.0]  # a forward hook comes after forward: too late, clone or not

# %% [markdown]
# A clone made in time is safe; the ReLU's own forward hook comes too late. The NumPy array is not safe: `cpu()` copies only a
# tensor that is elsewhere, and `numpy()` does not copy. Try it in the trained network, whose ReLUs are switched to in place here.

# %% tags=["explorer"]
explorer.feature_maps()

# %% tags=["figure"]
image = digits().test_images[3]
conv1_maps = {clone: explorer.kept_maps(image, "conv1", clone) for clone in (False, True)}
for clone, maps_of_conv1 in conv1_maps.items():  # without a kernel: both positions of conv1
    display(explorer.draw_maps(image, maps_of_conv1, "a clone" if clone else "the output"))

assert (conv1_maps[False] < 0).sum() == 0  # overwritten by the ReLU
assert torch.equal(conv1_maps[False], conv1_maps[True].relu()) and (conv1_maps[True] < 0).any()

# %% [markdown]
# *What to see:* only the clone (below) shows negative values, in vermilion. Above, the ReLU has written over them.

# %% [markdown]
# ## What a capture costs
#
# People see their memory grow pass by pass, on the GPU and elsewhere. ([A
# thread](https://github.com/meta-pytorch/opacus/issues/176)) How much does one output cost that you keep? Five layers, each with an output of 10 × 100 floats of 4 bytes; a hook on the last one keeps its output in some form.
# `bytes_alive` counts what is still in memory afterwards, the batch included if something holds it.

# %% tags=["claim-S3.8", "field", "field-28", "figure"]
deep = nn.Sequential(*[nn.Sequential(nn.Linear(100, 100), nn.ReLU()) for _ in range(5)])
forms = {
    "output": lambda output: output,
    "output.detach()": lambda output: output.detach(),
    "output.detach()[0]": lambda output: output.detach()[0],
    "output.detach()[0].clone()": lambda output: output.detach()[0].clone(),
    "output.detach().mean()": lambda output: output.detach().mean(),
}
sizes = {name: bytes_alive(deep, form) for name, form in forms.items()}
figure = figures.bytes_held(sizes)
plt.show()

print(list(sizes.values()))
assert list(sizes.values()) == [24_000, 4_000, 4_000, 400, 4]

# %% [markdown]
# *What to see:* you kept one output, and six tensors are alive: the graph behind it holds the batch and what the ReLUs saved
# for `backward()`. A slice is a *view*, and keeps the memory of the whole batch. And you pay this for every pass that you
# keep. To **look**, keep `output.detach()`; if somebody may write into it, `.clone()` it; to watch a whole training, keep a
# **statistic**.

# %% [markdown]
# ## One module, used twice
#
# *"I captured the ReLU, and I only see its last output."* One ReLU object may stand in several places of a model. A
# hook belongs to the **module, not to the call**: it runs at each use, and a dictionary entry is overwritten.
# ([A thread](https://github.com/openai/CLIP/pull/239))

# %% tags=["field", "field-23", "field-147"]
class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.two, self.three, self.act = Times(2), Times(3), nn.ReLU()

    def forward(self, x):
        return self.act(self.three(self.act(self.two(x))))


twice, last, every = Twice(), {}, []

def keep_last_and_every(module, args, output):
    last["act"] = output.item()
    every.append(output.item())


with twice.act.register_forward_hook(keep_last_and_every):
    twice(torch.tensor(1.0))

print("in a dictionary:", last, "  in a list:", every)
assert last == {"act": 6.0} and every == [2.0, 6.0]

# %% [markdown] tags=["exercise"]
# ### Exercise 3.3 · Mend it: every use, in order
# ●●○ · 8 minutes
#
# This script wants the output of `module` at **each use** during `model(x)`, in order, detached, with the numbers that it had
# **at that moment**. It is broken in several ways. Fix it: one call of the model, in its own mode, and a new list in each
# call of your function. Your hook only looks, and none of your hooks is left. An exception in `model(x)` reaches the caller.
#
# ```python
# uses = {}
# def every_output(model, module, x):
#     module.register_forward_hook(lambda module, args, output: uses.update({module: output}))
#     model(x)
#     return list(uses.values())
# ```
#
# <details><summary>Hint: my list has only one entry</summary>
#
# A variable or a dictionary entry is overwritten at each use. Append to a list that you made before the call.
# </details>
# <details><summary>Hint: all my entries are equal, or too large</summary>
#
# You kept the memory, not the numbers. See what became of the captures before the in-place ReLU above.
# </details>
# <details><summary>Hint: the second call returns too many</summary>
#
# Make the list inside the function, and let the hook go at the end.
# </details>

# %% tags=["solution"]
def every_output(
    model: nn.Module, module: nn.Module, x: torch.Tensor
) -> list[torch.Tensor]:
    """Return the module's output at each use during model(x), in order, detached copies."""
    ### BEGIN SOLUTION
    uses = []

    def keep_copy(module, args, output):
        uses.append(output.detach().clone())

    with module.register_forward_hook(keep_copy):
        model(x)
    return uses
    ### END SOLUTION

# %% tags=["check"]
check("3.3", every_output)

# %% [markdown]
# ## What stays silent
#
# *"I put hooks everywhere, and some never fire."* Here is a model with many things to get wrong. `named_modules()` knows
# seven modules, the model itself (`""`) among them, and each gets a hook.

# %%
class Quiet(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Times(2), Times(3)])
        self.direct, self.unused, self.last = Times(5), Times(7), Times(10)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        x = self.direct.forward(x)
        return self.last(F.relu(x))


# %%
predict("3.d")

# %% tags=["predict"]
quiet, heard = Quiet(), []
names = {module: name for name, module in quiet.named_modules()}
handles = [
    m.register_forward_hook(lambda m, a, o: heard.append(names[m])) for m in names
]
result = quiet(torch.tensor([1.0, -1.0]))
for handle in handles:
    handle.remove()

print("What came out:")
print("heard: ", heard)
print("silent:", [name for name in names.values() if name not in heard])

# %%
reveal("3.d", len(heard))
assert heard == ["blocks.0", "blocks.1", "last", ""], (
    "In the page's model, four hooks run: the two blocks', last's and the model's."
)
assert result.tolist() == [300.0, 0.0], (
    "With the page's input, `direct` and the relu do their work: it's (300, 0)."
)

# %% [markdown] tags=["field", "field-21", "field-22", "field-32"]
# A module's `__call__` runs the hooks, and `module(x)` is what calls it. `F.relu` isn't on the list at all: a function
# isn't a module. You can still see its output, as `args` of the module that takes it in. And a famous one:
# `nn.MultiheadAttention` uses the weights of its `out_proj` and never calls it.

# %% tags=["field", "field-22"]
heard = []
attention = nn.MultiheadAttention(4, 2)
with (
    quiet.last.register_forward_hook(lambda module, args, output: heard.append(args[0].tolist())),
    attention.out_proj.register_forward_hook(lambda *three: heard.append("out_proj")),
):
    quiet(torch.tensor([1.0, -1.0]))
    attention(*torch.ones(3, 1, 1, 4))

print("F.relu put out", heard[0])
assert heard == [[30.0, 0.0]]  # and out_proj stayed silent

# %% [markdown]
# Silent hooks in the field: [`forward` called instead of the module](https://github.com/pytorch/pytorch/issues/117925)
# (write `self.direct(x)`), [a module that a pass leaves out](https://github.com/Lightning-AI/pytorch-lightning/pull/2298),
# [a function instead of a module](https://github.com/huggingface/transformers/pull/16874).
#
# ## Hooks left behind
#
# *"I fixed my hook, and the old error still comes."* *"My hook runs twice."* An exception left the block before `remove()`, or
# the handle was never kept, and the cell ran again. The **module** holds its hooks, in a dictionary; a handle is only the key
# to one of them, and losing a key removes nothing. `with` removes the hook however the block ends. ([A thread](https://github.com/TransformerLensOrg/TransformerLens/pull/156))

# %% tags=["claim-S1.3", "field", "field-34", "field-147"]
def broken(module, args, output):
    return output[5]  # there are only two


layer = Times(2)
for _ in range(2):  # the cell, run twice
    layer.register_forward_hook(broken)  # nobody keeps the handle
    message = error_of(layer, torch.tensor([1.0, -3.0]))
print(message, "  hooks left:", len(layer._forward_hooks))
assert message.startswith("IndexError") and len(layer._forward_hooks) == 2

layer._forward_hooks.clear()  # the last resort: private, and it removes everybody's hooks
try:
    with layer.register_forward_hook(broken) as handle:
        assert isinstance(layer._forward_hooks, OrderedDict) and layer._forward_hooks[handle.id] is broken
        layer(torch.tensor([1.0, -3.0]))
except IndexError:
    print("after `with`, hooks left:", len(layer._forward_hooks))
assert len(layer._forward_hooks) == 0

# %% [markdown]
# ## The same with hooklab
#
# You have built, piece by piece, what the course's package calls `capture`. It finds modules by name, pattern or type,
# attaches its hooks when the block starts, and removes them at the end, whatever happens inside. Where this lesson's traps
# are, it says so: a module used twice, one that stayed silent, a value that was changed in place after it was captured, a
# misspelt name. (Asked for nothing, it takes all *layers*: a container such as `blocks` is none.)

# %% tags=["field", "field-layer-output"]
with capture(cnn, "conv*", nn.ReLU) as seen:
    _ = cnn(data.test_images[:5])
print(seen)
assert list(seen) == ["conv1", "relu1", "conv2", "relu2"] and not seen["relu2"].requires_grad
assert not any(module._forward_hooks for module in cnn.modules())

with capture(twice) as seen:
    twice(torch.tensor(1.0))
assert [call.output.item() for call in seen.calls("act")] == [2.0, 6.0]
print(error_of(lambda: seen["act"]))

with capture(inplace_model) as seen:
    inplace_model(torch.tensor([1.0, -3.0]))
print(error_of(lambda: seen["0"]))

with capture(quiet) as seen:
    quiet(torch.ones(2))
print("silent:", seen.silent)
assert seen.silent == ["direct", "unused"]

with edit(model, lambda output, call: output / 2, "0"):  # replaces; must return the same shape, or None
    assert model(torch.tensor([1.0, -3.0])).tolist() == [10.0, 0.0]

# %% [markdown] tags=["recap"]
# ## Recap
#
# A forward hook sees a module's arguments and output, once for each call of the module. What it returns, unless `None`,
# takes the output's place. What it keeps is the model's own memory: detach it, clone it, or keep a number. Switching
# things off tells more than looking at them.
#
# | the documents say | today |
# |---|---|
# | module hooks extract feature maps, and parameters (S0) | feature maps, yes; a parameter is there without a hook |
# | the hook goes into an ordered dictionary, under its handle's id (S1) | true |
# | a forward hook must not return anything (S1) | whatever it returns, except `None`, replaces the output, since 1.2 |
# | input and output are those of the module with the hook (S1) | true: a whole net or one layer; the input is a tuple |
# | the example with a hook on the net, then on `layers[1]` (S1) | true |
# | do not keep captured tensors on the GPU (S3) | true of any memory |
# | only the output can be changed, by return: manifold mixup (S3) | true: lesson 7 |
# | a forward hook only looks, it never touches the graph (S4) | only if it returns `None` |
# | ↓ changing the input in place does not affect this result (S2) | true where the layer makes a new tensor; but the caller's tensor changes, and `backward()` may fail |
# | ↓ the output is a Tensor; `.data.cpu().numpy()` exports it (S3) | it is whatever `forward` returned; `.detach().cpu().numpy()` |
#
# (↓ is shown below, in "If you want more".)
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | forward hook | 前向钩子 | called after a module's `forward`, with module, args, output |
# | feature map | 特征图 | one channel of a convolution's output, seen as an image |
# | ablation | 消融 | switching a part off, to see what it was worth |
# | dead unit | 死亡神经元 | a ReLU that is off for every input, and gets no gradient |
# | in-place operation | 原地操作 | writes into its input instead of making a new tensor |
# | detach, clone | 分离，克隆 | the same numbers without the graph; in memory of their own |
# | container | 容器 | a module that only holds others, such as `ModuleList` |

# %% [markdown] tags=["quiz"]
# ### Three questions
#
# **1.** A hook on `layer` is `lambda module, args, output: print(output.mean())`. Does it change what the model computes?
#
# <details><summary>Answer</summary>
#
# No: `print` returns `None`, so the lambda does too, and the output stays.
# </details>
#
# **2.** You capture `bn` with `output.detach()`. The next layer is `nn.ReLU(inplace=True)`. Why does your capture
# have no negative numbers?
#
# <details><summary>Answer</summary>
#
# `detach()` shares memory. The ReLU wrote its zeros into the tensor that you kept. `detach().clone()` keeps the
# numbers.
# </details>
#
# **3.** Your hook on `model.blocks`, a `ModuleList`, never runs, although every block does. Why, and what do you do?
#
# <details><summary>Answer</summary>
#
# Hooks run when somebody calls the module that carries them. The model calls the blocks one by one, never the list.
# Put the hook on each block.
# </details>

# %%
progress(3)

# %% [markdown]
# ## If you want more
#
# ### The output is whatever `forward` returned
#
# Often that is a tensor. An LSTM returns a tuple of a tensor and another tuple, and many models return a dictionary. The hook gets that, as it is; and whoever replaces it must keep its structure,
# because the caller is going to unpack it. ([A thread](https://github.com/sksq96/pytorch-summary/issues/143))

# %% tags=["field", "field-26", "claim-S3.7"]
lstm, steps = nn.LSTM(input_size=2, hidden_size=3), torch.ones(4, 1, 2)
shapes, arrays = [], []

def unpack(module, args, output):
    outputs, (hidden, cell) = output
    shapes.append([tuple(t.shape) for t in (outputs, hidden, cell)])
    arrays.append((args[0].detach().cpu().numpy(), outputs.detach().cpu().numpy()))  # today's .data.cpu().numpy()


with lstm.register_forward_hook(unpack):
    lstm(steps)
print(shapes[0], " exported:", [type(array).__name__ for array in arrays[0]])
assert shapes[0] == [(4, 1, 3), (1, 1, 3), (1, 1, 3)]
assert (arrays[0][0] == steps.numpy()).all() and arrays[0][1].shape == (4, 1, 3)

with lstm.register_forward_hook(lambda module, args, output: output.detach()):
    message = error_of(lstm, steps)
print(message)
assert message == "AttributeError: 'tuple' object has no attribute 'detach'"

# %% tags=["field", "field-26"]
def only_first(module, args, output):
    return output[0] * 0

def whole_structure(module, args, output):
    return (output[0] * 0, *output[1:])


with lstm.register_forward_hook(only_first):
    try:
        outputs, (hidden, cell) = lstm(steps)
        raise AssertionError("no error came")
    except ValueError as error:
        print("only the first part: ", "ValueError:", str(error).split(" (")[0])

with lstm.register_forward_hook(whole_structure):
    outputs, (hidden, cell) = lstm(steps)
print("the whole structure: ", "outputs zero, states kept")
assert not outputs.any() and hidden.any() and cell.any()

# %% tags=["field", "field-26"]
class TwoAnswers(nn.Module):
    def forward(self, x):
        return {"double": 2 * x, "triple": 3 * x}


def without_double(module, args, output):
    return {**output, "double": output["double"] * 0}


two_answers = TwoAnswers()
with two_answers.register_forward_hook(without_double):
    answers = two_answers(torch.tensor(1.0))

print({name: value.item() for name, value in answers.items()})
assert answers == {"double": torch.tensor(0.0), "triple": torch.tensor(3.0)}

# %% [markdown] tags=["exercise"]
# ### Exercise 3.4 · Any output, detached
# ●●○ · 8 minutes
#
# Run `model(x)` and return the output of `layer` in **its own structure**: tuples, lists and dictionaries, one inside
# the other, with every tensor in them detached. What is no tensor (`None`, a number) stays as it is. Plain tuples, lists and
# dictionaries are enough. The tensors keep their dtype. The model runs once, in its own mode, its result and its graph are
# the same as without your hook, and none of your hooks is left. An exception in `model(x)` reaches the caller.
#
# <details><summary>Hint: "'tuple' object has no attribute 'detach'"</summary>
#
# Write a small function that looks at the type: a tensor is detached; for a tuple, a list or a dictionary it calls
# itself on each part.
# </details>
# <details><summary>Hint: the check says that the model noticed</summary>
#
# Build new dictionaries and lists, do not write into those that the model goes on with. And does your hook return
# something?
# </details>

# %% tags=["solution"]
def structure_of(model: nn.Module, layer: nn.Module, x: torch.Tensor) -> Any:
    """Return the output of `layer` during model(x), same structure, tensors detached."""
    ### BEGIN SOLUTION
    def detached(part):
        if isinstance(part, torch.Tensor):
            return part.detach()
        if isinstance(part, tuple | list):
            return type(part)(detached(one) for one in part)
        if isinstance(part, dict):
            return {key: detached(one) for key, one in part.items()}
        return part

    found = []

    def keep_structure(module, args, output):
        found.append(detached(output))

    with layer.register_forward_hook(keep_structure):
        model(x)
    return found[0]
    ### END SOLUTION

# %% tags=["check"]
check("3.4", structure_of)

# %% [markdown]
# ### Blocks of your own
#
# For several hooks you want one block of your own. (Python's `contextlib.ExitStack` is one way.) `@contextmanager` makes it from a
# function with a `yield`: what stands before it runs at the start of the block, what stands after it at the end. A
# `try … finally` around the `yield` runs its end even when the block raises.

# %%
events = []

@contextmanager
def block(name: str) -> Iterator[str]:
    events.append("start")
    try:
        yield name.upper()  # what `as` receives
    finally:
        events.append("end")


try:
    with block("b") as received:
        events.append(received)
        raise KeyError("in the block")
except KeyError:
    events.append("the error came out")

print(events)
assert events == ["start", "B", "end", "the error came out"]

# %% [markdown] tags=["exercise"]
# ### Exercise 3.5 · A capture that cleans up
# ●●● · 10 minutes
#
# Write `with capturing(model, ["body.first", "head"]) as captured:`, which gives a dictionary: name → detached output
# of the **last** call of the model, with its dtype. An entry is there as soon as its module has run, and it stays after the
# block. Each block has its own dictionary. Your hooks are there from the beginning of the block to its end, **also when the
# block raises**; the exception reaches the caller. They only look: the model runs as without them, and can still be trained
# in the block. A name that does not exist is an error before the block begins, and leaves no hook.
#
# <details><summary>Hint: all entries are under the last name</summary>
#
# Late binding, as in lesson 2. A function made in a loop looks up `name` when it runs. Make each hook by a function
# that takes the name as an argument.
# </details>
# <details><summary>Hint: after a wrong name, a hook is left</summary>
#
# The first name was fine and its hook was registered; then the second failed. Find all modules first, for example with
# `model.get_submodule(name)`.
# </details>
# <details><summary>Hint: after an exception, hooks are left</summary>
#
# Code after a bare `yield` is skipped when the block raises. What did `finally` do above?
# </details>

# %% tags=["solution"]
@contextmanager
def capturing(model: nn.Module, names: list[str]) -> Iterator[dict[str, torch.Tensor]]:
    """Give a dictionary that receives the outputs of the named modules, detached."""
    ### BEGIN SOLUTION
    modules = {name: model.get_submodule(name) for name in names}
    outputs: dict[str, torch.Tensor] = {}

    def storing_as(name):
        def hook(module, args, output):
            outputs[name] = output.detach()

        return hook

    attached = []
    try:
        for name, module in modules.items():
            attached.append(module.register_forward_hook(storing_as(name)))
        yield outputs
    finally:
        for one in attached:
            one.remove()
    ### END SOLUTION

# %% tags=["check"]
check("3.5", capturing)

# %% [markdown]
# ### Writing into a tensor
#
# Why return, and not write into the tensor? When the hook runs, the linear layer has made a new tensor: this output no longer
# changes. (A layer that hands on its input's own memory, such as `nn.Identity`, changes with it.) But the tensor that you
# write into belongs to somebody else, and autograd may still need it.

# %% tags=["claim-S2.4", "field", "field-143"]
def wipe_input(module, args, output):
    args[0].zero_()  # zero_ is in place: it writes into the tensor


linear = nn.Linear(1, 1, bias=False)
nn.init.constant_(linear.weight, 2.0)
batch = torch.tensor([[3.0]])
with linear.register_forward_hook(wipe_input):
    result = linear(batch)

print("output:", result.item(), "  the caller's batch:", batch.item())
assert result.item() == 6.0 and batch.item() == 0.0
message = error_of(result.sum().backward).split(": ")[1]
print("backward:", message)
assert message.endswith("modified by an inplace operation")

same_memory = nn.Identity()
with same_memory.register_forward_hook(wipe_input):
    assert same_memory(torch.tensor([[3.0]])).item() == 0.0

sigmoid = nn.Sigmoid()  # saves its output for backward()
with sigmoid.register_forward_hook(lambda module, args, output: output.mul_(2)):
    result = sigmoid(torch.zeros(1, requires_grad=True))
assert result.item() == 1.0 and "modified by an inplace operation" in error_of(result.backward)

# %% [markdown]
# ### Features for another task
#
# *Transfer learning* takes what an inner layer puts out as features, and trains something small on them. Our network was trained to tell ten digits apart. Is a digit even or odd? A linear layer on the
# features of `pool` tells, in a second; the network itself stays as it is.

# %%
with torch.no_grad():
    features = run_until(cnn, "pool", images).flatten(1)

torch.manual_seed(0)
head = nn.Linear(features.shape[1], 2)
optimizer = torch.optim.Adam(head.parameters(), lr=0.01)
is_train = torch.arange(len(labels)) % 2 == 0
for _ in range(60):
    optimizer.zero_grad()
    F.cross_entropy(head(features[is_train]), labels[is_train] % 2).backward()
    optimizer.step()

right = (head(features[~is_train]).argmax(dim=1) == labels[~is_train] % 2).float().mean().item()
print("even or odd, on digits that the new layer has not seen: more than 9 in 10 right:", right > 0.9)
assert right > 0.9

# %% [markdown]
# ### "Before or after the activation?"
#
# A layer's output is what its own `forward` returned: before a ReLU or a dropout that is a module of its own. Those have
# outputs, too.

# %% tags=["field", "field-146"]
behind = nn.Sequential(nn.Identity(), nn.ReLU(), nn.Dropout(0.5))
with capture(behind) as seen:
    behind(torch.tensor([-1.0, 1.0]))

print({name: value.tolist() for name, value in list(seen.items())[:2]})
assert seen["0"].tolist() == [-1.0, 1.0] and seen["1"].tolist() == [0.0, 1.0]
assert seen["2"].tolist() in ([0.0, 2.0], [0.0, 0.0])  # in training, a dropout keeps a number and doubles it, or drops it

# %% [markdown]
# ### "My hook runs in validation as well"
#
# A hook has no mode: it runs in every call of its module, in `eval()` and under `no_grad()` too. If it should run in training
# only, ask `module.training`, which `model.train()` and `model.eval()` set. `torch.is_grad_enabled()` says whether
# autograd records.

# %% tags=["field", "field-validation"]
def noise_in_training(module, args, output):
    calls.append((module.training, torch.is_grad_enabled()))
    return output + torch.rand_like(output) if module.training else None


layer, calls, one = nn.Identity(), [], torch.ones(2)
with layer.register_forward_hook(noise_in_training):
    with_noise = layer(one)
    layer.eval()
    with torch.no_grad():
        without = layer(one)

print("(training, recording) in each call of the hook:", calls)
assert calls == [(True, True), (False, False)]
assert not torch.equal(with_noise, one) and torch.equal(without, one)

# %% [markdown]
# ### "Can't call numpy() on Tensor that requires grad"
#
# And when that is mended: *"unsupported ScalarType BFloat16"*. NumPy knows neither graphs nor bfloat16, the short float that
# mixed-precision training uses. Under autocast, a hook sees the short floats.
# ([A thread](https://github.com/curt-tigges/crosslayer-coding/pull/30))

# %% tags=["field", "field-41"]
linear, outputs = nn.Linear(1, 1), []
mixed_precision = torch.autocast("cpu", dtype=torch.bfloat16)
with mixed_precision, linear.register_forward_hook(lambda m, args, out: outputs.append(out)):
    linear(torch.ones(1, 1))
output = outputs[0]
assert output.dtype == torch.bfloat16 and output.requires_grad

print(error_of(output.numpy).split(". ")[0])
print(error_of(output.detach().numpy))
assert error_of(output.numpy).startswith("RuntimeError: Can't call numpy() on Tensor that requires grad")
assert error_of(output.detach().numpy) == "TypeError: Got unsupported ScalarType BFloat16"

array = output.detach().float().cpu().numpy()  # the whole way
print("mended:", array.dtype, array.shape)
assert array.dtype == "float32"

# %% [markdown]
# ### "I compute a loss from the feature that I captured, and backward fails"
#
# *Element 0 of tensors does not require grad.* Or, with another term in the loss, no error and no effect. A detached value is cut off from the
# graph. To look: detach. For a loss: keep the **live** output, and let it go after `backward()`.
# ([A thread](https://github.com/jantic/DeOldify/issues/116))

# %% tags=["field", "field-28", "field-145"]
linear, features = nn.Linear(1, 1), {}

def keep_two(module, args, output):
    features["detached"], features["live"] = output.detach(), output


with linear.register_forward_hook(keep_two):
    linear(torch.ones(1, 1))
message = error_of(features["detached"].sum().backward)
print("detached:", message)
assert "does not require grad" in message and linear.weight.grad is None

features.pop("live").sum().backward()  # pop: nothing keeps the graph alive afterwards
print("live:     weight.grad =", linear.weight.grad.item())
assert linear.weight.grad.item() == 1.0

# %% [markdown]
# ### "'tuple' object has no attribute 'register_forward_hook'"
#
# `named_modules()` gives pairs of a name and a module; `get_submodule(name)` gives the module that has this name.
# ([A thread](https://github.com/IvanDrokin/torch-conv-kan/issues/1))

# %% tags=["field", "field-150"]
pair = next(quiet.named_modules())
message = error_of(lambda: pair.register_forward_hook(report))
print(message)
assert message == "AttributeError: 'tuple' object has no attribute 'register_forward_hook'"
assert quiet.get_submodule("blocks.1") is quiet.blocks[1]  # so are the names made

# %% [markdown]
# ### "I zip my values with the names that I asked for, and they do not fit"
#
# Values come in the order in which the layers *run*, which need be neither the order in which you asked nor the one in
# which the model was written. Keep name and value together, as a dictionary does.

# %% tags=["field", "field-108"]
class LastFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.b, self.a = nn.Linear(3, 5), nn.Linear(2, 3)

    def forward(self, x):
        return self.b(self.a(x))


last_first, values = LastFirst(), []
handles = [
    getattr(last_first, name).register_forward_hook(lambda m, args, output: values.append(output)) for name in ("b", "a")
]
_ = last_first(torch.ones(4, 2))
for handle in handles:
    handle.remove()
with capture(last_first, "b", "a") as seen:
    _ = last_first(torch.ones(4, 2))

print("zipped:", dict(zip(("b", "a"), [tuple(value.shape) for value in values], strict=True)))
print("kept with its name:", {name: tuple(value.shape) for name, value in seen.items()})
assert values[0].shape == (4, 3) and seen["b"].shape == (4, 5)  # b's name stood on a's value

# %% [markdown]
# ### "I only looked at the shapes, and the accuracy is worse than before"
#
# A forward is a forward: in train mode it moves BatchNorm's running statistics (and the vectors of `spectral_norm`), under
# `no_grad()` too, and with a batch of zeros it moves them to the wrong place. Call `eval()` before you look.

# %% tags=["field", "field-113"]
norm = nn.BatchNorm1d(2)
before = norm.running_mean.clone()
with torch.no_grad(), capture(norm) as seen:
    norm(torch.full((4, 2), 9.0))
assert not torch.equal(norm.running_mean, before)  # looking has changed the model

norm.eval()
moved = norm.running_mean.clone()
with capture(norm) as seen:
    norm(torch.full((4, 2), 9.0))
print("moved in train mode:", not torch.equal(moved, before), "  in eval mode:", not torch.equal(norm.running_mean, moved))
assert torch.equal(norm.running_mean, moved)

# %% [markdown]
# ### "`Sequential(*model.children())` gives other results than the model"
#
# What `forward` does between the children is lost: here a flatten (an error), and a ReLU (silence). To run half of a
# model, let the model run and stop it with a hook.

# %% tags=["field", "field-116"]
class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.pool, self.fc = nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(2), nn.Linear(8, 2)

    def forward(self, x):
        return self.fc(self.pool(F.relu(self.conv(x))).flatten(1))


torch.manual_seed(0)
functional, x = Functional(), torch.linspace(-1, 1, 36).reshape(1, 1, 6, 6)
children = list(functional.children())
print("all of them:  ", error_of(nn.Sequential(*children), x).split(" (")[0].split(": ")[-1])
half_by_hand = nn.Sequential(*children[:2])(x)
half_by_hook = run_until(functional, "pool", x)
print("without the last, the same as in the model:", torch.allclose(half_by_hand, half_by_hook))
assert torch.equal(half_by_hook, functional.pool(F.relu(functional.conv(x))))
assert not torch.allclose(half_by_hand, half_by_hook)  # the ReLU was lost without a word
