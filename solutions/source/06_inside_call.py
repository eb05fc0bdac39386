# %% [markdown]
# # 6 · How does `__call__` run hooks? Build it yourself
#
# **Time** 58 minutes, and 25 for the ●●● exercise and what stands behind the recap &nbsp;·&nbsp; **You need** lessons 3 to 5
#
# After this lesson you can
#
# - say, in order, what stands between `module(x)` and `module.forward(x)`;
# - write a class that runs hooks as PyTorch does, and let random programs tell where it does not;
# - keep a pair of hooks in step when something raises;
# - read PyTorch's own `_call_impl` without fear.

# %% tags=["setup"]
import inspect
import itertools
import warnings
from collections import OrderedDict

import torch
from IPython.display import display
from torch import nn
from torch.nn.modules._functions import BackwardHookFunction
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

import hooklab
from hooklab import check, predict, progress, reveal
from hooklab.course import one_call
from hooklab.course.errors import error_of
from hooklab.course.lesson06 import border, explorer, figures, reading, scripts
from hooklab.course.lesson06.duel import beside_torch
from hooklab.course.lesson06.tables import ReadyTables

torch.set_num_threads(1)

# %% [markdown]
# ## Which line runs the hook?
#
# You write `layer(x)`, and a hook runs. But no `forward` that you have written says a word about hooks. So which line runs them?
# Below, one layer gets a hook, a new `forward` and a new `__call__`.

# %%
predict("6.a")

# %% tags=["predict"]
layer = nn.Identity()
layer.register_forward_hook(lambda module, args, output: output + 1)
layer.forward = lambda x: x * 10
layer.__call__ = lambda x: 99

result = layer(torch.tensor(1.0)).item()
print("What came out:")
print("layer(1.0) gives", result)

# %%
reveal("6.a", result)
assert result == 11.0, "With the page's numbers, layer(1.0) gives 11."
assert layer.forward(torch.tensor(1.0)).item() == 10.0, (
    "With the page's numbers, layer.forward(1.0) gives 10: no hook runs."
)
assert nn.Module.__call__ is nn.Module._wrapped_call_impl, (
    "The method that calls of modules go through has this name."
)

# %% [markdown]
# The lines that you are looking for are in `nn.Module`. If there were no hooks, all of them would be this:

# %%
class Bare:
    def __call__(self, *args):
        return self.forward(*args)

# %% [markdown]
# Exercise by exercise it grows, until random programs can hardly tell it from PyTorch's.
#
# ## One call in slow motion
#
# Go through a call, step by step: the module multiplies by 3, and it gets a 2.

# %% tags=["explorer"]
one_call.moving_call()

# %% tags=["figure"]
for picture in one_call.positions():  # without a kernel: two of its positions
    display(picture)

replaced = one_call.record_call("return args[0] * 10", "return output + 1")
assert replaced.values[-1] == [2.0, 20.0, 20.0, 60.0, 61.0, 61.0]
in_place = one_call.record_call("args[0].mul_(10)", "return None", backward=True)
assert in_place.values[-1][0] == 20.0 and "".join(in_place.memory) == "AAABBB"

# %% [markdown]
# *What to see:* what a hook returns goes on in place of what was there; `None` lets it be. A hook that writes in place
# changes all that shares the memory, your own tensor too. With a backward hook, the tensors are *wrapped*: another tensor,
# the same memory.

# %% [markdown]
# ## Where hooks wait
#
# Registering puts a function into an **ordered dictionary** of the module, under the id of its **handle**. `remove()` takes
# it out. There is a dictionary for each kind of hook.

# %% tags=["claim-S1.3"]
layer = nn.Identity()
handle = layer.register_forward_hook(print)
registered = dict(layer._forward_hooks)
handle.remove()

print("registered:", len(registered), "  after remove():", len(layer._forward_hooks))
assert isinstance(layer._forward_hooks, OrderedDict) and registered == {handle.id: print} and not layer._forward_hooks
assert "self._forward_pre_hooks[handle.id] = hook" in inspect.getsource(nn.Module.register_forward_pre_hook)

# %% [markdown] tags=["exercise"]
# ### Exercise 6.1 · A handle
# ●○○ · 6 minutes
#
# Write the handle. Making one puts `hook` into the ordered dictionary `table`, last, or first with `prepend=True`, under the
# handle's `id`: a number that no other handle has or ever had, in any table. `remove()` takes out this one registration,
# and does nothing if it is gone already. In a `with` block, `as` gives the handle; at the end it removes the hook, whatever
# happens inside, and an exception goes on to the caller.
#
# <details><summary>Hint: after a removal, another hook vanishes</summary>
#
# `len(table)` comes again after a removal. `next(itertools.count())` of a counter that all handles share never does.
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

    def __init__(self, table: OrderedDict, hook, prepend: bool = False):
        ### BEGIN SOLUTION
        self.table, self.id = table, next(self.ids)
        table[self.id] = hook
        if prepend:
            table.move_to_end(self.id, last=False)
        ### END SOLUTION

    def remove(self) -> None:
        ### BEGIN SOLUTION
        self.table.pop(self.id, None)
        ### END SOLUTION

    def __enter__(self) -> "Handle":
        return self

    def __exit__(self, *error: object) -> None:
        ### BEGIN SOLUTION
        self.remove()
        ### END SOLUTION

# %% tags=["check"]
check("6.1", Handle)

# %% [markdown]
# With it, registering is a line:

# %%
class Tables(Bare):
    """Where hooks wait."""

    def __init__(self):
        self.pre_hooks, self.forward_hooks = OrderedDict(), OrderedDict()
        self.backward_hooks, self.always_called = OrderedDict(), set()

    def register_forward_pre_hook(self, hook, prepend=False):
        return Handle(self.pre_hooks, hook, prepend)

    def register_forward_hook(self, hook, prepend=False, always_call=False):  # always_call waits for exercise 6.4
        handle = Handle(self.forward_hooks, hook, prepend)
        if always_call:
            self.always_called.add(handle.id)
        return handle

    def register_full_backward_hook(self, hook, prepend=False):
        return Handle(self.backward_hooks, hook, prepend)

# %% [markdown] tags=["exercise"]
# ### Exercise 6.2 · Around forward
# ●●○ · 8 minutes
#
# Write the call. Each pre-hook is called with the module and `args`, a tuple, as the hook before has left it. A pre-hook's
# value that is no tuple becomes the one argument, a list too. Then `forward`; then each forward hook, with the module, the
# arguments that `forward` got, and the output as the hook before has left it. `None` changes nothing, all else replaces.
#
# <details><summary>Hint: forward() argument after * must be an iterable</summary>
#
# A pre-hook has returned one bare value. Put it into a tuple.
# </details>
# <details><summary>Hint: the check says that a 0 was lost</summary>
#
# `if new:` is false for 0 and for `()`, and it fails for a tensor of several numbers. What do you really want to know?
# </details>

# %% tags=["solution"]
class WithHooks(Tables):
    """Hooks before and after forward."""

    def __call__(self, *args):
        ### BEGIN SOLUTION
        for change in self.pre_hooks.values():
            new = change(self, args)
            if new is not None:
                args = new if isinstance(new, tuple) else (new,)
        output = self.forward(*args)
        for change in self.forward_hooks.values():
            new = change(self, args, output)
            if new is not None:
                output = new
        return output
        ### END SOLUTION

# %% tags=["check"]
check("6.2", WithHooks)

# %% [markdown]
# ## Three eras
#
# You have just written PyTorch of 2019. There was an era before (document S4 prints its `__call__`), in which a hook may only
# look: what a pre-hook returns is thrown away, and a forward hook that returns anything **raises**. Release 1.2 turned the rule
# around: a returned value **replaces**. The third era is today's.

# %% tags=["claim-S4.1"]
class FirstEra(ReadyTables):  # your Tables, with a handle that is written already
    """Hooks may look, and that is all."""

    def __call__(self, *args):
        for hook in self.pre_hooks.values():
            hook(self, args)
        output = self.forward(*args)
        for hook in self.forward_hooks.values():
            if hook(self, args, output) is not None:
                raise RuntimeError("forward hooks should never return any values")
        return output


for era in (FirstEra, nn.Module):  # 1 goes in, forward multiplies by 3, one hook returns 100
    print(f"{era.__name__:>9}:", scripts.hooks_that_return_100(era))

assert scripts.hooks_that_return_100(FirstEra) == {"pre-hook": 3, "forward hook": "RuntimeError"}
assert scripts.hooks_that_return_100(nn.Module) == {"pre-hook": 300, "forward hook": 100}

# %% [markdown]
# ## Beside torch
#
# What does your class still lack? Ask chance.
#
# `beside_torch` draws small programs: a few hooks on a module, a few calls. Some hooks look, some replace, some take each
# other off while they run. Each program runs on your class and on PyTorch's, and all that a hook or the caller could see is
# written into a log. The logs are compared line by line.

# %%
duel = beside_torch(WithHooks, ["look", "replace", "come and go"])
print(duel)

# %% [markdown]
# Is your third number smaller than the others? Exercise 6.2 has not said everything. What does PyTorch do when a hook takes off
# another one, in the middle of the loop?

# %%
predict("6.b")

# %% tags=["predict"]
runs = []
layer = nn.Identity()
first = layer.register_forward_hook(lambda module, args, output: second.remove())
second = layer.register_forward_hook(lambda module, args, output: runs.append("second"))
layer(torch.ones(1))
layer(torch.ones(1))

print("What came out:")
print("calls: 2, runs of the second hook:", len(runs))

# %%
reveal("6.b", len(runs))
assert runs == ["second"], "With the page's two calls, the second hook runs once."

# %% [markdown]
# And this is the first program in which your class and PyTorch differ:

# %%
print(duel.first_difference())

# %% [markdown]
# Make your class do what PyTorch does: in exercise 6.2, put `list(…)` around what your two loops go through, and run the
# programs again. (A loop over a dictionary that changes in the meantime is an error in Python.)

# %% [markdown]
# ## Both ends
#
# Where is the place for a backward hook? It wants the gradients at both ends of the module. A tensor hook would do; but on
# *which* tensor, if `x` goes to other modules as well? So PyTorch makes new ones, the *wrap* of the picture: the inputs
# **cross** an extra node before `forward`, the output crosses another one behind it. (In lesson 5: the doors.)

# %% tags=["claim-S1.4"]
class Watch(nn.Module):
    def forward(self, x):
        log.append(f"forward got x: {x is mine}")
        return x * 2


log, watch, mine = [], Watch(), torch.ones(2, requires_grad=True)
watch.register_forward_pre_hook(lambda m, args: log.append(f"pre-hook got x: {args[0] is mine}"))
watch.register_forward_hook(lambda m, args, out: log.append(f"hook got {out.grad_fn.name()}"))
watch.register_full_backward_hook(lambda m, grad_input, grad_output: None)
log.append(f"caller got {watch(mine).grad_fn.name()}")

print("\n".join(log))
assert log[:2] == ["pre-hook got x: True", "forward got x: False"]
assert log[2:] == ["hook got MulBackward0", "caller got BackwardHookFunctionBackward"]

# %% [markdown]
# So the order is: pre-hooks, *inputs cross*, `forward`, forward hooks, *output crosses*.
#
# Here is such a node, ready to use. `cross` sends the tensors of a tuple through it. When their gradients come back there, it
# calls your function, and what that returns goes on.

# %%
x = torch.tensor([2.0], requires_grad=True)
(crossed,) = border.cross((x,), lambda grads: (grads[0] * 100,))
(crossed * 3).backward()

print("x.grad =", x.grad.item())
assert x.grad.item() == 300.0
assert crossed is not x and crossed.data_ptr() == x.data_ptr()  # another tensor, the same memory

# %% [markdown] tags=["exercise"]
# ### Exercise 6.3 · Both ends
# ●●○ · 10 minutes
#
# Make backward hooks work: put one node before `forward` and one after it, both with `self.cross(values, function)`. It sends
# the values through a new node and returns them as a tuple. In the backward pass it calls `function` with a tuple of their
# gradients; if `function` returns something other than `None`, that replaces the gradients.
#
# 1. **Output.** After all forward hooks, send the output through `cross`. In the backward pass this node runs first. Store the
#    gradients that it receives, `grad_output`, in the list `arrived`.
# 2. **Inputs.** After all pre-hooks, send the arguments through `cross`. Its turn comes later in the backward pass, so by then
#    you have both tuples. Call each hook as `hook(self, grad_input, grad_output)`.
# 3. If a hook returns something other than `None`, that replaces `grad_input`, for the next hook and for everything before
#    the module.
#
# However the call ends, nothing of yours may stay registered. Step 2 is the tricky one. The inputs must cross after the last
# pre-hook has run and before `forward`, but `WithHooks.__call__` does both in one go. How can you slip in between without
# copying that loop?
#
# <details><summary>Hint: how do I get in between? (Or: grad_input is wrong when a pre-hook changes x.)</summary>
#
# Register your crossing as one more pre-hook, the last one, for this call only: `with self.register_forward_pre_hook(…):`.
# `cross` returns a tuple, so it can replace the arguments.
# </details>
# <details><summary>Hint: what does the node at the output do?</summary>
#
# `self.cross((output,), arrived.append)`. `append` stores `grad_output`. `cross` returns a tuple with one entry: unpack it.
# </details>
# <details><summary>Hint: my hook runs, but the gradient doesn't change</summary>
#
# The function that you give to `cross` for the inputs must *return* the new gradients.
# </details>

# %% tags=["solution"]
class WithBorder(WithHooks):
    """Backward hooks, between two crossings."""

    cross = staticmethod(border.cross)

    def __call__(self, *args):
        hooks, arrived = list(self.backward_hooks.values()), []
        if not hooks:
            return super().__call__(*args)
        ### BEGIN SOLUTION
        def at_the_inputs(grad_input):
            for hook in hooks:
                new = hook(self, grad_input, arrived[-1])
                grad_input = grad_input if new is None else new
            return grad_input

        with self.register_forward_pre_hook(lambda m, args: self.cross(args, at_the_inputs)):
            output = super().__call__(*args)
        (output,) = self.cross((output,), arrived.append)
        return output
        ### END SOLUTION

# %% tags=["check"]
check("6.3", WithBorder)

# %% [markdown]
# ## Whatever happens
#
# A pre-hook loads weights, a forward hook unloads them. Such a pair gets out of step when something raises in between. For the
# second half there is `always_call=True`. When `forward` raises, such a hook gets `None` as the output. But `forward` is not all
# that can raise:

# %%
predict("6.c")

# %% tags=["predict"]
def raises(module, args, output):
    raise ValueError("from the first hook")


got = []
layer = nn.ReLU()
layer.register_forward_hook(raises)
layer.register_forward_hook(
    lambda m, args, output: got.append(output.tolist()), always_call=True
)
print("What came out:")
print(error_of(layer, torch.tensor([-1.0, 5.0])))
print("the always_call hook got", got)

# %% tags=["field", "field-35"]
reveal("6.c", got)
assert got == [[0.0, 5.0]], "With the page's input, the hook gets 0 and 5."

# %% [markdown]
# An `always_call` hook is there to clean up, not to rescue: the error goes on to the caller.

# %% [markdown] tags=["exercise"]
# ### Exercise 6.4 · Whatever happens
# ●●● · 12 minutes
#
# Write the call of 6.2 again, with `always_call`; copy each table when its loop begins. When a pre-hook, `forward` or a forward hook raises an
# `Exception` (an interrupt isn't one), those forward hooks run whose id is in `self.always_called` and whose turn had not come yet, in the order of
# the table, with `args` and `output` as they are by then (`None`, if there is no output yet); what they return replaces the output, for the next of
# them. If one of these raises, that becomes a warning (`warnings.warn`). Then the first error goes to the caller.
#
# <details><summary>Hint: a hook runs twice</summary>
#
# Write down each hook's id *before* you call it. One that raises has had its turn.
# </details>
# <details><summary>Hint: the caller gets no error, or another one</summary>
#
# At the end of the `except` block, `raise` alone sends the same error on.
# </details>

# %% tags=["solution"]
class WithAlways(WithHooks):
    """Forward hooks that run whatever happens."""

    def __call__(self, *args):
        ### BEGIN SOLUTION
        output, reached = None, set()
        try:
            for change in list(self.pre_hooks.values()):
                new = change(self, args)
                if new is not None:
                    args = new if isinstance(new, tuple) else (new,)
            output = self.forward(*args)
            for key, change in list(self.forward_hooks.items()):
                reached.add(key)
                new = change(self, args, output)
                output = output if new is None else new
            return output
        except Exception:
            for key, change in list(self.forward_hooks.items()):
                if key in self.always_called - reached:
                    try:
                        new = change(self, args, output)
                        output = output if new is None else new
                    except Exception as second:
                        warnings.warn(f"a hook raised after another error: {second}", stacklevel=2)
            raise
        ### END SOLUTION

# %% tags=["check"]
check("6.4", WithAlways)

# %% [markdown]
# ## All of it beside torch
#
# Your class in one piece. (If 6.4 is for another day: `class Mine(WithBorder)`. If you have changed an earlier class, run the
# cells of those built on it again.) Each square below is a random program, filled where your log is PyTorch's.

# %%
class Mine(WithBorder, WithAlways):
    """All of it."""


duels = [beside_torch(one) for one in (FirstEra, WithHooks, WithBorder, Mine)]
print(duels[-1])

# %% tags=["figure"]
display(figures.draw_duels(duels))

# %% [markdown]
# *What to see:* from row to row the class learns a kind of program. The first era knows only hooks that look. In the last
# row, a few squares stay empty: under *go back*, and one under *everything*. What is left?

# %%
print(duels[-1].first_difference())

# %% [markdown]
# All the differences that are left are of this kind: `y` needs no gradient, `x` does. `forward` gives three times the sum. Your hook
# says that the gradient of `y` is 3, PyTorch's says 0. Who is right?
#
# You are. It is the zero of lesson 5, and here it is made: PyTorch's node marks what needs no gradient as *not differentiable*, so
# that nothing is computed for it in vain, and fills in a zero. With such a node, no program finds a difference:

# %%
class LikeTorch(Mine):
    cross = staticmethod(border.torchs_cross)


print(beside_torch(LikeTorch))
assert "mark_non_differentiable" in inspect.getsource(BackwardHookFunction.forward)

# %% [markdown]
# ## Read the real one
#
# `nn.Module.__call__` is `_wrapped_call_impl`, which asks whether the module was compiled, and goes on to `_call_impl`. That one is
# longer than yours, for keyword arguments, global hooks and compilers, but its parts come in your order. (All of it:
# `nn.Module._call_impl??`.)

# %%
reading.show(1, 2, 3)

# %% [markdown]
# 1 is your `Bare`. 2 is your first loop: the tuple, and `is not None`. 3 is your `self.cross`, written in line instead of as
# a pre-hook.

# %%
reading.show(4, 5, 6, 7)

# %% [markdown]
# 5 is the copy. **Global hooks** (`register_module_forward_hook`) stand in front: they sit on no module and run for all of
# them. 6 is your second loop, 7 the way out.

# %%
reading.show(8, 9, 10)

# %% [markdown]
# 8 is the legacy hook of lesson 5. 9 and 10 are exercise 6.4.

# %% [markdown]
# ## In the field
#
# **"A hook of one model fires for all models."** It is a global one. It lives in the process until its handle is removed, so
# a notebook that forgets it changes every later cell.
# ([The change that added them](https://github.com/pytorch/pytorch/pull/38972))

# %% tags=["field", "field-36", "hook-global-forward"]
seen = []
with register_module_forward_hook(lambda module, args, out: seen.append(type(module).__name__)):
    nn.Linear(1, 1)(torch.ones(1, 1))
    nn.Sequential(nn.ReLU())(torch.ones(1))
nn.ReLU()(torch.ones(1))

print(seen)
assert seen == ["Linear", "ReLU", "Sequential"]  # the inner module ends before the outer one

# %% [markdown] tags=["exercise"]
# ### Exercise 6.5 · Mend it: a trace of all calls
# ●●○ · 6 minutes
#
# This script writes down every call in `model(x)`, indented by its depth: `["Sequential", "  Linear", "  ReLU"]`. It works on
# the first try. Then its users report: "my other models have become slow", "my model tries a part, catches its error and
# takes another part, and that one stands too far to the right". Mend it. It still calls `model(x)` once, as it is: an
# exception goes on to the caller, and other people's hooks run and stay.
#
# ```python
# def trace(model, x):
#     lines, depth = [], 0
#
#     def enter(module, args):
#         nonlocal depth
#         lines.append("  " * depth + type(module).__name__)
#         depth += 1
#
#     def leave(module, args, output):
#         nonlocal depth
#         depth -= 1
#
#     register_module_forward_pre_hook(enter)
#     register_module_forward_hook(leave)
#     model(x)
#     return lines
# ```
#
# <details><summary>Hint: after an error of the whole model, my hooks are still there</summary>
#
# A handle works in a `with` block, which may have several.
# </details>
# <details><summary>Hint: lines stand too far to the right</summary>
#
# `enter` ran for the part that raised, `leave` did not.
# </details>

# %% tags=["solution"]
def trace(model: nn.Module, x: torch.Tensor) -> list[str]:
    """Return a line for each call in model(x), indented by two spaces for each level."""
    ### BEGIN SOLUTION
    lines, depth = [], 0

    def enter(module, args):
        nonlocal depth
        lines.append("  " * depth + type(module).__name__)
        depth += 1

    def leave(module, args, output):
        nonlocal depth
        depth -= 1

    with (
        register_module_forward_pre_hook(enter),
        register_module_forward_hook(leave, always_call=True),
    ):
        model(x)
    return lines
    ### END SOLUTION

# %% tags=["check"]
check("6.5", trace)

# %% [markdown] tags=["recap"]
# ## Recap
#
# | the documents say | today |
# |---|---|
# | registering stores the hook in an ordered dict under the handle's id (S1) | true, and `remove()` takes it out |
# | `__call__` runs pre-hooks, `forward`, forward hooks, then attaches backward hooks (S1, S4) | the order holds; full backward hooks sit on two extra nodes: the inputs cross before `forward`, the output after the hooks |
# | pre-hooks must not change the input; a forward hook that returns anything raises (S4) | the first era; since 1.2 a returned value replaces |
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | `__call__` | 调用 | what Python runs for `module(x)`, taken from the class; the home of hooks |
# | handle | 句柄 | knows the table and the id of one hook |
# | `always_call` | 始终调用 | run the hook even if a pre-hook, `forward` or another hook has raised |
# | global hook | 全局钩子 | runs for every module of the process |
# | prepend | 前置 | register at the front of the line |

# %% [markdown] tags=["quiz"]
# ### Three questions
#
# **1.** Your profiler calls `model.forward(x)`. Which hooks are silent?
#
# <details><summary>Answer</summary>
#
# Those of the outermost module. Its `forward` calls the inner ones as ever, and they run theirs.
# </details>
#
# **2.** An `always_call` hook gets the output `None`. What has happened?
#
# <details><summary>Answer</summary>
#
# A pre-hook or `forward` has raised (or `forward` returned `None`). If a forward hook had raised, the output would be there.
# </details>
#
# **3.** A `forward` asks `x is self.last_x`, and works, until somebody puts a full backward hook on the module. What has happened?
#
# <details><summary>Answer</summary>
#
# The inputs cross, so `forward` gets another tensor with the same memory. Which inputs do, is shown below.
# </details>

# %%
progress(6)

# %% [markdown]
# ## If you want more
#
# **Which inputs cross?** As soon as one tensor argument requires a gradient, all positional tensors do. If none does, or under
# `no_grad`, `forward` gets your own. Keyword arguments never cross.

# %% tags=["field", "field-183"]
class Same(nn.Module):
    def forward(self, *args, key=None):
        return args[0] * 1, [one is other for one, other in zip((*args, key), passed, strict=True)]


x, mask, key = torch.ones(1, requires_grad=True), torch.ones(1), torch.ones(1, requires_grad=True)
same = Same()
same.register_full_backward_hook(lambda m, grad_input, grad_output: None)
passed = (x, mask, key)
print("x, mask, key are the ones passed:", same(x, mask, key=key)[1])
assert same(x, mask, key=key)[1] == [False, False, True]
with torch.no_grad():
    assert same(x, mask, key=key)[1] == [True, True, True]
passed = (mask, mask, key)
assert same(mask, mask, key=key)[1] == [True, True, True]

# %% [markdown]
# **Who runs when**, with everything at once? In the explorer, `first → second` is the net, and all hooks sit on `first`.

# %% tags=["explorer"]
explorer.call_order()

# %% tags=["figure", "field", "field-36"]
forward_hooks = {"pre": True, "hook": True, "prepended": True, "always": True, "everywhere": True}
for raises_too in (False, True):  # without a kernel: two of its positions
    moments = explorer.record_order(raises=raises_too, **forward_hooks)
    display(explorer.draw_order(moments))
    print(" → ".join(moment.text for moment in moments if moment.kind == "hook"))

assert [moment.text for moment in moments if moment.kind == "hook"] == ["pre-hook", "forward hook, always_call"]
moments = explorer.record_order(**forward_hooks)
order = [moment.text.removeprefix("forward hook, ") for moment in moments if moment.kind == "hook"]
assert order == ["pre-hook", "global forward hook", "prepend", "forward hook", "always_call"]

# %% [markdown]
# *What to see:* the global hook first, then the prepended one, then the order of registration. When `first.forward` raises,
# only the `always_call` hook is left.

# %% [markdown]
# **"My `always_call` hook gets `None` in place of the output."** Then a pre-hook or `forward` has raised, and there is none yet.
# ([The thread in which people asked for the option](https://github.com/pytorch/pytorch/issues/103997))

# %% tags=["field"]
layer, got = nn.ReLU(), []
layer.register_forward_pre_hook(lambda module, args: raises(module, args, None))
layer.register_forward_hook(lambda m, args, output: got.append(output), always_call=True)
print(error_of(layer, torch.ones(1)), "  the hook got", got)
assert got == [None]

# %% [markdown]
# **"I stop the forward half-way, and offloaded layers stay loaded."** Hooks load a layer's weights before it runs and unload
# them afterwards. Stop the pass by an exception, as feature extractors do, and the closing hooks of every module around the
# stop are skipped. ([A thread of this kind](https://github.com/pytorch/pytorch/issues/180425))

# %% tags=["field", "field-132"]
def still_loaded(**options):
    """Stop a pass behind the first of two inner layers; return what is loaded afterwards."""
    model, loaded = nn.Sequential(nn.Sequential(nn.ReLU(), nn.Tanh())), set()
    for name, module in model.named_modules():
        module.register_forward_pre_hook(lambda m, args, name=name: loaded.add(name))
        module.register_forward_hook(lambda m, args, out, name=name: loaded.discard(name), **options)
    hooklab.run_until(model, "0.0", torch.ones(1))
    return sorted(loaded)


print("plain hooks:", still_loaded(), "  with always_call=True:", still_loaded(always_call=True))
assert still_loaded() == ["", "0"] and still_loaded(always_call=True) == []

# %% [markdown]
# **What becomes of an error in a hook?** Older threads report crashes and swallowed errors. Today it travels unchanged to
# whoever called the module or `backward()`. But `backward()` stops in the middle: some `.grad` may be filled, others not, and
# an optimizer would take the half for the whole. PyTorch's own complaints name the hook, if it has a name.
# ([The thread](https://github.com/pytorch/pytorch/issues/37672))

# %% tags=["field", "field-43"]
from functools import partial


def bad(grad):
    raise ValueError("mine")


w, x = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
with x.register_hook(bad):
    print("from backward():", error_of((w * (x * 2)).sum().backward))
assert w.grad.item() == 2.0 and x.grad is None  # one has its gradient, the other has none

layer = nn.Identity()
layer.register_forward_hook(lambda module, args, output: 1 / 0)
print("from the call:  ", error_of(layer, x))
assert error_of(layer, x) == "ZeroDivisionError: division by zero"

x.register_hook(partial(lambda factor, grad: grad.repeat(factor), 2))  # a partial has no name
print("from a partial: ", error_of((x * 2).sum().backward))
assert error_of((x * 2).sum().backward) == "RuntimeError: hook '<unknown>' has changed the size of value"

# %% [markdown]
# **A corner where yours is the better one.** After an error PyTorch goes through the table itself, without a copy. Let an
# `always_call` hook take itself off there, and the caller gets another error than the one that came:

# %%
class Fails(nn.Module):
    def forward(self, x):
        raise ValueError("the real reason")


fails = Fails()
once = fails.register_forward_hook(lambda m, args, out: once.remove(), always_call=True)
fails.register_forward_hook(lambda m, args, out: None, always_call=True)
message = error_of(fails, torch.ones(1))
print(message)
assert message.startswith("RuntimeError: OrderedDict mutated")
assert error_of(Fails(), torch.ones(1)) == "ValueError: the real reason"

# %% [markdown]
# **The branch for tracing.** Both old listings print it: `if tracing: self._slow_forward(…)`. It is still there. While
# `torch.jit.trace` records a model, `_slow_forward` stands in for `forward`, so that each operation gets its module's name.

# %%
class Traced(nn.Module):
    def _slow_forward(self, *args, **kwargs):
        used.append("_slow_forward")
        return super()._slow_forward(*args, **kwargs)

    def forward(self, x):
        return x * 2


used, traced = [], Traced()
traced(torch.ones(1))
assert used == []
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch.jit is on its way out
    torch.jit.trace(traced, torch.ones(1), check_trace=False)
print(used)
assert "_slow_forward" in used

# %% [markdown]
# **`hooklab.mini`** is the whole machinery again, tensors and autograd included, in five small files without a line of torch.
# Where your class leaves something out (keyword arguments, global hooks, several outputs, inputs that need no gradient), mini
# has it. Its tests run ten thousand random programs in it and in torch. This is the heart of its call:

# %%
from hooklab import mini
from hooklab.mini import module as mini_module

print(inspect.getsource(mini_module._Call.run))


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


assert program(mini.Module, mini.Tensor) == program(nn.Module, torch.tensor)
assert program(nn.Module, torch.tensor) == (["forward", "first", "second", "backward"], [3.0, 3.0])
