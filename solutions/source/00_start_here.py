# %% [markdown]
# # Start here
#
# **Time** 10 minutes, and 10 for what comes after &nbsp;·&nbsp; **You need** Python, `torch.tensor`, and to have seen an `nn.Linear`
#
# A *hook* is a function that you write and PyTorch calls: when a layer has computed its output, say, or when a gradient
# arrives. With hooks you can look inside a model, and change what flows through it, without editing its code.
#
# Most people arrive with a question. Why is `y.grad` None? How do I get a layer's output? Why didn't my hook run? Each has
# its place in a lesson. **In a hurry?** Look up your symptom in [the index](#The-index-of-symptoms) below.

# %% tags=["setup"]
import matplotlib.pyplot as plt
import torch
from torch import nn

from hooklab import check, predict, progress, reveal
from hooklab.course.exercises.ready import yours_or
from hooklab.course.lesson00 import figures

torch.set_num_threads(1)

# %% [markdown]
# ## Two hooks around one layer
#
# One hook is on the layer, and runs when the layer has computed its output. The other is on that output, the tensor `y`, and runs
# when the gradient of `y` arrives. Both only read.

# %%
layer = nn.Linear(2, 1, bias=False)
nn.init.ones_(layer.weight)
seen = {}


def forward_hook(module, args, output):
    seen["output"] = output.item()


def tensor_hook(grad):
    seen["gradient"] = grad.item()


layer.register_forward_hook(forward_hook)
y = layer(torch.tensor([2.0, 5.0]))  # forward: the first hook runs
y.register_hook(tensor_hook)
(y**2).sum().backward()  # backward: the second hook runs
print(seen)
assert seen == {"output": 7.0, "gradient": 14.0}  # 2 + 5, and 2y, the slope of y²

# %% tags=["figure"]
figure = figures.two_hooks(seen["output"], seen["gradient"])
plt.show()

# %% [markdown]
# *What to see:* values flow forward (blue), gradients flow backward (orange). Each hook is called when its value or its gradient
# passes: 7 on the way there, 2·7 = 14 on the way back.

# %% [markdown]
# ## The route
#
# | | lesson | the question | after |
# |---|---|---|---|
# | 1 | [Intermediate gradients](01_intermediate_grad.ipynb) | Why is `y.grad` None, and where did the gradient go? | – |
# | 2 | [Tensor hooks](02_tensor_hooks.ipynb) | How do I read, keep or change a gradient while it flows? | 1 |
# | 3 | [Forward hooks](03_forward_hooks.ipynb) | How do I see a layer's output, and replace it? | 1, 2 |
# | 4 | [Forward pre-hooks](04_forward_pre_hooks.ipynb) | How do I see and change a module's input? | 3 |
# | 5 | [Backward hooks](05_backward_hooks.ipynb) | What do grad_input and grad_output mean, and which backward hook do I use? | 2, 3 |
# | 6 | [Inside `__call__`](06_inside_call.ipynb) | How does a module run its hooks? Build it yourself | 3, 4, 5 |
# | 7 | [Manifold mixup](07_manifold_mixup.ipynb) | How does one forward hook become a training method? | 3 |
# | 8 | [Debugging a training](08_debugging_training.ipynb) | Which layer died, exploded or made the first NaN? | 2, 3, 5 |
# | 9 | [Seeing features](09_seeing_features.ipynb) | What does the network look at, and what if I switch it off? | 3, 5 |
# | 10 | [Graph hooks](10_graph_hooks.ipynb) | What can I hook when there isn't a module? | 2, 5 |
# | 11 | [Hooks in the system](11_hooks_in_the_system.ipynb) | Why did my hook vanish, fire twice, or stop the compiler? | 2, 3, 5 |
# | 12 | [Facts to look up](12_reference.ipynb) | What do hooks do under export, FSDP, an optimizer, a trainer? | as needed |
#
# Each lesson starts with its time. Everything after the recap is optional.
#
# The lessons follow five short Chinese notes about hooks, called **S0 to S4** here. You don't need to know them. If you have
# one open, the tables under [The five documents](#The-five-documents) lead from each of its steps to the cell that runs it.

# %% [markdown]
# ## How a lesson works
#
# **Guess first.** A question comes with a few choices, or asks for a number. Pick one, even if you aren't sure: a wrong guess
# makes the answer stick, and nobody keeps score. Then, in JupyterLab, run the next two cells. The first shows what happens; the
# second (its code is often folded) tells you whether you were right, and why. Try it: above, both hooks only read. What if we
# add one that **returns** something?

# %%
predict("0.a")

# %% tags=["predict"]
def ten_times(module, args, output):
    return 10 * output


with layer.register_forward_hook(ten_times):  # removed at the end of the block
    y = layer(torch.tensor([2.0, 5.0]))
y.register_hook(tensor_hook)
(y**2).sum().backward()
print("What came out:")
print(seen, "  y =", y.item())

# %%
reveal("0.a", seen["gradient"])
assert seen == {"output": 7.0, "gradient": 140.0} and y.item() == 70.0, (
    "On this page, y is 70, so the slope of y² is 140."
)

# %% [markdown]
# **Then write, and a check answers at once.** An exercise is a card, a function with a gap, and a cell that checks it. In
# JupyterLab, run both cells first, with the gap still open: the check says *not attempted*. Then fill the gap and run both cells
# again. The check says *not yet*, with what is missing and why, until it says *correct*. Try a mistake on purpose, too.

# %% [markdown] tags=["exercise"]
# ### Exercise 0.1 · Your first hook
# ●○○ · 2 minutes
#
# Write a hook that doubles: `twice_as_large(x)` receives a tensor and returns a **new** tensor, twice as large. Don't change `x`
# itself. (Below the check, your function becomes a hook on `y`.)
#
# <details><summary>Hint: the check says "not attempted"</summary>
#
# Replace the line `raise NotImplementedError()` with your own, and run that cell before you run the check.
# </details>
# <details><summary>Hint: the check says that I changed something</summary>
#
# `x *= 2` and `x.mul_(2)` write into the tensor that the caller passed. `x * 2` creates a new one.
# </details>

# %% tags=["solution"]
def twice_as_large(x: torch.Tensor) -> torch.Tensor:
    """Return a new tensor, 2 * x."""
    ### BEGIN SOLUTION
    return x * 2
    ### END SOLUTION

# %% tags=["check"]
check("0.1", twice_as_large)

# %% [markdown]
# Now it becomes a hook on `y`. The weight's gradient is computed from that of `y`, so it doubles, too. (While the exercise is
# open, a ready function runs here.)

# %%
yours = yours_or("0.1", twice_as_large, lambda grad: grad + grad)
for name, hook in {"a hook that reads": tensor_hook, "yours": yours}.items():
    layer.weight.grad = None
    y = layer(torch.tensor([2.0, 5.0]))
    with y.register_hook(hook):
        (y**2).sum().backward()
    print(f"{name:<18} weight.grad = {layer.weight.grad.tolist()}")

assert seen["gradient"] == 14.0  # times the input (2, 5): [28, 70]
assert layer.weight.grad.tolist() == [[56.0, 140.0]]

# %%
progress()

# %% [markdown] tags=["recap"]
# That's all you need for [lesson 1](01_intermediate_grad.ipynb). The rest of this page is for looking things up.

# %% [markdown]
# ## If you want more
#
# ### The five hooks
#
# These five do most of the work. `y` is a tensor, `module` is any `nn.Module`, and `args` is a tuple of its positional
# arguments. `grad_output` and `grad_input` are tuples as well: the gradients of the module's outputs and of its inputs. A hook that
# returns `None` changes nothing.
#
# | register | signature | runs | may change | what it returns |
# |---|---|---|---|---|
# | `y.register_hook` | `hook(grad)` | in each backward pass, when the gradient of `y` is complete | the gradient | a tensor replaces it |
# | `module.register_forward_pre_hook` | `hook(module, args)` | before each `forward` | the arguments | a tuple replaces them (a single value is put into one) |
# | `module.register_forward_hook` | `hook(module, args, output)` | after each `forward` | the output | anything replaces it |
# | `module.register_full_backward_pre_hook` | `hook(module, grad_output)` | when the gradient of the output arrives | the gradient of the output | a tuple replaces it |
# | `module.register_full_backward_hook` | `hook(module, grad_input, grad_output)` | when the gradient of the input is ready | the gradient of the input | a tuple replaces it |
#
# Lessons 2 to 5 explain them. Here each doubles what it may change, on a layer that multiplies 3 by 2. Watch `weight.grad` in
# the last row: when that hook runs, the weight's gradient has been computed already.

# %% tags=["claim-S2.9"]
def double(register_name: str, hook) -> list[float]:
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, 2.0)
    if register_name != "register_hook":
        getattr(layer, register_name)(hook)
    x = torch.tensor([[3.0]], requires_grad=True)
    y = layer(x)
    if register_name == "register_hook":
        y.register_hook(hook)
    y.sum().backward()
    return [y.item(), x.grad.item(), layer.weight.grad.item()]


doubled = {
    name: double(name, hook)
    for name, hook in {
        "register_hook": lambda grad: 2 * grad,
        "register_forward_pre_hook": lambda module, args: 2 * args[0],
        "register_forward_hook": lambda module, args, output: 2 * output,
        "register_full_backward_pre_hook": lambda module, out: (2 * out[0],),
        "register_full_backward_hook": lambda module, into, out: (2 * into[0],),
    }.items()
}
print(f"{'each hook doubles':<32}   y  x.grad  weight.grad")
for name, (y, x_grad, weight_grad) in doubled.items():
    print(f"{name:<32} {y:>3g} {x_grad:>7g} {weight_grad:>12g}")

for name in doubled:  # None: unchanged
    assert double(name, lambda *received: None) == [6.0, 2.0, 3.0]
assert list(doubled.values()) == [
    [6.0, 4.0, 6.0],  # the gradient of y goes on to the weight and to x
    [12.0, 4.0, 6.0],
    [12.0, 4.0, 6.0],
    [6.0, 4.0, 6.0],
    [6.0, 4.0, 3.0],  # the weight's gradient is computed by then
]

# %% [markdown]
# ## The index of symptoms
#
# What people say, or what PyTorch prints. Each link opens the cell that answers. Search the page (Ctrl+F) for your own words.
# (In a JupyterLab that `python -m hooklab lab` didn't start, a long lesson may open at its top. Come back and click once more.)
#
# <!-- the index of symptoms -->

# %% [markdown] tags=["documents"]
# ## The five documents
#
# The course follows five short Chinese notes about hooks. Each has a table of its steps here, in its own order: what the step
# says, what is true of it in today's PyTorch, and the cell that runs it.
#
# ### S0 · 有哪些 hook？ (Which hooks are there?)
#
# It uses `Variable`, so it was written with PyTorch before 0.4 in mind; its picture is dated 28 June 2022. Its evidence is two
# threads, [why is an intermediate gradient None](https://discuss.pytorch.org/t/why-cant-i-see-grad-of-an-intermediate-variable/94)
# and [how to extract feature maps](https://discuss.pytorch.org/t/extract-feature-maps-from-intermediate-layers-without-modifying-forward/1390).
#
# <!-- the steps of S0 -->
#
# ### S1 · pytorch 中 hook 的使用 (Using hooks in PyTorch)
#
# It has no date, but it prints the source of `__call__` from PyTorch 1.2 or later. It breaks off in the middle of a sentence.
#
# <!-- the steps of S1 -->
#
# ### S2 · hook 技术 (The hook technique)
#
# A part of a longer note, 其他知识. Its pictures are dated 2 July 2019. It draws on
# [PyTorch note 6](https://www.pytorchtutorial.com/pytorch-note6-pytorch-hook-and-pytorch-backward/) and on
# [an answer on Zhihu](https://www.zhihu.com/question/61044004/answer/183682138).
#
# <!-- the steps of S2 -->
#
# ### S3 · Brikie's article on CSDN
#
# [The longest of the five](https://blog.csdn.net/Brikie/article/details/114255743), without a date in our copy: four hooks, and
# manifold mixup.
#
# <!-- the steps of S3 -->
#
# ### S4 · pytorch hook
#
# It has no date. It prints the source of `__call__` from before PyTorch 1.2, where a forward hook must return nothing.
#
# <!-- the steps of S4 -->

# %% [markdown]
# ### The hooks of S0
#
# S0 starts with three kinds of hooks: on a `Variable`, on a module's forward pass and on its backward pass. They all still
# exist. `Variable` is another name for `Tensor` now, and the third kind has a successor.

# %% tags=["claim-S0.1"]
from torch.autograd import Variable

made_the_old_way = Variable(torch.ones(2), requires_grad=True)
assert type(made_the_old_way) is torch.Tensor
assert isinstance(torch.ones(2), Variable)
made_the_old_way.register_hook(lambda grad: 3 * grad)
made_the_old_way.sum().backward()
assert made_the_old_way.grad.tolist() == [3.0, 3.0]

then = ["register_hook", "register_forward_hook", "register_backward_hook"]
assert hasattr(torch.Tensor, then[0])
assert hasattr(nn.Module, then[1]) and hasattr(nn.Module, then[2])
now = {method for method, _ in figures.HOOKS.values()}
assert {"Tensor.register_hook", "Module.register_forward_hook"} < now
assert "Module.register_backward_hook" not in now  # its successor is
assert "Module.register_full_backward_hook" in now
print(f"{len(then)} kinds of hooks then; {len(now)} kinds in the map of one call")

# %% [markdown]
# ## Every kind of hook
#
# Each kind, with the cell of a lesson in which you run it. The last rows are newer than the PyTorch release that the course is
# tested with. Two kinds are left out, because they don't deal with values or gradients: those for what `torch.package` puts
# into a file, and those for how data pipes are pickled.
#
# <!-- all kinds of hooks -->

# %% [markdown]
# ## A map of one call
#
# A layer is called once, and `backward()` follows. Here are the hooks of tensors and modules that can run, in
# the order in which they ran.

# %% tags=["figure"]
names = [what for what, _ in figures.order_of_hooks()]
figure = figures.hook_map(names)
plt.show()

assert names.index("forward pre-hook") < names.index("forward hook")
assert names.index("tensor hook on y") < names.index("full backward pre-hook")
full = names.index("full backward hook")
assert names.index("post-accumulate hook of the weight") < full
assert full < names.index("tensor hook on x")
for kind in ("forward pre-hook", "forward hook", "full backward pre-hook"):
    assert names.index(f"global {kind}") + 1 == names.index(kind)
assert names.index("global full backward hook") + 1 == full

# %% [markdown]
# *What to see:* follow the numbers. The forward pass goes from left to right (blue), the backward pass from right to left, in
# two rows (orange). Because the input requires grad here, the weight's own hooks run before the layer's full backward hook;
# without that, the order is reversed (lesson 5). A *global* hook (grey) is called for every module, right before the module's
# own hook of that kind.
