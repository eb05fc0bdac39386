"""Unusual answers to lesson 6's exercises: right ones are accepted, wrong ones that no misconception covers refused."""

import contextlib
import functools
import itertools
import secrets
import warnings
import weakref

from torch import nn
from torch.utils.hooks import BackwardHook

from hooklab.course.lesson06.border import cross
from hooklab.course.lesson06.tables import ReadyTables as Tables
from solutions.misconceptions import lesson06 as parts
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


few_ids = itertools.cycle(range(1000, 3000))
wrong("6.1", "An id comes again")(parts.with_pieces(parts.Handle, key=lambda *_: next(few_ids)))


@wrong("6.1", "`remove()` takes out what is stored under the handle's own id", "after `a = Handle(table, len)")
class LooksForItsFunctionNext(parts.Handle):
    def remove(self):
        if self.table.pop(self.id, None) is None:
            parts.removes_first_of_the_function(self)


# --- 6.2


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


wrong("6.2", says="a function that is registered twice")(
    parts.hooks(in_order=lambda table: [(None, hook) for hook in dict.fromkeys(table.values())])
)


@wrong("6.2", "A call runs each pre-hook", says="the class's own forward, though m.forward was replaced")
class AsksTheClass(parts.Hooks):
    def __call__(self, *first):
        args = self.before(first)
        return self.after(first, args, type(self).forward(self, *args))


# --- 6.3


@right("6.3")
class TorchsBorder(parts.Hooks):
    def __call__(self, *first):
        args = self.before(first)
        if not self.backward_hooks:
            return self.after(first, args, self.forward(*args))
        both = BackwardHook(self, list(self.backward_hooks.values()), [])
        args = both.setup_input_hook(args)
        return both.setup_output_hook(self.after(first, args, self.forward(*args)))


def crossing_with_lists(tensors, hook):
    return cross(tensors, lambda grads: hook(list(grads)))


LAST_FIRST = "All backward hooks run, in the order of"
WITH_LISTS = "In every call a backward hook gets the module and two"
wrong("6.3", LAST_FIRST)(parts.border(in_turn=staticmethod(lambda hooks: list(hooks)[::-1])))
wrong("6.3", WITH_LISTS)(parts.border(cross=staticmethod(crossing_with_lists)))


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


right("6.4")(parts.Always)


@wrong("6.4", "After an error of a pre-hook, of `forward`", says="a hook that removes itself, and an error")
class CountsTheHooks(parts.Always):
    def late(self, first):
        self.reached = set(list(self.forward_hooks)[: len(self.reached)])
        super().late(first)


@wrong("6.4", "The error that came first goes to the caller as it is", says="a warning")
class WarnsOfTheFirstError(parts.Always):
    def late(self, first):
        super().late(first)
        warnings.warn("the first error", stacklevel=2)


# --- 6.5


right("6.5")(parts.tracing())


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
        return parts.tracing()(model.train(), x)
    finally:
        model.train(was)


@wrong("6.5", "The first call of your function leaves something behind")
def knows_the_model_already(model, x, known=weakref.WeakSet()):  # noqa: B006
    lines = [] if model in known else parts.tracing()(model, x)
    known.add(model)
    return lines


test_right, test_wrong = answers.tests()
