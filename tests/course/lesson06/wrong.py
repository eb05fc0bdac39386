"""What people get wrong in lesson 6."""

import contextlib
import itertools
import warnings

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from hooklab.course.lesson06 import border
from hooklab.course.lesson06.tables import ReadyTables as Tables
from tests.course.exercises.wrong import wrong

# --- 6.1, a handle

numbers = itertools.count()


def put(table, hook, prepend, key):
    table[key] = hook
    if prepend:
        table.move_to_end(key, last=False)
    return key


class Right:
    """A handle that does everything, to take something from."""

    def __init__(self, table, hook, prepend=False):
        self.table, self.hook, self.id = table, hook, self.key(table, hook)
        put(table, hook, prepend, self.id)

    def key(self, table, hook):
        return next(numbers)

    def remove(self):
        self.table.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.remove()


@wrong("6.1", says="an id that comes again after a removal, as len(table) does")
class LengthAsId(Right):
    def key(self, table, hook):
        return len(table)


@wrong("6.1", says="the same key again")
class OneKeyForAll(Right):
    def key(self, table, hook):
        return 0


@wrong("6.1", says="the same key for the same function")
class IdOfTheFunction(Right):
    def key(self, table, hook):
        return id(hook)


@wrong("6.1", says="the old handle and the new one have the same")
class OneMoreThanTheLargest(Right):
    def key(self, table, hook):
        return max(table, default=-1) + 1


@wrong("6.1", says="Python gives the number of an object that is gone to a new one")
class OwnAddress(Right):
    def key(self, table, hook):
        return id(self)


@wrong("6.1", says="two handles of different tables have the same id")
class CountedInTheTable(Right):
    counts = {}  # noqa: RUF012

    def key(self, table, hook):
        _, count = self.counts.setdefault(id(table), (table, itertools.count()))  # the table, or its id comes again
        return next(count)


@wrong("6.1", says="prepend=True had no effect")
class NeverPrepends(Right):
    def __init__(self, table, hook, prepend=False):
        super().__init__(table, hook)


@wrong("6.1", says="the handle's id is not the key of its hook")
class HidesItsId(Right):
    def __init__(self, table, hook, prepend=False):
        super().__init__(table, hook, prepend)
        self._key, self.id = self.id, None

    def remove(self):
        self.table.pop(self._key, None)


@wrong("6.1", says="takes it only if it is there")
class RemovesOnceOnly(Right):
    def remove(self):
        self.table.pop(self.id)


@wrong("6.1", says="removed by the function")
class RemovesTheFirstEntryWithTheFunction(Right):
    def remove(self):
        for key, hook in self.table.items():
            if hook is self.hook:
                del self.table[key]
                return


@wrong("6.1", says="got       max")
class RemovesEveryEntryWithTheFunction(Right):
    def remove(self):
        for key in [key for key, hook in self.table.items() if hook is self.hook]:
            del self.table[key]


@wrong("6.1", says="remove() took out something else")
class RemovesTheLast(Right):
    def remove(self):
        if self.id in self.table and len(self.table) < 3:
            self.table.popitem()
        else:
            self.table.pop(self.id, None)


@wrong("6.1", says="swallows the error")
class Swallows(Right):
    def __exit__(self, *error):
        self.remove()
        return True


@wrong("6.1", says="a block ended without an error")
class RemovesAfterAnErrorOnly(Right):
    def __exit__(self, kind, error, trace):
        if kind is not None:
            self.remove()


@wrong("6.1", says="a block ended with an error")
class RemovesAfterSuccessOnly(Right):
    def __exit__(self, kind, error, trace):
        if kind is None:
            self.remove()


@wrong("6.1", says="gives another object")
class EntersNothing(Right):
    def __enter__(self):
        pass


@wrong("6.1", says="`__del__`, or a weak reference")
class RemovesWhenItIsDropped(Right):
    def __del__(self):
        self.remove()


@wrong("6.1", says="cannot be asked to remove()")
def returns_the_id(table, hook, prepend=False):
    return put(table, hook, prepend, next(numbers))


@wrong("6.1", says="does not work in a `with` block")
class NoBlock:
    def __init__(self, table, hook, prepend=False):
        self.id, self.table = put(table, hook, prepend, next(numbers)), table

    def remove(self):
        self.table.pop(self.id, None)


@wrong("6.1", says="the stub's last line is still there")
def exit_is_still_the_stub(table, hook, prepend=False):
    class Handle(Right):
        def __exit__(self, *error):
            raise NotImplementedError()

    return Handle(table, hook, prepend)


# --- 6.2, around forward


@wrong("6.2", says="what a hook returns is lost")
class LosesWhatIsReturned(Tables):
    def __call__(self, *args):
        for hook in self.pre_hooks.values():
            hook(self, args)
        output = self.forward(*args)
        for hook in self.forward_hooks.values():
            hook(self, args, output)
        return output


class Around(Tables):
    """All of it, to take something from."""

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
            if new is not None:
                output = new
        return output


@wrong("6.2", says="forgotten return")
class ReturnsNothing(Around):
    def __call__(self, *args):
        super().__call__(*args)


@wrong("6.2", says="not wrapped")
class DoesNotWrap(Around):
    def before(self, args):
        for hook in self.pre_hooks.values():
            new = hook(self, args)
            args = args if new is None else new
        return args


@wrong("6.2", says="only a tuple means all arguments")
class UnpacksLists(Around):
    def before(self, args):
        for hook in self.pre_hooks.values():
            new = hook(self, args)
            if isinstance(new, list | tuple):
                args = tuple(new)
            elif new is not None:
                args = (new,)
        return args


@wrong("6.2", says="truth instead of None: a forward hook")
class AsksForTruth(Around):
    def after(self, args, output):
        for hook in self.forward_hooks.values():
            new = hook(self, args, output)
            if new is None or bool(new):
                output = output if new is None else new
        return output


@wrong("6.2", says="truth instead of None: a pre-hook")
class AsksPreHooksForTruth(Around):
    def before(self, args):
        for hook in self.pre_hooks.values():
            if new := hook(self, args):
                args = new if isinstance(new, tuple) else (new,)
        return args


@wrong("6.2", says="not chained: each forward hook")
class EveryHookGetsTheFirstOutput(Around):
    def after(self, args, output):
        first = output
        for hook in self.forward_hooks.values():
            new = hook(self, args, first)
            output = output if new is None else new
        return output


@wrong("6.2", says="forward hooks got the caller's arguments")
class HooksGetTheOldArguments(Around):
    def __call__(self, *args):
        return self.after(args, self.forward(*self.before(args)))


@wrong("6.2", says="None took the place of the output")
class TakesNoneForAValue(Around):
    def after(self, args, output):
        for hook in self.forward_hooks.values():
            output = hook(self, args, output)
        return output


@wrong("6.2", says="unpacked: a forward hook's tuple")
class UnpacksTheOutput(Around):
    def after(self, args, output):
        for hook in self.forward_hooks.values():
            new = hook(self, args, output)
            if new is not None:
                output = new[0] if isinstance(new, tuple) else new
        return output


@wrong("6.2", says="only the first argument reached forward")
class PassesOnOneArgument(Around):
    def __call__(self, *args):
        args = self.before(args)
        return self.after(args, self.forward(*args[:1]))


@wrong("6.2", says="takes 2 positional arguments but 4 were given")
class TakesOneArgument(Around):
    def __call__(self, x):
        return super().__call__(x)


@wrong("6.2", says="the other way round")
class RunsThemBackwards(Around):
    def before(self, args):
        for hook in reversed(self.pre_hooks.values()):
            new = hook(self, args)
            if new is not None:
                args = new if isinstance(new, tuple) else (new,)
        return args

    def after(self, args, output):
        for hook in reversed(self.forward_hooks.values()):
            new = hook(self, args, output)
            output = output if new is None else new
        return output


@wrong("6.2", says="no hook ran")
class CallsForwardAlone(Tables):
    def __call__(self, *args):
        return self.forward(*args)


@wrong("6.2", says="'collections.OrderedDict' object is not callable")
class CallsTheTable(Around):
    def before(self, args):
        return self.pre_hooks(self, args)


@wrong("6.2", says="each once")
class RunsForwardTwice(Around):
    def __call__(self, *args):
        self.forward(*args)
        return super().__call__(*args)


@wrong("6.2", says="check wants the class itself")
def a_function(module, *args):
    return module.forward(*args)


# --- 6.3, both ends


class Crosses(Around):
    """All of it, to take something from."""

    def __call__(self, *args):
        hooks, arrived = list(self.backward_hooks.values()), []
        if not hooks:
            return super().__call__(*args)

        def at_the_inputs(grad_input):
            return self.through(hooks, grad_input, arrived[-1])

        with self.register_forward_pre_hook(lambda m, args: border.cross(args, at_the_inputs)):
            output = super().__call__(*args)
        return border.cross((output,), arrived.append)[0]

    def through(self, hooks, grad_input, grad_output):
        for hook in hooks:
            new = hook(self, grad_input, grad_output)
            grad_input = grad_input if new is None else new
        return grad_input


@wrong("6.3", says="no backward hook ran")
class NothingCrosses(Around):
    def __call__(self, *args):
        return super().__call__(*args)


@wrong("6.3", says="what a backward hook returns is lost")
class GivesNothingBack(Crosses):
    def through(self, *rest):
        super().through(*rest)


@wrong("6.3", says="not chained: each backward hook")
class GradientsNotChained(Crosses):
    def through(self, hooks, grad_input, grad_output):
        last = grad_input
        for hook in hooks:
            new = hook(self, grad_input, grad_output)
            last = last if new is None else new
        return last


@wrong("6.3", says="swapped: a hook gets")
class SwapsGradients(Crosses):
    def through(self, hooks, grad_input, grad_output):
        return super().through([lambda m, a, b, hook=hook: hook(m, b, a) for hook in hooks], grad_input, grad_output)


@wrong("6.3", says="the inputs crossed before the pre-hooks")
class CrossesFirst(Crosses):
    def __call__(self, *args):
        hooks, arrived = list(self.backward_hooks.values()), []
        if not hooks:
            return super().__call__(*args)
        args = border.cross(args, lambda grads: self.through(hooks, grads, arrived[-1]))
        output = Around.__call__(self, *args)
        return border.cross((output,), arrived.append)[0]


@wrong("6.3", says="the output crossed before the forward hooks")
class OutputCrossesFirst(Crosses):
    def __call__(self, *args):
        hooks, arrived = list(self.backward_hooks.values()), []
        args = self.before(args)
        if hooks:
            args = border.cross(args, lambda grads: self.through(hooks, grads, arrived[-1]))
        output = self.forward(*args)
        if hooks:
            (output,) = border.cross((output,), arrived.append)
        return self.after(args, output)


@wrong("6.3", says="which hooks belong to a call is decided when it begins")
class LooksUpInBackward(Crosses):
    def through(self, hooks, grad_input, grad_output):
        return super().through(list(self.backward_hooks.values()), grad_input, grad_output)


@wrong("6.3", says="without backward hooks nothing crosses")
class AlwaysCrosses(Crosses):
    def __call__(self, *args):
        with self.register_full_backward_hook(lambda *_: None):
            return super().__call__(*args)


@wrong("6.3", says="backward hooks run in each backward pass")
class RunsOnce(Crosses):
    def __call__(self, *args):
        self.ran = False
        return super().__call__(*args)

    def through(self, hooks, grad_input, grad_output):
        if self.ran:
            return grad_input
        self.ran = True
        return super().through(hooks, grad_input, grad_output)


@wrong("6.3", says="a = m.register_forward_hook(raises_once)")
class LeavesTheEntranceAfterAnError(Around):
    def __call__(self, *args):
        hooks, arrived = list(self.backward_hooks.values()), []
        if not hooks:
            return super().__call__(*args)
        through = Crosses.through
        handle = self.register_forward_pre_hook(
            lambda m, args: border.cross(args, lambda grads: through(self, hooks, grads, arrived[-1]))
        )
        output = super().__call__(*args)
        handle.remove()
        return border.cross((output,), arrived.append)[0]


@wrong("6.3", says="the grad_output of the first pass")
class KeepsTheFirstGradOutput(Around):
    def __call__(self, *args):
        hooks, arrived = list(self.backward_hooks.values()), []
        if not hooks:
            return super().__call__(*args)
        enter = lambda m, args: border.cross(args, lambda grads: Crosses.through(self, hooks, grads, arrived[0]))  # noqa: E731
        with self.register_forward_pre_hook(enter):
            output = super().__call__(*args)
        return border.cross((output,), arrived.append)[0]


@wrong("6.3", says="the output does not cross")
class ForgetsTheOutput(Around):
    def __call__(self, *args):
        hooks, arrived = list(self.backward_hooks.values()), []
        if not hooks:
            return super().__call__(*args)
        enter = lambda m, args: border.cross(args, lambda grads: Crosses.through(self, hooks, grads, arrived[-1]))  # noqa: E731
        with self.register_forward_pre_hook(enter):
            return super().__call__(*args)


# --- 6.4, whatever happens


class Whatever(Tables):
    """All of it, to take something from."""

    covered = Exception
    late_output = late_args = None

    def __call__(self, *args):
        first, output, reached = args, None, set()
        try:
            for hook in list(self.pre_hooks.values()):
                new = hook(self, args)
                if new is not None:
                    args = new if isinstance(new, tuple) else (new,)
            output = self.forward(*args)
            for key, hook in list(self.forward_hooks.items()):
                reached.add(key)
                new = hook(self, args, output)
                output = output if new is None else new
            return output
        except self.covered as error:
            self.late(self.late_args or (lambda first, args: args), first, args, output, reached)
            return self.send_on(error)

    def late(self, which, first, args, output, reached):
        for key in self.keys(reached):
            try:
                new = self.forward_hooks[key](self, which(first, args), output)
                output = output if new is None else new
            except Exception as error:
                self.failed(error)

    def keys(self, reached):
        return [key for key in self.forward_hooks if key in self.always_called and key not in reached]

    def failed(self, error):
        warnings.warn(str(error), stacklevel=2)

    def send_on(self, error):
        raise error


@wrong("6.4", says="swallowed: `raise` alone")
class SwallowsTheError(Whatever):
    def send_on(self, error):
        pass


@wrong("6.4", says="took the place of the first one")
class AHooksErrorWins(Whatever):
    def failed(self, error):
        raise error


@wrong("6.4", says="only the hooks in `always_called` run")
class RunsAllOfThem(Whatever):
    def keys(self, reached):
        return [key for key in self.forward_hooks if key not in reached]


@wrong("6.4", says="left no trace")
class HidesTheHooksError(Whatever):
    def failed(self, error):
        pass


@wrong("6.4", says="errors of every kind")
class CatchesTwoKinds(Whatever):
    covered = (ValueError, KeyError)


@wrong("6.4", says="a hook ran twice: one that was reached")
class RunsThemAgain(Whatever):
    def keys(self, reached):
        return [key for key in self.forward_hooks if key in self.always_called]


@wrong("6.4", says="the output was there already")
class AlwaysNone(Whatever):
    def late(self, which, first, args, output, reached):
        super().late(which, first, args, None, reached)


@wrong("6.4", says="the arguments of the caller")
class GivesTheFirstArguments(Whatever):
    late_args = staticmethod(lambda first, args: first)


@wrong("6.4", says="a set has no order")
class GoesThroughTheSet(Whatever):
    def keys(self, reached):
        return self.always_called - reached


@wrong("6.4", says="expected  raises Boom('forward')")
class RaisesANewError(Whatever):
    def send_on(self, error):
        raise type(error)(str(error))


@wrong("6.4", says="after one always_call hook has failed")
class StopsAtTheFirstFailure(Whatever):
    def late(self, which, first, args, output, reached):
        try:
            for key in self.keys(reached):
                new = self.forward_hooks[key](self, args, output)
                output = output if new is None else new
        except Exception as error:
            self.failed(error)


@wrong("6.4", says="got       a warning")
class WarnsWithoutCause(Whatever):
    def __call__(self, *args):
        self.failed("hello")
        return super().__call__(*args)


@wrong("6.4", says="OrderedDict mutated during iteration")
class LoopsOverTheTable(Tables):
    def __call__(self, *args):
        output, reached = None, set()
        try:
            for hook in self.pre_hooks.values():
                new = hook(self, args)
                if new is not None:
                    args = new if isinstance(new, tuple) else (new,)
            output = self.forward(*args)
            for key, hook in self.forward_hooks.items():
                reached.add(key)
                new = hook(self, args, output)
                output = output if new is None else new
            return output
        except Exception:
            Whatever.late(self, lambda first, args: args, args, args, output, reached)
            raise

    keys, failed = Whatever.keys, Whatever.failed


class OnlyAround(Tables):
    """A call with `try` around a part of it."""

    def __call__(self, *args):
        args = Around.before(self, args)
        try:
            output = self.forward(*args)
        except Exception:
            Whatever.late(self, lambda first, args: args, args, args, None, set())
            raise
        return Around.after(self, args, output)

    keys, failed = Whatever.keys, Whatever.failed


@wrong("6.4", says="only forward stands in the `try`")
class TriesForwardAlone(OnlyAround):
    pass


@wrong("6.4", says="without an error each hook runs once")
class RunsThemInFinally(Whatever):
    def __call__(self, *args):
        output = None
        try:
            for hook in list(self.pre_hooks.values()):
                new = hook(self, args)
                if new is not None:
                    args = new if isinstance(new, tuple) else (new,)
            output = self.forward(*args)
            for hook in list(self.forward_hooks.values()):
                new = hook(self, args, output)
                output = output if new is None else new
            return output
        finally:
            self.late(lambda first, args: args, args, args, output, set())


# --- 6.5, a trace of all calls


def tracer(enters=register_module_forward_pre_hook, leaves=register_module_forward_hook, by="  ", **options):
    """The lines of a trace, and two managers that keep its hooks for the time of a block."""
    lines, depth = [], [0]

    def enter(module, args):
        lines.append(by * depth[0] + type(module).__name__)
        depth[0] += 1

    def leave(module, args, output):
        depth[0] -= 1

    return lines, enters(enter), leaves(leave, **options)


@wrong("6.5", says="your code left a hook behind")
def never_removes(model, x):
    lines, _, _ = tracer(always_call=True)
    model(x)
    return lines


@wrong("6.5", says="`always_call=True`")
def gets_out_of_step(model, x):
    lines, enter, leave = tracer()
    with enter, leave:
        model(x)
    return lines


@wrong("6.5", says="remove() was not reached")
def removes_after_success_only(model, x):
    lines, enter, leave = tracer(always_call=True)
    model(x)
    enter.remove()
    leave.remove()
    return lines


@wrong("6.5", says="swallowed: remove the hooks")
def swallows_the_models_error(model, x):
    lines, enter, leave = tracer(always_call=True)
    with enter, leave, contextlib.suppress(ValueError):
        model(x)
    return lines


@wrong("6.5", says="goes past its hooks")
def calls_forward(model, x):
    lines, enter, leave = tracer(always_call=True)
    with enter, leave:
        model.forward(x)
    return lines


@wrong("6.5", says="the model in evaluation mode")
def leaves_eval_on(model, x):
    lines, enter, leave = tracer(always_call=True)
    with enter, leave:
        model.eval()
        model(x)
    return lines


@wrong("6.5", says="ran in another mode")
def runs_in_eval(model, x):
    lines, enter, leave = tracer(always_call=True)
    was = model.training
    model.eval()
    try:
        with enter, leave:
            model(x)
    finally:
        model.train(was)
    return lines


@wrong("6.5", says="ran more than once")
def runs_twice(model, x):
    model(x)
    lines, enter, leave = tracer(always_call=True)
    with enter, leave:
        model(x)
    return lines


@wrong("6.5", says="another indentation")
def indents_by_four(model, x):
    lines, enter, leave = tracer(by="    ", always_call=True)
    with enter, leave:
        model(x)
    return lines


@wrong("6.5", says="forgotten return")
def forgets_the_lines(model, x):
    _, enter, leave = tracer(always_call=True)
    with enter, leave:
        model(x)


@wrong("6.5", says="written when a module ends")
def writes_at_the_end(model, x):
    lines, depth = [], [0]

    def enter(module, args):
        depth[0] += 1

    def leave(module, args, output):
        depth[0] -= 1
        lines.append("  " * depth[0] + type(module).__name__)

    with register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True):
        model(x)
    return lines


@wrong("6.5", says="only a global hook sees it")
def hooks_on_every_module(model, x):
    lines, depth, handles = [], [0], []

    def enter(module, args):
        lines.append("  " * depth[0] + type(module).__name__)
        depth[0] += 1

    def leave(module, args, output):
        depth[0] -= 1

    for module in model.modules():
        handles += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave, always_call=True)]
    try:
        model(x)
    finally:
        for handle in handles:
            handle.remove()
    return lines


@wrong("6.5", says="removed a hook that is not yours")
def clears_the_tables(model, x):
    lines, _, _ = tracer(always_call=True)
    try:
        model(x)
    finally:
        nn.modules.module._global_forward_pre_hooks.clear()
        nn.modules.module._global_forward_hooks.clear()
    return lines


@wrong("6.5", says="not with all the hooks that were there before")
def sets_other_hooks_aside(model, x):
    tables = (nn.modules.module._global_forward_pre_hooks, nn.modules.module._global_forward_hooks)
    others = [dict(table) for table in tables]
    for table in tables:
        table.clear()
    try:
        lines, enter, leave = tracer(always_call=True)
        with enter, leave:
            model(x)
        return lines
    finally:
        for table, hooks in zip(tables, others, strict=True):
            table.update(hooks)


@wrong("6.5", says="the lines of the first run are still there")
def one_list_for_all_runs(model, x, lines=[]):  # noqa: B006
    if not getattr(model, "_seen_before", False):
        lines.clear()  # another model: the test runs this answer more than once
    model._seen_before = True
    more, enter, leave = tracer(always_call=True)
    with enter, leave:
        model(x)
    lines += more
    return lines
