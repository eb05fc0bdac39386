# %% [markdown]
# # 6 · How does `__call__` run hooks? Build it yourself
#
# **Time** 60 minutes, and 56 for the extras after the recap &nbsp;·&nbsp; **You need** lessons 3 to 5
#
# After this lesson you can
#
# - say, in order, what happens between `module(x)` and `module.forward(x)`;
# - write a class that runs hooks as PyTorch does, and let random programs look for a difference;
# - find each of your lines in PyTorch's own `_call_impl`.
#
# PyTorch's documentation of [`nn.Module`](https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html) describes each
# register method. Here you'll build the code behind them.

# %% tags=["setup"]
import inspect
import itertools
import warnings
from collections import OrderedDict

import torch
from IPython.display import display
from torch import nn
from torch.nn.modules._functions import BackwardHookFunction
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

import hooklab
from hooklab import check, predict, progress, reveal
from hooklab.course import one_call, plots
from hooklab.course.errors import error_of
from hooklab.course.exercises.ready import yours_or
from hooklab.course.lesson06 import border, explorer, figures, reading, ready, scripts
from hooklab.course.lesson06.duel import beside_torch
from hooklab.course.lesson06.tables import ReadyTables

torch.set_num_threads(1)

# %% [markdown]
# ## The goal
#
# You're going to write `nn.Module`'s `__call__` yourself. Who decides whether it's right? Chance: hundreds of small random
# programs run with your class and with PyTorch's, and each writes a log. Every square below is one program. A **dark** square
# means that the two logs differ.

# %% tags=["figure"]
display(figures.draw_duels([beside_torch(one) for one in ready.goal()]))

# %% [markdown]
# *What to see:* each row is a class that you'll write (a part of the last one after the recap), and with each class there are
# fewer dark squares. By the end, the grid will be drawn with yours. But some squares stay dark even in the last row. You'll find
# out who is right there, you or PyTorch.
#
# ## Which line runs the hook?
#
# You write `layer(x)`, and a hook runs. But your `forward` doesn't mention hooks. So which line runs them? Below, one layer gets
# a hook, a new `forward` and a new `__call__`.

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
# Python takes `__call__` from the class, never from the object, so the one that you set on the layer isn't used. The class has
# it from `nn.Module`, and the lines that run hooks are there. Without hooks, it would need only these:

# %%
class Bare:
    def __call__(self, *args):
        return self.forward(*args)

# %% [markdown]
# This class will grow, exercise by exercise.
#
# ## Where hooks are stored
#
# Registering stores the function in an **ordered dictionary** of the module, under the id of its **handle**. `remove()` deletes
# that entry. There is one dictionary for each kind of hook.

# %% tags=["claim-S1.3", "claim-S1.9"]
layer = nn.Identity()
handle = layer.register_forward_hook(print)
registered = dict(layer._forward_hooks)
handle.remove()

print("registered:", len(registered), "  after remove():", len(layer._forward_hooks))
assert isinstance(layer._forward_hooks, OrderedDict)
assert registered == {handle.id: print} and not layer._forward_hooks
assert layer._forward_pre_hooks is not layer._forward_hooks
source = inspect.getsource(nn.Module.register_forward_pre_hook)
assert "self._forward_pre_hooks[handle.id] = hook" in source

# %% [markdown] tags=["exercise"]
# ### Exercise 6.1 · A handle
# ●○○ · 8 minutes
#
# Write the handle.
#
# 1. `Handle(table, hook)` puts `hook` into the ordered dictionary `table`: at the end, or at the front with `prepend=True`. The
#    key is the handle's `id`, a number that no other handle has or ever had, in any table.
# 2. `remove()` deletes this one entry. If it's already gone, `remove()` does nothing.
# 3. In a `with` block, `as` gives the handle. At the end, the hook is removed, even if the block raises, and the exception
#    reaches the caller.
#
# <details><summary>Hint: after I remove a hook, another hook vanishes</summary>
#
# `len(table)` gives the same number again after a removal. `next(…)` of an `itertools.count()` that all handles share never
# does.
# </details>
# <details><summary>Hint: prepending does nothing</summary>
#
# An ordered dictionary has `move_to_end(key, last=False)`.
# </details>
# <details><summary>Hint: the error in my block vanishes</summary>
#
# Look at what `__exit__` returns. A true value means "I have handled the error".
# </details>

# %% tags=["solution"]
class Handle:
    """Knows the table and the id of one hook, and can remove it."""

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
# With your handle, registering takes one line. (If you're stuck in an exercise, go on: a ready class runs instead of yours.)

# %%
TheHandle = yours_or("6.1", Handle, ready.Handle)

# %%
class Tables(Bare):
    """The tables of hooks, and the ways to register one."""

    def __init__(self):
        self.pre_hooks, self.forward_hooks = OrderedDict(), OrderedDict()
        self.backward_hooks, self.always_called = OrderedDict(), set()

    def register_forward_pre_hook(self, hook, prepend=False):
        return TheHandle(self.pre_hooks, hook, prepend)

    def register_forward_hook(self, hook, prepend=False, always_call=False):
        handle = TheHandle(self.forward_hooks, hook, prepend)
        if always_call:  # used in exercise 6.4
            self.always_called.add(handle.id)
        return handle

    def register_full_backward_hook(self, hook, prepend=False):
        return TheHandle(self.backward_hooks, hook, prepend)

# %% [markdown] tags=["exercise"]
# ### Exercise 6.2 · Around forward
# ●●○ · 11 minutes
#
# Write the call.
#
# 1. Call each pre-hook with the module and `args`, a tuple. If it returns a tuple, that's the new `args`. If it returns
#    something else, even a list, that becomes the only argument: `(new,)`.
# 2. Call `forward` with these arguments.
# 3. Call each forward hook with the module, the arguments that `forward` got, and the output. What it returns is the new output.
# 4. If a hook returns `None`, nothing changes. Each hook gets what the previous one left.
#
# <details><summary>Hint: forward() argument after * must be an iterable</summary>
#
# A pre-hook has returned a value that isn't a tuple. Put it into one.
# </details>
# <details><summary>Hint: the check says that a 0 was lost</summary>
#
# `if new:` is false for 0 and for `()`, and it fails for a tensor with several numbers. What do you really want to know?
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
# ## Your class and PyTorch's
#
# `beside_torch` makes up small programs: a few hooks on a module, and a few calls. Some hooks read, some replace values, some
# remove each other while they run. Each program runs with your class and with PyTorch's. Everything that a hook or the caller
# can see goes into a log, and the logs are compared line by line. What is still missing in your class?

# %%
Hooks = yours_or("6.2", WithHooks, ready.hooks(Tables))
duel = beside_torch(Hooks, ["look", "replace", "come and go"])
print(duel)

# %% [markdown]
# Is your third number smaller than the others? Then exercise 6.2 left something open. What does PyTorch do if one hook removes
# another one in the middle of the loop?

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
# This is the first program in which your class and PyTorch differ (if there is one). After it come the two logs: lines marked
# `both` are the same in both, and those marked `yours` and `torch` differ:

# %%
print(duel.first_difference())

# %% [markdown]
# To do what PyTorch does, put `list(…)` around what your two loops in 6.2 go through, and run the cells from there again. (In
# Python, a loop over a dictionary that changes during the loop raises an error.)

# %% [markdown]
# ## The border
#
# Where does a backward hook get the gradients at both ends of the module? Tensor hooks won't do: `x` may go to other modules,
# too, and then a hook on `x` would see their gradients as well. So PyTorch makes new tensors, as in lesson 5: the inputs
# **cross** an extra node, and so does the output. Together the two nodes are the module's border. But when do they cross? Four
# places in a call can tell:

# %% tags=["claim-S1.4"]
class Watch(nn.Module):
    def forward(self, x):
        log.append(f"forward got x: {x is mine}")
        return x * 2


log, watch, mine = [], Watch(), torch.ones(2, requires_grad=True)
watch.register_forward_pre_hook(
    lambda m, args: log.append(f"pre-hook got x: {args[0] is mine}")
)
watch.register_forward_hook(
    lambda m, args, out: log.append(f"hook got {out.grad_fn.name()}")
)
watch.register_full_backward_hook(lambda m, grad_input, grad_output: None)
log.append(f"caller got {watch(mine).grad_fn.name()}")

print("\n".join(log))
assert log[:2] == ["pre-hook got x: True", "forward got x: False"]
assert log[2:] == ["hook got MulBackward0", "caller got BackwardHookFunctionBackward"]

# %% [markdown]
# The pre-hook still got your `x`, and `forward` got a new tensor. The forward hook still got the output of `x * 2`, and the
# caller got a new one. So this is the order:

# %% tags=["figure"]
plots.show(figures.border(), figures.BORDER)

# %% [markdown]
# *What to see:* the inputs cross right before `forward`, and the output crosses last. In the backward pass (orange), the
# gradients meet the output border first. At the input border, `grad_input` and `grad_output` are both known, so the backward
# hooks run there.
#
# `border.cross` makes such a node for you. It sends the tensors of a tuple through the node. In the backward pass, it calls
# your function with their gradients, and what the function returns replaces them (`None` changes nothing).

# %%
x = torch.tensor([2.0], requires_grad=True)
(crossed,) = border.cross((x,), lambda grads: (grads[0] * 100,))
(crossed * 3).backward()

print("x.grad =", x.grad.item())
assert x.grad.item() == 300.0
assert crossed is not x and crossed.data_ptr() == x.data_ptr()  # the same memory

# %% [markdown] tags=["exercise"]
# ### Exercise 6.3 · Both ends
# ●●○ · 15 minutes
#
# Make backward hooks work: put a node at each end of `forward`, as in the picture above. `self.cross(values, function)` sends a
# tuple of values through a new node, and returns them as a tuple. In the backward pass, the node calls `function` with a tuple
# of their gradients.
#
# **Given**, in the last lines: the output border. In each backward pass it runs first, and appends `grad_output`, a tuple, to
# the list `arrived`.
#
# **Yours:** the input border, and the call of `super()` that makes `output`.
#
# 1. After all pre-hooks, send the arguments through `cross`. In the backward pass, call each hook there, as
#    `hook(self, grad_input, grad_output)`.
# 2. If a hook returns something other than `None`, that replaces `grad_input`, for the next hook and for everything before
#    the module. There may be several backward passes through one call.
# 3. When the call ends, or raises, none of your own hooks may still be registered.
#
# The difficulty: the inputs must cross after the last pre-hook and before `forward`, but `super().__call__` does both in one
# call. Here is the trick: register the crossing itself as one more pre-hook, the last one, for this call only.
#
# <details><summary>Hint: how do I write the trick?</summary>
#
# Your handle works in a `with` statement. Put the call of `super()` into such a block, and store its result as `output`. The
# pre-hook itself returns what `cross` returns: a tuple, so it replaces the arguments.
# </details>
# <details><summary>Hint: my hook runs, but the gradient doesn't change</summary>
#
# The function that you give to `cross` must *return* the new gradients.
# </details>
# <details><summary>Hint: in a second backward pass, my hook gets the first pass's grad_output</summary>
#
# Each pass appends to `arrived`. Which entry is the current one?
# </details>

# %% tags=["solution"]
class WithBorder(Hooks):
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

        def inputs_cross(module, args):
            return self.cross(args, at_the_inputs)

        with self.register_forward_pre_hook(inputs_cross):
            output = super().__call__(*args)
        ### END SOLUTION
        (output,) = self.cross((output,), arrived.append)
        return output

# %% tags=["check"]
check("6.3", WithBorder)

# %% [markdown]
# ## When something raises
#
# A pre-hook loads weights, and a forward hook unloads them. If something raises in between, the weights stay loaded. The
# option `always_call=True` of a forward hook is for this case: the hook runs even then. If `forward` raises, the hook gets `None`
# as the output. But other things can raise, too:

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
# An `always_call` hook is for cleaning up. It doesn't rescue the call: the error still reaches the caller. Below, a ready
# class adds such hooks to yours. If you'd like to write it yourself, Exercise 6.4 comes after the recap.

# %% [markdown]
# ## The grid, with your classes
#
# `Mine` combines your border with the hooks that always run, from the ready class. If you change a class above, run the cells
# after it again.

# %%
Border = yours_or("6.3", WithBorder, ready.border(Hooks))
Always = ready.always(Hooks)


class Mine(Border, Always):
    """All of it."""


duels = [beside_torch(one) for one in (Hooks, Border, Mine)]
print(duels[-1])


def filled(duel, group):
    same = [match.is_same for match in duel.of(group)]
    return sum(same) / len(same)


assert filled(duels[0], "go back") < 0.2 and filled(duels[1], "go back") > 0.7
assert filled(duels[1], "raise") < 0.5 and filled(duels[2], "raise") == 1

# %% tags=["figure"]
display(figures.draw_duels(duels))

# %% [markdown]
# *What to see:* the border clears most of *go back*, and the hooks that always run clear *raise*. (Dark squares under *come
# and go*? Then the loops of your 6.2 have no `list(…)` yet. The ready class in the last row has it.) In the last row, some
# squares are still dark, under *go back* and under *everything*. What is the difference?

# %%
print(duels[-1].first_difference())
for match in duels[-1].differences:
    assert "[0, 0]" in match.line(match.torchs)  # a gradient, where PyTorch's log has 0

# %% [markdown]
# All the remaining differences are of this kind: `x` requires grad, and `y` doesn't. `forward` returns three times the sum. Your
# hook reports 3 as the gradient of `y`, PyTorch's hook reports 0. Who is right?
#
# You are. It's the false zero from lesson 5, and here you can see where it comes from. PyTorch's border node marks a tensor that
# doesn't require grad as *non-differentiable*. That saves computing its gradient, and the hook gets a zero instead. With such a
# node, your class agrees with PyTorch in every program:

# %%
class LikeTorch(Mine):
    cross = staticmethod(border.torchs_cross)


duel = beside_torch(LikeTorch)
print(duel)
assert duel.differences == []
source = inspect.getsource(BackwardHookFunction.forward)
assert "mark_non_differentiable" in source

# %% [markdown]
# ## Read the real one
#
# First yours, in one piece. These two methods do nearly all of it. (If 6.2 or 6.3 is still open, you see its gap.)

# %%
for part in (WithHooks, WithBorder):
    print(inspect.getsource(part.__call__))

# %% [markdown]
# And this is PyTorch's: `_call_impl`, which `nn.Module.__call__` runs. It's longer, because it also handles keyword arguments,
# global hooks, the legacy hook and compilers. But its ten main pieces are these, in their order. (The whole function comes after
# the recap.)

# %%
reading.show(1, 2, 3)

# %% [markdown]
# 1 is your `Bare` (`forward_call` is `self.forward`). 2 is your first loop: the tuple, and `is not None`. 3 is your
# `self.cross`, written right there instead of as a pre-hook.

# %%
reading.show(4, 5, 6, 7)

# %% [markdown]
# 4 is `forward`. 5 copies the tables, like your `list(…)`. The **global hooks** (`register_module_forward_hook`) come first. They
# aren't registered on a module, and they run for all modules. 6 is your second loop, and 7 sends the output through the border.

# %% [markdown]
# And the last three, for the legacy hook of lesson 5 (`var` is the first tensor of the output) and for the hooks that always
# run:

# %%
reading.show(8, 9, 10)

# %% [markdown] tags=["recap"]
# ## Recap
#
# `module(x)` runs `nn.Module.__call__`: pre-hooks, `forward`, forward hooks, in the order of their tables. If the module has
# backward hooks, the inputs cross a node right before `forward`, and the output crosses another one at the end.
#
# | the documents say | today |
# |---|---|
# | registering stores the hook in an ordered dict under the handle's id (S1) | true, and `remove()` deletes it |
# | `__call__` runs pre-hooks, `forward`, forward hooks, then attaches backward hooks (S1, S4) | the order holds; full backward hooks use two extra nodes: the inputs cross before `forward`, the output after the hooks |
# | ↓ pre-hooks must not change the input; a forward hook that returns anything raises (S4) | true before release 1.2; since then a returned value replaces |
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | `__call__` | 调用 | what Python runs for `module(x)`, taken from the class; it runs the hooks |
# | handle | 句柄 | knows the table and the id of one hook |
# | `always_call` | 始终调用 | run the hook even if a pre-hook, `forward` or another hook has raised |
# | global hook | 全局钩子 | runs for every module of the process |
# | prepend | 前置 | register at the front of the queue |
#
# (↓ comes below, in "If you want more".)

# %% [markdown] tags=["quiz"]
# ### Three questions
#
# **1.** Your profiler calls `model.forward(x)`. Which hooks don't run?
#
# <details><summary>Answer</summary>
#
# Those of the outermost module. Its `forward` calls the inner modules as usual, so their hooks run.
# </details>
#
# **2.** An `always_call` hook gets `None` as the output. What has happened?
#
# <details><summary>Answer</summary>
#
# A pre-hook or `forward` has raised (or `forward` returned `None`). If a forward hook had raised, there would be an output.
# </details>
#
# **3.** A `forward` tests `x is self.last_x`. It works until you register a full backward hook on the module. Why?
#
# <details><summary>Answer</summary>
#
# The inputs cross the border, so `forward` gets a new tensor that shares the memory of yours. "If you want more" shows which
# inputs cross.
# </details>

# %%
progress(6)

# %% [markdown]
# ## If you want more

# %% [markdown] tags=["exercise"]
# ### Exercise 6.4 · Hooks that always run
# ●●● · 20 minutes
#
# Write the call of 6.2 again, with `always_call`.
#
# 1. Loop over copies of the tables.
# 2. If a pre-hook, `forward` or a forward hook raises an `Exception`, some forward hooks still run: those whose id is in
#    `self.always_called` and that haven't had their turn yet, in the order of the table. (An interrupt isn't an `Exception`.)
# 3. They get `args` and `output` as they are by then. `output` is `None` if there isn't one yet. What such a hook returns replaces
#    the output for the next one.
# 4. If one of them raises, turn that into a warning (`warnings.warn`).
# 5. At the end, the first error goes to the caller.
#
# <details><summary>Hint: a hook runs twice</summary>
#
# Store each hook's id *before* you call the hook. A hook that raises has had its turn.
# </details>
# <details><summary>Hint: the caller gets no error, or a different one</summary>
#
# At the end of the `except` block, `raise` alone raises the same error again.
# </details>

# %% tags=["solution"]
class WithAlways(Hooks):
    """Forward hooks that run even if something raises."""

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
        except Exception:  # an interrupt isn't one
            for key, change in list(self.forward_hooks.items()):
                if key in self.always_called - reached:
                    try:
                        new = change(self, args, output)
                        output = output if new is None else new
                    except Exception as second:
                        message = f"a hook raised after another error: {second}"
                        warnings.warn(message, stacklevel=2)
            raise
        ### END SOLUTION

# %% tags=["check"]
check("6.4", WithAlways)

# %% [markdown]
# Is it like PyTorch's? The programs under *raise* are about this:

# %%
AlwaysOrReady = yours_or("6.4", WithAlways, ready.always(Hooks))
duel = beside_torch(AlwaysOrReady, ["raise"])
print(duel)
assert filled(duel, "raise") == 1

# %% [markdown]
# ### PyTorch's `_call_impl`, in one piece
#
# The numbers on the left mark the ten pieces. The lines between them are mostly about keyword arguments and global hooks.

# %%
reading.show_whole()

# %% [markdown]
# ### Three eras
#
# Your class of exercise 6.2 does what PyTorch did in 2019. Before that, hooks were only allowed to read. S4 prints that
# version of `__call__`: what a pre-hook returns is ignored, and a forward hook that returns anything **raises**. Release 1.2
# reversed the rule: a returned value **replaces**. The third era is today's, with the border and `always_call`.

# %% tags=["claim-S4.1"]
class FirstEra(ReadyTables):
    """Hooks may read, nothing else."""

    def __call__(self, *args):
        for hook in self.pre_hooks.values():
            hook(self, args)
        output = self.forward(*args)
        for hook in self.forward_hooks.values():
            if hook(self, args, output) is not None:
                raise RuntimeError("forward hooks should never return any values")
        return output


for era in (FirstEra, nn.Module):  # input 1, forward times 3, a hook returns 100
    print(f"{era.__name__:>9}:", scripts.hooks_that_return_100(era))

first, today = (scripts.hooks_that_return_100(one) for one in (FirstEra, nn.Module))
assert first == {"pre-hook": 3, "forward hook": "RuntimeError"}
assert today == {"pre-hook": 300, "forward hook": 100}

# %% [markdown]
# ### "A hook of one model runs for all models"
#
# It's a global hook. It stays registered until its handle is removed, so if a notebook forgets to remove it, it changes every
# later cell. ([The change that added them](https://github.com/pytorch/pytorch/pull/38972))

# %% tags=["field", "field-36", "hook-global-forward"]
seen = []
with register_module_forward_hook(
    lambda module, args, out: seen.append(type(module).__name__)
):
    nn.Linear(1, 1)(torch.ones(1, 1))
    nn.Sequential(nn.ReLU())(torch.ones(1))
nn.ReLU()(torch.ones(1))

print(seen)
assert seen == ["Linear", "ReLU", "Sequential"]  # the inner module finishes first

# %% [markdown]
# ### "A module registers a hook in its own `forward`, and the first call misses it"
#
# PyTorch looks for hooks when a call begins. If it finds none at all, it runs `forward` alone: the fast path. A hook that
# `forward` registers then waits for the next call. If any other hook is there, even a pre-hook, PyTorch goes the long way, and
# looks for forward hooks after `forward` has returned. Then the new hook runs in the same call.

# %% tags=["field", "field-fast-path"]
class Late(nn.Module):
    """Registers a hook on itself, in its own forward."""

    def forward(self, x):
        self.register_forward_hook(lambda module, args, output: ran.append("late"))
        return x


ran = []
Late()(torch.ones(1))
without_another = list(ran)

watched = Late()
watched.register_forward_pre_hook(lambda module, args: None)
watched(torch.ones(1))

print("alone:", without_another, "  with a pre-hook:", ran)
assert without_another == [] and ran == ["late"]

# %% [markdown] tags=["exercise"]
# ### Exercise 6.5 · Fix it: a trace of all calls
# ●●○ · 8 minutes
#
# This function records every call in `model(x)`, indented by its depth: `["Sequential", "  Linear", "  ReLU"]`. It works on the
# first try. Then its users report two problems:
#
# - "My other models have become slow."
# - "My model tries a part, catches its error and uses a different part. That part is indented too far."
#
# Fix it. It must still call `model(x)` once. An exception must reach the caller, and hooks that were already there must run and
# stay.
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
# A handle works in a `with` statement, and one statement can hold several.
# </details>
# <details><summary>Hint: some lines are indented too far</summary>
#
# `enter` ran for the part that raised, and `leave` didn't.
# </details>

# %% tags=["solution"]
def trace(model: nn.Module, x: torch.Tensor) -> list[str]:
    """Return a line for each call in model(x), indented by two spaces a level."""
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

# %% [markdown]
# ### One call in slow motion
#
# Step through one call. The module multiplies by 3, and its input is 2.

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
# *What to see:* what a hook returns replaces the value, and `None` changes nothing. A hook that writes in place changes
# everything that shares the memory, including your own tensor. With a backward hook, the values cross the module's **border**
# (lesson 5): `forward` and the caller get new tensors, which share the old ones' memory.

# %% [markdown]
# **Which inputs cross?** As soon as one tensor argument requires grad, all positional tensors cross. If none does, or under
# `no_grad`, `forward` gets the tensors that you passed. Keyword arguments never cross.

# %% tags=["field", "field-183"]
class Same(nn.Module):
    def forward(self, *args, key=None):
        pairs = zip((*args, key), passed, strict=True)
        return args[0] * 1, [one is other for one, other in pairs]


x, key = (torch.ones(1, requires_grad=True) for _ in range(2))
mask = torch.ones(1)
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
# **The order, with everything at once.** In the explorer, the network is `first → second`, and all hooks are on `first`.

# %% tags=["explorer"]
explorer.call_order()

# %% tags=["figure", "field", "field-36"]
kinds = ("pre", "hook", "prepended", "always", "everywhere")
forward_hooks = dict.fromkeys(kinds, True)
for raises_too in (False, True):  # without a kernel: two of its positions
    moments = explorer.record_order(raises=raises_too, **forward_hooks)
    display(explorer.draw_order(moments))
    print(" → ".join(moment.text for moment in moments if moment.kind == "hook"))

ran = [moment.text for moment in moments if moment.kind == "hook"]
assert ran == ["pre-hook", "forward hook, always_call"]
moments = explorer.record_order(**forward_hooks)
hooks = [one.text for one in moments if one.kind == "hook"]
order = [text.removeprefix("forward hook, ") for text in hooks]
first, *others = "pre-hook", "global forward hook", "prepend", "forward hook"
assert order == [first, *others, "always_call"]

# %% [markdown]
# *What to see:* the global hook runs first, then the prepended one, then the others in the order of registration. If
# `first.forward` raises, only the `always_call` hook still runs.

# %% [markdown]
# **"My `always_call` hook gets `None` instead of the output."** Then a pre-hook or `forward` has raised, and there is no output
# yet. ([The thread in which people asked for the option](https://github.com/pytorch/pytorch/issues/103997))

# %% tags=["field"]
layer, got = nn.ReLU(), []
layer.register_forward_pre_hook(lambda module, args: raises(module, args, None))
layer.register_forward_hook(
    lambda m, args, output: got.append(output), always_call=True
)
print(error_of(layer, torch.ones(1)), "  the hook got", got)
assert got == [None]

# %% [markdown]
# **"I stop the forward pass half-way, and offloaded layers stay loaded."** Here, hooks load a layer's weights before it runs and
# unload them afterwards. Feature extractors often stop a forward pass with an exception. Then the unloading hooks of every
# module around that place are skipped. ([A thread of this kind](https://github.com/pytorch/pytorch/issues/180425))

# %% tags=["field", "field-132"]
def still_loaded(**options):
    """Stop a pass after the first inner layer; return what is loaded afterwards."""
    model, loaded = nn.Sequential(nn.Sequential(nn.ReLU(), nn.Tanh())), set()
    for name, module in model.named_modules():
        module.register_forward_pre_hook(lambda m, args, name=name: loaded.add(name))
        module.register_forward_hook(
            lambda m, args, out, name=name: loaded.discard(name), **options
        )
    hooklab.run_until(model, "0.0", torch.ones(1))
    return sorted(loaded)


print("plain hooks:          ", still_loaded())
print("with always_call=True:", still_loaded(always_call=True))
assert still_loaded() == ["", "0"] and still_loaded(always_call=True) == []

# %% [markdown]
# **What happens to an error in a hook?** Older threads report crashes and lost errors. Today the error reaches the caller of the
# module, or of `backward()`, unchanged. But `backward()` stops in the middle: some `.grad` may already be filled and others not, and
# an optimizer step would use half of the gradients. When PyTorch itself complains about a hook, it prints the hook's name, if it
# has one. ([The thread](https://github.com/pytorch/pytorch/issues/37672))

# %% tags=["field", "field-43"]
from functools import partial


def bad(grad):
    raise ValueError("mine")


w, x = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
with x.register_hook(bad):
    print("from backward():", error_of((w * (x * 2)).sum().backward))
assert w.grad.item() == 2.0 and x.grad is None  # only one has its gradient

layer = nn.Identity()
layer.register_forward_hook(lambda module, args, output: 1 / 0)
print("from the call:  ", error_of(layer, x))
assert error_of(layer, x) == "ZeroDivisionError: division by zero"

nameless = partial(lambda factor, grad: grad.repeat(factor), 2)
x.register_hook(nameless)
print("from a partial: ", error_of((x * 2).sum().backward))
message = error_of((x * 2).sum().backward)
assert message == "RuntimeError: hook '<unknown>' has changed the size of value"

# %% [markdown]
# **A case where your class does better.** After an error, PyTorch loops over the table itself, without a copy. If an
# `always_call` hook removes itself there, the caller gets a different error than the first one:

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
# **`hooklab.mini`** is the whole machinery once more, tensors and autograd included, in five small files that don't import torch.
# It has what your class leaves out: keyword arguments, global hooks, several outputs, inputs that don't require grad. Its tests
# run ten thousand random programs with it and with PyTorch. This is the main part of its call:

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
log, gradient = program(nn.Module, torch.tensor)
assert log == ["forward", "first", "second", "backward"] and gradient == [3.0, 3.0]

# %% [markdown]
# ### "`output[0]` is only the first example"
#
# Many recipes say `output[0]`, because a transformer's block used to return a tuple, with the hidden states as its first entry.
# In today's versions many blocks return the tensor itself, and then `output[0]` is the first row of the batch. There's no error.
# Look before you take. ([The thread](https://github.com/huggingface/transformers/issues/39120))

# %% tags=["field", "field-block-tensor"]
class Block(nn.Module):
    def __init__(self, returns_a_tuple):
        super().__init__()
        self.returns_a_tuple = returns_a_tuple

    def forward(self, x):
        return (x * 1, None) if self.returns_a_tuple else x * 1


def hidden_states(output):
    return output[0] if isinstance(output, tuple) else output


def old_recipe(module, args, output):
    output[0].add_(10.0)


def careful(module, args, output):
    hidden_states(output).add_(10.0)


changed = {}
for hook in (old_recipe, careful):
    changed[hook.__name__] = []
    for block in (Block(returns_a_tuple=True), Block(returns_a_tuple=False)):
        with block.register_forward_hook(hook):
            rows = hidden_states(block(torch.zeros(3, 1))).flatten().tolist()
        changed[hook.__name__].append(rows)
    print(f"{hook.__name__:<10} tuple, tensor:", *changed[hook.__name__])
assert changed["old_recipe"] == [[10.0, 10.0, 10.0], [10.0, 0.0, 0.0]]
assert changed["careful"] == [[10.0, 10.0, 10.0], [10.0, 10.0, 10.0]]

# %% [markdown]
# ### "My hook has seen a batch that isn't mine"
#
# A hook runs in every call of the module, and not all calls are yours. A trainer may run some validation batches before the first
# epoch, to find errors early (Lightning's *sanity check*), and a summary runs the model on zeros. So your list is longer than your
# data. Record in training mode only:

# %% tags=["field", "field-trainer-batch"]
def fit(model, batches):
    model.eval()
    model(torch.full((2, 1), 99.0))  # the trainer's own call
    model.train()
    for batch in batches:
        model(batch)


def every_call(module, args):
    means["every call"].append(args[0].mean().item())


def in_training(module, args):
    if module.training:
        means["in training"].append(args[0].mean().item())


model, batches = nn.Identity(), [torch.full((2, 1), value) for value in (1.0, 2.0)]
means = {"every call": [], "in training": []}
with (
    model.register_forward_pre_hook(every_call),
    model.register_forward_pre_hook(in_training),
):
    fit(model, batches)
print(means)
assert means == {"every call": [99.0, 1.0, 2.0], "in training": [1.0, 2.0]}

# %% [markdown]
# ### "My hook is right for the first batch and wrong for all others"
#
# It keeps something from its first call: a mean, a mask, a position, a size. That was true of the first input, or of the
# trainer's. Compute it in each call. If it should stay fixed, compute it before, from data that you chose.

# %% tags=["field", "field-first-input"]
def kept_from_the_first(module, args):
    if "mean" not in store:
        store["mean"] = args[0].mean()
    return args[0] - store["mean"]


def from_each_input(module, args):
    return args[0] - args[0].mean()


centred = {}
for hook in (kept_from_the_first, from_each_input):
    store = {}
    with model.register_forward_pre_hook(hook):
        centred[hook.__name__] = [model(batch).mean().item() for batch in batches]
    print(f"{hook.__name__:<20} means: {centred[hook.__name__]}")
assert centred["kept_from_the_first"] == [0.0, 1.0]
assert centred["from_each_input"] == [0.0, 0.0]
