# %% [markdown]
# # 2 · How do I read, keep or change a gradient while it flows?
#
# **Time** 55 minutes, and 57 for what comes after the recap &nbsp;·&nbsp; **You need** lesson 1
#
# After this lesson you can
#
# - store the gradient of any tensor that requires grad, and leave no hook behind;
# - change a gradient safely while it flows;
# - say in which order hooks run, and what ends up in `.grad`;
# - watch the gradients of a network in training, and find out why it doesn't learn.

# %% tags=["setup"]
import functools
import gc
import warnings
from collections.abc import Callable
from contextlib import ExitStack

import matplotlib.pyplot as plt
import torch
from IPython.display import display
from torch import nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle

from hooklab import check, predict, progress, reveal
from hooklab.course.errors import error_of
from hooklab.course.lesson02 import explorer, figures, training

torch.set_num_threads(1)
warnings.filterwarnings(  # lesson 1 has shown it
    "ignore", message="The .grad attribute of a Tensor that is not a leaf"
)

# %% [markdown]
# ## One hook, written three ways
#
# [S3](00_start_here.ipynb#documents), the longest of the five documents, starts with this example: it squares four twos and takes
# the mean. Each of the four has the gradient $\tfrac14 \cdot 2x = 1$. A hook is supposed to double it. Here are S3's hook and two
# variations:

# %%
def first(grad):
    grad *= 2


def second(grad):
    grad = grad * 2


def third(grad):
    return grad * 2

# %%
predict("2.a")

# %% tags=["predict", "hook-tensor"]
print("What came out:")
found = {}
for hook in (first, second, third):
    x = torch.tensor([2.0, 2.0, 2.0, 2.0], requires_grad=True)
    y = torch.pow(x, 2)
    z = torch.mean(y)
    h = x.register_hook(hook)
    z.backward()
    found[hook.__name__] = x.grad.tolist()
    print(f"{hook.__name__:<7}", found[hook.__name__])
    h.remove()  # removes the hook

# %% tags=["claim-S3.2", "claim-S3.3"]
reveal("2.a", [name for name, grad in found.items() if grad == [2.0, 2.0, 2.0, 2.0]])
assert found["first"] == found["third"] == [2.0, 2.0, 2.0, 2.0], (
    "With the page's four twos, the first and the third hook double the gradient to 2."
)
assert found["second"] == [1.0, 1.0, 1.0, 1.0], (
    "With the page's four twos, the second hook leaves the gradient at 1."
)

# %% [markdown]
# S3 concludes: write `return`. It's right: don't use `*=` in a hook. It works **in place**: it writes into memory that
# other tensors may share. ("If you want more" shows how it changes another tensor's gradient, and how it fails.)

# %% [markdown]
# ## A hook that reads
#
# A **tensor hook** is a function with one argument. `y.register_hook(function)` stores the function and doesn't call it yet.
# When `backward()` has computed the gradient of `y`, PyTorch calls the function with it.
#
# S0 and S3 both register their hook *after* the forward pass. For a tensor that's fine: by then `y` has its place in the graph,
# and the hook is stored there. (For a module's backward hook it would be too late. That's a trap in S3 which lesson 5 comes
# back to.) `x`, `y` and `z` are those of lesson 1:

# %% tags=["claim-S0.5", "claim-S0.8"]
grad_list = []
x = torch.tensor([[1.0], [3.0]], requires_grad=True)
y = x + 2
z = torch.mean(torch.pow(y, 2))

handle = y.register_hook(grad_list.append)  # after the forward pass
print("registered:    ", len(grad_list), "gradients in the list")
z.backward()
print("after backward:", len(grad_list), "gradient, ", grad_list[0].flatten().tolist())
handle.remove()

assert grad_list[0].flatten().tolist() == [3.0, 5.0]
assert x.grad.flatten().tolist() == [3.0, 5.0]  # the hook only read

# %% [markdown]
# Why can a list's `append` be a hook? Because it takes one argument and returns `None`. When a hook returns `None`, the gradient
# stays as it is. `print` returns `None`, too.

# %% tags=["claim-S0.5"]
assert [].append(1) is None and print(end="") is None

y = x + 2
with y.register_hook(print):  # `with` removes the hook at the end of the block
    torch.mean(torch.pow(y, 2)).backward()

# %% [markdown]
# ### Which tensors can have a hook?
#
# S1 writes `torch.register_hook()`, but there is no such function: it's a method of a tensor. And as S1 says, the tensor must
# require grad.
#
# **"`cannot register a hook on a tensor that doesn't require gradient`."** You have frozen a network, and a tool hooks its
# activations. Neither the weights nor the input require grad, so nothing that is computed from them does. No gradient will ever
# arrive there, so PyTorch refuses the hook at once, and `retain_grad()` as well. Results computed under `torch.no_grad()` are
# refused for the same reason. ([A thread about it](https://github.com/frgfm/torch-cam/issues/217))

# %% tags=["claim-S1.2", "claim-S1.8", "field", "field-03", "field-149"]
frozen = nn.Linear(2, 1).requires_grad_(False)
image = torch.ones(1, 2)
output = frozen(image)
message = error_of(output.register_hook, print)

print("requires_grad =", output.requires_grad)
print(message)
assert message.startswith("RuntimeError: cannot register a hook on a tensor that")
assert error_of(output.retain_grad) == (
    "RuntimeError: can't retain_grad on Tensor that has requires_grad=False"
)
with torch.no_grad():
    assert not nn.Linear(2, 1)(image).requires_grad
assert not hasattr(torch, "register_hook") and hasattr(torch.Tensor, "register_hook")

# %% [markdown]
# What can you do? Skip tensors whose `requires_grad` is False. Or, if you do want the gradient, set `requires_grad` on the
# **input**: then everything that is computed from it requires grad, too.

# %% tags=["claim-S1.2", "field", "field-03"]
grad_list = []
output = frozen(image.requires_grad_())
with output.register_hook(grad_list.append):
    output.sum().backward()

print("requires_grad =", output.requires_grad, "  the hook saw", grad_list[0].tolist())
assert output.requires_grad and grad_list[0].tolist() == [[1.0]]
assert frozen.weight.grad is None  # still frozen

# %% [markdown] tags=["exercise"]
# ### Exercise 2.1 · One gradient for each loss
# ●○○ · 5 minutes
#
# Several losses were computed from the same `y`. Call `backward()` on each of them, in order. Return the **list of the gradients
# of y**, one for each loss. When your function returns, no hook is left on `y`. (The losses share only operations that save
# nothing, so a plain `backward()` works each time.)
#
# <details><summary>Hint: my list is empty</summary>
#
# Print `len(...)` before and after each `backward()`. Was the hook registered when the gradient was computed?
# </details>
# <details><summary>Hint: my list is longer than the list of losses</summary>
#
# How many hooks are on `y` when you call `backward()` on the last loss? One is enough for all of them.
# </details>

# %% tags=["solution"]
def record_gradients(
    y: torch.Tensor, losses: list[torch.Tensor]
) -> list[torch.Tensor]:
    """Call backward() on each loss; return the gradient of y for each."""
    ### BEGIN SOLUTION
    gradients = []
    with y.register_hook(gradients.append):
        for loss in losses:
            loss.backward()
    return gradients
    ### END SOLUTION

# %% tags=["check"]
check("2.1", record_gradients)

# %% [markdown]
# ## A hook that changes the gradient
#
# If a hook returns a **tensor**, that replaces the gradient. S2 says that such a hook "cannot modify data" and only offers a new
# gradient in `tensor.grad`. Is that so? Here's a hook on a leaf, and one on `y`:

# %% tags=["claim-S0.6", "claim-S2.2"]
x = torch.tensor([1.0, 3.0], requires_grad=True)
with x.register_hook(lambda grad: 5 * grad):
    (3 * x).sum().backward()
print("hook on the leaf x: x.grad =", x.grad.tolist())
assert x.grad.tolist() == [15.0, 15.0]

x = torch.tensor([[1.0], [3.0]], requires_grad=True)
y = x + 2
z = torch.mean(torch.pow(y, 2))
with y.register_hook(lambda grad: 10 * grad):
    z.backward()
print("hook on y: x.grad =", x.grad.flatten().tolist(), "  and y.grad is", y.grad)
assert x.grad.flatten().tolist() == [30.0, 50.0]  # it reaches everything before y
assert y.grad is None

# %% [markdown]
# S2 is right about the leaf: its new gradient is in `.grad`. But that's not all. What a hook returns also flows on, to every tensor
# that this one was computed from.
#
# **"`hook '<lambda>' has changed the size of value`."** You wanted to look at the norm of a gradient, and got this error. A
# lambda returns the value of its expression, whether you want that or not. And what a hook returns must be one tensor with the
# gradient's shape and dtype. So let a hook that reads return `None`.
# ([A thread about it](https://github.com/pytorch/pytorch/issues/5022))

# %% tags=["claim-S0.6", "field", "field-06"]
def backward_with(hook) -> str:
    x = torch.ones(2, requires_grad=True)
    with x.register_hook(hook):
        return error_of((2 * x).sum().backward).split(" (")[0]


outcomes = {
    "another shape": backward_with(lambda grad: grad.norm()),
    "another dtype": backward_with(lambda grad: grad.double()),
    "a number": backward_with(lambda grad: grad.norm().item()),
    "a tuple": backward_with(lambda grad: (grad,)),
}
for returned, outcome in outcomes.items():
    print(f"{returned:<14} {outcome}")

assert outcomes["another shape"].endswith("has changed the size of value")
assert outcomes["another dtype"].endswith("has changed the type of value")
expected = "TypeError: expected Variable, but hook returned "  # the old name of Tensor
assert outcomes["a number"] == expected + "'float'"
assert outcomes["a tuple"] == expected + "'tuple'"

norms = []
assert backward_with(lambda grad: norms.append(grad.norm().item())) == "no error"
assert abs(norms[0] - 8**0.5) < 1e-6  # the gradient is [2, 2]

# %% [markdown] tags=["exercise"]
# ### Exercise 2.2 · Turn a gradient up or down
# ●○○ · 5 minutes
#
# Register a hook on `tensor` that multiplies its gradient by `factor`. Don't write into the gradient that the hook receives,
# because other tensors may share it. Return the **handle**, so that the caller can remove the hook.
#
# <details><summary>Hint: the check says that the gradient is the same as without the hook</summary>
#
# Compare your hook with the second and the third one at the top of this lesson.
# </details>
# <details><summary>Hint: the check says that there isn't a hook on the tensor</summary>
#
# `with` removes the hook at the end of its block. Here the caller decides when that happens.
# </details>

# %% tags=["solution"]
def scale_gradient(tensor: torch.Tensor, factor: float) -> RemovableHandle:
    """Multiply the gradient of `tensor` by `factor`; return the hook's handle."""
    ### BEGIN SOLUTION
    return tensor.register_hook(lambda grad: factor * grad)
    ### END SOLUTION

# %% tags=["check"]
check("2.2", scale_gradient)

# %% [markdown]
# ## Several hooks on one tensor
#
# Hooks run in the order in which you register them, and each receives what the previous one returned. And `retain_grad()`?
# Below, it is called **first**. Then come a hook that reads and a hook that doubles. The gradient [3, 5] arrives at `y`.

# %%
predict("2.b")

# %% tags=["predict", "figure"]
x = torch.tensor([[1.0], [3.0]], requires_grad=True)
y = x + 2
got = {}


def look(grad):
    got["look"] = grad


def double(grad):
    got["double"] = grad
    return 2 * grad


y.retain_grad()
with y.register_hook(look), y.register_hook(double):
    torch.mean(torch.pow(y, 2)).backward()

print("What came out:")
print("y.grad =", y.grad.flatten().tolist())
# each hook, and the gradient after it
after = [("look", got["double"]), ("double", y.grad)]
figure = figures.hook_chain(got["look"], after, kept=y.grad, owner="y")
display(figure)

# %% tags=["claim-S4.5"]
reveal("2.b", y.grad.flatten().tolist())
assert list(got) == ["look", "double"], "On this page, `look` runs before `double`."
assert (
    got["look"].flatten().tolist() == got["double"].flatten().tolist() == [3.0, 5.0]
), "With the page's x, both hooks see the gradient [3, 5]."
assert y.grad.flatten().tolist() == x.grad.flatten().tolist() == [6.0, 10.0], (
    "With the page's x, `y.grad` and `x.grad` are [6, 10]."
)

# %% [markdown] tags=["field", "field-07"]
# S4 says it in one sentence: a tensor hook's result becomes the tensor's own final gradient. (Which value `retain_grad()` keeps
# was decided in [this pull request](https://github.com/pytorch/pytorch/pull/85849).)
#
# Now choose up to three hooks for `y` yourself. In the menus, `in place` is the first hook from the top of this lesson,
# `forget` is the second one, and `look` appends each gradient to a list.

# %% tags=["explorer"]
explorer.hooks_in_a_row()

# %% [markdown]
# ## The handle
#
# `y.register_hook(function)` stores the function in a dictionary on `y` and returns a **handle**. `handle.remove()` deletes that
# entry. Call it after `backward()`, as S3 says: a hook that is removed before never runs. If you lose the handle, nothing removes
# the hook:

# %% tags=["claim-S3.5"]
ran = []
y = x + 2

handle = y.register_hook(lambda grad: ran.append("removed before"))
handle.remove()

handle = y.register_hook(lambda grad: ran.append("removed after"))
with y.register_hook(lambda grad: ran.append("with")):
    y.register_hook(lambda grad: ran.append("handle thrown away"))
    gc.collect()  # free everything that is no longer reachable
    y.sum().backward()
handle.remove()

print(ran, "  still on y:", len(y._backward_hooks))
assert ran == ["removed after", "with", "handle thrown away"]
assert len(y._backward_hooks) == 1

# %% [markdown]
# How bad is that? Each forward pass creates a new **non-leaf** `y`, and a hook that you have forgotten disappears with the old `y`.
# Here, each of four steps registers `third`, the hook that doubles, and never removes it:

# %%
w = torch.ones(1, requires_grad=True)
on_non_leaf = []
for _ in range(4):
    w.grad = None
    y = w * 1
    y.register_hook(third)
    y.sum().backward()
    on_non_leaf.append(w.grad.item())

print("w.grad in the four steps:", on_non_leaf)
assert on_non_leaf == [2.0, 2.0, 2.0, 2.0]

# %% [markdown]
# A **leaf**, such as a parameter, stays for the whole training. So let the hook be on `w` itself:

# %%
predict("2.c")

# %% tags=["predict"]
on_leaf, handles = [], []
for _ in range(4):
    w.grad = None
    handles.append(w.register_hook(third))  # kept only so that we can clean up below
    w.sum().backward()
    on_leaf.append(w.grad.item())
for handle in handles:
    handle.remove()

print("What came out:")
print("w.grad in the four steps:", on_leaf)

# %%
reveal("2.c", on_leaf[-1])
assert on_leaf == [2.0, 4.0, 8.0, 16.0], (
    "On this page, one more hook doubles the gradient in each step."
)

# %% [markdown]
# So keep every handle, or use `with`, which removes the hook at the end of the block, even if the block raises an exception.

# %%
y = x + 2
try:
    with y.register_hook(print):
        raise ValueError("something went wrong before backward")
except ValueError as error:
    print(error)

assert len(y._backward_hooks) == 0

# %% [markdown] tags=["exercise"]
# ### Exercise 2.3 · Fix it: half the gradient
# ●●○ · 8 minutes
#
# This function should call `backward()` on each loss, let only **half** of the gradient flow on from `tensor`, and return the
# gradients that **arrived** at `tensor`, one for each loss. It has more than one fault. Fix it, and leave no hook behind.
#
# ```python
# def halve(tensor, losses):
#     arrived = []
#     def hook(grad):
#         arrived.append(grad)
#         grad *= 0.5
#     for loss in losses:
#         tensor.register_hook(hook)
#         loss.backward()
#     return arrived
# ```
#
# <details><summary>Hint: the gradients in my list are half as large as they should be</summary>
#
# `grad *= 0.5` writes into the same tensor that you have put into the list.
# </details>
# <details><summary>Hint: my list has too many gradients, and the gradient gets smaller and smaller</summary>
#
# How many hooks are on `tensor` when you call `backward()` on the third loss?
# </details>

# %% tags=["solution"]
def halve(
    tensor: torch.Tensor, losses: list[torch.Tensor]
) -> list[torch.Tensor]:
    """Let half the gradient of each loss flow on; return the gradients that arrived."""
    ### BEGIN SOLUTION
    arrived = []

    def hook(grad):
        arrived.append(grad)
        return 0.5 * grad

    with tensor.register_hook(hook):
        for loss in losses:
            loss.backward()
    return arrived
    ### END SOLUTION

# %% tags=["check"]
check("2.3", halve)

# %% [markdown]
# ### A hook with `self`
#
# Often a hook needs a memory: a list, a counter, a limit. S3's third note says that a hook defined in a class takes `self` as its
# first argument. `counter.grad_hook` is a **bound method**: a function that already knows its `self` and needs only `grad`.

# %% tags=["claim-S3.6"]
class Counter:
    def __init__(self):
        self.passes = 0

    def grad_hook(self, grad):
        self.passes += 1


counter = Counter()
y = x + 2
with y.register_hook(counter.grad_hook):  # bound: self comes along
    y.sum().backward()
    y.sum().backward()
print("passes:", counter.passes)
assert counter.passes == 2

with y.register_hook(Counter.grad_hook):  # taken from the class: what is self?
    message = error_of(y.sum().backward)
print(message)
assert message.startswith("TypeError")
assert "missing 1 required positional argument: 'grad'" in message

# %% [markdown]
# The second hook was taken from the **class**, so it's an ordinary function of two arguments. PyTorch doesn't notice that when
# you register it. The error comes later, in the middle of `backward()`.

# %% [markdown]
# ## Before and after `.grad`
#
# **"Inside my hook, `param.grad` is None, or old."** A tensor hook on a leaf runs **before** the gradient is added to `.grad`,
# because the hook may still change it. If you need the finished `.grad`, use `register_post_accumulate_grad_hook`, which works on
# leaves only. This hook receives the **tensor**, not the gradient, and returns nothing.
# ([A thread about it](https://github.com/pytorch/pytorch/issues/149938))

# %% tags=["field", "field-17", "hook-tensor", "hook-post-accumulate"]
w = torch.ones(1, requires_grad=True)
log = []


def before(grad):
    log.append(("tensor hook", grad.item(), None if w.grad is None else w.grad.item()))


def afterwards(tensor):
    log.append(("post-accumulate", None, tensor.grad.item()))


with w.register_hook(before), w.register_post_accumulate_grad_hook(afterwards):
    for _ in range(2):
        (3 * w).sum().backward()

for hook, grad, stored in log:
    print(f"{hook:<15}  grad = {grad!s:<4}  w.grad = {stored}")
assert [stored for hook, _, stored in log if hook == "tensor hook"] == [None, 3.0]
assert [stored for hook, _, stored in log if hook == "post-accumulate"] == [3.0, 6.0]

# %% [markdown]
# ## Why doesn't this network learn?
#
# Scikit-learn's digits are 1,797 pictures of 8x8 pixels. Pixel values go from 0 to 16, and they weren't scaled. The network
# has three layers, `64 → 32 → 32 → 10`, with a ReLU after the first and second. The step size is 1.0, which is large. After
# a hundred steps the network gets one picture in ten right, no better than guessing. What do its gradients tell you?
#
# `training.run` trains the network. It calls each function that you pass, here `watch`, with every parameter and its name, so that
# the function can register a hook. In each step, this hook stores two things about the first layer: the norm of its weight's
# gradient, and how many of the gradient's rows aren't all zero. There is one row for each neuron.

# %%
def train(step_size, *registers):
    norms, neurons = [], []

    def watch(name, parameter):
        def hook(grad):
            if name == "0.weight":
                norms.append(grad.norm().item())
                neurons.append(grad.any(dim=1).sum().item())

        return parameter.register_hook(hook)

    network, right = training.run(step_size, *registers, watch)  # removes the hooks
    return network, {"norms": norms, "neurons": neurons, "right": right}

# %%
predict("2.d")

# %% tags=["predict"]
network, large = train(1.0)

images, labels = training.raw_digits()
with torch.no_grad():  # the two ReLUs' outputs, for all pictures
    off = [not network[:end](images).any() for end in (2, 4)]

print("What came out:")
print("norm of the first layer's gradient, in the last step:", large["norms"][-1])
print(f"all outputs zero, for all {len(images):,} pictures:")
print(f"    the first ReLU {off[0]}, the second ReLU {off[1]}")

# %%
reveal("2.d", large["norms"][-1])
assert large["right"] < 0.2 and len(large["norms"]) == 100, (
    "With the page's step of 1.0, a hundred steps teach the network next to nothing."
)
assert any(off), "With the page's step of 1.0, a whole layer ends up at zero."
assert large["neurons"][-1] == 0, (
    "With the page's step of 1.0, no neuron of the first layer gets a gradient."
)

# %% [markdown]
# What would have helped? Many people use **clipping**: it keeps a gradient within a limit. Here, one hook limits each of its
# numbers (exercise 2.6 limits its norm). Another hook, registered before it, notes which numbers get cut.

# %% tags=["field", "field-clip"]
def clip(name, parameter):
    return parameter.register_hook(lambda grad: grad.clamp(-0.01, 0.01))


def note(name, parameter):
    def hook(grad):
        cut.append((grad.abs() > 0.01).flatten())

    return parameter.register_hook(hook)


cut = []
_, clipped = train(1.0, note, clip)  # the hooks run in this order, then `watch`
_, small = train(0.03)  # a smaller step instead

clipped["cut"] = torch.cat(cut).float().mean().item()
assert 0.4 < clipped["cut"] < 0.65
assert torch.cat(cut[-60:]).float().mean() > 0.4  # ten steps, six parameters each
assert clipped["right"] > 0.75 and small["right"] > 0.85

# %% tags=["figure"]
trainings = {"step 1.0": large, "step 1.0, clipped": clipped, "step 0.03": small}
ceiling = 0.01 * (32 * 64) ** 0.5  # 0.01 in each of 32 x 64 numbers
figure = figures.norms_over_steps(trainings, ceiling, quiet=0.1)
plt.show()

assert ceiling / 2 < min(clipped["norms"])  # near the limit, and never above it
assert max(clipped["norms"]) <= ceiling + 1e-6 and max(large["norms"]) > 5 * ceiling
steps = zip(large["norms"], large["neurons"], strict=True)
assert all((norm == 0.0) == (number == 0) for norm, number in steps)
assert large["norms"][-1] == 0.0
assert min(clipped["norms"][-10:]) > 0.0 and min(small["norms"][-10:]) > 0.0
assert small["right"] > clipped["right"] > large["right"]

# %% [markdown]
# *What to see:* with a step of 1.0 (orange), the gradient shoots up within a few steps and then drops to exactly zero. The panel
# below shows why: soon hardly any of the 32 neurons gets a gradient. At each later bump one of them does, and in the end none.
# (A step sees 64 pictures. A neuron that is off for these may still be on for another.) The clipped gradients (purple) stay
# near the most that clipping allows. A step of 0.03 (blue) needs no hook, and does best.
#
# So the hooks show two things that the loss doesn't. A layer **died**: that's why more steps didn't help. And clipping wasn't a
# safety net for rare moments: it cut **about half of all numbers**, until the end. The fault is a step size that is too large for
# unscaled pixels. A smaller step fixes it.

# %% [markdown] tags=["recap"]
# ## Recap
#
# A tensor hook receives a tensor's gradient in the backward pass. If it returns `None`, the gradient stays the same; if it
# returns a tensor, that replaces the gradient, here and for every tensor it was computed from. Hooks run in the order of
# registration. `.grad` and `retain_grad()` keep the gradient that is left after the last one. Use `with`, or keep the handle,
# so that every hook is removed.
#
# PyTorch's own page: [`Tensor.register_hook`](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.register_hook.html).
# What holds of S0, S2 and S3 today, step by step, is on [the start page](00_start_here.ipynb#documents).

# %% [markdown] tags=["quiz"]
# ### Three questions
#
# **1.** `y` has two hooks, in this order: `lambda grad: grad + 1` and `lambda grad: 2 * grad`. The gradient 3 arrives. Which
# gradient flows on, and which one does `retain_grad()` keep?
#
# <details><summary>Answer</summary>
#
# Both are 8: (3 + 1) times 2. Hooks run in the order of registration, each on the previous one's result, and `retain_grad()`
# keeps the last result.
# </details>
#
# **2.** Your training loop calls `model.weight.register_hook(clip)` in each step. Why is this worse than `y.register_hook(clip)`,
# where `y` is a result of the forward pass?
#
# <details><summary>Answer</summary>
#
# The weight stays, so its hooks pile up: after a hundred steps, a hundred hooks run. `y` is a new tensor in each step, and its
# hook disappears with it.
# </details>
#
# **3.** Why shouldn't a hook write `grad.clamp_(-1, 1)`, although `grad.clamp(-1, 1)` is fine?
#
# <details><summary>Answer</summary>
#
# `clamp_` writes into a tensor that other tensors may share. It can change another tensor's gradient, or raise an error if the
# gradient is one number that stands for many. `clamp` creates a new tensor, which the hook can return.
# </details>

# %%
progress(2)

# %% [markdown]
# ## If you want more
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | tensor hook | 张量钩子 | a function that receives a tensor's gradient and may replace it |
# | handle | 句柄 | what `register_hook` returns; `remove()` removes the hook |
# | in place | 原地操作 | writing into an existing tensor instead of creating a new one |
# | post-accumulate hook | 累积后钩子 | runs after a leaf's `.grad` was updated, and receives the leaf |
# | gradient clipping | 梯度裁剪 | keeping a gradient within a limit |
# | late binding | 延迟绑定 | a function looks up a variable when it runs |
# | bound method | 绑定方法 | a method taken from an object, which knows its `self` |
#
# ### Why not in place?
#
# S3's own hook, `grad *= 2`, writes into the tensor that it received. PyTorch's page says that a hook
# [should not modify its argument](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.register_hook.html). There are two
# reasons. **It can fail.** In a sum, every element has the gradient 1, so PyTorch stores *one* number and shows it four times: an
# *expanded* tensor. You can't write four results into one number.

# %% tags=["claim-S3.4", "field", "field-05"]
strides = []
x = torch.tensor([2.0, 2.0, 2.0, 2.0], requires_grad=True)
x.register_hook(lambda grad: strides.append(grad.stride()))
with x.register_hook(first):
    message = error_of(x.sum().backward).split(". ")[0]

print("stride", strides[0], "  ", message)
assert strides[0] == (0,)  # zero steps in memory from one element to the next
assert message.startswith("RuntimeError: unsupported operation: more than one element")

with x.register_hook(third):
    x.sum().backward()
assert x.grad.tolist() == [2.0, 2.0, 2.0, 2.0]  # returning a new tensor works

# %% [markdown]
# **It can change other gradients.** *"I zeroed one tensor's gradient in a hook, and another tensor lost its gradient as well."* In
# `a + b`, both have the same gradient, so PyTorch passes the same tensor to one after the other. Here `b` comes first. If its hook
# writes zeros into the tensor, `a` receives zeros, too. If the hook is on `a`, it comes too late to harm `b`.
# ([A thread about hooks that edit their arguments](https://github.com/meta-pytorch/opacus/issues/9))

# %% tags=["claim-S3.4", "field", "field-05"]
def gradients_with(hook, on: str) -> tuple[list[float], list[float]]:
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    used = {"a": a * 1, "b": b * 1}
    with used[on].register_hook(hook):
        ((used["a"] + used["b"]) ** 2).sum().backward()
    return a.grad.tolist(), b.grad.tolist()


def zero_in_place(grad):
    grad.zero_()


for hook, on in ((zero_in_place, "b"), (zero_in_place, "a"), (torch.zeros_like, "b")):
    print(f"{hook.__name__:<13} on {on}: a.grad, b.grad =", *gradients_with(hook, on))

# a lost its gradient, too
assert gradients_with(zero_in_place, "b") == ([0.0, 0.0], [0.0, 0.0])
assert gradients_with(zero_in_place, "a") == ([0.0, 0.0], [4.0, 4.0])
assert gradients_with(torch.zeros_like, "b") == ([4.0, 4.0], [0.0, 0.0])

# %% [markdown]
# ### Hooks and `torch.autograd.grad`
#
# `torch.autograd.grad` doesn't write to `.grad`. It runs the tensor hooks of `x` and returns what they made of the gradient. A
# post-accumulate hook doesn't run, because nothing is accumulated. (Before 2.0 it didn't run the tensor hook either, and
# [threads](https://github.com/pytorch/pytorch/issues/35802) still say so.)

# %% tags=["field", "field-09"]
x = torch.ones(1, requires_grad=True)
log = []


def ten_times(grad):
    log.append("tensor hook")
    return 10 * grad


def afterwards(tensor):
    log.append("post-accumulate")


with x.register_hook(ten_times), x.register_post_accumulate_grad_hook(afterwards):
    (grad,) = torch.autograd.grad(5 * x, x)

print("returned:", grad.item(), "  ran:", log)
assert grad.item() == 50.0 and log == ["tensor hook"] and x.grad is None

# %% [markdown]
# ### Hooks in a loop
#
# **"All my hooks report the last layer."** A hook receives the gradient but no name. So people use the loop's variable inside the
# hook, and then every hook reports the same name. ([A thread about it](https://github.com/pytorch/torchtitan/pull/1326))

# %% tags=["field", "field-31"]
tensors = {"h": x + 2}
tensors["s"] = tensors["h"] ** 2
tensors["m"] = tensors["s"].mean()

names, handles = [], []
for name, tensor in tensors.items():
    handles.append(tensor.register_hook(lambda grad: names.append(name)))  # noqa: B023
tensors["m"].backward()
for handle in handles:
    handle.remove()

print(names)
assert names == ["m", "m", "m"]

# %% [markdown]
# A function looks up a variable **when it runs**, not when it's created. When `backward()` runs, the loop has ended and `name` is
# `"m"`. This is called **late binding**. (The comment `noqa` tells the linter ruff, which knows this trap as B023, that it's
# intended here.)
#
# So pass the name to the function while you create it, either as a default argument or with `functools.partial`, which fills in a
# function's first arguments in advance.

# %% tags=["field", "field-31"]
def note_name(name, grad):
    by_partial.append(name)


by_default, by_partial, handles = [], [], []
tensors["h"] = x + 2
tensors["s"] = tensors["h"] ** 2
tensors["m"] = tensors["s"].mean()
for name, tensor in tensors.items():
    handles += [
        tensor.register_hook(lambda grad, name=name: by_default.append(name)),
        tensor.register_hook(functools.partial(note_name, name)),
    ]
tensors["m"].backward()
for handle in handles:
    handle.remove()

print(by_default, by_partial)
assert by_default == by_partial == ["m", "s", "h"]  # the last tensor comes first

# %% [markdown] tags=["exercise"]
# ### Exercise 2.4 · Gradients by name
# ●●○ · 10 minutes
#
# You get a dictionary of named tensors and a result `z`. Call `z.backward()` once, and return a dictionary from names to the
# gradients **of this pass**. Leave out tensors that no gradient reaches: those that don't require grad, and those that `z`
# doesn't depend on. When your function returns, no hook is left.
#
# <details><summary>Hint: my dictionary has one entry</summary>
#
# What is the value of the loop's variable when the hook runs?
# </details>
# <details><summary>Hint: the check says that hooks are still there</summary>
#
# There are several handles. A single variable keeps only the last of them.
# </details>
# <details><summary>Hint: the gradient of one tensor is far too large</summary>
#
# A leaf may already have a `.grad`, and the new gradient is added to it. Don't read `.grad`.
# </details>

# %% tags=["solution"]
def gradients_by_name(
    named: dict[str, torch.Tensor], z: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Call z.backward(); return name -> gradient for each tensor that one reached."""
    ### BEGIN SOLUTION
    seen: dict[str, torch.Tensor] = {}
    handles = [
        tensor.register_hook(functools.partial(seen.__setitem__, name))
        for name, tensor in named.items()
        if tensor.requires_grad
    ]
    z.backward()
    for handle in handles:
        handle.remove()
    return seen
    ### END SOLUTION

# %% tags=["check"]
check("2.4", gradients_by_name)

# %% [markdown]
# ### An object for `with`
#
# You can use your own object in a `with` statement if it has two methods. `__enter__` runs at the start of the block, and what it
# returns is what `as` gives you. `__exit__` runs at the end, even after an exception, and receives three arguments that describe
# the exception. If it returns something true, the exception is suppressed, which you seldom want.

# %%
class Block:
    def __enter__(self):
        print("open")
        return self

    def __exit__(self, *exception):
        print("closed, error:", exception[0])


with Block() as block:
    print("inside")

try:
    with Block():
        raise ValueError
except ValueError:
    print("and the error came out")
assert isinstance(block, Block)

# %% [markdown] tags=["exercise"]
# ### Exercise 2.5 · A hook with a memory
# ●●○ · 10 minutes
#
# Write a class that stores the **norm** (the length, `grad.norm()`) of every gradient of a tensor while a `with` block runs. Its
# method `keep` is the hook.
#
# ```python
# with GradientNorms(y) as log:
#     z.backward()
# log.norms  # a list of Python floats
# ```
#
# Before and after the block the tensor has no hook, even if the block raises an exception. The same object may be used
# for several blocks, one after the other.
#
# <details><summary>Hint: "'NoneType' object has no attribute 'norms'"</summary>
#
# `as log` gives you whatever `__enter__` returns.
# </details>
# <details><summary>Hint: "expected Variable, but hook returned 'float'"</summary>
#
# A hook that only reads returns `None`.
# </details>
# <details><summary>Hint: <code>__exit__</code> does not know what to remove</summary>
#
# `__enter__` can store the handle on `self`.
# </details>

# %% tags=["solution"]
class GradientNorms:
    """Store the norm of each gradient of `tensor` while a `with` block runs."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor
        self.norms: list[float] = []

    def keep(self, grad: torch.Tensor) -> None:
        """The hook: store the norm as a Python float."""
        ### BEGIN SOLUTION
        self.norms.append(grad.norm().item())
        ### END SOLUTION

    def __enter__(self) -> "GradientNorms":
        ### BEGIN SOLUTION
        self.handle = self.tensor.register_hook(self.keep)
        return self
        ### END SOLUTION

    def __exit__(self, *exception: object) -> None:
        ### BEGIN SOLUTION
        self.handle.remove()
        ### END SOLUTION

# %% tags=["check"]
check("2.5", GradientNorms)

# %% [markdown] tags=["exercise"]
# ### Exercise 2.6 · Clip inside a loop that you can't edit
# ●●● · 15 minutes
#
# You can call `train()`, but you can't edit it. While it runs, clip the gradient of each parameter **by norm**: a gradient longer
# than `limit` is shortened to length `limit` and keeps its direction; a shorter one stays the same. Return what `train()` returns.
# Leave no hook behind, even if `train()` raises an exception. Some parameters may be frozen.
#
# <details><summary>Hint: "cannot register a hook on a tensor that doesn't require gradient"</summary>
#
# `model.parameters()` includes the frozen ones.
# </details>
# <details><summary>Hint: a gradient became NaN</summary>
#
# A gradient can be all zeros. What is its norm, and what do you divide by?
# </details>
# <details><summary>Hint: the check says that hooks are left after an exception</summary>
#
# `finally` runs in any case, and so does the end of a `with` block.
# </details>

# %% tags=["solution"]
def run_clipped(
    model: nn.Module, limit: float, train: Callable[[], object]
) -> object:
    """Call train() while each parameter's gradient is clipped to the norm `limit`."""
    ### BEGIN SOLUTION
    def clip(grad: torch.Tensor) -> torch.Tensor:
        norm = grad.norm()
        return grad * (limit / norm) if norm > limit else grad

    with ExitStack() as handles:
        for parameter in model.parameters():
            if parameter.requires_grad:
                handles.enter_context(parameter.register_hook(clip))
        return train()
    ### END SOLUTION

# %% tags=["check"]
check("2.6", run_clipped)

# %% [markdown]
# ### One norm over all parameters
#
# If the training loop is yours, you need no hook for this: call `torch.nn.utils.clip_grad_norm_(model.parameters(), limit)`
# between `backward()` and `step()`. There's a difference, though: it computes **one** norm over all parameters together, which
# no single hook can see.

# %% tags=["field", "field-clip"]
a, b = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
(3 * a + 4 * b).sum().backward()
norm_of_all = torch.nn.utils.clip_grad_norm_([a, b], max_norm=1.0)

print("one norm over both:", norm_of_all.item())
print("clipped:", round(a.grad.item(), 3), "and", round(b.grad.item(), 3))
assert norm_of_all.item() == 5.0  # the root of 9 + 16
assert torch.allclose(torch.cat([a.grad, b.grad]), torch.tensor([0.6, 0.8]), atol=1e-4)

# %% [markdown]
# ### An adversarial example needs no hook
#
# S2 names *adversarial examples* as a use of hooks. The gradient of an **image** tells you how to change each pixel so that the
# loss grows. But an image with `requires_grad=True` is a leaf, so its gradient is in `.grad`. Below, each pixel gets one shade
# lighter or darker (there are seventeen): at random, or as the gradient says.

# %% tags=["claim-S2.11"]
network, _ = training.run(0.03)
image = images.clone().requires_grad_()
F.cross_entropy(network(image), labels).backward()
torch.manual_seed(0)
directions = {
    "no change": 0,
    "at random": torch.randn_like(images).sign(),
    "by the gradient": image.grad.sign(),
}

right = {}
for name, direction in directions.items():
    moved = (images + direction).clamp(0, 16)
    right[name] = (network(moved).argmax(dim=1) == labels).float().mean().item()
    print(f"{name:<16} {10 * right[name]:.0f} in 10 right")
assert right["no change"] > 0.8 and right["at random"] > 0.8
assert right["by the gradient"] < 0.8

# %% [markdown]
# ### "My hook multiplies the gradient by 1000, and the optimizer's step does not change"
#
# Adam divides each gradient by a running average of its own size, so a constant factor cancels out. SGD doesn't, and its step
# grows with the factor. To train a layer faster or more slowly under Adam, put it into a parameter group with its own learning
# rate. ([The thread](https://github.com/pytorch/pytorch/issues/2843))

# %% tags=["field", "field-11"]
def one_step(optimizer_class, factor):
    w = torch.tensor([1.0], requires_grad=True)
    optimizer = optimizer_class([w], lr=0.01)
    with w.register_hook(lambda grad: factor * grad):
        ((2 * w) ** 2).sum().backward()
    optimizer.step()
    return w.grad.item(), round(w.item(), 3)


for optimizer_class in (torch.optim.SGD, torch.optim.Adam):
    for factor in (1, 1000):
        grad, w = one_step(optimizer_class, factor)
        name = optimizer_class.__name__
        print(f"{name:<4} factor {factor:>4}: w.grad = {grad:<6}  w = {w}")

assert one_step(torch.optim.SGD, 1) == (8.0, 0.92)
assert one_step(torch.optim.SGD, 1000) == (8000.0, -79.0)  # 80 instead of 0.08
assert one_step(torch.optim.Adam, 1) == (8.0, 0.99)
assert one_step(torch.optim.Adam, 1000) == (8000.0, 0.99)  # the same step

# %% [markdown]
# ### "My hook makes the gradient zero, and the weight still moves"
#
# Momentum and weight decay are added by the optimizer, so they move a weight even if its gradient is zero. To freeze a whole
# weight, call `requires_grad_(False)` and leave it out of the optimizer. To freeze a part of it, restore the old numbers after
# each step. ([The thread](https://github.com/pytorch/pytorch/issues/38581))

# %% tags=["field", "field-148"]
def moved_by_a_step(**settings):
    w = torch.tensor([1.0], requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1, **settings)
    w.sum().backward()
    optimizer.step()  # one ordinary step
    optimizer.zero_grad()

    before = w.item()
    with w.register_hook(torch.zeros_like):  # and one with a gradient of zero
        w.sum().backward()
    optimizer.step()
    return round(before - w.item(), 3)


print("plain:", moved_by_a_step())
print("with momentum:", moved_by_a_step(momentum=0.9))
print("with weight decay:", moved_by_a_step(weight_decay=0.1))
assert moved_by_a_step() == 0.0
assert moved_by_a_step(momentum=0.9) == 0.09  # 0.9 of the previous step
assert moved_by_a_step(weight_decay=0.1) == 0.009  # 0.1 of the weight 0.9, times 0.1

# %% [markdown]
# ### "My hook on `w.T`, or on a chunk, never runs"
#
# `w.T`, `h.chunk(3)`, `h[0]` and `x.view(…)` create a **new tensor** each time. You hooked one, and the loss was computed from
# another. Take it once, and use the tensor that you hooked. Or hook `h` or `w` itself, and cut your part out of its gradient.

# %% tags=["field", "field-new-tensor"]
w = torch.ones(2, 3, requires_grad=True)
h = torch.ones(1, 6, requires_grad=True) * 2
seen = {}


def record(name):
    return lambda grad: seen.update({name: tuple(grad.shape)})


w.T.register_hook(record("w.T"))  # a new tensor, which nothing uses
q, k, v = h.chunk(3, dim=1)
h.chunk(3, dim=1)[0].register_hook(record("chunk, taken again"))
q.register_hook(record("q"))  # the tensor that the loss uses
w.register_hook(record("w"))  # its gradient, transposed, is that of w.T
((q + k + v) @ w).sum().backward()
print(seen)
assert w.T is not w.T and seen == {"q": (1, 2), "w": (2, 3)}

# %% [markdown]
# ### "I hooked a tensor and then changed it in place"
#
# Which value does the hook belong to, the old or the new one? To the old one. A hook stays at the place in the graph where you
# registered it, while `retain_grad()` follows the tensor to its newest value.
# ([The change that settled it](https://github.com/pytorch/pytorch/pull/79996)) So register the hook after the last in-place
# change, or write `y = y * 5` with a new name for the second value.

# %% tags=["field", "field-08"]
x = torch.ones(1, requires_grad=True)
y = x * 1
seen = []
with y.register_hook(lambda grad: seen.append(("hooked before mul_", grad.item()))):
    y.retain_grad()
    y.mul_(5)  # y is 5x from now on
    with y.register_hook(lambda grad: seen.append(("hooked after mul_", grad.item()))):
        y.sum().backward()

print(*seen, sep="\n")
print("y.grad =", y.grad.item())
assert seen == [("hooked after mul_", 1.0), ("hooked before mul_", 5.0)]
assert y.grad.item() == 1.0  # retain_grad() follows y to its new value
