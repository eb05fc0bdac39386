# %% [markdown]
# # 4 · How do I see and change a module's input?
#
# **Time** 59 minutes, and 28 for the extras after the recap &nbsp;·&nbsp; **You need** lesson 3 (forward hooks, handles, `with`)
#
# After this lesson you can
#
# - look at a module's arguments before it runs, and replace them;
# - tell which return values of a pre-hook work and which only look right;
# - reach keyword arguments;
# - correct a model's input without touching the model, and patch a part of one pass into another to see what decides.
#
# This goes beyond the entry on
# [`register_forward_pre_hook`](https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_forward_pre_hook)
# in PyTorch's documentation, which lists the options but not what goes wrong with them.

# %% tags=["setup"]
import functools
import warnings

import torch
from IPython.display import display
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import hooklab
from hooklab import check, predict, progress, reveal
from hooklab.course import plots
from hooklab.course.digits import accuracy, digits, trained_digits_cnn
from hooklab.course.errors import error_of
from hooklab.course.exercises.ready import yours_or
from hooklab.course.lesson04 import explorer, figures, ready

torch.set_num_threads(1)

# %% [markdown]
# ## White ink on black paper
#
# This network reads handwritten digits, dark ink on white paper. Then a colleague sends scans from another machine: white
# ink on black paper. Every pixel `p` has become `1 - p`.

# %%
data = digits()
cnn = trained_digits_cnn(seed=0)
images, labels = data.test_images, data.test_labels
inverted = 1 - images

print(f"right on the {len(images)} test images: {accuracy(cnn, images, labels):.0%}")
assert accuracy(cnn, images, labels) > 0.95

# %% tags=["figure"]
plots.show(
    figures.both_papers(images[:6], inverted[:6]),
    "Six digits in dark ink on white paper, "
    "and below them the same six in white ink on black paper.",
)

# %%
predict("4.a")

# %% tags=["predict"]
print("What came out:")
print(f"right: {accuracy(cnn, inverted, labels):.0%}")

# %%
reveal("4.a", accuracy(cnn, inverted, labels))
assert accuracy(cnn, inverted, labels) < 0.02, (
    "With the page's network and pictures, hardly any inverted digit is read right."
)

# %% [markdown]
# Suppose you may not change the model, and not your colleague's code either. What you can do is stand **at the door** of
# the model and turn each picture back before it goes in.
#
# That's what a **forward pre-hook** does. PyTorch calls it with the module and its positional arguments, right before
# `forward` runs. What the hook returns replaces the arguments. (If there's only one argument, you can return that tensor
# by itself.)

# %%
def turn_back(module, args):
    return 1 - args[0]


with cnn.register_forward_pre_hook(turn_back):
    corrected = accuracy(cnn, inverted, labels)

print(f"right with a pre-hook at the door: {corrected:.0%}")
assert corrected > 0.95
assert abs(corrected - accuracy(cnn, images, labels)) < 0.01

# %% [markdown]
# ## What the hook gets, and what it may return
#
# Small numbers now: a layer that multiplies by 3. `args` is a **tuple**, even when there's only one argument. One of the
# course's documents, [S3](00_start_here.ipynb#documents), unpacks the tuple, changes the tensor, and packs a tuple again. That
# still works:

# %% tags=["claim-S3.10", "claim-S3.15", "hook-forward-pre"]
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

# %% [markdown]
# The caller's `x` is still 2. The layer worked with the 4 that the hook returned.
#
# A pre-hook may return `None` (change nothing), one tensor (PyTorch wraps it into a tuple for you), or a tuple with all
# the arguments. Here are two return values that don't work:

# %% tags=["field", "field-30"]
def complaint(hook) -> str:
    with triple.register_forward_pre_hook(hook):
        return error_of(triple, x)


a_list = complaint(lambda module, args: [args[0] * 2])
tuple_times_two = complaint(lambda module, args: args * 2)
print("[args[0] * 2]:", a_list)
print("args * 2:     ", tuple_times_two)
assert a_list.endswith("must be Tensor, not list")
assert "takes 2 positional arguments but 3 were given" in tuple_times_two
assert complaint(lambda module, args: None) == "no error"
assert complaint(lambda module, args: args[0] * 2) == "no error"
assert "1 positional argument but 2" in complaint(lambda args: None)
assert "missing 1 required" in complaint(lambda module, args, kwargs: None)

# %% [markdown]
# - A **list** counts as one value, so it gets wrapped: the layer receives one argument, a list.
# - `(x,) * 2` is `(x, x)`. That doubles the tuple, not the tensor. (The message counts `self`, too: 3 instead of 2.)
#
# The number of parameters matters too: PyTorch calls this hook with `(module, args)`. If yours takes a different number, the call
# fails.

# %% [markdown]
# ## Change in place?
#
# A hook could also write into the tensor that it gets, and return nothing. The next cell calls the layer twice with the
# same tensor.

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

# %% [markdown]
# So a pre-hook that changes something should do it as above: compute a new tensor, and return it.

# %% [markdown] tags=["exercise"]
# ### Exercise 4.1 · Fix it: double the input
# ●○○ · 5 minutes
#
# This function should make `layer` work on **twice its input**, and return the handle so that the caller can remove the
# hook. It has several bugs. Fix them. The caller's own tensor must not change, and gradients must still flow back to it.
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
# Does your hook return something? And does it run before `forward`, or after?
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
# ## Refuse a bad input
#
# A pre-hook doesn't have to change anything. It can also check the input and raise an exception. Then `forward` doesn't
# run, and the exception reaches the caller. It's a good place to check a shape or a range: your message can name the
# layer, where PyTorch would complain about a matrix product deep inside it.

# %%
def wants_three_columns(module, args):
    if args[0].shape[-1] != 3:
        found = args[0].shape[-1]
        raise ValueError(f"{type(module).__name__} wants 3 columns, got {found}")


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
# Register a pre-hook that raises `ValueError` if the layer's input contains a NaN or an infinity (of either sign),
# **before** `forward` runs. A good input must reach `forward` unchanged, as the same object. Return the handle.
#
# <details><summary>Hint: infinity gets through</summary>
#
# `torch.isnan(inf)` is `False`. Another function tests whether numbers are finite.
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
# This model returns NaN, and no layer complains. Put your guard on one layer at a time: which layer made the NaN?

# %%
class Root(nn.Module):
    def forward(self, x):
        return x.sqrt()


guard = yours_or("4.2", guard_against_bad_numbers, ready.guard_against_bad_numbers)
suspects = nn.Sequential(nn.Identity(), Root(), nn.ReLU(), nn.Linear(1, 1))
minus_one, found = torch.tensor([[-1.0]]), []
for layer in suspects:
    with guard(layer):
        found.append(error_of(suspects, minus_one).split(":")[0])
    print(f"guard on {type(layer).__name__:<9}", found[-1])

assert suspects(minus_one).isnan()
assert found == ["no error", "no error", "ValueError", "ValueError"]

# %% [markdown]
# The first layer that *gets* a NaN is the ReLU, so the layer before it made one.

# %% [markdown]
# ## Keyword arguments
#
# Let `times` be a module with `forward(self, x, *, factor=1.0)`. You can call it as `times(x, factor=5.0)`, and as
# `times(x=x, factor=5.0)`.

# %%
predict("4.c")

# %% tags=["predict"]
class Times(nn.Module):
    def forward(self, x, *, factor=1.0):
        return x * factor


counted = []


def double_all(module, args):
    counted.append(len(args))
    return tuple(2 * value for value in args)


times, two = Times(), torch.tensor(2.0)
with times.register_forward_pre_hook(double_all):
    results = [times(two, factor=5.0).item(), times(x=two, factor=5.0).item()]

print("What came out:")
print("results:", results, "  arguments that the hook saw:", counted)

# %%
reveal("4.c", results)
assert counted == [1, 0] and results == [20.0, 10.0], (
    "In the page's two calls, the hook sees one argument, then none."
)

# %% [markdown]
# In the second call, `args` was empty: it holds only what is passed by position. With `with_kwargs=True`, the hook also gets
# the keyword arguments, as a dictionary. It then returns both, `(args, kwargs)`, or `None`. A forward hook has the same
# option, and is then called with `(module, args, kwargs, output)`.
# ([The change that added it](https://github.com/pytorch/pytorch/pull/89389))

# %% tags=["claim-S3.10", "claim-S1.12", "field", "field-30", "field-186"]
def at_most_two(module, args, kwargs):
    limited = {**kwargs, "factor": min(kwargs.get("factor", 1.0), 2.0)}
    return args, limited


with times.register_forward_pre_hook(at_most_two, with_kwargs=True):
    three = torch.tensor(3.0)
    results = [times(three, factor=factor).item() for factor in (1.0, 2.0, 50.0)]

print("factor 1, 2, 50 give", results)
assert results == [3.0, 6.0, 6.0]

seen = []
with times.register_forward_hook(lambda *four: seen.append(four[2]), with_kwargs=True):
    times(torch.tensor(3.0), factor=2.0)
assert seen == [{"factor": 2.0}]

# %% tags=["figure"]
in_place = explorer.call_with("args[0].mul_(2)", "triple(x)")
by_keyword = explorer.call_with("return args[0] * 2", "triple(input=x)")
display(explorer.draw_call(in_place), explorer.draw_call(by_keyword))
assert (in_place.result, in_place.x) == (12.0, 4.0)
assert by_keyword.error.startswith("IndexError") and not by_keyword.forward

# %% [markdown]
# *What to see:* above, the hook has written into your own tensor (purple). Below, the tensor is passed by keyword, so `args` is
# empty, `args[0]` raises an exception, and `forward` isn't called. Which hooks do better?

# %% tags=["explorer"]
explorer.at_the_door()

# %% [markdown] tags=["exercise"]
# ### Exercise 4.3 · A default for a keyword argument
# ●●○ · 8 minutes
#
# You can't edit `module`, whose `forward` is `forward(self, x, *, scale=1.0, shift=0.0)`. Give it a **different default for
# `scale`**: a call without `scale` uses `default`, and a call with `scale` keeps its own value. Nothing else may change.
# Return the handle.
#
# <details><summary>Hint: my hook needs an argument `kwargs`, and gets none</summary>
#
# A hook gets keyword arguments only if you ask for them when you register it.
# </details>
# <details><summary>Hint: "forward pre-hook must return None or a tuple of (new_args, new_kwargs)"</summary>
#
# Return both, in this order, even if you changed only one of them.
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
# ## Which part of the picture decides?
#
# A pre-hook can put anything into any layer, even values from another pass. So run the network on one digit, and at the
# door of a layer replace the top rows with those of a *different* digit:

# %%
def take_rows(stored, count):
    """Return a pre-hook that takes the first `count` rows from another pass."""
    def hook(module, args):
        mixed = args[0].clone()
        mixed[:, :, :count] = stored[:, :, :count]
        return mixed

    return hook

# %% [markdown]
# With 0 rows, the network should read the first digit, and with all 8 rows the other. What happens half-way?
# `figures.swapped` tries `take_rows` on 165 pairs of digits, with 0 to 8 rows each.

# %%
predict("4.d")

# %% tags=["predict", "figure"]
shares = {
    layer: figures.swapped(cnn, layer, take_rows, images, labels)
    for layer in ("conv1", "conv2")
}
print("What came out:")
print(f"a third digit, with 4 rows swapped: {shares['conv1'][4]['neither']:.0%}")
plots.show(
    figures.flips(shares, figures.third_digits(cnn, images, labels)),
    figures.FLIPS,
)

# %%
reveal("4.d", shares["conv1"][4]["neither"])
assert shares["conv1"][0]["first"] > 0.9 and shares["conv1"][8]["other"] > 0.9, (
    "With the page's network, no rows give the first digit, and all rows the other one."
)
assert 0.2 < shares["conv1"][4]["neither"] < 0.5, (
    "With the page's network, about a third of the answers are a third digit."
)
assert all(0.2 < share < 0.5 for share in shares["conv1"][4].values()), (
    "With the page's network, half of the rows leave the two digits level."
)
assert all(
    abs(solid[kind] - dashed[kind]) < 0.1
    for solid, dashed in zip(shares["conv1"], shares["conv2"], strict=True)
    for kind in solid
), "With the page's network, conv1 and conv2 differ by less than ten points."

# %% [markdown]
# *What to see:* with half of the rows swapped, the two digits are level, and the grey line, **a third digit**, is as high
# as they are. Three examples are on the right. Would you have read them differently? The dashed lines show rows swapped
# at the door of `conv2`. They stay within ten points of the solid ones, because at `conv2` a row still belongs to a row of
# the picture.
#
# To put a part of one pass into another is called **activation patching**. People use it to find out which part of a large
# network carries an answer. Rows aren't all that you can patch: the input of `conv2` also has 8 **channels**, and each of them
# covers the whole picture. So let the part be any index.

# %% [markdown] tags=["exercise"]
# ### Exercise 4.4 · Patch any part, at any layer
# ●●○ · 9 minutes
#
# Return what `model(target)` gives if one part of the input of `layer` comes from another pass.
#
# 1. Run the model on `source`, and keep the input that `layer` gets.
# 2. Run it on `target`. Before `layer` runs, replace `[part]` of its input by `[part]` of what you kept.
# 3. Leave no hook behind.
#
# `part` is an index, such as `(slice(None), slice(0, 4))`: then `x[part]` is `x[:, :4]`. The layer has one argument and runs
# once in each pass. It may work in place, and its input may also be used elsewhere in the model, where nothing should change.
#
# <details><summary>Hint: more of the output changes than it should</summary>
#
# Other layers may read the same tensor. Write into a clone, and return it.
# </details>
# <details><summary>Hint: what I kept is wrong</summary>
#
# A layer that works in place has overwritten it. Keep a clone. And is the hook that keeps it gone when `target` runs?
# </details>

# %% tags=["solution"]
def patched(
    model: nn.Module, layer: nn.Module, part, source: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    """Return the output for `target`, with a part of the layer's input from `source`."""
    ### BEGIN SOLUTION
    kept = []
    with layer.register_forward_pre_hook(lambda m, args: kept.append(args[0].clone())):
        model(source)

    def patch(module, args):
        mixed = args[0].clone()
        mixed[part] = kept[0][part]
        return mixed

    with layer.register_forward_pre_hook(patch):
        return model(target)
    ### END SOLUTION

# %% tags=["check"]
check("4.4", patched)

# %% [markdown]
# Now let your function look for the answer: in the rows, in each half of the channels, and in half of the 256 numbers that
# `fc`, the last layer, gets. `figures.who_wins` counts the answers for the 165 pairs.

# %%
patch = yours_or("4.4", patched, ready.patched)
all_of_it = slice(None)  # as in [:]
rows = (all_of_it, all_of_it, slice(0, 4))
places = {
    "conv1, upper four rows": (cnn.conv1, rows),
    "conv2, upper four rows": (cnn.conv2, rows),
    "conv2, first four channels": (cnn.conv2, (all_of_it, slice(0, 4))),
    "conv2, last four channels": (cnn.conv2, (all_of_it, slice(4, 8))),
    "fc, first half": (cnn.fc, (all_of_it, slice(0, 128))),
}
won = {
    words: figures.who_wins(functools.partial(patch, cnn, *place), images, labels)
    for words, place in places.items()
}
print(f"{'patched':<28} the first digit  the other  a third")
for words, share in won.items():
    print(f"{words:<28} {share[0]:>15.0%} {share[1]:>10.0%} {share[2]:>8.0%}")

by_rows, at_conv2, first_four, last_four, at_the_end = won.values()
assert abs(at_conv2[0] - at_conv2[1]) < 0.2  # half of the rows: it's open who wins
assert first_four[0] > 0.5 > 0.3 > first_four[1]  # the first digit leads
assert last_four[1] > 0.6 > 0.3 > last_four[0]  # and here the other one
assert by_rows[2] - 0.1 > first_four[2] > at_the_end[2]  # a third digit: more rarely

# %% [markdown]
# At `conv2`, half of the rows leave it open who wins. Half of the channels mostly decide it: with the last four, the other
# digit usually wins, and with the first four, the first digit does. (That is true of this network. Others may spread the
# answer evenly.) And a third digit becomes rarer towards the end of the network. You couldn't have found this by cutting up
# pictures: channels exist only inside the network, and there only a hook can exchange them.

# %% [markdown]
# ## The same with `hooklab`
#
# To look at a module's input, you don't have to write the hook. `capture(…, inputs=True)` keeps the arguments of each
# call, positional and keyword, and removes its hooks at the end of the block. The empty name `""` is the model itself.

# %%
with hooklab.capture(times, inputs=True) as seen:
    times(torch.tensor(2.0), factor=5.0)

args, kwargs = seen.input("")
print("args:", [a.item() for a in args], "  kwargs:", kwargs)
assert args[0].item() == 2.0
assert kwargs == {"factor": 5.0}
assert hooklab.leftover_hooks(times) == []

# %% [markdown] tags=["recap"]
# ## Recap
#
# A pre-hook is at a module's door: it runs right before `forward`. It gets the positional arguments as a tuple, and the
# keyword arguments only with `with_kwargs=True`. What it returns is what `forward` gets. If it raises, `forward` doesn't
# run.
#
# | the documents say | today |
# |---|---|
# | a pre-hook may change the input: unpack the tuple, change, repack, return (S3) | true; a single returned value is wrapped for you, and with `with_kwargs=True` you return `(args, kwargs)` |
# | ↓ pre-hooks are mainly for normalisation layers (S2) | norm layers have none; the old `weight_norm` and `spectral_norm` do, and today's parametrizations compute the weight on access |
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | forward pre-hook | 前向预钩子 | called before `forward`, with the module and its arguments |
# | positional arguments | 位置参数 | what the hook gets as a tuple |
# | keyword arguments | 关键字参数 | only passed to the hook with `with_kwargs=True` |
# | activation patching | 激活修补 | putting part of one pass into another, to see what decides |
# | ↓ parametrization | 参数化 | a weight that is computed from other parameters when it is read |
# | ↓ weight normalisation | 权重归一化 | a weight as direction times length |
#
# (↓ comes below, in "If you want more".)

# %% [markdown] tags=["quiz"]
# ### Three questions
#
# **1.** A pre-hook returns `[x * 2]`. What does the layer get?
#
# <details><summary>Answer</summary>
#
# One argument, a list. Only a tuple counts as "all the arguments". Anything else, except `None`, is wrapped into a tuple
# with one entry.
# </details>
#
# **2.** Your pre-hook raises an exception. Does `forward` run?
#
# <details><summary>Answer</summary>
#
# No. The exception goes to the caller, so a pre-hook is a good place for a check.
# </details>
#
# **3.** Your pre-hook begins with `(x,) = args`. It works for months. Then a colleague reports *"not enough values to
# unpack (expected 1, got 0)"*. How does she call the module, and what do you do?
#
# <details><summary>Answer</summary>
#
# By keyword: `module(x=x)`. Then `args` is empty. Register the hook with `with_kwargs=True`, look for `x` in both, and
# return `(args, kwargs)`.
# </details>

# %%
progress(4)

# %% [markdown]
# ## If you want more

# %% [markdown]
# ### Several pre-hooks
#
# Pre-hooks run in the order in which they were registered, and each one gets what the previous one returned. With
# `prepend=True`, a new hook goes to the front of the queue.

# %%
def order_of(prepend: bool) -> list[str]:
    log, layer = [], nn.Identity()
    layer.register_forward_pre_hook(lambda module, args: log.append("old"))
    layer.register_forward_pre_hook(
        lambda module, args: log.append("new"), prepend=prepend
    )
    layer(x)
    return log


print("in order:", order_of(prepend=False), "  prepend=True:", order_of(prepend=True))
assert order_of(prepend=False) == ["old", "new"]
assert order_of(prepend=True) == ["new", "old"]

# %% [markdown]
# ### The first pre-hooks: weight norm
#
# S2 names "Norm layers" as the main use of pre-hooks. Layers such as BatchNorm or LayerNorm have no pre-hook. Weight
# normalisation had one ([Salimans and Kingma, 2016](https://arxiv.org/abs/1602.07868), equation 2). It writes a row of the
# weight as a direction $v$ and a length $g$,
#
# $$w = g \, \frac{v}{\lVert v \rVert}$$
#
# The layer learns $v$ and $g$. But `forward` still uses `weight`, so the weight has to be computed before each call. A
# pre-hook does it.

# %% tags=["claim-S2.3"]
norms = [nn.BatchNorm1d(2), nn.LayerNorm(2), nn.GroupNorm(1, 2), nn.RMSNorm(2)]
assert not any(norm._forward_pre_hooks for norm in norms)


def show(layer: nn.Module) -> str:
    parameters = ", ".join(sorted(name for name, _ in layer.named_parameters()))
    return f"{parameters}; {len(layer._forward_pre_hooks)} pre-hook(s)"


with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    old_style = nn.utils.weight_norm(nn.Linear(1, 1, bias=False))

print("torch.nn.utils.weight_norm:", show(old_style))
print("it warns:", caught[0].category.__name__, "-", str(caught[0].message)[:51])
assert len(old_style._forward_pre_hooks) == 1
assert show(old_style) == "weight_g, weight_v; 1 pre-hook(s)"

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    spectral = nn.utils.spectral_norm(nn.Linear(2, 2))  # the old one, too
    assert len(spectral._forward_pre_hooks) == 1

# %% [markdown]
# This has a weakness: `weight` is only right **just after a call**. Change `g` and look at it:

# %% tags=["field", "field-66"]
with torch.no_grad():
    old_style.weight_g.fill_(1.0)
    old_style.weight_v.fill_(1.0)
old_style(torch.ones(1, 1))
with torch.no_grad():
    old_style.weight_g.fill_(5.0)

before_a_call = old_style.weight.item()
old_style(torch.ones(1, 1))
print("weight before a call:", before_a_call, "  after it:", old_style.weight.item())
assert before_a_call == 1.0  # 1 · 1/1, of the previous call
assert old_style.weight.item() == 5.0  # 5 · 1/1

# %% [markdown]
# Today's `parametrizations.weight_norm` has **no pre-hook**. `weight` is a property that is computed whenever you read it,
# so it's always up to date. (The exception is a `parametrize.cached()` block, which computes it only once.)

# %% tags=["claim-S2.3", "field", "field-66"]
new_style = parametrizations.weight_norm(nn.Linear(1, 1, bias=False))
originals = new_style.parametrizations.weight
with torch.no_grad():
    originals.original0.fill_(5.0)
    originals.original1.fill_(1.0)

print("parametrizations.weight_norm:", len(new_style._forward_pre_hooks), "pre-hooks")
print("weight, before any call:", new_style.weight.item())
assert len(new_style._forward_pre_hooks) == 0
assert new_style.weight.item() == 5.0
assert new_style.weight is not new_style.weight  # computed at each access

with parametrize.cached(), torch.no_grad():
    assert new_style.weight.item() == 5.0
    originals.original0.fill_(7.0)
    assert new_style.weight.item() == 5.0  # the cached value
assert new_style.weight.item() == 7.0

# %% [markdown] tags=["exercise"]
# ### Exercise 4.5 · Weight norm with a pre-hook
# ●●● · 12 minutes
#
# Build the old version yourself, for a linear layer. Replace its parameter `weight` with two parameters: `weight_v` (the old
# weight) and `weight_g` (the length of each row, shape `(rows, 1)`). A pre-hook computes `layer.weight` from both before
# each forward pass. Gradients must reach both, and flow through the norm as well. Return the handle.
#
# <details><summary>Hint: "cannot assign 'torch.FloatTensor' as parameter 'weight'"</summary>
#
# `layer.weight` is still a parameter. Remove it first, with Python's `del`; then you can set a plain tensor there.
# </details>
# <details><summary>Hint: the output is the same whatever weight_g is</summary>
#
# Compute the product in the hook, in each call, and not once at the start.
# </details>
# <details><summary>Hint: no gradient reaches my parameters</summary>
#
# The hook's formula is part of the computation: no `.data`, no `detach()`, no new `nn.Parameter` in it.
# </details>

# %% tags=["solution"]
def add_weight_norm(layer: nn.Linear) -> torch.utils.hooks.RemovableHandle:
    """Let the layer learn weight_g and weight_v, not weight; return the handle."""
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
# The weight is parametrized. You hooked the tensor that one access returned, and `forward` reads the attribute again and
# gets a new tensor. Hook the parameters that the weight is computed from.
# ([A thread about stale weights](https://github.com/pytorch/pytorch/issues/47588))

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
# *Checkpointing* saves memory: it discards a part's intermediate values and computes them again in the backward pass. Say your
# model has a frozen embedding and, after it, a trainable layer (the *adapter*) in a checkpoint. PyTorch 2.13's default kind of
# checkpoint (`use_reentrant=True`) records a gradient only if an **input** of the checkpoint requires grad, and the frozen
# embedding's output doesn't. A pre-hook on the adapter runs inside the checkpoint, which is too late. A forward hook on the
# embedding works: it makes the output require grad before the checkpoint starts.
# ([The thread](https://github.com/huggingface/transformers/pull/21598))

# %% tags=["field", "field-54"]
from torch.utils.checkpoint import checkpoint


def adapter_learns(hook_on: str = "nothing", reentrant: bool = True) -> bool:
    frozen = nn.Embedding(4, 2).requires_grad_(False)
    adapter = nn.Linear(2, 2)
    if hook_on == "embedding":
        frozen.register_forward_hook(lambda module, args, out: out.requires_grad_())
    if hook_on == "adapter":
        adapter.register_forward_pre_hook(lambda module, args: args[0].requires_grad_())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = checkpoint(adapter, frozen(torch.tensor([1])), use_reentrant=reentrant)
    if out.requires_grad:
        out.sum().backward()
    return adapter.weight.grad is not None


print("adapter learns, no hook:", adapter_learns())
print("with the hook on the embedding:", adapter_learns("embedding"))
print("use_reentrant=False, no hook:", adapter_learns(reentrant=False))
assert not adapter_learns() and not adapter_learns("adapter")
assert adapter_learns("embedding") and adapter_learns(reentrant=False)

# %% [markdown]
# ### "The last token of my short sentences is padding"
#
# In a batch, short sentences are filled up, and a mask says which positions are real. `[:, -1]` then takes the padding, and a
# mean over positions counts it. Take each row's last real position from the mask, which works for padding on either side:

# %% tags=["field", "field-padding"]
kept, head = [], nn.Identity()
tokens = torch.tensor([[5.0, 6.0, 7.0], [8.0, 0.0, 0.0], [0.0, 0.0, 9.0]])
mask = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 1]])  # 0 is padding
with head.register_forward_pre_hook(lambda module, args: kept.append(args[0])):
    head(tokens)

last = mask.cumsum(dim=1).argmax(dim=1)
by_mask = kept[0][torch.arange(len(last)), last]
print("the last position:     ", kept[0][:, -1].tolist())
print("the last real position:", by_mask.tolist())
assert kept[0][:, -1].tolist() == [7.0, 0.0, 9.0]
assert by_mask.tolist() == [7.0, 8.0, 9.0]
mean = (kept[0] * mask).sum(dim=1) / mask.sum(dim=1)
assert mean.tolist() == [6.0, 8.0, 9.0] != kept[0].mean(dim=1).tolist()

# %% [markdown]
# ### "At the last block of a ViT, the gradients of all patch tokens are zero"
#
# A vision transformer (ViT) turns each patch of the image into a token, and adds one more, the *class token*. After the last
# block, the head reads the class token alone, so the other tokens have no influence on the score, and their gradients are
# zero. In the block's *input*, their gradients aren't zero, because attention mixes the tokens. So for Grad-CAM (lesson 9),
# hook what goes into the last block. ([A thread](https://github.com/jacobgil/pytorch-grad-cam/issues/513))

# %% tags=["field", "field-zero-tokens"]
class MixesTokens(nn.Module):
    def forward(self, x):
        return x + x.mean(dim=1, keepdim=True)  # as attention does


def watch(name, tensor):
    tensor.register_hook(lambda grad: grads.update({name: grad.flatten().tolist()}))


block, grads = MixesTokens(), {}
with (
    block.register_forward_pre_hook(lambda m, args: watch("input", args[0])),
    block.register_forward_hook(lambda m, args, out: watch("output", out)),
):
    out = block(torch.ones(1, 4, 1, requires_grad=True))
    out[:, 0].sum().backward()  # the head reads the first token

print(grads)
assert grads == {"output": [1.0, 0.0, 0.0, 0.0], "input": [1.25, 0.25, 0.25, 0.25]}

# %% [markdown]
# ### "My block returns (hidden, residual), and neither is the hidden state"
#
# A transformer's block adds its result to its input, the *residual*. Some inference engines do this addition late: a block
# gets and returns a pair, and the hidden state is the **sum** of the two. So read the sum, and steer by changing one of the
# two. If you add a vector to both, it's added twice.

# %% tags=["field", "field-pair"]
class PairBlock(nn.Module):
    def forward(self, hidden, residual):
        residual = hidden + residual
        return 10 * residual, residual


def add_one(both):
    def hook(module, args):
        states.append(sum(args).item())
        return args[0] + 1, args[1] + both

    return hook


for both in (False, True):
    states, block = [], PairBlock()
    with block.register_forward_pre_hook(add_one(both)):
        pair = block(torch.tensor(3.0), torch.tensor(4.0))
    print("added to", "both:" if both else "one: ", pair[1].item(), "instead of 7")
    assert states == [7.0] and pair[1].item() == (9.0 if both else 8.0)

# %% [markdown]
# ### "My hook changes the prompt in the first `generate`, and not in the second"
#
# A generation runs the model once on the whole prompt, and then once for each new token, on that token alone. A hook that
# counts its calls and acts on the first one changes the first prompt only. Decide by what the call gets: a prompt has several
# positions.
# (A prompt of one token looks like a new one.)

# %% tags=["field", "field-first-pass"]
def generate(model, prompt, new=3):  # a cache would keep what came before
    steps = [prompt] + [prompt[:, -1:]] * (new - 1)
    return [model(tokens).max().item() for tokens in steps]


def on_first_call(module, args):
    calls.append(args[0].shape[1])
    return args[0] + 100 if len(calls) == 1 else None


def on_a_prompt(module, args):
    return args[0] + 100 if args[0].shape[1] > 1 else None


calls, changed, model = [], {}, nn.Identity()
for hook in (on_first_call, on_a_prompt):
    with model.register_forward_pre_hook(hook):
        twice = [generate(model, torch.zeros(1, length)) for length in (5, 7)]
    changed[hook.__name__] = twice
    print(f"{hook.__name__:<13}", *twice)
assert changed["on_first_call"] == [[100.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
assert changed["on_a_prompt"] == [[100.0, 0.0, 0.0], [100.0, 0.0, 0.0]]
