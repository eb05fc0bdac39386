# %% [markdown]
# # 4 · How do I see and change what goes in?
#
# **Time** 45 minutes, and 20 for what comes after the recap &nbsp;·&nbsp; **You need** lesson 3 (forward hooks, handles, `with`)
#
# After this lesson you can
#
# - look at a module's arguments before it runs, and replace them;
# - name the forms in which a pre-hook may return, and the ones that look right and are not;
# - reach keyword arguments, and decide which of two hooks runs first;
# - mend what a model is fed without touching the model, and swap parts of two passes to see what decides the answer.

# %% tags=["setup"]
import warnings

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import hooklab
from hooklab import check, predict, progress, reveal
from hooklab.course import plots
from hooklab.course.digits import accuracy, digits, trained_digits_cnn
from hooklab.course.errors import error_of
from hooklab.course.lesson04 import figures

torch.set_num_threads(1)

# %% [markdown]
# ## A model at the wrong door
#
# This network reads handwritten digits: dark ink on white paper, and of 360 test pictures it gets more than nine in ten
# right. A colleague feeds it scans from another machine, white ink on black paper: every pixel `p` has become `1 - p`.

# %%
data = digits()
cnn = trained_digits_cnn(seed=0)
images, labels = data.test_images, data.test_labels
assert accuracy(cnn, images, labels) > 0.9

# %%
predict("4.a")

# %% tags=["predict"]
inverted = 1 - images
print("What came out:")
print(f"right: {accuracy(cnn, inverted, labels):.0%}")

# %%
reveal("4.a", accuracy(cnn, inverted, labels))
assert accuracy(cnn, inverted, labels) < 0.02, (
    "With the page's network and pictures, hardly any inverted digit is read right."
)

# %% [markdown]
# Suppose that you may not change the model, nor the colleague's code. You can still stand **at the door**.
#
# A **forward pre-hook** is called with the module and its positional arguments, right before `forward` runs. What it returns
# takes their place (one tensor may be returned as it is):

# %%
def turn_back(module, args):
    return 1 - args[0]


with cnn.register_forward_pre_hook(turn_back):
    mended = accuracy(cnn, inverted, labels)

print("with a pre-hook at the door, more than 9 in 10 right:", mended > 0.9)
assert abs(mended - accuracy(cnn, images, labels)) < 0.01

# %% [markdown]
# ## What goes in, what comes back
#
# Small numbers now: a layer that multiplies by 3. `args` is always a **tuple** of the positional arguments, even when there
# is one. The longest document takes the tensor out, changes it, and returns a tuple. That is still right:

# %% tags=["claim-S3.10", "hook-forward-pre"]
triple = nn.Linear(1, 1, bias=False)
with torch.no_grad():
    triple.weight.fill_(3.0)
x = torch.tensor([[2.0]])


def pre_hook(module, inp):
    inp0 = inp[0]
    inp0 = inp0 * 2
    return (inp0,)


with triple.register_forward_pre_hook(pre_hook):
    output = triple(x)

print("output:", output.item(), "  the caller's x:", x.item())
assert output.item() == 12.0  # 3 · (2 · 2)
assert x.item() == 2.0

# %% tags=["figure"]
plots.show(
    figures.input_through_a_pre_hook(triple, x, pre_hook),
    "The caller's 2 goes into the pre-hook, 4 comes out of it and goes into forward, 12 comes out of that.",
)

# %% [markdown]
# *What to see:* the caller's `x` stays 2; the layer works on what the pre-hook returned (in the colour of things changed).
#
# A pre-hook may return `None` (leave it), one tensor (wrapped into a tuple for you), a tuple of all arguments, or, as comes
# below, a pair `(args, kwargs)`. Three other returns that people try:

# %% tags=["field", "field-30"]
def complaint(hook, **options) -> str:
    with triple.register_forward_pre_hook(hook, **options):
        return error_of(triple, x).split(", but got")[0]


a_list = complaint(lambda module, args: [args[0] * 2])
only_args = complaint(lambda module, args, kwargs: (args[0] * 2,), with_kwargs=True)
tuple_times_two = complaint(lambda module, args: args * 2)
assert complaint(lambda module, args: None) == complaint(lambda module, args: args[0] * 2) == "no error"
for message in (a_list, only_args, tuple_times_two):
    print("-", message)

assert a_list.endswith("must be Tensor, not list")
assert only_args.startswith("RuntimeError: forward pre-hook must return None or a tuple")
assert "takes 2 positional arguments but 3 were given" in tuple_times_two

# %% [markdown]
# - A **list** is one value, so it is wrapped: the layer gets one argument, a list.
# - With `with_kwargs=True` both parts must come back.
# - `(x,) * 2` is `(x, x)`: the tuple was doubled, not the tensor.
#
# And a hook with another number of parameters fails when it is called: a pre-hook gets `(module, args)`, or
# `(module, args, kwargs)`. ([The change that brought `with_kwargs`](https://github.com/pytorch/pytorch/pull/89389))

# %% [markdown]
# ## Change in place?
#
# You could also write into the tensor that you were given. The next cell calls the layer twice with the same tensor.

# %%
predict("4.b")

# %% tags=["predict"]
def doubles_in_place(module, args):
    args[0].mul_(2)


mine = torch.tensor([[2.0]])
with triple.register_forward_pre_hook(doubles_in_place):
    first, second = triple(mine).item(), triple(mine).item()

print("What came out:")
print("first call:", first, "  second call:", second, "  my tensor now:", mine.item())

# %% tags=["field", "field-184"]
reveal("4.b", [first, second])
assert (first, second, mine.item()) == (12.0, 24.0, 8.0), (
    "With the page's numbers, the calls give 12 and 24, and `mine` holds 8."
)

# %% [markdown] tags=["exercise"]
# ### Exercise 4.1 · Mend it: double what goes in
# ●○○ · 5 minutes
#
# This script wants to make `layer` work on **twice its input**, and to return the handle, so that the caller can end it. It is
# broken in several ways; mend it. The caller's own tensor must not change, and its gradient must still come back.
#
# ```python
# def double_what_goes_in(layer):
#     def hook(module, args):
#         args = args * 2
#     handle = layer.register_forward_hook(hook)
#     handle.remove()
#     return handle
# ```
#
# <details><summary>Hint: the output does not change</summary>
#
# Does your hook return something? And did you register it before `forward`, or after?
# </details>
# <details><summary>Hint: "takes 2 positional arguments but 3 were given"</summary>
#
# `args` is a tuple. Take the tensor out before you multiply.
# </details>

# %% tags=["solution"]
def double_what_goes_in(layer: nn.Module) -> torch.utils.hooks.RemovableHandle:
    """Register a pre-hook that doubles the layer's one argument; return its handle."""
    ### BEGIN SOLUTION
    return layer.register_forward_pre_hook(lambda module, args: args[0] * 2)
    ### END SOLUTION

# %% tags=["check"]
check("4.1", double_what_goes_in)

# %% [markdown]
# ## Look, refuse, normalise
#
# A pre-hook need not change anything. It can look, and it can refuse: an exception in it reaches the caller, and `forward`
# does not run. This is where a shape or a range is best checked, because the error names the kind of layer and not some
# matrix product deep inside.

# %%
def wants_three_columns(module, args):
    if args[0].shape[-1] != 3:
        raise ValueError(f"{type(module).__name__} wants 3 columns, got {args[0].shape[-1]}")


layer = nn.Linear(3, 1)
with layer.register_forward_pre_hook(wants_three_columns):
    layer(torch.ones(2, 3))
    message = error_of(layer, torch.ones(2, 5))

print(message)
assert message == "ValueError: Linear wants 3 columns, got 5"

# %% [markdown] tags=["exercise"]
# ### Exercise 4.2 · A guard at the door
# ●○○ · 5 minutes
#
# Register a pre-hook that raises `ValueError` when the layer's input holds a NaN or an infinity (of either sign),
# **before** `forward` runs. A good input passes untouched, as the very same object. Return the handle.
#
# <details><summary>Hint: infinity gets in</summary>
#
# `torch.isnan(inf)` is `False`. There is a function that asks whether numbers are finite.
# </details>
# <details><summary>Hint: the check says that forward had already run</summary>
#
# Which of the two register methods did you call?
# </details>

# %% tags=["solution"]
def guard_against_bad_numbers(layer: nn.Module) -> torch.utils.hooks.RemovableHandle:
    """Let only finite inputs in: ValueError otherwise. Return the handle."""
    ### BEGIN SOLUTION
    def guard(module, args):
        if not torch.isfinite(args[0]).all():
            raise ValueError(f"the input of {type(module).__name__} is not finite")

    return layer.register_forward_pre_hook(guard)
    ### END SOLUTION

# %% tags=["check"]
check("4.2", guard_against_bad_numbers)

# %% [markdown]
# A pre-hook may also normalise: here it scales each row to length 1 before the layer sees it. (S2 says that pre-hooks serve "Norm
# layers". BatchNorm, LayerNorm and the like have none today; "If you want more" builds one that had.)

# %% tags=["claim-S2.3"]
def to_unit_length(module, args):
    (rows,) = args
    return rows / rows.norm(dim=1, keepdim=True)


adds_up = nn.Linear(2, 1, bias=False)
with torch.no_grad():
    adds_up.weight.fill_(1.0)
rows = torch.tensor([[3.0, 4.0], [30.0, 40.0]])
plain = adds_up(rows).flatten().tolist()
with adds_up.register_forward_pre_hook(to_unit_length):
    normed = adds_up(rows).flatten()

print("plain:", plain, "  with rows of length 1:", [round(v, 3) for v in normed.tolist()])
assert plain == [7.0, 70.0]
assert torch.allclose(normed, torch.tensor([1.4, 1.4]))  # 3/5 + 4/5, for both rows

norms = [nn.BatchNorm1d(2), nn.LayerNorm(2), nn.GroupNorm(1, 2), nn.InstanceNorm1d(2), nn.RMSNorm(2)]
assert not any(norm._forward_pre_hooks for norm in norms)

# %% [markdown]
# ## Keyword arguments
#
# `forward(self, x, *, factor=1.0)` can be called in two ways: `scale(x, factor=5.0)`, and `scale(x=x, factor=5.0)`.

# %%
predict("4.c")

# %% tags=["predict"]
class Scale(nn.Module):
    def forward(self, x, *, factor=1.0):
        return x * factor


counted = []


def double_all(module, args):
    counted.append(len(args))
    return tuple(2 * value for value in args)


scale, two = Scale(), torch.tensor(2.0)
with scale.register_forward_pre_hook(double_all):
    results = [scale(two, factor=5.0).item(), scale(x=two, factor=5.0).item()]

print("What came out:")
print("results:", results, "  arguments that the hook saw:", counted)

# %%
reveal("4.c", results)
assert counted == [1, 0] and results == [20.0, 10.0], (
    "In the page's two calls, the hook sees one argument, then none."
)

# %% [markdown]
# `with_kwargs=True` hands you what is passed by position and what is passed by name. Then return both: `(args, kwargs)`. (A forward hook can ask for them as well: it then
# gets `(module, args, kwargs, output)`.)

# %% tags=["claim-S3.10", "field", "field-30", "field-186"]
def at_most_two(module, args, kwargs):
    limited = {**kwargs, "factor": min(kwargs.get("factor", 1.0), 2.0)}
    return args, limited


with scale.register_forward_pre_hook(at_most_two, with_kwargs=True):
    results = [scale(torch.tensor(3.0), factor=factor).item() for factor in (1.0, 2.0, 50.0)]

print("factor 1, 2, 50 give", results)
assert results == [3.0, 6.0, 6.0]

seen = []
with scale.register_forward_hook(lambda *four: seen.append(four[2]), with_kwargs=True):
    scale(torch.tensor(3.0), factor=2.0)
assert seen == [{"factor": 2.0}]

# %% [markdown] tags=["exercise"]
# ### Exercise 4.3 · A default for a keyword argument
# ●●○ · 8 minutes
#
# `module(x, *, scale=1.0, shift=0.0)` is somebody else's code. Give it **another default for `scale`**: a call that names no
# scale uses `default`, a call that names one is obeyed. Nothing else may change. Return the handle.
#
# <details><summary>Hint: my hook misses an argument `kwargs`</summary>
#
# You have to ask for keyword arguments when you register.
# </details>
# <details><summary>Hint: "forward pre-hook must return None or a tuple of (new_args, new_kwargs)"</summary>
#
# Return both, in this order, even if only one of them has changed.
# </details>

# %% tags=["solution"]
def set_default_scale(
    module: nn.Module, default: float
) -> torch.utils.hooks.RemovableHandle:
    """Make calls without `scale` use `default`; return the handle."""
    ### BEGIN SOLUTION
    def fill_in(module, args, kwargs):
        return args, {"scale": default, **kwargs}

    return module.register_forward_pre_hook(fill_in, with_kwargs=True)
    ### END SOLUTION

# %% tags=["check"]
check("4.3", set_default_scale)

# %% [markdown]
# ## Who runs first?
#
# Several pre-hooks run in the order of their registration, and each works on the result of the one before. With
# `prepend=True` a new one goes to the front of the line.

# %%
def order_of(prepend: bool) -> list[str]:
    log = []
    layer = nn.Identity()
    layer.register_forward_pre_hook(lambda module, args: log.append("old"))
    layer.register_forward_pre_hook(lambda module, args: log.append("new"), prepend=prepend)
    layer(x)
    return log


print("in order:", order_of(prepend=False), "  prepend=True:", order_of(prepend=True))
assert order_of(prepend=False) == ["old", "new"]
assert order_of(prepend=True) == ["new", "old"]

# %% [markdown] tags=["exercise"]
# ### Exercise 4.4 · First in the line
# ●●○ · 5 minutes
#
# `layer` has pre-hooks already, which belong to other code. Register `hook` as a pre-hook that runs **before** all of them,
# and return your handle. The other hooks stay as they are, in their order.
#
# <details><summary>Hint: the check says that the old hook is gone</summary>
#
# There is no need to remove anything. Look at the options of the register method.
# </details>
# <details><summary>Hint: the order does not change</summary>
#
# The option belongs to the new hook, at the moment when you register it.
# </details>

# %% tags=["solution"]
def register_in_front(layer: nn.Module, hook) -> torch.utils.hooks.RemovableHandle:
    """Register `hook` as the first pre-hook of `layer`; return its handle."""
    ### BEGIN SOLUTION
    return layer.register_forward_pre_hook(hook, prepend=True)
    ### END SOLUTION

# %% tags=["check"]
check("4.4", register_in_front)

# %% [markdown]
# ## Which part of the picture decides?
#
# Now that you can put anything into any layer: run the network on one digit, and at the door of a layer take some **rows**
# from the pass of *another* digit. With no row the answer is the first digit's; with all eight it is the other's. Where in
# between does it flip? `figures.swapped` does it for many pairs, with this hook:

# %%
def take_rows(stored, rows):
    """A pre-hook: the first `rows` rows come from another pass."""
    def hook(module, args):
        mixed = args[0].clone()
        mixed[:, :, :rows] = stored[:, :, :rows]
        return mixed

    return hook


shares = {layer: figures.swapped(cnn, layer, take_rows, images, labels) for layer in ("conv1", "conv2")}
assert shares["conv1"][0]["first"] > 0.9 and shares["conv1"][8]["other"] > 0.9
assert shares["conv1"][4]["neither"] > 0.2

# %% tags=["figure"]
plots.show(
    figures.flips(shares, figures.third_digits(cnn, images, labels)),
    "With more rows swapped the first digit's share falls, the other's rises, a third digit's is largest half-way.",
)

# %% [markdown]
# *What to see:* the answers do not flip at once. With half of the rows swapped the two digits are level, and about a third of
# the answers, the grey lines, are **a third digit**, which is in neither picture. Three are on the right: would you
# read them otherwise? Swapped further inside, at the door of `conv2` (dashed), it is much the same: that layer still sees the picture as a picture.
#
# This is called *activation patching*. It is how people ask which part of a large network carries an answer, and all it takes is
# a pre-hook.

# %% [markdown]
# ## The same with `hooklab`
#
# To look at what goes in, you do not have to write the hook. `capture(…, inputs=True)` keeps the arguments of each call,
# positional and by name, and removes its hooks at the end of the block. The model itself has the empty name `""`.

# %%
scale = Scale()
with hooklab.capture(scale, inputs=True) as seen:
    scale(torch.tensor(2.0), factor=5.0)

args, kwargs = seen.input("")
print("args:", [a.item() for a in args], "  kwargs:", kwargs)
assert args[0].item() == 2.0
assert kwargs == {"factor": 5.0}
assert hooklab.leftover_hooks(scale) == []

# %% [markdown] tags=["recap"]
# ## Recap
#
# A pre-hook stands at a module's door. It sees the positional arguments as a tuple, and the others only if it asks. What it
# returns is what `forward` gets; an exception in it keeps `forward` from running. Pre-hooks run in order of registration;
# `prepend=True` puts a new one first.
#
# | the documents say | today |
# |---|---|
# | a pre-hook may change the input: unpack the tuple, change, repack, return (S3) | true; a single returned value is wrapped for you, and with `with_kwargs=True` you return `(args, kwargs)` |
# | ↓ pre-hooks are mainly for normalisation layers (S2) | norm layers have none (shown above); the old `weight_norm` and `spectral_norm` do, and today's parametrizations compute the weight on access |
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | forward pre-hook | 前向预钩子 | called before `forward`, with the module and its arguments |
# | positional arguments | 位置参数 | what the hook gets as a tuple |
# | keyword arguments | 关键字参数 | only seen with `with_kwargs=True` |
# | activation patching | 激活修补 | putting part of one pass into another, to see what decides |
# | ↓ parametrization | 参数化 | a weight that is computed from other parameters when it is read |
# | ↓ weight normalisation | 权重归一化 | a weight as direction times length |
#
# (↓ is shown below, in "If you want more".)

# %% [markdown] tags=["quiz"]
# ### Three questions
#
# **1.** A pre-hook returns `[x * 2]`. What does the layer get?
#
# <details><summary>Answer</summary>
#
# One argument, a list. Only a tuple is taken as the arguments; everything else but `None` is wrapped into a tuple of one.
# </details>
#
# **2.** Your pre-hook raises an exception. Does `forward` run?
#
# <details><summary>Answer</summary>
#
# No. The exception goes to the caller, which makes a pre-hook a good place for a check.
# </details>
#
# **3.** Your pre-hook begins with `(x,) = args`. For months it works, then one colleague reports *"not enough values to unpack
# (expected 1, got 0)"*. How does she call the module, and what do you do?
#
# <details><summary>Answer</summary>
#
# By name: `module(x=x)`. Then `args` is empty. Register with `with_kwargs=True`, look in both, and return `(args, kwargs)`.
# </details>

# %%
progress(4)

# %% [markdown]
# ## If you want more
#
# ### A pre-hook that made history: weight norm
#
# The documents name "Norm layers" as the main use of pre-hooks. They mean tools such as weight normalisation
# ([Salimans and Kingma, 2016](https://arxiv.org/abs/1602.07868), equation 2): a row of the weight is written as a
# direction $v$ and a length $g$,
#
# $$w = g \, \frac{v}{\lVert v \rVert}$$
#
# The layer learns $v$ and $g$. But `forward` still wants a `weight`, so somebody has to compute it before each call: a
# pre-hook.

# %% tags=["claim-S2.3"]
def show(layer: nn.Module) -> str:
    parameters = ", ".join(sorted(name for name, _ in layer.named_parameters()))
    return f"{parameters}; {len(layer._forward_pre_hooks)} pre-hook(s)"


with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    old_style = nn.utils.weight_norm(nn.Linear(1, 1, bias=False))

print("torch.nn.utils.weight_norm:", show(old_style))
print("it warns:", caught[0].category.__name__, "-", str(caught[0].message)[:51])
assert len(old_style._forward_pre_hooks) == 1
assert sorted(name for name, _ in old_style.named_parameters()) == ["weight_g", "weight_v"]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    assert len(nn.utils.spectral_norm(nn.Linear(2, 2))._forward_pre_hooks) == 1  # the old one, too

# %% [markdown]
# The weakness of this way: `weight` is right when it is made and **just after a call**. Change `g`, and look.

# %% tags=["field", "field-66"]
with torch.no_grad():
    old_style.weight_g.fill_(5.0)
    old_style.weight_v.fill_(1.0)

stale = old_style.weight.item() != 5.0
old_style(torch.ones(1, 1))
print("before a call the weight is stale:", stale, "  after a call:", old_style.weight.item())
assert stale
assert old_style.weight.item() == 5.0  # 5 · 1/1

# %% [markdown]
# Today's `parametrizations.weight_norm` has **no pre-hook**. `weight` has become a property that is computed whenever
# somebody reads it, so it cannot be stale, unless you ask for it: inside `parametrize.cached()` it is computed once.

# %% tags=["claim-S2.3", "field", "field-66"]
new_style = parametrizations.weight_norm(nn.Linear(1, 1, bias=False))
with torch.no_grad():
    new_style.parametrizations.weight.original0.fill_(5.0)
    new_style.parametrizations.weight.original1.fill_(1.0)

print("parametrizations.weight_norm:", len(new_style._forward_pre_hooks), "pre-hooks")
print("weight, with no call at all:", new_style.weight.item())
assert len(new_style._forward_pre_hooks) == 0
assert new_style.weight.item() == 5.0
assert new_style.weight is not new_style.weight  # computed anew at each access

with parametrize.cached(), torch.no_grad():
    assert new_style.weight.item() == 5.0
    new_style.parametrizations.weight.original0.fill_(7.0)
    assert new_style.weight.item() == 5.0  # stale, on request
assert new_style.weight.item() == 7.0

# %% [markdown] tags=["exercise"]
# ### Exercise 4.5 · Weight norm by a pre-hook
# ●●● · 12 minutes
#
# Build the old way yourself, for a linear layer. Replace its parameter `weight` by two: `weight_v` (the old weight) and
# `weight_g` (the length of each row, shape `(rows, 1)`). A pre-hook computes `layer.weight` from both before each forward.
# Gradients must reach both, also through the norm. Return the handle.
#
# <details><summary>Hint: "cannot assign 'torch.FloatTensor' as parameter 'weight'"</summary>
#
# `layer.weight` is still a parameter. Remove it first, with Python's `del`; then you may set a plain tensor there.
# </details>
# <details><summary>Hint: the output is the same whatever weight_g is</summary>
#
# The product has to be formed in the hook, at every call, and not once at the start.
# </details>
# <details><summary>Hint: no gradient reaches my parameters</summary>
#
# The hook's formula is part of the computation: no `.data`, no `detach()`, no new `nn.Parameter` in it.
# </details>

# %% tags=["solution"]
def add_weight_norm(layer: nn.Linear) -> torch.utils.hooks.RemovableHandle:
    """Let the layer learn weight_g and weight_v instead of weight; return the handle."""
    ### BEGIN SOLUTION
    start = layer.weight.detach()
    del layer.weight
    layer.weight_g = nn.Parameter(start.norm(dim=1, keepdim=True))
    layer.weight_v = nn.Parameter(start.clone())

    def compute_weight(module, args):
        v = module.weight_v
        module.weight = module.weight_g * v / v.norm(dim=1, keepdim=True)

    return layer.register_forward_pre_hook(compute_weight)
    ### END SOLUTION

# %% tags=["check"]
check("4.5", add_weight_norm)

# %% [markdown]
# ### "My hook on `m.weight` never fires"
#
# The weight is parametrized: what you hooked was the result of one access, and forward computes another. Hook the
# parameters behind it. ([A thread about stale weights](https://github.com/pytorch/pytorch/issues/47588))

# %% tags=["field", "field-66"]
fired = []
layer = parametrizations.weight_norm(nn.Linear(2, 2))
on_weight = layer.weight.register_hook(lambda grad: fired.append("weight"))
lengths = layer.parametrizations.weight.original0
on_lengths = lengths.register_hook(lambda grad: fired.append("original0"))
layer(torch.ones(1, 2)).sum().backward()
on_weight.remove()
on_lengths.remove()

print("fired:", fired)
assert fired == ["original0"]

# %% [markdown]
# ### "None of the inputs have requires_grad=True. Gradients will be None"
#
# *Checkpointing* saves memory: it throws a part's inner values away and computes them again in the backward. A frozen
# embedding stands in front, checkpointed trainable layers behind. PyTorch's default kind of checkpoint in 2.13, unless you
# say `use_reentrant=False`, looks at its input only. A pre-hook on the adapter comes too late, inside the checkpoint. A
# forward hook on the embedding asks for gradients where they begin.
# ([The thread](https://github.com/huggingface/transformers/pull/21598))

# %% tags=["field", "field-54"]
from torch.utils.checkpoint import checkpoint


def adapter_learns(hook_on: str = "nothing", reentrant: bool = True) -> bool:
    frozen = nn.Embedding(4, 2).requires_grad_(False)
    adapter = nn.Linear(2, 2)
    if hook_on == "embedding":
        frozen.register_forward_hook(lambda module, args, out: out.requires_grad_(True))
    if hook_on == "adapter":
        adapter.register_forward_pre_hook(lambda module, args: args[0].requires_grad_(True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = checkpoint(adapter, frozen(torch.tensor([1])), use_reentrant=reentrant)
    if out.requires_grad:
        out.sum().backward()
    return adapter.weight.grad is not None


print("as it was:", adapter_learns(), "  with the hook:", adapter_learns("embedding"))
print("use_reentrant=False, no hook:", adapter_learns(reentrant=False))
assert not adapter_learns() and not adapter_learns("adapter")
assert adapter_learns("embedding") and adapter_learns(reentrant=False)
