# %% [markdown]
# # 1 · Why is `y.grad` None, and where did the gradient go?
#
# **Time** 60 minutes, and 37 for what comes after the recap &nbsp;·&nbsp; **You need** Python classes, `torch.tensor`, and to have seen an `nn.Linear`; no hooks yet
#
# After this lesson you can
#
# - say which tensors keep a gradient after `backward()`, and why the others don't;
# - write a small autograd with hooks yourself, and compare it with PyTorch;
# - get the gradient of any tensor in between, in three ways;
# - explain why a second `backward()` raises an error, and why it sometimes doesn't.

# %% tags=["setup"]
import warnings
import weakref

import matplotlib.pyplot as plt
import torch
from IPython.display import display
from torch import nn

from hooklab import check, predict, progress, reveal
from hooklab.course.errors import error_of
from hooklab.course.lesson01 import engine, explorer, figures

torch.set_num_threads(1)
warnings.filterwarnings(  # shown below, once
    "ignore", message="The .grad attribute of a Tensor that is not a leaf"
)

# %% [markdown]
# ## One step downhill
#
# This lesson follows [S0](00_start_here.ipynb#documents), the shortest of the five documents. S0 wants to find the
# lowest point of
#
# $$z = \tfrac12(y_1^2 + y_2^2), \qquad y = x + 2, \qquad x \in \mathbb{R}^2.$$
#
# Here's S0's script, with numbers that you can check by hand. With $x = (1, 3)$ we get $y = (3, 5)$ and $z = 17$.
# (`requires_grad=True` tells PyTorch to record what you compute from `x`.)

# %% tags=["claim-S0.2", "claim-S0.9"]
x = torch.tensor([[1.0], [3.0]], requires_grad=True)
y = x + 2
z = torch.mean(torch.pow(y, 2))
lr = 1e-3
z.backward()
x.data -= lr * x.grad.data

print("x.grad =", x.grad.flatten().tolist())
print("x after the step:", [round(value, 3) for value in x.flatten().tolist()])
assert z.item() == 17.0  # the mean of two squares is half their sum
assert x.grad.flatten().tolist() == [3.0, 5.0]
assert torch.allclose(x, torch.tensor([[0.997], [2.995]]))

# %% [markdown]
# The last line still works. Today people write `x -= lr * x.grad` under `torch.no_grad()` (the end of this lesson shows
# why), or they use an optimizer. From (1, −4) and with a larger step, twelve repetitions get you close to the lowest point:

# %% tags=["figure"]
x = torch.tensor([1.0, -4.0], requires_grad=True)
optimizer = torch.optim.SGD([x], lr=0.25)
path = [x.detach().clone()]
for _ in range(12):
    optimizer.zero_grad()
    torch.mean((x + 2) ** 2).backward()
    optimizer.step()
    path.append(x.detach().clone())

points = torch.stack(path)
assert torch.allclose(points[-1], torch.tensor([-2.0, -2.0]), atol=0.1)
assert torch.allclose(points[1:] + 2, 0.75 * (points[:-1] + 2))  # straight there
figure = figures.descent(points, centre=(-2, -2))
plt.show()

# %% [markdown]
# *What to see:* each step points straight at the lowest point, and the steps get shorter.
#
# ## Follow one number
#
# Where does the gradient (3, 5) come from? Take one number: $x = 1$, then $y = x + 2 = 3$, then $s = y^2 = 9$, then
# $z = \tfrac12 s = 4.5$. How fast does $z$ change when $x$ changes? Each operation has its own factor. Halving has 0.5,
# squaring has $2y = 6$, and adding has 1. Multiply them from the last operation to the first:
# $0.5 \cdot 6 \cdot 1 = 3$. That's the chain rule, and it's what `backward()` does along each path.

# %%
x = torch.tensor(1.0, requires_grad=True)
y = x + 2
s = y**2
z = 0.5 * s
z.backward()

print("by hand:", 0.5 * (2 * 3) * 1, "  x.grad =", x.grad.item())
assert x.grad.item() == 3.0

# %% [markdown]
# Between `z` and `x` lies `y`. S0 reads the gradient of `y` and gets an "error":

# %% tags=["claim-S0.3"]
x = torch.tensor([[1.0], [3.0]], requires_grad=True)
y = x + 2
z = torch.mean(torch.pow(y, 2))
z.backward()

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print(type(y.grad))

message = str(caught[0].message)
print(message.split(". ")[2] + ".")
assert y.grad is None
assert caught[0].category is UserWarning
assert "use .retain_grad() on the non-leaf Tensor" in message

# %% [markdown]
# It isn't an error: `y.grad` is None, and a warning tells you what to do about it.
#
# ## Was it ever there?
#
# Did `y` have a gradient at some moment? S0 finds out with a **hook**, a function that PyTorch calls at an agreed moment.
# `y.register_hook(function)` asks PyTorch to call the function when the gradient of `y` has been computed. It returns a
# **handle**, which can remove the hook again.

# %%
predict("1.a")

# %% tags=["predict", "hook-tensor"]
grad_list = []


def print_grad(grad):  # S0's name for it, although it stores
    grad_list.append(grad)


y = x + 2
z = torch.mean(torch.pow(y, 2))
handle = y.register_hook(print_grad)
z.backward()
handle.remove()

print("What came out:")
print("y.grad is", y.grad)
print("the hook saw", [grad.flatten().tolist() for grad in grad_list])

# %% tags=["claim-S0.5"]
reveal("1.a", [grad.flatten().tolist() for grad in grad_list])
assert grad_list[0].flatten().tolist() == [3.0, 5.0] and y.grad is None, (
    "With the page's x, the hook sees the gradient [3, 5], and y.grad is None."
)

# %% [markdown]
# So which tensors keep their gradient? That depends on where a tensor comes from:
#
# - A **leaf tensor** isn't the result of a recorded operation. `x` is one. A leaf with `requires_grad=True` keeps its gradient.
# - A **non-leaf tensor** is the result of a recorded operation. Its `grad_fn` is the **node** that stands for this operation.
#   `y` and `z` are non-leaf tensors.
#
# The nodes and their connections are the **autograd graph**. PyTorch records it while you compute.

# %%
for name, tensor in {"x": x, "y": y, "z": z}.items():
    node = tensor.grad_fn.name() if tensor.grad_fn else None
    print(f"{name}: is_leaf={tensor.is_leaf!s:<5}  grad_fn={node}")

assert x.is_leaf and x.grad_fn is None
assert not y.is_leaf and y.grad_fn.name() == "AddBackward0"
assert y.requires_grad and z.requires_grad  # a result of x requires grad, too ...
assert not (x > 0).requires_grad  # ... unless it has no derivative,
assert not x.detach().requires_grad  # or you cut it off from the graph

# %% [markdown] tags=["exercise"]
# ### Exercise 1.1 · Who gets a gradient?
# ●○○ · 4 minutes
#
# You get a dictionary of named tensors. Later, `backward()` is called on a result that depends on all of them. Return the
# **set of names** of the tensors whose `.grad` will be filled. (`retain_grad()` hasn't been called. A list of names is fine,
# too.)
#
# <details><summary>Hint: my set has too many names</summary>
#
# `torch.ones(2).is_leaf` is `True`. Will it get a gradient?
# </details>
# <details><summary>Hint: a result of an operation is in my set</summary>
#
# A non-leaf tensor has `requires_grad=True` as well. You need a second property.
# </details>

# %% tags=["solution"]
def who_gets_a_gradient(named: dict[str, torch.Tensor]) -> set[str]:
    """Return the names of the tensors whose `.grad` backward() fills."""
    ### BEGIN SOLUTION
    return {name for name, t in named.items() if t.is_leaf and t.requires_grad}
    ### END SOLUTION

# %% tags=["check"]
check("1.1", who_gets_a_gradient)

# %% [markdown]
# ## When a value is used twice
#
# So far each value was used once. Now `y` is used twice: $s = y^2$ and $t = 3y$, and then $z = s + t$. With $x = 1$ we have
# $y = 3$. The gradient that comes back through $s$ is $2y = 6$, and the one that comes back through $t$ is $3$.

# %%
predict("1.b")

# %% tags=["predict", "figure"]
x = torch.tensor(1.0, requires_grad=True)
y = x + 2
s, t = y**2, 3 * y
z = s + t
figure = figures.fork(x, y, {"s = y²": s, "t = 3·y": t}, z)

seen = []
# a `with` statement removes the hook at the end of its block
with y.register_hook(lambda grad: seen.append(grad.item())):
    z.backward()

print("What came out:")
print("the hook on y saw", seen)
plt.show()

# %% tags=["claim-S2.10"]
reveal("1.b", seen)
assert seen == [9.0] and x.grad.item() == 9.0, (
    "With the page's functions, the hook on y runs once, with 9, and x.grad is 9."
)

# %% [markdown] tags=["exercise"]
# ### Exercise 1.2 · Pass it on
# ●●○ · 18 minutes
#
# Below is an autograd for single numbers. Only its most important method is missing. `backward` calls `value.arrive(gradient,
# arriving)` for each value, once its gradient is complete. A value's `made_from` lists pairs: a value that it was computed from,
# and the derivative with respect to that one. `arriving` is a dictionary: for each value whose turn hasn't come yet, it holds
# the sum of the pieces that have arrived there so far. Write `arrive`:
#
# 1. Call each of the value's `hooks` with the gradient, in order. If a hook returns something other than `None`, that replaces
#    the gradient, for the next hook as well.
# 2. If the value is a leaf (its `made_from` is empty), **add** the gradient to its `grad`.
# 3. Otherwise, add a piece to `arriving` for each value in `made_from`: the gradient times the derivative.
#
# Don't change `made_from` and `hooks`, because `backward` may run again. If a hook raises, let the exception through.
#
# <details><summary>Hint: x.grad is 1.5 instead of 3.0</summary>
#
# In `y * y`, the value `y` is in `made_from` twice, so two pieces go to it. Add the second to the first.
# </details>
# <details><summary>Hint: "unsupported operand type(s) for +=: 'NoneType' and 'float'"</summary>
#
# Before its first gradient, a leaf's `grad` is `None`.
# </details>
# <details><summary>Hint: KeyError</summary>
#
# For the first piece, `arriving` has no entry yet. `arriving.get(value, 0.0)` returns 0.0 in that case.
# </details>

# %% tags=["solution"]
class Value:
    """A number that remembers what it was made from."""

    def __init__(self, data, made_from=()):
        self.data = data
        self.made_from = made_from  # pairs: a value, and the derivative
        self.grad = None
        self.hooks = []

    def __add__(self, other):
        return Value(self.data + other.data, [(self, 1.0), (other, 1.0)])

    def __mul__(self, other):
        return Value(self.data * other.data, [(self, other.data), (other, self.data)])

    def backward(self):
        arriving = {self: 1.0}
        for value in engine.backward_order(self):  # each after all that use it
            value.arrive(arriving[value], arriving)

    def arrive(self, gradient, arriving):
        ### BEGIN SOLUTION
        for hook in self.hooks:
            changed = hook(gradient)
            if changed is not None:
                gradient = changed
        if not self.made_from:
            self.grad = gradient if self.grad is None else self.grad + gradient
        for value, derivative in self.made_from:
            arriving[value] = arriving.get(value, 0.0) + gradient * derivative
        ### END SOLUTION

# %% tags=["check"]
check("1.2", Value)

# %% [markdown]
# Your autograd and PyTorch's, side by side, for $z = \tfrac12 y^2 + y \cdot x$ with $y = x + 2$:

# %%
print(engine.beside_torch(Value))

# %% [markdown]
# So you don't have to remember that a non-leaf tensor passes its gradient on and doesn't keep it: you've written it. In
# PyTorch, your second rule is a node called `AccumulateGrad`. Each leaf that requires grad has one, and it adds to the leaf's
# `.grad`.

# %%
node_of_x = y.grad_fn.next_functions[0][0]
print("y is the result of", y.grad_fn.name())
print("its gradient goes on to", type(node_of_x).__name__)
assert type(node_of_x).__name__ == "AccumulateGrad" and node_of_x.variable is x

# %% [markdown]
# Step through a real `backward()`. Each step below was recorded in a run. Move the slider, then switch on a hook.

# %% tags=["explorer"]
explorer.backward_steps()

# %% tags=["figure"]
steps = explorer.record_backward()
for number in (2, 5):  # without a kernel: two of the steps
    print(explorer.describe_step(steps, number))
    display(explorer.draw_step(steps, number))

assert steps[2].saved and not steps[3].saved  # a node frees y as soon as it has run
assert steps[-1].grads == {"x": (3.0, 5.0), "y": None, "s": None, "z": None}

# %% [markdown]
# *What to see:* in step 2, the gradient of `s` comes in from the right, and the gradient of `y` goes out to the left. After
# step 5, only `x` has kept its gradient (green).
#
# ## How many gradients are in memory at a time?
#
# S0 says that a gradient is released when it has done its work. Let's check that on a network of forty layers. The hook
# `count` is on the output of every layer. Each time a gradient arrives, it counts the gradients that are still in memory.

# %% tags=["claim-S0.4"]
def gradients_alive(network):
    passed, counts = [], []

    def count(grad):
        passed.append(weakref.ref(grad))  # doesn't keep the gradient alive
        found = [ref() for ref in passed]  # None where it is gone
        counts.append(len({id(one) for one in found if one is not None}))

    def watched(output):
        output.register_hook(count)
        return output

    network(watched).sum().backward()  # the network calls it on each layer's output
    return counts


in_a_chain = gradients_alive(figures.chain)
print("gradients that arrived:", len(in_a_chain))
print("in memory at one time, at most:", max(in_a_chain))
assert len(in_a_chain) == 40 and max(in_a_chain) == 1

# %% [markdown]
# Only one at a time: each gradient is freed as soon as the next one has been computed from it. But forty layers in a row are a
# special case. A U-Net has **long skips**: the output of the first layer is also added to the output of the last layer, the
# output of the second layer to that of the last but one, and so on to the middle.

# %%
predict("1.c")

# %% tags=["predict", "figure"]
with_long_skips = gradients_alive(figures.long_skips)
print("What came out:")
print("in memory at one time, at most:", max(with_long_skips))
figure = figures.alive({"with long skips": with_long_skips, "a chain": in_a_chain})
plt.show()

# %%
reveal("1.c", max(with_long_skips))
assert len(with_long_skips) == 40 and max(with_long_skips) == 20, (
    "With the page's forty layers, at most 20 gradients are in memory at one time."
)
assert with_long_skips[-1] == 1, (
    "At the end of the pass, only the last gradient is left."
)

# %% [markdown]
# ### "Trying to backward through the graph a second time"
#
# The derivative of a square needs the number that was squared, so its node **saves** that number in the forward pass.
# `backward()` frees what the nodes have saved. So a second `backward()` through the same graph fails, unless nothing was saved:

# %% tags=["claim-S0.4", "field", "field-141"]
def second_backward(z: torch.Tensor) -> str:
    z.backward()
    return error_of(z.backward).split(" (")[0]


x = torch.tensor([1.0, 3.0], requires_grad=True)
with_squares = second_backward(torch.sum((x + 2) ** 2))
only_sums = second_backward(torch.sum(x + 2))
print("with squares:", with_squares)
print("only sums:   ", only_sums)
second_time = "RuntimeError: Trying to backward through the graph a second time"
assert with_squares == second_time
assert only_sums == "no error"  # the derivative of a sum needs no saved value

# %% [markdown]
# ## Three ways to get a gradient in between
#
# **Keep it.** Call `y.retain_grad()` before `backward()`. Afterwards is too late: the gradient has been freed.

# %% tags=["field", "field-01"]
y = x + 2
y.retain_grad()
torch.mean(torch.pow(y, 2)).backward()
print("called before:", y.grad.tolist())
assert y.grad.tolist() == [3.0, 5.0]
assert not y.is_leaf  # it keeps its gradient, and it's still a non-leaf tensor

y = x + 2
torch.mean(torch.pow(y, 2)).backward()
y.retain_grad()
print("called after: ", y.grad)
assert y.grad is None

# %% [markdown]
# **Read it in a hook.** The hook receives the gradient and can store a copy, a norm or a picture of it. Lesson 2 is about such
# hooks.
#
# **Let it be returned.** `torch.autograd.grad(z, [x, y])` *returns* the gradients of any tensors in the graph and doesn't write
# to the `.grad` of leaves. If `z` doesn't depend on one of the tensors, it raises an error, unless you pass
# `allow_unused=True`: then you get `None` for that tensor.

# %%
x = torch.tensor([1.0, 3.0], requires_grad=True)
elsewhere = torch.ones(1, requires_grad=True)
y = x + 2
z = torch.mean(torch.pow(y, 2))
grads = torch.autograd.grad(z, [x, y, elsewhere], allow_unused=True)

print("returned:", [None if grad is None else grad.tolist() for grad in grads])
print("x.grad is still", x.grad)
assert grads[0].tolist() == grads[1].tolist() == [3.0, 5.0] and grads[2] is None
assert x.grad is None
assert "allow_unused=True" in error_of(torch.autograd.grad, x.sum(), elsewhere)

# %% [markdown] tags=["exercise"]
# ### Exercise 1.3 · Fix it: the gradient of a hidden value
# ●○○ · 5 minutes
#
# This function is broken: it returns `None`. Fix it. It should return the gradient of `w * x`, and `w.grad` should grow as in
# any training step. (`hidden.detach()` is a new tensor with the same numbers, not connected to the graph.)
#
# ```python
# def gradient_of_hidden(w, x):
#     hidden = w * x
#     loss = (hidden ** 2).sum()
#     loss.backward()
#     hidden = hidden.detach().requires_grad_()
#     hidden.retain_grad()
#     return hidden.grad
# ```
#
# <details><summary>Hint: I get None</summary>
#
# Two things are wrong, and one of them is the order. When is the gradient of `hidden` computed?
# </details>
# <details><summary>Hint: retain_grad() comes first now, and I still get None</summary>
#
# After `detach()`, the name `hidden` refers to a new leaf tensor that no `backward()` has ever reached.
# </details>

# %% tags=["solution"]
def gradient_of_hidden(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return the gradient of w * x for the loss (w * x)².sum(), and add to w.grad."""
    ### BEGIN SOLUTION
    hidden = w * x
    hidden.retain_grad()
    loss = (hidden**2).sum()
    loss.backward()
    return hidden.grad
    ### END SOLUTION

# %% tags=["check"]
check("1.3", gradient_of_hidden)

# %% [markdown]
# ## And in a model?
#
# [S1](00_start_here.ipynb#documents) and S2 start from here: a model gives you its result, and nothing in between.
# Neither the values of the forward pass nor the gradients of the backward pass have a name. (You can run a part of an
# `nn.Sequential`, but most models have their own `forward`.) Parameters need no hook, as S2 says: they're leaves, so their
# gradients are in `.grad`.

# %% tags=["claim-S1.1", "claim-S2.1", "claim-S2.8"]
model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
one = torch.ones(1, 2)
output = model(one)
returned = output.sum().backward()

kept = [value for module in model.modules() for value in vars(module).values()]
assert not any(isinstance(value, torch.Tensor) for value in kept)
assert returned is None and output.shape == (1, 1)
assert torch.equal(model[2:](model[:2](one)), output)  # a part of a Sequential
for name, parameter in model.named_parameters():
    assert parameter.is_leaf and parameter.grad.shape == parameter.shape
    print(f"{name:<9} leaf, .grad of shape {tuple(parameter.grad.shape)}")

# %% [markdown]
# ## In the field
#
# ### "I converted my weight, and its `.grad` stays None"
#
# The conversion is an operation, and `weight` is its result: a non-leaf tensor. Convert first, then set `requires_grad`.
# ([The warning's own thread](https://github.com/pytorch/pytorch/pull/30531))

# %% tags=["field", "field-01", "field-02"]
weight = torch.ones(2, requires_grad=True).double()  # the same with .to(…) or * 0.1
weight.sum().backward()
assert not weight.is_leaf and weight.grad is None

weight = torch.ones(2).double().requires_grad_()
weight.sum().backward()
assert weight.is_leaf and weight.grad.tolist() == [1.0, 1.0]
print("converted first: .grad =", weight.grad.tolist())

# %% [markdown]
# ### "My weight is used in two places: which gradient do I see?"
#
# You see the sum, in one call of the hook, as in 1.b. To see the parts, give each use its own name and keep its gradient.
# ([A thread](https://github.com/pytorch/pytorch/issues/8023))

# %% tags=["field", "field-10"]
w = torch.ones(1, requires_grad=True)
seen_by_hook = []
first, second = w * 1, w * 1  # one name for each use
first.retain_grad()
second.retain_grad()
with w.register_hook(lambda grad: seen_by_hook.append(grad.item())):
    (2 * first + 3 * second).sum().backward()

print("w.grad:", w.grad.item(), "  the hook saw:", seen_by_hook)
print("the parts:", first.grad.item(), "and", second.grad.item())
assert w.grad.item() == 5.0 and seen_by_hook == [5.0]
assert (first.grad.item(), second.grad.item()) == (2.0, 3.0)

# %% [markdown] tags=["recap"]
# ## Recap
#
# In a backward pass, each node passes the gradient on to the next. Where a value was used several times, its gradients are
# added. Only leaves keep the result, in `.grad`. For any other tensor you have three ways: `retain_grad()` before the pass, a
# hook, or `torch.autograd.grad` instead of `backward()`.
#
# PyTorch's own page: [autograd mechanics](https://docs.pytorch.org/docs/stable/notes/autograd.html). What holds of
# S0 today, step by step, is on [the start page](00_start_here.ipynb#documents).

# %% [markdown] tags=["quiz"]
# ### Three questions
#
# **1.** `w = nn.Parameter(torch.ones(3))`, `v = w / 2`, `v.sum().backward()`. Which `.grad` is filled?
#
# <details><summary>Answer</summary>
#
# `w.grad`, because a parameter is a leaf. `v` is the result of a division, so its gradient was passed on.
# </details>
#
# **2.** You call `y.retain_grad()`, and `y.grad` is still `None`. Give two possible reasons.
#
# <details><summary>Answer</summary>
#
# You called it after `backward()`; or `backward()` hasn't run yet; or the result that you called `backward()` on doesn't
# depend on `y`.
# </details>
#
# **3.** `backward()` can be called twice on `(x + 2).sum()`, but not on `((x + 2) ** 2).sum()`. Why?
#
# <details><summary>Answer</summary>
#
# The derivative of a square needs the number that was squared. It was saved in the forward pass and freed in the first
# backward pass. The derivative of a sum needs no saved value.
# </details>

# %%
progress()

# %% [markdown]
# ## If you want more
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | leaf tensor | 叶子张量 | not the result of a recorded operation |
# | non-leaf tensor | 非叶子张量 | the result of a recorded operation |
# | autograd graph | 计算图 | the recorded operations, one node for each |
# | gradient | 梯度 | what flows backward through the graph |
# | accumulate | 累积 | add to `.grad` instead of replacing it |
# | hook | 钩子 | a function that PyTorch calls at an agreed moment |
# | handle | 句柄 | an object that removes its hook |
#
# ### Are the values kept?
#
# [S3](00_start_here.ipynb#documents), another of the documents, says that PyTorch keeps neither gradients nor
# feature maps, to save memory. For feature maps, that's only half true. A node that needs a value for its derivative **saves**
# it during the forward pass. What's missing isn't the value but a name under which you could ask for it.

# %% tags=["claim-S3.1"]
saved = []


def note(tensor):
    saved.append(tensor)
    return tensor


with torch.autograd.graph.saved_tensors_hooks(note, note):  # lesson 10 explains them
    figures.chain(lambda output: output)
    recording = len(saved)
    with torch.no_grad():
        figures.chain(lambda output: output)

print("saved in the forward pass:", recording)
print("under no_grad:", len(saved) - recording)
assert recording == 40 and len(saved) == 40

# %% [markdown]
# ### See what a node saves, and keep it for a second pass
#
# `backward(retain_graph=True)` doesn't free the saved values, so you can call `backward()` again. The gradients of both passes
# are **added** in `.grad`: that's what "accumulate" means.

# %% tags=["claim-S0.4", "field", "field-141", "field-144"]
x = torch.tensor([1.0, 3.0], requires_grad=True)
squares = (x + 2) ** 2
node = squares.grad_fn
print("saved before backward:", node._saved_self.tolist())
assert node._saved_self.tolist() == [3.0, 5.0]

squares.sum().backward(retain_graph=True)
squares.sum().backward()
print("after two passes: x.grad =", x.grad.tolist())
assert x.grad.tolist() == [12.0, 20.0]

message = error_of(lambda: node._saved_self).split(" (")[0]
print("after the last pass:", message)
assert message == second_time

# %% [markdown] tags=["exercise"]
# ### Exercise 1.4 · What does z depend on, and how strongly?
# ●●○ · 8 minutes
#
# You get a tensor `z` with one element and a dictionary of named tensors that require grad. Return the **names** of the tensors
# that `z` depends on, in order of the norm of their gradient (`.norm()`), largest first. **Don't change any `.grad`**, not
# even of tensors outside the dictionary. (`retain_grad()` hasn't been called. Tensors with equal norms may come in any order.)
#
# <details><summary>Hint: "appears to not have been used in the graph"</summary>
#
# `z` doesn't depend on one of the tensors. There's an argument that allows this.
# </details>
# <details><summary>Hint: "Trying to backward through the graph a second time"</summary>
#
# Get all the gradients in one call.
# </details>

# %% tags=["solution"]
def strongest_first(z: torch.Tensor, named: dict[str, torch.Tensor]) -> list[str]:
    """Return the names of the tensors that z needs, largest gradient norm first."""
    ### BEGIN SOLUTION
    grads = torch.autograd.grad(z, list(named.values()), allow_unused=True)
    norms = {
        name: grad.norm().item()
        for name, grad in zip(named, grads, strict=True)
        if grad is not None
    }
    return sorted(norms, key=norms.get, reverse=True)
    ### END SOLUTION

# %% tags=["check"]
check("1.4", strongest_first)

# %% [markdown] tags=["exercise"]
# ### Exercise 1.5 · Use a graph several times, then let it go
# ●●○ · 8 minutes
#
# Run exactly `times` backward passes from `z` through the same graph, so that the gradients add up. After the **last** pass the
# graph must be freed, as after any ordinary `backward()`.
#
# <details><summary>Hint: "Trying to backward through the graph a second time"</summary>
#
# Every pass except the last must keep the graph.
# </details>
# <details><summary>Hint: the check says that the graph is still in memory</summary>
#
# `retain_graph=True` in the last pass keeps the graph for a pass that never comes. `times` may also be 1.
# </details>

# %% tags=["solution"]
def use_several_times(z: torch.Tensor, times: int) -> None:
    """Run `times` backward passes from z; the last one frees the graph."""
    ### BEGIN SOLUTION
    for number in range(times):
        z.backward(retain_graph=number < times - 1)
    ### END SOLUTION

# %% tags=["check"]
check("1.5", use_several_times)

# %% [markdown]
# ### "I reshaped it under the same name"
#
# Now `weight` is the name of the result, and the leaf that receives the gradient has no name any more. It still exists: its
# `AccumulateGrad` node refers to it. ([A thread](https://github.com/pytorch/pytorch/issues/19778))

# %% tags=["field", "field-02"]
weight = torch.ones(4, requires_grad=True)
weight = weight.view(2, 2)
weight.sum().backward()
lost = weight.grad_fn.next_functions[0][0].variable

print("weight.grad:", weight.grad, "  the lost leaf's:", lost.grad.tolist())
assert weight.grad is None and lost.is_leaf and lost.grad.tolist() == [1.0] * 4

weight = torch.ones(4).view(2, 2).requires_grad_()  # reshape first
weight.sum().backward()
assert weight.grad.shape == (2, 2)

# %% [markdown]
# ### "My parameter's `.grad` is None"
#
# A parameter is a leaf, so it keeps any gradient that reaches it. If its `.grad` is None, look for the five usual causes:
# `backward()` hasn't run yet; the parameter is frozen (`requires_grad_(False)`); the loss doesn't depend on it; a `detach()`
# or `no_grad()` comes in between; or `zero_grad()` has set it to None, its default since 2.0.

# %% tags=["field", "field-151"]
names = ("used", "unused", "cut off", "frozen")
layers = nn.ModuleDict({name: nn.Linear(1, 1, bias=False) for name in names})
layers["frozen"].requires_grad_(False)
one = torch.ones(1, 1)
loss = (layers["used"](one) + layers["frozen"](one)).sum()
loss = loss + layers["cut off"](one).detach().sum()
assert all(layer.weight.grad is None for layer in layers.values())  # no backward() yet

loss.backward()
has_grad = {name: layer.weight.grad is not None for name, layer in layers.items()}
print(has_grad)
assert [name for name in names if has_grad[name]] == ["used"]

layers.zero_grad()
assert layers["used"].weight.grad is None

# %% [markdown]
# ### Why not `.data`?
#
# **"`a leaf Variable that requires grad is being used in an in-place operation`."** You get this error if you write S0's step
# without `.data`: it changes a leaf in place, and autograd can't record that. S0's `x.data -= lr * x.grad.data` goes around
# autograd. `torch.no_grad()` tells autograd that the step isn't part of the computation:

# %% tags=["claim-S0.9", "field", "field-142"]
x = torch.tensor([[1.0], [3.0]], requires_grad=True)
torch.mean(torch.pow(x + 2, 2)).backward()
message = error_of(lambda: x.sub_(lr * x.grad))  # the same as `x -= lr * x.grad`
assert message.startswith("RuntimeError: a leaf Variable that requires grad is being")

with torch.no_grad():
    x -= lr * x.grad

print("x after one step:", [round(value, 3) for value in x.flatten().tolist()])
assert torch.allclose(x, torch.tensor([[0.997], [2.995]]))
assert x.is_leaf and x.requires_grad  # still the same leaf

# %% [markdown]
# The two differ when you make a mistake. Suppose you change a value that a node has saved. Under `no_grad()`, autograd notices
# and raises an error. Through `.data`, you get a wrong gradient, and nothing tells you.

# %% tags=["claim-S0.2", "field", "field-143"]
def gradient_after_change(through_data: bool) -> str:
    x = torch.tensor([1.0, 3.0], requires_grad=True)
    y = x + 2
    z = torch.sum(y**2)  # saves y
    if through_data:
        y.data.zero_()
    else:
        with torch.no_grad():
            y.zero_()
    error = error_of(z.backward)
    if error == "no error":
        return f"x.grad = {x.grad.tolist()}"
    return ": ".join(error.split(": ")[:2])


noticed, hidden = gradient_after_change(False), gradient_after_change(True)
print("under no_grad:", noticed)
print("through .data:", hidden, "  (correct: [6.0, 10.0])")
assert "modified by an inplace operation" in noticed
assert hidden == "x.grad = [0.0, 0.0]"

# %% [markdown] tags=["exercise"]
# ### Exercise 1.6 · A whole descent
# ●●● · 10 minutes
#
# Write the walk from the start of this lesson without an optimizer. Minimise $z = \tfrac12(y_1^2 + y_2^2)$, $y = x + 2$, from
# `start`, in `steps` steps of size `lr`. Return the path: a tensor of shape `(steps + 1, 2)` whose first row is the start.
# Don't change `start`. (`x.detach()` has the same numbers without the graph, and it shares the memory of `x`. If `x` is going
# to change, take `x.detach().clone()`.)
#
# <details><summary>Hint: "unsupported operand type(s) for *: 'float' and 'NoneType'"</summary>
#
# `x = x - lr * x.grad` makes `x` a non-leaf tensor. Change the leaf in place, under `torch.no_grad()`.
# </details>
# <details><summary>Hint: every row of my path is the same</summary>
#
# Your rows all share the memory of `x`. Store `x.detach().clone()`.
# </details>
# <details><summary>Hint: my second step is too long</summary>
#
# Gradients add up. What must happen to `x.grad` between two steps?
# </details>

# %% tags=["solution"]
def descend(start: torch.Tensor, lr: float, steps: int) -> torch.Tensor:
    """Return the points of a descent on z, shape (steps + 1, 2), the start first."""
    ### BEGIN SOLUTION
    x = start.clone().requires_grad_()
    path = [x.detach().clone()]
    for _ in range(steps):
        z = torch.mean((x + 2) ** 2)
        z.backward()
        with torch.no_grad():
            x -= lr * x.grad
        x.grad = None
        path.append(x.detach().clone())
    return torch.stack(path)
    ### END SOLUTION

# %% tags=["check"]
check("1.6", descend)
