# %% [markdown]
# # 1 · Why is `y.grad` None, and where did the gradient go?
#
# **Time** 60 minutes, and 25 for what comes after the recap &nbsp;·&nbsp; **You need** Python classes, `torch.tensor`, and to have seen an `nn.Linear`; no hooks yet
#
# After this lesson you can
#
# - say which tensors keep a gradient after `backward()`, and why the others do not;
# - build a small autograd with hooks yourself, and hold it against PyTorch;
# - get the gradient of any tensor in between, in three ways;
# - explain the error of a second `backward()`, and why it sometimes does not come.

# %% tags=["setup"]
import warnings

import matplotlib.pyplot as plt
import torch
from IPython.display import display
from torch import nn

from hooklab import check, predict, progress, reveal
from hooklab.course.errors import error_of
from hooklab.course.lesson01 import engine, explorer, figures

torch.set_num_threads(1)
warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")  # shown below, once

# %% [markdown]
# ## Follow one number
#
# Take a number $x$, add 2, square, and halve: with $x = 1$ that is $y = 3$, $s = 9$, $z = 4.5$. How fast does $z$ move when
# $x$ moves? Each step has its own factor: halving 0.5, squaring $2 \cdot y = 2 \cdot 3$, adding 1. Multiply them on the
# way back, $0.5 \cdot 2 \cdot 3 \cdot 1 = 3$. This is the chain rule, and it is all that `backward()` does.

# %%
x = torch.tensor(1.0, requires_grad=True)
y = x + 2
s = y**2
z = 0.5 * s
z.backward()

print("by hand:", 0.5 * (2 * 3) * 1, "  x.grad =", x.grad.item())
assert x.grad.item() == 3.0

# %% [markdown]
# Now the same with two numbers at once: $x = (1, 3)$, $y = x + 2 = (3, 5)$ and $z = \tfrac12(y_1^2 + y_2^2) = 17$, which is
# the mean of the two squares. (`requires_grad=True` tells PyTorch to record what is computed from a tensor; a result has it
# as soon as one of its inputs has.)

# %% tags=["claim-S0.2", "claim-S0.3"]
x = torch.tensor([[1.0], [3.0]], requires_grad=True)
y = x + 2
z = torch.mean(torch.pow(y, 2))
z.backward()

print("x.grad =", x.grad.flatten().tolist())
print("y.grad =", y.grad)
assert z.item() == 17.0  # the mean of two squares is half their sum
assert x.grad.flatten().tolist() == [3.0, 5.0]  # dz/dy = y and dy/dx = 1
assert y.grad is None and type(y.grad).__name__ == "NoneType"

# %% [markdown]
# No error, but a warning, with a way out in it:

# %% tags=["claim-S0.3"]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert y.grad is None

message = str(caught[0].message)
print(message.split(". ")[2] + ".")
assert caught[0].category is UserWarning
assert "use .retain_grad() on the non-leaf Tensor" in message

# %% [markdown]
# ## Was it ever there?
#
# Was there ever a gradient of `y`? Stand at the roadside and look. A **hook** is a function that PyTorch calls at an agreed
# moment; `y.register_hook(function)` has it called if a gradient of `y` comes by. What you get is a **handle**, which
# takes the hook off again.

# %%
predict("1.a")

# %% tags=["predict", "hook-tensor"]
grad_list = []
y = x + 2
handle = y.register_hook(grad_list.append)
z = torch.mean(torch.pow(y, 2))
z.backward()
handle.remove()

print("What came out:")
print("y.grad is", y.grad)
print("the hook saw", [grad.flatten().tolist() for grad in grad_list])

# %%
reveal("1.a", [grad.flatten().tolist() for grad in grad_list])
assert grad_list[0].flatten().tolist() == [3.0, 5.0] and y.grad is None, (
    "With the page's x, the hook sees the gradient [3, 5], and y.grad is None."
)

# %% [markdown]
# Which tensors keep their gradient? That depends on how a tensor came to be:
#
# - A **leaf tensor** was made by no recorded operation: you made it, or nothing was recorded. `x` is one. With
#   `requires_grad=True`, it keeps its gradient.
# - A **non-leaf tensor** is the result of a recorded operation. It knows its operation, the node `grad_fn`. `y` and `z` are two.
#
# The nodes and the way between them are the **autograd graph**, recorded while you compute.

# %%
for name, tensor in {"x": x, "y": y, "z": z}.items():
    node = tensor.grad_fn.name() if tensor.grad_fn else None
    print(f"{name}: is_leaf={tensor.is_leaf!s:<5}  grad_fn={node}")

assert x.is_leaf and x.grad_fn is None
assert not y.is_leaf and y.grad_fn.name() == "AddBackward0"
assert y.requires_grad and z.requires_grad  # results of x want gradients too ...
assert not (x > 0).requires_grad and not x.argmax().requires_grad  # ... where there is a derivative
assert not x.detach().requires_grad  # and unless you cut them off

# %% [markdown] tags=["exercise"]
# ### Exercise 1.1 · Who gets a gradient?
# ●○○ · 4 minutes
#
# You get a dictionary from names to tensors. Return the **set of names** of those whose `.grad` a later `backward()` will
# fill, from a result that depends on all of them. (Nobody has called `retain_grad()`. A list of the names is fine too.)
#
# <details><summary>Hint: my set has too many names</summary>
#
# `torch.ones(2).is_leaf` is `True`. Will it get a gradient?
# </details>
# <details><summary>Hint: a result of an operation is in my set</summary>
#
# A non-leaf has `requires_grad=True` as well. You need a second property.
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
# ## Where the way forks
#
# So far the way was a chain. Let `y` be used twice: $s = y^2$ and $t = 3y$, then $z = s + t$. With $x = 1$ there is $y = 3$,
# and what comes back to $y$ is $2y = 6$ by way of $s$, and $3$ by way of $t$.

# %%
predict("1.b")

# %% tags=["predict", "figure"]
x = torch.tensor(1.0, requires_grad=True)
y = x + 2
s, t = y**2, 3 * y
z = s + t
figure = figures.fork(x, y, {"s = y²": s, "t = 3·y": t}, z)

seen = []
# a handle also works with `with`
with y.register_hook(lambda grad: seen.append(grad.item())):
    z.backward()

print("What came out:")
print("the hook on y saw", seen)
plt.show()

# %%
reveal("1.b", seen)
assert seen == [9.0] and x.grad.item() == 9.0, (
    "With the page's functions, the hook on y runs once, with 9, and x.grad is 9."
)

# %% [markdown] tags=["exercise"]
# ### Exercise 1.2 · Pass it on
# ●●○ · 12 minutes
#
# Here is an autograd for single numbers. `backward` comes to a value when every value computed from it is done. Write the heart
# of it, `arrive`: a `gradient` has arrived at this value.
#
# 1. Call the value's `hooks`, one after the other, with the gradient. What a hook returns, unless `None`, is the gradient
#    from then on.
# 2. A leaf (made from nothing) keeps the gradient: it **adds** it to the `grad` that it has.
# 3. Any other value passes a piece on to each value that it was `made_from`: the gradient times the derivative that stands
#    beside it. `arriving[value]` is what has come to `value` so far, if anything has.
#
# Leave `made_from` and `hooks` as they are: `backward` may run again. If a hook raises, let the exception through.
#
# <details><summary>Hint: x.grad is 1.5, and should be 3.0</summary>
#
# In `y * y` the value `y` stands twice in `made_from`. Two pieces come to it: add the second to the first.
# </details>
# <details><summary>Hint: "unsupported operand type(s) for +=: 'NoneType' and 'float'"</summary>
#
# Before the first gradient, a leaf's `grad` is `None`.
# </details>
# <details><summary>Hint: KeyError</summary>
#
# The first piece finds no entry in `arriving`. `arriving.get(value, 0.0)` gives 0.0 then.
# </details>

# %% tags=["solution"]
class Value:
    """A number that remembers what it was made from."""

    def __init__(self, data, made_from=()):
        self.data = data
        self.made_from = made_from  # pairs: a value, and the derivative with respect to it
        self.grad = None
        self.hooks = []

    def __add__(self, other):
        return Value(self.data + other.data, [(self, 1.0), (other, 1.0)])

    def __mul__(self, other):
        return Value(self.data * other.data, [(self, other.data), (other, self.data)])

    def backward(self):
        arriving = {self: 1.0}
        for value in engine.backward_order(self):
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
# Yours and PyTorch's, side by side, on $z = \tfrac12 y^2 + y \cdot x$ with $y = x + 2$:

# %%
print(engine.beside_torch(Value))

# %% [markdown]
# *Passed on, not stored* is not a rule to remember: you have written it. PyTorch's version of your step 2 is a node called
# `AccumulateGrad`, which stands behind each leaf and adds to its `.grad`.

# %%
behind_y = y.grad_fn.next_functions[0][0]
print("y was made by", y.grad_fn.name(), "  and its gradient goes on to", type(behind_y).__name__)
assert type(behind_y).__name__ == "AccumulateGrad" and behind_y.variable is x

# %% [markdown]
# Walk through a real `backward()` yourself: each step below was recorded in a run. Move the slider, then switch on a hook.

# %% tags=["explorer"]
explorer.backward_steps()

# %% tags=["figure"]
steps = explorer.record_backward()
for number in (2, 5):  # without a kernel: two of the steps
    print(explorer.describe_step(steps, number))
    display(explorer.draw_step(steps, number))

assert steps[2].saved and not steps[3].saved  # the node lets go of y as soon as it has run
assert steps[-1].grads == {"x": (3.0, 5.0), "y": None, "s": None, "z": None}

# %% [markdown]
# ## How much of it is there at a time?
#
# Where is a gradient kept until it is passed on, and for how long? A hook can find out: put one on every layer of a deep
# network, and each time a gradient arrives, count those that are in memory.

# %% tags=["claim-S0.4", "claim-S3.1"]
in_a_chain = figures.gradients_alive(figures.chain)
print("gradients that came by:", len(in_a_chain), "  in memory at one time, at most:", max(in_a_chain))
assert len(in_a_chain) == 40 and max(in_a_chain) == 1

# %% [markdown]
# Nothing is kept "for later": all forty would cost as much memory again as the forty outputs. But a chain is a special
# shape. A U-Net has **long skips**: the output of the first layer is also added to the output of the last, the second
# layer's to the last but one, and so on to the middle.

# %%
predict("1.c")

# %% tags=["predict", "figure"]
with_long_skips = figures.gradients_alive(figures.long_skips)
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
# Values are let go as well. A node that needs one for its derivative **saves** it, and `backward()` frees it. So a second
# `backward()` fails, if anything had to be saved:

# %% tags=["claim-S0.4", "field", "field-141"]
def second_backward(z: torch.Tensor) -> str:
    z.backward()
    return error_of(z.backward).split(" (")[0]


x = torch.tensor([1.0, 3.0], requires_grad=True)
with_squares = second_backward(torch.sum((x + 2) ** 2))
only_sums = second_backward(torch.sum(x + 2))
print("with squares:", with_squares)
print("only sums:   ", only_sums)
assert with_squares == "RuntimeError: Trying to backward through the graph a second time"
assert only_sums == "no error"  # the derivative of a sum needs no values: nothing was saved, so nothing is missing

# %% [markdown]
# ## Three ways to get it
#
# **Keep it.** `y.retain_grad()`, before `backward()` runs. Afterwards is too late: the gradient has passed.

# %% tags=["field", "field-01"]
y = x + 2
y.retain_grad()
torch.mean(torch.pow(y, 2)).backward()
print("asked in time:", y.grad.tolist())
assert y.grad.tolist() == [3.0, 5.0] and not y.is_leaf  # keeping its gradient does not make it a leaf

y = x + 2
torch.mean(torch.pow(y, 2)).backward()
y.retain_grad()
print("asked too late:", y.grad)
assert y.grad is None

# %% [markdown]
# **Look at it.** A hook sees the gradient and stores what you like of it: a copy, its norm, a picture. Lesson 2 takes it apart.
#
# **Ask for it.** `torch.autograd.grad(z, [x, y])` *returns* gradients, of any tensors of the graph, and leaves the `.grad` of
# leaves alone. A tensor that `z` does not depend on is an error, unless you say `allow_unused=True`: then it gets `None`.

# %%
x = torch.tensor([1.0, 3.0], requires_grad=True)
elsewhere = torch.ones(1, requires_grad=True)
y = x + 2
z = torch.mean(torch.pow(y, 2))
grad_x, grad_y, nothing = torch.autograd.grad(z, [x, y, elsewhere], allow_unused=True)

print("returned:", grad_x.tolist(), grad_y.tolist(), nothing, "  and x.grad is still", x.grad)
assert grad_x.tolist() == grad_y.tolist() == [3.0, 5.0] and nothing is None
assert x.grad is None

y = x + 2
y.retain_grad()  # the one exception: who asked to keep, keeps here as well
torch.autograd.grad(torch.mean(torch.pow(y, 2)), [x])
assert x.grad is None and y.grad.tolist() == [3.0, 5.0]

# %% [markdown] tags=["exercise"]
# ### Exercise 1.3 · Mend it: the gradient of a hidden value
# ●○○ · 5 minutes
#
# This script is broken: it returns `None`. Mend it, so that it returns the gradient of `w * x`, and `w.grad` grows as in any
# training step. (`hidden.detach()` is a new tensor with the same numbers and no link to the graph.)
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
# Two things are wrong, and one of them is the order. When has the gradient passed?
# </details>
# <details><summary>Hint: retain_grad() comes first now, and I still get None</summary>
#
# After `detach()`, `hidden` is another tensor, a leaf that no `backward()` has ever reached.
# </details>

# %% tags=["solution"]
def gradient_of_hidden(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return the gradient of w * x for the loss (w * x)².sum(); w.grad grows by its own."""
    ### BEGIN SOLUTION
    hidden = w * x
    hidden.retain_grad()
    loss = (hidden**2).sum()
    loss.backward()
    return hidden.grad
    ### END SOLUTION

# %% tags=["check"]
check("1.3", gradient_of_hidden)

# %% [markdown] tags=["exercise"]
# ### Exercise 1.4 · What does z depend on, and how strongly?
# ●●○ · 8 minutes
#
# You get a tensor `z` with one element, and a dictionary of tensors that require grad. Return the **names** of those that `z`
# depends on, the one with the largest gradient (by `.norm()`) first. Afterwards **every `.grad` is as it was**, also that of
# tensors outside the dictionary: you only looked. (Nobody has called `retain_grad()`. Tensors with equal norms may come in
# any order.)
#
# <details><summary>Hint: "appears to not have been used in the graph"</summary>
#
# One of the tensors is not on the way to `z`. There is an argument that allows this.
# </details>
# <details><summary>Hint: "Trying to backward through the graph a second time"</summary>
#
# Ask for all the gradients in one call.
# </details>

# %% tags=["solution"]
def strongest_first(z: torch.Tensor, named: dict[str, torch.Tensor]) -> list[str]:
    """Return the names of the tensors that z depends on, by the norm of their gradient, largest first."""
    ### BEGIN SOLUTION
    grads = torch.autograd.grad(z, list(named.values()), allow_unused=True)
    norms = {name: g.norm().item() for name, g in zip(named, grads, strict=True) if g is not None}
    return sorted(norms, key=norms.get, reverse=True)
    ### END SOLUTION

# %% tags=["check"]
check("1.4", strongest_first)

# %% [markdown]
# ## And in a model?
#
# A model gives you its last result. The values in between have no name that you could ask for, on the way forward and on
# the way back: this is what the rest of the course is about. (Of an `nn.Sequential` you can run a part; a model with a
# `forward` of its own is rarely one.) Its parameters are leaves, and their gradients are simply there.

# %% tags=["claim-S1.1", "claim-S2.1", "claim-S2.8"]
model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
output = model(torch.ones(1, 2))
returned = output.sum().backward()

attributes = [value for module in model.modules() for value in vars(module).values()]
assert not any(isinstance(value, torch.Tensor) for value in attributes)  # no module kept what went through it
assert returned is None and output.shape == (1, 1)
assert torch.equal(model[2:](model[:2](torch.ones(1, 2))), output)  # the part of a Sequential, run again
for name, parameter in model.named_parameters():
    assert parameter.is_leaf and parameter.grad.shape == parameter.shape
    print(f"{name:<9} leaf, .grad of shape {tuple(parameter.grad.shape)}")

# %% [markdown]
# ## In the field
#
# ### "I converted my weight, and its `.grad` stays None"
#
# The conversion is an operation: what you hold is its result, a non-leaf. Convert first, then ask for gradients.
# ([The warning's own thread](https://github.com/pytorch/pytorch/pull/30531))

# %% tags=["field", "field-01", "field-02"]
weight = torch.ones(2, requires_grad=True).double()  # or .to(another device), or * 0.1
weight.sum().backward()
assert not weight.is_leaf and weight.grad is None

weight = torch.ones(2).double().requires_grad_()
weight.sum().backward()
assert weight.is_leaf and weight.grad.tolist() == [1.0, 1.0]
print("made as wanted: .grad =", weight.grad.tolist())

# %% [markdown]
# ### "I reshaped it under the same name"
#
# The name now means the result; the gradient went to a leaf that no name leads to any more. It is still there, behind the
# node: `AccumulateGrad` knows its leaf. ([A thread](https://github.com/pytorch/pytorch/issues/19778))

# %% tags=["field", "field-02"]
weight = torch.ones(4, requires_grad=True)
weight = weight.view(2, 2)
weight.sum().backward()
lost = weight.grad_fn.next_functions[0][0].variable

print("weight.grad:", weight.grad, "  the lost leaf's:", lost.grad.tolist())
assert weight.grad is None and lost.is_leaf and lost.grad.tolist() == [1.0] * 4

weight = torch.ones(4).view(2, 2).requires_grad_()  # reshape first, then ask
weight.sum().backward()
assert weight.grad.shape == (2, 2)

# %% [markdown]
# ### "My weight is used in two places: which gradient do I see?"
#
# The sum, once, as at every fork. To see the parts, give each use a name of its own, and ask that.
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
# A gradient is passed on from node to node, adds up at forks, and is kept by leaves alone. Three ways to get another
# one: `retain_grad()` before, a hook while it passes, `torch.autograd.grad` in place of `backward()`.
#
# | the documents say | today |
# |---|---|
# | asking for the gradient of `y` is an error (S0) | it is `None`, with a warning that names `retain_grad()` |
# | the gradients of intermediates are released when their work is done (S0, S3) | true: in a chain a hook never finds more than one. Something else is freed as well, what nodes had *saved*: hence the error of a second `backward()` |
# | `forward()` and `backward()` give you no values in between (S1, S2) | true |
# | leaves and parameters need no hook (S2) | true: their `.grad` is there |
# | ↓ step down with `x.data -= lr * x.grad.data` (S0) | under `torch.no_grad()` |
#
# (↓ is shown below, in "If you want more".)
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | leaf tensor | 叶子张量 | made by you, not by a recorded operation |
# | non-leaf tensor | 非叶子张量 | result of a recorded operation |
# | autograd graph | 计算图 | the recorded operations, one node each |
# | gradient | 梯度 | what flows back along the graph |
# | accumulate | 累积 | add to `.grad` instead of replacing it |
# | hook | 钩子 | a function that PyTorch calls at an agreed moment |
# | handle | 句柄 | takes its hook off again |

# %% [markdown] tags=["quiz"]
# ### Three questions
#
# **1.** `w = nn.Parameter(torch.ones(3))`, `v = w / 2`, `v.sum().backward()`. Which `.grad` is filled?
#
# <details><summary>Answer</summary>
#
# `w.grad`: a parameter is a leaf. `v` is the result of a division, so its gradient was passed on.
# </details>
#
# **2.** You call `y.retain_grad()` and `y.grad` is still `None`. Name two possible reasons.
#
# <details><summary>Answer</summary>
#
# `backward()` had already run; or it has not run yet; or the result that you sent back from does not depend on this `y`.
# </details>
#
# **3.** Why does `(x + 2).sum()` survive two calls of `backward()`, and `((x + 2) ** 2).sum()` does not?
#
# <details><summary>Answer</summary>
#
# The derivative of a square needs the squared number, which is saved and then freed. The derivative of a sum needs nothing.
# </details>

# %%
progress()

# %% [markdown]
# ## If you want more
#
# ### Look at what a node saves, and keep it for another pass
#
# `backward(retain_graph=True)` keeps what was saved. And the passes **add up** in `.grad`: this is what "accumulate"
# means.

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
assert message == "RuntimeError: Trying to backward through the graph a second time"

# %% [markdown] tags=["exercise"]
# ### Exercise 1.5 · Use a graph several times, then let it go
# ●●○ · 8 minutes
#
# Run backward from `z` exactly `times` times through the same graph, so that the gradients add up. After the **last** pass
# the graph must be freed, as after any ordinary `backward()`.
#
# <details><summary>Hint: "Trying to backward through the graph a second time"</summary>
#
# All passes but the last must keep the graph.
# </details>
# <details><summary>Hint: the check says that the graph is still in memory</summary>
#
# `retain_graph=True` in the last pass keeps it for a pass that never comes. `times` may also be 1.
# </details>

# %% tags=["solution"]
def use_several_times(z: torch.Tensor, times: int) -> None:
    """Run backward from z `times` times; the last pass frees the graph."""
    ### BEGIN SOLUTION
    for number in range(times):
        z.backward(retain_graph=number < times - 1)
    ### END SOLUTION

# %% tags=["check"]
check("1.5", use_several_times)

# %% [markdown]
# ### "My parameter's `.grad` is None"
#
# A parameter is a leaf, so a gradient that reaches it stays. Three causes: the loss does not depend on it; a `detach()` (or
# `no_grad()`) is on the way; or `zero_grad()` has put the None there, as it does since 2.0.

# %% tags=["field", "field-151"]
layers = nn.ModuleDict({name: nn.Linear(1, 1, bias=False) for name in ("used", "unused", "cut off")})
one = torch.ones(1, 1)
(layers["used"](one) + layers["cut off"](one).detach()).sum().backward()
print({name: layer.weight.grad is not None for name, layer in layers.items()})
assert [name for name, layer in layers.items() if layer.weight.grad is not None] == ["used"]

layers.zero_grad()
assert layers["used"].weight.grad is None

# %% [markdown]
# ### One step down
#
# **"`a leaf Variable that requires grad is being used in an in-place operation`."** A step changes a leaf, and autograd
# will not have that recorded. Old pages write `x.data -= lr * x.grad.data`: `.data` is a way around autograd, and it hides
# your mistakes too. Say instead that a step is no part of the computation: `torch.no_grad()`.

# %% tags=["claim-S0.2", "field", "field-142"]
lr = 1e-3
x = torch.tensor([[1.0], [3.0]], requires_grad=True)
torch.mean(torch.pow(x + 2, 2)).backward()
message = error_of(lambda: x.sub_(lr * x.grad))  # what `x -= lr * x.grad` does
assert message == "RuntimeError: a leaf Variable that requires grad is being used in an in-place operation."

with torch.no_grad():
    x -= lr * x.grad

print("x after one step:", [round(value, 3) for value in x.flatten().tolist()])
assert torch.allclose(x, torch.tensor([[0.997], [2.995]]))
assert x.is_leaf and x.requires_grad  # still the same leaf

# %% [markdown]
# What does `.data` hide? Change a tensor that a node has saved. Under `no_grad()` the change is caught; through `.data`, you
# get a wrong gradient in silence.

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
    return f"x.grad = {x.grad.tolist()}" if error == "no error" else ": ".join(error.split(": ")[:2])


honest, hidden = gradient_after_change(False), gradient_after_change(True)
print("under no_grad:", honest)
print("through .data:", hidden, "  (the truth is [6.0, 10.0])")
assert "modified by an inplace operation" in honest
assert hidden == "x.grad = [0.0, 0.0]"

# %% [markdown] tags=["exercise"]
# ### Exercise 1.6 · A whole descent
# ●●● · 10 minutes
#
# Walk down $z = \tfrac12(y_1^2 + y_2^2)$, $y = x + 2$, from `start` in `steps` steps of size `lr`. Return the path: a tensor
# of shape `(steps + 1, 2)` whose first row is the start. Leave `start` itself as it is. (`x.detach()` is a tensor with the
# same numbers and no graph. It shares the memory of `x`, so take `x.detach().clone()` if `x` is going to change.)
#
# <details><summary>Hint: "unsupported operand type(s) for *: 'float' and 'NoneType'"</summary>
#
# `x = x - lr * x.grad` makes a new tensor, a non-leaf. Change the leaf in place, under `torch.no_grad()`.
# </details>
# <details><summary>Hint: every row of my path is the same</summary>
#
# You kept the same tensor again and again. Keep `x.detach().clone()`.
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

# %% [markdown]
# Here is such a path, written with PyTorch's own optimizer. `descend(torch.tensor([1.0, -4.0]), 0.25, 12)` gives the same
# points.

# %% tags=["figure"]
x = torch.tensor([1.0, -4.0], requires_grad=True)
optimizer = torch.optim.SGD([x], lr=0.25)
path = [x.detach().clone()]
for _ in range(12):
    optimizer.zero_grad()
    torch.mean((x + 2) ** 2).backward()
    optimizer.step()
    path.append(x.detach().clone())

assert torch.allclose(path[-1], torch.tensor([-2.0, -2.0]), atol=0.1)
figure = figures.descent(torch.stack(path), centre=(-2, -2))
plt.show()

# %% [markdown]
# *What to see:* the steps point straight at the minimum and get shorter, because the gradient, x + 2, is the
# vector from the minimum to x.
