# %% [markdown]
# # 5 · What do `grad_input` and `grad_output` mean, and which backward hook do I use?
#
# **Time** 40 minutes, and 10 for the ●●● exercise &nbsp;·&nbsp; **You need** lesson 2 (tensor hooks) and lesson 3 (forward hooks)
#
# After this lesson you can
#
# - say what the two tuples of a backward hook hold, for any module;
# - change a gradient on its way into a module, or on its way out;
# - read the old backward hook with its three entries, and replace it;
# - choose between a module's backward hook and a tensor hook, and say when only the tensor hook works.

# %% tags=["setup"]
import warnings

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

import hooklab
from hooklab import check, progress
from hooklab.course.lesson05 import explorer

torch.set_num_threads(1)


def linear(weight: list[list[float]]) -> nn.Linear:
    """Return a linear layer with this weight and a bias of zeros."""
    layer = nn.Linear(len(weight[0]), len(weight))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        layer.bias.zero_()
    return layer

# %% [markdown]
# ## Predict
#
# A **backward hook** sits on a module and is called while gradients flow through it:
# `hook(module, grad_input, grad_output)`. The documents unpack `grad_input` into three tensors.
#
# Our layer has the weight (1, 2, 3). Two rows go in, two numbers come out, and the loss weighs them with 10 and 20.
# **Before you run the next cell: how many tensors are in `grad_input`, how many in `grad_output`, and of which shapes?**

# %% tags=["predict", "claim-S2.6"]
layer = linear([[1.0, 2.0, 3.0]])
x = torch.tensor([[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]], requires_grad=True)
seen = []


def look(module, grad_input, grad_output):
    seen.append((grad_input, grad_output))


with layer.register_full_backward_hook(look):
    y = layer(x)
    loss = 10 * y[0, 0] + 20 * y[1, 0]
    loss.backward()

grad_input, grad_output = seen[0]
print("grad_input: ", len(grad_input), "tensor: ", grad_input[0].tolist())
print("grad_output:", len(grad_output), "tensor: ", grad_output[0].tolist())

assert type(grad_input) is tuple and type(grad_output) is tuple  # even for one
assert grad_output[0].tolist() == [[10.0], [20.0]]
assert grad_input[0].tolist() == [[10.0, 20.0, 30.0], [20.0, 40.0, 60.0]]

# %% [markdown]
# One each. The names look at the module from the **forward** side:
#
# - `grad_output` is the gradient of what the module **put out**. On the way back it arrives first.
# - `grad_input` is the gradient of what was **put in**. The module computes it and passes it on.

# %% tags=["figure"]
from hooklab.course.lesson05 import figures

figure = figures.around(layer, x, grad_input[0], grad_output[0])
plt.show()

# %% [markdown]
# *What to see:* on the right a gradient comes in, on the left one goes out. The gradients of the weight and the bias are in
# neither tuple: they are kept (green) in `.grad`, where you can read them without any hook.

# %%
assert torch.equal(grad_input[0], grad_output[0] @ layer.weight)
assert torch.equal(layer.weight.grad, grad_output[0].T @ x)
assert torch.equal(layer.bias.grad, grad_output[0].sum(dim=0))
print("weight.grad =", layer.weight.grad.tolist())
print("bias.grad   =", layer.bias.grad.tolist())

# %% [markdown]
# One of the documents has an example in pictures: a module with a 3×1 parameter, a value `y` in front of it, and three
# hooks. Here it is with numbers that you can check: $y = (2, 1, 3)$, the weight is $(1, 2, 3)$, so $z = 2 + 2 + 9 = 13$.

# %%
class Weigh(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([[1.0], [2.0], [3.0]]))

    def forward(self, y):
        return y @ self.w


def keep_output(module, args, output):
    outputs.append(output.item())


model, grad_list, outputs, seen = Weigh(), [], [], []
y = torch.tensor([[1.0, 0.0, 2.0]], requires_grad=True) + 1
with (
    y.register_hook(grad_list.append),
    model.register_forward_hook(keep_output),
    model.register_full_backward_hook(look),
):
    model(y).backward()

# %% tags=["claim-S2.7"]
((grad_input,), (grad_output,)) = seen[0]
print("forward hook, output:       ", outputs[0])
print("tensor hook on y:           ", grad_list[0].tolist())
print("backward hook, grad_input:  ", grad_input.tolist())
print("backward hook, grad_output: ", grad_output.tolist())

assert not y.is_leaf and not y.retains_grad  # so y.grad is None, as in lesson 1
assert outputs == [13.0] and grad_output.tolist() == [[1.0]]
assert grad_list[0].tolist() == grad_input.tolist() == [[1.0, 2.0, 3.0]]

# %% [markdown]
# ## One entry for each argument
#
# A module may take several arguments. `grad_input` has one entry for each **positional** argument; an argument that is
# not a tensor gets `None`. Keyword arguments are left out, tensors or not.

# %%
class Blend(nn.Module):
    def forward(self, a, b, factor, offset):
        return a + factor * b + offset, a - b


def numbers(grads):
    return [None if grad is None else grad.item() for grad in grads]


a, b, offset = (torch.ones(1, requires_grad=True) for _ in range(3))
blend, seen = Blend(), []
with blend.register_full_backward_hook(look):
    first, second = blend(a, b, 4, offset=offset)
    first.sum().backward()  # the second output is not used

print("grad_input: ", numbers(seen[0][0]))
print("grad_output:", numbers(seen[0][1]))
assert numbers(seen[0][0]) == [1.0, 4.0, None]
assert numbers(seen[0][1]) == [1.0, None]
assert offset.grad.item() == 1.0  # computed all the same, but in no tuple

# %% [markdown]
# `grad_output` has one entry for each output. An output that the loss does not use gets `None` as well, so a hook that
# reads `grad_output[1]` should be ready for it.
#
# `grad_input` is **this module's share**. Here `x` is used twice, once through the layer (with weight 5) and once beside it.

# %%
five = linear([[5.0]])
x = torch.tensor([[1.0]], requires_grad=True)
seen = []
with five.register_full_backward_hook(look):
    (x + five(x)).sum().backward()

print("grad_input of the layer:", numbers(seen[0][0]), "  x.grad:", x.grad.item())
assert numbers(seen[0][0]) == [5.0]
assert x.grad.item() == 6.0  # 5 through the layer, 1 beside it

# %% [markdown] tags=["exercise"]
# ### Exercise 5.1 · On both sides of a layer
# ●○○ · 5 minutes
#
# `layer` is one of the layers in `model`. Run the model on `x`, send gradients back from the **sum of its output**, and
# return two tensors: the gradient of the layer's input and the gradient of the layer's output, in this order. Leave no
# hook behind.
#
# <details><summary>Hint: "'tuple' object has no attribute 'shape'"</summary>
#
# The hook gets two tuples. This layer has one input and one output.
# </details>
# <details><summary>Hint: my list is empty</summary>
#
# Has `backward()` run? And was the hook there when the layer ran forward?
# </details>

# %% tags=["solution"]
def gradients_around(
    model: nn.Module, layer: nn.Module, x: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of the layer's input and output, sent from model(x).sum()."""
    ### BEGIN SOLUTION
    found = []

    def keep(module, grad_input, grad_output):
        found.extend([grad_input[0], grad_output[0]])

    with layer.register_full_backward_hook(keep):
        model(x).sum().backward()
    return found[0], found[1]
    ### END SOLUTION

# %% tags=["check"]
check("5.1", gradients_around)

# %% [markdown]
# ## When to register, when to remove
#
# The documents say: the hook is called in `backward()`, so call `remove()` after it. That is a safe place. But their code
# also *registers* the hook right before `loss.backward()`. **Predict:** in which of these orders does the hook run?
#
# 1. register, forward, backward, remove
# 2. forward, register, backward, remove
# 3. register, forward, remove, backward

# %% tags=["predict", "claim-S3.12"]
def calls(steps: str) -> int:
    """Take these steps in this order; return how often the hook ran."""
    layer, seen = linear([[1.0]]), []
    for step in steps.split():
        if step == "register":
            handle = layer.register_full_backward_hook(lambda *args: seen.append(args))
        elif step == "forward":
            loss = layer(torch.ones(1, 1, requires_grad=True)).sum()
        elif step == "backward":
            loss.backward()
        else:
            handle.remove()
    return len(seen)


orders = {
    "register forward backward remove": 1,
    "forward register backward remove": 0,  # too late, in silence
    "register forward remove backward": 1,  # this pass has the hook already
}
for steps, wanted in orders.items():
    print(f"{steps}   calls of the hook: {calls(steps)}")
    assert calls(steps) == wanted

# %% [markdown]
# A module's backward hook becomes part of a pass **in the forward**. Afterwards it is too late to join, and too late to
# leave. A tensor hook is different: it sits on the tensor, and `remove()` before `backward()` stops it (lesson 2).
#
# So: register before the forward, remove after the backward. A `with` block around both does exactly this.

# %% [markdown]
# ## Change what leaves the module
#
# What a full backward hook returns **replaces `grad_input`**: the layers before it receive the new gradient. One document
# adds that the result can be found in `Module.grad_input`. There is no such attribute.

# %% tags=["claim-S2.5"]
def turn_around(module, grad_input, grad_output):
    return tuple(None if grad is None else -grad for grad in grad_input)


before, after = linear([[2.0]]), linear([[3.0]])
x = torch.tensor([[1.0]], requires_grad=True)
with after.register_full_backward_hook(turn_around):
    after(before(x)).sum().backward()

arrived = numbers([x.grad, before.weight.grad, after.weight.grad])
print("x.grad, before.weight.grad, after.weight.grad =", arrived)
assert arrived[:2] == [-6.0, -3.0]  # everything in front of the module: turned around
assert arrived[2] == 2.0  # the module's own weight does not notice
assert not hasattr(after, "grad_input")

# %% [markdown]
# This very hook has a use: a layer that turns the gradient around teaches the layers before it the opposite of what the
# layers after it want. It is called *gradient reversal*.
#
# Return a **tuple** with one entry for each entry of `grad_input`. A bare tensor is read as if its rows were the entries.

# %% tags=["claim-S2.5"]
def returns_a_tensor(module, grad_input, grad_output):
    return 2 * grad_input[0]


def error_with(rows: int) -> str:
    with after.register_full_backward_hook(returns_a_tensor):
        try:
            after(torch.ones(rows, 1, requires_grad=True)).sum().backward()
        except RuntimeError as error:
            return str(error)
    return "no error"


print("3 rows:", error_with(3))
print("1 row: ", error_with(1))
assert "invalid number of grad_input, got 3, but expected 1" in error_with(3)
assert "has changed the size of value" in error_with(1)

# %% [markdown] tags=["exercise"]
# ### Exercise 5.2 · A brake
# ●●○ · 6 minutes
#
# Make a layer pass back `factor` times the gradient of its inputs. Its own parameters, and the layers after it, must not
# notice. Return the handle. The layer may take several arguments, and some of them may not be tensors.
#
# <details><summary>Hint: "invalid number of grad_input"</summary>
#
# You return a tensor. What does `grad_input` look like?
# </details>
# <details><summary>Hint: "unsupported operand type(s) for *: 'NoneType' and 'float'"</summary>
#
# An argument that is no tensor has no gradient. What stands in its place must stay in its place.
# </details>

# %% tags=["solution"]
def scale_input_gradient(layer: nn.Module, factor: float) -> RemovableHandle:
    """Scale what the layer passes back to its inputs; return the handle of the hook."""
    ### BEGIN SOLUTION
    def brake(module, grad_input, grad_output):
        return tuple(None if grad is None else factor * grad for grad in grad_input)

    return layer.register_full_backward_hook(brake)
    ### END SOLUTION

# %% tags=["check"]
check("5.2", scale_input_gradient)

# %% [markdown]
# ## The old hook, and its three gradients
#
# Now to the documents' own code. They register with `register_backward_hook`, the **legacy hook**, and unpack three
# gradients. It still exists. Here it is on a convolution with one weight, 5, over four ones.

# %% tags=["claim-S3.11"]
def unpack_three(module, gin, gout):
    gin0, gin1, gin2 = gin
    legacy_shapes[type(module).__name__] = [tuple(grad.shape) for grad in gin]
    return gin0, gin1 * 2, gin2 * 3


conv, legacy_shapes = nn.Conv2d(1, 1, kernel_size=1), {}
nn.init.constant_(conv.weight, 5.0)
x = torch.ones(1, 1, 2, 2, requires_grad=True)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with conv.register_backward_hook(unpack_three):
        conv(x).sum().backward()

print("three shapes:", *legacy_shapes["Conv2d"])
print(f"{caught[0].category.__name__}: {str(caught[0].message).split('. ')[1]}.")
assert caught[0].category is FutureWarning

# %% [markdown]
# It runs. It warns: "missing some grad_input". And the three shapes give it away: they belong to the input, **the weight and the
# bias**. What did the hook change?

# %% tags=["claim-S3.11"]
print("x.grad:     ", x.grad.flatten().tolist())
print("weight.grad:", conv.weight.grad.item(), "  bias.grad:", conv.bias.grad.item())
assert legacy_shapes["Conv2d"] == [x.shape, conv.weight.shape, conv.bias.shape]
assert x.grad.flatten().tolist() == [5.0, 5.0, 5.0, 5.0]  # as without a hook
assert conv.weight.grad.item() == 2 * 4.0 and conv.bias.grad.item() == 3 * 4.0

# %% [markdown]
# The true gradients of the weight and the bias are 4; one was doubled, the other tripled. Nothing in the documents says so: they
# call all three "the gradients of the input".
#
# Let us give the same hook to a linear layer. **Predict:** what does it double now?

# %% tags=["predict", "claim-S3.11"]
warnings.filterwarnings("ignore", "Using a non-full", FutureWarning)  # once is enough

layer, x = linear([[5.0, 7.0]]), torch.ones(4, 2, requires_grad=True)
with layer.register_backward_hook(unpack_three):
    layer(x).sum().backward()

print("three shapes:", *legacy_shapes["Linear"])
print("x.grad, first row:", x.grad[0].tolist(), "  bias.grad:", layer.bias.grad.item())
print("weight.grad:      ", layer.weight.grad.tolist())
assert legacy_shapes["Linear"] == [layer.bias.shape, x.shape, layer.weight.T.shape]
assert x.grad[0].tolist() == [2 * 5.0, 2 * 7.0]  # the input's gradient is doubled
assert layer.weight.grad.tolist() == [[3 * 4.0, 3 * 4.0]]  # the weight's is tripled
assert layer.bias.grad.item() == 4.0

# %% [markdown]
# Bias, input, weight: another order, so another effect, and no error. With a third dimension in the input, or with the full hook,
# the unpacking fails.

# %% tags=["claim-S3.11"]
def what_comes(register: str, *shape: int) -> str:
    layer, x = linear([[5.0, 7.0]]), torch.ones(shape, requires_grad=True)
    with getattr(layer, register)(unpack_three):
        try:
            layer(x).sum().backward()
        except ValueError as error:
            return f"ValueError: {error}"
    return "runs"


for register in ("register_backward_hook", "register_full_backward_hook"):
    print(register)
    print("    2-D input:", what_comes(register, 4, 2))
    print("    3-D input:", what_comes(register, 6, 4, 2))

assert what_comes("register_backward_hook", 4, 2) == "runs"
assert "expected 3, got 1" in what_comes("register_backward_hook", 6, 4, 2)
assert "expected 3, got 1" in what_comes("register_full_backward_hook", 4, 2)

# %% [markdown]
# ## Why three?
#
# One document gives the answer: the hook is registered on the `grad_fn` of the module's output. So it sits on **one node** of
# the autograd graph, the last one that the forward made. What it calls `grad_input` are the gradients of that node's inputs.
#
# A node can be hooked by hand. If the document is right, we must see the same three.

# %% tags=["claim-S4.3"]
def shapes_of(grads):
    return [None if grad is None else tuple(grad.shape) for grad in grads]


def look_at_node(grad_inputs, grad_outputs):
    by_hand.extend(shapes_of(grad_inputs))


by_hand = []
y = linear([[5.0, 7.0]])(torch.ones(4, 2, requires_grad=True))
node = y.grad_fn
with node.register_hook(look_at_node):
    y.sum().backward()

print("the last node:", type(node).__name__, "  shapes:", *by_hand)
print("they go on to:", *[type(after).__name__ for after, _ in node.next_functions])
assert by_hand == legacy_shapes["Linear"] == [(1,), (4, 2), (2, 1)]

# %% [markdown]
# `AddmmBackward0` is a matrix product plus a sum, in one node. Its three inputs are the bias, `x`, and the transposed weight;
# from there the gradients go on to the leaves `bias` and `x` (`AccumulateGrad`), and through `TBackward0`, which transposes
# back, to the weight.
#
# The full hook is built in another way. It puts a node of its own at **both ends** of the module, around everything that
# the forward does.

# %% tags=["claim-S4.3", "figure"]
model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))
x = torch.ones(4, 3, requires_grad=True)
nodes = figures.nodes_inside(model(x), x)
with model.register_full_backward_hook(look):
    with_full_hook = figures.nodes_inside(model(x), x)

added = "BackwardHookFunctionBackward"
assert nodes == ["AddmmBackward0", "ReluBackward0", "AddmmBackward0"]
assert with_full_hook == [added, *nodes, added]
figure = figures.places(nodes)
plt.show()

# %% [markdown]
# *What to see:* the full hook's two nodes (green) enclose the module; the gradient of the input leaves on the left. The
# legacy hook sits on the right and cannot see it. Only if a module makes a single node does the last node have the module's
# own input.
#
# Let us measure it, module by module: the shapes in `grad_input`, and beside them the shape of the true gradient of the input.

# %%
def reported(register: str, module: nn.Module, shape: tuple[int, ...]) -> list:
    """Return the shapes in `grad_input` of this kind of hook on this module."""
    seen = []
    with getattr(module, register)(lambda module, *both: seen.append(both)):
        module(torch.ones(shape, requires_grad=True)).sum().backward()
    return shapes_of(seen[0][0])


def two_layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))


makers = {
    "linear, 2-D": (lambda: nn.Linear(3, 2), (4, 3)),
    "linear, 3-D": (lambda: nn.Linear(3, 2), (5, 4, 3)),
    "convolution": (lambda: nn.Conv2d(3, 2, 3), (4, 3, 5, 5)),
    "batch norm": (lambda: nn.BatchNorm1d(3), (4, 3)),
    "Sequential": (two_layers, (4, 3)),
}

# %% tags=["claim-S3.11"]
for name, (make, shape) in makers.items():
    full = reported("register_full_backward_hook", make(), shape)
    legacy = reported("register_backward_hook", make(), shape)
    print(f"{name}, input {shape}\n    full   {full}\n    legacy {legacy}")
    assert full == [shape]  # one entry, and always the input's

# %% [markdown]
# Shapes alone do not say what an entry *is*. `compare_hooks` of this course looks for each entry among the true gradients, by
# its values, and gives its name.

# %% tags=["figure", "claim-S3.11"]
comparisons = {}
for name, (make, shape) in makers.items():
    comparisons[name] = figures.compare_hooks(make(), shape)

figure = figures.reports(comparisons)
plt.show()

legacy = {}
for name, comparison in comparisons.items():
    assert [entry.of for entry in comparison.full.grad_input] == ["input"]
    legacy[name] = [entry.of for entry in comparison.legacy.grad_input]

assert legacy["linear, 2-D"] == ["bias", "input", "weight transposed"]
assert legacy["convolution"] == legacy["batch norm"] == ["input", "weight", "bias"]
assert "input" not in legacy["linear, 3-D"] and "input" not in legacy["Sequential"]

# %% [markdown]
# *What to see:* the full column is the input's gradient (vermilion), every time. The legacy column mixes in the gradients of
# parameters (green) and of values inside the module (grey); for a 3-D linear layer and for the whole `Sequential` the
# input's gradient is missing.
#
# Try more modules in the explorer, which also shows each module's true gradients. Without a kernel, the table above stands in
# for it.

# %% tags=["explorer"]
explorer.what_comes_back()

# %% [markdown] tags=["exercise"]
# ### Exercise 5.3 · The documents' hook, mended
# ●●○ · 6 minutes
#
# Do what the documents' hook did to a convolution, with any layer and any input: multiply the gradient of the weight by
# `weight_factor` and that of the bias by `bias_factor`, and leave everything else alone. A layer may have no bias. Return a
# list of the handles.
#
# <details><summary>Hint: which entry of grad_input is the weight?</summary>
#
# In a full hook: none. A parameter is a leaf tensor. Which hook does a tensor have?
# </details>
# <details><summary>Hint: "'NoneType' object has no attribute 'register_hook'"</summary>
#
# `nn.Linear(3, 2, bias=False).bias` is `None`.
# </details>

# %% tags=["solution"]
def scale_parameter_gradients(
    layer: nn.Module, weight_factor: float, bias_factor: float
) -> list[RemovableHandle]:
    """Multiply the gradients of layer.weight and layer.bias; return the handles."""
    ### BEGIN SOLUTION
    handles = [layer.weight.register_hook(lambda grad: weight_factor * grad)]
    if layer.bias is not None:
        handles.append(layer.bias.register_hook(lambda grad: bias_factor * grad))
    return handles
    ### END SOLUTION

# %% tags=["check"]
check("5.3", scale_parameter_gradients)

# %% [markdown]
# ## Ones as gradients
#
# Another document replaces every gradient in `grad_input` by ones and prints `a.grad`: all ones, as expected. It did not look
# at the weight. We do, with a batch of three twos: the true gradient of each weight is 2 + 2 + 2 = 6, of each bias 3.

# %% tags=["claim-S4.4"]
def ones(module, grad_in, grad_out):
    return tuple(torch.ones_like(grad) for grad in grad_in)


def values_after(register: str) -> list:
    layer, a = nn.Linear(10, 20), torch.full((3, 10), 2.0, requires_grad=True)
    with getattr(layer, register)(ones):
        torch.sum(layer(a)).backward()
    tensors = [a, layer.weight, layer.bias]
    return [tensor.grad.unique().tolist() for tensor in tensors]


print("values in            a.grad, weight.grad, bias.grad")
print("with the full hook: ", *values_after("register_full_backward_hook"))
print("with the legacy one:", *values_after("register_backward_hook"))
assert values_after("register_full_backward_hook") == [[1.0], [6.0], [3.0]]
assert values_after("register_backward_hook") == [[1.0], [1.0], [1.0]]

# %% [markdown]
# Both hooks agree on `a.grad`. The legacy hook has overwritten the gradients of the weight and the bias too, and a training
# step would have used them.
#
# **"Cannot use both regular backward hooks and full backward hooks."** You want to replace an old hook, remove it, and the new
# one is refused. A module that once had a legacy hook refuses a full one for good.
# ([A thread about wrong legacy gradients](https://github.com/pytorch/pytorch/issues/598))

# %% tags=["field", "field-46"]
layer = linear([[1.0]])
layer.register_backward_hook(ones).remove()
assert len(layer._backward_hooks) == 0  # it is gone
try:
    layer.register_full_backward_hook(look)
    raise AssertionError("no error came")
except RuntimeError as error:
    print("RuntimeError:", str(error).split(". ")[0] + ".")

fresh = linear([[0.0]])  # the mend: a new module that never had a legacy hook
fresh.load_state_dict(layer.state_dict())
with fresh.register_full_backward_hook(look):
    assert len(fresh._backward_hooks) == 1

# %% [markdown]
# ## Change what comes in
#
# The documents say that a backward hook cannot change `grad_out`. True: what it returns replaces `grad_input`. But a
# **full backward pre-hook** runs before the module's own backward: `hook(module, grad_output)`. What it returns replaces
# `grad_output`, for the parameters as well.

# %% tags=["claim-S3.11"]
def ten_times(module, grad_output):
    return tuple(None if grad is None else 10 * grad for grad in grad_output)


layer, seen = linear([[2.0, 3.0]]), []
x = torch.tensor([[1.0, 4.0]], requires_grad=True)
with (
    layer.register_full_backward_pre_hook(ten_times),
    layer.register_full_backward_hook(look),
):
    layer(x).sum().backward()

print("grad_output seen by the full hook:", numbers(seen[0][1]))
print("x.grad:     ", x.grad.tolist())
print("weight.grad:", layer.weight.grad.tolist(), "  bias.grad:", layer.bias.grad.item())
assert numbers(seen[0][1]) == [10.0]
assert x.grad.tolist() == [[20.0, 30.0]]
assert layer.weight.grad.tolist() == [[10.0, 40.0]] and layer.bias.grad.item() == 10.0

# %% [markdown] tags=["exercise"]
# ### Exercise 5.4 · A fuse
# ●●○ · 6 minutes
#
# One huge gradient can spoil a step. Protect a layer: clip every number of the gradient that **comes in** to the range from
# `-limit` to `limit`, so that its parameters and everything before it get what follows from the clipped gradient. Return the
# handle. The layer may have several outputs, some of them unused.
#
# <details><summary>Hint: the input's gradient is right, the weight's is not</summary>
#
# A full backward hook runs when the weight's gradient has been computed. Which hook runs earlier?
# </details>
# <details><summary>Hint: "clamp(): argument 'input' must be Tensor, not NoneType"</summary>
#
# An output that the loss does not use has no gradient.
# </details>

# %% tags=["solution"]
def clip_incoming_gradient(layer: nn.Module, limit: float) -> RemovableHandle:
    """Clip the gradients that come in at the layer's outputs; return the handle."""
    ### BEGIN SOLUTION
    def clip(grad):
        return None if grad is None else grad.clamp(-limit, limit)

    def fuse(module, grad_output):
        return tuple(clip(grad) for grad in grad_output)

    return layer.register_full_backward_pre_hook(fuse)
    ### END SOLUTION

# %% tags=["check"]
check("5.4", clip_incoming_gradient)

# %% [markdown]
# ## In the field
#
# Three symptoms of full hooks, and their reasons.
#
# **"Output 0 of BackwardHookFunction is a view and is being modified inplace."** The forward fails as soon as you
# hook a `ReLU(inplace=True)`, or the layer in front of it. The node at a module's end hands on a *view*: a tensor that shares the
# memory of another. Changing this one in place is forbidden. ([A thread about it](https://github.com/pytorch/pytorch/issues/61519))

# %% tags=["field", "field-44"]
def forward_with_hook_on(position: int, inplace: bool) -> str:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=inplace), nn.Linear(2, 1))
    with model[position].register_full_backward_hook(look):
        try:
            model(torch.ones(1, 2))
        except RuntimeError as error:
            return str(error).split(". ")[0]
    return "runs"


for position, place in enumerate(["before the ReLU", "on the ReLU", "after the ReLU"]):
    print(f"{place}: {forward_with_hook_on(position, inplace=True)}")
    assert forward_with_hook_on(position, inplace=False) == "runs"

refused = [forward_with_hook_on(position, inplace=True) for position in (0, 1)]
assert all("is a view and is being modified inplace" in words for words in refused)
assert forward_with_hook_on(2, inplace=True) == "runs"

# %% [markdown]
# The mend is `inplace=False`, or a tensor hook, as below. The view has a second effect: a module that returns its very input
# no longer does so.

# %% tags=["field", "field-44"]
identity, x = nn.Identity(), torch.ones(1, requires_grad=True)
assert identity(x) is x
with identity.register_full_backward_hook(look):
    assert identity(x) is not x
print("hooked, the identity returns another tensor object")

# %% [markdown]
# **"On the first layer I get `(None,)`."** The data do not require grad, so nobody computes a gradient of the input.
# The hook runs when `grad_output` is there, *before* the parameters' gradients, and it warns.
# ([A thread about it](https://github.com/pytorch/pytorch/issues/100528); in
# [PyTorch 1.8](https://github.com/pytorch/pytorch/issues/56380) it did not run at all.)

# %% tags=["field", "field-45"]
def order(x: torch.Tensor) -> list[str]:
    """Run a hooked layer on x; return what happened, in order."""
    layer, log = linear([[1.0, 2.0]]), []

    def hook(module, grad_input, grad_output):
        log.append("hook: None" if grad_input[0] is None else "hook: a tensor")

    with (
        warnings.catch_warnings(record=True) as caught,
        layer.register_full_backward_hook(hook),
        layer.weight.register_hook(lambda grad: log.append("weight's gradient")),
    ):
        warnings.simplefilter("always")
        layer(x).sum().backward()
    return log + [type(one.message).__name__ for one in caught]


data = torch.ones(1, 2)
print("data:                    ", order(data))
assert order(data) == ["hook: None", "weight's gradient", "UserWarning"]
print("after x.requires_grad_():", order(data.requires_grad_()))
assert order(data.requires_grad_()) == ["weight's gradient", "hook: a tensor"]

# %% tags=["field", "field-45"]
def returns_ones(module, grad_input, grad_output):
    return (torch.ones(1, 2),)


layer = linear([[1.0, 2.0]])
with (
    warnings.catch_warnings(record=True),
    layer.register_full_backward_hook(returns_ones),
):
    loss = layer(torch.ones(1, 2)).sum()
    try:
        loss.backward()
        raise AssertionError("no error came")
    except RuntimeError as error:
        print("RuntimeError:", str(error)[:67], "…")

# %% [markdown]
# The mend: return `None` there; call `x.requires_grad_()` if it is the input's gradient that you want.
#
# **"My hook never runs on a model that returns a dict."** A full hook can only put its node around a tensor or a tuple of
# tensors. For a dict or a list it warns, in the forward, and stays silent in the backward.
# ([A thread about it](https://github.com/pytorch/pytorch/issues/87540))

# %% tags=["field", "field-48"]
class TwoHeads(nn.Module):
    def forward(self, x):
        return {"double": 2 * x, "triple": 3 * x}


heads, seen, x = TwoHeads(), [], torch.ones(1, requires_grad=True)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with heads.register_full_backward_hook(look):
        heads(x)["double"].sum().backward()

message = str(caught[0].message)
print("calls of the hook:", len(seen), "  gradient of x:", x.grad.item())
print(f"{caught[0].category.__name__}: {message}")
assert seen == [] and x.grad.item() == 2.0
assert "should be a Tensor or a tuple of Tensors but received <class 'dict'>" in message

# %% [markdown]
# ## What to use instead
#
# All three troubles go away with the two hooks that you know from lessons 2 and 3: a forward hook gets the output, and puts a
# **tensor hook** on it. Nothing is wrapped, there is no view, and of a dict you hook each tensor.

# %%
def hook_the_output(module, args, output):
    output.register_hook(lambda grad: seen.append(grad.tolist()))
    # no return here: a returned handle would replace the output


first, last = linear([[1.0, 0.0], [0.0, -1.0]]), linear([[3.0, 4.0]])
model, seen = nn.Sequential(first, nn.ReLU(inplace=True), last), []
with (
    model[0].register_forward_hook(hook_the_output),
    model[1].register_forward_hook(hook_the_output),
):
    model(torch.ones(1, 2)).sum().backward()

print("gradient of the ReLU's output:  ", *seen[0])
print("gradient of the linear's output:", *seen[1])
assert seen[0] == [[3.0, 4.0]]
assert seen[1] == [[3.0, 0.0]]  # the second unit was negative: no gradient passes

# %% [markdown]
# The layer in front of the in-place ReLU has its right gradient, and the data needed no `requires_grad`. A tensor hook may
# also *return* a gradient. Then it does what a backward pre-hook does.

# %%
def ten_times_the_output(module, args, output):
    output.register_hook(lambda grad: 10 * grad)


layer = linear([[2.0, 3.0]])
x = torch.tensor([[1.0, 4.0]], requires_grad=True)
with layer.register_forward_hook(ten_times_the_output):
    layer(x).sum().backward()

print("as with the pre-hook:", x.grad.tolist(), layer.weight.grad.tolist())
assert x.grad.tolist() == [[20.0, 30.0]]
assert layer.weight.grad.tolist() == [[10.0, 40.0]]

# %% [markdown] tags=["exercise"]
# ### Exercise 5.5 · Gradients at any output
# ●●● · 10 minutes
#
# Watch the gradients of a layer's output. After every backward they are in the dictionary `seen`: under `"output"` if the
# layer returns a tensor; if it returns a dict, under that dict's own keys. It must work beside in-place modules, for dicts that
# also hold other things than tensors, and it must leave a pass without gradients in peace. Return one handle.
#
# <details><summary>Hint: "cannot register a hook on a tensor that doesn't require gradient"</summary>
#
# Under `no_grad`, or with frozen layers, there is nothing to watch. Labels have no gradient either.
# </details>
# <details><summary>Hint: "'RemovableHandle' object has no attribute …"</summary>
#
# Your forward hook returns something, and that replaces the output.
# </details>
# <details><summary>Hint: all gradients land under the last key</summary>
#
# A function made in a loop looks its variable up when it *runs* (lesson 2).
# </details>

# %% tags=["solution"]
def watch_output_gradients(
    layer: nn.Module, seen: dict[str, torch.Tensor]
) -> RemovableHandle:
    """Write the gradients of the layer's output into `seen`; return the handle."""
    ### BEGIN SOLUTION
    def watch(name, value):
        if isinstance(value, torch.Tensor) and value.requires_grad:
            value.register_hook(lambda grad: seen.update({name: grad}))

    def hook(module, args, output):
        named = output if isinstance(output, dict) else {"output": output}
        for name, value in named.items():
            watch(name, value)

    return layer.register_forward_hook(hook)
    ### END SOLUTION

# %% tags=["check"]
check("5.5", watch_output_gradients)

# %% [markdown]
# `hooklab.capture` works in this way. With `grads=True` it keeps the gradients of the outputs, for any structure, and removes
# its hooks at the end of the block.

# %%
with hooklab.capture(model, "0", "1", grads=True) as captured:
    model(torch.ones(1, 2)).sum().backward()

print("gradient of the ReLU's output:  ", captured.grad("1").tolist())
print("gradient of the linear's output:", captured.grad("0").tolist())
assert captured.grad("1").tolist() == [[3.0, 4.0]]
assert captured.grad("0").tolist() == [[3.0, 0.0]]
assert all(len(module._forward_hooks) == 0 for module in model.modules())

# %% [markdown]
# ## Which one do I use?
#
# | you want to | use |
# |---|---|
# | read the gradient of a parameter | nothing: `parameter.grad` |
# | change the gradient of a parameter | `parameter.register_hook` |
# | read the gradient of a layer's output | a tensor hook from a forward hook, or `capture(…, grads=True)` |
# | change it, parameters included | the same tensor hook, returning; or `register_full_backward_pre_hook` |
# | read or change what a module passes back to its inputs | `register_full_backward_hook` |
#
# `register_backward_hook`, the legacy hook, has no place in new code.

# %% [markdown] tags=["recap"]
# ## Recap
#
# | the documents say | today |
# |---|---|
# | a backward hook cannot change data, but returns new gradients, found in `Module.grad_input` | the returned tuple replaces `grad_input`; there is no such attribute |
# | `grad_input` and `grad_output` can be tuples | they always are |
# | three hooks around a module with a 3×1 parameter: `y.grad` is None, the list has the gradient | true; with one use of `y`, `grad_input` and the hook on `y` agree |
# | `grad_in` may be changed, `grad_out` may not; unpack three gradients | the full hook gives one for each positional argument, the legacy hook gives the last node's; `register_full_backward_pre_hook` changes `grad_output` |
# | remove the hook after `backward()` | a safe place; what counts is that it is registered *before the forward*, and removing it between the two does not stop it |
# | the hook sits on the `grad_fn` of the output and can influence the flow | true of the legacy hook; the full hook sits at both ends of the module |
# | a hook that returns ones makes `a.grad` all ones | true of both, but the legacy hook also overwrote the gradients of weight and bias |
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | backward hook | 反向钩子 | called with a module's gradients while they flow back |
# | full backward hook | 完整反向钩子 | sits at both ends of a module; its return value replaces `grad_input` |
# | full backward pre-hook | 完整反向前置钩子 | runs before the module's backward; its return value replaces `grad_output` |
# | legacy backward hook | 旧版反向钩子 | sits on the last autograd node only |
# | `grad_input` | 输入梯度 | tuple: gradients of a module's positional arguments |
# | `grad_output` | 输出梯度 | tuple: gradients of a module's outputs |
# | autograd node | 计算图节点 | one recorded operation; `grad_fn` of its result |
# | view | 视图 | a tensor that shares another one's memory |

# %% [markdown] tags=["quiz"]
# ### Three questions
#
# **1.** A full backward hook on `nn.Linear(8, 4)` returns a tuple of zeros. Does the layer still learn?
#
# <details><summary>Answer</summary>
#
# Yes. `grad_input` is what leaves the layer; its own weight and bias have their gradients from `grad_output`. The layers before
# it get zeros and stand still.
# </details>
#
# **2.** A program unpacks `w, x, b = grad_input` in a legacy hook and has worked for years. Somebody feeds the linear layer with
# sequences, shape (batch, time, features). What happens?
#
# <details><summary>Answer</summary>
#
# The last node is now a reshape with a single input, so there is one entry and the unpacking fails. And it had never been
# right: for 2-D inputs the order is bias, input, transposed weight.
# </details>
#
# **3.** You must log the gradient of each block's output in a network full of in-place ReLUs, in a training loop. Which hook?
#
# <details><summary>Answer</summary>
#
# A tensor hook on the output, registered by a forward hook: it needs no view. A full backward hook would stop the forward with
# an error.
# </details>

# %%
progress(5)
