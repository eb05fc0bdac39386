# %% [markdown]
# # 5 · What do `grad_input` and `grad_output` mean, and which backward hook do I use?
#
# **Time** 60 minutes, and 30 for what stands behind the recap &nbsp;·&nbsp; **You need** lesson 2 (tensor hooks) and lesson 3 (forward hooks)
#
# After this lesson you can
#
# - say what the two tuples of a backward hook hold, for any module, and which of their numbers not to trust;
# - change a gradient on its way out of a module, or into it, and train with it;
# - say why the hooks of older pages have three gradients, and write what you need instead;
# - choose between a module's backward hook and a tensor hook.

# %% tags=["setup"]
import warnings

import torch
from IPython.display import display
from torch import nn
from torch.utils.hooks import RemovableHandle

import hooklab
from hooklab import check, predict, progress, reveal
from hooklab.course import plots
from hooklab.course.digits import digits
from hooklab.course.errors import error_of
from hooklab.course.lesson05 import explorer, figures, transfer
from hooklab.course.lesson05.helpers import calls, gradients_with, linear, numbers, shapes, warning_of

torch.set_num_threads(1)
for message in ("Using .*non-full backward hook", "Full backward hook is firing"):  # both are shown below
    warnings.filterwarnings("ignore", message)

# %% [markdown]
# ## Two tuples
#
# A **backward hook** sits on a module and is called while gradients flow back through it:
# `hook(module, grad_input, grad_output)`. Two tuples of gradients. Of what?
#
# `linear` makes an `nn.Linear` of the weight that you give it, and a bias of 0: here (1, 2, 3). Two rows of three numbers go
# in, two rows of one number come out, and the loss weighs them with 10 and 20.

# %%
layer = linear([[1.0, 2.0, 3.0]])
x = torch.tensor([[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]], requires_grad=True)
seen = []


def look(module, grad_input, grad_output):
    seen.append((grad_input, grad_output))

# %%
predict("5.a")

# %% tags=["predict", "figure", "hook-full-backward"]
with layer.register_full_backward_hook(look):
    y = layer(x)
    loss = 10 * y[0, 0] + 20 * y[1, 0]
    loss.backward()

grad_input, grad_output = seen[0]
print("What came out:")
print("grad_input: ", numbers(grad_input))  # the tensors as plain numbers
print("grad_output:", numbers(grad_output))
plots.show(figures.around(layer, x, grad_input[0], grad_output[0]), figures.AROUND)

# %% tags=["claim-S2.6"]
reveal("5.a", shapes(grad_input))
assert type(grad_input) is tuple and type(grad_output) is tuple, (
    "Both are tuples, even when the module has one input and one output."
)
assert numbers(grad_output) == ([[10.0], [20.0]],), (
    "With the page's loss, grad_output holds 10 and 20."
)
assert numbers(grad_input) == ([[10.0, 20.0, 30.0], [20.0, 40.0, 60.0]],), (
    "With the page's weight, each row of grad_input is (1, 2, 3) times 10 or 20."
)
assert torch.equal(grad_input[0], grad_output[0] @ layer.weight), (
    "For a linear layer, grad_input is grad_output times the weight."
)
assert torch.equal(layer.weight.grad, grad_output[0].T @ x), (
    "After one pass, the gradient of the weight is in weight.grad."
)
assert torch.equal(layer.bias.grad, grad_output[0].sum(dim=0)), (
    "After one pass, the gradient of the bias is in bias.grad."
)

# %% [markdown]
# Is `grad_input` the same as `x.grad`? Let `x` go through a layer of weight 5, and also around it:

# %%
five, seen = linear([[5.0]]), []
x = torch.tensor([[1.0]], requires_grad=True)
with five.register_full_backward_hook(look):
    (x + five(x)).sum().backward()

print("grad_input of the layer:", numbers(seen[0][0]), "  x.grad:", x.grad.item())
assert numbers(seen[0][0]) == (5.0,)  # this module's share ...
assert x.grad.item() == 6.0  # ... and the whole

# %% [markdown] tags=["exercise"]
# ### Exercise 5.1 · On both sides of a layer
# ●○○ · 5 minutes
#
# `layer` is one of the layers in `model`. Run the model on `x` once, send gradients back from the **sum of its output**, and
# return two tensors: the gradient of the layer's input (which requires one) and the gradient of the layer's output, in this
# order. Leave no hook behind.
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
# ## One entry for each argument
#
# A module may take several arguments and return several outputs. Which have a place in the tuples?

# %%
class Blend(nn.Module):
    def forward(self, a, b, factor, offset):
        return a + factor * b + offset, a - b


a, b, offset = (torch.ones(1, requires_grad=True) for _ in range(3))
blend, seen = Blend(), []
with blend.register_full_backward_hook(look):
    first, second = blend(a, b, 4, offset=offset)
    first.sum().backward()  # the second output is not used

print("grad_input: ", numbers(seen[0][0]))
print("grad_output:", numbers(seen[0][1]))
assert numbers(seen[0][0]) == (1.0, 4.0, None)
assert numbers(seen[0][1]) == (1.0, None)
assert offset.grad.item() == 1.0  # computed all the same, but in no tuple

# %% [markdown]
# `grad_input` has an entry for each **positional** argument, and `None` where that is no tensor: a number, or a list of
# tensors. A keyword argument has no place at all. `grad_output` has an entry for each output, and `None` for one that the
# loss does not use. Two cases that surprise people:

# %% tags=["claim-S2.6"]
class First(nn.Module):
    def forward(self, tensors):
        return tensors[0] * 2


seen, x, first = [], torch.ones(1, 1, requires_grad=True), First()
with five.register_full_backward_hook(look), first.register_full_backward_hook(look):
    five(input=x).sum().backward()
    first([x, x]).sum().backward()

print("called by keyword:", seen[0][0], "  called with a list:", seen[1][0])
assert seen[0][0] == () and seen[1][0] == (None,)
assert all(type(tuples) is tuple for one in seen for tuples in one)

# %% [markdown]
# ### A hook that only looks
#
# Here is a model with two branches; the spare one is not in use yet. We train it twice. The second time, a colleague has put
# a backward hook on the part that joins the branches, to count the passes.

# %%
class Join(nn.Module):
    def forward(self, main, spare):
        return main  # later: main + spare


def train(hook=None, register="register_full_backward_hook"):  # later we try another way to register
    main, spare, join = linear([[1.0]]), linear([[1.0]]), Join()
    if hook is not None:
        getattr(join, register)(hook)
    parameters = [*main.parameters(), *spare.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.1)
    for _ in range(10):
        optimizer.zero_grad()
        x = torch.ones(1, 1)
        join(main(x), spare(x)).sum().backward()
        optimizer.step()
    return spare.weight

# %%
predict("5.b")

# %% tags=["predict"]
counted = []
without_hook = train()
with_hook = train(
    lambda module, grad_input, grad_output: counted.append(numbers(grad_input))
)

print("What came out:")
print("without the hook:", round(without_hook.item(), 3))
print("with the hook:   ", round(with_hook.item(), 3))

# %%
reveal("5.b", [without_hook.item(), with_hook.item()])
assert counted == [(1.0, 0.0)] * 10 and without_hook.item() == 1.0, (
    "With the page's ten steps, the hook runs ten times; without it the weight stays 1."
)
assert abs(with_hook.item() - 0.99**10) < 1e-6, (
    "With the page's optimizer, the hook costs the weight a hundredth in each step."
)
assert without_hook.grad is None and with_hook.grad.tolist() == [[0.0]], (
    "On this page, .grad is None without the hook, and 0 with it."
)

# %% [markdown]
# Can you trust every number in `grad_input`? Here is a module with two inputs:

# %% tags=["field", "field-182"]
class TwoAPlusB(nn.Module):
    def forward(self, a, b):
        return a * 2 + b


module, seen = TwoAPlusB(), []
a, b = torch.ones(1, requires_grad=True), torch.ones(1)  # b asks for no gradient
with module.register_full_backward_hook(look):
    module(a, b).sum().backward()

print("grad_input:", numbers(seen[0][0]))
assert numbers(seen[0][0]) == (2.0, 0.0)  # the derivative with respect to b is 1
assert b.grad is None

# %% [markdown]
# So: a zero beside another entry can mean "nobody asked". If that matters, ask `requires_grad` of the arguments, or look
# with a tensor hook, which puts nothing in the way. If *no* argument asks for a gradient, the entry is `None`.

# %% [markdown]
# ## When to register, when to remove
#
# A backward hook runs in `backward()`. When must it be there? `calls` takes three orders, each with a new layer, and counts how
# often its hook runs:

# %% tags=["claim-S3.12", "field", "field-181"]
orders = [
    "register forward backward remove",
    "forward register backward remove",
    "register forward remove backward",
]
ran = [calls(steps) for steps in orders]
for steps, count in zip(orders, ran, strict=True):
    print(f"{steps}   calls of the hook: {count}")

assert ran == [1, 0, 1]
assert [calls(steps, "register_backward_hook") for steps in orders] == ran  # nor does the older hook do better

# %% [markdown]
# What counts is that it is there **in the forward**. Registered later, it misses this pass, without an error (so it is with the code
# of one document, S3, which registers right before `loss.backward()`). And after the forward it is too late to leave. A `with` block
# around both does it right.
#
# Why in the forward? Because that is when a module with backward hooks puts **two nodes** of its own into the graph. Let us
# call them doors: the **first door** stands in front of everything that `forward` records, the **second door** behind it.

# %% tags=["claim-S4.3"]
model, x = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)), torch.ones(4, 3, requires_grad=True)
with model.register_full_backward_hook(look):
    nodes = figures.nodes_inside(model(x), x)

print(*nodes, sep="\n")
assert nodes[1:-1] == ["AddmmBackward0", "ReluBackward0", "AddmmBackward0"]
assert nodes[0] == nodes[-1] == "BackwardHookFunctionBackward"

# %% [markdown]
# A gradient on its way back comes to the second door first. There `grad_output` is noted. At the first door the gradient
# leaves, and the hook is called with both. Every step below was recorded in a run.

# %% tags=["explorer"]
explorer.border()

# %% tags=["figure"]
steps = explorer.record_border(pre=True, reverses=True)
asks_nothing = explorer.record_border(asks=False)
for run, number in ((steps, 5), (steps, 7), (asks_nothing, 5)):  # without a kernel: three of the steps
    print(explorer.describe_border(run, number))
    display(explorer.draw_border(run, number))

assert [step.active for step in steps if step.hook] == ["second door", "first door"]
assert steps[-1].kept == {"x": [-20.0, -30.0], "weight": [10.0, 40.0], "bias": [10.0]}
assert [step.active for step in asks_nothing if step.hook] == ["second door"]  # there is no first one

# %% [markdown]
# *What to see:* a hook at the second door changes what the layer itself gets; a hook at the first door changes only what
# leaves. When it runs, the layer's own gradients are in `.grad` already.
#
# The third picture is a first layer, which reads data that ask for no gradient. There is no first door, so the hook runs at
# the second one, with `(None,)`, and PyTorch warns. If you want that gradient, ask for it: `x.requires_grad_()`.

# %% [markdown]
# ## Change what leaves the module
#
# What a full backward hook returns **replaces `grad_input`**, for everything before the module.

# %% tags=["claim-S2.5"]
def turn_around(module, grad_input, grad_output):
    return tuple(None if grad is None else -grad for grad in grad_input)


before, after = linear([[2.0]]), linear([[3.0]])
x = torch.tensor([[1.0]], requires_grad=True)
with after.register_full_backward_hook(turn_around):
    after(before(x)).sum().backward()

arrived = numbers([x.grad, before.weight.grad, after.weight.grad])
print("x.grad, before.weight.grad, after.weight.grad =", arrived)
assert arrived[:2] == (-6.0, -3.0)  # everything in front of the module: turned around
assert arrived[2] == 2.0  # the module's own weight does not notice
assert not hasattr(after, "grad_input")

# %% [markdown]
# Return a **tuple** with one entry for each entry of `grad_input`. Of a bare tensor, the rows are taken for the entries:

# %% tags=["claim-S2.5", "field", "field-backward-return"]
def returns_a_tensor(rows: int) -> None:
    with after.register_full_backward_hook(lambda module, grad_input, grad_output: 2 * grad_input[0]):
        after(torch.ones(rows, 1, requires_grad=True)).sum().backward()


messages = [error_of(returns_a_tensor, 3), error_of(returns_a_tensor, 1)]
print(*messages, sep="\n")
assert messages[0].endswith("invalid number of grad_input, got 3, but expected 1")
assert "has changed the size of value" in messages[1]

# %% [markdown] tags=["exercise"]
# ### Exercise 5.2 · A brake
# ●●○ · 5 minutes
#
# Make a layer pass back `factor` times the gradient of its inputs, in every pass. Its own parameters, and the layers after
# it, must not notice. Return the handle. The layer may take several arguments, and some of them may not be tensors.
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
# ## Two lines of hook, two domains
#
# You have images from two scanners, and labels for only one of them. Will a network that learns from scanner 0 also work on
# scanner 1? This is *transfer learning* (S2 mentions it), and the two scanners are called *domains*. Our toy version has two
# domains with two classes each, and labels in domain 0 only.
#
# The network has three parts. `features` turns each point into two numbers. From these two, `classes` predicts the class, and
# `domains` predicts the domain. We train all three together: `classes` on the labels of domain 0, `domains` on all points,
# and `features` on the gradients from both.
#
# Then we train a second network with one difference: `turn_around` is registered on `domains`. The parameters of `domains`
# get their usual gradients. The gradient that leaves `domains` towards `features` has its sign flipped.

# %%
predict("5.c")

# %% tags=["predict"]
plain = transfer.train(transfer.Network())

turned = transfer.Network()
with turned.domains.register_full_backward_hook(turn_around):
    transfer.train(turned)

right = [transfer.classes_right(network) for network in (plain, turned)]
print("What came out:")
for name, share in zip(("without the hook", "with it"), right, strict=True):
    print(f"more than 9 in 10 right in domain 1, {name}: {share > 0.9}")

# %%
reveal("5.c", right)
assert right[0] < 0.8 and right[1] > 0.95, (
    "With the page's seeds, nearly all of domain 1 is right only with the hook."
)

# %% [markdown]
# What has the hook done to the features? We draw them, and let each point ask its five nearest neighbours for their domain.

# %% tags=["figure", "folded"]
print("What came out:")
networks = {"features, no hook": plain, "features, with the hook": turned}
plots.show(figures.two_domains(networks), figures.TWO_DOMAINS)

x, _, domain = transfer.two_domains()
with torch.no_grad():
    readable = [
        transfer.domain_readable(network.features(x), domain)
        for network in (plain, turned)
    ]
assert readable[0] > 0.95 and readable[1] < 0.8  # 0.5 is guessing

place = x[domain == 0]
further_right = place + torch.tensor([2.5, 0.0])  # at the same height
same = [
    ((one(place)[0] > 0) == (one(further_right)[0] > 0)).float().mean()
    for one in (plain, turned)
]
assert same[0] < 0.8 and same[1] > 0.95  # the answers of the second do not mind

# %% [markdown]
# *What to see:* the colours are the domains, the marks are the classes. On the left the points as they go in, then the features
# of each network: where do the domains lie, and where the classes?
#
# This is **gradient reversal**, the heart of
# [domain-adversarial training](https://arxiv.org/abs/1505.07818). It needed no extra layer and no change to the network's code.
# (The docstring of `transfer.train` says what keeps the two parts from chasing each other in circles.)

# %% [markdown]
# ## Change what comes in
#
# So far, no hook has changed the gradients of the module's own parameters. What if you want to change these? One document looks
# for them in `grad_input`:

# %% [markdown] tags=["exercise"]
# ### Exercise 5.3 · Mend it: the documents' hook
# ●●○ · 5 minutes
#
# This script wants to multiply the gradient of the layer's weight by `weight_factor`, that of its bias by `bias_factor`,
# and to leave everything else alone. It is one document's hook, registered in today's way, and it is broken: try it.
# Mend it, for any layer with a `weight` and a `bias`, and any input. The bias may be `None`. Return a list of the
# handles.
#
# ```python
# def scale_parameter_gradients(layer, weight_factor, bias_factor):
#     def backward_hook(module, gin, gout):
#         gin0, gin1, gin2 = gin
#         return gin0, gin1 * weight_factor, gin2 * bias_factor
#     return [layer.register_full_backward_hook(backward_hook)]
# ```
#
# <details><summary>Hint: which entry of grad_input is the weight?</summary>
#
# None. A parameter is a leaf tensor. Which hook does a tensor have?
# </details>
# <details><summary>Hint: "'NoneType' object has no attribute 'register_hook'"</summary>
#
# `nn.Linear(3, 2, bias=False).bias` is `None`.
# </details>

# %% tags=["solution"]
def scale_parameter_gradients(layer: nn.Module, weight_factor: float, bias_factor: float) -> list[RemovableHandle]:
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
# So a single parameter's gradient needs no hook of the module. To change **all that follows from what comes in**, the
# parameters' gradients and `grad_input` alike, there is the **full backward pre-hook**, at the second door:
# `hook(module, grad_output)`. What it returns replaces `grad_output`, before the module computes anything from it.

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
print("x.grad:", x.grad.tolist(), "  weight.grad:", layer.weight.grad.tolist(), "  bias.grad:", layer.bias.grad.item())
assert numbers(seen[0][1]) == (10.0,)
assert x.grad.tolist() == [[20.0, 30.0]]
assert layer.weight.grad.tolist() == [[10.0, 40.0]] and layer.bias.grad.item() == 10.0

# %% [markdown] tags=["exercise"]
# ### Exercise 5.4 · A fuse
# ●●○ · 5 minutes
#
# One huge gradient can spoil a step. Protect a layer: in every pass, clip every number of the gradient that **comes in** to
# the range from `-limit` to `limit`, so that its parameters and everything before it get what follows from the clipped
# gradient. Return the handle. The layer may have several outputs, some of them unused.
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
# ## Why three? The old hook
#
# Where did that document get three gradients from? It uses `register_backward_hook`, the **legacy hook**, which still exists.
# The hook doubles the second gradient and triples the third. We put it on three layers with a single weight, 5, and
# send four ones through each: the true gradients are 5 for an input, 4 for the weight and 4 for the bias.

# %% tags=["claim-S3.11"]
def unpack_three(module, gin, gout):
    got.append(shapes(gin))
    gin0, gin1, gin2 = gin
    return gin0, gin1 * 2, gin2 * 3


got, legacy = [], "register_backward_hook"
came = {
    "convolution": gradients_with(legacy, unpack_three, nn.Conv2d(1, 1, 1), (1, 1, 2, 2)),
    "linear, 2-D": gradients_with(legacy, unpack_three, nn.Linear(1, 1), (4, 1)),
    "linear, 3-D": gradients_with(legacy, unpack_three, nn.Linear(1, 1), (2, 2, 1)),
}
print("gradient of       [input, weight, bias]")
for name, result in came.items():
    print(f"    {name:<13} {result}")

assert came["convolution"] == [5.0, 8.0, 12.0]  # weight doubled, bias tripled
assert came["linear, 2-D"] == [10.0, 12.0, 4.0]  # input doubled, weight tripled
assert came["linear, 3-D"] == "ValueError: not enough values to unpack (expected 3, got 1)"
assert got[0] == [(1, 1, 2, 2), (1, 1, 1, 1), (1,)]  # input, weight, bias
assert got[1] == [(1,), (4, 1), (1, 1)]  # bias, input, weight

# %% [markdown]
# The same hook doubles the weight's gradient in the first layer, the input's in the second, and fails in the third. For it is
# registered on the `grad_fn` of the output (S4 knows). So it sits on **one node**, the last one, and what it is given are the
# gradients that leave *that node*. A node takes hooks as well. Hook it by hand, and you get the same:

# %% tags=["claim-S4.3", "figure"]
layer, x, leaving = linear([[5.0, 7.0]]), torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True), []
y = layer(x)
with y.grad_fn.register_hook(lambda grad_inputs, grad_outputs: leaving.extend(grad_inputs)):
    y.sum().backward()

named = dict(zip(("bias", "input", "weight, transposed"), leaving, strict=True))
plots.show(
    figures.edges(y.grad_fn, torch.ones(2, 1), named),
    "One node, AddmmBackward0, with one arrow in and three out: to the bias, the input and the transposed weight.",
)

assert len(y.grad_fn.next_functions) == 3
assert shapes(leaving) == [layer.bias.shape, x.shape, layer.weight.T.shape]

# %% [markdown]
# *What to see:* `AddmmBackward0` is a matrix product plus a sum in one node. Three things went into it, so three edges lead
# out: to the bias, to the input, and to the node that transposes the weight back. That is all there is to "three". A
# convolution's node has its three in another order; a linear layer with a three-dimensional input ends in a reshape, which
# has one. (More of the old hook's ways, for readers of old code, stand behind the recap.)

# %% [markdown]
# ## Which one do I use?
#
# The two doors have a price. They turn `None` into zero, as you have seen. And a door hands on a **view**, a tensor that shares
# another one's memory, which must not be changed in place. So beside a module that works in place, the *forward* fails:
# **"Output 0 of BackwardHookFunction is a view and is being modified inplace"**.
# ([A thread about it](https://github.com/pytorch/pytorch/issues/61519)) The mend is `inplace=False`. Or do without doors: a
# forward hook (lesson 3) gets the output, and puts a **tensor hook** (lesson 2) on it.

# %% tags=["field", "field-44"]
def hook_the_output(module, args, output):
    output.register_hook(lambda grad: seen.append(grad.tolist()))
    # no return here: a returned handle would replace the output


first, last = linear([[1.0, 0.0], [0.0, -1.0]]), linear([[3.0, 4.0]])
inplace_model, x, seen = nn.Sequential(first, nn.ReLU(inplace=True), last), torch.ones(1, 2), []
refused = []
for module in inplace_model:
    with module.register_full_backward_hook(look):
        refused.append(error_of(inplace_model, x).split(". ")[0])
with first.register_forward_hook(hook_the_output):
    torch.sum(inplace_model(x)).backward()

print("a full hook on each of the three:", *refused, sep="\n    ")
print("a tensor hook on the output of the first:", *seen)
assert all("is a view and is being modified inplace" in words for words in refused[:2]) and refused[2] == "no error"
assert seen == [[[3.0, 0.0]]]  # the second unit was negative: no gradient passes the ReLU

# %% [markdown]
# | you want to | use |
# |---|---|
# | read the gradient of a parameter | nothing: `parameter.grad` |
# | change the gradient of a parameter | `parameter.register_hook` |
# | read the gradient of a layer's output | a tensor hook from a forward hook, or `hooklab.capture(…, grads=True)` |
# | change it, parameters included | the same tensor hook, returning; or `register_full_backward_pre_hook` |
# | read or change what a module passes back to its inputs | `register_full_backward_hook` |
#
# `register_backward_hook`, the legacy hook, has no place in new code.

# %% [markdown] tags=["recap"]
# ## Recap
#
# `grad_output` belongs to what a module put out, `grad_input` to what was put in. The full backward hook sits at the door
# where gradients leave and may replace `grad_input`; the pre-hook sits where they arrive and may replace `grad_output`. Both
# join a pass in its forward.
#
# | the documents say | today |
# |---|---|
# | a backward hook cannot change data, but returns new gradients, found in `Module.grad_input` (S2) | the returned tuple replaces `grad_input`; there is no such attribute |
# | `grad_input` and `grad_output` can be tuples (S2) | they always are, even empty ones |
# | `grad_in` may be changed, `grad_out` may not; unpack three gradients (S3) | the full hook gives one for each positional argument, the legacy hook those of the last node; `register_full_backward_pre_hook` changes `grad_output` |
# | remove the hook after `backward()` (S3) | a safe place; what counts is that it is registered *before the forward*, which the document's own code does not do: 0 calls |
# | the hook sits on the `grad_fn` of the output and can influence the flow (S4) | true of the legacy hook; the full hook sits at both ends of the module |
# | a hook that returns ones makes `a.grad` all ones (S4) | true of both, but the legacy hook also overwrites the gradients of weight and bias (shown below) |
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | backward hook | 反向钩子 | called with a module's gradients while they flow back |
# | full backward hook | 完整反向钩子 | sits at both ends of a module; its return value replaces `grad_input` |
# | full backward pre-hook | 完整反向预钩子 | runs before the module's backward; its return value replaces `grad_output` |
# | legacy backward hook | 旧版反向钩子 | sits on the last autograd node only |
# | `grad_input` | 输入梯度 | tuple: gradients of a module's positional arguments |
# | `grad_output` | 输出梯度 | tuple: gradients of a module's outputs |
# | autograd node | 计算图节点 | one recorded operation; `grad_fn` of its result |
# | gradient reversal | 梯度反转 | a part passes back minus its gradient, so what is before it learns the opposite |
# | view | 视图 | a tensor that shares another one's memory |

# %% [markdown] tags=["quiz"]
# ### Three questions
#
# **1.** A full backward hook on `nn.Linear(8, 4)` returns a tuple of zeros. Does the layer still learn?
#
# <details><summary>Answer</summary>
#
# Yes. `grad_input` is what leaves the layer; its own weight and bias have their gradients from `grad_output`. The layers before
# it get zeros and stand still. (Unless their optimizer has a weight decay, as you have seen.)
# </details>
#
# **2.** A program unpacks `b, x, w = grad_input` in a legacy hook on a linear layer, and has worked for years. Somebody feeds
# the layer with sequences, shape (batch, time, features). What happens?
#
# <details><summary>Answer</summary>
#
# The last node is now a reshape with a single input, so there is one entry and the unpacking fails.
# </details>
#
# **3.** You must log the gradient of each block's output in a network full of in-place ReLUs, in a training loop. Which hook?
#
# <details><summary>Answer</summary>
#
# A tensor hook on the output, registered by a forward hook: it needs no door. A full backward hook would stop the forward
# with an error.
# </details>

# %%
progress(5)

# %% [markdown]
# ## If you want more
#
# ### How deep does a gradient reach?
#
# Twenty layers, 32 numbers wide, with PyTorch's own starting weights, not yet trained; the digits of lesson 3 go in, and a loss
# comes out. How much of the gradient that the last layer receives is left at the first one, a half? A tenth? A pre-hook on
# each layer notes the norm of what comes in. We try sigmoids and ReLUs, each with and without batch normalisation.

# %% tags=["hook-full-backward-pre"]
def received(activation, norm) -> tuple[float, list[float]]:
    """Return the loss, and the norm of the gradient that arrives at each of twenty layers, first layer first."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(64 if i == 0 else 32, 32), norm(32), activation()) for i in range(20)]
    model, norms = nn.Sequential(*layers, nn.Linear(32, 10)), []
    data = digits()
    for layer in layers:
        layer.register_full_backward_pre_hook(lambda module, grad_output: norms.append(grad_output[0].norm().item()))
    loss = nn.functional.cross_entropy(model(data.train_images.flatten(1)), data.train_labels)
    loss.backward()
    return loss.item(), norms[::-1]


def no_norm(width):
    return nn.Identity()


networks = {
    "sigmoid": received(nn.Sigmoid, no_norm),
    "ReLU": received(nn.ReLU, no_norm),
    "sigmoid, normalised": received(nn.Sigmoid, nn.BatchNorm1d),
    "ReLU, normalised": received(nn.ReLU, nn.BatchNorm1d),
}

# %% tags=["figure"]
plots.show(
    figures.depth({name: norms for name, (_, norms) in networks.items()}),
    "Norm of the gradient at twenty layers: sigmoids lose almost all, ReLUs most, both hold it when normalised.",
)

share = {name: norms[0] / norms[-1] for name, (_, norms) in networks.items()}
assert share["sigmoid"] < 1e-12 and 1e-10 < share["ReLU"] < 1e-6
assert 0.5 < share["sigmoid, normalised"] < 10 and share["ReLU, normalised"] > 10
assert all(2.2 < loss < 2.5 for loss, _ in networks.values())  # the loss of guessing is log(10) = 2.3

# %% [markdown]
# *What to see:* one line a network, from the last layer on the right to the first; from tick to tick of the axis it is a
# factor of a hundred. Behind twenty sigmoids less than a trillionth is left. ReLUs are said to mend this; with these starting
# weights, they let less than a millionth through. Normalised, the sigmoids pass the gradient on, and the ReLUs pass on
# *more* than they get: on its way back, the gradient grows. The loss knows nothing of all this. It is the same for all
# four, that of guessing.

# %% [markdown]
# ### "On the first layer I get `(None,)`, and a warning"
#
# Here is the third of the recorded steps once more, in code. The mend: return `None` there, and ask the data for a gradient if you want
# it. ([A thread about it](https://github.com/pytorch/pytorch/issues/100528); in
# [PyTorch 1.8](https://github.com/pytorch/pytorch/issues/56380) the hook did not run at all.)

# %% tags=["field", "field-45"]
def backward_of(x, hook):
    layer = linear([[1.0, 2.0]])
    with layer.register_full_backward_hook(hook):
        layer(x).sum().backward()


data, seen = torch.ones(1, 2), []
print(warning_of(backward_of, data, look).split(". ")[0])
print(error_of(backward_of, data, lambda *args: (torch.ones(1, 2),)))  # it has to return None there
backward_of(data.requires_grad_(), look)

print("grad_input:", *[numbers(grad_input) for grad_input, _ in seen])
assert "Full backward hook is firing" in warning_of(backward_of, torch.ones(1, 2), look)
assert [numbers(grad_input) for grad_input, _ in seen[:2]] == [(None,), ([[1.0, 2.0]],)]
assert "should always return None" in error_of(backward_of, torch.ones(1, 2), lambda *args: (data,))

# %% [markdown]
# ### "My hook never runs on a model that returns a dict"
#
# A door can be put behind a tensor or a tuple of tensors. For a dict or a list PyTorch warns, in the forward, and the hook
# stays silent in the backward. ([A thread about it](https://github.com/pytorch/pytorch/issues/87540))

# %% tags=["field", "field-48"]
class TwoHeads(nn.Module):
    def forward(self, x):
        return {"double": 2 * x, "triple": 3 * x}


def run_two(x):
    two(x)["double"].sum().backward()


two, seen, x = TwoHeads(), [], torch.ones(1, requires_grad=True)
with two.register_full_backward_hook(look):
    message = warning_of(run_two, x)

print("calls of the hook:", len(seen), "  gradient of x:", x.grad.item())
print(message)
assert seen == [] and x.grad.item() == 2.0
assert "should be a Tensor or a tuple of Tensors but received <class 'dict'>" in message

# %% [markdown]
# The mend is the tensor hook: of a dict, hook each tensor.
#
# ### "I differentiate from an output that I kept, and the backward hook stays silent"
#
# A forward hook stands in front of the second door: what it keeps has not gone through. Start from what the caller gets.
# ([A thread about it](https://github.com/pytorch/pytorch/issues/57157), from the days when this was an error)

# %% tags=["field", "field-180"]
layer, x = linear([[1.0, 2.0]]), torch.ones(1, 2, requires_grad=True)
kept, seen, ran = [], [], []
layer.register_forward_hook(lambda module, args, output: kept.append(output))
layer.register_full_backward_hook(look)
y = layer(x)
for start in (kept[0], y):
    torch.autograd.grad(start.sum(), x, retain_graph=True)
    ran.append(len(seen))

print("calls of the hook, from the kept output:", ran[0], "  from the returned one:", ran[1])
assert ran == [0, 1]

# %% [markdown]
# ### What a tensor hook can do, and what not
#
# A tensor hook may also *return* a gradient. Then it does what a backward pre-hook does. And it puts nothing in the way: the
# spare branch stays where it was. What it does not give you is the gradient of an input that asks for none. And where
# an output is itself a view, of a `Flatten` say, and is then changed in place, the tensor hook on it stays silent.

# %%
def ten_times_the_output(module, args, output):
    output.register_hook(lambda grad: 10 * grad)


layer = linear([[2.0, 3.0]])
x = torch.tensor([[1.0, 4.0]], requires_grad=True)
with layer.register_forward_hook(ten_times_the_output):
    layer(x).sum().backward()

print("as with the pre-hook:", x.grad.tolist(), layer.weight.grad.tolist())
assert x.grad.tolist() == [[20.0, 30.0]] and layer.weight.grad.tolist() == [[10.0, 40.0]]

seen = []
spare_weight = train(hook_the_output, "register_forward_hook")
print("gradients seen:", len(seen), "  the spare weight:", spare_weight.item())
assert len(seen) == 10 and spare_weight.item() == 1.0

flat, seen = nn.Sequential(nn.Linear(2, 2), nn.Flatten(), nn.ReLU(inplace=True)), []
with flat[1].register_forward_hook(hook_the_output):
    flat(torch.ones(1, 3, 2)).sum().backward()
assert seen == []

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
def watch_output_gradients(layer: nn.Module, seen: dict[str, torch.Tensor]) -> RemovableHandle:
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
with hooklab.capture(inplace_model, "0", "1", grads=True) as captured:
    inplace_model(torch.ones(1, 2)).sum().backward()

print("gradient of the ReLU's output:  ", captured.grad("1").tolist())
print("gradient of the linear's output:", captured.grad("0").tolist())
assert captured.grad("1").tolist() == [[3.0, 4.0]] and captured.grad("0").tolist() == [[3.0, 0.0]]
assert all(len(module._forward_hooks) == 0 for module in inplace_model.modules())

# %% [markdown]
# ### Three hooks around one module
#
# One document (S2) puts a backward hook beside two others that you know. There is a module with a 3×1 parameter, a value $y$ in
# front of it, a tensor hook on $y$, a forward hook, and the backward hook. With $y = (2, 1, 3)$ and the weight $(1, 2, 3)$, $z = 13$.

# %% tags=["claim-S2.7"]
model, grad_list, outputs, seen = linear([[1.0, 2.0, 3.0]]), [], [], []
y = torch.tensor([[1.0, 0.0, 2.0]], requires_grad=True) + 1
with (
    y.register_hook(grad_list.append),
    model.register_forward_hook(lambda module, args, output: outputs.append(output.item())),
    model.register_full_backward_hook(look),
):
    model(y).backward()

print("forward hook, output:  ", outputs[0])
print("tensor hook on y:      ", numbers(grad_list))
print("backward hook, both:   ", *map(numbers, seen[0]))
assert not y.is_leaf and not y.retains_grad  # so y.grad is None, as in lesson 1
assert outputs == [13.0] and numbers(seen[0][1]) == (1.0,)
assert numbers(grad_list) == numbers(seen[0][0]) == ([[1.0, 2.0, 3.0]],)

# %% [markdown]
# ### One ReLU, used twice
#
# *"My rule for a ReLU's backward needs the ReLU's input. I stored it on the module, and the maps are wrong."* A rule such as
# guided backpropagation or DeepLift sees each use of a module once on the way forward and once on the way back. The forward
# hook's `module.input = …` keeps the last use only. A **stack** pairs them: what went through last comes back first.
# ([A thread about it](https://github.com/jmschrei/tangermeme/issues/54))

# %% tags=["field", "field-23", "field-123"]
class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU()

    def forward(self, x):
        return 5 * self.relu(1 - self.relu(x))


def keep_input(module, args, output):
    module.input = args[0].detach()
    stack.append(args[0].detach())


def pair(module, grad_input, grad_output):
    pairs.append((numbers([module.input, stack.pop()]), numbers(grad_output)))


twice, stack, pairs = Twice(), [], []
with twice.relu.register_forward_hook(keep_input), twice.relu.register_full_backward_hook(pair):
    twice(torch.tensor([-2.0, 0.5], requires_grad=True)).sum().backward()

for (stored, own), grad_output in pairs:
    print(f"stored on the module {stored}, from the stack {own}, gradient {grad_output[0]}")
assert [stored for (stored, _), _ in pairs] == [[1.0, 0.5], [1.0, 0.5]]  # twice the last use
assert [own for (_, own), _ in pairs] == [[1.0, 0.5], [-2.0, 0.5]] and stack == []

# %% [markdown]
# `F.relu` has no module at all, so no hook either: such a rule skips it in silence.

# %% [markdown]
# ### More of the old hook
#
# (Should you read S3: its heading `register_backward_hook(module, grad_in, grad_out)` has the arguments of the hook, not of the method.)
#
# Is what a legacy hook is given ever the gradient of the module's own input? Yes, where an argument goes straight into the
# last node. And the last node of *what*, if there are several outputs? Of the first tensor in them.

# %% tags=["hook-legacy-backward"]
class ExpTimes(nn.Module):
    def forward(self, a, b):
        return a.exp() * b  # two nodes: the product is the last one


seen, a, b = [], torch.zeros(1, requires_grad=True), torch.full((1,), 3.0, requires_grad=True)
module, two = ExpTimes(), TwoHeads()
module.register_backward_hook(look)
two.register_backward_hook(look)
module(a, b).backward()
two(a)["triple"].backward()  # calls no hook

print("grad_input:", numbers(seen[0][0]), "  calls for the second output:", len(seen) - 1)
assert numbers(seen[0][0]) == (3.0, 1.0)  # of a.exp(), which is inside; and of b itself
assert len(seen) == 1

# %% [markdown]
# One more document has a hook that returns ones for all gradients, and prints `a.grad`: all ones, as expected. It did not
# look at the weight. With a batch of three twos, its true gradient is 2 + 2 + 2 = 6, the bias's 3.

# %% tags=["claim-S4.4"]
def ones(module, grad_in, grad_out):
    return tuple(torch.ones_like(grad) for grad in grad_in)


values = {}
for register in ("register_full_backward_hook", legacy):
    layer, a = nn.Linear(10, 20), torch.full((3, 10), 2.0, requires_grad=True)
    with getattr(layer, register)(ones):
        torch.sum(layer(a)).backward()
    values[register] = [tensor.grad.unique().tolist() for tensor in (a, layer.weight, layer.bias)]
    print(f"{register:<28} a.grad, weight.grad, bias.grad:", *values[register])

assert values["register_full_backward_hook"] == [[1.0], [6.0], [3.0]]
assert values[legacy] == [[1.0], [1.0], [1.0]]  # the next step of training would use these

# %% [markdown]
# So PyTorch warns about such a hook. And when you mend it: **"Cannot use both regular backward hooks and full backward
# hooks."** A module that has had a legacy hook refuses a full one for good, even after `remove()`. The mend is a new module
# with the old weights. ([A thread about wrong legacy gradients](https://github.com/pytorch/pytorch/issues/598))

# %% tags=["field", "field-46"]
layer, x = linear([[1.0]]), torch.ones(1, 1, requires_grad=True)
with layer.register_backward_hook(ones):
    warning = warning_of(lambda: layer(x).sum().backward())
assert len(layer._backward_hooks) == 0  # it is gone
message = error_of(layer.register_full_backward_hook, look).split(". ")[0]
print(warning.split(". ")[1] + ".", message, sep="\n")
assert warning.startswith("FutureWarning") and "missing some grad_input" in warning
assert message.startswith("RuntimeError: Cannot use both regular backward hooks and full backward hooks")

fresh = linear([[0.0]])
fresh.load_state_dict(layer.state_dict())
with fresh.register_full_backward_hook(look):
    assert len(fresh._backward_hooks) == 1

# %% [markdown]
# ### Module by module
#
# `compare_hooks` of this course runs a module with either kind of hook, looks for each entry among the true gradients by
# its values, and gives its name.

# %% tags=["figure", "claim-S3.11"]
makers = {
    "linear, 2-D": (nn.Linear(3, 2), (4, 3)),
    "linear, 3-D": (nn.Linear(3, 2), (5, 4, 3)),
    "convolution": (nn.Conv2d(3, 2, 3), (4, 3, 5, 5)),
    "batch norm": (nn.BatchNorm1d(3), (4, 3)),
    "Sequential": (nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)), (4, 3)),
}
comparisons = {name: figures.compare_hooks(module, shape) for name, (module, shape) in makers.items()}
plots.show(
    figures.reports(comparisons),
    "Five modules: the legacy hook's entries are of parameters, inputs and inner values, the full hook's always the input's.",
)

for comparison in comparisons.values():
    assert [entry.of for entry in comparison.full.grad_input] == ["input"]
legacy = {name: [entry.of for entry in comparison.legacy.grad_input] for name, comparison in comparisons.items()}
assert legacy["linear, 2-D"] == ["bias", "input", "weight transposed"]
assert legacy["convolution"] == legacy["batch norm"] == ["input", "weight", "bias"]
assert "input" not in legacy["linear, 3-D"] and "input" not in legacy["Sequential"]

# %% [markdown]
# *What to see:* the full column is the input's gradient (vermilion), every time. The legacy column mixes in the gradients of
# parameters (green) and of values inside the module (grey); for a 3-D linear layer and for the whole `Sequential` the
# input's gradient is missing.
