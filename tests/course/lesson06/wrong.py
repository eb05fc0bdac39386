"""What people get wrong in lesson 6."""

import contextlib
import itertools
import warnings

from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from tests.course.exercises.wrong import wrong


def run(module, args, replace_args=False, wrap=True, strict=False):
    """A call with some of the details, to build wrong answers from."""
    for hook in module.pre_hooks.values():
        new = hook(module, args)
        if replace_args and new is not None:
            args = new if isinstance(new, tuple) or not wrap else (new,)
    output = module.forward(*args)
    for hook in module.forward_hooks.values():
        if hook(module, args, output) is not None and strict:
            raise RuntimeError("a value")
    return output


@wrong("6.1", says="forgotten return")
def returns_nothing(module, *args):
    run(module, args, strict=True)


@wrong("6.1", says="nobody complained")
def lets_values_pass(module, *args):
    return run(module, args)


@wrong("6.1", says="a pre-hook changed the input")
def lets_pre_hooks_change(module, *args):
    return run(module, args, replace_args=True, strict=True)


@wrong("6.1", says="the order of the calls")
def hooks_before_forward(module, *args):
    for hook in module.pre_hooks.values():
        hook(module, args)
    for hook in module.forward_hooks.values():
        hook(module, args, args[0] + 1)
    return module.forward(*args)


@wrong("6.1", says="wrong kind of error")
def asserts(module, *args):
    for hook in module.pre_hooks.values():
        hook(module, args)
    output = module.forward(*args)
    for hook in module.forward_hooks.values():
        assert hook(module, args, output) is None
    return output


@wrong("6.1", says="'collections.OrderedDict' object is not callable")
def calls_the_table(module, *args):
    return module.pre_hooks(module, args)


@wrong("6.2", says="must be an iterable, not float")
def does_not_wrap(module, *args):
    return run(module, args, replace_args=True, wrap=False)


@wrong("6.2", says="`second pre-hook got (10.0,)` did not happen")
def ignores_pre_hooks(module, *args):
    return run(module, args)


@wrong("6.2", says="truth instead of None")
def asks_for_truth(module, *args):
    for hook in module.pre_hooks.values():
        new = hook(module, args)
        if new is not None:
            args = new if isinstance(new, tuple) else (new,)
    output = module.forward(*args)
    for hook in module.forward_hooks.values():
        output = hook(module, args, output) or output
    return output


@wrong("6.2", says="not chained")
def every_hook_gets_the_first_output(module, *args):
    for hook in module.pre_hooks.values():
        new = hook(module, args)
        if new is not None:
            args = new if isinstance(new, tuple) else (new,)
    output = first = module.forward(*args)
    for hook in module.forward_hooks.values():
        new = hook(module, args, first)
        if new is not None:
            output = new
    return output


@wrong("6.2", says="`forward(10)` did not happen")
def takes_none_for_a_value(module, *args):
    output = module.forward(*args)
    for hook in module.forward_hooks.values():
        output = hook(module, args, output)
    for hook in module.pre_hooks.values():
        args = hook(module, args)
    return output * 1


def handle_class(swallows=False, default=True):
    class Handle:
        def __init__(self, table, key):
            self.table, self.key = table, key

        def remove(self):
            self.table.pop(self.key, None) if default else self.table.pop(self.key)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.remove()
            return swallows

    return Handle


def put(table, hook, prepend, key):
    table[key] = hook
    if prepend:
        table.move_to_end(key, last=False)
    return key


numbers = itertools.count()


@wrong("6.3", says="len(table) as the id")
def length_as_id(table, hook, prepend=False):
    return handle_class()(table, put(table, hook, prepend, len(table)))


@wrong("6.3", says="the same key again")
def one_key_for_all(table, hook, prepend=False):
    return handle_class()(table, put(table, hook, prepend, 0))


@wrong("6.3", says="move_to_end puts a key last")
def never_prepends(table, hook, prepend=False):
    return handle_class()(table, put(table, hook, False, next(numbers)))


@wrong("6.3", says="pop without a default")
def removes_once_only(table, hook, prepend=False):
    return handle_class(default=False)(table, put(table, hook, prepend, next(numbers)))


@wrong("6.3", says="swallows the error")
def swallows(table, hook, prepend=False):
    return handle_class(swallows=True)(table, put(table, hook, prepend, next(numbers)))


@wrong("6.3", says="cannot be asked to remove()")
def returns_the_id(table, hook, prepend=False):
    return put(table, hook, prepend, next(numbers))


@wrong("6.3", says="does not work in a `with` block")
def no_block(table, hook, prepend=False):
    key = put(table, hook, prepend, next(numbers))

    class Handle:
        def remove(self):
            table.pop(key, None)

    return Handle()


@wrong("6.4", says="swallowed")
def swallows_the_error(module, *args):
    try:
        output = module.forward(*args)
    except Exception:
        for number, hook in module.forward_hooks.items():
            if number in module.always_called:
                try:
                    hook(module, args, None)
                except Exception as error:
                    warnings.warn(str(error), stacklevel=2)
        return None
    for hook in module.forward_hooks.values():
        hook(module, args, output)
    return output


@wrong("6.4", says="must not replace the first one")
def a_hooks_error_wins(module, *args):
    try:
        output = module.forward(*args)
    except Exception:
        for number in module.always_called:
            module.forward_hooks[number](module, args, None)
        raise
    for hook in module.forward_hooks.values():
        hook(module, args, output)
    return output


@wrong("6.4", says="an ordinary hook ran after the error")
def runs_all_of_them(module, *args):
    output = None
    try:
        output = module.forward(*args)
    finally:
        for hook in module.forward_hooks.values():
            try:
                hook(module, args, output)
            except Exception as error:
                warnings.warn(str(error), stacklevel=2)
    return output


@wrong("6.4", says="left no trace")
def hides_the_hooks_error(module, *args):
    try:
        output = module.forward(*args)
    except Exception:
        for number in sorted(module.always_called):
            with contextlib.suppress(Exception):
                module.forward_hooks[number](module, args, None)
        raise
    for hook in module.forward_hooks.values():
        hook(module, args, output)
    return output


@wrong("6.4", says="`failing` did not happen")
def lets_the_error_through_at_once(module, *args):
    output = module.forward(*args)
    for hook in module.forward_hooks.values():
        hook(module, args, output)
    return output


@wrong("6.4", says="the rest of the hooks must run")
def stops_at_the_first_failure(module, *args):
    try:
        output = module.forward(*args)
    except Exception:
        try:
            for number in sorted(module.always_called):
                module.forward_hooks[number](module, args, None)
        except Exception as error:
            warnings.warn(str(error), stacklevel=2)
        raise
    for hook in module.forward_hooks.values():
        hook(module, args, output)
    return output


@wrong("6.4", says="more often than it should")
def runs_always_called_twice(module, *args):
    def late(output):
        for number in sorted(module.always_called & set(module.forward_hooks)):
            try:
                module.forward_hooks[number](module, args, output)
            except Exception as error:
                warnings.warn(str(error), stacklevel=2)

    try:
        output = module.forward(*args)
    except Exception:
        late(None)
        raise
    for hook in module.forward_hooks.values():
        hook(module, args, output)
    late(output)
    return output


def counter(counts):
    def count(module, args, output):
        counts[type(module).__name__] = counts.get(type(module).__name__, 0) + 1

    return count


@wrong("6.5", says="modules instead of calls")
def counts_modules(model, x):
    counts = {}
    for module in model.modules():
        counts[type(module).__name__] = counts.get(type(module).__name__, 0) + 1
    return counts


@wrong("6.5", says="remove() was not reached")
def removes_only_after_success(model, x):
    counts = {}
    handle = register_module_forward_hook(counter(counts))
    model(x)
    handle.remove()
    return counts


@wrong("6.5", says="forgotten return")
def forgets_the_result(model, x):
    with register_module_forward_hook(counter({})):
        model(x)


@wrong("6.5", says="the counts are not right")
def forgets_the_outermost(model, x):
    counts = {}
    with register_module_forward_hook(counter(counts)):
        model.forward(x)
    return counts


@wrong("6.5", says="the error did not come out")
def swallows_the_models_error(model, x):
    counts = {}
    try:
        with register_module_forward_hook(counter(counts)):
            model(x)
    except ValueError:
        pass
    return counts


@wrong("6.5", says="never removed")
def never_removes(model, x):
    counts = {}
    register_module_forward_hook(counter(counts))
    nn.Sequential.__call__(model, x)
    return counts


# --- added: what a second reader tried


@wrong("6.1", says="truth instead of None")
def complains_of_true_values_only(module, *args):
    for hook in module.pre_hooks.values():
        hook(module, args)
    output = module.forward(*args)
    for hook in module.forward_hooks.values():
        if hook(module, args, output):
            raise RuntimeError("a value")
    return output


@wrong("6.1", says="one hook only")
def looks_at_the_last_hook(module, *args):
    for hook in module.pre_hooks.values():
        hook(module, args)
    output, value = module.forward(*args), None
    for hook in module.forward_hooks.values():
        value = hook(module, args, output)
    if value is not None:
        raise RuntimeError("a value")
    return output


@wrong("6.1", says="NameError")
def misspells_the_error(module, *args):
    for hook in module.pre_hooks.values():
        hook(module, args)
    output = module.forward(*args)
    for hook in module.forward_hooks.values():
        if hook(module, args, output) is not None:
            raise RuntimeErrorr("a value")  # noqa: F821
    return output


def second_era(module, args, takes=lambda new: new is not None, as_args=None, old_args=False):
    first = args
    for hook in module.pre_hooks.values():
        new = hook(module, args)
        if takes(new):
            args = as_args(new) if as_args else new if isinstance(new, tuple) else (new,)
    output = module.forward(*args)
    for hook in module.forward_hooks.values():
        new = hook(module, first if old_args else args, output)
        if new is not None:
            output = new
    return output


@wrong("6.2", says="a pre-hook may return 0, too")
def asks_pre_hooks_for_truth(module, *args):
    return second_era(module, args, takes=bool)


@wrong("6.2", says="got       second pre-hook got (10.0,), forward(5)")
def unpacks_lists(module, *args):
    return second_era(module, args, as_args=lambda new: tuple(new) if isinstance(new, tuple | list) else (new,))


@wrong("6.2", says="forward hooks get the new arguments")
def forward_hooks_get_the_old_arguments(module, *args):
    return second_era(module, args, old_args=True)


@wrong("6.3", says="the function's id as the key")
def id_of_the_function(table, hook, prepend=False):
    return handle_class()(table, put(table, hook, prepend, id(hook)))


@wrong("6.3", says="an id that comes again")
def one_more_than_the_largest(table, hook, prepend=False):
    return handle_class()(table, put(table, hook, prepend, max(table, default=-1) + 1))


@wrong("6.3", says="under its own id, and nothing else")
def removes_by_function(table, hook, prepend=False):
    handle = handle_class()(table, put(table, hook, prepend, next(numbers)))
    handle.remove = lambda: [table.pop(key) for key in [key for key in table if table[key] is hook]]
    return handle


@wrong("6.3", says="the stub's last line is still there")
def exit_is_still_the_stub(table, hook, prepend=False):
    class Handle(handle_class()):
        def __exit__(self, *error):
            raise NotImplementedError()

    return Handle(table, put(table, hook, prepend, next(numbers)))


def today(module, args, ids=None, hook_args=None, again=None, hooks_in_try=False):
    hook_args = hook_args or args

    def late(output):
        for hook in module.forward_hooks.values():
            hook(module, hook_args, output)

    try:
        output = module.forward(*args)
        if hooks_in_try:
            late(output)
    except Exception as error:
        for number in ids(module) if ids else [key for key in module.forward_hooks if key in module.always_called]:
            try:
                module.forward_hooks[number](module, hook_args, None)
            except Exception as other:
                warnings.warn(str(other), stacklevel=2)
        if again:
            raise again(str(error)) from error
        raise
    if not hooks_in_try:
        late(output)
    return output


@wrong("6.4", says="a set has no order")
def goes_through_the_set(module, *args):
    return today(module, args, ids=lambda module: module.always_called)


@wrong("6.4", says="one `try` for all")
def hooks_inside_the_try(module, *args):
    return today(module, args, hooks_in_try=True)


@wrong("6.4", says="`raise` alone sends on the very one that came")
def raises_a_new_error(module, *args):
    return today(module, args, again=ValueError)


@wrong("6.4", says="args is the tuple")
def hands_over_the_bare_argument(module, x):
    return today(module, (x,), hook_args=x)


@wrong("6.5", says="only a global hook sees a module")
def hooks_on_every_module(model, x):
    counts = {}
    handles = [module.register_forward_hook(counter(counts)) for module in model.modules()]
    try:
        model(x)
    finally:
        for handle in handles:
            handle.remove()
    return counts


@wrong("6.5", says="make a new one inside the function")
def one_dictionary_for_all_runs(model, x, counts={}):  # noqa: B006
    if getattr(model, "seen_before", None) is None:  # the test runs this answer more than once
        counts.clear()
    model.seen_before = True
    with register_module_forward_hook(counter(counts)):
        model(x)
    return counts
