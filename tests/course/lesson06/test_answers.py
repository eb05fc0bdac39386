"""Unusual answers to lesson 6's exercises: right ones are accepted, wrong ones refused without an untrue reason."""

import contextlib
import functools
import secrets
import warnings
import weakref

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.hooks import BackwardHook, RemovableHandle

from hooklab.course.lesson06 import border
from hooklab.course.lesson06.tables import ReadyTables as Tables
from tests.course.exercises.answers import Answers

answers = Answers("6.1", "6.2", "6.3", "6.4", "6.5")
right, wrong = answers.right, answers.wrong


# --- 6.1


@right("6.1")
def torchs_own_handle(table, hook, prepend=False):
    handle = RemovableHandle(table)
    table[handle.id] = hook
    if prepend:
        table.move_to_end(handle.id, last=False)
    return handle


@right("6.1")
class RandomIds:
    __slots__ = ("id", "table")

    def __init__(self, table, hook, prepend=False):
        self.id, self.table = secrets.randbits(64), table
        others = list(table.items())
        if prepend:
            table.clear()
        table[self.id] = hook
        if prepend:
            table.update(others)

    def remove(self):
        if self.id in self.table:
            del self.table[self.id]

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.remove()
        return False


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
        self.id = WeakTable.next = getattr(WeakTable, "next", 0) + 1
        self.table = weakref.ref(table)
        table.update({self.id: hook})
        prepend and table.move_to_end(self.id, last=False)

    def remove(self):
        with contextlib.suppress(KeyError):
            (self.table() or {}).pop(self.id)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return self.remove()


@right("6.1")
class ByClosure:
    def __init__(self, table, hook, prepend=False):
        self.id = f"hook {secrets.token_hex(8)}"
        table[self.id] = hook
        if prepend:
            for key in [key for key in table if key != self.id]:
                table.move_to_end(key)
        self.remove = functools.partial(table.pop, self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()


class Handle(RandomIds):
    """A right one, to spoil."""

    __slots__ = ("hook",)

    def __init__(self, table, hook, prepend=False):
        super().__init__(table, hook, prepend)
        self.hook = hook


@wrong("6.1", "the same key again")
class IdFromTheName(Handle):
    def __init__(self, table, hook, prepend=False):
        self.id, self.table, self.hook = len(hook.__name__), table, hook
        table[self.id] = hook


HANDLES = weakref.WeakSet()


@wrong("6.1", says="hooks have vanished")
class LowestNumberThatNoHandleHas:
    def __init__(self, table, hook, prepend=False):
        self.id = next(number for number in range(10**6) if all(one.id != number for one in HANDLES))
        HANDLES.add(self)
        self.table = table
        table[self.id] = hook
        if prepend:
            table.move_to_end(self.id, last=False)

    def remove(self):
        self.table.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.remove()


@wrong("6.1")
class AlwaysPrepends(Handle):
    def __init__(self, table, hook, prepend=False):
        super().__init__(table, hook, True)


@wrong("6.1")
class PrependTurnsTheTable(Handle):
    def __init__(self, table, hook, prepend=False):
        super().__init__(table, hook)
        if prepend:
            for key in list(reversed(table)):
                table.move_to_end(key)


@wrong("6.1")
class ClearsTheTable(Handle):
    def remove(self):
        self.table.clear()


@wrong("6.1", says="a second remove() took out a hook that is not its own")
class LooksForItsFunctionNext(Handle):
    def remove(self):
        mine = (
            self.id if self.id in self.table else next((k for k, one in self.table.items() if one is self.hook), None)
        )
        self.table.pop(mine, None)


@wrong("6.1")
class LeavesNone(Handle):
    def remove(self):
        if self.id in self.table:
            self.table[self.id] = None


@wrong("6.1", says="the table holds something else than the hooks")
class WrapsTheHook(Handle):
    def __init__(self, table, hook, prepend=False):
        super().__init__(table, lambda *args: hook(*args), prepend)


@wrong("6.1")
class RemovesAfterExceptionsOnly(Handle):
    def __exit__(self, kind, error, trace):
        if kind is None or issubclass(kind, Exception):
            self.remove()


@wrong("6.1", says="the block raises another error")
class RaisesAnotherError(Handle):
    def __exit__(self, kind, error, trace):
        self.remove()
        if error is not None:
            raise RuntimeError("in the block") from error


@wrong("6.1")
class RegistersInTheBlock(Handle):
    def __init__(self, table, hook, prepend=False):
        super().__init__(table, hook, prepend)
        table.pop(self.id)

    def __enter__(self):
        self.table[self.id] = self.hook
        return self


@wrong("6.1")
class KeepsACopy(Handle):
    def __init__(self, table, hook, prepend=False):
        super().__init__(table, hook, prepend)
        self.table = dict(table)


@wrong("6.1")
class RemovesTheFirst(Handle):
    def remove(self):
        if self.id in self.table:
            self.table.popitem(last=False)


@wrong("6.1", "the key is gone", says="remove(), when somebody has emptied the table, raises")
class NotesThatItRemoved(Handle):
    is_gone = False

    def remove(self):
        if not self.is_gone:
            self.is_gone = True
            del self.table[self.id]


@wrong("6.1", says="6.1 not yet: remove raised KeyError")
class RemovesByTheHook(Handle):
    def remove(self):
        del self.table[self.hook]


# --- 6.2


@wrong("6.2", says="MisspellsTheTable raised AttributeError: 'ModuleOfAProgram' object has no")
class MisspellsTheTable(Tables):
    def __call__(self, *args):
        for hook in self.prehooks.values():
            args = hook(self, args) or args
        return self.forward(*args)


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
class ByKeys(Tables):
    def __call__(self, *inputs):
        values = [inputs]
        for key in [*self.pre_hooks]:
            values += [
                new if type(new) is tuple else (new,)
                for new in [self.pre_hooks[key](self, values[-1])]
                if new is not None
            ]
        outputs = [self.forward(*values[-1])]
        for key in [*self.forward_hooks]:
            outputs += filter(lambda new: new is not None, [self.forward_hooks[key](self, values[-1], outputs[-1])])
        return outputs[-1]


@right("6.2")
class CalledByTorch(Tables):
    """Lets an nn.Module do it, made for this one call."""

    def __call__(self, *args):
        inner = nn.Module()
        inner.forward = self.forward
        for hook in self.pre_hooks.values():
            inner.register_forward_pre_hook(lambda _, *rest, hook=hook: hook(self, *rest))
        for hook in self.forward_hooks.values():
            inner.register_forward_hook(lambda _, *rest, hook=hook: hook(self, *rest))
        return inner(*args)


@right("6.2")
class Recurses(Tables):
    def __call__(self, *args):
        return self.step(list(self.pre_hooks.values()), args)

    def step(self, hooks, args):
        if not hooks:
            return self.last(list(self.forward_hooks.values()), args, self.forward(*args))
        new = hooks[0](self, args)
        if new is not None and not isinstance(new, tuple):
            new = (new,)
        return self.step(hooks[1:], args if new is None else new)

    def last(self, hooks, args, output):
        if not hooks:
            return output
        new = hooks[0](self, args, output)
        return self.last(hooks[1:], args, output if new is None else new)


@right("6.2")
class Generated(Tables):
    def __call__(self, *args):
        run = self.running(args)
        return list(run)[-1]

    def running(self, args):
        for hook in tuple(self.pre_hooks.values()):
            returned = hook(self, args)
            if returned is None:
                continue
            args = returned if isinstance(returned, tuple) else (returned,)
        output = self.forward(*args)
        yield output
        for hook in tuple(self.forward_hooks.values()):
            returned = hook(self, args, output)
            output = [output, returned][returned is not None]
            yield output


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


@wrong("6.2")
class OnlyTensorsReplace(Around):
    def after(self, args, output):
        for hook in list(self.forward_hooks.values()):
            new = hook(self, args, output)
            output = new if isinstance(new, torch.Tensor) else output
        return output


@wrong("6.2")
class HooksGetAList(Around):
    def before(self, args):
        for hook in list(self.pre_hooks.values()):
            new = hook(self, list(args))
            if new is not None:
                args = new if isinstance(new, tuple) else (new,)
        return args


@wrong("6.2")
class EachHookOnce(Around):
    def before(self, args):
        args = super().before(args)
        self.pre_hooks.clear()
        return args


@wrong("6.2")
class StopsAtTheFirstValue(Around):
    def after(self, args, output):
        for hook in list(self.forward_hooks.values()):
            new = hook(self, args, output)
            if new is not None:
                return new
        return output


@wrong("6.2")
class WithoutArgumentsNoHooks(Around):
    def before(self, args):
        return super().before(args) if args else args


@wrong("6.2")
class HidesErrors(Around):
    def __call__(self, *args):
        try:
            return super().__call__(*args)
        except Exception:
            return None


@wrong("6.2", says="a call without hooks gives what forward gives")
class WithoutHooksNothing(Around):
    def __call__(self, *args):
        return super().__call__(*args) if self.pre_hooks or self.forward_hooks else None


@wrong("6.2", says="a hook that is registered after a call runs in the next one")
class KnowsTheFirstHooks(Around):
    def before(self, args):
        self.known = vars(self).get("known") or [list(self.pre_hooks.values())]
        for hook in self.known[0]:
            new = hook(self, args)
            if new is not None:
                args = new if isinstance(new, tuple) else (new,)
        return args


@wrong("6.2", says="a function that is registered twice runs twice")
class EachFunctionOnce(Around):
    def before(self, args):
        for hook in dict.fromkeys(self.pre_hooks.values()):
            new = hook(self, args)
            if new is not None:
                args = new if isinstance(new, tuple) else (new,)
        return args


@wrong("6.2", says="forward of the class, and m.forward is another one")
class AsksTheClass(Around):
    def __call__(self, *args):
        args = self.before(args)
        return self.after(args, type(self).forward(self, *args))


@wrong("6.2")
class AddsArguments(Around):
    def before(self, args):
        for hook in list(self.pre_hooks.values()):
            new = hook(self, args)
            if new is not None:
                args += new if isinstance(new, tuple) else (new,)
        return args


@wrong("6.2")
class HooksGetForward(Around):
    def after(self, args, output):
        for hook in list(self.forward_hooks.values()):
            new = hook(self.forward, args, output)
            output = output if new is None else new
        return output


@wrong("6.2")
class CopiesTensors(Around):
    def before(self, args):
        return tuple(arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in super().before(args))


@wrong("6.2", "wrapped: only a pre-hook's value becomes a tuple")
class WrapsTheOutput(Around):
    def after(self, args, output):
        for hook in list(self.forward_hooks.values()):
            new = hook(self, args, output)
            if new is not None:
                output = new if isinstance(new, tuple) else (new,)
        return output


@wrong("6.2", "wrapped twice")
class WrapsTuples(Around):
    def before(self, args):
        for hook in list(self.pre_hooks.values()):
            new = hook(self, args)
            args = args if new is None else (new,)
        return args


# --- 6.3


def through(module, hooks, grad_input, grad_output):
    for hook in hooks:
        new = hook(module, grad_input, grad_output)
        grad_input = grad_input if new is None else new
    return grad_input


@right("6.3")
class TorchsBorder(Around):
    def __call__(self, *args):
        args = self.before(args)
        if not self.backward_hooks:
            return self.after(args, self.forward(*args))
        both = BackwardHook(self, list(self.backward_hooks.values()), [])
        args = both.setup_input_hook(args)
        return both.setup_output_hook(self.after(args, self.forward(*args)))


@right("6.3")
class WholeCall(Around):
    def __call__(self, *args):
        hooks = tuple(self.backward_hooks.values())
        came = {}
        args = self.before(args)
        if hooks:
            args = border.cross(args, lambda grads: through(self, hooks, grads, came["out"]))
        output = self.after(args, self.forward(*args))
        return border.cross([output], lambda grads: came.update(out=grads))[0] if hooks else output


@right("6.3")
class EntranceByHand(Around):
    cross = staticmethod(border.torchs_cross)

    def __call__(self, *args):
        hooks, arrived = [*self.backward_hooks.values()], []
        if hooks:
            self.pre_hooks["entrance"] = lambda m, args: self.cross(args, lambda g: through(m, hooks, g, arrived.pop()))
        try:
            output = super().__call__(*args)
        finally:
            self.pre_hooks.pop("entrance", None)
        return self.cross((output,), arrived.append)[0] if hooks else output


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, then, *tensors):
        ctx.then = then
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx, *grads):
        new = ctx.then(grads)
        return (None, *(grads if new is None else new))


@right("6.3")
class OwnFunction(Around):
    def __call__(self, *args):
        hooks, arrived = list(self.backward_hooks.values()), []
        args = self.before(args)
        if not hooks or not torch.is_grad_enabled():
            return self.after(args, self.forward(*args))
        places = [place for place, value in enumerate(args) if isinstance(value, torch.Tensor)]

        def then(grads):
            spread = dict(zip(places, grads, strict=True))
            new = through(self, hooks, tuple(spread.get(place) for place in range(len(args))), arrived.pop())
            return [new[place] for place in places]

        crossed = dict(zip(places, Gate.apply(then, *[args[place] for place in places]), strict=True))
        args = tuple(crossed.get(place, value) for place, value in enumerate(args))
        return Gate.apply(arrived.append, self.after(args, self.forward(*args)))[0]


@right("6.3")
class AllByTorch(Around):
    """Lets an nn.Module do it, made for this one call."""

    def __call__(self, *args):
        inner = nn.Module()
        inner.forward = self.forward
        kinds = {"forward_pre": self.pre_hooks, "forward": self.forward_hooks, "full_backward": self.backward_hooks}
        for kind, table in kinds.items():
            for hook in table.values():
                getattr(inner, f"register_{kind}_hook")(lambda _, *rest, hook=hook: hook(self, *rest))
        return inner(*args)


class Crosses(Around):
    """A right one, to spoil."""

    def __call__(self, *args):
        hooks, arrived = list(self.backward_hooks.values()), []
        if not hooks:
            return super().__call__(*args)
        with self.register_forward_pre_hook(
            lambda m, args: border.cross(args, lambda grads: self.there(hooks, grads, arrived[-1]))
        ):
            output = super().__call__(*args)
        return border.cross((output,), arrived.append)[0]

    def there(self, hooks, grad_input, grad_output):
        return through(self, hooks, grad_input, grad_output)


@wrong("6.3")
class GivesLists(Crosses):
    def there(self, hooks, grad_input, grad_output):
        return through(self, hooks, list(grad_input), grad_output)


@wrong("6.3")
class DropsNone(Crosses):
    def there(self, hooks, grad_input, grad_output):
        for hook in hooks:
            hook(self, tuple(grad for grad in grad_input if grad is not None), grad_output)


@wrong("6.3")
class BareGradOutput(Crosses):
    def there(self, hooks, grad_input, grad_output):
        return through(self, hooks, grad_input, grad_output[0])


@wrong("6.3")
class FirstHookOnly(Crosses):
    def there(self, hooks, grad_input, grad_output):
        return through(self, hooks[:1], grad_input, grad_output)


@wrong("6.3")
class LastHookFirst(Crosses):
    def there(self, hooks, grad_input, grad_output):
        return through(self, hooks[::-1], grad_input, grad_output)


@wrong("6.3")
class TakesThemAll(Crosses):
    def __call__(self, *args):
        output = super().__call__(*args)
        self.backward_hooks.clear()
        return output


@wrong("6.3", "the inputs crossed before the pre-hooks")
class EntersFirst(Around):
    """The entrance is the first pre-hook instead of the last."""

    def __call__(self, *args):
        hooks, arrived = list(self.backward_hooks.values()), []
        if not hooks:
            return super().__call__(*args)
        enter = functools.partial(self.enter, hooks, arrived)
        with self.register_forward_pre_hook(enter, prepend=True):
            output = super().__call__(*args)
        return border.cross((output,), arrived.append)[0]

    def enter(self, hooks, arrived, module, args):
        return border.cross(args, lambda grads: through(self, hooks[:], grads, arrived[-1])[:])


@wrong("6.3", "the crossing at the inputs stays registered when the call is over")
class EntranceStays(Around):
    def __call__(self, *args):
        hooks, arrived = list(self.backward_hooks.values()), []
        if not hooks:
            return super().__call__(*args)
        self.register_forward_pre_hook(
            lambda m, args: border.cross(args, lambda grads: through(self, hooks, grads, arrived[-1]))
        )
        return border.cross((super().__call__(*args),), arrived.append)[0]


@wrong("6.3", "the crossing at the inputs stays registered when something raises")
class EntranceStaysAfterAnError(Around):
    def __call__(self, *args):
        hooks, arrived = list(self.backward_hooks.values()), []
        if not hooks:
            return super().__call__(*args)
        handle = self.register_forward_pre_hook(
            lambda m, args: border.cross(args, lambda grads: through(self, hooks, grads, arrived[-1]))
        )
        output = super().__call__(*args)
        handle.remove()
        return border.cross((output,), arrived.append)[0]


@wrong("6.3", says="a hook that is registered during the call is there for the next")
class TakesTheLastOneOut(Around):
    def __call__(self, *args):
        hooks, arrived = list(self.backward_hooks.values()), []
        if not hooks:
            return super().__call__(*args)
        self.register_forward_pre_hook(
            lambda m, args: border.cross(args, lambda grads: through(self, hooks, grads, arrived[-1]))
        )
        try:
            output = super().__call__(*args)
        finally:
            self.pre_hooks.popitem()
        return border.cross((output,), arrived.append)[0]


@wrong("6.3")
class RunsAtBothEnds(Crosses):
    def __call__(self, *args):
        hooks = list(self.backward_hooks.values())
        output = super().__call__(*args)
        return border.cross((output,), lambda grads: through(self, hooks, grads, grads))[0] if hooks else output


@wrong("6.3")
class ForTheFirstArgument(Crosses):
    def there(self, hooks, grad_input, grad_output):
        return (*through(self, hooks, grad_input[:1], grad_output), *grad_input[1:])


# --- 6.4


@right("6.4")
class Inner(Tables):
    def __call__(self, *args):
        result, called = None, []

        def inner():
            nonlocal args, result
            for hook in (*self.pre_hooks.values(),):
                new = hook(self, args)
                if new is not None:
                    args = new if isinstance(new, tuple) else (new,)
            result = self.forward(*args)
            for key, hook in (*self.forward_hooks.items(),):
                called.append(key)
                new = hook(self, args, result)
                if new is not None:
                    result = new
            return result

        try:
            return inner()
        except Exception as first:
            for key, hook in self.forward_hooks.items():
                if key not in called and key in self.always_called:
                    try:
                        new = hook(self, args, result)
                        if new is not None:
                            result = new
                    except Exception as second:
                        warnings.warn(repr(second), RuntimeWarning, stacklevel=1)
            raise first


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
                _, hook = waiting.pop(0)
                new = hook(self, args, output)
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


@right("6.4")
class Kept(Tables):
    """Keeps the error in a variable, and raises it at the end."""

    def __call__(self, *args):
        error, output, late = None, None, False
        for hook in [*self.pre_hooks.values()]:
            if error is None:
                try:
                    new = hook(self, args)
                except Exception as this:
                    error = this
                else:
                    args = args if new is None else new if isinstance(new, tuple) else (new,)
        if error is None:
            try:
                output = self.forward(*args)
            except Exception as this:
                error = this
        for key, hook in [*self.forward_hooks.items()]:
            late = error is not None
            if late and key not in self.always_called:
                continue
            try:
                new = hook(self, args, output)
                output = output if new is None else new
            except Exception as this:
                if late:
                    warnings.warn(str(this), stacklevel=2)
                else:
                    error = this
        if error is not None:
            raise error
        return output


@right("6.4")
class WithAStack(Tables):
    def __call__(self, *args):
        with contextlib.ExitStack() as stack:
            now = {"args": args, "output": None, "reached": set()}
            stack.push(functools.partial(self.late, now))
            for hook in list(self.pre_hooks.values()):
                new = hook(self, now["args"])
                if new is not None:
                    now["args"] = new if isinstance(new, tuple) else (new,)
            now["output"] = self.forward(*now["args"])
            for key, hook in list(self.forward_hooks.items()):
                now["reached"] |= {key}
                new = hook(self, now["args"], now["output"])
                now["output"] = now["output"] if new is None else new
            return now["output"]

    def late(self, now, kind, error, trace):
        if error is None or not isinstance(error, Exception):
            return
        for key, hook in self.forward_hooks.items():
            if key in self.always_called and key not in now["reached"]:
                try:
                    new = hook(self, now["args"], now["output"])
                    now["output"] = now["output"] if new is None else new
                except Exception as other:
                    warnings.warn(str(other), stacklevel=2)


@right("6.4")
class WhoeverComesLate(Around):
    """Has a generator hand out the forward hooks, whose turn it is told."""

    def __call__(self, *args):
        now = self.now = {"args": args, "output": None, "late": False}
        try:
            for hook in list(self.pre_hooks.values()):
                new = hook(self, now["args"])
                now["args"] = now["args"] if new is None else new if isinstance(new, tuple) else (new,)
            now["output"] = self.forward(*now["args"])
            now["turns"] = iter(list(self.forward_hooks.items()))
            self.go_on(now)
        except Exception as error:
            now["late"] = True
            self.go_on(now)
            raise error from error.__cause__
        return now["output"]

    def go_on(self, now):
        for key, hook in now.setdefault("turns", iter(list(self.forward_hooks.items()))):
            if not now["late"] or key in self.always_called:
                try:
                    new = hook(self, now["args"], now["output"])
                except Exception as error:
                    if not now["late"]:
                        raise
                    warnings.warn(str(error), stacklevel=2)
                else:
                    now["output"] = now["output"] if new is None else new


class Whatever(Tables):
    """A right one, to spoil."""

    def __call__(self, *args):
        output, reached = None, set()
        try:
            for hook in list(self.pre_hooks.values()):
                new = hook(self, args)
                args = args if new is None else new if isinstance(new, tuple) else (new,)
            output = self.forward(*args)
            for key, hook in list(self.forward_hooks.items()):
                reached.add(key)
                new = hook(self, args, output)
                output = output if new is None else new
            return output
        except Exception as error:
            for key in [key for key in self.forward_hooks if key in self.always_called and key not in reached]:
                try:
                    new = self.late(self.forward_hooks[key], args, output, error)
                    output = output if new is None else new
                except Exception as other:
                    self.failed(other, error)
            self.end(error)

    def late(self, hook, args, output, error):
        return hook(self, args, output)

    def failed(self, other, error):
        warnings.warn(str(other), stacklevel=2)

    def end(self, error):
        raise error


@wrong("6.4")
class CountsAfterTheCall(Tables):
    def __call__(self, *args):
        output, reached = None, set()
        try:
            args = Around.before(self, args)
            output = self.forward(*args)
            for key, hook in list(self.forward_hooks.items()):
                new = hook(self, args, output)
                reached.add(key)
                output = output if new is None else new
            return output
        except Exception:
            for key, hook in self.forward_hooks.items():
                if key in self.always_called - reached:
                    try:
                        hook(self, args, output)
                    except Exception as other:
                        warnings.warn(str(other), stacklevel=2)
            raise


@wrong("6.4", "a hook that raises ran twice")
class WritesItDownTooLate(Tables):
    def __call__(self, *args):
        output, reached = None, set()
        try:
            for hook in list(self.pre_hooks.values()):
                new = hook(self, args)
                args = args if new is None else new if isinstance(new, tuple) else (new,)
            output = self.forward(*args)
            for key, hook in list(self.forward_hooks.items()):
                new = hook(self, args, output)
                reached.add(key)
                output = output if new is None else new
            return output
        except Exception:
            for key, hook in list(self.forward_hooks.items()):
                if key in self.always_called - reached:
                    try:
                        new = hook(self, args, output)
                        output = output if new is None else new
                    except Exception as other:
                        warnings.warn(str(other), stacklevel=2)
            raise


@wrong("6.4", "None took the place of the output")
class LosesTheOutput(Tables):
    def __call__(self, *args):
        output, reached = None, set()
        try:
            for hook in list(self.pre_hooks.values()):
                new = hook(self, args)
                args = args if new is None else new if isinstance(new, tuple) else (new,)
            output = self.forward(*args)
            for key, hook in list(self.forward_hooks.items()):
                reached.add(key)
                new = hook(self, args, output)
                output = output if new is None else new
            return output
        except Exception:
            for key in [key for key in self.forward_hooks if key in self.always_called - reached]:
                try:
                    output = self.forward_hooks[key](self, args, output)
                except Exception as other:
                    warnings.warn(str(other), stacklevel=2)
            raise


@wrong("6.4", "nothing ran after this error, a Boom", says="hooks whose id is in `always_called` run there")
class CatchesAndForgets(Around):
    def __call__(self, *args):
        try:
            return super().__call__(*args)
        except Exception:
            raise


@wrong("6.4", says="got       raises another error, Boom: ")
class ACopyOfTheError(Whatever):
    def end(self, error):
        raise type(error)(*error.args)


@wrong("6.4", "the error of an always_call hook left no trace", "got       nothing more")
class Prints(Whatever):
    def failed(self, other, error):
        print(other)


@wrong("6.4")
class GivesTheError(Whatever):
    def late(self, hook, args, output, error):
        return hook(self, args, error)


@wrong("6.4")
class RaisesAGroup(Whatever):
    def end(self, error):
        raise ExceptionGroup("errors", [error])


@wrong("6.4")
class WarnsOfTheFirstError(Whatever):
    def end(self, error):
        warnings.warn(str(error), stacklevel=2)
        raise error


@wrong("6.4")
class RemovesThem(Whatever):
    def end(self, error):
        for key in self.always_called:
            self.forward_hooks.pop(key, None)
        raise error


@wrong("6.4")
class OnlyWithAnOutput(Whatever):
    def late(self, hook, args, output, error):
        return None if output is None else hook(self, args, output)


@wrong("6.4", "after an error, too, each hook gets what the one before it has made")
class LosesWhatTheyReturn(Whatever):
    def late(self, hook, args, output, error):
        hook(self, args, output)


@wrong("6.4", "the error of an always_call hook took the place of the first one")
class RaisesTheSecond(Whatever):
    def failed(self, other, error):
        raise other from error


@wrong("6.4")
class ALongWord(Whatever):
    def end(self, error):
        raise type(error)("y" * 5_000_000)


# --- 6.5


def traced(model, x, run=lambda model, x: model(x), by="  ", name=lambda module: type(module).__name__, **options):
    """A right one, to spoil."""
    lines, stack = [], []

    def enter(module, args):
        lines.append(by * len(stack) + name(module))
        stack.append(module)

    with (
        register_module_forward_pre_hook(enter),
        register_module_forward_hook(lambda *_: stack.pop() and None, **({"always_call": True} | options)),
    ):
        run(model, x)
    return lines


@right("6.5")
def with_a_stack(model, x):
    return traced(model, x)


@right("6.5")
def with_finally(model, x):
    lines, depth = [], 0

    def enter(module, args):
        nonlocal depth
        lines.append(f"{'':{2 * depth}}{module.__class__.__name__}" if depth else type(module).__name__)
        depth += 1

    def leave(*_):
        nonlocal depth
        depth -= 1

    handles = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True)]
    try:
        model(x)
    finally:
        for handle in handles:
            handle.remove()
    return lines


@right("6.5")
def with_an_exit_stack(model, x):
    class Tracer:
        depth, lines = 0, ()

        def enter(self, module, args):
            self.lines = (*self.lines, "  " * self.depth + type(module).__name__)
            self.depth += 1

        def leave(self, module, args, output):
            self.depth -= 1

    with contextlib.ExitStack() as stack:
        tracer = Tracer()
        stack.enter_context(register_module_forward_pre_hook(tracer.enter))
        stack.enter_context(register_module_forward_hook(tracer.leave, always_call=True))
        model(x)
    return list(tracer.lines)


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


@right("6.5")
def pairs_first(model, x):
    moments = []
    with (
        register_module_forward_hook(lambda *_: moments.append(None), always_call=True),
        register_module_forward_pre_hook(lambda module, args: moments.append(type(module).__name__)),
    ):
        model(x)
    return [
        "  " * sum(1 if moment else -1 for moment in moments[:place]) + moment
        for place, moment in enumerate(moments)
        if moment
    ]


@wrong("6.5")
def lower_case(model, x):
    return traced(model, x, name=lambda module: type(module).__name__.lower())


@wrong("6.5")
def each_module_once(model, x):
    return list(dict.fromkeys(traced(model, x)))


@wrong("6.5", says="expected  Sequential | ··Linear")
def without_indentation(model, x):
    return [line.strip() for line in traced(model, x)]


@wrong("6.5", "another indentation")
def with_tabs(model, x):
    return traced(model, x, by="\t")


@wrong("6.5")
def without_the_first(model, x):
    return [line[2:] for line in traced(model, x)][1:]


@wrong("6.5")
def forces_training(model, x):
    was = model.training
    try:
        return traced(model.train(), x)
    finally:
        model.train(was)


@wrong("6.5", "swallowed")
def returns_what_it_has(model, x):
    lines = []

    def run(model, x):
        with contextlib.suppress(Exception):
            model(x)

    lines += traced(model, x, run=run)
    return lines


@wrong("6.5", "out of step: a forward that raises skips its forward hooks, unless")
def plain_hooks(model, x):
    return traced(model, x, always_call=False)


@wrong("6.5", says="the model ran under no_grad")
def without_gradients(model, x):
    with torch.no_grad():
        return traced(model, x)


@wrong("6.5")
def a_string(model, x):
    return "\n".join(traced(model, x))


@wrong("6.5")
def wraps_the_error(model, x):
    try:
        return traced(model, x)
    except Exception as error:
        raise RuntimeError("in the model") from error


@wrong("6.5", says="the same model once more")
def knows_the_model_already(model, x, known=[]):  # noqa: B006
    lines = [] if any(one is model for one in known) else traced(model, x)
    known.append(model)
    return lines


@wrong("6.5")
def only_parts_by_name(model, x):
    return [
        type(model).__name__,
        *("  " * (name.count(".") + 1) + type(part).__name__ for name, part in model.named_modules() if name),
    ]


# --- a handle that is removed inside its block; interrupts; a crossing that goes after an error alone


@wrong("6.1", "the key is gone", says="the end of a block in which the handle was removed raises")
class DeletesAtTheEnd(RemovableHandle):
    def __init__(self, table, hook, prepend=False):
        super().__init__(table)
        self.table = table
        table[self.id] = hook
        if prepend:
            table.move_to_end(self.id, last=False)

    def remove(self):
        self.table.pop(self.id, None)

    def __exit__(self, *error):
        del self.table[self.id]


class Crossing(Around):
    def __call__(self, *args):
        hooks, arrived = list(self.backward_hooks.values()), []
        if not hooks:
            return super().__call__(*args)
        handle = self.register_forward_pre_hook(
            lambda module, args: border.cross(args, lambda grads: through(self, hooks, grads, arrived[-1]))
        )
        return border.cross((self.taking_out(handle, super().__call__, args),), arrived.append)[0]


@wrong("6.3", "the crossing at the inputs is taken out after an error alone")
class AfterAnErrorAlone(Crossing):
    def taking_out(self, handle, call, args):
        try:
            return call(*args)
        except BaseException:
            handle.remove()
            raise


@wrong("6.3", "`except Exception`", says="after an interrupt in forward, a crossing is still registered")
class AfterAnExceptionOrNone(Crossing):
    def taking_out(self, handle, call, args):
        try:
            output = call(*args)
        except Exception:
            handle.remove()
            raise
        handle.remove()
        return output


@right("6.3")
class InFinally(Crossing):
    def taking_out(self, handle, call, args):
        try:
            return call(*args)
        finally:
            handle.remove()


@wrong("6.4", "caught too much", says="forward was interrupted, and an always_call hook ran")
class AfterAnInterrupt(Tables):
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
        except BaseException:
            for key, hook in list(self.forward_hooks.items()):
                if key in self.always_called and key not in reached:
                    try:
                        new = hook(self, args, output)
                        output = output if new is None else new
                    except Exception as error:
                        warnings.warn(str(error), stacklevel=2)
            raise


test_right, test_wrong = answers.tests()
