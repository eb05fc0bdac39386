# %% [markdown]
# # 3 · How do I see, and replace, what a layer puts out?
#
# **Time** 45 minutes, and 10 for the ●●● exercise &nbsp;·&nbsp; **You need** lessons 1 and 2: `detach()`, a hook, its handle
#
# After this lesson you can
#
# - read the output of any layer of any model, whatever form it has;
# - replace it on purpose, and never by accident;
# - say what a captured value costs, and when it changes behind your back;
# - explain a hook that stays silent, and leave no hook behind.

# %% tags=["setup"]
import weakref
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

from hooklab import capture, check, edit, progress
from hooklab.course.digits import accuracy, digits, trained_digits_cnn
from hooklab.course.lesson03 import explorer
from hooklab.course.lesson03.figures import bytes_held, feature_maps

torch.set_num_threads(1)

# %% [markdown]
# ## Predict
#
# A model in which you can follow every number: multiply by 2, cut off what is negative, multiply by 10.
#
# (1, −3) → (2, −6) → (2, 0) → (20, 0)
#
# The next cell gives one hook, `report`, to **four** modules: to the model itself, and then to its three layers. The
# hook prints which module it was called for, and what that module put out. **Before you run it: in which order will
# the four lines come?**

# %% tags=["predict"]
class Times(nn.Module):
    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return self.factor * x


model = nn.Sequential(Times(2), nn.ReLU(), Times(10))
x = torch.tensor([1.0, -3.0])
order = []

def report(module, args, output):
    order.append(type(module).__name__)
    print(f"{type(module).__name__:<10} put out {output.tolist()}")


handles = [module.register_forward_hook(report) for module in model.modules()]
result = model(x)
for handle in handles:
    handle.remove()

assert order == ["Times", "ReLU", "Times", "Sequential"]
assert result.tolist() == [20.0, 0.0]

# %% [markdown]
# The model was first in the list, and it reports last: its own output is ready only when its layers are done.
#
# `report` is a **forward hook**. PyTorch calls it right after the module's `forward`, with three arguments:
#
# - `module`: the module that ran;
# - `args`: the positional arguments that it was called with, always a **tuple**;
# - `output`: whatever its `forward` returned.
#
# Where is a hook kept? In a dictionary of the module. The handle's `id` is the key.

# %% tags=["claim-S1.3"]
layer = model[0]
print("before:    ", [hook.__name__ for hook in layer._forward_hooks.values()])

handle = layer.register_forward_hook(report)
print("registered:", [hook.__name__ for hook in layer._forward_hooks.values()])
assert isinstance(layer._forward_hooks, OrderedDict)
assert layer._forward_hooks[handle.id] is report

handle.remove()
print("removed:   ", [hook.__name__ for hook in layer._forward_hooks.values()])
assert len(layer._forward_hooks) == 0

# %% [markdown]
# `_forward_hooks` begins with an underscore: it is PyTorch's own, to look at and not to write to.
#
# ## A whole net, or one layer
#
# Now an example of the documents: a convolution, a batch normalisation and a ReLU inside a net. One list collects
# `args`, first with the hook on the net, then with the same hook on the second layer.

# %% tags=["claim-S1.7"]
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.ReLU())

    def forward(self, x):
        return self.layers(x)


hook_list = []

def hook(module, args, output):
    hook_list.append(args)


net, x = Net(), torch.randn(1, 3, 28, 28)
for module in net, net.layers[1]:
    with module.register_forward_hook(hook):  # `with` removes the hook at its end
        _ = net(x)

for args in hook_list:
    print(f"a {type(args).__name__} of {len(args)}, shape {tuple(args[0].shape)}")
assert [args[0].shape for args in hook_list] == [(1, 3, 28, 28), (1, 3, 26, 26)]
assert hook_list[0][0] is x  # the very object that went in, no copy

# %% [markdown]
# The second shape is smaller because a 3×3 convolution without padding loses a pixel on each side.
#
# So `args` and `output` belong to **the module that carries the hook**. On the net, they are the batch and the final
# result. On a layer, they are what the layer before put out, and what this layer made of it.

# %% tags=["claim-S1.6"]
seen = {}

def keep(module, args, output):
    seen[module] = (args, output)


conv, norm = net.layers[0], net.layers[1]
with (
    net.register_forward_hook(keep),
    conv.register_forward_hook(keep),
    norm.register_forward_hook(keep),
):
    result = net(x)

assert seen[net][0][0] is x and seen[net][1] is result
assert seen[norm][0][0] is seen[conv][1]
print("the net:  its input is the batch, its output is the result")
print("the norm: its input is the object that the convolution put out")

# %% [markdown]
# The newest document exports a layer's input and output as NumPy arrays, with a hook like this one. Its lines end in
# `.data.cpu().numpy()`. You know `.data` from lesson 1; today you write `.detach()`.

# %% tags=["claim-S3.7"]
inps, outs = [], []

def layer_hook(module, inp, out):
    inps.append(inp[0].detach().cpu().numpy())  # inp is a tuple: take the tensor out first
    outs.append(out.detach().cpu().numpy())


with net.layers[0].register_forward_hook(layer_hook):
    _ = net(x)

print(type(inps[0]).__name__, inps[0].shape, "->", type(outs[0]).__name__, outs[0].shape)
assert inps[0].shape == (1, 3, 28, 28) and outs[0].shape == (1, 3, 26, 26)

# %% [markdown] tags=["exercise"]
# ### Exercise 3.1 · One layer's output
# ●○○ · 5 minutes
#
# Run `model(x)` once and return what `layer`, one of the model's modules, put out: a tensor **detached** from the
# graph. When your function returns, no hook of yours is left.
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
# ## Look at feature maps
#
# The output of a convolution is a stack of images, one per channel, called **feature maps**. To look at some, we
# train a small network on handwritten digits. It takes a second or two.

# %% tags=["claim-S0.7"]
data = digits()
cnn = trained_digits_cnn(seed=0)
assert accuracy(cnn, data.test_images, data.test_labels) > 0.9

maps = {}

def keep_maps(module, args, output):
    maps[module] = output.detach()[0]  # of the only image


with (
    cnn.conv1.register_forward_hook(keep_maps),
    cnn.relu1.register_forward_hook(keep_maps),
    cnn.relu2.register_forward_hook(keep_maps),
):
    _ = cnn(data.test_images[9:10])

print("relu1:", tuple(maps[cnn.relu1].shape), "  relu2:", tuple(maps[cnn.relu2].shape))
assert maps[cnn.relu1].shape == (8, 8, 8) and maps[cnn.relu2].shape == (16, 8, 8)
assert cnn.conv1.weight.shape == (8, 1, 3, 3)  # a parameter is there without a hook

# %% tags=["figure"]
names = {"conv1": cnn.conv1, "relu1": cnn.relu1, "relu2": cnn.relu2}
image = data.test_images[9]
figure = feature_maps(image, {name: maps[module] for name, module in names.items()})
plt.show()
assert torch.equal(maps[cnn.relu1], maps[cnn.conv1].clamp(min=0))
assert (maps[cnn.relu2] == 0).float().mean() > 0.3

# %% [markdown]
# *What to see:* each channel of `conv1` answers to something else in the same 3. `relu1` shows the same eight maps
# without their grey parts, the negative ones. In `relu2` each map has empty places, and two are empty altogether: a channel
# there answers only where it finds its own pattern.
#
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

# %% [markdown]
# The documents disagree here, because they are of different ages. In the oldest, a forward hook that returns
# something raises an error. A later one warns that it "must not return", because that would spoil the result. Since
# PyTorch 1.2 it is a feature. What has stayed is the danger of a return that you did not mean.
#
# **Predict:** this hook only wants to remember the first output that it sees. We run the model on two inputs. By hand
# you get (20, 0) and (100, 100). What does the model say?

# %% tags=["predict", "claim-S1.5"]
memory = {}

with model[0].register_forward_hook(lambda m, args, out: memory.setdefault("first", out)):
    one = model(torch.tensor([1.0, -3.0]))
    two = model(torch.tensor([10.0, 10.0]))

print(one.tolist(), two.tolist())
assert two.tolist() == one.tolist() == [20.0, 0.0]

# %% [markdown]
# `setdefault` returns the stored value, the lambda returns it too, and so the first output replaced the second.
#
# The quietest accident of all: a hook that ends in `return output.detach()`. Each number is right. But the new output
# has no graph behind it, so **neither this layer nor anything before it learns any more**.

# %% tags=["claim-S4.2"]
def gradient_with(hook):
    x = torch.tensor([1.0, -3.0], requires_grad=True)
    with model[0].register_forward_hook(hook):
        result = model(x)
    if not result.requires_grad:
        return None
    result.sum().backward()
    return x.grad.tolist()


only_look = gradient_with(lambda module, args, output: None)
halved = gradient_with(half)
cut_off = gradient_with(lambda module, args, output: output.detach())
print("looks: ", only_look)
print("halves:", halved)
print("returns output.detach():", cut_off)
assert only_look == [20.0, 0.0]  # 2 · 10, and the ReLU lets nothing through for -3
assert halved == [10.0, 0.0]
assert cut_off is None

# %% [markdown]
# So when the oldest document says that a forward hook "only looks" and never touches the graph, this is no longer true.
# A hook that returns `None` is invisible; one that returns a tensor puts that tensor, with its graph, into the model.
#
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
# This line is from the newest document. It is the heart of a training method, *manifold mixup*: each sample of a batch is
# mixed with a partner in the middle of the network. The labels must then be mixed with the **same** partners and the
# **same** λ. Lesson 7 builds it.

# %% tags=["claim-S3.9"]
targets = torch.tensor([[1.0, 0.0], [0.0, 1.0]])  # sample 0 is a cat, sample 1 a dog
mixed_targets = lam * targets + (1 - lam) * targets[indices]

print("targets of the mixed batch:", mixed_targets.tolist())
assert mixed_targets.tolist() == [[0.75, 0.25], [0.25, 0.75]]
assert mixed[0].item() == (mixed_targets[0] @ features).item()  # the same mixture

# %% [markdown]
# Why return, and not write into a tensor? Look at what happens to the **input**. When the hook runs, the linear layer has
# made a new tensor: this output no longer changes. (A layer that hands on its input's own memory, such as `nn.Identity`,
# changes with it.) But the tensor that you write into belongs to somebody else, and autograd may still need it.

# %% tags=["claim-S2.4"]
def wipe_input(module, args, output):
    args[0].zero_()  # zero_ is in place: it writes into the tensor


linear = nn.Linear(1, 1, bias=False)
nn.init.constant_(linear.weight, 2.0)
batch = torch.tensor([[3.0]])
with linear.register_forward_hook(wipe_input):
    result = linear(batch)

print("output:", result.item(), "  the caller's batch:", batch.item())
assert result.item() == 6.0 and batch.item() == 0.0
message = ""
try:
    result.sum().backward()
except RuntimeError as error:
    message = str(error).split(": ")[0]
print("backward:", message)
assert message.endswith("modified by an inplace operation")

same_memory = nn.Identity()
with same_memory.register_forward_hook(wipe_input):
    assert same_memory(torch.tensor([[3.0]])).item() == 0.0

# %% [markdown]
# The same goes for writing into the output. A sigmoid, for example, saves its own output for `backward()`.

# %%
def double_in_place(module, args, output):
    output *= 2


sigmoid = nn.Sigmoid()
with sigmoid.register_forward_hook(double_in_place):
    result = sigmoid(torch.zeros(1, requires_grad=True))

print("twice the sigmoid of 0:", result.item())
message = ""
try:
    result.backward()
except RuntimeError as error:
    message = str(error).split(": ")[0]
print("backward:", message)
assert result.item() == 1.0 and message.endswith("modified by an inplace operation")

# %% [markdown]
# The value is right, and the gradient cannot be computed any more. Return a new tensor, made from `output`, instead.

# %% [markdown] tags=["exercise"]
# ### Exercise 3.2 · Switch a channel off
# ●○○ · 5 minutes
#
# `layer` puts out feature maps of shape `(batch, channels, height, width)`. Register a hook that replaces the output
# by one in which channel number `channel` is **zero** and all others are as they were. Return the handle. Gradients
# must still flow through the other channels.
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
# ## A captured value is the same memory
#
# `detach()` gives you a tensor without a graph. It does **not** copy: the new tensor shares its numbers with the old
# one.
#
# **Predict:** the first layer makes (2, −6) of (1, −3), and the ReLU after it works in place. What do the three
# captures of the first layer show afterwards?
# ([A thread](https://github.com/meta-pytorch/captum/issues/156))

# %% tags=["predict", "field", "field-27"]
inplace_model = nn.Sequential(Times(2), nn.ReLU(inplace=True))
captured = {}

def keep_three(module, args, output):
    captured["detach"] = output.detach()
    captured["clone"] = output.detach().clone()
    captured["numpy"] = output.detach().cpu().numpy()


with inplace_model[0].register_forward_hook(keep_three):
    inplace_model(torch.tensor([1.0, -3.0]))

for name, value in captured.items():
    print(f"{name:<6} {value.tolist()}")
assert captured["detach"].tolist() == [2.0, 0.0]  # changed by the ReLU, after we had kept it
assert captured["clone"].tolist() == [2.0, -6.0]
assert captured["numpy"].tolist() == [2.0, 0.0]

# %% [markdown]
# `nn.ReLU(inplace=True)` overwrites its input to save memory, and its input is the tensor that you kept. A clone is
# safe. The NumPy array is not: `cpu()` copies only a tensor that is elsewhere, and `numpy()` does not copy.
#
# Now the same in the trained network, whose ReLUs are switched to in place here. Look at `conv1`, and choose whether the
# hook keeps the output itself or a clone.

# %% tags=["explorer"]
explorer.feature_maps()

# %% [markdown]
# Without a kernel, here are two of its positions: `conv1` kept as it is, and `conv1` cloned.

# %% tags=["figure"]
image = digits().test_images[3]
conv1_maps = {clone: explorer.kept_maps(image, "conv1", clone) for clone in (False, True)}
for maps in conv1_maps.values():
    display(explorer.draw_maps(image, maps))

assert (conv1_maps[False] < 0).sum() == 0  # overwritten by the ReLU
assert (conv1_maps[True] < 0).any()
assert torch.equal(conv1_maps[False], conv1_maps[True].relu())

# %% [markdown]
# *What to see:* only the clone (below) shows negative values, in vermilion. Above, the ReLU has written over them.
#
# ## What a capture costs
#
# A document advises not to keep captured tensors on the GPU, "unless you have an A100". It is good advice on the CPU
# as well: people see their memory grow pass by pass.
# ([A thread](https://github.com/meta-pytorch/opacus/issues/176))
#
# How much? Count it: five layers, each with an output of 10 × 100 floats of 4 bytes. A hook on the last one keeps its
# output in some form. A *weak reference* tells which outputs are still alive: as in lesson 1, it looks at a tensor without
# keeping it.

# %% tags=["claim-S3.8", "field", "field-28"]
deep = nn.Sequential(*[nn.Sequential(nn.Linear(100, 100), nn.ReLU()) for _ in range(5)])

def bytes_kept_by(form) -> int:
    watched, kept = [], []

    def watch(module, args, output):
        watched.append(weakref.ref(output))

    def keep_a_form(module, args, output):
        kept.append(form(output))

    handles = [layer.register_forward_hook(watch) for layer in deep]
    handles.append(deep[-1].register_forward_hook(keep_a_form))
    deep(torch.ones(10, 100))  # nobody keeps the result
    for handle in handles:
        handle.remove()
    alive = kept + [ref() for ref in watched if ref() is not None]
    memories = [tensor.untyped_storage() for tensor in alive]
    # two tensors that share their memory count once
    return sum({one.data_ptr(): one.nbytes() for one in memories}.values())


print("the output itself:", bytes_kept_by(lambda output: output), "bytes")
assert bytes_kept_by(lambda output: output) == 5 * 10 * 100 * 4

# %% [markdown]
# You kept one output, and all five are alive: the graph behind it holds what the ReLUs saved for `backward()`.
# Without a graph, only the kept numbers stay. A slice such as `output[0]` is a *view*, and keeps the memory of the
# whole batch.

# %% tags=["claim-S3.8", "figure"]
sizes = {
    "output": bytes_kept_by(lambda output: output),
    "output.detach()": bytes_kept_by(lambda output: output.detach()),
    "output.detach().clone()": bytes_kept_by(lambda output: output.detach().clone()),
    "output.detach()[0]": bytes_kept_by(lambda output: output.detach()[0]),
    "output.detach()[0].clone()": bytes_kept_by(lambda output: output.detach()[0].clone()),
    "output.detach().mean()": bytes_kept_by(lambda output: output.detach().mean()),
}
print(list(sizes.values()))
assert list(sizes.values()) == [20_000, 4_000, 4_000, 4_000, 400, 4]
figure = bytes_held(sizes)
plt.show()

# %% [markdown]
# *What to see:* the live output holds five times its own bytes. A slice holds as much as the whole, a copied slice a
# tenth of it, and a mean next to nothing. Each labelled tick is ten times the one before.
#
# And you pay this for every pass that you keep. A rule for short: to **look**, keep `output.detach()`; if somebody may
# write into it, `.clone()` it; to watch a whole training, keep a **statistic**.

# %% [markdown]
# ## One module, used twice
#
# *"I captured the ReLU, and I only see its last output."* One ReLU object may stand in several places of a model. A
# hook belongs to the **module, not to the call**: it runs at each use, and a dictionary entry is overwritten.
# ([A thread](https://github.com/openai/CLIP/pull/239))

# %% tags=["field", "field-23"]
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

# %% [markdown]
# If you write the model yourself, give each place a module of its own. If not, keep a list.

# %% [markdown] tags=["exercise"]
# ### Exercise 3.3 · Every use, in order
# ●●○ · 7 minutes
#
# Run `model(x)` once. `module` may be used any number of times on the way. Return a list with its output at **each
# use, in order**, detached, and with the numbers that it had at that moment, even if the model changes them in place
# later.
#
# <details><summary>Hint: all my entries are equal, or too large</summary>
#
# You kept the memory, not the numbers. See the three captures of the in-place ReLU above.
# </details>
# <details><summary>Hint: my list has only one entry</summary>
#
# A variable or a dictionary entry is overwritten at each use. Append to a list that you made before the call.
# </details>
# <details><summary>Hint: the second call returns too many</summary>
#
# Make the list inside the function. A default argument such as `uses=[]` is one list for all calls.
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
# ## The output is whatever `forward` returned
#
# The newest document says that the output "is a Tensor". Often. An LSTM returns a tuple of a tensor and another
# tuple, and many models return a dictionary. The hook gets that, as it is.
# ([A thread](https://github.com/sksq96/pytorch-summary/issues/143))

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

message = ""
with lstm.register_forward_hook(lambda module, args, output: output.detach()):
    try:
        lstm(steps)
    except AttributeError as error:
        message = str(error)
print("AttributeError:", message)
assert message == "'tuple' object has no attribute 'detach'"

# %% [markdown]
# Whoever replaces such an output must keep its structure, because the caller is going to unpack it.

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

# %% [markdown]
# With a dictionary it is the same. Build a new one for the model, and leave the old one alone.

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
# dictionaries are enough. The model itself must not notice.
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
# ## What stays silent
#
# *"I put hooks everywhere, and some never fire."* Here is a model with many things to get wrong. `named_modules()`
# knows seven modules, the model itself (`""`) among them. **Predict:** whose hooks run?

# %% tags=["predict", "field", "field-21", "field-22", "field-32"]
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


quiet, heard = Quiet(), []
names = {module: name for name, module in quiet.named_modules()}
handles = [m.register_forward_hook(lambda m, a, o: heard.append(names[m])) for m in names]
result = quiet(torch.tensor([1.0, -1.0]))
for handle in handles:
    handle.remove()

print("heard: ", heard)
print("silent:", [name for name in names.values() if name not in heard])
assert heard == ["blocks.0", "blocks.1", "last", ""]
assert result.tolist() == [300.0, 0.0]  # so `direct` and the relu did their work

# %% [markdown]
# A module's `__call__` runs the hooks, and `module(x)` is what calls it. Each silence follows from that.
#
# - `blocks`: a `ModuleList` is a container. It has no `forward`, nobody calls it; its children are called.
# - `direct`: `self.direct.forward(x)` goes past `__call__`. Write `self.direct(x)`.
#   ([Thread](https://github.com/pytorch/pytorch/issues/117925))
# - `unused`: nobody calls it in this pass. ([Thread](https://github.com/Lightning-AI/pytorch-lightning/pull/2298))
# - `F.relu` is not even on the list: a function is no module.
#   ([Thread](https://github.com/huggingface/transformers/pull/16874))
#
# What a function puts out you can still see, if a module takes it in.

# %% tags=["field", "field-22"]
taken_in = []
with quiet.last.register_forward_hook(lambda m, args, output: taken_in.append(args[0])):
    quiet(torch.tensor([1.0, -1.0]))

print("F.relu put out", taken_in[0].tolist())
assert taken_in[0].tolist() == [30.0, 0.0]

# %% [markdown]
# ## Hooks left behind
#
# *"I fixed my hook, and the old error still comes."* An exception left the block before `remove()`, or the handle was
# never kept. The **module** holds the hook; the handle is only its key. Losing a key removes nothing.
# ([A thread](https://github.com/TransformerLensOrg/TransformerLens/pull/156))

# %% tags=["field", "field-34"]
def broken(module, args, output):
    return output[5]  # there are only two


layer, errors = Times(2), []
for attempt in "with a new hook", "without a new hook":
    try:
        if attempt == "with a new hook":
            layer.register_forward_hook(broken)  # nobody keeps the handle
        layer(torch.tensor([1.0, -3.0]))
    except IndexError:
        errors.append(attempt)
print("errors:", errors, "  hooks left:", len(layer._forward_hooks))
assert len(errors) == 2 and len(layer._forward_hooks) == 1

layer._forward_hooks.clear()  # the last resort: private, and it removes everybody's hooks
try:
    with layer.register_forward_hook(broken):
        layer(torch.tensor([1.0, -3.0]))
except IndexError:
    print("after `with`, hooks left:", len(layer._forward_hooks))
assert len(layer._forward_hooks) == 0

# %% [markdown]
# `with` removes the hook however the block ends. For several hooks you want one block of your own. (The `ExitStack` of
# lesson 2 is one way.) `@contextmanager` makes it from a function with a `yield`: what stands before it runs at the start of
# the block, what stands after it at the end. A `try … finally` around the `yield` runs its end even when the block raises.

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
# of the **last** call of the model, there to stay after the block. Your hooks are gone at the end, **also when the
# block raises**. A name that does not exist is an error before the block begins, and leaves no hook.
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
# ## The same with hooklab
#
# You have built, piece by piece, what the course's package calls `capture`. It finds modules by name, pattern or type,
# attaches its hooks when the block starts, and removes them at the end, whatever happens inside.

# %%
with capture(cnn, "conv*", nn.ReLU) as seen:
    _ = cnn(data.test_images[:5])
print(seen)

assert list(seen) == ["conv1", "relu1", "conv2", "relu2"]
assert seen["relu2"].shape == (5, 16, 8, 8) and not seen["relu2"].requires_grad
assert not any(module._forward_hooks for module in cnn.modules())

# %% [markdown]
# It says so where this lesson's traps are: a module used twice, one that stayed silent, a value that was changed in
# place after it was captured, a misspelt name.

# %%
def says(action) -> str:
    try:
        action()
    except (RuntimeError, LookupError, ValueError) as error:
        return f"{type(error).__name__}: {str(error).split('. ')[0]}"
    raise AssertionError("no error came")


with capture(twice) as seen:
    twice(torch.tensor(1.0))
assert [call.output.item() for call in seen.calls("act")] == [2.0, 6.0]
print(says(lambda: seen["act"]))

with capture(inplace_model) as seen:
    inplace_model(torch.tensor([1.0, -3.0]))
print(says(lambda: seen["0"]))

with capture(quiet) as seen:
    quiet(torch.ones(2))
print("silent:", seen.silent)
assert seen.silent == ["direct", "unused"]
print(says(lambda: capture(cnn, "conv3")))

# %% [markdown]
# `edit` is for replacing. Its function gets the output, and must return one of the same shape, or `None`.

# %%
with edit(model, lambda output, call: output / 2, "0"):
    changed = model(torch.tensor([1.0, -3.0]))

print(changed.tolist())
assert changed.tolist() == [10.0, 0.0]

with edit(model, lambda output, call: output[:1], "0"):
    print(says(lambda: model(torch.tensor([1.0, -3.0]))))

# %% [markdown]
# ## In the field
#
# Three more questions that people ask again and again.
#
# **"Can't call numpy() on Tensor that requires grad."** And when that is mended: *"unsupported ScalarType BFloat16"*.
# NumPy knows neither graphs nor bfloat16, the short float that mixed-precision training uses.
# ([A thread](https://github.com/curt-tigges/crosslayer-coding/pull/30))

# %% tags=["field", "field-41"]
linear, outputs = nn.Linear(1, 1), []
mixed_precision = torch.autocast("cpu", dtype=torch.bfloat16)
with mixed_precision, linear.register_forward_hook(lambda m, args, out: outputs.append(out)):
    linear(torch.ones(1, 1))
output = outputs[0]
assert output.dtype == torch.bfloat16 and output.requires_grad

for convert in (lambda: output.numpy(), lambda: output.detach().numpy()):
    try:
        convert()
        raise AssertionError("no error came")
    except (RuntimeError, TypeError) as error:
        print(type(error).__name__ + ":", str(error).split(". ")[0])

array = output.detach().float().cpu().numpy()  # the whole way
print("mended:", array.dtype, array.shape)
assert array.dtype == "float32"

# %% [markdown]
# **"I compute a loss from the feature that I captured, and backward fails."** Or, with another term in the loss, it
# does not fail and the feature has no effect. A detached value is cut off from the graph. To look: detach. For a
# loss: keep the **live** output, and let it go after `backward()`.
# ([A thread](https://github.com/jantic/DeOldify/issues/116))

# %% tags=["field", "field-28"]
linear, features = nn.Linear(1, 1), {}

def keep_two(module, args, output):
    features["detached"], features["live"] = output.detach(), output


with linear.register_forward_hook(keep_two):
    linear(torch.ones(1, 1))
try:
    features["detached"].sum().backward()
    raise AssertionError("no error came")
except RuntimeError as error:
    print("detached: RuntimeError:", error)
assert linear.weight.grad is None

features.pop("live").sum().backward()  # pop: nothing keeps the graph alive afterwards
print("live:     weight.grad =", linear.weight.grad.item())
assert linear.weight.grad.item() == 1.0

# %% [markdown]
# **"'tuple' object has no attribute 'register_forward_hook'."** `named_modules()` gives pairs of a name and a module.
# ([A thread](https://github.com/IvanDrokin/torch-conv-kan/issues/1))

# %% tags=["field", "field-32"]
message = ""
try:
    handles = [module.register_forward_hook(report) for module in quiet.named_modules()]
except AttributeError as error:
    message = str(error)
print("AttributeError:", message)
assert message == "'tuple' object has no attribute 'register_forward_hook'"

handles = [module.register_forward_hook(report) for name, module in quiet.named_modules()]
print("hooks:", len(handles))
for handle in handles:
    handle.remove()
assert len(handles) == 7

# %% [markdown] tags=["recap"]
# ## Recap
#
# | the documents say | today |
# |---|---|
# | module hooks extract feature maps, and parameters | feature maps, yes; a parameter is there without a hook |
# | the hook goes into an ordered dictionary, under its handle's id | true |
# | a forward hook must not return anything | whatever it returns, except `None`, replaces the output, since 1.2 |
# | input and output are those of the module with the hook | true: a whole net or one layer; the input is a tuple |
# | the example with a hook on the net, then on `layers[1]` | true: shapes (1, 3, 28, 28) and (1, 3, 26, 26), and the first is the object that went in |
# | changing the input in place does not affect this result | true where the layer makes a new tensor, unlike `nn.Identity`; but the caller's tensor changes, and `backward()` may fail |
# | the output is a Tensor; `.data.cpu().numpy()` exports it | it is whatever `forward` returned; `.detach().cpu().numpy()` |
# | do not keep captured tensors on the GPU | true of any memory: detach, move, clone a part, or keep a statistic |
# | only the output can be changed, by return: manifold mixup | true; labels need the same partners and the same λ |
# | a forward hook only looks, it never touches the graph | only if it returns `None` |
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | forward hook | 前向钩子 | called after a module's `forward`, with module, args, output |
# | handle | 句柄 | the key that removes one hook |
# | feature map | 特征图 | one channel of a convolution's output, seen as an image |
# | in-place operation | 原地操作 | writes into its input instead of making a new tensor |
# | detach | 分离 | the same numbers without the graph, in the same memory |
# | clone | 克隆 | the same numbers in memory of their own |
# | container | 容器 | a module that only holds others, such as `ModuleList` |
# | manifold mixup | 流形混合 | mixes hidden features of a batch, and its labels |

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
