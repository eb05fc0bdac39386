"""Unusual answers to lesson 6's exercises: right ones are accepted, wrong ones that no misconception covers refused."""

import contextlib
import functools
import random
import secrets
import warnings
import weakref

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.hooks import BackwardHook

from hooklab.course.lesson06 import border
from hooklab.course.lesson06.tables import ReadyTables as Tables
from tests.course.exercises.answers import Answers

answers = Answers("6.1", "6.2", "6.3", "6.4", "6.5")
right, wrong = answers.right, answers.wrong


# --- 6.1


@right("6.1")
class Stack(contextlib.ExitStack):
    count = 0

    def __init__(self, table, hook, prepend=False):
        super().__init__()
        Stack.count -= 1
        self.id = Stack.count
        table[self.id] = hook
        if prepend:
            table.move_to_end(self.id, False)
        self.callback(table.pop, self.id, None)

    def remove(self):
        self.close()


@right("6.1")
class WeakTable:
    def __init__(self, table, hook, prepend=False):
        self.id, self.table = f"hook {secrets.token_hex(8)}", weakref.ref(table)
        table.update({self.id: hook})
        prepend and table.move_to_end(self.id, last=False)

    def remove(self):
        return (self.table() or {}).pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()


class Handle(WeakTable):
    """A right one, to spoil."""

    def __init__(self, table, hook, prepend=False):
        super().__init__(table, hook, prepend)
        self.hook = hook


ONE_OF_ALL, HOOK_ALONE = "An id comes again", "`remove()` takes out what is stored under the handle's own id"


@wrong("6.1", ONE_OF_ALL)
class OneOfAThousand(Handle):
    def __init__(self, table, hook, prepend=False):
        self.id, self.table = random.randrange(1000, 2000), weakref.ref(table)
        table[self.id] = hook
        if prepend:
            table.move_to_end(self.id, last=False)


@wrong("6.1", HOOK_ALONE, "after `a = Handle(table, len)")
class LooksForItsFunctionNext(Handle):
    def remove(self):
        table = self.table()
        table.pop(
            self.id if self.id in table else next((k for k, one in table.items() if one is self.hook), None), None
        )


# --- 6.2


class Around(Tables):
    """A right one, to spoil."""

    def __call__(self, *args):
        args = self.before(args)
        return self.after(args, self.forward(*args))

    def before(self, args):
        for hook in list(self.pre_hooks.values()):
            new = hook(self, args)
            if new is not None:
                args = new if isinstance(new, tuple) else (new,)
        return args

    def after(self, args, output):
        for hook in list(self.forward_hooks.values()):
            new = hook(self, args, output)
            output = output if new is None else new
        return output


@right("6.2")
class Reduces(Tables):
    def __call__(self, *args):
        def change(args, hook):
            match hook(self, args):
                case None:
                    return args
                case tuple() as new:
                    return new
                case new:
                    return (new,)

        def replace(output, hook):
            return output if (new := hook(self, args, output)) is None else new

        args = functools.reduce(change, self.pre_hooks.values(), args)
        return functools.reduce(replace, self.forward_hooks.values(), self.forward(*args))


@right("6.2")
@right("6.3")
class AllByTorch(Tables):
    """Lets an nn.Module do it, made for this one call."""

    def __call__(self, *args):
        inner = nn.Module()
        inner.forward = self.forward
        kinds = {"forward_pre": self.pre_hooks, "forward": self.forward_hooks, "full_backward": self.backward_hooks}
        for kind, table in kinds.items():
            for hook in table.values():
                getattr(inner, f"register_{kind}_hook")(lambda _, *rest, hook=hook: hook(self, *rest))
        return inner(*args)


@wrong("6.2", says="a function that is registered twice")
class EachFunctionOnce(Around):
    def before(self, args):
        for hook in dict.fromkeys(self.pre_hooks.values()):
            new = hook(self, args)
            args = args if new is None else new if isinstance(new, tuple) else (new,)
        return args


@wrong("6.2", "A call runs each pre-hook", says="the class's own forward, though m.forward was replaced")
class AsksTheClass(Around):
    def __call__(self, *args):
        args = self.before(args)
        return self.after(args, type(self).forward(self, *args))


# --- 6.3


@right("6.3")
class TorchsBorder(Around):
    def __call__(self, *args):
        args = self.before(args)
        if not self.backward_hooks:
            return self.after(args, self.forward(*args))
        both = BackwardHook(self, list(self.backward_hooks.values()), [])
        args = both.setup_input_hook(args)
        return both.setup_output_hook(self.after(args, self.forward(*args)))


class Crosses(Around):
    """Registers its crossing by hand; in pieces."""

    cross = staticmethod(border.cross)

    def __call__(self, *args):
        hooks, arrived = list(self.backward_hooks.values()), []
        if not hooks:
            return super().__call__(*args)
        handle = self.register_forward_pre_hook(
            lambda module, args: self.cross(args, lambda grads: self.run_hooks(hooks, grads, arrived[-1]))
        )
        output = self.taking_out(handle, super().__call__, args)
        return self.cross((output,), arrived.append)[0]

    def run_hooks(self, hooks, grad_input, grad_output):
        for hook in hooks:
            new = hook(self, grad_input, grad_output)
            grad_input = grad_input if new is None else new
        return grad_input

    def taking_out(self, handle, call, args):
        try:
            return call(*args)
        finally:
            handle.remove()


@wrong("6.3", "All backward hooks run, in the order of their table.")
class LastHookFirst(Crosses):
    def run_hooks(self, hooks, grad_input, grad_output):
        return super().run_hooks(hooks[::-1], grad_input, grad_output)


@wrong("6.3", "In every call a backward hook gets the module and two tuples")
class GivesLists(Crosses):
    def run_hooks(self, hooks, grad_input, grad_output):
        return super().run_hooks(hooks, list(grad_input), grad_output)


# --- 6.4


@right("6.4")
class Queue(Tables):
    """The hooks that have not had their turn are those left in a list."""

    def __call__(self, *args):
        output, waiting = None, None
        try:
            for hook in list(self.pre_hooks.values()):
                new = hook(self, args)
                args = args if new is None else new if isinstance(new, tuple) else (new,)
            output = self.forward(*args)
            waiting = list(self.forward_hooks.items())
            while waiting:
                new = waiting.pop(0)[1](self, args, output)
                output = output if new is None else new
        except Exception:
            for key, hook in list(self.forward_hooks.items()) if waiting is None else waiting:
                if key in self.always_called:
                    output = self.careful(hook, args, output)
            raise
        return output

    def careful(self, hook, args, output):
        try:
            new = hook(self, args, output)
        except Exception:
            warnings.warn("after another error", stacklevel=2)
            new = None
        return output if new is None else new


class Whatever(Tables):
    """A right one, in pieces."""

    def __call__(self, *args):
        output, reached = None, []
        try:
            for hook in list(self.pre_hooks.values()):
                new = hook(self, args)
                args = args if new is None else new if isinstance(new, tuple) else (new,)
            output = self.forward(*args)
            for key, hook in list(self.forward_hooks.items()):
                reached.append(key)
                new = hook(self, args, output)
                output = output if new is None else new
            return output
        except Exception as error:
            for key, hook in self.left(reached):
                try:
                    new = hook(self, args, output) if key in self.always_called else None
                    output = output if new is None else new
                except Exception as other:
                    warnings.warn(str(other), stacklevel=2)
            self.end(error)

    def left(self, reached):
        return [(key, hook) for key, hook in self.forward_hooks.items() if key not in reached]

    def end(self, error):
        raise error


@right("6.4")
class RaisesByName(Whatever):
    pass


@wrong("6.4", "After an error of a pre-hook, of `forward`", says="a hook that removes itself, and an error")
class CountsTheHooks(Whatever):
    def left(self, reached):
        return list(self.forward_hooks.items())[len(reached) :]


@wrong("6.4", "The error that came first goes to the caller as it is", says="a warning")
class WarnsOfTheFirstError(Whatever):
    def end(self, error):
        warnings.warn(str(error), stacklevel=2)
        raise error


# --- 6.5


def traced(model, x, depth=len, line=lambda depth, module: "  " * depth + type(module).__name__):
    """A right one, to spoil."""
    lines, stack = [], []

    def enter(module, args):
        lines.append(line(depth(stack), module))
        stack.append(module)

    with (
        register_module_forward_pre_hook(enter),
        register_module_forward_hook(lambda *_: stack.pop() and None, always_call=True),
    ):
        model(x)
    return lines


@right("6.5")
def with_a_stack(model, x):
    return traced(model, x)


@right("6.5")
def by_replacing_the_call(model, x):
    lines, depth, call = [], [0], nn.Module.__call__

    def called(module, *args, **kwargs):
        lines.append("  " * depth[0] + type(module).__name__)
        depth[0] += 1
        try:
            return call(module, *args, **kwargs)
        finally:
            depth[0] -= 1

    nn.Module.__call__ = called
    try:
        model(x)
    finally:
        nn.Module.__call__ = call
    return lines


@wrong("6.5", "The model should run in the mode that it is in")
def forces_training(model, x):
    was = model.training
    try:
        return traced(model.train(), x)
    finally:
        model.train(was)


@wrong("6.5", "The first call of your function leaves something behind")
def knows_the_model_already(model, x, known=weakref.WeakSet()):  # noqa: B006
    lines = [] if model in known else traced(model, x)
    known.add(model)
    return lines


test_right, test_wrong = answers.tests()
