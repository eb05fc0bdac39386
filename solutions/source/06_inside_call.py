# %% [markdown]
# # 6 · How does `__call__` run hooks? Build it yourself, in three eras
#
# **Time** 45 minutes, and 12 for the ●●● exercise &nbsp;·&nbsp; **You need** lessons 3 to 5
#
# After this lesson you can
#
# - say what stands between `module(x)` and `module.forward(x)`, in order;
# - tell from which era of PyTorch an old page speaks, and what has changed since;
# - build tables, handles and the call itself in a few lines;
# - read PyTorch's own `_call_impl` without fear.

# %% tags=["setup"]
import inspect
import itertools
import warnings
from collections import OrderedDict

import torch
from IPython.display import display
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from hooklab import check, progress
from hooklab.course.lesson06 import explorer

torch.set_num_threads(1)

# %% [markdown]
# ## Predict
#
# One module, one `forward`, two ways to run it. **Which of the two calls runs the hook?**

# %% tags=["predict"]
log = []
layer = nn.Identity()
with layer.register_forward_hook(lambda module, args, output: log.append("hook")):
    layer(torch.ones(1))
    log.append("—")
    layer.forward(torch.ones(1))

print(log)
assert log == ["hook", "—"]

# %% [markdown]
# `forward` knows nothing of hooks. They live in `__call__`, the method that Python runs when you write `layer(x)`. This
# lesson follows that method through three eras, and each time you write a piece of it.
#
# ## The table
#
# First, where do hooks wait? Registering puts the function into an **ordered dictionary**, under the id of its handle.
# `remove()` takes it out. That is all.

# %% tags=["claim-S1.3"]
def grab(module, args, output):
    return None


before = len(layer._forward_hooks)
handle = layer.register_forward_hook(grab)
with_one = dict(layer._forward_hooks)
handle.remove()
after = len(layer._forward_hooks)

print("before:", before, "  registered:", len(with_one), "  after remove():", after)
assert isinstance(layer._forward_hooks, OrderedDict)
assert with_one == {handle.id: grab}
assert (before, after) == (0, 0)

# %% [markdown]
# Every module has a table for each kind of hook (legacy and full backward hooks share `_backward_hooks`), and there is a
# second set of tables for the whole process: the **global hooks**, which run for every module.

# %%
tables = [name for name in vars(layer) if name.endswith("_hooks") and "dict" not in name]
everywhere = [name for name in vars(nn.modules.module) if name.startswith("_global_")]
print("on a module: ", *[name for name in tables if "registration" not in name])
everywhere = [name for name in everywhere if name.endswith("hooks") and "registration" not in name]
print("on everything:", *everywhere)

assert {"_forward_pre_hooks", "_forward_hooks", "_backward_hooks"} <= set(tables)
assert "_global_forward_hooks" in everywhere

# %% [markdown]
# ## The first era: a hook may only look
#
# The oldest of our documents prints a `__call__` that does three things: run the pre-hooks, run `forward`, run the forward
# hooks. A pre-hook's result was thrown away, "it should not change the input". A forward hook that returned anything
# **raised RuntimeError**.

# %% tags=["claim-S4.1"]
class FirstEra:
    """A module as it was in the beginning: two tables, and a call that only lets hooks look."""

    def __init__(self):
        self.pre_hooks, self.forward_hooks = OrderedDict(), OrderedDict()

    def forward(self, x):
        return x + 1

    def __call__(self, *args):
        for hook in self.pre_hooks.values():
            hook(self, args)
        output = self.forward(*args)
        for hook in self.forward_hooks.values():
            if hook(self, args, output) is not None:
                raise RuntimeError("forward hooks should never return any values")
        return output


old = FirstEra()
old.forward_hooks[0] = lambda module, args, output: output * 10
try:
    old(2)
    raise AssertionError("no error came")
except RuntimeError as error:
    print("then: RuntimeError:", error)

identity = nn.Identity()
with identity.register_forward_hook(lambda module, args, output: output * 10):
    today = identity(torch.tensor(3.0)).item()
print("today:", today)
assert today == 30.0  # the returned value has replaced the output

# %% [markdown]
# So when an old page says "a forward hook never affects the result", it was right when it was written.

# %% [markdown] tags=["exercise"]
# ### Exercise 6.1 · The first era
# ●○○ · 6 minutes
#
# Write that call as a **function** that gets the module and its arguments. The module has `pre_hooks`, `forward` and
# `forward_hooks`, as above. Run the pre-hooks (ignore what they return), then `forward`, then the forward hooks, and return the
# output. When one of the latter returns anything but `None`, raise `RuntimeError`.
#
# <details><summary>Hint: "'odict_values' object is not callable"</summary>
#
# `module.pre_hooks` is a dictionary from ids to functions. Loop over its values, and call each.
# </details>
# <details><summary>Hint: the check says that the order is another one</summary>
#
# Forward hooks get the output, so they can only run after `forward`.
# </details>

# %% tags=["solution"]
def call_in_the_first_era(module, *args):
    """Run the module: hooks may look, and must return None (RuntimeError otherwise)."""
    ### BEGIN SOLUTION
    for look in module.pre_hooks.values():
        look(module, args)
    result = module.forward(*args)
    for look in module.forward_hooks.values():
        if look(module, args, result) is not None:
            raise RuntimeError(f"{look} returned a value")
    return result
    ### END SOLUTION

# %% tags=["check"]
check("6.1", call_in_the_first_era)

# %% [markdown]
# ## The second era: a hook may replace
#
# In 2019, with release 1.2, the rule was turned around. What a hook returns **takes the place** of the input or of the
# output, and the next hook gets the new value. A second document prints that version. Its author warns of it: "no return
# value, or the forward is spoilt". It was a danger then; today it is the feature that manifold mixup lives on.
#
# Two details are easy to miss:
#
# - what a pre-hook returns is **wrapped** into a tuple of one if it is not a tuple (a list, too);
# - the question is `is not None`, not "is it true?": a hook may return 0.

# %%
double = nn.Identity()
with double.register_forward_pre_hook(lambda module, args: args[0] * 2):
    wrapped = double(torch.tensor(3.0)).item()
with double.register_forward_hook(lambda module, args, output: torch.tensor(0.0)):
    zero = double(torch.tensor(3.0)).item()

print("a value that was wrapped:", wrapped, "  a zero that counts:", zero)
assert (wrapped, zero) == (6.0, 0.0)

# %% [markdown] tags=["exercise"]
# ### Exercise 6.2 · The second era
# ●●○ · 8 minutes
#
# Write the call of the second era. Each pre-hook gets the arguments as the one before has left them; each forward hook gets
# the final arguments, and the output as the one before has left it. Mind the two details above.
#
# <details><summary>Hint: forward() argument after * must be an iterable</summary>
#
# A pre-hook has returned one bare value. Put it into a tuple.
# </details>
# <details><summary>Hint: the check says that a 0 was lost</summary>
#
# `if result:` is false for 0, for an empty list, and it fails for tensors of several numbers.
# </details>

# %% tags=["solution"]
def call_in_the_second_era(module, *args):
    """Run the module: what a hook returns, unless None, replaces the arguments or the output."""
    ### BEGIN SOLUTION
    for change in module.pre_hooks.values():
        new = change(module, args)
        if new is not None:
            args = new if isinstance(new, tuple) else (new,)
    result = module.forward(*args)
    for change in module.forward_hooks.values():
        new = change(module, args, result)
        if new is not None:
            result = new
    return result
    ### END SOLUTION

# %% tags=["check"]
check("6.2", call_in_the_second_era)

# %% [markdown]
# ## Handles
#
# You have used handles since lesson 1. What must one know? The table, and its own id. What must it survive? Being used
# twice, and a `with` block that raises. **Predict:** what does the second line print?

# %% tags=["predict"]
layer = nn.Identity()
first = layer.register_forward_hook(grab)
second = layer.register_forward_hook(grab)
print("the same function twice:", len(layer._forward_hooks), "hooks")
first.remove()
first.remove()
third = layer.register_forward_hook(grab)
print("one removed (twice), one added:", len(layer._forward_hooks), "hooks")

assert len(layer._forward_hooks) == 2
assert third.id not in (first.id, second.id)  # an id never comes again
second.remove()
third.remove()

# %% [markdown] tags=["exercise"]
# ### Exercise 6.3 · A handle
# ●●○ · 10 minutes
#
# `register(table, hook)` puts `hook` last into the ordered dictionary `table`, or first with `prepend=True`, and returns a
# handle. The handle has `remove()`, which takes out this one registration, may be called twice, and works in a `with` block.
# Complete `Handle` and `register`.
#
# <details><summary>Hint: after a removal, another hook vanishes</summary>
#
# `len(table)` is no good id: after a removal the same number comes again. `itertools.count()` never repeats.
# </details>
# <details><summary>Hint: prepending does nothing</summary>
#
# An ordered dictionary has `move_to_end(key, last=False)`.
# </details>
# <details><summary>Hint: the error in my block vanishes</summary>
#
# What `__exit__` returns matters: something true means "I have dealt with the error".
# </details>

# %% tags=["solution"]
class Handle:
    """The way to take one hook out of its table again."""

    ids = itertools.count()

    def __init__(self, table: OrderedDict):
        self.table, self.id = table, next(self.ids)

    def remove(self) -> None:
        """Take the hook out; a second time does nothing."""
        ### BEGIN SOLUTION
        self.table.pop(self.id, None)
        ### END SOLUTION

    def __enter__(self) -> "Handle":
        return self

    def __exit__(self, *error: object) -> None:
        ### BEGIN SOLUTION
        self.remove()
        ### END SOLUTION


def register(table: OrderedDict, hook, prepend: bool = False) -> Handle:
    """Put `hook` into the table, last or first; return its handle."""
    ### BEGIN SOLUTION
    handle = Handle(table)
    table[handle.id] = hook
    if prepend:
        table.move_to_end(handle.id, last=False)
    return handle
    ### END SOLUTION

# %% tags=["check"]
check("6.3", register)

# %% [markdown]
# ## Today
#
# What has come since? Global hooks, `prepend`, `with_kwargs`, `always_call`, and another place for backward hooks. Look
# at the order first. The explorer runs a small net, `first → second`, with the hooks that you tick.

# %% tags=["explorer"]
explorer.call_order()

# %% [markdown]
# Without a kernel, here are two of its positions: all forward hooks at once, and the same when `forward` raises.

# %% tags=["figure", "field", "field-36"]
forward_hooks = {"pre": True, "hook": True, "prepended": True, "always": True, "everywhere": True}
all_of_them = explorer.record_order(**forward_hooks)
display(explorer.draw_order(all_of_them))

order = [moment.text for moment in all_of_them if moment.kind == "hook"]
print(" → ".join(order))
assert order == [
    "pre-hook",
    "global forward hook",
    "forward hook, prepend",
    "forward hook",
    "forward hook, always_call",
]

# %% [markdown]
# *What to see:* of the forward hooks, the global one runs first, then the prepended one, then the rest in the order of
# registration.

# %% tags=["figure", "field", "field-35"]
with_error = explorer.record_order(raises=True, **forward_hooks)
display(explorer.draw_order(with_error))
print(" → ".join(moment.text for moment in with_error if moment.kind == "hook"))
assert [moment.text for moment in with_error if moment.kind == "hook"] == [
    "pre-hook",
    "forward hook, always_call",
]

# %% [markdown]
# *What to see:* an error in `forward` skips every forward hook but the one registered with `always_call=True`.
#
# ## Backward hooks have moved
#
# The documents' call ends with "then attach the backward hooks to the output's `grad_fn`". That was the legacy hook. A
# **full** backward hook works on both ends of the module: the inputs pass through one extra node before `forward`, the
# output through another one after it.

# %%
class Watch(nn.Module):
    def forward(self, x):
        log.append("forward got " + type(x.grad_fn).__name__)
        return x * 2


log = []
watch = Watch()
x = torch.ones(2, requires_grad=True)
with (
    watch.register_forward_pre_hook(lambda m, args: log.append(f"pre-hook got x: {args[0] is x}")),
    watch.register_forward_hook(
        lambda m, args, out: log.append("hook got " + type(out.grad_fn).__name__)
    ),
    watch.register_full_backward_hook(lambda m, grad_input, grad_output: None),
):
    output = watch(x)
log.append("caller got " + type(output.grad_fn).__name__)

# %% tags=["claim-S1.4"]
print("\n".join(log))
assert log == [
    "pre-hook got x: True",
    "forward got BackwardHookFunctionBackward",
    "hook got MulBackward0",
    "caller got BackwardHookFunctionBackward",
]

# %% [markdown]
# Read it as an order: pre-hooks, *wrap the inputs*, `forward`, forward hooks, *wrap the output*. The document's order still
# holds for what it knew; the wrapping is new.

# %% [markdown]
# ## After an error
#
# Timers and context managers made of a pre-hook and a forward hook get out of step when `forward` raises: the second half
# is skipped. This is what `always_call=True` is for. It runs with the output so far, which is `None`; if the hook itself
# fails, its error becomes a warning, and the first error reaches the caller.
# ([The thread](https://github.com/pytorch/pytorch/issues/103997))

# %% tags=["field", "field-35"]
class Boom(nn.Module):
    def forward(self, x):
        raise ValueError("boom")


def fails(module, args, output):
    raise KeyError("in the hook")


log, boom = [], Boom()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with (
        boom.register_forward_hook(lambda m, args, out: log.append("plain")),
        boom.register_forward_hook(lambda m, args, out: log.append(out), always_call=True),
        boom.register_forward_hook(fails, always_call=True),
    ):
        try:
            boom(torch.ones(1))
        except ValueError as error:
            print("the caller gets:", error)

print("always_call got:", log, "  warnings:", len(caught))
assert log == [None]
assert "silenced" in str(caught[0].message)

# %% [markdown] tags=["exercise"]
# ### Exercise 6.4 · Hooks that run after an error
# ●●● · 12 minutes
#
# Write a call with `module.forward_hooks` and `module.always_called`, a set of ids. When `forward` raises, run the hooks
# with those ids, in the order of the table, with the output `None`; turn an error of theirs into a warning (`warnings.warn`);
# then let the first error go to the caller. If `forward` succeeds, run every forward hook once, in order; now an error of a
# hook goes to the caller. (No pre-hooks, and nothing is replaced.)
#
# <details><summary>Hint: the caller gets no error</summary>
#
# After `except … as error:` and your loop, `raise` alone sends the same error on.
# </details>
# <details><summary>Hint: hooks run twice</summary>
#
# Keep the two ways apart: hooks after an error in `except`, hooks after success behind it or in `else`.
# </details>

# %% tags=["solution"]
def call_today(module, *args):
    """Run forward, then its hooks; after an error only those in always_called."""
    ### BEGIN SOLUTION
    try:
        result = module.forward(*args)
    except Exception:
        for number, late in module.forward_hooks.items():
            if number in module.always_called:
                try:
                    late(module, args, None)
                except Exception as error:
                    warnings.warn(f"a hook failed after another error: {error!r}", stacklevel=2)
        raise
    for late in module.forward_hooks.values():
        late(module, args, result)
    return result
    ### END SOLUTION

# %% tags=["check"]
check("6.4", call_today)

# %% [markdown]
# ## All of it, to read in one sitting: `hooklab.mini`
#
# The package contains the machinery again, in five small files without a line of torch. Its tests run random programs in it
# and in torch, and compare. Here is the heart of its call. You have met each station; `border` is the pair of extra nodes.

# %%
from hooklab import mini
from hooklab.mini import module as mini_module

print(inspect.getsource(mini_module._Call.run))
print(inspect.getsource(mini_module._Call._run_forward_hook))

# %% [markdown]
# It runs. The same program in `mini` and in torch gives the same log:

# %%
def program(base, tensor):
    log = []

    class Triple(base):
        def forward(self, x):
            log.append("forward")
            return x * 3.0

    layer = Triple()
    layer.register_forward_hook(lambda m, args, out: log.append("second"))
    layer.register_forward_hook(lambda m, args, out: log.append("first"), prepend=True)
    layer.register_full_backward_hook(lambda m, g_in, g_out: log.append("backward"))
    x = tensor([1.0, 2.0], requires_grad=True)
    layer(x).sum().backward()
    return log, x.grad.tolist()


in_torch = program(nn.Module, torch.tensor)
in_mini = program(mini.Module, mini.Tensor)
print(*in_mini)
assert in_mini == in_torch
assert in_torch == (["forward", "first", "second", "backward"], [3.0, 3.0])

# %% [markdown]
# Now read torch's own. It is longer, for speed and for compilers, but the stations are the ones you have met. Open it with
# `nn.Module._call_impl??` in a cell of your own; here are its landmarks, found in the source.

# %%
source = inspect.getsource(nn.Module._call_impl)
landmarks = {
    "no hooks at all: straight to forward": "return forward_call(*args, **kwargs)",
    "global and own pre-hooks": "_global_forward_pre_hooks.items()",
    "a single value is wrapped": "args_result = (args_result,)",
    "wrap the inputs": "setup_input_hook(args)",
    "forward": "result = forward_call(*args, **kwargs)",
    "forward hooks": "_global_forward_hooks.items()",
    "wrap the output": "setup_output_hook(result)",
    "the legacy hook, on grad_fn": "grad_fn.register_hook(_WrappedHook(hook, self))",
    "after an error": "always_called",
}
for station, code in landmarks.items():
    assert code in source, station
    print(f"{station:<37} {code}")

# %% [markdown]
# ## In the field
#
# **"What happens to an error in my hook?"** Older threads report crashes and swallowed errors. Today it travels unchanged to
# whoever called the module or `backward()`. But `backward()` stops in the middle: some `.grad` may be filled, others not.
# ([The thread](https://github.com/pytorch/pytorch/issues/37672))

# %% tags=["field", "field-43"]
def bad(grad):
    raise ValueError("mine")


w, x = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
with x.register_hook(bad):
    try:
        (w * (x * 2)).sum().backward()
        raise AssertionError("no error came")
    except ValueError as error:
        print("from backward():", error)

layer = nn.Identity()
with layer.register_forward_hook(lambda module, args, output: 1 / 0):
    try:
        layer(x)
        raise AssertionError("no error came")
    except ZeroDivisionError as error:
        print("from the call:  ", error)

assert w.grad.item() == 2.0 and x.grad is None  # one has its gradient, the other has none

# %% [markdown]
# **"A hook of one model fires for all models."** It is a global one. It lives in the process, not in the model, until its
# handle is removed, so a notebook that forgets it changes every later cell.
# ([The change that added them](https://github.com/pytorch/pytorch/pull/38972))

# %% tags=["field", "field-36"]
seen = []
with register_module_forward_hook(lambda module, args, out: seen.append(type(module).__name__)):
    nn.Linear(1, 1)(torch.ones(1, 1))
    nn.Sequential(nn.ReLU())(torch.ones(1))
nn.ReLU()(torch.ones(1))

print(seen)
assert seen == ["Linear", "ReLU", "Sequential"]  # the inner module ends before the outer one
assert not nn.modules.module._global_forward_hooks

# %% [markdown] tags=["exercise"]
# ### Exercise 6.5 · Count every call
# ●●○ · 8 minutes
#
# Return how often a module of each type is called in one run of `model(x)`, by the type's name, the outermost included:
# `{"Sequential": 1, "Linear": 2}`. Modules that `forward` makes on the spot count, too. Use a global hook, and leave none
# behind, **even if the model raises**.
#
# <details><summary>Hint: a ReLU that is used twice is counted once</summary>
#
# Do not count modules; count calls, in the hook.
# </details>
# <details><summary>Hint: after an error, my hook is still there</summary>
#
# `with register_module_forward_hook(…):` removes it in any case.
# </details>

# %% tags=["solution"]
def count_calls(model: nn.Module, x: torch.Tensor) -> dict[str, int]:
    """Return type name -> number of calls during model(x)."""
    ### BEGIN SOLUTION
    counts = {}

    def count(module, args, output):
        kind = type(module).__name__
        counts[kind] = counts.get(kind, 0) + 1

    with register_module_forward_hook(count):
        model(x)
    return counts
    ### END SOLUTION

# %% tags=["check"]
check("6.5", count_calls)

# %% [markdown] tags=["recap"]
# ## Recap
#
# | the documents say | today |
# |---|---|
# | registering stores the hook in an ordered dict under the handle's id | true, and `remove()` takes it out |
# | `__call__` runs pre-hooks, `forward`, forward hooks, then attaches backward hooks | the order holds; full backward hooks wrap the inputs before `forward` and the output after it |
# | pre-hooks must not change the input; a forward hook that returns anything raises | the first era; since 1.2 a returned value replaces |
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | `__call__` | 调用 | what Python runs for `module(x)`; the home of hooks |
# | handle | 句柄 | knows the table and the id of one hook |
# | global hook | 全局钩子 | runs for every module of the process |
# | prepend | 前置 | register at the front of the line |
# | `always_call` | 始终调用 | run the hook even when `forward` raised |

# %% [markdown] tags=["quiz"]
# ### Three questions
#
# **1.** Your profiler calls `model.forward(x)`. Why are all its hooks silent?
#
# <details><summary>Answer</summary>
#
# Hooks are run by `__call__`. `model.forward` goes past it for the outermost module (the inner ones are still called).
# </details>
#
# **2.** Two forward hooks both return something. What is the module's output?
#
# <details><summary>Answer</summary>
#
# What the second returns: it gets the first one's result as its output, and replaces it.
# </details>
#
# **3.** A module has a full backward hook. Does `forward` get the very tensor that you passed in?
#
# <details><summary>Answer</summary>
#
# No, if the tensor requires grad: it gets what came out of the extra node at the inputs. A pre-hook still sees yours.
# </details>

# %%
progress(6)
