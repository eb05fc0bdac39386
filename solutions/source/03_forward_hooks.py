# %% [markdown]
# # 3 · How do I see a layer's output, and replace it?
#
# **Time** 60 minutes, and 58 for what comes after the recap &nbsp;·&nbsp; **You need** lessons 1 and 2: `detach()`, a hook, its handle
#
# After this lesson you can
#
# - read the output of any layer of any model, whatever its form;
# - replace it on purpose, and never by accident;
# - find out what each channel of a network is worth;
# - say what a captured value costs, and why a hook stays silent.

# %% tags=["setup"]
import inspect
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
from hooklab.course.exercises.ready import yours_or
from hooklab.course.lesson03 import explorer, figures, ready
from hooklab.course.lesson03.helpers import bytes_alive

torch.set_num_threads(1)

# %% [markdown]
# ## One hook, four modules
#
# Here's a model in which you can follow every number. It multiplies by 2, applies a ReLU, and multiplies by 10:
#
# (1, −3) → (2, −6) → (2, 0) → (20, 0)
#
# A **forward hook** runs right after a module's `forward`. The next cells register the same hook, `report`, on the model itself
# and then on its three layers, in this order.

# %%
class Times(nn.Module):
    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return self.factor * x


def report(module, args, output):
    order.append(type(module).__name__)
    print(f"{type(module).__name__:<10} returned {output.tolist()}")


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
# The hook receives three arguments:
#
# - `module`: the module that has run;
# - `args`: a **tuple** of its positional arguments (keyword arguments are missing: see lesson 4);
# - `output`: whatever its `forward` returned.
#
# ## S3's hook and S1's
#
# [S3](00_start_here.ipynb#documents) exports the input and the output of a convolution into two lists. Here is its code, with a
# small network around it. `args` is called `inp` in S3, and because it's a tuple, S3 takes its first entry:

# %% tags=["field", "field-layer-output", "claim-S3.7", "claim-S3.13"]
net = nn.Sequential(OrderedDict(layer1=nn.Conv2d(3, 4, 3), act=nn.ReLU())).eval()
input = torch.randn(1, 3, 28, 28)

inps, outs = [], []


def layer_hook(module, inp, out):
    inps.append(inp[0].detach().cpu().numpy())  # S3: .data.cpu().numpy()
    outs.append(out.detach().cpu().numpy())


hook = net.layer1.register_forward_hook(layer_hook)
output = net(input)
hook.remove()

print("input: ", type(inps[0]).__name__, inps[0].shape)
print("output:", type(outs[0]).__name__, outs[0].shape)
assert (inps[0] == input.numpy()).all() and outs[0].shape == (1, 4, 26, 26)
assert next(iter(inspect.signature(net.register_forward_hook).parameters)) == "hook"

# %% [markdown]
# (S3's heading, `register_forward_hook(module, in, out)`, lists what the hook receives. The method itself takes the hook.)
#
# S1 registers one hook on a whole net and on its second layer. Which `args` and `output` does the hook receive? Those of
# **the module that it's registered on**:

# %% tags=["claim-S1.7", "claim-S1.6"]
a = nn.Sequential(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.ReLU()).eval()
x, hook_list = torch.randn(1, 3, 28, 28), []


def hook(module, input, output):
    hook_list.append(input)
    hook_list.append(output)


with a.register_forward_hook(hook):
    result = a(x)
with a[1].register_forward_hook(hook):
    a(x)

net_input, net_output, norm_input, norm_output = hook_list
print("the net:", tuple(net_input[0].shape), "->", tuple(net_output.shape))
print("a[1]:   ", tuple(norm_input[0].shape), "->", tuple(norm_output.shape))
assert net_input[0] is x and net_output is result
assert torch.equal(norm_input[0], a[0](x))  # the convolution's output
assert torch.equal(norm_output, a[1](a[0](x)))
assert (norm_output < 0).any() and (a[0](x) < 0).any()  # before the ReLU

# %% [markdown]
# Here S1 makes a mistake. It says that a layer's output is what comes *after the activation*. It isn't: the convolution and the
# norm return negative numbers, because the ReLU is a layer of its own and runs later.

# %% [markdown] tags=["exercise"]
# ### Exercise 3.1 · One layer's output
# ●○○ · 5 minutes
#
# Run `model(x)` once, to its end, and return the output of `layer`, which is one of the model's modules. Return a tensor of the
# same dtype, **detached** from the graph. Your hook only reads: the model's result, its graph and its mode (training or
# evaluation) stay the same. When your function returns, none of your hooks is left. If `model(x)` raises an exception, let it
# through.
#
# <details><summary>Hint: what I return is the model's result</summary>
#
# `model(x)` returns the last layer's output. The output of `layer` arrives in the hook: store it in a list there.
# </details>
# <details><summary>Hint: "list index out of range"</summary>
#
# The hook hasn't run. Register it before `model(x)`, and remove it afterwards.
# </details>

# %% tags=["solution"]
def output_of(model: nn.Module, layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Return the output of `layer` in model(x), detached."""
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
# So far our hooks returned `None`, and the output stayed the same. **If a forward hook returns anything else, that replaces the
# output**, and the rest of the model goes on with it.

# %% tags=["claim-S1.5"]
def half(module, args, output):
    return output / 2


x = torch.tensor([1.0, -3.0])
with model[0].register_forward_hook(half):
    changed = model(x)

print("without the hook:", model(x).tolist())
print("with the first layer's output halved:", changed.tolist())
assert model(x).tolist() == [20.0, 0.0]
assert changed.tolist() == [10.0, 0.0]

# %% tags=["figure"]
three_hooks = ["return None", "return output + 1", "output.add_(1)"]
figure = one_call.draw_hooks(three_hooks)  # on a module that returns 6
display(figure)

# %% [markdown]
# *What to see:* purple is what a hook has changed. With `None`, the output stays. A returned tensor replaces it and has its own
# memory. The third hook writes in place: it changes the tensor that `forward` returned, for everything that refers to it.

# %% [markdown]
# The next hook is only supposed to store the first output that it sees. We run the model on (1, −3) and then on (5, 5). Without
# the hook, it returns (20, 0) and (100, 100).

# %%
assert model(torch.tensor([5.0, 5.0])).tolist() == [100.0, 100.0]
memory = {}


def remember_the_first(module, args, output):
    return memory.setdefault("first", output)

# %%
predict("3.b")

# %% tags=["predict"]
with model[0].register_forward_hook(remember_the_first):
    one = model(torch.tensor([1.0, -3.0]))
    two = model(torch.tensor([5.0, 5.0]))

print("What came out:")
print("first: ", one.tolist())
print("second:", two.tolist())

# %%
reveal("3.b", two.tolist())
assert one.tolist() == two.tolist() == [20.0, 0.0], (
    "With the page's inputs, the model returns (20, 0) both times."
)

# %% [markdown]
# S1 warns you of this case: whatever the hook returns overwrites the result, so a hook must return nothing. The first half is
# right, and the second is only advice. S4 says that a forward hook only looks. That was so before PyTorch 1.2: in the old
# source that S4 prints, a hook that returns something raises an error.
#
# Today, one `return` can also do harm that no number shows. If a hook ends with `return output.detach()`, every output is right,
# and there's no error. But the new output isn't connected to the graph. **This layer stops learning, and so does everything
# that reaches the loss only through it**, while the layers after it go on learning:

# %% tags=["claim-S4.2"]
def weights_that_learn(hook) -> list[bool]:
    three = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 1))
    with three[1].register_forward_hook(hook):
        three(torch.ones(1, 2)).sum().backward()
    return [layer.weight.grad is not None for layer in three]


def detached(module, args, output):
    return output.detach()


print("returns None:           ", weights_that_learn(lambda *three: None))
print("returns output.detach():", weights_that_learn(detached))
assert weights_that_learn(lambda *three: None) == [True, True, True]
assert weights_that_learn(half) == [True, True, True]
assert weights_that_learn(detached) == [False, False, True]

# %% [markdown]
# The opposite mistake: *"My hook computes the new output, and nothing changes."* In the first hook below, `out`
# becomes the name of a new tensor, but the model never gets that tensor. ([A
# thread](https://github.com/shivamsaboo17/ManifoldMixup/pull/1)) S3 says that a change is *best* returned. Writing into `out` works,
# too, as the third hook shows, but it has the traps of every in-place operation.

# %% tags=["field", "field-24", "claim-S3.9"]
lam, indices = 0.75, torch.tensor([1, 0])

def forgetful(module, args, out):
    out = lam * out + (1 - lam) * out[indices]

def mix(module, args, out):
    return lam * out + (1 - lam) * out[indices]

def erase(module, args, out):
    out.mul_(0)


layer, features = nn.Identity(), torch.tensor([[0.0], [4.0]])
with layer.register_forward_hook(forgetful):
    lost = layer(features)
with layer.register_forward_hook(mix):
    mixed = layer(features)
with layer.register_forward_hook(erase):
    erased = layer(features.clone())

print("without return:", lost.flatten().tolist())
print("with return:   ", mixed.flatten().tolist())
print("in place:      ", erased.flatten().tolist())
assert lost.flatten().tolist() == [0.0, 4.0]
assert mixed.flatten().tolist() == [1.0, 3.0]  # 0.25 · 4, and 0.75 · 4
assert erased.flatten().tolist() == [0.0, 0.0]

# %% [markdown]
# The line in `mix` is S3's. It mixes each sample with a partner in the middle of a network, and it's the heart of a training
# method: lesson 7 builds it.

# %% [markdown] tags=["exercise"]
# ### Exercise 3.2 · Switch a channel off
# ●○○ · 5 minutes
#
# `layer` returns feature maps of shape `(batch, channels, height, width)`. Register a hook that replaces them with a new tensor of
# the same dtype, in which channel number `channel` is **zero** and all other channels are unchanged. Return the handle; the hook
# works until the caller removes it, in training mode and in evaluation mode. Gradients still flow through the other channels. The
# tensor that the layer returned and the layer's weights stay unchanged.
#
# <details><summary>Hint: the model's result does not change</summary>
#
# Does your hook return the new tensor? A hook without `return` leaves the output unchanged.
# </details>
# <details><summary>Hint: the check says that I changed the layer's own output</summary>
#
# `output[...] = 0` writes into the tensor that the layer returned. Write into a copy of it, or multiply.
# </details>

# %% tags=["solution"]
def switch_off(layer: nn.Module, channel: int) -> RemovableHandle:
    """Make one channel of the layer's output zero; return the hook's handle."""
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
# The output of a convolution is a stack of images, one for each channel, called **feature maps**. Here's a small network that
# reads handwritten digits: `conv1`, `relu1`, `conv2`, `relu2`, `pool`, and a linear layer. The next cell trains it, and the
# picture shows what its first two layers return for a 3.

# %% tags=["claim-S0.7"]
data = digits()
cnn = trained_digits_cnn(seed=0)
image = data.test_images[9]
names, maps = {cnn.conv1: "conv1", cnn.relu1: "relu1"}, {}


def keep_maps(module, args, output):
    maps[names[module]] = output.detach()[0]  # of the only image


handles = [module.register_forward_hook(keep_maps) for module in names]
_ = cnn(image.unsqueeze(0))
for handle in handles:
    handle.remove()

assert maps["relu1"].shape == (8, 8, 8)
assert cnn.conv1.weight.shape == (8, 1, 3, 3)  # a parameter needs no hook

# %% tags=["figure"]
display(figures.feature_maps(image, maps))
assert torch.equal(maps["relu1"], maps["conv1"].clamp(min=0))

# %% [markdown]
# *What to see:* the eight channels of `conv1` respond to different parts of the same 3. `relu1` shows the same maps without their
# negative parts (orange).
#
# Pictures invite stories. Your function from 3.2 can answer a harder question. A later layer, `relu2`, has sixteen channels:
# switch off one of them, and let the network read all 1,797 digits. (That's called an *ablation*.) How much worse does it get?
# To see how much of the answer is chance, we train **five networks** that differ only in their random start. Each reads more
# than 96 % of the digits right.

# %%
switch = yours_or("3.2", switch_off, ready.switch_off)

# %%
predict("3.c")

# %% tags=["predict", "figure"]
images = torch.cat([data.train_images, data.test_images])
labels = torch.cat([data.train_labels, data.test_labels])
networks = [trained_digits_cnn(seed=seed) for seed in range(5)]


def accuracy(answers):
    return (answers == labels).float().mean().item()


costs, unchanged = [], []  # for each network
for network in networks:
    usual = figures.answers(network, images)
    answers = []
    for channel in range(16):
        with switch(network.relu2, channel):
            answers.append(figures.answers(network, images))
    costs.append([accuracy(usual) - accuracy(one) for one in answers])
    unchanged.append([number for number in range(16) if answers[number].equal(usual)])

worst = max(max(row) for row in costs)
print("What came out:")
print(f"the most that a single channel is worth: {100 * worst:.0f} points of accuracy")
figure = figures.worth(costs, unchanged)
plt.show()

# %%
reveal("3.c", worst)
assert 0.005 < worst < 0.1, (
    "In the page's networks, seeds 0 to 4, one channel is worth up to a few points."
)
assert sorted(max(row) for row in costs)[-2] < worst / 2, (
    "In the page's networks, the largest drop is twice the next network's."
)
assert min(min(row) for row in costs) < 0, (
    "In the page's networks, some channel does harm: without it, more digits are right."
)

# %% [markdown]
# *What to see:* each bar is a channel that was switched off. The largest drop comes from one channel of one network. In the other
# four, no channel is worth even half as much. A bar below zero is a channel *without* which the network reads better.
#
# A cross marks a channel that changes nothing: all 1,797 answers stay the same without it. Some networks have one or two of them,
# others have none. What's special about them? Look at what goes **into** their ReLU, for all digits.

# %% tags=["folded"]
def keep_what_goes_in(module, args, output):
    maps["into"] = args[0].detach()


print("What came out:")
for number, network in enumerate(networks):
    with network.relu2.register_forward_hook(keep_what_goes_in):
        loss = F.cross_entropy(network(images), labels)
    largest = maps["into"].amax(dim=(0, 2, 3))  # for each channel, over all digits
    never = [channel for channel in range(16) if largest[channel] <= 0]
    print(f"network {number}: crosses {unchanged[number]}, never above zero: {never}")

    loss.backward()
    assert never == unchanged[number]
    assert accuracy(figures.answers(network, images)) > 0.96
    assert not network.conv2.weight.grad[never].any()  # no gradient at all
    network.zero_grad()
assert any(unchanged)

# %% [markdown]
# They **never fire**. They're *dead units*, as in lesson 2: what goes into their ReLU is below zero for every picture. A ReLU that
# is off passes no gradient, so the channel's own weights get no gradient that could bring it back. Dead channels take memory and
# time, and you can't see them in the accuracy.
#
# And what a channel is worth belongs to one trained network, not to its architecture: five random starts give five different
# pictures.
# Nor does a small drop show that a channel does nothing: if two do the same work, you lose it only when both are off. ([Lesson
# 9](09_seeing_features.ipynb) has two attention heads like that.)

# %% [markdown]
# ## A captured value shares its memory
#
# `detach()` gives you a tensor that isn't connected to the graph. It does **not** copy: the new tensor shares its memory with the
# old one. Below, the layer that we capture is followed by a ReLU that works **in place**. A second hook stores the ReLU's own
# `args`. ([A thread](https://github.com/meta-pytorch/captum/issues/156),
# [another](https://github.com/pytorch/pytorch/issues/95617))

# %% tags=["field", "field-27"]
inplace_model = nn.Sequential(Times(2), nn.ReLU(inplace=True))
captured = {}

def keep_three(module, args, output):
    captured["detach"] = output.detach()
    captured["clone"] = output.detach().clone()
    captured["numpy"] = output.detach().cpu().numpy()


def keep_args(module, args, output):
    captured["args"] = args[0].detach().clone()


first, relu = inplace_model
with first.register_forward_hook(keep_three), relu.register_forward_hook(keep_args):
    inplace_model(torch.tensor([1.0, -3.0]))

for name, value in captured.items():
    print(f"{name:<6} {value.tolist()}")
assert captured["detach"].tolist() == [2.0, 0.0]  # was (2, -6)
assert captured["clone"].tolist() == [2.0, -6.0]
assert captured["numpy"].tolist() == [2.0, 0.0]
assert captured["args"].tolist() == [2.0, 0.0]  # the ReLU has run: too late

# %% [markdown]
# Clone the output before the ReLU runs, and it's safe. The ReLU's own forward hook runs too late for that. The NumPy array isn't
# safe either: `cpu()` copies only if the tensor is on another device, and `numpy()` never copies. Here are both forms of
# `conv1`'s output in the trained network, with ReLUs that work in place:

# %% tags=["figure"]
image = data.test_images[3]
both = explorer.kept_maps(image, "conv1")
display(figures.feature_maps(image, both))

assert not (both["detach()"] < 0).any() and (both["clone()"] < 0).any()
assert torch.equal(both["detach()"], both["clone()"].relu())  # overwritten by the ReLU

# %% [markdown]
# *What to see:* one hook stored both rows at the same moment. Only the clone still has its negative values (orange).
#
# Now choose a digit and a layer yourself. At `relu1`, where it starts, the rows are equal: nothing writes into this
# output later.

# %% tags=["explorer"]
explorer.feature_maps()

# %% [markdown]
# ## One module, used twice
#
# *"I captured the ReLU, and I only see its last output."* A model can use the same ReLU object in several places. A hook belongs
# to the **module, not to the place**: it runs in each call, and each call overwrites the dictionary entry.
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
# ### Exercise 3.3 · Fix it: every use, in order
# ●●○ · 8 minutes
#
# This function should return the output of `module` in **each call** during `model(x)`, in order, detached, with the numbers that
# it had **at that moment**. It has several faults. Fix it: call the model once, in its own mode, and make a new list in each call
# of your function. Your hook only reads, and none of your hooks is left. If `model(x)` raises an exception, let it through.
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
# A variable or a dictionary entry is overwritten in each call. Append to a list instead.
# </details>
# <details><summary>Hint: all my entries are equal, or too large</summary>
#
# You stored the memory, not the numbers. What happened to the values that we captured before the in-place ReLU?
# </details>
# <details><summary>Hint: the second call returns too many</summary>
#
# Create the list inside the function, and remove the hook at the end.
# </details>

# %% tags=["solution"]
def every_output(
    model: nn.Module, module: nn.Module, x: torch.Tensor
) -> list[torch.Tensor]:
    """Return detached copies of the module's output in each call, in order."""
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
# ## Hooks that stay silent
#
# *"I put hooks everywhere, and some never fire."* `named_modules()` lists seven modules in the next model, including the model
# itself (`""`), and each gets a hook.

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
# A module's `__call__` runs the hooks, and only `module(x)` calls it. `F.relu` isn't even on the list, because a function isn't a
# module. You can still see its output: it's in the `args` of the next module.

# %% [markdown]
# Silent hooks in the field: [`forward` called instead of the module](https://github.com/pytorch/pytorch/issues/117925)
# (write `self.direct(x)`), [a module that a pass leaves out](https://github.com/Lightning-AI/pytorch-lightning/pull/2298),
# [a function instead of a module](https://github.com/huggingface/transformers/pull/16874).
#
# ## Hooks left behind
#
# *"I fixed my hook, and I still get the old error."* *"My hook runs twice."* Either an exception came before your
# `remove()`, or you ran the cell again without keeping the handle. The **module** stores its hooks, in a dictionary. The handle
# only knows the entry's key, so losing it removes nothing. `with` removes the hook however the block ends. Lost the handles in a
# whole model? `for module in model.modules(): module._forward_hooks.clear()` removes every forward hook, those of other tools too.
# ([A thread](https://github.com/TransformerLensOrg/TransformerLens/pull/156))

# %% tags=["claim-S1.3", "field", "field-34", "field-147"]
def broken(module, args, output):
    return output[5]  # there are only two


layer = Times(2)
for _ in range(2):  # the cell, run twice
    layer.register_forward_hook(broken)  # the handle is lost
    message = error_of(layer, torch.tensor([1.0, -3.0]))
print(message, "  hooks left:", len(layer._forward_hooks))
assert message.startswith("IndexError") and len(layer._forward_hooks) == 2

layer._forward_hooks.clear()  # the last resort: all forward hooks of this layer
try:
    with layer.register_forward_hook(broken) as handle:
        assert isinstance(layer._forward_hooks, OrderedDict)
        assert layer._forward_hooks[handle.id] is broken
        layer(torch.tensor([1.0, -3.0]))
except IndexError:
    print("after `with`, hooks left:", len(layer._forward_hooks))
assert len(layer._forward_hooks) == 0

nested = nn.Sequential(layer, nn.Sequential(Times(3)))
for module in nested.modules():
    module.register_forward_hook(broken)  # the handles are lost
for module in nested.modules():
    module._forward_hooks.clear()
assert nested(torch.tensor([1.0, -3.0])).tolist() == [6.0, -18.0]

# %% [markdown]
# ## The same with hooklab
#
# You've built the core of what the course's package calls `capture`. It finds modules by name, pattern or type. It registers
# its hooks at the start of the block and removes them at the end, even if the block raises an exception (3.5 builds that).

# %% tags=["field", "field-layer-output"]
with capture(cnn, "conv*", nn.ReLU) as seen:
    _ = cnn(data.test_images[:5])
print(seen)
assert list(seen) == ["conv1", "relu1", "conv2", "relu2"]
assert not seen["relu2"].requires_grad
assert not any(module._forward_hooks for module in cnn.modules())

# %% [markdown]
# It knows this lesson's traps and reports them: a module that was used twice, a value that was changed in place, a module that
# stayed silent. (Without names, it takes every layer. A container such as `blocks` isn't one.) `edit` replaces an output with
# what your function returns. The function gets the output and a record of the call (its name, its arguments).

# %%
with capture(twice) as seen:
    twice(torch.tensor(1.0))
assert [call.output.item() for call in seen.calls("act")] == [2.0, 6.0]
print("used twice:", error_of(lambda: seen["act"]))

with capture(inplace_model) as seen:
    inplace_model(torch.tensor([1.0, -3.0]))
print("changed:   ", error_of(lambda: seen["0"]))

with capture(quiet) as seen:
    quiet(torch.ones(2))
print("silent:    ", seen.silent)
assert seen.silent == ["direct", "unused"]

with edit(model, lambda output, call: output / 2, "0"):
    assert model(torch.tensor([1.0, -3.0])).tolist() == [10.0, 0.0]

# %% [markdown] tags=["recap"]
# ## Recap
#
# A forward hook receives a module's arguments and its output, once for each call of the module. If it returns something other than
# `None`, that replaces the output. What it stores shares the model's memory: detach it, clone it, or store a number instead. And
# if you want to know what a part is for, switch it off.
#
# PyTorch's own page:
# [`Module.register_forward_hook`](https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_forward_hook).
# What holds of S1, S3 and S4 today, step by step, is on [the start page](00_start_here.ipynb#documents).

# %% [markdown] tags=["quiz"]
# ### Three questions
#
# **1.** A hook on `layer` is `lambda module, args, output: print(output.mean())`. Does it change what the model computes?
#
# <details><summary>Answer</summary>
#
# No. `print` returns `None`, so the lambda returns `None`, and the output stays the same.
# </details>
#
# **2.** You capture `bn` with `output.detach()`. The next layer is `nn.ReLU(inplace=True)`. Why does your capture contain no
# negative numbers?
#
# <details><summary>Answer</summary>
#
# `detach()` shares memory. The ReLU wrote its zeros into the tensor that you stored. `detach().clone()` keeps the numbers.
# </details>
#
# **3.** Your hook on `model.blocks`, a `ModuleList`, never runs, although every block does. Why, and what do you do?
#
# <details><summary>Answer</summary>
#
# A hook runs when its module is called. The model calls the blocks one by one and never calls the list. Register the hook on each
# block.
# </details>

# %%
progress(3)

# %% [markdown]
# ## If you want more
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | forward hook | 前向钩子 | runs after a module's `forward`; receives the module, its args and its output |
# | feature map | 特征图 | one channel of a convolution's output, seen as an image |
# | ablation | 消融 | switching off a part to see what it was worth |
# | dead unit | 死亡神经元 | a ReLU that is off for every input and gets no gradient |
# | in-place operation | 原地操作 | writes into its input instead of creating a new tensor |
# | detach, clone | 分离，克隆 | the same numbers without the graph; a copy with its own memory |
# | container | 容器 | a module that only holds other modules, such as `ModuleList` |
#
# ### The output is whatever `forward` returned
#
# S3 says that the output is a tensor. Often it is. But an LSTM returns a tuple of a tensor and another tuple, and many models
# return a dictionary. The hook receives it unchanged. If your hook replaces it, keep its structure, because the caller will unpack
# it. ([A thread](https://github.com/sksq96/pytorch-summary/issues/143))

# %% tags=["field", "field-26", "claim-S3.7"]
lstm, steps = nn.LSTM(input_size=2, hidden_size=3), torch.ones(4, 1, 2)
shapes = []

def unpack(module, args, output):
    outputs, (hidden, cell) = output
    shapes.append([tuple(t.shape) for t in (outputs, hidden, cell)])


with lstm.register_forward_hook(unpack):
    lstm(steps)
print(shapes[0])
assert shapes[0] == [(4, 1, 3), (1, 1, 3), (1, 1, 3)]

with lstm.register_forward_hook(detached):
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
# ●●○ · 10 minutes
#
# Run `model(x)` and return the output of `layer` in **its own structure**: tuples, lists and dictionaries, also nested, with every
# tensor in them detached. Anything else (`None`, a number) stays the same. You only need plain tuples, lists and dictionaries. The
# tensors keep their dtype. Call the model once, in its own mode. Its result and its graph are the same as without your hook, and
# none of your hooks is left. If `model(x)` raises an exception, let it through.
#
# <details><summary>Hint: "'tuple' object has no attribute 'detach'"</summary>
#
# Write a small function that looks at the type. It detaches a tensor; for a tuple, a list or a dictionary it calls itself on each
# part.
# </details>
# <details><summary>Hint: the check says that the model noticed</summary>
#
# Create new dictionaries and lists. Don't write into those that the model goes on with. And does your hook return something?
# </details>

# %% tags=["solution"]
def structure_of(model: nn.Module, layer: nn.Module, x: torch.Tensor) -> Any:
    """Return the output of `layer` in model(x): same structure, tensors detached."""
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
# ### What a capture costs
#
# *"Memory grows with every pass."* S3 says not to keep captured tensors on the GPU, unless you have an A100. The same holds for any
# memory. ([A thread](https://github.com/meta-pytorch/opacus/issues/176)) How much does one stored output cost? Below are five
# layers, each with an output of 10 × 100 floats of 4 bytes. A hook on the last layer stores its output in one form or another.
# `bytes_alive` counts what is still in memory afterwards, including the batch if something refers to it.

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
# *What to see:* you store one output, and six tensors stay in memory, because the graph of that output refers to the batch and to
# what the ReLUs saved for `backward()`. A slice is a *view*: it keeps the memory of the whole batch. And you pay this for every
# pass whose output you store. To **read** a value, store `output.detach()`. If something may write into it, `.clone()` it. To
# watch a whole training, store a **statistic**.

# %% [markdown]
# ### What a function returned, and a famous silent module
#
# `F.relu` in the model `Quiet` has no hook, but `last` receives its output. And `nn.MultiheadAttention` uses the weights of its
# `out_proj` and never calls it, so a hook there stays silent.

# %% tags=["field", "field-22"]
heard = []
attention = nn.MultiheadAttention(4, 2)


def hear_args(module, args, output):
    heard.append(args[0].tolist())


def hear_out_proj(module, args, output):
    heard.append("out_proj")


with (
    quiet.last.register_forward_hook(hear_args),
    attention.out_proj.register_forward_hook(hear_out_proj),
):
    quiet(torch.tensor([1.0, -1.0]))
    attention(*torch.ones(3, 1, 1, 4))

print("F.relu returned", heard[0])
assert heard == [[30.0, 0.0]]  # out_proj stayed silent

# %% [markdown]
# ### Your own `with` block
#
# If you need several hooks, write your own `with` block. `@contextmanager` makes one from a function with a `yield`. The code
# before `yield` runs at the start of the block, the code after it at the end. With `try … finally` around the `yield`, the end
# also runs if the block raises an exception. (Python's `contextlib.ExitStack` is another way.)

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
# Write `with capturing(model, ["body.first", "head"]) as captured:`. It gives you a dictionary from names to the detached outputs
# of the model's **last** call, with their dtype. An entry is there as soon as its module has run, and it stays after the block.
# Each block has its own dictionary. Your hooks are registered from the start of the block to its end, **also if the block raises
# an exception**, which reaches the caller. They only read: the model runs as without them, and you can still train it in the
# block. If a name doesn't exist, raise an error before the block starts, and leave no hook behind.
#
# <details><summary>Hint: all entries are under the last name</summary>
#
# Late binding, as in lesson 2: a function created in a loop looks up `name` when it runs. Let another function, which takes the
# name as an argument, create each hook.
# </details>
# <details><summary>Hint: after a wrong name, a hook is left</summary>
#
# The first name was fine and its hook was registered. Then the second name failed. Find all modules first, for example with
# `model.get_submodule(name)`.
# </details>
# <details><summary>Hint: after an exception, hooks are left</summary>
#
# Code after a bare `yield` is skipped if the block raises an exception. What did `finally` do above?
# </details>

# %% tags=["solution"]
@contextmanager
def capturing(model: nn.Module, names: list[str]) -> Iterator[dict[str, torch.Tensor]]:
    """Give a dictionary with the detached outputs of the named modules."""
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
# ### Writing into the input
#
# S2 says that a hook can change the input in place, and that this doesn't affect the result. True: when the hook runs, the linear
# layer has already created its output. (`nn.Identity` returns its input's own memory, so there the output changes, too.) But the
# tensor belongs to the caller, and autograd may still need it.

# %% tags=["claim-S2.4", "field", "field-143"]
def wipe_input(module, args, output):
    args[0].zero_()  # writes into the tensor


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

sigmoid = nn.Sigmoid()  # saves its output
with sigmoid.register_forward_hook(lambda module, args, output: output.mul_(2)):
    result = sigmoid(torch.zeros(1, requires_grad=True))
assert result.item() == 1.0
assert "modified by an inplace operation" in error_of(result.backward)

# %% [markdown]
# ### Features for another task
#
# S2 names *transfer learning* as a use of hooks: take an inner layer's output as features, and train something small on them. Our
# network was trained to distinguish ten digits. Is a digit even or odd? A linear layer on the features of `pool` learns it in a
# second, and the network itself doesn't change.

# %% tags=["claim-S2.11"]
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

answers = head(features[~is_train]).argmax(dim=1)
right = (answers == labels[~is_train] % 2).float().mean().item()
print(f"even or odd, on digits that it wasn't trained on: {10 * right:.0f} in 10 right")
assert right > 0.9

# %% [markdown]
# ### "Before or after the activation?"
#
# A layer's output is what its own `forward` returned. If the ReLU or the dropout after it is a module, the layer's output is from
# before. The ReLU and the dropout have their own outputs.

# %% tags=["field", "field-146"]
after = nn.Sequential(nn.Identity(), nn.ReLU(), nn.Dropout(0.5))
with capture(after) as seen:
    after(torch.tensor([-1.0, 1.0]))

print({name: value.tolist() for name, value in list(seen.items())[:2]})
assert seen["0"].tolist() == [-1.0, 1.0] and seen["1"].tolist() == [0.0, 1.0]
assert seen["2"].tolist() in ([0.0, 2.0], [0.0, 0.0])  # dropped or doubled

# %% [markdown]
# ### "My hook runs in validation as well"
#
# A hook runs in every call of its module, also in `eval()` mode and under `no_grad()`. If it should run in training only, test
# `module.training`, which `model.train()` and `model.eval()` set. `torch.is_grad_enabled()` tells you whether autograd records.

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
# And when you have fixed that: *"unsupported ScalarType BFloat16"*. NumPy knows neither graphs nor bfloat16, the short float of
# mixed-precision training. Under autocast, your hook receives such short floats.
# ([A thread](https://github.com/curt-tigges/crosslayer-coding/pull/30))

# %% tags=["field", "field-41"]
linear, outputs = nn.Linear(1, 1), []
mixed_precision = torch.autocast("cpu", dtype=torch.bfloat16)
handle = linear.register_forward_hook(lambda m, args, out: outputs.append(out))
with mixed_precision, handle:
    linear(torch.ones(1, 1))
output = outputs[0]
assert output.dtype == torch.bfloat16 and output.requires_grad

print(error_of(output.numpy).split(". ")[0])
print(error_of(output.detach().numpy))
requires_grad = "RuntimeError: Can't call numpy() on Tensor that requires grad"
assert error_of(output.numpy).startswith(requires_grad)
unsupported = "TypeError: Got unsupported ScalarType BFloat16"
assert error_of(output.detach().numpy) == unsupported

array = output.detach().float().cpu().numpy()
print("this works:", array.dtype, array.shape)
assert array.dtype == "float32"

# %% [markdown]
# ### "I compute a loss from the feature that I captured, and backward fails"
#
# *Element 0 of tensors does not require grad.* Or there's another term in the loss, and you get no error and no effect. A
# detached value isn't connected to the graph. To read a value, detach it. For a loss, store the **live** output, and drop it after
# `backward()`. ([A thread](https://github.com/jantic/DeOldify/issues/116))

# %% tags=["field", "field-28", "field-145"]
linear, features = nn.Linear(1, 1), {}

def keep_two(module, args, output):
    features["detached"], features["live"] = output.detach(), output


with linear.register_forward_hook(keep_two):
    linear(torch.ones(1, 1))
message = error_of(features["detached"].sum().backward)
print("detached:", message)
assert "does not require grad" in message and linear.weight.grad is None

features.pop("live").sum().backward()  # pop: nothing refers to it afterwards
print("live:     weight.grad =", linear.weight.grad.item())
assert linear.weight.grad.item() == 1.0

# %% [markdown]
# ### "'tuple' object has no attribute 'register_forward_hook'"
#
# `named_modules()` yields pairs of a name and a module. `get_submodule(name)` returns the module with that name.
# ([A thread](https://github.com/IvanDrokin/torch-conv-kan/issues/1))

# %% tags=["field", "field-150"]
pair = next(quiet.named_modules())
message = error_of(lambda: pair.register_forward_hook(report))
print(message)
assert message.startswith("AttributeError: 'tuple' object has no attribute")
assert quiet.get_submodule("blocks.1") is quiet.blocks[1]

# %% [markdown]
# ### "I zip my values with the names that I asked for, and they do not fit"
#
# The values come in the order in which the layers *run*. That may differ from the order of your names, and from the order in which
# the model lists its layers. Store each value together with its name, as in a dictionary.

# %% tags=["field", "field-108"]
class LastFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.b, self.a = nn.Linear(3, 5), nn.Linear(2, 3)

    def forward(self, x):
        return self.b(self.a(x))


def append_value(module, args, output):
    values.append(output)


last_first, values, names = LastFirst(), [], ("b", "a")
handles = [
    getattr(last_first, name).register_forward_hook(append_value) for name in names
]
_ = last_first(torch.ones(4, 2))
for handle in handles:
    handle.remove()
with capture(last_first, *names) as seen:
    _ = last_first(torch.ones(4, 2))

zipped = dict(zip(names, values, strict=True))
print("zipped:", {name: tuple(value.shape) for name, value in zipped.items()})
print("stored by name:", {name: tuple(value.shape) for name, value in seen.items()})
assert zipped["b"].shape == (4, 3)  # the name of b, the value of a
assert seen["b"].shape == (4, 5)

# %% [markdown]
# ### "I only looked at the shapes, and the accuracy is worse than before"
#
# Every forward pass counts: in training mode it updates BatchNorm's running statistics (and the vectors of `spectral_norm`), also
# under `no_grad()`, and a batch that you made up spoils them. Call `eval()` first.

# %% tags=["field", "field-113"]
norm = nn.BatchNorm1d(2)
before = norm.running_mean.clone()
with torch.no_grad(), capture(norm) as seen:
    norm(torch.full((4, 2), 9.0))
assert not torch.equal(norm.running_mean, before)  # reading has changed the model

norm.eval()
moved = norm.running_mean.clone()
with capture(norm) as seen:
    norm(torch.full((4, 2), 9.0))
print("updated in training mode:", not torch.equal(moved, before))
print("updated in evaluation mode:", not torch.equal(norm.running_mean, moved))
assert torch.equal(norm.running_mean, moved)

# %% [markdown]
# ### "`Sequential(*model.children())` gives other results than the model"
#
# You lose what `forward` does between the children: here a flatten, which gives an error, and a ReLU, which doesn't. To run the
# first half of a model, run the model and stop it with a hook.

# %% tags=["field", "field-116"]
class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.pool = nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(2)
        self.fc = nn.Linear(8, 2)

    def forward(self, x):
        return self.fc(self.pool(F.relu(self.conv(x))).flatten(1))


torch.manual_seed(0)
functional, x = Functional(), torch.linspace(-1, 1, 36).reshape(1, 1, 6, 6)
children = list(functional.children())
error = error_of(nn.Sequential(*children), x).split(" (")[0]
print("all of them:", error.split(": ")[-1])
half_by_hand = nn.Sequential(*children[:2])(x)
half_by_hook = run_until(functional, "pool", x)
same = torch.allclose(half_by_hand, half_by_hook)
print("without the last, the same as in the model:", same)
assert torch.equal(half_by_hook, functional.pool(F.relu(functional.conv(x))))
assert not torch.allclose(half_by_hand, half_by_hook)  # the ReLU is missing

# %% [markdown]
# ### "My captured list has grown, or it's an object without `detach`"
#
# `forward` may return a list that the model goes on filling, or an object that holds its tensors in attributes, such as
# `.logits`. The hook stores the reference, and `detach()` exists for tensors only. So take out the tensors that you want while the
# hook runs, and put them into a new list.

# %% tags=["field", "field-objects"]
from types import SimpleNamespace


class AppendDouble(nn.Module):
    def forward(self, states):
        states.append(2 * states[-1])
        return states


class Head(nn.Module):
    def forward(self, states):
        return SimpleNamespace(logits=states[-1])


stored = {}

def keep_list(module, args, output):
    stored["the list"] = output
    stored["a copy"] = [state.detach() for state in output]

def keep_logits(module, args, output):
    stored["logits"] = output.logits.detach()


chat = nn.Sequential(AppendDouble(), AppendDouble(), head := Head())
with chat[0].register_forward_hook(keep_list), head.register_forward_hook(keep_logits):
    chat([torch.ones(1)])
print({name: len(value) for name, value in stored.items()})
assert len(stored["the list"]) == 3 and len(stored["a copy"]) == 2
assert stored["logits"].item() == 4.0
with head.register_forward_hook(detached):
    message = error_of(chat, [torch.ones(1)])
print(message)
assert message.endswith("SimpleNamespace' object has no attribute 'detach'")

# %% [markdown]
# ### "After my hook, `load_state_dict` fails: Unexpected key(s)"
#
# `register_buffer` in a hook makes the value a part of the model, and removing the hook doesn't undo that. Every state dict
# contains it from then on, and a fresh model refuses it. (A parameter or a module that you set as an attribute does the same.)
# Store values in a dictionary outside the model, or pass `persistent=False`.

# %% tags=["field", "field-traces"]
def state_after_hook(persistent):
    def keep_mean(module, args, output):
        mean = output.detach().mean()
        module.register_buffer("mean", mean, persistent=persistent)

    layer = nn.Linear(1, 1)
    with layer.register_forward_hook(keep_mean):
        layer(torch.ones(1, 1))
    return layer.state_dict()


fresh, state = nn.Linear(1, 1), state_after_hook(persistent=True)
message = error_of(fresh.load_state_dict, state)
unexpected = fresh.load_state_dict(state, strict=False).unexpected_keys
print(message, unexpected)
assert message.startswith("RuntimeError: Error(s) in loading state_dict")
assert unexpected == ["mean"]
state = state_after_hook(persistent=False)
assert error_of(fresh.load_state_dict, state) == "no error"

fresh.probe = nn.Linear(1, 1)
assert "probe.weight" in fresh.state_dict()

# %% [markdown]
# ### "The name isn't there: `_orig_mod`, `module.`, `_checkpoint_wrapped_module`"
#
# Wrappers put themselves into the names of layers, and most of them into the keys of the state dict. The layer inside is the same
# object. So find it **before** you wrap the model and register the hook on it, or drop the wrappers' parts from the name. Save
# the state dict of the model inside.

# %% tags=["field", "field-wrapped"]
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper

plain = nn.Sequential(nn.Linear(1, 1))
layer = plain.get_submodule("0")
parallel = nn.DataParallel(plain)  # DistributedDataParallel adds the same `module.`
checkpointed = nn.Sequential(checkpoint_wrapper.checkpoint_wrapper(layer))
names = [
    name
    for model in (torch.compile(plain), parallel, checkpointed)
    for name, module in model.named_modules()
    if module is layer
]
print(names)
assert names == ["_orig_mod.0", "module.0", "0._checkpoint_wrapped_module"]
assert "self.module = module" in inspect.getsource(nn.parallel.DistributedDataParallel)

def without_wrappers(name):
    wrappers = ("_orig_mod", "module", "_checkpoint_wrapped_module")
    return ".".join(part for part in name.split(".") if part not in wrappers)


heard = []
with layer.register_forward_hook(lambda *three: heard.append("0")):
    parallel(torch.ones(1, 1))
assert heard == ["0"] and {without_wrappers(name) for name in names} == {"0"}
assert list(parallel.state_dict()) == ["module.0.weight", "module.0.bias"]
assert list(checkpointed.state_dict()) == ["0.weight", "0.bias"]  # it leaves them alone
assert error_of(plain.load_state_dict, parallel.state_dict()).startswith("RuntimeError")
assert error_of(plain.load_state_dict, parallel.module.state_dict()) == "no error"

# %% [markdown]
# ### "`isinstance` doesn't find my block any more"
#
# You ran the cell with `class Block` once more, or reloaded its file (`importlib.reload`, `%autoreload`). Now there are two classes
# of one name. The model is made of the old one, so a search by type finds nothing. Build the model again, or search by name.

# %% tags=["field", "field-210"]
def run_the_cell():
    class Block(nn.Module):
        def forward(self, x):
            return 2 * x

    return Block


Block = run_the_cell()
blocks = nn.Sequential(Block(), Block())
Block = run_the_cell()  # the same cell again

print(error_of(capture, blocks, Block))
assert not any(isinstance(module, Block) for module in blocks)
assert [type(module).__name__ for module in blocks] == ["Block", "Block"]
blocks = nn.Sequential(Block(), Block())  # built again
assert all(isinstance(module, Block) for module in blocks)

# %% [markdown]
# ### "I deleted the model, and it's still in memory"
#
# The model refers to its hook, the hook (a bound method) to its object, and the object to the model. Such a **ring** isn't freed
# with its last name. It waits for Python's garbage collector, which doesn't count megabytes: twenty models of a search can be in
# memory at once. A lambda that uses the model makes the same ring. Remove the hook, or let the object store a weak reference.

# %% tags=["field", "field-who-keeps"]
import gc
import weakref


class Meter:
    def __init__(self, model):
        self.model = model
        self.handle = model.register_forward_hook(self.look)

    def look(self, module, args, output):
        print(type(self.model).__name__, tuple(output.shape))


def deleted(change):
    model = nn.Linear(1, 1)
    change(Meter(model), model)
    return weakref.ref(model)  # when the function returns, the model has no name


gc.disable()  # the garbage collector waits
ring = deleted(lambda meter, model: None)
removed = deleted(lambda meter, model: meter.handle.remove())
weak = deleted(lambda meter, model: setattr(meter, "model", weakref.proxy(model)))
used = deleted(
    lambda meter, model: model.register_forward_hook(lambda *three: print(model))
)
found = {"ring": ring, "hook removed": removed, "weak reference": weak, "lambda": used}
in_memory = [name for name, one in found.items() if one() is not None]
print("still in memory:", in_memory)
assert in_memory == ["ring", "lambda"]
gc.enable()
gc.collect()
assert ring() is None and used() is None

# %% [markdown]
# A notebook keeps models, too. A cell's last value stays in `Out` after its name is gone. `print` it instead.

# %% tags=["field", "field-who-keeps"]
printed, shown_last = nn.Linear(1, 1), nn.Linear(2, 1)
both = [weakref.ref(printed), weakref.ref(shown_last)]
print(printed)
shown_last

# %%
del printed, shown_last
print("still in memory:", [one() is not None for one in both])
assert both[0]() is None and both[1]() is not None
