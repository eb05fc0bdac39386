# %% [markdown]
# # 2 · How do I read, keep or change a gradient while it flows?
#
# **Time** 50 minutes, and 15 for the ●●● exercise &nbsp;·&nbsp; **You need** lesson 1
#
# After this lesson you can
#
# - keep the gradient of any tensor, with one line and no trace left behind;
# - change a gradient on its way, and say why you return a new one instead of writing into the old one;
# - say in which order hooks run, and what `.grad` holds in the end;
# - hook many tensors in a loop, and take every hook off again, whatever happens;
# - watch and clip the gradients of a network while it trains.

# %% tags=["setup"]
import functools
import gc
import warnings
from collections.abc import Callable
from contextlib import ExitStack

import matplotlib.pyplot as plt
import torch
from IPython.display import display
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle

from hooklab import check, progress
from hooklab.course.lesson01 import explorer
from hooklab.course.lesson02 import figures

torch.set_num_threads(1)

# %% [markdown]
# ## Predict
#
# Four twos are squared, and the mean is taken. Each of the four has the gradient $\tfrac14 \cdot 2x = 1$.
#
# Three people want a hook that doubles this gradient. Their hooks differ by a few characters. **Before you run the
# cell: what does each of them find in `x.grad`?**

# %% tags=["predict", "claim-S3.2", "claim-S3.3"]
def first(grad):
    grad *= 2


def second(grad):
    grad = grad * 2


def third(grad):
    return grad * 2


found = {}
for hook in (first, second, third):
    x = torch.tensor([2.0, 2.0, 2.0, 2.0], requires_grad=True)
    z = torch.mean(torch.pow(x, 2))
    with x.register_hook(hook):  # removed again at the end of this block
        z.backward()
    found[hook.__name__] = x.grad.tolist()
    print(f"{hook.__name__:<7}", found[hook.__name__])

assert found["first"] == found["third"] == [2.0, 2.0, 2.0, 2.0]
assert found["second"] == [1.0, 1.0, 1.0, 1.0]

# %% [markdown]
# The second hook does nothing, and says nothing. `grad * 2` makes a new tensor, the name `grad` moves over to it, the
# function ends, and the new tensor is gone. The third hook hands it back with `return`.
#
# The first hook works, here. Why you should still not write it that way is one of the questions of this lesson.

# %% [markdown]
# ## Read: a hook that looks
#
# A **tensor hook** is a function with one argument. `y.register_hook(function)` hands the function over and calls
# nothing yet. When `backward()` reaches `y`, PyTorch calls it with the gradient of `y`.
#
# The oldest document prints the gradient, or appends it to a list. `x`, `y` and `z` are those of lesson 1.

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
# `register_hook` gives you a **handle**, and `handle.remove()` takes the hook off again.
#
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
# hooks its activations stops with this line. Nothing in the frozen network asks for a gradient, so none will ever pass,
# and PyTorch tells you at once. ([A thread about it](https://github.com/frgfm/torch-cam/issues/217))

# %% tags=["claim-S1.2", "field", "field-03"]
def error_of(function, *args) -> str:
    """Call function(*args); return the error that it raised, as text."""
    try:
        function(*args)
    except (RuntimeError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


frozen = nn.Linear(2, 1).requires_grad_(False)
image = torch.ones(1, 2)
output = frozen(image)
message = error_of(output.register_hook, print)

print("requires_grad =", output.requires_grad)
print(message)
assert "RuntimeError: cannot register a hook on a tensor that doesn't require" in message

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
# The signature in the documents is `hook(grad) -> Tensor or None`. You know `None`. A tensor **takes the gradient's
# place**. What will `y.grad` and `x.grad` be?

# %% tags=["predict", "claim-S0.6", "claim-S2.2"]
def ten_times(grad):
    return 10 * grad


x = torch.tensor([[1.0], [3.0]], requires_grad=True)
y = x + 2
y.retain_grad()
z = torch.mean(torch.pow(y, 2))
with y.register_hook(ten_times):
    z.backward()

print("y.grad =", y.grad.flatten().tolist())
print("x.grad =", x.grad.flatten().tolist())
assert y.grad.flatten().tolist() == [30.0, 50.0]  # y's own gradient
assert x.grad.flatten().tolist() == [30.0, 50.0]  # and everything before y gets it too

# %% [markdown]
# One of the documents says that a tensor hook cannot change anything, and only offers a new value in `tensor.grad`. The
# second assert shows the opposite: we hooked `y`, and `x.grad` is ten times as large.
#
# **"`hook '<lambda>' has changed the size of value`."** You meant to look at a norm, and got this error. What you return
# must fit the gradient's place: one tensor, with its shape and its dtype. And a lambda returns the value of its
# expression, whether you want that or not. ([A thread about it](https://github.com/pytorch/pytorch/issues/5022))

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
assert outcomes["no tensor"] == "TypeError: expected Variable, but hook returned 'float'"

# %% [markdown]
# ("Variable" in the last two lines is the old name of `Tensor`.) The mend: a hook that looks must return `None`.

# %% tags=["field", "field-06"]
norms = []
assert backward_with(lambda grad: norms.append(grad.norm().item())) == "no error"
print("norms:", [round(norm, 3) for norm in norms])
assert abs(norms[0] - 8**0.5) < 1e-6  # the gradient is [2, 2]

# %% [markdown]
# ## In place, and why not
#
# Back to the first hook, `grad *= 2`. It writes into the tensor that it was given: it works **in place**. One document
# uses it, and adds that returning is the safe way. PyTorch's own page is stricter: a hook
# [should not modify its argument](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.register_hook.html).
# There are two reasons.
#
# **Reason one: it can fail.** Replace the mean by a sum, and run the same hook.

# %% tags=["claim-S3.4", "field", "field-05"]
x = torch.tensor([2.0, 2.0, 2.0, 2.0], requires_grad=True)
with x.register_hook(first):
    message = error_of(x.sum().backward).split(". ")[0]

print(message)
assert message.startswith("RuntimeError: unsupported operation: more than one element")

# %% [markdown]
# Every element of a sum has the gradient 1. PyTorch saves memory and sends **one** number that is seen four times, an
# *expanded* tensor. Nobody can write four results into one number. Returning a new tensor works.

# %% tags=["claim-S3.4"]
strides = []
x = torch.tensor([2.0, 2.0, 2.0, 2.0], requires_grad=True)
with x.register_hook(lambda grad: strides.append(grad.stride())), x.register_hook(third):
    x.sum().backward()

print("stride", strides[0], "  x.grad =", x.grad.tolist())
assert strides[0] == (0,)  # from one element to the next: zero steps in memory
assert x.grad.tolist() == [2.0, 2.0, 2.0, 2.0]

# %% [markdown]
# **Reason two: it can reach others.** *"I zeroed one tensor's gradient in a hook, and another tensor lost its gradient
# as well."* The gradient of `a + b` is the same for `a` and for `b`, so PyTorch hands the same tensor to both. Write
# into it, and both have changed. ([A thread about hooks that edit their arguments](https://github.com/meta-pytorch/opacus/issues/9))

# %% tags=["claim-S3.4", "field", "field-05"]
def zero_in_place(grad):
    grad.zero_()


def zero(grad):
    return torch.zeros_like(grad)


def gradients_with(hook) -> tuple[list[float], list[float]]:
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    a_used, b_used = a * 1, b * 1
    with b_used.register_hook(hook):  # only b is hooked
        ((a_used + b_used) ** 2).sum().backward()
    return a.grad.tolist(), b.grad.tolist()


for hook in (zero_in_place, zero):
    grad_a, grad_b = gradients_with(hook)
    print(f"{hook.__name__:<14} a.grad = {grad_a}   b.grad = {grad_b}")

assert gradients_with(zero_in_place) == ([0.0, 0.0], [0.0, 0.0])  # a lost its gradient too
assert gradients_with(zero) == ([4.0, 4.0], [0.0, 0.0])

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
# **"There are two hooks on my tensor. Which runs first, and what do I find in `.grad`?"** Hooks run in the order in
# which they were registered. Each gets what the one before it made. And `retain_grad()` keeps what the **last** one
# made, even if you asked for it first: this is the tensor's own, final gradient. ([The change that made this so](https://github.com/pytorch/pytorch/pull/85849))

# %% tags=["field", "field-07"]
x = torch.tensor([[1.0], [3.0]], requires_grad=True)
y = x + 2
y.retain_grad()  # first, and yet it keeps the end of the chain
got = {}


def look(grad):
    got["look"] = grad


def double(grad):
    got["double"] = grad
    return 2 * grad


def add_one(grad):
    got["add_one"] = grad
    return grad + 1


with y.register_hook(look), y.register_hook(double), y.register_hook(add_one):
    torch.mean(torch.pow(y, 2)).backward()

# %% tags=["claim-S4.5", "field", "field-07"]
for name, grad in got.items():
    print(f"{name:<8} got {grad.flatten().tolist()}")
print("y.grad =", y.grad.flatten().tolist(), "  x.grad =", x.grad.flatten().tolist())

assert list(got) == ["look", "double", "add_one"]
assert got["double"].flatten().tolist() == [3.0, 5.0]
assert got["add_one"].flatten().tolist() == [6.0, 10.0]
assert y.grad.flatten().tolist() == [7.0, 11.0]  # y's own, final gradient
assert x.grad.flatten().tolist() == [7.0, 11.0]  # and what flows on

# %% tags=["figure"]
after = {"look": got["double"], "double": got["add_one"], "add_one": y.grad}
figure = figures.hook_chain(got["look"], after, kept=y.grad, owner="y")
plt.show()

# %% [markdown]
# *What to see:* read it from right to left, as `backward()` goes. A purple hook changed the gradient, the grey one only
# looked. `y.grad` is taken after the last hook, at the place from where the gradient goes on.
#
# In lesson 1 you walked through `backward()`. Do it again with hooks on `y`, and with `retain_grad()`.

# %% tags=["explorer"]
explorer.backward_steps()

# %% [markdown]
# Without a kernel, here are the two hook steps of a run with all three switches on, and its end.

# %% tags=["figure"]
steps = explorer.record_backward(retain=True, reads=True, doubles=True)
for number in (3, 4, 7):
    print(explorer.describe_step(steps, number))
    display(explorer.draw_step(steps, number))

assert [step.where for step in steps if step.is_hook] == ["y", "y"]
assert steps[-1].grads["x"] == steps[-1].grads["y"] == (6.0, 10.0)

# %% [markdown]
# *What to see:* both hooks run when the gradient has arrived at `y`, and before the node behind it does. What the last
# one returned is what `y` keeps and what `x` gets.
#
# So which do you use to read a gradient: `retain_grad()` or a hook? Let two passes decide.

# %%
y = x + 2
y.retain_grad()
passes = []
with y.register_hook(lambda grad: passes.append(grad.flatten().tolist())):
    y.sum().backward()
    (5 * y).sum().backward()

print("the hook saw", passes)
print("y.grad =", y.grad.flatten().tolist())
assert passes == [[1.0, 1.0], [5.0, 5.0]]  # each pass on its own
assert y.grad.flatten().tolist() == [6.0, 6.0]  # added up, and kept as long as y lives

# %% [markdown]
# `retain_grad()` is the short way when you want the final value of one pass. A hook sees every pass, may reduce the
# gradient to one number at once, may change it, and can be removed.

# %% [markdown]
# ## The handle
#
# The documents warn: `remove()` must come after `backward()`. **Predict:** which of these three hooks will run?

# %% tags=["predict", "claim-S3.5"]
ran = []
y = x + 2

handle = y.register_hook(lambda grad: ran.append("removed before"))
handle.remove()

handle = y.register_hook(lambda grad: ran.append("removed after"))
with y.register_hook(lambda grad: ran.append("with")):
    y.sum().backward()
handle.remove()

y.sum().backward()  # nobody is left to listen
print(ran)
assert ran == ["removed after", "with"]

# %% [markdown]
# Registering only notes the function in a dictionary; `remove()` crosses it out. There is nothing else to it.
#
# What if you throw the handle away? The hook does not care. You have lost the way to remove it.

# %%
ran = []
y = x + 2
y.register_hook(lambda grad: ran.append("still here"))  # nobody keeps the handle
gc.collect()  # and Python clears away what nobody keeps
y.sum().backward()

print(ran, "  hooks on y:", len(y._backward_hooks))
assert ran == ["still here"] and len(y._backward_hooks) == 1

# %% [markdown]
# How bad is that? It depends on the tensor. A **non-leaf** is made anew in each forward pass, and a forgotten hook goes
# with the old one. A **leaf** such as a parameter stays, and its hooks stay with it. Here somebody registers a doubling
# hook in every step of a loop.

# %%
w = torch.ones(1, requires_grad=True)
on_leaf, on_non_leaf, handles = [], [], []
for _ in range(4):
    w.grad = None
    y = w * 1
    y.register_hook(double)
    y.sum().backward()
    on_non_leaf.append(w.grad.item())

for _ in range(4):
    w.grad = None
    handles.append(w.register_hook(double))  # kept only to clean up below
    w.sum().backward()
    on_leaf.append(w.grad.item())
for handle in handles:
    handle.remove()

print("on a new y each time:", on_non_leaf)
print("on the same w:       ", on_leaf)
assert on_non_leaf == [2.0, 2.0, 2.0, 2.0]
assert on_leaf == [2.0, 4.0, 8.0, 16.0]  # one hook more in each step

# %% [markdown]
# So keep every handle, or write `with`. The end of a `with` block removes the hook in any case, after an error too.

# %%
y = x + 2
try:
    with y.register_hook(print):
        raise ValueError("something went wrong before backward")
except ValueError as error:
    print(error)

assert len(y._backward_hooks) == 0

# %% [markdown]
# ## Many tensors: the loop
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
# ### Exercise 2.3 · Gradients by name
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
check("2.3", gradients_by_name)

# %% [markdown]
# ## A method as a hook
#
# Often a hook needs a memory: a list, a counter, a limit. An object has one. The documents say that a hook defined in a
# class takes `self` first. When you write `counter.hook`, Python makes a **bound method**: a function that already knows
# its `self` and needs only `grad`.

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
# ### Exercise 2.4 · A hook with a memory
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
check("2.4", GradientNorms)

# %% [markdown]
# ## The documents' example
#
# One document puts three hooks to work at once: on a tensor, on a module's forward, and on its backward. The module has
# one parameter, of shape 3x1. Lessons 3 and 5 are about the two hooks on the module; here, watch the numbers.
#
# With $x = (1, 2, 3)$, $y = 2x$ and $w = (3, 1, -2)$: what is $z = y \cdot w$? And what are the gradients of $y$, $x$ and $w$?

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

# %% [markdown]
# `y.grad` is None: the gradient of `y` is only where the hooks have put it. `x` and `model.w` are leaves and needed no hook.

# %% tags=["claim-S2.7"]
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the warning of lesson 1
    grad_of_y = y.grad

print("y.grad =", grad_of_y)
print("x.grad =", x.grad.tolist(), "  w.grad =", model.w.grad.flatten().tolist())
assert type(grad_of_y).__name__ == "NoneType"
assert x.grad.tolist() == [[6.0, 2.0, -4.0]]  # 2w
assert model.w.grad.flatten().tolist() == [2.0, 4.0, 6.0]  # y

# %% [markdown]
# ## On a leaf: before and after `.grad`
#
# **"Inside my hook, `param.grad` is None, or old."** A tensor hook of a leaf runs **before** the gradient is added to
# `.grad`: it must, since it may still change it. For the finished `.grad` there is a hook of its own, which only leaves
# have: `register_post_accumulate_grad_hook`. It gets the **tensor**, not the gradient, and returns nothing.
# ([A thread about it](https://github.com/pytorch/pytorch/issues/149938))

# %% tags=["field", "field-17"]
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
# It is strict about its two rules.

# %% tags=["field", "field-17"]
on_a_non_leaf = error_of((w * 1).register_post_accumulate_grad_hook, afterwards)
with w.register_post_accumulate_grad_hook(lambda tensor: 2 * tensor.grad):
    with_a_result = error_of(w.sum().backward)

print(on_a_non_leaf)
print(with_a_result)
assert "cannot be registered on non-leaf tensors" in on_a_non_leaf
assert "should return None" in with_a_result

# %% [markdown]
# ## Use it: a network that trains
#
# Scikit-learn's digits are 1797 pictures of 8x8 pixels. The pixels go from 0 to 16, and somebody forgot to scale them.
# The step size is large as well. What happens inside the network?
#
# To **clip** a gradient is to keep it within a limit. The hook `cut` does it to each number on its own. Every parameter gets
# it, if there is a limit. Every weight gets a second hook, which notes the norm of what is left.

# %%
def cut(limit, grad):
    return grad.clamp(-limit, limit)


def note(norms, grad):
    norms.append(grad.norm().item())


def hook_all(network, limit):
    norms, handles = {}, ExitStack()  # an ExitStack is a `with` block for many handles
    for name, parameter in network.named_parameters():
        if limit is not None:
            hook = functools.partial(cut, limit)
            handles.enter_context(parameter.register_hook(hook))
        if name.endswith("weight"):
            norms[name] = []
            hook = functools.partial(note, norms[name])
            handles.enter_context(parameter.register_hook(hook))
    return norms, handles

# %% [markdown]
# An ordinary training loop follows. It knows nothing of the hooks.

# %%
digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32)
labels = torch.tensor(digits.target)


def train(limit):
    torch.manual_seed(0)
    layers = nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10)
    network = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    norms, handles = hook_all(network, limit)
    with handles:
        for _ in range(100):
            batch = torch.randint(len(images), (64,))
            optimizer.zero_grad()
            F.cross_entropy(network(images[batch]), labels[batch]).backward()
            optimizer.step()
    with torch.no_grad():
        right = (network(images).argmax(dim=1) == labels).float().mean().item()
    return right, norms, network

# %%
right_plain, norms_plain, plain = train(limit=None)
right_clipped, norms_clipped, network = train(limit=0.01)

print("more than 7 of 10 pictures are read right, without clipping:", right_plain > 0.7)
print("                                           with clipping:   ", right_clipped > 0.7)
assert right_plain < 0.3 and right_clipped > 0.7
assert not (plain[:2](images).any() and plain[:4](images).any())  # a layer is all zeros
for name, parameter in network.named_parameters():
    assert len(parameter._backward_hooks) == 0  # all removed
    if name in norms_clipped:
        assert len(norms_clipped[name]) == len(norms_plain[name]) == 100

# %% tags=["figure"]
figure = figures.norms_per_layer(norms_plain, norms_clipped)
plt.show()

last = {name: sum(norms[-10:]) for name, norms in norms_plain.items()}
print("sum of the last ten norms, without clipping:", last["0.weight"], "and", last["2.weight"])
assert last["0.weight"] == last["2.weight"] == 0.0
for name, norms in norms_clipped.items():  # 0.01 in each of n numbers: norm 0.01 * sqrt(n)
    longest = 0.01 * network.get_parameter(name).numel() ** 0.5
    assert max(norms) < longest + 1e-6 and min(norms[-10:]) > 0.0
    assert max(norms_plain[name]) > 5 * longest

# %% [markdown]
# *What to see:* without clipping the gradients shoot up within the first steps. Soon hardly anything arrives at `0.weight`
# and `2.weight`, and in the end **nothing**: giant steps have switched the neurons of a layer off, and a ReLU that is off
# passes no gradient that could switch it on again. With the hook no step is giant, and the gradients keep coming. (The axis
# is logarithmic above 0.1, and reaches down to 0.)

# %% [markdown] tags=["exercise"]
# ### Exercise 2.5 · Clip inside somebody else's loop
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
check("2.5", run_clipped)

# %% [markdown]
# When the loop is your own, you need no hook for this: `torch.nn.utils.clip_grad_norm_(model.parameters(), limit)` stands
# between `backward()` and `step()`. It is not quite the same: it takes **one** norm over all parameters together, which
# no single hook can see.

# %%
a, b = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
(3 * a + 4 * b).sum().backward()
norm_of_all = torch.nn.utils.clip_grad_norm_([a, b], max_norm=1.0)

print("one norm over both:", norm_of_all.item())
print("clipped:", round(a.grad.item(), 3), "and", round(b.grad.item(), 3))
assert norm_of_all.item() == 5.0  # the root of 9 + 16
assert torch.allclose(torch.cat([a.grad, b.grad]), torch.tensor([0.6, 0.8]), atol=1e-4)

# %% [markdown]
# ## In the field
#
# You have met six field cases on the way. Two more, where the hook is right and something else surprises.
#
# **"My hook multiplies the gradient by 1000, `.grad` shows it, and the optimizer's step does not change."** Adam divides
# each gradient by a running measure of its own size, so a constant factor cancels. SGD does not, and shows it. To slow
# down or speed up a layer under Adam, give it a learning rate of its own in a parameter group.
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
# **"I hooked a tensor and then changed it in place. Which value does my hook belong to?"** To the old one. A hook stays
# at the place in the graph where it was registered; `retain_grad()` moves on to the newest value.
# ([The change that settled it](https://github.com/pytorch/pytorch/pull/79996)) The mend: hook after the last in-place
# change, or write `y = y * 5`, so that the two values have two names.

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

# %% [markdown] tags=["recap"]
# ## Recap
#
# | the documents say | today |
# |---|---|
# | `y.register_hook(fn)` runs `fn` in backward; print the gradient or append it to a list | true; `grad_list.append` is such a function, because it returns `None` |
# | `hook(grad) -> Variable or None`; the result changes the gradient | true; the result needs the shape and the dtype of the gradient, anything else is an error |
# | `register_hook` is for variables with `requires_grad=True` | true; for others a RuntimeError |
# | a tensor hook cannot change data, it only offers a new value in `tensor.grad` | wrong: what it returns flows on, to everything before this tensor |
# | `grad *= 2` in a hook doubles the gradient | true in the document's example; after a `sum()` it raises, and it can change other tensors' gradients |
# | `grad = grad * 2` without `return` has no effect | true, and there is no message |
# | returning is the safe way | true, and the only way that PyTorch supports |
# | `remove()` must come after `backward()` | true; `with` says it best |
# | a hook defined in a class takes `self` first | true; register the bound method, `obj.hook` |
# | example: three hooks on a small module, `y.grad` is None, the list has the gradient | true; the tensor hook's list has it, and the backward hook gets it as `grad_input` |
# | a tensor hook's result becomes the tensor's own final gradient | true; with several hooks, the result of the last one |
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | tensor hook | 张量钩子 | a function that gets a tensor's gradient as it passes, and may replace it |
# | handle | 句柄 | what `register_hook` returns; `remove()` takes the hook off |
# | in place | 原地操作 | writing into an existing tensor instead of making a new one |
# | late binding | 延迟绑定 | a function looks a variable up when it runs |
# | bound method | 绑定方法 | a method taken from an object, which knows its `self` |
# | context manager | 上下文管理器 | an object that `with` can open and close |
# | post-accumulate hook | 累积后钩子 | runs after a leaf's `.grad` was written, and gets the leaf |
# | gradient clipping | 梯度裁剪 | keeping a gradient within a limit |

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
# gradient is an expanded one. `clamp` makes a new tensor, which the hook returns.
# </details>

# %%
progress(2)
