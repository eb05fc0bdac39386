# %% [markdown]
# # Start here
#
# **Time** 10 minutes &nbsp;·&nbsp; **You need** Python, `torch.tensor`, and to have seen an `nn.Linear`
#
# A *hook* is a function of yours that PyTorch calls at an agreed moment: when a layer has run, when a gradient arrives. With
# hooks you see inside a model without touching its code, and you change what flows through it.
#
# People come here with a question: why is `y.grad` None, how do I see a layer's output, why did my hook do nothing? Each
# has its place in a lesson. **In a hurry?** Look your symptom up in [the index](#The-index-of-symptoms) below.

# %% tags=["setup"]
import matplotlib.pyplot as plt
import torch
from torch import nn

from hooklab import check, predict, progress, reveal
from hooklab.course.lesson00 import figures

torch.set_num_threads(1)

# %% [markdown]
# ## The route
#
# | | lesson | the question | after |
# |---|---|---|---|
# | 1 | [Intermediate gradients](01_intermediate_grad.ipynb) | Why is `y.grad` None, and where did the gradient go? | – |
# | 2 | [Tensor hooks](02_tensor_hooks.ipynb) | How do I read, keep or change a gradient while it flows? | 1 |
# | 3 | [Forward hooks](03_forward_hooks.ipynb) | How do I see (and replace) what a layer puts out? | 1, 2 |
# | 4 | [Forward pre-hooks](04_forward_pre_hooks.ipynb) | How do I see and change what goes in? | 3 |
# | 5 | [Backward hooks](05_backward_hooks.ipynb) | What do grad_input and grad_output mean, and which backward hook do I use? | 2, 3 |
# | 6 | [Inside `__call__`](06_inside_call.ipynb) | How does a module run its hooks? Build it yourself | 3, 4, 5 |
# | 7 | [Manifold mixup](07_manifold_mixup.ipynb) | How does one forward hook become a training method? | 3 |
# | 8 | [Debugging a training](08_debugging_training.ipynb) | Which layer died, exploded or made the first NaN? | 2, 3, 5 |
# | 9 | [Seeing features](09_seeing_features.ipynb) | What does the network look at, and what if I switch it off? | 3, 5 |
# | 10 | [Graph hooks](10_graph_hooks.ipynb) | What can I hook when there is no module? | 2, 5 |
# | 11 | [Hooks in the system](11_hooks_in_the_system.ipynb) | Why did my hook vanish, fire twice, or stop the compiler? | 2, 3, 5 |
#
# The first card of a lesson says how long it takes. What stands behind its recap is for the curious, and can wait.

# %% [markdown]
# ## How a lesson works
#
# **You guess before you see.** A question comes with a few choices, or asks for a number. Choose one: nobody counts how often
# you are wrong, and a wrong guess is what makes an answer stick. In JupyterLab, you then run the next two cells; the code of
# the second is often folded. You learn which choice was right, and which way of thinking leads to the others. You cannot know
# this first one yet: go by the picture that you have.

# %%
predict("0.a")

# %% tags=["predict"]
order = []
layer = nn.Linear(2, 1)
layer.register_full_backward_hook(lambda *three: order.append("layer"))
layer.weight.register_post_accumulate_grad_hook(lambda weight: order.append("weight"))

x = torch.ones(1, 2, requires_grad=True)
layer(x).sum().backward()
print("What came out:")
print(" then ".join(order))

# %%
reveal("0.a", order)
assert order == ["weight", "layer"], (
    "On this page, the weight's hook runs before the layer's."
)

# %% [markdown]
# **In JupyterLab you write, and a check answers at once.** An exercise is a card, a function with a gap, and a cell that checks
# it. Run the check right away, with the gap as it is: *not attempted* is how every exercise begins. Then write, and run both
# cells again. A check says *not yet*, with what is missing and why, until it says *correct*. Make a mistake on purpose as well.

# %% [markdown] tags=["exercise"]
# ### Exercise 0.1 · Try a check
# ●○○ · 2 minutes
#
# Return a tensor that is twice as large as `x`, and leave `x` as it is.
#
# <details><summary>Hint: the check says "not attempted"</summary>
#
# Delete the line `raise NotImplementedError()`, write yours in its place, and run that cell before the check.
# </details>
# <details><summary>Hint: the check says that I changed something</summary>
#
# `x *= 2` and `x.mul_(2)` write into the tensor that you were given. `x * 2` makes a new one.
# </details>

# %% tags=["solution"]
def twice_as_large(x: torch.Tensor) -> torch.Tensor:
    """Return a new tensor, 2 * x."""
    ### BEGIN SOLUTION
    return x * 2
    ### END SOLUTION

# %% tags=["check"]
check("0.1", twice_as_large)

# %%
progress()

# %% [markdown]
# ## A map: the hooks of one call
#
# These sit on the way of one call and its backward pass, here in the order in which they ran.

# %%
seen = figures.order_of_hooks()
for number, (what, lesson) in enumerate(seen, start=1):
    print(f"{number:>2}  {what:<40} lesson {lesson}")

names = [what for what, _ in seen]
assert names.index("forward pre-hook") < names.index("forward hook")
assert names.index("tensor hook on y") < names.index("full backward pre-hook")
assert names.index("post-accumulate hook of the weight") < names.index("full backward hook")
assert names.index("full backward hook") < names.index("tensor hook on x")

# %% tags=["figure"]
figure = figures.hook_map(names)
plt.show()

# %% [markdown]
# *What to see:* blue is the way forward, from left to right, vermilion the way back, from right to left. Where the input wants
# a gradient, as here, the weight's own hooks run before the layer's full backward hook (otherwise the order turns round:
# lesson 5). A *global* hook, one that is called for every module, runs right before the module's own hook of its kind.
#
# That is all you need for [lesson 1](01_intermediate_grad.ipynb). The rest of this page is for looking things up.

# %% [markdown] tags=["recap"]
# ## The index of symptoms
#
# What people say, or what PyTorch prints; each link opens the cell that answers. Search the page (Ctrl+F) for a word of yours.
# In JupyterLab, a long lesson may open at its top the first time: wait until it has loaded, come back and click once more.
#
# <!-- the index of symptoms -->

# %% [markdown]
# ## Every kind of hook
#
# Each with the cell of a lesson in which you run it. The last rows are newer than the torch that the course is tested with. Left
# out is what has nothing to do with values and gradients: what `torch.package` puts into a file, and how data pipes are pickled.
#
# <!-- all kinds of hooks -->

# %% [markdown]
# ## The five documents
#
# The course follows five short Chinese notes about hooks, step by step. You need none of them. If you have read one, the
# recap of each lesson tells what still holds.
#
# | | document | when |
# |---|---|---|
# | S0 | "有哪些 hook？" (Which hooks are there?) | uses `Variable`, so it thinks in PyTorch before 0.4; its pictures are dated June 2022 |
# | S1 | "pytorch 中 hook 的使用" (Using hooks in PyTorch) | no date; prints the source of `__call__` from after 1.2 |
# | S2 | "hook 技术" (The hook technique), part of "其他知识"; it draws on [PyTorch note 6](https://www.pytorchtutorial.com/pytorch-note6-pytorch-hook-and-pytorch-backward/) and [a Zhihu answer](https://www.zhihu.com/question/61044004/answer/183682138) | no date |
# | S3 | [Brikie's article on CSDN](https://blog.csdn.net/Brikie/article/details/114255743), the longest: four hooks, and manifold mixup | no date in our copy |
# | S4 | "pytorch hook" | no date; prints the source of `__call__` from before 1.2, where a forward hook must return nothing |
#
# The oldest names three hooks: on a `Variable`, on a module's forward, on a module's backward. `Variable` is `Tensor` today,
# and the family has grown.

# %% tags=["claim-S0.1"]
from torch.autograd import Variable

made_the_old_way = Variable(torch.ones(2), requires_grad=True)
assert type(made_the_old_way) is torch.Tensor and isinstance(torch.ones(2), Variable)
made_the_old_way.register_hook(lambda grad: 3 * grad)
made_the_old_way.sum().backward()
assert made_the_old_way.grad.tolist() == [3.0, 3.0]

old_three = ["Tensor.register_hook", "Module.register_forward_hook", "Module.register_backward_hook"]
owners = {"Tensor": torch.Tensor, "Module": nn.Module}
assert all(callable(getattr(owners[name.split(".")[0]], name.split(".")[1])) for name in old_three)
assert {method for method, _ in figures.HOOKS.values()} & set(old_three) == set(old_three[:2])  # the third is superseded
print(len(old_three), "hooks then;", len({method for method, _ in figures.HOOKS.values()}), "ways to register one on the map")
