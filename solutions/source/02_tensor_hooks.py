# %% [markdown]
# # 2 · How do I read, keep or change a gradient while it flows?
#
# **Time** 50 minutes, and 55 for what comes after the recap &nbsp;·&nbsp; **You need** lesson 1
#
# After this lesson you can
#
# - keep the gradient of any tensor that requires one, with one line and no trace left behind;
# - change a gradient on its way, safely;
# - say in which order hooks run, and what `.grad` holds in the end;
# - watch the gradients of a network while it trains, and find out why it does not.

# %% tags=["setup"]
import functools
import gc
import warnings
from collections.abc import Callable
from contextlib import ExitStack

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle

from hooklab import check, predict, progress, reveal
from hooklab.course.errors import error_of
from hooklab.course.lesson02 import figures, training

torch.set_num_threads(1)
warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")  # lesson 1 has read it

# %% [markdown]
# ## Three hooks, a few characters apart
#
# Four twos are squared, and the mean is taken. Each of the four has the gradient $\tfrac14 \cdot 2x = 1$. Three people want
# a hook that doubles this gradient:

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
    z = torch.mean(torch.pow(x, 2))
    with x.register_hook(hook):  # removed again at the end of this block
        z.backward()
    found[hook.__name__] = x.grad.tolist()
    print(f"{hook.__name__:<7}", found[hook.__name__])

# %% tags=["claim-S3.2", "claim-S3.3"]
reveal("2.a", [name for name, grad in found.items() if grad == [2.0, 2.0, 2.0, 2.0]])
assert found["first"] == found["third"] == [2.0, 2.0, 2.0, 2.0], (
    "With the page's four twos, the first and the third hook double the gradient to 2."
)
assert found["second"] == [1.0, 1.0, 1.0, 1.0], (
    "With the page's four twos, the second hook leaves the gradient at 1."
)

# %% [markdown]
# Whatever you guessed: `*=` works **in place**, that is, it writes into a tensor that others may share. Don't do that in a
# hook ("If you want more" shows it changing another tensor's gradient, and failing).

# %% [markdown]
# ## Read: a hook that looks
#
# A **tensor hook** is a function with one argument. `y.register_hook(function)` hands the function over and calls
# nothing yet. When `backward()` reaches `y`, PyTorch calls it with the gradient of `y`. `x`, `y` and `z` are those of lesson 1.

# %% tags=["claim-S0.5"]
grad_list = []
x = torch.tensor([[1.0], [3.0]], requires_grad=True)
y = x + 2
z = torch.mean(torch.pow(y, 2))

handle = y.register_hook(grad_list.append)
print("registered:    ", len(grad_list), "gradients in the list")
z.backward()
print("after backward:", len(grad_list), "gradient, ", grad_list[0].flatten().tolist())
handle.remove()

assert grad_list[0].flatten().tolist() == [3.0, 5.0]
assert x.grad.flatten().tolist() == [3.0, 5.0]  # the hook only looked

# %% [markdown]
# Why can a list's `append` be a hook? Because of what it returns: `None`. From a hook, `None` means "leave the gradient
# as it is". `print` returns `None` too.

# %% tags=["claim-S0.5"]
assert [].append(1) is None and print(end="") is None

y = x + 2
with y.register_hook(print):  # `with` removes the hook at the end of the block
    torch.mean(torch.pow(y, 2)).backward()

# %% [markdown]
# ### Which tensors can have a hook?
#
# **"`cannot register a hook on a tensor that doesn't require gradient`."** You froze a network, and now a tool that
# hooks its activations stops with this line. Nothing in the frozen network asks for a gradient (under `torch.no_grad()`
# nothing does), so none will ever pass, and PyTorch tells you at once; `retain_grad()` refuses for the same reason.
# ([A thread about it](https://github.com/frgfm/torch-cam/issues/217))

# %% tags=["claim-S1.2", "field", "field-03", "field-149"]
frozen = nn.Linear(2, 1).requires_grad_(False)
image = torch.ones(1, 2)
output = frozen(image)
message = error_of(output.register_hook, print)

print("requires_grad =", output.requires_grad)
print(message)
assert message == "RuntimeError: cannot register a hook on a tensor that doesn't require gradient"
assert error_of(output.retain_grad) == "RuntimeError: can't retain_grad on Tensor that has requires_grad=False"

# %% [markdown]
# Two ways out: ask `tensor.requires_grad` first and skip what is frozen; or, if you do want the gradient, let the
# **input** require one. Then everything after it does.

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
# Several losses were computed from the same `y`. Call `backward()` on each, in order, and return the **list of the
# gradients of y**, one for each loss. When your function returns, no hook is left on `y`.
#
# <details><summary>Hint: my list is empty</summary>
#
# Print `len(...)` before and after each `backward()`. Was the hook there when the gradient passed?
# </details>
# <details><summary>Hint: my list is longer than the list of losses</summary>
#
# How many hooks are on `y` when the last loss is sent back? One is enough for all of them.
# </details>

# %% tags=["solution"]
def record_gradients(
    y: torch.Tensor, losses: list[torch.Tensor]
) -> list[torch.Tensor]:
    """Send each loss back; return the gradient of y for each, shaped like y."""
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
# ## Change: what a hook returns flows on
#
# A **tensor** that a hook returns takes the gradient's place. How far does that reach? Hook `y`, and look at `x`:

# %% tags=["claim-S0.6", "claim-S2.2"]
x = torch.tensor([[1.0], [3.0]], requires_grad=True)
y = x + 2
z = torch.mean(torch.pow(y, 2))
with y.register_hook(lambda grad: 10 * grad):
    z.backward()

print("x.grad =", x.grad.flatten().tolist(), "  and y.grad is", y.grad)
assert x.grad.flatten().tolist() == [30.0, 50.0]  # everything that y was computed from gets it
assert y.grad is None  # it was offered nowhere: it flowed on

# %% [markdown]
# **"`hook '<lambda>' has changed the size of value`."** You meant to look at a norm, and got this error. What you return
# must fit the gradient's place: one tensor, with its shape and its dtype. And a lambda returns the value of its
# expression, whether you want that or not. The mend: a hook that looks returns `None`.
# ([A thread about it](https://github.com/pytorch/pytorch/issues/5022))

# %% tags=["claim-S0.6", "field", "field-06"]
def backward_with(hook) -> str:
    x = torch.ones(2, requires_grad=True)
    with x.register_hook(hook):
        return error_of((2 * x).sum().backward).split(" (")[0]


outcomes = {
    "another shape": backward_with(lambda grad: grad.norm()),
    "another dtype": backward_with(lambda grad: grad.double()),
    "no tensor": backward_with(lambda grad: grad.norm().item()),
    "a tuple": backward_with(lambda grad: (grad,)),
}
for returned, outcome in outcomes.items():
    print(f"{returned:<14} {outcome}")

assert outcomes["another shape"].endswith("has changed the size of value")
assert outcomes["another dtype"].endswith("has changed the type of value")
assert outcomes["no tensor"] == "TypeError: expected Variable, but hook returned 'float'"  # Variable: the old name
assert outcomes["a tuple"] == "TypeError: expected Variable, but hook returned 'tuple'"

norms = []
assert backward_with(lambda grad: norms.append(grad.norm().item())) == "no error"
assert abs(norms[0] - 8**0.5) < 1e-6  # the gradient is [2, 2]

# %% [markdown] tags=["exercise"]
# ### Exercise 2.2 · Turn a gradient up or down
# ●○○ · 5 minutes
#
# From now on, the gradient of `tensor` shall be multiplied by `factor`. Do not write into the gradient that you are given:
# other tensors may share it. Return the **handle**, so that the caller can end this.
#
# <details><summary>Hint: the check says that the gradient is as it would be without the hook</summary>
#
# Compare your hook with the second and the third one at the top of this lesson.
# </details>
# <details><summary>Hint: the check says that there is no hook on the tensor</summary>
#
# `with` removes the hook when its block ends. Here the caller decides when it ends.
# </details>

# %% tags=["solution"]
def scale_gradient(tensor: torch.Tensor, factor: float) -> RemovableHandle:
    """Hook `tensor` so that its gradient is multiplied by `factor`; return the handle."""
    ### BEGIN SOLUTION
    return tensor.register_hook(lambda grad: factor * grad)
    ### END SOLUTION

# %% tags=["check"]
check("2.2", scale_gradient)

# %% [markdown]
# ## Several hooks: one after the other
#
# Hooks run in the order in which they were registered, and each gets what the one before it made. And `retain_grad()`? Ask
# for it **first**, then register a hook that looks and one that doubles. The gradient [3, 5] arrives at `y`.

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
after = {"look": got["double"], "double": y.grad}
figure = figures.hook_chain(got["look"], after, kept=y.grad, owner="y")
plt.show()

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
# (What `retain_grad()` keeps when there are hooks was changed in [this pull
# request](https://github.com/pytorch/pytorch/pull/85849).)
#
# ## The handle
#
# Registering notes the function in a dictionary of the tensor, and `remove()` crosses it out: after `backward()`, or the hook
# never runs. Nothing else does: if you throw the handle away, the hook stays.

# %% tags=["claim-S3.5"]
ran = []
y = x + 2

handle = y.register_hook(lambda grad: ran.append("removed before"))
handle.remove()

handle = y.register_hook(lambda grad: ran.append("removed after"))
with y.register_hook(lambda grad: ran.append("with")):
    y.register_hook(lambda grad: ran.append("handle thrown away"))
    gc.collect()  # Python clears away what nobody keeps
    y.sum().backward()
handle.remove()

print(ran, "  still on y:", len(y._backward_hooks))
assert ran == ["removed after", "with", "handle thrown away"] and len(y._backward_hooks) == 1

# %% [markdown]
# How bad is a forgotten hook? It depends on the tensor. A **non-leaf** is made anew in each forward pass, and the hook goes
# with the old one. A **leaf** such as a parameter stays, and its hooks stay with it. Here somebody registers a doubling
# hook in every step of a loop.

# %%
w = torch.ones(1, requires_grad=True)
on_leaf, on_non_leaf, handles = [], [], []
for _ in range(4):
    w.grad = None
    y = w * 1
    y.register_hook(third)
    y.sum().backward()
    on_non_leaf.append(w.grad.item())

for _ in range(4):
    w.grad = None
    handles.append(w.register_hook(third))  # kept only to clean up below
    w.sum().backward()
    on_leaf.append(w.grad.item())
for handle in handles:
    handle.remove()

print("on a new y each time:", on_non_leaf)
print("on the same w:       ", on_leaf)
assert on_non_leaf == [2.0, 2.0, 2.0, 2.0]
assert on_leaf == [2.0, 4.0, 8.0, 16.0]  # one hook more in each step

# %% [markdown]
# So keep every handle, or write `with`: the end of its block removes the hook in any case, after an error too.

# %%
y = x + 2
try:
    with y.register_hook(print):
        raise ValueError("something went wrong before backward")
except ValueError as error:
    print(error)

assert len(y._backward_hooks) == 0

# %% [markdown] tags=["exercise"]
# ### Exercise 2.3 · Mend it: half the gradient
# ●●○ · 8 minutes
#
# This script wants to send each loss back, let only **half** of the gradient pass `tensor`, and return the gradients that
# **arrived** there, one for each loss. It is broken in more than one way. Mend it, and leave no hook behind.
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
# `grad *= 0.5` writes into the very tensor that you have just put into the list.
# </details>
# <details><summary>Hint: my list has too many gradients, and what passes gets smaller and smaller</summary>
#
# How many hooks are on `tensor` when the third loss is sent back?
# </details>

# %% tags=["solution"]
def halve(tensor: torch.Tensor, losses: list[torch.Tensor]) -> list[torch.Tensor]:
    """Send each loss back with half the gradient passing `tensor`; return the gradients that arrived at it."""
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
# ## On a leaf: before and after `.grad`
#
# **"Inside my hook, `param.grad` is None, or old."** A tensor hook of a leaf runs **before** the gradient is added to
# `.grad`: it must, since it may still change it. For the finished `.grad` there is a hook of its own, which only leaves
# have: `register_post_accumulate_grad_hook`. It gets the **tensor**, not the gradient, and returns nothing.
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
# And `torch.autograd.grad`, which writes no `.grad`? It runs the tensor hooks of an input, and returns what they made of the
# gradient; a post-accumulate hook has nothing to wait for. (Before 2.0 the tensor hook was not called, and
# [threads](https://github.com/pytorch/pytorch/issues/35802) still say so.)

# %% tags=["field", "field-09"]
x = torch.ones(1, requires_grad=True)
log = []


def ten_times(grad):
    log.append("tensor hook")
    return 10 * grad


with x.register_hook(ten_times), x.register_post_accumulate_grad_hook(lambda x: log.append("post-accumulate")):
    (grad,) = torch.autograd.grad(5 * x, x)

print("returned:", grad.item(), "  ran:", log)
assert grad.item() == 50.0 and log == ["tensor hook"] and x.grad is None

# %% [markdown]
# ## Use it: why does this network not learn?
#
# Scikit-learn's digits are 1797 pictures of 8x8 pixels. The pixels go from 0 to 16, and somebody forgot to scale them. The
# step size, 1.0, is large as well. After a hundred steps the network reads one picture in ten right, which is what
# guessing gives. What do its gradients say?
#
# `training.run` trains, and calls a function of yours with each parameter's name and the parameter, so that you can put a hook
# on it. It removes the hooks at the end.

# %%
norms, cut = {}, []


def watch(name, parameter):
    norms[name] = []
    return parameter.register_hook(lambda grad: norms[name].append(grad.norm().item()))

# %%
predict("2.c")

# %% tags=["predict"]
norms = {}
network, right = training.run(1.0, watch)
large = {"norms": norms["0.weight"], "right": right}

images, labels = training.raw_digits()
with torch.no_grad():  # the layers are 0 and 2, each with its ReLU behind it
    off = [not network[:end](images).any() for end in (2, 4)]

print("What came out:")
print("norm of the first layer's gradient, in the last step:", large["norms"][-1])
print(
    f"all zeros, for all {len(images):,} pictures: layer 0 {off[0]}, layer 2 {off[1]}"
)

# %%
reveal("2.c", large["norms"][-1])
assert large["right"] < 0.2 and len(large["norms"]) == 100, (
    "With the page's step of 1.0, a hundred steps teach the network next to nothing."
)
assert any(off), "With the page's step of 1.0, a whole layer ends up at zero."

# %% [markdown]
# What would have helped? Many people reach for **clipping**: keep each number of a gradient within a limit. A hook does it,
# and a second hook, put before it, counts how many numbers it cuts.

# %% tags=["field", "field-clip"]
def clip(name, parameter):
    return parameter.register_hook(lambda grad: grad.clamp(-0.01, 0.01))


def count(name, parameter):
    return parameter.register_hook(lambda grad: cut.append(((grad.abs() > 0.01).sum().item(), grad.numel())))


cut, norms = [], {}
_, right = training.run(1.0, count, clip, watch)  # in this order the hooks run
share, late_share = (sum(number for number, _ in part) / sum(of for _, of in part) for part in (cut, cut[-60:]))
clipped = {"norms": norms["0.weight"], "right": right, "cut": share}

norms = {}
_, right = training.run(0.03, watch)  # no clipping at all, a smaller step
small = {"norms": norms["0.weight"], "right": right}

assert share > 0.4 and late_share > 0.4 and clipped["right"] > 0.8 and small["right"] > 0.8

# %% tags=["figure"]
trainings = {"step 1.0": large, "step 1.0, clipped": clipped, "step 0.03": small}
ceiling = 0.01 * (32 * 64) ** 0.5  # 0.01 in each of 32 x 64 numbers
figure = figures.norms_over_steps(trainings, ceiling, quiet=0.1)
plt.show()

assert max(clipped["norms"]) <= ceiling + 1e-6 and max(large["norms"]) > 5 * ceiling
assert large["norms"][-1] == 0.0 and min(clipped["norms"][-10:]) > 0.0 and min(small["norms"][-10:]) > 0.0

# %% [markdown]
# *What to see:* without clipping the gradients shoot up in the first steps and end at nothing. The clipped ones stay
# near their ceiling (dashed) all the way. A step of 0.03 needs no hook, and does as well. (The axis is logarithmic above
# 0.1, and reaches down to 0.)
#
# So the hooks have found out two things that the loss does not tell. The layer had **died**: that is why waiting did not
# help. And the clipping that seemed to mend it was no safety net for rare moments: it cut **about half of all numbers**, all
# through the training. The fault was a step too large for pixels that nobody had scaled, and a smaller one mends it.

# %% [markdown] tags=["recap"]
# ## Recap
#
# A tensor hook gets the gradient as it passes. `None` leaves it as it is, a tensor takes its place, for everything before.
# Hooks run in order; `retain_grad()` and `.grad` hold what the last one made. `with` takes a hook off again.
#
# | the documents say | today |
# |---|---|
# | `y.register_hook(fn)` runs `fn` in backward; print the gradient or append it to a list (S0) | true; `grad_list.append` is such a function, because it returns `None` |
# | `hook(grad) -> Variable or None`; the result changes the gradient (S0) | true; the result needs the shape and the dtype of the gradient, anything else is an error |
# | `register_hook` is for variables with `requires_grad=True` (S1) | true; for others a RuntimeError |
# | a tensor hook cannot change data, it only offers a new value in `tensor.grad` (S2) | wrong: what it returns flows on, to everything before this tensor |
# | `grad = grad * 2` without `return` has no effect; returning is the safe way (S3) | true, and the only way that PyTorch supports |
# | `remove()` must come after `backward()` (S3) | true; `with` says it best |
# | ↓ example: three hooks on a small module, `y.grad` is None, the list has the gradient (S2) | true |
# | a tensor hook's result becomes the tensor's own final gradient (S4) | true; with several hooks, the result of the last one |
# | ↓ `grad *= 2` in a hook doubles the gradient (S3) | in its example; after a `sum()` it raises, and it can change other tensors' gradients |
# | ↓ a hook defined in a class takes `self` first (S3) | true; register the bound method, `obj.hook` |
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | tensor hook | 张量钩子 | a function that gets a tensor's gradient as it passes, and may replace it |
# | handle | 句柄 | what `register_hook` returns; `remove()` takes the hook off |
# | in place | 原地操作 | writing into an existing tensor instead of making a new one |
# | post-accumulate hook | 累积后钩子 | runs after a leaf's `.grad` was written, and gets the leaf |
# | gradient clipping | 梯度裁剪 | keeping a gradient within a limit |
# | ↓ late binding | 延迟绑定 | a function looks a variable up when it runs |
# | ↓ bound method | 绑定方法 | a method taken from an object, which knows its `self` |
#
# (↓ is shown below, in "If you want more".)

# %% [markdown] tags=["quiz"]
# ### Three questions
#
# **1.** Two hooks on `y`, in this order: `lambda grad: grad + 1` and `lambda grad: 2 * grad`. The gradient 3 arrives. What
# flows on, and what does `retain_grad()` keep?
#
# <details><summary>Answer</summary>
#
# Both times 8: (3 + 1) times 2. Hooks run in order of registration, each on the last result, and `retain_grad()` keeps
# the end of the chain.
# </details>
#
# **2.** In your training loop you write `model.weight.register_hook(clip)` in each step. Why is this worse than
# `y.register_hook(clip)`, where `y` is a result of the forward pass?
#
# <details><summary>Answer</summary>
#
# The weight stays, so the hooks pile up: after a hundred steps a hundred of them run. `y` is a new tensor in each step,
# and its hook goes with it.
# </details>
#
# **3.** Why must a hook not write `grad.clamp_(-1, 1)`, although `grad.clamp(-1, 1)` is fine?
#
# <details><summary>Answer</summary>
#
# `clamp_` writes into a tensor that others may share: it can change another tensor's gradient, or raise when the
# gradient is one number that stands for many. `clamp` makes a new tensor, which the hook returns.
# </details>

# %%
progress(2)

# %% [markdown]
# ## If you want more
#
# ### In place, and why not
#
# Back to the first hook, `grad *= 2`: it writes into the tensor that it was given. PyTorch's own page says that a hook
# [should not modify its argument](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.register_hook.html). There are
# two reasons. **It can fail:** every element of a sum has the gradient 1, and PyTorch sends *one* number that is seen four
# times, an *expanded* tensor. Nobody can write four results into one number.

# %% tags=["claim-S3.4", "field", "field-05"]
strides = []
x = torch.tensor([2.0, 2.0, 2.0, 2.0], requires_grad=True)
with x.register_hook(lambda grad: strides.append(grad.stride())), x.register_hook(first):
    message = error_of(x.sum().backward).split(". ")[0]

print("stride", strides[0], "  ", message)
assert strides[0] == (0,)  # from one element to the next: zero steps in memory
assert message.startswith("RuntimeError: unsupported operation: more than one element")

with x.register_hook(third):
    x.sum().backward()
assert x.grad.tolist() == [2.0, 2.0, 2.0, 2.0]  # returning a new tensor works

# %% [markdown]
# **It can reach others.** *"I zeroed one tensor's gradient in a hook, and another tensor lost its gradient as well."* The
# gradient of `a + b` is the same for both, so PyTorch hands them the same tensor. Write into it, and whoever gets it
# later gets what you wrote. Here `b * 1` was computed last and is served first: hook it, and `a` loses its gradient as well; hook
# `a`, which comes last, and `b` has its gradient already.
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

assert gradients_with(zero_in_place, "b") == ([0.0, 0.0], [0.0, 0.0])  # a lost its gradient too
assert gradients_with(zero_in_place, "a") == ([0.0, 0.0], [4.0, 4.0])
assert gradients_with(torch.zeros_like, "b") == ([4.0, 4.0], [0.0, 0.0])

# %% [markdown]
# ### Many tensors: the loop
#
# **"All my hooks report the last layer."** A hook gets the gradient and nothing else, no name. So you use the loop's
# variable inside the hook, and every hook says the same. ([A thread about
# it](https://github.com/pytorch/torchtitan/pull/1326))

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
# A function looks a variable up **when it runs**, not when it is made. When `backward()` runs, the loop is long over and
# `name` is `"m"`. This is called **late binding**. (`noqa` tells the linter ruff, which knows this trap as B023, that we
# mean it.)
#
# The mend: give the name to the function while you make it. Either with a default argument, or with
# `functools.partial`, which fills in a function's first arguments ahead of time.

# %% tags=["field", "field-31"]
def note_name(name, grad):
    by_partial.append(name)


by_default, by_partial, handles = [], [], []
tensors["h"] = x + 2
tensors["s"] = tensors["h"] ** 2
tensors["m"] = tensors["s"].mean()
for name, tensor in tensors.items():
    handles.append(tensor.register_hook(lambda grad, name=name: by_default.append(name)))
    handles.append(tensor.register_hook(functools.partial(note_name, name)))
tensors["m"].backward()
for handle in handles:
    handle.remove()

print(by_default, by_partial)
assert by_default == by_partial == ["m", "s", "h"]  # backward: the last tensor comes first

# %% [markdown] tags=["exercise"]
# ### Exercise 2.4 · Gradients by name
# ●●○ · 10 minutes
#
# You get named tensors and a result `z`. Call `z.backward()` once, and return a dictionary from names to the gradients
# **of this pass**. Leave out what no gradient reaches: tensors that do not require grad, and those that `z` does not
# depend on. No hook is left when your function returns.
#
# <details><summary>Hint: my dictionary has one entry</summary>
#
# Which value does the loop's variable have when the hook runs?
# </details>
# <details><summary>Hint: the check says that hooks are still there</summary>
#
# There are several handles. A single name keeps only the last of them.
# </details>
# <details><summary>Hint: the gradient of one tensor is far too large</summary>
#
# A leaf may come with an old `.grad`, to which the new gradient is added. Do not read `.grad`.
# </details>

# %% tags=["solution"]
def gradients_by_name(
    named: dict[str, torch.Tensor], z: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Send z back once; return name -> gradient for each tensor that one reached."""
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
# ### A method as a hook
#
# Often a hook needs a memory: a list, a counter, a limit. An object has one. When you write `counter.hook`, Python makes a
# **bound method**: a function that already knows its `self` and needs only `grad`.

# %% tags=["claim-S3.6"]
class Counter:
    def __init__(self):
        self.passes = 0

    def hook(self, grad):
        self.passes += 1


counter = Counter()
y = x + 2
with y.register_hook(counter.hook):  # bound: self comes along
    y.sum().backward()
    y.sum().backward()
print("passes:", counter.passes)
assert counter.passes == 2

# %% [markdown]
# Taken from the **class**, it is an ordinary function of two arguments. Nobody complains when you register it; the error
# comes later, in the middle of `backward()`.

# %% tags=["claim-S3.6"]
with y.register_hook(Counter.hook):  # unbound: who is self?
    print("registered, no complaint")
    message = error_of(y.sum().backward)

print(message)
assert message.startswith("TypeError")
assert "missing 1 required positional argument: 'grad'" in message

# %% [markdown]
# An object can also be its own `with` block. It needs two methods. `__enter__` runs at the start, and what it returns is
# what `as` gives you. `__exit__` runs at the end, after an error as well, and gets three arguments that describe the
# error. If it returns something true, the error is swallowed: you seldom want that.

# %%
class Door:
    def __enter__(self):
        print("open")
        return self

    def __exit__(self, *exception):
        print("closed, error:", exception[0])


with Door() as door:
    print("inside")

try:
    with Door():
        raise ValueError
except ValueError:
    print("and the error came out")
assert isinstance(door, Door)

# %% [markdown] tags=["exercise"]
# ### Exercise 2.5 · A hook with a memory
# ●●○ · 10 minutes
#
# Write a class that notes the **norm** (the length, `grad.norm()`) of every gradient that reaches a tensor while a `with`
# block runs. Its method `keep` is the hook.
#
# ```python
# with GradientNorms(y) as log:
#     z.backward()
# log.norms  # a list of Python floats
# ```
#
# Before and after the block no hook is on the tensor, even when the block raises an error. The same object may be used for
# several blocks, one after the other.
#
# <details><summary>Hint: "'NoneType' object has no attribute 'norms'"</summary>
#
# `as log` is whatever `__enter__` returns.
# </details>
# <details><summary>Hint: "expected Variable, but hook returned 'float'"</summary>
#
# A hook that only looks returns `None`.
# </details>
# <details><summary>Hint: <code>__exit__</code> does not know what to remove</summary>
#
# `__enter__` can put the handle on `self`.
# </details>

# %% tags=["solution"]
class GradientNorms:
    """Note the norm of each gradient of `tensor` while a `with` block runs."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor
        self.norms: list[float] = []

    def keep(self, grad: torch.Tensor) -> None:
        """The hook: note the norm, as a Python float."""
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
# ### Exercise 2.6 · Clip inside somebody else's loop
# ●●● · 15 minutes
#
# The training loop is somebody else's: you can call `train()`, and you cannot edit it. While it runs, clip the gradient
# of each parameter **by norm**: a gradient longer than `limit` is shortened to length `limit` and keeps its direction, a
# shorter one stays as it is. Return what `train()` returns. Leave no hook behind, even when `train()` raises. Some
# parameters may be frozen.
#
# <details><summary>Hint: "cannot register a hook on a tensor that doesn't require gradient"</summary>
#
# `model.parameters()` gives you the frozen ones as well.
# </details>
# <details><summary>Hint: a gradient became NaN</summary>
#
# A gradient can be all zeros. What is its norm, and what do you divide by?
# </details>
# <details><summary>Hint: the check says that hooks stayed after an error</summary>
#
# `finally` runs whatever happens; so does the end of a `with` block.
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
# When the loop is your own, you need no hook for this: `torch.nn.utils.clip_grad_norm_(model.parameters(), limit)` stands
# between `backward()` and `step()`. It is not quite the same: it takes **one** norm over all parameters together, which
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
# ### The image is a leaf, too
#
# The gradient of the **image** says how each pixel should change to make the loss larger, that is, how to make an
# *adversarial example*. An image that requires grad is a leaf, so you need no hook: its `.grad` is there. Move each pixel by
# one of its seventeen shades, in that direction, and once more in a random one.

# %%
network, _ = training.run(0.03)
image = images.clone().requires_grad_()
F.cross_entropy(network(image), labels).backward()
torch.manual_seed(0)
directions = {"no change": 0, "at random": torch.randn_like(images).sign(), "by the gradient": image.grad.sign()}

right = {}
for name, direction in directions.items():
    moved = (images + direction).clamp(0, 16)
    right[name] = (network(moved).argmax(dim=1) == labels).float().mean().item()
    print(f"{name:<16} more than 8 in 10 right: {right[name] > 0.8}")
assert right["no change"] > 0.8 and right["at random"] > 0.8 and right["by the gradient"] < 0.8

# %% [markdown]
# ### Three hooks at once
#
# On a tensor, on a module's forward and on its backward: lessons 3 and 5 are about the other two. With $x = (1, 2, 3)$,
# $y = 2x$ and $w = (3, 1, -2)$: what is $z = y \cdot w$? And what are the gradients of $y$, $x$ and $w$?

# %%
class Weigh(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([[3.0], [1.0], [-2.0]]))

    def forward(self, values):
        return values @ self.w


grad_list, forward_list, backward_list = [], [], []


def keep_forward(module, args, output):
    forward_list.append((args[0].tolist(), output.tolist()))


def keep_backward(module, grad_input, grad_output):
    backward_list.append((grad_input[0].tolist(), grad_output[0].tolist()))

# %% tags=["claim-S2.7"]
model = Weigh()
x = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
y = 2 * x
with (
    y.register_hook(grad_list.append),
    model.register_forward_hook(keep_forward),
    model.register_full_backward_hook(keep_backward),
):
    z = model(y)
    z.backward()

print("z =", z.item())
print("tensor hook:    ", grad_list[0].tolist())
print("forward hook:   ", *forward_list[0])
print("backward hook:  ", *backward_list[0])
assert z.item() == 2 * 3 + 4 * 1 + 6 * -2 == -2
assert grad_list[0].tolist() == [[3.0, 1.0, -2.0]]  # dz/dy = w
assert forward_list == [([[2.0, 4.0, 6.0]], [[-2.0]])]  # what went in, what came out
assert backward_list == [([[3.0, 1.0, -2.0]], [[1.0]])]  # the gradient of what went in, and of what came out

print("y.grad =", y.grad, "  x.grad =", x.grad.tolist(), "  w.grad =", model.w.grad.flatten().tolist())
assert type(y.grad).__name__ == "NoneType"  # it is only where the hooks have put it
assert x.grad.tolist() == [[6.0, 2.0, -4.0]]  # 2w: a leaf, it needed no hook
assert model.w.grad.flatten().tolist() == [2.0, 4.0, 6.0]  # y

# %% [markdown]
# ### "My hook multiplies the gradient by 1000, and the optimizer's step does not change"
#
# Adam divides each gradient by a running measure of its own size, so a constant factor cancels. SGD does not, and shows it.
# To slow down or speed up a layer under Adam, give it a learning rate of its own in a parameter group.
# ([The thread](https://github.com/pytorch/pytorch/issues/2843))

# %% tags=["field", "field-11"]
def one_step(optimizer_class, factor):
    w = torch.tensor([1.0], requires_grad=True)
    optimizer = optimizer_class([w], lr=0.01)
    with w.register_hook(lambda grad: factor * grad):
        ((2 * w) ** 2).sum().backward()
    optimizer.step()
    return w.grad.item(), round(w.item(), 3)


for optimizer_class in (torch.optim.SGD, torch.optim.Adam):
    for factor in (1, 10):
        grad, w = one_step(optimizer_class, factor)
        name = optimizer_class.__name__
        print(f"{name:<4} factor {factor:>2}: w.grad = {grad:<4}  w = {w}")

assert one_step(torch.optim.SGD, 1) == (8.0, 0.92)
assert one_step(torch.optim.SGD, 10) == (80.0, 0.2)  # ten times the step
assert one_step(torch.optim.Adam, 1) == (8.0, 0.99)
assert one_step(torch.optim.Adam, 1000) == (8000.0, 0.99)  # the same step

# %% [markdown]
# ### "My hook makes the gradient zero, and the weight still moves"
#
# Momentum and weight decay are the optimizer's own, and move a weight whose gradient is zero. To freeze a whole weight, set
# `requires_grad_(False)` and leave it out of the optimizer; for a part of one, put the old numbers back after each step.
# ([The thread](https://github.com/pytorch/pytorch/issues/38581))

# %% tags=["field", "field-148"]
def moved_by_a_step(**settings):
    w = torch.tensor([1.0], requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1, **settings)
    w.sum().backward()
    optimizer.step()  # one step as usual
    optimizer.zero_grad()

    before = w.item()
    with w.register_hook(torch.zeros_like):  # and one with a gradient of zero
        w.sum().backward()
    optimizer.step()
    return round(before - w.item(), 3)


print("plain:", moved_by_a_step())
print("with momentum:", moved_by_a_step(momentum=0.9), "  with weight decay:", moved_by_a_step(weight_decay=0.1))
assert moved_by_a_step() == 0.0
assert moved_by_a_step(momentum=0.9) == 0.09  # 0.9 of the step before
assert moved_by_a_step(weight_decay=0.1) == 0.009  # 0.1 of the weight 0.9, times 0.1

# %% [markdown]
# ### "I hooked a tensor and then changed it in place"
#
# Which value does the hook belong to? To the old one. A hook stays at the place in the graph where it was registered;
# `retain_grad()` moves on to the newest value. ([The change that settled it](https://github.com/pytorch/pytorch/pull/79996))
# The mend: hook after the last in-place change, or write `y = y * 5`, so that the two values have two names.

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
