# %% [markdown]
# # 10 · What can I hook when there is no module?
#
# **Time** 58 minutes, and 91 for the hardest exercise and what comes after the recap &nbsp;·&nbsp; **You need**
# lessons 2 and 5 (tensor hooks, `grad_input`)
#
# After this lesson you can
#
# - put a hook on any operation, and find the one that makes the first NaN;
# - say which of the hooks at one place runs first, and what keeps a hook on a weight's node alive;
# - wait for several gradients at once, and use each gradient the moment it is ready;
# - decide what the graph keeps between the forward and the backward pass, and build checkpointing from two functions.

# %% tags=["setup"]
import threading
import weakref

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.autograd.graph import (
    get_gradient_edge,
    register_multi_grad_hook,
    saved_tensors_hooks,
)
from torch.utils._python_dispatch import TorchDispatchMode

from hooklab import check, predict, progress, reveal
from hooklab.course.errors import error_of
from hooklab.course.exercises.ready import yours_or
from hooklab.course.lesson10 import explorer, figures, helpers, memory
from hooklab.course.lesson10.helpers import numbers

torch.set_num_threads(1)

# %% [markdown]
# ## A perfect loss, and a NaN
#
# This loss is the angle between two vectors. It is made of functions alone, without any module. The two vectors point
# in the same direction, so the angle is 0: a perfect result. What happens in the backward pass?


# %%
def angle(a, b):
    return (a / a.norm() * b).sum().acos()


a = torch.tensor([2.0, 0.0], requires_grad=True)
b = torch.tensor([1.0, 0.0])
loss = angle(a, b)
loss.backward()
print("loss:", loss.item(), "  gradient:", a.grad.tolist())
assert loss.item() == 0.0 and a.grad.isnan().all()

# %% [markdown]
# One step of an optimizer, and `a` would be NaN, too. Which operation made it? The loss has no layer that you could hook.
# But autograd has recorded every operation as a **node**: `loss.grad_fn` is the node of the last one. Its
# `next_functions` say where its gradients go. Each entry is a pair: the node that receives the gradient, and a number,
# which you can ignore here. So you can walk through the whole graph:


# %%
def every_node(loss):
    """Return all nodes of a loss's graph, each once."""
    found, waiting = [], [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:  # None: b, for example, needs none
            found.append(node)
            waiting += [following for following, _ in node.next_functions]
    return found


# %%
def short(node):
    """Return a node's name without its namespace, torch::autograd::."""
    return "nothing" if node is None else node.name().split("::")[-1]


for node in every_node(angle(a, b)):
    receivers = [short(following) for following, _ in node.next_functions]
    print(f"{short(node):<25} →", ", ".join(receivers) or "a.grad")

product = (a * b).grad_fn
assert [short(one) for one, _ in product.next_functions] == [
    "AccumulateGrad",
    "nothing",
]

# %% [markdown]
# The last node of each branch is `AccumulateGrad`: it adds the gradient to a leaf's `.grad`.
#
# ### Two hooks on a node
#
# A node receives the gradients of its operation's **outputs** and computes those of its **inputs**. A node pre-hook
# runs before this computation, a node hook after it.

# %% tags=["hook-node", "hook-node-prehook"]
a = torch.tensor(2.0, requires_grad=True)
b = torch.tensor(3.0, requires_grad=True)
product = a * b
node = product.grad_fn  # MulBackward0


def before(grad_outputs):
    print("pre-hook:", numbers(grad_outputs))  # as plain numbers


def after(grad_inputs, grad_outputs):
    print("hook:    ", numbers(grad_inputs), "made from", numbers(grad_outputs))


with node.register_prehook(before), node.register_hook(after):
    product.backward(retain_graph=True)

assert (a.grad, b.grad) == (3.0, 2.0)

# %% [markdown]
# Both hooks may return other gradients. A hook on a node returns **a tuple**, with one gradient for each entry, like
# a module's full backward hook (lesson 5). A single tensor, which a tensor hook or a forward hook may return, raises
# an error.


# %% tags=["field", "field-172", "hook-node", "hook-node-prehook"]
def gradients_with(pre=None, post=None):
    a.grad = b.grad = None
    handles = [node.register_prehook(pre)] if pre else [node.register_hook(post)]
    try:
        product.backward(retain_graph=True)
    finally:
        handles[0].remove()
    return [a.grad.item(), b.grad.item()]


def ten_times(grad_outputs):
    return (10 * grad_outputs[0],)


def only_the_first(grad_inputs, grad_outputs):
    return (10 * grad_inputs[0], grad_inputs[1])


print("pre-hook, times 10:  ", gradients_with(pre=ten_times))
print("hook, only the first:", gradients_with(post=only_the_first))
assert gradients_with(pre=ten_times) == [30.0, 20.0]
assert gradients_with(post=only_the_first) == [30.0, 2.0]

# error_of calls a function and returns the error's type and message
one_tensor = error_of(lambda: gradients_with(pre=lambda grad_outputs: grad_outputs[0]))
too_few = error_of(lambda: gradients_with(post=lambda ins, outs: (ins[0],)))
print(one_tensor, too_few, sep="\n")
assert one_tensor == "TypeError: expected tuple, but hook returned 'Tensor'"
assert "incorrect number of values (got 1, but expected 2)" in too_few

# %% [markdown] tags=["exercise"]
# ### Exercise 10.1 · Who made the first NaN?
# ●●○ · 8 minutes
#
# Write `first_nan(loss)`. Run `loss.backward()` with a hook on every node, and return the `name()` of the **first**
# node to run that returns a NaN. If none does, return `None`. An infinity isn't a NaN. Remove your hooks, even if the
# backward pass raises. `every_node` from above may help.
#
# <details><summary>Hint: 'NoneType' object has no attribute 'isnan'</summary>
#
# If an input doesn't require grad, its gradient in `grad_inputs` is None.
# </details>
# <details><summary>Hint: all my hooks report the same name</summary>
#
# When the hooks run, the loop is over, and its variable holds the last node. Create each hook in a function that
# receives `node` as an argument.
# </details>


# %% tags=["solution"]
def first_nan(loss: torch.Tensor) -> str | None:
    """Run loss.backward(); return the name of the first node that returns a NaN."""
    ### BEGIN SOLUTION
    names = []

    def watch(node):
        def hook(grad_inputs, grad_outputs):
            if any(grad is not None and grad.isnan().any() for grad in grad_inputs):
                names.append(node.name())

        return node.register_hook(hook)

    handles = [watch(node) for node in every_node(loss)]
    try:
        loss.backward()
    finally:
        for handle in handles:
            handle.remove()
    return names[0] if names else None
    ### END SOLUTION


# %% tags=["check"]
check("10.1", first_nan)

# %% [markdown]
# Now ask your function about the angle. (If 10.1 is still open, a ready one answers.) Bet first:

# %%
predict("10.a")

# %% tags=["predict", "figure"]
print("What came out:")
find = yours_or("10.1", first_nan, helpers.first_nan)
a = torch.tensor([2.0, 0.0], requires_grad=True)
b = torch.tensor([1.0, 0.0])
culprit = find(angle(a, b))
print("the first NaN comes from", culprit)
flow = figures.down_the_graph(angle(a, b))  # each node, and what it returns
figure = figures.made_a_nan(flow)
plt.show()

# %%
reveal("10.a", culprit)
assert culprit == "MulBackward0", "On this page, the product's node makes the NaN."
assert [(name, bool(made.isnan().any())) for name, made in flow] == [
    ("Acos", False),
    ("Sum", False),
    ("Mul", True),
    ("Div", True),
] and flow[0][1] == float("-inf"), "On this page, acos makes −inf, and the product NaN."

# %% [markdown]
# *What to see:* read from right to left. Each box is a node, and below each arrow is the gradient that flows there. The
# first NaN is left of Mul. (The norm's branch isn't drawn. It adds a NaN to both numbers of `a.grad`.)
#
# To fix this loss, keep the cosine away from 1. (Where `clamp` cuts something off, it passes back a gradient of 0.)

# %%
a.grad = None
cosine = (a / a.norm() * b).sum().clamp(-0.999999, 0.999999)
cosine.acos().backward()
print("gradient:", a.grad.tolist())
assert a.grad.tolist() == [0.0, 0.0]

# %% [markdown]
# ## Four at one place
#
# `y = 3 * x`. At `y`, four things want the same gradient: `y` has a tensor hook and `retain_grad()`, and its node has
# a pre-hook and a hook.

# %%
predict("10.b")

# %% tags=["predict", "figure"]
order = []
x = torch.tensor(2.0, requires_grad=True)
y = 3 * x
y.grad_fn.register_hook(lambda *grads: order.append("node hook"))
y.grad_fn.register_prehook(lambda grads: order.append("node pre-hook"))
y.retain_grad()
y.register_hook(lambda grad: order.append("tensor hook"))
(5 * y).backward()
print("What came out:")
print(", ".join(order))
steps = figures.order_at_two_nodes()
for number, step in enumerate(steps, start=1):
    print(f"{number}  {step.place:<18} {step.what:<18} {step.finds}")
figure = figures.order(steps)
plt.show()

# %%
reveal("10.b", order)
assert (
    order
    == [step.what for step in steps[:3]]
    == ["tensor hook", "node pre-hook", "node hook"]
), "On this page, y's tensor hook runs first, then its node's pre-hook and hook."
assert [step.what for step in steps[3:]] == [
    "tensor hook",
    "node pre-hook",
    "post-accumulate",
    "node hook",
], "At the leaf, the post-accumulate hook runs between its node's pre-hook and hook."
assert [step.finds for step in steps] == [
    "y.grad is None",
    "y.grad is 5",
    "y.grad is 5",
    "x.grad is None",
    "x.grad is None",
    "x.grad is 15",
    "x.grad is 15",
], "With the page's numbers, y.grad is 5 and x.grad is 15."

# %% [markdown]
# *What to see:* the gradient goes from right to left, so read the picture in that direction. Look at the leaf's side,
# too. A **post-accumulate** hook runs *inside* the leaf's node: after the gradient was added to `.grad`, and before the
# node's own hook.

# %% [markdown]
# ## The node of a leaf
#
# The weight `w` is a leaf, so it has no `grad_fn`. It still has a node in the graph: `AccumulateGrad`, which adds each
# new gradient to `w.grad`. You get it with `get_gradient_edge(w).node`. Put a hook on that node, and one on `w` itself.

# %%
predict("10.c")

# %% tags=["predict"]
w = torch.tensor(2.0, requires_grad=True)
seen = []
get_gradient_edge(w).node.register_hook(lambda *grads: seen.append("node hook"))
w.register_hook(lambda grad: seen.append("tensor hook"))
for _ in range(2):
    (3 * w).backward()
print("What came out:")
for hook in ("node hook", "tensor hook"):
    print(f"the {hook} ran {seen.count(hook)} times")

# %%
reveal("10.c", seen.count("node hook"))
assert seen == ["tensor hook", "tensor hook"], (
    "In the page's two passes, only the tensor hook runs, twice."
)

# %% [markdown]
# How long does a node live? This code keeps a node in a variable and uses it in two graphs. Then it deletes the variable
# and both graphs. The picture shows what keeps what alive:

# %% tags=["field", "field-160", "hook-node", "folded", "figure"]
print("What came out:")
kept = get_gradient_edge(w).node  # a variable keeps the node alive
assert kept.variable is w  # and the node keeps its leaf
kept.register_hook(lambda *grads: seen.append("node hook"))
first, second = 3 * w, 5 * w
nodes = [one.grad_fn.next_functions[0][0] for one in (first, second)]
assert nodes[0] is kept and nodes[1] is kept  # both graphs use this node
del nodes
seen.clear()
first.backward()
second.backward()
assert seen.count("node hook") == 2

del kept, first, second
seen.clear()
(3 * w).backward()
print("kept by a variable: 2 times; after `del`:", seen.count("node hook"), "times")
assert seen == ["tensor hook"]
figure = figures.who_keeps_the_node()
plt.show()

# %% [markdown]
# *What to see:* an arrow means "keeps alive", and none goes from `w` to its node. So hook the leaf, not its node. If you
# do need the node, keep a reference to it for as long as the hook should live.
# (`DistributedDataParallel` keeps a list of these nodes for this reason.)

# %% [markdown]
# ## Several gradients at once
#
# You want to do something once the gradients of `a`, `b` and `c` are all there. `register_multi_grad_hook` takes a
# list of tensors and calls your hook once, with the list of their gradients. (With `mode="any"` it doesn't wait: it
# passes the first gradient that arrives, and only that one.)

# %% tags=["field", "field-20", "hook-multi-grad"]
a, b, c = (torch.tensor(value, requires_grad=True) for value in (1.0, 2.0, 3.0))
seen, first = [], []


def note(grads):
    seen.append(numbers(grads))
    return "anything"  # ignored


with register_multi_grad_hook((a, b, c), note):
    (a * b * c).backward()
    (a * b).backward()
    torch.tensor(1.0, requires_grad=True).exp().backward()
with register_multi_grad_hook((a, b, c), first.append, mode="any"):
    (a * b * c).backward()

print("all three take part:", seen[0])
print("c takes no part:    ", seen[1])
print("none takes part:     no call; calls in all:", len(seen))
print('mode="any":         ', *first)
assert seen == [(6.0, 3.0, 2.0), (2.0, 1.0, None)]
assert len(first) == 1

# %% [markdown]
# The hook runs once in each backward pass that reaches at least one of the tensors. If a tensor isn't reached, its
# entry is None. In a backward pass that reaches none of them, the hook doesn't run. Its return value is ignored.

# %% [markdown]
# ## What the graph keeps
#
# The backward pass needs values from the forward pass: `x * x` needs both factors, `exp` its own result, `+` nothing.
# Until then the graph keeps them, and that is most of the memory that training needs.
#
# You can set two functions through which each value passes: **pack** when autograd saves it, and **unpack** when
# autograd needs it.


# %% tags=["hook-saved-tensors"]
def saved(function):
    """Return the sizes of the values that autograd saves, and how many are new."""
    sizes, new = [], []
    known = [one.data_ptr() for one in (x, *layer.parameters())]

    def pack(tensor):
        sizes.append(tensor.numel())
        if tensor.data_ptr() not in known:
            new.append(tensor.numel())
        return tensor.detach()  # without detach, a cycle (see "Two more surprises")

    with saved_tensors_hooks(pack, lambda packed: packed):
        function()
    return sizes, sum(new)


x = torch.ones(4, 3, requires_grad=True)
layer = nn.Linear(3, 2)
operations = {
    "x + x": lambda: x + x,
    "x.exp()": x.exp,
    "x * x": lambda: x * x,
    "layer(x)": lambda: layer(x),
    "layer(x.detach())": lambda: layer(x.detach()),
}
for name, function in operations.items():
    sizes, new = saved(function)
    print(f"{name:<18} saves {sizes!s:<9} numbers kept only by the graph: {new}")

assert saved(lambda: x + x) == ([], 0) and saved(x.exp) == ([12], 12)
assert saved(lambda: x * x) == ([12, 12], 0)
assert saved(lambda: layer(x)) == ([12, 6], 0)
assert saved(lambda: layer(x.detach())) == ([12], 0)

# %% [markdown]
# `x * x` saves `x` twice, once for each factor. But it saves no copy: both are the memory of `x` itself, so they cost
# nothing as long as `x` is there anyway. The result of `exp` is new memory. A linear layer saves its input, for the
# weight's gradient; and its weight, for the input's gradient, unless the input doesn't require grad.
#
# `pack` may return anything: a number, a file name. Later `unpack` gets exactly this, and should return the original
# tensor.

# %% [markdown]
# ## Keep nothing
#
# Now a bold idea: `pack` keeps **nothing** but a number, "this was the third value". When autograd needs the first
# value, you run the function again, from its input, and this time `pack` keeps the values. That is all that
# *checkpointing* does.

# %% [markdown] tags=["exercise"]
# ### Exercise 10.2 · Checkpointing from two functions
# ●●● · 30 minutes
#
# Write `checkpoint(function, x)`. It returns `function(x)`, and until the backward pass nothing from inside
# `function` is kept, only `x`. In the backward pass, when autograd asks for the first value, `function` runs **once**
# more; afterwards nothing of it is left.
#
# The gradients of `x` and of every parameter are those of `function(x)`, also in a second backward pass after one
# with `retain_graph=True`. This exercise can wait: until it works, PyTorch's own checkpoint is used below.
#
# <details><summary>Hint: a plan</summary>
#
# `pack` counts, and returns the number. If the number isn't in a dictionary, `unpack(number)` fills the dictionary by
# a second run; then it pops the value. The second run is inside its own `with saved_tensors_hooks(…)`, whose `pack`
# collects detached tensors.
# </details>
# <details><summary>Hint: the second run saves nothing, or fewer values</summary>
#
# During a backward pass no graph is recorded: use `torch.enable_grad()`. And what autograd saves depends on what
# requires grad: give the second run an input with the same `requires_grad` as `x`. It should be detached, so that the
# second graph ends there.
# </details>


# %% tags=["solution"]
def checkpoint(function, x: torch.Tensor) -> torch.Tensor:
    """Return function(x); compute its inner values again instead of keeping them."""
    ### BEGIN SOLUTION
    count = 0
    values = {}

    def pack(tensor):
        nonlocal count
        count += 1
        return count - 1

    def run_again():
        def keep(tensor):
            values[len(values)] = tensor.detach()

        again = x.detach().requires_grad_(x.requires_grad)
        with torch.enable_grad(), saved_tensors_hooks(keep, lambda nothing: nothing):
            function(again)

    def unpack(number):
        if number not in values:
            values.clear()
            run_again()
        return values.pop(number)

    with saved_tensors_hooks(pack, unpack):
        return function(x)
    ### END SOLUTION


# %% tags=["check"]
check("10.2", checkpoint)

# %% [markdown]
# ### What do you gain?
#
# Take sixteen layers. Without a checkpoint, 16 outputs are in memory at the end of the forward pass. Wrap **the whole
# network** in one checkpoint, and hardly anything is. But what about the peak, the most memory in use at any moment
# of both passes?

# %%
predict("10.d")

# %% tags=["predict"]
print("What came out:")
# yours, or torch's while 10.2 is open; used below as well
mine = memory.or_torchs(checkpoint)
plain, whole = memory.run(1, None), memory.run(1, mine)
print(
    "layers computed:", plain.matmuls, "without,", whole.matmuls,
    "with one checkpoint around all"
)
print(
    "peak of memory with it, divided by that without:",
    round(whole.peak / plain.peak, 2),
)

# %%
reveal("10.d", whole.peak / plain.peak)
assert (plain.matmuls, whole.matmuls) == (16, 32), (
    "With the page's sixteen layers, one checkpoint makes 32 layers to compute."
)
assert abs(whole.peak / plain.peak - 1) < 0.05, (
    "With the page's sixteen layers, the peak is the same, to a twentieth."
)
assert memory.same_grads(plain.grads, whole.grads), "A checkpoint changes no gradient."

# %% [markdown]
# Now cut the network into **parts** with one checkpoint each. Then only one part at a time is computed again, and
# only the input of each part is kept. How many parts are best?

# %% tags=["explorer"]
explorer.over_time(mine)

# %% tags=["figure", "folded"]
print("What came out:")
runs = {parts: memory.run(parts, mine) for parts in (1, 2, 4, 8, 16)}
peaks = {parts: run.peak / memory.ONE_LAYER for parts, run in runs.items()}
# no checkpoint, one part, four parts; and the peaks of all
figure = figures.valley(plain, runs)
plt.show()
print(
    "peak, in layers' outputs:", {parts: round(peak) for parts, peak in peaks.items()}
)

assert min(peaks, key=peaks.get) == 4
assert peaks[4] < 0.5 * plain.peak / memory.ONE_LAYER
assert all(
    run.matmuls == 32 and memory.same_grads(run.grads, plain.grads)
    for run in runs.values()
)

# %% [markdown]
# *What to see:* on the left, memory while the operations run: without a checkpoint; with one part (grey); and with
# four parts, a row of hills. On the right, the peak: it falls, and rises again.
#
# With $k$ parts you keep $k$ inputs and rebuild $16/k$ layers. The sum is smallest at $k = 4$, the square root of 16.
# By the same count, a network of 100 layers needs the memory of about 20, at the price of one more forward pass.
# You've found by experiment what [Chen and others (2016)](https://arxiv.org/abs/1604.06174) call *sublinear memory
# cost*.

# %% [markdown]
# ## Each gradient, the moment it is ready
#
# Gradients fill memory, too. After `backward()` there are as many as there are weights. But once a weight's gradient
# is complete, only the optimizer needs it. So do the optimizer's step in a hook, and delete the gradient at once.
#
# `register_post_accumulate_grad_hook` is made for this. Its hook receives **the parameter**, whose `.grad` is
# complete. Watch out if you reuse a hook written for `register_hook`:

# %% tags=["field", "field-15", "hook-post-accumulate"]
w = torch.tensor([1.0, 1.0], requires_grad=True)
meant_for_the_gradient = lambda grad: grad.data.mul_(0)  # noqa: E731
with w.register_post_accumulate_grad_hook(meant_for_the_gradient):
    returned = error_of((3 * w).sum().backward)
print("the weight is now", w.tolist(), "its gradient", w.grad.tolist())
print(returned)
assert w.tolist() == [0.0, 0.0] and w.grad.tolist() == [3.0, 3.0]  # it was the weight
assert returned == "RuntimeError: Tensor post accumulate grad hooks should return None."

non_leaf = error_of(lambda: (3 * w).register_post_accumulate_grad_hook(print))
assert (
    non_leaf
    == "RuntimeError: post accumulate grad hooks"
    " cannot be registered on non-leaf tensors"
)

# %% [markdown] tags=["exercise"]
# ### Exercise 10.3 · Fix it: a step inside the backward
# ●○○ · 6 minutes
#
# This script is meant to let each parameter take its step of gradient descent, `p - lr * gradient`, as soon as its
# gradient is ready, and then delete the gradient (`.grad` is None). It has several faults. Fix it, and return the
# handles.
#
# `parameters` may be `model.parameters()`. Parameters that don't require grad stay unchanged.
#
# ```python
# def step_in_backward(parameters, lr):
#     handles = []
#     for p in parameters:
#         def step(grad):
#             p.data -= lr * grad
#             p.grad = None
#         handles.append(p.register_hook(step))
#     return handles
# ```
#
# <details><summary>Hint: the gradients are still there</summary>
#
# A tensor hook runs before the gradient is stored in `.grad`. Which kind of hook runs after?
# </details>
# <details><summary>Hint: one parameter moves several times, the others not at all</summary>
#
# The hook looks up `p` when it runs, and by then the loop is over. The right kind of hook receives its parameter.
# </details>


# %% tags=["solution"]
def step_in_backward(parameters, lr: float) -> list:
    """Let each parameter step when its gradient is ready; return the handles."""

    ### BEGIN SOLUTION
    def step(parameter):
        parameter -= (
            lr * parameter.grad
        )  # allowed here: autograd doesn't record in a backward pass
        parameter.grad = None

    return [
        one.register_post_accumulate_grad_hook(step)
        for one in parameters
        if one.requires_grad
    ]
    ### END SOLUTION


# %% tags=["check"]
check("10.3", step_in_backward)

# %% tags=["figure"]
curves = figures.gradient_memory()
figure = figures.two_ways_to_step(curves)
plt.show()
after, inside = curves["after"].peak, curves["inside"].peak
one_layer = 4 * (64 * 64 + 64)  # bytes of one layer's gradients
print(f"peak with a step after the backward pass: {after / 1000:.0f} kB")
print(f"peak with a step in the hook:             {inside / 1000:.0f} kB")
assert round(after / inside) == 11
assert round(after / 1000) == round(16 * one_layer / 1000) + 1
assert 8_000 < inside - one_layer < 8_500

# %% [markdown]
# *What to see:* the kB in use at each operation. With a step after the backward pass, the gradients of sixteen layers
# pile up. With the step in the hook, there is one layer's gradient at a time, a sixteenth. Both also hold 8 kB of saved
# inputs when the backward pass begins; so the green peak is 25 kB instead of 17, and the factor is 11 instead of 16.
#
# The price: a hook that steps at once breaks **accumulation** over several backward passes, because the next gradient
# is computed at weights that have already moved. Let the hook count the passes, and step in the last one. **Clipping
# by the global norm** doesn't work either: it needs all gradients before the first step, and when the last gradient
# arrives, other weights have already moved.


# %% tags=["field", "field-165", "hook-post-accumulate", "hook-multi-grad"]
def step(parameter):
    parameter.data.sub_(0.5 * parameter.grad)
    parameter.grad = None


def step_in_the_second(parameter):
    if next(passes) == 2:
        step(parameter)


def trained(hook=None):
    w = torch.tensor(1.0, requires_grad=True)
    if hook:
        w.register_post_accumulate_grad_hook(hook)
    for _ in range(2):  # two halves of a batch: both gradients are for the same weight
        (w * w).backward()
    return w.item() if hook else w.item() - 0.5 * w.grad.item()


passes = iter([1, 2])
summed, at_once, counted = trained(), trained(step), trained(step_in_the_second)
print("summed first:", summed, "  stepped at once:", at_once, "  counted:", counted)
assert summed == counted == 1 - 0.5 * (2 + 2)
assert at_once == 0.0  # 1 - 0.5 · 2, and there the gradient is 0

a, b = torch.tensor(1.0, requires_grad=True), torch.tensor(2.0, requires_grad=True)
for one in (a, b):
    one.register_post_accumulate_grad_hook(step)
moved = []
register_multi_grad_hook(
    (a, b), lambda grads: moved.append([one.item() for one in (a, b)])
)
(a * b).backward()
print("a and b when both gradients are known:", moved[0], " (they were 1 and 2)")
assert moved[0] != [1.0, 2.0]

# %% [markdown] tags=["recap"]
# ## Recap
#
# Every operation leaves a node, and every node takes hooks. At one place the kind of hook decides the order: tensor
# hooks, `retain_grad()`, node pre-hooks, the node's work (at a leaf: adding to `.grad`, then the post-accumulate
# hooks), node hooks. Hook the leaf rather than its node, which lives only as long as a graph keeps it.
#
# Every value that the graph keeps passes through two functions that you can set, and two such functions make a
# checkpoint. A post-accumulate hook receives the parameter: use the gradient there, and delete it.
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | node | 图节点 | one step of the backward pass; a tensor's `grad_fn` is the node that made it |
# | node hook, node pre-hook | 节点钩子，节点预钩子 | called after, or before, a node computes its gradients |
# | AccumulateGrad | 梯度累加节点 | the node that adds to a leaf's `.grad`; a leaf doesn't keep it alive |
# | gradient edge ↓ | 梯度边 | a place in the graph, without the tensor |
# | multi-grad hook | 多梯度钩子 | called when the gradients of several tensors are there |
# | saved tensors, pack and unpack | 保存的张量，打包与解包 | what the backward pass needs from the forward pass, and the two functions that it passes through |
# | checkpointing | 激活检查点 | keep only a part's input, and compute its inside again in the backward pass |
# | post-accumulate hook | 梯度累加后钩子 | called with the parameter when its `.grad` is complete |
#
# (↓ is shown below, in "If you want more".) PyTorch's
# own page on this topic is [Autograd mechanics](https://docs.pytorch.org/docs/stable/notes/autograd.html).

# %% [markdown] tags=["quiz"]
# ### Three questions
#
# **1.** A hook on a node returns `grad_inputs[0] * 2`. What happens?
#
# <details><summary>Answer</summary>
#
# A TypeError. A hook on a node returns a tuple with one gradient for every entry, or None.
# </details>
#
# **2.** You register a hook on `get_gradient_edge(w).node` before training starts. It never runs. Why?
#
# <details><summary>Answer</summary>
#
# Nothing holds a reference to that node, so it's freed at once, and the first forward pass creates a new one without
# your hook. Hook `w` instead, or keep the node in a variable.
# </details>
#
# **3.** One checkpoint around the whole network doesn't lower the peak. Why do several help?
#
# <details><summary>Answer</summary>
#
# The backward pass rebuilds one part at a time, and frees its values before it rebuilds the next.
# </details>

# %%
progress(10)

# %% [markdown]
# ## If you want more
#
# ### An old friend
#
# Lesson 5 asked why the legacy `register_backward_hook` shows three gradients. Now you can see the reason: it's a
# hook on the node that made the output, and nothing else.

# %% tags=["hook-node"]
import warnings

linear, x = nn.Linear(2, 1), torch.ones(1, 2, requires_grad=True)
seen = {}
with (
    warnings.catch_warnings(),
    linear.register_backward_hook(lambda module, *grads: seen.update(module=grads)),
):
    warnings.simplefilter("ignore")
    y = linear(x)
y.grad_fn.register_hook(lambda *grads: seen.update(node=grads))
y.sum().backward()

shapes = [[tuple(grad.shape) for grad in grads] for grads in seen["node"]]
print("node", y.grad_fn.name(), "made", shapes[0], "from", shapes[1])
assert all(
    torch.equal(*pair)
    for place in (0, 1)
    for pair in zip(seen["module"][place], seen["node"][place], strict=True)
)

# %% [markdown]
# ### "A multi-grad hook raises an error in `torch.autograd.grad`"
#
# So far we called `backward()`. In `torch.autograd.grad` it depends on the tensors:


# %% tags=["field", "field-20", "hook-multi-grad"]
def in_autograd_grad(watched, product, **mode):
    """Return what the hook was called with, or the error."""
    calls = []
    with register_multi_grad_hook(watched, calls.append, **mode):
        error = error_of(lambda: torch.autograd.grad(product, (a, b)))
    return error if calls == [] else calls


a, b = torch.tensor(1.0, requires_grad=True), torch.tensor(2.0, requires_grad=True)
inner = [a * 1, b * 1]
leaf_all = in_autograd_grad((a, b), a * b)
leaf_any = in_autograd_grad((a, b), a * b, mode="any")
inner_all = in_autograd_grad(inner, inner[0] * inner[1])
print("leaf tensors:            ", leaf_all.split(". ")[0])
print('leaf tensors, mode="any":', leaf_any)
print("non-leaf tensors:        ", [numbers(grads) for grads in inner_all])
assert leaf_all.startswith(
    "RuntimeError: A leaf node was passed to _will_engine_execute_node"
)
assert len(leaf_any) == 1 and leaf_any[0] in (1.0, 2.0)
assert numbers(inner_all[0]) == (2.0, 1.0)

# %% [markdown]
# With leaf tensors the default, `mode="all"`, only works in `backward()`. With non-leaf tensors it works in both. ([A
# report](https://github.com/pytorch/pytorch/issues/131753))
#
# ### Five ways in which pack and unpack go wrong


# %% tags=["field", "field-55", "hook-saved-tensors"]
def exp_with(pack, unpack=lambda packed: packed, then=lambda y: None):
    """Return the gradient of exp at 0, where 1 is right."""
    x = torch.zeros(2, 3, requires_grad=True)
    with saved_tensors_hooks(pack, unpack):
        y = x.exp()
    then(y)
    y.sum().backward()
    (gradient,) = x.grad.unique().tolist()  # the same in all places
    return gradient


edits = error_of(lambda: exp_with(lambda tensor: tensor.add_(1)))
no_tensor = error_of(lambda: exp_with(lambda tensor: tensor.tolist()))
own_error = error_of(lambda: exp_with(lambda tensor: 7, unpack=lambda key: {}[key]))
print("pack edits:           ", edits.split(". ")[0])
print("unpack returns a list:", no_tensor)
print("unpack raises:        ", own_error)
assert "A saved tensor pack hook is modifying its input in place." in edits
assert "expected to be a Tensor but got result of type list" in no_tensor
assert own_error == "KeyError: 7"  # the hook's own error, unchanged

two = torch.tensor(2.0, dtype=torch.float64)
another = exp_with(lambda tensor: None, unpack=lambda nothing: two)
print("unpack returns a tensor of another shape and dtype: the gradient is", another)
assert another == 2.0

y = torch.tensor(0.0, requires_grad=True).exp()
y.mul_(7)
guarded = error_of(y.backward)
unguarded = exp_with(lambda tensor: tensor.detach(), then=lambda y: y.mul_(7))
print("saved value overwritten, without hooks:", guarded.split(".")[0][:70], "…")
print("saved value overwritten, with hooks: the gradient is", unguarded)
assert "has been modified by an inplace operation" in guarded
assert unguarded == 49.0  # 7 · exp(0) would be right

# %% [markdown]
# The last two are silent. PyTorch checks that `unpack` returns a tensor, but not its numbers, shape or dtype: a
# single number that broadcasts gives a wrong gradient without an error. And with hooks, autograd no longer checks
# whether a saved value was overwritten. If other code may write into it, keep a clone. ([A
# thread](https://github.com/pytorch/pytorch/pull/62717))

# %% [markdown] tags=["exercise"]
# ### Exercise 10.4 · The norm of all gradients
# ●○○ · 6 minutes
#
# Write `watch_norm(parameters, norms)`. Register one hook that, in each backward pass, appends one number to `norms`:
# the norm of **all gradients of this pass together**, the square root of the sum of all squares. Parameters that the
# pass doesn't reach count as 0. Return the handle.
#
# <details><summary>Hint: 'NoneType' object has no attribute …</summary>
#
# If a parameter isn't reached, its entry in the list is None.
# </details>
# <details><summary>Hint: the second number is too large</summary>
#
# `.grad` adds up over all backward passes. The hook receives the gradients of this pass only.
# </details>


# %% tags=["solution"]
def watch_norm(parameters: list[torch.Tensor], norms: list[float]):
    """Append the norm of all gradients of each backward pass to norms; return the handle."""

    ### BEGIN SOLUTION
    def hook(grads):
        squares = [grad.square().sum() for grad in grads if grad is not None]
        norms.append(sum(squares).sqrt().item())

    return register_multi_grad_hook(parameters, hook)
    ### END SOLUTION


# %% tags=["check"]
check("10.4", watch_norm)

# %% [markdown]
# ### Where `autograd.grad` stops
#
# If you only ask for a gradient, with `torch.autograd.grad(z, y)`, the backward pass ends at `y`, and the node that
# made `y` doesn't run:

# %% tags=["field", "field-09"]
ran = []
x = torch.tensor(2.0, requires_grad=True)
y = 3 * x
y.register_hook(lambda grad: ran.append("tensor hook"))
y.grad_fn.register_prehook(lambda grads: ran.append("node pre-hook"))
y.grad_fn.register_hook(lambda *grads: ran.append("node hook"))
torch.autograd.grad(5 * y, y)
print("autograd.grad(…, y) ran:", ran)
assert ran == ["tensor hook"]

# %% [markdown]
# ### A place in the graph, without the tensor
#
# A `GradientEdge` names a place in the graph and keeps no values. A function can return one, and the caller can ask
# for the gradient there, although the tensor is gone. `inputs=` accepts it as well; then no other leaf gets a
# gradient:


# %%
def score(x):
    hidden = 3 * x
    return hidden * hidden, get_gradient_edge(hidden)


x = torch.tensor(2.0, requires_grad=True)
result, place = score(x)
(at_hidden,) = torch.autograd.grad(result, place)
print("gradient at `hidden`:", at_hidden.item())
assert at_hidden == 12.0  # 2 · hidden

a, b = torch.tensor(1.0, requires_grad=True), torch.tensor(2.0, requires_grad=True)
(a * b).backward(inputs=[get_gradient_edge(a)])
print("inputs=[a's edge]: a.grad", a.grad.item(), " b.grad", b.grad)
assert (a.grad, b.grad) == (2.0, None)

# %% [markdown]
# ### Fewer bits
#
# Between keeping everything and keeping nothing: keep each saved value in few bits. The gradients are then slightly
# wrong. How wrong? `figures.fewer_bits` compares one gradient of a network that reads digits; it trains nothing.

# %% tags=["figure", "nbval-ignore-output"]
from itertools import pairwise

costs = figures.fewer_bits()
figure = figures.bits(costs)
plt.show()
for cost in costs:
    print(
        f"{cost.bits:>2} bits: {cost.share:>4.0%} of the memory,",
        f"gradient off by {cost.error:.1%}",
    )

assert all(later.share < earlier.share for earlier, later in pairwise(costs))
assert all(later.error > earlier.error for earlier, later in pairwise(costs))
assert costs[1].bits == 8 and costs[1].error < 0.05
assert abs(2 * costs[0].share - 1 - 0.215) < 0.01  # the part that isn't compressed
assert costs[-1].bits == 2 and costs[-1].error > 0.3

# %% [markdown]
# *What to see:* half the bits need more than half the memory. About a fifth of the bytes are integers (where each
# maximum of the pooling was), and these are kept exactly. Down to 8 bits the gradient hardly changes.

# %% [markdown] tags=["exercise"]
# ### Exercise 10.5 · Eight bits
# ●●○ · 12 minutes
#
# Write `eight_bits()`. It returns a context manager in which autograd saves **floating-point** tensors with one byte
# per number: 0 is the tensor's smallest value, 255 its largest. Keep whatever you need to turn the bytes back into
# numbers of the original dtype.
#
# Other tensors, such as class labels and masks, come back exactly, and so does a tensor whose numbers are all equal.
#
# <details><summary>Hint: cross_entropy complains, or embeddings are wrong</summary>
#
# Integer tensors are saved too: look at `tensor.is_floating_point()`.
# </details>
# <details><summary>Hint: the numbers come back wrong by more than half a step</summary>
#
# Measure from the smallest value, in 255 steps. A conversion to integers cuts off the fraction, so call `round()`
# before it.
# </details>


# %% tags=["solution"]
def eight_bits():
    """A context manager: saved float tensors are kept as bytes."""

    ### BEGIN SOLUTION
    def pack(tensor):
        values = tensor.detach()
        if not values.is_floating_point() or values.numel() == 0:
            return (values,)
        low = values.min()
        step = ((values.max() - low) / 255).clamp(
            min=1e-30
        )  # equal numbers: never 0 / 0
        return ((values - low) / step).round().to(torch.uint8), low, step, values.dtype

    def unpack(packed):
        if len(packed) == 1:
            return packed[0]
        levels, low, step, dtype = packed
        return (levels * step + low).to(dtype)

    return saved_tensors_hooks(pack, unpack)
    ### END SOLUTION


# %% tags=["check"]
check("10.5", eight_bits)

# %% [markdown]
# ### Two more surprises of pack
#
# Some operations save their own result, as `exp` does. If your `pack` returns that very tensor, without `detach`, the
# tensor and its graph keep each other alive: if the graph is never used in a backward pass, they stay in memory for
# good.
#
# And if your `pack` should leave parameters alone: a linear layer saves a transposed **view** of its weight, so
# `tensor is layer.weight` is never true. Compare `data_ptr()`.


# %% tags=["field", "field-166", "hook-saved-tensors"]
def stays_in_memory(pack):
    with saved_tensors_hooks(pack, lambda packed: packed):
        y = torch.ones(1000, requires_grad=True).exp()
    memory_of_y = weakref.ref(y.untyped_storage())
    del y
    return memory_of_y() is not None


print(
    "stays in memory: returned unchanged", stays_in_memory(lambda tensor: tensor),
    "· detached", stays_in_memory(torch.Tensor.detach)
)
assert stays_in_memory(lambda tensor: tensor) and not stays_in_memory(
    torch.Tensor.detach
)

layer, found = nn.Linear(2, 3), []
with saved_tensors_hooks(
    lambda tensor: found.append(tensor) or tensor.detach(), lambda packed: packed
):
    layer(torch.ones(1, 2, requires_grad=True))
by_is = any(tensor is layer.weight for tensor in found)
by_storage = layer.weight.data_ptr() in [tensor.data_ptr() for tensor in found]
print(
    "the weight among the saved values: by `is`", by_is, "· by data_ptr()", by_storage
)
assert not by_is and by_storage

# %% [markdown]
# ### Disk, CPU, and two switches
#
# `pack` may store a value anywhere. `save_on_cpu()` is such a pair of hooks, made for machines with a GPU. Only one
# pair is active at a time, the innermost. `disable_saved_tensors_hooks` forbids any.
# `allow_mutation_on_saved_tensors` keeps a copy of each value that is overwritten, so the gradient is right and
# nothing raises.

# %% tags=["hook-saved-tensors"]
import tempfile
from pathlib import Path

from torch.autograd.graph import (
    allow_mutation_on_saved_tensors,
    disable_saved_tensors_hooks,
    save_on_cpu,
)

with tempfile.TemporaryDirectory() as folder:

    def to_disk(tensor):
        path = Path(folder) / f"{len(list(Path(folder).iterdir()))}.pt"
        torch.save(tensor.detach(), path)
        return path

    w = torch.tensor([2.0, 3.0], requires_grad=True)
    with saved_tensors_hooks(to_disk, torch.load):
        loss = (w * w).sum()
    print("files between forward and backward:", len(list(Path(folder).iterdir())))
    loss.backward()
assert w.grad.tolist() == [4.0, 6.0]

outer = []
with (
    saved_tensors_hooks(lambda tensor: outer.append(tensor), lambda nothing: nothing),
    save_on_cpu(),
):
    (w * w).sum().backward()
assert outer == []  # the innermost pair alone
with disable_saved_tensors_hooks("no hooks in here"):
    assert (
        error_of(saved_tensors_hooks(to_disk, torch.load).__enter__)
        == "RuntimeError: no hooks in here"
    )
with allow_mutation_on_saved_tensors():
    w.grad, copy = None, w.clone()
    loss = (copy * copy).sum()
    copy.mul_(7)
    loss.backward()
assert w.grad.tolist() == [4.0, 6.0]

# %% [markdown]
# ### "My saved-tensor hooks do nothing in the worker thread"
#
# They belong to the thread that opened the block. And in which thread does a backward hook run? On the CPU, in the
# thread that called `backward()`. For a GPU, in a thread of autograd, where values in a `threading.local` are
# missing. ([The change that made them thread-local](https://github.com/pytorch/pytorch/pull/62909))

# %% tags=["field", "field-56", "hook-saved-tensors"]
packed_in, hooked_in = [], []


def me():
    return threading.current_thread().name.split("-")[0]


def some_work():
    w = torch.tensor(1.0, requires_grad=True)
    y = w.exp()
    y.register_hook(lambda grad: hooked_in.append(me()))
    y.backward()


with saved_tensors_hooks(
    lambda tensor: packed_in.append(me()) or tensor.detach(), lambda packed: packed
):
    worker = threading.Thread(target=some_work, name="worker")
    worker.start()
    worker.join()
    some_work()

print("packed in:", packed_in, "  tensor hooks ran in:", hooked_in)
assert packed_in == ["MainThread"] and hooked_in == ["worker", "MainThread"]

# %% [markdown]
# ### What your checkpoint lacks
#
# The second run must compute the same values. With dropout it draws different random numbers, so the gradients don't
# fit the output. PyTorch's checkpoint restores the random state before the second run, and stops as soon as it has
# the last value. (While 10.2 is open, PyTorch's checkpoint is used here; then both lines say True.)


# %%
def same_mask(checkpointing):
    x = torch.ones(1000, requires_grad=True)
    y = checkpointing(lambda x: nn.functional.dropout(x * x) * 1.0, x)
    y.sum().backward()
    return torch.equal(y != 0, x.grad != 0)


def with_the_same_numbers(function, x):
    state = torch.get_rng_state()

    def replayed(x):
        with torch.random.fork_rng():
            torch.set_rng_state(state)
            return function(x)

    return mine(replayed, x)


whose = "yours" if mine is checkpoint else "torch's, instead of yours"
print(f"the same numbers dropped in both runs? {whose}:", same_mask(mine))
print("with the state put back:", same_mask(with_the_same_numbers))
assert same_mask(with_the_same_numbers)

# %% [markdown]
# ### "A different number of tensors was saved during the original forward and recomputation"
#
# Random numbers aren't the only reason why a second run can differ. A counter, a cache, or a switched mode can be
# one, too. PyTorch's checkpoint compares number, shapes and dtypes of the saved values, and raises an error. What
# does yours do?

# %% tags=["field", "field-167"]
import functools

import torch.utils.checkpoint

torchs = functools.partial(torch.utils.checkpoint.checkpoint, use_reentrant=False)


def with_a_counter(checkpointing, change):
    """Return the gradient if the function changes in its second run, or the error."""
    runs, x = [], torch.ones(3, requires_grad=True)

    def function(x):
        runs.append(1)
        return change(x, len(runs))

    error = error_of(lambda: checkpointing(function, x).sum().backward())
    return x.grad.tolist() if error == "no error" else error


def fewer(x, run):
    return x * x if run == 1 else x + x


def longer(x, run):
    return x[:run] * x[:run]


for change in (fewer, longer):
    print(
        f"{change.__name__} · {whose}:", with_a_counter(mine, change),
        "\n       torch's:", with_a_counter(torchs, change)
    )
assert "A different number of tensors was saved" in with_a_counter(torchs, fewer)
assert (
    "Recomputed values for the following tensors have different metadata"
    in with_a_counter(torchs, longer)
)

# %% [markdown]
# A checkpoint like the solution of 10.2 raises a KeyError for `fewer`, because a number is missing. For `longer` it
# says nothing, and returns the gradient (4, 0, 0), where (2, 0, 0) is right.

# %% [markdown]
# ### Gradients of gradients
#
# With `create_graph=True`, what a hook computes is part of the new graph, so its derivative is right. But the second
# backward pass goes through the same tensor, and the hook runs **again**. If you mean it for the first pass only,
# remove it in between. And if a hook **stores** the gradient, it keeps the whole graph of that backward pass. Store
# `grad.detach()`, unless you want to differentiate it.

# %% tags=["field", "field-111"]
w = torch.tensor(2.0, requires_grad=True)
stored = []
y = w * 1
handle = y.register_hook(lambda grad: stored.append(grad) or grad * grad)
(once,) = torch.autograd.grad(y**3, w, create_graph=True)  # hooked: (3 w²)² = 9 w⁴
(hooked_again,) = torch.autograd.grad(once, w, retain_graph=True)
handle.remove()
(twice,) = torch.autograd.grad(once, w)
print(
    "9 w⁴ =", once.item(), "  36 w³ =", twice.item(), "  stored with a graph:",
    stored[0].requires_grad
)
assert (once.item(), twice.item(), hooked_again.item()) == (144.0, 288.0, 288.0**2)
assert stored[0].requires_grad


def graphs_alive(keep):
    """Count the live graphs after four steps in which a hook stored something."""
    kept, notes = [], []
    for _ in range(4):
        w = torch.tensor([2.0], requires_grad=True)
        y = w**3
        note = type("Note", (), {})()
        # a node's dictionary for notes of your own; it goes with its node
        y.grad_fn.metadata["note"] = note
        notes.append(weakref.ref(note))
        y.register_hook(lambda grad: kept.append(keep(grad)))
        z = y**2
        torch.autograd.grad(z, w, create_graph=True)
        del w, y, z, note
    return sum(note() is not None for note in notes)


print(
    "graphs alive after 4 steps: stored unchanged", graphs_alive(lambda grad: grad),
    "· detached", graphs_alive(torch.Tensor.detach)
)
assert (graphs_alive(lambda grad: grad), graphs_alive(torch.Tensor.detach)) == (4, 0)

# %% [markdown]
# ### "Memory grows with a full backward hook and create_graph=True"
#
# A module's full backward hook stores `grad_output`, here with its graph, and waits for the gradient of the input. If
# the input requires grad and you only ask for the gradients of the **parameters**, that gradient never arrives, so
# the graph is never freed. Ask for the input's gradient as well, or use a tensor hook. ([A
# report](https://github.com/pytorch/pytorch/issues/82528))

# %% tags=["field", "field-50"]
import gc


def graph_stays(hooked, ask_for_x):
    layer, x = nn.Linear(2, 2), torch.ones(1, 2, requires_grad=True)
    if hooked:
        layer.register_full_backward_hook(lambda module, grad_input, grad_output: None)
    y = layer(x)
    note = type("Note", (), {})()
    y.grad_fn.metadata["note"], still_there = note, weakref.ref(note)
    asked = [*layer.parameters(), x] if ask_for_x else [*layer.parameters()]
    torch.autograd.grad(y.square().sum(), asked, create_graph=True)
    del note, y, layer, x, asked
    gc.collect()
    return still_there() is not None


print(
    "stays: hooked", graph_stays(True, False), "· x asked for", graph_stays(True, True),
    "· no hook", graph_stays(False, False)
)
assert (
    graph_stays(True, False)
    and not graph_stays(True, True)
    and not graph_stays(False, False)
)

# %% [markdown]
# ### "My post-accumulate hook runs several times per step"
#
# It runs once in each backward pass that reaches its leaf, not once per step. So with gradient accumulation, a moving
# average (EMA) of the weights in such a hook is updated four times instead of once, three times before the weights have
# moved. Count there, or use `optimizer.register_step_post_hook`. And one call of `backward()` can be **several passes**:
# the reentrant way of checkpointing starts a pass of its own inside. A tied embedding, used inside the checkpoint and
# outside, then gets its gradient in two parts, and its hooks run twice. Today's way (`use_reentrant=False`) adds them up
# first.


# %% tags=["field", "field-post-accumulate-twice", "hook-post-accumulate"]
def calls_of_the_hooks(passes=1, **checkpointing):
    """Return how often three kinds of hooks of a tied weight run."""
    from torch.utils.checkpoint import checkpoint as torchs

    embedding = nn.Embedding(4, 3)
    calls = dict.fromkeys(("tensor", "post-accumulate", "step"), 0)
    sgd = torch.optim.SGD(embedding.parameters(), lr=0.1)

    def count(kind):
        return lambda *args: calls.update({kind: calls[kind] + 1})

    embedding.weight.register_hook(count("tensor"))
    embedding.weight.register_post_accumulate_grad_hook(count("post-accumulate"))
    sgd.register_step_post_hook(count("step"))

    def scores(hidden):
        return hidden.tanh() @ embedding.weight.T  # the same weight again

    for _ in range(passes):
        h = embedding(torch.arange(3))
        out = torchs(scores, h, **checkpointing) if checkpointing else scores(h)
        out.logsumexp(dim=-1).sum().backward()
    sgd.step()
    return calls


four, reentrant = calls_of_the_hooks(passes=4), calls_of_the_hooks(use_reentrant=True)
print("four passes, one step: ", four)
print("reentrant, one backward:", reentrant)
assert four == {"tensor": 4, "post-accumulate": 4, "step": 1}
assert reentrant == {"tensor": 2, "post-accumulate": 2, "step": 1}
once = {"tensor": 1, "post-accumulate": 1, "step": 1}
assert calls_of_the_hooks() == calls_of_the_hooks(use_reentrant=False) == once

# %% [markdown]
# ### A hook, or your own function?
#
# | | a hook | `torch.autograd.Function` |
# |---|---|---|
# | who writes it | the user of the code, from outside | the author of the operation |
# | what it may do | read a gradient, change it | give any forward computation any gradient, and save what it needs |
# | how it is removed | with its handle, at any time | by changing the code |
# | good for | looking, clipping, experiments | a rule that belongs to the operation, such as straight-through rounding |
#
# Here is the rule "round in the forward pass, pass the gradient through" in both ways. `round()` has a gradient of 0,
# and after a multiplication by 0 no hook can recover the gradient. So the hook needs a trick:


# %%
class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


def gradient_of(function):
    x = torch.tensor(1.4, requires_grad=True)
    (3 * function(x)).backward()
    return x.grad.item()


def hooked_round(x):
    y = x * 1
    # knows the gradient that it should have passed on
    y.register_hook(lambda grad: grad + 3)
    return y.round()


print(
    "round:", gradient_of(torch.round), "  Function:", gradient_of(Round.apply),
    "  hook:", gradient_of(hooked_round)
)
assert (
    gradient_of(torch.round),
    gradient_of(Round.apply),
    gradient_of(hooked_round),
) == (0.0, 3.0, 3.0)

# %% [markdown]
# The hook only looks right: the right answer is written into it.
#
# ### The hook on everything
#
# Below autograd, every operation of both passes goes through one place, and a `TorchDispatchMode` sees them all. It
# shows what no module and no node shows, such as the additions to `.grad` (`add_`). This lesson's memory curves were
# measured with one.


# %% tags=["hook-dispatch-mode"]
class Log(TorchDispatchMode):
    """Writes down every operation in the block."""

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.operations.append(function.__name__.split(".")[0])
        return function(*args, **(kwargs or {}))


linear = nn.Linear(2, 1)
linear(torch.ones(3, 2)).sum().backward()  # the first gradients are there
with Log() as log:
    loss = linear(torch.ones(3, 2)).sum()
    forward = len(log.operations)
    loss.backward()

print("forward: ", *log.operations[:forward])
print("backward:", *log.operations[forward:])
assert "addmm" in log.operations[:forward] and "mm" in log.operations[forward:]
assert log.operations.count("add_") == 2  # into weight.grad and bias.grad

# %% [markdown]
# ### Hooks of the whole process
#
# Most kinds of module hooks have a global version in `torch.nn.modules.module`. It applies to every module of the
# process, until its handle is removed. Three more run when a module, a parameter or a buffer is assigned to a module,
# and what they return replaces it.

# %% tags=["hook-global-forward-pre", "hook-global-forward", "hook-global-full-backward-pre", "hook-global-full-backward", "hook-module-registration", "hook-parameter-registration", "hook-buffer-registration"]
from contextlib import ExitStack

from torch.nn.modules import module as every_module

REGISTER = {
    "forward pre": every_module.register_module_forward_pre_hook,
    "forward": every_module.register_module_forward_hook,
    "backward pre": every_module.register_module_full_backward_pre_hook,
    "backward": every_module.register_module_full_backward_hook,
    "new parameter": every_module.register_module_parameter_registration_hook,
    "new buffer": every_module.register_module_buffer_registration_hook,
    "new module": every_module.register_module_module_registration_hook,
}
called = []
with ExitStack() as stack:  # all of them end with this block
    for name, register in REGISTER.items():
        stack.enter_context(register(lambda *args, name=name: called.append(name)))
    model = nn.Sequential(nn.BatchNorm1d(1))
    made, called = called, []
    model(torch.ones(2, 1, requires_grad=True)).sum().backward()

print("made:  ", ", ".join(dict.fromkeys(made)))
print("called:", ", ".join(called))
assert (
    made.count("new parameter"),
    made.count("new buffer"),
    made.count("new module"),
) == (2, 3, 1)
assert (
    called
    == ["forward pre"] * 2 + ["forward"] * 2 + ["backward pre"] * 2 + ["backward"] * 2
)

# %% [markdown]
# The eighth is the legacy one. It can't be combined with the full ones: once a full one was registered, PyTorch
# refuses the legacy one in this process, even after all handles are removed. So here it runs in its own process.

# %% tags=["hook-global-legacy-backward"]
from hooklab.course.lesson10.helpers import ends_well

refused = error_of(lambda: every_module.register_module_backward_hook(print))
print(refused[:76], "…")
assert refused.startswith(
    "RuntimeError: Cannot use both regular backward hooks and full backward hooks"
)

program = """
import torch
from torch.nn.modules.module import register_module_backward_hook
called = []
register_module_backward_hook(lambda module, ins, outs: called.append(len(ins)))
# a variable keeps the layer alive: the backward pass needs the module
layer = torch.nn.Linear(2, 1)
layer(torch.ones(1, 2, requires_grad=True)).sum().backward()
assert called == [3]
"""
assert ends_well(program)
print("in its own process, it gets three gradients, like the legacy hook of one module")

# %% [markdown]
# ### A crash
#
# Python itself crashes, without a traceback, if you call `register_hook` on a view after its base was changed through
# another view. It's a bug in PyTorch, not in your code: reported for 2.9, 2.13 and 2.14, and fixed in 2.15. If you
# read `grad_fn` once before you register the hook, the view is updated, and nothing crashes. (Here it runs in its own
# process.) ([The report](https://github.com/pytorch/pytorch/issues/196459))

# %% tags=["field", "field-13"]
program = """
import torch
x = torch.zeros(3, requires_grad=True).clone().view(3)
x[:].add_(2)
x.register_hook(lambda grad: grad)
"""
with_a_look = program.replace("x.register_hook", "x.grad_fn; x.register_hook")
exec(with_a_look)  # in this notebook: it does not crash
as_reported = ends_well(program) == (torch.__version__ >= (2, 15))
print("the process ended as is reported for this torch:", as_reported)
assert as_reported
