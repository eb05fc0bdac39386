# %% [markdown]
# # 1 · Why is `y.grad` None, and where did the gradient go?
#
# **Time** 40 minutes, and 10 for the ●●● exercise &nbsp;·&nbsp; **You need** Python functions, `torch.tensor`, and to have seen an `nn.Linear`; no hooks yet
#
# After this lesson you can
#
# - say which tensors keep a gradient after `backward()`, and why the others do not;
# - get the gradient of any tensor in between, in three ways;
# - explain the error of a second `backward()`, and why it sometimes does not come;
# - find each kind of hook of this course on a map.
#
# The course follows five short, well-known documents about hooks, the oldest from the days of `Variable`. "The documents"
# are always these. Where they no longer hold, the lesson says so.

# %% tags=["setup"]
import warnings
import weakref

import matplotlib.pyplot as plt
import torch
from IPython.display import display
from torch import nn

from hooklab import check, progress
from hooklab.course import plots
from hooklab.course.lesson01 import explorer

torch.set_num_threads(1)

# %% [markdown]
# ## Predict
#
# A small function to minimise. Start with two numbers, add 2 to each, and take half the sum of the squares:
#
# $$x \in \mathbb{R}^2, \qquad y = x + 2, \qquad z = \tfrac{1}{2}\,(y_1^2 + y_2^2)$$
#
# With $x = (1, 3)$ you can do all of it in your head: $y = (3, 5)$ and $z = \tfrac12(9 + 25) = 17$.
#
# Now `z.backward()` sends gradients back from `z` to `x`. They must pass through `y` on the way. **Before you run the
# next cell: what will `x.grad` be, and what will `y.grad` be?**

# %% tags=["predict", "claim-S0.2", "claim-S0.3"]
x = torch.tensor([[1.0], [3.0]], requires_grad=True)
y = x + 2
z = torch.mean(torch.pow(y, 2))
assert z.item() == 17.0  # the mean of two squares is half their sum

z.backward()

with warnings.catch_warnings(record=True) as caught:  # to look at the warning below
    warnings.simplefilter("always")
    grad_of_y = y.grad

print("x.grad =", x.grad.flatten().tolist())
print("y.grad =", grad_of_y)
print("warning:", str(caught[0].message).split(". ")[0] + ".")

assert x.grad.flatten().tolist() == [3.0, 5.0]  # dz/dx = dz/dy = y, because dy/dx = 1
assert grad_of_y is None and type(grad_of_y).__name__ == "NoneType"

# %% [markdown]
# The gradient arrived at `x`, so it went through `y`. Yet `y.grad` is `None`.
#
# One of the documents says that asking for it "is an error". On today's PyTorch it is not: you get `None`, and a warning. The
# warning is worth reading once in full, because it contains the way out.

# %% tags=["claim-S0.3"]
message = str(caught[0].message)
for sentence in message.split(". ")[:4]:
    print("-", sentence)

assert caught[0].category is UserWarning
assert "use .retain_grad() on the non-leaf Tensor" in message

# %% [markdown]
# ## Leaf and non-leaf tensors
#
# `requires_grad=True` says "I shall want a gradient". Whatever you compute from such a tensor requires grad as well. And
# while you compute, PyTorch records an **autograd graph**: one node for each operation on tensors that require grad. A
# tensor that came out of such an operation knows its node; it is called `grad_fn`.
#
# - A **leaf tensor** is where a graph begins: you made it, no recorded operation did. `x` is one.
# - A **non-leaf tensor** is the result of a recorded operation. `y` and `z` are two.

# %%
for name, tensor in {"x": x, "y": y, "z": z}.items():
    node = tensor.grad_fn.name() if tensor.grad_fn else None
    print(f"{name}: is_leaf={tensor.is_leaf!s:<5}  grad_fn={node}")

assert x.is_leaf and x.grad_fn is None
assert not y.is_leaf and y.grad_fn.name() == "AddBackward0"
assert not z.is_leaf and z.grad_fn.name() == "MeanBackward0"
assert x.requires_grad and y.requires_grad and z.requires_grad  # it is handed on

# %% [markdown]
# `backward()` visits the nodes from the end to the start. Each node takes the gradient that comes in, multiplies it by
# its own derivative, and **passes the result on**. Only at a leaf is there nobody left to pass it to. There, a special
# node called `AccumulateGrad` stores it in `.grad`.

# %%
node_of_y = y.grad_fn
node_after_y = node_of_y.next_functions[0][0]
print("y was made by", type(node_of_y).__name__)
print("its gradient goes to", type(node_after_y).__name__)

assert type(node_after_y).__name__ == "AccumulateGrad"
assert node_after_y.variable is x  # this node belongs to x, and writes x.grad

# %% [markdown]
# The figure draws the four tensors of our computation. Its colours are not painted by hand: they are read from
# `is_leaf` and `requires_grad`.

# %% tags=["figure"]
x = torch.tensor([[1.0], [3.0]], requires_grad=True)
y = x + 2
squares = y**2
z = squares.mean()

tensors = {"x": x, "y": y, "y²": squares, "z": z}
arrived = torch.autograd.grad(z, list(tensors.values()))
figure = plots.chain(tensors, dict(zip(tensors, arrived, strict=True)))
plt.show()

# %% [markdown]
# *What to see:* a gradient arrives at every tensor (vermilion), but only the leaf keeps it (green).
#
# Now walk through `backward()` yourself. Each step of this explorer was recorded in a real run. Move the slider with the
# mouse or the arrow keys. Two of the switches are hooks, which come later in this lesson.

# %% tags=["explorer"]
explorer.backward_steps()

# %% [markdown]
# Without a kernel, here are three of its steps: the square's node runs, then `AccumulateGrad`, then all is over.

# %% tags=["figure"]
steps = explorer.record_backward()
for number in (2, 4, 5):
    print(explorer.describe_step(steps, number))
    display(explorer.draw_step(steps, number))

assert steps[2].saved and not steps[3].saved  # the node lets go of y as soon as it has run
assert steps[-1].grads == {"x": (3.0, 5.0), "y": None, "s": None, "z": None}

# %% [markdown]
# *What to see:* on its way to the left the gradient is in one place at a time, and in the end only `x.grad` is filled. What
# the square had saved is freed as soon as its node has run. (The explorer calls the squares `s`.)
#
# So two things happen in `backward()`, which older pages mix up:
#
# - **(a) It was passed on.** The gradient of a non-leaf is a temporary value. Nobody stores it, to save memory.
# - **(b) The graph was let go.** `backward()` also frees the tensors that nodes had saved for it. That is why a second
#   `backward()` fails.
#
# Look at (a) first. Here are ten steps over a thousand numbers. How many bytes of gradients are left in the end?

# %% tags=["claim-S0.4", "claim-S3.1"]
def bytes_of_kept_gradients(retain: bool) -> int:
    start = torch.ones(1000, requires_grad=True)
    hidden = [start + 1]
    for _ in range(9):
        hidden.append(hidden[-1] + 1)
    if retain:
        for h in hidden:
            h.retain_grad()
    hidden[-1].sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the one from above
        return sum(h.grad.nbytes for h in hidden if h.grad is not None)


kept_by_default = bytes_of_kept_gradients(retain=False)
kept_on_request = bytes_of_kept_gradients(retain=True)
print("by default:         ", kept_by_default, "bytes")
print("with retain_grad():", kept_on_request, "bytes")

assert kept_by_default == 0
assert kept_on_request == 10 * 1000 * 4

# %% [markdown]
# Values are treated the same way. An intermediate tensor lives only as long as somebody needs it: you, through a name,
# or a node that saved it for its derivative. `x + 2` saves nothing, so the sum is gone with its name. A *weak reference*
# shows it: it looks at an object without keeping it alive. Called, it gives the object, or `None` once that is gone.

# %% tags=["claim-S3.1"]
hidden = x + 2
watcher = weakref.ref(hidden)
result = hidden + 1  # the derivative of a sum needs no values: nothing is saved

assert watcher() is not None
del hidden
assert watcher() is None
print("the intermediate tensor is gone; the result is", result.flatten().tolist())

# %% [markdown] tags=["exercise"]
# ### Exercise 1.1 · Who gets a gradient?
# ●○○ · 5 minutes
#
# You get a dictionary from names to tensors. Return the **set of names** of those whose `.grad` a later `backward()` will
# fill, from a result that depends on all of them (nobody has called `retain_grad()`).
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
# ## The first way: `retain_grad()`
#
# Tell `y` to keep its gradient, **before** `backward()` runs.

# %%
y = x + 2
y.retain_grad()
z = torch.mean(torch.pow(y, 2))
z.backward()

print("y.grad =", y.grad.flatten().tolist(), "  y.retains_grad =", y.retains_grad)
assert y.grad.flatten().tolist() == [3.0, 5.0]
assert not y.is_leaf  # keeping the gradient does not make it a leaf

# %% [markdown]
# Afterwards is too late. The gradient has passed, and nobody can bring it back.

# %%
y = x + 2
z = torch.mean(torch.pow(y, 2))
z.backward()
y.retain_grad()

assert y.grad is None
print("asked too late:", y.grad)

# %% [markdown] tags=["exercise"]
# ### Exercise 1.2 · Keep the gradient of y
# ●○○ · 5 minutes
#
# `z` was computed from `y`, and `y` from something else; `y` is a non-leaf. Send gradients back from `z` and return
# **the gradient of y**. Leave no hook behind.
#
# <details><summary>Hint: I get None</summary>
#
# Three things must happen: ask, send, read. In which order?
# </details>
# <details><summary>Hint: "can't retain_grad on Tensor that has requires_grad=False"</summary>
#
# Do not make a copy of `y` with `detach()` or `torch.tensor`: work on the `y` that you were given.
# </details>

# %% tags=["solution"]
def keep_the_gradient(y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """Return dz/dy. z has one element; the result has the shape of y."""
    ### BEGIN SOLUTION
    y.retain_grad()
    z.backward()
    return y.grad
    ### END SOLUTION

# %% tags=["check"]
check("1.2", keep_the_gradient)

# %% [markdown]
# ## The second way: a hook
#
# A **hook** is a function that PyTorch calls at an agreed moment. `y.register_hook(function)` registers it; PyTorch then
# calls it with the gradient of `y`, as that passes. The whole course is about this. Here is a first look; lesson 2 takes it
# apart.

# %% tags=["claim-S1.1", "claim-S2.1"]
grad_list = []
y = x + 2
handle = y.register_hook(grad_list.append)  # the handle takes the hook off again
z = torch.mean(torch.pow(y, 2))
returned = z.backward()
handle.remove()

print("the hook saw", grad_list[0].flatten().tolist())
assert grad_list[0].flatten().tolist() == [3.0, 5.0]
assert returned is None  # backward() gives nothing back by itself

# %% [markdown]
# The same holds on the way forward. A model returns its last result and nothing else. The values in between have no
# name that you could ask for, which is the other reason why hooks exist.

# %% tags=["claim-S1.1", "claim-S2.1"]
model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
output = model(torch.ones(1, 2))

assert isinstance(output, torch.Tensor) and output.shape == (1, 1)
stored = [
    value
    for module in model.modules()
    for value in vars(module).values()
    if isinstance(value, torch.Tensor)
]
assert stored == []  # no module has kept a value that went through it
print("returned: a tensor of shape", tuple(output.shape), "  kept in between:", len(stored))

# %% [markdown]
# For leaves you need none of this. A model's parameters are leaves, and their gradients are there.

# %% tags=["claim-S2.8"]
output.sum().backward()
for name, parameter in model.named_parameters():
    assert parameter.is_leaf and parameter.grad.shape == parameter.shape
    print(f"{name:<9} leaf, .grad of shape {tuple(parameter.grad.shape)}")

# %% [markdown]
# ## The third way: `torch.autograd.grad`
#
# `backward()` writes into `.grad`. `torch.autograd.grad(z, [x, y])` **returns** the gradients and writes nothing. It
# takes any tensors of the graph, leaf or not.

# %%
x = torch.tensor([[1.0], [3.0]], requires_grad=True)
y = x + 2
z = torch.mean(torch.pow(y, 2))
grad_x, grad_y = torch.autograd.grad(z, [x, y])

print("returned:", grad_x.flatten().tolist(), "and", grad_y.flatten().tolist())
print("x.grad =", x.grad)
assert grad_x.flatten().tolist() == grad_y.flatten().tolist() == [3.0, 5.0]
assert x.grad is None and not y.retains_grad

# %% [markdown]
# It is strict. A tensor that `z` does not depend on is an error, unless you say `allow_unused=True`: then its gradient
# is `None`.

# %%
elsewhere = torch.ones(1, requires_grad=True)
z = torch.mean(torch.pow(x + 2, 2))
try:
    torch.autograd.grad(z, [elsewhere])
    raise AssertionError("no error came")
except RuntimeError as error:
    print("RuntimeError:", str(error).split(". ")[0])

(nothing,) = torch.autograd.grad(z, [elsewhere], allow_unused=True)
assert nothing is None

# %% [markdown] tags=["exercise"]
# ### Exercise 1.3 · Gradients without touching `.grad`
# ●●○ · 8 minutes
#
# Return the gradients of `z` for every tensor of the list, in order. Put `None` where `z` does not depend on a tensor.
# Afterwards **every `.grad` is as it was**, also that of tensors outside the list: you only looked.
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
def gradients_on_request(
    z: torch.Tensor, tensors: list[torch.Tensor]
) -> list[torch.Tensor | None]:
    """Return dz/dt for each t in `tensors`, or None where z does not depend on it."""
    ### BEGIN SOLUTION
    return list(torch.autograd.grad(z, tensors, allow_unused=True))
    ### END SOLUTION

# %% tags=["check"]
check("1.3", gradients_on_request)

# %% [markdown]
# ## A second `backward()`
#
# Now to (b) from above. To differentiate a square, its node needs the number that was squared, so it **saves** it.
# After `backward()` the saved numbers are freed. **Predict:** which of the two graphs below survives a second pass?

# %% tags=["predict", "claim-S0.4"]
def second_backward(z: torch.Tensor) -> str:
    z.backward()
    try:
        z.backward()
    except RuntimeError as error:
        return str(error).split(" (")[0]
    return "runs"


with_squares = second_backward(torch.sum((x + 2) ** 2))
only_sums = second_backward(torch.sum(x + 2))
print("with squares:", with_squares)
print("only sums:   ", only_sums)

assert with_squares.startswith("Trying to backward through the graph a second time")
assert only_sums == "runs"  # x + 2 and sum() saved nothing, so nothing is missing

# %% [markdown]
# You can look at what a node has saved, and see it go.

# %% tags=["claim-S0.4"]
squares = (x + 2) ** 2
node = squares.grad_fn
print("saved before backward:", node._saved_self.flatten().tolist())
assert node._saved_self.flatten().tolist() == [3.0, 5.0]

squares.sum().backward()
try:
    node._saved_self
    raise AssertionError("still there")
except RuntimeError as error:
    print("after backward:       ", str(error).split(" (")[0])

# %% [markdown]
# `backward(retain_graph=True)` keeps what was saved, for another pass. And the passes **add up** in `.grad`: this is
# what "accumulate" in `AccumulateGrad` means.

# %%
x.grad = None
z = torch.mean(torch.pow(x + 2, 2))
z.backward(retain_graph=True)
z.backward()

print("after two passes: x.grad =", x.grad.flatten().tolist())
assert x.grad.flatten().tolist() == [6.0, 10.0]

# %% [markdown] tags=["exercise"]
# ### Exercise 1.4 · Use a graph several times, then let it go
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
check("1.4", use_several_times)

# %% [markdown]
# ## One step down
#
# We wanted to minimise `z`. A step of gradient descent moves `x` against its gradient. The documents write
# `x.data -= lr * x.grad.data`. It works, and it is an old habit: `.data` is a way around autograd, and it hides your
# mistakes too. Today you say that a step is not part of the computation: `torch.no_grad()`.

# %% tags=["claim-S0.2"]
lr = 1e-3
x = torch.tensor([[1.0], [3.0]], requires_grad=True)
torch.mean(torch.pow(x + 2, 2)).backward()

with torch.no_grad():
    x -= lr * x.grad

print("x after one step:", [round(value, 3) for value in x.flatten().tolist()])
assert torch.allclose(x, torch.tensor([[0.997], [2.995]]))
assert x.is_leaf and x.requires_grad  # still the same leaf

# %% [markdown]
# What does `.data` hide? Change a tensor that a node has saved. Under `no_grad()` the change is caught; through `.data`, you
# get a wrong gradient in silence.

# %% tags=["claim-S0.2"]
def gradient_after_change(through_data: bool) -> str:
    x = torch.tensor([1.0, 3.0], requires_grad=True)
    y = x + 2
    z = torch.sum(y**2)  # saves y
    if through_data:
        y.data.zero_()
    else:
        with torch.no_grad():
            y.zero_()
    try:
        z.backward()
    except RuntimeError as error:
        return "RuntimeError: " + str(error).split(":")[0]
    return f"x.grad = {x.grad.tolist()}"


honest, hidden = gradient_after_change(False), gradient_after_change(True)
print("under no_grad:", honest)
print("through .data:", hidden, "  (the truth is [6.0, 10.0])")
assert "modified by an inplace operation" in honest
assert hidden == "x.grad = [0.0, 0.0]"

# %% [markdown]
# The next exercise needs one more word. `x.detach()` is a tensor with the same numbers and no graph. It shares the memory of
# `x`, so take `x.detach().clone()` if `x` is going to change.

# %%
x = torch.tensor([1.0, 3.0], requires_grad=True)
shared, copied = x.detach(), x.detach().clone()
with torch.no_grad():
    x += 10

print("detached:", shared.tolist(), "  detached and cloned:", copied.tolist())
assert shared.tolist() == [11.0, 13.0] and copied.tolist() == [1.0, 3.0]
assert not shared.requires_grad and shared.grad_fn is None

# %% [markdown] tags=["exercise"]
# ### Exercise 1.5 · A whole descent
# ●●● · 10 minutes
#
# Walk down $z = \tfrac12(y_1^2 + y_2^2)$, $y = x + 2$, from `start` in `steps` steps of size `lr`. Return the path: a tensor
# of shape `(steps + 1, 2)` whose first row is the start. Leave `start` itself as it is.
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
check("1.5", descend)

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
figure = plots.descent(torch.stack(path), centre=(-2, -2))
plt.show()

# %% [markdown]
# *What to see:* the steps point straight at the minimum and get shorter, because the gradient, x + 2, is the
# vector from the minimum to x.

# %% [markdown]
# ## In the field
#
# Two questions that people ask again and again.
#
# **"I set `requires_grad=True`, and `.grad` is still None."** The weight was made, and then converted or moved. The
# conversion is an operation: what you hold is its result, a non-leaf.
# ([The warning's own thread](https://github.com/pytorch/pytorch/pull/30531))

# %% tags=["field", "field-01"]
weight = torch.ones(2, requires_grad=True).double()  # or .to(another device), or * 0.1
weight.sum().backward()
assert not weight.is_leaf and not weight.retains_grad
print("made, then converted: is_leaf =", weight.is_leaf)

# convert first, then ask for gradients
weight = torch.ones(2, dtype=torch.float64, requires_grad=True)
weight.sum().backward()
assert weight.is_leaf and weight.grad.tolist() == [1.0, 1.0]
print("made as wanted:       is_leaf =", weight.is_leaf, "  .grad =", weight.grad.tolist())

# %% [markdown]
# **"My weight is used in two places. Which gradient do I see, and how often does its hook run?"** You see the sum, once.
# To see the parts, give each use a name of its own, and ask that.
# ([A thread about it](https://github.com/pytorch/pytorch/issues/8023))

# %% tags=["field", "field-10"]
w = torch.ones(1, requires_grad=True)
seen_by_hook = []
handle = w.register_hook(lambda grad: seen_by_hook.append(grad.item()))
first, second = w * 1, w * 1  # one name for each use
first.retain_grad()
second.retain_grad()
(2 * first + 3 * second).sum().backward()
handle.remove()

print("w.grad:", w.grad.item(), "  the hook saw:", seen_by_hook)
print("the parts:", first.grad.item(), "and", second.grad.item())
assert w.grad.item() == 5.0 and seen_by_hook == [5.0]
assert (first.grad.item(), second.grad.item()) == (2.0, 3.0)

# %% [markdown]
# ## The map
#
# The oldest of the documents names three hooks: one on a `Variable`, one on a module's forward, one on a module's
# backward. `Variable` is `Tensor` today, and the family has grown.

# %% tags=["claim-S0.1"]
from torch.autograd import Variable

made_the_old_way = Variable(torch.ones(2), requires_grad=True)
assert type(made_the_old_way) is torch.Tensor
assert isinstance(torch.ones(2), Variable)

old_three = [
    torch.Tensor.register_hook,
    nn.Module.register_forward_hook,
    nn.Module.register_backward_hook,
]
today = {
    "Tensor": ["register_hook", "register_post_accumulate_grad_hook"],
    "Module": ["register_forward_pre_hook", "register_forward_hook",
               "register_full_backward_pre_hook", "register_full_backward_hook"],
}  # fmt: skip
assert all(hasattr(torch.Tensor, name) for name in today["Tensor"])
assert all(hasattr(nn.Module, name) for name in today["Module"])
print(len(old_three), "hooks then;", sum(map(len, today.values())), "kinds on the map below")

# %% tags=["figure"]
figure = plots.hook_map()
plt.show()

# %% [markdown]
# *What to see:* a module's hooks stand around it on both ways; a tensor's hooks stand on the way back only.

# %% [markdown] tags=["recap"]
# ## Recap
#
# | the documents say | today |
# |---|---|
# | there are three hooks, one of them on a `Variable` | `Variable` is `Tensor`; pre-hooks, full backward hooks and post-accumulate hooks have joined |
# | minimise z with `x.data -= lr * x.grad.data` | the same step under `torch.no_grad()`, where autograd can catch mistakes |
# | asking for the gradient of `y` is an error | it is `None`, with a warning that names `retain_grad()` |
# | the gradients of intermediates are released when their work is done | (a) they are passed on and never stored; (b) tensors *saved* for backward are freed, so a second `backward()` fails, unless nothing was saved |
# | `forward()` and `backward()` give you no values in between | true |
# | the model cannot be asked for its inner results | true |
# | leaves and parameters need no hook | true: their `.grad` is there |
# | intermediates are dropped to save memory | true, values and gradients alike |
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | leaf tensor | 叶子张量 | made by you, not by a recorded operation |
# | non-leaf tensor | 非叶子张量 | result of a recorded operation |
# | autograd graph | 计算图 | the recorded operations, one node each |
# | gradient | 梯度 | what flows back along the graph |
# | accumulate | 累积 | add to `.grad` instead of replacing it |
# | hook | 钩子 | a function that PyTorch calls at an agreed moment |

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
progress(1)
