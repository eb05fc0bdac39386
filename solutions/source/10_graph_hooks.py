# %% [markdown]
# # 10 · What can I hook when there is no module?
#
# **Time** 53 minutes, and 66 for the hardest exercise and what comes after the recap &nbsp;·&nbsp; **You need** lessons 2 and 5 (tensor hooks, `grad_input`)
#
# After this lesson you can
#
# - put a hook on any operation, and find the one that makes the first NaN;
# - say which of the hooks at one place runs first, and what keeps a hook on a weight's node alive;
# - wait for several gradients at once, and use each gradient the moment it is ready;
# - decide what the graph keeps between forward and backward, and build checkpointing from two functions.

# %% tags=["setup"]
import threading
import weakref

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge, register_multi_grad_hook, saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from hooklab import check, predict, progress, reveal
from hooklab.course.errors import error_of
from hooklab.course.lesson10 import explorer, figures, memory
from hooklab.course.lesson10.helpers import numbers

torch.set_num_threads(1)

# %% [markdown]
# ## A NaN without a module
#
# A loss made of functions alone: the square root where `x` is positive, else 0. The loss is fine; one gradient is not.

# %% tags=["field", "field-170"]
def cautious_root(x):
    return torch.where(x > 0, x.sqrt(), 0.0)


x = torch.tensor([0.0, 4.0], requires_grad=True)
loss = cautious_root(x).sum()
loss.backward()
print("loss:", loss.item(), "  gradient:", x.grad.tolist())
assert loss.item() == 2.0
assert x.grad[0].isnan() and x.grad[1] == 0.25

# %% [markdown]
# Which step made it? There is no layer to hook. But autograd has written down every step: `loss.grad_fn` is the last one's
# **node**. Its `next_functions` has a pair for each gradient that it makes: the node that gets it, and to which of that node's
# places. So you can walk through the whole graph:

# %%
def every_node(loss):
    """All nodes behind a loss, each once."""
    found, waiting = [], [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:  # None: nobody needs this gradient
            found.append(node)
            waiting += [following for following, _ in node.next_functions]
    return found

# %%
def short(node):
    """A node's name without the room it is in: torch::autograd::AccumulateGrad → AccumulateGrad."""
    return "nobody" if node is None else node.name().split("::")[-1]


for node in every_node(cautious_root(x).sum()):
    print(f"{short(node):<14} →", ", ".join(short(following) for following, _ in node.next_functions) or "x.grad")

assert [short(following) for following, _ in cautious_root(x).grad_fn.next_functions] == ["SqrtBackward0", "nobody"]
assert [type(node).__name__ for node in every_node(x.sqrt())] == ["SqrtBackward0", "AccumulateGrad"]

# %% [markdown]
# `AccumulateGrad` is the end of the line: the node that adds to a leaf's `.grad`.
#
# ### Two hooks on a node
#
# A node takes the gradients of its **outputs** and makes those of its **inputs**. A pre-hook stands before that work, a hook
# after it.

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
# Both may return others. What a node's hook returns is **always a tuple**, with one gradient for each place, as with a module's
# full backward hook (lesson 5). One tensor alone, which a tensor hook or a forward hook may return, is refused.

# %% tags=["field", "field-172", "hook-node", "hook-node-prehook"]
def gradients_with(pre=None, post=None):
    a.grad = b.grad = None
    handles = [node.register_prehook(pre)] if pre else [node.register_hook(post)]
    try:
        product.backward(retain_graph=True)
    finally:
        handles[0].remove()
    return [a.grad.item(), b.grad.item()]


print("pre-hook, times 10:  ", gradients_with(pre=lambda grad_outputs: (10 * grad_outputs[0],)))
print("hook, only the first:", gradients_with(post=lambda grad_inputs, _: (10 * grad_inputs[0], grad_inputs[1])))
assert gradients_with(pre=lambda grad_outputs: (10 * grad_outputs[0],)) == [30.0, 20.0]
assert gradients_with(post=lambda grad_inputs, _: (10 * grad_inputs[0], grad_inputs[1])) == [30.0, 2.0]

# error_of calls a function and returns the error's type and words
one_tensor = error_of(lambda: gradients_with(pre=lambda grad_outputs: 10 * grad_outputs[0]))
too_few = error_of(lambda: gradients_with(post=lambda grad_inputs, _: (grad_inputs[0],)))
print(one_tensor, too_few, sep="\n")
assert one_tensor == "TypeError: expected tuple, but hook returned 'Tensor'"
assert "incorrect number of values (got 1, but expected 2)" in too_few

# %% [markdown] tags=["exercise"]
# ### Exercise 10.1 · Who made the first NaN?
# ●●○ · 8 minutes
#
# Run `loss.backward()` with a hook on every node, and return the `name()` of the **first** node to run that puts out a NaN;
# `None` if none does. An infinity is no NaN. Take your hooks off again, also when the backward raises. `every_node` from above
# may help.
#
# <details><summary>Hint: 'NoneType' object has no attribute 'isnan'</summary>
#
# A gradient that nobody needs is None in `grad_inputs`.
# </details>
# <details><summary>Hint: all my hooks report the same name</summary>
#
# The loop's variable has moved on before the hooks run. Make each hook in a function of its own that gets `node`.
# </details>

# %% tags=["solution"]
def first_nan(loss: torch.Tensor) -> str | None:
    """Run loss.backward(); return the name of the first node that puts out a NaN, or None."""
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
# On the loss from the beginning it says `SqrtBackward0`. A hook there shows why:

# %% tags=["hook-node"]
root = x.sqrt()
made = []
with root.grad_fn.register_hook(lambda ins, outs: made.extend([*outs, *ins])):
    torch.where(x > 0, root, 0.0).sum().backward()
print("SqrtBackward0 gets", made[0].tolist(), "and makes", made[1].tolist())
assert made[0].tolist() == [0.0, 1.0]
assert made[1][0].isnan() and made[1][1] == 0.25

# %% [markdown]
# At 0 the slope of the root is infinite, and `where` sends it a gradient of 0: the node computes 0 · ∞. The NaN is made in the
# branch that was *not* taken. So the cure stands before the root: give it a number that it can bear.

# %%
x.grad = None
torch.where(x > 0, torch.where(x > 0, x, 1.0).sqrt(), 0.0).sum().backward()
print("gradient:", x.grad.tolist())
assert x.grad.tolist() == [0.0, 0.25]

# %% [markdown]
# ## Four at one place
#
# `y = 3 * x`. On the way back, `y` has a tensor hook and `retain_grad()`, and its node has a pre-hook and a hook. All of them
# are waiting for one gradient. (`figures.order_at_two_nodes` does the same with hooks on the leaf as well; each hook writes down
# what it finds in `.grad`.)

# %%
predict("10.a")

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
reveal("10.a", order)
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
# Look at the leaf's side of the picture, too: a **post-accumulate** hook sits *inside* the leaf's node, after the sum.

# %% [markdown]
# ## The node of a leaf
#
# The weight `w` is a leaf, so it has no `grad_fn`. It still has a node in the graph: `AccumulateGrad`, which adds each new
# gradient to `w.grad`. You get it with `get_gradient_edge(w).node`. Put a hook on that node, and one on `w` itself.

# %%
predict("10.b")

# %% tags=["predict"]
w = torch.tensor(2.0, requires_grad=True)
seen = []
get_gradient_edge(w).node.register_hook(lambda *grads: seen.append("node hook"))
w.register_hook(lambda grad: seen.append("tensor hook"))
for _ in range(2):
    (3 * w).backward()
print("What came out:")
print(
    "node hook:",
    seen.count("node hook"),
    "times, tensor hook:",
    seen.count("tensor hook"),
    "times",
)

# %%
reveal("10.b", seen.count("node hook"))
assert seen == ["tensor hook", "tensor hook"], (
    "In the page's two passes, only the tensor hook runs, twice."
)

# %% [markdown]
# How long does a node live? Keep it in a variable, use it in two graphs, and then delete all three:

# %% tags=["field", "field-160", "hook-node", "folded"]
kept = get_gradient_edge(w).node  # a variable keeps the node alive
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
print("What came out:")
print("kept by a variable: 2 times; after `del`:", seen.count("node hook"), "times")
assert seen == ["tensor hook"]

# %% [markdown]
# So hook the leaf, not its node. If you do need the node, keep a reference to it for as long as the hook should live.
# (`DistributedDataParallel` keeps a list of these nodes for this reason.)

# %% [markdown]
# ## Several gradients at once
#
# "When the gradients of `a`, `b` and `c` are all there, do this." `register_multi_grad_hook` gets a list of tensors, and the
# hook gets a list of gradients. (With `mode="any"` it does not wait: it gets the gradient that comes first, that one alone.)

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
# Once in each backward in which at least one of them takes part, with None for the others; never in one that reaches none. What
# it returns is ignored.
#
# All this was `backward()`. Does it work in `torch.autograd.grad`, too?

# %% tags=["field", "field-20", "hook-multi-grad"]
def in_autograd_grad(watched, product, **mode):
    """What the hook was called with, or the error that came."""
    calls = []
    with register_multi_grad_hook(watched, calls.append, **mode):
        error = error_of(lambda: torch.autograd.grad(product, (a, b)))
    return error if calls == [] else calls


inner = [a * 1, b * 1]
leaf_all = in_autograd_grad((a, b), a * b)
leaf_any = in_autograd_grad((a, b), a * b, mode="any")
inner_all = in_autograd_grad(inner, inner[0] * inner[1])
print("leaf tensors:                ", leaf_all.split(". ")[0])
print('leaf tensors, mode="any":    ', leaf_any)
print("non-leaf tensors:            ", [numbers(grads) for grads in inner_all])
assert leaf_all.startswith("RuntimeError: A leaf node was passed to _will_engine_execute_node")
assert len(leaf_any) == 1 and leaf_any[0] in (1.0, 2.0)
assert numbers(inner_all[0]) == (2.0, 1.0)

# %% [markdown]
# With leaf tensors, `mode="all"`, the one that you get unasked, works in `backward()` only; with non-leaf tensors in both.
# ([A report](https://github.com/pytorch/pytorch/issues/131753))

# %% [markdown]
# ## What the graph keeps
#
# Backward needs values from the forward: for `x * x` both factors, for `exp` its own result, for `+` nothing. Between the two
# passes they lie in the graph, and they are what fills the memory. Each value goes through two functions, if you set them:
# **pack**, when it is saved, and **unpack**, when it is needed.

# %% tags=["hook-saved-tensors"]
def saved(function):
    """How many values autograd saves, and with how many numbers."""
    sizes = []

    def pack(tensor):
        sizes.append(tensor.numel())
        return tensor.detach()  # detached: the tensor itself could make a circle (behind the recap)

    with saved_tensors_hooks(pack, lambda packed: packed):
        function()
    return sizes


x = torch.ones(4, 3, requires_grad=True)
layer = nn.Linear(3, 2)
for name, function in {
    "x + x": lambda: x + x,
    "x.exp()": x.exp,
    "x * x": lambda: x * x,
    "layer(x)": lambda: layer(x),
    "layer(x), x asks for no gradient": lambda: layer(x.detach()),
}.items():
    print(f"{name:<34} saves {saved(function)}")

assert (saved(lambda: x + x), saved(x.exp), saved(lambda: x * x)) == ([], [12], [12, 12])
assert (saved(lambda: layer(x)), saved(lambda: layer(x.detach()))) == ([12, 6], [12])

# %% [markdown]
# `x * x` saves `x` twice, as often as it is needed. A layer saves its input for the weight's gradient, and the weight for the
# input's, but the latter only if somebody wants it.
#
# Pack may return anything: a number, a file's name. Whatever it returns comes to unpack, which should give back the same tensor.
# Five ways in which this goes wrong:

# %% tags=["field", "field-55", "hook-saved-tensors"]
def exp_with(pack, unpack=lambda packed: packed, then=lambda y: None):
    """The gradient of exp at 0, where 1 is right."""
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
print("pack edits:            ", edits.split(". ")[0])
print("unpack returns a list: ", no_tensor)
print("unpack raises:         ", own_error)
assert edits.startswith("RuntimeError: A saved tensor pack hook is modifying its input in place.")
assert no_tensor == "TypeError: Output of saved tensor unpack_hook expected to be a Tensor but got result of type list"
assert own_error == "KeyError: 7"  # the hook's own error, as it is

another = exp_with(lambda tensor: None, unpack=lambda nothing: torch.tensor(2.0, dtype=torch.float64))
print("unpack returns another tensor, of another shape and dtype: the gradient is", another)
assert another == 2.0

y = torch.tensor(0.0, requires_grad=True).exp()
y.mul_(7)
guarded = error_of(y.backward)
unguarded = exp_with(lambda tensor: tensor.detach(), then=lambda y: y.mul_(7))
print("written into a saved value: an error without hooks; with hooks the gradient is", unguarded)
assert "has been modified by an inplace operation" in guarded
assert unguarded == 49.0  # 7 · exp(0) would be right

# %% [markdown]
# The last two are silent. That unpack returns a tensor is checked; its numbers, shape and dtype are not, and a single number that
# broadcasts gives a wrong gradient without a word. And with hooks, autograd does not look any more whether a saved value was
# changed meanwhile: if somebody may write into it, keep a clone. ([A thread](https://github.com/pytorch/pytorch/pull/62717))

# %% [markdown]
# ## Keep nothing
#
# Now the bold idea: pack keeps **nothing** but a number, "this was the third value". And when the first value is needed, you run
# the function again, from its input, with a pack that keeps. That is all that *checkpointing* is.

# %% [markdown] tags=["exercise"]
# ### Exercise 10.2 · Checkpointing from two functions
# ●●● · 20 minutes
#
# Return `function(x)`, so that between forward and backward nothing from inside is kept, only `x`. In the backward, `function`
# runs **once** more, when the first value is asked for, and afterwards nothing of it is left. Gradients are those of
# `function(x)`, for `x` and for every parameter, also in a second backward pass after one with `retain_graph=True`. It can
# wait: until it works, torch's own checkpoint stands in for yours below.
#
# <details><summary>Hint: a plan</summary>
#
# `pack` counts, and returns the number. `unpack(number)` fills a dictionary by a second run if the number is not in it, and
# pops the value. The second run stands in a `with saved_tensors_hooks(…)` of its own, whose pack collects detached tensors.
# </details>
# <details><summary>Hint: the second run saves nothing, or fewer values</summary>
#
# A backward runs with recording switched off: `torch.enable_grad()`. And what is saved depends on who asks for a gradient:
# the second run needs an input with the same `requires_grad` as `x`. A detached one, so that nothing goes on behind it.
# </details>

# %% tags=["solution"]
def checkpoint(function, x: torch.Tensor) -> torch.Tensor:
    """function(x), whose inner values are computed again in the backward instead of kept."""
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
# ### What does it buy?
#
# Sixteen layers. Without a checkpoint, the forward ends with 16 outputs in memory. Wrap **the whole network** in one
# checkpoint: the forward ends with next to nothing. And the peak, the most memory that is in use at any moment of both?

# %%
predict("10.c")

# %% tags=["predict"]
print("What came out:")
# yours, or torch's while 10.2 is open; used below as well
mine = memory.or_torchs(checkpoint)
plain, whole = memory.run(1, None), memory.run(1, mine)
print(
    "layers computed:",
    plain.matmuls,
    "without,",
    whole.matmuls,
    "with one checkpoint round all",
)
print(
    "peak of memory with it, divided by that without:",
    round(whole.peak / plain.peak, 2),
)

# %%
reveal("10.c", whole.peak / plain.peak)
assert (plain.matmuls, whole.matmuls) == (16, 32), (
    "With the page's sixteen layers, one checkpoint makes 32 layers to compute."
)
assert abs(whole.peak / plain.peak - 1) < 0.05, (
    "With the page's sixteen layers, the peak is the same, to a twentieth."
)
assert memory.same_grads(plain.grads, whole.grads), "A checkpoint changes no gradient."

# %% [markdown]
# Now cut the network into **parts** with a checkpoint each: then one part at a time is computed again, and what stays is the
# input of each part. How many parts are best?

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
# *What to see:* left, memory while the operations run: without a checkpoint, with one part (grey), and with four, a row of
# hills. (The backward begins 16 operations earlier with checkpoints: each `tanh` that keeps its own
# result needs a `detach` for it, and these keep a number.) Right, the peak: it falls, and rises again.
#
# With $k$ parts you keep $k$ inputs and rebuild $16/k$ layers: least at $k = 4$, the root of 16. A network of 100 layers, by the
# same count, needs the memory of about 20, for one more forward. You have found by experiment what
# [Chen and others (2016)](https://arxiv.org/abs/1604.06174) call *sublinear memory cost*.

# %% [markdown]
# ## Each gradient, the moment it is ready
#
# The other thing that fills memory: the gradients. After `backward()` there are as many as there are weights. But once a
# weight's gradient is finished, nobody needs it but the optimizer. So let the optimizer's step be a hook, and throw the gradient
# away at once. This is the place of `register_post_accumulate_grad_hook`: its argument is **the parameter**, with `.grad`
# finished. Take care with hooks that were written for `register_hook`:

# %% tags=["field", "field-15", "hook-post-accumulate"]
w = torch.tensor([1.0, 1.0], requires_grad=True)
with w.register_post_accumulate_grad_hook(lambda grad: grad.data.mul_(0)):  # meant for the gradient
    returned = error_of((3 * w).sum().backward)
print("the weight is now", w.tolist(), "its gradient", w.grad.tolist())
print(returned)
assert w.tolist() == [0.0, 0.0] and w.grad.tolist() == [3.0, 3.0]  # it was the weight
assert returned == "RuntimeError: Tensor post accumulate grad hooks should return None."

non_leaf = error_of(lambda: (3 * w).register_post_accumulate_grad_hook(print))
assert non_leaf == "RuntimeError: post accumulate grad hooks cannot be registered on non-leaf tensors"

# %% [markdown] tags=["exercise"]
# ### Exercise 10.3 · Mend it: a step inside the backward
# ●○○ · 6 minutes
#
# This script wants each parameter to take its step of gradient descent, `p - lr * gradient`, as soon as its gradient is
# ready, and then to throw the gradient away (`.grad` is None). `parameters` may be `model.parameters()`; those that ask for no
# gradient stay as they are. It is broken in several ways; mend it, and return the handles.
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
# A tensor hook runs before the gradient is stored. Which one runs after?
# </details>
# <details><summary>Hint: one parameter moves several times, the others not at all</summary>
#
# `p` is looked up when the hook runs, after the loop. The right kind of hook is given its parameter.
# </details>

# %% tags=["solution"]
def step_in_backward(parameters, lr: float) -> list:
    """Let each parameter take its step when its gradient is ready; return the handles."""
    ### BEGIN SOLUTION
    def step(parameter):
        parameter -= lr * parameter.grad  # allowed here: a backward runs with recording switched off
        parameter.grad = None

    return [one.register_post_accumulate_grad_hook(step) for one in parameters if one.requires_grad]
    ### END SOLUTION

# %% tags=["check"]
check("10.3", step_in_backward)

# %% tags=["figure"]
curves = figures.gradient_memory()
figure = figures.two_ways_to_step(curves)
plt.show()
after, inside, one_layer = curves["after"].peak, curves["inside"].peak, 4 * (64 * 64 + 64)  # bytes of one layer's gradients
print("peak of memory (gradients and saved inputs), all at once against one at a time:", round(after / inside), ": 1")
assert round(after / inside) == 11
assert round(after / 1000) == round(16 * one_layer / 1000) + 1 and 8_000 < inside - one_layer < 8_500

# %% [markdown]
# *What to see:* up, the kB in use at each operation. With a step after the backward, sixteen layers' gradients pile up; with the
# step in the hook, one layer's comes and goes at a time. For the gradients alone that is 16 : 1; the 8 kB of saved inputs, which
# both have when the backward begins, make 11 : 1 of it.
#
# The price: a hook that steps at once breaks **accumulation** over several backward passes, since the next gradient is computed at
# weights that have moved. Let the hook count, and step in the last of them. And there is no **clipping by the global norm**, which needs all gradients before the first step: when the last gradient comes, other weights have moved.

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
    for _ in range(2):  # two halves of a batch, whose gradients should be taken at the same weight
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
register_multi_grad_hook((a, b), lambda grads: moved.append([one.item() for one in (a, b)]))
(a * b).backward()
print("a and b when both gradients are known:", moved[0], " (they were 1 and 2)")
assert moved[0] != [1.0, 2.0]

# %% [markdown] tags=["recap"]
# ## Recap
#
# Every operation leaves a node, and every node takes hooks. At one place the kind decides who runs first: tensor hooks,
# `retain_grad()`, node pre-hooks, the node's work (in a leaf's node: the sum in `.grad`, then the post-accumulate hooks), node
# hooks. Hook the leaf rather than its node, which lives as long as some graph. What the graph keeps goes through two functions
# of yours; two such functions are a checkpoint. A post-accumulate hook gets the parameter, and is the place to use a gradient up.
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | node | 图节点 | one step of the backward; `grad_fn` is the one that made a tensor |
# | node hook, node pre-hook | 节点钩子，节点预钩子 | called after, or before, a node makes its gradients |
# | AccumulateGrad | 梯度累加节点 | the node that adds to a leaf's `.grad`; a leaf does not keep it alive |
# | gradient edge ↓ | 梯度边 | a place in the graph, without the tensor |
# | multi-grad hook | 多梯度钩子 | called when the gradients of several tensors are there |
# | saved tensors, pack and unpack | 保存的张量，打包与解包 | what backward needs from the forward, and the two functions that it goes through |
# | checkpointing | 激活检查点 | keep a part's input only, and compute its inside again in the backward |
# | post-accumulate hook | 梯度累加后钩子 | called with the parameter when its `.grad` is finished |
#
# None of the five documents goes here: they end with the hooks of tensors and modules.

# %% [markdown] tags=["quiz"]
# ### Three questions
#
# **1.** A hook on a node returns `grad_inputs[0] * 2`. What happens?
#
# <details><summary>Answer</summary>
#
# A TypeError: a node's hook returns a tuple with a gradient for every place, or None.
# </details>
#
# **2.** You register a hook on `get_gradient_edge(w).node` before the training. It is never called. Why?
#
# <details><summary>Answer</summary>
#
# No graph keeps that node, so it is gone at once, and the first forward makes a new one. Hook `w`, or keep the node in a variable.
# </details>
#
# **3.** One checkpoint round the whole network does not lower the peak. Why does it help to have several?
#
# <details><summary>Answer</summary>
#
# Each backward through a part rebuilds that part only, and throws it away before the next one is rebuilt.
# </details>

# %%
progress(10)

# %% [markdown]
# ## If you want more
#
# ### An old friend
#
# Lesson 5 asked why the legacy `register_backward_hook` shows three gradients. Now you can see it from the other side: it is
# a hook on the node that made the output, and nothing else.

# %% tags=["hook-node"]
import warnings

linear, x = nn.Linear(2, 1), torch.ones(1, 2, requires_grad=True)
seen = {}
with warnings.catch_warnings(), linear.register_backward_hook(lambda module, *grads: seen.update(module=grads)):
    warnings.simplefilter("ignore")
    y = linear(x)
y.grad_fn.register_hook(lambda *grads: seen.update(node=grads))
y.sum().backward()

shapes = [[tuple(grad.shape) for grad in grads] for grads in seen["node"]]
print("node", y.grad_fn.name(), "made", shapes[0], "from", shapes[1])
assert all(torch.equal(*pair) for place in (0, 1) for pair in zip(seen["module"][place], seen["node"][place], strict=True))

# %% [markdown] tags=["exercise"]
# ### Exercise 10.4 · The norm of all gradients
# ●○○ · 6 minutes
#
# Register one hook that, in each backward, appends the norm of **all gradients of this backward together** to `norms`, as a
# number: the root of the sum of all squares. Parameters that take no part count nothing. Return the handle.
#
# <details><summary>Hint: 'NoneType' object has no attribute …</summary>
#
# A parameter that takes no part is None in the list.
# </details>
# <details><summary>Hint: the second number is too large</summary>
#
# `.grad` holds the sum of all backwards so far. The hook gets those of this one.
# </details>

# %% tags=["solution"]
def watch_norm(parameters: list[torch.Tensor], norms: list[float]):
    """Append the norm of all gradients of each backward to norms; return the handle."""
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
# If you ask for a gradient only, with `torch.autograd.grad(z, y)`, the way ends in front of `y`'s node, and the
# node does not run:

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
# A `GradientEdge` names a place in the graph and keeps no values. A function may hand it out, and the caller asks for the
# gradient there, although the tensor is gone. `inputs=` takes it as well, and leaves all other leaves alone:

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
# Between nothing and everything: keep each saved value in few bits. The gradients are then those of a slightly other network.
# How far off? `figures.fewer_bits` trains nothing; it compares one gradient of a network that reads digits.

# %% tags=["figure"]
from itertools import pairwise

costs = figures.fewer_bits()
figure = figures.bits(costs)
plt.show()
for cost in costs:
    print(f"{cost.bits:>2} bits: {cost.share:>4.0%} of the memory, gradient off by {'less than 5 %' if cost.error < 0.05 else 'more than 5 %'}")

assert [cost.share for cost in costs] == sorted((cost.share for cost in costs), reverse=True)
assert all(later.error > earlier.error for earlier, later in pairwise(costs))
assert costs[1].bits == 8 and costs[1].error < 0.05
assert abs(2 * costs[0].share - 1 - 0.215) < 0.01  # the part that 16 bits leave as it is
assert costs[-1].bits == 2 and costs[-1].error > 0.3

# %% [markdown]
# *What to see:* half the bits do not make half the memory: about a fifth of the bytes are whole numbers (where each maximum of
# the pooling stood), which are kept exactly. Down to 8 bits the gradient hardly notices.

# %% [markdown] tags=["exercise"]
# ### Exercise 10.5 · Eight bits
# ●●○ · 10 minutes
#
# Return a context manager in which autograd saves **float** tensors in one byte a number: 0 for the smallest value, 255 for
# the largest, and beside them what is needed to come back, with the dtype it had. Other tensors, such as class labels and
# masks, come back exactly, and so does a tensor of equal numbers.
#
# <details><summary>Hint: cross_entropy complains, or embeddings are wrong</summary>
#
# Integer tensors are saved, too: `tensor.is_floating_point()`.
# </details>
# <details><summary>Hint: the numbers come back wrong by more than half a step</summary>
#
# Measure from the smallest value, in 255 steps; a conversion to whole numbers cuts, so `round()` before it.
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
        step = ((values.max() - low) / 255).clamp(min=1e-30)  # equal numbers: never 0 / 0
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
# A pack that returns the very tensor it got, instead of a detached one, makes a circle where an operation saves its own result,
# as `exp` does: if that graph never runs backward, it stays in memory for ever.
#
# And if your pack wants to leave parameters alone: `tensor is layer.weight` is never true for a linear layer, which saves a
# transposed **view** of its weight. Compare `data_ptr()`.

# %% tags=["field", "field-166", "hook-saved-tensors"]
def stays_in_memory(pack):
    with saved_tensors_hooks(pack, lambda packed: packed):
        y = torch.ones(1000, requires_grad=True).exp()
    memory_of_y = weakref.ref(y.untyped_storage())
    del y
    return memory_of_y() is not None


print("stays for ever: returned as it is", stays_in_memory(lambda tensor: tensor), "· detached", stays_in_memory(torch.Tensor.detach))
assert stays_in_memory(lambda tensor: tensor) and not stays_in_memory(torch.Tensor.detach)

layer, found = nn.Linear(2, 3), []
with saved_tensors_hooks(lambda tensor: found.append(tensor) or tensor.detach(), lambda packed: packed):
    layer(torch.ones(1, 2, requires_grad=True))
by_is = any(tensor is layer.weight for tensor in found)
by_storage = layer.weight.data_ptr() in [tensor.data_ptr() for tensor in found]
print("the weight among the saved values: by `is`", by_is, "· by data_ptr()", by_storage)
assert not by_is and by_storage

# %% [markdown]
# ### Disk, CPU, and two switches
#
# Pack may put a value anywhere. On a machine with a GPU, `save_on_cpu()` is such a pair of hooks. One pair is at work at a time, the
# innermost. `disable_saved_tensors_hooks` refuses any, and `allow_mutation_on_saved_tensors` keeps a copy of what is written
# over, so that the error from the main part (written into a saved value) does not come, and the gradient is right.

# %% tags=["hook-saved-tensors"]
import tempfile
from pathlib import Path

from torch.autograd.graph import allow_mutation_on_saved_tensors, disable_saved_tensors_hooks, save_on_cpu

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
with saved_tensors_hooks(lambda tensor: outer.append(tensor), lambda nothing: nothing), save_on_cpu():
    (w * w).sum().backward()
assert outer == []  # the innermost pair alone
with disable_saved_tensors_hooks("no hooks in here"):
    assert error_of(saved_tensors_hooks(to_disk, torch.load).__enter__) == "RuntimeError: no hooks in here"
with allow_mutation_on_saved_tensors():
    w.grad, copy = None, w.clone()
    loss = (copy * copy).sum()
    copy.mul_(7)
    loss.backward()
assert w.grad.tolist() == [4.0, 6.0]

# %% [markdown]
# ### "My saved-tensor hooks do nothing in the worker thread"
#
# They belong to the thread that opened the block. And where does a backward hook run? On the CPU in the thread that called
# `backward()`; for a GPU in a thread of autograd's own, where values that you keep in a `threading.local` are missing.
# ([The change that made them thread-local](https://github.com/pytorch/pytorch/pull/62909))

# %% tags=["field", "field-56", "hook-saved-tensors"]
packed_in, hooked_in = [], []


def me():
    return threading.current_thread().name.split("-")[0]


def some_work():
    w = torch.tensor(1.0, requires_grad=True)
    y = w.exp()
    y.register_hook(lambda grad: hooked_in.append(me()))
    y.backward()


with saved_tensors_hooks(lambda tensor: packed_in.append(me()) or tensor.detach(), lambda packed: packed):
    worker = threading.Thread(target=some_work, name="worker")
    worker.start()
    worker.join()
    some_work()

print("packed in:", packed_in, "  tensor hooks ran in:", hooked_in)
assert packed_in == ["MainThread"] and hooked_in == ["worker", "MainThread"]

# %% [markdown]
# ### What your checkpoint lacks
#
# The second run must compute the same. With dropout it draws other numbers, and the gradients belong to no network at all. Torch's
# own checkpoint puts the state of the random numbers back before the second run (and stops it as soon as the last value is there).
# As long as 10.2 is open, torch's stands in for yours, here and below; then both say True.

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


whose = "yours" if mine is checkpoint else "torch's, in place of yours"
print(f"the same numbers dropped in both runs? {whose}:", same_mask(mine))
print("with the state put back:", same_mask(with_the_same_numbers))
assert same_mask(with_the_same_numbers)

# %% [markdown]
# ### "A different number of tensors was saved during the original forward and recomputation"
#
# Random numbers are one way to run differently the second time; a counter, a cache, a mode that was switched in between are
# others. Torch's checkpoint compares number, shapes and dtypes of what both runs save, and refuses. What does yours do?

# %% tags=["field", "field-167"]
import functools

import torch.utils.checkpoint

torchs = functools.partial(torch.utils.checkpoint.checkpoint, use_reentrant=False)


def with_a_counter(checkpointing, change):
    """The gradient of x * x, computed by a function that changes in its second run; or the error that came."""
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
    print(f"{change.__name__} · {whose}:", with_a_counter(mine, change), "\n       torch's:", with_a_counter(torchs, change))
assert "A different number of tensors was saved" in with_a_counter(torchs, fewer)
assert "Recomputed values for the following tensors have different metadata" in with_a_counter(torchs, longer)

# %% [markdown]
# One like the solution of 10.2 stops with a KeyError at `fewer`, where a number is missing; with `longer` it says nothing, and
# returns the gradient (4, 0, 0), where (2, 0, 0) is right.

# %% [markdown]
# ### Gradients of gradients
#
# With `create_graph=True` a hook's own work is part of the new graph, so its derivative is right. But the second backward comes
# through the same tensor, and the hook runs **again**: take it off in between if you mean it for the first. And what a hook
# **stores** then holds the whole graph of that backward. Store `grad.detach()`, unless you want to go on from it.

# %% tags=["field", "field-111"]
w = torch.tensor(2.0, requires_grad=True)
stored = []
y = w * 1
handle = y.register_hook(lambda grad: stored.append(grad) or grad * grad)
(once,) = torch.autograd.grad(y**3, w, create_graph=True)  # hooked: (3 w²)² = 9 w⁴
(hooked_again,) = torch.autograd.grad(once, w, retain_graph=True)
handle.remove()
(twice,) = torch.autograd.grad(once, w)
print("9 w⁴ =", once.item(), "  36 w³ =", twice.item(), "  stored with a graph:", stored[0].requires_grad)
assert (once.item(), twice.item(), hooked_again.item()) == (144.0, 288.0, 288.0**2)
assert stored[0].requires_grad


def graphs_alive(keep):
    """How many of four steps' graphs are still there, when a hook has kept something of each."""
    kept, notes = [], []
    for _ in range(4):
        w = torch.tensor([2.0], requires_grad=True)
        y = w**3
        note = type("Note", (), {})()
        y.grad_fn.metadata["note"] = note  # a node's dictionary for notes of your own; it goes with its node
        notes.append(weakref.ref(note))
        y.register_hook(lambda grad: kept.append(keep(grad)))
        z = y**2
        torch.autograd.grad(z, w, create_graph=True)
        del w, y, z, note
    return sum(note() is not None for note in notes)


print("graphs alive after 4 steps: stored as it is", graphs_alive(lambda grad: grad), "· detached", graphs_alive(torch.Tensor.detach))
assert (graphs_alive(lambda grad: grad), graphs_alive(torch.Tensor.detach)) == (4, 0)

# %% [markdown]
# ### "Memory grows with a full backward hook and create_graph=True"
#
# A module's full backward hook notes `grad_output` (with its graph, here) and waits until the input's gradient comes. Ask for the gradients of the
# **parameters only**, from an input that asks for one too, and it waits for ever, with the graph. Ask for the input's as well,
# or use a tensor hook. ([A report](https://github.com/pytorch/pytorch/issues/82528))

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


print("stays: hooked", graph_stays(True, False), "· x asked for", graph_stays(True, True), "· no hook", graph_stays(False, False))
assert graph_stays(True, False) and not graph_stays(True, True) and not graph_stays(False, False)

# %% [markdown]
# ### A hook, or a function of your own?
#
# | | a hook | `torch.autograd.Function` |
# |---|---|---|
# | who decides | whoever uses the code, from outside | whoever writes the operation |
# | what it may do | look at a gradient, change it | give any forward any backward, and save what it needs |
# | taken off | by its handle, at any time | by changing the code |
# | good for | looking, clipping, experiments | a rule that belongs to the operation, such as a straight-through round |
#
# The same rule, "round forward, pass the gradient through", in both ways. The hook needs a trick: `round()` has a gradient of
# 0, and no hook can bring back what has been multiplied by 0.

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
    y.register_hook(lambda grad: grad + 3)  # knows the gradient that it should have passed on
    return y.round()


print("round:", gradient_of(torch.round), "  Function:", gradient_of(Round.apply), "  hook:", gradient_of(hooked_round))
assert (gradient_of(torch.round), gradient_of(Round.apply), gradient_of(hooked_round)) == (0.0, 3.0, 3.0)

# %% [markdown]
# The hook only looks right: it had to be told the answer.
#
# ### The hook on everything
#
# Below autograd, every operation, forward and backward, goes through one place. A `TorchDispatchMode` stands there: it sees
# what no module and no node shows, such as the sums in `.grad` (`add_`). The memory curves of this lesson were counted by one.

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
# Most kinds of module hooks have a twin that is registered in `torch.nn.modules.module`, for every module of the process, until
# its handle is removed. Three more are told when a module, a parameter or a buffer is put into a module; what they return takes
# its place.

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
assert (made.count("new parameter"), made.count("new buffer"), made.count("new module")) == (2, 3, 1)
assert called == ["forward pre"] * 2 + ["forward"] * 2 + ["backward pre"] * 2 + ["backward"] * 2

# %% [markdown]
# The eighth is the legacy one. It and the full ones exclude each other for good: once a full one was registered, this
# process refuses it, also when all handles are gone. So here it runs in a process of its own.

# %% tags=["hook-global-legacy-backward"]
from hooklab.course.lesson10.helpers import ends_well

refused = error_of(lambda: every_module.register_module_backward_hook(print))
print(refused[:76], "…")
assert refused.startswith("RuntimeError: Cannot use both regular backward hooks and full backward hooks")

program = """
import torch
from torch.nn.modules.module import register_module_backward_hook
called = []
register_module_backward_hook(lambda module, grad_input, grad_output: called.append(len(grad_input)))
layer = torch.nn.Linear(2, 1)  # kept in a variable: the backward refuses a module that is gone
layer(torch.ones(1, 2, requires_grad=True)).sum().backward()
assert called == [3]
"""
assert ends_well(program)
print("alone in its process, it is called with three gradients, like the legacy hook of one module")

# %% [markdown]
# ### A crash
#
# Python itself dies, without a traceback: `register_hook` on a view, after its base was changed through another view. It is
# a bug of PyTorch's, not yours: reported for 2.9, 2.13 and 2.14, and mended in 2.15. Reading `grad_fn` once before you register
# brings the view up to date. (Here in a process of its own.) ([The report](https://github.com/pytorch/pytorch/issues/196459))

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
