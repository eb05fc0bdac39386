# %% [markdown]
# # 5 · What do `grad_input` and `grad_output` mean, and which backward hook do I use?
#
# **Time** 60 minutes, and 47 for the extras after the recap &nbsp;·&nbsp; **You need** lesson 2 (tensor hooks) and lesson 3 (forward hooks)
#
# After this lesson you can
#
# - say what the two tuples of a backward hook hold, for any module, and which of their numbers to distrust;
# - change a gradient where it leaves a module, or where it arrives, and train with it;
# - choose between a module's backward hook and a tensor hook.
#
# This goes beyond the entry on
# [`register_full_backward_hook`](https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_full_backward_hook)
# in PyTorch's documentation.

# %% tags=["setup"]
import itertools
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
from hooklab.course.exercises.ready import yours_or
from hooklab.course.lesson05 import explorer, figures, transfer
from hooklab.course.lesson05.helpers import (
    calls,
    gradients_with,
    linear,
    numbers,
    shapes,
    warning_of,
)

torch.set_num_threads(1)
for message in (  # lesson 1 has shown the first one; the others are shown below
    "The .grad attribute of a Tensor that is not a leaf",
    "Using .*non-full backward hook",
    "Full backward hook is firing",
):
    warnings.filterwarnings("ignore", message)

# %% [markdown]
# ## Two tuples
#
# A **backward hook** is registered on a module. PyTorch calls it in the backward pass, as
# `hook(module, grad_input, grad_output)`. The last two are tuples of gradients. Gradients of what?
#
# `linear` makes an `nn.Linear` with the weight that you pass, here (1, 2, 3), and a bias of 0. The input has two rows of
# three numbers, the output two rows of one number. The loss multiplies the two outputs by 10 and 20.

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
# *What to see:* both names refer to the forward pass. `grad_output` is the gradient of the output: it arrives from the loss.
# `grad_input` is the gradient of the input: the module computes it and passes it on. The gradients of the weight and the bias
# (green) are in neither tuple.
#
# Is `grad_input` the same as `x.grad`? Here `x` goes through a layer with weight 5, and also past it:

# %%
five, seen = linear([[5.0]]), []
x = torch.tensor([[1.0]], requires_grad=True)
with five.register_full_backward_hook(look):
    (x + five(x)).sum().backward()

print("grad_input of the layer:", numbers(seen[0][0]), "  x.grad:", x.grad.item())
assert numbers(seen[0][0]) == (5.0,) and x.grad.item() == 6.0

# %% [markdown]
# No: `grad_input` is the share that comes through this module, 5. `x.grad` is the sum over all paths, and the path around the
# layer adds 1.

# %% [markdown] tags=["exercise"]
# ### Exercise 5.1 · On both sides of a layer
# ●○○ · 6 minutes
#
# `layer` is one of the layers in `model`. Call the model on `x` once, call `backward()` on the **sum of its output**, and
# return two tensors: the gradient of the layer's input (which requires grad) and the gradient of the layer's output, in
# this order. Leave no hook behind.
#
# <details><summary>Hint: "'tuple' object has no attribute 'shape'"</summary>
#
# The hook gets two tuples. This layer has one input and one output.
# </details>
# <details><summary>Hint: my list is empty</summary>
#
# Has `backward()` run? And was the hook already registered when the layer ran its forward pass?
# </details>

# %% tags=["solution"]
def gradients_around(
    model: nn.Module, layer: nn.Module, x: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of the layer's input and output, for model(x).sum()."""
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
# A module can take several arguments and return several outputs. Which of them get an entry in the tuples?

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
assert offset.grad.item() == 1.0  # computed all the same, but it's in no tuple

# %% [markdown]
# `grad_input` has one entry for each **positional** argument, and `None` for an argument that isn't a tensor. The keyword
# argument `offset` has no entry at all. `grad_output` has one entry for each output, and `None` for an output that the loss
# doesn't use.

# %% [markdown]
# ## A hook that only reads
#
# Here is a model with two branches. The second one, `spare`, isn't used in the loss yet. We train the model twice. The
# second time, a colleague has registered a backward hook on the module that joins the branches, to count the passes.

# %%
class Join(nn.Module):
    def forward(self, main, spare):
        return main  # later: main + spare


def train(hook=None, register="register_full_backward_hook"):
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
# So a full backward hook can turn `None` into zero. AdamW skips a weight whose `.grad` is `None`, but not one whose `.grad` is
# zero. And a zero that the hook itself gets can be wrong:

# %% tags=["field", "field-182"]
class TwoAPlusB(nn.Module):
    def forward(self, a, b):
        return a * 2 + b


module, seen = TwoAPlusB(), []
a, b = torch.ones(1, requires_grad=True), torch.ones(1)  # b doesn't require grad
with module.register_full_backward_hook(look):
    module(a, b).sum().backward()

print("grad_input:", numbers(seen[0][0]))
assert numbers(seen[0][0]) == (2.0, 0.0)  # the derivative with respect to b is 1
assert b.grad is None

# %% [markdown]
# The derivative with respect to `b` is 1, but the hook gets 0, because `b` doesn't require grad. If you see a zero next to
# another gradient, check `requires_grad` of that argument. A tensor hook can't mislead you like this, because PyTorch refuses
# one on `b`:

# %%
message = error_of(b.register_hook, look)
print(message)
assert message.endswith("a hook on a tensor that doesn't require gradient")

# %% [markdown]
# ## When to register, when to remove
#
# A backward hook runs in the backward pass. When do you have to register it? `calls` tries three orders, each with a new
# layer, and counts how many times the hook runs:

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
older = [calls(steps, "register_backward_hook") for steps in orders]
assert older == ran  # the older hook does no better

# %% [markdown]
# The hook has to be there **when the forward pass runs**. If you register it later, it misses this pass, and there's no
# error. (The code in S3 makes this mistake: it registers the hook right before `loss.backward()`.) If you remove it after
# the forward pass, that's too late: it still runs. So put both passes into one `with` block.
#
# Why the forward pass? Because that's when a module with backward hooks adds **two nodes** to the graph: one before
# everything that `forward` records, and one after it. Together they're the module's **border**. Values cross the **input
# border** on their way in and the **output border** on their way out, and gradients cross both in the opposite direction.

# %% tags=["claim-S4.3"]
model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))
x = torch.ones(4, 3, requires_grad=True)
with model.register_full_backward_hook(look):
    nodes = figures.nodes_inside(model(x), x)

print(*nodes, sep="\n")
assert nodes[1:-1] == ["AddmmBackward0", "ReluBackward0", "AddmmBackward0"]
assert nodes[0] == nodes[-1] == "BackwardHookFunctionBackward"

# %% [markdown]
# In the backward pass, the gradient reaches the output border first. That's where `grad_output` is stored. The gradient leaves
# at the input border, and there PyTorch calls the hook with both tuples. Every step below was recorded in a run.
# (`AddmmBackward0` is the node of a linear layer: a matrix product plus a sum.)

# %% tags=["explorer"]
explorer.border()

# %% tags=["figure"]
usual = explorer.record_border(reverses=True)
no_grad_input = explorer.record_border(asks=False)
for run, number in ((usual, 7), (no_grad_input, 5)):  # after the pass; as the hook runs
    print(explorer.describe_border(run, number))
    display(explorer.draw_border(run, number))

where = [[step.active for step in run if step.hook] for run in (usual, no_grad_input)]
assert where == [["input border"], ["output border"]]
assert usual[6].hook and usual[6].kept == {"weight": [1.0, 4.0], "bias": [1.0]}
assert usual[7].kept == usual[6].kept | {"x": [-2.0, -3.0]}

# %% [markdown]
# *What to see:* a hook has returned minus `grad_input`. It ran at the input border, when the gradients of the weight and the
# bias were already in `.grad` (green). So it has changed only what leaves the layer (purple), and with it `x.grad`.
#
# The second picture shows a first layer, whose input is data that doesn't require grad. Then the input border is missing, so
# the hook runs at the output border, with `grad_input = (None,)`, and PyTorch warns. If you want that gradient, call
# `x.requires_grad_()` before the forward pass.

# %% [markdown]
# ## Change the gradient that leaves
#
# If a full backward hook returns something, that **replaces `grad_input`** for everything before the module. It must be a
# tuple with one entry for each entry of `grad_input`.

# %% tags=["claim-S2.5"]
def double(module, grad_input, grad_output):
    return tuple(None if grad is None else 2 * grad for grad in grad_input)


before, after = linear([[2.0]]), linear([[3.0]])
x = torch.tensor([[1.0]], requires_grad=True)
with after.register_full_backward_hook(double):
    after(before(x)).sum().backward()

arrived = numbers([x.grad, before.weight.grad, after.weight.grad])
print("x.grad, before.weight.grad, after.weight.grad =", arrived)
assert arrived[:2] == (12.0, 6.0)  # everything before the module: doubled
assert arrived[2] == 2.0  # the module's own weight gradient: unchanged
assert not hasattr(after, "grad_input")

# %% [markdown] tags=["exercise"]
# ### Exercise 5.2 · A factor for the gradient that leaves
# ●●○ · 6 minutes
#
# Make a layer pass `factor` times the gradient back to its inputs, in every pass. The gradients of its own parameters and
# of the layers after it must not change. Return the handle. The layer may take several arguments, and some of them may not
# be tensors. You'll train a network with this function in a moment.
#
# <details><summary>Hint: "invalid number of grad_input"</summary>
#
# You return a tensor. What does `grad_input` look like?
# </details>
# <details><summary>Hint: "unsupported operand type(s) for *: 'NoneType' and 'float'"</summary>
#
# An argument that isn't a tensor has no gradient. Its entry is `None`, and must stay `None`.
# </details>

# %% tags=["solution"]
def scale_input_gradient(layer: nn.Module, factor: float) -> RemovableHandle:
    """Multiply the gradient that the layer passes to its inputs; return the handle."""
    ### BEGIN SOLUTION
    def scale(module, grad_input, grad_output):
        return tuple(None if grad is None else factor * grad for grad in grad_input)

    return layer.register_full_backward_hook(scale)
    ### END SOLUTION

# %% tags=["check"]
check("5.2", scale_input_gradient)

# %% [markdown]
# ## A factor of −1, and two domains
#
# You have images from two scanners, and labels for only one of them. Will a network that learns from scanner 0 also work on
# scanner 1? This is *transfer learning* (S2 mentions it), and the two scanners are called *domains*. Our toy version has two
# domains with two classes each, and labels in domain 0 only.
#
# The network has three parts. `features` turns each point into two numbers. From these two, `classes` predicts the class, and
# `domains` predicts the domain. We train all three together.

# %% tags=["figure"]
plots.show(
    figures.two_domains_and_three_parts(),
    "Left: points of two domains, side by side, each with two classes. "
    "Right: features feeds classes and domains, and gets gradients from both.",
)

# %% [markdown]
# Then we train a second network, with one difference: your hook from 5.2 is on `domains`, with `factor=-1`. The parameters of
# `domains` get their usual gradients, so this part still learns to predict the domain. But the gradient that it passes to
# `features` has its sign flipped.

# %%
scale_or_ready = yours_or("5.2", scale_input_gradient, transfer.scale_input_gradient)

# %%
predict("5.c")

# %% tags=["predict"]
plain = transfer.train(transfer.Network())

turned = transfer.Network()
with scale_or_ready(turned.domains, -1.0):
    transfer.train(turned)

right = [transfer.classes_right(network) for network in (plain, turned)]
print("What came out:")
for name, share in zip(("without your hook", "with it"), right, strict=True):
    print(f"right in domain 1, {name}: {share:.0%}")

# %%
reveal("5.c", right)
assert right[0] < 0.8 and right[1] > 0.95, (
    "With the page's seeds, nearly all of domain 1 is right only with the hook."
)
assert transfer.unmoved(plain) < 0.8 and transfer.unmoved(turned) > 0.95, (
    "With the page's seeds, only the second network ignores how far to the right a point is."
)

# %% [markdown]
# What has your hook done to the features? Below, both networks' features are drawn. Below each picture is the share of points
# whose five nearest neighbours are mostly from their own domain.

# %% tags=["figure", "folded"]
print("What came out:")
networks = {"features, no hook": plain, "features, with your hook": turned}
plots.show(figures.two_domains(networks), figures.TWO_DOMAINS)

x, _, domain = transfer.two_domains()
with torch.no_grad():
    readable = [
        transfer.domain_readable(network.features(x), domain)
        for network in (plain, turned)
    ]
assert readable[0] > 0.95 and readable[1] < 0.8  # 0.5 is guessing

# %% [markdown]
# *What to see:* colours are domains, marks are classes. Which picture keeps the domains apart, and which keeps only the
# classes apart?
#
# <details><summary>Answer</summary>
#
# Without the hook, each domain has its own place. With your hook, the colours are mixed, and only the classes are apart. So what
# `classes` has learned from blue points also holds for orange ones.
# </details>
#
# This is **gradient reversal**, the heart of
# [domain-adversarial training](https://arxiv.org/abs/1505.07818). With a hook, it needs no extra layer and no change to the
# network's code. (The two parts pull against each other, so the training needs care: `transfer.train` uses shrinking steps and
# noise, for both networks alike.)

# %% [markdown]
# ## Change the gradient of a parameter
#
# So far, the gradients of the module's own parameters have stayed the same. What if you want to change those? S3 looks for
# them in `grad_input`:

# %% [markdown] tags=["exercise"]
# ### Exercise 5.3 · Fix it: the documents' hook
# ●●○ · 6 minutes
#
# This function should multiply the gradient of the layer's weight by `weight_factor` and the gradient of its bias by
# `bias_factor`, and change nothing else. It's S3's hook, registered with today's method, and it doesn't work: try it.
# Fix it, for any layer with a `weight` and a `bias`, and any input. The bias may be `None`. Return a list of the handles.
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
# None. A parameter is a leaf tensor. Which hook can a tensor have?
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
# ## Change the gradient that arrives
#
# So you don't need a module hook for a single parameter. What if you want to change everything that the module computes in
# the backward pass, its parameters' gradients and `grad_input` alike? Then change the gradient where it arrives, at the
# output border, with a **full backward pre-hook**: `hook(module, grad_output)`. What it returns replaces `grad_output` before
# the module computes anything from it.

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

weight, bias = layer.weight, layer.bias
print("grad_output seen by the full hook:", numbers(seen[0][1]))
print("x.grad:", x.grad.tolist(), "  weight.grad:", weight.grad.tolist())
assert numbers(seen[0][1]) == (10.0,)
assert x.grad.tolist() == [[20.0, 30.0]]
assert weight.grad.tolist() == [[10.0, 40.0]] and bias.grad.item() == 10.0

# %% tags=["figure"]
ten_times_run = explorer.record_border(pre=True)  # the same layer and the same input
display(explorer.draw_border(ten_times_run, 8))
kept = {"x": [20.0, 30.0], "weight": [10.0, 40.0], "bias": [10.0]}
assert ten_times_run[5].active == "output border" and ten_times_run[8].kept == kept

# %% [markdown]
# *What to see:* the pre-hook has changed the gradient at the output border (purple), before the layer got it. So the layer's own
# gradients are ten times as large, too.

# %% [markdown]
# ## Which one do I use?
#
# The border has a price. It turns `None` into zero, as you've seen. And what crosses it becomes a **view**, a tensor that shares
# its memory with another one. PyTorch doesn't let a module write into this view. So if the module with the hook works in place, or
# the next one does, the *forward pass* fails: **"Output 0 of BackwardHookFunction is a view and is being modified inplace"**.
# ([A thread about it](https://github.com/pytorch/pytorch/issues/61519))
#
# There are two ways out. Switch to `inplace=False`. Or do without the border: let a forward hook (lesson 3), which gets the
# output, register a **tensor hook** (lesson 2) on it.

# %% tags=["field", "field-44"]
def hook_the_output(module, args, output):
    output.register_hook(lambda grad: seen.append(grad.tolist()))
    # no return here: a returned handle would replace the output


first, last = linear([[1.0, 0.0], [0.0, -1.0]]), linear([[3.0, 4.0]])
inplace_model = nn.Sequential(first, nn.ReLU(inplace=True), last)
x, seen, refused = torch.ones(1, 2), [], []
for module in inplace_model:
    with module.register_full_backward_hook(look):
        refused.append(error_of(inplace_model, x).split(". ")[0])
with first.register_forward_hook(hook_the_output):
    torch.sum(inplace_model(x)).backward()

print("a full hook on each of the three:", *refused, sep="\n    ")
print("a tensor hook on the output of the first:", *seen)
inplace_view = "is a view and is being modified inplace"
assert [inplace_view in words for words in refused] == [True, True, False]
assert refused[2] == "no error"
assert seen == [[[3.0, 0.0]]]  # the ReLU's second input was negative: gradient 0

# %% [markdown]
# | you want to | use |
# |---|---|
# | read the gradient of a parameter | nothing: `parameter.grad` |
# | change the gradient of a parameter | `parameter.register_hook` |
# | read the gradient of a layer's output | a tensor hook from a forward hook, or `hooklab.capture(…, grads=True)` |
# | change the gradient of a layer's output, and of its parameters with it | the same tensor hook, returning a new gradient; or `register_full_backward_pre_hook` |
# | read or change the gradient that a module passes to its inputs | `register_full_backward_hook` |
#
# Don't use `register_backward_hook`, the legacy hook, in new code. ("If you want more" shows why.)

# %% [markdown]
# ## S2's example: three hooks around one module
#
# In seven pictures, [S2](00_start_here.ipynb#documents) lets a tensor hook, a forward hook and a backward hook store what they
# receive. Here are its steps, with numbers that you can check by hand: `z`, and the gradients of `y`, `x` and `w`. The last
# lines of the cell say where each of them comes from.

# %% tags=["claim-S2.7"]
class Weigh(nn.Module):  # 1. a module with a parameter of size 3x1
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([[3.0], [1.0], [-2.0]]))

    def forward(self, values):
        return values @ self.w


grad_list, forward_list, backward_list = [], [], []


def tensor_hook(grad):  # 2. three hooks, and a list for each
    grad_list.append(grad.tolist())


def forward_hook(module, args, output):
    forward_list.append(output.tolist())


def backward_hook(module, grad_input, grad_output):
    backward_list.append((grad_input[0].tolist(), grad_output[0].tolist()))


model, x = Weigh(), torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
y = 2 * x  # 3. a tensor before the module
print("y =", *y.tolist(), "  w =", model.w.flatten().tolist())  # 4. a first look

y.register_hook(tensor_hook)  # 5. register
model.register_forward_hook(forward_hook)
model.register_full_backward_hook(backward_hook)  # S2: register_backward_hook

z = model(y)  # 6. run
z.backward()

print("z =", z.item(), "  y.grad =", y.grad, "  x.grad =", *x.grad.tolist())  # 7.
print("grad_list:", *grad_list, "  forward_list:", *forward_list)
print("backward_list:", *backward_list)
assert z.item() == 2 * 3 + 4 * 1 + 6 * -2 == -2
assert type(y.grad).__name__ == "NoneType"
assert grad_list == [[[3.0, 1.0, -2.0]]] and forward_list == [[[-2.0]]]  # dz/dy = w
assert backward_list == [([[3.0, 1.0, -2.0]], [[1.0]])]
assert x.grad.tolist() == [[6.0, 2.0, -4.0]]  # 2w: a leaf needs no hook,
assert model.w.grad.flatten().tolist() == [2.0, 4.0, 6.0]  # nor does a parameter

# %% [markdown] tags=["recap"]
# ## Recap
#
# `grad_output` is the gradient of a module's output, `grad_input` the gradient of its inputs. A module with backward hooks has
# a border: two nodes, which it adds to the graph in the forward pass. The full backward pre-hook runs at the output border,
# where gradients arrive, and may replace `grad_output`. The full backward hook runs at the input border, where they leave, and
# may replace `grad_input`.
#
# | the documents say | today |
# |---|---|
# | a backward hook cannot change data, but returns new gradients, found in `Module.grad_input` (S2) | the returned tuple replaces `grad_input`; there is no such attribute |
# | `grad_input` and `grad_output` can be tuples (S2) | they always are, even empty ones |
# | `grad_in` may be changed, `grad_out` may not; unpack three gradients (S3) | the full hook gets one for each positional argument, the legacy hook those of the last node; `register_full_backward_pre_hook` changes `grad_output` |
# | remove the hook after `backward()` (S3) | that's safe; but the hook must be registered *before the forward pass*, which the document's own code doesn't do: 0 calls |
# | ↓ the hook is on the `grad_fn` of the output and can influence the flow (S4) | true of the legacy hook; the full hook is at both ends of the module |
# | ↓ a hook that returns ones makes `a.grad` all ones (S4) | true of both, but the legacy hook also overwrites the gradients of weight and bias |
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | backward hook | 反向钩子 | called with a module's gradients in the backward pass |
# | full backward hook | 完整反向钩子 | gets the gradients at both ends of a module; its return value replaces `grad_input` |
# | full backward pre-hook | 完整反向预钩子 | runs before the module's backward pass; its return value replaces `grad_output` |
# | legacy backward hook | 旧版反向钩子 | is on the last autograd node only |
# | `grad_input` | 输入梯度 | tuple: gradients of a module's positional arguments |
# | `grad_output` | 输出梯度 | tuple: gradients of a module's outputs |
# | autograd node | 计算图节点 | one recorded operation; `grad_fn` of its result |
# | gradient reversal | 梯度反转 | a part passes on minus its gradient, so the layers before it learn the opposite |
# | view | 视图 | a tensor that shares its memory with another one |
#
# (↓ comes below, in "If you want more".)

# %% [markdown] tags=["quiz"]
# ### Three questions
#
# **1.** A full backward hook on `nn.Linear(8, 4)` returns a tuple of zeros. Does the layer still learn?
#
# <details><summary>Answer</summary>
#
# Yes. `grad_input` is what leaves the layer. Its own weight and bias get their gradients from `grad_output`. The layers before
# it get zeros and don't change (unless their optimizer uses weight decay, as you've seen, or still has momentum from earlier
# steps).
# </details>
#
# **2.** A colleague adds a full backward hook to a block, right before `loss.backward()`. It never runs, and there's no
# error. Why?
#
# <details><summary>Answer</summary>
#
# The block puts its two border nodes into the graph in the forward pass, and only if it has a backward hook by then.
# Register before the forward pass.
# </details>
#
# **3.** You want to log the gradient of each block's output in a network full of in-place ReLUs, in a training loop. Which
# hook?
#
# <details><summary>Answer</summary>
#
# A tensor hook on the output, registered by a forward hook: it needs no border. With a full backward hook, the forward pass
# would fail.
# </details>

# %%
progress(5)

# %% [markdown]
# ## If you want more

# %% [markdown] tags=["exercise"]
# ### Exercise 5.4 · A fuse
# ●●○ · 6 minutes
#
# One huge gradient can spoil a training step. Protect a layer: in every pass, clip every number of the gradient that
# **arrives** to the range from `-limit` to `limit`. The layer's parameters, and everything before it, then get gradients
# computed from the clipped one. Return the handle. The layer may have several outputs, some of them unused.
#
# <details><summary>Hint: the input's gradient is right, the weight's is not</summary>
#
# When a full backward hook runs, the weight's gradient has already been computed. Which hook runs earlier?
# </details>
# <details><summary>Hint: "clamp(): argument 'input' must be Tensor, not NoneType"</summary>
#
# An output that the loss doesn't use has no gradient.
# </details>

# %% tags=["solution"]
def clip_incoming_gradient(layer: nn.Module, limit: float) -> RemovableHandle:
    """Clip the gradients that arrive at the layer's outputs; return the handle."""
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
# ### How deep does a gradient reach?
#
# Twenty layers, 32 numbers wide, with PyTorch's own initial weights and no training. Lesson 3's digits go in. How much of the
# gradient that the last layer receives is left at the first one: a half? A tenth? A pre-hook on each layer records the norm of
# the gradient that arrives. We try sigmoids and ReLUs, each with and without batch normalisation.

# %% tags=["hook-full-backward-pre"]
def received(activation, norm) -> tuple[float, list[float]]:
    """Return the loss, and the gradient's norm at each layer, first layer first."""
    torch.manual_seed(0)
    widths = [64] + 20 * [32]
    layers = [
        nn.Sequential(nn.Linear(*pair), norm(32), activation())
        for pair in itertools.pairwise(widths)
    ]
    model, norms = nn.Sequential(*layers, nn.Linear(32, 10)), []
    for layer in layers:
        layer.register_full_backward_pre_hook(
            lambda module, grad_output: norms.append(grad_output[0].norm().item())
        )
    data = digits()
    scores = model(data.train_images.flatten(1))
    loss = nn.functional.cross_entropy(scores, data.train_labels)
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
    figures.DEPTH,
)

share = {name: norms[0] / norms[-1] for name, (_, norms) in networks.items()}
assert share["sigmoid"] < 1e-12 and 1e-10 < share["ReLU"] < 1e-6
assert 0.5 < share["sigmoid, normalised"] < 10 < share["ReLU, normalised"]
assert all(2.2 < loss < 2.5 for loss, _ in networks.values())  # log(10), as by guessing

# %% [markdown]
# *What to see:* one line for each network. Read it from right to left, as the gradient flows. From tick to tick, the axis goes
# up by a factor of 100. After twenty sigmoids, less than a trillionth of the gradient is left. ReLUs are said to fix this, but
# with these initial weights they let less than a millionth through. With batch normalisation, the sigmoids pass the gradient
# on, and with the ReLUs it even *grows* on its way to the first layer. The loss shows none of this: for all four networks it's
# about 2.3, as by guessing.

# %% [markdown]
# ### "On the first layer I get `(None,)`, and a warning"
#
# A first layer gets data that doesn't require grad, so it has no gradient to report. Let the hook return `None` there. If you
# want the gradient of the data, call `requires_grad_()` on it. ([A thread about it](https://github.com/pytorch/pytorch/issues/100528); in
# [PyTorch 1.8](https://github.com/pytorch/pytorch/issues/56380) the hook didn't run at all.)

# %% tags=["claim-S4.6", "field", "field-45"]
def backward_of(x, hook):
    layer = linear([[1.0, 2.0]])
    with layer.register_full_backward_hook(hook):
        layer(x).sum().backward()


def returns_a_gradient(module, grad_input, grad_output):
    return (torch.ones(1, 2),)


def ones_for_each(module, grad_input, grad_output):  # as the documents' hooks do
    return tuple(torch.ones_like(grad) for grad in grad_input)


data, seen = torch.ones(1, 2), []
warned = warning_of(backward_of, data, look)
refused = error_of(backward_of, data, returns_a_gradient)  # it has to return None there
backward_of(data.requires_grad_(), look)

print(warned.split(". ")[0], refused, sep="\n")
print("grad_input:", *[numbers(grad_input) for grad_input, _ in seen])
assert "Full backward hook is firing" in warned
assert [numbers(grad_input) for grad_input, _ in seen] == [(None,), ([[1.0, 2.0]],)]
assert "should always return None" in refused
failed = error_of(backward_of, torch.ones(1, 2), ones_for_each)
assert "must be Tensor, not NoneType" in failed

# %% [markdown]
# ### "My hook never runs on a model that returns a dict"
#
# The output border can take a tensor or a tuple of tensors. With a dict or a list, PyTorch warns in the forward pass, and the
# hook doesn't run in the backward pass. ([A thread about it](https://github.com/pytorch/pytorch/issues/87540))

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
# Use a tensor hook instead, one for each tensor in the dict.
#
# ### "I differentiate from an output that I kept, and the backward hook stays silent"
#
# A forward hook runs before the output border, so the output that it keeps hasn't crossed the border. Call `backward()` on what
# the module returned to its caller. ([A thread about it](https://github.com/pytorch/pytorch/issues/57157), from the days when
# this was an error)

# %% tags=["field", "field-180"]
layer, x = linear([[1.0, 2.0]]), torch.ones(1, 2, requires_grad=True)
kept, seen, ran = [], [], []
layer.register_forward_hook(lambda module, args, output: kept.append(output))
layer.register_full_backward_hook(look)
y = layer(x)
for start in (kept[0], y):
    torch.autograd.grad(start.sum(), x, retain_graph=True)
    ran.append(len(seen))

print("calls of the hook, from the kept output:", ran[0])
print("calls of the hook, from the returned output:", ran[1])
assert ran == [0, 1]

# %% [markdown]
# ### What a tensor hook can do, and what it can't
#
# A tensor hook may also *return* a gradient. On a layer's output, it then does the same as a backward pre-hook. It adds no
# nodes, so the spare branch keeps its weight of 1. What it can't do: it gets no gradient of an input that doesn't require grad.
# And if the output is itself a view (of a `Flatten`, say) and is changed in place later, the tensor hook on it never runs.

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
# Watch the gradients of a layer's output. After every backward pass, the dictionary `seen` must hold them: under `"output"` if
# the layer returns a tensor, and under the dict's own keys if it returns a dict. Your hook must
#
# - work next to in-place modules,
# - ignore the dict's entries that aren't tensors,
# - do nothing in a pass that records no gradients.
#
# Return one handle.
#
# <details><summary>Hint: "cannot register a hook on a tensor that doesn't require gradient"</summary>
#
# Under `no_grad`, or with frozen layers, there is no gradient to watch. Labels have none either.
# </details>
# <details><summary>Hint: "'RemovableHandle' object has no attribute …"</summary>
#
# Your forward hook returns something, and that replaces the output.
# </details>
# <details><summary>Hint: all gradients end up under the last key</summary>
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
# `hooklab.capture` works the same way. With `grads=True` it keeps the gradients of the outputs, for any structure, and removes
# its hooks at the end of the block.

# %%
with hooklab.capture(inplace_model, "0", "1", grads=True) as captured:
    inplace_model(torch.ones(1, 2)).sum().backward()

print("gradient of the ReLU's output:  ", captured.grad("1").tolist())
print("gradient of the linear's output:", captured.grad("0").tolist())
assert captured.grad("1").tolist() == [[3.0, 4.0]]
assert captured.grad("0").tolist() == [[3.0, 0.0]]
assert all(len(module._forward_hooks) == 0 for module in inplace_model.modules())

# %% [markdown]
# ### A keyword, a list, a bare tensor
#
# In the main part, `grad_input` had one entry for each positional argument. So what if the only argument is passed by keyword,
# or is a list of tensors?

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
# If a hook returns a bare tensor instead of a tuple, PyTorch takes its rows for the entries:

# %% tags=["claim-S2.5", "field", "field-backward-return"]
def returns_a_tensor(rows: int) -> None:
    x = torch.ones(rows, 1, requires_grad=True)
    with after.register_full_backward_hook(lambda module, grads, _: grads[0]):
        after(x).sum().backward()


messages = [error_of(returns_a_tensor, 3), error_of(returns_a_tensor, 1)]
print(*messages, sep="\n")
assert messages[0].endswith("invalid number of grad_input, got 3, but expected 1")
assert "has changed the size of value" in messages[1]

# %% [markdown]
# ### One ReLU, used twice
#
# *"My rule for a ReLU's backward pass needs the ReLU's input. I stored it on the module, and the maps are wrong."* A rule such as
# guided backpropagation or DeepLift needs the input of each use of a module when that use's gradient comes. But
# `module.input = …` in a forward hook keeps only the last input. A **stack** pairs them correctly: the backward pass visits the
# last use first. ([A thread about it](https://github.com/jmschrei/tangermeme/issues/54))

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
relu, x = twice.relu, torch.tensor([-2.0, 0.5], requires_grad=True)
with relu.register_forward_hook(keep_input), relu.register_full_backward_hook(pair):
    twice(x).sum().backward()

for (stored, own), (grad,) in pairs:
    print(f"on the module {stored}, from the stack {own}, gradient {grad}")
assert [stored for (stored, _), _ in pairs] == [[1.0, 0.5], [1.0, 0.5]]  # the last use
assert [own for (_, own), _ in pairs] == [[1.0, 0.5], [-2.0, 0.5]] and stack == []

# %% [markdown]
# `F.relu` isn't a module, so it has no hooks, and such a rule skips it without an error.

# %% [markdown]
# ### Why three gradients? The old hook
#
# Where did S3 get three gradients from? It uses `register_backward_hook`, the **legacy hook**, which still exists. Here is a
# hook that doubles the second gradient and triples the third. We register it on three layers with a single weight, 5, and
# pass four ones through each. The true gradients are 5 for an input, 4 for the weight and 4 for the bias.

# %% tags=["claim-S3.11", "claim-S4.7"]
def unpack_three(module, gin, gout):
    got.append(shapes(gin))
    gin0, gin1, gin2 = gin
    return gin0, gin1 * 2, gin2 * 3


got, legacy = [], "register_backward_hook"
came = {
    name: gradients_with(legacy, unpack_three, layer, shape)
    for name, layer, shape in (
        ("convolution", nn.Conv2d(1, 1, 1), (1, 1, 2, 2)),
        ("linear, 2-D", nn.Linear(1, 1), (4, 1)),
        ("linear, 3-D", nn.Linear(1, 1), (2, 2, 1)),
    )
}
print("gradient of       [input, weight, bias]")
for name, result in came.items():
    print(f"    {name:<13} {result}")

assert came["convolution"] == [5.0, 8.0, 12.0]  # weight doubled, bias tripled
assert came["linear, 2-D"] == [10.0, 12.0, 4.0]  # input doubled, weight tripled
assert "not enough values to unpack (expected 3, got 1)" in came["linear, 3-D"]
assert got[0] == [(1, 1, 2, 2), (1, 1, 1, 1), (1,)]  # input, weight, bias
assert got[1] == [(1,), (4, 1), (1, 1)]  # bias, input, weight

# %% [markdown]
# The same hook doubles the weight's gradient in the first layer, the input's gradient in the second, and fails in the third.
# That's because PyTorch registers a legacy hook on the output's `grad_fn` (S4 says so). So the hook is on **one node**, the last
# one, and it gets the gradients that leave *that node*. You can register a hook on the node yourself, and you'll get the same:

# %% tags=["claim-S4.3", "figure"]
layer, leaving = linear([[5.0, 7.0]]), []
x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
y = layer(x)
with y.grad_fn.register_hook(lambda grad_inputs, _: leaving.extend(grad_inputs)):
    y.sum().backward()

named = dict(zip(("bias", "input", "weight, transposed"), leaving, strict=True))
plots.show(
    figures.edges(y.grad_fn, torch.ones(2, 1), named),
    "One node, AddmmBackward0, with one arrow in and three out: "
    "to the bias, the input and the transposed weight.",
)

assert len(y.grad_fn.next_functions) == 3
assert shapes(leaving) == [layer.bias.shape, x.shape, layer.weight.T.shape]

# %% [markdown]
# *What to see:* `AddmmBackward0` is a matrix product plus a sum, in one node. It has three inputs, so three edges lead out of it:
# to the bias, to the input, and to the node that transposes the weight. That's where "three" comes from. A convolution's node
# has its three in a different order. A linear layer with a three-dimensional input ends in a reshape, which has only one.

# %% [markdown]
# (A reading note for S3: its heading `register_backward_hook(module, grad_in, grad_out)` shows the arguments of the hook, not of
# the method.)
#
# Does a legacy hook ever get the gradient of the module's own input? Yes, if the input goes straight into the last node. And if
# the module has several outputs, the hook is on the last node of the first one. Without a graph (under `no_grad`, say)
# there is no node, so no hook is attached, and no error tells you. S1's listing shows it: `if grad_fn is not None`.

# %% tags=["claim-S1.10", "claim-S1.11", "hook-legacy-backward"]
class ExpTimes(nn.Module):
    def forward(self, a, b):
        return a.exp() * b  # two nodes: the product is the last one


seen, a = [], torch.zeros(1, requires_grad=True)
b = torch.full((1,), 3.0, requires_grad=True)
module, two = ExpTimes(), TwoHeads()
module.register_backward_hook(look)
two.register_backward_hook(look)
module(a, b).backward()
two(a)["triple"].backward()  # calls no hook
second = len(seen) - 1
two(a)["double"].backward()
first = len(seen) - 1 - second
frozen = module(torch.ones(1), torch.ones(1))  # no graph, no node for a hook

print("grad_input:", numbers(seen[0][0]))
print("calls for the first output:", first, "  for the second:", second)
assert numbers(seen[0][0]) == (3.0, 1.0)  # of a.exp(), which is inside; and of b itself
assert (first, second) == (1, 0)
assert frozen.grad_fn is None

# %% [markdown]
# S4's example has a hook that returns ones for all gradients, and prints `a.grad`: all ones, as expected. It doesn't print the
# weight's gradient. With a batch of three rows of twos, the weight's true gradient is 2 + 2 + 2 = 6 everywhere, and the bias's
# is 3.

# %% tags=["claim-S4.4"]
def ones(module, grad_in, grad_out):
    return tuple(torch.ones_like(grad) for grad in grad_in)


values = {}
for register in ("register_full_backward_hook", legacy):
    layer, a = nn.Linear(10, 20), torch.full((3, 10), 2.0, requires_grad=True)
    with getattr(layer, register)(ones):
        torch.sum(layer(a)).backward()
    watched = (a, layer.weight, layer.bias)
    values[register] = [tensor.grad.unique().tolist() for tensor in watched]
    print(f"{register:<28} a.grad, weight.grad, bias.grad:", *values[register])

assert values["register_full_backward_hook"] == [[1.0], [6.0], [3.0]]
assert values[legacy] == [[1.0], [1.0], [1.0]]  # a training step would use these

# %% [markdown]
# S4's hook has overwritten the weight's gradient, so the layer would learn something else. PyTorch warns about something
# different: a hook on the last node alone misses some of the module's inputs. If you then register a full hook instead, you
# may meet **"Cannot use both regular backward hooks and full backward hooks."** A module that has ever had a legacy hook
# refuses a full one, even after `remove()`. Make a new module and load the old weights. ([A thread about wrong legacy
# gradients](https://github.com/pytorch/pytorch/issues/598))

# %% tags=["field", "field-46"]
layer, x = linear([[1.0]]), torch.ones(1, 1, requires_grad=True)
with layer.register_backward_hook(ones):
    warning = warning_of(lambda: layer(x).sum().backward())
assert len(layer._backward_hooks) == 0  # the hook is gone
message = error_of(layer.register_full_backward_hook, look).split(". ")[0]
print(warning.split(". ")[1] + ".", message, sep="\n")
assert warning.startswith("FutureWarning") and "missing some grad_input" in warning
assert "Cannot use both regular backward hooks and full" in message

fresh = linear([[0.0]])
fresh.load_state_dict(layer.state_dict())
with fresh.register_full_backward_hook(look):
    assert len(fresh._backward_hooks) == 1

# %% [markdown]
# ### Module by module
#
# `compare_hooks` runs a module with both kinds of hook. For each entry of `grad_input`, it finds the true gradient with the same
# values and prints its name.

# %% tags=["figure", "claim-S3.11"]
makers = {
    "linear, 2-D": (nn.Linear(3, 2), (4, 3)),
    "linear, 3-D": (nn.Linear(3, 2), (5, 4, 3)),
    "convolution": (nn.Conv2d(3, 2, 3), (4, 3, 5, 5)),
    "batch norm": (nn.BatchNorm1d(3), (4, 3)),
    "Sequential": (nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)), (4, 3)),
}
comparisons = {name: figures.compare_hooks(*one) for name, one in makers.items()}
plots.show(
    figures.reports(comparisons),
    "Five modules: the legacy hook's entries are parameters, inputs and inner values, "
    "the full hook's always the input's.",
)

for comparison in comparisons.values():
    assert [entry.of for entry in comparison.full.grad_input] == ["input"]
legacy = {
    name: [entry.of for entry in comparison.legacy.grad_input]
    for name, comparison in comparisons.items()
}
assert legacy["linear, 2-D"] == ["bias", "input", "weight transposed"]
assert legacy["convolution"] == legacy["batch norm"] == ["input", "weight", "bias"]
assert "input" not in legacy["linear, 3-D"] and "input" not in legacy["Sequential"]

# %% [markdown]
# *What to see:* in the full column, there's always the input's gradient (orange). The legacy column also has gradients of
# parameters (green) and of values inside the module (grey). For a 3-D linear layer and for the whole `Sequential`, the input's
# gradient is missing.
